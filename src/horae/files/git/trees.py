"""Where members work, each in a clone of its own, and how their work is delivered."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from horae.core.ports import RunError
from horae.core.source import Revision
from horae.errors import Exit, HoraeError
from horae.files.edit import remove_tree
from horae.files.git import repository
from horae.files.git.calls import Author, GitError
from horae.files.git.layout import layout
from horae.files.git.repository import DeliveryResult, Git, is_repository

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable

    from horae.files.git.repository import Pull
    from horae.files.read import StrPath

log = logging.getLogger(__name__)

_PATIENCE: Final = timedelta(seconds=5)  # with a look at git, while plans wait to be read
_PLAN: Final = "plan"  # the clone of the plan, in the data directory of a machine that shares it
_OWN: Final = 0.5  # seconds between two looks at whether the plan was changed here
_SOON: Final = timedelta(seconds=5)  # after an origin that could not be reached, or refused


@dataclass(frozen=True, slots=True)
class Tree:
    path: Path
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Undelivered:
    """Work of a member that is not where it belongs, as far as is known; never a guess."""

    member: str
    place: str  # the tree that has it, or the machine that had it
    commits: int | None = None  # None: nobody can look
    tip: str | None = None  # the last of them
    branch: str | None = None  # where they were put aside, for all to see
    reason: str = ""

    @classmethod
    def lost(cls, member: str, machine: str) -> Undelivered:
        return cls(member, machine, reason="the node is lost, and its clone cannot be read")

    def __str__(self) -> str:
        if self.branch is not None:
            return f"{self.branch}: {self.reason}"
        if self.commits is None:
            what = f"undelivered work of {self.member} on {self.place} is not known"
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

    @property
    def branch(self) -> str | None:
        return None if self.undelivered is None else self.undelivered.branch

    def facts(self) -> dict[str, object]:
        made = self.delivery
        if made is None:
            return {}
        facts: dict[str, object] = {"delivered": made.is_delivered}
        facts |= {"delivery": made.words} if made.words else {}
        facts |= {"branch": made.branch} if made.branch else {}
        return facts | ({"undelivered": self.undelivered.data()} if self.undelivered else {})


@dataclass(frozen=True, slots=True)
class Trees:
    """The clones that members work in, beneath a data directory."""

    root: Path  # from which they are made; if it is no repository, members work there itself
    data: Path
    local: Collection[StrPath] = ()  # origins on this machine that may be asked
    origin: str | None = None  # from which they are made in place of the root
    branch: str | None = None  # unset, the one that is checked out at the origin

    def path_of(self, name: str) -> Path:
        return self.data / "trees" / name

    def names(self) -> list[str]:
        try:
            found = sorted((self.data / "trees").iterdir())
        except OSError:
            return []
        return [each.name for each in found if is_repository(each)]

    async def make(self, name: str) -> Tree:
        """Return where a member works; a clone that cannot be brought up to date stays as it is."""
        if not self._has_clones():
            return Tree(self.root)
        path = self.path_of(name)
        try:
            if not is_repository(path):
                async with _whole(path) as new:
                    made = await (
                        self._git(self.root).clone(new)
                        if self.origin is None
                        else Git.clone_of(self.origin, new, branch=self.branch, local=self.local)
                    )
                    await made.sign_as(Author.named(name))
            pulled = await self._pull(path)
        except (GitError, OSError) as error:
            raise RunError(f"the clone {path} cannot be created: {error}") from None
        return Tree(path, why_left(pulled) if pulled.is_left_alone else "")

    async def deliver(self, name: str) -> Brought:
        """Bring a member's commits home; what does not go in cleanly stays on its branch."""
        path = self.path_of(name)
        if not self._has_clones() or not is_repository(path):
            return Brought()
        try:
            made = await (
                self._git(self.root).deliver(path, agent=name)
                if self.origin is None
                else self._git(path).send(agent=name)
            )
        except (GitError, OSError) as error:  # the next delivery brings it
            made = DeliveryResult(is_delivered=False, words=str(error))
        if made.is_delivered:
            return Brought(made)
        return Brought(made, await self._left(name, made.words, branch=made.branch))

    async def undelivered(self, name: str) -> Undelivered | None:
        """Return the work of a member that is only in its clone; None if there is none."""
        if not is_repository(self.path_of(name)):
            return None
        left = await self._left(name, "waiting for the next delivery")
        return None if left.commits == 0 else left

    def _has_clones(self) -> bool:
        return self.origin is not None or is_repository(self.root)

    async def _pull(self, path: Path) -> Pull:
        git = self._git(path)
        if self.origin is None:
            return await git.pull(source=self.root)
        if await Git(path).origin() != (origin := repository.without_password(self.origin)):
            reason = f"not a clone of {origin}"
            raise GitError(git.root, f"{reason}; deliver its commits and remove the directory")
        return await git.pull()

    async def _left(self, name: str, reason: str, *, branch: str | None = None) -> Undelivered:
        path = self.path_of(name)
        commits: int | None = None
        tip: str | None = None
        try:
            tip = await self._git(path).head()
            commits = 0 if tip is None else await self._git(path).unshared()
        except (GitError, OSError) as error:
            reason = reason or str(error)
        return Undelivered(name, str(path), commits, tip, branch, reason)

    def _git(self, path: Path) -> Git:
        return Git(path, local=self.local, origin=self.origin)


