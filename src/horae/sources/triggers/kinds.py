"""The kinds of triggers: what each needs, how it becomes an entry, and how it is shown.

A kind is one class over the configuration of a trigger; no other module asks which kind one is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Final

from msgspec.structs import replace

from horae.core import entry
from horae.core.entry import Policy, Rule, key_time
from horae.core.ports import read_json
from horae.core.prompt import STANDARD
from horae.core.secret import WEBHOOK_SECRETS, is_reference
from horae.errors import Exit, HoraeError, ScheduleError
from horae.org.plan import is_id
from horae.sources.triggers.webhook import Scheme, scheme_of, wrong_secret
from horae.timing.cron import Cron
from horae.timing.rfc3339 import Rfc3339Error, parse_rfc3339
from horae.timing.zone import zone

MASK: Final = "***"  # what is shown of a secret
LONGEST_VALUE: Final = 64 * 1024  # characters of one value of a request
_COMMON: Final = (*STANDARD, "trigger_type", "workflow_id", "fire_time")


class TriggerError(HoraeError, code="trigger", exit_code=Exit.USAGE):
    def __init__(self, reason: str, *, field: str = "") -> None:
        self.reason = reason
        self.field = field  # of a file
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
    SESSION_START = "session_start"  # it was made, or enabled again
    SESSION_END = "session_end"  # it was disabled
    CONTEXT_CLEAR = "context_clear"  # a user cleared its context


@dataclass(frozen=True, slots=True)
class TriggerTask:
    """What a request, a message or an issue hands over to the prompt."""

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


@dataclass(frozen=True, slots=True)
class TriggerKind:
    """A kind of trigger, with what it would be if it only ran on request."""

    config: Mapping[str, Any]

    type: ClassVar[str]
    fields: ClassVar[Mapping[str, Any]] = {}  # of the configuration, each with its default
    own_variables: ClassVar[tuple[str, ...]] = ()  # of templates, beside those of every kind
    option: ClassVar[str]  # of `horae trigger add`
    options: ClassVar[Mapping[str, str]] = {}  # field: option of `horae trigger add`
    agent_options: ClassVar[Mapping[str, str]] = {}  # field: option of `agent create-workflow`
    agent_needs: ClassVar[tuple[str, ...]] = ()  # those that it cannot do without
    labels: ClassVar[Mapping[str, str]] = {}  # label: field that `agent get-workflow` shows
    implied: ClassVar[Mapping[str, str]] = {}  # of definitions that were stored without it
    # In words, with fields of the configuration, and what stands for a field that is empty.
    titled: ClassVar[str] = "Manual trigger"
    ruled: ClassVar[str] = "{type}"
    waits_for: ClassVar[str] = "a request"
    unsaid: ClassVar[Mapping[str, str]] = {}

    is_exclusive: ClassVar[bool] = False  # whether a request waits for the end of the last one
    is_polled: ClassVar[bool] = False  # whether `gh` lists what starts it
    is_signed: ClassVar[bool] = False  # whether signed messages start it
    is_follower: ClassVar[bool] = False  # whether the end of another trigger starts it
    is_one_shot: ClassVar[bool] = False  # whether a change of its configuration enables it again

    @classmethod
    def variables(cls) -> tuple[str, ...]:
        return (*_COMMON, *cls.own_variables)

    @classmethod
    def of_option(cls, value: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        return {"type": cls.type} | {key: given.get(name) for key, name in cls.options.items()}

    @classmethod
    def of_agent_options(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        return {"type": cls.type} | {key: given[name] for key, name in cls.agent_options.items()}

    def complete(self) -> dict[str, Any]:
        """Return the configuration with only what belongs to the kind, and its defaults."""
        given = {name: value for name, value in self.config.items() if value is not None}
        return {"type": self.type} | {
            name: _typed(given.get(name, default), name, type(default))
            for name, default in self.fields.items()
            if name in given or default
        }

    def check(self) -> None:
        """Raise a TriggerError if the trigger could never fire."""
        self.rule("")

    def merged(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a changed configuration with what it leaves as it was."""
        return config

    def check_change(self, name: str, config: Mapping[str, Any]) -> None:
        """Raise a TriggerError if the trigger cannot get another configuration."""

    def zone(self) -> str:
        name = str(self.config.get("timezone") or "UTC")
        try:
            zone(name)
        except ScheduleError as error:
            raise TriggerError(str(error), field="timezone") from None
        return name

    def rule(self, key: str) -> Rule:
        """Return when the trigger fires by itself; *key* is the trigger's."""
        return entry.OnDemandRule()

    def rule_text(self, key: str) -> str:
        return self.ruled.format_map(defaultdict(str, self.config, type=self.type, key=key))

    def policy(self, policy: Policy) -> Policy:
        return policy

    def fired_before(self, fresh_at: datetime) -> str:
        """Return why the trigger may have fired before the ledger was created; "" if it cannot."""
        return ""

    def title(self) -> str:
        return self.titled.format_map(self.facts(""))

    def facts(self, trigger: str) -> dict[str, str]:
        """Return the variables and metadata of every run of a trigger with an id."""
        return {}

    def describe(self, names: Mapping[str, str]) -> str:
        """Return what the trigger waits for; *names* are those of other triggers, by id."""
        said = {key: names.get(str(value), value) for key, value in self.config.items() if value}
        return self.waits_for.format_map({**self.unsaid, **said})

    def lines(self) -> dict[str, str]:
        """Return what `agent get-workflow` shows, by label."""
        config = self.config
        return {label: config[name] for label, name in self.labels.items() if config.get(name)}


