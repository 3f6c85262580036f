"""What an answer looks like: JSON, an error as a problem document, the headers of both."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import pkgutil
import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import UNSET
from starlette.responses import Response, StreamingResponse

from horae.core.views import CannotRunError, Maybe, Shape
from horae.errors import Exit, HoraeError
from horae.sources.triggers.service import refusal
from horae.web.router import JSON, PROBLEM, HttpRequestError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from starlette.requests import Request

    MoreHeaders: TypeAlias = Mapping[str, str] | None

log = logging.getLogger(__name__)

STATUSES: Final[dict[int, HTTPStatus]] = {
    Exit.FINDINGS: HTTPStatus.UNPROCESSABLE_ENTITY,
    Exit.USAGE: HTTPStatus.BAD_REQUEST,
    Exit.NOT_FOUND: HTTPStatus.NOT_FOUND,
    Exit.CONFLICT: HTTPStatus.CONFLICT,
    Exit.UNAUTHORISED: HTTPStatus.FORBIDDEN,
    Exit.UNREACHABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Exit.TEMPORARY: HTTPStatus.SERVICE_UNAVAILABLE,
    Exit.TIMED_OUT: HTTPStatus.GATEWAY_TIMEOUT,
}
# An answer is for its client: no browser may keep it, guess what it is, run what is not ours,
# or show it inside another page.
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # without it a form of ours would have no origin
    "X-Content-Type-Options": "nosniff",
}
# The routes that are older than we are say what is wrong in their own way.
_PLAIN: Final = ("/api/workflow", "/api/run", "/agents", "/workflows", "/webhooks", "/health", "/_")
# What a terminal or a browser would obey instead of showing it; line ends and tabs stay.
CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
SMALL: Final = 1400  # bytes, which fit into one packet
_GZIP: Final = re.compile(r"\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))")
FRESH: Final = 0.1  # seconds for which an answer is given again
STALE: Final = 0.25  # while the next one is made
KEPT: Final = 8  # answers to questions that differ


class Together:
    """Lets those who ask the same share one answer; what was changed here is always in it."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._coming: dict[int, asyncio.Task[Response]] = {}
        self._kept: dict[int, tuple[float, Response]] = {}

    def forget(self) -> None:
        self._kept.clear()
        self._coming.clear()

    async def ask(self, key: int, answer: Callable[[], Awaitable[Response]]) -> Response:
        made_at, kept = self._kept.get(key, (0.0, None))
        age = asyncio.get_running_loop().time() - made_at
        if kept is not None and age <= FRESH:
            return kept
        coming = self._coming.get(key)
        if coming is None:
            coming = self._coming[key] = asyncio.create_task(self._make(key, answer))
            # How it ended is noted, also if nobody waits for it any more.
            coming.add_done_callback(lambda made: made.cancelled() or made.exception())
        if kept is not None and age <= STALE:
            return kept
        return await asyncio.shield(coming)  # one who goes away takes it from nobody

    async def _make(self, key: int, answer: Callable[[], Awaitable[Response]]) -> Response:
        me = asyncio.current_task()
        async with self._turn:
            began_at = asyncio.get_running_loop().time()
            try:
                made = await answer()
            except BaseException:
                if self._coming.get(key) is me:
                    del self._coming[key]
                raise
            if self._coming.get(key) is me:  # nothing was changed since it was begun
                del self._coming[key]
                self._kept.pop(key, None)
                self._kept[key] = began_at, made
                while len(self._kept) > KEPT:
                    del self._kept[next(iter(self._kept))]
            return made


def html(name: str) -> bytes:
    return pkgutil.get_data("horae.web", f"page/templates/{name}.html") or b""


def plain_page(name: str, status: int, headers: MoreHeaders = None) -> Response:
    """Return a page that loads nothing, for browsers that are not logged in."""
    return styled(html(name), status, headers)


def styled(text: bytes, status: int, headers: MoreHeaders = None) -> Response:
    """Return a page with its style written into it."""
    style, digest = _style()
    whole = text.replace(b"</head>", b"<style>%s</style></head>" % style, 1)
    policy = HEADERS["Content-Security-Policy"]
    policy = policy.replace("style-src 'self'", f"style-src 'sha256-{digest}'")
    more = {**HEADERS, "Content-Security-Policy": policy, **(headers or {})}
    return Response(whole, status, headers=more, media_type="text/html")


@cache
def _style() -> tuple[bytes, str]:
    """Return the style of pages that load nothing, and the digest by which a browser takes it."""
    names = ("tokens", "plain")
    parts = (pkgutil.get_data("horae.web", f"page/static/{name}.css") or b"" for name in names)
    style = b"".join(parts)
    return style, b64encode(sha256(style).digest()).decode()


def harmless(text: str) -> str:
    r"""Return a text that nothing obeys.

    >>> harmless("a\x1b[2Jb")
    'a�[2Jb'
    """
    return CONTROLS.sub("�", text)


