"""Connections to PostgreSQL with a timeout for each wait, and listeners.

A server that accepts a request and never responds is treated like one that is down. A failed
connection is closed, and the next call opens another.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumperUnknown

from horae.core.ports import (
    LedgerBusyError,
    LedgerDamagedError,
    LedgerError,
    LedgerNewerError,
    LedgerWriteError,
)
from horae.store.sql import migrations

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence

    from psycopg.cursor import Cursor

T = TypeVar("T")

DIALECT: Final = "postgres"
PREPARED: Final = 500  # statements that a connection keeps prepared; we have some 150
_BEAT: Final = 0.2  # seconds between checks for a response
_SECOND: Final = timedelta(seconds=1)
_TOKEN: Final = re.compile(r"'(?:[^']|'')*'|--[^\n]*|::|:([a-z_]+)|%")
_SCHEMA: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_IN_TRANSACTION: Final = frozenset({TransactionStatus.INTRANS, TransactionStatus.INERROR})
_WRITE_LIKE: Final = "write it like postgresql://user@host:5432/database"
LOCK: Final = 0x486F7261  # "Hora": held while changing a schema
_BITS: Final = 48  # of an event's number, in the lock that announces it
_WAIT: Final = 5.0  # seconds for a server to accept a listener
_TOGETHER: Final = 0.02  # seconds in which notifications are collected
_ALIVE: Final[dict[str, Any]] = {
    "keepalives": 1, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Timeouts:
    connect: timedelta = timedelta(seconds=5)
    statement: timedelta = timedelta(seconds=30)
    lock: timedelta = timedelta(seconds=10)
    idle: timedelta = timedelta(seconds=5)  # inside a transaction, between two statements
    silence: timedelta = timedelta(seconds=3)  # beyond the time that a statement may take

    @property
    def answer(self) -> timedelta:
        return self.statement + self.silence


BRIEF: Final = Timeouts(
    connect=3 * _SECOND, statement=3 * _SECOND, lock=2 * _SECOND, silence=_SECOND
)  # for leases: a late renewal loses the lease


class Fences(NamedTuple):
    is_leader: bool  # no other node becomes the leader
    members: frozenset[tuple[str, int]]  # each stays in its generation
    is_wide: bool  # no other transaction writes
    is_durable: bool = True  # it must survive a crash of the server


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """The address of a ledger, without secrets, as messages contain it."""

    url: str = field(repr=False)
    schema: str
    place: str
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, url: str, schema: str) -> DatabaseAddress:
        try:
            parts = conninfo_to_dict(url)
        except psycopg.Error:
            # The message of libpq quotes it.
            reason = "the address of the database cannot be read"
            raise LedgerError("postgresql", reason, remedy=_WRITE_LIKE) from None
        if not _SCHEMA.fullmatch(schema):
            raise LedgerError(
                "postgresql",
                f"{schema!r} is not a valid schema name",
                remedy="use lower-case letters, digits and _, starting with a letter",
            )
        host = parts.get("host") or parts.get("hostaddr") or "localhost"
        port = f":{parts['port']}" if parts.get("port") else ""
        place = f"postgresql://{host}{port}/{parts.get('dbname') or ''} ({schema})"
        names = ("password", "sslpassword")
        return cls(url, schema, place, tuple(str(parts[each]) for each in names if parts.get(each)))

    @property
    def tag(self) -> int:
        """The number that the locks of this schema share, unlike those of others."""
        return (zlib.crc32(self.schema.encode()) % 0x7FFE + 1) << _BITS

    def masked(self, text: object) -> str:
        line = " ".join(str(text).split())
        for secret in self.secrets:
            line = line.replace(secret, "***")
        return line


class PostgresRow(tuple[Any, ...]):
    __slots__ = ()
    places: dict[str, int]

    def __getitem__(self, key: Any) -> Any:
        if type(key) is str:
            return tuple.__getitem__(self, self.places[key])
        return tuple.__getitem__(self, key)

    def keys(self) -> list[str]:
        return [*self.places]


@lru_cache(maxsize=512)
def _row_kind(names: tuple[bytes | None, ...]) -> type[PostgresRow]:
    # The first of two columns with one name, like SQLite.
    places = {(name or b"").decode(): place for place, name in reversed([*enumerate(names)])}
    return type("Row", (PostgresRow,), {"__slots__": (), "places": places})


def _row_factory(cursor: Cursor[Any]) -> Callable[[Sequence[Any]], PostgresRow]:
    # Not its description, which takes as long to make as all of the rest.
    found = cursor.pgresult
    if found is None:
        return PostgresRow
    return _row_kind(tuple([found.fname(place) for place in range(found.nfields)]))


class _SilentError(psycopg.OperationalError):
    pass


class _StrDumper(StrDumperUnknown):
    """Writes text, including members of a StrEnum."""


class _Connection(psycopg.Connection[PostgresRow]):
    beats: int = 0

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG002 - ours are shorter
        return super().wait(_answered(gen, self.beats, self.pgconn.finish), interval=_BEAT)


def _answered(
    gen: Generator[Any, Any, T], beats: int, give_up: Callable[[], None]
) -> Generator[Any, Any, T]:
    """Run psycopg's generator until nothing has come for so many beats."""
    silent = 0
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            silent = 0 if ready else silent + 1
            if silent > beats:
                give_up()
                with suppress(Exception):  # it may send several requests
                    gen.close()
                raise _SilentError("the database does not answer")
            wanted = gen.send(ready)
    except StopIteration as end:
        result: T = end.value
        return result


