"""What the stories about triggers share: who is meant, and who can take something now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from horae.core.entry import key_time
from horae.core.ports import SecretError
from horae.core.prompt import read_order
from horae.core.reason import Reason, ReasonCode
from horae.core.secret import is_kept, is_reference
from horae.sources.triggers.errors import TriggerConflictError, TriggerNotFoundError
from horae.sources.triggers.ports import AgentCard, agent_id, dispatch_id
from horae.sources.triggers.rules import TriggerError, enforced, view

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from horae.core.command import Unready
    from horae.core.ports import Ledger, Secrets
    from horae.core.service import Dial
    from horae.core.tool_policy import ToolPolicy
    from horae.sources.triggers.ports import Dispatched, TriggerStore
    from horae.sources.triggers.rules import Definition, Trigger


class Ready(Protocol):
    """Tells whether an agent can run under a tool policy that must be kept."""

    async def of_agent(self, name: str, tools: ToolPolicy | None = None) -> Unready | None:
        """Return why an agent of a name cannot run; None if it can."""
        ...

    def of_card(self, card: AgentCard, tools: ToolPolicy | None = None) -> Unready | None:
        """Return why an agent cannot run that a request or a file made; None if it can."""
        ...


class Base:
    """What every story about triggers stands on.

    *others* names the agents that are defined elsewhere, *ready* says why one cannot run.
    *secrets* knows the values of secrets; without it there are none that are only named.
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
        ready: Ready | None = None,
        has_gh: Callable[[], bool] = lambda: True,
        secrets: Secrets | None = None,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._clock = clock
        self._ids = ids
        self._term = term
        self._poke = poke
        self._others = others
        self._ready = ready
        self._has_gh = has_gh
        self._secrets = secrets

    async def found(self, word: str) -> Trigger:
        """Return the trigger that an id or a name means."""
        trigger = await self._store.get(word) or await self._store.named(word)
        if trigger is None:
            raise TriggerNotFoundError("workflow", word[:100])
        return trigger

    async def only(self, word: str) -> Trigger:
        """Return the one trigger that an id or a name means; if these are two, that is an error."""
        by_id, by_name = await self._store.get(word), await self._store.named(word)
        if by_id is not None and by_name is not None and by_id.id != by_name.id:
            first = f"{by_id.id} (called '{by_id.definition.name}')"
            second = f"{by_name.id} (called '{by_name.definition.name}')"
            reason = f"'{word}' matches two workflows, {first} and {second}"
            hint = f"use '{by_id.definition.name}' or '{by_name.id}'"
            raise TriggerConflictError(f"{reason}; {hint}")
        return await self.found(word)

    async def card(self, word: str) -> AgentCard:
        """Return the agent that an id or a name means."""
        card = await self._store.agent(word)
        if card is None:
            raise TriggerNotFoundError("agent", word[:100])
        return card

    async def cards(self) -> list[AgentCard]:
        """Return every agent that a request or a file made, newest first."""
        return await self._store.agents()

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

    async def note(self, kind: str, trigger: Trigger, facts: Mapping[str, object]) -> None:
        """Write down something that happened around a trigger."""
        known = await self._store.entry(trigger.id)
        entry = None if known is None else known.number
        now = self._clock.now()
        await self._ledger.note(kind, now=now, term=self._term, entry=entry, facts=facts)

    # Secrets

    async def _value(self, text: str) -> str:
        """Return a text with the values of the secrets that it names; raises SecretError."""
        return text if self._secrets is None else await self._secrets.filled(text)

    async def _values(self, texts: Iterable[str]) -> frozenset[str]:
        """Return what texts stand for; one that cannot be read stands for itself."""
        found = set()
        for text in texts:
            try:
                found.add(await self._value(text))
            except SecretError:
                found.add(text)
        return frozenset(found)

    async def _kept(self, texts: Mapping[str, str], was: Iterable[str]) -> dict[str, str]:
        """Return texts of which those that are kept already are what stands for them.

        Who asks cannot name a file of ours, but for one that was there.
        """
        known = {text: await self._values([text]) for text in was if is_kept(text)}
        if any(is_kept(text) and text not in known for text in texts.values()):
            raise TriggerError("the name of a secret cannot contain a slash; write ${NAME}")
        same = {value: text for text, values in known.items() for value in values}
        return {name: same.get(text, text) for name, text in texts.items()}

    async def _keep(self, texts: Mapping[str, str], *, prefix: str = "") -> dict[str, str]:
        """Return texts as the ledger may hold them: a value is kept elsewhere."""
        if self._secrets is None:
            return dict(texts)
        return {
            name: text
            if is_reference(text) or is_kept(text)
            else await self._secrets.keep(prefix or name, text)
            for name, text in texts.items()
        }

    async def _drop(self, texts: Iterable[str], *, but: Iterable[str] = ()) -> None:
        """Remove what is kept for texts that nothing refers to any more."""
        if self._secrets is not None:
            await self._secrets.forget(set(texts) - set(but))

    async def _busy(self) -> dict[str, str]:
        """Return the agents that run now, each with what it does."""
        runs = await self._ledger.open_runs()
        return {name: filed.title for filed, _ in runs for name in filed.agents}

    async def _why_not(self, agent: str) -> Reason | None:
        if agent in self._others():
            return None
        card = await self._store.agent(agent)
        if card is not None and card.is_enabled:
            return None
        words = f"there is no agent called '{agent}'"
        if card is not None:
            words = f"agent '{agent}' is disabled"
        return Reason(ReasonCode.AGENT_UNAVAILABLE, words)

    async def _lack(self, agent: str, tools: ToolPolicy | None = None) -> Reason | None:
        card = await self._store.agent(agent)
        why = None if card is None else self.why_unready(card, tools)
        return None if why is None else why.why()

    def why_unready(self, card: AgentCard, tools: ToolPolicy | None = None) -> Unready | None:
        """Return why an agent cannot run under a policy that must be kept, if there is one."""
        return None if self._ready is None else self._ready.of_card(card, tools)

    async def why_agent(self, name: str, tools: ToolPolicy | None = None) -> Unready | None:
        """Return why an agent of a name cannot run, whoever defines it."""
        return None if self._ready is None else await self._ready.of_agent(name, tools)

    async def why_unfit(self, definition: Definition, card: AgentCard | None) -> Unready | None:
        """Return why what a workflow asks for cannot run; *card* is its agent, if it comes anew."""
        tools = enforced(definition)
        if card is not None:
            return self.why_unready(card, tools)
        return await self.why_agent(definition.agent, tools)

    async def receipt_status(self, number: int) -> str:
        """Return the status of a receipt in the words of the ledger; "" if there is none."""
        filed = await self._ledger.receipt(number)
        return "" if filed is None else filed.status

    async def _dispatch(self, trigger: Trigger, done: Dispatched) -> dict[str, Any]:
        """Return a receipt in the shape of the API."""
        filed, receipt = done.filed, done.filed.receipt
        text = await self._ledger.text(filed.digest)
        prompt, approved_by = "", None
        if text is not None:
            order = read_order(text)
            prompt = order.prompt(key=receipt.key, planned_at=receipt.planned_at)
            approved_by = order.approval.get("by")
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
            "reason_code": receipt.reason.code or None,
            "receipt": filed.number,
            "planned_at": key_time(receipt.planned_at),
            "count": receipt.count,
            "actor": filed.actor,
            "approved_by": approved_by,
        }
