"""What cannot run is said before its time comes, and at once to whoever asks for it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from commands import HORAE, engine_up
from horae.cli import connection
from horae.client import Client
from horae.web import address
from waiting import wait_until

if TYPE_CHECKING:
    from calling import Call

MISSING = "no-such-agent is not on the PATH; install it, or write its full path"
POLICY = "the agent robin: cat cannot enforce the tool policy allow_list"
PLAN = """* Missing
:PROPERTIES:
:SCHEDULE: 0 3 * * *
:COMMAND: no-such-program --now
:END:
* Digest :workflow:
** Sum up :component:
#+begin_src agent :agent nobody
Be brief.
#+end_src
"""
CREW = "* wren\n:PROPERTIES:\n:DEF: wren.org\n:INTERVAL: 10m\n:END:\n"
WREN = "* wren :agent:\n:PROPERTIES:\n:COMMAND: no-such-agent\n:END:\nYou write.\n"
ONCE = """name: once
agent: robin
source:
  type: delay
  run_at: "2026-04-01T02:00:00Z"
prompt_template: Deploy.
"""
TOOLS = "tool_policy:\n  mode: allow_list\n  tools: [Read]\n"


@pytest.fixture
def home(call: Call) -> Call:
    files = {
        "horae.toml": 'listen = "127.0.0.1:0"\n[crew]\ndef = "crew.org"\n',
        "plan.org": PLAN,
        "crew.org": CREW,
        "wren.org": WREN,
        ".agentd/agents/robin.yml": "name: robin\ncommand: [cat]\n",
        ".agentd/workflows/once.yml": ONCE + TOOLS,
    }
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    return call


def asked(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return what the engine answers to a request on its socket."""
    with socket.socket(socket.AF_UNIX) as wire, address(Path(".horae")) as where:
        wire.connect(where)
        connection = HTTPConnection("localhost")
        connection.sock = wire
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def test_check_names_the_program_the_policy_and_the_agent_that_are_not_there(home: Call) -> None:
    ending = home("check", ".", "--json")
    found = {(each["file"], each["line"], each["code"]): each for each in ending.data}
    program = found["plan.org", 4, "program"]
    assert (program["column"], program["severity"]) == (11, "warning")
    assert program["message"] == "no-such-program is not on the PATH"
    assert program["fix"] == "install it, or write its full path"
    assert found["plan.org", 7, "agent-unready"]["message"] == "there is no agent 'nobody'"
    assert (
        found["wren.org", 1, "agent-unready"]["message"]
        == f"the agent wren: {MISSING}".partition(";")[0]
    )
    assert found[".agentd/workflows/once.yml", 7, "agentd"]["message"] == POLICY


