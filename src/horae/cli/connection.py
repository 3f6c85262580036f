"""How a command reaches the service: it reads beside a running engine, and writes through it.

Without an engine a command takes the lock of the data directory and writes for itself.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from os.path import realpath, relpath
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from horae.cli.moments import chosen_zone, parse_moment
from horae.cli.output import echo
from horae.config import load
from horae.core.actor import acting, own_actor, own_run, user_name
from horae.core.clock import SystemClock
from horae.core.ports import LedgerDamagedError, LedgerError, LedgerNewerError, Pruned
from horae.core.receipt import Status
from horae.core.service import Service
from horae.core.views import BackfillResult, EngineFacts, PauseResult, ReceiptLine
from horae.errors import Exit, HoraeError, ScheduleError
from horae.files.read import names_of
from horae.sources.crew.tick import agent_state
from horae.store import database
from horae.store.ledger import ANYBODY
from horae.store.lock import DataLockedError, holder_of
from horae.store.sql import migrations
from horae.store.sqlite import SqliteLedger
from horae.timing.duration import DurationError, parse_duration
from horae.timing.rfc3339 import parse_rfc3339

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
    from zoneinfo import ZoneInfo

    from horae.cli.client import Far
    from horae.core.command import Unready
    from horae.core.ports import Listed
    from horae.files.read import StrPath
    from horae.store.ledger import BookLedger

T = TypeVar("T")

PATIENCE: Final = timedelta(seconds=5)  # how long a reader waits for a database that is busy
BRIEF: Final = timedelta(seconds=1)  # how long a command may have the lock
STARTING: Final = timedelta(seconds=15)  # how long an engine may take to listen, from its start

_RAN: Final = frozenset({Status.DONE, Status.NO_WORK, Status.FAILED})
_LAST: Final = 20  # runs of an entry that tell how long the next one takes
_TRIES: Final = 20  # at a lock that others take and give back all the time
_RESTORE: Final = (
    "restore a backup with `horae doctor --restore` or `horae restore FILE`, "
    "or start a new ledger with `horae up --fresh-ledger`"
)


class NoLedgerError(HoraeError):
    """A data directory without a ledger."""

    code = "no_ledger"
    exit_code = Exit.NOT_FOUND

    def __init__(self, directory: str) -> None:
        self.directory = directory
        super().__init__(
            f"no ledger in {directory}; `horae up` creates one "
            "(--root and --data name another place)"
        )


class EmptyRootError(HoraeError):
    """A directory that is not there, so it holds no plan."""

    code = "no_root"
    exit_code = Exit.NOT_FOUND

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path}: there is no such directory; `horae init {path}` creates it")


def refuse_no_root(root: StrPath, data: Path) -> None:
    """Raise an error for a plan root that is not there, unless a ledger elsewhere is about it."""
    if not os.path.isdir(root) and not (data / database.DATABASE).exists():
        raise EmptyRootError(os.fspath(root))


class Place(NamedTuple):
    """Where a ledger is, and the zone of the plan that it is about."""

    directory: Path
    zone: ZoneInfo
    store: str | None = None  # the database, if machines share the ledger
    root: str = "."  # of the plan

    @classmethod
    def of(cls, *, root: str, data: str | None) -> Place:
        settings = load(root, flags={"data": data})
        return cls(settings.data, chosen_zone(None, root=root), settings.store, root)

    @property
    def path(self) -> Path:
        """The ledger's file."""
        return self.directory / database.DATABASE

    @property
    def is_known(self) -> bool:
        was_there = (self.directory / database.MARK).exists() or self.path.exists()
        return was_there or self.store is not None

    def files(self, path: str) -> Iterator[str]:
        """Return what the ledger may call a file that is named from the current directory."""
        return names_of(self.root, path)

    def moment(self, text: str | None) -> datetime | None:
        """Return the moment that an option names, on the wall of the plan's zone."""
        return None if text is None else parse_moment(text, self.zone)


class CommandClock(SystemClock):
    """A clock that stands where --at put it, else the machine's."""

    def __init__(self, at: datetime | None = None) -> None:
        self._at = at

    def now(self) -> datetime:
        return super().now() if self._at is None else self._at


def read(place: Place, work: Callable[[Service], Awaitable[T]], *, at: datetime | None = None) -> T:
    """Return the answer to a question; an engine that runs is not disturbed."""

    async def asking() -> T:
        async with reader_of(place) as ledger:
            service = _service(ledger, place, at=at, unready=_unready(ledger, place))
            return await work(service)

    return asyncio.run(asking())


