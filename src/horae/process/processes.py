"""Runs as processes: held until they are let go, watched, and ended with all they started.

    engine ── launcher ── supervisor ── the command and all that it starts
       └────── one socket per run ──┘

The engine keeps one descriptor for each live run. When that closes, for whatever reason,
the run's supervisor kills its tree; so runs end with their engine. A supervisor of which the
system has said that nothing of its run is left rests for a moment, and takes the next run.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import logging
import marshal
import os
import resource
import signal
import socket
import struct
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, Self

from horae.core.ports import Ended, LauncherLostError, Process, RunError
from horae.core.receipt import (
    BAD,
    NEVER_STARTED,
    EndCause,
    Reason,
    ReasonCode,
    RunFinish,
    Status,
    Verdict,
    last_lines,
    verdict,
)
from horae.core.secret import guessed_in
from horae.errors import Exit, HoraeError
from horae.process.cgroup import CgroupLimits, Yard, is_cleared, own_cgroup, standing
from horae.process.launcher import Launcher
from horae.process.masking import disguises
from horae.process.output import LOG
from horae.process.supervisor import REPORT, now
from horae.process.tree import kill_marked, started

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from types import TracebackType

    from horae.process.run_cgroup import Asked

log = logging.getLogger(__name__)

GRACE: Final = timedelta(seconds=5)  # between asking and killing
LAST_PATIENCE: Final = timedelta(seconds=5)  # for what an engine before this one left
READY: Final = 10.0  # seconds for a supervisor to say that it is there
OVERDUE: Final = 1.0  # seconds after which a supervisor that should have ended is killed
LONGEST_REPORT: Final = 64 << 10
RESTING: Final = 16  # supervisors that wait for a next run
LONGEST_NEXT: Final = 1 << 14  # bytes of an order that a socket takes as a whole, or not at all
REST: Final = 0.3  # seconds after which one waits no longer

LOG_NAME: Final = LOG.decode()
REPORT_NAME: Final = REPORT.decode()
_LOCK_NAME: Final = "runs.lock"
_ENCODING: Final = (sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())
_KNOWN: Final = (
    "why", "signal", "seconds", "cpu_seconds", "max_rss", "output", "left_out", "unlimited",
)  # fmt: skip
_PUT: Final = ("size", "sum", "fault")  # what is known of what went into a target


class OldRunsError(HoraeError):
    """Runs of an engine before this one that are still alive; they may be gone soon."""

    code = "old_runs"
    exit_code = Exit.TEMPORARY

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"{path}: runs of a previous engine are still active;"
            " wait for them, or find them with `fuser` and terminate them"
        )


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What each process of a run may use; None leaves it as it is.

    The supervisor lives under the same limits, so `nofile` is at least 64, `fsize` 4 MiB and
    `address_space` 64 MiB, whatever is asked for.
    """

    nofile: int | None = None
    nproc: int | None = None
    fsize: int | None = None
    address_space: int | None = None

    def numbers(self) -> list[tuple[int, int]]:
        """Return them as the system counts them."""
        named = {
            resource.RLIMIT_NOFILE: self.nofile,
            resource.RLIMIT_NPROC: self.nproc,
            resource.RLIMIT_FSIZE: self.fsize,
            resource.RLIMIT_AS: self.address_space,
        }
        return [(which, most) for which, most in named.items() if most is not None]


@dataclass(frozen=True, slots=True)
class Spec:
    """A command that is to be run: with what, where, for how long, and what to keep of it.

    The environment is given to it exactly as it is. `directory` is where its output and the
    report of its end go; secrets are masked in both. With a `target` its stdout goes there just
    as it is, and no more than `most` of it: then it is ended. What is short goes to no file.
    """

    run: int
    argv: tuple[str, ...]
    cwd: Path
    environment: Mapping[str, str]
    directory: Path
    stdin: bytes = b""  # nothing means that there is nothing to read
    source: Path | None = None  # a file to read in its place
    target: Path | None = None
    most: int = 0
    is_reported: bool = True  # whether an engine after this one may ask for its end
    timeout: timedelta | None = None
    ends_at: float | None = None  # of the boot clock: when it is over, too
    grace: timedelta = GRACE
    secrets: tuple[bytes, ...] = ()
    limits: ProcessLimits = field(default_factory=ProcessLimits)
    nice: int = 0
    cgroup: CgroupLimits = field(default_factory=CgroupLimits)

    def __post_init__(self) -> None:
        """See to it that a run does not show its own token."""
        token = self.environment.get(TOKEN, "").encode()
        if token and token not in self.secrets:
            object.__setattr__(self, "secrets", (*self.secrets, token))


