"""The one projection of an entry onto time, for engine, agenda, calendar and simulator."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from heapq import merge
from itertools import islice, takewhile
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from horae.core import entry as rules
from horae.core.entry import DEFAULT, Entry, Rule, key_time
from horae.timing.cron import Cron, count_any
from horae.timing.duration import delay_after, delay_after_failures
from horae.timing.repeater import RepeaterKind, Unit
from horae.timing.zone import ClockChange, changes, instant, zone


class Moment(Struct, frozen=True, gc=False):
    """A planned time, in UTC, and the key of its receipt; an estimate is shown, never decided."""

    at: datetime
    key: str
    is_estimate: bool = False


def project(entry: Entry, start: datetime, end: datetime) -> Iterator[Moment]:
    """Yield the planned times after *start*, up to and with *end*, in order."""
    for each in stretches(entry, start, end):
        yield from _moments(each.entry, each.start, each.end)


class Stretch(NamedTuple):
    entry: Entry
    start: datetime
    end: datetime


def stretches(entry: Entry, start: datetime, end: datetime) -> Iterator[Stretch]:
    start, end = map(_in_utc, entry.policy.clip(start, end))
    pause = entry.pause
    if pause is None:
        if start < end:
            yield Stretch(entry, start, end)
        return
    if start < min(end, pause.at):  # times before the pause were decided
        yield Stretch(unpaused(entry), start, min(end, pause.at))
    if pause.until is not None:
        after = _after_pause(entry, _in_utc(pause.until))
        start = max(start, after.start)
        if start < end:
            yield after._replace(start=start, end=end)


def unpaused(entry: Entry) -> Entry:
    return entry if entry.pause is None else replace(entry, pause=None)


def _after_pause(entry: Entry, until: datetime) -> Stretch:
    """Return an entry as of the end of its pause: times during the pause are skipped.

    A rule that counts from its last end counts from the end of the pause; a delay runs then.
    """
    bare, start = unpaused(entry), until
    match bare.rule:
        case rules.OnceRule(at, str()) as rule if at <= until:
            if entry.accounted_to is None or entry.accounted_to < at:
                bare, start = replace(bare, rule=replace(rule, at=until)), until - TINY
        case rules.CadenceRule() as rule:
            rule = replace(rule, failures=0)  # resuming resets the failures
            bare = replace(bare, rule=rule)
            if _next_tick(bare, rule) <= until:
                bare = replace(bare, rule=replace(rule, ticks=rule.ticks + 1), ended_at=until)
        case rules.RepeaterRule(_, repeater) as rule if repeater.kind is RepeaterKind.RESTART:
            first = next(_of_restart(bare, rule, _DAWN, _DUSK), None)
            if first is not None and first.at <= until:
                bare = replace(bare, ended_at=until)
    return Stretch(bare, start, _DUSK)


def next_moment(entry: Entry, after: datetime) -> Moment | None:
    if not isinstance(entry.rule, rules.CronRule) or entry.pause is not None:
        return next(project(entry, after, _FAR), None)
    start, end = (after, _FAR) if entry.policy is DEFAULT else entry.policy.clip(after, _FAR)
    moment = _first_of_cron(entry.rule.crons, _in_utc(start))
    return None if moment is None or moment.at > end else moment


def next_time(entry: Entry, after: datetime) -> datetime | None:
    """Return the next time; None if there is none, or only an estimate."""
    coming = next_moment(entry, after)
    return None if coming is None or coming.is_estimate else coming.at


# Thousands of entries that are due together have a few rules, and each is asked twice.
@lru_cache(maxsize=8192)
def _first_of_cron(crons: tuple[Cron, ...], after: datetime) -> Moment | None:
    found = [_in_utc(at) for cron in crons if (at := cron.next(after)) is not None]
    at = min(found, default=None)
    return None if at is None else Moment(at, f"cron:{key_time(at)}")


_FAR = datetime(9999, 12, 30, tzinfo=UTC)
_DAWN = datetime.min.replace(tzinfo=UTC)
_DUSK = datetime.max.replace(tzinfo=UTC)
TINY = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
_SHORT, _LONG = timedelta(seconds=90), timedelta(days=366 * 50)  # eight times these are enough
_STEPS = {Unit.HOUR: timedelta(hours=1), Unit.DAY: timedelta(days=1), Unit.WEEK: timedelta(days=7)}


def _in_utc(moment: datetime) -> datetime:
    if moment.tzinfo is UTC:
        return moment
    if moment.utcoffset() is None:
        raise ValueError(f"the time needs a time zone: {moment.isoformat()}")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return _DUSK if moment.year > 5000 else _DAWN


def _moments(entry: Entry, start: datetime, end: datetime) -> Iterator[Moment]:
    match entry.rule:
        case rules.CronRule():
            yield from _of_cron(entry.rule.crons, start, end)
        case rules.RepeaterRule(_, repeater) if repeater.kind is RepeaterKind.RESTART:
            yield from _of_restart(entry, entry.rule, start, end)
        case rules.RepeaterRule(anchor, repeater):
            for at in repeater.between(anchor, start, end, zone=zone(entry.zone)):
                yield Moment(at, f"at:{key_time(at)}")
        case rules.OnceRule(at, delay):
            if start < at <= end:
                key = f"delay:{delay}" if delay is not None else f"at:{key_time(at)}"
                yield Moment(_in_utc(at), key)
        case rules.CadenceRule():
            yield from _of_cadence(entry, entry.rule, start, end)
        case rules.OnDemandRule() | rules.AfterRule():
            return


def _of_cron(crons: tuple[Cron, ...], start: datetime, end: datetime) -> Iterator[Moment]:
    # In UTC before the merge: in one zone Python compares local times and ignores the fold.
    streams = ((at.astimezone(UTC) for at in cron.between(start, end)) for cron in crons)
    last = start
    for at in merge(*streams):
        if at > last:
            yield Moment(at, f"cron:{key_time(at)}")
            last = at


def _of_restart(
    entry: Entry, rule: rules.RepeaterRule, start: datetime, end: datetime
) -> Iterator[Moment]:
    place = zone(entry.zone)
    done_at = entry.ended_at
    at = instant(rule.anchor, place)
    is_estimate = False
    first_at = entry.policy.from_at
    if first_at is not None and at < first_at and rule.repeater.unit in _STEPS:
        # So near to :FROM: that few steps are left; years of hours would take a second.
        step = rule.repeater.count * _STEPS[rule.repeater.unit]
        done_at = max(done_at or at, first_at - min(step, first_at - at))
    while True:
        # A timestamp that the user moved past the last end is the next time.
        if done_at is not None and at <= done_at:
            wall = rule.repeater.shift(rule.anchor, now=done_at, zone=place)
            if wall is None:
                return
            at = instant(wall, place)
        if at > end:
            return
        if at > start:
            yield Moment(at, f"at:{key_time(at)}", is_estimate)
        # A time before :FROM: never runs, so no end of it will follow.
        done_at, is_estimate = at, first_at is None or at >= first_at


def _of_cadence(
    entry: Entry, rule: rules.CadenceRule, start: datetime, end: datetime
) -> Iterator[Moment]:
    at = max(_next_tick(entry, rule), entry.policy.from_at or _DAWN)
    # Times before the window are skipped by arithmetic, not one by one.
    passed = max(0, (start - at) // rule.base)
    at, tick, is_estimate = at + passed * rule.base, rule.ticks + 1 + passed, passed > 0
    while at <= end:
        if at > start:
            yield Moment(at, f"tick:{tick}", is_estimate)
        at, tick, is_estimate = at + rule.base, tick + 1, True


def _next_tick(entry: Entry, rule: rules.CadenceRule) -> datetime:
    at = rule.first_at.astimezone(UTC)
    if entry.ended_at is None:
        return at
    return max(at, entry.ended_at.astimezone(UTC) + tick_delay(rule))


def tick_delay(rule: rules.CadenceRule) -> timedelta:
    return max(delay_after(rule.base, rule.streak), delay_after_failures(rule.base, rule.failures))


def decided(moments: Iterator[Moment]) -> Iterator[Moment]:
    return takewhile(lambda moment: not moment.is_estimate, moments)


def counted(entry: Entry, start: datetime, end: datetime) -> int | None:
    """Count the times of a window; None if that takes an iteration over them."""
    start, end = entry.policy.clip(start, end)
    match entry.rule:
        case rules.CronRule(crons):
            return _count_crons(crons, start, end)
        case rules.RepeaterRule(anchor, repeater) if not counts_from_end(entry.rule):
            return repeater.how_many(anchor, start, end, zone=zone(entry.zone))
    return None


# A calendar asks for the same days again and again.
_count_crons = lru_cache(maxsize=1 << 16)(count_any)


def last_moments(entry: Entry, end: datetime, count: int) -> tuple[Moment, ...]:
    """Return the last times up to and with *end*, if they can be counted without iteration.

    The search goes forward, from as far back as needed, and at most from 400 years before.
    """
    entry, (_, end) = unpaused(entry), entry.policy.clip(_DAWN, end)

    def since(span: timedelta) -> datetime:
        return end - span if end - _DAWN > span else _DAWN

    near, far = timedelta(0), _SHORT
    while (many := counted(entry, since(far), end)) is not None and many < count:
        if far > _LONG or since(far) == _DAWN:
            break
        near, far = far, far * 8
    while many is not None and many > 8 * count and far - near > TINY:
        middle = near + (far - near) / 2
        some = counted(entry, since(middle), end) or 0
        near, far, many = (near, middle, some) if some >= count else (middle, far, many)
    if not many:
        return ()
    return tuple(deque(project(entry, since(far), end), maxlen=count))


def counts_from_end(rule: Rule) -> bool:
    match rule:
        case rules.CadenceRule():
            return True
        case rules.RepeaterRule(_, repeater):
            return repeater.kind is RepeaterKind.RESTART
    return False


# Clock changes: local times of rules that they skip or repeat.


class Seam(NamedTuple):
    """A local time that a clock change skips or repeats, and when the rule fires instead."""

    wall: datetime
    change: ClockChange
    is_fixed: bool  # it names a time of day, so that it still fires, once
    zone: str

    def __str__(self) -> str:
        day, time = f"{self.wall:%Y-%m-%d}", f"{self.wall:%H:%M}"
        if not self.change.is_gap:
            what = "the first time only" if self.is_fixed else "both times"
            return f"{time} occurs twice on {day} in {self.zone}: runs {what}"
        if not self.is_fixed:
            return f"{time} does not exist on {day} in {self.zone}: skipped"
        after = (self.change.at + self.change.after).replace(tzinfo=None)
        return f"{time} does not exist on {day} in {self.zone}: runs at {after:%H:%M} instead"


def seams(
    rule: Rule, *, zone_name: str, start: datetime, end: datetime, wall: datetime | None = None
) -> Iterator[Seam]:
    """Yield the first time of a rule that each clock change of a window affects.

    A rule that runs every hour is left out: it has no local time of day. A rule that fires once
    does not know its local time any more: *wall* is how that is written.
    """
    for change in changes(zone(zone_name), start, end):
        before, after = change.at + change.before, change.at + change.after
        # The local time is treated as UTC.
        low, high = (min(before, after) - _SECOND), (max(before, after) - _SECOND)
        walls: Iterator[tuple[datetime, bool]] = iter(())
        match rule:
            case rules.CronRule(crons):
                walls = (
                    (at, not cron.has_star_time)
                    for cron in crons
                    if not _is_hourly(cron)
                    for at in Cron(cron.expression).between(low, high)
                )
            case rules.RepeaterRule(anchor, repeater):
                counts_hours = repeater.count == 1 or repeater.kind is RepeaterKind.RESTART
                if repeater.unit is not Unit.HOUR or not counts_hours:
                    found = repeater.between(anchor, low, high, zone=zone("UTC"))
                    walls = ((at.astimezone(UTC), True) for at in found)
            case rules.OnceRule() if wall is not None and low < wall.replace(tzinfo=UTC) <= high:
                walls = iter([(wall, True)])
        for at, is_fixed in islice(walls, 1):
            yield Seam(at.replace(tzinfo=None), change, is_fixed, zone_name)


def _is_hourly(cron: Cron) -> bool:
    fields = cron.expression.split()
    if len(fields) < 5:
        return fields[0].lower() == "@hourly"
    return "*" in fields[1 if len(fields) == 5 else 2]
