"""Triggers: what starts an agent from outside of a plan, when, and with which words.

A trigger names an agent, a template, and what it waits for: a cron expression, one moment, a
message, another trigger's end, or somebody who asks. Here it is judged, and turned into an
entry whose text is an *order*: the template together with all that is known before the time
comes. What is only known then (when, and by which key) is filled in when the run starts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from horae.core.decide import Status
from horae.core.entry import (
    CronRule,
    Entry,
    OnceRule,
    OnDemandRule,
    Origin,
    Unarmed,
    Work,
    key_time,
)
from horae.core.identity import Mark
from horae.core.policy import CatchUp, Overlap, Policy, PolicyError, policy_of
from horae.core.prompt import STANDARD, PromptOrder, problems
from horae.core.receipt import GONE
from horae.core.secret import is_reference
from horae.core.source import Scanned
from horae.core.tool_policy import OPEN, ToolPolicy, ToolPolicyError, parse_policy
from horae.errors import Exit, HoraeError, ScheduleError
from horae.org.plan import is_id
from horae.sources.triggers.webhook import SECRETS, Scheme, scheme_of, wrong_secret
from horae.timing.cron import Cron
from horae.timing.rfc3339 import Rfc3339Error, parse_rfc3339
from horae.timing.zone import zone

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from horae.core.entry import Rule

POLL: Final = 60  # seconds between two looks, unless a trigger says otherwise
MASK: Final = "***"  # what is shown of a secret
_LONGEST_VALUE: Final = 64 * 1024  # characters of one value that somebody sends
_MOST_FACTS: Final = 100


class Kind(StrEnum):
    """What a trigger waits for."""

    CRON = "cron"
    DELAY = "delay"
    GITHUB_ISSUES = "github_issues"
    GITHUB_PULL_REQUESTS = "github_pull_requests"
    AGENT_LIFECYCLE = "agent_lifecycle"
    DISPATCH_RESULT = "dispatch_result"
    WEBHOOK = "webhook"
    MANUAL = "manual"


class LifecycleEvent(StrEnum):
    """What happens to an agent."""

    SESSION_START = "session_start"  # it was made, or enabled again
    SESSION_END = "session_end"  # it was disabled
    CONTEXT_CLEAR = "context_clear"  # somebody asked it to forget


class DispatchStatus(StrEnum):
    """The words of the API for where a receipt stands."""

    PENDING = "pending"
    DISPATCHED = "dispatched"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


GITHUB: Final = frozenset({Kind.GITHUB_ISSUES, Kind.GITHUB_PULL_REQUESTS})
_COMMON: Final = (*STANDARD, "trigger_type", "workflow_id", "fire_time")
_OWN: Final[Mapping[Kind, tuple[str, ...]]] = {
    Kind.CRON: ("cron_expression",),
    Kind.DELAY: ("run_at",),
    Kind.GITHUB_ISSUES: (),
    Kind.GITHUB_PULL_REQUESTS: ("head_ref", "base_ref", "is_draft"),
    Kind.AGENT_LIFECYCLE: ("event_type", "agent_id", "timestamp"),
    Kind.DISPATCH_RESULT: ("source_workflow_id", "dispatch_id", "status", "timestamp"),
    Kind.WEBHOOK: (
        "delivery_id",
        "timestamp",
        "github_event",
        "action",
        "issue_number",
        "pr_number",
    ),
    Kind.MANUAL: (),
}
KNOWN: Final[Mapping[Kind, tuple[str, ...]]] = {
    kind: (*_COMMON, *own) for kind, own in _OWN.items()
}
EVERY_NAME: Final = tuple(dict.fromkeys(name for names in KNOWN.values() for name in names))

_WORDS: Final[Mapping[Status, DispatchStatus]] = {
    Status.WAITING: DispatchStatus.PENDING,
    Status.HELD: DispatchStatus.PENDING,
    Status.STARTING: DispatchStatus.PENDING,
    Status.RUNNING: DispatchStatus.DISPATCHED,
    Status.DONE: DispatchStatus.COMPLETED,
    Status.NO_WORK: DispatchStatus.COMPLETED,
    Status.FAILED: DispatchStatus.FAILED,
    Status.KILLED: DispatchStatus.FAILED,
    Status.INTERRUPTED: DispatchStatus.FAILED,
}
# How a trigger wants to be kept, in the words of its file; each is a property of a headline.
OPTIONS: Final = (
    "catchup",
    "overlap",
    "retry",
    "timeout",
    "jitter",
    "pause_after",
    "until",
    "requires",
    "api",
)


class TriggerError(HoraeError):
    """A trigger or an agent that asks for something that cannot be."""

    code = "trigger"
    exit_code = Exit.USAGE

    def __init__(self, reason: str, *, field: str = "") -> None:
        self.reason = reason
        self.field = field  # which field of a file it is about
        super().__init__(reason)


class NeverComesError(TriggerError):
    """A cron expression without any moment."""

    def __init__(self, expression: str) -> None:
        reason = f"the cron expression '{expression}' is not valid: it matches no date"
        super().__init__(reason, field="expression")


class SharedSecretError(TriggerError):
    """A webhook with the secret of another: a message for one would be taken by both."""

    def __init__(self, other: str) -> None:
        self.other = other
        reason = f"webhook '{other}' has the same secret; each webhook needs its own"
        super().__init__(reason, field="secret")


@dataclass(frozen=True, slots=True)
class Task:
    """What somebody, or something, hands over with a request."""

    title: str = ""
    body: str = ""
    url: str = ""
    labels: tuple[str, ...] = ()
    assignee: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)

    def values(self) -> dict[str, str]:
        """Return it by the names that a template knows."""
        own = {f"metadata.{name}": value for name, value in self.metadata.items()}
        return {
            **dict(self.metadata),
            **own,
            "title": self.title,
            "body": self.body,
            "url": self.url,
            "labels": ", ".join(self.labels),
            "assignee": self.assignee,
        }


@dataclass(frozen=True, slots=True)
class Definition:
    """What a trigger is, as somebody wrote it; `file` is empty if it came through the API."""

    name: str
    agent: str
    config: Mapping[str, Any]  # its type, and what belongs to that
    template: str
    poll_interval: int = POLL
    is_enabled: bool = True
    tools: ToolPolicy = OPEN
    options: Mapping[str, str] = field(default_factory=dict)
    file: str = ""
    # Whether its file last said that it be enabled; None: it has no file, or no longer one.
    is_wanted: bool | None = None

    @property
    def kind(self) -> Kind:
        return Kind(self.config["type"])

    def data(self) -> dict[str, object]:
        """Return it as plain data; whether it is enabled is kept beside it."""
        return {
            "agent": self.agent,
            "config": dict(self.config),
            "template": self.template,
            "poll_interval": self.poll_interval,
            "tools": self.tools.data(),
            "options": dict(self.options),
            "file": self.file,
            "wanted": self.is_wanted,
        }

    @classmethod
    def of(cls, name: str, data: Mapping[str, Any], *, is_enabled: bool) -> Definition:
        """Return the definition that `data` wrote."""
        config = data["config"]
        if config["type"] == Kind.WEBHOOK:  # one from before there were schemes is GitHub's
            config = {"scheme": Scheme.GITHUB.value, **config}
        return cls(
            name,
            data["agent"],
            config,
            data["template"],
            data["poll_interval"],
            is_enabled,
            parse_policy(data["tools"]),
            data["options"],
            data["file"],
            data["wanted"],
        )


@dataclass(frozen=True, slots=True)
class Trigger:
    """A trigger as it is kept; `times` counts how often it was enabled."""

    id: str
    definition: Definition
    times: int
    created_at: datetime
    updated_at: datetime

    @property
    def address(self) -> str:
        """Where its entry stands."""
        return f"trigger:{self.id}"


def view(status: Status) -> DispatchStatus:
    """Return where a receipt stands, in the words of the API.

    >>> view(Status.NO_WORK), view(Status.MISSED)
    (<DispatchStatus.COMPLETED: 'completed'>, <DispatchStatus.SKIPPED: 'skipped'>)
    """
    return _WORDS.get(status, DispatchStatus.SKIPPED)


# Judging


def checked(definition: Definition) -> Definition:
    """Return a definition in which everything is as it should be, or say what is not."""
    config = checked_config(definition.config)
    kind = Kind(config["type"])
    wrong = problems(definition.template, KNOWN[kind])
    if wrong:
        reason = f"the prompt template is not valid: {'; '.join(wrong)}"
        raise TriggerError(reason, field="prompt_template")
    check_config(config)
    if not is_id(definition.name):
        raise TriggerError(_bad_name("workflow", definition.name), field="name")
    if not is_id(definition.agent):
        raise TriggerError(_bad_name("agent", definition.agent), field="agent")
    if not 1 <= definition.poll_interval <= 7 * 24 * 3600:
        reason = "poll_interval_secs must be a whole number of seconds from 1 to 604800"
        raise TriggerError(reason, field="poll_interval")
    made = replace(definition, config=config)
    policy_for(made)
    return made


def checked_config(config: object) -> dict[str, Any]:
    """Return a trigger's configuration with only what belongs to its type."""
    said = config.get("type") if isinstance(config, dict) else None
    if not isinstance(config, dict) or not isinstance(said, str):
        raise TriggerError("trigger_config needs a 'type'", field="type")
    if said not in set(Kind):
        reason = f"there is no trigger type '{said[:60]}'; the types are {', '.join(Kind)}"
        raise TriggerError(reason, field="type")
    kind = Kind(said)
    given = {name: value for name, value in config.items() if value is not None}
    made = {"type": kind.value} | {
        name: _typed(given.get(name, default), name, type(default))
        for name, default in _FIELDS[kind].items()
        if name in given or default
    }
    if kind is Kind.WEBHOOK:
        made = {name: each for name, each in made.items() if each != ""}
        made["scheme"] = str(scheme_of(made))
    return made


