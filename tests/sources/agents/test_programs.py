"""Agent programs: how each is called, and how its answer is read."""

from __future__ import annotations

import json
import os
import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from horae.core.agent import Agent, parse_agent
from horae.core.entry import Origin
from horae.core.receipt import Status
from horae.core.tool_policy import OPEN, ToolPolicy, parse_policy
from horae.files.git.trees import Trees
from horae.process.processes import Processes, can_kill_trees
from horae.process.run_settings import RunSettings
from horae.sources.agents import programs
from horae.sources.agents.programs import (
    ROWS,
    Answers,
    Called,
    Meter,
    Result,
    TokenCounts,
    call,
    can_keep,
    program_of,
)
from horae.sources.agents.runner import AgentHost, Part, Registry
from provider import Provider, Reply, fails, says, uses
from scale import scaled
from store.ledger_suite import story

if TYPE_CHECKING:
    from horae.core.ports import Ended

NOW = datetime(2026, 11, 18, 22, tzinfo=UTC)
DATA = Path(__file__).parents[2] / "data" / "programs"
WORK, PROMPT = Path("/srv/garden"), Path("/runs/1/prompt.txt")


def read_answer(printed: str, answers: Answers, code: int = 0) -> Result:
    return programs.read_answer(printed, answers, now=NOW, code=code)


def called(*command: str, model: str | None = None, policy: ToolPolicy = OPEN) -> Called:
    return call(command, model=model, policy=policy, work=WORK, prompt_file=PROMPT)


def only(*tools: str) -> ToolPolicy:
    return parse_policy({"mode": "allow_list", "tools": list(tools)})


# Calling


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("claude", "claude -p --output-format=stream-json --verbose --model=m1"),
        ("claude -p", "claude -p --output-format=stream-json --verbose --model=m1"),
        (
            "claude --print --model m2",
            "claude --print --model m2 --output-format=stream-json --verbose",
        ),
        ("codex", "codex exec --json --skip-git-repo-check --model=m1 --cd=/srv/garden -"),
        (
            "codex exec -m m2 --sandbox=workspace-write",
            "codex exec -m m2 --sandbox=workspace-write --json --skip-git-repo-check --cd=/srv/garden -",
        ),
        ("gemini", "gemini --output-format=stream-json --skip-trust --model=m1"),
        ("gemini -o json -m m2", "gemini -o json -m m2 --skip-trust"),
        ("llm", "llm --no-stream --usage --model=m1"),
        ("my-agent --once", "my-agent --once"),
        (
            "/opt/my-agent {prompt_file} {model} {dir}",
            "/opt/my-agent /runs/1/prompt.txt m1 /srv/garden",
        ),
    ],
)
def test_a_program_is_called_as_its_makers_say_and_its_own_words_win(
    command: str, argv: str
) -> None:
    assert called(*command.split(), model="m1").argv == tuple(argv.split())


def test_aider_asks_nobody_fetches_nothing_and_makes_no_repository(tmp_path: Path) -> None:
    argv = called("aider", "--stream", "notes.md", model="m1").argv
    assert argv[:3] == ("aider", "--stream", "notes.md")
    assert "--no-stream" not in argv
    assert {"--yes-always", "--no-detect-urls", "--no-check-update", "--no-analytics"} <= {*argv}
    assert argv[-3:] == ("--model=m1", f"--message-file={PROMPT}", "--no-git")
    (tmp_path / ".git").mkdir()
    (tmp_path / "deep").mkdir()
    inside = call(("aider",), model=None, policy=OPEN, work=tmp_path / "deep", prompt_file=PROMPT)
    assert "--no-git" not in inside.argv


def test_the_prompt_is_in_a_file_only_where_a_program_wants_one() -> None:
    assert [name for name in ROWS if called(name).wants_file] == ["aider"]
    assert called("my-agent", "{prompt_file}").wants_file
    assert called("codex", "exec", "{prompt_file}").argv[-1] != "-"


