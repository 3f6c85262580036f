"""The command group: one table of all commands; a module is loaded when its command is called."""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from horae import __version__
from horae.cli.options import take_shared
from horae.cli.output import Form, asked_form, echo, print_notice

_SHARED: Final = "horae.shared_options"  # in the context: options before the command
HINTS: Final = 3  # near names that a message lists at most


class Section(StrEnum):
    """Where `horae --help` lists a command."""

    EVERYDAY = "Everyday"
    WRITE = "Write plans"
    WORK = "Agents and work"
    OPERATE = "Operate"
    DATA = "Plan data"


class Command(NamedTuple):
    """One command."""

    name: str  # one word, or a group and a word
    place: str  # module:attribute, below horae; empty for a group whose commands are in this table
    help: str
    section: Section | None = None  # None: not in `horae --help`
    old: tuple[str, ...] = ()  # how 0.1 spelled it


_TABLE: Final = (
    Command("up", "cli.up:up", "Run what is scheduled in your plan files", Section.EVERYDAY),
    Command("stop", "cli.stop:stop", "Stop the engine; its runs get time to end", Section.EVERYDAY),
    Command(
        "status",
        "cli.ledger:status",
        "Show what is running, waiting, next and failing",
        Section.EVERYDAY,
    ),
    Command(
        "list",
        "cli.entries:list_",
        "List all entries: state, rule, last and next",
        Section.EVERYDAY,
    ),
    Command(
        "run", "cli.runs:run", "Run an entry now, or the workflows of a file", Section.EVERYDAY
    ),
    Command("logs", "cli.runs:logs", "Show the output of a run", Section.EVERYDAY),
    Command("why", "cli.ledger:why", "Show why an entry ran or did not run", Section.EVERYDAY),
    Command("history", "cli.ledger:history", "List receipts, newest first", Section.EVERYDAY),
    Command("pause", "cli.ledger:pause", "Pause an entry until it is resumed", Section.EVERYDAY),
    Command("resume", "cli.ledger:resume", "Resume a paused entry", Section.EVERYDAY),
    Command(
        "cancel", "cli.runs:cancel", "Cancel a run and all processes it started", Section.EVERYDAY
    ),
    Command("retry", "cli.runs:retry", "Run the entry of a receipt again", Section.EVERYDAY),
    Command(
        "backfill",
        "cli.ledger:backfill",
        "Run an entry for each scheduled time of a past period",
        Section.EVERYDAY,
    ),
    Command("init", "cli.init:init", "Write a small working plan into a directory", Section.WRITE),
    Command("check", "cli.plans:check", "Check plan files and report problems", Section.WRITE),
    Command(
        "next",
        "cli.times:next_",
        "Show the next scheduled times (also: agenda, due)",
        Section.WRITE,
    ),
    Command("agenda", "cli.times:agenda", "Show the next days, day by day"),
    Command("due", "cli.times:due", "Show what is overdue, due and coming"),
    Command(
        "explain",
        "cli.explain:explain",
        "Explain a schedule and show its next times",
        Section.WRITE,
    ),
    Command(
        "simulate",
        "cli.simulate:simulate",
        "Simulate plans without running anything",
        Section.WRITE,
    ),
    Command(
        "import",
        "cli.import_jobs:import_",
        "Import jobs from cron, systemd, GitHub Actions, APScheduler",
        Section.WRITE,
    ),
    Command(
        "export",
        "cli.export:export",
        "Export schedules to crontab, systemd, iCalendar",
        Section.WRITE,
    ),
    Command("done", "sources.plans.commands:done", "Mark a headline as done", Section.WRITE),
    Command(
        "claim", "sources.plans.commands:claim", "Claim a headline for an agent", Section.WRITE
    ),
    Command(
        "release", "sources.plans.commands:release", "Release a claimed headline", Section.WRITE
    ),
    Command("agent", "", "List, show, run and tick agents", Section.WORK),
    Command(
        "agent list",
        "sources.agents.commands:agents",
        "List agents and whether each can run",
        old=("agents",),
    ),
    Command(
        "agent show",
        "sources.agents.commands:show",
        "Show the definition and the tools of an agent",
    ),
    Command("agent run", "sources.agents.commands:run", "Run an agent now and show its output"),
    Command(
        "agent tick",
        "sources.crew.commands:tick",
        "Start the next tick of an agent now",
        old=("tick",),
    ),
    Command(
        "agent lifecycle",
        "sources.crew.lifecycle_commands:lifecycle",
        "Show the next ticks of a lifecycle",
        old=("lifecycle",),
    ),
    Command(
        "task",
        "sources.board.commands:task",
        "Add, schedule, move and list the tasks of a board",
        Section.WORK,
        old=("board",),
    ),
    Command(
        "trigger",
        "sources.triggers.commands:trigger",
        "Start agents by cron, webhook, issue or request",
        Section.WORK,
    ),
    Command("approval", "", "List, approve and reject runs that need approval", Section.WORK),
    Command(
        "approval list",
        "sources.triggers.commands:approvals",
        "List runs that wait for approval, oldest first",
        old=("approvals",),
    ),
    Command(
        "approval approve",
        "sources.triggers.commands:approve",
        "Approve a pending run",
        old=("approve",),
    ),
    Command(
        "approval reject", "sources.triggers.commands:deny", "Reject a pending run", old=("deny",)
    ),
    Command(
        "doctor", "cli.maintenance:doctor", "Check the installation and the ledger", Section.OPERATE
    ),
    Command(
        "service",
        "cli.service:service",
        "Install, uninstall or print a systemd or launchd unit",
        Section.OPERATE,
    ),
    Command("token", "cli.token:token", "Manage access tokens and sessions", Section.OPERATE),
    Command("config", "cli.settings:config", "Show the settings", Section.OPERATE),
    Command(
        "backup", "cli.maintenance:backup", "Write a verified copy of the ledger", Section.OPERATE
    ),
    Command(
        "restore", "cli.maintenance:restore", "Restore the ledger from a backup", Section.OPERATE
    ),
    Command(
        "prune", "cli.maintenance:prune", "Remove the details of old receipts", Section.OPERATE
    ),
    Command(
        "cluster", "", "Show and manage the nodes of a cluster", Section.OPERATE, old=("store",)
    ),
    Command("cluster nodes", "cli.cluster:nodes", "List the nodes of a cluster", old=("nodes",)),
    Command("cluster drain", "cli.cluster:drain", "Stop assigning runs to a node", old=("drain",)),
    Command(
        "cluster worker",
        "cli.up:worker",
        "Run a node that never becomes the leader",
        old=("worker",),
    ),
    Command(
        "cluster migrate",
        "cli.cluster:migrate",
        "Move the local ledger to PostgreSQL",
        old=("store migrate",),
    ),
    Command("demo", "cli.demo:demo", "Run a demo plan until Ctrl-C", Section.OPERATE),
    Command("open", "cli.token:open_", "Open the page of the running engine", Section.OPERATE),
    Command(
        "completion", "cli.service:completion", "Print a shell completion script", Section.OPERATE
    ),
    Command("query", "cli.plans:query", "Show the fields of each headline", Section.DATA),
    Command("tangle", "cli.plans:tangle", "Show the resolved workflows of a plan", Section.DATA),
)

