"""Processes as a tree: who is below whom, and how to reach all of them.

The supervisor and the launcher use this, so only what is written in C is imported, and ctypes.
"""

# Without pathlib: its memory would be a part of each run.
from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Collection
else:
    import _signal as signal

_PR_SET_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_C = ctypes.CDLL(None, use_errno=True)


def signal_below(root: int, signals: Collection[int], spare: Collection[int] = ()) -> int:
    """Signal every process below one, except some and what is below those; return how many."""
    # Numbers mostly go up from parent to child, so one pass comes near the whole tree; the caller
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
    """Kill every process whose environment holds all of some variables; return how many."""
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
    """Return the start time of a process in ticks, or 0 if it cannot be known."""
    line = _stat(pid)
    return line[2] if line else 0


def _signal_one(
    pid: int, line: tuple[bytes, int, int], signals: Collection[int], *, is_own: bool
) -> None:
    try:
        if is_own:  # only we reap it, so its number is not used again
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
    """Return state, parent and start time of a process; None if there is none."""
    line = read(f"/proc/{pid}/stat", 1024)
    # The name in parentheses may hold anything, parentheses too.
    fields = line[line.rfind(b")") + 2 :].split(b" ", 20)
    return (fields[0], int(fields[1]), int(fields[19])) if len(fields) > 19 else None
