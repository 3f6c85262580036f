"""Commands in processes of their own that need not load Horae: each is a fork of one that has.

To start an interpreter and to load Horae costs 0.3 s of CPU for a command and 0.5 s for an engine,
a fork 0.02 s. Under `make torture` each is started as a person starts it.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias

from calling import Ending
from horae.web import address
from scale import SCALE
from waiting import PATIENCE, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PYPROJECT: Final = Path(__file__).parents[1] / "pyproject.toml"
HORAE: Final = (sys.executable, "-m", "horae.cli.main")
SCRIPTS: Final[dict[str, str]] = tomllib.loads(PYPROJECT.read_text())["project"]["scripts"]
_MOST: Final = 1 << 17  # bytes of a request: words, directory and environment


class ForkedCommand:
    """A command that goes on, with as much of `subprocess.Popen` as tests need."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire
        self.pid = int(wire.recv(16))
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._wire.settimeout(timeout)
            try:
                self.returncode = int(self._wire.recv(16))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0) from None
            self._wire.close()
        return self.returncode

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, what: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, what)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Command: TypeAlias = ForkedCommand | subprocess.Popen[bytes]


def run_command(
    *words: str,
    at: Path | None = None,
    environ: Mapping[str, str] | None = None,
    told: str = "",
    limit: float = 120,
) -> Ending:
    """Call a script of Horae by its name, here or elsewhere, and return how it ended."""
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(told.encode())
        files[0].seek(0)
        numbers = [each.fileno() for each in files]
        code = start_command(words, at=at, environ=environ, files=numbers).wait(limit)
        for each in files:
            each.seek(0)
        return Ending(code, *(each.read().decode() for each in files[1:]))


