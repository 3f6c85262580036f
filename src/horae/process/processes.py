"""Runs as processes: held until they are started, watched, and ended with all their children.

    engine ── launcher ── supervisor ── the command and all that it starts
       └────── one socket per run ──┘

When the engine's descriptor of a run closes, the run's supervisor kills its tree: runs end with
their engine. A supervisor of whose run nothing is left rests for a moment, and takes the next run.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import marshal
import os
import signal
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from horae.core import receipt
from horae.core.ports import Ended, LauncherLostError, Process, RunError, Unreleased
from horae.core.receipt import EndCause, Reason, ReasonCode, Status, Verdict
from horae.core.secret import guessed_in
from horae.errors import Exit, HoraeError
from horae.process import launcher
from horae.process.cgroup import CgroupLimits, ParentCgroup, is_cleared, own_cgroup, standing
from horae.process.handover import HandedProcesses, HandedRun
from horae.process.output import HEAD, LOG, TAIL, quietly, spellings_of
from horae.process.supervisor import PROTOCOL, REPORT, frame, now, take_frame
from horae.process.tree import kill_marked, started

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from horae.core.ports import Held
    from horae.process.tree import CgroupOrder

log = logging.getLogger(__name__)

GRACE: Final = timedelta(seconds=5)  # between SIGTERM and SIGKILL
LAST_PATIENCE: Final = timedelta(seconds=5)  # for processes that the last engine left
READY: Final = 10.0  # seconds for a supervisor to report that it is ready
OVERDUE: Final = 1.0  # seconds after which a supervisor that should have ended is killed
LONGEST_REPORT: Final = 64 << 10
RESTING: Final = 64  # supervisors kept for a next run, of about a megabyte each
REST: Final = 2.0  # seconds for which they are kept

LOG_NAME: Final = LOG.decode()
REPORT_NAME: Final = REPORT.decode()
_LOCK_NAME: Final = "runs.lock"
_MARKS: Final = ("HORAE_DATA", "HORAE_RUN")  # in the environment of each process of a run
_LOADER: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # where some builds find their library
_KNOWN: Final = (
    "why", "signal", "seconds", "cpu_seconds", "max_rss", "output", "left_out", "unlimited",
    "size", "sum", "fault",
)  # fmt: skip


_ORDERED: Final = (  # what a supervisor gets of a spec as it is
    "run", "cwd", "directory", "stdin", "source", "is_reported", "timeout", "idle", "grace",
    "address_space",
)  # fmt: skip


class OldRunsError(HoraeError, code="old_runs", exit_code=Exit.TEMPORARY):
    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"{path}: runs of a previous engine are still active;"
            " wait for them, or find them with `fuser` and terminate them"
        )


@dataclass(frozen=True, slots=True)
class Spec:
    run: int
    argv: tuple[str, ...]
    cwd: Path
    environment: Mapping[str, str]
    directory: Path  # for its output and the report of its end, with secrets masked
    stdin: bytes = b""  # empty: /dev/null
    source: Path | None = None  # a file to read instead
    target: Path | None = None  # the file for its unmasked stdout; a short one is returned instead
    most: int = 0  # a larger stdout ends the run
    is_reported: bool = True  # whether a later engine may ask how it ended
    timeout: timedelta | None = None
    idle: timedelta | None = None  # the run is ended after so long without output
    grace: timedelta = GRACE
    secrets: tuple[bytes, ...] = ()
    address_space: int | None = None  # bytes for each process, including its supervisor
    cgroup: CgroupLimits = field(default_factory=CgroupLimits)

    def __post_init__(self) -> None:
        token = self.environment.get(TOKEN, "").encode()
        if token and token not in self.secrets:
            object.__setattr__(self, "secrets", (*self.secrets, token))


TOKEN: Final = "HORAE_TOKEN"  # noqa: S105 - the variable that a run finds its token in


class Processes:
    """Makes runs; one per data directory, in which it holds a lock while any run may live.

    If *certain* is False, or where the system has no subreaper, only process groups are ended.
    Below *cgroup* each run has one of its own.
    """

    def __init__(
        self,
        directory: Path,
        *,
        certain: bool | None = None,
        cgroup: Path | None = None,
        limits: CgroupLimits | None = None,
        kept: tuple[int, int] = (HEAD, TAIL),
        given: HandedProcesses | None = None,
    ) -> None:
        self._kept = kept  # bytes kept of the beginning and the end of an output
        self.certain_tree_kill = can_kill_trees() if certain is None else certain
        self.limits = limits or CgroupLimits()
        self._directory = directory
        self._cgroup: ParentCgroup | None = None
        if cgroup is not None and (home := own_cgroup()) is not None:
            self._cgroup = ParentCgroup(cgroup, home, data=directory)
        self._lock = -1
        self._locking = asyncio.Lock()
        self._launcher: Launcher | None = None
        self._given = given
        self._older: list[Launcher] = []  # of previous images, until their runs have ended
        self._closing: set[asyncio.Task[None]] = set()
        self.live: set[LiveRun] = set()
        # Runs handed over, by number, or why one of them was ended.
        self.adopted: dict[int, Held | Reason] = {}
        self._resting: list[SupervisorLine] = []
        self.ends_at: float | None = None  # when runs end unless `alive_until` is called again

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def begin(self, *, patience: timedelta = LAST_PATIENCE) -> None:
        async with self._locking:
            if self._launcher is not None:
                return
            if self._given is not None:
                given, self._given = self._given, None
                await self._adopt(given)
                return
            lock = self._lock = await _lock(self._directory / _LOCK_NAME, patience=patience)
            if self._cgroup is not None:
                self._cgroup.open()
                gives_up_at = now() + patience.total_seconds()
                for old in self._cgroup.left_over():
                    if not await _becomes_true(partial(is_cleared, old), gives_up_at, pause=0.02):
                        self._unlock()
                        raise OldRunsError(str(old / "cgroup.procs"))
            self._launcher = Launcher(lock, self._directory, self.certain_tree_kill)

    @property
    def notes(self) -> list[str]:
        unheld = standing().unheld(self.limits)
        return [f"{setting} is not enforced: {why}" for setting, why in unheld]

    @property
    def launcher_pid(self) -> int | None:
        return None if self._launcher is None else self._launcher.pid

    async def hold(self, spec: Spec) -> LiveRun:
        """Make a run that waits to be started; after LauncherLostError, try again."""
        order = self._order(spec)
        if self._launcher is None:
            await self.begin()
        while (line := self._rested(spec.address_space)) is not None:
            # A supervisor that died while it was idle has run nothing.
            with suppress(LauncherLostError):
                return await self._made(spec, line, order)
        return await self._made(spec, await self._fresh(spec.address_space), order)

    def _rested(self, address_space: int | None) -> SupervisorLine | None:
        for line in reversed(self._resting):
            if line.address_space == address_space and line.launcher == self.launcher_pid:
                self._resting.remove(line)
                line.wake()
                return line
        return None

    async def _fresh(self, address_space: int | None) -> SupervisorLine:
        assert self._launcher is not None
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise RunError(f"no file descriptor for the run: {error.strerror}") from error
        try:
            await self._launcher.hand(theirs.fileno())
        except BaseException as error:
            ours.close()
            if isinstance(error, OSError):
                raise RunError(f"cannot start the launcher: {error.strerror}") from error
            raise
        finally:
            theirs.close()
        return SupervisorLine(ours, address_space, self._launcher.pid, self)

    async def _made(self, spec: Spec, line: SupervisorLine, order: bytes) -> LiveRun:
        run = LiveRun(spec, line, self)
        self.live.add(run)
        try:
            await run.made(order)
        except TimeoutError:
            run.drop()
            if not run.kill_supervisor() and self._launcher is not None:
                self._launcher.kill()
            raise LauncherLostError("the launcher did not answer and was replaced") from None
        except BaseException:
            run.drop()
            raise
        return run

    def _order(self, spec: Spec) -> bytes:
        cgroup: CgroupOrder | None = None
        if self._cgroup is not None:
            cgroup = self._cgroup.order(spec.cgroup.over(self.limits))
        argv = [*map(os.fsencode, spec.argv)]
        environment = {os.fsencode(name): os.fsencode(v) for name, v in spec.environment.items()}
        if not argv or not argv[0]:
            raise RunError("no command is given")
        if b"\0" in b"".join([*argv, *environment, *environment.values()]):
            raise RunError(f"{spec.argv[0]}: an argument or variable contains a NUL byte")
        if b"" in environment or b"=" in b"".join(environment):
            raise RunError(f"{spec.argv[0]}: a variable has an empty name or a name with =")
        facts = {name: _marshalled(getattr(spec, name)) for name in _ORDERED}
        facts |= {"argv": argv, "environment": environment, "kept": self._kept, "cgroup": cgroup}
        facts["target"] = spec.target and (os.fsencode(spec.target), spec.most)
        facts["spellings"] = spellings_of(frozenset(spec.secrets))
        return frame(b"o", marshal.dumps(facts))

    async def look_back(self, directory: Path, run: int) -> Ended | Unreleased | None:
        await self.begin()
        return read_end(directory, run)

    def alive_until(self, moment: float) -> None:
        """Let every run, including later ones, end at a time of the boot clock."""
        self.ends_at = moment
        for run in self.live:
            run.alive_until(moment)

    async def _adopt(self, given: HandedProcesses) -> None:
        self._lock = given.lock
        self._launcher = Launcher(given.lock, self._directory, self.certain_tree_kill)
        launcher.GIVEN = given.descriptors  # our limit may have been raised
        for pid, control in given.launchers.items():
            self._older.append(Launcher(given.lock, self._directory, self.certain_tree_kill))
            self._older[-1].adopt(pid, control)
        for handed in given.runs:
            spec = Spec(
                handed.number,
                argv=(),
                cwd=self._directory,
                environment=handed.environment,
                directory=Path(handed.directory),
                grace=handed.grace,
                address_space=handed.address_space,
            )
            channel = socket.socket(fileno=handed.channel)
            line = SupervisorLine(
                channel, handed.address_space, handed.launcher, self, handed.process
            )
            line.heard += handed.heard
            run = LiveRun(spec, line, self)
            self.live.add(run)
            run.adopt(handed.overdue_at)
            self.adopted[handed.number] = run
            if handed.protocol != PROTOCOL:
                run.hang_up()
                gone = partial(lambda process: started(process.pid) != process.started, run.process)
                if not await _becomes_true(gone, now() + READY):
                    run.kill_supervisor()
                run.drop()
                words = "ended by a restart: the new version cannot talk to the supervisor"
                words += f" of the run (protocol {handed.protocol}, not {PROTOCOL})"
                self.adopted[handed.number] = Reason(ReasonCode.UNKNOWN_PROTOCOL, words)
        self.retire()

    def carries(self, number: int, process: Process) -> bool:
        return any(run.spec.run == number and run.process == process for run in self._whole)

    @property
    def _whole(self) -> list[LiveRun]:
        return [each for each in self.live if each.line.process and each.spec.is_reported]

    async def hand_over(self, numbers: Collection[int]) -> HandedProcesses:
        runs = [each for each in self._whole if each.spec.run in numbers]
        handed = tuple(each.hand_over() for each in runs)
        busy = {each.launcher for each in handed}
        every = [each for each in (*self._older, self._launcher) if each is not None]
        kept = {each.pid: each.hand_over() for each in every if each.pid and each.pid in busy}
        self.live.difference_update(runs)
        lock, self._lock = self._lock, -1
        self._older = [each for each in every if each.pid is not None]
        self._launcher = None
        await self.close()
        return HandedProcesses(lock, launcher.GIVEN, kept, handed)

    def retire(self) -> None:
        busy = {run.line.launcher for run in self.live}
        for each in [each for each in self._older if each.pid not in busy]:
            self._older.remove(each)
            closing = asyncio.create_task(each.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        left = tuple(self.live)
        for run in left:
            run.hang_up()
        for line in tuple(self._resting):
            self.lose(line)
        for each in (*self._older, self._launcher):
            if each is not None:
                await each.close()
        self._launcher, self._older = None, []
        await asyncio.gather(*self._closing)
        for run in left:
            run.drop()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    async def bury(self, run: LiveRun) -> None:
        """Return when nothing is left of a run whose supervisor crashed."""
        pid, number = run.process.pid, run.spec.run
        if self._cgroup is not None:
            cleared = partial(is_cleared, self._cgroup.path_of(number, pid))
            await _becomes_true(cleared, now() + READY)
        older = (each for each in self._older if each.pid == run.line.launcher)
        if (above := next(older, self._launcher)) is not None:
            try:
                async with asyncio.timeout(READY):
                    await above.sweep(pid)
            except TimeoutError:
                words = "the launcher did not confirm the end of process %d"
                log.warning(words, pid, extra={"run": number})
        # If its launcher had died before, its processes were adopted by init. They are found by the
        # variables of the run in their environment.
        known = run.spec.environment
        if all(each in known for each in _MARKS):
            marks = [os.fsencode(f"{each}={known[each]}") for each in _MARKS]
            await _becomes_true(lambda: not kill_marked(marks), now() + READY)

    def let_rest(self, line: SupervisorLine) -> None:
        if len(self._resting) >= RESTING or self._launcher is None:
            line.close()
            return
        self._resting.append(line)
        line.resting = asyncio.get_running_loop().call_later(REST, self.lose, line)

    def lose(self, line: SupervisorLine) -> None:
        if line in self._resting:
            self._resting.remove(line)
        line.close()


@dataclass(eq=False)
class Launcher:
    """The engine's end of a launcher: starts one if there is none, and passes sockets to it."""

    _lock: int
    _directory: Path
    _certain: bool
    _process: subprocess.Popen[bytes] | AdoptedChild | None = None
    _control: socket.socket | None = None
    _heard: bytes = b""
    _sweeps: dict[int, asyncio.Future[None]] = field(default_factory=dict)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def hand(self, channel: int) -> None:
        """Pass a socket to a supervisor; a launcher that has died is replaced first."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", channel))]
        try:
            await self._send(b"r", rights)
        except OSError as error:
            if not isinstance(error, BrokenPipeError | ConnectionResetError):
                raise
            self._lose()
            await self._send(b"r", rights)

    async def sweep(self, pid: int) -> None:
        if self._control is None:
            return
        swept = self._sweeps.setdefault(pid, asyncio.get_running_loop().create_future())
        try:
            await self._send(b"s" + struct.pack("<I", pid))
        except OSError:
            self._lose()
        await swept

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
        self._lose()

    async def close(self) -> None:
        self._hang_up()
        while self._process is not None and self._process.poll() is None:
            await asyncio.sleep(0.005)
        self._lose()

    async def _send(self, data: bytes, rights: list[tuple[int, int, bytes]] | None = None) -> None:
        while True:
            control = self._control or self._start()
            try:
                control.sendmsg([data], rights or [])
                return
            except BlockingIOError:
                # It has hundreds to fork already.
                await asyncio.sleep(0.002)

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        package = str(Path(launcher.__file__).resolve().parents[2])
        numbers = (launcher.GIVEN, theirs.fileno(), self._lock, os.getpid(), int(self._certain))
        said = (package, str(self._directory), *map(str, numbers))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOFOLLOW
        try:
            try:
                errors = os.open(self._directory / "launcher.log", flags | os.O_CLOEXEC, 0o600)
            except OSError:  # the log of the launcher is for debugging; runs do not need it
                errors = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            try:
                self._process = subprocess.Popen(  # noqa: S603 (our own program)
                    [sys.executable, "-I", "-S", "-c", launcher.PROGRAM, *said],
                    pass_fds=(theirs.fileno(), self._lock),
                    start_new_session=True,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    cwd="/",
                    env={name: os.environ[name] for name in _LOADER if name in os.environ},
                )
            finally:
                os.close(errors)
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._listen(ours)
        return ours

    def adopt(self, pid: int, control: int) -> None:
        self._process = AdoptedChild(pid)
        self._listen(socket.socket(fileno=control))

    def hand_over(self) -> int:
        control, self._control, self._process = self._control, None, None
        assert control is not None, "a launcher that is gone was forgotten before"
        asyncio.get_running_loop().remove_reader(control.fileno())
        return control.detach()

    def _listen(self, control: socket.socket) -> None:
        control.setblocking(False)
        asyncio.get_running_loop().add_reader(control.fileno(), self._hear)
        self._control = control

    def _hear(self) -> None:
        try:
            heard = self._control.recv(4096) if self._control else b""
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if not heard:
            self._lose()
            return
        self._heard += heard
        while len(self._heard) >= 5:
            (pid,) = struct.unpack("<I", self._heard[1:5])
            self._heard = self._heard[5:]
            if (swept := self._sweeps.pop(pid, None)) and not swept.done():
                swept.set_result(None)

    def _hang_up(self) -> None:
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
        self._control, self._heard = None, b""

    def _lose(self) -> None:
        self._hang_up()
        if self._process is not None:
            # It closes its end only when it dies, so this does not wait.
            self._process.kill()
            self._process.wait()
            self._process = None
        sweeps, self._sweeps = self._sweeps, {}
        for swept in sweeps.values():
            if not swept.done():
                swept.set_result(None)


@dataclass(eq=False, slots=True)
class AdoptedChild:
    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        return self._reap(os.WNOHANG)

    def wait(self) -> int | None:
        return self._reap(0)

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _reap(self, options: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:
                pid, status = self.pid, 0
            self.returncode = status if pid else None
        return self.returncode


@dataclass(eq=False, slots=True)
class SupervisorLine:
    _channel: socket.socket
    address_space: int | None  # its own limit, which can only be lowered
    launcher: int | None
    _processes: Processes
    process: Process | None = None
    run: LiveRun | None = None  # in progress
    heard: bytearray = field(default_factory=bytearray)
    resting: asyncio.TimerHandle | None = None
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def __post_init__(self) -> None:
        self._channel.setblocking(False)
        self._loop.add_reader(self._channel.fileno(), self._hear)

    def wake(self) -> None:
        if self.resting is not None:
            self.resting.cancel()
            self.resting = None

    def close(self) -> None:
        self.wake()
        if self._channel.fileno() >= 0:
            self._loop.remove_reader(self._channel.fileno())
            self._channel.close()

    def hand_over(self) -> tuple[int, bytes]:
        self._loop.remove_reader(self._channel.fileno())
        return self._channel.detach(), bytes(self.heard)

    def tell(self, data: bytes) -> bool:
        # Then it is dead or does not listen; its end is received, or is overdue.
        try:
            return self._channel.send(data) == len(data)
        except OSError:
            return False

    async def order(self, data: bytes) -> None:
        # The end of the supervisor is received as the end of the run.
        with suppress(BrokenPipeError, ConnectionResetError):
            with suppress(BlockingIOError):  # the rest is sent below
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
            self._processes.lose(self)
            if self.run is not None:
                self.run.drop()
            return
        self.heard += heard
        while (said := take_frame(self.heard)) is not None:
            self._take_answer(*said)

    def _take_answer(self, kind: bytes, body: bytes) -> None:
        if kind == b"r":
            self.process = Process(*struct.unpack("<IQ", body))
        if self.run is None:
            return
        if not self.run.answered.done():
            self.run.answered.set_result((kind, body))
            return
        run, self.run = self.run, None
        if kind == b"e":
            self._processes.let_rest(self)
        else:
            self.close()
        run.end(body)


@dataclass(eq=False)
class LiveRun:
    spec: Spec
    line: SupervisorLine
    _processes: Processes
    output: bytes = b""  # its stdout, if it had a target and was short
    _is_released: bool = False
    _reason: str = ""
    _overdue: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.answered: asyncio.Future[tuple[bytes, bytes]] = self._loop.create_future()
        self._end: asyncio.Future[bytes] = self._loop.create_future()
        self.line.run = self

    @property
    def process(self) -> Process:
        assert self.line.process is not None
        return self.line.process

    async def made(self, order: bytes) -> None:
        async with asyncio.timeout(READY):
            await self.line.order(order)
            kind, body = await self.answered
        if kind == b"x":
            raise RunError(body.decode(errors="replace"))
        if kind != b"r":
            raise LauncherLostError("the launcher ended")

    def go(self) -> None:
        if self._is_released:
            return
        self._is_released = True
        ends_at = self._processes.ends_at
        lease = b"" if ends_at is None else frame(b"t", struct.pack("<d", ends_at))
        self.line.tell(lease + frame(b"g"))
        if self.spec.timeout is not None:
            self._expect_end(self.spec.timeout + self.spec.grace)

    def cancel(self, reason: str) -> None:
        if self._reason or self._end.done():
            return
        self._reason = reason or "cancelled"
        self.line.tell(frame(b"c", reason.encode(errors="replace")[:4000]))
        self._expect_end(self.spec.grace)

    def alive_until(self, moment: float) -> None:
        """Let it end at a time of the boot clock, unless this is called again before."""
        self.line.tell(frame(b"t", struct.pack("<d", moment)))

    def hand_over(self) -> HandedRun:
        overdue_at = None
        if self._overdue is not None:
            overdue_at = self._overdue.when()
            self._overdue.cancel()
        spec, line = self.spec, self.line
        known = {each: spec.environment[each] for each in _MARKS if each in spec.environment}
        channel, heard = line.hand_over()
        return HandedRun(
            spec.run,
            PROTOCOL,
            channel,
            self.process,
            line.launcher,
            str(spec.directory),
            known,
            heard,
            line.address_space,
            spec.grace,
            overdue_at,
        )

    def adopt(self, overdue_at: float | None) -> None:
        self.answered.set_result((b"r", b""))
        self._is_released = True
        if overdue_at is not None:
            self._overdue = self._loop.call_at(overdue_at, self.kill_supervisor)

    async def ended(self) -> Ended:
        try:
            return await self._ended()
        finally:
            self._processes.retire()

    async def _ended(self) -> Ended:
        body = await asyncio.shield(self._end)
        report, _, self.output = body.partition(b"\n")
        ended = parse_end(report, self.spec.run) if report else None
        if ended is None:
            await self._processes.bury(self)
            ended = read_end(self.spec.directory, self.spec.run)
        if isinstance(ended, Unreleased):
            cancelled = Reason(ReasonCode.CANCELLED, self._reason)
            reason = cancelled if self._reason else receipt.NEVER_STARTED
            return Ended(Status.KILLED, reason, facts={"released": False})
        if ended is None:
            words = "the supervisor of the run died, and its processes were killed"
            return Ended(Status.INTERRUPTED, Reason(ReasonCode.SUPERVISOR_LOST, words))
        return ended

    def hang_up(self) -> None:
        """Close the lifeline, upon which the supervisor kills all its processes."""
        if self._overdue is not None:
            self._overdue.cancel()
        if self.line.run is self:
            self.line.close()

    def drop(self) -> None:
        self.hang_up()
        if self.line.run is self:
            self.line.run = None
        self.end(b"")

    def end(self, report: bytes) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
        self._processes.live.discard(self)
        if not self.answered.done():
            self.answered.set_result((b"", b""))
        if not self._end.done():
            self._end.set_result(report)

    def _expect_end(self, within: timedelta) -> None:
        """Kill the supervisor if it does not end in time, as it may have been stopped."""
        if self._overdue is not None:
            self._overdue.cancel()
        delay = within.total_seconds() + OVERDUE
        self._overdue = self._loop.call_later(delay, self.kill_supervisor)

    def kill_supervisor(self) -> bool:
        """Kill an unresponsive supervisor; False: its process is unknown, or has ended."""
        process = self.line.process
        if process is None or started(process.pid) != process.started:
            return False
        quietly(os.kill, process.pid, signal.SIGKILL)  # it may have just ended
        return True


def _marshalled(value: object) -> object:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return os.fsencode(value) if isinstance(value, Path) else value


def guessed_secrets(environment: Mapping[str, str]) -> set[bytes]:
    found = (each for name, value in environment.items() for each in guessed_in(name, value))
    return {each.encode("utf-8", "surrogateescape") for each in found}


async def _becomes_true(
    question: Callable[[], bool], gives_up_at: float, *, pause: float = 0.005
) -> bool:
    while not question():
        if now() >= gives_up_at:
            return False
        await asyncio.sleep(pause)
    return True


def can_kill_trees() -> bool:
    if sys.platform != "linux":
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def read_end(directory: Path, run: int) -> Ended | Unreleased | None:
    try:
        with (directory / REPORT_NAME).open("rb") as file:
            return parse_end(file.read(LONGEST_REPORT), run)
    except OSError:
        return None


def parse_end(report: bytes, run: int) -> Ended | Unreleased | None:
    try:
        facts = json.loads(report)
        if facts["run"] != run:
            return None
        if not facts["released"]:
            return Unreleased()
        limit = facts["limit"]
        finish = receipt.RunFinish(
            EndCause(facts["why"]),
            code=facts.get("code"),
            signal=facts.get("signal"),
            first=str(facts["first"]),
            said=str(facts["said"]),
            last=str(facts.get("last", "")),  # a previous image may not report it
            limit=None if limit is None else timedelta(seconds=limit),
        )
        kept = {name: facts[name] for name in _KNOWN if facts.get(name) is not None}
    except (ValueError, LookupError, TypeError, OverflowError):
        return None
    status, reason = _within_limits(receipt.verdict(finish), finish.why, facts)
    if status in receipt.BAD and (tail := receipt.last_lines(finish.last)):
        kept["tail"] = "\n".join(tail)
    return Ended(status, reason, exit_code=finish.code, facts=kept)


def _within_limits(found: Verdict, why: EndCause, facts: Mapping[str, object]) -> Verdict:
    """Return the verdict on a run in a cgroup: a failure may be due to its limits."""
    is_bad = why is EndCause.EXIT and found.status is Status.FAILED
    for name in ("over_memory", "no_memory"):  # a run over its own limit is killed in any case
        if is_bad and name in facts:
            return Verdict(Status.KILLED, Reason(ReasonCode.MEMORY_LIMIT, str(facts[name])))
    if (is_bad or why is EndCause.TIMEOUT) and "over_processes" in facts:
        words = f"{found.reason}; {facts['over_processes']}"
        return Verdict(found.status, Reason(found.reason.code, words))
    return found


async def _lock(path: Path, *, patience: timedelta) -> int:
    descriptor = -1

    def is_locked() -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        return True

    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if await _becomes_true(is_locked, now() + patience.total_seconds(), pause=0.02):
            return descriptor
    except OSError as error:
        quietly(os.close, descriptor)
        raise RunError(f"{path}: {error.strerror}; runs need a lock file there") from error
    os.close(descriptor)
    raise OldRunsError(str(path))
