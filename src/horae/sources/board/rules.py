"""The board: the readiness of each open task, and the allowed transitions.

The commands, the page and the dispatcher use the same rules for blocks, times and dependencies, so
they cannot disagree. A dependency on a number that no task has is not met.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from horae.core.actor import API_FIX
from horae.core.entry import Policy, key_time, policy_of
from horae.errors import Exit, HoraeError, ScheduleError
from horae.sources.board.task import TASK_PROPERTIES, Task
from horae.timing.cron import Cron
from horae.timing.duration import IDLE_CAP
from horae.timing.zone import Rfc3339Error, ZoneError, parse_rfc3339, zone

STATUSES: Final = ("backlog", "todo", "in-progress", "review", "blocked", "done", "archived")
CLOSED: Final = frozenset({"done", "archived"})
PRIORITIES: Final = ("critical", "high", "medium", "low")

Value: TypeAlias = "str | int | bool | tuple[str, ...] | tuple[int, ...]"
Members: TypeAlias = "Mapping[str, Collection[str]]"  # of a crew, each with its roles
Changes: TypeAlias = "Mapping[str, Value | None]"  # the new values of fields; None removes one

NOBODY: Final[Members] = MappingProxyType({})
LONGEST_REST: Final = IDLE_CAP  # the longest wait after a failed attempt

_OPEN: Final = frozenset({"todo", "backlog"})
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
# The fields of a claim.
CLAIM: Final = (
    *("claimed_by", "claimed_at", "claim_ttl_secs", "claim_expires_at", "last_progress_at"),
    *("claim_warning_sent_at", "claim_extensions", "last_output_bytes"),
)
_BODY_LINE: Final = re.compile(
    r"^[ \t]*(?:-[ \t]*)?(?:blocked|depends) on:([^\n]*)", re.IGNORECASE | re.MULTILINE
)
_REFERENCE: Final = re.compile(r"#([0-9]{1,10})", re.ASCII)
_LOOSE: Final = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](.*?)(?:([+-]\d\d):?(\d\d))?", re.ASCII)


class TransitionError(HoraeError, code="transition"):
    def __init__(self, before: str, after: str) -> None:
        self.before, self.after = before, after
        may = ", ".join(_MOVES.get(before, ()))
        only = f", only to {may}" if may else ""
        super().__init__(f"a task cannot move from {before} to {after}{only}")


class DependencyError(HoraeError, code="dependency", exit_code=Exit.USAGE):
    def __init__(self, task: int, circle: tuple[int, ...]) -> None:
        self.task, self.circle = task, circle
        way = " -> ".join(f"#{number}" for number in circle)
        super().__init__(f"task #{task} would depend on itself: {way}; remove one dependency")


class TaskReadiness(StrEnum):
    RUNNABLE = "Runnable"
    BLOCKED = "Blocked"
    NEEDS_REVIEW = "NeedsReview"
    NEEDS_ACTION = "NeedsAction"


class Resolution(NamedTuple):
    task: Task
    standing: TaskReadiness
    reason: str = ""


class TaskStatuses(NamedTuple):
    """The status of every task by number; `doubles` has the number of files of shared numbers."""

    statuses: Mapping[int, str]
    doubles: Mapping[int, int]

    @classmethod
    def of(cls, tasks: Iterable[Task], *, archived: Iterable[int] = ()) -> TaskStatuses:
        put_away = dict.fromkeys(archived, "archived")
        # Of several files with one number an open one counts, so that nothing starts too early.
        known = sorted(tasks, key=lambda task: task.status not in CLOSED)
        counts = Counter(task.id for task in known)
        doubles = {number: count for number, count in counts.items() if count > 1}
        return cls(put_away | {task.id: task.status for task in known}, doubles)

    def unmet(self, numbers: Iterable[int]) -> int | None:
        return next((each for each in numbers if self.statuses.get(each) not in CLOSED), None)


def standing(task: Task, ground: TaskStatuses, *, now: datetime, rests: bool = True) -> Resolution:
    reason = _blocking_reason(task, ground, now=now)
    if reason is None and rests and (at := retry_at(task, now=now)):
        reason = f"next attempt at {key_time(at)}: {task.text('attempt_reason') or 'it failed'}"
    if reason:
        return Resolution(task, TaskReadiness.BLOCKED, reason)
    is_runnable = task.status in _RUNNABLE
    how = TaskReadiness.RUNNABLE if is_runnable else TaskReadiness.NEEDS_ACTION
    return Resolution(task, TaskReadiness.NEEDS_REVIEW if task.status == "review" else how)


def open_standing(task: Task, ground: TaskStatuses, *, now: datetime) -> Resolution | None:
    return None if task.status in CLOSED else standing(task, ground, now=now)


def _blocking_reason(task: Task, ground: TaskStatuses, *, now: datetime) -> str | None:
    if task.id in ground.doubles:
        return f"{ground.doubles[task.id]} files have the id {task.id}"
    if said := blocked_text(task):
        return said
    if is_schedule_blocked(task, now=now):
        return f"scheduled for {task.scheduled_for}"
    for line in _BODY_LINE.finditer(task.body):
        numbers = [int(number) for number in _REFERENCE.findall(line[1])]
        if not numbers:
            return "body dependency reference"
        if (unmet := ground.unmet(numbers)) is not None:
            return f"unmet body dependency #{unmet}"
    unmet = ground.unmet(task.depends_on)
    return None if unmet is None else f"unmet dependency #{unmet}"


def blocked_text(task: Task) -> str | None:
    flag = task.flag("blocked")
    legacy = task.text("blocked") if flag is None else None
    said = task.text("block_reason") or legacy or task.text("blocked_on")
    return said or ("blocked" if flag else None)


def is_schedule_blocked(task: Task, *, now: datetime) -> bool:
    at = moment(task.scheduled_for)
    return at is not None and at > now


def retry_at(task: Task, *, now: datetime) -> datetime | None:
    at = moment(task.text("retry_at"))
    # A time after the longest wait is from a clock that was ahead.
    is_near = at is not None and now < at <= now + LONGEST_REST
    return at if is_near and task.number("attempt") and task.status in _OPEN else None


def moment(text: str | None) -> datetime | None:
    """Parse the time in a field; a blank for the T and `-0400` are allowed.

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
    said = {each.key: task.text(each.option) for each in TASK_PROPERTIES}
    props = {key: value for key, value in said.items() if value is not None}
    return policy_of(props, zone_name=task.timezone or "UTC")


