"""`horae trigger`, `approvals`, `approve`, `deny`, and the other words of `agent`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from pwd import getpwuid
from typing import Any

import pytest

from calling import Call, Ending
from horae.cli.group import horae
from horae.cli.run import run
from horae.cli.trigger_access import AnyTriggers, TriggerAccess
from horae.core.clock import SystemClock
from horae.sources.triggers.agent_cli import agent
from horae.sources.triggers.service import Triggers
from horae.sources.triggers.source import Synced, sync
from horae.sources.triggers.store import TriggerStore, agent_id
from horae.store.sqlite import SqliteLedger

REPORTER = "name: reporter\nmodel: small-1\nenv:\n  TOKEN: ${GARDEN_TOKEN}\n"
DAILY = """\
name: daily
agent: reporter
source:
  type: cron
  expression: "0 0 1 1 *"
prompt_template: Report for {{fire_time}}.
"""
ONCE = """\
name: once
agent: reporter
source: {type: delay, run_at: "2020-01-01T00:00:00Z"}
prompt_template_file: ../prompts/once.md
"""


@pytest.fixture
def call(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Call:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GARDEN_TOKEN", "s3cret-canary")
    monkeypatch.setenv("HORAE_AGENT_COMMAND", "cat")
    words = {"horae": horae, "agent": agent}

    def calling(name: str, *args: str) -> Ending:
        code = run(words[name], name=name, args=args)
        said = capsys.readouterr()
        return Ending(code, said.out, said.err)

    return calling


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A project with an agent, two workflows and a prompt in a file of its own."""
    folder = tmp_path / ".agentd"
    for name, text in {
        "agents/reporter.yml": REPORTER,
        "workflows/daily.yml": DAILY,
        "workflows/once.yaml": ONCE,
        "prompts/once.md": "Deploy at {{run_at}}.\n",
        "workflows/notes.txt": "not a template",
        "rooms/lobby.yml": "name: lobby\n",  # not read
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def added(call: Call, name: str = "report", *args: str) -> Any:
    """Make the agent, and a trigger that comes once a year unless it is told otherwise."""
    call("agent", "orchestrator", "create-agent", "--name", "worker")
    when = args or ("--cron", "0 0 1 1 *", "--prompt", "Report for {{fire_time}}.")
    ending = call("horae", "trigger", "add", name, "--agent", "worker", *when, "--json")
    assert ending.code == 0, ending.err
    return ending.data


# In our own words


def test_a_trigger_that_no_file_has_is_not_said_to_be_in_one(call: Call, tmp_path: Path) -> None:
    made = added(call)
    assert call("horae", "trigger", "run", "report").code == 0
    spoken = [
        call("horae", *words, "--table")
        for words in (
            ["status"],
            ["why", "report"],
            ["history"],
            ["list"],
            ["next"],
            ["agenda", "--at", "2026-12-30T00:00:00Z"],
            ["due", "--at", "2026-12-31T00:00:00Z"],
            ["next", str(tmp_path)],
        )
    ]
    for ending in spoken:
        assert "triggers/report" not in ending.out + ending.err
    status, why, *_, times, agenda, _, elsewhere = (ending.out for ending in spoken)
    assert "report  trigger report" in status
    assert why.startswith("report  trigger report  entry 1\n")
    assert ", from trigger report\n" in why
    for shown in (times, agenda, elsewhere):
        assert "report  trigger report\n" in shown
    told = call("horae", "why", "report", "--json").data["entry"]
    assert (told["file"], told["line"]) == ("triggers/report", 1), "programs read what they did"

    assert call("horae", "trigger", "disable", "report").code == 0
    refused = call("horae", "run", "report")
    assert "see `horae trigger show report`" in refused.err
    assert made["id"] in call("horae", "trigger", "show", "report", "--table").out


def test_a_trigger_is_made_listed_shown_changed_and_removed(call: Call) -> None:
    made = added(call)
    assert [row["id"] for row in call("horae", "trigger", "list", "--json").data] == [made["id"]]
    table = call("horae", "trigger", "list", "--table").out
    assert "report" in table
    assert "0 0 1 1 * (UTC)" in table
    shown = call("horae", "trigger", "show", "report", "--table").out.splitlines()
    assert shown[0] == f"report  {made['id']}"
    assert shown[1] == "enabled, starts worker, waits for 0 0 1 1 * (UTC)"
    assert shown[-1] == "Report for {{fire_time}}."

    changed = call(
        "horae", "trigger", "edit", "report", "--tz", "Europe/Berlin", "--retry", "3 30s", "--json"
    )
    assert changed.data["trigger_config"]["timezone"] == "Europe/Berlin"
    assert (changed.data["retry"], changed.data["prompt_template"]) == (
        "3 30s",
        made["prompt_template"],
    )
    other = call(
        "horae", "trigger", "edit", "report", "--name", "digest", "--manual", "--json"
    ).data
    assert (other["name"], other["trigger_config"]) == ("digest", {"type": "manual"})
    off = call("horae", "trigger", "disable", "digest", "--table")
    assert off.out == "trigger digest is disabled\n"
    again = call("horae", "trigger", "disable", "digest", "--table")
    assert again.out == "trigger digest was already disabled\n"
    assert again.err == "", "nothing takes effect later"
    assert call("horae", "trigger", "enable", "digest", "--json").data["enabled"] is True
    assert (
        call("horae", "trigger", "remove", "digest", "--table").out == "trigger digest is removed\n"
    )
    assert call("horae", "trigger", "list", "--table").out == "no triggers\n"
    gone = call("horae", "trigger", "show", "digest")
    assert (gone.code, gone.err) == (
        4,
        "horae: there is no trigger 'digest'; `horae trigger list` lists the triggers\n",
    )


def test_without_an_engine_one_line_says_where_it_is_kept(call: Call, tmp_path: Path) -> None:
    assert call("horae", "trigger", "list", "--json").data == []
    assert not (tmp_path / ".horae").exists(), "to look makes nothing"
    ending = call("agent", "orchestrator", "create-agent", "--name", "worker")
    assert ending.err == "horae: no engine is running; this takes effect at the next `horae up`\n"
    assert "Notes" not in ending.out


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        ((), 2, "name what starts the trigger"),
        (("--cron", "0 9 * * *", "--manual"), 2, "has one start condition"),
        (
            ("--cron", "61 * * * *", "--prompt", "Go."),
            2,
            "the cron expression '61 * * * *' is not valid",
        ),
        (("--manual", "--prompt", "{{tite}}"), 2, "Did you mean '{{title}}'?"),
        (("--manual",), 2, "missing option: --prompt or --prompt-file"),
        (("--manual", "--prompt", "a", "--prompt-file", "b"), 2, "not both"),
        (("--manual", "--prompt-file", "nowhere.md"), 4, "nowhere.md: does not exist"),
        (("--manual", "--prompt", "Go.", "--tools", "[]"), 2, "--tools must be a JSON object"),
        (("--webhook", "a long secret", "--prompt", "Go."), 2, "use the scheme github"),
        (("--webhook", "short", "--scheme", "github", "--prompt", "Go."), 2, "at least 8"),
        (("--scheme", "github", "--manual"), 2, "--scheme requires --webhook"),
        (("--manual", "--agent", "x", "--prompt", "Go."), 2, "there is no agent 'x'; `horae agent"),
        (("--after", "nobody", "--prompt", "Go."), 4, "there is no trigger 'nobody'"),
    ],
)
def test_what_cannot_be_made_is_said(
    call: Call, args: tuple[str, ...], code: int, said: str
) -> None:
    call("agent", "orchestrator", "create-agent", "--name", "worker")
    ending = call("horae", "trigger", "add", "report", "--agent", "worker", *args)
    assert (ending.code, ending.out) == (code, "")
    assert said in ending.err


