"""The API: what may be asked of a running engine, and how it answers.

One application for every way in. Its own routes are under /api/v1; a question is a GET and
changes nothing, a request is a POST or a PUT with a JSON object. An answer is the `data()` of
what the service says, an error one problem document (RFC 9457) with the code and the words of the
error. Every route stands in one table, from which the router, the guard and the document of the
API are made; each part of it stands beside the functions that answer.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route, compile_path

from horae.core.scope import Scope
from horae.errors import HoraeError
from horae.sources.board import routes as board
from horae.sources.crew import routes as agents
from horae.sources.triggers import routes as triggers
from horae.sources.workflows import routes as workflows
from horae.web import calendar, engine, entries, health, login, metrics, public, receipts, tokens
from horae.web.answer import (
    HEADERS,
    Together,
    on_bug,
    on_error,
    on_leave,
    on_no_method,
    on_no_route,
    told,
)
from horae.web.edits import WRITTEN, ChangedError, expected, with_tag
from horae.web.front import Front
from horae.web.openapi import document, page
from horae.web.request import BODY, HttpRequestError, RequestFields, read
from horae.web.shapes import FACTS, TEXT
from horae.web.stream import Feed
from horae.web.table import Operation, asks

if TYPE_CHECKING:
    import re
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.requests import Request
    from starlette.routing import BaseRoute

__all__ = ["BODY", "OPERATIONS", "Front", "HttpRequestError", "asgi_app", "operation_of"]


def asgi_app(front: Front, *, pages: Sequence[BaseRoute] = ()) -> Starlette:
    """Return the application of an engine; *pages* are routes for people, beside the table's."""
    made = Starlette(
        routes=[*(_route(front, each) for each in OPERATIONS), *pages],
        exception_handlers={
            HoraeError: on_error,
            HTTPStatus.NOT_FOUND: on_no_route,
            HTTPStatus.METHOD_NOT_ALLOWED: on_no_method,
            ClientDisconnect: on_leave,
            Exception: on_bug,
        },
    )
    made.router.redirect_slashes = False  # it would trust the Host that somebody claims
    made.state.together = Together()
    made.state.feed = Feed(front.service)
    made.state.plans = asyncio.Semaphore(workflows.AT_ONCE)
    made.state.edits = asyncio.Lock()  # one after the other, so that a tag holds until it counts
    return made


def operation_of(method: str, path: str) -> Operation | None:
    """Return the operation that a request means; None if the table has none."""
    for pattern, operation in _patterns():
        # As the router does it: the first that fits both, and a HEAD is a GET without a body.
        if method in _methods(operation) and pattern.match(path):
            return operation
    return None


@cache
def _patterns() -> list[tuple[re.Pattern[str], Operation]]:
    return [(compile_path(each.path)[0], each) for each in OPERATIONS]


def _methods(operation: Operation) -> tuple[str, ...]:
    is_looked_at = operation.method == "GET" and not operation.is_once and not operation.is_long
    return ("GET", "HEAD") if is_looked_at else (operation.method,)


def _route(front: Front, operation: Operation) -> Route:
    made = Route(operation.path, _endpoint(front, operation), methods=[operation.method])
    made.methods = set(_methods(operation))
    return made


def _endpoint(front: Front, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    """Return what starlette calls for a route."""

    async def endpoint(request: Request) -> Response:
        try:
            return await answered(request, await read(request, operation))
        finally:
            if operation.method != "GET":
                request.app.state.together.forget()

    async def answered(request: Request, asked: RequestFields) -> Response:
        if operation.tag is None:
            return await plainly(request, asked)
        if operation.method == "GET":
            # The tag first: what is changed in between is then refused, not lost.
            tag = await operation.tag(front, request)
            return _tagged(await plainly(request, asked), tag)
        async with request.app.state.edits:
            wanted = expected(request)
            if wanted is not None and wanted != await operation.tag(front, request):
                raise ChangedError
            done = await plainly(request, asked)
            with suppress(HoraeError):  # it may go by another name now, or be gone
                _tagged(done, await operation.tag(front, request))
            return done

    async def plainly(request: Request, asked: RequestFields) -> Response:
        said = await operation.answer(front, request, asked)
        if isinstance(said, Response):
            return said
        # A long page takes a while to write down, and the engine must not wait for it.
        return await asyncio.to_thread(told, said, operation.status)

    return endpoint


def _tagged(response: Response, tag: str) -> Response:
    response.headers["ETag"] = f'"{tag}"'
    return response


async def openapi(_: Front, __: Request, ___: RequestFields) -> dict[str, Any]:
    """Return this document."""
    return document(OPERATIONS)


async def docs(_: Front, __: Request, ___: RequestFields) -> Response:
    """Show all routes as a web page."""
    return HTMLResponse(page(OPERATIONS), headers=HEADERS)


OPERATIONS: Final[tuple[Operation, ...]] = (
    *health.OPERATIONS,
    asks("/openapi.json", Scope.READ, openapi, FACTS),
    asks("/docs", Scope.READ, docs, TEXT, kind="text/html"),
    *login.OPERATIONS,
    *tokens.OPERATIONS,
    *entries.OPERATIONS,
    *calendar.OPERATIONS,
    *agents.OPERATIONS,
    *board.OPERATIONS,
    *receipts.OPERATIONS,
    *engine.OPERATIONS,
    *metrics.OPERATIONS,
    *(
        with_tag(each, WRITTEN[each.path]) if each.path in WRITTEN else each
        for each in triggers.OPERATIONS
    ),
    *workflows.OPERATIONS,
    *public.OPERATIONS,
)
