"""`task`: the Markdown tasks of a plan root."""

from __future__ import annotations

import json
import os.path
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from functools import partial
from heapq import merge
from itertools import islice
from typing import Any, Final, NamedTuple

import click
from msgspec import to_builtins

from horae.cli.connection import record_edits
from horae.cli.group import SharedGroup
from horae.cli.moments import moment_and_zone
from horae.cli.options import at_option, choice_option, flag, number_option, option, root_option
from horae.cli.output import Output, echo, form_options, print_answer, print_rows, print_table
from horae.cli.plan_root import crew_of, pauses_of
from horae.config import load
from horae.core.clock import SystemClock
from horae.core.entry import Pause, PolicyError, cron_rule, key_time, phrase_cron, policy_of
from horae.core.text import moment_text
from horae.errors import Exit, HoraeError, ScheduleError
from horae.sources.board import find_tasks, rules, tasks
from horae.sources.board.recycle import Recycled, event_of, recycle, triggers_of
from horae.sources.board.source import add_event, events_path
from horae.sources.board.task import FIELDS, LARGEST_ID, TASK_PROPERTIES, Task, TaskFieldKind
from horae.sources.board.tasks import Board, Card, Cards, TaskLine
from horae.timing.zone import Rfc3339Error, parse_rfc3339, zone

_LABELS: Final = {"standing": "readiness"}  # in `task show`, where not the key itself


class TaskRequestError(HoraeError, code="task_request", exit_code=Exit.USAGE):
    def __init__(self, what: str, *, cause: str = "") -> None:
        self.what, self.cause = what, cause
        super().__init__(f"{what} ({cause})" if cause else what)


def checked_schedule(
    *, at: str | None, cron: str | None, clear: bool, tz: str | None = None, **policy: str | None
) -> dict[str, str]:
    if at is None and cron is None and not clear:
        raise TaskRequestError("at least one of --at, --cron, or --clear is required")
    others = {"at": at, "cron": cron, "tz": tz, **policy}
    given = [f"--{name}" for name, value in others.items() if value is not None]
    if clear and given:
        cause = "--clear removes scheduled_for and cron_schedule; use it alone"
        raise TaskRequestError(f"--clear cannot be used with {' or '.join(given)}", cause=cause)
    if at is not None:
        # A blank for the T is common, and other tools accept it.
        usual = f"{at[:10]}T{at[11:]}" if at[10:11] == " " else at
        try:
            parse_rfc3339(usual)
        except Rfc3339Error as error:
            what = f"invalid RFC3339 timestamp: {at}"
            raise TaskRequestError(what, cause=error.reason) from None
    if tz is not None:
        zone(tz)
    if cron is not None:
        try:
            crons = cron_rule(cron, zone_name=tz or "UTC").crons
        except ScheduleError as error:
            detail = str(error).removeprefix("cron ")
            raise TaskRequestError(f"invalid cron expression: {detail}") from None
        never = next((each.expression for each in crons if each.never), None)
        if never is not None:
            raise TaskRequestError(f"invalid cron expression: {never!r} matches no date")
    said = {each.key: policy.get(each.option) for each in TASK_PROPERTIES}
    try:
        policy_of({key: text for key, text in said.items() if text}, zone_name=tz or "UTC")
    except PolicyError as error:
        name = "last day" if error.key == "UNTIL" else error.key.lower()
        cause = str(error).split(": ", 2)[-1]
        raise TaskRequestError(f"invalid {name}: {error.value}", cause=cause) from None
    fields = {"scheduled_for": at, "cron_schedule": cron, "timezone": tz, **policy}
    return {name: text for name, text in fields.items() if text is not None}


def board_at(root: str) -> Board:
    settings = load(root)
    found = find_tasks(root, board=settings.board_dir)
    directory = found if root == "." else os.path.join(root, found)
    return Board(directory, limit=settings.plan_max_bytes, most=settings.plan_max_files)


# Each changes one task, and returns it with what was done.


def schedule_task(board: Board, number: int, *, clear: bool, **given: Any) -> tuple[Card, str]:
    wanted = checked_schedule(clear=clear, **given)
    card = board.change(number, lambda task: rules.schedule_changes(task, wanted, is_cleared=clear))
    said = ", ".join(f"{key}={value}" for key, value in wanted.items())
    done = "cleared." if clear else f"updated: {said}"
    return card, f"Task #{number} schedule {done}"


