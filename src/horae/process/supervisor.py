"""The supervisor: a process per live run, that starts a command and ends all its processes.

It is forked by the launcher and talks with the engine over one socket, its lifeline: when that
closes, the run is killed.

    engine → supervisor   `o` marshalled facts: what to run
    supervisor → engine   `r` pid, start time: ready, nothing has run   or `x` why not
    engine → supervisor   `g` go   `c` reason: cancel   `t` boot clock: alive until
    supervisor → engine   `e` report: the end; nothing of the run is left. It is a line,
                          and what a filter has put out stands behind it, if that is short

When it has no child any more it takes the next run: half of what a short run costs is the fork of
a supervisor. One that goes says `l` in place of `e`.

It imports what is written in C and ctypes: memory and the time of a fork are paid for each run.
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

from horae.process.output import CHUNK, INDEX, LOG, Log, Stream, Target, quietly, write_all
from horae.process.tree import RunCgroup, give_up_privileges, has_reaped_all, signal_below, started

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from typing import TypedDict

    from horae.process.tree import CgroupOrder

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
        timeout: float | None
        idle: float | None  # seconds without output after which it is ended
        grace: float
        spellings: tuple[bytes, ...]
        kept: tuple[int, int]  # bytes kept of the beginning of the output, and of its end
        address_space: int | None
        cgroup: CgroupOrder | None

    class Apart(TypedDict, total=False):
        setsid: bool
        setpgroup: int

else:
    import _signal as signal

PROTOCOL = 1  # of these messages; an engine can adopt a run whose supervisor has the same
REPORT = b"end.json"
GROUP_PATIENCE = 0.2  # seconds for a killed group to be gone, where that cannot be proved
BURIALS = 1000  # orphans reaped before anything else is checked
RUNS = 1000  # runs per supervisor, which bounds leaks
LONGEST_POLL = 30.0  # the boot clock counts while the machine sleeps, poll does not

LEAST = 64 << 20  # bytes that the supervisor needs: it has the limit of its command

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_DEFAULT_SIGNALS = [each for each in range(1, 32) if each not in {signal.SIGKILL, signal.SIGSTOP}]
_ASK = (signal.SIGTERM, signal.SIGCONT)  # a stopped process gets SIGTERM only after SIGCONT


class Refusal(Exception):  # noqa: N818 (why a run cannot be made)
    pass


def supervise(
    channel: _socket.socket, *, engine: int | None, certain: bool, most: int = RUNS
) -> None:
    """Run one command after another as ordered; nothing is left of one that has ended.

    *engine* is a descriptor that becomes readable when the engine dies. If not *certain*, only the
    command's process group is ended, and there is no second command.
    """
    line, deaths = EngineSocket(channel, engine), Deaths()
    left = most if certain else 1
    while (facts := line.order()) is not None:
        left -= 1
        run = Supervisor(line, facts, deaths, certain=certain)
        try:
            run.prepare()
            _limit(facts["address_space"])  # the same for all later runs
        except (Refusal, OSError, ValueError) as error:
            line.send(b"x", _words(error).encode(errors="replace"))
            return
        line.send(b"r", _struct.pack("<IQ", os.getpid(), started(os.getpid())))
        if run.may_begin() and run.begin():
            run.watch()
        if not run.finish(is_last=not left):
            return
        run.clear()


class EngineSocket:
    __slots__ = ("_heard", "_poll", "alive_until", "channel", "engine")

    def __init__(self, channel: _socket.socket, engine: int | None) -> None:
        self.channel = channel
        self.engine = engine
        self.alive_until: float | None = None
        self._heard = bytearray()
        self._poll = poll_of(channel.fileno(), engine)

    def order(self) -> RunFacts | None:
        # Messages for the last run, sent after its end, are skipped.
        while (said := self.word()) is None or said[0] != b"o":
            if said is None:
                found = [each for each, _ in self._poll.poll()]
                if self.engine in found or not self.hear():
                    return None
        self.alive_until = None
        facts: RunFacts = marshal.loads(said[1])  # noqa: S302 (from our own engine)
        return facts

    def word(self) -> tuple[bytes, bytes] | None:
        return take_frame(self._heard)

    def hear(self) -> bool:
        """Read from the line; False: it is closed or broken."""
        try:
            heard = self.channel.recv(CHUNK, _socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._heard += heard
        return bool(heard)

    def send(self, kind: bytes, data: bytes = b"") -> None:
        quietly(self.channel.sendall, frame(kind, data))


def frame(kind: bytes, data: bytes = b"") -> bytes:
    return kind + _struct.pack("<I", len(data)) + data


def take_frame(heard: bytearray) -> tuple[bytes, bytes] | None:
    """Remove the first frame from the buffer, as kind and data; None if it is incomplete."""
    if len(heard) < 5:
        return None
    end = 5 + _struct.unpack_from("<I", heard, 1)[0]
    if len(heard) < end:
        return None
    found = bytes(heard[:1]), bytes(heard[5:end])
    del heard[:end]
    return found


def poll_of(*descriptors: int | None) -> select.poll:
    poll = select.poll()
    for each in descriptors:
        if each is not None:
            poll.register(each, select.POLLIN)
    return poll


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

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(self.reading)
        os.close(self._writing)


class Supervisor:
    def __init__(
        self, line: EngineSocket, facts: RunFacts, deaths: Deaths, *, certain: bool
    ) -> None:
        self._line = line
        self._facts = facts
        self._deaths = deaths
        self._certain = certain
        self._is_released = False
        self._pid = 0
        self._why = ""  # why the run is ended, unless the command exits by itself
        self._said = ""
        self._kill_at: float | None = None
        self._began_at = self._heard_at = now()
        self._has_exited = False
        self._status: int | None = None
        self._used: resource.struct_rusage | None = None
        self._cgroup: RunCgroup | None = None
        self._stdin = -1
        self._streams: list[Stream | Target] = []
        self._poll = poll_of(line.channel.fileno(), line.engine, deaths.reading)

    # Before the start: errors should occur while nothing has run.

    def prepare(self) -> None:
        facts = self._facts
        os.umask(0o077)
        head, tail = facts["kept"]
        self._log = Log(facts["directory"], head=head, tail=tail)
        if facts["is_reported"]:
            _forget_before(facts["directory"])
            self._log.directory()
        os.chdir(facts["cwd"])
        self._program = find_program(facts["argv"][0], facts["environment"].get(b"PATH", b""))
        self._stdin = _stdin(self._log.directory, facts["source"], facts["stdin"])
        facts["stdin"] = b""
        spellings, target = facts["spellings"], facts["target"]
        self._streams.append(Target(*target) if target else Stream(spellings, has_first=True))
        self._streams.append(Stream(spellings))
        for stream in self._streams:
            self._poll.register(stream.reading, select.POLLIN)
        if facts["cgroup"]:
            self._cgroup = RunCgroup.made(facts["cgroup"], run=facts["run"])

    def may_begin(self) -> bool:
        """Wait for the start; False: it never came, and nothing has run."""
        self._obey()  # it may have come with the order
        while not self._is_released and not self._why:
            self._turn()
        # Check again: the engine may have died after its last message.
        if not self._why:
            for descriptor, _ in self._poll.poll(0):
                self._notice(descriptor)
        until = self._line.alive_until
        if not self._why and until is not None and now() >= until:
            # The start came too late, perhaps from an engine that was frozen meanwhile.
            self._end_at_once("lease")
        return self._is_released and not self._why

    def begin(self) -> bool:
        self._began_at = self._heard_at = now()
        outputs = [stream.writing for stream in self._streams]
        fill = [(os.POSIX_SPAWN_DUP2, each, to) for to, each in enumerate([self._stdin, *outputs])]
        if self._cgroup and not self._cgroup.enter():
            self._cgroup.remove()
            self._cgroup = None
        # Not every system can start the command in a session of its own.
        apart: Apart = {"setsid": True} if self._certain else {"setpgroup": 0}
        try:
            self._pid = os.posix_spawn(
                self._program,
                self._facts["argv"],
                self._facts["environment"],
                file_actions=fill,
                setsigmask=[],
                setsigdef=_DEFAULT_SIGNALS,
                **apart,
            )
        except OSError as error:
            self._why, self._said = "start", f"{_text(self._program)}: {error.strerror}"
            return False
        finally:
            if self._cgroup:
                self._cgroup.leave()
            self._close_ends()
        return True

    # While it runs: one poll for everything.

    def watch(self) -> None:
        limit, idle = self._facts["timeout"], self._facts["idle"]
        while not self._has_exited:
            if limit is not None and not self._why and now() >= self._began_at + limit:
                self._ask_to_end("timeout", "")
            if idle is not None and not self._why and now() >= self._heard_at + idle:
                self._ask_to_end("idle", "")
            if self._kill_at is not None and now() >= self._kill_at:
                return
            self._turn()
        # It exited by itself, although the engine was gone.
        if self._why in {"engine", "lease"}:
            self._why = ""

    def _turn(self) -> None:
        for descriptor, _ in self._poll.poll(self._patience()):
            self._notice(descriptor)
        until = self._line.alive_until
        if until is not None and now() >= until:
            self._end_at_once("lease")

    def _patience(self) -> int:
        is_going = self._pid and not self._why
        limit, idle = (self._facts[each] if is_going else None for each in ("timeout", "idle"))
        ends = [
            self._line.alive_until,
            self._kill_at,
            None if limit is None else self._began_at + limit,
            None if idle is None else self._heard_at + idle,
        ]
        wait = min([LONGEST_POLL, *(each - now() for each in ends if each is not None)])
        return max(0, int(wait * 1000) + 1)

    def _notice(self, descriptor: int) -> None:
        if descriptor == self._line.channel.fileno():
            if self._line.hear():
                self._obey()
                return
            self._poll.unregister(descriptor)
            self._end_at_once("engine")
        elif descriptor == self._line.engine:
            self._poll.unregister(descriptor)
            self._end_at_once("engine")
        elif descriptor == self._deaths.reading:
            self._bury()
        else:
            self._heard_at = now()
            stream = next(each for each in self._streams if each.reading == descriptor)
            if not stream.drain(self._log):
                self._poll.unregister(descriptor)
                stream.close()
            if stream.fault:  # more output than allowed
                self._ask_to_end("cancel", stream.fault)

    def _obey(self) -> None:
        while (said := self._line.word()) is not None:
            kind, data = said
            if kind == b"g":
                self._is_released = True
            elif kind == b"t":
                self._line.alive_until = _struct.unpack("<d", data)[0]
            elif kind == b"c":
                self._ask_to_end("cancel", data.decode(errors="replace"))

    def _bury(self) -> None:
        """Check whether the command has ended, and reap a bounded number of orphans."""
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
                # It is reaped after its group: until then its process id stays taken.
                self._has_exited = True
                return
            os.waitpid(dead.si_pid, 0)
        self._deaths.repeat()  # more of them, but the time limit is checked first

    def _ask_to_end(self, why: str, said: str) -> None:
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
        """Kill at once: no engine waits for the grace period."""
        self._why = self._why or why
        self._kill_at = now()

    def finish(self, *, is_last: bool) -> bool:
        """End the whole tree, store the rest of the output, report; True: ready for another run."""
        if self._pid:
            self._end_tree()
            for stream in self._streams:
                stream.finish(self._log)
        report = self._report().encode()
        if self._cgroup:
            self._cgroup.remove()
        if self._facts["is_reported"]:
            quietly(write_whole, self._log.directory(), REPORT, report)
        # Something of this run would affect the next one.
        is_inside = self._cgroup is not None and self._cgroup.is_inside
        is_last = is_last or is_inside or self._why in {"engine", "lease"}
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
        """Kill until the kernel reports no child: below a subreaper that is proof."""
        if self._cgroup:
            self._cgroup.kill()
        # The group before its leader is reaped: until then its id is not used again.
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
            # Killed processes become our children sooner or later; each may have more.
            quietly(os.waitpid, -1, 0)

    def _reap_command(self, options: int) -> None:
        pid, status, used = os.wait4(self._pid, options)
        if pid:
            self._status, self._used = status, used

    def _report(self) -> str:
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
            "limit": _number(facts["idle" if self._why == "idle" else "timeout"]),
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
        if facts["cgroup"] and self._pid:  # limits exceeded, and those that could not be set
            own, (_, _, before, after, _) = self._cgroup, facts["cgroup"]
            parts |= {name: quoted(words) for name, words in (own.hits() if own else [])}
            refused = own.refused if own else [name for name, _ in (*before, *after)]
            parts |= {"unlimited": quoted(_text(b", ".join(refused)))} if refused else {}
        parts["output"] = str(self._log.total)
        parts["left_out"] = str(self._log.left_out)
        return "{" + ", ".join(f'"{name}": {value}' for name, value in parts.items()) + "}\n"


def now() -> float:
    """Return the seconds of the boot clock, which is never set and includes sleep."""
    return time.clock_gettime(_CLOCK)


def find_program(name: bytes, path: bytes) -> bytes:
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
            if name in {REPORT, INDEX} or name.startswith(LOG):
                quietly(os.remove, path + b"/" + name)


def _limit(address_space: int | None) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if address_space is not None:
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = max(address_space, LEAST)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
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
    """Replace a file's content in one step; a power failure may undo it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(name + b".new", flags, 0o600, dir_fd=directory)
    try:
        write_all(descriptor, data)
    finally:
        os.close(descriptor)
    os.replace(name + b".new", name, src_dir_fd=directory, dst_dir_fd=directory)


def _words(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    where = "" if error.filename is None else f"{_text(os.fsencode(error.filename))}: "
    return f"{where}{error.strerror}"


def _text(name: bytes) -> str:
    return name.decode(errors="replace")


def _number(value: float | None) -> str:
    return "null" if value is None else f"{value:.3f}"
