"""The document on schedule triggers, walked from top to bottom: every table, command and step."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import one_run
from calling import Ending
from commands import is_healthy, run_command
from horae.cli.run import run
from horae.core.agent import read_order
from horae.core.clock import SystemClock
from horae.core.decide import decide
from horae.core.ports import EntryStep, Process
from horae.core.receipt import Status
from horae.sources.triggers.agent_cli import agent
from horae.sources.triggers.service import Triggers
from horae.sources.triggers.source import TriggerSource
from horae.sources.triggers.store import TriggerStore
from horae.store.sqlite import SqliteLedger
from horae.timing.cron import Cron
from reasons import because
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from horae.core.receipt import Filed

# An agent is a program that is told something: this one writes down what.
AGENT = "import sys; print(sys.stdin.read(), file=open('told.txt', 'a'))"
UUID = re.compile(r"^ID:\s+([0-9a-f-]{36})$", re.MULTILINE)


@pytest.fixture
def say(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ending]:
    """Type a command of `agent` in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HORAE_AGENT_COMMAND", shlex.join([sys.executable, "-c", AGENT]))

    def saying(*args: str) -> Ending:
        code = run(agent, name="agent", args=args)
        said = capsys.readouterr()
        return Ending(code, said.out, said.err)

    return saying


def made(ending: Ending) -> str:
    """Return the id of what was made."""
    assert ending.code == 0, ending.err
    found = UUID.search(ending.out)
    assert found is not None, ending.out
    return found[1]


class Clock(SystemClock):
    def __init__(self, now: datetime) -> None:
        self._now = now

    def now(self) -> datetime:
        return self._now


class Engine:
    """What an engine does, by hand: each step of it at a moment of our choice."""

    def __init__(self, ledger: SqliteLedger, now: datetime) -> None:
        self.ledger = ledger
        self.now = now
        store = TriggerStore(ledger)
        self.triggers = Triggers(
            store=store, ledger=ledger, clock=Clock(now), ids=lambda: os.urandom(6).hex()
        )
        self.source = TriggerSource(store, follow=self.triggers.follow)

    async def turn(self) -> list[Filed]:
        """Decide what has come due, and run what may start, with a real child for the agent."""
        await self.ledger.scan("trigger", await self.source.scan({}), now=self.now, term=1)
        due = await self.ledger.due(now=self.now)
        steps = [
            EntryStep(each.entry, decide(each.entry, now=self.now, is_busy=each.is_busy))
            for each in due
        ]
        await self.ledger.decide(steps, now=self.now, term=1)
        waiting = (await self.ledger.receipts(statuses=(Status.WAITING,))).receipts
        for filed in await self.triggers.admit(waiting):
            await self._run(filed)
        for filed in await self.ledger.unsettled():
            await self.source.settle(filed)
            await self.ledger.settle([filed.number], now=self.now, term=1)
        return [*(await self.ledger.receipts()).receipts]

    async def _run(self, filed: Filed) -> None:
        begun = await one_run.start(self.ledger, filed.number, now=self.now, term=1)
        assert begun is not None
        text = await self.ledger.text(filed.digest)
        assert text is not None
        receipt = filed.receipt
        prompt = read_order(text).prompt(key=receipt.key, planned_at=receipt.planned_at)
        await one_run.running(self.ledger, begun.number, Process(1, 1), now=self.now, term=1)
        child = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", AGENT], input=prompt, text=True, check=False
        )
        outcome = Status.DONE if child.returncode == 0 else Status.FAILED
        await one_run.end(
            self.ledger, begun.number, outcome, reason=because("it ended"), now=self.now, term=1
        )


def keep(now: datetime, *, times: int = 1) -> list[Filed]:
    """Let an engine live for a moment, or several engines one after the other."""

    async def living() -> list[Filed]:
        ledger = await SqliteLedger.open(Path(".horae"), now=now)
        try:
            return await Engine(ledger, now).turn()
        finally:
            await ledger.close()

    return [asyncio.run(living()) for _ in range(times)][-1]


def told(tmp_path: Path) -> list[str]:
    """Return what agents were told."""
    path = tmp_path / "told.txt"
    return path.read_text().splitlines() if path.exists() else []


YEARLY = "0 0 1 1 *"  # so that none passes between two lines of a test


def new_years(count: int) -> list[datetime]:
    """Return the next moments of a yearly workflow."""
    return Cron(YEARLY).upcoming(SystemClock().now(), count)


@pytest.fixture
def worker(say: Callable[..., Ending]) -> str:
    return made(say("orchestrator", "create-agent", "--name", "worker"))


