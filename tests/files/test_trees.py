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

from horae.core.ports import HeldBackError, Tree
from horae.files.git.trees import Trees, Undelivered
from scale import scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path
from time import monotonic

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


async def again(trees: Trees, *, is_member: bool = False) -> Tree:
    """Return the tree of the next run of wren."""
    trees.release("wren")
    return await trees.take("wren", is_member=is_member)


@story
async def test_a_member_works_in_the_root_if_that_is_no_repository(tmp_path: Path) -> None:
    trees = Trees(tmp_path, tmp_path / ".horae")
    assert (await again(trees)).path == tmp_path
    brought = await trees.deliver("wren", run="7")
    assert brought.facts() == {}
    assert await trees.undelivered("wren") is None


@pytest.mark.parametrize("where", ["here", "away"])
@story
async def test_what_a_member_commits_comes_to_the_origin(ground: Ground, where: str) -> None:
    trees: Trees = getattr(ground, where)()
    tree = await again(trees)
    assert tree.path == trees.path_of("wren")
    assert tree.trouble == ""
    write("work.org", "* Work\n", at=tree.path)
    left = await trees.undelivered("wren")
    assert left is not None
    assert (left.commits, left.tip) == (1, git("rev-parse", "HEAD", at=tree.path).strip())
    brought = await trees.deliver("wren", run="7")
    assert brought.facts() == {"delivered": True}
    assert git("show", "main:work.org", at=ground.origin) == "* Work\n"
    assert await trees.undelivered("wren") is None


@pytest.mark.parametrize("where", ["here", "away"])
@story
async def test_a_member_signs_its_commits_on_a_machine_where_git_knows_nobody(
    ground: Ground, where: str
) -> None:
    tree = await getattr(ground, where)().take("wren")
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
    path = (await again(trees)).path
    (path / "plan.org").write_text("* Sow\n* Reap\n")
    (path / "diary.org").write_text("* Today\n")
    (path / ".gitignore").write_text("build\n")
    (path / "build").write_text("stays here\n")
    brought = await trees.deliver("wren", run="7")
    assert brought.undelivered is None
    [told] = git("log", "-1", "--format=%H %an %cn %s", "main", at=ground.origin).splitlines()
    assert told == f"{brought.facts()['committed']} wren wren Uncommitted work of wren"
    assert git("show", "main:diary.org", at=ground.origin) == "* Today\n"
    assert "build" not in git("ls-tree", "--name-only", "main", at=ground.origin).splitlines()
    assert (path / "build").read_text() == "stays here\n"
    assert (await trees.deliver("wren", run="7")).facts() == {
        "delivered": True,
        "delivery": "nothing new",
    }


@story
async def test_what_an_agent_that_is_no_member_leaves_uncommitted_is_kept_on_a_branch(
    ground: Ground,
) -> None:
    trees = ground.here()
    path = (await again(trees)).path
    write("work.org", "* Work\n", at=path)
    (path / "draft.org").write_text("* Draft\n")
    brought = await trees.deliver("wren", run="7", is_member=False)
    assert git("show", "main:work.org", at=ground.origin) == "* Work\n"
    assert str(brought.undelivered) == "horae-work/wren/7: it was not committed"
    assert git("show", "horae-work/wren/7:draft.org", at=ground.root) == "* Draft\n"
    # The next run begins with the plan root as it is, and what is kept is not in its way.
    tree = await again(trees)
    assert not (tree.path / "draft.org").exists()
    assert (tree.path / "work.org").read_text() == "* Work\n"
    assert tree.trouble == ""


@pytest.mark.parametrize(("setting", "is_member"), [("deliver", False), ("branch", True)])
@story
async def test_the_setting_decides_about_uncommitted_work_of_every_agent(
    ground: Ground, setting: str, is_member: bool
) -> None:
    trees = replace(ground.here(), uncommitted=setting)
    path = (await again(trees)).path
    (path / "draft.org").write_text("* Draft\n")
    brought = await trees.deliver("wren", run="7", is_member=is_member)
    assert (brought.branch is None) == (setting == "deliver")


