"""`trigger`, `approvals`, `approve` and `deny`: start agents from outside of plans."""

from __future__ import annotations

import os.path
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial, wraps
from secrets import token_bytes
from typing import Any, Final, NamedTuple

import click
from msgspec import to_builtins

from horae.cli.connection import read_any
from horae.cli.group import SharedGroup
from horae.cli.options import data_option, flag, option, root_of_data_option, text_or_file
from horae.cli.output import Form, Output, echo, form_options, print_answer, print_rows, print_table
from horae.cli.trigger_access import AnyTriggers, TriggerAccess
from horae.client import EngineError
from horae.config import known_names, load
from horae.core.actor import actor_words
from horae.core.entry import PROPERTIES, phrase_cron
from horae.core.receipt import ReasonCode, Status
from horae.core.text import in_zone
from horae.errors import Exit, HoraeError
from horae.sources.triggers import FOLDER, files
from horae.sources.triggers.kinds import TriggerError, config_of, kind_of
from horae.sources.triggers.rules import OPTIONS, parse_json
from horae.sources.triggers.service import TriggerConflictError, TriggerNotFoundError
from horae.sources.triggers.source import Folder, read_folder, unread_hint
from horae.sources.triggers.views import (
    Approval,
    Dispatch,
    DispatchStatus,
    FileChange,
    TriggerLine,
)
from horae.sources.triggers.webhook import STANDARD_PREFIX, Scheme

_EVENTS: Final = "session_start, session_end or context_clear"
_NEW: Final = ""  # requests a new secret


class TriggerCall(NamedTuple):
    output: Output
    root: str
    data: str | None

    @property
    def access(self) -> TriggerAccess:
        return TriggerAccess(root=self.root, data=self.data)

    def when(self, text: str) -> str:
        """Return a text with its times in the zone of the plans."""
        return in_zone(text, self.access.place.zone.key)

    def change(
        self, name: str, work: Callable[[AnyTriggers], Awaitable[TriggerLine]]
    ) -> TriggerLine:
        """Change a trigger, unless an engine would restore it from its file."""
        access = self.access

        async def change(triggers: AnyTriggers) -> TriggerLine:
            found = await triggers.get(name)
            file = found.file or ""
            is_ours = access.place.server is None and file.startswith(f"{FOLDER}/")
            if is_ours and os.path.exists(os.path.join(self.root, file)):
                reason = f"{found.name} is defined in {file}; change or delete that file"
                raise TriggerConflictError(reason)
            return await work(triggers)

        return access.write(change)

    def print(self, said: TriggerLine | Dispatch | Approval, text: str, secret: str = "") -> None:
        data: object = said
        if isinstance(said, TriggerLine):
            for note in said.notes or ():
                echo(f"horae: {note}", err=True)
            if secret:
                address = f"/webhooks/{said.name} on the address of the setting `listen`"
                text = f"{text}\nsecret (shown only once): {secret}\naddress: {address}"
                data = {**to_builtins(said), "secret": secret}
        print_answer(self.output, data, text)

    def print_many(
        self, items: Sequence[object], names: str, rows: Sequence[Sequence[str]], *, empty: str
    ) -> None:
        print_rows(self.output, items, lambda: print_table(names.split(), rows, empty=empty))


def _call(command: Callable[..., None]) -> Callable[..., int]:
    @root_of_data_option
    @data_option
    @form_options
    @wraps(command)
    def called(*args: Any, root: str, data: str | None, output: Output, **given: Any) -> int:
        command(TriggerCall(output, root, data), *args, **given)
        return Exit.OK

    return called


@click.group(cls=SharedGroup)
def trigger() -> None:
    """Start agents by cron, webhook, issue or request."""


