"""Agents that tick: listed, shown, and let tick now."""

from __future__ import annotations

from horae.core.actor import Scope
from horae.core.views import AgentLine, ReceiptLine, Shape
from horae.web.fields import Fields, Limit, Note
from horae.web.front import Front, NotOfferedError
from horae.web.router import Routes

routes = Routes()


class AgentsQuery(Fields, frozen=True):
    limit: Limit = 100


class AgentPage(Shape, frozen=True):
    agents: tuple[AgentLine, ...]


@routes.get("/api/v1/agents", Scope.READ)
async def agents(front: Front, query: AgentsQuery) -> AgentPage:
    """List the agents that tick: whether each is running, its next tick, its lifecycle state."""
    return AgentPage(agents=tuple(await front.service.agents(limit=query.limit)))


@routes.get("/api/v1/agents/{name}", Scope.READ)
async def agent(front: Front, name: str) -> AgentLine:
    """Show one agent that ticks."""
    for each in await front.service.agents(limit=1000):
        if name in {each.agent, str(each.entry), each.address.removeprefix("agent:")}:
            return each
    raise NotOfferedError(f"agent {name[:100]!r} that ticks")


class TickRequest(Fields, frozen=True):
    note: Note = ""


@routes.post("/api/v1/agents/{name}/tick", Scope.RUN)
async def tick(front: Front, name: str, body: TickRequest) -> ReceiptLine:
    """Start a tick of an agent now."""
    return await front.service.tick(name, note=body.note)
