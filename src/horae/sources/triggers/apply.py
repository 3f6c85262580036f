"""Agents and workflows of files: a plan of what changes first, and then the change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import convert

from horae.errors import HoraeError
from horae.org.plan import Diagnostic, Severity
from horae.sources.triggers import kinds
from horae.sources.triggers.rules import AGENT_FIELDS, TriggerDefinition
from horae.sources.triggers.service import TriggerConflictError, TriggerNotFoundError, Triggers
from horae.sources.triggers.views import FieldChange, FileChange, FileNote

if TYPE_CHECKING:
    from horae.core.command import Unready
    from horae.sources.triggers.files import DefinitionFile
    from horae.sources.triggers.store import AgentCard, TriggerStore


class FilesError(HoraeError, code="agentd_files"):
    def __init__(self, found: Sequence[str]) -> None:
        self.found = list(found)
        count = f"{len(found)} problem{'s' * (len(found) != 1)}"
        super().__init__("\n".join([*found, f"{count}; nothing was changed"]))


@dataclass(frozen=True, slots=True)
class PlannedChange:
    verb: str
    what: str
    name: str
    place: str
    diff: tuple[FieldChange, ...] = ()
    said: Mapping[str, Any] = field(default_factory=dict)  # what is asked for
    notes: tuple[Diagnostic, ...] = ()  # what keeps it from running, if something does
    left: str = ""  # why it is made disabled, though its file enables it

    @property
    def answer(self) -> FileChange:
        return FileChange(
            verb=self.verb,
            what=self.what,
            name=self.name,
            place=self.place,
            diff=self.diff,
            notes=convert([each.data() for each in self.notes], tuple[FileNote, ...]),
        )


def error_lines(wrong: Iterable[Diagnostic]) -> list[str]:
    return [f"{each.file}:{each.line}: {each.message}" for each in wrong]


async def judge_files(
    triggers: Triggers, files: Sequence[DefinitionFile]
) -> tuple[list[PlannedChange], list[Diagnostic]]:
    """Return what would change if files were applied, agents first, and what is wrong with them."""
    files = sorted(files, key=lambda each: each.what)
    first: dict[tuple[str, str], str] = {}
    wrong = [
        file.wrong("name", f"the {file.what} '{file.name}' is also in {place}")
        for file in files
        if (place := first.setdefault((file.what, file.name), file.place)) != file.place
    ]
    changes: list[PlannedChange] = []
    coming: dict[str, AgentCard | None] = {
        each.name: None for each in files if each.what == "agent"
    }
    for file in files:
        try:
            if file.what == "agent":
                coming[file.name] = card = triggers.judged_card(file.said, file=file.file)
                changes.append(await _agent_change(triggers, file, card))
                continue
            change = await _workflow_change(triggers, file, coming)
            secrets = kinds.secrets_of(change.said.get("trigger_config", {}))
            for other in (each for each in changes if change.verb == each.verb == "create"):
                if not secrets.isdisjoint(kinds.secrets_of(other.said.get("trigger_config", {}))):
                    raise kinds.SharedSecretError(other.name)
            changes.append(change)
        except HoraeError as error:
            key = error.field if isinstance(error, kinds.TriggerError) else ""
            wrong.append(file.wrong(key, str(error)))
            if isinstance(error, kinds.NeverComesError):  # a way to write that it must not run
                with suppress(TriggerNotFoundError):  # then there is nothing to disable
                    if (await triggers.find(file.name)).definition.is_enabled:
                        changes.append(_disabled(file.name, file.place, is_wanted=False))
    return changes, wrong


async def apply_files(
    triggers: Triggers,
    files: Sequence[DefinitionFile],
    *,
    dry_run: bool = False,
    teardown: bool = False,
) -> list[FileChange]:
    """Create and update what files define, or remove it, if all of them can be used."""
    if teardown:
        changes = await plan_teardown(triggers, files)
    else:
        changes, wrong = await judge_files(triggers, files)
        if wrong:
            raise FilesError(error_lines(wrong))
    if not dry_run:
        await apply_changes(triggers, changes)
    return [each.answer for each in changes]


async def apply_changes(triggers: Triggers, changes: Sequence[PlannedChange]) -> None:
    for change in changes:
        file, is_agent = change.place.rpartition(":")[0], change.what == "agent"
        update = triggers.update_agent if is_agent else triggers.update
        match change.verb:
            case "create":
                try:
                    create = triggers.create_agent if is_agent else triggers.create
                    await create(change.said, file=file)
                except HoraeError as error:
                    if not isinstance(error, TriggerConflictError):
                        raise
                    # The engine has read the same file meanwhile.
                    await update(change.name, change.said, file=file)
            case "update" | "disable":
                await update(change.name, change.said, file=file)
            case "delete":
                await (triggers.delete_agent if is_agent else triggers.delete)(change.name)


def disabled_if_fired(
    changes: Sequence[PlannedChange], *, fresh_at: datetime
) -> list[PlannedChange]:
    """Return changes that enable nothing that may have fired before the ledger was created."""

    def left(change: PlannedChange) -> PlannedChange:
        is_new = (change.verb, change.what) == ("create", "workflow") and change.said["enabled"]
        why = kinds.kind_of(change.said["trigger_config"]).fired_before(fresh_at) if is_new else ""
        return replace(change, said={**change.said, "enabled": False}, left=why) if why else change

    return [*map(left, changes)]


async def plan_teardown(triggers: Triggers, files: Sequence[DefinitionFile]) -> list[PlannedChange]:
    changes = []
    for file in sorted(files, key=lambda each: each.what == "agent"):
        try:
            await (triggers.card if file.what == "agent" else triggers.find)(file.name)
            verb = "delete"
        except TriggerNotFoundError:
            verb = "skip"
        changes.append(PlannedChange(verb, file.what, file.name, file.place))
    return changes


async def plan_removed(
    store: TriggerStore, names: Mapping[str, str | None], folder: str
) -> list[PlannedChange]:
    """Return the changes that disable workflows of a folder that no file in *names* holds."""
    return [
        _disabled(each.name, f"{each.file}:1", is_wanted=None)
        for each in [trigger.definition for trigger in await store.of_files()]
        if each.is_enabled
        and each.file.startswith(folder)
        and (each.file not in names or names[each.file] not in {None, each.name})
    ]


def _disabled(name: str, place: str, *, is_wanted: bool | None) -> PlannedChange:
    """Return the change that disables a workflow; *is_wanted* is what its file says, if any."""
    said = {"enabled": False, "wanted": is_wanted}
    diff = FieldChange(field="enabled", old=True, new=False)
    return PlannedChange("disable", "workflow", name, place, (diff,), said)


async def _agent_change(triggers: Triggers, file: DefinitionFile, card: AgentCard) -> PlannedChange:
    why = triggers.why_unready(card) if card.is_enabled else None
    about, notes = (file.what, file.name, file.place), _notes(file, "command", why)
    said = dict(file.said)
    try:
        was = await triggers.card(file.name)
    except TriggerNotFoundError:
        return PlannedChange("create", *about, said=said, notes=notes)
    card = await triggers.with_kept_env(card, was)
    old = {**was.config, "enabled": was.is_enabled}
    new = {**card.config, "enabled": card.is_enabled}
    diff = _diff(old, new)
    said |= {"env": card.config["env"]} if "env" in card.config else {}
    # What a file no longer says is no longer so.
    said |= {name: AGENT_FIELDS[name]() for name in old.keys() - new.keys()}
    return PlannedChange("update" if diff else "unchanged", *about, diff, said, notes)


async def _workflow_change(
    triggers: Triggers, file: DefinitionFile, coming: Mapping[str, AgentCard | None]
) -> PlannedChange:
    """Return the change of a workflow; its agent may be one that is *coming* with it."""
    said = dict(file.said)
    try:
        agent = said["agent"] if said["agent"] in coming else None
        made = await triggers.judged(said, file=file.file, agent=agent)
    except kinds.TriggerError as error:
        if error.reason != "Agent not found":
            raise
        reason = f"Agent '{said['agent']}' not found (referenced by workflow '{file.name}')"
        raise kinds.TriggerError(reason, field="agent") from None
    said["trigger_config"] = dict(made.config)
    why = None
    if made.is_enabled and made.agent not in coming:
        why = await triggers.why_agent(made.agent, made.enforced)
    elif made.is_enabled and (card := coming[made.agent]) is not None:
        why = triggers.why_unready(card, made.enforced)
        why = None if why == triggers.why_unready(card) else why  # the file of the agent says it
    about = file.what, file.name, file.place
    notes = _notes(file, "tool_policy" if made.enforced else "agent", why)
    try:
        was = (await triggers.find(file.name)).definition
    except TriggerNotFoundError:
        return PlannedChange("create", *about, said=said, notes=notes)
    was.kind.check_change(was.name, made.config)
    is_again = made.kind.is_one_shot and made.config != was.config
    if was.is_wanted == made.is_wanted and not is_again:
        # It may have been disabled since, or has fired: the file has nothing new to say.
        made = replace(made, is_enabled=was.is_enabled)
        said["enabled"] = was.is_enabled
    diff = _diff(_fields(was), _fields(made))
    said["tool_policy"] = made.tools.data()
    # What a file no longer says is no longer so.
    said |= dict.fromkeys(was.options.keys() - made.options.keys(), "")
    is_same = not diff and (was.file, was.is_wanted) == (file.file, made.is_wanted)
    return PlannedChange("unchanged" if is_same else "update", *about, diff, said, notes)


def _fields(definition: TriggerDefinition) -> dict[str, object]:
    return {
        "agent": definition.agent,
        "source": dict(definition.config),
        "prompt_template": definition.template,
        "poll_interval": definition.poll_interval,
        "enabled": definition.is_enabled,
        "tool_policy": definition.tools.data(),
        **definition.options,
    }


def _diff(old: Mapping[str, object], new: Mapping[str, object]) -> tuple[FieldChange, ...]:
    def safe(name: str, value: object) -> object:
        match name, value:
            case "source", dict():
                return kinds.masked(value)
            case "env", dict():
                return {key: kinds.shown(text) for key, text in value.items()}
        return value

    return tuple(
        FieldChange(field=name, old=safe(name, old.get(name)), new=safe(name, new.get(name)))
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    )


def _notes(file: DefinitionFile, name: str, why: Unready | None) -> tuple[Diagnostic, ...]:
    if why is None:
        return ()
    return (file.wrong(name, why.reason)._replace(severity=Severity.WARNING, fix=why.fix),)