COMMANDS: Final = {each.name: each for each in _TABLE}

# How 0.1 spelled a command -> how it is spelled now. `board` and `store` stand for all of theirs.
OLD: Final = {old: each.name for each in _TABLE for old in each.old} | {
    "board tick": "task recycle",
}

# What people type who know other programs -> what to type here.
NEAR: Final = {
    "abort": "`horae cancel`",
    "add": "`horae task add`, `horae trigger add`, or write a headline into a plan file",
    "calendar": "`horae agenda` or `horae export ics`",
    "clean": "`horae prune`",
    "create": "`horae init`, `horae task add` or `horae trigger add`",
    "daemon": "`horae up` or `horae service install`",
    "dashboard": "`horae open`",
    "delete": "`horae trigger remove` or `horae task archive`; "
    "an entry ends when its headline is deleted from the plan file",
    "describe": "`horae why` or `horae explain`",
    "disable": "`horae pause` or `horae trigger disable`",
    "down": "`horae stop`",
    "edit": "`horae task edit` or `horae trigger edit`; "
    "plan files are edited in your editor and read again by the engine",
    "enable": "`horae resume` or `horae trigger enable`",
    "entries": "`horae list`",
    "exec": "`horae run`",
    "gc": "`horae prune`",
    "health": "`horae doctor` or `horae task health`",
    "help": "`horae --help` or `horae COMMAND --help`",
    "info": "`horae why` or `horae explain`",
    "inspect": "`horae why` or `horae agent show`",
    "install": "`horae service install`",
    "jobs": "`horae list`",
    "kill": "`horae cancel`",
    "lint": "`horae check`",
    "log": "`horae logs`",
    "login": "`horae open`",
    "ls": "`horae list`",
    "migrate": "`horae cluster migrate`",
    "new": "`horae init`, `horae task add` or `horae trigger add`",
    "ps": "`horae status`",
    "purge": "`horae prune`",
    "quit": "`horae stop`",
    "reject": "`horae approval reject`",
    "reload": "The engine reads plan files again when they change; "
    "to restart it, use `horae stop` and `horae up`",
    "remove": "`horae trigger remove` or `horae task archive`; "
    "an entry ends when its headline is deleted from the plan file",
    "rerun": "`horae retry`",
    "restart": "`horae stop`, then `horae up`",
    "rm": "`horae trigger remove` or `horae task archive`; "
    "an entry ends when its headline is deleted from the plan file",
    "schedule": "`horae task schedule`, `horae trigger add` or `horae next`",
    "serve": "`horae up`",
    "server": "`horae up`",
    "settings": "`horae config`",
    "show": "`horae why`, `horae agent show`, `horae task show` or `horae trigger show`",
    "shutdown": "`horae stop`",
    "start": "`horae up` to start the engine, `horae run` to run an entry",
    "suspend": "`horae pause`",
    "tail": "`horae logs -f`",
    "tasks": "`horae task list`",
    "test": "`horae check` or `horae simulate`",
    "tokens": "`horae token list`",
    "triggers": "`horae trigger list`",
    "ui": "`horae open`",
    "uninstall": "`horae service uninstall`",
    "unpause": "`horae resume`",
    "validate": "`horae check`",
    "verify": "`horae check` or `horae doctor`",
    "version": "`horae --version`",
    "web": "`horae open`",
}

