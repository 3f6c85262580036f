"""The document of the API, and a page that shows it: made from the routes and their structs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from jinja2 import Environment
from msgspec import UNSET
from msgspec.json import schema_components

import horae
from horae.core.views import HealthReport, Shape
from horae.web.answer import Problem, html, is_plain
from horae.web.router import JSON, PROBLEM, Operation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from horae.web.fields import Fields

    FieldSchemas: TypeAlias = dict[type[Fields], dict[str, Any]]

_WORDS: Final = {
    400: "The request is invalid; the response says what is expected.",
    401: "The token is missing, wrong or revoked.",
    403: "The token lacks the scope, or the request comes from another site.",
    404: "The object does not exist, or this engine does not offer the route.",
    409: "Another request was first, or the object has ended, is paused or was removed.",
    412: "The object has changed since it was read.",
    413: "The body is larger than 1 MiB.",
    415: "The body is not application/json.",
    421: "The Host header is not a name of this machine.",
    422: "The request is valid but cannot be carried out; the response says why.",
    429: "Too many wrong tokens.",
    431: "The header is larger than 16 KiB.",
    503: "Temporary: the ledger cannot be written, or the response timed out.",
}
_ALWAYS: Final = (400, 401, 403, 421, 422, 429, 431, 503)
_PARTS: Final = {
    "entry": "the entry: its number, :ID:, title, or file:line",
    "number": "the number",
    "id": "the id or the name",
    "name": "the name",
    "secret": "the secret part of the path",
    "code": "the code of the login link",
    "session": "the id of the session, or `all`",
}
_HEADERS: Final = {
    "Idempotency-Key": "Requests with the same key get the same response and start one run.",
    "If-Match": "The ETag of the object as read; if the object has changed, the request fails.",
    "Last-Event-ID": "The number of the last event received.",
    "webhook-id": "Scheme standard: the id of the message, the same for every attempt.",
    "webhook-timestamp": "Scheme standard: the Unix time in seconds, at most 5 minutes from now.",
    "webhook-signature": (
        "Scheme standard: `v1,` and the base64 of the HMAC-SHA256 of `id.timestamp.body`; "
        "several signatures are separated by spaces."
    ),
    "X-Hub-Signature-256": "Scheme github: `sha256=` and the HMAC-SHA256 of the body, in hex.",
}
_BEARER: Final = (
    "A token from `horae token add`, or the operator token from `horae token show`. Each route "
    "names the scope that it requires: read, run, edit or admin; admin includes all others."
)
_TAG: Final = "The version of the object; send it as If-Match to edit only this version."
_REF: Final = "#/components/schemas/{name}"


class Error(Shape, frozen=True):
    error: str


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    bodies = dict.fromkeys(each.body for each in operations if each.body is not None)
    queries = dict.fromkeys(each.query for each in operations)
    answers = [Error, Problem, *(each.answer for each in operations)]
    kinds = {repr(each): each for each in (*answers, *bodies, *queries)}
    found, schemas = schema_components(kinds.values(), ref_template=_REF)
    of = dict(zip(kinds, found, strict=True))
    fields = {kind: schemas.pop(kind.__name__) for kind in bodies | queries}
    for schema in schemas.values():
        _require_defaults(schema)
    for kind, schema in fields.items():
        _drop_empty_defaults(schema)
        if kind in bodies:
            _allow_null(schema)
            schemas[kind.__name__] = schema
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(each.shown_path, {})[each.method.lower()] = _operation(each, of, fields)
    about = "The HTTP API of a running engine."
    info = {"title": "Horae", "version": horae.__version__, "description": about}
    token = {"type": "http", "scheme": "bearer", "description": _BEARER}
    components = {"schemas": schemas, "securitySchemes": {"token": token}}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": components}


def page(operations: Sequence[Operation]) -> str:
    made = Environment(autoescape=True, trim_blocks=True, keep_trailing_newline=True)
    template = made.from_string(html("docs").decode())
    return template.render(operations=operations, version=horae.__version__)


def _allow_null(body: dict[str, Any]) -> None:
    """Let the fields of a request be null that may be missing: both mean the same."""
    for name, field in body["properties"].items():
        if "type" in field and name not in body["required"]:
            about = {key: field.pop(key) for key in ("description", "default") if key in field}
            body["properties"][name] = {**about, "anyOf": [field, {"type": "null"}]}


def _require_defaults(answer: dict[str, Any]) -> None:
    """Say of an answer that what is always in it is always in it, by default or not."""
    properties = answer.get("properties", {})
    always = [name for name, each in properties.items() if each.pop("default", UNSET) is not UNSET]
    if always:
        answer["required"] = [each for each in properties if each in {*answer["required"], *always}]


def _drop_empty_defaults(kind: dict[str, Any]) -> None:
    for field in kind["properties"].values():
        if field.get("default", 0) in {"", None, ()}:
            del field["default"]


def _operation(operation: Operation, of: dict[str, Any], fields: FieldSchemas) -> dict[str, Any]:
    said: dict[str, Any] = {"operationId": operation.name, "summary": operation.words}
    said["responses"] = _responses(operation, of)
    if parameters := list(_parameters(operation, fields[operation.query])):
        said["parameters"] = parameters
    if operation.body is not None:
        is_needed = bool(fields[operation.body]["required"])
        content = {JSON: {"schema": of[repr(operation.body)]}}
        said["requestBody"] = {"required": is_needed, "content": content}
    elif "raw" in operation.takes:
        said["requestBody"] = {"content": {"*/*": {"schema": {}}}}
    # The scopes of a scheme that is not OAuth are named, too, since OpenAPI 3.1.
    said["security"] = [{"token": [operation.scope.value]}] if operation.scope else []
    return said


def _responses(operation: Operation, of: dict[str, Any]) -> dict[str, Any]:
    good: dict[str, Any] = {"description": operation.words}
    if operation.status != 204:
        # Of a text it is the kind alone that a program can hold on to.
        kind = operation.kind.partition(";")[0]
        good["content"] = {kind: {"schema": of[repr(operation.answer)]}}
    if operation.has_tag or (operation.tag is not None and operation.method != "DELETE"):
        good["headers"] = {"ETag": {"description": _TAG, "schema": {"type": "string"}}}
    statuses = {*_ALWAYS, *operation.also}
    if operation.body is not None or "raw" in operation.takes:
        statuses |= {413, 415}
    said = {str(operation.status): good}
    for status in sorted(statuses):
        said[str(status)] = {"description": _WORDS[status]}
        if status != 431:
            told: type
            kind, told = (JSON, Error) if is_plain(operation.path) else (PROBLEM, Problem)
            if operation.answer is HealthReport and status == 503:
                kind, told = JSON, HealthReport
            if operation.kind == "text/html" and status == 404:
                kind, told = "text/html", str
            said[str(status)]["content"] = {kind: {"schema": of[repr(told)]}}
    return said


def _parameters(operation: Operation, query: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in operation.parts:
        part = {"type": "string", "minLength": 1}
        part = {"type": "integer", "minimum": 0} if name in operation.numbers else part
        about = {"required": True, "description": _PARTS[name], "schema": part}
        yield {"name": name, "in": "path", **about}
    for name, field in query["properties"].items():
        about = {"required": name in query["required"], "description": field["description"]}
        plain = {key: field[key] for key in field if key != "description"}
        some = (each for each in field.get("anyOf", ()) if each != {"type": "null"})
        yield {"name": name, "in": "query", **about, "schema": next(some, plain)}
    for name in operation.headers:
        about = {"description": _HEADERS[name], "schema": {"type": "string"}}
        yield {"name": name, "in": "header", **about}
