"""What the programs themselves streamed against a provider on this machine, as text."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies as st

from horae.sources.agents.transcript import Transcript, Turn, TurnKind, rendered, summary, turns

DATA = Path(__file__).parents[2] / "data" / "programs"
PROGRAMS = ("claude", "codex", "gemini")


def transcript(program: str, what: str) -> list[str]:
    stream = Transcript()
    data = (DATA / f"{program}-stream-{what}.jsonl").read_bytes()
    pieces = [data[at : at + 100] for at in range(0, len(data), 100)]
    return (b"".join(map(stream.feed, pieces)) + stream.rest()).decode().splitlines()


def test_claude_shows_what_it_wrote_called_and_got_back() -> None:
    assert transcript("claude", "tools") == [
        "claude-sonnet-4-5, session 9e2e182e-e249-4c41-ab7a-6b24a16e2267",
        "I write the file.",
        "> Write: file_path: /home/ada/work/note.txt, content: one two",
        "  File created successfully at: /home/ada/work/note.txt (file state is current in your context — no need to Read it back)",
        "Written.",
        "2 turns, 200 tokens in, 20 tokens out, $0.0014",
    ]


def test_codex_shows_a_command_before_its_output() -> None:
    assert transcript("codex", "tools")[2:] == [
        "> exec: /bin/bash -lc \"printf 'one\\\\ntwo\\\\n' > note.txt; cat note.txt\"",
        "  one",
        "  two",
        "Written.",
        "200 tokens in, 20 tokens out",
    ]


def test_gemini_shows_text_that_comes_in_parts_as_one() -> None:
    assert transcript("gemini", "tools") == [
        "gemini-2.5-flash, session f3fde75a-9ccf-4980-b0b3-6d99bff8f3ac",
        "I write the file.",
        "> write_file: file_path: /home/ada/work/note.txt, content: one two",
        "  success",
        "Written.",
        "1 tool call, 200 tokens in, 20 tokens out",
    ]


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_error_of_the_provider_is_shown(program: str) -> None:
    assert any("no such model" in line for line in transcript(program, "failed"))


@pytest.mark.parametrize("program", ["claude", "codex"])
def test_a_usage_limit_is_shown(program: str) -> None:
    assert any("hit your usage limit" in line for line in transcript(program, "limited"))


def test_output_that_is_no_event_stays_as_it_is_and_comes_at_once() -> None:
    stream = Transcript()
    for part in (b"Warning: no network\n", b"50 %", b"\r60 %\n", b"[1, 2]\n", b"\xff\xfe\n"):
        assert stream.feed(part) == part
    for part in (b'{"a": 1}\n', b'{"type": "result"}\n', b'{"type": "error", "code": 7}\n'):
        assert stream.feed(part) == part
    assert stream.feed(b'{"type": "turn') == b""
    assert stream.rest() == b'{"type": "turn'


def test_an_event_can_be_told_in_one_line() -> None:
    lines = (DATA / "codex-stream-tools.jsonl").read_bytes().splitlines()
    assert [summary(line) for line in lines][-3:] == [
        "one ⏎ two",
        "Written.",
        "200 tokens in, 20 tokens out",
    ]
    assert summary(b"plain") is None


def test_a_long_result_of_a_tool_is_cut_and_says_so() -> None:
    lines = rendered(Turn(TurnKind.RESULT, "\n".join(map(str, range(100))))).splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("  0", "  … 88 more lines", 13)
    assert rendered(Turn(TurnKind.RESULT, "x" * 10_000)).endswith("…")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
kinds = st.sampled_from(
    [
        "system",
        "assistant",
        "user",
        "result",
        "item.started",
        "item.completed",
        "error",
        "thread.started",
        "turn.completed",
        "init",
        "message",
        "tool_use",
        "tool_result",
    ]
)
names = st.sampled_from(
    ["message", "content", "item", "usage", "stats", "error", "subtype", "num_turns", "parameters"]
)


@given(kinds, st.dictionaries(names, json_values), st.sampled_from(["uuid", "timestamp", ""]))
def test_no_event_however_odd_is_an_error(kind: str, fields: dict[str, object], mark: str) -> None:
    event = {**fields, "type": kind, mark: "x", "session_id": "s"}
    assert all(isinstance(each, Turn) for each in turns(msgspec.json.encode(event)) or ())