class CronKind(TriggerKind):
    """Fires by a cron expression, in UTC or a named zone."""

    type = "cron"
    fields: ClassVar = {"expression": "", "timezone": ""}
    own_variables = ("cron_expression",)
    option = "cron"
    options: ClassVar = {"expression": "cron", "timezone": "tz"}
    agent_options: ClassVar = {"expression": "cron_expression", "timezone": "timezone"}
    agent_needs = ("cron_expression",)
    labels: ClassVar = {"Expression": "expression", "Timezone": "timezone"}
    titled = "Cron trigger: {cron_expression}"
    ruled = "{expression}"
    waits_for = "{expression} ({timezone})"
    unsaid: ClassVar = {"timezone": "UTC"}

    def rule(self, key: str) -> Rule:
        expression = self.config.get("expression", "")
        if not expression:
            raise TriggerError("Cron trigger requires a non-empty 'expression'", field="expression")
        try:
            cron = Cron(expression, zone=self.zone())
        except ScheduleError as error:
            detail = str(error).removeprefix(f"cron {expression!r}: ")
            reason = f"the cron expression '{expression[:100]}' is not valid: {detail}"
            raise TriggerError(reason, field="expression") from None
        if cron.never:
            raise NeverComesError(expression)
        return entry.CronRule((cron,))

    def policy(self, policy: Policy) -> Policy:
        # The next tick counts from now; what was missed leaves its receipt.
        return policy if policy.catchup is not None else replace(policy, catchup=entry.CatchUp.NONE)

    def facts(self, trigger: str) -> dict[str, str]:
        return {"cron_expression": self.config["expression"]}


class DelayKind(TriggerKind):
    """Fires once, and is disabled when that run is over."""

    type = "delay"
    fields: ClassVar = {"run_at": ""}
    own_variables = ("run_at",)
    option = "run_at"
    options: ClassVar = {"run_at": "run_at"}
    agent_options = options
    agent_needs = ("run_at",)
    labels: ClassVar = {"Run At": "run_at"}
    titled = "Delay trigger: {run_at}"
    ruled = "at {run_at} ({key})"
    waits_for = "{run_at}"
    is_one_shot = True

    def _run_at(self) -> datetime:
        text = self.config.get("run_at", "")
        if not text:
            reason = "Delay trigger requires a non-empty 'run_at' datetime"
            raise TriggerError(reason, field="run_at")
        try:
            run_at = parse_rfc3339(text)
        except Rfc3339Error as error:
            what = f"'{text[:60]}' is not an RFC 3339 time ({error.reason})"
            raise TriggerError(what, field="run_at") from None
        if not 1 < run_at.year < 9999:
            raise TriggerError("run_at must be in the years 2 to 9998", field="run_at")
        return run_at

    def rule(self, key: str) -> Rule:
        return entry.OnceRule(self._run_at(), key)

    def policy(self, policy: Policy) -> Policy:
        # Whatever its agent does at that time, a delay waits for it.
        return replace(policy, overlap=entry.Overlap.QUEUE)

    def fired_before(self, fresh_at: datetime) -> str:
        run_at = self._run_at()
        is_over = run_at <= fresh_at
        return f"the scheduled time, {key_time(run_at)}, was before that" if is_over else ""

    def facts(self, trigger: str) -> dict[str, str]:
        try:
            run_at = key_time(self._run_at())
        except TriggerError:  # stored long ago; its entry says what is wrong
            run_at = str(self.config.get("run_at", ""))
        return {"run_at": run_at, "workflow_id": trigger}


