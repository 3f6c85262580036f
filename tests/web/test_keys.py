"""The token is its owner's alone, and all that lets somebody in follows from it."""

from __future__ import annotations

import asyncio
import os
import stat
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import httpx
import pytest
from click.testing import CliRunner

from core.world import story
from horae.cli.token import open_, token
from horae.errors import HoraeError
from horae.testing import ManualClock
from horae.web.keys import CODE, MOST_CODES, Keys, TokenFileError, read_token
from web.stage import NearSync, engine, engine_process

if TYPE_CHECKING:
    from pathlib import Path

    from click import Command
    from click.testing import Result

NOW = datetime(2026, 4, 1, 9, tzinfo=UTC)


def test_the_first_start_makes_a_token_that_only_its_owner_reads(tmp_path: Path) -> None:
    os.umask(old := os.umask(0))
    try:
        keys = Keys(tmp_path, clock=ManualClock(NOW))
    finally:
        os.umask(old)
    file = tmp_path / "token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(bytes.fromhex(keys.token)) == 32
    assert {each.name for each in tmp_path.iterdir()} == {"host", "token"}, "nothing else is left"
    assert Keys(tmp_path, clock=ManualClock(NOW)).token == keys.token
    assert keys.is_token(keys.token)
    for wrong in ("", keys.token[:-1], f"{keys.token.upper()}x", "\udcff"):
        assert not keys.is_token(wrong)


def test_a_token_that_others_could_have_read_or_written_is_refused(tmp_path: Path) -> None:
    Keys(tmp_path, clock=ManualClock(NOW))
    file = tmp_path / "token"
    file.chmod(0o640)
    with pytest.raises(TokenFileError, match="other users can read it; `horae token new`"):
        read_token(tmp_path)
    file.chmod(0o600)
    for text in ("", "x" * 64, "ab" * 31, "ab" * 33):
        file.write_text(text)
        with pytest.raises(TokenFileError, match="contains no valid token"):
            read_token(tmp_path)
    file.rename(tmp_path / "other")
    file.symlink_to(tmp_path / "other")
    with pytest.raises(TokenFileError):
        read_token(tmp_path)
    file.unlink()
    os.mkfifo(file, 0o600)
    with pytest.raises(TokenFileError, match="not a regular file"):
        read_token(tmp_path)


@story
async def test_a_new_token_replaces_a_link_and_not_what_it_leads_to(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("precious")
    data = tmp_path / "data"
    data.mkdir()
    keys = Keys(data, clock=ManualClock(NOW))
    (data / "token").unlink()
    (data / "token").symlink_to(other)
    await keys.rotate()
    assert other.read_text() == "precious"
    assert read_token(data) == keys.token


@story
async def test_a_link_is_good_once_and_for_ten_minutes(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    keys = Keys(tmp_path, clock=clock)
    code, other = keys.new_code(), keys.new_code()
    assert code != other
    assert keys.take_code(code)
    assert not keys.take_code(code)
    assert not keys.take_code("")
    assert not keys.take_code("\ud800")
    await clock.advance(CODE)
    assert not keys.take_code(other)
    # However often somebody asks for one, only so many are good.
    first = keys.new_code()
    made = [keys.new_code() for _ in range(MOST_CODES)]
    assert not keys.take_code(first)
    assert all(keys.take_code(each) for each in made)


def test_a_new_token_ends_all_that_follows_from_the_old_one(tmp_path: Path) -> None:
    async def told() -> None:
        keys = Keys(tmp_path, clock=ManualClock(NOW))
        old, codes, path = keys.token, [keys.new_code(), keys.new_code("ops")], keys.calendar
        ended = [keys.ended_of(), keys.ended_of("ops", "1234")]
        await keys.rotate()
        assert all(each.is_set() for each in ended)
        assert not keys.ended_of().is_set()
        assert not keys.is_token(old)
        assert [keys.take_code(each) for each in codes] == [None, None]
        assert not keys.is_calendar(path)
        assert read_token(tmp_path) == keys.token

    asyncio.run(told())


def called(command: Command, *args: str) -> Result:
    """Return what a command says."""
    return CliRunner().invoke(command, args, standalone_mode=False)


def test_commands_show_change_and_use_the_token_of_a_running_engine(tmp_path: Path) -> None:
    root = ("--root", str(tmp_path))
    with engine_process(tmp_path), httpx.Client(transport=NearSync()) as client:
        shown = called(token, "show", *root).output.strip()
        link = called(open_, "--print", *root).output.strip()
        assert client.get(link).status_code == 200, "it is good"
        assert client.get(link).status_code == 404, "once"
        calendar = called(open_, "--calendar", *root).output.strip()
        assert client.get(calendar).text.startswith("BEGIN:VCALENDAR")
        status = link.partition("/login/")[0] + "/api/v1/status"
        assert client.get(status).status_code == 200
        assert "the old one is no longer valid" in called(token, "new", *root).output
        assert client.get(status).status_code == 401
        changed = called(token, "show", *root).output.strip()
        assert changed != shown
        for given, code in ((changed, 200), (shown, 401)):
            answer = client.get(status, headers={"Authorization": f"Bearer {given}"})
            assert answer.status_code == code


@story
async def test_an_engine_that_listens_at_no_port_has_no_link(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        answer = await here.ask("login")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_offered")
        assert "listens on no port" in answer.json()["detail"]


def test_without_an_engine_a_new_token_waits_for_the_next_one(tmp_path: Path) -> None:
    root = ("--root", str(tmp_path))
    for args in (["new"], ["show"]):
        missing = called(token, *args, *root).exception
        assert isinstance(missing, HoraeError)
        assert missing.exit_code == 4
    (tmp_path / ".horae").mkdir()
    assert isinstance(called(token, "show", *root).exception, TokenFileError)
    assert called(token, "new", *root).exception is None
    shown = called(token, "show", *root).output.strip()
    assert Keys(tmp_path / ".horae", clock=ManualClock(NOW)).token == shown
    refused = called(open_, *root).exception
    assert isinstance(refused, HoraeError)
    assert (refused.exit_code, "start it with `horae up`" in str(refused)) == (3, True)
