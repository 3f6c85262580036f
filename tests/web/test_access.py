"""Each route asks for the scope that it declares, and whoever asks is known by name."""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import asynccontextmanager, suppress
from pwd import getpwuid
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import httpx
import pytest
from starlette.responses import JSONResponse
from starlette.routing import Route

from core.world import story
from horae.client import Client
from horae.core.access import Tokens
from horae.core.actor import Scope, allows, current_actor, scope_words
from horae.core.clock import SystemClock
from horae.core.ports import LedgerBusyError
from horae.errors import HoraeError
from horae.store.sqlite import SqliteLedger
from horae.web import guard
from horae.web.api import FORMS, operation_of, operations
from horae.web.guard import Guard
from horae.web.keys import Keys, add_token
from horae.web.page.routes import routes
from horae.web.router import Access, Routes
from web.stage import engine, engine_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from starlette.types import Receive, Scope as Incoming, Send

    from web.stage import Here


async def made(tokens: Tokens, name: str, *scopes: Scope) -> dict[str, str]:
    """Return the header of a new token."""
    token = await add_token(tokens, name, frozenset(scopes), now=SystemClock().now())
    return {"Authorization": f"Bearer {token.token}"}


async def told(scope: Incoming, receive: Receive, send: Send) -> None:
    """Say who is acting, also in a thread and in a task of its own."""
    actors = {
        current_actor(),
        await asyncio.to_thread(current_actor),
        await asyncio.create_task(asyncio.sleep(0, current_actor())),
    }
    await JSONResponse(sorted(actors))(scope, receive, send)


@asynccontextmanager
async def asking(keys: Keys) -> AsyncIterator[httpx.AsyncClient]:
    """Give a client of the guard, behind which is an application that says who is acting."""
    wary = Guard(told, keys, clock=SystemClock(), operation_of=operation_of)
    wire = httpx.ASGITransport(app=wary)
    async with httpx.AsyncClient(transport=wire, base_url="http://localhost") as client:
        yield client


@asynccontextmanager
async def tokens_of(folder: Path) -> AsyncIterator[tuple[Tokens, Keys]]:
    """Give the tokens of an empty ledger, and keys that know them."""
    ledger = await SqliteLedger.in_memory()
    tokens = Tokens(ledger)
    yield tokens, Keys(folder, clock=SystemClock(), tokens=tokens)
    await ledger.close()


def path_of(path: str) -> str:
    """Return some path that a route means."""
    return re.sub(r"\{\w+(:path)?\}", "1", path)


@story
async def test_every_route_asks_for_the_scope_that_it_declares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "SLOWED", 0.0)
    async with engine(tmp_path) as here:
        found = [*operations(), *routes(here.front)]
    walked = [(each.method, each.path, each.access) for each in operations()]
    walked += [
        (method, each.path, Scope.READ)  # pages are looked at
        for each in found
        if isinstance(each, Route) and not each.path.startswith(f"{FORMS}/")
        for method in sorted((each.methods or set()) - {"HEAD"})
    ]
    walked += [  # a form asks for the scope of the route that it stands for
        ("POST", FORMS + path, access)
        for method, path, access in walked
        if method in {"POST", "PUT"}
    ]
    assert len(walked) >= len(found) > len(operations())

    async with tokens_of(tmp_path) as (tokens, keys), asking(keys) as client:
        headers = {each: await made(tokens, each.value, each) for each in Scope}
        gone = await made(tokens, "gone", Scope.ADMIN)
        assert await tokens.revoke("gone", now=SystemClock().now())
        for method, path, access in walked:
            place = path_of(path)
            for held, header in headers.items():
                answer = await client.request(method, place, headers=header)
                is_open = isinstance(access, Access)
                may = not isinstance(access, Scope) or allows({held}, access)
                assert answer.status_code == (200 if may else 403), (method, path, held)
                if may:
                    assert answer.json() == (["engine"] if is_open else [f"token:{held}"])
            for header in ({}, gone, {"Authorization": "Bearer horae_" + "0" * 64}):
                answer = await client.request(method, place, headers=header)
                expected = 200 if isinstance(access, Access) else 401
                assert answer.status_code == expected, (method, path, header)


def test_a_route_that_declares_no_scope_cannot_be_written() -> None:
    with pytest.raises(TypeError):
        Routes().get("/api/v1/new")(told)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="GET /api/v1/new declares no scope"):
        Routes().get("/api/v1/new", told)  # type: ignore[arg-type]


