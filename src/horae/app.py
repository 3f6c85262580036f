"""The app of a plan root: its sources, its runners, its engine and its services.

async with build(load(".")) as app:
    await keep(app, stop=stop)
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import to_builtins

from horae.config import Config, known_names, load, secrets_of, state_directory
from horae.context import (
    TRIGGER_FILES,
    Context,
    EngineSettings,
    block_agents,
    board_agents,
    crew_source,
    find_agents,
    settings_registry,
    trigger_notes,
)
from horae.core.access import RunTokens
from horae.core.actor import acting, own_actor
from horae.core.budget import BOARD
from horae.core.clock import SystemClock
from horae.core.engine import AGAIN, LONGEST_REST, UNREAD, Engine, Left
from horae.core.entry import Work, key_time
from horae.core.gate import Capacity, Gate
from horae.core.launch import Launch
from horae.core.ports import (
    Clock,
    Crew,
    Ended,
    Held,
    HeldBackError,
    Job,
    LedgerBusyError,
    LedgerError,
    LedgerWriteError,
    Process,
    Run,
    RunError,
    Runner,
    TaskBrief,
    Unreleased,
)
from horae.core.private import write_durably
from horae.core.receipt import FINAL, Filed
from horae.core.secret import FOLDER, is_own
from horae.core.service import Service, broken_words
from horae.core.source import Scan, Source, unexpected
from horae.core.spending import Spending
from horae.core.text import size_text
from horae.core.views import DiskLine, EngineFacts, ReceiptLine, zoned
from horae.errors import Exit, HoraeError
from horae.files.edit import mirror
from horae.files.git.trees import Commits, Trees, kept_words
from horae.files.read import PlanFileError, head_of, obstacle, read_plan
from horae.files.watch import changes
from horae.org.document import misread, read
from horae.org.plan import Diagnostic
from horae.process.cgroup import CgroupLimits, delegated_cgroup
from horae.process.handover import EngineControl, HandedProcesses, HandedToken, HandOver
from horae.process.logs import clear, fullest, held_in, room_at, tidy, trim
from horae.process.output import masked
from horae.process.processes import LOG_NAME, Processes
from horae.process.run_settings import RunSettings
from horae.sources import OutdatedError, agents, board, crew, outdated, plans, workflows
from horae.sources.plans.runner import CommandRunner
from horae.sources.plans.source import OrgSource
from horae.sources.triggers.runner import GithubPoller, PollError, PromptRunner
from horae.sources.triggers.service import Triggers
from horae.sources.triggers.source import Synced, TriggerSource, has_files, sync
from horae.store.ledger import SqlLedger
from horae.store.lock import Lock, LockUse
from horae.store.sqlite import SqliteLedger

if TYPE_CHECKING:
    from horae.sources.agents.runner import Accounts, AgentHost, BlockAgents, Registry
    from horae.sources.board.runner import Dispatcher, DispatchRunner, RecycleRunner
    from horae.sources.crew.runner import KeeperRunner
    from horae.sources.workflows.runner import WorkflowRunner

log = logging.getLogger(__name__)

Watch: TypeAlias = "Callable[[App, asyncio.Event], Awaitable[None]]"
AskObstacle: TypeAlias = "Callable[[Filed], Awaitable[str | None]]"
RunnerOf: TypeAlias = "Callable[[Work], tuple[Runner, AskObstacle | None] | None]"

FOLDERS: Final = ("runs", "trees", "cache", "backups", FOLDER)  # in the data directory
ROOT_NAME: Final = "root"  # in the data directory: which plans its ledger is about
NIGHT: Final = timedelta(hours=3, minutes=30)  # after midnight in UTC: backups, old output
_SOON: Final = timedelta(minutes=1)  # from the start to the first look at what the disk holds
_HOUR: Final = timedelta(hours=1)  # between two of them
_LOW: Final = timedelta(minutes=10)  # the same, while little is free
_GLANCE: Final = 10.0  # seconds between two looks at how much is free
_SIGNATURE: Final = "post.key"
_WATCH: Final = "file changes are not detected: "  # what a note about the watch begins with
_NIGHT: Final = "nightly maintenance: "  # what a note about backups and old output begins with
_LONGEST_PATH: Final = 1 << 16  # bytes of the file that names the plan root
_LONGEST_KEY: Final = 1 << 10  # bytes of the file that holds a key
_POLL: Final = 60.0  # seconds that a look elsewhere may take
_GITHUB: Final = ("GH_TOKEN", "GITHUB_TOKEN")  # who looks at GitHub, if the settings say


class EmptyPlanError(HoraeError, code="empty_plan", exit_code=Exit.CONFLICT):
    def __init__(self, root: Path) -> None:
        self.root = str(root)
        what = "contains no plan" if root.is_dir() else "does not exist"
        super().__init__(
            f"{root}: {what}, but the ledger has entries from it; nothing is scheduled or started "
            "until a plan appears; to remove the entries, run `horae stop` and then "
            "`horae up --empty-plan`"
        )


@dataclass(eq=False)
class Runners:
    find: RunnerOf  # loads what the kind of work needs
    tokens: RunTokens = field(default_factory=RunTokens)
    catch_up: Callable[[str], Awaitable[None]] | None = None
    spending: Spending | None = None

    async def hold(self, job: Job) -> Held:
        try:
            found = self.find(job.filed.work)
        except OutdatedError as error:
            raise HeldBackError(str(error)) from None
        if found is None:
            raise RunError(f"this version of horae cannot run work of the kind {job.filed.work}")
        runner, _ = found
        if self.catch_up is not None and job.filed.commit:
            await self.catch_up(job.filed.commit)
        number = job.run.number
        spending = self.spending
        if spending is not None and (spending.shared or job.filed.policy.budget):
            job = await spending.drawn(job)
        try:
            held = await runner.hold(job)
        except BaseException:
            self.tokens.end(number)
            raise
        end = partial(self.tokens.end, number)
        return _WithToken(held, end) if number in self.tokens.runs else held

    async def look_back(self, filed: Filed, run: Run) -> Ended | Unreleased | None:
        self.tokens.end(run.number)
        found = self.find(filed.work)
        return None if found is None else await found[0].look_back(filed, run)

    async def obstacle(self, filed: Filed) -> str | None:
        try:
            found = self.find(filed.work)
            if found is None or found[1] is None:  # the next start tells, by trying
                return filed.receipt.reason
            return await found[1](filed)
        except (HoraeError, OSError) as error:  # half an edit, perhaps
            return str(error)


@dataclass(eq=False, slots=True)
class _WithToken:
    held: Held
    end: Callable[[], None]  # of the token, which ends with its run
    is_let_go: bool = False

    @property
    def process(self) -> Process:
        return self.held.process

    def go(self) -> None:
        self.is_let_go = True
        self.held.go()

    def cancel(self, reason: str) -> None:
        self.held.cancel(reason)
        if not self.is_let_go:  # then nobody may wait for its end
            self.end()

    async def ended(self) -> Ended:
        try:
            return await self.held.ended()
        finally:
            self.end()


@dataclass(eq=False, slots=True)
class Disk:
    line: DiskLine | None = None  # what was found when it was last measured
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Host:
    processes: Processes
    place: RunSettings
    trees: Trees
    name: str = ""  # in a cluster
    is_gone: Callable[[str], bool] = lambda _: False  # whether another machine is not there
    # Brings the plan of a node to the commit of a run.
    catch_up: Callable[[str], Awaitable[None]] | None = None
    disk: Disk = field(default_factory=Disk)


@dataclass(eq=False, slots=True)
class App:
    context: Context
    host: Host
    engine: Engine
    service: Service
    triggers: Triggers
    parts: AppParts
    runners: Runners
    sources: tuple[Source, ...]
    settings: EngineSettings  # which of them wait for a person
    notes: list[str]  # what is not as it should be, in words
    dispatcher: Dispatcher | None = None  # of the tasks of the board
    control: EngineControl | None = None
    has_begun: bool = False
    # Set when no more requests are answered.
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    # Set while a file of `.agentd` is there and cannot be read.
    unread: asyncio.Event = field(default_factory=asyncio.Event)
    # Two that apply files at once would both create what is new.
    applying: asyncio.Lock = field(default_factory=asyncio.Lock)

    config: Config = field(init=False)
    root: Path = field(init=False)
    clock: Clock = field(init=False)
    ledger: SqlLedger = field(init=False)
    place: RunSettings = field(init=False)
    data: Path = field(init=False)  # the directory

    def __post_init__(self) -> None:
        context, self.place = self.context, self.host.place
        self.config, self.root, self.clock = context.config, context.root, context.clock
        self.ledger, self.data = context.ledger, self.place.data

    def log_of(self, run: Run) -> Path:
        return self.place.directory_of(run) / LOG_NAME

    def on_disk(self) -> list[str]:
        """Return problems for which the disk is read."""
        newer = outdated()
        return [*kept_words(self.root), *([] if newer is None else [str(newer)])]

    def facts(self, *, on_disk: Sequence[str] | None = None) -> EngineFacts:
        """Return the state of the engine; *on_disk* is what was found there not long ago."""
        engine, started_at = self.engine, self.engine.started_at
        problems = [*map(broken_words, engine.broken)]
        problems += [] if engine.trouble is None else [str(engine.trouble)]
        problems += [str(EmptyPlanError(self.root))] if engine.is_blank else []
        for path in (self.data / name for name in FOLDERS):
            if os.path.lexists(path) and not path.is_dir():
                found = obstacle(str(path), root=str(self.data))
                if isinstance(found, PlanFileError):
                    problems.append(f"{found}; move or remove it")
        problems += map(str, self.place.secrets.unread.values())
        problems += [str(each) for some in engine.problems.values() for each in some]
        if self.dispatcher is not None and (error := self.dispatcher.problem) is not None:
            problems.append(str(error) if isinstance(error, HoraeError) else unexpected(error))
        problems += self.on_disk() if on_disk is None else on_disk
        disk = self.host.disk
        problems += [*self.notes, *self.settings.notes, *filter(None, [disk.problem])]
        since = "" if started_at is None else key_time(started_at)
        told = tuple(dict.fromkeys(problems))
        return EngineFacts(True, str(self.data), os.getpid(), since, told, disk=disk.line)

    async def hand_over(self, listeners: Mapping[str, int]) -> HandOver | None:
        """Let go of all that another image of the engine goes on with; None: it stops instead."""
        assert isinstance(self.ledger, SqliteLedger), "a node of a cluster has nothing to hand over"
        await self.wait_for_others()
        if self.control is None or not self.control.restart.is_set():
            return None
        numbers = self.engine.launch.hand_over()
        tokens = self.place.tokens or RunTokens()
        kept = [(number, tokens.of_run(number)) for number in numbers]
        return HandOver(
            0,
            self.ledger.hand_over_lock(),
            await self.host.processes.hand_over(numbers),
            tuple(
                HandedToken(number, each[0], each[1].actor, tuple(each[1].scopes))
                for number, each in kept
                if each is not None
            ),
            dict(listeners),
        )

    async def wait_for_others(self) -> None:
        """Wait for runs that cannot be handed over, while a restart is asked for."""
        carries, control = self.host.processes.carries, self.control
        if control is None:
            return
        waiting = self.engine.wait_for_others(
            lambda run, held: carries(run.number, held.process), within=control.drain
        )
        await first_of([waiting, control.stop.wait()])

    def is_well(self) -> bool:
        turned_at, now = self.engine.turned_at, self.clock.now()
        lags = turned_at is None or abs(now - turned_at) > 2 * LONGEST_REST
        return not lags and self.engine.trouble is None and not self.engine.is_blank

    async def run_once(self, ask: Callable[[Service], Awaitable[ReceiptLine]]) -> Filed:
        """Return the receipt that *ask* requests, after its run, without an engine."""
        if self.data.parent != self.root:  # else it is ours, wherever both were moved to
            with suppress(OSError, ValueError):  # then it is of no plan yet
                name = head_of(self.data / ROOT_NAME, _LONGEST_PATH)
                known = Path(os.fsdecode(name).rstrip("\n"))
                if known != self.root and known.is_dir():  # to read these plans would lose those
                    whose = f"belongs to the plans in {known}, not in {self.root}"
                    said = f"{self.data}: the ledger {whose}; use --root {known}"
                    facts = {"theirs": str(known), "ours": str(self.root)}
                    raise HoraeError(said, code="other_root", exit_code=Exit.CONFLICT, **facts)
        mirror(self.data / ROOT_NAME, str(self.root))
        launch = self.engine.launch
        await launch.look_back()
        await self.engine.read_all()
        with acting(await own_actor(self.ledger, self.data)):
            asked = await ask(self.service)
        launch.start([await self.service.filed(asked.receipt)])
        await launch.rest()
        if launch.failure is not None:
            raise launch.failure
        filed = await self.service.filed(asked.receipt)
        # It stays unsettled: the next engine asks again, also for what failed, and sees to alerts.
        for source in self.sources:
            is_own = source.name == filed.source and filed.status in FINAL
            if is_own and source.settle is not None:
                try:
                    await source.settle(filed)
                except (HoraeError, OSError) as error:
                    words = "settling receipt %d failed; the next engine tries again: %s"
                    extra = {"source": source.name, "entry": filed.entry, "receipt": filed.number}
                    log.warning(words, filed.number, error, extra=extra)
        return filed


class ReaderError(HoraeError, code="reader"):
    remedy: Final = "install Horae again, or use another version of Python"

    def __init__(self, wrong: str) -> None:
        self.wrong = wrong
        self.python = ".".join(map(str, sys.version_info[:3]))
        super().__init__(
            f"the plan reader fails its self-test under Python {self.python}: {wrong}; "
            f"{self.remedy}"
        )


def try_reader() -> None:
    wrong = misread()
    if wrong is not None:
        raise ReaderError(wrong)


@asynccontextmanager
async def build(
    config: Config,
    *,
    clock: Clock | None = None,
    command: str = "",
    lock: Lock | None = None,
    given: HandOver | None = None,
) -> AsyncIterator[App]:
    """Give an app whose ledger is locked and open, and whose engine has not started.

    *command* is the command that executes a run with the app, and starts no engine. *lock* and
    *given* are what an image of the engine before this one has handed over.
    """
    try_reader()
    clock = clock or SystemClock()
    root, data = Path(config.root).resolve(), Path(os.path.abspath(config.data))
    async with AsyncExitStack() as stack:
        use = LockUse.RUN if command else LockUse.ENGINE
        ledger = await SqliteLedger.open(data, now=clock.now(), use=use, command=command, held=lock)
        stack.push_async_callback(ledger.close)
        runs = None if given is None else given.processes
        processes = await stack.enter_async_context(open_processes(config, data, runs))
        trees = Trees(root, data, config.git_local or (), uncommitted=config.agent_uncommitted)
        place = run_place(config, root, data)
        tokens = place.tokens or RunTokens()
        for each in () if given is None else given.tokens:
            tokens.adopt(each.run, each.digest, actor=each.actor, scopes=each.scopes)
        host = Host(processes, place, trees)
        context = Context(config, root, clock, ledger)
        ledger.note_lock(zone=context.zone_name)
        yield assemble(context, host)


def open_processes(config: Config, data: Path, given: HandedProcesses | None = None) -> Processes:
    kept, limits = (config.logs_head, config.logs_tail), limits_of(config)
    return Processes(data, cgroup=delegated_cgroup(), limits=limits, kept=kept, given=given)


def limits_of(config: Config) -> CgroupLimits:
    return CgroupLimits(config.run_memory, config.run_processes, config.run_cpus)


def run_place(config: Config, root: Path, data: Path) -> RunSettings:
    local = config.git_local or ()
    timeout, named = config.run_timeout, secrets_of(config)
    return RunSettings(root, data, os.environ, timeout, post_key(data), local, named, RunTokens())


def assemble(
    context: Context,
    host: Host,
    *,
    settings: EngineSettings | None = None,
    launch: Callable[[Runners, Gate, Left], Launch] | None = None,
) -> App:
    config, root, shared, common = context.config, context.root, context.shared, context.common

    def poke() -> None:
        engine.note_change()  # made last; nothing pokes before

    def refuse_blank() -> None:
        if engine.is_blank:
            raise EmptyPlanError(root)

    context.poke = poke
    host = replace(host, place=replace(host.place, spending=context.spending))
    parts = AppParts(context, host, lambda: board.runner.busy_at(engine.gate))
    triggers = Triggers(**context.trigger_parts(secrets=host.place.secrets))
    tokens, spending = host.place.tokens or RunTokens(), host.place.spending
    runners = Runners(parts.runner_of, tokens, host.catch_up, spending)
    sources = parts.sources(triggers.follow)
    engine = Engine(
        **common,
        runner=runners,
        sources=sources,
        capacity=Capacity(config.gate_slots, config.crew_max_concurrent),
        approvals=triggers,
        obstacle=runners.obstacle,
        revise=None if shared is not None else _commits(context).of,
        launch=launch and partial(launch, runners),
        home="" if shared is None else host.name,
        adopted=host.processes.adopted,
        spending=spending,
    )
    service = context.service(refuse_start=refuse_blank, again=triggers.again)
    settings = settings or EngineSettings(config, **common, changed=poke)
    return App(
        context, host, engine, service, triggers, parts, runners, sources, settings,
        host.processes.notes, parts.dispatcher,
    )  # fmt: skip


@dataclass(eq=False)
class AppParts:
    """Sources and runners; what only some plans need is loaded and made when it is first used."""

    context: Context
    host: Host
    busy: Callable[[], frozenset[str]]  # the agents that run

    @cached_property
    def accounts(self) -> Accounts:
        return agents.runner.Accounts(**self.context.common, agents=self.context.agents)

    @cached_property
    def agents(self) -> AgentHost:
        host, registry = self.host, settings_registry(self.context.config)
        known = host.processes, host.place, host.trees, self.accounts
        return agents.runner.AgentHost(registry, *known)

    @cached_property
    def block_agents(self) -> BlockAgents:
        host, card = self.host, self.context.trigger_store.agent
        known = host.processes, host.place, host.trees
        return block_agents(self.context.agents, *known, card=card, accounts=self.accounts)

    @cached_property
    def crew(self) -> Crew | None:
        """Those who get the tasks of the board."""
        config = self.context.config
        if config.crew_def is not None:
            return crew.source.Roster(config.crew_def.absolute(), self.context.root).agents
        return partial(board_agents, config) if config.board_members else None

    @cached_property
    def dispatcher(self) -> Dispatcher | None:
        if self.crew is None or not self.context.config.board_auto_dispatch:
            return None
        tasks = board.tasks.CommittedBoard(self.context.board)
        how: dict[str, Any] = {"agents": self.agents, "busy": self.busy, **self.context.common}
        return board.runner.Dispatcher(tasks, self.crew, **how)

    @cached_property
    def dispatches(self) -> DispatchRunner:
        context = self.context
        return board.runner.DispatchRunner(
            self.agents,
            board.tasks.CommittedBoard(context.board),
            self.crew,
            ledger=context.ledger,
            clock=context.clock,
            heard=None if self.dispatcher is None else self.dispatcher.note_change,
            claims_as=BOARD if context.config.board_members else "",
        )

    @cached_property
    def keeper(self) -> KeeperRunner | None:
        context, config = self.context, self.context.config
        manifest = config.crew_def or config.keeper_def
        if manifest is None:
            return None

        async def tasks(name: str, place: Path) -> list[TaskBrief]:
            found = board.tasks.Board.below(place, context.tasks, **context.limits)
            return await board.tasks.CommittedBoard(found).told_to(name)

        return crew.runner.KeeperRunner(
            self.agents,
            crew.source.Roster(manifest.absolute(), context.root),
            **context.common,
            tasks=tasks,
            local=self.host.trees.local,
            mode=config.keeper_mode,
            timeout=config.keeper_timeout,
            gitops=config.gitops,
            zone_name=context.zone_name,
            is_single=config.crew_def is None,
            has_files=config.store is None,
            is_gone=self.host.is_gone,
        )

    @cached_property
    def commands(self) -> CommandRunner:
        return CommandRunner(self.host.processes, self.host.place)

    @cached_property
    def workflows(self) -> WorkflowRunner:
        place, clock, agent = self.host.place, self.context.clock, self.block_agents
        runner = workflows.runner.WorkflowRunner
        return runner(self.host.processes, place, clock=clock, agent=agent)

    @cached_property
    def prompts(self) -> PromptRunner:
        context = self.context
        known = context.trigger_store, context.ledger.text, context.config.keeper_timeout
        return PromptRunner(self.block_agents.find, *known)

    @cached_property
    def recycling(self) -> RecycleRunner:
        tasks = board.tasks.CommittedBoard(self.context.board)
        return board.runner.RecycleRunner(tasks, clock=self.context.clock)

    def runner_of(self, work: Work) -> tuple[Runner, AskObstacle | None] | None:
        """Return what runs a kind of work, and what says why a run that is held back still is."""
        match work:
            case Work.COMMAND:
                return self.commands, self._by_text(self.commands.obstacle)
            case Work.POST:
                return self.commands, None
            case Work.WORKFLOW:
                return self.workflows, self._by_text(self.workflows.obstacle)
            case Work.RECYCLE:
                return self.recycling, None
            case Work.DISPATCH:
                return self.dispatches, self.dispatches.obstacle
            case Work.PROMPT:
                return self.prompts, self.prompts.obstacle
            case Work.TICK:
                return None if self.keeper is None else (self.keeper, self.keeper.obstacle)

    def _by_text(self, ask: Callable[[str], Awaitable[str | None]]) -> AskObstacle:
        async def obstacle(filed: Filed) -> str | None:
            return await ask(await self.context.ledger.text(filed.digest) or "")

        return obstacle

    def sources(self, follow: Callable[[Filed], Awaitable[None]]) -> tuple[Source, ...]:
        context, config, root = self.context, self.context.config, self.context.root
        has_crew = (config.crew_def or config.keeper_def) is not None
        found: list[Source] = [
            OrgSource(root, zone_name=context.zone_name, **context.limits),
            LateSource("board", self._board_source, partial(_is_there, root / context.tasks)),
        ]
        # Without the setting, members of before are removed; but a node of a cluster may lack it.
        if has_crew or config.store is None:
            found.append(LateSource("crew", self._crew_source, lambda: has_crew))
        files = partial(has_files, str(root))
        return (*found, TriggerSource(context.trigger_store, follow=follow, has_files=files))

    def _board_source(self) -> Source:
        return board.source.BoardSource(
            self.context.board,
            now=self.context.clock.now,
            follow_up=self.dispatches.settle,
            changed=None if self.dispatcher is None else self.dispatcher.note_change,
            ledger=self.context.ledger,
            term=self.context.term,
        )

    def _crew_source(self) -> Source | None:
        config, now = self.context.config, self.context.clock.now
        return crew_source(
            config,
            started_at=now(),
            data=self.host.place.data if config.store is None else None,
            follow_up=None if self.keeper is None else self.keeper.settle,
            clock=now,
            root=self.context.root,
        )


@dataclass(eq=False)
class LateSource:
    """A source that is loaded when the plan root has something of it, or the ledger knew of it."""

    name: str
    make: Callable[[], Source | None]
    is_there: Callable[[], bool]

    @cached_property
    def source(self) -> Source | None:
        return self.make()

    async def scan(self, index: Mapping[str, str]) -> Scan:
        is_needed = index or "source" in vars(self) or await asyncio.to_thread(self.is_there)
        found = self.source if is_needed else None
        return Scan(()) if found is None else await found.scan(index)

    async def settle(self, receipt: Filed) -> None:
        if self.source is not None and self.source.settle is not None:
            await self.source.settle(receipt)


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    except OSError:  # the source says what is wrong with it
        pass
    return True


def _commits(context: Context) -> Commits:
    return Commits(context.root, tuple(context.config.git_local or ()))


async def start(app: App) -> bool:
    mirror(app.data / ROOT_NAME, str(app.root))
    await app.engine.start()
    app.has_begun = True
    return True


async def keep(
    app: App,
    *,
    stop: asyncio.Event,
    turned: Callable[[], None] = lambda: None,
    watch: Watch | None = None,
    beside: Sequence[Coroutine[None, None, None]] = (),
) -> None:
    """Run the engine until *stop* is set, then let runs end within the drain time.

    *watch* replaces the watch of the files. The end of a task *beside* it is the end of all.
    """
    engine, control = app.engine, app.control
    if not app.has_begun:
        await start(app)
    await _apply_soon(app)
    dispatcher = app.dispatcher

    def after_turn() -> None:
        turned()
        if dispatcher is not None:
            dispatcher.turned()

    parts = [
        engine.run(turned=after_turn),
        (watch or _watch)(app, stop),
        _poll(app, stop),
        _read_files_again(app),
        _read_secrets_again(app),
        _by_night(app),
        _beat(app),
        stop.wait(),
        *beside,
    ]
    if app.config.store is None:  # else each node does so by itself
        parts.append(care_for_disk(app))
    if dispatcher is not None:
        parts.append(dispatcher.run(engine.offer))
    if control is not None:
        parts.append(control.restart.wait())
    is_restart = False
    try:
        await first_of(parts)
        if control is not None and control.restart.is_set():
            await app.wait_for_others()
            is_restart = control.restart.is_set()
    except LedgerError as error:
        engine.trouble = error  # told now: what runs may go on for a while
        raise
    finally:
        if not is_restart:
            await end(app)
    if not is_restart:
        await engine.turn()


async def end(app: App) -> None:
    within = app.config.run_drain if app.control is None else app.control.drain
    await app.engine.stop(within=within)


async def first_of(parts: Sequence[Awaitable[object]]) -> None:
    """Let parts go on side by side until one ends; end the others, and raise what it raised."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        left = {task for task in tasks if not task.done()}
        while left:  # Python 3.11 can lose a cancellation
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=1)