def definition_options(command: Callable[..., Any], *, is_new: bool) -> Callable[..., Any]:
    agent = "The agent that the trigger starts"
    prompt = "The prompt for the agent; {{names}} are replaced."
    schemes = click.Choice([each.value for each in Scheme])
    # fmt: off
    options = [
        option("--agent NAME", f"{agent} (required)." if is_new else f"{agent}."),
        option("--cron EXPR", "Run by this cron expression, in UTC or --tz.", name="expression"),
        option("--when PHRASE", "Run by a schedule in words ('weekdays at 9'), stored as cron."),
        option("--at T", "Run once, such as 2026-04-01T09:00:00Z; a time in the past runs at once.",
               name="run_at"),
        option("--webhook [SECRET]", "Run for each message signed with SECRET; default: a new one.",
               name="secret", is_flag=False, flag_value=_NEW),
        option("--scheme", "How messages are signed; default: standard.", type=schemes),
        option("--issues OWNER/REPO", "Run for each new issue on GitHub."),
        option("--pulls OWNER/REPO", "Run for each new pull request on GitHub."),
        option("--label", "Only issues with this label.", name="labels", multiple=True),
        option("--after NAME", "Run after each run of this trigger (name or id); "
               "`all`: of every other trigger."),
        option("--on EVENT", f"Run on an event of the agent: {_EVENTS}.", name="event"),
        flag("--manual", "Run only on request."),
        option("--tz ZONE", "The time zone of --cron.", name="timezone"),
        option("--prompt TEXT",
               f"{prompt} Required, unless --prompt-file is given." if is_new else prompt),
        option("--prompt-file FILE", "Read the prompt from a file."),
        option("--tools JSON", 'The tool policy, such as {"mode": "deny_all"}.'),
        option("--every S", "Seconds between checks of GitHub.", type=int),
        *(click.option(f"--{each.option.replace('_', '-')}", each.option, metavar=each.metavar,
                       help=each.help) for each in PROPERTIES),
    ]
    # fmt: on
    for each in reversed(options):
        command = each(command)
    return command


def _page_options(command: Callable[..., Any]) -> Callable[..., Any]:
    size = {"default": 50, "show_default": True, "type": click.IntRange(1, 200)}
    offset = option("--offset N", "Skip the newest N.", default=0, type=click.IntRange(0))
    return option("-n N", "Show at most N.", name="limit", **size)(offset(command))


@trigger.command()
@click.argument("name")
@partial(definition_options, is_new=True)
@flag("--disabled", "Create the trigger disabled.")
@_call
def add(call: TriggerCall, /, name: str, *, disabled: bool, **given: Any) -> None:
    """Add a trigger."""
    secret = _fill_secret(given)
    if given["secret"] is not None and given["scheme"] is None:
        given["scheme"] = Scheme.STANDARD
    said = {"name": name, "enabled": not disabled, **definition_of(given)}
    if "trigger_config" not in said:
        raise click.UsageError(
            "name what starts the trigger: --cron, --when, --at, --webhook, --issues, --pulls, "
            "--after, --on or --manual."
        )
    for needed, options in (("prompt_template", "--prompt or --prompt-file"), ("agent", "--agent")):
        if needed not in said:
            raise click.UsageError(f"missing option: {options}.")

    async def make(triggers: AnyTriggers) -> TriggerLine:
        with _naming(said["agent"]):
            return await triggers.create(await _with_source(triggers, said))

    made = call.access.write(make)
    call.print(made, f"trigger {made.name} is created: {made.id}", secret=secret)


@trigger.command("list")
@_page_options
@_call
def list_(call: TriggerCall, /, *, limit: int, offset: int) -> None:
    """List the triggers, newest first."""
    page = call.access.read(lambda triggers: triggers.page(limit=limit, offset=offset))
    found = call.access.read(lambda triggers: _conditions(triggers, page.items))
    conditions = map(call.when, found)
    rows = [
        (each.name, _state(each), each.agent, when, each.id)
        for each, when in zip(page.items, conditions, strict=True)
    ]
    empty = f"no triggers{'' if rows else unread_hint(call.root)}"
    call.print_many(page.items, "name state agent when id", rows, empty=empty)
    left = page.total - offset - len(rows)
    if left > 0 and call.output.form is Form.TABLE:
        echo(f"there are {left} more: --offset {offset + len(rows)}")


@trigger.command()
@click.argument("name")
@_call
def show(call: TriggerCall, /, name: str) -> None:
    """Show a trigger, by its name or its id."""
    found = call.access.read(lambda triggers: triggers.get(name))
    [condition] = call.access.read(lambda triggers: _conditions(triggers, [found]))
    lines = [
        f"{found.name}  {found.id}",
        f"{_state(found)}, starts {found.agent}, waits for {call.when(condition)}",
        f"created {call.when(found.created_at)}, changed {call.when(found.updated_at)}",
        *([f"from {found.file}"] if found.file else []),
        "",
        found.prompt_template,
    ]
    call.print(found, "\n".join(lines))


