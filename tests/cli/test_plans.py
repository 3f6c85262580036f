"""`horae query`, `tangle` and `check`, used as a person or a program would."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import horae
from calling import Call

GARDEN = """\
* TODO Sow herbs :garden:
SCHEDULED: <2026-04-01 Wed 09:00 +1w> DEADLINE: <2026-04-30 Thu>
:PROPERTIES:
:ID: herbs
:OWNER: wren
:END:
* DONE Prune :garden:winter:
DEADLINE: <2026-02-01 Sun>
* Harvest :workflow:
:PROPERTIES:
:SCHEDULE: 0 6 * * 6
:END:
** Pick :component:
#+begin_src sh :out basket
echo basil
#+end_src
"""
TOO_DEEP = "this plan is nested too deeply to be printed"


@pytest.fixture(autouse=True)
def garden(tmp_path: Path) -> None:
    (tmp_path / "garden.org").write_text(GARDEN)


def titles(rows: list[dict[str, Any]]) -> list[str]:
    return [row["title"] for row in rows]


def test_json_is_the_very_data_that_the_functions_return(call: Call) -> None:
    assert call("query", "garden.org", "--json").data == horae.query(GARDEN)
    assert call("tangle", "garden.org", "--json").data == horae.tangle(GARDEN)
    assert call("check", "garden.org", "--json").data == [
        found.data() for found in horae.check(GARDEN)
    ]


def test_a_directory_gives_one_object_per_file(call: Call, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "empty.org").write_text("")
    assert call("query", ".", "--json").data == [
        {"file": "garden.org", "data": horae.query(GARDEN)},
        {"file": "sub/empty.org", "data": []},
    ]


def test_without_a_path_the_plans_beneath_the_current_directory_are_read(call: Call) -> None:
    assert call("query", "--json").data == call("query", ".", "--json").data


def test_lines_of_json_are_one_per_file(call: Call) -> None:
    lines = call("tangle", "--jsonl", "garden.org", "garden.org").out.splitlines()
    assert [json.loads(line)["file"] for line in lines] == ["garden.org", "garden.org"]


def test_a_dash_reads_standard_input(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "horae.cli.main", "query", "--json", "-"],
        input=GARDEN.encode(),
        capture_output=True,
        check=True,
        cwd=tmp_path,
    )
    assert json.loads(done.stdout) == horae.query(GARDEN)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--tag", "garden"], ["Sow herbs", "Prune"]),
        (["--tag", "garden", "--tag", "winter"], ["Prune"]),
        (["--state", "TODO"], ["Sow herbs"]),
        (["--state", "TODO", "--state", "DONE"], ["Sow herbs", "Prune"]),
        (["--scheduled"], ["Sow herbs", "Harvest"]),
        (["--prop", "owner=wren"], ["Sow herbs"]),
        (["--prop", "OWNER=moss"], []),
        (["--overdue", "--at", "2026-04-30T23:59:00+02:00"], []),
        (["--overdue", "--at", "2026-05-01T00:00:01+02:00"], ["Sow herbs"]),
        (["--overdue", "--at", "2026-05-02"], ["Sow herbs"]),
        (["--overdue", "--at", "2026-05-01 00:01"], ["Sow herbs"]),
        (["--overdue", "--at", "2026-05-02", "--tag", "winter"], []),
    ],
    ids=" ".join,
)
def test_filters_keep_the_headlines_that_have_all_that_is_asked(
    call: Call, options: list[str], expected: list[str]
) -> None:
    assert titles(call("query", "garden.org", *options, "--json").data) == expected


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["query", "--prop", "owner"], "--prop takes KEY=VALUE, not 'owner'."),
        (["query", "--at", "2026-01-01"], "--at requires --overdue."),
        (["query", "--overdue", "--at", "noon"], "'noon' is not a time; write it like"),
        (["query", "--overdue", "--at", "2026-02-30"], "'2026-02-30' is not a valid time"),
        (["querry"], "No such command 'querry'. Did you mean 'query'?"),
        (["query", "--no-such-option"], "No such option"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_wrong_command_line_says_what_would_be_right(
    call: Call, args: list[str], message: str
) -> None:
    ending = call(*args)
    assert ending.code == 2
    assert message in ending.err
    assert "Try 'horae" in ending.err or args[0] == "query"
    assert ending.out == ""


def test_what_cannot_be_read_is_one_line_each_and_the_rest_goes_on(
    call: Call, tmp_path: Path
) -> None:
    (tmp_path / "latin.org").write_bytes(b"* caf\xe9\n")
    (tmp_path / "bare").mkdir()
    os.mkfifo(tmp_path / "pipe.org")
    (tmp_path / "none.org").write_bytes(b"")
    paths = ["gone.org", "latin.org", "bare", "pipe.org", "none.org", "garden.org"]
    ending = call("query", *paths)
    rows = [line.split()[0] for line in ending.out.splitlines()]
    assert rows == ["where", "garden.org:1", "garden.org:7", "garden.org:9", "garden.org:13"]
    assert ending.err.splitlines() == [
        "horae: gone.org: does not exist",
        "horae: latin.org:1:6: 0xe9 at byte 5 is not UTF-8; save the file as UTF-8",
        "horae: bare: contains no file named *.org; `horae init bare` writes a plan there",
        "horae: pipe.org: is a FIFO; only regular files can be plans",
    ]
    assert ending.code == 4


def test_a_check_names_no_success_where_a_file_cannot_be_read(call: Call, tmp_path: Path) -> None:
    (tmp_path / "latin.org").write_bytes(b"* caf\xe9\n")
    for paths, code, said in (
        (["latin.org"], 1, "1 file cannot be read\n"),
        (["latin.org", "garden.org"], 1, "1 file checked, 1 file cannot be read\n"),
        (["gone.org"], 4, ""),
        (["gone.org", "garden.org"], 4, "1 file checked\n"),
    ):
        ending = call("check", "--table", *paths)
        assert (ending.code, ending.out) == (code, said)


def test_an_error_has_one_shape_where_json_was_asked_for(call: Call) -> None:
    ending = call("query", "--json", "gone.org", "garden.org")
    assert json.loads(ending.err) == {
        "error": {
            "code": "plan_missing",
            "message": "gone.org: does not exist",
            "facts": {"path": "gone.org", "reason": "does not exist"},
        }
    }


def test_check_reports_all_files_at_once_and_fails_on_errors(call: Call, tmp_path: Path) -> None:
    (tmp_path / "bad.org").write_text("* Pay\nDEADLINE: <2026-6-6>\n* Rest :workflw:\n")
    ending = call("check", "garden.org", "bad.org", "--json")
    assert ending.code == 1
    assert [(each["file"], each["line"], each["code"]) for each in ending.data] == [
        ("bad.org", 2, "date-shape"),
        ("bad.org", 3, "tag-typo"),
    ]


def test_a_check_reads_the_crew_and_the_keeper_that_the_settings_name(
    call: Call, tmp_path: Path
) -> None:
    (tmp_path / "horae.toml").write_text("crew.def = 'crew.org'\n")
    (tmp_path / "crew.org").write_text(
        "* wren\n:PROPERTIES:\n:DEF: gone.org\n:LIFECYCLE: day.org\n:INTERVAL: 1m\n:END:\n"
        "* reed\n:PROPERTIES:\n:INTERVAL: 10m\n:END:\n* wren\n:PROPERTIES:\n:DEF: x.org\n:END:\n"
    )
    (tmp_path / "day.org").write_text(
        "* work\n:PROPERTIES:\n:NEXT: rset\n:MIN-INTERVAL: 9h\n:END:\n"
        "* rest\n:PROPERTIES:\n:KIND: rem\n:END:\n"
    )
    ending = call("check", "garden.org", "--json")
    assert ending.code == 1
    assert {(Path(each["file"]).name, each["line"], each["code"]) for each in ending.data} == {
        ("crew.org", 1, "agent-tree"),
        ("crew.org", 1, "member-file"),
        ("crew.org", 7, "member-def"),
        ("crew.org", 11, "member-twice"),
        ("day.org", 1, "gate-starves"),
        ("day.org", 3, "state-next"),
        ("day.org", 6, "rest-only"),
        ("day.org", 6, "state-last"),
        ("day.org", 6, "state-unreachable"),
    }
    (tmp_path / "horae.toml").write_text("keeper.def = 'k.org'\nlifecycle.def = 'day.org'\n")
    files = {Path(each["file"]).name for each in call("check", "garden.org", "--json").data}
    assert files == {"k.org", "day.org"}


def test_a_check_reports_what_is_no_setting(call: Call, tmp_path: Path) -> None:
    (tmp_path / "horae.toml").write_text("[gate]\nfoo = 1\n")
    ending = call("check", "garden.org", "--json")
    [found] = ending.data
    assert ending.code == 0
    assert (found["file"], found["line"], found["code"]) == ("horae.toml", 2, "setting-unknown")
    assert found["message"] == "there is no setting 'gate.foo'; it is ignored"


def test_the_total_counts_the_files_that_have_findings(call: Call, tmp_path: Path) -> None:
    (tmp_path / "horae.toml").write_text("[gate]\nfoo = 1\n")
    (tmp_path / "odd.org").write_text("* Rest :workflw:\n")
    assert call("check", "--table", "garden.org", "odd.org").out.splitlines()[-1] == (
        "2 warnings in 2 files"
    )
    (tmp_path / "horae.toml").unlink()
    assert call("check", "--table", "garden.org", "odd.org").out.splitlines()[-1] == (
        "1 warning in 1 file"
    )


def test_warnings_alone_do_not_fail_a_check(call: Call, tmp_path: Path) -> None:
    (tmp_path / "odd.org").write_text("* Rest :workflw:\n")
    assert call("check", "odd.org").code == 0


def test_people_get_a_line_per_finding_with_its_fix(call: Call, tmp_path: Path) -> None:
    (tmp_path / "bad.org").write_text("* Pay\nDEADLINE: <2026-6-6>\n")
    assert call("check", "--table", "bad.org").out.splitlines() == [
        "bad.org:2:11: error date-shape: '2026-6-6' is not a valid date, so this timestamp is ignored",
        "    → <2026-06-06>",
        "1 error in 1 file",
    ]
    assert call("check", "--table", "garden.org").out == "1 file checked, no problems\n"
    Path("notes.txt").write_text("Buy milk.\n")
    assert call("check", "--table", "notes.txt").out.splitlines() == [
        "notes.txt:1:1: warning no-plan: is not a plan: it has no headlines",
        "    → name an Org file (*.org)",
        "1 warning in 1 file",
    ]


def test_people_get_a_row_per_headline_with_its_line(call: Call) -> None:
    lines = call("query", "--table", "garden.org").out.splitlines()
    assert lines[0].split() == ["where", "state", "headline", "tags", "scheduled", "deadline"]
    assert lines[1].split() == [
        *("garden.org:1", "TODO", "Sow", "herbs", "garden"),
        *("2026-04-01", "09:00", "+1w", "2026-04-30"),
    ]
    assert lines[4].startswith("garden.org:13           Pick")


def test_people_get_a_tree_per_workflow(call: Call) -> None:
    assert call("tangle", "--table", "garden.org").out.splitlines() == [
        "garden.org",
        "Harvest  cron 0 6 * * 6",
        "├── Pick  sh  → basket",
        "└── exports basket",
    ]


def test_markup_in_a_title_is_text(call: Call, tmp_path: Path) -> None:
    (tmp_path / "markup.org").write_text("* [bold red]Sow[/] \\[x] :workflow:\n")
    assert "[bold red]Sow[/]" in call("query", "--table", "markup.org").out
    assert "[bold red]Sow[/]" in call("tangle", "--table", "markup.org").out


@pytest.mark.parametrize("command", ["query", "tangle", "check", "next", "agenda", "due"])
def test_a_plan_cannot_command_the_terminal(call: Call, tmp_path: Path, command: str) -> None:
    evil = "\x1b(0\r\x9b\u202e"
    (tmp_path / "evil.org").write_text(
        f"* Sow{evil}x :workflow:\nSCHEDULED: <2026-06-06 Sat 06:00 +1d {evil}>\n"
        f"** Step{evil}x :component:\n#+begin_src x{evil} :in a{evil}b\n#+end_src\n"
        f"* Reap{evil}x :workflow:\n:PROPERTIES:\n:SCHEDULE: 0 {evil} * * *\n:END:\n"
    )
    ending = call(command, "--table", "evil.org")
    assert ending.out
    assert not set("\x1b\r\x9b\u202e") & set(ending.out + ending.err)


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "long.org").write_text("* Sow herbs\n" * 20_000)
    done = subprocess.run(
        f"{sys.executable} -m horae.cli.main query --json long.org | head -1",
        shell=True,
        capture_output=True,
        check=True,
        cwd=tmp_path,
    )
    assert (done.stdout, done.stderr) == (b"[\n", b"")


def test_a_plan_nested_very_deeply_is_printed_whole_or_is_one_clear_line(
    call: Call, tmp_path: Path
) -> None:
    deep = "".join(f"{'*' * level} W :workflow:\n" for level in range(1, 2_000))
    (tmp_path / "deep.org").write_text(deep)
    ending = call("tangle", "deep.org", "--json")
    # How deep JSON may go is for the version of Python to say.
    if ending.code == 0:
        assert ending.out.count('"name": "W"') == 1_999
    else:
        assert json.loads(ending.err)["error"]["message"] == TOO_DEEP
    assert call("tangle", "deep.org").code == 0, "text goes as deep as one likes"


def test_help_names_every_command_and_the_exit_codes(call: Call) -> None:
    ending = call("--help")
    assert ending.code == 0
    for word in ("query", "tangle", "check", "config", "Exit codes", "130 interrupted"):
        assert word in ending.out


def test_check_reports_every_agent_without_a_system_prompt(call: Call) -> None:
    Path("agents.org").write_text("* wren :agent:\n* moss :agent:\nYou write.\n* fern :agent:\n")
    ending = call("check", "agents.org", "--json")
    found = [(each["line"], each["message"]) for each in ending.data if each["code"] == "agent"]
    assert found == [(1, "the agent has no system prompt"), (4, "the agent has no system prompt")]
    listed = call("agent", "list", "--json")
    assert [each["agent"] for each in listed.data] == ["moss"]
    assert len(listed.err.splitlines()) == 2