def create(say: Callable[..., Ending], name: str, *args: str) -> Ending:
    start = ("orchestrator", "create-workflow", "--name", name, "--agent-name", "worker")
    return say(*start, "--trigger-type", *args)


# Cron trigger


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    "expression",
    [
        "* * * * *",
        "*/5 * * * *",
        "0 * * * *",
        "0 9 * * *",
        "0 9 * * MON-FRI",
        "0 0 * * *",
        "0 12 1 * *",
        "30 4 * * SUN",
        "0 */6 * * *",
        "0 0 1 1 *",
        "* * * * * *",
    ],
)
def test_every_common_expression_makes_a_workflow(
    say: Callable[..., Ending], expression: str
) -> None:
    ending = create(say, "w", "cron", "--cron-expression", expression, "--prompt-template", "Go.")
    assert ending.out.startswith("Workflow created successfully!\n\nID: ")
    assert f"Expression: {expression}\n" in ending.out


@pytest.mark.usefixtures("worker")
def test_each_firing_of_a_cron_has_its_variables_and_its_own_key(
    say: Callable[..., Ending], tmp_path: Path
) -> None:
    template = "{{fire_time}} | {{cron_expression}} | {{source_id}} | {{title}} | {{body}}{{url}}{{labels}}{{assignee}}"
    args = ("--cron-expression", YEARLY, "--prompt-template", template)
    flow = made(create(say, "yearly", "cron", *args))
    for year in new_years(2):
        keep(year, times=3)  # restarts: the same fire time is not dispatched twice
    stamps = [f"{each:%Y-01-01T00:00:00Z}" for each in new_years(2)]
    assert told(tmp_path) == [
        f"{stamp} | {YEARLY} | cron:{stamp} | Cron trigger: {YEARLY} | " for stamp in stamps
    ]
    found = say("--json", "orchestrator", "dispatch-history", flow).data
    assert [each["source_id"] for each in found] == [f"cron:{stamp}" for stamp in stamps[::-1]]


@pytest.mark.usefixtures("worker")
def test_ticks_that_passed_while_nobody_looked_are_not_made_good_and_not_lost(
    say: Callable[..., Ending], tmp_path: Path
) -> None:
    args = ("--cron-expression", YEARLY, "--prompt-template", "Go.")
    flow = made(create(say, "yearly", "cron", *args))
    keep(new_years(3)[-1] + timedelta(minutes=30))
    assert told(tmp_path) == []
    found = say("--json", "orchestrator", "dispatch-history", flow).data
    assert [each["status"] for each in found] == ["skipped"] * 3
    assert "the engine was down" in found[0]["reason"]


@pytest.mark.usefixtures("worker")
def test_the_poll_interval_is_stored_and_ignored(say: Callable[..., Ending]) -> None:
    args = ("--cron-expression", YEARLY, "--prompt-template", "Go.", "--poll-interval", "3600")
    assert "Poll Interval: 3600s\n" in create(say, "yearly", "cron", *args).out
    assert [each.status for each in keep(new_years(1)[0])] == [Status.DONE]


# Delay trigger


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    "run_at",
    ["2026-04-01T09:00:00Z", "2026-04-01T09:00:00+00:00", "2026-04-01T05:00:00-04:00"],
)
def test_a_delay_takes_the_formats_that_are_listed(
    say: Callable[..., Ending], tmp_path: Path, run_at: str
) -> None:
    template = "{{run_at}} | {{workflow_id}} | {{source_id}} | {{title}}"
    args = ("--run-at", run_at, "--prompt-template", template)
    ending = create(say, "once", "delay", *args)
    assert f"Run At: {run_at}\n" in ending.out
    flow = made(ending)
    keep(SystemClock().now())
    stamp = "2026-04-01T09:00:00Z"
    assert told(tmp_path) == [f"{stamp} | {flow} | delay:{flow} | Delay trigger: {stamp}"]


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("run_at", ["tomorrow", "2026-04-01", "2026-04-01T09:00:00", ""])
def test_a_run_at_that_cannot_be_read_is_invalid_input(
    say: Callable[..., Ending], run_at: str
) -> None:
    ending = create(say, "once", "delay", "--run-at", run_at, "--prompt-template", "Go.")
    assert (ending.code, ending.out) == (1, "")
    assert ending.err.startswith("Error: Failed to create workflow: invalid input: ")
    assert say("orchestrator", "list-workflows").out == "No workflows found.\n"


