"""The API: the routes of a running engine, and the application that answers them.

A question is a GET and changes nothing, a request is a POST or a PUT with a JSON object. An answer
is the `data()` of what the service says, an error one problem document (RFC 9457). Router, guard
and the document of the API are all made from OPERATIONS.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from functools import cache
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route, compile_path

from horae.core.engine import LONGEST_REST
from horae.core.entry import CadenceRule, Entry
from horae.core.explain import AskedMomentError, parse_ask, stamp
from horae.core.receipt import Reason, Status
from horae.core.scope import Scope
from horae.core.text import is_number
from horae.core.views import AgentLine, RequestError
from horae.errors import HoraeError
from horae.sources.agents import routes as agents
from horae.sources.board import routes as board
from horae.sources.crew import routes as crew
from horae.sources.triggers import routes as triggers
from horae.sources.workflows import routes as workflows
from horae.web import answer, calendar, login, metrics, router
from horae.web.openapi import document, page
from horae.web.router import asks, call, does, flag, limit, moment, needed, number, text, with_tag
from horae.web.stream import Feed, log_parts

if TYPE_CHECKING:
    import re
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from horae.core.gate import SlotRequest
    from horae.web.answer import HasData
    from horae.web.router import Front, Operation, RequestFields

CHANGES: Final = 30  # commits that everybody may see


def asgi_app(front: Front, *, pages: Sequence[BaseRoute] = ()) -> Starlette:
    """Return the application of an engine; *pages* are routes for people, beside the table's."""
    routes: list[BaseRoute] = []
    for each in OPERATIONS:
        route = Route(each.path, _endpoint(front, each), methods=[each.method])
        route.methods = set(_methods(each))
        routes.append(route)
    made = Starlette(
        routes=[*routes, *pages],
        exception_handlers={
            HoraeError: answer.on_error,
            HTTPStatus.NOT_FOUND: answer.on_no_route,
            HTTPStatus.METHOD_NOT_ALLOWED: answer.on_no_method,
            ClientDisconnect: answer.on_leave,
            Exception: answer.on_bug,
        },
    )
    made.router.redirect_slashes = False  # it would trust the Host that a client claims
    made.state.together = answer.Together()
    made.state.feed = Feed(front.service)
    made.state.plans = asyncio.Semaphore(workflows.AT_ONCE)
    made.state.edits = asyncio.Lock()  # one after the other, so that a tag holds until it counts
    return made


def operation_of(method: str, path: str) -> Operation | None:
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


