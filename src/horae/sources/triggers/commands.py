"""`trigger`, `approvals`, `approve` and `deny`: what starts agents from outside of plans."""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from horae.cli.group import SharedGroup
from horae.cli.options import place_options
from horae.cli.output import Form, Output, echo, form_options, print_answer, print_rows
from horae.cli.trigger_access import TriggerAccess
from horae.config import known_names, load
from horae.core.actor import actor_words
from horae.core.entry import PROPERTIES
from horae.core.receipt import ReasonCode, Status
from horae.errors import Exit, HoraeError
from horae.sources.triggers.apply import apply_changes, plan_files, plan_teardown
from horae.sources.triggers.kinds import KINDS, TriggerError, kind_of
from horae.sources.triggers.rules import OPTIONS, DispatchStatus
from horae.sources.triggers.service import TriggerConflictError, TriggerNotFoundError
from horae.sources.triggers.webhook import STANDARD_PREFIX, Scheme

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from typing import TypeVar

    from horae.sources.triggers.apply import FileChange
    from horae.sources.triggers.service import Triggers
    from horae.sources.triggers.source import Folder

    T = TypeVar("T")

_EVENTS: Final = "session_start, session_end or context_clear"
_NEW: Final = ""  # asks for a secret that is made


class TriggerCall(NamedTuple):
    """One call of a command: how it prints, and where its triggers are."""

    output: Output
    root: str
    data: str | None

    @property
    def access(self) -> TriggerAccess:
        return TriggerAccess(root=self.root, data=self.data)

    def read(self, work: Callable[[Triggers], Awaitable[T]]) -> T:
        return self.access.read(work)

    def write(self, work: Callable[[Triggers], Awaitable[T]]) -> T:
        return self.access.write(work)

    def print(self, data: Mapping[str, Any], text: str) -> None:
        """Print one answer, and its notes on stderr."""
        for note in data.get("notes", ()):
            echo(f"horae: {note}", err=True)
        print_answer(self.output, data, text)

    def print_many(
        self,
        items: Sequence[Mapping[str, Any]],
        names: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        empty: str,
    ) -> None:
        """Print a list: rows for people, an array for programs."""

        def table() -> None:
            if not rows:
                echo(empty)
                return
            from rich.table import Table

            from horae.cli.tables import console, safe

            table = Table(box=None, pad_edge=False, header_style="bold")
            for name in names:
                table.add_column(name, overflow="fold")
            for row in rows:
                table.add_row(*map(safe, row))
            console().print(table)

        print_rows(self.output, items, table)


def _call(command: Callable[..., None]) -> Callable[..., int]:
    """Give a command the options of place and form, as its first argument."""

    @place_options
    @form_options
    @wraps(command)
    def called(*args: Any, root: str, data: str | None, form: str | None, **given: Any) -> int:
        command(TriggerCall(Output.of(form), root, data), *args, **given)
        return Exit.OK

    return called


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
            help="Run after each run of this trigger (name or id); `all`: of every other trigger.",
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


_PAGE: Final = (
    click.option(
        "-n",
        "limit",
        default=50,
        show_default=True,
        type=click.IntRange(1, 200),
        metavar="N",
        help="Show at most N.",
    ),
    click.option(
        "--offset", default=0, type=click.IntRange(0), metavar="N", help="Skip the newest N."
    ),
)


def _page_options(command: Callable[..., Any]) -> Callable[..., Any]:
    limit, offset = _PAGE
    return limit(offset(command))


@trigger.command()
@click.argument("name")
@partial(definition_options, is_new=True)
@click.option("--disabled", is_flag=True, help="Create the trigger disabled.")
@_call
def add(call: TriggerCall, /, name: str, *, disabled: bool, **given: Any) -> None:
    """Add a trigger."""
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

    made = call.write(make)
    _print_with_secret(call, made, f"{made['name']} is created: {made['id']}", secret)


@trigger.command("list")
@_page_options
@_call
def list_(call: TriggerCall, /, *, limit: int, offset: int) -> None:
    """List the triggers, newest first."""

    async def look(triggers: Triggers) -> tuple[dict[str, Any], dict[str, str]]:
        page = await triggers.page(limit=limit, offset=offset)
        return page, await _source_names(triggers, page["items"])

    page, sources = call.read(look)
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
    call.print_many(page["items"], names, rows, empty="no triggers")
    left = page["total"] - offset - len(rows)
    if left > 0 and call.output.form is Form.TABLE:
        echo(f"there are {left} more: --offset {offset + len(rows)}")


