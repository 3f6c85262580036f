"""The words of `agent` that need runs: a message, output, usage, and to wait until all is armed."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import chdir, closing
from typing import TYPE_CHECKING, Any

import pytest

from calling import Ending, call_here
from crash.stage import Home, Life, snapshot, until_gone
from horae.sources.triggers.agent_cli import agent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# It goes by the name of a program whose answer tells what it took.
CLAUDE = """\
#!{python}
import json, sys
told = sys.stdin.read()
usage = dict(input_tokens=len(told), output_tokens=7)
print(json.dumps(dict(type="result", subtype="success", is_error=False, num_turns=2,
                      result="You said: " + told, usage=usage, total_cost_usd=0.25)))
"""
SLOW = """\
#!{python}
import sys, time, pathlib
print("first", flush=True)
end = pathlib.Path(sys.argv[1])
while not end.exists():
    time.sleep(0.05)
print("last", flush=True)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    for name, text in (("claude", CLAUDE), ("slow", SLOW)):
        program = tmp_path / name
        program.write_text(text.format(python=sys.executable))
        program.chmod(0o700)
    yield home
    home.end()
    until_gone(lambda: snapshot(home.data), within=10)


def words(home: Home, *args: str, told: str = "") -> Ending:
    """Call `agent …` as in a directory beside the plans."""
    with chdir(home.place):
        return call_here(
            agent, "agent", "--root", str(home.plans), "--data", str(home.data), *args, told=told
        )


def orchestrator(home: Home, *args: str, told: str = "") -> Ending:
    return words(home, "orchestrator", *args, told=told)


def data(home: Home, *args: str) -> Any:
    ending = words(home, "--json", "orchestrator", *args)
    assert ending.code == 0, ending.err
    return json.loads(ending.out)


def begun(home: Home, agent: str, *command: str) -> Life:
    """Start an engine, and make an agent."""
    life = home.up().begun()
    line = " ".join([str(home.place / command[0]), *command[1:]])
    made = orchestrator(home, "create-agent", "--name", agent, "--command", line)
    assert made.code == 0, made.err
    return life


def test_a_message_lets_an_agent_run_and_usage_sums_up_what_that_took(home: Home) -> None:
    life = begun(home, "reporter", "claude")
    none = data(home, "usage", "--name", "reporter")
    assert (none["cumulative"]["runs"], none["current"]["total_cost_usd"]) == (0, 0)
    sent = orchestrator(home, "send-message", "reporter", "Fix the failing {{title}}")
    assert sent.code == 0, sent.err
    assert sent.out.startswith("Message sent.\n\nID: ")
    life.until(lambda: home.count("status = 'done'") == 1)
    piped = orchestrator(home, "send-message", "reporter", "--stdin", told="Review\nthe code\n")
    assert piped.code == 0, piped.err
    life.until(lambda: home.count("status = 'done'") == 2)
    history = data(home, "dispatch-history", "message-reporter")
    assert [each["prompt_sent"] for each in history] == [
        "Review\nthe code\n",
        "Fix the failing {{title}}",
    ]
    told = data(home, "usage", "reporter")
    tokens = [len(each["prompt_sent"].strip()) for each in history]
    every, last = told["cumulative"], told["current"]
    assert (every["runs"], every["total_cost_usd"], every["output_tokens"]) == (2, 0.5, 14)
    assert last["runs"] == 1
    assert abs(every["input_tokens"] - sum(tokens)) <= 4  # with or without an end of line
    assert every["duration_secs"] > 0
    assert told["outcomes"] == {"done": 2}
    shown = orchestrator(home, "usage", "--name", "reporter").out
    assert "Cumulative:\n  Runs: 2\n" in shown
    assert "  Total Cost USD: 0.5\n" in shown
    log = orchestrator(home, "logs", "reporter").out
    assert json.loads(log)["result"].startswith("You said: Review\nthe code")
    # What brings messages goes with whom it brings them to.
    assert orchestrator(home, "delete-agent", "reporter").code == 0
    assert data(home, "list-workflows") == []
    assert life.stop() == 0


