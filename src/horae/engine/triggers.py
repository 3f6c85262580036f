"""Triggers and the agents they start, as people ask for them: by command, by HTTP, by files.

Definitions are kept beside the ledger, everything else is the ledger's: a trigger is an entry,
a dispatch is a receipt, its source id is the receipt's key. Answers are plain data in the
shapes of the API, so that a command and a route have nothing to add.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import NAMESPACE_URL, uuid5

from horae.errors import Exit, HoraeError
from horae.kernel.plan import is_id
from horae.rules.entry import Overlap, key_time
from horae.rules.misfire import Receipt, Status
from horae.rules.receipt import OPEN as OPEN_STATUSES
from horae.rules.template import NO_VARIABLES, problems, variables
from horae.rules.trigger import (
    EVERY_NAME,
    GITHUB,
    MASK,
    OPTIONS,
    POLL,
    Definition,
    Kind,
    LifecycleEvent,
    Task,
    Trigger,
    TriggerError,
    checked,
    checked_task,
    is_signed,
    is_wanted,
    order_of,
    parse_tools,
    poll_command,
    read_delivery,
    read_order,
    read_polled,
    view,
)
from horae.timing.duration import DurationError, parse_duration
from horae.timing.rfc3339 import Rfc3339Error, parse_rfc3339

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from horae.engine.desk import Dial
    from horae.engine.ports import Clock, Filed, Ledger
    from horae.kernel.trigger import AgentFile, WorkflowFile

SOURCE: Final = "trigger"
PAGE: Final = 50
LARGEST_PAGE: Final = 200
APPROVAL: Final = timedelta(seconds=300)  # how long a person may take to approve
LARGEST_DELIVERY: Final = 1 << 20  # bytes of a message
FRESH: Final = timedelta(minutes=5)  # how old the stamp of a message may be
APPROVED: Final = "approved"  # how the reason of a receipt begins that somebody approved
WAITS: Final = "it waits for an approval until "  # how the reason of one begins that does
_BATCH: Final = 200
_TRIES: Final = 5  # at a definition that others change at the same time

_AGENT_FIELDS: Final[Mapping[str, type]] = {
    "working_dir": str,
    "user": str,
    "shell": str,
    "interactive": bool,
    "prompt": str,
    "worktree": bool,
    "system_prompt": str,
    "tool_policy": dict,
    "model": str,
    "env": dict,
    "auto_clear_threshold": int,
    "network_policy": str,
    "docker_image": str,
    "extra_mounts": list,
    "resource_limits": dict,
    "additional_dirs": list,
    "rooms": list,
    "command": list,
    "timeout": str,
}
# What is kept because somebody wrote it, and means nothing here.
_UNUSED: Final = (
    "user",
    "shell",
    "interactive",
    "worktree",
    "auto_clear_threshold",
    "network_policy",
    "docker_image",
    "extra_mounts",
    "resource_limits",
    "rooms",
)


class TriggerNotFoundError(HoraeError):
    """A trigger, an agent or an approval that is not there."""

    code = "trigger_not_found"
    exit_code = Exit.NOT_FOUND

    def __init__(self, what: str, word: str) -> None:
        self.what = what
        self.word = word
        super().__init__(f"not found: there is no {what} {word!r}")


class TriggerConflictError(HoraeError):
    """A request that does not go together with what is there."""

    code = "trigger_conflict"
    exit_code = Exit.CONFLICT

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"conflict: {reason}")


class AgentUnavailableError(HoraeError):
    """An agent that cannot take anything now."""

    code = "agent_unavailable"
    exit_code = Exit.TEMPORARY

    def __init__(self, agent: str, reason: str) -> None:
        self.agent = agent
        self.reason = reason
        super().__init__(f"service unavailable: {reason}")


class UnsignedError(HoraeError):
    """A message that was not signed as it should be."""

    code = "unsigned"
    exit_code = Exit.UNAUTHORISED

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"unauthorized: {reason}")


class FilesError(HoraeError):
    """Files that cannot be applied; nothing was changed."""

    code = "agentd_files"
    exit_code = Exit.FINDINGS

    def __init__(self, found: Sequence[str]) -> None:
        self.found = list(found)
        count = f"{len(found)} problem{'s' * (len(found) != 1)}"
        super().__init__("\n".join([*found, f"{count}; nothing was changed"]))


@dataclass(frozen=True, slots=True)
class AgentCard:
    """An agent that was made by a request or by a file; `file` is empty for a request."""

    name: str
    config: Mapping[str, Any]
    is_enabled: bool
    created_at: datetime
    updated_at: datetime
    file: str = ""

    @property
    def id(self) -> str:
        """What it goes by in the API."""
        return agent_id(self.name)


@dataclass(frozen=True, slots=True)
class Dispatched:
    """A receipt of a trigger, and when its first run began."""

    filed: Filed
    started_at: datetime | None = None


@dataclass(slots=True)
class _Look:
    """What is known while some receipts are looked at together."""

    busy: Mapping[str, str]  # the agents that run now, and what they do
    now: datetime
    agents: dict[str, tuple[str, str]] = field(default_factory=dict)  # why one takes nothing
    orders: dict[str, bool] = field(default_factory=dict)  # whether one needs an approval


class TriggerStore(Protocol):
    """Where triggers and agents are kept; what changes one arms its entry at the same time."""

    async def page(self, *, limit: int, offset: int) -> tuple[list[Trigger], int]:
        """Return some triggers, newest first, and how many there are in all."""
        ...

    async def get(self, trigger: str) -> Trigger | None:
        """Return the trigger of an id."""
        ...

    async def named(self, name: str) -> Trigger | None:
        """Return the trigger of a name."""
        ...

    async def of_kind(self, kind: Kind) -> list[Trigger]:
        """Return the enabled triggers of a kind, the longest known first."""
        ...

    async def of_agent(self, agent: str) -> list[Trigger]:
        """Return the triggers that start an agent, the longest known first."""
        ...

    async def of_files(self) -> list[Trigger]:
        """Return the triggers that files made."""
        ...

    async def insert(self, trigger: str, definition: Definition, *, now: datetime) -> bool:
        """Take in a trigger; False means that its id or its name is taken."""
        ...

    async def change(
        self, was: Trigger, definition: Definition, *, now: datetime
    ) -> Trigger | None:
        """Let a trigger be another; None: somebody changed it meanwhile, or the name is taken."""
        ...

    async def remove(self, trigger: str, *, now: datetime) -> bool:
        """Forget a trigger; what it did stays in the ledger."""
        ...

    async def agents(self) -> list[AgentCard]:
        """Return every agent, newest first."""
        ...

    async def agent(self, word: str) -> AgentCard | None:
        """Return the agent of a name or an id."""
        ...

    async def insert_agent(self, card: AgentCard) -> bool:
        """Take in an agent; False means that its name is taken."""
        ...

    async def change_agent(self, card: AgentCard) -> bool:
        """Let an agent be another; False means that there is none."""
        ...

    async def remove_agent(self, name: str) -> bool:
        """Forget an agent."""
        ...

    async def file(
        self, trigger: Trigger, receipt: Receipt, *, text: str, now: datetime
    ) -> tuple[Filed, bool] | None:
        """File what was asked of a trigger, with the order that it is to carry out.

        The same key gives the same receipt back, and False. None: it is not armed.
        """
        ...

    async def dispatches(
        self, trigger: str, *, limit: int, offset: int
    ) -> tuple[list[Dispatched], int]:
        """Return what a trigger did, newest first, and how often it did something."""
        ...

    async def skip(self, receipt: int, *, reason: str, now: datetime) -> bool:
        """Let a receipt that waits or is held never start."""
        ...


def agent_id(name: str) -> str:
    """Return what an agent goes by in the API; the same name is the same agent.

    >>> agent_id("reporter")
    '8eeb7166-7ef4-57c5-a64c-7595d374391b'
    """
    return str(uuid5(NAMESPACE_URL, f"horae:agent:{name}"))


def dispatch_id(trigger: str, key: str) -> str:
    """Return what a receipt of a trigger goes by in the API."""
    return str(uuid5(NAMESPACE_URL, f"horae:dispatch:{trigger}:{key}"))


def page_of(limit: int | None, offset: int | None) -> tuple[int, int]:
    """Return which part of a list is meant: at most 200 things, 50 if nobody says.

    >>> page_of(None, None), page_of(0, 7), page_of(500, -1)
    ((50, 0), (1, 7), (200, 0))
    """
    size = PAGE if limit is None else min(max(limit, 1), LARGEST_PAGE)
    return size, min(max(offset or 0, 0), 2**62)


def validate_template(template: str) -> dict[str, object]:
    """Return what is wrong with a template, whatever its trigger, and which names there are."""
    warnings = problems(template, EVERY_NAME)
    is_valid = not warnings
    if is_valid and not variables(template):
        warnings = [NO_VARIABLES]
    return {"valid": is_valid, "warnings": warnings, "known_variables": list(EVERY_NAME)}


class Triggers:
    """All that can be asked about triggers and the agents they start.

    *others* names the agents that are defined elsewhere, *obstacle* says why one cannot run
    (nothing if it can), and *caution* what its runner cannot enforce of a tool policy.
    """

    def __init__(
        self,
        *,
        store: TriggerStore,
        ledger: Ledger,
        clock: Dial,
        ids: Callable[[], str],
        term: int = 1,
        poke: Callable[[], None] = lambda: None,
        others: Callable[[], Collection[str]] = tuple,
        obstacle: Callable[[AgentCard], str] = lambda _: "",
        caution: Callable[[AgentCard | None, Definition], str] = lambda _, __: "",
        has_gh: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._clock = clock
        self._ids = ids
        self._term = term
        self._poke = poke
        self._others = others
        self._obstacle = obstacle
        self._caution = caution
        self._has_gh = has_gh

    # Questions

    async def page(self, *, limit: int | None = None, offset: int | None = None) -> dict[str, Any]:
        """Return some workflows, newest first."""
        size, start = page_of(limit, offset)
        found, total = await self._store.page(limit=size, offset=start)
        items = [_workflow(each) for each in found]
        return {"items": items, "total": total, "limit": size, "offset": start}

    async def get(self, word: str) -> dict[str, Any]:
        """Return one workflow, by its id or its name."""
        return _workflow(await self.found(word))

    async def history(
        self, word: str, *, limit: int | None = None, offset: int | None = None
    ) -> dict[str, Any]:
        """Return what a workflow has done, newest first."""
        trigger = await self.found(word)
        size, start = page_of(limit, offset)
        found, total = await self._store.dispatches(trigger.id, limit=size, offset=start)
        items = [await self._dispatch(trigger, each) for each in found]
        return {"items": items, "total": total, "limit": size, "offset": start}

    async def agents(
        self, *, limit: int | None = None, offset: int | None = None, status: str | None = None
    ) -> dict[str, Any]:
        """Return some agents, newest first."""
        size, start = page_of(limit, offset)
        busy = await self._busy()
        found = [_agent(each, is_busy=each.name in busy) for each in await self._store.agents()]
        found = [each for each in found if status in {None, each["status"]}]
        items = found[start : start + size]
        return {"items": items, "total": len(found), "limit": size, "offset": start}

    async def agent(self, word: str) -> dict[str, Any]:
        """Return one agent, by its id or its name."""
        card = await self.card(word)
        return _agent(card, is_busy=card.name in await self._busy())

    async def approvals(self) -> list[dict[str, Any]]:
        """Return what waits for somebody's approval, the first asked for first."""
        return [await self._approval(each) for each in await self._awaiting()]

    async def found(self, word: str) -> Trigger:
        """Return the trigger that an id or a name means."""
        trigger = await self._store.get(word) or await self._store.named(word)
        if trigger is None:
            raise TriggerNotFoundError("workflow", word[:100])
        return trigger

    async def card(self, word: str) -> AgentCard:
        """Return the agent that an id or a name means."""
        card = await self._store.agent(word)
        if card is None:
            raise TriggerNotFoundError("agent", word[:100])
        return card

    async def agent_named(self, data: Mapping[str, Any]) -> str:
        """Return the name of the agent that a request means, if it can take anything."""
        word = data.get("agent_id") or data.get("agent_name") or data.get("agent")
        if not isinstance(word, str) or not word:
            raise TriggerError("missing field `agent_id`", field="agent")
        for name in self._others():
            if word in {name, agent_id(name)}:
                return name
        try:
            card = await self.card(word)
        except TriggerNotFoundError:
            raise TriggerError("Agent not found", field="agent") from None
        if not card.is_enabled:
            reason = f"Agent {card.id} is not running (status: stopped)"
            raise TriggerError(reason, field="agent")
        return card.name

    def validate(self, template: str) -> dict[str, object]:
        """Return what is wrong with a template, whatever its trigger."""
        return validate_template(template)

    # Requests about workflows

    async def create(self, data: Mapping[str, Any], *, file: str = "") -> dict[str, Any]:
        """Take in a workflow and arm it; what is wrong with it is said before anything is kept."""
        definition = await self.judged(data, file=file)
        made = self._ids()
        if not await self._store.insert(made, definition, now=self._clock.now()):
            raise TriggerConflictError(f"a workflow called '{definition.name}' is already there")
        self._poke()
        return await self._told(made, definition)

    async def update(
        self, word: str, data: Mapping[str, Any], *, file: str | None = None
    ) -> dict[str, Any]:
        """Change what is said of a workflow; it holds at once. What is null stays as it is."""
        for _ in range(_TRIES):
            was = await self.found(word)
            definition = await self._changed(was.definition, data, file=file)
            if definition == was.definition:
                return _workflow(was)
            changed = await self._store.change(was, definition, now=self._clock.now())
            if changed is not None:
                self._poke()
                return await self._told(changed.id, definition)
            taken = await self._store.named(definition.name)
            if taken is not None and taken.id != was.id:
                name = definition.name
                raise TriggerConflictError(f"a workflow called '{name}' is already there")
        raise TriggerConflictError(f"workflow '{word}' is being changed by somebody else")

    async def delete(self, word: str) -> dict[str, Any]:
        """Forget a workflow; nothing of it starts any more, and its receipts stay."""
        trigger = await self.found(word)
        if not await self._store.remove(trigger.id, now=self._clock.now()):
            raise TriggerNotFoundError("workflow", word[:100])
        self._poke()
        return _workflow(trigger)

    async def trigger_now(
        self, word: str, data: object = None, *, key: str | None = None
    ) -> dict[str, Any]:
        """Ask a workflow to run now; the same *key* gives the same dispatch back."""
        trigger = await self.found(word)
        task = checked_task(data)
        if not trigger.definition.is_enabled:
            raise TriggerError(f"Workflow {trigger.id} is not enabled")
        if key is not None and not (0 < len(key) <= 200 and key.isprintable()):
            raise TriggerError("an Idempotency-Key has 1 to 200 printable characters")
        name = f"manual:{self._ids()}" if key is None else f"idem:{key}"
        if trigger.definition.kind is Kind.MANUAL and key is None:
            await self._refuse_open(trigger)
        agent = trigger.definition.agent
        why_not = await self._why_not(agent)
        if why_not:
            raise AgentUnavailableError(agent, why_not)
        return await self._asked(trigger, name, task, reason="somebody asked")

    async def deliver(
        self, word: str, body: bytes, headers: Mapping[str, str]
    ) -> dict[str, Any] | None:
        """Take a signed message for a webhook; None means that it does not listen to this kind.

        The key is a digest of what was signed: whoever sends the same again gets the same
        dispatch back, whatever the headers around it say.
        """
        trigger = await self.found(word)
        config = trigger.definition.config
        if trigger.definition.kind is not Kind.WEBHOOK:
            raise TriggerError(f"Workflow {trigger.id} is not a webhook")
        if len(body) > LARGEST_DELIVERY:
            raise TriggerError(f"a message has at most {LARGEST_DELIVERY:,} bytes")
        given = {name.lower(): value for name, value in headers.items()}
        now = self._clock.now()
        stamp = given.get("x-horae-timestamp", "")
        signature = given.get("x-hub-signature-256", "")
        if not signature or not is_signed(config["secret"], signature, body, stamp=stamp):
            raise UnsignedError("X-Hub-Signature-256 is missing, or does not fit the message")
        if stamp and not _is_fresh(stamp, now):
            raise UnsignedError("X-Horae-Timestamp is too old, or is no number of seconds")
        if not trigger.definition.is_enabled:
            raise TriggerError(f"Workflow {trigger.id} is not enabled")
        event, delivery = (
            given.get(f"x-github-{name}", "")[:200] for name in ("event", "delivery")
        )
        message = read_delivery(body, event=event, delivery=delivery, now=now)
        if not is_wanted(config, message):
            return None
        digest = sha256(f"{stamp}.".encode() + body).hexdigest()[:32]
        key = f"webhook:{digest}"
        return await self._asked(trigger, key, message.task, reason="a message came in")

    async def polled(self, trigger: Trigger, text: str) -> int:
        """File what `gh` lists and was not there before; return how much that was."""
        new = 0
        for number, task in read_polled(text):
            asked = await self._ask(trigger, number, task, reason=f"GitHub lists #{number}")
            new += asked is not None and asked[1]
        return new

    async def follow(self, receipt: Filed) -> None:
        """Ask the workflows that wait for the end of others; to be told twice changes nothing.

        What follows an end is followed by nothing, so they cannot go round in a circle.
        """
        if receipt.receipt.key.startswith("after:"):
            return
        waiting = await self._store.of_kind(Kind.DISPATCH_RESULT)
        if not waiting:
            return
        listed = await self._ledger.entry(receipt.entry)
        if listed is None:
            return
        ended, status = listed.mark.address.removeprefix("trigger:"), view(receipt.status)
        facts = {
            "source_workflow_id": ended,
            "dispatch_id": dispatch_id(ended, receipt.receipt.key),
            "status": status.value,
            "timestamp": key_time(receipt.ended_at or receipt.decided_at),
        }
        title = f"Dispatch completed: {facts['dispatch_id']} ({status})"
        for trigger in waiting:
            config = trigger.definition.config
            is_it = config.get("source_workflow_id", ended) == ended and trigger.id != ended
            if is_it and config.get("status", status) == status:
                task = Task(title, metadata=facts)
                key, reason = f"after:{receipt.number}", f"{listed.mark.title} is {status}"
                await self._ask(trigger, key, task, reason=reason)

    # Requests about agents

    async def create_agent(self, data: Mapping[str, Any], *, file: str = "") -> dict[str, Any]:
        """Take in an agent; with only a name it uses the default command, where it was made."""
        card = self._card(data, file=file)
        if card.name in self._others() or not await self._store.insert_agent(card):
            raise TriggerConflictError(f"an agent called '{card.name}' is already there")
        await self._tell_agent(card, LifecycleEvent.SESSION_START)
        return {**_agent(card), "notes": self._notes(card)}

    async def update_agent(
        self, word: str, data: Mapping[str, Any], *, file: str | None = None
    ) -> dict[str, Any]:
        """Change what is said of an agent; what is null stays as it is."""
        was = await self.card(word)
        given = {name: value for name, value in data.items() if value is not None}
        if isinstance(given.get("env"), dict):
            old = was.config.get("env", {})  # what is shown masked and comes back so is kept
            given["env"] = {
                name: old.get(name, value) if value == MASK else value
                for name, value in given["env"].items()
            }
        if given.get("name", was.name) != was.name:
            raise TriggerError("an agent keeps its name; make another one")
        said = {**was.config, "enabled": was.is_enabled, **given, "name": was.name}
        card = replace(self._card(said, file=was.file), created_at=was.created_at)
        card = card if file is None else replace(card, file=file)
        if replace(card, updated_at=was.updated_at) == was:
            return _agent(was)
        await self._store.change_agent(card)
        if card.is_enabled != was.is_enabled:
            started, ended = LifecycleEvent.SESSION_START, LifecycleEvent.SESSION_END
            await self._tell_agent(card, started if card.is_enabled else ended)
        await self._release(card.name)
        return {**_agent(card), "notes": self._notes(card)}

    async def delete_agent(self, word: str) -> dict[str, Any]:
        """Forget an agent that no workflow starts."""
        card = await self.card(word)
        starts = await self._store.of_agent(card.name)
        if starts:
            names = ", ".join(each.definition.name for each in starts[:5])
            more = f" and {len(starts) - 5} more" if len(starts) > 5 else ""
            reason = f"agent '{card.name}' is started by {names}{more}; delete those first"
            raise TriggerConflictError(reason)
        await self._store.remove_agent(card.name)
        return _agent(card)

    async def clear_context(self, word: str) -> dict[str, Any]:
        """Tell those who wait for it that an agent is to forget what it was told."""
        card = await self.card(word)
        await self._tell_agent(card, LifecycleEvent.CONTEXT_CLEAR)
        return {"status": "cleared", "agent_id": card.id}

    # Approvals, and what an agent can take

    async def approve(self, number: int, *, by: str = "") -> dict[str, Any]:
        """Let a receipt start that waits for an approval."""
        filed = await self._one_awaiting(number)
        reason = f"{APPROVED} by {by}" if by else APPROVED
        done = await self._ledger.release(
            number, reason=reason, now=self._clock.now(), term=self._term
        )
        if not done:
            raise TriggerConflictError(f"receipt {number} waits for no approval any more")
        self._poke()
        return {**await self._approval(filed), "status": "approved"}

    async def deny(self, number: int, *, by: str = "", reason: str = "") -> dict[str, Any]:
        """Let a receipt never start that waits for an approval."""
        filed = await self._one_awaiting(number)
        who = f"denied by {by}" if by else "denied"
        said = f"{who}: {reason}" if reason else who
        if not await self._store.skip(number, reason=said, now=self._clock.now()):
            raise TriggerConflictError(f"receipt {number} waits for no approval any more")
        self._poke()
        return {**await self._approval(filed), "status": "denied"}

    async def admit(self, receipts: Sequence[Filed]) -> list[Filed]:
        """Return which of some waiting receipts may go to the gate; the others stand elsewhere.

        One that needs an approval is held. A cron tick whose agent cannot take it is skipped,
        anything else is held until it can. To be asked twice changes nothing.
        """
        if not any(each.source == SOURCE for each in receipts):
            return list(receipts)
        look = _Look(await self._busy(), self._clock.now())
        return [
            filed
            for filed in receipts
            if filed.source != SOURCE or await self._may_start(filed, look)
        ]

    async def lapse(self) -> datetime | None:
        """Deny what nobody approved in time; return when the next one comes to that, if any."""
        now, coming = self._clock.now(), []
        for filed in await self._awaiting():
            until = _until(filed)
            if until > now:
                coming.append(until)
                continue
            length = int(APPROVAL.total_seconds())
            reason = f"nobody approved it within {length} s"
            await self._store.skip(filed.number, reason=reason, now=now)
        return min(coming, default=None)

    # What several of these share

    async def judged(self, data: Mapping[str, Any], *, file: str = "") -> Definition:
        """Return the definition that a request makes, or say what is wrong with it."""
        for name in ("name", "prompt_template"):
            if not isinstance(data.get(name), str):
                raise TriggerError(f"missing field `{name}`", field=name)
        config = data.get("trigger_config", data.get("source_config"))
        if not isinstance(config, dict):
            raise TriggerError("missing field `trigger_config`", field="type")
        definition = Definition(
            data["name"],
            await self.agent_named(data),
            config,
            data["prompt_template"],
            _whole(data.get("poll_interval_secs"), "poll_interval_secs", POLL),
            _flag(data.get("enabled"), "enabled", default=True),
            parse_tools(data.get("tool_policy")),
            _without_empty(_options(data)),
            file,
            data.get("wanted"),
        )
        return await self._judge(definition)

    async def _changed(
        self, was: Definition, data: Mapping[str, Any], *, file: str | None
    ) -> Definition:
        """Return what a definition becomes by a change."""
        given = {name: value for name, value in data.items() if value is not None}
        config = given.get("trigger_config", given.get("source_config", was.config))
        if isinstance(config, dict) and config.get("secret") == MASK:
            config = {**config, "secret": was.config.get("secret", "")}
        is_named = any(name in given for name in ("agent", "agent_id", "agent_name"))
        template, name = (given.get(each) for each in ("prompt_template", "name"))
        for each in (template, name):
            if each is not None and not isinstance(each, str):
                raise TriggerError("name and prompt_template are texts")
        definition = replace(
            was,
            name=was.name if name is None else name,
            agent=await self.agent_named(given) if is_named else was.agent,
            config=config,
            template=was.template if template is None else template,
            poll_interval=_whole(
                given.get("poll_interval_secs"), "poll_interval_secs", was.poll_interval
            ),
            is_enabled=_flag(given.get("enabled"), "enabled", default=was.is_enabled),
            tools=parse_tools(given["tool_policy"]) if "tool_policy" in given else was.tools,
            options=_without_empty({**was.options, **_options(given)}),
            file=was.file if file is None else file,
            is_wanted=given.get("wanted", was.is_wanted),
        )
        if definition == was:
            return was
        return await self._judge(definition)

    async def _judge(self, definition: Definition) -> Definition:
        """Return a definition that can be kept."""
        made = checked(definition)
        if not made.agent:
            raise TriggerError("Agent not found", field="agent")
        if made.kind in GITHUB and made.is_enabled and not self._has_gh():
            raise TriggerError(
                "GitHub triggers look through the program gh, which is not installed; "
                "get it from https://cli.github.com and call `gh auth login`",
                field="type",
            )
        if made.kind is Kind.DISPATCH_RESULT:
            await self._refuse_loop(made)
        return made

    async def _refuse_loop(self, definition: Definition) -> None:
        """Raise an error if a workflow would follow what itself follows others."""
        source = definition.config.get("source_workflow_id")
        if source is None:
            return
        trigger = await self._store.get(source)
        if trigger is None:
            reason = f"source_workflow_id '{source[:100]}': there is no such workflow"
            raise TriggerError(reason, field="source_workflow_id")
        if trigger.definition.kind is Kind.DISPATCH_RESULT:
            reason = (
                f"workflow '{trigger.definition.name}' itself follows others, and what follows "
                "is followed by nothing: they could go round in a circle"
            )
            raise TriggerError(reason, field="source_workflow_id")

    def _card(self, data: Mapping[str, Any], *, file: str) -> AgentCard:
        """Return the agent that a request makes."""
        name = data.get("name")
        if not isinstance(name, str) or not is_id(name):
            shown = (
                f"{str(name)[:64]!r} is not a word of letters, digits and .-_"
                if name
                else "missing"
            )
            raise TriggerError(f"the agent's name is {shown}", field="name")
        # What is empty is as if it were not there, so a file can take something back.
        config = {key: value for key in _AGENT_FIELDS if (value := data.get(key))}
        for key, value in config.items():
            if not isinstance(value, _AGENT_FIELDS[key]):
                kind = _AGENT_FIELDS[key].__name__
                raise TriggerError(f"{key} is of the wrong kind; it is a {kind}", field=key)
        parse_tools(config.get("tool_policy"))
        for key in ("command", "additional_dirs"):
            if not all(isinstance(each, str) and each for each in config.get(key, ())):
                raise TriggerError(f"{key} is a list of texts", field=key)
        env = config.get("env", {})
        if not all(isinstance(k, str) and isinstance(v, str) for k, v in env.items()):
            raise TriggerError("env is an object of texts", field="env")
        try:
            parse_duration(config.get("timeout", "1h"))
        except DurationError as error:
            raise TriggerError(f"timeout: {error}", field="timeout") from None
        config.setdefault("working_dir", ".")
        now = self._clock.now()
        is_enabled = _flag(data.get("enabled"), "enabled", default=True)
        return AgentCard(name, config, is_enabled, now, now, file)

    def _notes(self, card: AgentCard) -> list[str]:
        """Return what somebody should know of an agent that was just made."""
        unused = [name for name in _UNUSED if name in card.config]
        notes = [f"{', '.join(unused)}: kept, and not used by horae"] if unused else []
        obstacle = self._obstacle(card)
        return [*notes, obstacle] if obstacle else notes

    async def _told(self, trigger: str, definition: Definition) -> dict[str, Any]:
        """Return a workflow that was just kept, with what somebody should know of it."""
        kept = await self._store.get(trigger)
        if kept is None:
            raise TriggerNotFoundError("workflow", trigger)
        card = await self._store.agent(definition.agent)
        caution = self._caution(card, definition)
        return {**_workflow(kept), "notes": [caution] if caution else []}

    async def _ask(
        self, trigger: Trigger, key: str, task: Task, *, reason: str
    ) -> tuple[Filed, bool] | None:
        """File a request; one that must not start yet is held from the beginning.

        None means that the workflow rests: nothing is asked of it meanwhile.
        """
        now = self._clock.now()
        order = order_of(trigger, task)
        agent = trigger.definition.agent
        why_not = await self._why_not(agent) or await self._lack(agent)
        if not why_not and order.needs_approval:
            why_not = _waits(now)
        receipt = Receipt(key, Status.WAITING, reason, now, now)
        if why_not:
            receipt = replace(receipt, status=Status.HELD, reason=why_not)
        asked = await self._store.file(trigger, receipt, text=order.text(), now=now)
        if asked is not None and asked[1]:
            self._poke()
        return asked

    async def _asked(
        self, trigger: Trigger, key: str, task: Task, *, reason: str
    ) -> dict[str, Any]:
        """Return the dispatch of a request that has to be taken."""
        asked = await self._ask(trigger, key, task, reason=reason)
        if asked is None:
            name = trigger.definition.name
            raise TriggerConflictError(f"workflow '{name}' rests; let it go on with horae resume")
        return await self._dispatch(trigger, Dispatched(asked[0]))

    async def _refuse_open(self, trigger: Trigger) -> None:
        """Raise an error if a dispatch of a workflow is not over yet."""
        found, _ = await self._store.dispatches(trigger.id, limit=1, offset=0)
        if found and found[0].filed.status in OPEN_STATUSES:
            name = trigger.definition.name
            raise TriggerConflictError(f"workflow '{name}' has a dispatch that is not over")

    async def _busy(self) -> dict[str, str]:
        """Return the agents that run now, each with what it does."""
        runs = await self._ledger.open_runs()
        return {name: filed.title for filed, _ in runs for name in filed.agents}

    async def _why_not(self, agent: str) -> str:
        """Return why an agent can take nothing at all, if so."""
        if agent in self._others():
            return ""
        card = await self._store.agent(agent)
        if card is None:
            return f"there is no agent called '{agent}'"
        return "" if card.is_enabled else f"agent '{agent}' is disabled"

    async def _lack(self, agent: str) -> str:
        """Return what an agent that is there lacks to run, if so."""
        card = await self._store.agent(agent)
        return self._obstacle(card) if card is not None else ""

    async def _may_start(self, filed: Filed, look: _Look) -> bool:
        """Tell whether a receipt may go to the gate, and put it elsewhere if not."""
        [agent] = filed.agents or ("",)
        if agent not in look.agents:
            look.agents[agent] = (await self._why_not(agent), await self._lack(agent))
        why_not, lack = look.agents[agent]
        is_tick = filed.receipt.key.startswith("cron:")
        gives_way = is_tick and filed.policy.overlap is Overlap.SKIP
        if not why_not and gives_way and agent in look.busy:
            why_not = f"agent '{agent}' is busy with {look.busy[agent]}"
        if why_not and gives_way:
            await self._store.skip(filed.number, reason=why_not, now=look.now)
            return False
        why_not = why_not or lack
        if not why_not and await self._needs_approval(filed, look.orders):
            why_not = _waits(look.now)
        if why_not:
            await self._ledger.hold(filed.number, reason=why_not, now=look.now, term=self._term)
        return not why_not

    async def _needs_approval(self, filed: Filed, known: dict[str, bool] | None = None) -> bool:
        """Tell whether nobody has said yet that a receipt may start; *known* is by digest."""
        if filed.receipt.reason.startswith(APPROVED) or filed.attempts:
            return False
        known = {} if known is None else known
        if filed.digest not in known:
            text = await self._ledger.text(filed.digest)
            known[filed.digest] = text is not None and read_order(text).needs_approval
        return known[filed.digest]

    async def _awaiting(self) -> list[Filed]:
        """Return the held receipts that wait for an approval, the first asked for first."""
        return [each for each in await self._held() if each.receipt.reason.startswith(WAITS)]

    async def _held(self) -> list[Filed]:
        """Return the receipts of triggers that are held, oldest first."""
        found: list[Filed] = []
        cursor = None
        while True:
            page = await self._ledger.receipts(statuses=(Status.HELD,), limit=_BATCH, cursor=cursor)
            found += [each for each in page.receipts if each.source == SOURCE]
            cursor = page.cursor
            if cursor is None:
                return found[::-1]

    async def _one_awaiting(self, number: int) -> Filed:
        """Return the receipt of a number that waits for an approval."""
        filed = await self._ledger.receipt(number)
        if filed is None or filed.source != SOURCE:
            raise TriggerNotFoundError("approval", str(number))
        if filed.status is not Status.HELD or not filed.receipt.reason.startswith(WAITS):
            raise TriggerConflictError(f"receipt {number} is {filed.status}, and waits for nobody")
        return filed

    async def _release(self, agent: str) -> None:
        """Let what was held for want of an agent wait again, if it can take it now."""
        if await self._why_not(agent) or await self._lack(agent):
            return
        now = self._clock.now()
        for filed in await self._held():
            if agent in filed.agents and not filed.receipt.reason.startswith(WAITS):
                reason = f"agent '{agent}' can take it now"
                await self._ledger.release(filed.number, reason=reason, now=now, term=self._term)
        self._poke()

    async def _tell_agent(self, card: AgentCard, event: LifecycleEvent) -> None:
        """Ask the workflows that wait for what happens to an agent."""
        at = key_time(self._clock.now())
        facts = {"event_type": event.value, "agent_id": card.id, "timestamp": at}
        for trigger in await self._store.of_kind(Kind.AGENT_LIFECYCLE):
            definition = trigger.definition
            if definition.agent == card.name and definition.config["event"] == event:
                task = Task(f"Agent lifecycle: {event}", metadata=facts)
                key = f"event:{event}:{card.id}:{at}"
                await self._ask(trigger, key, task, reason=f"agent '{card.name}': {event}")

    async def _dispatch(self, trigger: Trigger, done: Dispatched) -> dict[str, Any]:
        """Return a receipt in the shape of the API."""
        filed, receipt = done.filed, done.filed.receipt
        text = await self._ledger.text(filed.digest)
        prompt = ""
        if text is not None:
            prompt = read_order(text).prompt(key=receipt.key, planned_at=receipt.planned_at)
        return {
            "id": dispatch_id(trigger.id, receipt.key),
            "workflow_id": trigger.id,
            "workflow": trigger.definition.name,
            "source_id": receipt.key,
            "agent_id": agent_id(filed.agents[0] if filed.agents else trigger.definition.agent),
            "prompt_sent": prompt,
            "status": view(filed.status).value,
            "dispatched_at": key_time(done.started_at or filed.decided_at),
            "completed_at": None if filed.ended_at is None else key_time(filed.ended_at),
            "reason": receipt.reason,
            "receipt": filed.number,
            "planned_at": key_time(receipt.planned_at),
            "count": receipt.count,
        }

    async def _approval(self, filed: Filed) -> dict[str, Any]:
        """Return what somebody is asked to approve."""
        text = await self._ledger.text(filed.digest) or ""
        receipt, order = filed.receipt, read_order(text)
        return {
            "receipt": filed.number,
            "workflow": filed.title,
            "agent": filed.agents[0] if filed.agents else "",
            "source_id": receipt.key,
            "prompt": order.prompt(key=receipt.key, planned_at=receipt.planned_at),
            "status": "pending",
            "created_at": key_time(_until(filed) - APPROVAL),
            "expires_at": key_time(_until(filed)),
        }


