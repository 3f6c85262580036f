"""Runs a click command and turns every ending into an exit code and one clear line."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from horae.cli.output import echo
from horae.errors import Exit, HoraeError

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(command: click.Command, *, name: str, args: Sequence[str] | None = None) -> int:
    """Run *command* and return its exit code; no ending shows a traceback."""
    try:
        code = command.main(args=args, prog_name=name, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else Exit.OK
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except click.ClickException as error:
        _say_usage(error, name)
        return Exit.USAGE
    except (click.Abort, KeyboardInterrupt):
        echo(f"{name}: interrupted", err=True)
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has seen enough. Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except HoraeError as error:
        caret = getattr(error, "caret", None)  # an expression shows where it is wrong
        echo(f"{name}: {error}" + (f"\n{caret()}" if caret else ""), err=True)
        return error.exit_code
    except RecursionError:
        echo(f"{name}: this plan is nested too deeply to be printed", err=True)
        return Exit.FINDINGS
    except OSError as error:
        echo(f"{name}: {error.strerror or error}", err=True)
        return Exit.TEMPORARY
    except Exception as error:
        if os.environ.get("HORAE_DEBUG"):
            raise
        echo(
            f"{name}: {type(error).__name__}: {error}\n"
            f"{name}: this is a bug in horae; HORAE_DEBUG=1 shows where it happened",
            err=True,
        )
        return Exit.FINDINGS


def _say_usage(error: click.ClickException, name: str) -> None:
    """Print what is wrong with the command line, and where to read how it is right."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        echo(error.format_message(), err=True)  # the whole help: nothing is left to add
        return
    echo(f"{name}: {error.format_message()}", err=True)
    context = getattr(error, "ctx", None)
    if context is not None:
        echo(f"{context.get_usage()}\nTry '{context.command_path} --help'.", err=True)