@story
async def test_a_missing_scope_is_named_and_so_is_the_token(tmp_path: Path) -> None:
    async with tokens_of(tmp_path) as (tokens, keys), asking(keys) as client:
        header = await made(tokens, "looks", Scope.READ, Scope.EDIT)
        answer = await client.post("/api/v1/entries/1/run", headers=header)
        said: dict[str, Any] = answer.json()
        assert (answer.status_code, said["code"]) == (403, "missing_scope")
        assert said["detail"] == "this requires the scope run; token looks has only read, edit"
        assert said["facts"]["scopes"] == scope_words({Scope.READ, Scope.EDIT})
        assert answer.headers["www-authenticate"] == (
            'Bearer error="insufficient_scope", scope="run"'
        )


@story
async def test_a_token_counts_only_whole_and_only_once(tmp_path: Path) -> None:
    async with tokens_of(tmp_path) as (tokens, keys), asking(keys) as client:
        header = await made(tokens, "ops", Scope.READ)
        text = header["Authorization"].removeprefix("Bearer ")
        for wrong in (text[:-1], text + "0", text.upper(), text[6:], "horae_", f"x{text}"):
            answer = await client.get(
                "/api/v1/status", headers={"Authorization": f"Bearer {wrong}"}
            )
            assert answer.status_code == 401, wrong
        twice = [
            ("Authorization", f"Bearer {text}"),
            ("Authorization", f"Bearer {keys.token}"),
        ]
        assert (await client.get("/api/v1/status", headers=twice)).status_code == 401
        both = [("Authorization", f"Bearer {text}, Bearer {keys.token}")]
        assert (await client.get("/api/v1/status", headers=both)).status_code == 401
        operator = {"Authorization": f"Bearer {keys.token}"}
        assert (await client.get("/api/v1/status", headers=operator)).json() == ["token:operator"]


@story
async def test_nobody_says_by_a_header_who_they_are(tmp_path: Path) -> None:
    async with tokens_of(tmp_path) as (tokens, keys), asking(keys) as client:
        header = await made(tokens, "looks", Scope.READ)
        forged = {**header, "Horae-Actor": "cli:root", "Horae-Scopes": "admin", "Horae-Run": "1"}
        forged["X-Horae-From"] = "east"
        assert (await client.get("/api/v1/status", headers=forged)).json() == ["token:looks"]
        assert (await client.post("/api/v1/prune", headers=forged)).status_code == 403
        del forged["Authorization"]
        assert (await client.get("/api/v1/status", headers=forged)).status_code == 401
        # Without a cluster there is no secret of nodes, and nothing is equal to it.
        for empty in ("Bearer ", "Bearer"):
            forged["Authorization"] = empty
            assert (await client.get("/api/v1/status", headers=forged)).status_code == 401


@story
async def test_a_node_says_for_whom_it_asks_and_what_they_may(tmp_path: Path) -> None:
    keys = Keys(tmp_path, clock=SystemClock(), node="ab" * 32)
    node = {"Authorization": f"Bearer {keys.node}"}
    said = {**node, "Horae-Actor": "session:n%C3%A9 w", "Horae-Scopes": "read,run"}
    async with asking(keys) as client:
        assert (await client.get("/api/v1/status", headers=said)).json() == ["session:né w"]
        assert (await client.post("/api/v1/prune", headers=said)).status_code == 403
        assert (await client.get("/api/v1/status", headers=node)).status_code == 401
        twice = [*said.items(), ("Horae-Scopes", "admin")]
        assert (await client.post("/api/v1/prune", headers=twice)).status_code == 401
        for odd in ("", "all", "read,,admin"):
            wrong = {**said, "Horae-Scopes": odd}
            assert (await client.get("/api/v1/status", headers=wrong)).status_code == 401, odd


@story
async def test_while_the_ledger_cannot_be_read_only_the_operator_is_known(tmp_path: Path) -> None:
    async with tokens_of(tmp_path) as (tokens, keys), asking(keys) as client:
        header = await made(tokens, "looks", Scope.READ)
        busy = LedgerBusyError("ledger.db", "locked", remedy="wait")
        with patch.object(tokens, "find", side_effect=busy):
            answer = await client.get("/api/v1/status", headers=header)
        assert (answer.status_code, "try again" in answer.json()["detail"]) == (503, True)
        operator = {"Authorization": f"Bearer {keys.token}"}
        assert (await client.get("/api/v1/status", headers=operator)).status_code == 200


@story
async def test_the_last_use_of_a_token_is_written_down(tmp_path: Path) -> None:
    async with tokens_of(tmp_path) as (tokens, keys), asking(keys) as client:
        header = await made(tokens, "looks", Scope.READ)
        began_at = SystemClock().now()
        assert (await client.get("/api/v1/status", headers=header)).status_code == 200
        await asyncio.gather(*keys._touching)
        [looks] = await tokens.all()
        assert looks.used_at is not None
        assert looks.used_at >= began_at


