"""`task` and `board`: the Markdown tasks of a plan root, one by one and all together."""

from __future__ import annotations

import json
import os.path
from enum import StrEnum
from functools import wraps
from heapq import merge
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from horae.cli.connection import record_edits
from horae.cli.group import SharedGroup
from horae.cli.known import Ledgers
from horae.cli.moments import parse_moment
from horae.cli.options import at_option, root_option
from horae.cli.output import Form, Output, echo, form_options, print_json, print_line
from horae.config import load
from horae.core.clock import SystemClock
from horae.core.entry import cron_rule, key_time, policy_of
from horae.core.text import moment_text
from horae.errors import Exit, HoraeError, ScheduleError
from horae.sources.board.recycle import Recycled, event_of, recycle, triggers_of
from horae.sources.board.rules import (
    CLOSED,
    STATUSES,
    Resolution,
    TaskStatuses,
    check_depends_on,
    complaints,
    is_schedule_blocked,
    moment,
    standing,
    summary,
    transition,
)
from horae.sources.board.source import EventLog, events_path
from horae.sources.board.task import FIELDS, LARGEST_ID, TASK_PROPERTIES, TaskFieldKind
from horae.sources.board.tasks import (
    Board,
    Card,
    TaskEditError,
    TaskMissingError,
    card_data,
    find_tasks,
)
from horae.sources.crew.source import member_names
from horae.timing.rfc3339 import Rfc3339Error, parse_rfc3339
from horae.timing.zone import zone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from horae.core.entry import Pause, PolicyProperty
    from horae.sources.board.rules import Changes, Value
    from horae.sources.board.task import Task
    from horae.sources.board.tasks import Cards

    _ParamType = click.ParamType[int]
else:
    _ParamType = click.ParamType  # before click 8.4 it takes no argument

_LABELS: Final = {"standing": "readiness"}  # of `task show`, if not the key itself


class TaskRequestError(HoraeError):
    """A request about a task that makes no sense; `cause` says more."""

    code = "task_request"

    def __init__(self, what: str, *, cause: str = "") -> None:
        self.what = what
        self.cause = cause
        super().__init__(f"{what} ({cause})" if cause else what)


class Schedule(NamedTuple):
    """What `task schedule` was asked to do, once it is known to make sense."""

    at: str | None = None
    cron: str | None = None
    is_cleared: bool = False
    timezone: str | None = None
    policy: Mapping[str, str] = MappingProxyType({})

    def changes(self, task: Task) -> Changes:
        if self.is_cleared:
            return {"scheduled_for": None, "cron_schedule": None}
        asked = {
            "scheduled_for": self.at,
            "cron_schedule": self.cron,
            "timezone": self.timezone,
            **self.policy,
        }
        changes: dict[str, Value | None] = {k: v for k, v in asked.items() if v is not None}
        if self.cron is not None and task.cron_schedule is None:
            changes["cron_last_run"] = None  # a schedule that is new has not come round yet
        return changes

    def words(self, number: int, task: Task | None = None) -> str:
        """Return what was done, in one line."""
        if self.is_cleared:
            return f"Task #{number} schedule cleared."
        rows = (
            ("scheduled_for", self.at),
            ("cron_schedule", self.cron),
            ("timezone", self.timezone),
            *self.policy.items(),
        )
        said = ", ".join(f"{key}={value}" for key, value in rows if value is not None)
        said = f"Task #{number} schedule updated: {said}"
        kept = None if task is None or self.at is not None else task.scheduled_for
        if kept is not None and self.cron is not None:
            said += f"; the task still does not start before {kept} (scheduled_for)"
        return said


