"""What a rule does in a year, and whether it keeps what words claim."""

from __future__ import annotations

from calendar import monthrange
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import groupby, islice, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.extras.drift.phrase import PARTS, join
from horae.extras.drift.when import (
    SHORT,
    WEEK,
    Nth,
    Often,
    Period,
    Rule,
    SpokenTime,
    Stamped,
    TimeClaim,
    TimeOfDay,
)
from horae.timing.cron import Cron
from horae.timing.cron_fields import NICKNAMES
from horae.timing.repeater import Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    return RuleFacts(
        tuple(day.date() for day in days),
        tuple(times),
        usual(gaps(times)),
        tuple(seconds),
        is_shifted="W" in fields.day.upper(),
    )


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


def in_zone(claim: TimeClaim, rule: Rule) -> TimeClaim:
    """Return a claim without what it says by another clock than the rule's."""
    home = rule.zone if isinstance(rule, Cron) else ""
    when, zone = claim.when, claim.when.zone
    if home in _UTC:
        # A rule in UTC is often one that somebody keeps from afar: whose morning is it?
        when = replace(when, part=None)
    if zone not in (None, home) and not (zone in _UTC and home in _UTC):
        when = replace(when, part=None, times=frozenset())
    return replace(claim, when=when)


def wholes_of(spoken: Sequence[TimeClaim]) -> dict[TimeClaim, SpokenTime]:
    """Return what each claim says together with the others of its sentence."""
    wholes = {}
    for _, sentence in groupby(spoken, key=lambda claim: claim.sentence):
        mates = list(sentence)
        for claim in mates:
            when = claim.when
            for other in mates:
                joined = join(when, other.when) if other is not claim else None
                when = joined or when
            wholes[claim] = when
    return wholes


def all_said(spoken: Sequence[TimeClaim]) -> SpokenTime:
    return SpokenTime(
        weekdays=frozenset(day for claim in spoken for day in claim.when.weekdays),
        days=frozenset(day for claim in spoken for day in claim.when.days),
    )


def is_kept_by(when: SpokenTime, whole: SpokenTime, said: SpokenTime, facts: RuleFacts) -> bool:
    """Whether a rule does what words say, as far as they say anything.

    *whole* is what their sentence says, *said* are the days of the whole text.
    """
    if facts.is_once and when.is_about_days:
        return False
    return (
        (when.every is None or _keeps_rhythm(when.every, whole, facts))
        and (when.times_per is None or _keeps_count(when.times_per, whole, facts))
        and (not when.weekdays or _keeps_weekdays(when, whole, said, facts))
        and (not when.days or _keeps_days(when.days, said.days, facts))
        and (when.nth is None or all(day == _nth_day(day, when.nth) for day in facts.days))
        and (not when.months or when.months == facts.months)
        and (not when.times or _keeps_times(when.times, whole, facts))
        and (when.part is None or bool(when.times) or is_in_part(when.part, facts))
    )


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
            return _keeps_months(count, facts, is_single=len(whole.days) < 2)
        case _:
            years = [day.year for day in facts.days]
            return len(set(years)) == len(years) and usual(gaps(years)) in (count, None)


def _keeps_months(count: int, facts: RuleFacts, *, is_single: bool) -> bool:
    months = Counter(day.year * 12 + day.month for day in facts.days)
    if is_single and usual(months.values()) != 1:
        return False
    # Four weeks are a month to many, and their days wander through it.
    is_near = 28 * count <= facts.day_gap <= 31 * count
    return is_near or usual(gaps(list(months))) == count


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


def _keeps_weekdays(
    when: SpokenTime, whole: SpokenTime, said: SpokenTime, facts: RuleFacts
) -> bool:
    fired = {day.weekday() for day in facts.days}
    if fired not in (when.weekdays, said.weekdays):
        return False
    is_rarer = whole.every is not None and whole.every.period not in SHORT
    return is_rarer or facts.share_of(when.weekdays) > 0.9


def _keeps_days(days: frozenset[int], said: frozenset[int], facts: RuleFacts) -> bool:
    if facts.is_shifted:
        return all(any(abs(at.day - day) < 3 for day in days) for at in facts.days)
    fired = {-1 if -1 in said and day.day == _length(day) else day.day for day in facts.days}
    return fired in (days, said)


def _length(month: date) -> int:
    return monthrange(month.year, month.month)[1]


def _nth_day(month: date, nth: Nth) -> date | None:
    days = (month.replace(day=n) for n in range(1, _length(month) + 1))
    found = [each for each in days if each.weekday() in nth.weekdays]
    return next(iter(found[nth.n - (nth.n > 0) :]), None)


def _keeps_times(times: frozenset[TimeOfDay], whole: SpokenTime, facts: RuleFacts) -> bool:
    if not facts.times:
        return True
    if len(facts.times) > max(4, 2 * len(times)) or len(facts.seconds) > 1:
        return whole.is_within_day
    return all(fired_at(clock, facts) is not None for clock in times)


def fired_at(clock: TimeOfDay, facts: RuleFacts) -> int | None:
    """Return the minute at which a rule fires that a time can mean."""
    minutes = [clock.minute, (clock.minute + 720) % 1440] if clock.is_vague else [clock.minute]
    return next((minute for minute in minutes if minute in facts.times), None)


def is_in_part(part: str, facts: RuleFacts) -> bool:
    first, last = PARTS[part]
    is_within = bool(facts.times) and all(first <= minute <= last for minute in facts.times)
    return is_within or not facts.has_time