@pytest.mark.usefixtures("worker")
def test_a_delay_fires_exactly_once_and_then_disables_itself(
    say: Callable[..., Ending], tmp_path: Path
) -> None:
    soon = SystemClock().now() + timedelta(hours=1)
    args = ("--run-at", f"{soon:%Y-%m-%dT%H:%M:%SZ}", "--prompt-template", "Deploy.")
    flow = made(create(say, "once", "delay", *args))
    keep(soon - timedelta(minutes=1))
    assert told(tmp_path) == []
    assert "Status: enabled\n" in say("orchestrator", "get-workflow", flow).out
    keep(soon + timedelta(minutes=1), times=3)
    assert told(tmp_path) == ["Deploy."]
    assert "Status: disabled\n" in say("orchestrator", "get-workflow", flow).out
    assert "Total: 1 dispatch(es)" in say("orchestrator", "dispatch-history", flow).out


@pytest.mark.usefixtures("worker")
def test_a_delay_whose_time_is_over_fires_as_soon_as_the_engine_starts(
    say: Callable[..., Ending], tmp_path: Path
) -> None:
    args = ("--run-at", "2026-04-01T09:00:00Z", "--prompt-template", "It is {{run_at}}.")
    create(say, "april-fools-task", "delay", *args)
    keep(SystemClock().now())
    assert told(tmp_path) == ["It is 2026-04-01T09:00:00Z."]


@pytest.mark.usefixtures("worker")
def test_a_delay_that_is_disabled_before_the_start_does_not_fire(
    say: Callable[..., Ending], tmp_path: Path
) -> None:
    args = ("--run-at", "2026-04-01T09:00:00Z", "--prompt-template", "Go.")
    flow = made(create(say, "once", "delay", *args))
    say("orchestrator", "update-workflow", flow, "--enabled", "false")
    keep(SystemClock().now())
    assert told(tmp_path) == []


@pytest.mark.usefixtures("worker")
def test_a_delay_that_is_enabled_again_runs_again_at_once(
    say: Callable[..., Ending], tmp_path: Path
) -> None:
    args = ("--run-at", "2026-04-01T09:00:00Z", "--prompt-template", "{{source_id}}")
    flow = made(create(say, "once", "delay", *args))
    keep(SystemClock().now(), times=2)
    ending = say("orchestrator", "update-workflow", flow, "--enabled", "true")
    assert ending.out.startswith("Workflow updated successfully!\n\nID: ")
    keep(SystemClock().now(), times=2)
    assert told(tmp_path) == [f"delay:{flow}", f"delay:{flow}:2"]


# CLI usage


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("cron", "Error: --cron-expression is required for cron trigger\n"),
        ("delay", "Error: --run-at is required for delay trigger\n"),
        ("github-issues", "Error: --owner is required for github-issues trigger\n"),
    ],
)
def test_what_a_trigger_type_needs_is_required(
    say: Callable[..., Ending], kind: str, said: str
) -> None:
    ending = create(say, "w", kind, "--prompt-template", "Go.")
    assert (ending.code, ending.err) == (1, said)


@pytest.mark.usefixtures("worker")
def test_an_expression_that_cannot_be_read_is_an_error_at_once(say: Callable[..., Ending]) -> None:
    ending = create(say, "w", "cron", "--cron-expression", "61 * * * *", "--prompt-template", "Go.")
    assert ending.code == 1
    assert "invalid input: the cron expression '61 * * * *' is not valid: minute 61" in ending.err
    assert say("--json", "orchestrator", "list-workflows").data == []


@pytest.mark.usefixtures("worker")
def test_a_history_entry_is_laid_out_as_the_example(say: Callable[..., Ending]) -> None:
    args = ("--cron-expression", YEARLY, "--prompt-template", "Report for {{fire_time}}.")
    flow = made(create(say, "daily-report", "cron", *args))
    [first] = new_years(1)
    keep(first)
    stamp = f"{first:%Y-01-01T00:00:00Z}"
    lines = say("orchestrator", "dispatch-history", flow).out.splitlines()
    assert lines[:2] == ["Dispatch History:", "=" * 80]
    assert re.fullmatch(r"ID:           [0-9a-f-]{36}", lines[2])
    assert lines[3:] == [
        "Workflow:     daily-report",
        f"Source ID:    cron:{stamp}",
        "Status:       completed",
        f"Dispatched:   {stamp}",
        f"Completed:    {stamp}",
        "-" * 80,
        "Total: 1 dispatch(es)",
    ]


# YAML templates

