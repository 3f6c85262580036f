"""How a member of a cluster answers for another: it asks that one, and hands the answer on.

The caller was let in by our own guard before. The other member is asked with a secret that only
members know, and is told for whom: the actor and the scopes. It is asked by name of its own
loopback, and what a browser sends of itself stays here.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import quote

import h11
from msgspec import structs
from starlette.responses import HTMLResponse

from horae.core.actor import ENGINE, Scope as TokenScope, scope_words
from horae.core.explain import length_text
from horae.core.lease import NodeLine, NodePage
from horae.core.receipt import Filed, Status
from horae.core.settings import ListenAddress
from horae.core.text import moment_text
from horae.core.views import EngineFacts, StatusReport, receipt_line, zoned
from horae.errors import Exit, HoraeError
from horae.web import ACTOR, RUN, SCOPES
from horae.web.answer import HEADERS, as_json, refused
from horae.web.keys import caller_of
from horae.web.page import sheet
from horae.web.page.now import node_rows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from datetime import timedelta

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    Where: TypeAlias = "Callable[[], tuple[str, ListenAddress] | None]"

log = logging.getLogger(__name__)

CONNECT: Final = 3.0  # seconds
LEAVING: Final = 1.0  # seconds for an answer to come, although who asked has gone
CHUNK: Final = 1 << 16
FROM: Final = b"x-horae-from"  # the node that forwards: no request is forwarded twice

# What is sent in our own name, or belongs to one connection alone.
_OWN: Final = frozenset({
    b"authorization", b"connection", b"content-length", b"cookie", b"host", b"keep-alive",
    b"origin", b"referer", b"te", b"trailer", b"transfer-encoding", b"upgrade", FROM,
    ACTOR.encode(), RUN.encode(), SCOPES.encode(),
})  # fmt: skip
_HOP: Final = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"upgrade"})


class NoLeaderError(HoraeError, code="no_leader", exit_code=Exit.TEMPORARY):
    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"{reason}; try again in a few seconds, or see `horae cluster nodes`")


def refuse(error: NoLeaderError, scope: Scope) -> ASGIApp:
    return refused(error, scope["path"], HTTPStatus.SERVICE_UNAVAILABLE)


@dataclass(frozen=True, slots=True)
class Forwarder:
    """An application that lets the node at *where* answer, else *otherwise*."""

    where: Where
    secret: str
    name: str
    otherwise: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            await self._forward(scope, receive, send)
        except NoLeaderError as error:
            await (self.otherwise or refuse(error, scope))(scope, receive, send)

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        found, name = self.where(), self.name
        if found is None:
            raise NoLeaderError("the cluster has no leader")
        other, address = found
        if (asker := dict(scope["headers"]).get(FROM)) is not None:  # nobody asks twice around
            sender = asker.decode(errors="replace")[:64]
            reason = f"{sender} forwarded the request to {name}, which is not the leader"
            raise NoLeaderError(reason)
        try:
            async with asyncio.timeout(CONNECT):
                reader, writer = await asyncio.open_connection(address.host, address.port)
        except OSError as error:  # a timeout is one
            reason = f"{other} at {address} does not respond ({error or 'timed out'})"
            raise NoLeaderError(reason) from None
        wire = h11.Connection(h11.CLIENT)
        try:
            body = await _body(receive)
            request = _request(scope, body, self.secret, name)
            for part in (request, h11.Data(body), h11.EndOfMessage()):
                writer.write(wire.send(part) or b"")
            await writer.drain()
            has_begun = asyncio.Event()
            answering = asyncio.ensure_future(_hand_on(wire, reader, send, other, has_begun))
            leaving = asyncio.ensure_future(_gone(receive))
            try:
                await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if not has_begun.is_set():
                    # A request that ends the token it came with is still answered.
                    await asyncio.wait({answering}, timeout=LEAVING)
                if answering.done():
                    answering.result()
            finally:
                for task in (answering, leaving):
                    task.cancel()
                await asyncio.gather(answering, leaving, return_exceptions=True)
        finally:
            writer.close()
            with suppress(OSError):  # the other side has closed it
                await writer.wait_closed()


AWAY: Final = "/api/v1/nodes/away"  # what nodes ask each other, each time with another query


def word_of(name: str, question: bytes, promise: timedelta, secret: str) -> bytes:
    """Return by what a node says, to one question, that it is away, and for how long it stays so.

    It stays so in what it does: for that long it records no node as lost.
    """
    said = b"%s %s %s" % (question, name.encode(), str(promise).encode())
    return hmac.new(secret.encode(), said, sha256).hexdigest().encode()


async def gives_word(other: str, address: str, name: str, promise: timedelta, secret: str) -> bool:
    """Ask another node whether it does not reach the database; silence counts as reaching it."""
    question = token_hex(16)
    try:
        async with asyncio.timeout(promise.total_seconds() / 6):
            said = await _fetch(ListenAddress.of(address), f"{AWAY}?{question}", secret, name)
    except (OSError, ValueError) as error:  # a timeout is one
        log.debug("%s does not say whether it reaches the database: %s", other, error)
        return False
    return hmac.compare_digest(said, word_of(other, question.encode(), promise, secret))


async def _fetch(address: ListenAddress, target: str, secret: str, name: str) -> bytes:
    """Return what a node answers to another one, which asks in its own name; OSError: nothing."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    wire, said = h11.Connection(h11.CLIENT), b""
    own = {"host": "localhost", FROM.decode(): name, "authorization": f"Bearer {secret}"}
    own |= {ACTOR: ENGINE, SCOPES: TokenScope.READ.value, "connection": "close"}
    try:
        request = h11.Request(method="GET", target=target, headers=[*own.items()])
        writer.write((wire.send(request) or b"") + (wire.send(h11.EndOfMessage()) or b""))
        async for event in _events(wire, reader):
            if isinstance(event, h11.Response) and event.status_code != HTTPStatus.OK:
                raise ConnectionRefusedError(f"status {event.status_code}")
            said += event.data if isinstance(event, h11.Data) else b""
            if isinstance(event, h11.ConnectionClosed) or len(said) > CHUNK:
                raise ConnectionResetError("no whole answer")
    finally:
        writer.close()
    return said