def checked_schedule(
    *,
    at: str | None,
    cron: str | None,
    clear: bool,
    tz: str | None = None,
    **policy: str | None,
) -> Schedule:
    """Return what was asked for, or raise an error that says what is wrong with it."""
    if at is None and cron is None and not clear:
        raise TaskRequestError("at least one of --at, --cron, or --clear is required")
    others = {"at": at, "cron": cron, "tz": tz, **policy}
    given = [f"--{name}" for name, value in others.items() if value is not None]
    if clear and given:
        cause = "--clear removes scheduled_for and cron_schedule; use it alone"
        raise TaskRequestError(f"--clear cannot be used with {' or '.join(given)}", cause=cause)
    if at is not None:
        _check_moment(at)
    if tz is not None:
        zone(tz)
    if cron is not None:
        _check_cron(cron, tz or "UTC")
    kept = {name: text for name, text in policy.items() if text is not None}
    for each in TASK_PROPERTIES:
        if each.option in kept:
            _check_property(each, kept[each.option], tz or "UTC")
    return Schedule(at, cron, clear, tz, kept)


def _check_moment(text: str) -> None:
    # A blank for the T is common, and other tools take it.
    usual = f"{text[:10]}T{text[11:]}" if text[10:11] == " " else text
    try:
        parse_rfc3339(usual)
    except Rfc3339Error as error:
        cause = f"{error.part} {error.reason}, column {error.column}"
        raise TaskRequestError(f"invalid RFC3339 timestamp: {text}", cause=cause) from None


def _check_property(known: PolicyProperty, text: str, zone_name: str) -> None:
    try:
        policy_of({known.key: text}, zone_name=zone_name)
    except ScheduleError as error:
        reason = str(error).rpartition(": ")[2]
        what = "last day" if known.option == "until" else known.option
        raise TaskRequestError(f"invalid {what}: {text}", cause=reason) from None


def _check_cron(text: str, zone_name: str) -> None:
    try:
        rule = cron_rule(text, zone_name=zone_name)
    except ScheduleError as error:
        detail = str(error).removeprefix("cron ")
        raise TaskRequestError(f"invalid cron expression: {detail}") from None
    never = next((each.expression for each in rule.crons if each.never), None)
    if never is not None:
        raise TaskRequestError(f"invalid cron expression: {never!r} matches no date")


def board_at(root: str) -> Board:
    settings = load(root)
    named = getattr(settings, "board_dir", None)
    tasks = find_tasks(root, board=None if named is None else str(named))
    directory = tasks if root == "." else os.path.join(root, tasks)
    return Board(directory, limit=settings.plan_max_bytes, most=settings.plan_max_files)


def schedule_task(board: Board, number: int, asked: Schedule) -> Card:
    """Set or clear the schedule of one task."""
    return board.change(number, asked.changes)


def assign_task(board: Board, number: int, *, execution: str | None, review: str | None) -> Card:
    """Set or clear the owners of one task."""
    if execution is None and review is None:
        raise TaskRequestError("name an owner: --execution-owner, --review-owner or both")
    changes: dict[str, Value | None] = {}
    if execution is not None:
        now = key_time(SystemClock().now()) if execution else None
        changes |= {"claimed_by": execution, "claimed_at": now, "claim_expires_at": None}
    if review is not None:
        changes["review_owner"] = review
    return board.change(number, lambda _: changes)


def move_task(board: Board, number: int, status: str) -> Card:
    """Move one task to another status, if it may go there."""
    now = SystemClock().now()
    return board.change(number, lambda task: transition(task, status, now=now))


def archive_task(board: Board, number: int) -> Card:
    """Put one task away, if it may go there; one that is there already stays."""
    now = SystemClock().now()
    try:
        return board.archive(number, lambda task: transition(task, "archived", now=now))
    except TaskMissingError as error:
        if error.put_away is None:
            raise
        return board.archived_card(number)


def tick(board: Board, *, now: datetime) -> tuple[list[Recycled], list[HoraeError]]:
    """Bring back every task that is done and whose trigger has passed; a bad one stops none."""
    cards = board.read()
    events = EventLog(events_path(board.directory))
    back: list[Recycled] = []
    problems = list(cards.problems)
    for card in cards.cards:
        if not isinstance(recycle(card.task, now=now), Recycled):
            continue
        try:
            made = _brought_back(board, card.task.id, now)
            if made is not None:
                events.add(json.dumps(event_of(made.words), separators=(",", ":")))
                back.append(made)
        except HoraeError as error:
            problems.append(error)
    return back, problems