def test_problems_beside_the_plans_of_a_directory_are_named_from_here(call: Call) -> None:
    crew = "* wren\n:PROPERTIES:\n:DEF: wren.org\n:END:\n"
    agent = "* wren :agent:\n:PROPERTIES:\n:COMMAND: gone\n:END:\n** System prompt\nSing.\n"
    files = {"horae.toml": "crew.def = 'crew.org'\n", "crew.org": crew, "wren.org": agent}
    for name, text in {**files, ".agentd/workflows/a.yml": "name: a\n"}.items():
        path = Path("farm", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = {(each["file"], each["code"]) for each in call("check", "farm", "--json").data}
    assert found >= {("farm/crew.org", "agent-tree"), ("farm/wren.org", "agent-unready")}
    assert {file.partition("/")[0] for file, _ in found} == {"farm"}
    ending = call("next", "farm")
    assert ending.err.startswith("horae: farm/.agentd/workflows/a.yml:1:1: ")
    assert ending.err.endswith("1 problem; other triggers are listed\n")


def test_check_names_an_else_that_cannot_answer(call: Call) -> None:
    def told(other: str) -> list[tuple[int, str, str]]:
        plan = f"* wren :agent:\n:PROPERTIES:\n:COMMAND: cat\n:ELSE: {other}\n:END:\nSing.\n"
        Path("plan.org").write_text(f"{plan}* moss :agent:\nGrow.\n")
        found = call("check", ".", "--json").data
        return [(e["line"], e["message"], e["fix"]) for e in found if e["code"] == "else-unknown"]

    assert told("moss") == told("cat -u") == []
    message = "neither an agent nor a program that can run here: nosuch is not on the PATH"
    assert told("nosuch") == [
        (4, f":ELSE: names {message}", "write the name of an agent, or install it")
    ]
    itself = ":ELSE: names the agent itself"
    assert told("wren") == [(4, itself, "name another agent, or a program")]


def test_check_is_silent_when_all_of_it_can_run(home: Call) -> None:
    Path("plan.org").write_text(PLAN.replace("no-such-program", "true").replace("nobody", "wren"))
    Path("wren.org").write_text(WREN.replace("no-such-agent", "cat"))
    Path(".agentd/workflows/once.yml").write_text(ONCE)
    subprocess.run(["git", "init", "-q"], check=True)
    assert home("check", ".", "--json").data == []


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("cd /srv", "cd is a shell builtin, not a program"),
        ("./plan.org", "the program ./plan.org is not executable"),
        ("./none", "the program ./none does not exist"),
        ("sh -c true", ""),
    ],
)
def test_a_program_is_looked_for_where_its_run_would(call: Call, command: str, reason: str) -> None:
    Path("plan.org").write_text(f"* A\n:PROPERTIES:\n:COMMAND: {command}\n:END:\n")
    assert [each["message"] for each in call("check", "--json").data] == [reason] * bool(reason)


def test_a_command_of_the_shell_is_told_how_to_call_one(call: Call) -> None:
    Path("plan.org").write_text("* A\n:PROPERTIES:\n:COMMAND: cd /srv && ls\n:END:\n")
    [program, shell] = call("check", "--json").data
    assert program["fix"] == "call a shell explicitly: sh -c 'cd …'"
    assert shell["fix"] == "to use a shell, call it explicitly: sh -c 'cd /srv && ls'"


def test_apply_says_what_cannot_run_dry_or_not_and_so_does_whoever_makes_an_agent(
    home: Call,
) -> None:
    said = f"horae: .agentd/workflows/once.yml:7:1: warning agentd: {POLICY}; use claude"
    dry = home("trigger", "apply", ".agentd", "--dry-run", "--json")
    assert said in dry.err
    assert [note["message"] for row in dry.data for note in row["notes"]] == [POLICY]
    assert said in home("trigger", "apply", ".agentd").err


