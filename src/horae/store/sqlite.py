"""The ledger on SQLite: one file in the data directory, or none at all.

Of a file, one thread owns the one connection that writes and another one that only
reads, so a long write keeps no reader waiting and the event loop never waits for the
disk. In memory both are the same connection, used where it is called: a simulated
world has one thread.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from horae.engine.ports import LedgerWriteError, StaleTermError
from horae.rules.entry import key_time
from horae.rules.misfire import Status
from horae.store import arming, database
from horae.store.book import Book
from horae.store.lock import Lock
from horae.store.sql import theme

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from horae.engine.ports import Event, Filed, Listed, Page, Process, Pruned, Run, Step
    from horae.rules.armed import Scanned
    from horae.rules.entry import Entry
    from horae.rules.misfire import Receipt

T = TypeVar("T")

PATIENCE: Final = timedelta(seconds=5)  # how long a write waits for another process
_GAP: Final = 1_000_000  # more numbers than anyone gives between a backup and its restore
_TERM: Final = theme("term")
_RESTORE: Final = theme("restore")


class _Hand(Protocol):
    """Where work on a connection is done."""

    async def do(self, work: Callable[[], T]) -> T: ...

    def rest(self) -> None: ...


class _Thread:
    """One thread of its own."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def do(self, work: Callable[[], T]) -> T:
        """Do it there, and wait for it here."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def rest(self) -> None:
        """End the thread when its work is done."""
        self._pool.shutdown(wait=True)


class _Inline:
    """The caller's own thread."""

    async def do(self, work: Callable[[], T]) -> T:
        """Do it at once."""
        return work()

    def rest(self) -> None:
        """Do nothing: there is no thread."""


