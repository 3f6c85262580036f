"""The board: how each open task stands, and which moves it may make.

One reading of a task's blocks, its time and its dependencies serves whoever shows the board
and whoever hands its tasks out, so that the two cannot disagree. A number that no task has is
a dependency that is not met.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from horae.core.entry import key_time, policy_of
from horae.core.scope import API_FIX
from horae.errors import Exit, HoraeError, ScheduleError
from horae.sources.board.task import TASK_PROPERTIES
from horae.timing.cron import Cron
from horae.timing.rfc3339 import Rfc3339Error, parse_rfc3339
from horae.timing.zone import ZoneError, zone

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from horae.core.entry import Policy
    from horae.sources.board.task import Task

STATUSES: Final = ("backlog", "todo", "in-progress", "review", "blocked", "done", "archived")
CLOSED: Final = frozenset({"done", "archived"})
PRIORITIES: Final = ("critical", "high", "medium", "low")

Value: TypeAlias = "str | int | bool | tuple[str, ...] | tuple[int, ...]"
Changes: TypeAlias = "Mapping[str, Value | None]"  # fields with their new values; None clears one

_RUNNABLE: Final = frozenset({"todo", "backlog", "in-progress", "runnable"})
_MOVES: Final[Mapping[str, tuple[str, ...]]] = {
    "backlog": ("todo", "archived"),
    "todo": ("backlog", "in-progress", "blocked", "archived"),
    "in-progress": ("todo", "review", "blocked"),
    "review": ("in-progress", "blocked", "done", "archived"),
    "blocked": ("todo", "in-progress", "archived"),
    "done": ("archived",),
    "archived": (),
}
_BLOCKS: Final = ("blocked", "block_reason", "blocked_on")
_BODY_LINE: Final = re.compile(
    r"^[ \t]*(?:-[ \t]*)?(?:blocked|depends) on:([^\n]*)", re.IGNORECASE | re.MULTILINE
)
_REFERENCE: Final = re.compile(r"#([0-9]{1,10})", re.ASCII)
_LOOSE: Final = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](.*?)(?:([+-]\d\d):?(\d\d))?", re.ASCII)


class TransitionError(HoraeError):
    """A move that a task may not make."""

    code = "transition"

    def __init__(self, before: str, after: str) -> None:
        self.before = before
        self.after = after
        may = ", ".join(_MOVES.get(before, ()))
        only = f", only to {may}" if may else ""
        super().__init__(f"a task cannot move from {before} to {after}{only}")


class DependencyError(HoraeError):
    """A dependency that would be in its own way."""

    code = "dependency"
    exit_code = Exit.USAGE

    def __init__(self, task: int, circle: tuple[int, ...]) -> None:
        self.task = task
        self.circle = circle
        way = " -> ".join(f"#{number}" for number in circle)
        super().__init__(f"task #{task} would depend on itself: {way}; remove one dependency")


class TaskReadiness(StrEnum):
    """What can be done about an open task."""

    RUNNABLE = "Runnable"
    BLOCKED = "Blocked"
    NEEDS_REVIEW = "NeedsReview"
    NEEDS_ACTION = "NeedsAction"


class Resolution(NamedTuple):
    """How one task stands, and what is in its way."""

    task: Task
    standing: TaskReadiness
    reason: str = ""


class TaskStatuses(NamedTuple):
    """What tasks depend on: the status of every task, by its number.

    `doubles` are the numbers that several files have, with how many: nobody can tell which of
    them is meant.
    """

    statuses: Mapping[int, str]
    doubles: Mapping[int, int]

    @classmethod
    def of(cls, tasks: Iterable[Task], *, archived: Iterable[int] = ()) -> TaskStatuses:
        """Return the ground of a board; *archived* are the tasks that were put away."""
        put_away = dict.fromkeys(archived, "archived")
        # Of several with one number an open one counts: nothing begins too early for it.
        known = sorted(tasks, key=lambda task: task.status not in CLOSED)
        counts = Counter(task.id for task in known)
        doubles = {number: count for number, count in counts.items() if count > 1}
        return cls(put_away | {task.id: task.status for task in known}, doubles)

    def is_met(self, number: int) -> bool:
        return self.statuses.get(number) in CLOSED


def resolve(
    tasks: Collection[Task], *, now: datetime, archived: Iterable[int] = ()
) -> list[Resolution]:
    """Return how every open task stands, in the order of their numbers."""
    ground = TaskStatuses.of(tasks, archived=archived)
    still_open = (task for task in tasks if task.status not in CLOSED)
    return [standing(task, ground, now=now) for task in sorted(still_open, key=_number)]


def standing(task: Task, ground: TaskStatuses, *, now: datetime) -> Resolution:
    reason = blocking_reason(task, ground, now=now)
    if reason is not None:
        return Resolution(task, TaskReadiness.BLOCKED, reason)
    if task.status == "review":
        return Resolution(task, TaskReadiness.NEEDS_REVIEW)
    if task.status in _RUNNABLE:
        return Resolution(task, TaskReadiness.RUNNABLE)
    return Resolution(task, TaskReadiness.NEEDS_ACTION)


def blocking_reason(task: Task, ground: TaskStatuses, *, now: datetime) -> str | None:
    """Return the first thing that is in a task's way, if anything is."""
    if task.id in ground.doubles:
        return f"{ground.doubles[task.id]} files have the id {task.id}"
    said = blocked_text(task)
    if said is not None:
        return said
    if is_schedule_blocked(task, now=now):
        return f"scheduled for {task.scheduled_for}"
    return _body_reason(task, ground) or _dependency_reason(task, ground)


