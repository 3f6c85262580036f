"""The supervisor: a process per live run, that starts a command and ends all that it started.

It is forked by the launcher and talks with the engine over one socket, its lifeline: when that
closes, the run is killed.

    engine → supervisor   `o` length, marshalled facts: what to run
    supervisor → engine   `r` pid, start time: ready, nothing has run   or `x` length, why not
    engine → supervisor   `g` go   `c` length, reason: cancel   `t` boot clock: alive until
    supervisor → engine   `e` length, report: the end; nothing of the run is left. It is a line,
                          and what a filter has put out stands behind it, if that is short

When the kernel has said that it has no child any more it takes the next run, if there is one: half
of what a short run costs is the fork of a supervisor. One that goes says `l` in place of `e`. To
what is let go with its order only the first answer is `r`. An order may come while a filter runs:
it begins when that has ended well, with what that has put out as its input; else it is answered
with `n`, and never begins.

It runs in an interpreter without site and imports what is written in C and ctypes: memory and the
time of a fork are paid for each run.
"""

# Without pathlib: its memory would be a part of each run.
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

from horae.process.output import CHUNK, LOG, Log, Stream, Target, quietly, write_all
from horae.process.run_cgroup import Pen
from horae.process.tree import give_up_privileges, has_reaped_all, signal_below, started

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from typing import TypedDict

    from horae.process.run_cgroup import Asked

    class RunFacts(TypedDict):
        run: int
        argv: list[bytes]
        environment: dict[bytes, bytes]
        cwd: bytes
        directory: bytes
        stdin: bytes
        source: bytes | None
        target: tuple[bytes, int] | None
        is_reported: bool
        is_held: bool
        is_last: bool
        is_long: bool
        follows: bool
        ends_at: float | None
        timeout: float | None
        grace: float
        spellings: tuple[bytes, ...]
        limits: list[tuple[int, int]]
        nice: int
        cgroup: Asked | None

    class Apart(TypedDict, total=False):
        setsid: bool
        setpgroup: int

else:
    import _signal as signal

REPORT = b"end.json"
GROUP_PATIENCE = 0.2  # seconds for a killed group to be gone, where nothing proves it
BURIALS = 1000  # orphans reaped before anything else is looked at
RUNS = 1000  # that one serves; then whatever it has gathered goes with it
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
    """Run one command after another as the engine says; nothing is left of one that has ended.

    *engine* is a descriptor that becomes readable when the engine dies. Without *certain*
    only the command's process group is ended, and there is no second command.
    """
    line, deaths = EngineSocket(channel, engine), Deaths()
    left = RUNS if certain else 1
    is_known = False
    before: Supervisor | None = None
    while (facts := line.order()) is not None:
        if facts["follows"] and not (before and before.hands_on(facts)):
            line.send(b"n", b"")
            continue
        left -= 1
        before = run = Supervisor(line, facts, deaths, certain=certain)
        try:
            run.prepare()
            if not is_known:  # they are the same for all that it will run
                _limit(facts["limits"])
        except (Refusal, OSError, ValueError) as error:
            line.send(b"x", _words(error).encode(errors="replace"))
            return
        if facts["is_held"] or not is_known:
            line.tell(b"r" + _struct.pack("<IQ", os.getpid(), started(os.getpid())))
            is_known = True
        if run.may_begin() and run.begin():
            run.watch()
        if not run.finish(is_last=not left or facts["is_last"]):
            return
        run.clear()


