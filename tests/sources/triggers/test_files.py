"""Agents and workflows are read from YAML as they are written, each wrong line by its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from horae.core.secret import expand
from horae.core.tool_policy import Mode
from horae.org.plan import Severity
from horae.sources.board.task import FIELDS
from horae.sources.triggers.files import (
    AGENT_KEYS,
    WORKFLOW_KEYS,
    is_workflow,
    parse_agent,
    parse_workflow,
)
from horae.sources.triggers.kinds import KINDS
from horae.sources.triggers.rules import OPTIONS

SCHEMAS = Path(__file__).resolve().parents[3] / "schemas"
DAILY = """\
name: daily-report
agent: reporter

source:
  type: cron
  expression: "0 9 * * MON-FRI"

prompt_template: |
  It is {{fire_time}} (schedule: {{cron_expression}}).

  Generate the daily engineering status report.

tool_policy:
  mode: allow_list
  tools:
    - Bash
    - WebFetch

enabled: true
"""


def test_a_workflow_is_read_with_all_that_it_says() -> None:
    found = parse_workflow(DAILY, file="daily-report.yml")
    item = found.item
    assert item is not None
    assert found.problems == ()
    assert (item.name, item.said["agent"], item.is_enabled) == ("daily-report", "reporter", True)
    assert item.said["trigger_config"] == {"type": "cron", "expression": "0 9 * * MON-FRI"}
    assert item.said["prompt_template"].startswith("It is {{fire_time}}")
    assert item.said["tool_policy"] == {"mode": "allow_list", "tools": ["Bash", "WebFetch"]}
    assert item.said["poll_interval_secs"] == 60
    assert [item.places[key].line for key in ("expression", "tool_policy")] == [6, 13]


@pytest.mark.parametrize("word", ["source", "trigger_config", "source_config"])
def test_a_source_goes_by_the_words_of_the_api_too(word: str) -> None:
    text = (
        f"name: a\nagent: b\n{word}:\n  type: manual\nprompt_template: Go.\npoll_interval_secs: 5\n"
    )
    item = parse_workflow(text).item
    assert item is not None
    assert item.said["trigger_config"] == {"type": "manual"}
    assert item.said["poll_interval_secs"] == 5


def test_a_zone_and_a_policy_stand_beside_the_source() -> None:
    text = DAILY + "timezone: Europe/Berlin\ncatchup: latest\nretry: 3 30s\npause_after: 5\n"
    item = parse_workflow(text).item
    assert item is not None
    assert item.said["trigger_config"]["timezone"] == "Europe/Berlin"
    options = {"catchup": "latest", "retry": "3 30s", "pause_after": "5"}
    assert {name: item.said.get(name) for name in OPTIONS if name in item.said} == options


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("agent: reporter\n", "", 1, "agent is missing"),
        ("daily-report", "daily report", 1, "'daily report' is not a valid name"),
        ("enabled: true", "enabled: yes", 19, "enabled must be true or false, not 'yes'"),
        ("enabled: true", "poll_interval: 1m", 19, "poll_interval must be a whole number"),
        ("source:\n  type: cron\n  expression: ", "source: ", 4, "source must be a mapping"),
        ("prompt_template: |", "prompt: |", 1, "must have either 'prompt_template' or"),
        ("  mode: allow_list", "  mode: *x", 14, "an alias"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(old: str, new: str, line: int, said: str) -> None:
    found = parse_workflow(DAILY.replace(old, new), file="daily-report.yml")
    assert found.item is None
    [problem] = [each for each in found.problems if each.severity is Severity.ERROR]
    assert (problem.file, problem.line) == ("daily-report.yml", line)
    assert said in problem.message


def test_a_field_that_is_not_known_is_odd_and_not_wrong() -> None:
    found = parse_workflow(DAILY.replace("enabled:", "enabeld:"))
    assert found.item is not None
    [odd] = found.problems
    assert (odd.severity, odd.line, odd.fix) == (Severity.WARNING, 19, "did you mean enabled?")


def test_the_begin_of_the_name_of_a_field_is_completed() -> None:
    found = parse_workflow(DAILY + "prompt: Begin.\ntrigger: cron\n")
    said = [each.fix for each in found.problems if each.severity is Severity.WARNING]
    assert said == ["did you mean prompt_template?", "did you mean trigger_config?"]


def test_an_agent_is_read_with_the_names_of_its_secrets_not_their_values() -> None:
    text = (
        "name: reporter\nworking_dir: .\ncommand: [my-agent, --once]\nmodel: small-1\n"
        "env:\n  TOKEN: ${TOKEN}\n  HOST: ${HOST:-localhost}:${PORT:-80}\nworktree: true\n"
    )
    found = parse_agent(text, environ={"TOKEN": "${HOST}", "PORT": "8080"})
    assert found.item is not None
    assert found.item.said == {
        "name": "reporter",
        "enabled": True,
        "working_dir": ".",
        "command": ["my-agent", "--once"],
        "model": "small-1",
        "env": {"TOKEN": "${TOKEN}", "HOST": "${HOST:-localhost}:${PORT:-80}"},
        "worktree": True,
    }


def test_a_variable_that_is_not_set_is_an_error_at_its_place() -> None:
    found = parse_agent("name: a\nenv:\n  TOKEN: ${TOKEN}\n", file="a.yml", environ={})
    assert found.item is None
    [problem] = found.problems
    assert (problem.line, problem.message) == (
        2,
        "TOKEN needs the variable TOKEN, which is not set",
    )
    assert problem.fix == ("set it, name it in [secrets] of horae.toml, or write ${TOKEN:-default}")


def test_the_secret_of_a_webhook_need_not_stand_in_its_file() -> None:
    text = "name: a\nagent: b\nsource: {type: webhook, secret: '${HOOK}'}\nprompt_template: Go.\n"
    item = parse_workflow(text, environ={"HOOK": "s3cret-s3cret"}).item
    assert item is not None
    assert item.said["trigger_config"]["secret"] == "${HOOK}"
    [problem] = parse_workflow(text).problems
    assert problem.message == "secret needs the variable HOOK, which is not set"


@pytest.mark.parametrize(
    ("text", "environ", "expected"),
    [
        ("${A}", {"A": "1"}, "1"),
        ("${A:-2}", {}, "2"),
        ("${A:-}", {}, ""),
        ("${A:-2}", {"A": ""}, ""),
        ("$A ${} ${1}", {"A": "1"}, "$A ${} ${1}"),
        ("${A}${B}", {"A": "${B}", "B": "x"}, "${B}x"),
    ],
)
def test_variables_are_expanded_once(text: str, environ: dict[str, str], expected: str) -> None:
    assert expand(text, environ) == expected


def test_a_file_without_a_folder_goes_by_what_it_says() -> None:
    assert is_workflow(DAILY)
    assert not is_workflow("name: reporter\nmodel: small\n")
    assert not is_workflow("[")
    assert not is_workflow("just words")


@settings(deadline=None)  # the first one waits for a library
@given(st.text(alphabet="name: agent\n-[]{}|'\"&*!%#source type", max_size=80))
def test_any_text_has_an_answer(text: str) -> None:
    for found in (parse_workflow(text), parse_agent(text, environ={})):
        is_wrong = any(each.severity is Severity.ERROR for each in found.problems)
        assert is_wrong == (found.item is None)
        assert found.item is not None or found.problems


# The published schemas


def schema(name: str) -> Any:
    return json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "keys"),
    [("workflow", WORKFLOW_KEYS), ("agent", AGENT_KEYS), ("task", tuple(FIELDS))],
)
def test_a_schema_knows_the_fields_that_are_read_and_no_others(
    name: str, keys: tuple[str, ...]
) -> None:
    data = schema(name)
    assert data["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert set(data["properties"]) == set(keys)
    assert set(data["required"]) <= set(keys)


def test_the_schemas_know_every_kind_of_source_and_every_mode() -> None:
    defined = schema("workflow")["$defs"]
    sources = [
        defined[each["$ref"].rpartition("/")[2]]
        for each in schema("workflow")["properties"]["source"]["anyOf"]
    ]
    assert {kind for each in sources for kind in each["properties"]["type"]["enum"]} == {*KINDS}
    for name in ("workflow", "agent"):
        assert schema(name)["properties"]["tool_policy"] == {"$ref": "#/$defs/ToolPolicy"}
        assert set(schema(name)["$defs"]["Mode"]["enum"]) == {*Mode}
