"""Commands in processes of their own that need not load Horae: each is a fork of one that has.

To start an interpreter and to load Horae costs 0.3 s of CPU for each command, a fork 0.02 s.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from calling import Ending

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PYPROJECT: Final = Path(__file__).parents[1] / "pyproject.toml"
SCRIPTS: Final[dict[str, str]] = tomllib.loads(PYPROJECT.read_text())["project"]["scripts"]
_MOST: Final = 1 << 17  # bytes of a request: words, directory and environment


def run_command(
    *words: str, at: Path, environ: Mapping[str, str], told: str = "", limit: float = 120
) -> Ending:
    """Call a script of Horae by its name in a directory, and return how it ended."""
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(told.encode())
        files[0].seek(0)
        numbers = [each.fileno() for each in files]
        code = run_with(words, at=at, environ=environ, files=numbers, limit=limit)
        for each in files:
            each.seek(0)
        return Ending(code, *(each.read().decode() for each in files[1:]))


def run_with(
    words: Sequence[str],
    *,
    at: Path,
    environ: Mapping[str, str],
    files: Sequence[int],
    limit: float = 120,
) -> int:
    """Call a script with these as its stdin, stdout and stderr; return its exit code."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as wire:
        wire.settimeout(limit)
        wire.connect(_server())
        request = json.dumps([[*words], str(at), dict(environ)]).encode()
        assert len(request) < _MOST
        socket.send_fds(wire, [request], [*files])
        return int(wire.recv(16))


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
                    os.close(heard)
                    os.close(told)
                    return request, files
                waiting[pid] = wire
                for file in files:
                    os.close(file)
    Path(path).unlink()
    Path(path).parent.rmdir()
    return None


def _become(words: list[str], at: str, environ: dict[str, str], *, files: list[int]) -> None:
    """Be the process of a command."""
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
    module, _, function = SCRIPTS[words[0]].partition(":")
    try:
        getattr(importlib.import_module(module), function)()
    except SystemExit as end:
        sys.stdout.flush()
        os._exit(int(end.code or 0))  # to take down what was loaded costs more than the command


if __name__ == "__main__" and (asked := _serve(sys.argv[1])):
    _become(*json.loads(asked[0]), files=asked[1])
