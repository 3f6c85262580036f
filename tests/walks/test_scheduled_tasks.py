"""Scheduled tasks and recurring ones, from top to bottom: a board of Markdown files.

Each command is typed as it stands; what a daemon does is done by the engine, whose clock is
turned by hand and whose crew is a shell script.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from horae.process.processes import can_kill_trees
from horae.sources.board.batty import project_root, tell
from horae.sources.board.commands import tick
from horae.sources.board.dispatch import candidates
from horae.sources.board.recycle import Recycled, recycle
from horae.sources.board.rules import TaskReadiness, is_schedule_blocked
from horae.sources.board.source import events_path
from horae.sources.board.task import Task, parse
from horae.sources.board.tasks import Board
from horae.timing.cron import Cron
from readiness import resolve
from scale import SCALE
from waiting import until
from walks.stage import HOUR, LIMIT, MINUTE, engine, story, type_, typed

if TYPE_CHECKING:
    from walks.stage import Engine, Ground

runs = pytest.mark.skipif(not can_kill_trees(), reason="needs pidfds")

TUESDAY = datetime(2026, 3, 24, 12, 0, tzinfo=UTC)
GATE = datetime(2026, 3, 25, 13, 0, tzinfo=UTC)  # nine in the morning, four hours west
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)
PLAIN = "---\nid: 42\ntitle: Weekly standup report\nstatus: todo\n---\n\nDo it.\n"

# The example task file.
EXAMPLE = """\
---
id: 42
title: Weekly standup report
status: todo
priority: medium
cron_schedule: "0 9 * * MON"
scheduled_for: "2026-03-31T09:00:00Z"
cron_last_run: "2026-03-24T09:00:00Z"
---

