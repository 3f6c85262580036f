"""One step of a workflow: run as a filter, under a supervisor, and its output kept exactly.

A step reads its input from a file and writes into a pipe that its supervisor drains into
another one, up to a limit. All that a run has going ends together.
"""

from __future__ import annotations

import asyncio
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.ports import Ended, LauncherLostError, RunError
from horae.core.receipt import Reason, ReasonCode, Status
from horae.process.cgroup import CgroupLimits
from horae.process.logs import clear
from horae.process.processes import LOG_NAME, ProcessLimits, Spec, boot_seconds
from horae.sources.workflows.record import put

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from horae.process.processes import LiveRun, Processes

MIB: Final = 1 << 20
SHORT: Final = 1 << 15  # bytes of an input that need no file
SUPERVISED: Final = ".run"  # beside the files of a block, so with names that those will not have
SCRATCH: Final = ".work"
_TRIES: Final = 3  # to hand a step to a launcher


@dataclass(frozen=True, slots=True)
class Bounds:
    """What each step may use, and how many of a run go on at a time."""

    output: int = 64 * MIB
    memory: int = 4096 * MIB
    at_once: int = min(8, os.cpu_count() or 1)
    grace: timedelta = timedelta(seconds=2)


class StepOutput(NamedTuple):
    """What a step has put out: how long, its SHA-256, and where it is: here, or in a file."""

    path: Path
    size: int
    sum: str
    data: bytes | None = None

    def beginning(self, length: int) -> bytes:
        return self.part(0, length)

    def ending(self, length: int) -> bytes:
        return self.part(max(0, self.size - length), length)

    def part(self, start: int, length: int) -> bytes:
        if self.data is not None:
            return self.data[start : start + length]
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read(length)

    def keep(self) -> None:
        """Let it be in its file, wherever it was."""
        if self.data is not None:
            put(self.path, self.data)


@dataclass(frozen=True, slots=True)
class Filter:
    """Something that makes one output from another: what to run, with what, and into which file.

    What it says on stderr goes to `directory`.
    """

    argv: tuple[str, ...]
    target: Path
    cwd: Path
    environment: Mapping[str, str]
    directory: Path
    timeout: timedelta | None
    limits: ProcessLimits
    memory: int
    most: int
    secrets: tuple[bytes, ...] = ()  # that are masked in what it says


class Hands:
    """All that a run of a workflow has going: cancelled together, under one wall clock."""

    def __init__(
        self, processes: Processes, *, number: int, timeout: timedelta, bounds: Bounds
    ) -> None:
        self._processes = processes
        self._number = number
        self._bounds = bounds
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
        self.reason = self.reason or reason or "cancelled"
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
    ) -> Ended:
        """Run a tool, and return how that ended; raises RunError if it cannot be run."""
        ended, _ = await self._run(
            lambda timeout: Spec(
                self._number,
                tuple(argv),
                cwd,
                environment,
                directory,
                is_reported=False,
                timeout=timeout,
                grace=self._bounds.grace,
            )
        )
        return ended

    async def filter(
        self,
        filter: Filter,  # noqa: A002 - the word of the house
        given: StepOutput,
        *,
        following: LiveRun | None,
        begun: Callable[[], None],
        meanwhile: Callable[[LiveRun], None],
    ) -> tuple[Ended, StepOutput | None]:
        """Run something that makes one output from another; none is one that was too long.

        *following* is the run of it, if that began by itself. *begun* hears when there is room
        for it, *meanwhile* when it goes on. Raises RunError if it cannot be run, or what it puts
        out cannot be kept.
        """
        ended, data = await self._run(
            lambda left: self._spec(filter, left, given), following, begun, meanwhile
        )
        size, digest = ended.facts.get("size"), ended.facts.get("sum")
        if not isinstance(size, int):  # its supervisor died
            return ended, StepOutput(filter.target, 0, "")
        if size > filter.most:
            return ended, None
        if fault := ended.facts.get("fault"):
            raise RunError(str(fault))
        short = data if len(data) == size else None
        return ended, StepOutput(filter.target, size, str(digest), short)

    def follow(self, before: LiveRun, filter: Filter) -> LiveRun | None:  # noqa: A002
        """Let something begin as soon as another has ended well, to take what that puts out.

        It needs no room of its own then. None means that it cannot be.
        """
        left = self.left()
        if self.reason or left <= timedelta(0):
            return None
        run = self._processes.follow(before, self._spec(filter, left, None))
        if run is not None:
            self._live.add(run)
        return run

    def _spec(self, filter: Filter, left: timedelta, given: StepOutput | None) -> Spec:  # noqa: A002
        """Return how something is run, with so much of the wall clock left."""
        return Spec(
            self._number,
            filter.argv,
            filter.cwd,
            filter.environment,
            filter.directory,
            stdin=(given and given.data) or b"",
            source=given.path if given is not None and given.data is None else None,
            target=filter.target,
            most=filter.most,
            is_reported=False,
            timeout=left if filter.timeout is None else min(left, filter.timeout),
            ends_at=boot_seconds() + left.total_seconds() if given is None else None,
            grace=self._bounds.grace,
            secrets=filter.secrets,
            limits=filter.limits,
            cgroup=self._memory(filter.memory),
        )

    def _memory(self, size: int) -> CgroupLimits:
        """Return how much a step may use; one that says nothing itself, as much as any run."""
        is_any = size == self._bounds.memory and self._processes.limits.memory_max is not None
        return CgroupLimits(memory_max=None if is_any else size, memory_from=":MEMORY:")

    async def _run(
        self,
        spec_for: Callable[[timedelta], Spec],
        following: LiveRun | None = None,
        begun: Callable[[], None] | None = None,
        meanwhile: Callable[[LiveRun], None] | None = None,
    ) -> tuple[Ended, bytes]:
        """Run something when there is room for it, within what is left of the wall clock."""
        async with self._slots:
            if following is not None and not following.is_refused:
                ended = await self._watch(following, begun, meanwhile)
                if not following.is_refused:
                    return ended, following.output
            left = self.left()
            if self.reason or left <= timedelta(0):
                reason = Reason(ReasonCode.TIME_LIMIT, "no time was left for the step")
                if self.reason:
                    reason = Reason(ReasonCode.CANCELLED, self.reason)
                return Ended(Status.KILLED, reason), b""
            run = await self._hold(spec_for(left))
            return await self._watch(run, begun, meanwhile), run.output

    async def _watch(
        self,
        run: LiveRun,
        begun: Callable[[], None] | None,
        meanwhile: Callable[[LiveRun], None] | None,
    ) -> Ended:
        """Return how something ended that goes on now."""
        self._live.add(run)
        try:
            if begun is not None:
                begun()
            if self.cancelled.is_set():  # somebody said so meanwhile
                run.cancel(self.reason)
            if meanwhile is not None:
                meanwhile(run)
            return await run.ended()
        finally:
            self._live.discard(run)

    async def _hold(self, spec: Spec) -> LiveRun:
        """Start something; a launcher that is lost has run nothing, so it is asked again."""
        for left in reversed(range(_TRIES)):
            try:
                return await self._processes.hold(spec, at_once=True)
            except LauncherLostError:
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")