@cache
def _placed(query: str) -> str:
    """Replace the places for values by those of psycopg.

    >>> _placed("SELECT :a::text WHERE key LIKE 'at:b%' -- :c")
    "SELECT %(a)s::text WHERE key LIKE 'at:b%%' -- :c"
    """

    def put(found: re.Match[str]) -> str:
        if found[1]:
            return f"%({found[1]})s"
        return found[0].replace("%", "%%")

    return _TOKEN.sub(put, query)


@dataclass(eq=False)
class PostgresConnection:
    dialect: ClassVar = DIALECT
    address: DatabaseAddress
    timeouts: Timeouts
    is_read_only: bool = False
    is_shared: bool = False  # with the carrier, whose statements need not survive a crash
    changes: int = 0  # rows written since the transaction began
    term: int = 0  # when the transaction began
    _connection: _Connection | None = None
    commits: str = "on"  # when a durable commit returns

    @property
    def raw(self) -> _Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    @property
    def is_open(self) -> bool:
        return self._connection is not None and not self._connection.broken

    @property
    def can_roll_back(self) -> bool:
        """Whether a transaction is open and the server has answered all its requests."""
        if self._connection is None:
            return False
        return self._connection.info.transaction_status in _IN_TRANSACTION

    @property
    def announced(self) -> dict[str, int]:
        """The parameters to find the locks by which writers announce their events."""
        return {"tag": self.address.tag, "mask": (1 << _BITS) - 1}

    def execute(self, query: str, values: Mapping[str, Any] | None = None) -> Cursor[PostgresRow]:
        cursor: Cursor[PostgresRow] = self.raw.execute(_placed(query), values or {})
        found = cursor.pgresult
        if found is not None and not found.nfields:
            self.changes += max(0, cursor.rowcount)
        return cursor

    def do(self, work: Callable[[PostgresConnection], T]) -> T:
        """Call *work*; a connection that was lost since its last use is opened again."""
        with postgres_errors(self.address):
            was_open = self.is_open
            try:
                return work(self)
            except Exception as error:  # raised, unless the connection was lost meanwhile
                was = self._connection
                if was is not None and was.info.transaction_status != TransactionStatus.IDLE:
                    self.close()  # a transaction is open
                if not was_open or not is_lost(error):
                    raise
                self.close()
                return work(self)

    def begin(self, fences: Fences) -> tuple[int, set[tuple[str, int]]]:
        """Begin to write; return the term, and the members that still own their work.

        The events of the transaction have numbers above the one that is announced here by a lock
        until its end: readers stop there (`event.through`).
        """
        self.changes = 0
        connection, tag = self.raw, self.address.tag
        numbers = f"{tag} + coalesce(pg_sequence_last_value('event_number_seq'), 0)"
        commits = self.commits if fences.is_durable else "off"
        lock = " FOR SHARE" if fences.is_leader else ""
        # Locks first, so that all later reads see the state after the wait.
        waits = self.wide_lock(is_shared=not fences.is_wide)
        announces = f"pg_advisory_xact_lock_shared({numbers})"
        durably = f"set_config('synchronous_commit', '{commits}', true)"
        script = f"BEGIN; SELECT {waits}, {announces}, {durably}; "
        script += f"SELECT number, oldest FROM term{lock}"  # noqa: S608 - it is ours
        if fences.members:
            known = ", ".join(
                sql.SQL("({}, {})").format(*each).as_string(connection) for each in fences.members
            )
            # A lock on the key only, which does not block renewals of the lease.
            script += _ALIVE_MEMBERS.format(known)
        found = self.script(script)
        found.nextset()
        found.nextset()
        row = found.fetchone()
        assert row is not None, "a migration has written the one row"
        self.term = row[0]
        alive = found.fetchall() if fences.members and found.nextset() else []
        return row[1], {(each[0], each[1]) for each in alive}

    def wide_lock(self, *, is_shared: bool = False) -> str:
        """Return the call that waits for other writers: for all, or if shared, for wide ones."""
        shared = "_shared" if is_shared else ""
        return f"pg_advisory_xact_lock{shared}({LOCK}, {self.address.tag >> _BITS})"

    def script(self, text: str) -> Cursor[PostgresRow]:
        cursor: Cursor[PostgresRow] = self.raw.cursor()
        # It is a constant of ours without values.
        cursor.execute(sql.SQL(text), prepare=False)
        return cursor

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):  # it is lost already
                connection.close()

    def _connect(self) -> _Connection:
        times = self.timeouts
        connection = _Connection.connect(
            self.address.url,
            autocommit=True,
            row_factory=_row_factory,
            prepare_threshold=3,
            application_name="horae",
            connect_timeout=max(2, round(times.connect / _SECOND)),
            tcp_user_timeout=_millis(times.answer),
            **_ALIVE,
        )
        connection.beats = max(1, round(times.answer / timedelta(seconds=_BEAT)))
        try:
            connection.prepared_max = PREPARED
            # One size, or a statement would be prepared for each.
            connection.adapters.register_dumper(int, Int8Dumper)
            connection.adapters.register_dumper(str, _StrDumper)
            connection.execute(self._settings(), prepare=False)
            if self.is_shared:
                row = connection.execute(_LIGHT, prepare=False).fetchone()
                self.commits = self.commits if row is None else row[0]
            if self.is_read_only:  # another node may have changed it; writers check each time
                row = connection.execute("SELECT oldest FROM term").fetchone()
                refuse_newer(self.address, 0 if row is None else row[0])
        except BaseException:
            connection.close()
            raise
        return connection

    def _settings(self) -> sql.SQL:
        limits = {
            "statement_timeout": self.timeouts.statement,
            "lock_timeout": self.timeouts.lock,
            "idle_in_transaction_session_timeout": self.timeouts.idle,
        }
        parts = [
            f'SET search_path TO "{self.address.schema}"',
            "SET timezone TO 'UTC'",
            "SET client_min_messages TO error",
            # Plans are cached while tables grow: none may be made for small tables.
            *(f"SET {each} TO off" for each in _WHOLE_TABLES),
            *(f"SET {name} TO {_millis(limit)}" for name, limit in limits.items()),
            # Durable, whatever the server's default is.
            (
                "SELECT set_config('synchronous_commit', 'on', false)"
                " WHERE current_setting('synchronous_commit') = 'off'"
            ),
        ]
        if self.is_read_only:
            parts.append("SET default_transaction_read_only TO on")
        return sql.SQL("; ".join(parts))


