"""Where a running engine answers: the control socket of its data directory, and a port.

The socket's owner alone may use it, from the first moment on: it is bound in a directory of
mode 0700, and gets its name in the data directory only when it listens. So a client that
finds it is answered, and the engine that has the lock takes the name over from a dead one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import resource
import socket
import struct
from collections import Counter
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from http import HTTPStatus
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from horae.core.settings import ListenAddress
from horae.errors import Exit, HoraeError
from horae.web import SOCKET, address
from horae.web.answer import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from starlette.types import ASGIApp, Message, Receive, Scope, Send


log = logging.getLogger(__name__)

KEEP_ALIVE: Final = 30  # seconds that a connection stays open while nothing is asked
BUFFER: Final = 64 << 10  # bytes of an answer that the system keeps for a slow client
SHUTDOWN: Final = 2  # seconds for what is being answered when it ends

_PRIVATE: Final = ".socket"  # where it is made
CONNECTIONS: Final = 200
PER_PEER: Final = 100  # connections
FEWEST: Final = 4  # connections that are allowed even if few descriptors are left
RESERVED: Final = 64  # descriptors for runs and ledger
HEADER: Final = 16 << 10  # bytes
REQUEST_TIMEOUT: Final = 10.0  # seconds to ask in full
WRITE_TIMEOUT: Final = 30.0  # seconds to take the next part of an answer
ACCEPTED_AT_ONCE: Final = 8  # before those that are connected are served
BACKLOG: Final = 4096  # clients in the system's queue; it may allow fewer
COUNT_LASTS: Final = 1.0  # seconds for which a count of descriptors is good
USER: Final = "user"  # in the state of a request on a unix socket: who is at the other end
ACCEPT_PAUSE: Final = 0.1  # seconds after an accept that failed

_OPEN: Final = "/dev/fd"
# A line that ends without CR, a CR within a line, and a line that goes on with the one before:
# each is read in two ways by two programs, so what one of them lets pass the other may obey.
# Other control characters have no meaning here, but on a terminal that shows them.
_AMBIGUOUS: Final = re.compile(rb"(?<!\r)\n|\r(?!\n)|\n[ \t]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class ListenError(HoraeError, code="listen", exit_code=Exit.CONFLICT):
    def __init__(self, address: str, reason: str, *, remedy: str) -> None:
        self.address, self.reason = address, reason
        super().__init__(f"{address}: {reason}; {remedy}")


class StoppingError(HoraeError, code="stopping", exit_code=Exit.TEMPORARY):
    def __init__(self) -> None:
        super().__init__("the engine is stopping; the request may still have been carried out")


async def serve_socket(
    app: ASGIApp,
    directory: Path,
    listener: socket.socket | None = None,
    *,
    stop: asyncio.Event,
    is_kept: Callable[[], bool] = lambda: False,
) -> None:
    """Answer on the socket of a data directory, whose lock the caller has, until *stop* is set.

    It is removed then, unless somebody goes on to listen there.
    """
    listener, path = listener or listen(directory), directory / SOCKET
    ours = path.lstat()
    try:
        await serve_tcp(app, listener, stop=stop)
    finally:
        with suppress(FileNotFoundError):  # there is nothing to remove
            if not is_kept() and os.path.samestat(
                path.lstat(), ours
            ):  # not that of an engine after this one
                os.remove(path)


async def serve_tcp(
    app: ASGIApp, listener: socket.socket, *, stop: asyncio.Event, proxies: Proxies | None = None
) -> None:
    """Answer on a port until *stop* is set; what is being answered then has two seconds left."""
    config = uvicorn.Config(
        _bounded(app),
        http=ClientConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level=logging.CRITICAL,  # the application tells of its own errors
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=SHUTDOWN,
        h11_max_incomplete_event_size=HEADER,
    )
    server = _Server(config)
    server.proxies, server.stop = proxies or Proxies(), stop
    try:
        await server.serve(sockets=[listener])
    finally:
        listener.close()


def listen_tcp(host: str, port: int, *, allow_remote: bool = False) -> socket.socket:
    where = str(ListenAddress(host, port))
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        remedy = "write `listen` like 127.0.0.1:7117"
        raise ListenError(where, "there is no such address", remedy=remedy) from None
    family, kind, protocol, _, near = found[0]
    if not allow_remote and not ip_address(str(near[0]).partition("%")[0]).is_loopback:
        reason = "the page is not served, because other machines could reach this address"
        remedy = "listen on 127.0.0.1, or set `server.remote = true`"
        raise ListenError(where, reason, remedy=remedy)
    # With its protocol: only then does the loop send small answers without waiting for more.
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Else it would be megabytes, and each slow reader would have us write them.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        listener.bind(near)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        remedy = (
            "the page and the API are not available at this address; stop the program that "
            "listens there, or set `listen` to another port"
        )
        raise ListenError(where, str(error.strerror), remedy=remedy) from None
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - a name to avoid
    return f"http://{ListenAddress(here, port)}"


def listen(directory: Path) -> socket.socket:
    private = directory / _PRIVATE
    with suppress(FileExistsError):  # left by an engine that was killed
        private.mkdir(mode=0o700)
    private.chmod(0o700)
    made = private / SOCKET
    with suppress(FileNotFoundError):  # an engine was killed there
        os.remove(made)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with address(private) as near:
            listener.bind(near)
        made.chmod(0o600)
        listener.listen(BACKLOG)
        made.replace(directory / SOCKET)
    except BaseException:
        listener.close()
        raise
    with suppress(OSError):  # the next start uses it
        private.rmdir()
    return listener


class _Server(uvicorn.Server):
    proxies: Proxies
    stop: asyncio.Event

    async def main_loop(self) -> None:
        """Wait for the stop: uvicorn's own loop wakes ten times a second."""
        self.server_state.default_headers = self.config.encoded_headers
        await self.stop.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        def make() -> ClientConnection:
            settings = {"config": self.config, "server_state": self.server_state}
            return ClientConnection(**settings, app_state={})

        acceptors = [Acceptor(each, make, self.proxies) for each in sockets or ()]
        self.servers = acceptors  # type: ignore[assignment]
        for acceptor in acceptors:
            acceptor.open()
        self.started = True

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


