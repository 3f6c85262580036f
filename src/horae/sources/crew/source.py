"""The crew manifest as a source: each heading is an agent that ticks on its own cadence.

The interval counts from the end of the last tick, which the ledger knows; the manifest
only says how long it is. So a restart goes on in the rhythm there was. A ledger that knows
nothing yet begins with the time in the file of the last run.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from horae.core.entry import CadenceRule, Entry, Origin, Policy, Unarmed, Work
from horae.core.identity import Mark
from horae.core.ports import RunError
from horae.core.source import Scan, Scanned
from horae.errors import HoraeError
from horae.files.read import PlanFileError, PlanMissingError, read_plan
from horae.org.plan import Diagnostic, Severity
from horae.sources.agents.rules import AgentError, agent_name, check_agent, parse_agent
from horae.sources.agents.runner import Agent
from horae.sources.crew.check import UNREAD, NamedFile, check_crew, check_day
from horae.sources.crew.rules import (
    STAGGER,
    first_delay,
    last_run_file,
    parse_crew,
    parse_seconds,
)
from horae.timing.duration import format_duration

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from horae.core.receipt import Filed
    from horae.files.read import StrPath
    from horae.sources.crew.rules import Member

KEEPER: Final = "keeper"  # a single keeper: its address, and its name if its file gives it none
_LONGEST: Final = 64  # bytes of the file of the last run


@dataclass(frozen=True, slots=True)
class CrewCadence:
    """How members tick that do not say it themselves, and when the engine started."""

    started_at: datetime
    stagger: timedelta = STAGGER
    continuous: bool = False
    breather: timedelta = timedelta(seconds=45)
    timeout: timedelta | None = None


class IdleCrewError(HoraeError):
    """A manifest in which nobody ticks."""

    code = "idle_crew"

    def __init__(self, manifest: str) -> None:
        self.manifest = manifest
        super().__init__(
            f"{manifest}: no agent ticks: the crew manifest lists none; "
            "add a heading for each agent, with a :DEF: that names its definition"
        )


@dataclass(frozen=True, slots=True)
class SingleKeeper:
    """A crew of one, as the settings say it; its file says what it is called."""

    definition: Path
    lifecycle: Path | None
    interval: timedelta

    def name(self) -> str:
        """Return what its file calls it; nothing if that cannot be read, or gives it no name."""
        try:
            return agent_name(read_plan(self.definition).text)
        except PlanFileError:
            return ""

    def manifest(self, name: str) -> str:
        lines = [f":DEF: {self.definition}"]
        lines.append(f":INTERVAL: {self.interval // timedelta(milliseconds=1)}")
        if self.lifecycle is not None:
            lines.append(f":LIFECYCLE: {self.lifecycle}")
        drawer = "\n".join(lines)
        return f"* {name}\n:PROPERTIES:\n{drawer}\n:END:\n"


@dataclass(frozen=True, slots=True)
class Roster:
    """The members of a manifest, or of a text that stands for one."""

    manifest: Path  # relative paths of members begin beside it
    text: str | None = None

    def members(self) -> tuple[Member, ...]:
        """Return the members in their order; raises PlanFileError if that cannot be read."""
        text = read_plan(self.manifest).text if self.text is None else self.text
        return parse_crew(text, str(self.manifest)).members

    def agent(self, member: Member) -> Agent:
        """Return who a member is, as its definition says now; raises RunError."""
        path = self.beside(member.definition)
        try:
            definition = parse_agent(read_plan(path).text, str(path))
        except (PlanFileError, AgentError) as error:
            raise RunError(str(error)) from None
        return Agent(member.name, definition, Origin(str(path), 1), variables=definition.variables)

    def beside(self, path: str) -> Path:
        """Return where a path of the manifest leads."""
        return self.manifest.parent / path


class NoCrew:
    """The source of a plan root whose settings name no crew: its members, if any, are removed."""

    name = "crew"

    async def scan(self, index: Mapping[str, str]) -> Scan:  # noqa: ARG002
        return Scan(())

    async def settle(self, receipt: Filed) -> None:
        pass


class CrewSource:
    """The members of a crew, in the order of the manifest; or a single keeper."""

    name = "crew"

    def __init__(
        self,
        manifest: StrPath,
        rhythm: CrewCadence,
        *,
        data: Path | None = None,
        keeper: SingleKeeper | None = None,
        follow_up: Callable[[Filed], Awaitable[None]] | None = None,
        inline: bool = False,
        now: Callable[[], datetime] | None = None,
        is_in_plan: bool = False,
    ) -> None:
        self._manifest = os.fspath(manifest)
        self._rhythm = rhythm
        self._data = data
        self._keeper = keeper
        self._keeper_name = KEEPER  # as its file said when it could be read last
        self._follow_up = follow_up
        self._inline = inline
        self._now = now
        self._is_in_plan = is_in_plan  # whether the manifest stands beneath the plan root
        # By address: how often it ticks, and when first.
        self._firsts: dict[str, tuple[timedelta, datetime]] = {}

    async def scan(self, index: Mapping[str, str]) -> Scan:  # noqa: ARG002 - one small file
        """Return every member; one that cannot tick says why."""
        if self._inline:
            return self._look()
        return await asyncio.to_thread(self._look)

    async def settle(self, receipt: Filed) -> None:
        """Let the files of an agent's state follow; all else moved with the end of its tick."""
        if self._follow_up is not None:
            await self._follow_up(receipt)

    def _look(self) -> Scan:
        """Read the manifest; while it is there and cannot be read, what is known of it stands."""
        if self._keeper is not None:
            self._keeper_name = self._keeper.name() or self._keeper_name
            return Scan(tuple(self._members(self._keeper.manifest(self._keeper_name))))
        is_bare = False if self._is_in_plan else None
        try:
            content = read_plan(self._manifest)
        except PlanMissingError as error:
            return Scan((), problems=(error,), is_bare=True if self._is_in_plan else None)
        except PlanFileError as error:
            return Scan((), standing=("",), problems=(error,), is_bare=is_bare)
        entries = tuple(self._members(content.text))
        ticks = any(isinstance(each.item, Entry) for each in entries)
        problems = () if ticks else (IdleCrewError(self._manifest),)
        return Scan(entries, problems=problems, is_bare=is_bare)

    def _members(self, text: str) -> Iterator[Scanned]:
        """Yield the members; each that can tick begins a stagger after the one before it."""
        crew = parse_crew(text, self._manifest)
        self._begin(crew.members)
        for member in crew.members:
            yield self._scanned(member)
        for idler in crew.idlers:
            mark = Mark(f"idler:{idler.name}:{idler.line}", idler.name, "", "")
            origin = Origin(self._manifest, idler.line)
            yield Scanned(mark, Unarmed(mark.address, origin, idler.name, idler.reason))

    def _begin(self, members: Sequence[Member]) -> None:
        """Say when each member that is new, or ticks otherwise now, may first tick."""
        there = {self._address(each) for each in members}
        # Who leaves and comes back is new.
        self._firsts = {name: first for name, first in self._firsts.items() if name in there}
        known = {name: base for name, (base, _) in self._firsts.items()}
        new = [each for each in members if known.get(self._address(each)) != self._base(each)]
        rhythm = self._rhythm
        now = rhythm.started_at if self._now is None else self._now()
        for index, member in enumerate(new):
            base = self._base(member)
            left = first_delay(base, self._last_run_at(member.name), now=now)
            # The stagger keeps them apart at the start; who is in the middle of an interval is.
            least = first_delay(base, None, now=now, index=index, stagger=rhythm.stagger)
            self._firsts[self._address(member)] = base, now + max(left, least)

    def _address(self, member: Member) -> str:
        """Return where a member stands; a single keeper stays the same, however it is called."""
        return f"agent:{member.name if self._keeper is None else KEEPER}"

    def _base(self, member: Member) -> timedelta:
        rhythm = self._rhythm
        return member.every(continuous=rhythm.continuous, breather=rhythm.breather)

    def _scanned(self, member: Member) -> Scanned:
        address = self._address(member)
        base, first_at = self._firsts[address]
        digest = sha256(member.text.encode("utf-8", "surrogatepass")).hexdigest()
        mark = Mark(address, member.name, f"every {format_duration(base)}", digest)
        entry = Entry(
            mark.address,
            Origin(self._manifest, member.line),
            member.name,
            CadenceRule(base, first_at),
            work=Work.TICK,
            agents=(member.name,),
            policy=Policy(timeout=member.timeout or self._rhythm.timeout, requires=member.requires),
            digest=digest,
        )
        return Scanned(mark, entry, member.text, member.broken)

    def _last_run_at(self, name: str) -> datetime | None:
        """Return when a file says that an agent last ran, if there is one."""
        if self._data is None:
            return None
        file = last_run_file(name if self._keeper is None else None)
        try:
            return parse_seconds(read_plan(self._data / file, limit=_LONGEST).text)
        except PlanFileError:
            return None


