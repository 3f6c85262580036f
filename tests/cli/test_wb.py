"""`wb` prints the JSON that the workbook documents show."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import horae
from horae.cli.run import run
from horae.cli.wb import wb

PLAN = "* Deadline only :workflow:\nDEADLINE: <2026-07-04 Sat>\n** Idea :component:\n"

Call = Callable[..., tuple[int, Any]]


@pytest.fixture
def call(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Call:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.org").write_text(PLAN)

    def calling(*args: str) -> tuple[int, Any]:
        code = run(wb, name="wb", args=args)
        out = capsys.readouterr().out
        return code, json.loads(out) if out else None

    return calling


def test_query_and_tangle_print_the_data_alone(call: Call) -> None:
    assert call("query", "plan.org") == (0, horae.query(PLAN))
    assert call("tangle", "plan.org") == (0, horae.tangle(PLAN))


def test_lint_prints_the_findings_and_fails_if_there_are_any(call: Call, tmp_path: Path) -> None:
    assert call("lint", "plan.org") == (1, horae.validate(PLAN))
    (tmp_path / "clean.org").write_text("* Sow\n")
    assert call("lint", "clean.org") == (0, [])


def test_json_wraps_the_answer_with_its_verb(call: Call) -> None:
    assert call("--json", "query", "plan.org") == (
        0,
        {"ok": True, "verb": "query", "data": horae.query(PLAN)},
    )
    code, answer = call("--json", "--agent", "tangle", "gone.org")
    assert code == 4
    assert (answer["ok"], answer["verb"]) == (False, "tangle")
    assert answer["error"] == {
        "code": "plan_missing",
        "message": "gone.org: does not exist",
        "hint": None,
        "retryable": False,
    }


def test_keys_are_sorted(call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(wb, name="wb", args=["query", "plan.org"]) == 0
    row = json.loads(capsys.readouterr().out)[0]
    assert list(row) == sorted(row)
    assert list(row["deadline"]) == ["active", "at", "repeat"]
