"""`wb`: the spellings of the workbook documents, thin over the same functions.

    wb query F       what is written      wb tangle F      what it resolves to
    wb lint F        what keeps it from running
    wb run F [INPUT...]            run its workflows     wb workflow run F [INPUT]    the same
    wb workflow plan F             what would run

`-` reads standard input. `--json` wraps the answer with its verb and whether it
worked; `--agent` asks for no prompts and no colour, of which there are none here.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from horae import __version__
from horae.cli.output import json_text
from horae.cli.run import run
from horae.errors import Exit, HoraeError
from horae.files.read import decoded, read_plan

if TYPE_CHECKING:
    from collections.abc import Callable


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--json",
    "wrapped",
    is_flag=True,
    help="Wrap the output: {ok, verb, data | error}; ok: the command worked.",
)
@click.option("--agent", is_flag=True, help="No prompts, no colour.")
@click.version_option(__version__, prog_name="wb", message="%(prog)s %(version)s")
@click.pass_context
def wb(ctx: click.Context, *, wrapped: bool, agent: bool) -> None:  # noqa: ARG001 - nothing prompts
    """Query, check and run a plan."""
    ctx.obj = wrapped


_file = click.argument("file")


@wb.command()
@_file
@click.pass_obj
def query(wrapped: bool, file: str) -> int:
    """Show the fields of each headline."""
    from horae.org.query import query

    return _answer("query", file, query, wrapped=wrapped)


@wb.command()
@_file
@click.pass_obj
def tangle(wrapped: bool, file: str) -> int:
    """Show the resolved workflows of a plan."""
    from horae.org.world import tangle

    return _answer("tangle", file, tangle, wrapped=wrapped)


@wb.command()
@_file
@click.pass_obj
def lint(wrapped: bool, file: str) -> int:
    """Show the structural errors of the workflows.

    These are components without a source block, and inputs without a matching output. `horae
    check` finds more.
    """
    from horae.org.world import validate

    return _answer("lint", file, validate, wrapped=wrapped, is_finding=True)


@wb.command("run")
@_file
@click.argument("given", metavar="[INPUT]...", nargs=-1)
@click.pass_obj
def run_(wrapped: bool, file: str, given: tuple[str, ...]) -> int:
    """Run the workflows of a plan and show their records."""
    return _run("run", file, " ".join(given), wrapped=wrapped)


@wb.group()
def workflow() -> None:
    """Run the workflows of a plan, or show what would run."""


@workflow.command("run")
@_file
@click.argument("given", metavar="[INPUT]", default="")
@click.pass_obj
def workflow_run(wrapped: bool, file: str, given: str) -> int:
    """Run the workflows of a plan and show their records."""
    return _run("workflow run", file, given, wrapped=wrapped)


@workflow.command("plan")
@_file
@click.pass_obj
def workflow_plan(wrapped: bool, file: str) -> int:
    """Show what would run, and in which order."""
    from horae.sources.workflows.commands import summaries_of

    return _answer("workflow plan", file, summaries_of, wrapped=wrapped)


def _run(verb: str, file: str, given: str, *, wrapped: bool) -> int:
    from horae.sources.workflows.commands import records_of

    ends: list[int] = []

    def run_text(text: str) -> object:
        records, code = records_of(file, text, given.encode(errors="surrogateescape"))
        ends.append(code)
        return records

    return _answer(verb, file, run_text, wrapped=wrapped) or (ends[0] if ends else Exit.OK)


def _answer(
    verb: str, file: str, give: Callable[[str], object], *, wrapped: bool, is_finding: bool = False
) -> int:
    """Print what *give* says of a file; findings, if there are any, make the exit code 1."""
    try:
        text = decoded("-", sys.stdin.buffer.read()) if file == "-" else read_plan(file).text
        data = give(text)
    except HoraeError as error:
        if not wrapped:
            raise
        facts = {"code": error.code, "message": str(error), "hint": None, "retryable": False}
        _print({"ok": False, "verb": verb, "error": facts})
        return error.exit_code
    _print({"ok": True, "verb": verb, "data": data} if wrapped else data)
    return Exit.FINDINGS if is_finding and data else Exit.OK


def _print(data: object) -> None:
    click.echo(json_text(data, indent=2, sort_keys=True))


def main() -> None:
    sys.exit(run(wb, name="wb"))


if __name__ == "__main__":
    main()