# Shapes


def _workflow(trigger: Trigger) -> dict[str, Any]:
    """Return a workflow in the shape of the API; secrets are not in it."""
    definition = trigger.definition
    config = dict(definition.config)
    if "secret" in config:
        config["secret"] = MASK
    return {
        "id": trigger.id,
        "name": definition.name,
        "agent_id": agent_id(definition.agent),
        "agent": definition.agent,
        "trigger_config": config,
        "prompt_template": definition.template,
        "poll_interval_secs": definition.poll_interval,
        "enabled": definition.is_enabled,
        "tool_policy": definition.tools.data(),
        **definition.options,
        "created_at": key_time(trigger.created_at),
        "updated_at": key_time(trigger.updated_at),
        "file": definition.file or None,
    }


def _agent(card: AgentCard, *, is_busy: bool = False) -> dict[str, Any]:
    """Return an agent in the shape of the API; what its variables hold is not in it."""
    config = dict(card.config)
    config["env"] = dict.fromkeys(config.get("env", {}), MASK)
    config.setdefault("tool_policy", {"mode": "allow_all"})
    return {
        "id": card.id,
        "name": card.name,
        "status": "running" if card.is_enabled else "stopped",
        "activity": "busy" if is_busy else "idle",
        "config": config,
        "session_id": None,
        "backend_type": None,
        "created_at": key_time(card.created_at),
        "updated_at": key_time(card.updated_at),
        "file": card.file or None,
    }


