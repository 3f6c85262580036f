"""Dispatch: the assignment of tasks to members, and the fields of a task that it changes.

A claim is written before the run begins, with its expiry: the board shows the member of each task,
and a member that died does not keep it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from horae.core.entry import key_time
from horae.core.receipt import Status, shown
from horae.sources.board import rules
from horae.timing.duration import delay_after

if TYPE_CHECKING:
    from horae.sources.board.task import Task

TTL: Final = timedelta(minutes=30)  # of a claim whose run has no time limit
GRACE: Final = timedelta(minutes=5)  # of a claim after the time limit of its run
_DISPATCHED: Final = frozenset({"todo", "backlog"})
_LONGEST_REASON: Final = 200

Rest: TypeAlias = "Callable[[int], timedelta]"  # the wait after so many failures in a row


def assign(
    line: Sequence[Task], *, free: Sequence[str], crew: rules.Members = rules.NOBODY
) -> list[tuple[Task, str]]:
    """Assign tasks to free members: to the assignee, else to one with a fitting role.

    Each member gets one task; one that is the assignee of another waiting task is left to that.
    """
    named = {task.text("assignee") for task in line}
    members = sorted(dict.fromkeys(free), key=lambda name: name in named)
    given: list[tuple[Task, str]] = []
    for task in line:
        if not members:
            break
        fit = (name for name in members if rules.fits(task, name, crew))
        member = next(fit, None)
        if member is not None:
            members.remove(member)
            given.append((task, member))
    return given


def candidates(
    tasks: Collection[Task], *, now: datetime, archived: Iterable[int] = ()
) -> list[Task]:
    ground = rules.TaskStatuses.of(tasks, archived=archived)
    ready = (task for task in tasks if why_not(task, ground, now=now) is None)
    return sorted(ready, key=lambda task: (rules.rank(task), task.id))


def why_not(
    task: Task, ground: rules.TaskStatuses, *, now: datetime, is_asked: bool = False
) -> str | None:
    """Return why a task is not dispatched, as the end of a sentence; None if it is.

    If *is_asked*, the wait after a failure does not count.
    """
    if holder := task.text("claimed_by"):
        return f"it is claimed by {holder}"
    if task.status not in _DISPATCHED:
        return f"its status is {task.status}"
    if task.is_archived:
        return "the task is archived"
    found = rules.standing(task, ground, now=now, rests=not is_asked)
    return found.reason if found.standing is rules.TaskReadiness.BLOCKED else None


def why_unassigned(
    task: Task, ground: rules.TaskStatuses, *, now: datetime, crew: rules.Members
) -> str:
    return why_not(task, ground, now=now) or rules.unplaced_words(task, crew)


def wakes_at(tasks: Iterable[Task], *, now: datetime) -> datetime | None:
    coming = []
    for task in tasks:
        if task.status in _DISPATCHED:
            coming += [rules.moment(task.scheduled_for), rules.retry_at(task, now=now)]
        elif task.status == "in-progress" and task.text("claimed_by") is not None:
            coming.append(rules.moment(task.text("claim_expires_at")))
    return min((at for at in coming if at is not None and at > now), default=None)


def rest_after(attempt: int) -> timedelta:
    """Return the wait of a task after so many failed attempts in a row.

    >>> [int(rest_after(n).total_seconds()) for n in range(8)]
    [0, 60, 120, 240, 480, 960, 1800, 1800]
    """
    return delay_after(timedelta(0), attempt)


def claim(task: Task, member: str, *, now: datetime, ttl: timedelta = TTL) -> rules.Changes:
    changes: dict[str, rules.Value | None] = {
        **rules.cleared(task, (*rules.CLAIM, "retry_at")),
        "status": "in-progress",
        "claimed_by": member,
        "claimed_at": key_time(now),
        "claim_ttl_secs": int(ttl.total_seconds()),
        "claim_expires_at": key_time(now + ttl),
    }
    if task.text("started") is None:
        changes["started"] = key_time(now)
    return changes


def after_run(
    task: Task,
    outcome: Status,
    *,
    reason: str,
    now: datetime,
    branch: str | None = None,
    rest: Rest = rest_after,
) -> rules.Changes:
    """Return the fields of a task after its run; work left on a branch must be reviewed."""
    if task.status != "in-progress":  # moved meanwhile, perhaps by the member itself
        return rules.cleared(task, rules.CLAIM)
    changes: dict[str, rules.Value | None] = {} if branch is None else {"branch": branch}
    if outcome is Status.LIMITED:  # it is claimed again when the limit ends
        return {"status": "todo", **rules.cleared(task, (*rules.CLAIM, "started")), **changes}
    if outcome not in {Status.DONE, Status.NO_WORK}:
        again_at = now + rest((task.number("attempt") or 0) + 1)
        given = give_back(task, reason=f"{outcome}: {reason}")
        return {**given, "retry_at": key_time(again_at), **changes}
    changes |= rules.cleared(task, (*rules.CLAIM, "attempt", "attempt_reason"))
    if branch is not None or task.text("review_owner") is not None:
        return {"status": "review", **changes}
    return {"status": "done", **changes, "completed": key_time(now)}


def give_back(task: Task, *, reason: str) -> rules.Changes:
    return {
        "status": "todo",
        **rules.cleared(task, (*rules.CLAIM, "started")),
        "attempt": (task.number("attempt") or 0) + 1,
        "attempt_reason": " ".join(reason.split())[:_LONGEST_REASON],
    }


def lapsed(tasks: Iterable[Task], *, now: datetime) -> Mapping[int, rules.Changes]:
    found: dict[int, rules.Changes] = {}
    for task in tasks:
        holder, end = task.text("claimed_by"), rules.moment(task.text("claim_expires_at"))
        # Without an expiry it is a user's claim, which never expires.
        if holder and task.status == "in-progress" and end is not None and end <= now:
            found[task.id] = give_back(task, reason=f"the claim of {holder} expired")
    return found


def prompt(task: Task, *, file: str) -> str:
    parts = [
        f"Your task is #{task.id} of the board: {shown(task.title)}",
        f"It is in {file} and claimed for you until you finish; then its status is updated.",
        "Do not change the fields at the top of the file.",
        task.body.strip(),
    ]
    if attempt := task.number("attempt"):
        why = shown(task.text("attempt_reason") or "the reason is not known")
        parts.append(f"Earlier attempts: {attempt}. Why the last one ended: {why}")
    parts.append(
        "Do this task and nothing else, and report briefly what you did. If there is nothing"
        " left to do, begin your answer with NO-WORK. If the task cannot be done, begin it with"
        " FAILED: and the reason."
    )
    return "\n\n".join(part for part in parts if part)
