"""The examples: each directory is listed, has no problem, and does what its README line says."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from calling import Call

EXAMPLES = Path(__file__).parents[2] / "examples"
# What comes next in each directory of plans, and how many runs a simulated week has.
NEXT = {
    "backup": {"Nightly backup", "Test the backup"},
    "digest": {"Daily digest", "Nightly digest", "Weekly report", "Hourly check"},
    "dependencies": {"Update dependencies"},
    "triage": {"triage", "review"},
    "release-board": {"Check the download links", "release"},
    "deploy-trigger": {"smoke-test"},
}
RUNS = {"backup": 7 + 1, "digest": 7 + 7 + 1 + 167, "dependencies": 1}


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the examples, on a machine that has a program `claude` and a secret."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    claude = tmp_path / "bin" / "claude"
    claude.parent.mkdir()
    claude.write_text("#!/bin/sh\nexit 0\n")
    claude.chmod(0o755)
    monkeypatch.setenv("PATH", str(claude.parent), prepend=":")
    monkeypatch.setenv("DEPLOY_SECRET", f"whsec_{'A' * 40}")
    monkeypatch.setenv("TZ", "UTC")
    return tmp_path / "examples"


def test_the_readme_has_a_line_for_each_directory() -> None:
    listed = re.findall(
        r"^\| `([\w-]+)/` \| \S", (EXAMPLES / "README.md").read_text(), re.MULTILINE
    )
    there = {path.name for path in EXAMPLES.iterdir() if path.is_dir() and path.name[0] != "_"}
    assert sorted(listed) == sorted(there)
    assert NEXT.keys() <= there


@pytest.mark.parametrize("name", NEXT)
def test_an_example_has_no_problem_and_its_entries_come(
    call: Call, copies: Path, name: str
) -> None:
    subprocess.run(["git", "init", "-q", copies / name], check=True)
    checked = call("check", str(copies / name), "--json")
    assert (checked.code, checked.data) == (0, [])
    listed = call("next", str(copies / name), "-n", "200", "--at", "2026-06-28", "--json")
    assert {each["title"] for each in listed.data} == NEXT[name]


@pytest.mark.parametrize("name", RUNS)
def test_a_week_of_an_example_is_simulated(call: Call, copies: Path, name: str) -> None:
    week = ("--from", "2026-07-05T00:00:00Z", "--days", "7", "--tz", "UTC", "--json")
    simulated = call("simulate", str(copies / name), *week)
    assert (simulated.code, simulated.data["totals"]) == (0, {"ran": RUNS[name]})


def test_the_digest_runs_with_python_and_a_shell(call: Call, copies: Path) -> None:
    ran = call("run", str(copies / "digest" / "digest.org"))
    assert ran.code == 0, ran.err
    assert "yesterday: 3 login, 2 order, 1 error" in ran.out


def test_the_lifecycle_of_triage_rests_after_its_work(call: Call, copies: Path) -> None:
    shown = call("agent", "lifecycle", str(copies / "triage" / "lifecycle.org"), "--next", "6")
    assert shown.code == 0
    states = re.findall(r"^\d+ +\S+ +(\w+)", shown.out, re.MULTILINE)
    assert states == ["label", "label", "label", "label", "answer", "rest"]