def _brought_back(board: Board, number: int, now: datetime) -> Recycled | None:
    """Bring one task back; None if it came back, or changed, before we got to it."""
    made: Recycled | None = None

    def decide(task: Task) -> Changes:
        nonlocal made
        answer = recycle(task, now=now)
        made = answer if isinstance(answer, Recycled) else None
        return {} if made is None else made.changes

    board.change(number, decide)
    return made


# The options that commands share.


class TaskNumber(_ParamType):
    """The number of a task, as it is typed; a leading # does not harm."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number, or say what one looks like."""
        text = str(value).removeprefix("#")
        is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST_ID))
        if not is_number or int(text) > LARGEST_ID:
            self.fail(f"{value!r} is not the number of a task; write it like 42.", param, ctx)
        return int(text)


_number = click.argument("number", metavar="ID", type=TaskNumber())


def _telling(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options of its form, and how it prints."""

    @wraps(command)
    def telling(*args: Any, form: str | None, **options: Any) -> int:
        return command(*args, output=Output.of(form), **options)

    return form_options(telling)


def _policy_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command an option for each property that a recurring task may have."""
    for each in reversed(TASK_PROPERTIES):
        choices = [*each.type] if issubclass(each.type, StrEnum) else []
        command = click.option(
            f"--{each.option}",
            each.option,
            type=click.Choice([choice.value for choice in choices]) if choices else None,
            metavar=None if choices else each.metavar,
            help=each.help,
        )(command)
    return command


@click.group(cls=SharedGroup)
def task() -> None:
    """Add, schedule, move and list the tasks of a board."""


@task.command()
@_number
@click.option("--at", "at", metavar="AT", help="Scheduled datetime in RFC3339 format.")
@click.option("--cron", "cron", metavar="CRON", help="Cron expression (e.g. '0 9 * * *').")
@click.option("--clear", is_flag=True, help="Clear both scheduled_for and cron_schedule.")
@click.option("--tz", metavar="ZONE", help="The time zone of --cron; default: UTC.")
@_policy_options
@root_option
@_telling
def schedule(
    number: int,
    *,
    at: str | None,
    cron: str | None,
    clear: bool,
    tz: str | None,
    root: str,
    output: Output,
    **policy: str | None,
) -> int:
    """Schedule a task, make it recur, or clear both."""
    asked = checked_schedule(at=at, cron=cron, clear=clear, tz=tz, **policy)
    try:
        card = schedule_task(board_at(root), number, asked)
    except HoraeError as error:
        if error.exit_code != Exit.NOT_FOUND:
            raise
        raise TaskRequestError(str(error)) from None
    return _answer(output, root, card, asked.words(number, card.task))


@task.command()
@click.argument("title")
@click.option(
    "--status",
    type=click.Choice(STATUSES),
    default="backlog",
    show_default=True,
    help="The first status of the task.",
)
@click.option("--priority", metavar="WORD", help="The priority: critical, high, medium or low.")
@click.option("--assignee", metavar="NAME", help="The crew member for the task.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag; repeat for several.")
@click.option(
    "--depends-on",
    multiple=True,
    type=TaskNumber(),
    metavar="ID",
    help="A task that must be done first; repeat for several.",
)
@click.option("--body", default="", metavar="TEXT", help="The text of the task.")
@click.option("--at", "at", metavar="AT", help="Do not start the task before this time (RFC 3339).")
@click.option("--cron", "cron", metavar="CRON", help="Make the task recur.")
@click.option("--tz", metavar="ZONE", help="The time zone of --cron; default: UTC.")
@root_option
@_telling
def add(
    title: str,
    *,
    status: str,
    priority: str | None,
    assignee: str | None,
    tags: tuple[str, ...],
    depends_on: tuple[int, ...],
    body: str,
    at: str | None,
    cron: str | None,
    tz: str | None,
    root: str,
    output: Output,
) -> int:
    """Add a task to the board.

    The task gets the next free number. With a crew, a task with the status backlog or todo is
    dispatched as soon as a member is free.
    """
    if not " ".join(title.split()):
        raise TaskRequestError("a task needs a title")
    if at is not None or cron is not None:
        checked_schedule(at=at, cron=cron, clear=False, tz=tz)
    fields: dict[str, Value | None] = {
        "status": status,
        "priority": priority,
        "assignee": assignee,
        "tags": tags,
        "depends_on": depends_on,
        "scheduled_for": at,
        "cron_schedule": cron,
        "timezone": tz,
        "created": key_time(SystemClock().now()),
    }
    card = board_at(root).add(" ".join(title.split()), fields, body=body)
    return _answer(output, root, card, f"Task #{card.task.id} added: {card.path}")


@task.command()
@_number
@click.option("--title", metavar="TEXT", help="The new title.")
@click.option("--priority", metavar="WORD", help="The priority: critical, high, medium or low.")
@click.option("--assignee", metavar="NAME", help="The crew member for the task; '' removes it.")
@click.option(
    "--tag", "tags", multiple=True, metavar="TAG", help="Replace all tags; repeat for several."
)
@click.option(
    "--depends-on",
    multiple=True,
    type=TaskNumber(),
    metavar="ID",
    help="A task that must be done first; repeat for several.",
)
@click.option("--blocked-on", metavar="TEXT", help="What blocks the task.")
@click.option("--clear-blocked", is_flag=True, help="Remove the block.")
@click.option("--set", "fields", multiple=True, metavar="KEY=VALUE", help="Set any other field.")
@click.option("--unset", "gone", multiple=True, metavar="KEY", help="Remove a field.")
@root_option
@_telling
def edit(
    number: int,
    *,
    title: str | None,
    priority: str | None,
    assignee: str | None,
    tags: tuple[str, ...],
    depends_on: tuple[int, ...],
    blocked_on: str | None,
    clear_blocked: bool,
    fields: tuple[str, ...],
    gone: tuple[str, ...],
    root: str,
    output: Output,
) -> int:
    """Change fields of a task.

    The rest of its file stays unchanged.
    """
    changes: dict[str, Value | None] = {}
    if clear_blocked:
        changes |= {"blocked": None, "block_reason": None, "blocked_on": None}
    asked = {
        "title": title,
        "priority": priority,
        "assignee": assignee,
        "blocked_on": blocked_on,
        "tags": tags or None,
        "depends_on": depends_on or None,
    }
    changes |= {key: value for key, value in asked.items() if value is not None}
    changes |= dict(map(_field, fields))
    changes |= dict.fromkeys(gone)
    if not changes:
        raise TaskRequestError("no workflow fields provided; name a field to change")
    _check_fields(changes)
    board = board_at(root)
    wanted = changes.get("depends_on")
    if isinstance(wanted, tuple):
        others = {task.id: task.depends_on for task in board.read().tasks}
        check_depends_on(number, tuple(int(each) for each in wanted), others)
    card = board.change(number, lambda _: changes)
    return _answer(output, root, card, f"Task #{number} metadata updated.")


@task.command("transition")
@_number
@click.argument("state", metavar="STATE", type=click.Choice([*STATUSES, "in_progress"]))
@root_option
@_telling
def transition_(number: int, *, state: str, root: str, output: Output) -> int:
    """Move a task to another status.

    A move that the board does not allow is refused.
    """
    card = move_task(board_at(root), number, state)
    return _answer(output, root, card, f"Task #{number} transitioned to {card.task.status}.")


@task.command()
@_number
@click.option(
    "--execution-owner",
    metavar="NAME",
    help="The agent or person that does the task; '' removes it.",
)
@click.option("--review-owner", metavar="NAME", help="The reviewer of the task; '' removes it.")
@root_option
@_telling
def assign(
    number: int,
    *,
    execution_owner: str | None,
    review_owner: str | None,
    root: str,
    output: Output,
) -> int:
    """Assign the owner and the reviewer of a task."""
    card = assign_task(board_at(root), number, execution=execution_owner, review=review_owner)
    return _answer(output, root, card, f"Task #{number} ownership updated.")


@task.command()
@_number
@root_option
@_telling
def archive(number: int, *, root: str, output: Output) -> int:
    """Archive a task.

    Its file moves to archive/, and the task does not recur.
    """
    card = archive_task(board_at(root), number)
    return _answer(output, root, card, f"Task #{number} archived: {card.path}")


@task.command()
@_number
@at_option
@root_option
@_telling
def show(number: int, *, at: str | None, root: str, output: Output) -> int:
    """Show a task, its status and its next times."""
    board = board_at(root)
    now = _now(at)
    card = board.archived_card(number)
    cards = board.read()
    is_there = any(each.path == card.path for each in cards.cards)
    ground = TaskStatuses.of(cards.tasks, archived=cards.archived)
    found = _standing(card.task, ground, now) if is_there else None
    pauses = Ledgers([root], output, zone_name="UTC").pauses(root)
    is_open = is_there and not card.task.is_archived
    coming = list(islice(_coming(card.task, now, pauses), 3)) if is_open else []
    data = {
        **card_data(card, found),
        "next": [f"{key_time(row.at)} {row.what}" for row in coming],
        "body": card.task.body,
    }
    if output.form is not Form.TABLE:
        return _print(output, data)
    data["next"] = [f"{key_time(row.at)} {row.word}" for row in coming]
    echo(f"#{card.task.id}  {card.task.title}")
    for key, value in data.items():
        if value not in (None, "", []) and key not in {"id", "title", "body"}:
            echo(f"  {_LABELS.get(key, key):<14}{_cell(value)}")
    if card.task.body.strip():
        echo(f"\n{card.task.body.strip()}")
    return Exit.OK


@task.command("next")
@click.argument("number", metavar="[ID]", type=TaskNumber(), required=False)
@click.option(
    "-n",
    "count",
    default=10,
    show_default=True,
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="Show at most N.",
)
@at_option
@root_option
@_telling
def next_(number: int | None, *, count: int, at: str | None, root: str, output: Output) -> int:
    """Show when tasks become due or recur."""
    board = board_at(root)
    now = _now(at)
    cards = [board.card(number)] if number is not None else board.read().cards
    pauses = Ledgers([root], output, zone_name="UTC").pauses(root)
    streams = [_coming(card.task, now, pauses) for card in cards if not card.task.is_archived]
    rows = list(islice(merge(*streams), count))
    if output.form is not Form.TABLE:
        data = [
            {"at": key_time(row.at), "task": row.task, "title": row.title, "what": row.what,
             "zone": row.zone}
            for row in rows
        ]  # fmt: skip
        return _print_all(output, data)
    for row in rows:
        echo(f"{moment_text(row.at, row.zone)}  #{row.task}  {row.title}  ({row.word})")
    if not rows:
        echo("no scheduled times")
    return Exit.OK


def _list_options(command: Callable[..., int]) -> Callable[..., int]:
    command = click.option("--search", metavar="WORDS", help="Only tasks with these words.")(
        command
    )
    return click.option("--status", "status", metavar="STATUS", help="Only tasks of this status.")(
        command
    )


@task.command("list")
@_list_options
@at_option
@root_option
@_telling
def list_(
    status: str | None, search: str | None, *, at: str | None, root: str, output: Output
) -> int:
    """List the tasks of the board with their status."""
    return _list(board_at(root), status=status, search=search, now=_now(at), output=output)


@task.command("summary")
@root_option
@_telling
def board_summary(*, root: str, output: Output) -> int:
    """Count the tasks of each status."""
    counts = summary(board_at(root).read().tasks)
    if output.form is not Form.TABLE:
        return _print(output, counts)
    for status, count in counts.items():
        echo(f"{status:<11} {count}")
    return Exit.OK


@task.command("health")
@at_option
@root_option
@_telling
def board_health(*, at: str | None, root: str, output: Output) -> int:
    """Check the tasks of the board for problems.

    The exit code is 1 if there are problems.
    """
    cards = board_at(root).read()
    crew = member_names(load(root).crew_def)
    found = complaints(cards.tasks, now=_now(at), archived=cards.archived, crew=crew)
    odd = [odd for card in cards.cards for odd in card.oddities]
    data: list[dict[str, object]] = [error.data() | {"task": None} for error in cards.problems]
    data += [{"task": None, "message": str(each), "fix": each.fix} for each in odd]
    data += [{"task": each.task.id, "message": each.message, "fix": each.fix} for each in found]
    if output.form is not Form.TABLE:
        _print_all(output, data)
    else:
        for line in (*map(str, cards.problems), *(f"{each}; {each.fix}" for each in odd)):
            echo(line)
        for each in found:
            echo(f"#{each.task.id}: {each.message}; {each.fix}")
        if not data:
            count = len(cards.cards)
            echo(f"{count} task{'s' * (count != 1)} checked, no problems")
    return Exit.FINDINGS if data else Exit.OK


@task.command("recycle")
@at_option
@root_option
@_telling
def board_tick(*, at: str | None, root: str, output: Output) -> int:
    """Set done tasks that are due to recur to todo again.

    A running engine does this by itself.
    """
    board = board_at(root)
    back, problems = tick(board, now=_now(at))
    if back:
        record_edits(root, [(board.card(made.task).path, made.words) for made in back])
    if output.form is not Form.TABLE:
        data = [
            {"task": made.task, "schedule": made.schedule, "triggers": made.triggers,
             "scheduled_for": key_time(made.next_at), "cron_last_run": key_time(made.at)}
            for made in back
        ]  # fmt: skip
        _print_all(output, data)
    else:
        for made in back:
            echo(f"cron: {made.words}")
        if not back:
            echo("no task is due to recur")
    for problem in problems:
        output.say(problem)
    return problems[0].exit_code if problems else Exit.OK


def _list(
    board: Board, *, status: str | None, search: str | None, now: datetime, output: Output
) -> int:
    """Print the tasks that are asked for."""
    cards = board.read()
    rows = list_rows(cards, status=status, search=search, now=now)
    if output.form is not Form.TABLE:
        _print_all(output, [card_data(card, found) for card, found in rows])
    else:
        print_rows(rows)
    for problem in cards.problems:
        output.say(problem)
    return cards.problems[0].exit_code if cards.problems else Exit.OK


def list_rows(
    cards: Cards, *, status: str | None, search: str | None, now: datetime
) -> list[tuple[Card, Resolution | None]]:
    """Return the tasks that are asked for, and how each stands."""
    ground = TaskStatuses.of(cards.tasks, archived=cards.archived)
    wanted = [card for card in cards.cards if _matches(card.task, status=status, search=search)]
    return [(card, _standing(card.task, ground, now)) for card in wanted]


def print_rows(rows: Sequence[tuple[Card, Resolution | None]]) -> None:
    """Print tasks, one a line, each with what blocks it and its schedule."""
    for card, found in rows:
        task = card.task
        how = "" if found is None else found.standing.value
        why = f" ({found.reason})" if found is not None and found.reason else ""
        parts = (
            f"#{task.id:<4} {task.status:<11} {task.priority:<8} {task.title}",
            f"{how}{why}",
            _schedule_text(task, why),
        )
        echo("  ".join(filter(None, parts)))
    if not rows:
        echo("no tasks")


def _schedule_text(task: Task, why: str) -> str:
    """Return the schedule of a task in the words of `task schedule`, save what is said already."""
    rows = (("scheduled_for", task.scheduled_for), ("cron_schedule", task.cron_schedule))
    return ", ".join(f"{key}={value}" for key, value in rows if value and value not in why)


def _matches(task: Task, *, status: str | None, search: str | None) -> bool:
    if status is not None and task.status != status.replace("_", "-"):
        return False
    text = f"#{task.id} {task.title} {task.body} {' '.join(task.tags)}".casefold()
    return all(word in text for word in (search or "").casefold().split())


def _standing(task: Task, ground: TaskStatuses, now: datetime) -> Resolution | None:
    return None if task.status in CLOSED else standing(task, ground, now=now)


class _TaskTime(NamedTuple):
    """A moment that a task waits for; ordered by time."""

    at: datetime
    task: int
    title: str
    what: str
    zone: str

    @property
    def word(self) -> str:
        """What happens at that moment, as a table says it."""
        return "recurs" if self.what == "trigger" else self.what


def _coming(task: Task, now: datetime, pauses: Mapping[str, Pause]) -> Iterator[_TaskTime]:
    gate = moment(task.scheduled_for)
    waits = task.status not in CLOSED and is_schedule_blocked(task, now=now)
    held = [_TaskTime(gate, task.id, task.title, "scheduled", "UTC")] if gate and waits else []
    triggers = (
        _TaskTime(each.at, task.id, task.title, "trigger", task.timezone or "UTC")
        for each in triggers_of(task, now, pause=pauses.get(f"task:{task.id}"))
    )
    return merge(held, triggers)


def _answer(output: Output, root: str, card: Card, words: str) -> int:
    """Record and print what was done: a sentence for people, the task for a program."""
    record_edits(root, [(card.path, words)])
    if output.form is Form.TABLE:
        echo(words)
        return Exit.OK
    return _print(output, card_data(card, None))


def _print(output: Output, data: object) -> int:
    if output.form is Form.JSON:
        print_json(data)
    else:
        print_line(data)
    return Exit.OK


def _print_all(output: Output, rows: Iterable[object]) -> int:
    if output.form is Form.JSON:
        print_json(list(rows))
    else:
        for row in rows:
            print_line(row)
    return Exit.OK


def _cell(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _now(at: str | None) -> datetime:
    """Return the moment that --at names, else this one."""
    return SystemClock().now() if at is None else parse_moment(at, zone("UTC"))


def _field(text: str) -> tuple[str, Value]:
    key, divider, value = text.partition("=")
    if not divider:
        raise TaskRequestError(f"{text!r} is not KEY=VALUE")
    words = tuple(word.strip() for word in value.split(",") if word.strip())
    is_number = value.isascii() and value.isdecimal()
    match FIELDS.get(key):
        case TaskFieldKind.NUMBER if is_number:
            return key, int(value)
        case TaskFieldKind.NUMBERS if all(word.isascii() and word.isdecimal() for word in words):
            return key, tuple(map(int, words))
        case TaskFieldKind.TEXTS:
            return key, words
        case TaskFieldKind.FLAG | TaskFieldKind.FLAG_OR_TEXT if value in {"true", "false"}:
            return key, value == "true"
        case TaskFieldKind.NUMBER | TaskFieldKind.NUMBERS | TaskFieldKind.FLAG as kind:
            raise TaskRequestError(f"{key} is {kind}, not {value!r}")
    return key, value


def _check_fields(changes: Changes) -> None:
    """Refuse what another command is for, and names that no field can have."""
    for key in changes:
        if key in {"id", "status", "scheduled_for", "cron_schedule", "cron_last_run"}:
            raise TaskRequestError(f"{key} is not changed by edit; use schedule or transition")
        if not key.isascii() or not key.replace("_", "").replace("-", "").isalnum():
            raise TaskEditError(key[:40], "is not a field name; use letters, digits, _ and -")