def test_nothing_is_replaced_inside_a_word() -> None:
    assert called("sh", "-c", "cat {prompt_file}").argv == ("sh", "-c", "cat {prompt_file}")


def test_an_answer_in_another_form_than_ours_is_read_as_text() -> None:
    assert called("claude", "--output-format", "text").answers is Answers.TEXT
    assert called("claude", "--output-format", "json").answers is Answers.CLAUDE
    assert called("gemini", "--output-format=json").answers is Answers.GEMINI
    assert called("gemini", "-o", "json").answers is Answers.GEMINI
    assert called("gemini", "-o", "text").answers is Answers.TEXT


def test_claude_is_made_to_keep_an_allow_list() -> None:
    argv = called("claude", policy=only("Read", "Bash(git log *)", "Bash(npm ci)", "Git")).argv
    assert argv[4:] == (
        "--setting-sources=user",
        "--strict-mcp-config",
        "--tools=Read,Bash",
        "--permission-mode=dontAsk",
        "--allowedTools",
        "Read",
        "Bash(git log:*)",
        "Bash(npm ci)",
        "Bash(git add:*)",
        "Bash(git commit:*)",
    )


def test_claude_is_made_to_keep_a_deny_list_and_to_have_no_tool_at_all() -> None:
    policy = parse_policy({"mode": "deny_list", "tools": ["WebFetch", "Bash(rm *)"]})
    assert called("claude", policy=policy).argv[-3:] == (
        "--disallowedTools",
        "WebFetch",
        "Bash(rm:*)",
    )
    assert "--tools=" in called("claude", policy=parse_policy({"mode": "deny_all"})).argv


def test_codex_can_only_be_kept_from_writing_and_from_the_web() -> None:
    row = ROWS["codex"]
    argv = called("codex", policy=only("Read", "Grep")).argv
    assert {"--sandbox=read-only", '--config=web_search="disabled"'} <= {*argv}
    for policy in (only("Read", "Bash(git *)"), only(), parse_policy({"mode": "deny_all"})):
        assert not can_keep(row, policy)


def test_gemini_comes_near_to_a_policy_that_only_reads_and_does_not_keep_it() -> None:
    reading = called("gemini", policy=only("Read", "Grep"))
    assert "--approval-mode=plan" in reading.argv
    assert not can_keep(ROWS["gemini"], only("Read", "Grep"))  # it may still search the web
    assert "--approval-mode=plan" not in called("gemini", policy=only("Edit")).argv


@pytest.mark.parametrize(
    "command",
    [
        "claude --dangerously-skip-permissions",
        "claude --allowedTools Bash",
        "claude --settings={}",
        "codex exec -s workspace-write",
        "codex --config=sandbox_mode='danger-full-access'",
        "gemini --yolo",
    ],
)
def test_a_command_that_decides_about_tools_itself_keeps_no_policy(command: str) -> None:
    words = tuple(command.split())
    told = called(*words, policy=only("Read"))
    assert not can_keep(program_of(words), only("Read"))
    assert [word for word in told.argv if word in words] == list(words)
    added = {word.partition("=")[0] for word in told.argv if word not in words}
    assert not added & {"--tools", "--sandbox", "--approval-mode", "--allowedTools"}


def test_what_cannot_be_kept_is_said() -> None:
    for program in ("gemini", "aider", "llm", "my-agent"):
        row = program_of((program,))
        assert not can_keep(row, only("Read"))
        assert can_keep(row, OPEN)
    approval = parse_policy({"mode": "require_approval"})
    assert not any(can_keep(row, approval) for row in ROWS.values())


@given(st.sampled_from([*ROWS, "other"]), st.sampled_from(["m1", "a/b:c"]), st.booleans())
def test_no_value_stands_where_an_option_could_be(program: str, model: str, limits: bool) -> None:
    policy = only("Read", "Bash(-rf *)") if limits else OPEN
    for word in called(program, model=model, policy=policy).argv:
        assert word.startswith("-") or "/" not in word.partition("(")[0]
        assert word != model