def test_a_name_that_is_not_valid_is_that_of_a_trigger(call: Call) -> None:
    call("agent", "orchestrator", "create-agent", "--name", "worker")
    given = ("--agent", "worker", "--manual", "--prompt", "Go.")
    ending = call("horae", "trigger", "add", "the report", *given)
    assert (ending.code, ending.err) == (
        2,
        "horae: the trigger name 'the report' may contain only letters, digits and .-_\n",
    )


def test_an_edit_without_a_field_is_refused(call: Call) -> None:
    ending = call("horae", "trigger", "edit", "report")
    assert (ending.code, ending.out) == (2, "")
    assert "name at least one field to change, such as --cron or --prompt" in ending.err


def test_an_error_is_json_if_json_was_asked_for(call: Call) -> None:
    error = json.loads(call("horae", "trigger", "show", "x", "--json").err)["error"]
    assert (error["code"], error["facts"]) == (
        "trigger_not_found",
        {"what": "workflow", "word": "x"},
    )


@pytest.mark.parametrize(
    ("args", "config"),
    [
        (("--at", "2030-01-01T00:00:00Z"), {"type": "delay", "run_at": "2030-01-01T00:00:00Z"}),
        (
            ("--webhook", "s3cret-s3cret", "--scheme", "github"),
            {"type": "webhook", "scheme": "github", "secret": "***"},
        ),
        (
            ("--webhook", f"whsec_{'A' * 32}"),
            {"type": "webhook", "scheme": "standard", "secret": "***"},
        ),
        (("--after", "all"), {"type": "dispatch_result"}),
        (("--on", "session_end"), {"type": "agent_lifecycle", "event": "session_end"}),
        (("--manual",), {"type": "manual"}),
    ],
)
def test_a_trigger_waits_for_what_it_is_told_to(
    call: Call, args: tuple[str, ...], config: dict[str, str]
) -> None:
    made = added(call, "report", *args, "--prompt", "Go.")
    assert made["trigger_config"] == config
    assert call("horae", "trigger", "list", "--table").out.count("report") == 1
    assert call("agent", "orchestrator", "get-workflow", "report").code == 0


