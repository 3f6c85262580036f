"""No number of connections keeps the engine from its work, or the next one from being answered."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import time
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route
from uvicorn.server import ServerState

from core.world import story
from crash.stage import Home, entry
from horae.client import Client
from horae.web import serve
from horae.web.serve import Proxies, listen_tcp, serve_tcp
from process.stage import descriptors, proc
from scale import scaled
from web.smuggling import AMBIGUOUS, HIDDEN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.requests import Request

    from crash.stage import Life

HALF = b"GET / HTTP/1.1\r\nHost: loc"
CLOSE = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
WITHIN = 5  # seconds for what takes a few thousandths of one


class Port:
    """A small application behind a serve."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.working = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []

    async def knock(
        self, said: bytes = b"", *, peer: str = "127.0.0.1"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection that says something."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.number, local_addr=(peer, 0)
        )
        self._writers.append(writer)
        writer.write(said)
        return reader, writer

    def close(self) -> None:
        """Close what was opened."""
        for writer in self._writers:
            writer.close()

    async def told(self, request: bytes = CLOSE, *, peer: str = "127.0.0.1") -> bytes:
        """Return all that is answered until the connection is closed."""
        reader, _ = await self.knock(request, peer=peer)
        async with asyncio.timeout(WITHIN):
            with suppress(ConnectionResetError):
                return await reader.read()
        return b""


@asynccontextmanager
async def opened(proxies: Proxies | None = None) -> AsyncIterator[Port]:
    """Give a port that is served."""
    listener = listen_tcp("127.0.0.1", 0)
    port = Port(listener.getsockname()[1])

    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse((await request.body()).decode() or "hello")

    async def work(_: Request) -> PlainTextResponse:
        await port.working.wait()
        return PlainTextResponse("done")

    async def events(_: Request) -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"begun"
            await asyncio.Event().wait()

        return StreamingResponse(parts())

    routes = [
        Route("/", hello, methods=["GET", "POST"]),
        Route("/work", work),
        Route("/events", events),
    ]
    stop = asyncio.Event()
    app = Starlette(routes=routes)
    serving = asyncio.create_task(serve_tcp(app, listener, stop=stop, proxies=proxies))
    try:
        yield port
    finally:
        port.close()
        stop.set()
        async with asyncio.timeout(WITHIN):
            await serving


async def is_over(reader: asyncio.StreamReader) -> bool:
    """Tell whether the other end has closed a connection; what it said before does not count."""
    with suppress(ConnectionResetError, TimeoutError):
        async with asyncio.timeout(0.05):
            while await reader.read(1000):
                pass
            return True
    return reader.exception() is not None


@story
async def test_one_more_takes_the_place_of_the_one_that_was_silent_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serve, "CONNECTIONS", 6)
    async with opened() as port:
        wires = [await port.knock(HALF) for _ in range(6)]
        wires[0][1].write(b"a")  # it is not the silent one any more
        async with asyncio.timeout(WITHIN):
            assert (await port.told()).endswith(b"hello")
        assert [await is_over(reader) for reader, _ in wires] == [False, True, *[False] * 4]


@story
async def test_a_peer_takes_places_from_itself_and_not_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serve, "PER_PEER", 3)
    async with opened() as port:
        other = await port.knock(HALF)
        wires = [await port.knock(HALF, peer="127.0.0.2") for _ in range(8)]
        assert (await port.told(peer="127.0.0.2")).endswith(b"hello")
        assert [await is_over(reader) for reader, _ in wires] == [True] * 6 + [False] * 2
        assert not await is_over(other[0])


@story
async def test_a_proxy_may_have_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "PER_PEER", 3)
    async with opened(Proxies.of(["127.0.0.0/30"])) as port:
        wires = [await port.knock(HALF, peer="127.0.0.2") for _ in range(8)]
        assert not any([await is_over(reader) for reader, _ in wires])


