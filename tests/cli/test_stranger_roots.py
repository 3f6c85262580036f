"""A command that reads plans itself reads those of its ledger, wherever it is called."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from commands import run_command

if TYPE_CHECKING:
    from pathlib import Path

    from calling import Call


def plan(title: str) -> str:
    return f"* {title}\n:PROPERTIES:\n:SCHEDULE: 0 9 1 1 *\n:COMMAND: pwd\n:END:\n"


def keep_for_a_moment(*args: str, **environ: str) -> None:
    """Let an engine read its plans, and stop it again."""
    ending = run_command(
        *("horae", "up", *args, "--seconds", "0.5", "--log", "plain"),
        environ={**os.environ, "HORAE_LISTEN": "127.0.0.1:0", **environ},
    )
    assert ending.code == 0, ending.err


def armed(call: Call, *args: str) -> list[str]:
    return [each["title"] for each in call("status", "--json", *args).data["next"]]


@pytest.fixture
def places(call: Call, tmp_path: Path) -> Path:  # the call is made in tmp_path
    assert call("--version").code == 0
    for name in ("tenants/local", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "plan.org").write_text(plan(f"Plan of {name}"))
    return tmp_path


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"WB_TENANT": "local"},
        {"HORAE_TENANT": "local"},
        {"HORAE_TENANT": "local", "WB_TENANT": "other"},
    ],
)
def test_the_older_variables_name_the_plan_root_for_every_command(
    call: Call, places: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    monkeypatch.setenv("WB_DATA", str(places / "tenants"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    keep_for_a_moment()
    monkeypatch.chdir(places / "elsewhere")
    ran = call("run", "Plan of tenants/local", "--wait", "--json")
    assert (ran.code, ran.data["status"]) == (0, "done")
    assert armed(call) == ["Plan of tenants/local"]


def test_a_root_that_is_named_wins_over_the_older_variables(
    call: Call, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WB_DATA", str(places / "tenants"))
    elsewhere = str(places / "elsewhere")
    ran = call(
        "run", "Plan of elsewhere", "--root", elsewhere, "--data", f"{elsewhere}/.horae", "--json"
    )
    assert ran.data["status"] == "done"


@pytest.mark.parametrize("ask", ["run", "agent tick"])
def test_the_ledger_of_other_plans_is_left_alone(
    call: Call, places: Path, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    data, root = str(places / "ledger"), str(places / "tenants")
    keep_for_a_moment(root, "--data", data)
    monkeypatch.chdir(places / "elsewhere")
    ending = call(*ask.split(), "Plan of elsewhere", "--data", data, "--json")
    error = json.loads(ending.err)["error"]
    assert (ending.code, error["code"]) == (6, "other_root")
    assert error["message"] == (
        f"{data}: the ledger belongs to the plans in {root}, not in {places / 'elsewhere'}; "
        f"use --root {root}"
    )
    assert armed(call, "--data", data, "--root", root) == ["Plan of tenants/local"]
    assert call("run", "Plan of tenants/local", "--data", data, "--root", root).code == 0


def test_a_run_without_an_engine_also_makes_a_ledger_that_is_of_its_plans_alone(
    call: Call, places: Path
) -> None:
    data = str(places / "ledger")
    for name, code in (("tenants/local", 0), ("elsewhere", 6)):
        words = ("run", f"Plan of {name}", "--root", str(places / name), "--data", data)
        assert call(*words).code == code, name
    assert armed(call, "--data", data) == ["Plan of tenants/local"]


@pytest.mark.parametrize(
    "line", ["run Digest", "agent tick wren", "approval approve 1", "trigger run report"]
)
def test_no_command_makes_a_plan_root_that_is_not_there(
    call: Call, places: Path, line: str
) -> None:
    ending = call(*line.split(), "--root", "nowhere", "--json")
    assert (ending.code, json.loads(ending.err)["error"]["code"]) == (4, "no_root")
    assert not (places / "nowhere").exists()


def test_a_plan_root_may_move_with_its_ledger(
    call: Call, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_for_a_moment(str(places / "elsewhere"))
    (places / "elsewhere").rename(places / "moved")
    monkeypatch.chdir(places / "moved")
    assert call("run", "Plan of elsewhere", "--json").data["status"] == "done"


def test_a_ledger_of_plans_that_are_nowhere_any_more_may_get_others(
    call: Call, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = str(places / "ledger")
    keep_for_a_moment(str(places / "elsewhere"), "--data", data)
    (places / "elsewhere").rename(places / "moved")
    monkeypatch.chdir(places / "moved")
    assert call("run", "Plan of elsewhere", "--data", data, "--json").data["status"] == "done"
