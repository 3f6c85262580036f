"""The processes below a process: how to signal all of them, and the cgroup of a run.

The supervisor and the launcher import this module, which therefore imports only ctypes and modules
written in C.
"""

from __future__ import annotations

import ctypes
import os
import time

from horae.process.output import quietly

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Collection
    from typing import TypeAlias

    Files: TypeAlias = list[tuple[bytes, bytes]]  # files of a cgroup and their content
    # How the name of a run cgroup begins, where its supervisor lives, what is written before the
    # command is born and what after (it would hold the supervisor, too), and for each limit that
    # can be run into the file and the word in it that count this, and how it is told.
    CgroupOrder: TypeAlias = tuple[bytes, bytes, Files, Files, list[tuple[bytes, bytes, str, str]]]
else:
    import _signal as signal

_PR_SET_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_C = ctypes.CDLL(None, use_errno=True)


def signal_below(root: int, signals: Collection[int], spare: Collection[int] = ()) -> int:
    """Signal all processes below *root*, except *spare* and those below them; return how many."""
    # Ids mostly increase from parent to child, so one pass reaches nearly all; the caller
    # repeats until nothing is left.
    known, count = {root}, 0
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()):
        line = _stat(pid)
        if line is None or line[1] not in known or pid in spare:
            continue
        known.add(pid)
        if line[0] != b"Z":
            count += 1
            _signal_one(pid, line, signals, is_own=line[1] == os.getpid())
    return count


def kill_marked(marks: Collection[bytes]) -> int:
    """Kill all processes with all of these variables in their environment; return how many."""
    count = 0
    for pid in [int(name) for name in os.listdir("/proc") if name.isdecimal()]:
        line = _stat(pid)
        known = set(read(f"/proc/{pid}/environ").split(b"\0")) if line else set()
        if line is not None and line[0] != b"Z" and known.issuperset(marks):
            count += 1
            _signal_one(pid, line, (signal.SIGKILL,), is_own=False)
    return count


def has_reaped_all() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def become_subreaper() -> None:
    if _C.prctl(_PR_SET_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no subreaper")


def give_up_privileges() -> None:
    if hasattr(_C, "prctl"):
        _C.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def started(pid: int) -> int:
    line = _stat(pid)
    return line[2] if line else 0


def _signal_one(
    pid: int, line: tuple[bytes, int, int], signals: Collection[int], *, is_own: bool
) -> None:
    try:
        if is_own:  # only we reap it, so its id is not used again
            for each in signals:
                os.kill(pid, each)
            return
        descriptor = os.pidfd_open(pid)
        try:
            again = _stat(pid)
            if again is not None and again[2] == line[2]:
                for each in signals:
                    signal.pidfd_send_signal(descriptor, each)
        finally:
            os.close(descriptor)
    except OSError:
        return


def read(path: str | bytes, most: int = 1 << 20) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, most)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _stat(pid: int) -> tuple[bytes, int, int] | None:
    line = read(f"/proc/{pid}/stat", 1024)
    # The name in parentheses may contain anything, including parentheses.
    fields = line[line.rfind(b")") + 2 :].split(b" ", 20)
    return (fields[0], int(fields[1]), int(fields[19])) if len(fields) > 19 else None


TRIES = 60  # to remove one: the kernel may need a moment to notice that it is empty
PAUSE = 0.005  # seconds between them
MOST = 10_000  # cgroups in one that are removed; the rest at the next start


class RunCgroup:
    __slots__ = ("_after", "_home", "_path", "_told", "is_inside", "refused")

    def __init__(self, path: bytes, order: CgroupOrder) -> None:
        self._path = path
        _, self._home, _, self._after, self._told = order
        self.is_inside = False  # whether leaving failed
        self.refused: list[bytes] = []  # settings that the kernel refused

    @classmethod
    def made(cls, order: CgroupOrder, *, run: int) -> RunCgroup | None:
        path = order[0] + b"%d-%d" % (run, os.getpid())  # a run may have several steps
        if not quietly(os.mkdir, path) and not (remove(path) and quietly(os.mkdir, path)):
            return None
        made = cls(path, order)
        made.say(order[2])
        return made

    def enter(self) -> bool:
        """Enter, so that the command is born inside; False: it must not start."""
        self.is_inside = quietly(overwrite, self._path + b"/cgroup.procs", b"0")
        return self.is_inside

    def leave(self) -> None:
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
    if quietly(overwrite, path + b"/cgroup.kill", b"1"):
        return True
    kill_each(path)  # Linux before 5.14
    return False


def kill_each(path: bytes) -> None:
    for each in _tree(path):
        for pid in read(each + b"/cgroup.procs").split():
            quietly(os.kill, int(pid), signal.SIGKILL)


def remove(path: bytes, *, tries: int = TRIES) -> bool:
    """Remove an empty cgroup and those below it; True: it is gone."""
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
