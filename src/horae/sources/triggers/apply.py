"""Agents and workflows of files: a plan of what changes first, and then the change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import convert

from horae.errors import HoraeError
from horae.org.plan import Diagnostic, Severity
from horae.sources.triggers import kinds
from horae.sources.triggers.rules import Trigger, TriggerDefinition
from horae.sources.triggers.service import TriggerConflictError, Triggers
from horae.sources.triggers.store import AgentCard
from horae.sources.triggers.views import FieldChange, FileChange, FileNote

if TYPE_CHECKING:
    from horae.core.command import Unready
    from horae.sources.triggers.files import DefinitionFile
    from horae.sources.triggers.store import TriggerStore


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
    notes: tuple[Diagnostic, ...] = ()  # what keeps it from running, if something does
    made: TriggerDefinition | AgentCard | None = None  # as it is to be stored
    was: Trigger | AgentCard | None = None
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
    triggers: Triggers, files: Sequence[DefinitionFile], *, fresh_at: datetime | None = None
) -> tuple[list[PlannedChange], list[Diagnostic]]:
    """Return what would change if files were applied, agents first, and what is wrong with them.

    Nothing is enabled that may have fired before *fresh_at*, when the ledger was created.
    """
    files = sorted(files, key=lambda each: each.what)
    wrong = [*doubles(files).values()]
    changes: list[PlannedChange] = []
    coming: dict[str, AgentCard | None] = {
        each.name: None for each in files if each.what == "agent"
    }
    secrets: dict[str, str] = {}  # of webhooks that are new, by value
    for file in files:
        try:
            if file.what == "agent":
                coming[file.name] = card = triggers.judged_card(file.said, file=file.file)
                changes.append(await _agent_change(triggers, file, card))
                continue
            definition = await _definition(triggers, file, coming)
            change = await _workflow_change(triggers, file, definition, fresh_at)
            if change.verb == "create":
                for text in definition.secrets:
                    if (other := secrets.setdefault(text, file.name)) != file.name:
                        raise kinds.SharedSecretError(other)
            why = await _why(triggers, definition, coming) if definition.is_enabled else None
            field = "tool_policy" if definition.enforced else "agent"
            changes.append(replace(change, notes=_notes(file, field, why)))
        except HoraeError as error:
            key = error.field if isinstance(error, kinds.TriggerError) else ""
            wrong.append(file.wrong(key, str(error)))
            if isinstance(error, kinds.NeverComesError):  # a way to write that it must not run
                was = await triggers.store.named(file.name)
                if was is not None and was.definition.is_enabled:
                    changes.append(_disabled(was, file.place, is_wanted=False))
    return changes, wrong


def doubles(files: Sequence[DefinitionFile]) -> dict[str, Diagnostic]:
    """Return the files of one name: it is not clear which of them is meant."""
    by_name: defaultdict[tuple[str, str], list[DefinitionFile]] = defaultdict(list)
    for file in files:
        by_name[file.what, file.name].append(file)
    return {
        each.file: each.wrong("name", f"the {each.what} '{each.name}' is also in {others}")
        for same in by_name.values()
        for each in same
        if (others := ", ".join(other.file for other in same if other is not each))
    }


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
        if change.verb == "delete":
            delete = triggers.delete_agent if change.what == "agent" else triggers.delete
            await delete(change.name)
        if change.verb not in {"create", "update", "disable"}:
            continue
        try:
            match change.made, change.was:
                case AgentCard() as card, (AgentCard() | None) as was:
                    await triggers.put_agent(card, was)
                case TriggerDefinition() as made, (Trigger() | None) as was:
                    await triggers.put(made, was)
        except TriggerConflictError:
            find = triggers.agent if change.what == "agent" else triggers.get
            # The engine may have read the same file meanwhile.
            file = change.place.rpartition(":")[0]
            if change.verb != "create" or (await find(change.name)).file != file:
                raise


async def plan_teardown(triggers: Triggers, files: Sequence[DefinitionFile]) -> list[PlannedChange]:
    changes = []
    for file in sorted(files, key=lambda each: each.what == "agent"):
        find = triggers.store.agent if file.what == "agent" else triggers.store.named
        verb = "skip" if await find(file.name) is None else "delete"
        changes.append(PlannedChange(verb, file.what, file.name, file.place))
    return changes


async def plan_removed(
    store: TriggerStore, names: Mapping[str, str | None], folder: str
) -> list[PlannedChange]:
    """Return the changes that disable workflows of a folder that no file in *names* holds."""
    return [
        _disabled(each, f"{made.file}:1", is_wanted=None)
        for each in await store.of_files()
        if (made := each.definition).is_enabled
        and made.file.startswith(folder)
        and (made.file not in names or names[made.file] not in {None, made.name})
    ]


def _disabled(was: Trigger, place: str, *, is_wanted: bool | None) -> PlannedChange:
    """Return the change that disables a workflow; *is_wanted* is what its file says, if any."""
    made = replace(was.definition, is_enabled=False, is_wanted=is_wanted)
    diff = FieldChange(field="enabled", old=True, new=False)
    return PlannedChange("disable", "workflow", made.name, place, (diff,), made=made, was=was)


async def _agent_change(triggers: Triggers, file: DefinitionFile, card: AgentCard) -> PlannedChange:
    was = await triggers.store.agent(file.name)
    card = await triggers.with_kept_env(card, was)
    why = triggers.why_unready(card) if card.is_enabled else None
    about, notes = (file.what, file.name, file.place), _notes(file, "command", why)
    if was is None:
        return PlannedChange("create", *about, notes=notes, made=card)
    old = {**was.config, "enabled": was.is_enabled}
    diff = _diff(old, {**card.config, "enabled": card.is_enabled})
    return PlannedChange("update" if diff else "unchanged", *about, diff, notes, card, was)


async def _definition(
    triggers: Triggers, file: DefinitionFile, coming: Mapping[str, AgentCard | None]
) -> TriggerDefinition:
    """Return the workflow of a file; its agent may be one that is *coming* with it."""
    agent = file.said["agent"]
    try:
        return await triggers.judged(
            file.said, file=file.file, agent=agent if agent in coming else None
        )
    except kinds.TriggerError as error:
        if error.reason != "Agent not found":
            raise
        reason = f"Agent '{agent}' not found (referenced by workflow '{file.name}')"
        raise kinds.TriggerError(reason, field="agent") from None


async def _why(
    triggers: Triggers, made: TriggerDefinition, coming: Mapping[str, AgentCard | None]
) -> Unready | None:
    """Return why the agent of a workflow cannot run, unless the file of that agent says it."""
    if made.agent not in coming:
        return await triggers.why_agent(made.agent, made.enforced)
    card = coming[made.agent]
    why = None if card is None else triggers.why_unready(card, made.enforced)
    return None if card is None or why == triggers.why_unready(card) else why


async def _workflow_change(
    triggers: Triggers, file: DefinitionFile, made: TriggerDefinition, fresh_at: datetime | None
) -> PlannedChange:
    about = file.what, file.name, file.place
    found = await triggers.store.named(file.name)
    if found is None:
        is_on = made.is_enabled and fresh_at is not None
        left = made.kind.fired_before(fresh_at) if is_on and fresh_at else ""
        made = replace(made, is_enabled=made.is_enabled and not left)
        return PlannedChange("create", *about, made=made, left=left)
    was = found.definition
    was.kind.check_change(was.name, made.kind)
    is_again = isinstance(made.kind, kinds.DelayKind) and made.kind != was.kind
    if was.is_wanted == made.is_wanted and not is_again:
        # It may have been disabled since, or has fired: the file has nothing new to say.
        made = replace(made, is_enabled=was.is_enabled)
    diff = _diff(_fields(was), _fields(made))
    is_same = not diff and (was.file, was.is_wanted) == (file.file, made.is_wanted)
    verb = "unchanged" if is_same else "update"
    return PlannedChange(verb, *about, diff, made=made, was=found)


def _fields(definition: TriggerDefinition) -> dict[str, object]:
    return {
        "agent": definition.agent,
        "source": definition.kind,
        "prompt_template": definition.template,
        "poll_interval": definition.poll_interval,
        "enabled": definition.is_enabled,
        "tool_policy": definition.tools.data(),
        **definition.options,
    }


def _diff(old: Mapping[str, object], new: Mapping[str, object]) -> tuple[FieldChange, ...]:
    def safe(name: str, value: object) -> object:
        match name, value:
            case "source", kinds.TriggerKind():
                return value.shown()
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
