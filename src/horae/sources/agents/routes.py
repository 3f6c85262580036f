"""Run an agent with the task of a request."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, to_builtins
from starlette.responses import Response

from horae.core.actor import Scope
from horae.core.views import Shape
from horae.sources.agents.source import AgentRunStatus
from horae.web.answer import streamed
from horae.web.fields import Fields, Number, Text, about
from horae.web.front import Front, NotOfferedError, offered
from horae.web.router import Routes
from horae.web.stream import LOOK, log_parts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from horae.sources.agents.source import AgentRequests


routes = Routes()
_HINT: Final = "pass the task of the agent"


class AgentRunRequest(Fields, frozen=True, forbid_unknown_fields=False):
    task: Annotated[str, Meta(min_length=1), about("task of the agent", hint=_HINT)]
    system: Annotated[str, about("system prompt")] = ""
    agent: Annotated[Text, about("name of the agent; default: an agent for this run")] = ""
    model: Annotated[Text, about("model to use")] = ""
    max_steps: Annotated[Number | None, about("limit of steps; default: that of the runner")] = None
    exec: Annotated[Any, about("ignored; the definition of the agent sets what it may do")] = None


class AgentRunStart(Shape, frozen=True):
    id: str
    status: str


@routes.post("/api/run", Scope.RUN, status=HTTPStatus.ACCEPTED.value)
async def run_agent(
    front: Front, body: AgentRunRequest, idempotency_key: str | None
) -> AgentRunStart:
    """Start a run of an agent with a task, and return the id of the run."""
    kept = offered(front.agent_runs, "agents")()
    given = {
        "system": body.system,
        "task": body.task,
        "model": body.model or None,
        "max_steps": body.max_steps,
        "agent": body.agent or None,
    }
    run = await kept.begin(given, key=idempotency_key)
    return AgentRunStart(id=run, status=(await _looked(kept, run)).status)


@routes.get("/api/run/{id}", Scope.READ)
async def agent_run(front: Front, id: str) -> AgentRunStatus:
    """Show the status of a run of an agent."""
    return await _looked(offered(front.agent_runs, "agents")(), id)


@routes.get("/api/run/{id}/stream", Scope.READ, kind="text/event-stream", is_long=True)
async def agent_run_stream(front: Front, id: str) -> Response:
    """Stream the output of a run of an agent, and its outcome at the end."""
    kept = offered(front.agent_runs, "agents")()
    await _looked(kept, id)
    return streamed(_told(front, kept, id), "text/event-stream")


async def _told(front: Front, kept: AgentRequests, run: str) -> AsyncIterator[bytes]:
    said, attempt = await _looked(kept, run), await kept.run_of(run)
    while attempt is None and said.live:  # it waits at the gate
        await front.clock.wait(asyncio.Event(), until=front.clock.now() + LOOK)
        said, attempt = await _looked(kept, run), await kept.run_of(run)
    if attempt is not None:
        goes_on = partial(front.is_live, attempt)
        async for part in log_parts(front.log_of(attempt), 0, goes_on=goes_on, clock=front.clock):
            text = json.dumps({"text": part.decode(errors="replace")})
            yield f"event: output\ndata: {text}\n\n".encode()
    ended = json.dumps(to_builtins(await kept.look(run)))
    yield f"event: end\ndata: {ended}\n\n".encode()


async def _looked(kept: AgentRequests, run: str) -> AgentRunStatus:
    said = await kept.look(run)
    if said is None:
        raise NotOfferedError(f"run {run[:100]!r}")
    return said
