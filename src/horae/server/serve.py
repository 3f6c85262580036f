"""Where a running engine answers: the control socket of its data directory, and a port.

The socket's owner alone may use it, from the first moment on: it is bound in a directory of
mode 0700, and gets its name in the data directory only when it listens. So whoever finds it is
answered, and whoever has the lock on the data directory takes the name over from a dead engine.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import AbstractContextManager, nullcontext, suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from horae.errors import Exit, HoraeError
from horae.server import SOCKET, address

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.types import ASGIApp, Receive, Scope, Send

CONNECTIONS: Final = 100
HEADER: Final = 16 << 10  # bytes
SLOW: Final = 30.0  # seconds to ask in full, and to take the next part of an answer
KEPT: Final = 30  # seconds that a connection stays open while nothing is asked
BUFFER: Final = 64 << 10  # bytes of an answer that the system keeps for whoever is slow
CLOSING: Final = 2  # seconds for what is being answered when it ends

_PRIVATE: Final = ".socket"  # where it is made


class ListenError(HoraeError):
    """An address that the server cannot listen at, or may not."""

    code = "listen"
    exit_code = Exit.CONFLICT

    def __init__(self, address: str, reason: str, *, remedy: str) -> None:
        self.address = address
        self.reason = reason
        super().__init__(f"{address}: {reason}; {remedy}")


async def serve_socket(app: ASGIApp, directory: Path, *, stop: asyncio.Event) -> None:
    """Answer on the socket of a data directory, whose lock the caller has, until *stop* is set.

    What is being answered then has two seconds left.
    """
    server = _Server(_config(app))
    listener = listen(directory)
    ours = _file(directory / SOCKET)
    stopping = asyncio.create_task(_stop_with(stop, server))
    asyncio.get_running_loop().set_exception_handler(_say_less)
    try:
        await server.serve(sockets=[listener])
    finally:
        stopping.cancel()
        listener.close()
        if _file(directory / SOCKET) == ours:  # not that of an engine after this one
            _remove(directory / SOCKET)


async def serve_tcp(app: ASGIApp, listener: socket.socket, *, stop: asyncio.Event) -> None:
    """Answer on a port until *stop* is set; what is being answered then has two seconds left."""
    server = _Server(_config(app))
    stopping = asyncio.create_task(_stop_with(stop, server))
    try:
        await server.serve(sockets=[listener])
    finally:
        stopping.cancel()
        listener.close()


def listen_tcp(host: str, port: int, *, allow_remote: bool = False) -> socket.socket:
    """Return a socket that listens at an address, or raise an error that says why there is none.

    Beyond this machine it listens only if that is allowed in so many words.
    """
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        remedy = "write `listen` like 127.0.0.1:7117"
        raise ListenError(where, "there is no such address", remedy=remedy) from None
    family, kind, protocol, _, near = found[0]
    if not allow_remote and not ip_address(str(near[0]).partition("%")[0]).is_loopback:
        reason = "others than this machine could come in there"
        remedy = "listen at 127.0.0.1, or allow it with `server.remote = true`"
        raise ListenError(where, reason, remedy=remedy)
    # With its protocol: only then does the loop send small answers without waiting for more.
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Else it would be megabytes, and each slow reader would have us write them.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        listener.bind(near)
        listener.listen(CONNECTIONS)
    except OSError as error:
        listener.close()
        remedy = "end what listens there, or set `listen` to another port"
        raise ListenError(where, str(error.strerror), remedy=remedy) from None
    return listener


def url_of(listener: socket.socket) -> str:
    """Return where a browser on this machine finds who listens."""
    host, port = listener.getsockname()[:2]
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - a name to avoid
    return f"http://[{here}]:{port}" if ":" in here else f"http://{here}:{port}"


def listen(directory: Path) -> socket.socket:
    """Return a socket that listens in a directory and that nobody else may use."""
    private = directory / _PRIVATE
    with suppress(FileExistsError):
        private.mkdir(mode=0o700)
    private.chmod(0o700)
    made = private / SOCKET
    _remove(made)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with address(private) as near:
            listener.bind(near)
        made.chmod(0o600)
        listener.listen(CONNECTIONS)
        made.replace(directory / SOCKET)
    except BaseException:
        listener.close()
        raise
    with suppress(OSError):
        private.rmdir()
    return listener


class _Door(H11Protocol):
    """One connection; who is slow in asking, or in taking the answer, loses it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._asking = _Patience(self.loop, transport)
        self._taking = _Patience(self.loop, transport)
        self._asking.begin()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        if self.conn.their_state in {h11.IDLE, h11.SEND_BODY}:
            self._asking.begin()
        else:
            self._asking.end()

    def pause_writing(self) -> None:
        """Wait until the other end has taken some of the answer."""
        super().pause_writing()
        self._taking.begin()

    def resume_writing(self) -> None:
        """Go on with the answer."""
        super().resume_writing()
        self._taking.end()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._asking.end()
        self._taking.end()
        super().connection_lost(exc)


class _Patience:
    """How long somebody may take before the connection is cut."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop = loop
        self._transport = transport
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Let the time run, if it does not run already."""
        if self._timer is None:
            self._timer = self._loop.call_later(SLOW, self._transport.abort)

    def end(self) -> None:
        """Wait no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Server(uvicorn.Server):
    """A server that leaves signals to the engine."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Capture none."""
        return nullcontext()


def _config(app: ASGIApp) -> uvicorn.Config:
    """Return how the server keeps its bounds; it says nothing of itself."""
    return uvicorn.Config(
        _bounded(app),
        http=_Door,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level=logging.CRITICAL,  # the application tells of its own errors
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS + 1,  # it refuses the one that makes them so many
        timeout_keep_alive=KEPT,
        timeout_graceful_shutdown=CLOSING,
        h11_max_incomplete_event_size=HEADER,
    )


def _bounded(app: ASGIApp) -> ASGIApp:
    """Return an application that hears of no request with too long a header.

    What comes in slowly is refused before; what came at once is measured here.
    """

    async def bounded(scope: Scope, receive: Receive, send: Send) -> None:
        sizes = [len(name) + len(value) for name, value in scope["headers"]]
        if sum(sizes) + len(scope["raw_path"]) + len(scope["query_string"]) <= HEADER:
            await app(scope, receive, send)
            return
        headers = [(b"content-length", b"0"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 431, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    return bounded


async def _stop_with(stop: asyncio.Event, server: uvicorn.Server) -> None:
    await stop.wait()
    server.should_exit = True


def _say_less(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Leave out what asyncio says a hundred times a second while there is no descriptor."""
    if not str(context.get("message", "")).startswith("socket.accept() out of"):
        loop.default_exception_handler(context)


def _file(path: Path) -> tuple[int, int] | None:
    """Return which file it is; None if there is none."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        os.remove(path)  # noqa: PTH107 - a socket of our own