def _waits(now: datetime) -> str:
    """Return why a receipt is held that needs an approval; the end of that stands in it."""
    return f"{WAITS}{key_time(now + APPROVAL)}"


def _until(filed: Filed) -> datetime:
    """Return until when a receipt can be approved."""
    try:
        return parse_rfc3339(filed.receipt.reason.removeprefix(WAITS))
    except Rfc3339Error:
        return filed.decided_at + APPROVAL


def _options(data: Mapping[str, Any]) -> dict[str, str]:
    """Return how a workflow wants to be kept, as far as it says so."""
    given = {name: data[name] for name in OPTIONS if data.get(name) is not None}
    for name, value in given.items():
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise TriggerError(f"{name} is a text", field=name)
    return {name: str(value) for name, value in given.items()}


def _without_empty(options: Mapping[str, str]) -> dict[str, str]:
    """Return options without those that somebody took back."""
    return {name: value for name, value in options.items() if value}


def _whole(value: object, name: str, default: int) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise TriggerError(f"{name} is a whole number", field=name)
    return value


def _flag(value: object, name: str, *, default: bool) -> bool:
    if value is None:
        return default
    if not isinstance(value, bool):
        raise TriggerError(f"{name} is true or false", field=name)
    return value


def _is_fresh(stamp: str, now: datetime) -> bool:
    """Tell whether a message was signed just now."""
    if not (stamp.isascii() and stamp.isdecimal() and len(stamp) <= 11):
        return False
    return abs(now - datetime.fromtimestamp(int(stamp), UTC)) <= FRESH


