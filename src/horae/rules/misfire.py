"""What should happen with the moments that have come: `decide`.

Every moment between the watermark and now gets exactly one receipt, of its own or in a
range: it runs, it runs late, another one runs for it, it is skipped, or it is missed.
Each says why in words. The same call again gives nothing, and so does a clock set back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.rules.entry import (
    CatchUp,
    CronRule,
    Entry,
    OnceRule,
    Overlap,
    RepeaterRule,
)
from horae.rules.project import Moment, decided, project
from horae.timing.duration import format_duration
from horae.timing.repeater import Kind
from horae.timing.zone import instant, zone

if TYPE_CHECKING:
    from collections.abc import Iterator

CAP: Final = 10  # how many missed moments of one entry run after an outage
APART: Final = 100  # up to so many moments in one step have a receipt each
GRACE: Final = timedelta(minutes=1)  # how late a moment may be found and still be on time
WINDOW: Final = timedelta(hours=24)  # how late a cron moment may still run


class Status(StrEnum):
    """Where a receipt stands."""

    WAITING = "waiting"  # it will run
    HELD = "held"  # it waits for something that is missing
    STARTING = "starting"  # its run is being made
    RUNNING = "running"
    DONE = "done"
    NO_WORK = "no_work"
    FAILED = "failed"
    KILLED = "killed"  # it outlived its wall clock
    INTERRUPTED = "interrupted"  # the engine died under it
    SKIPPED = "skipped"  # it was not meant to run: overlap, pause, removal
    COALESCED = "coalesced"  # a later moment runs for it
    MISSED = "missed"  # nobody looked in time


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was decided about one planned moment, or about a range of them."""

    key: str
    status: Status
    reason: str
    planned_at: datetime
    start_at: datetime  # planned, and jitter
    through_at: datetime | None = None  # the last moment of a range
    count: int = 1


@dataclass(frozen=True, slots=True)
class Decision:
    """The receipts of a step, and what the entry must carry after it."""

    receipts: tuple[Receipt, ...]
    accounted_to: datetime | None
    ended_at: datetime | None


def begin(entry: Entry, *, now: datetime) -> Decision:
    """Return what to write when an entry is first seen, or seen again: nothing past fires.

    A single moment that is already over leaves a `missed` receipt that says so; a rule
    that counts from completion counts from now. A delay alone is still to come, however
    long ago it should have been: its watermark is before it.
    """
    ended_at = entry.ended_at
    match entry.rule:
        case OnceRule(at, str()):
            return Decision((), min(now, at - GRACE), ended_at)
        case OnceRule(at, None) if at <= now:
            reason = f"it was written {_long(now - at)} after its time"
            missed = _receipt(entry, next(project(entry, at - GRACE, at)), Status.MISSED, reason)
            return Decision((missed,), now, ended_at)
        case RepeaterRule(anchor, repeater) if repeater.kind is Kind.RESTART:
            if instant(anchor, zone(entry.zone)) <= now:
                ended_at = now
    return Decision((), now, ended_at)


def decide(entry: Entry, *, now: datetime, is_busy: bool = False) -> Decision:
    """Return a receipt for every moment that came since the watermark, and the new watermark.

    *is_busy* tells whether the entry has a run that is not over.
    """
    since = entry.accounted_to
    unchanged = Decision((), since, entry.ended_at)
    if since is None or now <= since:
        return unchanged
    pending = _pending(entry, since, now)
    if pending is None:
        return unchanged
    receipts = _receipts(entry, pending, now=now, is_busy=is_busy)
    return Decision(receipts, pending.newest[-1].at, _ended_at(entry, receipts, now))


def close(entry: Entry, *, now: datetime, reason: str) -> Decision:
    """Return what to write when a rule ends, pauses or changes: nothing past fires any more."""
    since = entry.accounted_to
    if since is None or now <= since:
        return Decision((), since, entry.ended_at)
    pending = _pending(entry, since, now)
    if pending is None:
        return Decision((), now, entry.ended_at)
    skipped = _range(entry, pending, Status.SKIPPED, reason)
    return Decision((skipped,), now, entry.ended_at)


class _Pending(NamedTuple):
    """Moments that have come: how many, the first of them, and as many of the newest as matter."""

    total: int
    first: Moment
    newest: tuple[Moment, ...]


def _pending(entry: Entry, since: datetime, now: datetime) -> _Pending | None:
    """Return the moments that have come since the watermark, if any has."""
    moments = decided(project(entry, since, now))
    first = next(moments, None)
    if first is None:
        return None
    newest = deque([first], maxlen=APART)
    total = 1
    for moment in moments:
        newest.append(moment)
        total += 1
        if total == APART + 1 and (rest := _many(entry, moment.at, now)) is not None:
            return rest._replace(total=total + rest.total, first=first)
    return _Pending(total, first, tuple(newest))


def _many(entry: Entry, since: datetime, now: datetime) -> _Pending | None:
    """Count the rest without walking it, and return the newest; None if that saves nothing."""
    rule, until = entry.rule, entry.policy.until
    if not isinstance(rule, CronRule) or len(rule.crons) > 1:
        return None
    cron, end = rule.crons[0], now if until is None else min(now, until)
    rest = cron.count(since, end)
    if rest <= APART:
        return None
    before: datetime | None = end + timedelta(microseconds=1)
    newest: list[datetime] = []
    while before is not None and len(newest) <= CAP:
        before = cron.prev(before)
        newest.extend([before] if before else [])
    last = tuple(project(entry, newest[-1] - timedelta(microseconds=1), end))
    return _Pending(rest, last[0], last)