def test_a_secret_that_is_made_is_shown_once(call: Call) -> None:
    made = added(call, "deploy", "--webhook", "--prompt", "Go.")
    assert made["trigger_config"] == {"type": "webhook", "scheme": "standard", "secret": "***"}
    assert made["secret"].startswith("whsec_")
    assert made["secret"] not in call("horae", "trigger", "show", "deploy", "--json").out
    ending = call("horae", "trigger", "rotate", "deploy", "--table")
    assert ending.out.startswith(
        "trigger deploy accepts two secrets until `horae trigger rotate deploy"
    )
    assert "\nsecret (shown only once): whsec_" in ending.out
    again = call("horae", "trigger", "rotate", "deploy")
    assert (again.code, "ends the older one" in again.err) == (6, True)
    ended = call("horae", "trigger", "rotate", "deploy", "--end", "--json").data
    assert "old_secret" not in ended["trigger_config"]
    assert call("horae", "trigger", "rotate", "deploy", "--end", "--secret", "x").code == 2


def test_what_a_trigger_follows_goes_by_its_id_or_its_name(call: Call) -> None:
    first, second = added(call, "first"), added(call, "second")
    follow = {"type": "dispatch_result"}
    for name, word in (("by-id", first["id"]), ("by-name", "first")):
        made = added(call, name, "--after", word, "--prompt", "Go.")
        assert made["trigger_config"] == {**follow, "source_workflow_id": first["id"]}
    changed = call("horae", "trigger", "edit", "by-name", "--after", "second", "--json").data
    assert changed["trigger_config"] == {**follow, "source_workflow_id": second["id"]}
    none = call("horae", "trigger", "edit", "by-name", "--after", "third")
    assert (none.code, none.err) == (
        4,
        "horae: there is no trigger 'third'; `horae trigger list` lists the triggers\n",
    )


def test_somebody_asks_and_sees_what_became_of_it(call: Call) -> None:
    added(call, "report", "--manual", "--prompt", "{{title}}: {{body}}")
    asked = call(
        "horae",
        "trigger",
        "run",
        "report",
        "--title",
        "Tea",
        "--body",
        "{{title}}",
        "--key",
        "k",
        "--json",
    ).data
    assert (asked["prompt_sent"], asked["status"]) == ("Tea: {{title}}", "pending")
    again = call("horae", "trigger", "run", "report", "--key", "k", "--table").out
    who = f"requested by {getpwuid(os.getuid()).pw_name}, on the command line"
    assert again == f"report: receipt {asked['receipt']}, waiting ({who})\n"
    [row] = call("horae", "trigger", "history", "report", "--json").data
    assert row == asked
    assert "idem:k" in call("horae", "trigger", "history", "report", "--table").out


def test_an_approval_is_listed_given_and_refused(call: Call) -> None:
    policy = '{"mode": "require_approval"}'
    added(call, "report", "--manual", "--prompt", "Deploy.", "--tools", policy)
    assert call("horae", "approval", "list", "--table").out == "no runs are waiting for approval\n"
    numbers = [
        str(call("horae", "trigger", "run", "report", "--key", key, "--json").data["receipt"])
        for key in ("one", "two")
    ]
    assert [
        str(row["receipt"]) for row in call("horae", "approval", "list", "--json").data
    ] == numbers
    assert "Deploy." in call("horae", "approval", "list", "--table").out
    said = call("horae", "approval", "approve", numbers[0], "--table").out
    assert said == f"report: receipt {numbers[0]} may start\n"
    assert call("horae", "approval", "approve", numbers[0]).code == 6
    assert (
        call("horae", "approval", "reject", numbers[1], "--reason", "no", "--json").data["status"]
        == "denied"
    )
    assert call("horae", "approval", "approve", "99").code == 4
    reasons = [
        row["reason"] for row in call("horae", "trigger", "history", "report", "--json").data
    ]
    assert reasons[0].startswith("rejected by ")
    assert reasons[0].endswith(": no")
    assert reasons[1].startswith("approved by ")


def test_the_rule_of_a_trigger_has_its_own_zone_beside_times_of_the_plan(
    call: Call, tmp_path: Path
) -> None:
    (tmp_path / "horae.toml").write_text('zone = "Europe/Berlin"\n')
    added(call, "morning", "--cron", "0 9 1 6 *", "--prompt", "Go.")
    said = call("horae", "why", "morning", "--text").out
    assert "at 09:00 on the first day of June (UTC)\n" in said
    assert re.search(r"-06-01 \w{3} 11:00 Europe/Berlin  scheduled", said)
    assert "(UTC)" in call("horae", "list", "--text").out