# Files


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one agent or workflow when files are applied."""

    verb: str  # create, update, unchanged, disable, delete or skip
    what: str  # agent or workflow
    name: str
    place: str
    diff: tuple[tuple[str, object, object], ...] = ()
    said: Mapping[str, Any] = field(default_factory=dict)  # what is asked for

    def data(self) -> dict[str, object]:
        """Return it as plain data."""
        diff = [{"field": name, "old": old, "new": new} for name, old, new in self.diff]
        about = {"verb": self.verb, "what": self.what, "name": self.name, "place": self.place}
        return {**about, "diff": diff}


async def plan_files(
    triggers: Triggers, agents: Sequence[AgentFile], workflows: Sequence[WorkflowFile]
) -> list[Change]:
    """Return what would change if files were applied, agents first; raises FilesError."""
    wrong = [*_doubles("agent", agents), *_doubles("workflow", workflows)]
    changes: list[Change] = []
    coming = {each.name for each in agents}
    for file in agents:
        try:
            changes.append(await _agent_change(triggers, file))
        except HoraeError as error:
            wrong.append(_located(error, file))
    for workflow in workflows:
        try:
            changes.append(await _workflow_change(triggers, workflow, coming))
        except HoraeError as error:
            wrong.append(_located(error, workflow))
    if wrong:
        raise FilesError(wrong)
    return changes


async def apply_changes(
    triggers: Triggers, changes: Sequence[Change], *, told: Callable[[Change], None] | None = None
) -> None:
    """Do what was planned, in its order."""
    for change in changes:
        file = change.place.rpartition(":")[0]
        match change.verb, change.what:
            case "create", "agent":
                await triggers.create_agent(change.said, file=file)
            case "update", "agent":
                await triggers.update_agent(change.name, change.said, file=file)
            case "create", "workflow":
                await triggers.create(change.said, file=file)
            case "update" | "disable", "workflow":
                await triggers.update(change.name, change.said, file=file)
            case "delete", "workflow":
                await triggers.delete(change.name)
            case "delete", "agent":
                await triggers.delete_agent(change.name)
        if told is not None:
            told(change)


async def plan_teardown(
    triggers: Triggers, agents: Sequence[AgentFile], workflows: Sequence[WorkflowFile]
) -> list[Change]:
    """Return what would go if what files made were taken down, workflows first."""
    changes = []
    for what, files in (("workflow", workflows), ("agent", agents)):
        for file in files:
            look = triggers.found if what == "workflow" else triggers.card
            try:
                await look(file.name)
                verb = "delete"
            except TriggerNotFoundError:
                verb = "skip"
            changes.append(Change(verb, what, file.name, _place(file)))
    return changes


async def plan_removed(store: TriggerStore, files: Collection[str], folder: str) -> list[Change]:
    """Return which workflows rest because their file in a folder is no longer there."""
    gone = [
        each.definition
        for each in await store.of_files()
        if each.definition.file.startswith(folder) and each.definition.file not in files
    ]
    said = {"enabled": False, "wanted": False}
    return [
        Change(
            "disable",
            "workflow",
            each.name,
            f"{each.file}:1",
            diff=(("enabled", True, False),),
            said=said,
        )
        for each in gone
        if each.is_enabled
    ]


async def _agent_change(triggers: Triggers, file: AgentFile) -> Change:
    """Return what applying an agent's file would change."""
    said = {**file.config, "name": file.name, "enabled": file.is_enabled}
    card = triggers._card(said, file=file.file)  # noqa: SLF001 - to judge it before anything changes
    try:
        was = await triggers.card(file.name)
    except TriggerNotFoundError:
        return Change("create", "agent", file.name, _place(file), said=said)
    old = {**was.config, "enabled": was.is_enabled}
    new = {**card.config, "enabled": card.is_enabled}
    diff = _diff(_masked(old), _masked(new), differs=lambda name: old.get(name) != new.get(name))
    # What a file no longer says is no longer so.
    said |= {name: _EMPTY[_AGENT_FIELDS[name]] for name in old.keys() - new.keys()}
    verb = "update" if diff else "unchanged"
    return Change(verb, "agent", file.name, _place(file), diff, said)


