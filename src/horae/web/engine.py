"""The engine at work: its machines, its gate, what happens, and the chores it is asked to do."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Final

from starlette.responses import StreamingResponse

from horae.core.explain import stamp
from horae.core.scope import Scope
from horae.core.views import RequestError
from horae.web.answer import HEADERS
from horae.web.front import offered
from horae.web.request import is_number
from horae.web.shapes import (
    ANY,
    FLAG,
    MOMENT,
    NUMBER,
    TEXT,
    listed,
    maybe,
    named,
    shape,
)
from horae.web.table import Operation, asks, does, flag, limit, moment, needed, number, text

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from horae.web.answer import HasData
    from horae.web.front import Front
    from horae.web.request import RequestFields
    from horae.web.stream import Feed


async def nodes(front: Front, _: Request, __: RequestFields) -> dict[str, object]:
    """List the nodes of the cluster; the list is empty without a cluster."""
    return {"nodes": [] if front.nodes is None else await front.nodes()}


async def gate(front: Front, _: Request, asked: RequestFields) -> dict[str, object]:
    """List the receipts that hold a slot, and those that wait and why."""
    gate, limit = front.engine.gate, asked.limit(100)
    line = gate.obstacles(now=front.clock.now())
    holding = []
    for each in gate.holders:
        about = (await front.service.receipt(each.ask.number)).line
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
        about = (await front.service.receipt(obstacle.ask.number)).line
        waiting.append(
            {
                "receipt": obstacle.ask.number,
                "entry": obstacle.ask.entry,
                "title": about.title,
                "due_at": stamp(obstacle.ask.due_at, about.zone),
                "reason": obstacle.reason,
                "reason_code": obstacle.reason.code,
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


async def events(front: Front, _: Request, asked: RequestFields) -> HasData:
    """List the events after a given event."""
    return await front.service.events(after=asked.number("after") or 0, limit=asked.limit(100))


async def event_stream(front: Front, request: Request, asked: RequestFields) -> Response:
    """Stream events as they happen, after the last event received, else from now on."""
    heard = request.headers.get("last-event-id", "")
    after = int(heard) if is_number(heard) else asked.number("after")
    if after is None:
        after = front.since if front.ledger is None else await front.ledger.newest_event()
    feed: Feed = request.app.state.feed
    return StreamingResponse(feed.listen(after), media_type="text/event-stream", headers=HEADERS)


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
    return {
        "sources": [{"source": each, "problems": [*map(str, problems[each])]} for each in names]
    }


async def settings(front: Front, _: Request, __: RequestFields) -> dict[str, object]:
    """List the settings of horae.toml that wait for confirmation."""
    return await offered(front.settings, "settings").look()


async def trust(front: Front, _: Request, asked: RequestFields) -> dict[str, object]:
    """Trust the settings that a digest identifies."""
    return await offered(front.settings, "settings").trust(asked.text("digest"))


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
            reason_code=named("ReasonCode"),
            behind=maybe(NUMBER),
        )
    ),
    in_line=NUMBER,
)
_WAITING: Final = listed(shape(name=TEXT, trusted=ANY, written=ANY, commit=maybe(TEXT)))
_TRUSTED: Final = shape(
    digest=TEXT, waiting=_WAITING, after_restart=listed(TEXT), until_restart=FLAG
)
_PRUNED: Final = shape(
    before=MOMENT, dry_run=FLAG, receipts=NUMBER, runs=NUMBER, events=NUMBER, texts=NUMBER
)
_RESCAN: Final = shape(sources=listed(shape(source=TEXT, problems=listed(TEXT))))


OPERATIONS: Final[tuple[Operation, ...]] = (
    asks("/api/v1/nodes", Scope.READ, nodes, shape(nodes=listed(named("Node")))),
    asks("/api/v1/gate", Scope.READ, gate, _GATE, limit(100, "maximum number of waiting receipts")),
    asks(
        "/api/v1/events",
        Scope.READ,
        events,
        shape(events=listed(named("Event")), after=NUMBER),
        number("after", "number of the last known event"),
        limit(100),
    ),
    asks(
        "/api/v1/events/stream",
        Scope.READ,
        event_stream,
        TEXT,
        number("after", "number of the last known event; default: from now on"),
        kind="text/event-stream",
        headers=("Last-Event-ID",),
        is_long=True,
    ),
    does(
        "/api/v1/prune",
        Scope.ADMIN,
        prune,
        _PRUNED,
        needed(moment("before", "remove the details of receipts from before this time")),
        flag("dry_run", "true: report what would be removed, change nothing"),
        is_long=True,
    ),
    asks(
        "/api/v1/settings/waiting",
        Scope.READ,
        settings,
        shape(digest=TEXT, waiting=_WAITING),
        also=(404,),
    ),
    does(
        "/api/v1/settings/trust",
        Scope.ADMIN,
        trust,
        _TRUSTED,
        needed(text("digest", "digest of the reviewed settings")),
    ),
    does(
        "/api/v1/edits",
        Scope.EDIT,
        edits,
        shape(file=TEXT, what=TEXT),
        needed(text("file", "path of the file, relative to the plan root")),
        needed(text("what", "what was changed")),
    ),
    does("/api/v1/rescan", Scope.RUN, rescan, _RESCAN, text("source", "only this source")),
)
