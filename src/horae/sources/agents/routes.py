"""Run an agent with the task of a request."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response, StreamingResponse

from horae.core.scope import Scope
from horae.core.views import RequestError
from horae.web import router
from horae.web.answer import HEADERS, told
from horae.web.stream import LOOK, log_parts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from horae.sources.agents.source import AgentRequests


async def run_agent(front: router.Front, request: Request, asked: router.RequestFields) -> Response:
    """Start a run of an agent with a task, and return the id of the run."""
    kept = router.offered(front.agent_runs, "agents")
    if not asked.long("task"):
        raise RequestError("task is missing; pass the task of the agent")
    given = {
        "system": asked.long("system"),
        "task": asked.long("task"),
        "model": asked.text("model") or None,
        "max_steps": asked.number("max_steps"),
        "agent": asked.text("agent") or None,
    }
    run = await kept.begin(given, key=router.idempotency_key(request))
    said = await _looked(kept, run)
    return told({"id": run, "status": said["status"]}, HTTPStatus.ACCEPTED)


async def agent_run(
    front: router.Front, request: Request, _: router.RequestFields
) -> dict[str, Any]:
    """Show the status of a run of an agent."""
    return await _looked(router.offered(front.agent_runs, "agents"), request.path_params["id"])


async def agent_run_stream(
    front: router.Front, request: Request, _: router.RequestFields
) -> Response:
    """Stream the output of a run of an agent, and its outcome at the end."""
    kept, run = router.offered(front.agent_runs, "agents"), request.path_params["id"]
    await _looked(kept, run)
    parts = _told(front, kept, run)
    return StreamingResponse(parts, media_type="text/event-stream", headers=HEADERS)


async def _told(front: router.Front, kept: AgentRequests, run: str) -> AsyncIterator[bytes]:
    said, attempt = await _looked(kept, run), await kept.run_of(run)
    while attempt is None and said["live"]:  # it waits at the gate
        await front.clock.wait(asyncio.Event(), until=front.clock.now() + LOOK)
        said, attempt = await _looked(kept, run), await kept.run_of(run)
    if attempt is not None:
        live = front.engine.launch.runs

        def goes_on() -> bool:
            here = live.get(attempt.receipt)
            return here is not None and here.number == attempt.number

        async for part in log_parts(front.log_of(attempt), 0, goes_on=goes_on, clock=front.clock):
            text = json.dumps({"text": part.decode(errors="replace")})
            yield f"event: output\ndata: {text}\n\n".encode()
    yield f"event: end\ndata: {json.dumps(await kept.look(run), default=str)}\n\n".encode()


async def _looked(kept: AgentRequests, run: str) -> dict[str, Any]:
    said = await kept.look(run)
    if said is None:
        raise router.NotOfferedError(f"run {run[:100]!r}")
    return said


_AGENT: Final = (
    router.needed(router.Field("task", "long", "task of the agent")),
    router.Field("system", "long", "system prompt"),
    router.text("agent", "name of the agent; default: an agent for this run"),
    router.text("model", "model to use"),
    router.number("max_steps", "maximum number of steps; default: that of the runner"),
    router.flag("exec", "ignored; the definition of the agent sets what it may do"),
)
# fmt: off
OPERATIONS: Final = (
    router.Operation("POST", "/api/run", Scope.RUN, run_agent, "id:str status:str", body=_AGENT,
              takes=router.Takes.LOOSE, status=202, headers=("Idempotency-Key",),
              also=(404, 409)),
    router.Operation("GET", "/api/run/{id}", Scope.READ, agent_run, "id status steps:int? ...",
              also=(404,)),
    router.Operation("GET", "/api/run/{id}/stream", Scope.READ, agent_run_stream, "str",
              kind="text/event-stream", is_long=True, also=(404,)),
)
# fmt: on