class SqliteLedger:
    """The ledger on SQLite; `open` and `in_memory` make one."""

    def __init__(
        self,
        path: Path | None,
        *,
        writer: sqlite3.Connection,
        reader: sqlite3.Connection,
        hands: tuple[_Hand, _Hand],
        reopen: Callable[[], sqlite3.Connection] | None = None,
        lock: Lock | None = None,
    ) -> None:
        self.place = database.MEMORY if path is None else str(path)
        self._path = path
        self._writer = writer
        self._reader = reader
        self._writing, self._reading = hands
        self._reopen = reopen
        self._lock = lock
        self._is_suspect = False

    @classmethod
    async def open(
        cls, directory: Path, *, now: datetime, patience: timedelta = PATIENCE
    ) -> SqliteLedger:
        """Return the ledger of a data directory, which is locked as long as it is open."""
        writing, reading = _Thread("ledger-writer"), _Thread("ledger-reader")
        path = directory / database.DATABASE

        def opened() -> SqliteLedger:
            with ExitStack() as undo:
                lock = _locked(directory, now=now)
                undo.callback(lock.release)
                writer = database.open_writer(directory, patience=patience)
                undo.callback(database.close_writer, writer, directory)
                reader = database.open_reader(path, patience=patience)
                undo.pop_all()
            return cls(
                path,
                writer=writer,
                reader=reader,
                hands=(writing, reading),
                reopen=lambda: database.open_writer(directory, patience=patience),
                lock=lock,
            )

        try:
            return await writing.do(opened)
        except BaseException:
            writing.rest()
            reading.rest()
            raise

    @classmethod
    async def in_memory(cls) -> SqliteLedger:
        """Return a ledger without a file, which works in the caller's thread."""
        connection = database.open_memory(patience=PATIENCE)
        hand = _Inline()
        return cls(None, writer=connection, reader=connection, hands=(hand, hand))

    async def close(self) -> None:
        """Finish what is under way, and let others have the data directory."""
        await self._reading.do(self._reader.close)
        await self._writing.do(self._close_writer)
        for hand in (self._reading, self._writing):
            hand.rest()
        if self._lock is not None:
            self._lock.release()

    async def scan(
        self,
        source: str,
        scanned: Sequence[Scanned],
        *,
        now: datetime,
        term: int,
        commit: str | None = None,
    ) -> list[Entry]:
        """Take over what a source holds now, and return the entries that may fire."""
        return await self._write(
            term, lambda book: arming.scan(book, source, scanned, now=now, commit=commit)
        )

    async def entries(self, *, source: str | None = None) -> list[Listed]:
        """Return every entry that was ever known, the longest known first."""
        return await self._read(lambda book: book.entries(source))

    async def decide(self, steps: Sequence[Step], *, now: datetime, term: int) -> list[Filed]:
        """Move watermarks and file receipts, all at once; return what was filed."""
        return await self._write(term, lambda book: book.decide(steps, now=now))

    async def add(self, entry: int, receipt: Receipt, *, now: datetime, term: int) -> Filed | None:
        """File what somebody asked for; the same key gives the same receipt back."""
        return await self._write(term, lambda book: book.add(entry, receipt, now=now))

    async def start(self, receipt: int, *, now: datetime, term: int) -> Run | None:
        """Take a waiting receipt and open its run; None means that it does not wait."""
        return await self._write(term, lambda book: book.start(receipt, now=now))

    async def running(self, run: int, process: Process, *, now: datetime, term: int) -> bool:
        """Record which process the run is, before it is let go."""
        return await self._write(term, lambda book: book.running(run, process, now=now))

    async def give_back(self, run: int, *, reason: str, now: datetime, term: int) -> bool:
        """Let the receipt of a run that was never let go wait again."""
        return await self._write(term, lambda book: book.give_back(run, reason=reason, now=now))

    async def end(
        self,
        run: int,
        outcome: Status,
        *,
        reason: str,
        now: datetime,
        term: int,
        exit_code: int | None = None,
    ) -> Filed | None:
        """Record how a run ended, and what follows: a retry, or the end of its receipt."""
        return await self._write(
            term,
            lambda book: book.end(run, outcome, exit_code=exit_code, reason=reason, now=now),
        )

    async def hold(self, receipt: int, *, reason: str, now: datetime, term: int) -> bool:
        """Keep a waiting receipt from starting until it is released."""
        return await self._write(
            term, lambda book: book.move_number(receipt, Status.HELD, reason=reason, now=now)
        )

    async def release(self, receipt: int, *, reason: str, now: datetime, term: int) -> bool:
        """Let a held receipt wait for its start again."""
        return await self._write(term, lambda book: book.release(receipt, reason=reason, now=now))

    async def settle(self, receipts: Iterable[int], *, now: datetime, term: int) -> int:
        """Record that all that follows from these receipts is done; return of how many."""
        numbers = tuple(receipts)
        return await self._write(term, lambda book: book.settle(numbers, now=now))

    async def unsettled(self, *, limit: int = 1000) -> list[Filed]:
        """Return the final receipts that are not settled, oldest first."""
        return await self._read(lambda book: book.unsettled(limit))

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
        return await self._write(
            term, lambda book: arming.pause(book, entry, now=now, note=note, until=until)
        )

    async def resume(self, entry: int, *, now: datetime, term: int) -> bool:
        """Let a resting entry go on from now; what came meanwhile is one skipped range."""
        return await self._write(term, lambda book: arming.resume(book, entry, now=now))

    async def receipt(self, number: int) -> Filed | None:
        """Return one receipt."""
        return await self._read(lambda book: book.receipt(number))

    async def receipts(
        self,
        *,
        entry: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        statuses: Collection[Status] = (),
        cursor: int | None = None,
        limit: int = 100,
    ) -> Page:
        """Return receipts, newest first, planned in a window (ranges that touch it too)."""
        return await self._read(
            lambda book: book.receipts(
                entry=entry,
                since=since,
                until=until,
                statuses=statuses,
                cursor=cursor,
                limit=limit,
            )
        )

    async def runs_of(self, receipt: int) -> list[Run]:
        """Return every attempt of a receipt, in order."""
        return await self._read(lambda book: book.runs_of(receipt))

    async def events_after(self, number: int, *, limit: int = 1000) -> list[Event]:
        """Return what happened after an event, in order."""
        return await self._read(lambda book: book.events_after(number, limit))

    async def keep_texts(self, texts: Mapping[str, str], *, now: datetime, term: int) -> None:
        """Keep the texts that receipts may have to run, each under its digest."""
        await self._write(term, lambda book: book.keep_texts(texts, now=now))

    async def text(self, digest: str) -> str | None:
        """Return the text that has a digest."""
        return await self._read(lambda book: book.text(digest))

    async def prune(
        self, *, before: datetime, now: datetime, term: int, dry_run: bool = False
    ) -> Pruned:
        """Fold settled receipts from before a moment into ranges, and drop what hangs on them."""
        return await self._write(
            term, lambda book: book.prune(before=before, now=now), keep=not dry_run
        )

    async def backup(self, target: Path) -> None:
        """Write a verified copy of this moment's ledger, while it goes on being written."""
        if self._path is None:
            database.copy_into(self._reader, target)
            return
        # A thread of its own: a large copy must keep neither readers nor the writer waiting.
        await asyncio.to_thread(_copy, self._path, target)

    def _close_writer(self) -> None:
        """Close the connection that writes, the last of all."""
        if self._path is None:
            self._writer.close()
        else:
            database.close_writer(self._writer, self._path.parent)

    async def _read(self, work: Callable[[Book], T]) -> T:
        """Read without waiting for whoever writes."""

        def reading() -> T:
            with database.told(self.place):
                return work(Book(self._reader))

        return await self._reading.do(reading)

    async def _write(self, term: int, work: Callable[[Book], T], *, keep: bool = True) -> T:
        """Do all of it in one transaction, or none of it."""
        return await self._writing.do(lambda: self._transact(term, work, keep=keep))

    def _transact(self, term: int, work: Callable[[Book], T], *, keep: bool) -> T:
        """Write in this thread; after the disk has failed, look at the file again first."""
        try:
            with database.told(self.place):
                self._trust_again()
                with database.transaction(self._writer, keep=keep):
                    self._check_term(term)
                    return work(Book(self._writer))
        except LedgerWriteError:
            self._is_suspect = True
            raise

    def _trust_again(self) -> None:
        """Open the file anew if the disk has failed: what a failed write left is not known."""
        if not self._is_suspect or self._reopen is None:
            return
        self._writer.close()
        self._writer = self._reopen()
        self._is_suspect = False

    def _check_term(self, term: int) -> None:
        """Raise an error if another engine decides now."""
        current = self._writer.execute(_TERM["current"]).fetchone()[0]
        if term != current:
            raise StaleTermError(self.place, term=term, current=current)


