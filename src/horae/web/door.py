"""The door: who of those that knock has a connection, below everything that reads HTTP.

The engine needs descriptors for runs and for the ledger, so no number of connections may take
them all. There is a bound in all and for each peer; whoever comes when it is reached takes the
place of the connection that was silent longest, so that one more can always ask. While even that
is not possible those who knock wait in the system's own queue, and the engine goes on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import resource
import socket
from collections import Counter
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from horae.web.peers import Proxies, peer_of, user_of

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

CONNECTIONS: Final = 200
EACH: Final = 100  # of one peer
FEW: Final = 4  # which also those get who come when nothing else is left
RESERVE: Final = 64  # descriptors for runs and ledger
HEADER: Final = 16 << 10  # bytes
ASKING: Final = 10.0  # seconds to ask in full
TAKING: Final = 30.0  # seconds to take the next part of an answer
AT_ONCE: Final = 8  # are let in before those who are in are heard
KNOCKING: Final = 4096  # wait in the system's queue; it may allow fewer
COUNTED: Final = 1.0  # seconds for which a count of descriptors is good
USER: Final = "user"  # in the state of a request on a unix socket: who is at the other end
RESTING: Final = 0.1  # seconds until somebody is let in again when that could not be

_OPEN: Final = "/dev/fd"
# A line that ends without CR, a CR within a line, and a line that goes on with the one before:
# each is read in two ways by two programs, so what one of them lets pass the other may obey.
# Other control characters have no meaning here, but for whoever shows them on a terminal.
_AMBIGUOUS: Final = re.compile(rb"(?<!\r)\n|\r(?!\n)|\n[ \t]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Rank(IntEnum):
    """How much is lost with a connection."""

    SILENT = 0  # nothing is asked, or not in full
    BEGUN = 1  # an answer is under way, perhaps an endless one
    ASKED = 2  # an answer is being made


class ClientConnection(H11Protocol):
    """One connection; who is slow in asking, or in taking the answer, loses it."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.conn = _Strict(h11.SERVER, HEADER)
        self.peer = ""
        self.heard_at = self.loop.time()
        self.gone: Callable[[ClientConnection], None] = lambda _: None
        self._is_unwanted = False

    @property
    def rank(self) -> Rank:
        """How much is lost with it."""
        if self.conn.their_state in {h11.IDLE, h11.SEND_BODY} or self.cycle is None:
            return Rank.SILENT
        if self.cycle.response_complete:
            return Rank.SILENT
        return Rank.BEGUN if self.cycle.response_started else Rank.ASKED

    def drop(self) -> None:
        """Close it at once."""
        self._is_unwanted = True
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._asking = _Patience(self.loop, transport)
        self._taking = _Patience(self.loop, transport)
        if self._is_unwanted:
            transport.abort()
        else:
            self._asking.begin(ASKING)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        self.heard_at = self.loop.time()
        super().data_received(data)
        if self.conn.their_state in {h11.IDLE, h11.SEND_BODY}:
            self._asking.begin(ASKING)
        else:
            self._asking.end()

    def pause_writing(self) -> None:
        """Wait until the other end has taken some of the answer."""
        super().pause_writing()
        self._taking.begin(TAKING)

    def resume_writing(self) -> None:
        """Go on with the answer."""
        super().resume_writing()
        self._taking.end()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._asking.end()
        self._taking.end()
        self.gone(self)
        super().connection_lost(exc)


