"""Cron: a rule of five fields, in a zone, and the moments it names.

    ┌ minute 0-59
    │ ┌ hour 0-23
    │ │ ┌ day of month 1-31, L, L-n, LW, nW
    │ │ │ ┌ month 1-12 or JAN-DEC
    │ │ │ │ ┌ weekday 0-7 or SUN-SAT (0 and 7 are Sunday), d#n, dL
    0 9 * * MON-FRI

Six fields begin with the second, seven also end with the year. Where both day
fields say something, a day that meets either is meant.

A rule without a `*` in second, minute or hour names times of day. Where a clock
change leaves such a time out, it comes at the first moment after the gap; where one
brings it twice, the first pass counts. A rule with a `*` there follows the clock on
the wall: what is left out does not come, and what comes twice comes twice.

Each field is one integer with a bit for each value, so that the next value is found
by shifting, and a month's days by one look at its shape.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, final
from zoneinfo import ZoneInfo

from horae.errors import ScheduleError
from horae.timing.zone import changes, zone as find_zone

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import tzinfo

_LONGEST: Final = 1_000  # characters; a rule with every minute written out has some 170
_SHOWN: Final = 72

# fmt: off
_MONTHS: Final = (
    "JANUARY", "FEBRUARY", "MARCH", "APRIL", "MAY", "JUNE",
    "JULY", "AUGUST", "SEPTEMBER", "OCTOBER", "NOVEMBER", "DECEMBER",
)
_WEEKDAYS: Final = (
    "SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY",
)
# fmt: on

_NICKNAMES: Final = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}

_FIRST_YEAR: Final = 1970
_LAST_YEAR: Final = 2199

_SECOND: Final = timedelta(seconds=1)
_DAY_LONG: Final = timedelta(days=1)

# A month of one length that begins on one weekday is at most 40 years away.
_LONGEST_WAIT: Final = 41
# A rule that a clock change leaves out each time is given up after as many years.
_PATIENCE: Final = 150
# No zone changes its clock twice within three days.
_QUIET: Final = timedelta(days=3)


class CronError(ScheduleError):
    """A cron expression that cannot be read.

    >>> print(CronError("0 24 * * *", field="hour", reason="24 is outside 0-23", column=3, width=2))
    cron '0 24 * * *': hour 24 is outside 0-23
    """

    code = "cron"

    def __init__(
        self, expression: str, *, field: str, reason: str, column: int = 1, width: int = 1
    ) -> None:
        self.expression = expression
        self.field = field
        self.reason = reason
        self.column = column
        self.width = width
        shown = expression if len(expression) <= _SHOWN else expression[:_SHOWN] + "…"
        super().__init__(f"cron {shown!r}: {field} {reason}")

    def caret(self) -> str:
        """Return two lines: the expression, and a caret under the part that is wrong.

        >>> print(CronError("0 24 * * *", field="hour", reason="…", column=3, width=2).caret())
        0 24 * * *
          ^^
        """
        start = max(0, self.column - 1 - _SHOWN // 2)
        line = "".join(c if c.isprintable() else " " for c in self.expression[start:])[:_SHOWN]
        indent = self.column - 1 - start
        return f"{line}\n{' ' * indent}{'^' * max(1, min(self.width, len(line) - indent))}"


@final
class Cron:
    """A cron rule in a zone; equal to another when both say the same in the same zone.

    Case, spacing, names and nicknames make no difference to equality; the text is kept
    as it was written. Moments come out in the zone of the rule. Compare them in UTC:
    Python compares two datetimes of one zone by their wall time, and in an autumn night
    a later moment can have an earlier wall time.

    >>> Cron("0 9 * * MON-FRI", zone="Europe/Berlin").describe()
    'at 09:00 on Monday to Friday'
    >>> Cron("@daily") == Cron("0 0 * * *")
    True
    """

    __slots__ = (
        "_days",
        "_expression",
        "_first_hour",
        "_first_minute",
        "_first_second",
        "_hours",
        "_minutes",
        "_months",
        "_odd_days",
        "_odd_weekdays",
        "_seconds",
        "_starred",
        "_sure_days",
        "_tzinfo",
        "_weekdays",
        "_years",
        "_zone",
    )

    def __init__(self, expression: str, zone: str = "UTC") -> None:
        texts = _split(expression)
        try:
            self._read(texts)
        except _FieldError as refused:
            raise _located(expression, refused) from None
        self._expression = expression
        self._zone = zone
        self._tzinfo: tzinfo = UTC if zone == "UTC" else find_zone(zone)

    def _read(self, texts: Sequence[str]) -> None:
        second, minute, hour, day, month, weekday, year = texts
        self._starred = "*" in minute or "*" in hour or "*" in second
        self._seconds = _mask(_SECONDS, second)
        self._minutes = _mask(_MINUTES, minute)
        self._hours = _mask(_HOURS, hour)
        self._months = _mask(_MONTH, month)
        self._years = 0 if year == "*" else _mask(_YEAR, year) >> _FIRST_YEAR

        self._first_second = (self._seconds & -self._seconds).bit_length() - 1
        self._first_minute = (self._minutes & -self._minutes).bit_length() - 1
        self._first_hour = (self._hours & -self._hours).bit_length() - 1
        self._read_days(day, weekday)

    def _read_days(self, day: str, weekday: str) -> None:
        """Turn the two day fields into days of which any will do."""
        days = 0 if day in _ANY_DAY else _mask(_DAY, day)
        weekdays = 0 if weekday in _ANY_DAY else _mask(_WEEKDAY, weekday)
        self._days = days & _ALL_DAYS
        self._odd_days = days >> 32
        self._weekdays = (weekdays | weekdays >> 7 & 1) & _ALL_WEEK
        self._odd_weekdays = weekdays >> 8

        names_none = not days and not weekdays
        if names_none or self._days == _ALL_DAYS or self._weekdays == _ALL_WEEK:
            self._days = _ALL_DAYS
            self._odd_days = self._weekdays = self._odd_weekdays = 0

        # The days for which it does not matter which month it is.
        is_any_month = self._months == _ALL_MONTHS and not self._years
        self._sure_days = self._days & _SHORTEST_MONTH if is_any_month else 0

    @property
    def expression(self) -> str:
        """The rule as it was written."""
        return self._expression

    @property
    def zone(self) -> str:
        """The name of the zone whose clock the rule reads."""
        return self._zone

    @property
    def has_star_time(self) -> bool:
        """Whether the rule follows the wall clock through a change, gap and fold alike."""
        return self._starred

    @property
    def never(self) -> bool:
        """Whether the calendar has no day for the rule, as for 30 February."""
        start = datetime(_FIRST_YEAR - 1, 12, 31, 23, 59, 59, tzinfo=UTC)
        return self._wall_after(start) is None

    def next(self, after: datetime) -> datetime | None:
        """Return the first moment strictly after another, in the zone of the rule.

        >>> cron = Cron("30 2 * * *", zone="Europe/Berlin")
        >>> cron.next(datetime.fromisoformat("2026-03-28T12:00Z")).isoformat()
        '2026-03-29T03:00:00+02:00'
        """
        return self._after(self._local(after, "next"))

    def prev(self, before: datetime) -> datetime | None:
        """Return the last moment strictly before another, in the zone of the rule.

        >>> Cron("0 0 29 2 *").prev(datetime.fromisoformat("2026-01-01T00:00Z")).isoformat()
        '2024-02-29T00:00:00+00:00'
        """
        return self._before(self._local(before, "prev"))

    def upcoming(self, after: datetime, n: int) -> list[datetime]:
        """Return the next moments, as many as asked for or as there are.

        >>> start = datetime.fromisoformat("2026-01-30T12:00Z")
        >>> [moment.day for moment in Cron("0 9 L * *").upcoming(start, 3)]
        [31, 28, 31]
        """
        return list(islice(self._moments(self._local(after, "upcoming")), n))

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Yield, one at a time and in order, the moments after start up to and with end.

        >>> start = datetime.fromisoformat("2026-01-01T09:00Z")
        >>> [m.hour for m in Cron("0 */2 * * *").between(start, start + timedelta(hours=5))]
        [10, 12, 14]
        """
        return self._until(self._local(start, "between"), self._local(end, "between"))

    def count(self, start: datetime, end: datetime) -> int:
        """Return how many moments `between` would yield, without walking them.

        >>> start = datetime.fromisoformat("2026-01-01T00:00Z")
        >>> Cron("* * * * *", zone="Europe/Berlin").count(start, start + timedelta(days=3650))
        5256000
        """
        return count_any([self], start, end)

    def _times(self) -> int:
        """Return the times of day that the rule names, a bit for each second."""
        minutes = _spread(self._minutes, 60) * self._seconds
        return _spread(self._hours, 3600) * minutes

    def describe(self) -> str:
        """Return the rule in words.

        >>> Cron("*/15 9-17 * * MON-FRI").describe()
        'every 15 minutes from 09:00 to 17:45 on Monday to Friday'
        >>> Cron("0 9 1 * *").describe()
        'at 09:00 on the first day of the month'
        """
        words = _words(self._meaning())
        return f"{words}, which never comes" if self.never else words

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cron):
            return NotImplemented
        return self._meaning() == other._meaning()

    def __hash__(self) -> int:
        return hash(self._meaning())

    def __repr__(self) -> str:
        return f"Cron({self._expression!r}, zone={self._zone!r})"

    def __reduce__(self) -> tuple[type[Cron], tuple[str, str]]:
        return Cron, (self._expression, self._zone)

    def _meaning(self) -> _Meaning:
        return _Meaning(
            zone=self._zone,
            starred=self._starred,
            seconds=self._seconds,
            minutes=self._minutes,
            hours=self._hours,
            days=self._days,
            odd_days=self._odd_days,
            months=self._months,
            weekdays=self._weekdays,
            odd_weekdays=self._odd_weekdays,
            years=self._years,
        )

    def _local(self, moment: datetime, asked: str) -> datetime:
        """Return a moment as the clock of the zone shows it, the pass marked by its fold."""
        zone = self._tzinfo
        try:
            if moment.tzinfo is zone:
                # Python takes 02:30 in a spring gap as it is; the clock never shows it.
                return moment if zone is UTC else _with_offset_at(moment, moment, zone)
            if moment.tzinfo is UTC or moment.utcoffset() is not None:
                return moment.astimezone(zone)
        except OverflowError:
            return _edge(moment, zone)
        raise ValueError(
            f"cron {self._expression!r}: {asked} needs a moment with a zone, "
            f"and {moment.isoformat()} has none; say which with tzinfo"
        )

    def _moments(self, local: datetime) -> Iterator[datetime]:
        moment = self._after(local)
        while moment is not None:
            yield moment
            moment = self._after(moment)

    def _until(self, start: datetime, end: datetime) -> Iterator[datetime]:
        limit = _in_utc(end)
        for moment in self._moments(start):
            if moment > limit:
                return
            yield moment

    # From here on a moment is a *local* datetime of the zone, and a *wall* time is one
    # whose fold says nothing yet. Two of one zone are compared by what the wall shows.

    def _after(self, local: datetime) -> datetime | None:
        # The first and last year are left out, so that no offset leads out of the calendar.
        if not 1 < local.year < 9999:
            if local.year > 1:
                return None
            local = datetime(1, 12, 31, 23, 59, 59, tzinfo=self._tzinfo)

        wall = self._wall_after(local)
        zone = self._tzinfo
        if zone is UTC:
            return wall
        if wall is None:
            # No wall time is later, but the one before a change may come once more.
            return (self._starred_after if self._starred else self._fixed_after)(local, None)

        # As a rule the clock does not change in between, and one look shows it.
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

    def _before(self, local: datetime) -> datetime | None:
        if not 1 < local.year < 9999:
            if local.year == 1:
                return None
            local = datetime(9999, 1, 1, tzinfo=self._tzinfo)

        wall = self._wall_before(local)
        zone = self._tzinfo
        if zone is UTC:
            return wall
        if wall is None:
            # No wall time is earlier, but the one before a change may come once more.
            return (self._starred_before if self._starred else self._fixed_before)(local, None)

        # As a rule the clock does not change in between, and one look shows it.
        moment = _with_offset_at(local, wall, zone)
        if self._starred:
            if moment == wall and local - wall < _QUIET:
                return moment
            return self._starred_before(local, wall)
        if moment != wall:
            moment = _with_offset_at(wall, wall, zone)
        if moment == wall and not moment.fold and not local.fold:
            return moment
        return self._fixed_before(local, wall)

    def _fixed_after(self, local: datetime, wall: datetime | None) -> datetime | None:
        """Return the moment of the first time of day that has not had its turn."""
        if local.fold and (seam := _seam(local)):
            # In the second pass all that the change repeats is over.
            wall = self._wall_after(seam.high - _SECOND)
        if wall is None:
            return None
        seam = _seam(wall)
        if seam is None or not seam.is_gap:
            return wall
        return seam.at.astimezone(self._tzinfo)

    def _fixed_before(self, local: datetime, wall: datetime | None) -> datetime | None:
        """Return the moment of the last time of day that has had its turn."""
        if local.fold and (seam := _seam(local)):
            wall = self._wall_before(seam.high)
        while wall is not None:
            seam = _seam(wall)
            if seam is None or not seam.is_gap:
                return wall
            if seam.at < local:
                return seam.at.astimezone(self._tzinfo)
            wall = self._wall_before(seam.low)
        return None

    def _starred_after(self, local: datetime, wall: datetime | None) -> datetime | None:
        """Return the next moment at which the wall shows a time of the rule.

        What was left of a pass has been found on the way here.
        """
        if not local.fold and (seam := _seam(local)):
            # The second pass begins where the change leads back to.
            wall = self._wall_after(seam.low - _SECOND)
            if wall is not None and wall < seam.high:
                return wall.replace(fold=1)
        while wall is not None and (seam := _seam(wall)) and seam.is_gap:
            if wall.year - local.year > _PATIENCE:
                return None
            wall = self._wall_after(seam.high - _SECOND)
        return wall

    def _starred_before(self, local: datetime, wall: datetime | None) -> datetime | None:
        """Return the last moment at which the wall showed a time of the rule.

        What was over of a pass has been found on the way here.
        """
        if local.fold and (seam := _seam(local)):
            # The first pass ends where the change leads away from.
            wall = self._wall_before(seam.high)
            if wall is not None and wall >= seam.low:
                return wall
        while wall is not None and (seam := _seam(wall)):
            if not seam.is_gap:
                return wall.replace(fold=1)
            if local.year - wall.year > _PATIENCE:
                return None
            wall = self._wall_before(seam.low)
        return wall

    def _wall_after(self, wall: datetime) -> datetime | None:
        """Return the first wall time of the rule that is later, by whole seconds."""
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

    def _wall_before(self, wall: datetime) -> datetime | None:
        """Return the last wall time of the rule that is earlier."""
        day = wall.day
        hour = wall.hour
        minute = wall.minute
        second = wall.second if not wall.microsecond else wall.second + 1

        second = (self._seconds & (1 << second) - 1).bit_length() - 1
        if second < 0:
            second = self._seconds.bit_length() - 1
            minute -= 1

        top = (self._minutes & (1 << minute + 1) - 1).bit_length() - 1
        if top < minute or top < 0:
            second = self._seconds.bit_length() - 1
            minute = top
            if top < 0:
                minute = self._minutes.bit_length() - 1
                hour -= 1

        top = (self._hours & (1 << hour + 1) - 1).bit_length() - 1
        if top < hour or top < 0:
            second = self._seconds.bit_length() - 1
            minute = self._minutes.bit_length() - 1
            hour = top
            if top < 0:
                hour = self._hours.bit_length() - 1
                day -= 1

        earlier = self._days_in(wall.year, wall.month) & (1 << day + 1) - 1
        if earlier >> day:
            return datetime(wall.year, wall.month, day, hour, minute, second, 0, wall.tzinfo)
        if earlier:
            return self._last_of(wall.year, wall.month, earlier.bit_length() - 1, wall.tzinfo)
        return self._in_earlier_month(wall)

    def _first_of(self, year: int, month: int, day: int, zone: tzinfo | None) -> datetime:
        return datetime(
            year, month, day, self._first_hour, self._first_minute, self._first_second, 0, zone
        )

    def _last_of(self, year: int, month: int, day: int, zone: tzinfo | None) -> datetime:
        hour = self._hours.bit_length() - 1
        minute = self._minutes.bit_length() - 1
        return datetime(year, month, day, hour, minute, self._seconds.bit_length() - 1, 0, zone)

    def _in_later_month(self, wall: datetime) -> datetime | None:
        year, month = wall.year, wall.month
        first = _lowest(self._months)
        last = _FIRST_YEAR + self._years.bit_length() - 1 if self._years else year + _LONGEST_WAIT
        last = min(last, 9998)
        while year <= last:
            later = self._months >> month + 1
            if later:
                month += _lowest(later) + 1
            else:
                year, month = self._year_after(year), first
            if year <= last and (days := self._days_in(year, month)):
                return self._first_of(year, month, _lowest(days), wall.tzinfo)
        return None

    def _in_earlier_month(self, wall: datetime) -> datetime | None:
        year, month = wall.year, wall.month
        final_month = self._months.bit_length() - 1
        first = _FIRST_YEAR + _lowest(self._years) if self._years else year - _LONGEST_WAIT
        first = max(first, 2)
        while year >= first:
            earlier = self._months & (1 << month) - 1
            if earlier:
                month = earlier.bit_length() - 1
            else:
                year, month = self._year_before(year), final_month
            if year >= first and (days := self._days_in(year, month)):
                return self._last_of(year, month, days.bit_length() - 1, wall.tzinfo)
        return None

    def _year_after(self, year: int) -> int:
        if not self._years:
            return year + 1
        start = max(0, year + 1 - _FIRST_YEAR)
        later = self._years >> start
        return _FIRST_YEAR + start + _lowest(later) if later else 9999

    def _year_before(self, year: int) -> int:
        if not self._years:
            return year - 1
        earlier = self._years & (1 << max(0, year - _FIRST_YEAR)) - 1
        return _FIRST_YEAR + earlier.bit_length() - 1 if earlier else 1

    def _days_in(self, year: int, month: int) -> int:
        """Return the days of a month on which the rule holds, a bit for each."""
        if not self._months >> month & 1:
            return 0
        if self._years and not (year >= _FIRST_YEAR and self._years >> year - _FIRST_YEAR & 1):
            return 0
        length = _length(year, month)
        days = self._days
        if self._weekdays or self._odd_weekdays or self._odd_days:
            first = date(year, month, 1).isoweekday() % 7
            days |= self._weekdays * _EACH_WEEK >> first << 1
            if self._odd_weekdays:
                days |= _odd_weekdays_in(self._odd_weekdays, first=first, length=length)
            if self._odd_days:
                days |= _odd_days_in(self._odd_days, first=first, length=length)
        return days & (2 << length) - 1


