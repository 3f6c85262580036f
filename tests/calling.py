"""Calling a command as a person would, and keeping what it says."""

import io
import json
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple
from unittest import mock

import click

from horae.cli.run import run


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
