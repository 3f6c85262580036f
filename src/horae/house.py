"""The house: every room wired together. Settings in, a running engine out.

async with open_house(load(".")) as house:
    await keep(house, stop=stop)
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from horae.app import SystemClock, machine_zone
from horae.dispatching import Dispatcher, DispatchRunner, Roster, busy_at
from horae.engine.almanac import LONGEST_REST, Almanac
from horae.engine.desk import Desk, EngineFacts
from horae.engine.ports import RunError
from horae.engine.triggers import Polls, Triggers
from horae.keeper import KeeperRunner, Keeping
from horae.prompting import PromptRunner, agent_of
from horae.rules.entry import Work, key_time
from horae.rules.gate import Capacity
from horae.runner.agents import Registry, provider_of
from horae.runner.command import CommandRunner, Place
from horae.runner.logs import tidy
from horae.runner.processes import LOG_NAME, Processes
from horae.runner.workflow import WorkflowRunner
from horae.store.sqlite import SqliteLedger
from horae.store.triggers import SqliteTriggers, TriggerSource
from horae.workspace.agentd import sync
from horae.workspace.board import BoardSource
from horae.workspace.crew import CrewSource, Rhythm, single_keeper
from horae.workspace.org import OrgSource
from horae.workspace.tasks import CommittedBoard, RecycleRunner, find_tasks
from horae.workspace.watch import changes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from datetime import datetime

    from horae.config import Config
    from horae.engine.ports import Clock, Ended, Filed, Held, Job, Run, Runner, Unreleased
    from horae.engine.source import Source
    from horae.engine.triggers import AgentCard

NIGHT: Final = timedelta(hours=3, minutes=30)  # after midnight in UTC: backups, old output
_SIGNATURE: Final = "post.key"
_FILES: Final = ".agentd: "  # what a note about these files begins with
_POLL: Final = 60.0  # seconds that a look elsewhere may take


class Runners:
    """For each kind of work whoever makes its runs."""

    def __init__(self, runners: Mapping[Work, Runner]) -> None:
        self._runners = runners

    async def hold(self, job: Job) -> Held:
        """Make a run that waits for its go."""
        runner = self._runners.get(job.filed.work)
        if runner is None:
            raise RunError(f"this version of horae does not run a {job.filed.work} by itself yet")
        return await runner.hold(job)

    async def look_back(self, filed: Filed, run: Run) -> Ended | Unreleased | None:
        """Return how a run ended that an engine before this one made; None is unknown."""
        runner = self._runners.get(filed.work)
        return None if runner is None else await runner.look_back(filed, run)


@dataclass(frozen=True, slots=True)
class House:
    """One plan root with its ledger, its engine, and the desk where people ask."""

    config: Config
    root: Path
    clock: Clock
    ledger: SqliteLedger
    almanac: Almanac
    desk: Desk
    place: Place
    zone_name: str  # of the plans
    triggers: Triggers
    store: SqliteTriggers  # of triggers
    processes: Processes
    workflows: WorkflowRunner
    tasks: str  # where the board is, from the root
    notes: list[str]  # what is not as it should be, in words
    dispatcher: Dispatcher | None = None  # who hands out the tasks of the board, if anybody

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.place.data

    def log_of(self, run: Run) -> Path:
        """Return where the output of a run is."""
        return self.place.directory_of(run) / LOG_NAME

    def agents(self) -> Registry:
        """Return the agents that plans and settings define, as they are written now."""
        return _agents(self.config)

    def facts(self) -> EngineFacts:
        """Return what is known of the engine itself."""
        started_at = self.almanac.started_at
        told = [str(each) for some in self.almanac.problems.values() for each in some]
        trouble = [] if self.almanac.trouble is None else [str(self.almanac.trouble)]
        return EngineFacts(
            True,
            str(self.data),
            pid=os.getpid(),
            since="" if started_at is None else key_time(started_at),
            problems=(*trouble, *told, *self.notes),
        )

    def is_well(self) -> bool:
        """Tell whether the loop turns, and what it decides is written down."""
        turned_at, now = self.almanac.turned_at, self.clock.now()
        lags = turned_at is None or abs(now - turned_at) > 2 * LONGEST_REST
        return not lags and self.almanac.trouble is None


@asynccontextmanager
async def open_house(config: Config, *, clock: Clock | None = None) -> AsyncIterator[House]:
    """Give a house whose ledger is locked and open, and whose engine has not started."""
    clock = clock or SystemClock()
    root = Path(config.root).resolve()
    data = Path(os.path.abspath(config.data))  # noqa: PTH100 - a link to it stays one
    zone_name = config.zone or machine_zone().key
    async with AsyncExitStack() as rooms:
        ledger = await SqliteLedger.open(data, now=clock.now())
        rooms.push_async_callback(ledger.close)
        processes = await rooms.enter_async_context(Processes(data))
        place = Place(root, data, os.environ, config.run_timeout, _signature(data / _SIGNATURE))
        commands = CommandRunner(processes, place)
        workflows = WorkflowRunner(processes, place, clock=clock)
        runners: dict[Work, Runner] = {
            Work.COMMAND: commands,
            Work.POST: commands,
            Work.WORKFLOW: workflows,
        }
        sources: list[Source] = [
            OrgSource(
                root, zone_name=zone_name, limit=config.plan_max_bytes, most=config.plan_max_files
            )
        ]
        tasks = find_tasks(root, board=config.board_dir)
        runners[Work.RECYCLE] = RecycleRunner(
            root, clock=clock, tasks=tasks, limit=config.plan_max_bytes
        )
        crew = _crew(config, place, zone_name)
        board = CommittedBoard(
            root, tasks=tasks, limit=config.plan_max_bytes, most=config.plan_max_files
        )
        roster = None if config.crew_def is None else Roster(config.crew_def.absolute())
        dispatcher = None
        if roster is not None and config.board_auto_dispatch:
            dispatcher = Dispatcher(
                board,
                roster,
                registry=_registry(config),
                environ=os.environ,
                ledger=ledger,
                clock=clock,
                busy=lambda: busy_at(almanac.gate),
            )
        hands = DispatchRunner(
            processes,
            place,
            board,
            roster,
            registry=_registry(config),
            ledger=ledger,
            clock=clock,
            timeout=config.keeper_timeout,
            heard=None if dispatcher is None else dispatcher.note_change,
        )
        runners[Work.DISPATCH] = hands
        sources.append(
            BoardSource(
                root,
                tasks=tasks,
                limit=config.plan_max_bytes,
                most=config.plan_max_files,
                follow_up=hands.settle,
                changed=None if dispatcher is None else dispatcher.note_change,
            )
        )
        if crew is not None:
            keeper = KeeperRunner(
                processes,
                place,
                crew.keeping,
                registry=_registry(config),
                ledger=ledger,
                clock=clock,
            )
            runners[Work.TICK] = keeper
            sources.append(
                CrewSource(
                    crew.keeping.manifest,
                    crew.rhythm(clock.now()),
                    data=data,
                    text=crew.text,
                    follow_up=keeper.settle,
                    now=clock.now,
                )
            )
        store = SqliteTriggers(ledger)

        def poke() -> None:
            almanac.note_change()

        triggers = _triggers(config, store, ledger, clock, poke=poke)
        runners[Work.PROMPT] = PromptRunner(processes, place, lambda: _agents(config), store)
        sources.append(TriggerSource(ledger, triggers=store, follow=triggers.follow))
        almanac = Almanac(
            clock=clock,
            ledger=ledger,
            runner=Runners(runners),
            sources=sources,
            capacity=Capacity(config.gate_slots, config.crew_max_concurrent),
            doorman=triggers,
        )
        desk = Desk(
            ledger=ledger, clock=clock, ids=new_id, poke=almanac.note_change, zone_name=zone_name
        )
        yield House(
            config,
            root,
            clock,
            ledger,
            almanac,
            desk,
            place,
            zone_name,
            triggers,
            store,
            processes,
            workflows,
            tasks,
            [],
            dispatcher,
        )


@dataclass(frozen=True, slots=True)
class _Crew:
    """Who ticks, as the settings say: a manifest, or the text of a crew of one."""

    config: Config
    keeping: Keeping
    text: str | None

    def rhythm(self, started_at: datetime) -> Rhythm:
        """Return how members tick that do not say it themselves."""
        config = self.config
        return Rhythm(
            started_at,
            config.crew_stagger,
            continuous=config.keeper_continuous,
            breather=config.keeper_breather,
            timeout=config.keeper_timeout,
        )


def _crew(config: Config, place: Place, zone_name: str) -> _Crew | None:
    """Return who ticks: the crew if there is one, else the single keeper, else nobody."""
    keeping = Keeping(
        config.keeper_mode, config.keeper_timeout, config.gitops, zone_name, place.root / "crew"
    )
    if config.crew_def is not None:
        return _Crew(config, replace(keeping, manifest=config.crew_def.absolute()), None)
    if config.keeper_def is None:
        return None
    lifecycle = config.lifecycle_def
    text = single_keeper(
        config.keeper_def.absolute(),
        lifecycle=None if lifecycle is None else lifecycle.absolute(),
        interval=config.keeper_interval,
    )
    return _Crew(config, replace(keeping, is_single=True), text)


def _agents(config: Config) -> Registry:
    """Return the agents that plans and settings define, as they are written now."""
    from horae.cli.agents import Found
    from horae.cli.output import Form, Output

    return Found.of(config, Output(Form.TABLE, asked=False)).registry


def _triggers(
    config: Config,
    store: SqliteTriggers,
    ledger: SqliteLedger,
    clock: Clock,
    *,
    poke: Callable[[], None],
) -> Triggers:
    """Return where triggers are asked about and changed."""
    from shutil import which
    from uuid import uuid4

    def obstacle(card: AgentCard) -> str:
        return _registry(config).obstacle(agent_of(card), environ=os.environ) or ""

    return Triggers(
        store=store,
        ledger=ledger,
        clock=clock,
        ids=lambda: str(uuid4()),
        poke=poke,
        others=lambda: frozenset(each.name for each in _agents(config)),
        obstacle=obstacle,
        has_gh=lambda: which("gh") is not None,
    )


def _registry(config: Config) -> Registry:
    """Return where agents are known, and what runs those that name no command."""
    return Registry(command=config.agent_command, provider=provider_of(os.environ))


async def keep(
    house: House, *, stop: asyncio.Event, turned: Callable[[], None] = lambda: None
) -> None:
    """Keep the hours until *stop* is set, then let what runs end, within bounds."""
    almanac = house.almanac
    await almanac.start()
    await _apply(house)
    dispatcher = house.dispatcher

    def after_turn() -> None:
        turned()
        if dispatcher is not None:
            dispatcher.turned()

    parts = [
        almanac.run(turned=after_turn),
        _watch(house, stop),
        _poll(house, stop),
        _by_night(house),
        _beat(house),
        stop.wait(),
    ]
    if dispatcher is not None:
        parts.append(dispatcher.run(almanac.offer))
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # a part that failed ends all of it, and says why
    finally:
        left = set(tasks)
        while left:  # Python 3.11 can lose a cancellation
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=1)
        await almanac.stop(within=house.config.run_drain)
    await almanac.turn()


async def run_once(house: House, word: str, *, note: str = "") -> Filed:
    """Run one entry here and now, and nothing else; return how its receipt ended."""
    almanac = house.almanac
    await almanac.launch.look_back()
    for name in almanac.sources:
        await almanac.rescan(name)
    asked = await house.desk.run_now(word, note=note)
    almanac.launch.start(asked.filed)
    await almanac.launch.rest()
    if almanac.launch.failure is not None:
        raise almanac.launch.failure
    filed = await house.ledger.receipt(asked.filed.number)
    assert filed is not None, "it was just filed"
    return filed


def new_id() -> str:
    """Return a name that nothing else has."""
    from secrets import token_hex

    return token_hex(6)


async def _watch(house: House, stop: asyncio.Event) -> None:
    """Read the plans again when they have changed."""
    manifest = house.config.crew_def
    found = changes(
        [house.root] if manifest is None else [house.root, manifest],
        quiet=house.config.watch_quiet,
        poll=house.config.watch_poll,
        stop=stop,
        ignored=[house.data],
        note=house.notes.append,
    )
    async for _ in found:
        await _apply(house)
        for name in house.almanac.sources:
            house.almanac.request(name)


async def _apply(house: House) -> None:
    """Let triggers and their agents be as the files in the plan root say."""
    changed, wrong = await sync(str(house.root), house.triggers, house.store, environ=os.environ)
    house.notes[:] = [note for note in house.notes if not note.startswith(_FILES)]
    house.notes.extend(f"{_FILES}{each}" for each in wrong)
    if changed:
        house.almanac.note_change()


async def _poll(house: House, stop: asyncio.Event) -> None:
    """Look at what triggers wait for elsewhere."""

    async def call(argv: Sequence[str]) -> str:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(_POLL):
                said, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            raise
        return said.decode(errors="replace")

    await Polls(house.triggers, house.store, clock=house.clock, call=call).run(stop)
    await asyncio.Event().wait()  # to stop is for whoever set it


async def _by_night(house: House) -> None:
    """Each night copy the ledger, and drop the output of runs that is too old or too much."""
    never = asyncio.Event()
    while True:
        now = house.clock.now()
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        night = midnight + NIGHT
        await house.clock.wait(never, until=night if night > now else night + timedelta(days=1))
        await house.ledger.back_up_nightly(house.data, now=house.clock.now())
        config = house.config
        await asyncio.to_thread(
            tidy,
            house.data / "runs",
            now=house.clock.now(),
            keep=config.logs_keep,
            most=config.logs_most,
        )


async def _beat(house: House) -> None:
    """Ask for an address from time to time, while all is well."""
    address = house.config.alert_heartbeat
    never = asyncio.Event()
    while True:
        await house.clock.wait(never, until=house.clock.now() + house.config.alert_every)
        if address is not None and house.is_well():
            await asyncio.to_thread(_ask_for, address)


def _ask_for(address: str) -> None:
    """Ask for an address; whoever is behind it notices if nobody does."""
    from urllib.request import Request, urlopen

    request = Request(address, headers={"User-Agent": "horae"})  # noqa: S310 - http(s) only
    with suppress(OSError, ValueError), urlopen(request, timeout=10) as answer:  # noqa: S310
        answer.read(1024)


def _signature(path: Path) -> bytes:
    """Return what signs the messages of this house; it is made the first time."""
    from secrets import token_hex

    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(FileExistsError):
        descriptor = os.open(path, flags, 0o600)
        try:
            os.write(descriptor, token_hex(32).encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return path.read_bytes()
