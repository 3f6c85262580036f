"""Agents: who there is, and one way to run any of them."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from msgspec.structs import replace

import horae
from horae.app import build
from horae.config import load
from horae.core.agent import Agent, AgentNotFoundError, RunnerKind, parse_agent
from horae.core.entry import Origin
from horae.core.ports import Ended, Held, Run, RunError, Unreleased
from horae.core.receipt import Status
from horae.core.tool_policy import ToolPolicy, parse_policy
from horae.files.git.trees import Trees
from horae.process.processes import Processes, can_kill_trees
from horae.process.run_settings import RunSettings
from horae.sources.agents.runner import (
    LONGEST_TEXT,
    PROMPT_NAME,
    AgentHost,
    AgentTwiceError,
    BlockAgents,
    Part,
    Provider,
    Registry,
    hidden_of,
    provider_of,
)
from horae.sources.workflows.commands import records_of
from sources.workflows.stage import flow, marked, only, step, tasks, yard
from store.ledger_suite import story
from waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from sources.workflows.stage import Yard

pytestmark = pytest.mark.skipif(not can_kill_trees(), reason="runs need pidfds")

NOW = datetime(2026, 6, 6, 9, 0, tzinfo=UTC)
LONG = timedelta(seconds=20)
PATH = os.environ["PATH"]


def agent(*lines: str, name: str = "wren", file: str = "wren.org", **options: object) -> Agent:
    text = "\n".join([f"* {name} :agent:", ":PROPERTIES:", *lines, ":END:", "You write.", ""])
    return Agent(name, parse_agent(text, file), Origin(file, 1), **options)  # type: ignore[arg-type]


class Stage:
    """A place to run agents in, with programs of its own in the PATH."""

    def __init__(self, home: Path) -> None:
        self.work, self.data, self.bin = home / "work", home / "data", home / "bin"
        for each in (self.work, self.data, self.bin):
            each.mkdir()
        self.environ = {"PATH": f"{self.bin}:{PATH}"}

    def program(self, name: str, script: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.bin / name).chmod(0o755)

    @property
    def place(self) -> RunSettings:
        return RunSettings(self.work, self.data, self.environ, LONG, signature=b"f00dfeedf00dfeed")

    @property
    def directory(self) -> Path:
        return self.place.directory_of(self.run)

    @property
    def run(self) -> Run:
        return Run(7, 1, 1, NOW)

    @property
    def part(self) -> Part:
        return Part(7, self.directory)

    def host(self, processes: Processes, registry: Registry | None = None) -> AgentHost:
        return AgentHost(
            registry or Registry(), processes, self.place, Trees(self.place.root, self.place.data)
        )

    def log(self) -> str:
        path = self.directory / "output.log"
        return path.read_text() if path.exists() else ""

    async def told(
        self,
        who: Agent,
        prompt: str = "Sweep.",
        *,
        registry: Registry | None = None,
        timeout: timedelta = LONG,
        facts: Mapping[str, str] | None = None,
        tools: ToolPolicy | None = None,
        model: str | None = None,
    ) -> Ended:
        async with Processes(self.data) as processes:
            held: Held = await self.host(processes, registry).hold(
                who,
                prompt,
                run=self.part,
                timeout=timeout,
                facts=facts,
                tools=tools,
                model=model,
            )
            held.go()
            return await held.ended()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


# The registry


def test_the_same_name_twice_is_an_error_that_shows_both() -> None:
    registry = Registry(command=lambda: ("sh",))
    assert registry.add(agent(), environ={"PATH": PATH}) is None
    with pytest.raises(AgentTwiceError, match=r"wren.* at wren\.org:1 and at other\.org:1"):
        registry.add(agent(file="other.org"), environ={"PATH": PATH})


def test_the_same_definition_again_changes_nothing() -> None:
    registry = Registry(command=lambda: ("sh",))
    first = agent(":TIMEOUT: 3s")
    registry.add(first, environ={})
    registry.add(agent(), environ={})
    assert list(registry) == [first]


def test_an_agent_without_a_command_uses_that_of_the_settings() -> None:
    registry = Registry(command=lambda: ("sh", "-c", "true"))
    assert registry.add(agent(), environ={"PATH": PATH}) is None
    assert registry.command_of(agent()) == ("sh", "-c", "true")
    assert registry.command_of(agent(":COMMAND: my-agent")) == ("my-agent",)


def test_one_without_any_command_says_so_when_it_is_made() -> None:
    why = Registry().add(agent(), environ={})
    assert str(why) == (
        "the agent wren has no command; write :COMMAND: in wren.org:1,"
        " or set agent.command in horae.toml"
    )


def test_one_whose_program_is_not_there_says_so() -> None:
    why = Registry().add(agent(":COMMAND: no-such-agent"), environ={"PATH": PATH})
    assert str(why) == (
        "the agent wren: no-such-agent is not on the PATH; install it, or write its full path"
    )


def test_one_whose_tools_cannot_be_read_says_so() -> None:
    why = Registry().add(agent(":COMMAND: cat", ":TOOLS: Bash(git"), environ={"PATH": PATH})
    assert why is not None
    assert "has a :TOOLS: that is not valid" in str(why)


def test_a_model_needs_a_name_and_a_key_unless_it_is_on_this_machine() -> None:
    pytest.importorskip("pydantic_ai")
    far, near = Registry(), Registry(provider=Provider(url="http://127.0.0.1:1/v1"))
    named = agent(":RUNNER: model", ":MODEL: small-1")
    assert "has no model" in str(far.add(agent(":RUNNER: model"), environ={}))
    assert "set OPENAI_API_KEY" in str(far.obstacle(named, environ={}))
    assert far.obstacle(named, environ={"OPENAI_API_KEY": "k"}) is None
    assert near.obstacle(named, environ={}) is None


def test_an_agent_with_a_model_and_without_a_command_calls_the_model() -> None:
    registry = Registry()
    assert registry.runner_of(agent(":MODEL: small-1")) is RunnerKind.MODEL
    assert registry.runner_of(agent(":MODEL: small-1", ":COMMAND: claude")) is RunnerKind.COMMAND
    assert registry.runner_of(agent(":MODEL: small-1", ":RUNNER: command")) is RunnerKind.COMMAND
    of_settings = Registry(command=lambda: ("claude",))
    assert of_settings.runner_of(agent(":MODEL: small-1")) is RunnerKind.COMMAND
    assert registry.runner_of(agent()) is RunnerKind.COMMAND


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    registry = Registry()
    registry.add(agent(), environ={})
    assert registry.get("wren").name == "wren"
    with pytest.raises(AgentNotFoundError, match=r"'wrem'; did you mean wren\?"):
        registry.get("wrem")


def test_where_models_are_called_follows_from_the_environment() -> None:
    assert provider_of({}) == Provider()
    ours = {"HORAE_MODEL_KEY": "k", "HORAE_MODEL_URL": "http://here/v1", "OPENAI_API_KEY": "o"}
    assert provider_of(ours) == Provider(url="http://here/v1", key="HORAE_MODEL_KEY")
    older = {"WB_LLM_KEY": "k", "WB_LLM_MODEL": "m"}
    assert provider_of(older) == Provider("https://openrouter.ai/api/v1", "WB_LLM_KEY", "m")


# Running


@story
async def test_an_agent_is_held_until_it_is_let_go(stage: Stage) -> None:
    async with Processes(stage.data) as processes:
        who = agent(":COMMAND: sh -c 'touch began'")
        host = stage.host(processes)
        held = await host.hold(who, "Go.", run=stage.part, timeout=LONG)
        assert not (stage.work / "began").exists()
        held.cancel("no longer wanted")
        ended = await held.ended()
        assert (ended.outcome, ended.reason) == (Status.KILLED, "no longer wanted")
        assert not (stage.work / "began").exists()
        assert isinstance(await host.look_back(stage.run), Unreleased)


@story
async def test_it_is_told_who_it_is_and_what_is_asked_on_its_input(stage: Stage) -> None:
    ended = await stage.told(agent(":COMMAND: cat"), "Sweep --all; $(x)")
    assert ended.outcome is Status.DONE
    assert ended.facts["text"] == "You write.\n\nSweep --all; $(x)"


@story
async def test_a_prompt_in_a_file_is_gone_after_the_run(stage: Stage) -> None:
    stage.program("my-agent", 'cat "$1"; ls -l "$1" | cut -c1-10; cat')
    ended = await stage.told(agent(":COMMAND: my-agent {prompt_file}"), "Sweep.")
    assert ended.facts["text"] == "You write.\n\nSweep.\n-rw-------"
    assert not (stage.directory / PROMPT_NAME).exists()


@story
async def test_it_works_in_its_directory_with_only_what_it_may_know(stage: Stage) -> None:
    stage.environ |= {"TOKEN": "t0psecret", "REGION": "north", "OTHER_API_KEY": "another-key"}
    home = stage.work / "own"
    home.mkdir()
    who = agent(
        ":COMMAND: sh -c 'env; pwd'",
        ":ENV: REGION",
        ":MODEL: small-1",
        ":TOOLS: git",
        directory=str(home),
        environment={"OWN": "mine"},
    )
    ended = await stage.told(who, facts={"HORAE_RUN": "7"})
    *lines, where = str(ended.facts["text"]).splitlines()
    known = dict(line.partition("=")[::2] for line in lines)
    assert where == str(home)
    assert {name for name in known if name not in {"PWD", "SHLVL", "_", "OLDPWD"}} == {
        "PATH", "TERM", "REGION", "OWN", "HORAE_RUN", "HORAE_AGENT", "HORAE_MODEL", "HORAE_TOOLS",
    }  # fmt: skip
    assert (known["HORAE_AGENT"], known["HORAE_MODEL"]) == ("wren", "small-1")
    assert json.loads(known["HORAE_TOOLS"]) == {"mode": "allow_list", "tools": ["Git"]}


@story
async def test_text_that_begins_with_no_work_is_no_work(stage: Stage) -> None:
    ended = await stage.told(agent(":COMMAND: echo NO-WORK: all swept"))
    assert (ended.outcome, ended.reason) == (Status.NO_WORK, "NO-WORK: all swept")


@story
async def test_an_exit_that_is_not_zero_is_failed(stage: Stage) -> None:
    ended = await stage.told(agent(":COMMAND: sh -c 'echo NO-WORK; exit 3'"))
    assert (ended.outcome, ended.reason, ended.exit_code) == (
        Status.FAILED,
        "exit code 3: NO-WORK",
        3,
    )


@story
async def test_an_agent_that_takes_too_long_is_killed(stage: Stage) -> None:
    who = agent(":COMMAND: sh -c 'echo busy; sleep 100'")
    ended = await stage.told(who, timeout=timedelta(seconds=0.3))
    assert ended.outcome is Status.KILLED
    assert ended.facts["text"] == "busy"


@story
async def test_a_long_answer_is_cut_in_the_record_and_whole_in_the_log(stage: Stage) -> None:
    ended = await stage.told(agent(":COMMAND: sh -c 'yes word | head -n 10000'"))
    assert len(str(ended.facts["text"])) == LONGEST_TEXT
    assert len(stage.log()) == 50_000


@story
async def test_an_agent_that_cannot_run_is_not_started(stage: Stage) -> None:
    with pytest.raises(RunError, match="has no command"):
        await stage.told(agent())
    with pytest.raises(RunError, match="is not a valid model name"):
        await stage.told(agent(":COMMAND: true"), model="--dangerous")


ANSWER = {
    "type": "result",
    "subtype": "success",
    "result": "NO-WORK: nothing new",
    "num_turns": 2,
    "total_cost_usd": 0.5,
    "usage": {"input_tokens": 100, "output_tokens": 20},
}


@story
async def test_the_answer_of_a_known_program_decides_and_its_cost_is_kept(stage: Stage) -> None:
    stage.program("claude", f"echo a warning >&2; echo \"$@\" >args; echo '{json.dumps(ANSWER)}'")
    ended = await stage.told(agent(":COMMAND: claude", ":MODEL: big-1"))
    assert (ended.outcome, ended.reason) == (Status.NO_WORK, "NO-WORK: nothing new")
    known = {name: ended.facts[name] for name in ("text", "tokens", "cost", "steps", "model")}
    assert known == {
        "text": "NO-WORK: nothing new",
        "tokens": 120,
        "cost": 0.5,
        "steps": 2,
        "model": "big-1",
    }
    args = (stage.work / "args").read_text()
    assert args == "-p --output-format=stream-json --verbose --model=big-1\n"


@story
async def test_a_run_goes_on_with_the_session_of_the_last_one(stage: Stage) -> None:
    stage.program("claude", 'shift 3; echo "$*" >args; cat answer')
    wren = agent(":COMMAND: claude", ":RESUME: yes")

    async def args(who: Agent, session: str, **more: object) -> str:
        answer = json.dumps({**ANSWER, "session_id": session, **more})
        (stage.work / "answer").write_text(answer)
        await stage.told(who)
        return (stage.work / "args").read_text().strip()

    assert await args(wren, "one") == ""
    assert await args(wren, "two") == "--resume=one"
    assert await args(agent(":COMMAND: claude"), "three") == ""
    assert await args(wren, "--yolo") == "--resume=two"  # no session is called so
    own = agent(":COMMAND: claude -p --resume=x", ":RESUME: yes")
    assert "two" not in await args(own, "six")


MESSAGE = {"id": "m", "model": "big-1", "usage": {"input_tokens": 9, "output_tokens": 9}}
EVENTS = [
    {"type": "system", "subtype": "init", "session_id": "two"},
    {"type": "assistant", "session_id": "two", "message": MESSAGE},
]


def fails_with(error: str, turns: int = 1) -> str:
    """Return a script that fails before the model has answered."""
    silent = {"is_error": True, "usage": {}, "modelUsage": {}, "session_id": "two"}
    said = {**ANSWER, **silent, "result": error, "num_turns": turns}
    return f"echo '{json.dumps(said)}'; exit 1"


ANSWERED = "".join(f"echo '{json.dumps(each)}'\n" for each in EVENTS)


@pytest.mark.parametrize(
    ("script", "times", "goes_on"),
    [
        (f"{ANSWERED}exit 1", 4, True),
        (f"{ANSWERED}exec sleep 1000", 1, True),  # until its time limit
        (f"{ANSWERED}kill -9 $$", 1, True),
        (fails_with("API Error: 529 overloaded"), 4, True),
        (fails_with("Invalid API key"), 2, True),
        (fails_with("Prompt is too long"), 3, False),
        (fails_with("No conversation found", turns=0), 1, False),
        ("echo 'no rollout found' >&2; exit 1", 1, False),
    ],
)
@story
async def test_a_session_ends_only_if_the_program_cannot_go_on_with_it(
    stage: Stage, script: str, times: int, goes_on: bool
) -> None:
    wren = agent(":COMMAND: claude", ":RESUME: yes")
    good = f"echo \"$*\" >args; echo '{json.dumps({**ANSWER, 'session_id': 'two'})}'"
    stage.program("claude", good)
    await stage.told(wren)
    stage.program("claude", script)
    for _ in range(times):
        ended = await stage.told(wren, timeout=timedelta(seconds=2))
        assert ended.outcome not in {Status.DONE, Status.NO_WORK}
    stage.program("claude", good)
    await stage.told(wren)
    assert ("--resume=two" in (stage.work / "args").read_text()) == goes_on


@story
async def test_a_run_goes_on_with_the_session_of_a_first_run_that_was_killed(stage: Stage) -> None:
    wren = agent(":COMMAND: claude", ":RESUME: yes")
    for script in (f"{ANSWERED}kill -9 $$", 'echo "$*" >args'):
        stage.program("claude", script)
        await stage.told(wren)
    assert "--resume=two" in (stage.work / "args").read_text()


@story
async def test_an_error_that_a_program_reports_is_failed_whatever_its_exit_code(
    stage: Stage,
) -> None:
    said = json.dumps({**ANSWER, "is_error": True, "result": "API Error: 529 overloaded"})
    stage.program("claude", f"echo '{said}'")
    ended = await stage.told(agent(":COMMAND: claude"))
    assert (ended.outcome, ended.reason) == (Status.FAILED, "API Error: 529 overloaded")
    stage.program("claude", f"echo '{said}'; exit 1")
    ended = await stage.told(agent(":COMMAND: claude"))
    assert (ended.outcome, ended.exit_code) == (Status.FAILED, 1)


@story
async def test_a_policy_that_a_program_cannot_keep_is_not_run(stage: Stage) -> None:
    policy = parse_policy({"mode": "allow_list", "tools": ["Read"]})
    with pytest.raises(RunError, match="cat cannot enforce the tool policy allow_list"):
        await stage.told(agent(":COMMAND: cat"), tools=policy)
    ended = await stage.told(agent(":COMMAND: cat"), tools=parse_policy({"mode": "allow_all"}))
    assert ended.outcome is Status.DONE
    stage.program("claude", "echo \"$*\" >args; echo '{}'")
    assert (await stage.told(agent(":COMMAND: claude"), tools=policy)).outcome is Status.DONE
    assert "--tools=Read" in (stage.work / "args").read_text()


@story
async def test_how_it_ended_is_known_after_the_engine_died(stage: Stage) -> None:
    stage.program("claude", f"echo '{json.dumps(ANSWER)}'")
    ended = await stage.told(agent(":COMMAND: claude", ":MODEL: big-1"))
    async with Processes(stage.data) as processes:
        host = stage.host(processes)
        assert await host.look_back(stage.run) == ended
        assert await host.look_back(replace(stage.run, number=8)) is None


@story
async def test_one_function_runs_many_at_a_time(stage: Stage) -> None:
    async with Processes(stage.data) as processes:

        async def one(number: int) -> Ended:
            part = Part(number, stage.place.directory_of(Run(number, 1, 1, NOW)))
            who = agent(":COMMAND: cat", name=f"w{number}")
            held = await stage.host(processes).hold(
                who, f"Number {number}.", run=part, timeout=LONG
            )
            held.go()
            return await held.ended()

        ends = await asyncio.gather(*map(one, range(8)))
    assert [str(each.facts["text"])[-9:] for each in ends] == [f"Number {n}." for n in range(8)]


# Blocks of workflows

WREN = agent(":COMMAND: cat")
NAMED = {
    "wren": WREN,
    "moss": agent(":COMMAND: sh -c 'echo no words left; exit 3'", name="moss"),
    "slow": agent(":COMMAND: sh -c 'echo busy; sleep 1000'", name="slow"),
    "idle": agent(":COMMAND: echo NO-WORK: all is said", name="idle"),
    "long": agent(":COMMAND: sh -c 'yes word | head -n 10000'", name="long"),
    "turns": agent(
        ":COMMAND: sh -c 'mkdir turn || exit 9; sleep 0.2; rmdir turn; echo mine'", name="turns"
    ),
    "bare": agent(name="bare"),
}


@asynccontextmanager
async def asking(home: Path, **options: Any) -> AsyncIterator[Yard]:
    """Give a place where workflows can be run that ask the agents above."""
    registry = Registry()
    for each in NAMED.values():
        registry.add(each, environ={"PATH": PATH})

    async with yard(home, **options) as place:
        host = AgentHost(
            registry,
            place.processes,
            place.place,
            Trees(place.place.root, place.place.data),
        )

        async def find(name: str | None) -> tuple[AgentHost, Agent]:
            return host, registry.get(name or "")

        place.agent = BlockAgents(find)
        yield place


@story
async def test_a_block_is_the_prompt_the_input_the_task_and_the_answer_the_output(
    tmp_path: Path,
) -> None:
    text = flow(
        step("Fetch", "sh", "sed s/a/o/", ":out events"),
        step("Sum up", "agent", "Be brief.", ":agent wren :in events :out letter"),
        step("Send", "sh", "wc -l; echo end", ":in letter"),
    )
    async with asking(tmp_path) as place:
        record = await place.run(text, input=b"beans")
        assert marked(place.data) == []
        log = next(place.data.glob("runs/*/*/output.log")).read_text()
    assert record.outcome is Status.DONE, record.reason
    assert tasks(record)["Sum up"] == "You write.\n\nBe brief.\n\nbeons"
    assert tasks(record)["Send"] == "5\nend"  # the last line has an end, too
    assert only(record, "Sum up").tool == "wren"
    assert "Be brief." in log


@story
async def test_all_of_a_long_answer_is_piped_on(tmp_path: Path) -> None:
    text = flow(
        step("A", "agent", "Go on.", ":agent long :out a"), step("B", "sh", "wc -l", ":in a")
    )
    async with asking(tmp_path) as place:
        record = await place.run(text)
    assert tasks(record)["B"] == "10000"


@story
async def test_an_agent_that_fails_fails_its_step_and_what_hangs_on_it_never_runs(
    tmp_path: Path,
) -> None:
    text = flow(
        step("Ask", "agent", "Try.", ":agent moss :out a"),
        step("After", "sh", "cat", ":in a"),
        step("Beside", "sh", "echo done"),
    )
    async with asking(tmp_path) as place:
        record = await place.run(text)
    assert (record.outcome, record.reason) == (
        Status.FAILED,
        "Ask (plan.org:3): moss: exit code 3: no words left",
    )
    assert [each.status for each in record.all_steps()] == ["failed", "skipped", "done"]


@story
async def test_no_work_is_an_answer_and_that_of_the_whole_run_if_it_is_the_last(
    tmp_path: Path,
) -> None:
    ask = step("Ask", "agent", "Look.", ":agent idle :out a")
    async with asking(tmp_path) as place:
        last = await place.run(flow(ask))
        inside = await place.run(flow(ask, step("B", "sh", "tr a-z A-Z", ":in a")))
        ends_else = await place.run(flow(ask, step("B", "sh", "echo seen", ":in a")))
    assert (last.outcome, last.reason) == (Status.NO_WORK, "NO-WORK: all is said")
    assert tasks(inside)["B"] == "NO-WORK: ALL IS SAID"
    assert (ends_else.outcome, tasks(ends_else)["B"]) == (Status.DONE, "seen")


@pytest.mark.parametrize(
    ("args", "drawer", "why"),
    [
        ("", "", "this block has no agent; write :agent NAME after its language, or :AGENT:"),
        (":agent wrem", "", "there is no agent 'wrem'; did you mean wren?"),
        ("", ":AGENT: bare\n", "the agent bare has no command; write :COMMAND: in wren.org:1"),
    ],
)
def test_without_its_agent_nothing_runs_and_the_block_is_named(
    args: str, drawer: str, why: str, tmp_path: Path
) -> None:
    @story
    async def lack() -> None:
        steps = step("First", "sh", "touch $HORAE_PLAN_DIR/ran") + step("Ask", "agent", "X", args)
        props = f":PROPERTIES:\n{drawer}:END:\n" if drawer else ""
        async with asking(tmp_path) as place:
            record = await place.run(f"* Flow :workflow:\n{props}{steps}")
            assert not (place.root / "ran").exists()
        line = 7 if not drawer else 10
        assert record.outcome is Status.FAILED
        assert record.reason.startswith(f"Ask (plan.org:{line}): {why}")

    lack()


@story
async def test_an_agent_that_takes_longer_than_its_step_may_is_ended_with_all_it_started(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path) as place:
        slow = step("Ask", "agent", "X", ":agent slow", ":TIMEOUT: 300ms\n")
        record = await place.run(flow(slow))
        assert only(record).error == "the step exceeded the time limit of 300ms"
        assert marked(place.data) == []
        held = await place.held(flow(step("Ask", "agent", "X", ":agent slow")))
        held.go()
        await until(lambda: marked(place.data), within=20)
        held.cancel("no longer wanted")
        ended = await held.ended()
        assert (ended.outcome, ended.reason) == (Status.KILLED, "no longer wanted")
        assert marked(place.data) == []


@story
async def test_two_blocks_of_one_agent_take_turns(tmp_path: Path) -> None:
    steps = [step(f"S{n}", "agent", "Go.", ":agent turns") for n in range(4)]
    async with asking(tmp_path, at_once=4) as place:
        record = await place.run(flow(*steps))
    assert tasks(record) == {f"S{n}": "mine" for n in range(4)}


PLAN = """\
* Wren :agent:
:PROPERTIES:
:ID: wren
:COMMAND: sh -c 'cat; echo run $HORAE_RUN'
:END:
** System prompt
You write.
* Digest :workflow:
:PROPERTIES:
:AGENT: wren
:END:
** Sum up :component:
#+begin_src agent
Be brief.
#+end_src
"""


@story
async def test_an_engine_runs_a_block_with_the_agent_held_at_the_gate(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    async with build(load(str(tmp_path))) as app:
        filed = await app.run_once(lambda service: service.run_now("Digest"))
        assert (filed.status, filed.agents) == (Status.DONE, ("wren",)), filed.receipt.reason
    told = next((tmp_path / ".horae" / "runs").glob("*/*/record.json"))
    said = {"Sum up": f"You write.\n\nBe brief.\nrun {told.parent.name}"}
    assert json.loads(told.read_text())["tasks"] == said


def test_the_command_line_asks_agents_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "plan.org").write_text(PLAN)
    [record], code = records_of("plan.org", PLAN, b"Peas.")
    assert code == 0
    assert record["tasks"] == {"Sum up": "You write.\n\nBe brief.\n\nPeas.\nrun"}


def test_public_run_workflow_asks_agents_too(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    record = horae.run_workflow(tmp_path / "plan.org", data=tmp_path / "data", input="Peas.")
    assert record["tasks"] == {"Sum up": "You write.\n\nBe brief.\n\nPeas.\nrun"}


# Secrets


def disguised(secret: str) -> list[str]:
    return [
        secret,
        base64.b64encode(secret.encode()).decode(),
        quote(secret, safe=""),
        json.dumps(secret)[1:-1],
    ]


@story
async def test_twenty_canaries_are_never_seen_again(stage: Stage) -> None:
    names = [f"SERVICE_{n}_API_KEY" for n in range(10)] + [f"BOT_{n}_TOKEN" for n in range(6)]
    canaries = {name: f'canary/{n}+"{n * 7919}"' for n, name in enumerate(names)}
    canaries["DATABASE_URL"] = "postgres://bob:canary-pass@db/x"
    stage.environ |= {**canaries, "ODD": "canary-odd-name"}
    own = {"OWN_SECRET": "canary-of-its-own", "PLAIN": "canary-by-name"}
    spelled = [
        each
        for value in (*canaries.values(), "canary-odd-name", *own.values())
        for each in disguised(value)
    ]
    leak = stage.work / "leak"
    leak.write_text("\n".join([*spelled, "canary-pass", "f00dfeedf00dfeed"]))
    who = agent(
        f":COMMAND: sh -c 'env; cat {leak}; cat {leak} >&2'",
        f":ENV: {' '.join(canaries)} ODD_NAME=${{ODD}}",
        environment=own,
    )
    ended = await stage.told(who, "Tell me all.")
    kept = [path.read_text() for path in stage.directory.iterdir()]
    everything = "\n".join([*kept, json.dumps(dict(ended.facts)), ended.reason])
    assert "[secret]" in everything
    for each in (*spelled, "canary-pass", "f00dfeedf00dfeed"):
        assert each not in everything


@story
async def test_only_what_is_secret_is_masked(stage: Stage) -> None:
    stage.environ |= {
        "LANG": "C.UTF-8",
        "SSH_AUTH_SOCK": "/tmp/agent.1",
        "MY_KEY_FILE": "/etc/a-key-file",
        "PASS": "short",
        "REGION": "north-north",
    }
    assert await hidden_of(agent(), stage.place) == (b"f00dfeedf00dfeed",)
    named = agent(environment={"WHERE": "${REGION}"})
    assert await hidden_of(named, stage.place) == (b"f00dfeedf00dfeed", b"north-north")
