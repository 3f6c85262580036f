"""Where members work and how their work comes home, with real git."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

import pytest

from horae.core.ports import RunError
from horae.files.git.trees import Trees, Undelivered
from scale import scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

P = ParamSpec("P")
PERSON = {
    "GIT_AUTHOR_NAME": "ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
}


def story(test: Callable[P, Coroutine[object, object, None]]) -> Callable[P, None]:
    """Run a test that waits for things."""

    @wraps(test)
    def told(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return told


def git(*args: str, at: Path) -> str:
    """Call git as a person does."""
    command = ["git", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always", *args]
    environ = {**os.environ, **PERSON}
    done = subprocess.run(command, cwd=at, capture_output=True, check=True, text=True, env=environ)
    return done.stdout


def write(name: str, text: str, *, at: Path) -> None:
    """Write a file and commit it."""
    (at / name).write_text(text)
    git("add", name, at=at)
    git("commit", "-qm", f"Write {name}", at=at)


@dataclass(frozen=True)
class Ground:
    """A bare origin, a plan root that is a clone of it, and two data directories."""

    side: Path

    @property
    def origin(self) -> Path:
        return self.side / "origin.git"

    @property
    def root(self) -> Path:
        return self.side / "plan"

    def here(self) -> Trees:
        """Return the trees of the machine that has the plan root."""
        return Trees(self.root, self.side / "data", [self.origin])

    def away(self) -> Trees:
        """Return the trees of a node of a cluster, whose root is the engine's own clone."""
        root = self.side / "other/plan"
        if not root.exists():
            git("clone", "-q", str(self.origin), str(root), at=self.side)
        return Trees(root, self.side / "other", [self.origin], str(self.origin))


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    git("init", "-q", "--bare", "origin.git", at=tmp_path)
    git("clone", "-q", "origin.git", "plan", at=tmp_path)
    for name in ("data", "other"):
        (tmp_path / name).mkdir()
    made = Ground(tmp_path)
    write("plan.org", "* Sow\n", at=made.root)
    git("push", "-q", "origin", "main", at=made.root)
    return made


@story
async def test_a_member_works_in_the_root_if_that_is_no_repository(tmp_path: Path) -> None:
    trees = Trees(tmp_path, tmp_path / ".horae")
    assert (await trees.make("wren")).path == tmp_path
    brought = await trees.deliver("wren")
    assert brought.facts() == {}
    assert await trees.undelivered("wren") is None


@pytest.mark.parametrize("where", ["here", "away"])
@story
async def test_what_a_member_commits_comes_to_the_origin(ground: Ground, where: str) -> None:
    trees: Trees = getattr(ground, where)()
    tree = await trees.make("wren")
    assert tree.path == trees.path_of("wren")
    assert tree.trouble == ""
    write("work.org", "* Work\n", at=tree.path)
    left = await trees.undelivered("wren")
    assert left is not None
    assert (left.commits, left.tip) == (1, git("rev-parse", "HEAD", at=tree.path).strip())
    brought = await trees.deliver("wren")
    assert brought.facts() == {"delivered": True}
    assert git("show", "main:work.org", at=ground.origin) == "* Work\n"
    assert await trees.undelivered("wren") is None


@pytest.mark.parametrize("where", ["here", "away"])
@story
async def test_a_member_signs_its_commits_on_a_machine_where_git_knows_nobody(
    ground: Ground, where: str
) -> None:
    tree = await getattr(ground, where)().make("wren")
    nobody = {"PATH": os.environ["PATH"], "HOME": str(ground.side), "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-c", "user.useConfigOnly=true", "commit", "-q", "--allow-empty", "-mNote"]
    subprocess.run(command, cwd=tree.path, check=True, env=nobody)
    said = git("log", "-1", "--format=%an <%ae>", at=tree.path)
    assert said == "wren <wren@horae.localhost>\n"


@pytest.mark.parametrize("where", ["here", "away"])
@story
async def test_what_a_member_leaves_uncommitted_is_committed_in_its_name_and_comes_home(
    ground: Ground, where: str
) -> None:
    trees: Trees = getattr(ground, where)()
    path = (await trees.make("wren")).path
    (path / "plan.org").write_text("* Sow\n* Reap\n")
    (path / "diary.org").write_text("* Today\n")
    (path / ".gitignore").write_text("build\n")
    (path / "build").write_text("stays here\n")
    brought = await trees.deliver("wren")
    assert brought.undelivered is None
    [told] = git("log", "-1", "--format=%H %an %cn %s", "main", at=ground.origin).splitlines()
    assert told == f"{brought.facts()['committed']} wren wren Uncommitted work of wren"
    assert git("show", "main:diary.org", at=ground.origin) == "* Today\n"
    assert "build" not in git("ls-tree", "--name-only", "main", at=ground.origin).splitlines()
    assert (path / "build").read_text() == "stays here\n"
    assert (await trees.deliver("wren")).facts() == {"delivered": True, "delivery": "nothing new"}