REPORTER = "name: reporter\n"
DAILY = """\
name: daily-report
agent: reporter

source:
  type: cron
  expression: "0 9 * * MON-FRI"

prompt_template: |
  It is {{fire_time}} (schedule: {{cron_expression}}).

  Generate the daily engineering status report:
  1. Summarise open pull requests in geoffjay/agentd

enabled: true
"""
HEALTH = """\
name: health-check
agent: monitor

source:
  type: cron
  expression: "0 * * * *"

prompt_template: |
  Hourly health check at {{fire_time}}.

tool_policy:
  mode: allow_list
  tools:
    - Bash
    - WebFetch

enabled: true
"""
DEPLOY = """\
name: scheduled-deploy
agent: deployer

source:
  type: delay
  run_at: "2026-04-01T02:00:00Z"

prompt_template: |
  Scheduled maintenance window has started ({{run_at}}).

tool_policy:
  mode: allow_list
  tools:
    - Bash

enabled: true
"""


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        folder, _, file = name.partition("_")
        path = root / ".agentd" / folder / f"{file.replace('_', '-')}.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.usefixtures("say")
def test_a_whole_project_is_applied_agents_first(
    say: Callable[..., Ending], tmp_path: Path
) -> None:
    write(
        tmp_path,
        agents_reporter=REPORTER,
        agents_monitor="name: monitor\n",
        agents_deployer="name: deployer\n",
        workflows_daily_report=DAILY,
        workflows_health_check=HEALTH,
        workflows_scheduled_deploy=DEPLOY,
    )
    ending = say("apply", ".agentd/")
    assert ending.code == 0, ending.err
    lines = ending.out.splitlines()
    assert [line.split()[:2] for line in lines[:-1]] == [["create", "agent"]] * 3 + [
        ["create", "workflow"]
    ] * 3
    assert lines[-1] == "Applied 0 room(s), 3 agent(s), and 3 workflow(s)"
    found = say("--json", "orchestrator", "get-workflow", "health-check").data
    assert found["tool_policy"] == {"mode": "allow_list", "tools": ["Bash", "WebFetch"]}
    again = say("apply", ".agentd/")
    assert {line.split()[0] for line in again.out.splitlines()[:-1]} == {"unchanged"}


def test_a_single_workflow_is_applied_to_an_agent_that_is_there(
    say: Callable[..., Ending], tmp_path: Path
) -> None:
    write(tmp_path, workflows_daily_report=DAILY)
    ending = say("apply", ".agentd/workflows/daily-report.yml")
    assert ending.code == 1
    assert ending.err == (
        "Error: .agentd/workflows/daily-report.yml:2: "
        "Agent 'reporter' not found (referenced by workflow 'daily-report')\n"
        "1 problem; nothing was changed\n"
    )
    say("orchestrator", "create-agent", "--name", "reporter")
    assert say("apply", ".agentd/workflows/daily-report.yml").code == 0
    assert "Name: daily-report\n" in say("orchestrator", "list-workflows").out


# End to end


def test_the_walkthrough_from_its_first_step_to_its_last(
    say: Callable[..., Ending], tmp_path: Path
) -> None:
    # 1. Start an agent.
    ending = say("orchestrator", "create-agent", "--name", "reporter")
    assert ending.out.startswith("Agent created successfully!\n\nID: ")
    assert f"Working Dir: {os.path.realpath(tmp_path)}\n" in ending.out
    who = made(ending)
    # 2. Create the cron workflow.
    ending = say(
        *("orchestrator", "create-workflow", "--name", "weekday-standup"),
        *("--agent-name", "reporter", "--trigger-type", "cron"),
        *("--cron-expression", "0 9 * * MON-FRI"),
        "--prompt-template",
        "Daily standup at {{fire_time}}. Summarise yesterday's commits.",
    )
    flow = made(ending)
    assert ending.err == "horae: no engine is running; this takes effect at the next `horae up`\n"
    # 3. Confirm the workflow was created.
    listed = say("orchestrator", "list-workflows").out
    assert listed.startswith(f"Workflows:\n{'=' * 80}\nID: {flow}\n")
    assert listed.endswith(f"{'-' * 80}\nTotal: 1 workflow(s)\n")
    lines = say("orchestrator", "get-workflow", flow).out.splitlines()
    assert lines[:-1] == [
        f"ID: {flow}",
        "Name: weekday-standup",
        f"Agent ID: {who}",
        "Status: enabled",
        "Poll Interval: 60s",
        "Trigger Type: cron",
        "Expression: 0 9 * * MON-FRI",
        "Prompt Template: Daily standup at {{fire_time}}. Summarise yesterday's com...",
    ]
    assert re.fullmatch(r"Created: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", lines[-1])
    # 4. Wait for the next fire time, then check history.
    nine = Cron("0 9 * * MON-FRI").next(SystemClock().now())
    assert nine is not None
    keep(nine - timedelta(seconds=1))
    assert say("orchestrator", "dispatch-history", flow).out == "No dispatch history found.\n"
    keep(nine, times=2)
    history = say("orchestrator", "dispatch-history", flow).out
    assert f"Source ID:    cron:{nine:%Y-%m-%dT09:00:00Z}\nStatus:       completed\n" in history
    assert told(tmp_path) == [
        f"Daily standup at {nine:%Y-%m-%dT09:00:00Z}. Summarise yesterday's commits."
    ]
    # 5. When done, delete the workflow.
    assert say("orchestrator", "delete-workflow", flow).out == f"Workflow {flow} deleted.\n"
    assert say("orchestrator", "list-workflows").out == "No workflows found.\n"
    keep(nine + timedelta(days=7))
    assert len(told(tmp_path)) == 1


