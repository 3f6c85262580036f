"""The API: what may be asked of a running engine, and how it answers.

One application for every way in. Its own routes are under /api/v1; a question is a GET and
changes nothing, a request is a POST or a PUT with a JSON object. An answer is the `data()` of
what the desk says, an error one problem document (RFC 9457) with the code and the words of the
error. Every route stands in one table, from which the router, the guard and the document of the
API are made.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from functools import cache
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route, compile_path

from horae.engine.almanac import LONGEST_REST
from horae.engine.desk import RequestError
from horae.engine.why import AskedMomentError, parse_ask, stamp
from horae.errors import HoraeError
from horae.rules.misfire import Status
from horae.server import board, calendar, metrics, public, triggers, workflows
from horae.server.answer import (
    HEADERS,
    Together,
    as_json,
    on_bug,
    on_error,
    on_leave,
    on_no_method,
    on_no_route,
    told,
)
from horae.server.edits import WRITTEN, ChangedError, entry_tag, expected, with_tag
from horae.server.front import Front, NotOfferedError, offered
from horae.server.keys import SESSION
from horae.server.openapi import document, page
from horae.server.request import (
    BODY,
    Fields,
    HttpRequestError,
    idempotency_key,
    is_number,
    path_number,
    read,
)
from horae.server.shapes import (
    ATTEMPT,
    ENTRY,
    FACTS,
    FLAG,
    MOMENT,
    NUMBER,
    RECEIPT,
    RUN,
    TEXT,
    WHY_ANSWER,
    and_also,
    listed,
    maybe,
    named,
    shape,
)
from horae.server.stream import Feed, log_parts
from horae.server.table import (
    Access,
    Field,
    Kind,
    Operation,
    Takes,
    flag,
    limit,
    moment,
    needed,
    number,
    text,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from horae.engine.ports import Run
    from horae.server.answer import Answer

__all__ = ["BODY", "OPERATIONS", "Front", "HttpRequestError", "app", "operation_of"]


def app(front: Front, *, pages: Sequence[BaseRoute] = ()) -> Starlette:
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
    made.state.feed = Feed(front.desk)
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

    async def answered(request: Request, asked: Fields) -> Response:
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

    async def plainly(request: Request, asked: Fields) -> Response:
        said = await operation.answer(front, request, asked)
        if isinstance(said, Response):
            return said
        # A long page takes a while to write down, and the engine must not wait for it.
        return await asyncio.to_thread(told, said, operation.status)

    return endpoint


def _tagged(response: Response, tag: str) -> Response:
    response.headers["ETag"] = f'"{tag}"'
    return response


# Questions


async def health(front: Front, _: Request, __: Fields) -> Response:
    """Tell whether the loop turns, can write, and knows what time it is."""
    now, turned_at = front.clock.now(), front.almanac.turned_at
    trouble = front.almanac.trouble
    lag = timedelta(0) if turned_at is None else now - turned_at - LONGEST_REST
    problems = []
    if turned_at is None:
        problems.append("the engine is starting")
    elif now < turned_at - timedelta(seconds=1):
        problems.append("the clock was set back and the loop has not turned since")
    elif lag > LONGEST_REST:
        problems.append(f"the loop has not turned for {int((now - turned_at).total_seconds())} s")
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


async def ready(front: Front, request: Request, asked: Fields) -> Response:
    """Tell whether the engine keeps the hours, as /healthz does, for those with the token."""
    return await health(front, request, asked)


async def status(front: Front, request: Request, asked: Fields) -> Response:
    """Tell how things stand."""
    limit = asked.limit(20)

    async def looked() -> Response:
        return await asyncio.to_thread(told, await front.desk.status(front.facts(), limit=limit))

    together: Together = request.app.state.together
    return await together.ask(limit, looked)


async def entries(front: Front, _: Request, asked: Fields) -> Answer:
    """List the entries, the longest known first."""
    return await front.desk.entries(
        limit=asked.limit(100), cursor=asked.number("cursor"), with_gone=asked.flag("gone")
    )


async def entry(front: Front, request: Request, _: Fields) -> Answer:
    """Tell what is known of one entry."""
    return await front.desk.entry(request.path_params["entry"])


async def receipts(front: Front, _: Request, asked: Fields) -> Answer:
    """List receipts, newest first."""
    return await front.desk.history(
        asked.text("entry") or None,
        since=asked.moment("since"),
        until=asked.moment("until"),
        statuses=[Status(each) for each in asked.words("status")],
        limit=asked.limit(50),
        cursor=asked.number("cursor"),
    )


async def receipt(front: Front, request: Request, _: Fields) -> Answer:
    """Tell what is known of one receipt, with its runs."""
    return await front.desk.receipt(path_number(request))


async def run(front: Front, request: Request, _: Fields) -> Answer:
    """Tell what is known of one run."""
    return await front.desk.run(path_number(request))


async def log(front: Front, request: Request, asked: Fields) -> Response:
    """Give what a run has put out from some byte on, and with `follow` until it ends."""
    follow, start, end = asked.flag("follow"), asked.number("from") or 0, asked.number("to")
    found = (await front.desk.run(path_number(request))).run

    def goes_on() -> bool:
        return follow and _is_live(front, found)

    parts = log_parts(front.log_of(found), start, goes_on=goes_on, clock=front.clock, end=end)
    return StreamingResponse(parts, media_type="text/plain; charset=utf-8", headers=HEADERS)


async def why(front: Front, _: Request, asked: Fields) -> Answer:
    """Tell why an entry ran, or did not."""
    word, at = asked.needed("entry"), asked.text("at")
    ask = parse_ask(f"{word}@{at}") if at else parse_ask(word)
    if at and ask.start is None:
        raise AskedMomentError(at)
    return await front.desk.why(ask, limit=asked.limit(20))


async def agents(front: Front, _: Request, asked: Fields) -> dict[str, object]:
    """List the agents that tick: whether each runs, when it does next, where in its day it is."""
    stands = await front.desk.status(front.facts(), limit=asked.limit(100))
    return {"agents": [each.data() for each in stands.agents]}


async def agent(front: Front, request: Request, _: Fields) -> Answer:
    """Tell of one agent that ticks."""
    name = request.path_params["name"]
    stands = await front.desk.status(front.facts(), limit=1000)
    for each in stands.agents:
        if name in {each.name, str(each.entry.number)}:
            return each
    raise NotOfferedError(f"agent {name[:100]!r} that ticks")


async def nodes(front: Front, _: Request, __: Fields) -> dict[str, object]:
    """Tell which machines share the ledger; none, if it is kept by one alone."""
    return {"nodes": [] if front.nodes is None else await front.nodes()}


async def gate(front: Front, _: Request, asked: Fields) -> dict[str, object]:
    """Tell who holds a slot, and who waits for what."""
    gate, limit = front.almanac.gate, asked.limit(100)
    line = gate.obstacles(now=front.clock.now())
    holding = []
    for each in gate.holders:
        about = (await front.desk.receipt(each.ask.number)).line
        holding.append(
            {
                "receipt": each.ask.number,
                "entry": each.ask.entry,
                "title": about.title,
                "slot": each.slot,
                "kind": each.kind.value,
                "since": stamp(each.since, about.zone),
                "parent": each.ask.parent,
            }
        )
    waiting = []
    for obstacle in islice(line, limit):
        about = (await front.desk.receipt(obstacle.ask.number)).line
        waiting.append(
            {
                "receipt": obstacle.ask.number,
                "entry": obstacle.ask.entry,
                "title": about.title,
                "due_at": stamp(obstacle.ask.due_at, about.zone),
                "reason": obstacle.reason,
                "behind": obstacle.behind,
            }
        )
    return {
        "slots": gate.capacity.slots,
        "crew": gate.capacity.crew,
        "holding": holding,
        "waiting": waiting,
        "in_line": len(line),
    }


async def events(front: Front, _: Request, asked: Fields) -> Answer:
    """List what happened after an event."""
    return await front.desk.events(after=asked.number("after") or 0, limit=asked.limit(100))


async def event_stream(front: Front, request: Request, asked: Fields) -> Response:
    """Tell what happens as it happens, after the event that was heard last, else from now on."""
    heard = request.headers.get("last-event-id", "")
    after = int(heard) if is_number(heard) else asked.number("after")
    if after is None:
        after = front.since if front.ledger is None else await front.ledger.newest_event()
    feed: Feed = request.app.state.feed
    return StreamingResponse(feed.listen(after), media_type="text/event-stream", headers=HEADERS)


async def openapi(_: Front, __: Request, ___: Fields) -> dict[str, Any]:
    """Give this document."""
    return document(OPERATIONS)


async def docs(_: Front, __: Request, ___: Fields) -> Response:
    """Show every route on a page for people."""
    return HTMLResponse(page(OPERATIONS), headers=HEADERS)


# Requests


async def run_now(front: Front, request: Request, asked: Fields) -> Answer:
    """Ask for a run now; the same Idempotency-Key gives the same receipt back."""
    return await front.desk.run_now(
        request.path_params["entry"],
        note=asked.text("note"),
        parent_run=asked.number("parent_run"),
        idempotency_key=idempotency_key(request),
    )


async def tick(front: Front, request: Request, asked: Fields) -> Answer:
    """Let an agent tick now."""
    return await front.desk.tick(request.path_params["name"], note=asked.text("note"))


async def pause(front: Front, request: Request, asked: Fields) -> Answer:
    """Let an entry rest."""
    return await front.desk.pause(
        request.path_params["entry"], note=asked.text("note"), until=asked.end("until")
    )


async def resume(front: Front, request: Request, _: Fields) -> Answer:
    """Let an entry go on."""
    return await front.desk.resume(request.path_params["entry"])


async def backfill(front: Front, request: Request, asked: Fields) -> Answer:
    """Run an entry for every moment of a past window."""
    return await front.desk.backfill(
        request.path_params["entry"],
        start=asked.needed_moment("from"),
        end=asked.moment("to"),
        name=asked.text("id") or None,
        dry_run=asked.flag("dry_run"),
    )


async def cancel(front: Front, request: Request, asked: Fields) -> Answer:
    """Let a run end."""
    number = path_number(request)

    def end(receipt: int, reason: str) -> bool:
        live = front.almanac.launch.runs.get(receipt)
        is_it = live is not None and live.number == number  # not an attempt after it
        return is_it and front.almanac.launch.cancel(receipt, reason)

    return await front.desk.cancel(number, end=end, reason=asked.text("reason"))


async def prune(front: Front, _: Request, asked: Fields) -> dict[str, object]:
    """Fold old receipts into ranges."""
    before, dry_run = asked.needed_moment("before"), asked.flag("dry_run")
    pruned = await front.desk.prune(before=before, dry_run=dry_run)
    return {"before": stamp(before, "UTC"), "dry_run": dry_run, **asdict(pruned)}


async def rescan(front: Front, _: Request, asked: Fields) -> dict[str, object]:
    """Read the plans again now."""
    known, source = list(front.almanac.problems), asked.text("source")
    if source and source not in known:
        raise RequestError(f"source is one of {', '.join(known)}, not {source!r}")
    names = [source] if source else known
    for name in names:
        await front.almanac.rescan(name)
    problems = front.almanac.problems
    return {
        "sources": [{"source": each, "problems": [*map(str, problems[each])]} for each in names]
    }


async def new_link(front: Front, _: Request, __: Fields) -> dict[str, Any]:
    """Make a link that logs a browser in, once, within ten minutes."""
    keys = offered(front.keys, "login")
    if not keys.url:
        raise NotOfferedError("page, since it listens at no port; `horae status` says why")
    return {"url": keys.link()}


async def new_token(front: Front, _: Request, __: Fields) -> dict[str, Any]:
    """Make a new token; every session, link and secret path ends."""
    offered(front.keys, "token").rotate()
    return {"rotated": True}


async def login(front: Front, request: Request, _: Fields) -> Response:
    """Log a browser in by a link that is good once."""
    keys = offered(front.keys, "login")
    # A browser or a messenger that looks ahead must not use the link up.
    ahead = (request.headers.get(name, "") for name in ("purpose", "sec-purpose", "x-moz"))
    if any("prefetch" in each for each in ahead):
        raise HttpRequestError(HTTPStatus.BAD_REQUEST, "a login link is for a person to follow")
    if not keys.take_code(request.path_params["code"]):
        return HTMLResponse(_SPENT, HTTPStatus.NOT_FOUND, headers=HEADERS)
    cookie = (
        f"{keys.cookie}={keys.new_session()}; Max-Age={int(SESSION.total_seconds())}; "
        "Path=/; HttpOnly; SameSite=Strict"
    )
    if keys.url.startswith("https:"):
        cookie += "; Secure"
    return HTMLResponse(_WELCOME, headers={**HEADERS, "Set-Cookie": cookie})


def _is_live(front: Front, run: Run) -> bool:
    """Tell whether the engine still has a run; if not, its end is in the ledger."""
    live = front.almanac.launch.runs.get(run.receipt)
    return live is not None and live.number == run.number


# A cookie that no other site's request carries is not sent where such a request leads on to;
# so this page goes on by itself.
_WELCOME: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Horae</title>
<meta http-equiv="refresh" content="0; url=/"></head>
<body><p>You are logged in. <a href="/">Go on</a></p></body></html>
"""
_SPENT: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Horae</title></head>
<body><h1>This link is used up</h1>
<p>A login link is good once, for ten minutes. <code>horae open</code> makes another one.</p>
</body></html>
"""

# The table

_ENTRY: Final = "/api/v1/entries/{entry:path}"
_CURSOR: Final = number("cursor", "of the page before")
_NOTE: Final = text("note", "what is said about it")
_GATE: Final = shape(
    slots=NUMBER,
    crew=maybe(NUMBER),
    holding=listed(
        shape(
            receipt=NUMBER,
            entry=NUMBER,
            title=TEXT,
            slot=maybe(NUMBER),
            kind=TEXT,
            since=MOMENT,
            parent=maybe(NUMBER),
        )
    ),
    waiting=listed(
        shape(
            receipt=NUMBER,
            entry=NUMBER,
            title=TEXT,
            due_at=MOMENT,
            reason=TEXT,
            behind=maybe(NUMBER),
        )
    ),
    in_line=NUMBER,
)
_WHY: Final = shape(
    at=MOMENT,
    entry=named("Entry"),
    from_=maybe(MOMENT),
    to=maybe(MOMENT),
    answers=listed(WHY_ANSWER),
    before=maybe(MOMENT),
    after=maybe(MOMENT),
    more=FLAG,
)
_BACKFILL: Final = shape(
    id=TEXT,
    entry=NUMBER,
    title=TEXT,
    zone=TEXT,
    from_=MOMENT,
    to=MOMENT,
    dry_run=FLAG,
    count=NUMBER,
    moments=listed(MOMENT),
    receipts=listed(NUMBER),
)
_PRUNED: Final = shape(
    before=MOMENT, dry_run=FLAG, receipts=NUMBER, runs=NUMBER, events=NUMBER, texts=NUMBER
)
_RESCAN: Final = shape(sources=listed(shape(source=TEXT, problems=listed(TEXT))))


def _asks(path: str, answer: Any, says: dict[str, Any], *query: Field, **more: Any) -> Operation:
    """Return a question."""
    if "{" in path:
        more.setdefault("also", (404,))
    return Operation("GET", path, answer, says, query=query, **more)


def _does(path: str, answer: Any, says: dict[str, Any], *body: Field, **more: Any) -> Operation:
    """Return a request."""
    more.setdefault("also", (404, 409))
    return Operation("POST", path, answer, says, body=body, takes=Takes.FIELDS, **more)


OPERATIONS: Final[tuple[Operation, ...]] = (
    _asks("/healthz", health, named("Health"), access=Access.OPEN),
    _asks("/readyz", ready, named("Health")),
    _asks("/openapi.json", openapi, FACTS),
    _asks("/docs", docs, TEXT, kind="text/html"),
    _asks("/login/{code}", login, TEXT, kind="text/html", access=Access.OPEN, is_once=True),
    _does("/api/v1/login", new_link, shape(url=TEXT)),
    _does("/api/v1/token", new_token, shape(rotated=FLAG)),
    _asks("/api/v1/status", status, named("Status"), limit(20, "how many of each kind")),
    _asks(
        "/api/v1/entries",
        entries,
        shape(entries=listed(named("Entry")), cursor=maybe(NUMBER)),
        limit(100),
        _CURSOR,
        flag("gone", "1: those that are gone, too"),
    ),
    _does(
        f"{_ENTRY}/run",
        run_now,
        named("Receipt"),
        _NOTE,
        number("parent_run", "the run inside which it is asked for"),
        headers=("Idempotency-Key",),
    ),
    with_tag(
        _does(
            f"{_ENTRY}/pause",
            pause,
            and_also(ENTRY, changed=FLAG),
            _NOTE,
            Field("until", Kind.END, "until when: a moment, or a length such as 2h"),
        ),
        entry_tag,
    ),
    with_tag(_does(f"{_ENTRY}/resume", resume, and_also(ENTRY, changed=FLAG)), entry_tag),
    _does(
        f"{_ENTRY}/backfill",
        backfill,
        _BACKFILL,
        needed(moment("from", "where the window begins")),
        moment("to", "where it ends; else now"),
        text("id", "its name; the same again files nothing twice"),
        flag("dry_run", "true: say what would run, and run nothing"),
        is_long=True,
    ),
    with_tag(_asks(_ENTRY, entry, named("Entry")), entry_tag),
    *calendar.OPERATIONS,
    _asks("/api/v1/agents", agents, shape(agents=listed(named("Agent"))), limit(100)),
    _asks("/api/v1/agents/{name}", agent, named("Agent")),
    _does("/api/v1/agents/{name}/tick", tick, named("Receipt"), _NOTE),
    *board.OPERATIONS,
    _asks(
        "/api/v1/receipts",
        receipts,
        shape(receipts=listed(named("Receipt")), cursor=maybe(NUMBER)),
        text("entry", "only of this entry"),
        moment("since", "planned at this moment or later"),
        moment("until", "planned at this moment or before"),
        Field(
            "status",
            Kind.WORD,
            "only these; it may be there more than once",
            is_many=True,
            words=tuple(each.value for each in Status),
        ),
        limit(50),
        _CURSOR,
        also=(404,),
    ),
    _asks("/api/v1/receipts/{number}", receipt, and_also(RECEIPT, runs=listed(ATTEMPT))),
    _asks("/api/v1/runs/{number}", run, named("Run")),
    _asks(
        "/api/v1/runs/{number}/log",
        log,
        TEXT,
        number("from", "this byte on"),
        number("to", "up to this byte"),
        flag("follow", "1: until the run ends"),
        kind="text/plain; charset=utf-8",
        is_long=True,
    ),
    _does(
        "/api/v1/runs/{number}/cancel",
        cancel,
        and_also(RUN, changed=FLAG),
        text("reason", "why"),
    ),
    _asks(
        "/api/v1/why",
        why,
        _WHY,
        needed(text("entry", "which entry")),
        text("at", "as after the @ of `horae why`"),
        limit(20),
        also=(404,),
    ),
    _asks("/api/v1/nodes", nodes, shape(nodes=listed(named("Node")))),
    _asks("/api/v1/gate", gate, _GATE, limit(100, "how many of those who wait")),
    _asks(
        "/api/v1/events",
        events,
        shape(events=listed(named("Event")), after=NUMBER),
        number("after", "this event"),
        limit(100),
    ),
    _asks(
        "/api/v1/events/stream",
        event_stream,
        TEXT,
        number("after", "this event; else from now on"),
        kind="text/event-stream",
        headers=("Last-Event-ID",),
        is_long=True,
    ),
    _does(
        "/api/v1/prune",
        prune,
        _PRUNED,
        needed(moment("before", "which receipts are old")),
        flag("dry_run", "true: say what would be folded, and fold nothing"),
        is_long=True,
    ),
    _does("/api/v1/rescan", rescan, _RESCAN, text("source", "only this source")),
    *metrics.OPERATIONS,
    *(
        with_tag(each, WRITTEN[each.path]) if each.path in WRITTEN else each
        for each in triggers.OPERATIONS
    ),
    *workflows.OPERATIONS,
    *public.OPERATIONS,
)
