"""`horae.connect`: what a program asks of an engine, on this machine and elsewhere."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import pytest

import horae
from horae.client import EngineError, EngineUnreachableError, ServerUrlError
from horae.core.receipt import FINAL
from waiting import wait_until
from web.stage import engine_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from horae.client import Client
    from horae.core.views import ReceiptDetail


class Home(NamedTuple):
    root: Path
    url: str
    token: str


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    root = tmp_path_factory.mktemp("home")
    with engine_process(root):
        client = horae.connect(root)
        port = urlsplit(client.calendar().url).port
        token = client.add_token("ops", scopes="read,run,edit").token
        yield Home(root, f"http://127.0.0.1:{port}/", token)


@pytest.fixture(params=["root", "data", "url"])
def client(home: Home, request: pytest.FixtureRequest) -> Client:
    if request.param == "url":
        return horae.connect(home.url, token=home.token)
    return horae.connect(home.root / (".horae" if request.param == "data" else ""))


def ended(client: Client, receipt: int) -> ReceiptDetail:
    return wait_until(lambda: [told for told in [client.receipt(receipt)] if told.status in FINAL])[
        0
    ]


def test_a_run_is_requested_followed_and_read(client: Client) -> None:
    asked = client.run_now("Digest", note="from a program")
    assert (asked.title, asked.note) == ("Digest", "from a program")
    told = ended(client, asked.receipt)
    assert told.status == "done"
    [attempt] = told.runs
    assert client.run(attempt.run).receipt == asked.receipt
    assert b"".join(client.log(attempt.run)) == b"all the news\n"
    listed = client.history("Digest", statuses=("done",), limit=1).receipts
    assert [each.receipt for each in listed] == [asked.receipt]
    assert asked.receipt in {each.receipt for each in client.why("Digest").answers}


def test_answers_are_structs_with_times(client: Client) -> None:
    status = client.status()
    assert status.engine.running
    assert status.at.tzinfo is not None
    digest = client.entry("digest-1")
    assert digest in client.entries().entries
    assert client.events(limit=1).events[0].event == 1


def test_the_same_key_is_one_run(client: Client) -> None:
    key = f"deploy {id(client)}"
    first = client.run_now("Soil/water & light", idempotency_key=key)
    again = client.run_now("Soil/water & light", idempotency_key=key)
    assert first.receipt == again.receipt


def test_an_entry_is_paused_until_a_time_and_resumed(client: Client) -> None:
    end = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)
    paused = client.pause("Digest", note="holiday", until=end)
    assert paused.pause is not None
    assert (paused.pause.until, paused.pause.note) == (end, "holiday")
    assert client.resume("Digest").changed
    paused = client.pause("Digest", until=timedelta(minutes=90))
    assert paused.pause is not None
    assert paused.pause.until == paused.pause.at + timedelta(minutes=90)
    assert client.resume("Digest").changed


def test_an_error_of_the_engine_keeps_its_code_and_its_facts(client: Client) -> None:
    with pytest.raises(EngineError) as caught:
        client.entry("Digets")
    assert (caught.value.code, caught.value.exit_code) == ("entry_not_found", 4)
    assert caught.value.data()["facts"]["near"] == ["Digest"]


def test_a_token_may_do_what_its_scopes_allow(home: Home) -> None:
    with pytest.raises(
        EngineError, match="requires the scope admin; token ops has only read, run, edit"
    ):
        horae.connect(home.url, token=home.token).prune(before=datetime.now(UTC))
    with pytest.raises(EngineError) as caught:
        horae.connect(home.url, token="wrong").status()
    assert caught.value.exit_code == 7


def test_the_token_of_the_environment_is_used_at_a_url(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HORAE_TOKEN", f"{home.token}\n")
    assert horae.connect(home.url).status().engine.running


def test_calls_are_awaited_side_by_side(home: Home) -> None:
    async def asking() -> None:
        client = horae.connect_async(home.root)
        status, page = await asyncio.gather(client.status(), client.entries())
        assert status.entries <= len(page.entries)
        asked = await client.run_now("Digest")
        while not (told := await client.receipt(asked.receipt)).runs:
            await asyncio.sleep(0.02)
        run = told.runs[0].run
        assert b"".join([part async for part in client.log(run, follow=True)]) == b"all the news\n"
        with pytest.raises(EngineError):
            await client.triggers.get("nothing")

    asyncio.run(asking())


def test_triggers_are_made_and_removed(home: Home) -> None:
    client = horae.connect(home.url, token=home.token)
    client.triggers.create_agent({"name": "worker", "command": ["cat"]})
    said = {"name": "report", "agent": "worker", "prompt_template": "Go."}
    made = client.triggers.create({**said, "trigger_config": {"type": "manual"}})
    assert client.triggers.get("report").id == made.id
    assert client.triggers.update("report", {"enabled": False}).enabled is False
    assert client.triggers.approvals() == []
    assert client.triggers.delete("report").name == "report"
    assert client.triggers.delete_agent("worker").name == "worker"


def test_where_no_engine_runs_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(EngineUnreachableError, match="no engine is running; start it with"):
        horae.connect(tmp_path).status()
    with pytest.raises(EngineUnreachableError, match="no engine answers"):
        horae.connect("http://127.0.0.1:1", token="").status()


@pytest.mark.parametrize(
    "url", ["ftp://host", "http://", "http://host:x", "http://me:key@host", "http://host/path?a=b"]
)
def test_what_is_no_address_of_an_engine_is_refused(url: str) -> None:
    with pytest.raises(ServerUrlError, match="write it like http://"):
        horae.connect(url)