_EMPTY: Final[Mapping[type, object]] = {str: "", list: [], dict: {}, bool: False, int: 0}


async def _workflow_change(
    triggers: Triggers, file: WorkflowFile, coming: Collection[str]
) -> Change:
    """Return what applying a workflow's file would change."""
    said: dict[str, Any] = {
        "name": file.name,
        "agent": file.agent,
        "trigger_config": dict(file.source),
        "prompt_template": file.template,
        "poll_interval_secs": file.poll_interval,
        "enabled": file.is_enabled,
        "wanted": file.is_enabled,
        "tool_policy": None if file.tool_policy is None else dict(file.tool_policy),
        **file.options,
    }
    made = await _judged(triggers, said, file, coming)
    place = _place(file)
    try:
        was = (await triggers.found(file.name)).definition
    except TriggerNotFoundError:
        return Change("create", "workflow", file.name, place, said=said)
    is_new_delay = made.kind is Kind.DELAY and made.config != was.config
    if was.is_wanted == made.is_wanted and not is_new_delay:
        # Somebody may have disabled it since, or it has fired: the file has nothing new to say.
        made = replace(made, is_enabled=was.is_enabled)
        said["enabled"] = was.is_enabled
    diff = _diff(
        _shown(was), _shown(made), differs=lambda name: _raw(was, name) != _raw(made, name)
    )
    said["tool_policy"] = made.tools.data()
    # What a file no longer says is no longer so.
    said |= dict.fromkeys(was.options.keys() - made.options.keys(), "")
    is_same = not diff and (was.file, was.is_wanted) == (file.file, made.is_wanted)
    return Change("unchanged" if is_same else "update", "workflow", file.name, place, diff, said)


