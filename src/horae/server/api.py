"""The API: what may be asked of a running engine, and how it answers.

One application for every way in. Its routes are under /api/v1; a question is a GET and changes
nothing, a request is a POST with a JSON object. An answer is the `data()` of what the desk
says, an error one problem document (RFC 9457) with the code and the words of the error.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from itertools import islice
from stat import S_ISREG
from typing import TYPE_CHECKING, Final, Protocol

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from horae.engine.almanac import LONGEST_REST
from horae.engine.desk import RequestError
from horae.engine.why import AskedMomentError, parse_ask, stamp
from horae.errors import Exit, HoraeError
from horae.rules.misfire import Status
from horae.timing.duration import DurationError, parse_duration
from horae.timing.rfc3339 import parse_rfc3339

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

    from starlette.requests import Request

    from horae.engine.almanac import Almanac
    from horae.engine.desk import Desk, EngineFacts
    from horae.engine.ports import Clock, Run

BODY: Final = 1 << 20  # bytes of a request
TEXT: Final = 10_000  # characters of one field
PAGE: Final = 1000  # things on one page
CHUNK: Final = 1 << 16  # bytes of a log that are read at once
LOOK: Final = timedelta(seconds=0.1)  # between two looks at a log that grows

_STATUSES: Final[dict[int, HTTPStatus]] = {
    Exit.USAGE: HTTPStatus.BAD_REQUEST,
    Exit.NOT_FOUND: HTTPStatus.NOT_FOUND,
    Exit.CONFLICT: HTTPStatus.CONFLICT,
    Exit.UNAUTHORISED: HTTPStatus.FORBIDDEN,
    Exit.UNREACHABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Exit.TEMPORARY: HTTPStatus.SERVICE_UNAVAILABLE,
    Exit.TIMED_OUT: HTTPStatus.GATEWAY_TIMEOUT,
}
# An answer is text for whoever asked: no browser may keep it, guess what it is, or run it.
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_LOG: Final = logging.getLogger("horae.server")


@dataclass(frozen=True, slots=True)
class Front:
    """What of an engine others may use through the API."""

    desk: Desk
    almanac: Almanac
    facts: Callable[[], EngineFacts]
    log_of: Callable[[Run], Path]
    clock: Clock


class HttpRequestError(HoraeError):
    """A request that HTTP itself refuses: no such route, not so, too large, or not JSON."""

    code = "http_request"
    exit_code = Exit.USAGE

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        self.status = int(status)
        self.reason = reason
        super().__init__(reason)


class Answer(Protocol):
    """Whatever can be told as plain data."""

    def data(self) -> dict[str, object]:
        """Return it as plain data."""
        ...


def app(front: Front) -> Starlette:
    """Return the application of an engine."""
    routes = [
        Route(path, _endpoint(front, answer), methods=[method])
        for method, path, answer in (
            ("GET", "/healthz", _health),
            ("GET", "/api/v1/status", _status),
            ("GET", "/api/v1/entries", _entries),
            ("POST", "/api/v1/entries/{entry:path}/run", _run_now),
            ("POST", "/api/v1/entries/{entry:path}/pause", _pause),
            ("POST", "/api/v1/entries/{entry:path}/resume", _resume),
            ("POST", "/api/v1/entries/{entry:path}/backfill", _backfill),
            ("GET", "/api/v1/entries/{entry:path}", _entry),
            ("GET", "/api/v1/receipts", _receipts),
            ("GET", "/api/v1/receipts/{number}", _receipt),
            ("GET", "/api/v1/runs/{number}", _run),
            ("GET", "/api/v1/runs/{number}/log", _log),
            ("POST", "/api/v1/runs/{number}/cancel", _cancel),
            ("GET", "/api/v1/why", _why),
            ("GET", "/api/v1/gate", _gate),
            ("GET", "/api/v1/events", _events),
            ("POST", "/api/v1/prune", _prune),
            ("POST", "/api/v1/rescan", _rescan),
        )
    ]
    made = Starlette(
        routes=routes,
        exception_handlers={
            HoraeError: _refused,
            HTTPStatus.NOT_FOUND: _no_route,
            HTTPStatus.METHOD_NOT_ALLOWED: _no_method,
            ClientDisconnect: _gone,
            Exception: _bug,
        },
    )
    made.router.redirect_slashes = False  # it would trust the Host that somebody claims
    made.state.together = _Together()
    return made


# Questions


async def _health(front: Front, request: Request) -> Response:
    """Tell whether the loop turns, can write, and knows what time it is."""
    _query(request)
    now, turned_at = front.clock.now(), front.almanac.turned_at
    trouble = front.almanac.trouble
    lag = timedelta(0) if turned_at is None else now - turned_at - LONGEST_REST
    problems = []
    if turned_at is None:
        problems.append("the engine is starting")
    elif now < turned_at - timedelta(seconds=1):
        problems.append("the clock was set back and the loop has not turned since")
    elif lag > LONGEST_REST:
        problems.append(f"the loop has not turned for {int((now - turned_at).total_seconds())} s")
    if trouble is not None:
        problems.append(f"the ledger cannot be written: {trouble.reason}")
    said = {
        "ok": not problems,
        "at": stamp(now, "UTC"),
        "turned_at": stamp(turned_at, "UTC"),
        "loop_lag_seconds": max(0.0, lag.total_seconds()),
        "ledger_writable": trouble is None,
        "problems": problems,
    }
    return _json(said, HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK)


async def _status(front: Front, request: Request) -> Response:
    """Tell how things stand."""
    limit = _query(request, "limit").limit(20)

    async def looked() -> Response:
        return await asyncio.to_thread(_told, await front.desk.status(front.facts(), limit=limit))

    together: _Together = request.app.state.together
    return await together.ask(limit, looked)


async def _entries(front: Front, request: Request) -> Answer:
    """List the entries, the longest known first."""
    asked = _query(request, "limit", "cursor", "gone")
    return await front.desk.entries(
        limit=asked.limit(100), cursor=asked.number("cursor"), with_gone=asked.flag("gone")
    )


async def _entry(front: Front, request: Request) -> Answer:
    """Tell what is known of one entry."""
    _query(request)
    return await front.desk.entry(request.path_params["entry"])


async def _receipts(front: Front, request: Request) -> Answer:
    """List receipts, newest first."""
    asked = _query(request, "entry", "since", "until", "limit", "cursor", many="status")
    return await front.desk.history(
        asked.text("entry") or None,
        since=asked.moment("since"),
        until=asked.moment("until"),
        statuses=[_status_of(each) for each in request.query_params.getlist("status")],
        limit=asked.limit(50),
        cursor=asked.number("cursor"),
    )


async def _receipt(front: Front, request: Request) -> Answer:
    """Tell what is known of one receipt, with its runs."""
    _query(request)
    return await front.desk.receipt(_number(request))


async def _run(front: Front, request: Request) -> Answer:
    """Tell what is known of one run."""
    _query(request)
    return await front.desk.run(_number(request))


async def _log(front: Front, request: Request) -> Response:
    """Give what a run has put out from some byte on, and with `follow` until it ends."""
    asked = _query(request, "from", "follow")
    follow, start = asked.flag("follow"), asked.number("from") or 0
    found = (await front.desk.run(_number(request))).run

    def goes_on() -> bool:
        return follow and _is_live(front, found)

    parts = _parts(front.log_of(found), start, goes_on=goes_on, clock=front.clock)
    return StreamingResponse(parts, media_type="text/plain; charset=utf-8", headers=_HEADERS)


async def _why(front: Front, request: Request) -> Answer:
    """Tell why an entry ran, or did not."""
    asked = _query(request, "entry", "at", "limit")
    word, at = asked.needed("entry"), asked.text("at")
    ask = parse_ask(f"{word}@{at}") if at else parse_ask(word)
    if at and ask.start is None:
        raise AskedMomentError(at)
    return await front.desk.why(ask, limit=asked.limit(20))


async def _gate(front: Front, request: Request) -> dict[str, object]:
    """Tell who holds a slot, and who waits for what."""
    asked = _query(request, "limit")
    gate, limit = front.almanac.gate, asked.limit(100)
    line = gate.obstacles(now=front.clock.now())
    holding = []
    for each in gate.holders:
        about = (await front.desk.receipt(each.ask.number)).line
        holding.append(
            {
                "receipt": each.ask.number,
                "entry": each.ask.entry,
                "title": about.title,
                "slot": each.slot,
                "kind": each.kind.value,
                "since": stamp(each.since, about.zone),
                "parent": each.ask.parent,
            }
        )
    waiting = []
    for obstacle in islice(line, limit):
        about = (await front.desk.receipt(obstacle.ask.number)).line
        waiting.append(
            {
                "receipt": obstacle.ask.number,
                "entry": obstacle.ask.entry,
                "title": about.title,
                "due_at": stamp(obstacle.ask.due_at, about.zone),
                "reason": obstacle.reason,
                "behind": obstacle.behind,
            }
        )
    return {
        "slots": gate.capacity.slots,
        "crew": gate.capacity.crew,
        "holding": holding,
        "waiting": waiting,
        "in_line": len(line),
    }


async def _events(front: Front, request: Request) -> Answer:
    """List what happened after an event."""
    asked = _query(request, "after", "limit")
    return await front.desk.events(after=asked.number("after") or 0, limit=asked.limit(100))


# Requests


async def _run_now(front: Front, request: Request) -> Answer:
    """Ask for a run now; the same Idempotency-Key gives the same receipt back."""
    asked = await _body(request, "note", "parent_run")
    return await front.desk.run_now(
        request.path_params["entry"],
        note=asked.text("note"),
        parent_run=asked.number("parent_run"),
        idempotency_key=_idempotency_key(request),
    )


async def _pause(front: Front, request: Request) -> Answer:
    """Let an entry rest."""
    asked = await _body(request, "note", "until")
    return await front.desk.pause(
        request.path_params["entry"], note=asked.text("note"), until=asked.end("until")
    )


async def _resume(front: Front, request: Request) -> Answer:
    """Let an entry go on."""
    await _body(request)
    return await front.desk.resume(request.path_params["entry"])


async def _backfill(front: Front, request: Request) -> Answer:
    """Run an entry for every moment of a past window."""
    asked = await _body(request, "from", "to", "id", "dry_run")
    return await front.desk.backfill(
        request.path_params["entry"],
        start=asked.needed_moment("from"),
        end=asked.moment("to"),
        name=asked.text("id") or None,
        dry_run=asked.flag("dry_run"),
    )


async def _cancel(front: Front, request: Request) -> Answer:
    """Let a run end."""
    asked = await _body(request, "reason")
    number = _number(request)

    def end(receipt: int, reason: str) -> bool:
        live = front.almanac.launch.runs.get(receipt)
        is_it = live is not None and live.number == number  # not an attempt after it
        return is_it and front.almanac.launch.cancel(receipt, reason)

    return await front.desk.cancel(number, end=end, reason=asked.text("reason"))


async def _prune(front: Front, request: Request) -> dict[str, object]:
    """Fold old receipts into ranges."""
    asked = await _body(request, "before", "dry_run")
    before, dry_run = asked.needed_moment("before"), asked.flag("dry_run")
    pruned = await front.desk.prune(before=before, dry_run=dry_run)
    return {"before": stamp(before, "UTC"), "dry_run": dry_run, **asdict(pruned)}


async def _rescan(front: Front, request: Request) -> dict[str, object]:
    """Read the plans again now."""
    asked = await _body(request, "source")
    known, source = list(front.almanac.problems), asked.text("source")
    if source and source not in known:
        raise RequestError(f"source is one of {', '.join(known)}, not {source!r}")
    names = [source] if source else known
    for name in names:
        await front.almanac.rescan(name)
    problems = front.almanac.problems
    return {
        "sources": [{"source": each, "problems": [*map(str, problems[each])]} for each in names]
    }


# What a request says


class _Fields:
    """The fields of a request: none is unknown, and each is what it should be or not there."""

    def __init__(self, given: Mapping[str, object], known: tuple[str, ...]) -> None:
        unknown = sorted(given.keys() - set(known))
        if unknown:
            takes = f"there are {', '.join(known)}" if known else "there are none"
            raise RequestError(f"no field is called {unknown[0][:100]!r}; {takes}")
        self._given = given

    def text(self, name: str) -> str:
        """Return a text; nothing if it is not there."""
        value = self._given.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise RequestError(f"{name} is a text, not {_kind(value)}")
        if len(value) > TEXT:
            raise RequestError(f"{name} has at most {TEXT:,} characters")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RequestError(f"{name} holds half of a character") from None
        return value

    def needed(self, name: str) -> str:
        """Return a text that must be there."""
        text = self.text(name)
        if not text:
            raise RequestError(f"{name} is missing")
        return text

    def number(self, name: str) -> int | None:
        """Return a whole number; in a query it is written in digits."""
        value = self._given.get(name)
        if isinstance(value, str) and _is_number(value):
            value = int(value)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**62:
            raise RequestError(f"{name} is a whole number, not {_kind(value)}")
        return value

    def limit(self, default: int) -> int:
        """Return how many things are wanted."""
        limit = self.number("limit")
        if limit is None:
            return default
        if not 1 <= limit <= PAGE:
            raise RequestError(f"limit is from 1 to {PAGE}, not {limit}")
        return limit

    def flag(self, name: str) -> bool:
        """Return whether something is wanted; in a query it is 0 or 1."""
        value = self._given.get(name)
        if isinstance(value, str):
            value = {"1": True, "true": True, "0": False, "false": False}.get(value, value)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise RequestError(f"{name} is true or false, not {_kind(value)}")

    def moment(self, name: str) -> datetime | None:
        """Return a moment in RFC 3339."""
        text = self.text(name)
        if not text:
            return None
        moment = parse_rfc3339(text)
        if not 1 < moment.year < 9999:  # so that it has neighbours in every zone
            raise RequestError(f"{name} lies in the years 2 to 9998, not at {text}")
        return moment.astimezone(UTC)

    def needed_moment(self, name: str) -> datetime:
        """Return a moment that must be there."""
        moment = self.moment(name)
        if moment is None:
            raise RequestError(f"{name} is missing; write it like 2026-06-06T09:00:00Z")
        return moment

    def end(self, name: str) -> datetime | timedelta | None:
        """Return when something ends: a moment, or a length of time like 2h."""
        with suppress(DurationError):
            return parse_duration(self.text(name))
        return self.moment(name)


def _query(request: Request, *known: str, many: str = "") -> _Fields:
    """Return what a question says; only *many* may be there more than once."""
    given: dict[str, object] = {}
    for name, value in request.query_params.multi_items():
        if name in given and name != many:
            raise RequestError(f"{name[:100]} is there twice")
        given[name] = value
    return _Fields(given, (*known, *filter(None, [many])))


async def _body(request: Request, *known: str) -> _Fields:
    """Return what a request says."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        reason = f"a request is application/json, not {kind[:100] or 'without a Content-Type'}"
        raise HttpRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason)
    _query(request)
    text = await _bytes(request)
    try:
        given = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        raise RequestError("the body is not JSON in UTF-8") from None
    if not isinstance(given, dict):
        raise RequestError(f"the body is an object like {{}}, not {_kind(given)}")
    return _Fields(given, known)