# Answers

CLAUDE = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "num_turns": 3,
    "result": "All swept.",
    "total_cost_usd": 0.0123,
    "usage": {
        "input_tokens": 10,
        "cache_creation_input_tokens": 200,
        "cache_read_input_tokens": 1000,
        "output_tokens": 40,
    },
    "modelUsage": {
        "claude-x": {
            "inputTokens": 10,
            "cacheCreationInputTokens": 200,
            "cacheReadInputTokens": 1000,
            "outputTokens": 40,
        }
    },
}
CLAUDE_READ = Result(
    "All swept.",
    is_read=True,
    tokens_in=1210,
    tokens_out=40,
    cost=0.0123,
    steps=3,
    model="claude-x",
)


@pytest.mark.parametrize(
    "printed",
    [
        json.dumps(CLAUDE),
        json.dumps(CLAUDE, indent=2),
        f"a warning\n{{not json\n{json.dumps(CLAUDE)}\nand one more\n",
        json.dumps([{"type": "system"}, {"type": "assistant"}, CLAUDE]),
    ],
)
def test_the_answer_of_claude_is_found_among_other_lines(printed: str) -> None:
    assert read_answer(printed, Answers.CLAUDE) == CLAUDE_READ


def test_what_claude_asked_on_the_side_counts_too() -> None:
    aside = {"inputTokens": 5, "outputTokens": 2}
    said = {**CLAUDE, "modelUsage": {**CLAUDE["modelUsage"], "small-x": aside}}  # type: ignore[dict-item]
    found = read_answer(json.dumps(said), Answers.CLAUDE)
    assert (found.tokens_in, found.tokens_out, found.model) == (1215, 42, "")
    older = {name: value for name, value in CLAUDE.items() if name != "modelUsage"}
    found = read_answer(json.dumps(older), Answers.CLAUDE)
    assert (found.tokens_in, found.tokens_out) == (1210, 40)


def test_claude_says_when_it_failed() -> None:
    limit = {"type": "result", "subtype": "error_max_turns", "is_error": False, "num_turns": 9}
    assert read_answer(json.dumps(limit), Answers.CLAUDE).error == "error_max_turns"
    error = {**CLAUDE, "is_error": True, "result": "API Error: 529"}
    assert read_answer(json.dumps(error), Answers.CLAUDE).error == "API Error: 529"


def test_the_answer_of_codex_is_its_last_message() -> None:
    events = [
        {"type": "thread.started", "thread_id": "t"},
        {"type": "turn.started"},
        {"type": "item.completed", "item": {"type": "reasoning", "text": "hm"}},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "I look."}},
        {"type": "item.completed", "item": {"type": "command_execution", "command": "ls"}},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "NO-WORK here"}},
        {"type": "turn.completed", "usage": {"input_tokens": 70, "output_tokens": 7}},
    ]
    printed = "on stderr\n" + "\n".join(map(json.dumps, events))
    found = read_answer(printed, Answers.CODEX)
    assert found == Result(
        "NO-WORK here", is_read=True, tokens_in=70, tokens_out=7, steps=1, session="t"
    )
    failed = json.dumps({"type": "turn.failed", "error": {"message": "usage limit"}})
    assert read_answer(f"{printed}\n{failed}", Answers.CODEX).error == "usage limit"


def test_the_answer_of_gemini_is_its_response() -> None:
    tokens = {"prompt": 50, "candidates": 5, "thoughts": 3, "total": 58}
    said = {
        "response": "Done.",
        "stats": {"models": {"gemini-x": {"tokens": tokens}}, "tools": {"totalCalls": 2}},
    }
    printed = f"Loaded cached credentials.\n{json.dumps(said, indent=2)}\n"
    assert read_answer(printed, Answers.GEMINI) == Result(
        "Done.", is_read=True, tokens_in=50, tokens_out=8, steps=2, model="gemini-x"
    )
    error = {"error": {"type": "ApiError", "message": "quota", "code": 1}}
    assert read_answer(json.dumps(error), Answers.GEMINI).error == "quota"