def assign_task(
    board: Board, number: int, *, execution_owner: str | None, review_owner: str | None
) -> tuple[Card, str]:
    if execution_owner is None and review_owner is None:
        raise TaskRequestError("name an owner: --execution-owner, --review-owner or both")
    changes: dict[str, rules.Value | None] = {}
    if execution_owner is not None:
        now = key_time(SystemClock().now()) if execution_owner else None
        changes |= {"claimed_by": execution_owner, "claimed_at": now, "claim_expires_at": None}
    if review_owner is not None:
        changes["review_owner"] = review_owner
    return board.change(number, lambda _: changes), f"Task #{number} ownership updated."


def move_task(board: Board, number: int, *, state: str) -> tuple[Card, str]:
    now = SystemClock().now()
    card = board.change(number, lambda task: rules.transition(task, state, now=now))
    return card, f"Task #{number} transitioned to {card.task.status}."


def tick(board: Board, *, now: datetime) -> tuple[list[Recycled], list[HoraeError]]:
    """Recycle every done task whose trigger is past; an error with one does not stop the others."""
    cards = board.read()
    back: list[Recycled] = []
    problems = list(cards.problems)
    for card in cards.cards:
        if not isinstance(recycle(card.task, now=now), Recycled):
            continue
        try:
            made = board.recycle(card.task.id, partial(recycle, now=now))
            if isinstance(made, Recycled):
                line = json.dumps(event_of(made.words), separators=(",", ":"))
                add_event(events_path(board.directory), line)
                back.append(made)
        except HoraeError as error:
            problems.append(error)
    return back, problems


def task_number(text: str) -> int:
    digits = text.removeprefix("#")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) <= len(str(LARGEST_ID))
    if not is_number or int(digits) > LARGEST_ID:
        raise click.BadParameter(f"{text!r} is not the number of a task; write it like 42.")
    return int(digits)


