"""How a route is declared: once, for the router, the guard, the request reader and OpenAPI.

A decorator of `Routes` takes path, access and limits, and the signature of the function says the
rest. A parameter is named after what it gets: `front`, `request`, a part of the path, the structs
`query` and `body`, `given` (the JSON object as it came), `raw` (the bytes), or a header.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, get_type_hints

import msgspec
from starlette.responses import Response

from horae.core.actor import Scope
from horae.core.text import is_number
from horae.core.views import RequestError
from horae.errors import Exit, HoraeError
from horae.web.fields import Fields, NoFields, described, kind_of, parsed, query_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from horae.web.front import Front

Handler: TypeAlias = Callable[..., Awaitable[Any]]
Tagging: TypeAlias = "Callable[[Front, Request], Awaitable[str]]"
H = TypeVar("H", bound=Handler)

JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
BODY: Final = 1 << 20  # bytes of a request
SOON: Final = 0.1  # seconds within which nobody is expected to leave
_PATH: Final = re.compile(r"\{(\w+)(?::path)?\}")
_HEADERS: Final = {"idempotency_key": "Idempotency-Key", "if_match": "If-Match"}


class HttpRequestError(HoraeError, code="http_request", exit_code=Exit.USAGE):
    """A request that HTTP itself refuses: no such route, not so, too large, or not JSON."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        self.status = int(status)
        self.reason = reason
        super().__init__(reason)


class ChangedError(HttpRequestError, code="changed"):
    def __init__(self) -> None:
        reason = "the object has changed since it was read; read it again"
        super().__init__(HTTPStatus.PRECONDITION_FAILED, reason)


class Access(StrEnum):
    """Who may use a route that needs no token."""

    OPEN = "open"  # everybody
    SIGNED = "signed"  # those who sign the message with the secret of its webhook
    SECRET = "secret"  # noqa: S105 - those who know the path
    PUBLIC = "public"  # everybody, if the public plane is switched on


@dataclass(frozen=True, slots=True)
class Operation:
    """One route: who may use it, what it takes, what it answers, and the function that does so."""

    method: str
    path: str
    access: Scope | Access  # without a default: no route is open because nobody thought of it
    handler: Handler
    answer: Any  # a type
    takes: frozenset[str] = frozenset()  # the names of the parameters
    query: type[Fields] = NoFields
    body: type[Fields] | None = None
    numbers: tuple[str, ...] = ()  # parts of the path
    name: str = ""
    words: str = ""  # what it does
    status: int = 200
    kind: str = JSON
    headers: tuple[str, ...] = ()  # of a request, that mean something here
    also: tuple[int, ...] = ()  # statuses that others do not have
    is_long: bool = False  # it may take longer than 30 s, or has no end
    is_once: bool = False  # a look at it changes something, so a HEAD is refused
    is_left: bool = False  # it is ended when the client leaves, as each GET is
    tag: Tagging | None = None  # names what it is about, as people have made it
    has_tag: bool = False  # it says that tag by itself

    @property
    def scope(self) -> Scope | None:
        """The scope that a token needs; None: no token is needed."""
        return self.access if isinstance(self.access, Scope) else None

    @property
    def methods(self) -> tuple[str, ...]:
        is_looked_at = self.method == "GET" and not self.is_once and not self.is_long
        return ("GET", "HEAD") if is_looked_at else (self.method,)

    @property
    def shown_path(self) -> str:
        return self.path.replace(":path}", "}")

    @property
    def parts(self) -> list[str]:
        return _PATH.findall(self.path)

    @property
    def fields(self) -> dict[str, str]:
        """What is said about each field of the query and the body."""
        return described(self.query) | ({} if self.body is None else described(self.body))


