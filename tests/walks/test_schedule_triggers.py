"""Schedule triggers, from top to bottom: workflows that start an agent by cron, or once.

One engine whose clock is turned by hand, a program as the agent, the commands of `agent` as they
are typed, and the routes as they are asked. What a trigger tells its agent is what the program
wrote down.
"""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from horae.process.processes import can_kill_trees
from horae.timing.cron import Cron, CronError
from waiting import until
from walks.stage import DAY, EIGHT, HOUR, MINUTE, SECOND, engine, story, type_

if TYPE_CHECKING:
    from pathlib import Path

    from calling import Ending
    from walks.stage import Ground

runs = pytest.mark.skipif(not can_kill_trees(), reason="needs pidfds")

NINE = EIGHT + HOUR  # Wednesday, the first of April 2026
STAMP = "2026-04-01T09:00:00Z"
WEEKDAYS = "0 9 * * MON-FRI"
ID = re.compile(r"^ID:\s+([0-9a-f-]{36})$", re.MULTILINE)
# A program that can be handed a tool policy, and writes down what it is told.
PROGRAM = """\
import json, os, sys
with open({told!r}, "a") as told:
    print(json.dumps([sys.stdin.read().strip(), sys.argv[1:]]), file=told)
print(json.dumps(dict(type="result", subtype="success", is_error=False, result="It is done.")))
"""


@pytest.fixture(autouse=True)
def claude(ground: Ground) -> None:
    """Let a program stand for every agent."""
    program = ground.side / "claude"
    program.write_text(f"#!{sys.executable}\n{PROGRAM.format(told=str(ground.side / 'told'))}")
    program.chmod(0o700)
    text = f'zone = "Asia/Tokyo"\nlisten = "127.0.0.1:0"\n[run]\ndrain = "0s"\n[agent]\ncommand = ["{program}"]\n'
    ground.write("horae.toml", text)


def calls(ground: Ground) -> list[tuple[str, list[str]]]:
    """Return what the program was told, and with which options."""
    return [
        (prompt, options) for prompt, options in map(json.loads, ground.seen("told").splitlines())
    ]


def told(ground: Ground) -> list[str]:
    """Return what agents were told."""
    return [prompt for prompt, _ in calls(ground)]


async def say(ground: Ground, *args: str) -> Ending:
    """Type a command of `agent` in the project."""
    return await type_("agent", *args, at=ground.root)


async def orchestrator(ground: Ground, *args: str) -> str:
    """Type a command of `agent orchestrator`; it goes well."""
    ending = await say(ground, "orchestrator", *args)
    assert ending.code == 0, ending.err
    return ending.out


def id_of(out: str) -> str:
    """Return the id of what a command has made."""
    found = ID.search(out)
    assert found is not None, out
    return found[1]


async def create(ground: Ground, name: str, kind: str, *args: str, prompt: str = "Go.") -> str:
    """Make a workflow of the agent `worker`; return its id."""
    words = ("--name", name, "--agent-name", "worker", "--trigger-type", kind, *args)
    made = await orchestrator(ground, "create-workflow", *words, "--prompt-template", prompt)
    return id_of(made)


async def worker(ground: Ground) -> str:
    return id_of(await orchestrator(ground, "create-agent", "--name", "worker"))


async def history(ground: Ground, flow: str) -> list[tuple[str, str]]:
    """Return the dispatches of a workflow, newest first: source id and status."""
    found = (await say(ground, "--json", "orchestrator", "dispatch-history", flow)).data
    return [(each["source_id"], each["status"]) for each in found]


async def shown(ground: Ground, flow: str) -> Any:
    """Return a workflow as it is stored."""
    return (await say(ground, "--json", "orchestrator", "get-workflow", flow)).data


# Two types


