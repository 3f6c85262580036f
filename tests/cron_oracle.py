"""Cron the slow way: walk the clock and look at the wall.

Every step of a minute (or a second) is taken, and each wall time is held against the
rule, item by item, by the plainest reading of the words. It shares nothing with what
it judges: neither the reader, nor the calendar, nor the handling of clock changes.
"""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
# A walk that begins in a second pass must have seen the first.
LONGEST_CHANGE = timedelta(days=1)

NAMES = {
    "month": dict(zip(calendar.month_abbr[1:], range(1, 13), strict=True)),
    "weekday": {"Sun": 0, "Mon": 1, "Tue": 2, "Wed": 3, "Thu": 4, "Fri": 5, "Sat": 6},
}
BOUNDS = {
    "second": (0, 59),
    "minute": (0, 59),
    "hour": (0, 23),
    "day": (1, 31),
    "month": (1, 12),
    "weekday": (0, 7),
    "year": (1970, 2199),
}


@dataclass(frozen=True)
class Rule:
    """A rule as words, one field after the other."""

    second: str
    minute: str
    hour: str
    day: str
    month: str
    weekday: str
    year: str

    @property
    def has_star(self) -> bool:
        return any("*" in field for field in (self.second, self.minute, self.hour))

    @property
    def step(self) -> timedelta:
        return MINUTE if self.second == "0" else SECOND

    def is_met(self, wall: datetime) -> bool:
        return (
            wall.second in numbers("second", self.second)
            and wall.minute in numbers("minute", self.minute)
            and wall.hour in numbers("hour", self.hour)
            and self.is_day(wall.date())
        )

    def is_day(self, day: date) -> bool:
        if day.month not in numbers("month", self.month):
            return False
        if self.year != "*" and day.year not in numbers("year", self.year):
            return False
        by_date = any(is_date(item, day) for item in self.day.split(","))
        by_weekday = any(is_weekday(item, day) for item in self.weekday.split(","))
        if self.day in ("*", "?"):
            return by_weekday
        if self.weekday in ("*", "?"):
            return by_date
        return by_date or by_weekday


def rule(expression: str) -> Rule:
    fields = expression.split()
    if len(fields) == 5:
        fields = ["0", *fields]
    if len(fields) == 6:
        fields = [*fields, "*"]
    return Rule(*fields)


def fires(
    rules: Sequence[Rule],
    zone: str,
    start: datetime,
    end: datetime,
    *,
    step: timedelta = MINUTE,
    lead: timedelta = LONGEST_CHANGE,
) -> list[list[datetime]]:
    """Return, for each rule, its moments in (start, end], in UTC."""
    found: list[list[datetime]] = [[] for _ in rules]
    for moment, wall, left_out, is_again in walk(zone, start - lead, end, step):
        for rule, moments in zip(rules, found, strict=True):
            if rule.has_star:
                fires = rule.is_met(wall)
            else:
                fires = (rule.is_met(wall) and not is_again) or any(map(rule.is_met, left_out))
            if fires and moment > start:
                moments.append(moment)
    return found


def walk(
    zone: str, start: datetime, end: datetime, step: timedelta
) -> Iterator[tuple[datetime, datetime, list[datetime], bool]]:
    """Yield each moment, its wall time, the wall times just left out, and if it was seen before."""
    place = ZoneInfo(zone)
    moment = start
    wall = highest = wall_at(moment - step, place)
    while moment <= end:
        previous, wall = wall, wall_at(moment, place)
        left_out = []
        missing = previous + step
        while missing < wall:
            left_out.append(missing)
            missing += step
        yield moment, wall, left_out, wall <= highest
        highest = max(highest, wall)
        moment += step


def wall_at(moment: datetime, place: ZoneInfo) -> datetime:
    return moment.astimezone(place).replace(tzinfo=None, fold=0)


def clock_changes(zone: str, start: datetime, end: datetime) -> list[datetime]:
    """Return the first hour of the clock in UTC after each change."""
    place = ZoneInfo(zone)
    days = [start + timedelta(days=n) for n in range((end - start).days)]
    found = []
    for day in days:
        hours = [day + timedelta(hours=n) for n in range(25)]
        offsets = [hour.astimezone(place).utcoffset() for hour in (hours[0], hours[-1])]
        if offsets[0] != offsets[1]:
            found.append(next(h for h in hours if h.astimezone(place).utcoffset() != offsets[0]))
    return found


@cache
def numbers(field: str, text: str) -> frozenset[int]:
    """Return the numbers a field without letters of its own names."""
    return frozenset(number for item in text.split(",") for number in item_numbers(field, item))


def item_numbers(field: str, item: str) -> list[int]:
    low, high = BOUNDS[field]
    body, _, step = item.partition("/")
    if body in ("*", "?"):
        first, last = low, high
    elif "-" in body:
        first, last = (number(field, text) for text in body.split("-"))
        if field == "weekday" and last == 0 and first > 0:
            last = 7
    else:
        first = number(field, body)
        last = high if step else first
    return [n for n in range(first, last + 1) if (n - first) % int(step or 1) == 0]


def number(field: str, text: str) -> int:
    return NAMES[field][text.capitalize()] if text.isalpha() else int(text)


def is_date(item: str, day: date) -> bool:
    days = calendar.monthrange(day.year, day.month)[1]
    if item == "L":
        return day.day == days
    if item == "LW":
        return day == max(working_days(day))
    if item.startswith("L-"):
        return day.day == days - int(item[2:])
    if item.endswith("W"):
        wanted = int(item[:-1])
        return wanted <= days and day == min(working_days(day), key=distance_to(wanted))
    return day.day in numbers("day", item)


def working_days(day: date) -> list[date]:
    days = calendar.monthrange(day.year, day.month)[1]
    month = [day.replace(day=n) for n in range(1, days + 1)]
    return [other for other in month if other.strftime("%a") not in ("Sat", "Sun")]


def distance_to(wanted: int) -> Callable[[date], int]:
    return lambda day: abs(day.day - wanted)


def is_weekday(item: str, day: date) -> bool:
    if "#" in item:
        name, nth = item.split("#")
        return is_weekday(name, day) and (day.day - 1) // 7 + 1 == int(nth)
    if item.endswith("L"):
        is_last = (day + timedelta(days=7)).month != day.month
        return is_weekday(item[:-1], day) and is_last
    sunday_first = int(day.strftime("%w"))
    named = numbers("weekday", item)
    return sunday_first in named or (sunday_first == 0 and 7 in named)