def test_whoever_asks_for_what_cannot_start_is_told_at_once(home: Call) -> None:
    with engine_up(Path(), HORAE_RUN_DRAIN="0s") as (_, log):
        client = Client(Path(".horae"))
        ticked = home("agent", "tick", "wren", "--watch")
        assert (ticked.code, ticked.err) == (
            1,
            f"horae: wren cannot run: the agent wren: {MISSING}\n",
        )
        ran = home("run", "Missing", "--wait")
        assert (ran.code, "no-such-program is not on the PATH; install it" in ran.err) == (1, True)
        assert home("run", "Digest", "--wait").code == 1
        status, said = asked("/api/run", {"task": "Sweep.", "agent": "wren"})
        assert (status, said["code"]) == (422, "cannot_run")
        assert said["facts"]["reason"] == f"the agent wren: {MISSING}".partition(";")[0]
        assert said["facts"]["fix"] == "install it, or write its full path"
        assert said["error"] == said["detail"]
        status, said = asked("/api/run", {"task": "Sweep."})
        assert (status, said["facts"]["fix"]) == (422, "set agent.command in horae.toml")
        status, said = asked("/api/v1/agents/wren/tick", {})
        assert (status, said["title"]) == (422, "Unprocessable Entity")
        problems = [*client.status().problems]
        assert [each.partition(" cannot run: ")[0] for each in problems] == [
            "wren (crew.org:1)",
            "Missing (plan.org:1)",
        ]
        assert home("status", "--json").data["problems"] == problems
        assert {each.title for each in client.history().receipts} <= {"once"}
        # Refused for its tools, a one-shot is held and armed; it runs when they can be kept.
        wait_until(lambda: home("trigger", "history", "once", "--json").data)
        [held] = home("trigger", "history", "once", "--json").data
        assert (held["status"], POLICY in held["reason"]) == ("pending", True)
        assert home("trigger", "show", "once", "--json").data["enabled"] is True
        # In one step: an empty file that is read meanwhile is a receipt of its own.
        Path("once.new").write_text(ONCE)
        Path("once.new").replace(".agentd/workflows/once.yml")
        wait_until(lambda: not home("trigger", "show", "once", "--json").data["enabled"])
        [done] = home("trigger", "history", "once", "--json").data
        assert (done["status"], done["source_id"]) == ("completed", held["source_id"])
    told = log.read_text()
    assert "info         first tick: wren, at 20" in told
    assert f"wren (crew.org:1) cannot run: the agent wren: {MISSING}" in told


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("WB_KEEPER_DEF", None, "agents.org: does not exist"),
        ("WB_CREW_DEF", "", "no agent ticks: the crew manifest lists none"),
    ],
)
def test_an_unknown_keeper_and_an_empty_crew_are_said_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str | None, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("agents.org").absolute()
    if text is not None:
        path.write_text(text)
    environ = {**os.environ, name: str(path), "HORAE_LISTEN": "127.0.0.1:0"}
    up = subprocess.Popen(
        [*HORAE, "up", ".", "--seconds", "30"], env=environ, stderr=subprocess.PIPE, text=True
    )
    assert up.stderr is not None
    assert any(said in line for line in up.stderr)
    up.send_signal(signal.SIGTERM)
    up.communicate(timeout=30)


def test_an_engine_that_is_just_starting_is_waited_for_and_an_old_one_is_not() -> None:
    now = datetime(2026, 4, 1, tzinfo=UTC)
    just = f"{now - timedelta(seconds=2):%Y-%m-%dT%H:%M:%SZ}"
    assert connection._patience(just, now=now) == 15
    assert connection._patience("2026-03-31T00:00:00Z", now=now) == 1
    assert connection._patience("", now=now) == 1


def test_an_alert_of_something_that_is_nowhere_is_a_finding(home: Call) -> None:
    alert = "* Tell\n:PROPERTIES:\n:AFTER: failed of {}\n:COMMAND: true\n:END:\n"
    text = Path("plan.org").read_text()

    def found(of: str, *paths: str) -> list[tuple[str, int]]:
        Path("plan.org").write_text(f"{alert.format(of)}{text}")
        rows = json.loads(home("check", *paths, "--json").out)
        return [(each["message"], each["line"]) for each in rows if "after" in each["code"]]

    nowhere = "no entry is called 'nosuch', so this entry never runs"
    assert found("nosuch") == [(nowhere, 3)]
    assert found("nosuch", "plan.org") == [], "it may be in another file"
    for of in ("Tell", "once", "all", "agent:anybody"):
        assert found(of) == []


def test_a_language_that_cannot_be_run_is_an_error(call: Call, tmp_path: Path) -> None:
    block = "#+begin_src {}\necho\n#+end_src\n"
    text = "* Digest :workflow:\n** Sum up :component:\n" + block
    (tmp_path / "plan.org").write_text(text.format("cobol"))
    ending = call("check", "plan.org", "--json")
    [found] = ending.data
    assert (ending.code, found["line"], found["code"]) == (1, 3, "component-language")
    assert found["message"] == "blocks in 'cobol' cannot be run"
    assert found["fix"].startswith("supported languages: python, ")
    for known in ("sh", "Python"):
        (tmp_path / "plan.org").write_text(text.format(known))
        assert call("check", "plan.org", "--json").data == []
