"""A wire between a member and its database that a test can cut, or hold up in either direction."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from struct import unpack
from threading import Thread
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from ssl import SSLContext

T = TypeVar("T")

CHUNK: Final = 1 << 16
TURNS: Final = 10  # of the loop, from an accepted connection to the first step of its task
SSL: Final = 80877103  # the words by which a client asks
GSS: Final = 80877104


class Exchange:
    """Where wires are: a loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._wires: list[Wire] = []
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def do(self, part: Coroutine[None, None, T]) -> T:
        """Do something there, and return what comes of it."""
        return asyncio.run_coroutine_threadsafe(part, self._loop).result(30)

    def wire(self, target: str, *, tls: SSLContext | None = None) -> Wire:
        """Return a new wire to a unix socket, or to a host and port; with *tls* it speaks that, as PostgreSQL does."""
        wire = Wire(self, target, tls=tls)
        self.do(wire.open())
        self._wires.append(wire)
        return wire

    def end(self) -> None:
        """Cut all wires."""

        async def ending() -> None:
            for wire in self._wires:
                wire.deafen()
            # A connection that was just accepted gets its task some turns of the loop later. The
            # server must be open until then, and the task must begin before it is cancelled:
            # otherwise nothing closes the socket.
            for _ in range(TURNS):
                await asyncio.sleep(0)
            left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            for wire in self._wires:
                wire.close()
            await asyncio.sleep(0)

        self.do(ending())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Wire:
    """A port of this machine behind which is a unix socket.

    What is held up is not lost: it arrives when the wire is mended, as a network would have it,
    even if whoever sent it has given up since.
    """

    def __init__(self, exchange: Exchange, target: str, *, tls: SSLContext | None = None) -> None:
        self._exchange = exchange
        self._tls = tls
        self._target = target
        self._server: asyncio.Server | None = None
        self._there = asyncio.Event()  # whether what is sent arrives
        self._back = asyncio.Event()  # whether what is answered arrives
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self.port = 0

    async def open(self) -> None:
        """Begin to listen."""
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self._there.set()
        self._back.set()

    def deafen(self) -> None:
        """Accept no more connections."""
        for each in self._server.sockets if self._server is not None else ():
            asyncio.get_running_loop().remove_reader(each.fileno())

    def close(self) -> None:
        """Listen no longer."""
        if self._server is not None:
            self._server.close()

    def cut(self) -> None:
        """Break every connection, and let none be made."""
        self._exchange.do(self._set(is_cut=True))

    def hold_up(self, *, there: bool = True, back: bool = True) -> None:
        """Let nothing through, in either direction or in both."""
        self._exchange.do(self._set(there=not there, back=not back))

    def forget(self) -> None:
        """Forget the connections there are, as a firewall does: nothing passes, nobody is told."""
        self._exchange.do(self._forget())

    def mend(self) -> None:
        """Let everything through again, with what was held up."""
        self._exchange.do(self._set())

    async def _set(self, *, is_cut: bool = False, there: bool = True, back: bool = True) -> None:
        self._is_cut = is_cut
        for event, goes in ((self._there, there), (self._back, back)):
            event.set() if goes else event.clear()
        if is_cut:
            for writer in self._writers:
                writer.transport.abort()

    async def _forget(self) -> None:
        for event in (self._there, self._back):
            event.clear()
        self._there, self._back = asyncio.Event(), asyncio.Event()
        await self._set()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry what one connection says, and what it is answered."""
        self._writers.add(writer)
        there, back = self._there, self._back
        try:
            await there.wait()
            if self._is_cut:
                return
            with suppress(OSError, EOFError, asyncio.CancelledError):  # the stage is ended
                if self._tls is not None:
                    await _begin_tls(reader, writer, self._tls)
                far_reader, far_writer = await _opened(self._target)
                self._writers.add(far_writer)
                try:
                    await asyncio.gather(
                        _pump(reader, far_writer, there),
                        _pump(far_reader, writer, back),
                    )
                finally:
                    far_writer.transport.abort()
                    self._writers.discard(far_writer)
        finally:
            self._writers.discard(writer)
            writer.transport.abort()


async def _opened(target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if target.startswith("/"):
        return await asyncio.open_unix_connection(target)
    host, _, port = target.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def _begin_tls(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: SSLContext
) -> None:
    """Answer as a server that speaks TLS; one who asks for none is sent away."""
    while True:
        length, code = unpack("!II", await reader.readexactly(8))
        if (length, code) == (8, GSS):
            writer.write(b"N")
        elif (length, code) == (8, SSL):
            writer.write(b"S")
            await writer.start_tls(context)
            return
        else:
            raise EOFError


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flows: asyncio.Event
) -> None:
    """Carry on what comes, while it flows; then hang up."""
    with suppress(OSError):
        while data := await reader.read(CHUNK):
            await flows.wait()
            writer.write(data)
            await writer.drain()
    await flows.wait()
    writer.close()
