"""The command group: one table of all commands; a module is loaded when its command is called."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from enum import StrEnum
from importlib import import_module
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from horae import __version__
from horae.cli import options, output

_SHARED: Final = "horae.shared_options"  # in the context: options before the command
HINTS: Final = 3  # near names that a message lists at most


class Section(StrEnum):
    EVERYDAY = "Everyday"
    WRITE = "Write plans"
    WORK = "Agents and work"
    OPERATE = "Operate"
    DATA = "Plan data"


class Command(NamedTuple):
    name: str  # one word, or a group and a word
    place: str  # module:attribute, below horae; empty for a group whose commands are in this table
    help: str
    section: Section | None = None  # None: not in `horae --help`


# A section of `horae --help`, or none; then command | module:attribute | line of help.
_TABLE: Final = """
[Everyday]
up | cli.up:up | Run what is scheduled in your plan files
stop | cli.stop:stop | Stop the engine; its runs get time to end
restart | cli.stop:restart | Restart the engine, also with a newer version; runs continue
status | cli.status:status | Show what is running, waiting, next and failing
list | cli.status:list_ | List all entries: state, rule, last and next
run | cli.runs:run | Run an entry now, or the workflows of a file
logs | cli.runs:logs | Show the output of a run
why | cli.status:why | Show why an entry ran or did not run
history | cli.status:history | List receipts, newest first
cost | cli.cost:cost | Show what runs cost, and where budgets stand
pause | cli.status:pause | Pause an entry until it is resumed
resume | cli.status:resume | Resume a paused entry
cancel | cli.runs:cancel | Cancel a run and all processes it started
retry | cli.runs:retry | Run the entry of a receipt again
backfill | cli.status:backfill | Run an entry for each scheduled time of a past period
[Write plans]
init | cli.init:init | Write a small working plan into a directory
check | cli.check:check | Check plan files and report problems
next | cli.times:next_ | Show the next scheduled times (also: agenda, due)
[]
agenda | cli.times:agenda | Show the next days, day by day
due | cli.times:due | Show what is overdue, due and coming
[Write plans]
explain | cli.times:explain | Explain a schedule and show its next times
simulate | cli.simulate:simulate | Simulate plans without running anything
import | cli.import_jobs:import_ | Import jobs from cron, systemd, GitHub Actions, APScheduler
export | cli.export:export | Export schedules to crontab, systemd, iCalendar
done | sources.plans.commands:done | Mark a headline as done
claim | sources.plans.commands:claim | Claim a headline for an agent
release | sources.plans.commands:release | Release a claimed headline
[Agents and work]
agent |  | List, show, run and tick agents
agent list | sources.agents.commands:agents | List agents and whether each can run
agent show | sources.agents.commands:show | Show the definition and the tools of an agent
agent run | sources.agents.commands:run | Run an agent now and show its output
agent tick | sources.crew.commands:tick | Start the next tick of an agent now
agent work | sources.agents.commands:work | List, show, merge or remove kept work of agents
agent lifecycle | sources.crew.commands:lifecycle | Show the next ticks of a lifecycle
task | sources.board.commands:task | Add, schedule, move and list the tasks of a board
trigger | sources.triggers.commands:trigger | Start agents by cron, webhook, issue or request
approval |  | List, approve and reject runs that need approval
approval list | sources.triggers.commands:approvals | List runs that wait for approval, oldest first
approval approve | sources.triggers.commands:approve | Approve a run that waits for approval
approval reject | sources.triggers.commands:deny | Reject a run that waits for approval
[Operate]
doctor | cli.doctor:doctor | Check the installation and the ledger
service | cli.service:service | Install, uninstall or print a systemd or launchd unit
token | cli.token:token | Manage access tokens and sessions
config | cli.settings:config | Show the settings
backup | cli.maintenance:backup | Write a verified copy of the ledger
restore | cli.maintenance:restore | Restore the ledger from a backup
prune | cli.maintenance:prune | Remove the details of old receipts
cluster |  | Show and manage the nodes of a cluster
cluster nodes | cli.maintenance:nodes | List the nodes of a cluster
cluster drain | cli.maintenance:drain | Stop assigning runs to a node
cluster worker | cli.up:worker | Run a node that never becomes the leader
cluster migrate | cli.maintenance:migrate | Move the local ledger to PostgreSQL
cluster restored | cli.maintenance:restored | Mark the database as restored from a backup
demo | cli.demo:demo | Run a demo plan until Ctrl-C
open | cli.token:open_ | Open the page of the running engine
completion | cli.service:completion | Print a shell completion script
[Plan data]
query | cli.plans:query | Show the fields of each headline
tangle | cli.plans:tangle | Show the resolved workflows of a plan
"""


def _commands() -> Iterator[Command]:
    section = None
    for line in _TABLE.strip().splitlines():
        if line.startswith("["):
            section = Section(line[1:-1]) if line != "[]" else None
        else:
            name, place, text = line.split("|")
            own = None if " " in name.strip() else section
            yield Command(name.strip(), place.strip(), text.strip(), own)


COMMANDS: Final = {each.name: each for each in _commands()}

# How 0.1 spelled a command -> how it is spelled now. `board` and `store` stand for all of theirs.
OLD: Final = {
    "agents": "agent list",
    "tick": "agent tick",
    "lifecycle": "agent lifecycle",
    "board": "task",
    "approvals": "approval list",
    "approve": "approval approve",
    "deny": "approval reject",
    "store": "cluster",
    "nodes": "cluster nodes",
    "drain": "cluster drain",
    "worker": "cluster worker",
    "store migrate": "cluster migrate",
    "board tick": "task recycle",
}

# The commands that ask an engine, and so ask the one that HORAE_SERVER names.
# fmt: off
_REMOTE: Final = frozenset((
    "status", "list", "history", "cost", "why", "pause", "resume", "backfill", "run", "retry",
    "logs", "cancel", "prune", "open", "trigger", "approval", "agent tick", "token add",
    "token list", "token revoke", "token sessions", "token end-session",
))
# fmt: on


def is_local(words: Sequence[str]) -> bool:
    """Tell whether a command works with files of this machine whatever HORAE_SERVER is."""
    return _REMOTE.isdisjoint({words[0], " ".join(words[:2])}) if words else False


# What people type who know other programs -> what to type here.
_NEAR: Final = {
    "abort kill": "`horae cancel`",
    "add": "`horae task add`, `horae trigger add`, or write a headline into a plan file",
    "calendar": "`horae agenda` or `horae export ics`",
    "clean gc purge": "`horae prune`",
    "create new": "`horae init`, `horae task add` or `horae trigger add`",
    "daemon": "`horae up` or `horae service install`",
    "dashboard login ui web": "`horae open`",
    "delete remove rm": "`horae trigger remove` or `horae task archive`; "
    "an entry ends when its headline is deleted from the plan file",
    "describe info": "`horae why` or `horae explain`",
    "disable": "`horae pause` or `horae trigger disable`",
    "down quit shutdown": "`horae stop`",
    "edit": "`horae task edit` or `horae trigger edit`; "
    "plan files are edited in your editor and read again by the engine",
    "enable": "`horae resume` or `horae trigger enable`",
    "entries jobs ls": "`horae list`",
    "exec": "`horae run`",
    "health": "`horae doctor` or `horae task health`",
    "help": "`horae --help` or `horae COMMAND --help`",
    "inspect": "`horae why` or `horae agent show`",
    "install": "`horae service install`",
    "lint validate": "`horae check`",
    "log": "`horae logs`",
    "migrate": "`horae cluster migrate`",
    "ps": "`horae status`",
    "reject": "`horae approval reject`",
    "reload": "The engine reads plan files again when they change; "
    "to restart it, use `horae restart`",
    "rerun": "`horae retry`",
    "schedule": "`horae task schedule`, `horae trigger add` or `horae next`",
    "serve server": "`horae up`",
    "settings": "`horae config`",
    "show": "`horae why`, `horae agent show`, `horae task show` or `horae trigger show`",
    "start": "`horae up` to start the engine, `horae run` to run an entry",
    "suspend": "`horae pause`",
    "tail": "`horae logs -f`",
    "tasks": "`horae task list`",
    "test": "`horae check` or `horae simulate`",
    "tokens": "`horae token list`",
    "triggers": "`horae trigger list`",
    "uninstall": "`horae service uninstall`",
    "unpause": "`horae resume`",
    "verify": "`horae check` or `horae doctor`",
    "version": "`horae --version`",
}
NEAR: Final = {word: said for words, said in _NEAR.items() for word in words.split()}

# The same inside a group: the first of these that it has.
_ALIKE: Final = {
    "actions github": "github-actions",
    "calendar ical icalendar": "ics",
    "create new": "add",
    "deny": "reject",
    "delete rm": "remove archive revoke",
    "join": "worker",
    "ls": "list nodes",
    "move": "transition",
    "pause": "disable",
    "resume": "enable",
    "start": "run",
    "status": "show nodes",
    "tick": "recycle",
    "update": "edit",
}


class SharedGroup(click.Group):
    """A group that accepts shared options before the command, and names near commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self.take_shared(ctx, args))

    def take_shared(self, ctx: click.Context, args: list[str]) -> list[str]:
        shared, rest = options.take_shared(args)
        ctx.meta[_SHARED] = [*ctx.meta.get(_SHARED, ()), *shared]
        return rest

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            name, command, rest = super().resolve_command(ctx, args)
        except click.UsageError as error:
            message = f"{error.message} {self.hint(ctx, args[0])}"
            raise click.UsageError(message.strip(), ctx) from None
        if command is not None and not isinstance(command, click.Group):
            rest = [*ctx.meta.get(_SHARED, ()), *rest]
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own = [(word, self.get_command(ctx, word)) for word in self.list_commands(ctx)]
        rows = []
        for word, each in own:
            if each is not None and not each.hidden:
                line = (each.help or "").partition("\n\n")[0].replace("\n", " ")
                rows.append((word, line.strip().rstrip(".")))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def hint(self, ctx: click.Context, word: str) -> str:
        from difflib import get_close_matches  # only for the message

        names = self.list_commands(ctx)
        alike = [said for words, said in _ALIKE.items() if word in words.split()]
        near = [each for each in " ".join(alike).split() if each in names][:1]
        near = near or get_close_matches(word, names, n=HINTS, cutoff=0.7)
        return f"Did you mean {' or '.join(map(repr, near))}?" if near else ""


