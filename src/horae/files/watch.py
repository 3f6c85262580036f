"""Changes of files below some roots, reported once they have settled.

A thread for each root is notified by the system, one directory at a time, or polls where that is
not possible. A missing root is waited for, and each time the watch of a root begins, the root
itself counts as changed, so that no earlier change is lost.
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

from horae.files.read import in_words, is_git, printable, stamp_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator

    from watchfiles._rust_notify import RustNotify

    from horae.files.read import StrPath

POLL: Final = timedelta(seconds=2)  # interval where the system cannot notify
LONGEST: Final = 10  # times the quiet: the longest delay of a change by further writes
_AGAIN: Final = 300.0  # seconds until a complete scan, whatever was notified
_LOOK: Final = 1.0  # seconds between checks whether a root exists
_SAME: Final = 10.0  # seconds between checks of its identity: links above it cause no notification
_SHARE: Final = 10  # polling takes at most one part in so many of a core

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
    """Yield the changed paths, each time after a *quiet* without further changes.

    With *poll*, it polls at that interval instead of being notified. *ignored* directories are
    never entered, such as a data directory. *note* is called with problems.
    """
    loop, came, names = asyncio.get_running_loop(), asyncio.Event(), set[str]()
    ended = threading.Event()

    def add(found: Collection[str]) -> None:
        names.update(found)
        came.set()

    def tell(hear: Callable[[T], None], what: T) -> None:
        # The loop may be closed while a thread still scans.
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
    await came.wait()
    loop = asyncio.get_running_loop()
    until = loop.time() + LONGEST * quiet.total_seconds()
    while came.is_set() and not stop.is_set():
        came.clear()
        rest = min(quiet.total_seconds(), until - loop.time())
        with suppress(TimeoutError):  # it is quiet, or not for long enough
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
                self.bring([self.root])  # changes meanwhile were not notified
                self.ended.wait(POLL.total_seconds())

    def _watch_root(self, identity: Identity | None) -> None:
        """Watch by notifications; poll from then on where that is not possible."""
        from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

        directories = frozenset(path for path, _ in _tree(self.root, self.ignored))
        if not directories:  # the root is unreadable, perhaps not for long
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
            return  # a directory was removed during the scan: repeat it
        except (OSError, UnicodeError, WatchfilesRustInternalError) as error:
            often = f"checking every {POLL.total_seconds():g} s instead"
            why = f"change notifications are not available ({_why(error)}); {often}"
            self.say(f"{printable(self.root)}: {why}")
            self.poll = POLL

    def _listen(
        self, told: RustNotify, directories: Collection[str], identity: Identity | None
    ) -> None:
        """Report changes until the directories change, the root is replaced, or time is up."""
        # How often notifications are fetched: a small part of the quiet, in ms.
        step = min(50, max(5, int(self.quiet.total_seconds() * 250)))
        timeout = int(_SAME * 1000)
        # Systems lose notifications when there are too many, and for changes on a shared disk.
        until = time.monotonic() + _AGAIN
        while not self.ended.is_set() and time.monotonic() < until:
            if _identity(self.root) != identity:
                if identity is not None:
                    self.bring([self.root])
                return  # the watch of the current directories reports it, too
            seen = told.watch(2 * step, step, timeout, self.ended)
            names = set() if isinstance(seen, str) else {path for _, path in seen}
            if identity is None:
                if names:  # perhaps the root, or a directory above it
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
                with suppress(OSError):  # it was removed during the scan
                    status = entry.stat(follow_symlinks=False)
                    stamps[entry.path] = () if stat.S_ISDIR(status.st_mode) else stamp_of(status)
        return stamps

    def _is_ours(self, path: str) -> bool:
        if path in self.ignored or _is_passed(os.path.basename(path)):
            return path == self.root
        # If a root is a file, other files in its directory are not below it.
        return path == self.root or path.startswith(f"{self.root.rstrip('/')}/")


def _why(error: Exception) -> str:
    if isinstance(error, UnicodeEncodeError):
        return f"{printable(error.object)} has a name that is not UTF-8"
    return in_words(error) if isinstance(error, OSError) else str(error) or type(error).__name__


def _tree(root: str, ignored: Collection[str]) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    # Of a root that is a file, its directory: an editor replaces the file. Of a missing
    # one, the nearest existing directory.
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
            continue  # removed or unreadable, which the reader of plans reports
        if directory != root and top == root and any(is_git(each.name) for each in entries):
            continue
        yield directory, entries
        for entry in entries if top == root else ():
            with suppress(OSError):  # it was removed during the scan
                is_passed = _is_passed(entry.name) or entry.path in ignored
                if not is_passed and entry.is_dir(follow_symlinks=False):
                    stack.append(entry.path)


def _is_passed(name: str) -> bool:
    return is_git(name) or (name.startswith(".") and name != ".agentd")


def _identity(path: str) -> Identity | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
