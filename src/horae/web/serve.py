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
from typing import TYPE_CHECKING, Final

import uvicorn

from horae.errors import Exit, HoraeError
from horae.web import SOCKET, address
from horae.web.door import HEADER, KNOCKING, ClientConnection, Door

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.types import ASGIApp, Receive, Scope, Send

    from horae.web.peers import Proxies

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
    try:
        await server.serve(sockets=[listener])
    finally:
        stopping.cancel()
        listener.close()
        if _file(directory / SOCKET) == ours:  # not that of an engine after this one
            _remove(directory / SOCKET)


async def serve_tcp(
    app: ASGIApp,
    listener: socket.socket,
    *,
    stop: asyncio.Event,
    proxies: Proxies | None = None,
) -> None:
    """Answer on a port until *stop* is set; what is being answered then has two seconds left.

    One of the *proxies* may have as many connections as there are.
    """
    server = _Server(_config(app), proxies)
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
        listener.listen(KNOCKING)
    except OSError as error:
        listener.close()
        remedy = "stop the program that listens there, or set `listen` to another port"
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
    with suppress(FileExistsError):  # left by an engine that was killed
        private.mkdir(mode=0o700)
    private.chmod(0o700)
    made = private / SOCKET
    _remove(made)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with address(private) as near:
            listener.bind(near)
        made.chmod(0o600)
        listener.listen(KNOCKING)
        made.replace(directory / SOCKET)
    except BaseException:
        listener.close()
        raise
    with suppress(OSError):  # the next start uses it
        private.rmdir()
    return listener


class _Server(uvicorn.Server):
    """A server that leaves signals to the engine, and to a door who comes in."""

    def __init__(self, config: uvicorn.Config, proxies: Proxies | None = None) -> None:
        super().__init__(config)
        self._proxies = proxies

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Let them in, one door for each socket."""

        def wire() -> ClientConnection:
            return ClientConnection(
                config=self.config, server_state=self.server_state, app_state={}
            )

        doors = [Door(each, wire, proxies=self._proxies) for each in sockets or ()]
        self.servers = doors  # type: ignore[assignment]
        for door in doors:
            door.open()
        self.started = True

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Capture none."""
        return nullcontext()


def _config(app: ASGIApp) -> uvicorn.Config:
    """Return how the server keeps its bounds; it says nothing of itself."""
    return uvicorn.Config(
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


def _file(path: Path) -> tuple[int, int] | None:
    """Return which file it is; None if there is none."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):  # there is nothing to remove
        os.remove(path)