@runs
@story
async def test_cron_repeats_and_a_delay_fires_once_and_disables_itself(ground: Ground) -> None:
    async with engine(ground) as here:
        await worker(ground)
        cron = await create(ground, "c", "cron", "--cron-expression", "0 9 * * *")
        delay = await create(ground, "d", "delay", "--run-at", STAMP)
        await here.until(NINE + 2 * DAY)
        assert [status for _, status in await history(ground, cron)] == ["completed"] * 3
        assert await history(ground, delay) == [(f"delay:{delay}", "completed")]
        assert (await shown(ground, cron))["enabled"] is True
        assert (await shown(ground, delay))["enabled"] is False


@runs
@story
async def test_the_task_is_made_up_and_told_by_the_template(ground: Ground) -> None:
    async with engine(ground) as here:
        await worker(ground)
        await create(ground, "c", "cron", "--cron-expression", "0 9 * * *", prompt="Do: {{title}}.")
        await here.until(NINE)
    assert told(ground) == ["Do: Cron trigger: 0 9 * * *."]


# Cron trigger: configuration

CONFIGS: dict[str, dict[str, str]] = {
    "cron": {"type": "cron", "expression": WEEKDAYS},
    "delay": {"type": "delay", "run_at": STAMP},
}


@pytest.mark.parametrize("kind", CONFIGS)
@runs
@story
async def test_a_configuration_is_json_for_the_route_and_yaml_in_a_file(
    ground: Ground, kind: str
) -> None:
    config = CONFIGS[kind]
    source = "".join(f"  {name}: {json.dumps(value)}\n" for name, value in config.items())
    text = f"name: by-file\nagent: worker\nsource:\n{source}prompt_template: Go.\n"
    ground.write(".agentd/workflows/by-file.yml", text)
    async with engine(ground) as here:
        agent = await worker(ground)
        body = {"name": "by-route", "agent_id": agent, "trigger_config": config}
        answer = await here.post("/workflows", {**body, "prompt_template": "Go."})
        assert answer.status_code == 201, answer.text
        applied = await say(ground, "apply", str(ground.root / ".agentd/workflows/by-file.yml"))
        assert applied.code == 0, applied.err
        for name in ("by-route", "by-file"):
            assert (await shown(ground, name))["trigger_config"] == config


@pytest.mark.parametrize("config", [{"type": "cron"}, {"type": "cron", "expression": "0 9 * *"}])
@runs
@story
async def test_an_expression_is_required_and_must_be_valid(
    ground: Ground, config: dict[str, str]
) -> None:
    async with engine(ground) as here:
        agent = await worker(ground)
        body = {"name": "w", "agent_id": agent, "trigger_config": config, "prompt_template": "Go."}
        answer = await here.post("/workflows", body)
        assert (answer.status_code, list(answer.json())) == (400, ["error"])
        assert (await here.get("/workflows"))["items"] == []


# Cron expression syntax


def moments(expression: str, count: int = 3, after: datetime = EIGHT) -> list[str]:
    """Return the next moments of an expression."""
    return [f"{each:%m-%d %H:%M:%S}" for each in Cron(expression).upcoming(after, count)]


@pytest.mark.parametrize(
    ("expression", "first"),
    [
        pytest.param("59 23 31 12 *", "12-31 23:59:00", id="the highest of five fields"),
        pytest.param("59 59 23 31 12 *", "12-31 23:59:59", id="six fields begin with seconds"),
        pytest.param("0 0 1 JAN *", "01-01 00:00:00", id="months have names"),
        pytest.param("0 0 * * SAT", "04-04 00:00:00", id="so have days"),
        pytest.param("0 0 * * 0", "04-05 00:00:00", id="zero is Sunday"),
        pytest.param("0 0 * * 7", "04-05 00:00:00", id="and so is seven"),
    ],
)
def test_both_formats_are_read(expression: str, first: str) -> None:
    assert moments(expression, 1) == [first]


@pytest.mark.parametrize(
    "expression", ["60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *", "* * * * 8"]
)
def test_what_is_outside_of_its_range_is_no_expression(expression: str) -> None:
    with pytest.raises(CronError, match="is outside"):
        Cron(expression)