@story
async def test_a_revoked_token_ends_the_stream_that_is_open_with_it(tmp_path: Path) -> None:
    async with engine(tmp_path) as here, here.on_port() as client:
        tokens = here.keys.tokens
        assert tokens is not None
        gone, kept = [await made(tokens, name, Scope.READ) for name in ("gone", "kept")]
        path = "/api/v1/events/stream"
        async with (
            client.stream("GET", path, headers=gone) as ending,
            client.stream("GET", path, headers=kept) as going,
        ):
            heard, other = ending.aiter_raw(), going.aiter_raw()
            assert (await anext(heard), await anext(other)) == (b"retry: 1000\n\n",) * 2
            await here.post("tokens/gone/revoke")
            async with asyncio.timeout(2):
                with suppress(httpx.RemoteProtocolError):
                    async for _ in heard:
                        pass
            await here.post("entries/Digest/run")
            async with asyncio.timeout(2):
                assert await anext(other), "the other token's stream goes on"
        assert (await client.get("/api/v1/status", headers=gone)).status_code == 401


@story
async def test_on_the_socket_a_user_acts_or_the_agent_whose_run_it_is(tmp_path: Path) -> None:
    user = f"cli:{getpwuid(os.getuid()).pw_name}"

    async def actor(here: Here, **headers: str) -> str:
        """Return who asked for a run, as its event says."""
        path = "/api/v1/entries/Digest/run"
        answer = await here.client.post(path, json={}, headers=headers)
        assert answer.status_code == 200, answer.text
        number = answer.json()["receipt"]
        events = (await here.get("events", limit=1000))["events"]
        return next(str(each["actor"]) for each in events if each["receipt"] == number)

    async with engine(tmp_path) as here:
        assert await actor(here) == user
        run = await here.running("Long")
        assert await actor(here, **{"Horae-Run": str(run)}) == "agent:Long"
        for verb in ("approve", "deny"):
            path, by = f"/api/v1/approvals/1/{verb}", {"Horae-Run": str(run)}
            refused = await here.client.post(path, json={}, headers=by)
            assert (refused.status_code, refused.json()["code"]) == (403, "approver")
        assert await actor(here, **{"Horae-Actor": "agent:x", "Horae-Scopes": "read"}) == user
        for odd in ("0", "-1", "x", "9" * 30, f"{run}, {run}"):
            assert await actor(here, **{"Horae-Run": odd}) == user
        await here.post(f"runs/{run}/cancel")
        await here.ended((await here.get(f"runs/{run}"))["receipt"])
        assert await actor(here, **{"Horae-Run": str(run)}) == user, "it is over"


@story
async def test_on_the_socket_a_token_that_is_sent_counts_instead(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        assert here.keys.tokens is not None
        header = await made(here.keys.tokens, "looks", Scope.READ)
        run = "/api/v1/entries/Digest/run"
        assert (await here.client.get("/api/v1/status", headers=header)).status_code == 200
        answer = await here.client.post(run, json={}, headers=header)
        assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope")
        wrong = {"Authorization": "Bearer wrong"}
        answer = await here.client.get("/api/v1/status", headers=wrong)
        assert (answer.status_code, "HORAE_TOKEN" in answer.json()["detail"]) == (401, True)


@pytest.mark.parametrize("is_cancelled", [False, True])
@story
async def test_what_a_revoked_token_asked_for_is_ended_and_refused(
    tmp_path: Path, is_cancelled: bool
) -> None:
    async def work(scope: Incoming, receive: Receive, send: Send) -> None:
        keys.end("ops")
        while (await receive())["type"] != "http.disconnect":
            pass
        if is_cancelled:
            raise asyncio.CancelledError

    async with tokens_of(tmp_path) as (tokens, keys):
        header = await made(tokens, "ops", Scope.EDIT)
        wary = Guard(work, keys, clock=SystemClock(), operation_of=operation_of)
        wire = httpx.ASGITransport(app=wary)
        async with httpx.AsyncClient(transport=wire, base_url="http://localhost") as client:
            answer = await client.post("/api/workflow", json={}, headers=header)
        assert (answer.status_code, "revoked during the request" in answer.text) == (401, True)


def test_a_command_sends_the_token_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine_process(tmp_path):
        client = Client(tmp_path / ".horae")
        token = client.add_token("looks", scopes="read").token
        monkeypatch.setenv("HORAE_TOKEN", f"{token}\n")
        monkeypatch.setenv("HORAE_DATA", str(tmp_path / "other"))
        client.rescan()  # the token is of another engine
        monkeypatch.setenv("HORAE_DATA", str(tmp_path / ".horae"))
        assert client.status().engine.running
        with pytest.raises(HoraeError, match="requires the scope run; token looks has only read"):
            client.rescan()
        monkeypatch.setenv("HORAE_TOKEN", "wrong")
        with pytest.raises(HoraeError, match="HORAE_TOKEN is wrong or revoked"):
            client.rescan("x" * 5_000_000)  # refused before all has come