class Routes(list[Operation]):
    """The routes of a feature, in the order in which a path is looked for."""

    def add(self, method: str, path: str, access: Scope | Access, **more: Any) -> Callable[[H], H]:
        if not isinstance(access, Scope | Access):
            raise TypeError(f"{method} {path} declares no scope")

        def declare(handler: H) -> H:
            taken = get_type_hints(handler, include_extras=True)
            answer, is_get = taken.pop("return"), method == "GET"
            body = None if is_get or method == "DELETE" or "raw" in taken else NoFields
            headers = [
                *more.pop("headers", ()),
                *(_HEADERS[each] for each in _HEADERS & taken.keys()),
            ]
            usual = (404, 409) if not is_get else (404,) if "{" in path else ()
            also = [*more.pop("also", usual)]
            if more.get("tag") and not is_get:
                headers.append("If-Match")
            if "If-Match" in headers:
                also.append(HTTPStatus.PRECONDITION_FAILED)
            said = {
                "answer": str if answer is Response else answer,
                "takes": frozenset(taken),
                "query": taken.get("query", NoFields),
                "body": taken.get("body", body),
                "numbers": [name for name in _PATH.findall(path) if taken.get(name) is int],
                "name": handler.__name__,
                "words": " ".join((handler.__doc__ or "").partition("\n\n")[0].split()),
                "headers": headers,
                "also": also,
            }
            self.append(Operation(method, path, access, handler, **{**said, **more}))
            return handler

        return declare

    def get(self, path: str, access: Scope | Access, **more: Any) -> Callable[[H], H]:
        return self.add("GET", path, access, **more)

    def post(self, path: str, access: Scope | Access, **more: Any) -> Callable[[H], H]:
        return self.add("POST", path, access, **more)


@asynccontextmanager
async def while_connected(request: Request) -> AsyncIterator[None]:
    """End what is done here when the client leaves."""
    task, has_left = asyncio.current_task(), False
    assert task is not None, "a request has a task"

    async def watch() -> None:
        nonlocal has_left
        while (await request.receive())["type"] != "http.disconnect":
            pass  # the body is read already
        has_left = True
        task.cancel()

    # Most are answered before a task to watch them would have been worth it.
    watching: list[asyncio.Task[None]] = []
    loop = asyncio.get_running_loop()
    timer = loop.call_later(SOON, lambda: watching.append(loop.create_task(watch())))
    try:
        yield
    except asyncio.CancelledError:
        if has_left:
            task.uncancel()  # it is what was asked for that is ended, not the server
        raise
    finally:
        timer.cancel()
        for each in watching:
            each.cancel()


async def read(request: Request, operation: Operation) -> dict[str, Any]:
    """Return the arguments of a route's function, all but `front`."""
    found: dict[str, Any] = {"request": request, **request.path_params}
    if operation.body is not None:
        # No form of a page can say that it is JSON.
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON:
            reason = f"Content-Type must be application/json{f', not {kind[:100]}' if kind else ''}"
            raise HttpRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason)
    found["query"] = parsed(
        query_of(request.query_params.multi_items(), operation.query), operation.query
    )
    if "raw" in operation.takes:
        found["raw"] = await body_of(request)
    if operation.body is not None:
        raw = await body_of(request)
        try:
            found["given"] = given = msgspec.json.decode(raw) if raw else {}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise RequestError("the body is not valid JSON in UTF-8") from None
        if not isinstance(given, dict):
            raise RequestError(f"the body must be an object like {{}}, not {kind_of(given)}")
        found["body"] = parsed(given, operation.body)
    for name in operation.numbers:
        if not is_number(text := found[name]):
            raise RequestError(f"{text[:100]!r} is not a number")
        found[name] = int(text)
    if "idempotency_key" in operation.takes:
        found["idempotency_key"] = _idempotency_key(request)
    if "if_match" in operation.takes:
        found["if_match"] = expected(request)
    return {name: found[name] for name in operation.takes if name != "front"}


async def body_of(request: Request) -> bytes:
    length = request.headers.get("content-length", "0")
    is_small = is_number(length) and int(length) <= BODY
    body = bytearray()
    if is_small:
        async for part in request.stream():
            body += part
            if len(body) > BODY:
                is_small = False
                break
    if not is_small:
        reason = f"the body must have at most {BODY:,} bytes"
        raise HttpRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
    return bytes(body)


def _idempotency_key(request: Request) -> str | None:
    keys = [value for name, value in request.headers.raw if name == b"idempotency-key"]
    if len(keys) > 1:
        raise RequestError("Idempotency-Key is given twice")
    try:
        return keys[0].decode() if keys else None
    except UnicodeDecodeError:
        raise RequestError("Idempotency-Key is not valid UTF-8") from None


def expected(request: Request) -> str | None:
    given = request.headers.getlist("if-match")
    if not given or given == ["*"]:
        return None
    tag = given[0].strip()
    is_one = len(given) == 1 and len(tag) > 1 and tag.startswith('"') and tag.endswith('"')
    if not is_one or '"' in tag[1:-1]:
        raise HttpRequestError(HTTPStatus.BAD_REQUEST, 'If-Match must be one ETag, like "…"')
    return tag[1:-1]
