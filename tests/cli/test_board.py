"""`task` and `board` as a person types them."""

import asyncio
import json
from datetime import datetime
from pathlib import Path

import pytest

from calling import Call
from horae.sources.board.source import BoardSource
from horae.sources.board.tasks import Board
from horae.store.sqlite import SqliteLedger

REPORT = """\
---
id: 42
title: Weekly standup report  # ours
status: todo
priority: medium
---

Generate and distribute the weekly standup report.
"""


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    folder = tmp_path / "board" / "tasks"
    folder.mkdir(parents=True)
    (folder / "042-report.md").write_text(REPORT)
    return folder


def text_of(tasks: Path) -> str:
    return (tasks / "042-report.md").read_text()


def with_lines(*lines: str) -> str:
    return REPORT.replace("medium\n", "medium\n" + "".join(f"{line}\n" for line in lines))


# Schedule


@pytest.mark.parametrize(
    ("options", "said", "lines"),
    [
        (
            ("--at", "2026-03-25T09:00:00-04:00"),
            "updated: scheduled_for=2026-03-25T09:00:00-04:00",
            ('scheduled_for: "2026-03-25T09:00:00-04:00"',),
        ),
        (("--cron", "*/5 * * * *"), "updated: cron_schedule=*/5 * * * *", ('cron_schedule: "*/5 * * * *"',)),
        (
            ("--at", "2026-03-25T09:00:00-04:00", "--cron", "0 9 * * MON"),
            "updated: scheduled_for=2026-03-25T09:00:00-04:00, cron_schedule=0 9 * * MON",
            ('scheduled_for: "2026-03-25T09:00:00-04:00"', 'cron_schedule: "0 9 * * MON"'),
        ),
        (
            ("--cron", "@daily", "--tz", "Asia/Tokyo", "--catchup", "none", "--until", "2026-12-31"),
            "updated: cron_schedule=@daily, timezone=Asia/Tokyo, catchup=none, until=2026-12-31",
            ('cron_schedule: "@daily"', "timezone: Asia/Tokyo", "catchup: none", 'until: "2026-12-31"'),
        ),
        (("--clear",), "cleared.", ()),
    ],
)  # fmt: skip
def test_a_schedule_is_written_as_it_was_given_and_nothing_else_changes(
    call: Call, tasks: Path, options: tuple[str, ...], said: str, lines: tuple[str, ...]
) -> None:
    ending = call("task", "schedule", "42", *options, "--table")
    assert (ending.code, ending.out, ending.err) == (0, f"Task #42 schedule {said}\n", "")
    assert text_of(tasks) == with_lines(*lines)


def test_clearing_takes_both_fields_and_leaves_the_last_run(call: Call, tasks: Path) -> None:
    kept = 'cron_last_run: "2026-03-24T09:00:00Z"'
    both = ("cron_schedule: '@daily'", "scheduled_for: x")
    (tasks / "042-report.md").write_text(with_lines(*both, kept))
    for _ in range(2):
        assert call("task", "schedule", "42", "--clear").code == 0
        assert text_of(tasks) == with_lines(kept)


