"""`trigger`, `approvals`, `approve` and `deny`: what starts agents from outside of plans."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from horae.cli.connection import Dial, Place, reader_of, write_with
from horae.cli.group import SharedGroup
from horae.cli.options import place_options
from horae.cli.output import Form, Output, echo, form_options, print_answer, print_json, print_line
from horae.config import known_names, load, secrets_of
from horae.context import Context, find_agents
from horae.core.actor import actor_words
from horae.core.decide import Status
from horae.core.policy import PROPERTIES
from horae.core.reason import ReasonCode
from horae.errors import Exit, HoraeError
from horae.sources.triggers.apply import apply_changes, plan_files, plan_teardown
from horae.sources.triggers.kinds import KINDS, TriggerError, kind_of
from horae.sources.triggers.rules import OPTIONS, DispatchStatus
from horae.sources.triggers.service import (
    EDITS,
    RUNS,
    TriggerConflictError,
    TriggerNotFoundError,
    Triggers,
)
from horae.sources.triggers.webhook import STANDARD_PREFIX, Scheme
from horae.store.ledger import ANYBODY
from horae.store.sqlite import SqliteLedger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
    from typing import TypeVar

    from horae.cli.client import Far
    from horae.config import Config
    from horae.sources.triggers.apply import FileChange
    from horae.sources.triggers.source import Folder
    from horae.store.ledger import BookLedger

    T = TypeVar("T")

_EVENTS: Final = "session_start, session_end or context_clear"
_NEW: Final = ""  # asks for a secret that is made


class Room:
    """Where triggers are kept, and the settings that say what an agent without a command runs."""

    def __init__(self, *, root: str, data: str | None) -> None:
        self.root = root
        self.place = Place.of(root=root, data=data)
        self._config: Config = load(root, flags={"data": data})
        self._names: frozenset[str] | None = None

    def read(self, work: Callable[[Triggers], Awaitable[T]]) -> T:
        """Return the answer to a question; an engine that runs is not disturbed."""

        async def asking() -> T:
            async with self._looking() as ledger:
                return await work(self._triggers(ledger, may_call=False))

        return asyncio.run(asking())

    def write(self, work: Callable[[Triggers], Awaitable[T]]) -> T:
        """Do what a person asks for: through the engine that runs, else with one's own hand."""
        is_alone = False

        async def alone(ledger: BookLedger) -> T:
            nonlocal is_alone
            is_alone = self.place.store is None
            return await work(self._triggers(ledger))

        done = write_with(self.place, lambda far: asyncio.run(self._through(far, work)), alone)
        if is_alone:
            where = self.place.directory
            echo(
                f"no engine is running; the change is stored in {where} and used after `horae up`",
                err=True,
            )
        return done

    @asynccontextmanager
    async def _looking(self) -> AsyncIterator[BookLedger]:
        """Open the ledger to read it; where there is none yet, an empty one is looked at."""
        if self.place.is_known:
            async with reader_of(self.place) as ledger:
                yield ledger
            return
        ledger = await SqliteLedger.in_memory()
        try:
            yield ledger
        finally:
            await ledger.close()

    async def _through(self, far: Far, work: Callable[[Triggers], Awaitable[T]]) -> T:
        async with self._looking() as ledger:
            return await work(FarTriggers(far, **self._parts(ledger)))

    def _triggers(self, ledger: BookLedger, *, may_call: bool = True) -> Triggers:
        return Triggers(**self._parts(ledger, may_call=may_call))

    def _parts(self, ledger: BookLedger, *, may_call: bool = True) -> dict[str, Any]:
        secrets = secrets_of(self._config, may_call=may_call)
        return self._context(ledger).trigger_parts(others=self._others, secrets=secrets)

    def _context(self, ledger: BookLedger) -> Context:
        # On one that is shared a person may write in any term.
        term = 1 if self.place.store is None else ANYBODY
        return Context(self._config, Path(self.root).absolute(), Dial(), ledger, term)

    def _others(self) -> frozenset[str]:
        """Return the agents that plans and settings define."""
        if self._names is None:
            found = find_agents(self._config, say=Output(Form.TABLE).report)
            self._names = frozenset(each.name for each in found.registry)
        return self._names


class FarTriggers(Triggers):
    """Triggers beside a running engine: read here, changed there."""

    def __init__(self, far: Far, **parts: Any) -> None:
        super().__init__(**parts)
        self._far = far


