"""A repository is worked in without running anything from it and without losing anything of it.

All of it with real git. A canary is a file that a hostile repository would make if any of it ran.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

import pytest

from horae.files.git import calls
from horae.files.git.calls import (
    HORAE,
    Author,
    GitBusyError,
    GitError,
    GitRefusedError,
    GitTimeoutError,
    ImportLimits,
    call,
    masked,
)
from horae.files.git.layout import repository_of
from horae.files.git.repository import (
    FileState,
    Git,
    UpdateRefusal,
    is_repository,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

P = ParamSpec("P")
WREN = Author.named("wren")
NOW = datetime(2026, 6, 6, 9, tzinfo=UTC)
PERSON = {
    "GIT_AUTHOR_NAME": "ada", "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "ada", "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1",
}  # fmt: skip


def story(test: Callable[P, Coroutine[object, object, None]]) -> Callable[P, None]:
    """Run a test that waits for things."""

    @wraps(test)
    def told(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return told


def git(*args: str, at: Path, stdin: bytes = b"") -> str:
    """Call git as a person does."""
    command = ["git", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always", *args]
    done = subprocess.run(
        command, cwd=at, input=stdin, capture_output=True, check=True, env={**os.environ, **PERSON}
    )
    return done.stdout.decode()


@dataclass(frozen=True)
class World:
    """A plan, its origin, and a peer who pushes there."""

    root: Path

    @property
    def plan(self) -> Path:
        return self.root / "plan"

    @property
    def peer(self) -> Path:
        return self.root / "peer"

    @property
    def origin(self) -> Path:
        return self.root / "origin.git"

    @property
    def canary(self) -> Path:
        return self.root / "canary"

    @property
    def config(self) -> Path:
        return self.plan / ".git/config"

    def configure(self, text: str, *, file: str = "config") -> None:
        with (self.plan / ".git" / file).open("a") as config:
            config.write(text.replace("CANARY", str(self.canary)))

    def write(self, name: str, text: str, *, at: Path | None = None) -> None:
        """Write a file, commit it, and if it is the peer's, push it."""
        where = at or self.peer
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_text(text)
        git("--literal-pathspecs", "add", "--", name, at=where)
        git("commit", "-qm", f"Write {name}", at=where)
        if where == self.peer:
            git("push", "-q", "origin", "main", at=where)

    def send(self, *files: str) -> None:
        """Put a commit with these files (mode, object or inline, path) onto the origin's main."""
        lines = [f"M {each}\n" + ("data 1\nx\n" if " inline " in each else "") for each in files]
        head = "commit refs/heads/main\ncommitter eve <eve@example.org> 1780000000 +0000\ndata 3\nbad\n"
        stream = f"{head}from refs/heads/main^0\n{''.join(lines)}\n"
        git("fast-import", "--quiet", at=self.origin, stdin=stream.encode())

    def seen(self) -> dict[str, bytes]:
        """Return every byte of the plan's tree, and where its branch is."""
        found = {
            str(path.relative_to(self.plan)): path.read_bytes()
            for path in self.plan.rglob("*")
            if path.is_file() and ".git" not in path.relative_to(self.plan).parts[:1]
        }
        return {**found, "HEAD": git("rev-parse", "HEAD", at=self.plan).encode()}


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("git")
    git("init", "-q", "--bare", "origin.git", at=root)
    git("clone", "-q", "origin.git", "plan", at=root)
    world = World(root)
    world.write("plan.org", "* TODO Sow\nbeans\n\n\n\n* TODO Mow\nlawn\n", at=world.plan)
    git("push", "-q", "origin", "main", at=world.plan)
    git("clone", "-q", "origin.git", "peer", at=root)
    return root


@pytest.fixture
def world(template: Path, tmp_path: Path) -> World:
    """Return a world of its own; copying one is faster than making one."""
    root = tmp_path / "world"
    shutil.copytree(template, root)
    for name in ("plan", "peer"):
        config = root / name / ".git/config"
        config.write_text(config.read_text().replace(str(template), str(root)))
    return World(root)


# Bringing a tree up to date.


@story
async def test_a_tree_with_nothing_new_is_up_to_date(world: World) -> None:
    head = git("rev-parse", "HEAD", at=world.plan).strip()
    pulled = await Git(world.plan, local=[world.origin]).pull()
    assert (pulled.why, pulled.commit) == (None, head)
    assert git("rev-parse", "HEAD", at=world.plan).strip() == head


@story
async def test_a_tree_goes_forward_to_what_others_pushed(world: World) -> None:
    world.write("new.org", "* New\n")
    pulled = await Git(world.plan, local=[world.origin]).pull()
    assert (pulled.why, pulled.commit) == (None, git("rev-parse", "HEAD", at=world.peer).strip())
    assert (world.plan / "new.org").read_text() == "* New\n"
    assert await Git(world.plan).head() == git("rev-parse", "main", at=world.origin).strip()


