"""Agent programs: how each is called, and how its answer is read."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from horae.rules.tools import OPEN, ToolPolicy, parse_policy
from horae.runner.programs import (
    ROWS,
    Answers,
    Called,
    Result,
    call,
    can_keep,
    program_of,
    read_answer,
)
from scale import scaled

WORK, PROMPT = Path("/srv/garden"), Path("/runs/1/prompt.txt")


def called(*command: str, model: str | None = None, policy: ToolPolicy = OPEN) -> Called:
    return call(command, model=model, policy=policy, work=WORK, prompt_file=PROMPT)


def only(*tools: str) -> ToolPolicy:
    return parse_policy({"mode": "allow_list", "tools": list(tools)})


# Calling


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("claude", "claude -p --output-format=json --model=m1"),
        ("claude -p", "claude -p --output-format=json --model=m1"),
        ("claude --print --model m2", "claude --print --model m2 --output-format=json"),
        ("codex", "codex exec --json --skip-git-repo-check --model=m1 --cd=/srv/garden -"),
        (
            "codex exec -m m2 --sandbox=workspace-write",
            "codex exec -m m2 --sandbox=workspace-write --json --skip-git-repo-check --cd=/srv/garden -",
        ),
        ("gemini", "gemini --output-format=json --model=m1"),
        (
            "aider notes.md",
            "aider notes.md --yes-always --no-stream --no-pretty --model=m1 --message-file=/runs/1/prompt.txt",
        ),
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


def test_claude_is_made_to_keep_an_allow_list() -> None:
    argv = called("claude", policy=only("Read", "Bash(git log *)", "Bash(npm ci)", "Git")).argv
    assert argv[3:] == (
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


@pytest.mark.parametrize(
    ("program", "option"),
    [("codex", "--sandbox=read-only"), ("gemini", "--approval-mode=plan")],
)
def test_some_programs_can_only_be_kept_from_writing(program: str, option: str) -> None:
    row = ROWS[program]
    assert option in called(program, policy=only("Read", "Grep")).argv
    for policy in (only("Read", "Bash(git *)"), only(), parse_policy({"mode": "deny_all"})):
        assert not can_keep(row, policy)
        assert not called(program, policy=policy).keeps


def test_what_cannot_be_kept_is_said() -> None:
    for program in ("aider", "llm", "my-agent"):
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
    "modelUsage": {"claude-x": {}},
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
    assert found == Result("NO-WORK here", is_read=True, tokens_in=70, tokens_out=7, steps=1)
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


def test_tokens_and_cost_of_aider_and_llm_are_in_what_they_print() -> None:
    aider = (
        "Added it.\nTokens: 2.3k sent, 1.1k cache hit, 214 received."
        " Cost: $0.0069 message, $0.0100 session.\n"
    )
    found = read_answer(aider, Answers.AIDER)
    assert (found.tokens_in, found.tokens_out, found.cost) == (2300, 214, 0.01)
    found = read_answer("Hello.\nToken usage: 1,010 input, 12 output\n", Answers.LLM)
    assert found == Result("Hello.", tokens_in=1010, tokens_out=12, steps=1)


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
        {"usage": ["x"]},
        {"usage": {"input_tokens": None}},
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


@pytest.mark.parametrize("unit", ["{", '{"a":', "[", '{"type":"result"', "{\n", '{"type":"x"}\n'])
def test_hostile_output_costs_little(unit: str) -> None:
    printed = unit * ((2 << 20) // len(unit))
    start = time.perf_counter()
    for answers in Answers:
        read_answer(printed, answers)
    assert time.perf_counter() - start < 5
