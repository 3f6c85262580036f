"""Every agent that a command can name: those of the plans, of requests and of `.agentd`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from horae.cli.trigger_access import TriggerAccess
from horae.config import load
from horae.context import find_agents
from horae.core.agent import Agent, AgentNotFoundError
from horae.core.entry import KEEPER
from horae.errors import HoraeError
from horae.sources.triggers.rules import parse_tools
from horae.sources.triggers.runner import agent_of
from horae.sources.triggers.service import TriggerConflictError, Triggers
from horae.sources.triggers.source import unread_hint

if TYPE_CHECKING:
    from horae.cli.output import Output
    from horae.core.command import Unready
    from horae.core.tool_policy import ToolPolicy
    from horae.sources.agents.runner import Registry
    from horae.sources.triggers.store import AgentCard


@dataclass(frozen=True, slots=True)
class KnownAgent:
    agent: Agent
    card: AgentCard | None = None
    why: Unready | None = None  # why a card, or a member without a definition, cannot run

    @property
    def where(self) -> str | None:
        return self.agent.origin.place if self.card is None else self.card.file or None

    @property
    def policy(self) -> ToolPolicy:
        card = self.card
        return self.agent.policy if card is None else parse_tools(card.config.get("tool_policy"))

    def obstacle(self, registry: Registry) -> Unready | None:
        if self.card is not None or self.why is not None:
            return self.why
        return registry.obstacle(self.agent, environ=os.environ)


class Everybody:
    def __init__(self, root: str, data: str | None, output: Output) -> None:
        self._root, config = root, load(root, flags={"data": data})
        found = find_agents(config, say=output.say)
        self.registry, self._keeper = found.registry, found.keeper
        unread = (KnownAgent(each, why=why) for each, why in found.unread)
        self.known = [*map(KnownAgent, found.registry), *unread]
        if config.store is not None or config.data.exists():  # else nobody ever asked for one
            try:
                for card, why in TriggerAccess(root=root, data=data).read(_cards):
                    made = KnownAgent(agent_of(card), card, why)
                    for other in self.known:
                        if other.agent.name == card.name:
                            reason = (
                                f"the agent {card.name} is defined twice, at {other.where} and by "
                                f"{made.where or 'a request'}; rename one of them"
                            )
                            found.say(TriggerConflictError(reason))
                    self.known.append(made)
            except HoraeError as error:
                found.say(error)
        self.known.sort(key=lambda known: known.agent.name)
        self.exit_code = found.exit_code

    @property
    def hint(self) -> str:
        """What an empty list adds."""
        return "" if self.known else unread_hint(self._root)

    def get(self, name: str) -> KnownAgent:
        """Return the agent of a name, or the single keeper; of two of one name that of the plan."""
        for asked in [name, self._keeper] if name == KEEPER else [name]:
            for each in self.known:
                if each.agent.name == asked:
                    return each
        raise AgentNotFoundError.among(name, (each.agent.name for each in self.known))


async def _cards(triggers: Triggers) -> list[tuple[AgentCard, Unready | None]]:
    return [(each, triggers.why_unready(each)) for each in await triggers.store.agents()]