def test_a_policy_that_a_program_cannot_keep_is_said_when_it_is_made(call: Call) -> None:
    call("agent", "orchestrator", "create-agent", "--name", "worker")
    add = ("horae", "trigger", "add", "a", "--agent", "worker", "--manual", "--prompt", "Go.")
    ending = call(*add, "--tools", '{"mode": "deny_list", "tools": ["Bash(rm *)"]}')
    assert ending.code == 0
    assert "cat cannot enforce the tool policy deny_list; use claude" in ending.err
    ending = call("horae", "trigger", "edit", "a", "--tools", '{"mode": "require_approval"}')
    assert "cannot be made" not in ending.err


def test_an_agent_that_a_plan_defines_can_be_started_and_not_made_again(
    call: Call, tmp_path: Path
) -> None:
    (tmp_path / "wren.org").write_text("* wren :agent:\nYou write.\n")
    add = ("horae", "trigger", "add", "a", "--agent", "wren", "--manual", "--prompt", "Go.")
    assert call(*add, "--json").data["agent_id"] == agent_id("wren")
    ending = call("agent", "orchestrator", "create-agent", "--name", "wren")
    assert ending.code == 1
    assert "an agent named 'wren' already exists" in ending.err


# Files


def changes(ending: Ending) -> list[tuple[str, str, str]]:
    assert ending.code == 0, ending.err
    return [(row["verb"], row["what"], row["name"]) for row in ending.data]


def test_a_trigger_of_a_file_is_changed_in_its_file(call: Call, files: Path) -> None:
    assert files.is_dir()
    unread = "; `horae up` or `horae trigger apply .agentd` reads the files in .agentd\n"
    assert call("horae", "trigger", "list", "--table").out == f"no triggers{unread}"
    assert call("horae", "agent", "list", "--table").out == f"no agents{unread}"
    run = call("horae", "run", "daily")
    assert (run.code, run.err.endswith(unread)) == (4, True)
    call("horae", "trigger", "apply", ".agentd")
    said = "horae: daily is defined in .agentd/workflows/daily.yml; change or delete that file\n"
    for words in (("edit", "daily", "--retry", "3 30s"), ("remove", "daily")):
        refused = call("horae", "trigger", *words)
        assert (refused.code, refused.out, refused.err) == (6, "", said)
    assert [each["name"] for each in call("horae", "trigger", "list", "--json").data][-1] == "daily"
    again = "horae: the engine applies the files in .agentd again; delete them\n"
    assert again in call("horae", "trigger", "teardown", ".agentd").err


@pytest.mark.parametrize(
    ("option", "said"), [(("--label", "a"), "--issues or --pulls"), (("--tz", "UTC"), "--cron")]
)
def test_an_option_of_another_start_condition_is_refused(
    call: Call, option: tuple[str, str], said: str
) -> None:
    words = ("horae", "trigger", "add", "t", "--agent", "a", "--prompt", "x", "--manual")
    ending = call(*words, *option)
    assert (ending.code, f"{option[0]} requires {said}." in ending.err) == (2, True)


def test_apply_twice_changes_nothing(call: Call, files: Path) -> None:
    assert "\ncreate trigger " in call("horae", "trigger", "apply", ".agentd", "--dry-run").out
    first = changes(call("horae", "trigger", "apply", ".agentd", "--dry-run", "--json"))
    assert first == [
        ("create", "agent", "reporter"),
        ("create", "workflow", "daily"),
        ("create", "workflow", "once"),
    ]
    assert call("horae", "trigger", "list", "--json").data == [], "a dry run changes nothing"
    assert changes(call("horae", "trigger", "apply", ".agentd", "--json")) == first
    rows = call("horae", "trigger", "list", "--json").data
    assert [row["file"] for row in rows] == [
        ".agentd/workflows/once.yaml",
        ".agentd/workflows/daily.yml",
    ]
    assert rows[0]["prompt_template"] == "Deploy at {{run_at}}.\n"
    applied = call("horae", "trigger", "apply", ".agentd", "--json")
    assert {verb for verb, _, _ in changes(applied)} == {"unchanged"}
    assert "takes effect" not in applied.err
    assert call("horae", "trigger", "list", "--json").data == rows
    everything = call("agent", "apply", ".")
    assert everything.out.endswith("Applied 0 room(s), 1 agent(s), and 2 workflow(s)\n")


HOOK = "name: {0}\nagent: reporter\nsource: {{type: webhook, {1}}}\nprompt_template: Go.\n"


