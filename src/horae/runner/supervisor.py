"""The supervisor: one process per run, that starts a command and ends all that it started.

It is forked by the launcher and talks with the engine over one socket, which is also its
lifeline: when that closes, the engine is dead and so is the run.

    engine → supervisor   the spec: its length and marshalled facts
    supervisor → engine   `r` pid, start time: ready, nothing has run   or `x` length, why not
    engine → supervisor   `g` go   `c` length, reason: cancel   `t` boot clock: alive until
    supervisor → engine   `e` length, report: the end; nothing of the run is left

It runs in an interpreter without site and imports what is written in C, ctypes and
nothing of the house but the masker: memory and the time of a fork are paid for each run.
"""

# Without pathlib: its memory would be a part of each run.
# ruff: noqa: PTH102, PTH103, PTH107, PTH110, PTH113, PTH118
from __future__ import annotations

import _socket
import _struct
import errno
import marshal
import os
import resource
import select
import sys
import time
from _json import encode_basestring_ascii as quoted

from horae.runner.output import CHUNK, LOG, Log, Stream, quietly
from horae.runner.pen import Pen
from horae.runner.tree import give_up_privileges, has_reaped_all, signal_below, started

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import TypedDict

    class Facts(TypedDict):
        """What a supervisor is told about its run."""

        run: int
        argv: list[bytes]
        environment: dict[bytes, bytes]
        cwd: bytes
        directory: bytes
        stdin: bytes
        timeout: float | None
        grace: float
        spellings: tuple[bytes, ...]
        limits: list[tuple[int, int]]
        nice: int
        cgroup: tuple[bytes, bytes, list[tuple[bytes, bytes]]] | None

    class Apart(TypedDict, total=False):
        """How a command is set apart from its supervisor."""

        setsid: bool
        setpgroup: int

else:
    import _signal as signal

REPORT = b"end.json"
GROUP_PATIENCE = 0.2  # seconds for a killed group to be gone, where nothing proves it
BURIALS = 1000  # orphans reaped before anything else is looked at
LONGEST_POLL = 30.0  # the boot clock counts while the machine sleeps, poll does not

# The supervisor lives under the limits of its command, and needs this much itself.
LEAST = {resource.RLIMIT_NOFILE: 64, resource.RLIMIT_FSIZE: 4 << 20, resource.RLIMIT_AS: 64 << 20}

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_DEFAULT_SIGNALS = [each for each in range(1, 32) if each not in {signal.SIGKILL, signal.SIGSTOP}]
_ASK = (signal.SIGTERM, signal.SIGCONT)  # a stopped process hears only when it goes on
_ARGUMENT = 128 << 10  # what Linux takes as one argument


class Refusal(Exception):  # noqa: N818 (an answer, not an error of the house)
    """Why a run cannot be made."""


def supervise(channel: _socket.socket, *, engine: int | None, certain: bool) -> None:
    """Run one command as the engine says and report its end; nothing is left of it then.

    *engine* is a descriptor that becomes readable when the engine dies. Without *certain*
    only the command's process group is ended.
    """
    facts = read_facts(channel)
    if facts is None:
        return
    run = Supervisor(channel, facts, engine=engine, certain=certain)
    try:
        run.prepare()
    except (Refusal, OSError, ValueError) as error:
        _send(channel, b"x", _words(error).encode(errors="replace"))
        return
    _tell(channel, b"r" + _struct.pack("<IQ", os.getpid(), started(os.getpid())))
    if run.may_begin() and run.begin():
        run.watch()
    run.finish()


def read_facts(channel: _socket.socket) -> Facts | None:
    """Return what the engine says about the run; None if it went away meanwhile."""
    length = _receive(channel, 4)
    body = _receive(channel, _struct.unpack("<I", length)[0]) if length else None
    facts: Facts | None = marshal.loads(body) if body else None  # noqa: S302 (from our own engine)
    return facts