def known_entries(place: Place) -> list[Listed]:
    """Return every entry that a ledger knows; an engine that runs is not disturbed."""

    async def asking() -> list[Listed]:
        async with reader_of(place) as ledger:
            return await ledger.entries()

    return asyncio.run(asking())


def run_lengths(place: Place, entries: Iterable[int]) -> dict[int, timedelta]:
    """Return how long the last runs of entries took, as their median; none ran, none is told."""
    from statistics import median

    async def asking() -> dict[int, timedelta]:
        found = {}
        async with reader_of(place) as ledger:
            for number in entries:
                page = await ledger.receipts(entry=number, statuses=_RAN, limit=_LAST)
                runs = [run for each in page.receipts for run in await ledger.runs_of(each.number)]
                took = [
                    (run.ended_at - run.started_at).total_seconds()
                    for run in runs
                    if run.ended_at is not None and run.outcome in _RAN
                ]
                if took:
                    found[number] = timedelta(seconds=max(0.0, median(took)))
        return found

    return asyncio.run(asking())


def write(place: Place, work: Callable[[Service], Awaitable[T]]) -> T:
    """Do what a person asks for, to the service of the engine that runs or to one of our own."""
    refuse_loss(place)
    return write_with(
        place,
        lambda far: through(far, place, work),
        lambda ledger: work(_service(ledger, place)),
    )


def write_with(
    place: Place, far: Callable[[Far], T], alone: Callable[[BookLedger], Awaitable[T]]
) -> T:
    """Change something in a ledger.

    This is the one place that knows who writes: the engine that has the lock, which is asked
    to, else this command, with the lock in its own hand.
    """
    for tries_left in reversed(range(_TRIES)):
        engine = engine_at(place)
        if engine is not None:
            return far(engine)
        try:
            return asyncio.run(_with_the_lock(place, alone))
        except DataLockedError:  # somebody took it just now: look again who that is
            if not tries_left:
                raise
    raise AssertionError("the last try returns or raises")


def through(far: Far, place: Place, work: Callable[[Service], Awaitable[T]]) -> T:
    """Let the engine do what a person asks for."""

    async def asking() -> T:
        async with reader_of(place) as ledger:
            return await work(RemoteService(far, ledger=ledger, place=place))

    return asyncio.run(asking())


async def _with_the_lock(place: Place, work: Callable[[BookLedger], Awaitable[T]]) -> T:
    """Do something to the ledger oneself; one that is shared needs no lock."""
    if place.store is not None:
        async with reader_of(place) as shared:
            with acting(await own_actor(shared, place.directory)):
                return await work(shared)
    refuse_no_root(place.root, place.directory)
    ledger = await SqliteLedger.open(place.directory, now=SystemClock().now())
    try:
        with acting(await own_actor(ledger, place.directory)):
            return await work(ledger)
    finally:
        await ledger.close()


class RemoteService(Service):
    """The service beside a running engine: it reads for itself, and asks the engine to write."""

    def __init__(self, far: Far, *, ledger: BookLedger, place: Place) -> None:
        super().__init__(
            ledger=ledger,
            clock=CommandClock(),
            ids=new_id,
            zone_name=place.zone.key,
            places=place.files,
            refuse_name=partial(_refuse_name, place),
        )
        self._far = far

    async def pause(
        self, word: str, *, note: str = "", until: datetime | timedelta | None = None
    ) -> PauseResult:
        """Let an entry rest, for ever, until a moment, or for a while."""
        end = self._clock.now() + until if isinstance(until, timedelta) else until
        said = {"note": note, "until": None if end is None else end.isoformat()}
        return await self._rested(await self.named(word), "pause", said)

    async def resume(self, word: str) -> PauseResult:
        """Let a resting entry go on from now."""
        return await self._rested(await self.named(word), "resume", {})

    async def run_now(
        self,
        word: str,
        *,
        note: str = "",
        parent: int | None = None,
        parent_run: int | None = None,
        idempotency_key: str | None = None,
    ) -> ReceiptLine:
        """Ask for a run now, beside the plan; the same key gives the same receipt back."""
        found = await self.named(word)
        if parent is not None and parent_run is None:
            runs = await self._ledger.runs_of(parent)
            parent_run = runs[-1].number if runs else None
        answer = self._far.post(
            "entries",
            found.number,
            "run",
            body={"note": note, "parent_run": parent_run},
            key=idempotency_key,
        )
        return (await self.receipt(answer["receipt"])).line

    async def backfill(
        self,
        word: str,
        *,
        start: datetime,
        end: datetime | None = None,
        name: str | None = None,
        dry_run: bool = False,
        progress: Callable[[int, int], None] = lambda *_: None,
    ) -> BackfillResult:
        """File a receipt for every moment of a past window, oldest first; *end* is not in it."""
        from horae.cli.client import LONG

        plan = await super().backfill(word, start=start, end=end, name=name, dry_run=True)
        if dry_run:
            return plan
        said = {"from": plan.start.isoformat(), "to": plan.end.isoformat(), "id": plan.name}
        number = plan.entry.number
        answer = self._far.post("entries", number, "backfill", body=said, patience=LONG)
        numbers = answer["receipts"]
        progress(len(numbers), len(plan.moments))
        filed = [await self._ledger.receipt(each) for each in numbers]
        lines = await self._lines(each for each in filed if each is not None)
        return replace(plan, lines=lines, dry_run=False)

    async def prune(self, *, before: datetime, dry_run: bool = False) -> Pruned:
        """Fold old receipts into ranges and drop what hangs on them."""
        from horae.cli.client import LONG

        said = {"before": before.isoformat(), "dry_run": dry_run}
        answer = self._far.post("prune", body=said, patience=LONG)
        return Pruned(*(answer[name] for name in ("receipts", "runs", "events", "texts")))

    async def note_edit(self, file: str, what: str) -> None:
        """Record what was done to a file."""
        self._far.post("edits", body={"file": file, "what": what})

    async def _rested(self, found: Listed, verb: str, said: Mapping[str, object]) -> PauseResult:
        """Return what became of a request to let an entry rest or go on."""
        answer = self._far.post("entries", found.number, verb, body=said)
        return PauseResult(await self._again(found), changed=answer["changed"])