def _endpoint(front: Front, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            return await answered(request, await router.read(request, operation))
        finally:
            if operation.method != "GET":
                request.app.state.together.forget()

    async def answered(request: Request, asked: RequestFields) -> Response:
        if operation.tag is None:
            return await plainly(request, asked)
        if operation.method == "GET":
            # The tag first: what is changed in between is then refused, not lost.
            tag = await operation.tag(front, request)
            done = await plainly(request, asked)
            done.headers["ETag"] = f'"{tag}"'
            return done
        async with request.app.state.edits:
            wanted = router.expected(request)
            if wanted is not None and wanted != await operation.tag(front, request):
                raise router.ChangedError
            done = await plainly(request, asked)
            with suppress(HoraeError):  # it may go by another name now, or be gone
                done.headers["ETag"] = f'"{await operation.tag(front, request)}"'
            return done

    async def plainly(request: Request, asked: RequestFields) -> Response:
        said = await operation.answer(front, request, asked)
        if isinstance(said, Response):
            return said
        # A long page takes a while to write down, and the engine must not wait for it.
        return await asyncio.to_thread(answer.told, said, operation.status)

    return endpoint


async def ready(front: Front, _: Request, __: RequestFields) -> Response:
    """Report whether the engine can start runs: healthy, not stalled, and with a plan."""
    stall = await front.engine.stall()
    blank = "the plan root contains no plan; nothing is scheduled until one appears"
    return _health(front, *([stall] if stall else ()), *([blank] if front.engine.is_blank else ()))


def _health(front: Front, *more: str) -> Response:
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
    return answer.as_json(said, HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK)


async def status(front: Front, request: Request, asked: RequestFields) -> Response:
    """Show the status: what is running, waiting, next, late, missed and failed."""
    limit = asked.limit(20)

    async def looked() -> Response:
        return await asyncio.to_thread(answer.told, await front.status(limit=limit))

    together: answer.Together = request.app.state.together
    return await together.ask(limit, looked)


async def log(front: Front, request: Request, asked: RequestFields) -> Response:
    """Return the output of a run from a byte offset on; with `follow` until the run ends."""
    follow, start, end = asked.flag("follow"), asked.number("from") or 0, asked.number("to")
    found = (await front.service.run(router.path_number(request))).run

    def goes_on() -> bool:
        # When the engine no longer has the run, its end is in the ledger.
        live = front.engine.launch.runs.get(found.receipt)
        return follow and live is not None and live.number == found.number

    parts = log_parts(front.log_of(found), start, goes_on=goes_on, clock=front.clock, end=end)
    return _streamed(parts, "text/plain; charset=utf-8")


def _streamed(parts: AsyncIterator[bytes], kind: str) -> Response:
    return StreamingResponse(parts, media_type=kind, headers=answer.HEADERS)


async def cancel(front: Front, request: Request, asked: RequestFields) -> HasData:
    """Cancel a run."""
    number = router.path_number(request)

    def end(receipt: int, reason: Reason) -> bool:
        live = front.engine.launch.runs.get(receipt)
        is_it = live is not None and live.number == number  # not an attempt after it
        return is_it and front.engine.launch.cancel(receipt, reason)

    return await front.service.cancel(number, end=end, reason=asked.text("reason"))


async def why(front: Front, _: Request, asked: RequestFields) -> HasData:
    """Explain why an entry ran or did not run."""
    word, at = asked.needed("entry"), asked.text("at")
    ask = parse_ask(f"{word}@{at}") if at else parse_ask(word)
    if at and ask.start is None:
        raise AskedMomentError(at)
    return await front.why(ask, limit=asked.limit(20))


async def gate(front: Front, _: Request, asked: RequestFields) -> dict[str, object]:
    """List the receipts that hold a slot, and those that wait and why."""
    gate, limit = front.engine.gate, asked.limit(100)
    line = gate.obstacles(now=front.clock.now())
    holding, waiting = [], []

    async def told(ask: SlotRequest) -> tuple[dict[str, object], str]:
        about = (await front.service.receipt(ask.number)).line
        return {"receipt": ask.number, "entry": ask.entry, "title": about.title}, about.zone

    for each in gate.holders:
        about, zone = await told(each.ask)
        about |= {"slot": each.slot, "kind": each.kind.value, "since": stamp(each.since, zone)}
        holding.append({**about, "parent": each.ask.parent})
    for obstacle in islice(line, limit):
        about, zone = await told(obstacle.ask)
        about |= {"due_at": stamp(obstacle.ask.due_at, zone), "reason": obstacle.reason}
        waiting.append({**about, "reason_code": obstacle.reason.code, "behind": obstacle.behind})
    known = {"slots": gate.capacity.slots, "crew": gate.capacity.crew}
    return {**known, "holding": holding, "waiting": waiting, "in_line": len(line)}


async def event_stream(front: Front, request: Request, asked: RequestFields) -> Response:
    """Stream events as they happen, after the last event received, else from now on."""
    heard = request.headers.get("last-event-id", "")
    after = int(heard) if is_number(heard) else asked.number("after")
    if after is None:
        after = front.since if front.ledger is None else await front.ledger.newest_event()
    feed: Feed = request.app.state.feed
    return _streamed(feed.listen(after), "text/event-stream")


async def prune(front: Front, _: Request, asked: RequestFields) -> dict[str, object]:
    """Summarise old receipts as ranges and remove their details."""
    before, dry_run = asked.needed_moment("before"), asked.flag("dry_run")
    pruned = await front.service.prune(before=before, dry_run=dry_run)
    return {"before": stamp(before, "UTC"), "dry_run": dry_run, **asdict(pruned)}


async def edits(front: Front, _: Request, asked: RequestFields) -> dict[str, object]:
    """Record that a command has edited a file."""
    said = {name: asked.needed(name) for name in ("file", "what")}
    await front.service.note_edit(**said)
    return {**said}


async def rescan(front: Front, _: Request, asked: RequestFields) -> dict[str, object]:
    """Read the plans again now."""
    known, source = list(front.engine.problems), asked.text("source")
    if source and source not in known:
        raise RequestError(f"source must be one of {', '.join(known)}, not {source!r}")
    names = [source] if source else known
    for name in names:
        await front.engine.rescan(name)
    problems = front.engine.problems
    said = [{"source": each, "problems": [*map(str, problems[each])]} for each in names]
    return {"sources": said}


# The public plane: status and nothing else, no output, no prompts, no reasons


async def activity(front: Front, _: Request, __: RequestFields) -> dict[str, Any]:
    """Show for each agent whether it is running, its last and next run, its lifecycle state."""
    found = await _public_agents(front)
    if len(found) == 1:
        return {"agent": await _public_status(front, found), "steps": [], "thought": None}
    agents = [
        {"name": each.name, "running": each.is_running, **_runs(each), "steps": [], "thought": None}
        for each in found
    ]
    return {"agents": agents, "wire": [], "agent": await _public_status(front, found)}


async def changes(front: Front, _: Request, __: RequestFields) -> dict[str, Any]:
    """List the newest commits of the plan root."""
    shown = await _public_agents(front)
    found = [] if front.changes is None else (await front.changes())[:CHANGES]
    return {"changes": found, "agent": await _public_status(front, shown)}


async def _public_agents(front: Front) -> tuple[AgentLine, ...]:
    if not front.is_public:
        raise router.NotOfferedError("public status; `server.public` is off")
    return (await front.service.status(front.facts(), limit=1000)).agents


async def _public_status(front: Front, found: tuple[AgentLine, ...]) -> dict[str, Any] | None:
    agent = next((each for each in found if each.is_running), found[0] if found else None)
    if agent is None:
        return None
    known = None if front.ledger is None else await front.ledger.entry(agent.entry.number)
    rule = known.item.rule if known is not None and isinstance(known.item, Entry) else None
    base = rule.base if isinstance(rule, CadenceRule) else None
    interval = None if base is None else int(base.total_seconds() * 1000)
    said = {"active": agent.entry.is_armed, "running": agent.is_running, "agent": agent.name}
    return {**said, **_runs(agent, interval_ms=interval)}


def _runs(agent: AgentLine, **more: int | None) -> dict[str, Any]:
    times = {"last_run": agent.last_run_at, "next_run": agent.entry.next_at}
    seconds = {key: None if at is None else int(at.timestamp()) for key, at in times.items()}
    return {**seconds, **more, "lifecycle": None if agent.place is None else dict(agent.place)}


# The table


async def _written_tag(front: Front, request: Request) -> str:
    """Return the tag of a workflow or an agent as it is written; whether it runs is not in it."""
    kept, name = router.offered(front.triggers, "triggers"), request.path_params["id"]
    is_agent = request.scope["path"].startswith("/agents/")
    said = await (kept.agent(name) if is_agent else kept.get(name))
    return router.tag_of({key: said[key] for key in said if not is_agent or key != "status"})


async def _entry_tag(front: Front, request: Request) -> str:
    return router.tag_of_entry(await front.service.named(request.path_params["entry"]))


_WRITTEN: Final = ("/workflows/{id}", "/agents/{id}")
_ENTRY: Final = "/api/v1/entries/{entry:path}"

_EVERY_STATUS: Final = tuple(each.value for each in Status)
_READ, _RUN, _EDIT, _ADMIN = Scope.READ, Scope.RUN, Scope.EDIT, Scope.ADMIN

# fmt: off
OPERATIONS: Final[tuple[Operation, ...]] = (
    asks("/healthz", router.Access.OPEN, call("health",
         "Report whether the scheduling loop runs and the ledger is writable.",
         lambda front, _, __: _health(front)), "Health"),
    asks("/readyz", _READ, ready, "Health"),
    asks("/api/v1/status", _READ, status, "Status",
         limit(20, "maximum number of items of each kind")),
    asks("/openapi.json", _READ, call("openapi", "Return this document.",
         lambda *_: document(OPERATIONS)), "object"),
    asks("/docs", _READ, call("docs", "Show all routes as a web page.",
         lambda *_: HTMLResponse(page(OPERATIONS), headers=answer.HEADERS)),
         "str", kind="text/html"),
    *login.OPERATIONS,
    asks("/api/v1/entries", _READ, call("entries", "List the entries, oldest first.",
         lambda front, _, asked: front.service.entries(
             limit=asked.limit(100), cursor=asked.number("cursor"), with_gone=asked.flag("gone"))),
         "entries:Entry[] cursor:int?", limit(100), router.CURSOR,
         flag("gone", "1: include entries that are no longer defined")),
    does(f"{_ENTRY}/run", _RUN, call("run_now",
         "Request a run now; the same Idempotency-Key returns the same receipt.",
         lambda front, request, asked: front.service.run_now(
             request.path_params["entry"], note=asked.text("note"),
             parent_run=asked.number("parent_run"),
             idempotency_key=router.idempotency_key(request))),
         "Receipt", router.NOTE,
         number("parent_run", "number of the run that makes the request"),
         headers=("Idempotency-Key",)),
    with_tag(_entry_tag, does(f"{_ENTRY}/pause", _RUN, call("pause", "Pause an entry.",
         lambda front, request, asked: front.service.pause(
             request.path_params["entry"], note=asked.text("note"), until=asked.end("until"))),
         "...Entry changed:bool skipped:int", router.NOTE,
         router.Field("until", "end", "end of the pause: a time, or a duration such as 2h"))),
    with_tag(_entry_tag, does(f"{_ENTRY}/resume", _RUN, call("resume", "Resume an entry.",
         lambda front, request, _: front.service.resume(request.path_params["entry"])),
         "...Entry changed:bool")),
    does(f"{_ENTRY}/backfill", _RUN, call("backfill",
         "Run an entry once for each scheduled time in a past window.",
         lambda front, request, asked: front.service.backfill(
             request.path_params["entry"], start=asked.needed_moment("from"),
             end=asked.moment("to"), name=asked.text("id") or None,
             dry_run=asked.flag("dry_run"))),
         "id entry:int title zone from:time to:time dry_run:bool count:int moments:time[]"
         " receipts:int[]",
         needed(moment("from", "start of the window")),
         moment("to", "end of the window; default: now"),
         text("id", "name of the backfill; a repeated name creates no second receipts"),
         flag("dry_run", "true: report what would run, run nothing"),
         is_long=True),
    with_tag(_entry_tag, asks(_ENTRY, _READ, call("entry", "Show one entry.",
         lambda front, request, _: front.service.entry(request.path_params["entry"])), "Entry")),
    *calendar.OPERATIONS,
    *crew.OPERATIONS,
    *board.OPERATIONS,
    asks("/api/v1/receipts", _READ, call("receipts", "List receipts, newest first.",
         lambda front, _, asked: front.service.history(
             asked.text("entry") or None, since=asked.moment("since"), until=asked.moment("until"),
             statuses=[Status(each) for each in asked.words("status")], limit=asked.limit(50),
             cursor=asked.number("cursor"))),
         "receipts:Receipt[] cursor:int?",
         text("entry", "only receipts of this entry"),
         moment("since", "scheduled at this time or later"),
         moment("until", "scheduled at this time or earlier"),
         router.Field("status", "word", "only these statuses; may be repeated",
               is_many=True, words=_EVERY_STATUS),
         limit(50), router.CURSOR, also=(404,)),
    asks("/api/v1/receipts/{number}", _READ, call("receipt", "Show one receipt with its runs.",
         lambda front, request, _: front.service.receipt(router.path_number(request))),
         "...Receipt runs:attempt[]"),
    asks("/api/v1/runs/{number}", _READ, call("run", "Show one run.",
         lambda front, request, _: front.service.run(router.path_number(request))), "Run"),
    asks("/api/v1/runs/{number}/log", _READ, log, "str",
         number("from", "offset of the first byte"),
         number("to", "offset after the last byte"),
         flag("follow", "1: stream until the run ends"),
         kind="text/plain; charset=utf-8", is_long=True),
    does("/api/v1/runs/{number}/cancel", _RUN, cancel, "...Run changed:bool",
         text("reason", "reason for the cancellation")),
    asks("/api/v1/why", _READ, why,
         "at:time entry:Entry cannot_run:str? from:time? to:time? answers:why[] before:time?"
         " after:time? more:bool",
         needed(text("entry", "the entry")),
         text("at", "time, as after the @ of `horae why`"),
         limit(20), also=(404,)),
    asks("/api/v1/nodes", _READ, call("nodes",
         "List the nodes of the cluster; the list is empty without a cluster.",
         lambda front, _, __: front.node_list()), "nodes:Node[]"),
    asks("/api/v1/gate", _READ, gate,
         "slots:int crew:int? holding:holder[] waiting:waiter[] in_line:int",
         limit(100, "maximum number of waiting receipts")),
    asks("/api/v1/events", _READ, call("events", "List the events after a given event.",
         lambda front, _, asked: front.service.events(
             after=asked.number("after") or 0, limit=asked.limit(100))),
         "events:Event[] after:int",
         number("after", "number of the last known event"), limit(100)),
    asks("/api/v1/events/stream", _READ, event_stream, "str",
         number("after", "number of the last known event; default: from now on"),
         kind="text/event-stream", headers=("Last-Event-ID",), is_long=True),
    does("/api/v1/prune", _ADMIN, prune,
         "before:time dry_run:bool receipts:int runs:int events:int texts:int",
         needed(moment("before", "remove the details of receipts from before this time")),
         flag("dry_run", "true: report what would be removed, change nothing"),
         is_long=True),
    asks("/api/v1/settings/waiting", _READ, call("settings",
         "List the settings of horae.toml that wait for confirmation.",
         lambda front, _, __: router.offered(front.settings, "settings").look()),
         "digest:str waiting:setting[]", also=(404,)),
    does("/api/v1/settings/trust", _ADMIN, call("trust",
         "Trust the settings that a digest identifies.",
         lambda front, _, asked:
             router.offered(front.settings, "settings").trust(asked.text("digest"))),
         "digest:str waiting:setting[] after_restart:str[] until_restart:bool",
         needed(text("digest", "digest of the reviewed settings"))),
    does("/api/v1/edits", _EDIT, edits, "file:str what:str",
         needed(text("file", "path of the file, relative to the plan root")),
         needed(text("what", "what was changed"))),
    does("/api/v1/rescan", _RUN, rescan, "sources:rescan[]", text("source", "only this source")),
    *metrics.OPERATIONS,
    *(with_tag(_written_tag if each.path in _WRITTEN else None, each)
      for each in triggers.OPERATIONS),
    *workflows.OPERATIONS,
    *agents.OPERATIONS,
    asks("/_activity", router.Access.PUBLIC, activity, "public_one or public_crew", also=(404,)),
    asks("/_changes", router.Access.PUBLIC, changes, "changes:object[] agent:public_status?",
         also=(404,)),
)
# fmt: on
