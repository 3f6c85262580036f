"""What goes on, in the words of `agent`: the output of agents, what it took, and the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from horae import __version__
from horae.cli.connection import engine_of
from horae.errors import Exit
from horae.sources.triggers.agent_cli.words import Here, orchestrator, print_one

if TYPE_CHECKING:
    from collections.abc import Mapping


@orchestrator.command("logs")
@click.argument("agent_id", metavar="[ID]", required=False)
@click.option("--name", help="The name of the agent.")
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the run ends.")
@click.option(
    "--tail",
    default=100,
    show_default=True,
    type=click.IntRange(0),
    metavar="N",
    help="Only the last N lines.",
)
@click.pass_obj
def logs(here: Here, agent_id: str | None, *, name: str | None, follow: bool, tail: int) -> int:
    """Show the output of the current or last run of an agent."""
    return _show_log(here, _one_of(agent_id, name), follow=follow, tail=tail)


@orchestrator.command("attach")
@click.argument("agent_id", metavar="[ID]", required=False)
@click.option("--name", help="The name of the agent.")
@click.pass_obj
def attach(here: Here, agent_id: str | None, *, name: str | None) -> int:
    """Follow the output of the current run of an agent.

    The run has no terminal and gets no input.
    """
    return _show_log(here, _one_of(agent_id, name), follow=True, is_going=True)


@orchestrator.command("stream")
@click.argument("agent_id", metavar="[ID]", required=False)
@click.option("--name", help="The name of the agent.")
@click.pass_obj
def stream(here: Here, agent_id: str | None, *, name: str | None) -> int:
    """Follow the output of the current run of an agent."""
    return _show_log(here, _one_of(agent_id, name), follow=True, is_going=True)


@orchestrator.command("usage")
@click.argument("agent_id", metavar="[ID]", required=False)
@click.option("--name", help="The name of the agent.")
@click.pass_obj
def usage(here: Here, agent_id: str | None, *, name: str | None) -> int:
    """Show the usage of the last run and of all runs."""
    who = _one_of(agent_id, name)
    found = here.read(lambda triggers: triggers.usage(who))
    lines = [f"Agent: {found['agent']}", f"ID: {found['agent_id']}"]
    for title, part in (("Last run", "current"), ("Cumulative", "cumulative")):
        lines += [f"{title}:", *_usage_lines(found[part])]
    return print_one(here, found, lines)


@orchestrator.command("health")
@click.pass_obj
def health(here: Here) -> int:
    """Show whether an engine is running."""
    engine = engine_of(here.room().place)
    word = "ok" if engine.is_running else "no engine is running"
    said = {"status": word, "service": "horae", "version": __version__}
    print_one(here, said, [f"Status: {word}", f"Version: {__version__}"])
    return Exit.OK if engine.is_running else Exit.FINDINGS


def _show_log(
    here: Here, who: str, *, follow: bool, tail: int | None = None, is_going: bool = False
) -> int:
    """Show the output of an agent's run, as `horae logs` does."""
    from horae.cli.runs import logs as show

    number = here.read(lambda triggers: triggers.run_of(who, is_going=is_going))
    assert show.callback is not None, "it is a command"
    shown: int = show.callback(
        str(number), follow=follow, tail=tail, raw=False, root=here.root, data=here.data
    )
    return shown


def _one_of(agent_id: str | None, name: str | None) -> str:
    if (agent_id is None) is (name is None):
        raise click.UsageError("name one agent, by its ID or with --name.")
    return agent_id or name or ""


def _usage_lines(usage: Mapping[str, Any]) -> list[str]:
    """Return what some runs took as a block of lines."""
    facts = {
        "Runs": usage["runs"],
        "Turns": usage["turns"],
        "Input Tokens": usage["input_tokens"],
        "Output Tokens": usage["output_tokens"],
        "Cost": f"${usage['total_cost_usd']:.4f}",
        "Duration": f"{usage['duration_secs']:.1f}s",
    }
    return [f"  {label}: {value}" for label, value in facts.items()]