def count_any(crons: Sequence[Cron], start: datetime, end: datetime) -> int:
    """Return how many moments after start, up to and with end, any of the rules of a zone names.

    >>> start = datetime.fromisoformat("2026-01-01T00:00Z")
    >>> both = [Cron("0 * * * *"), Cron("0 9 * * *")]
    >>> count_any(both, start, start + timedelta(days=1))
    24
    """
    first = _after_whole_second(_in_utc(crons[0]._local(start, "count")))
    last = _after_whole_second(_in_utc(crons[0]._local(end, "count")))
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
        self._times = [cron._times() for cron in crons]
        self._each: dict[tuple[bool, ...], tuple[int, int]] = {}

    def count(self, low: datetime, high: datetime) -> int:
        """Return how many wall times there are from low to before high."""
        low, high = max(low, _FIRST_WALL), min(high, _AFTER_LAST_WALL)
        if low >= high or not self._crons:
            return 0
        return self._days(low, high) + self._before(high) - self._before(low)

    def _days(self, low: datetime, high: datetime) -> int:
        """Return how many there are in the whole days from that of low to before that of high."""
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
        """Return how many there are on its own day before a wall time."""
        held = tuple(
            bool(cron._days_in(wall.year, wall.month) >> wall.day & 1) for cron in self._crons
        )
        second = wall.hour * 3600 + wall.minute * 60 + wall.second
        return (self._at(held)[0] & (1 << second) - 1).bit_count()

    def _at(self, held: tuple[bool, ...]) -> tuple[int, int]:
        """Return the times of a day on which these of the rules hold, and how many they are."""
        found = self._each.get(held)
        if found is None:
            times = 0
            for is_held, mask in zip(held, self._times, strict=True):
                times |= mask if is_held else 0
            found = self._each[held] = times, times.bit_count()
        return found


