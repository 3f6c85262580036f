"""One connection to PostgreSQL, as a book wants it: in its dialect, and never waiting for ever.

Each wait has its end: to connect, to get a lock, to be answered. A server that accepts what we
send and says nothing is given up like one that is not there. A connection that has failed is
closed, and the next call opens another.

A server is far away: to ask it one thing takes as long as to ask it twenty at once. So a wire can
be told what will be asked of it (`Look`), and then answers from what it has learned; and what is
changed under a lock that keeps all others out may wait, with all else that is to be written, until
something is asked that was not foreseen, or until the end.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.generators import send
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
from horae.store.book import ANYTHING, NOTHING
from horae.store.sql import migrations, spoken

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from psycopg.cursor import Cursor

T = TypeVar("T")

DIALECT: Final = "postgres"
PREPARED: Final = 500  # statements that a connection keeps ready; we have some 150
_BEAT: Final = 0.2  # seconds between two looks at whether the server still says nothing
_SECOND: Final = timedelta(seconds=1)
_TOKEN: Final = re.compile(r"'(?:[^']|'')*'|--[^\n]*|::|:([a-z_]+)|%")
_SCHEMA: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_IN_TRANSACTION: Final = frozenset({TransactionStatus.INTRANS, TransactionStatus.INERROR})
_TRY_AGAIN: Final = "try again when the database answers"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long each kind of waiting may last."""

    connect: timedelta = timedelta(seconds=5)
    statement: timedelta = timedelta(seconds=30)
    lock: timedelta = timedelta(seconds=10)
    idle: timedelta = timedelta(seconds=5)  # inside a transaction, between two statements
    silence: timedelta = timedelta(seconds=3)  # beyond what a statement may take

    @property
    def answer(self) -> timedelta:
        """How long a server may say nothing."""
        return self.statement + self.silence


BRIEF: Final = Timeouts(
    connect=3 * _SECOND, statement=3 * _SECOND, lock=2 * _SECOND, silence=_SECOND
)  # for leases: whoever cannot renew one in time has lost it


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """Where a ledger is, without a word that is secret: it stands in messages."""

    url: str = field(repr=False)
    schema: str
    place: str
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, url: str, schema: str) -> DatabaseAddress:
        """Return the address that a URL or a list of settings says."""
        try:
            parts = conninfo_to_dict(url)
        except psycopg.Error:
            # What libpq says about it quotes it.
            raise LedgerError(
                "postgresql",
                "the address of the database cannot be read",
                remedy="write it like postgresql://user@host:5432/database",
            ) from None
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

    def masked(self, text: object) -> str:
        """Return a text without what is secret, in one line."""
        line = " ".join(str(text).split())
        for secret in self.secrets:
            line = line.replace(secret, "***")
        return line


class PostgresRow(tuple[Any, ...]):
    """A row whose values are found by place and by name."""

    __slots__ = ()
    places: dict[str, int]

    def __getitem__(self, key: Any) -> Any:
        if type(key) is str:
            return tuple.__getitem__(self, self.places[key])
        return tuple.__getitem__(self, key)

    def keys(self) -> list[str]:
        """Return the names of its columns."""
        return [*self.places]


@lru_cache(maxsize=512)
def _row_kind(names: tuple[bytes | None, ...]) -> type[PostgresRow]:
    # The first of two that have one name, as SQLite has it.
    places = {(name or b"").decode(): place for place, name in reversed([*enumerate(names)])}
    return type("Row", (PostgresRow,), {"__slots__": (), "places": places})


def _row_factory(cursor: Cursor[Any]) -> Callable[[Sequence[Any]], PostgresRow]:
    # Not its description, which takes as long to make as all of the rest.
    found = cursor.pgresult
    if found is None:
        return PostgresRow
    return _row_kind(tuple([found.fname(place) for place in range(found.nfields)]))


class _SilentError(psycopg.OperationalError):
    """The server has said nothing for too long."""


class _StrDumper(StrDumperUnknown):
    """Writes a text; also one that is an enum's word."""


class _AtOnce(psycopg.Pipeline):
    """Asks several things in one breath: nothing of it is sent before all of it is there.

    Who is frozen in the midst of asking would keep a lock, and a server ends only those who are
    idle between two requests. A mere flush after the last word would also make it wait for ever,
    so there is none: the end of a request is enough.
    """

    def _communicate_gen(self) -> Generator[Any, Any, None]:
        yield from ()

    def _exit_gen(self) -> Generator[Any, Any, None]:
        self._enqueue_sync()
        while self.command_queue:
            self.command_queue.popleft()()
        yield from send(self.pgconn)
        yield from self._fetch_gen(flush=False)


