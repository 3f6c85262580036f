"""Rules of other schedulers: sets of numbers, read from text, with their times and as our cron."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import groupby, islice, pairwise, product
from typing import Final, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo

from horae.timing.zone import changes

_NUMBER: Final = re.compile(r"[0-9]{1,6}", re.ASCII)
CRON_NAMES: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
SUNDAY_FIRST: Final = {name.lower(): number for number, name in enumerate(CRON_NAMES)}
_MONTH_NAMES: Final = "jan feb mar apr may jun jul aug sep oct nov dec"
MONTHS: Final = {name: number for number, name in enumerate(_MONTH_NAMES.split(), 1)}
YEARS: Final = (1970, 2199)
_DAY: Final = timedelta(days=1)
_HOUR: Final = timedelta(hours=1)
_TINY: Final = timedelta(seconds=1)
_PATIENCE: Final = 250  # years; 50 leap days take 200
# A month of each kind, by the weekday of its first day and its length: there are 28.
_MONTH_KINDS: Final = {
    monthrange(year, month): date(year, month, 1)
    for year in range(2000, 2028)
    for month in range(1, 13)
}
# A rule may ask for a day's number, its weekday and the length of its month, and nothing else.
IsDay: TypeAlias = Callable[[date], bool]
# When the other scheduler would fire: after a time, at most so many, up to another time.
Fires: TypeAlias = Callable[[datetime, int, datetime | None], list[datetime]]


class UnfitError(Exception):
    """A part of a foreign rule that cannot be imported: which one, why, and what to do."""

    def __init__(self, what: str, remedy: str = "", *, offset: int = 0) -> None:
        super().__init__(what)
        self.what, self.remedy, self.offset = what, remedy, offset


class Gap(StrEnum):
    """What becomes of a time that the clock skips."""

    SKIPPED = "is skipped"
    AFTER = "runs at the first time after the change"
    SHIFTED = "runs later by the length of the change"


class Fold(StrEnum):
    """What becomes of a time that the clock shows twice."""

    FIRST = "runs only the first time"
    BOTH = "runs both times"


@dataclass(frozen=True, slots=True)
class ForeignRule:
    """A rule of another scheduler, and what it does when the clock changes."""

    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    is_day: IsDay
    gap: Gap
    fold: Fold
    months: frozenset[int] = frozenset(range(1, 13))
    years: frozenset[int] | None = None

    def cron(self, day: str, weekday: str) -> str:
        fields = [spelt(self.minutes, 0, 59), spelt(self.hours, 0, 23), day]
        fields += [spelt(self.months, 1, 12), weekday]
        second = spelt(self.seconds, 0, 59)
        if self.years is not None:
            return " ".join([second, *fields, spelt(self.years, *YEARS)])
        return " ".join(fields if second == "0" else [second, *fields])

    def times(
        self, zone_name: str, after: datetime, end: datetime | None = None
    ) -> Iterator[datetime]:
        place, after = ZoneInfo(zone_name), after.astimezone(UTC)
        for day in self._days(after.astimezone(place).date() - _DAY):
            if end is not None and day > end.astimezone(place).date():
                return
            offset = _offset(zone_name, day)
            times: Iterable[datetime]
            if offset is None:
                walls = self._walls(day, after - 2 * _DAY)
                times = sorted({at for wall in walls for at in self._instants(wall, place)})
            else:
                times = (wall - offset for wall in self._walls(day, after + offset))
            yield from (at for at in times if at > after and (end is None or at <= end))

    def _days(self, first: date) -> Iterator[date]:
        years = range(first.year, min(first.year + _PATIENCE, 9990))
        for year in years if self.years is None else sorted(self.years.intersection(years)):
            for month in sorted(self.months):
                if (year, month) >= (first.year, first.month):
                    for number in _days_of(self.is_day, *monthrange(year, month)):
                        if (day := date(year, month, number)) >= first:
                            yield day

    def _walls(self, day: date, low: datetime) -> Iterator[datetime]:
        for hour in sorted(self.hours):
            block = datetime(day.year, day.month, day.day, hour, tzinfo=UTC)
            if block + _HOUR > low:
                for minute, second in product(sorted(self.minutes), sorted(self.seconds)):
                    yield block.replace(minute=minute, second=second)

    def _instants(self, wall: datetime, place: ZoneInfo) -> tuple[datetime, ...]:
        first, second = (wall.replace(tzinfo=place, fold=fold).astimezone(UTC) for fold in (0, 1))
        if first == second or (first < second and self.fold is Fold.FIRST):
            return (first,)
        if first < second:
            return first, second
        match self.gap:
            case Gap.SKIPPED:
                return ()
            case Gap.SHIFTED:
                return (first,)
            case Gap.AFTER:
                return tuple(change.at for change in changes(place, second - _TINY, first))


@lru_cache(maxsize=20_000)
def _days_of(is_day: IsDay, weekday: int, length: int) -> tuple[int, ...]:
    """Return the days of a month that a rule takes, by the month's first weekday and length."""
    first = _MONTH_KINDS[weekday, length]
    return tuple(n for n in range(1, length + 1) if is_day(first.replace(day=n)))