def test_output_is_followed_while_an_agent_runs(home: Home, tmp_path: Path) -> None:
    life = begun(home, "slow", "slow", str(tmp_path / "end"))
    for verb in ("attach", "stream"):
        idle = orchestrator(home, verb, "--name", "slow")
        assert idle.code == 1
        assert "there is no active run of agent 'slow'" in idle.err
    assert "there is no run of agent 'slow'" in orchestrator(home, "logs", "slow").err
    assert orchestrator(home, "send-message", "slow", "Go.").code == 0
    life.until(lambda: home.count("status = 'running'"))
    again = orchestrator(home, "send-message", "slow", "And again.")
    assert again.code == 1
    assert "has not ended" in again.err
    start = [sys.executable, "-m", "horae.sources.triggers.agent_cli", "--root", str(home.plans)]
    line = [*start, "--data", str(home.data), "orchestrator", "stream", "slow"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "first\n"  # while it still runs
        (tmp_path / "end").touch()
        assert follower.stdout.read() == "last\n"
    life.until(lambda: home.count("status = 'done'"))
    assert orchestrator(home, "logs", "--name", "slow", "--tail", "1").out == "last\n"
    assert life.stop() == 0
    assert orchestrator(home, "logs", "slow").out == "first\nlast\n"


@pytest.mark.parametrize(
    "args",
    [
        ("send-message", "x"),
        ("send-message", "x", "a", "--stdin"),
        ("logs",),
        ("logs", "x", "--name", "x"),
        ("usage",),
        ("attach",),
        ("stream",),
    ],
)
def test_one_agent_and_one_message_are_named(home: Home, args: tuple[str, ...]) -> None:
    assert orchestrator(home, *args).code == 2


def test_nobody_is_an_error(home: Home) -> None:
    begun(home, "reporter", "claude")
    for args in (("logs", "x"), ("usage", "x"), ("send-message", "x", "Go.")):
        ending = orchestrator(home, *args)
        assert ending.code == 1
        assert "there is no agent 'x'" in ending.err
    blank = orchestrator(home, "send-message", "reporter", " ")
    assert "a message must be a non-empty string" in blank.err


def test_apply_waits_until_all_is_armed_and_gives_up_in_time(home: Home) -> None:
    folder = home.place / "project" / "workflows"
    folder.mkdir(parents=True)
    text = "name: daily\nagent: reporter\nsource: {type: cron, expression: 0 9 * * *}\nprompt_template: Go.\n"
    (folder / "daily.yml").write_text(text)
    life = begun(home, "reporter", "claude")
    good = words(home, "apply", "project", "--wait-timeout", "0")
    assert (good.code, good.err) == (0, "")
    assert home.rows("SELECT next_at IS NOT NULL FROM entry") == [(1,)]
    with closing(sqlite3.connect(home.data / "ledger.db", timeout=30)) as ledger, ledger:
        odd = "UPDATE entry SET spec = NULL, next_at = NULL, unarmed = 'it is odd'"
        ledger.execute(odd)
        # The engine may still be about to arm it again.
        ledger.execute(
            "CREATE TRIGGER odd AFTER UPDATE ON entry WHEN NEW.next_at IS NOT NULL"
            f" BEGIN {odd} WHERE number = NEW.number; END"
        )
    late = words(home, "apply", "project", "--wait-timeout", "1")
    assert late.code == 124
    said = "Error: Timeout waiting for workflow 'daily' to be armed (waited 1s): it is odd\n"
    assert late.err == said
    assert words(home, "apply", "project", "--dry-run").code == 0
    assert life.stop() == 0
    alone = words(home, "apply", "project")  # there is nobody to wait for
    assert alone.code == 0
