"""An edit counts only if nobody was faster: every route that edits something minds If-Match."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from core.world import story
from horae.web.api import operations
from waiting import until
from web.stage import PLAN, engine

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from web.stage import Here

WORKER = {"name": "worker", "command": ["cat"]}
REPORT = {
    "name": "report",
    "trigger_config": {"type": "cron", "expression": "0 9 * * *"},
    "prompt_template": "Report.",
}


def test_every_route_that_edits_something_minds_its_tag() -> None:
    edits = [each for each in operations() if each.method in {"PUT", "PATCH", "DELETE"}]
    edits += [each for each in operations() if each.path.endswith(("/pause", "/resume"))]
    assert len(edits) >= 6
    for each in edits:
        assert "If-Match" in each.headers, each.path
        assert 412 in each.also, each.path
        assert each.tag is not None or each.has_tag, each.path
    read = {each.path: each for each in operations() if each.method == "GET"}
    for each in edits:
        thing = read[
            each.path.removesuffix("/pause").removesuffix("/resume").removesuffix("/schedule")
        ]
        assert thing.tag is not None or thing.has_tag, "and whoever reads it is told the tag"


@story
async def test_an_entry_is_paused_and_resumed_only_as_it_was_read(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        fresh = await tag(here, "/api/v1/entries/Digest")
        assert fresh == await tag(here, "/api/v1/entries/digest-1"), "by whatever name"
        assert fresh != await tag(here, "/api/v1/entries/Fails")
        await here.post("entries/Digest/run")
        assert fresh == await tag(here, "/api/v1/entries/Digest"), "a run changes nothing of it"
        paused = await asked(here, "entries/Digest/pause", fresh)
        assert paused.status_code == 200, paused.text
        late = await asked(here, "entries/Digest/resume", fresh)
        assert (late.status_code, late.json()["code"]) == (412, "changed")
        assert (await here.get("entries/Digest"))["pause"] is not None, "nothing was changed"
        assert paused.headers["etag"] == await tag(here, "/api/v1/entries/Digest")
        resumed = await asked(here, "entries/Digest/resume", paused.headers["etag"])
        assert resumed.json()["changed"] is True
        for any_ in (None, "*"):
            assert (await asked(here, "entries/Digest/pause", any_)).status_code == 200
        wrong = await asked(here, "entries/Digest/pause", "fresh")
        assert wrong.status_code == 400


@story
async def test_a_rewritten_plan_is_another_version_of_its_entry(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        before = await tag(here, "/api/v1/entries/Digest")
        (tmp_path / "plan.org").write_text(PLAN.replace("all the news", "some of the news"))
        await here.post("rescan")
        assert (await asked(here, "entries/Digest/pause", before)).status_code == 412


@story
async def test_of_two_who_pause_as_they_read_it_one_is_first(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        fresh = await tag(here, "/api/v1/entries/Digest")
        asking = [asked(here, "entries/Digest/pause", fresh, {"note": str(n)}) for n in range(20)]
        codes = sorted([each.status_code for each in await asyncio.gather(*asking)])
        assert codes == [200] + [412] * 19


@story
async def test_a_workflow_and_an_agent_are_changed_only_as_they_were_read(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        client = here.client
        agent = (await client.post("/agents", json=WORKER)).json()
        made = await client.post("/workflows", json={**REPORT, "agent_id": agent["id"]})
        path = f"/workflows/{made.json()['id']}"
        first = await tag(here, path)
        renamed = await client.put(
            "/workflows/report", json={"name": "other"}, headers={"If-Match": first}
        )
        assert renamed.status_code == 200, renamed.text
        second = await tag(here, path)
        assert second != first
        changed = await client.put(path, json={"enabled": False}, headers={"If-Match": second})
        assert changed.headers["etag"] == await tag(here, path)
        for method in ("PUT", "DELETE"):
            late = await client.request(method, path, json={}, headers={"If-Match": second})
            assert (late.status_code, list(late.json())) == (412, ["error"])
        done = await client.delete(path, headers={"If-Match": changed.headers["etag"]})
        assert done.status_code == 204
        old = await client.delete("/agents/worker", headers={"If-Match": first})
        assert old.status_code == 412
        known = {"If-Match": await tag(here, "/agents/worker")}
        assert (await client.delete("/agents/worker", headers=known)).status_code == 200


@story
async def test_a_run_of_an_agent_is_no_change_of_it(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        busy = {**WORKER, "command": ["sleep", "600"]}
        agent = (await here.client.post("/agents", json=busy)).json()
        await here.client.post("/workflows", json={**REPORT, "agent_id": agent["id"]})
        before = await tag(here, "/agents/worker")
        await here.client.post("/workflows/report/trigger", json={})

        async def is_busy() -> bool:
            shown = (await here.client.get("/agents/worker")).json()
            return bool(shown["activity"] == "busy")

        await until(is_busy)
        assert await tag(here, "/agents/worker") == before


@pytest.mark.parametrize("path", ["/api/v1/entries/nobody", "/workflows/nobody", "/agents/nobody"])
def test_what_is_not_there_has_no_tag(tmp_path: Path, path: str) -> None:
    async def look() -> None:
        async with engine(tmp_path) as here:
            answer = await here.client.get(path)
            assert answer.status_code == 404
            assert "etag" not in answer.headers

    asyncio.run(look())


async def tag(here: Here, path: str) -> str:
    """Return the tag of something as it is now."""
    answer = await here.client.get(path)
    assert answer.status_code == 200, answer.text
    found: str = answer.headers["etag"]
    assert found.startswith('"')
    return found


async def asked(
    here: Here, path: str, match: str | None, body: dict[str, Any] | None = None
) -> httpx.Response:
    """Return what comes of an edit that is meant for a version."""
    headers = {} if match is None else {"If-Match": match}
    return await here.client.post(f"/api/v1/{path}", json=body or {}, headers=headers)
