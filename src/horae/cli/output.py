"""How commands print: text for people, JSON for programs.

What cannot be done is said on stderr in the same form, one line each: `horae: what, where, what
to do`, or {"error": {"code", "message", "facts"}}.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import wraps
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from horae.errors import Exit, HoraeError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from horae.org.plan import Diagnostic

# What a terminal would obey instead of showing it: control characters, and signs that turn
# the direction of writing. Plans come from other people.
_OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str) -> str:
    r"""Return *text* with nothing in it that a terminal would obey; line ends stay.

    >>> print(clean("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def json_text(data: object, **form: Any) -> str:
    r"""Return JSON with nothing in it that a terminal would obey.

    >>> print(json_text("a\x9b2J\u202eb"))
    "a\u009b2J\u202eb"
    """
    from msgspec import to_builtins

    # JSON itself escapes no more than the characters below the blank.
    text = json.dumps(to_builtins(data, enc_hook=str), ensure_ascii=False, **form)
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def echo(text: str, *, err: bool = False) -> None:
    click.echo(clean(text), err=err)


class Form(StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


VARIABLE: Final = "HORAE_OUTPUT"
_NAMED: Final = {"text": Form.TABLE, "json": Form.JSON, "jsonl": Form.JSONL}
_OPTIONS: Final = {"--text": Form.TABLE, **{f"--{form}": form for form in Form}}


def usual_form() -> Form:
    """Return the form that HORAE_OUTPUT names; unset or empty, text."""
    value = os.environ.get(VARIABLE, "").strip() or "text"
    if value not in _NAMED:
        said = f"{VARIABLE} is {value!r}; write text, json or jsonl, or leave it unset"
        raise HoraeError(said, code="output", exit_code=Exit.USAGE, value=value)
    return _NAMED[value]


def asked_form(args: Sequence[str]) -> Form:
    """Return the form that a command line asks for, without parsing: its errors have one, too."""
    found = [_OPTIONS[arg] for arg in takewhile(lambda arg: arg != "--", args) if arg in _OPTIONS]
    return found[-1] if found else usual_form()


class Output(NamedTuple):
    form: Form
    is_silent: bool = False  # about problems

    @classmethod
    def of(cls, form: str | None) -> Output:
        return cls(usual_form() if form is None else Form(form))

    @property
    def is_text(self) -> bool:
        return self.form is Form.TABLE

    def say(self, problem: HoraeError | Diagnostic) -> None:
        """Print on stderr what could not be done or is wrong; the rest goes on."""
        if self.is_silent:
            return
        if isinstance(problem, HoraeError) and not self.is_text:
            print_error(problem.data())
        else:
            echo(f"horae: {problem}", err=True)


def form_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command --json, --jsonl and --text, as the argument `output`."""

    @wraps(command)
    def called(*args: Any, form: str | None, **given: Any) -> Any:
        return command(*args, output=Output.of(form), **given)

    for names, form, text in (
        (("--text", "--table"), Form.TABLE, f"Print text, even if {VARIABLE} is set."),
        (("--jsonl",), Form.JSONL, "Print one line of JSON per item."),
        (("--json",), Form.JSON, f"Print JSON, as with {VARIABLE}=json."),
    ):
        made = click.option(*names, "form", flag_value=form.value, default=None, help=text)
        called = made(called)
    return called


def print_error(error: Mapping[str, object], *, kind: str = "error") -> None:
    """Print an error for a program, on stderr; a `notice` does not keep a command from its work."""
    click.echo(json_text({kind: error}), err=True)


def print_json(data: object) -> None:
    click.echo(json_text(data, indent=2))


def print_line(data: object) -> None:
    click.echo(json_text(data, separators=(",", ":")))


def print_answer(output: Output, data: object, text: str | Callable[[], None]) -> None:
    match output.form:
        case Form.TABLE:
            echo(text) if isinstance(text, str) else text()
        case Form.JSON:
            print_json(data)
        case Form.JSONL:
            print_line(data)


def print_rows(output: Output, rows: Sequence[object], text: Callable[[], None]) -> None:
    if output.form is Form.JSONL:
        for row in rows:
            print_line(row)
    else:
        print_answer(output, rows, text)


def print_table(
    names: Iterable[str], rows: Iterable[Iterable[str | Text]], *, empty: str = "", whole: str = ""
) -> None:
    """Print rows for people, or the text for *empty*; the column called *whole* is never cut."""
    from rich.table import Table  # only for people

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, overflow="fold", no_wrap=bool(name) and name == whole)
    for row in rows:
        table.add_row(*(safe(cell) if isinstance(cell, str) else cell for cell in row))
    print_block(table if table.row_count or not empty else safe(empty, style="dim"))


def print_block(block: RenderableType) -> None:
    """Print a block for people, into a pipe without the blanks that fill its lines."""
    screen = console()
    if screen.is_terminal:
        screen.print(block)
        return
    with screen.capture() as captured:
        screen.print(block)
    echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[float], None] | None]:
    """Give a function that shows on a terminal which part is done; None if there is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # only for people
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(title, total=1.0)

    def show(part: float) -> None:
        bar.start()
        bar.update(task, completed=min(part, 1.0))

    try:
        yield show
    finally:
        if bar.live.is_started:  # or it would leave an empty line
            bar.stop()


def safe(text: str, style: str = "") -> Text:
    from rich.text import Text  # only for people

    return Text(clean(text).replace("\n", "\\n"), style=style)


def console() -> Console:
    from rich.console import Console  # only for people

    return Console(width=None if sys.stdout.isatty() else 120, highlight=False)


def runs_text(runs: Sequence[str], *, most: int = 5) -> str:
    more = f" and {len(runs) - most} more" if len(runs) > most else ""
    return f"{len(runs)} run{'s' * (len(runs) != 1)}: {', '.join(runs[:most])}{more}"