def actor_at(place: Place) -> str:
    """Return on whose behalf this command edits files: its user's, or that of a run's agent."""
    from os import getuid

    if not own_run(place.directory) or not place.is_known:
        return f"cli:{user_name(getuid())}"

    async def asking() -> str:
        async with reader_of(place) as ledger:
            return await own_actor(ledger, place.directory)

    return asyncio.run(asking())


def record_edits(root: str, edits: Iterable[tuple[str, str]]) -> None:
    """Record in the ledger of a plan root, if there is one, what was done to which files.

    The edits are made: what keeps them from being recorded is said, and undoes none.
    """
    place = Place.of(root=root, data=None)
    if not place.is_known:
        return
    named = [(relpath(realpath(file), realpath(root)), what) for file, what in edits]

    async def noting(service: Service) -> None:
        for file, what in named:
            await service.note_edit(file, what)

    try:
        write(place, noting)
    except HoraeError as error:
        echo(f"horae: the edit is made, but not recorded in the ledger: {error}", err=True)


def engine_at(place: Place) -> Far | None:
    """Return the engine that has the lock of a data directory; None if nobody has it.

    Whoever has it may be starting, and is waited for, or be another command that is done in a
    moment.
    """
    from time import monotonic, sleep

    from horae.cli.client import EngineUnreachableError, Far

    began_at = monotonic()
    while True:
        holder = holder_of(place.directory)
        if holder is None:
            return None if place.store is None else leader_of(place, place.store)
        far = Far(place.directory, pid=holder.pid)
        if far.answers():
            return far
        if monotonic() - began_at >= _patience(holder.since, now=SystemClock().now()):
            what = f" ({holder.command})" if holder.command else ""
            reason = (
                f"in use by process {holder.pid}{what}, which does not answer; if it is stopping, "
                "try again when it has ended, otherwise end it and start `horae up` again"
            )
            raise EngineUnreachableError(str(place.directory), reason, pid=holder.pid)
        sleep(0.02)


def _patience(since: str, *, now: datetime) -> float:
    """Return for how many seconds whoever has had a lock since a moment is waited for."""
    try:
        age = now - parse_rfc3339(since)
    except ScheduleError:
        return BRIEF.total_seconds()
    # One that has not listened by now may hang. A clock that was set back says nothing.
    left = STARTING if timedelta(0) <= age < STARTING else BRIEF
    return left.total_seconds()


def leader_of(place: Place, store: str) -> Far | None:
    """Return who leads the machines that share a ledger, if it can be reached from here."""
    from horae.cli.client import FarLeader
    from horae.store.postgres import NODE, PostgresLedger
    from horae.web.keys import new_token

    async def asking() -> Far | None:
        ledger = await PostgresLedger.open(store)
        try:
            leader, secret = await ledger.leases.leader(), await ledger.secret(NODE, new_token)
            members = await ledger.leases.members()
            actor = await own_actor(ledger, place.directory)
        finally:
            await ledger.close()
        for each in members:
            name, address = each.member.name, each.member.address
            if leader is not None and name == leader.holder and address:
                return FarLeader(
                    place.directory, name=name, address=address, secret=secret, actor=actor
                )
        return None

    far = asyncio.run(asking())
    return far if far is not None and far.answers() else None


