"""Cgroups of version 2: whether one is delegated to the engine, and which limits it allows.

the delegated one        its `cgroup.subtree_control` says what can be limited
  engine                 the engine, its launcher and the supervisors
  run-TAG-RUN-PID        one run, or one step of it; the tag is of the data directory
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from horae.process.tree import kill, overwrite, read, remove

if TYPE_CHECKING:
    from collections.abc import Iterator

    from horae.process.tree import CgroupOrder

HOME: Final = "engine"  # the child cgroup of the engine itself
CONTROLLERS: Final = ("memory", "pids", "cpu")

_MOUNTS: Final = Path("/proc/self/mountinfo")
_PROCESSES: Final = Path("/proc")
_MARKS: Final = ("user.delegate", "trusted.delegate")  # set by systemd to mark delegation
_REMEDY: Final = "with systemd, set Delegate=yes and DelegateSubgroup=engine"
_PERIOD: Final = 100_000  # microseconds, the accounting period of CPU use


@dataclass(frozen=True, slots=True)
class CgroupLimits:
    """The limits of a run's processes together; `memory_from` names the memory's setting."""

    memory_max: int | None = None  # bytes
    pids_max: int | None = None
    cpu_max: float | None = None  # cores
    memory_from: str = "run.memory"

    def before(self) -> list[tuple[bytes, bytes]]:
        if self.memory_max is None:
            return []
        # Without swap, or memory would not be limited.
        return [(b"memory.max", b"%d" % self.memory_max), (b"memory.swap.max", b"0")]

    def after(self) -> list[tuple[bytes, bytes]]:
        written = []
        if self.memory_max is not None:  # kill all processes of the run, not one of them
            written.append((b"memory.oom.group", b"1"))
        if self.pids_max is not None:
            written.append((b"pids.max", b"%d" % self.pids_max))
        if self.cpu_max is not None:
            quota = max(1000, int(self.cpu_max * _PERIOD))  # the minimum of the kernel
            written.append((b"cpu.max", b"%d %d" % (quota, _PERIOD)))
        return written

    def told(self) -> list[tuple[bytes, bytes, str, str]]:
        words = "killed: the machine or the Horae service ran out of memory"
        found = [(b"memory.events", b"oom_kill", "no_memory", words)]
        if self.memory_max is not None:
            most = _size(self.memory_max)
            words = f"killed: the run used more memory than {self.memory_from} allows ({most})"
            found.append((b"memory.events", b"oom", "over_memory", words))
        if self.pids_max is not None:
            many = "the run tried to start more processes than run.processes allows"
            found.append((b"pids.events", b"max", "over_processes", f"{many} ({self.pids_max})"))
        return found

    def over(self, other: CgroupLimits) -> CgroupLimits:
        memory = other if self.memory_max is None else self
        return CgroupLimits(
            memory.memory_max,
            other.pids_max if self.pids_max is None else self.pids_max,
            other.cpu_max if self.cpu_max is None else self.cpu_max,
            memory.memory_from,
        )


class ParentCgroup:
    def __init__(self, above: Path, home: Path, *, data: Path) -> None:
        self.path = above
        self._home = home
        tag = sha256(os.fsencode(data.resolve())).hexdigest()[:12]
        self._start = f"run-{tag}-"

    def open(self) -> None:
        for each in CONTROLLERS:  # one by one: the kernel accepts a line as a whole or not at all
            with suppress(OSError):  # `horae doctor` reports missing limits
                overwrite(os.fsencode(self.path / "cgroup.subtree_control"), b"+" + each.encode())
        for path in self.left_over():
            kill(os.fsencode(path))

    def order(self, limits: CgroupLimits) -> CgroupOrder:
        start = os.fsencode(self.path / self._start)
        home = os.fsencode(self._home)
        return start, home, limits.before(), limits.after(), limits.told()

    def left_over(self) -> list[Path]:
        with suppress(OSError):  # without the directory there is no cgroup
            return [each for each in self.path.iterdir() if each.name.startswith(self._start)]
        return []

    def path_of(self, run: int, supervisor: int) -> Path:
        return self.path / f"{self._start}{run}-{supervisor}"


def is_cleared(cgroup: Path) -> bool:
    """Kill all processes of a cgroup; True: it is empty, and removed if possible."""
    path = os.fsencode(cgroup)
    if not cgroup.exists():
        return True
    kill(path)
    if b"populated 0" not in read(path + b"/cgroup.events").splitlines() and cgroup.exists():
        return False
    remove(path, tries=1)
    return True


def _size(size: int) -> str:
    for unit, factor in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size} bytes"


def delegated_cgroup() -> Path | None:
    # For the engine only: it moves into a child, as a cgroup with limits may
    # not contain processes. Newer systemd moves it itself (DelegateSubgroup=).
    own = own_cgroup()
    if own is None:
        return None
    home = own / HOME
    with suppress(OSError):  # then it is not moved
        is_alone = (own / "cgroup.procs").read_text().split() == [str(os.getpid())]
        if is_alone and _is_delegated(own):
            home.mkdir(exist_ok=True)
            overwrite(os.fsencode(home / "cgroup.procs"), b"0")
            own = home
    return None if _missing(own) else own.parent


@dataclass(frozen=True, slots=True)
class CgroupStatus:
    path: Path | None = None
    limits: tuple[str, ...] = ()
    missing: str = ""

    @property
    def words(self) -> str:
        if self.path is None:
            return f"cgroups are not used: {self.missing}; {_REMEDY}"
        can = f"limits on {', '.join(self.limits)} and " if self.limits else ""
        return f"cgroups below {self.path}: {can}all processes of a run can be killed at once"

    def unheld(self, limits: CgroupLimits) -> Iterator[tuple[str, str]]:
        for controller, setting, most in (
            ("memory", "run.memory", limits.memory_max),
            ("pids", "run.processes", limits.pids_max),
            ("cpu", "run.cpus", limits.cpu_max),
        ):
            if most is not None and self.path is None:
                yield setting, f"{self.missing}; {_REMEDY}"
            elif most is not None and controller not in self.limits:
                yield setting, f"there is no {controller} controller in {self.path}"


def standing(process: int | None = None) -> CgroupStatus:
    own = own_cgroup(process)
    if own is None and own_cgroup() is not None:
        return CgroupStatus(missing=f"the cgroup of process {process} cannot be read")
    if own is None:
        return CgroupStatus(missing="cgroup v2 is not mounted")
    if missing := _missing(own, process):
        return CgroupStatus(missing=missing)
    words: list[str] = []
    with suppress(OSError):  # then no controller is available
        words = (own.parent / "cgroup.subtree_control").read_text().split()
    return CgroupStatus(own.parent, tuple(each for each in CONTROLLERS if each in words))


def _missing(own: Path, process: int | None = None) -> str:
    above = own.parent
    if not (above / "cgroup.procs").exists():
        who = "this process" if process is None else f"process {process}"
        return f"{who} is not in its own cgroup"
    if not _is_delegated(above):
        return f"{above} is not delegated"
    files = () if process is not None else (above, above / "cgroup.procs")  # it may have more
    if not all(os.access(each, os.W_OK) for each in files):
        return f"{above} cannot be written"
    return ""


def _is_delegated(path: Path) -> bool:
    for mark in _MARKS:
        with suppress(OSError, AttributeError):  # no attribute, or no support for attributes
            if os.getxattr(path, mark) == b"1":
                return True
    return False


def own_cgroup(process: int | None = None) -> Path | None:
    known = _PROCESSES / ("self" if process is None else str(process)) / "cgroup"
    with suppress(OSError, StopIteration):  # the process has ended, or there are no cgroups
        own = next(line[3:] for line in known.read_text().splitlines() if line.startswith("0::"))
        for line in _MOUNTS.read_text(errors="surrogateescape").splitlines():
            before, _, after = line.partition(" - ")
            root, place = before.split(" ")[3:5]
            inside = f"{own.rstrip('/')}/".removeprefix(root.rstrip("/"))
            if after.startswith("cgroup2 ") and inside.startswith("/"):
                return Path(place + inside.rstrip("/"))
    return None