AIDER = (
    "Aider v0.86.2\nMain model: m\nGit repo: none\nRepo-map: disabled\nAdded a.py to the chat.\n\n"
)


def test_tokens_and_cost_of_aider_and_llm_are_in_what_they_print() -> None:
    spent = (
        "Tokens: 2.3k sent, 1.1k cache hit, 214 received. Cost: $0.0069 message, $0.0100 session.\n"
    )
    found = read_answer(f"a warning\n{AIDER}Added it.\n\n{spent}\nCommit 12 it\n", Answers.AIDER)
    assert (found.tokens_in, found.tokens_out, found.cost) == (2300, 214, 0.01)
    assert (found.text, found.error) == ("Added it.\n\nCommit 12 it", "")
    found = read_answer("Hello.\nToken usage: 1,010 input, 12 output\n", Answers.LLM)
    assert found == Result("Hello.", is_read=True, tokens_in=1010, tokens_out=12, steps=1)


def test_aider_fails_where_its_exit_code_does_not_say_so() -> None:
    wrong = "litellm.AuthenticationError: no key"
    assert read_answer(f"{AIDER}{wrong}\nand more", Answers.AIDER).error == wrong
    assert read_answer(f"{AIDER}No model m.\n", Answers.AIDER).error == "No model m."
    spent = "Tokens: 10 sent, 2 received.\n"
    assert read_answer(f"{AIDER}Fixed.\n{spent}{wrong}\nmore", Answers.AIDER).error == wrong
    assert read_answer(f"{AIDER}{wrong} I said.\n{spent}", Answers.AIDER).error == ""
    assert read_answer(AIDER, Answers.AIDER).error == "the agent ended before the model answered"


def test_an_error_that_is_passed_on_as_json_is_told_in_words() -> None:
    said = json.dumps({"type": "error", "message": json.dumps({"error": {"message": "gone"}})})
    assert read_answer(said, Answers.CODEX).error == "gone"


# What the programs themselves have printed


@pytest.mark.parametrize(
    ("program", "tokens", "steps"),
    [
        ("claude", (200, 20), 1),
        ("codex", (100, 10), 0),
        ("gemini", (100, 10), 0),
        ("aider", (100, 10), 1),
        ("llm", (100, 10), 1),
    ],
)
def test_no_work_is_read_in_what_each_program_really_prints(
    program: str, tokens: tuple[int, int], steps: int
) -> None:
    found = recorded(program, "no-work")
    assert (found.text, found.error, found.is_read) == ("NO-WORK: nothing to water.", "", True)
    assert (found.tokens_in, found.tokens_out, found.steps) == (*tokens, steps)


def test_an_answer_after_the_use_of_tools_is_the_last_one() -> None:
    for program, tokens in {"claude": (400, 40), "codex": (300, 30), "gemini": (300, 30)}.items():
        found = recorded(program, "tools")
        assert (found.text, found.error) == ("Written.", "")
        assert (found.tokens_in, found.tokens_out) == tokens
    assert recorded("aider", "tools").text.startswith("I add it.\n")
    assert recorded("llm", "tools").text == "Written.\n\nTwo lines."
    assert [recorded(each, "tools").cost for each in ("claude", "aider")] == [0.0018, 0.00035]


@pytest.mark.parametrize("program", ["claude", "codex", "gemini", "aider"])
def test_an_error_of_the_provider_is_read_as_one(program: str) -> None:
    assert recorded(program, "failed").error.endswith("no such model")


