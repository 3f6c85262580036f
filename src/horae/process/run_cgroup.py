"""The pen: a cgroup of a run's own, below one that was delegated to us.

The supervisor uses this, so only what is written in C is imported.
"""

from __future__ import annotations

import os
import time

from horae.process.output import quietly
from horae.process.tree import read

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import TypeAlias

    Files: TypeAlias = list[tuple[bytes, bytes]]  # of a cgroup, and what is to be in each
    # How the name of a pen begins, where its supervisor lives, what is written before the command
    # is born and what after (it would hold the supervisor, too), and for each limit that can be
    # run into the file and the word in it that count this, and how it is told.
    Asked: TypeAlias = tuple[bytes, bytes, Files, Files, list[tuple[bytes, bytes, str, str]]]
else:
    import _signal as signal

TRIES = 60  # to remove one: the system may take a moment to see that nobody is in there
PAUSE = 0.005  # seconds between them
MOST = 10_000  # cgroups in one pen that are removed; what is left goes at the next start


class Pen:
    """A cgroup of the run's own, below one that was delegated to us."""

    __slots__ = ("_after", "_home", "_path", "_told", "is_inside", "refused")

    def __init__(self, path: bytes, asked: Asked) -> None:
        self._path = path
        _, self._home, _, self._after, self._told = asked
        self.is_inside = False  # whether we could not get out again
        self.refused: list[bytes] = []  # what the system would not let us say of it

    @classmethod
    def made(cls, asked: Asked, *, run: int) -> Pen | None:
        path = asked[0] + b"%d-%d" % (run, os.getpid())  # steps of one run are several
        if not _is_made(path) and not (remove(path) and _is_made(path)):
            return None
        pen = cls(path, asked)
        pen.say(asked[2])
        return pen

    def enter(self) -> bool:
        """Go in, so that the command is born there; False means that we must not."""
        try:
            overwrite(self._path + b"/cgroup.procs", b"0")
        except OSError:
            return False
        self.is_inside = True
        return True

    def leave(self) -> None:
        """Go out again: the supervisor must outlive what is in there."""
        if not self.is_inside:
            return
        try:
            overwrite(self._home + b"/cgroup.procs", b"0")
        except OSError:
            return
        self.is_inside = False
        self.say(self._after)

    def kill(self) -> bool:
        return not self.is_inside and kill(self._path)

    def hits(self) -> list[tuple[str, str]]:
        return [
            (name, words)
            for file, word, name, words in self._told
            if count(self._path + b"/" + file, word)
        ]

    def remove(self) -> None:
        if not self.is_inside:
            remove(self._path)

    def say(self, files: Files) -> None:
        for name, value in files:
            try:
                overwrite(self._path + b"/" + name, value)
            except OSError:
                self.refused.append(name)


def kill(path: bytes) -> bool:
    """Kill all that is in a cgroup and below, at once; False: one by one, and some may be left."""
    try:
        overwrite(path + b"/cgroup.kill", b"1")
    except OSError:  # Linux before 5.14
        kill_each(path)
        return False
    return True


def kill_each(path: bytes) -> None:
    for each in (path, *_below(path)):
        for pid in read(each + b"/cgroup.procs").split():
            quietly(os.kill, int(pid), signal.SIGKILL)


def remove(path: bytes, *, tries: int = TRIES) -> bool:
    """Remove a cgroup in which nobody is, and those below it; True means that it is gone."""
    for left in reversed(range(tries)):
        if _is_gone(path):
            return True
        for below in reversed(_below(path)):
            quietly(os.rmdir, below)
        if _is_gone(path):
            return True
        if left:
            time.sleep(PAUSE)
    return False


def count(path: bytes, name: bytes) -> int:
    for line in read(path).splitlines():
        word, _, number = line.partition(b" ")
        if word == name and number.isdigit():
            return int(number)
    return 0


def overwrite(path: bytes, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def _is_made(path: bytes) -> bool:
    try:
        os.mkdir(path)
    except OSError:
        return False
    return True


def _is_gone(path: bytes) -> bool:
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _below(path: bytes) -> list[bytes]:
    found = [path]
    for each in found:
        if len(found) > MOST:
            break
        try:
            with os.scandir(each) as entries:
                found += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
    return found[1:]
