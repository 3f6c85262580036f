"""What is overdue, due, upcoming, or not armed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from horae.core.entry import AfterRule, Entry, OnceRule, OnDemandRule, Task, Unarmed
from horae.core.project import decided, next_moment, project
from horae.core.text import pause_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from horae.core.entry import Origin

HORIZON: Final = timedelta(days=7)


class DueStatus(StrEnum):
    """How an entry or a task stands to a moment."""

    OVERDUE = "overdue"  # its DEADLINE is past
    DUE = "due"  # its time has come
    UPCOMING = "upcoming"  # its time comes within the horizon
    UNARMED = "not armed"  # its time will never come


@dataclass(frozen=True, slots=True)
class DueLine:
    standing: DueStatus
    title: str
    origin: Origin
    at: datetime | None
    reason: str


def due(
    items: Iterable[Entry | Task | Unarmed], *, now: datetime, horizon: timedelta = HORIZON
) -> list[DueLine]:
    """Return what is overdue, due, upcoming and not armed, in that order, by time.

    Without a watermark only a single moment in the past is due.
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


def _lines(item: Entry | Task | Unarmed, now: datetime, end: datetime) -> Iterator[DueLine]:
    match item:
        case Unarmed() if not item.is_hidden:
            yield DueLine(DueStatus.UNARMED, item.title, item.origin, None, item.reason)
        case Task():
            yield from _task_lines(item, now, end)
        case Entry():
            yield from _entry_lines(item, now, end)


def _task_lines(task: Task, now: datetime, end: datetime) -> Iterator[DueLine]:
    deadline, scheduled = task.deadline, task.scheduled
    if deadline is not None and deadline < now:
        yield DueLine(DueStatus.OVERDUE, task.title, task.origin, deadline, "the DEADLINE is past")
    elif scheduled is not None and scheduled <= now:
        yield DueLine(
            DueStatus.DUE, task.title, task.origin, scheduled, "the SCHEDULED time was reached"
        )
    elif scheduled is not None and scheduled <= end:
        yield DueLine(DueStatus.UPCOMING, task.title, task.origin, scheduled, "SCHEDULED")
    elif deadline is not None and deadline <= end:
        yield DueLine(DueStatus.UPCOMING, task.title, task.origin, deadline, "DEADLINE")


def _entry_lines(entry: Entry, now: datetime, end: datetime) -> Iterator[DueLine]:
    if entry.deadline is not None and entry.deadline < now:
        reason = "the DEADLINE is past"
        yield DueLine(DueStatus.OVERDUE, entry.title, entry.origin, entry.deadline, reason)
    if entry.pause is not None and entry.pause.covers(now):
        reason = f"paused{pause_words(entry.pause, zone_name=entry.zone)}"
        yield DueLine(DueStatus.UNARMED, entry.title, entry.origin, None, reason)
    if isinstance(entry.rule, OnDemandRule | AfterRule):
        return
    waiting = _waiting_since(entry, now)
    if waiting is not None:
        yield DueLine(
            DueStatus.DUE, entry.title, entry.origin, waiting, "the scheduled time was reached"
        )
    coming = next_moment(entry, now)
    if coming is not None and coming.at <= end:
        reason = (
            "an estimate, from the end of the last run"
            if coming.is_estimate
            else "next scheduled time"
        )
        yield DueLine(DueStatus.UPCOMING, entry.title, entry.origin, coming.at, reason)


def _waiting_since(entry: Entry, now: datetime) -> datetime | None:
    if entry.accounted_to is None:
        rule = entry.rule
        return rule.at if isinstance(rule, OnceRule) and rule.at <= now else None
    moment = next(decided(project(entry, entry.accounted_to, now)), None)
    return moment.at if moment else None
