"""The document of the API, and a page that shows it: both made from the table of the routes."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Any, Final

import horae
from horae.web.shapes import NAMED
from horae.web.table import JSON, PROBLEM, Operation, Takes, Voice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from horae.web.table import Field, Schema

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
_PATH: Final = re.compile(r"\{(\w+)(?::path)?\}")
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

_TAG: Final = "The version of the object; send it as If-Match to edit only this version."


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return all routes in OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(each.shown_path, {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Horae",
            "version": horae.__version__,
            "description": "The HTTP API of a running engine.",
        },
        "paths": paths,
        "components": {
            "schemas": NAMED,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token from `horae token add`, or the operator token from "
                    "`horae token show`. Each route names the scope that it requires: read, run, "
                    "edit or admin; admin includes all others.",
                },
            },
        },
    }


def page(operations: Sequence[Operation]) -> str:
    """Return a page for people that shows all routes; it needs nothing from elsewhere."""
    rows = "\n".join(_row(each) for each in operations)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        "<title>Horae API</title></head><body><h1>Horae API</h1>"
        f"<p>Version {escape(horae.__version__)}. Machine-readable: "
        '<a href="/openapi.json">openapi.json</a>.</p>\n'
        f"<dl>\n{rows}\n</dl></body></html>\n"
    )


def _operation(operation: Operation) -> dict[str, Any]:
    said: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.words,
        "responses": _responses(operation),
    }
    if parameters := list(_parameters(operation)):
        said["parameters"] = parameters
    if operation.takes is Takes.BYTES:
        said["requestBody"] = {"content": {"*/*": {"schema": {}}}}
    elif operation.takes is not Takes.NOTHING:
        said["requestBody"] = {
            "required": any(field.is_needed for field in operation.body),
            "content": {JSON: {"schema": _body(operation)}},
        }
    # The scopes of a scheme that is not OAuth are named, too, since OpenAPI 3.1.
    said["security"] = [{"token": [operation.scope.value]}] if operation.scope else []
    return said


def _responses(operation: Operation) -> dict[str, Any]:
    good: dict[str, Any] = {"description": operation.words}
    if operation.status != 204:
        # Of a text it is the kind alone that a program can hold on to.
        kind = operation.kind.partition(";")[0]
        good["content"] = {kind: {"schema": operation.says}}
    if operation.has_tag or (operation.tag is not None and operation.method != "DELETE"):
        good["headers"] = {"ETag": {"description": _TAG, "schema": {"type": "string"}}}
    statuses = {*_ALWAYS, *operation.also}
    if operation.takes is not Takes.NOTHING:
        statuses |= {413, 415}
    return {
        str(operation.status): good,
        **{str(each): _refusal(operation, each) for each in sorted(statuses)},
    }


def _refusal(operation: Operation, status: int) -> dict[str, Any]:
    if status == 431:
        return {"description": _WORDS[status]}
    if operation.voice is Voice.PLAIN:
        kind, name = JSON, "Error"
    else:
        kind, name = PROBLEM, "Problem"
    content: dict[str, Any] = {kind: {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    if operation.path in {"/healthz", "/readyz"} and status == 503:
        content = {JSON: {"schema": {"$ref": "#/components/schemas/Health"}}}
    if operation.path == "/login/{code}" and status == 404:
        content = {"text/html": {"schema": operation.says}}
    return {"description": _WORDS[status], "content": content}


def _parameters(operation: Operation) -> Iterator[dict[str, Any]]:
    for name in _PATH.findall(operation.path):
        schema: Schema = {"type": "string", "minLength": 1}
        if name == "number":
            schema = {"type": "integer", "minimum": 0}
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PARTS[name],
            "schema": schema,
        }
    for field in operation.query:
        yield {
            "name": field.name,
            "in": "query",
            "required": field.is_needed,
            "description": field.about,
            "schema": field.schema(is_query=True),
        }
    for name in operation.headers:
        yield {
            "name": name,
            "in": "header",
            "description": _HEADERS[name],
            "schema": {"type": "string"},
        }


def _body(operation: Operation) -> Schema:
    fields = operation.body
    return {
        "type": "object",
        "properties": {each.name: _described(each) for each in fields},
        "required": [each.name for each in fields if each.is_needed],
        "additionalProperties": operation.takes is Takes.LOOSE,
    }


def _described(field: Field) -> Schema:
    return {**field.schema(is_query=False), "description": field.about}


def _row(operation: Operation) -> str:
    fields = [*operation.query, *operation.body]
    takes = "".join(
        f"<li><code>{escape(each.name)}</code>: {escape(each.about)}</li>" for each in fields
    )
    return (
        f"<dt><code>{operation.method} {escape(operation.shown_path)}</code>"
        f" ({operation.access})</dt>"
        f"<dd>{escape(operation.words)}" + (f"<ul>{takes}</ul>" if takes else "") + "</dd>"
    )
