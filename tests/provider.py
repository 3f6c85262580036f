"""A provider of models on this machine: it answers from a script, in the protocol it is asked in.

These are chat completions and responses (OpenAI), messages (Anthropic) and generateContent
(Gemini), whole or as a stream of events.
"""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True)
class Reply:
    """One answer: a text, calls of tools, or an error; *hangs* answers when the server closes."""

    text: str = ""
    calls: tuple[tuple[str, dict[str, object]], ...] = ()
    status: int = 200
    hangs: bool = False
    tokens: tuple[int, int] = (100, 10)
    headers: dict[str, str] = field(default_factory=dict)


def says(text: str, **options: Any) -> Reply:
    return Reply(text=text, **options)


def uses(tool: str, **arguments: object) -> Reply:
    return Reply(calls=((tool, arguments),))


def fails(status: int, text: str = "no", **headers: str) -> Reply:
    return Reply(text=text, status=status, headers=headers)


class Provider:
    """Answers each request with the next reply, the last one again and again; keeps what was asked.

    Programs ask for titles and the like on the side, so outside of plain chat completions the
    next reply is the one after as many as the model has given in that very conversation.
    """

    def __init__(self, *replies: Reply) -> None:
        self.replies: Sequence[Reply] = replies
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.closing = threading.Event()
        self.asked_once = threading.Event()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                dialect = dialect_of(self.path, body)
                if dialect is None:
                    self.answer(404, b"{}")
                    return
                given = len(provider.asked) if dialect is chat else dialect.given(body)
                reply = provider.replies[min(given, len(provider.replies) - 1)]
                provider.asked.append(body)
                provider.keys.append(self.headers.get("Authorization", ""))
                provider.asked_once.set()
                if reply.hangs:
                    provider.closing.wait(60)
                number, model = len(provider.asked), body.get("model", "")
                if reply.status != 200:
                    self.answer(reply.status, dialect.error(reply), **reply.headers)
                elif dialect.is_stream(self.path, body):
                    said = b"".join(dialect.events(reply, number, model))
                    self.answer(200, said, "text/event-stream", **reply.headers)
                else:
                    whole = dialect.whole(reply, number, model)
                    self.answer(200, json.dumps(whole).encode(), **reply.headers)

            def do_GET(self) -> None:
                self.answer(200, b'{"object": "list", "data": [], "models": []}')

            def do_HEAD(self) -> None:
                self.answer(200, b"")

            def answer(
                self, status: int, data: bytes, kind: str = "application/json", **headers: str
            ) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(data)

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except ConnectionError:
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    def told(self) -> list[str]:
        """Return what tools gave back, as the model was told."""
        last = self.asked[-1]["messages"]
        return [each["content"] for each in last if each["role"] == "tool"]

    def offered(self) -> set[str]:
        """Return the names of the tools that the model was shown."""
        return {each["function"]["name"] for each in self.asked[0].get("tools", [])}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _event(data: object, name: str = "") -> bytes:
    """Return an event of a stream."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


class Dialect:
    """A protocol: how many replies a conversation has seen, and how one is told."""

    def given(self, body: dict[str, Any]) -> int:
        return sum(1 for each in body["messages"] if each["role"] == "assistant")

    def is_stream(self, path: str, body: dict[str, Any]) -> bool:  # noqa: ARG002
        return bool(body.get("stream"))

    def error(self, reply: Reply) -> bytes:
        said = {"message": reply.text, "type": "invalid_request_error", "code": None}
        return json.dumps({"error": said}).encode()

    def whole(self, reply: Reply, number: int, model: str) -> dict[str, Any]:
        raise NotImplementedError

    def events(self, reply: Reply, number: int, model: str) -> Iterator[bytes]:
        raise NotImplementedError


class Chat(Dialect):
    """Chat completions."""

    def whole(self, reply: Reply, number: int, model: str) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
        if reply.calls:
            message["tool_calls"] = self._calls(reply, number)
        end = "tool_calls" if reply.calls else "stop"
        sent, got = reply.tokens
        return {
            "id": f"answer-{number}",
            "object": "chat.completion",
            "created": 1_780_000_000,
            "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": end}],
            "usage": {"prompt_tokens": sent, "completion_tokens": got, "total_tokens": sent + got},
        }

    def events(self, reply: Reply, number: int, model: str) -> Iterator[bytes]:
        whole = self.whole(reply, number, model)
        [choice] = whole.pop("choices")
        usage = whole.pop("usage")
        whole["object"] = "chat.completion.chunk"
        delta = choice["message"]
        for index, each in enumerate(delta.get("tool_calls", ())):
            each["index"] = index
        yield _event({**whole, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        last = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
        yield _event({**whole, "choices": [last]})
        yield _event({**whole, "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"

    def _calls(self, reply: Reply, number: int) -> list[dict[str, Any]]:
        return [
            {
                "id": f"call-{number}-{index}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for index, (name, arguments) in enumerate(reply.calls)
        ]


class Responses(Dialect):
    """Responses, as a stream."""

    def given(self, body: dict[str, Any]) -> int:
        kinds = {"function_call", "custom_tool_call"}
        items = body["input"]
        return sum(1 for e in items if e.get("type") in kinds or e.get("role") == "assistant")

    def events(self, reply: Reply, number: int, model: str) -> Iterator[bytes]:
        response = {"id": f"answer-{number}", "object": "response", "model": model, "output": []}
        yield _event({"type": "response.created", "response": response}, "response.created")
        items: list[dict[str, Any]] = [
            {
                "type": "function_call",
                "id": f"fc-{number}-{index}",
                "call_id": f"call-{number}-{index}",
                "name": name,
                "arguments": json.dumps(arguments),
            }
            for index, (name, arguments) in enumerate(reply.calls)
        ]
        if reply.text:
            content = [{"type": "output_text", "text": reply.text, "annotations": []}]
            items.append(
                {"type": "message", "role": "assistant", "id": f"m-{number}", "content": content}
            )
        for index, item in enumerate(items):
            done = {"type": "response.output_item.done", "output_index": index, "item": item}
            yield _event(done, "response.output_item.done")
        sent, got = reply.tokens
        usage = {
            "input_tokens": sent,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": got,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": sent + got,
        }
        whole = {**response, "status": "completed", "output": items, "usage": usage}
        yield _event({"type": "response.completed", "response": whole}, "response.completed")


class Messages(Dialect):
    """Messages, as Anthropic has them."""

    def error(self, reply: Reply) -> bytes:
        said = {"type": "error", "error": {"type": "api_error", "message": reply.text}}
        return json.dumps(said).encode()

    def whole(self, reply: Reply, number: int, model: str) -> dict[str, Any]:
        text = [{"type": "text", "text": reply.text}] if reply.text else []
        calls = [
            {"type": "tool_use", "id": f"toolu_{number}_{index}", "name": name, "input": given}
            for index, (name, given) in enumerate(reply.calls)
        ]
        sent, got = reply.tokens
        return {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [*text, *calls],
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": sent, "output_tokens": got},
        }

    def events(self, reply: Reply, number: int, model: str) -> Iterator[bytes]:
        whole = self.whole(reply, number, model)
        begun = {**whole, "content": [], "stop_reason": None}
        yield _event({"type": "message_start", "message": begun}, "message_start")
        for index, block in enumerate(whole["content"]):
            at = {"index": index}
            if block["type"] == "text":
                empty = {**block, "text": ""}
                delta = {"type": "text_delta", "text": block["text"]}
            else:
                empty = {**block, "input": {}}
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            start = {"type": "content_block_start", **at, "content_block": empty}
            yield _event(start, "content_block_start")
            yield _event(
                {"type": "content_block_delta", **at, "delta": delta}, "content_block_delta"
            )
            yield _event({"type": "content_block_stop", **at}, "content_block_stop")
        end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        usage = {"output_tokens": reply.tokens[1]}
        yield _event({"type": "message_delta", "delta": end, "usage": usage}, "message_delta")
        yield _event({"type": "message_stop"}, "message_stop")


class Gemini(Dialect):
    """generateContent."""

    def given(self, body: dict[str, Any]) -> int:
        parts = [part for each in body["contents"] for part in each.get("parts", ())]
        return sum(1 for part in parts if "functionCall" in part)

    def is_stream(self, path: str, body: dict[str, Any]) -> bool:  # noqa: ARG002
        return "streamGenerateContent" in path

    def error(self, reply: Reply) -> bytes:
        said = {"code": reply.status, "message": reply.text, "status": "INVALID_ARGUMENT"}
        return json.dumps({"error": said}).encode()

    def whole(self, reply: Reply, number: int, model: str) -> dict[str, Any]:
        parts: list[dict[str, Any]] = [{"text": reply.text}] if reply.text else []
        parts += [{"functionCall": {"name": name, "args": given}} for name, given in reply.calls]
        sent, got = reply.tokens
        spent = {
            "promptTokenCount": sent,
            "candidatesTokenCount": got,
            "totalTokenCount": sent + got,
        }
        said = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
        return {
            "candidates": [said],
            "usageMetadata": spent,
            "modelVersion": model,
            "responseId": f"answer-{number}",
        }

    def events(self, reply: Reply, number: int, model: str) -> Iterator[bytes]:
        yield _event(self.whole(reply, number, model))


chat, responses, messages, gemini = Chat(), Responses(), Messages(), Gemini()


def dialect_of(path: str, body: dict[str, Any]) -> Dialect | None:
    """Return the protocol of a request; what is only asked about models is none."""
    path = path.partition("?")[0]
    if path.endswith("/chat/completions"):
        return chat
    if path.endswith("/responses"):
        return responses
    if path.endswith("/messages"):
        return messages
    called = re.search(r"/models/([^/:]+):(?:stream)?[gG]enerateContent$", path)
    if called is None:
        return None
    body["model"] = called[1]
    return gemini
