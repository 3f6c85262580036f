"""A cron rule in words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

from horae.timing.cron_fields import FIRST_YEAR, MONTHS, WEEKDAYS

ALL_DAYS: Final = (1 << 32) - 2
ALL_MONTHS: Final = (1 << 13) - 2
LENGTHS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DAYS: Final = [day.capitalize() for day in (*WEEKDAYS, WEEKDAYS[0])]


class Meaning(NamedTuple):
    """What a rule says, however it was written."""

    zone: str
    starred: bool
    seconds: int
    minutes: int
    hours: int
    days: int  # bits 1-31
    odd_days: int  # as cron_fields sets them
    months: int  # bits 1-12
    weekdays: int  # bits 0-6, Sunday first
    odd_weekdays: int  # as cron_fields sets them
    years: int  # bit 0 is 1970; no bits are every year


def bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def words_of(rule: Meaning) -> str:
    time, is_daily = _time_words(bits(rule.seconds), bits(rule.minutes), bits(rule.hours))
    parts = [time, _day_words(rule, is_daily=is_daily)]
    return " ".join(part for part in parts if part) + _year_words(rule)


def interval_words(rules: Sequence[Meaning]) -> str:
    first, *others = (rule._replace(starred=False, minutes=0, hours=0) for rule in rules)
    clocks = {(h, m) for rule in rules for h in bits(rule.hours) for m in bits(rule.minutes)}
    every, is_daily = _interval(sorted(60 * hour + minute for hour, minute in clocks))
    if not others or {*others} != {first} or first.seconds != 1 or not every:
        return ""
    return f"{every} {_day_words(first, is_daily=is_daily)}".rstrip() + _year_words(first)


def _interval(times: Sequence[int]) -> tuple[str, bool]:
    """Return even times of the day as an interval, and whether a day must follow."""
    step = times[1] - times[0] if len(times) > 2 else 0
    if not step or list(times) != list(range(times[0], times[-1] + 1, step)):
        return "", False
    every = _every(step, "minute") if step % 60 else _every(step // 60, "hour")
    if times[0] == 0 and step * len(times) == 1440:
        return every, False
    return f"{every} from {_clock(times[0])} to {_clock(times[-1])}", True


def _time_words(seconds: list[int], minutes: list[int], hours: list[int]) -> tuple[str, bool]:
    """Return the time of day, and whether a day must follow."""
    clocks = [60 * hour + minute for hour in hours for minute in minutes]
    is_daily, is_open = len(hours) < 24, len(minutes) == 60
    step = 60 // len(seconds)
    if seconds == [0]:
        every, is_part = _interval(clocks)
        if every and not (len(minutes) == 1 and is_part and not is_daily):
            return every, is_part
        if len(clocks) <= 4 or (len(minutes) == 1 and is_daily):
            return f"at {_and([_clock(at) for at in clocks])}", True
    elif len(seconds) == len(clocks) == 1:
        return f"at {_clock(clocks[0])}:{seconds[0]:02}", True
    elif len(clocks) == 1440 and len(seconds) > 1 and seconds == list(range(0, 60, step)):
        return _every(step, "second"), False
    head = "" if seconds == [0] else f"{_listed('second', seconds)} of "
    of_hours = _listed("hour", hours) if is_daily else "" if head and is_open else "every hour"
    of_minutes = "every minute" if head and is_open else _listed("minute", minutes)
    return f"at {head}{of_minutes}{' of ' if of_hours else ''}{of_hours}", is_daily


def _listed(unit: str, values: Sequence[int]) -> str:
    """Return numbers with their unit.

    >>> _listed("minute", [0, 1, 2, 3, 30])
    'minutes 0 to 3 and 30'
    """
    return (
        f"{unit}{'s' if len(values) > 1 else ''} {_and(_spans([str(n) for n in values], values))}"
    )


def _spans(words: Sequence[str], values: Sequence[int]) -> list[str]:
    """Return words, with three or more that follow one another as a range."""
    found: list[str] = []
    for _, run in groupby(enumerate(values), key=lambda pair: pair[1] - pair[0]):
        each = [words[at] for at, _ in run]
        found += [f"{each[0]} to {each[-1]}"] if len(each) > 2 else each
    return found


def _day_words(rule: Meaning, *, is_daily: bool) -> str:
    """Return the days, one group for each way in which a rule names them."""
    months = bits(rule.months)
    names = _spans([MONTHS[month - 1].capitalize() for month in months], months)
    season = f"from {names[0]}" if len(names) == 1 < len(months) else f"in {_and(names)}"
    each = "each month " if season.startswith("from") else ""
    of = f"of {each}{season.removeprefix('in ')}" if len(months) < 12 else "of the month"
    season = season if len(months) < 12 else ""
    if rule.days == ALL_DAYS:
        return " ".join(part for part in ("every day" if is_daily else "", season) if part)
    lengths = [LENGTHS[month - 1] - (month == 2 and not season) for month in months]
    is_alone = not (rule.odd_days or rule.weekdays or rule.odd_weekdays)
    days = bits(rule.days)
    days = [day for day in days if day <= max(lengths)] or (days if is_alone else [])
    dates = _spans([_ordinal(day) for day in days], days)
    last = [_NTH.get(bit + 1, _ordinal(bit + 1)) for bit in bits(rule.odd_days) if 0 < bit < 32]
    ends = [*["last"][: rule.odd_days & 1], *(f"{word}-to-last" for word in last)]
    near = [_ordinal(bit - 32) for bit in bits(rule.odd_days) if bit > 32]
    nth = [
        f"the {_NTH[bit // 7 + 1] if bit < 35 else 'last'} {_DAYS[bit % 7]}"
        for bit in bits(rule.odd_weekdays)
    ]
    on_dates = _and([*dates, *ends]) + (" day" if ends else "")
    groups = (
        (dates or ends, f"the {'first day' if on_dates == '1st' else on_dates} {of}"),
        (rule.odd_days >> 32 & 1, f"the last working day {of}"),
        (near, f"the working day nearest to the {_and(near)} {of}"),
        (rule.weekdays, f"{_weekday_words(rule.weekdays)} {season}".rstrip()),
        (nth, f"{_and(nth)} {of}"),
    )
    skips = days and min(lengths) < days[-1] <= max(lengths)
    found = _and([f"on {words}" for is_said, words in groups if is_said], link="and also")
    return found + (", skipping shorter months" if skips else "")


def _weekday_words(weekdays: int) -> str:
    from_sunday = bits(weekdays)
    from_monday = [day for day in from_sunday if day] + [7] * (weekdays & 1)
    for days in (from_monday, from_sunday):
        spans = _spans([_DAYS[day] for day in days], days)
        if len(spans) == 1 < len(days):
            return spans[0]
    return _and([_DAYS[day] + "s" for day in from_monday])


def _year_words(rule: Meaning) -> str:
    years = [FIRST_YEAR + bit for bit in bits(rule.years)]
    spans = _spans([str(year) for year in years], years)
    is_range = len(spans) == 1 < len(years)
    return f", {'from' if is_range else 'in'} {_and(spans)}" if years else ""


_NTH: Final = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}


def _ordinal(number: int) -> str:
    if number // 10 == 1:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def _every(step: int, unit: str) -> str:
    return f"every {unit}" if step == 1 else f"every {step} {unit}s"


def _and(words: Sequence[str], *, link: str = "and") -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {link} {words[-1]}"
