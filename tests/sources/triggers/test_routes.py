"""The routes of triggers are where their users know them, and say what they say there."""

from __future__ import annotations

import hmac
import time
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

from core.world import story
from horae import __version__
from web.stage import engine

if TYPE_CHECKING:
    from pathlib import Path

    from web.stage import Here

BODY = {
    "name": "daily-report",
    "trigger_config": {"type": "cron", "expression": "0 9 * * MON-FRI"},
    "prompt_template": "Report for {{fire_time}}.",
}


async def made(here: Here, **changes: Any) -> Any:
    """Return a workflow that was made, with an agent to run it."""
    if (await here.client.get("/agents/worker")).status_code == 404:
        agent = {"name": "worker", "command": ["cat"]}
        assert (await here.client.post("/agents", json=agent)).status_code == 201
    agent_id = (await here.client.get("/agents/worker")).json()["id"]
    answer = await here.client.post("/workflows", json={**BODY, "agent_id": agent_id, **changes})
    assert answer.status_code == 201, answer.text
    workflow = answer.json()
    assert workflow.pop("notes") == []
    return workflow


@story
async def test_a_workflow_is_made_shown_changed_and_forgotten(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        workflow = await made(here)
        assert workflow["trigger_config"] == BODY["trigger_config"]
        path = f"/workflows/{workflow['id']}"
        assert (await here.client.get(path)).json() == workflow
        page = (await here.client.get("/workflows?limit=500&offset=0")).json()
        assert (page["items"], page["total"], page["limit"]) == ([workflow], 1, 200)
        changed = await here.client.put(path, json={"enabled": False, "name": None, "nose": 1})
        assert (changed.json()["enabled"], changed.json()["name"]) == (False, "daily-report")
        asked = await here.client.post(f"{path}/trigger", json={})
        assert (asked.status_code, list(asked.json())) == (400, ["error"])
        gone = await here.client.delete(path)
        assert (gone.status_code, gone.content) == (204, b"")
        assert (await here.client.get(path)).json() == {"error": "not found"}
        assert (await here.client.delete(path)).status_code == 404


@story
async def test_what_cannot_be_is_said_in_the_older_shape(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        await made(here)
        again = await here.client.post("/workflows", json={**BODY, "agent_id": "worker"})
        assert again.status_code in {400, 409}
        for body in ({}, {"name": 7}, {**BODY, "trigger_config": {"type": "moon"}}):
            answer = await here.client.post("/workflows", json=body)
            assert (answer.status_code, list(answer.json())) == (400, ["error"]), body
        plain = await here.client.post("/workflows", content=b"{", headers={"Content-Type": "a/b"})
        assert (plain.status_code, list(plain.json())) == (415, ["error"])
        there = await here.client.put("/workflows")
        assert (there.status_code, list(there.json())) == (405, ["error"])


@story
async def test_a_workflow_runs_now_and_its_history_has_it(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        workflow = await made(here)
        path = f"/workflows/{workflow['id']}"
        headers = {"Idempotency-Key": "once"}
        first = await here.client.post(f"{path}/trigger", json={"title": "x"}, headers=headers)
        assert first.status_code == 200, first.text
        again = await here.client.post(f"{path}/trigger", json={"title": "x"}, headers=headers)
        assert again.json()["id"] == first.json()["id"]
        page = (await here.client.get(f"{path}/history")).json()
        assert (page["total"], page["items"][0]["source_id"]) == (1, "idem:once")
        assert (await here.client.get("/workflows/none/history")).status_code == 404


@story
async def test_a_retry_keeps_the_title_the_body_and_the_metadata(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        what = "{{title}}: {{body}}\n{{metadata}}"
        workflow = await made(here, prompt_template=what, trigger_config={"type": "manual"})
        asked = {"title": "Tea", "body": "for two", "metadata": {"guest": "Ana"}}
        first = await here.post(f"triggers/{workflow['id']}/run", asked)
        await here.ended(first["receipt"])
        entry = (await here.get(f"receipts/{first['receipt']}"))["entry"]
        again = await here.post(f"entries/{entry}/retry", {"receipt": first["receipt"]})
        assert again["receipt"] != first["receipt"]
        assert f"retry of receipt {first['receipt']}" in again["reason"]
        await here.ended(again["receipt"])
        history = (await here.client.get(f"/workflows/{workflow['id']}/history")).json()["items"]
        assert [each["prompt_sent"] for each in history] == ["Tea: for two\nguest: Ana"] * 2


@story
async def test_a_webhook_is_opened_by_its_signature_alone(tmp_path: Path) -> None:
    config = {"type": "webhook", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
    key = b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    async with engine(tmp_path) as here, here.on_port() as client:
        workflow = await made(here, trigger_config=config, prompt_template="Look at {{title}}.")
        assert config["secret"] not in str(workflow)
        path, body = f"/webhooks/{workflow['id']}", b'{"title": "a push"}'
        stamp = str(int(time.time()))
        proof = b64encode(hmac.digest(key, f"msg_1.{stamp}.".encode() + body, "sha256")).decode()
        signed = {
            "webhook-id": "msg_1",
            "webhook-timestamp": stamp,
            "webhook-signature": f"v1,{proof}",
        }
        refusals = [
            await client.post(path, content=body, headers={}),
            await client.post(path, content=body, headers=here.token),
            await client.post(path, content=body + b" ", headers=signed),
            await client.post(path, content=body, headers={**signed, "webhook-id": "msg_2"}),
            await client.post(path, content=body, headers=[*signed.items(), *signed.items()]),
            await client.post("/webhooks/nobody", content=body, headers=signed),
        ]
        assert {each.status_code for each in refusals} == {401}
        assert len({each.text for each in refusals}) == 1, "nobody learns which names there are"
        answer = await client.post(path, content=body, headers=signed)
        assert (answer.status_code, list(answer.json())) == (202, ["receipt"])
        again = await client.post("/webhooks/daily-report", content=body, headers=signed)
        assert (again.status_code, again.json()) == (202, answer.json())
        page = (await here.client.get(f"/workflows/{workflow['id']}/history")).json()
        assert [each["receipt"] for each in page["items"]] == [answer.json()["receipt"]]


@story
async def test_agents_are_listed_and_health_counts_them(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        await made(here)
        health = (await here.client.get("/health")).json()
        assert (health["status"], health["version"]) == ("ok", __version__)
        assert health["details"] == {"agents_active": 1}
        page = (await here.client.get("/agents?status=running")).json()
        assert [each["name"] for each in page["items"]] == ["worker"]
        assert (await here.client.get("/agents?status=stopped")).json()["items"] == []
        held = await here.client.delete("/agents/worker")
        assert (held.status_code, list(held.json())) == (409, ["error"])


@story
async def test_approvals_are_listed_and_only_what_waits_is_approved(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        assert await here.get("approvals") == {"approvals": []}
        for verb in ("approve", "deny"):
            answer = await here.ask(f"approvals/7/{verb}", {})
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.status_code in {404, 409}


@story
async def test_our_own_paths_say_errors_as_problem_documents(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        workflow = await made(here)
        at = "/api/v1/triggers/daily-report"
        assert await here.get("triggers/daily-report") == workflow
        assert (await here.get("triggers"))["items"] == [workflow]
        changed = await here.client.put(at, json={"prompt_template": "Go."})
        assert changed.json()["prompt_template"] == "Go."
        filed = await here.post("triggers/daily-report/run", {"title": "x"}, key="one")
        again = await here.post("triggers/daily-report/run", {"title": "x"}, key="one")
        assert again["receipt"] == filed["receipt"]
        [listed] = (await here.get("triggers/daily-report/history"))["items"]
        assert listed["receipt"] == filed["receipt"]
        refused = await here.ask("triggers/daily-report/rotate")
        assert refused.json()["detail"] == "'daily-report' is not a webhook"
        assert (await here.client.delete(at)).json()["name"] == "daily-report"
        missing = await here.client.get(at)
        assert missing.headers["content-type"] == "application/problem+json"
        assert (missing.status_code, missing.json()["code"]) == (404, "trigger_not_found")


@story
async def test_an_agent_is_changed_cleared_and_asked_about_at_our_paths(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        at = "/api/v1/trigger-agents/worker"
        created = await here.ask("trigger-agents", {"name": "worker", "command": ["cat"]})
        assert created.status_code == 201
        changed = (await here.client.put(at, json={"model": "large"})).json()
        assert changed["config"]["model"] == "large"
        assert (await here.get("trigger-agents"))["total"] == 1
        assert await here.post("trigger-agents/worker/clear") == {
            "status": "cleared",
            "agent_id": changed["id"],
        }
        assert (await here.client.get(f"{at}/run")).json()["code"] == "trigger_not_found"
        sent = await here.post("trigger-agents/worker/message", {"content": "Hello"})
        assert sent["status"] == "sent"
        assert (await here.get("trigger-agents/worker/usage"))["agent"] == "worker"
        assert (await here.client.delete(at)).json()["name"] == "worker"


@story
async def test_the_definitions_of_files_are_applied_together_or_not_at_all(tmp_path: Path) -> None:
    teller = {"name": "teller", "enabled": True, "command": ["cat"]}
    agent = {"what": "agent", "file": "a.yml", "said": teller}
    agent["places"] = {"name": [3, 1, 0, 0, 0]}
    report = {**BODY, "agent": "teller", "enabled": True, "wanted": True}
    workflow = {"what": "workflow", "file": "w.yml", "said": report, "places": {}}
    wrong = {**workflow, "said": {**report, "agent": "nobody"}}
    async with engine(tmp_path) as here:
        refused = await here.ask("trigger-files", {"definitions": [agent, wrong]})
        assert (refused.status_code, refused.json()["code"]) == (422, "agentd_files")
        assert "Agent 'nobody' not found" in refused.json()["detail"]
        assert (await here.get("trigger-agents"))["total"] == 0
        both = {"definitions": [workflow, agent]}
        said = await here.post("trigger-files", {**both, "dry_run": True})
        verbs = [(each["verb"], each["what"], each["place"]) for each in said["changes"]]
        assert verbs == [("create", "agent", "a.yml:3"), ("create", "workflow", "w.yml:1")]
        assert (await here.get("trigger-agents"))["total"] == 0
        assert await here.post("trigger-files", both) == said
        again = await here.post("trigger-files", both)
        assert [each["verb"] for each in again["changes"]] == ["unchanged", "unchanged"]
        gone = await here.post("trigger-files", {**both, "teardown": True})
        assert [each["verb"] for each in gone["changes"]] == ["delete", "delete"]
        for odd in (None, 7, [{"what": "agent"}]):
            assert (await here.ask("trigger-files", {"definitions": odd})).status_code == 400
