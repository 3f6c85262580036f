"""The options that many commands share, each declared once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import Any, Final, TypeAlias, TypeVar

import click

from horae.cli.output import form_options
from horae.errors import Exit, HoraeError
from horae.files.read import printable, read_plan

_Command: TypeAlias = Callable[..., Any]
_AnyCommand = TypeVar("_AnyCommand", bound=_Command)

# Each takes one value.
VALUED: Final = frozenset({"--root", "--data", "--tz", "--at", "--token-file"})
FLAGS: Final = frozenset({"--json", "--jsonl", "--text", "--table"})


def option(
    spelling: str, text: str, *, name: str = "", **more: Any
) -> Callable[[_AnyCommand], _AnyCommand]:
    """Return an option by its spelling, such as `-n --limit N`; *name* is that of the argument."""
    words = spelling.split()
    flags = [word for word in words if word.startswith("-")]
    more |= {"metavar": " ".join(words[len(flags) :])} if len(words) > len(flags) else {}
    return click.option(*flags, *filter(None, [name]), help=text, **more)


def flag(spelling: str, text: str, *, name: str = "") -> Callable[[_AnyCommand], _AnyCommand]:
    return option(spelling, text, name=name, is_flag=True)


def text_or_file(text: str | None, file: str | None) -> str | None:
    if text is not None and file is not None:
        raise click.UsageError("give the prompt or its file, not both.")
    return read_plan(file).text if file is not None else text


def _default_root() -> str:
    """Return the plan root if none is named: a tenant's by the older variables, else this one."""
    data = os.environ.get("WB_DATA")
    tenant = os.environ.get("HORAE_TENANT") or os.environ.get("WB_TENANT") or "local"
    return os.path.join(data, tenant) if data else "."


class NoRootError(HoraeError, code="no_root", exit_code=Exit.NOT_FOUND):
    def __init__(self, path: str, remedy: str = "") -> None:
        self.path = path
        name = printable(path)
        remedy = remedy or f"`horae init {name}` creates it"
        super().__init__(f"{name}: there is no such directory; {remedy}")


def _refuse_file(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and os.path.isfile(value):
        where = os.path.dirname(value) or "."
        named = where if isinstance(param, click.Argument) else f"--root {where}"
        call = f"{ctx.command_path} {named}"
        raise click.UsageError(f"{value}: is a file; name its directory: {call}", ctx)
    return value


def _refuse_missing(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not os.path.isdir(_refuse_file(ctx, param, value) or ""):
        raise NoRootError(value)
    return value


_root = partial(
    option, "--root DIR", "The plan root, the directory of horae.toml.", default=_default_root
)
root_option = _root(callback=_refuse_missing)
# A ledger elsewhere may be about a plan root that is gone: `Place.of` asks for it.
root_of_data_option = _root(callback=_refuse_file)
_same_root = option("--root DIR", "The plan root; the same as giving DIR.", callback=_refuse_file)
data_option = option("--data DIR", "The data directory; default: .horae in the plan root.")
tz_option = option("--tz ZONE", "The time zone, such as Europe/Berlin.")
at_option = option("--at TIME", "Use this time instead of the current time.")
seconds_option = option("--seconds N", "Stop after N seconds.", type=click.FloatRange(min=0))


def number_option(
    *names: str, most: int, default: int | None = None, text: str = "Show at most N."
) -> Callable[[_AnyCommand], _AnyCommand]:
    form = {"type": click.IntRange(1, most), "show_default": default is not None}
    return option(f"{names[0]} N", text, name="".join(names[1:]), default=default, **form)


def choice_option(
    spelling: str, text: str, values: Iterable[str], *, default: str | None = None, **more: Any
) -> Callable[[_AnyCommand], _AnyCommand]:
    kind, is_shown = click.Choice([*map(str, values)]), default is not None
    return option(spelling, text, type=kind, default=default, show_default=is_shown, **more)


def as_place(command: _Command) -> _Command:
    @wraps(command)
    def called(*args: Any, root: str, data: str | None, **given: Any) -> Any:
        from horae.cli.connection import Place  # loads the ledger

        return command(*args, place=Place.of(root=root, data=data), **given)

    return called


def place_options(command: _Command) -> _Command:
    """Give a command --root and --data, as the argument `place`."""
    return root_of_data_option(data_option(as_place(command)))


def answer_options(command: _Command) -> _Command:
    """Give a command --root and --data, and the forms of its answer, as `place` and `output`."""
    return place_options(form_options(command))


def root_argument(command: _Command) -> _Command:
    """Give a command [DIR] and --root, which mean the same, as the argument `root`."""

    @wraps(command)
    def called(*args: Any, directory: str | None, root: str | None, **given: Any) -> Any:
        if directory is not None and root is not None:
            raise click.UsageError("name the plan root once, as DIR or with --root.")
        return command(*args, root=directory or root or _default_root(), **given)

    named = click.argument("directory", metavar="[DIR]", required=False, callback=_refuse_file)
    return _same_root(named(called))


def place_argument(command: _Command) -> _Command:
    """Give a command [DIR], --root and --data, as the argument `place`."""
    return root_argument(data_option(as_place(command)))


def paths_argument(command: _Command) -> _Command:
    """Give a command paths and --root, which is the same as one directory, as `paths`."""

    @wraps(command)
    def called(*args: Any, paths: tuple[str, ...], root: str | None, **given: Any) -> Any:
        if paths and root is not None:
            raise click.UsageError("name the plans once, as paths or with --root.")
        return command(*args, paths=paths if root is None else (root,), **given)

    return _same_root(click.argument("paths", metavar="[FILE|DIR|-]...", nargs=-1)(called))


def take_shared(args: list[str]) -> tuple[list[str], list[str]]:
    """Return the shared options that stand before a command, and the rest."""
    end = 0
    while end < len(args):
        word, is_given, _ = args[end].partition("=")
        if word in VALUED:
            end += 1 if is_given else 2
        elif args[end] in FLAGS:
            end += 1
        else:
            break
    if end > len(args):
        raise click.UsageError(f"Option '{args[-1]}' requires an argument.")
    return args[:end], args[end:]