@story
async def test_a_merge_that_an_agent_has_not_finished_is_kept_with_all_its_files(
    ground: Ground,
) -> None:
    trees = ground.here()
    path = (await again(trees)).path
    _merges(path, "oats")
    (path / "note.txt").write_text("half\n")
    brought = await trees.deliver("wren", run="7")
    assert str(brought.undelivered) == "horae-work/wren/7: a merge is in progress"
    assert git("show", "horae-work/wren/7:note.txt", at=ground.root) == "half\n"
    assert "one oats" in git("show", "horae-work/wren/7:plan.org", at=ground.root)
    tree = await again(trees)
    assert tree.trouble == ""
    assert git("status", "--porcelain", "--branch", at=tree.path).startswith("## main")


@story
async def test_what_a_run_left_whose_end_nobody_saw_is_brought_home_before_the_next(
    ground: Ground,
) -> None:
    trees = ground.here()
    path = (await again(trees, is_member=True)).path
    (path / "diary.org").write_text("* Today\n")
    await again(trees, is_member=True)
    assert git("show", "main:diary.org", at=ground.origin) == "* Today\n"


@story
async def test_a_run_beside_another_one_of_the_agent_has_a_tree_of_its_own(ground: Ground) -> None:
    one, two = ground.here(), ground.here()
    first, second = await one.take("wren"), await two.take("wren")
    assert (first.key, second.key) == ("wren", "wren~2")
    write("second.org", "* Second\n", at=second.path)
    assert (await two.deliver(second.key, run="8")).undelivered is None
    assert git("log", "-1", "--format=%s", "main", at=ground.origin) == "Write second.org\n"
    one.release(first.key)
    assert (await two.take("wren")).key == "wren"


@story
async def test_edits_of_a_person_that_no_tree_has_are_named(ground: Ground) -> None:
    (ground.root / "plan.org").write_text("* Sow\n* Reap\n")
    (ground.root / "new.org").write_text("* New\n")
    (ground.root / "board/tasks").mkdir(parents=True)
    (ground.root / "board/tasks/001-bed.md").write_text("---\nid: 1\n---\n")
    (ground.root / "notes.txt").write_text("no plan\n")
    tree = await ground.here().take("wren")
    assert set(tree.edits) == {"plan.org", "new.org", "board/tasks/001-bed.md"}
    assert (tree.path / "plan.org").read_text() == "* Sow\n"


@story
async def test_a_tree_that_is_no_repository_any_more_is_moved_away_and_made_again(
    ground: Ground,
) -> None:
    trees = ground.here()
    path = (await again(trees)).path
    (path / "work.txt").write_text("all of it\n")
    shutil.rmtree(path / ".git")
    tree = await again(trees)
    kept = path.with_name("wren~lost-1")
    assert tree.trouble == f"the last tree is no longer a repository and is now {kept}"
    assert (kept / "work.txt").read_text() == "all of it\n"
    assert (tree.path / "plan.org").exists()


@story
async def test_a_tree_that_the_disk_does_not_take_holds_the_run_back(ground: Ground) -> None:
    (ground.side / "data/trees").write_text("a file in the way\n")
    with pytest.raises(HeldBackError, match="the tree of wren cannot be made"):
        await ground.here().take("wren")


@story
async def test_a_repository_without_a_commit_holds_runs_back_until_it_has_one(
    tmp_path: Path,
) -> None:
    plan = tmp_path / "plan"
    plan.mkdir()
    git("init", "--quiet", at=plan)
    trees = Trees(plan, tmp_path / "data")
    assert str(await trees.why_held("wren")).startswith(f"{plan}: it has no commit")
    git("-c", "user.name=u", "-c", "user.email=u@h", "commit", "--allow-empty", "-qm1", at=plan)
    assert await trees.why_held("wren") is None
    git("checkout", "--quiet", "--detach", at=plan)
    assert "no branch is checked out" in str(await trees.why_held("wren"))


