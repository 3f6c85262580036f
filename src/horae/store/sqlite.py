"""The ledger on SQLite: one file in the data directory, or in memory.

One thread owns the connection that writes, another one that only reads. In memory both are the same
connection, used in the caller's thread, for simulations.

After a restore no number is assigned again. Numbers assigned since the backup are found in the
ledger that is replaced, if it is readable, in the backups next to it, and, of runs, in the
directories of their output. A small file records where the numbers begin after each restore.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
from collections import Counter
from contextlib import ExitStack, closing, suppress
from datetime import UTC, timedelta
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from horae.core.actor import current_actor
from horae.core.entry import key_time
from horae.core.ports import FRESH_LEDGER, LedgerDamagedError, LedgerWholeError, LedgerWriteError
from horae.core.private import replace_durably
from horae.core.receipt import Reason, ReasonCode
from horae.store import arming, database
from horae.store.database import PATIENCE, looking_into, sqlite_errors
from horae.store.ledger import CallQueue, SqlLedger, Transaction
from horae.store.lock import Lock, LockUse
from horae.store.sql import theme

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from horae.store.ledger import QueuedCall

T = TypeVar("T")

_ABOUT_ENTRIES: Final = ("entry", "known_file", "trigger")
_TERM: Final = theme("term")["current"]
_RESTORING: Final = theme("restore")
_NIGHTLY: Final = re.compile(r"ledger-[0-9]{4}-[0-9]{2}-[0-9]{2}\.db")


class SqliteLedger(SqlLedger):
    def __init__(
        self,
        path: Path | None,
        *,
        writer: sqlite3.Connection,
        reader: sqlite3.Connection,
        queues: tuple[CallQueue, CallQueue] | None = None,
        reopen: Callable[[], sqlite3.Connection] | None = None,
        lock: Lock | None = None,
    ) -> None:
        super().__init__()
        self.place = database.MEMORY if path is None else str(path)
        self._path = path
        self._writer = writer
        self._reader = reader
        self._write_queue, self._read_queue = queues or (CallQueue(), CallQueue())
        self._reopen = reopen
        self._lock = lock
        self._is_suspect = False
        self._file = None if path is None else _file(path)
        self._rescued: Path | None = None  # the copy made when the file was lost

    @classmethod
    async def open(
        cls,
        directory: Path,
        *,
        now: datetime,
        patience: timedelta = PATIENCE,
        use: LockUse = LockUse.ENGINE,
        command: str = "",
        held: Lock | None = None,
    ) -> SqliteLedger:
        """Open the ledger of a data directory, which is locked until it is closed.

        A lock passed as *held* stays locked if this raises an error.
        """
        writing, reading = CallQueue("ledger-writer"), CallQueue("ledger-reader")
        path = directory / database.DATABASE

        def opened() -> SqliteLedger:
            with ExitStack() as undo:
                lock = held or undo.enter_context(
                    _locked(directory, now=now, use=use, command=command)
                )
                open_writer = partial(database.open_writer, directory, patience=patience)
                writer = open_writer()
                undo.callback(database.close_writer, writer, directory)
                reader = database.open_reader(path, patience=patience)
                undo.callback(reader.close)
                undo.pop_all()
            return cls(
                path,
                writer=writer,
                reader=reader,
                queues=(writing, reading),
                reopen=open_writer,
                lock=lock,
            )

        try:
            return await writing.do(opened)
        except BaseException:
            writing.rest()
            reading.rest()
            raise

    @classmethod
    async def open_reader(cls, directory: Path, *, patience: timedelta = PATIENCE) -> SqliteLedger:
        path = directory / database.DATABASE
        reader = database.open_reader(path, patience=patience)
        ledger = cls(None, writer=reader, reader=reader)
        ledger.place = str(path)
        return ledger

    @classmethod
    async def in_memory(cls) -> SqliteLedger:
        connection = database.open_memory()
        return cls(None, writer=connection, reader=connection)

    async def draft(self) -> SqliteLedger:
        """Return a ledger in memory with the entries of this one, and none of its receipts."""
        made = await SqliteLedger.in_memory()
        with sqlite_errors(self.place):
            database.copy_tables(self._reader, made._writer, _ABOUT_ENTRIES)  # noqa: SLF001 - ours
        return made

    async def close(self) -> None:
        await self._read_queue.do(self._reader.close)
        await self._write_queue.do(self._close_writer)
        for queue in (self._read_queue, self._write_queue):
            queue.rest()
        if self._lock is not None:
            self._lock.release()

    async def backup(self, target: Path) -> None:
        path = self._path
        if path is None:
            database.copy_into(self._reader, target)
            return

        def copied() -> None:
            with closing(database.open_reader(path, patience=PATIENCE)) as connection:
                database.copy_into(connection, target)

        # A thread of its own, as a large copy must not block readers or the writer.
        await asyncio.to_thread(copied)

    async def back_up_nightly(
        self, directory: Path, *, now: datetime, keep: int = 7
    ) -> Path | None:
        """Write today's backup unless it exists, and keep only the newest *keep* backups.

        Return its path, or None if it existed.
        """
        folder = directory / database.BACKUPS
        target = folder / f"ledger-{now.astimezone(UTC):%Y-%m-%d}.db"
        if target.exists():
            return None
        database.prepare_folder(folder)
        await self.backup(target)
        await asyncio.to_thread(_drop_oldest, folder, keep)
        return target

    def hand_over_lock(self) -> int:
        """Return the descriptor of the lock, which stays held after the ledger is closed."""
        assert self._lock is not None, "an engine has the lock"
        lock, self._lock = self._lock, None
        return lock.hand_over()

    def note_lock(self, **facts: object) -> None:
        if self._lock is not None:
            self._lock.note(**facts)

    def _close_writer(self) -> None:
        if self._path is None or _file(self._path) != self._file:  # another process has replaced it
            self._writer.close()
        else:
            database.close_writer(self._writer, self._path.parent)

    def _meaning(self, error: Exception, /) -> Exception:
        return database.meant(self.place, error)

    def _begin(self, _: Sequence[QueuedCall[Any]], /) -> Callable[[QueuedCall[Any]], None]:
        if self._lock is not None and _file(self._lock.path) != self._lock.file:
            self._lock.keep()
        if self._path is not None and _file(self._path) != self._file:
            self._refuse_a_lost_file(self._path)  # first: it must open the same file
        if self._is_suspect and self._reopen is not None:
            # The disk has failed: its state is unknown.
            self._writer.close()
            self._writer = self._reopen()
            self._is_suspect = False
        self._writer.execute(database.BEGIN)
        # There is no other writer, so it stays valid.
        current = self._writer.execute(_TERM).fetchone()[0]
        return lambda call: self._check_term(call.term, current)

    def _end(self, *, is_kept: bool) -> None:
        self._writer.execute("COMMIT" if is_kept else "ROLLBACK")

    def _undone(self, error: Exception) -> Exception:
        known = self._meaning(error)
        # SQLite has rolled back everything, not only this.
        if isinstance(known, LedgerWriteError) or not self._writer.in_transaction:
            raise known
        return known

    def _give_up(self, error: BaseException) -> None:
        self._is_suspect |= isinstance(error, LedgerWriteError)
        with suppress(sqlite3.Error):  # the first error is the one to report
            if self._writer.in_transaction:
                self._end(is_kept=False)

    def _refuse_a_lost_file(self, path: Path) -> NoReturn:
        """Raise an error: the file was removed or replaced, and writes would be lost with it."""
        if not path.parent.is_dir():
            raise LedgerWriteError(
                self.place, "the data directory is missing", remedy="restore the directory"
            )
        if self._rescued is None:
            names = (f"ledger-rescued{n}.db" for n in ("", *range(2, 1000)))
            free = (path.with_name(name) for name in names)
            rescued = next(path for path in free if not os.path.lexists(path))
            database.copy_into(self._writer, rescued)
            self._rescued = rescued
        raise LedgerDamagedError(
            self.place,
            "the ledger was removed or replaced while in use; its content is in "
            f"{self._rescued.name}",
            remedy=f"`horae restore {self._rescued}`",
        )


def _file(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _drop_oldest(folder: Path, keep: int) -> None:
    with database.sqlite_errors(str(folder)):
        ours = sorted(each for each in folder.iterdir() if _NIGHTLY.fullmatch(each.name))
        for each in ours[: max(0, len(ours) - keep)]:
            os.remove(each)


def restore(directory: Path, backup: Path, *, now: datetime, command: str = "") -> Path:
    """Restore a backup as the ledger of an unused data directory; nothing past fires.

    The backup is checked and changed in a draft before the ledger is touched. Return where the
    former ledger is.
    """
    database.verify(backup)
    digests = _digests_in(directory / database.DATABASE)

    def write(tx: Transaction) -> None:
        restore_access(tx, digests)
        words = f"a backup was restored at {key_time(now)}"
        reason = Reason(ReasonCode.LEDGER_RESTORED, words)
        arming.close_the_past(tx, now=now, reason=reason)
        tx.tell("restored", now=now, facts={"backup": backup.name})

    with _locked(directory, now=now, command=command):
        return _replace(directory, backup, write, now=now)


def start_afresh(directory: Path, *, now: datetime, command: str = "") -> Path | None:
    """Put a lost or damaged ledger aside, and create an empty one.

    Return where the rest of the old one is; None if there is none. A valid ledger raises an error.
    """
    path = directory / database.DATABASE
    with _locked(directory, now=now, command=command):
        lost = database.loss_of(directory)
        if lost is None and path.exists():
            raise LedgerWholeError(str(path))
        if lost is None:
            return None  # there never was one
        facts = {"reason": lost.reason}
        old = _replace(
            directory, None, lambda tx: tx.tell(FRESH_LEDGER, now=now, facts=facts), now=now
        )
        return old if old.exists() else None


def _replace(
    directory: Path, backup: Path | None, write: Callable[[Transaction], None], *, now: datetime
) -> Path:
    given = given_in(directory)
    with database.draft_of(backup, directory) as connection:
        # First: what is written here needs numbers, too.
        last = go_on(connection, given)
        write(Transaction(connection, actor=current_actor()))
    with database.sqlite_errors(str(directory)):
        keep(directory, last)
        aside = f"ledger-before-{now:%Y%m%dT%H%M%SZ}.db"
        return database.put_in_place(directory, aside=aside)


def _locked(
    directory: Path, *, now: datetime, command: str, use: LockUse = LockUse.COMMAND
) -> Lock:
    database.prepare(directory)
    with database.sqlite_errors(str(directory)):
        return Lock.acquire(directory, now=now, use=use, command=command)


def _digests_in(path: Path) -> list[str] | None:
    with suppress(sqlite3.Error), database.looking_into(path) as connection:  # the caller gets None
        return [str(row[0]) for row in connection.execute(_RESTORING["digests"])]
    return None


def restore_access(tx: Transaction, digests: list[str] | None) -> None:
    tx.change("access.end_all_sessions")
    if digests is not None:
        tx.execute(_RESTORING["keep_tokens"], {"digests": json.dumps(digests)})


GAP: Final = 1_000_000  # more numbers than are assigned between two restores or backups
BEGUN: Final = "ledger-numbers.json"
_QUERIES: Final = theme("restore")
_KINDS: Final = ("entry", "receipt", "run", "event")


def go_on(connection: sqlite3.Connection, given: Mapping[str, int]) -> dict[str, int]:
    """Let the next numbers exceed the ledger's own and *given*; return the last ones."""
    own = _read(connection)
    last = {kind: max(own.get(kind, 0), given.get(kind, 0)) + GAP for kind in _KINDS}
    for name, number in last.items():
        values = {"name": name, "number": number}
        connection.execute(_QUERIES["forget_number"], values)
        connection.execute(_QUERIES["begin_after"], values)
    return last