class _Connection(psycopg.Connection[PostgresRow]):
    """A connection that gives a silent server up."""

    beats: int = 0

    def at_once(self) -> AbstractContextManager[psycopg.Pipeline]:
        """Within it nothing is answered; at its end all is."""
        if self._pipeline is None:
            self._pipeline = _AtOnce(self)
        return self.pipeline()

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG002 - ours are shorter
        """Do what psycopg wants done, unless the server is silent for too long."""
        return super().wait(_answered(gen, self.beats, self.pgconn.finish), interval=_BEAT)


def _answered(
    gen: Generator[Any, Any, T], beats: int, give_up: Callable[[], None]
) -> Generator[Any, Any, T]:
    """Do as another generator does, until nothing has come for so many beats."""
    silent = 0
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            silent = 0 if ready else silent + 1
            if silent > beats:
                give_up()
                with suppress(Exception):  # one that asked several things wants to ask once more
                    gen.close()
                raise _SilentError("the database does not answer")
            wanted = gen.send(ready)
    except StopIteration as end:
        result: T = end.value
        return result


class _SplitQuery(NamedTuple):
    """A query as psycopg takes it."""

    one: str
    many: str | None
    names: tuple[str, ...]  # what `many` is told of each row


@cache
def _said(query: str) -> _SplitQuery:
    """Return a query of ours in the words of PostgreSQL and of psycopg."""
    own = spoken(DIALECT).get(query)
    one = query if own is None else own.one
    many = None if own is None else own.many
    names = tuple(dict.fromkeys(found[1] for found in _TOKEN.finditer(query) if found[1]))
    return _SplitQuery(_placed(one), None if many is None else _placed(many), names)


def _placed(query: str) -> str:
    """Return a query with psycopg's places for values.

    >>> _placed("SELECT :a::text WHERE key LIKE 'at:b%' -- :c")
    "SELECT %(a)s::text WHERE key LIKE 'at:b%%' -- :c"
    """

    def put(found: re.Match[str]) -> str:
        if found[1]:
            return f"%({found[1]})s"
        return found[0].replace("%", "%%")

    return _TOKEN.sub(put, query)


class ForeseenQuery(NamedTuple):
    """Something that will be asked, so that it is asked together with other things.

    The answer is forgotten when what it is *about* is changed. *via* is a query that is asked
    in its place; it says last, as `known_as`, of which number each row is the answer.
    """

    query: str
    values: Mapping[str, Any]
    about: str
    via: str = ""


class SurprisedError(Exception):
    """Not all rows were as they had been seen; nothing of it may be kept."""


class _Query(NamedTuple):
    """A question that is on its way."""

    looks: Sequence[ForeseenQuery]
    cursor: Cursor[PostgresRow]
    is_many: bool


class _PendingAnswer(list[PostgresRow]):
    """What was learned before it was asked, as a cursor gives it."""

    def fetchone(self) -> PostgresRow | None:
        return self[0] if self else None

    def fetchall(self) -> list[PostgresRow]:
        return self