@asynccontextmanager
async def _whole(path: Path) -> AsyncIterator[Path]:
    """Give a place to make a directory in, which is moved to *path* only once it is whole."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    new = path.with_name(f"{path.name}~")  # no member has such a name
    await asyncio.to_thread(remove_tree, new)
    try:
        yield new
        new.replace(path)
    finally:
        await asyncio.to_thread(remove_tree, new)


class ClusterError(HoraeError, code="cluster", exit_code=Exit.USAGE):
    pass


@dataclass(frozen=True, slots=True)
class PlanTree:
    """The plan on this machine: a clone of its own, as a branch of the origin has it."""

    path: Path
    url: str
    branch: str
    local: tuple[Path, ...] = ()

    @classmethod
    async def of(
        cls, root: Path, data: Path, *, local: tuple[Path, ...], branch: str | None
    ) -> PlanTree:
        """Return the clone, in a data directory, of the origin of a plan root."""
        git = Git(root, local=local)
        url = await git.origin() if is_repository(root) else None
        if url is None:
            raise ClusterError(
                f"{root}: nodes share a plan through git, and this directory has no origin;"
                " add one that all nodes can reach: git remote add origin URL"
            )
        return cls(data / _PLAN, url, branch or await git.branch(), local)

    async def update(self) -> str | None:
        """Bring the clone up to date; return why that failed, if it did."""
        git = Git(self.path, local=self.local, origin=self.url)
        try:
            if not is_repository(self.path):
                async with _whole(self.path) as new:
                    await Git.clone_of(self.url, new, branch=self.branch, local=self.local)
                return None
            if await git.unshared():
                await git.push()  # if somebody was first, that is merged below
            pulled = await git.pull()
            if pulled.is_left_alone:
                return f"{self.path}: {why_left(pulled)}"
            if await git.unshared():
                pushed = await git.push()
                if pushed.ending is not repository.Pushed.PUSHED:
                    return f"{self.path}: local commits are not pushed: {pushed.words}"
        except GitError as error:
            return str(error)
        return None

    def mark(self) -> object:
        try:
            found = (self.path / ".git" / "refs" / "heads" / self.branch).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino

    async def head(self) -> str | None:
        return await Git(self.path, local=self.local).head()


@dataclass(slots=True)
class FollowedPlan:
    """A clone that follows its origin, at an interval and when a commit is asked for."""

    tree: PlanTree
    every: timedelta
    trouble: str = ""  # why it is not as its origin has it, if it is not
    head: str | None = None  # the commit that it holds
    refresh: Callable[[], Awaitable[Iterable[str]]] | None = None  # gives what it has to say
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    _tried: str | None = None  # the commit for which the origin was asked last
    _updating: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def follow(self) -> None:
        mark = self.tree.mark()
        while True:
            wait = min(self.every, _SOON) if self.trouble else self.every
            with suppress(TimeoutError):  # the wait is over
                async with asyncio.timeout(wait.total_seconds()):
                    while self.tree.mark() == mark:  # until the plan here is at another commit
                        await asyncio.sleep(_OWN)
            async with self._updating:
                mark = self.tree.mark()  # before: what is committed meanwhile goes there next
                await self._update()

    async def catch_up(self, commit: str) -> None:
        if commit == self.head:
            return
        async with self._updating:
            if commit not in (self.head, self._tried):
                await self._update()
                self._tried = commit

    async def _update(self) -> None:
        trouble = await self.tree.update() or ""
        if trouble and trouble != self.trouble:
            log.warning("the plan: %s", trouble)
        head = await self.tree.head()
        has_moved = (head, trouble) != (self.head, self.trouble)
        self.head, self.trouble = head, trouble
        if has_moved:
            for words in () if self.refresh is None else await self.refresh():
                log.warning("%s", words)
            self.moved.set()


@dataclass(frozen=True, slots=True)
class Commits:
    """In which commit the files of a plan root stand, if it is under git."""

    root: Path
    local: tuple[Path, ...] = ()

    @property
    def log(self) -> Path | None:
        """The file that git writes to whenever another commit is checked out."""
        top = repository.repository_of(self.root)
        here = None if top is None else layout(top)
        return None if here is None else Path(here.directory) / "logs" / "HEAD"

    async def of(self, files: Collection[str]) -> Revision | None:
        """Return the last commit, and which of some files stand in it as they are."""
        top = repository.repository_of(self.root)
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


def why_left(pulled: Pull) -> str:
    return f"{pulled.why}: {pulled.words}" if pulled.words else str(pulled.why)