def work_policy(task: Task) -> Policy:
    said = task.text("api")
    return policy_of({} if said is None else {"API": said}, zone_name="UTC")


def moves(status: str) -> tuple[str, ...]:
    return _MOVES.get(status, STATUSES)


def transition(task: Task, status: str, *, now: datetime) -> Changes:
    status = status.replace("_", "-")
    if status == task.status:
        return {}
    if status not in moves(task.status):
        raise TransitionError(task.status, status)
    changes: dict[str, Value | None] = {"status": status}
    if status != "blocked":
        changes |= cleared(task, ("blocked", "block_reason", "blocked_on"))
    if status == "done":
        changes["completed"] = key_time(now)
    return changes


def schedule_changes(task: Task, wanted: Changes, *, is_cleared: bool) -> Changes:
    if is_cleared:
        return {"scheduled_for": None, "cron_schedule": None}
    if "cron_schedule" in wanted and task.cron_schedule is None:
        return {**wanted, "cron_last_run": None}  # a new schedule has had no trigger yet
    return wanted


def cleared(task: Task, keys: Iterable[str]) -> dict[str, Value | None]:
    return {key: None for key in keys if key in task.fields}


def find_circle(numbers: Mapping[int, Collection[int]]) -> tuple[int, ...]:
    """Return a cycle of dependencies, from its smallest number back to that; () if there is none.

    >>> find_circle({3: (1,), 1: (2,), 2: (3,)}), find_circle({1: (2,)})
    ((1, 2, 3, 1), ())
    """
    try:
        TopologicalSorter(numbers).prepare()
    except CycleError as error:
        circle = error.args[1][:0:-1]
        first = circle.index(min(circle))
        return (*circle[first:], *circle[: first + 1])
    return ()


def check_depends_on(
    task: int, depends_on: tuple[int, ...], others: Mapping[int, tuple[int, ...]]
) -> None:
    circle = find_circle({**others, task: depends_on})
    if task in circle:
        raise DependencyError(task, circle)


def rank(task: Task) -> int:
    word = task.priority.lower()
    return PRIORITIES.index(word) if word in PRIORITIES else len(PRIORITIES)