def blocked_text(task: Task) -> str | None:
    """Return why somebody has blocked a task, if so; a block without a reason says only that."""
    flag = task.flag("blocked")
    legacy = task.text("blocked") if flag is None else None
    said = task.text("block_reason") or legacy or task.text("blocked_on")
    return said or ("blocked" if flag else None)


def is_schedule_blocked(task: Task, *, now: datetime) -> bool:
    """Tell whether a task's time is still to come; one without a time is never blocked by it."""
    at = moment(task.scheduled_for)
    return at is not None and at > now


def moment(text: str | None) -> datetime | None:
    """Return the moment that a field names; None if it names none.

    People and tools write an offset without its colon, or a blank for the T.

    >>> str(moment("2999-04-10 19:26:40-0400"))
    '2999-04-10 19:26:40-04:00'
    """
    loose = _LOOSE.fullmatch(text.strip()) if text else None
    if loose is None:
        return None
    date, time, hours, minutes = loose.groups()
    try:
        return parse_rfc3339(f"{date}T{time}{hours}:{minutes}" if hours else f"{date}T{time}")
    except Rfc3339Error:
        return None


def task_policy(task: Task) -> Policy:
    """Return how a recurring task wants to be kept; raises ScheduleError if that is not clear."""
    said = {each.key: task.text(each.option) for each in TASK_PROPERTIES}
    props = {key: value for key, value in said.items() if value is not None}
    return policy_of(props, zone_name=task.timezone or "UTC")


def work_policy(task: Task) -> Policy:
    """Return how the run of a task that is handed out is kept; raises ScheduleError."""
    said = task.text("api")
    return policy_of({} if said is None else {"API": said}, zone_name="UTC")


def transition(task: Task, status: str, *, now: datetime) -> Changes:
    """Return the fields that a move to another status changes; to stay is always allowed."""
    status = status.replace("_", "-")
    if status == task.status:
        return {}
    if status not in _MOVES.get(task.status, STATUSES):
        raise TransitionError(task.status, status)
    changes: dict[str, Value | None] = {"status": status}
    if status != "blocked":
        changes |= cleared(task, _BLOCKS)
    if status == "done":
        changes["completed"] = key_time(now)
    return changes


def cleared(task: Task, keys: Iterable[str]) -> dict[str, Value | None]:
    """Return the change that takes away those of the fields that the task has."""
    return {key: None for key in keys if key in task.fields}