@lru_cache(maxsize=20_000)
def _offset(zone_name: str, day: date) -> timedelta | None:
    start = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone_name))
    offset = start.utcoffset()
    return offset if offset == (start + _DAY).utcoffset() else None


@lru_cache(maxsize=2_000)
def fires_of(rules: tuple[ForeignRule, ...], zone_name: str) -> Fires:
    def fires(after: datetime, most: int, end: datetime | None) -> list[datetime]:
        found = {at for rule in rules for at in islice(rule.times(zone_name, after, end), most)}
        return sorted(found)[:most]

    return fires


class Dialect(NamedTuple):
    """How one field is written: its name and bounds, its names, and the word for a range."""

    word: str
    low: int
    high: int
    names: Mapping[str, int] = {}
    dash: str = "-"
    has_star_step: bool = True  # */5
    has_open_step: bool = True  # 5/10, which counts on to the end

    def __hash__(self) -> int:
        return hash((self.word, self.high))


def numbers(text: str, dialect: Dialect) -> frozenset[int]:
    """Return the numbers that a field names.

    >>> sorted(numbers("1-5/2,9", Dialect("hour", 0, 23)))
    [1, 3, 5, 9]
    """
    found: set[int] = set()
    offset = 0
    for item in text.split(","):
        try:
            found |= _item(item, dialect)
        except UnfitError as error:
            error.offset += offset
            raise
        offset += len(item) + 1
    return frozenset(found)


def _item(item: str, dialect: Dialect) -> set[int]:
    body, slash, text = item.partition("/")
    said = f"{dialect.word} {item!r}"
    if slash and (not _NUMBER.fullmatch(text) or int(text) == 0):
        raise UnfitError(f"{said} has no step after /", "write a number of at least 1")
    step = int(text) if slash else 1
    if body == "*":
        if slash and not dialect.has_star_step:
            raise UnfitError(f"{said} has a step after *", f"write {dialect.low}/{text}")
        return set(range(dialect.low, dialect.high + 1, step))
    first, dash, last = body.partition(dialect.dash)
    low = _number(first, item, dialect)
    high = _number(last, item, dialect) if dash else low
    if slash and not dash:
        if not dialect.has_open_step:
            what = f"{said} has a step without a range, which cron implementations read differently"
            remedy = f"write {low}{dialect.dash}{dialect.high}/{step}, or {low} alone"
            raise UnfitError(what, remedy)
        high = dialect.high
        if low + step > high and not dialect.has_star_step:
            raise UnfitError(f"{said} has a step that goes past {high}", f"write {low} alone")
    if high < low:
        raise UnfitError(f"{said} runs backwards", "write two ranges separated by a comma")
    return set(range(low, high + 1, step))