Generate and distribute the weekly standup report.
"""


class Ending(NamedTuple):
    code: int
    out: str
    err: str


class Project:
    """A project with one task."""

    def __init__(self, root: Path, screen: pytest.CaptureFixture[str]) -> None:
        self.tasks = root / ".batty" / "team_config" / "board" / "tasks"
        self.tasks.mkdir(parents=True)
        self.file = self.tasks / "042-weekly-standup-report.md"
        self.file.write_text(PLAIN)
        self.board = Board(self.tasks)
        self._screen = screen

    def type(self, line: str) -> Ending:
        """Type a line of the document."""
        name, *words = shlex.split(line)
        assert name == "batty"
        code = tell(words)
        return Ending(code, *self._screen.readouterr())

    @property
    def task(self) -> Task:
        return self.board.card(42).task

    def save(self, **fields: str | None) -> None:
        self.board.change(42, lambda _: fields)

    def tick(self, now: datetime) -> list[Recycled]:
        back, problems = tick(self.board, now=now)
        assert problems == []
        return back

    def events(self) -> list[dict[str, object]]:
        lines = Path(events_path(str(self.tasks))).read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Project:
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path, capsys)


def standing(task: Task, now: datetime) -> tuple[TaskReadiness, str]:
    [found] = resolve([task], now=now)
    return found.standing, found.reason


# A board that an engine keeps

TASKS = ".batty/team_config/board/tasks"


def a_board(ground: Ground, **fields: str) -> Path:
    """Write a board with one task, and a crew of one that says what it is told."""
    ground.agent('cat > SIDE/told; [ "$HORAE_TASK" ] && echo $HORAE_TASK >> SIDE/worked; echo done')
    ground.crew(wren=":INTERVAL: 24h")
    added = "".join(f"{name}: {value}\n" for name, value in fields.items())
    return ground.write(f"{TASKS}/042-weekly.md", PLAIN.replace("---\n\n", f"{added}---\n\n"))


def field_of(file: Path, name: str) -> str | None:
    """Return what a task says now."""
    task, _ = parse(file.read_text())
    assert task is not None
    value = task.status if name == "status" else task.fields.get(name)
    assert value is None or isinstance(value, str)
    return value


def emitted(ground: Ground, kind: str) -> list[dict[str, object]]:
    """Return the events of one kind, as they stand beside the board."""
    path = Path(events_path(str(ground.root / TASKS)))
    lines = path.read_text().splitlines() if path.exists() else []
    return [each for each in map(json.loads, lines) if each["event"] == kind]


# Scheduled tasks

AT = "batty task schedule 42 --at '2026-03-25T09:00:00-04:00'"


def test_a_scheduled_time_is_set_and_the_task_remains_in_its_status(project: Project) -> None:
    assert project.type(AT).code == 0
    assert (project.task.scheduled_for, project.task.status) == (
        "2026-03-25T09:00:00-04:00",
        "todo",
    )


@pytest.mark.parametrize("status", ["todo", "backlog"])
def test_it_is_blocked_with_that_reason_until_the_time_passes_and_then_runnable(
    project: Project, status: str
) -> None:
    project.save(status=status)
    project.type(AT)
    blocked = (TaskReadiness.BLOCKED, "scheduled for 2026-03-25T09:00:00-04:00")
    assert standing(project.task, GATE - SECOND) == blocked
    assert standing(project.task, GATE) == (TaskReadiness.RUNNABLE, "")


def test_the_dispatcher_does_not_take_it_before_its_time(project: Project) -> None:
    project.type(AT)
    assert candidates([project.task], now=GATE - SECOND) == []
    assert candidates([project.task], now=GATE) == [project.task]


@runs
@story
async def test_the_daemon_does_not_dispatch_it_until_then_and_then_does(ground: Ground) -> None:
    file = a_board(ground)
    words = ("task", "schedule", "42", "--at", "2026-03-25T09:00:00-04:00")
    ending = typed("batty", *words, at=ground.root)
    assert ending.code == 0, ending.err
    async with engine(ground, now=GATE - HOUR) as here:
        await at_rest(here, GATE - MINUTE)
        assert (ground.seen("worked"), field_of(file, "status")) == ("", "todo")
        await at_rest(here, GATE + MINUTE, ground, tasks=1)
        assert ground.seen("worked").split() == ["42"]
        assert field_of(file, "status") == "done"


async def at_rest(
    here: Engine, moment: datetime, ground: Ground | None = None, *, tasks: int = 0
) -> None:
    """Let it be later, until so many tasks were worked on and their ends are written down."""
    await here.until(moment)
    async with asyncio.timeout(60):
        while ground is not None and len(ground.seen("worked").split()) < tasks:
            await here.rest()
            await asyncio.sleep(0.01)
    await here.rest()
    await here.reread()  # files are watched in real time, which has hardly passed


def test_is_schedule_blocked_asks_whether_the_time_is_in_the_future(project: Project) -> None:
    project.type(AT)
    assert is_schedule_blocked(project.task, now=GATE - SECOND)
    assert not is_schedule_blocked(project.task, now=GATE)


def test_a_task_with_no_scheduled_for_is_never_schedule_blocked(project: Project) -> None:
    assert not is_schedule_blocked(project.task, now=datetime.min.replace(tzinfo=UTC))


# Recurring tasks

CRON = "batty task schedule 42 --cron '0 9 * * MON'"


def test_a_cron_schedule_is_set_as_five_fields(project: Project) -> None:
    assert project.type(CRON).code == 0
    assert (project.task.cron_schedule, project.task.scheduled_for) == ("0 9 * * MON", None)


def test_a_cron_task_that_reaches_done_goes_back_to_todo_for_the_next_occurrence(
    project: Project,
) -> None:
    project.type(CRON)
    monday = datetime(2026, 3, 30, 9, 0, 5, tzinfo=UTC)
    project.save(status="done", cron_last_run="2026-03-23T09:00:00Z")
    assert len(project.tick(monday)) == 1
    assert (project.task.status, project.task.scheduled_for) == ("todo", "2026-04-06T09:00:00Z")


@pytest.mark.parametrize(
    ("expression", "meaning", "first", "then"),
    [
        ("* * * * *", "every minute", "2026-03-24T12:01", "2026-03-24T12:02"),
        ("0 9 * * *", "daily at 9:00", "2026-03-25T09:00", "2026-03-26T09:00"),
        ("0 9 * * MON", "every Monday at 9:00", "2026-03-30T09:00", "2026-04-06T09:00"),
        ("30 8 * * 1-5", "weekdays at 8:30", "2026-03-25T08:30", "2026-03-26T08:30"),
        ("0 */2 * * *", "every 2 hours", "2026-03-24T14:00", "2026-03-24T16:00"),
        ("0 9 1 * *", "the first of every month at 9:00", "2026-04-01T09:00", "2026-05-01T09:00"),
    ],
)
def test_an_example_means_what_stands_beside_it(
    project: Project, expression: str, meaning: str, first: str, then: str
) -> None:
    assert project.type(f"batty task schedule 42 --cron '{expression}'").code == 0
    times = Cron(expression).upcoming(TUESDAY, 2)
    assert [f"{each:%Y-%m-%dT%H:%M:%S}" for each in times] == [f"{first}:00", f"{then}:00"], meaning


def test_seconds_may_be_written_and_are_not_needed(project: Project) -> None:
    """Different here: six and seven fields are valid, too, with the seconds first."""
    assert project.type("batty task schedule 42 --cron '30 0 9 * * MON'").code == 0
    assert Cron("30 0 9 * * MON").upcoming(TUESDAY, 1)[0].second == 30


def test_weekdays_are_monday_to_friday() -> None:
    days = {each.isoweekday() for each in Cron("30 8 * * 1-5").upcoming(TUESDAY, 50)}
    assert days == {1, 2, 3, 4, 5}


# How the cron recycler works

DUE = datetime(2026, 3, 30, 9, 0, 5, 700_000, tzinfo=UTC)
LAST = "2026-03-23T09:00:00Z"


@pytest.fixture
def due(project: Project) -> Project:
    """Return a project whose task is done and due."""
    project.type(CRON)
    project.save(status="done", cron_last_run=LAST)
    return project


def test_step_1_all_tasks_are_loaded(due: Project) -> None:
    for number in (1, 2):
        text = due.file.read_text().replace("id: 42", f"id: {number}")
        (due.tasks / f"00{number}.md").write_text(text)
    assert [each.task for each in due.tick(DUE)] == [1, 2, 42]


def test_step_2_only_those_that_are_done_and_have_a_cron_schedule_are_found(due: Project) -> None:
    due.save(status="todo")
    assert due.tick(DUE) == []
    due.save(status="done", cron_schedule=None)
    assert due.tick(DUE) == []


@pytest.mark.parametrize(
    "field", [{"status": "archived"}, {"tags": "archived"}, {"status": "in-progress"}]
)
def test_step_3_archived_and_in_progress_tasks_are_skipped(
    due: Project, field: dict[str, str]
) -> None:
    due.save(**field)
    before = due.file.read_bytes()
    assert due.tick(DUE) == []
    assert due.file.read_bytes() == before


def test_step_4_the_next_trigger_counts_from_the_last_run(due: Project) -> None:
    [found] = due.tick(DUE)
    assert found.trigger_at == datetime(2026, 3, 30, 9, 0, tzinfo=UTC)


def test_step_4_without_a_last_run_it_counts_from_a_day_ago(due: Project) -> None:
    due.save(cron_last_run=None)
    assert due.tick(DUE + DAY) == []
    assert len(due.tick(DUE + DAY - 10 * SECOND)) == 1


def test_step_5_a_trigger_that_is_still_to_come_changes_nothing(due: Project) -> None:
    before = due.file.read_bytes()
    assert due.tick(DUE.replace(hour=8)) == []
    assert due.file.read_bytes() == before


def test_step_6_the_status_is_set_back_to_todo(due: Project) -> None:
    due.tick(DUE)
    assert due.task.status == "todo"


def test_step_7_scheduled_for_is_the_next_future_occurrence(due: Project) -> None:
    due.tick(DUE)
    assert due.task.scheduled_for == "2026-04-06T09:00:00Z"


def test_step_8_cron_last_run_is_now(due: Project) -> None:
    due.tick(DUE)
    assert due.task.cron_last_run == "2026-03-30T09:00:05Z"


@pytest.mark.parametrize(
    "field", ["claimed_by", "branch", "commit", "worktree_path", "blocked_on", "review_owner"]
)
def test_step_9_a_transient_field_is_cleared(due: Project, field: str) -> None:
    due.save(**{field: "x"})
    due.tick(DUE)
    assert field not in due.task.fields


def test_step_10_an_event_is_emitted(due: Project) -> None:
    due.tick(DUE)
    assert due.events() == [
        {"event": "task_recycled", "task": "#42", "reason": "0 9 * * MON", "ts": 1774861205}
    ]


def test_the_recycled_task_is_blocked_until_its_time_and_then_dispatched(due: Project) -> None:
    due.tick(DUE)
    coming = datetime(2026, 4, 6, 9, 0, tzinfo=UTC)
    assert standing(due.task, DUE)[0] is TaskReadiness.BLOCKED
    assert candidates([due.task], now=coming - SECOND) == []
    assert candidates([due.task], now=coming) == [due.task]


def test_it_comes_back_once_however_often_somebody_looks(due: Project) -> None:
    assert [len(due.tick(DUE + n * SECOND)) for n in range(5)] == [1, 0, 0, 0, 0]
    assert len(due.events()) == 1


def test_a_missed_trigger_is_caught_up_for_the_next_occurrence_from_now(due: Project) -> None:
    assert len(due.tick(DUE + 24 * DAY)) == 1  # a Thursday, three Mondays later
    assert due.task.scheduled_for == "2026-04-27T09:00:00Z"


@runs
@story
async def test_a_recycler_in_the_engine_does_all_of_it_by_itself(ground: Ground) -> None:
    """Different here: it is no poll loop. A task that is done comes back when its time is due."""
    file = a_board(ground, cron_schedule="'0 9 * * MON'", cron_last_run="'2026-03-23T09:00:00Z'")
    text = file.read_text().replace("status: todo", "status: done\nclaimed_by: wren\nbranch: x")
    file.write_text(text)
    nine = datetime(2026, 3, 30, 9, tzinfo=UTC)
    async with engine(ground, now=nine - HOUR) as here:
        await at_rest(here, nine - SECOND)
        assert field_of(file, "status") == "done"
        await at_rest(here, nine)
        assert (field_of(file, "status"), field_of(file, "scheduled_for")) == (
            "todo",
            "2026-04-06T09:00:00Z",
        )
        assert field_of(file, "cron_last_run") == "2026-03-30T09:00:00Z"
        assert (field_of(file, "claimed_by"), field_of(file, "branch")) == (None, None)
        assert [each["task"] for each in emitted(ground, "task_recycled")] == ["#42"]
        # It enters the normal flow, and is blocked until its time.
        await at_rest(here, nine + 7 * DAY - MINUTE)
        assert ground.seen("worked") == ""
        await at_rest(here, nine + 7 * DAY + MINUTE, ground, tasks=1)
        assert ground.seen("worked").split() == ["42"]


@runs
@story
async def test_the_daemon_notices_what_is_typed_meanwhile(ground: Ground) -> None:
    a_board(ground, cron_schedule="'0 9 * * *'")
    async with engine(ground, now=TUESDAY) as here:

        async def rule() -> str:
            [found] = [e for e in await here.app.ledger.entries() if e.mark.address == "task:42"]
            return found.mark.rule

        assert await rule() == "0 9 * * *"
        words = ("task", "schedule", "42", "--cron", "0 9 * * MON")
        assert (await type_("batty", *words, at=ground.root)).code == 0

        async def has_changed() -> bool:
            return await rule() == "0 9 * * MON"

        await until(has_changed)


@runs
@story
async def test_a_daemon_that_was_stopped_catches_up_and_counts_from_now(ground: Ground) -> None:
    file = a_board(ground, cron_schedule="'0 9 * * MON'", cron_last_run="'2026-03-23T09:00:00Z'")
    file.write_text(file.read_text().replace("status: todo", "status: done"))
    thursday = datetime(2026, 4, 23, 12, tzinfo=UTC)
    async with engine(ground, now=thursday) as here:
        await at_rest(here, thursday + MINUTE)
        assert field_of(file, "status") == "todo"
        assert field_of(file, "scheduled_for") == "2026-04-27T09:00:00Z"
        assert len(emitted(ground, "task_recycled")) == 1


@runs
@story
async def test_a_task_of_every_minute_is_worked_on_once_a_minute(ground: Ground) -> None:
    file = a_board(ground, cron_schedule="'* * * * *'", scheduled_for="'2026-03-24T12:01:00Z'")
    async with engine(ground, now=TUESDAY) as here:
        for minute in range(1, 11):
            await at_rest(here, TUESDAY + minute * MINUTE + 5 * SECOND, ground, tasks=minute)
            coming = f"2026-03-24T12:{minute + 1:02}:00Z"
            assert (field_of(file, "status"), field_of(file, "scheduled_for")) == ("todo", coming)
            assert len(ground.seen("worked").split()) == minute


@runs
def test_so_it_is_by_a_real_clock(ground: Ground) -> None:
    """Under `make torture` for three minutes, else for a few seconds.

    On a loaded machine a round may take longer, and its trigger is passed over: then this
    waits for the next runs in a row.
    """
    length, count, cron = (60, 4, "* * * * *") if SCALE >= 1 else (4, 3, "*/4 * * * * *")
    a_board(ground, cron_schedule=f"'{cron}'")
    ground.agent('cat > SIDE/told; [ "$HORAE_TASK" ] && date +%s >> SIDE/worked; echo done')
    script = Path(sys.executable).with_name("horae")
    command = [sys.executable, str(script), "up", str(ground.root)]
    engine = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 24 * length
        while not are_in_a_row(ground.seen("worked").split()[-count:], count, length):
            assert time.monotonic() < end, f"worked on at {ground.seen('worked').split()}"
            assert engine.poll() is None, "the engine has ended"
            time.sleep(0.05)
    finally:
        engine.terminate()
        engine.wait(LIMIT)


def are_in_a_row(seconds: list[str], count: int, length: int) -> bool:
    """Tell whether so many runs were at one trigger each, and passed none over."""
    rounds = [int(each) // length for each in seconds]
    return len(rounds) == count and rounds == [*range(rounds[0], rounds[0] + count)]


# Combining

BOTH = "batty task schedule 42 --at '2026-03-25T09:00:00-04:00' --cron '0 9 * * MON'"


def test_both_are_set_at_once_and_it_is_first_blocked_until_the_time(project: Project) -> None:
    assert project.type(BOTH).code == 0
    assert standing(project.task, GATE - SECOND)[0] is TaskReadiness.BLOCKED
    assert standing(project.task, GATE)[0] is TaskReadiness.RUNNABLE


def test_after_it_completes_it_goes_back_with_the_next_monday(project: Project) -> None:
    project.type(BOTH)
    project.save(status="done")
    assert len(project.tick(GATE + 2 * 3600 * SECOND)) == 1
    assert (project.task.status, project.task.scheduled_for) == ("todo", "2026-03-30T09:00:00Z")


@runs
@story
async def test_with_both_it_waits_is_worked_on_and_comes_back_for_monday(ground: Ground) -> None:
    file = a_board(ground)
    words = ("--at", "2026-03-25T09:00:00-04:00", "--cron", "0 9 * * MON")
    assert typed("batty", "task", "schedule", "42", *words, at=ground.root).code == 0
    monday = datetime(2026, 3, 30, 9, tzinfo=UTC)
    async with engine(ground, now=GATE - HOUR) as here:
        await at_rest(here, GATE + MINUTE, ground, tasks=1)
        assert (field_of(file, "status"), field_of(file, "scheduled_for")) == (
            "todo",
            "2026-03-30T09:00:00Z",
        )
        await at_rest(here, monday - MINUTE)
        assert ground.seen("worked").split() == ["42"]
        await at_rest(here, monday + MINUTE, ground, tasks=2)
        assert ground.seen("worked").split() == ["42", "42"]


# Clearing


def test_clear_removes_both_fields_and_the_task_can_be_dispatched_at_once(project: Project) -> None:
    project.type(BOTH)
    assert project.type("batty task schedule 42 --clear").code == 0
    assert project.file.read_text() == PLAIN
    assert standing(project.task, TUESDAY) == (TaskReadiness.RUNNABLE, "")


# The command line and validation


def test_help_names_the_argument_and_the_three_options(project: Project) -> None:
    out = project.type("batty task schedule --help").out
    assert "<TASK_ID>" in out
    for option, about in (
        ("--at <AT>", "Scheduled datetime in RFC3339 format"),
        ("--cron <CRON>", "Cron expression (e.g. '0 9 * * *')"),
        ("--clear", "Clear both scheduled_for and cron_schedule"),
    ):
        [line] = [line for line in out.splitlines() if line.strip().startswith(option)]
        assert about in line


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("42", 1, "Error: at least one of --at, --cron, or --clear is required\n"),
        ("42 --clear --at 2026-03-25T09:00:00Z", 1, "Error: --clear cannot be used with --at\n\nCaused by:\n    --clear removes scheduled_for and cron_schedule; use it alone\n"),
        ("42 --at not-a-date", 1, "Error: invalid RFC3339 timestamp: not-a-date\n\nCaused by:\n    cannot be read; write it like 2026-04-01T09:00:00Z\n"),
        ("42 --cron not-a-cron", 1, "Error: invalid cron expression: "),
        ("42 --cron '0 9 * *'", 1, "Error: invalid cron expression: "),
        ("999 --clear", 1, "Error: task #999 not found in .batty/team_config/board/tasks\n"),
        ("seven --clear", 2, "batty: "),
    ],
)  # fmt: skip
def test_what_is_not_valid_is_rejected_with_a_descriptive_error_and_nothing_is_written(
    project: Project, line: str, code: int, message: str
) -> None:
    ending = project.type(f"batty task schedule {line}")
    assert (ending.code, ending.out) == (code, "")
    assert ending.err.startswith(message)
    assert project.file.read_text() == PLAIN


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (AT, "Task #42 schedule updated: scheduled_for=2026-03-25T09:00:00-04:00\n"),
        (CRON, "Task #42 schedule updated: cron_schedule=0 9 * * MON\n"),
        ("batty task schedule 42 --clear", "Task #42 schedule cleared.\n"),
    ],
)
def test_what_was_done_is_said(project: Project, line: str, said: str) -> None:
    assert project.type(line) == (0, said, "")


def test_an_invalid_expression_is_rejected_at_input_and_not_at_recycle_time(
    project: Project,
) -> None:
    project.save(status="done")
    assert project.type("batty task schedule 42 --cron '61 * * * *'").code == 1
    for expression in ("0 9 * * MON", "*/5 * * * *", "30 8 * * 1-5"):
        assert project.type(f"batty task schedule 42 --cron '{expression}'").code == 0
        found = recycle(project.task, now=DUE, planned_at=DUE - 7 * DAY)
        assert isinstance(found, Recycled), expression


def test_the_list_of_the_board_shows_what_blocks_a_task_and_its_schedule(project: Project) -> None:
    project.type("batty task schedule 42 --at 2999-03-25T09:00:00-04:00 --cron '0 9 * * MON'")
    texts = {
        1: PLAIN.replace("status: todo", "status: todo\nblocked_on: the plumber"),
        2: PLAIN.replace("status: todo", "status: done\ncron_schedule: '@daily'"),
    }
    for number, text in texts.items():
        (project.tasks / f"00{number}.md").write_text(text.replace("id: 42", f"id: {number}"))
    gate = "scheduled for 2999-03-25T09:00:00-04:00"
    assert project.type("batty board list").out.splitlines() == [
        "#1    todo                 Weekly standup report  Blocked (the plumber)",
        "#2    done                 Weekly standup report  cron_schedule=@daily",
        f"#42   todo                 Weekly standup report  Blocked ({gate})  cron_schedule=0 9 * * MON",
    ]


def test_an_id_that_two_files_have_is_refused(project: Project) -> None:
    (project.tasks / "copy.md").write_text(PLAIN)
    files = ", ".join(f"{TASKS}/{name}" for name in (project.file.name, "copy.md"))
    said = f"Error: 2 files have the id 42: {files}; give all but one of them another id\n"
    assert project.type("batty task schedule 42 --clear") == (6, "", said)
    listed = project.type("batty board list")
    assert (listed.code, listed.err) == (6, said)
    assert listed.out.count("Blocked (2 files have the id 42)") == 2


def test_clear_with_no_other_flags_removes_both_unconditionally(project: Project) -> None:
    for _ in range(2):
        assert project.type("batty task schedule 42 --clear").code == 0
        assert project.file.read_text() == PLAIN


# The fields


def test_the_example_file_has_the_three_fields() -> None:
    task, odd = parse(EXAMPLE)
    assert odd == ()
    assert task is not None
    assert task.scheduled_for == "2026-03-31T09:00:00Z"
    assert task.cron_schedule == "0 9 * * MON"
    assert task.cron_last_run == "2026-03-24T09:00:00Z"
    assert task.body == "\nGenerate and distribute the weekly standup report.\n"


def test_the_fields_are_stored_in_the_frontmatter_and_the_rest_of_the_file_stays(
    project: Project,
) -> None:
    project.file.write_text(EXAMPLE)
    project.type(BOTH)
    after = EXAMPLE.replace("2026-03-31T09:00:00Z", "2026-03-25T09:00:00-04:00")
    assert project.file.read_text() == after


def test_a_linked_worktree_shares_the_board_of_its_repository(tmp_path: Path) -> None:
    main, linked = tmp_path / "main", tmp_path / "linked" / "deep"
    (main / ".git" / "worktrees" / "one").mkdir(parents=True)
    linked.mkdir(parents=True)
    (linked.parent / ".git").write_text(f"gitdir: {main}/.git/worktrees/one\n")
    assert project_root(linked) == main
    assert project_root(main / "src") == main
    assert project_root(tmp_path) == tmp_path