def find_circle(numbers: Mapping[int, tuple[int, ...]], start: int) -> tuple[int, ...]:
    """Return the way on which a task depends on itself, from it back to it; () if there is none.

    >>> find_circle({1: (2,), 2: (3, 1), 3: ()}, 1)
    (1, 2, 1)
    """
    before: dict[int, int] = {}
    line = [start]
    while line:
        here = line.pop()
        for number in numbers.get(here, ()):
            if number == start:
                way = [start, here]
                while way[-1] != start:
                    way.append(before[way[-1]])
                return tuple(reversed(way))
            if number not in before:
                before[number] = here
                line.append(number)
    return ()


def check_depends_on(
    task: int, depends_on: tuple[int, ...], others: Mapping[int, tuple[int, ...]]
) -> None:
    """Raise DependencyError if a task that depends on these would wait for itself."""
    circle = find_circle({**others, task: depends_on}, task)
    if circle:
        raise DependencyError(task, circle)


def archivable(tasks: Iterable[Task], *, now: datetime, after: timedelta) -> list[Task]:
    """Return the tasks that have been done so long that they can be put away.

    One that recurs never is, however long it waits: it comes back.
    """
    done = (task for task in tasks if task.status == "done" and task.cron_schedule is None)
    return [task for task in done if _has_rested(task, now=now, after=after)]


def rank(task: Task) -> int:
    """Return a task's place by its priority; the most urgent is 0."""
    word = task.priority.lower()
    return PRIORITIES.index(word) if word in PRIORITIES else len(PRIORITIES)


def summary(tasks: Iterable[Task]) -> dict[str, int]:
    """Return how many tasks have each status: the seven, then those that are no status of ours."""
    counts = Counter(task.status for task in tasks)
    return {status: counts.pop(status, 0) for status in STATUSES} | dict(sorted(counts.items()))


class Complaint(NamedTuple):
    """Something about a task that keeps it from what was meant, and what to do about it.

    `field` is where that stands.
    """

    task: Task
    field: str
    message: str
    fix: str


def complaints(
    tasks: Collection[Task],
    *,
    now: datetime,
    archived: Iterable[int] = (),
    crew: Sequence[str] = (),
) -> list[Complaint]:
    """Return what is wrong with the tasks of a board, in the order of their numbers.

    *crew* are the members that tasks can go to, if that is known.
    """
    ground = TaskStatuses.of(tasks, archived=archived)
    found = [
        complaint
        for task in tasks
        for complaint in (
            *_odd_words(task),
            *_odd_api(task),
            *_odd_times(task),
            *_odd_dependencies(task, ground),
            *_odd_claim(task, now),
            *_odd_assignee(task, crew),
        )
    ]
    by_number = {task.id: task for task in tasks}
    for circle in circles({number: task.depends_on for number, task in by_number.items()}):
        way = " -> ".join(f"#{number}" for number in circle)
        fix = "remove one of them from depends_on"
        message = f"depends on itself: {way}"
        found.append(Complaint(by_number[circle[0]], "depends_on", message, fix))
    return sorted(found, key=lambda each: (each.task.id, each.message))