@trigger.command()
@click.argument("name")
@_call
def show(call: TriggerCall, /, name: str) -> None:
    """Show a trigger, by its name or its id."""

    async def look(triggers: Triggers) -> tuple[dict[str, Any], dict[str, str]]:
        found = await triggers.get(name)
        return found, await _source_names(triggers, [found])

    found, sources = call.read(look)
    waits = kind_of(found["trigger_config"]).describe(sources)
    lines = [
        f"{found['name']}  {found['id']}",
        f"{_state(found)}, starts {found['agent']}, waits for {waits}",
        f"created {found['created_at']}, changed {found['updated_at']}",
        *([f"from {found['file']}"] if found["file"] else []),
        "",
        found["prompt_template"],
    ]
    call.print(found, "\n".join(lines))


@trigger.command()
@click.argument("name")
@click.option("--name", "other", metavar="NAME", help="The new name.")
@partial(definition_options, is_new=False)
@_call
def edit(call: TriggerCall, /, name: str, *, other: str | None, **given: Any) -> None:
    """Edit a trigger.

    Fields that are not named are kept; the change takes effect at once.
    """
    given, secret = _with_secret(given)
    zone = given["tz"]

    async def change(triggers: Triggers) -> dict[str, Any]:
        said = {"name": other, **definition_of({**given, "tz": None})}
        if zone is not None:
            config = said.get("trigger_config") or (await triggers.get(name))["trigger_config"]
            said["trigger_config"] = {**config, "timezone": zone}
        with _naming(given["agent"]):
            return await triggers.update(name, await _with_source(triggers, said))

    made = call.write(change)
    is_named = other is not None or any(each not in {None, ()} for each in given.values())
    text = "is changed" if is_named else "is unchanged; name a field to change, such as --cron"
    _print_with_secret(call, made, f"{made['name']} {text}", secret)


@trigger.command()
@click.argument("name")
@click.option("--secret", metavar="SECRET", help="The new secret; default: a generated one.")
@click.option("--end", "is_end", is_flag=True, help="Stop accepting the older secret.")
@_call
def rotate(call: TriggerCall, /, name: str, *, secret: str | None, is_end: bool) -> None:
    """Rotate the secret of a webhook.

    Both secrets are valid until you run this command with --end.
    """
    if is_end and secret is not None:
        raise click.UsageError("--end takes no --secret.")
    made_now = "" if is_end or secret is not None else new_secret()
    chosen = None if is_end else secret or made_now
    made = call.write(lambda triggers: triggers.rotate(name, chosen))
    text = f"{made['name']} accepts two secrets until `horae trigger rotate {made['name']} --end`"
    text = f"{made['name']} accepts one secret" if is_end else text
    _print_with_secret(call, made, text, made_now)


@trigger.command()
@click.argument("name")
@_call
def enable(call: TriggerCall, /, name: str) -> None:
    """Enable a trigger.

    A one-time trigger (--at) whose time has passed runs at once.
    """
    _turn(call, name, on=True)


@trigger.command()
@click.argument("name")
@_call
def disable(call: TriggerCall, /, name: str) -> None:
    """Disable a trigger and skip its waiting runs."""
    _turn(call, name, on=False)


def _turn(call: TriggerCall, name: str, *, on: bool) -> None:
    made = call.write(lambda triggers: triggers.update(name, {"enabled": on}))
    call.print(made, f"{made['name']} is {_state(made)}")


@trigger.command()
@click.argument("name")
@_call
def remove(call: TriggerCall, /, name: str) -> None:
    """Remove a trigger.

    Its receipts stay in the ledger.
    """
    gone = call.write(lambda triggers: triggers.delete(name))
    call.print(gone, f"{gone['name']} is removed")


@trigger.command("run")
@click.argument("name")
@click.option("--title", default="", help="The value of {{title}}.")
@click.option("--body", default="", help="The value of {{body}}.")
@click.option(
    "--key", metavar="KEY", help="An idempotency key: the same key returns the same receipt."
)
@_call
def run_(call: TriggerCall, /, name: str, *, key: str | None, **task: str) -> None:
    """Run the agent of a trigger now."""

    async def requested(triggers: Triggers) -> tuple[dict[str, Any], str]:
        made = await triggers.trigger_now(name, task, key=key)
        now = await triggers.receipt_status(made["receipt"])
        # The engine may have started the run since it answered.
        if made["status"] == DispatchStatus.PENDING and now != Status.HELD:
            now = Status.WAITING
        return made, now

    made, status = call.write(requested)
    text = f"{made['workflow']}: receipt {made['receipt']}, {status} ({made['reason']})"
    call.print(made, text)


@trigger.command()
@click.argument("name")
@_page_options
@_call
def history(call: TriggerCall, /, name: str, **part: int) -> None:
    """List the receipts of a trigger, newest first.

    The status is that of the trigger API, where `completed` means done or no_work; `horae history`
    shows the status in the ledger.
    """
    page = call.read(lambda triggers: triggers.history(name, **part))
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
    call.print_many(page["items"], names, rows, empty="no receipts")


