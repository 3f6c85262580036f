"""Every planned moment the slow way, held against the receipts of a simulated world.

It reads the rules once more, by the plainest reading of the words: every local day, every hour
and minute of it that a rule names, one after the other. It shares nothing with what it judges:
neither the readers of rules, nor the calendar, nor the handling of clock changes.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from horae.core.receipt import Filed
    from simulate.watch import Span
    from simulate.world import World

DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
FAR = datetime(2060, 1, 1, tzinfo=UTC)
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
STAMP = re.compile(r"<(\d{4}-\d\d-\d\d) (\d\d:\d\d)(?: (\.\+|\+\+?)(\d+)([hdwm]))?>")


def moments(rule: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """Return the moments of a rule in (start, end], in UTC and in order."""
    if start >= end:
        return []
    if rule.startswith("<"):
        return [at for at in stamped(rule, zone, min(end, FAR)) if start < at <= end]
    found: set[datetime] = set()
    for part in rule.split(";"):
        for year in range((start - 2 * DAY).year, (end + 2 * DAY).year + 1):
            found.update(at for at in cron_year(part.strip(), zone, year) if start < at <= end)
    return sorted(found)


@cache
def cron_year(expression: str, zone: str, year: int) -> tuple[datetime, ...]:
    """Return the moments of one expression on the local days of a year."""
    minute, hour, day, month, weekday = expression.split()
    place = ZoneInfo(zone)
    every_pass = "*" in minute + hour
    found: set[datetime] = set()
    today = date(year, 1, 1)
    while today.year == year:
        if today.month in numbers(month, 1, 12) and is_day(day, weekday, today):
            for h in numbers(hour, 0, 23):
                for m in numbers(minute, 0, 59):
                    wall = datetime.combine(today, time(h, m))
                    found.update(passes(wall, place) if every_pass else [first(wall, place)])
        today += DAY
    return tuple(sorted(found))


@cache
def stamped(rule: str, zone: str, end: datetime) -> tuple[datetime, ...]:
    """Return the moments of a stamp up to a moment; of one without a repeater, the one."""
    found = STAMP.fullmatch(rule)
    assert found, rule
    day, clock, kind, count, unit = found.groups()
    wall, place = datetime.fromisoformat(f"{day}T{clock}"), ZoneInfo(zone)
    if kind is None:
        return (first(wall, place),)
    moments: list[datetime] = []
    while (at := first(wall, place)) <= end:
        if not moments or at > moments[-1]:
            moments.append(at)
        wall = further(wall, int(count), unit)
    return tuple(moments)


def further(wall: datetime, count: int, unit: str) -> datetime:
    """Return a wall time one interval on; a day that a month lacks runs over into the next."""
    if unit != "m":
        return wall + count * {"h": HOUR, "d": DAY, "w": 7 * DAY}[unit]
    month = wall.month - 1 + count
    first_of = wall.replace(year=wall.year + month // 12, month=month % 12 + 1, day=1)
    return first_of + (wall.day - 1) * DAY


def passes(wall: datetime, place: ZoneInfo) -> list[datetime]:
    """Return every moment at which the clock shows a wall time: none, one or two."""
    both = {wall.replace(tzinfo=place, fold=fold).astimezone(UTC) for fold in (0, 1)}
    return [at for at in both if at.astimezone(place).replace(tzinfo=None, fold=0) == wall]


def first(wall: datetime, place: ZoneInfo) -> datetime:
    """Return when the clock first shows a wall time, or the first one after it that it shows."""
    while not (shown := passes(wall, place)):
        wall += MINUTE
    return min(shown)


def is_day(day: str, weekday: str, today: date) -> bool:
    tomorrow = today + DAY
    by_date = today.day in numbers(day, 1, 31) if day != "L" else tomorrow.month != today.month
    name = DAYS[int(today.strftime("%w"))]
    if "-" in weekday:
        low, high = weekday.split("-")
        by_weekday = DAYS.index(low) <= DAYS.index(name) <= DAYS.index(high)
    else:
        by_weekday = weekday in ("*", name)
    if day == "*":
        return by_weekday
    return by_date if weekday == "*" else by_date or by_weekday


@cache
def numbers(field: str, low: int, high: int) -> tuple[int, ...]:
    """Return the numbers that a field names."""
    body, _, step = field.partition("/")
    if body == "*":
        span = (low, high)
    else:
        begin, _, end = body.partition("-")
        span = (int(begin), int(end or begin))
    return tuple(range(span[0], span[1] + 1, int(step or 1)))


# What a world owes, and what it has


async def audit(world: World) -> None:
    """Break the world's run unless every moment it owed has its receipt, and none has too many."""
    by_entry: dict[int, list[Filed]] = {}
    cursor = None
    while True:
        page = await world.ledger.receipts(limit=1000, cursor=cursor)
        for filed in page.receipts:
            key = filed.receipt.key
            if key.startswith(("cron:", "at:")) and ":void:" not in key:
                by_entry.setdefault(filed.entry, []).append(filed)
        cursor = page.cursor
        if cursor is None:
            break
    now = world.clock.now()
    for entry, spans in sorted(world.watch.spans.items()):
        its = sorted(by_entry.get(entry, []), key=lambda each: each.receipt.planned_at)
        for problem in problems(spans, its, now=now, was_set_back=world.steps_back > 0):
            world.watch.fail("oracle", f"entry {entry} {spans[-1].title!r}: {problem}")
            return
    for trigger in world.written.triggers.values():
        when = trigger.when
        if trigger.is_enabled and isinstance(when, datetime) and when < now - DAY:
            rests = [s[-1] for s in world.watch.spans.values() if s[-1].title == trigger.name]
            if all(span.is_armed for span in rests):
                world.watch.fail("oracle", f"the delay {trigger.name} for {when} never ran")


