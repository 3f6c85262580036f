"""What every ledger does, said once: each promise is one piece of work on its book.

A store only has to open a book: to read, and to write all of a piece of work or nothing of
it, fenced by the writer's term.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, TypeVar

from horae.core.ports import PATIENCE as MISSING
from horae.core.receipt import Status
from horae.org.collector import collector_paused
from horae.store import arming, scanning
from horae.store.book import Batch, Book

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta
    from pathlib import Path

    from horae.core.ports import (
        DueEntry,
        EntryCounts,
        EntryStep,
        Event,
        Job,
        Listed,
        Process,
        Pruned,
        ReceiptPage,
        Run,
        Trait,
    )
    from horae.core.receipt import Filed, Reason, Receipt
    from horae.core.source import Revision, Scan

T = TypeVar("T")

ANYBODY: Final = 0  # the term of what a person asks for, whoever decides
_LONG: Final = 1000  # a scan of more entries is committed alone


class BookLedger(ABC):
    """A ledger that is kept in a book."""

    place: str

    @abstractmethod
    async def read(self, work: Callable[[Book], T]) -> T:
        """Read without waiting for whoever writes."""

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

        One that is *alone* takes long, and shares its commit with nobody.
        """

    @abstractmethod
    async def close(self) -> None:
        """Finish what is under way."""

    @abstractmethod
    async def backup(self, target: Path) -> None:
        """Write a verified copy of the ledger, or raise an error that says who does that."""

    async def index(self, source: str) -> dict[str, str]:
        """Return by what each file of a source was last known, as its last scan said.

        Of a file whose entries stand though it could not be read, that is nothing.
        """
        return await self.read(
            lambda book: dict.fromkeys(book.files(source), "") | book.index(source)
        )

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
        """Take over what a source holds; return when to look again, if something is missing."""
        is_long = len(scan.entries) > _LONG

        def work(book: Book) -> datetime | None:
            with collector_paused(when=is_long):
                return scanning.scan(
                    book, source, scan, now=now, revision=revision, patience=patience
                )

        return await self.write(term, work, is_alone=is_long)

    async def knows(self, source: str) -> bool:
        """Tell whether a source has entries that are not gone."""
        return await self.read(lambda book: book.knows(source))

    async def loose(self, source: str) -> list[str]:
        """Return the files of a source that hold what is in no commit, as far as is known."""
        return await self.read(lambda book: book.loose(source))

    async def entry(self, number: int) -> Listed | None:
        return await self.read(lambda book: book.entry(number))

    async def find(self, word: str) -> list[Listed]:
        """Return the entries that a person may mean, those that are still there first."""
        return await self.read(lambda book: book.find(word))

    async def entries(self, *, source: str | None = None) -> list[Listed]:
        """Return every entry that was ever known, the longest known first."""
        return await self.read(lambda book: book.entries(source))

    async def coming(self, *, limit: int = 20) -> list[Listed]:
        """Return the armed entries that come next, the earliest first."""
        return await self.read(lambda book: book.coming(limit))

    async def count_entries(self, *, due_before: datetime) -> EntryCounts:
        """Return how many entries may fire, and how many were due before a moment."""
        return await self.read(lambda book: book.count_entries(due_before=due_before))

    async def entries_that_are(self, trait: Trait, *, limit: int) -> list[Listed]:
        """Return the first entries of which something can be said, the longest known first."""
        return await self.read(lambda book: book.entries_that_are(trait, limit))

    async def followers(self) -> list[Listed]:
        """Return the armed entries that follow others."""
        return await self.read(lambda book: book.followers())

    async def due(self, *, now: datetime, limit: int = 1000) -> list[DueEntry]:
        """Return the armed entries whose next moment has come, the earliest first."""
        return await self.read(lambda book: book.due(now=now, limit=limit))

    async def wake_at(self) -> datetime | None:
        """Return when the next moment of all comes, or the next pause ends; None is never."""
        return await self.read(lambda book: book.wake_at())

    async def decide(self, steps: Sequence[EntryStep], *, now: datetime, term: int) -> list[Filed]:
        """Move watermarks and file receipts, all at once; return what was filed."""
        return await self.write(term, lambda book: book.decide(steps, now=now))

    async def add(
        self,
        entry: int,
        receipts: Sequence[Receipt],
        *,
        now: datetime,
        term: int,
        parent: int | None = None,
        agents: tuple[str, ...] | None = None,
    ) -> list[Filed]:
        """File what somebody asked for, all at once; the same key gives the same receipt back."""
        return await self.write(
            term, lambda book: book.add(entry, receipts, now=now, parent=parent, agents=agents)
        )

    async def start(self, receipt: int, *, now: datetime, term: int) -> Run | None:
        """Take a waiting receipt and open its run; None means that it does not wait."""
        return await self.write(term, Batch(Book.start_all, (receipt, now)))

    async def running(self, run: int, process: Process, *, now: datetime, term: int) -> bool:
        """Record which process the run is, before it is let go."""
        return await self.write(term, Batch(Book.running_all, (run, process, now)))

    async def give_back(
        self, run: int, *, reason: Reason, now: datetime, term: int, died: bool = False
    ) -> bool:
        """Let the receipt of a run that was never let go wait again; *died*: the engine did."""
        return await self.write(
            term, lambda book: book.give_back(run, reason=reason, now=now, died=died)
        )

    async def end(
        self,
        run: int,
        outcome: Status,
        *,
        reason: Reason,
        now: datetime,
        term: int,
        exit_code: int | None = None,
        facts: Mapping[str, object] | None = None,
        is_last: bool = False,
        memory: str | None = None,
        is_counted: bool = True,
    ) -> Filed | None:
        """Record how a run ended, and what follows: a retry, or the end of its receipt."""
        return await self.write(
            term,
            lambda book: arming.end(
                book,
                run,
                outcome,
                exit_code=exit_code,
                reason=reason,
                facts=facts,
                is_last=is_last,
                memory=memory,
                is_counted=is_counted,
                now=now,
            ),
        )

    async def hold(self, receipt: int, *, reason: Reason, now: datetime, term: int) -> bool:
        """Keep a waiting receipt from starting until it is released."""
        return await self.write(
            term, lambda book: book.move_number(receipt, Status.HELD, reason=reason, now=now)
        )

    async def release(self, receipt: int, *, reason: Reason, now: datetime, term: int) -> bool:
        """Let a held receipt wait for its start again."""
        return await self.write(term, lambda book: book.release(receipt, reason=reason, now=now))

    async def settle(self, receipts: Iterable[int], *, now: datetime, term: int) -> int:
        """Record that all that follows from these receipts is done; return of how many."""
        numbers = tuple(receipts)
        return await self.write(term, lambda book: book.settle(numbers, now=now))

    async def unsettled(self, *, after: int = 0, limit: int = 1000) -> list[Filed]:
        """Return the final receipts after a number that are not settled, oldest first."""
        return await self.read(lambda book: book.unsettled(after=after, limit=limit))

    async def pause(
        self,
        entry: int,
        *,
        now: datetime,
        term: int,
        note: str = "",
        until: datetime | None = None,
    ) -> bool:
        """Let an entry rest; what waits of it is skipped. False: gone, or resting already."""
        return await self.write(
            term, lambda book: arming.pause(book, entry, now=now, note=note, until=until)
        )

    async def resume(self, entry: int, *, now: datetime, term: int) -> bool:
        """Let a resting entry go on from now; what came meanwhile is one skipped range."""
        return await self.write(term, lambda book: arming.resume(book, entry, now=now))

    async def wake(self, *, now: datetime, term: int) -> list[int]:
        """Resume every entry whose pause has come to its end; return their numbers."""
        # Hardly ever is there one, and to look keeps nobody from writing.
        if not await self.read(lambda book: book.term() != term or book.rested(now=now)):
            return []
        return await self.write(term, lambda book: arming.wake(book, now=now))

    async def set_back(self, *, now: datetime, term: int) -> int:
        """Let entries go on from now whose watermark a clock that ran ahead has left beyond it."""
        return await self.write(term, lambda book: arming.set_back(book, now=now))

    async def receipt(self, number: int) -> Filed | None:
        return await self.read(lambda book: book.receipt(number))

    async def receipts(
        self,
        *,
        entry: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        statuses: Collection[Status] = (),
        cursor: int | None = None,
        limit: int = 100,
    ) -> ReceiptPage:
        """Return receipts, newest first, planned in a window (ranges that touch it too)."""
        return await self.read(
            lambda book: book.receipts(
                entry=entry,
                since=since,
                until=until,
                statuses=statuses,
                cursor=cursor,
                limit=limit,
            )
        )

    async def late(self, *, since: datetime, by: timedelta, limit: int = 1000) -> list[Filed]:
        """Return what ran, was planned since a moment, and was decided so much later."""
        return await self.read(lambda book: book.late(since=since, by=by, limit=limit))

    async def runs_of(self, receipt: int) -> list[Run]:
        """Return every attempt of a receipt, in order."""
        return await self.read(lambda book: book.runs_of(receipt))

    async def run(self, number: int) -> Run | None:
        return await self.read(lambda book: book.run(number))

    async def open_runs(self) -> list[tuple[Filed, Run]]:
        """Return the runs that have not ended, each with its receipt, oldest first."""
        return await self.read(lambda book: book.open_runs())

    async def remember(self, entry: int, memory: str, *, term: int) -> None:
        """Let an entry's next run, and whoever asks meanwhile, know something."""
        await self.write(term, lambda book: book.remember(entry, memory))

    async def note(
        self,
        kind: str,
        *,
        now: datetime,
        term: int,
        entry: int | None = None,
        receipt: int | None = None,
        facts: Mapping[str, object] | None = None,
    ) -> None:
        """Write down something that happened."""
        await self.write(
            term,
            lambda book: book.tell(kind, now=now, entry=entry, receipt=receipt, facts=facts),
        )

    async def newest_event(self) -> int:
        """Return the number of the last event; 0 is none."""
        return await self.read(lambda book: book.newest_event())

    async def fresh_at(self) -> datetime | None:
        """Return when this ledger was begun in place of a lost one; None: it was not."""
        return await self.read(lambda book: book.fresh_at())

    async def events_after(self, number: int, *, limit: int = 1000) -> list[Event]:
        """Return what happened after an event, in order."""
        return await self.read(lambda book: book.events_after(number, limit))

    async def job(self, filed: Filed, run: Run) -> Job | None:
        """Return all that the run of a receipt needs; None: the text that it runs is not here."""
        return await self.read(Batch(Book.jobs, (filed, run)))

    async def text(self, digest: str) -> str | None:
        return await self.read(lambda book: book.text(digest))

    async def prune(
        self, *, before: datetime, now: datetime, term: int, dry_run: bool = False
    ) -> Pruned:
        """Fold settled receipts from before a moment into ranges, and drop what hangs on them."""
        return await self.write(
            term,
            lambda book: book.prune(before=before, now=now),
            keep=not dry_run,
            is_alone=True,
        )
