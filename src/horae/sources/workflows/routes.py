"""Run what a request brings with it: a plan's workflows, or an agent with a task."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response, StreamingResponse

from horae.core.scope import Scope
from horae.core.views import RequestError
from horae.org.document import read
from horae.org.world import worlds
from horae.sources.workflows.record import summaries_of
from horae.web import router
from horae.web.answer import HEADERS, told
from horae.web.stream import LOOK, log_parts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request

    from horae.sources.agents.source import AgentRequests
    from horae.sources.workflows.runner import WorkflowRunner

AT_ONCE: Final = 4  # plans that requests bring and that run at the same time


@dataclass(frozen=True)
class WorkflowRequests:
    runner: WorkflowRunner
    ids: Callable[[], str]

    async def run(self, text: str, given: bytes) -> list[dict[str, Any]]:
        plan, records = read(text), []
        for world in worlds(plan):
            run = f"asked-{self.ids()}"
            order = self.runner.order(plan, world, name="request.org", run=run, input=given)
            record = await self.runner.run(order, why="the client disconnected")
            records.append(record.data())
        return records


async def run_workflows(
    front: router.Front, request: Request, asked: router.RequestFields
) -> list[dict[str, Any]]:
    """Run the workflows of a plan and return their records; with `plan=1` run nothing.

    With `plan=1` the response lists what would run. If the client closes the connection, the
    runs are ended.
    """
    kept = router.offered(front.workflows, "workflows")
    org = asked.long("org")
    if not org:
        raise RequestError("org is missing; pass the text of a plan")
    if asked.given.get("plan") == "1":
        return await asyncio.to_thread(summaries_of, org)

    async def run() -> list[dict[str, Any]]:
        # Beside the gate, so it has a bound of its own; who goes away loses the place in line.
        async with request.app.state.plans:
            return await kept.run(org, asked.long("input").encode())

    async def leaves() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass  # the body is read already

    running = asyncio.ensure_future(run())
    leaving = asyncio.ensure_future(leaves())
    try:
        await asyncio.wait({running, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            running.cancel()
        return await running
    finally:
        leaving.cancel()
        running.cancel()


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


_WORKFLOW: Final = (
    router.needed(router.Field("org", "long", "the text of a plan")),
    router.Field("input", "long", "input of the first steps"),
)
_PLAN: Final = (router.Field("plan", "text", "1: return what would run, run nothing"),)
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
    router.Operation("POST", "/api/workflow", Scope.EDIT, run_workflows, "Record[]", query=_PLAN,
              body=_WORKFLOW, takes=router.Takes.LOOSE, is_long=True, also=(404,)),
    router.Operation("POST", "/api/run", Scope.RUN, run_agent, "id:str status:str", body=_AGENT,
              takes=router.Takes.LOOSE, status=202, headers=("Idempotency-Key",),
              also=(404, 409)),
    router.Operation("GET", "/api/run/{id}", Scope.READ, agent_run, "id status steps:int? ...",
              also=(404,)),
    router.Operation("GET", "/api/run/{id}/stream", Scope.READ, agent_run_stream, "str",
              kind="text/event-stream", is_long=True, also=(404,)),
)
# fmt: on
