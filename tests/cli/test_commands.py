"""The table of commands: groups, old spellings, near misses and shared options."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from errno import EACCES
from pathlib import Path
from threading import Timer

import click
import pytest

from calling import Call
from commands import engine_up
from horae.cli.group import COMMANDS, NEAR, OLD, Section, horae
from horae.cli.run import run
from waiting import wait_until

PLAN = "* Digest\n:PROPERTIES:\n:SCHEDULE: 0 9 * * *\n:COMMAND: true\n:END:\n"


def every(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield a command, and all those in it."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for word in command.list_commands(context):
            inner = command.get_command(context, word)
            assert inner is not None, f"{name} {word}"
            yield from every(inner, f"{name} {word}")


def test_the_help_lists_the_commands_in_sections(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = call("--help").out.splitlines()
    assert [each.value for each in Section] == [
        line.rstrip(":") for line in lines if line.rstrip(":") in {*Section}
    ]
    shown = {line.split()[0]: line for line in lines if line.startswith("  ") and line.split()}
    for name, row in COMMANDS.items():
        if row.section is not None:
            assert shown[name].endswith(f"  {row.help}"), name  # whole, on one line
    assert max(map(len, lines)) <= 80


def test_every_command_begins_its_help_with_its_line() -> None:
    for name, command in every(horae, "horae"):
        row = COMMANDS.get(name.removeprefix("horae "))
        first = (command.help or "").split("\n\n")[0].replace("\n", " ").strip()
        assert row is None or first == f"{row.help}.", name


@pytest.mark.parametrize("old", OLD)
def test_a_spelling_of_0_1_runs_and_names_the_new_one(call: Call, old: str) -> None:
    ending = call(*old.split(), "--help")
    assert ending.code == 0
    assert ending.out.startswith(f"Usage: horae {OLD[old]} ")
    assert ending.err == f"horae: `horae {old}` is now `horae {OLD[old]}`\n"


def test_a_group_of_0_1_is_renamed_with_its_command(call: Call) -> None:
    assert call("board", "summary").err.splitlines()[0] == (
        "horae: `horae board summary` is now `horae task summary`"
    )
    ending = call("board", "--root", ".", "tick", "--json")
    assert json.loads(ending.err.splitlines()[0])["notice"]["facts"]["new"] == "horae task recycle"
    told = json.loads(call("agents", "--json").err)["notice"]
    assert told["facts"] == {"old": "horae agents", "new": "horae agent list"}


@pytest.mark.parametrize("word", ["delete", "enable", "ls", "start", "reload", "edit", "validate"])
def test_a_word_of_another_program_gets_a_suggestion(call: Call, word: str) -> None:
    ending = call(word)
    assert ending.code == 2
    assert ending.err.startswith(f"horae: No such command '{word}'. ")
    assert "`horae " in ending.err


@pytest.mark.parametrize("word", NEAR)
def test_a_suggestion_names_commands_that_exist(word: str) -> None:
    assert word not in COMMANDS
    assert word not in OLD
    known = {name for name, _ in every(horae, "horae")}
    for part in NEAR[word].split("`")[1::2]:
        words = part.split()
        if words[-1].startswith("-") or words[-1] == "ics" or "COMMAND" in words:
            words = words[:1]
        assert " ".join(words) in known, part


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ("task ls", "list"),
        ("agent lst", "list"),
        ("trigger delete", "remove"),
        ("statsu", "status"),
    ],
)
def test_a_near_miss_is_named(call: Call, line: str, near: str) -> None:
    assert f"Did you mean {near!r}?" in call(*line.split()).err.replace(" or ", "?")


def test_shared_options_may_stand_before_the_command(call: Call, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "plan.org").write_text(PLAN)
    said = ("--at", "2026-06-06T08:00:00Z", "--tz", "UTC")
    after = call("next", "--root", "sub", "-n", "1", "--json", *said)
    assert call("--root", "sub", "--json", *said, "next", "-n", "1") == after
    assert call("--json", "next", "sub", "-n", "1", *said) == after
    assert after.data[0]["at"] == "2026-06-06T09:00:00Z"
    assert call("--root=sub", "agent", "--json", "list").data == []


def test_a_plan_root_is_named_once(call: Call) -> None:
    assert "Option '--root' requires an argument" in call("--root").err
    assert "name the plan root once" in call("up", "a", "--root", "b").err
    assert "name the plans once" in call("check", "a", "--root", "b").err


def test_next_shows_the_views_that_have_names_of_their_own(call: Call, tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    said = ("--at", "2026-06-06T08:00:00Z", "--days", "2", "--json")
    for view in ("agenda", "due"):
        assert call("next", "--view", view, *said).data == call(view, *said).data
    assert call("next", "--days", "2").code == 2


# list


def test_list_reads_the_files_where_no_engine_was(call: Call, tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(
        PLAN + "* Odd\n:PROPERTIES:\n:SCHEDULE: x\n:COMMAND: true\n:END:\n"
    )
    rows = call("list", "--at", "2026-06-06T00:00:00Z", "--json").data
    assert [(row["title"], row["state"], row["last"]) for row in rows] == [
        ("Digest", "new", None),
        ("Odd", "broken", None),
    ]
    assert rows[0]["rule"] == "at 09:00 every day"
    assert rows[0]["next_at"] == "2026-06-06T09:00:00+02:00"
    assert [row["title"] for row in call("list", "--state", "broken", "--json").data] == ["Odd"]
    assert [row["title"] for row in call("list", "--search", "dig", "--json").data] == ["Digest"]
    assert call("list", "--source", "crew").out == "no entries\n"


def test_list_shows_state_and_last_run_of_the_ledger(call: Call, tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(PLAN + PLAN.replace("Digest", "Alpha"))
    assert call("run", "Digest").code == 0
    assert call("pause", "Alpha").code == 0
    rows = call("list", "--json").data
    assert [(row["title"], row["state"]) for row in rows] == [
        ("Alpha", "paused"),
        ("Digest", "armed"),
    ]
    assert rows[1]["last"]["status"] == "done"
    assert call("list", "--sort", "last", "--json").data[0]["title"] == "Digest"
    assert "Digest" in call("list").out


def test_list_says_since_when_a_time_is_overdue_and_which_entries_are_gone(
    call: Call, tmp_path: Path
) -> None:
    (tmp_path / "plan.org").write_text(PLAN + PLAN.replace("Digest", "Alpha"))
    assert call("run", "Digest").code == 0
    next_at = datetime.fromisoformat(call("list", "--search", "Alpha", "--json").data[0]["next_at"])
    late = ("--at", (next_at + timedelta(minutes=5)).isoformat())
    assert call("list", *late).out.count("overdue since") == 2
    status = call("status", *late).out
    assert "overdue since (decided at the next `horae up`)\n" in status
    assert status.index("overdue since") < status.index("Alpha  plan.org")
    assert "next\n" not in status
    on_time = call("status", "--at", next_at.isoformat()).out
    assert ("overdue" in on_time, "next\n" in on_time) == (False, True)
    assert call("list", "--state", "new").out == "no entries\n"
    (tmp_path / "plan.org").write_text(PLAN)
    assert call("run", "Digest").code == 0
    [gone] = call("list", "--state", "gone", "--json").data
    assert (gone["title"], gone["state"]) == ("Alpha", "gone")


def test_status_and_list_take_the_directory_that_up_takes(call: Call, tmp_path: Path) -> None:
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "plan.org").write_text(PLAN)
    assert call("run", "Digest", "--root", "plans").code == 0
    at = ("--at", "2026-06-06T00:00:00Z", "--json")
    for command in ("status", "list"):
        assert call(command, "plans", *at).data == call(command, "--root", "plans", *at).data
        assert call(command, "none").code == 4


# run


def test_a_run_of_what_is_not_there_leaves_no_ledger_behind(call: Call, tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    for word, said in {
        "Digets": "no entry is called 'Digets'; did you mean 'Digest'?",
        "none.org": "none.org: does not exist",
        "plan.org": "plan.org: contains no workflow",
    }.items():
        ending = call("run", word)
        assert (ending.code, said in ending.err) == (4, True)
    assert not (tmp_path / ".horae").exists()
    assert call("run", "digest").code == 0


# retry


def test_retry_makes_a_new_receipt_for_the_same_entry(call: Call, tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    first = call("run", "Digest", "--json").data
    again = call("retry", str(first["receipt"]), "--json").data
    assert again["receipt"] != first["receipt"]
    assert (again["entry"], again["status"]) == (first["entry"], "done")
    assert len(call("history", "--json").data) == 2


def test_retry_keeps_the_scheduled_time(call: Call, tmp_path: Path) -> None:
    tell = PLAN.replace("true", "sh -c 'echo $HORAE_PLANNED'")
    (tmp_path / "plan.org").write_text(tell)
    assert call("run", "Digest").code == 0
    window = ("--from", "2026-06-01", "--to", "2026-06-02")
    [number] = call("backfill", "Digest", *window, "--json").data["receipts"]
    waits = call("retry", str(number))
    assert (waits.code, "is waiting" in waits.err) == (6, True)
    with engine_up(tmp_path):
        wait_until(lambda: call("history", "--json").data[0]["status"] == "done")
    ending = call("retry", str(number))
    assert (ending.code, ending.out) == (0, "2026-06-01T07:00:00Z\n")


def test_retry_says_that_a_receipt_is_not_there(call: Call, tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    call("run", "Digest")
    assert call("retry", "99").code == 4
    assert call("retry", "nothing").code == 2


# stop


def test_stop_without_an_engine_is_done(call: Call) -> None:
    ending = call("stop", "--json")
    assert (ending.code, ending.data) == (0, {"stopped": False, "pid": None, "seconds": 0.0})


def test_stop_ends_the_engine_and_tells_what_it_waits_for(call: Call, tmp_path: Path) -> None:
    waits = "sh -c 'until test -e go; do sleep 0.2; done'"
    (tmp_path / "plan.org").write_text(PLAN.replace("true", waits))
    with engine_up(tmp_path) as (process, _):
        assert call("run", "Digest", "--no-wait").code == 0
        wait_until(lambda: call("list", "--json").data[0]["state"] == "running")
        late = call("stop", "--timeout", "1s", "--json")
        error = json.loads(late.err)["error"]
        assert (late.code, error["code"]) == (124, "not_stopped")
        assert error["facts"]["runs"] == ["Digest"]
        Timer(0.5, (tmp_path / "go").touch).start()  # not before: it would stop meanwhile
        ending = call("stop")
        assert (ending.code, ending.out) == (0, f"the engine (process {process.pid}) has stopped\n")
        assert process.wait(10) == 0
    assert call("history", "--json").data[0]["status"] == "done"


def test_a_file_that_the_system_refuses_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    def refused() -> None:
        raise PermissionError(EACCES, "Permission denied", ".horae/lock")

    assert run(click.Command("status", callback=refused), name="horae", args=[]) == 75
    assert capsys.readouterr().err == "horae: .horae/lock: permission denied\n"