@trigger.command()
@click.argument("name")
@option("--name NAME", "The new name.", name="other")
@partial(definition_options, is_new=False)
@_call
def edit(call: TriggerCall, /, name: str, *, other: str | None, **given: Any) -> None:
    """Edit a trigger.

    Fields that are not named are kept; the change takes effect at once.
    """
    if other is None and all(each in {None, (), False} for each in given.values()):
        raise click.UsageError("name at least one field to change, such as --cron or --prompt.")
    secret = _fill_secret(given)
    zone = given["timezone"]

    async def change(triggers: AnyTriggers) -> TriggerLine:
        said = {"name": other, **definition_of({**given, "timezone": None})}
        if zone is not None:
            config = said.get("trigger_config") or (await triggers.get(name)).trigger_config
            said["trigger_config"] = {**config, "timezone": zone}
        with _naming(given["agent"]):
            return await triggers.update(name, await _with_source(triggers, said))

    made = call.change(name, change)
    call.print(made, f"trigger {made.name} is changed", secret=secret)


@trigger.command()
@click.argument("name")
@option("--secret SECRET", "The new secret; default: a generated one.")
@flag("--end", "Stop accepting the older secret.", name="is_end")
@_call
def rotate(call: TriggerCall, /, name: str, *, secret: str | None, is_end: bool) -> None:
    """Rotate the secret of a webhook.

    Both secrets are valid until you run this command with --end.
    """
    if is_end and secret is not None:
        raise click.UsageError("--end takes no --secret.")
    made_now = "" if is_end or secret is not None else new_secret()
    chosen = None if is_end else secret or made_now
    made = call.change(name, lambda triggers: triggers.rotate(name, chosen))
    text = f"trigger {made.name} accepts one secret"
    if not is_end:
        end = f"`horae trigger rotate {made.name} --end`"
        text = f"trigger {made.name} accepts two secrets until {end}"
    call.print(made, text, secret=made_now)


@trigger.command()
@click.argument("name")
@_call
def remove(call: TriggerCall, /, name: str) -> None:
    """Remove a trigger.

    Its receipts stay in the ledger. A trigger that a file in .agentd defines is not removed (exit
    code 6): delete the file, which disables the trigger, then remove it.
    """
    done = call.change(name, lambda triggers: triggers.delete(name))
    call.print(done, f"trigger {done.name} is removed")


def _add_switch(name: str, text: str, *, to: bool) -> None:
    @trigger.command(name, help=text)
    @click.argument("name")
    @_call
    def called(call: TriggerCall, /, name: str) -> None:
        async def change(triggers: AnyTriggers) -> tuple[bool, TriggerLine]:
            was = (await triggers.get(name)).enabled
            return was, await triggers.update(name, {"enabled": to})

        was, done = call.access.write(change, is_change=lambda made: made[0] is not to)
        is_now = "was already" if was is to else "is"
        call.print(done, f"trigger {done.name} {is_now} {_state(done)}")


# fmt: off
_add_switch("enable", "Enable a trigger.\n\n"
            "A one-time trigger (--at) whose time has passed runs at once.", to=True)
_add_switch("disable", "Disable a trigger and skip its waiting runs.", to=False)
# fmt: on


_receipt: Final = click.argument("receipt", type=click.IntRange(1, 2**62))


@click.command()
@_receipt
@_call
def approve(call: TriggerCall, /, receipt: int) -> None:
    """Approve a run that waits for approval.

    RECEIPT is its number in `horae approval list`.
    """
    done = call.access.write(lambda triggers: triggers.approve(receipt))
    call.print(done, f"{done.workflow}: receipt {done.receipt} may start")


@click.command()
@_receipt
@option("--reason TEXT", "The reason, shown with the receipt.", default="")
@_call
def deny(call: TriggerCall, /, receipt: int, *, reason: str) -> None:
    """Reject a run that waits for approval.

    RECEIPT is its number in `horae approval list`; the run never starts.
    """
    done = call.access.write(lambda triggers: triggers.deny(receipt, reason=reason))
    call.print(done, f"{done.workflow}: the run (receipt {done.receipt}) is rejected")


