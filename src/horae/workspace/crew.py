"""The crew manifest as a source: each heading is an agent that ticks on its own cadence.

The interval counts from the end of the last tick, which the ledger knows; the manifest
only says how long it is. So a restart goes on in the rhythm there was.
"""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from horae.engine.source import Scan
from horae.errors import ScheduleError
from horae.kernel.org.document import read
from horae.kernel.plan import is_id
from horae.rules.armed import Scanned
from horae.rules.entry import CadenceRule, Entry, Origin, Unarmed, Work
from horae.rules.identity import Mark
from horae.timing.duration import DurationError, parse_cadence
from horae.workspace.files import PlanFileError, read_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from horae.engine.ports import Filed
    from horae.kernel.plan import Headline
    from horae.workspace.files import StrPath

GRACE: Final = timedelta(seconds=60)  # after the engine's start, before the first tick
STAGGER: Final = timedelta(seconds=30)  # between the first ticks of two members
INTERVAL: Final = "1h"  # of a member that names none


class MemberError(ScheduleError):
    """A member of the crew that cannot tick."""

    code = "member"

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(reason)


class CrewSource:
    """The members of a crew, in the order of the manifest."""

    name = "crew"

    def __init__(
        self,
        manifest: StrPath,
        *,
        started_at: datetime,
        stagger: timedelta = STAGGER,
        inline: bool = False,
    ) -> None:
        self._manifest = os.fspath(manifest)
        self._first_at = started_at + GRACE
        self._stagger = stagger
        self._inline = inline

    async def scan(self, index: Mapping[str, str]) -> Scan:  # noqa: ARG002 - one small file
        """Return every member; one that cannot tick says why."""
        if self._inline:
            return self._look()
        return await asyncio.to_thread(self._look)

    async def settle(self, receipt: Filed) -> None:
        """Do nothing yet: the ledger keeps the cadence."""

    def _look(self) -> Scan:
        """Read the manifest; while it cannot be read, what is known of it stands."""
        try:
            content = read_plan(self._manifest)
        except PlanFileError as error:
            return Scan((), standing=("",), problems=(error,))
        return Scan(tuple(self._members(content.text)))

    def _members(self, text: str) -> Iterator[Scanned]:
        """Yield the members; each that can tick begins a stagger after the one before it."""
        first_at = self._first_at
        for headline, line, section in _sections(text):
            scanned = _member(headline, Origin(self._manifest, line), section, first_at)
            if scanned is None:
                continue
            if isinstance(scanned.item, Entry):
                first_at += self._stagger
            yield scanned


def _sections(text: str) -> Iterator[tuple[Headline, int, str]]:
    """Yield each heading of the first level, its line, and its text with all that is below."""
    plan = read(text)
    tops = [at for at, headline in enumerate(plan.headlines) if headline.level == 1]
    places = plan.places()
    for at, end in zip(tops, [*tops[1:], len(plan.headlines)], strict=True):
        section = "".join(headline.text for headline in plan.headlines[at:end])
        yield plan.headlines[at], places[at].line, section


def _member(headline: Headline, origin: Origin, section: str, first_at: datetime) -> Scanned | None:
    """Return the member that a heading is; None if it is only a heading in the text."""
    name, props = headline.title, headline.props
    if not is_id(name) and "DEF" not in props:
        return None
    interval = props.get("INTERVAL", INTERVAL)
    digest = sha256(section.encode("utf-8", "surrogatepass")).hexdigest()
    mark = Mark(f"agent:{name}", name, f"every {interval}", digest)
    try:
        base = _base(name, props, interval)
    except MemberError as error:
        return Scanned(mark, Unarmed(mark.address, origin, name, str(error)), section)
    rule = CadenceRule(base, first_at)
    entry = Entry(mark.address, origin, name, rule, work=Work.TICK, agents=(name,), digest=digest)
    return Scanned(mark, entry, section)


def _base(name: str, props: Mapping[str, str], interval: str) -> timedelta:
    """Return how long a member waits between two ticks; raises MemberError if it cannot tick."""
    if not is_id(name):
        reason = "a name is one word of letters, digits, dots, dashes and underscores"
        raise MemberError(name, reason)
    if not props.get("DEF"):
        raise MemberError(name, "it has no :DEF:; name the file that says who it is")
    try:
        return parse_cadence(interval)
    except DurationError as error:
        raise MemberError(name, f":INTERVAL: {error}") from None
