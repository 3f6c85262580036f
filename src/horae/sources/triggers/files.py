r"""Agents and workflows as YAML files in `.agentd/`.

Here they are only read: a cron expression or a time is not judged, and each value is the text of
the file until its field says of which type it is.

>>> text = "name: standup\nagent: reporter\nsource:\n  type: manual\nprompt_template: Begin.\n"
>>> found = parse_workflow(text, file="standup.yml")
>>> found.item.said["agent"], found.item.said["trigger_config"], found.problems
('reporter', {'type': 'manual'}, ())
"""

from __future__ import annotations

import re
from collections import ChainMap, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import convert

from horae.core import secret
from horae.errors import HoraeError
from horae.files.yaml import Data, YamlError, YamlMap, YamlPlace, read_yaml
from horae.org.plan import Diagnostic, Severity, is_id
from horae.sources.triggers import kinds
from horae.sources.triggers.kinds import KINDS
from horae.sources.triggers.rules import AGENT_FIELDS, OPTIONS, POLL, Trigger, TriggerDefinition
from horae.sources.triggers.service import TriggerConflictError, Triggers
from horae.sources.triggers.store import AgentCard
from horae.sources.triggers.views import FieldChange, FileChange, FileNote

if TYPE_CHECKING:
    from horae.core.command import Unready
    from horae.sources.triggers.store import TriggerStore

_FLAGS: Final = {"true": True, "false": False}
_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_SOURCES: Final = ("source", "trigger_config", "source_config")
_INTERVALS: Final = ("poll_interval", "poll_interval_secs")
_TEXT_LISTS: Final = ("additional_dirs", "command")  # a single text needs no list
# Fields of sources of any kind.
SOURCE_KEYS: Final = (
    *("type", *dict.fromkeys(key for kind in KINDS.values() for key in kind.__struct_fields__)),
)
WORKFLOW_KEYS: Final = (
    *("name", "agent", *_SOURCES, *_INTERVALS, "enabled", "tool_policy"),
    *("prompt_template", "prompt_template_file", "timezone", *OPTIONS),
)
AGENT_KEYS: Final = ("name", "enabled", *AGENT_FIELDS)


@dataclass(frozen=True, slots=True)
class DefinitionFile:
    """An agent or a workflow of a file; `said` is the request that would create it."""

    what: str  # agent or workflow
    file: str
    said: Mapping[str, Any]
    places: Mapping[str, YamlPlace]  # of its fields
    template_file: str | None = None

    def __post_init__(self) -> None:
        """Refuse fields that files may not have: a request may have any."""
        if self.what not in {"agent", "workflow"}:
            raise ValueError("`what` must be agent or workflow")
        if not isinstance(self.said.get("name"), str) or "enabled" not in self.said:
            raise ValueError("`said` must have `name`, a string, and `enabled`")

    @property
    def name(self) -> str:
        return str(self.said["name"])

    @property
    def is_enabled(self) -> bool:
        return bool(self.said["enabled"])

    @property
    def place(self) -> str:
        return f"{self.file}:{self.wrong('name', '').line}"

    def wrong(self, key: str, message: str) -> Diagnostic:
        place = self.places.get(key) or self.places.get("name")
        line, column = (place.line, place.column) if place else (1, 1)
        return Diagnostic(self.file, line, column, "agentd", Severity.ERROR, message)


class ParsedFile(NamedTuple):
    item: DefinitionFile | None
    problems: tuple[Diagnostic, ...] = ()


def is_workflow(text: str) -> bool:
    """Return whether a file is a workflow rather than an agent; False if unreadable."""
    try:
        data = read_yaml(text)
    except YamlError:
        return False
    return isinstance(data, dict) and any(key in data for key in ("agent", *_SOURCES))


