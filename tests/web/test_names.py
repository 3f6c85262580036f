"""The page has a name that nobody can guess, and under no other does a cookie count."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Any

import httpx

from core.world import story
from horae.config import load
from horae.core.access import Sessions, Tokens
from horae.core.clock import SystemClock
from horae.store.sqlite import SqliteLedger
from horae.web.api import operations
from horae.web.app import keys_of
from horae.web.keys import BITS, Keys
from web.stage import COOKIE, Near, engine
from web.test_guard import path_of

if TYPE_CHECKING:
    from pathlib import Path

    from horae.web.keys import Names

PROXIED = "plans.example.org"


def keys_in(directory: Path, **parts: Any) -> Keys:
    """Return the keys of a data directory, as the next start finds them."""
    directory.mkdir(exist_ok=True)
    return Keys(directory, clock=SystemClock(), proxied=[PROXIED], **parts)


@story
async def test_each_data_directory_has_a_name_of_its_own_and_keeps_it(tmp_path: Path) -> None:
    keys = keys_in(tmp_path / "one")
    label, _, rest = keys.names.page.partition(".")
    assert (rest, len(bytes.fromhex(label.removeprefix("horae-"))) * 8) == ("localhost", BITS)
    assert BITS >= 64
    assert stat.S_IMODE((tmp_path / "one" / "host").stat().st_mode) == 0o600
    await keys.rotate()
    assert keys_in(tmp_path / "one").names == keys.names, "after a restart and with a new token"
    assert keys_in(tmp_path / "two").names.page != keys.names.page


def test_a_name_that_others_could_have_read_is_replaced(tmp_path: Path) -> None:
    page = keys_in(tmp_path).names.page
    (tmp_path / "host").chmod(0o644)
    changed = keys_in(tmp_path).names.page
    assert changed != page
    (tmp_path / "host").write_text("nonsense")
    assert keys_in(tmp_path).names.page not in {page, changed}


@story
async def test_a_cookie_counts_under_the_names_of_the_page_alone(tmp_path: Path) -> None:
    async with engine(tmp_path, keys=keys_in) as here, here.on_port() as client:
        names, session = here.keys.names, await here.keys.begin_session("operator", "")
        proxied = names.cookie(PROXIED) or ""
        assert proxied.startswith("__Host-horae-")
        for host in (names.page, PROXIED, "localhost", "127.0.0.1", "[::1]"):
            for cookie in ("horae-session", proxied):
                headers = {"Host": f"{host}:1234", "Cookie": f"{cookie}={session}"}
                answer = await client.get("/api/v1/status", headers=headers)
                assert (answer.status_code == 200) == (names.cookie(host) == cookie), headers
                assert answer.status_code in {200, 401}
            bearer = {**here.token, "Host": host}
            assert (await client.get("/api/v1/status", headers=bearer)).status_code == 200
            path = (await here.get("calendar"))["path"]
            assert (await client.get(path, headers={"Host": host})).status_code == 200


@story
async def test_a_link_logs_in_under_the_names_of_the_page_alone(tmp_path: Path) -> None:
    async with engine(tmp_path, keys=keys_in) as here, here.on_port() as client:
        names = here.keys.names
        for good in (names.page, PROXIED):
            path = httpx.URL((await here.post("login"))["url"]).path
            for host in ("localhost", "127.0.0.1", "[::1]"):
                answer = await client.get(path, headers={"Host": host})
                assert (answer.status_code, "set-cookie" in answer.headers) == (404, False)
            answer = await client.get(path, headers={"Host": f"{good}:1234"})
            assert answer.status_code == 200, "it was not used up"
            cookie = answer.headers["set-cookie"]
            assert cookie.startswith(f"{names.cookie(good)}=")
            # Without a domain, and behind a proxy never without TLS.
            parts = {"Path=/", "HttpOnly", "SameSite=Strict", *({"Secure"} & {*cookie.split("; ")})}
            assert {*cookie.split("; ")[2:]} == parts
            assert ("Secure" in parts) == (good == PROXIED)


@story
async def test_nobody_without_a_token_is_told_the_name(tmp_path: Path) -> None:
    async with engine(tmp_path, keys=keys_in) as here, here.on_port() as client:
        secret = here.keys.names.page.partition(".")[0]
        for host in ("localhost", PROXIED, "horae.localhost"):
            for each in operations():
                headers = {"Host": host, "Accept": "text/html", "Cookie": f"{COOKIE}=x"}
                answer = await client.request(each.method, path_of(each), json={}, headers=headers)
                assert secret not in f"{answer.headers}{answer.text}", each.path
                assert "location" not in answer.headers


@story
async def test_a_program_is_given_an_address_that_every_program_finds(tmp_path: Path) -> None:
    async with engine(tmp_path, keys=keys_in) as here, here.on_port() as client:
        said = await here.get("calendar")
        assert said["url"] == f"{client.base_url}{said['path']}".replace("//cal", "/cal")
        async with httpx.AsyncClient(transport=Near()) as other:
            assert (await other.get(f"{here.keys.page}{said['path']}")).status_code == 200


@story
async def test_the_page_is_where_a_browser_finds_it(tmp_path: Path) -> None:
    ledger = await SqliteLedger.in_memory()

    def page(at: str, url: str | None = None) -> tuple[str, Names]:
        config = load(tmp_path, environ={}, flags={} if url is None else {"server.url": url})
        access = {"tokens": Tokens(ledger), "sessions": Sessions(ledger)}
        keys = keys_of(config, tmp_path, clock=SystemClock(), **access)
        keys.url = at
        return keys.page.replace(keys.names.page, "PAGE"), keys.names

    assert page("http://127.0.0.1:7117")[0] == page("http://[::1]:7117")[0] == "http://PAGE:7117"
    assert page("http://192.0.2.7:7117")[0] == "", "browsers look for names below localhost here"
    found, names = page("http://192.0.2.7:7117", url="https://Plans.example.org:8443/")
    assert found == "https://Plans.example.org:8443"
    assert names.cookie("plans.example.org") is not None
    assert page("", url="https://plans.example.org")[0] == "", "it listens nowhere"
    await ledger.close()