class Supervisor:
    """One run: made, let go, watched, ended, reported."""

    def __init__(
        self, channel: _socket.socket, facts: Facts, *, engine: int | None, certain: bool
    ) -> None:
        self._channel = channel
        self._facts = facts
        self._engine = engine
        self._certain = certain
        self._heard = b""
        self._is_released = False
        self._pid = 0
        self._why = ""  # what ends the run, if not the command itself
        self._said = ""
        self._kill_at: float | None = None
        self._alive_until: float | None = None
        self._began_at = now()
        self._has_exited = False
        self._status: int | None = None
        self._used: resource.struct_rusage | None = None
        self._pen: Pen | None = None

        self._poll = select.poll()
        self._poll.register(channel.fileno(), select.POLLIN)
        if engine is not None:
            self._poll.register(engine, select.POLLIN)

    # Before the go: whatever can fail should fail here, while nothing has run.

    def prepare(self) -> None:
        """Make ready all that the command needs, or raise a Refusal."""
        facts = self._facts
        directory, cwd = facts["directory"], facts["cwd"]
        os.umask(0o077)
        self._directory = _open_directory(directory)
        self._log = Log(self._directory)
        os.chdir(cwd)
        self._program = find_program(facts["argv"][0], facts["environment"].get(b"PATH", b""))
        _refuse_too_long(facts)
        self._stdin = _stdin(self._directory, facts["stdin"])
        facts["stdin"] = b""
        self._streams = [Stream(facts["spellings"], has_first=True), Stream(facts["spellings"])]
        for stream in self._streams:
            self._poll.register(stream.reading, select.POLLIN)
        self._listen_for_deaths()
        if facts["cgroup"]:
            self._pen = Pen.made(*facts["cgroup"], run=facts["run"])
        _limit(facts["limits"])

    def _listen_for_deaths(self) -> None:
        """Let the poll wake up when a child has died."""
        self._deaths, self._dying = os.pipe()
        os.set_blocking(self._dying, False)
        signal.set_wakeup_fd(self._dying, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._poll.register(self._deaths, select.POLLIN)

    def may_begin(self) -> bool:
        """Wait for the go; False means that it never came, and nothing has run."""
        while not self._is_released and not self._why:
            self._turn()
        # One more look: the engine may have died after its last word.
        if not self._why:
            for descriptor, _ in self._poll.poll(0):
                self._notice(descriptor)
        return self._is_released and not self._why

    def begin(self) -> bool:
        """Start the command; False means that the system would not."""
        self._began_at = now()
        outputs = [stream.writing for stream in self._streams]
        fill = [(os.POSIX_SPAWN_DUP2, each, to) for to, each in enumerate([self._stdin, *outputs])]
        if self._pen:
            self._pen.enter()
        try:
            self._pid = os.posix_spawn(
                self._program,
                self._facts["argv"],
                self._facts["environment"],
                file_actions=fill,
                setsigmask=[],
                setsigdef=_DEFAULT_SIGNALS,
                **_apart(certain=self._certain),
            )
        except OSError as error:
            self._why, self._said = "start", f"{_text(self._program)}: {error.strerror}"
            return False
        finally:
            if self._pen:
                self._pen.leave()
            for each in (self._stdin, *outputs):
                os.close(each)
        if self._facts["nice"]:
            quietly(os.setpriority, os.PRIO_PGRP, self._pid, self._facts["nice"])
        return True

    # While it runs: one poll over everything.

    def watch(self) -> None:
        """Return when the command has exited or is to be killed."""
        limit = self._facts["timeout"]
        while not self._has_exited:
            if limit is not None and not self._why and now() >= self._began_at + limit:
                self._ask_to_end("timeout", "")
            if self._kill_at is not None and now() >= self._kill_at:
                return
            self._turn()
        # Without a word from us it ended by itself, though nobody was there to see it.
        if self._why in {"engine", "lease"}:
            self._why = ""

    def _turn(self) -> None:
        """Wait for whatever comes next, and take note of it."""
        for descriptor, _ in self._poll.poll(self._patience()):
            self._notice(descriptor)
        if self._alive_until is not None and now() >= self._alive_until:
            self._end_at_once("lease")

    def _patience(self) -> int:
        """Return for how many milliseconds nothing needs to be done."""
        limit = self._facts["timeout"] if self._pid and not self._why else None
        ends = [self._alive_until, self._kill_at, None if limit is None else self._began_at + limit]
        wait = min([LONGEST_POLL, *(each - now() for each in ends if each is not None)])
        return max(0, int(wait * 1000) + 1)

    def _notice(self, descriptor: int) -> None:
        if descriptor == self._channel.fileno():
            self._listen()
        elif descriptor == self._engine:
            self._poll.unregister(descriptor)
            self._engine = None
            self._end_at_once("engine")
        elif descriptor == self._deaths:
            self._bury()
        else:
            stream = next(each for each in self._streams if each.reading == descriptor)
            if not stream.drain(self._log):
                self._poll.unregister(descriptor)

    def _listen(self) -> None:
        """Do what the engine says; a closed or broken line is its death."""
        try:
            heard = self._channel.recv(4096, _socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if not heard:
            self._poll.unregister(self._channel.fileno())
            self._end_at_once("engine")
            return
        self._heard += heard
        while self._obey():
            pass

    def _obey(self) -> bool:
        """Take one whole order out of what was heard; False if there is none."""
        order, heard = self._heard[:1], self._heard
        if order == b"g":
            self._is_released, self._heard = True, heard[1:]
        elif order == b"t" and len(heard) >= 9:
            (self._alive_until,), self._heard = _struct.unpack("<d", heard[1:9]), heard[9:]
        elif order == b"c" and len(heard) >= 3 + (length := heard[1] | heard[2] << 8):
            self._heard = heard[3 + length :]
            self._ask_to_end("cancel", heard[3 : 3 + length].decode(errors="replace"))
        else:
            return False
        return True

    def _bury(self) -> None:
        """See whether the command has ended, and reap orphans: their number is not bounded."""
        os.read(self._deaths, 4096)
        if not self._certain:
            self._reap_command(os.WNOHANG)
            self._has_exited = self._status is not None
            return
        for _ in range(BURIALS):
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if dead is None:
                return
            if dead.si_pid == self._pid:
                # It is reaped only after its group: until then its number stays taken.
                self._has_exited = True
                return
            os.waitpid(dead.si_pid, 0)
        quietly(os.write, self._dying, b"\0")  # more of them, but the clock comes first

    # The end.

    def _ask_to_end(self, why: str, said: str) -> None:
        """Ask the whole tree to end, and kill it after the grace."""
        if self._why:
            return
        self._why, self._said = why, said
        self._kill_at = now() + self._facts["grace"]
        if not self._pid:
            return
        if self._certain:
            signal_below(os.getpid(), _ASK)
        else:
            for each in _ASK:
                quietly(os.killpg, self._pid, each)

    def _end_at_once(self, why: str) -> None:
        """Kill without asking: nobody is there any more who could wait for the grace."""
        self._why = self._why or why
        self._kill_at = now()

    def finish(self) -> None:
        """End the whole tree, keep the rest of the output, report, and say so."""
        if self._pid:
            self._end_tree()
            for stream in self._streams:
                stream.finish(self._log)
        if self._pen:
            self._pen.remove()
        self._log.finish()
        report = self._report().encode()
        quietly(write_whole, self._directory, REPORT, report)
        _send(self._channel, b"e", report)

    def _end_tree(self) -> None:
        """Kill until the kernel says that there is no child: below a subreaper that is proof."""
        if self._pen:
            self._pen.kill()
        # The group before its leader is reaped: until then its number is not used again.
        quietly(os.killpg, self._pid, signal.SIGKILL)
        if self._status is None:
            self._reap_command(0)
        if not self._certain:
            self._wait_for_group()
            return
        while not has_reaped_all():
            signal_below(os.getpid(), (signal.SIGKILL,))
            # Whoever was killed falls to us sooner or later; each one may show more.
            quietly(os.waitpid, -1, 0)

    def _wait_for_group(self) -> None:
        """Return when the command's group is empty, or is not going to be."""
        gives_up_at = now() + GROUP_PATIENCE
        while now() < gives_up_at:
            try:
                os.killpg(self._pid, signal.SIGKILL)
            except OSError:
                return
            time.sleep(0.002)

    def _reap_command(self, options: int) -> None:
        pid, status, used = os.wait4(self._pid, options)
        if pid:
            self._status, self._used = status, used

    def _report(self) -> str:
        """Return what is known of the end, as JSON."""
        facts, status, used = self._facts, self._status, self._used
        has_begun = bool(self._pid) or self._why == "start"
        parts = {
            "version": "1",
            "run": str(facts["run"]),
            "released": "true" if has_begun else "false",
            "why": quoted(self._why or "exit"),
            "said": quoted(self._said),
            "first": quoted(self._streams[0].first.decode(errors="replace")),
            "limit": _number(facts["timeout"]),
        }
        if status is not None:
            is_exit = os.WIFEXITED(status)
            parts["code"] = str(os.WEXITSTATUS(status)) if is_exit else "null"
            parts["signal"] = "null" if is_exit else str(os.WTERMSIG(status))
        if used is not None:
            parts["seconds"] = _number(now() - self._began_at)
            parts["cpu_seconds"] = _number(used.ru_utime + used.ru_stime)
            parts["max_rss"] = str(used.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
        parts["output"] = str(self._log.total)
        parts["left_out"] = str(self._log.left_out)
        return "{" + ", ".join(f'"{name}": {value}' for name, value in parts.items()) + "}\n"


def now() -> float:
    """Return the seconds of the boot clock, which nobody sets and which counts through sleep."""
    return time.clock_gettime(_CLOCK)


def find_program(name: bytes, path: bytes) -> bytes:
    """Return the file that a command names, looked for as a shell would, or raise a Refusal."""
    is_path = b"/" in name
    places = [name] if is_path else [os.path.join(each, name) for each in path.split(b":") if each]
    seen = None
    for place in places:
        if os.path.isfile(place):
            if os.access(place, os.X_OK):
                return place
            seen = seen or place
        elif is_path and os.path.exists(place):
            raise Refusal(f"{_text(place)}: is not a file that can be run")
    if seen:
        raise Refusal(f"{_text(seen)}: {os.strerror(errno.EACCES)}; make it executable")
    where = "" if is_path else " in the PATH of the run"
    raise Refusal(f"{_text(name)}: no such program{where}")


def _open_directory(path: bytes) -> int:
    """Return a descriptor of a directory, which is made if it is not there."""
    try:
        os.mkdir(path, 0o700)
    except FileNotFoundError:
        os.makedirs(path, 0o700, exist_ok=True)
    except FileExistsError:
        _forget_before(path)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _forget_before(path: bytes) -> None:
    """Remove what an attempt before left here: it is not about this one."""
    for name in (REPORT, LOG):
        try:
            os.remove(path + b"/" + name)
        except FileNotFoundError:
            continue


def _apart(*, certain: bool) -> Apart:
    """Return how the command is set apart from us; not every system can make it a session."""
    return {"setsid": True} if certain else {"setpgroup": 0}


def _refuse_too_long(facts: Facts) -> None:
    """Refuse arguments that Linux would not take; elsewhere the start itself tells."""
    if sys.platform != "linux":
        return
    texts = [*facts["argv"], *(b"%b=%b" % pair for pair in facts["environment"].items())]
    if max(map(len, texts)) >= _ARGUMENT:
        raise Refusal(f"an argument or variable is longer than {_ARGUMENT} bytes; use stdin")
    stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
    room = (6 << 20) if stack == resource.RLIM_INFINITY else min(stack // 4, 6 << 20)
    if sum(len(each) + 9 for each in texts) + 4096 > max(room, _ARGUMENT):
        raise Refusal(f"arguments and environment: {os.strerror(errno.E2BIG)}; use stdin")


def _limit(limits: list[tuple[int, int]]) -> None:
    """Set what the command may use; the supervisor keeps the least that it needs."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for which, wanted in limits:
        hard = resource.getrlimit(which)[1]
        most = max(wanted, LEAST.get(which, 0))
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (most, most))
    give_up_privileges()


def _stdin(directory: int, data: bytes) -> int:
    """Return a descriptor from which the command reads its input."""
    if not data:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        descriptor = os.memfd_create("stdin", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(b".stdin", flags, 0o600, dir_fd=directory)
        os.remove(b".stdin", dir_fd=directory)
    while data:
        data = data[os.write(descriptor, data) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def write_whole(directory: int, name: bytes, data: bytes) -> None:
    """Give a file this content in one step; a power cut may undo it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(name + b".new", flags, 0o600, dir_fd=directory)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    finally:
        os.close(descriptor)
    os.replace(name + b".new", name, src_dir_fd=directory, dst_dir_fd=directory)


def _receive(channel: _socket.socket, length: int) -> bytes | None:
    """Return exactly so many bytes; None if the other end went away before."""
    data = bytearray()
    while len(data) < length:
        try:
            part = channel.recv(min(length - len(data), CHUNK))
        except OSError:
            return None
        if not part:
            return None
        data += part
    return bytes(data)


def _send(channel: _socket.socket, kind: bytes, data: bytes) -> None:
    _tell(channel, kind + _struct.pack("<I", len(data)) + data)


def _tell(channel: _socket.socket, data: bytes) -> None:
    """Say something to the engine, if it is there to hear."""
    quietly(channel.sendall, data)


def _words(error: Exception) -> str:
    """Return why a run cannot be made, in words."""
    if not isinstance(error, OSError):
        return str(error)
    where = "" if error.filename is None else f"{_text(os.fsencode(error.filename))}: "
    return f"{where}{error.strerror}"


def _text(name: bytes) -> str:
    return name.decode(errors="replace")


def _number(value: float | None) -> str:
    return "null" if value is None else f"{value:.3f}"