def copy(place: Place, target: Path) -> None:
    """Write a verified copy of the ledger, also while an engine runs."""

    async def copying() -> None:
        async with reader_of(place) as ledger:
            await ledger.backup(target)

    asyncio.run(copying())


def engine_of(place: Place) -> EngineFacts:
    """Return whether an engine keeps the ledger, and who that is."""
    holder = holder_of(place.directory)
    directory = str(place.directory)
    if holder is None:
        leads = place.store is not None and leader_of(place, place.store) is not None
        return EngineFacts(is_running=leads, directory=directory)
    return EngineFacts(True, directory, pid=holder.pid, since=holder.since)


def say_source(engine: EngineFacts) -> None:
    """Say on stderr, if no engine runs, that the ledger may not know the newest plan files."""
    if not engine.is_running:
        words = "entries as last read from the plan files (no engine is running)"
        echo(f"horae: {words}; `horae next` reads the files", err=True)


def new_id() -> str:
    """Return a name that nothing else has."""
    from secrets import token_hex

    return token_hex(6)


def parse_until(text: str, *, now: datetime, where: ZoneInfo) -> datetime:
    """Return when something ends: a length of time from now, or a moment."""
    with suppress(DurationError):  # then it is a time
        return now + parse_duration(text)
    return parse_moment(text, where, or_length="2h")


def _service(
    ledger: BookLedger,
    place: Place,
    *,
    at: datetime | None = None,
    unready: Callable[[Iterable[Listed]], Awaitable[Mapping[int, Unready]]] | None = None,
) -> Service:
    """Return the service of a ledger; on one that is shared, a person may write in any term."""
    term, machines = 1, None
    if place.store is not None:
        from horae.store.postgres import PostgresLedger

        term = ANYBODY
        machines = ledger.machines if isinstance(ledger, PostgresLedger) else None
    return Service(
        ledger=ledger,
        clock=CommandClock(at),
        ids=new_id,
        zone_name=place.zone.key,
        term=term,
        machines=machines,
        places=place.files,
        unready=unready if at is None else None,  # whether it could have run then nobody knows
        refuse_name=partial(_refuse_name, place),
        agent_state=agent_state,
    )


def _refuse_name(place: Place, address: str) -> None:
    """Raise an error for a task whose number several files of the board have."""
    if address.startswith("task:"):  # all else needs no board
        from horae.sources.board.commands import board_at
        from horae.sources.board.tasks import refuse_double

        refuse_double(board_at(place.root), address)


def _unready(
    ledger: BookLedger, place: Place
) -> Callable[[Iterable[Listed]], Awaitable[Mapping[int, Unready]]] | None:
    """Return who tells which entries cannot run; an engine that runs knows that better."""
    if holder_of(place.directory) is not None:
        return None

    async def asking(entries: Iterable[Listed]) -> Mapping[int, Unready]:
        from horae.context import Context

        context = Context(load(place.root), Path(place.root).absolute(), CommandClock(), ledger)
        return await context.readiness.of_entries(entries)

    return asking


@asynccontextmanager
async def reader_of(place: Place) -> AsyncIterator[BookLedger]:
    """Open the ledger without its lock, so that nothing can be written, unless it is shared."""
    if place.store is not None:
        from horae.store.postgres import PostgresLedger

        shared = await PostgresLedger.open(place.store)
        try:
            yield shared
        finally:
            await shared.close()
        return
    refuse_loss(place)
    ledger = await SqliteLedger.open_reader(place.directory, patience=PATIENCE)
    try:
        await _check_version(ledger)
        yield ledger
    finally:
        await ledger.close()


def refuse_loss(place: Place) -> None:
    """Raise an error if there is no ledger, or if there was one and it is not whole any more.

    A reader must ask first: SQLite gives it a new log in place of one that was lost, and then
    nobody could tell.
    """
    if place.store is not None:
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
    """Raise an error unless a database is a ledger of our own version.

    Whoever only reads cannot bring it up to date, and a look at every page would take long.
    """
    application, version = await ledger.read(
        lambda book: [
            book.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("application_id", "user_version")
        ]
    )
    if application != database.APPLICATION:
        reason = "it is empty or not a ledger of horae"
        raise LedgerDamagedError(ledger.place, reason, remedy=_RESTORE)
    ours = len(migrations())
    if version > ours:
        reason = f"the schema has version {version}, and this horae supports {ours}"
        raise LedgerNewerError(ledger.place, reason, remedy="use the newer horae that wrote it")
    if version < ours:
        reason = f"the schema has version {version}, and this horae needs {ours}"
        raise LedgerError(ledger.place, reason, remedy="`horae up` upgrades it")