async def _bytes(request: Request) -> bytes:
    """Return the body of a request, unless it is too large."""
    length = request.headers.get("content-length", "0")
    body = bytearray()
    if not _is_number(length) or int(length) > BODY:
        raise _too_large()
    async for part in request.stream():
        body += part
        if len(body) > BODY:
            raise _too_large()
    return bytes(body)


def _too_large() -> HttpRequestError:
    return HttpRequestError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {BODY:,} bytes"
    )


def _number(request: Request) -> int:
    """Return the number in a path."""
    text = request.path_params["number"]
    if not _is_number(text):
        raise RequestError(f"{text[:100]!r} is not a number")
    return int(text)


def _is_number(text: str) -> bool:
    """Tell whether a text is a number that the ledger may have given."""
    return text.isascii() and text.isdecimal() and len(text) <= 18


def _status_of(text: str) -> Status:
    """Return a status by its name."""
    try:
        return Status(text)
    except ValueError:
        known = ", ".join(each.value for each in Status)
        raise RequestError(f"status is one of {known}, not {text[:100]!r}") from None


def _idempotency_key(request: Request) -> str | None:
    """Return the key under which a request is done once."""
    keys = [value for name, value in request.headers.raw if name == b"idempotency-key"]
    if len(keys) > 1:
        raise RequestError("Idempotency-Key is there twice")
    try:
        return keys[0].decode() if keys else None
    except UnicodeDecodeError:
        raise RequestError("Idempotency-Key is not in UTF-8") from None