def _spread(mask: int, apart: int) -> int:
    """Return a mask whose bits stand so far apart.

    >>> bin(_spread(0b101, 3))
    '0b1000001'
    """
    return sum(1 << bit * apart for bit in _bits(mask))


class _Meaning(NamedTuple):
    """What a rule says, however it was written."""

    zone: str
    starred: bool
    seconds: int
    minutes: int
    hours: int
    days: int  # bits 1-31
    odd_days: int  # see _special_day
    months: int  # bits 1-12
    weekdays: int  # bits 0-6, Sunday first
    odd_weekdays: int  # see _special_weekday
    years: int  # bit 0 is 1970; no bits are every year


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


# Days of a month


_LENGTHS: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ALL_DAYS: Final = (1 << 32) - 2
_ALL_MONTHS: Final = (1 << 13) - 2
_ALL_WEEK: Final = (1 << 7) - 1
_SHORTEST_MONTH: Final = (1 << 29) - 2
_EACH_WEEK: Final = sum(1 << 7 * week for week in range(6))

# For each weekday that can be the first of a month: the bits of five weeks that stay in
# their week when the week is turned to begin on that day.
_STAYING: Final = tuple(
    sum((1 << 7 - first) - 1 << 7 * week for week in range(5)) for first in range(7)
)
_FIVE_WEEKS: Final = (1 << 35) - 1


