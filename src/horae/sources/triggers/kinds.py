"""The kinds of triggers: their fields, their entries, and their output.

A kind is one struct, the configuration of a trigger: the ledger stores it, the API serves it, and
`schemas/` describes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Self, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, structs, to_builtins

from horae.core import entry
from horae.core.agent import STANDARD
from horae.core.entry import Policy, Rule, key_time
from horae.core.ports import read_json
from horae.core.secret import WEBHOOK_SECRETS, is_reference
from horae.errors import Exit, HoraeError, ScheduleError
from horae.org.plan import is_id
from horae.sources.triggers.webhook import Scheme, scheme_of, wrong_secret
from horae.timing.cron import Cron
from horae.timing.zone import Rfc3339Error, parse_rfc3339, zone

MASK: Final = "***"  # in place of a secret
LONGEST_VALUE: Final = 64 * 1024  # characters of a value in a request
_COMMON: Final = (*STANDARD, "trigger_type", "workflow_id", "fire_time")


class TriggerError(HoraeError, code="trigger", exit_code=Exit.USAGE):
    def __init__(self, reason: str, *, field: str = "") -> None:
        self.reason = reason
        self.field = field  # in a file
        super().__init__(reason)


class NeverComesError(TriggerError):
    def __init__(self, expression: str) -> None:
        reason = f"the cron expression '{expression}' is not valid: it matches no date"
        super().__init__(reason, field="expression")


class SharedSecretError(TriggerError):
    """A webhook with the secret of another: a message for one would be taken by both."""

    def __init__(self, other: str) -> None:
        self.other = other
        reason = f"webhook '{other}' has the same secret; each webhook needs its own"
        super().__init__(reason, field="secret")


class LifecycleEvent(StrEnum):
    SESSION_START = "session_start"  # created, or enabled again
    SESSION_END = "session_end"  # disabled
    CONTEXT_CLEAR = "context_clear"  # a user cleared its context


@dataclass(frozen=True, slots=True)
class TriggerTask:
    title: str = ""
    body: str = ""
    url: str = ""
    labels: tuple[str, ...] = ()
    assignee: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)

    def values(self) -> dict[str, str]:
        return {
            **self.metadata,
            **{f"metadata.{name}": value for name, value in self.metadata.items()},
            "title": self.title,
            "body": self.body,
            "url": self.url,
            "labels": ", ".join(self.labels),
            "assignee": self.assignee,
        }


# Additions of the schema to a field's type; errors have our own text, so it validates nothing.
def _about(description: str = "", **more: Any) -> Meta:
    return Meta(extra_json_schema={"description": description, **more} if description else more)


_Filled: TypeAlias = Annotated[str, _about(pattern=r"\S")]
_Texts: TypeAlias = list[str] | UnsetType
_LISTS: Final = ("labels", "events", "actions")
_NAMED_OR_LONG: Final = r"\$\{|^[\s\S]{8,}"


class TriggerKind(Struct, frozen=True, tag_field="type"):
    """A kind of trigger, with what it would be if it only ran on request."""

    own_variables: ClassVar[tuple[str, ...]] = ()  # of templates, besides the common ones
    lacking: ClassVar[str] = ""  # the error of a missing required field
    implied: ClassVar[Mapping[str, str]] = {}  # defaults of definitions stored without these

    @classmethod
    def variables(cls) -> tuple[str, ...]:
        return (*_COMMON, *cls.own_variables)

    @classmethod
    @cache  # msgspec takes longer than all else for a trigger
    def required(cls) -> tuple[str, ...]:
        return tuple(each.name for each in structs.fields(cls) if each.required)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Return the kind in a request or a file; empty fields are missing."""
        read = {name: _read(config.get(name), name) for name in cls.__struct_fields__}
        given = {name: value for name, value in read.items() if value not in (None, "")}
        for name in cls.required():
            if name not in given:
                raise TriggerError(cls.lacking, field=name)
        return cls(**given)

    @property
    def type(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def secrets(self) -> dict[str, str]:
        return {}

    def data(self) -> dict[str, Any]:
        return dict(to_builtins(self))

    def shown(self) -> dict[str, Any]:
        return self.data() | {name: shown(text) for name, text in self.secrets.items()}

    def complete(self) -> Self:
        return self

    def check(self) -> None:
        self.rule("")

    def merged(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        return config

    def check_change(self, name: str, kind: TriggerKind) -> None: ...

    def zone(self) -> str:
        return "UTC"

    def rule(self, key: str) -> Rule:
        return entry.OnDemandRule()

    def rule_text(self, key: str) -> str:
        return self.type

    def policy(self, policy: Policy) -> Policy:
        return policy

    def fired_before(self, fresh_at: datetime) -> str:
        """Return why the trigger may have fired before the ledger was created; else ""."""
        return ""

    def title(self) -> str:
        return "Manual trigger"

    def facts(self, trigger: str) -> dict[str, str]:
        return {}

    def describe(self, names: Mapping[str, str]) -> str:
        return "a request"

    def lines(self) -> dict[str, str]:
        return {}


class CronKind(TriggerKind, frozen=True, tag="cron"):
    """Fires by a cron expression, in UTC or a named zone."""

    expression: Annotated[
        _Filled, _about("Five fields, or six with seconds first.", examples=["0 9 * * MON-FRI"])
    ]
    timezone: Annotated[
        str | UnsetType, _about("The time zone, such as Europe/Berlin; default: UTC.")
    ] = UNSET

    own_variables = ("cron_expression",)
    lacking = "Cron trigger requires a non-empty 'expression'"

    def zone(self) -> str:
        name = self.timezone or "UTC"
        try:
            zone(name)
        except ScheduleError as error:
            raise TriggerError(str(error), field="timezone") from None
        return name

    def rule(self, key: str) -> Rule:
        expression = self.expression
        try:
            cron = Cron(expression, zone=self.zone())
        except ScheduleError as error:
            detail = str(error).removeprefix(f"cron {expression!r}: ")
            reason = f"the cron expression '{expression[:100]}' is not valid: {detail}"
            raise TriggerError(reason, field="expression") from None
        if cron.never:
            raise NeverComesError(expression)
        return entry.CronRule((cron,))

    def rule_text(self, key: str) -> str:
        return self.expression

    def policy(self, policy: Policy) -> Policy:
        # The next tick counts from now; missed ones have receipts.
        none = structs.replace(policy, catchup=entry.CatchUp.NONE)
        return none if policy.catchup is None else policy

    def title(self) -> str:
        return f"Cron trigger: {self.expression}"

    def facts(self, trigger: str) -> dict[str, str]:
        return {"cron_expression": self.expression}

    def describe(self, names: Mapping[str, str]) -> str:
        return f"{self.expression} ({self.timezone or 'UTC'})"

    def lines(self) -> dict[str, str]:
        zone_lines = {"Timezone": self.timezone} if self.timezone else {}
        return {"Expression": self.expression, **zone_lines}


class DelayKind(TriggerKind, frozen=True, tag="delay"):
    """Fires once, and is disabled when that run is over."""

    run_at: Annotated[
        str,
        _about("The time of the only run; a time in the past runs at once.", format="date-time"),
    ]

    own_variables = ("run_at",)
    lacking = "Delay trigger requires a non-empty 'run_at' datetime"

    def _at(self) -> datetime:
        try:
            run_at = parse_rfc3339(self.run_at)
        except Rfc3339Error as error:
            what = f"'{self.run_at[:60]}' is not an RFC 3339 time ({error.reason})"
            raise TriggerError(what, field="run_at") from None
        if not 1 < run_at.year < 9999:
            raise TriggerError("run_at must be in the years 2 to 9998", field="run_at")
        return run_at

    def rule(self, key: str) -> Rule:
        return entry.OnceRule(self._at(), key)

    def rule_text(self, key: str) -> str:
        return f"at {self.run_at} ({key})"

    def policy(self, policy: Policy) -> Policy:
        # A delay waits for its agent.
        return structs.replace(policy, overlap=entry.Overlap.QUEUE)

    def fired_before(self, fresh_at: datetime) -> str:
        is_over = self._at() <= fresh_at
        return f"the scheduled time, {key_time(self._at())}, was before that" if is_over else ""

    def title(self) -> str:
        return f"Delay trigger: {self.facts('')['run_at']}"

    def facts(self, trigger: str) -> dict[str, str]:
        try:
            run_at = key_time(self._at())
        except TriggerError:  # stored long ago; its entry has the error
            run_at = self.run_at
        return {"run_at": run_at, "workflow_id": trigger}

    def describe(self, names: Mapping[str, str]) -> str:
        return self.run_at

    def lines(self) -> dict[str, str]:
        return {"Run At": self.run_at}


class GithubKind(TriggerKind, frozen=True, tag="github_issues"):
    """Fires for each issue that `gh` lists and that was not listed before."""

    owner: _Filled
    repo: _Filled
    labels: _Texts = UNSET
    state: Annotated[str, _about(enum=["open", "closed", "all"])] = "open"

    lacking = "GitHub trigger requires non-empty 'owner' and 'repo'"
    command: ClassVar = "issue"
    columns: ClassVar = "number,title,body,url,labels,assignees"

    def check(self) -> None:
        for name, text in (("owner", self.owner), ("repo", self.repo)):
            if not is_id(text) or text.startswith("-"):
                raise TriggerError(f"'{name}' {text[:60]!r} is not a valid name", field=name)
        if self.state not in {"open", "closed", "all"}:
            raise TriggerError("'state' must be open, closed or all", field="state")
        for label in self.labels or ():
            if label.startswith("-") or "," in label or not label.isprintable():
                raise TriggerError(f"{label[:60]!r} is not a label", field="labels")

    def fired_before(self, fresh_at: datetime) -> str:
        return "what GitHub lists may have been processed before that"

    def poll_command(self) -> list[str]:
        call = ["gh", self.command, "list", "--repo", f"{self.owner}/{self.repo}"]
        call += ["--state", self.state, "--limit", "100", "--json", self.columns]
        return [*call, *(word for label in self.labels or () for word in ("--label", label))]

    def describe(self, names: Mapping[str, str]) -> str:
        return f"{self.type} of {self.owner}/{self.repo}"

    def lines(self) -> dict[str, str]:
        labels = ", ".join(self.labels or ()) or "none"
        return {"Repository": f"{self.owner}/{self.repo}", "Labels": labels, "State": self.state}


class GithubPullKind(GithubKind, frozen=True, tag="github_pull_requests"):
    """Fires for each pull request that `gh` lists and that was not listed before."""

    own_variables = ("head_ref", "base_ref", "is_draft")
    command = "pr"
    columns = f"{GithubKind.columns},headRefName,baseRefName,isDraft"


class LifecycleKind(TriggerKind, frozen=True, tag="agent_lifecycle"):
    """Fires on an event of its agent."""

    event: Annotated[str, _about(enum=[*map(str, LifecycleEvent)])]

    own_variables = ("event_type", "agent_id", "timestamp")
    lacking = f"the trigger needs an 'event': {', '.join(LifecycleEvent)}"

    def check(self) -> None:
        if self.event not in set(LifecycleEvent):
            reason = f"there is no event '{self.event}'; the events are {', '.join(LifecycleEvent)}"
            raise TriggerError(reason, field="event")

    def describe(self, names: Mapping[str, str]) -> str:
        return f"{self.event} of its agent"

    def lines(self) -> dict[str, str]:
        return {"Event": self.event}


class AfterKind(TriggerKind, frozen=True, tag="dispatch_result"):
    """Fires after another trigger ends, or any other."""

    source_workflow_id: str | UnsetType = UNSET
    status: Annotated[str | UnsetType, _about(enum=["completed", "failed", "skipped"])] = UNSET

    own_variables = ("source_workflow_id", "dispatch_id", "status", "timestamp")

    def check(self) -> None:
        if self.status and self.status not in {"completed", "failed", "skipped"}:
            reason = f"there is no status '{self.status}'; it is completed, failed or skipped"
            raise TriggerError(reason, field="status")

    def follows(self, source: str, status: str) -> bool:
        wanted = self.source_workflow_id or source, self.status or status
        return wanted == (source, status)

    def describe(self, names: Mapping[str, str]) -> str:
        source = self.source_workflow_id or "any trigger"
        return f"{self.status or 'the end'} of {names.get(source, source)}"

    def lines(self) -> dict[str, str]:
        source = self.source_workflow_id or "any"
        return {"Source Workflow": source, "Status Filter": self.status or "any"}


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    task: TriggerTask
    event: str = ""
    action: str = ""


class WebhookKind(TriggerKind, frozen=True, kw_only=True, tag="webhook"):
    """Fires for each message that is signed with its secret."""

    scheme: Annotated[
        str | UnsetType,
        _about(
            "How messages are signed; default: standard if the secret begins with whsec_, else "
            "github.",
            enum=[*map(str, Scheme)],
        ),
    ] = UNSET
    secret: Annotated[
        str,
        _about(
            "The secret that signs messages. Write its name, as in ${NAME}; [secrets] of "
            "horae.toml says where its value is.",
            pattern=_NAMED_OR_LONG,
        ),
    ]
    old_secret: Annotated[
        str | UnsetType,
        _about(
            "The previous secret, which is also valid until you remove this line.",
            pattern=_NAMED_OR_LONG,
        ),
    ] = UNSET
    events: _Texts = UNSET
    actions: _Texts = UNSET

    own_variables = (
        *("delivery_id", "timestamp", "github_event", "action", "issue_number", "pr_number"),
    )
    lacking = "Webhook trigger requires a 'secret'; messages are signed with it"
    implied: ClassVar = {"scheme": Scheme.GITHUB.value}  # the only scheme of that version

    @property
    def secrets(self) -> dict[str, str]:
        texts = {name: getattr(self, name) for name in WEBHOOK_SECRETS}
        return {name: text for name, text in texts.items() if text}

    def complete(self) -> Self:
        return structs.replace(self, scheme=self.scheme or scheme_of(self.secret))

    def check(self) -> None:
        if self.scheme not in set(Scheme):
            wrong = f"there is no scheme '{str(self.scheme)[:60]}'"
            raise TriggerError(f"{wrong}; the schemes are {', '.join(Scheme)}", field="scheme")
        for name, text in self.secrets.items():
            if wrong := wrong_secret(Scheme(self.scheme), text):
                raise TriggerError(f"'{name}' {wrong}", field=name)

    def merged(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        if config.get("type") != self.type:
            return config
        # A masked secret that is sent back is kept.
        kept = {name: getattr(self, name) for name in WEBHOOK_SECRETS if config.get(name) == MASK}
        return {**config, **kept, "scheme": config.get("scheme") or self.scheme}

    def check_change(self, name: str, kind: TriggerKind) -> None:
        if isinstance(kind, WebhookKind) and kind.scheme != self.scheme:
            used = f"webhook '{name}' uses the scheme {self.scheme}"
            fix = f"to change it, remove the webhook first: horae trigger remove {name}"
            raise TriggerError(f"{used}; {fix}", field="scheme")

    def wants(self, delivery: WebhookDelivery) -> bool:
        """Return whether the trigger accepts a kind of event; without a list it accepts all."""
        is_heard = not self.events or delivery.event in self.events
        return is_heard and (not self.actions or delivery.action in self.actions)

    def describe(self, names: Mapping[str, str]) -> str:
        schemes = {Scheme.STANDARD.value: "Standard Webhooks", Scheme.GITHUB.value: "GitHub"}
        return f"a signed message ({schemes.get(str(self.scheme), self.scheme)})"

    def lines(self) -> dict[str, str]:
        return {"Secret": "configured"}


class ManualKind(TriggerKind, frozen=True, tag="manual"):
    """Fires only on request, one run at a time."""


_ALL: Final[tuple[type[TriggerKind], ...]] = (
    *(CronKind, DelayKind, GithubKind, GithubPullKind, LifecycleKind, AfterKind, WebhookKind),
    ManualKind,
)
KINDS: Final[Mapping[str, type[TriggerKind]]] = {
    str(kind.__struct_config__.tag): kind for kind in _ALL
}
EVERY_VARIABLE: Final = tuple(dict.fromkeys(name for kind in _ALL for name in kind.variables()))


def kind_of(config: object) -> TriggerKind:
    name = config.get("type") if isinstance(config, Mapping) else None
    if not isinstance(config, Mapping) or not isinstance(name, str):
        raise TriggerError("trigger_config needs a 'type'", field="type")
    if name not in KINDS:
        reason = f"there is no trigger type '{name[:60]}'; the types are {', '.join(KINDS)}"
        raise TriggerError(reason, field="type")
    return KINDS[name].of(config)


def config_of(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": name} | {key: given.get(key) for key in KINDS[name].__struct_fields__}


def stored_kind(config: Mapping[str, Any]) -> TriggerKind:
    kind = KINDS[config["type"]]
    return kind.of({**kind.implied, **config})


def _read(value: object, name: str) -> object:
    if value is None or value is UNSET:
        return None
    if name in _LISTS:
        parts = [value] if isinstance(value, str) else value
        if isinstance(parts, list) and all(isinstance(each, str) for each in parts):
            return [each.strip() for each in parts if each.strip()]
        raise TriggerError(f"'{name}' must be a list of strings", field=name)
    if not isinstance(value, str):
        raise TriggerError(f"'{name}' must be a string", field=name)
    return value if name in WEBHOOK_SECRETS else value.strip()


def shown(text: str) -> str:
    """Return a secret as it may be shown: masked, or its name."""
    return text if is_reference(text) else MASK


def read_delivery(body: bytes, *, event: str, delivery: str, now: datetime) -> WebhookDelivery:
    text = body.decode("utf-8", "replace")
    said = read_json(text, dict) or {}
    action = _text(said.get("action"))
    facts = {"delivery_id": delivery, "timestamp": key_time(now)}
    facts |= {"github_event": event, "action": action}
    for name, number in (("issue", "issue_number"), ("pull_request", "pr_number")):
        found = said.get(name)
        if event and isinstance(found, dict):
            task = _issue(found, {**facts, number: _text(found.get("number"))})
            return WebhookDelivery(task, event, action)
    titles = (_text(said.get(name)) for name in ("title", "subject", "name"))
    title = f"GitHub event: {event}" if event else next(filter(None, titles), "Webhook payload")
    metadata = {name: value for name, value in facts.items() if value}
    task = TriggerTask(title, text[:LONGEST_VALUE], metadata=metadata)
    return WebhookDelivery(task, event or _text(said.get("type")), action)


def read_polled(text: str) -> list[tuple[str, TriggerTask]]:
    rows = read_json(text, list)
    if rows is None:
        raise TriggerError("gh did not return a list")
    found = [row for row in rows if isinstance(row, dict) and isinstance(row.get("number"), int)]
    found.sort(key=lambda row: int(row["number"]))
    names = {"head_ref": "headRefName", "base_ref": "baseRefName", "is_draft": "isDraft"}
    facts = [{name: _text(row.get(key)) for name, key in names.items()} for row in found]
    return [(str(row["number"]), _issue(row, said)) for row, said in zip(found, facts, strict=True)]


def _issue(found: Mapping[str, Any], facts: Mapping[str, str]) -> TriggerTask:
    labels, assignees = (
        each if isinstance(each, list) else []
        for each in (found.get("labels"), found.get("assignees"))
    )
    names = [_text(each.get("name")) for each in labels if isinstance(each, dict)]
    assignee = found.get("assignee") or next(iter(assignees), None)
    return TriggerTask(
        _text(found.get("title"))[:LONGEST_VALUE],
        _text(found.get("body"))[:LONGEST_VALUE],
        _text(found.get("html_url") or found.get("url")),
        tuple(filter(None, names)),
        _text(assignee.get("login")) if isinstance(assignee, dict) else "",
        {name: value for name, value in facts.items() if value},
    )


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int) else ""