@pytest.mark.parametrize(
    ("expression", "following"),
    [
        pytest.param("* * * * *", ["08:01", "08:02", "08:03"], id="any value"),
        pytest.param("0,30 * * * *", ["08:30", "09:00", "09:30"], id="a list"),
        pytest.param("0 9 * * MON-FRI", ["09:00", "09:00", "09:00"], id="a range"),
        pytest.param("*/5 * * * *", ["08:05", "08:10", "08:15"], id="a step"),
    ],
)
def test_the_four_special_characters(expression: str, following: list[str]) -> None:
    assert [each[6:11] for each in moments(expression)] == following


@pytest.mark.parametrize(
    ("expression", "following"),
    [
        ("* * * * *", ["04-01 08:01:00", "04-01 08:02:00"]),
        ("*/5 * * * *", ["04-01 08:05:00", "04-01 08:10:00"]),
        ("0 * * * *", ["04-01 09:00:00", "04-01 10:00:00"]),
        ("0 9 * * *", ["04-01 09:00:00", "04-02 09:00:00"]),
        (
            "0 9 * * MON-FRI",
            ["04-01 09:00:00", "04-02 09:00:00", "04-03 09:00:00", "04-06 09:00:00"],
        ),
        ("0 0 * * *", ["04-02 00:00:00", "04-03 00:00:00"]),
        ("0 12 1 * *", ["04-01 12:00:00", "05-01 12:00:00"]),
        ("30 4 * * SUN", ["04-05 04:30:00", "04-12 04:30:00"]),
        ("0 */6 * * *", ["04-01 12:00:00", "04-01 18:00:00"]),
        ("0 0 1 1 *", ["01-01 00:00:00"]),
        ("* * * * * *", ["04-01 08:00:01", "04-01 08:00:02"]),
    ],
)
def test_a_common_expression_means_what_stands_beside_it(
    expression: str, following: list[str]
) -> None:
    assert moments(expression, len(following)) == following


@runs
@story
async def test_every_common_expression_fires_when_it_should(ground: Ground) -> None:
    expected = {"*/5 * * * *": 3, "0 * * * *": 1, "0 9 * * *": 1, WEEKDAYS: 1, "0 0 * * *": 0}
    async with engine(ground, now=NINE - 6 * MINUTE) as here:
        await worker(ground)
        flows = {
            each: await create(ground, f"w{place}", "cron", "--cron-expression", each)
            for place, each in enumerate(expected)
        }
        seconds = await create(ground, "s", "cron", "--cron-expression", "* * * * * *")
        await here.advance(2 * SECOND)
        assert len(await history(ground, seconds)) == 2
        await orchestrator(ground, "update-workflow", seconds, "--enabled", "false")
        await here.until(NINE + 6 * MINUTE)
        found = {each: len(await history(ground, flow)) for each, flow in flows.items()}
        assert found == expected


# Time zone


@runs
@story
async def test_expressions_are_in_utc_whatever_the_zone_of_the_machine_or_the_plans(
    ground: Ground,
) -> None:
    assert 'zone = "Asia/Tokyo"' in (ground.root / "horae.toml").read_text()
    async with engine(ground) as here:
        await worker(ground)
        est = await create(ground, "nine-est", "cron", "--cron-expression", "0 14 * * *")
        await here.until(datetime(2026, 4, 1, 14, tzinfo=UTC))
        assert await history(ground, est) == [("cron:2026-04-01T14:00:00Z", "completed")]


@runs
@story
async def test_a_workflow_may_name_a_zone_of_its_own(ground: Ground) -> None:
    """Different here: without `timezone` all is in UTC, as it should be; with it, the wall counts.

    The document makes no attempt at a zone per workflow, and to convert by hand is wrong for
    half of the year. What fires is still named by its moment in UTC.
    """
    async with engine(ground, now=EIGHT - 2 * HOUR) as here:
        agent = await worker(ground)
        config = {"type": "cron", "expression": "0 9 * * *", "timezone": "Europe/Berlin"}
        body = {"name": "b", "agent_id": agent, "trigger_config": config, "prompt_template": "Go."}
        answer = await here.post("/workflows", body)
        assert answer.status_code == 201, answer.text
        await here.until(NINE)
        assert await history(ground, "b") == [("cron:2026-04-01T07:00:00Z", "completed")]