@story
async def test_work_that_cannot_be_committed_is_named_and_stays(ground: Ground) -> None:
    trees = ground.here()
    path = (await trees.make("wren")).path
    (path / "draft.org").write_text("* Draft\n")
    (path / ".git" / "MERGE_HEAD").write_text(git("rev-parse", "HEAD", at=path))
    brought = await trees.deliver("wren")
    assert str(brought.undelivered) == (
        f"uncommitted work in {path}: it cannot be committed: {path}: a merge or rebase is in progress"
    )
    assert (await trees.make("wren")).path == path
    assert (path / "draft.org").read_text() == "* Draft\n"


# What agents do to the repositories that they work in


def _leaves(path: Path, mark: str) -> None:
    (path / f"{mark}.txt").write_text(mark)


def _changes(path: Path, mark: str) -> None:
    (path / "plan.org").write_text(f"* Sow\n* {mark}\n")


def _deletes(path: Path, mark: str) -> None:
    _leaves(path, mark)
    (path / "spare.org").unlink(missing_ok=True)


def _commits_elsewhere(path: Path, mark: str) -> None:
    git("switch", "-qc", f"topic-{mark}", at=path)
    write(f"{mark}.txt", mark, at=path)


def _detaches(path: Path, mark: str) -> None:
    git("checkout", "-q", "--detach", at=path)
    write(f"{mark}.txt", mark, at=path)


def _merges(path: Path, mark: str) -> None:
    start = git("rev-parse", "HEAD", at=path).strip()
    for name in ("one", "two"):
        git("checkout", "-q", "-B", f"{name}-{mark}", start, at=path)
        write("plan.org", f"* {name} {mark}\n", at=path)
    subprocess.run(
        ["git", "merge", "-q", f"one-{mark}"], cwd=path, check=False, capture_output=True
    )


def _stages(path: Path, mark: str) -> None:
    _leaves(path, mark)
    git("add", "--all", at=path)
    (path / ".git" / "index.lock").touch()


def _nests(path: Path, mark: str) -> None:
    nested = path / f"nested-{mark}"
    git("init", "-q", str(nested), at=path)
    write("inside.txt", mark, at=nested)


def _links(path: Path, mark: str) -> None:
    _leaves(path, mark)
    (path / f"link-{mark}").symlink_to("/etc/hostname")


def _many(path: Path, mark: str) -> None:
    (path / f"many-{mark}").mkdir()
    for number in range(200):
        (path / f"many-{mark}" / f"{number}.txt").write_text(f"{mark} {number}")


ODD: tuple[Callable[[Path, str], None], ...] = (
    _leaves, _changes, _deletes, _commits_elsewhere, _detaches,
    _merges, _stages, _nests, _links, _many,
)  # fmt: skip


@story
async def test_nothing_that_an_agent_leaves_is_lost_whatever_it_does_to_its_repository(
    ground: Ground,
) -> None:
    chance = random.Random(7)
    write("spare.org", "* Spare\n", at=ground.root)
    git("push", "-q", "origin", "main", at=ground.root)
    trees = ground.here()
    for number in range(scaled(50, few=len(ODD))):
        agent = chance.choice(["wren", "moss", "fern"])
        path = (await trees.make(agent)).path  # whatever was before, the next run goes on
        mark, odd = f"mark{number}", ODD[number % len(ODD)]
        odd(path, mark)
        brought = await trees.deliver(agent)
        assert _is_found(mark, ground.root, ground.origin, path), (odd.__name__, brought)
        assert git("status", "--porcelain", at=ground.root) == "", odd.__name__
        if brought.undelivered is not None:
            assert str(brought.undelivered)
            await asyncio.to_thread(shutil.rmtree, path)  # a person has taken it


def _is_found(mark: str, root: Path, origin: Path, clone: Path) -> bool:
    for place in (root, origin):
        if git("log", "--all", "--format=%H", f"-S{mark}", at=place):
            return True
    return any(
        mark in each.read_text(errors="replace")
        for each in clone.rglob("*")
        if each.is_file() and ".git" not in each.relative_to(clone).parts[:1]
    )


