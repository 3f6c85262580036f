"""What the tests of runs share: specs, a mark on everything that a run starts, and an engine to kill."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from horae.process.processes import Processes, Spec
from waiting import until, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from horae.core.ports import Ended

VICTIM = Path(__file__).parent / "victim.py"

# Ignores every polite signal, leaves its group and its parent, stops itself, fills its output.
HOSTILE = """
trap '' TERM HUP INT QUIT
setsid sh -c 'trap "" TERM; sleep 1000 & exec sleep 1000' &
(setsid sleep 1000 &) &
(sh -c 'kill -STOP $$; sleep 1000' &)
(yes hostile &)
sleep 1000
sleep 1000
"""


def spec(data: Path, run: int, *argv: str, **options: object) -> Spec:
    """Return a run of a command; all that it starts carries the mark of the data directory."""
    environment = {"PATH": os.environ["PATH"], "HORAE_MARK": str(data)}
    facts = {"cwd": data, "environment": environment, "directory": data / "runs" / str(run)}
    return Spec(run, argv, **{**facts, **options})  # type: ignore[arg-type]


def shell(data: Path, run: int, script: str, **options: object) -> Spec:
    """Return a run of a shell script."""
    return spec(data, run, "sh", "-c", script, **options)


def python(data: Path, run: int, script: str, **options: object) -> Spec:
    """Return a run of a Python script."""
    return spec(data, run, sys.executable, "-I", "-S", "-c", script, **options)


async def told(processes: Processes, asked: Spec) -> Ended:
    """Make a run, let it go, and return how it ended."""
    held = await processes.hold(asked)
    held.go()
    return await held.ended()


async def rested(processes: Processes) -> None:
    """Return when no supervisor waits for a next run any more."""
    await until(lambda: not children(processes.launcher_pid or 0), within=10)


def log(asked: Spec) -> bytes:
    """Return what is kept of a run's output."""
    path = asked.directory / "output.log"
    return path.read_bytes() if path.exists() else b""


def marked(data: Path) -> list[int]:
    """Return the processes that a run of this data directory started and that are alive."""
    mark = b"HORAE_MARK=" + os.fsencode(data) + b"\0"
    return [pid for pid in pids() if mark in proc(pid, "environ") and not is_zombie(pid)]


def holders(data: Path) -> list[int]:
    """Return the launchers and supervisors (and engines) of this data directory."""
    return [pid for pid in pids() if data / "runs.lock" in descriptors(pid)]


def descriptors(pid: int) -> list[Path]:
    """Return what a process has open."""
    found = []
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.append(entry.readlink())
    return found


def pids() -> Iterator[int]:
    """Yield the numbers of all processes but this one."""
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid():
            yield int(name)


def proc(pid: int, name: str) -> bytes:
    """Return what the system tells about a process; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def is_zombie(pid: int) -> bool:
    """Tell whether a process is dead and only not yet reaped."""
    return proc(pid, "stat").rpartition(b") ")[2][:1] in {b"Z", b""}


def children(parent: int) -> list[int]:
    """Return the children of a process, dead ones too."""
    found = []
    for pid in pids():
        fields = proc(pid, "stat").rpartition(b") ")[2].split()
        if len(fields) > 1 and int(fields[1]) == parent:
            found.append(pid)
    return found


class Engine:
    """An engine in a process of its own, which can be killed, and what it said."""

    def __init__(
        self, data: Path, *what: str, certain: bool = True, cgroup: Path | None = None
    ) -> None:
        data.mkdir(exist_ok=True)
        self.said = data / "said"
        with self.said.open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, str(VICTIM), str(data), str(int(certain)), *what],
                stdout=said,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(sys.path),
                    "VICTIM_CGROUP": str(cgroup or ""),
                },
            )

    def words(self) -> list[list[str]]:
        """Return its lines so far, as words; one that it was killed over is left out."""
        text = self.said.read_text()
        return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]

    def numbers(self, word: str) -> list[int]:
        """Return the runs about which it said a word."""
        return [int(line[1]) for line in self.words() if line[0] == word]

    def wait_for_run(self, run: int) -> None:
        """Return when it has asked for a run."""
        wait_until(lambda: run in self.numbers("asked") or self.process.poll() is not None)
        assert self.process.poll() is None, "the engine died by itself"

    def kill(self) -> None:
        """Kill it, and nothing else."""
        self.process.kill()
        self.process.wait()
