"""`tick`: an agent's next tick, now."""

from __future__ import annotations

import click

from horae.cli.client import EngineUnreachableError
from horae.cli.connection import Place, engine_at
from horae.cli.options import place_options
from horae.cli.output import Form, Output, form_options
from horae.cli.runs import follow, raw_option, run_here
from horae.core.views import EntryNotFoundError
from horae.errors import Exit, HoraeError


class NoTicksError(HoraeError):
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
def tick(name: str, *, watch: bool, note: str, raw: bool, place: Place, output: Output) -> int:
    """Start the next tick of an agent now.

    A tick is one run of a member of the crew, or of the keeper (the single agent of
    `keeper.def`), at its interval. This tick replaces the next scheduled tick. How it ends
    decides the time of the next tick and the position in the lifecycle. If an engine is running,
    it executes the tick, and Ctrl-C does not stop the tick; otherwise this command executes the
    tick. The request is refused if the agent is already running. With --watch the exit code is 0
    if the tick succeeded, 1 if it failed, and 124 if it exceeded its time limit.
    """
    return tick_now(name, place, output, watch=watch, note=note, raw=raw)


def tick_now(name: str, place: Place, output: Output, *, watch: bool, note: str, raw: bool) -> int:
    try:
        far = engine_at(place)
        if far is not None:
            asked = far.post("agents", name, "tick", body={"note": note})
            return follow(far, asked, output, waits=watch, raw=raw)
        if place.store is not None:
            raise EngineUnreachableError(str(place.directory), "no node is the leader now")
        from horae.app import tick_once

        return run_here(place, lambda app: tick_once(app, name, note=note), output, raw=raw)
    except HoraeError as error:
        if error.code != EntryNotFoundError.code:
            raise
        from horae.sources.agents.commands import Everybody

        # Raises an error unless there is such an agent.
        Everybody(place.root, str(place.directory), Output(Form.TABLE)).get(name)
        raise NoTicksError(name) from None
