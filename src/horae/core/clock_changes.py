"""Local times of rules that a clock change skips or repeats."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

from horae.core.entry import CronRule, OnceRule, RepeaterRule
from horae.timing.cron import Cron
from horae.timing.repeater import RepeaterKind, Unit
from horae.timing.zone import changes, zone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from horae.core.entry import Rule
    from horae.timing.repeater import Repeater
    from horae.timing.zone import ClockChange

_UTC = ZoneInfo("UTC")
_SECOND = timedelta(seconds=1)


class Seam(NamedTuple):
    """A time on the wall that a clock change touches, and what becomes of it."""

    wall: datetime
    change: ClockChange
    is_fixed: bool  # it names a time of day, so that it still comes, once
    zone: str

    def __str__(self) -> str:
        day, time = f"{self.wall:%Y-%m-%d}", f"{self.wall:%H:%M}"
        if not self.change.is_gap:
            what = "the first time only" if self.is_fixed else "both times"
            return f"{time} occurs twice on {day} in {self.zone}: runs {what}"
        if not self.is_fixed:
            return f"{time} does not exist on {day} in {self.zone}: skipped"
        after = (self.change.at + self.change.after).replace(tzinfo=None)
        return f"{time} does not exist on {day} in {self.zone}: runs at {after:%H:%M} instead"


def seams(rule: Rule, *, zone_name: str, start: datetime, end: datetime) -> Iterator[Seam]:
    """Yield the first time of a rule that each clock change of a window touches.

    A rule that runs every hour is not meant: to it no hour is special.
    """
    if isinstance(rule, OnceRule):
        return
    if isinstance(rule, RepeaterRule) and _is_any_hour(rule.repeater):
        return
    for change in changes(zone(zone_name), start, end):
        before, after = change.at + change.before, change.at + change.after
        low, high = (min(before, after) - _SECOND), (max(before, after) - _SECOND)
        for wall, is_fixed in _walls(rule, low, high):
            yield Seam(wall, change, is_fixed, zone_name)
            break


def _walls(rule: Rule, low: datetime, high: datetime) -> Iterator[tuple[datetime, bool]]:
    """Yield the local times of a rule in a window; the wall is taken for UTC."""
    match rule:
        case CronRule(crons):
            for cron in crons:
                if not _is_hourly(cron):
                    walls = Cron(cron.expression).between(low, high)
                    yield from ((at.replace(tzinfo=None), not cron.has_star_time) for at in walls)
        case RepeaterRule(anchor, repeater):
            for at in repeater.between(anchor, low, high, zone=_UTC):
                yield at.astimezone(UTC).replace(tzinfo=None), True
        case _:
            return


def _is_any_hour(repeater: Repeater) -> bool:
    return repeater.unit is Unit.HOUR and (
        repeater.count == 1 or repeater.kind is RepeaterKind.RESTART
    )


def _is_hourly(cron: Cron) -> bool:
    fields = cron.expression.split()
    if len(fields) < 5:
        return fields[0].lower() == "@hourly"
    return "*" in fields[1 if len(fields) == 5 else 2]