def circles(numbers: Mapping[int, tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return ways on which tasks wait for themselves; none is returned if there is none.

    >>> circles({1: (2,), 2: (3, 1), 3: (), 4: (1,), 5: (5,)})
    [(1, 2, 1), (5, 5)]
    """
    left = _after_peeling({number: set(deps) & numbers.keys() for number, deps in numbers.items()})
    found: list[tuple[int, ...]] = []
    seen: set[int] = set()
    for start in sorted(left):
        way: dict[int, None] = {}
        here = start
        # Each of those that are left waits for one that is left: the way never ends.
        while here not in seen and here not in way:
            way[here] = None
            here = min(left[here])
        if here in way:
            circle = [*way][[*way].index(here) :]
            first = circle.index(min(circle))
            found.append((*circle[first:], *circle[: first + 1]))
        seen.update(way)
    return found


def _after_peeling(waits: dict[int, set[int]]) -> dict[int, set[int]]:
    """Return what is left once everything that waits for nothing is gone, again and again."""
    waiting_for: dict[int, list[int]] = {}
    for number, others in waits.items():
        for other in others:
            waiting_for.setdefault(other, []).append(number)
    line = [number for number, others in waits.items() if not others]
    while line:
        gone = line.pop()
        del waits[gone]
        for number in waiting_for.get(gone, ()):
            waits[number].discard(gone)
            if not waits[number]:
                line.append(number)
    return waits


def _odd_words(task: Task) -> Iterator[Complaint]:
    if task.status not in STATUSES:
        fix = f"write one of {', '.join(STATUSES)}"
        yield Complaint(task, "status", f"status {task.status!r} is not valid", fix)


def _odd_api(task: Task) -> Iterator[Complaint]:
    try:
        work_policy(task)
    except ScheduleError as error:
        yield Complaint(task, "api", f"the task cannot be dispatched: {error}", API_FIX)


def _odd_times(task: Task) -> Iterator[Complaint]:
    for key in ("scheduled_for", "cron_last_run"):
        text = task.text(key)
        if text is not None and moment(text) is None:
            fix = "write it like 2026-03-25T09:00:00-04:00"
            yield Complaint(task, key, f"{key} {text!r} is not a timestamp and is ignored", fix)
    if task.cron_schedule is None:
        return
    field = "timezone"
    try:
        zone(task.timezone or "UTC")
        field = "cron_schedule"
        for part in task.cron_schedule.split(";"):
            if Cron(part.strip()).never:
                fix = "write a date that exists"
                yield Complaint(task, field, f"cron {part.strip()!r} matches no date", fix)
        for each in TASK_PROPERTIES:
            field, said = each.option, task.text(each.option)
            policy_of({each.key: said} if said else {}, zone_name=task.timezone or "UTC")
    except (ScheduleError, ZoneError) as error:
        message = f"the task cannot be recycled: {error}"
        yield Complaint(task, field, message, "set the schedule again")


def _odd_dependencies(task: Task, ground: TaskStatuses) -> Iterator[Complaint]:
    for number in task.depends_on:
        if number not in ground.statuses:
            fix = "add the task, or remove it from depends_on"
            message = f"depends on #{number}, which does not exist"
            yield Complaint(task, "depends_on", message, fix)


def _odd_claim(task: Task, now: datetime) -> Iterator[Complaint]:
    end = moment(task.text("claim_expires_at"))
    holder = task.text("claimed_by")
    if holder is not None and end is not None and end <= now:
        fix = "the task is reassigned automatically"
        message = f"the claim of {holder} expired at {key_time(end)}"
        yield Complaint(task, "claim_expires_at", message, fix)


def _odd_assignee(task: Task, crew: Sequence[str]) -> Iterator[Complaint]:
    name = task.text("assignee")
    if crew and name and name not in crew and task.status not in CLOSED:
        message = f"is assigned to {name!r}, who is not a member of the crew"
        known = f"one of {', '.join(crew)}" if len(crew) > 1 else crew[0]
        fix = f"write {known}, or remove assignee"
        yield Complaint(task, "assignee", message, fix)


def _body_reason(task: Task, ground: TaskStatuses) -> str | None:
    for line in _BODY_LINE.finditer(task.body):
        numbers = [int(number) for number in _REFERENCE.findall(line[1])]
        if not numbers:
            return "body dependency reference"
        unmet = next((number for number in numbers if not ground.is_met(number)), None)
        if unmet is not None:
            return f"unmet body dependency #{unmet}"
    return None


def _dependency_reason(task: Task, ground: TaskStatuses) -> str | None:
    unmet = next((number for number in task.depends_on if not ground.is_met(number)), None)
    return None if unmet is None else f"unmet dependency #{unmet}"


def _has_rested(task: Task, *, now: datetime, after: timedelta) -> bool:
    completed = moment(task.text("completed"))
    return completed is not None and now - completed.astimezone(UTC) >= after


def _number(task: Task) -> int:
    return task.id