def summary(tasks: Iterable[Task]) -> dict[str, int]:
    counts = Counter(task.status for task in tasks)
    return {status: counts.pop(status, 0) for status in STATUSES} | dict(sorted(counts.items()))


class Complaint(NamedTuple):
    task: Task
    field: str
    message: str
    fix: str


def complaints(
    tasks: Collection[Task],
    *,
    now: datetime,
    archived: Iterable[int] = (),
    crew: Members = NOBODY,
) -> list[Complaint]:
    """Return the problems of tasks, by number; *crew* are the members that can get one."""
    ground = TaskStatuses.of(tasks, archived=archived)
    found = [Complaint(task, *each) for task in tasks for each in _odd(task, ground, now, crew)]
    by_number = {task.id: task for task in tasks}
    if circle := find_circle({number: task.depends_on for number, task in by_number.items()}):
        message = f"depends on itself: {' -> '.join(f'#{number}' for number in circle)}"
        fix = "remove one of them from depends_on"
        found.append(Complaint(by_number[circle[0]], "depends_on", message, fix))
    return sorted(found, key=lambda each: (each.task.id, each.message))


def _odd(
    task: Task, ground: TaskStatuses, now: datetime, crew: Members
) -> Iterator[tuple[str, str, str]]:
    if task.status not in STATUSES:
        fix = f"write one of {', '.join(STATUSES)}"
        yield "status", f"status {task.status!r} is not valid", fix
    try:
        work_policy(task)
    except ScheduleError as error:
        yield "api", f"the task cannot be dispatched: {error}", API_FIX
    for key in ("scheduled_for", "cron_last_run"):
        text = task.text(key)
        if text is not None and moment(text) is None:
            fix = "write it like 2026-03-25T09:00:00-04:00"
            yield key, f"{key} {text!r} is not a timestamp and is ignored", fix
    if task.cron_schedule is not None:
        yield from _odd_schedule(task, task.cron_schedule)
    for number in task.depends_on:
        if number not in ground.statuses:
            fix = "add the task, or remove it from depends_on"
            yield "depends_on", f"depends on #{number}, which does not exist", fix
    holder, end = task.text("claimed_by"), moment(task.text("claim_expires_at"))
    if holder is not None and end is not None and end <= now:
        message = f"the claim of {holder} expired at {key_time(end)}"
        yield "claim_expires_at", message, "the task is reassigned automatically"
    if task.status not in CLOSED and (unplaced := unplaced_words(task, crew)):
        field = "assignee" if task.text("assignee") else "roles"
        known = crew if field == "assignee" else _roles_in(crew)
        write = f"write {'one of ' * (len(known) > 1)}{', '.join(known)}, or " if known else ""
        yield field, unplaced, f"{write}remove {field}"


def unplaced_words(task: Task, crew: Members) -> str:
    if not crew or any(fits(task, name, crew) for name in crew):
        return ""
    if name := task.text("assignee"):
        return f"its assignee {name!r} is not a member of the crew ({', '.join(crew)})"
    return f"no member of the crew has one of its roles ({', '.join(task.texts('roles'))})"


def fits(task: Task, member: str, crew: Members) -> bool:
    """Return whether a member may get a task: as its assignee, or by its roles.

    Without `roles`, its tags that are roles of members count. A task without a role is for any
    member, and a member without a role gets any task.
    """
    if (name := task.text("assignee")) is not None:
        return name == member
    roles = set(crew.get(member, ()))
    wanted = set(task.texts("roles")) or set(task.tags) & set(_roles_in(crew))
    return not roles or not wanted or not roles.isdisjoint(wanted)


def _roles_in(crew: Members) -> list[str]:
    return sorted({role for roles in crew.values() for role in roles})


def _odd_schedule(task: Task, crons: str) -> Iterator[tuple[str, str, str]]:
    place, field = task.timezone or "UTC", "timezone"
    try:
        zone(place)
        field = "cron_schedule"
        for part in map(str.strip, crons.split(";")):
            if Cron(part).never:
                yield field, f"cron {part!r} matches no date", "write a date that exists"
        for each in TASK_PROPERTIES:
            field, said = each.option, task.text(each.option)
            policy_of({each.key: said} if said else {}, zone_name=place)
    except (ScheduleError, ZoneError) as error:
        yield field, f"the task cannot be recycled: {error}", "set the schedule again"
