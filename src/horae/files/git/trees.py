"""Trees of agents, each a clone, and the delivery of their work."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from horae.core.ports import HeldBackError, Tree
from horae.core.receipt import Reason, ReasonCode
from horae.core.source import Revision
from horae.errors import Exit, HoraeError
from horae.files.edit import remove_stale, remove_tree
from horae.files.git import repository
from horae.files.git.calls import Author, GitError, origin_in
from horae.files.git.layout import layout, repository_of
from horae.files.git.repository import DeliveryResult, Git, is_repository
from horae.files.read import printable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable

    from horae.files.git.repository import Update
    from horae.files.read import StrPath

log = logging.getLogger(__name__)

_PATIENCE: Final = timedelta(seconds=5)  # with git, while plans wait to be read
_PLAN: Final = "plan"  # the clone of the plan, in the data directory of a node
_OWN: Final = 0.5  # seconds between checks whether the plan was changed here
_AGAIN: Final = 60.0  # seconds until a tree that could not be made is tried again
_MANY: Final = 5  # kept works that are named
_SOON: Final = timedelta(seconds=5)  # after an origin that was unreachable, or refused


@dataclass(frozen=True, slots=True)
class Undelivered:
    member: str
    place: str  # the tree that has it, or the node that had it
    commits: int | None = None  # None: unknown
    tip: str | None = None  # the last of them
    branch: str | None = None  # where they are kept
    reason: str = ""

    @classmethod
    def lost(cls, member: str, machine: str) -> Undelivered:
        return cls(member, machine, reason="the node is lost, and its clone cannot be read")

    def __str__(self) -> str:
        if self.branch is not None:
            return f"{self.branch}: {self.reason}"
        if self.commits == 0:
            what = f"uncommitted work in {self.place}"
        elif self.commits is None:
            what = f"whether {self.member} has undelivered work on {self.place} is not known"
        else:
            many = "1 commit" if self.commits == 1 else f"{self.commits} commits"
            what = f"{many} in {self.place}"
        return f"{what}: {self.reason}"

    def data(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Brought:
    delivery: DeliveryResult | None = None  # None: there is no clone, so nothing is delivered
    undelivered: Undelivered | None = None
    committed: str | None = None  # the commit of files that the agent left uncommitted

    @property
    def branch(self) -> str | None:
        return None if self.undelivered is None else self.undelivered.branch

    def facts(self) -> dict[str, object]:
        made = self.delivery
        if made is None:
            return {}
        facts = {
            "delivery": made.words,
            "branch": made.branch,
            "diff": made.diff,
            "committed": self.committed,
            "undelivered": self.undelivered and self.undelivered.data(),
        }
        known = {name: value for name, value in facts.items() if value}
        return {"delivered": made.is_delivered, **known}


@dataclass(frozen=True, slots=True)
class Trees:
    """The clones for agents, in a data directory.

    They are clones of the root and follow it, and their commits are fetched into it. So only the
    root, whose settings no agent can change, connects to the origin.
    """

    root: Path  # agents work in it if it is not a repository
    data: Path
    local: Collection[StrPath] = ()  # allowed origins on this machine
    origin: str | None = None  # of a root that is a clone made by the engine
    # What becomes of uncommitted files: delivered like commits (deliver), or kept on a branch for
    # a user to merge (branch); None: delivered if the agent is of the crew.
    uncommitted: str | None = None
    _locks: dict[str, int] = field(default_factory=dict, repr=False)
    # When git could not make the tree of an agent, and why.
    _failed: dict[str, tuple[float, str]] = field(default_factory=dict, repr=False)

    def path_of(self, key: str) -> Path:
        return self.data / "trees" / key

    def names(self) -> list[str]:
        try:
            found = sorted((self.data / "trees").iterdir())
        except OSError:
            return []
        return [each.name for each in found if is_repository(each)]

    async def why_held(self, agent: str) -> Reason | None:
        """Return why no tree can be made for an agent; one of git counts for a minute."""
        if not is_repository(self.root):
            return None
        failed_at, words = self._failed.get(agent, (0.0, ""))
        words = words if monotonic() - failed_at < _AGAIN else ""
        git = self._git(self.root)
        try:
            await git.branch()
            if not self.names() and await git.head() is None:
                words = "it has no commit, so no agent can work in a clone of it; commit the plan"
                words = f"{self.root}: {words}"
        except GitError as error:
            words = str(error)
        return Reason(ReasonCode.NOT_READY, words) if words else None

    async def take(self, agent: str, *, is_member: bool = False) -> Tree:
        """Return a tree for one run of an agent, up to date if possible.

        It is the same for every run, except for a run concurrent with another of the agent.
        """
        if not is_repository(self.root):
            return Tree(self.root)
        key = ""
        try:
            key = self.lock(agent)
            path, plan = self.path_of(key), self._git(self.root)
            troubles = []
            if self.origin is not None and (pulled := await plan.pull()).is_refused:
                troubles.append(why_refused(pulled))
            if not is_repository(path) or not _is_whole(path):
                troubles += _move_away(path)
                async with _whole(path) as new:
                    await (await plan.clone(new)).sign_as(Author.named(agent))
            await self._check_origin(path)
            await self._recover(key, is_member=is_member)
            tree = self._git(path)
            pulled = await tree.pull(source=self.root)
            if pulled.is_refused:
                behind = await tree.behind(f"refs/remotes/plan/{await plan.branch()}")
                many = "1 commit" if behind == 1 else f"{behind} commits"
                conflict = f"conflict in {', '.join(map(printable, pulled.paths[:5]))}"
                why = conflict if pulled.paths else why_refused(pulled)
                troubles.append(f"{many} behind, {why}")
            edits = tuple(each for each in await plan.uncommitted() if _is_plan(each))
            self._failed.pop(agent, None)
            return Tree(path, key, "; ".join(troubles), edits)
        except (GitError, OSError) as error:
            self.release(key)
            why = str(error)
            if isinstance(error, OSError):
                why = f"{error.filename or self.data}: {(error.strerror or why).lower()}"
            words = f"the tree of {agent} cannot be made: {why}"
            if isinstance(error, GitError):  # git touches files, at which the engine looks again
                self._failed[agent] = monotonic(), words
            raise HeldBackError(words) from None
        except BaseException:
            self.release(key)
            raise

    def lock(self, key: str) -> str:
        name = key.partition("~")[0]
        for directory in (self.data, self.data / "trees"):
            directory.mkdir(mode=0o700, exist_ok=True)
        for number in count(1):
            key = name if number == 1 else f"{name}~{number}"  # no agent has such a name
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self.path_of(f"{key}~lock"), flags, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            self._locks[key] = descriptor
            return key
        raise AssertionError

    def release(self, key: str) -> None:
        descriptor = self._locks.pop(key, None)
        if descriptor is not None:
            os.close(descriptor)

    async def deliver(self, key: str, *, run: str, is_member: bool = True) -> Brought:
        """Deliver the work of a run, and keep on a branch what cannot be merged.

        What the agent left uncommitted is committed in its name first. The tree continues without
        what is kept.
        """
        path, agent = self.path_of(key), key.partition("~")[0]
        if not is_repository(self.root) or not is_repository(path):
            return Brought()
        plan, tree = self._git(self.root), self._git(path)
        is_apart = (self.uncommitted or ("deliver" if is_member else "branch")) == "branch"
        made, committed, trouble = DeliveryResult(is_delivered=True, words="nothing new"), None, ""
        try:
            _remove_locks(path)
            unfinished = await tree.in_progress()
            if is_apart and not unfinished:
                made = await plan.deliver(path, agent=agent, run=run)
            try:
                message = f"Uncommitted work of {agent}"
                committed = await tree.commit_all(message=message, author=Author.named(agent))
            except (GitError, OSError) as error:
                trouble = f"it cannot be committed: {error}"
            if unfinished or (is_apart and committed):
                why = f"a {unfinished} is in progress" if unfinished else "it was not committed"
                made = await plan.keep(
                    path, agent=agent, run=run, words=made.words if made.branch else why
                )
            elif not is_apart:
                made = await plan.deliver(path, agent=agent, run=run)
            if made.branch is not None and not trouble:
                await tree.start_over(self.root, spare=f"{agent}-{run}")
        except (GitError, OSError) as error:  # the next delivery includes it
            made = replace(made, is_delivered=False, words=str(error))
        if made.is_delivered and not trouble:
            return Brought(made, committed=committed)
        reason = trouble if made.is_delivered else made.words
        return Brought(made, await self._left(key, made, reason), committed)

    async def undelivered(self, key: str) -> Undelivered | None:
        if not is_repository(self.path_of(key)):
            return None
        waiting = DeliveryResult(is_delivered=False)
        left = await self._left(key, waiting, "waiting for the next delivery")
        return None if left.commits == 0 else left

    async def _recover(self, key: str, *, is_member: bool) -> None:
        path = self.path_of(key)
        _remove_locks(path)
        tree = self._git(path)
        if await tree.uncommitted() or await tree.in_progress():
            await self.deliver(key, run="recovered", is_member=is_member)

    async def _check_origin(self, path: Path) -> None:
        if self.origin is not None:
            origin = repository.without_password(self.origin)
            if await origin_in(str(path)) != origin:
                reason = f"not a clone of {origin}; deliver its commits and remove the directory"
                raise GitError(str(path), reason)

    async def _left(self, key: str, made: DeliveryResult, reason: str) -> Undelivered:
        path, agent, tip = self.path_of(key), key.partition("~")[0], made.commit
        commits: int | None = None
        try:
            tip = tip or await self._git(path).head()
            commits = 0 if tip is None else await self._git(path).unshared()
        except (GitError, OSError) as error:
            reason = reason or str(error)
        return Undelivered(agent, str(path), commits, tip, made.branch, reason)

    def _git(self, path: Path) -> Git:
        plan = None if path == self.root else self.root
        return Git(path, local=self.local, origin=self.origin, plan=plan)


def _is_plan(name: str) -> bool:
    return name.endswith(".org") or (name.endswith(".md") and "/tasks/" in f"/{name}")


def _is_whole(path: Path) -> bool:
    return (path / ".git").is_dir() and not (path / ".git").is_symlink()


def _remove_locks(path: Path) -> None:
    if _is_whole(path):
        for name in ("index.lock", "HEAD.lock"):
            remove_stale(path / ".git" / name)


def _move_away(path: Path) -> list[str]:
    if not path.is_dir() or not any(path.iterdir()):
        return []
    places = (path.with_name(f"{path.name}~lost-{number}") for number in count(1))
    place = next(each for each in places if not each.exists())
    path.replace(place)
    return [f"the last tree is no longer a repository and is now {place}"]


@asynccontextmanager
async def _whole(path: Path) -> AsyncIterator[Path]:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    new = path.with_name(f"{path.name}~")  # no agent has such a name
    await asyncio.to_thread(remove_tree, new)
    try:
        yield new
        new.replace(path)
    finally:
        await asyncio.to_thread(remove_tree, new)


class ClusterError(HoraeError, code="cluster", exit_code=Exit.USAGE):
    pass


@dataclass(slots=True)
class FollowedPlan:
    """A clone of the plan on this node, which follows a branch of the origin.

    It is updated at an interval, and when a certain commit is needed.
    """

    path: Path
    url: str
    branch: str
    local: tuple[Path, ...] = ()
    every: timedelta = _SOON
    trouble: str = ""  # why it is not up to date
    head: str | None = None  # the commit that it has
    refresh: Callable[[], Awaitable[Iterable[str]]] | None = None  # returns warnings
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    _tried: str | None = None  # the commit for which the origin was last fetched
    _updating: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    async def of(
        cls, root: Path, data: Path, *, local: tuple[Path, ...], branch: str | None
    ) -> FollowedPlan:
        git = Git(root, local=local)
        url = await git.origin() if is_repository(root) else None
        if url is None:
            raise ClusterError(
                f"{root}: nodes share a plan through git, and this directory has no origin;"
                " add one that all nodes can reach: git remote add origin URL"
            )
        return cls(data / _PLAN, url, branch or await git.branch(), local)

    async def update(self) -> None:
        self.trouble = await self._updated()
        if is_repository(self.path):
            self.head = await Git(self.path, local=self.local).head()

    async def _updated(self) -> str:
        git = Git(self.path, local=self.local, origin=self.url)
        try:
            if not is_repository(self.path):
                async with _whole(self.path) as new:
                    await Git.clone_of(self.url, new, branch=self.branch, local=self.local)
                return ""
            if await git.unshared():
                await git.push()  # if another push came first, that is merged below
            pulled = await git.pull()
            if pulled.is_refused:
                return f"{self.path}: {why_refused(pulled)}"
            if await git.unshared():
                pushed = await git.push()
                if pushed.is_refused:
                    return f"{self.path}: local commits are not pushed: {pushed.words}"
        except GitError as error:
            return str(error)
        return ""

    def _mark(self) -> object:
        try:
            found = os.stat(f"{self.path}/.git/refs/heads/{self.branch}")
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino

    async def follow(self) -> None:
        mark = self._mark()
        while True:
            wait = min(self.every, _SOON) if self.trouble else self.every
            with suppress(TimeoutError):  # the wait is over
                async with asyncio.timeout(wait.total_seconds()):
                    while self._mark() == mark:  # until another commit is checked out here
                        await asyncio.sleep(_OWN)
            async with self._updating:
                mark = self._mark()  # before: what is committed meanwhile is pushed next
                await self._tell_update()

    async def catch_up(self, commit: str) -> None:
        if commit == self.head:
            return
        async with self._updating:
            if commit not in (self.head, self._tried):
                await self._tell_update()
                self._tried = commit

    async def _tell_update(self) -> None:
        before = self.head, self.trouble
        await self.update()
        if self.trouble and self.trouble != before[1]:
            log.warning("the plan: %s", self.trouble)
        if (self.head, self.trouble) != before:
            for words in () if self.refresh is None else await self.refresh():
                log.warning("%s", words)
            self.moved.set()


@dataclass(frozen=True, slots=True)
class Commits:
    root: Path
    local: tuple[Path, ...] = ()

    @property
    def log(self) -> Path | None:
        top = repository_of(self.root)
        here = None if top is None else layout(top)
        return None if here is None else Path(here.directory) / "logs" / "HEAD"

    async def of(self, files: Collection[str]) -> Revision | None:
        top = repository_of(self.root)
        if top is None:
            return None
        paths = {file: self.root / file for file in files}
        names = {
            path.relative_to(top).as_posix(): file
            for file, path in paths.items()
            if path.is_relative_to(top) and path.is_file()
        }
        if not names:
            return None
        commit, clean = await Git(top, local=self.local, timeout=_PATIENCE).unchanged(names.keys())
        if commit is None:
            return None
        return Revision(commit, frozenset(names[each] for each in clean))


def kept_words(root: Path) -> list[str]:
    names = repository.kept_names(root)
    if len(names) > _MANY:
        return [f"work of agents is kept on {len(names)} branches; see `horae agent work list`"]
    return [
        f"work of {name.partition('/')[0]} is kept on {repository.WORK}/{name};"
        f" `horae agent work show {name}` shows it, `take` merges it and `drop` removes it"
        for name in names
    ]


def why_refused(update: Update) -> str:
    return f"{update.why}: {update.words}" if update.words else str(update.why)
