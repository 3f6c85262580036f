"""Moves a ledger from SQLite to PostgreSQL, and begins anew after a restore there.

A move is one transaction: every row is copied with its number, read back, and compared by a digest
of both sides. It is committed only if all are equal.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from horae.core.entry import key_time
from horae.core.ports import ANYBODY, LedgerError
from horae.core.receipt import Reason, ReasonCode
from horae.store import arming, database
from horae.store.lock import LockUse
from horae.store.sql import theme
from horae.store.sqlite import GAP, SqliteLedger, restore_access

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable
    from datetime import datetime
    from pathlib import Path

    from horae.store.ledger import Transaction
    from horae.store.pg_wire import PostgresConnection
    from horae.store.postgres import PostgresLedger

_CHUNK: Final = 5000  # rows in one statement, so that none takes long
_NUMBERS: Final = theme("restore")["last_numbers"]


# The tables to move, each after those that it refers to, and the order of their rows.
_TABLES: Final = {
    "entry": "number",
    "known_file": "source, file",
    "receipt": "number",
    "run": "number",
    "purse": "name, started_at, run",
    "event": "number",
    "text": "digest",
    "trigger": "rowid",  # which is preserved
    "token": "name",
    "session": "digest",
    "account": "name",
    "acknowledgement": "entry",
}
_SEQUENCES: Final = {
    "run": "run_number_seq",
    "event": "event_number_seq",
    "trigger": "trigger_rowid_seq",
}


@dataclass(frozen=True, slots=True)
class Moved:
    table: str
    rows: int
    digest: str


async def move(
    directory: Path, target: PostgresLedger, *, now: datetime, command: str = ""
) -> list[Moved]:
    """Copy the unused ledger of a data directory into an empty one on PostgreSQL.

    After an error the target is still empty; the source is only read.
    """
    source = await SqliteLedger.open(directory, now=now, use=LockUse.COMMAND, command=command)
    try:
        path = directory / database.DATABASE

        def copied(tx: Transaction) -> list[Moved]:
            with (
                database.sqlite_errors(str(path)),
                closing(database.open_reader(path, patience=database.PATIENCE)) as connection,
            ):
                return _copy_all(connection, cast("PostgresConnection", tx.connection))

        return await target.write(ANYBODY, copied, is_alone=True)
    finally:
        await source.close()


async def go_on_restored(ledger: PostgresLedger, *, now: datetime) -> None:
    """Let nothing past fire in a restored ledger, and use no number or term again."""

    def closed(tx: Transaction) -> None:
        tx.execute("UPDATE counter SET last = last + :gap", {"gap": GAP})
        tx.execute("UPDATE term SET number = number + :gap", {"gap": GAP})
        for each in (*_SEQUENCES.values(), "generation"):
            tx.execute(f"SELECT setval('{each}', last_value + :gap) FROM {each}", {"gap": GAP})  # noqa: S608
        restore_access(tx, None)
        words = f"a backup was restored at {key_time(now)}"
        arming.close_the_past(tx, now=now, reason=Reason(ReasonCode.LEDGER_RESTORED, words))
        tx.tell("restored", now=now)

    await ledger.write(ANYBODY, closed, is_alone=True)


def _copy_all(source: sqlite3.Connection, wire: PostgresConnection) -> list[Moved]:
    for table in _TABLES:
        row = wire.execute(f"SELECT EXISTS (SELECT 1 FROM {table})").fetchone()  # noqa: S608
        if row is not None and row[0]:
            raise LedgerError(
                wire.address.place,
                f"the database is not empty (rows in {table}); nothing was migrated",
                remedy="use an empty database, or another schema",
            )
    moved = [_copy(source, wire, table) for table in _TABLES]
    given = {str(row[0]): int(row[1]) for row in source.execute(_NUMBERS)}
    for name in ("entry", "receipt"):
        values = {"name": name, "last": given.get(name, 0)}
        wire.execute("UPDATE counter SET last = :last WHERE name = :name", values)
    given["trigger"] = source.execute("SELECT coalesce(max(rowid), 0) FROM trigger").fetchone()[0]
    for name, sequence in _SEQUENCES.items():
        last = given.get(name, 0)
        values = {"sequence": sequence, "last": max(last, 1), "is_given": last > 0}
        wire.execute("SELECT setval(CAST(:sequence AS regclass), :last, :is_given)", values)
    return moved


def _copy(source: sqlite3.Connection, wire: PostgresConnection, table: str) -> Moved:
    columns = [row["name"] for row in source.execute(f"PRAGMA table_info({table})")]
    order = _TABLES[table]
    names = ", ".join(["rowid", *columns] if order == "rowid" else columns)
    select = f"SELECT {names} FROM {table} ORDER BY {order}"  # noqa: S608
    there = _digest(source.execute(select), copy=lambda rows: _put(wire, table, names, rows))
    with wire.raw.cursor("moving") as cursor:
        cursor.itersize = _CHUNK
        cursor.execute(select.encode())
        here = _digest(cursor)
    if there != here:
        reason = f"{table} differs after the copy; nothing was migrated"
        raise LedgerError(wire.address.place, reason, remedy="please report this")
    return Moved(table, *here)


def _put(wire: PostgresConnection, table: str, names: str, rows: Iterable[tuple[Any, ...]]) -> None:
    from psycopg import DataError

    try:
        with wire.raw.cursor() as cursor:
            query = f"COPY {table} ({names}) FROM STDIN"
            with cursor.copy(query.encode()) as copy:
                for row in rows:
                    copy.write_row(row)
    except DataError as error:
        reason = f"the database rejects a row of {table} ({wire.address.masked(error)})"
        remedy = "correct this row in the SQLite ledger"
        raise LedgerError(wire.address.place, reason, remedy=remedy) from None


def _digest(
    rows: Iterable[Any], *, copy: Callable[[list[tuple[Any, ...]]], None] | None = None
) -> tuple[int, str]:
    count, found, source = 0, sha256(), iter(rows)
    while some := [tuple(row) for row in islice(source, _CHUNK)]:
        count += len(some)
        for row in some:
            found.update(json.dumps(row, default=_bytes).encode() + b"\n")
        if copy is not None:
            copy(some)
    return count, found.hexdigest()


def _bytes(value: bytes | memoryview) -> list[str]:
    return ["bytes", bytes(value).hex()]