async def read_again(app: App) -> None:
    for name in app.engine.sources:
        app.engine.request(name)
    await _apply_soon(app)


async def _apply_soon(app: App) -> None:
    while True:
        try:
            async with app.applying:
                await _apply(app)
        except (LedgerBusyError, LedgerWriteError) as error:
            log.warning("applying .agentd failed, trying again in %s: %s", AGAIN, error)
            await app.clock.wait(asyncio.Event(), until=app.clock.now() + AGAIN)
        else:
            return


async def _read_files_again(app: App) -> None:
    while True:
        await app.unread.wait()
        await app.clock.wait(asyncio.Event(), until=app.clock.now() + UNREAD)
        await _apply_soon(app)


async def _read_secrets_again(app: App) -> None:
    while True:
        await app.clock.wait(asyncio.Event(), until=app.clock.now() + UNREAD)
        if await app.place.secrets.look_again():
            await read_again(app)  # then what is held back is asked for again, too


async def _watch(app: App, stop: asyncio.Event) -> None:
    config = app.config
    # The board is named apart: it may be in a hidden directory, and those are passed over.
    others = (
        config.crew_def,
        config.keeper_def,
        app.root / app.context.tasks,
        _commits(app.context).log,
    )
    while not stop.is_set():
        try:
            found = changes(
                [app.root, *(each for each in others if each is not None)],
                quiet=config.watch_quiet,
                poll=config.watch_poll,
                stop=stop,
                ignored=[app.data],
                note=partial(_note_once, app.notes),
            )
            async for _ in found:
                app.notes[:] = [note for note in app.notes if not note.startswith(_WATCH)]
                await read_again(app)
        except LedgerError:
            raise
        except Exception as error:  # no file may end the engine
            log.debug("watching %s failed", app.root, exc_info=error)
            _note_once(app.notes, f"{_WATCH}{unexpected(error)}")
            await app.clock.wait(stop, until=app.clock.now() + UNREAD)
            await read_again(app)