# The fields of each type, and what they are if nobody says.
_FIELDS: Final[Mapping[Kind, Mapping[str, Any]]] = {
    Kind.CRON: {"expression": "", "timezone": ""},
    Kind.DELAY: {"run_at": ""},
    Kind.GITHUB_ISSUES: {"owner": "", "repo": "", "labels": [], "state": "open"},
    Kind.GITHUB_PULL_REQUESTS: {"owner": "", "repo": "", "labels": [], "state": "open"},
    Kind.AGENT_LIFECYCLE: {"event": ""},
    Kind.DISPATCH_RESULT: {"source_workflow_id": "", "status": ""},
    Kind.WEBHOOK: {"scheme": "", "secret": "", "old_secret": "", "events": [], "actions": []},
    Kind.MANUAL: {},
}


def _typed(value: object, name: str, kind: type) -> object:
    if kind is list:
        parts = [value] if isinstance(value, str) else value
        if isinstance(parts, list) and all(isinstance(each, str) for each in parts):
            return [each.strip() for each in parts if each.strip()]
        raise TriggerError(f"'{name}' must be a list of strings", field=name)
    if not isinstance(value, str):
        raise TriggerError(f"'{name}' must be a string", field=name)
    return value if name in SECRETS else value.strip()


def check_config(config: Mapping[str, Any]) -> None:
    """Raise an error if a trigger could never fire as it is configured."""
    match Kind(config["type"]):
        case Kind.CRON:
            _cron(config)
        case Kind.DELAY:
            _run_at(config)
        case Kind.GITHUB_ISSUES | Kind.GITHUB_PULL_REQUESTS:
            _check_github(config)
        case Kind.AGENT_LIFECYCLE:
            event = config.get("event", "")
            if event not in set(LifecycleEvent):
                valid = ", ".join(LifecycleEvent)
                reason = f"there is no event '{event}'; the events are {valid}"
                raise TriggerError(reason, field="event")
        case Kind.DISPATCH_RESULT:
            status = config.get("status")
            if status is not None and status not in {"completed", "failed", "skipped"}:
                reason = f"there is no status '{status}'; it is completed, failed or skipped"
                raise TriggerError(reason, field="status")
        case Kind.WEBHOOK:
            _check_webhook(config)
        case Kind.MANUAL:
            pass