def _remote(method: str) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Return a method of the service that the engine carries out."""
    from inspect import signature

    local = getattr(Triggers, method)

    @wraps(local)
    async def call(self: FarTriggers, *args: Any, **named: Any) -> dict[str, Any]:
        given = signature(local).bind(self, *args, **named)
        given.apply_defaults()
        body = {name: value for name, value in given.arguments.items() if name != "self"}
        said: dict[str, Any] = self._far.post("triggers", method, body=body)
        return said

    return call


for _method in (*EDITS, *RUNS):
    setattr(FarTriggers, _method, _remote(_method))


# horae trigger


@click.group(cls=SharedGroup)
def trigger() -> None:
    """Start agents by cron, webhook, issue or request."""


def definition_options(command: Callable[..., Any], *, is_new: bool) -> Callable[..., Any]:
    """Give a command all that says what a trigger is; a new one needs an agent and a prompt."""
    agent = "The agent that the trigger starts"
    prompt = "The prompt for the agent; {{names}} are replaced."
    options = [
        click.option(
            "--agent", metavar="NAME", help=f"{agent} (required)." if is_new else f"{agent}."
        ),
        click.option("--cron", metavar="EXPR", help="Run by this cron expression, in UTC or --tz."),
        click.option(
            "--at",
            "run_at",
            metavar="T",
            help="Run once, such as 2026-04-01T09:00:00Z; a time in the past runs at once.",
        ),
        click.option(
            "--webhook",
            "secret",
            is_flag=False,
            flag_value=_NEW,
            metavar="[SECRET]",
            help="Run for each message signed with SECRET; default: a new one.",
        ),
        click.option(
            "--scheme",
            type=click.Choice([each.value for each in Scheme]),
            help="How messages are signed; default: standard.",
        ),
        click.option("--issues", metavar="OWNER/REPO", help="Run for each new issue on GitHub."),
        click.option(
            "--pulls", metavar="OWNER/REPO", help="Run for each new pull request on GitHub."
        ),
        click.option("--label", "labels", multiple=True, help="Only issues with this label."),
        click.option(
            "--after",
            metavar="NAME",
            help="Run after another trigger ends, by name or id; `all`: every other trigger.",
        ),
        click.option(
            "--on", "event", metavar="EVENT", help=f"Run on an event of the agent: {_EVENTS}."
        ),
        click.option("--manual", is_flag=True, help="Run only on request."),
        click.option("--tz", metavar="ZONE", help="The time zone of --cron."),
        click.option(
            "--prompt",
            metavar="TEXT",
            help=f"{prompt} Required, unless --prompt-file is given." if is_new else prompt,
        ),
        click.option("--prompt-file", metavar="FILE", help="Read the prompt from a file."),
        click.option(
            "--tools",
            "tools",
            metavar="JSON",
            help='The tool policy, such as {"mode": "deny_all"}.',
        ),
        click.option("--every", type=int, metavar="S", help="Seconds between checks of GitHub."),
        *(
            click.option(
                f"--{each.option.replace('_', '-')}",
                each.option,
                metavar=each.metavar,
                help=each.help,
            )
            for each in PROPERTIES
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@trigger.command()
@click.argument("name")
@partial(definition_options, is_new=True)
@click.option("--disabled", is_flag=True, help="Create the trigger disabled.")
@place_options
@form_options
def add(
    name: str, *, disabled: bool, root: str, data: str | None, form: str | None, **given: Any
) -> int:
    """Add a trigger."""
    output = Output.of(form)
    given, secret = _with_secret(given)
    if given["secret"] is not None and given["scheme"] is None:
        given["scheme"] = Scheme.STANDARD
    said = {"name": name, "enabled": not disabled, **definition_of(given)}
    if "trigger_config" not in said:
        raise click.UsageError(
            "name what starts the trigger: --cron, --at, --webhook, --issues, --pulls, --after, "
            "--on or --manual."
        )
    if "prompt_template" not in said:
        raise click.UsageError("missing option: --prompt or --prompt-file.")
    if "agent" not in said:
        raise click.UsageError("missing option: --agent.")

    async def make(triggers: Triggers) -> dict[str, Any]:
        with _naming(said["agent"]):
            return await triggers.create(await _with_source(triggers, said))

    made = Room(root=root, data=data).write(make)
    _print_with_secret(output, made, f"{made['name']} is created: {made['id']}", secret)
    return Exit.OK


@trigger.command("list")
@click.option(
    "-n",
    "limit",
    default=50,
    show_default=True,
    type=click.IntRange(1, 200),
    metavar="N",
    help="Show at most N.",
)
@click.option("--offset", default=0, type=click.IntRange(0), metavar="N", help="Skip the newest N.")
@place_options
@form_options
def list_(*, limit: int, offset: int, root: str, data: str | None, form: str | None) -> int:
    """List the triggers, newest first."""
    output = Output.of(form)

    async def looking(triggers: Triggers) -> tuple[dict[str, Any], dict[str, str]]:
        page = await triggers.page(limit=limit, offset=offset)
        return page, await _source_names(triggers, page["items"])

    page, sources = Room(root=root, data=data).read(looking)
    rows = [
        (
            each["name"],
            _state(each),
            each["agent"],
            kind_of(each["trigger_config"]).describe(sources),
            each["id"],
        )
        for each in page["items"]
    ]
    names = ("name", "state", "agent", "when", "id")
    _print_many(output, page["items"], names, rows, empty="no triggers")
    left = page["total"] - offset - len(rows)
    if left > 0 and output.form is Form.TABLE:
        echo(f"there are {left} more: --offset {offset + len(rows)}")
    return Exit.OK


@trigger.command()
@click.argument("name")
@place_options
@form_options
def show(name: str, *, root: str, data: str | None, form: str | None) -> int:
    """Show a trigger, by its name or its id."""
    output = Output.of(form)

    async def looking(triggers: Triggers) -> tuple[dict[str, Any], dict[str, str]]:
        found = await triggers.get(name)
        return found, await _source_names(triggers, [found])

    found, sources = Room(root=root, data=data).read(looking)
    waits = kind_of(found["trigger_config"]).describe(sources)
    lines = [
        f"{found['name']}  {found['id']}",
        f"{_state(found)}, starts {found['agent']}, waits for {waits}",
        f"created {found['created_at']}, changed {found['updated_at']}",
        *([f"from {found['file']}"] if found["file"] else []),
        "",
        found["prompt_template"],
    ]
    _print_one(output, found, "\n".join(lines))
    return Exit.OK


@trigger.command()
@click.argument("name")
@click.option("--name", "other", metavar="NAME", help="The new name.")
@partial(definition_options, is_new=False)
@place_options
@form_options
def edit(
    name: str,
    *,
    other: str | None,
    root: str,
    data: str | None,
    form: str | None,
    **given: Any,
) -> int:
    """Edit a trigger.

    Fields that are not named are kept; the change takes effect at once.
    """
    output = Output.of(form)
    room = Room(root=root, data=data)
    given, secret = _with_secret(given)
    zone = given["tz"]

    async def change(triggers: Triggers) -> dict[str, Any]:
        said = {"name": other, **definition_of({**given, "tz": None})}
        if zone is not None:
            config = said.get("trigger_config") or (await triggers.get(name))["trigger_config"]
            said["trigger_config"] = {**config, "timezone": zone}
        with _naming(given["agent"]):
            return await triggers.update(name, await _with_source(triggers, said))

    made = room.write(change)
    is_named = other is not None or any(each not in {None, ()} for each in given.values())
    text = "is changed" if is_named else "is unchanged; name a field to change, such as --cron"
    _print_with_secret(output, made, f"{made['name']} {text}", secret)
    return Exit.OK


@trigger.command()
@click.argument("name")
@click.option("--secret", metavar="SECRET", help="The new secret; default: a generated one.")
@click.option("--end", "is_end", is_flag=True, help="Stop accepting the older secret.")
@place_options
@form_options
def rotate(
    name: str, *, secret: str | None, is_end: bool, root: str, data: str | None, form: str | None
) -> int:
    """Rotate the secret of a webhook.

    Both secrets are valid until you run this command with --end.
    """
    output = Output.of(form)
    if is_end and secret is not None:
        raise click.UsageError("--end takes no --secret.")
    made_now = "" if is_end or secret is not None else new_secret()
    chosen = None if is_end else secret or made_now
    made = Room(root=root, data=data).write(lambda triggers: triggers.rotate(name, chosen))
    text = f"{made['name']} accepts two secrets until `horae trigger rotate {made['name']} --end`"
    text = f"{made['name']} accepts one secret" if is_end else text
    _print_with_secret(output, made, text, made_now)
    return Exit.OK


@trigger.command()
@click.argument("name")
@place_options
@form_options
def enable(name: str, *, root: str, data: str | None, form: str | None) -> int:
    """Enable a trigger.

    A one-time trigger (--at) whose time has passed runs at once.
    """
    return _turn(name, root=root, data=data, form=form, on=True)


@trigger.command()
@click.argument("name")
@place_options
@form_options
def disable(name: str, *, root: str, data: str | None, form: str | None) -> int:
    """Disable a trigger and skip its waiting runs."""
    return _turn(name, root=root, data=data, form=form, on=False)


@trigger.command()
@click.argument("name")
@place_options
@form_options
def remove(name: str, *, root: str, data: str | None, form: str | None) -> int:
    """Remove a trigger.

    Its receipts stay in the ledger.
    """
    output = Output.of(form)
    gone = Room(root=root, data=data).write(lambda triggers: triggers.delete(name))
    _print_one(output, gone, f"{gone['name']} is removed")
    return Exit.OK


@trigger.command("run")
@click.argument("name")
@click.option("--title", default="", help="The value of {{title}}.")
@click.option("--body", default="", help="The value of {{body}}.")
@click.option(
    "--key", metavar="KEY", help="An idempotency key: the same key returns the same receipt."
)
@place_options
@form_options
def run_(
    name: str,
    *,
    title: str,
    body: str,
    key: str | None,
    root: str,
    data: str | None,
    form: str | None,
) -> int:
    """Run the agent of a trigger now."""
    output = Output.of(form)
    said = {"title": title, "body": body}

    async def requested(triggers: Triggers) -> tuple[dict[str, Any], str]:
        made = await triggers.trigger_now(name, said, key=key)
        now = await triggers.receipt_status(made["receipt"])
        # The engine may have started the run since it answered.
        if made["status"] == DispatchStatus.PENDING and now != Status.HELD:
            now = Status.WAITING
        return made, now

    made, status = Room(root=root, data=data).write(requested)
    text = f"{made['workflow']}: receipt {made['receipt']}, {status} ({made['reason']})"
    _print_one(output, made, text)
    return Exit.OK


@trigger.command()
@click.argument("name")
@click.option(
    "-n",
    "limit",
    default=50,
    show_default=True,
    type=click.IntRange(1, 200),
    metavar="N",
    help="Show at most N.",
)
@click.option("--offset", default=0, type=click.IntRange(0), metavar="N", help="Skip the newest N.")
@place_options
@form_options
def history(
    name: str, *, limit: int, offset: int, root: str, data: str | None, form: str | None
) -> int:
    """List the receipts of a trigger, newest first."""
    output = Output.of(form)
    page = Room(root=root, data=data).read(
        lambda triggers: triggers.history(name, limit=limit, offset=offset)
    )
    rows = [
        (
            str(each["receipt"]),
            each["planned_at"],
            each["source_id"],
            each["status"],
            "; ".join(filter(None, (each["reason"], _approval_words(each)))),
        )
        for each in page["items"]
    ]
    names = ("receipt", "scheduled", "key", "status", "reason")
    _print_many(output, page["items"], names, rows, empty="no receipts")
    return Exit.OK


@trigger.command()
@click.argument("path")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@place_options
@form_options
def apply(path: str, *, dry_run: bool, root: str, data: str | None, form: str | None) -> int:
    """Create and update agents and triggers from files.

    PATH is a file or a directory such as .agentd. All files are checked before anything is
    changed.
    """
    output = Output.of(form)
    room = Room(root=root, data=data)
    folder = read_files(path, base=root)
    changes = applied(room, folder, dry_run=dry_run)
    print_changes(output, changes, dry_run=dry_run)
    return Exit.OK


@trigger.command()
@click.argument("path")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@place_options
@form_options
def teardown(path: str, *, dry_run: bool, root: str, data: str | None, form: str | None) -> int:
    """Remove the triggers and agents that files define.

    PATH is a file or a directory such as .agentd.
    """
    output = Output.of(form)
    room = Room(root=root, data=data)
    changes = torn_down(room, read_files(path, base=root), dry_run=dry_run)
    print_changes(output, changes, dry_run=dry_run)
    return Exit.OK


# Approvals


@click.command()
@place_options
@form_options
def approvals(*, root: str, data: str | None, form: str | None) -> int:
    """List runs that wait for approval, oldest first."""
    output = Output.of(form)
    found = Room(root=root, data=data).read(lambda triggers: triggers.approvals())
    rows = [
        (str(each["receipt"]), each["workflow"], each["agent"], each["expires_at"], each["prompt"])
        for each in found
    ]
    names = ("receipt", "trigger", "agent", "until", "prompt")
    _print_many(output, found, names, rows, empty="no runs are waiting for approval")
    return Exit.OK


@click.command()
@click.argument("receipt", type=click.IntRange(1, 2**62))
@place_options
@form_options
def approve(receipt: int, *, root: str, data: str | None, form: str | None) -> int:
    """Approve a pending run.

    RECEIPT is its number in `horae approval list`.
    """
    output = Output.of(form)
    done = Room(root=root, data=data).write(lambda triggers: triggers.approve(receipt))
    _print_one(output, done, f"{done['workflow']}: receipt {receipt} may start")
    return Exit.OK


@click.command()
@click.argument("receipt", type=click.IntRange(1, 2**62))
@click.option("--reason", default="", metavar="TEXT", help="The reason, shown with the receipt.")
@place_options
@form_options
def deny(receipt: int, *, reason: str, root: str, data: str | None, form: str | None) -> int:
    """Reject a pending run.

    RECEIPT is its number in `horae approval list`; the run never starts.
    """
    output = Output.of(form)
    done = Room(root=root, data=data).write(lambda triggers: triggers.deny(receipt, reason=reason))
    _print_one(output, done, f"{done['workflow']}: receipt {receipt} will not start")
    return Exit.OK


# What both spellings share


def _approval_words(dispatch: Mapping[str, Any]) -> str:
    """Return who approved a dispatch, unless its reason says so; nothing if nobody had to."""
    by = dispatch["approved_by"]
    if not by or dispatch.get("reason_code") == ReasonCode.APPROVED:
        return ""
    return f"approved by {actor_words(by) if ':' in by else by}"  # once it was a bare name


def read_files(path: str, *, base: str) -> Folder:
    """Return what the files say if all can be used; what is odd about them is said on stderr."""
    from horae.sources.triggers.source import read_folder

    folder = read_folder(path, environ=known_names(load(base)), base=base)
    for warning in folder.warnings:
        echo(f"horae: {warning}", err=True)
    return folder.checked()


def applied(room: Room, folder: Folder, *, dry_run: bool) -> list[FileChange]:
    async def plan(triggers: Triggers) -> list[FileChange]:
        return await plan_files(triggers, folder.agents, folder.workflows)

    async def change(triggers: Triggers) -> list[FileChange]:
        changes = await plan(triggers)
        await apply_changes(triggers, changes)
        return changes

    changes = room.read(plan) if dry_run else room.write(change)
    for note in (note for each in changes for note in each.notes):
        echo(f"horae: {note}; {note.fix}", err=True)
    return changes


def torn_down(room: Room, folder: Folder, *, dry_run: bool) -> list[FileChange]:
    """Return what went, or would, when what files made is taken down."""

    async def plan(triggers: Triggers) -> list[FileChange]:
        return await plan_teardown(triggers, folder.agents, folder.workflows)

    async def change(triggers: Triggers) -> list[FileChange]:
        changes = await plan(triggers)
        await apply_changes(triggers, changes)
        return changes

    return room.read(plan) if dry_run else room.write(change)


def definition_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what options say of a trigger, in the words of the API."""
    said: dict[str, Any] = {name: given[name] for name in OPTIONS if given.get(name) is not None}
    if given.get("agent") is not None:
        said["agent"] = given["agent"]
    prompt = prompt_of(given.get("prompt"), given.get("prompt_file"))
    if prompt is not None:
        said["prompt_template"] = prompt
    if given.get("every") is not None:
        said["poll_interval_secs"] = given["every"]
    if given.get("tools") is not None:
        said["tool_policy"] = parse_json(given["tools"], "--tools")
    config = _config(given)
    if config is not None:
        said["trigger_config"] = config
    return said