TOKEN: Final = "HORAE_TOKEN"  # noqa: S105 - the variable that a run finds its token in


class EarlierRun(Enum):
    """What can be known of a run of an engine before this one, besides its end."""

    UNRELEASED = "unreleased"  # it was never let go, so nothing of it has run


UNRELEASED: Final = EarlierRun.UNRELEASED


class Processes:
    """Makes runs; one per data directory, in which it keeps a lock while any run may live.

    With *certain* False, or where the system has no subreaper, only process groups are ended.
    Below *cgroup* each run has one of its own, and uses no more than *limits* where it says
    nothing itself.
    """

    def __init__(
        self,
        directory: Path,
        *,
        certain: bool | None = None,
        cgroup: Path | None = None,
        limits: CgroupLimits | None = None,
    ) -> None:
        self.certain_tree_kill = can_kill_trees() if certain is None else certain
        self.limits = limits or CgroupLimits()
        self._directory = directory
        self._yard: Yard | None = None
        if cgroup is not None and (home := own_cgroup()) is not None:
            self._yard = Yard(cgroup, home, data=directory)
        self._lock = -1
        self._locking = asyncio.Lock()
        self._launcher: Launcher | None = None
        self._live: set[LiveRun] = set()
        self._resting: list[SupervisorLine] = []
        self._waking: asyncio.TimerHandle | None = None
        self.ends_at: float | None = None  # when runs end unless a later moment is said

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def begin(self, *, patience: timedelta = LAST_PATIENCE) -> None:
        """Wait until nothing of an engine before this one is alive, or raise OldRunsError."""
        async with self._locking:
            if self._launcher is not None:
                return
            lock = await _lock(self._directory / _LOCK_NAME, patience=patience)
            self._lock = lock
            await self._open_yard(patience)
            self._launcher = Launcher(
                lock=lock, directory=self._directory, certain=self.certain_tree_kill
            )

    async def _open_yard(self, patience: timedelta) -> None:
        """Kill what is left in the pens of an engine before this one, of which none is alive."""
        if self._yard is None:
            return
        self._yard.open()
        gives_up_at = boot_seconds() + patience.total_seconds()
        for pen in self._yard.left_over():
            while not is_cleared(pen):
                if boot_seconds() >= gives_up_at:
                    self._unlock()
                    raise OldRunsError(str(pen / "cgroup.procs"))
                await asyncio.sleep(0.02)

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def notes(self) -> list[str]:
        """Which limits are asked for and do not hold here, each in words, and why."""
        unheld = standing().unheld(self.limits)
        return [f"{setting} is not enforced: {why}" for setting, why in unheld]

    @property
    def launcher_pid(self) -> int | None:
        """The number of the launcher's process, if there is one."""
        return None if self._launcher is None else self._launcher.pid

    async def hold(self, spec: Spec, *, at_once: bool = False) -> LiveRun:
        """Make a run that waits for its go; with *at_once* it is let go as soon as it is made.

        Raises RunError if it cannot be made, and LauncherLostError if it may be asked again.
        """
        order = _order(spec, self._pen_of(spec), is_held=not at_once)
        if self._launcher is None:
            await self.begin()
        while (line := self._rested(spec.limits)) is not None:
            # One that died while it rested has run nothing.
            with suppress(LauncherLostError):
                return await self._made(LiveRun(spec, line, self), order, at_once=at_once)
        run = LiveRun(spec, await self._fresh(spec.limits), self)
        return await self._made(run, order, at_once=at_once)

    def _rested(self, limits: ProcessLimits) -> SupervisorLine | None:
        """Return a supervisor that waits for a run with such limits."""
        for line in reversed(self._resting):
            if line.limits == limits and line.launcher == self.launcher_pid:
                self._resting.remove(line)
                return line
        return None

    async def _fresh(self, limits: ProcessLimits) -> SupervisorLine:
        """Return a supervisor that is just being made."""
        assert self._launcher is not None
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise RunError(f"no file descriptor for the run: {error.strerror}") from error
        ours.setblocking(False)
        try:
            await self._launcher.hand(theirs.fileno())
        except OSError as error:
            ours.close()
            raise RunError(f"cannot start the launcher: {error.strerror}") from error
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return SupervisorLine(ours, limits, self._launcher.pid, self)

    def follow(self, before: LiveRun, spec: Spec) -> LiveRun | None:
        """Let a filter begin as soon as another has ended well, with what that has put out.

        None means that it cannot; one that is refused in the end has not begun.
        """
        if spec.limits != before.limits or not before.can_be_followed:
            return None
        order = _order(spec, self._pen_of(spec), is_held=False, follows=True)
        run = before.followed(spec, order) if len(order) <= LONGEST_NEXT else None
        if run is not None:
            self._live.add(run)
        return run

    async def _made(self, run: LiveRun, order: bytes, *, at_once: bool) -> LiveRun:
        self._live.add(run)
        try:
            await run.made(order, at_once=at_once)
        except TimeoutError:
            run.drop()
            if not run.kill_supervisor() and self._launcher is not None:
                self._launcher.kill()
            raise LauncherLostError("the launcher did not answer and was replaced") from None
        except BaseException:
            run.drop()
            raise
        return run

    def _pen_of(self, spec: Spec) -> Asked | None:
        """Return what a supervisor is told about the pen of a run, if it is to have one."""
        return None if self._yard is None else self._yard.asked(spec.cgroup.over(self.limits))

    async def look_back(
        self, directory: Path, run: int
    ) -> Ended | Literal[EarlierRun.UNRELEASED] | None:
        """Return how a run of an engine before this one ended; None is unknown.

        Nothing of it is alive any more when this returns.
        """
        await self.begin()
        return read_end(directory, run)

    def alive_until(self, moment: float) -> None:
        """Let every run end at a moment of the boot clock, unless a later one is said.

        That is every run that is alive, and each that is made before the next moment is said.
        """
        self.ends_at = moment
        for run in self._live:
            run.alive_until(moment)

    async def close(self) -> None:
        """Kill every run that is left, and return when all of them are gone."""
        left = tuple(self._live)
        for run in left:
            run.hang_up()
        self._dismiss(tuple(self._resting))
        if self._launcher is not None:
            await self._launcher.close()
            self._launcher = None
        for run in left:
            run.drop()
        self._unlock()

    async def bury(self, run: LiveRun) -> None:
        """Return when nothing is left of a run whose supervisor died by accident."""
        gives_up_at = boot_seconds() + READY
        if self._yard is not None:
            pen = self._yard.pen_of(run.number, run.process.pid)
            while not is_cleared(pen) and boot_seconds() < gives_up_at:
                await asyncio.sleep(0.005)
        if self._launcher is not None:
            try:
                async with asyncio.timeout(READY):
                    await self._launcher.sweep(run.process.pid)
            except TimeoutError:
                words = "the launcher did not confirm the end of process %d"
                log.warning(words, run.process.pid, extra={"run": run.number})
        # If the launcher that forked it had died before, what was below it fell to nobody.
        gives_up_at = boot_seconds() + READY
        marks = run.marks
        while marks and kill_marked(marks) and boot_seconds() < gives_up_at:
            await asyncio.sleep(0.005)

    def forget(self, run: LiveRun) -> None:
        """Count a run no longer among the living."""
        self._live.discard(run)

    def let_rest(self, line: SupervisorLine) -> None:
        """Keep a supervisor that is as good as new, in case that it is needed again soon."""
        if len(self._resting) >= RESTING or self._launcher is None:
            line.close()
            return
        line.rests_from = boot_seconds()
        self._resting.append(line)
        if self._waking is None:
            self._waking = asyncio.get_running_loop().call_later(REST, self._tidy)

    def lose(self, line: SupervisorLine) -> None:
        """Forget a supervisor that has gone while it rested."""
        if line in self._resting:
            self._resting.remove(line)
        line.close()

    def _tidy(self) -> None:
        """Let those go that nobody has needed for a while."""
        self._waking = None
        long_ago = boot_seconds() - REST
        self._dismiss([line for line in self._resting if line.rests_from <= long_ago])
        if self._resting:
            wait = self._resting[0].rests_from - long_ago
            self._waking = asyncio.get_running_loop().call_later(wait, self._tidy)

    def _dismiss(self, lines: Iterable[SupervisorLine]) -> None:
        for line in lines:
            self._resting.remove(line)
            line.close()
        if not self._resting and self._waking is not None:
            self._waking.cancel()
            self._waking = None