# All of it once more, by hand: scripts in a shell, an engine, and programs as agents


class Shell:
    """A person's shell in a project, beside an engine whose clock shows what it is told to."""

    def __init__(self, place: Path) -> None:
        self.project = place / "project"
        self.plans = place / "plans"
        for folder in (self.project, self.plans):
            folder.mkdir()
        self.said = place / "said.txt"
        self._told = place / "told.jsonl"
        program = place / "claude"  # as one goes by, a tool policy can be handed over to it
        program.write_text(f"#!{sys.executable}\n{CLAUDE.format(told=str(self._told))}")
        program.chmod(0o700)
        self.environment = {**os.environ, "HORAE_AGENT_COMMAND": str(program), "COLUMNS": "200"}
        self._engine: subprocess.Popen[bytes] | None = None

    def up(self, at: str) -> None:
        """Start `horae up` at a moment; return when it answers."""
        words = [sys.executable, "-c", ENGINE, at, str(self.plans), "--log", "plain"]
        with self.said.open("ab") as said:
            self._engine = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=self.environment
            )
        self.until(lambda: is_healthy(self.plans / ".horae"))

    def down(self, how: int = signal.SIGTERM) -> None:
        """End the engine."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.send_signal(how)
            assert engine.wait(60) == (0 if how == signal.SIGTERM else -how), self.said.read_text()

    def until(self, condition: Callable[[], object]) -> None:
        """Return when something holds."""
        wait_until(condition, said=self.said.read_text)

    def agent(self, *args: str) -> Ending:
        """Call the script `agent`, here in the project."""
        return self._run("agent", "--root", str(self.plans), *args)

    def horae(self, *args: str) -> Ending:
        """Call the script `horae`, here in the project."""
        return self._run("horae", *args, "--root", str(self.plans))

    def _run(self, *words: str) -> Ending:
        return run_command(*words, at=self.project, environ=self.environment)

    def orchestrator(self, *args: str) -> Ending:
        """Call `agent orchestrator …`; it must go well."""
        ending = self.agent("orchestrator", *args)
        assert ending.code == 0, ending.err
        return ending

    def workflow(self, name: str, *args: str) -> str:
        """Make a workflow whose agent goes by the same name; return its id."""
        self.orchestrator("create-agent", "--name", name)
        words = ("create-workflow", "--name", name, "--agent-name", name, "--trigger-type", *args)
        return made(self.orchestrator(*words))

    def history(self, workflow: str) -> list[tuple[str, str]]:
        """Return the source ids and statuses of a workflow, newest first."""
        found = self.agent("--json", "orchestrator", "dispatch-history", workflow).data
        return [(each["source_id"], each["status"]) for each in found]

    def calls(self, workflow: str) -> list[tuple[str, list[str]]]:
        """Return what the agent of a workflow was told, and with which options."""
        lines = self._told.read_text().splitlines() if self._told.exists() else []
        found = [json.loads(line) for line in lines]
        return [(prompt.rstrip(), options) for name, prompt, options in found if name == workflow]

    def told(self, workflow: str) -> list[str]:
        """Return what the agent of a workflow was told."""
        return [prompt for prompt, _ in self.calls(workflow)]

    def wait_for(self, workflow: str, source_id: str) -> None:
        """Return when a workflow has completed a dispatch."""
        query = (
            "SELECT 1 FROM receipt JOIN entry ON entry.number = receipt.entry"
            " WHERE address = ? AND key = ? AND status = 'done'"
        )
        with closing(sqlite3.connect(self.plans / ".horae" / "ledger.db")) as ledger:
            about = (f"trigger:{workflow}", source_id)
            self.until(lambda: ledger.execute(query, about).fetchone())
        assert (source_id, "completed") in self.history(workflow)


CLAUDE = """\
import json, os, sys
with open({told!r}, "a") as told:
    print(json.dumps([os.environ["HORAE_TITLE"], sys.stdin.read(), sys.argv[1:]]), file=told)
