"""Text by default, also into a pipe; JSON where --json or HORAE_OUTPUT asks for it."""

import json
import os
from pathlib import Path

import pytest

from calling import Call, Ending
from commands import run_command

PLAN = """\
* Digest
:PROPERTIES:
:SCHEDULE: 0 6 * * *
:COMMAND: true
:END:
"""
AT = "--at=2026-06-05T00:00:00Z"


@pytest.fixture(autouse=True)
def plan(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(PLAN)


def piped(*words: str, at: Path, **environ: str) -> Ending:
    return run_command(*words, at=at, environ={**os.environ, "HORAE_ZONE": "UTC", **environ})


def test_a_pipe_gets_text(tmp_path: Path) -> None:
    assert piped("horae", "next", AT, "-n", "1", at=tmp_path).out == (
        "2026-06-05 Fri 06:00 UTC  Digest  plan.org:1\n"
    )


def test_a_pipe_gets_json_where_the_environment_asks_for_it(tmp_path: Path) -> None:
    told = piped("horae", "next", AT, "-n", "1", at=tmp_path, HORAE_OUTPUT="json").data
    assert [(each["at"], each["title"]) for each in told] == [("2026-06-05T06:00:00Z", "Digest")]


def test_wb_prints_json_whatever_the_environment_says(tmp_path: Path) -> None:
    for environ in ({}, {"HORAE_OUTPUT": "text"}):
        assert piped("wb", "query", "plan.org", at=tmp_path, **environ).data[0]["title"] == "Digest"


@pytest.mark.parametrize(
    "args",
    [
        ("query",),
        ("tangle",),
        ("check",),
        ("next",),
        ("agenda",),
        ("due",),
        ("explain", "0 6 * * *"),
        ("config",),
        ("simulate",),
        ("agent", "list"),
        ("doctor",),
        ("import", "crontab", "crontab"),
    ],
    ids=" ".join,
)
def test_every_command_prints_text_unless_json_is_asked_for(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    (tmp_path / "crontab").write_text("0 6 * * * true\n")
    said = call(*args)
    assert said.out.strip()
    with pytest.raises(json.JSONDecodeError):
        said.data  # noqa: B018 - it is no JSON
    option = call(*args, "--json").data
    monkeypatch.setenv("HORAE_OUTPUT", "json")
    assert type(call(*args).data) is type(option)
    with pytest.raises(json.JSONDecodeError):
        call(*args, "--text").data  # noqa: B018 - an option is stronger


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("query", "gone.org"), (4, "plan_missing", "gone.org: does not exist")),
        (("nxt",), (2, "usage", "No such command 'nxt'. Did you mean 'next'?")),
        (("next", "--dys"), (2, "usage", "No such option '--dys'.")),
        (("logs", "7"), (4, "no_ledger", "no ledger in .horae")),
        (("export", "ics", "gone.org"), (4, "plan_missing", "gone.org: does not exist")),
    ],
)
def test_an_error_has_the_form_of_the_answer(
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    args: tuple[str, ...],
    error: tuple[int, str, str],
) -> None:
    code, word, message = error
    said = call(*args)
    assert (said.code, said.err.startswith(f"horae: {message}")) == (code, True)
    monkeypatch.setenv("HORAE_OUTPUT", "json")
    said = call(*args)
    told = json.loads(said.err)["error"]
    assert (said.code, told["code"]) == (code, word)
    assert told["message"].startswith(message)


def test_a_wrong_command_line_with_json_is_an_error_in_json(call: Call) -> None:
    said = call("next", "--json", "--dys")
    assert (said.code, json.loads(said.err)["error"]["code"]) == (2, "usage")


def test_what_stands_after_two_dashes_is_no_option(call: Call) -> None:
    assert call("query", "--", "--json").err == "horae: --json: does not exist\n"


@pytest.mark.parametrize("value", ["jso", "JSON", "table"])
def test_a_form_that_there_is_not_is_refused_with_those_that_there_are(
    call: Call, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("HORAE_OUTPUT", value)
    for args in (("next",), ("completion", "bash")):
        assert call(*args) == (
            2,
            "",
            f"horae: HORAE_OUTPUT is {value!r}; write text, json or jsonl, or leave it unset\n",
        )


def test_the_words_of_the_documents_follow_the_environment_too(tmp_path: Path) -> None:
    words = ("orchestrator", "list-workflows")
    assert piped("agent", *words, at=tmp_path).out == "No workflows found.\n"
    assert piped("agent", *words, at=tmp_path, HORAE_OUTPUT="json").data == []
    wrong = piped("agent", "apply", "gone", at=tmp_path, HORAE_OUTPUT="json")
    assert (wrong.code, json.loads(wrong.err)["error"]["code"]) == (1, "plan_missing")
    assert piped("agent", "apply", "gone", at=tmp_path).err == "Error: gone: does not exist\n"
