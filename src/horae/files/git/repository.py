"""The repository of a plan: updated, committed to, pushed, cloned, delivered into.

A merge is created as a commit outside of the tree, and checked; only then is the tree moved to it,
by fast-forward, which git refuses as a whole if a user's work is in the way.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shlex
import signal
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, Unpack
from urllib.parse import unquote

from horae.core.actor import current_actor, user_name
from horae.core.guarded import FILE, Arrivals, after_pull, before_pull, values_of
from horae.files.git import calls
from horae.files.git.calls import (
    HORAE,
    Author,
    GitError,
    GitOutput,
    GitRefusedError,
    ImportLimits,
    LocalOriginError,
    PullGuard,
    masked,
    objection,
    without_settings,
)
from horae.files.git.layout import (
    ArrivalsError,
    change_arrivals,
    layout,
    read_arrivals,
    repository_of,
    written_at,
)
from horae.files.read import StrPath, printable
from horae.org.plan import is_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection

T = TypeVar("T")

LOCK: Final = "horae.lock"
_USER: Final = r"^user\.(name|email)$"  # as keys of git's settings
_HEAD_LINE: Final = "# branch.oid "
_HEEDED: Final = "H "  # the tag of a file whose changes git reports
_NAMED: Final = 200  # files that are passed to git by name; with more, it reports all
_PAUSE: Final = 0.02  # seconds between attempts to take a lock
_ATTEMPTS: Final = 3  # to push a merge before the next push of others
_CLONE: Final = (
    "clone", "--quiet", "--no-hardlinks", "--no-tags", "--single-branch",
    "--no-recurse-submodules", "--template=",
)  # fmt: skip
WORK: Final = "horae-work"  # prefix of branches with work that does not merge: WORK/AGENT/RUN
# Operations of git in progress, by their files, and the command that aborts each.
_IN_PROGRESS: Final = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "MERGE_HEAD": "merge",
}
LONGEST_DIFF: Final = 4000  # characters of a diff in the record of a run
_GITLINK: Final = "160000"  # the mode of a repository inside another
_DELIVERED: Final = "refs/remotes/plan/delivered"  # in a clone: its last delivered commit

_SCP: Final = re.compile(r"(?:[\w.-]+@)?[A-Za-z0-9][\w.-]*:(?!:)[^-\s][^\s]*")
_ADDRESS: Final = re.compile(r"(https|ssh)://[^\s/-][^\s]*")
_PASSWORD: Final = re.compile(r"(?<=://)([^/@:\s]*):[^/@\s]*@")
_IN_THE_WAY: Final = re.compile(
    r"would be overwritten|local changes|untracked working tree|not concluded|unmerged|"
    r"not uptodate|would lose untracked|would be removed"
)
_FIRST: Final = re.compile(r"fetch first|non-fast-forward|stale info|lock ref|failed to update ref")
_TREE_CHANGE: Final = re.compile(rb":\d{6} (\d{6}) [0-9a-f]+ ([0-9a-f]+) ([A-Z])\d*")


def is_repository(path: StrPath) -> bool:
    return layout(path) is not None


def without_password(url: str) -> str:
    return _PASSWORD.sub(r"\1@", url)


class UpdateRefusal(StrEnum):
    CONFLICT = "conflict"  # both sides changed the same lines
    DIRTY = "dirty"  # uncommitted work is in the way
    NO_ORIGIN = "no-origin"  # there is no origin to pull from
    TIMEOUT = "timeout"  # the origin did not respond in time
    REFUSED = "refused"  # git refused it
    NOT_ACCEPTED = "not-accepted"  # it must never be imported
    BEHIND = "behind"  # another push came first


@dataclass(frozen=True, slots=True)
class Update:
    why: UpdateRefusal | None = None
    words: str = ""
    commit: str | None = None  # of the tree
    paths: tuple[str, ...] = ()  # with conflicts

    @property
    def is_refused(self) -> bool:
        return self.why is not None


class FileState(StrEnum):
    CLEAN = "clean"
    CHANGED = "changed"  # a user's work, staged or not
    UNTRACKED = "untracked"
    IGNORED = "ignored"
    ABSENT = "absent"  # neither in the tree nor in the commit


# Files that are not committed, and why.
_KEPT_BY_USER: Final = {
    FileState.CHANGED: "has other uncommitted changes",
    FileState.UNTRACKED: "is not tracked by git",
    FileState.IGNORED: "is ignored by git",
}


def why_uncommitted(was: FileState) -> str:
    return f"saved, not committed: the file {_KEPT_BY_USER[was]}"


class CommitResult(NamedTuple):
    sha: str | None
    words: str = ""


class Logged(NamedTuple):
    sha: str
    at: datetime
    author: str
    subject: str


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    is_delivered: bool
    commit: str | None = None  # of the branch, if something was delivered
    branch: str | None = None  # with commits that can never be merged as they are
    words: str = ""
    diff: str = ""  # of the kept commits, up to `LONGEST_DIFF`


class KeptWork(NamedTuple):
    name: str  # AGENT/RUN
    ref: str
    commit: str
    at: datetime
    commits: int
    files: tuple[str, ...]
    conflicts: tuple[str, ...]  # with what is checked out now


def kept_names(root: StrPath) -> list[str]:
    here = layout(root)
    if here is None:
        return []
    top = Path(here.common) / "refs/heads" / WORK
    found = {each.relative_to(top).as_posix() for each in top.rglob("*") if each.is_file()}
    with suppress(OSError):  # there is none
        prefix = f" refs/heads/{WORK}/"
        with open(os.path.join(here.common, "packed-refs"), encoding="utf-8") as file:
            found.update(line.partition(prefix)[2].strip() for line in file if prefix in line)
    return sorted(each for each in found if not each.endswith(".lock"))


class Git:
    """A repository, by the top of its tree; one call at a time, over all processes.

    *local* are the allowed origins on this machine; *origin* replaces the one in the repository's
    settings, which its users can change. For the clone of a *plan*, only the plan's settings count.
    """

    def __init__(
        self,
        root: StrPath,
        *,
        timeout: timedelta = calls.TIMEOUT,
        limits: ImportLimits | None = None,
        local: Collection[StrPath] = (),
        origin: str | None = None,
        plan: StrPath | None = None,
    ) -> None:
        self.root = os.path.realpath(root)
        self._plan = plan
        self._local = frozenset(map(os.path.realpath, local))
        self._address = origin
        self._timeout = timeout
        self._limits = limits or ImportLimits()
        self._guard = PullGuard(os.path.realpath(plan or root), timeout=timeout)
        self._lock = asyncio.Lock()
        self._owner: asyncio.Task[object] | None = None

    async def head(self) -> str | None:
        return await self._commit_at("HEAD")

    async def branch(self) -> str:
        said = await self._git("symbolic-ref", "--quiet", "--short", "HEAD", fails=True)
        if said.code:
            raise GitError(self.root, "no branch is checked out; switch to one with `git switch`")
        return said.text

    async def status(self, path: StrPath) -> FileState:
        name = self._inside(path)
        said = await self._git(
            "status", "--porcelain=v1", "-z", "--untracked-files=all", "--ignored=matching",
            "--no-renames", "--ignore-submodules=all", "--", name,
        )  # fmt: skip
        if not said.out:
            exists = os.path.lexists(os.path.join(self.root, name))
            return FileState.CLEAN if exists else FileState.ABSENT
        odd = {b"??": FileState.UNTRACKED, b"!!": FileState.IGNORED}
        return odd.get(said.out[:2], FileState.CHANGED)

    async def unchanged(self, names: Collection[str]) -> tuple[str | None, frozenset[str]]:
        """Return the last commit, and which of the files are as in it."""
        asked = [*names] if len(names) <= _NAMED else ["."]
        # First: a file staged meanwhile then counts as changed.
        tracked = (await self._git("ls-files", "-v", "-z", "--", *asked)).items
        said = await self._git(
            "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=no", "--no-renames",
            "--ignore-submodules=all", "--", *asked,
        )  # fmt: skip
        heads = (line for line in said.items if line.startswith(_HEAD_LINE))
        head = next(heads, _HEAD_LINE).removeprefix(_HEAD_LINE)
        if not head or head.startswith("("):  # before the first commit
            return None, frozenset()
        # A changed file has eight fields before its name, one with a conflict ten.
        fields = {"1": 8, "u": 10}
        changed = {
            line.split(" ", fields[line[0]])[-1] for line in said.items if line[:1] in fields
        }
        # Git was configured to ignore changes of the others.
        heeded = {name.removeprefix(_HEEDED) for name in tracked if name.startswith(_HEEDED)}
        return head, frozenset(heeded.intersection(names) - changed)

    async def log(self, *, since: datetime | None = None, limit: int = 30) -> list[Logged]:
        if await self.head() is None:
            return []
        begin = [] if since is None else [f"--since=@{int(since.timestamp())}"]
        said = await self._git(
            "log", "-z", "--no-show-signature", "--no-mailmap", f"--max-count={limit}", *begin,
            "--format=%H%x1f%ct%x1f%an%x1f%s", "HEAD",
        )  # fmt: skip
        rows = [row.split("\x1f", 3) for row in said.text.split("\0") if row]
        return [
            Logged(sha, datetime.fromtimestamp(int(at), UTC), author, subject)
            for sha, at, author, subject in rows
        ]

    async def content(self, path: StrPath, *, at: str = "HEAD") -> bytes | None:
        found = await self._file_in(at, self._inside(path))
        return None if found is None else (await self._git("cat-file", "blob", found[1])).out

    async def origin(self, kind: str = "url") -> str | None:
        """Return the address to pull from, or with *kind* `pushurl` to push to."""
        if self._address is not None:
            return self._address
        found = (await self._guard.settings()).get(f"remote.origin.{kind}", ())
        if not found:
            return None
        if found[0].startswith(("./", "../")):  # relative to the top of the repository, as in git
            return os.path.normpath(os.path.join(self.root, found[0]))
        return found[0]

    async def unshared(self) -> int:
        return int((await self._git("rev-list", "--count", "HEAD", "--not", "--remotes")).text)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Lock the repository; reentrant for the task that holds it."""
        task = asyncio.current_task()
        if task is not None and self._owner is task:
            yield
            return
        async with self._lock, _locked(self.root, self._timeout):
            self._owner = task
            try:
                yield
            finally:
                self._owner = None

    async def fetch(self) -> str | None:
        url = await self.origin()
        if url is None:
            return None
        branch = await self.branch()
        async with self.held():
            return await self._fetched(url, branch, "origin")

    async def pull(self, *, source: StrPath | None = None) -> Update:
        try:
            async with self.held():
                is_ours = source is not None
                url = await self.origin() if source is None else os.path.realpath(source)
                if url is None:
                    return Update(UpdateRefusal.NO_ORIGIN, "the repository has no origin")
                # A member may have another branch checked out, or none: it follows the plan's.
                branch = await (self if source is None else self._like(source)).branch()
                remote = "plan" if is_ours else "origin"
                tip = await self._fetched(url, branch, remote, is_ours=is_ours)
                if tip is None:
                    words = f"{masked(url)} has no branch {branch} yet"
                    return Update(UpdateRefusal.NO_ORIGIN, words)
                return await self._bring_in(tip, f"{remote}/{branch}")
        except (calls.GitTimeoutError, calls.GitBusyError) as error:
            return Update(UpdateRefusal.TIMEOUT, error.reason)
        except GitError as error:
            return Update(UpdateRefusal.REFUSED, str(error))

    async def advance(self, commit: str) -> Update:
        async with self.held():
            return await self._bring_in(commit, "a commit")

    async def author_of(self, actor: str) -> Author:
        kind, _, name = actor.partition(":")
        if not name:
            return HORAE
        if kind == "cli" and name == user_name(os.getuid()):
            said = await calls.call(self.root, "config", "--get-regexp", _USER, as_person=True)
            found = dict(line.split(" ", 1) for line in said.text.splitlines() if " " in line)
            name = found.get("user.name", name)
            if "user.email" in found:
                return Author(name, found["user.email"])
        return Author.named(name)

    async def commit(
        self, path: StrPath, *, message: str, author: Author, was: FileState
    ) -> CommitResult:
        """Commit one file that we just edited; *was* is its state before that edit."""
        name = self._inside(path)
        if was in _KEPT_BY_USER:
            return CommitResult(None, f"{printable(name)}: {why_uncommitted(was)}")
        async with self.held():
            if was is FileState.ABSENT:
                await self._git("add", "--", name)
            said = await self._git(
                "commit", "--only", "--no-verify", "--no-gpg-sign", "--quiet", "--no-status",
                f"--message={message}", "--", name, author=author, fails=True,
            )  # fmt: skip
            if said.code:
                words = said.why if said.err.strip() else "nothing changed"
                return CommitResult(None, f"{printable(name)}: {words}")
            return CommitResult(await self.head())

    async def in_progress(self) -> str:
        for file, what in _IN_PROGRESS.items():
            if os.path.lexists(os.path.join(self.root, ".git", file)):
                return what
        return "conflict" if (await self._git("ls-files", "--unmerged", "-z")).out else ""

    async def commit_all(self, *, message: str, author: Author) -> str | None:
        """Commit all files that are not ignored; None if nothing has changed.

        A merge in progress is committed with its files as they are. A nested repository is left
        out.
        """
        async with self.held():
            said = await self._git("status", "--porcelain=v1", "-z", "--no-renames")
            if not said.out:
                return None
            added = await self._git("add", "--all", "--ignore-errors", fails=True)
            staged = await self._git("diff-index", "--cached", "--raw", "-z", "HEAD")
            fields = staged.out.split(b"\0")
            nested = [
                path
                for meta, path in zip(fields[::2], fields[1::2], strict=False)
                if meta.split()[:2] == [b":000000", _GITLINK.encode()]
            ]
            if nested:
                await self._git(
                    "update-index", "--force-remove", "-z", "--stdin", stdin=b"\0".join(nested)
                )
            if len(fields) // 2 > len(nested) or await self.in_progress():
                await self._git(
                    "commit", "--no-verify", "--no-gpg-sign", "--quiet", "--no-status",
                    "--allow-empty", f"--message={message}", author=author, committer=author,
                )  # fmt: skip
                return await self.head()
            if added.code and not nested:
                raise GitError(self.root, added.why)
            return None

    async def start_over(self, source: StrPath, *, spare: str) -> None:
        """Check out the branch of the tree at *source*, as it is there.

        Commits here must be kept elsewhere. Commits that only the branch has stay on the branch
        *spare*, ignored files stay as they are.
        """
        async with self.held():
            branch = await self._like(source).branch()
            tip = await self._fetched(os.path.realpath(source), branch, "plan", is_ours=True)
            for command in ("rebase", "cherry-pick", "revert", "am", "merge"):
                await self._git(command, "--quit", fails=True)
            old = await self._commit_at(f"refs/heads/{branch}")
            kept = [each for each in (tip, await self.head()) if each is not None]
            if old and tip and not any([await self._is_ancestor(old, each) for each in kept]):
                await self._git("update-ref", f"refs/heads/{spare}", old)
            if tip is not None:
                await self._git(
                    "switch", "--quiet", "--no-track", "--no-overwrite-ignore", "--no-guess",
                    "-C", branch, tip,
                )  # fmt: skip

    async def behind(self, other: str) -> int:
        return int((await self._git("rev-list", "--count", f"HEAD..{other}")).text)

    async def uncommitted(self) -> tuple[str, ...]:
        said = await self._git(
            "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames",
            "--ignore-submodules=all",
        )  # fmt: skip
        return tuple(line[3:] for line in said.items if line)

    async def propose(
        self, path: StrPath, data: bytes, *, onto: str, message: str, author: Author, now: datetime
    ) -> str:
        """Return a commit that changes one file, on top of *onto*; no branch moves.

        It stays at `refs/horae/proposed/AUTHOR` until that author proposes another.
        """
        name = self._inside(path)
        found = await self._file_in(onto, name)
        if found is None:
            raise GitError(self.root, f"{printable(name)} is not a regular file in {onto[:12]}")
        if any(ord(character) < 0x20 or character == "\x7f" for character in name):
            raise GitError(printable(name), "has a control character in its name")
        quoted = name.replace("\\", "\\\\").replace('"', '\\"')
        ref = f"refs/horae/proposed/{author.name if is_id(author.name) else 'somebody'}"
        stamp = f"{int(now.timestamp())} +0000"
        said = message.encode()
        stream = [
            f"commit {ref}\nauthor {author.name} <{author.email}> {stamp}\n".encode(),
            f"committer {HORAE.name} <{HORAE.email}> {stamp}\n".encode(),
            b"data %d\n%b\n" % (len(said), said),
            f'from {onto}\nM {found[0]} inline "{quoted}"\n'.encode("utf-8", "surrogateescape"),
            b"data %d\n%b\n" % (len(data), data),
            b"done\n",
        ]
        async with self.held():
            await self._git("fast-import", "--quiet", "--done", "--force", stdin=b"".join(stream))
            made = await self._commit_at(ref)
        assert made is not None, "fast-import has just made it"
        return made

    async def push(self, *, commit: str | None = None) -> Update:
        try:
            async with self.held():
                branch = await self.branch()
                return await self._push(commit or f"refs/heads/{branch}", branch)
        except GitError as error:
            return Update(UpdateRefusal.REFUSED, str(error))

    async def clone(self, target: StrPath) -> Git:
        """Clone the repository into a new directory, for a member to work in.

        Its origin is ours, without the password, or this tree if there is none.
        """
        # Not a worktree: it shares hooks and settings. No hard links: writes would affect both.
        place = os.path.abspath(target)
        async with self.held():
            branch = f"--branch={await self.branch()}"
            await self._git(*_CLONE, branch, "--end-of-options", self.root, place, local=True)
            url = await self.origin()
        made = self._like(place)
        if url is not None:
            await made._name_origin(url)  # noqa: SLF001
        return made

    @classmethod
    async def clone_of(
        cls,
        url: str,
        target: StrPath,
        *,
        branch: str | None = None,
        local: Collection[StrPath] = (),
    ) -> Git:
        named = [] if branch is None else [f"--branch={branch}"]
        place = os.path.abspath(target)
        made = cls(place, local=local, origin=url)
        said = await calls.call(
            os.path.dirname(place),
            *(*_CLONE, "--no-checkout", *named, "--end-of-options", url, place),
            local=made._is_local(url),
            most=made._limits.total,
        )
        if said.code:
            raise GitError(place, said.why)
        await made._name_origin(url)
        nothing = (await made._git("mktree", stdin=b"")).text
        if reason := await made._objection(nothing, "HEAD"):
            raise GitRefusedError(place, reason)
        await made._git("reset", "--quiet", "--hard", "HEAD")
        return made

    async def sign_as(self, author: Author) -> None:
        await self._git("config", "--local", "user.name", author.name)
        await self._git("config", "--local", "user.email", author.email)

    async def deliver(self, clone: StrPath, *, agent: str, run: str) -> DeliveryResult:
        """Merge a clone's commits at the origin, or into this tree if it has no origin.

        What can never be merged as it is, such as a conflict, is kept on a branch; see `keep`.
        """
        branch = self._work_of(agent, run)
        try:
            theirs = self._like(clone, plan=self.root)
            tip = await theirs.head()
            async with self.held():
                ours = await self.head()
                if tip is None or ours is None or await self._is_ancestor(tip, ours):
                    return DeliveryResult(is_delivered=True, words="nothing new")
                branch = await self._fetch_work(theirs, tip, branch)
                is_kept = False
                try:
                    ended = await self._take(tip, f"the work of {agent}")
                    if ended.why in {UpdateRefusal.CONFLICT, UpdateRefusal.NOT_ACCEPTED}:
                        kept = await self._share(tip, branch, ended.words)
                        is_kept = kept.branch is not None
                        return kept
                finally:
                    if not is_kept:
                        await self._git("update-ref", "-d", f"refs/heads/{branch}", tip, fails=True)
            if ended.is_refused:
                return DeliveryResult(is_delivered=False, words=ended.words)
            await theirs._git("update-ref", _DELIVERED, tip, fails=True)  # noqa: SLF001
            return DeliveryResult(is_delivered=True, commit=ended.commit, words=ended.words)
        except GitError as error:
            return DeliveryResult(is_delivered=False, words=str(error))

    async def keep(self, clone: StrPath, *, agent: str, run: str, words: str) -> DeliveryResult:
        """Keep a clone's commits on the branch `horae-work/AGENT/RUN` without delivering them.

        The branch is also pushed if the address of the origin was given, as other nodes see no
        other place.
        """
        theirs = self._like(clone, plan=self.root)
        tip = await theirs.head()
        assert tip is not None, "it has just committed"
        async with self.held():
            branch = await self._fetch_work(theirs, tip, self._work_of(agent, run))
            return await self._share(tip, branch, words)

    async def _fetch_work(self, clone: Git, tip: str, branch: str) -> str:
        is_taken = await self._commit_at(f"refs/heads/{branch}") is not None
        said = await self._fetch_from(clone, f"HEAD:refs/heads/{branch}")
        if said.code and is_taken:
            # Commits of an earlier time are not in the clone's history: keep both.
            branch = f"{branch}-{tip[:12]}"
            said = await self._fetch_from(clone, f"HEAD:refs/heads/{branch}")
        if said.code:
            raise GitError(self.root, said.why)
        return branch

    async def _share(self, tip: str, branch: str, words: str) -> DeliveryResult:
        kept = DeliveryResult(is_delivered=False, commit=tip, branch=branch, words=words)
        kept = replace(kept, diff=(await self.diff(tip))[:LONGEST_DIFF])
        if self._address is None:
            return kept
        refusal = ""
        for name in (branch, f"{branch}-{tip[:12]}"):  # another node may have the first
            pushed = await self._push(tip, name)
            if not pushed.is_refused:
                return replace(kept, branch=name)
            refusal = pushed.words
        words = f"{words}; not pushed to {branch} either: {refusal}"
        return replace(kept, branch=None, words=words)

    async def diff(self, commit: str) -> str:
        said = await self._git(
            "diff", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames",
            f"HEAD...{commit}", "--", fails=True,
        )  # fmt: skip
        return said.out.decode("utf-8", "replace")

    async def kept(self) -> list[KeptWork]:
        found = []
        said = await self._git(
            "for-each-ref", "--sort=committerdate", "--format=%(refname)%00%(objectname)%00"
            "%(committerdate:unix)", f"refs/heads/{WORK}", f"refs/remotes/origin/{WORK}",
        )  # fmt: skip
        known: set[str] = set()
        for line in said.text.splitlines():
            ref, commit, at = line.split("\0")
            name = ref.partition(f"/{WORK}/")[2]
            if name in known:
                continue
            known.add(name)
            files = await self._git(
                "diff", "--name-only", "-z", "--no-renames", f"HEAD...{commit}", "--", fails=True
            )
            count = await self._git("rev-list", "--count", commit, "--not", "HEAD")
            head = await self.head()
            merged = commit if head is None else await self._merged(head, commit, "")
            conflicts = merged.paths if isinstance(merged, Update) else ()
            written_at = datetime.fromtimestamp(int(at), UTC)
            paths = tuple(filter(None, files.items))
            found.append(KeptWork(name, ref, commit, written_at, int(count.text), paths, conflicts))
        return found

    async def take_in(self, work: KeptWork) -> Update:
        """Merge kept work like a delivery, and delete its branch on success."""
        async with self.held():
            ended = await self._take(work.commit, f"the work {work.name}")
            if not ended.is_refused:
                await self.drop(work)
            return ended

    async def drop(self, work: KeptWork) -> None:
        async with self.held():
            await self._git("update-ref", "-d", f"refs/heads/{WORK}/{work.name}")
            if work.ref.startswith("refs/remotes/") or self._address is not None:
                pushed = await self._push("", f"{WORK}/{work.name}")
                if pushed.is_refused:
                    raise GitError(self.root, f"the branch stays at the origin: {pushed.words}")
                await self._git("update-ref", "-d", work.ref)

    def _work_of(self, agent: str, run: str) -> str:
        if not is_id(agent):
            raise GitRefusedError(self.root, f"{printable(agent)} is not a valid agent name")
        return f"{WORK}/{agent}/{run}"

    def _like(self, root: StrPath, *, plan: StrPath | None = None) -> Git:
        limits, local = self._limits, self._local
        return Git(root, timeout=self._timeout, limits=limits, local=local, plan=plan)

    @asynccontextmanager
    async def _common(self) -> AsyncIterator[str | None]:
        """Yield the common directory of a clone, without its settings; None for any other."""
        settings = await self._guard.settings()
        if self._plan is None:
            yield None
            return
        with without_settings(self.root, settings) as common:
            yield common

    async def _git(
        self, *args: str, fails: bool = False, **options: Unpack[calls.CallOptions]
    ) -> GitOutput:
        options.setdefault("timeout", self._timeout)
        async with self._common() as common:
            if common is not None:
                options["common"] = common
            said = await calls.call(self.root, *args, **options)
        if said.code and not fails:
            raise GitError(self.root, said.why)
        if "dubious ownership" in said.err:
            raise GitRefusedError(self.root, "belongs to another user, so git does not trust it")
        return said

    async def _commit_at(self, ref: str) -> str | None:
        said = await self._git(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}", fails=True
        )
        # git reports nothing for an unknown name.
        if said.code and said.err.strip():
            raise GitError(self.root, said.why)
        return said.text or None

    async def _file_in(self, commit: str, name: str) -> tuple[str, str] | None:
        said = await self._git("ls-tree", "-z", "--full-tree", commit, "--", name)
        entry, _, _ = said.out.partition(b"\t")
        mode, _, rest = entry.decode().partition(" ")
        return (mode, rest.partition(" ")[2]) if mode in {"100644", "100755"} else None

    async def _is_ancestor(self, one: str, other: str) -> bool:
        said = await self._git("merge-base", "--is-ancestor", one, other, fails=True)
        return said.code == 0

    async def _name_origin(self, url: str) -> None:
        await self._git("remote", "set-url", "--end-of-options", "origin", without_password(url))

    def _is_local(self, url: str) -> bool:
        if _ADDRESS.fullmatch(url):
            return False
        if url.startswith(("/", "file:///")):
            path = unquote(url.removeprefix("file://")) if url.startswith("file:") else url
            if os.path.realpath(path) in self._local:
                return True
            reason = "is a local path; to allow it, list it in the setting git.local"
            raise LocalOriginError(self.root, f"origin {masked(url)} {reason}")
        if _SCP.fullmatch(url):
            return False
        reason = "is not a supported address; use https://, ssh:// or user@host:path"
        raise GitRefusedError(self.root, f"origin {printable(masked(url))} {reason}")

    def _inside(self, path: StrPath) -> str:
        given = os.path.join(self.root, path)
        # The last part may be a link, which is then the file itself.
        parent, last = os.path.split(os.path.normpath(given))
        name = os.path.relpath(os.path.join(os.path.realpath(parent), last), self.root)
        if name in {".", ".."} or name.startswith("../"):
            raise GitError(self.root, f"{printable(str(path))} is not a file in this repository")
        return name

    async def _fetched(
        self, url: str, branch: str, remote: str, *, is_ours: bool = False
    ) -> str | None:
        into = f"refs/remotes/{remote}/{branch}"
        said = await self._fetch(url, f"+refs/heads/{branch}:{into}", is_ours=is_ours)
        if "couldn't find remote ref" in said.err:
            return None
        if f"signal {signal.SIGXFSZ.value}" in said.err:
            reason = f"{masked(url)} sent more than {self._limits.total:,} bytes at once"
            raise GitRefusedError(self.root, reason)
        if said.code:
            raise GitError(self.root, said.why)
        return await self._commit_at(into)

    async def _fetch_from(self, clone: Git, refspec: str) -> GitOutput:
        async with clone._common() as common:
            program = f"GIT_COMMON_DIR={shlex.quote(common or '')} git-upload-pack"
            return await self._fetch(clone.root, refspec, program=program)

    async def _fetch(
        self, url: str, refspec: str, *, is_ours: bool = False, program: str = ""
    ) -> GitOutput:
        local = is_ours or bool(program) or self._is_local(url)
        there_runs = [f"--upload-pack={program}"] if program else []
        there = _half_fetched(self.root)
        try:
            return await self._git(
                "fetch", "--quiet", "--no-tags", "--no-recurse-submodules",
                "--no-auto-maintenance", "--no-write-fetch-head", *there_runs,
                "--end-of-options", url, refspec,
                local=local, fails=True, most=self._limits.total,
            )  # fmt: skip
        finally:
            for path in _half_fetched(self.root) - there:
                _sweep(path)

    async def _take(self, commit: str, what: str) -> Update:
        take = self._bring_in if await self.origin() is None else self._send
        return await take(commit, what)

    async def _bring_in(self, theirs: str, what: str) -> Update:
        ours = await self.head()
        if ours is None:
            words = "the repository has no commits; create the first one"
            return Update(UpdateRefusal.REFUSED, words)
        merged = await self._merged(ours, theirs, f"Merge {what}")
        if isinstance(merged, Update):
            return merged
        if merged == ours:
            return Update(commit=ours)
        if reason := await self._objection(ours, merged):
            return Update(UpdateRefusal.NOT_ACCEPTED, reason)
        async with self._settings_noted(ours, merged):
            said = await self._git(
                "merge", "--ff-only", "--no-overwrite-ignore", "--no-stat", "--quiet",
                "--end-of-options", merged, fails=True,
            )  # fmt: skip
        if said.code:
            is_dirty = _IN_THE_WAY.search(said.err) is not None
            why = UpdateRefusal.DIRTY if is_dirty else UpdateRefusal.REFUSED
            return Update(why, " ".join(said.err.split()))
        return Update(commit=merged)

    async def _merged(self, ours: str, theirs: str, message: str) -> str | Update:
        """Return the merge of two commits, which may be one of them; no tree is changed."""
        if await self._is_ancestor(theirs, ours):
            return ours
        if await self._is_ancestor(ours, theirs):
            return theirs
        said = await self._git(
            "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z",
            "--end-of-options", ours, theirs, fails=True,
        )  # fmt: skip
        tree, *names = [os.fsdecode(name) for name in said.out.split(b"\0") if name] or [""]
        if said.code == 1 and tree:
            paths = tuple(dict.fromkeys(names))
            shown = ", ".join(printable(path) for path in paths[:5])
            return Update(UpdateRefusal.CONFLICT, f"both sides changed {shown}", paths=paths)
        if said.code:
            return Update(UpdateRefusal.REFUSED, said.why)
        made = await self._git("commit-tree", tree, "-p", ours, "-p", theirs, "-m", message)
        return made.text

    async def _objection(self, ours: str, theirs: str) -> str | None:
        entries = [each for each in await self._changes(ours, theirs) if each[2] != "D"]
        objects = [f"{sha}\n" for mode, sha, _, _ in entries if mode != "160000"]
        sizes: dict[str, int] = {}
        if objects:
            said = await self._git(
                "cat-file", "--batch-check=%(objectname) %(objectsize)",
                stdin="".join(objects).encode(),
            )  # fmt: skip
            for name, size, *_ in (line.split() for line in said.out.decode().splitlines()):
                if not size.isdigit():
                    reason = "an object is missing; run `git fsck` to find it"
                    raise GitRefusedError(self.root, reason)
                sizes[name] = int(size)
        changes = ((mode, path, sizes.get(sha, 0)) for mode, sha, _, path in entries)
        return objection(changes, self._limits)

    async def _changes(self, ours: str, theirs: str) -> list[tuple[str, str, str, bytes]]:
        """Return what differs between two commits: mode, object, letter and path of each file."""
        said = await self._git("diff-tree", "-r", "-z", "--raw", "--no-renames", ours, theirs)
        fields = said.out.split(b"\0")
        return [
            (found[1].decode(), found[2].decode(), found[3].decode(), path)
            for meta, path in zip(fields[::2], fields[1::2], strict=False)
            if (found := _TREE_CHANGE.fullmatch(meta))
        ]

    @asynccontextmanager
    async def _settings_noted(self, ours: str, theirs: str) -> AsyncIterator[None]:
        """Record the guarded settings that come into the tree inside the block.

        They are recorded before, in case of a crash, and after as they are on the disk: attributes
        of a commit can make a file differ from its content.
        """
        paths = [os.fsdecode(path) for *_, path in await self._changes(ours, theirs)]
        named = [path for path in paths if f"/{path}".lower().endswith(f"/{FILE}")]
        if not named:
            yield
            return
        try:
            known = read_arrivals(self.root)
            noted: dict[str, Arrivals] = {}
            for path in named:
                name = f"{path[: -len(FILE)]}{FILE}"  # some file systems ignore case
                data = await self.content(path, at=theirs)
                coming = values_of("" if data is None else data.decode(errors="replace"))
                written = written_at(f"{self.root}/{name}")
                last = await self._git("rev-list", "--max-count=1", theirs, "--", path)
                noted[name] = before_pull(written, coming, known.get(name), last.text or theirs)
            change_arrivals(self.root, noted)
            yield
            has_moved = await self.head() == theirs
            ended: dict[str, Arrivals | None] = {}
            for name, each in noted.items():
                found = written_at(f"{self.root}/{name}") if has_moved else None
                ended[name] = after_pull(each, found)
            change_arrivals(self.root, ended)
        except ArrivalsError as error:
            raise GitRefusedError(error.path, error.reason) from None

    async def _push(self, commit: str, branch: str) -> Update:
        url = await self.origin("pushurl") or await self.origin()
        if url is None:
            return Update(UpdateRefusal.NO_ORIGIN, "the repository has no origin")
        said = await self._git(
            "push", "--porcelain", "--no-verify", "--no-signed", "--end-of-options", url,
            f"{commit}:refs/heads/{branch}",
            local=self._is_local(url), fails=True,
        )  # fmt: skip
        if said.code == 0:
            if commit:  # else it was removed there
                await self._git("update-ref", f"refs/remotes/origin/{branch}", commit)
            return Update()
        refused = [line for line in said.text.splitlines() if line.startswith("!")]
        words = masked(refused[0].rpartition("\t")[2]) if refused else said.why
        # Of two concurrent pushes the origin rejects one, in its own words.
        is_behind = bool(refused) and _FIRST.search(f"{words} {said.err}") is not None
        return Update(UpdateRefusal.BEHIND if is_behind else UpdateRefusal.REFUSED, words)

    async def _send(self, tip: str, what: str) -> Update:
        here = await self.branch()
        for _ in range(_ATTEMPTS):
            base = await self.fetch()
            merged = tip if base is None else await self._merged(base, tip, f"Merge {what}")
            if isinstance(merged, Update):
                return merged
            seen = base or await self.head()
            if seen is not None and (reason := await self._objection(seen, merged)):
                return Update(UpdateRefusal.NOT_ACCEPTED, reason)
            pushed = await self._push(merged, here)
            if not pushed.is_refused:
                followed = await self._bring_in(merged, f"origin/{here}")
                words = f"the working tree was not updated: {followed.words}"
                return Update(words=words if followed.is_refused else "", commit=merged)
            if pushed.why is not UpdateRefusal.BEHIND:
                return pushed
        return Update(UpdateRefusal.TIMEOUT, "other pushes came first each time")


