"""How a route is declared: once, for the router, the guard, the request reader and OpenAPI.

A decorator of `Routes` takes path, access and limits, and the signature of the function says the
rest. A parameter is named after what it gets: `front`, `request`, a part of the path, the structs
`query` and `body`, `given` (the JSON object as it came), `raw` (the bytes), or a header.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, TypeVar, get_type_hints

import msgspec
from msgspec import Meta, Struct, inspect
from starlette.responses import Response

from horae.core.actor import Scope
from horae.core.text import is_number
from horae.core.views import RENAMED, RequestError
from horae.errors import Exit, HoraeError
from horae.timing.zone import parse_rfc3339

if TYPE_CHECKING:
    from starlette.requests import Request

    from horae.web.front import Front

PAGE: Final = 1000  # things on one page
TEXT: Final = 10_000  # characters of one field
ASKED: Final = 400  # of one in a query: with all others it stands in a header of 16 KiB
LARGEST: Final = 2**62 - 1
_FLAGS: Final = {"1": True, "true": True, "0": False, "false": False}
_FIELD: Final = re.compile("Object (contains unknown|missing required) field `(.*)`", re.DOTALL)
_KEY: Final = re.compile(r"\w+")
_EXPECTED: Final = re.compile(r"Expected `(\w+)")
_KINDS: Final = {
    "str": "a string",
    "int": "a whole number",
    "bool": "true or false",
    "datetime": "a time like 2026-06-06T09:00:00Z",
    "array": "a list",
    "object": "an object",
}


class Fields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=RENAMED):
    """The query or the body of a request."""


class NoFields(Fields, frozen=True): ...


Text: TypeAlias = Annotated[str, Meta(max_length=TEXT)]
Required: TypeAlias = Annotated[str, Meta(min_length=1, max_length=TEXT)]
Word: TypeAlias = Annotated[str, Meta(max_length=ASKED)]
Number: TypeAlias = Annotated[int, Meta(ge=0, le=LARGEST)]
Limit: TypeAlias = Annotated[int, Meta(ge=1, le=PAGE, description="maximum number of results")]
Days: TypeAlias = Annotated[int, Meta(ge=1, le=366)]
Note: TypeAlias = Annotated[str, Meta(max_length=TEXT, description="note to record")]
Cursor: TypeAlias = Annotated[Number | None, Meta(description="cursor of the previous page")]
F = TypeVar("F", bound=Fields)


def about(text: str, *, hint: str = "") -> Meta:
    """Describe a field; the hint follows the error that it is missing."""
    return Meta(description=text, extra={"hint": hint})


def parsed(given: Mapping[str, Any], kind: type[F]) -> F:
    fields, ready = fields_of(kind), dict[str, Any]()
    for name, value in given.items():
        plain = _plain(fields[name].type) if name in fields else None
        if isinstance(plain, inspect.DateTimeType) and isinstance(value, str):
            ready[name] = moment_of(name, value)
        elif isinstance(plain, inspect.IntType) and isinstance(value, str) and is_number(value):
            ready[name] = int(value)
        elif isinstance(plain, inspect.BoolType) and isinstance(value, str):
            ready[name] = _FLAGS.get(value, value)
        else:
            ready[name] = value
        if ready[name] is None and not isinstance(plain, inspect.AnyType):
            del ready[name]
    unknown = sorted(given.keys() - fields.keys())
    if unknown and kind.__struct_config__.forbid_unknown_fields:
        takes = f"the fields are {', '.join(fields)}" if fields else "there are no fields"
        raise RequestError(f"unknown field {unknown[0][:100]!r}; {takes}")
    try:
        return msgspec.convert(ready, kind)
    except msgspec.ValidationError as error:
        raise RequestError(_refusal(str(error), ready, kind)) from None


@cache
def fields_of(kind: type[Struct]) -> dict[str, inspect.Field]:
    said = inspect.type_info(kind)
    assert isinstance(said, inspect.StructType), "it is a struct"
    return {each.encode_name: each for each in said.fields}


def described(kind: type[Struct]) -> dict[str, str]:
    """Return what is said about each field."""
    said = {name: each.type for name, each in fields_of(kind).items()}
    more = {name: getattr(each, "extra_json_schema", None) or {} for name, each in said.items()}
    return {name: each.get("description", "") for name, each in more.items()}


def _plain(kind: inspect.Type) -> inspect.Type:
    """Return a type without what is said about it, and without null."""
    if isinstance(kind, inspect.Metadata):
        return _plain(kind.type)
    if isinstance(kind, inspect.UnionType):
        return next(_plain(e) for e in kind.types if not isinstance(e, inspect.NoneType))
    return kind


def _refusal(error: str, given: Mapping[str, Any], kind: type[Fields]) -> str:
    """Return in our words what is wrong with the fields of a request."""
    fields = fields_of(kind)
    # The last of them: before it there may be what a client wrote.
    said, _, where = error.rpartition(" - at `$") if " - at `$" in error else (error, "", "")
    path = where.rstrip("`").removeprefix(".")
    if found := _FIELD.fullmatch(said):
        name = f"{path}.{found[2]}" if path else found[2]
        if found[1] == "contains unknown":
            return f"unknown field {name[:100]!r}"
        return f"{name} is missing" if path else _missing(name, fields[name].type)
    first, *more = _KEY.findall(path.partition("[...]")[0])  # which key of a map is not told
    wanted, value = _plain(fields[first].type), given[first]
    for each in more:
        wanted = _plain(getattr(wanted, "item_type", inspect.AnyType()))
        value = value[int(each) if isinstance(value, list) else each]
    match wanted, value:
        case inspect.StrType(), "":
            return _missing(path, fields[path].type)
        case inspect.StrType(max_length=int(most)), str():
            return f"{path} must have at most {most:,} characters"
        case inspect.IntType(ge=low, le=high), int() if high != LARGEST and value is not True:
            must = f"from {low} to {high}"
        case inspect.EnumType(cls=words), _:
            must, path = f"one of {', '.join(words)}", first
        case _:
            if not (expected := _EXPECTED.match(said)):
                return f"{path}: {said}"  # which a struct says by itself
            must = _KINDS.get(expected[1], "another value")
    return f"{path} must be {must}" + ("" if "..." in path else f", not {kind_of(value)}")


def _missing(name: str, kind: inspect.Type) -> str:
    hint = (getattr(kind, "extra", None) or {}).get("hint")
    if isinstance(_plain(kind), inspect.DateTimeType):
        hint = "write it like 2026-06-06T09:00:00Z"
    return f"{name} is missing; {hint}" if hint else f"{name} is missing"


def moment_of(name: str, text: str) -> datetime | None:
    if not text:
        return None
    moment = parse_rfc3339(text)
    if not 1 < moment.year < 9999:  # so that it has neighbours in every zone
        raise RequestError(f"{name} must be in the years 2 to 9998, not {text}")
    return moment.astimezone(UTC)


def kind_of(value: object) -> str:
    """Return what kind of JSON something is, or the text that it is."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return repr(value[:100])
        case int() | float():
            return "a number out of range" if abs(value) > LARGEST or value < 0 else f"{value}"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return "null"


def query_of(items: Iterable[tuple[str, str]], kind: type[Fields]) -> dict[str, Any]:
    fields, given = fields_of(kind), dict[str, Any]()
    for name, value in items:
        field = fields.get(name)
        if field is not None and isinstance(_plain(field.type), inspect.VarTupleType):
            given.setdefault(name, []).append(value)
        elif name in given:
            raise RequestError(f"{name[:100]} is given twice")
        else:
            given[name] = value
    return given


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
