"""Triggers: definitions of requests and files, and their entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Any, Final, TypeVar, get_origin, get_type_hints

from msgspec import Meta, Struct

from horae.core import entry
from horae.core.actor import API_FIX, api_scopes
from horae.core.agent import NO_VARIABLES, PromptOrder, problems, variables
from horae.core.ports import read_json
from horae.core.receipt import GONE, Status
from horae.core.secret import is_own, names_in
from horae.core.source import Mark, Scanned, digest_of
from horae.core.tool_policy import OPEN, ToolPolicy, ToolPolicyError, parse_policy
from horae.errors import HoraeError
from horae.org.plan import is_id
from horae.sources.triggers import kinds
from horae.sources.triggers.kinds import TriggerError, TriggerKind, TriggerTask
from horae.sources.triggers.views import DispatchStatus
from horae.timing.duration import DurationError, parse_duration

T = TypeVar("T", bool, int)

_STORED: Final = ("agent", "template", "poll_interval", "options", "file")
POLL: Final = 60  # default seconds between two polls
_MOST_FACTS: Final = 100
# The policy of a trigger, by the names in its file; each is a property of a headline.
OPTIONS: Final = tuple(each.option for each in entry.PROPERTIES)


def _about(text: str, **more: Any) -> Meta:
    return Meta(description=text, extra_json_schema=more or None)


_WHERE: Final = (
    "The working directory. A dot is the directory from which the files are applied; any other "
    "path is relative to this file."
)
_ENV: Final = (
    "Environment variables. ${NAME} and ${NAME:-default} are replaced by secrets or variables of "
    "the engine when a run starts."
)
_API: Final = "The scopes of the token for each run: read, run, edit, or several of them."


class AgentConfig(Struct, frozen=True):
    """What a file or a request says of an agent; `schemas/agent.schema.json` is made from it."""

    working_dir: Annotated[str, _about(_WHERE, default=".")]
    user: str
    shell: str
    interactive: bool
    prompt: str
    worktree: bool
    system_prompt: Annotated[str, _about("The system prompt.")]
    tool_policy: dict[str, Any]
    model: str
    env: Annotated[dict[str, str], _about(_ENV)]
    auto_clear_threshold: int
    network_policy: str
    docker_image: str
    extra_mounts: list[dict[str, Any]]
    resource_limits: dict[str, Any]
    additional_dirs: list[str]
    rooms: list[Any]
    command: Annotated[list[str], _about("The command; default: agent.command of horae.toml.")]
    timeout: Annotated[str, _about("The time limit of a run.", examples=["15m"])]
    api: Annotated[str, _about(_API, examples=["read run"])]


AGENT_FIELDS: Final[Mapping[str, type]] = {
    name: get_origin(kind) or kind for name, kind in get_type_hints(AgentConfig).items()
}
# fmt: off
# Fields of agents that are stored for other programs.
UNUSED_AGENT_FIELDS: Final = (
    "user", "shell", "interactive", "worktree", "auto_clear_threshold", "network_policy",
    "docker_image", "extra_mounts", "resource_limits", "rooms",
)
_TYPE_WORDS: Final[Mapping[type, str]] = {
    bool: "true or false", dict: "an object", int: "an integer", list: "a list", str: "a string",
}
# The prefixes of agentd's errors, by code.
_PREFIXES: Final = {
    "trigger": "invalid input", "trigger_not_found": "not found", "trigger_conflict": "conflict",
    "agent_unavailable": "service unavailable",
}
# fmt: on


def api_words(error: HoraeError) -> str:
    prefix = _PREFIXES.get(error.code)
    return str(error) if prefix is None else f"{prefix}: {error}"


_DISPATCH_STATUSES: Final[Mapping[Status, DispatchStatus]] = {
    **dict.fromkeys((Status.WAITING, Status.HELD, Status.STARTING), DispatchStatus.PENDING),
    Status.RUNNING: DispatchStatus.DISPATCHED,
    **dict.fromkeys((Status.DONE, Status.NO_WORK), DispatchStatus.COMPLETED),
    **dict.fromkeys((Status.FAILED, Status.KILLED, Status.INTERRUPTED), DispatchStatus.FAILED),
}


def dispatch_status(status: Status) -> DispatchStatus:
    return _DISPATCH_STATUSES.get(status, DispatchStatus.SKIPPED)


@dataclass(frozen=True, slots=True)
class TriggerDefinition:
    """A trigger as defined by a request or a file; `file` is empty for the API."""

    name: str
    agent: str
    kind: TriggerKind
    template: str
    poll_interval: int = POLL
    is_enabled: bool = True
    tools: ToolPolicy = OPEN
    options: Mapping[str, str] = field(default_factory=dict)
    file: str = ""
    # Whether its file last enabled it; None without a file.
    is_wanted: bool | None = None

    @property
    def enforced(self) -> ToolPolicy | None:
        return PromptOrder(self.template, tools=self.tools).enforced

    @property
    def secrets(self) -> frozenset[str]:
        return frozenset(self.kind.secrets.values())

    def data(self) -> dict[str, object]:
        kept = {name: getattr(self, name) for name in _STORED}
        kept |= {"tools": self.tools.data(), "wanted": self.is_wanted}
        return {"config": self.kind.data(), **kept}

    @classmethod
    def of(cls, name: str, data: Mapping[str, Any], *, is_enabled: bool) -> TriggerDefinition:
        kept = {key: data[key] for key in _STORED}
        kept |= {"is_enabled": is_enabled, "is_wanted": data["wanted"]}
        kind, tools = kinds.stored_kind(data["config"]), parse_policy(data["tools"])
        return cls(name=name, kind=kind, tools=tools, **kept)


@dataclass(frozen=True, slots=True)
class Trigger:
    """A trigger in the store; `times` counts how often it was enabled."""

    id: str
    definition: TriggerDefinition
    times: int
    created_at: datetime
    updated_at: datetime

    @property
    def key(self) -> str:
        """The key of a one-time trigger, a new one each time it is enabled."""
        return self.id if self.times <= 1 else f"{self.id}:{self.times}"


def changed_definition(
    was: TriggerDefinition, data: Mapping[str, Any], *, agent: str
) -> TriggerDefinition:
    """Return a definition changed by a request; a field that is null stays as it is."""
    given = {name: value for name, value in data.items() if value is not None}
    config = given.get("trigger_config", given.get("source_config"))
    if isinstance(config, dict):
        config = was.kind.merged(config)
    name, template = given.get("name", was.name), given.get("prompt_template", was.template)
    if not isinstance(name, str) or not isinstance(template, str):
        raise TriggerError("name and prompt_template must be strings")
    options = {key: given[key] for key in OPTIONS if key in given}
    for key, value in options.items():
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise TriggerError(f"{key} must be a string", field=key)
    options = {**was.options, **{key: str(value) for key, value in options.items()}}
    return TriggerDefinition(
        name,
        agent,
        was.kind if config is None else kinds.kind_of(config),
        template,
        typed(given.get("poll_interval_secs"), "poll_interval_secs", was.poll_interval),
        typed(given.get("enabled"), "enabled", was.is_enabled),
        parse_tools(given["tool_policy"]) if "tool_policy" in given else was.tools,
        {key: value for key, value in options.items() if value},  # an empty one is removed
        was.file,
        data.get("wanted", was.is_wanted),
    )


def new_definition(data: Mapping[str, Any], *, agent: str, file: str = "") -> TriggerDefinition:
    none = TriggerDefinition("", "", kinds.ManualKind(), "", file=file)
    return changed_definition(none, data, agent=agent)


def checked(definition: TriggerDefinition) -> TriggerDefinition:
    made = replace(definition, kind=definition.kind.complete())
    wrong = problems(made.template, made.kind.variables())
    if wrong:
        reason = f"the prompt template is not valid: {'; '.join(wrong)}"
        raise TriggerError(reason, field="prompt_template")
    made.kind.check()
    for field_name, what, name in (("name", "workflow", made.name), ("agent", "agent", made.agent)):
        if not is_id(name):
            reason = f"the {what} name {name[:64]!r} may contain only letters, digits and .-_"
            raise TriggerError(reason if name else f"the {what} has no name", field=field_name)
    if not 1 <= made.poll_interval <= 7 * 24 * 3600:
        reason = "poll_interval_secs must be a whole number of seconds from 1 to 604800"
        raise TriggerError(reason, field="poll_interval")
    policy_for(made)
    return made


def checked_agent(data: Mapping[str, Any]) -> dict[str, Any]:
    name = data.get("name")
    if not isinstance(name, str) or not is_id(name):
        wrong = f"{str(name)[:64]!r} is not valid; use letters, digits, '.', '-' and '_'"
        raise TriggerError(f"the agent's name {wrong if name else 'is missing'}", field="name")
    # Empty is missing, so a file can remove an option.
    config = {key: value for key in AGENT_FIELDS if (value := data.get(key))}
    for key, value in config.items():
        if not isinstance(value, AGENT_FIELDS[key]):
            raise TriggerError(f"{key} must be {_TYPE_WORDS[AGENT_FIELDS[key]]}", field=key)
    parse_tools(config.get("tool_policy"))
    for key in ("command", "additional_dirs"):
        if not all(isinstance(each, str) and each for each in config.get(key, ())):
            raise TriggerError(f"{key} must be a list of strings", field=key)
    env = config.get("env", {})
    if not all(isinstance(k, str) and isinstance(v, str) for k, v in env.items()):
        raise TriggerError("env must be an object of strings", field="env")
    if own := [name for text in env.values() for name in names_in(text) if is_own(name)]:
        raise TriggerError(f"env refers to {own[0]}, which is reserved for the engine", field="env")
    try:
        parse_duration(config.get("timeout", "1h"))
    except DurationError as error:
        raise TriggerError(f"timeout: {error}", field="timeout") from None
    try:
        api_scopes(config.get("api", "read"))
    except ValueError:
        raise TriggerError(f"api {config['api'][:60]!r}: {API_FIX}", field="api") from None
    return {"working_dir": ".", **config}


def checked_task(data: object) -> TriggerTask:
    if data is None:
        return TriggerTask()
    if not isinstance(data, dict):
        raise TriggerError("the input of a trigger must be an object with title, body and metadata")
    given = {name: value for name, value in data.items() if value is not None}
    facts = given.get("metadata", {})
    if not isinstance(facts, dict) or len(facts) > _MOST_FACTS:
        raise TriggerError(f"metadata must be an object with at most {_MOST_FACTS} strings")
    metadata = {str(name)[:100]: _value(value, "metadata") for name, value in facts.items()}
    title, body = (_value(given.get(name, ""), name) for name in ("title", "body"))
    return TriggerTask(title, body, metadata=metadata)


def parse_tools(data: object) -> ToolPolicy:
    if data is None:
        return OPEN
    if not isinstance(data, dict):
        raise TriggerError("tool_policy must be an object with a 'mode'", field="tool_policy")
    try:
        return parse_policy(data)
    except ToolPolicyError as error:
        raise TriggerError(str(error), field="tool_policy") from None


def validate_template(template: str) -> dict[str, Any]:
    wrong = problems(template, kinds.EVERY_VARIABLE)
    warnings = wrong or ([] if variables(template) else [NO_VARIABLES])
    return {"valid": not wrong, "warnings": warnings, "known_variables": list(kinds.EVERY_VARIABLE)}


def parse_json(text: str, name: str) -> dict[str, Any]:
    said = read_json(text, dict)
    if said is None:
        raise TriggerError(f'{name} must be a JSON object such as {{"mode": "deny_all"}}')
    return said


def typed(value: object, name: str, default: T) -> T:
    if value is None:
        return default
    if type(value) is not type(default):
        raise TriggerError(f"{name} must be {_TYPE_WORDS[type(default)]}", field=name)
    return value


def _value(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise TriggerError(f"{name} must be a string")
    if len(value) > kinds.LONGEST_VALUE:
        raise TriggerError(f"{name} must have at most {kinds.LONGEST_VALUE:,} characters")
    return value


def policy_for(definition: TriggerDefinition) -> entry.Policy:
    options = definition.options
    given = {each.key: options[each.option] for each in entry.PROPERTIES if each.option in options}
    try:
        policy = entry.policy_of(given, zone_name=definition.kind.zone())
    except entry.PolicyError as error:
        name = next(each.option for each in entry.PROPERTIES if each.key == error.key)
        reason = f"{name} {error.value[:60]}: {str(error).rpartition(': ')[2]}"
        raise TriggerError(reason, field=name) from None
    return definition.kind.policy(policy)


def scanned(trigger: Trigger) -> Scanned:
    definition, kind = trigger.definition, trigger.definition.kind
    file, name = definition.file, definition.name
    origin = entry.Origin(file, 1) if file else entry.Origin.of_trigger(name)
    text = order_of(trigger).text()
    body = digest_of(trigger.id + text)  # two triggers with the same text are different
    about = (f"trigger:{trigger.id}", origin, definition.name)
    mark = Mark(about[0], definition.name, kind.rule_text(trigger.key), body)
    if not definition.is_enabled:
        is_gone = definition.file and definition.is_wanted is None
        reason = GONE if is_gone else "the trigger is disabled"
        return Scanned(mark, entry.Unarmed(*about, reason), text)
    try:
        item: entry.Entry | entry.Unarmed = entry.Entry(
            *about,
            kind.rule(trigger.key),
            work=entry.Work.PROMPT,
            agents=(definition.agent,),
            policy=policy_for(definition),
            zone=kind.zone(),
            digest=digest_of(text),
        )
    except HoraeError as error:
        item = entry.Unarmed(*about, str(error))
    return Scanned(mark, item, text)


def order_of(trigger: Trigger, task: TriggerTask | None = None) -> PromptOrder:
    definition, kind = trigger.definition, trigger.definition.kind
    metadata = kind.facts(trigger.id)
    values = {"trigger_type": kind.type, "workflow_id": trigger.id, **metadata}
    values["title"] = kind.title()
    if task is not None:
        given = task.values()
        title = given.pop("title") or values["title"]
        # A task fills variables; it cannot change the trigger.
        values = given | values | {"title": title}
        metadata |= task.metadata
    return PromptOrder(definition.template, values, metadata, definition.tools)