def _number(text: str, item: str, dialect: Dialect) -> int:
    if (value := dialect.names.get(text.lower())) is not None:
        return value
    if not _NUMBER.fullmatch(text):
        example = next(iter(dialect.names), None)
        names = f", or a name such as {example}" if example else ""
        remedy = f"write numbers in {dialect.low}-{dialect.high}{names}"
        raise UnfitError(f"{dialect.word} {item!r} cannot be read", remedy)
    if not dialect.low <= int(text) <= dialect.high:
        what = f"{dialect.word} {text} is outside {dialect.low}-{dialect.high}"
        raise UnfitError(what, "correct the number")
    return int(text)


def spelt(values: frozenset[int], low: int, high: int) -> str:
    """Return a cron field that names these numbers and no others.

    >>> spelt(frozenset({0, 15, 30, 45}), 0, 59), spelt(frozenset({1, 2, 3, 9}), 0, 23)
    ('*/15', '1-3,9')
    """
    ordered = sorted(values)
    steps = {b - a for a, b in pairwise(ordered)}
    if len(ordered) == high - low + 1:
        return "*"
    if len(ordered) > 2 and len(steps) == 1 and (step := steps.pop()) > 1:
        if ordered[0] == low and ordered[-1] + step > high:
            return f"*/{step}"
        return f"{ordered[0]}-{ordered[-1]}/{step}"
    rows = groupby(enumerate(ordered), key=lambda pair: pair[1] - pair[0])
    runs = [[number for _, number in row] for _, row in rows]
    texts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs]
    return ",".join(texts)


_EVERY_DAY: Final = frozenset(range(1, 32))
_WEEKS: Final = tuple(frozenset(range(7 * n + 1, min(7 * n + 8, 32))) for n in range(5))
_LAST_WEEK: Final = frozenset(range(1, 8))


def day_fields(
    days: frozenset[int], weekdays: frozenset[int], *, from_end: bool
) -> tuple[str, str]:
    """Return the two day fields of a rule of which both a date and a weekday (0: Sunday) match.

    >>> day_fields(frozenset(range(8, 15)), frozenset({5}), from_end=False)
    ('*', 'FRI#2')
    """
    is_any_weekday = len(weekdays) == 7
    if is_any_weekday and from_end:
        return ",".join(f"L-{n - 1}" if n > 1 else "L" for n in sorted(days)), "*"
    if is_any_weekday:
        return spelt(days, 1, 31), "*"
    if days == _EVERY_DAY and not from_end:
        return "*", weekday_text(weekdays)
    ordered = sorted(weekdays)
    if from_end and days == _LAST_WEEK:
        return "*", ",".join(f"{CRON_NAMES[day]}L" for day in ordered)
    whole = [n for n, week in enumerate(_WEEKS, 1) if week <= days]
    if not from_end and frozenset().union(*(_WEEKS[n - 1] for n in whole)) == days:
        return "*", ",".join(f"{CRON_NAMES[day]}#{n}" for day in ordered for n in whole)
    raise UnfitError(
        "a weekday and a day of the month must both match",
        "cron runs if either matches; use a form such as FRI#2 (second Friday), or test one of "
        "them in the command",
    )


def weekday_text(
    weekdays: frozenset[int], names: Sequence[str] = CRON_NAMES, dash: str = "-"
) -> str:
    """Return the weekday field for days that count from 0, which is Sunday.

    >>> weekday_text(frozenset({1, 2, 3, 4, 5})), weekday_text(frozenset({0, 6}))
    ('MON-FRI', 'SAT,SUN')
    """
    ordered = sorted(day or 7 for day in weekdays)
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"{names[ordered[0]]}{dash}{names[ordered[-1] % 7]}"
    return ",".join(names[day % 7] for day in ordered)
