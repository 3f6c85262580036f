"""Lists, ranges and steps of numbers, as most schedulers write them, into sets of numbers."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NUMBER: Final = re.compile(r"[0-9]{1,6}", re.ASCII)
CRON_NAMES: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
SUNDAY_FIRST: Final = {name.lower(): number for number, name in enumerate(CRON_NAMES)}
# fmt: off
MONTHS: Final = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6,
    "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12,
}
# fmt: on


class UnfitError(Exception):
    """A part of a foreign rule that cannot be taken: which one, why, and what to do."""

    def __init__(self, what: str, remedy: str, *, offset: int = 0) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy
        self.offset = offset


class Dialect(NamedTuple):
    """How one field is written: its name and bounds, its names, and the word for a range."""

    word: str
    low: int
    high: int
    names: Mapping[str, int] = {}
    dash: str = "-"
    has_star_step: bool = True  # */5
    has_open_step: bool = True  # 5/10, which counts on to the end


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
    step = _step(text, item, dialect) if slash else 1
    if body == "*":
        if slash and not dialect.has_star_step:
            raise UnfitError(
                f"{dialect.word} {item!r} has a step after *", f"write {dialect.low}/{text}"
            )
        return set(range(dialect.low, dialect.high + 1, step))
    first, dash, last = body.partition(dialect.dash)
    low = _number(first, item, dialect)
    high = _number(last, item, dialect) if dash else low
    if slash and not dash:
        if not dialect.has_open_step:
            remedy = f"write {low}{dialect.dash}{dialect.high}/{step}, or {low} alone"
            raise UnfitError(
                f"{dialect.word} {item!r} has a step without a range, which cron implementations "
                "read differently",
                remedy,
            )
        high = dialect.high
        if low + step > high and not dialect.has_star_step:
            what = f"{dialect.word} {item!r} has a step that goes past {high}"
            raise UnfitError(what, f"write {low} alone")
    if high < low:
        what = f"{dialect.word} {item!r} runs backwards"
        raise UnfitError(what, "write two ranges separated by a comma")
    return set(range(low, high + 1, step))


def _step(text: str, item: str, dialect: Dialect) -> int:
    if not _NUMBER.fullmatch(text) or int(text) == 0:
        raise UnfitError(
            f"{dialect.word} {item!r} has no step after /", "write a number of at least 1"
        )
    return int(text)


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
    if len(ordered) == high - low + 1:
        return "*"
    if len(ordered) > 2 and len(set(_steps(ordered))) == 1 and (step := _steps(ordered)[0]) > 1:
        if ordered[0] == low and ordered[-1] + step > high:
            return f"*/{step}"
        return f"{ordered[0]}-{ordered[-1]}/{step}"
    runs: list[list[int]] = []
    for number in ordered:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(_run(run) for run in runs)


def _steps(ordered: Sequence[int]) -> list[int]:
    return [b - a for a, b in pairwise(ordered)]


def _run(run: Sequence[int]) -> str:
    if len(run) > 2:
        return f"{run[0]}-{run[-1]}"
    return ",".join(map(str, run))


_EVERY_DAY: Final = frozenset(range(1, 32))
_WEEKS: Final = tuple(frozenset(range(7 * n + 1, min(7 * n + 8, 32))) for n in range(5))
_LAST_WEEK: Final = frozenset(range(1, 8))


def day_fields(
    days: frozenset[int], weekdays: frozenset[int], *, from_end: bool
) -> tuple[str, str]:
    """Return the two day fields of a rule of which both a date and a weekday must be met.

    *weekdays* count from 0, which is Sunday. *from_end* says that the days count from the last.

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


def weekday_text(weekdays: frozenset[int]) -> str:
    """Return the weekday field for days that count from 0, which is Sunday.

    >>> weekday_text(frozenset({1, 2, 3, 4, 5})), weekday_text(frozenset({0, 6}))
    ('MON-FRI', 'SAT,SUN')
    """
    if len(weekdays) == 7:
        return "*"
    ordered = sorted(day or 7 for day in weekdays)
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"{CRON_NAMES[ordered[0]]}-{CRON_NAMES[ordered[-1] % 7]}"
    return ",".join(CRON_NAMES[day % 7] for day in ordered)
