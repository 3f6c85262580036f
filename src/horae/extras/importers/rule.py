"""Rules of other schedulers: read from text, written as our cron, with their times."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from heapq import heappop, heappush
from itertools import islice
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from horae.timing import cron_fields
from horae.timing.cron import Cron
from horae.timing.cron_fields import field_text
from horae.timing.zone import changes

_NUMBER: Final = re.compile(r"[0-9]{1,6}", re.ASCII)
CRON_NAMES: Final = tuple(name[:3] for name in cron_fields.WEEKDAYS)
SUNDAY_FIRST: Final = {name.lower(): number for number, name in enumerate(CRON_NAMES)}
MONTHS: Final = {name[:3].lower(): number for number, name in enumerate(cron_fields.MONTHS, 1)}
YEARS: Final = (1970, 2199)
_DAY: Final = timedelta(days=1)
_TINY: Final = timedelta(seconds=1)
FAR: Final = datetime(9990, 1, 1, tzinfo=UTC)


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
    """A rule of another scheduler as our cron, and what that scheduler does at clock changes."""

    cron: str
    gap: Gap
    fold: Fold

    def times(self, zone_name: str, after: datetime, end: datetime = FAR) -> Iterator[datetime]:
        place, after = ZoneInfo(zone_name), after.astimezone(UTC)
        # A change near by moves wall times by its length.
        near = changes(place, after - _DAY, after + _DAY)
        moved = sum((abs(each.after - each.before) for each in near), timedelta())
        # The rule in UTC names what the wall shows, in each zone.
        start, stop = (at.astimezone(place).replace(tzinfo=UTC) for at in (after, end))
        coming: list[datetime] = []  # a clock change can turn the order of two times round
        last = after
        for wall in Cron(self.cron).between(start - moved, stop + _DAY):
            first, second = (wall.replace(tzinfo=place, fold=n).astimezone(UTC) for n in (0, 1))
            while coming and coming[0] < min(first, second):
                if (at := heappop(coming)) > end:
                    return
                if at > last:
                    yield (last := at)
            for at in self._instants(first, second, place):
                heappush(coming, at)
        yield from sorted({at for at in coming if last < at <= end})

    def _instants(self, first: datetime, second: datetime, place: ZoneInfo) -> tuple[datetime, ...]:
        """Return the times of a wall time that is *first* or, after a clock change, *second*."""
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


def times_of(
    rules: Sequence[ForeignRule], zone_name: str, after: datetime, most: int, end: datetime = FAR
) -> list[datetime]:
    """Return the times of any of several rules after another, at most so many, up to *end*."""
    found = {at for rule in rules for at in islice(rule.times(zone_name, after, end), most)}
    return sorted(found)[:most]


class Dialect(NamedTuple):
    """How one field is written: its name and bounds, its names, and the word for a range."""

    word: str
    low: int
    high: int
    names: Mapping[str, int] = {}
    dash: str = "-"
    has_star_step: bool = True  # */5
    has_open_step: bool = True  # 5/10, which counts on to the end


def numbers(text: str, dialect: Dialect, offset: int = 0) -> frozenset[int]:
    """Return the numbers that a field names, which begins at an offset.

    >>> sorted(numbers("1-5/2,9", Dialect("hour", 0, 23)))
    [1, 3, 5, 9]
    """
    found: set[int] = set()
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


def cron_of(
    times: Sequence[frozenset[int]],
    days: tuple[str, str],
    months: frozenset[int],
    years: frozenset[int] | None,
) -> str:
    """Return our cron for seconds, minutes and hours on days that two fields name.

    >>> cron_of([frozenset({0}), frozenset({30}), frozenset({9})], ("L", "*"), {12}, None)
    '30 9 L 12 *'
    """
    second, minute, hour = (
        field_text(each, 0, high) for each, high in zip(times, (59, 59, 23), strict=True)
    )
    fields = [minute, hour, days[0], field_text(months, 1, 12), days[1]]
    if years is not None:
        return " ".join([second, *fields, field_text(years, *YEARS)])
    return " ".join(fields if second == "0" else [second, *fields])


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
        return field_text(days, 1, 31), "*"
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
