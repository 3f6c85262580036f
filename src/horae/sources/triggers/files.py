r"""Agents and workflows as YAML files, as they stand in `.agentd/`.

Here they are only read: a cron expression or a time is not judged, and each value is the text of
the file until its field says of which type it is.

>>> text = "name: standup\nagent: reporter\nsource:\n  type: manual\nprompt_template: Begin.\n"
>>> found = parse_workflow(text, file="standup.yml")
>>> found.item.agent, found.item.source, found.problems
('reporter', {'type': 'manual'}, ())
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from horae.core.secret import is_reference, looks_secret, names_in, needed_in, why_no_name
from horae.files.yaml import YamlError, YamlMap, read_yaml
from horae.org.plan import Diagnostic, Severity, is_id
from horae.sources.triggers.kinds import KINDS
from horae.sources.triggers.rules import AGENT_FIELDS, OPTIONS, POLL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from horae.files.yaml import Data, YamlPlace

Item = TypeVar("Item")

_FLAGS: Final = {"true": True, "false": False}
_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_NAME_FIX: Final = "use only letters, digits, dots, dashes and underscores"

_SOURCES: Final = ("source", "trigger_config", "source_config")
_INTERVALS: Final = ("poll_interval", "poll_interval_secs")
# The fields that a source of any kind may have.
SOURCE_KEYS: Final = ("type", *dict.fromkeys(key for kind in KINDS.values() for key in kind.fields))
WORKFLOW_KEYS: Final = (
    "name",
    "agent",
    *_SOURCES,
    *_INTERVALS,
    "enabled",
    "tool_policy",
    "prompt_template",
    "prompt_template_file",
    "timezone",
    *OPTIONS,
)
_TEXTS: Final = tuple(key for key, wanted in AGENT_FIELDS.items() if wanted is str)
_SWITCHES: Final = ("interactive", "worktree")
_LISTS: Final = ("additional_dirs", "command")
AGENT_KEYS: Final = (
    "name",
    *_TEXTS,
    *_SWITCHES,
    "enabled",
    *_LISTS,
    "auto_clear_threshold",
    "env",
    "extra_mounts",
    "resource_limits",
    "rooms",
    "tool_policy",
)


@dataclass(frozen=True, slots=True)
class WorkflowFile:
    """A workflow as it is written; `lines` and `columns` say where each of its fields stands."""

    file: str
    name: str
    agent: str
    source: Mapping[str, Any]
    template: str | None
    template_file: str | None = None
    poll_interval: int = POLL
    is_enabled: bool = True
    tool_policy: Mapping[str, Any] | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)
    columns: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentFile:
    """An agent as it is written; `config` has only what stands there."""

    file: str
    name: str
    config: Mapping[str, Any]
    is_enabled: bool = True
    lines: Mapping[str, int] = field(default_factory=dict)
    columns: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ParsedFile(Generic[Item]):
    """What a file holds, if that can be told, and what is wrong or odd about it."""

    item: Item | None
    problems: tuple[Diagnostic, ...] = ()

    @property
    def is_good(self) -> bool:
        return self.item is not None and not any(
            each.severity is Severity.ERROR for each in self.problems
        )


def is_workflow(text: str) -> bool:
    """Tell whether a file is rather a workflow than an agent; what cannot be read is neither."""
    try:
        data = read_yaml(text)
    except YamlError:
        return False
    return isinstance(data, dict) and any(key in data for key in ("agent", *_SOURCES))


def parse_workflow(
    text: str, *, file: str = "-", environ: Mapping[str, str] | None = None
) -> ParsedFile[WorkflowFile]:
    """Return the workflow that a file holds; `${NAME}` in a secret must be known to *environ*."""
    page = _YamlPage.read(text, file)
    page.know(WORKFLOW_KEYS)
    name, agent = page.name("name"), page.name("agent")
    where = next((key for key in _SOURCES if key in page.data), "source")
    source = page.mapping(where)
    page.know(SOURCE_KEYS, within=where)
    if source is None and not page.is_wrong:
        page.wrong("source", "a workflow needs a source", "write `source:` with a `type:`")
    for secret in ("secret", "old_secret"):
        # So that it need not stand in a file that goes into git.
        if source is not None and isinstance(source.get(secret), str):
            page.name_secrets(where, secret, source[secret], environ or {}, is_secret=True)
    page.keep_literal("prompt_template")
    zone = page.text("timezone")
    if source is not None and zone is not None:
        source = {**source, "timezone": zone}
    template, other = page.text("prompt_template"), page.text("prompt_template_file")
    if template is None and other is None and not page.is_wrong:
        reason = f"Workflow '{file}' must have either 'prompt_template' or 'prompt_template_file'"
        page.wrong("name", reason, "write the prompt for the agent")
    interval = next((page.number(key) for key in _INTERVALS if key in page.data), None)
    options = {key: page.text(key) for key in OPTIONS}
    item = WorkflowFile(
        file,
        name,
        agent,
        source or {},
        template,
        other if template is None else None,
        POLL if interval is None else interval,
        page.flag("enabled", default=True),
        page.mapping("tool_policy"),
        {key: value for key, value in options.items() if value is not None},
        page.lines(),
        page.columns(),
    )
    return page.found(item)


def parse_agent(text: str, *, file: str = "-", environ: Mapping[str, str]) -> ParsedFile[AgentFile]:
    """Return the agent that a file holds; `${NAME}` in its `env` must be known to *environ*."""
    page = _YamlPage.read(text, file)
    page.know(AGENT_KEYS)
    name = page.name("name")
    config: dict[str, Any] = {key: page.text(key) for key in _TEXTS}
    config |= {key: page.flag(key) for key in _SWITCHES if key in page.data}
    config |= {key: page.texts(key) for key in _LISTS}
    config["auto_clear_threshold"] = page.number("auto_clear_threshold")
    config["env"] = page.environment("env", environ)
    page.keep_literal("prompt", "system_prompt", "working_dir", "command", "model")
    config["tool_policy"] = page.mapping("tool_policy")
    config["resource_limits"] = page.mapping("resource_limits")
    config |= {key: page.listed(key) for key in ("extra_mounts", "rooms")}
    given = {key: value for key, value in config.items() if value is not None}
    is_enabled = page.flag("enabled", default=True)
    item = AgentFile(file, name, given, is_enabled, page.lines(), page.columns())
    return page.found(item)


class _YamlPage:
    """One file while it is being read: its fields, and what was found wrong so far."""

    def __init__(self, file: str, data: YamlMap, problems: Iterable[Diagnostic] = ()) -> None:
        self.file = file
        self.data = data
        self.problems = list(problems)

    @classmethod
    def read(cls, text: str, file: str) -> _YamlPage:
        """Return the page of a file; a file that is no mapping has a problem and no fields."""
        try:
            data = read_yaml(text)
        except YamlError as error:
            place = (file, error.line, error.column, "yaml", Severity.ERROR)
            return cls(file, YamlMap(), [Diagnostic(*place, error.reason, error.fix)])
        if isinstance(data, YamlMap):
            return cls(file, data)
        place = (file, 1, 1, "yaml", Severity.ERROR)
        return cls(
            file, YamlMap(), [Diagnostic(*place, "the file has no fields", "write `name: …`")]
        )

    def found(self, item: Item) -> ParsedFile[Item]:
        return ParsedFile(None if self.is_wrong else item, tuple(self.problems))

    @property
    def is_wrong(self) -> bool:
        return any(each.severity is Severity.ERROR for each in self.problems)

    def wrong(
        self,
        key: str,
        message: str,
        fix: str,
        *,
        kind: Severity = Severity.ERROR,
        within: YamlMap | None = None,
    ) -> None:
        """Note that a field, of the page or within another field, is not as it should be."""
        place = (self.data if within is None else within).places.get(key)
        line, column = (place.line, place.column) if place else (1, 1)
        self.problems.append(Diagnostic(self.file, line, column, "agentd", kind, message, fix))

    def know(self, keys: Iterable[str], *, within: str | None = None) -> None:
        """Note the fields that mean nothing here, or within another one."""
        known = list(keys)
        data = self.data if within is None else self.data.get(within)
        if not isinstance(data, YamlMap):
            return
        for key in data:
            if key not in known:
                near = get_close_matches(key, known, n=1)
                fix = f"did you mean {near[0]}?" if near else "remove it"
                said = f"unknown field {key[:60]!r} is ignored"
                self.wrong(key, said, fix, kind=Severity.WARNING, within=data)

    def lines(self) -> dict[str, int]:
        """Return on which line each field stands, those inside others too."""
        return {key: place.line for key, place in self._places().items()}

    def columns(self) -> dict[str, int]:
        """Return in which column each field stands, those inside others too."""
        return {key: place.column for key, place in self._places().items()}

    def _places(self) -> dict[str, YamlPlace]:
        """Return where each field stands; of two of one name, the outer one."""
        places = dict(self.data.places)
        for value in self.data.values():
            if isinstance(value, YamlMap):
                places = {**value.places, **places}
        return places

    def text(self, key: str) -> str | None:
        value = self.data.get(key)
        if value is None or isinstance(value, str):
            return value
        self.wrong(key, f"{key} must be text", "write it on one line, or after a |")
        return None

    def name(self, key: str) -> str:
        value = self.text(key)
        if (self.data or not self.is_wrong) and not is_id(value or ""):
            shown = f"{value[:60]!r} is not a valid name" if value else f"{key} is missing"
            self.wrong(key, shown, _NAME_FIX)
        return value or ""

    def flag(self, key: str, *, default: bool = False) -> bool:
        value = self.text(key)
        if value is None:
            return default
        if value.lower() not in _FLAGS:
            self.wrong(
                key, f"{key} must be true or false, not {value[:60]!r}", "write true or false"
            )
        return _FLAGS.get(value.lower(), default)

    def number(self, key: str) -> int | None:
        value = self.text(key)
        if value is None:
            return None
        if _NUMBER.fullmatch(value) is None:
            self.wrong(key, f"{key} must be a whole number, not {value[:60]!r}", "write digits")
            return None
        return int(value)

    def mapping(self, key: str) -> dict[str, Any] | None:
        value = self.data.get(key)
        if value is None:
            return None
        if not isinstance(value, YamlMap):
            self.wrong(key, f"{key} must be a mapping", "write its fields below it, indented")
            return None
        return {name: _plain(each) for name, each in value.items()}

    def listed(self, key: str) -> list[Any] | None:
        """Return a field that is a list, of anything but lists."""
        value = self.data.get(key)
        if value is None:
            return None
        if isinstance(value, list) and not any(isinstance(each, list) for each in value):
            return [_plain(each) for each in value]
        self.wrong(key, f"{key} must be a list", "write each item after a dash, on its own line")
        return None

    def texts(self, key: str) -> list[str] | None:
        """Return a field that is a list of strings; a single one may stand alone."""
        value = self.data.get(key)
        parts = [value] if isinstance(value, str) else self.listed(key)
        if parts is None or all(isinstance(each, str) for each in parts):
            return parts
        self.wrong(key, f"{key} must be a list of strings", "write each item after a dash")
        return None

    def environment(self, key: str, environ: Mapping[str, str]) -> dict[str, str] | None:
        """Return variables as they are written; what they name must be known."""
        given = self.mapping(key)
        if given is None:
            return None
        for name in [name for name, each in given.items() if not isinstance(each, str)]:
            self.wrong(key, f"{name[:60]} must be text", "write it on one line")
        texts = {name: each for name, each in given.items() if isinstance(each, str)}
        for name, text in texts.items():
            self.name_secrets(key, name, text, environ, is_secret=looks_secret(name, text))
        return texts

    def name_secrets(
        self, key: str, name: str, text: str, environ: Mapping[str, str], *, is_secret: bool
    ) -> None:
        """Note what is wrong with a text that may name secrets, and should if it *is_secret*."""
        for each in names_in(text):
            if why := why_no_name(each):
                self.wrong(key, f"{name[:60]} names {each}: {why}", "use another name")
                return
        missing = next((each for each in needed_in(text) if each not in environ), None)
        if missing is not None:
            fix = f"set it, name it in [secrets] of horae.toml, or write ${{{missing}:-default}}"
            self.wrong(key, f"{name} needs the variable {missing}, which is not set", fix)
        elif is_secret and not is_reference(text):
            message = f"{name[:60]} contains a secret that everyone who can read this file can see"
            fix = "write ${NAME}, and set where NAME is read from in [secrets] of horae.toml"
            self.wrong(key, message, fix, kind=Severity.WARNING)

    def keep_literal(self, *keys: str) -> None:
        """Note `${NAME}` where it names nothing: what is told or called is taken as it stands."""
        for key in keys:
            parts = self.data.get(key)
            texts = [each for each in parts if isinstance(each, str)] if parts else []
            text = parts if isinstance(parts, str) else " ".join(texts)
            if (found := names_in(text)) and "-c" not in texts:  # a shell fills in its own
                message = f"${{{found[0]}}} in {key} is not replaced; only env and secret are"
                fix = f"pass it to the run in env, and read {found[0]} there"
                self.wrong(key, message, fix, kind=Severity.INFO)


def _plain(value: Data) -> Any:
    if isinstance(value, YamlMap):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value
