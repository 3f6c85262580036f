"""Cgroups of version 2: whether one was delegated to us, and what that gives."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mountinfo")
_OWN: Final = Path("/proc/self/cgroup")
_MARKS: Final = ("user.delegate", "trusted.delegate")  # how systemd says that a cgroup is ours
_REMEDY: Final = "with systemd, set Delegate=yes and DelegateSubgroup=engine"


@dataclass(frozen=True, slots=True)
class CgroupLimits:
    """What all processes of a run may use together, where a cgroup can be had."""

    memory_max: int | None = None  # bytes
    pids_max: int | None = None
    cpu_max: float | None = None  # cores

    def files(self) -> list[tuple[bytes, bytes]]:
        """Return the files of a cgroup, and what is to be written into each.

        >>> CgroupLimits(pids_max=100, cpu_max=1.5).files()
        [(b'pids.max', b'100'), (b'cpu.max', b'150000 100000')]
        """
        written = []
        if self.memory_max is not None:
            written.append((b"memory.max", b"%d" % self.memory_max))
        if self.pids_max is not None:
            written.append((b"pids.max", b"%d" % self.pids_max))
        if self.cpu_max is not None:
            written.append((b"cpu.max", b"%d 100000" % int(self.cpu_max * 100_000)))
        return written


def delegated_cgroup() -> Path | None:
    """Return the cgroup under which runs may have their own, if one was delegated to us."""
    own = own_cgroup()
    return own.parent if own is not None and not _missing(own) else None


def cgroup_state() -> str:
    """Return in words what cgroups can do for runs here, and what would be needed."""
    own = own_cgroup()
    if own is None:
        return f"no cgroups: no cgroup v2 is mounted; {_REMEDY}"
    if missing := _missing(own):
        return f"no cgroups: {missing}; {_REMEDY}"
    with suppress(OSError):
        enabled = (own.parent / "cgroup.subtree_control").read_text().split()
        limits = [each for each in ("memory", "pids", "cpu") if each in enabled]
        can = f"limits on {', '.join(limits)} and " if limits else ""
        return f"cgroups below {own.parent}: {can}a kill of all processes at once"
    return f"no cgroups: {own.parent} cannot be read"


def _missing(own: Path) -> str:
    """Return what keeps us from using the cgroup above our own; nothing if we can."""
    above = own.parent
    if not (above / "cgroup.procs").exists():
        return "this process is in no cgroup of its own"
    if not any(_is_marked(above, mark) for mark in _MARKS):
        return f"{above} is not delegated"
    if not os.access(above, os.W_OK) or not os.access(above / "cgroup.procs", os.W_OK):
        return f"{above} cannot be written"
    return ""


def _is_marked(path: Path, mark: str) -> bool:
    with suppress(OSError, AttributeError):
        return os.getxattr(path, mark) == b"1"
    return False


def own_cgroup() -> Path | None:
    """Return the directory of the cgroup that this process is in."""
    with suppress(OSError, StopIteration):
        own = next(line[3:] for line in _OWN.read_text().splitlines() if line.startswith("0::"))
        for line in _MOUNTS.read_text(errors="surrogateescape").splitlines():
            before, _, after = line.partition(" - ")
            if after.startswith("cgroup2 "):
                return Path(before.split(" ")[4] + own.rstrip("/"))
    return None
