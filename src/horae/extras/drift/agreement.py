"""What a rule does in a year, and whether it keeps what words claim."""

from __future__ import annotations

from calendar import monthrange
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import groupby, islice, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.extras.drift import phrase
from horae.extras.drift.phrase import SHORT, WEEK, Often, Period, Rule, SpokenTime, Stamped
from horae.timing.cron import Cron
from horae.timing.cron_fields import NICKNAMES
from horae.timing.repeater import Repeater, RepeaterKind, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_REPEATED: Final = {Period[unit.name]: unit for unit in Unit}
_UTC: Final = frozenset({"UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "Zulu"})


class Fields(NamedTuple):
    """The texts of a cron rule; second and year are empty where it has none."""

    minute: str
    hour: str
    day: str = "*"
    month: str = "*"
    weekday: str = "*"
    second: str = ""
    year: str = ""

    def __str__(self) -> str:
        return " ".join(text for text in (self.second, *self[:5], self.year) if text)


class RuleFacts(NamedTuple):
    """The days and the times of day at which a rule fires, over some years."""

    days: tuple[date, ...]
    times: tuple[int, ...]  # in minutes; none if they wander
    step: int | None = None  # minutes from one to the next on a day
    seconds: tuple[int, ...] = (0,)
    is_shifted: bool = False  # to the nearest weekday
    is_once: bool = False
    has_time: bool = True
    shares: tuple[tuple[int, int], ...] = ()  # for each weekday: fired, and could have

    @property
    def is_calm(self) -> bool:
        """Whether it fires so few times a day that a day can be said to be its rhythm."""
        is_few = 1 <= len(self.times) <= 3 or (self.step or 0) >= 480
        return is_few and len(self.seconds) == 1

    @property
    def months(self) -> frozenset[int]:
        return frozenset(day.month for day in self.days)

    @property
    def day_gap(self) -> int:
        return usual(gaps([day.toordinal() for day in self.days])) or 0

    @property
    def is_most_days(self) -> bool:
        return self.share_of(WEEK) > 0.7

    def share_of(self, weekdays: frozenset[int]) -> float:
        """Return on what part of such days it fires, in the months in which it does."""
        fired = sum(self.shares[weekday][0] for weekday in weekdays)
        return fired / (sum(self.shares[weekday][1] for weekday in weekdays) or 1)


_EVE: Final = datetime(2024, 12, 31, 23, 59, 59, tzinfo=UTC)
_SAMPLE: Final = timedelta(days=4 * 366)
_ENOUGH: Final = 400  # days, more than a year of a daily rule


def facts_of(rule: Rule) -> RuleFacts:
    facts = _cron_facts(rule) if isinstance(rule, Cron) else _stamp_facts(rule)
    return facts._replace(shares=_shares(facts.days))


def _shares(days: Sequence[date]) -> tuple[tuple[int, int], ...]:
    if not days:
        return ((0, 0),) * 7
    fired = Counter(day.weekday() for day in days)
    months = {day.month for day in days}
    span = map(date.fromordinal, range(days[0].toordinal(), days[-1].toordinal() + 1))
    possible = Counter(day.weekday() for day in span if day.month in months)
    return tuple((fired[weekday], possible[weekday]) for weekday in range(7))


def _cron_facts(rule: Cron) -> RuleFacts:
    fields = fields_of(rule)
    # Days and times of day depend neither on one another nor on the zone.
    calendar = Cron(f"0 0 {fields.day} {fields.month} {fields.weekday}")
    days = list(islice(calendar.between(_EVE, _EVE + _SAMPLE), _ENOUGH))
    if len(days) < 3:
        days = calendar.upcoming(_EVE, 3)
    dial = Cron(f"{fields.minute} {fields.hour} * * *")
    times = [at.hour * 60 + at.minute for at in dial.between(_EVE, _EVE + timedelta(days=1))]
    beat = Cron(f"{fields.second or '0'} * * * * *")
    seconds = [at.second for at in beat.between(_EVE, _EVE + timedelta(minutes=1))]
    dates, is_shifted = tuple(day.date() for day in days), "W" in fields.day.upper()
    return RuleFacts(dates, tuple(times), usual(gaps(times)), tuple(seconds), is_shifted)


def fields_of(rule: Cron) -> Fields:
    texts = rule.expression.split()
    if len(texts) == 1:
        texts = NICKNAMES[texts[0].upper()].split()
    if len(texts) == 5:
        return Fields(*texts)
    second, minute, hour, day, month, weekday, *year = texts
    return Fields(minute, hour, day, month, weekday, second, "".join(year))


def _stamp_facts(rule: Stamped) -> RuleFacts:
    anchor, repeater = rule.anchor, rule.repeater
    minute = anchor.hour * 60 + anchor.minute
    if repeater is None:
        return RuleFacts((anchor.date(),), (minute,), is_once=True, has_time=rule.has_time)
    if repeater.unit is Unit.HOUR and repeater.count % 24:
        count = repeater.count
        minutes = {(minute + 60 * hour) % 1440 for hour in range(0, 24, count)}
        first = min(anchor.toordinal(), date.max.toordinal() - 60)
        days = tuple(date.fromordinal(first + n) for n in range(0, 60, max(1, count // 24)))
        return RuleFacts(days, tuple(sorted(minutes)) if 24 % count == 0 else (), count * 60)
    walls = (repeater.nth(anchor, n) for n in range(9 if repeater.unit is Unit.YEAR else 60))
    days = tuple(wall.date() for wall in walls if wall is not None)
    return RuleFacts(days, (minute,), has_time=rule.has_time)


def together(each: Sequence[RuleFacts]) -> RuleFacts:
    times = sorted({minute for facts in each for minute in facts.times})
    days = sorted({day for facts in each for day in facts.days})
    return RuleFacts(tuple(days), tuple(times), usual(gaps(times)), shares=_shares(days))


def gaps(values: Sequence[int]) -> list[int]:
    return [later - earlier for earlier, later in pairwise(values)]


def usual(values: Iterable[int]) -> int | None:
    return next((value for value, _ in Counter(values).most_common(1)), None)


def in_zone(claim: phrase.TimeClaim, rule: Rule) -> phrase.TimeClaim:
    home = rule.zone if isinstance(rule, Cron) else ""
    when, zone = claim.when, claim.when.zone
    if home in _UTC:
        # A rule in UTC is often kept from afar: whose morning is it?
        when = replace(when, part=None)
    if zone not in (None, home) and not (zone in _UTC and home in _UTC):
        when = replace(when, part=None, times=frozenset())
    return replace(claim, when=when)


def wholes_of(spoken: Sequence[phrase.TimeClaim]) -> dict[phrase.TimeClaim, SpokenTime]:
    wholes = {}
    for _, sentence in groupby(spoken, key=lambda claim: claim.sentence):
        mates = list(sentence)
        for claim in mates:
            when = claim.when
            for other in mates:
                joined = phrase.join(when, other.when) if other is not claim else None
                when = joined or when
            wholes[claim] = when
    return wholes


def all_said(spoken: Sequence[phrase.TimeClaim]) -> SpokenTime:
    return SpokenTime(
        weekdays=frozenset(day for claim in spoken for day in claim.when.weekdays),
        days=frozenset(day for claim in spoken for day in claim.when.days),
    )


def is_kept_by(when: SpokenTime, whole: SpokenTime, said: SpokenTime, facts: RuleFacts) -> bool:
    """Whether a rule does what words say in a *whole* sentence, *said* being all days named."""
    if facts.is_once and when.is_about_days:
        return False
    if when.every and not _keeps_rhythm(when.every, whole, facts):
        return False
    if when.times_per and not _keeps_count(when.times_per, whole, facts):
        return False
    if when.weekdays:
        fired = {day.weekday() for day in facts.days}
        is_rarer = whole.every is not None and whole.every.period not in SHORT
        if fired not in (when.weekdays, said.weekdays):
            return False
        if not is_rarer and facts.share_of(when.weekdays) <= 0.9:
            return False
    if when.days and facts.is_shifted:
        if not all(any(abs(at.day - day) < 3 for day in when.days) for at in facts.days):
            return False
    elif when.days:
        last = -1 in said.days
        dates = {-1 if last and day.day == _length(day) else day.day for day in facts.days}
        if dates not in (when.days, said.days):
            return False
    return (
        (when.nth is None or all(day == _nth_day(day, when.nth) for day in facts.days))
        and (not when.months or when.months == facts.months)
        and (not when.times or _keeps_times(when.times, whole, facts))
        and (when.part is None or bool(when.times) or is_in_part(when.part, facts))
    )


def _keeps_times(times: frozenset[phrase.TimeOfDay], whole: SpokenTime, facts: RuleFacts) -> bool:
    if not facts.times:
        return True
    if len(facts.times) > max(4, 2 * len(times)) or len(facts.seconds) > 1:
        return whole.is_within_day
    return all(fired_at(clock, facts) is not None for clock in times)


def _keeps_rhythm(every: Often, whole: SpokenTime, facts: RuleFacts) -> bool:
    count, period = every
    if period in SHORT:
        if period is Period.SECOND:
            is_kept = facts.step == 1 and usual(gaps(facts.seconds)) == count
        else:
            minutes = count * (60 if period is Period.HOUR else 1)
            is_kept = facts.step == minutes and len(facts.seconds) == 1
        return is_kept and (whole.names_days or facts.is_most_days)
    if not (facts.is_calm or whole.times):
        return False
    match period:
        case Period.DAY if count == 1 and whole.is_literal:
            is_single = bool(whole.times) or len(facts.times) == 1
            return is_single and facts.share_of(WEEK) > 0.99
        case Period.DAY if count == 1:
            return facts.is_most_days
        case Period.DAY:
            return facts.day_gap == count
        case Period.WEEK:
            # The 1st and 15th are two weeks to many.
            return facts.day_gap == 7 * count or (count == 2 and 13 <= facts.day_gap <= 17)
        case Period.MONTH if whole.days and max(whole.days) > 28:
            return True  # who says so knows that some months have no such day
        case Period.MONTH:
            months = Counter(day.year * 12 + day.month for day in facts.days)
            if len(whole.days) < 2 and usual(months.values()) != 1:
                return False
            # Four weeks are a month to many, and their days wander through it.
            is_near = 28 * count <= facts.day_gap <= 31 * count
            return is_near or usual(gaps(list(months))) == count
        case _:
            years = [day.year for day in facts.days]
            return len(set(years)) == len(years) and usual(gaps(years)) in (count, None)


def _keeps_count(often: Often, whole: SpokenTime, facts: RuleFacts) -> bool:
    count, period = often
    a_day = len(facts.times) or 1440 // (facts.step or 1440)
    match period:
        case Period.DAY:
            return a_day == count and (whole.names_days or facts.is_most_days)
        case Period.WEEK:
            return abs(facts.share_of(WEEK) * 7 * a_day - count) < 0.3
        case Period.MONTH:
            months = Counter((day.year, day.month) for day in facts.days)
            return (usual(months.values()) or 0) * a_day == count
        case Period.YEAR:
            years = Counter(day.year for day in facts.days)
            return (usual(years.values()) or 0) * a_day == count
        case Period.HOUR:
            return usual(Counter(minute // 60 for minute in facts.times).values()) == count
        case _:
            return facts.step == 1 and len(facts.seconds) == count


def _length(month: date) -> int:
    return monthrange(month.year, month.month)[1]


def _nth_day(month: date, nth: phrase.Nth) -> date | None:
    days = (month.replace(day=n) for n in range(1, _length(month) + 1))
    found = [each for each in days if each.weekday() in nth.weekdays]
    return next(iter(found[nth.n - (nth.n > 0) :]), None)


def fired_at(clock: phrase.TimeOfDay, facts: RuleFacts) -> int | None:
    minutes = [clock.minute, (clock.minute + 720) % 1440] if clock.is_vague else [clock.minute]
    return next((minute for minute in minutes if minute in facts.times), None)


def is_in_part(part: str, facts: RuleFacts) -> bool:
    first, last = phrase.PARTS[part]
    is_within = bool(facts.times) and all(first <= minute <= last for minute in facts.times)
    return is_within or not facts.has_time


def suggested(when: SpokenTime, rule: Rule, facts: RuleFacts) -> str | None:
    if isinstance(rule, Cron):
        found = _cron_for(when, fields_of(rule), facts)
        if found or when.every is None or when.every.period not in _REPEATED:
            return found
        # A timestamp repeats as no cron rule can.
        return str(Repeater(RepeaterKind.CATCH_UP, when.every.n, _REPEATED[when.every.period]))
    return _stamp_for(when, rule, facts) or _cron_for(when, _as_fields(rule), facts)


def _as_fields(rule: Stamped) -> Fields:
    anchor, unit = rule.anchor, rule.repeater.unit if rule.repeater else None
    return Fields(
        str(anchor.minute),
        str(anchor.hour),
        str(anchor.day) if unit in (Unit.MONTH, Unit.YEAR) else "*",
        str(anchor.month) if unit is Unit.YEAR else "*",
        _spelt(frozenset({anchor.weekday()}), "*") if unit is Unit.WEEK else "*",
    )


def _cron_for(when: SpokenTime, fields: Fields, facts: RuleFacts) -> str | None:
    dated = _with_days(when, fields, facts)
    timed = _with_times(when, dated, facts) if dated else []
    return "; ".join(str(each) for each in timed) or None


def _with_days(when: SpokenTime, fields: Fields, facts: RuleFacts) -> Fields | None:
    if when.months:
        names = [phrase.MONTH_NAMES[month - 1][:3].upper() for month in sorted(when.months)]
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
    if weekdays == phrase.WORKDAYS:
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


_SPREAD_WEEK: Final = {2: (0, 3), 3: (0, 2, 4), 4: (0, 1, 3, 4), 5: range(5), 6: range(6)}
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
    rows = ((hour, ",".join(map(str, sorted(at)))) for hour, at in same.items())
    timed = fields._replace(second=_one_second(fields))
    return [timed._replace(minute=minute, hour=hour) for hour, minute in rows]


def _one_second(fields: Fields) -> str:
    return fields.second if not fields.second or fields.second.isdigit() else "0"


def _moved_into(part: str, facts: RuleFacts) -> list[int]:
    """Return times of day in a part of it: the same on the dial, or else its usual hour."""
    first, last = phrase.PARTS[part]
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
    names = [phrase.DAY_NAMES[day][:3] for day in days]
    names = names if like.islower() else [name.upper() for name in names]
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
    name = phrase.DAY_NAMES[anchor.weekday()][:3].capitalize()
    return f"<{anchor.date().isoformat()} {name}{clock} {repeater}>"


def _is_simple(when: SpokenTime) -> bool:
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
        named = {Period.WEEK: when.weekdays, Period.MONTH: when.days, Period.YEAR: when.months}
        every = next((Often(1, period) for period, said in named.items() if said), None)
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
    unit = f"{repeater.unit.name.lower()}{'s' if count > 1 else ''}"
    if repeater.kind is RepeaterKind.RESTART:
        at = "" if repeater.unit is Unit.HOUR or not clock else f",{clock}"
        return f"{count} {unit} after the last run{at}"
    every = f"every {count} {unit}" if count > 1 else f"every {unit}"
    month = phrase.MONTH_NAMES[anchor.month - 1].capitalize()
    on = {
        Unit.HOUR: f" from {anchor:%H:%M}",
        Unit.WEEK: f" on {phrase.DAY_NAMES[anchor.weekday()].capitalize()}{clock}",
        Unit.MONTH: f" on day {anchor.day}{clock}",
        Unit.YEAR: f" on {anchor.day} {month}{clock}",
    }
    return every + on.get(repeater.unit, clock)