def _cron(config: Mapping[str, Any]) -> Cron:
    expression = config.get("expression", "")
    if not expression:
        raise TriggerError("Cron trigger requires a non-empty 'expression'", field="expression")
    try:
        cron = Cron(expression, zone=_zone(config))
    except ScheduleError as error:
        detail = str(error).removeprefix(f"cron {expression!r}: ")
        reason = f"the cron expression '{expression[:100]}' is not valid: {detail}"
        raise TriggerError(reason, field="expression") from None
    if cron.never:
        raise NeverComesError(expression)
    return cron


def _zone(config: Mapping[str, Any]) -> str:
    """Return the zone of a configuration; UTC unless it names one."""
    name = str(config.get("timezone") or "UTC")
    try:
        zone(name)
    except ScheduleError as error:
        raise TriggerError(str(error), field="timezone") from None
    return name


def _run_at(config: Mapping[str, Any]) -> datetime:
    text = config.get("run_at", "")
    if not text:
        raise TriggerError("Delay trigger requires a non-empty 'run_at' datetime", field="run_at")
    try:
        moment = parse_rfc3339(text)
    except Rfc3339Error as error:
        reason = (
            f"'{text[:60]}' is not an RFC 3339 time, such as 2026-04-01T09:00:00Z: "
            f"{error.part} {error.reason}"
        )
        raise TriggerError(reason, field="run_at") from None
    if not 1 < moment.year < 9999:
        raise TriggerError("run_at must be in the years 2 to 9998", field="run_at")
    return moment


