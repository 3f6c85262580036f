"""Runs a click command and turns every ending into an exit code and one clear line."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import click

from horae.cli.output import Form, asked_form, echo, print_error
from horae.errors import Exit, HoraeError
from horae.files.read import in_words, printable

# Package that not every installation has -> the extra that brings it.
_EXTRAS: Final = {"psycopg": "postgres", "pgqueuer": "postgres"}
# What click says of an argument that is not a number -> what it is not.
_NUMBERS: Final = {"integer": "a whole number", "float": "a number"}


def run(command: click.Command, *, name: str, args: Sequence[str] | None = None) -> int:
    """Run *command* and return its exit code; no ending shows a traceback."""
    speaker = _Speaker(name, Form.TABLE)
    try:
        speaker = _Speaker(name, asked_form(sys.argv[1:] if args is None else args))
        logging.lastResort = _WarningHandler(speaker)
        code = command.main(args=args, prog_name=name, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else Exit.OK
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except click.ClickException as error:
        speaker.say_usage(error)
        return Exit.USAGE
    except (click.Abort, KeyboardInterrupt):
        speaker.say("interrupted", "interrupted")
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has seen enough. Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except HoraeError as error:
        if speaker.form is not Form.TABLE:
            print_error(error.data())
        else:
            caret = getattr(error, "caret", None)
            echo(f"{name}: {error}" + (f"\n{caret()}" if caret else ""), err=True)
        return error.exit_code
    except RecursionError:
        speaker.say("too_deep", "this plan is nested too deeply to be printed")
        return Exit.FINDINGS
    except OSError as error:
        where = f"{printable(os.fsdecode(error.filename))}: " if error.filename else ""
        speaker.say("system", f"{where}{in_words(error)}")
        return Exit.TEMPORARY
    except Exception as error:  # said on stderr, whatever it is
        if isinstance(error, ModuleNotFoundError) and error.name in _EXTRAS:
            install = f"`pip install '.[{_EXTRAS[error.name]}]'` in its clone"
            extra = f"install Horae with its extra: {install}"
            speaker.say("missing_extra", f"{error.name} is not installed; {extra}")
            return Exit.FINDINGS
        if os.environ.get("HORAE_DEBUG"):
            raise
        where = "this is a bug in horae; HORAE_DEBUG=1 shows where it happened"
        speaker.say("bug", f"{type(error).__name__}: {error}", where)
        return Exit.FINDINGS


class _Speaker(NamedTuple):
    name: str
    form: Form

    def say(self, code: str, *lines: str, kind: str = "error") -> None:
        if self.form is not Form.TABLE:
            print_error({"code": code, "message": "; ".join(lines), "facts": {}}, kind=kind)
            return
        for line in lines:
            echo(f"{self.name}: {line}", err=True)

    def say_usage(self, error: click.ClickException) -> None:
        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            echo(error.format_message(), err=True)  # the whole help: nothing is left to add
            return
        words = error.format_message().replace("\n\t", " ")
        for kind, name in _NUMBERS.items():  # click calls a bounded number a range
            for ending in (f"is not a valid {kind} range.", f"is not a valid {kind}."):
                words = words.replace(ending, f"is not {name}.")
        parameter, context = getattr(error, "param", None), getattr(error, "ctx", None)
        if parameter is not None and parameter.name == "receipt":
            is_approval = context is not None and " approval " in context.command_path
            listing = "approval list" if is_approval else "history"
            meant = f"is not the number of a receipt; `horae {listing}` lists the receipts."
            words = words.replace("is not a whole number.", meant)
        self.say("usage", words)
        if context is not None and self.form is Form.TABLE:
            echo(f"{context.get_usage()}\nTry '{context.command_path} --help'.", err=True)


class _WarningHandler(logging.Handler):
    """Prints warnings that no handler of a log takes as messages of the program."""

    def __init__(self, speaker: _Speaker) -> None:
        super().__init__(logging.WARNING)
        self._speaker = speaker

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # nobody reads stderr
            self._speaker.say("warning", record.getMessage(), kind="notice")