class LazyGroup(SharedGroup):
    """A group that imports a command only when it is called; the table has the help lines."""

    def __init__(self, *args: Any, prefix: str = "", **given: Any) -> None:
        super().__init__(*args, **given)
        self._prefix = prefix

    def rows(self) -> list[tuple[str, Command]]:
        own = (each for each in COMMANDS.values() if each.name.startswith(self._prefix))
        found = [(each.name.removeprefix(self._prefix), each) for each in own]
        return [(word, row) for word, row in found if " " not in word]

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return [word for word, _ in self.rows()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        row = COMMANDS.get(f"{self._prefix}{cmd_name}")
        if row is None or " " in cmd_name:
            return None
        if not row.place:
            return LazyGroup(row.name, prefix=f"{row.name} ", help=f"{row.help}.")
        module, _, name = row.place.partition(":")
        command = getattr(import_module(f"horae.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        rows = self.rows()
        sections = {row.section for _, row in rows if row.section is not None}
        if not sections:
            with formatter.section("Commands"):
                formatter.write_dl([(word, row.help) for word, row in rows])
        width = max(len(word) for word, _ in rows)
        for section in (each for each in Section if each in sections):
            shown = [(word.ljust(width), row.help) for word, row in rows if row.section is section]
            with formatter.section(section):
                formatter.write_dl(shown)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        rows = [(word, row) for word, row in self.rows() if word.startswith(incomplete)]
        found = [CompletionItem(word, help=row.help) for word, row in rows]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


class Horae(LazyGroup):
    """The commands of `horae`; spellings of 0.1 are understood."""

    def take_shared(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest, shared = super().take_shared(ctx, args), ctx.meta[_SHARED]
        own = [each for each in shared if each.startswith("--token-file=")]
        if "--token-file" in shared:
            own = shared[(at := shared.index("--token-file")) : at + 2]
        ctx.meta[_SHARED] = [each for each in shared if each not in own]
        return [*own, *rest]  # it is an option of this group, and of no command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        args = _renamed(ctx, args)
        found = super().resolve_command(ctx, args)
        words = [args[0], *options.take_shared(args[1:])[1][:1]]
        if os.environ.get("HORAE_SERVER") and not ctx.resilient_parsing and is_local(words):
            name = " ".join(words if words[0] in {"agent", "token"} else words[:1])
            said = f"`horae {name}` works with the files of this machine"
            output.echo(f"horae: {said}; HORAE_SERVER is not used", err=True)
        return found

    def hint(self, ctx: click.Context, word: str) -> str:
        if word not in NEAR:
            return super().hint(ctx, word)
        said = NEAR[word]
        return f"Use {said}." if said.startswith("`") else f"{said}."


def _renamed(ctx: click.Context, args: list[str]) -> list[str]:
    """Return the arguments with the name that a command has now; an old one is named on stderr."""
    shared, rest = options.take_shared(args[1:])  # they may stand between a group and its command
    words = [*args[:1], *rest]
    for count in (2, 1):
        old = " ".join(words[:count])
        if len(words) < count or old not in OLD:
            continue
        new, rest = OLD[old], words[count:]
        if not ctx.resilient_parsing:
            was, now = _full(old, rest), _full(new, rest)
            message = f"`{was}` is now `{now}`"
            if output.asked_form([*ctx.meta.get(_SHARED, ()), *args]) is output.Form.TABLE:
                output.echo(f"horae: {message}", err=True)
            else:
                told = {"code": "renamed", "message": message, "facts": {"old": was, "new": now}}
                output.print_error(told, kind="notice")
        return [*new.split(), *shared, *rest]
    return args


def _full(name: str, rest: list[str]) -> str:
    is_group = name in {"task", "board", "store"} or (name in COMMANDS and not COMMANDS[name].place)
    word = rest[0] if rest and is_group and not rest[0].startswith("-") else ""
    return f"horae {name} {word}".strip()


@click.group(
    cls=Horae,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 ok, 1 failed or problems found, 2 usage, 3 engine unreachable, "
    "4 not found, 5 verification failed, 6 conflict, 7 not authorised, 75 temporary failure, "
    "124 timed out, 130 interrupted.",
)
@click.version_option(__version__, prog_name="horae", message="%(prog)s %(version)s")
@options.option(
    "--token-file FILE",
    "Read the token for HORAE_SERVER from a file.",
    type=click.Path(exists=True, dir_okay=False),
)
@click.pass_context
def horae(ctx: click.Context, *, token_file: str | None) -> None:  # noqa: ARG001 - `Place` reads it
    """Run commands, workflows and coding agents on a schedule.

    The options --root, --data, --tz and --at, and those of the output (--json, --jsonl, --text,
    --table), can also be given before a command that has them. If HORAE_SERVER is the address of
    an engine, commands that need an engine ask that one, with the token in HORAE_TOKEN or in
    --token-file.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