def test_a_schedule_that_is_set_anew_does_not_go_on_from_the_old_one(
    call: Call, tasks: Path
) -> None:
    (tasks / "042-report.md").write_text(with_lines("cron_last_run: 2020-01-01T00:00:00Z"))
    assert call("task", "schedule", "42", "--cron", "@daily").code == 0
    assert text_of(tasks) == with_lines('cron_schedule: "@daily"')
    (tasks / "042-report.md").write_text(with_lines("cron_schedule: x", "cron_last_run: y"))
    assert call("task", "schedule", "42", "--cron", "@daily").code == 0
    assert text_of(tasks) == with_lines('cron_schedule: "@daily"', "cron_last_run: y")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("42",), 2, "at least one of --at, --cron, --when or --clear is required"),
        (("42", "--tz", "UTC"), 2, "at least one of --at, --cron, --when or --clear is required"),
        (("42", "--at", "not-a-date"), 2, "cannot be read; write it like 2026-04-01T09:00:00Z"),
        (("42", "--at", "2026-03-25"), 2, "timestamp: 2026-03-25 (has no time of day; write"),
        (("42", "--at", "2026-03-25T09:00:00"), 2, "has no offset; end with Z"),
        (("42", "--at", "2026-03-25T09:00:00-0800"), 2, "cannot be read; write it like"),
        (("42", "--cron", "not-a-cron"), 2, "invalid cron expression: "),
        (("42", "--cron", "0 9 30 2 *"), 2, "matches no date"),
        (("42", "--cron", "0 9 * * FRI-MON"), 2, "invalid cron expression: "),
        (("42", "--clear", "--at", "2026-03-25T09:00:00Z"), 2, "--clear cannot be used with --at"),
        (
            ("42", "--clear", "--cron", "@daily", "--tz", "UTC"),
            2,
            "--clear cannot be used with --cron or --tz",
        ),
        (("42", "--cron", "@daily", "--tz", "Mars/Base"), 2, "Mars/Base"),
        (("42", "--cron", "@daily", "--until", "soon"), 2, "invalid last day: soon (write a date"),
        (("999", "--clear"), 4, "task #999 not found in board/tasks"),
        (("x", "--clear"), 2, "'x' is not the number of a task"),
        (("--clear",), 2, "Missing argument"),
        (("42", "--never"), 2, "--never"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(
    call: Call, tasks: Path, options: tuple[str, ...], code: int, message: str
) -> None:
    ending = call("task", "schedule", *options)
    assert (ending.code, ending.out) == (code, "")
    assert message in ending.err
    assert text_of(tasks) == REPORT


@pytest.mark.parametrize(
    "words",
    [
        ("schedule", "42", "--clear"),
        ("edit", "42", "--priority", "high"),
        ("transition", "42", "in-progress"),
        ("assign", "42", "--execution-owner", "wren"),
        ("archive", "42"),
        ("show", "42"),
        ("next", "42"),
    ],
)
def test_a_number_that_two_files_have_is_refused(
    call: Call, tasks: Path, words: tuple[str, ...]
) -> None:
    copy = tasks / "007-copy.md"
    copy.write_text(REPORT)
    ending = call("task", *words)
    both = "board/tasks/007-copy.md, board/tasks/042-report.md"
    said = f"horae: 2 files have the id 42: {both}; give all but one of them another id\n"
    assert (ending.code, ending.out, ending.err) == (6, "", said)
    assert (text_of(tasks), copy.read_text()) == (REPORT, REPORT)


NAMING = ("run", "pause", "why", "history")


@pytest.mark.parametrize("words", [*((each, "task:42:work") for each in NAMING), ("run", "1")])
def test_so_is_the_entry_that_goes_by_it(call: Call, tasks: Path, words: tuple[str, ...]) -> None:
    now = datetime.fromisoformat("2026-04-01T09:00Z")

    async def keeping() -> None:
        scan = await BoardSource(Board.below("."), now=lambda: now).scan({})
        ledger = await SqliteLedger.open(Path(".horae"), now=now)
        await ledger.scan("board", scan, now=now, term=1)
        await ledger.close()

    asyncio.run(keeping())
    (tasks / "007-copy.md").write_text(REPORT)
    ending = call(*words)
    both = "2 files have the id 42: board/tasks/007-copy.md, board/tasks/042-report.md"
    assert (ending.code, ending.out) == (6, "")
    assert both in ending.err


def test_a_list_names_the_files_of_such_a_number(call: Call, tasks: Path) -> None:
    (tasks / "007-copy.md").write_text(REPORT)
    ending = call("task", "list")
    assert ending.code == 6
    assert ending.out.count("Blocked (2 files have the id 42)") == 2
    assert ending.out.split("\n")[0].split() == [
        *("id", "status", "priority", "title", "readiness", "schedule")
    ]
    assert "007-copy.md, board/tasks/042-report.md" in ending.err
    health = call("task", "health")
    assert (health.code, health.out.count("2 files have the id 42")) == (1, 1)


def test_without_a_board_that_is_said(call: Call) -> None:
    ending = call("task", "schedule", "42", "--clear")
    missing = "board/tasks: the board cannot be read: the directory does not exist"
    assert (ending.code, ending.err) == (4, f"horae: {missing}; `horae task add` creates it\n")
    assert call("task", "list").code == 4


def test_errors_are_json_where_json_was_asked_for(call: Call, tasks: Path) -> None:
    ending = call("task", "show", "9", "--json")
    assert ending.code == 4
    assert json.loads(ending.err)["error"]["code"] == "task_missing"


# The other verbs


def test_a_board_that_cannot_be_created_is_said(call: Call, tmp_path: Path) -> None:
    (tmp_path / "board").write_text("")
    ending = call("task", "add", "Report")
    assert ending.code == 1
    assert ending.err.startswith("horae: board/tasks: cannot be created: is not a directory")


def test_a_task_is_added_shown_edited_and_put_away(call: Call, tasks: Path) -> None:
    made = call(
        "task", "add", "Sow: beans", "--status", "todo", "--tag", "a", "--depends-on", "42",
        "--cron", "0 9 * * *", "--body", "In rows.", "--json",
    )  # fmt: skip
    assert (made.code, made.data["id"], made.data["title"]) == (0, 43, "Sow: beans")
    shown = call("task", "show", "43", "--json", "--at", "2026-03-25T12:00:00Z").data
    assert (shown["standing"], shown["reason"]) == ("Blocked", "unmet dependency #42")
    assert shown["next"][0] == "2026-03-26T09:00:00Z trigger"
    text = call("task", "show", "43", "--table").out
    assert "  readiness     Blocked\n" in text
    assert "  tags          a\n  depends_on    42\n" in text
    done = call(
        "task", "edit", "43", "--title", "Sow", "--set", "estimate=3h", "--unset", "tags", "--table"
    )
    assert (done.code, done.out) == (0, "Task #43 metadata updated.\n")
    again = call("task", "edit", "43", "--title", "Sow", "--unset", "tags", "--table")
    assert (again.code, again.out) == (0, "Task #43: nothing to change.\n")
    assert 'estimate: "3h"\n' in (tasks / "043-sow-beans.md").read_text()
    for _ in range(2):  # what is there already stays there
        put_away = call("task", "archive", "43", "--table")
        assert put_away.out == "Task #43 archived: board/archive/043-sow-beans.md\n"
    shown = call("task", "show", "43", "--json").data
    assert (shown["status"], shown["standing"], shown["next"]) == ("archived", None, [])
    assert [each["id"] for each in call("task", "list", "--json").data] == [42]


def test_the_first_task_makes_the_board(call: Call, tmp_path: Path) -> None:
    made = call("task", "add", "Sow", "--table")
    assert (made.code, made.out) == (0, "Task #1 added: board/tasks/001-sow.md\n")
    refused = call("task", "add", "Sow", "--root", "nowhere")
    assert (refused.code, (tmp_path / "nowhere").exists()) == (4, False)


def test_what_depends_on_a_task_that_was_put_away_can_be_done(call: Call, tasks: Path) -> None:
    call("task", "add", "Sow", "--depends-on", "42")
    assert call("task", "show", "43", "--json").data["reason"] == "unmet dependency #42"
    assert call("task", "archive", "42").code == 0
    assert not list(tasks.glob("042*"))
    assert call("task", "summary", "--json").data["archived"] == 1
    assert call("task", "show", "43", "--json").data["standing"] == "Runnable"
    assert call("task", "add", "Reap", "--json").data["id"] == 44
    assert call("task", "health").code == 0
    gone = call("task", "schedule", "42", "--clear")
    assert (gone.code, "it was archived as board/archive/042" in gone.err) == (4, True)


def test_what_somebody_works_on_is_not_put_away(call: Call, tasks: Path) -> None:
    call("task", "transition", "42", "in-progress")
    refused = call("task", "archive", "42")
    assert refused.code == 1
    assert "a task cannot move from in-progress to archived, only to" in refused.err
    assert list(tasks.glob("042*"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "name a field to change"),
        (("--set", "status=done"), "edit does not change status; use `horae task transition`"),
        (("--set", "parent=x"), "parent is a whole number, not 'x'"),
        (("--set", "a b=x"), "is not a field name"),
        (("--set", "x"), "'x' is not KEY=VALUE"),
        (("--depends-on", "42"), "task #42 would depend on itself: #42 -> #42"),
    ],
)
def test_an_edit_that_makes_no_sense_is_refused(
    call: Call, tasks: Path, options: tuple[str, ...], message: str
) -> None:
    ending = call("task", "edit", "42", *options)
    assert ending.code != 0
    assert message in ending.err
    assert text_of(tasks) == REPORT