class SupervisorLine:
    """A supervisor, and the engine's end of its lifeline; it serves one run after another."""

    __slots__ = (
        "_channel",
        "_heard",
        "_loop",
        "_processes",
        "launcher",
        "limits",
        "process",
        "rests_from",
        "runs",
    )

    def __init__(
        self,
        channel: socket.socket,
        limits: ProcessLimits,
        launcher: int | None,
        processes: Processes,
    ) -> None:
        self._channel = channel
        self._processes = processes
        self._heard = b""
        self._loop = asyncio.get_running_loop()
        self.limits = limits  # under which it lives itself: they can only be lowered
        self.launcher = launcher
        self.process: Process | None = None
        self.runs: deque[LiveRun] = deque()  # the one that goes on, and those that follow it
        self.rests_from = 0.0
        self._loop.add_reader(channel.fileno(), self._hear)

    def close(self) -> None:
        if self._channel.fileno() >= 0:
            self._loop.remove_reader(self._channel.fileno())
            self._channel.close()

    def tell(self, data: bytes) -> bool:
        """Say something short; False means that it cannot be."""
        # Then it is dead or does not listen; its end is heard, or is overdue.
        try:
            return self._channel.send(data) == len(data)
        except OSError:
            return False

    async def order(self, data: bytes) -> None:
        # Whoever is gone took the other end along; that is heard as an end.
        with suppress(BrokenPipeError, ConnectionResetError):
            with suppress(BlockingIOError):  # then the rest is sent below
                data = data[self._channel.send(data) :]
            if data:
                await self._loop.sock_sendall(self._channel, data)

    def _hear(self) -> None:
        try:
            heard = self._channel.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if not heard:
            self.close()
            self._processes.lose(self)
            if self.runs:
                self.runs[0].drop()
            self._refuse_all()
            return
        self._heard += heard
        while self._take_answer():
            pass

    def _take_answer(self) -> bool:
        """Take one whole answer out of what was heard; False if there is none."""
        kind, heard = self._heard[:1], self._heard
        if kind == b"r" and len(heard) >= 13:
            body, self._heard = heard[1:13], heard[13:]
            self.process = Process(*struct.unpack("<IQ", body))
        elif kind in {b"x", b"e", b"l", b"n"} and len(heard) >= 5:
            (length,) = struct.unpack("<I", heard[1:5])
            if len(heard) < 5 + length:
                return False
            body, self._heard = heard[5 : 5 + length], heard[5 + length :]
        else:
            return False
        if self.runs:
            self._answer(self.runs[0], kind, body)
        return True

    def _answer(self, run: LiveRun, kind: bytes, body: bytes) -> None:
        """Tell a run what was said of it; after its end the next one begins, or we rest."""
        if kind == b"r" or not run.is_answered:
            run.answer(kind, body)
            return
        self.runs.popleft()
        if kind in {b"x", b"l"}:
            self.close()
        elif not self.runs:
            self._processes.let_rest(self)
        elif kind == b"e":
            self.runs[0].begin()
        run.end(kind, body)
        if kind in {b"x", b"l"}:
            self._refuse_all()

    def _refuse_all(self) -> None:
        """Say of those that were to follow that they never will."""
        while self.runs:
            self.runs.popleft().end(b"n", b"")