def given_in(directory: Path) -> dict[str, int]:
    ledgers = [*directory.glob("*.db"), *(directory / "backups").glob("*.db")]
    # The directory of a run's output is named by its number.
    ran = [int(each.name) for each in directory.glob("runs/*/*") if each.name.isdecimal()]
    run = {"run": max(ran, default=0)}
    return highest([_begun(directory), run, *map(given_by, sorted(ledgers))])


def highest(several: Iterable[Mapping[str, int]]) -> dict[str, int]:
    return dict(reduce(or_, map(Counter, several), Counter()))  # the greater of two counts


def given_by(path: Path) -> dict[str, int]:
    with suppress(sqlite3.Error), looking_into(path) as connection:  # a damaged ledger has none
        return _read(connection)
    return {}


def keep(directory: Path, last: Mapping[str, int]) -> None:
    replace_durably(directory / BEGUN, (json.dumps(last, sort_keys=True) + "\n").encode())


def _begun(directory: Path) -> dict[str, int]:
    with suppress(OSError, ValueError):  # most ledgers were never restored
        found = json.loads((directory / BEGUN).read_bytes())
        if isinstance(found, dict):
            return {kind: n for kind, n in found.items() if kind in _KINDS and type(n) is int}
    return {}


def _read(connection: sqlite3.Connection) -> dict[str, int]:
    rows = connection.execute(_QUERIES["last_numbers"])
    return {name: number for name, number in rows if name in _KINDS}