def test_a_task_moves_where_it_may(call: Call, tasks: Path) -> None:
    assert call("task", "transition", "42", "in_progress", "--table").out == (
        "Task #42 transitioned to in-progress.\n"
    )
    ending = call("task", "transition", "42", "done")
    assert ending.code == 1
    assert "a task cannot move from in-progress to done, only to" in ending.err
    assert call("task", "transition", "42", "nowhere").code == 2
    assert "status: in-progress\n" in text_of(tasks)


def test_owners_are_set_and_cleared(call: Call, tasks: Path) -> None:
    said = call(
        "task", "assign", "42", "--execution-owner", "wren", "--review-owner", "ann", "--table"
    )
    assert said.out == "Task #42 ownership updated.\n"
    shown = call("task", "show", "42", "--json").data
    assert (shown["claimed_by"], shown["review_owner"]) == ("wren", "ann")
    call("task", "assign", "42", "--execution-owner", "", "--review-owner", "")
    assert text_of(tasks) == REPORT
    assert (
        "name an owner: --execution-owner, --review-owner or both"
        in call("task", "assign", "42").err
    )


def test_the_board_is_listed_and_searched(call: Call, tasks: Path) -> None:
    (tasks / "007-sow.md").write_text(
        "---\nid: 7\ntitle: Sow\nstatus: todo\nscheduled_for: 2999-01-01T00:00:00Z\n---\n"
    )
    rows = call("task", "list", "--json").data
    assert [(row["id"], row["standing"], row["reason"]) for row in rows] == [
        (7, "Blocked", "scheduled for 2999-01-01T00:00:00Z"),
        (42, "Runnable", None),
    ]
    assert [
        row["id"] for row in call("task", "list", "--search", "DISTRIBUTE weekly", "--json").data
    ] == [42]
    assert call("task", "list", "--status", "done", "--table").out == "no tasks\n"
    lines = call("task", "summary", "--table").out.splitlines()
    assert lines[1] == "todo        2"
    assert len(lines) == 7


