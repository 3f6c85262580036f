"""What happens, told as it happens: server-sent events, and the output of a run.

Nobody has a queue of their own. All listeners share the newest events, each knows only how far
it is, and who has fallen behind reads on in the ledger. So a slow reader costs one buffer of its
connection, and is cut off when it takes nothing for 30 seconds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections import deque
from contextlib import contextmanager
from datetime import timedelta
from itertools import takewhile
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from horae.core.ports import Clock
    from horae.core.service import Service

log = logging.getLogger(__name__)

CHUNK: Final = 1 << 16  # bytes of a log that are read at once
LOOK: Final = timedelta(seconds=0.1)  # between two looks at a log that grows
SEGMENT: Final = 1 << 20  # bytes of a file of a log; what is kept of a long one is in several
LEFT_OUT: Final = b"\n[%d bytes of output left out]\n"
_LEFT_OUT: Final = re.compile(rb"\n\[(\d{1,18}) bytes of output left out\]\n")
HEARTBEAT: Final = 15.0  # seconds after which a listener hears that we are still there
SHARED: Final = 1000  # events that are kept for all listeners
_LOOK: Final = 0.2  # seconds between two looks for new events
_BATCH: Final = 20  # so many a reader holds on to while it is slow


class Feed:
    """The newest events, for all who listen; it looks for them only while a client listens."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._newest: deque[tuple[int, bytes]] = deque(maxlen=SHARED)
        self._last = 0  # how far the look for new ones has come
        self._more = asyncio.Event()
        self._behind = asyncio.Lock()
        self._listeners = 0
        self._looking: asyncio.Task[None] | None = None

    async def listen(self, after: int, *, heartbeat: float = HEARTBEAT) -> AsyncIterator[bytes]:
        self._listeners += 1
        if self._looking is None:
            self._newest.clear()
            self._last = after
            self._looking = asyncio.create_task(self._look())
        try:
            yield b"retry: 1000\n\n"
            while True:
                more = self._more
                told = await self._after(after)
                if told:
                    after = told[-1][0]
                    yield b"".join(text for _, text in told)
                    continue
                try:
                    await asyncio.wait_for(more.wait(), heartbeat)
                except TimeoutError:
                    yield b": still here\n\n"
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
        said: dict[str, Any] = (await self._service.events(after=number, limit=_BATCH)).data()
        found = []
        for event in said["events"]:
            data = json.dumps(event, default=str, separators=(",", ":"))
            text = f"id: {event['event']}\nevent: {event['kind']}\ndata: {data}\n\n"
            found.append((event["event"], text.encode()))
        return found

    async def _look(self) -> None:
        while True:
            try:
                while found := await self._read(self._last):
                    self._newest.extend(found)
                    self._last = found[-1][0]
                    self._more.set()
                    self._more = asyncio.Event()
            except Exception as error:  # a ledger that cannot be read now may be read later
                log.debug("cannot read events for the stream: %s", error)
            await asyncio.sleep(_LOOK)


async def log_parts(
    path: Path, start: int, *, goes_on: Callable[[], bool], clock: Clock, end: int | None = None
) -> AsyncIterator[bytes]:
    """Yield a log in parts, as fast as the client takes them, from byte *start* to *end*.

    A reader who is slower than a long output is told how much was left out.
    """
    never = asyncio.Event()
    while True:
        is_over = not goes_on()  # its last output is in the file before its end is known
        while (found := await asyncio.to_thread(_read, path, start, end))[0]:
            part, start = found
            yield part
        if is_over or (end is not None and start >= end):
            return
        never.clear()
        await clock.wait(never, until=clock.now() + LOOK)


def _read(path: Path, start: int, end: int | None) -> tuple[bytes, int]:
    """Return a part of what a run has put out, and where the next begins; nothing: no more."""
    size = CHUNK if end is None else max(0, min(CHUNK, end - start))
    file, offset, first = path, start, start  # where the part is, and what is there of it
    if start < SEGMENT:
        size = min(size, SEGMENT - start)
    elif newer := segments(path):
        first = max(start, newer[0] * SEGMENT)
        file, offset = segment(path, start // SEGMENT), start % SEGMENT
    elif found := _LEFT_OUT.match(_part(path, SEGMENT, 64)):  # the parts are joined
        first = max(start, SEGMENT + int(found[1]))
        offset = start - int(found[1]) + len(found[0])
    if first > start:
        return LEFT_OUT % (first - start), first
    part = _part(file, offset, size)
    return part, start + len(part)


def segments(path: Path) -> list[int]:
    names = (each.name.rpartition(".")[2] for each in path.parent.glob(f"{path.name}.*"))
    return sorted(int(each) for each in names if each.isdecimal())


def segment(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _part(path: Path, start: int, size: int) -> bytes:
    with opened(path) as descriptor:
        return b"" if descriptor is None else os.pread(descriptor, size, start)


@contextmanager
def opened(path: Path) -> Iterator[int | None]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield descriptor if S_ISREG(os.fstat(descriptor).st_mode) else None
    finally:
        os.close(descriptor)
