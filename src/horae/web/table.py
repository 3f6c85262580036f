"""How a route is written down: once, for the router, the guard, who reads requests, and the docs.

So none of them can know of a route, a field or a status that the others do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from horae.core.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from horae.web.answer import HasData
    from horae.web.front import Front
    from horae.web.request import RequestFields

    Said: TypeAlias = HasData | dict[str, Any] | list[Any] | Response
    Answering: TypeAlias = Callable[[Front, Request, RequestFields], Awaitable[Said]]
    Tagging: TypeAlias = Callable[[Front, Request], Awaitable[str]]

Schema: TypeAlias = "dict[str, Any]"

JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
PAGE: Final = 1000  # things on one page
TEXT: Final = 10_000  # characters of one field
ASKED: Final = 400  # of one in a query: with all others it stands in a header of 16 KiB
LARGEST: Final = 2**62 - 1


class Access(StrEnum):
    """Who may use a route that needs no token."""

    OPEN = "open"  # everybody
    SIGNED = "signed"  # whoever signs the message with the secret of its webhook
    SECRET = "secret"  # noqa: S105 - whoever knows the path
    PUBLIC = "public"  # everybody, if the public plane is switched on


class FieldKind(StrEnum):
    """What a field holds."""

    TEXT = "text"
    LONG = "long"  # a text as long as a request may be
    NUMBER = "number"
    LIMIT = "limit"
    FLAG = "flag"
    MOMENT = "moment"
    END = "end"  # a moment, or a length of time like 2h
    WORD = "word"  # one of a few
    THING = "thing"  # any JSON; whoever takes it says what is wrong with it


class Takes(StrEnum):
    """What the body of a request is."""

    NOTHING = "nothing"
    FIELDS = "fields"  # a JSON object, of which every field is known
    LOOSE = "loose"  # a JSON object, of which fields that are not known mean nothing
    BYTES = "bytes"  # whatever it is


class Voice(StrEnum):
    """How a route says that it cannot do something."""

    PROBLEM = "problem"  # application/problem+json
    PLAIN = "plain"  # {"error": "..."}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a request, in its query or its body."""

    name: str
    kind: FieldKind
    about: str
    is_needed: bool = False
    is_many: bool = False
    words: tuple[str, ...] = ()
    default: int | None = None

    def schema(self, *, is_query: bool) -> Schema:
        """Return what it may be, in the words of JSON Schema."""
        one = self._one(is_query=is_query)
        if self.is_many:
            return {"type": "array", "items": one}
        if is_query or self.is_needed or self.kind is FieldKind.THING:
            return one
        return {"anyOf": [one, {"type": "null"}]}

    def _one(self, *, is_query: bool) -> Schema:
        match self.kind:
            case FieldKind.TEXT:
                return {"type": "string", "maxLength": ASKED if is_query else TEXT}
            case FieldKind.LONG:
                return {"type": "string"}
            case FieldKind.NUMBER:
                return {"type": "integer", "minimum": 0, "maximum": LARGEST}
            case FieldKind.LIMIT:
                default = {} if self.default is None else {"default": self.default}
                return {"type": "integer", "minimum": 1, "maximum": PAGE, **default}
            case FieldKind.FLAG:
                flags = ["0", "1", "false", "true"]
                return {"type": "string", "enum": flags} if is_query else {"type": "boolean"}
            case FieldKind.MOMENT:
                return {"type": "string", "format": "date-time"}
            case FieldKind.END:
                return {"type": "string", "examples": ["2h", "2026-06-06T09:00:00Z"]}
            case FieldKind.WORD:
                return {"type": "string", "enum": list(self.words)}
            case FieldKind.THING:
                return {}


@dataclass(frozen=True, slots=True)
class Operation:
    """One route: who may use it, what it takes, what it answers, and who does that."""

    method: str
    path: str
    access: Scope | Access  # without a default: no route is open because nobody thought of it
    answer: Answering
    says: Schema
    query: tuple[Field, ...] = ()
    body: tuple[Field, ...] = ()
    takes: Takes = Takes.NOTHING
    voice: Voice = Voice.PROBLEM
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
        """What it does, in one sentence."""
        said = self.about or (self.answer.__doc__ or "")
        return " ".join(said.partition("\n\n")[0].split())

    @property
    def name(self) -> str:
        """What it is called in the document of the API."""
        return self.answer.__name__.strip("_")

    @property
    def shown_path(self) -> str:
        """Its path as people are told of it."""
        return self.path.replace(":path}", "}")


def needed(field: Field) -> Field:
    """Return a field that must be there."""
    from dataclasses import replace

    return replace(field, is_needed=True)


def limit(default: int, about: str = "maximum number of results") -> Field:
    """Return the field that says how many things are wanted."""
    return Field("limit", FieldKind.LIMIT, about, default=default)


def text(name: str, about: str) -> Field:
    """Return a field that holds a text."""
    return Field(name, FieldKind.TEXT, about)


def number(name: str, about: str) -> Field:
    """Return a field that holds a whole number."""
    return Field(name, FieldKind.NUMBER, about)


def flag(name: str, about: str) -> Field:
    """Return a field that is true or false."""
    return Field(name, FieldKind.FLAG, about)


def moment(name: str, about: str) -> Field:
    """Return a field that holds a moment."""
    return Field(name, FieldKind.MOMENT, about)


def thing(name: str, about: str) -> Field:
    """Return a field that holds any JSON."""
    return Field(name, FieldKind.THING, about)


CURSOR: Final = number("cursor", "cursor of the previous page")
NOTE: Final = text("note", "note to record")


def asks(
    path: str, access: Scope | Access, answer: Answering, says: Schema, *query: Field, **more: Any
) -> Operation:
    """Return a question."""
    if "{" in path:
        more.setdefault("also", (404,))
    return Operation("GET", path, access, answer, says, query=query, **more)


def does(
    path: str, access: Scope | Access, answer: Answering, says: Schema, *body: Field, **more: Any
) -> Operation:
    """Return a request."""
    more.setdefault("also", (404, 409))
    return Operation("POST", path, access, answer, says, body=body, takes=Takes.FIELDS, **more)
