"""`horae agent tick` lets an agent tick now, and `horae status` tells how each agent is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from commands import engine_up
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from calling import Call

DAY = "* add\n:PROPERTIES:\n:REPEAT: 2\n:NEXT: audit\n:END:\n* audit\n:PROPERTIES:\n:NEXT: add\n:END:\n"


def agent(home: Path, name: str, script: str) -> None:
    (home / f"{name}.sh").write_text(script)
    text = (
        f"* {name} :agent:\n:PROPERTIES:\n:COMMAND: sh {home}/{name}.sh\n:END:\nYou are {name}.\n"
    )
    (home / f"{name}.org").write_text(text)


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> Path:
    """A plan root with two agents, in which the commands are called."""
    (tmp_path / "horae.toml").write_text('[crew]\ndef = "crew.org"\n')
    members = [
        "* wren\n:PROPERTIES:\n:DEF: wren.org\n:LIFECYCLE: day.org\n:INTERVAL: 1h\n:END:\n",
        "* moss\n:PROPERTIES:\n:DEF: moss.org\n:END:\n",
        "* Digest :workflow:\n:PROPERTIES:\n:SCHEDULE: 0 9 * * *\n:COMMAND: true\n:END:\n",
    ]
    (tmp_path / "crew.org").write_text("".join(members[:2]))
    (tmp_path / "plan.org").write_text(members[2])
    (tmp_path / "day.org").write_text(DAY)
    agent(tmp_path, "wren", "echo all is well\n")
    agent(tmp_path, "moss", "echo oh no; exit 3\n")
    return tmp_path


def test_without_an_engine_it_ticks_here_and_shows_what_it_puts_out(call: Call) -> None:
    ending = call("agent", "tick", "wren", "--table")
    assert (ending.code, ending.out) == (0, "all is well\n")
    assert "wren: done: " in ending.err
    [wren, moss] = call("status", "--json").data["agents"]
    assert wren["lifecycle"] == {"state": "add", "hits": 1, "next_state": "audit", "kind": "wake"}
    assert (wren["last_outcome"], wren["running"]) == ("done", False)
    assert (moss["last_outcome"], moss["last_run"], moss["lifecycle"]) == (None, None, None)
    assert call("agent", "tick", "wren", "--json").data["key"] == "tick:2"


def test_a_tick_that_ends_badly_is_exit_code_1(call: Call) -> None:
    ending = call("agent", "tick", "moss", "--table")
    assert (ending.code, ending.out) == (1, "oh no\n")
    [_, moss] = call("status", "--json").data["agents"]
    assert (moss["failures"], moss["stuck"], moss["last_outcome"]) == (1, False, "failed")


def test_an_engine_is_asked_to_and_with_watch_its_output_is_shown(call: Call, home: Path) -> None:
    agent(home, "moss", "touch on; exec sleep 100\n")
    with engine_up(home, HORAE_RUN_DRAIN="0s"):
        asked = call("agent", "tick", "wren", "--json")
        assert (asked.code, asked.data["key"], asked.data["title"]) == (0, "tick:1", "wren")
        wait_until(lambda: call("status", "--json").data["agents"][0]["last_outcome"] == "done")
        watched = call("agent", "tick", "wren", "--watch", "--table", "--note", "x")
        assert (watched.code, watched.out) == (0, "all is well\n")
        receipts = call("history", "wren", "--json").data
        assert [each["key"] for each in receipts] == ["tick:2", "tick:1"]
        call("agent", "tick", "moss")
        wait_until((home / "on").exists)
        again = call("agent", "tick", "moss")
        assert again.code == 6
        assert "moss: a tick has been running since " in again.err
        status = call("status", "--json")
        assert [each["running"] for each in status.data["agents"]] == [False, True]
        assert [each["next_run"] is None for each in status.data["agents"]] == [False, True]


def test_tick_and_run_answer_alike_to_a_name_that_no_agent_has(call: Call, home: Path) -> None:
    ran, ticked = (call("agent", ask, "robin") for ask in ("run", "tick"))
    assert (ticked.code, ticked.err) == (ran.code, ran.err)
    assert ticked.err == "horae: there is no agent 'robin'; `horae agent list` lists the agents\n"
    near = call("agent", "tick", "wrn", "--json")
    assert json.loads(near.err)["error"]["message"] == "there is no agent 'wrn'; did you mean wren?"
    agent(home, "lark", "true")  # which no crew has
    lark = call("agent", "tick", "lark")
    assert (lark.code, "lark does not tick: it is neither a member" in lark.err) == (6, True)


def test_a_heading_of_the_manifest_with_a_command_and_no_definition_is_one_entry(
    call: Call, home: Path
) -> None:
    with (home / "crew.org").open("a") as crew:
        crew.write("* ada\n:PROPERTIES:\n:COMMAND: true\n:INTERVAL: 10m\n:END:\n")
    ticked = call("agent", "tick", "ada")
    assert (ticked.code, "the entry is not an agent that ticks" in ticked.err) == (6, True)
    listed = [each for each in call("list", "--json").data if each["title"] == "ada"]
    assert [(each["rule"], each["state"]) for each in listed] == [("on request", "armed")]
    shown = call("agent", "show", "ada")
    assert "crew.org:11:1: error member-def: the heading has no :DEF:, so it is an " in shown.err
    assert shown.code == 4


def test_a_member_without_a_definition_is_an_agent_that_cannot_run(call: Call, home: Path) -> None:
    with (home / "crew.org").open("a") as crew:
        crew.write("* ada\n:PROPERTIES:\n:INTERVAL: 10m\n:END:\n")
    why = "the member has no :DEF:; name the agent definition file"
    assert call("agent", "show", "ada", "--json").data["obstacle"] == why
    assert f"no: {why}" in " ".join(call("agent", "list", "--table").out.split())
    assert f"the agent 'ada' cannot run: {why}" in call("agent", "run", "ada").err
    ticked = call("agent", "tick", "ada")
    assert (ticked.code, "(the member has no :DEF:)" in ticked.err) == (6, True)


def test_a_member_whose_definition_has_an_error_is_an_agent_that_cannot_run(
    call: Call, home: Path
) -> None:
    with (home / "crew.org").open("a") as crew:
        crew.write("* ada\n:PROPERTIES:\n:DEF: ada.org\n:INTERVAL: 10m\n:END:\n")
    (home / "ada.org").write_text("* ada :agent:\n")
    why = "the agent has no system prompt"
    rows = {each["agent"]: each for each in call("agent", "list", "--json").data}
    assert (rows["ada"]["where"], why in rows["ada"]["obstacle"]) == ("ada.org:1", True)
    assert f"the agent 'ada' cannot run: {why}" in call("agent", "run", "ada").err


def test_who_is_no_agent_or_rests_cannot_tick(call: Call, home: Path) -> None:
    with engine_up(home, HORAE_RUN_DRAIN="0s"):
        nobody = call("agent", "tick", "robin")
        assert (nobody.code, "there is no agent 'robin'; `horae agent list`" in nobody.err) == (
            4,
            True,
        )
        digest = call("agent", "tick", "Digest")
        assert (digest.code, "the entry is not an agent that ticks" in digest.err) == (6, True)
        call("pause", "wren", "--note", "on holiday")
        paused = call("agent", "tick", "wren")
        assert (paused.code, "resume it with `horae resume" in paused.err) == (6, True)
        assert call("status", "--json").data["agents"][0]["paused"] is True


def test_a_status_for_people_has_a_line_for_each_agent(
    call: Call, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("agent", "tick", "wren")
    for _ in range(4):
        call("agent", "tick", "moss")
    monkeypatch.setenv("COLUMNS", "200")
    text = call("status", "--table").out
    part = text.partition("\nagents\n")[2].partition("\n\n")[0]
    words = " ".join(part.split())
    assert "add 1, then audit" in words
    assert "done" in words
    assert "failures in a row, stuck" in words
    assert words.count("next ") == 2


def test_without_a_ledger_why_and_explain_know_an_agent_of_the_manifest(call: Call) -> None:
    for name in ("wren", "crew.org:1"):
        ending = call("why", name)
        lines = ending.out.splitlines()
        assert (lines[0], lines[2]) == ("wren  crew.org:1", "1h after the end of each tick")
        assert ending.out.endswith(" (an estimate)\n")  # and nothing of the definition
    ending = call("explain", "crew.org:1")
    said = "horae: crew.org:1: 'wren' is an agent that ticks at an interval; use `horae why wren`\n"
    assert (ending.code, ending.err) == (4, said)


def test_list_calls_the_next_tick_an_estimate_unless_an_engine_runs(call: Call, home: Path) -> None:
    def estimates() -> int:
        return call("list").out.count("estimate)")

    assert estimates() == 2  # of the agents, not of the digest
    call("agent", "tick", "wren")
    assert estimates() == 2
    with engine_up(home):
        assert estimates() == 0