@story
async def test_what_both_sides_wrote_is_merged_if_it_fits(world: World) -> None:
    world.write("plan.org", "* TODO Sow\npeas\n\n\n\n* TODO Mow\nlawn\n")
    world.write("plan.org", "* TODO Sow\nbeans\n\n\n\n* TODO Mow\nmeadow\n", at=world.plan)
    assert not (await Git(world.plan, local=[world.origin]).pull()).is_refused
    assert (world.plan / "plan.org").read_text() == "* TODO Sow\npeas\n\n\n\n* TODO Mow\nmeadow\n"
    assert git("status", "--porcelain", at=world.plan) == ""
    assert git("log", "-1", "--format=%an %cn %P", at=world.plan).startswith("horae horae ")


@story
async def test_a_conflict_is_left_alone_byte_for_byte(world: World) -> None:
    world.write("plan.org", "theirs\n")
    world.write("plan.org", "ours\n", at=world.plan)
    before = world.seen()
    pulled = await Git(world.plan, local=[world.origin]).pull()
    assert pulled.why is UpdateRefusal.CONFLICT
    assert pulled.paths == ("plan.org",)
    assert world.seen() == before
    assert git("status", "--porcelain", at=world.plan) == ""
    assert not (world.plan / ".git/MERGE_HEAD").exists()


@pytest.mark.parametrize("is_staged", [False, True])
@story
async def test_work_that_is_not_committed_is_left_alone_byte_for_byte(
    world: World, is_staged: bool
) -> None:
    world.write("plan.org", "theirs\n")
    (world.plan / "plan.org").write_text("a person is writing this\n")
    if is_staged:
        git("add", "plan.org", at=world.plan)
    before, status = world.seen(), git("status", "--porcelain", at=world.plan)
    pulled = await Git(world.plan, local=[world.origin]).pull()
    assert pulled.why is UpdateRefusal.DIRTY
    assert world.seen() == before
    assert git("status", "--porcelain", at=world.plan) == status


@story
async def test_work_that_is_not_in_the_way_stays_while_the_tree_goes_forward(world: World) -> None:
    world.write("new.org", "* New\n")
    (world.plan / "plan.org").write_text("a person is writing this\n")
    (world.plan / "draft.org").write_text("and this\n")
    assert not (await Git(world.plan, local=[world.origin]).pull()).is_refused
    assert (world.plan / "plan.org").read_text() == "a person is writing this\n"
    assert (world.plan / "draft.org").read_text() == "and this\n"


@pytest.mark.parametrize("ignore", ["", "new.org\n"])
@story
async def test_a_file_that_git_does_not_keep_is_never_overwritten(
    world: World, ignore: str
) -> None:
    world.write("new.org", "theirs\n")
    (world.plan / "new.org").write_text("mine\n")
    (world.plan / ".git/info/exclude").write_text(ignore)
    pulled = await Git(world.plan, local=[world.origin]).pull()
    assert pulled.why is UpdateRefusal.DIRTY
    assert (world.plan / "new.org").read_text() == "mine\n"


@story
async def test_an_origin_that_was_rewritten_takes_nothing_away(world: World) -> None:
    world.write("ours.org", "* Ours\n", at=world.plan)
    ours = await Git(world.plan).head()
    (world.peer / "plan.org").write_text("* TODO Sow\npeas\n\n\n\n* TODO Mow\nlawn\n")
    git("commit", "-q", "--amend", "-am", "Rewritten", at=world.peer)
    git("push", "-q", "--force", "origin", "main", at=world.peer)
    pulled = await Git(world.plan, local=[world.origin]).pull()
    assert (world.plan / "ours.org").read_text() == "* Ours\n"
    assert pulled.why is UpdateRefusal.REFUSED
    assert await Git(world.plan).head() == ours


@story
async def test_without_an_origin_there_is_nothing_to_pull(world: World) -> None:
    git("remote", "remove", "origin", at=world.plan)
    assert (await Git(world.plan).pull()).why is UpdateRefusal.NO_ORIGIN


@story
async def test_an_origin_without_the_branch_is_no_origin_yet(world: World) -> None:
    git("switch", "-qc", "other", at=world.plan)
    assert (await Git(world.plan, local=[world.origin]).pull()).why is UpdateRefusal.NO_ORIGIN


@story
async def test_a_tree_between_two_branches_is_left_alone(world: World) -> None:
    git("switch", "-q", "--detach", at=world.plan)
    pulled = await Git(world.plan, local=[world.origin]).pull()
    assert pulled.why is UpdateRefusal.REFUSED
    assert "no branch is checked out" in pulled.words


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/x", "git://127.0.0.1/x", "ext::touch CANARY", "-oProxyCommand=x", "../o"],
)
@story
async def test_only_https_and_ssh_are_asked(world: World, url: str) -> None:
    git("config", "remote.origin.url", url.replace("CANARY", str(world.canary)), at=world.plan)
    pulled = await Git(world.plan, local=[world.origin]).pull()
    assert pulled.why is UpdateRefusal.REFUSED
    assert not world.canary.exists()


