"""A page that stays true: what changes of it is sent over one stream, and else nothing.

The page is written again when something has happened, and at the latest after its `every`. What a
browser counts by itself (how long until, as of when) is left out, so that it is no change. Sent
are the lines that differ from those that were sent before.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from horae.web.stream import HEARTBEAT, Feed, sse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

PAUSE: Final = 0.3  # seconds between two looks at the same page, at least
_COUNTED: Final = re.compile(r"(<time[^>]* data-(?:away|took)[^>]*>)[^<]*")
_AS_OF: Final = re.compile(r"(<time data-asof)[^>]*>[^<]*")
_NOW: Final = re.compile(r' data-(?:now|event)="[^"]*"')


class WrittenPage(NamedTuple):
    text: str
    status: int
    every: int
    event: int  # the newest that is in it
    now: str  # as a machine and as a person read it
    said: str


class ShownPage(NamedTuple):
    """What is known of a page that a browser was given."""

    digest: int  # of its steady text
    event: int
    every: int


class Lines(NamedTuple):
    """A change of a text: *cut* lines from line *at* on are these."""

    at: int
    cut: int
    lines: list[str]


def steady(text: str) -> str:
    """Return a page without what a browser counts by itself.

    >>> steady('<body data-now="09:00" data-every="5"><time class="x" data-away>in 5s</time>')
    '<body data-every="5"><time class="x" data-away></time>'
    >>> steady('as of <time data-asof datetime="09:00">nine</time>')
    'as of <time data-asof></time>'
    """
    return _NOW.sub("", _AS_OF.sub(r"\1>", _COUNTED.sub(r"\1", text)))


def difference(old: list[str], new: list[str]) -> Lines:
    """Return how one text becomes another.

    >>> difference(["a", "b", "c", "d"], ["a", "x", "y", "d"])
    Lines(at=1, cut=2, lines=['x', 'y'])
    """
    most = min(len(old), len(new))
    at = next((n for n in range(most) if old[n] != new[n]), most)
    rest = next((n for n in range(most - at) if old[-1 - n] != new[-1 - n]), most - at)
    return Lines(at, len(old) - rest - at, new[at : len(new) - rest])


async def changes(
    write: Callable[[], Awaitable[WrittenPage]],
    feed: Feed,
    *,
    seen: int,
    shown: ShownPage | None = None,
) -> AsyncGenerator[bytes, None]:
    """Yield what changes of a page that the browser has as it was after the event *seen*.

    If it is known as it was *shown*, it is not written again before something may have changed.
    """
    loop = asyncio.get_running_loop()
    known = None if shown is None else shown.digest
    sent: list[str] = []
    quiet_since = loop.time()
    yield b": as it was\n\n"
    if shown is not None:
        await feed.wait(shown.event, within=shown.every)
    while not feed.is_closing:
        began_at = loop.time()
        page = await write()
        text = steady(page.text)
        digest = hash(text)
        if (digest != known) if known is not None else (page.event != seen):
            lines = text.split("\n")
            told: dict[str, Any] = difference(sent, lines)._asdict()
            told |= {"now": page.now, "said": page.said, "event": page.event}
            sent, quiet_since = lines, loop.time()
            yield sse("page", told)
        known = digest
        await asyncio.sleep(max(PAUSE, 4 * (loop.time() - began_at)))
        await feed.wait(page.event, within=max(0.0, page.every - (loop.time() - began_at)))
        if loop.time() - quiet_since > HEARTBEAT:
            quiet_since = loop.time()
            yield b": still here\n\n"


async def compressed(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield parts of a stream by gzip, each whole at once: what was sent before shortens it."""
    pack = zlib.compressobj(5, zlib.DEFLATED, 31)
    async for part in parts:
        yield pack.compress(part) + pack.flush(zlib.Z_SYNC_FLUSH)
