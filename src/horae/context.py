"""The context of a plan root: its settings, clock and ledger, and what is made of these alone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from itertools import chain, count
from pathlib import Path
from secrets import token_hex
from shutil import which
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from horae.config import (
    Config,
    SettingError,
    TrustReport,
    WaitingSettings,
    confirm,
    guarded_in,
    known_names,
    load,
    outdated_words,
    secrets_of,
    settings_hint,
    untrusted,
)
from horae.core.access import Sessions, Tokens
from horae.core.actor import actor_words, current_actor
from horae.core.agent import (
    Agent,
    AgentDefinition,
    AgentError,
    AgentNotFoundError,
    agent_sections,
    parse_agent,
    read_order,
)
from horae.core.budget import ALL, BOARD, CREW
from horae.core.clock import machine_zone
from horae.core.command import Unready, call_in
from horae.core.entry import KEEPER, Entry, Origin, Unarmed, Work
from horae.core.guarded import FILE, after_pull, before_pull
from horae.core.ports import Clock, Listed, RunError, Trait
from horae.core.service import Service
from horae.core.settings import SECRETS, SETTINGS
from horae.core.source import Mark, Scan, Scanned, Source
from horae.core.spending import Spending
from horae.core.tool_policy import ToolPolicy, ToolPolicyError
from horae.errors import Exit, HoraeError
from horae.files.read import PlanFileError, find_plans, read_plan, short_name
from horae.org.document import read
from horae.sources import agents, board, crew, plans, triggers

if TYPE_CHECKING:
    from horae.cluster.queue import SharedLedger
    from horae.core.ports import Ledger
    from horae.files.git.trees import Trees
    from horae.org.plan import Diagnostic
    from horae.process.processes import Processes
    from horae.process.run_settings import RunSettings
    from horae.sources.agents.runner import Accounts, AgentHost, BlockAgents, Registry
    from horae.sources.board.rules import Members
    from horae.sources.board.tasks import Board
    from horae.sources.crew.source import CrewSource
    from horae.sources.triggers.source import Synced
    from horae.sources.triggers.store import AgentCard, TriggerStore
    from horae.store.ledger import SqlLedger

    Say = Callable[[HoraeError | Diagnostic], None]

_TAG: Final = ":agent:"
_MOST_BROKEN: Final = 1000
TRIGGER_FILES: Final = ".agentd: "  # what a note about these files begins with
new_id: Final = partial(token_hex, 6)


@dataclass
class Context:
    config: Config
    root: Path
    clock: Clock
    ledger: SqlLedger
    term: int = 1
    shared: SharedLedger | None = None  # of a cluster, if this machine leads it
    poke: Callable[[], None] = lambda: None  # lets the engine look again
    zone: str = ""  # of the engine, if the settings have another one now

    @property
    def common(self) -> dict[str, Any]:
        return {"ledger": self.ledger, "clock": self.clock, "term": self.term}

    @property
    def access(self) -> dict[str, Any]:
        return {"tokens": Tokens(self.ledger), "sessions": Sessions(self.ledger)}

    @property
    def limits(self) -> dict[str, Any]:
        return {"limit": self.config.plan_max_bytes, "most": self.config.plan_max_files}

    @cached_property
    def zone_name(self) -> str:
        return self.zone or self.config.zone or machine_zone().key

    def service(self, **parts: Any) -> Service:
        """Return the service of this ledger; *parts* replace what is the same for all callers."""

        def refuse_double(address: str) -> None:
            if address.startswith("task:"):  # all else needs no board
                board.tasks.refuse_double(self.board, address)

        # Lambdas load what they need when it is called.
        same: dict[str, Any] = {
            **self.common,
            "ids": new_id,
            "poke": self.poke,
            "zone_name": self.zone_name,
            "machines": getattr(self.shared or self.ledger, "machines", None),
            "places": lambda *at: plans.source.words_at(self.root, self.zone_name, *at),
            "unready": lambda entries: self.readiness.of_entries(entries),  # noqa: PLW0108
            "unassigned": self.why_unassigned,
            "refuse_name": refuse_double,
            "agent_state": lambda text: crew.rules.agent_state(text),  # noqa: PLW0108
            "spending": lambda: self.spending,
        }
        return Service(**same | parts)

    @property
    def spending(self) -> Spending:
        config = self.config
        shared = {ALL: config.budget, CREW: config.crew_budget, BOARD: config.board_budget}
        shared = {name: text for name, text in shared.items() if text}
        return Spending(self.ledger, self.clock, self.term, self.zone_name, shared, self.agents)

    @cached_property
    def trigger_store(self) -> TriggerStore:
        return triggers.store.TriggerStore(self.ledger, term=self.term)

    @cached_property
    def tasks(self) -> str:
        return board.find_tasks(self.root, board=self.config.board_dir)

    @property
    def board(self) -> Board:
        return board.tasks.Board.below(self.root, self.tasks, **self.limits)

    async def take_over(self, org: Source, *, at: str = "") -> list[HoraeError]:
        """Arm plan files, board, crew and triggers in a ledger that is thrown away.

        It then has what that of an engine has which starts now. Return what cannot be read; files
        of triggers are named after *at*.
        """
        now, ledger, problems = self.clock.now(), self.ledger, list[HoraeError]()
        how: dict[str, Any] = {"now": now, "term": self.term, "patience": timedelta(0)}
        # The ticks of a crew are estimates, and shown as such.
        about: dict[str, Any] = {"started_at": now.replace(second=0, microsecond=0)}
        members = crew_source(self.config, root=self.root, data=self.config.data, **about)
        is_there = (self.root / self.tasks).exists() or await ledger.index("board")
        tasks = board.source.BoardSource(self.board, now=self.clock.now) if is_there else None
        for source in filter(None, (org, tasks, members)):
            scan = await source.scan(await ledger.index(source.name))
            await ledger.scan(source.name, scan, **how)
            problems += scan.problems
        if members is None and await ledger.knows("crew"):
            await ledger.scan("crew", Scan(()), **how)
        known = await ledger.read(lambda tx: tx.files("trigger"))
        folder = triggers.FOLDER
        if not (self.root / folder).exists() and not any(e.startswith(folder) for e in known):
            return problems
        # Without secrets none is stored, and without ids drawn at random each call has the same.
        parts = self.trigger_parts(secrets=None, ids=map(str, count(1)).__next__)
        service, names = triggers.service.Triggers(**parts), known_names(self.config)
        found = await triggers.source.sync(str(self.root), service, environ=names)
        store = self.trigger_store
        store.broken_files = found.broken
        armed = {each.definition.file for each in await store.of_files()}
        scan, broken, never = await store.scan(), found.broken or {}, []
        for each in (e for e in found.workflows if e.file not in armed):
            mark, origin = Mark(f"trigger:{each.name}", each.name, "", ""), Origin(each.file, 1)
            why = Unarmed(mark.address, origin, each.name, broken.get(each.file, ""))
            never.append(Scanned(mark, why))
        entries = (*scan.entries, *never)
        await ledger.scan("trigger", replace(scan, entries=entries), **how)
        if wrong := [f"{at}{each}" for each in found.wrong]:
            problems.append(triggers.files.FilesError(wrong, then="other triggers are listed"))
        return problems

    async def file_problems(self) -> list[str]:
        """Return what of the files an engine could not use, in its words; nothing is changed."""
        from horae.files.git.trees import kept_words  # loads git

        now, environ = self.clock.now, known_names(self.config)
        members = crew_source(self.config, started_at=now(), root=self.root)
        readers: list[Source] = [
            plans.source.OrgSource(self.root, zone_name=self.zone_name, **self.limits),
            board.source.BoardSource(self.board, now=now),
            *([] if members is None else [members]),
        ]
        scans = [await each.scan(await self.ledger.index(each.name)) for each in readers]
        problems = [str(problem) for scan in scans for problem in scan.problems]
        parts = self.trigger_parts(secrets=secrets_of(self.config, may_call=False))
        known = triggers.service.Triggers(**parts)
        sync = triggers.source.sync
        found = await sync(str(self.root), known, environ=environ, dry_run=True)
        broken = await self.ledger.entries_that_are(Trait.BROKEN, limit=_MOST_BROKEN)
        return [*problems, *trigger_notes(found, broken), *kept_words(self.root)]

    async def why_unassigned(self, address: str) -> str:
        """Return why the board does not assign a task; "" if it does, or has no such task."""
        number, manifest = board.source.task_at(address), self.config.crew_def
        if number is None:
            return ""
        try:
            cards = await asyncio.to_thread(self.board.read)
            status = cards.ground.statuses.get(number)
            if status is None or status in board.rules.CLOSED:
                return f"the task is {status}" if status else ""
            if not self.config.board_auto_dispatch:
                return "board.auto_dispatch is false"
            members: Members = dict.fromkeys(self.config.board_members, ())
            if manifest is not None:
                roster = crew.source.Roster(manifest.absolute(), self.root)
                found = await asyncio.to_thread(roster.members)
                members = {each.name: each.roles for each in found}
            elif not members:
                return "neither crew.def nor board.command is set"
        except HoraeError:  # a problem of its own, in `status`
            return ""
        task = next((each for each in cards.tasks if each.id == number), None)
        now = self.clock.now()
        why = board.dispatch.why_unassigned
        return "" if task is None else why(task, cards.ground, now=now, crew=members)

    @cached_property
    def readiness(self) -> Readiness:
        return Readiness(self)

    def agents(self) -> Registry:
        return find_agents(self.config).registry

    def trigger_parts(self, **parts: Any) -> dict[str, Any]:
        return {
            "store": self.trigger_store,
            **self.common,
            "ids": lambda: str(uuid4()),
            "poke": self.poke,
            "others": lambda: frozenset(each.name for each in self.agents()),
            "ready": self.readiness,
            "has_gh": lambda: which("gh") is not None,
            **parts,
        }


class Readiness:
    def __init__(self, context: Context) -> None:
        config = context.config
        self._context = context
        self._secrets = secrets_of(config)
        self._manifest = config.crew_def or config.keeper_def
        self._is_elsewhere = config.store is not None  # runs are made on other machines, too

    @property
    def _settings(self) -> Registry:
        return settings_registry(self._context.config)

    async def of_entries(self, entries: Iterable[Listed]) -> dict[int, Unready]:
        plans: list[Registry] = []  # of all entries, once it is read
        found = {}
        for each in entries:
            if isinstance(each.item, Entry):
                why = await self._of_entry(each.item, plans)
                found.update({} if why is None else {each.number: why})
        return found

    async def _of_entry(self, entry: Entry, plans: list[Registry]) -> Unready | None:
        if self._is_elsewhere or entry.policy.requires:
            return None  # only the machine that it runs on can tell
        is_read = entry.work in {Work.COMMAND, Work.PROMPT, Work.TICK}
        text = (await self._context.ledger.text(entry.digest) if is_read else "") or ""
        match entry.work:
            case Work.COMMAND:
                return self._of_headline(text, entry.origin.file)
            case Work.PROMPT:
                tools = read_order(text).enforced
                for name in entry.agents[:1]:
                    return await self.of_agent(name, tools, plans)
            case Work.TICK:
                members = crew.rules.parse_crew(text).members
                if members and self._manifest is not None:
                    roster = crew.source.Roster(self._manifest.absolute(), self._context.root)
                    try:
                        agent = await asyncio.to_thread(roster.agent, members[0])
                    except RunError as error:
                        return Unready(error.reason, "")
                    return self._of_agent(self._settings, agent, None)
            case Work.WORKFLOW:
                for name in entry.agents:
                    if (why := await self.of_agent(name, None, plans)) is not None:
                        return why
        return None

    def _of_headline(self, text: str, file: str) -> Unready | None:
        from horae.process.run_settings import unread, why_unready  # loads processes

        try:
            call = call_in(text)
        except HoraeError as error:
            return Unready(str(error), "correct the entry")
        if call is None or not call.argv:
            return None
        root, known = self._context.root, call.variables
        beside = (root / file).parent
        directory = beside if beside.is_dir() else root
        why = why_unready(call.argv, directory=directory, environ=os.environ, variables=known)
        return why or unread(self._secrets, known)

    async def of_agent(
        self, name: str, tools: ToolPolicy | None = None, plans: list[Registry] | None = None
    ) -> Unready | None:
        card = await self._context.trigger_store.agent(name)
        if card is not None:
            return await asyncio.to_thread(self.of_card, card, tools)
        plans = [] if plans is None else plans
        if not plans:
            plans.append(await asyncio.to_thread(self._context.agents))
        try:
            agent = plans[0].get(name)
        except AgentNotFoundError as error:
            return Unready(error.reason, error.fix)
        return self._of_agent(plans[0], agent, tools)

    def of_card(self, card: AgentCard, tools: ToolPolicy | None = None) -> Unready | None:
        if not card.is_enabled:
            reason = f"the agent {card.name} is disabled"
            return Unready(reason, "enable the agent in its file, or with a request")
        try:
            policy = triggers.runner.policy_for(card, tools)
        except (HoraeError, ToolPolicyError) as error:
            return Unready(str(error), "correct its tool policy")
        return self._of_agent(self._settings, triggers.runner.agent_of(card), policy)

    def of_nobody(self) -> Unready | None:
        return self._of_agent(self._settings, triggers.runner.unnamed(), None)

    def _of_agent(
        self, registry: Registry, agent: Agent, tools: ToolPolicy | None
    ) -> Unready | None:
        if self._is_elsewhere and registry.command_of(agent):
            return None  # as above
        return registry.obstacle(agent, environ=os.environ, tools=tools)


def trigger_notes(found: Synced, broken: Iterable[Listed]) -> list[str]:
    """Return what is wrong with files of triggers, but for entries that are told as *broken*."""
    kept = tuple(f"{each.item.origin.file}:" for each in broken)
    return [f"{TRIGGER_FILES}{each}" for each in found.wrong if not each.startswith(kept)]


# The crew


def crew_source(
    config: Config,
    *,
    started_at: datetime,
    root: Path,  # paths in messages begin there
    **parts: Any,
) -> CrewSource | None:
    definition = config.crew_def or config.keeper_def
    if definition is None:
        return None
    single, lifecycle = None, config.lifecycle_def
    if config.crew_def is None:
        day = None if lifecycle is None else lifecycle.absolute()
        single = crew.source.SingleKeeper(definition.absolute(), day, config.keeper_interval)
    rhythm = crew.source.CrewCadence(
        started_at,
        config.crew_stagger,
        continuous=config.keeper_continuous,
        breather=config.keeper_breather,
        timeout=config.keeper_timeout,
        zone_name=config.zone or machine_zone().key,
    )
    return crew.source.CrewSource(definition.absolute(), rhythm, root=root, keeper=single, **parts)


def board_agents(config: Config) -> dict[str, Callable[[], Agent]]:
    """Return the agents that `board.command` is: one for each task that it may have at a time."""
    origin = Origin("horae.toml", 1)

    def agent(name: str) -> Agent:
        definition = AgentDefinition(name, name, "", command=config.board_command or ())
        return Agent(name, definition, origin, remedy="set board.command in horae.toml")

    return {name: partial(agent, name) for name in config.board_members}


# Which agents there are


def settings_registry(config: Config) -> Registry:
    return agents.runner.Registry(
        command=lambda: config.agent_command,
        provider=agents.runner.provider_of(os.environ, config.secrets),
        settings=settings_hint(config.root),
        root=Path(config.root).absolute(),
        secrets=secrets_of(config),
    )


@dataclass(slots=True)
class AgentLookup:
    config: Config
    registry: Registry
    say: Say  # gets why a definition that is no member's cannot be read
    keeper: str = ""  # the name of the single keeper, if there is one
    unread: list[tuple[Agent, Unready]] = field(default_factory=list)  # without a definition
    root: str = field(init=False)

    def __post_init__(self) -> None:
        self.root = os.path.abspath(self.config.root)

    def ticking(self) -> Iterator[Agent]:
        config = self.config
        if config.crew_def is not None:
            yield from self._crew(os.path.abspath(config.crew_def))
        elif config.keeper_def is not None:
            path = os.path.abspath(config.keeper_def)
            for each in self._defined(self._text(path), path, otherwise=KEEPER):
                self.keeper = self.keeper or each.name
                yield each

    def beneath(self) -> Iterator[Agent]:
        try:
            found = find_plans(self.root, most=self.config.plan_max_files)
        except HoraeError as error:
            self.say(error)
            return
        for path in found.plans:
            text = self._text(path, root=self.root)
            if text is not None and _TAG in text:
                yield from self._defined(text, path)

    def _crew(self, manifest: str) -> Iterator[Agent]:
        if not os.path.exists(manifest):
            self.say(crew.source.missing_manifest(self._short(manifest)))
            return
        text = self._text(manifest)
        if text is None:
            return
        beside, crew_file = os.path.dirname(manifest), self._short(manifest)
        manifested = crew.rules.parse_crew(text, crew_file)
        for finding in manifested.diagnostics:
            self.say(finding)
        names = {member.name for member in manifested.members}
        for name, odd in manifested.idlers:
            if name not in names:
                self._note_unread(name, Origin(crew_file, odd.line), odd.message, odd.fix or "")
        for member in manifested.members:
            path = os.path.normpath(os.path.join(beside, member.definition))
            try:
                text = read_plan(path, limit=self.config.plan_max_bytes).text
            except PlanFileError as error:
                origin, why = Origin(crew_file, member.line), f"{self._short(path)} {error.reason}"
                fix = f"write the file, or correct :DEF: at {origin}"
                self._note_unread(member.name, origin, why, fix)
                continue
            for found in self._defined(text, path, otherwise=member.name):
                own = replace(found.definition, timeout=member.timeout or found.definition.timeout)
                yield replace(found, name=member.name, definition=own)
                break

    def _note_unread(self, name: str, origin: Origin, reason: str, fix: str) -> None:
        agent = Agent(name, AgentDefinition(name, name, ""), origin)
        self.unread.append((agent, Unready(reason, fix)))

    def _defined(self, text: str | None, path: str, *, otherwise: str = "") -> Iterator[Agent]:
        """Yield the agents that a text defines; the one of a name *otherwise* is its first."""
        if text is None:
            return
        file, sections = self._short(path), [*agent_sections(read(text))]
        if not sections and otherwise:
            sections = [(1, text)]  # which says why it defines none
        for line, section in sections:
            try:
                definition = parse_agent(section, file)
            except AgentError as error:
                origin = Origin(error.file, error.line)
                if otherwise:  # the first definition is that of the member
                    self._note_unread(otherwise, origin, error.reason, error.fix)
                    return
                if all(origin != each.origin for each, _ in self.unread):
                    self.say(error)
                continue
            if name := definition.name or otherwise:
                yield Agent(name, definition, Origin(file, line))
            else:
                fix = "add :ID: with a name"
                self.say(AgentError(file, line, 1, reason="the agent has no name", fix=fix))

    def _text(self, path: str, *, root: str | None = None) -> str | None:
        try:
            return read_plan(path, root=root, limit=self.config.plan_max_bytes).text
        except HoraeError as error:
            self.say(error)
            return None

    def _short(self, path: str) -> str:
        return short_name(path, self.root)


def block_agents(
    known_agents: Callable[[], Registry],
    processes: Processes,
    place: RunSettings,
    trees: Trees,
    *,
    card: Callable[[str], Awaitable[AgentCard | None]] | None = None,
    accounts: Accounts | None = None,
) -> BlockAgents:
    async def find(name: str | None) -> tuple[AgentHost, Agent]:
        known = None if card is None or name is None else await card(name)
        registry = await asyncio.to_thread(known_agents)
        if known is not None:
            agent = triggers.runner.agent_of(known)
        else:
            agent = triggers.runner.unnamed() if name is None else registry.get(name)
        host = agents.runner.AgentHost(registry, processes, place, trees, accounts)
        return host, agent

    return agents.runner.BlockAgents(find)


def find_agents(
    config: Config, *, say: Say = lambda _: None, has_plans: bool = True
) -> AgentLookup:
    """Return the agents; the crew's first, since the manifest has the last word on a name."""
    said: set[str] = set()

    def once(
        error: HoraeError | Diagnostic,
    ) -> None:  # a definition may be read for several members
        if str(error) not in said:
            said.add(str(error))
            say(error)

    found = AgentLookup(config, settings_registry(config), once)
    members = (replace(each, is_member=True) for each in found.ticking())
    owners = (read_agent() for read_agent in board_agents(config).values())
    for each in chain(members, owners, found.beneath() if has_plans else ()):
        try:
            found.registry.add(each, environ=os.environ)
        except HoraeError as error:
            once(error)
    return found


