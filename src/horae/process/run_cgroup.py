"""The run cgroup: one of a run's own, below the parent cgroup that was delegated to us.

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
    # How the name of a run cgroup begins, where its supervisor lives, what is written before the
    # command is born and what after (it would hold the supervisor, too), and for each limit that
    # can be run into the file and the word in it that count this, and how it is told.
    CgroupOrder: TypeAlias = tuple[bytes, bytes, Files, Files, list[tuple[bytes, bytes, str, str]]]
else:
    import _signal as signal

TRIES = 60  # to remove one: the system may take a moment to see that nobody is in there
PAUSE = 0.005  # seconds between them
MOST = 10_000  # cgroups in one that are removed; what is left goes at the next start


class RunCgroup:
    __slots__ = ("_after", "_home", "_path", "_told", "is_inside", "refused")

    def __init__(self, path: bytes, order: CgroupOrder) -> None:
        self._path = path
        _, self._home, _, self._after, self._told = order
        self.is_inside = False  # whether we could not get out again
        self.refused: list[bytes] = []  # what the system would not let us say of it

    @classmethod
    def made(cls, order: CgroupOrder, *, run: int) -> RunCgroup | None:
        path = order[0] + b"%d-%d" % (run, os.getpid())  # steps of one run are several
        if not quietly(os.mkdir, path) and not (remove(path) and quietly(os.mkdir, path)):
            return None
        made = cls(path, order)
        made.say(order[2])
        return made

    def enter(self) -> bool:
        """Go in, so that the command is born there; False means that we must not."""
        self.is_inside = quietly(overwrite, self._path + b"/cgroup.procs", b"0")
        return self.is_inside

    def leave(self) -> None:
        """Go out again: the supervisor must outlive what is in there."""
        if self.is_inside and quietly(overwrite, self._home + b"/cgroup.procs", b"0"):
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
            if not quietly(overwrite, self._path + b"/" + name, value):
                self.refused.append(name)


def kill(path: bytes) -> bool:
    """Kill all that is in a cgroup and below, at once; False: one by one, and some may be left."""
    if quietly(overwrite, path + b"/cgroup.kill", b"1"):
        return True
    kill_each(path)  # Linux before 5.14
    return False


def kill_each(path: bytes) -> None:
    for each in _tree(path):
        for pid in read(each + b"/cgroup.procs").split():
            quietly(os.kill, int(pid), signal.SIGKILL)


def remove(path: bytes, *, tries: int = TRIES) -> bool:
    """Remove a cgroup in which nobody is, and those below it; True means that it is gone."""
    for left in reversed(range(tries)):
        if not quietly(os.rmdir, path):
            for each in reversed(_tree(path)):
                quietly(os.rmdir, each)
        if not os.path.exists(path):
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


def _tree(path: bytes) -> list[bytes]:
    found = [path]
    for each in found:
        if len(found) > MOST:
            break
        try:
            with os.scandir(each) as entries:
                found += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
    return found