def left_behind(config: Mapping[str, Any], *, fresh_at: datetime) -> str:
    """Return why a trigger that a fresh ledger sees first may have fired before; "" if it cannot.

    >>> delay = {"type": "delay", "run_at": "2026-04-01T09:00:00Z"}
    >>> left_behind(delay, fresh_at=parse_rfc3339("2026-04-02T08:00:00Z"))
    'the scheduled time, 2026-04-01T09:00:00Z, was before that'
    """
    kind = Kind(config["type"])
    if kind is Kind.DELAY and (run_at := _run_at(config)) <= fresh_at:
        return f"the scheduled time, {key_time(run_at)}, was before that"
    return "what GitHub lists may have been processed before that" if kind in GITHUB else ""


def _check_github(config: Mapping[str, Any]) -> None:
    """Raise an error unless a repository can be asked for."""
    if not config.get("owner") or not config.get("repo"):
        raise TriggerError("GitHub trigger requires non-empty 'owner' and 'repo'", field="owner")
    for name in ("owner", "repo"):
        if not is_id(config[name]) or config[name].startswith("-"):
            raise TriggerError(f"'{name}' {config[name][:60]!r} is not a valid name", field=name)
    if config["state"] not in {"open", "closed", "all"}:
        raise TriggerError("'state' must be open, closed or all", field="state")
    for label in config.get("labels", ()):
        if label.startswith("-") or "," in label or not label.isprintable():
            raise TriggerError(f"{label[:60]!r} is not a label", field="labels")


