"""The schema of a ledger on PostgreSQL: how it is made, moved on, and refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from psycopg import errors, sql

from horae.core.ports import LedgerDamagedError, LedgerError
from horae.store.pg_wire import DIALECT, postgres_errors, refuse_newer
from horae.store.sql import migrations

if TYPE_CHECKING:
    from horae.store.pg_wire import PostgresConnection

_LOCK: Final = 0x486F7261  # "Hora": whoever changes a schema holds it


def migrate(wire: PostgresConnection) -> None:
    """Bring the schema up to our version; of several members at once one does it."""
    with postgres_errors(wire.address):
        while (version := _version(wire)) < len(migrations(DIALECT)):
            try:
                _step(wire, version)
            except errors.InsufficientPrivilege:
                raise _forbidden(wire, version) from None
    refuse_newer(wire.address, version)


def _version(wire: PostgresConnection) -> int:
    """Return the version of the schema; 0 is that there is none."""
    schema = wire.address.schema
    # Not to_regclass: that remembers from before the lock that there was no such schema.
    known = (
        "SELECT EXISTS (SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        " WHERE nspname = :schema AND relname = 'term')"
    )
    if not wire.execute(known, {"schema": schema}).fetchone()[0]:  # type: ignore[index]
        return 0
    row = wire.execute("SELECT version FROM term").fetchone()
    if row is None:
        raise LedgerDamagedError(
            wire.address.place, "the table term is empty", remedy="restore a backup"
        )
    return int(row[0])


def _step(wire: PostgresConnection, was: int) -> None:
    """Do one migration, unless somebody else has done it meanwhile."""
    try:
        wire.script(f"BEGIN; SELECT pg_advisory_xact_lock({_LOCK})")
        if _version(wire) == was:
            if was == 0:
                name = sql.Identifier(wire.address.schema)
                wire.raw.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
            wire.script(migrations(DIALECT)[was])
            wire.execute("UPDATE term SET version = :version", {"version": was + 1})
        wire.script("COMMIT")
    except BaseException:
        if wire.is_open:
            wire.script("ROLLBACK")
        raise


def _forbidden(wire: PostgresConnection, version: int) -> LedgerError:
    """Return the error of a role that may not change the schema."""
    return LedgerError(
        wire.address.place,
        f"the schema has version {version}, {len(migrations(DIALECT))} is needed, "
        "and the database role cannot change it",
        remedy="run `horae cluster migrate` once with a role that can create tables",
    )
