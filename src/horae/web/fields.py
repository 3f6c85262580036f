"""What a request may say: its fields, read from JSON and from a query, and refused in our words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct, inspect

from horae.core.text import is_number
from horae.core.views import RENAMED, RequestError
from horae.timing.zone import parse_rfc3339

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