@story
async def test_who_is_being_answered_is_sent_away_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "CONNECTIONS", 6)
    async with opened() as port:
        work = await port.knock(CLOSE.replace(b"/ ", b"/work "))
        stream = await port.knock(CLOSE.replace(b"/ ", b"/events "))
        async with asyncio.timeout(WITHIN):
            await stream[0].readuntil(b"begun")
        half = [await port.knock(HALF) for _ in range(20)]
        assert [await is_over(reader) for reader, _ in half].count(False) == 4
        streams = [await port.knock(CLOSE.replace(b"/ ", b"/events ")) for _ in range(4)]
        for reader, _ in streams:
            async with asyncio.timeout(WITHIN):
                await reader.readuntil(b"begun")
        assert not await is_over(stream[0])
        # Streams are bounded, too; what is still being made is kept.
        assert (await port.told()).endswith(b"hello")
        assert await is_over(stream[0])
        port.working.set()
        async with asyncio.timeout(WITHIN):
            assert (await work[0].read()).endswith(b"done")


@story
async def test_who_says_half_of_a_request_is_sent_away_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert serve.REQUEST_TIMEOUT == 10
    monkeypatch.setattr(serve, "REQUEST_TIMEOUT", 0.2)
    async with opened() as port:
        reader, writer = await port.knock(HALF)
        async with asyncio.timeout(WITHIN):
            while not reader.at_eof() and reader.exception() is None:
                writer.write(b"a")  # each byte comes in time; the request does not
                await asyncio.sleep(0.01)


def test_descriptors_are_kept_for_runs_and_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    def most(limit: int, *, used: int, held: int = 0) -> int:
        monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
        monkeypatch.setattr(os, "listdir", lambda _: ["x"] * used)
        return serve.most_connections(held)

    assert most(1024, used=20) == serve.CONNECTIONS
    assert most(1024, used=900) == 1024 - 64 - 900
    assert most(1024, used=900, held=100) == 1024 - 64 - 800
    assert most(64, used=20) == 64 - 32 - 20, "half of a low limit"
    assert most(64, used=60) == serve.FEWEST


@story
async def test_without_descriptors_those_who_knock_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(serve, "ACCEPT_PAUSE", 0.01)
    async with opened() as port:
        [idle, knocking] = [await port.knock(), socket.socket()]
        soft_and_hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        loop = asyncio.get_running_loop()
        knocking.setblocking(False)
        highest = max(int(each.name) for each in Path("/dev/fd").iterdir())
        with ExitStack() as filled:
            while (filler := os.open("/dev/null", os.O_RDONLY)) < highest:
                filled.callback(os.close, filler)
            filled.callback(os.close, filler)
            resource.setrlimit(resource.RLIMIT_NOFILE, (filler + 1, soft_and_hard[1]))
            try:
                await loop.sock_connect(knocking, ("127.0.0.1", port.number))
                await loop.sock_sendall(knocking, CLOSE)
                async with asyncio.timeout(WITHIN):  # the place of one who says nothing is used
                    assert (await loop.sock_recv(knocking, 1000)).startswith(b"HTTP/1.1 200 ")
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, soft_and_hard)
        assert await is_over(idle[0])
        knocking.close()
        assert (await port.told()).endswith(b"hello")
    said = [each.message for each in caplog.records if each.name == "horae.web.serve"]
    assert said == ["cannot accept connections: Too many open files"]


@pytest.mark.parametrize("name", AMBIGUOUS)
@story
async def test_what_two_programs_may_read_in_two_ways_is_refused(name: str) -> None:
    async with opened() as port:
        said = await port.told(AMBIGUOUS[name] + HIDDEN)
        assert said.startswith(b"HTTP/1.1 400 "), said
        assert said.count(b"HTTP/1.1 ") == 1, "nothing after it is read"
        # Nor if it comes in small parts.
        reader, writer = await port.knock()
        with suppress(ConnectionError):
            for at in range(len(AMBIGUOUS[name])):
                writer.write(AMBIGUOUS[name][at : at + 1])
                await asyncio.sleep(0)
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")