# Template variables, deduplication, poll_interval_secs


@runs
@story
async def test_what_a_cron_tells_its_agent(ground: Ground) -> None:
    names = "{{fire_time}}|{{cron_expression}}|{{source_id}}|{{title}}"
    empty = "[{{body}}{{url}}{{labels}}{{assignee}}]"
    async with engine(ground) as here:
        await worker(ground)
        words = ("--cron-expression", WEEKDAYS)
        await create(ground, "c", "cron", *words, prompt=names + empty)
        await here.until(NINE)
    assert told(ground) == [
        f"{STAMP}|{WEEKDAYS}|cron:{STAMP}|Cron trigger: {WEEKDAYS}[]",
    ]


@runs
@story
async def test_the_same_fire_time_is_never_dispatched_twice_however_often_one_restarts(
    ground: Ground,
) -> None:
    async with engine(ground) as here:
        await worker(ground)
        flow = await create(ground, "c", "cron", "--cron-expression", "0 9 * * *")
        await here.until(NINE)
    for minutes in (0, 0, 1):
        async with engine(ground, now=NINE + minutes * MINUTE):
            assert await history(ground, flow) == [(f"cron:{STAMP}", "completed")]
    assert told(ground) == ["Go."]


@runs
@story
async def test_what_passed_while_nobody_looked_is_not_made_good_but_written_down(
    ground: Ground,
) -> None:
    """The next tick counts from now. Different here: each missed one has an entry that says so."""
    async with engine(ground):
        await worker(ground)
        flow = await create(ground, "c", "cron", "--cron-expression", "0 9 * * *")
    async with engine(ground, now=NINE + DAY + HOUR) as here:
        missed = [("cron:2026-04-02T09:00:00Z", "skipped"), (f"cron:{STAMP}", "skipped")]
        assert await history(ground, flow) == missed
        await here.until(NINE + 2 * DAY)
        assert (await history(ground, flow))[0] == ("cron:2026-04-03T09:00:00Z", "completed")
    assert told(ground) == ["Go."]


@pytest.mark.parametrize(("words", "stored"), [((), 60), (("--poll-interval", "3600"), 3600)])
@runs
@story
async def test_the_poll_interval_is_stored_and_ignored(
    ground: Ground, words: tuple[str, ...], stored: int
) -> None:
    async with engine(ground, now=NINE - 2 * MINUTE) as here:
        await worker(ground)
        cron = await create(ground, "c", "cron", "--cron-expression", "* * * * *", *words)
        run_at = ("--run-at", "2026-04-01T08:58:07Z")
        delay = await create(ground, "d", "delay", *run_at, *words)
        assert (await shown(ground, cron))["poll_interval_secs"] == stored
        assert (await shown(ground, delay))["poll_interval_secs"] == stored
        await here.advance(7 * SECOND)
        [filed] = await here.receipts("d")
        assert filed.decided_at == NINE - 2 * MINUTE + 7 * SECOND, "precisely then"
        await here.until(NINE)
        assert [key for key, _ in await history(ground, cron)] == [
            f"cron:{STAMP}",
            "cron:2026-04-01T08:59:00Z",
        ]


# Delay trigger


@pytest.mark.parametrize(
    "run_at", [STAMP, "2026-04-01T09:00:00+00:00", "2026-04-01T05:00:00-04:00"]
)
@runs
@story
async def test_the_three_formats_name_the_same_moment(ground: Ground, run_at: str) -> None:
    async with engine(ground) as here:
        await worker(ground)
        flow = await create(ground, "d", "delay", "--run-at", run_at)
        await here.until(NINE - SECOND)
        assert await history(ground, flow) == []
        await here.until(NINE)
        assert await history(ground, flow) == [(f"delay:{flow}", "completed")]


