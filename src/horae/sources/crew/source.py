"""The crew manifest as a source: each heading is an agent that ticks at its own interval.

The interval counts from the end of the last tick, so a restart does not reset it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import structs

from horae.core.agent import (
    Agent,
    AgentError,
    agent_name,
    agent_sections,
    check_agent,
    parse_agent,
)
from horae.core.budget import parse_budget
from horae.core.entry import DEFAULT, KEEPER, CadenceRule, Entry, Origin, Policy, Unarmed, Work
from horae.core.ports import RunError
from horae.core.source import Mark, Scan, Scanned
from horae.errors import HoraeError
from horae.files.read import PlanFileError, PlanMissingError, StrPath, read_plan, short_name
from horae.org.document import read
from horae.org.plan import Diagnostic, Severity
from horae.sources.crew import rules
from horae.sources.crew.lifecycle import check_gates, parse_lifecycle
from horae.timing.duration import first_delay, format_cadence, format_duration

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from horae.core.receipt import Filed

UNREAD: Final = "member-file"  # the code of an agent's unreadable file
_LONGEST: Final = 64  # bytes of the file of the last run


@dataclass(frozen=True, slots=True)
class CrewCadence:
    started_at: datetime
    stagger: timedelta = rules.STAGGER
    continuous: bool = False
    breather: timedelta = timedelta(seconds=45)
    timeout: timedelta | None = None
    zone_name: str = "UTC"  # for the periods of budgets


@dataclass(frozen=True, slots=True)
class SingleKeeper:
    definition: Path
    lifecycle: Path | None
    interval: timedelta

    def name(self) -> str:
        try:
            return agent_name(read_plan(self.definition).text)
        except PlanFileError:
            return ""

    def manifest(self, name: str) -> str:
        drawer = f":DEF: {self.definition}\n"
        drawer += f":INTERVAL: {format_cadence(self.interval)}\n"
        drawer += "" if self.lifecycle is None else f":LIFECYCLE: {self.lifecycle}\n"
        return f"* {name}\n:PROPERTIES:\n{drawer}:END:\n"


def missing_manifest(name: str) -> PlanMissingError:
    return PlanMissingError(name, "does not exist; write it, or correct the setting crew.def")


@dataclass(frozen=True, slots=True)
class Roster:
    manifest: Path  # relative paths of members start here
    root: Path = Path()  # messages name files relative to this

    def text(self) -> str:
        try:
            return read_plan(self.manifest).text
        except PlanMissingError:
            raise missing_manifest(self.name(self.manifest)) from None
        except PlanFileError as error:
            raise error.below(self.root) from None

    def members(self) -> tuple[rules.Member, ...]:
        return rules.parse_crew(self.text(), self.name(self.manifest)).members

    def agents(self) -> dict[str, Callable[[], Agent]]:
        return {each.name: partial(self.agent, each) for each in self.members()}

    def agent(self, member: rules.Member) -> Agent:
        path = self.beside(member.definition)
        try:
            text = read_plan(path).text
            definition = parse_agent(text, self.name(path))
        except AgentError as error:
            raise RunError(str(error)) from None
        except PlanFileError as error:
            raise RunError(str(error.below(self.root))) from None
        variables, timeout = definition.variables, member.timeout or definition.timeout
        definition = replace(definition, timeout=timeout)
        line = next((line for line, _ in agent_sections(read(text))), 1)
        origin = Origin(self.name(path), line)
        name, roles = member.name, member.roles
        return Agent(name, definition, origin, variables=variables, roles=roles, is_member=True)

    def beside(self, path: str) -> Path:
        return self.manifest.parent / path

    def name(self, path: Path) -> str:
        return short_name(path, self.root)


@dataclass(eq=False)
class CrewSource:
    manifest: StrPath
    rhythm: CrewCadence
    _: KW_ONLY
    root: Path | None = None  # of the plans
    data: Path | None = None
    keeper: SingleKeeper | None = None
    follow_up: Callable[[Filed], Awaitable[None]] | None = None
    inline: bool = False
    clock: Callable[[], datetime] | None = None
    name: str = field(default="crew", init=False)

    def __post_init__(self) -> None:
        self._roster = Roster(Path(self.manifest), self.root or Path())
        self._file = self._roster.name(self._roster.manifest)
        self._keeper_name = KEEPER  # from the last readable version of its file
        # The interval and the first tick of each address.
        self._firsts: dict[str, tuple[timedelta, datetime]] = {}

    async def scan(self, index: Mapping[str, str]) -> Scan:  # noqa: ARG002 - one small file
        return self._look() if self.inline else await asyncio.to_thread(self._look)

    async def settle(self, receipt: Filed) -> None:
        if self.follow_up is not None:
            await self.follow_up(receipt)

    def _look(self) -> Scan:
        """Read the manifest; while it is unreadable, known members stay."""
        if self.keeper is not None:
            self._keeper_name = self.keeper.name() or self._keeper_name
            return Scan(tuple(self._members(self.keeper.manifest(self._keeper_name))))
        roster = self._roster
        is_in_plan = self.root is not None and roster.manifest.is_relative_to(self.root)
        is_bare = False if is_in_plan else None
        try:
            text = roster.text()
        except PlanMissingError as error:
            return Scan((), problems=(error,), is_bare=True if is_in_plan else None)
        except PlanFileError as error:
            return Scan((), standing=("",), problems=(error,), is_bare=is_bare)
        entries = tuple(self._members(text))
        ticks = any(isinstance(each.item, Entry) for each in entries)
        reason = f"{self._file}: no agent ticks: the crew manifest lists none"
        fix = "add a heading for each agent, with a :DEF: that names its definition"
        idle = HoraeError(f"{reason}; {fix}", code="idle_crew", manifest=self._file)
        return Scan(entries, problems=() if ticks else (idle,), is_bare=is_bare)

    def _members(self, text: str) -> Iterator[Scanned]:
        crew, rhythm = rules.parse_crew(text, self._file), self.rhythm
        now = rhythm.started_at if self.clock is None else self.clock()
        before, self._firsts = self._firsts, {}  # a member that is removed and added again is new
        index = 0  # of new members, and those with a new interval
        for member in crew.members:
            address = f"agent:{member.name if self.keeper is None else KEEPER}"
            base = member.every(continuous=rhythm.continuous, breather=rhythm.breather)
            first = before.get(address)
            if first is None or first[0] != base:
                last_run_at = self._last_run_at(member.name)
                left = first_delay(base, None if last_run_at is None else now - last_run_at)
                # The stagger separates their first ticks, unless they continue an interval.
                least = first_delay(base, None) + index * rhythm.stagger
                first, index = (base, now + max(left, least)), index + 1
            self._firsts[address] = first
            digest = sha256(member.text.encode("utf-8", "surrogatepass")).hexdigest()
            policy = self._policy(member)
            entry = Entry(
                address,
                Origin(self._file, member.line),
                member.name,
                CadenceRule(*first),
                work=Work.TICK,
                agents=(member.name,),
                policy=policy,
                zone=self.rhythm.zone_name,
                digest=digest,
            )
            mark = Mark(address, member.name, f"every {format_duration(base)}", digest)
            yield Scanned(mark, entry, member.text, member.broken)
        for name, odd in crew.idlers:
            address, origin = f"idler:{name}:{odd.line}", Origin(self._file, odd.line)
            yield Scanned(Mark(address, name, "", ""), Unarmed(address, origin, name, odd.message))

    def _policy(self, member: rules.Member) -> Policy:
        own, timeout = DEFAULT, member.timeout
        with suppress(RunError):  # it cannot run, which `status` reports
            definition = self._roster.agent(member).definition
            own, timeout = definition.policy, definition.timeout
        timeout = timeout or self.rhythm.timeout
        budget = parse_budget(member.budget, self.rhythm.zone_name) if member.budget else ()
        return structs.replace(own, timeout=timeout, requires=member.requires, budget=budget)

    def _last_run_at(self, name: str) -> datetime | None:
        if self.data is None:
            return None
        file = rules.last_run_file(name if self.keeper is None else None)
        try:
            return rules.parse_seconds(read_plan(self.data / file, limit=_LONGEST).text)
        except PlanFileError:
            return None


def check_manifest(
    manifest: Path, *, continuous: bool = False, breather: timedelta = timedelta(seconds=45)
) -> list[Diagnostic]:
    file = str(manifest)
    try:
        text = read_plan(manifest).text
    except PlanFileError as error:
        return [_unread(file, error, "name the manifest in crew.def")]
    crew = rules.parse_crew(text, file)
    found = [*crew.diagnostics]
    for member in crew.members:
        every = member.every(continuous=continuous, breather=breather)

        def unread(error: PlanFileError, key: str, member: rules.Member = member) -> Diagnostic:
            message = f"the :{key}: of {member.name} cannot be read: {error}"
            fix = "write a path relative to the manifest, or an absolute path"
            return Diagnostic(file, member.line, 1, UNREAD, Severity.ERROR, message, fix)

        day = None if member.lifecycle is None else manifest.parent / member.lifecycle
        found += _check_agent(manifest.parent / member.definition, day, every, unread)
    place = attrgetter("file", "line", "column", "code")
    return sorted(dict.fromkeys(found), key=place)


def check_keeper(definition: Path, lifecycle: Path | None, *, every: timedelta) -> list[Diagnostic]:
    def unread(error: PlanFileError, key: str) -> Diagnostic:
        if key == "DEF":
            return _unread(str(definition), error, "name the agent file in keeper.def")
        return _unread(str(lifecycle), error, "name the lifecycle in lifecycle.def")

    return _check_agent(definition, lifecycle, every, unread)


def _check_agent(
    definition: Path,
    lifecycle: Path | None,
    every: timedelta,
    unread: Callable[[PlanFileError, str], Diagnostic],
) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    try:
        found += check_agent(read_plan(definition).text, str(definition))
    except PlanFileError as error:
        found.append(unread(error, "DEF"))
    if lifecycle is not None:
        try:
            day, odd = parse_lifecycle(read_plan(lifecycle).text, str(lifecycle))
            found += [*odd, *(check_gates(day, every=every) if day is not None else ())]
        except PlanFileError as error:
            found.append(unread(error, "LIFECYCLE"))
    return found


def _unread(file: str, error: PlanFileError, fix: str) -> Diagnostic:
    message = f"the file cannot be read: {error.reason}"
    return Diagnostic(file, 1, 1, UNREAD, Severity.ERROR, message, fix)
