"""`agent work`: kept work is listed, shown, merged or removed."""

from __future__ import annotations

import subprocess
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from calling import call_here
from horae.cli.group import horae
from horae.errors import Exit

if TYPE_CHECKING:
    from pathlib import Path

    from calling import Call

AGENT = """\
* {name} :agent:
:PROPERTIES:
:COMMAND: sh {script}
:END:
** System prompt
You garden.
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan root under git with an agent that is in no crew and commits nothing."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "ada")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "ada@example.org")
    root = tmp_path / "plan"
    root.mkdir()
    (tmp_path / "run.sh").write_text("cat > /dev/null; echo '* Reap' >> plan.org; echo reaped")
    (root / "wren.org").write_text(AGENT.format(name="wren", script=tmp_path / "run.sh"))
    (root / "plan.org").write_text("* Sow\n")
    (root / ".gitignore").write_text(".horae/\n")
    git("init", "-q", "-b", "main", at=root)
    git("add", "-A", at=root)
    git("commit", "-qm", "Begin", at=root)
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def call() -> Call:
    return partial(call_here, horae, "horae")


def git(*args: str, at: Path) -> str:
    done = subprocess.run(["git", *args], cwd=at, check=True, capture_output=True, text=True)
    return done.stdout


def kept(call: Call) -> Any:
    """Run the agent, and return the only work that is kept then."""
    done = call("agent", "run", "wren")
    assert "horae: wren: work: kept on horae-work/wren/" in done.err
    [work] = call("agent", "work", "list", "--json").data
    return work


def test_kept_work_is_listed_and_shown_with_its_diff(call: Call, root: Path) -> None:
    work = kept(call)
    assert (root / "plan.org").read_text() == "* Sow\n"
    assert (work["commits"], work["files"], work["conflicts"]) == (1, ["plan.org"], [])
    assert "merges cleanly" in call("agent", "work", "list").out
    shown = call("agent", "work", "show", "wren")
    assert "\n+* Reap\n" in shown.out
    assert call("agent", "work", "show", work["branch"]).out == shown.out


def test_work_that_is_taken_is_merged_and_its_branch_is_gone(call: Call, root: Path) -> None:
    work = kept(call)
    taken = call("agent", "work", "take", work["work"])
    assert taken.out == f"{work['work']} is merged; its branch is removed\n"
    assert (root / "plan.org").read_text() == "* Sow\n* Reap\n"
    assert git("log", "-1", "--format=%an", "--", "plan.org", at=root) == "wren\n"
    assert call("agent", "work", "list").out == "no work is kept\n"


def test_work_in_conflict_is_not_taken_and_the_error_says_what_to_do(
    call: Call, root: Path
) -> None:
    work = kept(call)
    (root / "plan.org").write_text("* Sow beans\n")
    git("commit", "-qam", "Sow beans", at=root)
    refused = call("agent", "work", "take", "wren")
    assert refused.code == Exit.CONFLICT
    assert "both sides changed plan.org; merge it with `git merge horae-work/wren/" in refused.err
    assert (root / "plan.org").read_text() == "* Sow beans\n"
    assert "conflict in plan.org" in call("agent", "work", "list").out
    assert work["commit"] in git("rev-parse", work["branch"], at=root)


def test_work_that_is_dropped_can_be_restored_by_its_commit(call: Call, root: Path) -> None:
    work = kept(call)
    dropped = call("agent", "work", "drop", "wren")
    assert git("branch", "--list", "horae-work/*", at=root) == ""
    subprocess.run(dropped.out.split("`")[1], shell=True, check=True)
    assert call("agent", "work", "list", "--json").data == [work]


def test_an_unknown_work_names_those_that_are_kept(call: Call, root: Path) -> None:
    unknown = call("agent", "work", "show", "moss")
    assert (unknown.code, unknown.err) == (
        Exit.NOT_FOUND,
        "horae: there is no work 'moss'; no work is kept\n",
    )
    name = kept(call)["work"]
    assert f"kept are {name}" in call("agent", "work", "drop", "moss/1").err