@pytest.mark.parametrize("run_at", ["tomorrow", "2026-04-01", "2026-04-01T09:00:00", "1775034000"])
@runs
@story
async def test_what_cannot_be_parsed_is_400_at_once(ground: Ground, run_at: str) -> None:
    async with engine(ground) as here:
        agent = await worker(ground)
        config = {"type": "delay", "run_at": run_at}
        body = {"name": "d", "agent_id": agent, "trigger_config": config, "prompt_template": "Go."}
        answer = await here.post("/workflows", body)
        assert answer.status_code == 400
        assert answer.json()["error"].lower().startswith("invalid input: "), answer.text
        assert run_at in answer.json()["error"]


@runs
@story
async def test_one_shot_sleeps_dispatches_disables_and_stays_in_storage(ground: Ground) -> None:
    async with engine(ground) as here:
        await worker(ground)
        flow = await create(ground, "d", "delay", "--run-at", STAMP)
        await here.until(NINE - SECOND)
        assert "Status: enabled\n" in await orchestrator(ground, "get-workflow", flow)
        await here.until(NINE + 7 * DAY)
        assert "Status: disabled\n" in await orchestrator(ground, "get-workflow", flow)
        assert "Total: 1 dispatch(es)" in await orchestrator(ground, "dispatch-history", flow)
        assert "Name: d\n" in await orchestrator(ground, "list-workflows")
    assert told(ground) == ["Go."]


@runs
@story
async def test_a_moment_that_is_over_fires_immediately(ground: Ground) -> None:
    async with engine(ground, now=NINE + HOUR) as here:
        await worker(ground)
        flow = await create(ground, "created", "delay", "--run-at", STAMP)
        await here.rest()
        assert await history(ground, flow) == [(f"delay:{flow}", "completed")]
        late = await create(ground, "late", "delay", "--run-at", "2026-04-01T12:00:00Z")
        off = await create(ground, "off", "delay", "--run-at", "2026-04-01T12:00:00Z")
        await orchestrator(ground, "update-workflow", off, "--enabled", "false")
    async with engine(ground, now=NINE + DAY):  # restarted after its time had passed
        assert await history(ground, late) == [(f"delay:{late}", "completed")]
        assert await history(ground, off) == [], "who was disabled before does not fire"


@runs
@story
async def test_what_a_delay_tells_its_agent(ground: Ground) -> None:
    names = "{{run_at}}|{{workflow_id}}|{{source_id}}|{{title}}"
    async with engine(ground) as here:
        await worker(ground)
        flow = await create(ground, "d", "delay", "--run-at", STAMP, prompt=names)
        await here.until(NINE)
    assert told(ground) == [f"{STAMP}|{flow}|delay:{flow}|Delay trigger: {STAMP}"]


@runs
@story
async def test_a_restart_between_firing_and_the_end_dispatches_nothing_twice(
    ground: Ground,
) -> None:
    """Different here: what was decided is written before anything starts, not after it.

    So there is no moment at which a restart could find a dispatch that is not on record. A run
    that the restart cut off is `failed`, and says so, rather than started again. And it is the
    end of the dispatch that disables the workflow, not its beginning.
    """
    program = ground.side / "claude"
    program.write_text(f"#!/bin/sh\necho begun >> {ground.side}/begun; exec sleep 1000\n")
    async with engine(ground, environ={"HORAE_RUN_DRAIN": "0s"}) as here:
        await worker(ground)
        flow = await create(ground, "d", "delay", "--run-at", STAMP)
        await here.until(NINE, busy=1)
        await until(lambda: ground.seen("begun"))
        assert await history(ground, flow) == [(f"delay:{flow}", "dispatched")]
        assert (await shown(ground, flow))["enabled"] is True, "until its dispatch is over"
    async with engine(ground, now=NINE + MINUTE):
        assert await history(ground, flow) == [(f"delay:{flow}", "failed")]
        assert (await shown(ground, flow))["enabled"] is False
    assert ground.seen("begun") == "begun\n"


# CLI usage