def parse_workflow(
    text: str, *, file: str = "-", environ: Mapping[str, str] | None = None
) -> ParsedFile:
    """Parse a workflow; each `${NAME}` in a secret must be in *environ*."""
    page = _YamlPage(text, file)
    page.know(WORKFLOW_KEYS)
    said: dict[str, Any] = {"name": page.name("name"), "agent": page.name("agent")}
    where = next((key for key in _SOURCES if key in page.data), "source")
    source = page.get(where, dict)
    page.know(SOURCE_KEYS, within=where)
    if source is None and not page.is_wrong:
        page.wrong("source", "a workflow needs a source", "write `source:` with a `type:`")
    for key in secret.WEBHOOK_SECRETS:
        # So that it need not be in a file under git.
        if source is not None and isinstance(source.get(key), str):
            page.name_secrets(where, key, source[key], environ or {}, is_secret=True)
    if (zone := page.get("timezone", str)) is not None:
        source = {**(source or {}), "timezone": zone}
    template, other = page.get("prompt_template", str), page.get("prompt_template_file", str)
    if template is None and other is None and not page.is_wrong:
        reason = f"Workflow '{file}' must have either 'prompt_template' or 'prompt_template_file'"
        page.wrong("name", reason, "write the prompt for the agent")
    interval = next((page.get(key, int) for key in _INTERVALS if key in page.data), None)
    options = {key: page.get(key, str) for key in OPTIONS}
    is_enabled = page.get("enabled", bool) is not False
    said |= {
        "trigger_config": source or {},
        "prompt_template": template,
        "poll_interval_secs": POLL if interval is None else interval,
        "enabled": is_enabled,
        "wanted": is_enabled,
        "tool_policy": page.get("tool_policy", dict),
        **{key: value for key, value in options.items() if value is not None},
    }
    return page.parsed("workflow", said, template_file=other if template is None else None)


def parse_agent(text: str, *, file: str = "-", environ: Mapping[str, str]) -> ParsedFile:
    """Parse an agent; each `${NAME}` in its `env` must be in *environ*."""
    page = _YamlPage(text, file)
    page.know(AGENT_KEYS)
    name = page.name("name")
    config = {key: page.get(key, wanted) for key, wanted in AGENT_FIELDS.items()}
    for key, value in (config["env"] or {}).items():
        if isinstance(value, str):
            page.name_secrets("env", key, value, environ, is_secret=secret.looks_secret(key, value))
        else:
            page.wrong("env", f"{key[:60]} must be text", "write it on one line")
    config = {key: value for key, value in config.items() if value is not None}
    is_enabled = page.get("enabled", bool) is not False
    return page.parsed("agent", {**config, "name": name, "enabled": is_enabled})


class _YamlPage:
    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self.data = YamlMap()
        self.problems: list[Diagnostic] = []
        unread = (1, 1, "yaml", Severity.ERROR, "the file has no fields", "write `name: …`")
        try:
            data = read_yaml(text)
        except YamlError as error:
            data = None
            unread = (error.line, error.column, "yaml", Severity.ERROR, error.reason, error.fix)
        if isinstance(data, YamlMap):
            self.data = data
        else:
            self.problems.append(Diagnostic(file, *unread))
        inner = [each.places for each in self.data.values() if isinstance(each, YamlMap)]
        self.places = dict(ChainMap(self.data.places, *inner))

    @property
    def is_wrong(self) -> bool:
        return any(each.severity is Severity.ERROR for each in self.problems)

    def wrong(self, key: str, message: str, fix: str, *, kind: Severity = Severity.ERROR) -> None:
        place = self.places.get(key)
        line, column = (place.line, place.column) if place else (1, 1)
        self.problems.append(Diagnostic(self.file, line, column, "agentd", kind, message, fix))

    def know(self, keys: Iterable[str], *, within: str | None = None) -> None:
        known = list(keys)
        data = self.data if within is None else self.data.get(within)
        if not isinstance(data, YamlMap):
            return
        for key in data:
            if key not in known:
                longer = [each for each in known if each.startswith(f"{key}_")]
                near = longer or get_close_matches(key, known, n=1)
                fix = f"did you mean {near[0]}?" if near else "remove it"
                said = f"unknown field {key[:60]!r} is ignored"
                self.wrong(key, said, fix, kind=Severity.WARNING)

    def parsed(self, what: str, said: dict[str, Any], **more: Any) -> ParsedFile:
        made = None if self.is_wrong else DefinitionFile(what, self.file, said, self.places, **more)
        return ParsedFile(made, tuple(self.problems))

    def get(self, key: str, wanted: type) -> Any:
        value = self.data.get(key)
        if value is None:
            return None
        if wanted is dict:
            if isinstance(value, YamlMap):
                return _plain(value)
            wrong = f"{key} must be a mapping", "write its fields below it, indented"
        elif wanted is list:
            is_texts = key in _TEXT_LISTS
            parts: Any = [value] if is_texts and isinstance(value, str) else value
            is_list = isinstance(parts, list) and not any(isinstance(each, list) for each in parts)
            if is_list and (not is_texts or all(isinstance(each, str) for each in parts)):
                return _plain(parts)
            wrong = f"{key} must be a list", "write each item after a dash, on its own line"
            if is_list:
                wrong = f"{key} must be a list of strings", "write each item after a dash"
        elif not isinstance(value, str):
            wrong = f"{key} must be text", "write it on one line, or after a |"
        elif wanted is str:
            return value
        elif wanted is bool:
            if value.lower() in _FLAGS:
                return _FLAGS[value.lower()]
            wrong = f"{key} must be true or false, not {value[:60]!r}", "write true or false"
        else:
            if _NUMBER.fullmatch(value):
                return int(value)
            wrong = f"{key} must be a whole number, not {value[:60]!r}", "write digits"
        self.wrong(key, *wrong)
        return None

    def name(self, key: str) -> str:
        value: str | None = self.get(key, str)
        if (self.data or not self.is_wrong) and not is_id(value or ""):
            shown = f"{value[:60]!r} is not a valid name" if value else f"{key} is missing"
            self.wrong(key, shown, "use only letters, digits, dots, dashes and underscores")
        return value or ""

    def name_secrets(
        self, key: str, name: str, text: str, environ: Mapping[str, str], *, is_secret: bool
    ) -> None:
        """Report problems of a text that may name secrets, and must if it *is_secret*."""
        for each in secret.names_in(text):
            if why := secret.why_no_name(each):
                self.wrong(key, f"{name[:60]} names {each}: {why}", "use another name")
                return
        missing = next((each for each in secret.needed_in(text) if each not in environ), None)
        if missing is not None:
            fix = f"set it, name it in [secrets] of horae.toml, or write ${{{missing}:-default}}"
            self.wrong(key, f"{name} needs the variable {missing}, which is not set", fix)
        elif is_secret and not secret.is_reference(text):
            message = f"{name[:60]} contains a secret that everyone who can read this file can see"
            fix = "write ${NAME}, and set where NAME is read from in [secrets] of horae.toml"
            self.wrong(key, message, fix, kind=Severity.WARNING)