@story
async def test_a_tree_that_git_could_not_make_holds_its_agent_back_for_a_minute(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = ground.here()
    await trees.take("wren")
    trees.release("wren")
    (trees.path_of("wren") / ".git/HEAD").write_text("no reference")
    with pytest.raises(HeldBackError, match="the tree of wren cannot be made") as held:
        await trees.take("wren")
    assert await trees.why_held("wren") == str(held.value)
    assert await trees.why_held("robin") is None
    now = monotonic() + 61
    monkeypatch.setattr("horae.files.git.trees.monotonic", lambda: now)
    assert await trees.why_held("wren") is None


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
    for number in range(scaled(10_000, few=100)):
        (path / f"many-{mark}" / f"{number}.txt").write_text(f"{mark} {number}")


def _rebases(path: Path, mark: str) -> None:
    start = git("rev-parse", "HEAD", at=path).strip()
    write("plan.org", f"* own {mark}\n", at=path)
    git("checkout", "-q", "-b", f"other-{mark}", start, at=path)
    write("plan.org", f"* other {mark}\n", at=path)
    git("checkout", "-q", "-", at=path)
    _try("rebase", "-q", f"other-{mark}", at=path)
    _leaves(path, f"{mark}-half")


def _picks(path: Path, mark: str) -> None:
    _rebases(path, mark)
    git("rebase", "--abort", at=path)
    _try("cherry-pick", f"other-{mark}", at=path)


def _stashes(path: Path, mark: str) -> None:
    (path / "plan.org").write_text(f"* stashed {mark}\n")
    git("stash", "-q", at=path)
    write("plan.org", f"* Sow\n* after {mark}\n", at=path)
    _try("stash", "pop", "-q", at=path)


def _binds_a_submodule(path: Path, mark: str) -> None:
    _nests(path, mark)
    git("submodule", "add", "-q", f"./nested-{mark}", at=path)
    git("commit", "-qm", f"Bind {mark}", at=path)


def _hides(path: Path, mark: str) -> None:
    (path / f"{mark}.log").write_text(mark)  # which the plan ignores


def _locks_a_file(path: Path, mark: str) -> None:
    _leaves(path, mark)
    (path / f"{mark}.txt").chmod(0)


def _bisects(path: Path, mark: str) -> None:
    for name in ("one", "two", "three"):
        write("log.txt", f"{name} {mark}\n", at=path)
    git("bisect", "start", "-q", "HEAD", "HEAD~2", at=path)


def _drops_git(path: Path, mark: str) -> None:
    _leaves(path, mark)
    shutil.rmtree(path / ".git")


def _try(*args: str, at: Path) -> None:
    subprocess.run(
        ["git", *args], cwd=at, check=False, capture_output=True, env={**os.environ, **PERSON}
    )


ODD: tuple[Callable[[Path, str], None], ...] = (
    _leaves, _changes, _deletes, _commits_elsewhere, _detaches, _merges, _stages, _nests, _links,
    _many, _rebases, _picks, _stashes, _binds_a_submodule, _hides, _locks_a_file, _bisects,
    _drops_git,
)  # fmt: skip


@pytest.mark.parametrize("is_member", [True, False])
@story
async def test_nothing_that_an_agent_leaves_is_lost_whatever_it_does_to_its_repository(
    ground: Ground, is_member: bool
) -> None:
    chance = random.Random(7)
    (ground.root / ".gitignore").write_text("*.log\n")
    git("add", ".gitignore", at=ground.root)
    write("spare.org", "* Spare\n", at=ground.root)
    git("push", "-q", "origin", "main", at=ground.root)
    trees, marks, behind = ground.here(), [], 0
    rounds = [*ODD, *chance.choices(ODD, k=scaled(50, few=len(ODD)) - len(ODD))]
    chance.shuffle(rounds)
    for number, odd in enumerate(rounds):
        mark = f"mark{number}x"
        marks.append(mark)
        if number % 3 == 0:  # the plan goes on meanwhile
            write("plan.org", f"* Sow\n* a person's {mark}\n", at=ground.root)
            git("push", "-q", "origin", "main", at=ground.root)
        tree = await trees.take("wren", is_member=is_member)  # whatever was, the next run goes on
        behind += "behind" in tree.trouble
        odd(tree.path, mark)
        brought = await trees.deliver(tree.key, run=str(number), is_member=is_member)
        assert git("status", "--porcelain", at=ground.root) == "", odd.__name__
        assert brought.undelivered is None or str(brought.undelivered)
        trees.release(tree.key)
    here = ground.side / "data/trees"
    lost = {
        mark: odd.__name__
        for mark, odd in zip(marks, rounds, strict=True)
        if not _is_found(mark, ground.root, ground.origin, here)
    }
    assert lost == {}
    assert behind == 0  # each conflict was set aside
    said = git("log", "--format=%an", "main", at=ground.origin).split()
    assert set(said) <= {"ada", "wren", "horae"}


def _is_found(mark: str, root: Path, origin: Path, trees: Path) -> bool:
    """Tell whether a text is in a commit that some name leads to, or in a file of a tree."""
    clones = [each for each in trees.iterdir() if (each / ".git").is_dir()]
    for place in (root, origin, *clones):
        if git("log", "--all", "--format=%H", f"-S{mark}", at=place):
            return True
    return any(
        mark in each.read_text(errors="replace")
        for each in trees.rglob("*")
        if each.is_file() and os.access(each, os.R_OK) and ".git" not in each.parts
    )


@pytest.mark.parametrize("where", ["here", "away"])
@story
async def test_a_clone_follows_what_others_pushed(ground: Ground, where: str) -> None:
    trees: Trees = getattr(ground, where)()
    await again(trees)
    write("more.org", "* More\n", at=ground.root)
    git("push", "-q", "origin", "main", at=ground.root)
    tree = await again(trees)
    assert (tree.path / "more.org").read_text() == "* More\n"


@pytest.mark.parametrize("where", ["here", "away"])
@story
async def test_what_does_not_fit_is_on_a_branch_and_says_so(ground: Ground, where: str) -> None:
    trees: Trees = getattr(ground, where)()
    tree = await again(trees)
    write("plan.org", "* Wren's\n", at=tree.path)
    write("plan.org", "* A person's\n", at=ground.root)
    git("push", "-q", "origin", "main", at=ground.root)
    brought = await trees.deliver("wren", run="7")
    assert brought.branch == "horae-work/wren/7"
    assert str(brought.undelivered).startswith("horae-work/wren/7: ")
    kept_at = ground.root if where == "here" else ground.origin
    assert git("show", "horae-work/wren/7:plan.org", at=kept_at) == "* Wren's\n"
    tree = await again(trees)
    assert (tree.trouble, (tree.path / "plan.org").read_text()) == ("", "* A person's\n")


@story
async def test_a_run_goes_on_with_the_tree_that_it_has_and_says_how_far_that_is_behind(
    ground: Ground,
) -> None:
    trees = ground.here()
    tree = await again(trees)
    write("plan.org", "* Wren's\n", at=tree.path)
    ground.origin.rename(ground.side / "gone.git")
    assert (await trees.deliver("wren", run="7")).branch is None  # it waits for the origin
    for number in range(3):
        write("plan.org", f"* A person's {number}\n", at=ground.root)
    tree = await again(trees)
    assert tree.trouble == "3 commits behind, conflict in plan.org"
    assert (tree.path / "plan.org").read_text() == "* Wren's\n"


@pytest.mark.parametrize("where", ["here", "away"])
@story
async def test_an_origin_that_is_away_leaves_the_work_where_it_is_and_says_how_much(
    ground: Ground, where: str
) -> None:
    trees: Trees = getattr(ground, where)()
    tree = await again(trees)
    for name in ("one.org", "two.org"):
        write(name, "* Work\n", at=tree.path)
    ground.origin.rename(ground.side / "gone.git")
    brought = await trees.deliver("wren", run="7")
    left = brought.undelivered
    assert left is not None
    assert left.commits == 2
    assert str(left).startswith(f"2 commits in {tree.path}: ")
    assert brought.facts()["undelivered"] == left.data()
    assert (ground.side / "gone.git").rename(ground.origin)
    assert (await trees.deliver("wren", run="7")).undelivered is None


@story
async def test_a_clone_stays_on_the_branch_of_its_root(ground: Ground) -> None:
    git("branch", "deploy", at=ground.origin)
    trees = ground.away()
    git("switch", "-qc", "deploy", "origin/main", at=trees.root)
    tree = await again(trees)
    write("work.org", "* Work\n", at=tree.path)
    assert (await trees.deliver("wren", run="7")).undelivered is None
    assert git("show", "deploy:work.org", at=ground.origin) == "* Work\n"
    assert "work.org" not in git("ls-tree", "--name-only", "main", at=ground.origin)


@story
async def test_an_origin_that_is_not_named_says_which_setting_would_name_it(
    ground: Ground,
) -> None:
    trees = Trees(ground.root, ground.side / "data")
    tree = await again(trees)
    write("work.org", "* Work\n", at=tree.path)
    brought = await trees.deliver("wren", run="7")
    assert brought.facts()["delivered"] is False
    assert "git.local" in str(brought.undelivered)
    away = replace(ground.away(), local=())
    assert "git.local" in (await away.take("wren")).trouble


@story
async def test_what_a_member_writes_into_its_settings_leads_its_work_nowhere_else(
    ground: Ground,
) -> None:
    trees = ground.away()
    tree = await again(trees)
    elsewhere = ground.side / "elsewhere.git"
    git("init", "-q", "--bare", str(elsewhere), at=ground.side)
    git("remote", "set-url", "--push", "origin", str(elsewhere), at=tree.path)
    write("work.org", "* Work\n", at=tree.path)
    assert (await trees.deliver("wren", run="7")).undelivered is None
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
    path, canary = (await again(trees)).path, ground.side / "canary"
    write("work.org", "* Work\n", at=path)
    (path / "draft.org").write_text("* Draft\n")
    (path / ".gitattributes").write_text("* filter=x diff=x merge=x\n")
    _is_hostile(path, canary)
    config = (path / ".git/config").read_text()
    assert (await trees.deliver("wren", run="7")).undelivered is None
    for name in ("work", "draft"):
        assert git("show", f"main:{name}.org", at=ground.origin) == f"* {name.capitalize()}\n"
    git("pull", "-q", at=ground.root)
    write("next.org", "* Next\n", at=ground.root)
    git("push", "-q", "origin", "main", at=ground.root)
    assert (await again(trees)).trouble == ""
    assert (path / "next.org").read_text() == "* Next\n"
    assert (path / ".git/config").read_text() == config
    _nests(path, "inner")
    _is_hostile(path / "nested-inner", canary)
    await trees.deliver("wren", run="7")
    await again(trees)
    await trees.undelivered("wren")
    assert not canary.exists()


@story
async def test_a_clone_whose_repository_is_elsewhere_is_refused_and_made_again(
    ground: Ground,
) -> None:
    trees = ground.here()
    path = (await again(trees)).path
    (path / ".git").rename(ground.side / "moved")
    (path / ".git").write_text(f"gitdir: {ground.side / 'moved'}\n")
    assert not (await trees.deliver("wren", run="7")).facts()["delivered"]
    assert "is no longer a repository" in (await again(trees)).trouble
    assert (await trees.deliver("wren", run="8")).undelivered is None


@story
async def test_a_clone_that_was_not_finished_is_made_anew(ground: Ground) -> None:
    trees = ground.here()
    half = ground.side / "data/trees/wren~"
    half.mkdir(parents=True)
    git("init", "-q", ".", at=half)  # as a kill in the middle leaves it
    tree = await again(trees)
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
        tree = await again(trees)
        assert "evil" in tree.trouble
        assert not (tree.path / "evil").is_symlink()


@story
async def test_a_clone_of_another_origin_is_not_worked_in(ground: Ground) -> None:
    trees = ground.away()
    await again(trees)
    trees.release("wren")
    second = ground.side / "second.git"
    git("clone", "-q", "--bare", str(ground.origin), str(second), at=ground.side)
    moved = Trees(trees.root, ground.side / "other", [second], str(second))
    with pytest.raises(HeldBackError, match="not a clone of"):
        await moved.take("wren")


def test_of_a_machine_that_is_gone_nothing_is_guessed() -> None:
    left = Undelivered.lost("wren", "machine-2")
    assert left.commits is None
    assert str(left) == (
        "whether wren has undelivered work on machine-2 is not known: "
        "the node is lost, and its clone cannot be read"
    )
