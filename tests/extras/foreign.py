"""The times of another scheduler's rule, and how those of an entry compare with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from heapq import heappop, heappush
from itertools import islice
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from horae.core.entry import Entry
from horae.core.project import project
from horae.extras.importers.job import FAR
from horae.timing.cron import Cron
from horae.timing.zone import changes, zone

FIRES: Final = 50
_DAY: Final = timedelta(days=1)
_TINY: Final = timedelta(seconds=1)
_YEAR: Final = timedelta(days=366)
_AROUND: Final = timedelta(hours=4)  # a change and what it moves


class Gap(StrEnum):
    """What becomes of a time that the clock skips."""

    SKIPPED = "is skipped"
    AFTER = "runs at the first time after the change"
    SHIFTED = "runs later by the length of the change"


class Fold(StrEnum):
    """What becomes of a time that the clock shows twice."""

    FIRST = "runs only the first time"
    BOTH = "runs both times"


@dataclass(frozen=True, slots=True)
class ForeignRule:
    """A rule of another scheduler as our cron, and what that scheduler does at clock changes."""

    cron: str
    gap: Gap
    fold: Fold

    def times(self, zone_name: str, after: datetime, end: datetime = FAR) -> Iterator[datetime]:
        place, after = ZoneInfo(zone_name), after.astimezone(UTC)
        # A change near by moves wall times by its length.
        near = changes(place, after - _DAY, after + _DAY)
        moved = sum((abs(each.after - each.before) for each in near), timedelta())
        # The rule in UTC names what the wall shows, in each zone.
        start, stop = (at.astimezone(place).replace(tzinfo=UTC) for at in (after, end))
        coming: list[datetime] = []  # a clock change can turn the order of two times round
        last = after
        for wall in Cron(self.cron).between(start - moved, stop + _DAY):
            first, second = (wall.replace(tzinfo=place, fold=n).astimezone(UTC) for n in (0, 1))
            while coming and coming[0] < min(first, second):
                if (at := heappop(coming)) > end:
                    return
                if at > last:
                    yield (last := at)
            for at in self._instants(first, second, place):
                heappush(coming, at)
        yield from sorted({at for at in coming if last < at <= end})

    def _instants(self, first: datetime, second: datetime, place: ZoneInfo) -> tuple[datetime, ...]:
        """Return the times of a wall time that is *first* or, after a clock change, *second*."""
        if first == second or (first < second and self.fold is Fold.FIRST):
            return (first,)
        if first < second:
            return first, second
        match self.gap:
            case Gap.SKIPPED:
                return ()
            case Gap.SHIFTED:
                return (first,)
            case Gap.AFTER:
                return tuple(change.at for change in changes(place, second - _TINY, first))


def times_of(
    rules: Sequence[ForeignRule], zone_name: str, after: datetime, most: int, end: datetime = FAR
) -> list[datetime]:
    """Return the times of any of several rules after another, at most so many, up to *end*."""
    found = {at for rule in rules for at in islice(rule.times(zone_name, after, end), most)}
    return sorted(found)[:most]


def of_crontab(cron: str) -> ForeignRule:
    """Return a line of a crontab with what cron does at clock changes."""
    minute, hour, *_ = cron.split()
    if "*" in (minute[0], hour[0]):
        return ForeignRule(cron, Gap.SKIPPED, Fold.BOTH)
    return ForeignRule(cron, Gap.AFTER, Fold.FIRST)


def of_systemd(cron: str) -> ForeignRule:
    """Return what systemd 252 does: a time that is left out does not come."""
    return ForeignRule(cron, Gap.SKIPPED, Fold.FIRST)


def of_apscheduler(cron: str) -> ForeignRule:
    return ForeignRule(cron, Gap.SHIFTED, Fold.BOTH)


class OneSidedTime(NamedTuple):
    at: datetime
    is_ours: bool


@dataclass(frozen=True, slots=True)
class Proof:
    """How the times of a headline compare with those of the scheduler that it is from."""

    asked: int  # how many times of the other were compared
    equal: int
    differing: tuple[datetime, ...] = ()  # that only one of the two has
    seams: tuple[OneSidedTime, ...] = ()  # that differ because a clock changes, within a year
    moments: tuple[datetime, ...] = ()

    @property
    def holds(self) -> bool:
        return self.asked > 0 and not self.differing


def prove(entry: Entry, rules: Sequence[ForeignRule], *, now: datetime) -> Proof:
    """Compare the next times of an entry with those of rules of another scheduler.

    Without rules the entry has a timestamp, which means the same to both.
    """
    until = entry.policy.until or FAR

    def both(start: datetime, end: datetime) -> tuple[list[datetime], list[datetime]]:
        ours = [each.at for each in islice(project(entry, start, end), FIRES)]
        return ours, times_of(rules, entry.zone, start, FIRES, min(end, until)) if rules else ours

    ours, theirs = both(now, FAR)
    odd = _odd(ours, theirs)
    place = zone(entry.zone)
    near = [each.at for each in changes(place, now - _AROUND, now + _YEAR)]
    near += [each.at for at in odd for each in changes(place, at - _AROUND, at + _AROUND)]
    touched = {at for at in odd if any(abs(at - each) <= _AROUND for each in near)}
    # A clock change that the next times do not reach is looked at for itself.
    seams = {at: odd[at] for at in touched}
    for each in near:
        if each > now:
            seams |= _odd(*both(each - _AROUND, each + _AROUND))
    equal, differing = len(set(theirs) & set(ours)), tuple(sorted(odd.keys() - touched))
    found = tuple(OneSidedTime(at, is_ours=seams[at]) for at in sorted(seams))
    return Proof(len(theirs), equal, differing, found, tuple(theirs))


def _odd(ours: Sequence[datetime], theirs: Sequence[datetime]) -> dict[datetime, bool]:
    end = min(each[-1] if len(each) == FIRES else FAR for each in (ours, theirs))
    return {at: at in ours for at in set(ours) ^ set(theirs) if at <= end}