class StatusChoice(click.Choice):  # type: ignore[type-arg]  # generic only since click 8.2
    """The statuses of a task; `_` is read as `-`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(super().convert(str(value).replace("_", "-"), param, ctx))


_number = click.argument("number", metavar="ID", type=task_number)
# Fields that `edit` refuses -> the command for each.
_OTHERS: Final = {
    "id": "",
    "cron_last_run": "",
    "status": "; use `horae task transition`",
    "scheduled_for": "; use `horae task schedule --at`",
    "cron_schedule": "; use `horae task schedule --cron`",
}
_words = click.Choice(rules.PRIORITIES, case_sensitive=False)
_priority = option("--priority WORD", "The priority: critical, high, medium or low.", type=_words)
_first = "A task that must be done first; repeat for several."
_depends_on = option("--depends-on ID", _first, multiple=True, type=task_number)
_TZ: Final = "The time zone of --cron; default: UTC."


def _telling(command: Callable[..., int]) -> Callable[..., int]:
    return root_option(form_options(command))


def _policy_options(command: Callable[..., int]) -> Callable[..., int]:
    for each in reversed(TASK_PROPERTIES):
        if issubclass(each.type, StrEnum):
            given = choice_option(f"--{each.option}", each.help, each.type, name=each.option)
        else:
            given = option(f"--{each.option} {each.metavar}", each.help, name=each.option)
        command = given(command)
    return command


@click.group(cls=SharedGroup)
def task() -> None:
    """Add, schedule, move and list the tasks of a board."""


@task.command()
@_number
@option("--at AT", "Scheduled datetime in RFC3339 format.")
@option("--cron CRON", "Cron expression (e.g. '0 9 * * *').")
@option("--when PHRASE", "The schedule in words ('weekdays at 9'), stored as cron.")
@flag("--clear", "Clear both scheduled_for and cron_schedule.")
@option("--tz ZONE", _TZ)
@_policy_options
@_telling
def schedule(number: int, *, when: str | None, root: str, output: Output, **given: Any) -> int:
    """Schedule a task, make it recur, or clear both."""
    if when is not None:
        if given["cron"] is not None:
            raise click.UsageError("give --cron or --when, not both.")
        given["cron"] = phrase_cron(when)
    if given["at"] is None and given["cron"] is None and not given["clear"]:
        raise TaskRequestError("at least one of --at, --cron, --when or --clear is required")
    card, words = schedule_task(board_at(root), number, **given)
    kept = card.task.scheduled_for
    if kept is not None and given["at"] is None and given["cron"] is not None:
        words += f"; the task still does not start before {kept} (scheduled_for)"
    return _answer(output, root, card, words)


@task.command()
@click.argument("title")
@choice_option("--status", "The first status of the task.", rules.STATUSES, default="backlog")
@_priority
@option("--assignee NAME", "The crew member for the task.")
@option("--tag TAG", "A tag; repeat for several.", name="tags", multiple=True)
@_depends_on
@option("--body TEXT", "The text of the task.", default="")
@option("--at AT", "Do not start the task before this time (RFC 3339).", name="scheduled_for")
@option("--cron CRON", "Make the task recur.", name="cron_schedule")
@option("--tz ZONE", _TZ, name="timezone")
@_telling
def add(title: str, *, body: str, root: str, output: Output, **given: Any) -> int:
    """Add a task to the board.

    The task gets the next free number. With a crew, a task with the status backlog or todo is
    dispatched as soon as a member is free.
    """
    title = " ".join(title.split())
    if not title:
        raise TaskRequestError("a task needs a title")
    times = ("scheduled_for", "cron_schedule", "timezone")
    at, cron, tz = (given[key] for key in times)
    if at is not None or cron is not None:
        checked_schedule(at=at, cron=cron, clear=False, tz=tz)
    order = ("status", "priority", "assignee", "tags", "depends_on", *times)
    fields = {key: given[key] for key in order} | {"created": key_time(SystemClock().now())}
    card = board_at(root).add(title, fields, body=body)
    return _answer(output, root, card, f"Task #{card.task.id} added: {card.path}")


@task.command()
@_number
@option("--title TEXT", "The new title.")
@_priority
@option("--assignee NAME", "The crew member for the task; '' removes it.")
@option("--tag TAG", "Replace all tags; repeat for several.", name="tags", multiple=True)
@_depends_on
@option("--blocked-on TEXT", "What blocks the task.")
@flag("--clear-blocked", "Remove the block.")
@option("--set KEY=VALUE", "Set any other field.", name="fields", multiple=True)
@option("--unset KEY", "Remove a field.", name="gone", multiple=True)
@_telling
def edit(number: int, *, root: str, output: Output, **given: Any) -> int:
    """Change fields of a task.

    The rest of its file stays unchanged.
    """
    changes: dict[str, rules.Value | None] = {}
    if given["clear_blocked"]:
        changes |= {"blocked": None, "block_reason": None, "blocked_on": None}
    for key in ("title", "priority", "assignee", "blocked_on", "tags", "depends_on"):
        if given[key] not in (None, ()):
            changes[key] = given[key]
    changes |= dict(map(_field, given["fields"])) | dict.fromkeys(given["gone"])
    if not changes:
        raise TaskRequestError("name a field to change, such as --title")
    for key in changes:
        if key in _OTHERS:
            raise TaskRequestError(f"edit does not change {key}{_OTHERS[key]}")
        if not key.isascii() or not key.replace("_", "").replace("-", "").isalnum():
            raise tasks.TaskEditError(key[:40], "is not a field name; use letters, digits, _ and -")
    board = board_at(root)
    wanted = changes.get("depends_on")
    if isinstance(wanted, tuple):
        others = {task.id: task.depends_on for task in board.read().tasks}
        rules.check_depends_on(number, tuple(int(each) for each in wanted), others)
    before = board.card(number).task
    card = board.change(number, lambda _: changes)
    if card.task == before:
        print_answer(output, TaskLine.of(card), f"Task #{number}: nothing to change.")
        return Exit.OK
    return _answer(output, root, card, f"Task #{number} metadata updated.")


@task.command("transition")
@_number
@click.argument("state", metavar="STATUS", type=StatusChoice(rules.STATUSES))
@_telling
def transition_(number: int, *, state: str, root: str, output: Output) -> int:
    """Move a task to another status.

    A move that the board does not allow is refused.
    """
    return _answer(output, root, *move_task(board_at(root), number, state=state))


@task.command()
@_number
@option("--execution-owner NAME", "The agent or person that does the task; '' removes it.")
@option("--review-owner NAME", "The reviewer of the task; '' removes it.")
@_telling
def assign(number: int, *, root: str, output: Output, **owners: str | None) -> int:
    """Assign the owner and the reviewer of a task."""
    return _answer(output, root, *assign_task(board_at(root), number, **owners))


@task.command()
@_number
@_telling
def archive(number: int, *, root: str, output: Output) -> int:
    """Archive a task.

    Its file moves to archive/, and the task does not recur.
    """
    board, now = board_at(root), SystemClock().now()
    try:
        card = board.archive(number, lambda task: rules.transition(task, "archived", now=now))
    except tasks.TaskMissingError as error:
        if error.put_away is None:
            raise
        card = board.archived_card(number)
    return _answer(output, root, card, f"Task #{number} archived: {card.path}")


@task.command()
@_number
@at_option
@_telling
def show(number: int, *, at: str | None, root: str, output: Output) -> int:
    """Show a task, its status and its next times."""
    board, now = board_at(root), moment_and_zone(at, tz="UTC")[0]
    card, cards = board.archived_card(number), board.read()
    is_there = any(each.path == card.path for each in cards.cards)
    found = rules.open_standing(card.task, cards.ground, now=now) if is_there else None
    pauses = pauses_of(root, output)
    has_times = is_there and not card.task.is_archived
    coming = list(islice(_coming(card.task, now, pauses), 3)) if has_times else []
    data = {
        **to_builtins(TaskLine.of(card, found)),
        "next": [f"{key_time(row.at)} {row.what}" for row in coming],
        "body": card.task.body,
    }

    def text() -> None:
        echo(f"#{card.task.id}  {card.task.title}")
        shown = data | {"next": [f"{key_time(row.at)} {row.word}" for row in coming]}
        for key, value in shown.items():
            if value not in (None, "", (), []) and key not in {"id", "title", "body"}:
                said = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
                echo(f"  {_LABELS.get(key, key):<14}{said}")
        if card.task.body.strip():
            echo(f"\n{card.task.body.strip()}")

    print_answer(output, data, text)
    return Exit.OK


@task.command("next")
@click.argument("number", metavar="[ID]", type=task_number, required=False)
@number_option("-n", "count", default=10, most=100_000)
@at_option
@_telling
def next_(number: int | None, *, count: int, at: str | None, root: str, output: Output) -> int:
    """Show when tasks become due or recur."""
    board, now = board_at(root), moment_and_zone(at, tz="UTC")[0]
    cards = [board.card(number)] if number is not None else board.read().cards
    pauses = pauses_of(root, output)
    streams = [_coming(card.task, now, pauses) for card in cards if not card.task.is_archived]
    rows = list(islice(merge(*streams), count))
    lines = [
        f"{moment_text(row.at, row.zone)}  #{row.task}  {row.title}  ({row.word})" for row in rows
    ]
    data = [{**row._asdict(), "at": key_time(row.at)} for row in rows]
    print_rows(output, data, lambda: echo("\n".join(lines) or "no scheduled times"))
    return Exit.OK


@task.command("list")
@option("--status STATUS", "Only tasks of this status.")
@option("--search WORDS", "Only tasks with these words.")
@at_option
@_telling
def list_(
    status: str | None, search: str | None, *, at: str | None, root: str, output: Output
) -> int:
    """List the tasks of the board with their status."""
    board, now = board_at(root), moment_and_zone(at, tz="UTC")[0]
    cards = board.read()
    rows = list_rows(cards, status=status, search=search, now=now)
    if status and status not in {*rules.STATUSES, *(each.status for each in cards.tasks)}:
        raise click.UsageError(f"{status!r} is not a status; use {', '.join(rules.STATUSES)}.")
    data = [TaskLine.of(card, found) for card, found in rows]
    names = ("id", "status", "priority", "title", "readiness", "schedule")
    print_rows(output, data, lambda: print_table(names, task_cells(rows), empty="no tasks"))
    for problem in cards.problems:
        output.say(problem)
    return cards.problems[0].exit_code if cards.problems else Exit.OK


@task.command("summary")
@_telling
def board_summary(*, root: str, output: Output) -> int:
    """Count the tasks of each status."""
    cards = board_at(root).read()
    counts = rules.summary(cards.tasks)
    counts["archived"] += len(cards.archived.difference(task.id for task in cards.tasks))
    print_answer(output, counts, summary_table(counts))
    return Exit.OK


@task.command("health")
@at_option
@_telling
def board_health(*, at: str | None, root: str, output: Output) -> int:
    """Check the tasks of the board for problems.

    The exit code is 1 if there are problems.
    """
    cards = board_at(root).read()
    now, crew = moment_and_zone(at, tz="UTC")[0], crew_of(root)
    found = rules.complaints(cards.tasks, now=now, archived=cards.archived, crew=crew)
    odd = [odd for card in cards.cards for odd in card.oddities]
    data: list[dict[str, object]] = [error.data() | {"task": None} for error in cards.problems]
    data += [{"task": None, "message": str(each), "fix": each.fix} for each in odd]
    data += [{"task": each.task.id, "message": each.message, "fix": each.fix} for each in found]
    lines = [*map(str, cards.problems), *(f"{each}; {each.fix}" for each in odd)]
    lines += [f"#{each.task.id}: {each.message}; {each.fix}" for each in found]
    count = len(cards.cards)
    well = f"{count} task{'s' * (count != 1)} checked, no problems"
    print_rows(output, data, lambda: echo("\n".join(lines) or well))
    return Exit.FINDINGS if data else Exit.OK


@task.command("recycle")
@at_option
@_telling
def board_tick(*, at: str | None, root: str, output: Output) -> int:
    """Set done tasks back to todo when they are due to recur.

    A running engine does this by itself.
    """
    board = board_at(root)
    back, problems = tick(board, now=moment_and_zone(at, tz="UTC")[0])
    if back:
        record_edits(root, [(board.card(made.task).path, made.words) for made in back])
    data = [
        {"task": made.task, "schedule": made.schedule, "triggers": made.triggers,
         "scheduled_for": key_time(made.next_at), "cron_last_run": key_time(made.at)}
        for made in back
    ]  # fmt: skip
    lines = [f"cron: {made.words}" for made in back]
    print_rows(output, data, lambda: echo("\n".join(lines) or "no task is due to recur"))
    for problem in problems:
        output.say(problem)
    return problems[0].exit_code if problems else Exit.OK


def list_rows(
    cards: Cards, *, status: str | None, search: str | None = None, now: datetime
) -> list[tuple[Card, rules.Resolution | None]]:
    ground, rows = cards.ground, []
    for card in cards.cards:
        task = card.task
        text = f"#{task.id} {task.title} {task.body} {' '.join(task.tags)}".casefold()
        is_found = all(word in text for word in (search or "").casefold().split())
        if is_found and (status is None or task.status == status.replace("_", "-")):
            rows.append((card, rules.open_standing(task, ground, now=now)))
    return rows


def task_cells(rows: Iterable[tuple[Card, rules.Resolution | None]]) -> Iterator[tuple[str, ...]]:
    for (task, *_), found in rows:
        how = "" if found is None else found.standing.value
        why = f" ({found.reason})" if found is not None and found.reason else ""
        times = (("scheduled_for", task.scheduled_for), ("cron_schedule", task.cron_schedule))
        said = ", ".join(f"{key}={value}" for key, value in times if value and value not in why)
        yield f"#{task.id}", task.status, task.priority, task.title, f"{how}{why}", said


def task_lines(rows: Iterable[tuple[Card, rules.Resolution | None]]) -> str:
    lines = []
    for number, status, priority, title, *rest in task_cells(rows):
        head = f"{number:<5} {status:<11} {priority:<8} {title}"
        lines.append("  ".join(filter(None, [head, *rest])))
    return "\n".join(lines) or "no tasks"


def summary_table(counts: Mapping[str, int]) -> str:
    return "\n".join(f"{status:<11} {count}" for status, count in counts.items())


class _TaskTime(NamedTuple):
    at: datetime
    task: int
    title: str
    what: str
    zone: str

    @property
    def word(self) -> str:
        return "recurs" if self.what == "trigger" else self.what


def _coming(task: Task, now: datetime, pauses: Mapping[str, Pause]) -> Iterator[_TaskTime]:
    gate = rules.moment(task.scheduled_for)
    waits = task.status not in rules.CLOSED and rules.is_schedule_blocked(task, now=now)
    zone = task.timezone or "UTC"
    held = [_TaskTime(gate, task.id, task.title, "scheduled", zone)] if gate and waits else []
    triggers = (
        _TaskTime(each.at, task.id, task.title, "trigger", zone)
        for each in triggers_of(task, now, pause=pauses.get(f"task:{task.id}"))
    )
    return merge(held, triggers)


def _answer(output: Output, root: str, card: Card, words: str) -> int:
    record_edits(root, [(card.path, words)])
    print_answer(output, TaskLine.of(card), words)
    return Exit.OK


def _field(text: str) -> tuple[str, rules.Value]:
    key, divider, value = text.partition("=")
    if not divider:
        raise TaskRequestError(f"{text!r} is not KEY=VALUE")
    words = tuple(word.strip() for word in value.split(",") if word.strip())
    match FIELDS.get(key):
        case TaskFieldKind.NUMBER if value.isascii() and value.isdecimal():
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