@pytest.mark.parametrize("where", ["here", "away"])
@story
async def test_a_clone_follows_what_others_pushed(ground: Ground, where: str) -> None:
    trees: Trees = getattr(ground, where)()
    await trees.make("wren")
    write("more.org", "* More\n", at=ground.root)
    git("push", "-q", "origin", "main", at=ground.root)
    tree = await trees.make("wren")
    assert (tree.path / "more.org").read_text() == "* More\n"


@pytest.mark.parametrize("where", ["here", "away"])
@story
async def test_what_does_not_fit_is_on_a_branch_and_says_so(ground: Ground, where: str) -> None:
    trees: Trees = getattr(ground, where)()
    tree = await trees.make("wren")
    write("plan.org", "* Wren's\n", at=tree.path)
    write("plan.org", "* A person's\n", at=ground.root)
    git("push", "-q", "origin", "main", at=ground.root)
    brought = await trees.deliver("wren")
    assert brought.branch == "horae/wren"
    assert str(brought.undelivered).startswith("horae/wren: ")
    kept_at = ground.root if where == "here" else ground.origin
    assert git("show", "horae/wren:plan.org", at=kept_at) == "* Wren's\n"
    # The clone stays as it is, and says why.
    assert "plan.org" in (await trees.make("wren")).trouble


@pytest.mark.parametrize("where", ["here", "away"])
@story
async def test_an_origin_that_is_away_leaves_the_work_where_it_is_and_says_how_much(
    ground: Ground, where: str
) -> None:
    trees: Trees = getattr(ground, where)()
    tree = await trees.make("wren")
    for name in ("one.org", "two.org"):
        write(name, "* Work\n", at=tree.path)
    ground.origin.rename(ground.side / "gone.git")
    brought = await trees.deliver("wren")
    left = brought.undelivered
    assert left is not None
    assert left.commits == 2
    assert str(left).startswith(f"2 commits in {tree.path}: ")
    assert brought.facts()["undelivered"] == left.data()
    assert (ground.side / "gone.git").rename(ground.origin)
    assert (await trees.deliver("wren")).undelivered is None


@story
async def test_a_clone_stays_on_the_branch_of_its_root(ground: Ground) -> None:
    git("branch", "deploy", at=ground.origin)
    trees = ground.away()
    git("switch", "-qc", "deploy", "origin/main", at=trees.root)
    tree = await trees.make("wren")
    write("work.org", "* Work\n", at=tree.path)
    assert (await trees.deliver("wren")).undelivered is None
    assert git("show", "deploy:work.org", at=ground.origin) == "* Work\n"
    assert "work.org" not in git("ls-tree", "--name-only", "main", at=ground.origin)


@story
async def test_an_origin_that_is_not_named_says_which_setting_would_name_it(
    ground: Ground,
) -> None:
    trees = Trees(ground.root, ground.side / "data")
    tree = await trees.make("wren")
    write("work.org", "* Work\n", at=tree.path)
    brought = await trees.deliver("wren")
    assert brought.facts()["delivered"] is False
    assert "git.local" in str(brought.undelivered)
    away = replace(ground.away(), local=())
    assert "git.local" in (await away.make("wren")).trouble


@story
async def test_what_a_member_writes_into_its_settings_leads_its_work_nowhere_else(
    ground: Ground,
) -> None:
    trees = ground.away()
    tree = await trees.make("wren")
    elsewhere = ground.side / "elsewhere.git"
    git("init", "-q", "--bare", str(elsewhere), at=ground.side)
    git("remote", "set-url", "--push", "origin", str(elsewhere), at=tree.path)
    write("work.org", "* Work\n", at=tree.path)
    assert (await trees.deliver("wren")).undelivered is None
    assert git("show", "main:work.org", at=ground.origin) == "* Work\n"
    assert git("branch", "--list", at=elsewhere) == ""


HOSTILE = """
[core]
\tfsmonitor = "touch CANARY;"
\thooksPath = .git/evil
\tsshCommand = touch CANARY
\talternateRefsCommand = touch CANARY
\tworktree = /tmp
\trepositoryformatversion = 1
[alias]
\tcommit = !touch CANARY
[diff]
\texternal = touch CANARY;
[diff "x"]
\ttextconv = touch CANARY;
[merge "x"]
\tdriver = touch CANARY
[filter "x"]
\tclean = touch CANARY; cat
\tsmudge = touch CANARY; cat
\tprocess = touch CANARY
[include]
\tpath = evil.inc
[extensions]
\tpartialClone = origin
[remote "origin"]
\tpromisor = true
\tuploadpack = touch CANARY; git-upload-pack
[uploadpack]
\tpackObjectsHook = touch CANARY;
[url "ext::touch CANARY #"]
\tinsteadOf = /
[gpg]
\tprogram = touch CANARY
[commit]
\tgpgSign = true
"""


