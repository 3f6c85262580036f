"""The socket is its owner's alone, outlives no engine, and waits for nobody for ever."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import stat
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from core.world import story
from horae.web import LONGEST, SOCKET, SocketPathError, address, serve
from horae.web.serve import HEADER, listen, serve_socket
from waiting import until
from web.stage import listening

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.requests import Request

HELLO = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def _hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse((await request.body()).decode() or "hello")


async def _endless(_: Request) -> StreamingResponse:
    async def parts() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65536
            await asyncio.sleep(0)

    return StreamingResponse(parts())


begun = asyncio.Event()


async def _waits(_: Request) -> PlainTextResponse:
    begun.set()
    await asyncio.Event().wait()
    return PlainTextResponse("never")


APP = Starlette(
    routes=[
        Route("/", _hello, methods=["GET", "POST"]),
        Route("/endless", _endless),
        Route("/waits", _waits),
    ]
)


@asynccontextmanager
async def served(directory: Path) -> AsyncIterator[asyncio.Event]:
    """Give the event that ends what is served in a directory."""
    stop = asyncio.Event()
    serving = asyncio.create_task(serve_socket(APP, directory, stop=stop))
    await listening(directory)
    try:
        yield stop
    finally:
        stop.set()
        async with asyncio.timeout(4):
            await serving


async def wired(directory: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection with whoever listens."""
    with address(directory) as near:
        return await asyncio.open_unix_connection(near)


async def told(directory: Path, request: bytes = HELLO) -> bytes:
    """Return all that is answered to some bytes until the connection is closed."""
    reader, writer = await wired(directory)
    writer.write(request)
    try:
        async with asyncio.timeout(5):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


CLOSE = HELLO.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_only_its_owner_may_use_the_socket_whatever_the_umask(tmp_path: Path) -> None:
    with listen(tmp_path):
        mode = (tmp_path / SOCKET).stat().st_mode
        assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600)
        assert [each.name for each in tmp_path.iterdir()] == [SOCKET]


@pytest.mark.usefixtures("open_umask")
def test_what_a_killed_engine_left_of_a_socket_is_taken_over_and_closed_to_others(
    tmp_path: Path,
) -> None:
    private = tmp_path / ".socket"
    private.mkdir(mode=0o777)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(private / SOCKET))
    with listen(tmp_path):
        assert stat.S_IMODE((tmp_path / SOCKET).stat().st_mode) == 0o600
        assert not private.exists()


def test_a_socket_is_there_only_when_it_listens(tmp_path: Path) -> None:
    assert not (tmp_path / SOCKET).exists()
    with listen(tmp_path), socket.socket(socket.AF_UNIX) as client, address(tmp_path) as near:
        client.connect(near)  # although nobody accepts yet
        assert client.getpeername().endswith(SOCKET)


@story
async def test_a_dead_engine_s_socket_is_replaced_and_ours_is_removed(tmp_path: Path) -> None:
    listen(tmp_path).close()
    with pytest.raises(ConnectionRefusedError):
        await told(tmp_path)
    stop = asyncio.Event()
    serving = asyncio.create_task(serve_socket(APP, tmp_path, stop=stop))

    async def answer() -> bytes:
        with suppress(ConnectionRefusedError):
            return await told(tmp_path, CLOSE)
        return b""

    assert (await until(answer)).endswith(b"hello")
    stop.set()
    await serving
    assert list(tmp_path.iterdir()) == []


@story
async def test_an_engine_that_ends_leaves_the_socket_of_the_one_after_it(tmp_path: Path) -> None:
    async with served(tmp_path):
        after = listen(tmp_path)
    with after:
        assert (tmp_path / SOCKET).exists()