def _note_once(notes: list[str], note: str) -> None:
    if note not in notes:
        notes.append(note)


async def _apply(app: App) -> None:
    await app.settings.refresh()
    if app.engine.is_blank:
        return  # or all that files made would be disabled
    fresh_at = await app.ledger.fresh_at()
    try:
        names = known_names(app.config)
        found = await sync(str(app.root), app.triggers, environ=names, fresh_at=fresh_at)
        await app.triggers.read_webhooks()
        if app.config.store is not None:  # one machine alone has moved them out of its ledger
            found.wrong.extend(await app.triggers.given_secrets())
    except LedgerError:  # what is wrong with the ledger is not the files' own
        raise
    except Exception as error:  # no file may end the engine; what was made of them stands
        log.debug("applying .agentd failed", exc_info=error)
        found = Synced([], [unexpected(error)], is_whole=False)
    for each in found.changes:
        if each.left:
            app.notes.append(
                f"{each.name} ({each.place}) is disabled: the ledger was newly created, and"
                f" {each.left}; enable it with `horae trigger enable {each.name}`"
            )
    if found.broken is not None and found.broken != app.context.trigger_store.broken_files:
        app.context.trigger_store.broken_files = found.broken
        await app.engine.rescan(TriggerSource.name)
    app.notes[:] = [note for note in app.notes if not note.startswith(TRIGGER_FILES)]
    app.notes.extend(trigger_notes(found, app.engine.broken))
    (app.unread.clear if found.is_whole else app.unread.set)()
    if found.changes:
        app.engine.note_change()


