"""What words, and rules, can say of a schedule."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.timing.cron import Cron

if TYPE_CHECKING:
    from datetime import datetime

    from horae.timing.repeater import Repeater


@dataclass(frozen=True, slots=True)
class Stamped:
    """A timestamp as a rule: its wall time, whether that has an hour, and how it repeats."""

    anchor: datetime
    has_time: bool
    repeater: Repeater | None = None


Rule = Cron | Stamped


class Period(StrEnum):
    """A length of time that has a name."""

    SECOND = "second"
    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"


class Often(NamedTuple):
    """A number of periods, or of times in a period."""

    n: int
    period: Period


class TimeOfDay(NamedTuple):
    """A time of day in minutes; a vague one may also be twelve hours later."""

    minute: int
    is_vague: bool = False


class Nth(NamedTuple):
    """The nth day of a month among some weekdays; -1 is the last."""

    n: int
    weekdays: frozenset[int]


@dataclass(frozen=True, slots=True)
class SpokenTime:
    """What words say of a schedule; what they do not speak of is empty."""

    every: Often | None = None  # every 2 weeks
    times_per: Often | None = None  # twice a day
    weekdays: frozenset[int] = frozenset()  # 0 is Monday
    days: frozenset[int] = frozenset()  # of the month; -1 is the last
    nth: Nth | None = None  # the first Monday of the month
    months: frozenset[int] = frozenset()
    times: frozenset[TimeOfDay] = frozenset()
    part: str | None = None  # morning, afternoon or evening
    hours: tuple[int, int] | None = None  # from 9 to 17
    zone: str | None = None  # the zone that is written after a time
    is_literal: bool = False  # "every day" has no free weekend, "once" is not twice

    @property
    def names_days(self) -> bool:
        return bool(self.weekdays or self.days or self.nth)

    @property
    def is_about_days(self) -> bool:
        """Whether the words say on which days, or how often."""
        return bool(self.every or self.times_per or self.names_days)

    @property
    def is_within_day(self) -> bool:
        often = self.every or self.times_per
        return often is not None and often.period in SHORT


@dataclass(frozen=True, slots=True)
class TimeClaim:
    """Words of a text that say when, with their place and the place of their sentence."""

    start: int
    end: int
    when: SpokenTime
    sentence: int
    is_name: bool  # the adjective of a thing: "Daily digest"


SHORT: Final = frozenset({Period.SECOND, Period.MINUTE, Period.HOUR})
WEEK: Final = frozenset(range(7))
WORKDAYS: Final = frozenset(range(5))
WEEKEND: Final = frozenset({5, 6})