@story
async def test_a_path_is_asked_only_where_the_setting_names_it(world: World) -> None:
    world.write("new.org", "* New\n")
    for named in ([], [world.peer], [world.root], [world.origin / "objects"]):
        pulled = await Git(world.plan, local=named).pull()
        assert pulled.why is UpdateRefusal.REFUSED
        assert f"origin {world.origin} is a local path" in pulled.words
        assert "list it in the setting git.local" in pulled.words
    assert (await Git(world.plan, local=[world.origin]).pull()).why is None


@story
async def test_a_path_that_is_named_is_known_by_where_it_leads(world: World) -> None:
    (world.root / "link.git").symlink_to(world.origin)
    for address in (f"file://{world.origin}", str(world.root / "link.git")):
        git("remote", "set-url", "origin", address, at=world.plan)
        world.write("new.org", f"* {address}\n")
        pulled = await Git(world.plan, local=[world.origin]).pull()
        assert not pulled.is_refused
    # What the link is let lead to later is another repository.
    (world.root / "link.git").unlink()
    (world.root / "link.git").symlink_to(world.peer / ".git")
    assert (await Git(world.plan, local=[world.origin]).pull()).why is UpdateRefusal.REFUSED


# Hostile repositories.

_PROGRAM = "touch CANARY"
HOSTILE = {
    "core.fsmonitor": f'[core]\n\tfsmonitor = "{_PROGRAM};"\n',
    "core.sshcommand": f"[core]\n\tsshCommand = {_PROGRAM}\n",
    "core.gitproxy": f"[core]\n\tgitProxy = {_PROGRAM}\n",
    "core.alternaterefscommand": f"[core]\n\talternateRefsCommand = {_PROGRAM}\n",
    "core.worktree": "[core]\n\tworktree = /tmp\n",
    "core.pager": f"[core]\n\tpager = {_PROGRAM}\n",
    "filter.x.smudge": f'[filter "x"]\n\tsmudge = {_PROGRAM}; cat\n',
    "filter.x.clean": f'[filter "x"] clean = {_PROGRAM}\n',
    "diff.x.textconv": f'[diff "x"]\n\ttextconv = {_PROGRAM}\n',
    "merge.x.driver": f'[merge "x"]\n\tdriver = {_PROGRAM}\n',
    "remote.origin.uploadpack": f'[remote "origin"]\n\tuploadpack = {_PROGRAM}; git-upload-pack\n',
    "remote.origin.receivepack": f'[remote "origin"]\n\treceivepack = {_PROGRAM}; exit\n',
    "remote.origin.vcs": '[remote "origin"]\n\tvcs = canary\n',
    "remote.origin.promisor": '[remote "origin"]\n\tpromisor = true\n',
    "url.ext::touch CANARY #.insteadof": f'[url "ext::{_PROGRAM} #"]\n\tinsteadOf = /\n',
    "include.path": "[include]\n\tpath = ../evil\n",
    "includeif.gitdir:/.path": '[includeIf "gitdir:/"]\n\tpath = ../evil\n',
    "credential.helper": f"[credential]\n\thelper = !{_PROGRAM}\n",
    "gpg.program": f"[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = {_PROGRAM}\n",
    "branch.main.mergeoptions": '[branch "main"]\n\tmergeOptions = -S\n',
    "submodule.x.update": f'[submodule "x"]\n\tupdate = !{_PROGRAM}\n',
    "alias.fetch": f"[alias]\n\tfetch = !{_PROGRAM}\n",
    "http.proxy": "[http]\n\tproxy = http://127.0.0.1:1\n",
}


@pytest.mark.parametrize("key", HOSTILE)
@story
async def test_a_repository_with_an_odd_setting_is_refused_and_runs_nothing(
    world: World, key: str
) -> None:
    (world.plan / ".git/info/attributes").write_text("*.org text\n")
    world.write("new.org", "* New\n")
    before = world.seen()
    world.configure(HOSTILE[key])
    tree = Git(world.plan, local=[world.origin])
    pulled = await tree.pull()
    assert pulled.why is UpdateRefusal.REFUSED
    shown = key.replace("CANARY", str(world.canary))
    assert f"{world.config}:" in pulled.words
    assert shown in pulled.words
    for asking in (tree.head(), tree.status("plan.org"), tree.log()):
        with pytest.raises(GitRefusedError):
            await asking
    assert not world.canary.exists()
    world.config.write_text((world.peer / ".git/config").read_text())
    assert world.seen() == before


@story
async def test_settings_are_read_again_whenever_they_change(world: World) -> None:
    tree = Git(world.plan)
    assert await tree.head()
    before = world.config.read_text()
    world.configure(HOSTILE["core.fsmonitor"])
    with pytest.raises(GitRefusedError, match=r"config:\d+: core.fsmonitor"):
        await tree.head()
    world.config.write_text(before)
    assert await tree.head()


def test_the_canaries_are_alive(world: World) -> None:
    """What follows could not fail otherwise."""
    world.configure(HOSTILE["core.fsmonitor"])
    git("status", at=world.plan)
    assert world.canary.exists()


HOOKS = """
    pre-commit commit-msg prepare-commit-msg post-commit pre-merge-commit post-merge pre-push
    post-checkout post-index-change reference-transaction post-rewrite fsmonitor-watchman
"""