def as_json(
    data: object, status: int = HTTPStatus.OK, *, kind: str = JSON, headers: MoreHeaders = None
) -> Response:
    body = encoded(data)
    return Response(body, status, headers={**HEADERS, **(headers or {})}, media_type=kind)


def tagged(data: object, tag: str) -> Response:
    return as_json(data, headers={"ETag": f'"{tag}"'})


def streamed(parts: AsyncIterator[bytes], kind: str, headers: MoreHeaders = None) -> Response:
    return StreamingResponse(parts, media_type=kind, headers={**HEADERS, **(headers or {})})


def takes_gzip(request: Request) -> bool:
    return _GZIP.search(request.headers.get("accept-encoding", "")) is not None


async def shrunk(request: Request, answer: Response) -> Response:
    """Return an answer compressed, if that is worth it and the client takes it so."""
    body = getattr(answer, "body", b"")  # a stream has none
    if len(body) < SMALL or not takes_gzip(request):
        return answer
    made = Response(await asyncio.to_thread(gzip.compress, body, 5, mtime=0), answer.status_code)
    kept = [each for each in answer.raw_headers if each[0] != b"content-length"]
    made.raw_headers += [*kept, (b"content-encoding", b"gzip"), (b"vary", b"accept-encoding")]
    return made


_ENCODER: Final = msgspec.json.Encoder(enc_hook=str)


def encoded(data: object) -> bytes:
    try:
        body = _ENCODER.encode(data)
    except (UnicodeEncodeError, OverflowError):
        # The name of a file may hold what cannot be written in UTF-8, a fact a number that long.
        plain = msgspec.to_builtins(data, enc_hook=str)
        return json.dumps(plain, separators=(",", ":")).encode()
    if body.isascii() and b"\x7f" not in body:
        return body
    # JSON itself escapes no more than the characters below the blank.
    return CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", body.decode()).encode()


def is_plain(path: str) -> bool:
    """Whether an error at a path is `{"error": …}` instead of a problem document.

    >>> is_plain("/api/v1/status"), is_plain("/api/run/7")
    (False, True)
    """
    return any(path == each or path.startswith((f"{each}/", "/_")) for each in _PLAIN)


def refused(error: HoraeError, path: str, status: int, headers: MoreHeaders = None) -> Response:
    if is_plain(path):
        return as_json({"error": str(error)}, status, headers=headers)
    return as_json(problem_of(error, status), status, kind=PROBLEM, headers=headers)


class Problem(Shape, frozen=True, kw_only=True):
    """An error, as RFC 9457 has it."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    exit_code: int
    facts: dict[str, Any]
    error: str | Maybe = UNSET  # as clients of the older paths look for it


def problem_of(error: HoraeError, status: int) -> Problem:
    said = error.data()
    return Problem(
        type=f"urn:horae:error:{said['code']}",
        title=HTTPStatus(status).phrase,
        status=int(status),
        detail=said["message"],
        code=said["code"],
        exit_code=int(error.exit_code),
        facts=said["facts"],
        error=said["message"] if isinstance(error, CannotRunError) else UNSET,
    )


async def on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HoraeError), "it is registered for these"
    path = request.scope["path"]
    if isinstance(error, HttpRequestError):
        return refused(error, path, error.status)
    usual = STATUSES.get(error.exit_code, HTTPStatus.INTERNAL_SERVER_ERROR)
    if isinstance(error, CannotRunError):
        return as_json(problem_of(error, usual), usual, kind=PROBLEM)
    if is_plain(path):
        status, said = refusal(error)
        return as_json(said, usual if status == HTTPStatus.INTERNAL_SERVER_ERROR else status)
    return refused(error, path, usual)


async def on_no_route(request: Request, _: Exception) -> Response:
    path, status = request.scope["path"], HTTPStatus.NOT_FOUND
    reason = f"there is no route {path[:200]!r}; /openapi.json lists the routes"
    return refused(HttpRequestError(status, reason), path, status)


async def on_no_method(request: Request, error: Exception) -> Response:
    path, status = request.scope["path"], HTTPStatus.METHOD_NOT_ALLOWED
    # Starlette says the methods of the first route only, and of a page in any order.
    own = getattr(error, "headers", None) or {}
    allowed = request.app.state.allowed(path) or sorted(own.get("Allow", "GET").split(", "))
    words = ", ".join(allowed)
    reason = f"method {request.method[:20]} is not allowed here; use {words}"
    return refused(HttpRequestError(status, reason), path, status, {"Allow": words})


async def on_leave(_: Request, __: Exception) -> Response:
    return Response(status_code=HTTPStatus.BAD_REQUEST)  # which nobody reads


async def on_bug(request: Request, error: Exception) -> Response:
    """Tell the engine's owner what happened, and the client only that it did."""
    log.error("unhandled error in %s %s", request.method, request.scope["path"], exc_info=error)
    said = HoraeError("internal error: this is a bug in horae; see the log of the engine")
    return refused(said, request.scope["path"], HTTPStatus.INTERNAL_SERVER_ERROR)
