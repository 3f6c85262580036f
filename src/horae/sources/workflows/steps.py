"""Steps of a workflow: each runs as a filter, under a supervisor, and its output is kept."""

from __future__ import annotations

import asyncio
import os
import stat
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from horae.core.ports import Ended, LauncherLostError
from horae.core.private import private_file
from horae.core.receipt import Reason, ReasonCode, Status
from horae.process.logs import RunLog, clear
from horae.process.processes import LOG_NAME, LiveRun, Processes, Spec
from horae.sources.workflows.record import put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

MIB: Final = 1 << 20
SHORT: Final = 1 << 15  # bytes of an input that need no file
SUPERVISED: Final = ".run"  # beside the files of a block, so with names that those will not have
SCRATCH: Final = ".work"
_TRIES: Final = 3  # to hand a step to a launcher


@dataclass(frozen=True, slots=True)
class Bounds:
    output: int = 64 * MIB
    memory: int = 4096 * MIB
    at_once: int = min(8, os.cpu_count() or 1)
    grace: timedelta = timedelta(seconds=2)


class StepOutput(NamedTuple):
    """The output of a step: how long, its SHA-256, and where it is: here, or in a file."""

    path: Path
    size: int
    sum: str
    data: bytes | None = None

    @classmethod
    def of(cls, path: Path, data: bytes) -> Self:
        short = data if len(data) <= SHORT else None
        return cls(path, len(data), sha256(data).hexdigest(), short)

    def part(self, start: int, length: int) -> bytes:
        if self.data is not None:
            return self.data[start : start + length]
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read(length)

    def keep(self) -> None:
        if self.data is not None:
            put(self.path, self.data)


class LiveSteps:
    """All that a run of a workflow has going: cancelled together, under one wall clock."""

    def __init__(self, processes: Processes, at_once: int) -> None:
        self._processes = processes
        self._slots = asyncio.Semaphore(at_once)
        self._live: set[LiveRun] = set()
        self._ends_at = 0.0
        self.reason = ""  # why all of it is to end, once it is
        self.cancelled = asyncio.Event()

    def begin(self, timeout: timedelta) -> None:
        self._ends_at = asyncio.get_running_loop().time() + timeout.total_seconds()

    def left(self) -> timedelta:
        return timedelta(seconds=self._ends_at - asyncio.get_running_loop().time())

    @property
    def is_over(self) -> bool:
        return bool(self.reason) or self.left() <= timedelta(0)

    def cancel(self, reason: str) -> None:
        self.reason = self.reason or reason or "cancelled"
        self.cancelled.set()
        for run in tuple(self._live):
            run.cancel(self.reason)

    async def run(
        self,
        spec: Spec,
        *,
        begun: Callable[[], None] = lambda: None,
    ) -> tuple[Ended, bytes]:
        """Run something when there is room for it; return its end and its short output.

        *begun* hears when there is room for it.
        """
        async with self._slots:
            if self.is_over:
                late = Reason(ReasonCode.TIME_LIMIT, "no time was left for the step")
                said = Reason(ReasonCode.CANCELLED, self.reason)
                return Ended(Status.KILLED, said if self.reason else late), b""
            limit = self.left() if spec.timeout is None else min(self.left(), spec.timeout)
            run = await self._hold(replace(spec, timeout=limit))
            self._live.add(run)
            try:
                begun()
                if self.cancelled.is_set():  # since it was held
                    run.cancel(self.reason)
                run.go()
                return await run.ended(), run.output
            finally:
                self._live.discard(run)

    async def _hold(self, spec: Spec) -> LiveRun:
        for _ in range(_TRIES - 1):
            with suppress(LauncherLostError):  # the last try raises it
                return await self._processes.hold(spec)
        return await self._processes.hold(spec)


class StepFolders:
    """The folders of a run's steps; one that a step has left as it was serves the next."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._folders: dict[int, Path] = {}
        self._free: list[Path] = []
        self._clearing: set[asyncio.Future[None]] = set()

    def take(self, step: int, files: Mapping[str, bytes]) -> Path:
        """Return the folder of a step, with these files and an empty scratch directory."""
        if step not in self._folders:
            if not self._free:
                self._free.append(self._directory / f"{step}.step")
                os.mkdir(self._free[0], 0o700)
            home = self._folders[step] = self._free.pop()
            os.mkdir(home / SCRATCH, 0o700)
            write_files(home, files)
        return self._folders[step]

    def give_back(self, step: int, files: Iterable[str] = ()) -> None:
        home = self._folders.pop(step)
        with suppress(OSError):  # the step has changed something
            for name in files:
                os.remove(f"{home}/{name}")
            os.rmdir(home / SCRATCH)
            if os.lstat(home).st_mode == stat.S_IFDIR | 0o700 and not os.listdir(home):
                self._free.append(home)
                return
        cleared = asyncio.ensure_future(asyncio.to_thread(clear, home))
        self._clearing.add(cleared)
        cleared.add_done_callback(self._clearing.discard)

    async def cleared(self) -> None:
        for step in tuple(self._folders):
            self.give_back(step)
        for home in self._free:
            clear(home)
        await asyncio.gather(*self._clearing)


def write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        path = f"{directory}/{name}"
        if "/" in name:
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with private_file(path, os.O_EXCL) as file:
            file.write(data)


def log_of(directory: Path, most: int) -> bytes:
    return RunLog(directory / LOG_NAME).last(most)[0]
