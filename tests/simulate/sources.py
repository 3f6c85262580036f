"""What the people of a simulated world have written: plans, a crew, a board and triggers.

All of it lies in memory and outlives every engine, as files do. Plans go through the real
reader; the other three are as small as a source can be, one for each kind of rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from horae.core.entry import (
    CadenceRule,
    CatchUp,
    Entry,
    OnceRule,
    Origin,
    Overlap,
    Policy,
    Retry,
    Work,
    cron_rule,
    key_time,
)
from horae.core.receipt import FINAL
from horae.core.source import Mark, Scan, Scanned
from horae.errors import HoraeError
from horae.org.document import read
from horae.sources.plans.arming import scan_plan
from simulate.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from horae.core.receipt import Filed
    from simulate.loop import Life
    from simulate.world import World

_FIRST: Final = timedelta(minutes=1)  # no tick comes sooner after a start
_STAGGER: Final = timedelta(seconds=30)


@dataclass(slots=True)
class Plans:
    """Org files by name; those in `broken` cannot be read now."""

    zone: str
    files: dict[str, str]
    broken: dict[str, None] = field(default_factory=dict)
    past: list[dict[str, str]] = field(default_factory=list)

    def write(self, file: str, text: str) -> None:
        """Save a file; what stood there can be brought back."""
        self.past.append(dict(self.files))
        del self.past[:-5]
        self.files[file] = text


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the crew: how often it ticks."""

    name: str
    base: timedelta


@dataclass(frozen=True, slots=True)
class Card:
    """A task of the board that comes back."""

    name: str
    cron: str
    zone: str = "UTC"


@dataclass(slots=True)
class Trigger:
    """A trigger: a cron expression, or a moment; which may be enabled more than once."""

    name: str
    when: str | datetime
    agent: str
    is_enabled: bool = True
    times: int = 1


@dataclass(slots=True)
class Written:
    """All that is written in one world."""

    plans: Plans
    crew: list[Member] = field(default_factory=list)
    board: list[Card] = field(default_factory=list)
    triggers: dict[str, Trigger] = field(default_factory=dict)


class _Source:
    """What the four have in common."""

    name = ""

    def __init__(self, world: World, life: Life) -> None:
        self._world = world
        self._life = life
        self._written = world.written

    async def settle(self, receipt: Filed) -> None:
        """Follow up a receipt, if the weather allows."""
        await self._world.breathe(self._life)
        if self._world.weather.strikes(Fault.SETTLE):
            self._world.unsettled[receipt.number] = None
            raise HoraeError(f"receipt {receipt.number} could not be followed up")
        self._world.unsettled.pop(receipt.number, None)
        self.follow_up(receipt)

    def follow_up(self, receipt: Filed) -> None:
        """Do what follows, which is nothing."""


class PlanSource(_Source):
    """The org plans, read with the real reader."""

    name = "org"

    async def scan(self, index: Mapping[str, str]) -> Scan:
        """Return the workflows of the files that have changed; the others stand."""
        plans = self._written.plans
        entries: list[Scanned] = []
        standing: list[str] = []
        problems: list[HoraeError] = []
        known: dict[str, str] = {}
        for file, text in sorted(plans.files.items()):
            digest = _digest(text)
            if file in plans.broken:
                standing.append(file)
                problems.append(HoraeError(f"{file} cannot be read"))
                if file in index:
                    known[file] = index[file]
                continue
            known[file] = digest
            if index.get(file) == digest:
                standing.append(file)
            else:
                entries += scan_plan(read(text), file=file, zone_name=plans.zone)
        await self._world.breathe(self._life)
        return Scan(tuple(entries), tuple(standing), tuple(problems), known)


class CrewSource(_Source):
    """The crew: one cadence for each member."""

    name = "crew"

    def __init__(self, world: World, life: Life) -> None:
        super().__init__(world, life)
        self._first_at = world.clock.now() + _FIRST

    async def scan(self, index: Mapping[str, str]) -> Scan:  # noqa: ARG002 - it is always read
        await self._world.breathe(self._life)
        return Scan(tuple(self._scanned(n, each) for n, each in enumerate(self._written.crew)))

    def _scanned(self, place: int, member: Member) -> Scanned:
        text = f"{member.name} {member.base}"
        rule = CadenceRule(member.base, self._first_at + place * _STAGGER)
        address = f"agent:{member.name}"
        entry = Entry(
            address,
            Origin("crew.org", place + 1),
            member.name,
            rule,
            work=Work.TICK,
            agents=(member.name,),
            digest=_digest(text),
        )
        return Scanned(Mark(address, member.name, str(member.base), _digest(text)), entry, text)


class BoardSource(_Source):
    """The board: tasks that come back by cron."""

    name = "board"

    async def scan(self, index: Mapping[str, str]) -> Scan:  # noqa: ARG002 - it is always read
        """Return every task that comes back."""
        await self._world.breathe(self._life)
        return Scan(tuple(map(self._scanned, self._written.board)))

    def _scanned(self, card: Card) -> Scanned:
        text = f"{card.name} {card.cron}"
        address = f"task:{card.name}"
        entry = Entry(
            address,
            Origin(f"{card.name}.md", 1),
            card.name,
            cron_rule(card.cron, zone_name=card.zone),
            work=Work.RECYCLE,
            policy=Policy(overlap=Overlap.QUEUE),
            zone=card.zone,
            digest=_digest(text),
        )
        return Scanned(Mark(address, card.name, card.cron, _digest(text)), entry, text)


class TriggerSource(_Source):
    """The triggers: cron without catch-up, and delays that end when they have run."""

    name = "trigger"

    async def scan(self, index: Mapping[str, str]) -> Scan:  # noqa: ARG002 - it is always read
        await self._world.breathe(self._life)
        enabled = (each for each in self._written.triggers.values() if each.is_enabled)
        return Scan(tuple(map(self._scanned, enabled)))

    def follow_up(self, receipt: Filed) -> None:
        """Disable a delay that has had its run."""
        key = receipt.receipt.key
        if receipt.status in FINAL and key.startswith("delay:"):
            name, _, times = key.removeprefix("delay:").partition(":")
            trigger = self._written.triggers.get(name)
            if trigger is not None and trigger.times == int(times or 1) and trigger.is_enabled:
                trigger.is_enabled = False
                self._world.request(self.name)

    def _scanned(self, trigger: Trigger) -> Scanned:
        when = trigger.when
        policy = Policy(catchup=CatchUp.NONE, retry=Retry(2, timedelta(seconds=30)))
        address = f"trigger:{trigger.name}"
        if isinstance(when, datetime):
            times = "" if trigger.times == 1 else f":{trigger.times}"
            rule, shown = OnceRule(when, f"{trigger.name}{times}"), f"{key_time(when)}{times}"
        else:
            rule, shown = cron_rule(when, zone_name="UTC"), when  # type: ignore[assignment]
        text = f"{trigger.name} {shown}"
        entry = Entry(
            address,
            Origin("triggers", 1),
            trigger.name,
            rule,
            work=Work.PROMPT,
            agents=(trigger.agent,),
            policy=policy,
            digest=_digest(text),
        )
        return Scanned(Mark(address, trigger.name, shown, _digest(text)), entry, text)


SOURCES: Final = (PlanSource, CrewSource, BoardSource, TriggerSource)


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
