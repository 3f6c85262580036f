"""The days and times of a rule, and whether they are what a phrase says.

No test looks at how a rule is written. A reading that can be right is kept: "daily" may leave out
the weekend, "at 9" may be 21:00, four weeks are a month.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from functools import reduce
from itertools import islice, pairwise
from statistics import median
from typing import Final, NamedTuple

from horae.core.entry import CronRule, Entry, OnceRule, Origin, RepeaterRule, Rule
from horae.core.project import project
from horae.timing.phrases.grammar import PARTS, WORKING, Clock, Say, placed
from horae.timing.phrases.tokens import WEEK
from horae.timing.zone import instant, local, zone

_EVE: Final = datetime(2024, 12, 31, 23, 59, 59, tzinfo=UTC)
_FIRST, _LAST = datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 29, tzinfo=UTC)
_NIGHT: Final = time(23, 59, 59)
_ENOUGH: Final = 400  # days, more than a year of a daily rule
_LENGTH: Final = {"d": 1.0, "w": 7.0, "m": 30.44, "y": 365.25}  # in days
_SHORT: Final = {"s": 1, "min": 60, "h": 3600}  # in seconds
_DAY: Final = 1440


class Series(NamedTuple):
    """When a rule fires: its days, and the times of these days."""

    days: tuple[date, ...]
    times: tuple[int, ...]  # minutes of the day; none if they wander
    seconds: tuple[int, ...] = (0,)
    step: int = 0  # minutes between times that wander
    once: bool = False
    has_time: bool = True

    @property
    def gap(self) -> float:
        """The usual number of days from one to the next."""
        return median([(b - a).days for a, b in pairwise(self.days)] or [0])

    @property
    def months(self) -> set[int]:
        return {day.month for day in self.days}

    @property
    def weekdays(self) -> set[int]:
        return {day.weekday() for day in self.days}

    def share(self, weekdays: Collection[int] = WEEK) -> float:
        """Return on what part of such days it fires, in the months in which it does."""
        months, span = self.months, range(self.days[0].toordinal(), self.days[-1].toordinal() + 1)
        could = [day for day in map(date.fromordinal, span) if day.month in months]
        did = sum(day.weekday() in weekdays for day in self.days)
        return did / (sum(day.weekday() in weekdays for day in could) or 1)

    def per(self, unit: str) -> float:
        """Return how many times it fires in a unit."""
        if unit in _SHORT:
            some = len({at // 60 for at in self.times} if unit == "h" else self.times)
            return len(self.times) * len(self.seconds) / (some or 1)
        days = (self.days[-1] - self.days[0]).days + self.gap
        a_day = len(self.times) or _DAY / (self.step or _DAY)
        return a_day * (1 if unit == "d" else len(self.days) / (days or 1) * _LENGTH[unit])


def series_of(rule: Rule, *, zone_name: str, has_time: bool = True) -> list[Series]:
    """Return the series of each part of a rule and of all together; none if it has no days."""
    if not isinstance(rule, CronRule | RepeaterRule | OnceRule):
        return []
    parts = [CronRule((cron,)) for cron in rule.crons] if isinstance(rule, CronRule) else [rule]
    found = [_series(part, zone_name, has_time=has_time) for part in parts]
    if len(found) > 1:
        days = tuple(sorted({day for each in found for day in each.days}))
        times = tuple(sorted({at for each in found for at in each.times}))
        seconds = tuple(sorted({second for each in found for second in each.seconds}))
        found.append(Series(days, times, seconds))
    return found if all(len(each.days) > 1 or (each.once and each.days) for each in found) else []


def _series(rule: Rule, zone_name: str, *, has_time: bool) -> Series:
    entry, place = Entry("", Origin("", 0), "", rule, zone=zone_name), zone(zone_name)
    start = _EVE if isinstance(rule, CronRule) else _FIRST
    days: list[date] = []
    while (found := next(project(entry, start, _LAST), None)) and len(days) < _ENOUGH:
        days.append(local(found.at, place).date())
        start = instant(datetime.combine(days[-1], _NIGHT), place)
        if len(days) > 2 and (days[-1] - days[0]).days > 1461:
            break
    clocks = []
    for day in days[1:3] or days:  # a repeater may begin in the middle of its first day
        night = instant(datetime.combine(day, _NIGHT), place)
        fires = project(entry, night - timedelta(days=1), night)
        clocks.append([local(fire.at, place) for fire in islice(fires, 90_000)])
    minutes = [sorted({at.hour * 60 + at.minute for at in each}) for each in clocks]
    seconds = tuple(sorted({at.second for each in clocks for at in each}))
    step = 0
    if len(minutes) > 1 and minutes[0] != minutes[1]:
        first, second = [at for each in clocks for at in each][:2]
        minutes, step = [[]], int((second - first).total_seconds()) // 60
    times = tuple(minutes[0]) if minutes else ()
    return Series(tuple(days), times, seconds, step, isinstance(rule, OnceRule), has_time)


def broken(says: Sequence[Say], every: Sequence[Series], said: Say | None = None) -> str:
    """Return which part no series keeps, "days" or "times"; *said* is said in all the text."""
    for each in (says, [reduce(both, says)], [both(reduce(both, says), said or Say())]):
        if all(any(not _broken(one, series) for series in every) for one in each):
            return ""
    return next(what for one in says if (what := _broken(one, every[-1])))


def both(one: Say, other: Say) -> Say:
    """Return the days and times that one or the other says."""
    one, other = (
        replace(say, times=frozenset(placed(clock, say.part) for clock in say.times))
        for say in (one, other)
    )
    names = [n for n in ("weekdays", "mdays", "times", "months") if getattr(one, n)]
    part = " ".join(dict.fromkeys(f"{one.part} {other.part}".split())) if one.part else ""
    every = one.every or (None if other.is_short else other.every)
    sets = {name: getattr(one, name) | getattr(other, name) for name in names}
    return replace(one, every=every, part=part, **sets)


def _broken(say: Say, series: Series) -> str:
    if say.either:
        return "" if any(not _broken(each, series) for each in say.either) else "days"
    if (say.once and not series.once) or (say.recurs and series.once):
        return "days"
    if not all(test(say, series) for name, test in _DAYS.items() if getattr(say, name)):
        return "days"
    kept = all(test(say, series) for name, test in _TIMES.items() if getattr(say, name))
    return "" if kept or not series.has_time else "times"


def _keeps_every(say: Say, series: Series) -> bool:
    if say.every is None or series.once:
        return True
    count, unit = say.every
    is_often = bool(say.kinds) or series.share() > 0.7
    if say.is_short:
        seconds = series.seconds if unit == "s" or not say.seconds else (0,)
        at = [60 * minute + second for minute in series.times for second in seconds]
        size = count * _SHORT[unit]
        if say.minutes and unit == "h":
            at = sorted({3600 * (minute // 60) for minute in series.times})
        # Around midnight, without the longest gap: every hour from 22:00 to 5:00.
        around = sorted(b - a for a, b in pairwise([*at, at[0] + 60 * _DAY])) if at else []
        gaps = set(around[:-1]) or {60 * (series.step or _DAY)}
        return is_often and (min(gaps) == size if say.hours else gaps == {size})
    is_dense = len(series.seconds) > 1 and not say.seconds
    if series.step or is_dense or (len(series.times) > 3 and not say.has_time):
        return False
    if (count, unit) == (1, "d"):
        is_whole = series.share() > 0.99 and (say.has_time or len(series.times) == 1)
        return is_whole if say.strict and not say.kinds else is_often
    named = len(say.weekdays) + len(say.mdays) + len(say.nth) + len(say.dates)
    days = count * _LENGTH[unit]
    is_near = abs(series.gap - days) <= (max(0.5, 0.05 * days) if unit == "d" else 0.2 * days)
    return is_near or named > 1 or (max(say.mdays, default=0) > 28 and unit == "m")


def _keeps_count(say: Say, series: Series) -> bool:
    number, unit = say.count or (0, "")
    is_often = unit not in ("min", "h", "d") or say.kinds or series.share() > 0.7
    return is_often and abs(series.per(unit) - number) <= 0.15 * number


def _keeps_weekdays(say: Say, series: Series) -> bool:
    is_rarer = say.every is not None and not say.is_short and say.every != (1, "d")
    is_used = is_rarer or not say.recurs or series.share(say.weekdays) > 0.9
    return is_used and series.weekdays == say.weekdays


def _keeps_months(say: Say, series: Series) -> bool:
    if not (say.recurs or series.gap > 300 or len(series.months) < 12):
        return True  # a date without "every" beside a rule that fires all year
    is_part = say.every is not None and say.every[1] == "m" and say.months < series.months
    return series.months == say.months or is_part


def _keeps_mdays(say: Say, series: Series) -> bool:
    if say.months and not _keeps_months(replace(say, recurs=True), series) and not say.recurs:
        return True
    days = say.mdays | say.nearest
    # The number of each day, from the end of the month if it is said so.
    later = {day: day.day - 1 - monthrange(day.year, day.month)[1] for day in series.days}
    fired = {last if last in days else day.day for day, last in later.items()}
    is_shifted = all(  # to the nearest working day
        day.weekday() < 5 and any(abs(day.day - each) < 3 for each in days) for day in series.days
    )
    return (fired == days or (is_shifted and days < fired)) and _in_period(say, series)


def _in_period(say: Say, series: Series) -> bool:
    if say.of == "q":
        return len(series.months) == 4 and len({month % 3 for month in series.months}) == 1
    if say.months or say.every or series.once:
        return True
    return len(series.months) == 1 if say.of == "y" else len(series.months) >= 6


def _keeps_edge(say: Say, series: Series) -> bool:
    if say.of == "w":
        return series.weekdays <= ({0, 6} if say.edge > 0 else {4, 5, 6})
    days = {day.day for day in series.days}
    return _in_period(say, series) and (max(days) < 8 if say.edge > 0 else min(days) > 24)


def _keeps_nth(say: Say, series: Series) -> bool:
    found = [{pair for pair in say.nth if day == _nth(day, *pair)} for day in series.days]
    return all(found) and set().union(*found) == say.nth and _in_period(say, series)


def _nth(day: date, n: int, weekday: int) -> date | None:
    dates = (day.replace(day=each) for each in range(1, monthrange(day.year, day.month)[1] + 1))
    found = [d for d in dates if d.weekday() == weekday or (weekday == WORKING and d.weekday() < 5)]
    return next(iter(found[n - (n > 0) :]), None)


def _keeps_times(say: Say, series: Series) -> bool:
    wanted = [_readings(clock, say.part) for clock in say.times]
    fired = set(series.times)
    return not fired or (all(fired & each for each in wanted) and fired <= set().union(*wanted))


def _readings(clock: Clock, part: str) -> set[int]:
    found = [placed(clock, each) for each in part.split() or [""]]
    return {(c.minute + half) % _DAY for c in found for half in ((0, 720) if c.sure else (0,))}


def _keeps_part(say: Say, series: Series) -> bool:
    bounds = [PARTS[part] for part in say.part.split()]
    inside = [
        {at for at in series.times if first <= at <= last or first <= at + _DAY <= last}
        for first, last, _ in bounds
    ]
    is_open = bool(say.times) or not series.times
    return is_open or (all(inside) and set().union(*inside) == {*series.times})


def _keeps_windows(say: Say, series: Series) -> bool:
    """Whether all times are in a window, and fill each from its start to its end."""
    left = set(series.times)
    for window in say.windows:
        first, last = (placed(clock, say.part).minute for clock in window)
        last += _DAY * (last < first)
        end = last + (0 if last % 60 else 59)
        inside = sorted(
            at for minute in left for at in (minute, minute + _DAY) if first <= at <= end
        )
        step = max((b - a for a, b in pairwise(inside)), default=1)
        is_early = bool(inside) and inside[-1] + step + (step > 59) <= last - (step < 60)
        if not inside or inside[0] >= first + step or is_early:
            return False
        left -= {minute % _DAY for minute in inside}
    return not left


_Test = Callable[[Say, Series], bool]
_DAYS: Final[dict[str, _Test]] = {
    "every": _keeps_every,
    "count": _keeps_count,
    "minus": lambda say, series: say.minus.isdisjoint(series.weekdays),
    "weekdays": _keeps_weekdays,
    "dates": lambda say, series: {(day.month, day.day) for day in series.days} == say.dates,
    "months": _keeps_months,
    "mdays": _keeps_mdays,
    "nearest": _keeps_mdays,
    "edge": _keeps_edge,
    "nth": _keeps_nth,
}
_TIMES: Final[dict[str, _Test]] = {
    "times": _keeps_times,
    "part": _keeps_part,
    "minutes": lambda say, series: (
        (say.every is not None and say.every[1] in ("s", "min"))
        or {at % 60 for at in series.times} == say.minutes
    ),
    "hours": lambda say, series: {at // 60 for at in series.times} == say.hours,
    "seconds": lambda say, series: set(series.seconds) == say.seconds,
    "windows": _keeps_windows,
}
