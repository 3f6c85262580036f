"""How many moments cron rules name in a window: between two clock changes, by the bits of days."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import compress
from operator import or_
from typing import TYPE_CHECKING, Final, NamedTuple
from zoneinfo import ZoneInfo

from horae.timing.cron import Cron, in_utc
from horae.timing.cron_words import bits
from horae.timing.zone import changes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import tzinfo

_SECOND: Final = timedelta(seconds=1)
_DAY_LONG: Final = timedelta(days=1)


def count_any(crons: Sequence[Cron], start: datetime, end: datetime) -> int:
    """Return how many moments after start, up to and with end, any of the rules of a zone names."""
    first = _after_whole_second(in_utc(crons[0]._local(start, "count")))
    last = _after_whole_second(in_utc(crons[0]._local(end, "count")))
    walls = _Walls(crons)
    starred = _Walls([cron for cron in crons if cron._starred])
    fixed = _Walls([cron for cron in crons if not cron._starred])
    total = 0
    for stretch in _stretches(first, last, crons[0]._tzinfo):
        begin, until = max(first, stretch.start), min(last, stretch.end)
        if begin >= until:
            continue
        low, high = begin + stretch.offset, until + stretch.offset
        if stretch.before is None:
            total += walls.count(low, high)
            continue
        was, now = stretch.start + stretch.before, stretch.start + stretch.offset
        if now > was and begin == stretch.start and not walls.count(now, now + _SECOND):
            total += fixed.count(was, now) > 0
        # On the second pass of a fold only rules with a star come again.
        again = min(max(low, was), high)
        total += starred.count(low, again) + walls.count(again, high)
    return total


class _Walls:
    """The wall times that any of several rules names, counted a day at a time."""

    def __init__(self, crons: Sequence[Cron]) -> None:
        self._crons = crons
        self._times = [_times(cron) for cron in crons]
        self._each: dict[tuple[bool, ...], tuple[int, int]] = {}

    def count(self, low: datetime, high: datetime) -> int:
        low, high = max(low, _FIRST_WALL), min(high, _AFTER_LAST_WALL)
        if low >= high or not self._crons:
            return 0
        return self._days(low, high) + self._before(high) - self._before(low)

    def _days(self, low: datetime, high: datetime) -> int:
        total = 0
        year, month = low.year, low.month
        while (year, month) <= (high.year, high.month):
            first = low.day if (year, month) == (low.year, low.month) else 1
            last = high.day if (year, month) == (high.year, high.month) else 32
            window = (1 << last) - (1 << first)
            held = [cron._days_in(year, month) & window for cron in self._crons]
            if len(held) == 1:
                total += held[0].bit_count() * self._at((True,))[1]
            else:
                total += sum(
                    self._at(tuple(bool(days >> day & 1) for days in held))[1]
                    for day in range(first, min(last, 32))
                )
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
        return total

    def _before(self, wall: datetime) -> int:
        held = tuple(
            bool(cron._days_in(wall.year, wall.month) >> wall.day & 1) for cron in self._crons
        )
        second = wall.hour * 3600 + wall.minute * 60 + wall.second
        return (self._at(held)[0] & (1 << second) - 1).bit_count()

    def _at(self, held: tuple[bool, ...]) -> tuple[int, int]:
        """Return the times of a day on which these of the rules hold, and how many they are."""
        if held not in self._each:
            times = reduce(or_, compress(self._times, held), 0)
            self._each[held] = times, times.bit_count()
        return self._each[held]


def _times(cron: Cron) -> int:
    """Return the times of day that a rule names, a bit for each second."""
    hours = sum(1 << bit * 3600 for bit in bits(cron._hours))
    return hours * sum(1 << bit * 60 for bit in bits(cron._minutes)) * cron._seconds


# Nothing comes in the first and the last year of the calendar; a day from its ends no
# offset leads out of it.
_FIRST_WALL: Final = datetime(2, 1, 1)  # noqa: DTZ001 - a wall time
_AFTER_LAST_WALL: Final = datetime(9999, 1, 1)  # noqa: DTZ001 - a wall time


def _after_whole_second(moment: datetime) -> datetime:
    """Return the next whole second of UTC, as far as the calendar goes."""
    inner = min(max(moment.replace(tzinfo=None), datetime(1, 2, 1)), datetime(9999, 12, 1))  # noqa: DTZ001 - UTC
    return inner.replace(microsecond=0) + _SECOND


class _OffsetSpan(NamedTuple):
    """Moments of UTC between two clock changes: the offset there, and the one before it."""

    start: datetime
    end: datetime
    offset: timedelta
    before: timedelta | None


def _stretches(first: datetime, last: datetime, zone: tzinfo) -> Iterator[_OffsetSpan]:
    if not isinstance(zone, ZoneInfo):
        yield _OffsetSpan(first, last, timedelta(), None)
        return
    # A fold that began before the window may still go on in it.
    early = max(first, datetime(1, 1, 4)) - 2 * _DAY_LONG  # noqa: DTZ001 - UTC throughout
    offset = zone.fromutc(early.replace(tzinfo=zone)).utcoffset()
    assert offset is not None
    start, before = early, None
    for change in changes(zone, early.replace(tzinfo=UTC), last.replace(tzinfo=UTC)):
        at = change.at.replace(tzinfo=None)
        yield _OffsetSpan(start, at, offset, before)
        start, before, offset = at, offset, change.after
    yield _OffsetSpan(start, max(last, start), offset, before)