class LiveRun:
    """A run that is made, and the engine's end of its lifeline."""

    def __init__(self, spec: Spec, line: SupervisorLine, processes: Processes) -> None:
        self._spec = spec
        self._line = line
        self._processes = processes
        self._loop = asyncio.get_running_loop()
        self._is_released = False
        self._reason = ""
        self._overdue: asyncio.TimerHandle | None = None
        self._answer: asyncio.Future[tuple[bytes, bytes]] = self._loop.create_future()
        self._end: asyncio.Future[bytes] = self._loop.create_future()
        self._refusal = ""
        self.output = b""  # what went to its target, if it was short
        self.is_refused = False  # whether it was to follow another, and never began
        line.runs.append(self)

    @property
    def process(self) -> Process:
        """Which process it is: its supervisor."""
        assert self._line.process is not None
        return self._line.process

    @property
    def number(self) -> int:
        return self._spec.run

    @property
    def limits(self) -> ProcessLimits:
        return self._spec.limits

    @property
    def is_answered(self) -> bool:
        """Whether it is known that it could be made."""
        return self._answer.done()

    @property
    def can_be_followed(self) -> bool:
        """Whether another may take what it puts out, at once."""
        goes_on = self._line.runs and self._line.runs[-1] is self and not self._end.done()
        return bool(goes_on and self._spec.target and self._processes.certain_tree_kill)

    @property
    def marks(self) -> tuple[bytes, ...]:
        """The variables by which whatever it started can be known, if it was given them."""
        known = self._spec.environment
        names = [name for name in ("HORAE_DATA", "HORAE_RUN") if name in known]
        return tuple(os.fsencode(f"{each}={known[each]}") for each in names if len(names) == 2)

    async def made(self, order: bytes, *, at_once: bool) -> None:
        """Tell the supervisor what to run, and return when it is ready for the go, or beyond."""
        if at_once:
            self._release()
            order += self._last_word()
            if self._line.process is not None:  # then it says nothing but how it ended
                self._answer.set_result((b"r", b""))
                await self._line.order(order)
                return
        async with asyncio.timeout(READY):
            await self._line.order(order)
            kind, body = await self._answer
        if kind == b"x":
            raise RunError(body.decode(errors="replace"))
        if kind != b"r":
            raise LauncherLostError("the launcher ended")

    def followed(self, spec: Spec, order: bytes) -> LiveRun | None:
        """Tell the supervisor what comes next; None means that it cannot be told."""
        if not self._line.tell(order):
            return None
        run = LiveRun(spec, self._line, self._processes)
        run.answer(b"r", b"")
        return run

    def begin(self) -> None:
        """Take note that the one before it has ended, so that it goes on now."""
        self._release()

    def go(self) -> None:
        """Let it begin; before this nothing of it has run."""
        if not self._is_released:
            self._line.tell(self._last_word())
            self._release()

    def _last_word(self) -> bytes:
        """Return until when it may live, if that is known, and that it may begin."""
        ends_at = self._processes.ends_at
        return (b"" if ends_at is None else b"t" + struct.pack("<d", ends_at)) + b"g"

    def _release(self) -> None:
        self._is_released = True
        if self._spec.timeout is not None:
            self._expect_end(self._spec.timeout + self._spec.grace)

    def cancel(self, reason: str) -> None:
        """End it and all that it started: asked first, then without asking."""
        if self._reason or self._end.done():
            return
        self._reason = reason or "cancelled"
        said = reason.encode(errors="replace")[:4000]
        self._line.tell(b"c" + struct.pack("<H", len(said)) + said)
        self._expect_end(self._spec.grace)

    def alive_until(self, moment: float) -> None:
        """Let it end at a moment of the boot clock, unless a later one is said before."""
        self._line.tell(b"t" + struct.pack("<d", moment))

    async def ended(self) -> Ended:
        """Return how it ended, once nothing of it is left.

        Raises RunError for one that was let go as it was made, and could not be.
        """
        body = await asyncio.shield(self._end)
        if self._refusal:
            raise RunError(self._refusal)
        if self.is_refused:
            return Ended(Status.KILLED, NEVER_STARTED)
        report, _, self.output = body.partition(b"\n")
        ended = parse_end(report, self._spec.run) if report else None
        if ended is None:
            await self._processes.bury(self)
            ended = read_end(self._spec.directory, self._spec.run)
        if ended is UNRELEASED:
            reason = NEVER_STARTED
            if self._reason:
                reason = Reason(ReasonCode.CANCELLED, self._reason)
            return Ended(Status.KILLED, reason, facts={"released": False})
        if ended is None:
            words = "the supervisor of the run died, and its processes were killed"
            return Ended(Status.INTERRUPTED, Reason(ReasonCode.SUPERVISOR_LOST, words))
        return ended

    def hang_up(self) -> None:
        """Close the lifeline: whatever is left of it dies without being asked."""
        if self._overdue is not None:
            self._overdue.cancel()
        if self in self._line.runs:
            self._line.close()

    def drop(self) -> None:
        """Hang up, and let whoever waits for it know."""
        self.hang_up()
        if self in self._line.runs:
            self._line.runs.remove(self)
        self._finish(b"")

    def answer(self, kind: bytes, body: bytes) -> None:
        """Hear whether it could be made."""
        if not self._answer.done():
            self._answer.set_result((kind, body))

    def end(self, kind: bytes, body: bytes) -> None:
        """Hear how it ended, or that it never began."""
        if self._overdue is not None:
            self._overdue.cancel()
        if kind == b"x":
            self._refusal, body = body.decode(errors="replace"), b""
        self.is_refused = kind == b"n"
        self._finish(body)

    def _finish(self, report: bytes) -> None:
        """Let whoever waits for it know."""
        self._processes.forget(self)
        if not self._answer.done():
            self._answer.set_result((b"", b""))
        if not self._end.done():
            self._end.set_result(report)

    def _expect_end(self, within: timedelta) -> None:
        """Kill the supervisor if it does not end in time: somebody may have stopped it."""
        if self._overdue is not None:
            self._overdue.cancel()
        delay = within.total_seconds() + OVERDUE
        self._overdue = self._loop.call_later(delay, self.kill_supervisor)

    def kill_supervisor(self) -> bool:
        """Kill what does not answer; False means that it is not known, or has gone."""
        process = self._line.process
        if process is None or started(process.pid) != process.started:
            return False
        with suppress(OSError):  # it has just ended
            os.kill(process.pid, signal.SIGKILL)
        return True


