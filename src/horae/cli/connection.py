"""How a command reads beside a running engine, and writes through it, or alone with the lock."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from os.path import realpath, relpath
from pathlib import Path
from secrets import token_hex
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar
from zoneinfo import ZoneInfo

import click

from horae.cli import moments, output
from horae.cli.group import is_local
from horae.cli.options import NoRootError
from horae.client import AsyncClient, Client, EngineUnreachableError, LeaderClient, ServerClient
from horae.config import Config, SettingError, load
from horae.core import clock
from horae.core.actor import acting, own_actor, own_run, user_name
from horae.core.ports import ANYBODY, Clock, LedgerDamagedError, LedgerError, LedgerNewerError
from horae.core.service import Service
from horae.core.text import is_number
from horae.core.views import EngineFacts
from horae.errors import Exit, HoraeError, ScheduleError
from horae.files.read import StrPath
from horae.store import database, sql
from horae.store.ledger import SqlLedger
from horae.store.lock import (
    DataLockedError,
    LockHolder,
    LockUse,
    engine_in,
    engine_zone,
    holder_of,
)
from horae.store.sqlite import SqliteLedger
from horae.timing.zone import parse_rfc3339, zone

if TYPE_CHECKING:
    from horae.context import Context
    from horae.store.postgres import PostgresLedger

T = TypeVar("T")
Opened = TypeVar("Opened")
AnyLedger = TypeVar("AnyLedger", bound="SqlLedger")
AnyService: TypeAlias = Service | AsyncClient  # of a ledger, or of the engine that has it

PATIENCE: Final = timedelta(seconds=5)  # how long a reader waits for a database that is busy
BRIEF: Final = timedelta(seconds=1)  # how long a command may have the lock
STARTING: Final = timedelta(seconds=15)  # how long an engine may take to listen, from its start

_TRIES: Final = 20  # at a lock that others take and give back all the time
_RESTORE: Final = (
    "restore a backup with `horae doctor --restore` or `horae restore FILE`, "
    "or start a new ledger with `horae up --fresh-ledger`"
)


class NoLedgerError(HoraeError, code="no_ledger", exit_code=Exit.NOT_FOUND):
    def __init__(self, directory: str, *, word: str = "") -> None:
        self.directory = directory
        said = f"no entry of the plan files is called {word!r}, and there is " if word else ""
        remedy = "run `horae up` to create one, or use --root or --data if it is elsewhere"
        super().__init__(f"{said}no ledger in {directory}; {remedy}")


class NotAnEngineError(HoraeError, code="not_an_engine", exit_code=Exit.UNREACHABLE):
    def __init__(self, holder: LockHolder, reason: str = "") -> None:
        self.pid, self.command = holder.pid, holder.command
        executes = f"is executing `{holder.command}` without an engine and takes no requests"
        super().__init__(f"{holder.name} {reason or f'{executes}; {holder.remedy}'}")


def refuse_no_root(root: StrPath, data: Path) -> None:
    """Raise an error for a plan root that is not there, unless a ledger elsewhere is about it."""
    if not os.path.isdir(root) and not (data / database.DATABASE).exists():
        raise NoRootError(os.fspath(root))


class Place(NamedTuple):
    config: Config
    zone: ZoneInfo
    root: str
    directory: Path  # of the data
    store: str | None  # the database, if nodes share the ledger
    server: ServerClient | None = None  # the engine elsewhere that a command asks instead

    @classmethod
    def of(cls, *, root: str, data: str | None) -> Place:
        if (server := _server()) is not None:
            _say_unused(root, data)
            config = load(root, flags={"data": data}, with_file=False)
            return cls(config, clock.machine_zone(), config.root, config.data, None, server)
        try:
            config = load(root, flags={"data": data})
        except SettingError as error:
            config = load(root, flags={"data": data}, with_file=False)
            if engine_in(config.data) is None:
                raise
            # An engine that runs can be asked and stopped, whatever is in the file now.
            kept = "the running engine keeps the settings that it started with"
            output.echo(f"horae: {error}; {kept}", err=True)
        if config.store is None:
            refuse_no_root(config.root, config.data)
        # An engine keeps the zone that it started with.
        name = engine_zone(config.data) or config.zone
        where = clock.machine_zone() if name is None else zone(name)
        return cls(config, where, config.root, config.data, config.store)

    @property
    def path(self) -> Path:
        return self.directory / database.DATABASE

    @property
    def is_known(self) -> bool:
        was_there = (self.directory / database.MARK).exists() or self.path.exists()
        return was_there or self.store is not None

    def word(self, entry: str) -> str:
        """Return a name for an entry that holds elsewhere: a path from here becomes a whole one."""
        if self.server is not None:
            return entry
        file, _, line = entry.rpartition(":")
        # A path from the root is how the ledger writes it, so it goes first.
        is_from_root = not file.startswith(".") and os.path.exists(os.path.join(self.root, file))
        is_from_here = is_number(line) and not is_from_root and os.path.exists(file)
        return f"{os.path.abspath(file)}:{line}" if is_from_here else entry

    def moment(self, text: str | None) -> datetime | None:
        return None if text is None else moments.parse_moment(text, self.zone)


@dataclass
class CommandClock(clock.SystemClock):
    at: datetime | None = None  # where --at put it

    def now(self) -> datetime:
        return super().now() if self.at is None else self.at


@asynccontextmanager
async def opened(opening: Awaitable[AnyLedger]) -> AsyncIterator[AnyLedger]:
    ledger = await opening
    try:
        yield ledger
    finally:
        await ledger.close()


async def open_shared(url: str) -> PostgresLedger:
    from horae.store.postgres import PostgresLedger  # an extra

    return await PostgresLedger.open(url)


@asynccontextmanager
async def reader_of(place: Place) -> AsyncIterator[SqlLedger]:
    """Open the ledger without its lock, so that nothing can be written, unless it is shared."""
    if place.store is not None:
        async with opened(open_shared(place.store)) as shared:
            yield shared
        return
    refuse_loss(place)
    async with opened(SqliteLedger.open_reader(place.directory, patience=PATIENCE)) as ledger:
        await _check_version(ledger)
        yield ledger


def refuse_loss(place: Place) -> None:
    """Raise an error if there is no ledger, or if there was one and it is not whole any more."""
    # A reader must ask first: SQLite gives it a new log in place of one that was lost, and then
    # nobody could tell.
    if place.store is not None or place.server is not None:
        return  # it is not here
    was_there = (place.directory / database.MARK).exists()
    if not was_there and not place.path.exists():
        raise NoLedgerError(str(place.directory))
    try:
        database.refuse_loss(place.path, was_there=was_there)
    except LedgerDamagedError:
        # For an instant one that is being opened or closed looks the same.
        if holder_of(place.directory) is None:
            database.refuse_loss(place.path, was_there=was_there)


async def _check_version(ledger: SqliteLedger) -> None:
    """Raise an error unless a database is a ledger of our own version; a reader upgrades none."""
    names = ("application_id", "user_version")
    application, version = await ledger.read(
        lambda tx: [tx.execute(f"PRAGMA {name}").fetchone()[0] for name in names]
    )
    if application != database.APPLICATION:
        reason = "it is empty or not a ledger of horae"
        raise LedgerDamagedError(ledger.place, reason, remedy=_RESTORE)
    ours, has = max(sql.migrations()), f"the schema has version {version}, and this horae"
    if version > ours:
        remedy = "use the newer horae that wrote it"
        raise LedgerNewerError(ledger.place, f"{has} supports {ours}", remedy=remedy)
    if version < ours:
        raise LedgerError(ledger.place, f"{has} needs {ours}", remedy="`horae up` upgrades it")


def ask(place: Place, work: Callable[[SqlLedger], Awaitable[T]], *, or_empty: bool = False) -> T:
    """Return the answer of a ledger, or of an empty one; an engine that runs is not disturbed."""
    if place.server is not None:
        raise click.UsageError("this reads the ledger of this machine; unset HORAE_SERVER.")

    is_there = place.is_known or not or_empty
    return _with_ledger(reader_of(place) if is_there else opened(SqliteLedger.in_memory()), work)


def ask_shared(store: str, work: Callable[[PostgresLedger], Awaitable[T]]) -> T:
    return _with_ledger(opened(open_shared(store)), work)


def _with_ledger(
    opening: AbstractAsyncContextManager[AnyLedger], work: Callable[[AnyLedger], Awaitable[T]]
) -> T:
    async def working() -> T:
        async with opening as ledger:
            return await work(ledger)

    return asyncio.run(working())


def read(place: Place, work: Callable[[Service], Awaitable[T]], *, at: datetime | None = None) -> T:
    """Return what the ledger of this machine knows; an engine that runs is not disturbed."""
    return ask(place, lambda ledger: work(service_of(ledger, place, reads=CommandClock(at))))


def read_any(
    place: Place, work: Callable[[AnyService], Awaitable[T]], *, at: datetime | None = None
) -> T:
    """Return what the ledger of this machine knows, or the engine elsewhere that is asked."""
    if place.server is None:
        return read(place, work, at=at)
    refuse_at(at)
    return through(place.server, work)


def refuse_at(at: object) -> None:
    if at is not None:
        raise click.UsageError("--at is for the ledger of this machine; unset HORAE_SERVER.")


def write(place: Place, work: Callable[[AnyService], Awaitable[T]]) -> T:
    refuse_loss(place)
    return write_with(
        place, lambda client: through(client, work), lambda ledger: work(service_of(ledger, place))
    )


def write_with(
    place: Place, client: Callable[[Client], T], alone: Callable[[SqlLedger], Awaitable[T]]
) -> T:
    """Let the engine that has the lock change a ledger; without one this command takes it."""

    def opening() -> AbstractAsyncContextManager[SqlLedger]:
        if place.store is not None:
            return reader_of(place)
        who: dict[str, Any] = {"use": LockUse.COMMAND, "command": command_words()}
        now = clock.SystemClock().now()
        return opened(SqliteLedger.open(place.directory, now=now, **who))

    async def acting_alone(ledger: SqlLedger) -> T:
        with acting(await own_actor(ledger, place.directory)):
            return await alone(ledger)

    return by_engine_or_alone(place, client, opening, acting_alone)


def by_engine_or_alone(
    place: Place,
    client: Callable[[Client], T],
    opening: Callable[[], AbstractAsyncContextManager[Opened]],
    alone: Callable[[Opened], Awaitable[T]],
) -> T:
    """Let the engine that has the lock do something; without one, what *opening* takes it for."""

    async def with_the_lock() -> T:
        async with opening() as found:
            return await alone(found)

    for tries_left in reversed(range(_TRIES)):
        engine = engine_at(place)
        if engine is not None:
            return client(engine)
        try:
            return asyncio.run(with_the_lock())
        except DataLockedError:
            if not tries_left:  # else it was taken just now: look again by whom
                raise
    raise AssertionError("the last try returns or raises")


def through(client: Client, work: Callable[[AsyncClient], Awaitable[T]]) -> T:
    async def working() -> T:
        return await work(AsyncClient(client))

    return asyncio.run(working())


def context_of(ledger: SqlLedger, place: Place, now: Clock) -> Context:
    from horae.context import Context  # not for what the engine answers

    term = 1 if place.store is None else ANYBODY  # in a shared ledger, in any term
    root = Path(place.root).absolute()
    return Context(place.config, root, now, ledger, term, zone=place.zone.key)


def service_of(
    ledger: SqlLedger, place: Place, *, reads: CommandClock | None = None, is_new: bool = False
) -> Service:
    # An engine that runs knows better what cannot run, and of another time nobody knows.
    is_now = reads is not None and reads.at is None
    holder = holder_of(place.directory) if is_now else None
    is_asked = is_now and (holder is None or not holder.is_engine)
    is_used = holder is not None and holder.use is not LockUse.COMMAND
    parts: dict[str, Any] = {"is_new": is_new} | ({} if is_asked else {"unready": None})
    is_over = is_new or (is_now and place.store is None and not is_used)
    context = context_of(ledger, place, reads or CommandClock())
    return context.service(is_over=is_over, **parts)


def actor_at(place: Place) -> str:
    """Return the actor for edits of files by this command: its user, or the agent of a run."""
    if not own_run(place.directory) or not place.is_known:
        return f"cli:{user_name(os.getuid())}"
    return ask(place, lambda ledger: own_actor(ledger, place.directory))


def record_edits(root: str, edits: Iterable[tuple[str, str]]) -> None:
    """Record in the ledger of a plan root, if there is one, what was done to which files."""
    place = Place.of(root=root, data=None)
    if not place.is_known:
        return
    named = [(relpath(realpath(file), realpath(root)), what) for file, what in edits]

    async def noting(service: AnyService) -> None:
        for file, what in named:
            await service.note_edit(file, what)

    try:
        write(place, noting)
    except HoraeError as error:
        output.echo(f"horae: the edit is made, but not recorded in the ledger: {error}", err=True)


def engine_at(place: Place) -> Client | None:
    """Return the engine that has the lock, if any; one that is starting is waited for.

    A command that has the lock is waited for as well, unless it executes a run.
    """
    if place.server is not None:
        return place.server
    began_at = monotonic()
    while True:
        holder = holder_of(place.directory)
        if holder is None:
            return None if place.store is None else leader_of(place, place.store)
        client = Client(place.directory, pid=holder.pid)
        if holder.is_engine and client.answers():
            return client
        is_over = monotonic() - began_at >= _patience(holder.since, now=clock.SystemClock().now())
        if holder.use is LockUse.RUN or (is_over and not holder.is_engine):
            raise NotAnEngineError(holder)
        if is_over or holder.is_stopping:
            what = f" ({holder.command})" if holder.command else ""
            reason = f"the engine (process {holder.pid}) is stopping; try again when it has ended"
            if not holder.is_stopping:
                used = f"in use by process {holder.pid}{what}, which does not answer"
                reason = f"{used}; end it and start `horae up` again"
            raise EngineUnreachableError(str(place.directory), reason, pid=holder.pid)
        sleep(0.02)


def _patience(since: str, *, now: datetime) -> float:
    try:
        age = now - parse_rfc3339(since)
    except ScheduleError:
        age = STARTING
    # One that has not listened by now may hang. A clock that was set back says nothing.
    return (STARTING if timedelta(0) <= age < STARTING else BRIEF).total_seconds()


def leader_of(place: Place, store: str) -> Client | None:
    from horae.store.postgres import NODE
    from horae.web.keys import new_token

    async def asking(ledger: PostgresLedger) -> Client | None:
        leader, secret = await ledger.leases.leader(), await ledger.secret(NODE, new_token)
        members = [each.member for each in await ledger.leases.members()]
        actor = await own_actor(ledger, place.directory)
        for each in members:
            if leader is not None and each.name == leader.holder and each.address:
                return LeaderClient(place.directory, each.name, each.address, secret, actor)
        return None

    client = ask_shared(store, asking)
    return client if client is not None and client.answers() else None


def engine_of(place: Place) -> EngineFacts:
    if place.server is not None:
        return EngineFacts(is_running=True, directory=place.server.url)
    facts = engine_here(place)
    if facts.is_running or place.store is None:
        return facts
    return replace(facts, is_running=leader_of(place, place.store) is not None)


def engine_here(place: Place) -> EngineFacts:
    """Return what the lock of a data directory says of its engine, or of a run without one."""
    holder, directory = holder_of(place.directory), str(place.directory)
    if holder is not None and holder.is_engine:
        is_stopping = holder.is_stopping
        return EngineFacts(True, directory, holder.pid, holder.since, is_stopping=is_stopping)
    user = ""
    if holder is not None and holder.use is LockUse.RUN:
        user = f"{holder.name} (`{holder.command}`)"
    return EngineFacts(is_running=False, directory=directory, user=user)


def _server() -> ServerClient | None:
    """Return the engine that HORAE_SERVER names, for a command that can ask it."""
    url = os.environ.get("HORAE_SERVER", "")
    words = command_words().split()
    # Inside a run a command asks the engine of that run.
    if not url or os.environ.get("HORAE_RUN") or (words[:1] == ["horae"] and is_local(words[1:])):
        return None
    context = click.get_current_context(silent=True)
    file = context and context.find_root().params.get("token_file")
    token = Path(file).read_text(encoding="utf-8") if file else os.environ.get("HORAE_TOKEN", "")
    return ServerClient(url, token)


def _say_unused(root: str, data: str | None) -> None:
    """Say once that a directory is not used, because HORAE_SERVER names the engine."""
    context = click.get_current_context(silent=True)
    is_named = root != "." or data is not None
    if context is not None and is_named and not context.meta.get(_UNUSED):
        context.meta[_UNUSED] = True
        words = "HORAE_SERVER names the engine; --root, --data and DIR are not used"
        output.echo(f"horae: {words}", err=True)


def command_words() -> str:
    """Return the words of this command without its arguments, such as `horae run`."""
    context = click.get_current_context(silent=True)
    return "" if context is None else context.command_path


def say_source(engine: EngineFacts) -> None:
    if not engine.is_running:
        words = "entries as last read from the plan files (no engine is running)"
        output.echo(f"horae: {words}; `horae next` reads the files", err=True)


new_id = partial(token_hex, 6)
_UNUSED: Final = "horae.cli.connection.unused"  # in the context: it is said already
