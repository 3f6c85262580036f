"""What is asked of a trigger: by somebody, by a message, by GitHub, by the end of another."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from horae.core.actor import by_words
from horae.core.decide import Receipt, Status
from horae.core.entry import key_time
from horae.core.ports import SecretError
from horae.core.prompt import AgentUnavailableError
from horae.core.reason import Reason, ReasonCode
from horae.core.receipt import OPEN
from horae.core.secret import is_kept, is_reference, looks_secret
from horae.sources.triggers.approvals import APPROVAL, waits
from horae.sources.triggers.base import Base
from horae.sources.triggers.errors import (
    TriggerConflictError,
    TriggerNotFoundError,
    UnsignedError,
)
from horae.sources.triggers.ports import Dispatched, dispatch_id
from horae.sources.triggers.rules import (
    Kind,
    Task,
    TriggerError,
    checked_task,
    is_wanted,
    order_of,
    read_delivery,
    read_polled,
    secrets_of,
    view,
)
from horae.sources.triggers.webhook import SECRETS, Scheme, verify

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from horae.core.ports import Filed
    from horae.sources.triggers.ports import AgentCard
    from horae.sources.triggers.rules import LifecycleEvent, Trigger

log = logging.getLogger(__name__)

LARGEST_DELIVERY: Final = 1 << 20  # bytes of a message
QUIET: Final = timedelta(minutes=1)  # between two lines about messages that were refused


class Asking(Base):
    """Takes what is asked of a trigger, and files it under a key that says who asked."""

    _logged_at: datetime | None = None

    async def trigger_now(
        self, word: str, data: object = None, *, key: str | None = None
    ) -> dict[str, Any]:
        """Ask a workflow to run now; the same *key* gives the same dispatch back."""
        trigger = await self.found(word)
        task = checked_task(data)
        if not trigger.definition.is_enabled:
            raise TriggerError(f"Workflow {trigger.id} is not enabled")
        if key is not None and not (0 < len(key) <= 200 and key.isprintable()):
            raise TriggerError("an Idempotency-Key must have 1 to 200 printable characters")
        name = f"manual:{self._ids()}" if key is None else f"idem:{key}"
        if trigger.definition.kind is Kind.MANUAL and key is None:
            await self._refuse_open(trigger)
        agent = trigger.definition.agent
        why_not = await self._why_not(agent)
        if why_not:
            raise AgentUnavailableError(agent, why_not)
        reason = Reason(ReasonCode.REQUESTED, by_words("requested"))
        return await self._asked(trigger, name, task, reason=reason)

    async def deliver(
        self, word: str, body: bytes, headers: Iterable[tuple[str, str]]
    ) -> int | None:
        """Take a message for a webhook and return its receipt; None: it listens to other events.

        Who sends the same again gets the same receipt. Who cannot sign learns nothing, not even
        which webhooks there are.
        """
        if len(body) > LARGEST_DELIVERY:
            raise TriggerError(f"a message can have at most {LARGEST_DELIVERY:,} bytes")
        given = [(name.lower(), value) for name, value in headers]
        trigger, now = await self._webhook(word), self._clock.now()
        config = {} if trigger is None else await self._with_values(trigger)
        verdict = verify(config, given, body, now=now)
        if trigger is None or not verdict.key:
            self._log_refusal(word, verdict.refusal, now)
            raise UnsignedError
        if not trigger.definition.is_enabled:
            raise TriggerError(f"Workflow {trigger.id} is not enabled")
        event, delivery = "", verdict.key.removeprefix("webhook:")
        if config["scheme"] == Scheme.GITHUB:
            said = {name: value[:200] for name, value in given}
            event, delivery = (said.get(f"x-github-{name}", "") for name in ("event", "delivery"))
        message = read_delivery(body, event=event, delivery=delivery, now=now)
        if not is_wanted(config, message):
            return None
        reason = Reason(ReasonCode.MESSAGE, "message received")
        filed = await self._filed(trigger, verdict.key, message.task, reason=reason)
        return filed.number

    async def _with_values(self, trigger: Trigger) -> dict[str, Any]:
        """Return a webhook with the values of its secrets; if none can be read it is not there."""
        config = dict(trigger.definition.config)
        texts = {name: config.pop(name) for name in SECRETS if name in config}
        for name, text in texts.items():
            try:
                config[name] = await self._value(text)
            except SecretError as error:
                self._log_refusal(trigger.definition.name, str(error), self._clock.now())
        return config if any(name in config for name in SECRETS) else {}

    async def read_webhooks(self) -> None:
        """Read the secrets of all webhooks, so that one that cannot be read is known."""
        for each in await self._store.webhooks():
            await self._values(secrets_of(each.definition.config))

    async def given_secrets(self) -> list[str]:
        """Return what to do about secrets that a shared ledger holds, as was done once."""
        hooks = {
            f"webhook {each.definition.name}": secrets_of(each.definition.config)
            for each in await self._store.webhooks()
        }
        found = [whose for whose, texts in hooks.items() if not all(map(_is_named, texts))]
        found += [
            f"agent {card.name}"
            for card in await self._store.agents()
            if any(looks_secret(*each) for each in card.config.get("env", {}).items())
        ]
        fix = "use ${NAME} instead, and configure its source in [secrets] of horae.toml"
        return [f"{each}: its secret is stored in the ledger; {fix}" for each in found]

    def _log_refusal(self, word: str, reason: str, now: datetime) -> None:
        """Log why a message was refused, at most once a minute: anybody can send one."""
        if self._logged_at is None or now - self._logged_at >= QUIET:
            self._logged_at = now
            log.warning("webhook %r: message rejected: %s", word[:100], reason)

    async def _webhook(self, word: str) -> Trigger | None:
        """Return the webhook that an id or a name means, if there is one."""
        try:
            trigger = await self.found(word)
        except TriggerNotFoundError:
            return None
        return trigger if trigger.definition.kind is Kind.WEBHOOK else None

    async def polled(self, trigger: Trigger, text: str) -> int:
        """File what `gh` lists and was not there before; return how much that was."""
        new = 0
        for number, task in read_polled(text):
            reason = Reason(ReasonCode.GITHUB, f"GitHub lists #{number}")
            asked = await self._ask(trigger, number, task, reason=reason)
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
                words = f"after {listed.mark.title} ({status})"
                reason = Reason(ReasonCode.AFTER_ENTRY, words)
                await self._ask(trigger, f"after:{receipt.number}", task, reason=reason)

    async def _ask(
        self, trigger: Trigger, key: str, task: Task, *, reason: Reason
    ) -> tuple[Filed, bool] | None:
        """File a request; one that must not start yet is held from the beginning.

        None means that the workflow rests: nothing is asked of it meanwhile.
        """
        now = self._clock.now()
        order = order_of(trigger, task)
        agent = trigger.definition.agent
        receipt = Receipt(key, Status.WAITING, reason, now, now)
        why_not = await self._why_not(agent)
        why_not = why_not or await self._lack(agent, order.enforced)
        if not why_not and order.needs_approval:
            order = order.asked(until=now + APPROVAL)
            why_not = waits(order)
        if why_not:
            receipt = replace(receipt, status=Status.HELD, reason=why_not)
        asked = await self._store.file(trigger, receipt, text=order.text(), now=now)
        if asked is not None and asked[1]:
            self._poke()
        return asked

    async def _asked(
        self, trigger: Trigger, key: str, task: Task, *, reason: Reason
    ) -> dict[str, Any]:
        """Return the dispatch of a request that has to be taken."""
        filed = await self._filed(trigger, key, task, reason=reason)
        return await self._dispatch(trigger, Dispatched(filed))

    async def _filed(self, trigger: Trigger, key: str, task: Task, *, reason: Reason) -> Filed:
        """Return the receipt of a request that has to be taken."""
        asked = await self._ask(trigger, key, task, reason=reason)
        if asked is None:
            name = trigger.definition.name
            raise TriggerConflictError(f"workflow '{name}' is paused; resume it with horae resume")
        return asked[0]

    async def _refuse_open(self, trigger: Trigger) -> None:
        """Raise an error if a dispatch of a workflow is not over yet."""
        found, _ = await self._store.dispatches(trigger.id, limit=1, offset=0)
        if found and found[0].filed.status in OPEN:
            name = trigger.definition.name
            raise TriggerConflictError(f"workflow '{name}' has an unfinished dispatch")

    async def _tell_agent(self, card: AgentCard, event: LifecycleEvent) -> None:
        """Ask the workflows that wait for what happens to an agent."""
        at = key_time(self._clock.now())
        facts = {"event_type": event.value, "agent_id": card.id, "timestamp": at}
        for trigger in await self._store.of_kind(Kind.AGENT_LIFECYCLE):
            definition = trigger.definition
            if definition.agent == card.name and definition.config["event"] == event:
                task = Task(f"Agent lifecycle: {event}", metadata=facts)
                key = f"event:{event}:{card.id}:{at}"
                reason = Reason(ReasonCode.AGENT_EVENT, f"agent '{card.name}': {event}")
                await self._ask(trigger, key, task, reason=reason)


def _is_named(text: str) -> bool:
    """Tell whether a text is what stands for a secret, and not the secret itself."""
    return is_reference(text) or is_kept(text)
