"""The schedule of a headline is changed in its plan, in the text that was seen, and taken back."""

from __future__ import annotations

import asyncio
import subprocess
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from core.world import story
from horae.app import build, keep
from horae.config import load
from horae.web.api import asgi_app
from horae.web.app import keys_of
from waiting import until
from web.browser import front_of
from web.stage import engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from web.stage import Here

PLAN = """\
#+TITLE: Hours\r
* Digest :workflow:\r
:PROPERTIES:\r
:ID:       digest\r
:SCHEDULE:   0 9 * * *\r
:COMMAND:  true\r
:END:\r
Every day at nine.\r
* Beds :workflow:
SCHEDULED: <2026-01-01 Thu 07:30 ++1d>
:PROPERTIES:
:COMMAND: true
:END:
* On request :workflow:
:PROPERTIES:
:COMMAND: true
:END:
"""


def git(root: Path, *args: str) -> str:
    return subprocess.run(
        ["git", "-C", str(root), *args], check=True, capture_output=True, text=True
    ).stdout.strip()


async def put(here: Here, entry: str, schedule: str, tag: str | None = None) -> httpx.Response:
    headers = {} if tag is None else {"If-Match": tag}
    path = f"/api/v1/entries/{entry}/schedule"
    return await here.client.put(path, json={"schedule": schedule}, headers=headers)


async def look(here: Here, entry: str, to: str = "") -> tuple[Any, str]:
    path = f"/api/v1/entries/{entry}/schedule"
    answer = await here.client.get(path, params={"to": to})
    assert answer.status_code == 200, answer.text
    return answer.json(), answer.headers["etag"]


def written(root: Path) -> str:
    return (root / "plan.org").read_bytes().decode()


@story
async def test_a_preview_shows_ten_times_before_and_after_and_what_the_prose_says(
    tmp_path: Path,
) -> None:
    (tmp_path / "plan.org").write_bytes(PLAN.encode())
    async with engine(tmp_path, PLAN) as here:
        told, _ = await look(here, "digest", "weekdays at 10")
        assert told["now"]["written"] == "0 9 * * *"
        assert [len(told[side]["next"]) for side in ("now", "then")] == [10, 10]
        assert told["then"]["words"] == "at 10:00 on Monday to Friday"
        assert "nine" in " ".join(told["warnings"]), "the prose says another time"
        told, _ = await look(here, "digest", "0 25 * * *")
        assert told["then"]["reason"] == "cron '0 25 * * *': hour 25 is outside 0-23"
        assert told["warnings"] == [], "said once"
        assert written(tmp_path) == PLAN, "nothing was written"


@story
@pytest.mark.parametrize(
    ("entry", "schedule", "before", "after"),
    [
        ("digest", "weekdays at 10", ":SCHEDULE:   0 9 * * *", ":SCHEDULE:   weekdays at 10"),
        (
            "Beds",
            "<2026-01-01 Thu 08:00 ++2d>",
            "SCHEDULED: <2026-01-01 Thu 07:30 ++1d>",
            "SCHEDULED: <2026-01-01 Thu 08:00 ++2d>",
        ),
        (
            "On request",
            "0 3 * * *",
            "* On request :workflow:\n:PROPERTIES:\n:COMMAND: true\n",
            "* On request :workflow:\n:PROPERTIES:\n:COMMAND: true\n:SCHEDULE: 0 3 * * *\n",
        ),
    ],
)
async def test_a_schedule_is_changed_by_one_splice_and_given_back_by_its_inverse(
    tmp_path: Path, entry: str, schedule: str, before: str, after: str
) -> None:
    (tmp_path / "plan.org").write_bytes(PLAN.encode())
    async with engine(tmp_path, PLAN) as here:
        _, tag = await look(here, entry)
        done = await put(here, entry, schedule, tag)
        assert done.status_code == 200, done.text
        assert written(tmp_path) == PLAN.replace(before, after)
        told, _ = await look(here, entry)
        assert told["now"]["written"] == schedule
        back = await here.post("edits/undo", {"undo": done.json()["undo"]})
        assert back["changed"]
        assert written(tmp_path) == PLAN
        again = await here.ask("edits/undo", {"undo": done.json()["undo"]})
        assert (again.status_code, again.json()["code"]) == (409, "no_undo")