class EngineSocket:
    __slots__ = ("_orders", "_poll", "alive_until", "channel", "engine", "heard")

    def __init__(self, channel: _socket.socket, engine: int | None) -> None:
        self.channel = channel
        self.engine = engine
        self.heard = b""
        self.alive_until: float | None = None
        self._orders: list[RunFacts] = []  # that came while something ran
        self._poll = select.poll()
        for each in (channel.fileno(), engine):
            if each is not None:
                self._poll.register(each, select.POLLIN)

    def order(self) -> RunFacts | None:
        """Wait for what to run next; None means that the engine is gone, or wants no more."""
        while not self._orders:
            if self.put_by():
                continue
            # What was said to the run before, when that had ended already, is passed over.
            length = length_of(self.heard)
            self.heard = self.heard[length:]
            if not length and not self._hear():
                return None
        facts = self._orders.pop(0)
        if not facts["follows"]:
            self.alive_until = None
        return facts

    def put_by(self) -> bool:
        """Take an order out of what was heard; False if that does not begin with a whole one."""
        if self.heard[:1] != b"o" or len(self.heard) < 5:
            return False
        (length,) = _struct.unpack("<I", self.heard[1:5])
        body, self.heard = self.heard[5 : 5 + length], self.heard[5 + length :]
        body += _receive(self.channel, length - len(body))
        if len(body) < length:
            return False
        facts: RunFacts = marshal.loads(body)  # noqa: S302 (from our own engine)
        facts["is_long"] = length >= _ARGUMENT // 2
        self._orders.append(facts)
        return True

    def _hear(self) -> bool:
        """Wait until more is heard; False means that nobody is there any more."""
        found = [each for each, _ in self._poll.poll()]
        if self.engine in found:
            return False
        try:
            heard = self.channel.recv(CHUNK)
        except OSError:
            return False
        self.heard += heard
        return bool(heard)

    def send(self, kind: bytes, data: bytes) -> None:
        self.tell(kind + _struct.pack("<I", len(data)) + data)

    def tell(self, data: bytes) -> None:
        quietly(self.channel.sendall, data)


def length_of(heard: bytes) -> int:
    """Return the length of the first word to a run; 0 if it is not whole."""
    kind, known = heard[:1], len(heard)
    length = {b"g": 1, b"t": 9}.get(kind, 0)
    if kind == b"c" and known >= 3:
        length = 3 + (heard[1] | heard[2] << 8)
    return length if length <= known else 0


class Deaths:
    __slots__ = ("_writing", "reading")

    def __init__(self) -> None:
        self.reading, self._writing = os.pipe()
        for each in (self.reading, self._writing):
            os.set_blocking(each, False)
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def hear(self) -> None:
        quietly(os.read, self.reading, 4096)

    def repeat(self) -> None:
        quietly(os.write, self._writing, b"\0")


