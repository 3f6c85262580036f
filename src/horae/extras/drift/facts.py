"""What a rule does in a year, whatever its form."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.extras.drift.when import (
    WEEK,
    Rule,
    Stamped,
)
from horae.timing.cron import Cron
from horae.timing.repeater import Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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


class Facts(NamedTuple):
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
        """How many days lie between one and the next, as a rule."""
        return usual(gaps([day.toordinal() for day in self.days])) or 0

    @property
    def is_most_days(self) -> bool:
        """Whether it fires on most days: on weekdays at least."""
        return self.share_of(WEEK) > 0.7

    def share_of(self, weekdays: frozenset[int]) -> float:
        """Return on what part of such days it fires, in the months in which it does."""
        fired = sum(self.shares[weekday][0] for weekday in weekdays)
        return fired / (sum(self.shares[weekday][1] for weekday in weekdays) or 1)


_NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVE: Final = datetime(2024, 12, 31, 23, 59, 59, tzinfo=UTC)
_SAMPLE: Final = timedelta(days=4 * 366)
_ENOUGH: Final = 400  # days, more than a year of a daily rule


def facts_of(rule: Rule) -> Facts:
    facts = _cron_facts(rule) if isinstance(rule, Cron) else _stamp_facts(rule)
    return facts._replace(shares=_shares(facts.days))


def _shares(days: Sequence[date]) -> tuple[tuple[int, int], ...]:
    """Return for each weekday on how many days a rule fired, and how many its months had."""
    if not days:
        return ((0, 0),) * 7
    fired = Counter(day.weekday() for day in days)
    months = {day.month for day in days}
    span = map(date.fromordinal, range(days[0].toordinal(), days[-1].toordinal() + 1))
    possible = Counter(day.weekday() for day in span if day.month in months)
    return tuple((fired[weekday], possible[weekday]) for weekday in range(7))


def _cron_facts(rule: Cron) -> Facts:
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
    return Facts(
        tuple(day.date() for day in days),
        tuple(times),
        usual(gaps(times)),
        tuple(seconds),
        is_shifted="W" in fields.day.upper(),
    )


def fields_of(rule: Cron) -> Fields:
    """Return the fields of a cron rule, nicknames written out."""
    texts = rule.expression.split()
    if len(texts) == 1:
        texts = _NICKNAMES[texts[0].lower()].split()
    if len(texts) == 5:
        return Fields(*texts)
    second, minute, hour, day, month, weekday, *year = texts
    return Fields(minute, hour, day, month, weekday, second, "".join(year))


def _stamp_facts(rule: Stamped) -> Facts:
    anchor, repeater = rule.anchor, rule.repeater
    minute = anchor.hour * 60 + anchor.minute
    if repeater is None:
        return Facts((anchor.date(),), (minute,), is_once=True, has_time=rule.has_time)
    if repeater.unit is Unit.HOUR and repeater.count % 24:
        return _hour_facts(anchor, repeater.count)
    walls = (repeater.nth(anchor, n) for n in range(9 if repeater.unit is Unit.YEAR else 60))
    days = tuple(wall.date() for wall in walls if wall is not None)
    return Facts(days, (minute,), has_time=rule.has_time)


def _hour_facts(anchor: datetime, count: int) -> Facts:
    minutes = {
        (anchor.hour * 60 + anchor.minute + 60 * hour) % 1440 for hour in range(0, 24, count)
    }
    first = min(anchor.toordinal(), date.max.toordinal() - 60)
    days = [date.fromordinal(first + day) for day in range(0, 60, max(1, count // 24))]
    return Facts(tuple(days), tuple(sorted(minutes)) if 24 % count == 0 else (), count * 60)


def together(each: Sequence[Facts]) -> Facts:
    """Return what several rules do, of which any fires."""
    times = sorted({minute for facts in each for minute in facts.times})
    days = sorted({day for facts in each for day in facts.days})
    return Facts(tuple(days), tuple(times), usual(gaps(times)), shares=_shares(days))


def gaps(values: Sequence[int]) -> list[int]:
    """Return the distances between neighbours."""
    return [later - earlier for earlier, later in pairwise(values)]


def usual(values: Iterable[int]) -> int | None:
    """Return the commonest of some values, None if there are none."""
    return next((value for value, _ in Counter(values).most_common(1)), None)
