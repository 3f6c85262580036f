"""`tick`: start an agent's next tick now; `lifecycle`: show the ticks to come."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from horae.cli.options import flag, number_option, option, place_options
from horae.cli.output import Form, Output, echo, form_options, print_rows, print_table
from horae.cli.runs import RunScreen, raw_option
from horae.cli.sources import Sources
from horae.core.views import EntryNotFoundError
from horae.errors import Exit, HoraeError
from horae.files.read import PlanMissingError
from horae.org.plan import Severity
from horae.sources.crew import lifecycle as days
from horae.timing.duration import DurationError, format_duration, parse_cadence

if TYPE_CHECKING:
    from horae.cli.connection import Place

_DAWN: Final = datetime(2000, 1, 1, tzinfo=UTC)  # any time: only durations are shown
_LONGEST: Final = timedelta(days=31)
_OUTCOMES_HELP: Final = (
    "The outcomes of the ticks: done, no_work, failed, killed, separated by commas. "
    "The last one repeats."
)


@click.command()
@click.argument("name", metavar="NAME")
@flag("--watch", "Show the output until the tick ends.")
@option("--note TEXT", "The reason, shown with the receipt.", default="")
@raw_option
@place_options
@form_options
def tick(name: str, *, watch: bool, note: str, raw: bool, place: Place, output: Output) -> int:
    """Start the next tick of an agent now.

    A tick is one run of a member of the crew, or of the keeper (the single agent of
    `keeper.def`), at its interval. This tick replaces the next scheduled tick. How it ends
    decides the time of the next tick and the position in the lifecycle. If an engine is running,
    it executes the tick, and Ctrl-C does not stop the tick; otherwise this command executes the
    tick. The request is refused if the agent is already running. With --watch the exit code is 0
    if the tick succeeded, 1 if it failed, and 124 if it exceeded its time limit.
    """
    return tick_now(name, place, RunScreen(output, raw=raw, waits=watch), note=note)


def tick_now(name: str, place: Place, screen: RunScreen, *, note: str) -> int:
    try:
        return screen.run(place, lambda service: service.tick(name, note=note))
    except HoraeError as error:
        if error.code != EntryNotFoundError.code or place.server is not None:
            raise
        from horae.cli.trigger_access import Everybody

        # Raises an error unless the agent exists.
        Everybody(place.root, str(place.directory), Output(Form.TABLE)).get(name)
        said = f"{name} does not tick: it is neither a member of the crew nor the keeper"
        now = f"to run it now: `horae agent run {name}`"
        own: dict[str, Any] = {"code": "no_ticks", "exit_code": Exit.CONFLICT}
        raise HoraeError(f"{said}; {now}", **own, name=name) from None


@click.command()
@click.argument("file", metavar="FILE|-")
@click.argument("hits", metavar="[HITS]", required=False, type=click.IntRange(0, 999_999))
@number_option("--next", "count", default=12, most=1000, text="How many ticks to show.")
@option("--outcomes LIST", _OUTCOMES_HELP, default="done", show_default=True)
@option("--from STATE", "The current state; default: the start.", name="start")
@option("--every LENGTH", "The interval of the agent.", default="1h", show_default=True)
@form_options
def lifecycle(
    file: str,
    *,
    hits: int | None,
    count: int,
    outcomes: str,
    start: str | None,
    every: str,
    output: Output,
) -> int:
    """Show the next ticks of a lifecycle.

    Show the state of the agent at each tick, and how long it waits. Each headline of FILE declares
    a state. Each run is assumed to end at once. Problems in the file are listed on stderr; the
    exit code is 1 if there are errors. HITS is how many times the state of --from has been
    completed: `horae agent lifecycle FILE --from update 1`.
    """
    words = [word.strip().replace("-", "_").lower() for word in outcomes.split(",")]
    unknown = next((word for word in words if word not in set(days.Outcome)), None)
    if unknown is not None:
        expected = ", ".join(days.Outcome)
        raise click.UsageError(f"{unknown!r} is not an outcome; use one or more of {expected}.")
    pace = _pace(every)
    if file != "-" and not os.path.exists(file):
        raise PlanMissingError(file, "does not exist")
    sources = Sources([file], output)
    if not sources.is_single:
        raise click.UsageError(f"{file!r} is a directory; name the file of the lifecycle.")
    source = next(iter(sources), None)
    if source is None:
        return sources.exit_code
    day, found = days.parse_lifecycle(source.plan.text(), source.name)
    if day is not None:
        position = _position(day, start, hits)
        found = (*found, *days.check_gates(day, every=pace))
        ticks = days.predict(
            day, position, [*map(days.Outcome, words)], now=_DAWN, every=pace, count=count
        )
        rows = [_data(number, tick) for number, tick in enumerate(ticks, 1)]
        print_rows(output, rows, lambda: _print_table(ticks))
    for each in found:
        echo(f"horae: {each}" + (f"; {each.fix}" if each.fix else ""), err=True)
    has_errors = any(each.severity is Severity.ERROR for each in found)
    return Exit.FINDINGS if has_errors else Exit.OK


def _pace(text: str) -> timedelta:
    if text.isdecimal():  # in a definition these are milliseconds, which users do not type
        raise click.UsageError(f"--every: {text} has no unit; write {text}s or {text}m.")
    try:
        pace = parse_cadence(text)
    except DurationError as error:
        raise click.UsageError(f"--every: {error}.") from None
    if pace > _LONGEST:
        raise click.UsageError(f"--every: {text} is longer than {format_duration(_LONGEST)}.")
    return pace


def _position(day: days.Lifecycle, start: str | None, hits: int | None) -> days.Position:
    if start is None:
        if hits is not None:
            raise click.UsageError("HITS is only for --from STATE.")
        return days.Position(day.start)
    position = days.parse_position(start)
    if position is None or position.state not in day.states:
        names = ", ".join(list(day.states)[:20])
        raise click.UsageError(f"--from: {start!r} is not a state; the file has {names}.")
    return position if hits is None else days.Position(position.state, hits)


def _data(number: int, tick: days.ForecastTick) -> dict[str, object]:
    return {
        "tick": number,
        "after": (tick.at - _DAWN).total_seconds(),
        "state": tick.position.state,
        "hits": tick.position.hits,
        "kind": tick.kind.value,
        "outcome": None if tick.outcome is None else tick.outcome.value,
        "gated": None if tick.wait is None else tick.wait.total_seconds(),
        "then": str(tick.then),
        "streak": tick.rhythm.streak,
        "failures": tick.rhythm.failures,
        "delay": tick.delay.total_seconds(),
    }


def _print_table(ticks: list[days.ForecastTick]) -> None:
    rows = []
    for number, tick in enumerate(ticks, 1):
        if tick.wait is not None:
            ends = f"gated for {format_duration(tick.wait)}"
        else:
            rest = " (rest)" if tick.kind is days.StateKind.REM else ""
            ends = f"{tick.outcome}{rest}"
        after = format_duration(tick.at - _DAWN)
        here, then = str(tick.position), str(tick.then)
        rows.append((str(number), after, here, ends, then, format_duration(tick.delay)))
    print_table(("tick", "after", "state", "ends", "then", "next in"), rows)
