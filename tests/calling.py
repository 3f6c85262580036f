"""Calling a command as a person would, and keeping what it says."""

import io
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

import click

from horae.cli.run import run
from horae.web import address

HORAE: Final = (sys.executable, "-m", "horae.cli.main")
PATIENCE: Final = 60.0  # seconds for what takes one on a machine that does nothing else


class Ending(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


Call = Callable[..., Ending]


def call_here(command: click.Command, name: str, *args: str, told: str = "") -> Ending:
    """Run a command in this process, where it costs no start of an interpreter."""
    stdin = io.TextIOWrapper(io.BytesIO(told.encode()), "utf-8")
    out, err = io.BytesIO(), io.BytesIO()
    with (
        mock.patch("sys.stdin", stdin),
        redirect_stdout(io.TextIOWrapper(out, "utf-8", write_through=True)),
        redirect_stderr(io.TextIOWrapper(err, "utf-8", write_through=True)),
    ):
        code = run(command, name=name, args=args)
        return Ending(code, out.getvalue().decode(), err.getvalue().decode())


def wait_until(happened: Callable[[], object]) -> None:
    """Return when something has happened."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


class Engine(NamedTuple):
    """An engine in a process of its own."""

    process: subprocess.Popen[bytes]
    log: Path  # what it prints, beside the root


@contextmanager
def engine_up(root: Path, *args: str, **environ: str) -> Iterator[Engine]:
    """Give an engine that has read its plans; end it afterwards if nothing else did."""
    log = root.resolve().with_name(f"{root.resolve().name}.log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*HORAE, "up", str(root), *args],
            stdout=output,
            stderr=output,
            env={**os.environ, "HORAE_LISTEN": "127.0.0.1:0", **environ},
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