def guessed_secrets(environment: Mapping[str, str]) -> set[bytes]:
    """Return the values in an environment that look like secrets.

    >>> found = guessed_secrets({"API_KEY": "k3y-of-gold", "URL": "ftp://me:pw99@host"})
    >>> sorted(found)
    [b'ftp://me:pw99@host', b'k3y-of-gold', b'pw99']
    """
    found = (each for name, value in environment.items() for each in guessed_in(name, value))
    return {each.encode("utf-8", "surrogateescape") for each in found}


def boot_seconds() -> float:
    """Return the clock of `alive_until`, which counts through sleep and which nobody sets."""
    return now()


def can_kill_trees() -> bool:
    """Tell whether this system can prove that nothing of a run is left."""
    if sys.platform != "linux":
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def read_end(directory: Path, run: int) -> Ended | Literal[EarlierRun.UNRELEASED] | None:
    """Return how a run ended as its supervisor reported it; None if there is no such report."""
    try:
        with (directory / REPORT_NAME).open("rb") as file:
            return parse_end(file.read(LONGEST_REPORT), run)
    except OSError:
        return None


def parse_end(report: bytes, run: int) -> Ended | Literal[EarlierRun.UNRELEASED] | None:
    """Return what a report says; None if it cannot be read, or is about another run."""
    try:
        facts = json.loads(report)
        if facts["run"] != run:
            return None
        if not facts["released"]:
            return UNRELEASED
        limit = facts["limit"]
        finish = RunFinish(
            EndCause(facts["why"]),
            code=facts.get("code"),
            signal=facts.get("signal"),
            first=str(facts["first"]),
            said=str(facts["said"]),
            last=str(facts.get("last", "")),  # an engine before this one may not report it
            limit=None if limit is None else timedelta(seconds=limit),
        )
        known = (*_KNOWN, *_PUT)
        kept = {name: facts[name] for name in known if facts.get(name) is not None}
    except (ValueError, LookupError, TypeError, OverflowError):
        return None
    status, reason = _within_limits(verdict(finish), finish.why, facts)
    if status in BAD and (tail := last_lines(finish.last)):
        kept["tail"] = "\n".join(tail)
    return Ended(status, reason, exit_code=finish.code, facts=kept)


