"""Overdue, due, upcoming and unarmed items of plans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from horae.core.entry import AfterRule, Entry, OnceRule, OnDemandRule, Origin, PlanTask, Unarmed
from horae.core.project import decided, next_moment, project
from horae.core.text import pause_words


class DueStatus(StrEnum):
    OVERDUE = "overdue"  # its DEADLINE is past
    DUE = "due"  # its time is now or past
    UPCOMING = "upcoming"  # its time is within the horizon
    UNARMED = "not armed"  # it never runs


@dataclass(frozen=True, slots=True)
class DueLine:
    standing: DueStatus
    title: str
    origin: Origin
    at: datetime | None
    reason: str


def due(
    items: Iterable[Entry | PlanTask | Unarmed], *, now: datetime, horizon: timedelta
) -> list[DueLine]:
    """Return overdue, due, upcoming and unarmed items, in that order, by time.

    Without a watermark, only a rule with a single time can be due.
    """
    order = list(DueStatus)
    found = [line for item in items for line in _lines(item, now, now + horizon)]
    return sorted(
        found,
        key=lambda line: (
            order.index(line.standing),
            line.at.timestamp() if line.at else 0,
            line.origin.file,
            line.origin.line,
        ),
    )


def _line(
    item: Entry | PlanTask | Unarmed, standing: DueStatus, at: datetime | None, reason: str
) -> DueLine:
    return DueLine(standing, item.title, item.origin, at, reason)


def _lines(item: Entry | PlanTask | Unarmed, now: datetime, end: datetime) -> Iterator[DueLine]:
    match item:
        case Unarmed() if not item.is_hidden:
            yield _line(item, DueStatus.UNARMED, None, item.reason)
        # A deadline says more than a start.
        case PlanTask(deadline=datetime() as at) if at < now:
            yield _line(item, DueStatus.OVERDUE, at, "the DEADLINE is past")
        case PlanTask(scheduled=datetime() as at) if at <= now:
            yield _line(item, DueStatus.DUE, at, "the SCHEDULED time was reached")
        case PlanTask(scheduled=datetime() as at) if at <= end:
            yield _line(item, DueStatus.UPCOMING, at, "SCHEDULED")
        case PlanTask(deadline=datetime() as at) if at <= end:
            yield _line(item, DueStatus.UPCOMING, at, "DEADLINE")
        case Entry():
            yield from _entry_lines(item, now, end)


def _entry_lines(entry: Entry, now: datetime, end: datetime) -> Iterator[DueLine]:
    if entry.deadline is not None and entry.deadline < now:
        yield _line(entry, DueStatus.OVERDUE, entry.deadline, "the DEADLINE is past")
    if entry.pause is not None and entry.pause.covers(now):
        paused = f"paused{pause_words(entry.pause, zone_name=entry.zone)}"
        yield _line(entry, DueStatus.UNARMED, None, paused)
    rule = entry.rule
    if isinstance(rule, OnDemandRule | AfterRule):
        return
    waiting: datetime | None = None  # the first time that is due and has no receipt
    if entry.accounted_to is not None:
        moment = next(decided(project(entry, entry.accounted_to, now)), None)
        waiting = moment.at if moment else None
    elif isinstance(rule, OnceRule) and rule.at <= now:
        waiting = rule.at
    if waiting is not None:
        yield _line(entry, DueStatus.DUE, waiting, "the scheduled time was reached")
    coming = next_moment(entry, now)
    if coming is not None and coming.at <= end:
        estimate = "an estimate, from the end of the last run"
        reason = estimate if coming.is_estimate else "next scheduled time"
        yield _line(entry, DueStatus.UPCOMING, coming.at, reason)
