"""One workflow, run from Python: its record comes back, whatever is around."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

import horae
from horae.process.processes import can_kill_trees
from sources.workflows.stage import flow, step

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not can_kill_trees(), reason="needs pidfds")

SHOUT = flow(step("Shout", "sh", "tr a-z A-Z", ":out loud"), step("Keep", "sh", "cat", ":in loud"))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def test_a_text_runs_with_its_input_and_the_record_is_plain_data(home: Path) -> None:
    record = horae.run_workflow(SHOUT, input="beans")
    assert record["tasks"] == {"Shout": "BEANS", "Keep": "BEANS"}
    assert list(record)[:5] == ["workflow", "schedule", "exports", "tasks", "sub_workflows"]
    assert (record["status"], record["file"], record["line"]) == ("done", "-", 1)
    assert list((home / "state" / "horae" / "runs").glob("*/*/record.json"))


def test_a_file_is_named_by_a_path_or_by_a_line_of_text(home: Path) -> None:
    (home / "plans").mkdir()
    path = home / "plans" / "garden.org"
    path.write_text(SHOUT)
    for each in (path, str(path), "plans/garden.org"):
        record = horae.run_workflow(each, input=b"peas\xff", data=home / "data")
        assert record["file"] == "garden.org"
        assert record["steps"][0]["encoding"] == "base64"
    record = horae.run_workflow(path, root=home)
    assert record["file"] == "plans/garden.org"


def test_of_several_workflows_one_must_be_named() -> None:
    text = SHOUT + flow(step("Say", "sh", "echo hello"), title="Other")
    assert horae.run_workflow(text, workflow="Other")["tasks"] == {"Say": "hello"}
    with pytest.raises(horae.HoraeError, match="exactly one workflow is needed, but there are 2"):
        horae.run_workflow(text)
    with pytest.raises(horae.HoraeError, match="workflows in the file: 'Flow', 'Other'"):
        horae.run_workflow(text, workflow="None")


def test_what_is_no_plan_is_an_error_that_names_it(home: Path) -> None:
    with pytest.raises(horae.HoraeError, match=r"gone\.org: does not exist"):
        horae.run_workflow("gone.org")
    with pytest.raises(horae.HoraeError, match="there are 0"):
        horae.run_workflow("no plan\n")
    assert not (home / "state").exists() or not list(home.glob("state/horae/runs/*/*/record.json"))


def test_what_goes_wrong_while_it_runs_is_in_the_record() -> None:
    record = horae.run_workflow(flow(step("Fall", "sh", "echo oops >&2; exit 3")))
    assert (record["status"], record["reason"]) == ("failed", "Fall (-:3): exit code 3: oops")
    slow = flow(step("Slow", "sh", "sleep 1000"))
    record = horae.run_workflow(slow, timeout=timedelta(milliseconds=300))
    assert record["status"] == "killed"


def test_steps_see_only_what_they_may() -> None:
    text = flow(step("Tell", "sh", 'echo "$LANG-$SECRET"'))
    known = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "SECRET": "s3cret"}
    assert horae.run_workflow(text, environ=known)["tasks"] == {"Tell": "C.UTF-8-"}


def test_it_can_be_called_where_a_loop_runs_already() -> None:
    async def inside() -> tuple[object, object]:
        straight = horae.run_workflow(SHOUT, input="a")
        beside = await asyncio.to_thread(horae.run_workflow, SHOUT, input="b")
        return straight["tasks"]["Keep"], beside["tasks"]["Keep"]

    assert asyncio.run(inside()) == ("A", "B")