class _QueryCache:
    """The answers to what was foreseen, as long as they hold."""

    def __init__(self) -> None:
        self._answers: dict[str, dict[tuple[Any, ...], _PendingAnswer]] = {}
        self._about: dict[tuple[str, int], list[tuple[str, tuple[Any, ...]]]] = {}
        self._fleeting: list[tuple[str, tuple[Any, ...]]] = []

    def __bool__(self) -> bool:
        return bool(self._answers)

    def find(self, query: str, values: Mapping[str, Any] | None) -> _PendingAnswer | None:
        """Return the answer to a question; None: it is not known."""
        answers = self._answers.get(query)
        return None if answers is None else answers.get(_key(query, values or {}))

    def learn(self, asked: Iterable[_Query]) -> None:
        """Remember what the server has answered."""
        for looks, cursor, is_many in asked:
            rows = cursor.fetchall()
            if looks[0].via:
                for row in rows:
                    self._keep(looks[0], (row[-1],), [_cut(row)])
            elif is_many:
                found: dict[int, list[PostgresRow]] = {}
                for row in rows:
                    found.setdefault(row[-1], []).append(_cut(row))
                for place, look in enumerate(looks, start=1):
                    self._keep(look, _key(look.query, look.values), found.get(place, []))
            else:
                self._keep(looks[0], _key(looks[0].query, looks[0].values), rows)

    def change(self, query: str, row: tuple[Any, ...]) -> None:
        """Let the answer to a question that has no values be another."""
        self._answers[query] = {(): _PendingAnswer([PostgresRow(row)])}

    def take(self, query: str, values: Mapping[str, Any]) -> PostgresRow | None:
        """Return an answer that is good once."""
        rows = self._answers.get(query, {}).pop(_key(query, values), None)
        return rows[0] if rows else None

    def forget(self, kind: str, number: int) -> None:
        """Forget what is spoiled by a change."""
        for query, key in (*self._about.pop((kind, number), ()), *self._fleeting):
            self._answers[query].pop(key, None)
        self._fleeting.clear()

    def clear(self) -> None:
        self._answers.clear()
        self._about.clear()
        self._fleeting.clear()

    def _keep(self, look: ForeseenQuery, key: tuple[Any, ...], rows: list[PostgresRow]) -> None:
        self._answers.setdefault(look.query, {})[key] = _PendingAnswer(rows)
        if look.about == ANYTHING:
            self._fleeting.append((look.query, key))
        elif look.about != NOTHING:
            has_number = bool(rows) and "number" in rows[0].places
            number = rows[0]["number"] if has_number else key[0]
            self._about.setdefault((look.about, number), []).append((look.query, key))


