"""A browser is logged in for twelve hours since its last use, as long as its token is good."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from core.world import story
from horae.core.access import SESSION_LASTS, SESSION_RENEWED
from horae.core.actor import OPERATOR, Scope, acting
from horae.core.clock import SystemClock
from horae.core.ports import LedgerError, LedgerWriteError
from horae.testing import ManualClock
from horae.web.keys import SEEN, Keys, add_token
from web.stage import COOKIE, engine, keyed, logged_in

if TYPE_CHECKING:
    from pathlib import Path

    from horae.core.access import Session
    from web.stage import Here

NOW = datetime(2026, 4, 1, 9, tzinfo=UTC)
SECOND = timedelta(seconds=1)


async def sessions_of(keys: Keys, now: datetime) -> list[Session]:
    """Return who is logged in."""
    assert keys.sessions is not None
    return await keys.sessions.all(now=now)


async def settled(keys: Keys) -> None:
    """Return when what is written beside a request is written."""
    await asyncio.gather(*keys._touching)


@story
async def test_a_session_lasts_twelve_hours_since_its_last_use(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    async with keyed(tmp_path, clock=clock) as keys:
        cookie = await keys.begin_session(OPERATOR, "Firefox")
        assert cookie is not None
        for _ in range(3):
            await clock.advance(SESSION_LASTS - SECOND)
            caller = await keys.session(cookie)
            assert caller is not None
            assert (caller.actor, caller.scopes) == ("session:operator", frozenset({Scope.ADMIN}))
            await settled(keys)
        await clock.advance(SESSION_LASTS)
        assert await keys.session(cookie) is None
        assert await sessions_of(keys, clock.now()) == []


@story
async def test_a_known_session_can_read_for_ten_minutes_while_the_ledger_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(NOW)
    async with keyed(tmp_path, clock=clock) as keys:
        cookie, other, ended = [await keys.begin_session(OPERATOR, "Firefox") for _ in range(3)]
        assert cookie is not None
        assert other is not None
        assert ended is not None
        last = await keys.session(ended)
        assert last is not None
        keys.end(OPERATOR, last.session)
        assert await keys.session(cookie) is not None

        async def away(*_: object, **__: object) -> None:
            raise LedgerWriteError("the database", "it cannot be reached", remedy="wait")

        monkeypatch.setattr(keys.sessions, "find", away)
        caller = await keys.session(cookie)
        assert caller is not None
        assert caller.scopes == {Scope.READ}
        for each in (other, ended):
            with pytest.raises(LedgerError):
                await keys.session(each)
        await clock.advance(SEEN + SECOND)
        with pytest.raises(LedgerError):
            await keys.session(cookie)


@story
async def test_a_use_is_written_at_most_once_a_minute(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    async with keyed(tmp_path, clock=clock) as keys:
        cookie = await keys.begin_session(OPERATOR, "Firefox")
        assert cookie is not None
        seen = []
        for length in (SESSION_RENEWED - SECOND, SECOND, SECOND):
            await clock.advance(length)
            caller = await keys.session(cookie)
            assert caller is not None
            await settled(keys)
            [found] = await sessions_of(keys, clock.now())
            seen.append((caller.is_renewed, found.used_at - NOW, found.expires_at - found.used_at))
        assert seen == [
            (False, timedelta(), SESSION_LASTS),
            (True, SESSION_RENEWED, SESSION_LASTS),
            (False, SESSION_RENEWED, SESSION_LASTS),
        ]


@story
async def test_a_session_cannot_be_made_up_and_a_restart_ends_none(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    async with keyed(tmp_path, clock=clock) as keys:
        cookie = await keys.begin_session(OPERATOR, "Firefox")
        assert cookie is not None
        [found] = await sessions_of(keys, NOW)
        assert cookie not in str(found), "the ledger does not know it"
        again = Keys(tmp_path, clock=clock, sessions=keys.sessions)
        assert await again.session(cookie) is not None
        for wrong in ("", cookie[:-1], cookie + "x", found.id, "é" * 9, "\udcff", "x" * 5000):
            assert await keys.session(wrong) is None
        await keys.rotate()
        assert await keys.session(cookie) is None, "what the ledger has follows from the token"


@story
async def test_a_session_ends_with_a_token_that_is_replaced_while_it_is_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with keyed(tmp_path, clock=ManualClock(NOW)) as keys:
        cookie, sessions = await keys.begin_session(OPERATOR, ""), keys.sessions
        assert cookie is not None
        assert sessions is not None
        find = sessions.find

        async def slow(digest: str, *, now: datetime) -> Session | None:
            found = await find(digest, now=now)
            await keys.rotate()
            monkeypatch.undo()
            return found

        monkeypatch.setattr(sessions, "find", slow)
        assert await keys.session(cookie) is None


async def named(here: Here, name: str, *scopes: Scope) -> dict[str, str]:
    """Return the header of a new token."""
    assert here.keys.tokens is not None
    made = await add_token(here.keys.tokens, name, frozenset(scopes), now=SystemClock().now())
    return {"Authorization": f"Bearer {made.token}"}


async def cookie_from(client: httpx.AsyncClient, link: str) -> dict[str, str]:
    """Return the header of a browser that has followed a link."""
    answer = await client.get(link, headers={"User-Agent": "Firefox/150"})
    assert answer.status_code == 200
    client.cookies.clear()
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


@story
async def test_a_session_may_do_what_the_token_may_that_it_was_begun_with(tmp_path: Path) -> None:
    async with engine(tmp_path) as here, here.on_port() as client:
        ops = await named(here, "ops", Scope.READ, Scope.RUN)
        link = (await client.post("/api/v1/login", json={}, headers=ops)).json()["url"]
        cookie = await cookie_from(client, link)
        page = here.keys.page
        run = await client.post(f"{page}/api/v1/entries/Digest/run", json={}, headers=cookie)
        assert run.status_code == 200
        answer = await client.get(f"{page}/api/v1/sessions", headers=cookie)
        assert (answer.status_code, answer.json()["detail"]) == (
            403,
            "this requires the scope admin; token ops, from the page, has only read, run",
        )
        [found] = (await here.get("sessions"))["sessions"]
        assert (found["token"], found["scopes"], found["agent"]) == (
            "ops",
            ["read", "run"],
            "Firefox/150",
        )
        assert here.front.ledger is not None
        asked = [each for each in await here.front.ledger.events_after(0) if each.receipt]
        assert asked[0].actor == "session:ops"
        # Whoever is logged in with it can let another browser in with it, and with nothing else.
        again = await client.post(f"{page}/api/v1/login", json={}, headers=cookie)
        await cookie_from(client, again.json()["url"])
        assert {each["token"] for each in (await here.get("sessions"))["sessions"]} == {"ops"}


@story
async def test_a_run_cannot_log_a_browser_in(tmp_path: Path) -> None:
    async with engine(tmp_path) as here, here.on_port():
        from horae.web.guard import new_link
        from horae.web.router import HttpRequestError

        with acting("agent:wren"), pytest.raises(HttpRequestError, match="a run cannot"):
            await new_link(here.front)


@pytest.mark.parametrize("how", ["log out", "end", "revoke", "new token"])
@story
async def test_what_is_open_in_a_session_ends_with_it(tmp_path: Path, how: str) -> None:
    async with engine(tmp_path) as here, here.on_port() as client:
        await named(here, "ops", Scope.READ)
        cookie, other = await logged_in(here.keys, "ops"), await logged_in(here.keys)
        page = here.keys.page
        found = {each["token"]: each["id"] for each in (await here.get("sessions"))["sessions"]}
        stream = client.stream("GET", f"{page}/api/v1/events/stream", headers=cookie)
        async with stream as answer:
            parts = answer.aiter_bytes()
            assert await anext(parts) == b"retry: 1000\n\n"
            match how:
                case "log out":
                    out = await client.post(f"{page}/api/v1/logout", json={}, headers=cookie)
                    assert out.json() == {"ended": [found["ops"]]}
                    gone = f"{COOKIE}=; Max-Age=0; Path=/; HttpOnly; SameSite=Strict"
                    assert out.headers["set-cookie"] == gone
                case "end":
                    await here.post(f"sessions/{found['ops']}/end")
                case "revoke":
                    await revoke(here, "ops")
                case _:
                    await here.post("token")
            async with asyncio.timeout(5):  # it ends
                with suppress(httpx.RemoteProtocolError):
                    assert [part async for part in parts if b"event" not in part] == []
        assert (await client.get(f"{page}/api/v1/status", headers=cookie)).status_code == 401
        is_left = (await client.get(f"{page}/api/v1/status", headers=other)).status_code == 200
        assert is_left == (how != "new token"), "sessions of other tokens go on"
        left = [each["token"] for each in (await here.get("sessions"))["sessions"]]
        assert left == (["operator"] if is_left else [])


async def revoke(here: Here, name: str) -> Any:
    """Revoke a token."""
    assert here.keys.tokens is not None
    assert await here.keys.tokens.revoke(name, now=SystemClock().now())
    here.keys.end(name)


@story
async def test_without_a_session_there_is_none_to_end(tmp_path: Path) -> None:
    async with engine(tmp_path) as here, here.on_port() as client:
        answer = await client.post("/api/v1/logout", json={}, headers=here.token)
        assert (answer.status_code, "no session to end" in answer.text) == (409, True)
        nobody = await here.ask("sessions/123456789abc/end")
        assert (nobody.status_code, nobody.json()["code"]) == (404, "session_not_found")
        assert (await here.post("sessions/all/end")) == {"ended": []}
        await logged_in(here.keys)
        [found] = (await here.get("sessions"))["sessions"]
        assert (await here.post("sessions/all/end")) == {"ended": [found["id"]]}


@story
async def test_a_session_that_is_renewed_gives_the_browser_its_cookie_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine(tmp_path) as here, here.on_port() as client:
        cookie, status = await logged_in(here.keys), f"{here.keys.page}/api/v1/status"
        assert "set-cookie" not in (await client.get(status, headers=cookie)).headers
        monkeypatch.setattr("horae.web.keys.SESSION_RENEWED", timedelta())
        answer = await client.get(status, headers=cookie)
        assert answer.headers["set-cookie"].startswith(f"{cookie['Cookie']}; Max-Age=43200; ")
