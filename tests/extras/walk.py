"""The moments of a foreign rule, found the slow way: by walking along the clock.

A rule is sets of numbers and a question about days; the walk goes forward in UTC, looks at
what the wall of the zone shows, and asks the rule. It shares nothing with the evaluator that
it is compared with: neither its reader, nor its calendar, nor how it treats clock changes.
"""

from __future__ import annotations

from bisect import bisect_left
from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

_HOUR: Final = timedelta(hours=1)
_MINUTE: Final = timedelta(minutes=1)
_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)
_PATIENCE: Final = 250  # years; 50 leap days take 200
_EVERY_MONTH: Final = frozenset(range(1, 13))
# A rule may ask for a day's number, its weekday and the length of its month, and nothing else.
Days: TypeAlias = Callable[[date], bool]
# A month of each kind, by the weekday of its first day and its length: there are 28.
_KINDS: Final = {
    monthrange(year, month): date(year, month, 1)
    for year in range(2000, 2028)
    for month in range(1, 13)
}


class Gap(StrEnum):
    """What becomes of a time that the clock leaves out."""

    SKIPPED = "is skipped"
    AFTER = "runs at the first time after the change"
    SHIFTED = "runs later by the length of the change"


class Fold(StrEnum):
    """What becomes of a time that the clock shows twice."""

    FIRST = "runs only the first time"
    BOTH = "runs both times"


@dataclass(frozen=True, slots=True)
class Walk:
    """A rule of another scheduler, and how it takes clock changes."""

    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    is_day: Days
    gap: Gap
    fold: Fold
    months: frozenset[int] = _EVERY_MONTH
    years: frozenset[int] | None = None

    def is_time(self, wall: datetime) -> bool:
        """Whether the time of day is one of the rule's."""
        return (
            wall.second in self.seconds and wall.minute in self.minutes and wall.hour in self.hours
        )

    def is_met(self, wall: datetime) -> bool:
        """Whether a clock that shows this time is at a moment of the rule."""
        return self.is_time(wall) and self._has(wall.date())

    def _has(self, day: date) -> bool:
        return (
            day.month in self.months
            and (self.years is None or day.year in self.years)
            and self.is_day(day)
        )

    def moments(
        self, zone_name: str, after: datetime, end: datetime | None = None
    ) -> Iterator[datetime]:
        """Yield the moments after another, in UTC and in order, for as long as is bearable."""
        place = ZoneInfo(zone_name)
        after = after.astimezone(UTC)
        start = after.replace(hour=0, minute=0, second=0, microsecond=0)
        last = min(after.year + _PATIENCE, 9990)
        if self.years is not None:
            last = min(last, max(self.years, default=0) + 1)
        coming: date | None = None
        while start.year <= last and (end is None or start <= end):
            offset = _offset(zone_name, start)
            # A day of UTC holds two of the zone, and what a clock change moves from one before.
            day = start.astimezone(place).date()
            first = day if offset is not None else day - _DAY
            if coming is None or coming < first:
                coming = self._next_day(first, last + 1)
            if coming is None:
                return
            if (ahead := (coming - day).days) > 1:
                start += (ahead - 1) * _DAY
                continue
            if offset is not None:
                yield from self._plain(start, start + _DAY, offset, after)
            else:
                for hour in range(24):
                    yield from self._within(start + hour * _HOUR, place, after)
            start += _DAY

    def _next_day(self, day: date, last: int) -> date | None:
        """Return the first day of the rule from a day on, up to the end of a year."""
        for year in range(day.year, last + 1):
            if self.years is not None and year not in self.years:
                continue
            for month in sorted(self.months):
                if (year, month) < (day.year, day.month):
                    continue
                days = _days_of(self.is_day, *monthrange(year, month))
                is_first = (year, month) == (day.year, day.month)
                if (at := bisect_left(days, day.day if is_first else 1)) < len(days):
                    return date(year, month, days[at])
        return None

    def _plain(
        self, start: datetime, end: datetime, offset: timedelta, after: datetime
    ) -> Iterator[datetime]:
        """Yield the moments of a while in which the clock does not change."""
        low = max(start, after + _SECOND)
        minutes, seconds = sorted(self.minutes), sorted(self.seconds)
        day = (start + offset).date()
        while (begin := datetime(day.year, day.month, day.day, tzinfo=UTC) - offset) < end:
            for hour in sorted(self.hours) if self._has(day) else ():
                block = begin + hour * _HOUR
                if block + _HOUR <= low or block >= end:
                    continue
                for minute in minutes:
                    for second in seconds:
                        at = block + timedelta(minutes=minute, seconds=second)
                        if low <= at < end:
                            yield at
            day += _DAY

    def _within(self, block: datetime, place: ZoneInfo, after: datetime) -> Iterator[datetime]:
        """Yield the moments of one hour of UTC on a day on which the clock changes."""
        # What a jump moves was left out of an hour just before, and a fold is as short.
        looks = (block - 3 * _HOUR, block - _SECOND, block, block + _HOUR - _SECOND)
        offsets = {each.astimezone(place).utcoffset() for each in looks}
        if len(offsets) == 1 and (offset := offsets.pop()) is not None:
            yield from self._plain(block, block + _HOUR, offset, after)
            return
        if self.hours.isdisjoint(_hours_around(block, place)):
            return
        step = _MINUTE if self.seconds == {0} else _SECOND
        for minute in range(60):
            shown = (block + timedelta(minutes=minute)).astimezone(place).minute
            near = {(shown + shift) % 60 for shift in (0, 15, 30, 45)}  # as clocks are shifted
            if self.gap is not Gap.AFTER and self.minutes.isdisjoint(near):
                continue
            for second in sorted(self.seconds | {0}):  # a change comes with a whole minute
                at = block + timedelta(minutes=minute, seconds=second)
                if at > after and self._fires(at, step, place):
                    yield at

    def _fires(self, at: datetime, step: timedelta, place: ZoneInfo) -> bool:
        local = at.astimezone(place)
        wall = local.replace(tzinfo=None, fold=0)
        is_again = bool(local.fold) and self.fold is Fold.FIRST
        if self.is_met(wall) and not is_again:
            return True
        if self.gap is Gap.AFTER:
            earlier = (at - step).astimezone(place).replace(tzinfo=None, fold=0)
            return any(map(self.is_met, _left_out(earlier, wall, step)))
        return self.gap is Gap.SHIFTED and self._was_shifted(at, local, place)

    def _was_shifted(self, at: datetime, local: datetime, place: ZoneInfo) -> bool:
        """Whether this is where a time that was left out has come to stand."""
        offset, earlier = local.utcoffset(), (at - 3 * _HOUR).astimezone(place).utcoffset()
        assert offset is not None
        assert earlier is not None
        if earlier >= offset:
            return False
        meant = local.replace(tzinfo=None, fold=0) - (offset - earlier)
        exists = meant.replace(tzinfo=place).astimezone(UTC).astimezone(place)
        return exists.replace(tzinfo=None) != meant and self.is_met(meant)


