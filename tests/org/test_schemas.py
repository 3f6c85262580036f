"""The published schemas, with a real validator: they say of a file what we say of it."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest
import yaml
from hypothesis import given, settings, strategies as st

from horae.sources.board.task import FIELDS, TaskFieldKind as FieldKind, parse as parse_task
from horae.sources.triggers.files import parse_agent, parse_workflow
from horae.sources.triggers.kinds import KINDS, TriggerError
from horae.sources.triggers.rules import checked, new_definition, parse_tools
from horae.sources.triggers.source import read_folder
from scale import scaled

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMAS = Path(__file__).parents[2] / "schemas"
EXAMPLES = SCHEMAS / "examples"
SCRIPT = SCHEMAS.parent / "scripts" / "schemas.py"


def validator(name: str) -> jsonschema_rs.Draft202012Validator:
    text = (SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8")
    return jsonschema_rs.Draft202012Validator(json.loads(text), validate_formats=True)


AGENT, WORKFLOW, TASK = map(validator, ("agent", "workflow", "task"))


def frontmatter(text: str) -> Any:
    return yaml.safe_load(text.split("---")[1])


@pytest.mark.parametrize("name", ["agent", "settings", "workflow", "task"])
def test_each_schema_is_one(name: str) -> None:
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    assert jsonschema_rs.meta.is_valid(schema)


@pytest.mark.parametrize("file", sorted(EXAMPLES.rglob("*.yml")), ids=lambda each: each.stem)
def test_every_example_is_valid(file: Path) -> None:
    schema = {"agents": AGENT, "workflows": WORKFLOW}[file.parent.name]
    text = file.read_text(encoding="utf-8")
    schema.validate(yaml.safe_load(text))
    kind = file.parent.name.removesuffix("s")
    assert f"$schema=../../{kind}.schema.json\n" in text
    assert (SCHEMAS / f"{kind}.schema.json").exists()


def test_the_examples_can_be_applied_as_they_are() -> None:
    folder = read_folder(str(EXAMPLES), environ={"HOOK_SECRET": ""}, base=str(SCHEMAS))
    assert (folder.errors, folder.warnings) == ([], [])
    assert (len(folder.agents), len(folder.workflows)) == (2, 4)
    for each in folder.workflows:
        assert is_made(each) == ""


@pytest.mark.parametrize("file", sorted(EXAMPLES.rglob("*.md")), ids=lambda each: each.stem)
def test_every_example_of_a_task_is_valid(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    TASK.validate(frontmatter(text))
    assert parse_task(text).diagnostics == ()


# What we say of a file


def is_made(file: Any) -> str:
    """Return why a workflow that was read cannot be made; nothing if it can."""
    try:
        said = {**file.said, "prompt_template": file.said["prompt_template"] or "From a file."}
        checked(new_definition(said, agent=said["agent"]))
    except TriggerError as error:
        return str(error)
    return ""


def wrong_workflow(data: Mapping[str, Any]) -> str:
    """Return what we have against a workflow, if anything; JSON is YAML, too."""
    found = parse_workflow(json.dumps(data), environ={})
    # No schema tells a secret from its name.
    problems = [each for each in found.problems if "contains a secret" not in each.message]
    if found.item is None or problems:
        return str(problems)
    return is_made(found.item)


def wrong_agent(data: Mapping[str, Any]) -> str:
    found = parse_agent(json.dumps(data), environ={})
    if found.item is None or found.problems:
        return str(found.problems)
    try:
        parse_tools(found.item.said.get("tool_policy"))
    except TriggerError as error:
        return str(error)
    return ""


CRON = {"type": "cron", "expression": "0 9 * * MON-FRI"}
FLOW: dict[str, Any] = {"name": "w", "agent": "a", "source": CRON, "prompt_template": "Go."}


def changed(**changes: Any) -> dict[str, Any]:
    made = {**FLOW, **changes}
    return {name: value for name, value in made.items() if value is not ...}


@pytest.mark.parametrize(
    "data",
    [
        changed(name=...),
        changed(agent=...),
        changed(source=...),
        changed(prompt_template=...),
        changed(prompt_template=" "),
        changed(name="two words"),
        changed(name=".."),
        changed(name="x" * 65),
        changed(enable=True),
        changed(enabled="maybe"),
        changed(poll_interval=0),
        changed(poll_interval=700_000),
        changed(poll_interval="often"),
        changed(overlap="sometimes"),
        changed(catchup="some"),
        changed(source={"type": "cron"}),
        changed(source={"type": "cron", "expression": " "}),
        changed(source={"type": "cron", "expresion": "0 9 * * *"}),
        changed(source={**CRON, "timezon": "Europe/Berlin"}),
        changed(source={"type": "delay", "run_at": "tomorrow"}),
        changed(source={"type": "delay", "run_at": "2026-04-01"}),
        changed(source={"type": "delay", "run_at": "2026-04-01T09:00:00"}),
        changed(source={"type": "github_issues", "owner": "o"}),
        changed(source={"type": "github_issues", "owner": "o", "repo": "r", "state": "new"}),
        changed(source={"type": "webhook", "secret": "short"}),
        changed(source={"type": "webhook"}),
        changed(source={"type": "webhook", "secret": "whsec_too-short"}),
        changed(source={"type": "webhook", "secret": "s3cret-s3cret", "scheme": "standard"}),
        changed(source={"type": "webhook", "secret": "s3cret-s3cret", "scheme": "stripe"}),
        changed(source={"type": "webhook", "secret": "s3cret-s3cret", "old_secret": "short"}),
        changed(source={"type": "agent_lifecycle", "event": "birth"}),
        changed(source={"type": "dispatch_result", "status": "pending"}),
        changed(source={"type": "sundial"}),
        changed(source=[CRON]),
        changed(tool_policy={"mode": "auto"}),
        changed(tool_policy={"mode": "allow_list"}),
        changed(tool_policy={}),
        changed(tool_policy="allow_all"),
    ],
)
def test_a_workflow_with_a_mistake_is_refused_by_both(data: dict[str, Any]) -> None:
    assert not WORKFLOW.is_valid(data)
    assert wrong_workflow(data)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"name": "two words"},
        {"name": "a", "nme": "b"},
        {"name": "a", "env": ["A=b"]},
        {"name": "a", "command": {"run": "x"}},
        {"name": "a", "enabled": "perhaps"},
        {"name": "a", "tool_policy": {"mode": "deny_list"}},
        {"name": "a", "auto_clear_threshold": "many"},
        {"name": "a", "rooms": "lobby"},
        {"name": "a", "system_prompt": ["x"]},
    ],
)
def test_an_agent_with_a_mistake_is_refused_by_both(data: dict[str, Any]) -> None:
    assert not AGENT.is_valid(data)
    assert wrong_agent(data)


@pytest.mark.parametrize(
    "data",
    [
        {"title": "No number"},
        {"id": 1},
        {"id": 1, "title": ""},
        {"id": -1, "title": "x"},
        {"id": "one", "title": "x"},
        {"id": 1, "title": ["x"]},
        {"id": 1, "title": "x", "depends_on": ["seven"]},
        {"id": 1, "title": "x", "tags": {"a": 1}},
        {"id": 1, "title": "x", "tests_run": "often"},
        {"id": 1, "title": "x", "attempt": "second"},
        {"id": 1, "title": "x", "scheduled_for": ["2026-04-01T09:00:00Z"]},
    ],
)
def test_a_task_with_a_mistake_is_refused_by_both(data: dict[str, Any]) -> None:
    assert not TASK.is_valid(data)
    assert parse_task(f"---\n{json.dumps(data)}\n---\n").diagnostics


# Files that nobody wrote

_WORDS = st.sampled_from(["bug", "help wanted", "Read", "Bash(git *)", "session_start", "x.y-z_1"])
_NAMES = st.from_regex(r"[a-z][a-z0-9._-]{0,20}", fullmatch=True)
_LISTS = st.lists(_WORDS, max_size=3)
_POLICIES = st.one_of(
    st.sampled_from(["allow_all", "deny_all", "require_approval"]).map(lambda mode: {"mode": mode}),
    st.builds(
        lambda mode, tools: {"mode": mode, "tools": tools},
        st.sampled_from(["allow_list", "deny_list"]),
        st.lists(st.sampled_from(["Read", "Bash(git *)", "WebFetch"]), max_size=3),
    ),
)
_WHSEC = f"whsec_{'A' * 32}"
_GITHUB = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["github_issues", "github_pull_requests"]),
        "owner": _NAMES,
        "repo": _NAMES,
    },
    optional={
        "labels": st.lists(st.sampled_from(["bug", "help wanted"]), max_size=2),
        "state": st.sampled_from(["open", "closed", "all"]),
    },
)
_SOURCES = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.just("cron"),
            "expression": st.sampled_from(["* * * * *", "0 9 * * MON-FRI", "*/5 * * * * *"]),
        },
        optional={"timezone": st.sampled_from(["Europe/Berlin", "UTC"])},
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("delay"),
            "run_at": st.sampled_from(["2026-04-01T09:00:00Z", "2026-04-01T05:00:00-04:00"]),
        }
    ),
    _GITHUB,
    st.fixed_dictionaries(
        {
            "type": st.just("agent_lifecycle"),
            "event": st.sampled_from(["session_start", "session_end", "context_clear"]),
        }
    ),
    st.fixed_dictionaries(
        {"type": st.just("dispatch_result")},
        optional={
            "source_workflow_id": _NAMES,
            "status": st.sampled_from(["completed", "failed", "skipped"]),
        },
    ),
    st.fixed_dictionaries(
        {"type": st.just("webhook"), "secret": st.sampled_from(["change-me-now", _WHSEC])},
        optional={
            "scheme": st.just("github"),
            "old_secret": st.just(_WHSEC),
            "events": _LISTS,
            "actions": _LISTS,
        },
    ),
    st.just({"type": "manual"}),
)
_WORKFLOWS = st.fixed_dictionaries(
    {
        "name": _NAMES,
        "agent": _NAMES,
        "source": _SOURCES,
        "prompt_template": st.sampled_from(["Go.", "{{title}} and {{source_id}}", "a\nb: {c}\n"]),
    },
    optional={
        "poll_interval": st.integers(1, 604_800),
        "enabled": st.booleans(),
        "tool_policy": _POLICIES,
        "catchup": st.sampled_from(["all", "latest", "none"]),
        "overlap": st.sampled_from(["skip", "queue", "allow"]),
        "retry": st.just("3 30s"),
        "timeout": st.just("15m"),
        "jitter": st.just("5m"),
        "pause_after": st.integers(1, 9),
        "until": st.just("2026-12-31"),
        "requires": st.sampled_from(["gpu", "gpu berlin"]),
    },
)
_AGENTS = st.fixed_dictionaries(
    {"name": _NAMES},
    optional={
        "working_dir": st.sampled_from([".", "..", "here"]),
        "system_prompt": st.just("You report.\n"),
        "model": st.just("small-1"),
        "interactive": st.booleans(),
        "worktree": st.booleans(),
        "enabled": st.booleans(),
        "timeout": st.just("15m"),
        "additional_dirs": _LISTS,
        "command": st.one_of(st.just("claude"), st.lists(_WORDS, min_size=1, max_size=3)),
        "auto_clear_threshold": st.integers(0, 99),
        "env": st.dictionaries(st.sampled_from(["A", "B"]), st.sampled_from(["x", "80"])),
        "rooms": st.lists(st.one_of(_NAMES, st.just({"name": "lobby", "role": "guest"}))),
        "tool_policy": _POLICIES,
        "resource_limits": st.just({"cpu_limit": "2", "memory_limit_mb": "512"}),
    },
)


@st.composite
def spoiled(draw: st.DrawFn, files: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    """A file, as it is or with a mistake: something left out, misspelt, nested or too much."""
    data = draw(files)
    harm = draw(st.sampled_from(["none", "none", "leave", "misspell", "nest", "list", "more"]))
    key = draw(st.sampled_from(sorted(data)))
    match harm:
        case "leave":
            del data[key]
        case "misspell":
            data[key + "s"] = data.pop(key)
        case "nest":
            data[key] = {"of": data[key]}
        case "list":
            data[key] = [[data[key]]]
        case "more":
            data["frequency"] = "often"
    return data


@settings(max_examples=scaled(4000), deadline=None)
@given(spoiled(_WORKFLOWS))
def test_of_any_workflow_both_say_the_same(data: dict[str, Any]) -> None:
    wrong = wrong_workflow(data)
    assert WORKFLOW.is_valid(data) is not bool(wrong), wrong


@settings(max_examples=scaled(4000), deadline=None)
@given(spoiled(_AGENTS))
def test_of_any_agent_both_say_the_same(data: dict[str, Any]) -> None:
    wrong = wrong_agent(data)
    assert AGENT.is_valid(data) is not bool(wrong), wrong


_FITTING: dict[FieldKind, st.SearchStrategy[Any]] = {
    FieldKind.TEXT: st.sampled_from(["alex", "two words", "v2.0"]),
    FieldKind.MOMENT: st.sampled_from(["2026-04-01T09:00:00Z", "2026-04-01T09:00:00+02:00"]),
    FieldKind.NUMBER: st.integers(0, 9999),
    FieldKind.NUMBERS: st.lists(st.integers(0, 9999), max_size=3),
    FieldKind.TEXTS: st.lists(st.sampled_from(["a", "b c"]), max_size=3),
    FieldKind.FLAG: st.booleans(),
    FieldKind.FLAG_OR_TEXT: st.one_of(st.booleans(), st.just("on review")),
}
_WORDED = {"catchup": st.sampled_from(["all", "latest", "none"])}


@st.composite
def tasks(draw: st.DrawFn) -> dict[str, Any]:
    """The fields of a task, all of them fitting or one of them nested."""
    names = draw(st.lists(st.sampled_from(sorted(FIELDS)), max_size=6, unique=True))
    data: dict[str, Any] = {"id": draw(st.integers(0, 9999)), "title": "Rotate the keys"}
    for name in names:
        if name not in data:
            data[name] = draw(_WORDED.get(name, _FITTING[FIELDS[name]]))
    if draw(st.booleans()):
        data[draw(st.sampled_from(sorted(data)))] = {"of": "it"}
    return data


@settings(max_examples=scaled(4000), deadline=None)
@given(tasks())
def test_of_any_task_both_say_the_same(data: dict[str, Any]) -> None:
    wrong = parse_task(f"---\n{json.dumps(data)}\n---\n").diagnostics
    assert TASK.is_valid(data) is not bool(wrong), wrong


def test_the_schemas_are_those_of_the_fields_that_are_read() -> None:
    script = runpy.run_path(str(SCRIPT))
    for name, text in script["schemas"]().items():
        assert (SCHEMAS / name).read_text(encoding="utf-8") == text, "run `make schemas`"
    page = script["PAGE"].read_text(encoding="utf-8")
    assert script["settings_page"](page) == page, "run `make schemas`"


def test_every_kind_of_source_has_a_schema() -> None:
    schema = json.loads((SCHEMAS / "workflow.schema.json").read_text())
    refs = (each["$ref"].rpartition("/")[2] for each in schema["properties"]["source"]["anyOf"])
    assert {schema["$defs"][ref]["properties"]["type"]["enum"][0] for ref in refs} == {*KINDS}
