"""The command group; each command's module is loaded when it is called."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from horae import __version__

# Command -> module:attribute, where its click command is.
COMMANDS: Final = {
    "agenda": "horae.cli.times:agenda",
    "agent": "horae.cli.agents:agent",
    "agents": "horae.cli.agents:agents",
    "approvals": "horae.cli.triggers:approvals",
    "approve": "horae.cli.triggers:approve",
    "backfill": "horae.cli.ledger:backfill",
    "backup": "horae.cli.keeping:backup",
    "board": "horae.cli.board:board",
    "cancel": "horae.cli.runs:cancel",
    "check": "horae.cli.plans:check",
    "claim": "horae.cli.claims:claim",
    "completion": "horae.cli.service:completion",
    "config": "horae.cli.settings:config",
    "demo": "horae.cli.demo:demo",
    "deny": "horae.cli.triggers:deny",
    "doctor": "horae.cli.keeping:doctor",
    "done": "horae.cli.claims:done",
    "drain": "horae.cli.cluster:drain",
    "due": "horae.cli.times:due",
    "explain": "horae.cli.explain:explain",
    "export": "horae.cli.export:export",
    "history": "horae.cli.ledger:history",
    "import": "horae.cli.adopt:import_",
    "init": "horae.cli.init:init",
    "lifecycle": "horae.cli.lifecycle:lifecycle",
    "logs": "horae.cli.runs:logs",
    "next": "horae.cli.times:next_",
    "nodes": "horae.cli.cluster:nodes",
    "open": "horae.cli.token:open_",
    "pause": "horae.cli.ledger:pause",
    "prune": "horae.cli.keeping:prune",
    "query": "horae.cli.plans:query",
    "release": "horae.cli.claims:release",
    "restore": "horae.cli.keeping:restore",
    "resume": "horae.cli.ledger:resume",
    "run": "horae.cli.runs:run",
    "service": "horae.cli.service:service",
    "simulate": "horae.cli.simulate:simulate",
    "status": "horae.cli.ledger:status",
    "store": "horae.cli.cluster:store",
    "tangle": "horae.cli.plans:tangle",
    "task": "horae.cli.board:task",
    "tick": "horae.cli.tick:tick",
    "token": "horae.cli.token:token",
    "trigger": "horae.cli.triggers:trigger",
    "up": "horae.cli.up:up",
    "why": "horae.cli.ledger:why",
    "worker": "horae.cli.up:worker",
}


class LazyGroup(click.Group):
    """A group that imports a command only when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command, from its module."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that *args* name, or say which one may be meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches  # only for the message

            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"{error.message}{hint}", ctx) from None


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 ok, 1 findings, 2 usage, 3 engine unreachable, 4 not found, "
    "5 verification failed, 6 conflict, 7 not authorised, 75 temporary, 124 timed out, "
    "130 interrupted.",
)
@click.version_option(__version__, prog_name="horae", message="%(prog)s %(version)s")
@click.pass_context
def horae(ctx: click.Context) -> None:
    """Keep the hours that a plan says, one line under what they are for."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