@story
async def test_no_hook_runs_whatever_is_done(world: World) -> None:
    for name in ("plan", "peer"):
        hooks = world.root / name / ".git/hooks"
        hooks.mkdir(exist_ok=True)
        for hook in HOOKS.split():
            (hooks / hook).write_text(f"#!/bin/sh\ntouch {world.canary}\n")
            (hooks / hook).chmod(0o755)
    world.configure("[core]\n\thooksPath = .git/hooks\n")
    tree = Git(world.plan, local=[world.origin])
    world.write("n.org", "* New\n", at=world.plan)
    assert world.canary.exists()
    world.canary.unlink()
    (world.plan / "plan.org").write_text("* DONE Sow\n")
    assert (await tree.commit("plan.org", message="x", author=WREN, was=FileState.CLEAN)).sha
    assert not (await tree.push()).is_refused
    git("-c", "core.hooksPath=/dev/null", "pull", "-q", at=world.peer)
    (world.peer / "more.org").write_text("x")
    peer = Git(world.peer, local=[world.origin])
    assert (await peer.commit("more.org", message="x", author=WREN, was=FileState.ABSENT)).sha
    assert not (await peer.push()).is_refused
    assert not (await tree.pull()).is_refused
    clone = await tree.clone(world.root / "clone")
    assert (await tree.deliver(clone.root, agent="wren", run="7")).is_delivered
    assert not world.canary.exists()


@story
async def test_a_setting_written_in_a_linked_tree_is_refused_in_both(world: World) -> None:
    git("worktree", "add", "-q", "../linked", at=world.plan)
    linked = world.root / "linked"
    assert await Git(linked).branch() == "linked"
    git("config", "core.sshCommand", f"touch {world.canary}", at=linked)
    for place in (world.plan, linked):
        with pytest.raises(GitRefusedError, match=r"core\.sshcommand"):
            await Git(place).head()


@story
async def test_a_setting_of_one_linked_tree_alone_is_refused(world: World) -> None:
    git("worktree", "add", "-q", "../linked", at=world.plan)
    linked = world.root / "linked"
    git("config", "extensions.worktreeConfig", "true", at=linked)
    git("config", "--worktree", "core.fsmonitor", f"touch {world.canary};", at=linked)
    with pytest.raises(GitRefusedError, match=r"config.worktree:\d+: core.fsmonitor"):
        await Git(linked).status("plan.org")
    assert await Git(world.plan).status("plan.org") is FileState.CLEAN
    assert not world.canary.exists()


@story
async def test_attributes_that_name_a_filter_are_refused(world: World) -> None:
    (world.plan / ".git/info").mkdir(exist_ok=True)
    (world.plan / ".git/info/attributes").write_text("# odd\n*.org filter=x\n")
    with pytest.raises(GitRefusedError, match="attributes:2: filter=x"):
        await Git(world.plan).head()


SUBMODULE = "1" * 40
TREES = {
    "a symbolic link": "120000 inline plans.org",
    "a submodule": f"160000 {SUBMODULE} sub",
    "belongs to git itself": "100644 inline sub/.gitmodules",
    "control character": '100644 inline "a\\rb.org"',
    "inside the data directory": "100644 inline .horae/ledger.db",
}


@pytest.mark.parametrize("reason", TREES)
@story
async def test_what_a_tree_must_not_hold_does_not_come_in(world: World, reason: str) -> None:
    world.send(TREES[reason], "100644 inline fine.org")
    before = world.seen()
    pulled = await Git(world.plan, local=[world.origin]).pull()
    assert pulled.why is UpdateRefusal.NOT_ACCEPTED
    assert reason in pulled.words
    assert world.seen() == before


@pytest.mark.parametrize("name", [".git", ".GIT", "git~1"])
@story
async def test_no_tree_brings_a_repository_of_its_own(world: World, name: str) -> None:
    inner = git("mktree", at=world.origin).strip()
    listing = f"040000 tree {inner}\t{name}\n{git('ls-tree', 'main', at=world.origin)}"
    tree = git("mktree", at=world.origin, stdin=listing.encode()).strip()
    bad = git("commit-tree", tree, "-p", "main", "-m", "bad", at=world.origin).strip()
    git("update-ref", "refs/heads/main", bad, at=world.origin)
    before = world.seen()
    assert (await Git(world.plan, local=[world.origin]).pull()).why is UpdateRefusal.REFUSED
    assert world.seen() == before


@story
async def test_a_name_like_an_option_or_a_pattern_is_only_a_name(world: World) -> None:
    names = ("--output=x", ":(exclude)plan.org", "*.org")
    for name in names:
        world.write(f"./{name}", "x\n")
    tree = Git(world.plan, local=[world.origin])
    assert not (await tree.pull()).is_refused
    (world.plan / "plan.org").write_text("a person is writing this\n")
    for name in names:
        assert await tree.status(name) is FileState.CLEAN
        (world.plan / name).write_text("y\n")
        assert await tree.status(name) is FileState.CHANGED
        assert (await tree.commit(name, message="-m", author=WREN, was=FileState.CLEAN)).sha
        assert await tree.status(name) is FileState.CLEAN
    assert git("status", "--porcelain", at=world.plan) == " M plan.org\n"