def _is_hostile(path: Path, canary: Path) -> None:
    """Write all into a repository that makes git run a program, as an agent in it can."""
    directory = path / ".git"
    with (directory / "config").open("a") as file:
        file.write(HOSTILE.replace("CANARY", str(canary)))
    (directory / "info").mkdir(exist_ok=True)
    (directory / "info/attributes").write_text("* filter=x diff=x merge=x\n")
    for folder in ("hooks", "evil"):
        (directory / folder).mkdir(exist_ok=True)
        for name in ("pre-commit", "post-commit", "post-merge", "post-checkout", "post-index-change",
                     "reference-transaction", "commit-msg", "prepare-commit-msg"):  # fmt: skip
            (directory / folder / name).write_text(f"#!/bin/sh\ntouch {canary}\n")
            (directory / folder / name).chmod(0o755)


def test_a_repository_that_is_hostile_runs_a_program(tmp_path: Path) -> None:
    """What follows could not fail otherwise."""
    git("init", "-q", ".", at=tmp_path)
    _is_hostile(tmp_path, tmp_path / "canary")
    subprocess.run(["git", "status"], cwd=tmp_path, check=False, capture_output=True)
    assert (tmp_path / "canary").exists()


@pytest.mark.parametrize("where", ["here", "away"])
@story
async def test_no_setting_of_a_clone_counts_and_the_work_in_it_is_delivered(
    ground: Ground, where: str
) -> None:
    trees: Trees = getattr(ground, where)()
    path, canary = (await trees.make("wren")).path, ground.side / "canary"
    write("work.org", "* Work\n", at=path)
    (path / "draft.org").write_text("* Draft\n")
    (path / ".gitattributes").write_text("* filter=x diff=x merge=x\n")
    _is_hostile(path, canary)
    config = (path / ".git/config").read_text()
    assert (await trees.deliver("wren")).undelivered is None
    for name in ("work", "draft"):
        assert git("show", f"main:{name}.org", at=ground.origin) == f"* {name.capitalize()}\n"
    git("pull", "-q", at=ground.root)
    write("next.org", "* Next\n", at=ground.root)
    git("push", "-q", "origin", "main", at=ground.root)
    assert (await trees.make("wren")).trouble == ""
    assert (path / "next.org").read_text() == "* Next\n"
    assert (path / ".git/config").read_text() == config
    _nests(path, "inner")
    _is_hostile(path / "nested-inner", canary)
    await trees.deliver("wren")
    await trees.make("wren")
    await trees.undelivered("wren")
    assert not canary.exists()


@story
async def test_a_clone_whose_repository_is_elsewhere_is_refused(ground: Ground) -> None:
    trees = ground.here()
    path = (await trees.make("wren")).path
    (path / ".git").rename(ground.side / "moved")
    (path / ".git").write_text(f"gitdir: {ground.side / 'moved'}\n")
    assert "its .git is not a directory" in (await trees.make("wren")).trouble
    assert (await trees.deliver("wren")).undelivered is not None


@story
async def test_a_clone_that_was_not_finished_is_made_anew(ground: Ground) -> None:
    trees = ground.here()
    half = ground.side / "data/trees/wren~"
    half.mkdir(parents=True)
    git("init", "-q", ".", at=half)  # as a kill in the middle leaves it
    tree = await trees.make("wren")
    assert (tree.path / "plan.org").exists()
    assert not half.exists()


@story
async def test_what_must_not_come_in_stays_out_of_the_root_and_of_the_clone(
    ground: Ground,
) -> None:
    trees = ground.away()
    (ground.root / "evil").symlink_to("/etc/passwd")
    git("add", "evil", at=ground.root)
    git("commit", "-qm", "evil", at=ground.root)
    git("push", "-q", "origin", "main", at=ground.root)
    for _ in range(2):
        tree = await trees.make("wren")
        assert "evil" in tree.trouble
        assert not (tree.path / "evil").is_symlink()


@story
async def test_a_clone_of_another_origin_is_not_worked_in(ground: Ground) -> None:
    await ground.away().make("wren")
    second = ground.side / "second.git"
    git("clone", "-q", "--bare", str(ground.origin), str(second), at=ground.side)
    moved = Trees(ground.away().root, ground.side / "other", [second], str(second))
    with pytest.raises(RunError, match="not a clone of"):
        await moved.make("wren")


def test_of_a_machine_that_is_gone_nothing_is_guessed() -> None:
    left = Undelivered.lost("wren", "machine-2")
    assert left.commits is None
    assert str(left) == (
        "whether wren has undelivered work on machine-2 is not known: "
        "the node is lost, and its clone cannot be read"
    )