def _length(year: int, month: int) -> int:
    if month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
        return 29
    return _LENGTHS[month]


def _odd_weekdays_in(odd: int, *, first: int, length: int) -> int:
    """Return the days that `d#n` and `dL` mean in a month that begins on a weekday."""
    nth, last = odd & _FIVE_WEEKS, odd >> 35
    staying = _STAYING[first]
    turned = nth >> first & staying | nth << 7 - first & _FIVE_WEEKS & ~staying
    return turned << 1 | last * _EACH_WEEK >> first << 1 & _ALL_WEEK << length - 6


def _odd_days_in(odd: int, *, first: int, length: int) -> int:
    """Return the days that `L`, `L-n`, `LW` and `nW` mean in a month that begins on a weekday."""
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
    """Return the day from Monday to Friday nearest to a day, in the same month."""
    match (first + day - 1) % 7:
        case 6:
            return day - 1 if day > 1 else day + 2
        case 0:
            return day + 1 if day < length else day - 2
        case _:
            return day


# Clock changes


class _Seam(NamedTuple):
    """A clock change as the wall shows it: what lies in [low, high) is left out or repeated."""

    at: datetime
    low: datetime
    high: datetime
    is_gap: bool


def _seam(wall: datetime) -> _Seam | None:
    """Return the clock change that leaves a wall time out or repeats it, if one does."""
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
    return _Seam(change.at, min(ends), max(ends), change.is_gap)


def _with_offset_at(local: datetime, wall: datetime, zone: tzinfo) -> datetime:
    """Return the moment a wall time is when the clock stands as at another; it shows if not so."""
    offset = zone.utcoffset(local)
    assert offset is not None
    return zone.fromutc(wall - offset)


# Nothing comes in the first and the last year of the calendar; a day from its ends no
# offset leads out of it.
_FIRST_WALL: Final = datetime(2, 1, 1)  # noqa: DTZ001 - a wall time
_AFTER_LAST_WALL: Final = datetime(9999, 1, 1)  # noqa: DTZ001 - a wall time


