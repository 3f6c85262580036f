"""`stop`: ends the engine of a plan root after its runs have ended."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from datetime import timedelta
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

import click

from horae.cli.desk import Place, engine_at, read
from horae.cli.options import data_option, root_argument
from horae.cli.output import Form, Output, echo, form_options, print_answer
from horae.config import load
from horae.errors import Exit, HoraeError
from horae.rules.misfire import Status
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

    def __init__(self, pid: int, within: timedelta, runs: list[str]) -> None:
        self.pid = pid
        self.runs = runs
        what = f", with {_runs_text(runs)}" if runs else ""
        super().__init__(
            f"the engine (process {pid}) is still stopping after {format_duration(within)}{what}; "
            "run `horae stop` again to wait longer, or end runs with `horae cancel`"
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
    metavar="TIME",
    help="How long to wait, such as 2m; default: the setting run.drain and 30s.",
)
@click.option("--no-wait", is_flag=True, help="Return at once; the engine stops by itself.")
@data_option
@form_options
def stop(
    *, root: str, timeout: str | None, no_wait: bool, data: str | None, form: str | None
) -> int:
    """Stop the engine after its runs have ended.

    The engine starts nothing more and waits for its runs, at most as long as the setting
    run.drain says; then it ends them. This command waits until the engine has ended and shows
    what it is waiting for. Exit code 124: the engine was still running after --timeout.
    """
    output = Output.of(form)
    place = Place.of(root=root, data=data)
    drain = load(root, flags={"data": data}).run_drain
    within = drain + _MARGIN if timeout is None else parse_duration(timeout)
    began = monotonic()
    pid = None if holder_of(place.directory) is None else _signal(place)
    if pid is None:
        told = {"stopped": False, "pid": None, "seconds": 0.0}
        print_answer(output, told, f"no engine is running in {place.directory}")
        return Exit.OK
    if no_wait:
        told = {"stopped": False, "pid": pid, "seconds": 0.0}
        print_answer(output, told, f"the engine (process {pid}) is stopping")
        return Exit.OK
    say = _teller(within) if output.form is Form.TABLE else lambda _: None
    wait_for_end(place, pid, within=within, say=say)
    took = monotonic() - began
    told = {"stopped": True, "pid": pid, "seconds": round(took, 1)}
    print_answer(output, told, f"the engine (process {pid}) has stopped")
    return Exit.OK


def _signal(place: Place) -> int | None:
    """Ask the engine to stop, and return its process; None if none runs."""
    engine = engine_at(place)  # it answers, so it is an engine and handles the signal
    holder = holder_of(place.directory)
    if engine is None or holder is None:
        return None
    if not holder.pid:
        raise CannotStopError(
            str(place.directory), "the engine runs in another container or on another machine"
        )
    try:
        os.kill(holder.pid, signal.SIGTERM)
    except PermissionError:
        raise CannotStopError(
            str(place.directory),
            f"the engine (process {holder.pid}) belongs to another user; stop it as that user, "
            "or with `systemctl stop` if it is a service",
        ) from None
    except ProcessLookupError:
        return None
    return holder.pid


def wait_for_end(
    place: Place, pid: int, *, within: timedelta, say: Callable[[list[str]], None]
) -> None:
    """Wait until an engine has released its lock; raise an error after the time limit."""
    ends_at = monotonic() + within.total_seconds()
    while True:
        holder = holder_of(place.directory)
        if holder is None or holder.pid != pid:
            return
        runs = _runs(place)
        if monotonic() >= ends_at:
            raise NotStoppedError(pid, within, runs)
        say(runs)
        sleep(LOOK)


def _runs(place: Place) -> list[str]:
    """Return the titles of what runs; none if the ledger is just being closed."""
    with suppress(HoraeError):
        found = read(place, lambda desk: desk.history(statuses=_GOING, limit=100))
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
