"""On a port nobody is answered who may not ask: not without the token, not through a browser."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from base64 import b64encode
from collections import deque
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import cycle
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.responses import PlainTextResponse, StreamingResponse

from core.world import story
from horae.core.clock import SystemClock
from horae.testing import ManualClock
from horae.web import SOCKET, guard
from horae.web.answer import HEADERS, is_plain
from horae.web.api import operation_of, operations
from horae.web.guard import Guard
from horae.web.keys import Keys, read_token
from horae.web.router import BODY, Access, Operation
from horae.web.serve import ListenError, Proxies, listen_tcp, serve_tcp, url_of
from scale import scaled
from waiting import until
from web.stage import COOKIE, JSON, Near, Waits, engine, engine_process, keyed, logged_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from starlette.types import Receive, Scope, Send

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def path_of(operation: Operation) -> str:
    """Return some path that an operation means."""
    return re.sub(r"\{\w+(:path)?\}", "1", operation.path)


def refusal(answer: httpx.Response) -> str:
    """Return the words of an error after a look at its shape."""
    said: dict[str, Any] = answer.json()
    assert "Traceback" not in answer.text
    if is_plain(answer.url.path):
        assert list(said) == ["error"]
        return str(said["error"])
    assert answer.headers["content-type"] == "application/problem+json"
    assert said["status"] == answer.status_code
    return str(said["detail"])


def test_each_route_is_found_by_its_path_and_its_methods() -> None:
    for each in operations():
        assert all(operation_of(method, path_of(each)) is each for method in each.methods)


def test_only_these_routes_need_no_token() -> None:
    found = {(each.access, each.method, each.path) for each in operations()}
    assert {each for each in found if isinstance(each[0], Access)} == {
        (Access.OPEN, "GET", "/healthz"),
        (Access.OPEN, "GET", "/health"),
        (Access.OPEN, "GET", "/login/{code}"),
        (Access.SIGNED, "POST", "/webhooks/{id}"),
        (Access.SECRET, "GET", "/calendar/{secret}.ics"),
        (Access.PUBLIC, "GET", "/_activity"),
        (Access.PUBLIC, "GET", "/_changes"),
    }


@story
async def test_without_the_token_no_route_answers(tmp_path: Path) -> None:
    async with engine(tmp_path) as here, here.on_port() as client:
        before = (await here.get("events"))["after"]
        for each in operations():
            answer = await client.request(each.method, path_of(each), json={})
            if each.scope is not None:
                assert answer.status_code == 401, (each.path, answer.text)
                assert "`horae token show`" in refusal(answer)
                assert answer.headers["www-authenticate"].startswith("Bearer")
            else:
                # Whoever comes without the right path or signature learns nothing there either.
                known = {"/healthz": {200, 503}, "/health": {200}, "/webhooks/{id}": {401}}
                assert answer.status_code in known.get(each.path, {404}), (each.path, answer.text)
        for path in ("/", "/nowhere", "/api/v1/", "/static/x.js", "/api/v1/status/", "//healthz"):
            assert (await client.get(path)).status_code == 401, path
        for method in ("PUT", "PATCH", "OPTIONS", "TRACE", "BREW"):
            assert (await client.request(method, "/api/v1/status")).status_code == 401
        assert (await here.get("events"))["after"] == before, "nothing happened"


@story
async def test_the_token_opens_every_route_by_header_and_never_by_query(tmp_path: Path) -> None:
    async with engine(tmp_path) as here, here.on_port() as client:
        status = await client.get("/api/v1/status", headers=here.token)
        assert (status.status_code, status.json()["entries"]) == (200, 4)
        run = await client.post("/api/v1/entries/Digest/run", json={}, headers=here.token)
        assert run.status_code == 200
        for each in (here.token["Authorization"].lower(), f"bearer {here.keys.token}"):
            assert (await client.get("/readyz", headers={"Authorization": each})).status_code == 200
        for query in ("token", "access_token", "authorization"):
            answer = await client.get(f"/api/v1/status?{query}={here.keys.token}")
            assert answer.status_code == 401


@story
async def test_after_ten_wrong_tokens_the_next_is_slowed_and_the_right_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits(monkeypatch)
    clock = ManualClock(datetime(2026, 4, 1, tzinfo=UTC))
    async with (
        keyed(tmp_path, clock=clock) as keys,
        asked(keys, clock=clock, host=f"{keys.names.page}:7117") as client,
    ):
        right = {"Authorization": f"Bearer {keys.token}"}

        async def is_slow(headers: Any, status: int = 401) -> bool:
            return await waits.is_delayed(client.get("/", headers=headers), status)

        wrong = [f"Bearer {keys.token[:-1]}x", "Bearer ", "Basic eDp5", "Bearer é", keys.token]
        for n in range(20):
            each = {b"Authorization": wrong[n % len(wrong)].encode()}
            assert await is_slow(each) == (n >= 10), n
        assert not await is_slow(right, 200)
        assert not await is_slow(await logged_in(keys), 200)
        assert await is_slow({"Cookie": f"{COOKIE}=1.2.3"})
        assert not await is_slow({}), "without a token nothing is guessed"
        await clock.advance(timedelta(seconds=61))
        assert not await is_slow({"Authorization": "Bearer x"})


@story
async def test_of_wrong_tokens_only_a_few_wait_and_the_right_one_passes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits(monkeypatch)
    waits.released.clear()
    keys = Keys(tmp_path, clock=SystemClock())
    right, wrong = ({"Authorization": f"Bearer {each}"} for each in (keys.token, "wrong"))
    async with asked(keys) as client:
        flood = [asyncio.create_task(client.get("/", headers=wrong)) for _ in range(40)]
        await until(lambda: sum(each.done() for each in flood) == 40 - guard.WAITING)
        assert (await client.get("/", headers=right)).status_code == 200
        assert waits.count == guard.WAITING
        waits.released.set()
        answers = await asyncio.gather(*flood)
    codes = [each.status_code for each in answers]
    assert (codes.count(401), codes.count(429)) == (10 + guard.WAITING, 30 - guard.WAITING)
    sent_away = next(each for each in answers if each.status_code == 429)
    assert (sent_away.headers["connection"], "too many" in refusal(sent_away)) == ("close", True)


@story
async def test_behind_a_trusted_proxy_each_client_is_counted_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits(monkeypatch)
    keys = Keys(tmp_path, clock=SystemClock())

    async def is_slowed(client: httpx.AsyncClient, *forwarded: str) -> bool:
        headers = [("Authorization", "Bearer wrong")]
        headers += [("X-Forwarded-For", each) for each in forwarded]
        return await waits.is_delayed(client.get("/", headers=headers))

    # The client of these tests is 127.0.0.1.
    async with asked(keys, proxies=Proxies.of(["127.0.0.1", "10.0.0.0/8"])) as client:
        for n in range(10):
            # What a client says of itself stands first and counts for nothing.
            assert not await is_slowed(client, f"192.0.2.{n}, 198.51.100.1")
        assert await is_slowed(client, "198.51.100.1")
        assert await is_slowed(client, "198.51.100.1, 10.0.0.7")
        assert await is_slowed(client, "192.0.2.9", "198.51.100.1")
        assert not await is_slowed(client, "198.51.100.2")
        assert not await is_slowed(client)
        assert not await is_slowed(client, "198.51.100.1, nonsense")
    async with asked(keys) as client:  # nobody is trusted
        slowed = [await is_slowed(client, f"198.51.100.{n}") for n in range(11)]
        assert slowed == [False] * 10 + [True]


def test_a_thousand_wrong_tokens_a_second_do_not_keep_the_right_one_waiting(
    tmp_path: Path,
) -> None:
    with engine_process(tmp_path):
        with httpx.Client(
            transport=httpx.HTTPTransport(uds=str(tmp_path / ".horae" / SOCKET), verify=False)
        ) as near:
            url = httpx.URL(near.post("http://localhost/api/v1/login", json={}).json()["url"])
            asked = {"name": "looks", "scopes": "read"}
            named = near.post("http://localhost/api/v1/tokens", json=asked).json()["token"]
        right = cycle([read_token(tmp_path / ".horae"), named])
        head = "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
        # The dearest kind: each looks like a token, so the ledger is asked about it.
        wrong = f"{head}horae_{'0' * 64}\r\n\r\n".encode()
        begun, sent, slowest, wires = time.monotonic(), 0, 0.0, deque[socket.socket](maxlen=500)
        with httpx.Client(base_url=f"http://127.0.0.1:{url.port}", trust_env=False) as client:
            while sent < scaled(3000):
                for _ in range(min(20, int((time.monotonic() - begun) * 1000) - sent)):
                    wire = socket.create_connection(("127.0.0.1", url.port or 0))
                    wire.sendall(wrong)
                    if len(wires) == wires.maxlen:
                        wires[0].close()
                    wires.append(wire)
                    sent += 1
                asked_at = time.monotonic()
                # Each on a connection of its own, as whoever comes new has it.
                headers = {"Authorization": f"Bearer {next(right)}", "Connection": "close"}
                assert client.get("/api/v1/status", headers=headers).status_code == 200
                slowest = max(slowest, time.monotonic() - asked_at)
        for wire in wires:
            wire.close()
        assert slowest < 1, slowest


@asynccontextmanager
async def asked(
    keys: Keys, *, clock: Any = None, host: str = "localhost:7117", **settings: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """Give a client before a guard with a small application behind it."""

    async def small(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            await asyncio.Event().wait()

        async def endless() -> AsyncIterator[bytes]:
            yield b"begun"
            await asyncio.Event().wait()

        answer = StreamingResponse(endless()) if scope["path"] == "/endless" else None
        await (answer or PlainTextResponse("hello"))(scope, receive, send)

    wary = Guard(small, keys, clock=clock or SystemClock(), operation_of=operation_of, **settings)
    wire = httpx.ASGITransport(wary)
    async with httpx.AsyncClient(transport=wire, base_url=f"http://{host}") as client:
        yield client


@story
async def test_only_names_of_this_machine_are_answered(tmp_path: Path) -> None:
    keys = Keys(tmp_path, clock=SystemClock(), proxied=["plans.example.org"], hosts=["10.1.2.3"])
    right = {"Authorization": f"Bearer {keys.token}"}
    async with asked(keys) as client:
        page = keys.names.page
        near = ("localhost", "LOCALHOST:1", "127.0.0.1:7117", "[::1]:9", "10.1.2.3", page.upper())
        for host in (*near, "Plans.example.org"):
            answer = await client.get("/", headers={**right, "Host": host})
            assert (answer.status_code, answer.text) == (200, "hello"), host
        for host in (
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.",
            "127.0.0.2",
            "0.0.0.0",
            "horae.localhost",
            f"{page}.",
            f"x.{page}",
        ):
            answer = await client.get("/healthz", headers={**right, "Host": host})
            assert answer.status_code == 421, host
            refusal(answer)
        for host in ("", "local host", "localhost:x", "a@localhost", "localhost/x", "x" * 9 + "é"):
            raw = [(b"Host", host.encode()), (b"Authorization", right["Authorization"].encode())]
            answer = await client.get("/", headers=raw)
            assert answer.status_code == 400, host


@story
async def test_a_host_is_named_exactly_once(tmp_path: Path) -> None:
    async with engine(tmp_path) as here, here.on_port() as client:
        port = client.base_url.port
        assert port is not None
        for hosts in (b"", b"Host: localhost\r\nHost: localhost\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /healthz HTTP/1.1\r\n" + hosts + b"Connection: close\r\n\r\n")
            said = await reader.read()
            assert said.startswith(b"HTTP/1.1 400"), said
            writer.close()


WRITES = [each for each in operations() if each.method != "GET"]


@story
async def test_no_page_of_somebody_else_changes_anything(tmp_path: Path) -> None:
    async with (
        keyed(tmp_path, clock=SystemClock()) as keys,
        asked(keys, host=(own_host := f"{keys.names.page}:7117")) as client,
    ):
        cookie = await logged_in(keys)
        foreign = [
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": f"http://{keys.names.page}"},  # another port is another page
            {"Origin": "http://127.0.0.1:7117"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        ]
        for each in WRITES:
            for headers in foreign:
                answer = await client.request(
                    each.method, path_of(each), json={}, headers={**cookie, **headers}
                )
                assert answer.status_code == 403, (each.path, headers)
                refusal(answer)
            own = {"Origin": f"http://{own_host}", "Sec-Fetch-Site": "same-origin"}
            answer = await client.request(
                each.method, path_of(each), json={}, headers={**cookie, **own}
            )
            assert answer.status_code == 200, each.path


@story
async def test_no_page_of_somebody_else_reads_anything(tmp_path: Path) -> None:
    async with (
        keyed(tmp_path, clock=SystemClock()) as keys,
        asked(keys, host=f"{keys.names.page}:7117") as client,
    ):
        cookie = await logged_in(keys)
        for site in ("cross-site", "same-site"):
            for mode in ("no-cors", "cors", "websocket"):
                headers = {**cookie, "Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}
                assert (await client.get("/api/v1/status", headers=headers)).status_code == 403
        # A person may follow a link to here.
        followed = {**cookie, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        assert (await client.get("/api/v1/status", headers=followed)).status_code == 200
        answer = await client.get("/api/v1/status", headers={**cookie, "Origin": "http://x"})
        assert not {h for h in answer.headers if h.startswith("access-control")}


@story
async def test_every_answer_keeps_browsers_at_bay(tmp_path: Path) -> None:
    assert HEADERS["Content-Security-Policy"] == CSP
    async with engine(tmp_path) as here, here.on_port() as client:
        await here.ended((await here.post("entries/Digest/run"))["receipt"])
        for path in ("/healthz", "/api/v1/status", "/nowhere", "/docs", "/api/v1/runs/1/log"):
            for headers in (here.token, {}):
                answer = await client.get(path, headers=headers)
                expected = dict(HEADERS)
                if styles := re.findall(r"<style>(.*?)</style>", answer.text, re.DOTALL):
                    digest = b64encode(sha256(styles[0].encode()).digest()).decode()
                    own = CSP.replace("style-src 'self'", f"style-src 'sha256-{digest}'")
                    expected["Content-Security-Policy"] = own
                assert bool(styles) is (path == "/docs" and bool(headers))
                for name, value in expected.items():
                    assert answer.headers[name] == value, (path, name)
                assert not {"server", "x-powered-by"} & answer.headers.keys()


@story
async def test_a_login_link_is_good_once_and_becomes_a_cookie(tmp_path: Path) -> None:
    async with engine(tmp_path) as here, here.on_port() as client:
        link = (await here.post("login"))["url"]
        assert link.startswith(f"http://{here.keys.names.page}:{client.base_url.port}/login/")
        assert (await client.head(link)).status_code == 401, "a look does not use it up"
        ahead = await client.get(link, headers={"Sec-Purpose": "prefetch"})
        assert ahead.status_code == 400
        answer = await client.get(link)
        assert answer.status_code == 200
        [cookie] = answer.headers.get_list("set-cookie")
        assert "HttpOnly; SameSite=Strict" in cookie
        assert "Path=/" in cookie
        assert here.keys.token not in cookie
        assert "Secure" not in cookie, "there is no TLS here, so it would never come back"
        status = f"{here.keys.page}/api/v1/status"
        assert (await client.get(status)).status_code == 200
        async with httpx.AsyncClient(transport=Near()) as other:
            again = await other.get(link)
            assert (again.status_code, "set-cookie" in again.headers) == (404, False)
            assert "horae open" in again.text
            assert (await other.get(status)).status_code == 401


@story
async def test_a_browser_without_a_cookie_is_told_how_to_get_in(tmp_path: Path) -> None:
    async with engine(tmp_path) as here, here.on_port() as client:
        answer = await client.get("/", headers={"Accept": "text/html,application/xhtml+xml"})
        assert (answer.status_code, answer.headers["content-type"][:9]) == (401, "text/html")
        assert "horae open" in answer.text
        cookie = {"Cookie": f"{COOKIE}=1.2.3"}
        answer = await client.get(f"{here.keys.page}/api/v1/status", headers=cookie)
        assert (answer.status_code, "Max-Age=0" in answer.headers["set-cookie"]) == (401, True)


@story
async def test_a_new_token_ends_sessions_links_and_streams(tmp_path: Path) -> None:
    async with engine(tmp_path) as here, here.on_port() as client:
        old = here.token
        link = (await here.post("login"))["url"]
        cookie = await logged_in(here.keys)
        path = (await client.get("/api/v1/calendar", headers=old)).json()["path"]
        assert (await client.get(path)).status_code == 200
        status = f"{here.keys.page}/api/v1/status"
        assert (await client.get(status, headers=cookie)).status_code == 200
        async with client.stream("GET", "/api/v1/events/stream", headers=old) as answer:
            parts = answer.aiter_bytes()
            assert await anext(parts) == b"retry: 1000\n\n"
            assert (await here.post("token")) == {"rotated": True}
            with suppress(httpx.RemoteProtocolError):
                async with asyncio.timeout(5):  # which is an error of its own
                    assert not [part async for part in parts]
        for headers in (old, cookie):
            assert (await client.get(status, headers=headers)).status_code == 401
        assert (await client.get(link)).status_code == 404
        assert (await client.get(path)).status_code == 404
        assert (await client.get("/api/v1/status", headers=here.token)).status_code == 200


@story
async def test_an_answer_begins_within_its_time_or_says_so(tmp_path: Path) -> None:
    keys = Keys(tmp_path, clock=SystemClock())
    right = {"Authorization": f"Bearer {keys.token}"}
    async with asked(keys, patience=0.05) as client:
        answer = await client.get("/slow", headers=right)
        assert (answer.status_code, "may still complete" in refusal(answer)) == (503, True)
        # What has begun may go on: whoever does not take it is cut off elsewhere.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.get("/endless", headers=right)


@story
async def test_a_web_socket_is_never_opened(tmp_path: Path) -> None:
    keys = Keys(tmp_path, clock=SystemClock())
    sent: list[Any] = []

    async def hear(message: Any) -> None:
        sent.append(message)

    async def nothing() -> Any:
        raise AssertionError("nobody is listened to")

    hello = PlainTextResponse("hello")
    wary = Guard(hello, keys, clock=SystemClock(), operation_of=operation_of)
    await wary({"type": "websocket", "path": "/", "headers": []}, nothing, hear)
    assert sent == [{"type": "websocket.close", "code": 1008}]
    async with engine(tmp_path) as here, here.on_port() as client:
        upgrade = {
            **here.token,
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Key": "x" * 22 + "==",
            "Sec-WebSocket-Version": "13",
        }
        assert (await client.get("/api/v1/status", headers=upgrade)).status_code in {200, 400}


@story
async def test_bodies_that_are_too_large_or_no_json_are_refused_everywhere(
    tmp_path: Path,
) -> None:
    deep = b"[" * 200_000
    async with engine(tmp_path) as here, here.on_port() as client:
        for each in WRITES:
            if each.method == "DELETE":
                continue
            headers = {**here.token, **JSON}
            path = path_of(each)
            large = await client.request(
                each.method, path, content=b" " * (BODY + 1), headers=headers
            )
            assert large.status_code == 413, each.path
            refusal(large)
            if each.body is None:
                continue
            for body in (b"{", b"\xff", deep, b"[]", b"null", b'"x"', b'{"a":' * 100_000):
                answer = await client.request(each.method, path, content=body, headers=headers)
                assert answer.status_code == 400, (each.path, body[:10], answer.text)
                refusal(answer)
            kind = {**here.token, "Content-Type": "text/plain"}
            answer = await client.request(
                each.method, path, content=b" " * (BODY + 1), headers=kind
            )
            assert answer.status_code == 415, "what it is comes before how large it is"
            form = {**here.token, "Content-Type": "application/x-www-form-urlencoded"}
            assert (await client.put("/healthz", headers=form)).status_code == 405


@story
async def test_a_port_that_is_taken_is_said_clearly(tmp_path: Path) -> None:
    with listen_tcp("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(ListenError, match="in use; the page and the API are not available"):
            listen_tcp("127.0.0.1", port)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "no.such.name.invalid"])
def test_beyond_this_machine_nothing_listens_unless_that_is_allowed(host: str) -> None:
    with pytest.raises(ListenError, match=r"server.remote = true|no such address"):
        listen_tcp(host, 0)


def test_both_loopbacks_and_what_is_allowed_are_listened_at() -> None:
    for host, allow in (("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)):
        with listen_tcp(host, 0, allow_remote=allow) as listener:
            assert url_of(listener).startswith("http://127.0.0.1:")
    if socket.has_ipv6:
        with listen_tcp("::1", 0) as listener:
            assert url_of(listener).startswith("http://[::1]:")


@story
async def test_a_port_answers_until_it_is_told_to_stop(tmp_path: Path) -> None:
    listener = listen_tcp("127.0.0.1", 0)
    port, stop = listener.getsockname()[1], asyncio.Event()
    serving = asyncio.create_task(serve_tcp(PlainTextResponse("hello"), listener, stop=stop))
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"http://127.0.0.1:{port}/")).text == "hello"
        stop.set()
        async with asyncio.timeout(5):
            await serving
        with pytest.raises(httpx.ConnectError):
            await client.get(f"http://127.0.0.1:{port}/")
