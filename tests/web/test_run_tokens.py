"""A run that asks for it has a token of its own, as long as it goes on and no longer."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import httpx
import pytest

from core.world import story
from horae.app import App, build, keep
from horae.config import load
from horae.core.access import RunTokens
from horae.core.agent import AgentError, parse_agent
from horae.core.entry import Policy, PolicyError, policy_of
from horae.core.receipt import Status
from horae.sources.board.rules import complaints
from horae.sources.board.task import parse
from horae.store.codec import read_policy, write_policy
from horae.web.app import open_server
from reasons import because
from waiting import until
from web.stage import shell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from horae.core.receipt import Filed


@dataclass(frozen=True)
class Kept:
    """An engine that keeps a plan, and answers."""

    app: App

    async def begin(self, title: str) -> Filed:
        """Let an entry run, and return its receipt."""
        service = self.app.service
        return await service.filed((await service.run_now(title)).receipt)

    async def environment(self, name: str) -> dict[str, str]:
        """Return what a run finds in its environment."""
        path = self.app.root / f"{name}.env"
        await until(lambda: path.exists() and "HORAE_DATA" in path.read_text())
        lines = path.read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    async def over(self, filed: Filed, name: str) -> Filed:
        """Let a run end, and return how."""
        (self.app.root / f"{name}.over").touch()

        async def done() -> Filed | None:
            now = await self.app.ledger.receipt(filed.number)
            return now if now and now.status is Status.DONE else None

        now: Filed = await until(done)
        return now


@asynccontextmanager
async def kept(root: Path, plan: str, **flags: str) -> AsyncIterator[Kept]:
    """Give an engine in a directory, which listens at a port."""
    (root / "plan.org").write_text(plan)
    config = load(str(root), flags={"listen": "127.0.0.1:0", **flags})
    async with build(config) as app:
        stop, turned = asyncio.Event(), asyncio.Event()
        server = await open_server(app)
        parts = [
            asyncio.create_task(server.serve(stop)),
            asyncio.create_task(keep(app, stop=stop, turned=turned.set)),
        ]
        await turned.wait()
        try:
            yield Kept(app)
        finally:
            stop.set()
            await asyncio.gather(*parts)


def live(title: str, name: str, *properties: str) -> str:
    """Return an entry whose run says what it has, and goes on until the test ends it."""
    script = (
        f'env > {name}.env; echo "mine is $HORAE_TOKEN"; '
        f"until test -e {name}.over; do sleep 0.02; done"
    )
    return shell(title, script, *properties)


@story
async def test_a_run_has_what_it_asked_for_until_it_ends(tmp_path: Path) -> None:
    plan = live("Ask", "ask", ":API: read run") + live("Plain", "plain")
    async with kept(tmp_path, plan + shell("Other", "true")) as here:
        filed, plain = await here.begin("Ask"), await here.begin("Plain")
        known = await here.environment("ask")
        token, url = known["HORAE_TOKEN"], known["HORAE_URL"]
        others = await here.environment("plain")
        assert "HORAE_TOKEN" not in others
        assert token not in others.values()
        async with httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {token}"}
        ) as agent:
            assert (await agent.get("/api/v1/status")).status_code == 200
            [other] = await here.app.ledger.find("Other")
            asked = await agent.post(f"/api/v1/entries/{other.number}/run", json={})
            assert asked.status_code == 200
            receipt = await here.app.ledger.receipt(asked.json()["receipt"])
            assert receipt is not None
            assert receipt.actor == "agent:Ask"
            # Other scopes are not its own.
            before = {"before": "2020-01-01T00:00:00Z"}
            refused = await agent.post("/api/v1/prune", json=before)
            assert (refused.status_code, refused.json()["code"]) == (403, "missing_scope")
            assert (await agent.post("/api/v1/token", json={})).status_code == 403

            # An event stream that is open ends with the run.
            async with agent.stream("GET", "/api/v1/events/stream", timeout=20) as stream:
                lines = stream.aiter_lines()
                await here.over(filed, "ask")
                async with asyncio.timeout(10):
                    with suppress(httpx.RemoteProtocolError):  # it is cut off
                        async for _ in lines:
                            pass
            gone = await agent.get("/api/v1/status")
            assert gone.status_code == 401
        await here.over(plain, "plain")

        runs = await here.app.ledger.runs_of(filed.number)
        log = here.app.log_of(runs[-1]).read_text()
        assert "mine is [secret]" in log
        secret = token.encode()
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.suffix != ".env":
            assert secret not in path.read_bytes(), path


@story
async def test_a_run_that_prints_the_keys_of_the_engine_shows_them_to_nobody(
    tmp_path: Path,
) -> None:
    keys = "token host post.key"
    script = f"cd .horae; for each in {keys}; do cat $each; echo; base64 -w0 $each; echo; done"
    async with kept(tmp_path, shell("Thief", script)) as here:
        filed = await here.over(await here.begin("Thief"), "thief")
        log = here.app.log_of((await here.app.ledger.runs_of(filed.number))[-1]).read_text()
        assert log.count("[secret]") == 6
        for key in keys.split():
            assert (tmp_path / ".horae" / key).read_text().strip() not in log


@story
async def test_a_definition_and_a_task_ask_for_it_too(tmp_path: Path) -> None:
    (tmp_path / "crew.org").write_text("* wren\n:PROPERTIES:\n:DEF: wren.org\n:END:\n")
    (tmp_path / "wren.org").write_text(
        "* wren :agent:\n:PROPERTIES:\n:API: read\n"
        ":COMMAND: sh -c 'env > $HORAE_KEY.env; cat $HORAE_KEY.over'\n:END:\nYou sow.\n"
    )
    (tmp_path / "board" / "tasks").mkdir(parents=True)
    (tmp_path / "board" / "tasks" / "7.md").write_text(
        "---\nid: 7\ntitle: Sow\nstatus: todo\npriority: low\napi: run\n---\n"
    )
    for name in ("tick:1", "dispatch:1"):
        os.mkfifo(tmp_path / f"{name}.over")  # a run ends when somebody has opened it
    async with kept(tmp_path, "", **{"crew.def": str(tmp_path / "crew.org")}) as here:
        tokens = here.app.place.tokens
        assert tokens is not None
        for name, scopes in (("dispatch:1", {"read", "run"}), ("tick:1", {"read"})):
            if name == "tick:1":
                await here.app.service.tick("wren")
            known = await here.environment(name)
            assert known["HORAE_AGENT"] == "wren"
            found = tokens.find(known["HORAE_TOKEN"])
            assert found is not None
            assert (found.actor, {*found.scopes}) == ("agent:wren", scopes)
            await asyncio.to_thread((tmp_path / f"{name}.over").write_text, "done\n")
            async with asyncio.timeout(20):
                await found.ended.wait()


@story
async def test_a_run_that_is_cancelled_or_never_made_leaves_no_token(tmp_path: Path) -> None:
    async with kept(tmp_path, live("Ask", "ask", ":API: read")) as here:
        filed = await here.begin("Ask")
        token = (await here.environment("ask"))["HORAE_TOKEN"]
        tokens = here.app.place.tokens
        assert tokens is not None
        held = tokens.find(token)
        assert held is not None
        assert held.actor == "agent:Ask"
        here.app.engine.launch.cancel(filed.number, because("enough"))
        async with asyncio.timeout(20):
            await held.ended.wait()
        assert tokens.find(token) is None


@story
async def test_a_run_approves_nothing_whatever_it_may_do(tmp_path: Path) -> None:
    async with kept(tmp_path, live("Ask", "ask", ":API: read run edit")) as here:
        filed = await here.begin("Ask")
        known = await here.environment("ask")
        headers = {"Authorization": f"Bearer {known['HORAE_TOKEN']}"}
        async with httpx.AsyncClient(base_url=known["HORAE_URL"], headers=headers) as agent:
            answer = await agent.post(f"/api/v1/approvals/{filed.number}/approve", json={})
        assert answer.status_code in {403, 409}
        assert "agent" in answer.json()["detail"]
        await here.over(filed, "ask")


@story
async def test_without_an_engine_that_answers_there_is_no_token(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(shell("Ask", 'echo "<$HORAE_TOKEN>"', ":API: read"))
    async with build(load(str(tmp_path))) as app:
        filed = await app.run_once(lambda service: service.run_now("Ask"))
        [run] = await app.ledger.runs_of(filed.number)
        assert app.log_of(run).read_text() == "<>\n"


def test_a_token_is_of_one_run_and_a_new_one_ends_the_old() -> None:
    tokens = RunTokens()
    first = tokens.begin(1, actor="agent:wren", scopes=["read"])
    other = tokens.begin(2, actor="agent:moss", scopes=["run"])
    again = tokens.begin(1, actor="agent:wren", scopes=["read"])
    assert len({first, other, again}) == 3
    assert tokens.find(first) is None
    tokens.end(1)
    tokens.end(1)
    assert (tokens.find(again), tokens.find("")) == (None, None)
    found = tokens.find(other)
    assert found is not None
    assert (found.actor, *found.scopes) == ("agent:moss", "run")


@pytest.mark.parametrize("text", ["admin", "read admin", "write", "", "read,,Run"])
def test_what_no_run_may_have_is_refused_wherever_it_is_written(text: str) -> None:
    fix = "write one or more of read, run and edit"
    with pytest.raises(PolicyError, match=fix):
        policy_of({"API": text}, zone_name="UTC")
    if not text:
        return
    with pytest.raises(AgentError, match=fix):
        parse_agent(f"* wren :agent:\n:PROPERTIES:\n:API: {text}\n:END:\nYou write.\n")
    task = parse(f"---\nid: 7\ntitle: Sow\nstatus: todo\npriority: low\napi: {text}\n---\n").task
    assert task is not None
    found = complaints([task], now=datetime(2026, 6, 6, tzinfo=UTC))
    assert [each.field for each in found] == ["api"]


def test_the_ledger_keeps_what_a_run_may_do_and_never_a_token() -> None:
    policy = policy_of({"API": "run read"}, zone_name="UTC")
    assert policy == Policy(api=("read", "run"))
    assert read_policy(write_policy(policy)) == policy