def test_a_webhook_in_a_file_has_one_scheme_and_a_secret_of_its_own(
    call: Call, files: Path
) -> None:
    for name in ("first", "second"):
        (files / "workflows" / f"{name}.yml").write_text(HOOK.format(name, "secret: the-same-one"))
    ending = call("horae", "trigger", "apply", ".agentd")
    assert "second.yml:3: webhook 'first' has the same secret; each webhook" in ending.err
    (files / "workflows" / "second.yml").unlink()
    call("horae", "trigger", "apply", ".agentd")
    made = call("horae", "trigger", "show", "first", "--json").data
    assert made["trigger_config"]["scheme"] == "github", "as the secret of agentd has it"
    again = changes(call("horae", "trigger", "apply", ".agentd", "--json"))
    assert {verb for verb, _, _ in again} == {"unchanged"}
    other = HOOK.format("first", f"secret: whsec_{'A' * 32}")
    (files / "workflows" / "first.yml").write_text(other)
    ending = call("horae", "trigger", "apply", ".agentd")
    assert "first.yml:1: webhook 'first' uses the scheme github; to change it," in ending.err


def test_after_one_field_is_edited_apply_changes_that_field(call: Call, files: Path) -> None:
    call("horae", "trigger", "apply", ".agentd")
    before = call("horae", "trigger", "show", "daily", "--json").data
    path = files / "workflows" / "daily.yml"
    path.write_text(DAILY.replace("Report for", "A report for"))
    (files / "agents" / "reporter.yml").write_text(REPORTER.replace("model: small-1\n", ""))
    plan = call("agent", "apply", ".agentd", "--dry-run").out.splitlines()
    assert plan == [
        "update    agent 'reporter' (.agentd/agents/reporter.yml:1)",
        '            model: "small-1" -> null',
        "update    workflow 'daily' (.agentd/workflows/daily.yml:1)",
        '            prompt_template: "Report for {{fire_time}}." -> "A report for {{fire_time}}."',
        "unchanged workflow 'once' (.agentd/workflows/once.yaml:1)",
        "Dry run passed: 0 room(s), 1 agent(s), 2 workflow(s)",
    ]
    call("agent", "apply", ".agentd")
    after = call("horae", "trigger", "show", "daily", "--json").data
    different = {name for name in after if after[name] != before[name]}
    assert different <= {"prompt_template", "updated_at"}
    assert after["prompt_template"] == "A report for {{fire_time}}."
    assert changes(call("horae", "trigger", "apply", ".agentd", "--json"))[0][0] == "unchanged"


def test_what_a_file_no_longer_says_is_no_longer_so(call: Call, files: Path) -> None:
    path = files / "workflows" / "daily.yml"
    policy = "tool_policy: {mode: deny_all}\n"
    path.write_text(DAILY + "retry: 3 30s\ntimezone: Europe/Berlin\n" + policy)
    call("horae", "trigger", "apply", ".agentd")
    rich = call("horae", "trigger", "show", "daily", "--json").data
    assert (rich["retry"], rich["trigger_config"]["timezone"]) == ("3 30s", "Europe/Berlin")
    path.write_text(DAILY)
    assert changes(call("horae", "trigger", "apply", ".agentd", "--json"))[1][0] == "update"
    plain = call("horae", "trigger", "show", "daily", "--json").data
    assert "retry" not in plain
    assert "timezone" not in plain["trigger_config"]
    assert plain["tool_policy"] == {"mode": "allow_all"}
    assert changes(call("horae", "trigger", "apply", ".agentd", "--json"))[1][0] == "unchanged"


def test_all_files_are_checked_before_anything_changes(call: Call, files: Path) -> None:
    (files / "workflows" / "daily.yml").write_text(DAILY.replace("0 0 1 1 *", "0 0 1 13 *"))
    (files / "workflows" / "more.yml").write_text(
        "name: once\nagent: nobody\nsource: {type: manual}\nprompt_template: '{{tite}}'\n"
    )
    ending = call("agent", "apply", ".agentd")
    assert (ending.code, ending.out) == (1, "")
    said = ending.err.splitlines()
    for line, file in zip(said, ("more.yml", "once.yaml"), strict=False):
        assert f".agentd/workflows/{file}:1: the workflow 'once' is also in" in line
    assert ".agentd/workflows/daily.yml:5: the cron expression '0 0 1 13 *' is not valid" in said[2]
    assert ".agentd/workflows/more.yml:2: Agent 'nobody' not found" in said[3]
    assert said[-1] == "4 problems; nothing was changed"
    (files / "workflows" / "more.yml").write_text("name: once\nagent: [\n")
    ending = call("agent", "apply", ".agentd")
    assert ".agentd/workflows/more.yml:3:1: a value is missing" in ending.err
    assert call("agent", "orchestrator", "list-agents").out == "No agents found.\n"
    assert call("horae", "trigger", "list", "--json").data == []


@pytest.mark.parametrize(
    "path", ["../../../etc/passwd", "/etc/passwd", "../prompts/link.md", "../prompts", "nowhere.md"]
)
def test_a_prompt_file_is_a_plain_file_of_the_same_project(
    call: Call, files: Path, path: str
) -> None:
    (files / "prompts" / "link.md").symlink_to("/etc/passwd")
    (files / "workflows" / "once.yaml").write_text(ONCE.replace("../prompts/once.md", path))
    ending = call("agent", "apply", ".agentd")
    assert ending.code == 1
    assert ".agentd/workflows/once.yaml:4:1: prompt_template_file" in ending.err
    assert "root:" not in ending.err


