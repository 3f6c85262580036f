"""What every ledger does: each promise of the port is one piece of work on its book.

A store opens the book: to read, and to write all of a piece of work or nothing of it, fenced by
the writer's term.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

from horae.core.ports import PATIENCE as MISSING
from horae.org.collector import collector_paused
from horae.store import arming, scanning
from horae.store.book import Batch, Book

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import datetime, timedelta
    from pathlib import Path

    from horae.core.ports import Job, Process, Pruned, Run
    from horae.core.receipt import Filed
    from horae.core.source import Revision, Scan

T = TypeVar("T")
P = ParamSpec("P")
_Answer: TypeAlias = "Coroutine[Any, Any, T]"

ANYBODY: Final = 0  # the term of what a person asks for, whoever decides
_LONG: Final = 1000  # a scan of more entries is committed alone


def _reading(
    work: Callable[Concatenate[Book, P], T],
) -> Callable[Concatenate[BookLedger, P], _Answer[T]]:
    """Return the method of a ledger that reads what a method of its book returns."""

    async def read(self: BookLedger, /, *args: P.args, **named: P.kwargs) -> T:
        return await self.read(lambda book: work(book, *args, **named))

    return read


def _writing(work: Callable[..., T]) -> Callable[..., _Answer[T]]:
    """Return the method of a ledger that does what a method of its book does, in a term."""

    async def write(self: BookLedger, *args: Any, term: int, **named: Any) -> T:
        return await self.write(term, lambda book: work(book, *args, **named))

    return write


class BookLedger(ABC):
    """A ledger that is kept in a book; `core.ports.Ledger` says what each method promises."""

    place: str

    @abstractmethod
    async def read(self, work: Callable[[Book], T]) -> T:
        """Read without waiting for a writer."""

    @abstractmethod
    async def write(
        self,
        term: int,
        work: Callable[[Book], T],
        *,
        keep: bool = True,
        is_alone: bool = False,
    ) -> T:
        """Do all of it or none of it; without *keep* none of it in any case.

        One that is *alone* takes long, and shares its commit with no other.
        """

    @abstractmethod
    async def close(self) -> None:
        """Finish what is under way."""

    @abstractmethod
    async def backup(self, target: Path) -> None:
        """Write a verified copy of the ledger, or raise an error that says who does that."""

    knows = _reading(Book.knows)
    loose = _reading(Book.loose)
    index = _reading(Book.known_files)
    entry = _reading(Book.entry)
    find = _reading(Book.find)
    entries = _reading(Book.entries)
    coming = _reading(Book.coming)
    count_entries = _reading(Book.count_entries)
    entries_that_are = _reading(Book.entries_that_are)
    followers = _reading(Book.followers)
    due = _reading(Book.due)
    wake_at = _reading(Book.wake_at)
    receipt = _reading(Book.receipt)
    receipts = _reading(Book.receipts)
    unsettled = _reading(Book.unsettled)
    late = _reading(Book.late)
    run = _reading(Book.run)
    runs_of = _reading(Book.runs_of)
    newest_event = _reading(Book.newest_event)
    events_after = _reading(Book.events_after)
    fresh_at = _reading(Book.fresh_at)
    text = _reading(Book.text)

    decide = _writing(Book.decide)
    add = _writing(Book.add)
    give_back = _writing(Book.give_back)
    end = _writing(Book.end)
    hold = _writing(Book.hold)
    release = _writing(Book.release)
    settle = _writing(Book.settle)
    pause = _writing(arming.pause)
    resume = _writing(arming.resume)
    set_back = _writing(arming.set_back)
    remember = _writing(Book.remember)
    note = _writing(Book.tell)

    async def scan(
        self,
        source: str,
        scan: Scan,
        *,
        now: datetime,
        term: int,
        revision: Revision | None = None,
        patience: timedelta = MISSING,
    ) -> datetime | None:
        is_long = len(scan.entries) > _LONG

        def work(book: Book) -> datetime | None:
            with collector_paused(when=is_long):
                return scanning.scan(
                    book, source, scan, now=now, revision=revision, patience=patience
                )

        return await self.write(term, work, is_alone=is_long)

    async def start(self, receipt: int, *, now: datetime, term: int) -> Run | None:
        return await self.write(term, Batch(Book.start_all, (receipt, now)))

    async def running(self, run: int, process: Process, *, now: datetime, term: int) -> bool:
        return await self.write(term, Batch(Book.running_all, (run, process, now)))

    async def job(self, filed: Filed, run: Run) -> Job | None:
        return await self.read(Batch(Book.jobs, (filed, run)))

    async def open_runs(self) -> list[tuple[Filed, Run]]:
        return await self.read(Book.open_runs)

    async def wake(self, *, now: datetime, term: int) -> list[int]:
        # Hardly ever is there one, and to look keeps nobody from writing.
        if not await self.read(lambda book: book.term() != term or book.rested(now=now)):
            return []
        return await self.write(term, lambda book: arming.wake(book, now=now))

    async def prune(
        self, *, before: datetime, now: datetime, term: int, dry_run: bool = False
    ) -> Pruned:
        return await self.write(
            term,
            lambda book: book.prune(before=before, now=now),
            keep=not dry_run,
            is_alone=True,
        )
