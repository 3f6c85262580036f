"""The output of a run: as bytes, and line by line."""

from __future__ import annotations

import asyncio
from datetime import datetime
from io import BytesIO
from typing import Annotated, Final

from starlette.responses import Response, StreamingResponse

from horae.core.scope import Scope
from horae.core.views import Shape, Time
from horae.process.logs import LogLine, LogSelection, RunLog
from horae.sources.agents.transcript import summary
from horae.timing.zone import zone
from horae.web import answer
from horae.web.front import Front
from horae.web.router import Fields, Limit, Number, Routes, Word, about
from horae.web.stream import log_parts

LINE: Final = 2000  # bytes of a line that are shown
_LINES: Final = 512 << 10  # bytes after which an answer ends

routes = Routes()


class LogQuery(Fields, frozen=True):
    start: Annotated[Number, about("offset of the first byte")] = 0
    end: Annotated[Number | None, about("offset after the last byte")] = None
    line: Annotated[Number | None, about("from this line on")] = None
    since: Annotated[Time | None, about("written at this time or later, to a second")] = None
    step: Annotated[Word | None, about("only the output of this step of a workflow")] = None
    tail: Annotated[Number | None, about("only the last lines, so many")] = None
    follow: Annotated[bool, about("true: stream until the run ends")] = False
    exact: Annotated[bool, about("true: end before bytes that are left out, add no line")] = False
    download: Annotated[bool, about("true: a browser saves the output as a file")] = False


@routes.get("/api/v1/runs/{number}/log", Scope.READ, kind="text/plain; charset=utf-8", is_long=True)
async def log(front: Front, number: int, query: LogQuery) -> Response:
    """Return the output of a run, or a part of it; with `follow` until the run ends.

    The header `Log-From` has the offset of the first byte.
    """
    found = await front.service.run_of(number)

    def goes_on() -> bool:
        # When the engine no longer has the run, its end is in the ledger.
        live = front.engine.launch.runs.get(found.receipt)
        return query.follow and live is not None and live.number == found.number

    path = front.log_of(found)
    wanted = LogSelection(query.start, query.end, query.line, query.since, query.step, query.tail)
    start, end = await asyncio.to_thread(RunLog(path).select, wanted)
    if query.exact:
        start = await asyncio.to_thread(RunLog(path).next_kept, start)
    headers = {"Log-From": str(start)}
    if query.download:
        headers["Content-Disposition"] = f'attachment; filename="run-{number}.log"'
    parts = log_parts(
        path, start, goes_on=goes_on, clock=front.clock, end=end, is_exact=query.exact
    )
    headers |= answer.HEADERS
    return StreamingResponse(parts, media_type="text/plain; charset=utf-8", headers=headers)


class LinesQuery(Fields, frozen=True):
    line: Annotated[Number, about("from this line on")] = 1
    search: Annotated[Word, about("only lines with this text, in upper or lower case")] = ""
    limit: Limit = 200


class LogRow(Shape, frozen=True):
    """A line of an output; `from` and `to` are the offsets of its bytes."""

    line: int
    start: int
    end: int
    at: Annotated[Time, about("when it was written, to a second")]
    text: Annotated[
        str, about("its beginning, after the last carriage return; an event of an agent as text")
    ]


class LogLines(Shape, frozen=True):
    lines: list[LogRow]
    next: Annotated[int | None, about("the line to continue with; null: there are no more")]
    count: Annotated[int, about("lines that were written so far")]
    size: Annotated[int, about("bytes that were written so far")]
    left_out: Annotated[int, about("bytes that are no longer kept")]
    kept: Annotated[list[tuple[int, int]], about("first and last lines that are kept")]
    is_live: Annotated[bool, about("whether the run is in progress")]


@routes.get("/api/v1/runs/{number}/lines", Scope.READ)
async def lines(front: Front, number: int, query: LinesQuery) -> LogLines:
    """List lines of the output of a run, with their times."""
    found = await front.service.run_of(number)
    # Before it is read: its last output is in the file before its end is known.
    is_live = found.ended_at is None
    log = RunLog(front.log_of(found))
    began_at = found.started_at.astimezone(zone(front.zone_name))
    return await asyncio.to_thread(_lines_of, log, query, began_at, is_live=is_live)


def _lines_of(log: RunLog, query: LinesQuery, since: datetime, *, is_live: bool) -> LogLines:
    then: int | None = None
    if query.search:
        found, then = log.find(query.search, query.line)
    else:
        found = log.lines(log.start_of_line(query.line))
    rows: dict[int, LogLine] = {}  # of a very long line only the first piece
    size = 0
    for each in found:
        if len(rows) == query.limit or size > _LINES:
            then = each.number
            break
        if each.number not in rows:
            rows[each.number] = each
            size += min(len(each.text), LINE)
    noted = log.times_of([each.start for each in rows.values()])
    times = [since if at is None else at.astimezone(since.tzinfo) for at in noted]
    return LogLines(
        lines=[_row(each, at) for each, at in zip(rows.values(), times, strict=True)],
        next=then,
        count=log.count(),
        size=log.end,
        left_out=sum(then - gone for gone, then in log.gaps()),
        kept=log.kept_lines(),
        is_live=is_live,
    )


def lines_in(copy: bytes, query: LinesQuery, since: datetime) -> LogLines:
    """Return the lines of a short output that is known only by its bytes."""
    rows, start = list[LogRow](), 0
    whole = BytesIO(copy).readlines()
    for number, each in enumerate(whole, start=1):
        if number >= query.line and query.search.encode().lower() in each.lower():
            rows.append(_row(LogLine(number, start, each.rstrip(b"\n")), since))
        start += len(each)
    kept = [(1, len(whole))] if whole else []
    return LogLines(
        lines=rows[: query.limit],
        next=rows[query.limit].line if len(rows) > query.limit else None,
        count=len(whole),
        size=start,
        left_out=0,
        kept=kept,
        is_live=False,
    )


def _row(line: LogLine, at: datetime) -> LogRow:
    shown = line.text.rstrip(b"\r").rpartition(b"\r")[2]
    if (said := summary(line.text)) is not None:
        shown = said.encode()
    text, end = shown[:LINE].decode(errors="replace"), line.start + len(line.text)
    return LogRow(line=line.number, start=line.start, end=end, at=at, text=text)
