"""The rule that the words would mean, and what a rule means in words."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from horae.extras.drift.agreement import Fields, RuleFacts, fields_of, fired_at, is_in_part
from horae.extras.drift.phrase import DAY_NAMES, MONTH_NAMES, PARTS
from horae.extras.drift.when import SHORT, WEEK, WORKDAYS, Often, Period, Rule, SpokenTime, Stamped
from horae.timing.cron import Cron
from horae.timing.repeater import Repeater, RepeaterKind, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable


def suggested(when: SpokenTime, rule: Rule, facts: RuleFacts) -> str | None:
    """Return the rule that words would mean, in the form of the one that is there."""
    if isinstance(rule, Cron):
        found = _cron_for(when, fields_of(rule), facts)
        if found or when.every is None or when.every.period not in _REPEATED:
            return found
        # A timestamp repeats as no cron rule can.
        return str(Repeater(RepeaterKind.CATCH_UP, when.every.n, _REPEATED[when.every.period]))
    return _stamp_for(when, rule, facts) or _cron_for(when, _as_fields(rule), facts)


_REPEATED: Final = {
    Period.HOUR: Unit.HOUR,
    Period.DAY: Unit.DAY,
    Period.WEEK: Unit.WEEK,
    Period.MONTH: Unit.MONTH,
    Period.YEAR: Unit.YEAR,
}


def _as_fields(rule: Stamped) -> Fields:
    anchor = rule.anchor
    fields = Fields(str(anchor.minute), str(anchor.hour))
    match rule.repeater.unit if rule.repeater else None:
        case Unit.WEEK:
            return fields._replace(weekday=_spelt(frozenset({anchor.weekday()}), "*"))
        case Unit.MONTH:
            return fields._replace(day=str(anchor.day))
        case Unit.YEAR:
            return fields._replace(day=str(anchor.day), month=str(anchor.month))
        case _:
            return fields


def _cron_for(when: SpokenTime, fields: Fields, facts: RuleFacts) -> str | None:
    dated = _with_days(when, fields, facts)
    timed = _with_times(when, dated, facts) if dated else []
    return "; ".join(str(each) for each in timed) or None


def _with_days(when: SpokenTime, fields: Fields, facts: RuleFacts) -> Fields | None:
    if when.months:
        names = [MONTH_NAMES[month - 1][:3].upper() for month in sorted(when.months)]
        fields = fields._replace(month=",".join(names))
    if when.weekdays:
        is_rarer = when.every and when.every.period not in SHORT
        return None if is_rarer else _on_weekdays(when, fields, facts)
    if when.nth or when.days:
        monthly = _in_months(when, fields, facts)
        return _on_dates(when, monthly) if monthly else None
    if when.times_per:
        return _with_count(when, fields, facts)
    if when.every:
        return _with_rhythm(when, fields, facts)
    return _on_one_day(fields) if when.months else fields


def _on_weekdays(when: SpokenTime, fields: Fields, facts: RuleFacts) -> Fields:
    weekday = _spelt(when.weekdays, fields.weekday)
    return _in_season(when, fields, facts)._replace(day="*", weekday=weekday)


def _in_season(when: SpokenTime, fields: Fields, facts: RuleFacts) -> Fields:
    """Return the fields without their months, unless those are said, or a season."""
    months = {(day.year, day.month) for day in facts.days}
    is_season = len(facts.days) > len(months)
    return fields if when.months or is_season else fields._replace(month="*")


def _on_dates(when: SpokenTime, fields: Fields) -> Fields | None:
    if when.nth is None:
        days = ["L" if day < 0 else str(day) for day in sorted(when.days, key=lambda d: d % 32)]
        return fields._replace(day=",".join(days), weekday="*")
    n, weekdays = when.nth
    if weekdays == WORKDAYS:
        special = {1: "1W", -1: "LW"}.get(n)
        return fields._replace(day=special, weekday="*") if special else None
    name = _spelt(weekdays, "*")
    return fields._replace(day="*", weekday=f"{name}L" if n < 0 else f"{name}#{n}")


def _with_rhythm(when: SpokenTime, fields: Fields, facts: RuleFacts) -> Fields | None:
    assert when.every is not None
    count, period = when.every
    match period:
        case Period.DAY if count <= 15:
            day = "*" if count == 1 else f"*/{count}"
            return _in_season(when, fields, facts)._replace(day=day, weekday="*")
        case Period.WEEK if count == 1:
            is_named = fields.weekday not in ("*", "?")
            first = min(day.weekday() for day in facts.days) if is_named else 0
            return _on_weekdays(replace(when, weekdays=frozenset({first})), fields, facts)
        case Period.MONTH | Period.YEAR:
            return _in_months(when, _on_one_day(fields), facts)
        case _ if period not in SHORT:
            return None
        case _ if facts.is_most_days:
            return fields
        case _:
            return _in_season(when, fields, facts)._replace(day="*", weekday="*")


def _with_count(when: SpokenTime, fields: Fields, facts: RuleFacts) -> Fields | None:
    """Return the fields for so many times in a period, evenly spread."""
    assert when.times_per is not None
    count, period = when.times_per
    match period:
        case Period.WEEK:
            spread = frozenset(_SPREAD_WEEK.get(count, ()))
            spread_out = replace(when, weekdays=spread)
            return _on_weekdays(spread_out, fields, facts) if spread else None
        case Period.MONTH:
            days = _SPREAD_MONTH.get(count)
            month = fields.month if when.months else "*"
            return fields._replace(day=days, month=month, weekday="*") if days else None
        case Period.YEAR:
            often = Often(12 // count, Period.MONTH)
            return None if 12 % count else _with_rhythm(replace(when, every=often), fields, facts)
        case _:
            return _with_rhythm(replace(when, every=Often(1, Period.HOUR)), fields, facts)


_SPREAD_WEEK: Final = {
    2: (0, 3),
    3: (0, 2, 4),
    4: (0, 1, 3, 4),
    5: (0, 1, 2, 3, 4),
    6: (0, 1, 2, 3, 4, 5),
}
_SPREAD_MONTH: Final = {2: "1,15", 3: "1,11,21", 4: "1,8,15,22"}


def _in_months(when: SpokenTime, fields: Fields, facts: RuleFacts) -> Fields | None:
    """Return the fields with the months of a rhythm, counted from the month that they have."""
    if when.months:
        return fields
    if when.every is None or when.every.period not in (Period.MONTH, Period.YEAR):
        return fields._replace(month="*") if len(facts.months) == 1 else fields
    count = when.every.n * (12 if when.every.period is Period.YEAR else 1)
    if 12 % count:
        return None
    first = min(facts.months) if len(facts.months) < 12 else 1
    if count == 12:
        return fields._replace(month=fields.month if fields.month.isalnum() else str(first))
    start = (first - 1) % count + 1
    step = "*" if count == 1 else f"*/{count}" if start == 1 else f"{start}/{count}"
    return fields._replace(month=step)


def _on_one_day(fields: Fields) -> Fields:
    """Return the fields with one day of the month: theirs, if they have one."""
    is_nth = "#" in fields.weekday or fields.weekday.upper().endswith("L")
    if is_nth and fields.day in ("*", "?"):
        return fields
    # Half of the months have no 31st, and few a 29 February: who writes it means the last day.
    is_end = fields.day == "31" or (fields.day == "29" and fields.month.upper() in ("2", "FEB"))
    day = "L" if is_end else fields.day.upper()
    is_date = day.isdigit() or day in ("L", "LW") or day.removesuffix("W").isdigit()
    return fields._replace(day=day if is_date else "1", weekday="*")


def _with_times(when: SpokenTime, fields: Fields, facts: RuleFacts) -> list[Fields]:
    if when.times:
        fired = [(clock, fired_at(clock, facts)) for clock in when.times]
        return _at_minutes((clock.minute if at is None else at for clock, at in fired), fields)
    if when.part and not is_in_part(when.part, facts):
        return _at_minutes(_moved_into(when.part, facts), fields)
    if when.times_per and when.times_per.period in (Period.HOUR, Period.MINUTE):
        count, period = when.times_per
        smaller = Period.MINUTE if period is Period.HOUR else Period.SECOND
        return _beating(Often(0 if 60 % count else 60 // count, smaller), when, fields, facts)
    if when.times_per and when.times_per.period is Period.DAY:
        count, first = when.times_per.n, facts.times[0] if facts.times else 0
        spread = () if 24 % count else range(first, first + 1440, 1440 // count)
        return _at_minutes((at % 1440 for at in spread), fields)
    if when.every and when.every.period in SHORT:
        return _beating(when.every, when, fields, facts)
    is_one_time = when.is_literal or when.times_per is not None
    is_kept = facts.is_calm and not (is_one_time and len(facts.times) > 1)
    if facts.times and not is_kept and (when.every or when.times_per):
        return _at_minutes(facts.times[:1], fields)
    return [fields]


def _at_minutes(minutes: Iterable[int], fields: Fields) -> list[Fields]:
    """Return the fewest rules that fire at some minutes of the day.

    >>> [str(each) for each in _at_minutes([570, 1020, 1050], Fields("0", "0"))]
    ['30 9,17 * * *', '0 17 * * *']
    """
    hours: dict[int, list[int]] = {}
    for at in sorted(minutes):
        hours.setdefault(at % 60, []).append(at // 60)
    same: dict[str, list[int]] = {}
    for minute, each in hours.items():
        same.setdefault(",".join(map(str, each)), []).append(minute)
    second = _one_second(fields)
    return [
        fields._replace(second=second, minute=",".join(map(str, sorted(at))), hour=hour)
        for hour, at in same.items()
    ]


def _one_second(fields: Fields) -> str:
    return fields.second if not fields.second or fields.second.isdigit() else "0"


def _moved_into(part: str, facts: RuleFacts) -> list[int]:
    """Return times of day in a part of it: the same on the dial, or else its usual hour."""
    first, last = PARTS[part]
    turned = [(minute + 720) % 1440 for minute in facts.times]
    if turned and all(first <= minute <= last for minute in turned):
        return turned
    minute = facts.times[0] % 60 if facts.times else 0
    return [{"morning": 9, "afternoon": 15, "evening": 18}[part] * 60 + minute]


def _beating(often: Often, when: SpokenTime, fields: Fields, facts: RuleFacts) -> list[Fields]:
    count, period = often
    if not count or (24 if period is Period.HOUR else 60) % count:
        return []
    step, second = "" if count == 1 else f"/{count}", _one_second(fields)
    is_span = "-" in fields.hour and "," not in fields.hour
    hours = f"{when.hours[0]}-{when.hours[1]}" if when.hours else "*"
    if not when.hours and is_span and facts.times:
        hours = f"{facts.times[0] // 60}-{facts.times[-1] // 60}"
    match period:
        case Period.SECOND:
            return [fields._replace(second=f"*{step}", minute="*", hour=hours)]
        case Period.MINUTE:
            return [fields._replace(second=second, minute=f"*{step}", hour=hours)]
        case _:
            minute = fields.minute if fields.minute.isdigit() else "0"
            return [fields._replace(second=second, minute=minute, hour=f"{hours}{step}")]


def _spelt(weekdays: frozenset[int], like: str) -> str:
    """Return weekdays as a cron field, written the way another is.

    >>> _spelt(frozenset(range(5)), "*"), _spelt(frozenset({5, 6}), "1-5")
    ('MON-FRI', '0,6')
    """
    if weekdays == WEEK:
        return "*"
    days = sorted(weekdays)
    names = [DAY_NAMES[day][:3] if like.islower() else DAY_NAMES[day][:3].upper() for day in days]
    if like[:1].isdigit() and not any(c.isalpha() for c in like):
        days = sorted((day + 1) % 7 for day in days)
        names = [str(day) for day in days]
    is_row = len(days) > 2 and days[-1] - days[0] == len(days) - 1
    return f"{names[0]}-{names[-1]}" if is_row else ",".join(names)


def _stamp_for(when: SpokenTime, rule: Stamped, facts: RuleFacts) -> str | None:
    if not _is_simple(when):
        return None
    repeater = _repeater(when, rule.repeater)
    anchor = _moved(when, rule.anchor, facts)
    if repeater is None or anchor is None:
        return None
    has_time = rule.has_time or anchor.time() != rule.anchor.time() or repeater.unit is Unit.HOUR
    if rule.repeater and anchor == rule.anchor and has_time == rule.has_time:
        return str(repeater)
    clock = f" {anchor:%H:%M}" if has_time else ""
    name = DAY_NAMES[anchor.weekday()][:3].capitalize()
    return f"<{anchor.date().isoformat()} {name}{clock} {repeater}>"


def _is_simple(when: SpokenTime) -> bool:
    """Whether one date and one interval can say all that the words do."""
    if when.times_per or when.nth or when.hours or any(not 1 <= day <= 28 for day in when.days):
        return False
    period = when.every.period if when.every else None
    if when.months and (when.weekdays or period not in (None, Period.YEAR)):
        return False
    if when.names_days and period in SHORT:
        return False
    return all(len(each) < 2 for each in (when.times, when.months, when.weekdays, when.days))


def _repeater(when: SpokenTime, old: Repeater | None) -> Repeater | None:
    every = when.every
    if every is None:
        named = (
            (when.weekdays, Period.WEEK),
            (when.days, Period.MONTH),
            (when.months, Period.YEAR),
        )
        every = next((Often(1, period) for said, period in named if said), None)
    if every is None:
        return old
    unit = _REPEATED.get(every.period)
    if unit is None or (old and (old.count, old.unit) == (every.n, unit)):
        return old if unit else None
    return Repeater(old.kind if old else RepeaterKind.CUMULATE, every.n, unit)


def _moved(when: SpokenTime, anchor: datetime, facts: RuleFacts) -> datetime | None:
    minutes = [clock.minute for clock in when.times if fired_at(clock, facts) is None]
    if when.part and not when.times and not is_in_part(when.part, facts):
        minutes = _moved_into(when.part, facts)
    if minutes:
        anchor = anchor.replace(hour=minutes[0] // 60, minute=minutes[0] % 60)
    try:
        while not (
            (not when.weekdays or anchor.weekday() in when.weekdays)
            and (not when.days or anchor.day in when.days)
            and (not when.months or anchor.month in when.months)
        ):
            anchor += timedelta(days=1)
    except OverflowError:
        return None
    return anchor


def in_words(rule: Rule) -> str:
    if isinstance(rule, Cron):
        return rule.describe()
    anchor, repeater = rule.anchor, rule.repeater
    clock = f" at {anchor:%H:%M}" if rule.has_time else ""
    if repeater is None:
        return f"once, on {anchor.date().isoformat()}{clock}"
    count = repeater.count
    unit = f"{_UNIT_WORDS[repeater.unit]}{'s' if count > 1 else ''}"
    if repeater.kind is RepeaterKind.RESTART:
        at = "" if repeater.unit is Unit.HOUR or not clock else f",{clock}"
        return f"{count} {unit} after the last run{at}"
    every = f"every {count} {unit}" if count > 1 else f"every {unit}"
    match repeater.unit:
        case Unit.HOUR:
            return f"{every} from {anchor:%H:%M}"
        case Unit.WEEK:
            return f"{every} on {DAY_NAMES[anchor.weekday()].capitalize()}{clock}"
        case Unit.MONTH:
            return f"{every} on day {anchor.day}{clock}"
        case Unit.YEAR:
            return f"{every} on {anchor.day} {MONTH_NAMES[anchor.month - 1].capitalize()}{clock}"
        case _:
            return f"{every}{clock}"


_UNIT_WORDS: Final = {unit: period.value for period, unit in _REPEATED.items()}
