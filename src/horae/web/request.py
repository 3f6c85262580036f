"""What a request says: its query and its body, each field checked by how its route is written."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from horae.core.views import RequestError
from horae.errors import Exit, HoraeError
from horae.timing.duration import DurationError, parse_duration
from horae.timing.rfc3339 import parse_rfc3339
from horae.web.table import ASKED, PAGE, TEXT, FieldKind, Operation, Takes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request

    from horae.web.table import Field

BODY: Final = 1 << 20  # bytes of a request


class HttpRequestError(HoraeError):
    """A request that HTTP itself refuses: no such route, not so, too large, or not JSON."""

    code = "http_request"
    exit_code = Exit.USAGE

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        self.status = int(status)
        self.reason = reason
        super().__init__(reason)


class RequestFields:
    """The fields of a request: none is unknown, and each is what it should be or not there."""

    def __init__(self, given: Mapping[str, Any], *, raw: bytes = b"") -> None:
        self.given = given
        self.raw = raw  # the body as it came

    def text(self, name: str) -> str:
        """Return a text; nothing if it is not there."""
        return self._text(name, TEXT)

    def long(self, name: str) -> str:
        """Return a text that may be as long as a request; nothing if it is not there."""
        return self._text(name, BODY)

    def _text(self, name: str, most: int) -> str:
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

    def needed(self, name: str) -> str:
        """Return a text that must be there."""
        text = self.text(name)
        if not text:
            raise RequestError(f"{name} is missing")
        return text

    def number(self, name: str) -> int | None:
        """Return a whole number; in a query it is written in digits."""
        value = self.given.get(name)
        if isinstance(value, str) and is_number(value):
            value = int(value)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**62:
            raise RequestError(f"{name} must be a whole number, not {kind_of(value)}")
        return value

    def limit(self, default: int) -> int:
        """Return how many things are wanted."""
        limit = self.number("limit")
        if limit is None:
            return default
        if not 1 <= limit <= PAGE:
            raise RequestError(f"limit must be from 1 to {PAGE}, not {limit}")
        return limit

    def flag(self, name: str) -> bool:
        """Return whether something is wanted; in a query it is 0 or 1."""
        value = self.given.get(name)
        if isinstance(value, str):
            value = {"1": True, "true": True, "0": False, "false": False}.get(value, value)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise RequestError(f"{name} must be true or false, not {kind_of(value)}")

    def moment(self, name: str) -> datetime | None:
        """Return a moment in RFC 3339."""
        text = self.text(name)
        if not text:
            return None
        moment = parse_rfc3339(text)
        if not 1 < moment.year < 9999:  # so that it has neighbours in every zone
            raise RequestError(f"{name} must be in the years 2 to 9998, not {text}")
        return moment.astimezone(UTC)

    def needed_moment(self, name: str) -> datetime:
        """Return a moment that must be there."""
        moment = self.moment(name)
        if moment is None:
            raise RequestError(f"{name} is missing; write it like 2026-06-06T09:00:00Z")
        return moment

    def end(self, name: str) -> datetime | timedelta | None:
        """Return when something ends: a moment, or a length of time like 2h."""
        with suppress(DurationError):  # then it is a time
            return parse_duration(self.text(name))
        return self.moment(name)

    def words(self, name: str) -> list[str]:
        """Return the words of a field that may be there more than once."""
        value = self.given.get(name)
        return list(value) if isinstance(value, list) else []


async def read(request: Request, operation: Operation) -> RequestFields:
    """Return what a request says, or raise what is wrong with it."""
    if operation.takes is Takes.NOTHING:
        return RequestFields(_query(request, operation.query))
    if operation.takes is Takes.BYTES:
        return RequestFields(_query(request, operation.query), raw=await _bytes(request))
    _refuse_other_kinds(request)
    query = _query(request, operation.query)
    raw = await _bytes(request)
    body = _object(raw)
    if operation.takes is Takes.FIELDS:
        _refuse_unknown(body, operation.body)
    asked = RequestFields({**body, **query}, raw=raw)
    for field in operation.body:
        if field.kind is FieldKind.TEXT:
            asked.text(field.name)
    return asked


def path_number(request: Request, name: str = "number") -> int:
    """Return the number in a path."""
    text = request.path_params[name]
    if not is_number(text):
        raise RequestError(f"{text[:100]!r} is not a number")
    return int(text)


def is_number(text: str) -> bool:
    """Tell whether a text is a number that the ledger may have given."""
    return text.isascii() and text.isdecimal() and len(text) <= 18


def idempotency_key(request: Request) -> str | None:
    """Return the key under which a request is done once."""
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
            return "a number out of range" if abs(value) >= 2**62 or value < 0 else f"{value}"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return "null"


def _query(request: Request, fields: Sequence[Field]) -> dict[str, Any]:
    """Return what a query says; a field that may not be there twice is not."""
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
        long = given.get(field.name)
        if isinstance(long, str) and len(long) > ASKED:
            raise RequestError(f"{field.name} must have at most {ASKED} characters in a query")
        if field.kind is FieldKind.WORD:
            _refuse_other_words(field, given.get(field.name))
    return given


def _refuse_unknown(given: Mapping[str, Any], fields: Sequence[Field]) -> None:
    known = [field.name for field in fields]
    unknown = sorted(given.keys() - set(known))
    if unknown:
        takes = f"the fields are {', '.join(known)}" if known else "there are no fields"
        raise RequestError(f"unknown field {unknown[0][:100]!r}; {takes}")


def _refuse_other_words(field: Field, value: object) -> None:
    given = value if isinstance(value, list) else [] if value is None else [value]
    wrong = next((each for each in given if each not in field.words), None)
    if wrong is not None:
        known = ", ".join(field.words)
        raise RequestError(f"{field.name} must be one of {known}, not {kind_of(wrong)}")


def _refuse_other_kinds(request: Request) -> None:
    """Raise an error unless a request says that it is JSON, as no form of a page can."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        given = f", not {kind[:100]}" if kind else ""
        reason = f"Content-Type must be application/json{given}"
        raise HttpRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason)


def _object(text: bytes) -> dict[str, Any]:
    try:
        given = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        raise RequestError("the body is not valid JSON in UTF-8") from None
    if not isinstance(given, dict):
        raise RequestError(f"the body must be an object like {{}}, not {kind_of(given)}")
    return given


async def _bytes(request: Request) -> bytes:
    """Return the body of a request, unless it is too large."""
    length = request.headers.get("content-length", "0")
    body = bytearray()
    if not is_number(length) or int(length) > BODY:
        raise _too_large()
    async for part in request.stream():
        body += part
        if len(body) > BODY:
            raise _too_large()
    return bytes(body)


def _too_large() -> HttpRequestError:
    return HttpRequestError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body must have at most {BODY:,} bytes"
    )