@trigger.command("run")
@click.argument("name")
@option("--title", "The value of {{title}}.", default="")
@option("--body", "The value of {{body}}.", default="")
@option("--key KEY", "An idempotency key: the same key returns the same receipt.")
@_call
def run_(call: TriggerCall, /, name: str, *, key: str | None, **task: str) -> None:
    """Run the agent of a trigger now."""
    made = call.access.write(lambda triggers: triggers.trigger_now(name, task, key=key))
    status = read_any(call.access.place, lambda service: service.receipt(made.receipt)).status
    # The engine may have started the run since then.
    if made.status == DispatchStatus.PENDING and status != Status.HELD:
        status = Status.WAITING
    reason = in_zone(made.reason, call.access.place.zone.key)
    text = f"{made.workflow}: receipt {made.receipt}, {status} ({reason})"
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

    def reason(dispatch: Dispatch) -> str:
        by = dispatch.approved_by
        if not by or dispatch.reason_code == ReasonCode.APPROVED:  # the reason names the user
            return dispatch.reason
        approved = f"approved by {actor_words(by) if ':' in by else by}"  # formerly a bare name
        return "; ".join(filter(None, (dispatch.reason, approved)))

    items = call.access.read(lambda triggers: triggers.history(name, **part)).items
    rows = [
        (str(each.receipt), call.when(each.planned_at), each.source_id, each.status, reason(each))
        for each in items
    ]
    call.print_many(items, "receipt scheduled key status reason", rows, empty="no receipts")


def _add_files(name: str, text: str, dry_help: str, *, is_teardown: bool = False) -> None:
    @trigger.command(name, help=text)
    @click.argument("path")
    @flag("--dry-run", dry_help)
    @_call
    def called(call: TriggerCall, /, path: str, *, dry_run: bool) -> None:
        _, changes = apply_path(call.access, path, dry_run=dry_run, is_teardown=is_teardown)

        def table() -> None:
            for change in changes:
                what = "trigger" if change.what == "workflow" else change.what  # the name in agentd
                echo(f"{change.verb} {what} {change.name}  {change.place}")
                for line in change.diff_lines("→"):
                    echo(f"    {line}")
            count = sum(each.is_change for each in changes)
            word = "removed" if is_teardown else "changed"
            echo(f"{count} of {len(changes)} {'would be ' * dry_run}{word}")

        print_rows(call.output, changes, table)


# fmt: off
_add_files("apply", "Create and update agents and triggers from files.\n\n"
           "PATH is a file or a directory such as .agentd. All files are checked before anything "
           "is changed.", "Show what would change, and change nothing.")
_add_files("teardown", "Remove the triggers and agents defined in files.\n\n"
           "PATH is a file or a directory such as .agentd.",
           "Show what would be removed, and remove nothing.", is_teardown=True)
# fmt: on


@click.command()
@_call
def approvals(call: TriggerCall, /) -> None:
    """List runs that wait for approval, oldest first."""
    found = call.access.read(lambda triggers: triggers.approvals())
    rows = []
    for each in found:
        until = call.when(each.expires_at)
        who = (str(each.receipt), each.workflow, each.agent)
        rows.append((*who, until, each.prompt))
    empty = "no runs are waiting for approval"
    call.print_many(found, "receipt trigger agent until prompt", rows, empty=empty)


class _AnyName(dict[str, str]):
    def __contains__(self, name: object) -> bool:
        return True


def apply_path(
    access: TriggerAccess, path: str, *, dry_run: bool, is_teardown: bool = False
) -> tuple[Folder, list[FileChange]]:
    """Apply or tear down the files at a path, if all are valid; warnings go to stderr."""
    # An engine elsewhere has its own environment.
    known = _AnyName() if access.place.server else known_names(load(access.root))
    folder = read_folder(path, environ=known, base=access.root)
    for warning in folder.warnings:
        echo(f"horae: {warning}", err=True)
    if folder.errors:
        raise files.FilesError(folder.errors)

    changes = access.apply(folder.definitions, dry_run=dry_run, teardown=is_teardown)
    if is_teardown and not dry_run and any(each.place.startswith(f"{FOLDER}/") for each in changes):
        echo(f"horae: the engine applies the files in {FOLDER} again; delete them", err=True)
    for note in (note for each in changes for note in each.notes):
        echo(f"horae: {note}", err=True)
    return folder, changes