def test_what_comes_is_shown_in_order(call: Call, tasks: Path) -> None:
    now = ("--at", "2026-03-24T12:00:00Z")
    call("task", "schedule", "42", "--at", "2026-03-25T09:00:00-04:00", "--cron", "0 9 * * MON")
    rows = call("task", "next", "-n", "2", *now, "--json").data
    assert [(row["at"], row["what"]) for row in rows] == [
        ("2026-03-25T13:00:00Z", "scheduled"),
        ("2026-03-30T09:00:00Z", "trigger"),
    ]
    assert call("task", "next", "42", "-n", "1", *now, "--table").out == (
        "2026-03-25 Wed 13:00 UTC  #42  Weekly standup report  (scheduled)\n"
    )
    call("task", "schedule", "42", "--cron", "0 9 * * MON", "--tz", "Europe/Berlin")
    assert call("task", "next", "42", "-n", "1", *now, "--table").out == (
        "2026-03-25 Wed 14:00 Europe/Berlin  #42  Weekly standup report  (scheduled)\n"
    )


def test_health_says_what_is_wrong_and_fails(call: Call, tasks: Path) -> None:
    assert call("task", "health", "--table").out == "1 task checked, no problems\n"
    (tasks / "042-report.md").write_text(with_lines("depends_on: [7]", "cron_schedule: 0 25 * * *"))
    (tasks / "1.md").write_text("no task")
    ending = call("task", "health", "--table")
    assert ending.code == 1
    assert "1.md:1:1: a task file must begin with a line of three dashes" in ending.out
    assert "#42: depends on #7, which does not exist; add the task" in ending.out
    assert "#42: the task cannot be recycled: cron '0 25 * * *': hour 25" in ending.out
    assert len(call("task", "health", "--json").data) == 3