@story
async def test_of_two_who_change_a_schedule_one_is_first_and_no_undo_takes_the_other_away(
    tmp_path: Path,
) -> None:
    (tmp_path / "plan.org").write_bytes(PLAN.encode())
    async with engine(tmp_path, PLAN) as here:
        _, tag = await look(here, "digest")
        first = await put(here, "digest", "0 10 * * *", tag)
        second = await put(here, "Beds", "<2026-01-01 Thu 08:00 ++2d>", tag)
        assert [first.status_code, second.status_code] == [200, 412]
        mine = written(tmp_path).replace("Every day", "Each day")
        (tmp_path / "plan.org").write_bytes(mine.encode())
        undo = await here.ask("edits/undo", {"undo": first.json()["undo"]})
        assert undo.status_code == 412
        assert written(tmp_path) == mine


@story
async def test_what_is_no_schedule_of_the_entry_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_bytes(PLAN.encode())
    async with engine(tmp_path, PLAN) as here:
        for entry, schedule in (
            ("digest", "0 25 * * *"),
            ("Beds", "weekdays at 9"),
            ("digest", "a\nb"),
        ):
            answer = await put(here, entry, schedule)
            assert (answer.status_code, answer.json()["code"]) == (400, "plan_schedule"), (
                answer.text
            )
        assert written(tmp_path) == PLAN


@story
async def test_the_schedule_of_a_trigger_is_changed_as_it_was_read(tmp_path: Path) -> None:
    async with engine(tmp_path, PLAN) as here:
        await here.ask("trigger-agents", {"name": "worker", "command": ["cat"]})
        config = {"type": "cron", "expression": "0 9 * * *", "timezone": "Europe/Berlin"}
        made = {"name": "report", "agent": "worker", "prompt_template": "Report."}
        await here.ask("triggers", {**made, "trigger_config": config})
        told, tag = await look(here, "report", "weekdays at 8")
        assert (told["file"], told["now"]["written"]) == ("triggers/report", "0 9 * * *")
        assert told["then"]["words"] == "at 08:00 on Monday to Friday"
        assert len(told["then"]["next"]) == 10
        odd, _ = await look(here, "report", "every other Friday at 8")
        assert "cron" in odd["then"]["reason"]
        assert (await put(here, "report", "every other Friday at 8")).status_code == 400
        done = await put(here, "report", "weekdays at 8", tag)
        assert done.status_code == 200, done.text
        assert (await put(here, "report", "0 10 * * *", tag)).status_code == 412
        kept = (await here.get("triggers/report"))["trigger_config"]
        assert kept == {**config, "expression": "0 8 * * MON-FRI"}
        assert done.headers["etag"] == (await look(here, "report"))[1]


CREW = """\
* wren
:PROPERTIES:
:DEF: writer.org
:INTERVAL: 2h
:END:

* moss
:PROPERTIES:
:DEF: writer.org
:END:

* busy
:PROPERTIES:
:DEF: writer.org
:INTERVAL: 2h
:CONTINUOUS: true
:END:
"""
WRITER = "* The writer :agent:\n:PROPERTIES:\n:RUNNER: command\n:COMMAND: cat\n:END:\n"
SMOKE = """\
# Every ten minutes.
name: smoke
agent: tester
source:
  type: cron
  expression: "*/10 9-17 * * MON-FRI"  # in Berlin
  timezone: Europe/Berlin
prompt_template: "Smoke test of {{fire_time}}."
"""


