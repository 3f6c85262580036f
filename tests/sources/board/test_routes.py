"""The board, the public plane, and what happens in numbers."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import httpx
from prometheus_client.parser import text_string_to_metric_families

from core.world import story
from horae.core.receipt import Receipt, Status
from horae.files.git.repository import Logged
from horae.sources.board.source import BoardSource
from horae.sources.board.tasks import Board
from horae.web.api import asgi_app
from reasons import because
from sources.plans.test_routes import git
from web.stage import engine

if TYPE_CHECKING:
    from pathlib import Path

    from web.stage import Here

TASK = "---\nid: 7\ntitle: Water the beds\nstatus: todo\ntags: [garden]\n---\nAll of them.\n"
PLACE = "board/tasks/7"


def board(root: Path) -> Path:
    """Make a board with one task, and return its file."""
    (root / "board" / "tasks").mkdir(parents=True)
    file = root / "board" / "tasks" / "007-water.md"
    file.write_text(TASK)
    return file


@story
async def test_the_board_shows_every_task_and_what_it_waits_for(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        assert (await here.get("board"))["tasks"] == []
        board(tmp_path)
        [task] = (await here.get("board"))["tasks"]
        assert (task["id"], task["status"], task["tags"]) == (7, "todo", ["garden"])
        assert (await here.client.get("/api/v1/board/tasks/8")).status_code == 404


@story
async def test_a_task_is_added_moved_and_assigned_and_the_last_edit_is_undone(
    tmp_path: Path,
) -> None:
    board(tmp_path)
    async with engine(tmp_path) as here:
        added = await here.post("board/tasks", {"title": "Sow", "tags": "garden, spring"})
        assert (added["id"], added["status"], added["tags"]) == (8, "backlog", ["garden", "spring"])
        file = tmp_path / "board" / "tasks" / "008-sow.md"
        before = file.read_text()
        moved = await here.post("board/tasks/8/move", {"status": "todo"})
        assert moved["status"] == "todo"
        assigned = await here.post("board/tasks/8/assign", {"assignee": "wren"})
        assert assigned["assignee"] == "wren"
        late = await here.ask("edits/undo", {"undo": moved["undo"]})
        assert late.status_code == 412, "it was assigned since"
        await here.post("edits/undo", {"undo": assigned["undo"]})
        assert (await here.get("board/tasks/8"))["assignee"] is None
        assert file.read_text() == before.replace("backlog", "todo")
        refused = await here.ask("board/tasks/8/move", {"status": "review"})
        assert refused.json()["code"] == "transition"
        odd = await here.ask("board/tasks", {"title": "Odd", "status": "done"})
        assert odd.status_code == 400


@story
async def test_a_task_that_was_added_is_removed_again_if_nobody_changed_it(tmp_path: Path) -> None:
    board(tmp_path)
    for words in (
        ("init", "-q"),
        ("config", "user.name", "Ada"),
        ("config", "user.email", "a@b.c"),
    ):
        git(tmp_path, *words)
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "Begin")
    async with engine(tmp_path) as here:
        added = await here.post("board/tasks", {"title": "Sow"})
        undone = await here.post("edits/undo", {"undo": added["undo"]})
        assert (undone["changed"], undone["undo"]) == (True, None)
        assert not (tmp_path / "board" / "tasks" / "008-sow.md").exists()
        said = git(tmp_path, "log", "--format=%s").splitlines()
        assert said == ["Undo: Add task #8", "Add task #8", "Begin"]
        added = await here.post("board/tasks", {"title": "Sow"})
        await here.post("board/tasks/8/move", {"status": "todo"})
        late = await here.ask("edits/undo", {"undo": added["undo"]})
        assert late.status_code == 412, "it was moved since"
        assert (await here.get("board/tasks/8"))["status"] == "todo"


@story
async def test_a_task_is_moved_only_if_nobody_changed_it_since(tmp_path: Path) -> None:
    file = board(tmp_path)
    async with engine(tmp_path) as here:
        tag = (await here.client.get(f"/api/v1/{PLACE}")).headers["etag"]
        file.write_text(TASK.replace("All of", "None of"))
        path, sent = f"/api/v1/{PLACE}/move", {"status": "in-progress"}
        answer = await here.client.post(path, json=sent, headers={"If-Match": tag})
        assert answer.status_code == 412
        assert "status: todo" in file.read_text()


@story
async def test_a_schedule_is_set_only_if_nobody_changed_the_task_since(tmp_path: Path) -> None:
    file = board(tmp_path)
    async with engine(tmp_path) as here:
        tag = (await here.client.get(f"/api/v1/{PLACE}")).headers["etag"]
        path = f"/api/v1/{PLACE}/schedule"
        body = {"cron": "0 9 * * MON", "timezone": "Europe/Berlin"}
        done = await here.client.put(path, json=body, headers={"If-Match": tag})
        assert done.status_code == 200, done.text
        assert done.json()["cron_schedule"] == "0 9 * * MON"
        assert len(done.json()["next"]) == 5
        told = (await here.get("events"))["events"][-1]
        assert (told["kind"], told["facts"]["what"]) == (
            "edited",
            "Change the schedule of task #7",
        )
        assert file.read_text() == TASK.replace(
            "\n---\nAll", '\ncron_schedule: "0 9 * * MON"\ntimezone: Europe/Berlin\n---\nAll'
        )
        assert done.headers["etag"] != tag
        late = await here.client.put(path, json={"clear": True}, headers={"If-Match": tag})
        assert (late.status_code, late.json()["code"]) == (412, "changed")
        now = {"If-Match": done.headers["etag"]}
        cleared = await here.client.put(path, json={"clear": True}, headers=now)
        assert cleared.json()["cron_schedule"] is None
        for wrong in ("x", 'W/"x"', '"x', '"a", "b"'):
            refused = await here.client.put(path, json=body, headers={"If-Match": wrong})
            assert refused.status_code == 400, wrong
        assert (await here.client.put(path, json=body)).status_code == 200, "nobody must ask"


@story
async def test_a_paused_task_shows_what_comes_after_its_pause(tmp_path: Path) -> None:
    file = board(tmp_path)
    file.write_text(TASK.replace("tags", "cron_schedule: 0 9 * * *\ntags"))
    async with engine(tmp_path) as here:
        [now, *_] = (await here.get(PLACE))["next"]
        ledger, at = here.front.ledger, here.front.clock.now()
        assert ledger is not None
        scan = await BoardSource(Board.below(tmp_path), now=here.front.clock.now).scan({})
        await ledger.scan("board", scan, now=at, term=1)
        [entry] = await ledger.find("task:7")
        until = at + timedelta(days=9)
        await ledger.pause(entry.number, now=at, term=1, until=until)
        [later, *_] = (await here.get(PLACE))["next"]
        assert now < until.isoformat() < later


@story
async def test_a_schedule_that_makes_no_sense_changes_nothing(tmp_path: Path) -> None:
    file = board(tmp_path)
    async with engine(tmp_path) as here:
        for body in (
            {},
            {"cron": "0 25 * * *"},
            {"cron": "0 0 31 2 *"},
            {"at": "tomorrow"},
            {"cron": "0 9 * * *", "timezone": "Moon/Base"},
            {"cron": "0 9 * * *", "catchup": "perhaps"},
            {"cron": "0 9 * * *", "until": "never"},
            {"clear": "yes"},
            {"clear": True, "at": "2026-04-02T09:00:00Z"},
            {"clear": True, "cron": "0 9 * * *"},
        ):
            answer = await here.client.put(f"/api/v1/{PLACE}/schedule", json=body)
            assert answer.status_code == 400, (body, answer.text)
        assert file.read_text() == TASK
        missing = await here.client.put("/api/v1/board/tasks/8/schedule", json={"clear": True})
        assert missing.status_code == 404


@story
async def test_a_number_that_two_files_have_is_a_problem_of_the_board_and_a_conflict(
    tmp_path: Path,
) -> None:
    file = board(tmp_path)
    copy = file.with_name("copy.md")
    copy.write_text(TASK)
    async with engine(tmp_path) as here:
        [problem] = (await here.client.get("/api/v1/board")).json()["problems"]
        assert file.name in problem
        assert copy.name in problem
        read = await here.client.get(f"/api/v1/{PLACE}")
        written = await here.client.put(f"/api/v1/{PLACE}/schedule", json={"clear": True})
        assert (read.status_code, written.status_code) == (409, 409)
        assert (file.read_text(), copy.read_text()) == (TASK, TASK)


@story
async def test_the_public_plane_is_off_unless_it_is_switched_on(tmp_path: Path) -> None:
    async with engine(tmp_path) as here, here.on_port() as client:
        for path in ("/_activity", "/_changes"):
            assert (await client.get(path)).status_code == 404

        async def changes(most: int) -> list[Logged]:
            return [Logged("a" * 40, datetime.fromtimestamp(1, UTC), "wren", "Sow")] * most

        front = replace(here.front, is_public=True, changes=changes)
        wire = httpx.ASGITransport(asgi_app(front))
        async with httpx.AsyncClient(transport=wire, base_url="http://localhost") as public:
            told = (await public.get("/_changes")).json()
            assert (len(told["changes"]), told["agent"]) == (30, None)
            assert (await public.get("/_activity")).json() == {
                "agents": [],
                "wire": [],
                "agent": None,
            }
            assert (await public.post("/_activity")).status_code == 405


async def numbers(here: Here) -> dict[str, float]:
    """Return all that is counted, by name and labels."""
    answer = await here.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        f"{sample.name}{sorted(sample.labels.values()) or ''}": sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


@story
async def test_what_happens_is_counted_once(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        for entry in ("Digest", "Digest", "Fails"):
            await here.ended((await here.post(f"entries/{entry}/run"))["receipt"])
        ledger, now = here.front.ledger, here.front.clock.now()
        assert ledger is not None
        missed = Receipt(
            "cron:2026-01-01T00:00:00Z", Status.MISSED, because("nobody looked"), now, now
        )
        await ledger.add(1, [missed], now=now, term=1)
        for found in (await numbers(here), await numbers(here)):
            assert found["horae_occurrences_total['done']"] == 2
            assert found["horae_occurrences_total['failed']"] == 1
            assert found["horae_occurrences_total['missed']"] == 1
            assert found["horae_missed_total['1', 'Digest']"] == 1
        found = await numbers(here)
        assert found["horae_lateness_seconds_count"] == 0, "what is asked for is never late"
        assert found["horae_active_runs"] == 0
        assert found["horae_armed_entries"] == 4
        entry = await here.get("entries/Digest")
        assert found["horae_next_fire_seconds"] > now.timestamp(), entry["next_at"]
        assert found["horae_entry_next_fire_seconds['1', 'Digest']"] > now.timestamp()
        number = await here.running("Long")
        assert (await numbers(here))["horae_active_runs"] == 1
        await here.post(f"runs/{number}/cancel")


@story
async def test_many_looks_at_once_count_nothing_twice(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        await here.ended((await here.post("entries/Digest/run"))["receipt"])
        found = await asyncio.gather(*(numbers(here) for _ in range(8)))
        assert {each["horae_occurrences_total['done']"] for each in found} == {1.0}


@story
async def test_a_title_cannot_forge_a_number(tmp_path: Path) -> None:
    plan = '* A" } 7\\n :workflow:\n:PROPERTIES:\n:SCHEDULE: 0 9 * * *\n:COMMAND: true\n:END:\n'
    async with engine(tmp_path, plan) as here:
        text = (await here.client.get("/metrics")).text
        assert re.search(r'title="A\\" } 7\\\\n"', text)
        assert await numbers(here)