def test_a_folder_without_files_says_so(call: Call, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in ("empty", "."):
        ending = call("agent", "apply", path)
        assert ending.code == 1
        assert f"{path}: there are no .yml or .yaml files" in ending.err
    assert call("agent", "apply", "nowhere").code == 1


def test_loose_files_go_by_what_they_say(call: Call, tmp_path: Path) -> None:
    (tmp_path / "loose").mkdir()
    (tmp_path / "loose" / "b.yml").write_text(DAILY)
    (tmp_path / "loose" / "a.yaml").write_text("name: reporter\nworking_dir: sub\n")
    assert changes(call("horae", "trigger", "apply", "loose", "--json")) == [
        ("create", "agent", "reporter"),
        ("create", "workflow", "daily"),
    ]
    [card] = call("agent", "--json", "orchestrator", "list-agents").data
    assert card["config"]["working_dir"] == str(tmp_path.resolve() / "loose" / "sub")


def test_a_secret_of_an_agent_is_shown_nowhere(call: Call, files: Path) -> None:
    endings = [call("agent", "--json", "apply", ".agentd")]
    (files / "agents" / "reporter.yml").write_text(REPORTER.replace("}", "}-more"))
    endings += [
        call("agent", "--json", "apply", ".agentd"),
        call("agent", "--json", "orchestrator", "get-agent", "reporter"),
        call("agent", "orchestrator", "list-agents"),
        call("horae", "trigger", "list"),
    ]
    assert endings[1].data["changes"][0]["verb"] == "update", "a changed secret is a change"
    assert all("canary" not in each.out + each.err for each in endings)


def test_what_files_made_is_taken_down_workflows_first(call: Call, files: Path) -> None:
    call("agent", "apply", ".agentd")
    plan = call("agent", "teardown", ".agentd", "--dry-run")
    assert plan.out.endswith("Would remove 3 of 3\n")
    assert len(call("horae", "trigger", "list", "--json").data) == 2
    assert changes(call("horae", "trigger", "teardown", ".agentd", "--json")) == [
        ("delete", "workflow", "daily"),
        ("delete", "workflow", "once"),
        ("delete", "agent", "reporter"),
    ]
    again = call("agent", "teardown", ".agentd")
    assert again.out.startswith("skip      workflow 'daily'")
    assert again.out.endswith("Removed 0 of 3\n")


def synced() -> tuple[list[tuple[str, str]], list[str]]:
    """Let the plan's own folder be taken over, as an engine does when it changes."""

    async def work(triggers: AnyTriggers) -> Synced:
        assert isinstance(triggers, Triggers), "no engine is running"
        return await sync(".", triggers, environ=os.environ)

    done = TriggerAccess(root=".", data=None).write(work)
    return [(each.verb, each.name) for each in done.changes], done.wrong


def test_the_plans_own_folder_is_kept_in_step(call: Call, files: Path) -> None:
    assert synced() == (
        [("create", "reporter"), ("create", "daily"), ("create", "once")],
        [],
    )
    assert synced() == ([], [])
    call("agent", "orchestrator", "create-workflow", "--name", "mine", "--agent-name", "reporter",
         "--trigger-type", "manual", "--prompt-template", "Go.")  # fmt: skip
    (files / "workflows" / "daily.yml").unlink()
    assert synced() == ([("disable", "daily")], [])
    assert synced() == ([], [])
    states = {
        row["name"]: row["enabled"] for row in call("horae", "trigger", "list", "--json").data
    }
    assert states == {"daily": False, "once": True, "mine": True}
    (files / "workflows" / "daily.yml").write_text(DAILY)
    assert synced() == ([("update", "daily")], [])
    assert call("horae", "trigger", "show", "daily", "--json").data["enabled"] is True


def test_a_file_that_cannot_be_used_stands_as_it_was_and_stops_no_other(
    call: Call, files: Path
) -> None:
    synced()
    (files / "workflows" / "daily.yml").write_text("name: [")
    (files / "workflows" / "once.yaml").write_text(ONCE.replace("2020", "2021"))
    done, wrong = synced()
    assert done == [("update", "once")]
    assert len(wrong) == 1
    assert wrong[0].startswith(".agentd/workflows/daily.yml:1:")
    assert call("horae", "trigger", "show", "daily", "--json").data["enabled"] is True


def test_of_two_files_with_one_name_none_counts(call: Call, files: Path) -> None:
    synced()
    copy = files / "workflows" / "a-copy.yml"
    copy.write_text(DAILY.replace("Report", "Another report"))
    for _ in range(2):
        done, wrong = synced()
        assert (done, len(wrong)) == ([], 2)
        assert wrong[0] == (
            ".agentd/workflows/a-copy.yml:1: the workflow 'daily' is also in"
            " .agentd/workflows/daily.yml"
        )
    shown = call("horae", "trigger", "show", "daily", "--json").data
    assert shown["prompt_template"] == "Report for {{fire_time}}."
    copy.unlink()
    assert synced() == ([], [])


def test_what_somebody_disabled_is_not_enabled_by_a_file_that_did_not_change(
    call: Call, files: Path
) -> None:
    synced()
    call("horae", "trigger", "disable", "daily")
    assert synced() == ([], [])
    assert call("horae", "trigger", "show", "daily", "--json").data["enabled"] is False
    (files / "workflows" / "daily.yml").write_text(DAILY + "enabled: false\n")
    synced()
    (files / "workflows" / "daily.yml").write_text(DAILY)
    assert synced() == ([("update", "daily")], [])
    assert call("horae", "trigger", "show", "daily", "--json").data["enabled"] is True


def test_a_delay_that_has_fired_fires_again_only_with_another_time(call: Call, files: Path) -> None:
    synced()

    async def spend() -> None:
        ledger = await SqliteLedger.open(Path(".horae"), now=SystemClock().now())
        store = TriggerStore(ledger)
        once = await store.named("once")
        assert once is not None
        assert await store.spend(once.id, 1, now=SystemClock().now())
        await ledger.close()

    asyncio.run(spend())
    assert synced() == ([], [])
    assert call("horae", "trigger", "show", "once", "--json").data["enabled"] is False
    (files / "workflows" / "once.yaml").write_text(ONCE.replace("2020", "2021"))
    assert synced() == ([("update", "once")], [])
    assert call("horae", "trigger", "show", "once", "--json").data["enabled"] is True


# The other words of the document's program


def words(call: Call, *args: str) -> Ending:
    return call("agent", "orchestrator", *args)


def test_an_agent_is_made_shown_changed_and_forgotten(call: Call, tmp_path: Path) -> None:
    ending = words(
        call, "create-agent", "--name", "worker", "--model", "small", "--env", "A=1", "--shell",
        "zsh", "--mount", "/a:/b:ro", "--add-dir", "/x", "--command", "my-agent --once 'a b'",
    )  # fmt: skip
    assert ending.code == 0, ending.err
    assert "Note: shell, extra_mounts: stored, but not used by horae" in ending.err
    card = call("agent", "--json", "orchestrator", "get-agent", "worker").data
    assert card["id"] == agent_id("worker")
    assert card["config"]["command"] == ["my-agent", "--once", "a b"]
    assert card["config"]["env"] == {"A": "***"}
    words(call, "set-policy", card["id"], '{"mode": "deny_list", "tools": ["Bash(rm *)"]}')
    assert words(call, "get-policy", "worker").out == "Mode: deny_list\nTools:\n  - Bash(rm *)\n"
    assert words(call, "set-model", "worker", "large").out == "Model of worker: large\n"
    assert words(call, "add-dir", "worker", "/y").out == "/x\n/y\n"
    assert words(call, "remove-dir", "worker", "/x").out == "/y\n"
    assert words(call, "remove-dir", "worker", "/y").out == "no additional directory\n"
    assert words(call, "clear-context", "worker").out.startswith("Context cleared: ")
    assert "Model: large\n" in words(call, "list-agents", "--status", "running").out
    assert words(call, "list-agents", "--status", "stopped").out == "No agents found.\n"
    assert words(call, "delete-agent", "worker").out == f"Agent {card['id']} deleted.\n"


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (
            ("--agent-id", "x", "--agent-name", "y"),
            2,
            "--agent-id cannot be used with --agent-name",
        ),
        (("--prompt-template", "x"), 1, "Either --agent-id or --agent-name must be provided."),
        (
            ("--agent-name", "x"),
            1,
            "Either --prompt-template or --prompt-template-file must be provided.",
        ),
        (
            ("--agent-name", "x", "--prompt-template", "Go."),
            1,
            "Agent 'x' not found. Use 'agent orchestrator list-agents' to see available agents.",
        ),
        (
            ("--agent-id", "x", "--prompt-template", "Go."),
            1,
            "Failed to create workflow: invalid input: Agent not found",
        ),
        (("--prompt-template", "x", "--prompt-template-file", "y"), 2, "cannot be used with"),
    ],
)
def test_what_a_workflow_lacks_is_said(
    call: Call, args: tuple[str, ...], code: int, said: str
) -> None:
    ending = words(call, "create-workflow", "--name", "w", "--trigger-type", "manual", *args)
    assert (ending.code, ending.out) == (code, "")
    assert said in ending.err