@story
async def test_a_file_that_is_too_large_does_not_come_in(world: World) -> None:
    world.write("large.org", "x" * 5000)
    pulled = await Git(world.plan, limits=ImportLimits(file=4999), local=[world.origin]).pull()
    assert pulled.why is UpdateRefusal.NOT_ACCEPTED
    assert "has 5,000 bytes" in pulled.words
    assert (
        await Git(world.plan, limits=ImportLimits(file=5000), local=[world.origin]).pull()
    ).why is None


@story
async def test_too_much_at_once_is_not_even_fetched_and_leaves_nothing(world: World) -> None:
    (world.peer / "large.bin").write_bytes(os.urandom(300_000))
    git("add", ".", at=world.peer)
    git("commit", "-qm", "Large", at=world.peer)
    git("push", "-q", "origin", "main", at=world.peer)
    pulled = await Git(world.plan, limits=ImportLimits(total=100_000), local=[world.origin]).pull()
    assert pulled.why is UpdateRefusal.REFUSED
    assert "more than 100,000 bytes" in pulled.words
    assert not list((world.plan / ".git/objects/pack").glob("tmp_*"))


@story
async def test_an_origin_that_says_nothing_is_given_up_in_time(world: World) -> None:
    met, left = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.set()
        while await reader.read(1000):
            pass
        left.set()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    git("config", "remote.origin.url", f"https://127.0.0.1:{port}/x", at=world.plan)
    before = world.seen()
    async with server:
        pulled = await Git(world.plan, timeout=timedelta(seconds=0.7)).pull()
        assert pulled.why is UpdateRefusal.TIMEOUT
        await asyncio.wait_for(met.wait(), 5)
        await asyncio.wait_for(left.wait(), 5)  # the whole group has ended, not only its head
    assert world.seen() == before


@story
async def test_credentials_in_an_address_are_never_told(world: World) -> None:
    git(
        "config", "remote.origin.url", "https://me:s3cret@127.0.0.1:1/x?token=s3cret", at=world.plan
    )
    tree = Git(world.plan)
    pulled = await tree.pull()
    assert pulled.why is UpdateRefusal.REFUSED
    assert "s3cret" not in pulled.words + (await tree.push()).words
    clone = await tree.clone(world.root / "clone")
    assert "s3cret@" not in (world.root / "clone/.git/config").read_text()
    assert clone.root == str(world.root / "clone")


def test_every_address_in_a_text_is_masked() -> None:
    text = "from https://a:b@c.org/x and ssh://d@e.org/y"
    assert masked(text) == "from https://***@c.org/x and ssh://***@e.org/y"


# The one call.


def _fake_git(place: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place.mkdir()
    (place / "git").write_text(f"#!/bin/sh\n{script}\n")
    (place / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")


@story
async def test_a_grandchild_that_keeps_the_output_open_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake_git(tmp_path / "bin", "sleep 60 & echo $! >pid; echo said", monkeypatch)
    said = await asyncio.wait_for(call(str(tmp_path), "x"), 10)
    assert said.out == b"said\n"
    os.kill(int((tmp_path / "pid").read_text()), 9)


@story
async def test_a_call_that_will_not_end_is_ended_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "_GRACE", 0.1)
    script = f"trap '' TERM; mkfifo {tmp_path}/alive; sleep 60 >{tmp_path}/alive & wait; sleep 60"
    _fake_git(tmp_path / "bin", script, monkeypatch)
    with pytest.raises(GitTimeoutError, match=r"git x took longer than 0.5 s"):
        await call(str(tmp_path), "x", timeout=timedelta(seconds=0.5))
    # Its writer was killed: the fifo ends as soon as the system has taken it away.
    descriptor = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    assert await asyncio.wait_for(asyncio.to_thread(os.read, descriptor, 1), 10) == b""
    os.close(descriptor)


@story
async def test_what_git_says_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "OUTPUT", 1000)
    _fake_git(tmp_path / "bin", "head -c 200000 /dev/zero", monkeypatch)
    with pytest.raises(GitRefusedError, match="printed more than 1,000 bytes"):
        await call(str(tmp_path), "x")


@pytest.mark.parametrize("stream", ["", ">&2"])
@story
async def test_a_call_that_prints_without_end_is_ended_before_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: str
) -> None:
    _fake_git(tmp_path / "bin", f"exec yes {stream}", monkeypatch)
    with pytest.raises(GitRefusedError, match="printed more than"):
        await call(str(tmp_path), "x", timeout=timedelta(hours=1))


@story
async def test_nothing_of_the_machines_git_settings_is_inherited(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(world.origin))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", f"touch {world.canary};")
    monkeypatch.setenv("HOME", str(world.root))
    (world.root / ".gitconfig").write_text(f"[core]\n\tfsmonitor = touch {world.canary};\n")
    assert await Git(world.plan).status("plan.org") is FileState.CLEAN
    assert not world.canary.exists()