async def restore(directory: Path, backup: Path, *, now: datetime) -> Path:
    """Let a backup be the ledger of a data directory that nobody uses; nothing past fires.

    Return where the ledger from before was put aside.
    """
    return await asyncio.to_thread(_restore, directory, backup, now)


def _restore(directory: Path, backup: Path, now: datetime) -> Path:
    """Check the backup, close its past in a draft, and only then touch the ledger."""
    database.verify(backup)
    lock = _locked(directory, now=now)
    try:
        draft = database.draft_of(backup, directory)
        with (
            database.told(str(draft)),
            closing(database.connect_draft(draft)) as connection,
            database.transaction(connection),
        ):
            book = Book(connection)
            reason = f"a backup was restored at {key_time(now)}"
            arming.close_the_past(book, now=now, reason=reason)
            book.tell("restored", now=now, facts={"backup": backup.name})
            connection.execute(_RESTORE["leave_a_gap"], {"gap": _GAP})
        with database.told(str(directory)):
            aside = f"ledger-before-{now:%Y%m%dT%H%M%SZ}.db"
            return database.put_in_place(draft, directory, aside=aside)
    finally:
        lock.release()


def _locked(directory: Path, *, now: datetime) -> Lock:
    """Return the lock on a data directory, which is made if there is none."""
    database.prepare(directory)
    with database.told(str(directory)):
        return Lock.acquire(directory, now=now)


def _copy(path: Path, target: Path) -> None:
    """Copy a database through a connection of its own."""
    with closing(database.open_reader(path, patience=PATIENCE)) as connection:
        database.copy_into(connection, target)
