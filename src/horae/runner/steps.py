"""One step of a workflow: run as a filter, under a supervisor, and its output kept exactly.

A step reads its input from a file and writes into a pipe that is drained into another one,
up to a limit. All that a run has going ends together.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.engine.ports import LauncherLostError
from horae.runner.cgroup import CgroupLimits
from horae.runner.processes import LOG_NAME, Limits, Spec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from horae.engine.ports import Ended
    from horae.runner.processes import LiveRun, Processes

MIB: Final = 1 << 20
CHUNK: Final = 1 << 16
PIPE: Final = ".out"  # beside the files of a block, so with names that those will not have
SUPERVISED: Final = ".run"
_TRIES: Final = 3  # to hand a step to a launcher

# Hands a step its files and steps aside.
_PIPED: Final = ("/bin/sh", "-c", 'i=$1 o=$2; shift 2; exec "$@" <"$i" >"$o"', "step")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What each step may use, and how many of a run go on at a time."""

    output: int = 64 * MIB
    memory: int = 4096 * MIB
    at_once: int = min(8, os.cpu_count() or 1)
    grace: timedelta = timedelta(seconds=2)


class Output(NamedTuple):
    """What a step has put out: where it is, how long, and its SHA-256."""

    path: Path
    size: int
    sum: str

    def beginning(self, length: int) -> bytes:
        """Return its first bytes."""
        with self.path.open("rb") as file:
            return file.read(length)


class Hands:
    """All that a run of a workflow has going: cancelled together, under one wall clock."""

    def __init__(
        self, processes: Processes, *, number: int, timeout: timedelta, bounds: Bounds
    ) -> None:
        self._processes = processes
        self._number = number
        self._grace = bounds.grace
        self._slots = asyncio.Semaphore(bounds.at_once)
        self._live: set[LiveRun] = set()
        self._ends_at = asyncio.get_running_loop().time() + timeout.total_seconds()
        self.reason = ""  # why all of it is to end, once it is
        self.cancelled = asyncio.Event()

    def left(self) -> timedelta:
        """Return how much of the wall clock is left."""
        return timedelta(seconds=self._ends_at - asyncio.get_running_loop().time())

    def cancel(self, reason: str) -> None:
        """End all that goes on, and begin nothing any more."""
        self.reason = self.reason or reason or "it was cancelled"
        self.cancelled.set()
        for run in tuple(self._live):
            run.cancel(self.reason)

    async def call(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        directory: Path,
        timeout: timedelta | None = None,
        limits: Limits | None = None,
        memory: int | None = None,
        made: Callable[[LiveRun], None] | None = None,
        begun: Callable[[], None] | None = None,
    ) -> Ended:
        """Run something under a supervisor of its own, and return how it ended.

        It is made at once and let go when there is room for it; *begun* hears of that. Raises
        RunError if it cannot be made.
        """
        left = max(timedelta(0), self.left())
        spec = Spec(
            self._number,
            tuple(argv),
            cwd,
            environment,
            directory,
            timeout=left if timeout is None else min(left, timeout),
            grace=self._grace,
            limits=limits or Limits(),
            cgroup=None if memory is None else CgroupLimits(memory_max=memory),
        )
        run = await self._hold(spec)
        self._live.add(run)
        try:
            if made is not None:
                made(run)
            async with self._slots:
                if self.reason or self.left() <= timedelta(0):
                    run.cancel(self.reason)
                else:
                    if begun is not None:
                        begun()
                    run.go()
                return await run.ended()
        finally:
            self._live.discard(run)

    async def filter(
        self,
        argv: Sequence[str],
        *,
        source: Path,
        target: Path,
        cwd: Path,
        environment: Mapping[str, str],
        directory: Path,
        timeout: timedelta | None,
        limits: Limits,
        memory: int,
        most: int,
        begun: Callable[[], None],
    ) -> tuple[Ended, Output | None]:
        """Run something from one file into another; no output is one that was too long.

        *directory* is there already, and is its own.
        """
        pipe = directory / PIPE
        os.mkfifo(pipe, 0o600)
        drain = _Drain(pipe, target, most=most)
        try:
            ended = await self.call(
                (*_PIPED, str(source), str(pipe), *argv),
                cwd=cwd,
                environment=environment,
                directory=directory / SUPERVISED,
                timeout=timeout,
                limits=limits,
                memory=memory,
                made=drain.begin,
                begun=begun,
            )
        finally:
            output = drain.end()
        return ended, output

    async def _hold(self, spec: Spec) -> LiveRun:
        """Make a run; a launcher that is lost has run nothing, so it is asked again."""
        for left in reversed(range(_TRIES)):
            try:
                return await self._processes.hold(spec)
            except LauncherLostError:
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")