def _kind(value: object) -> str:
    """Return what kind of JSON something is, or the text that it is."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return repr(value[:100])
        case int() | float():
            return "such a number" if abs(value) >= 2**62 or value < 0 else f"{value}"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return "null"


# What a run puts out


async def _parts(
    path: Path, start: int, *, goes_on: Callable[[], bool], clock: Clock
) -> AsyncIterator[bytes]:
    """Yield a log in parts, as fast as whoever reads it takes them.

    What a run put out last is in the file before its end is known, so after that one more
    look is enough.
    """
    never = asyncio.Event()
    while True:
        is_over = not goes_on()
        while part := await asyncio.to_thread(_read, path, start):
            start += len(part)
            yield part
        if is_over:
            return
        never.clear()
        await clock.wait(never, until=clock.now() + LOOK)


def _read(path: Path, start: int) -> bytes:
    """Return a part of a file; nothing if there is no more of it, or no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        if not S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        return os.pread(descriptor, CHUNK, start)
    finally:
        os.close(descriptor)


def _is_live(front: Front, run: Run) -> bool:
    """Tell whether the engine still has a run; if not, its end is in the ledger."""
    live = front.almanac.launch.runs.get(run.receipt)
    return live is not None and live.number == run.number


# Answers


class _Together:
    """Lets those who ask the same at the same time share one answer, made after all have asked.

    So a question that looks at every entry costs the engine one look at a time, however many
    ask it.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._coming: dict[int, asyncio.Task[Response]] = {}

    async def ask(self, key: int, answer: Callable[[], Awaitable[Response]]) -> Response:
        """Return the answer that is made next."""
        coming = self._coming.get(key)
        if coming is None:
            coming = self._coming[key] = asyncio.create_task(self._make(key, answer))
        return await asyncio.shield(coming)  # one who goes away takes it from nobody

    async def _make(self, key: int, answer: Callable[[], Awaitable[Response]]) -> Response:
        async with self._turn:
            del self._coming[key]  # whoever asks from now on may know of something newer
            return await answer()


def _endpoint(
    front: Front,
    answer: Callable[[Front, Request], Awaitable[Answer | dict[str, object] | Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Return what starlette calls for a route."""

    async def endpoint(request: Request) -> Response:
        said = await answer(front, request)
        if isinstance(said, Response):
            return said
        # A long page takes a while to write down, and the engine must not wait for it.
        return await asyncio.to_thread(_told, said)

    return endpoint


