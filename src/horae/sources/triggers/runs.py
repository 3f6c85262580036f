"""What agents do when triggers start them: the run that goes on, and what all of them took."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from horae.core.entry import Entry
from horae.sources.triggers.base import Base
from horae.sources.triggers.errors import TriggerNotFoundError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from horae.core.ports import Run

_BATCH: Final = 200


@dataclass(frozen=True, slots=True)
class Usage:
    """What some runs took."""

    runs: int = 0
    turns: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0  # in US dollars, as the programs reckon
    seconds: float = 0.0

    def and_(self, run: Run) -> Usage:
        """Return it with one run more; one that goes on has taken no time yet."""
        facts = run.facts
        length = 0.0 if run.ended_at is None else (run.ended_at - run.started_at).total_seconds()
        return Usage(
            self.runs + 1,
            self.turns + int(_number(facts, "steps")),
            self.tokens_in + int(_number(facts, "tokens_in")),
            self.tokens_out + int(_number(facts, "tokens_out")),
            round(self.cost + _number(facts, "cost"), 6),
            round(self.seconds + length, 3),
        )

    def data(self) -> dict[str, object]:
        return {
            "runs": self.runs,
            "turns": self.turns,
            "input_tokens": self.tokens_in,
            "output_tokens": self.tokens_out,
            "total_cost_usd": self.cost,
            "duration_secs": self.seconds,
        }


class Runs(Base):
    """Tells of the runs of agents, and whether triggers are armed."""

    async def usage(self, word: str) -> dict[str, Any]:
        """Return what the last run of an agent took, and what all of them did."""
        card = await self.card(word)
        every, last, newest = Usage(), Usage(), 0
        outcomes: Counter[str] = Counter()
        async for run in self._runs_of(card.name):
            every = every.and_(run)
            outcomes[run.outcome or "running"] += 1
            if run.number > newest:
                newest, last = run.number, Usage().and_(run)
        return {
            "agent_id": card.id,
            "agent": card.name,
            "current": last.data(),
            "cumulative": every.data(),
            "outcomes": dict(sorted(outcomes.items())),
        }

    async def run_of(self, word: str, *, is_going: bool = False) -> int:
        """Return the number of the run of an agent that goes on, else that of its last one."""
        card = await self.card(word)
        going = [run for filed, run in await self._ledger.open_runs() if card.name in filed.agents]
        if going:
            return going[-1].number
        if is_going:
            raise TriggerNotFoundError("active run of agent", card.name)
        last = max([run.number async for run in self._runs_of(card.name)], default=None)
        if last is None:
            raise TriggerNotFoundError("run of agent", card.name)
        return last

    async def unarmed(self, word: str) -> str:
        """Return why a workflow would not fire by itself; nothing if it would."""
        trigger = await self.found(word)
        if not trigger.definition.is_enabled:
            return "the trigger is disabled"
        known = await self._store.entry(trigger.id)
        if known is None or known.gone_at is not None:
            return "the engine has not loaded it yet"
        return "" if isinstance(known.item, Entry) else known.item.reason

    async def _runs_of(self, agent: str) -> AsyncIterator[Run]:
        for trigger in await self._store.of_agent(agent):
            start = 0
            while True:
                found, total = await self._store.dispatches(trigger.id, limit=_BATCH, offset=start)
                for each in found:
                    for run in await self._ledger.runs_of(each.filed.number):
                        yield run
                start += len(found)
                if not found or start >= total:
                    break


def _number(facts: Mapping[str, object], name: str) -> float:
    value = facts.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0
