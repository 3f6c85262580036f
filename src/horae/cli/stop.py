"""`stop` and `restart`: the end of an engine, or a newer one in its place."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from time import monotonic, sleep
from typing import Final

import click

from horae.cli import options
from horae.cli.connection import NotAnEngineError, Place, read
from horae.cli.options import flag, option
from horae.cli.output import Output, echo, form_options, print_answer, runs_text
from horae.client import Client
from horae.core.receipt import GOING
from horae.errors import Exit, HoraeError
from horae.process import handover
from horae.store import lock
from horae.timing.duration import format_duration, parse_duration

_LOOK: Final = 0.2  # seconds between two checks of an engine that stops
_TOLD: Final = 5.0  # seconds after which progress is printed again
_MARGIN: Final = timedelta(seconds=30)  # beyond `run.drain`, for an engine to end its runs


class NotStoppedError(HoraeError, code="not_stopped", exit_code=Exit.TIMED_OUT):
    def __init__(self, pid: int | None, within: timedelta, runs: list[str]) -> None:
        self.pid, self.runs = pid, runs
        what = f", with {runs_text(runs)}" if runs else ""
        still = f"is still running after {format_duration(within)}{what}"
        ends = "it ends its runs after the time in the setting run.drain"
        remedy = f"to wait longer, or end the engine and its runs with `kill -9 {pid}`"
        super().__init__(
            f"the engine (process {pid}) {still}; {ends}: run `horae stop` again {remedy}"
        )


class CannotStopError(HoraeError, code="cannot_stop", exit_code=Exit.UNAUTHORISED):
    def __init__(self, directory: str, reason: str) -> None:
        self.directory, self.reason = directory, reason
        super().__init__(f"{directory}: {reason}")


@click.command()
@option(
    "--timeout LENGTH", "How long to wait, such as 2m; default: the setting run.drain plus 30s."
)
@flag("--wait", "Let all runs end, however long they take; run.drain does not count.")
@click.option("--no-wait", is_flag=True, help="Return at once; the engine stops by itself.")
@options.place_argument
@form_options
def stop(*, timeout: str | None, wait: bool, no_wait: bool, place: Place, output: Output) -> None:
    """Stop the engine; its runs get time to end.

    The engine starts no more runs and waits for the current ones to end, at most for the time
    in the setting run.drain; then it ends them. This command waits until the engine has ended
    and shows which runs it waits for. Exit code 124: the engine was still running after --timeout.
    """
    usual = handover.UNBOUNDED if wait else place.config.run_drain + _MARGIN
    within = usual if timeout is None else parse_duration(timeout)
    began, before = monotonic(), lock.engine_in(place.directory)
    client = None if before is None else Client(place.directory, pid=before.pid)
    if wait and client is not None and client.answers():
        client.stop(wait=True)
    pid = _end_engine(place, within=within, waits=not no_wait, says=output.is_text)
    is_over = pid is not None and not no_wait
    told = {"stopped": is_over, "pid": pid, "seconds": round(monotonic() - began, 1)}
    none = f"no engine is running in {place.directory}"
    text = f"the engine (process {pid}) has stopped"
    if not is_over:
        already = "already " if before is not None and before.is_stopping else ""
        runs = _runs_in_progress(place)
        waits = f"; it waits for {runs_text(runs)}" if runs else ""
        text = f"the engine (process {pid}) is {already}stopping{waits}"
    print_answer(output, told, none if pid is None else text)


class NotRestartedError(HoraeError, code="not_restarted", exit_code=Exit.TIMED_OUT):
    def __init__(self, pid: int | None, reason: str) -> None:
        self.pid, self.reason = pid, reason
        super().__init__(f"the engine (process {pid}) was not restarted: {reason}")


@click.command()
@flag("--wait", "Wait for runs that cannot continue, however long they take.")
@options.place_argument
@form_options
def restart(*, wait: bool, place: Place, output: Output) -> None:
    """Restart the engine, also with a newer version; runs continue.

    The process stays the same, and so do runs of commands and agents. Workflows cannot continue:
    the engine waits for them, at most for the time in the setting run.drain, and ends them then.
    If the installed version cannot start, the engine continues as it is.
    """
    told: dict[str, object]
    began, before = monotonic(), lock.holder_of(place.directory)
    if before is None:
        told = {"restarted": False, "pid": None, "version": None, "seconds": 0.0}
        print_answer(output, told, f"no engine is running in {place.directory}")
        return
    _refuse_run(before)
    said = Client(place.directory, pid=before.pid).restart(wait=wait)
    if place.store is not None:  # a node stops, and joins again when its runs have ended
        told = {"restarted": False, "pid": before.pid, "version": said.new_version}
        text = f"the node (process {before.pid}) restarts when its runs have ended"
        print_answer(output, {**told, "seconds": round(monotonic() - began, 1)}, text)
        return
    within = handover.UNBOUNDED if wait else place.config.run_drain + _MARGIN
    progress = Progress(within, "the engine to restart", not output.is_text)
    while (now := lock.holder_of(place.directory)) and now.pid == before.pid:
        if now.restarts != before.restarts:
            break
        if progress.is_over():
            raise NotRestartedError(before.pid, f"it still waits after {format_duration(within)}")
        progress.tell()
        sleep(_LOOK / 4)
    if now is None or now.pid != before.pid:
        raise NotRestartedError(before.pid, "it has ended; see its log")
    if now.restart_error:
        raise handover.RestartError(now.restart_error)
    runs, version = _runs_in_progress(place), said.new_version
    going = f"; it continues {runs_text(runs)}" if runs else ""
    seconds = round(monotonic() - began, 1)
    told = {"restarted": True, "pid": now.pid, "version": version, "seconds": seconds}
    text = f"the engine (process {now.pid}) was restarted with horae {version}{going}"
    print_answer(output, told, text)


def _refuse_run(holder: lock.LockHolder) -> None:
    if holder.use is lock.LockUse.RUN:
        executes = f"it executes `{holder.command}` and ends with its run"
        remedy = "press Ctrl-C in its terminal to end it"
        raise NotAnEngineError(holder, f"is not an engine: {executes}; {remedy}")


@dataclass
class Progress:
    """Tells what a command waits for, when that changes and every few seconds."""

    within: timedelta
    what: str
    is_quiet: bool
    runs: Callable[[], list[str]] = list
    _began: float = field(default_factory=monotonic)
    _told_at: float = 0.0
    _told: list[str] | None = None

    def is_over(self) -> bool:
        return monotonic() >= self._began + self.within.total_seconds()

    def tell(self) -> None:
        runs, now = self.runs(), monotonic()
        if not self.is_quiet and (runs != self._told or now - self._told_at >= _TOLD):
            self._told, self._told_at = runs, now
            waited = format_duration(timedelta(seconds=int(now - self._began)))
            most = f" of at most {format_duration(self.within)}"
            most = "" if self.within == handover.UNBOUNDED else most
            what = runs_text(runs) if runs else self.what
            echo(f"horae: waiting for {what} ({waited}{most})", err=True)


def _end_engine(place: Place, *, within: timedelta, waits: bool, says: bool) -> int | None:
    """Stop the engine of a data directory, wait for its end, and return its process, if any."""
    asked = seen = None
    runs = partial(_runs_in_progress, place)
    progress = Progress(within, "the engine to stop", not says, runs)
    while True:
        holder = lock.holder_of(place.directory)
        if holder is not None and seen is None:
            _refuse_run(holder)
        if holder is None or not holder.is_engine or asked not in {None, holder.pid}:
            return asked or seen  # another one may be started
        seen = holder.pid
        # Without an answer it may be starting, or stopping already.
        if asked is None and Client(place.directory, pid=holder.pid).answers():
            _signal(place, holder.pid)
            asked = holder.pid
        if not waits and (asked is not None or holder.is_stopping):
            return seen
        if progress.is_over():
            raise NotStoppedError(holder.pid, within, runs())
        progress.tell()
        sleep(_LOOK)


def _runs_in_progress(place: Place) -> list[str]:
    with suppress(HoraeError):  # the ledger is being closed: nothing runs any more
        found = read(place, lambda service: service.history(statuses=GOING, limit=100))
        return [line.title for line in found.receipts if line.status in GOING]
    return []


def _signal(place: Place, pid: int | None) -> None:
    if not pid:
        reason = "the engine runs in another container or on another machine"
        raise CannotStopError(str(place.directory), reason)
    try:
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, signal.SIGTERM)
    except PermissionError:
        whose = f"the engine (process {pid}) belongs to another user"
        how = "stop it as that user, or with `systemctl stop` if it is a service"
        raise CannotStopError(str(place.directory), f"{whose}; {how}") from None