async def _poll(app: App, stop: asyncio.Event) -> None:
    async def call(argv: Sequence[str]) -> str:
        environ = {name: each for name, each in os.environ.items() if not is_own(name)}
        given = await app.place.secrets.given(_GITHUB)
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

    await GithubPoller(triggers=app.triggers, clock=app.clock, call=call).run(stop)
    await asyncio.Event().wait()  # to stop is for whoever set it


async def _by_night(app: App) -> None:
    never = asyncio.Event()
    while True:
        now = app.clock.now()
        night = now.replace(hour=0, minute=0, second=0, microsecond=0) + NIGHT
        await app.clock.wait(never, until=night if night > now else night + timedelta(days=1))
        app.notes[:] = [note for note in app.notes if not note.startswith(_NIGHT)]
        try:
            if isinstance(app.ledger, SqliteLedger):
                await app.ledger.back_up_nightly(app.data, now=app.clock.now())
        except (HoraeError, OSError) as error:  # tomorrow is another night
            app.notes.append(f"{_NIGHT}{error}")


async def care_for_disk(app: App) -> None:
    """Remove output in time, and more when little disk space is free; note what takes it."""
    clock = app.clock
    look_at, is_low = clock.elapsed() + _SOON, False
    while True:
        try:
            was_low, room = is_low, await asyncio.to_thread(room_at, app.data)
            is_low = room.lacking > 0
            if is_low != was_low or clock.elapsed() >= look_at:
                look_at = clock.elapsed() + (_LOW if is_low else _HOUR)
                await _make_room(app, room.lacking)
        except (HoraeError, OSError) as error:  # later it may be possible
            log.warning("cannot tidy the data directory: %s", error)
        await asyncio.sleep(_GLANCE)  # the disk is that of the machine, whatever the clock is