def _told(said: Answer | dict[str, object]) -> Response:
    return _json(said if isinstance(said, dict) else said.data())


def _json(
    data: object,
    status: int = HTTPStatus.OK,
    *,
    kind: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return an answer in JSON."""
    # In ASCII: the name of a file may hold what cannot be written in UTF-8.
    text = json.dumps(data, default=str, separators=(",", ":"))
    return Response(text, status, headers={**_HEADERS, **(headers or {})}, media_type=kind)


def _problem(
    error: HoraeError, status: int, *, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an error as a problem document."""
    said = error.data()
    problem = {
        "type": f"urn:horae:error:{said['code']}",
        "title": HTTPStatus(status).phrase,
        "status": int(status),
        "detail": said["message"],
        "code": said["code"],
        "exit_code": int(error.exit_code),
        "facts": said["facts"],
    }
    return _json(problem, status, kind="application/problem+json", headers=headers)


async def _refused(_: Request, error: Exception) -> Response:
    """Say what cannot be done, and what would be right."""
    assert isinstance(error, HoraeError), "it is registered for these"
    if isinstance(error, HttpRequestError):
        return _problem(error, error.status)
    return _problem(error, _STATUSES.get(error.exit_code, HTTPStatus.INTERNAL_SERVER_ERROR))


async def _no_route(request: Request, _: Exception) -> Response:
    reason = f"there is no {request.url.path[:200]!r}; the routes begin with /api/v1"
    status = HTTPStatus.NOT_FOUND
    return _problem(HttpRequestError(status, reason), status)


async def _no_method(request: Request, error: Exception) -> Response:
    headers: Mapping[str, str] = getattr(error, "headers", None) or {}
    reason = f"{request.method[:20]} is not possible here; use {headers.get('Allow', 'GET')}"
    status = HTTPStatus.METHOD_NOT_ALLOWED
    return _problem(HttpRequestError(status, reason), status, headers=headers)


async def _gone(_: Request, __: Exception) -> Response:
    """Say nothing: whoever asked has gone away."""
    return Response(status_code=HTTPStatus.BAD_REQUEST)


async def _bug(request: Request, error: Exception) -> Response:
    """Tell the engine's owner what happened, and whoever asked only that it did."""
    _LOG.error("%s %s", request.method, request.url.path, exc_info=error)
    said = HoraeError("this is a bug in horae; the engine's own output says where")
    return _problem(said, HTTPStatus.INTERNAL_SERVER_ERROR)