class GithubKind(TriggerKind):
    """Fires for each issue that `gh` lists and that was not listed before."""

    type = "github_issues"
    fields: ClassVar = {"owner": "", "repo": "", "labels": [], "state": "open"}
    option = "issues"
    agent_options: ClassVar = {name: name for name in ("owner", "repo", "labels", "state")}
    agent_needs = ("owner", "repo")
    waits_for = "{type} of {owner}/{repo}"
    is_polled = True
    command: ClassVar = "issue"
    columns: ClassVar = "number,title,body,url,labels,assignees"

    @classmethod
    def of_option(cls, value: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        owner, _, repo = value.partition("/")
        if not owner or not repo:
            raise TriggerError(f"{value[:60]!r} is not a repository; write OWNER/REPO")
        labels = list(given.get("labels", ()))
        return {"type": cls.type, "owner": owner, "repo": repo, "labels": labels}

    def check(self) -> None:
        config = self.config
        if not config.get("owner") or not config.get("repo"):
            raise TriggerError(
                "GitHub trigger requires non-empty 'owner' and 'repo'", field="owner"
            )
        for name in ("owner", "repo"):
            if not is_id(config[name]) or config[name].startswith("-"):
                reason = f"'{name}' {config[name][:60]!r} is not a valid name"
                raise TriggerError(reason, field=name)
        if config["state"] not in {"open", "closed", "all"}:
            raise TriggerError("'state' must be open, closed or all", field="state")
        for label in config.get("labels", ()):
            if label.startswith("-") or "," in label or not label.isprintable():
                raise TriggerError(f"{label[:60]!r} is not a label", field="labels")

    def fired_before(self, fresh_at: datetime) -> str:
        return "what GitHub lists may have been processed before that"

    def poll_command(self) -> list[str]:
        """Return the call of `gh` that lists what starts the trigger, newest first."""
        config = self.config
        call = ["gh", self.command, "list", "--repo", f"{config['owner']}/{config['repo']}"]
        call += ["--state", config["state"], "--limit", "100", "--json", self.columns]
        return [*call, *(word for label in config.get("labels", ()) for word in ("--label", label))]

    def lines(self) -> dict[str, str]:
        return {
            "Repository": f"{self.config['owner']}/{self.config['repo']}",
            "Labels": ", ".join(self.config.get("labels", ())) or "none",
            "State": self.config["state"],
        }


class GithubPullKind(GithubKind):
    """Fires for each pull request that `gh` lists and that was not listed before."""

    type = "github_pull_requests"
    own_variables = ("head_ref", "base_ref", "is_draft")
    option = "pulls"
    command = "pr"
    columns = f"{GithubKind.columns},headRefName,baseRefName,isDraft"


class LifecycleKind(TriggerKind):
    """Fires on an event of its agent."""

    type = "agent_lifecycle"
    fields: ClassVar = {"event": ""}
    own_variables = ("event_type", "agent_id", "timestamp")
    option = "event"
    options: ClassVar = {"event": "event"}
    agent_options = options
    labels: ClassVar = {"Event": "event"}
    waits_for = "{event} of its agent"

    def check(self) -> None:
        event = self.config.get("event", "")
        if event not in set(LifecycleEvent):
            reason = f"there is no event '{event}'; the events are {', '.join(LifecycleEvent)}"
            raise TriggerError(reason, field="event")


class AfterKind(TriggerKind):
    """Fires after another trigger ends, or any other."""

    type = "dispatch_result"
    fields: ClassVar = {"source_workflow_id": "", "status": ""}
    own_variables = ("source_workflow_id", "dispatch_id", "status", "timestamp")
    option = "after"
    agent_options: ClassVar = {"source_workflow_id": "source_workflow_id", "status": "result"}
    waits_for = "{status} of {source_workflow_id}"
    unsaid: ClassVar = {"status": "the end", "source_workflow_id": "any trigger"}
    is_follower = True

    @classmethod
    def of_option(cls, value: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        return {"type": cls.type, "source_workflow_id": None if value == "all" else value}

    def check(self) -> None:
        status = self.config.get("status")
        if status is not None and status not in {"completed", "failed", "skipped"}:
            reason = f"there is no status '{status}'; it is completed, failed or skipped"
            raise TriggerError(reason, field="status")

    def follows(self, source: str, status: str) -> bool:
        wanted = self.config.get("source_workflow_id", source), self.config.get("status", status)
        return wanted == (source, status)

    def lines(self) -> dict[str, str]:
        return {
            "Source Workflow": self.config.get("source_workflow_id", "any"),
            "Status Filter": self.config.get("status", "any"),
        }


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    """A message to a webhook, and the kind of event that it tells of, if it says so."""

    task: TriggerTask
    event: str = ""
    action: str = ""


class WebhookKind(TriggerKind):
    """Fires for each message that is signed with its secret."""

    type = "webhook"
    fields: ClassVar = {"scheme": "", "secret": "", "old_secret": "", "events": [], "actions": []}
    own_variables = (
        *("delivery_id", "timestamp", "github_event", "action", "issue_number", "pr_number"),
    )
    option = "secret"
    options: ClassVar = {"secret": "secret", "scheme": "scheme"}
    agent_options: ClassVar = {"secret": "webhook_secret"}
    implied: ClassVar = {"scheme": Scheme.GITHUB.value}  # there was no other once
    is_signed = True

    def complete(self) -> dict[str, Any]:
        made = TriggerKind.complete(self)
        made = {name: each for name, each in made.items() if each != ""}
        return {**made, "scheme": str(scheme_of(made))}

    def check(self) -> None:
        config = self.config
        if config["scheme"] not in set(Scheme):
            wrong = f"there is no scheme '{config['scheme'][:60]}'"
            raise TriggerError(f"{wrong}; the schemes are {', '.join(Scheme)}", field="scheme")
        if not config.get("secret"):
            reason = "Webhook trigger requires a 'secret'; messages are signed with it"
            raise TriggerError(reason, field="secret")
        for name in (name for name in WEBHOOK_SECRETS if name in config):
            if wrong := wrong_secret(Scheme(config["scheme"]), config[name]):
                raise TriggerError(f"'{name}' {wrong}", field=name)

    def merged(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        if config.get("type") != self.type:
            return config
        was = self.config  # a secret that is shown masked and comes back so is kept
        shown = {name: was.get(name) for name in WEBHOOK_SECRETS if config.get(name) == MASK}
        return {**config, **shown, "scheme": config.get("scheme") or was["scheme"]}

    def check_change(self, name: str, config: Mapping[str, Any]) -> None:
        if config["type"] == self.type and config["scheme"] != self.config["scheme"]:
            used = f"webhook '{name}' uses the scheme {self.config['scheme']}"
            fix = f"to change it, remove the webhook first: horae trigger remove {name}"
            raise TriggerError(f"{used}; {fix}", field="scheme")

    def wants(self, delivery: WebhookDelivery) -> bool:
        """Tell whether the trigger listens to a kind of event; one that lists none hears all."""
        events, actions = self.config.get("events", ()), self.config.get("actions", ())
        is_heard = not events or delivery.event in events
        return is_heard and (not actions or delivery.action in actions)

    def describe(self, names: Mapping[str, str]) -> str:
        schemes = {Scheme.STANDARD.value: "Standard Webhooks", Scheme.GITHUB.value: "GitHub"}
        return f"a signed message ({schemes.get(self.config['scheme'], self.config['scheme'])})"

    def lines(self) -> dict[str, str]:
        return {"Secret": "configured" if self.config.get("secret") else "none"}


class ManualKind(TriggerKind):
    """Fires only on request, one run at a time."""

    type = "manual"
    option = "manual"
    is_exclusive = True


_ALL: Final[tuple[type[TriggerKind], ...]] = (
    *(CronKind, DelayKind, GithubKind, GithubPullKind, LifecycleKind, AfterKind, WebhookKind),
    ManualKind,
)
KINDS: Final[Mapping[str, type[TriggerKind]]] = {kind.type: kind for kind in _ALL}
EVERY_VARIABLE: Final = tuple(dict.fromkeys(name for kind in _ALL for name in kind.variables()))


def kind_of(config: object) -> TriggerKind:
    name = config.get("type") if isinstance(config, dict) else None
    if not isinstance(config, dict) or not isinstance(name, str):
        raise TriggerError("trigger_config needs a 'type'", field="type")
    if name not in KINDS:
        reason = f"there is no trigger type '{name[:60]}'; the types are {', '.join(KINDS)}"
        raise TriggerError(reason, field="type")
    return KINDS[name](config)


def _typed(value: object, name: str, wanted: type) -> object:
    if wanted is list:
        parts = [value] if isinstance(value, str) else value
        if isinstance(parts, list) and all(isinstance(each, str) for each in parts):
            return [each.strip() for each in parts if each.strip()]
        raise TriggerError(f"'{name}' must be a list of strings", field=name)
    if not isinstance(value, str):
        raise TriggerError(f"'{name}' must be a string", field=name)
    return value if name in WEBHOOK_SECRETS else value.strip()


# Secrets of a configuration


def masked(config: Mapping[str, Any]) -> dict[str, Any]:
    secrets = {name: shown(config[name]) for name in WEBHOOK_SECRETS if name in config}
    return {**config, **secrets}


def shown(text: str) -> str:
    """Return what may be shown of a secret: the name that it goes by, if it has one."""
    return text if is_reference(text) else MASK


def secrets_of(config: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(config[name] for name in WEBHOOK_SECRETS if name in config)


# Messages and issues


def read_delivery(body: bytes, *, event: str, delivery: str, now: datetime) -> WebhookDelivery:
    """Return what a message says; *event* is what GitHub says beside the body, else its `type`."""
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
    """Return what `gh` lists, oldest first, each by its number."""
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