_WHOLE_TABLES: Final = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit")
_ALIVE_MEMBERS: Final = (
    "; SELECT name, generation FROM member WHERE (name, generation) IN ({})"
    " AND NOT is_reaped AND left_at IS NULL ORDER BY name FOR KEY SHARE"
)
# Outside of our transactions are only writes of the carrier, which are repeated if lost.
_LIGHT: Final = (
    "SELECT current_setting('synchronous_commit'), set_config('synchronous_commit', 'off', false)"
)


def _millis(length: timedelta) -> int:
    return max(1, round(length / timedelta(milliseconds=1)))


@contextmanager
def postgres_errors(address: DatabaseAddress, *, is_commit: bool = False) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if (said := meant(address, error, is_commit=is_commit)) is error:
            raise
        raise said from None  # without libpq's message, which may contain secrets


_LOST: Final = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    errors.IdleInTransactionSessionTimeout,
    errors.FeatureNotSupported,  # a prepared statement is of a schema that has changed
)
# Messages by kinds of errors, or words; the first match counts. While the server lets no client
# in, its errors have words and no code.
# fmt: off
_MEANINGS: Final[tuple[tuple[tuple[type, ...], str, type[LedgerError], str, str], ...]] = (
    ((errors.LockNotAvailable,), "", LedgerBusyError, "another node is writing to the ledger", ""),
    ((errors.QueryCanceled,), "", LedgerBusyError, "the query timed out", ""),
    ((errors.DeadlockDetected,), "", LedgerBusyError, "two nodes deadlocked", ""),
    ((errors.SerializationFailure, errors.UniqueViolation), "",
     LedgerBusyError, "another node wrote first", ""),
    ((errors.TooManyConnections,), "", LedgerBusyError, "the database has no free connection", ""),
    ((errors.InvalidPassword, errors.InvalidAuthorizationSpecification, errors.InvalidCatalogName),
     (r"FATAL: +(database .* does not exist|role .* does not exist|password authentication failed"
     r"|no pg_hba\.conf entry)"),
     LedgerError, "the database rejects the login", "check the address, user and password"),
    ((), (r"certificate verify failed|does not match host name|root certificate"
     r"|server does not support SSL"),
     LedgerError, "the server cannot be verified",
     "check the certificate, or sslmode and sslrootcert in the address"),
    ((), r"invalid [a-z_ ]*value|invalid port|invalid URI|connection option",
     LedgerError, "the address of the database is not valid", _WRITE_LIKE),
    ((errors.DiskFull, errors.OutOfMemory, errors.InsufficientPrivilege,
      errors.ReadOnlySqlTransaction),
     "", LedgerWriteError, "the ledger cannot be written",
     "free disk space or let the role write, and try again"),
    ((errors.DataCorrupted, errors.IndexCorrupted),
     "", LedgerDamagedError, "the ledger is damaged", "restore a backup"),
    ((errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn),
     "", LedgerDamagedError, "the tables do not match the schema", "restore a backup"),
)
# fmt: on


