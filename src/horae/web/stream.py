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
from datetime import timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from horae.process.logs import CHUNK, RunLog
from horae.web.answer import encoded

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
        while True:
            try:
                while found := await self._read(self._last):
                    self._newest.extend(found)
                    self._last = found[-1][0]
                    self._more.set()
                    self._more = asyncio.Event()
            except Exception as error:  # a ledger that cannot be read now may be read later
                log.debug("cannot read events for the stream: %s", error)
            with suppress(TimeoutError):  # the wait is over
                await asyncio.wait_for(self._closing.wait(), _LOOK)
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
