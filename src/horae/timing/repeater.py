"""Repeaters: `+1d`, `++1w` and `.+2d/4d`, and the times of their occurrences.

Everything is computed in local time, as in Emacs Org, and only then mapped to UTC. A month too
short for the day overflows into the next one, and each shift starts from the date of the last: 31
January +1m is 3 March, then 3 April, 3 May. A repeater and its anchor, the local time of the
timestamp, make a grid: the anchor, the anchor shifted once, twice, and so on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, time, timedelta
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from horae.errors import ScheduleError
from horae.timing.cron import month_length
from horae.timing.zone import changes, instant, local, zone as zone_named

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_REPEATER: Final = re.compile(r"(\.\+|\+\+?)([0-9]+)([hdwmy])(?:/([0-9]+)([hdwmy]))?")
_BEGINNING: Final = re.compile(r"(\.\+|\+\+?)([0-9]*)(.*)", re.DOTALL)
_MOST: Final = 999_999  # a larger count is a typing error, even in hours

CLOCK: Final = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?:-([01]?[0-9]|2[0-3]):([0-5][0-9]))?")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TOKEN: Final = re.compile(r"\S+")

# A delay with two dashes is for the first occurrence only, so a shift removes it.
_FIRST_ONLY: Final = re.compile(r"\s--[0-9]+[hdwmy](?=[\s>])")

_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_FULL_NAMES: Final = frozenset(day.lower() for day in _DAYS)
_SHORT_NAMES: Final = frozenset(day[:3].lower() for day in _DAYS)


class TimestampError(ScheduleError, code="timestamp"):
    def __init__(self, text: str, *, reason: str) -> None:
        self.text, self.reason = text, reason
        shown = text if len(text) <= 60 else text[:60] + "…"
        super().__init__(f"{self.code} {shown!r}: {reason}")


class RepeaterError(TimestampError, code="repeater"):
    def __init__(self, text: str, *, wrong: str, fault: str, fix: str = "") -> None:
        self.fault = fault  # the code of the finding of `horae check`
        self._parts = wrong, fix  # separate in a finding, joined in the reason
        super().__init__(text, reason="; ".join(filter(None, (wrong, fix))))

    @property
    def parts(self) -> tuple[str, str]:
        return self._parts


class RepeaterKind(StrEnum):
    CUMULATE = "+"  # from the old date, one interval later
    CATCH_UP = "++"  # from the old date, the first one in the future
    RESTART = ".+"  # from the day it was done; hours from the minute it was done


class Unit(StrEnum):
    HOUR = "h"
    DAY = "d"
    WEEK = "w"
    MONTH = "m"
    YEAR = "y"


_FIXED: Final = {
    Unit.HOUR: timedelta(hours=1),
    Unit.DAY: timedelta(days=1),
    Unit.WEEK: timedelta(weeks=1),
}
_INSTANT: Final = timedelta(microseconds=1)
_MONTHS: Final = {Unit.MONTH: 1, Unit.YEAR: 12}
# How Org compares the two parts of a habit.
_ABOUT: Final = {**_FIXED, Unit.MONTH: timedelta(days=30.4), Unit.YEAR: timedelta(days=365.25)}


class Interval(Struct, frozen=True):
    count: int
    unit: Unit

    def __str__(self) -> str:
        return f"{self.count}{self.unit}"


class Repeater(Struct, frozen=True, omit_defaults=True):
    kind: RepeaterKind
    count: int
    unit: Unit
    maximum: Interval | None = None

    def __str__(self) -> str:
        habit = f"/{self.maximum}" if self.maximum else ""
        return f"{self.kind}{self.count}{self.unit}{habit}"

    def nth(self, anchor: datetime, n: int) -> datetime | None:
        """Return the local time after *n* shifts of the anchor; None after the year 9999."""
        if self.unit in _MONTHS:
            return _months_on(anchor, self.count * _MONTHS[self.unit], n)
        try:
            return anchor + n * self.count * _FIXED[self.unit]
        except OverflowError:
            return None

    def after(self, anchor: datetime, moment: datetime, *, zone: ZoneInfo) -> datetime | None:
        return self._moment(anchor, self._place_after(anchor, moment, zone), zone)

    def between(
        self, anchor: datetime, start: datetime, end: datetime, *, zone: ZoneInfo
    ) -> Iterator[datetime]:
        last = start
        for n in count(self._place_after(anchor, start, zone)):
            at = self._moment(anchor, n, zone)
            if at is None or at > end:
                return
            # All local times in a gap are the same time.
            if at > last:
                yield at
                last = at

    def how_many(self, anchor: datetime, start: datetime, end: datetime, *, zone: ZoneInfo) -> int:
        """Count the times of `between` without iterating over them."""
        if start >= end:
            return 0
        places = self._place_after(anchor, end, zone) - self._place_after(anchor, start, zone)
        # All local times in a gap, and the one at its end, are the same time.
        for change in changes(zone, start, end):
            if change.is_gap:
                low, high = ((change.at + off).replace(tzinfo=None) for off in change[1:])
                first = self._place_after_wall(anchor, low - _INSTANT)
                places -= max(0, self._place_after_wall(anchor, high) - first - 1)
        return places

    def shift(self, anchor: datetime, *, now: datetime, zone: ZoneInfo) -> datetime | None:
        """Return the local time of a timestamp once done now; None after the year 9999."""
        if self.kind is RepeaterKind.CUMULATE:
            return self.nth(anchor, 1)
        if self.kind is RepeaterKind.RESTART:
            done = local(now, zone)
            is_hourly = self.unit is Unit.HOUR
            minute = done.replace(second=0, microsecond=0)
            anchor = minute if is_hourly else datetime.combine(done.date(), anchor.time())
        return self.nth(anchor, max(1, self._place_after(anchor, now, zone)))

    def _moment(self, anchor: datetime, n: int, zone: ZoneInfo) -> datetime | None:
        wall = self.nth(anchor, n)
        return None if wall is None else instant(wall, zone)

    def _place_after(self, anchor: datetime, moment: datetime, zone: ZoneInfo) -> int:
        n = self._place_after_wall(anchor, local(moment, zone))
        # In the second pass of a fold, later local times have already been. A fold is
        # no longer than a day, so this ends after a few hours' steps.
        while (at := self._moment(anchor, n, zone)) is not None and at <= moment:
            n += 1
        return n

    def _place_after_wall(self, anchor: datetime, wall: datetime) -> int:
        if self.unit not in _MONTHS:
            return max(0, (wall - anchor) // (self.count * _FIXED[self.unit]) + 1)
        step = self.count * _MONTHS[self.unit]
        months = (wall.year - anchor.year) * 12 + wall.month - anchor.month
        # A day that overflowed is one month later, so begin one index early.
        n = max(0, months // step - 1)
        while (place := self.nth(anchor, n)) is not None and place <= wall:
            n += 1
        return n


class Anchor(NamedTuple):
    start: datetime
    end: time | None
    has_time: bool


def parse_repeater(text: str, *, has_time: bool = True) -> Repeater:
    """Parse the repeater of a timestamp.

    >>> parse_repeater(".+2d/4d")
    Repeater(kind=<RepeaterKind.RESTART: '.+'>, count=2, unit=<Unit.DAY: 'd'>,
             maximum=Interval(count=4, unit=<Unit.DAY: 'd'>))
    >>> parse_repeater("+1x")
    Traceback (most recent call last):
    horae.timing.repeater.RepeaterError: repeater '+1x': unit x is not one of h, d, w, m, y
    """
    match = _REPEATER.fullmatch(text)
    if not match:
        raise _unreadable(text)
    kind, number, unit, most, most_unit = match.groups()
    least = Interval(_count(text, number), Unit(unit))
    maximum = Interval(_count(text, most), Unit(most_unit)) if most else None
    if least.unit is Unit.HOUR and not has_time:
        wrong, fix = "counts hours, but the date has no time", "add one, such as 06:00"
        raise RepeaterError(text, wrong=wrong, fault="hours", fix=fix)
    if maximum and maximum.count * _ABOUT[maximum.unit] <= least.count * _ABOUT[least.unit]:
        wrong = f"the longest interval, {maximum}, must be longer than the shortest, {least}"
        raise RepeaterError(text, wrong=wrong, fault="habit")
    return Repeater(RepeaterKind(kind), least.count, least.unit, maximum)


def parse_at(at: str) -> Anchor:
    day, written, clock = at.partition("T")
    return _anchor(at, day, clock if written else None)


def repeat(stamp: str, *, now: datetime, zone: str = "UTC") -> str | None:
    """Return a timestamp once done now; None if it does not repeat.

    Only date, day name, time and a used delay change.

    >>> now = datetime.fromisoformat("2026-06-09T12:00Z")
    >>> repeat("<2026-06-06 Sat 06:00-07:30 ++1w -2d>", now=now)
    '<2026-06-13 Sat 06:00-07:30 ++1w -2d>'
    """
    if now.utcoffset() is None:
        raise ValueError(f"now needs a time zone: {now.isoformat()}")
    place = zone_named(zone)
    tokens = _read(stamp)
    if not tokens.is_active or tokens.repeater is None:
        return None

    anchor = _anchor(stamp, tokens.when[0], tokens.clock and tokens.clock[0])
    repeater = parse_repeater(tokens.repeater[0], has_time=anchor.has_time)
    moved = repeater.shift(anchor.start, now=now, zone=place)
    if moved is None:
        wrong = f"goes from {anchor.start.date()} past the year 9999"
        raise RepeaterError(str(repeater), wrong=wrong, fault="large")
    parts = [(tokens.when.span(), moved.date().isoformat())]
    if tokens.day:
        parts.append((tokens.day.span(), _day_name(tokens.day[0], anchor.start, moved)))
    if tokens.clock and moved.time() != anchor.start.time():
        clock = f"{moved:%H:%M}"
        if anchor.end is not None:
            # Both ends move by the same amount, and either may pass midnight.
            further = (moved - anchor.start) // timedelta(minutes=1)
            hour, minute = divmod(anchor.end.hour * 60 + anchor.end.minute + further, 60)
            clock += f"-{hour % 24:02}:{minute:02}"
        parts.append((tokens.clock.span(), clock))
    parts += [(spent.span(), "") for spent in _FIRST_ONLY.finditer(stamp)]
    for (begin, end), text in sorted(parts, reverse=True):
        stamp = stamp[:begin] + text + stamp[end:]
    return stamp


class _StampParts(NamedTuple):
    is_active: bool
    when: re.Match[str]
    day: re.Match[str] | None
    clock: re.Match[str] | None
    repeater: re.Match[str] | None


def _read(stamp: str) -> _StampParts:
    inside = stamp.strip()
    if inside[:1] + inside[-1:] not in {"<>", "[]"} or re.search(r"[][<>]", inside[1:-1]):
        reason = "is not one timestamp in < > or [ ]; write it like <2026-06-06 Sat 06:00 +1d>"
        raise TimestampError(stamp, reason=reason)

    when = day = clock = repeater = None
    begin = stamp.index(inside) + 1
    for token in _TOKEN.finditer(stamp, begin, begin + len(inside) - 2):
        text = token[0]
        if when is None and len(text) == 10 and text[4] == "-":
            when = token
        elif ":" in text:
            clock = token
        elif text.startswith(("+", ".+")):
            repeater = token
        elif day is None and _is_day(token, when):
            day = token
    if when is None:
        raise TimestampError(stamp, reason="has no date; write one, such as 2026-06-06")
    return _StampParts(inside[0] == "<", when, day, clock, repeater)


def _is_day(token: re.Match[str], when: re.Match[str] | None) -> bool:
    """Return whether a word is a day name: an English one, or right after the date."""
    word = token[0].rstrip(".")
    if word.lower() in _FULL_NAMES | _SHORT_NAMES:
        return True
    follows = when is not None and token.string[when.end() : token.start()].isspace()
    return follows and word.isalpha()


def _anchor(text: str, day: str, clock: str | None) -> Anchor:
    try:
        # Python also reads 2026-W23-6, which no plan means by its ten characters.
        start = datetime.fromisoformat(day) if _DATE.fullmatch(day) else None
    except ValueError:
        start = None
    if start is None:
        raise TimestampError(text, reason=f"{day} is not a valid date")
    if clock is None:
        return Anchor(start, None, has_time=False)

    match = CLOCK.fullmatch(clock)
    if not match:
        reason = f"{clock} is not a valid time; write HH:MM or HH:MM-HH:MM"
        raise TimestampError(text, reason=reason)
    hour, minute, end_hour, end_minute = match.groups()
    end = time(int(end_hour), int(end_minute)) if end_hour else None
    return Anchor(start.replace(hour=int(hour), minute=int(minute)), end, has_time=True)


def _day_name(written: str, old: datetime, new: datetime) -> str:
    """Return the name of the new day in the form of the old one.

    A word that is not an English name stays if it is still right, and else becomes the short
    English name.
    """
    bare = written.rstrip(".")
    is_full = bare.lower() in _FULL_NAMES
    if not is_full and bare.lower() not in _SHORT_NAMES and old.weekday() == new.weekday():
        return written
    name = _DAYS[new.weekday()] if is_full else _DAYS[new.weekday()][:3]
    if bare.isupper():
        name = name.upper()
    if bare.islower():
        name = name.lower()
    return name + written[len(bare) :]


def _unreadable(text: str) -> RepeaterError:
    beginning, fault, fix = _BEGINNING.fullmatch(text), "shape", ""
    sign, number, rest = beginning.groups() if beginning else ("", "", "")
    unit, _, _ = rest.partition("/")
    if not beginning:
        wrong, fix = "does not begin with +, ++ or .+", "write it like +1d"
    elif not number:
        wrong, fix = "has no number", f"write it like {sign}1d"
    elif not unit:
        wrong, fault, fix = "has no unit", "unit", f"write it like {sign}{number[:6]}d"
    elif unit not in set(Unit):
        wrong, fault = f"unit {unit[:20]} is not one of {', '.join(Unit)}", "unit"
    else:
        wrong, fix = "does not end with an interval", f"write a habit like {sign}2d/4d"
    return RepeaterError(text, wrong=wrong, fault=fault, fix=fix)


def _count(text: str, number: str) -> int:
    digits = number.lstrip("0")
    if not digits:
        raise RepeaterError(text, wrong="has a count of 0", fault="zero", fix="write at least 1")
    if len(digits) > len(str(_MOST)):
        wrong = f"has a count of more than {_MOST}"
        raise RepeaterError(text, wrong=wrong, fault="large", fix="use a larger unit")
    return int(digits)


def _months_on(anchor: datetime, step: int, n: int) -> datetime | None:
    months, day = n * step, anchor.day
    # After 400 years the calendar repeats.
    for turn in range(1, min(n, 4800) + 1 if day > 28 else 0):
        length = month_length(*_month_after(anchor, turn * step))
        if day > length:
            # The day overflows into the next month, after which every month is long enough.
            day, months = day - length, months + 1
            break
    year, month = _month_after(anchor, months)
    return anchor.replace(year=year, month=month, day=day) if year <= 9999 else None


def _month_after(anchor: datetime, months: int) -> tuple[int, int]:
    year, month = divmod(anchor.year * 12 + anchor.month - 1 + months, 12)
    return year, month + 1


def stamp_text(anchor: datetime, repeater: Repeater | None, *, has_time: bool = True) -> str:
    """Return a local time and its repeater as a timestamp.

    >>> stamp_text(datetime(2026, 6, 5, 17, 30), parse_repeater("++2w"))
    '<2026-06-05 Fri 17:30 ++2w>'
    """
    day, clock = _DAYS[anchor.weekday()][:3], f" {anchor:%H:%M}" if has_time else ""
    return f"<{anchor.date().isoformat()} {day}{clock}{f' {repeater}' if repeater else ''}>"
