"""A provider of models on this machine: it speaks the chat completions protocol from a script."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    """Answers each request with the next reply, the last one again and again; keeps what was asked."""

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
                at = min(len(provider.asked), len(provider.replies) - 1)
                provider.asked.append(body)
                provider.keys.append(self.headers.get("Authorization", ""))
                provider.asked_once.set()
                reply = provider.replies[at]
                if reply.hangs:
                    provider.closing.wait(60)
                said = _completion(reply, len(provider.asked), body["model"])
                data = json.dumps(said).encode()
                self.send_response(reply.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                for name, value in reply.headers.items():
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
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

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


def _completion(reply: Reply, number: int, model: str) -> dict[str, object]:
    if reply.status != 200:
        return {"error": {"message": reply.text, "type": "invalid_request_error", "code": None}}
    calls = [
        {
            "id": f"call-{number}-{index}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for index, (name, arguments) in enumerate(reply.calls)
    ]
    message: dict[str, object] = {"role": "assistant", "content": reply.text or None}
    if calls:
        message["tool_calls"] = calls
    sent, got = reply.tokens
    return {
        "id": f"answer-{number}",
        "object": "chat.completion",
        "created": 1_780_000_000,
        "model": model,
        "choices": [
            {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        ],
        "usage": {"prompt_tokens": sent, "completion_tokens": got, "total_tokens": sent + got},
    }