def problems(
    spans: Sequence[Span], filed: Sequence[Filed], *, now: datetime, was_set_back: bool
) -> Iterator[str]:
    """Yield what is wrong with the receipts of one entry."""
    gridded = [span for span in spans if has_grid(span)]
    later = FAR
    for span in reversed(spans):
        windows, later = owed(span, now, later)
        for low, high in windows if span in gridded else ():
            yield from uncovered(span, filed, low, high, may_double=was_set_back)
    seen_since = min((span.since for span in spans), default=now)
    for each in filed:
        if each.decided_at >= seen_since and not was_set_back:
            its = [span for span in spans if span.since <= each.decided_at <= (span.end or now)]
            if its and all(map(has_grid, its)) and not any(is_planned_by(s, each) for s in its):
                yield f"{each.receipt.key} ({each.receipt.count}) is no moment of {its[-1].rule!r}"
    if not was_set_back:
        for span in spans:
            if ".+" in span.rule and span.is_armed:
                yield from restarts(span, filed, now)


def has_grid(span: Span) -> bool:
    """Tell whether a rule names its moments by itself, without waiting for an end."""
    is_cron = span.source in ("board", "org") and len(span.rule.split()) >= 5
    is_stamp = span.rule.startswith("<") and ".+" not in span.rule
    is_trigger = span.source == "trigger" and "*" in span.rule
    return bool(span.zone) and (is_cron or is_stamp or is_trigger)


def owed(
    span: Span, now: datetime, later: datetime
) -> tuple[list[tuple[datetime, datetime]], datetime]:
    """Return the windows whose moments must have a receipt: known, armed, and the clock was there.

    Where the clock was set back, what lies beyond is owed only when it comes again. *later* is
    the lowest that it was set to after the span; the lowest from the span on comes with it.
    """
    windows = []
    high = span.end or now - 2 * MINUTE
    for low in reversed(span.lows):
        windows.append((low, min(high, later)))
        high, later = low, min(later, low)
    return windows if span.is_armed else [], later


def uncovered(
    span: Span, filed: Sequence[Filed], low: datetime, high: datetime, *, may_double: bool
) -> Iterator[str]:
    """Yield the moments of a window that have no receipt, or more than one."""
    until = high if span.until is None else min(high, span.until)
    starts = [each.receipt.planned_at for each in filed]
    ranges = [each for each in filed if each.receipt.through_at is not None]
    for at in moments(span.rule, span.zone, low, until):
        own = bisect_right(starts, at) - bisect_left(starts, at)
        others = sum(
            each.receipt.planned_at < at <= (each.receipt.through_at or at) for each in ranges
        )
        if own + others == 0:
            yield f"{at} of {span.rule!r} has no receipt (it was owed from {low} to {high})"
            return
        if own + others > 1 and not may_double:
            yield f"{at} of {span.rule!r} has {own + others} receipts"
            return


def is_planned_by(span: Span, filed: Filed) -> bool:
    """Tell whether a receipt stands for moments of a rule, for as many as it says."""
    receipt = filed.receipt
    last = receipt.through_at or receipt.planned_at
    until = last if span.until is None else min(last, span.until)
    found = moments(span.rule, span.zone, receipt.planned_at - MINUTE / 60, until)
    return len(found) == receipt.count and found[0] == receipt.planned_at and found[-1] == last


def restarts(span: Span, filed: Sequence[Filed], now: datetime) -> Iterator[str]:
    """Yield the moments of a `.+` rule that do not follow from the end before them."""
    found = STAMP.fullmatch(span.rule)
    assert found, span.rule
    day, clock, _, count, unit = found.groups()
    anchor, place = datetime.fromisoformat(f"{day}T{clock}"), ZoneInfo(span.zone)
    inside = [each for each in filed if span.since < each.decided_at < (span.end or now)]
    for one, other in pairwise(inside):
        # What was held for days, and belongs to an older rule, may have ended last of all.
        before = [each.ended_at for each in filed if each.number < other.number and each.ended_at]
        ends = [end for end in before if end <= other.decided_at]
        ended_at = max([one.ended_at or one.decided_at, *ends])
        if first(anchor, place) > ended_at:
            continue
        wall = ended_at.astimezone(place).replace(tzinfo=None, fold=0, second=0, microsecond=0)
        if unit != "h":
            wall = datetime.combine(wall.date(), anchor.time())
        expected = first(further(wall, int(count), unit), place)
        if other.receipt.planned_at != expected:
            yield f"{other.receipt.key} follows an end at {ended_at}, so {expected} was its time"