def _check_webhook(config: Mapping[str, Any]) -> None:
    """Raise an error unless messages can be checked."""
    if config["scheme"] not in set(Scheme):
        valid = ", ".join(Scheme)
        reason = f"there is no scheme '{config['scheme'][:60]}'; the schemes are {valid}"
        raise TriggerError(reason, field="scheme")
    if not config.get("secret"):
        reason = "Webhook trigger requires a 'secret'; messages are signed with it"
        raise TriggerError(reason, field="secret")
    for name in (name for name in SECRETS if name in config):
        wrong = wrong_secret(Scheme(config["scheme"]), config[name])
        if wrong:
            raise TriggerError(f"'{name}' {wrong}", field=name)


def masked(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a trigger waits for, without its secrets."""
    return {name: shown(value) if name in SECRETS else value for name, value in config.items()}


def shown(text: str) -> str:
    """Return what may be shown of a secret: the name that it goes by, if it has one.

    >>> shown("${DEPLOY}"), shown("hunter2")
    ('${DEPLOY}', '***')
    """
    return text if is_reference(text) else MASK


def secrets_of(config: Mapping[str, Any]) -> frozenset[str]:
    """Return the secrets that messages may be signed with."""
    return frozenset(config[name] for name in SECRETS if name in config)


def check_scheme(was: Definition, made: Definition) -> None:
    """Raise an error if a webhook would be another than it was made as."""
    if was.kind is made.kind is Kind.WEBHOOK and was.config["scheme"] != made.config["scheme"]:
        reason = (
            f"webhook '{was.name}' uses the scheme {was.config['scheme']}; to change it, "
            f"remove the webhook first: horae trigger remove {was.name}"
        )
        raise TriggerError(reason, field="scheme")


def _bad_name(what: str, name: str) -> str:
    if not name:
        return f"the {what} has no name"
    return f"the {what} name {name[:64]!r} may contain only letters, digits and .-_"


def parse_tools(data: object) -> ToolPolicy:
    """Return the tool policy that plain data writes; nothing is no policy."""
    if data is None:
        return OPEN
    if not isinstance(data, dict):
        reason = "tool_policy must be an object with a 'mode'"
        raise TriggerError(reason, field="tool_policy")
    try:
        return parse_policy(data)
    except ToolPolicyError as error:
        raise TriggerError(str(error), field="tool_policy") from None


def _property(option: str) -> str:
    return "HOST" if option == "requires" else option.upper().replace("_", "-")


def policy_for(definition: Definition) -> Policy:
    """Return how a trigger is kept: what it says, else what its type means by itself."""
    props = {_property(name): text for name, text in definition.options.items()}
    try:
        policy = policy_of(props, zone_name=_zone(definition.config))
    except PolicyError as error:
        name = next(each for each in OPTIONS if _property(each) == error.key)
        reason = f"{name} {error.value[:60]}: {str(error).rpartition(': ')[2]}"
        raise TriggerError(reason, field=name) from None
    if definition.kind is Kind.CRON and policy.catchup is None:
        # The next tick counts from now; what was missed leaves its receipt.
        return replace(policy, catchup=CatchUp.NONE)
    if definition.kind is Kind.DELAY:
        # Whatever its agent does at that moment, a delay waits for it.
        return replace(policy, overlap=Overlap.QUEUE)
    return policy


# From a trigger to an entry


def rule_of(trigger: Trigger) -> Rule:
    """Return when a trigger fires by itself; most kinds only when they are asked to."""
    config = trigger.definition.config
    match trigger.definition.kind:
        case Kind.CRON:
            return CronRule((_cron(config),))
        case Kind.DELAY:
            return OnceRule(_run_at(config), _delay(trigger))
    return OnDemandRule()


def scanned(trigger: Trigger) -> Scanned:
    """Return the entry of a trigger, armed or with the reason why not."""
    definition = trigger.definition
    origin = Origin(definition.file or f"triggers/{definition.name}", 1)
    text = order_of(trigger).text()
    digest = _digest(text)
    # Two triggers may say the same and are still two.
    mark = Mark(trigger.address, definition.name, _rule_text(trigger), _digest(trigger.id + text))
    about = (trigger.address, origin, definition.name)
    if not definition.is_enabled:
        is_gone = definition.file and definition.is_wanted is None
        return Scanned(mark, Unarmed(*about, GONE if is_gone else "the trigger is disabled"), text)
    try:
        entry = Entry(
            *about,
            rule_of(trigger),
            work=Work.PROMPT,
            agents=(definition.agent,),
            policy=policy_for(definition),
            zone=_zone(definition.config),
            digest=digest,
        )
    except HoraeError as error:
        return Scanned(mark, Unarmed(*about, str(error)), text)
    return Scanned(mark, entry, text)


def _delay(trigger: Trigger) -> str:
    """Return what a delay goes by: each time it is enabled again it is another one."""
    return trigger.id if trigger.times <= 1 else f"{trigger.id}:{trigger.times}"


def _rule_text(trigger: Trigger) -> str:
    config = trigger.definition.config
    match trigger.definition.kind:
        case Kind.CRON:
            return str(config.get("expression", ""))
        case Kind.DELAY:
            return f"at {config.get('run_at', '')} ({_delay(trigger)})"
    return trigger.definition.kind.value


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# Orders


def enforced(definition: Definition) -> ToolPolicy | None:
    """Return the tool policy that whoever runs a trigger must enforce, if there is one."""
    return PromptOrder(definition.template, tools=definition.tools).enforced


def order_of(trigger: Trigger, task: Task | None = None) -> PromptOrder:
    """Return what a trigger asks for; *task* is what was handed over with the request."""
    definition, config = trigger.definition, trigger.definition.config
    values = {"trigger_type": definition.kind.value, "workflow_id": trigger.id}
    metadata: dict[str, str] = {}
    match definition.kind:
        case Kind.CRON:
            metadata["cron_expression"] = values["cron_expression"] = config["expression"]
            values["title"] = f"Cron trigger: {config['expression']}"
        case Kind.DELAY:
            values["run_at"] = _delay_time(config)
            metadata |= {"run_at": values["run_at"], "workflow_id": trigger.id}
            values["title"] = f"Delay trigger: {values['run_at']}"
        case _:
            values["title"] = "Manual trigger"
    if task is not None:
        given = task.values()
        title = given.pop("title") or values["title"]
        # What is handed over fills places; it does not change which trigger this is.
        values = given | values | {"title": title}
        metadata |= task.metadata
    return PromptOrder(definition.template, values, metadata, definition.tools)


def _delay_time(config: Mapping[str, Any]) -> str:
    """Return a delay's moment as it stands in prompts; one that cannot be read as it is."""
    try:
        return key_time(_run_at(config))
    except TriggerError:
        return str(config.get("run_at", ""))


def checked_task(data: object) -> Task:
    """Return what somebody hands over with a request: a title, a body and facts of their own."""
    if data is None:
        return Task()
    if not isinstance(data, dict):
        raise TriggerError("the input of a trigger must be an object with title, body and metadata")
    given = {name: value for name, value in data.items() if value is not None}
    facts = given.get("metadata", {})
    if not isinstance(facts, dict) or len(facts) > _MOST_FACTS:
        raise TriggerError(f"metadata must be an object with at most {_MOST_FACTS} strings")
    metadata = {str(name)[:100]: _value(value, "metadata") for name, value in facts.items()}
    title, body = (_value(given.get(name, ""), name) for name in ("title", "body"))
    return Task(title, body, metadata=metadata)


def _value(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise TriggerError(f"{name} must be a string")
    if len(value) > _LONGEST_VALUE:
        raise TriggerError(f"{name} must have at most {_LONGEST_VALUE:,} characters")
    return value


# Messages from outside


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that came in, and what kind of event it tells of, if it says so."""

    task: Task
    event: str = ""
    action: str = ""


def is_wanted(config: Mapping[str, Any], delivery: Delivery) -> bool:
    """Tell whether a trigger listens to a message of this kind; one that lists none hears all.

    >>> is_wanted({"events": ["issues"]}, Delivery(Task(), "push"))
    False
    """
    events, actions = config.get("events", ()), config.get("actions", ())
    return (not events or delivery.event in events) and (not actions or delivery.action in actions)


def read_delivery(body: bytes, *, event: str, delivery: str, now: datetime) -> Delivery:
    """Return what a message says: an issue, a pull request, another event, or anything in JSON.

    *event* is what GitHub says beside the body; else the kind of event is its `type`.
    """
    text = body.decode("utf-8", "replace")
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        said = {}
    said = said if isinstance(said, dict) else {}
    action = _text(said.get("action"))
    facts = {
        "delivery_id": delivery,
        "timestamp": key_time(now),
        "github_event": event,
        "action": action,
    }
    for name, number in (("issue", "issue_number"), ("pull_request", "pr_number")):
        found = said.get(name)
        if event and isinstance(found, dict):
            task = _issue(found, {**facts, number: _text(found.get("number"))})
            return Delivery(task, event, action)
    titles = (_text(said.get(name)) for name in ("title", "subject", "name"))
    title = next(filter(None, titles), "Webhook payload")
    title = f"GitHub event: {event}" if event else title
    told = {name: value for name, value in facts.items() if value}
    task = Task(title, text[:_LONGEST_VALUE], metadata=told)
    return Delivery(task, event or _text(said.get("type")), action)


def _issue(found: Mapping[str, Any], facts: Mapping[str, str]) -> Task:
    """Return what GitHub tells of an issue or a pull request."""
    labels = found.get("labels")
    names = (
        [_text(each.get("name")) for each in labels or () if isinstance(each, dict)]
        if isinstance(labels, list)
        else []
    )
    assignees = found.get("assignees")
    someone = found.get("assignee") or (
        assignees[0] if isinstance(assignees, list) and assignees else None
    )
    return Task(
        _text(found.get("title"))[:_LONGEST_VALUE],
        _text(found.get("body"))[:_LONGEST_VALUE],
        _text(found.get("html_url") or found.get("url")),
        tuple(filter(None, names)),
        _text(someone.get("login")) if isinstance(someone, dict) else "",
        {name: value for name, value in facts.items() if value},
    )


def _text(value: object) -> str:
    """Return a value as text; what is no text or number is nothing."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int) else ""


# Looking at GitHub


def poll_command(config: Mapping[str, Any]) -> list[str]:
    """Return the call of `gh` that lists what a trigger waits for, newest first.

    >>> poll_command({"type": "github_issues", "owner": "o", "repo": "r", "state": "open"})[:3]
    ['gh', 'issue', 'list']
    """
    is_issue = config["type"] == Kind.GITHUB_ISSUES
    fields = "number,title,body,url,labels,assignees"
    fields += "" if is_issue else ",headRefName,baseRefName,isDraft"
    call = ["gh", "issue" if is_issue else "pr", "list"]
    call += ["--repo", f"{config['owner']}/{config['repo']}", "--state", config["state"]]
    call += ["--limit", "100", "--json", fields]
    for label in config.get("labels", ()):
        call += ["--label", label]
    return call


def read_polled(text: str) -> list[tuple[str, Task]]:
    """Return what `gh` lists, oldest first, each by its number.

    >>> read_polled('[{"number": 7, "title": "It leaks"}]')[0][1].title
    'It leaks'
    """
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        rows = None
    if not isinstance(rows, list):
        raise TriggerError("gh did not return a list")
    found = [
        each for each in rows if isinstance(each, dict) and isinstance(each.get("number"), int)
    ]
    names = {"headRefName": "head_ref", "baseRefName": "base_ref", "isDraft": "is_draft"}
    return [
        (
            str(each["number"]),
            _issue(each, {name: _text(each.get(key)) for key, name in names.items()}),
        )
        for each in sorted(found, key=lambda each: int(each["number"]))
    ]
