"""The house: every room wired together. Settings in, a running engine out.

async with open_house(load(".")) as house:
    await keep(house, stop=stop)
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from horae.core.actor import acting, own_actor
from horae.core.clock import SystemClock, machine_zone
from horae.core.engine import AGAIN, LONGEST_REST, UNREAD, Engine
from horae.core.entry import Work, key_time
from horae.core.gate import Capacity
from horae.core.ports import LedgerBusyError, LedgerError, LedgerWriteError, RunError
from horae.core.receipt import FINAL
from horae.core.run_tokens import RunTokens
from horae.core.secret import FOLDER, is_own
from horae.core.service import Service, broken_words
from horae.core.source import unexpected
from horae.core.views import EngineFacts
from horae.errors import Exit, HoraeError
from horae.files.git.trees import Commits, Trees
from horae.files.read import PlanFileError, head_of, names_of, obstacle
from horae.files.watch import changes
from horae.org.selftest import misread
from horae.process.cgroup import CgroupLimits, delegated_cgroup
from horae.process.logs import tidy
from horae.process.masking import masked
from horae.process.processes import LOG_NAME, Processes
from horae.readiness import (
    Readiness,
    agents_of,
    readiness_of,
    registry_of,
)
from horae.secrets import known_names, secrets_of
from horae.sources.agents.runner import BlockAgents, Registry
from horae.sources.board.runner import Dispatcher, DispatchRunner, busy_at
from horae.sources.board.source import BoardSource
from horae.sources.board.tasks import (
    Board,
    CommittedBoard,
    RecycleRunner,
    find_tasks,
    refuse_double,
)
from horae.sources.crew.roster import Roster
from horae.sources.crew.runner import KeeperRunner, Keeping, mirror
from horae.sources.crew.source import CrewSource, Rhythm, SingleKeeper
from horae.sources.crew.tick import agent_state
from horae.sources.plans.runner import CommandRunner, Place
from horae.sources.plans.source import OrgSource
from horae.sources.triggers.runner import PromptRunner, agent_of
from horae.sources.triggers.service import PollError, Polls, Triggers
from horae.sources.triggers.source import Synced, has_files, sync
from horae.sources.triggers.store import BookTriggers, TriggerSource
from horae.sources.workflows.runner import WorkflowRunner
from horae.store.sqlite import SqliteLedger
from horae.trust import EngineSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
    from datetime import datetime

    from horae.cluster.queue import SharedLedger
    from horae.config import Config
    from horae.core.ports import Clock, Ended, Filed, Held, Job, Process, Run, Runner, Unreleased
    from horae.core.source import Source
    from horae.core.views import ReceiptLine
    from horae.org.plan import Diagnostic
    from horae.sources.agents.runner import Agent
    from horae.store.ledger import BookLedger

log = logging.getLogger(__name__)

Watch: TypeAlias = "Callable[[House, asyncio.Event], Awaitable[None]]"

FOLDERS: Final = ("runs", "trees", "cache", "backups", FOLDER)  # in the data directory
ROOT_NAME: Final = "root"  # in the data directory: which plans its ledger is about
NIGHT: Final = timedelta(hours=3, minutes=30)  # after midnight in UTC: backups, old output
_SIGNATURE: Final = "post.key"
_WATCH: Final = "file changes are not detected: "  # what a note about the watch begins with
_NIGHT: Final = "nightly maintenance: "  # what a note about backups and old output begins with
_FILES: Final = ".agentd: "  # what a note about these files begins with
_LONGEST_PATH: Final = 1 << 16  # bytes of the file that names the plan root
_LONGEST_KEY: Final = 1 << 10  # bytes of the file that holds a key
_POLL: Final = 60.0  # seconds that a look elsewhere may take
_GITHUB: Final = ("GH_TOKEN", "GITHUB_TOKEN")  # who looks at GitHub, if the settings say


class OtherRootError(HoraeError):
    """A ledger that is about the plans of another directory."""

    code = "other_root"
    exit_code = Exit.CONFLICT

    def __init__(self, data: str, *, theirs: str, ours: str) -> None:
        self.theirs = theirs
        self.ours = ours
        super().__init__(
            f"{data}: the ledger belongs to the plans in {theirs}, not in {ours}; "
            f"use --root {theirs}"
        )


class DataFileError(HoraeError):
    """A file of the data directory that cannot be read or written."""

    code = "data_file"

    def __init__(self, path: str, error: OSError) -> None:
        self.path = path
        self.reason = (error.strerror or str(error)).lower()
        super().__init__(f"{path}: {self.reason}; make it readable, or move or remove it")


class EmptyPlanError(HoraeError):
    """A plan root without a plan, though the ledger knows entries of one."""

    code = "empty_plan"
    exit_code = Exit.CONFLICT

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        what = "contains no plan" if root.is_dir() else "does not exist"
        super().__init__(
            f"{root}: {what}, but the ledger has entries from it; nothing is scheduled or "
            "started until a plan appears; to remove the entries, run horae up --empty-plan"
        )


class Runners:
    """For each kind of work whoever makes its runs, and who says what they are held back for."""

    def __init__(
        self,
        runners: Mapping[Work, Runner],
        obstacles: Mapping[Work, Callable[[Filed], Awaitable[str | None]]] | None = None,
        tokens: RunTokens | None = None,
    ) -> None:
        self._runners = runners
        self._tokens = tokens or RunTokens()
        self._obstacles = obstacles or {}

    async def hold(self, job: Job) -> Held:
        """Make a run that waits for its go."""
        runner = self._runners.get(job.filed.work)
        if runner is None:
            raise RunError(f"this version of horae cannot run work of the kind {job.filed.work}")
        number = job.run.number
        try:
            held = await runner.hold(job)
        except BaseException:
            self._tokens.end(number)
            raise
        return _WithToken(held, self._tokens, number) if self._tokens.has(number) else held

    async def look_back(self, filed: Filed, run: Run) -> Ended | Unreleased | None:
        """Return how a run ended that an engine before this one made; None is unknown."""
        runner = self._runners.get(filed.work)
        return None if runner is None else await runner.look_back(filed, run)

    async def obstacle(self, filed: Filed) -> str | None:
        """Return why a receipt that is held back would be so again; None if it would not."""
        asked = self._obstacles.get(filed.work)
        if asked is None:  # nobody can tell without trying; the next start tries
            return filed.receipt.reason
        try:
            return await asked(filed)
        except (HoraeError, OSError) as error:  # half an edit, perhaps
            return str(error)


class _WithToken:
    """A run that has a token, which ends with it."""

    def __init__(self, held: Held, tokens: RunTokens, run: int) -> None:
        self._held = held
        self._end = partial(tokens.end, run)
        self._is_let_go = False

    @property
    def process(self) -> Process:
        return self._held.process

    def go(self) -> None:
        """Let it begin."""
        self._is_let_go = True
        self._held.go()

    def cancel(self, reason: str) -> None:
        """End it and all that it started."""
        self._held.cancel(reason)
        if not self._is_let_go:  # then nobody may wait for its end
            self._end()

    async def ended(self) -> Ended:
        """Return how it ended, once nothing of it is left."""
        try:
            return await self._held.ended()
        finally:
            self._end()


@dataclass(frozen=True, slots=True)
class House:
    """One plan root with its ledger, its engine, and the service where people ask."""

    config: Config
    root: Path
    clock: Clock
    ledger: BookLedger
    engine: Engine
    service: Service
    place: Place
    zone_name: str  # of the plans
    triggers: Triggers
    store: BookTriggers  # of triggers
    processes: Processes
    workflows: WorkflowRunner
    runners: Runners
    tasks: str  # where the board is, from the root
    notes: list[str]  # what is not as it should be, in words
    registry: Registry  # what runs agents that name no command
    settings: EngineSettings  # which of them wait for a person
    dispatcher: Dispatcher | None = None  # who hands out the tasks of the board, if anybody
    term: int = 1  # of whoever leads
    sources: tuple[Source, ...] = ()  # what entries come from
    # Set while a file of `.agentd` is there and cannot be read.
    unread: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def data(self) -> Path:
        return self.place.data

    def log_of(self, run: Run) -> Path:
        return self.place.directory_of(run) / LOG_NAME

    def agents(self) -> Registry:
        """Return the agents that plans and settings define, as they are written now."""
        return agents_of(self.config)

    def facts(self) -> EngineFacts:
        """Return what is known of the engine itself."""
        started_at = self.engine.started_at
        told = [str(each) for some in self.engine.problems.values() for each in some]
        trouble = [] if self.engine.trouble is None else [str(self.engine.trouble)]
        if self.engine.is_blank:
            trouble.append(str(EmptyPlanError(self.root)))
        trouble += _misplaced(self.data)
        if self.dispatcher is not None and (error := self.dispatcher.problem) is not None:
            told.append(str(error) if isinstance(error, HoraeError) else unexpected(error))
        unread = map(str, self.place.secrets.unread.values())
        problems = (
            *map(broken_words, self.engine.broken),
            *trouble,
            *unread,
            *told,
            *self.notes,
            *self.settings.notes,
        )
        return EngineFacts(
            True,
            str(self.data),
            pid=os.getpid(),
            since="" if started_at is None else key_time(started_at),
            problems=tuple(dict.fromkeys(problems)),
        )

    def is_well(self) -> bool:
        """Tell whether the loop turns, has a plan, and what it decides is written down."""
        turned_at, now = self.engine.turned_at, self.clock.now()
        lags = turned_at is None or abs(now - turned_at) > 2 * LONGEST_REST
        return not lags and self.engine.trouble is None and not self.engine.is_blank


def _misplaced(data: Path) -> list[str]:
    """Return what stands in the data directory where a directory of ours should be."""
    odd = (data / name for name in FOLDERS if not (data / name).is_dir())  # a link to one is fine
    found = (obstacle(str(each), root=str(data)) for each in odd)
    return [f"{each}; move or remove it" for each in found if isinstance(each, PlanFileError)]


class ReaderError(HoraeError):
    """A reader that misreads plans, under this Python or in this installation."""

    code = "reader"
    remedy: Final = "install Horae again, or use another version of Python"

    def __init__(self, wrong: str) -> None:
        self.wrong = wrong
        self.python = ".".join(map(str, sys.version_info[:3]))
        super().__init__(
            f"the plan reader fails its self-test under Python {self.python}: {wrong}; "
            f"{self.remedy}"
        )


def try_reader() -> None:
    """Make sure that plans are read rightly, before anything is decided by what they say."""
    wrong = misread()
    if wrong is not None:
        raise ReaderError(wrong)


@asynccontextmanager
async def open_house(config: Config, *, clock: Clock | None = None) -> AsyncIterator[House]:
    """Give a house whose ledger is locked and open, and whose engine has not started."""
    try_reader()
    async with AsyncExitStack() as stack:
        rooms = await _open_rooms(config, clock or SystemClock(), stack)
        yield wire(rooms)


@dataclass(slots=True)
class Rooms:
    """What the sources and runners of a house stand on."""

    config: Config
    root: Path
    clock: Clock
    ledger: BookLedger
    processes: Processes
    place: Place
    zone_name: str
    tasks: str
    store: BookTriggers
    registry: Registry
    trees: Trees
    term: int = 1
    shared: SharedLedger | None = None  # of a cluster, if this machine leads one
    home: str = ""  # what this machine is called there
    is_gone: Callable[[str], bool] = lambda _: False  # whether another machine is not there
    settings: EngineSettings | None = None  # of this machine, if another house knows them
    built: Engine | None = None  # made last; until then nobody asks for it

    @property
    def engine(self) -> Engine:
        """The engine, once all it stands on is there."""
        assert self.built is not None, "the engine is asked for before it is made"
        return self.built

    def poke(self) -> None:
        """Let the engine look again."""
        self.engine.note_change()


async def _open_rooms(config: Config, clock: Clock, stack: AsyncExitStack) -> Rooms:
    """Lock and open the ledger, and make ready what starts processes."""
    root = Path(config.root).resolve()
    data = Path(os.path.abspath(config.data))
    ledger = await SqliteLedger.open(data, now=clock.now())
    stack.push_async_callback(ledger.close)
    processes = await stack.enter_async_context(
        Processes(data, cgroup=delegated_cgroup(), limits=limits_of(config))
    )
    return Rooms(
        config,
        root,
        clock,
        ledger,
        processes,
        run_place(config, root, data),
        config.zone or machine_zone().key,
        find_tasks(root, board=config.board_dir),
        BookTriggers(ledger),
        registry_of(config),
        Trees(root, data, config.git_local or ()),
    )


def run_place(config: Config, root: Path, data: Path) -> Place:
    """Return where runs work, and what they may know."""
    local = config.git_local or ()
    timeout, named = config.run_timeout, secrets_of(config)
    return Place(root, data, os.environ, timeout, post_key(data), local, named, RunTokens())


def limits_of(config: Config) -> CgroupLimits:
    """Return what a run may use that says nothing itself."""
    return CgroupLimits(config.run_memory, config.run_processes, config.run_cpus)


def wire(rooms: Rooms) -> House:
    """Return the house of these rooms: its four sources, its runners, and the engine between."""
    crew = _crew(rooms.config, rooms.zone_name)
    board = _board(rooms)
    roster = _roster(rooms.config)
    dispatcher = _dispatcher(rooms, board, roster)
    hands = _dispatch_runner(rooms, board, roster, dispatcher)
    keeper = None if crew is None else _keeper_runner(rooms, crew, board)
    triggers = _triggers(rooms)
    workflows = WorkflowRunner(
        rooms.processes, rooms.place, clock=rooms.clock, agent=_block_agents(rooms)
    )
    sources: list[Source] = [_org_source(rooms), _board_source(rooms, hands, dispatcher)]
    if crew is not None and keeper is not None:
        sources.append(_crew_source(rooms, crew, keeper))
    sources.append(
        TriggerSource(
            rooms.ledger,
            triggers=rooms.store,
            follow=triggers.follow,
            has_files=partial(has_files, str(rooms.root)),
        )
    )
    runners = _runners(rooms, workflows, hands, keeper)
    rooms.built = _engine(rooms, runners, sources, triggers)
    return House(
        rooms.config,
        rooms.root,
        rooms.clock,
        rooms.ledger,
        rooms.engine,
        _service(rooms),
        rooms.place,
        rooms.zone_name,
        triggers,
        rooms.store,
        rooms.processes,
        workflows,
        runners,
        rooms.tasks,
        rooms.processes.notes,
        rooms.registry,
        rooms.settings
        or EngineSettings(
            rooms.config,
            ledger=rooms.ledger,
            clock=rooms.clock,
            term=rooms.term,
            changed=rooms.poke,
        ),
        dispatcher,
        rooms.term,
        tuple(sources),
    )


# What entries come from


def _org_source(rooms: Rooms) -> OrgSource:
    config = rooms.config
    return OrgSource(
        rooms.root,
        zone_name=rooms.zone_name,
        limit=config.plan_max_bytes,
        most=config.plan_max_files,
    )


def _board_source(
    rooms: Rooms, hands: DispatchRunner, dispatcher: Dispatcher | None
) -> BoardSource:
    """Return the tasks of the board that come back, and those that were handed out."""
    return BoardSource(
        rooms.root,
        now=rooms.clock.now,
        tasks=rooms.tasks,
        limit=rooms.config.plan_max_bytes,
        most=rooms.config.plan_max_files,
        follow_up=hands.settle,
        changed=None if dispatcher is None else dispatcher.note_change,
        ledger=rooms.ledger,
        term=rooms.term,
    )


def _crew_source(rooms: Rooms, crew: _Crew, keeper: KeeperRunner) -> CrewSource:
    return CrewSource(
        crew.keeping.manifest,
        crew.rhythm(rooms.clock.now()),
        data=rooms.place.data if crew.keeping.has_files else None,
        keeper=crew.single,
        follow_up=keeper.settle,
        now=rooms.clock.now,
        is_in_plan=crew.keeping.manifest.is_relative_to(rooms.root),
    )


# Who runs what came due


def _runners(
    rooms: Rooms, workflows: WorkflowRunner, hands: DispatchRunner, keeper: KeeperRunner | None
) -> Runners:
    """Return for each kind of work whoever makes its runs."""
    config = rooms.config
    commands = CommandRunner(rooms.processes, rooms.place)
    prompts = PromptRunner(
        rooms.processes, rooms.place, lambda: agents_of(config), rooms.store, rooms.ledger.text
    )
    runners: dict[Work, Runner] = {
        Work.COMMAND: commands,
        Work.POST: commands,
        Work.WORKFLOW: workflows,
        Work.RECYCLE: RecycleRunner(
            rooms.root, clock=rooms.clock, tasks=rooms.tasks, limit=config.plan_max_bytes
        ),
        Work.DISPATCH: hands,
        Work.PROMPT: prompts,
    }
    obstacles = {
        Work.DISPATCH: hands.obstacle,
        Work.PROMPT: prompts.obstacle,
        Work.COMMAND: _by_text(rooms, commands.obstacle),
        Work.WORKFLOW: _by_text(rooms, workflows.obstacle),
    }
    if keeper is not None:
        runners[Work.TICK] = keeper
        obstacles[Work.TICK] = keeper.obstacle
    return Runners(runners, obstacles, rooms.place.tokens)


def _by_text(
    rooms: Rooms, asked: Callable[[str], Awaitable[str | None]]
) -> Callable[[Filed], Awaitable[str | None]]:
    """Return who tells why a receipt is held back, from the text that it carries out."""

    async def obstacle(filed: Filed) -> str | None:
        return await asked(await rooms.ledger.text(filed.digest) or "")

    return obstacle


def _block_agents(rooms: Rooms) -> BlockAgents:
    async def find(name: str) -> tuple[Registry, Agent]:
        card = await rooms.store.agent(name)
        registry = await asyncio.to_thread(agents_of, rooms.config)
        return registry, registry.get(name) if card is None else agent_of(card)

    return BlockAgents(find, rooms.processes, rooms.place)


def _keeper_runner(rooms: Rooms, crew: _Crew, board: CommittedBoard) -> KeeperRunner:
    return KeeperRunner(
        rooms.processes,
        rooms.place,
        crew.keeping,
        registry=rooms.registry,
        ledger=rooms.ledger,
        clock=rooms.clock,
        trees=rooms.trees,
        board=board,
        term=rooms.term,
        is_gone=rooms.is_gone,
    )


def _dispatch_runner(
    rooms: Rooms, board: CommittedBoard, roster: Roster | None, dispatcher: Dispatcher | None
) -> DispatchRunner:
    """Return who runs the tasks that were handed out."""
    return DispatchRunner(
        rooms.processes,
        rooms.place,
        board,
        roster,
        registry=rooms.registry,
        ledger=rooms.ledger,
        clock=rooms.clock,
        timeout=rooms.config.keeper_timeout,
        trees=rooms.trees,
        heard=None if dispatcher is None else dispatcher.note_change,
    )


def _dispatcher(rooms: Rooms, board: CommittedBoard, roster: Roster | None) -> Dispatcher | None:
    """Return who hands out the tasks of the board; nobody without a crew, or if told not to."""
    if roster is None or not rooms.config.board_auto_dispatch:
        return None
    return Dispatcher(
        board,
        roster,
        registry=rooms.registry,
        environ=os.environ,
        ledger=rooms.ledger,
        clock=rooms.clock,
        busy=lambda: busy_at(rooms.engine.gate),
        term=rooms.term,
    )


def _board(rooms: Rooms) -> CommittedBoard:
    config = rooms.config
    return CommittedBoard(
        rooms.root, tasks=rooms.tasks, limit=config.plan_max_bytes, most=config.plan_max_files
    )


def _roster(config: Config) -> Roster | None:
    """Return who may be given a task, if there is a crew."""
    return None if config.crew_def is None else Roster(config.crew_def.absolute())


# What stands between them


def _engine(rooms: Rooms, runners: Runners, sources: list[Source], triggers: Triggers) -> Engine:
    config = rooms.config
    return Engine(
        clock=rooms.clock,
        ledger=rooms.ledger,
        runner=runners,
        sources=sources,
        capacity=Capacity(config.gate_slots, config.crew_max_concurrent),
        doorman=triggers,
        obstacle=runners.obstacle,
        revise=None if rooms.shared is not None else _commits(rooms.config, rooms.root).of,
        term=rooms.term,
        shared=rooms.shared,
        home=rooms.home,
    )


def _commits(config: Config, root: Path) -> Commits:
    """Return who knows in which commit the plans stand."""
    return Commits(root, tuple(config.git_local or ()))


def _service(rooms: Rooms) -> Service:
    return Service(
        ledger=rooms.ledger,
        clock=rooms.clock,
        ids=new_id,
        poke=rooms.poke,
        term=rooms.term,
        zone_name=rooms.zone_name,
        machines=None if rooms.shared is None else rooms.shared.machines,
        places=partial(names_of, rooms.root),
        unready=_readiness(rooms).of_entries,
        refuse_start=partial(_refuse_blank, rooms),
        agent_state=agent_state,
        refuse_name=partial(refuse_double, Board(rooms.root / rooms.tasks, root=rooms.root)),
    )


def _refuse_blank(rooms: Rooms) -> None:
    """Raise an error while the plan root holds no plan."""
    if rooms.built is not None and rooms.built.is_blank:
        raise EmptyPlanError(rooms.root)


@dataclass(frozen=True, slots=True)
class _Crew:
    """Who ticks, as the settings say: a manifest, or a single keeper."""

    config: Config
    keeping: Keeping
    single: SingleKeeper | None = None

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


def _crew(config: Config, zone_name: str) -> _Crew | None:
    """Return who ticks: the crew if there is one, else the single keeper, else nobody."""
    keeping = Keeping(
        config.keeper_mode,
        config.keeper_timeout,
        config.gitops,
        zone_name,
        has_files=config.store is None,
    )
    if config.crew_def is not None:
        return _Crew(config, replace(keeping, manifest=config.crew_def.absolute()))
    if config.keeper_def is None:
        return None
    lifecycle = config.lifecycle_def
    definition = config.keeper_def.absolute()
    single = SingleKeeper(
        definition, None if lifecycle is None else lifecycle.absolute(), config.keeper_interval
    )
    return _Crew(config, replace(keeping, is_single=True, manifest=definition), single)


def _triggers(rooms: Rooms) -> Triggers:
    """Return where triggers are asked about and changed."""
    from shutil import which
    from uuid import uuid4

    config = rooms.config
    return Triggers(
        store=rooms.store,
        ledger=rooms.ledger,
        clock=rooms.clock,
        ids=lambda: str(uuid4()),
        poke=rooms.poke,
        others=lambda: frozenset(each.name for each in agents_of(config)),
        ready=_readiness(rooms),
        has_gh=lambda: which("gh") is not None,
        term=rooms.term,
        secrets=rooms.place.secrets,
    )


def _readiness(rooms: Rooms) -> Readiness:
    return readiness_of(rooms.config, card=rooms.store.agent, text=rooms.ledger.text)


async def keep(
    house: House,
    *,
    stop: asyncio.Event,
    turned: Callable[[], None] = lambda: None,
    watch: Watch | None = None,
    beside: Sequence[Coroutine[None, None, None]] = (),
) -> None:
    """Keep the hours until *stop* is set, then let what runs end, within bounds.

    *watch* tells of plans that have changed, if looking at the files does not; what is
    *beside* goes on as long as all else does, and the end of one is the end of all.
    """
    engine = house.engine
    mirror(house.data / ROOT_NAME, str(house.root))
    await engine.start()
    await _apply_soon(house)
    dispatcher = house.dispatcher

    def after_turn() -> None:
        turned()
        if dispatcher is not None:
            dispatcher.turned()

    parts = [
        engine.run(turned=after_turn),
        (watch or _watch)(house, stop),
        _poll(house, stop),
        _read_files_again(house),
        _read_secrets_again(house),
        _by_night(house),
        _beat(house),
        stop.wait(),
        *beside,
    ]
    if dispatcher is not None:
        parts.append(dispatcher.run(engine.offer))
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if isinstance(error := task.exception(), LedgerError):
                engine.trouble = error  # told now: what runs may go on for a while
            task.result()  # a part that failed ends all of it, and says why
    finally:
        left = set(tasks)
        while left:  # Python 3.11 can lose a cancellation
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=1)
        await engine.stop(within=house.config.run_drain)
    await engine.turn()


async def run_once(house: House, word: str, *, note: str = "") -> Filed:
    """Run one entry here and now, and nothing else; return how its receipt ended."""
    return await _once(house, lambda: house.service.run_now(word, note=note))


async def repeat_once(house: House, word: str, *, at: datetime, name: str) -> Filed:
    """Run one entry for one past time, and nothing else; return how its receipt ended."""

    async def ask() -> ReceiptLine:
        end = at + timedelta(microseconds=1)
        made = await house.service.backfill(word, start=at, end=end, name=name)
        return made.lines[0]

    return await _once(house, ask)


async def tick_once(house: House, name: str, *, note: str = "") -> Filed:
    """Let one agent tick here and now, and nothing else; return how its receipt ended."""
    return await _once(house, lambda: house.service.tick(name, note=note))


async def _once(house: House, ask: Callable[[], Awaitable[ReceiptLine]]) -> Filed:
    """Read all sources, ask for one run, make it, and return how its receipt ended."""
    _refuse_other_plans(house)
    mirror(house.data / ROOT_NAME, str(house.root))
    engine = house.engine
    await engine.launch.look_back()
    await engine.read_all()
    with acting(await own_actor(house.ledger, house.data)):
        asked = await ask()
    engine.launch.start(asked.filed)
    await engine.launch.rest()
    if engine.launch.failure is not None:
        raise engine.launch.failure
    filed = await house.ledger.receipt(asked.filed.number)
    assert filed is not None, "it was just filed"
    await _follow_up(house, filed)
    return filed


def _refuse_other_plans(house: House) -> None:
    """Raise an error if the ledger is that of plans elsewhere: to read these would lose those."""
    if house.data.parent == house.root:  # wherever both were moved to
        return
    try:
        known = Path(os.fsdecode(head_of(house.data / ROOT_NAME, _LONGEST_PATH)).rstrip("\n"))
    except (OSError, ValueError):
        return
    if known != house.root and known.is_dir():
        raise OtherRootError(str(house.data), theirs=str(known), ours=str(house.root))


async def _follow_up(house: House, filed: Filed) -> None:
    """Let the source of a receipt that is final do what follows from it.

    It stays unsettled: the next engine asks again, also for what failed here, and sees to alerts.
    """
    for source in house.sources:
        if source.name == filed.source and filed.status in FINAL:
            try:
                await source.settle(filed)
            except (HoraeError, OSError) as error:
                words = "settling receipt %d failed; the next engine tries again: %s"
                extra = {"source": source.name, "entry": filed.entry, "receipt": filed.number}
                log.warning(words, filed.number, error, extra=extra)


def new_id() -> str:
    """Return a name that nothing else has."""
    from secrets import token_hex

    return token_hex(6)


async def read_again(house: House) -> None:
    """Read plans, triggers and agents again, and once more if the ledger cannot be written."""
    for name in house.engine.sources:
        house.engine.request(name)
    await _apply_soon(house)


async def _apply_soon(house: House) -> None:
    """Apply the files of the plan root, and once more if the ledger cannot be written."""
    while True:
        try:
            await _apply(house)
        except (LedgerBusyError, LedgerWriteError) as error:
            log.warning("applying .agentd failed, trying again in %s: %s", AGAIN, error)
            await house.clock.wait(asyncio.Event(), until=house.clock.now() + AGAIN)
        else:
            return


async def _read_files_again(house: House) -> None:
    """Look again at files of `.agentd` that cannot be read: nobody tells when they can."""
    while True:
        await house.unread.wait()
        await house.clock.wait(asyncio.Event(), until=house.clock.now() + UNREAD)
        await _apply_soon(house)


async def _read_secrets_again(house: House) -> None:
    """Look again at secrets that cannot be read: nobody tells when they can."""
    while True:
        await house.clock.wait(asyncio.Event(), until=house.clock.now() + UNREAD)
        if await house.place.secrets.look_again():
            await read_again(house)  # then what is held back is asked for again, too


async def _watch(house: House, stop: asyncio.Event) -> None:
    """Read the plans again when they have changed, or stand in another commit.

    What keeps them from being watched is a problem; meanwhile they are read from time to time.
    """
    while not stop.is_set():
        try:
            await _watch_once(house, stop)
        except LedgerError:
            raise
        except Exception as error:  # no file may end the engine
            log.debug("watching %s failed", house.root, exc_info=error)
            _note_once(house.notes, f"{_WATCH}{unexpected(error)}")
            await house.clock.wait(stop, until=house.clock.now() + UNREAD)
            await read_again(house)


async def _watch_once(house: House, stop: asyncio.Event) -> None:
    """Read the plans again when they have changed, until the watch fails."""
    config = house.config
    # The board is named apart: it may be in a hidden directory, and those are passed over.
    board, log = house.root / house.tasks, _commits(config, house.root).log
    others = (config.crew_def, config.keeper_def, board, log)
    found = changes(
        [house.root, *(each for each in others if each is not None)],
        quiet=config.watch_quiet,
        poll=config.watch_poll,
        stop=stop,
        ignored=[house.data],
        note=partial(_note_once, house.notes),
    )
    async for _ in found:
        house.notes[:] = [note for note in house.notes if not note.startswith(_WATCH)]
        await read_again(house)


def _note_once(notes: list[str], note: str) -> None:
    if note not in notes:
        notes.append(note)


async def _apply(house: House) -> None:
    """Let triggers and their agents be as the files in the plan root say."""
    await house.settings.refresh()
    if house.engine.is_blank:
        return  # or all that files made would be disabled
    fresh_at = await house.ledger.fresh_at()
    try:
        names = known_names(house.config)
        found = await sync(
            str(house.root), house.triggers, house.store, environ=names, fresh_at=fresh_at
        )
        await house.triggers.read_webhooks()
        if house.config.store is not None:  # one machine alone has moved them out of its ledger
            found.wrong.extend(await house.triggers.given_secrets())
    except LedgerError:  # what is wrong with the ledger is not the files' own
        raise
    except Exception as error:  # no file may end the engine; what was made of them stands
        log.debug("applying .agentd failed", exc_info=error)
        found = Synced([], [unexpected(error)], is_whole=False)
    for each in found.changes:
        if each.left:
            house.notes.append(
                f"{each.name} ({each.place}) is disabled: the ledger was newly created, and"
                f" {each.left}; enable it with `horae trigger enable {each.name}`"
            )
    if found.broken is not None and found.broken != house.store.broken_files:
        house.store.broken_files = found.broken
        await house.engine.rescan(TriggerSource.name)
    kept = tuple(f"{each.item.origin.file}:" for each in house.engine.broken)  # said as broken
    wrong = [each for each in found.wrong if not each.startswith(kept)]
    house.notes[:] = [note for note in house.notes if not note.startswith(_FILES)]
    house.notes.extend(f"{_FILES}{each}" for each in wrong)
    if found.is_whole:
        house.unread.clear()
    else:
        house.unread.set()
    if found.changes:
        house.engine.note_change()


async def _poll(house: House, stop: asyncio.Event) -> None:
    """Look at what triggers wait for elsewhere."""

    async def call(argv: Sequence[str]) -> str:
        environ = {name: each for name, each in os.environ.items() if not is_own(name)}
        given = await house.place.secrets.given(_GITHUB)
        environ |= given.variables
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(_POLL):
                said, errors = await process.communicate()
        except TimeoutError:
            process.kill()
            raise
        if process.returncode:
            words = masked(errors.decode(errors="replace"), given.hidden)
            raise PollError(argv[0], process.returncode, words)
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
        house.notes[:] = [note for note in house.notes if not note.startswith(_NIGHT)]
        try:
            await _clean_up(house)
        except (HoraeError, OSError) as error:  # tomorrow is another night
            house.notes.append(f"{_NIGHT}{error}")


async def _clean_up(house: House) -> None:
    """Copy the ledger, and drop the output of runs that is too old or too much."""
    if isinstance(house.ledger, SqliteLedger):
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
    try:
        with urlopen(request, timeout=10) as answer:  # noqa: S310 - as above
            answer.read(1024)
    except (OSError, ValueError) as error:
        log.warning("the heartbeat request failed: %s", error)


def post_key(data: Path) -> bytes:
    """Return what signs the messages of a data directory; it is made the first time."""
    from secrets import token_hex

    path = data / _SIGNATURE
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with suppress(FileExistsError):  # then it is read below
            descriptor = os.open(path, flags, 0o600)
            try:
                os.write(descriptor, token_hex(32).encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        return head_of(path, _LONGEST_KEY)
    except OSError as error:
        raise DataFileError(str(path), error) from None


def check(
    text: str, *, name: str = "-", zone: str = "UTC", now: datetime | None = None
) -> list[Diagnostic]:
    r"""Return what is odd in a plan, in the order of its lines.

    *zone* is the plan's zone. With *now*, clock changes of the year to come count too.

    >>> plan = "* Digest :workflow:\n:PROPERTIES:\n:SCHEDULE: 0 24 * * *\n:END:\n"
    >>> print(check(plan, name="digest.org")[-1])
    digest.org:3:14: error cron: cron '0 24 * * *': hour 24 is outside 0-23
    """
    from horae.extras.drift.check import check_drift
    from horae.org.document import read
    from horae.sources.plans.check import Clock, check_plans

    return check_plans([(name, read(text))], Clock(zone, now), extra=[check_drift])