def test_a_template_is_judged_without_a_ledger(call: Call, tmp_path: Path) -> None:
    (tmp_path / "prompt.md").write_text("{{titel}}")
    said = call("agent", "--json", "orchestrator", "validate-template", "--file", "prompt.md")
    assert said.code == 0
    assert said.data["valid"] is False
    assert "Did you mean '{{title}}'?" in said.data["warnings"][0]
    assert "fire_time" in said.data["known_variables"]
    plain = words(call, "validate-template", "Go.").out
    assert plain.startswith("Template is valid.\n  - Template contains no {{variables}}")
    assert words(call, "validate-template").code == 1
    assert not (tmp_path / ".horae").exists()


def test_asking_approving_and_refusing_in_these_words(call: Call) -> None:
    words(call, "create-agent", "--name", "worker")
    for name, policy in (("free", "allow_all"), ("asked", "require_approval")):
        words(
            call, "create-workflow", "--name", name, "--agent-name", "worker", "--trigger-type",
            "manual", "--prompt-template", "{{title}}", "--tool-policy", f'{{"mode": "{policy}"}}',
        )  # fmt: skip
    out = words(call, "trigger-workflow", "free", "--title", "Tea").out
    assert out.startswith("Workflow triggered!\n\nID:           ")
    assert words(call, "trigger-workflow", "free").err.startswith(
        "Error: Failed to trigger workflow: conflict: the last run of 'free' has not ended"
    )
    assert words(call, "list-approvals").out == "No approvals found.\n"
    words(call, "trigger-workflow", "asked", "--title", "Tea")
    [row] = call("agent", "--json", "orchestrator", "list-approvals").data
    assert "Prompt: Tea\n" in words(call, "list-approvals").out
    number = str(row["receipt"])
    assert words(call, "approve", number).out == f"Approval {number} approved.\n"
    assert words(call, "deny", number).code == 1


