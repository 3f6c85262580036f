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

from horae.engine.source import Scan
from horae.rules.armed import Scanned
from horae.rules.crew import (
    STAGGER,
    first_delay,
    last_run_file,
    parse_crew,
    parse_seconds,
)
from horae.rules.entry import CadenceRule, Entry, Origin, Policy, Unarmed, Work
from horae.rules.identity import Mark
from horae.timing.duration import format_duration
from horae.workspace.files import PlanFileError, read_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from horae.engine.ports import Filed
    from horae.rules.crew import Member
    from horae.workspace.files import StrPath

KEEPER: Final = "keeper"  # the name of a single keeper


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How members tick that do not say it themselves, and when the engine started."""

    started_at: datetime
    stagger: timedelta = STAGGER
    continuous: bool = False
    breather: timedelta = timedelta(seconds=45)
    timeout: timedelta | None = None


class CrewSource:
    """The members of a crew, in the order of the manifest; or, with a text, a single keeper."""

    name = "crew"

    def __init__(
        self,
        manifest: StrPath,
        rhythm: Rhythm,
        *,
        data: Path | None = None,
        text: str | None = None,
        inline: bool = False,
    ) -> None:
        self._manifest = os.fspath(manifest)
        self._rhythm = rhythm
        self._data = data
        self._text = text
        self._inline = inline

    async def scan(self, index: Mapping[str, str]) -> Scan:  # noqa: ARG002 - one small file
        """Return every member; one that cannot tick says why."""
        if self._inline:
            return self._look()
        return await asyncio.to_thread(self._look)

    async def settle(self, receipt: Filed) -> None:
        """Do nothing: what follows a tick moved with its end."""

    def _look(self) -> Scan:
        """Read the manifest; while it cannot be read, what is known of it stands."""
        if self._text is not None:
            return Scan(tuple(self._members(self._text)))
        try:
            content = read_plan(self._manifest)
        except PlanFileError as error:
            return Scan((), standing=("",), problems=(error,))
        return Scan(tuple(self._members(content.text)))

    def _members(self, text: str) -> Iterator[Scanned]:
        """Yield the members; each that can tick begins a stagger after the one before it."""
        crew = parse_crew(text, self._manifest)
        for index, member in enumerate(crew.members):
            yield self._scanned(member, index)
        for idler in crew.idlers:
            mark = Mark(f"idler:{idler.name}:{idler.line}", idler.name, "", "")
            origin = Origin(self._manifest, idler.line)
            yield Scanned(mark, Unarmed(mark.address, origin, idler.name, idler.reason))

    def _scanned(self, member: Member, index: int) -> Scanned:
        """Return the entry of a member."""
        rhythm = self._rhythm
        base = member.every(continuous=rhythm.continuous, breather=rhythm.breather)
        digest = sha256(member.text.encode("utf-8", "surrogatepass")).hexdigest()
        mark = Mark(f"agent:{member.name}", member.name, f"every {format_duration(base)}", digest)
        wait = first_delay(
            base,
            self._last_run_at(member.name),
            now=rhythm.started_at,
            index=index,
            stagger=rhythm.stagger,
        )
        entry = Entry(
            mark.address,
            Origin(self._manifest, member.line),
            member.name,
            CadenceRule(base, rhythm.started_at + wait),
            work=Work.TICK,
            agents=(member.name,),
            policy=Policy(timeout=member.timeout or rhythm.timeout),
            digest=digest,
        )
        return Scanned(mark, entry, member.text)

    def _last_run_at(self, name: str) -> datetime | None:
        """Return when a file says that an agent last ran, if there is one."""
        if self._data is None:
            return None
        file = last_run_file(None if self._text is not None else name)
        try:
            return parse_seconds((self._data / file).read_bytes()[:64].decode())
        except (OSError, ValueError):
            return None


def single_keeper(definition: Path, *, lifecycle: Path | None, interval: timedelta) -> str:
    """Return the manifest of a crew of one, as the settings of a single keeper say it."""
    lines = [f":DEF: {definition}", f":INTERVAL: {interval // timedelta(milliseconds=1)}"]
    if lifecycle is not None:
        lines.append(f":LIFECYCLE: {lifecycle}")
    drawer = "\n".join(lines)
    return f"* {KEEPER}\n:PROPERTIES:\n{drawer}\n:END:\n"
