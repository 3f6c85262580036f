"""How the engine is: whether it keeps the hours, and how things stand."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from horae.core.engine import LONGEST_REST
from horae.core.explain import stamp
from horae.core.scope import Scope
from horae.web.answer import Together, as_json, told
from horae.web.shapes import named
from horae.web.table import Access, Operation, asks, limit

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from horae.web.front import Front
    from horae.web.request import RequestFields


async def health(front: Front, _: Request, __: RequestFields) -> Response:
    """Report whether the scheduling loop runs and the ledger is writable."""
    return _answer(front)


def _answer(front: Front, *more: str) -> Response:
    """Return how the loop is; *more* is what else keeps the engine from its work."""
    now, turned_at = front.clock.now(), front.engine.turned_at
    trouble = front.engine.trouble
    lag = timedelta(0) if turned_at is None else now - turned_at - LONGEST_REST
    problems = [*more]
    if turned_at is None:
        problems.append("the engine is starting")
    elif now < turned_at - timedelta(seconds=1):
        problems.append("the clock was set back and the scheduling loop has not run since")
    elif lag > LONGEST_REST:
        seconds = int((now - turned_at).total_seconds())
        problems.append(f"the scheduling loop has not run for {seconds} s")
    if trouble is not None:
        problems.append(f"the ledger cannot be written: {trouble.reason}")
    said = {
        "ok": not problems,
        "at": stamp(now, "UTC"),
        "turned_at": stamp(turned_at, "UTC"),
        "loop_lag_seconds": max(0.0, lag.total_seconds()),
        "ledger_writable": trouble is None,
        "problems": problems,
    }
    return as_json(said, HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK)


async def ready(front: Front, _: Request, __: RequestFields) -> Response:
    """Report whether the engine can start runs: healthy, not stalled, and with a plan."""
    stall = await front.engine.stall()
    return _answer(front, *([stall] if stall else ()), *_BLANK if front.engine.is_blank else ())


_BLANK: Final = ("the plan root contains no plan; nothing is scheduled until one appears",)


async def status(front: Front, request: Request, asked: RequestFields) -> Response:
    """Show the status: what is running, waiting, next, late, missed and failed."""
    limit = asked.limit(20)

    async def looked() -> Response:
        return await asyncio.to_thread(told, await front.status(limit=limit))

    together: Together = request.app.state.together
    return await together.ask(limit, looked)


OPERATIONS: Final[tuple[Operation, ...]] = (
    asks("/healthz", Access.OPEN, health, named("Health")),
    asks("/readyz", Scope.READ, ready, named("Health")),
    asks(
        "/api/v1/status",
        Scope.READ,
        status,
        named("Status"),
        limit(20, "maximum number of items of each kind"),
    ),
)