# The same inside a group: the first of these that it has.
_ALIKE: Final = {
    "create": ("add",),
    "deny": ("reject",),
    "delete": ("remove", "archive", "revoke"),
    "join": ("worker",),
    "ls": ("list", "nodes"),
    "move": ("transition",),
    "new": ("add",),
    "pause": ("disable",),
    "resume": ("enable",),
    "rm": ("remove", "archive", "revoke"),
    "start": ("run",),
    "status": ("show", "nodes"),
    "tick": ("recycle",),
    "update": ("edit",),
}


class SharedGroup(click.Group):
    """A group that accepts shared options before the command, and names near commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the shared options that stand before the command for the command."""
        return super().parse_args(ctx, self.take_shared(ctx, args))

    def take_shared(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remember the shared options in front, and return the rest."""
        shared, rest = take_shared(args)
        ctx.meta[_SHARED] = [*ctx.meta.get(_SHARED, ()), *shared]
        return rest

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command with the shared options that stand before it."""
        try:
            name, command, rest = super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise click.UsageError(
                f"{error.message} {self.hint(ctx, args[0])}".strip(), ctx
            ) from None
        if command is not None and not isinstance(command, click.Group):
            rest = [*ctx.meta.get(_SHARED, ()), *rest]
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with the first line of its help, whole."""
        found = ((word, self.get_command(ctx, word)) for word in self.list_commands(ctx))
        rows = [(word, _line(each)) for word, each in found if each and not each.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def hint(self, ctx: click.Context, word: str) -> str:
        """Return which command may be meant; nothing if none is near."""
        from difflib import get_close_matches  # only for the message

        names = self.list_commands(ctx)
        near = [each for each in _ALIKE.get(word, ()) if each in names][:1]
        near = near or get_close_matches(word, names, n=HINTS)
        return f"Did you mean {' or '.join(map(repr, near))}?" if near else ""


def _line(command: click.Command) -> str:
    """Return the first line of a command's help."""
    return (command.help or "").partition("\n\n")[0].replace("\n", " ").strip().rstrip(".")


class LazyGroup(SharedGroup):
    """A group that imports a command only when it is called; the table has the help lines."""

    def __init__(self, *args: Any, prefix: str = "", **given: Any) -> None:
        super().__init__(*args, **given)
        self._prefix = prefix

    def rows(self) -> list[tuple[str, Command]]:
        """Return the commands of this group, in the order of the table."""
        found = ((each.name.removeprefix(self._prefix), each) for each in COMMANDS.values())
        own = [(word, row) for word, row in found if " " not in word]
        return [(word, row) for word, row in own if row.name == f"{self._prefix}{word}"]

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
        """Write the commands with their lines of the table, without loading one."""
        rows = self.rows()
        sections = {row.section for _, row in rows if row.section is not None}
        if not sections:
            with formatter.section("Commands"):
                formatter.write_dl([(word, row.help) for word, row in rows])
        width = max(len(word) for word, _ in rows)
        for section in (each for each in Section if each in sections):
            with formatter.section(section):
                formatter.write_dl(
                    [(word.ljust(width), row.help) for word, row in rows if row.section is section]
                )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin like this, without loading one."""
        found = [
            CompletionItem(word, help=row.help)
            for word, row in self.rows()
            if word.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


class Horae(LazyGroup):
    """The commands of `horae`; spellings of 0.1 are understood."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that *args* name, also by its old name."""
        return super().resolve_command(ctx, _renamed(ctx, args))

    def hint(self, ctx: click.Context, word: str) -> str:
        """Return what to type instead."""
        if word not in NEAR:
            return super().hint(ctx, word)
        said = NEAR[word]
        return f"Use {said}." if said.startswith("`") else f"{said}."


def _renamed(ctx: click.Context, args: list[str]) -> list[str]:
    """Return the arguments with the name that a command has now; an old one is named on stderr."""
    shared, rest = take_shared(args[1:])  # they may stand between a group and its command
    words = [*args[:1], *rest]
    for count in (2, 1):
        old = " ".join(words[:count])
        if len(words) < count or old not in OLD:
            continue
        new, rest = OLD[old], words[count:]
        if not ctx.resilient_parsing:
            form = asked_form([*ctx.meta.get(_SHARED, ()), *args])
            _tell_renamed(_full(old, rest), _full(new, rest), form)
        return [*new.split(), *shared, *rest]
    return args


def _full(name: str, rest: list[str]) -> str:
    """Return a command's name, with the command of a group that was renamed as a whole."""
    is_group = name in COMMANDS and (not COMMANDS[name].place or name == "task")
    is_group = is_group or name in {"board", "store"}
    word = rest[0] if rest and is_group and not rest[0].startswith("-") else ""
    return f"horae {name} {word}".strip()


def _tell_renamed(old: str, new: str, form: Form) -> None:
    """Say on stderr how a command is spelled now."""
    message = f"`{old}` is now `{new}`"
    if form is Form.TABLE:
        echo(f"horae: {message}", err=True)
    else:
        print_notice({"code": "renamed", "message": message, "facts": {"old": old, "new": new}})


@click.group(
    cls=Horae,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 ok, 1 failed or problems found, 2 usage, 3 engine unreachable, "
    "4 not found, 5 verification failed, 6 conflict, 7 not authorised, 75 temporary failure, "
    "124 timed out, 130 interrupted.",
)
@click.version_option(__version__, prog_name="horae", message="%(prog)s %(version)s")
@click.pass_context
def horae(ctx: click.Context) -> None:
    """Run commands, workflows and coding agents on a schedule.

    The options --root, --data, --json, --tz and --at can also be given before a command that has
    them.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
