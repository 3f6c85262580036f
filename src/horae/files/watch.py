"""Which files change beneath some roots, told once they have come to rest.

A thread for each root is notified by the system, one directory at a time; where the system cannot
notify, it polls. A root that is not there is waited for, and each time the watch over a root
begins the root itself counts as changed, so that what happened before is not lost. Files that hold
entries are read again only if they have changed.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from horae.core.source import Scan, unexpected
from horae.errors import HoraeError
from horae.files import read
from horae.files.read import PlanFileError, PlanFiles, in_words, is_git, printable, stamp_of, told

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping

    from watchfiles._rust_notify import RustNotify

    from horae.core.source import Scanned
    from horae.files.read import Content, StrPath

POLL: Final = timedelta(seconds=2)  # between two looks where the system cannot tell
LONGEST: Final = 10  # times the quiet: so long a steady writer keeps a change from being told
_AGAIN: Final = 300.0  # seconds until all is looked at once more, whatever was told
_LOOK: Final = 1.0  # seconds between two looks whether a root is there
_SAME: Final = 10.0  # the same whether it is another: only of links above it nobody tells
_SHARE: Final = 10  # looking takes at most one part in so many of a core

Identity: TypeAlias = "tuple[int, int]"
T = TypeVar("T")


async def changes(
    roots: Iterable[StrPath],
    *,
    quiet: timedelta,
    stop: asyncio.Event,
    poll: timedelta | None = None,
    ignored: Iterable[StrPath] = (),
    note: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[frozenset[str]]:
    """Yield the paths that changed, each time after a *quiet* without further changes.

    With *poll* it looks that often instead of being notified. *ignored* are directories that are
    never looked into, such as a data directory. *note* is told what is not as it should be.
    """
    loop, came, names = asyncio.get_running_loop(), asyncio.Event(), set[str]()
    ended = threading.Event()

    def add(found: Collection[str]) -> None:
        names.update(found)
        came.set()

    def tell(hear: Callable[[T], None], what: T) -> None:
        # The loop may be closed while a thread still looks around.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(hear, what)

    passed = frozenset(map(os.path.abspath, ignored))
    for root in map(os.path.abspath, roots):
        watch = _Watch(root, passed, partial(tell, add), partial(tell, note), ended, quiet, poll)
        threading.Thread(target=watch.keep, name="watch", daemon=True).start()
    stopping = asyncio.ensure_future(stop.wait())
    stopping.add_done_callback(lambda _: came.set())
    try:
        while await _settled(came, quiet, stop):
            found = frozenset(names)
            names.clear()
            yield found
    finally:
        ended.set()
        stopping.cancel()


async def _settled(came: asyncio.Event, quiet: timedelta, stop: asyncio.Event) -> bool:
    """Return True when there is news and all is quiet; False when it is time to stop."""
    await came.wait()
    loop = asyncio.get_running_loop()
    until = loop.time() + LONGEST * quiet.total_seconds()
    while came.is_set() and not stop.is_set():
        came.clear()
        rest = min(quiet.total_seconds(), until - loop.time())
        with suppress(TimeoutError):  # it is quiet, or has not been for long enough
            await asyncio.wait_for(came.wait(), rest)
    return not stop.is_set()


@dataclass
class _Watch:
    root: str
    ignored: frozenset[str]
    bring: Callable[[Collection[str]], None]
    say: Callable[[str], None]
    ended: threading.Event
    quiet: timedelta
    poll: timedelta | None

    def keep(self) -> None:
        while not self.ended.is_set():
            try:
                identity = _identity(self.root)
                if self.poll is None:
                    self._watch_root(identity)
                elif identity is None:
                    self.ended.wait(_LOOK)
                else:
                    self._look_around(identity, self.poll.total_seconds())
            except Exception as error:  # no file may end the watch, and with it the engine
                self.say(f"{printable(self.root)}: cannot be watched ({_why(error)})")
                self.bring([self.root])  # what happens meanwhile is not told
                self.ended.wait(POLL.total_seconds())

    def _watch_root(self, identity: Identity | None) -> None:
        """Have the system tell of changes; where it cannot, poll from now on."""
        from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

        directories = frozenset(path for path, _ in _tree(self.root, self.ignored))
        if not directories:  # the root is not for us; it may be soon
            self.ended.wait(_LOOK)
            return
        try:
            with RustNotify(
                watch_paths=sorted(directories),
                debug=False,
                force_polling=False,
                poll_delay_ms=0,
                recursive=False,  # it would follow links, and watch our own data
                ignore_permission_denied=True,
            ) as told:
                if identity is not None:
                    self.bring([self.root])
                self._listen(told, directories, identity)
        except FileNotFoundError:
            return  # a directory went while we looked: once more
        except (OSError, UnicodeError, WatchfilesRustInternalError) as error:
            often = f"checking every {POLL.total_seconds():g} s instead"
            why = f"change notifications are not available ({_why(error)}); {often}"
            self.say(f"{printable(self.root)}: {why}")
            self.poll = POLL

    def _listen(
        self, told: RustNotify, directories: Collection[str], identity: Identity | None
    ) -> None:
        """Pass on changes until a directory comes or goes, the root is another, or it is long."""
        # How often the system is asked what it saw: a small part of the quiet, in ms.
        step = min(50, max(5, int(self.quiet.total_seconds() * 250)))
        timeout = int(_SAME * 1000)
        # Systems forget to tell: of too much at once, or of what others do on a shared disk.
        until = time.monotonic() + _AGAIN
        while not self.ended.is_set() and time.monotonic() < until:
            if _identity(self.root) != identity:
                if identity is not None:
                    self.bring([self.root])
                return  # the watch over what is there now brings it, too
            seen = told.watch(2 * step, step, timeout, self.ended)
            names = set() if isinstance(seen, str) else {path for _, path in seen}
            if identity is None:
                if names:  # perhaps the root, or a directory that it is to be in
                    self.ended.wait(_LOOK)
                    return
                continue
            ours = [name for name in names if self._is_ours(name)]
            if ours:
                self.bring(ours)
            if any(
                name in directories or (os.path.isdir(name) and not os.path.islink(name))
                for name in ours
            ):
                return

    def _look_around(self, identity: Identity, poll: float) -> None:
        was = self._snapshot()
        self.bring([self.root])
        pause = poll
        while not self.ended.wait(pause):
            began = time.monotonic()
            now = self._snapshot()
            if _identity(self.root) != identity:
                self.bring([self.root])
                return
            changed = {path for path, _ in was.items() ^ now.items()}
            if changed:
                self.bring(changed)
            was = now
            pause = max(poll, _SHARE * (time.monotonic() - began))

    def _snapshot(self) -> dict[str, tuple[int, ...]]:
        entries = (each for _, found in _tree(self.root, self.ignored) for each in found)
        stamps: dict[str, tuple[int, ...]] = {}
        for entry in entries:
            if self._is_ours(entry.path):
                with suppress(OSError):  # it went while we looked
                    status = entry.stat(follow_symlinks=False)
                    stamps[entry.path] = () if stat.S_ISDIR(status.st_mode) else stamp_of(status)
        return stamps

    def _is_ours(self, path: str) -> bool:
        """Tell whether a change of a path in a watched directory is worth telling."""
        if path in self.ignored or _is_passed(os.path.basename(path)):
            return path == self.root
        # What stands in the directory of a root that is a file is not beneath it.
        return path == self.root or path.startswith(f"{self.root.rstrip('/')}/")


def _why(error: Exception) -> str:
    if isinstance(error, UnicodeEncodeError):
        return f"{printable(error.object)} has a name that is not UTF-8"
    return in_words(error) if isinstance(error, OSError) else str(error) or type(error).__name__


def _tree(root: str, ignored: Collection[str]) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """Yield the directories in which plans can be, without following a link, and their entries."""
    # Of a root that is a file, the directory that it is in: saved anew, it is another file. Of one
    # that is not there, the directory that is.
    top = root
    while not os.path.isdir(top) and top != os.path.dirname(top):
        top = os.path.dirname(top)
    stack = [top]
    while stack:
        directory = stack.pop()
        try:
            with os.scandir(directory) as listing:
                entries = list(listing)
        except OSError:
            continue  # gone, or not for us; whoever reads plans says so
        if directory != root and top == root and any(is_git(each.name) for each in entries):
            continue
        yield directory, entries
        for entry in entries if top == root else ():
            with suppress(OSError):  # it went while we looked
                is_passed = _is_passed(entry.name) or entry.path in ignored
                if not is_passed and entry.is_dir(follow_symlinks=False):
                    stack.append(entry.path)


def _is_passed(name: str) -> bool:
    """Tell whether a name is passed by: git's files, our data, edits under way, editors' locks."""
    return is_git(name) or (name.startswith(".") and name != ".agentd")


def _identity(path: str) -> Identity | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


_SECOND: Final = 10**9  # in the unit of stamps
FileStamp: TypeAlias = "tuple[int, ...]"


@dataclass
class FileCache:
    """The files beneath a root that hold entries, each understood only if its bytes have changed.

    *reader* names the code and the zone that a file was understood by; what *understand* raises is
    a problem of that file. A file is known by its bytes and its stamp, and by its stamp alone once
    that is sure to stand for these bytes: then it is not even read. All this is in the index.
    """

    root: StrPath
    reader: str
    understand: Callable[[Content, str], Iterable[Scanned]]
    suffixes: tuple[str, ...] = (".org",)
    is_flat: bool = False
    prefix: str = ""
    limit: int = read.LIMIT
    most: int = read.MOST

    def __post_init__(self) -> None:
        self._root = os.fspath(self.root).rstrip("/") or "/"
        self._top = f"{self._root.rstrip('/')}/"
        self._hidden: set[str] = set()  # files that something stood in the way of, at the last look

    def look(self, index: Mapping[str, str]) -> Scan:
        """Return what stands in the files, save those that *index* knows as they are."""
        try:
            found = read.find_plans(
                self._root, suffixes=self.suffixes, most=self.most, is_flat=self.is_flat
            )
        except PlanFileError as error:
            found = PlanFiles((), (error,))
        problems: list[HoraeError] = list(found.problems)
        # Where there is no root there is nothing that only cannot be read.
        hidden = [each for each in found.problems if not isinstance(each, read.PlanMissingError)]
        blocked = {self._inner_name(problem.raw_path) for problem in hidden}
        for in_the_way in self._obstacles(index, found):
            problems.append(in_the_way)
            hidden.append(in_the_way)
            blocked.add(f"{self._inner_name(in_the_way.raw_path)}/")
        broken: dict[str, str] = {}
        entries: list[Scanned] = []
        standing: list[str] = []
        known: dict[str, str] = {}  # of what could not be read nothing is known
        seen: dict[str, str] = {}
        for path in found.plans:
            file = self._file(path)
            was, content = index.get(file, ""), None
            try:
                stamp = _stamp(path)
                known_as = by_stamp = self._known_as(*stamp)
                stands = was == by_stamp
                if not stands:
                    content = read.read_plan(path, root=self._root, limit=self.limit)
                    by_bytes = self._known_as(content.digest, "")
                    stands = was.startswith(by_bytes)
                    # File systems tell time in steps: two saves within one look the same from
                    # outside. So a stamp is believed only once a second look found the same bytes,
                    # and one in whole seconds never: there, the step is longer than we wait.
                    if was != f"{by_bytes}{by_stamp}" or stamp[-1] % _SECOND == 0:
                        known_as = f"{by_bytes}{by_stamp}"
                    if not stands:
                        entries += self._entries(content, file)
            except HoraeError as error:  # also one that went, or is being replaced, as we looked
                problems.append(error)
                blocked.add(file)
                if content is not None:
                    broken[file] = error.reason if isinstance(error, PlanFileError) else str(error)
            else:
                known[file], seen[file] = known_as, by_stamp
                if stands:
                    standing.append(file)
        return Scan(
            tuple(entries),
            (*standing, *sorted(blocked)),
            tuple(map(self._named, problems)),
            known,
            is_still=partial(self._is_still, seen),
            is_bare=not found.plans and not hidden,
            broken=broken,
        )

    def _obstacles(self, index: Mapping[str, str], found: PlanFiles) -> Iterable[PlanFileError]:
        """Return what stands in the way to files known so far, to which no directory leads."""
        gone = {*self._hidden, *index}.difference(map(self._file, found.plans))
        above = {
            name: os.path.dirname(f"{self._top}{name.removeprefix(self.prefix)}") for name in gone
        }
        ways = {path: read.obstacle(path, root=self._root) for path in sorted({*above.values()})}
        # The next index has none of these, and they are to be told of again.
        self._hidden = {name for name, path in above.items() if ways[path] is not None}
        return {each.raw_path: each for each in ways.values() if each is not None}.values()

    def _file(self, path: str) -> str:
        return f"{self.prefix}{path.removeprefix(self._top)}"

    def _named(self, problem: HoraeError) -> HoraeError:
        if not isinstance(problem, PlanFileError):
            return problem
        return problem.about(self._inner_name(problem.raw_path) or problem.raw_path)

    def _is_still(self, seen: Mapping[str, str], file: str) -> bool:
        try:
            stamp = _stamp(f"{self._top}{file.removeprefix(self.prefix)}")
        except HoraeError:
            return False
        return seen.get(file) == self._known_as(*stamp)

    def _entries(self, content: Content, file: str) -> Iterable[Scanned]:
        try:
            return self.understand(content, file)
        except HoraeError:
            raise
        except Exception as error:  # a bug of ours; it is told as a problem of this file
            raise PlanFileError(content.path, unexpected(error)) from error

    def _known_as(self, *signs: object) -> str:
        return " ".join((self.reader, *map(str, signs)))

    def _inner_name(self, path: str) -> str:
        """Return the name that a path has from the root; the root, and what is above, has none."""
        return self._file(path) if path.startswith(self._top) and path != self._top else ""


def _stamp(path: str) -> FileStamp:
    with told(path):
        return stamp_of(os.lstat(path))
