"""The workflows of a file run here and now: live for people, records for programs, stopped by Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from calling import Ending
from horae.cli.output import Form, Output
from horae.cli.run import run
from horae.cli.wb import wb
from horae.process.processes import can_kill_trees
from horae.sources.workflows.commands import run_file
from process.stage import pids, proc
from sources.workflows.stage import flow, step
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not can_kill_trees(), reason="needs pidfds")

GOOD = flow(step("Upper", "sh", "tr a-z A-Z", ":out a"), step("Count", "sh", "wc -c", ":in a"))
BAD = flow(step("Bad", "sh", "exit 4", ":out a"), step("Next", "sh", "cat", ":in a"), title="Other")

Call = Callable[..., Ending]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in list(os.environ):
        if name.startswith(("HORAE_", "WB_")):
            monkeypatch.delenv(name)
    (tmp_path / "plan.org").write_text(GOOD)
    return tmp_path


@pytest.fixture
def call(home: Path, capfd: pytest.CaptureFixture[str]) -> Call:
    def calling(file: str = "plan.org", form: Form = Form.JSON, **options: Any) -> Ending:
        code = run_file(file, output=Output(form), **options)
        said = capfd.readouterr()
        return Ending(code, said.out, said.err)

    return calling


def test_a_file_is_run_and_its_records_are_printed_as_one_list(call: Call, home: Path) -> None:
    ending = call(given="beans")
    assert ending.code == 0
    (record,) = ending.data
    assert record["tasks"] == {"Upper": "BEANS", "Count": "5"}
    assert (record["status"], record["file"], record["line"]) == ("done", "plan.org", 1)
    assert not (home / ".horae").exists(), "a run leaves nothing beside the plan"
    assert list((home / "state" / "horae" / "runs").glob(f"*/{record['run']}/record.json"))


def test_every_workflow_runs_and_one_that_fails_makes_the_exit_code_1(
    call: Call, home: Path
) -> None:
    (home / "plan.org").write_text(BAD + GOOD)
    ending = call(form=Form.JSONL)
    first, second = map(json.loads, ending.out.splitlines())
    assert (ending.code, first["status"], second["status"]) == (1, "failed", "done")
    assert first["reason"] == "Bad (plan.org:3): exit code 4"
    assert second["line"] == 10
    assert call(workflow="Flow").code == 0


def test_people_see_each_step_what_came_out_and_what_is_odd(call: Call, home: Path) -> None:
    (home / "plan.org").write_text(GOOD.replace(":out a", ":in raw :out a") + BAD)
    ending = call(form=Form.TABLE, given="be\x1b[2Jans")
    assert ending.code == 1
    lines = ending.out.splitlines()
    assert lines[0].startswith("done      Upper  plan.org:3")
    assert "Count:" in lines
    assert any(line.startswith("failed    Bad  plan.org:12") for line in lines)
    assert "skipped   Next  plan.org:16  depends on Bad (plan.org:12), which failed" in lines
    assert any(line.startswith("Flow: done (9); run ") for line in lines)
    assert "input 'raw' is not the output of any component" in ending.err
    assert "\x1b" not in ending.out


def test_a_plan_shows_the_waves_and_runs_nothing(call: Call, home: Path) -> None:
    inner = step("Inner", "sh", "touch ran").replace("** ", "*** ")
    (home / "plan.org").write_text(GOOD + "** Child :workflow:\n" + inner)
    assert call(plan=True, form=Form.TABLE).out.splitlines() == [
        "Flow", "  1. Upper", "  2. Count", "  Child", "    1. Inner",
    ]  # fmt: skip
    (summary,) = call(plan=True).data
    assert (summary["workflow"], summary["tasks"]) == ("Flow", ["Upper", "Count"])
    assert summary["edges"] == [{"from": "Upper", "to": "Count"}]
    assert summary["sub_workflows"][0]["tasks"] == ["Inner"]
    assert not (home / "state").exists()


def test_a_plan_of_steps_that_depend_on_each_other_says_so(call: Call, home: Path) -> None:
    steps = "".join(
        f"** {name} :component:\n#+begin_src sh :in {given} :out {made}\ncat\n#+end_src\n"
        for name, given, made in (("A", "b", "a"), ("B", "a", "b"))
    )
    (home / "plan.org").write_text(f"* Cycle :workflow:\n{steps}")
    said = "  cannot run: its steps depend on each other; see `horae check`"
    assert call(plan=True, form=Form.TABLE).out.splitlines() == ["Cycle", said]


def test_a_run_is_taken_up_by_its_name(call: Call, home: Path) -> None:
    (home / "plan.org").write_text(GOOD.replace("wc -c", "exit 1"))
    failed = call(given="beans").data[0]["run"]
    (home / "plan.org").write_text(GOOD)
    (record,) = call(given="beans", resume=failed).data
    assert [each["status"] for each in record["steps"]] == ["reused", "done"]
    assert record["tasks"]["Count"] == "5"
    for name in ("nobody", "../.."):
        with pytest.raises(Exception, match="contains no run") as told:
            call(resume=name)
        assert getattr(told.value, "exit_code", None) == 4


def test_a_workflow_that_is_not_there_is_said_with_those_that_are(call: Call, home: Path) -> None:
    with pytest.raises(Exception, match="contains no workflow 'Gone'; its workflows: Flow"):
        call(workflow="Gone")
    (home / "plan.org").write_text("* Prose\n")
    with pytest.raises(Exception, match="contains no workflow; to run an entry"):
        call()


def test_a_run_that_takes_too_long_has_an_exit_code_of_its_own(
    call: Call, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HORAE_RUN_TIMEOUT", "1s")
    (home / "plan.org").write_text(flow(step("Slow", "sh", "sleep 1000")))
    ending = call()
    assert (ending.code, ending.data[0]["status"]) == (124, "killed")


def test_wb_runs_and_plans_as_its_documents_spell_it(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def said(*args: str) -> tuple[int, Any]:
        code = run(wb, name="wb", args=args)
        return code, json.loads(capfd.readouterr().out)

    code, records = said("run", "plan.org", "two", "beans")
    assert (code, records[0]["tasks"]) == (0, {"Upper": "TWO BEANS", "Count": "9"})
    code, wrapped = said("--json", "workflow", "run", "plan.org", "beans")
    assert (code, wrapped["ok"], wrapped["verb"]) == (0, True, "workflow run")
    assert wrapped["data"][0]["tasks"]["Upper"] == "BEANS"
    code, plan = said("workflow", "plan", "plan.org")
    assert (code, plan[0]["tasks"], plan[0]["schedule"]) == (0, ["Upper", "Count"], None)
    (home / "plan.org").write_text(BAD)
    assert said("run", "plan.org")[0] == 1


def alive(mark: str) -> list[int]:
    return [pid for pid in pids() if mark.encode() in proc(pid, "cmdline")]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_all_that_was_started_and_is_recorded(home: Path, sent: signal.Signals) -> None:
    mark = f"1000.{os.getpid()}"
    (home / "plan.org").write_text(flow(step("Slow", "sh", f"setsid sleep {mark} & sleep {mark}")))
    wb_main = "from horae.cli.wb import main; main()"
    args = [sys.executable, "-c", wb_main, "run", "plan.org"]
    process = subprocess.Popen(
        args, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    wait_until(
        lambda: len([pid for pid in alive(mark) if b"sleep" in proc(pid, "cmdline")[:5]]) >= 2,
        within=20,
    )
    process.send_signal(sent)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    (record,) = json.loads(out)
    assert (record["status"], record["reason"]) == ("killed", "interrupted")
    wait_until(lambda: not alive(mark), within=5)


def test_a_terminal_shows_the_steps_as_they_go_on(home: Path) -> None:
    (home / "plan.org").write_text(GOOD)
    script = (
        "from horae.sources.workflows.commands import run_file; from horae.cli.output import Output; import sys;"
        "sys.exit(run_file('plan.org', output=Output.of(None), given='beans'))"
    )
    ours, theirs = pty.openpty()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=theirs, stderr=theirs, env=env
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:  # Linux says so when the other end is closed
        pass
    os.close(ours)
    assert process.wait() == 0
    text = shown.decode()
    assert "Upper" in text
    assert "Flow: done (5); run " in text