async def _judged(
    triggers: Triggers, said: Mapping[str, Any], file: WorkflowFile, coming: Collection[str]
) -> Definition:
    """Return what a workflow's file makes; its agent may be one that comes with it."""
    if file.agent not in coming:
        try:
            return await triggers.judged(said, file=file.file)
        except TriggerError as error:
            if error.reason != "Agent not found":
                raise
            reason = f"Agent '{file.agent}' not found (referenced by workflow '{file.name}')"
            raise TriggerError(reason, field="agent") from None
    definition = Definition(
        file.name,
        file.agent,
        said["trigger_config"],
        file.template or "",
        file.poll_interval,
        file.is_enabled,
        parse_tools(said["tool_policy"]),
        dict(file.options),
        file.file,
        file.is_enabled,
    )
    return await triggers._judge(definition)  # noqa: SLF001 - to judge it before anything changes


def _shown(definition: Definition) -> dict[str, object]:
    """Return the fields of a workflow as a diff shows them."""
    config = {name: MASK if name == "secret" else each for name, each in definition.config.items()}
    return {
        "agent": definition.agent,
        "source": config,
        "prompt_template": definition.template,
        "poll_interval": definition.poll_interval,
        "enabled": definition.is_enabled,
        "tool_policy": definition.tools.data(),
        **definition.options,
    }


