"""Triggers and their agents: created, changed, run, approved.

A trigger is an entry of the ledger, a dispatch is a receipt, its source id is the receipt's key.
Responses have the shapes of the API, where a trigger is a workflow.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from msgspec import UNSET, structs

from horae.core.actor import actor_words, by_words, current_actor
from horae.core.agent import AgentUnavailableError, PromptOrder, read_order
from horae.core.entry import PROPERTIES, Overlap, Unarmed, key_time
from horae.core.ports import Clock, Ledger, Run, SecretError, UnaskedSecretError, receipts_of
from horae.core.receipt import HELD_BACK, OPEN, Filed, Reason, ReasonCode, Receipt, Status
from horae.core.secret import WEBHOOK, is_kept, is_reference, looks_secret
from horae.errors import Exit, HoraeError
from horae.sources.triggers import kinds, rules, views
from horae.sources.triggers.kinds import LifecycleEvent, TriggerError, TriggerTask
from horae.sources.triggers.store import NAME, AgentCard, TriggerStore, agent_id, dispatch_id
from horae.sources.triggers.webhook import Scheme, verify

if TYPE_CHECKING:
    from horae.core.command import Unready
    from horae.core.tool_policy import ToolPolicy
    from horae.core.views import Maybe
    from horae.process.run_settings import NamedSecrets
    from horae.sources.triggers.rules import Trigger, TriggerDefinition

log = logging.getLogger(__name__)

APPROVAL: Final = timedelta(seconds=300)  # for a user to approve
LARGEST_DELIVERY: Final = 1 << 20  # bytes of a message
QUIET: Final = timedelta(minutes=1)  # between log lines about rejected messages
PAGE: Final = 50
LARGEST_PAGE: Final = 200
_BATCH: Final = 200
_TRIES: Final = 5  # at a definition with concurrent changes
_LONGEST_NAME: Final = 50  # of an agent, in the name of a workflow
AGENT_WORDS: Final = ("agent_id", "agent_name", "agent")  # fields that may name an agent


# The names of request fields in a message, and the commands that list them.
_LISTED: Final = {
    "workflow": ("trigger", "`horae trigger list` lists the triggers"),
    "approval": (
        "pending approval of receipt",
        "`horae approval list` lists the pending approvals",
    ),
}


class TriggerNotFoundError(HoraeError, code="trigger_not_found", exit_code=Exit.NOT_FOUND):
    def __init__(self, what: str, word: str | int, hint: str = "") -> None:
        self.what, self.word = what, str(word)
        name, where = _LISTED.get(what, (what, ""))
        super().__init__(f"there is no {name} {word!r}{hint or (where and f'; {where}')}")


class TriggerConflictError(HoraeError, code="trigger_conflict", exit_code=Exit.CONFLICT):
    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class TriggerOutdatedError(TriggerConflictError):
    def __init__(self, word: str) -> None:
        super().__init__(f"workflow '{word}' is being changed by another request")


class ApproverError(HoraeError, code="approver", exit_code=Exit.UNAUTHORISED):
    def __init__(self, actor: str) -> None:
        self.actor = actor
        super().__init__(f"{actor_words(actor)} cannot approve or reject a run; only a user can")


class UnsignedError(HoraeError, code="unsigned", exit_code=Exit.UNAUTHORISED):
    """A message without a valid signature; the response does not tell the reason."""

    def __init__(self) -> None:
        super().__init__("unauthorized: there is no such webhook, or the signature does not match")


_STATUSES: Final = {
    Exit.USAGE: 400,
    Exit.UNAUTHORISED: 403,
    Exit.NOT_FOUND: 404,
    Exit.CONFLICT: 409,
    Exit.TEMPORARY: 503,
}


def refusal(error: HoraeError) -> tuple[int, dict[str, str]]:
    if isinstance(error, TriggerNotFoundError):
        return 404, {"error": "not found"}
    if isinstance(error, UnsignedError):
        return 401, {"error": str(error)}
    return _STATUSES.get(Exit(error.exit_code), 500), {"error": rules.api_words(error)}


class AgentReadiness(Protocol):
    async def of_agent(self, name: str, tools: ToolPolicy | None = None) -> Unready | None: ...

    def of_card(self, card: AgentCard, tools: ToolPolicy | None = None) -> Unready | None: ...


@dataclass(kw_only=True, eq=False)
class Triggers:
    store: TriggerStore
    ledger: Ledger
    clock: Clock
    ids: Callable[[], str]
    term: int = 1
    poke: Callable[[], None] = lambda: None
    others: Callable[[], Collection[str]] = tuple  # names of agents in plans and settings
    ready: AgentReadiness | None = None  # returns why an agent cannot run
    has_gh: Callable[[], bool] = lambda: True
    secrets: NamedSecrets | None = None  # the values of secrets; None: secrets are only named
    logged_at: datetime | None = None  # the time of the last log line about a rejected message
    source: ClassVar[str] = NAME

    async def page(
        self, *, limit: int | None = None, offset: int | None = None
    ) -> views.TriggerPage:
        size = page_of(limit=limit, offset=offset)
        found, total = await self.store.page(**size)
        return views.Page(items=tuple(map(trigger_line, found)), total=total, **size)

    async def find(self, word: str) -> Trigger:
        found = await self.store.get(word) or await self.store.named(word)
        if found is None:
            raise TriggerNotFoundError("workflow", word[:100])
        return found

    async def get(self, word: str) -> views.TriggerLine:
        return trigger_line(await self.find(word))

    async def history(
        self, word: str, *, limit: int | None = None, offset: int | None = None
    ) -> views.DispatchPage:
        trigger, size = await self.find(word), page_of(limit=limit, offset=offset)
        found, total = await self.store.dispatches(trigger.id, **size)
        items = [await self._dispatch(trigger, *each) for each in found]
        return views.Page(items=tuple(items), total=total, **size)

    async def create(self, data: Mapping[str, Any]) -> views.TriggerLine:
        return await self.put(await self.judged(data))

    async def update(self, word: str, data: Mapping[str, Any]) -> views.TriggerLine:
        """Change a workflow; fields that are null stay as they are."""
        for _ in range(_TRIES):
            was = await self.find(word)
            is_named = any(data.get(name) is not None for name in AGENT_WORDS)
            agent = await self.agent_named(data) if is_named else was.definition.agent
            definition = rules.changed_definition(was.definition, data, agent=agent)
            if definition != was.definition:
                definition = await self._judge(definition, was.definition)
                was.definition.kind.check_change(was.definition.name, definition.kind)
            if definition == was.definition:
                return trigger_line(was)
            with suppress(TriggerOutdatedError):  # a concurrent request was first
                return await self.put(definition, was)
        raise TriggerOutdatedError(word)

    async def put(
        self, definition: TriggerDefinition, was: Trigger | None = None
    ) -> views.TriggerLine:
        config = definition.kind.secrets
        kept = await self._keep(config, prefix=f"{WEBHOOK}{definition.name}")
        definition = replace(definition, kind=structs.replace(definition.kind, **kept))
        old = was.definition.secrets if was else frozenset[str]()
        now = self.clock.now()
        if was is None:
            made = await self.store.insert(self.ids(), definition, now=now)
        else:
            made = await self.store.change(was, definition, now=now)
        if made is None:
            await self._drop(definition.secrets, but=old)
            taken = await self.store.named(definition.name)
            if was is None or (taken is not None and taken.id != was.id):
                reason = f"a workflow named '{definition.name}' already exists"
                raise TriggerConflictError(reason)
            raise TriggerOutdatedError(was.definition.name)
        await self._drop(old, but=definition.secrets)
        if was is not None:
            await self._refit(made)
        self.poke()
        asked = definition.agent, definition.enforced
        why = await self.why_agent(*asked) if definition.is_enabled else None
        notes = () if why is None else (f"{why}; until then its runs are held",)
        return trigger_line(made, notes)

    async def rotate(self, word: str, secret: str | None) -> views.TriggerLine:
        """Give a webhook a second secret; None ends the older one."""
        trigger = await self.find(word)
        name, kind = trigger.definition.name, trigger.definition.kind
        if not isinstance(kind, kinds.WebhookKind):
            raise TriggerError(f"'{name}' is not a webhook")
        if secret is not None and kind.old_secret:
            end = f"`horae trigger rotate {name} --end` ends the older one"
            raise TriggerConflictError(f"'{name}' already has two secrets; {end}")
        config = kind.data() | {"old_secret": None}
        if secret is not None:
            config |= {"secret": secret, "old_secret": kind.secret}
        return await self.update(trigger.id, {"trigger_config": config})

    async def delete(self, word: str) -> views.TriggerLine:
        trigger = await self.find(word)
        if not await self.store.remove(trigger.id, now=self.clock.now()):
            raise TriggerNotFoundError("workflow", word[:100])
        await self._drop(trigger.definition.secrets)
        self.poke()
        return trigger_line(trigger)

    async def unarmed(self, names: Iterable[str]) -> tuple[str, str] | None:
        for name in names:
            trigger = await self.find(name)
            known = await self.store.entry(trigger.id)
            # A disabled one has fired, or is disabled on purpose.
            if trigger.definition.is_enabled and known and isinstance(known.item, Unarmed):
                return name, known.item.reason
        return None

    async def judged(
        self, data: Mapping[str, Any], *, file: str = "", agent: str | None = None
    ) -> TriggerDefinition:
        for name in ("name", "prompt_template"):
            if not isinstance(data.get(name), str):
                raise TriggerError(f"missing field `{name}`", field=name)
        if not isinstance(data.get("trigger_config", data.get("source_config")), dict):
            raise TriggerError("missing field `trigger_config`", field="type")
        agent = await self.agent_named(data) if agent is None else agent
        made = rules.new_definition(data, agent=agent, file=file)
        known = await self.store.named(made.name)
        return await self._judge(made, None if known is None else known.definition)

    async def _judge(
        self, definition: TriggerDefinition, was: TriggerDefinition | None
    ) -> TriggerDefinition:
        made = await self._checked(definition, was)
        is_polled = isinstance(made.kind, kinds.GithubKind) and made.is_enabled
        if is_polled and not self.has_gh():
            raise TriggerError(
                "GitHub triggers need the program gh, which is not installed; "
                "install it from https://cli.github.com and run `gh auth login`",
                field="type",
            )
        if isinstance(made.kind, kinds.AfterKind) and (source := made.kind.source_workflow_id):
            followed = await self.store.get(source)
            reason = f"source_workflow_id '{source[:100]}': there is no such workflow"
            if followed is not None:
                reason = (
                    f"'{followed.definition.name}' itself starts after the end of another run; "
                    "such chains are not allowed, as they could form a cycle"
                )
            if followed is None or isinstance(followed.definition.kind, kinds.AfterKind):
                raise TriggerError(reason, field="source_workflow_id")
        new = made.secrets - (was.secrets if was else frozenset())
        values = await self._read_all(new)
        for each in await self.store.webhooks() if new else ():
            other = each.definition
            is_own = was is not None and other.name == was.name
            if not is_own and values & await self._read_all(other.secrets):
                raise kinds.SharedSecretError(other.name)
        return made

    async def _checked(
        self, definition: TriggerDefinition, was: TriggerDefinition | None
    ) -> TriggerDefinition:
        """Return a definition, validated by the values of its secrets, which stay named."""
        kind, old = definition.kind, was.secrets if was else frozenset[str]()
        if not isinstance(kind, kinds.WebhookKind):
            return rules.checked(definition)
        texts = await self._kept(kind.secrets, old)
        values: dict[str, Any] = {}
        for name, text in texts.items():
            try:
                values[name] = await self._value(text)
            except UnaskedSecretError:
                values[name] = text
                if was is not None and isinstance(was.kind, kinds.WebhookKind):
                    values["scheme"] = kind.scheme or was.kind.scheme
            except SecretError as error:
                if text not in old:
                    raise TriggerError(str(error), field=name) from None
                values[name] = text
        made = rules.checked(replace(definition, kind=structs.replace(kind, **values)))
        return replace(made, kind=structs.replace(made.kind, **texts))

    async def agents(
        self, *, status: str | None = None, limit: int | None = None, offset: int | None = None
    ) -> views.TriggerAgentPage:
        size, busy = page_of(limit=limit, offset=offset), await self._busy()
        found = [agent_line(each, is_busy=each.name in busy) for each in await self.store.agents()]
        found = [each for each in found if status in {None, each.status}]
        items = found[size["offset"] :][: size["limit"]]
        return views.Page(items=tuple(items), total=len(found), **size)

    async def agent(self, word: str) -> views.TriggerAgent:
        card = await self.card(word)
        return agent_line(card, is_busy=card.name in await self._busy())

    async def card(self, word: str) -> AgentCard:
        card = await self.store.agent(word)
        if card is not None:
            return card
        hint = ""
        for name in self.others():
            if word in {name, agent_id(name)}:
                hint = f" in the ledger; {name} is defined in a file: `horae agent show {name}`"
        raise TriggerNotFoundError("agent", word[:100], hint)

    async def agent_named(self, data: Mapping[str, Any]) -> str:
        word = next((data[name] for name in AGENT_WORDS if data.get(name)), None)
        if not isinstance(word, str) or not word:
            raise TriggerError("missing field `agent_id`", field="agent")
        for name in self.others():
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

    def judged_card(self, data: Mapping[str, Any], *, file: str = "") -> AgentCard:
        config, now = rules.checked_agent(data), self.clock.now()
        is_enabled = rules.typed(data.get("enabled"), "enabled", default=True)
        return AgentCard(data["name"], config, is_enabled, now, now, file)

    async def create_agent(self, data: Mapping[str, Any]) -> views.TriggerAgent:
        return await self.put_agent(await self.with_kept_env(self.judged_card(data)))

    async def update_agent(self, word: str, data: Mapping[str, Any]) -> views.TriggerAgent:
        was = await self.card(word)
        given = {name: value for name, value in data.items() if value is not None}
        if isinstance(given.get("env"), dict):
            given["env"] = {  # a masked value that is sent back is kept
                name: was.env.get(name, value) if value == kinds.MASK else value
                for name, value in given["env"].items()
            }
        if given.get("name", was.name) != was.name:
            raise TriggerError("an agent cannot be renamed; create another one")
        said = {**was.config, "enabled": was.is_enabled, **given, "name": was.name}
        card = await self.with_kept_env(self.judged_card(said, file=was.file), was)
        if (card.config, card.is_enabled) == (was.config, was.is_enabled):
            return agent_line(was)
        return await self.put_agent(card, was)

    async def put_agent(self, card: AgentCard, was: AgentCard | None = None) -> views.TriggerAgent:
        card = card.with_env(await self._keep(card.env))
        if was is None:
            is_taken = card.name in self.others()
            if is_taken or not await self.store.edit_agent(card, "added", now=card.created_at):
                await self._drop(card.env.values())
                raise TriggerConflictError(f"an agent named '{card.name}' already exists")
        else:
            card = replace(card, created_at=was.created_at)
            await self.store.edit_agent(card, "changed", now=card.updated_at)
            await self._drop(was.env.values(), but=card.env.values())
        if was is None or card.is_enabled != was.is_enabled:
            is_started = was is None or card.is_enabled
            started, ended = LifecycleEvent.SESSION_START, LifecycleEvent.SESSION_END
            await self._announce(card, started if is_started else ended)
        if was is not None:
            await self._release(card.name)
        return agent_line(card, self._notes(card))

    async def delete_agent(self, word: str) -> views.TriggerAgent:
        card = await self.card(word)
        every = await self.store.of_agent(card.name)
        names = [each.definition.name for each in every]
        if starts := [name for name in names if name != message_name(card.name)]:
            more = f" and {len(starts) - 5} more" if len(starts) > 5 else ""
            used = f"agent '{card.name}' is used by {', '.join(starts[:5])}{more}"
            raise TriggerConflictError(f"{used}; delete these workflows first")
        for each in every:
            await self.store.remove(each.id, now=self.clock.now())
        await self.store.edit_agent(card, "removed", now=self.clock.now())
        await self._drop(card.env.values())
        return agent_line(card)

    async def clear_context(self, word: str) -> views.ClearedContext:
        card = await self.card(word)
        await self._announce(card, LifecycleEvent.CONTEXT_CLEAR)
        return views.ClearedContext(status="cleared", agent_id=card.id)

    async def send_message(self, word: str, content: object) -> views.SentMessage:
        card = await self.card(word)
        if not isinstance(content, str) or not content.strip():
            raise TriggerError("a message must be a non-empty string", field="content")
        name, kind = message_name(card.name), kinds.ManualKind()
        was = await self.store.named(name)
        if was is None:
            said = {"name": name, "agent": card.name, "trigger_config": kind.data()}
            await self.create({**said, "prompt_template": "{{body}}"})
        elif (was.definition.agent, was.definition.kind) != (card.name, kind):
            raise TriggerConflictError(f"workflow '{name}' is not a message workflow; rename it")
        sent = await self.trigger_now(name, {"title": "Message", "body": content})
        facts: dict[str, Any] = {**structs.asdict(sent), "status": "sent"}
        return views.SentMessage(**facts, dispatch_status=sent.status)

    async def usage(self, word: str) -> views.AgentUsage:
        card = await self.card(word)
        runs = [run async for run in self._runs_of(card.name)]
        outcomes = Counter(run.outcome or "running" for run in runs)
        return views.AgentUsage(
            agent_id=card.id,
            agent=card.name,
            current=_usage(sorted(runs, key=lambda run: run.number)[-1:]),
            cumulative=_usage(runs),
            outcomes=dict(sorted(outcomes.items())),
        )

    async def run_of(self, word: str, *, is_going: bool = False) -> int:
        card = await self.card(word)
        going = [run for filed, run in await self.ledger.open_runs() if card.name in filed.agents]
        if going:
            return going[-1].number
        if is_going:
            raise TriggerNotFoundError("active run of agent", card.name)
        last = max([run.number async for run in self._runs_of(card.name)], default=None)
        if last is None:
            raise TriggerNotFoundError("run of agent", card.name)
        return last

    async def _runs_of(self, agent: str) -> AsyncIterator[Run]:
        for trigger in await self.store.of_agent(agent):
            start = 0
            while True:
                found, total = await self.store.dispatches(trigger.id, limit=_BATCH, offset=start)
                for filed, _ in found:
                    for run in await self.ledger.runs_of(filed.number):
                        yield run
                start += len(found)
                if not found or start >= total:
                    break

    async def with_kept_env(self, card: AgentCard, was: AgentCard | None = None) -> AgentCard:
        """Return an agent whose unchanged variables keep their references."""
        old = {} if was is None else was.env
        return card.with_env(await self._kept(card.env, old.values()))

    def _notes(self, card: AgentCard) -> tuple[str, ...]:
        unused = [name for name in rules.UNUSED_AGENT_FIELDS if name in card.config]
        notes = (f"{', '.join(unused)}: stored, but not used by horae",) if unused else ()
        why = self.why_unready(card) if card.is_enabled else None
        return notes if why is None else (*notes, f"{why}; until then its runs are held")

    def why_unready(self, card: AgentCard, tools: ToolPolicy | None = None) -> Unready | None:
        return None if self.ready is None else self.ready.of_card(card, tools)

    async def why_agent(self, name: str, tools: ToolPolicy | None = None) -> Unready | None:
        return None if self.ready is None else await self.ready.of_agent(name, tools)

    async def _busy(self) -> dict[str, str]:
        runs = await self.ledger.open_runs()
        return {name: filed.title for filed, _ in runs for name in filed.agents}

    async def _obstacles(
        self, agent: str, tools: ToolPolicy | None = None
    ) -> tuple[Reason | None, Reason | None]:
        """Return why an agent cannot run at all, and what a stored one lacks for a tool policy."""
        card, why = await self.store.agent(agent), ""
        if agent not in self.others() and (card is None or not card.is_enabled):
            why = f"agent '{agent}' is disabled" if card else f"there is no agent called '{agent}'"
        lack = None if card is None else self.why_unready(card, tools)
        unavailable = Reason(ReasonCode.AGENT_UNAVAILABLE, why) if why else None
        return unavailable, None if lack is None else lack.why()

    async def trigger_now(
        self, word: str, data: object = None, *, key: str | None = None, note: str = ""
    ) -> views.Dispatch:
        """Run a workflow now; a known *key* returns its dispatch."""
        trigger = await self.find(word)
        task, title = rules.checked_task(data), trigger.definition.name
        if not trigger.definition.is_enabled:
            enable = f"enable it with `horae trigger enable {title}`"
            raise TriggerError(f"'{title}' is not enabled; {enable}")
        if key is not None and not (0 < len(key) <= 200 and key.isprintable()):
            raise TriggerError("an Idempotency-Key must have 1 to 200 printable characters")
        if isinstance(trigger.definition.kind, kinds.ManualKind) and key is None:
            found, _ = await self.store.dispatches(trigger.id, limit=1, offset=0)
            if found and found[0][0].status in OPEN:
                hint = f"(receipt {found[0][0].number}); see `horae why {title}`"
                raise TriggerConflictError(f"the last run of '{title}' has not ended {hint}")
        agent = trigger.definition.agent
        if (why := (await self._obstacles(agent))[0]) is not None:
            raise AgentUnavailableError(agent, why)
        name = f"manual:{self.ids()}" if key is None else f"idem:{key}"
        reason = Reason(ReasonCode.REQUESTED, by_words("requested", note))
        return await self._dispatch(trigger, await self._file_dispatch(trigger, name, task, reason))

    async def again(self, filed: Filed, note: str) -> Filed | None:
        text = await self.ledger.text(filed.digest) if filed.source == NAME else None
        known = await self.ledger.entry(filed.entry)
        if text is None or known is None:
            return None
        order = read_order(text)
        said: dict[str, object] = {name: order.values.get(name, "") for name in ("title", "body")}
        word = known.mark.address.removeprefix(f"{NAME}:")
        made = await self.trigger_now(word, {**said, "metadata": dict(order.metadata)}, note=note)
        return await self.ledger.receipt(made.receipt)

    async def deliver(
        self, word: str, body: bytes, headers: Iterable[tuple[str, str]]
    ) -> int | None:
        """Return the receipt of a message to a webhook; None: other events are configured.

        A sender without a signature learns nothing, not even which webhooks exist.
        """
        if len(body) > LARGEST_DELIVERY:
            raise TriggerError(f"a message can have at most {LARGEST_DELIVERY:,} bytes")
        given = [(name.lower(), value) for name, value in headers]
        now = self.clock.now()
        trigger = await self.store.get(word) or await self.store.named(word)
        kind = None if trigger is None else trigger.definition.kind
        config: dict[str, str] = {}
        if trigger is not None and isinstance(kind, kinds.WebhookKind):
            config = await self._with_values(trigger.definition.name, kind)
        check = verify(config, given, body, now=now)
        if trigger is None or not isinstance(kind, kinds.WebhookKind) or not check.key:
            self._log_refusal(word, check.refusal, now)
            raise UnsignedError
        if not trigger.definition.is_enabled:
            raise TriggerError(f"'{trigger.definition.name}' is not enabled")
        event, delivery = "", check.key.removeprefix("webhook:")
        if config["scheme"] == Scheme.GITHUB:
            said = {name: value[:200] for name, value in given}
            event, delivery = (said.get(f"x-github-{name}", "") for name in ("event", "delivery"))
        message = kinds.read_delivery(body, event=event, delivery=delivery, now=now)
        if not kind.wants(message):
            return None
        reason = Reason(ReasonCode.MESSAGE, "message received")
        return (await self._file_dispatch(trigger, check.key, message.task, reason)).number

    async def polled(self, trigger: Trigger, text: str) -> None:
        for number, task in kinds.read_polled(text):
            reason = Reason(ReasonCode.GITHUB, f"GitHub lists #{number}")
            with suppress(TriggerConflictError):  # it is paused
                await self._file_dispatch(trigger, number, task, reason)

    async def follow(self, receipt: Filed) -> None:
        """Start the workflows that follow another one; it may be repeated."""
        if receipt.receipt.key.startswith("after:"):  # so that there are no cycles
            return
        waiting = await self.store.of_kind("dispatch_result")
        listed = await self.ledger.entry(receipt.entry) if waiting else None
        if listed is None:
            return
        ended = listed.mark.address.removeprefix("trigger:")
        status = rules.dispatch_status(receipt.status)
        facts = {
            "source_workflow_id": ended,
            "dispatch_id": dispatch_id(ended, receipt.receipt.key),
            "status": status.value,
            "timestamp": key_time(receipt.ended_at or receipt.decided_at),
        }
        task = TriggerTask(f"Dispatch completed: {facts['dispatch_id']} ({status})", metadata=facts)
        reason = Reason(ReasonCode.AFTER_ENTRY, f"after {listed.mark.title} ({status})")
        for trigger in waiting:
            kind = trigger.definition.kind
            is_asked = isinstance(kind, kinds.AfterKind) and kind.follows(ended, status)
            if is_asked and trigger.id != ended:
                with suppress(TriggerConflictError):  # it is paused
                    await self._file_dispatch(trigger, f"after:{receipt.number}", task, reason)

    async def _announce(self, card: AgentCard, event: LifecycleEvent) -> None:
        at = key_time(self.clock.now())
        facts = {"event_type": event.value, "agent_id": card.id, "timestamp": at}
        task = TriggerTask(f"Agent lifecycle: {event}", metadata=facts)
        reason = Reason(ReasonCode.AGENT_EVENT, f"agent '{card.name}': {event}")
        for trigger in await self.store.of_kind("agent_lifecycle"):
            definition = trigger.definition
            if (definition.agent, definition.kind) == (card.name, kinds.LifecycleKind(event)):
                with suppress(TriggerConflictError):  # it is paused
                    await self._file_dispatch(
                        trigger, f"event:{event}:{card.id}:{at}", task, reason
                    )

    async def _file_dispatch(
        self, trigger: Trigger, key: str, task: TriggerTask, reason: Reason
    ) -> Filed:
        """File a dispatch, held if it must not start yet; a known key returns its dispatch."""
        now, agent = self.clock.now(), trigger.definition.agent
        order = rules.order_of(trigger, task)
        unavailable, lack = await self._obstacles(agent, order.enforced)
        held = unavailable or lack
        if not held and order.needs_approval:
            order, held = _approval_request(order, now)
        status = Status.HELD if held else Status.WAITING
        receipt = Receipt(key, status, held or reason, now, now)
        asked = await self.store.file(trigger, receipt, text=order.text(), now=now)
        if asked is None:
            name = trigger.definition.name
            raise TriggerConflictError(f"'{name}' is paused; resume it with `horae resume {name}`")
        filed, is_new = asked
        if is_new:
            self.poke()
        return filed

    async def note(self, kind: str, trigger: Trigger, facts: Mapping[str, object]) -> None:
        known, now = await self.store.entry(trigger.id), self.clock.now()
        entry = None if known is None else known.number
        await self.ledger.note(kind, now=now, term=self.term, entry=entry, facts=facts)

    async def _dispatch(
        self, trigger: Trigger, filed: Filed, started_at: datetime | None = None
    ) -> views.Dispatch:
        receipt, order = filed.receipt, await self._order(filed, {})
        return views.Dispatch(
            id=dispatch_id(trigger.id, receipt.key),
            workflow_id=trigger.id,
            workflow=trigger.definition.name,
            source_id=receipt.key,
            agent_id=agent_id(filed.agents[0] if filed.agents else trigger.definition.agent),
            prompt_sent=order.prompt(key=receipt.key, planned_at=receipt.planned_at),
            status=rules.dispatch_status(filed.status),
            dispatched_at=key_time(started_at or filed.decided_at),
            completed_at=None if filed.ended_at is None else key_time(filed.ended_at),
            reason=str(receipt.reason),
            reason_code=receipt.reason.code or None,
            receipt=filed.number,
            planned_at=key_time(receipt.planned_at),
            count=receipt.count,
            actor=filed.actor,
            approved_by=order.approval.get("by"),
        )

    async def approvals(self) -> list[views.Approval]:
        return [_approval(filed, order) for filed, order in await self._held(is_asked=True)]

    async def approve(self, number: int) -> views.Approval:
        return await self._decide(number, "approved")

    async def deny(self, number: int, *, reason: str = "") -> views.Approval:
        return await self._decide(number, "denied", by_words("rejected", reason))

    async def _decide(self, number: int, decision: str, denial: str = "") -> views.Approval:
        """Approve or deny a receipt; only a user can, as an agent could approve its own run."""
        actor, now = current_actor(), self.clock.now()
        if actor.startswith("agent:"):
            raise ApproverError(actor)
        filed = await self.ledger.receipt(number)
        if filed is None or filed.source != NAME:
            raise TriggerNotFoundError("approval", number)
        order = await self._order(filed, {})
        if filed.status is not Status.HELD or not order.is_asked:
            reason = f"receipt {number} is {filed.status}, not waiting for approval"
            raise TriggerConflictError(reason)
        if denial:
            said = Reason(ReasonCode.REJECTED, denial)
            is_done = await self.store.skip(number, reason=said, now=now)
        else:
            said = Reason(ReasonCode.APPROVED, by_words("approved"))
            is_done = await self._carry(filed, order.approved(by=actor, at=now), said)
        if not is_done:
            raise TriggerConflictError(f"receipt {number} is no longer waiting for approval")
        self.poke()
        return _approval(filed, order, decision)

    async def admit(self, receipts: Sequence[Filed]) -> list[Filed]:
        """Return the receipts that may start; others are held, or skipped if they are ticks."""
        ours = [each for each in receipts if each.source == NAME]
        if not ours:
            return list(receipts)
        busy, now = await self._busy(), self.clock.now()
        orders: dict[str, PromptOrder] = {}
        # By policy: why an agent cannot run, and what it lacks.
        known: dict[tuple[str, ToolPolicy | None], tuple[Reason | None, Reason | None]] = {}

        async def may_start(filed: Filed) -> bool:
            [agent] = filed.agents or ("",)
            order = await self._order(filed, orders)
            about = agent, order.enforced
            if about not in known:
                known[about] = await self._obstacles(*about)
            why, lack = known[about]
            is_tick = filed.receipt.key.startswith("cron:")
            gives_way = is_tick and filed.policy.overlap is Overlap.SKIP
            if not why and gives_way and agent in busy:
                words = f"agent '{agent}' is busy with {busy[agent]}"
                why = Reason(ReasonCode.AGENT_BUSY, words)
            # No event tells when an agent is complete, so it is checked again.
            if why and gives_way:
                await self.store.skip(filed.number, reason=why, now=now)
            elif reason := why or lack:
                await self.ledger.hold(filed.number, reason=reason, now=now, term=self.term)
            elif not order.needs_approval or filed.attempts:
                return True
            else:
                await self._carry(filed, *_approval_request(order, now), Status.HELD)
            return False

        # Concurrently, so that they share a commit.
        may = await asyncio.gather(*map(may_start, ours))
        kept_back = {each.number for each, starts in zip(ours, may, strict=True) if not starts}
        return [each for each in receipts if each.number not in kept_back]

    async def lapse(self) -> datetime | None:
        """Skip receipts whose approval expired; return when the next one expires."""
        now, coming = self.clock.now(), []
        words = f"not approved within {APPROVAL.total_seconds():.0f} s"
        expired = Reason(ReasonCode.APPROVAL_EXPIRED, words)
        for filed, order in await self._held(is_asked=True):
            if order.asked_until > now:
                coming.append(order.asked_until)
            else:
                await self.store.skip(filed.number, reason=expired, now=now)
        return min(coming, default=None)

    async def _carry(
        self, filed: Filed, order: PromptOrder, reason: Reason, status: Status = Status.WAITING
    ) -> bool:
        now = self.clock.now()
        return await self.store.carry(filed.number, order.text(), status, reason, now=now)

    async def _order(self, filed: Filed, known: dict[str, PromptOrder]) -> PromptOrder:
        if filed.digest not in known:
            known[filed.digest] = read_order(await self.ledger.text(filed.digest) or "")
        return known[filed.digest]

    async def _held(self, *, is_asked: bool | None = None) -> list[tuple[Filed, PromptOrder]]:
        found, known = await receipts_of(self.ledger, (Status.HELD,)), dict[str, PromptOrder]()
        ours = [each for each in reversed(found) if each.source == NAME]
        orders = [(each, await self._order(each, known)) for each in ours]
        return [each for each in orders if is_asked in {None, each[1].is_asked}]

    async def _refit(self, trigger: Trigger) -> None:
        entry, definition = await self.store.entry(trigger.id), trigger.definition
        words = "the tool policy of the trigger has changed"
        for filed, order in await self._held():
            fit = replace(order, tools=definition.tools)
            is_own = entry is not None and filed.entry == entry.number
            if not is_own or fit == order or filed.receipt.reason.code not in HELD_BACK:
                continue
            if await self.why_agent(definition.agent, fit.enforced) is None:
                await self._carry(filed, fit, Reason(ReasonCode.POLICY_CHANGED, words))

    async def _release(self, agent: str) -> None:
        if (await self._obstacles(agent))[0]:
            return
        reason = Reason(ReasonCode.AGENT_AVAILABLE, f"agent '{agent}' is available now")
        now = self.clock.now()
        for filed, order in await self._held(is_asked=False):
            if agent in filed.agents and not (await self._obstacles(agent, order.enforced))[1]:
                await self.ledger.release(filed.number, reason=reason, now=now, term=self.term)
        self.poke()

    async def read_webhooks(self) -> None:
        for each in await self.store.webhooks():
            await self._read_all(each.definition.secrets)

    async def given_secrets(self) -> list[str]:
        found = [
            f"webhook {each.definition.name}"
            for each in await self.store.webhooks()
            if not all(is_reference(text) or is_kept(text) for text in each.definition.secrets)
        ]
        found += [
            f"agent {card.name}"
            for card in await self.store.agents()
            if any(looks_secret(*each) for each in card.env.items())
        ]
        fix = "use ${NAME} instead, and configure its source in [secrets] of horae.toml"
        return [f"{each}: its secret is stored in the ledger; {fix}" for each in found]

    async def _with_values(self, name: str, kind: kinds.WebhookKind) -> dict[str, str]:
        config = {}
        for field, text in kind.secrets.items():
            try:
                config[field] = await self._value(text)
            except SecretError as error:
                self._log_refusal(name, str(error), self.clock.now())
        return {"scheme": str(kind.scheme), **config} if config else {}

    def _log_refusal(self, word: str, reason: str, now: datetime) -> None:
        """Log why a message was rejected, at most once a minute, as anyone can send one."""
        if self.logged_at is None or now - self.logged_at >= QUIET:
            self.logged_at = now
            log.warning("webhook %r: message rejected: %s", word[:100], reason)

    async def _value(self, text: str) -> str:
        return text if self.secrets is None else await self.secrets.filled(text)

    async def _read(self, text: str) -> str:
        try:
            return await self._value(text)
        except SecretError:  # reported where the secret is needed
            return text

    async def _read_all(self, texts: Iterable[str]) -> set[str]:
        return {await self._read(text) for text in texts}

    async def _kept(self, texts: Mapping[str, str], was: Iterable[str]) -> dict[str, str]:
        """Return texts in which a stored value is its reference."""
        known = {await self._read(text): text for text in was if is_kept(text)}
        # A request cannot name a stored file, other than one that was there.
        if any(is_kept(text) and text not in known.values() for text in texts.values()):
            raise TriggerError("the name of a secret cannot contain a slash; write ${NAME}")
        # A text such as https://${TOKEN}@host is stored as written and compared as expanded.
        return {
            name: known.get(text if is_reference(text) else await self._read(text), text)
            for name, text in texts.items()
        }

    async def _keep(self, texts: Mapping[str, str], *, prefix: str = "") -> dict[str, str]:
        if self.secrets is None:
            return dict(texts)
        return {
            name: text
            if is_reference(text) or is_kept(text)
            else await self.secrets.keep(prefix or name, text)
            for name, text in texts.items()
        }

    async def _drop(self, texts: Iterable[str], *, but: Iterable[str] = ()) -> None:
        if self.secrets is not None:
            await self.secrets.forget(set(texts) - set(but))


def page_of(limit: int | None = None, offset: int | None = None) -> dict[str, int]:
    """Return the size and the start of a page: at most 200 items, 50 by default.

    >>> page_of(0, 7), page_of(500, -1)
    ({'limit': 1, 'offset': 7}, {'limit': 200, 'offset': 0})
    """
    size = PAGE if limit is None else min(max(limit, 1), LARGEST_PAGE)
    return {"limit": size, "offset": min(max(offset or 0, 0), 2**62)}


def trigger_line(trigger: Trigger, notes: tuple[str, ...] | Maybe = UNSET) -> views.TriggerLine:
    definition = trigger.definition
    options = definition.options
    policy = {each.name: options[each.option] for each in PROPERTIES if each.option in options}
    return views.TriggerLine(
        id=trigger.id,
        name=definition.name,
        agent_id=agent_id(definition.agent),
        agent=definition.agent,
        trigger_config=definition.kind.shown(),
        prompt_template=definition.template,
        poll_interval_secs=definition.poll_interval,
        enabled=definition.is_enabled,
        tool_policy=definition.tools.data(),
        created_at=key_time(trigger.created_at),
        updated_at=key_time(trigger.updated_at),
        file=definition.file or None,
        notes=notes,
        **policy,
    )


def agent_line(
    card: AgentCard, notes: tuple[str, ...] | Maybe = UNSET, *, is_busy: bool = False
) -> views.TriggerAgent:
    config = dict(card.config)
    config["env"] = {name: kinds.shown(text) for name, text in config.get("env", {}).items()}
    config.setdefault("tool_policy", {"mode": "allow_all"})
    return views.TriggerAgent(
        id=card.id,
        name=card.name,
        status="running" if card.is_enabled else "stopped",
        activity="busy" if is_busy else "idle",
        config=config,
        session_id=None,
        backend_type=None,
        created_at=key_time(card.created_at),
        updated_at=key_time(card.updated_at),
        file=card.file or None,
        notes=notes,
    )


def _approval(filed: Filed, order: PromptOrder, status: str = "pending") -> views.Approval:
    receipt = filed.receipt
    return views.Approval(
        receipt=filed.number,
        workflow=filed.title,
        agent=filed.agents[0] if filed.agents else "",
        source_id=receipt.key,
        prompt=order.prompt(key=receipt.key, planned_at=receipt.planned_at),
        status=status,
        created_at=key_time(order.asked_until - APPROVAL),
        expires_at=key_time(order.asked_until),
    )


def _usage(runs: Sequence[Run]) -> views.Usage:
    def total(name: str) -> float:
        values: list[Any] = [run.facts.get(name) for run in runs]
        return sum((each for each in values if type(each) in {int, float}), 0.0)

    ended = [run.ended_at - run.started_at for run in runs if run.ended_at is not None]
    return views.Usage(
        runs=len(runs),
        turns=int(total("steps")),
        input_tokens=int(total("tokens_in")),
        output_tokens=int(total("tokens_out")),
        total_cost_usd=round(total("cost"), 6),
        duration_secs=round(sum((each.total_seconds() for each in ended), 0.0), 3),
    )


def _approval_request(order: PromptOrder, now: datetime) -> tuple[PromptOrder, Reason]:
    order = order.asked(until=now + APPROVAL)
    words = f"waiting for approval until {key_time(order.asked_until)}"
    return order, Reason(ReasonCode.APPROVAL_REQUIRED, words)


def message_name(agent: str) -> str:
    return f"message-{agent if len(agent) <= _LONGEST_NAME else agent_id(agent)}"