# Guarded settings of a running engine, and their confirmation by a person


PULLING: Final = timedelta(seconds=10)  # so long git may have files of a commit it is not yet at


class TrustError(HoraeError, code="settings_trust", exit_code=Exit.UNAUTHORISED):
    def __init__(self, actor: str) -> None:
        self.actor = actor
        super().__init__(f"{actor_words(actor)} cannot confirm settings; only a user can")


@dataclass(eq=False)
class EngineSettings:
    """What counts of the `horae.toml` of a running engine; `notes` say what does not yet."""

    config: Config
    ledger: Ledger
    clock: Clock
    term: int
    changed: Callable[[], None]
    notes: tuple[str, ...] = ()
    _edited: dict[str, timedelta] = field(default_factory=dict)  # since when, if in no commit

    async def look(self) -> WaitingSettings:
        return await asyncio.to_thread(untrusted, self.config)

    async def trust(self, digest: str) -> TrustReport:
        actor = current_actor()
        if actor.startswith("agent:"):
            raise TrustError(actor)
        found = await asyncio.to_thread(confirm, self.config, digest)
        await self.refresh()
        self.changed()
        names = [each.name for each in found.waiting]
        hot = (*(each.name for each in SETTINGS if each.is_hot), f"{SECRETS}.")
        facts = {"settings": names, "commits": [*filter(None, (e.commit for e in found.waiting))]}
        if names:
            now = self.clock.now()
            await self.ledger.note("settings_trusted", now=now, term=self.term, facts=facts)
        cold = tuple(name for name in names if not name.startswith(hot))
        return TrustReport(found.digest, found.waiting, cold, self._is_clone)

    async def refresh(self) -> list[str]:
        from horae.files.git.layout import ArrivalsError

        own = self.config if self._is_clone else None
        try:
            written = await asyncio.to_thread(load, self.config.root, own=own)  # raises an error
            found = await asyncio.to_thread(untrusted, self.config)
            if await self._came_with_commit(found):
                found = await asyncio.to_thread(untrusted, self.config)
            said = [str(each) for each in found.waiting]
            waiting = {each.name for each in found.waiting}
            outdated = [each for each in self.config.outdated(written) if each[0] not in waiting]
            said += [outdated_words(*each) for each in outdated]
        except (SettingError, ArrivalsError) as error:  # half an edit, perhaps
            what = "; ".join(str(error).splitlines())
            said = [f"{what}; the engine keeps the settings that it started with"]
        before, self.notes = self.notes, tuple(f"settings: {each}" for each in said)
        return [each for each in self.notes if each not in before]

    @property
    def _is_clone(self) -> bool:
        return self.config.home != self.config.root

    async def _came_with_commit(self, found: WaitingSettings) -> bool:
        from horae.files.git.calls import GitError  # a command without an engine needs no git
        from horae.files.git.layout import arrivals_at, remember
        from horae.files.git.trees import Commits

        unknown = [each for each in found.waiting if not each.commit]
        if not unknown or self._is_clone:
            return False
        root = self.config.root
        try:
            local = tuple(self.config.git_local or ())
            revision = await Commits(Path(root).resolve(), local).of([FILE])
        except (GitError, OSError):
            revision = None
        if revision is None or FILE not in (revision.files or ()):
            self._edited.setdefault(found.digest, self.clock.elapsed())
            return False
        since = self._edited.get(found.digest)
        if since is not None and self.clock.elapsed() - since > PULLING:
            return False
        known = await asyncio.to_thread(arrivals_at, root)
        written = await asyncio.to_thread(guarded_in, self.config)
        if untrusted(self.config, written).digest != found.digest:  # it changed meanwhile
            return False
        noted = before_pull(self.config.trusted, written, known, revision.commit)
        await asyncio.to_thread(remember, root, after_pull(noted, written))
        return True
