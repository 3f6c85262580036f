"""`wb`: the spellings of the workbook documents, thin over the same functions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Final

import click

from horae import __version__
from horae.cli import options, output
from horae.cli.run import run
from horae.errors import Exit, HoraeError
from horae.files.read import decoded, read_plan


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@options.flag(
    "--json", "Wrap the output: {ok, verb, data | error}; ok: the command worked.", name="wrapped"
)
@options.flag("--agent", "No prompts, no colour.")
@click.version_option(__version__, prog_name="wb", message="%(prog)s %(version)s")
@click.pass_context
def wb(ctx: click.Context, *, wrapped: bool, agent: bool) -> None:  # noqa: ARG001 - nothing prompts
    """Query, check and run a plan."""
    ctx.obj = wrapped


_file = click.argument("file")


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


_PLAN_HELP: Final = "Show what would run, and in which order."
# Verb -> the function of a text that answers it, and its help.
_VERBS: Final = {
    "query": ("horae.org.document:query", "Show the fields of each headline."),
    "tangle": ("horae.org.world:tangle", "Show the resolved workflows of a plan."),
    "lint": (
        "horae.org.world:validate",
        """Show the structural errors of the workflows.

        These are components without a source block, and inputs without a matching output. `horae
        check` finds more.
        """,
    ),
    "workflow plan": ("horae.sources.workflows.record:summaries_of", _PLAN_HELP),
}


def _add_verb(verb: str, place: str, text: str) -> None:
    group = workflow if verb.startswith("workflow ") else wb

    @group.command(verb.rpartition(" ")[2], help=text)
    @_file
    @click.pass_obj
    def answer(wrapped: bool, file: str) -> int:
        def give(text: str) -> tuple[object, int]:
            module, _, name = place.partition(":")
            data = getattr(import_module(module), name)(text)
            return data, Exit.FINDINGS if verb == "lint" and data else Exit.OK

        return _answer(verb, file, give, wrapped=wrapped)


for _verb, _row in _VERBS.items():
    _add_verb(_verb, *_row)


def _run(verb: str, file: str, given: str, *, wrapped: bool) -> int:
    from horae.sources.workflows.commands import records_of

    data = given.encode(errors="surrogateescape")
    return _answer(verb, file, lambda text: records_of(file, text, data), wrapped=wrapped)


def _answer(
    verb: str, file: str, give: Callable[[str], tuple[object, int]], *, wrapped: bool
) -> int:
    try:
        text = decoded("-", sys.stdin.buffer.read()) if file == "-" else read_plan(file).text
        data, code = give(text)
        shown = {"ok": True, "verb": verb, "data": data} if wrapped else data
    except HoraeError as error:
        if not wrapped:
            raise
        facts = {"code": error.code, "message": str(error), "hint": None, "retryable": False}
        shown, code = {"ok": False, "verb": verb, "error": facts}, error.exit_code
    click.echo(output.json_text(shown, indent=2, sort_keys=True))
    return code


def main() -> None:
    sys.exit(run(wb, name="wb"))


if __name__ == "__main__":
    main()