class _Drain:
    """Takes what a step puts out as it comes; more than it may ends the step."""

    def __init__(self, pipe: Path, target: Path, *, most: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._target = target
        self._most = most
        self._run: LiveRun | None = None
        self._sum = sha256()
        self._size = 0
        self._fault: OSError | None = None
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        self._writing = os.open(target, flags, 0o600)
        try:
            # Opened before the step is let go, and without waiting: a writer finds us there.
            self._reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            os.close(self._writing)
            raise

    def begin(self, run: LiveRun) -> None:
        """Listen."""
        self._run = run
        self._loop.add_reader(self._reading, self._take)

    def end(self) -> Output | None:
        """Take what is left once nothing of the step is; None if it was too much."""
        while self._reading >= 0 and self._take():
            pass
        self._close()
        os.close(self._writing)
        if self._fault is not None:
            raise self._fault
        if self._size > self._most:
            return None
        return Output(self._target, self._size, self._sum.hexdigest())

    def _take(self) -> bool:
        """Take some; False means that there is nothing now, or nothing more to come."""
        try:
            data = os.read(self._reading, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._close()
            return False
        self._size += len(data)
        if self._size > self._most:
            self._refuse(f"it put out more than {size_text(self._most)}")
            return False
        self._sum.update(data)
        try:
            while data:
                data = data[os.write(self._writing, data) :]
        except OSError as error:
            self._fault = error
            self._refuse(f"its output could not be kept: {error.strerror}")
            return False
        return True

    def _refuse(self, reason: str) -> None:
        """End a step whose output cannot be taken."""
        self._close()
        if self._run is not None:
            self._run.cancel(reason)

    def _close(self) -> None:
        if self._reading >= 0:
            self._loop.remove_reader(self._reading)
            os.close(self._reading)
            self._reading = -1


def log_of(directory: Path, most: int) -> bytes:
    """Return the end of what was said on stderr, or all of it if it is short."""
    with suppress(OSError), (directory / LOG_NAME).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - most))
        return file.read(most)
    return b""


def clear(directory: Path) -> None:
    """Remove a directory of our own with all that was left in it."""
    if not directory.exists():
        return
    for where, directories, files in os.walk(directory, topdown=False):
        for name in files:
            _remove(os.remove, where, name)
        for name in directories:
            is_link = os.path.islink(os.path.join(where, name))  # noqa: PTH114, PTH118
            _remove(os.remove if is_link else os.rmdir, where, name)
    with suppress(OSError):
        os.rmdir(directory)  # noqa: PTH106


def _remove(action: Callable[[str], None], where: str, name: str) -> None:
    """Remove one thing; a directory that a step made read-only is opened first."""
    path = os.path.join(where, name)  # noqa: PTH118
    try:
        action(path)
    except PermissionError:
        with suppress(OSError):
            os.chmod(where, 0o700)  # noqa: PTH101
            action(path)
    except OSError:
        return


def size_text(size: int) -> str:
    """Return a number of bytes in words.

    >>> size_text(64 << 20), size_text(1500)
    ('64 MiB', '1500 bytes')
    """
    return f"{size // MIB} MiB" if size >= MIB and size % MIB == 0 else f"{size} bytes"
