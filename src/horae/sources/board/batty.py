"""`batty`: the spellings of the document on scheduled tasks, over the functions of `task`.

An error is `Error: what`, with its cause below, and the exit code is 1; for a command line that
cannot be read it is 2, for a number that several files have 6.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from horae import __version__
from horae.cli.connection import record_edits
from horae.cli.options import flag, option
from horae.cli.output import clean, echo
from horae.cli.run import run
from horae.core.clock import SystemClock
from horae.errors import Exit, HoraeError
from horae.sources.board import commands
from horae.sources.board.rules import STATUSES, summary
from horae.sources.board.tasks import Card, TaskAmbiguousError

_id = click.argument("task_id", metavar="<TASK_ID>", type=commands.task_number)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="batty", message="%(prog)s %(version)s")
def batty() -> None:
    """Schedule the tasks of a board."""


@batty.group()
def task() -> None:
    """Schedule, move and assign a task."""


@task.command()
@_id
@option("--at <AT>", "Scheduled datetime in RFC3339 format")
@option("--cron <CRON>", "Cron expression (e.g. '0 9 * * *')")
@flag("--clear", "Clear both scheduled_for and cron_schedule")
def schedule(task_id: int, **given: Any) -> None:
    """Schedule a task, make it recur, or clear both."""
    _tell(commands.schedule_task, task_id, **given)


@task.command()
@_id
@click.argument("state", metavar="<STATE>", type=commands.StatusChoice(STATUSES))
def transition(task_id: int, **given: Any) -> None:
    """Move a task to another status."""
    _tell(commands.move_task, task_id, **given)


@task.command()
@_id
@option("--execution-owner <NAME>", "The owner of the task; '' removes it")
@option("--review-owner <NAME>", "The reviewer of the task; '' removes it")
def assign(task_id: int, **owners: str | None) -> None:
    """Assign the owner and the reviewer of a task."""
    _tell(commands.assign_task, task_id, **owners)


@batty.group()
def board() -> None:
    """List and count the tasks of a board."""


@board.command("list")
@option("--status <STATUS>", "Only tasks of this status")
def list_(*, status: str | None) -> None:
    """List the tasks with their blocks and schedules."""
    cards = commands.board_at(_root()).read()
    echo(commands.task_lines(commands.list_rows(cards, status=status, now=SystemClock().now())))
    for problem in cards.problems[1:]:
        click.echo(f"Error: {clean(str(problem))}", err=True)
    if cards.problems:
        raise cards.problems[0]


@board.command("summary")
def summary_() -> None:
    """Count the tasks of each status."""
    echo(commands.summary_table(summary(commands.board_at(_root()).read().tasks)))


def project_root(here: Path) -> Path:
    """Return the top of the repository (for a linked worktree, the main one); else *here*."""
    for folder in (here, *here.parents):
        mark = folder / ".git"
        if mark.is_dir():
            return folder
        if mark.is_file():
            common = Path(mark.read_text(encoding="utf-8").removeprefix("gitdir:").strip())
            is_linked = common.parent.name == "worktrees"
            return common.parent.parent.parent if is_linked else folder
    return here


def tell(args: Sequence[str] | None = None) -> int:
    try:
        batty.main(args=args, prog_name="batty", standalone_mode=False)
    except HoraeError as error:
        click.echo(f"Error: {clean(str(getattr(error, 'what', error)))}", err=True)
        if cause := getattr(error, "cause", ""):
            click.echo(f"\nCaused by:\n    {clean(cause)}", err=True)
        return error.exit_code if isinstance(error, TaskAmbiguousError) else Exit.FINDINGS
    except (click.ClickException, click.Abort, click.exceptions.Exit):
        return run(batty, name="batty", args=args)  # formats the error like every other command
    return Exit.OK


def _root() -> str:
    here = Path.cwd()
    root = project_root(here)
    return "." if root == here else str(root)


def _tell(change: Callable[..., tuple[Card, str]], task_id: int, **given: Any) -> None:
    root = _root()
    card, words = change(commands.board_at(root), task_id, **given)
    record_edits(root, [(card.path, words)])
    echo(words)


def main() -> None:
    sys.exit(tell())


if __name__ == "__main__":
    main()