def _raw(definition: Definition, name: str) -> object:
    """Return what a field holds, secrets included."""
    return dict(definition.config) if name == "source" else _shown(definition).get(name)


def _masked(config: Mapping[str, Any]) -> dict[str, object]:
    """Return an agent's configuration without what its variables hold."""
    env = config.get("env")
    return dict(config) if env is None else {**config, "env": dict.fromkeys(env, MASK)}


def _diff(
    old: Mapping[str, object], new: Mapping[str, object], *, differs: Callable[[str], bool]
) -> tuple[tuple[str, object, object], ...]:
    """Return the fields that are not the same, with both of their values."""
    names = dict.fromkeys([*old, *new])
    return tuple((name, old.get(name), new.get(name)) for name in names if differs(name))


def _doubles(what: str, files: Iterable[AgentFile | WorkflowFile]) -> list[str]:
    """Return what two files say both."""
    first: dict[str, str] = {}
    wrong = []
    for file in files:
        place = first.setdefault(file.name, _place(file))
        if place != _place(file):
            wrong.append(f"{_place(file)}: the {what} '{file.name}' is also in {place}")
    return wrong


def _place(file: AgentFile | WorkflowFile) -> str:
    return f"{file.file}:{file.lines.get('name', 1)}"


def _located(error: HoraeError, file: AgentFile | WorkflowFile) -> str:
    """Return an error with the line of the field that it is about."""
    name = error.field if isinstance(error, TriggerError) else ""
    line = file.lines.get(name, file.lines.get("name", 1))
    return f"{file.file}:{line}: {str(error).removeprefix('invalid input: ')}"