print(json.dumps(dict(type="result", subtype="success", is_error=False, result="It is done.")))
"""
# `horae up` as it is, but for what its clock shows.
ENGINE = """\
import sys
from datetime import datetime
from horae.core.clock import SystemClock
from horae.cli.run import run
from horae.cli.up import up
ahead = datetime.fromisoformat(sys.argv[1]) - SystemClock().now()
SystemClock.now = lambda self, was=SystemClock.now: was(self) + ahead
sys.exit(run(up, name="horae", args=sys.argv[2:]))
"""
CRON_NAMES = "{{fire_time}} | {{cron_expression}} | {{source_id}} | {{title}} | {{body}}{{url}}{{labels}}{{assignee}}"
DELAY_NAMES = "{{run_at}} | {{workflow_id}} | {{source_id}} | {{title}}"
TABLE = {
    "every-minute": "* * * * *",
    "every-5-minutes": "*/5 * * * *",
    "every-hour": "0 * * * *",
    "daily-at-9": "0 9 * * *",
    "weekday-mornings": "0 9 * * MON-FRI",
    "midnight": "0 0 * * *",
    "first-of-the-month": "0 12 1 * *",
    "sundays": "30 4 * * SUN",
    "every-6-hours": "0 */6 * * *",
    "new-year": "0 0 1 1 *",
    "every-second": "* * * * * *",
    "list-of-values": "0,30 * * * *",
}
# When to start an engine, which fire time comes then, and whose it is.
HOURS = (
    (
        "2026-04-01T08:59:48+00:00",  # time for the run of 08:59 to end before 09:00
        "2026-04-01T09:00:00Z",
        (
            "every-minute",
            "every-5-minutes",
            "every-hour",
            "daily-at-9",
            "weekday-mornings",
            "list-of-values",
        ),
    ),
    ("2026-04-05T04:29:55+00:00", "2026-04-05T04:30:00Z", ("sundays", "list-of-values")),
    ("2026-05-01T11:59:55+00:00", "2026-05-01T12:00:00Z", ("first-of-the-month", "every-6-hours")),
    (
        "2026-12-31T23:59:55+00:00",
        "2027-01-01T00:00:00Z",
        ("midnight", "new-year", "every-6-hours"),
    ),
)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.down(signal.SIGKILL)


def test_the_document_holds_against_a_real_engine_with_real_agents(shell: Shell) -> None:
    shell.up("2026-04-01T08:00:00+00:00")

    # Cron trigger: every expression of the table, with every variable of the other one.
    flows = {
        name: shell.workflow(
            name, "cron", "--cron-expression", each, "--prompt-template", CRON_NAMES
        )
        for name, each in TABLE.items()
    }
    shell.until(lambda: len(shell.told("every-second")) >= 3)
    stamps = [line.partition(" | ")[0] for line in shell.told("every-second")]
    assert stamps == sorted(set(stamps))  # precisely at each, and none twice
    shell.orchestrator("update-workflow", flows["every-second"], "--enabled", "false")

    # How poll_interval_secs is handled: it is stored, and ignored.
    lazy = ("--cron-expression", "0 9 * * *", "--poll-interval", "3600", "--prompt-template", "Go.")
    assert (
        "Poll Interval: 3600s\n"
        in shell.orchestrator("get-workflow", shell.workflow("lazy", "cron", *lazy)).out
    )

    # Delay trigger: the formats that are listed, one and the same moment.
    formats = ["2026-04-01T09:00:00Z", "2026-04-01T09:00:00+00:00", "2026-04-01T05:00:00-04:00"]
    delays = [
        shell.workflow(
            f"delay-{place}", "delay", "--run-at", each, "--prompt-template", DELAY_NAMES
        )
        for place, each in enumerate(formats)
    ]
    refused = shell.agent(
        *("orchestrator", "create-workflow", "--name", "w", "--agent-name", "lazy"),
        *("--trigger-type", "delay", "--run-at", "tomorrow", "--prompt-template", "Go."),
    )
    assert refused.code == 1
    assert "invalid input: 'tomorrow' is not an RFC 3339 time" in refused.err

    # Behaviour when run_at is in the past: it fires immediately.
    past = shell.workflow(
        "past",
        "delay",
        "--run-at",
        "2026-03-01T00:00:00Z",
        "--prompt-template",
        "It was {{run_at}}.",
    )
    shell.wait_for(past, f"delay:{past}")
    assert shell.told("past") == ["It was 2026-03-01T00:00:00Z."]

    # CLI usage: both commands as they stand there, and what they require.
    shell.orchestrator("create-agent", "--name", "worker")
    daily = made(
        shell.orchestrator(
            *("create-workflow", "--name", "daily-report", "--agent-name", "worker"),
            *("--trigger-type", "cron", "--cron-expression", "0 9 * * MON-FRI"),
            *("--prompt-template", "Generate the daily status report for {{fire_time}}."),
        )
    )
    fools = made(
        shell.orchestrator(
            *("create-workflow", "--name", "april-fools-task", "--agent-name", "worker"),
            *("--trigger-type", "delay", "--run-at", "2026-04-01T09:00:00Z"),
            *("--prompt-template", "It is now {{run_at}}. Run the April Fools deployment."),
        )
    )
    for kind, option in (("cron", "--cron-expression"), ("delay", "--run-at")):
        lacks = shell.agent(
            *("orchestrator", "create-workflow", "--name", "w", "--agent-name", "worker"),
            *("--trigger-type", kind, "--prompt-template", "Go."),
        )
        assert (lacks.code, lacks.err) == (1, f"Error: {option} is required for {kind} trigger\n")
    wrong = shell.agent(
        *("orchestrator", "create-workflow", "--name", "w", "--agent-name", "worker"),
        *("--trigger-type", "cron", "--cron-expression", "0 9 * *", "--prompt-template", "Go."),
    )
    assert wrong.code == 1
    assert "invalid input: the cron expression '0 9 * *' is not valid" in wrong.err

    # End to end: 1. start an agent; 2. create the cron workflow; 3. confirm it was created.
    assert shell.orchestrator("create-agent", "--name", "reporter").out.startswith(
        "Agent created successfully!\n\nID: "
    )
    standup = made(
        shell.orchestrator(
            *("create-workflow", "--name", "weekday-standup", "--agent-name", "reporter"),
            *(
                "--trigger-type",
                "cron",
                "--cron-expression",
                "0 9 * * MON-FRI",
                "--prompt-template",
            ),
            "Daily standup at {{fire_time}}. Summarise yesterday's commits.",
        )
    )
    listed = shell.orchestrator("list-workflows").out
    assert "Name: weekday-standup\n" in listed
    assert listed.endswith(f"Total: {len(TABLE) + 8} workflow(s)\n")
    shown = shell.orchestrator("get-workflow", standup).out
    assert "Status: enabled\n" in shown
    assert "Expression: 0 9 * * MON-FRI\n" in shown
    assert shell.history(standup) == []
    assert "weekday-standup" in shell.horae("trigger", "list", "--table").out
    shell.down()

    # 4. Wait for the next fire time, then check history: of all that are created, in their hours.
    for start, stamp, names in HOURS:
        shell.up(start)
        for name in names:
            shell.wait_for(flows[name], f"cron:{stamp}")
            each = TABLE[name]
            assert f"{stamp} | {each} | cron:{stamp} | Cron trigger: {each} |" in shell.told(name)
        if stamp == "2026-04-01T09:00:00Z":
            at_nine(shell, standup=standup, daily=daily, fools=fools, delays=delays)
        shell.down()
    for name, flow in flows.items():
        keys = [key for key, _ in shell.history(flow)]
        assert len(keys) == len(set(keys))
        assert len(shell.told(name)) == len(set(shell.told(name)))

    # 5. When done, delete the workflow.
    shell.up("2027-01-02T00:00:00+00:00")
    assert shell.orchestrator("delete-workflow", standup).out == f"Workflow {standup} deleted.\n"
    assert shell.agent("orchestrator", "get-workflow", standup).code == 1
    assert (
        shell.horae("trigger", "remove", "daily-report", "--table").out
        == "trigger daily-report is removed\n"
    )
    files_of_the_document(shell)


def at_nine(shell: Shell, *, standup: str, daily: str, fools: str, delays: list[str]) -> None:
    """See what is written of 09:00 on the first of April 2026."""
    stamp = "2026-04-01T09:00:00Z"
    for flow in (standup, daily):
        shell.wait_for(flow, f"cron:{stamp}")
    assert shell.told("weekday-standup") == [
        f"Daily standup at {stamp}. Summarise yesterday's commits."
    ]
    assert shell.told("lazy") == ["Go."]
    entry = shell.orchestrator("dispatch-history", daily).out.splitlines()[2:8]
    shape = r"ID: +[0-9a-f-]{36}\nWorkflow: +daily-report\nSource ID: +cron:2026-04-01T09:00:00Z\nStatus: +completed\nDispatched: +2026-04-01T09:00:\d\dZ\nCompleted: +2026-04-01T09:00:\d\dZ"
    assert re.fullmatch(shape, "\n".join(entry)), entry
    # One-shot semantics: each has fired once, and then disabled itself.
    for place, flow in enumerate(delays):
        shell.wait_for(flow, f"delay:{flow}")
        line = f"{stamp} | {flow} | delay:{flow} | Delay trigger: {stamp}"
        assert shell.told(f"delay-{place}") == [line]
    shell.wait_for(fools, f"delay:{fools}")
    shell.until(lambda: "Status: disabled\n" in shell.orchestrator("get-workflow", fools).out)
    # Deduplication and restart safety: also after a crash, and past the same moment.
    shell.down(signal.SIGKILL)
    shell.up("2026-04-01T09:00:20+00:00")
    assert shell.told("april-fools-task") == [f"It is now {stamp}. Run the April Fools deployment."]
    assert shell.history(fools) == [(f"delay:{fools}", "completed")]
    assert shell.history(standup) == [(f"cron:{stamp}", "completed")]
    # Auto-disable after delay fires: to run it once more, enable it again.
    shell.orchestrator("update-workflow", fools, "--enabled", "true")
    shell.wait_for(fools, f"delay:{fools}:2")
    assert len(shell.told("april-fools-task")) == 2
    past = shell.horae("trigger", "history", "april-fools-task", "--json").data
    assert [each["status"] for each in past] == ["completed", "completed"]


def files_of_the_document(shell: Shell) -> None:
    """Apply the three files, one alone and then the whole project."""
    write(
        shell.project,
        agents_monitor="name: monitor\n",
        agents_deployer="name: deployer\n",
        workflows_daily_report=DAILY,
        workflows_health_check=HEALTH,
        workflows_scheduled_deploy=DEPLOY,
    )
    one = shell.agent("apply", ".agentd/workflows/daily-report.yml")
    assert one.out.splitlines()[-1] == "Applied 0 room(s), 0 agent(s), and 1 workflow(s)", one.err
    ending = shell.agent("apply", ".agentd/")
    lines = ending.out.splitlines()
    assert lines[-1] == "Applied 0 room(s), 2 agent(s), and 3 workflow(s)", ending.err
    assert [line.split()[:2] for line in lines[:-1]] == [
        ["create", "agent"],
        ["create", "agent"],
        ["unchanged", "workflow"],
        ["create", "workflow"],
        ["create", "workflow"],
    ]
    policy = shell.agent("--json", "orchestrator", "get-workflow", "health-check").data[
        "tool_policy"
    ]
    assert policy == {"mode": "allow_list", "tools": ["Bash", "WebFetch"]}
    deploy = shell.agent("--json", "orchestrator", "get-workflow", "scheduled-deploy").data["id"]
    shell.wait_for(deploy, f"delay:{deploy}")  # its time is long over
    [(prompt, options)] = shell.calls("scheduled-deploy")
    assert prompt == "Scheduled maintenance window has started (2026-04-01T02:00:00Z)."
    assert any("Bash" in option for option in options)
    again = shell.agent("apply", ".agentd/")
    assert {line.split()[0] for line in again.out.splitlines()[:-1]} == {"unchanged"}


def test_the_json_of_the_configuration_formats_is_what_a_workflow_has(
    say: Callable[..., Ending], worker: str
) -> None:
    formats: dict[str, tuple[str, Any]] = {
        "cron": ("--cron-expression", {"type": "cron", "expression": "0 9 * * MON-FRI"}),
        "delay": ("--run-at", {"type": "delay", "run_at": "2026-04-01T09:00:00Z"}),
    }
    for kind, (option, config) in formats.items():
        value = next(text for name, text in config.items() if name != "type")
        create(say, kind, kind, option, value, "--prompt-template", "Go.")
        found = say("--json", "orchestrator", "get-workflow", kind).data
        assert (found["trigger_config"], found["agent_id"]) == (config, worker)