class Door:
    """Lets connections in, and as many as there may be; for uvicorn it is the server."""

    def __init__(
        self,
        listener: socket.socket,
        wire: Callable[[], ClientConnection],
        *,
        proxies: Proxies | None = None,
    ) -> None:
        self._listener = listener
        self._wire = wire
        self._proxies = proxies or Proxies()
        self._loop = asyncio.get_running_loop()
        self._wires: set[ClientConnection] = set()
        self._peers: Counter[str] = Counter()
        self._opening: set[asyncio.Task[None]] = set()
        self._again: asyncio.TimerHandle | None = None
        self._most, self._counted_at = FEW, -COUNTED
        self._is_open = False
        self._is_short = False

    def open(self) -> None:
        """Begin to let them in."""
        self._listener.setblocking(False)
        self._listener.listen(KNOCKING)
        self._is_open = True
        self._loop.add_reader(self._listener.fileno(), self._let_in)

    def close(self) -> None:
        """Let nobody in any more."""
        if not self._is_open:
            return
        self._is_open = False
        self._loop.remove_reader(self._listener.fileno())
        if self._again is not None:
            self._again.cancel()

    async def wait_closed(self) -> None:
        """Return at once; who is in is seen to elsewhere."""

    def _let_in(self) -> None:
        """Let a few of those in who knock; those who are in are heard before the next."""
        for turn in range(AT_ONCE):
            try:
                connection, near = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Later it may be said although nobody knocks any more.
                if turn == 0:
                    self._rest(error)
                return
            self._is_short = False
            self._take(connection, str(near[0]) if isinstance(near, tuple) else "")

    def _take(self, connection: socket.socket, address: str) -> None:
        """Give a connection a place: a free one, or that of the one who was silent longest."""
        peer = "" if self._proxies.is_one(address) else peer_of(address)
        if peer and self._peers[peer] >= EACH:
            self._drop_one(peer)
        most = self._room()
        while len(self._wires) >= most:
            self._drop_one()
        wire = self._wire()
        if connection.family == socket.AF_UNIX:
            wire.app_state[USER] = user_of(connection)
        wire.peer, wire.gone = peer, self._forget
        self._wires.add(wire)
        self._peers[peer] += 1
        opening = self._loop.create_task(self._open_wire(connection, wire))
        self._opening.add(opening)
        opening.add_done_callback(partial(self._opened, connection, wire))

    async def _open_wire(self, connection: socket.socket, wire: ClientConnection) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: wire, connection)
        except OSError:  # it has gone away already
            connection.close()
            self._forget(wire)

    def _opened(
        self, connection: socket.socket, wire: ClientConnection, opening: asyncio.Task[None]
    ) -> None:
        self._opening.discard(opening)
        if opening.cancelled():  # the server ends, perhaps before the task began
            connection.close()
            self._forget(wire)

    def _drop_one(self, peer: str | None = None) -> None:
        """Close the connection that is missed least: of those who ask nothing the most silent."""
        those = (each for each in self._wires if peer is None or each.peer == peer)
        least = min(those, key=lambda each: (each.rank, each.heard_at))
        self._forget(least)
        least.drop()

    def _forget(self, wire: ClientConnection) -> None:
        if wire in self._wires:
            self._wires.discard(wire)
            self._peers[wire.peer] -= 1
            if not self._peers[wire.peer]:
                del self._peers[wire.peer]

    def _room(self) -> int:
        """Return how many connections there may be beside all else that is open."""
        now = self._loop.time()
        if now - self._counted_at >= COUNTED:
            self._counted_at = now
            self._most = most_connections(len(self._wires))
        return self._most

    def _rest(self, error: OSError) -> None:
        """Let nobody in for a moment: there is no descriptor, and the engine may need the next."""
        if not self._is_short:
            self._is_short = True
            log.warning("cannot accept connections: %s", error.strerror)
        if self._wires:
            self._drop_one()
        self._loop.remove_reader(self._listener.fileno())
        self._again = self._loop.call_later(RESTING, self._go_on)

    def _go_on(self) -> None:
        self._again = None
        self._loop.add_reader(self._listener.fileno(), self._let_in)


def most_connections(held: int) -> int:
    """Return how many connections there may be, if so many of the open descriptors are some."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return CONNECTIONS
    try:
        others = len(os.listdir(_OPEN)) - held
    except OSError:
        return FEW
    return max(FEW, min(CONNECTIONS, limit - min(RESERVE, limit // 2) - others))


class _Strict(h11.Connection):
    """Reads requests, and refuses those that another program may read otherwise."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        """Return what comes next in a request."""
        before = self.trailing_data[0]
        event = super().next_event()
        if isinstance(event, h11.Request | h11.EndOfMessage):
            after = self.trailing_data[0]
            if _AMBIGUOUS.search(before, 0, len(before) - len(after)):
                raise h11.RemoteProtocolError("the request contains a forbidden control character")
        if isinstance(event, h11.Request):
            names = [name for name, _ in event.headers]
            is_chunked = b"transfer-encoding" in names
            if is_chunked and (b"content-length" in names or event.http_version != b"1.1"):
                raise h11.RemoteProtocolError(
                    "the request states the length of its body in two ways"
                )
        return event


class _Patience:
    """How long somebody may take before the connection is cut."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop = loop
        self._transport = transport
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, seconds: float) -> None:
        """Let the time run, if it does not run already."""
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, self._transport.abort)

    def end(self) -> None:
        """Wait no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