@story
async def test_a_machine_without_git_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitError, match="git is not installed"):
        await call(str(tmp_path), "version")


# Committing.


@story
async def test_a_commit_is_by_whoever_requested_it(world: World) -> None:
    tree = Git(world.plan)
    for actor, author in {
        "engine": HORAE,
        "token:ops": ("ops", "ops@horae.localhost"),
        "session:ops": ("ops", "ops@horae.localhost"),
        "agent:Poll <the> news": ("Poll <the> news", "Poll-the-news@horae.localhost"),
        "cli:nobody-here": ("nobody-here", "nobody-here@horae.localhost"),
    }.items():
        found = await tree.author_of(actor)
        assert found == author
        (world.plan / "plan.org").write_text(f"* Sow\nBy {actor}.\n")
        made = await tree.commit("plan.org", message="x", author=found, was=FileState.CLEAN)
        assert made.sha, made.words


@story
async def test_one_file_is_committed_and_no_other(world: World) -> None:
    tree = Git(world.plan)
    (world.plan / "staged.org").write_text("a person's\n")
    git("add", "staged.org", at=world.plan)
    was = await tree.status("plan.org")
    (world.plan / "plan.org").write_text("* DONE Sow\n")
    made = await tree.commit(world.plan / "plan.org", message="Sow", author=WREN, was=was)
    assert made.sha == await tree.head()
    assert git("show", "--name-only", "--format=%an/%cn/%s", at=world.plan).split() == [
        "wren/horae/Sow", "plan.org",
    ]  # fmt: skip
    assert git("status", "--porcelain", at=world.plan) == "A  staged.org\n"


@pytest.mark.parametrize("is_staged", [False, True])
@story
async def test_a_file_with_a_persons_work_in_it_is_not_committed(
    world: World, is_staged: bool
) -> None:
    tree, before = Git(world.plan), world.seen()["HEAD"]
    (world.plan / "plan.org").write_text("a person's\n")
    if is_staged:
        git("add", "plan.org", at=world.plan)
    was = await tree.status("plan.org")
    (world.plan / "plan.org").write_text("a person's and ours\n")
    made = await tree.commit("plan.org", message="x", author=WREN, was=was)
    assert made.sha is None
    assert "uncommitted changes" in made.words
    assert world.seen()["HEAD"] == before


@story
async def test_new_files_are_committed_and_ignored_ones_are_not(world: World) -> None:
    tree = Git(world.plan)
    (world.plan / ".git/info/exclude").write_text("*.tmp\n")
    assert await tree.status("task.md") is FileState.ABSENT
    (world.plan / "task.md").write_text("x\n")
    assert await tree.status("task.md") is FileState.UNTRACKED
    assert (await tree.commit("task.md", message="x", author=HORAE, was=FileState.ABSENT)).sha
    (world.plan / "x.tmp").write_text("x\n")
    assert await tree.status("x.tmp") is FileState.IGNORED
    assert not (await tree.commit("x.tmp", message="x", author=HORAE, was=FileState.IGNORED)).sha


@story
async def test_an_edit_that_changed_nothing_makes_no_commit(world: World) -> None:
    made = await Git(world.plan).commit("plan.org", message="x", author=WREN, was=FileState.CLEAN)
    assert made == (None, "plan.org: nothing changed")


@story
async def test_a_path_outside_is_refused(world: World) -> None:
    for path in ("../peer/plan.org", world.peer / "plan.org", "."):
        with pytest.raises(GitError, match="not a file in this repository"):
            await Git(world.plan).status(path)


@story
async def test_the_log_has_the_newest_first(world: World) -> None:
    tree = Git(world.plan)
    for name in ("one", "two", "three"):
        (world.plan / "plan.org").write_text(name)
        await tree.commit("plan.org", message=f"{name}\n\nmore", author=WREN, was=FileState.CLEAN)
    logged = await tree.log(limit=2)
    assert [(each.subject, each.author) for each in logged] == [("three", "wren"), ("two", "wren")]
    assert await tree.log(since=datetime.now(UTC) + timedelta(days=1)) == []


@story
async def test_a_repository_is_found_above_a_file_and_nowhere_else(world: World) -> None:
    (world.plan / "deep/er").mkdir(parents=True)
    assert repository_of(world.plan / "deep/er/plan.org") == world.plan
    assert is_repository(world.plan)
    assert not is_repository(world.origin)
    with pytest.raises(GitRefusedError, match="is not a git repository"):
        await Git(world.plan / "deep").head()


# Several at once.


@story
async def test_a_repository_is_held_by_one_at_a_time_and_by_one_again(world: World) -> None:
    local = [world.origin]
    one = Git(world.plan, local=local)
    other = Git(world.plan, local=local, timeout=timedelta(seconds=0.1))
    async with one.held():
        async with one.held():
            assert not (await one.pull()).is_refused
        with pytest.raises(GitBusyError, match="another process"):
            async with other.held():
                pass
        assert (await other.pull()).why is UpdateRefusal.TIMEOUT
    async with other.held():
        pass


