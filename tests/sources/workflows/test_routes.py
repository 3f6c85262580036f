"""A request may bring its own plan, or ask an agent, and goes by the paths people know."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.world import story
from waiting import until
from web.stage import engine

if TYPE_CHECKING:
    import httpx

PLAN = """* Letters :workflow:
SCHEDULED: <2026-06-06 Sat 06:00 +1d>
** Upper :component:
#+begin_src sh :out text:string
tr a-z A-Z
#+end_src
** Count :component:
#+begin_src sh :in text:string
wc -c
#+end_src
"""


@story
async def test_what_would_run_is_told_without_running_it(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        answer = await here.client.post("/api/workflow?plan=1", json={"org": PLAN})
        [summary] = answer.json()
        assert summary["workflow"] == "Letters"
        assert summary["tasks"] == ["Upper", "Count"]
        assert "+1d" in str(summary["schedule"])
        assert {"name", "imports", "exports", "edges"} <= summary.keys(), "as the world has them"
        assert not (tmp_path / ".horae" / "runs").exists(), "nothing ran"
        assert (await here.client.post("/api/workflow?plan=1", json={"org": "* x"})).json() == []


@story
async def test_a_plan_that_a_request_brings_is_run_and_its_records_are_the_answer(
    tmp_path: Path,
) -> None:
    async with engine(tmp_path) as here:
        # Only a 1 asks for the plan alone.
        body = {"org": PLAN, "input": "beans"}
        answer = await here.client.post("/api/workflow?plan=true", json=body)
        assert answer.status_code == 200, answer.text
        [record] = answer.json()
        assert record["tasks"] == {"Upper": "BEANS", "Count": "5"}
        assert (record["status"], record["sub_workflows"]) == ("done", [])
        assert record["schedule"] is not None
        for wrong in ({}, {"org": ""}, {"org": 7}):
            refused = await here.client.post("/api/workflow", json=wrong)
            assert (refused.status_code, list(refused.json())) == (400, ["error"])


@story
async def test_whoever_goes_away_ends_what_runs_for_them(tmp_path: Path) -> None:
    async with engine(tmp_path) as here, here.on_port() as client:
        await ended_with(here.client, tmp_path / "one", {})
        await ended_with(client, tmp_path / "two", here.token)


async def ended_with(client: httpx.AsyncClient, file: Path, headers: dict[str, str]) -> None:
    """Ask for a long run, go away, and return when nothing of it is left."""
    slow = PLAN.replace("wc -c", f"echo $$ > {file}; exec sleep 60")
    asking = asyncio.create_task(client.post("/api/workflow", json={"org": slow}, headers=headers))
    pid = int(await until(lambda: file.exists() and file.read_text().strip()))
    os.kill(pid, 0)
    asking.cancel()
    assert await until(lambda: not Path(f"/proc/{pid}").exists())


@story
async def test_an_agent_is_asked_and_its_answer_is_there_when_it_has_ended(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        body = {"system": "You count.", "task": "one two", "max_steps": 3, "exec": True}
        answer = await here.client.post("/api/run", json=body)
        assert answer.status_code == 202, answer.text
        run = answer.json()["id"]
        assert answer.json() == {"id": run, "status": "running"}
        assert run.startswith("run-")

        async def is_done() -> Any:
            said = (await here.client.get(f"/api/run/{run}")).json()
            assert said["status"] == "done" or said["live"] is True
            return said if said["status"] == "done" else None

        said = await until(is_done)
        assert said["outcome"] == "done"
        told = (await here.client.get(f"/api/run/{run}/stream")).text
        assert "event: output" in told
        assert "one two" in told, "the agent of this stage says what it was asked"
        assert told.rstrip().rpartition("event: end")[1], "and the end is told, too"
        for path in ("/api/run/run-7", "/api/run/run-7/stream"):
            unknown = await here.client.get(path)
            assert (unknown.status_code, list(unknown.json())) == (404, ["error"])
        for wrong in ({}, {"task": ""}, {"task": ["x"]}):
            assert (await here.client.post("/api/run", json=wrong)).status_code == 400
        nobody = await here.client.post("/api/run", json={"task": "x", "agent": "nobody"})
        assert nobody.status_code == 404


@story
async def test_what_an_agent_is_asked_has_a_receipt_a_slot_and_a_log_as_every_run(
    tmp_path: Path,
) -> None:
    async with engine(tmp_path, slots=1) as here:
        long = await here.running("Long")
        body = {"system": "You count {{task}}.", "task": "one {{system}} two"}
        asked = (await here.client.post("/api/run", json=body)).json()
        said = (await here.client.get(f"/api/run/{asked['id']}")).json()
        assert (said["status"], said["standing"]) == ("running", "waiting"), "no slot is free"
        [waiting] = (await here.get("gate"))["waiting"]
        assert (waiting["receipt"], waiting["title"]) == (said["receipt"], "Asked")
        await here.post(f"runs/{long}/cancel")
        told = await here.ended(said["receipt"])
        assert (told["status"], told["key"].partition(":")[0]) == ("done", "manual")
        log = await here.log(told["runs"][0]["run"])
        assert log.decode().split() == ["You", "count", "{{task}}.", "one", "{{system}}", "two"]
        found = [each["receipt"] for each in (await here.get("receipts"))["receipts"]]
        assert said["receipt"] in found


@story
async def test_the_same_idempotency_key_asks_an_agent_once(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        ask = [
            here.client.post("/api/run", json={"task": "x"}, headers={"Idempotency-Key": "one"})
            for _ in range(20)
        ]
        assert len({each.json()["id"] for each in await asyncio.gather(*ask)}) == 1


@story
async def test_requests_at_once_do_not_mix_what_they_say(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        asking = [here.client.post("/api/run", json={"task": f"word{n}"}) for n in range(12)]
        for number, answer in enumerate(await asyncio.gather(*asking)):
            told = await here.ended(int(answer.json()["id"].removeprefix("run-")))
            assert (await here.log(told["runs"][0]["run"])).decode().strip() == f"word{number}"


@story
async def test_no_more_than_four_plans_of_requests_run_at_once_and_the_others_wait(
    tmp_path: Path,
) -> None:
    started = tmp_path / "started"
    started.mkdir()
    wait = f"touch {started}/$$; while [ ! -e {tmp_path}/go ]; do sleep 0.2; done"
    slow = PLAN.replace("wc -c", wait)
    async with engine(tmp_path) as here:
        asking = [
            asyncio.create_task(here.client.post("/api/workflow", json={"org": slow}, timeout=60))
            for _ in range(6)
        ]
        await until(lambda: len([*started.iterdir()]) >= 4)
        asked = here.front.workflows
        assert asked is not None
        await until(lambda: len(asked().room._waiters or ()) == 2)
        assert len(list(started.iterdir())) == 4
        (tmp_path / "go").touch()
        answers = await asyncio.gather(*asking)
        assert [each.status_code for each in answers] == [200] * 6