@contextmanager
def _naming(agent: str | None) -> Iterator[None]:
    """Name the agent in the error that the API words without it, and call a trigger a trigger."""
    try:
        yield
    except HoraeError as error:
        if error.code == TriggerConflictError.code:
            reason = str(error).replace("workflow", "trigger", 1)
            raise TriggerConflictError(reason) from None
        if agent is None or not str(error).endswith("Agent not found"):
            raise
        reason = f"there is no agent {agent!r}; `horae agent list` lists the agents"
        raise TriggerError(reason, field="agent") from None


def new_secret() -> str:
    """Return a secret that nobody can guess."""
    from base64 import b64encode
    from secrets import token_bytes

    return f"{STANDARD_PREFIX}{b64encode(token_bytes(32)).decode()}"


def _with_secret(given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    if given["secret"] != _NEW:
        return dict(given), ""
    made = new_secret()
    return {**given, "secret": made}, made


def _print_with_secret(output: Output, made: Mapping[str, Any], text: str, secret: str) -> None:
    """Print one answer, and a secret that was just made; it is never shown again."""
    shown = {"secret": secret} if secret else {}
    more = f"\nsecret (shown only once): {secret}" if secret else ""
    _print_one(output, {**made, **shown}, f"{text}{more}")


def _config(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a trigger waits for, if options say so."""
    if given.get("scheme") is not None and given.get("secret") is None:
        raise click.UsageError("--scheme requires --webhook.")
    found = [
        kind.of_option(given[kind.option], given)
        for kind in KINDS.values()
        if given.get(kind.option) not in {None, False}
    ]
    if len(found) > 1:
        raise click.UsageError("a trigger has one start condition; name only one.")
    return found[0] if found else None


async def _with_source(triggers: Triggers, said: dict[str, Any]) -> dict[str, Any]:
    """Return what is said of a trigger, with the id of the one that it follows for its name."""
    config = said.get("trigger_config", {})
    if config.get("source_workflow_id") is None:
        return said
    source = await triggers.find_only(config["source_workflow_id"])
    return {**said, "trigger_config": {**config, "source_workflow_id": source.id}}


def prompt_of(text: str | None, file: str | None) -> str | None:
    """Return the template that options give."""
    from horae.files.read import read_plan

    if text is not None and file is not None:
        raise click.UsageError("give the prompt or its file, not both.")
    return read_plan(file).text if file is not None else text


def parse_json(text: str, name: str) -> dict[str, Any]:
    """Return the object that an option holds."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise TriggerError(f'{name} must be a JSON object such as {{"mode": "deny_all"}}')
    return said


async def _source_names(triggers: Triggers, items: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the names of the triggers that others follow, by id; one that is gone has none."""
    ids = {each["trigger_config"].get("source_workflow_id") for each in items} - {None}
    names = {}
    for each in ids:
        with suppress(TriggerNotFoundError):  # one that was removed has no name
            names[each] = (await triggers.find(each)).definition.name
    return names


def print_changes(output: Output, changes: Sequence[FileChange], *, dry_run: bool) -> None:
    if output.form is not Form.TABLE:
        rows = [each.data() for each in changes]
        if output.form is Form.JSON:
            print_json(rows)
        else:
            for row in rows:
                print_line(row)
        return
    for change in changes:
        echo(f"{change.verb} {change.what} {change.name}  {change.place}")
        for name, old, new in change.diff:
            echo(f"    {name}: {_short(old)} → {_short(new)}")
    count = sum(each.verb not in {"unchanged", "skip"} for each in changes)
    word = "would be changed" if dry_run else "changed"
    echo(f"{count} of {len(changes)} {word}")


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _turn(name: str, *, root: str, data: str | None, form: str | None, on: bool) -> int:
    output = Output.of(form)
    made = Room(root=root, data=data).write(lambda triggers: triggers.update(name, {"enabled": on}))
    _print_one(output, made, f"{made['name']} is {_state(made)}")
    return Exit.OK


def _state(workflow: Mapping[str, Any]) -> str:
    return "enabled" if workflow["enabled"] else "disabled"


def _print_one(output: Output, data: Mapping[str, Any], text: str) -> None:
    """Print one answer, and on stderr what somebody should know of it."""
    for note in data.get("notes", ()):
        echo(f"horae: {note}", err=True)
    print_answer(output, data, text)


def _print_many(
    output: Output,
    items: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    empty: str,
) -> None:
    """Print a list: rows for people, an array for programs."""
    match output.form:
        case Form.TABLE if not rows:
            echo(empty)
        case Form.TABLE:
            from rich.table import Table

            from horae.cli.tables import console, safe

            table = Table(box=None, pad_edge=False, header_style="bold")
            for name in names:
                table.add_column(name, overflow="fold")
            for row in rows:
                table.add_row(*map(safe, row))
            console().print(table)
        case Form.JSON:
            print_json(items)
        case Form.JSONL:
            for item in items:
                print_line(item)
