"""`horae token`: programs get tokens of their own, with and without an engine."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
from click.testing import CliRunner

from horae.cli.token import open_, token
from horae.errors import HoraeError
from web.stage import NearSync, engine_process

if TYPE_CHECKING:
    from pathlib import Path


def called(root: Path, *args: str) -> str:
    """Return what a command prints, or the code of its error."""
    result = CliRunner().invoke(token, [*args, "--root", str(root)], standalone_mode=False)
    if isinstance(result.exception, HoraeError):
        return result.exception.code
    assert result.exception is None, result.exception
    return result.stdout.strip()


def listed(root: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(called(root, "list", "--json"))
    return found


def test_a_token_is_shown_once_and_works_until_it_is_revoked(tmp_path: Path) -> None:
    assert called(tmp_path, "add", "ops", "--scope", "read") == "no_ledger"
    with engine_process(tmp_path), httpx.Client(trust_env=False) as client:
        text = called(tmp_path, "add", "ops", "--scope", "run", "--scope", "read")
        assert text.startswith("horae_")
        assert called(tmp_path, "add", "ops", "--scope", "read") == "token_taken"
        assert called(tmp_path, "add", "operator", "--scope", "read") == "token_name"
        assert called(tmp_path, "add", "a/../b", "--scope", "read") == "token_name"
        assert called(tmp_path, "add", "new", "--scope", "read,write") == "token_scope"
        [operator, ops] = listed(tmp_path)
        assert (operator["name"], operator["scopes"]) == ("operator", ["admin"])
        assert (ops["name"], ops["scopes"], ops["used_at"]) == ("ops", ["read", "run"], None)

        link = CliRunner().invoke(open_, ["--calendar", "--root", str(tmp_path)]).output
        api = f"http://127.0.0.1:{urlsplit(link).port}/api/v1"
        headers = {"Authorization": f"Bearer {text}"}
        assert client.get(f"{api}/status", headers=headers).status_code == 200
        assert client.post(f"{api}/prune", json={}, headers=headers).status_code == 403
        assert called(tmp_path, "revoke", "ops") == "token ops is revoked"
        assert client.get(f"{api}/status", headers=headers).status_code == 401
        assert called(tmp_path, "revoke", "ops") == called(tmp_path, "revoke", "operator")
        kept = called(tmp_path, "add", "kept", "--scope", "read,run")

    # Without an engine, too.
    assert called(tmp_path, "revoke", "nobody") == "no_token"
    assert called(tmp_path, "revoke", "kept") == "token kept is revoked"
    later = json.loads(called(tmp_path, "add", "kept", "--scope", "admin", "--json"))
    assert (later["token"] != kept, later["scopes"]) == (True, ["admin"])
    assert re.search(
        r"kept +admin +20\d\d-\d\d-\d\d \w+ \d\d:\d\d(:\d\d)? UTC  never", called(tmp_path, "list")
    )
    stored = b"".join(each.read_bytes() for each in (tmp_path / ".horae").glob("ledger.db*"))
    assert later["token"].removeprefix("horae_").encode() not in stored


def test_sessions_are_listed_and_ended_with_and_without_an_engine(tmp_path: Path) -> None:
    def ids() -> list[str]:
        return [each["id"] for each in json.loads(called(tmp_path, "sessions", "--json"))]

    with engine_process(tmp_path), httpx.Client(transport=NearSync()) as client:
        assert called(tmp_path, "sessions") == "no browser is logged in"
        status = ""
        for agent in (b"Firefox \x9b2J", b"Chromium"):
            link = CliRunner().invoke(open_, ["--print", "--root", str(tmp_path)]).output.strip()
            assert client.get(link, headers={b"User-Agent": agent}).status_code == 200
            status = link.partition("/login/")[0] + "/api/v1/status"
        assert client.get(status).status_code == 200
        shown = called(tmp_path, "sessions")
        assert ("operator" in shown, "Chromium" in shown, "\x9b" in shown) == (True, True, False)
        last, first = ids()
        assert called(tmp_path, "end-session", last) == "1 session ended"
        assert client.get(status).status_code == 401, "it was that of the last link"
        assert called(tmp_path, "end-session", last) == "session_not_found"
        assert ids() == [first]

    assert called(tmp_path, "end-session", last) == "session_not_found"
    assert json.loads(called(tmp_path, "end-session", "all", "--json")) == {"ended": [first]}
    assert called(tmp_path, "end-session", "all") == "0 sessions ended"
    assert ids() == []
