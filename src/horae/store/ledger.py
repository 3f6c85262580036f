"""What every ledger does: each promise of the port is one piece of work on its book.

Work is done all or not at all, fenced by the writer's term; calls that wait at the same time share
one transaction. A store says how one begins and ends, and what its errors mean.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

from horae.core.ports import PATIENCE as MISSING, LedgerWriteError, StaleTermError
from horae.org.collector import collector_paused
from horae.store import arming, scanning
from horae.store.book import Batch, Book
from horae.store.call_queue import CallQueue, QueuedCall, do_all

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime, timedelta
    from pathlib import Path

    from horae.core.ports import Job, Process, Pruned, Run
    from horae.core.receipt import Filed
    from horae.core.source import Revision, Scan
    from horae.store.book import NodeJoin

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

    worker: NodeJoin | None = None
    place: str
    _writer: Any  # a connection; another one after the disk, or the server, has failed
    _reader: Any
    _write_queue: CallQueue
    _read_queue: CallQueue

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def backup(self, target: Path) -> None:
        """Write a verified copy of the ledger, or raise an error that says who does that."""

    @abstractmethod
    def _errors(self) -> AbstractContextManager[None]:
        """Turn what the database says into what a person can act on."""

    @abstractmethod
    def _ask(self, work: Callable[[], T]) -> T: ...

    @abstractmethod
    def _begin(self, calls: Sequence[QueuedCall[Any]], /) -> Callable[[QueuedCall[Any]], None]:
        """Begin to write when nobody else does; return what checks whether a call still may."""

    @abstractmethod
    def _say(self, statement: str) -> None: ...

    @abstractmethod
    def _undone(self, error: Exception) -> Exception:
        """Return the error of a call that can be undone alone; raise any other."""

    @abstractmethod
    def _give_up(self, error: BaseException) -> None:
        """Leave a transaction that cannot be kept."""

    async def read(self, work: Callable[[Book], T]) -> T:
        """Read without waiting for a writer."""
        return await self._read_queue.join(QueuedCall(work), self._look)

    async def write(
        self,
        term: int,
        work: Callable[[Book], T],
        *,
        keep: bool = True,
        is_alone: bool = False,
        as_member: bool = True,
    ) -> T:
        """Do all of it or none of it; without *keep* none of it in any case.

        One that is *alone* takes long, and shares its commit with no other. *work* may be done
        twice, if that of another call has failed.
        """
        worker = self.worker if as_member else None
        call = QueuedCall(work, term=term, keep=keep, is_alone=is_alone, worker=worker)
        return await self._write_queue.join(call, self._serve)

    def _look(self, calls: Sequence[QueuedCall[Any]]) -> None:
        """Read what several asked for; what one cannot be told keeps nothing from the others."""
        book = Book(self._reader)
        try:
            self._ask(lambda: do_all(calls, book))
        except LedgerWriteError as error:  # the database cannot be reached
            for call in calls:
                call.error = error
        except Exception:  # each is done again by itself, and told its own error
            for call in calls:
                try:
                    self._ask(partial(call.do, book))
                except Exception as error:  # the caller raises it
                    call.error = error

    def _serve(self, calls: Sequence[QueuedCall[Any]]) -> None:
        """Do what several asked for in one transaction; what one of them spoils is undone alone.

        If the database fails, nothing of all this is kept, and each of them hears of it.
        """
        try:
            with self._errors():
                # To be able to undo each alone costs as much as many of them do.
                if not self._do_together(calls):
                    self._do_apart(calls)
        except BaseException as error:  # the callers raise it
            self._give_up(error)
            for call in calls:
                call.error = error

    def _check_term(self, term: int, current: int) -> None:
        if term not in (current, ANYBODY):
            raise StaleTermError(self.place, term=term, current=current)

    def _do_together(self, calls: Sequence[QueuedCall[Any]]) -> bool:
        """Do all of several calls; False: one spoils it or is not to be kept, so none is done."""
        if not all(call.keep for call in calls):
            return False
        check = self._begin(calls)
        try:
            for call in calls:
                check(call)
            do_all(calls, Book(self._writer))
        except Exception as error:  # each is done again by itself, and told its own error
            self._undone(error)
            self._say("ROLLBACK")
            return False
        self._say("COMMIT")
        return True

    def _do_apart(self, calls: Sequence[QueuedCall[Any]]) -> None:
        check, book = self._begin(calls), Book(self._writer)
        for call in calls:
            self._say("SAVEPOINT call")
            is_kept = call.keep
            try:
                check(call)
                call.do(book)
            except Exception as error:  # the caller raises it
                call.error, is_kept = self._undone(error), False
            if not is_kept:
                self._say("ROLLBACK TO call")
            self._say("RELEASE call")
        self._say("COMMIT")

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
