"""The moments of a foreign rule, found the slow way: by walking along the clock.

A rule is sets of numbers and a question about days; the walk goes forward in UTC, looks at
what the wall of the zone shows, and asks the rule. It shares nothing with the evaluator that
it is compared with: neither its reader, nor its calendar, nor how it treats clock changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
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
_FARTHEST: Final = 400  # days that are looked at in one go
_EVERY_MONTH: Final = frozenset(range(1, 13))
Days: TypeAlias = Callable[[date], bool]


class Gap(StrEnum):
    """What becomes of a time that the clock leaves out."""

    SKIPPED = "is left out"
    AFTER = "comes at the first moment after the change"
    SHIFTED = "comes as much later as the clock jumps"


class Fold(StrEnum):
    """What becomes of a time that the clock shows twice."""

    FIRST = "comes the first time only"
    BOTH = "comes both times"


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
        block = after.replace(minute=0, second=0, microsecond=0)
        last = min(after.year + _PATIENCE, 9990)
        if self.years is not None:
            last = min(last, max(self.years, default=0) + 1)
        while block.year <= last and (end is None or block <= end):
            if jump := self._jump(block.astimezone(place)):
                block += jump
                continue
            yield from (at for at in self._within(block, place) if at > after)
            block += _HOUR

    def _jump(self, wall: datetime) -> timedelta | None:
        """Return for how long nothing can come; a margin keeps clock changes out of it."""
        day = wall.date()
        if self._has(day) or self._has(day + _DAY):
            return None
        ahead = 2
        while ahead < _FARTHEST and not self._has(day + ahead * _DAY):
            ahead += 1
        return ahead * _DAY - timedelta(hours=wall.hour + 3)

    def _within(self, block: datetime, place: ZoneInfo) -> Iterator[datetime]:
        """Yield the moments of one hour of UTC."""
        first, last = block.astimezone(place), (block + _HOUR - _SECOND).astimezone(place)
        before = (block - _SECOND).astimezone(place)
        is_quiet = before.utcoffset() == first.utcoffset() == last.utcoffset()
        if is_quiet and first.hour not in self.hours and last.hour not in self.hours:
            # What a jump moves into this hour was left out of one just before it.
            if self.gap is not Gap.SHIFTED:
                return
            if (block - 3 * _HOUR).astimezone(place).utcoffset() == first.utcoffset():
                return
        step = _MINUTE if self.seconds == {0} else _SECOND
        at = block
        while at < block + _HOUR:
            if self._fires(at, step, place):
                yield at
            at += step

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