# The options of a trigger's source, each with its kind.
_STARTS: Final = {
    "expression": "cron",
    "run_at": "delay",
    "issues": "github_issues",
    "pulls": "github_pull_requests",
    "event": "agent_lifecycle",
    "after": "dispatch_result",
    "secret": "webhook",
    "manual": "manual",
}
_NEEDS: Final = (
    ("scheme", ("secret",), "--scheme requires --webhook."),
    ("labels", ("issues", "pulls"), "--label requires --issues or --pulls."),
    ("timezone", ("expression",), "--tz requires --cron."),
)


def definition_of(given: Mapping[str, Any]) -> dict[str, Any]:
    if given.get("when") is not None:
        if given.get("expression") is not None:
            raise click.UsageError("give --cron or --when, not both.")
        given = {**given, "expression": phrase_cron(given["when"])}
    for name, needs, text in _NEEDS:
        if given.get(name) and not any(given.get(each) for each in needs):
            raise click.UsageError(text)
    starts = [name for name in _STARTS if given.get(name) not in {None, False}]
    if len(starts) > 1:
        raise click.UsageError("a trigger has one start condition; name only one.")
    if repository := given.get("issues") or given.get("pulls"):
        owner, _, repo = repository.partition("/")
        if not owner or not repo:
            raise TriggerError(f"{repository[:60]!r} is not a repository; write OWNER/REPO")
        given = {**given, "owner": owner, "repo": repo, "labels": list(given.get("labels", ()))}
    source = given.get("after")
    given = {**given, "source_workflow_id": None if source == "all" else source}
    tools = given.get("tools")
    said = {name: given.get(name) for name in (*OPTIONS, "agent")} | {
        "prompt_template": text_or_file(given.get("prompt"), given.get("prompt_file")),
        "poll_interval_secs": given.get("every"),
        "tool_policy": None if tools is None else parse_json(tools, "--tools"),
        "trigger_config": config_of(_STARTS[starts[0]], given) if starts else None,
    }
    return {name: value for name, value in said.items() if value is not None}


@contextmanager
def _naming(agent: str | None) -> Iterator[None]:
    try:
        yield
    except HoraeError as error:
        if error.code == TriggerConflictError.code:
            reason = str(error).replace("workflow", "trigger", 1)
            raise TriggerConflictError(reason) from None
        if str(error).startswith("the workflow "):
            raise TriggerError(str(error).replace("workflow", "trigger", 1), field="name") from None
        if agent is None or not str(error).endswith("Agent not found"):
            raise
        reason = f"there is no agent {agent!r}; `horae agent list` lists the agents"
        raise TriggerError(reason, field="agent") from None


def new_secret() -> str:
    return f"{STANDARD_PREFIX}{b64encode(token_bytes(32)).decode()}"


def _fill_secret(given: dict[str, Any]) -> str:
    if given["secret"] != _NEW:
        return ""
    given["secret"] = new_secret()
    return str(given["secret"])


async def _with_source(triggers: AnyTriggers, said: dict[str, Any]) -> dict[str, Any]:
    config = said.get("trigger_config", {})
    if config.get("source_workflow_id") is None:
        return said
    source = await triggers.get(config["source_workflow_id"])
    return {**said, "trigger_config": {**config, "source_workflow_id": source.id}}


async def _conditions(triggers: AnyTriggers, found: Sequence[TriggerLine]) -> list[str]:
    configs, names = [each.trigger_config for each in found], dict[str, str]()
    for each in {config.get("source_workflow_id", "") for config in configs} - {""}:
        with suppress(TriggerNotFoundError, EngineError):  # a removed one has no name
            names[each] = (await triggers.get(each)).name
    return [kind_of(config).describe(names) for config in configs]


def _state(workflow: TriggerLine) -> str:
    return "enabled" if workflow.enabled else "disabled"
