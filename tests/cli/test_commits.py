"""A receipt says in which commit the text stands that it ran, and nothing if it stands in none."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from commands import engine_up
from horae.files.git import trees
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from calling import Call

PLAN = "* Tell\n:PROPERTIES:\n:ID: tell\n:COMMAND: sh -c 'echo at=$HORAE_COMMIT'\n:END:\n"
OTHER = PLAN.replace("Tell", "Other").replace("tell", "other")


def git(*args: str, at: Path) -> str:
    names = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")
    environ = {**os.environ, **dict.fromkeys(names, "iris")}
    done = subprocess.run(
        ["git", *args], cwd=at, env=environ, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def commit(at: Path) -> str:
    git("add", "-A", at=at)
    git("commit", "-q", "-m", "plan", at=at)
    return git("rev-parse", "HEAD", at=at)


def ran_at(call: Call, word: str = "tell") -> str | None:
    """Let an entry run, and return the commit in its receipt, which its run was told of, too."""
    said = call("run", word, "--wait", "--json")
    assert said.code == 0, said
    ended = said.data
    commit: str | None = ended["commit"]
    assert ended["reason"] == f"at={commit or ''}"
    return commit


@pytest.fixture
def root(call: Call, tmp_path: Path) -> Path:  # the call is made in tmp_path
    assert call("--version").code == 0
    git("init", "-q", at=tmp_path)
    (tmp_path / ".gitignore").write_text(".horae\nhidden.org\n")
    (tmp_path / "plan.org").write_text(PLAN)
    return tmp_path


def test_the_commit_is_the_one_in_which_the_text_stands(call: Call, root: Path) -> None:
    assert ran_at(call) is None, "before the first commit there is none"
    first = commit(root)
    assert ran_at(call) == first, "what was read before it was committed is found there"
    (root / "plan.org").write_text(PLAN + "More.\n")
    assert ran_at(call) is None, "what is not committed stands in no commit"
    (root / "plan.org").write_text(PLAN)
    second = (root / "notes.txt").write_text("x") and commit(root)
    assert ran_at(call) == second, "it was another text meanwhile"
    (root / "notes.txt").write_text("y")
    commit(root)
    assert ran_at(call) == second, "the first commit in which this text was seen"


def test_each_file_stands_for_itself(call: Call, root: Path) -> None:
    head = commit(root)
    (root / "a new one.org").write_text(OTHER)
    (root / "hidden.org").write_text(OTHER.replace("other", "hidden").replace("Other", "Hidden"))
    assert [ran_at(call, word) for word in ("tell", "other", "hidden")] == [head, None, None]
    git("add", "a new one.org", at=root)
    assert ran_at(call, "other") is None, "to be added is not yet to be committed"
    assert ran_at(call, "other") != commit(root) == ran_at(call, "other")


def test_a_plan_root_may_be_below_the_top(
    call: Call, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = root / "garden beds"
    below.mkdir()
    (root / "plan.org").rename(below / "plan.org")
    head = commit(root)
    monkeypatch.chdir(below)
    assert ran_at(call) == head


def test_without_git_there_is_none(call: Call, tmp_path: Path) -> None:
    assert call("--version").code == 0
    (tmp_path / "plan.org").write_text(PLAN)
    assert ran_at(call) is None


def test_a_repository_that_is_not_to_be_trusted_keeps_no_plan_from_running(
    call: Call, root: Path
) -> None:
    commit(root)
    git("config", "core.fsmonitor", "touch pwned", at=root)
    git("config", "filter.evil.clean", "touch pwned; cat", at=root)
    assert ran_at(call) is None
    assert not (root / "pwned").exists()


@pytest.mark.parametrize("flag", ["assume-unchanged", "skip-worktree"])
def test_a_change_that_git_was_told_to_overlook_stands_in_no_commit(
    call: Call, root: Path, flag: str
) -> None:
    commit(root)
    git("update-index", f"--{flag}", "plan.org", at=root)
    (root / "plan.org").write_text(PLAN + "More.\n")
    assert ran_at(call) is None


def test_what_is_saved_and_committed_while_git_is_asked_is_not_what_was_read(
    call: Call,
    root: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = commit(root)
    assert ran_at(call) == first
    (root / "plan.org").write_text(PLAN + "Draft.\n")
    slow = tmp_path_factory.mktemp("slow")
    real = shutil.which("git")
    (slow / "git").write_text(  # a person is faster than git, once
        f"""#!/bin/sh
if [ ! -e {slow}/asked ]; then
  : > {slow}/asked
  printf 'Final.\\n' >> {root}/plan.org
  {real} -C {root} -c user.name=iris -c user.email=iris commit -q -a -m final
fi
exec {real} "$@"
"""
    )
    (slow / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow}:{os.environ['PATH']}")
    assert ran_at(call) is None, "a draft that was never committed"
    assert (slow / "asked").exists()
    assert ran_at(call) == git("rev-parse", "HEAD", at=root) != first


def test_a_git_that_hangs_keeps_no_plan_waiting_for_long(
    call: Call,
    root: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commit(root)
    slow = tmp_path_factory.mktemp("slow")
    (slow / "git").write_text("#!/bin/sh\nexec sleep 1000\n")
    (slow / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow}:{os.environ['PATH']}")
    monkeypatch.setattr(trees, "_PATIENCE", timedelta(milliseconds=200))
    began = time.monotonic()
    assert ran_at(call) is None
    assert time.monotonic() - began < 50, "any other call of git is given a minute"


NAMES = (
    "-dash.org", ":(top)plan.org", "a\nline.org", "[b]*?.org", "gr\u00fcn \"bed\".org", "deep/er.org",
    "# branch.oid f00.org",
)  # fmt: skip


def test_a_file_may_have_any_name_that_git_takes(call: Call, root: Path) -> None:
    (root / "deep").mkdir()
    for n, name in enumerate(NAMES):
        (root / name).write_text(OTHER.replace("other", f"o{n}").replace("Other", f"O{n}"))
    head = commit(root)
    for n, name in enumerate(NAMES):
        assert ran_at(call, f"o{n}") == head, name
        with (root / name).open("a") as file:
            file.write("More.\n")
        assert ran_at(call, f"o{n}") is None, name
    assert ran_at(call) == head


@pytest.mark.parametrize("is_linked", [False, True])
def test_an_engine_notices_that_a_text_was_committed(
    call: Call, root: Path, monkeypatch: pytest.MonkeyPatch, *, is_linked: bool
) -> None:
    head = commit(root)
    if is_linked:  # where .git is a file, which says where the rest is
        git("worktree", "add", "-q", "linked", at=root)
        root /= "linked"
        monkeypatch.chdir(root)
    assert ran_at(call) == head  # so the ledger knows it when the engine begins
    with engine_up(root):
        for more in ("More.\n", "Most.\n"):  # at first it looks again for other reasons, too
            (root / "plan.org").write_text(PLAN + more)
            wait_until(lambda: ran_at(call) is None)
            head = commit(root)
            wait_until(lambda: ran_at(call) == head)  # noqa: B023
