"""Calling a command as a person would, and keeping what it says."""

import io
import json
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, Final, NamedTuple
from unittest import mock

import click

from horae.cli.run import run

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