async def _events(wire: h11.Connection, reader: asyncio.StreamReader) -> AsyncIterator[h11.Event]:
    """Yield the parts of an answer; the last of one that breaks off is that it is closed."""
    event: h11.Event | type[h11.NEED_DATA | h11.PAUSED] = h11.NEED_DATA
    while not isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
        try:
            event = wire.next_event()
            if event is h11.NEED_DATA:
                wire.receive_data(await reader.read(CHUNK))
        except h11.RemoteProtocolError:
            event = h11.ConnectionClosed()
        if isinstance(event, h11.Event):
            yield event


def _request(scope: Scope, body: bytes, secret: str, name: str) -> h11.Request:
    """Return the same request in our own name, for whom the guard let in, if it needs a token."""
    query, caller = scope["query_string"], caller_of(scope)
    target = scope["raw_path"] + (b"?" + query if query else b"")
    headers = [(key, value) for key, value in scope["headers"] if key.lower() not in _OWN]
    ours = {"host": "localhost", "content-length": str(len(body)), "connection": "close"}
    ours[FROM.decode()] = name
    if caller is not None:
        ours |= {
            "authorization": f"Bearer {secret}",
            ACTOR: quote(caller.actor, errors="replace"),
            SCOPES: ",".join(scope_words(caller.scopes)),
        }
    headers += [(key.encode(), value.encode()) for key, value in ours.items()]
    return h11.Request(method=scope["method"], target=target, headers=headers)


