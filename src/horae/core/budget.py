"""Budgets: how much may be spent in a period, what a run is expected to cost, what is left.

A purse is one limit: so many dollars, tokens or runs per hour, day, week or month of its zone. A
run draws on each of its purses, and starts only if each has room for the run's expected cost beside
what is spent and what runs in progress are expected to cost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from statistics import median
from typing import Final, NamedTuple

from msgspec import Struct

from horae.timing.zone import instant, local, zone

DOLLAR: Final = 1_000_000  # costs are whole millionths of a dollar, whose sums are exact
FIX: Final = "write an amount per hour, day, week or month, such as $2/day; 200k tokens/week"
LAST: Final = 20  # runs of an entry whose median is what the next one is expected to cost
# A forecast sums many runs: of 20 that vary by 15 % the median is off by 4 %, of 100 by 2 %.
FORECAST: Final = 100
LONGEST: Final = timedelta(days=32)  # upper bound of a period
NEAR: Final = 0.8  # the part of a purse from which on an alert may follow
MOST: Final = 1.05  # the part of a purse that the next message of a run must not exceed
ALL: Final = "all"  # the purse that every run draws on
CREW: Final = "crew"
BOARD: Final = "board"
LEFT: Final = "HORAE_BUDGET_LEFT"  # in dollars
LEFT_TOKENS: Final = "HORAE_BUDGET_LEFT_TOKENS"
_MOST: Final = 10**15
_SHARED: Final = {ALL: "all entries", CREW: "the crew", BOARD: "the board"}
_LIMIT: Final = re.compile(
    r"(?:\$ ?(?P<dollars>\d{1,9}(?:\.\d{1,6})?)"
    r"|(?P<count>\d{1,12}(?:\.\d{1,3})?) ?(?P<scale>[kKM]?) ?(?P<unit>token|run)s?)"
    r" ?/ ?(?P<per>hour|day|week|month)",
    re.ASCII,
)


class Unit(StrEnum):
    DOLLARS = "dollars"
    TOKENS = "tokens"
    RUNS = "runs"


class Period(StrEnum):
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"  # from Monday
    MONTH = "month"


class CostGroup(StrEnum):
    ENTRY = "entry"
    AGENT = "agent"
    DAY = "day"


class Purse(Struct, frozen=True, omit_defaults=True, gc=False):
    """A limit; `of` is its owner if not the entry: an address, `agent:NAME`, crew, board, all.

    >>> str(Purse(1_500_000, Unit.DOLLARS, Period.DAY, of="crew"))
    '$1.50/day of the crew'
    >>> str(Purse(2_000_000, Unit.DOLLARS, Period.DAY))
    '$2/day'
    """

    amount: int  # millionths of a dollar, tokens or runs
    unit: Unit
    per: Period
    zone: str = "UTC"
    of: str = ""

    def __str__(self) -> str:
        said = f"{self.words(self.amount).removesuffix('.00')}/{self.per}"
        return f"{said} of {_SHARED.get(self.of, self.of)}" if self.of else said

    def words(self, amount: int) -> str:
        return amount_text(amount, self.unit)

    def period(self, now: datetime) -> tuple[datetime, datetime]:
        """Return the start and the end of the period that contains a time.

        >>> purse = Purse(1, Unit.RUNS, Period.DAY, "Europe/Berlin")
        >>> start, end = purse.period(datetime.fromisoformat("2026-03-29T12:00:00+02:00"))
        >>> f"{start:%H:%M}", str(end - start)
        ('23:00', '23:00:00')
        """
        place = zone(self.zone)
        if self.per is Period.HOUR:
            # Hours are counted in UTC: the local hour that comes twice is two hours.
            offset = now.astimezone(place).utcoffset() or timedelta(0)
            shift = timedelta(seconds=offset.total_seconds() % 3600)
            wall = now.astimezone(UTC) + shift
            start = wall.replace(minute=0, second=0, microsecond=0) - shift
            return start, start + timedelta(hours=1)
        day = local(now, place).replace(hour=0, minute=0, second=0, microsecond=0)
        day -= timedelta(
            days={Period.WEEK: day.weekday(), Period.MONTH: day.day - 1}.get(self.per, 0)
        )
        start, end = instant(day, place), instant(then := self._after(day), place)
        if end <= now:  # a clock set back over midnight shows the day before once more
            start, end = end, instant(self._after(then), place)
        return start, end

    def _after(self, day: datetime) -> datetime:
        if self.per is Period.MONTH:
            return (day + timedelta(days=32)).replace(day=1)
        return day + timedelta(days=7 if self.per is Period.WEEK else 1)


def parse_budget(text: str, zone_name: str, of: str = "") -> tuple[Purse, ...]:
    """Parse a budget, limits divided by `;`; raise ValueError if it is not valid.

    >>> [str(each) for each in parse_budget("$2/day; 200k tokens/week; 20 runs/day", "UTC")]
    ['$2/day', '200k tokens/week', '20 runs/day']
    """
    found = []
    for part in text.split(";"):
        limit = _LIMIT.fullmatch(" ".join(part.split()))
        if limit is None:
            raise ValueError(FIX)
        unit = Unit(f"{limit['unit']}s") if limit["unit"] else Unit.DOLLARS
        scale = {"k": 1000, "K": 1000, "M": 1_000_000}.get(limit["scale"] or "", 1)
        amount = round(
            float(limit["dollars"] or limit["count"]) * (scale, DOLLAR)[not limit["unit"]]
        )
        if not 0 < amount <= _MOST:
            raise ValueError(FIX)
        found.append(Purse(amount, unit, Period(limit["per"]), zone_name, of))
    return tuple(dict.fromkeys(found))


def amount_text(amount: int, unit: Unit = Unit.DOLLARS) -> str:
    """Return an amount with its unit.

    >>> amount_text(1_500_000), amount_text(2_400), amount_text(1_250_000, Unit.TOKENS)
    ('$1.50', '$0.0024', '1.25M tokens')
    """
    if unit is Unit.DOLLARS:
        dollars = amount / DOLLAR
        return f"${dollars:.2f}" if amount >= DOLLAR // 100 or not amount else f"${dollars:.4f}"
    name = unit.value.removesuffix("s") if amount == 1 else unit.value
    for scale, letter in ((1_000_000, "M"), (1000, "k")):
        if unit is Unit.TOKENS and amount >= scale:
            return f"{round(amount / scale, 2):g}{letter} {name}"
    return f"{amount} {name}"


def cost_text(dollars: object) -> str:
    """Return a cost in dollars; empty if it is unknown.

    >>> cost_text(0.25), cost_text(None)
    ('$0.25', '')
    """
    return amount_text(round(dollars * DOLLAR)) if isinstance(dollars, int | float) else ""


class Usage(NamedTuple):
    cost: int | None = None  # in millionths of a dollar
    tokens: int | None = None

    def of(self, unit: Unit) -> int | None:
        return {Unit.DOLLARS: self.cost, Unit.TOKENS: self.tokens, Unit.RUNS: 1}[unit]


NOTHING: Final = Usage()


def usage_of(facts: Mapping[str, object]) -> Usage:
    cost, tokens = facts.get("cost"), facts.get("tokens")
    return Usage(
        round(cost * DOLLAR) if type(cost) in {int, float} else None,  # type: ignore[operator]
        tokens if type(tokens) is int else None,
    )


def total(several: Iterable[Mapping[str, object]]) -> dict[str, object]:
    """Return the added usage in the facts of several runs, as facts.

    >>> total([{"cost": 0.25}, {"cost": 0.5, "tokens": 9}, {}])
    {'cost': 0.75, 'tokens': 9}
    """
    used = [usage_of(each) for each in several]
    costs = [each.cost for each in used if each.cost is not None]
    tokens = [each.tokens for each in used if each.tokens is not None]
    facts: dict[str, object] = {"cost": sum(costs) / DOLLAR} if costs else {}
    return facts | ({"tokens": sum(tokens)} if tokens else {})


class Drawn(NamedTuple):
    entry: int
    runs: int
    cost: int
    costed: int  # runs with a known cost
    tokens: int
    tokened: int
    live: int = 0  # the number of a run in progress; 0: ended runs

    def amount(self, unit: Unit, expected: int) -> int:
        """Return the amount drawn; each run without a known cost counts as *expected*."""
        if unit is Unit.RUNS:
            return self.runs
        spent, said = (
            (self.cost, self.costed) if unit is Unit.DOLLARS else (self.tokens, self.tokened)
        )
        if self.live:
            return max(spent, expected)
        return spent + (self.runs - said) * expected


def expected(last: Sequence[Usage], unit: Unit) -> int:
    known = [used for each in last if (used := each.of(unit)) is not None]
    return 1 if unit is Unit.RUNS else round(median(known)) if known else 0


class Balance(NamedTuple):
    purse: Purse
    spent: int = 0  # by ended runs
    live: int = 0  # by runs in progress: the median of such runs, or more if they report more
    own: int = 0  # the expected usage of the next run
    until: datetime | None = None  # the start of the next period

    @property
    def left(self) -> int:
        return max(0, self.purse.amount - self.spent - self.live)

    @property
    def has_room(self) -> bool:
        return 0 < self.left >= self.own

    def is_exceeded(self, ahead: Usage = NOTHING) -> bool:
        """Return whether the purse is exceeded, or would be by the usage of the next message."""
        purse, used = self.purse, self.spent + self.live
        coming = 0 if purse.unit is Unit.RUNS else ahead.of(purse.unit) or 0
        return used > purse.amount or used + coming > MOST * purse.amount

    @property
    def exceeded(self) -> str:
        """The reason to end a run in progress."""
        purse, used = self.purse, self.spent + self.live
        spent = purse.words(used)
        if used > purse.amount:
            return f"the run exceeded the budget {purse}: {spent} spent"
        return f"the next message of the run would exceed the budget {purse}: {spent} spent"

    @property
    def words(self) -> str:
        purse = self.purse
        if purse.unit is Unit.RUNS:
            return f"the budget {purse} has no room: {purse.words(self.spent + self.live)} started"
        said = [f"{purse.words(self.spent)} spent"]
        said += [f"{purse.words(self.live)} expected of runs in progress"] if self.live else []
        said += [f"{purse.words(self.own)} expected of this run"] if self.own else []
        return f"the budget {purse} has no room: {', '.join(said)}"


def balance(
    purse: Purse,
    drawn: Iterable[Drawn],
    medians: Mapping[int, Sequence[Usage]],
    *,
    entry: int | None,
    now: datetime,
) -> Balance:
    """Return the state of a purse; *medians* are the last runs of each entry, newest first."""
    unit, spent, live = purse.unit, 0, 0
    for each in drawn:
        amount = each.amount(unit, expected(medians.get(each.entry, ()), unit))
        spent, live = (spent, live + amount) if each.live else (spent + amount, live)
    own = 0 if entry is None else expected(medians.get(entry, ()), unit)
    return Balance(purse, spent, live, own, purse.period(now)[1])


def least(balances: Iterable[Balance], unit: Unit) -> int | None:
    """Return what the purses of a unit leave to a run; None if none limits it."""
    return min((each.left for each in balances if each.purse.unit is unit), default=None)


def left_facts(balances: Sequence[Balance]) -> dict[str, str]:
    """Return what purses leave to a run, as environment variables.

    >>> left_facts([Balance(Purse(2 * DOLLAR, Unit.DOLLARS, Period.DAY), spent=500_000)])
    {'HORAE_BUDGET_LEFT': '1.5'}
    """
    dollars, tokens = least(balances, Unit.DOLLARS), least(balances, Unit.TOKENS)
    facts = (
        {}
        if dollars is None
        else {LEFT: f"{max(dollars, 100) / DOLLAR:.4f}".rstrip("0").rstrip(".")}
    )
    return facts if tokens is None else {**facts, LEFT_TOKENS: str(tokens)}
