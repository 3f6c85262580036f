"""A cron rule in words."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Return the words of rules that together are one interval; empty if they are not."""
    first, *others = (rule._replace(starred=False, minutes=0, hours=0) for rule in rules)
    clocks = {(h, m) for rule in rules for h in bits(rule.hours) for m in bits(rule.minutes)}
    times = sorted(60 * hour + minute for hour, minute in clocks)
    step = _stride(times)
    if not others or {*others} != {first} or first.seconds != 1 or step is None:
        return ""
    every = _every(step, "minute") if step % 60 else _every(step // 60, "hour")
    if is_daily := times[0] > 0 or step * len(times) != 1440:
        every += f" from {_clock(*divmod(times[0], 60))} to {_clock(*divmod(times[-1], 60))}"
    return f"{every} {_day_words(first, is_daily=is_daily)}".rstrip() + _year_words(first)


def _time_words(seconds: list[int], minutes: list[int], hours: list[int]) -> tuple[str, bool]:
    """Return the time of day, and whether a day must follow."""
    every_hour = len(hours) == 24
    if seconds == [0]:
        is_daily = not every_hour and not _is_every_few_hours(minutes, hours)
        return _minute_words(minutes, hours), is_daily
    if len(seconds) == len(minutes) == len(hours) == 1:
        return f"at {_clock(hours[0], minutes[0])}:{seconds[0]:02}", True
    if len(minutes) == 60:
        is_even = (_cycle(seconds, 60) or 60) < 60
        words = _second_words(seconds) + ("" if is_even else " of every minute")
        return words if every_hour else _during(words, hours, 0, 59), not every_hour
    words, is_daily = _time_words([0], minutes, hours)
    return f"{_second_words(seconds)} of the minute, {words}", is_daily


def _is_every_few_hours(minutes: list[int], hours: list[int]) -> bool:
    return minutes == [0] and len(hours) >= 4 and hours[0] == 0 and _cycle(hours, 24) is not None


def _minute_words(minutes: list[int], hours: list[int]) -> str:
    clocks = [_clock(hour, minute) for hour in hours for minute in minutes]
    step = _stride(hours)
    if len(minutes) == 1 and len(hours) < 24 and step is not None:
        is_even = _is_every_few_hours(minutes, hours)
        return _every(step, "hour") + ("" if is_even else f" from {clocks[0]} to {clocks[-1]}")
    if len(clocks) <= 4 or (len(minutes) == 1 and len(hours) < 24):
        return "at " + _and(clocks)
    first, last = minutes[0], minutes[-1]
    if (step := _cycle(minutes, 60)) is not None:  # evenly from one hour to the next
        past = "1 minute" if first == 1 else f"{first} minutes"
        if len(hours) < 24:
            start = f" from minute {first}" if first else ""
            return _during(_every(step, "minute"), hours, first, last, start)
        if step == 60:
            return f"at {past} past every hour" if first else "every hour"
        return _every(step, "minute") + (f" from {past} past the hour" if first else "")
    if (step := _stride(minutes)) is not None:
        if len(hours) <= 3:
            spans = [f"from {_clock(hour, first)} to {_clock(hour, last)}" for hour in hours]
            return f"{_every(step, 'minute')} {_and(spans)}"
        spread = f"{_every(step, 'minute')} from minute {first} to minute {last}"
        return f"{spread} of {_hour_words(hours)}"
    if len(clocks) <= 8:
        return "at " + _and(clocks)
    return f"at {_and([str(minute) for minute in minutes])} minutes past {_hour_words(hours)}"


def _during(words: str, hours: list[int], first: int, last: int, start: str = "") -> str:
    """Return what happens from minute *first* of each run of hours to minute *last*."""
    runs = _runs(hours)
    if len(runs) > 3:
        return f"{words}{start} in {_hour_words(hours)}"
    return f"{words} {_and([f'from {_clock(a, first)} to {_clock(b, last)}' for a, b in runs])}"


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


def _day_words(rule: Meaning, *, is_daily: bool) -> str:
    months = _month_words(rule)
    if rule.days == ALL_DAYS:
        return " ".join(part for part in ("every day" if is_daily else "", months) if part)
    of = "of the month"
    if months:
        each = "each month " if months.startswith("from") else ""
        of = f"of {each}{months.removeprefix('in ')}"
    found = []
    if dates := _date_words(rule):
        found.append(f"on {_and(dates)} {of}")
    if rule.weekdays:
        found.append(f"on {_weekday_words(rule.weekdays)} {months}".rstrip())
    if rule.odd_weekdays:
        odd = [
            f"the {_ORDINALS[bit // 7 + 1] if bit < 35 else 'last'} {_DAYS[bit % 7]}"
            for bit in bits(rule.odd_weekdays)
        ]
        found.append(f"on {_and(odd)} {of}")
    return _and(found, link="and also") + (", skipping shorter months" if _skips(rule) else "")


def _skips(rule: Meaning) -> bool:
    """Whether some of the months, and not all, lack a day that is named by itself."""
    days = bits(rule.days)
    step, (first, last) = _stride(days), _runs(days)[-1] if days else (0, 0)
    has_day = {LENGTHS[month - 1] >= last for month in bits(rule.months)}
    is_late = False in has_day or (last == 29 and rule.months == ALL_MONTHS)
    is_more = bool(len(days) > 1 or rule.weekdays or rule.odd_weekdays)  # than a day that never is
    is_named = last - first < 2 and not (step and step > 1 and len(days) > 3)
    return is_late and is_named and (has_day != {False} or is_more)


def _month_words(rule: Meaning) -> str:
    months = bits(rule.months)
    if len(months) == 12:
        return ""
    names = [MONTHS[month - 1].capitalize() for month in months]
    if len(months) > 2 and _stride(months) == 1:
        return f"from {names[0]} to {names[-1]}"
    return "in " + _and(names)


def _date_words(rule: Meaning) -> list[str]:
    days = bits(rule.days)
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
    for bit in bits(rule.odd_days):
        if bit == 0:
            words.append("the last day")
        elif bit < 32:
            words.append(f"the {_ORDINALS.get(bit + 1) or _ordinal(bit + 1)}-to-last day")
        elif bit == 32:
            words.append("the last working day")
        else:
            words.append(f"the working day nearest to the {_ordinal(bit - 32)}")
    return words


def _weekday_words(weekdays: int) -> str:
    from_sunday = bits(weekdays)
    from_monday = [day for day in from_sunday if day] + [7] * (weekdays & 1)
    for days in (from_monday, from_sunday):
        if len(days) > 2 and _stride(days) == 1:
            return f"{_DAYS[days[0]]} to {_DAYS[days[-1]]}"
    return _and([_DAYS[day] + "s" for day in from_monday])


def _year_words(rule: Meaning) -> str:
    if not rule.years:
        return ""
    years = [FIRST_YEAR + bit for bit in bits(rule.years)]
    step = _stride(years)
    if step is not None and len(years) > 3 and step > 1:
        return f", every {step} years from {years[0]} to {years[-1]}"
    runs = [(f"{a}" if a == b else f"{a} to {b}") for a, b in _runs(years)]
    return f", {'in' if len(years) < 3 or len(runs) > 1 else 'from'} {_and(runs)}"


_ORDINALS: Final = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}


def _ordinal(number: int) -> str:
    if number // 10 == 1:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _clock(hour: int, minute: int) -> str:
    return f"{hour:02}:{minute:02}"


def _every(step: int, unit: str) -> str:
    return f"every {unit}" if step == 1 else f"every {step} {unit}s"


def _and(words: Sequence[str], *, link: str = "and") -> str:
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
    """Return how far apart values are that go on evenly from one round to the next."""
    step, rest = divmod(size, len(values))
    is_even = not rest and list(values) == list(range(values[0], size, step))
    return step if is_even and values[0] < step else None


def _runs(values: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and runs[-1][1] == value - 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    return runs