@runs
@story
async def test_the_two_commands_as_they_are_typed(ground: Ground) -> None:
    async with engine(ground) as here:
        await worker(ground)
        base = ("agent", "--root", str(ground.root), "orchestrator", "create-workflow")
        cron = await type_(
            *base,
            *("--name", "daily-report", "--agent-name", "worker", "--trigger-type", "cron"),
            *("--cron-expression", WEEKDAYS),
            *("--prompt-template", "Generate the daily status report for {{fire_time}}."),
            at=ground.root,
        )
        delay = await type_(
            *base,
            *("--name", "april-fools-task", "--agent-name", "worker", "--trigger-type", "delay"),
            *("--run-at", STAMP),
            *("--prompt-template", "It is now {{run_at}}. Run the April Fools deployment."),
            at=ground.root,
        )
        assert (cron.code, delay.code) == (0, 0), (cron.err, delay.err)
        await here.until(NINE)
    assert sorted(told(ground)) == [
        f"Generate the daily status report for {STAMP}.",
        f"It is now {STAMP}. Run the April Fools deployment.",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cron",), "--cron-expression is required for cron trigger"),
        (("delay",), "--run-at is required for delay trigger"),
        (
            ("cron", "--cron-expression", "61 * * * *"),
            "the cron expression '61 * * * *' is not valid",
        ),
        (("delay", "--run-at", "soon"), "'soon' is not an RFC 3339 time"),
    ],
)
@runs
@story
async def test_what_is_required_or_wrong_is_said_at_once(
    ground: Ground, words: tuple[str, ...], said: str
) -> None:
    async with engine(ground):
        await worker(ground)
        line = ("--name", "w", "--agent-name", "worker", "--prompt-template", "Go.")
        ending = await say(
            ground, "orchestrator", "create-workflow", *line, "--trigger-type", *words
        )
        assert ending.code == 1
        assert said in ending.err
        assert await orchestrator(ground, "list-workflows") == "No workflows found.\n"


@runs
@story
async def test_a_history_entry_reads_like_the_example(ground: Ground) -> None:
    async with engine(ground) as here:
        await worker(ground)
        flow = await create(ground, "daily-report", "cron", "--cron-expression", WEEKDAYS)
        await here.until(NINE)
        lines = (await orchestrator(ground, "dispatch-history", flow)).splitlines()
        assert re.fullmatch(r"ID:           [0-9a-f-]{36}", lines[2])
        assert lines[3:8] == [
            "Workflow:     daily-report",
            f"Source ID:    cron:{STAMP}",
            "Status:       completed",
            f"Dispatched:   {STAMP}",
            f"Completed:    {STAMP}",
        ]


# YAML templates


def templates(ground: Ground) -> Path:
    """Write a project of two agents that are defined in files, and three workflows."""
    for name in ("monitor", "deployer"):
        ground.write(f".agentd/agents/{name}.yml", f"name: {name}\n")
    report = (
        f'name: daily-report\nagent: reporter\n\nsource:\n  type: cron\n  expression: "{WEEKDAYS}"\n\n'
        "prompt_template: |\n  It is {{fire_time}} (schedule: {{cron_expression}}).\n\n"
        "  Sum up:\n  1. What is open\n  2. What fails\n\nenabled: true\n"
    )
    policy = "tool_policy:\n  mode: allow_list\n  tools:\n"
    health = (
        'name: health-check\nagent: monitor\nsource:\n  type: cron\n  expression: "0 * * * *"\n'
        "prompt_template: |\n  Hourly health check at {{fire_time}}.\n"
        f"{policy}    - Bash\n    - WebFetch\nenabled: true\n"
    )
    deploy = (
        "name: scheduled-deploy\nagent: deployer\nsource:\n  type: delay\n"
        '  run_at: "2026-04-01T02:00:00Z"\n'
        "prompt_template: |\n  The window is open ({{run_at}}).\n"
        f"{policy}    - Bash\nenabled: true\n"
    )
    ground.write(".agentd/workflows/health-check.yml", health)
    ground.write(".agentd/workflows/scheduled-deploy.yml", deploy)
    return ground.write(".agentd/workflows/daily-report.yml", report)