async def _make_room(app: App, lacking: int) -> None:
    data, config, now, do = app.data, app.config, app.clock.now(), asyncio.to_thread
    runs = data / "runs"
    going = {run.number for _, run in await app.ledger.open_runs()}
    left = await do(tidy, runs, now=now, keep=config.logs_keep, going=going)
    last = await app.ledger.newest_ends() if lacking or left > config.logs_most else frozenset()
    if left > config.logs_most:
        most = config.logs_most
        left = await do(trim, runs, now=now, most=most, valued=last, spared=going)
    if lacking:
        await do(clear, data / "cache")
        lacking = (await do(room_at, data)).lacking
    if lacking:
        await do(trim, runs, now=now, most=max(0, left - lacking), spared=going | last)
    room, held = await do(room_at, data), await do(held_in, data)
    disk = app.host.disk
    disk.line = DiskLine(at=zoned(now, app.context.zone_name), free=room.free, held=held)
    disk.problem = ""
    if room.lacking:
        places = {data, app.root, *(run.spec.cwd for run in app.host.processes.live)}
        found = await do(fullest, places)
        most_of_it = "" if found is None else f"{found.path} holds {size_text(found.size)}; "
        free = f"{size_text(room.free)} are free on the disk of {data}"
        disk.problem = f"{free}; {most_of_it}remove files that are not needed"


