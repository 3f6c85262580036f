"""What a node hands on of another node's answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from core.world import story
from horae.core.settings import ListenAddress
from horae.web.forward import Forwarder

if TYPE_CHECKING:
    from collections.abc import Sequence

WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"


async def forwarded(answer: bytes) -> Sequence[dict[str, Any]]:
    """Return what a client gets of an answer that another node writes, byte for byte."""
    said: list[dict[str, Any]] = []
    asked = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async def receive() -> Any:
        return next(asked, None) or await asyncio.Event().wait()

    async def send(message: Any) -> None:
        said.append(message)

    async with await asyncio.start_server(respond, "127.0.0.1") as server:
        address = ListenAddress(*server.sockets[0].getsockname()[:2])
        scope = {"type": "http", "method": "GET", "path": "/x", "raw_path": b"/x"}
        scope |= {"query_string": b"", "headers": []}
        await Forwarder(lambda: ("other", address), "secret", "own")(scope, receive, send)
    return said


@story
async def test_an_answer_is_handed_on() -> None:
    start, *parts = await forwarded(WHOLE)
    assert start["status"] == 200
    assert b"".join(each["body"] for each in parts) == b"ok"


@pytest.mark.parametrize("answer", [b"", b"no HTTP at all\r\n\r\n", b"HTTP/1.1 2"])
@story
async def test_what_is_no_answer_is_told_as_a_leader_that_is_away(answer: bytes) -> None:
    start, *_ = await forwarded(answer)
    assert start["status"] == 503


@story
async def test_an_answer_that_breaks_off_is_not_ended_as_if_it_were_whole() -> None:
    with pytest.raises(ConnectionResetError, match="during its response"):
        await forwarded(WHOLE[:-1])
