"""What may start: agents that can take nothing, and approvals that somebody has to give."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from horae.core.actor import by_words, current_actor
from horae.core.decide import Status
from horae.core.entry import key_time
from horae.core.policy import Overlap
from horae.core.prompt import read_order
from horae.core.reason import HELD_BACK, Reason, ReasonCode
from horae.sources.triggers.base import Base
from horae.sources.triggers.errors import ApproverError, TriggerConflictError, TriggerNotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from horae.core.ports import Filed
    from horae.core.prompt import PromptOrder
    from horae.core.tool_policy import ToolPolicy
    from horae.sources.triggers.rules import Trigger

SOURCE: Final = "trigger"
APPROVAL: Final = timedelta(seconds=300)  # how long a person may take to approve
_BATCH: Final = 200


@dataclass(slots=True)
class _Look:
    """What is known while some receipts are looked at together."""

    busy: Mapping[str, str]  # the agents that run now, and what they do
    now: datetime
    # Why an agent takes nothing, and what it lacks, under a policy.
    agents: dict[tuple[str, ToolPolicy | None], tuple[Reason | None, Reason | None]] = field(
        default_factory=dict
    )
    orders: dict[str, PromptOrder] = field(default_factory=dict)  # by digest


class Doorman(Base):
    """Lets receipts of triggers go to the gate, or puts them elsewhere with the reason."""

    async def approvals(self) -> list[dict[str, Any]]:
        """Return what waits for somebody's approval, the first asked for first."""
        return [_approval(filed, order) for filed, order in await self._awaiting()]

    async def approve(self, number: int) -> dict[str, Any]:
        """Let a receipt start that waits for an approval."""
        actor = _approver()
        filed, order = await self._one_awaiting(number)
        now, reason = self._clock.now(), Reason(ReasonCode.APPROVED, by_words("approved"))
        text = order.approved(by=actor, at=now).text()
        if not await self._store.carry(number, text, status=Status.WAITING, reason=reason, now=now):
            raise TriggerConflictError(f"receipt {number} is no longer waiting for approval")
        self._poke()
        return {**_approval(filed, order), "status": "approved"}

    async def deny(self, number: int, *, reason: str = "") -> dict[str, Any]:
        """Let a receipt never start that waits for an approval."""
        _approver()
        filed, order = await self._one_awaiting(number)
        said = Reason(ReasonCode.REJECTED, by_words("rejected", reason))
        if not await self._store.skip(number, reason=said, now=self._clock.now()):
            raise TriggerConflictError(f"receipt {number} is no longer waiting for approval")
        self._poke()
        return {**_approval(filed, order), "status": "denied"}

    async def admit(self, receipts: Sequence[Filed]) -> list[Filed]:
        """Return which of some waiting receipts may go to the gate; the others stand elsewhere.

        One that needs an approval is held. A cron tick whose agent cannot take it is skipped,
        anything else is held until it can. To be asked twice changes nothing.
        """
        if not any(each.source == SOURCE for each in receipts):
            return list(receipts)
        look = _Look(await self._busy(), self._clock.now())
        ours = [each for each in receipts if each.source == SOURCE]
        # At once, so that what is put elsewhere shares a commit.
        may = await asyncio.gather(*(self._may_start(each, look) for each in ours))
        kept_back = {each.number for each, starts in zip(ours, may, strict=True) if not starts}
        return [each for each in receipts if each.number not in kept_back]

    async def lapse(self) -> datetime | None:
        """Deny what nobody approved in time; return when the next one comes to that, if any."""
        now, coming = self._clock.now(), []
        for filed, order in await self._awaiting():
            if order.asked_until > now:
                coming.append(order.asked_until)
                continue
            length = int(APPROVAL.total_seconds())
            reason = Reason(ReasonCode.APPROVAL_EXPIRED, f"not approved within {length} s")
            await self._store.skip(filed.number, reason=reason, now=now)
        return min(coming, default=None)

    async def _may_start(self, filed: Filed, look: _Look) -> bool:
        """Tell whether a receipt may go to the gate, and put it elsewhere if not."""
        [agent] = filed.agents or ("",)
        tools = (await self._order(filed, look.orders)).enforced
        if (agent, tools) not in look.agents:
            about = (await self._why_not(agent), await self._lack(agent, tools))
            look.agents[agent, tools] = about
        why_not, lack = look.agents[agent, tools]
        is_tick = filed.receipt.key.startswith("cron:")
        gives_way = is_tick and filed.policy.overlap is Overlap.SKIP
        if not why_not and gives_way and agent in look.busy:
            words = f"agent '{agent}' is busy with {look.busy[agent]}"
            why_not = Reason(ReasonCode.AGENT_BUSY, words)
        if why_not and gives_way:
            await self._store.skip(filed.number, reason=why_not, now=look.now)
            return False
        # What an agent lacks may come without a word, so it is asked for again.
        reason = why_not or lack
        if reason:
            await self._ledger.hold(filed.number, reason=reason, now=look.now, term=self._term)
            return False
        return not await self._asks_first(filed, look)

    async def _asks_first(self, filed: Filed, look: _Look) -> bool:
        """Tell whether somebody must approve a receipt first, and ask for that."""
        order = await self._order(filed, look.orders)
        if not order.needs_approval or filed.attempts:
            return False
        asked = order.asked(until=look.now + APPROVAL)
        await self._store.carry(
            filed.number, asked.text(), status=Status.HELD, reason=waits(asked), now=look.now
        )
        return True

    async def _order(self, filed: Filed, known: dict[str, PromptOrder]) -> PromptOrder:
        """Return the order that a receipt carries; *known* are those already read, by digest."""
        if filed.digest not in known:
            known[filed.digest] = read_order(await self._ledger.text(filed.digest) or "")
        return known[filed.digest]

    async def _awaiting(self) -> list[tuple[Filed, PromptOrder]]:
        """Return the held receipts that wait for an approval, the first asked for first."""
        known: dict[str, PromptOrder] = {}
        found = [(each, await self._order(each, known)) for each in await self._held()]
        return [(filed, order) for filed, order in found if order.is_asked]

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

    async def _one_awaiting(self, number: int) -> tuple[Filed, PromptOrder]:
        """Return the receipt of a number that waits for an approval, and its order."""
        filed = await self._ledger.receipt(number)
        if filed is None or filed.source != SOURCE:
            raise TriggerNotFoundError("approval", str(number))
        order = await self._order(filed, {})
        if filed.status is not Status.HELD or not order.is_asked:
            raise TriggerConflictError(
                f"receipt {number} is {filed.status}, not waiting for approval"
            )
        return filed, order

    async def _refit(self, trigger: Trigger) -> None:
        """Let what was held for a tool policy start under the one that its workflow has now."""
        entry = await self._store.entry(trigger.id)
        now, definition = self._clock.now(), trigger.definition
        known: dict[str, PromptOrder] = {}
        for filed in await self._held():
            is_held_back = filed.receipt.reason.code in HELD_BACK
            if entry is None or filed.entry != entry.number or not is_held_back:
                continue
            order = await self._order(filed, known)
            fit = replace(order, tools=definition.tools)
            if fit == order or await self.why_agent(definition.agent, fit.enforced) is not None:
                continue
            words = "the tool policy of the workflow has changed"
            reason = Reason(ReasonCode.POLICY_CHANGED, words)
            await self._store.carry(
                filed.number, fit.text(), status=Status.WAITING, reason=reason, now=now
            )

    async def _release(self, agent: str) -> None:
        """Let what was held for want of an agent wait again, if it can take it now."""
        if await self._why_not(agent):
            return
        now = self._clock.now()
        known: dict[str, PromptOrder] = {}
        for filed in await self._held():
            order = await self._order(filed, known)
            if agent not in filed.agents or order.is_asked:
                continue
            if not await self._lack(agent, order.enforced):
                words = f"agent '{agent}' is available now"
                reason = Reason(ReasonCode.AGENT_AVAILABLE, words)
                await self._ledger.release(filed.number, reason=reason, now=now, term=self._term)
        self._poke()


def _approver() -> str:
    """Return who approves or denies; an agent may do neither, or it could let itself go on."""
    actor = current_actor()
    if actor.startswith("agent:"):
        raise ApproverError(actor)
    return actor


def _approval(filed: Filed, order: PromptOrder) -> dict[str, Any]:
    """Return what somebody is asked to approve."""
    receipt = filed.receipt
    return {
        "receipt": filed.number,
        "workflow": filed.title,
        "agent": filed.agents[0] if filed.agents else "",
        "source_id": receipt.key,
        "prompt": order.prompt(key=receipt.key, planned_at=receipt.planned_at),
        "status": "pending",
        "created_at": key_time(order.asked_until - APPROVAL),
        "expires_at": key_time(order.asked_until),
    }


def waits(order: PromptOrder) -> Reason:
    """Return why a receipt is held whose order somebody was asked to approve."""
    words = f"waiting for approval until {key_time(order.asked_until)}"
    return Reason(ReasonCode.APPROVAL_REQUIRED, words)