async def _beat(app: App) -> None:
    address = app.config.alert_heartbeat
    never = asyncio.Event()

    def ask(address: str) -> None:
        from urllib.request import Request, urlopen

        request = Request(address, headers={"User-Agent": "horae"})  # noqa: S310 - http(s) only
        try:
            with urlopen(request, timeout=10) as answer:  # noqa: S310 - as above
                answer.read(1024)
        except (OSError, ValueError) as error:
            log.warning("the heartbeat request failed: %s", error)

    while True:
        await app.clock.wait(never, until=app.clock.now() + app.config.alert_every)
        if address is not None and app.is_well():
            await asyncio.to_thread(ask, address)


def post_key(data: Path) -> bytes:
    path = data / _SIGNATURE
    try:
        with suppress(FileExistsError):  # then it is read below
            write_durably(path, token_hex(32).encode())
        return head_of(path, _LONGEST_KEY)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        said = f"{path}: {reason}; make it readable, or move or remove it"
        raise HoraeError(said, code="data_file", path=str(path), reason=reason) from None


def check(
    text: str, *, name: str = "-", zone: str = "UTC", now: datetime | None = None
) -> list[Diagnostic]:
    r"""Return what is odd in a plan, in the order of its lines.

    *zone* is the plan's zone. With *now*, clock changes of the year to come count too.

    >>> plan = "* Digest :workflow:\n:PROPERTIES:\n:SCHEDULE: 0 24 * * *\n:END:\n"
    >>> print(check(plan, name="digest.org")[-1])
    digest.org:3:14: error cron: cron '0 24 * * *': hour 24 is outside 0-23
    """
    from horae.extras.drift.check import check_drift  # an engine checks no plans

    clock = plans.check.CheckClock(zone, now)
    return plans.check.check_plans([(name, read(text))], clock, extra=[check_drift])


