"""The schema of a ledger on PostgreSQL, and its migrations."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from psycopg import errors

from horae.core.ports import LedgerError
from horae.store import recode
from horae.store.pg_wire import DIALECT, LOCK, postgres_errors, refuse_newer
from horae.store.sql import migrations

if TYPE_CHECKING:
    from collections.abc import Callable

    from horae.store.pg_wire import PostgresConnection

_RECODE: Final = "-- recode\n"  # marks a migration after which texts are recoded
_OLDEST: Final = re.compile(r"-- oldest: (\d+)\n")  # a migration with which older nodes can work
_ROLLING: Final = 10  # the first version that records which nodes may use the ledger
_CHUNK: Final = 5000  # rows in one statement


def migrate(wire: PostgresConnection) -> None:
    with postgres_errors(wire.address):
        known = migrations(DIALECT)
        while (version := _version(wire)) < max(known):
            if 0 < version < min(known):
                reason = f"the schema has version {version}, and this horae supports"
                remedy = f"open it first with a build of horae that upgrades it to {min(known)}"
                reason = f"{reason} {min(known)} to {max(known)}"
                raise LedgerError(wire.address.place, reason, remedy=remedy)
            number = min(each for each in known if each > version)
            try:
                # Without writers: otherwise a deadlock between them and us is possible.
                wire.script(f"BEGIN; SELECT pg_advisory_xact_lock({LOCK}), {wire.wide_lock()}")
                wire.script(f"SET LOCAL synchronous_commit TO {wire.commits}")
                if _version(wire) == version:  # unless another node has migrated meanwhile
                    if version == 0:
                        wire.script(f'CREATE SCHEMA IF NOT EXISTS "{wire.address.schema}"')
                    script = known[number]
                    wire.script(script)
                    if script.startswith(_RECODE):
                        _recode(wire, "entry", "spec", recode.entry)
                        _recode(wire, "receipt", "policy", recode.policy)
                    wire.execute("UPDATE term SET version = :version", {"version": number})
                    if number > _ROLLING:
                        found = _OLDEST.match(script)
                        oldest = int(found[1]) if found else number
                        wire.execute("UPDATE term SET oldest = :oldest", {"oldest": oldest})
                wire.script("COMMIT")
            except BaseException as error:
                if wire.is_open:
                    wire.script("ROLLBACK")
                if not isinstance(error, errors.InsufficientPrivilege):
                    raise
                raise LedgerError(
                    wire.address.place,
                    f"the schema has version {version}, {max(known)} is needed, "
                    "and the database role cannot change it",
                    remedy="run `horae cluster migrate` once with a role that can create tables",
                ) from None
        [oldest] = wire.execute("SELECT oldest FROM term").fetchone() or [0]
    refuse_newer(wire.address, oldest)


def _recode(
    wire: PostgresConnection, table: str, column: str, recoded: Callable[[str], str]
) -> None:
    some = f"SELECT number, {column} FROM {table} WHERE number > :last AND {column} <> '{{}}'"  # noqa: S608
    some += f" ORDER BY number LIMIT {_CHUNK}"
    change = f"UPDATE {table} SET {column} = new.value"  # noqa: S608
    change += " FROM jsonb_each_text(CAST(:texts AS jsonb)) AS new"
    change += " WHERE number = CAST(new.key AS bigint)"
    last = 0
    while rows := wire.execute(some, {"last": last}).fetchall():
        texts = {str(row[0]): recoded(row[1]) for row in rows}
        wire.execute(change, {"texts": json.dumps(texts)})
        last = rows[-1][0]


def _version(wire: PostgresConnection) -> int:
    schema = wire.address.schema
    # Not to_regclass: it caches from before the lock that there was no such schema.
    known = (
        "SELECT EXISTS (SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        " WHERE nspname = :schema AND relname = 'term')"
    )
    if not wire.execute(known, {"schema": schema}).fetchone()[0]:  # type: ignore[index]
        return 0
    row = wire.execute("SELECT version FROM term").fetchone()
    assert row is not None, "a migration has written the one row"
    return int(row[0])
