"""`horae agent`: who there is, and a run of one of them."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import click
import pytest

from calling import Call, Ending
from commands import run_command
from horae.cli.group import LazyGroup
from horae.cli.run import run
from horae.sources.triggers.agent_cli import agent as words
from horae.store.database import DATABASE
from provider import Provider, says, uses

if TYPE_CHECKING:
    from pathlib import Path

WRITER = """* The writer :agent:
:PROPERTIES:
:ID: wren
:MODEL: small-1
:TAGLINE: drafts
:COMMAND: sh -c 'cat; echo for $HORAE_MODEL in $PWD'
:TOOLS: git Bash(npm *)
:ENV: REGION
:END:
You write.
"""
MISSING = "no-such-agent is not on the PATH; install it, or write its full path"
EDITOR = "* moss :agent:\nYou edit.\n"


@pytest.fixture
def call(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Call:
    monkeypatch.chdir(tmp_path)
    group = click.Group(commands={"agent": LazyGroup("agent", prefix="agent "), "words": words})

    def calling(*args: str) -> Ending:
        code = run(group, name="horae", args=args)
        said = capsys.readouterr()
        return Ending(code, said.out, said.err)

    return calling


def lay(home: Path, **files: str) -> None:
    for name, text in files.items():
        path = home / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


# Who there is


def test_agents_are_the_headlines_tagged_so_beneath_the_plan_root(
    call: Call, tmp_path: Path
) -> None:
    lay(tmp_path, plan_org="* TODO Sweep\n", defs__both_org=WRITER + EDITOR)
    found = call("agent", "list", "--json")
    assert found.code == 0
    assert [(row["agent"], row["where"], row["can_run"]) for row in found.data] == [
        ("moss", "defs/both.org:11", False),
        ("wren", "defs/both.org:1", True),
    ]
    assert found.data[0]["obstacle"] == (
        "the agent moss has no command; write :COMMAND: in defs/both.org:11,"
        " or create horae.toml in the plan root and set agent.command in it"
    )
    assert (
        "problem     the agent moss has no command" in call("agent", "show", "moss", "--table").out
    )


def test_a_plan_that_only_speaks_of_agents_defines_none(call: Call, tmp_path: Path) -> None:
    lay(tmp_path, plan_org="* Sow\n# An agent is a headline: * wren :agent:\n", wren_org=WRITER)
    ending = call("agent", "list", "--json")
    assert (ending.code, [row["agent"] for row in ending.data]) == (0, ["wren"])


def test_an_agent_without_a_command_uses_that_of_the_settings(call: Call, tmp_path: Path) -> None:
    lay(tmp_path, moss_org=EDITOR, horae_toml='agent.command = ["cat", "-"]\n')
    (row,) = call("agent", "list", "--json").data
    assert (row["command"], row["can_run"]) == (["cat", "-"], True)


def test_a_crew_gives_its_members_their_names_and_their_timeouts(
    call: Call, tmp_path: Path
) -> None:
    crew = "".join(
        f"* {name}\n:PROPERTIES:\n:DEF: {path}\n:TIMEOUT: 3s\n:END:\n"
        for name, path in (("wren", "defs/w.org"), ("robin", "defs/w.org"))
    )
    lay(tmp_path, horae_toml='crew.def = "crew.org"\n', crew_org=crew, defs__w_org=WRITER)
    rows = call("agent", "list", "--json")
    assert [(row["agent"], row["where"]) for row in rows.data] == [
        ("robin", "defs/w.org:1"),
        ("wren", "defs/w.org:1"),
    ]
    assert call("agent", "show", "wren", "--json").data["timeout"] == "3s"


def test_a_keeper_without_a_name_is_the_keeper(call: Call, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-keeper.org"
    outside.write_text("* The keeper of it all :agent:\nYou keep.\n")
    lay(tmp_path, horae_toml=f'keeper.def = "{outside}"\n')
    (row,) = call("agent", "list", "--jsonl").out.splitlines()
    assert f'"agent":"keeper","where":"{outside}:1"' in row


def test_a_member_that_cannot_be_read_is_said_in_its_own_row_only(
    call: Call, tmp_path: Path
) -> None:
    crew = "".join(
        f"* {name}\n:PROPERTIES:\n:DEF: {path}\n:WAKE: {wake}\n:END:\n"
        for name, path, wake in (
            ("wren", "w.org", "maybe"), ("robin", "none.org", "due"), ("moss", "m.org", "due")
        )
    )  # fmt: skip
    mute = "* Moss :agent:\n:PROPERTIES:\n:COMMAND: cat\n:END:\n"
    lay(tmp_path, horae_toml='crew.def = "crew.org"\n', crew_org=crew, w_org=WRITER, m_org=mute)
    found = call("agent", "list", "--json")
    told = {row["agent"]: row["obstacle"] for row in found.data}
    assert (found.code, found.err, told["wren"]) == (0, "", None)
    assert told["robin"].startswith("none.org does not exist")
    assert told["moss"].startswith("the agent has no system prompt")
    assert call("agent", "run", "wren").err == "horae: wren: done: You write.\n"
    assert call("agent", "show", "moss").err == ""


def test_two_of_one_name_are_both_shown(call: Call, tmp_path: Path) -> None:
    lay(tmp_path, a_org=EDITOR, b_org=EDITOR)
    found = call("agent", "list", "--table")
    assert found.code == 6
    assert "the agent moss is defined twice, at a.org:1 and at b.org:1" in found.err


def test_what_is_odd_is_said_with_its_line_and_the_rest_is_listed(
    call: Call, tmp_path: Path
) -> None:
    lay(
        tmp_path,
        a_org=EDITOR,
        b_org="* One\n* An agent of many words :agent:\nHm.\n",
        c_org="* one :agent:\nHm.\n* two :agent:\n:PROPERTIES:\n:RUNNER: rocket\n:END:\nHm.\n",
    )
    found = call("agent", "list", "--table")
    assert found.code == 1
    assert "b.org:2:1: the agent has no name; add :ID: with a name" in found.err
    assert "c.org:5" in found.err
    assert "moss" in found.out
    assert "one" in found.out


def test_no_agent_is_no_error(call: Call) -> None:
    assert call("agent", "list", "--table").out.strip() == "no agents"
    assert call("agent", "list", "--json").data == []


def test_one_is_shown_with_its_tools_and_whether_they_are_kept(call: Call, tmp_path: Path) -> None:
    lay(tmp_path, w_org=WRITER)
    data = call("agent", "show", "wren", "--json").data
    assert data["tools"] == ["Git", "Bash(npm *)"]
    assert (data["tools_are"], data["variables"]) == ("told, not kept", ["REGION"])
    assert data["prompt"] == "You write."
    shown = call("agent", "show", "wren", "--table").out
    assert "tools are   not enforced, only in HORAE_TOOLS\n" in shown
    lay(tmp_path, w_org=WRITER.replace("sh -c 'cat; echo for $HORAE_MODEL in $PWD'", "claude"))
    data = call("agent", "show", "wren", "--json").data
    assert data["tools_are"] == "kept"
    assert data["program"].startswith("claude (")
    shown = call("agent", "show", "wren", "--table").out
    assert "command     claude\n" in shown
    assert "tools are   enforced\n" in shown


def test_an_unknown_name_is_not_found(call: Call, tmp_path: Path) -> None:
    lay(tmp_path, w_org=WRITER)
    for verb in ("show", "run"):
        found = call("agent", verb, "wrem")
        assert (found.code, found.err) == (
            4,
            "horae: there is no agent 'wrem'; did you mean wren?\n",
        )


# Who was made by a request


def make(call: Call, name: str, *more: str) -> None:
    ending = call("words", "orchestrator", "create-agent", "--name", name, *more)
    assert ending.code == 0, ending.err


def test_those_that_somebody_asked_for_are_listed_beside_those_of_plans(
    call: Call, tmp_path: Path
) -> None:
    lay(tmp_path, w_org=WRITER, _agentd__agents__robin_yml="name: robin\ncommand: [cat]\n")
    make(call, "finch", "--command", "cat -", "--model", "small-2")
    assert call("words", "apply", ".agentd").code == 0
    found = call("agent", "list", "--json")
    assert found.code == 0, found.err
    told = [(row["agent"], row["defined_by"], row["where"]) for row in found.data]
    assert told == [
        ("finch", "request", None),
        ("robin", "file", ".agentd/agents/robin.yml"),
        ("wren", "plan", "w.org:1"),
    ]
    assert (found.data[0]["command"], found.data[0]["model"]) == (["cat", "-"], "small-2")
    assert all(row["can_run"] for row in found.data)
    lines = call("agent", "list", "--table").out.splitlines()
    assert lines[0].split() == ["agent", "command", "model", "where", "can", "run"]
    assert lines[1].split() == ["finch", "cat", "-", "small-2", "by", "request", "yes"]
    assert " w.org:1 " in lines[3]


def test_what_keeps_one_from_running_that_somebody_asked_for_is_said(
    call: Call, tmp_path: Path
) -> None:
    lay(tmp_path, _agentd__agents__robin_yml="name: robin\ncommand: [cat]\nenabled: false\n")
    make(call, "finch")
    make(call, "crow", "--command", "no-such-agent")
    call("words", "apply", ".agentd")
    told = {row["agent"]: row["obstacle"] for row in call("agent", "list", "--json").data}
    assert told["finch"] == (
        "the agent finch has no command; create horae.toml in the plan root and set "
        "agent.command in it"
    )
    assert told["crow"] == f"the agent crow: {MISSING}"
    assert told["robin"].startswith("the agent robin is disabled; ")


def test_one_that_somebody_asked_for_is_shown_and_run_with_its_own_tools(
    call: Call, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    policy = '{"mode": "deny_list", "tools": ["Bash(rm *)"]}'
    told = ("--command", "sh -c 'echo $A in $PWD'", "--env", "A=red", "--working-dir", str(there))
    make(call, "finch", *told)
    shown = call("agent", "show", "finch", "--json").data
    assert (shown["defined_by"], shown["variables"]) == ("request", ["A"])
    assert call("agent", "run", "finch", "--table").out == f"red in {there}\n"
    call("words", "orchestrator", "set-policy", "finch", policy)
    shown = call("agent", "show", "finch", "--json").data
    assert (shown["tools_mode"], shown["tools"]) == ("deny_list", ["Bash(rm *)"])
    refused = call("agent", "run", "finch", "--table")
    assert (refused.code, refused.out) == (1, "")
    assert "tool policy" in refused.err
    near = call("agent", "show", "fincj")
    assert (near.code, near.err) == (4, "horae: there is no agent 'fincj'; did you mean finch?\n")


def test_one_name_in_a_plan_and_in_the_ledger_is_told_with_both_places(
    call: Call, tmp_path: Path
) -> None:
    make(call, "moss", "--command", "cat")
    lay(tmp_path, m_org=EDITOR)
    found = call("agent", "list", "--table")
    assert found.code == 6
    assert "the agent moss is defined twice, at m.org:1 and by a request" in found.err
    told = [(row["agent"], row["defined_by"]) for row in call("agent", "list", "--json").data]
    assert told == [("moss", "plan"), ("moss", "request")]


def test_a_ledger_elsewhere_is_named_and_one_that_cannot_be_read_stops_no_plan(
    call: Call, tmp_path: Path
) -> None:
    lay(tmp_path, w_org=WRITER)
    ending = call("words", "--data", "other", "orchestrator", "create-agent", "--name", "finch")
    assert ending.code == 0, ending.err
    assert [row["agent"] for row in call("agent", "list", "--json").data] == ["wren"]
    assert [row["agent"] for row in call("agent", "list", "--data", "other", "--json").data] == [
        "finch",
        "wren",
    ]
    (tmp_path / "other" / DATABASE).write_bytes(b"no database at all" * 100)
    found = call("agent", "list", "--data", "other", "--table")
    assert found.code != 0
    assert "other" in found.err
    assert "wren" in found.out


# A run


def test_a_run_shows_what_it_puts_out_and_ends_as_it_ends(call: Call, tmp_path: Path) -> None:
    lay(tmp_path, w_org=WRITER)
    (tmp_path / "there").mkdir()
    found = call("agent", "run", "wren", "--prompt", "Sweep.", "--dir", "there", "--table")
    assert found.code == 0
    assert found.out == f"You write.\n\nSweep.\nfor small-1 in {tmp_path}/there\n"
    assert found.err == "horae: wren: done: You write.\n"


def test_a_prompt_may_come_from_the_input(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay(tmp_path, w_org=WRITER)
    monkeypatch.setattr(sys, "stdin", io.StringIO("From a pipe."))
    found = call("agent", "run", "wren", "--prompt", "-", "--model", "big-2", "--json")
    assert found.data["outcome"] == "done"
    assert found.data["text"].startswith("You write.\n\nFrom a pipe.\nfor big-2")


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("echo NO-WORK: nothing", 0, "horae: moss: no work: NO-WORK: nothing\n"),
        ("false", 1, "horae: moss: failed: exit code 1\n"),
        ("sleep 100", 124, "horae: moss: killed: exceeded the time limit of 200ms\n"),
        (
            "no-such-agent",
            1,
            f"horae: the agent moss: {MISSING}\n",
        ),
    ],
)
def test_the_exit_code_is_how_it_ended(
    call: Call, tmp_path: Path, command: str, code: int, said: str
) -> None:
    lay(tmp_path, m_org=EDITOR, horae_toml=f'agent.command = "{command}"\n')
    found = call("agent", "run", "moss", "--timeout", "200ms", "--table")
    assert (found.code, found.err) == (code, said)


def test_an_answer_in_json_is_shown_as_its_text(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    answer = '{"type":"result","result":"All swept.","total_cost_usd":0.25,"num_turns":2}'
    program.write_text(f"#!/bin/sh\necho '{answer}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    lay(tmp_path, m_org=EDITOR, horae_toml='agent.command = "claude"\n')
    found = call("agent", "run", "moss", "--table")
    assert found.out == "All swept.\n"
    assert found.err == "horae: moss: done: All swept. (2 steps, $0.25)\n"


@pytest.mark.parametrize("args", [("--timeout", "soon"), ("--dir", "nowhere")])
def test_what_makes_no_sense_is_a_usage_error(
    call: Call, tmp_path: Path, args: tuple[str, ...]
) -> None:
    lay(tmp_path, w_org=WRITER)
    found = call("agent", "run", "wren", *args)
    assert found.code == 2
    assert args[0] in found.err


def test_a_model_is_run_the_same_way(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pydantic_ai")
    lay(tmp_path, m_org=EDITOR.replace("\n", "\n:PROPERTIES:\n:RUNNER: model\n:END:\n", 1))
    with Provider(uses("Read", path="m.org"), says("Read it.")) as provider:
        monkeypatch.setenv("HORAE_MODEL_URL", provider.url)
        monkeypatch.setenv("HORAE_MODEL_NAME", "small-1")
        found = call("agent", "run", "moss", "--table")
    assert (found.code, found.out) == (0, "Read it.\n")
    assert found.err == "horae: moss: done: Read it. (2 steps, 220 tokens)\n"


def test_a_manifest_that_the_settings_of_another_root_name_begins_at_that_root(
    call: Call, tmp_path: Path
) -> None:
    root = tmp_path / "sub"
    root.mkdir()
    (root / "horae.toml").write_text('crew.def = "crew.org"\n')
    (root / "crew.org").write_text("* wren\n:PROPERTIES:\n:DEF: who.org\n:END:\n")
    (root / "who.org").write_text("* writer :agent:\n:PROPERTIES:\n:COMMAND: cat\n:END:\nWrite.\n")
    ending = call("agent", "list", "--root", "sub", "--json")
    assert ending.code == 0, ending.err
    assert '"agent": "wren"' in ending.out


# What they may spend


def test_the_budget_of_a_definition_is_listed_with_what_all_runs_of_the_agent_spent(
    tmp_path: Path,
) -> None:
    triage = "* triage :agent:\n:PROPERTIES:\n:COMMAND: cat\n:BUDGET: 5 runs/day\n:END:\nLabel.\n"
    lay(tmp_path, horae_toml='[keeper]\ndef = "agents.org"\n', agents_org=triage)
    assert run_command("horae", "agent", "tick", "triage", at=tmp_path).code == 0
    [budget] = run_command("horae", "cost", "--json", at=tmp_path).data["budgets"]
    assert (budget["budget"], budget["spent"], budget["left"]) == (
        "5 runs/day of agent:triage",
        "1 run",
        "4 runs",
    )
