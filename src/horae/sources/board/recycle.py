"""The recycler: what becomes of a task that recurs, once it is done.

A task comes back when it is done and one of its triggers has passed since it last came back.
So a trigger that passes while the task is not done waits for it, and however many have passed
bring it back once: `scheduled_for` is the next occurrence from now, and `cron_last_run` is now.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypedDict

from horae.core.entry import Entry, OnceRule, Origin, Work, cron_rule, key_time
from horae.core.project import project
from horae.errors import ScheduleError
from horae.sources.board.rules import cleared, moment, task_policy
from horae.timing.cron_count import count_any
from horae.timing.rfc3339 import parse_rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from horae.core.entry import Pause
    from horae.core.project import Moment
    from horae.sources.board.rules import Changes
    from horae.sources.board.task import Task
    from horae.timing.cron import Cron

RECYCLED: Final = "task_recycled"  # what its event is called

# How far back a trigger may lie for a task that has never come back.
LOOK_BACK: Final = timedelta(days=1)
# How long after a trigger somebody looks whether it brought the task back.
NET: Final = timedelta(minutes=1)
_TINY: Final = timedelta(microseconds=1)
_FAR: Final = timedelta(days=366 * 50)
_DELAY: Final = "delay:"

# What belongs to one round of a task and not to the task.
TRANSIENT: Final = (
    "claimed_by",
    "branch",
    "commit",
    "worktree_path",
    "blocked_on",
    "review_owner",
    "artifacts",
    "next_action",
    "blocked",
    "block_reason",
    "claimed_at",
    "claim_ttl_secs",
    "claim_expires_at",
    "last_progress_at",
    "claim_warning_sent_at",
    "claim_extensions",
    "last_output_bytes",
    "attempt",
    "attempt_reason",
    "review_disposition",
    "review_feedback",
    "reviewed_by",
    "reviewed_at",
    "review_blockers",
    "changed_paths",
    "tests_run",
    "tests_passed",
    "test_results",
    "outcome",
    "execution_owner",
    "started",
    "completed",
)


def triggers_of(task: Task, now: datetime, *, pause: Pause | None = None) -> Iterator[Moment]:
    """Yield the triggers of a task that are still to come; none while it is paused."""
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
    """A task that comes back: what to write, and which triggers that answers."""

    task: int
    schedule: str
    changes: Changes
    at: datetime
    next_at: datetime
    trigger_at: datetime  # the first that had passed
    triggers: int  # how many had passed; all but one are coalesced into it

    @property
    def words(self) -> str:
        """What happened, as its receipt says it."""
        return (
            f"recycled task #{self.task} (schedule: {self.schedule}) back to todo"
            f" at {key_time(self.at)}; scheduled for {key_time(self.next_at)}"
        )


@dataclass(frozen=True, slots=True)
class Stays:
    """A task that does not come back now, and why."""

    reason: str


class RecycledEvent(TypedDict):
    """A line of `events.jsonl`; `ts` counts seconds."""

    event: str
    task: str
    reason: str
    ts: int


NOT_DONE: Final = "not done yet; the task is recycled when it is done"


def recycle(
    task: Task, *, now: datetime, planned_at: datetime | None = None, is_asked: bool = False
) -> Recycled | Stays:
    """Return how a task comes back now, or why it stays as it is.

    *planned_at* is a trigger that is known to have passed; it counts for a task that does not
    say when it last came back. *is_asked*: a person wants it back, whether or not one has.
    """
    if task.cron_schedule is None:
        return Stays("the task no longer recurs")
    if task.is_archived:
        return Stays("the task is archived")
    if task.status != "done":
        return Stays(_why_not_done(task, planned_at))
    try:
        crons = cron_rule(task.cron_schedule, zone_name=task.timezone or "UTC").crons
        policy = task_policy(task)
    except ScheduleError as error:
        return Stays(f"the schedule cannot be read: {error}")
    since, _ = policy.clip(_reference(task, now=now, planned_at=planned_at), now)
    gate = moment(task.scheduled_for) if moment(task.cron_last_run) is None else None
    trigger = _first_after(crons, since)
    if gate is not None and gate <= now and (trigger is None or gate < trigger):
        # The time that it was set for is what it was done for: that one has passed, too.
        trigger = gate
    if trigger is None or (trigger > now and not is_asked):
        coming = (
            "there is no next one" if trigger is None else f"the next one is {key_time(trigger)}"
        )
        return Stays(f"no trigger since the last recycle; {coming}")
    coming_at = _first_after(crons, policy.clip(now, now)[0])
    if coming_at is None or not policy.allows(coming_at):
        return Stays("the schedule has ended: no occurrence is left")
    return _recycled(task, crons, now=now, since=since, trigger=trigger, coming_at=coming_at)


def first_trigger(task: Task, *, written_at: datetime) -> datetime | None:
    """Return the first trigger that a done task has not come back for, past or to come.

    A task that neither came back before nor had a time to wait for is looked at as of
    *written_at*, when it was found to be done.
    """
    if task.cron_schedule is None:
        return None
    crons = cron_rule(task.cron_schedule, zone_name=task.timezone or "UTC").crons
    last = moment(task.cron_last_run)
    gate = moment(task.scheduled_for)
    if last is None and gate is not None:
        return gate
    since = written_at - LOOK_BACK if last is None else last
    return _first_after(crons, task_policy(task).clip(since, since)[0])


def back_address(address: str) -> str:
    """Return where the trigger stands that a done task has not come back for.

    >>> back_address("task:7")
    'task:7:back'
    """
    return f"{address}:back"


def back_rule(task: Task, trigger: datetime, *, now: datetime) -> OnceRule:
    """Return when a task that is done now comes back for a trigger, due until that has a receipt.

    That is at the trigger, which may have passed. One to come that the expression plans brings
    the task back by itself: then this is a net, a little later.
    """
    is_net = trigger > now and is_trigger(task, trigger)
    return OnceRule(trigger + NET if is_net else trigger, key_time(trigger))


def is_net(entry: Entry) -> bool:
    """Tell whether an entry only looks after a trigger that another one plans.

    Whoever shows what comes leaves it out: the same moment would stand there twice.
    """
    rule = entry.rule
    if entry.work is not Work.RECYCLE or not isinstance(rule, OnceRule):
        return False
    return rule.delay is not None and rule.delay != key_time(rule.at)


def trigger_of(key: str, planned_at: datetime) -> datetime:
    """Return the trigger that a receipt is about.

    >>> at = datetime(2026, 3, 30, 9, 1, tzinfo=UTC)
    >>> str(trigger_of("delay:2026-03-30T09:00:00Z", at))
    '2026-03-30 09:00:00+00:00'
    """
    named = moment(key.removeprefix(_DELAY)) if key.startswith(_DELAY) else None
    return planned_at if named is None else named


def is_trigger(task: Task, at: datetime) -> bool:
    """Tell whether a recurring task has a trigger at this very moment."""
    if task.cron_schedule is None:
        return False
    crons = cron_rule(task.cron_schedule, zone_name=task.timezone or "UTC").crons
    return _first_after(crons, at.astimezone(UTC) - _TINY) == at


def event_of(words: str) -> RecycledEvent | None:
    """Return the event that goes with a receipt, from what the receipt says.

    >>> event_of(
    ...     "recycled task #42 (schedule: 0 9 * * MON) back to todo at 2026-03-30T09:00:05Z;"
    ...     " scheduled for 2026-04-06T09:00:00Z"
    ... )
    {'event': 'task_recycled', 'task': '#42', 'reason': '0 9 * * MON', 'ts': 1774861205}
    """
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


def _recycled(
    task: Task,
    crons: Sequence[Cron],
    *,
    now: datetime,
    since: datetime,
    trigger: datetime,
    coming_at: datetime,
) -> Recycled:
    changes: Changes = {
        "status": "todo",
        "scheduled_for": key_time(coming_at),
        "cron_last_run": key_time(now),
        **cleared(task, TRANSIENT),
    }
    return Recycled(
        task.id,
        task.cron_schedule or "",
        changes,
        now,
        coming_at,
        trigger,
        max(1, count_any(tuple(crons), since, now)),
    )


def _reference(task: Task, *, now: datetime, planned_at: datetime | None) -> datetime:
    """Return the moment after which a trigger counts."""
    last = moment(task.cron_last_run)
    if last is not None and last <= now:
        return last
    # A stamp in the future is from a clock that ran ahead: it must not silence the task.
    since = now - LOOK_BACK if last is None else now
    return since if planned_at is None else min(since, planned_at - _TINY)


def _why_not_done(task: Task, planned_at: datetime | None) -> str:
    last = moment(task.cron_last_run)
    if last is not None and planned_at is not None and last >= planned_at:
        return f"already recycled at {key_time(last)}"
    return NOT_DONE


def _first_after(crons: Sequence[Cron], after: datetime) -> datetime | None:
    """Return the first moment after another that any of the expressions names."""
    found = (cron.next(after) for cron in crons)
    # In UTC: of one zone, Python compares only what the wall shows.
    return min((at.astimezone(UTC) for at in found if at is not None), default=None)
