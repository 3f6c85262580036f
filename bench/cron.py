"""Cron: time to the next moment, and from text to the first one, beside three peers.

    python bench/cron.py           about 5 seconds

Everything is measured in this run, on this machine. The peers are cronsim, croniter and
APScheduler's CronTrigger, each in its own spelling of the same rule. Nothing is kept from
one expression to the next. All must give the same moments: the program fails when ours
are not those of every peer, never for being slow.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from datetime import UTC, datetime
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger
from croniter import croniter
from cronsim import CronSim

from horae.timing.cron import Cron

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

START = datetime(2026, 6, 3, 12, 34, 56, tzinfo=UTC)
LOCAL = {zone: START.astimezone(ZoneInfo(zone)) for zone in ("UTC", "Europe/Berlin")}
CELL = 0.02  # seconds of measuring, five times over
CHECKED = 5  # moments


class Rule(NamedTuple):
    """One rule, as cron has it and as APScheduler's keywords say it."""

    name: str
    expression: str
    said: str

    @property
    def keywords(self) -> dict[str, str]:
        """The keywords by name."""
        return dict(pair.split("=") for pair in self.said.split("; "))


RULES = [
    Rule("every minute", "* * * * *", "minute=*"),
    Rule("every 5 minutes", "*/5 * * * *", "minute=*/5"),
    Rule("every 10 seconds", "*/10 * * * * *", "second=*/10"),
    Rule("hourly", "0 * * * *", "minute=0"),
    Rule("office hours", "*/15 9-17 * * MON-FRI", "minute=*/15; hour=9-17; day_of_week=mon-fri"),
    Rule("daily", "30 6 * * *", "minute=30; hour=6"),
    Rule("weekdays", "0 9 * * MON-FRI", "minute=0; hour=9; day_of_week=mon-fri"),
    Rule("1st and 15th", "0 9 1,15 * *", "minute=0; hour=9; day=1,15"),
    Rule("31st", "0 0 31 * *", "minute=0; hour=0; day=31"),
    Rule("last day", "0 0 L * *", "minute=0; hour=0; day=last"),
    Rule("fifth Monday", "0 0 * * 1#5", "minute=0; hour=0; day=5th mon"),
    Rule("29 February", "0 0 29 2 *", "minute=0; hour=0; day=29; month=2"),
    Rule("29 Feb, a Monday", "0 0 * 2 1#5", "minute=0; hour=0; day=5th mon; month=2"),
]
NEVER = [("0 0 30 2 *", "UTC"), ("0 0 31 4,6,9,11 *", "UTC"), ("* 2 * 3 SUN#2", "America/New_York")]
ZONES = tuple(LOCAL)
PEERS = ("cronsim", "croniter", "apscheduler")


def by_horae(rule: Rule, zone: str) -> Iterator[datetime]:
    """Yield our moments, each asked for by itself."""
    cron = Cron(rule.expression, zone)
    here = cron.next(START)
    while here is not None:
        yield here
        here = cron.next(here)


def by_cronsim(rule: Rule, zone: str) -> Iterator[datetime]:
    """Return cronsim's iterator."""
    return iter(CronSim(rule.expression, START if zone == "UTC" else LOCAL[zone]))


def by_croniter(rule: Rule, zone: str) -> Iterator[datetime]:
    """Return croniter's iterator."""
    by_second = len(rule.expression.split()) == 6
    iterator = croniter(rule.expression, LOCAL[zone], datetime, second_at_beginning=by_second)
    found: Iterator[datetime] = iterator.all_next(datetime)
    return found


def by_apscheduler(rule: Rule, zone: str) -> Iterator[datetime]:
    """Yield the moments of APScheduler's trigger."""
    trigger = CronTrigger(timezone=LOCAL[zone].tzinfo, **rule.keywords)
    here = trigger.get_next_fire_time(None, START)
    while here is not None:
        yield here
        here = trigger.get_next_fire_time(here, here)


LIBRARIES: dict[str, Callable[[Rule, str], Iterator[datetime]]] = {
    "horae": by_horae,
    "cronsim": by_cronsim,
    "croniter": by_croniter,
    "apscheduler": by_apscheduler,
}


def main() -> int:
    """Print one table for each zone and question; return 1 when an answer is wrong."""
    wrong = [line for zone in ZONES for rule in RULES for line in check(rule, zone)]
    for question, measure in (("next moment", next_time), ("text to first", text_time)):
        for zone in ZONES:
            table(question, zone, measure)
    print("a rule that never comes: ms from text to that answer")
    for expression, zone in NEVER:
        print(f"  {expression:<20}{zone:<18}{never_time(expression, zone) * 1e3:8.3f}")
    print("\n".join(wrong) or "all moments agree")
    return 1 if wrong else 0


def check(rule: Rule, zone: str) -> Iterator[str]:
    """Yield a line for each peer whose moments are not ours."""
    ours = _first(by_horae(rule, zone))
    for peer in PEERS:
        theirs = _first(LIBRARIES[peer](rule, zone))
        if ours != theirs:
            yield f"WRONG {rule.expression!r} in {zone}: {ours} but {peer} has {theirs}"


def table(question: str, zone: str, measure: Callable[[str, Rule, str], float]) -> None:
    """Print the times of all rules, and how many times longer each peer takes."""
    print(f"{question}, {zone}: µs, and how many times as long each peer takes")
    print(f"  {'':<18}{'horae':>8}" + "".join(f"{peer:>21}" for peer in PEERS))
    ratios: dict[str, list[float]] = {peer: [] for peer in PEERS}
    for rule in RULES:
        ours = measure("horae", rule, zone)
        line = f"  {rule.name:<18}{ours * 1e6:8.2f}"
        for peer in PEERS:
            theirs = measure(peer, rule, zone)
            ratios[peer].append(theirs / ours)
            line += f"{theirs * 1e6:12.1f} {theirs / ours:7.1f}×"
        print(line)
    means = "".join(f"{prod(r) ** (1 / len(r)):20.1f}×" for r in ratios.values())
    print(f"  {'geometric mean':<18}{'':8}{means}\n")


def next_time(library: str, rule: Rule, zone: str) -> float:
    """Return the seconds from one moment to the next, once a rule is read."""
    moments = LIBRARIES[library](rule, zone)
    next(moments)
    return best(lambda count: deque(islice(moments, count), maxlen=0), most=40)


def text_time(library: str, rule: Rule, zone: str) -> float:
    """Return the seconds from the text of a rule to its first moment."""
    if library == "horae":
        return best(lambda count: [Cron(rule.expression, zone).next(START) for _ in range(count)])
    read = LIBRARIES[library]
    return best(lambda count: [next(read(rule, zone)) for _ in range(count)])


def never_time(expression: str, zone: str) -> float:
    """Return the seconds from the text of a rule to the answer that it does not come."""
    return best(lambda count: [Cron(expression, zone).next(START) for _ in range(count)])


def best(work: Callable[[int], object], most: int = 1_000) -> float:
    """Return the seconds that one piece of work takes, the least of five rounds."""
    once = _timed(work, 1)
    count = max(1, min(most, int(CELL / once)))
    return min(_timed(work, count) for _ in range(5))


def _timed(work: Callable[[int], object], count: int) -> float:
    start = time.perf_counter()
    work(count)
    return (time.perf_counter() - start) / count


def _first(moments: Iterator[datetime]) -> list[str]:
    found = [next(moments).astimezone(UTC) for _ in range(CHECKED)]
    return [moment.isoformat() for moment in found]


if __name__ == "__main__":
    sys.exit(main())