@asynccontextmanager
async def whole(root: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Give a client of an app with a crew and a workflow of a file."""
    (root / ".agentd" / "agents").mkdir(parents=True)
    (root / ".agentd" / "workflows").mkdir()
    for name, text in (
        ("horae.toml", 'zone = "UTC"\n[crew]\ndef = "crew.org"\n'),
        ("crew.org", CREW),
        ("writer.org", WRITER),
        (".agentd/agents/tester.yml", "name: tester\ncommand: [cat]\n"),
        (".agentd/workflows/smoke.yml", SMOKE),
    ):
        (root / name).write_text(text)
    stop = asyncio.Event()
    async with build(load(str(root))) as app:
        keys = keys_of(app.config, app.data, clock=app.clock, **app.context.access)
        wire = httpx.ASGITransport(asgi_app(front_of(app, keys)))
        keeping = asyncio.create_task(keep(app, stop=stop))
        await until(lambda: app.engine.turned_at)
        async with httpx.AsyncClient(transport=wire, base_url="http://localhost") as client:
            yield client
        stop.set()
        await keeping


@story
@pytest.mark.parametrize(
    ("entry", "file", "schedule", "change"),
    [
        ("wren", "crew.org", "45m", (":INTERVAL: 2h\n:END:\n\n* m", ":INTERVAL: 45m\n:END:\n\n* m")),
        ("moss", "crew.org", "45m", (".org\n:END:", ".org\n:INTERVAL: 45m\n:END:")),
        ("smoke", ".agentd/workflows/smoke.yml", "weekdays at 8", ("*/10 9-17", "0 8")),
    ],
)  # fmt: skip
async def test_an_interval_and_a_workflow_are_changed_in_their_files_and_given_back(
    tmp_path: Path, entry: str, file: str, schedule: str, change: tuple[str, str]
) -> None:
    async with whole(tmp_path) as client:
        path, was = f"/api/v1/entries/{entry}/schedule", (tmp_path / file).read_text()
        asked = await client.get(path, params={"to": schedule})
        told, tag = asked.json(), asked.headers["etag"]
        assert [len(told[side]["next"]) for side in ("now", "then")] == [10, 10], told
        assert told["now"]["next"] != told["then"]["next"]
        rule = (await client.get(f"/api/v1/entries/{entry}")).json()["rule"]
        assert told["now"]["words"] == rule
        odd = (await client.get(path, params={"to": "whenever"})).json()["then"]
        assert odd["reason"]
        headers = {"If-Match": tag}
        assert (await client.put(path, json={"schedule": "whenever"})).status_code == 400
        done = await client.put(path, json={"schedule": schedule}, headers=headers)
        assert done.status_code == 200, done.text
        assert (tmp_path / file).read_text() == was.replace(*change)
        assert (await client.put(path, json={"schedule": "3h"}, headers=headers)).status_code == 412
        now = (await client.get(f"/api/v1/entries/{entry}")).json()["rule"]
        assert now == told["then"]["words"] != rule
        undone = await client.post("/api/v1/edits/undo", json={"undo": done.json()["undo"]})
        assert undone.status_code == 200, undone.text
        assert (tmp_path / file).read_text() == was
        assert (await client.get(f"/api/v1/entries/{entry}")).json()["rule"] == rule


@story
async def test_an_agent_that_runs_continuously_has_no_interval_to_change(tmp_path: Path) -> None:
    async with whole(tmp_path) as client:
        told = await client.get("/api/v1/entries/busy/schedule", params={"to": "1h"})
        assert told.json()["then"]["reason"] == ("the agent runs continuously, without an interval")


@story
async def test_an_edit_and_its_undo_are_two_commits_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_bytes(PLAN.encode())
    for args in (
        ("init", "-q"),
        ("config", "user.name", "Ana"),
        ("config", "user.email", "ana@example.org"),
        ("add", "plan.org"),
        ("commit", "-qm", "Begin"),
    ):
        git(tmp_path, *args)
    async with engine(tmp_path, PLAN) as here:
        done = await put(here, "digest", "0 10 * * *")
        assert done.json()["commit"] == git(tmp_path, "rev-parse", "HEAD")
        undone = await here.post("edits/undo", {"undo": done.json()["undo"]})
        assert undone["commit"] == git(tmp_path, "rev-parse", "HEAD")
        log = git(tmp_path, "log", "--format=%an: %s").splitlines()
        subject = "Change the schedule of Digest"
        assert log == [f"Ana: Undo: {subject}", f"Ana: {subject}", "Ana: Begin"]
        assert git(tmp_path, "status", "--porcelain", "-uno") == ""


@story
async def test_an_edit_is_undone_only_for_some_seconds(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_bytes(PLAN.encode())
    async with engine(tmp_path, PLAN) as here:
        done = await put(here, "digest", "0 10 * * *")
        kept = here.front.edits._kept
        for name, (made_at, planned) in kept.items():
            kept[name] = made_at - timedelta(minutes=1), planned
        late = await here.ask("edits/undo", {"undo": done.json()["undo"]})
        assert (late.status_code, late.json()["code"]) == (409, "no_undo")