def meant(address: DatabaseAddress, error: Exception, *, is_commit: bool = False) -> Exception:
    if not isinstance(error, psycopg.Error):
        return error
    place, why = address.place, address.masked(error)
    for kinds, words, meaning, reason, remedy in _MEANINGS:
        if isinstance(error, kinds) or (words and re.search(words, why)):
            if meaning is LedgerBusyError:
                return meaning(place, f"{reason}; nothing was recorded", remedy="try again")
            return meaning(place, f"{reason} ({why})", remedy=remedy)
    if not isinstance(error, _LOST):
        return error
    if is_commit:
        reason = f"the connection was lost during a commit ({why}); the result is not known"
        return LedgerWriteError(place, reason, remedy="check again when the database answers")
    reason = f"the database cannot be reached ({why}); nothing was recorded"
    return LedgerWriteError(place, reason, remedy="try again when the database answers")


def refuse_newer(address: DatabaseAddress, oldest: int) -> None:
    known = max(migrations(DIALECT))
    if oldest > known:
        raise LedgerNewerError(
            address.place,
            f"the schema needs support for version {oldest}, and this horae supports {known}",
            remedy="use the newer horae that wrote it, on every node",
        )


def is_lost(error: BaseException) -> bool:
    """Return whether an error means that a connection was lost, or is unusable.

    A timeout does not count: to try again would take as long again.
    """
    if isinstance(error, _SilentError) or not isinstance(error, _LOST):
        return False
    code = error.sqlstate
    return code is None or code.startswith("57P") or code in {"25P03", "0A000"}


async def connect(address: DatabaseAddress, name: str) -> psycopg.AsyncConnection[Any]:
    connection = await psycopg.AsyncConnection.connect(
        address.url,
        autocommit=True,
        application_name=name,
        connect_timeout=round(_WAIT),
        tcp_user_timeout=20_000,
        **_ALIVE,
    )
    try:
        settings = (
            "SET search_path TO {}; SET statement_timeout TO 20000; SET lock_timeout TO 10000"
        )
        await connection.execute(sql.SQL(settings).format(sql.Identifier(address.schema)))
    except BaseException:
        await connection.close()
        raise
    return connection


async def heard(
    address: DatabaseAddress, channels: Sequence[str], *, pulse: timedelta
) -> AsyncIterator[psycopg.Notify | None]:
    """Yield notifications on channels.

    None comes first: earlier notifications were not received. It ends with an error when the
    connection is lost, which is noticed within a pulse.
    """
    with postgres_errors(address):
        connection: psycopg.AsyncConnection[Any] | None = None
        try:
            async with asyncio.timeout(_WAIT):
                connection = await connect(address, "horae listens")
                for channel in channels:
                    await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            yield None
            told: list[psycopg.Notify] = []
            connection.add_notify_handler(told.append)
            while True:
                if not await _is_readable(connection, pulse):
                    async with asyncio.timeout(_WAIT):
                        await connection.execute("SELECT 1")
                wire = connection.pgconn
                wire.consume_input()
                while (found := wire.notifies()) is not None:
                    name, words = found.relname.decode(), found.extra.decode()
                    told.append(psycopg.Notify(name, words, found.be_pid))
                for each in told:
                    yield each
                told.clear()
                await asyncio.sleep(_TOGETHER)
        except TimeoutError:
            raise psycopg.OperationalError("the database does not answer") from None
        finally:
            if connection is not None:
                await connection.close()


async def _is_readable(connection: psycopg.AsyncConnection[Any], within: timedelta) -> bool:
    """Wait for data from the server; psycopg itself would poll ten times a second."""
    loop, said = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection, said.set)
    try:
        async with asyncio.timeout(within.total_seconds()):
            return await said.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(connection)