def test_health_tells_that_no_engine_runs(call: Call) -> None:
    ending = words(call, "health")
    assert (ending.code, ending.out.splitlines()[0]) == (1, "Status: no engine is running")


# Beside a running engine

# The routes of an engine, which runs nothing.
ENGINE = """
import asyncio, json, sys, uuid
from pathlib import Path
from horae.core.clock import SystemClock
from horae.sources.triggers.service import Triggers
from horae.web import SOCKET
from horae.web.api import asgi_app
from horae.web.front import Front
from horae.web.serve import serve_socket
from horae.sources.triggers.service import Triggers
from horae.store.sqlite import SqliteLedger
from horae.sources.triggers.store import TriggerStore

async def main():
    data, clock, stop = Path(sys.argv[1]), SystemClock(), asyncio.Event()
    ledger = await SqliteLedger.open(data, now=clock.now())
    triggers = Triggers(store=TriggerStore(ledger), ledger=ledger, clock=clock,
                        ids=lambda: str(uuid.uuid4()))
    app = asgi_app(Front(None, None, None, None, clock, triggers=triggers))
    serving = asyncio.create_task(serve_socket(app, data, stop=stop))
    while not (data / SOCKET).exists():
        await asyncio.sleep(0.005)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    stop.set()
    await serving
    await ledger.close()

asyncio.run(main())
"""


def test_beside_an_engine_everything_is_read_here_and_changed_there(
    call: Call, files: Path, tmp_path: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ENGINE, str(tmp_path / ".horae")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as engine:
        assert engine.stdout is not None
        assert engine.stdout.readline() == "ready\n"
        ending = words(call, "create-agent", "--name", "worker")
        assert (ending.code, ending.err) == (0, "")
        made = call("horae", "trigger", "add", "report", "--agent", "worker", "--manual",
                    "--prompt", "{{title}}", "--tools", '{"mode": "require_approval"}')  # fmt: skip
        assert (made.code, made.err) == (0, "")
        number = str(
            call("horae", "trigger", "run", "report", "--title", "x", "--json").data["receipt"]
        )
        assert len(call("horae", "approval", "list", "--json").data) == 1
        assert call("horae", "approval", "approve", number, "--json").data["status"] == "approved"
        assert call("horae", "approval", "reject", number).code == 6
        assert call("horae", "trigger", "edit", "report", "--prompt", "Go.").code == 0
        assert (
            "Error: Failed to update workflow: invalid input: the prompt template is not valid"
            in words(call, "update-workflow", "report", "--prompt-template", "{{x").err
        )
        assert call("agent", "apply", ".agentd").code == 0
        assert changes(call("horae", "trigger", "apply", ".agentd", "--json"))[0][0] == "unchanged"
        assert len(call("horae", "trigger", "list", "--json").data) == 3
        assert words(call, "set-model", "reporter", "large").code == 0
        assert words(call, "clear-context", "reporter").code == 0
        assert words(call, "health").code == 0
        call("agent", "teardown", ".agentd")
        assert call("horae", "trigger", "remove", "report").code == 0
        assert words(call, "delete-agent", "worker").code == 0
        engine.communicate("")
    assert call("horae", "trigger", "list", "--json").data == []