# Looking at GitHub from time to time


class Polls:
    """Looks at what `gh` lists, each trigger at its own interval; *call* runs a program."""

    def __init__(
        self,
        triggers: Triggers,
        store: TriggerStore,
        *,
        clock: Clock,
        call: Callable[[Sequence[str]], Awaitable[str]],
    ) -> None:
        self._triggers = triggers
        self._store = store
        self._clock = clock
        self._call = call
        self._next_at: dict[str, datetime] = {}
        self.errors: dict[str, int] = {}  # in a row, by trigger

    async def run(self, stop: asyncio.Event, *, longest: timedelta = timedelta(seconds=30)) -> None:
        """Look until *stop* is set."""
        while not stop.is_set():
            wake_at = await self.turn()
            latest = self._clock.now() + longest  # so that a new trigger is found
            await self._clock.wait(stop, until=min(wake_at or latest, latest))

    async def turn(self) -> datetime | None:
        """Look at all whose time has come; return when the next one's comes, if there is any."""
        found = [each for kind in sorted(GITHUB) for each in await self._store.of_kind(kind)]
        self._next_at = {
            each.id: self._next_at.get(each.id) or self._clock.now() + _every(each)
            for each in found
        }
        for trigger in found:
            if self._next_at[trigger.id] <= self._clock.now():
                await self._look(trigger)
                wait = poll_wait(trigger.definition.poll_interval, self.errors.get(trigger.id, 0))
                self._next_at[trigger.id] = self._clock.now() + wait
        return min(self._next_at.values(), default=None)

    async def _look(self, trigger: Trigger) -> None:
        """Look at what one trigger waits for."""
        try:
            text = await self._call(poll_command(trigger.definition.config))
            await self._triggers.polled(trigger, text)
        except (HoraeError, OSError):
            self.errors[trigger.id] = self.errors.get(trigger.id, 0) + 1
        else:
            self.errors.pop(trigger.id, None)


def poll_wait(interval: int, errors: int) -> timedelta:
    """Return how long to wait before the next look, after some errors in a row.

    >>> [poll_wait(10, errors).seconds for errors in (0, 1, 5, 20)]
    [10, 12, 20, 40]
    """
    return timedelta(seconds=interval + min(2 * errors, 30))


def _every(trigger: Trigger) -> timedelta:
    return timedelta(seconds=trigger.definition.poll_interval)


# One way in for commands

_VERBS: Final = frozenset(
    {
        "create",
        "update",
        "delete",
        "trigger_now",
        "create_agent",
        "update_agent",
        "delete_agent",
        "clear_context",
        "approve",
        "deny",
    }
)


async def answer(triggers: Triggers, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Do what a command asks an engine to: a verb, and what it takes, by name."""
    if verb not in _VERBS:
        raise TriggerNotFoundError("request", verb[:100])
    from inspect import signature

    asked = getattr(triggers, verb)
    try:
        signature(asked).bind(**body)
    except TypeError as error:
        raise TriggerError(f"{verb}: {error}") from None
    said: dict[str, Any] = await asked(**body)
    return said


def refusal(error: HoraeError) -> tuple[int, dict[str, str]]:
    """Return the status and the body with which the API says an error."""
    match error:
        case TriggerNotFoundError():
            return 404, {"error": "not found"}
        case UnsignedError():
            return 401, {"error": str(error)}
        case TriggerConflictError():
            return 409, {"error": str(error)}
        case AgentUnavailableError():
            return 503, {"error": str(error)}
        case TriggerError():
            return 400, {"error": str(error)}
    known = {Exit.USAGE: 400, Exit.NOT_FOUND: 404, Exit.CONFLICT: 409, Exit.TEMPORARY: 503}
    return known.get(Exit(error.exit_code), 500), {"error": str(error)}
