"""Run the workflows of a plan in a request."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, to_builtins

from horae.core.actor import Scope
from horae.org.document import read
from horae.org.world import worlds
from horae.sources.workflows.record import summaries_of
from horae.web.fields import Fields, Word, about
from horae.web.front import Front, offered
from horae.web.router import Routes

if TYPE_CHECKING:
    from collections.abc import Callable

    from horae.sources.workflows.runner import WorkflowRunner

routes = Routes()
_HINT: Final = "pass the text of a plan"
AT_ONCE: Final = 4  # concurrent plans of requests


@dataclass(frozen=True)
class WorkflowRequests:
    runner: WorkflowRunner
    ids: Callable[[], str]
    # Beside the gate, so it has a bound of its own; who goes away loses the place in line.
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def run(self, text: str, given: bytes) -> list[dict[str, Any]]:
        plan, records = read(text), []
        async with self.room:
            for world in worlds(plan):
                run = f"asked-{self.ids()}"
                order = self.runner.order(plan, world, name="request.org", run=run, input=given)
                record = await self.runner.run(order, why="the client disconnected")
                records.append(to_builtins(record))
        return records


class PlanQuery(Fields, frozen=True):
    plan: Annotated[Word, about("1: return what would run, run nothing")] = ""


class WorkflowRequest(Fields, frozen=True, forbid_unknown_fields=False):
    org: Annotated[str, Meta(min_length=1), about("the text of a plan", hint=_HINT)]
    input: Annotated[str, about("input of the first steps")] = ""


@routes.post("/api/workflow", Scope.EDIT, is_long=True, is_left=True, also=(404,))
async def run_workflows(
    front: Front, query: PlanQuery, body: WorkflowRequest
) -> list[dict[str, Any]]:
    """Run the workflows of a plan and return their records; with `plan=1` run nothing.

    With `plan=1` the response lists what would run. If the client closes the connection, the
    runs are ended.
    """
    kept = offered(front.workflows, "workflows")()
    if query.plan == "1":
        return await asyncio.to_thread(summaries_of, body.org)
    return await kept.run(body.org, body.input.encode())
