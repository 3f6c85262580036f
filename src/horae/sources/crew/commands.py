"""`tick`: an agent's next tick, now."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from horae.cli.client import EngineUnreachableError
from horae.cli.connection import Place, engine_at
from horae.cli.options import place_options
from horae.cli.output import Form, Output, echo, form_options, print_answer
from horae.cli.runs import print_end, raw_option, run_here, wait_for
from horae.config import load
from horae.core.views import EntryNotFoundError
from horae.errors import Exit, HoraeError


class NoTicksError(HoraeError):
    """An agent that is run on request only."""

    code = "no_ticks"
    exit_code = Exit.CONFLICT

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"{name} does not tick: it is neither a member of the crew nor the keeper; "
            f"to run it now: `horae agent run {name}`"
        )


@click.command()
@click.argument("name", metavar="NAME")
@click.option("--watch", is_flag=True, help="Show the output until the tick ends.")
@click.option("--note", default="", metavar="TEXT", help="The reason, shown with the receipt.")
@raw_option
@place_options
@form_options
def tick(
    name: str,
    *,
    watch: bool,
    note: str,
    raw: bool,
    root: str,
    data: str | None,
    form: str | None,
) -> int:
    """Start the next tick of an agent now.

    A tick is one run of a member of the crew, or of the keeper (the single agent of
    `keeper.def`), at its interval. This tick replaces the next scheduled tick. How it ends
    decides the time of the next tick and the position in the lifecycle. If an engine is running,
    it executes the tick, and Ctrl-C does not stop the tick; otherwise this command executes the
    tick. The request is refused if the agent is already running. With --watch the exit code is 0
    if the tick succeeded, 1 if it failed, and 124 if it exceeded its time limit.
    """
    output = Output.of(form)
    try:
        return _tick(name, output, watch=watch, note=note, raw=raw, root=root, data=data)
    except HoraeError as error:
        if error.code != EntryNotFoundError.code:
            raise
        from horae.sources.agents.commands import Everybody

        Everybody(root, data, Output(Form.TABLE)).get(name)  # raises unless there is one
        raise NoTicksError(name) from None


def _tick(
    name: str,
    output: Output,
    *,
    watch: bool,
    note: str,
    raw: bool,
    root: str,
    data: str | None,
) -> int:
    """Let an agent tick, by the engine or here."""
    place = Place.of(root=root, data=data)
    far = engine_at(place)
    if far is None and place.store is not None:
        raise EngineUnreachableError(str(place.directory), "no node is the leader now")
    if far is None:
        from horae.app import tick_once

        config = load(root, flags={"data": data})
        made = run_here(config, lambda app: tick_once(app, name, note=note), output, raw=raw)
        return print_end(output, asyncio.run(made))
    asked: dict[str, Any] = far.post("agents", name, "tick", body={"note": note})
    number = asked["receipt"]
    if not watch:
        print_answer(output, asked, f"{asked['title']}: receipt {number}, {asked['status']}")
        return Exit.OK
    try:
        told = wait_for(far, number, output, raw=raw)
    except KeyboardInterrupt:
        echo(
            f"horae: receipt {number} is still running; `horae cancel {asked['entry']}` ends it",
            err=True,
        )
        raise
    return print_end(output, told)