@story
async def test_edits_of_many_tasks_are_all_committed(world: World) -> None:
    tree = Git(world.plan)

    async def write(number: int) -> str | None:
        async with tree.held():
            (world.plan / f"{number}.md").write_text("x\n")
            made = await tree.commit(f"{number}.md", message="x", author=WREN, was=FileState.ABSENT)
        return made.sha

    made = await asyncio.gather(*(write(number) for number in range(6)))
    assert len(set(made)) == 6
    assert None not in made


# Clones and deliveries.


@story
async def test_a_clone_shares_no_file_and_no_setting_with_its_plan(world: World) -> None:
    clone = await Git(world.plan).clone(world.root / "members/wren")
    top = world.root / "members/wren"
    assert (top / "plan.org").read_bytes() == (world.plan / "plan.org").read_bytes()
    for path in (top / ".git").rglob("*"):
        assert not path.is_file() or path.stat().st_nlink == 1
    assert not list((top / ".git/hooks").glob("*"))
    git("config", "core.sshCommand", "evil", at=top)
    assert await Git(world.plan).head()
    with pytest.raises(GitRefusedError):
        await clone.head()


@story
async def test_a_clone_follows_its_plan(world: World) -> None:
    clone = await Git(world.plan).clone(world.root / "wren")
    world.write("plan.org", "newer\n", at=world.plan)
    assert not (await clone.pull(source=world.plan)).is_refused
    assert (world.root / "wren/plan.org").read_text() == "newer\n"


@pytest.mark.parametrize("has_origin", [False, True])
@story
async def test_a_clones_commits_are_delivered(world: World, has_origin: bool) -> None:
    tree = Git(world.plan, local=[world.origin])
    if not has_origin:
        git("remote", "remove", "origin", at=world.plan)
    await tree.clone(world.root / "wren")
    world.write("work.org", "* Work\n", at=world.root / "wren")
    if has_origin:
        world.write("peer.org", "* Peer\n")
    delivered = await tree.deliver(world.root / "wren", agent="wren", run="7")
    assert (delivered.is_delivered, delivered.branch) == (True, None)
    assert (world.plan / "work.org").read_text() == "* Work\n"
    assert git("branch", "--list", "horae-work/*", at=world.plan) == ""
    if has_origin:
        assert "work.org" in git("ls-tree", "--name-only", "main", at=world.origin)
        assert (world.plan / "peer.org").exists()
    again = await tree.deliver(world.root / "wren", agent="wren", run="7")
    assert (again.is_delivered, again.commit) == (True, None)


@pytest.mark.parametrize("has_origin", [False, True])
@story
async def test_commits_that_do_not_fit_stay_on_the_agents_branch(
    world: World, has_origin: bool
) -> None:
    tree = Git(world.plan, local=[world.origin])
    if not has_origin:
        git("remote", "remove", "origin", at=world.plan)
    await tree.clone(world.root / "wren")
    world.write("plan.org", "wren's\n", at=world.root / "wren")
    world.write("plan.org", "ours\n", at=world.peer if has_origin else world.plan)
    before = world.seen()
    kept = await tree.deliver(world.root / "wren", agent="wren", run="7")
    assert (kept.is_delivered, kept.branch) == (False, "horae-work/wren/7")
    assert "plan.org" in kept.words
    assert world.seen() == before
    assert git("show", "horae-work/wren/7:plan.org", at=world.plan) == "wren's\n"
    # A clone that was made anew does not push the old commits off their branch.
    git("reset", "-q", "--hard", "HEAD~", at=world.root / "wren")
    world.write("plan.org", "wren's again\n", at=world.root / "wren")
    again = await tree.deliver(world.root / "wren", agent="wren", run="7")
    assert again.branch is not None
    assert again.branch.startswith("horae-work/wren/7-")
    assert git("show", "horae-work/wren/7:plan.org", at=world.plan) == "wren's\n"
    assert git("show", f"{again.branch}:plan.org", at=world.plan) == "wren's again\n"


@story
async def test_a_clone_with_an_odd_file_delivers_nothing_and_its_settings_do_not_count(
    world: World,
) -> None:
    tree = Git(world.plan)
    git("remote", "remove", "origin", at=world.plan)
    await tree.clone(world.root / "wren")
    (world.root / "wren/link").symlink_to("/etc/passwd")
    git("add", ".", at=world.root / "wren")
    git("commit", "-qm", "Link", at=world.root / "wren")
    before = world.seen()
    kept = await tree.deliver(world.root / "wren", agent="wren", run="7")
    assert (kept.is_delivered, kept.branch) == (False, "horae-work/wren/7")
    assert "symbolic link" in kept.words
    git("config", "uploadpack.packObjectsHook", f"touch {world.canary}", at=world.root / "wren")
    refused = await tree.deliver(world.root / "wren", agent="wren", run="7")
    assert "symbolic link" in refused.words
    assert world.seen() == before
    assert not world.canary.exists()
    with pytest.raises(GitRefusedError, match="not a valid agent name"):
        await tree.deliver(world.root / "wren", agent="../main", run="7")


