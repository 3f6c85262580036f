"""The recycler: moves a done task that recurs back to todo.

A task is recycled when it is done and one of its triggers has passed since it was last recycled. A
trigger that passes while the task is not done waits for that, and any number of them recycle it
once: `scheduled_for` becomes the next occurrence, and `cron_last_run` is now.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from horae.core.entry import Entry, OnceRule, Origin, Pause, cron_rule, key_time
from horae.core.project import TINY, Moment, project
from horae.errors import ScheduleError
from horae.sources.board.rules import CLAIM, Changes, cleared, moment, task_policy
from horae.timing.cron import Cron, count_any
from horae.timing.zone import parse_rfc3339

if TYPE_CHECKING:
    from horae.sources.board.task import Task

RECYCLED: Final = "task_recycled"  # the kind of its event

# How old a trigger may be for a task that was never recycled.
LOOK_BACK: Final = timedelta(days=1)
# The delay of the check after a trigger.
NET: Final = timedelta(minutes=1)
_FAR: Final = timedelta(days=366 * 50)

# The fields of one round of a task.
TRANSIENT: Final = (
    *(*CLAIM, "branch", "commit", "worktree_path", "blocked_on", "review_owner", "artifacts"),
    *("next_action", "blocked", "block_reason", "attempt", "attempt_reason", "review_disposition"),
    *("review_feedback", "reviewed_by", "reviewed_at", "review_blockers", "changed_paths"),
    *("tests_run", "tests_passed", "test_results", "outcome", "execution_owner", "started"),
    "completed",
)


def _crons(task: Task) -> Sequence[Cron]:
    return cron_rule(task.cron_schedule or "", zone_name=task.timezone or "UTC").crons


def triggers_of(task: Task, now: datetime, *, pause: Pause | None = None) -> Iterator[Moment]:
    place = task.timezone or "UTC"
    if task.cron_schedule is None:
        return
    try:
        rule = cron_rule(task.cron_schedule, zone_name=place)
        policy = task_policy(task)
    except ScheduleError:
        return
    entry = Entry("", Origin("", 0), task.title, rule, policy=policy, zone=place, pause=pause)
    yield from project(entry, now, now + _FAR)


@dataclass(frozen=True, slots=True)
class Recycled:
    task: int
    schedule: str
    changes: Changes
    at: datetime
    next_at: datetime
    trigger_at: datetime  # the first that has passed
    triggers: int  # number of triggers that have passed; all but one are coalesced

    @property
    def words(self) -> str:
        """The reason of its receipt, which `event_of` parses."""
        return (
            f"recycled task #{self.task} (schedule: {self.schedule}) back to todo"
            f" at {key_time(self.at)}; scheduled for {key_time(self.next_at)}"
        )


class Stays(NamedTuple):
    reason: str
    changes: Changes = MappingProxyType({})


NOT_DONE: Final = "not done yet; the task is recycled when it is done"


def recycle(
    task: Task, *, now: datetime, planned_at: datetime | None = None, is_asked: bool = False
) -> Recycled | Stays:
    """Return how a task is recycled now, or why it stays.

    *planned_at* is a trigger that has passed; it counts for a task without `cron_last_run`. If
    *is_asked*, the task is recycled before its trigger, too.
    """
    last = moment(task.cron_last_run)
    if task.cron_schedule is None:
        return Stays("the task no longer recurs")
    if task.is_archived:
        return Stays("the task is archived")
    if task.status != "done":
        is_back = last and planned_at and last >= planned_at
        return Stays(f"already recycled at {key_time(last)}" if last and is_back else NOT_DONE)
    try:
        crons = _crons(task)
        policy = task_policy(task)
    except ScheduleError as error:
        return Stays(f"the schedule cannot be read: {error}")
    if last is not None and last <= now:
        since = last
    else:
        # A timestamp in the future is from a clock that was ahead: it must not block the task.
        since = now - LOOK_BACK if last is None else now
        since = since if planned_at is None else min(since, planned_at - TINY)
    since, _ = policy.clip(since, now)
    gate = moment(task.scheduled_for) if last is None else None
    trigger = _first_after(crons, since)
    if gate is not None and gate <= now and (trigger is None or gate < trigger):
        # The task was done for the time in `scheduled_for`, so that has passed, too.
        trigger = gate
    if trigger is None or (trigger > now and not is_asked):
        coming = f"the next one is {key_time(trigger)}" if trigger else "there is no next one"
        return Stays(f"no occurrence since the last recycle; {coming}")
    coming_at = _first_after(crons, policy.clip(now, now)[0])
    if coming_at is None or not policy.allows(coming_at):
        return Stays("the schedule has ended: no occurrence is left")
    changes: Changes = {
        "status": "todo",
        "scheduled_for": key_time(coming_at),
        "cron_last_run": key_time(now),
        **cleared(task, TRANSIENT),
    }
    count = max(1, count_any(tuple(crons), since, now))
    return Recycled(task.id, task.cron_schedule, changes, now, coming_at, trigger, count)


def first_trigger(task: Task, *, written_at: datetime) -> datetime | None:
    """Return the first trigger, past or future, since a done task was last recycled."""
    if task.cron_schedule is None:
        return None
    crons, last, gate = _crons(task), moment(task.cron_last_run), moment(task.scheduled_for)
    if last is None and gate is not None:
        return gate
    since = written_at - LOOK_BACK if last is None else last
    return _first_after(crons, task_policy(task).clip(since, since)[0])


def back_rule(task: Task, trigger: datetime, *, now: datetime) -> OnceRule:
    """Return when a done task is recycled for a trigger; a future one has its own entry first."""
    is_net = trigger > now and is_trigger(task, trigger)
    return OnceRule(trigger + NET if is_net else trigger, key_time(trigger))


def trigger_of(key: str, planned_at: datetime) -> datetime:
    named = moment(key.removeprefix("delay:")) if key.startswith("delay:") else None
    return planned_at if named is None else named


def is_trigger(task: Task, at: datetime) -> bool:
    if task.cron_schedule is None:
        return False
    return _first_after(_crons(task), at.astimezone(UTC) - TINY) == at


def event_of(words: str) -> dict[str, Any] | None:
    """Return the line of `events.jsonl` for the reason of a receipt; `ts` is in seconds."""
    said = _WORDS.fullmatch(words)
    if said is None:
        return None
    at = int(parse_rfc3339(said["at"]).timestamp())
    return {"event": RECYCLED, "task": said["task"], "reason": said["cron"], "ts": at}


_WORDS: Final = re.compile(
    r"recycled task (?P<task>#[0-9]+) \(schedule: (?P<cron>.*)\) back to todo"
    r" at (?P<at>[0-9TZ:-]+); scheduled for [0-9TZ:-]+",
    re.ASCII | re.DOTALL,
)


def _first_after(crons: Sequence[Cron], after: datetime) -> datetime | None:
    found = (cron.next(after) for cron in crons)
    # In UTC: in one zone, Python compares local times and ignores the fold.
    return min((at.astimezone(UTC) for at in found if at is not None), default=None)