def _bounded(app: ASGIApp) -> ASGIApp:
    """Refuse too long a header that came at once; what comes in slowly is refused before.

    A request that the server ends, because it stops, is told so.
    """

    async def bounded(scope: Scope, receive: Receive, send: Send) -> None:
        sizes = [len(name) + len(value) for name, value in scope["headers"]]
        if sum(sizes) + len(scope["raw_path"]) + len(scope["query_string"]) <= HEADER:
            has_begun = False

            async def noted(message: Message) -> None:
                nonlocal has_begun
                has_begun = True
                await send(message)

            try:
                await app(scope, receive, noted)
            except asyncio.CancelledError:
                if not has_begun:
                    status = HTTPStatus.SERVICE_UNAVAILABLE
                    await refused(StoppingError(), scope["path"], status)(scope, receive, send)
                raise
            return
        headers = [(b"content-length", b"0"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 431, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    return bounded


# Level, option, size and layout of what a system tells of the other end, the user second.
_LINUX: Final = (socket.SOL_SOCKET, getattr(socket, "SO_PEERCRED", None), 12, "iII")
_BSD: Final = (0, getattr(socket, "LOCAL_PEERCRED", None), 76, "II")


@dataclass(frozen=True, slots=True)
class Proxies:
    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str]) -> Proxies:
        return cls(tuple(ip_network(each, strict=False) for each in texts))

    def is_one(self, address: str) -> bool:
        found = _parsed(address) if self.networks else None
        return found is not None and any(found in each for each in self.networks)

    def asking(self, address: str, forwarded: Iterable[str]) -> str:
        """Return the client: behind proxies, the last address that is none of theirs.

        >>> proxies = Proxies.of(["127.0.0.1", "10.0.0.0/8"])
        >>> proxies.asking("127.0.0.1", ["192.0.2.66, 192.0.2.7", "10.1.2.3"])
        '192.0.2.7'
        >>> proxies.asking("192.0.2.9", ["192.0.2.66"])
        '192.0.2.9'
        """
        hops = [hop.strip() for line in forwarded for hop in line.split(",")]
        while hops and self.is_one(address):
            before = _parsed(hops.pop())
            if before is None:
                break
            address = str(before)
        return peer_of(address)


def peer_of(address: str) -> str:
    """Return who is counted for an address: of IPv6 the network of 64 bits that one is given.

    >>> peer_of("192.0.2.7"), peer_of("2001:db8::1:2"), peer_of("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:db8::/64', '192.0.2.7')
    """
    found = _parsed(address)
    if found is None:
        return address
    if isinstance(found, IPv6Address):
        return str(ip_network((found, 64), strict=False))
    return str(found)


def user_of(connection: socket.socket) -> int:
    """Return the user at the other end of a unix socket; ours, who owns it, if nothing tells."""
    for level, option, size, layout in (_LINUX, _BSD):
        if option is not None:
            with suppress(OSError, struct.error):  # the other option is tried
                told = connection.getsockopt(level, option, size)
                return int(struct.unpack_from(layout, told)[1])
    return os.geteuid()


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


