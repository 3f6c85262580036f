"""Entries: listed and shown, let run, rest, go on, and made good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from horae.core.scope import Scope
from horae.web.edits import entry_tag, with_tag
from horae.web.request import idempotency_key
from horae.web.shapes import (
    ENTRY,
    FLAG,
    MOMENT,
    NUMBER,
    TEXT,
    and_also,
    listed,
    maybe,
    named,
    shape,
)
from horae.web.table import (
    CURSOR,
    NOTE,
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

    from horae.web.answer import HasData
    from horae.web.front import Front
    from horae.web.request import RequestFields


async def entries(front: Front, _: Request, asked: RequestFields) -> HasData:
    """List the entries, oldest first."""
    return await front.service.entries(
        limit=asked.limit(100), cursor=asked.number("cursor"), with_gone=asked.flag("gone")
    )


async def entry(front: Front, request: Request, _: RequestFields) -> HasData:
    """Show one entry."""
    return await front.service.entry(request.path_params["entry"])


async def run_now(front: Front, request: Request, asked: RequestFields) -> HasData:
    """Request a run now; the same Idempotency-Key returns the same receipt."""
    return await front.service.run_now(
        request.path_params["entry"],
        note=asked.text("note"),
        parent_run=asked.number("parent_run"),
        idempotency_key=idempotency_key(request),
    )


async def pause(front: Front, request: Request, asked: RequestFields) -> HasData:
    """Pause an entry."""
    return await front.service.pause(
        request.path_params["entry"], note=asked.text("note"), until=asked.end("until")
    )


async def resume(front: Front, request: Request, _: RequestFields) -> HasData:
    """Resume an entry."""
    return await front.service.resume(request.path_params["entry"])


async def backfill(front: Front, request: Request, asked: RequestFields) -> HasData:
    """Run an entry once for each scheduled time in a past window."""
    return await front.service.backfill(
        request.path_params["entry"],
        start=asked.needed_moment("from"),
        end=asked.moment("to"),
        name=asked.text("id") or None,
        dry_run=asked.flag("dry_run"),
    )


_ENTRY: Final = "/api/v1/entries/{entry:path}"
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


OPERATIONS: Final[tuple[Operation, ...]] = (
    asks(
        "/api/v1/entries",
        Scope.READ,
        entries,
        shape(entries=listed(named("Entry")), cursor=maybe(NUMBER)),
        limit(100),
        CURSOR,
        flag("gone", "1: include entries that are no longer defined"),
    ),
    does(
        f"{_ENTRY}/run",
        Scope.RUN,
        run_now,
        named("Receipt"),
        NOTE,
        number("parent_run", "number of the run that makes the request"),
        headers=("Idempotency-Key",),
    ),
    with_tag(
        does(
            f"{_ENTRY}/pause",
            Scope.RUN,
            pause,
            and_also(ENTRY, changed=FLAG),
            NOTE,
            Field("until", FieldKind.END, "end of the pause: a time, or a duration such as 2h"),
        ),
        entry_tag,
    ),
    with_tag(does(f"{_ENTRY}/resume", Scope.RUN, resume, and_also(ENTRY, changed=FLAG)), entry_tag),
    does(
        f"{_ENTRY}/backfill",
        Scope.RUN,
        backfill,
        _BACKFILL,
        needed(moment("from", "start of the window")),
        moment("to", "end of the window; default: now"),
        text("id", "name of the backfill; a repeated name creates no second receipts"),
        flag("dry_run", "true: report what would run, run nothing"),
        is_long=True,
    ),
    with_tag(asks(_ENTRY, Scope.READ, entry, named("Entry")), entry_tag),
)