class Supervisor:
    """One run: made, let go, watched, ended, reported."""

    def __init__(
        self, line: EngineSocket, facts: RunFacts, deaths: Deaths, *, certain: bool
    ) -> None:
        self._line = line
        self._channel = line.channel
        self._facts = facts
        self._engine = line.engine
        self._deaths = deaths
        self._certain = certain
        self._is_released = facts["follows"]
        self._pid = 0
        self._why = ""  # what ends the run, if not the command itself
        self._said = ""
        self._kill_at: float | None = None
        self._began_at = now()
        self._has_exited = False
        self._status: int | None = None
        self._used: resource.struct_rusage | None = None
        self._pen: Pen | None = None
        self._stdin = -1
        self._streams: list[Stream | Target] = []

        self._poll = select.poll()
        for each in (line.channel.fileno(), line.engine, deaths.reading):
            if each is not None:
                self._poll.register(each, select.POLLIN)

    # Before the go: whatever can fail should fail here, while nothing has run.

    def prepare(self) -> None:
        facts = self._facts
        os.umask(0o077)
        self._log = Log(facts["directory"])
        if facts["is_reported"]:
            _forget_before(facts["directory"])
            self._log.directory()
        os.chdir(facts["cwd"])
        self._program = find_program(facts["argv"][0], facts["environment"].get(b"PATH", b""))
        if facts["is_long"]:
            _refuse_too_long(facts)
        self._stdin = _stdin(self._log.directory, facts["source"], facts["stdin"])
        facts["stdin"] = b""
        spellings, target = facts["spellings"], facts["target"]
        self._streams.append(Target(*target) if target else Stream(spellings, has_first=True))
        self._streams.append(Stream(spellings))
        for stream in self._streams:
            self._poll.register(stream.reading, select.POLLIN)
        if facts["cgroup"]:
            self._pen = Pen.made(facts["cgroup"], run=facts["run"])

    def hands_on(self, later: RunFacts) -> bool:
        """Let another read what this one has put out, if it ended well."""
        target = self._streams[0]
        is_good = self._status == 0 and not self._why and not target.fault
        if not is_good or not isinstance(target, Target):
            return False
        later["stdin"] = target.data
        later["source"] = target.path if target.size and not target.data else None
        return True

    def may_begin(self) -> bool:
        """Wait for the go; False means that it never came, and nothing has run."""
        while self._obey():  # it may have come with the order
            pass
        while not self._is_released and not self._why:
            self._turn()
        # One more look: the engine may have died after its last word.
        if not self._why:
            for descriptor, _ in self._poll.poll(0):
                self._notice(descriptor)
        until = self._line.alive_until
        if not self._why and until is not None and now() >= until:
            # The go came too late, and perhaps from an engine that was frozen meanwhile.
            self._end_at_once("lease")
        return self._is_released and not self._why

    def begin(self) -> bool:
        self._began_at = now()
        limit, ends_at = self._facts["timeout"], self._facts["ends_at"]
        if ends_at is not None:
            left = max(0.0, ends_at - self._began_at)
            self._facts["timeout"] = left if limit is None else min(left, limit)
        outputs = [stream.writing for stream in self._streams]
        fill = [(os.POSIX_SPAWN_DUP2, each, to) for to, each in enumerate([self._stdin, *outputs])]
        if self._pen and not self._pen.enter():
            self._pen.remove()
            self._pen = None
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
            self._close_ends()
        if self._facts["nice"]:
            quietly(os.setpriority, os.PRIO_PGRP, self._pid, self._facts["nice"])
        return True

    # While it runs: one poll over everything.

    def watch(self) -> None:
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
        for descriptor, _ in self._poll.poll(self._patience()):
            self._notice(descriptor)
        until = self._line.alive_until
        if until is not None and now() >= until:
            self._end_at_once("lease")

    def _patience(self) -> int:
        limit = self._facts["timeout"] if self._pid and not self._why else None
        ends = [
            self._line.alive_until,
            self._kill_at,
            None if limit is None else self._began_at + limit,
        ]
        wait = min([LONGEST_POLL, *(each - now() for each in ends if each is not None)])
        return max(0, int(wait * 1000) + 1)

    def _notice(self, descriptor: int) -> None:
        if descriptor == self._channel.fileno():
            self._listen()
        elif descriptor == self._engine:
            self._poll.unregister(descriptor)
            self._engine = None
            self._end_at_once("engine")
        elif descriptor == self._deaths.reading:
            self._bury()
        else:
            stream = next(each for each in self._streams if each.reading == descriptor)
            if not stream.drain(self._log):
                self._poll.unregister(descriptor)
                stream.close()
            if stream.fault:  # more than it may put out
                self._ask_to_end("cancel", stream.fault)

    def _listen(self) -> None:
        """Do what the engine says; a closed or broken line is its death."""
        try:
            heard = self._channel.recv(CHUNK, _socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if not heard:
            self._poll.unregister(self._channel.fileno())
            self._end_at_once("engine")
            return
        self._line.heard += heard
        while self._obey():
            pass

    def _obey(self) -> bool:
        if self._line.put_by():  # for later
            return True
        heard = self._line.heard
        length = length_of(heard)
        if not length:
            return False
        self._line.heard = heard[length:]
        kind = heard[:1]
        if kind == b"g":
            self._is_released = True
        elif kind == b"t":
            self._line.alive_until = _struct.unpack("<d", heard[1:9])[0]
        else:
            self._ask_to_end("cancel", heard[3:length].decode(errors="replace"))
        return True

    def _bury(self) -> None:
        """See whether the command has ended, and reap orphans: their number is not bounded."""
        self._deaths.hear()
        if not self._pid:
            return
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
        self._deaths.repeat()  # more of them, but the clock comes first

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
        """Kill without asking: the engine is not there to wait for the grace."""
        self._why = self._why or why
        self._kill_at = now()

    def finish(self, *, is_last: bool) -> bool:
        """End the whole tree, keep the rest of the output, report; True: the next may come."""
        if self._pid:
            self._end_tree()
            for stream in self._streams:
                stream.finish(self._log)
        self._log.finish()
        report = self._report().encode()
        if self._pen:
            self._pen.remove()
        if self._facts["is_reported"]:
            quietly(write_whole, self._log.directory(), REPORT, report)
        # Something of this run would cling to the next one.
        is_stuck = self._why in {"engine", "lease"} or (self._pen and self._pen.is_inside)
        is_last = is_last or bool(is_stuck)
        first = self._streams[0]
        if isinstance(first, Target):
            report += first.data
        self._line.send(b"l" if is_last else b"e", report)
        return not is_last

    def clear(self) -> None:
        self._close_ends()
        for stream in self._streams:
            stream.close()
        self._log.close()
        self._deaths.hear()
        os.chdir("/")

    def _close_ends(self) -> None:
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1
        for stream in self._streams:
            stream.close_end()

    def _end_tree(self) -> None:
        """Kill until the kernel says that there is no child: below a subreaper that is proof."""
        if self._pen:
            self._pen.kill()
        # The group before its leader is reaped: until then its number is not used again.
        quietly(os.killpg, self._pid, signal.SIGKILL)
        if self._status is None:
            self._reap_command(0)
        gives_up_at = now() + GROUP_PATIENCE
        while not self._certain and now() < gives_up_at:  # until the group is empty
            try:
                os.killpg(self._pid, signal.SIGKILL)
            except OSError:
                return
            time.sleep(0.002)
        while self._certain and not has_reaped_all():
            signal_below(os.getpid(), (signal.SIGKILL,))
            # Whoever was killed falls to us sooner or later; each one may show more.
            quietly(os.waitpid, -1, 0)

    def _reap_command(self, options: int) -> None:
        pid, status, used = os.wait4(self._pid, options)
        if pid:
            self._status, self._used = status, used

    def _report(self) -> str:
        """Return what is known of the end, as JSON."""
        facts, status, used = self._facts, self._status, self._used
        stdout, stderr = self._streams
        has_begun = bool(self._pid) or self._why == "start"
        last = b""  # the end of stderr, or of stdout if that is empty
        if isinstance(stdout, Stream) and isinstance(stderr, Stream):
            last = stderr.last if stderr.last.strip() else stdout.last
        parts = {
            "version": "1",
            "run": str(facts["run"]),
            "released": "true" if has_begun else "false",
            "why": quoted(self._why or "exit"),
            "said": quoted(self._said),
            "first": quoted(_text(stdout.first)),
            "last": quoted(_text(last)),
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
        if isinstance(stdout, Target):
            parts |= {"size": str(stdout.size), "sum": quoted(stdout.digest())}
            parts["fault"] = quoted(stdout.fault)
        parts |= {name: quoted(words) for name, words in self._limits_hit()}
        parts["output"] = str(self._log.total)
        parts["left_out"] = str(self._log.left_out)
        return "{" + ", ".join(f'"{name}": {value}' for name, value in parts.items()) + "}\n"

    def _limits_hit(self) -> list[tuple[str, str]]:
        """Return into which limits the run ran, and which of them could not be set."""
        if not self._facts["cgroup"] or not self._pid:
            return []
        _, _, before, after, _ = self._facts["cgroup"]
        hits = self._pen.hits() if self._pen else []
        refused = self._pen.refused if self._pen else [name for name, _ in (*before, *after)]
        return [*hits, ("unlimited", _text(b", ".join(refused)))] if refused else hits


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
            raise Refusal(f"{_text(place)}: is not an executable file")
    if seen:
        raise Refusal(f"{_text(seen)}: {os.strerror(errno.EACCES)}; make it executable")
    where = "" if is_path else " in the PATH of the run"
    raise Refusal(f"{_text(name)}: no such program{where}")


def _forget_before(path: bytes) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileNotFoundError:
        return
    except FileExistsError:
        for name in os.listdir(path):
            if name == REPORT or name.startswith(LOG):
                quietly(os.remove, path + b"/" + name)


def _apart(*, certain: bool) -> Apart:
    """Return how the command is set apart from us; not every system can make it a session."""
    return {"setsid": True} if certain else {"setpgroup": 0}


def _refuse_too_long(facts: RunFacts) -> None:
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
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for which, wanted in limits:
        hard = resource.getrlimit(which)[1]
        most = max(wanted, LEAST.get(which, 0))
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (most, most))
    give_up_privileges()


def _stdin(directory: Callable[[], int], source: bytes | None, data: bytes) -> int:
    if not data:
        return os.open(source or os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        descriptor = os.memfd_create("stdin", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(b".stdin", flags, 0o600, dir_fd=directory())
        os.remove(b".stdin", dir_fd=directory())
    write_all(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def write_whole(directory: int, name: bytes, data: bytes) -> None:
    """Give a file this content in one step; a power cut may undo it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(name + b".new", flags, 0o600, dir_fd=directory)
    try:
        write_all(descriptor, data)
    finally:
        os.close(descriptor)
    os.replace(name + b".new", name, src_dir_fd=directory, dst_dir_fd=directory)


def _receive(channel: _socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        try:
            part = channel.recv(min(length - len(data), CHUNK))
        except OSError:
            break
        if not part:
            break
        data += part
    return bytes(data)


def _words(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    where = "" if error.filename is None else f"{_text(os.fsencode(error.filename))}: "
    return f"{where}{error.strerror}"


def _text(name: bytes) -> str:
    return name.decode(errors="replace")


def _number(value: float | None) -> str:
    return "null" if value is None else f"{value:.3f}"