@story
async def test_a_chunk_or_a_trailer_with_a_bare_lf_ends_the_connection() -> None:
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with opened() as port:
        whole = head + b"4\r\nfour\r\n0\r\n\r\n"
        assert (await port.told(whole + CLOSE)).count(b"HTTP/1.1 200 ") == 2
        for body in (
            b"4\nfour\r\n0\r\n\r\n",
            b"4\r\nfour\r\n0\n\n",
            b"4\r\nfour\r\n0\r\nX: y\n\r\n",
        ):
            assert b" 200 " not in await port.told(head + body + HIDDEN), body


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    made.write(entry("Every second", made.effect()))
    yield made
    made.end()


def _asked(port: int) -> float:
    """Return how long it takes until a port says how the engine is."""
    begun = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=WITHIN) as wire:
        wire.sendall(CLOSE.replace(b"/ ", b"/healthz "))
        assert wire.recv(1000).startswith(b"HTTP/1.1 200 ")
    return time.monotonic() - begun


def _resident(life: Life) -> int:
    """Return how many bytes of memory an engine has."""
    return int(proc(life.pid, "statm").split()[1]) * resource.getpagesize()


def _open(life: Life) -> int:
    return len(descriptors(life.pid))


@story
async def test_who_is_let_in_while_the_server_ends_is_not_left_open() -> None:
    listener = listen_tcp("127.0.0.1", 0)
    config = uvicorn.Config(Starlette(), http=serve.ClientConnection)
    opened = serve.Acceptor(
        listener,
        lambda: serve.ClientConnection(config=config, server_state=ServerState(), app_state={}),
    )
    opened.open()
    with socket.create_connection(listener.getsockname(), timeout=WITHIN) as client:
        opened._accept()
        for starting in opened._starting:
            starting.cancel()  # before it began, as the end of a loop does
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (client.recv(1), opened._connections) == (b"", set())
    opened.close()
    listener.close()


@pytest.mark.parametrize(("limit", "count"), [(1024, scaled(4500)), (64, 200)])
def test_half_open_connections_are_no_matter_to_the_engine(
    home: Home, limit: int, count: int
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    life = home.up(descriptors=limit, settings={"HORAE_LISTEN": f"127.0.0.1:{port}"}).begun()
    life.until(lambda: home.rows("SELECT 1 FROM receipt WHERE status = 'done'"))
    _asked(port)
    size, used = _resident(life), _open(life)
    with ExitStack() as attack:
        wires = [attack.enter_context(socket.socket()) for _ in range(count)]
        for wire in wires:
            wire.setblocking(False)
            with suppress(BlockingIOError):
                wire.connect(("127.0.0.1", port))
        for wire in wires:
            with suppress(OSError):
                wire.send(HALF)
        before = home.rows("SELECT count(*) FROM receipt WHERE status = 'done'")[0][0]
        assert _asked(port) < WITHIN
        assert Client(home.data).answers()
        most = max(limit - min(64, limit // 2), used + serve.FEWEST)
        assert _open(life) <= most + serve.ACCEPTED_AT_ONCE
        life.until(
            lambda: (
                home.rows("SELECT count(*) FROM receipt WHERE status = 'done'")[0][0] >= before + 3
            )
        )
        assert _asked(port) < WITHIN
        assert _resident(life) < size + (20 << 20)
        late = home.rows(
            "SELECT max(run.started_at - planned_at) FROM run JOIN receipt ON run.receipt ="
            " receipt.number"
        )
        assert late[0][0] < WITHIN * 1_000_000
    assert life.stop() == 0, life.said()
    assert not home.rows("SELECT reason FROM receipt WHERE status NOT IN ('done', 'skipped')")