def _within_limits(found: Verdict, why: EndCause, facts: Mapping[str, object]) -> Verdict:
    """Return what an end means for a run that was in a pen: a bad one may be due to its limits."""
    is_bad = why is EndCause.EXIT and found.status is Status.FAILED
    for name in ("over_memory", "no_memory"):  # whoever is over its own is killed in any case
        if is_bad and name in facts:
            return Verdict(Status.KILLED, Reason(ReasonCode.MEMORY_LIMIT, str(facts[name])))
    if (is_bad or why is EndCause.TIMEOUT) and "over_processes" in facts:
        words = f"{found.reason}; {facts['over_processes']}"
        return Verdict(found.status, Reason(found.reason.code, words))
    return found


def _order(spec: Spec, pen: Asked | None, *, is_held: bool, follows: bool = False) -> bytes:
    """Return a spec as its supervisor reads it, or raise RunError for what can never be run."""
    argv = [each.encode(*_ENCODING) for each in spec.argv]
    variables = [each.encode(*_ENCODING) for pair in spec.environment.items() for each in pair]
    environment = dict(zip(variables[::2], variables[1::2], strict=True))
    if not argv or not argv[0]:
        raise RunError("no command is given")
    if b"\0" in b"".join(argv) or b"\0" in b"".join(variables):
        raise RunError(f"{spec.argv[0]}: an argument or variable contains a NUL byte")
    if b"" in environment or b"=" in b"".join(environment):
        raise RunError(f"{spec.argv[0]}: a variable has an empty name or a name with =")
    body = marshal.dumps(
        {
            "run": spec.run,
            "argv": argv,
            "environment": environment,
            "cwd": os.fsencode(spec.cwd),
            "directory": os.fsencode(spec.directory),
            "stdin": spec.stdin,
            "source": None if spec.source is None else os.fsencode(spec.source),
            "target": None if spec.target is None else (os.fsencode(spec.target), spec.most),
            "is_reported": spec.is_reported,
            "is_held": is_held,
            "is_last": False,
            "follows": follows,
            "ends_at": spec.ends_at,
            "timeout": None if spec.timeout is None else spec.timeout.total_seconds(),
            "grace": spec.grace.total_seconds(),
            "spellings": disguises(spec.secrets),
            "limits": spec.limits.numbers(),
            "nice": spec.nice,
            "cgroup": pen,
        }
    )
    return b"o" + struct.pack("<I", len(body)) + body


async def _lock(path: Path, *, patience: timedelta) -> int:
    """Return a descriptor with the lock that launchers and supervisors share with their engine."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}; runs need a lock file there") from error
    gives_up_at = boot_seconds() + patience.total_seconds()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in {errno.EAGAIN, errno.EACCES}:
                os.close(descriptor)
                raise RunError(f"{path}: {error.strerror}; runs need a lock file there") from error
            if boot_seconds() >= gives_up_at:
                os.close(descriptor)
                raise OldRunsError(str(path)) from error
        else:
            return descriptor
        await asyncio.sleep(0.02)