async def edit_and_commit(
    path: StrPath, make: Callable[[], T], *, message: Callable[[T], str]
) -> tuple[T, CommitResult]:
    """Let *make* edit a file, and commit that file alone if it is under git.

    Return the result of *make*, and the commit or why there is none.
    """
    top = repository_of(path)
    if top is None:
        return await asyncio.to_thread(make), CommitResult(None)
    git, absolute = Git(top), os.path.abspath(path)
    made: list[T] = []
    try:
        async with git.held():
            was = await git.status(absolute)
            made.append(await asyncio.to_thread(make))
            said = message(made[0])
            if not said:
                return made[0], CommitResult(None)
            author = await git.author_of(current_actor())
            return made[0], await git.commit(absolute, message=said, author=author, was=was)
    except GitError as error:
        edited = made[0] if made else await asyncio.to_thread(make)
        return edited, CommitResult(None, error.reason)


def _half_fetched(root: str) -> frozenset[str]:
    here = layout(root)
    # A repository without packs has none.
    with suppress(FileNotFoundError):
        if here is not None:
            with os.scandir(f"{here.common}/objects/pack") as entries:
                return frozenset(each.path for each in entries if each.name.startswith("tmp_"))
    return frozenset()


def _sweep(path: str) -> None:
    """Remove leftovers of fetches, so that one that fails at each tick does not fill the disk."""
    if sys.platform != "linux":
        return
    # A lease is granted only on a file that no process, such as another fetch, has open.
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            os.remove(path)
        finally:
            os.close(descriptor)


@asynccontextmanager
async def _locked(root: str, patience: timedelta) -> AsyncIterator[None]:
    """Hold the lock of a repository; it is in `.git`, and is released when its holder dies."""
    here = layout(root)
    if here is None:
        raise GitRefusedError(root, "is not a git repository; run `git init`")
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(f"{here.common}/{LOCK}", flags, 0o600)
    except OSError as error:
        raise GitError(root, f"cannot be locked: {error.strerror}") from error
    loop = asyncio.get_running_loop()
    until = loop.time() + patience.total_seconds()
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if loop.time() > until:
                    words = f"another process has locked it for {patience.total_seconds():g} s"
                    raise calls.GitBusyError(root, words) from None
                await asyncio.sleep(_PAUSE)
        yield
    finally:
        os.close(descriptor)
