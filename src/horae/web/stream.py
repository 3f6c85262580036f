"""What happens, told as it happens: server-sent events, and the output of a run.

Nobody has a queue of their own. All listeners share the newest events, each knows only how far
it is, and who has fallen behind reads on in the ledger. So a slow reader costs one buffer of its
connection, and is cut off when it takes nothing for 30 seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from io import BytesIO
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Final

from starlette.responses import Response

from horae.core.actor import Scope
from horae.core.views import Shape, Time
from horae.process.logs import CHUNK, LogLine, LogSelection, RunLog
from horae.sources import agents
from horae.timing.zone import zone
from horae.web import answer
from horae.web.answer import encoded
from horae.web.fields import Fields, Limit, Number, Word, about
from horae.web.front import Front
from horae.web.router import Routes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from horae.core.ports import Clock
    from horae.core.service import Service

log = logging.getLogger(__name__)

LOOK: Final = timedelta(seconds=0.1)  # between two looks at a log that grows
HEARTBEAT: Final = 15.0  # seconds after which a listener hears that we are still there
SHARED: Final = 1000  # events that are kept for all listeners
_LOOK: Final = 0.2  # seconds between two looks for new events
_IDLE: Final = 1.0  # while none comes
_BATCH: Final = 20  # so many a reader holds on to while it is slow


def sse(kind: str, data: object, *, number: int | None = None) -> bytes:
    """Return a server-sent event."""
    named = b"" if number is None else b"id: %d\n" % number
    return b"%sevent: %s\ndata: %s\n\n" % (named, kind.encode(), encoded(data))


class Feed:
    """The newest events, for all who listen; it looks for them only while a client listens."""

    def __init__(self, service: Service, closing: asyncio.Event | None = None) -> None:
        self._service = service
        self._closing = closing or asyncio.Event()
        self._newest: deque[tuple[int, bytes]] = deque(maxlen=SHARED)
        self._last = 0  # how far the look for new ones has come
        self._more = asyncio.Event()
        self._behind = asyncio.Lock()
        self._listeners = 0
        self._looking: asyncio.Task[None] | None = None

    async def listen(self, after: int, *, heartbeat: float = HEARTBEAT) -> AsyncIterator[bytes]:
        with self._listening(after):
            yield b"retry: 1000\n\n"
            while True:
                more = self._more
                told = await self._after(after)
                if told:
                    after = told[-1][0]
                    yield b"".join(text for _, text in told)
                    continue
                if self.is_closing:
                    return  # the listener was told when to come again
                try:
                    await asyncio.wait_for(more.wait(), heartbeat)
                except TimeoutError:
                    yield b": still here\n\n"

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    async def wait(self, after: int, within: float) -> None:
        """Return when there is an event after a number, or when some seconds have passed."""
        with self._listening(after):
            more = self._more
            if self._last <= after and not self.is_closing:
                with suppress(TimeoutError):  # then nothing has happened
                    await asyncio.wait_for(more.wait(), within)

    @contextmanager
    def _listening(self, after: int) -> Iterator[None]:
        self._listeners += 1
        if self._looking is None:
            self._newest.clear()
            self._last = after
            self._looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            self._listeners -= 1
            if self._listeners == 0 and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _after(self, number: int) -> list[tuple[int, bytes]]:
        """Return some events after a number, from those that are shared if they go back so far."""
        if self._newest and self._newest[0][0] <= number + 1:
            # From the end: nearly always there is but little that is new.
            fresh = [*takewhile(lambda each: each[0] > number, reversed(self._newest))]
            return fresh[: -_BATCH - 1 : -1]
        async with self._behind:  # one after the other, or those who are behind keep out the rest
            return await self._read(number)

    async def _read(self, number: int) -> list[tuple[int, bytes]]:
        found = (await self._service.events(after=number, limit=_BATCH)).events
        return [(each.event, sse(each.kind, each, number=each.event)) for each in found]

    async def _look(self) -> None:
        pause = _LOOK
        while True:
            pause = min(_IDLE, pause * 1.2)
            try:
                while found := await self._read(self._last):
                    self._newest.extend(found)
                    self._last, pause = found[-1][0], _LOOK
                    self._more.set()
                    self._more = asyncio.Event()
            except Exception as error:  # a ledger that cannot be read now may be read later
                log.debug("cannot read events for the stream: %s", error)
            with suppress(TimeoutError):  # the wait is over
                await asyncio.wait_for(self._closing.wait(), pause)
                self._more.set()
                return


async def log_parts(
    path: Path,
    start: int,
    *,
    goes_on: Callable[[], bool],
    clock: Clock,
    end: int | None = None,
    is_exact: bool = False,
) -> AsyncIterator[bytes]:
    """Yield a log in parts, as fast as the client takes them, from byte *start* to *end*.

    A reader who is slower than a long output is told how much was left out; with *is_exact* it
    ends there, so that who counts the bytes knows the offset.
    """
    log, never = RunLog(path), asyncio.Event()
    while True:
        is_over = not goes_on()  # its last output is in the file before its end is known
        while end is None or start < end:
            most = CHUNK if end is None else min(CHUNK, end - start)
            before = start
            part, start = await asyncio.to_thread(log.read, start, most)
            if not part:
                break
            if is_exact and start - before != len(part):
                return
            yield part
        if is_over or (end is not None and start >= end):
            return
        never.clear()
        await clock.wait(never, until=clock.now() + LOOK)


# The output of a run: as bytes, and line by line


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


@routes.get(
    "/api/v1/runs/{number}/log",
    Scope.READ,
    kind="text/plain; charset=utf-8",
    is_long=True,
    name="log",
)
async def show_log(front: Front, number: int, query: LogQuery) -> Response:
    """Return the output of a run, or a part of it; with `follow` until the run ends.

    The header `Log-From` has the offset of the first byte.
    """
    found = await front.service.run_of(number)
    path = front.log_of(found)
    wanted = LogSelection(query.start, query.end, query.line, query.since, query.step, query.tail)
    start, end = await asyncio.to_thread(RunLog(path).select, wanted)
    if query.exact:
        start = await asyncio.to_thread(RunLog(path).next_kept, start)
    headers = {"Log-From": str(start)}
    if query.download:
        headers["Content-Disposition"] = f'attachment; filename="run-{number}.log"'
    parts = log_parts(
        path,
        start,
        goes_on=lambda: query.follow and front.is_live(found),
        clock=front.clock,
        end=end,
        is_exact=query.exact,
    )
    return answer.streamed(parts, "text/plain; charset=utf-8", headers)


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
    if (said := agents.transcript.summary(line.text)) is not None:
        shown = said.encode()
    text, end = shown[:LINE].decode(errors="replace"), line.start + len(line.text)
    return LogRow(line=line.number, start=line.start, end=end, at=at, text=text)
