"""What is asked of a trigger: by somebody, by a message, by GitHub, by the end of another."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from horae.engine.launch import HELD_BACK
from horae.engine.triggers.base import Base
from horae.engine.triggers.doorman import APPROVAL, waits
from horae.engine.triggers.errors import (
    AgentUnavailableError,
    TriggerConflictError,
    UnsignedError,
)
from horae.engine.triggers.store import Dispatched, dispatch_id
from horae.rules.entry import key_time
from horae.rules.misfire import Receipt, Status
from horae.rules.receipt import OPEN
from horae.rules.trigger import (
    Kind,
    Task,
    TriggerError,
    checked_task,
    is_signed,
    is_wanted,
    order_of,
    read_delivery,
    read_polled,
    view,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from horae.engine.ports import Filed
    from horae.engine.triggers.store import AgentCard
    from horae.rules.trigger import LifecycleEvent, Trigger

LARGEST_DELIVERY: Final = 1 << 20  # bytes of a message
FRESH: Final = timedelta(minutes=5)  # how old the stamp of a message may be


class Asking(Base):
    """Takes what is asked of a trigger, and files it under a key that says who asked."""

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

    async def _ask(
        self, trigger: Trigger, key: str, task: Task, *, reason: str
    ) -> tuple[Filed, bool] | None:
        """File a request; one that must not start yet is held from the beginning.

        None means that the workflow rests: nothing is asked of it meanwhile.
        """
        now = self._clock.now()
        order = order_of(trigger, task)
        agent = trigger.definition.agent
        receipt = Receipt(key, Status.WAITING, reason, now, now)
        why_not = await self._why_not(agent)
        if not why_not and (lack := await self._lack(agent, order.enforced)):
            why_not = f"{HELD_BACK}{lack}"
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
        if found and found[0].filed.status in OPEN:
            name = trigger.definition.name
            raise TriggerConflictError(f"workflow '{name}' has a dispatch that is not over")

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


def _is_fresh(stamp: str, now: datetime) -> bool:
    """Tell whether a message was signed just now."""
    if not (stamp.isascii() and stamp.isdecimal() and len(stamp) <= 11):
        return False
    return abs(now - datetime.fromtimestamp(int(stamp), UTC)) <= FRESH