@story
async def test_the_path_of_a_data_directory_may_be_as_long_as_it_likes(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-rather-long-name"] * 12)
    deep.mkdir(parents=True)
    assert len(str(deep)) > 200
    async with served(deep):
        assert (await told(deep, CLOSE)).endswith(b"hello")


def test_where_no_descriptor_leads_to_a_directory_a_long_path_is_refused(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    with address(Path("/tmp"), descriptors=nowhere) as near:
        assert near == f"/tmp/{SOCKET}"
    deep = tmp_path / ("x" * LONGEST)
    with (
        pytest.raises(SocketPathError, match="with a shorter path"),
        address(deep, descriptors=nowhere),
    ):
        pass


@story
async def test_signals_stay_the_engine_s_and_nothing_is_said_about_the_server(
    tmp_path: Path,
) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    async with served(tmp_path):
        answer = await told(tmp_path, CLOSE)
        assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before
    head = answer.partition(b"\r\n\r\n")[0].lower()
    assert b"uvicorn" not in head
    assert b"server:" not in head


@story
async def test_too_long_a_header_and_what_is_no_http_are_refused_and_others_served(
    tmp_path: Path,
) -> None:
    async with served(tmp_path):
        long = HELLO.replace(b"\r\n\r\n", b"\r\nX: " + b"x" * (HEADER + 1) + b"\r\n\r\n")
        smuggled = CLOSE.replace(b"GET", b"POST").replace(
            b"\r\n\r\n", b"\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx"
        )
        for request in (
            b"\0\xff\r\n\r\n",
            b"GET\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            smuggled,
        ):
            assert (await told(tmp_path, request)).startswith(b"HTTP/1.1 400 ")
        assert (await told(tmp_path, long)).startswith(b"HTTP/1.1 431 ")
        assert (await told(tmp_path, long[:-4])).startswith(b"HTTP/1.1 400 ")
        assert (await told(tmp_path, CLOSE)).endswith(b"hello")


@story
async def test_who_is_slow_in_asking_loses_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "REQUEST_TIMEOUT", 0.2)
    post = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf"

    async def asks_again() -> bytes:
        reader, writer = await wired(tmp_path)
        writer.write(HELLO)
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
        writer.write(HELLO[:20])
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        return b""

    async with served(tmp_path), asyncio.timeout(4):
        ends = await asyncio.gather(
            told(tmp_path, b""), told(tmp_path, HELLO[:20]), told(tmp_path, post), asks_again()
        )
        assert set(ends) == {b""}


@story
async def test_who_does_not_take_the_answer_loses_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "WRITE_TIMEOUT", 0.2)
    async with served(tmp_path):
        with socket.socket(socket.AF_UNIX) as hung, address(tmp_path) as near:
            hung.connect(near)
            hung.sendall(HELLO.replace(b"/ ", b"/endless "))
            watch = select.poll()
            watch.register(hung, 0)  # nothing but that the other end is gone
            await until(lambda: watch.poll(0), within=4)
        assert (await told(tmp_path, CLOSE)).endswith(b"hello")


@story
async def test_it_closes_within_a_bound_whoever_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "SHUTDOWN", 1)
    async with served(tmp_path) as stop:
        _, idle = await wired(tmp_path)
        _, listener = await wired(tmp_path)
        listener.write(HELLO.replace(b"/ ", b"/endless "))
        await asyncio.sleep(0)
        started = time.monotonic()
        stop.set()
    assert time.monotonic() - started < 4
    idle.close()
    listener.close()


@story
async def test_a_request_that_is_ended_by_the_stop_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "SHUTDOWN", 1)
    async with served(tmp_path) as stop:
        reader, writer = await wired(tmp_path)
        begun.clear()
        writer.write(HELLO.replace(b"/ ", b"/waits "))
        await begun.wait()
        stop.set()
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"the engine is stopping" in answer
    writer.close()


def test_the_system_keeps_little_of_an_answer_for_whoever_is_slow() -> None:
    with serve.listen_tcp("127.0.0.1", 0) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
        with near, far:
            kept = far.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
            assert kept <= 2 * serve.BUFFER  # Linux counts its own part, too
