"""The launcher: one long-lived small process that forks the supervisors of runs, cheaply.

    engine → launcher   `r` and a descriptor: a supervisor for this socket
                        `s` pid: nothing of this supervisor may be left; answered with `s` pid

It knows nothing of their runs. The engine's end is in `processes`.
"""

from __future__ import annotations

import _socket
import _struct
import gc
import marshal
import os
import resource
import select
import sys

from horae.process.output import HEAD, LOG, TAIL, quietly
from horae.process.supervisor import REPORT, Deaths, frame, now, poll_of, supervise
from horae.process.tree import become_subreaper, signal_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

REHEARSALS = 10  # after eight calls the interpreter has specialised a function
GIVEN = resource.getrlimit(resource.RLIMIT_NOFILE)[0]  # open files allowed at the start
LEEWAY = 1.5  # seconds for supervisors to end after the death of the engine

PROGRAM = (
    "import sys; sys.path.append(sys.argv[1]);"
    " from horae.process.launcher import limit_descriptors, main;"
    " limit_descriptors(int(sys.argv[3])); main(sys.argv[2], *map(int, sys.argv[4:]))"
)
_CLOSE_ON_EXEC = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)
_MANY = 1 << 16  # descriptors, more than an engine needs
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def allow_descriptors() -> None:
    """Raise the limit of open files of this process; its runs keep the original limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MANY if hard == resource.RLIM_INFINITY else min(hard, _MANY)
    if soft != resource.RLIM_INFINITY and soft < most:
        quietly(resource.setrlimit, resource.RLIMIT_NOFILE, (most, hard))


def limit_descriptors(most: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 < most < soft:
        quietly(resource.setrlimit, resource.RLIMIT_NOFILE, (most, hard))


def main(directory: str, control: int, lock: int, engine: int, certain: int) -> None:
    for descriptor in (control, lock):
        os.set_inheritable(descriptor, False)
    for each in _IGNORED:
        # A signal to the group or cgroup is for the engine, which closes the socket when done.
        signal.signal(each, signal.SIG_IGN)
    quietly(rehearse, os.fsencode(directory) + b"/rehearsal", certain=bool(certain))
    program = LauncherProcess(control, engine, certain=bool(certain))
    gc.collect()
    gc.disable()
    gc.freeze()  # a collection in a supervisor would copy every page that it visits
    program.run()


def rehearse(directory: bytes, *, certain: bool) -> None:
    """Run a few supervisors once, so that later ones share the code and memory that they need."""
    before = set(os.listdir("/dev/fd"))
    facts = {
        "run": 0, "argv": [b"echo", b"rehearsed"], "environment": {b"PATH": b"/bin:/usr/bin"},
        "cwd": b"/", "directory": directory, "stdin": b"", "source": None, "target": None,
        "is_reported": True, "timeout": 10.0, "idle": None, "grace": 0.0,
        "spellings": (b"rehearsal",), "address_space": None, "kept": (HEAD, TAIL), "cgroup": None,
    }  # fmt: skip
    order = marshal.dumps(facts)
    for _ in range(REHEARSALS):
        ours, theirs = _socket.socketpair()
        ours.send(frame(b"o", order) + frame(b"g"))
        supervise(theirs, engine=None, certain=certain, most=1)
        ours.close()
        theirs.close()
    signal.set_wakeup_fd(-1)
    for number in set(os.listdir("/dev/fd")) - before:
        quietly(os.close, int(number))
    for name in (LOG, REPORT):
        quietly(os.remove, directory + b"/" + name)
    quietly(os.rmdir, directory)


class LauncherProcess:
    def __init__(self, control: int, engine: int, *, certain: bool) -> None:
        self._control = _socket.socket(fileno=control)
        self._certain = certain
        self._engine: int | None = None
        self._supervisors: set[int] = set()
        self._asked: set[int] = set()  # dead supervisors that the engine asks about
        self._has_strays = False
        self._dies_at: float | None = None

        self._deaths = Deaths()
        self._poll = poll_of(control, self._deaths.reading)
        if certain:
            become_subreaper()
            try:
                self._engine = os.pidfd_open(engine)
            except ProcessLookupError:
                sys.exit(1)  # it died during the start
            self._poll.register(self._engine, select.POLLIN)
        if os.getppid() != engine:
            sys.exit(1)  # it died during the start

    def run(self) -> None:
        while True:
            wait = None
            if self._has_strays or self._asked:
                wait = 5
            elif self._dies_at is not None:
                wait = max(20, int((self._dies_at - now()) * 1000) + 1)
            for descriptor, _ in self._poll.poll(wait):
                if descriptor == self._control.fileno():
                    self._listen()
                elif descriptor == self._deaths.reading:
                    self._deaths.hear()
                else:
                    self._hang_up()
            is_alone = self._reap()
            if self._has_strays or self._asked:
                self._sweep()
            if self._dies_at is not None:
                if is_alone:
                    return
                if now() >= self._dies_at:  # kill the remaining supervisors
                    for pid in self._supervisors:
                        os.kill(pid, signal.SIGKILL)
                    self._has_strays = True

    def _listen(self) -> None:
        try:
            data, rights, _, _ = self._control.recvmsg(1, _socket.CMSG_SPACE(4), _CLOSE_ON_EXEC)
        except OSError:
            data, rights = b"", []
        if data == b"r" and rights:
            self._fork(_struct.unpack("i", rights[0][2][:4])[0])
        elif data == b"s":
            number = self._control.recv(4, _socket.MSG_WAITALL)
            self._asked.add(_struct.unpack("<I", number)[0])
        elif not data:
            self._hang_up()

    def _fork(self, descriptor: int) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            channel = _socket.socket(fileno=descriptor)
            why = f"cannot start a process: {error.strerror}".encode()
            quietly(channel.send, frame(b"x", why))
            channel.close()
            return
        if pid:
            self._supervisors.add(pid)
            os.close(descriptor)
            return
        code = 1
        try:
            self._deaths.close()
            self._control.close()
            os.set_inheritable(descriptor, False)
            os.setsid()
            if self._certain:
                become_subreaper()
            channel = _socket.socket(fileno=descriptor)
            supervise(channel, engine=self._engine, certain=self._certain)
            code = 0
        finally:
            if code:
                sys.excepthook(*sys.exc_info())
            os._exit(code)

    def _reap(self) -> bool:
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return False
                if pid in self._supervisors:
                    self._supervisors.remove(pid)
                    # A supervisor that exited normally has left nothing.
                    self._has_strays |= bool(status)
        except ChildProcessError:
            return True

    def _sweep(self) -> None:
        """Kill orphans, and answer for dead supervisors that have left nothing more."""
        count = 0
        if self._certain:
            count = signal_below(os.getpid(), (signal.SIGKILL,), spare=self._supervisors)
        self._has_strays = bool(count)
        if count:
            return
        for pid in self._asked - self._supervisors:
            self._asked.remove(pid)
            try:
                self._control.send(b"s" + _struct.pack("<I", pid))
            except OSError:
                return

    def _hang_up(self) -> None:
        self._poll = poll_of(self._deaths.reading)
        if self._dies_at is None:
            self._dies_at = now() + LEEWAY
