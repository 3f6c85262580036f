"""What happens is told as it happens, from where one left off, and slow readers cost nothing."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.world import story
from horae.web import SOCKET, serve, stream
from horae.web.stream import Feed
from scale import scaled
from waiting import until as looked
from web.stage import engine, shell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx
    import pytest

    from web.stage import Here

STREAM = "/api/v1/events/stream"


async def told(answer: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """Yield the events of a stream."""
    event: dict[str, Any] = {}
    async for line in answer.aiter_lines():
        name, _, value = line.partition(": ")
        if name in {"id", "event", "data"}:
            event[name] = json.loads(value) if name == "data" else value
        elif not line and event:
            yield event
            event = {}


async def until(events: AsyncIterator[dict[str, Any]], status: str) -> list[dict[str, Any]]:
    """Return events up to the first receipt that stands so."""
    found = []
    async with asyncio.timeout(10):
        async for event in events:
            found.append(event)
            if event["data"]["facts"].get("status") == status:
                break
    return found


@story
async def test_a_listener_hears_what_happens_in_order(tmp_path: Path) -> None:
    async with engine(tmp_path) as here, here.client.stream("GET", STREAM) as answer:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        events = told(answer)
        receipt = (await here.post("entries/Digest/run"))["receipt"]
        heard = await until(events, "done")
        numbers = [int(each["id"]) for each in heard]
        assert numbers == [each["data"]["event"] for each in heard]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        stands = [each["data"]["facts"]["status"] for each in heard if each["event"] == "receipt"]
        assert stands == ["waiting", "starting", "running", "done"]
        assert {each["data"]["receipt"] for each in heard} == {receipt}


@story
async def test_a_listener_goes_on_after_what_it_heard_last(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        await here.ended((await here.post("entries/Digest/run"))["receipt"])
        whole = (await here.get("events", limit=1000))["events"]
        for last in (0, 3, whole[-2]["event"]):
            headers = {"Last-Event-ID": str(last)}
            async with here.client.stream("GET", STREAM, headers=headers) as answer:
                heard = await until(told(answer), "done")
            assert [each["data"] for each in heard] == [e for e in whole if e["event"] > last]
        async with here.client.stream("GET", f"{STREAM}?after=2") as answer:
            assert (await until(told(answer), "done"))[0]["data"]["event"] == 3
        wrong = await here.client.get(f"{STREAM}?after=x")
        assert wrong.status_code == 400


async def some(heard: AsyncIterator[bytes], count: int) -> list[bytes]:
    """Return so many events as a listener hears them, however many come at once."""
    found: list[bytes] = []
    while len(found) < count:
        found += (await anext(heard)).removesuffix(b"\n\n").split(b"\n\n")
    return found


@story
async def test_one_who_fell_behind_reads_on_in_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "SHARED", 5)
    async with engine(tmp_path) as here:
        feed = Feed(here.front.service)
        behind, ahead = feed.listen(0), feed.listen(0)
        await anext(behind)
        await anext(ahead)
        for _ in range(3):
            await here.ended((await here.post("entries/Digest/run"))["receipt"])
        count = len((await here.get("events", limit=1000))["events"])
        async with asyncio.timeout(10):
            fast, slow = await some(ahead, count), await some(behind, count)
        assert fast == slow
        assert len(set(slow)) == count
        assert len(feed._newest) <= 5
        await behind.aclose()  # type: ignore[attr-defined]
        await ahead.aclose()  # type: ignore[attr-defined]
        assert feed._looking is None, "nobody listens, so nobody looks"


@story
async def test_a_quiet_stream_says_that_it_is_still_there(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        feed = Feed(here.front.service)
        newest = (await here.get("events"))["after"]
        heard = feed.listen(newest, heartbeat=0.02)
        assert [await anext(heard) for _ in range(3)] == [
            b"retry: 1000\n\n",
            b": still here\n\n",
            b": still here\n\n",
        ]
        await heard.aclose()  # type: ignore[attr-defined]


def memory() -> int:
    """Return how many bytes of memory this process uses."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


async def deaf(here: Here) -> socket.socket:
    """Return a connection that asks for the stream and takes nothing of it."""
    wire = socket.socket(socket.AF_UNIX)
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    wire.connect(str(here.data / SOCKET))
    wire.sendall(f"GET {STREAM}?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return wire


@story
async def test_fifty_slow_readers_cost_neither_memory_nor_time_and_are_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "WRITE_TIMEOUT", 3.0)
    async with engine(tmp_path, shell("Tells", "echo x")) as here:
        ledger, now = here.front.ledger, here.front.clock.now()
        assert ledger is not None

        async def happen(count: int) -> None:
            for _ in range(count):
                await ledger.note("test", now=now, term=1, facts={"text": "x" * 10_000})

        await happen(20)
        wires = [await deaf(here) for _ in range(50)]
        feed = here.serving.state.feed
        await looked(lambda: feed._listeners >= 50)
        await happen(50)
        before = memory()
        await happen(scaled(2000))  # of 10 kB for each of 50 readers, if anybody kept them
        receipt = (await here.post("entries/Tells/run"))["receipt"]
        async with asyncio.timeout(2):
            assert (await here.ended(receipt))["status"] == "done"
        assert memory() - before < 30 << 20
        await looked(lambda: not feed._listeners)
        assert feed._looking is None
        for wire in wires:
            wire.close()