def _after_whole_second(moment: datetime) -> datetime:
    """Return the next whole second of UTC, as far as the calendar goes."""
    inner = min(max(moment.replace(tzinfo=None), datetime(1, 2, 1)), datetime(9999, 12, 1))  # noqa: DTZ001 - UTC
    return inner.replace(microsecond=0) + _SECOND


class _Stretch(NamedTuple):
    """Moments of UTC between two clock changes: the offset there, and the one before it."""

    start: datetime
    end: datetime
    offset: timedelta
    before: timedelta | None


def _stretches(first: datetime, last: datetime, zone: tzinfo) -> Iterator[_Stretch]:
    """Yield the stretches of UTC that a window lies in, in order."""
    if not isinstance(zone, ZoneInfo):
        yield _Stretch(first, last, timedelta(), None)
        return
    # A fold that began before the window may still go on in it.
    early = max(first, datetime(1, 1, 4)) - 2 * _DAY_LONG  # noqa: DTZ001 - UTC throughout
    offset = zone.fromutc(early.replace(tzinfo=zone)).utcoffset()
    assert offset is not None
    start, before = early, None
    for change in changes(zone, early.replace(tzinfo=UTC), last.replace(tzinfo=UTC)):
        at = change.at.replace(tzinfo=None)
        yield _Stretch(start, at, offset, before)
        start, before, offset = at, offset, change.after
    yield _Stretch(start, max(last, start), offset, before)


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return _edge(moment, UTC)


def _edge(moment: datetime, zone: tzinfo) -> datetime:
    """Return the end of the calendar that lies nearest."""
    if moment.year > 5000:
        return datetime.max.replace(tzinfo=zone)
    return datetime.min.replace(tzinfo=zone)


# Reading


class _Field(NamedTuple):
    """One field: its name, its bounds, and the number behind each text."""

    word: str
    low: int
    high: int
    values: dict[str, int]
    whole: int
    names: Sequence[str] = ()


def _field(word: str, low: int, high: int, names: Sequence[str] = (), *, first: int = 0) -> _Field:
    values = {f"{n:02}": n for n in range(low, min(high, 9) + 1)}
    values |= {str(n): n for n in range(low, high + 1)}
    values |= {name[:3]: n for n, name in enumerate(names, first)}
    return _Field(word, low, high, values, (2 << high) - (1 << low), names)


_SECONDS: Final = _field("second", 0, 59)
_MINUTES: Final = _field("minute", 0, 59)
_HOURS: Final = _field("hour", 0, 23)
_DAY: Final = _field("day of month", 1, 31)
_MONTH: Final = _field("month", 1, 12, _MONTHS, first=1)
_WEEKDAY: Final = _field("weekday", 0, 7, _WEEKDAYS)
_YEAR: Final = _field("year", _FIRST_YEAR, _LAST_YEAR)
_FIELDS: Final = (_SECONDS, _MINUTES, _HOURS, _DAY, _MONTH, _WEEKDAY, _YEAR)

_ANY_DAY: Final = ("*", "?")