@trigger.command()
@click.argument("path")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@_call
def apply(call: TriggerCall, /, path: str, *, dry_run: bool) -> None:
    """Create and update agents and triggers from files.

    PATH is a file or a directory such as .agentd. All files are checked before anything is
    changed.
    """
    access = call.access
    changes = applied(access, read_files(path, base=call.root), dry_run=dry_run)
    _print_changes(call.output, changes, dry_run=dry_run)


@trigger.command()
@click.argument("path")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@_call
def teardown(call: TriggerCall, /, path: str, *, dry_run: bool) -> None:
    """Remove the triggers and agents that files define.

    PATH is a file or a directory such as .agentd.
    """
    access = call.access
    changes = torn_down(access, read_files(path, base=call.root), dry_run=dry_run)
    _print_changes(call.output, changes, dry_run=dry_run)


# Approvals


@click.command()
@_call
def approvals(call: TriggerCall, /) -> None:
    """List runs that wait for approval, oldest first."""
    found = call.read(lambda triggers: triggers.approvals())
    rows = [
        (str(each["receipt"]), each["workflow"], each["agent"], each["expires_at"], each["prompt"])
        for each in found
    ]
    names = ("receipt", "trigger", "agent", "until", "prompt")
    call.print_many(found, names, rows, empty="no runs are waiting for approval")


@click.command()
@click.argument("receipt", type=click.IntRange(1, 2**62))
@_call
def approve(call: TriggerCall, /, receipt: int) -> None:
    """Approve a pending run.

    RECEIPT is its number in `horae approval list`.
    """
    done = call.write(lambda triggers: triggers.approve(receipt))
    call.print(done, f"{done['workflow']}: receipt {receipt} may start")


@click.command()
@click.argument("receipt", type=click.IntRange(1, 2**62))
@click.option("--reason", default="", metavar="TEXT", help="The reason, shown with the receipt.")
@_call
def deny(call: TriggerCall, /, receipt: int, *, reason: str) -> None:
    """Reject a pending run.

    RECEIPT is its number in `horae approval list`; the run never starts.
    """
    done = call.write(lambda triggers: triggers.deny(receipt, reason=reason))
    call.print(done, f"{done['workflow']}: the run (receipt {receipt}) is rejected")


# What both spellings share


def _approval_words(dispatch: Mapping[str, Any]) -> str:
    """Return who approved a dispatch, unless its reason says so; "" without approval."""
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


def applied(access: TriggerAccess, folder: Folder, *, dry_run: bool) -> list[FileChange]:
    changes = _changed(access, plan_files, folder, dry_run=dry_run)
    for note in (note for each in changes for note in each.notes):
        echo(f"horae: {note}; {note.fix}", err=True)
    return changes


def torn_down(access: TriggerAccess, folder: Folder, *, dry_run: bool) -> list[FileChange]:
    return _changed(access, plan_teardown, folder, dry_run=dry_run)


def _changed(
    access: TriggerAccess,
    plan: Callable[..., Awaitable[list[FileChange]]],
    folder: Folder,
    *,
    dry_run: bool,
) -> list[FileChange]:
    """Return the changes of a plan, and make them unless it is a dry run."""

    async def change(triggers: Triggers) -> list[FileChange]:
        changes = await plan(triggers, folder.agents, folder.workflows)
        if not dry_run:
            await apply_changes(triggers, changes)
        return changes

    return access.read(change) if dry_run else access.write(change)


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
    """Return a random secret of Standard Webhooks."""
    from base64 import b64encode
    from secrets import token_bytes

    return f"{STANDARD_PREFIX}{b64encode(token_bytes(32)).decode()}"


def _with_secret(given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    if given["secret"] != _NEW:
        return dict(given), ""
    made = new_secret()
    return {**given, "secret": made}, made


def _print_with_secret(call: TriggerCall, made: Mapping[str, Any], text: str, secret: str) -> None:
    """Print one answer, and a secret that was just made; it is never shown again."""
    shown = {"secret": secret} if secret else {}
    more = f"\nsecret (shown only once): {secret}" if secret else ""
    call.print({**made, **shown}, f"{text}{more}")


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


def _print_changes(output: Output, changes: Sequence[FileChange], *, dry_run: bool) -> None:
    def table() -> None:
        for change in changes:
            echo(f"{change.verb} {change.what} {change.name}  {change.place}")
            for name, old, new in change.diff:
                echo(f"    {name}: {short(old)} → {short(new)}")
        count = sum(each.verb not in {"unchanged", "skip"} for each in changes)
        word = "would be changed" if dry_run else "changed"
        echo(f"{count} of {len(changes)} {word}")

    print_rows(output, [each.data() for each in changes], table)


def short(value: object) -> str:
    """Return a value as JSON of at most 60 characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _state(workflow: Mapping[str, Any]) -> str:
    return "enabled" if workflow["enabled"] else "disabled"