def member_names(manifest: Path | None) -> tuple[str, ...]:
    """Return who can be given a task; nobody is known without a manifest that can be read."""
    if manifest is None:
        return ()
    try:
        text = read_plan(manifest).text
    except PlanFileError:
        return ()
    return tuple(member.name for member in parse_crew(text, str(manifest)).members)


def check_manifest(
    manifest: Path, *, continuous: bool = False, breather: timedelta = timedelta(seconds=45)
) -> list[Diagnostic]:
    """Return what is odd in a crew's manifest and in the files of its members."""
    file = str(manifest)
    try:
        text = read_plan(manifest).text
    except PlanFileError as error:
        return [_unread(file, error, "name the manifest in crew.def")]
    named = [
        path
        for member in parse_crew(text).members
        for path in (member.definition, member.lifecycle)
        if path is not None
    ]
    pages = {path: _page(manifest.parent / path) for path in dict.fromkeys(named)}
    return check_crew(text, file, pages, continuous=continuous, breather=breather)


def check_keeper(definition: Path, lifecycle: Path | None, *, every: timedelta) -> list[Diagnostic]:
    """Return what is odd in the files of a single keeper."""
    found: list[Diagnostic] = []
    page = _page(definition)
    if page.text is None:
        found.append(_unread(page.name, page.problem, "name the agent file in keeper.def"))
    else:
        found += check_agent(page.text, page.name)
    day = None if lifecycle is None else _page(lifecycle)
    if day is not None and day.text is None:
        found.append(_unread(day.name, day.problem, "name the lifecycle in lifecycle.def"))
    elif day is not None:
        found += check_day(day, every=every)
    return found


def _page(path: Path) -> NamedFile:
    """Return what stands in a file, or why that is not known."""
    try:
        return NamedFile(str(path), read_plan(path).text)
    except PlanFileError as error:
        return NamedFile(str(path), None, str(error))


def _unread(file: str, why: object, fix: str) -> Diagnostic:
    """Return the finding that a file cannot be read."""
    return Diagnostic(file, 1, 1, UNREAD, Severity.ERROR, f"the file cannot be read: {why}", fix)