class Rank(IntEnum):
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
        self.on_lost: Callable[[ClientConnection], None] = lambda _: None
        self._is_unwanted = False
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def rank(self) -> Rank:
        is_asking = self.conn.their_state in {h11.IDLE, h11.SEND_BODY}
        if is_asking or getattr(self.cycle, "response_complete", True):  # there may be none
            return Rank.SILENT
        return Rank.BEGUN if self.cycle.response_started else Rank.ASKED

    def drop(self) -> None:
        self._is_unwanted = True
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._is_unwanted:
            transport.abort()
        else:
            self._allow("asking", REQUEST_TIMEOUT)

    def data_received(self, data: bytes) -> None:
        self.heard_at = self.loop.time()
        super().data_received(data)
        if self.conn.their_state in {h11.IDLE, h11.SEND_BODY}:
            self._allow("asking", REQUEST_TIMEOUT)
        else:
            self._end("asking")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._allow("taking", WRITE_TIMEOUT)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._end("taking")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("asking")
        self._end("taking")
        self.on_lost(self)
        super().connection_lost(exc)

    def _allow(self, what: str, seconds: float) -> None:
        if what not in self._timers:
            self._timers[what] = self.loop.call_later(seconds, self.transport.abort)

    def _end(self, what: str) -> None:
        if timer := self._timers.pop(what, None):
            timer.cancel()


@dataclass(slots=True)
class Acceptor:
    """Accepts connections; for uvicorn it is the server.

    The engine needs descriptors for runs and for the ledger, so there is a bound in all and for
    each peer. A client that comes when it is reached takes the place of the connection that was
    silent longest; while even that is not possible, clients wait in the system's own queue.
    """

    listener: socket.socket
    make: Callable[[], ClientConnection]
    proxies: Proxies = field(default_factory=Proxies)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _connections: set[ClientConnection] = field(default_factory=set)
    _peers: Counter[str] = field(default_factory=Counter)
    _starting: set[asyncio.Task[Any]] = field(default_factory=set)
    _resuming: asyncio.TimerHandle | None = None
    _most: int = FEWEST
    _counted_at: float = -COUNT_LASTS
    _is_open: bool = False
    _is_short: bool = False

    def open(self) -> None:
        self.listener.setblocking(False)
        self.listener.listen(BACKLOG)
        self._is_open = True
        self._loop.add_reader(self.listener.fileno(), self._accept)

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._loop.remove_reader(self.listener.fileno())
        if self._resuming is not None:
            self._resuming.cancel()

    async def wait_closed(self) -> None:
        """Return at once; who is in is seen to elsewhere."""

    def _accept(self) -> None:
        for turn in range(ACCEPTED_AT_ONCE):
            try:
                client, near = self.listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Later it may be said although no client waits any more.
                if turn == 0:
                    self._pause(error)
                return
            self._is_short = False
            self._admit(client, str(near[0]) if isinstance(near, tuple) else "")

    def _admit(self, client: socket.socket, address: str) -> None:
        """Accept a client; if there is no place, drop the connection that was silent longest."""
        peer = "" if self.proxies.is_one(address) else peer_of(address)
        if peer and self._peers[peer] >= PER_PEER:
            self._drop_one(peer)
        now = self._loop.time()
        if now - self._counted_at >= COUNT_LASTS:
            self._counted_at, self._most = now, most_connections(len(self._connections))
        while len(self._connections) >= self._most:
            self._drop_one()
        connection = self.make()
        if client.family == socket.AF_UNIX:
            connection.app_state[USER] = user_of(client)
        connection.peer, connection.on_lost = peer, self._forget
        self._connections.add(connection)
        self._peers[peer] += 1
        starting = self._loop.create_task(
            self._loop.connect_accepted_socket(lambda: connection, client)
        )
        self._starting.add(starting)
        starting.add_done_callback(partial(self._started, client, connection))

    def _started(
        self, client: socket.socket, connection: ClientConnection, starting: asyncio.Task[Any]
    ) -> None:
        self._starting.discard(starting)
        # The client has gone away already, or the server ends, perhaps before the task began.
        if starting.cancelled() or isinstance(starting.exception(), OSError):
            client.close()
            self._forget(connection)

    def _drop_one(self, peer: str | None = None) -> None:
        those = (each for each in self._connections if peer is None or each.peer == peer)
        least = min(those, key=lambda each: (each.rank, each.heard_at))
        self._forget(least)
        least.drop()

    def _forget(self, connection: ClientConnection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self._peers[connection.peer] -= 1
            if not self._peers[connection.peer]:
                del self._peers[connection.peer]

    def _pause(self, error: OSError) -> None:
        """Accept nobody for a moment: there is no descriptor, and the engine may need the next."""
        if not self._is_short:
            self._is_short = True
            log.warning("cannot accept connections: %s", error.strerror)
        if self._connections:
            self._drop_one()
        self._loop.remove_reader(self.listener.fileno())
        self._resuming = self._loop.call_later(ACCEPT_PAUSE, self._resume)

    def _resume(self) -> None:
        self._resuming = None
        self._loop.add_reader(self.listener.fileno(), self._accept)


def most_connections(held: int) -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return CONNECTIONS
    try:
        others = len(os.listdir(_OPEN)) - held
    except OSError:
        return FEWEST
    return max(FEWEST, min(CONNECTIONS, limit - min(RESERVED, limit // 2) - others))


class _Strict(h11.Connection):
    """Reads requests, and refuses those that another program may read otherwise."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
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
                reason = "the request states the length of its body in two ways"
                raise h11.RemoteProtocolError(reason)
        return event