@runs
@story
async def test_one_template_is_applied_and_then_the_whole_project_agents_first(
    ground: Ground, tmp_path: Path
) -> None:
    async with engine(ground) as here:
        file = templates(ground)
        elsewhere = tmp_path / "project"
        (ground.root / ".agentd").rename(elsewhere)  # so that the engine does not apply it itself
        file = elsewhere / "workflows" / file.name
        early = await say(ground, "apply", str(file))
        assert (early.code, "Agent 'reporter' not found" in early.err) == (1, True)
        await orchestrator(ground, "create-agent", "--name", "reporter")
        one = await here.meanwhile(say(ground, "apply", str(file)))
        assert one.out.splitlines()[-1] == "Applied 0 room(s), 0 agent(s), and 1 workflow(s)"
        whole = await here.meanwhile(say(ground, "apply", str(elsewhere)))
        assert whole.code == 0, whole.err
        assert [line.split()[:2] for line in whole.out.splitlines()[:-1]] == [
            ["create", "agent"],
            ["create", "agent"],
            ["unchanged", "workflow"],
            ["create", "workflow"],
            ["create", "workflow"],
        ]
        found = await shown(ground, "health-check")
        assert found["tool_policy"] == {"mode": "allow_list", "tools": ["Bash", "WebFetch"]}
        await here.rest()
        [(prompt, options)] = calls(ground)
        assert prompt == "The window is open (2026-04-01T02:00:00Z).", "its time is over"
        assert any("Bash" in each for each in options), "the policy is handed over"
        await here.until(NINE)
    first = [prompt.splitlines()[0] for prompt in told(ground)[1:]]
    assert sorted(first) == [
        f"Hourly health check at {STAMP}.",
        f"It is {STAMP} (schedule: {WEEKDAYS}).",
    ]


# End to end, and operational notes


@runs
@story
async def test_the_walkthrough_in_five_steps(ground: Ground) -> None:
    async with engine(ground, now=NINE + HOUR) as here:
        out = await orchestrator(ground, "create-agent", "--name", "reporter")
        assert out.startswith("Agent created successfully!\n\nID: ")
        words = ("--name", "weekday-standup", "--agent-name", "reporter", "--trigger-type", "cron")
        prompt = "Daily standup at {{fire_time}}. Summarise yesterday's commits."
        made = await orchestrator(
            ground,
            *("create-workflow", *words, "--cron-expression", WEEKDAYS),
            *("--prompt-template", prompt),
        )
        flow = id_of(made)
        assert flow in await orchestrator(ground, "list-workflows")
        details = await orchestrator(ground, "get-workflow", flow)
        assert (
            f"Status: enabled\nPoll Interval: 60s\nTrigger Type: cron\nExpression: {WEEKDAYS}\n"
            in details
        )
        none = await orchestrator(ground, "dispatch-history", flow)
        assert none == "No dispatch history found.\n"
        await here.until(NINE + DAY)
        assert await history(ground, flow) == [("cron:2026-04-02T09:00:00Z", "completed")]
        gone = await orchestrator(ground, "delete-workflow", flow)
        assert gone == f"Workflow {flow} deleted.\n"
        await here.until(NINE + 7 * DAY)
    assert told(ground) == ["Daily standup at 2026-04-02T09:00:00Z. Summarise yesterday's commits."]


@runs
@story
async def test_a_delay_that_is_enabled_again_fires_again(ground: Ground) -> None:
    """Different here: it fires at once, not only at the next start, and as `delay:ID:2`.

    The dispatch is one of its own, so that neither can be taken for the other.
    """
    async with engine(ground) as here:
        await worker(ground)
        flow = await create(ground, "d", "delay", "--run-at", STAMP, prompt="{{source_id}}")
        await here.until(NINE)
        await orchestrator(ground, "update-workflow", flow, "--enabled", "true")
        await here.rest()
        assert [key for key, _ in await history(ground, flow)] == [
            f"delay:{flow}:2",
            f"delay:{flow}",
        ]
        assert (await shown(ground, flow))["enabled"] is False
    assert told(ground) == [f"delay:{flow}", f"delay:{flow}:2"]
