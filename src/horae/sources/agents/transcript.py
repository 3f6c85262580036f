"""The transcript of an agent: the event stream of its program, as text for people.

Claude Code, Codex and Gemini print one JSON object per line, which identifies the program. Our
program, which calls a model, prints turns. All other output is unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct, ValidationError, convert, json, to_builtins

from horae.core.ports import as_table, as_text, read_json

TURN: Final = "horae.turn"  # the type of our events
LONGEST_EVENT: Final = 4 << 20  # bytes; a longer line is unchanged
MOST_LINES: Final = 12  # of a tool's result
MOST_TEXT: Final = 2_000  # characters of it
MOST_VALUE: Final = 80  # characters of an argument of a tool
_COMMANDS: Final = ("command", "cmd")  # the argument that is shown alone


class TurnKind(StrEnum):
    START = "start"  # the session and the model
    TEXT = "text"  # the agent wrote
    TOOL = "tool"  # the agent called a tool
    RESULT = "result"  # what the tool returned
    ERROR = "error"  # the provider or the program failed
    END = "end"  # tokens, cost, number of turns


class Turn(Struct, frozen=True, omit_defaults=True):
    kind: TurnKind
    text: str = ""
    tool: str = ""
    is_error: bool = False
    is_part: bool = False  # the next text continues this one


class Transcript:
    """Converts the output of a run into text, as it comes."""

    def __init__(self) -> None:
        self._event = b""  # the beginning of a line that may be an event
        self._is_inside = False  # in a line that is not an event
        self._is_open = False  # the next turn may continue the text

    def feed(self, part: bytes) -> bytes:
        r"""Return the text for a part of the output.

        >>> Transcript().feed(b'{"type": "turn.completed", "usage": {"output_tokens": 7}}\nBye')
        b'7 tokens out\nBye'
        """
        shown = []
        for piece in part.splitlines(keepends=True):
            if self._is_inside or not (self._event or piece.startswith(b"{")):
                shown.append(piece)
            else:
                self._event += piece
                if not piece.endswith(b"\n") and len(self._event) <= LONGEST_EVENT:
                    continue
                shown.append(self._said(self._event))
                self._event = b""
            self._is_inside = not piece.endswith(b"\n")
        return b"".join(shown)

    def rest(self) -> bytes:
        event, self._event = self._event, b""
        return self._said(event) + (b"\n" if self._is_open else b"")

    def _said(self, line: bytes) -> bytes:
        found = turns(line)
        return line if found is None else "".join(map(self._text, found)).encode()

    def _text(self, turn: Turn) -> str:
        before = "\n" if self._is_open and not turn.is_part else ""
        self._is_open = turn.is_part
        return f"{before}{rendered(turn)}{'' if turn.is_part else chr(10)}"


def turns(line: bytes) -> tuple[Turn, ...] | None:
    """Return the turns in a line of the output; None if it is not an event."""
    if not line.startswith(b"{"):
        return None
    event = read_json(line.decode("utf-8", "replace"), dict)
    kind = None if event is None else event.get("type")
    if event is None or not isinstance(kind, str):
        return None
    if kind == TURN:
        return tuple(_turn(event))
    if kind.partition(".")[0] in {"thread", "turn", "item"}:
        return tuple(_codex(event))
    if "session_id" in event and "uuid" in event:
        return tuple(_claude(event))
    if "timestamp" in event and kind in _GEMINI:
        return tuple(_gemini(event))
    return tuple(_codex(event)) if event.keys() == {"type", "message"} and kind == "error" else None


def written(turn: Turn) -> str:
    return json.encode({"type": TURN, **to_builtins(turn)}).decode()


def _turn(event: Mapping[str, Any]) -> Iterator[Turn]:
    with suppress(ValidationError):  # not an event of ours: it has no turns
        yield convert({name: event[name] for name in event if name != "type"}, Turn)


def summary(line: bytes) -> str | None:
    """Return an event in one line; None if the line is not an event, "" if it has no text."""
    found = turns(line)
    return (
        None
        if found is None
        else " ⏎ ".join(part.strip() for turn in found for part in rendered(turn).splitlines())
    )


def rendered(turn: Turn) -> str:
    r"""Return a turn as text, without a line end.

    >>> rendered(Turn(TurnKind.TOOL, "git status", tool="Bash"))
    '> Bash: git status'
    >>> rendered(Turn(TurnKind.RESULT, "fatal: no repository", is_error=True))
    '  error: fatal: no repository'
    """
    match turn.kind:
        case TurnKind.TOOL:
            return f"> {turn.tool}: {turn.text}" if turn.text else f"> {turn.tool}"
        case TurnKind.RESULT:
            text = f"error: {turn.text}" if turn.is_error else turn.text
            return "\n".join(f"  {line}" for line in _bounded(text))
        case TurnKind.ERROR:
            return f"error: {turn.text}"
        case _:
            return turn.text


def _claude(event: Mapping[str, Any]) -> Iterator[Turn]:
    kind, subtype = event["type"], event.get("subtype")
    if (kind, subtype) == ("system", "init"):
        yield _start(event.get("model"), event.get("session_id"))
    elif (kind, subtype) == ("system", "api_retry"):
        status, number = event.get("error_status"), event.get("attempt")
        yield Turn(TurnKind.ERROR, f"the provider answered {status}; attempt {number} failed")
    elif kind in {"assistant", "user"}:
        content = as_table(event.get("message")).get("content")
        for block in content if isinstance(content, list) else ():
            yield from _claude_block(as_table(block))
    elif kind == "result":
        usage = as_table(event.get("usage"))
        tokens = usage.get("input_tokens"), usage.get("output_tokens")
        turns = counted(event.get("num_turns"), "turn")
        yield end_of(turns, *tokens, cost=event.get("total_cost_usd"))


def _claude_block(block: Mapping[str, Any]) -> Iterator[Turn]:
    match block.get("type"):
        case "text":
            yield Turn(TurnKind.TEXT, as_text(block.get("text")))
        case "tool_use":
            yield Turn(TurnKind.TOOL, _arguments(block.get("input")), as_text(block.get("name")))
        case "tool_result":
            is_error = block.get("is_error") is True
            yield Turn(TurnKind.RESULT, _content(block.get("content")), is_error=is_error)


def _codex(event: Mapping[str, Any]) -> Iterator[Turn]:
    kind, item = event["type"], as_table(event.get("item"))
    what, is_done = as_text(item.get("type")), kind == "item.completed"
    if kind == "thread.started":
        yield _start(None, event.get("thread_id"))
    elif what == "command_execution" and kind == "item.started":
        yield Turn(TurnKind.TOOL, as_text(item.get("command")), "exec")
    elif what == "command_execution" and is_done:
        is_error = item.get("exit_code") != 0
        yield Turn(TurnKind.RESULT, as_text(item.get("aggregated_output")), is_error=is_error)
    elif what in {"agent_message", "assistant_message"} and is_done:
        yield Turn(TurnKind.TEXT, as_text(item.get("text")))
    elif what == "error" and is_done:
        yield Turn(TurnKind.ERROR, as_text(item.get("message")))
    elif is_done and what != "reasoning":
        facts = {name: each for name, each in item.items() if name not in {"id", "type", "status"}}
        yield Turn(TurnKind.TOOL, _arguments(facts), what)
    elif kind == "error":
        yield Turn(TurnKind.ERROR, as_text(event.get("message")))
    elif kind == "turn.completed":
        usage = as_table(event.get("usage"))
        yield end_of("", usage.get("input_tokens"), usage.get("output_tokens"))


def _gemini(event: Mapping[str, Any]) -> Iterator[Turn]:
    match event["type"]:
        case "init":
            yield _start(event.get("model"), event.get("session_id"))
        case "message" if event.get("role") == "assistant":
            text, is_part = as_text(event.get("content")), event.get("delta") is True
            yield Turn(TurnKind.TEXT, text, is_part=is_part)
        case "tool_use":
            name = as_text(event.get("tool_name"))
            yield Turn(TurnKind.TOOL, _arguments(event.get("parameters")), name)
        case "tool_result":
            error = as_table(event.get("error")).get("message")
            text = as_text(error) or _content(event.get("output"))
            is_error = event.get("status") != "success"
            yield Turn(TurnKind.RESULT, text or as_text(event.get("status")), is_error=is_error)
        case "error":
            yield Turn(TurnKind.ERROR, as_text(event.get("message")))
        case "result":
            if error := as_text(as_table(event.get("error")).get("message")):
                yield Turn(TurnKind.ERROR, error)
            stats = as_table(event.get("stats"))
            calls = counted(stats.get("tool_calls"), "tool call")
            yield end_of(calls, stats.get("input_tokens"), stats.get("output_tokens"))


_GEMINI: Final = frozenset({"init", "message", "tool_use", "tool_result", "error", "result"})


def _start(model: object, session: object) -> Turn:
    known = (as_text(model), f"session {session}" if isinstance(session, str) else "")
    return Turn(TurnKind.START, ", ".join(filter(None, known)))


def end_of(first: str, sent: object, got: object, *, cost: object = None) -> Turn:
    known = (
        first,
        f"{sent} tokens in" if isinstance(sent, int) else "",
        f"{got} tokens out" if isinstance(got, int) else "",
        f"${cost:.4f}" if isinstance(cost, float) else "",
    )
    return Turn(TurnKind.END, ", ".join(filter(None, known)))


def counted(number: object, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}" if isinstance(number, int) else ""


def _arguments(given: object) -> str:
    """Return the arguments of a tool in one line.

    >>> _arguments({"command": "ls", "timeout": 5}), _arguments({"path": "a.py", "limit": 3})
    ('ls', 'path: a.py, limit: 3')
    """
    known = as_table(given)
    for name in _COMMANDS:
        if isinstance(known.get(name), str):
            return str(known[name])
    return ", ".join(f"{name}: {_short(value)}" for name, value in known.items())


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.encode(value).decode()
    text = " ".join(text.split())
    return text if len(text) <= MOST_VALUE else f"{text[: MOST_VALUE - 1]}…"


def _bounded(text: str) -> list[str]:
    lines = text[:MOST_TEXT].rstrip().splitlines()
    more = text.count("\n", 0, len(text.rstrip())) + 1 - MOST_LINES
    if more > 0:
        return [*lines[:MOST_LINES], f"… {counted(more, 'more line')}"]
    return [*lines, "…"] if len(text) > MOST_TEXT else lines


def _content(value: object) -> str:
    if isinstance(value, list):
        return "\n".join(as_text(as_table(block).get("text")) for block in value)
    return as_text(value)
