"""How commands print: tables for people, JSON for programs.

On a terminal a command prints a table; into a pipe, JSON. A list is a JSON array of
objects. What cannot be done is said on stderr, one line each: `horae: what, where,
what to do`, or {"error": {"code", "message", "facts"}} if an option asked for JSON.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click

from horae.errors import HoraeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# What a terminal would obey instead of showing it: control characters, and signs that turn
# the direction of writing. Plans come from other people.
_OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_Command = TypeVar("_Command", bound=Callable[..., Any])


def clean(text: str) -> str:
    r"""Return *text* with nothing in it that a terminal would obey; line ends stay.

    >>> print(clean("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def echo(text: str, *, err: bool = False) -> None:
    """Print text for people."""
    click.echo(clean(text), err=err)


class Form(StrEnum):
    """What stdout gets."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


class Output(NamedTuple):
    """How one call of a command prints."""

    form: Form
    asked: bool  # by an option, so that errors are for a program, too

    @classmethod
    def of(cls, form: str | None) -> Output:
        """Return what was asked for: else a table on a terminal, JSON in a pipe."""
        if form is not None:
            return cls(Form(form), asked=True)
        return cls(Form.TABLE if sys.stdout.isatty() else Form.JSON, asked=False)

    def say(self, error: HoraeError) -> None:
        """Say on stderr what could not be done; the rest goes on."""
        if self.asked and self.form is not Form.TABLE:
            click.echo(json.dumps({"error": error.data()}, ensure_ascii=False), err=True)
        else:
            echo(f"horae: {error}", err=True)


def _tell_errors(command: _Command) -> _Command:
    """Let a command say its errors as JSON if an option asked for JSON."""

    @wraps(command)
    def telling(*args: Any, form: str | None, **options: Any) -> Any:
        try:
            return command(*args, form=form, **options)
        except HoraeError as error:
            output = Output.of(form)
            if not output.asked or output.form is Form.TABLE:
                raise
            output.say(error)
            return error.exit_code

    return cast("_Command", telling)


def form_options(command: _Command) -> _Command:
    """Give a command --json, --jsonl and --table, as the argument `form`; errors follow it."""
    command = _tell_errors(command)
    for name, text in (
        ("table", "Print for people, also into a pipe."),
        ("jsonl", "Print one line of JSON per item."),
        ("json", "Print JSON, also on a terminal."),
    ):
        command = click.option(f"--{name}", "form", flag_value=name, default=None, help=text)(
            command
        )
    return command


def print_json(data: object) -> None:
    """Print data as JSON that people can read, too."""
    click.echo(json.dumps(data, ensure_ascii=False, indent=2))


def print_line(data: object) -> None:
    """Print data as one line of JSON."""
    click.echo(json.dumps(data, ensure_ascii=False, separators=(",", ":")))


def print_answer(output: Output, data: Mapping[str, object], text: str) -> None:
    """Print one answer, for people or for programs."""
    match output.form:
        case Form.TABLE:
            echo(text)
        case Form.JSON:
            print_json(data)
        case Form.JSONL:
            print_line(data)


def print_rows(
    output: Output, rows: Sequence[Mapping[str, object]], table: Callable[[], None]
) -> None:
    """Print a list of answers: as a table for people, else as JSON."""
    match output.form:
        case Form.TABLE:
            table()
        case Form.JSON:
            print_json(rows)
        case Form.JSONL:
            for row in rows:
                print_line(row)
