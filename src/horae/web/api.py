"""The API: the routes of a running engine, and the application that answers them.

A question is a GET and changes nothing, a request is a POST or a PUT with a JSON object. An answer
is the struct that the service returns, an error one problem document (RFC 9457). Router, guard
and the document of the API are all made from the same operations; those of a source are loaded
when a path of theirs is first requested.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import nullcontext, suppress
from datetime import datetime, timedelta
from functools import cache
from http import HTTPStatus
from itertools import islice
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import asdict
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router, compile_path

from horae.config import TrustReport, WaitingSettings
from horae.core import views
from horae.core.actor import Scope
from horae.core.budget import CostGroup
from horae.core.engine import LONGEST_REST
from horae.core.entry import CadenceRule, Entry
from horae.core.explain import AskedMomentError, parse_ask
from horae.core.inbox import EntryFilter, EntrySort, EntryState, InboxState
from horae.core.lease import NodePage
from horae.core.receipt import Reason, Status
from horae.core.text import is_number
from horae.core.views import RequestError, Shape, Time
from horae.errors import HoraeError
from horae.sources import agents, board, crew, plans, triggers, workflows
from horae.timing.duration import DurationError, parse_duration
from horae.web import answer, calendar, guard, metrics, router, stream
from horae.web.fields import (
    Cursor,
    Days,
    Fields,
    Limit,
    Note,
    Number,
    Required,
    Text,
    Word,
    about,
    moment_of,
)
from horae.web.front import Front, NotOfferedError, offered, tag_of_entry
from horae.web.router import Access, Operation, Routes
from horae.web.stream import Feed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from starlette.types import ASGIApp, Receive, Scope as Incoming, Send

    from horae.core.gate import SlotRequest

FORMS: Final = "/do"  # before the path of a route: the same, posted by a form of a page
CHANGES: Final = 30  # commits that everybody may see


def asgi_app(front: Front, *, pages: Callable[[], Sequence[BaseRoute]] | None = None) -> Starlette:
    """Return the application of an engine; *pages* gives the routes for people."""
    shown = None if pages is None else _when_asked(pages)

    @cache
    def router_of(source: str) -> Router:
        routes = []
        for each in _operations(source):
            route = Route(each.path, answer_of(front, each), methods=[each.method])
            route.methods = {*each.methods}
            routes.append(route)
        others = router_of("") if source else shown
        return Router(routes, redirect_slashes=False, default=others)

    async def routed(scope: Incoming, receive: Receive, send: Send) -> None:
        await router_of(_source_of(scope["path"]))(scope, receive, send)

    made = Starlette(
        exception_handlers={
            HoraeError: answer.on_error,
            HTTPStatus.NOT_FOUND: answer.on_no_route,
            HTTPStatus.METHOD_NOT_ALLOWED: answer.on_no_method,
            ClientDisconnect: answer.on_leave,
            Exception: answer.on_bug,
        },
    )
    made.router.default = routed
    made.router.redirect_slashes = False  # it would trust the Host that a client claims
    made.state.allowed = allowed
    made.state.together = answer.Together()
    made.state.feed = Feed(front.service, front.closing)
    made.state.edits = asyncio.Lock()  # one after the other, so that a tag holds until it counts
    return made


def _when_asked(pages: Callable[[], Sequence[BaseRoute]]) -> ASGIApp:
    """Return an application whose routes are loaded with its first request."""
    made = cache(lambda: Router(pages(), redirect_slashes=False))

    async def shown(scope: Incoming, receive: Receive, send: Send) -> None:
        await (await asyncio.to_thread(made))(scope, receive, send)

    return shown


def operation_of(method: str, path: str) -> Operation | None:
    # As the router does it: the first that fits both, and a HEAD is a GET without a body.
    if method == "POST" and path.startswith(f"{FORMS}/"):
        found = _found(path.removeprefix(FORMS))
        return next((each for each in found if each.method in {"POST", "PUT"}), None)
    return next((each for each in _found(path) if method in each.methods), None)


def allowed(path: str) -> list[str]:
    """Return the methods that a path has, for the header Allow."""
    return sorted({method for each in _found(path) for method in each.methods})


def _found(path: str) -> Iterator[Operation]:
    for source in dict.fromkeys((_source_of(path), "")):
        yield from (operation for pattern, operation in _patterns(source) if pattern.match(path))


def _source_of(path: str) -> str:
    """Return the name of the source whose routes may have a path; "" is none."""
    found = _SOURCE_PATHS.fullmatch(path)
    return "" if found is None else found.lastgroup or ""


@cache
def _patterns(source: str) -> list[tuple[re.Pattern[str], Operation]]:
    return [(compile_path(each.path)[0], each) for each in _operations(source)]


def answer_of(front: Front, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    """Return what answers the requests of a route."""

    async def endpoint(request: Request) -> Response:
        try:
            return await answered(request, await router.read(request, operation))
        finally:
            if operation.method != "GET":
                request.app.state.together.forget()

    async def answered(request: Request, given: dict[str, Any]) -> Response:
        if operation.tag is None:
            return await plainly(request, given)
        if operation.method == "GET":
            # The tag first: what is changed in between is then refused, not lost.
            tag = await operation.tag(front, request)
            done = await plainly(request, given)
            done.headers["ETag"] = f'"{tag}"'
            return done
        async with request.app.state.edits:
            wanted = router.expected(request)
            if wanted is not None and wanted != await operation.tag(front, request):
                raise router.ChangedError
            done = await plainly(request, given)
            with suppress(HoraeError):  # it may go by another name now, or be gone
                done.headers["ETag"] = f'"{await operation.tag(front, request)}"'
            return done

    async def plainly(request: Request, given: dict[str, Any]) -> Response:
        is_left = operation.is_left or operation.method == "GET"
        async with router.while_connected(request) if is_left else nullcontext():
            said = await operation.handler(front=front, **given)
        if not isinstance(said, Response):
            # A long page takes a while to write down, and the engine must not wait for it.
            said = await asyncio.to_thread(answer.as_json, said, operation.status)
        return await answer.shrunk(request, said)

    return endpoint


# What is asked of an engine

routes = Routes()
_ENTRY: Final = "/api/v1/entries/{entry:path}"
_READ, _RUN, _EDIT, _ADMIN = Scope.READ, Scope.RUN, Scope.EDIT, Scope.ADMIN


@routes.get("/healthz", Access.OPEN, answer=views.HealthReport)
async def health(front: Front) -> Response:
    """Report whether the scheduling loop runs and the ledger is writable."""
    return _health(front)


@routes.get("/readyz", _READ, answer=views.HealthReport)
async def ready(front: Front) -> Response:
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
    said = views.HealthReport(
        ok=not problems,
        at=now,
        turned_at=turned_at,
        loop_lag_seconds=max(0.0, lag.total_seconds()),
        ledger_writable=trouble is None,
        problems=tuple(problems),
    )
    return answer.as_json(said, HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK)


class StatusQuery(Fields, frozen=True):
    limit: Annotated[Limit, about("maximum number of items of each kind")] = 20


@routes.get("/api/v1/status", _READ, answer=views.StatusReport)
async def status(front: Front, request: Request, query: StatusQuery) -> Response:
    """Show the status: what is running, waiting, next, late, missed and failed."""

    async def looked() -> Response:
        return await asyncio.to_thread(answer.as_json, await front.status(limit=query.limit))

    together: answer.Together = request.app.state.together
    return await together.ask(query.limit, looked)


@routes.get("/openapi.json", _READ, answer=dict[str, Any])
async def openapi(front: Front) -> Response:  # noqa: ARG001
    """Return this document."""
    text, _ = await asyncio.to_thread(_described)
    return Response(text, headers=answer.HEADERS, media_type=router.JSON)


@cache
def _described() -> tuple[bytes, str]:
    """Return the document of the API, and the page that shows all routes."""
    from horae.web.openapi import document, page  # loads jinja2

    return answer.encoded(document(operations())), page(operations())


@routes.get("/docs", _READ, kind="text/html")
async def docs(front: Front) -> Response:  # noqa: ARG001
    """Show all routes as a web page."""
    _, text = await asyncio.to_thread(_described)
    return answer.styled(text.encode(), HTTPStatus.OK)


class EntriesQuery(Fields, frozen=True):
    limit: Limit = 100
    cursor: Cursor = None
    gone: Annotated[bool, about("true: include entries that are no longer defined")] = False


@routes.get("/api/v1/entries", _READ)
async def entries(front: Front, query: EntriesQuery) -> views.EntryPage:
    """List the entries, oldest first."""
    return await front.service.entries(limit=query.limit, cursor=query.cursor, with_gone=query.gone)


class EntryListQuery(Fields, frozen=True):
    state: Annotated[tuple[EntryState, ...], about("only entries in these states")] = ()
    source: Annotated[tuple[Word, ...], about("only entries of these sources")] = ()
    file: Annotated[Word, about("only entries of this file")] = ""
    search: Annotated[Word, about("only entries with all these words")] = ""
    agent: Annotated[Word, about("only entries that need this agent")] = ""
    sort: Annotated[EntrySort, about("the order; last: newest first")] = EntrySort.TITLE
    limit: Limit = 100
    offset: Annotated[Number, about("number of entries to leave out")] = 0
    gone: Annotated[bool, about("true: include entries that are no longer defined")] = False


@routes.get("/api/v1/entry-list", _READ)
async def entry_list(front: Front, query: EntryListQuery) -> views.EntryList:
    """List the entries with the state and the last results of each, filtered and sorted."""
    entry_filter = EntryFilter(
        query.state, query.source, query.file, query.search, query.agent, query.gone
    )
    how: dict[str, Any] = {"sort": query.sort, "limit": query.limit, "offset": query.offset}
    return await front.service.entry_list(entry_filter, **how)


class InboxQuery(Fields, frozen=True):
    limit: Annotated[Number, about("maximum number of entries; 0: only the count")] = 100


@routes.get("/api/v1/inbox", _READ)
async def inbox(front: Front, query: InboxQuery) -> views.Inbox:
    """List the entries that need attention, most urgent first."""
    return await front.service.inbox(limit=min(query.limit, 1000))


class AcknowledgeRequest(Fields, frozen=True):
    state: Annotated[InboxState | None, about("only if the entry is in this state")] = None
    note: Note = ""
    until: Annotated[Text, about("end of a snooze: a time, or a duration such as 2h")] = ""


@routes.post(f"{_ENTRY}/acknowledge", _RUN)
async def acknowledge(front: Front, entry: str, body: AcknowledgeRequest) -> views.InboxLine:
    """Take an entry out of the inbox until its state changes, or until a time."""
    until = _until(body.until)
    return await front.service.acknowledge(entry, state=body.state, note=body.note, until=until)


@routes.post(f"{_ENTRY}/unacknowledge", _RUN)
async def unacknowledge(front: Front, entry: str) -> views.InboxLine:
    """Put an entry back into the inbox."""
    return await front.service.unacknowledge(entry)


def _until(text: str) -> timedelta | datetime | None:
    try:
        return parse_duration(text)
    except DurationError:
        return moment_of("until", text)


class SearchQuery(Fields, frozen=True):
    q: Annotated[Word, about("words, or the number of a receipt")] = ""
    limit: Limit = 12


@routes.get("/api/v1/search", _READ)
async def search(front: Front, query: SearchQuery) -> views.SearchResults:
    """Find entries, agents, tasks, triggers, receipts and files."""
    return await front.service.search(query.q.strip(), limit=query.limit)


class RunRequest(Fields, frozen=True):
    note: Note = ""
    parent_run: Annotated[Number | None, about("number of the run that makes the request")] = None


@routes.post(f"{_ENTRY}/run", _RUN)
async def run_now(
    front: Front, entry: str, body: RunRequest, idempotency_key: str | None
) -> views.ReceiptLine:
    """Request a run now; the same Idempotency-Key returns the same receipt."""
    note, parent, key = body.note, body.parent_run, idempotency_key
    return await front.service.run_now(entry, note=note, parent_run=parent, idempotency_key=key)


class RetryRequest(Fields, frozen=True):
    receipt: Annotated[Number | None, about("receipt of the entry; default: its last")] = None
    parent_run: Annotated[Number | None, about("number of the run that makes the request")] = None


@routes.post(f"{_ENTRY}/retry", _RUN)
async def retry(front: Front, entry: str, body: RetryRequest) -> views.ReceiptLine:
    """Run an entry again, for the same scheduled time if that is still part of its schedule."""
    parent = body.parent_run
    return await front.service.retry(entry, receipt=body.receipt, parent_run=parent)


async def _entry_tag(front: Front, request: Request) -> str:
    return tag_of_entry(await front.service.named(request.path_params["entry"]))


class PauseRequest(Fields, frozen=True):
    note: Note = ""
    until: Annotated[Text, about("end of the pause: a time, or a duration such as 2h")] = ""


@routes.post(f"{_ENTRY}/pause", _RUN, tag=_entry_tag)
async def pause(front: Front, entry: str, body: PauseRequest) -> views.PauseResult:
    """Pause an entry."""
    return await front.service.pause(entry, note=body.note, until=_until(body.until))


@routes.post(f"{_ENTRY}/resume", _RUN, tag=_entry_tag)
async def resume(front: Front, entry: str) -> views.ResumeResult:
    """Resume an entry."""
    return await front.service.resume(entry)


class BackfillRequest(Fields, frozen=True):
    start: Annotated[Time, about("start of the window")]
    end: Annotated[Time | None, about("end of the window; default: now")] = None
    id: Annotated[Text, about("name of the backfill; a repeated name adds no receipts")] = ""
    dry_run: Annotated[bool, about("true: report what would run, run nothing")] = False


@routes.post(f"{_ENTRY}/backfill", _RUN, is_long=True)
async def backfill(front: Front, entry: str, body: BackfillRequest) -> views.Backfill:
    """Run an entry once for each scheduled time in a past window."""
    return await front.service.backfill(
        entry, start=body.start, end=body.end, name=body.id or None, dry_run=body.dry_run
    )


@routes.get(_ENTRY, _READ, tag=_entry_tag)
async def entry(front: Front, entry: str) -> views.EntryLine:
    """Show one entry."""
    return await front.service.entry(entry)


class ReceiptsQuery(Fields, frozen=True):
    entry: Annotated[Word, about("only receipts of this entry")] = ""
    since: Annotated[Time | None, about("scheduled at this time or later")] = None
    until: Annotated[Time | None, about("scheduled at this time or earlier")] = None
    status: Annotated[tuple[Status, ...], about("only these statuses; may be repeated")] = ()
    limit: Limit = 50
    cursor: Cursor = None


@routes.get("/api/v1/receipts", _READ, also=(404,))
async def receipts(front: Front, query: ReceiptsQuery) -> views.History:
    """List receipts, newest first."""
    return await front.service.history(
        query.entry or None,
        since=query.since,
        until=query.until,
        statuses=query.status,
        limit=query.limit,
        cursor=query.cursor,
    )


class CostsQuery(Fields, frozen=True):
    by: Annotated[CostGroup, about("what one row is about")] = CostGroup.ENTRY
    days: Annotated[Days, about("how many days, with today")] = 7


@routes.get("/api/v1/costs", _READ)
async def costs(front: Front, query: CostsQuery) -> views.CostReport:
    """Return what the runs of the last days cost, and where the budgets stand."""
    return await front.service.costs(by=query.by, days=query.days)


class ForecastQuery(Fields, frozen=True):
    entry: Annotated[Word, about("only this entry")] = ""
    days: Annotated[Days, about("how many days from now")] = 7


@routes.get("/api/v1/forecast", _READ, also=(404,))
async def forecast(front: Front, query: ForecastQuery) -> views.ForecastReport:
    """Return what scheduled runs are expected to cost."""
    return await front.service.forecast(query.entry or None, days=query.days)


@routes.get("/api/v1/receipts/{number}", _READ)
async def receipt(front: Front, number: int) -> views.ReceiptDetail:
    """Show one receipt with its runs."""
    return await front.service.receipt(number)


@routes.get("/api/v1/runs/{number}", _READ)
async def run(front: Front, number: int) -> views.RunLine:
    """Show one run."""
    return await front.service.run(number)


class LastRunQuery(Fields, frozen=True):
    entry: Annotated[Word, Meta(min_length=1), about("the entry")]
    going: Annotated[bool, about("true: only the run in progress")] = False


@routes.get("/api/v1/last-run", _READ, also=(404, 409))
async def last_run(front: Front, query: LastRunQuery) -> views.RunLine:
    """Show the last run of an entry, or the run in progress."""
    return await front.last_run(query.entry, going=query.going)


class CancelRequest(Fields, frozen=True):
    reason: Annotated[Text, about("reason for the cancellation")] = ""


@routes.post("/api/v1/runs/{number}/cancel", _RUN)
async def cancel(front: Front, number: int, body: CancelRequest) -> views.CancelResult:
    """Cancel a run."""

    def end(receipt: int, reason: Reason) -> bool:
        live = front.engine.launch.runs.get(receipt)
        is_it = live is not None and live.number == number  # not an attempt after it
        return is_it and front.engine.launch.cancel(receipt, reason)

    return await front.service.cancel(number, end=end, reason=body.reason)


class WhyQuery(Fields, frozen=True):
    entry: Annotated[Word, Meta(min_length=1), about("the entry")]
    at: Annotated[Word, about("time, as after the @ of `horae why`")] = ""
    limit: Limit = 20


@routes.get("/api/v1/why", _READ, also=(404,))
async def why(front: Front, query: WhyQuery) -> views.WhyLines:
    """Explain why an entry ran or did not run."""
    ask = parse_ask(f"{query.entry}@{query.at}" if query.at else query.entry)
    if query.at and ask.start is None:
        raise AskedMomentError(query.at)
    return await front.why(ask, limit=query.limit)


@routes.get("/api/v1/nodes", _READ)
async def nodes(front: Front) -> NodePage:
    """List the nodes of the cluster; the list is empty without a cluster."""
    return NodePage(nodes=await front.node_list())


class GateQuery(Fields, frozen=True):
    limit: Annotated[Limit, about("maximum number of waiting receipts")] = 100


@routes.get("/api/v1/gate", _READ)
async def gate(front: Front, query: GateQuery) -> views.GateReport:
    """List the receipts that hold a slot, and those that wait and why."""
    gate = front.engine.gate
    line = gate.obstacles(now=front.clock.now())
    holding, waiting = [], []

    async def told(ask: SlotRequest) -> tuple[dict[str, Any], str]:
        filed = await front.service.receipt(ask.number)
        return {"receipt": ask.number, "entry": ask.entry, "title": filed.title}, filed.zone

    for each in gate.holders:
        whose, zone = await told(each.ask)
        whose |= {"slot": each.slot, "kind": each.kind.value, "parent": each.ask.parent}
        holding.append(views.SlotHolder(**whose, since=views.zoned(each.since, zone)))
    for obstacle in islice(line, query.limit):
        whose, zone = await told(obstacle.ask)
        whose |= {"reason_code": obstacle.reason.code, "behind": obstacle.behind}
        due_at = views.zoned(obstacle.ask.due_at, zone)
        waiting.append(views.SlotWaiter(**whose, due_at=due_at, reason=str(obstacle.reason)))
    return views.GateReport(
        slots=gate.capacity.slots,
        crew=gate.capacity.crew,
        holding=tuple(holding),
        waiting=tuple(waiting),
        in_line=len(line),
    )


class EventsQuery(Fields, frozen=True):
    after: Annotated[Number, about("number of the last known event")] = 0
    limit: Limit = 100


@routes.get("/api/v1/events", _READ)
async def events(front: Front, query: EventsQuery) -> views.EventPage:
    """List the events after a given event."""
    return await front.service.events(after=query.after, limit=query.limit)


class StreamQuery(Fields, frozen=True):
    after: Annotated[Number | None, about("number of the last known event; default: now")] = None


@routes.get(
    "/api/v1/events/stream",
    _READ,
    kind="text/event-stream",
    headers=("Last-Event-ID",),
    is_long=True,
)
async def event_stream(front: Front, request: Request, query: StreamQuery) -> Response:
    """Stream events as they happen, after the last event received, else from now on."""
    heard = request.headers.get("last-event-id", "")
    after = int(heard) if is_number(heard) else query.after
    if after is None:
        after = front.since if front.ledger is None else await front.ledger.newest_event()
    feed: Feed = request.app.state.feed
    return answer.streamed(feed.listen(after), "text/event-stream")


class RestartRequest(Fields, frozen=True):
    wait: Annotated[bool, about("true: wait for runs that cannot continue, however long")] = False


@routes.post("/api/v1/restart", _ADMIN, is_long=True)
async def restart(front: Front, body: RestartRequest) -> views.RestartAnswer:
    """Restart the engine, also with a newer version; current runs continue."""
    return await offered(front.control, "way to restart").ask_restart(wait=body.wait)


class StopRequest(Fields, frozen=True):
    wait: Annotated[bool, about("true: wait for all runs, however long they take")] = False


@routes.post("/api/v1/stop", _ADMIN)
async def stop(front: Front, body: StopRequest) -> views.StopAnswer:
    """Stop the engine; its runs get time to end."""
    return offered(front.control, "way to stop").ask_stop(wait=body.wait)


class PruneRequest(Fields, frozen=True):
    before: Annotated[Time, about("remove the details of receipts from before this time")]
    dry_run: Annotated[bool, about("true: report what would be removed, change nothing")] = False


@routes.post("/api/v1/prune", _ADMIN, is_long=True)
async def prune(front: Front, body: PruneRequest) -> views.PruneReport:
    """Summarise old receipts as ranges and remove their details."""
    pruned = await front.service.prune(before=body.before, dry_run=body.dry_run)
    return views.PruneReport(before=body.before, dry_run=body.dry_run, **asdict(pruned))


@routes.get("/api/v1/settings/waiting", _READ, also=(404,))
async def settings(front: Front) -> WaitingSettings:
    """List the settings of horae.toml that wait for confirmation."""
    return await offered(front.settings, "settings").look()


class TrustRequest(Fields, frozen=True):
    digest: Annotated[Text, about("digest of the reviewed settings")] = ""


@routes.post("/api/v1/settings/trust", _ADMIN)
async def trust(front: Front, body: TrustRequest) -> TrustReport:
    """Trust the settings that a digest identifies."""
    return await offered(front.settings, "settings").trust(body.digest)


class EditRequest(Fields, frozen=True):
    file: Annotated[Required, about("path of the file, relative to the plan root")]
    what: Annotated[Required, about("what was changed")]


@routes.post("/api/v1/edits", _EDIT)
async def edits(front: Front, body: EditRequest) -> views.EditNote:
    """Record that a command has edited a file."""
    return await front.service.note_edit(body.file, body.what)


class RescanRequest(Fields, frozen=True):
    source: Annotated[Text, about("only this source")] = ""


@routes.post("/api/v1/rescan", _RUN)
async def rescan(front: Front, body: RescanRequest) -> views.RescanReport:
    """Read the plans again now."""
    known, source = list(front.engine.problems), body.source
    if source and source not in known:
        raise RequestError(f"source must be one of {', '.join(known)}, not {source!r}")
    names = [source] if source else known
    for name in names:
        await front.engine.rescan(name)
    problems = front.engine.problems
    said = ((each, tuple(map(str, problems[each]))) for each in names)
    return views.RescanReport(
        sources=tuple(views.SourceProblems(source=name, problems=found) for name, found in said)
    )


# The public plane: status and nothing else, no output, no prompts, no reasons


class PublicRuns(Shape, frozen=True, kw_only=True):
    running: bool
    last_run: int | None
    next_run: int | None
    lifecycle: views.AgentPosition | None


class PublicStatus(PublicRuns, frozen=True, kw_only=True):
    active: bool
    agent: str
    interval_ms: int | None


class PublicAgent(PublicRuns, frozen=True, kw_only=True):
    name: str
    steps: tuple[Any, ...] = ()
    thought: str | None = None


class PublicActivity(Shape, frozen=True, kw_only=True):
    """Of one agent `steps` and `thought`, of several `agents` and `wire`."""

    agent: PublicStatus | None
    steps: tuple[Any, ...] | UnsetType = UNSET
    thought: str | UnsetType | None = UNSET
    agents: tuple[PublicAgent, ...] | UnsetType = UNSET
    wire: tuple[Any, ...] | UnsetType = UNSET


class PublicCommit(Shape, frozen=True):
    sha: str
    ts: int
    author: str
    msg: str


class PublicChanges(Shape, frozen=True, kw_only=True):
    changes: list[PublicCommit]
    agent: PublicStatus | None


@routes.get("/_activity", Access.PUBLIC, also=(404,))
async def activity(front: Front) -> PublicActivity:
    """Show for each agent whether it is running, its last and next run, its lifecycle state."""
    found = await _public_agents(front)
    shown = await _public_status(front, found)
    if len(found) == 1:
        return PublicActivity(agent=shown, steps=(), thought=None)
    agents = tuple(PublicAgent(name=each.agent, **_public(each)) for each in found)
    return PublicActivity(agent=shown, agents=agents, wire=())


@routes.get("/_changes", Access.PUBLIC, also=(404,))
async def changes(front: Front) -> PublicChanges:
    """List the newest commits of the plan root."""
    shown = await _public_status(front, await _public_agents(front))
    found = [] if front.changes is None else await front.changes(CHANGES)
    commits = [PublicCommit(e.sha, int(e.at.timestamp()), e.author, e.subject) for e in found]
    return PublicChanges(changes=commits, agent=shown)


async def _public_agents(front: Front) -> list[views.AgentLine]:
    if not front.is_public:
        raise NotOfferedError("public status; `server.public` is off")
    return await front.service.agents(limit=1000)


async def _public_status(front: Front, found: list[views.AgentLine]) -> PublicStatus | None:
    agent = next((each for each in found if each.running), found[0] if found else None)
    if agent is None:
        return None
    known = None if front.ledger is None else await front.ledger.entry(agent.entry)
    rule = known.item.rule if known is not None and isinstance(known.item, Entry) else None
    base = rule.base if isinstance(rule, CadenceRule) else None
    interval = None if base is None else int(base.total_seconds() * 1000)
    is_active = known is not None and known.is_armed
    about = _public(agent) | {"agent": agent.agent, "interval_ms": interval}
    return PublicStatus(active=is_active, **about)


def _public(agent: views.AgentLine) -> dict[str, Any]:
    times = {"last_run": agent.last_run, "next_run": agent.next_run}
    seconds = {key: None if at is None else int(at.timestamp()) for key, at in times.items()}
    return {**seconds, "running": agent.running, "lifecycle": agent.lifecycle}


_SOURCES: Final[dict[str, ModuleType]] = {
    "plans": plans,
    "crew": crew,
    "board": board,
    "triggers": triggers,
    "workflows": workflows,
    "agents": agents,
}
_SOURCE_PATHS: Final = re.compile(
    f"(?:{'|'.join(f'(?P<{name}>{each.PATHS})' for name, each in _SOURCES.items())})(?:/.*)?",
    re.DOTALL,
)


def _operations(source: str) -> Sequence[Operation]:
    if source:
        found: Routes = _SOURCES[source].routes.routes
        return found
    return [*routes, *guard.routes, *stream.routes, *calendar.routes, *metrics.routes]


def operations() -> list[Operation]:
    """Return all routes; those of all sources are loaded."""
    return [each for source in ("", *_SOURCES) for each in _operations(source)]