class Bench(NamedTuple):
    """Where a step works: the directory of its files, one to write in, and one for its words."""

    directory: Path
    scratch: Path
    words: Path


class Benches:
    """Directories in which steps of one run work, each for one at a time.

    One that a step has left as it was serves the next: a disk takes its time over directories.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._count = 0
        self._free: list[Bench] = []
        self._used: list[Bench] = []
        self._files: dict[Bench, Collection[str]] = {}  # what stands on each
        self._ahead: dict[int, Bench] = {}  # those that are laid for a step to come
        self._clearing: set[asyncio.Future[None]] = set()

    def lay_ahead(self, step: int, files: Mapping[str, bytes]) -> Bench:
        """Return the bench that a step will take, while others still run."""
        if step not in self._ahead:
            self._ahead[step] = self.take(step, files)
        return self._ahead[step]

    def tidy(self) -> None:
        """Make those ready again that are not needed any more."""
        while self._used:
            self._tidy(self._used.pop())

    def take(self, step: int, files: Mapping[str, bytes]) -> Bench:
        """Return a bench with these files and an empty scratch directory, for a step alone."""
        if step in self._ahead:
            return self._ahead.pop(step)
        self.tidy()
        bench = self._free.pop() if self._free else self._made()
        self._files[bench] = files.keys()
        lay(bench.directory, files)
        return bench

    def give_back(self, bench: Bench) -> None:
        """Take back what a step needs no more."""
        self._used.append(bench)

    async def cleared(self) -> None:
        """Return when none is left on the disk."""
        for bench in (*self._free, *self._used, *self._ahead.values()):
            self._clear(bench)
        await asyncio.gather(*self._clearing)

    def _tidy(self, bench: Bench) -> None:
        """Make a directory ready for the next, or let it go."""
        files = self._files.pop(bench)
        if not _is_as_made(bench, files):
            self._clear(bench)
            return
        for name in files:
            os.remove(f"{bench.directory}/{name}")
        self._free.append(bench)

    def _clear(self, bench: Bench) -> None:
        cleared = asyncio.ensure_future(asyncio.to_thread(clear, bench.directory))
        self._clearing.add(cleared)
        cleared.add_done_callback(self._clearing.discard)

    def _made(self) -> Bench:
        directory = self._directory / f"{self._count}.step"
        bench = Bench(directory, directory / SCRATCH, directory / SUPERVISED)
        self._count += 1
        os.mkdir(directory, 0o700)
        os.mkdir(bench.scratch, 0o700)
        return bench


def _is_as_made(bench: Bench, files: Collection[str]) -> bool:
    """Tell whether a step has left nothing on its bench, and taken nothing away."""
    home = str(bench.directory)
    try:
        modes = [os.lstat(each).st_mode for each in (home, f"{home}/{SCRATCH}")]
        return (
            modes == [stat.S_IFDIR | 0o700] * 2
            and not os.listdir(f"{home}/{SCRATCH}")
            and set(os.listdir(home)) == {SCRATCH, *files}
            and not any(stat.S_ISDIR(os.lstat(f"{home}/{name}").st_mode) for name in files)
        )
    except OSError:
        return False


def lay(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a directory of our own in which they are not."""
    for name, data in files.items():
        path = f"{directory}/{name}"
        if "/" in name:
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(path, flags, 0o600), "wb", buffering=0) as file:
            left = data
            while left:
                left = left[file.write(left) :]


def log_of(directory: Path, most: int) -> bytes:
    """Return the end of what was said on stderr, or all of it if it is short."""
    # A step that never began has none.
    with suppress(OSError), (directory / LOG_NAME).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - most))
        return file.read(most)
    return b""


def size_text(size: int) -> str:
    """Return a number of bytes in words.

    >>> size_text(64 << 20), size_text(1500)
    ('64 MiB', '1500 bytes')
    """
    return f"{size // MIB} MiB" if size >= MIB and size % MIB == 0 else f"{size} bytes"