@lru_cache(maxsize=20_000)
def _days_of(is_day: Days, weekday: int, length: int) -> tuple[int, ...]:
    """Return the days of a month that a rule takes, by the month's first weekday and length."""
    first = _KINDS[weekday, length]
    return tuple(n for n in range(1, length + 1) if is_day(first.replace(day=n)))


@lru_cache(maxsize=20_000)
def _offset(zone_name: str, start: datetime) -> timedelta | None:
    """Return how far a zone is from UTC on a day and around it; None if that changes."""
    place = ZoneInfo(zone_name)
    looks = (start + hours * _HOUR for hours in (-6, 0, 6, 12, 18, 24))
    offsets = {each.astimezone(place).utcoffset() for each in looks}
    return offsets.pop() if len(offsets) == 1 else None


def _hours_around(block: datetime, place: ZoneInfo) -> set[int]:
    """Return the hours that a clock shows or leaves out in an hour of UTC and those before."""
    first, last = (
        (block + hours * _HOUR).astimezone(place).replace(tzinfo=None) for hours in (-4, 1)
    )
    return {(first + n * _HOUR).hour for n in range((last - first) // _HOUR + 2)}


def _left_out(earlier: datetime, wall: datetime, step: timedelta) -> Iterator[datetime]:
    """Yield the wall times that the clock jumped over between two looks at it."""
    missing = earlier + step
    while missing < wall:
        yield missing
        missing += step


def merged(
    walks: tuple[Walk, ...], zone_name: str, after: datetime, most: int, end: datetime | None
) -> list[datetime]:
    """Return the first moments of any of several rules, each once."""
    found = {at for walk in walks for at in islice(walk.moments(zone_name, after, end), most)}
    return sorted(at for at in found if end is None or at <= end)[:most]
