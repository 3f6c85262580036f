"""Runs of agents by the orders of triggers; scheduled time and key are filled in here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from horae.core.agent import Agent, AgentDefinition, AgentNotFoundError, read_order
from horae.core.entry import ASKED, REQUEST, Origin
from horae.core.ports import AgentRunner, Ended, Held, HeldBackError, Job, Run, Unreleased
from horae.core.scope import api_scopes
from horae.sources.triggers.rules import parse_tools
from horae.timing.duration import parse_duration

if TYPE_CHECKING:
    from datetime import timedelta

    from horae.core.receipt import Filed
    from horae.core.tool_policy import ToolPolicy
    from horae.sources.triggers.store import AgentCard, TriggerStore


@dataclass(frozen=True, slots=True, eq=False)
class PromptRunner:
    """Makes runs of triggers and of requests: an agent that is told what its order says."""

    find: Callable[[str | None], Awaitable[tuple[AgentRunner, Agent]]]  # None: of a request
    triggers: TriggerStore
    text: Callable[[str], Awaitable[str | None]]  # what a digest stands for
    request_timeout: timedelta | None = None  # of a request whose agent names none

    async def hold(self, job: Job) -> Held:
        filed, receipt = job.filed, job.filed.receipt
        order = read_order(job.text)
        try:
            host, agent = await self._agent(filed)
        except AgentNotFoundError as error:
            raise HeldBackError(str(error)) from None
        # Only what a request said itself: values of a trigger may come from anybody's message.
        said = order.values if filed.source == ASKED else {}
        if said.get("system"):
            agent = replace(agent, definition=replace(agent.definition, prompt=said["system"]))
        tools = policy_for(await self.triggers.agent(agent.name), order.enforced)
        obstacle = await host.why_unable(agent, tools)
        if obstacle is not None:
            raise HeldBackError(obstacle)
        usual = self.request_timeout if filed.source == ASKED else None
        timeout = filed.policy.timeout or agent.definition.timeout or usual or host.place.timeout
        return await host.hold(
            agent,
            order.prompt(key=receipt.key, planned_at=receipt.planned_at),
            run=job,
            timeout=timeout,
            tools=tools,
            model=said.get("model"),
        )

    async def look_back(self, filed: Filed, run: Run) -> Ended | Unreleased | None:
        """Return how a run ended that an engine before this one made; None is unknown."""
        host, agent = await self._agent(filed)
        return await host.look_back(run, agent)

    async def obstacle(self, filed: Filed) -> str | None:
        """Return why a prompt that is held back would be so again; None if it would not."""
        host, agent = await self._agent(filed)
        text = await self.text(filed.digest)
        tools = policy_for(await self.triggers.agent(agent.name), read_order(text or "").enforced)
        return await host.why_unable(agent, tools)

    async def _agent(self, filed: Filed) -> tuple[AgentRunner, Agent]:
        return await self.find(filed.agents[0] if filed.agents else None)


def unnamed() -> Agent:
    """Return the agent of a request that names none."""
    return Agent(ASKED, AgentDefinition(ASKED, ASKED, ""), Origin(REQUEST, 1), remedy="")


def policy_for(card: AgentCard | None, tools: ToolPolicy | None) -> ToolPolicy | None:
    """Return the tool policy that a run of an agent must keep: its order's, else its own."""
    if tools is not None or card is None or "tool_policy" not in card.config:
        return tools
    return parse_tools(card.config["tool_policy"])


def agent_of(card: AgentCard) -> Agent:
    said = card.config
    definition = AgentDefinition(
        card.name,
        card.name,
        said.get("system_prompt", ""),
        model=said.get("model"),
        command=tuple(said.get("command", ())),
        timeout=parse_duration(said["timeout"]) if "timeout" in said else None,
        api=api_scopes(said["api"]) if "api" in said else (),
    )
    origin = Origin(card.file or f"agents/{card.name}", 1)
    return Agent(
        card.name,
        definition,
        origin,
        said["working_dir"],
        environment=said.get("env", {}),
        remedy=f"write command: in {card.file}" if card.file else "",
    )
