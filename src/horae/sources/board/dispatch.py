"""Dispatch: which task goes to which member, and what that writes into the task.

A claim stands in the file before the run begins, with the moment at which it ends, so that
whoever looks at the board sees who has a task, and a holder that died does not keep it.
Everything here is data: the fields to change. Whoever runs members writes them.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.entry import key_time
from horae.core.receipt import Status, shown
from horae.sources.board.rules import (
    TaskReadiness,
    TaskStatuses,
    cleared,
    is_schedule_blocked,
    moment,
    rank,
    standing,
)
from horae.timing.backoff import delay_after

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from horae.sources.board.rules import Changes, Value
    from horae.sources.board.task import Task

TTL: Final = timedelta(minutes=30)  # of a claim that nobody extends
GRACE: Final = timedelta(minutes=5)  # of a claim beyond the wall clock of its run
_DISPATCHED: Final = frozenset({"todo", "backlog"})
_CLAIM: Final = (
    "claimed_by",
    "claimed_at",
    "claim_ttl_secs",
    "claim_expires_at",
    "last_progress_at",
    "claim_warning_sent_at",
    "claim_extensions",
    "last_output_bytes",
)
_LONGEST_REASON: Final = 200


class Assignment(NamedTuple):
    """A task and the member that it goes to."""

    task: Task
    member: str


def dispatch(
    tasks: Collection[Task],
    *,
    free: Sequence[str],
    now: datetime,
    archived: Iterable[int] = (),
    excluded: Collection[str] = (),
) -> list[Assignment]:
    """Return which tasks go to which of the free members, the most urgent first.

    *excluded* are tags of tasks that are not handed out.
    """
    return assign(candidates(tasks, now=now, archived=archived, excluded=excluded), free=free)


def assign(line: Sequence[Task], *, free: Sequence[str]) -> list[Assignment]:
    """Return which tasks of a line go to which of the free members.

    A task with an assignee goes to nobody else; one without goes to the first member for whom
    no task waits by name.
    """
    named = {task.text("assignee") for task in line}
    # Those that are waited for by name come last for what anybody may do.
    members = sorted(dict.fromkeys(free), key=lambda name: name in named)
    given: list[Assignment] = []
    for task in line:
        if not members:
            break
        wanted = task.text("assignee")
        member = members[0] if wanted is None else wanted if wanted in members else None
        if member is not None:
            members.remove(member)
            given.append(Assignment(task, member))
    return given


def candidates(
    tasks: Collection[Task],
    *,
    now: datetime,
    archived: Iterable[int] = (),
    excluded: Collection[str] = (),
) -> list[Task]:
    """Return the tasks that may be handed out, by priority, then by number."""
    ground = TaskStatuses.of(tasks, archived=archived)
    ready = (task for task in tasks if why_not(task, ground, now=now, excluded=excluded) is None)
    return sorted(ready, key=lambda task: (rank(task), task.id))


def why_not(
    task: Task, ground: TaskStatuses, *, now: datetime, excluded: Collection[str] = ()
) -> str | None:
    if task.status not in _DISPATCHED:
        return f"status {task.status} is not dispatchable"
    holder = task.text("claimed_by")
    if holder is not None:
        return f"claimed by {holder}"
    if task.is_archived:
        return "the task is archived"
    tag = next((tag for tag in task.tags if tag in excluded), None)
    if tag is not None:
        return f"tasks with the tag {tag} are not dispatched"
    found = standing(task, ground, now=now)
    return found.reason if found.standing is TaskReadiness.BLOCKED else None


def wakes_at(tasks: Iterable[Task], *, now: datetime) -> datetime | None:
    """Return the first moment at which a task may become free by itself: its time, or its claim's.

    A moment that has come is none: whoever looks now sees it.
    """
    coming = (_coming(task, now) for task in tasks)
    return min((at for at in coming if at is not None and at > now), default=None)


def rest_after(attempt: int) -> timedelta:
    """Return how long a task rests after so many attempts in a row that ended badly.

    >>> [int(rest_after(n).total_seconds()) for n in range(8)]
    [0, 60, 120, 240, 480, 960, 1800, 1800]
    """
    return delay_after(timedelta(0), attempt)


def claim(task: Task, member: str, *, now: datetime, ttl: timedelta = TTL) -> Changes:
    """Return what a claim writes into a task, before the member begins."""
    changes: dict[str, Value | None] = {
        **cleared(task, _CLAIM),
        "status": "in-progress",
        "claimed_by": member,
        "claimed_at": key_time(now),
        "claim_ttl_secs": int(ttl.total_seconds()),
        "claim_expires_at": key_time(now + ttl),
    }
    if task.text("started") is None:
        changes["started"] = key_time(now)
    return changes


def is_claim_of(task: Task, member: str, *, stamps: Collection[str]) -> bool:
    r"""Tell whether a task is claimed by a member, and since one of these moments.

    >>> from horae.sources.board.task import parse
    >>> held = "claimed_by: wren\nclaimed_at: 2026-03-25T09:00:00-04:00\n"
    >>> task = parse(f"---\nid: 7\ntitle: Sow\n{held}---\n").task
    >>> is_claim_of(task, "wren", stamps=["2026-03-25T13:00:00Z"])
    True
    """
    at = moment(task.text("claimed_at"))
    return task.text("claimed_by") == member and at is not None and key_time(at) in stamps


def extend(task: Task, *, now: datetime) -> Changes:
    """Return what a sign of life from the holder writes: the claim holds as long once more."""
    seconds = task.number("claim_ttl_secs")
    ttl = TTL if seconds is None else timedelta(seconds=min(seconds, 10**9))
    return {
        "last_progress_at": key_time(now),
        "claim_expires_at": key_time(now + ttl),
        "claim_extensions": (task.number("claim_extensions") or 0) + 1,
    }


def move(
    task: Task, outcome: Status, *, reason: str, now: datetime, needs_review: bool = False
) -> Changes:
    """Return what the end of a member's run writes into its task.

    Work that was done, or that was found to be done, goes on to review or is done; anything
    else goes back with the attempt and its reason.
    """
    if outcome not in {Status.DONE, Status.NO_WORK}:
        return give_back(task, reason=f"{outcome}: {reason}")
    changes: dict[str, Value | None] = {
        "status": "review" if needs_review else "done",
        **cleared(task, (*_CLAIM, "attempt", "attempt_reason")),
    }
    return changes if needs_review else {**changes, "completed": key_time(now)}


def after_run(
    task: Task, outcome: Status, *, reason: str, now: datetime, branch: str | None = None
) -> Changes:
    """Return what the end of its run writes into the task that was claimed for it.

    Work goes to review if the task names who reviews it, or if it stayed on a branch. Whoever
    moved the task meanwhile is right, be it the member itself: then only the claim goes.
    """
    if task.status != "in-progress":
        return cleared(task, _CLAIM)
    needs_review = branch is not None or task.text("review_owner") is not None
    changes = move(task, outcome, reason=reason, now=now, needs_review=needs_review)
    return changes if branch is None else {**changes, "branch": branch}


def give_back(task: Task, *, reason: str) -> Changes:
    """Return what a task needs to be handed out again, with the attempt and its reason noted."""
    shown = " ".join(reason.split())
    return {
        "status": "todo",
        **cleared(task, (*_CLAIM, "started")),
        "attempt": (task.number("attempt") or 0) + 1,
        "attempt_reason": shown[:_LONGEST_REASON],
    }


def lapsed(
    tasks: Iterable[Task], *, now: datetime, at_work: Collection[int] | None = None
) -> Mapping[int, Changes]:
    """Return the claims to take back, by task, each with what that writes.

    A claim is over when its time is, or when nobody works on the task any more: *at_work*
    are the tasks that somebody does work on, if that is known.
    """
    found: dict[int, Changes] = {}
    for task in tasks:
        holder = task.text("claimed_by")
        if holder is None or task.status != "in-progress":
            continue
        end = moment(task.text("claim_expires_at"))
        # Without an end it is a person's claim, and a person need not say that they live.
        if end is not None and end <= now:
            found[task.id] = give_back(task, reason=f"the claim of {holder} expired")
        elif end is not None and at_work is not None and task.id not in at_work:
            found[task.id] = give_back(task, reason=f"{holder} stopped working on the task")
    return found


def prompt(task: Task, *, file: str) -> str:
    """Return what a member is told about the task that it has; *file* is where it stands."""
    parts = [
        f"Your task is #{task.id} of the board: {shown(task.title)}",
        f"It is in {file} and claimed for you until you finish; then its status is updated.",
        "Do not change the fields at the top of the file.",
        task.body.strip(),
    ]
    attempt = task.number("attempt")
    if attempt:
        why = shown(task.text("attempt_reason") or "the reason is not known")
        parts.append(f"Earlier attempts: {attempt}. Why the last one ended: {why}")
    parts.append(
        "Do this task and nothing else, and report briefly what you did. If there is nothing"
        " left to do, begin your answer with NO-WORK. If the task cannot be done, begin it with"
        " FAILED: and the reason."
    )
    return "\n\n".join(part for part in parts if part)


def _coming(task: Task, now: datetime) -> datetime | None:
    """Return when something about a task is over by itself, if anything is."""
    if task.status in _DISPATCHED and is_schedule_blocked(task, now=now):
        return moment(task.scheduled_for)
    is_claimed = task.status == "in-progress" and task.text("claimed_by") is not None
    return moment(task.text("claim_expires_at")) if is_claimed else None