@pytest.mark.parametrize(
    ("program", "session"),
    [
        ("claude", "9e2e182e-e249-4c41-ab7a-6b24a16e2267"),
        ("codex", "01a1ef75-59cb-7472-aa7c-5e105a0c8ffd"),
        ("gemini", "f3fde75a-9ccf-4980-b0b3-6d99bff8f3ac"),
    ],
)
def test_answer_tokens_and_session_are_read_in_a_stream_of_events(
    program: str, session: str
) -> None:
    found = recorded(program, "stream-tools")
    assert (found.text, found.error, found.session) == ("Written.", "", session)
    aside = 100 if program == "claude" else 0  # it asks for a title, too
    assert (found.tokens_in, found.tokens_out) == (200 + aside, 20 + aside // 10)
    assert recorded(program, "stream-failed").error.endswith("no such model")


def recorded(program: str, what: str) -> Result:
    [path] = DATA.glob(f"{program}-{what}.*")
    printed = path.read_text()
    return read_answer(printed, ROWS[program].answers)


# The programs themselves, where they are

MODELS = {
    "claude": "claude-sonnet-4-5",
    "codex": "gpt-5",
    "gemini": "gemini-2.5-flash",
    "aider": "openai/gpt-4o",
    "llm": "gpt-4o",
}
KEY = "sk-not-a-key-12345678"


def settings_of(program: str, provider: Provider, home: Path) -> dict[str, str]:
    """Return what makes a program call a provider on this machine, with nothing of its user's."""
    (home / ".gemini").mkdir(parents=True)
    auth = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    (home / ".gemini" / "settings.json").write_text(json.dumps(auth))
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text(
        'model_provider = "here"\n[model_providers.here]\nname = "here"\n'
        f'base_url = "{provider.url}"\nenv_key = "OPENAI_API_KEY"\nwire_api = "responses"\n'
    )
    return {
        "HOME": str(home),
        "CODEX_HOME": str(home / ".codex"),
        "ANTHROPIC_BASE_URL": provider.root,
        "ANTHROPIC_API_KEY": KEY,
        "GOOGLE_GEMINI_BASE_URL": provider.root,
        "GEMINI_API_KEY": KEY,
        "OPENAI_BASE_URL": provider.url,
        "OPENAI_API_BASE": provider.url,
        "OPENAI_API_KEY": KEY,
    }


async def asked(
    program: str, home: Path, *replies: Reply, command: str = "", drawer: str = "", times: int = 1
) -> tuple[Ended, Path]:
    """Let the program itself run as an agent; return how that ended and where it worked."""
    home.mkdir()
    work, data = home / "work", home / "data"
    work.mkdir()
    data.mkdir()
    words = f":COMMAND: {command or program}\n:MODEL: {MODELS[program]}\n{drawer}"
    text = f"* Gardener :agent:\n:PROPERTIES:\n{words}:END:\nYou look after a garden.\n"
    with Provider(*replies) as provider:
        environ = settings_of(program, provider, home / "home")
        definition, origin = parse_agent(text, "wren.org"), Origin("wren.org", 1)
        who = Agent("wren", definition, origin, str(work), (*environ,))
        place = RunSettings(
            work, data, {**environ, "PATH": os.environ["PATH"]}, timedelta(minutes=3)
        )
        async with Processes(data) as processes:
            limit = timedelta(minutes=3)
            host = AgentHost(Registry(), processes, place, Trees(place.root, place.data))

            async def run(number: int) -> Ended:
                part = Part(number, data / f"runs/{number}")
                held = await host.hold(who, "Water the beans.", run=part, timeout=limit)
                held.go()
                return await held.ended()

            *_, ended = [await run(number + 1) for number in range(times)]
        heard = json.dumps(provider.asked)
        assert "You look after a garden." in heard
        assert "Water the beans." in heard
        return ended, work


@pytest.mark.skipif(not can_kill_trees(), reason="runs need pidfds")
@pytest.mark.parametrize("program", ROWS)
def test_the_program_itself_takes_its_prompt_and_its_answer_is_read(
    program: str, tmp_path: Path
) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not on this machine")

    @story
    async def tell() -> None:
        idle, _ = await asked(program, tmp_path / "a", says("NO-WORK: all is watered."))
        assert (idle.outcome, idle.reason) == (Status.NO_WORK, "NO-WORK: all is watered."), idle
        assert idle.facts["tokens"] in {110, 220}  # claude asks for a title, too
        assert idle.facts["model"] == MODELS[program]
        wrong, _ = await asked(program, tmp_path / "b", fails(400, "no such model"))
        assert wrong.outcome is Status.FAILED
        assert "no such model" in f"{wrong.reason} {wrong.facts.get('text')}"

    tell()


@pytest.mark.skipif(not can_kill_trees(), reason="runs need pidfds")
@pytest.mark.parametrize("program", [name for name, row in ROWS.items() if row.resume])
def test_the_program_itself_goes_on_with_its_last_session(program: str, tmp_path: Path) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not on this machine")

    @story
    async def tell() -> None:
        answers = says("The first answer."), says("The second one.")
        anew, _ = await asked(program, tmp_path / "a", *answers, times=2)
        assert anew.facts["text"] == "The first answer.", anew
        on, _ = await asked(program, tmp_path / "b", *answers, drawer=":RESUME: yes\n", times=2)
        assert on.facts["text"] == "The second one.", on
        assert on.facts["tokens"] == 110  # without those of the first run

    tell()


WRITES = {
    "claude": ("claude --permission-mode=acceptEdits", "Write", "file_path"),
    "codex": ("codex exec --sandbox=workspace-write", "exec_command", ""),
    "gemini": ("gemini --approval-mode=auto_edit", "write_file", "file_path"),
}


@pytest.mark.skipif(not can_kill_trees(), reason="runs need pidfds")
@pytest.mark.parametrize("program", WRITES)
def test_the_program_itself_writes_only_if_its_command_lets_it(
    program: str, tmp_path: Path
) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not on this machine")
    command, tool, option = WRITES[program]

    async def wrote(home: Path, command: str) -> bool:
        path = str(home / "work" / "notes.txt")
        given = {option: path, "content": "wet"} if option else {"cmd": f"echo wet >{path}"}
        ended, work = await asked(
            program, home, uses(tool, **given), says("Done."), command=command
        )
        assert (ended.outcome, ended.facts["text"]) == (Status.DONE, "Done.")
        return (work / "notes.txt").exists()

    @story
    async def tell() -> None:
        assert not await wrote(tmp_path / "a", program)
        assert await wrote(tmp_path / "b", command)

    tell()


def test_what_cannot_be_read_as_an_answer_is_text() -> None:
    for answers in Answers:
        assert read_answer(" plain words\n", answers) == Result("plain words")


@pytest.mark.parametrize(
    "odd",
    [
        {"num_turns": -1},
        {"num_turns": True},
        {"num_turns": 10**30},
        {"num_turns": "many"},
        {"total_cost_usd": float("inf")},
        {"total_cost_usd": float("nan")},
        {"total_cost_usd": -1},
        {"total_cost_usd": "9" * 400},
        {"modelUsage": ["x"]},
        {"modelUsage": {}, "usage": ["x"]},
        {"modelUsage": {}, "usage": {"input_tokens": None}},
        {"modelUsage": {"--evil": 1}},
        {"result": {"a": 1}},
    ],
)
def test_numbers_of_strangers_are_believed_only_if_they_can_be(odd: dict[str, object]) -> None:
    found = read_answer(json.dumps({**CLAUDE, **odd}), Answers.CLAUDE)
    assert found != CLAUDE_READ
    for value in found.facts().values():
        assert isinstance(value, str) or (isinstance(value, int | float) and 0 <= value < 10**13)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "item", "usage", "result", "response", "error", "stats"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=scaled(4000))