async def _body(receive: Receive) -> bytes:
    parts, has_more = [], True
    while has_more:
        message: Message = await receive()
        parts.append(message.get("body", b""))
        has_more = bool(message.get("more_body"))
    return b"".join(parts)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _hand_on(
    wire: h11.Connection,
    reader: asyncio.StreamReader,
    send: Send,
    other: str,
    has_begun: asyncio.Event,
) -> None:
    """Hand on an answer, part by part; one that breaks off is not ended as if it were whole."""
    async for event in _events(wire, reader):
        if isinstance(event, h11.Response):
            headers = [(key, value) for key, value in event.headers if key.lower() not in _HOP]
            start = {"type": "http.response.start", "status": event.status_code, "headers": headers}
            has_begun.set()
            await send(start)
        elif isinstance(event, h11.Data):
            await send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
        elif isinstance(event, h11.EndOfMessage):
            await send({"type": "http.response.body", "body": b""})
        elif isinstance(event, h11.ConnectionClosed):
            if not has_begun.is_set():
                raise NoLeaderError(f"{other} closed the connection before it responded")
            raise ConnectionResetError(f"{other} closed the connection during its response")


# What a node shows while its database cannot be reached: the last that it knows by itself


_STATIC: Final = Path(__file__).parent / "page" / "static"
_EVERY: Final = 5  # seconds after which the page is asked for again


@dataclass(frozen=True, slots=True)
class LastKnownState:
    node: str
    at: datetime
    zone: str
    engine: EngineFacts
    since: datetime | None  # when the database was last reached
    left: timedelta  # for which runs may continue without it, at most
    runs: Sequence[Filed]  # of this node
    unrecorded: int  # runs of this node that have ended since
    nodes: Sequence[NodeLine]  # as they were then

    @property
    def words(self) -> str:
        since = "" if self.since is None else f" since {moment_text(self.since, self.zone)}"
        said = [f"{self.node} has not reached the database{since}, and nothing starts"]
        if self.runs:
            said.append(f"its runs continue for at most {length_text(self.left)}")
        if self.unrecorded:
            said.append(f"{self.unrecorded} ended, to be recorded when the database is back")
        return f"{'; '.join(said)}. This is the last known state."

    def status(self) -> StatusReport:
        lines = []
        for filed in self.runs:
            receipt = structs.replace(filed.receipt, status=Status.RUNNING)
            shown = structs.replace(filed, receipt=receipt, machine=self.node)
            lines.append(receipt_line(shown, filed.title, self.zone))
        return StatusReport(
            at=zoned(self.at, self.zone),
            zone=self.zone,
            stall=self.words,
            engine=self.engine.line,
            entries=0,
            counts={Status.RUNNING: len(lines)},
            running=tuple(lines),
            problems=self.engine.problems,
        )

    def answer(self, scope: Scope) -> ASGIApp:
        path = scope["path"]
        if scope["method"] in {"GET", "HEAD"}:
            if path == "/api/v1/status":
                return as_json(self.status())
            if path == "/api/v1/nodes":
                return as_json(NodePage([*self.nodes]))
            if not path.startswith("/api/") and b"text/html" in dict(scope["headers"]).get(
                b"accept", b""
            ):
                return HTMLResponse(self._page(), headers=HEADERS)
        return refuse(NoLeaderError(self.words.removesuffix(".")), scope)

    def _page(self) -> str:
        values: dict[str, object] = {"words": self.words, "node": self.node}
        values |= {"running": self.status().running, "nodes": node_rows(self.nodes)}
        page = sheet.Sheet("absence.html", "Last known state", "", values, every=_EVERY)
        look = sheet.PageTime(self.at, self.zone)
        common = {
            "event": 0,
            "trouble": None,
            "started_at": None,
            "attention": 0,
            "plan_zone": self.zone,
            "token": "",
        }
        return sheet.written(sheet.templates(()), page, look, _static_version(), common)


@cache
def _static_version() -> str:
    return sheet.Static.read(_STATIC).version
