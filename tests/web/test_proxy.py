"""Behind a proxy nobody hides a request in another, and each client is known by its address."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import subprocess
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.responses import PlainTextResponse

from core.world import story
from horae.core.clock import SystemClock
from horae.web.api import operation_of
from horae.web.guard import Guard
from horae.web.keys import Keys
from horae.web.serve import Proxies, listen_tcp, serve_tcp
from waiting import wait_until
from web.smuggling import AMBIGUOUS, HIDDEN, ODD
from web.stage import Waits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from starlette.types import Receive, Scope, Send

HAPROXY = """
global
    tune.bufsize 32768
defaults
    mode http
    timeout connect 5s
    timeout client 5s
    timeout server 5s
    {lenient}
frontend all
    bind 127.0.0.1:{port}
    default_backend engine
backend engine
    http-reuse always
    option forwardfor
    http-request set-header X-Seen proxy
    server engine 127.0.0.1:{behind}
"""
NGINX = """
daemon off;
master_process off;
pid {place}/pid;
error_log {place}/errors;
events {{}}
http {{
    access_log off;
    client_body_temp_path {place}/body;
    proxy_temp_path {place}/proxy;
    fastcgi_temp_path {place}/fastcgi;
    uwsgi_temp_path {place}/uwsgi;
    scgi_temp_path {place}/scgi;
    ignore_invalid_headers off;
    underscores_in_headers on;
    upstream engine {{ server 127.0.0.1:{behind}; keepalive 4; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://engine;
            proxy_http_version 1.1;
            proxy_request_buffering off;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_set_header X-Seen proxy;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        }}
    }}
}}
"""
# The second lets pass what it can, which is what an old or a careless one does.
PROXIES = {
    "nginx": (["nginx", "-p", "{place}", "-c"], NGINX),
    "haproxy": (["haproxy", "-db", "-f"], HAPROXY.replace("{lenient}", "")),
    "lenient haproxy": (
        ["haproxy", "-db", "-f"],
        HAPROXY.replace("{lenient}", "option accept-invalid-http-request"),
    ),
}


def _program(name: str) -> str:
    words = PROXIES[name][0]
    # Debian keeps both where only root looks.
    found = shutil.which(words[0]) or shutil.which(words[0], path="/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip(f"{words[0]} is not installed; `apt-get install {words[0]}` brings it")
    return found


@asynccontextmanager
async def careless(app: Any) -> AsyncIterator[int]:
    """Give the port of a proxy that knows no chunks and passes on whatever else there is."""
    listener = listen_tcp("127.0.0.1", 0)
    engine = listener.getsockname()[1]

    async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection("127.0.0.1", engine)

        async def back() -> None:
            with suppress(ConnectionError):
                while part := await answers.read(65536):
                    writer.write(part)
            writer.close()

        going_back = asyncio.create_task(back())
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)\ncontent-length: *(\d+)", head)
                body = await reader.readexactly(int(length[1]) if length else 0)
                requests.write(head.replace(b"\n", b"\nX-Seen: proxy\r\n", 1) + body)
        requests.close()
        await going_back

    stop = asyncio.Event()
    serving = asyncio.create_task(serve_tcp(app, listener, stop=stop))
    async with await asyncio.start_server(passed, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
    stop.set()
    await serving


@asynccontextmanager
async def behind(name: str, app: Any, place: Path, **settings: Any) -> AsyncIterator[int]:
    """Give the port of a proxy before an application."""
    program = _program(name)
    words, text = PROXIES[name]
    listener = listen_tcp("127.0.0.1", 0)
    with listen_tcp("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    file = place / "proxy.conf"
    file.write_text(text.format(place=place, port=port, behind=listener.getsockname()[1]))
    stop = asyncio.Event()
    serving = asyncio.create_task(serve_tcp(app, listener, stop=stop, **settings))
    argv = [program, *(each.format(place=place) for each in words[1:]), str(file)]
    with (place / "said").open("wb") as said:
        process = subprocess.Popen(argv, stdout=said, stderr=said)
    try:

        def listens() -> bool:
            assert process.poll() is None, (place / "said").read_text()
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return True
            return False

        wait_until(listens)
        yield port
    finally:
        process.kill()
        process.wait()
        stop.set()
        await serving


async def said(port: int, request: bytes) -> bytes:
    """Return what a proxy answers to some bytes, as far as that comes soon."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    heard = b""
    with suppress(ConnectionError, TimeoutError):
        writer.write(request)
        while part := await asyncio.wait_for(reader.read(65536), 0.3 if heard else 3):
            heard += part
    writer.close()
    return heard


@pytest.mark.parametrize("name", ["careless", *PROXIES])
@story
async def test_no_request_is_hidden_in_another(name: str, tmp_path: Path) -> None:
    seen: list[tuple[str, bool]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        seen.append((scope["path"], headers.get(b"x-seen") == b"proxy"))
        while (await receive()).get("more_body"):
            pass
        await PlainTextResponse(f"<{scope['path']}>")(scope, receive, send)

    proxy = careless(app) if name == "careless" else behind(name, app, tmp_path)
    async with proxy as port, asyncio.timeout(60):
        attacks = {**AMBIGUOUS, **ODD}

        async def attack(number: int, each: str) -> None:
            await said(port, attacks[each] + HIDDEN)
            # Whoever asks next on the same way gets the answer to its own question.
            own = f"/own-{number}".encode()
            ask = HIDDEN.replace(b"/hidden", own)
            answer = await said(port, ask.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            assert answer.startswith(b"HTTP/1.1 200 "), (each, answer)
            assert answer.count(b"<") == 1, (each, answer)
            assert b"<%b>" % own in answer, (each, answer)

        await asyncio.gather(*(attack(number, each) for number, each in enumerate(attacks)))
        unseen = [path for path, is_seen in seen if not is_seen]
        assert unseen == [], "it was no request for the proxy"
        assert {path for path, _ in seen} >= {f"/own-{n}" for n in range(len(attacks))}


@pytest.mark.parametrize("name", [*PROXIES][:2])
@story
async def test_a_trusted_proxy_tells_who_guesses(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits(monkeypatch)
    keys = Keys(tmp_path, clock=SystemClock())
    proxies = Proxies.of(["127.0.0.1"])
    wary = Guard(
        PlainTextResponse("hello"),
        keys,
        clock=SystemClock(),
        operation_of=operation_of,
        proxies=proxies,
    )
    async with behind(name, wary, tmp_path, proxies=proxies) as port:

        async def asked(peer: str, token: str) -> tuple[int, bool]:
            wire = httpx.AsyncHTTPTransport(local_address=peer)
            headers = {
                "Authorization": f"Bearer {token}",
                "X-Forwarded-For": "192.0.2.1",
                "Host": "localhost",
            }
            before = waits.count
            async with httpx.AsyncClient(transport=wire, trust_env=False) as client:
                answer = await client.get(f"http://127.0.0.1:{port}/", headers=headers)
            return answer.status_code, waits.count > before

        guesses = [await asked("127.0.0.2", "wrong") for _ in range(11)]
        assert guesses == [(401, False)] * 10 + [(401, True)]
        assert await asked("127.0.0.3", "wrong") == (401, False)
        assert await asked("127.0.0.2", keys.token) == (200, False)
