"""The schedule of a headline is changed in its plan, in the text that was seen, and taken back."""

from __future__ import annotations

import subprocess
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from core.world import story
from web.stage import engine

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

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