def _receipts(
    entry: Entry, pending: _Pending, *, now: datetime, is_busy: bool
) -> tuple[Receipt, ...]:
    """Return a receipt for each of the moments, those that run last."""
    catchup = _catchup(entry)
    newest = pending.newest
    runs = _runs(entry, catchup, newest, now)
    running = newest[len(newest) - runs :]
    passed = pending._replace(total=pending.total - runs, newest=newest[: len(newest) - runs])
    return (
        *_passed(entry, passed, *_why_not(catchup, running)),
        *_running(entry, running, now, is_busy=is_busy),
    )


def _why_not(catchup: CatchUp, running: tuple[Moment, ...]) -> tuple[Status, str]:
    """Return what the moments are that do not run, and why."""
    if catchup is CatchUp.NONE:
        return Status.MISSED, "its time passed by while nobody looked, and catch-up is none"
    if catchup is CatchUp.ALL:
        reason = f"more than {CAP} moments had passed, and only the newest {CAP} are made good"
        return Status.MISSED, reason
    if running:
        return Status.COALESCED, f"{running[-1].key} runs for it, as catch-up is latest"
    return Status.MISSED, f"it is more than {_long(WINDOW)} late, longer than catch-up makes good"


def _runs(entry: Entry, catchup: CatchUp, newest: tuple[Moment, ...], now: datetime) -> int:
    """Return how many of the newest moments run."""
    late = now - newest[-1].at
    match catchup:
        case CatchUp.ALL:
            return min(CAP, len(newest))
        case CatchUp.LATEST if isinstance(entry.rule, CronRule):
            return int(late <= WINDOW)
        case CatchUp.LATEST:
            return 1
        case CatchUp.NONE:
            is_delay = isinstance(entry.rule, OnceRule) and entry.rule.delay is not None
            return int(is_delay or late <= GRACE)


def _catchup(entry: Entry) -> CatchUp:
    """Return what the entry asks for, else what its rule means by itself."""
    if entry.policy.catchup is not None:
        return entry.policy.catchup
    rule = entry.rule
    if isinstance(rule, RepeaterRule) and rule.repeater.kind is Kind.CUMULATE:
        return CatchUp.ALL
    return CatchUp.LATEST


def _passed(entry: Entry, passed: _Pending, status: Status, reason: str) -> Iterator[Receipt]:
    """Yield the receipts of the moments that do not run: one each, or a range of them all."""
    if passed.total == len(passed.newest):
        for moment in passed.newest:
            yield _receipt(entry, moment, status, reason)
    else:
        yield _range(entry, passed, status, reason)


def _running(
    entry: Entry, moments: tuple[Moment, ...], now: datetime, *, is_busy: bool
) -> Iterator[Receipt]:
    """Yield the receipts of the moments that run, unless another run is in the way."""
    # Moments that are made good together wait for one another, whatever the overlap policy.
    if is_busy and len(moments) == 1 and entry.policy.overlap is Overlap.SKIP:
        reason = "the run before it was still going on, and overlap is skip"
        yield _receipt(entry, moments[0], Status.SKIPPED, reason)
        return
    for moment in moments:
        late = now - moment.at
        reason = "its time has come" if late <= GRACE else f"its time has come, {_long(late)} ago"
        yield _receipt(entry, moment, Status.WAITING, reason)


def _receipt(entry: Entry, moment: Moment, status: Status, reason: str) -> Receipt:
    """Return the receipt of one moment."""
    start_at = moment.at + jitter(entry, moment.key)
    return Receipt(moment.key, status, reason, moment.at, start_at)


def _range(entry: Entry, pending: _Pending, status: Status, reason: str) -> Receipt:
    """Return the one receipt of many moments; it goes by the key of the first."""
    first = pending.first
    if pending.total == 1:
        return _receipt(entry, first, status, reason)
    last = pending.newest[-1].at
    return Receipt(first.key, status, reason, first.at, first.at, last, pending.total)


def jitter(entry: Entry, key: str) -> timedelta:
    """Return how long after its moment a run starts: the same on every try and every start."""
    if not entry.policy.jitter:
        return timedelta(0)
    roll = int.from_bytes(sha256(f"{entry.number}:{key}".encode()).digest()[:8], "big")
    return timedelta(seconds=int(entry.policy.jitter.total_seconds() * roll / 2**64))


def _ended_at(entry: Entry, receipts: tuple[Receipt, ...], now: datetime) -> datetime | None:
    """Return the end to count from: a moment that never ran was over when that was decided."""
    rule = entry.rule
    counts_from_end = isinstance(rule, RepeaterRule) and rule.repeater.kind is Kind.RESTART
    runs = any(receipt.status is Status.WAITING for receipt in receipts)
    return now if counts_from_end and not runs else entry.ended_at


def _long(length: timedelta) -> str:
    """Return a length of time in words short enough for a reason."""
    return format_duration(timedelta(seconds=int(length.total_seconds())))
