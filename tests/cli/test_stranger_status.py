"""`horae status` and `horae up` say what only the engine knows: what it cannot read, what waits for what."""

from __future__ import annotations

import json
import os
import signal
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from calling import call_here
from commands import engine_up
from horae.cli.group import horae as group
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

AT_ONCE = {"HORAE_RUN_DRAIN": "0s"}
PLAN = """* Slow
:PROPERTIES:
:ID: slow
:SCHEDULE: 0 9 1 1 *
:COMMAND: sleep 600
:END:
"""
FLAKY = """* Flaky
:PROPERTIES:
:ID: flaky
:SCHEDULE: 0 9 1 1 *
:TZ: UTC
:COMMAND: sh -c 'exit 3'
:RETRY: 3 1h
:END:
"""
LATIN = "* Gr\xfc\xdfe\n".encode("latin-1")


def horae(root: Path, *args: str) -> str:
    ending = call_here(group, "horae", *args, "--root", str(root))
    assert ending.code == 0, ending.err
    return ending.out


def standing(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(horae(root, "status", "--json"))
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "plans"
    root.mkdir()
    (root / "plan.org").write_text(PLAN)
    return root


def test_a_database_that_the_engine_does_not_have_is_an_error(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("psycopg")
    with engine_up(root, **AT_ONCE):
        monkeypatch.setenv("HORAE_STORE", "postgresql://horae@127.0.0.1:1/horae")
        ending = call_here(group, "horae", "status", "--root", str(root))
        assert (ending.code, ending.out) == (75, "")
        assert "the database cannot be reached" in ending.err


def test_a_plan_that_an_engine_cannot_read_is_a_problem_in_the_status(root: Path) -> None:
    with engine_up(root, **AT_ONCE):
        (root / "latin.org").write_bytes(LATIN)
        wait_until(lambda: standing(root)["problems"])
        (problem,) = standing(root)["problems"]
        assert "latin.org:1:5: " in problem
        assert "save the file as UTF-8" in problem
        shown = " ".join(horae(root, "status", "--table").split())
        assert "is not UTF-8; save the file as UTF-8" in shown
        (root / "latin.org").unlink()
        wait_until(lambda: not standing(root)["problems"])


def test_lines_of_an_engine_tell_once_what_it_cannot_read(root: Path) -> None:
    (root / ".agentd" / "workflows").mkdir(parents=True)
    (root / ".agentd" / "workflows" / "w.yml").write_text("name: w\nenabled: perhaps\n")
    with engine_up(root, "--log", "plain") as (_, said):
        wait_until(lambda: "enabled must be true or false" in said.read_text())
        (root / "latin.org").write_bytes(LATIN)
        wait_until(lambda: "save the file as UTF-8" in said.read_text())
        wait_until(lambda: len(standing(root)["problems"]) > 1)
    assert said.read_text().count("enabled must be true or false") == 1
    assert said.read_text().count("save the file as UTF-8") == 1


def test_the_status_says_what_a_receipt_waits_for(root: Path) -> None:
    with engine_up(root, **AT_ONCE):
        horae(root, "run", "slow", "--no-wait")
        wait_until(lambda: standing(root)["running"])
        horae(root, "run", "slow", "--no-wait", "--note", "again")
        wait_until(lambda: standing(root)["waiting"])
        (waiting,) = standing(root)["waiting"]
        (running,) = standing(root)["running"]
        assert waiting["reason"] == f"the entry is busy with receipt {running['receipt']}"


def test_what_is_tried_again_says_when(root: Path) -> None:
    (root / "plan.org").write_text(FLAKY)
    with engine_up(root, **AT_ONCE):
        horae(root, "run", "flaky", "--no-wait")
        wait_until(lambda: any(each["attempts"] for each in standing(root)["waiting"]))
        (waiting,) = standing(root)["waiting"]
        assert waiting["reason"] == "exit code 3"
        start_at = datetime.fromisoformat(waiting["start_at"])
        when = f"{start_at:%Y-%m-%d %a %H:%M:%S}".removesuffix(":00") + " UTC"
        shown = " ".join(horae(root, "status", "--table").split())
        assert f"waiting attempt 1 failed: exit code 3; starts at {when} or later" in shown
        assert f"\n  starts at {when} or later\n" in horae(root, "why", "flaky", "--table")


def test_an_engine_that_hangs_is_a_problem_and_the_rest_is_shown(root: Path) -> None:
    with engine_up(root, **AT_ONCE):
        pid = standing(root)["engine"]["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            stands = standing(root)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert stands["problems"] == [f"the engine (process {pid}) does not answer"]
        assert [each["title"] for each in stands["next"]] == ["Slow"]


def test_a_look_from_another_moment_asks_no_engine(root: Path) -> None:
    with engine_up(root, **AT_ONCE):
        (root / "latin.org").write_bytes(LATIN)
        wait_until(lambda: standing(root)["problems"])
        then = json.loads(horae(root, "status", "--json", "--at", "2020-01-01T00:00:00Z"))
        assert then["problems"] == []


def test_an_entry_that_cannot_be_read_is_told_once(root: Path) -> None:
    bad = PLAN.replace("0 9 1 1 *", "61 9 1 1 *").replace("slow", "bad").replace("Slow", "Bad cron")
    done = PLAN.replace("* Slow", "* DONE Old").replace("slow", "old")
    (root / "plan.org").write_text(bad + done)
    with engine_up(root, **AT_ONCE):
        wait_until(lambda: standing(root)["unarmed"])
    said = horae(root, "status")
    assert said.count("minute 61 is outside 0-59") == 1
    assert "Bad cron (plan.org:1) is not armed: " in " ".join(said.split())
    assert "never been armed" not in said
    assert "the state is DONE" in said
    assert [each["title"] for each in standing(root)["unarmed"]] == ["Bad cron", "Old"]


def test_a_headline_with_the_name_of_another_is_a_problem_with_and_without_an_engine(
    root: Path,
) -> None:
    twin = "* Twin :workflow:\n:PROPERTIES:\n:SCHEDULE: 0 9 1 1 *\n:END:\n"
    (root / "plan.org").write_text(twin * 2)
    with engine_up(root, **AT_ONCE):
        wait_until(lambda: standing(root)["problems"])
        told = standing(root)["problems"]
    assert told == [
        "plan.org:5: 'Twin' is not armed: plan.org:1 has the same name; give one of the two an :ID:"
    ]
    assert standing(root)["problems"] == told


def test_a_setting_that_needs_a_restart_is_a_problem_and_the_zone_stays(root: Path) -> None:
    settings = root / "horae.toml"
    settings.write_text('zone = "Europe/Berlin"\n')
    with engine_up(root, HORAE_ZONE="", **AT_ONCE) as (_, said):
        settings.write_text('zone = "Asia/Tokyo"\ngate.slots = 7\n')
        wait_until(lambda: len(standing(root)["problems"]) == 2)
        words = "settings: {} is changed in horae.toml; the engine keeps {} until it is restarted"
        kept = {"zone": "Europe/Berlin", "gate.slots": 4}
        assert standing(root)["problems"] == [words.format(*each) for each in kept.items()]
        assert standing(root)["zone"] == "Europe/Berlin"
        explained = call_here(group, "horae", "explain", f"{root}/plan.org:2", "--json").data
        assert explained["zone"] == "Europe/Berlin"
        wait_until(lambda: "the engine keeps Europe/Berlin" in said.read_text())
        checks = json.loads(horae(root, "doctor", "--json"))
        [found] = [each for each in checks if each["check"] == "settings"]
        assert "the engine keeps Europe/Berlin until it is restarted" in found["found"]
    assert standing(root)["zone"] == "Asia/Tokyo"