def start_command(
    words: Sequence[object],
    *,
    files: Sequence[int],
    at: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Command:
    """Start a script of Horae, or a program in a file, with these as stdin, stdout and stderr."""
    name, at, environ = str(words[0]), at or Path.cwd(), environ or os.environ
    if SCALE >= 1 or "LD_PRELOAD" in environ:
        program = Path(sys.executable).with_name(name) if name in SCRIPTS else name
        stdin, stdout, stderr = files
        return subprocess.Popen(
            [sys.executable, program, *map(str, words[1:])],
            cwd=at,
            env=environ,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    wire = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    wire.connect(_server())
    request = json.dumps([[*map(str, words)], str(at), dict(environ)]).encode()
    assert len(request) < _MOST
    socket.send_fds(wire, [request], [*files])
    return ForkedCommand(wire)


class PipedCommand:
    """A command that is read from while it goes on, with as much of `Popen` as tests need."""

    def __init__(
        self,
        *words: object,
        at: Path | None = None,
        environ: Mapping[str, str] | None = None,
        stdin: int | None = None,
    ) -> None:
        pipes = [os.pipe() for _ in range(2)]
        self.stdout, self.stderr = (os.fdopen(reading) for reading, _ in pipes)
        with Path(os.devnull).open() as nothing:
            files = (nothing.fileno() if stdin is None else stdin, *(end for _, end in pipes))
            self._process = start_command(words, at=at, environ=environ, files=files)
        for _, end in pipes:
            os.close(end)
        self.pid, self.poll, self.wait = self._process.pid, self._process.poll, self._process.wait
        self.send_signal, self.kill = self._process.send_signal, self._process.kill
        self.terminate = self._process.terminate

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return what was not yet read, once the command has ended."""
        if self.stdout.closed:
            return "", ""
        with self.stdout, self.stderr, ThreadPoolExecutor(1) as second:
            err = second.submit(self.stderr.read)
            out = self.stdout.read()
            self.wait(timeout)
            return out, err.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.communicate()


class Engine(NamedTuple):
    """An engine in a process of its own."""

    process: Command
    log: Path  # what it prints, beside the root


@contextmanager
def engine_up(root: Path, *args: str, **environ: str) -> Iterator[Engine]:
    """Give an engine that has read its plans; end it afterwards if nothing else did."""
    log = root.resolve().with_name(f"{root.resolve().name}.log")
    with log.open("wb") as output, Path(os.devnull).open() as nothing:
        process = start_command(
            ("horae", "up", str(root), *args),
            environ={**os.environ, "HORAE_LISTEN": "127.0.0.1:0", **environ},
            files=(nothing.fileno(), output.fileno(), output.fileno()),
        )

    def is_ready() -> bool:
        assert process.poll() is None, log.read_text()
        return is_healthy(root / ".horae")

    try:
        wait_until(is_ready)
        yield Engine(process, log)
    finally:
        process.terminate()
        assert process.wait(PATIENCE) == 0, log.read_text()


def is_healthy(data: Path) -> bool:
    """Tell whether an engine answers at a data directory and has decided once."""
    try:
        with socket.socket(socket.AF_UNIX) as wire, address(data) as where:
            wire.settimeout(5)
            wire.connect(where)
            wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return b" 200 " in wire.recv(64)
    except OSError:
        return False


@cache
def _server() -> str:
    """Return where the process listens that has loaded Horae; it ends with this one."""
    place = tempfile.mkdtemp(prefix="horae-commands-")
    process = subprocess.Popen(
        [sys.executable, __file__, f"{place}/socket"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    atexit.register(process.communicate)
    return f"{place}/socket"


def _serve(path: str) -> tuple[bytes, list[int]] | None:
    """Fork for each request and answer it with the exit code; a fork returns its request."""
    import horae

    for module in pkgutil.walk_packages(horae.__path__, "horae."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    gc.freeze()  # a collection in a fork would copy every page that it looks at
    heard, told = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(told)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    waiting: dict[int, socket.socket] = {}
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
        selectors.DefaultSelector() as selector,
    ):
        listener.bind(path)
        listener.listen(64)
        for each in (listener, heard, sys.stdin):
            selector.register(each, selectors.EVENT_READ)
        print("ready", flush=True)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if sys.stdin in ready:
                break
            if heard in ready:
                os.read(heard, 4096)
            while waiting and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                with waiting.pop(ended[0]) as wire, suppress(OSError):  # who asked may be gone
                    wire.send(b"%d" % os.waitstatus_to_exitcode(ended[1]))
            if listener in ready:
                wire, _ = listener.accept()
                request, files, _, _ = socket.recv_fds(wire, _MOST, 3)
                if (pid := os.fork()) == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    # Ignored in what a shell starts in the background.
                    signal.signal(signal.SIGINT, signal.default_int_handler)
                    os.close(heard)
                    os.close(told)
                    return request, files
                wire.send(b"%d" % pid)
                waiting[pid] = wire
                for file in files:
                    os.close(file)
    Path(path).unlink()
    Path(path).parent.rmdir()
    return None


def _become(words: list[str], at: str, environ: dict[str, str], *, files: list[int]) -> None:
    """Be the process of a command."""
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, max(files) + 1)
    os.chdir(at)
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        errors = "backslashreplace" if name == "stderr" else "surrogateescape"
        mode = "w" if number else "r"
        text: Any = open(number, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, text)
    sys.argv = words
    script = Path(sys.executable).with_name(words[0]) if words[0] in SCRIPTS else words[0]
    sys.orig_argv = [
        sys.executable,
        str(script),
        *words[1:],
    ]  # what an engine that restarts executes
    try:
        if words[0] in SCRIPTS:
            module, _, function = SCRIPTS[words[0]].partition(":")
            getattr(importlib.import_module(module), function)()
        else:
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        sys.stdout.flush()
        os._exit(int(end.code or 0))  # to take down what was loaded costs more than the command


if __name__ == "__main__" and (asked := _serve(sys.argv[1])):
    _become(*json.loads(asked[0]), files=asked[1])