@story
async def test_a_push_that_comes_second_is_told_from_one_that_fails(world: World) -> None:
    world.write("peer.org", "x\n")
    world.write("ours.org", "x\n", at=world.plan)
    tree = Git(world.plan, local=[world.origin])
    assert (await tree.push()).why is UpdateRefusal.BEHIND
    hook = world.origin / "hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    await tree.pull()
    refused = await tree.push()
    assert refused.why is UpdateRefusal.REFUSED
    assert "pre-receive hook declined" in refused.words


@story
async def test_a_proposal_moves_nothing(world: World) -> None:
    tree, before = Git(world.plan), world.seen()
    head = await tree.head()
    assert head is not None
    made = await tree.propose(
        "plan.org", b"* DOING Sow\n", onto=head, message="x", author=WREN, now=NOW
    )
    assert world.seen() == before
    assert await tree.content("plan.org", at=made) == b"* DOING Sow\n"
    assert git("log", "-1", "--format=%an %at", made, at=world.plan).split() == [
        "wren", str(int(NOW.timestamp())),
    ]  # fmt: skip
    assert not (await tree.advance(made)).is_refused
    assert (world.plan / "plan.org").read_text() == "* DOING Sow\n"


# A clone of an address, which the engine owns, and the clones that are made of it.


async def cloned(world: World, name: str = "node") -> Git:
    return await Git.clone_of(str(world.origin), world.root / name, local=[world.origin])


@story
async def test_commits_of_a_member_go_to_the_address_through_the_engines_own_clone(
    world: World,
) -> None:
    plan = await cloned(world)
    clone = await plan.clone(world.root / "wren")
    assert (world.root / "wren/plan.org").read_bytes() == (world.plan / "plan.org").read_bytes()
    assert await clone.origin() == str(world.origin)
    assert await clone.unshared() == 0
    world.write("work.org", "* Work\n", at=world.root / "wren")
    world.write("peer.org", "* Peer\n")
    assert await clone.unshared() == 1
    sent = await plan.deliver(clone.root, agent="wren", run="7")
    assert (sent.is_delivered, sent.branch) == (True, None)
    assert {"peer.org", "work.org"} <= {
        *git("ls-tree", "--name-only", "main", at=world.origin).split()
    }
    assert await clone.unshared() == 0
    assert (await plan.deliver(clone.root, agent="wren", run="7")).words == "nothing new"


@story
async def test_a_password_in_an_address_is_used_and_not_kept(world: World) -> None:
    address = f"file://me:s3cret@{world.origin}"
    clone = await cloned(world)
    asked = Git(clone.root, origin="https://me:s3cret@git.example.org/x.git")
    await asked._name_origin("https://me:s3cret@git.example.org/x.git")
    assert "s3cret" not in (world.root / "node/.git/config").read_text()
    assert await Git(clone.root).origin() == "https://me@git.example.org/x.git"
    assert await asked.origin() == "https://me:s3cret@git.example.org/x.git"
    assert "s3cret" not in str(await Git(clone.root, origin=address).pull())


@story
async def test_what_does_not_fit_at_the_address_is_there_on_a_branch_beside(world: World) -> None:
    plan = await cloned(world)
    await plan.clone(world.root / "wren")
    world.write("plan.org", "wren's\n", at=world.root / "wren")
    world.write("plan.org", "peer's\n")
    sent = await plan.deliver(world.root / "wren", agent="wren", run="7")
    assert (sent.is_delivered, sent.branch) == (False, "horae-work/wren/7")
    assert "plan.org" in sent.words
    assert git("show", "main:plan.org", at=world.origin) == "peer's\n"
    assert git("show", "horae-work/wren/7:plan.org", at=world.origin) == "wren's\n"
    # Another machine made another clone: nothing is pushed off its branch.
    other = await cloned(world, "node-2")
    await other.clone(world.root / "wren-2")
    git("reset", "-q", "--hard", "HEAD~", at=world.root / "wren-2")
    world.write("plan.org", "wren's again\n", at=world.root / "wren-2")
    kept = await other.deliver(world.root / "wren-2", agent="wren", run="7")
    assert kept.branch is not None
    assert kept.branch.startswith("horae-work/wren/7-")
    assert git("show", "horae-work/wren/7:plan.org", at=world.origin) == "wren's\n"


@story
async def test_what_an_address_must_not_hold_is_refused_before_it_is_written(world: World) -> None:
    world.send("120000 inline evil")
    with pytest.raises(GitRefusedError, match="evil"):
        await cloned(world)
    assert [each.name for each in (world.root / "node").iterdir()] == [".git"]


@story
async def test_a_clone_of_a_path_needs_its_name_in_the_setting(world: World) -> None:
    with pytest.raises(GitRefusedError, match=r"git\.local"):
        await Git.clone_of(str(world.origin), world.root / "wren")
    assert not (world.root / "wren").exists()
    with pytest.raises(GitError):
        await Git.clone_of(
            str(world.root / "gone"), world.root / "wren", local=[world.root / "gone"]
        )
