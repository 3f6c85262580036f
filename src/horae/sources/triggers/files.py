r"""Agents and workflows as YAML files, as they stand in `.agentd/`.

Here they are only read: a cron expression or a time is not judged, and each value is the text of
the file until its field says of which type it is.

>>> text = "name: standup\nagent: reporter\nsource:\n  type: manual\nprompt_template: Begin.\n"
>>> found = parse_workflow(text, file="standup.yml")
>>> found.item.said["agent"], found.item.said["trigger_config"], found.problems
('reporter', {'type': 'manual'}, ())
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from horae.core import secret
from horae.files.yaml import Data, YamlError, YamlMap, YamlPlace, read_yaml
from horae.org.plan import Diagnostic, Severity, is_id
from horae.sources.triggers.kinds import KINDS
from horae.sources.triggers.rules import AGENT_FIELDS, OPTIONS, POLL

_FLAGS: Final = {"true": True, "false": False}
_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_SOURCES: Final = ("source", "trigger_config", "source_config")
_INTERVALS: Final = ("poll_interval", "poll_interval_secs")
_TEXT_LISTS: Final = ("additional_dirs", "command")  # a single text may stand alone
# The fields that a source of any kind may have.
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
    """An agent or a workflow of a file; `said` is what a request would say to make it."""

    what: str  # agent or workflow
    file: str
    said: Mapping[str, Any]
    places: Mapping[str, YamlPlace]  # of its fields
    template_file: str | None = None

    def __post_init__(self) -> None:
        """Refuse what no file gives: a request may bring any."""
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
        """Return what is wrong with a field, at the name if there is no such field."""
        place = self.places.get(key) or self.places.get("name")
        line, column = (place.line, place.column) if place else (1, 1)
        return Diagnostic(self.file, line, column, "agentd", Severity.ERROR, message)


class ParsedFile(NamedTuple):
    """What a file holds, unless it is wrong, and what is wrong or odd about it."""

    item: DefinitionFile | None
    problems: tuple[Diagnostic, ...] = ()


def is_workflow(text: str) -> bool:
    """Tell whether a file is rather a workflow than an agent; what cannot be read is neither."""
    try:
        data = read_yaml(text)
    except YamlError:
        return False
    return isinstance(data, dict) and any(key in data for key in ("agent", *_SOURCES))


def parse_workflow(
    text: str, *, file: str = "-", environ: Mapping[str, str] | None = None
) -> ParsedFile:
    """Return the workflow that a file holds; `${NAME}` in a secret must be known to *environ*."""
    page = _YamlPage(text, file)
    page.know(WORKFLOW_KEYS)
    said: dict[str, Any] = {"name": page.name("name"), "agent": page.name("agent")}
    where = next((key for key in _SOURCES if key in page.data), "source")
    source = page.get(where, dict)
    page.know(SOURCE_KEYS, within=where)
    if source is None and not page.is_wrong:
        page.wrong("source", "a workflow needs a source", "write `source:` with a `type:`")
    for key in secret.WEBHOOK_SECRETS:
        # So that it need not stand in a file that goes into git.
        if source is not None and isinstance(source.get(key), str):
            page.name_secrets(where, key, source[key], environ or {}, is_secret=True)
    page.keep_literal("prompt_template")
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
    """Return the agent that a file holds; `${NAME}` in its `env` must be known to *environ*."""
    page = _YamlPage(text, file)
    page.know(AGENT_KEYS)
    name = page.name("name")
    config = {key: page.get(key, wanted) for key, wanted in AGENT_FIELDS.items()}
    for key, value in (config["env"] or {}).items():
        if isinstance(value, str):
            page.name_secrets("env", key, value, environ, is_secret=secret.looks_secret(key, value))
        else:
            page.wrong("env", f"{key[:60]} must be text", "write it on one line")
    page.keep_literal("prompt", "system_prompt", "working_dir", "command", "model")
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
        """Note that a field, of the page or within another field, is not as it should be."""
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
                near = get_close_matches(key, known, n=1)
                fix = f"did you mean {near[0]}?" if near else "remove it"
                said = f"unknown field {key[:60]!r} is ignored"
                self.wrong(key, said, fix, kind=Severity.WARNING)

    def parsed(self, what: str, said: dict[str, Any], **more: Any) -> ParsedFile:
        made = None if self.is_wrong else DefinitionFile(what, self.file, said, self.places, **more)
        return ParsedFile(made, tuple(self.problems))

    def get(self, key: str, wanted: type) -> Any:
        """Return a field as a type; None: there is none, or it is noted as wrong."""
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
        """Note what is wrong with a text that may name secrets, and should if it *is_secret*."""
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

    def keep_literal(self, *keys: str) -> None:
        """Note `${NAME}` where it names nothing: what is told or called is taken as it stands."""
        for key in keys:
            parts = self.data.get(key)
            texts = [each for each in parts if isinstance(each, str)] if parts else []
            text = parts if isinstance(parts, str) else " ".join(texts)
            if (found := secret.names_in(text)) and "-c" not in texts:  # a shell fills in its own
                message = f"${{{found[0]}}} in {key} is not replaced; only env and secret are"
                fix = f"pass it to the run in env, and read {found[0]} there"
                self.wrong(key, message, fix, kind=Severity.INFO)


def _plain(value: Data) -> Any:
    if isinstance(value, YamlMap):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value