def run_workflow(
    plan: str | os.PathLike[str],
    *,
    workflow: str | None = None,
    input: str | bytes = "",  # noqa: A002 - the word of the trade
    root: str | os.PathLike[str] | None = None,
    data: str | os.PathLike[str] | None = None,
    timeout: timedelta | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run one workflow of a plan here and now, and return its record.

    *plan* is the text of a plan, or the path of its file: a path object, or a string without
    a line end. *workflow* is a title; without one the plan must have only one workflow.
    Raises HoraeError for what can never be run; what goes wrong while it runs is in the record.
    """
    path = None if isinstance(plan, str) and "\n" in plan else Path(plan).resolve()
    home = Path(root or (Path.cwd() if path is None else path.parent)).resolve()
    config = load(str(home), flags={"data": None if data is None else os.fspath(data)})
    text, name = str(plan), "-"
    if path is not None:
        text = read_plan(path, limit=config.plan_max_bytes).text
        name = str(path.relative_to(home)) if path.is_relative_to(home) else str(path)
    has_data = data is not None or config.data.is_dir()
    kept = Path(config.data).resolve() if has_data else state_directory()
    known = os.environ if environ is None else environ
    secrets = secrets_of(config, environ=known)
    place = RunSettings(home, kept, known, timeout or config.run_timeout, named=secrets)

    def known_agents() -> Registry:
        return find_agents(config, say=lambda problem: log.warning("%s", problem)).registry

    async def run() -> dict[str, Any]:
        clock = SystemClock()
        now = clock.now()
        number = f"{now:%H%M%S}-{token_hex(3)}"
        # Not the engine's own directory of runs: it has a lock on that.
        lock = kept / "runs" / f"{now:%Y-%m-%d}" / number
        os.makedirs(lock, 0o700)
        async with Processes(lock) as processes:
            trees = Trees(home, kept, config.git_local or (), uncommitted=config.agent_uncommitted)
            blocks = block_agents(known_agents, processes, place, trees)
            runner = workflows.runner.WorkflowRunner(processes, place, clock=clock, agent=blocks)
            parsed = read(text)
            world = workflows.runner.the_world(parsed, workflow, file=name)
            given = input.encode() if isinstance(input, str) else input
            order = runner.order(parsed, world, name=name, run=number, input=given)
            record: dict[str, Any] = to_builtins(await runner.run(order))
            return record

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run())
    with ThreadPoolExecutor(1) as beside:  # this thread has a loop already
        return beside.submit(asyncio.run, run()).result()
