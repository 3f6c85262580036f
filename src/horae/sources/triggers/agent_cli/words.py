"""What the words of `agent` share: the groups, how they fail, and how they print."""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from horae import __version__
from horae.cli.output import Form, clean, echo, print_error, print_json, usual_form
from horae.errors import Exit, HoraeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from horae.sources.triggers.commands import Room
    from horae.sources.triggers.service import Triggers

LONGEST: Final = 60  # characters of a template that are shown
_RULE: Final = 80
# Family -> its words; its module is loaded when one of them is said, and adds them here.
FAMILIES: Final = {
    "workflows": (
        "create-workflow",
        "list-workflows",
        "get-workflow",
        "update-workflow",
        "delete-workflow",
        "dispatch-history",
        "workflow-history",
        "trigger-workflow",
        "validate-template",
    ),
    "agents": (
        "create-agent",
        "list-agents",
        "get-agent",
        "delete-agent",
        "get-policy",
        "set-policy",
        "set-model",
        "add-dir",
        "remove-dir",
        "clear-context",
        "send-message",
    ),
    "watching": (
        "logs",
        "attach",
        "stream",
        "usage",
        "health",
    ),
    "approvals": (
        "list-approvals",
        "approve",
        "deny",
    ),
    "files": (
        "apply",
        "teardown",
    ),
}
_FAMILY: Final = {word: family for family, words in FAMILIES.items() for word in words}


class AgentCommandError(HoraeError):
    """A command line of `agent` that says not enough, or names nobody."""

    code = "agent_command"


class Here(NamedTuple):
    """How one call answers, and where its ledger is."""

    is_json: bool
    root: str
    data: str | None

    def read(self, work: Callable[[Triggers], Awaitable[Any]]) -> Any:
        """Return the answer to a question."""
        return self.room().read(work)

    def write(self, work: Callable[[Triggers], Awaitable[Any]]) -> Any:
        """Do what a person asks for, and return what became of it."""
        return self.room().write(work)

    def room(self) -> Room:
        """Return where triggers are kept."""
        from horae.sources.triggers.commands import (
            Room,  # not to say a version, or what words there are
        )

        return Room(root=self.root, data=self.data)


class Family(click.Group):
    """A group whose words come from modules that are loaded when they are needed."""

    words: tuple[str, ...] = ()

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all words, loaded or not."""
        return sorted({*super().list_commands(ctx), *self.words})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a word, from its module."""
        if cmd_name in self.words:
            import_module(f"horae.sources.triggers.agent_cli.{_FAMILY[cmd_name]}")
        return super().get_command(ctx, cmd_name)


class Words(Family):
    """A group whose errors are said as the document's program says them."""

    words = FAMILIES["files"]

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; whatever it cannot do ends with exit code 1."""
        try:
            return super().invoke(ctx)
        except HoraeError as error:
            if isinstance(ctx.obj, Here) and ctx.obj.is_json:
                print_error(error.data())
            else:
                from horae.sources.triggers.service import api_words

                echo(f"Error: {api_words(error)}", err=True)
            return int(Exit.FINDINGS)


@click.group(cls=Words, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
@click.option("--root", default=".", metavar="DIR", help="The plan root.")
@click.option("--data", metavar="DIR", help="The data directory; default: .horae in the plan root.")
@click.version_option(__version__, prog_name="agent", message="%(prog)s %(version)s")
@click.pass_context
def agent(ctx: click.Context, *, is_json: bool, root: str, data: str | None) -> None:
    """Manage agents, and workflows that start them."""
    ctx.obj = Here(is_json or usual_form() is not Form.TABLE, root, data)


class Requests(Family):
    """A group of words that are one request each."""

    words = tuple(word for word, family in _FAMILY.items() if family != "files")


@agent.group(cls=Requests)
def orchestrator() -> None:
    """Manage agents and workflows one by one."""


@contextmanager
def failing(what: str) -> Iterator[None]:
    """Say in front of an error what could not be done."""
    try:
        yield
    except HoraeError as error:
        from horae.sources.triggers.service import api_words

        raise AgentCommandError(f"Failed to {what}: {api_words(error)}") from error


async def every(page: Callable[..., Awaitable[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return every item of a list, page after page."""
    found: list[dict[str, Any]] = []
    while True:
        part = await page(limit=200, offset=len(found))
        found += part["items"]
        if not part["items"] or len(found) >= part["total"]:
            return found


# Printing


def dispatch_lines(dispatch: Mapping[str, Any]) -> list[str]:
    facts = {
        "ID": dispatch["id"],
        "Workflow": dispatch["workflow"],
        "Source ID": dispatch["source_id"],
        "Status": dispatch["status"],
        "Dispatched": dispatch["dispatched_at"],
    }
    if dispatch["completed_at"]:
        facts["Completed"] = dispatch["completed_at"]
    if dispatch["status"] in {"skipped", "failed", "pending"}:
        facts["Reason"] = dispatch["reason"]
    if dispatch["count"] > 1:
        facts["Fire Times"] = str(dispatch["count"])
    return [f"{name + ':':<14}{value}" for name, value in facts.items()]


def say_notes(made: Mapping[str, Any]) -> None:
    """Say on stderr what somebody should know of what was made."""
    for note in made.get("notes", ()):
        echo(f"Note: {note}", err=True)


def print_one(here: Here, data: object, lines: Sequence[str]) -> int:
    if here.is_json:
        print_json(data)
    else:
        for line in lines:
            echo(clean(line).replace("\n", "\\n"))
    return Exit.OK


def print_list(
    here: Here,
    found: Sequence[Mapping[str, Any]],
    title: str,
    lines: Callable[[Mapping[str, Any]], list[str]],
    *,
    word: str,
    empty: str,
) -> int:
    """Print a list, block after block; as JSON it is an array."""
    if here.is_json:
        print_json(found)
        return Exit.OK
    if not found:
        echo(empty)
        return Exit.OK
    echo(f"{title}:\n{'=' * _RULE}")
    for each in found:
        for line in lines(each):
            echo(clean(line).replace("\n", "\\n"))
        echo("-" * _RULE)
    plural = "es" if word.endswith("ch") else "s"
    echo(f"Total: {len(found)} {word}({plural})")
    return Exit.OK


def short(value: object) -> str:
    """Return a value as JSON that fits on a line."""
    import json

    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
