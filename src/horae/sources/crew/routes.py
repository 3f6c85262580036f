"""Agents that tick: listed, shown, and let tick now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from horae.core.scope import Scope
from horae.web.router import NOTE, NotOfferedError, Operation, asks, does, limit

if TYPE_CHECKING:
    from starlette.requests import Request

    from horae.web.answer import HasData
    from horae.web.router import Front, RequestFields


async def agents(front: Front, _: Request, asked: RequestFields) -> dict[str, object]:
    """List the agents that tick: whether each is running, its next tick, its lifecycle state."""
    stands = await front.service.status(front.facts(), limit=asked.limit(100))
    return {"agents": [each.data() for each in stands.agents]}


async def agent(front: Front, request: Request, _: RequestFields) -> HasData:
    """Show one agent that ticks."""
    name = request.path_params["name"]
    stands = await front.service.status(front.facts(), limit=1000)
    for each in stands.agents:
        alias = each.entry.address.removeprefix("agent:")
        if name in {each.name, str(each.entry.number), alias}:
            return each
    raise NotOfferedError(f"agent {name[:100]!r} that ticks")


async def tick(front: Front, request: Request, asked: RequestFields) -> HasData:
    """Start a tick of an agent now."""
    return await front.service.tick(request.path_params["name"], note=asked.text("note"))


OPERATIONS: Final[tuple[Operation, ...]] = (
    asks("/api/v1/agents", Scope.READ, agents, "agents:Agent[]", limit(100)),
    asks("/api/v1/agents/{name}", Scope.READ, agent, "Agent"),
    does("/api/v1/agents/{name}/tick", Scope.RUN, tick, "Receipt", NOTE),
)