class _FieldError(Exception):
    """A part of a field that cannot be read, before it is known where the field stands."""

    def __init__(self, field: _Field, part: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field
        self.reason = reason
        self.offset = 0
        self.width = max(1, len(part))


def _split(expression: str) -> Sequence[str]:
    """Return the texts of all seven fields, in upper case."""
    if len(expression) > _LONGEST or not expression.isascii():
        raise _unfit(expression)
    parts = expression.upper().split()
    if len(parts) == 1 and parts[0] in _NICKNAMES:
        parts = _NICKNAMES[parts[0]].split()
    match len(parts):
        case 5:
            return ("0", *parts, "*")
        case 6:
            return (*parts, "*")
        case 7:
            return parts
        case _:
            raise _miscounted(expression)


def _mask(field: _Field, text: str) -> int:
    """Return the values that a field names, a bit for each."""
    if text == "*":
        return field.whole
    value = field.values.get(text)
    if value is not None:
        return 1 << value

    mask = offset = 0
    for item in text.split(","):
        try:
            mask |= _item(field, item)
        except _FieldError as refused:
            refused.offset += offset
            raise
        offset += len(item) + 1
    return mask


def _item(field: _Field, item: str) -> int:
    values = field.values
    if item in values:
        return 1 << values[item]
    body, slash, text = item.partition("/")
    step = _step(field, item, text) if slash else 0
    if body == "*":
        return _series(field.low, field.high, step or 1)

    # Most ranges are this plain; the rest are read with care.
    first, _, last = body.partition("-")
    if first in values and last in values and values[first] <= values[last]:
        return _series(values[first], values[last], step or 1)
    if field is _DAY and ("L" in item or "W" in item):
        return _special_day(item)
    if field is _WEEKDAY and ("#" in item or item.endswith("L")):
        return _special_weekday(item)
    return _run(field, item, body, step)


def _run(field: _Field, item: str, body: str, step: int) -> int:
    """Return the values of `a` and `a-b`, with or without a step."""
    first, dash, last = body.partition("-")
    if dash and not (first and last and "-" not in last):
        raise _FieldError(field, item, f"{item!r} is not a range; write it as a-b")

    low = _value(field, item, first)
    if not dash:
        return _series(low, field.high, step) if step else 1 << low
    high = _value(field, item, last)
    if field is _WEEKDAY and low > 0 and high == 0 and not last.isdigit():
        high = 7
    if high < low:
        reason = f"range {body} runs backwards; write {_unwrapped(field, body, low, high, step)}"
        raise _FieldError(field, item, reason)
    return _series(low, high, step or 1)


def _series(low: int, high: int, step: int) -> int:
    """Return the bits from low to high, a step apart.

    >>> f"{_series(1, 10, 3):b}"
    '10010010010'
    """
    count = (high - low) // step + 1
    if count == 1:
        return 1 << low
    # The geometric series: 1 + 2^step + 2^(2 step) + …
    return ((1 << step * count) - 1) // ((1 << step) - 1) << low


def _value(field: _Field, item: str, text: str) -> int:
    value = field.values.get(text)
    if value is not None:
        return value
    if text.isdigit():
        number = int(text)
        if field.low <= number <= field.high:
            return number
        raise _FieldError(field, item, f"{number} is outside {field.low}-{field.high}")
    value = field.values.get(text[:3])
    if value is not None and text.isalpha() and any(n.startswith(text) for n in field.names):
        return value
    raise _FieldError(field, item, _unknown(field, item, text))


def _step(field: _Field, item: str, text: str) -> int:
    if not text.isdigit():
        reason = f"step {text!r} is not a number" if text else "step is missing after '/'"
        raise _FieldError(field, item, f"{reason}; write {item.partition('/')[0] or '*'}/2")
    if step := int(text):
        return step
    raise _FieldError(field, item, f"step 0 in {item} leads nowhere; the smallest step is 1")


def _special_day(item: str) -> int:
    """Return bit 32 + n for `L-n`, bit 64 for `LW`, bit 64 + n for `nW`."""
    if item == "L":
        return 1 << 32
    if item == "LW":
        return 1 << 64
    if item.startswith("L-") and item[2:].isdigit():
        before = int(item[2:])
        if 1 <= before <= 30:
            return 1 << 32 + before
        raise _FieldError(_DAY, item, f"{item} counts 1-30 days back from the last; L is the last")
    if item.endswith("W") and item[:-1].isdigit():
        return 1 << 64 + _value(_DAY, item, item[:-1])
    reason = f"{item!r} cannot be read; write L (last day), L-3, LW (last weekday) or 15W"
    raise _FieldError(_DAY, item, reason)


def _special_weekday(item: str) -> int:
    """Return bit 8 + d + 7(n-1) for `d#n` and bit 43 + d for `dL`."""
    day, hash_, nth = item.partition("#")
    if hash_ and nth == "L":
        raise _FieldError(_WEEKDAY, item, f"{item!r} cannot be read; write {day}L for the last")
    if not hash_:
        day = item[:-1]
    if not day:
        raise _FieldError(
            _WEEKDAY, item, f"{item!r} names no day; write SAT, or 5L for the last Friday"
        )
    if "-" in day or "/" in day or "*" in day:
        reason = f"{item!r} puts a range before {item[len(day) :]}; name the days one by one"
        raise _FieldError(_WEEKDAY, item, reason)
    number = _value(_WEEKDAY, item, day) % 7
    if not hash_:
        return 1 << 43 + number
    if nth in ("1", "2", "3", "4", "5"):
        return 1 << 8 + number + 7 * (int(nth) - 1)
    raise _FieldError(_WEEKDAY, item, f"{item!r} must count from #1 to #5; {day}L is the last")


# Refusing


def _located(expression: str, refused: _FieldError) -> CronError:
    tokens = list(re.finditer(r"\S+", expression))
    token = tokens[_FIELDS.index(refused.field) - (1 if len(tokens) == 5 else 0)]
    if token[0].upper().startswith(("TZ=", "CRON_TZ=")):
        refused.reason = f"{token[0]!r} is a zone; give it beside the rule, not in it"
    return CronError(
        expression,
        field=refused.field.word,
        reason=refused.reason,
        column=token.start() + refused.offset + 1,
        width=refused.width,
    )


def _unfit(expression: str) -> CronError:
    if len(expression) > _LONGEST:
        reason = f"has {len(expression)} characters, more than {_LONGEST}"
        return CronError(expression, field="expression", reason=reason, column=_LONGEST + 1)
    place, odd = next((i, c) for i, c in enumerate(expression) if not c.isascii())
    reason = f"has {odd!a} (U+{ord(odd):04X}); write plain ASCII letters, digits and spaces"
    return CronError(expression, field="expression", reason=reason, column=place + 1)


def _miscounted(expression: str) -> CronError:
    """Return what is wrong with an expression of too few or too many fields."""
    parts = expression.split()
    match len(parts):
        case 0:
            reason = "is empty; write five fields, such as '0 9 * * *'"
        case count if count == 1 or parts[0].startswith("@"):
            reason = _not_a_nickname(parts[0])
        case 4 if suggestion := _completed(parts):
            reason = f"has 4 fields, and {suggestion}"
        case count if count < 5:
            reason = f"has {count} fields; it needs minute, hour, day of month, month and weekday"
        case count:
            reason = f"has {count} fields; it can have 5, 6 (second first) or 7 (year last)"
    width = len(expression.strip())
    start = len(expression) - len(expression.lstrip()) if parts else 0
    return CronError(expression, field="expression", reason=reason, column=start + 1, width=width)


def _not_a_nickname(word: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only a refusal pays for it

    lower = word.lower()
    if lower == "@reboot":
        return "@reboot names no moment in time; write when it should run"
    if lower.startswith("@every"):
        return "@every is not known; write '*/5 * * * *' for every 5 minutes"
    known = [name.lower() for name in _NICKNAMES]
    if close := get_close_matches("@" + lower.lstrip("@"), known, n=1, cutoff=0.75):
        return f"{word!r} is not known; did you mean {close[0]}?"
    if word.startswith("@"):
        return f"{word!r} is not known; write one of {', '.join(known)}"
    return "has 1 field; it needs minute, hour, day of month, month and weekday"


def _completed(parts: list[str]) -> str | None:
    """Return which of five fields seems to be missing from four."""
    places = [4, 3, 2, 1, 0]
    if parts[0].isdigit() and parts[1] == "*" and parts[3] != "*":
        places = [4, 0]  # `9 * * MON` names an hour rather than a minute
    for place in places:
        filler = "*" if place else "0"
        whole = " ".join([*parts[:place], filler, *parts[place:]])
        try:
            if not Cron(whole).never:
                return f"the {_FIELDS[place + 1].word} seems to be missing; write {whole!r}"
        except CronError:
            continue
    return None


def _unwrapped(field: _Field, body: str, low: int, high: int, step: int) -> str:
    """Return how to write a range that runs over the end of its field."""
    first, _, last = body.partition("-")
    if field is _YEAR:
        return f"{last}-{first}"
    if field is _WEEKDAY and high == 0:
        return f"{first}-7"
    top = 6 if field is _WEEKDAY else field.high
    values = [*range(low, top + 1), *range(field.low, high + 1)]
    if step > 1:
        kept = values[::step]
        split = sum(value >= low for value in kept)
        return ",".join(_spelt(part, step) for part in (kept[:split], kept[split:]) if part)
    if first.isdigit() and last.isdigit():
        return f"{low}-{top},{field.low}-{high}" if field.low < high else f"{low}-{top},{high}"
    return ",".join(field.names[value - field.low][:3] for value in values)


def _spelt(values: list[int], step: int) -> str:
    return f"{values[0]}-{values[-1]}/{step}" if len(values) > 1 else str(values[0])


def _unknown(field: _Field, item: str, text: str) -> str:
    """Return why a text is no value of a field, and what would be."""
    if not item:
        return "has an empty item in its list; take out the extra comma"
    if "?" in text:
        days = field is _DAY or field is _WEEKDAY
        return "'?' must stand alone" if days else "'?' is only for the day fields; write *"
    if "*" in text:
        return f"{item!r} cannot be read; write * alone, or with a step such as */2"
    if not text:
        return f"{item!r} has nothing before the '/'; write *{item}"
    if text in ("L", "LW", "W") or "#" in text:
        return f"{item!r} cannot be read; L, W and # are for the day fields (L, LW, 15W, 5L, 5#2)"
    for other in (_MONTH, _WEEKDAY):
        if other is not field and text[:3] in other.values and text[:3].isalpha():
            return f"{text!r} is a {other.word}, in the place of the {field.word}"
    return f"{text!r} is not known; {_instead(field, text)}"


def _instead(field: _Field, text: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only a refusal pays for it

    if not field.names:
        return f"write a number in {field.low}-{field.high}"
    if close := get_close_matches(text, field.names, n=1) or get_close_matches(
        text, [name[:3] for name in field.names], n=1
    ):
        return f"did you mean {close[0][:3]}?"
    names = [name[:3] for name in field.names]
    return f"write {names[0]}-{names[-1]} or a number in {field.low}-{field.high}"


# Saying it in words


def _words(rule: _Meaning) -> str:
    time, is_daily = _time_words(_bits(rule.seconds), _bits(rule.minutes), _bits(rule.hours))
    parts = [time, _day_words(rule, is_daily=is_daily)]
    return " ".join(part for part in parts if part) + _year_words(rule)


def _time_words(seconds: list[int], minutes: list[int], hours: list[int]) -> tuple[str, bool]:
    """Return the time of day in words, and whether they ask for a day to follow."""
    every_hour = len(hours) == 24
    if seconds == [0]:
        return _minute_words(minutes, hours), not every_hour and not _is_every_few_hours(
            minutes, hours
        )
    if len(seconds) == len(minutes) == len(hours) == 1:
        return f"at {_clock(hours[0], minutes[0])}:{seconds[0]:02}", True
    if len(minutes) == 60:
        return _every_minute_words(seconds, hours), not every_hour
    within = f"{_second_words(seconds)} of the minute, "
    words, is_daily = _time_words([0], minutes, hours)
    return within + words, is_daily


def _is_every_few_hours(minutes: list[int], hours: list[int]) -> bool:
    return minutes == [0] and len(hours) >= 4 and hours[0] == 0 and _cycle(hours, 24) is not None


def _minute_words(minutes: list[int], hours: list[int]) -> str:
    if len(minutes) == 1 and len(hours) < 24:
        return _few_times_words(minutes[0], hours)
    clocks = [_clock(hour, minute) for hour in hours for minute in minutes]
    if len(clocks) <= 4:
        return "at " + _and(clocks)
    if (step := _cycle(minutes, 60)) is not None:
        return _every_words(step, minutes, hours)
    if (step := _stride(minutes)) is not None:
        if len(hours) <= 3:
            spans = [f"from {_clock(h, minutes[0])} to {_clock(h, minutes[-1])}" for h in hours]
            return f"{_every(step, 'minute')} {_and(spans)}"
        spread = f"{_every(step, 'minute')} from minute {minutes[0]} to minute {minutes[-1]}"
        return f"{spread} of {_hour_words(hours)}"
    if len(clocks) <= 8:
        return "at " + _and(clocks)
    listed = _and([str(minute) for minute in minutes])
    return f"at {listed} minutes past {_hour_words(hours)}"


def _few_times_words(minute: int, hours: list[int]) -> str:
    """Return the words for one minute of some hours."""
    step = _stride(hours)
    if step is None:
        return "at " + _and([_clock(hour, minute) for hour in hours])
    if _is_every_few_hours([minute], hours):
        return _every(step, "hour")
    span = f"from {_clock(hours[0], minute)} to {_clock(hours[-1], minute)}"
    return f"{_every(step, 'hour')} {span}"


def _every_words(step: int, minutes: list[int], hours: list[int]) -> str:
    """Return the words for minutes that go on evenly from one hour to the next."""
    if len(hours) == 24:
        if step == 60:
            return _past_every_hour(minutes[0])
        start = f" from {_minutes(minutes[0])} past the hour" if minutes[0] else ""
        return _every(step, "minute") + start
    runs = _runs(hours)
    if len(runs) > 3:
        start = f" from minute {minutes[0]}" if minutes[0] else ""
        return f"{_every(step, 'minute')}{start} in {_hour_words(hours)}"
    spans = [f"from {_clock(a, minutes[0])} to {_clock(b, minutes[-1])}" for a, b in runs]
    return f"{_every(step, 'minute')} {_and(spans)}"


def _past_every_hour(minute: int) -> str:
    return f"at {_minutes(minute)} past every hour" if minute else "every hour"


def _every_minute_words(seconds: list[int], hours: list[int]) -> str:
    """Return the words for some seconds of every minute, in some hours."""
    step = _cycle(seconds, 60)
    if step is None or step == 60:
        words = f"{_second_words(seconds)} of every minute"
    else:
        words = _second_words(seconds)
    if len(hours) == 24:
        return words
    runs = _runs(hours)
    if len(runs) > 3:
        return f"{words} in {_hour_words(hours)}"
    return f"{words} {_and([f'from {_clock(a, 0)} to {_clock(b, 59)}' for a, b in runs])}"


def _second_words(seconds: list[int]) -> str:
    step = _cycle(seconds, 60)
    if step is not None and step < 60:
        start = f" from second {seconds[0]}" if seconds[0] else ""
        return _every(step, "second") + start
    if (step := _stride(seconds)) is not None:
        return f"{_every(step, 'second')} from second {seconds[0]} to second {seconds[-1]}"
    return f"at second{'s' if len(seconds) > 1 else ''} {_and([str(s) for s in seconds])}"


def _hour_words(hours: list[int]) -> str:
    if len(hours) == 24:
        return "every hour"
    if (step := _stride(hours)) is not None:
        which = "every hour" if step == 1 else f"every {_ordinal(step)} hour"
        return f"{which} from {_clock(hours[0], 0)} to {_clock(hours[-1], 0)}"
    return _and([_clock(hour, 0) for hour in hours])


def _day_words(rule: _Meaning, *, is_daily: bool) -> str:
    months = _month_words(rule)
    if rule.days == _ALL_DAYS:
        return " ".join(part for part in ("every day" if is_daily else "", months) if part)

    of = _of_months(rule)
    found = []
    if dates := _date_words(rule):
        found.append(f"on {_and(dates)} {of}")
    plain = _weekday_words(rule.weekdays)
    if plain:
        found.append(f"on {plain} {months}".rstrip())
    if odd := _odd_weekday_words(rule.odd_weekdays):
        found.append(f"on {_and(odd)} {of}")
    return _and(found, link="and also")


def _month_words(rule: _Meaning) -> str:
    months = _bits(rule.months)
    if len(months) == 12:
        return ""
    names = [_MONTHS[month - 1].capitalize() for month in months]
    if len(months) > 2 and _stride(months) == 1:
        return f"from {names[0]} to {names[-1]}"
    return "in " + _and(names)


def _of_months(rule: _Meaning) -> str:
    words = _month_words(rule)
    if not words:
        return "of the month"
    if words.startswith("from"):
        return "of each month " + words
    return "of " + words.removeprefix("in ")


def _date_words(rule: _Meaning) -> list[str]:
    days = _bits(rule.days)
    words = []
    if days == [1] and not rule.odd_days:
        return ["the first day"]
    step = _stride(days)
    if step is not None and len(days) > 3 and step > 1:
        span = f"from the {_ordinal(days[0])} to the {_ordinal(days[-1])}"
        words.append(f"every {_ordinal(step)} day {span}")
    else:
        for first, last in _runs(days):
            if last - first > 1:
                words.append(f"the {_ordinal(first)} to the {_ordinal(last)}")
            else:
                words += [f"the {_ordinal(day)}" for day in range(first, last + 1)]
    return words + [_odd_date_words(bit) for bit in _bits(rule.odd_days)]


def _odd_date_words(bit: int) -> str:
    if bit == 0:
        return "the last day"
    if bit < 32:
        return f"the {_ORDINALS.get(bit + 1) or _ordinal(bit + 1)}-to-last day"
    if bit == 32:
        return "the last weekday (Monday to Friday)"
    return f"the weekday (Monday to Friday) nearest to the {_ordinal(bit - 32)}"


def _weekday_words(weekdays: int) -> str:
    if not weekdays:
        return ""
    from_sunday = _bits(weekdays)
    from_monday = [day for day in from_sunday if day] + [7] * (weekdays & 1)
    for days in (from_monday, from_sunday):
        if len(days) > 2 and _stride(days) == 1:
            return f"{_weekday(days[0])} to {_weekday(days[-1])}"
    return _and([_weekday(day) + "s" for day in from_monday])


def _odd_weekday_words(odd: int) -> list[str]:
    return [
        f"the {_ORDINALS[bit // 7 + 1] if bit < 35 else 'last'} {_weekday(bit % 7)}"
        for bit in _bits(odd)
    ]


def _year_words(rule: _Meaning) -> str:
    if not rule.years:
        return ""
    years = [_FIRST_YEAR + bit for bit in _bits(rule.years)]
    step = _stride(years)
    if step is not None and len(years) > 3 and step > 1:
        return f", every {step} years from {years[0]} to {years[-1]}"
    runs = [(f"{a}" if a == b else f"{a} to {b}") for a, b in _runs(years)]
    return f", {'in' if len(years) < 3 or len(runs) > 1 else 'from'} {_and(runs)}"


_ORDINALS: Final = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}


def _ordinal(number: int) -> str:
    """Return a number as a place in a row.

    >>> [_ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 31)]
    ['1st', '2nd', '3rd', '4th', '11th', '12th', '13th', '21st', '22nd', '23rd', '31st']
    """
    if number // 10 == 1:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _weekday(day: int) -> str:
    return _WEEKDAYS[day % 7].capitalize()


def _clock(hour: int, minute: int) -> str:
    return f"{hour:02}:{minute:02}"


def _every(step: int, unit: str) -> str:
    return f"every {unit}" if step == 1 else f"every {step} {unit}s"


def _minutes(count: int) -> str:
    return "1 minute" if count == 1 else f"{count} minutes"


def _and(words: Sequence[str], *, link: str = "and") -> str:
    """Return words as a list in a sentence.

    >>> _and(["a", "b", "c"])
    'a, b and c'
    """
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {link} {words[-1]}"


def _stride(values: Sequence[int]) -> int | None:
    """Return how far apart three or more values are, if all by the same."""
    if len(values) < 3:
        return None
    step = values[1] - values[0]
    return step if values == list(range(values[0], values[-1] + 1, step)) else None


def _cycle(values: Sequence[int], size: int) -> int | None:
    """Return how far apart values are that go on evenly from one round to the next.

    >>> _cycle([5, 20, 35, 50], 60), _cycle([0, 7, 14, 21, 28, 35, 42, 49, 56], 60)
    (15, None)
    """
    step, rest = divmod(size, len(values))
    is_even = not rest and list(values) == list(range(values[0], size, step))
    return step if is_even and values[0] < step else None


def _runs(values: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and last of each row of values without a hole.

    >>> _runs([1, 2, 3, 7, 9, 10])
    [(1, 3), (7, 7), (9, 10)]
    """
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and runs[-1][1] == value - 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    return runs