def test_a_tick_brings_back_what_is_done_and_due_and_writes_the_event(
    call: Call, tasks: Path
) -> None:
    lines = ("cron_schedule: 0 9 * * MON", "cron_last_run: 2026-03-23T09:00:00Z")
    (tasks / "042-report.md").write_text(with_lines(*lines).replace("todo", "done"))
    said = "cron: recycled task #42 (schedule: 0 9 * * MON) back to todo at 2026-03-30T09:00:05Z;"
    for now, out in (
        ("2026-03-30T08:59:59Z", "no task is due to recur\n"),
        ("2026-03-30T09:00:05Z", f"{said} scheduled for 2026-04-06T09:00:00Z\n"),
        ("2026-03-30T09:00:10Z", "no task is due to recur\n"),
    ):
        assert call("task", "recycle", "--at", now, "--table").out == out
    events = (tasks.parent / "events.jsonl").read_text()
    assert (
        events == '{"event":"task_recycled","task":"#42","reason":"0 9 * * MON","ts":1774861205}\n'
    )


def test_one_broken_task_stops_no_other_from_coming_back(call: Call, tasks: Path) -> None:
    lines = ("cron_schedule: '@daily'", "cron_last_run: 2026-03-23T09:00:00Z")
    text = with_lines(*lines).replace("todo", "done")
    (tasks / "042-report.md").write_text(text)
    (tasks / "1.md").write_text("no task")
    (tasks / "2.md").write_text(text.replace("42", "2"))
    (tasks / "2.md").chmod(0o400)
    ending = call("task", "recycle", "--at", "2026-03-30T09:00:05Z", "--json")
    assert [row["task"] for row in ending.data] == [42]
    assert ending.code == 1
    assert "1.md" in ending.err
    assert "2.md: is read-only" in ending.err


def test_the_board_of_the_other_tool_is_found(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / ".batty" / "team_config" / "board" / "tasks"
    folder.mkdir(parents=True)
    (folder / "042-report.md").write_text(REPORT)
    [row] = call("task", "list", "--json").data
    assert row["file"] == ".batty/team_config/board/tasks/042-report.md"
    assert [row["id"] for row in call("task", "list", "--root", str(tmp_path), "--json").data] == [
        42
    ]


@pytest.mark.parametrize("number", ["x", "-1", "4294967296", "9" * 5000, "1.5", "٤٢"])
def test_what_is_no_number_of_a_task_is_said_to_be_none(call: Call, number: str) -> None:
    ending = call("task", "show", "--", number)
    assert ending.code == 2
    assert "is not the number of a task; write it like 42" in ending.err


@pytest.mark.usefixtures("tasks")
def test_a_number_may_be_typed_as_it_is_shown(call: Call) -> None:
    assert call("task", "show", "#42", "--json").data["id"] == 42


def test_check_shows_a_broken_task_with_line_and_column_beside_the_rest(
    call: Call, tasks: Path
) -> None:
    assert (call("check").code, call("check", "--json").data) == (0, [])
    (tasks / "043-broken.md").write_text("---\nid: 43\ntitle: [\n---\n")
    (tasks / "044-late.md").write_text("---\nid: 44\ntitle: L\ncron_schedule: 0 25 * * *\n---\n")
    (tasks.parents[1] / "plan.org").write_text("* Odd :workflow:\nSCHEDULED: <2026-02-30 Mon>\n")
    for paths in ((), (".",), (str(tasks.parents[1]),)):
        ending = call("check", *paths, "--json")
        found = {each["file"].rpartition("/")[2]: each for each in ending.data}
        assert ending.code == 1
        assert set(found) == {"plan.org", "043-broken.md", "044-late.md"}
        broken = found["043-broken.md"]
        assert (broken["code"], broken["severity"]) == ("task", "error")
        assert (broken["line"] >= 3, broken["column"] >= 1) == (True, True)
        assert "hour 25" in found["044-late.md"]["message"]
    assert {each["file"] for each in call("check", "plan.org", "--json").data} == {"plan.org"}
