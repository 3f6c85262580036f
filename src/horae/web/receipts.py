"""Receipts and their runs: what was done, what it put out, why, and the end of one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from starlette.responses import StreamingResponse

from horae.core.explain import AskedMomentError, at_the_gate, parse_ask
from horae.core.receipt import Status
from horae.core.scope import Scope
from horae.web.answer import HEADERS
from horae.web.request import path_number
from horae.web.shapes import (
    ATTEMPT,
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
from horae.web.stream import log_parts
from horae.web.table import (
    CURSOR,
    Field,
    FieldKind,
    Operation,
    asks,
    does,
    flag,
    limit,
    moment,
    needed,
    number,
    text,
)

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from horae.core.ports import Run
    from horae.core.receipt import Reason
    from horae.core.views import WhyReport
    from horae.web.answer import HasData
    from horae.web.front import Front
    from horae.web.request import RequestFields


async def receipts(front: Front, _: Request, asked: RequestFields) -> HasData:
    """List receipts, newest first."""
    return await front.service.history(
        asked.text("entry") or None,
        since=asked.moment("since"),
        until=asked.moment("until"),
        statuses=[Status(each) for each in asked.words("status")],
        limit=asked.limit(50),
        cursor=asked.number("cursor"),
    )


async def receipt(front: Front, request: Request, _: RequestFields) -> HasData:
    """Show one receipt with its runs."""
    return await front.service.receipt(path_number(request))


async def run(front: Front, request: Request, _: RequestFields) -> HasData:
    """Show one run."""
    return await front.service.run(path_number(request))


async def log(front: Front, request: Request, asked: RequestFields) -> Response:
    """Return the output of a run from a byte offset on; with `follow` until the run ends."""
    follow, start, end = asked.flag("follow"), asked.number("from") or 0, asked.number("to")
    found = (await front.service.run(path_number(request))).run

    def goes_on() -> bool:
        return follow and _is_live(front, found)

    parts = log_parts(front.log_of(found), start, goes_on=goes_on, clock=front.clock, end=end)
    return StreamingResponse(parts, media_type="text/plain; charset=utf-8", headers=HEADERS)


async def cancel(front: Front, request: Request, asked: RequestFields) -> HasData:
    """Cancel a run."""
    number = path_number(request)

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
    return with_obstacles(front, await front.service.why(ask, limit=asked.limit(20)))


def with_obstacles(front: Front, why: WhyReport) -> WhyReport:
    """Return why with what keeps from starting what waits at the gate."""
    obstacles = front.engine.gate.obstacles(now=front.clock.now())
    said = {each.ask.number: each.reason for each in obstacles}
    return replace(why, answers=at_the_gate(why.answers, said))


def _is_live(front: Front, run: Run) -> bool:
    """Tell whether the engine still has a run; if not, its end is in the ledger."""
    live = front.engine.launch.runs.get(run.receipt)
    return live is not None and live.number == run.number


_WHY: Final = shape(
    at=MOMENT,
    entry=named("Entry"),
    cannot_run=maybe(TEXT),
    from_=maybe(MOMENT),
    to=maybe(MOMENT),
    answers=listed(WHY_ANSWER),
    before=maybe(MOMENT),
    after=maybe(MOMENT),
    more=FLAG,
)


OPERATIONS: Final[tuple[Operation, ...]] = (
    asks(
        "/api/v1/receipts",
        Scope.READ,
        receipts,
        shape(receipts=listed(named("Receipt")), cursor=maybe(NUMBER)),
        text("entry", "only receipts of this entry"),
        moment("since", "scheduled at this time or later"),
        moment("until", "scheduled at this time or earlier"),
        Field(
            "status",
            FieldKind.WORD,
            "only these statuses; may be repeated",
            is_many=True,
            words=tuple(each.value for each in Status),
        ),
        limit(50),
        CURSOR,
        also=(404,),
    ),
    asks("/api/v1/receipts/{number}", Scope.READ, receipt, and_also(RECEIPT, runs=listed(ATTEMPT))),
    asks("/api/v1/runs/{number}", Scope.READ, run, named("Run")),
    asks(
        "/api/v1/runs/{number}/log",
        Scope.READ,
        log,
        TEXT,
        number("from", "offset of the first byte"),
        number("to", "offset after the last byte"),
        flag("follow", "1: stream until the run ends"),
        kind="text/plain; charset=utf-8",
        is_long=True,
    ),
    does(
        "/api/v1/runs/{number}/cancel",
        Scope.RUN,
        cancel,
        and_also(RUN, changed=FLAG),
        text("reason", "reason for the cancellation"),
    ),
    asks(
        "/api/v1/why",
        Scope.READ,
        why,
        _WHY,
        needed(text("entry", "the entry")),
        text("at", "time, as after the @ of `horae why`"),
        limit(20),
        also=(404,),
    ),
)