def _key(query: str, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values of a question in the order in which it names them."""
    return tuple([values[name] for name in _said(query).names])


def _cut(row: PostgresRow) -> PostgresRow:
    """Return a row without its last column."""
    return _cut_kind(type(row))(row[:-1])


@lru_cache(maxsize=512)
def _cut_kind(kind: type[PostgresRow]) -> type[PostgresRow]:
    places = dict([*kind.places.items()])
    last = max(places.values(), default=0)
    left = {name: place for name, place in places.items() if place != last}
    return type("Row", (PostgresRow,), {"__slots__": (), "places": left})


class PostgresConnection:
    """One connection, which is opened when it is needed, and again when it was lost."""

    def __init__(
        self, address: DatabaseAddress, timeouts: Timeouts, *, is_read_only: bool = False
    ) -> None:
        self.address = address
        self.timeouts = timeouts
        self.changes = 0  # rows that were written since the transaction began
        self.gathers = False  # whether what is changed may wait
        self.has_forgotten = False  # whether what was foreseen is no longer known
        self._memory = _QueryCache()
        self._soon: dict[str, dict[tuple[str, int], Mapping[str, Any]]] = {}
        self._numbers: dict[str, int] = {}  # how many were given, by the query that writes it
        self._later: dict[str, list[Mapping[str, Any]]] = {}
        self._is_read_only = is_read_only
        self._connection: _Connection | None = None

    @property
    def raw(self) -> _Connection:
        """The connection itself, opened."""
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that has not failed."""
        return self._connection is not None and not self._connection.broken

    @property
    def can_roll_back(self) -> bool:
        """Whether a transaction is open and the server has answered all that was asked in it."""
        if self._connection is None:
            return False
        return self._connection.info.transaction_status in _IN_TRANSACTION

    @property
    def pid(self) -> int:
        """The number of the server's process for it; 0 if there is none."""
        return 0 if self._connection is None else self._connection.info.backend_pid

    def execute(self, query: str, values: Mapping[str, Any] | None = None) -> Cursor[PostgresRow]:
        """Do one query, after all that is to be done before it."""
        known = self._memory.find(query, values)
        if known is not None:
            return cast("Cursor[PostgresRow]", known)
        self.flush()
        said = _said(query).one
        if not said.startswith("SELECT"):
            self.forget()
        cursor: Cursor[PostgresRow] = self.raw.execute(said, values or {})
        found = cursor.pgresult
        if found is not None and not found.nfields:
            self.changes += max(0, cursor.rowcount)
        return cursor

    def executemany(self, query: str, rows: Iterable[Mapping[str, Any]]) -> Cursor[PostgresRow]:
        """Do one query for each row, all at once if the dialect can."""
        many = [*rows]
        if not many:
            return self.raw.cursor()
        self.flush()
        self.forget()
        if _said(query).many is None and len(many) > 1:
            cursor: Cursor[PostgresRow] = self.raw.cursor()
            cursor.executemany(_said(query).one, many)
        else:
            [cursor] = self._send(query, many)
        self.changes += max(0, cursor.rowcount)
        return cursor

    def change(self, query: str, values: Mapping[str, Any], *, about: tuple[str, int]) -> bool:
        """Change the one row that a number of a kind has; False: it is not as it was seen.

        If changes may wait nobody else can have changed it, and should it be otherwise all
        that was to be done with it fails.
        """
        if not self.gathers:
            return self.execute(query, values).rowcount == 1
        if about in self._soon.get(query, ()):
            self.flush()
        self._soon.setdefault(query, {})[about] = values
        self._memory.forget(*about)
        return True

    def change_all(self, query: str, rows: Iterable[Mapping[str, Any]], *, kind: str) -> None:
        """Change, or write, the rows of several numbers of a kind."""
        if not self.gathers:
            self.executemany(query, rows)
            return
        for row in rows:
            self.change(query, row, about=(kind, row["number"]))

    def later(self, query: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Do a query for each row before the commit, together with others of its kind."""
        self._later.setdefault(query, []).extend(rows)

    def foresee(self, looks: Iterable[ForeseenQuery]) -> None:
        """Ask several things at once, to answer from what is learned."""
        self.flush()
        with self.raw.at_once():
            asked = self._ask(looks)
        self._memory.learn(asked)
        self.has_forgotten = False

    def forget(self) -> None:
        self.has_forgotten = self.gathers and bool(self._memory)
        self._memory.clear()

    def foreseen(self, query: str, values: Mapping[str, Any]) -> PostgresRow | None:
        """Return an answer that is good once, if it was foreseen."""
        return self._memory.take(query, values)

    def numbers(self, last: str, give: str, count: int) -> int | None:
        """Give so many numbers, if it was foreseen which was the last; return that."""
        known = self._memory.find(last, None)
        if not known or not self.gathers:
            return None
        number = int(known[0][0])
        self._memory.change(last, (number + count,))
        self._numbers[give] = self._numbers.get(give, 0) + count
        return number

    def begin(
        self, looks: Iterable[ForeseenQuery] = (), *, gathers: bool = False
    ) -> tuple[int, int]:
        """Begin to write when nobody else does; return the term, and the schema's version.

        What is to be looked at is asked for in the same breath, and answered under the lock.
        """
        self.changes, self.gathers = 0, gathers
        for waiting in (self._later, self._soon, self._numbers):
            waiting.clear()
        self._memory.clear()
        self.has_forgotten = False
        with self.raw.at_once():
            self.raw.execute("BEGIN", prepare=False)
            found = self.raw.execute("SELECT number, version FROM term FOR UPDATE")
            asked = self._ask(looks)
        row = found.fetchone()
        if row is None:
            raise LedgerDamagedError(
                self.address.place, "the table term is empty", remedy="restore a backup"
            )
        self._memory.learn(asked)
        return row[0], row[1]

    def flush(self) -> None:
        """Do what waits to be changed."""
        if self._soon or self._numbers:
            self._do({})

    def finish(self) -> None:
        """Do all that waits, and what was left for later."""
        later = {**self._later}
        self._later.clear()
        if self._soon or self._numbers or later:
            self._do(later)

    def attempt(self, work: Callable[[], T]) -> T:
        """Return what a piece of work would give, and leave nothing of it."""
        self.flush()
        self.forget()
        gathers, self.gathers = self.gathers, False
        later = {query: [*rows] for query, rows in self._later.items()}
        changes = self.changes
        self.script("SAVEPOINT attempt")
        result = work()
        self.script("ROLLBACK TO SAVEPOINT attempt; RELEASE SAVEPOINT attempt")
        self._later, self.changes, self.gathers = later, changes, gathers
        return result

    def _do(self, later: Mapping[str, list[Mapping[str, Any]]]) -> None:
        """Do what waits, all of it on one way to the server and back."""
        soon = {query: [*rows.values()] for query, rows in self._soon.items()}
        numbers = {**self._numbers}
        self._soon.clear()
        self._numbers.clear()
        with self.raw.at_once():
            for query, count in numbers.items():
                self.raw.execute(_said(query).one, {"count": count})
            changed = [(len(rows), self._send(query, rows)) for query, rows in soon.items()]
            written = [each for query, rows in later.items() for each in self._send(query, rows)]
        for expected, cursors in changed:
            if sum(cursor.rowcount for cursor in cursors) != expected:
                raise SurprisedError
            self.changes += expected
        self.changes += sum(max(0, cursor.rowcount) for cursor in written)

    def _send(self, query: str, rows: Sequence[Mapping[str, Any]]) -> list[Cursor[PostgresRow]]:
        """Send a query for some rows: one for all of them if the dialect can."""
        said = _said(query)
        if said.many is None or len(rows) == 1:
            return [self.raw.execute(said.one, row) for row in rows]
        return [self.raw.execute(said.many, {"rows": _written(said.names, rows)})]

    def _ask(self, looks: Iterable[ForeseenQuery]) -> list[_Query]:
        """Send questions, those of one kind together."""
        kinds: dict[tuple[str, str], dict[tuple[Any, ...], ForeseenQuery]] = {}
        for look in looks:
            key = _key(look.via or look.query, look.values)
            kinds.setdefault((look.query, look.via), {}).setdefault(key, look)
        return [
            each
            for (query, via), some in kinds.items()
            for each in self._ask_alike(via or query, [*some.values()])
        ]

    def _ask_alike(self, query: str, looks: Sequence[ForeseenQuery]) -> list[_Query]:
        said = _said(query)
        if said.many is None or len(looks) == 1:
            return [
                _Query([look], self.raw.execute(said.one, look.values), is_many=False)
                for look in looks
            ]
        rows = _written(said.names, [look.values for look in looks])
        return [_Query(looks, self.raw.execute(said.many, {"rows": rows}), is_many=True)]

    def script(self, text: str) -> Cursor[PostgresRow]:
        """Do several statements without values in one go."""
        cursor: Cursor[PostgresRow] = self.raw.cursor()
        # It is ours, and has no values in it.
        cursor.execute(sql.SQL(text), prepare=False)
        return cursor

    def settle(self) -> None:
        """After an error: close it, unless nothing is left open."""
        if self._connection is None:
            return
        if self._connection.info.transaction_status != TransactionStatus.IDLE:
            self.close()

    def close(self) -> None:
        """Close it; what was not committed is undone."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):  # it is lost already
                connection.close()

    def _connect(self) -> _Connection:
        """Return a new connection, with our limits and in our schema."""
        times = self.timeouts
        connection = _Connection.connect(
            self.address.url,
            autocommit=True,
            row_factory=_row_factory,
            prepare_threshold=3,
            application_name="horae",
            connect_timeout=max(2, round(times.connect / _SECOND)),
            keepalives=1,
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=_millis(times.answer),
        )
        connection.beats = max(1, round(times.answer / timedelta(seconds=_BEAT)))
        try:
            connection.prepared_max = PREPARED
            # One size, or each statement would be prepared for several.
            connection.adapters.register_dumper(int, Int8Dumper)
            connection.adapters.register_dumper(str, _StrDumper)
            connection.execute(self._settings(), prepare=False)
            if self._is_read_only:
                self._refuse_newer(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _refuse_newer(self, connection: _Connection) -> None:
        """Raise an error if another member has changed the schema; who writes asks each time."""
        row = connection.execute("SELECT version FROM term").fetchone()
        refuse_newer(self.address, 0 if row is None else row[0])

    def _settings(self) -> sql.Composed:
        times = self.timeouts
        limits = {
            "statement_timeout": times.statement,
            "lock_timeout": times.lock,
            "idle_in_transaction_session_timeout": times.idle,
        }
        parts = [
            sql.SQL("SET search_path TO {}").format(sql.Identifier(self.address.schema)),
            sql.SQL("SET timezone TO 'UTC'"),
            sql.SQL("SET client_min_messages TO error"),
            *(
                sql.SQL("SET {} TO {}").format(sql.Identifier(name), sql.Literal(_millis(limit)))
                for name, limit in limits.items()
            ),
            # What was acknowledged must be kept, however the server is set up.
            sql.SQL(
                "SELECT set_config('synchronous_commit', 'on', false)"
                " WHERE current_setting('synchronous_commit') = 'off'"
            ),
        ]
        if self._is_read_only:
            parts.append(sql.SQL("SET default_transaction_read_only TO on"))
        return sql.SQL("; ").join(parts)


def _written(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as one text that a query of many takes."""
    return json.dumps([{name: row[name] for name in names} for row in rows], default=bytes.hex)


def _millis(length: timedelta) -> int:
    return max(1, round(length / timedelta(milliseconds=1)))


class postgres_errors:  # noqa: N801 - used as a word: with told(address)
    """Turns what PostgreSQL says within it into what a person can act on."""

    __slots__ = ("_address", "_is_commit")

    def __init__(self, address: DatabaseAddress, *, is_commit: bool = False) -> None:
        self._address = address
        self._is_commit = is_commit

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if isinstance(error, psycopg.Error):
            said = _meant(self._address, error, is_commit=self._is_commit)
            if said is not None:
                # Without what libpq says: that may hold what is secret.
                raise said from None


_BUSY: Final = {
    errors.LockNotAvailable: "another node is writing to the ledger",
    errors.QueryCanceled: "the query timed out",
    errors.DeadlockDetected: "two nodes deadlocked",
    errors.SerializationFailure: "another node wrote first",
    errors.TooManyConnections: "the database has no free connection",
}
_REFUSED: Final = (
    errors.DiskFull,
    errors.OutOfMemory,
    errors.InsufficientPrivilege,
    errors.ReadOnlySqlTransaction,
)
_BROKEN: Final = (errors.DataCorrupted, errors.IndexCorrupted)
_GONE: Final = (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn)
_LOST: Final = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    errors.IdleInTransactionSessionTimeout,
    errors.FeatureNotSupported,  # what was prepared is of a schema that has been changed since
)
# While it lets nobody in, a server gives no code, only words.
_NOT_IN: Final = re.compile(
    r"FATAL: +(database .* does not exist|role .* does not exist|password authentication failed"
    r"|no pg_hba\.conf entry)"
)
_NOT_SECURE: Final = re.compile(
    r"certificate verify failed|does not match host name|root certificate"
    r"|server does not support SSL"
)
_NOT_READ: Final = re.compile(r"invalid [a-z_ ]*value|invalid port|invalid URI|connection option")
_UNKNOWN_USER: Final = (
    errors.InvalidPassword,
    errors.InvalidAuthorizationSpecification,
    errors.InvalidCatalogName,
)


def _meant(
    address: DatabaseAddress, error: psycopg.Error, *, is_commit: bool
) -> LedgerError | None:
    """Return what an error of PostgreSQL means to a person, if it is not one of ours."""
    place, why = address.place, address.masked(error)
    for kind, reason in _BUSY.items():
        if isinstance(error, kind):
            return LedgerBusyError(place, f"{reason}; nothing was recorded", remedy="try again")
    if isinstance(error, _UNKNOWN_USER) or _NOT_IN.search(why):
        return LedgerError(
            place,
            f"the database rejects the login ({why})",
            remedy="check the address, user and password",
        )
    if _NOT_SECURE.search(why):
        remedy = "check the certificate, or sslmode and sslrootcert in the address"
        return LedgerError(place, f"the server cannot be verified ({why})", remedy=remedy)
    if _NOT_READ.search(why):
        remedy = "write it like postgresql://user@host:5432/database"
        return LedgerError(
            place, f"the address of the database is not valid ({why})", remedy=remedy
        )
    if isinstance(error, _REFUSED):
        remedy = "free disk space or let the role write, and try again"
        return LedgerWriteError(place, f"the ledger cannot be written ({why})", remedy=remedy)
    if isinstance(error, _BROKEN):
        return LedgerDamagedError(
            place, f"the ledger is damaged ({why})", remedy="restore a backup"
        )
    if isinstance(error, _GONE):
        reason = f"the tables do not match the schema ({why})"
        return LedgerDamagedError(place, reason, remedy="restore a backup")
    if not isinstance(error, _LOST):
        return None
    if is_commit:
        reason = f"the connection was lost during a commit ({why}); the result is not known"
        return LedgerWriteError(place, reason, remedy="check again when the database answers")
    return LedgerWriteError(
        place, f"the database cannot be reached ({why}); nothing was recorded", remedy=_TRY_AGAIN
    )


def refuse_newer(address: DatabaseAddress, version: int) -> None:
    """Raise an error if the schema is of a version that we do not know."""
    known = len(migrations(DIALECT))
    if version > known:
        raise LedgerNewerError(
            address.place,
            f"the schema has version {version}, and this horae supports {known}",
            remedy="use the newer horae that wrote it, on every node",
        )


def is_servers(error: BaseException) -> bool:
    return isinstance(error, psycopg.Error)


def is_lost(error: BaseException) -> bool:
    """Tell whether an error says that a connection was lost, or is of no use any more.

    Not that it was silent, nor that it took too long: to try again would take as long again.
    """
    if isinstance(error, _SilentError) or not isinstance(error, _LOST):
        return False
    code = error.sqlstate
    return code is None or code.startswith("57P") or code in {"25P03", "0A000"}
