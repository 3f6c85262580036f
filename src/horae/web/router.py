"""How a route is written down: once, for the router, the guard, the request reader and the docs."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from http import HTTPStatus
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from horae.core.explain import WhyQuestion, at_the_gate, stamp
from horae.core.scope import Scope
from horae.core.text import is_number
from horae.core.views import EngineFacts, RequestError, StatusReport, WhyReport
from horae.errors import Exit, HoraeError
from horae.timing.duration import DurationError, parse_duration
from horae.timing.rfc3339 import parse_rfc3339

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from horae.config.trust import EngineSettings
    from horae.core.engine import Engine
    from horae.core.ports import Clock, Ledger, Listed, Run
    from horae.core.service import Service
    from horae.sources.agents.source import AgentRequests
    from horae.sources.board.routes import BoardRequests
    from horae.sources.triggers.service import Triggers
    from horae.sources.workflows.routes import WorkflowRequests
    from horae.web.answer import HasData
    from horae.web.keys import Keys

Schema: TypeAlias = "dict[str, Any]"
Said: TypeAlias = "HasData | dict[str, Any] | list[Any] | Response"
Answering: TypeAlias = "Callable[[Front, Request, RequestFields], Awaitable[Said]]"
Tagging: TypeAlias = "Callable[[Front, Request], Awaitable[str]]"
T = TypeVar("T")

JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
BODY: Final = 1 << 20  # bytes of a request
PAGE: Final = 1000  # things on one page
TEXT: Final = 10_000  # characters of one field
ASKED: Final = 400  # of one in a query: with all others it stands in a header of 16 KiB
LARGEST: Final = 2**62 - 1


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


class NotOfferedError(HoraeError, code="not_offered", exit_code=Exit.NOT_FOUND):
    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"this engine has no {what}")


class Access(StrEnum):
    """Who may use a route that needs no token."""

    OPEN = "open"  # everybody
    SIGNED = "signed"  # those who sign the message with the secret of its webhook
    SECRET = "secret"  # noqa: S105 - those who know the path
    PUBLIC = "public"  # everybody, if the public plane is switched on


# The kinds of a field of a request, in the words of JSON Schema; what differs in a query.
_KINDS: Final[dict[str, Schema]] = {
    "text": {"type": "string", "maxLength": TEXT},
    "long": {"type": "string"},  # as long as a request may be
    "number": {"type": "integer", "minimum": 0, "maximum": LARGEST},
    "limit": {"type": "integer", "minimum": 1, "maximum": PAGE},
    "flag": {"type": "boolean"},
    "moment": {"type": "string", "format": "date-time"},
    "end": {"type": "string", "examples": ["2h", "2026-06-06T09:00:00Z"]},
    "word": {"type": "string"},  # one of a few
    "thing": {},  # any JSON; its route says what is wrong with it
}
_IN_QUERY: Final[dict[str, Schema]] = {
    "text": {"type": "string", "maxLength": ASKED},
    "flag": {"type": "string", "enum": ["0", "1", "false", "true"]},
}


class Takes(StrEnum):
    NOTHING = "nothing"
    FIELDS = "fields"  # a JSON object, of which every field is known
    LOOSE = "loose"  # a JSON object, of which fields that are not known mean nothing
    BYTES = "bytes"  # whatever it is


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: str  # of `_KINDS`
    about: str
    is_needed: bool = False
    is_many: bool = False
    words: tuple[str, ...] = ()
    default: int | None = None

    def schema(self, *, is_query: bool) -> Schema:
        one = dict((_IN_QUERY.get(self.kind) if is_query else None) or _KINDS[self.kind])
        if self.default is not None:
            one["default"] = self.default
        if self.words:
            one["enum"] = list(self.words)
        if self.is_many:
            return {"type": "array", "items": one}
        is_whole = is_query or self.is_needed or not one
        return one if is_whole else {"anyOf": [one, {"type": "null"}]}


@dataclass(frozen=True, slots=True)
class Operation:
    """One route: who may use it, what it takes, what it answers, and the function that does so."""

    method: str
    path: str
    access: Scope | Access  # without a default: no route is open because nobody thought of it
    answer: Answering
    says: str  # as `openapi.schema` reads it
    query: tuple[Field, ...] = ()
    body: tuple[Field, ...] = ()
    takes: Takes = Takes.NOTHING
    status: int = 200
    kind: str = JSON
    headers: tuple[str, ...] = ()  # of a request, that mean something here
    also: tuple[int, ...] = ()  # statuses that others do not have
    is_long: bool = False  # it may take longer than 30 s, or has no end
    is_once: bool = False  # a look at it changes something, so a HEAD is refused
    about: str = ""
    tag: Tagging | None = None  # names what it is about, as people have made it
    has_tag: bool = False  # it says that tag by itself

    def __post_init__(self) -> None:
        if not isinstance(self.access, Scope | Access):
            raise TypeError(f"{self.method} {self.path} declares no scope")

    @property
    def scope(self) -> Scope | None:
        """The scope that a token needs; None: no token is needed."""
        return self.access if isinstance(self.access, Scope) else None

    @property
    def words(self) -> str:
        said = self.about or (self.answer.__doc__ or "")
        return " ".join(said.partition("\n\n")[0].split())

    @property
    def name(self) -> str:
        return self.answer.__name__.strip("_")

    @property
    def shown_path(self) -> str:
        return self.path.replace(":path}", "}")


def needed(field: Field) -> Field:
    return replace(field, is_needed=True)


def limit(default: int, about: str = "maximum number of results") -> Field:
    return Field("limit", "limit", about, default=default)


def _of_kind(kind: str) -> Callable[[str, str], Field]:
    return lambda name, about: Field(name, kind, about)


text, number, flag, moment, thing = map(_of_kind, ("text", "number", "flag", "moment", "thing"))
CURSOR: Final = number("cursor", "cursor of the previous page")
NOTE: Final = text("note", "note to record")


def asks(
    path: str, access: Scope | Access, answer: Answering, says: str, *query: Field, **more: Any
) -> Operation:
    if "{" in path:
        more.setdefault("also", (404,))
    return Operation("GET", path, access, answer, says, query=query, **more)


def does(
    path: str, access: Scope | Access, answer: Answering, says: str, *body: Field, **more: Any
) -> Operation:
    more.setdefault("also", (404, 409))
    return Operation("POST", path, access, answer, says, body=body, takes=Takes.FIELDS, **more)


def call(name: str, about: str, work: Callable[[Front, Request, RequestFields], Any]) -> Answering:
    """Return a function for the table that only calls another, or returns what that awaits."""

    async def answer(front: Front, request: Request, asked: RequestFields) -> Said:
        said = work(front, request, asked)
        answered: Said = await said if isawaitable(said) else said
        return answered

    answer.__name__, answer.__doc__ = name, about
    return answer


def with_tag(tag: Tagging | None, operation: Operation) -> Operation:
    """Return a route that says the tag of what it is about, or minds it before an edit.

    What changes by itself is not in a tag: an edit is refused only because of another edit.
    """
    if tag is None or operation.method == "GET":
        return replace(operation, tag=tag)
    also = (*operation.also, HTTPStatus.PRECONDITION_FAILED.value)
    return replace(operation, tag=tag, headers=(*operation.headers, "If-Match"), also=also)


def tag_of(data: object) -> str:
    """Return what plain data goes by.

    >>> tag_of({"a": 1, "b": 2}) == tag_of({"b": 2, "a": 1}) != tag_of({"a": 2, "b": 2})
    True
    """
    written = json.dumps(data, sort_keys=True, default=str)
    return sha256(written.encode()).hexdigest()[:32]


def tag_of_entry(found: Listed) -> str:
    """Return the tag of an entry: what is written of it, and whether it is paused."""
    mark, pause = found.mark, found.pause
    rest = pause and (stamp(pause.at, "UTC"), stamp(pause.until, "UTC"), pause.note)
    written = (mark.address, mark.title, mark.rule, mark.body)
    return tag_of((found.number, written, stamp(found.gone_at, "UTC"), rest))


def expected(request: Request) -> str | None:
    given = request.headers.getlist("if-match")
    if not given or given == ["*"]:
        return None
    tag = given[0].strip()
    is_one = len(given) == 1 and len(tag) > 1 and tag.startswith('"') and tag.endswith('"')
    if not is_one or '"' in tag[1:-1]:
        raise HttpRequestError(HTTPStatus.BAD_REQUEST, 'If-Match must be one ETag, like "…"')
    return tag[1:-1]


@dataclass(frozen=True, slots=True)
class Front:
    """What of an engine others may use through the API; what is not given is not offered."""

    service: Service
    engine: Engine
    facts: Callable[[], EngineFacts]
    log_of: Callable[[Run], Path]
    clock: Clock
    ledger: Ledger | None = None
    zone_name: str = "UTC"
    since: int = 0  # the newest event when the engine started
    keys: Keys | None = None
    triggers: Triggers | None = None
    workflows: WorkflowRequests | None = None
    agent_runs: AgentRequests | None = None
    tasks: BoardRequests | None = None
    changes: Callable[[], Awaitable[list[dict[str, Any]]]] | None = None  # newest first
    nodes: Callable[[], Awaitable[list[dict[str, Any]]]] | None = None  # the machines, if several
    settings: EngineSettings | None = None
    is_public: bool = False  # whether everybody may see how the agents are

    async def status(self, *, limit: int) -> StatusReport:
        facts = replace(self.facts(), stall=await self.engine.stall())
        return await self.service.status(facts, limit=limit)

    async def node_list(self) -> dict[str, Any]:
        return {"nodes": [] if self.nodes is None else await self.nodes()}

    async def why(self, ask: WhyQuestion, *, limit: int) -> WhyReport:
        why = await self.service.why(ask, limit=limit)
        obstacles = self.engine.gate.obstacles(now=self.clock.now())
        said = {each.ask.number: each.reason for each in obstacles}
        return replace(why, answers=at_the_gate(why.answers, said))


def offered(what: T | None, name: str) -> T:
    if what is None:
        raise NotOfferedError(name)
    return what


class RequestFields:
    """The fields of a request: none is unknown, and each is what it should be or not there."""

    def __init__(self, given: Mapping[str, Any], *, raw: bytes = b"") -> None:
        self.given = given
        self.raw = raw  # the body as it came

    def text(self, name: str, *, most: int = TEXT) -> str:
        value = self.given.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise RequestError(f"{name} must be a string, not {kind_of(value)}")
        if len(value) > most:
            raise RequestError(f"{name} must have at most {most:,} characters")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RequestError(f"{name} contains an unpaired surrogate") from None
        return value

    def long(self, name: str) -> str:
        return self.text(name, most=BODY)

    def needed(self, name: str) -> str:
        if text := self.text(name):
            return text
        raise RequestError(f"{name} is missing")

    def number(self, name: str) -> int | None:
        value = self.given.get(name)
        if isinstance(value, str) and is_number(value):
            value = int(value)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST:
            raise RequestError(f"{name} must be a whole number, not {kind_of(value)}")
        return value

    def limit(self, default: int) -> int:
        limit = self.number("limit")
        if limit is not None and not 1 <= limit <= PAGE:
            raise RequestError(f"limit must be from 1 to {PAGE}, not {limit}")
        return default if limit is None else limit

    def flag(self, name: str) -> bool:
        value = self.given.get(name)
        if isinstance(value, str):
            value = {"1": True, "true": True, "0": False, "false": False}.get(value, value)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise RequestError(f"{name} must be true or false, not {kind_of(value)}")

    def moment(self, name: str) -> datetime | None:
        text = self.text(name)
        if not text:
            return None
        moment = parse_rfc3339(text)
        if not 1 < moment.year < 9999:  # so that it has neighbours in every zone
            raise RequestError(f"{name} must be in the years 2 to 9998, not {text}")
        return moment.astimezone(UTC)

    def needed_moment(self, name: str) -> datetime:
        if moment := self.moment(name):
            return moment
        raise RequestError(f"{name} is missing; write it like 2026-06-06T09:00:00Z")

    def end(self, name: str) -> datetime | timedelta | None:
        with suppress(DurationError):  # then it is a time
            return parse_duration(self.text(name))
        return self.moment(name)

    def words(self, name: str) -> list[str]:
        value = self.given.get(name)
        return list(value) if isinstance(value, list) else []


async def read(request: Request, operation: Operation) -> RequestFields:
    if operation.takes in {Takes.NOTHING, Takes.BYTES}:
        query = _query(request, operation.query)
        has_body = operation.takes is Takes.BYTES
        return RequestFields(query, raw=await _bytes(request) if has_body else b"")
    # No form of a page can say that it is JSON.
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        reason = f"Content-Type must be application/json{f', not {kind[:100]}' if kind else ''}"
        raise HttpRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason)
    query = _query(request, operation.query)
    raw = await _bytes(request)
    try:
        body = json.loads(raw) if raw else {}
    except (ValueError, RecursionError):
        raise RequestError("the body is not valid JSON in UTF-8") from None
    if not isinstance(body, dict):
        raise RequestError(f"the body must be an object like {{}}, not {kind_of(body)}")
    if operation.takes is Takes.FIELDS:
        _refuse_unknown(body, operation.body)
    asked = RequestFields({**body, **query}, raw=raw)
    for field in operation.body:
        if field.kind == "text":
            asked.text(field.name)
    return asked


def path_number(request: Request, name: str = "number") -> int:
    text = request.path_params[name]
    if not is_number(text):
        raise RequestError(f"{text[:100]!r} is not a number")
    return int(text)


def idempotency_key(request: Request) -> str | None:
    keys = [value for name, value in request.headers.raw if name == b"idempotency-key"]
    if len(keys) > 1:
        raise RequestError("Idempotency-Key is given twice")
    try:
        return keys[0].decode() if keys else None
    except UnicodeDecodeError:
        raise RequestError("Idempotency-Key is not valid UTF-8") from None


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


def _query(request: Request, fields: Sequence[Field]) -> dict[str, Any]:
    many = {field.name for field in fields if field.is_many}
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in many:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise RequestError(f"{name[:100]} is given twice")
        else:
            given[name] = value
    _refuse_unknown(given, fields)
    for field in fields:
        found: Any = given.get(field.name)
        if isinstance(found, str) and len(found) > ASKED:
            raise RequestError(f"{field.name} must have at most {ASKED} characters in a query")
        if field.words:
            words = found if isinstance(found, list) else [] if found is None else [found]
            if wrong := [word for word in words if word not in field.words]:
                known = ", ".join(field.words)
                raise RequestError(f"{field.name} must be one of {known}, not {kind_of(wrong[0])}")
    return given


def _refuse_unknown(given: Mapping[str, Any], fields: Sequence[Field]) -> None:
    known = [field.name for field in fields]
    unknown = sorted(given.keys() - set(known))
    if unknown:
        takes = f"the fields are {', '.join(known)}" if known else "there are no fields"
        raise RequestError(f"unknown field {unknown[0][:100]!r}; {takes}")


async def _bytes(request: Request) -> bytes:
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
