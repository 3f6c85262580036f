"""Run the workflows of a plan that a request brings with it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from horae.core.scope import Scope
from horae.core.views import RequestError
from horae.org.document import read
from horae.org.world import worlds
from horae.sources.workflows.record import summaries_of
from horae.web import router

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

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


_WORKFLOW: Final = (
    router.needed(router.Field("org", "long", "the text of a plan")),
    router.Field("input", "long", "input of the first steps"),
)
_PLAN: Final = (router.Field("plan", "text", "1: return what would run, run nothing"),)
# fmt: off
OPERATIONS: Final = (
    router.Operation("POST", "/api/workflow", Scope.EDIT, run_workflows, "Record[]", query=_PLAN,
              body=_WORKFLOW, takes=router.Takes.LOOSE, is_long=True, also=(404,)),
)
# fmt: on