def _plain(value: Data) -> Any:
    if isinstance(value, YamlMap):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value


# Agents and workflows of files: all changes are planned first, and then made


class FilesError(HoraeError, code="agentd_files"):
    def __init__(self, found: Sequence[str], *, then: str = "nothing was changed") -> None:
        self.found = list(found)
        count = f"{len(found)} problem{'s' * (len(found) != 1)}"
        super().__init__("\n".join([*found, f"{count}; {then}"]))


@dataclass(frozen=True, slots=True)
class PlannedChange:
    verb: str
    what: str
    name: str
    place: str
    diff: tuple[FieldChange, ...] = ()
    notes: tuple[Diagnostic, ...] = ()  # why it cannot run
    made: TriggerDefinition | AgentCard | None = None  # as it is to be stored
    was: Trigger | AgentCard | None = None
    left: str = ""  # why it is disabled, although its file enables it

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
    """Return the changes of applying files, agents first, and the problems.

    Nothing is enabled that may have fired before *fresh_at*, when the ledger was created.
    """
    files = sorted(files, key=lambda each: each.what)
    wrong = [*doubles(files).values()]
    changes: list[PlannedChange] = []
    coming: dict[str, AgentCard | None] = {
        each.name: None for each in files if each.what == "agent"
    }
    secrets: dict[str, str] = {}  # of new webhooks, by value
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
            why = await _unready(triggers, definition, coming) if definition.is_enabled else None
            field = "tool_policy" if definition.enforced else "agent"
            changes.append(replace(change, notes=_notes(file, field, why)))
        except HoraeError as error:
            key = error.field if isinstance(error, kinds.TriggerError) else ""
            wrong.append(file.wrong(key, str(error)))
            if isinstance(error, kinds.NeverComesError):  # written so that it never runs
                was = await triggers.store.named(file.name)
                if was is not None and was.definition.is_enabled:
                    changes.append(_disabled(was, file.place, is_wanted=False))
    return changes, wrong


def doubles(files: Sequence[DefinitionFile]) -> dict[str, Diagnostic]:
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
    return [
        _disabled(each, f"{made.file}:1", is_wanted=None)
        for each in await store.of_files()
        if (made := each.definition).is_enabled
        and made.file.startswith(folder)
        and (made.file not in names or names[made.file] not in {None, made.name})
    ]


def _disabled(was: Trigger, place: str, *, is_wanted: bool | None) -> PlannedChange:
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


async def _unready(
    triggers: Triggers, made: TriggerDefinition, coming: Mapping[str, AgentCard | None]
) -> Unready | None:
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
        # Disabled since then, or fired: the file has not changed.
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
