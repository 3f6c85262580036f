"""Cron: a rule of five fields, in a zone, and the moments it names.

    ┌ minute 0-59
    │ ┌ hour 0-23
    │ │ ┌ day of month 1-31, L, L-n, LW, nW
    │ │ │ ┌ month 1-12 or JAN-DEC
    │ │ │ │ ┌ weekday 0-7 or SUN-SAT (0 and 7 are Sunday), d#n, dL
    0 9 * * MON-FRI

Six fields begin with the second, seven also end with the year. Where both day fields say
something, a day that meets either is meant. Each field is one integer with a bit for each value.

A rule without a `*` in second, minute or hour names times of day: one that a clock change leaves
out comes at the first moment after the gap, and one that comes twice counts once, in the first
pass. A rule with a `*` there follows the clock on the wall through gap and fold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import reduce
from itertools import compress, islice, takewhile
from operator import or_
from typing import Final, NamedTuple, final
from zoneinfo import ZoneInfo

from horae.timing.cron_fields import FIRST_YEAR, CronError, read_masks
from horae.timing.cron_words import ALL_DAYS, Meaning, bits, interval_words, words_of
from horae.timing.zone import changes, zone as find_zone

__all__ = ["Cron", "CronError", "count_any", "is_phrase"]

SECOND: Final = timedelta(seconds=1)
# A month of given length and first weekday recurs within 40 years.
_LONGEST_WAIT: Final = 41
# A rule that a clock change skips each time is given up after as many years.
_PATIENCE: Final = 150
# No zone changes its clock twice within three days.
_QUIET: Final = timedelta(days=3)
_FIELDS: Final = re.compile(r"\s*(?:@\S*\s*|[\d*?,/#-]+(?:\s+[\dLW*?,/#-]+(?:\s.*)?)?)", re.DOTALL)
_BEFORE_ALL: Final = datetime(FIRST_YEAR - 1, 12, 31, 23, 59, 59, tzinfo=UTC)


@final
class Cron:
    """A cron rule in a zone; rules with the same fields and zone are equal.

    Times are in the zone of the rule. Compare them in UTC: Python compares two datetimes of one
    zone by their local time, and in an autumn night a later time can have an earlier one.
    """

    __slots__ = (
        "_days", "_expression", "_first_hour", "_first_minute", "_first_second", "_hash", "_hours",
        "_minutes", "_months", "_odd_days", "_odd_weekdays", "_seconds", "_starred", "_sure_days",
        "_tzinfo", "_weekdays", "_years", "_zone",
    )  # fmt: skip

    def __init__(self, expression: str, zone: str = "UTC") -> None:
        texts, masks = read_masks(expression)
        self._starred = "*" in texts[0] or "*" in texts[1] or "*" in texts[2]
        self._seconds, self._minutes, self._hours, days, self._months, weekdays, years = masks
        self._years = years >> FIRST_YEAR
        self._first_second = _lowest(self._seconds)
        self._first_minute = _lowest(self._minutes)
        self._first_hour = _lowest(self._hours)

        # The two day fields become sets of days, of which either matches.
        self._days = days & ALL_DAYS
        self._odd_days = days >> 32
        self._weekdays = (weekdays | weekdays >> 7 & 1) & _ALL_WEEK
        self._odd_weekdays = weekdays >> 8
        names_none = not days and not weekdays
        if names_none or self._days == ALL_DAYS or self._weekdays == _ALL_WEEK:
            self._days = ALL_DAYS
            self._odd_days = self._weekdays = self._odd_weekdays = 0
        # The days that do not depend on the month.
        is_any_month = self._months == _ALL_MONTHS and not self._years
        self._sure_days = self._days & _SHORTEST_MONTH if is_any_month else 0
        self._expression = expression
        self._zone = zone
        self._tzinfo: tzinfo = UTC if zone == "UTC" else find_zone(zone)
        self._hash: int | None = None  # computed on first use

    @property
    def expression(self) -> str:
        return self._expression

    @property
    def zone(self) -> str:
        return self._zone

    @property
    def has_star_time(self) -> bool:
        return self._starred

    @property
    def never(self) -> bool:
        return not self._sure_days and self._wall_after(_BEFORE_ALL) is None

    def next(self, after: datetime) -> datetime | None:
        """Return the first time after another, in the zone of the rule.

        >>> cron = Cron("30 2 * * *", zone="Europe/Berlin")
        >>> cron.next(datetime.fromisoformat("2026-03-28T12:00Z")).isoformat()
        '2026-03-29T03:00:00+02:00'
        """
        return self._after(self._local(after, "next"))

    def upcoming(self, after: datetime, n: int) -> list[datetime]:
        return list(islice(self._moments(self._local(after, "upcoming")), n))

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        local, limit = self._local(start, "between"), in_utc(self._local(end, "between"))
        return takewhile(lambda moment: moment <= limit, self._moments(local))

    def describe(self) -> str:
        words = words_of(self._meaning())
        return f"{words}, which never occurs" if self.never else words

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cron):
            return NotImplemented
        if (self._expression, self._zone) == (other._expression, other._zone):
            return True
        return self._meaning() == other._meaning()

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self._meaning())
        return self._hash

    def __repr__(self) -> str:
        return f"Cron({self._expression!r}, zone={self._zone!r})"

    def __reduce__(self) -> tuple[type[Cron], tuple[str, str]]:
        return Cron, (self._expression, self._zone)

    def _meaning(self) -> Meaning:
        return Meaning(
            self._zone, self._starred, self._seconds, self._minutes, self._hours, self._days,
            self._odd_days, self._months, self._weekdays, self._odd_weekdays, self._years,
        )  # fmt: skip

    def _local(self, moment: datetime, asked: str) -> datetime:
        zone = self._tzinfo
        try:
            if moment.tzinfo is zone:
                # Python accepts 02:30 in a spring gap, which no clock shows.
                return moment if zone is UTC else _with_offset_at(moment, moment, zone)
            if moment.tzinfo is UTC or moment.utcoffset() is not None:
                return moment.astimezone(zone)
        except OverflowError:
            return _edge(moment, zone)
        raise ValueError(
            f"cron {self._expression!r}: {asked} needs a time with a time zone, "
            f"and {moment.isoformat()} has none; set its tzinfo"
        )

    def _moments(self, local: datetime) -> Iterator[datetime]:
        moment = self._after(local)
        while moment is not None:
            yield moment
            moment = self._after(moment)

    # From here on a moment is a *local* datetime of the zone, and a *wall* time is one
    # without a fold. Two of one zone are compared by their local time.

    def _after(self, local: datetime) -> datetime | None:
        # Without the first and last year, so that no offset leaves the calendar.
        if not 1 < local.year < 9999:
            if local.year > 1:
                return None
            local = datetime(1, 12, 31, 23, 59, 59, tzinfo=self._tzinfo)
        wall = self._wall_after(local)
        zone = self._tzinfo
        if zone is UTC:
            return wall
        if wall is None:
            # No local time is later, but the one before a change may come once more.
            return (self._starred_after if self._starred else self._fixed_after)(local, None)

        # Usually the clock does not change in between.
        moment = _with_offset_at(local, wall, zone)
        if self._starred:
            if moment == wall and wall - local < _QUIET:
                return moment
            return self._starred_after(local, wall)
        if moment != wall:
            moment = _with_offset_at(wall, wall, zone)
        if moment == wall and not moment.fold:
            return moment
        return self._fixed_after(local, wall)

    def _fixed_after(self, local: datetime, wall: datetime | None) -> datetime | None:
        if local.fold and (seam := _seam(local)):
            # In the second pass, everything that the change repeats is over.
            wall = self._wall_after(seam.high - SECOND)
        if wall is None:
            return None
        seam = _seam(wall)
        if seam is None or not seam.is_gap:
            return wall
        return seam.at.astimezone(self._tzinfo)

    def _starred_after(self, local: datetime, wall: datetime | None) -> datetime | None:
        if not local.fold and (seam := _seam(local)):
            # The second pass begins where the change leads back to.
            wall = self._wall_after(seam.low - SECOND)
            if wall is not None and wall < seam.high:
                return wall.replace(fold=1)
        while wall is not None and (seam := _seam(wall)) and seam.is_gap:
            if wall.year - local.year > _PATIENCE:
                return None
            wall = self._wall_after(seam.high - SECOND)
        return wall

    def _wall_after(self, wall: datetime) -> datetime | None:
        day = wall.day
        hour = wall.hour
        minute = wall.minute
        second = wall.second + 1

        # A field past its end has no bits left, and so carries into the next.
        later = self._seconds >> second
        if later:
            second += (later & -later).bit_length() - 1
        else:
            second = self._first_second
            minute += 1

        later = self._minutes >> minute
        if not later & 1:
            second = self._first_second
            if later:
                minute += (later & -later).bit_length() - 1
            else:
                minute = self._first_minute
                hour += 1

        later = self._hours >> hour
        if not later & 1:
            second = self._first_second
            minute = self._first_minute
            if later:
                hour += (later & -later).bit_length() - 1
            else:
                hour = self._first_hour
                day += 1

        if self._sure_days >> day & 1:
            return datetime(wall.year, wall.month, day, hour, minute, second, 0, wall.tzinfo)

        later = self._days_in(wall.year, wall.month) >> day
        if later & 1:
            return datetime(wall.year, wall.month, day, hour, minute, second, 0, wall.tzinfo)
        if later:
            day += (later & -later).bit_length() - 1
            return self._first_of(wall.year, wall.month, day, wall.tzinfo)
        return self._in_later_month(wall)

    def _first_of(self, year: int, month: int, day: int, zone: tzinfo | None) -> datetime:
        hour, minute, second = self._first_hour, self._first_minute, self._first_second
        return datetime(year, month, day, hour, minute, second, 0, zone)

    def _in_later_month(self, wall: datetime) -> datetime | None:
        year, month, years = wall.year, wall.month, self._years
        first = _lowest(self._months)
        last = FIRST_YEAR + years.bit_length() - 1 if years else year + _LONGEST_WAIT
        last = min(last, 9998)
        while year <= last:
            later = self._months >> month + 1
            if later:
                month += _lowest(later) + 1
            elif years:
                start = max(0, year + 1 - FIRST_YEAR)
                left, month = years >> start, first
                year = FIRST_YEAR + start + _lowest(left) if left else 9999
            else:
                year, month = year + 1, first
            if year <= last and (days := self._days_in(year, month)):
                return self._first_of(year, month, _lowest(days), wall.tzinfo)
        return None

    def _days_in(self, year: int, month: int) -> int:
        if not self._months >> month & 1:
            return 0
        if self._years and not (year >= FIRST_YEAR and self._years >> year - FIRST_YEAR & 1):
            return 0
        length = month_length(year, month)
        days = self._days
        if self._weekdays or self._odd_weekdays or self._odd_days:
            first = date(year, month, 1).isoweekday() % 7
            days |= self._weekdays * _EACH_WEEK >> first << 1
            if self._odd_weekdays:
                days |= _odd_weekdays_in(self._odd_weekdays, first=first, length=length)
            if self._odd_days:
                days |= _odd_days_in(self._odd_days, first=first, length=length)
        return days & (2 << length) - 1


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


_LENGTHS: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ALL_MONTHS: Final = (1 << 13) - 2
_ALL_WEEK: Final = (1 << 7) - 1
_SHORTEST_MONTH: Final = (1 << 29) - 2
_EACH_WEEK: Final = sum(1 << 7 * week for week in range(6))
# For each first weekday of a month: the bits of five weeks that stay in
# their week when the week is rotated to begin on that day.
_STAYING: Final = tuple(
    sum((1 << 7 - first) - 1 << 7 * week for week in range(5)) for first in range(7)
)
_FIVE_WEEKS: Final = (1 << 35) - 1


def month_length(year: int, month: int) -> int:
    if month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
        return 29
    return _LENGTHS[month]


def _odd_weekdays_in(odd: int, *, first: int, length: int) -> int:
    """Return the days of `d#n` and `dL` in a month that begins on a weekday."""
    nth, last = odd & _FIVE_WEEKS, odd >> 35
    staying = _STAYING[first]
    turned = nth >> first & staying | nth << 7 - first & _FIVE_WEEKS & ~staying
    return turned << 1 | last * _EACH_WEEK >> first << 1 & _ALL_WEEK << length - 6


def _odd_days_in(odd: int, *, first: int, length: int) -> int:
    """Return the days of `L`, `L-n`, `LW` and `nW` in a month that begins on a weekday."""
    days = 0
    while odd:
        bit = _lowest(odd)
        odd &= odd - 1
        if bit < 32:
            days |= 1 << length - bit if bit < length else 0
        elif bit == 32:
            days |= 1 << _nearest_weekday(length, first=first, length=length)
        elif bit - 32 <= length:
            days |= 1 << _nearest_weekday(bit - 32, first=first, length=length)
    return days


def _nearest_weekday(day: int, *, first: int, length: int) -> int:
    match (first + day - 1) % 7:
        case 6:
            return day - 1 if day > 1 else day + 2
        case 0:
            return day + 1 if day < length else day - 2
        case _:
            return day


class _WallGap(NamedTuple):
    at: datetime
    low: datetime
    high: datetime
    is_gap: bool


def _seam(wall: datetime) -> _WallGap | None:
    zone = wall.tzinfo
    assert isinstance(zone, ZoneInfo)
    wall = wall.replace(microsecond=0, fold=0)
    early, late = zone.utcoffset(wall), zone.utcoffset(wall.replace(fold=1))
    assert early is not None
    assert late is not None
    if early == late:
        return None

    start, end = sorted((wall.replace(tzinfo=UTC) - early, wall.replace(tzinfo=UTC) - late))
    change = next(changes(zone, start, end))
    ends = [(change.at + offset).replace(tzinfo=zone) for offset in (change.before, change.after)]
    return _WallGap(change.at, min(ends), max(ends), change.is_gap)


def _with_offset_at(local: datetime, wall: datetime, zone: tzinfo) -> datetime:
    """Return a local time with the offset of another, even if the clock never shows it."""
    offset = zone.utcoffset(local)
    assert offset is not None
    return zone.fromutc(wall - offset)


def in_utc(moment: datetime) -> datetime:
    """Return a time in UTC, or the nearest one in the calendar."""
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return _edge(moment, UTC)


def _edge(moment: datetime, zone: tzinfo) -> datetime:
    is_late = moment.year > 5000
    return datetime.max.replace(tzinfo=zone) if is_late else datetime.min.replace(tzinfo=zone)


def describe_any(crons: Sequence[Cron]) -> str:
    """Return several rules in words; as one interval if they are one.

    >>> describe_any([Cron("0,45 9 * * *"), Cron("30 10 * * *")])
    'every 45 minutes from 09:00 to 10:30 every day'
    """
    whole = interval_words([cron._meaning() for cron in crons]) if len(crons) > 1 else ""
    return whole or "; ".join(cron.describe() for cron in crons)


def count_any(crons: Sequence[Cron], start: datetime, end: datetime) -> int:
    """Count the times after start, up to and with end, of any of the rules of a zone.

    They are computed without iteration; for one rule they are those of `between`.
    """
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
        if now > was and begin == stretch.start and not walls.count(now, now + SECOND):
            total += fixed.count(was, now) > 0
        # In the second pass of a fold only rules with a star fire again.
        again = min(max(low, was), high)
        total += starred.count(low, again) + walls.count(again, high)
    return total


class _Walls:
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
        if held not in self._each:
            times = reduce(or_, compress(self._times, held), 0)
            self._each[held] = times, times.bit_count()
        return self._each[held]


def _times(cron: Cron) -> int:
    hours = sum(1 << bit * 3600 for bit in bits(cron._hours))
    return hours * sum(1 << bit * 60 for bit in bits(cron._minutes)) * cron._seconds


# The first and last year have no times; a day from their ends no offset leaves the calendar.
_FIRST_WALL: Final = datetime(2, 1, 1)  # noqa: DTZ001 - a wall time
_AFTER_LAST_WALL: Final = datetime(9999, 1, 1)  # noqa: DTZ001 - a wall time


def _after_whole_second(moment: datetime) -> datetime:
    inner = min(max(moment.replace(tzinfo=None), datetime(1, 2, 1)), datetime(9999, 12, 1))  # noqa: DTZ001 - UTC
    return inner.replace(microsecond=0) + SECOND


class _OffsetSpan(NamedTuple):
    start: datetime
    end: datetime
    offset: timedelta
    before: timedelta | None


def _stretches(first: datetime, last: datetime, zone: tzinfo) -> Iterator[_OffsetSpan]:
    if not isinstance(zone, ZoneInfo):
        yield _OffsetSpan(first, last, timedelta(), None)
        return
    # A fold that began before the window may extend into it.
    early = max(first, datetime(1, 1, 4)) - timedelta(days=2)  # noqa: DTZ001 - UTC throughout
    offset = zone.fromutc(early.replace(tzinfo=zone)).utcoffset()
    assert offset is not None
    start, before = early, None
    for change in changes(zone, early.replace(tzinfo=UTC), last.replace(tzinfo=UTC)):
        at = change.at.replace(tzinfo=None)
        yield _OffsetSpan(start, at, offset, before)
        start, before, offset = at, offset, change.after
    yield _OffsetSpan(start, max(last, start), offset, before)


def is_phrase(text: str) -> bool:
    """Whether a schedule is written in words, and not meant as cron.

    >>> [is_phrase(each) for each in ("weekdays at 9", "0 9 * * FUNDAY", "5 past every hour")]
    [True, False, True]
    """
    return _FIELDS.fullmatch(text) is None and re.search(r"[^\W\d_]{2}", text) is not None
