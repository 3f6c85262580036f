"""`stop`: ends the engine of a plan root after its runs have ended."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from datetime import timedelta
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

import click

from horae.cli.client import Far
from horae.cli.connection import Place, read
from horae.cli.options import data_option, root_argument
from horae.cli.output import Form, Output, echo, form_options, print_answer
from horae.config import load
from horae.core.receipt import Status
from horae.errors import Exit, HoraeError
from horae.store.lock import holder_of
from horae.timing.duration import format_duration, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK: Final = 0.2  # seconds between two checks
_TOLD: Final = 5.0  # seconds after which progress is printed again
_MARGIN: Final = timedelta(seconds=30)  # beyond `run.drain`, for an engine to end its runs
_SHOWN: Final = 5  # runs that progress names
_GOING: Final = (Status.STARTING, Status.RUNNING)


class NotStoppedError(HoraeError):
    """An engine that is still running after the time limit."""

    code = "not_stopped"
    exit_code = Exit.TIMED_OUT

    def __init__(self, pid: int | None, within: timedelta, runs: list[str]) -> None:
        self.pid = pid
        self.runs = runs
        what = f", with {_runs_text(runs)}" if runs else ""
        super().__init__(
            f"the engine (process {pid}) is still running after {format_duration(within)}{what}; "
            "it ends its runs after the time in the setting run.drain: run `horae stop` again to "
            f"wait longer, or end the engine and its runs with `kill -9 {pid}`"
        )


class CannotStopError(HoraeError):
    """An engine that this user cannot signal."""

    code = "cannot_stop"
    exit_code = Exit.UNAUTHORISED

    def __init__(self, directory: str, reason: str) -> None:
        self.directory = directory
        self.reason = reason
        super().__init__(f"{directory}: {reason}")


@click.command()
@root_argument
@click.option(
    "--timeout",
    metavar="LENGTH",
    help="How long to wait, such as 2m; default: the setting run.drain plus 30s.",
)
@click.option("--no-wait", is_flag=True, help="Return at once; the engine stops by itself.")
@data_option
@form_options
def stop(
    *, root: str, timeout: str | None, no_wait: bool, data: str | None, form: str | None
) -> int:
    """Stop the engine; its runs get time to end.

    The engine starts no more runs and waits for the current ones to end, at most for the time
    in the setting run.drain; then it ends them. This command waits until the engine has ended
    and shows which runs it waits for. Exit code 124: the engine was still running after --timeout.
    """
    output = Output.of(form)
    place = Place.of(root=root, data=data)
    drain = load(root, flags={"data": data}).run_drain
    within = drain + _MARGIN if timeout is None else parse_duration(timeout)
    say = _teller(within) if output.form is Form.TABLE else _quiet
    began = monotonic()
    pid = end_engine(place, within=within, waits=not no_wait, say=say)
    is_over = pid is not None and not no_wait
    told = {"stopped": is_over, "pid": pid, "seconds": round(monotonic() - began, 1)}
    if pid is None:
        text = f"no engine is running in {place.directory}"
    else:
        text = f"the engine (process {pid}) {'has stopped' if is_over else 'is stopping'}"
    print_answer(output, told, text)
    return Exit.OK


def end_engine(
    place: Place, *, within: timedelta, waits: bool, say: Callable[[list[str]], None]
) -> int | None:
    """Stop the engine of a data directory, wait for its end, and return its process.

    A process that has the lock and does not answer may be an engine that is starting, or that
    is stopping already; it gets the signal once it answers. None: there is no engine.
    """
    asked = seen = None
    ends_at = monotonic() + within.total_seconds()
    while True:
        holder = holder_of(place.directory)
        if holder is None or asked not in {None, holder.pid}:  # another one may be started
            return asked or seen
        seen = holder.pid
        if asked is None and Far(place.directory, pid=holder.pid).answers():
            _signal(place, holder.pid)
            asked = holder.pid
        if not waits:
            return asked
        runs = _runs(place)
        if monotonic() >= ends_at:
            raise NotStoppedError(holder.pid, within, runs)
        say(runs)
        sleep(LOOK)


def _signal(place: Place, pid: int | None) -> None:
    """Ask an engine to stop."""
    if not pid:
        reason = "the engine runs in another container or on another machine"
        raise CannotStopError(str(place.directory), reason)
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError:
        reason = (
            f"the engine (process {pid}) belongs to another user; stop it as that user, "
            "or with `systemctl stop` if it is a service"
        )
        raise CannotStopError(str(place.directory), reason) from None


def _quiet(_: list[str]) -> None:
    """Print nothing."""


def _runs(place: Place) -> list[str]:
    """Return the titles of what runs; none if the ledger is just being closed."""
    with suppress(HoraeError):  # it is closed: nothing runs any more
        found = read(place, lambda service: service.history(statuses=_GOING, limit=100))
        return [line.title for line in found.lines]
    return []


def _teller(within: timedelta) -> Callable[[list[str]], None]:
    """Return a function that prints progress when it changes, and every few seconds."""
    began = told_at = monotonic()
    told: list[str] | None = None

    def say(runs: list[str]) -> None:
        nonlocal told_at, told
        now = monotonic()
        if runs == told and now - told_at < _TOLD:
            return
        told, told_at = runs, now
        waited = format_duration(timedelta(seconds=int(now - began)))
        what = _runs_text(runs) if runs else "the engine"
        echo(f"horae: waiting for {what} ({waited} of {format_duration(within)})", err=True)

    return say


def _runs_text(runs: list[str]) -> str:
    """Return how many runs there are, and the first titles.

    >>> _runs_text(["Backup"])
    '1 run: Backup'
    """
    more = f" and {len(runs) - _SHOWN} more" if len(runs) > _SHOWN else ""
    return f"{len(runs)} run{'s' * (len(runs) != 1)}: {', '.join(runs[:_SHOWN])}{more}"