@given(st.lists(JSON.map(json.dumps) | st.text(max_size=20), max_size=4).map("\n".join))
def test_any_output_is_read(printed: str) -> None:
    for answers in Answers:
        found = read_answer(printed, answers)
        assert isinstance(found.text, str)
        json.dumps(found.facts())


@pytest.mark.parametrize(
    "unit",
    [
        "{", '{"a":', "[", '{"type":"result"', "{\n", '{"type":"x"}\n',
        "Aider v1\n", "Aider v1\nRepo-map: x\n", "Tokens: 1 sent, ", "Tokens: 1 sent, 1 received.\n",
        "\n", "litellm.", "Token usage: 1 input, 1 output\n",
    ],
)  # fmt: skip
def test_hostile_output_costs_little(unit: str) -> None:
    printed = unit * ((2 << 20) // len(unit))
    start = time.process_time()
    for answers in Answers:
        read_answer(printed, answers)
    assert time.process_time() - start < 20  # a quadratic reader takes hours


def test_claude_is_told_what_its_budget_leaves_unless_its_command_says_so() -> None:
    def options(*command: str) -> list[str]:
        found = call(command, model=None, policy=OPEN, work=WORK, prompt_file=PROMPT, left="1.25")
        return [word for word in found.argv if "budget" in word]

    assert options("claude") == ["--max-budget-usd=1.25"]
    assert options("claude", "--max-budget-usd=9") == ["--max-budget-usd=9"]
    assert options("codex") == []


def test_a_message_of_claude_counts_once_with_the_usage_that_it_said_last() -> None:
    def said(message: str, sent: int, got: int) -> str:
        usage = {"input_tokens": sent, "output_tokens": got, "cache_read_input_tokens": 10}
        event = {"type": "assistant", "message": {"id": message, "model": "m", "usage": usage}}
        return json.dumps(event) + "\n"

    meter = Meter()
    assert not meter.feed('{"type": "system"}\nwords\n')
    assert meter.feed(said("a", 100, 1) + said("a", 100, 5))
    assert meter.feed(said("b", 200, 7))
    assert meter.total() == Result(tokens_in=320, tokens_out=12, model="m")


def test_a_session_that_claude_does_not_know_is_named_in_the_error_and_nowhere_else() -> None:
    # As Claude Code 2.1.197 says it.
    why = "No conversation found with session ID: 9e2e182e-e249"
    said = {
        "type": "result", "subtype": "error_during_execution", "is_error": True, "num_turns": 0,
        "session_id": "9e2e182e-e249", "total_cost_usd": 0, "usage": {"input_tokens": 0},
        "errors": [why],
    }  # fmt: skip
    found = programs.read_answer(json.dumps(said), Answers.CLAUDE, now=NOW, code=1)
    assert (found.error, found.session, found.fault) == (why, "", None)


def test_of_a_stream_that_was_cut_off_the_session_and_the_tokens_are_known() -> None:
    model = "claude-sonnet-4-5"
    usage = {"input_tokens": 10, "cache_read_input_tokens": 1_000_000, "output_tokens": 2}
    message = {"id": "a", "model": model, "usage": usage}
    events = [
        {"type": "system", "subtype": "init", "session_id": "one"},
        {"type": "assistant", "session_id": "one", "message": message},
    ]
    printed = "".join(json.dumps(each) + "\n" for each in events) + '{"type": "assi'
    found = programs.read_answer(printed, Answers.CLAUDE, now=NOW, code=None)
    assert (found.session, found.tokens_in, found.is_read) == ("one", 1_000_010, False)
    assert found.cost == programs.price(model, TokenCounts(1_000_010, 0, 1_000_000, 2))
    codex = '{"type": "thread.started", "thread_id": "two"}\n'
    assert programs.read_answer(codex, Answers.CODEX, now=NOW, code=None).session == "two"


def test_tokens_without_a_cost_are_priced_by_the_list_price_of_their_model() -> None:
    known = Result("done", tokens_in=1_000_000, tokens_out=0, model="claude-sonnet-4-5").priced()
    assert known.cost is not None
    assert known.cost > 0
    assert known.facts()["is_estimate"] is True
    assert Result("done", tokens_in=5, model="no-such-model").priced().cost is None
    assert Result("done", tokens_in=5, model="claude-sonnet-4-5", cost=0.5).priced().cost == 0.5
