"""The document of the API, and a page that shows it: both made from the table of the routes."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Any, Final

import horae
from horae.server.shapes import NAMED
from horae.server.table import JSON, PROBLEM, Operation, Takes, Voice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from horae.server.table import Field, Schema

_WORDS: Final = {
    400: "The request makes no sense; the answer says what would.",
    401: "The token is missing, wrong or revoked.",
    403: "The token lacks the scope, or a page of somebody else asks.",
    404: "There is no such thing, or this engine does not offer it.",
    409: "Somebody was first, or it is over, at rest or gone.",
    412: "Somebody changed it since.",
    413: "The body has more than 1 MiB.",
    415: "The body is not application/json.",
    421: "The Host is not this machine.",
    422: "It was understood and cannot be done; the answer says why.",
    429: "Too many wrong tokens at a time.",
    431: "The header has more than 16 KiB.",
    503: "It may pass: the ledger cannot be written now, or no answer came in time.",
}
_ALWAYS: Final = (400, 401, 403, 421, 422, 429, 431, 503)
_PATH: Final = re.compile(r"\{(\w+)(?::path)?\}")
_PARTS: Final = {
    "entry": "what the entry goes by: its number, :ID:, title, or file:line",
    "number": "its number",
    "id": "its id or its name",
    "name": "its name",
    "secret": "what nobody can guess",
    "code": "what the link ends with",
    "session": "the id of the session, or `all`",
}
_HEADERS: Final = {
    "Idempotency-Key": "The same key gives the same answer and starts nothing twice.",
    "If-Match": "The ETag of what was read; if it is another by now, nothing is changed.",
    "Last-Event-ID": "The number of the last event that was heard.",
    "webhook-id": "Scheme standard: the id of the message, the same when it is sent again.",
    "webhook-timestamp": "Scheme standard: seconds since 1970, at most 5 minutes off.",
    "webhook-signature": (
        "Scheme standard: `v1,` and the base64 of the HMAC-SHA256 of id, timestamp and body, "
        "with dots between; several are divided by blanks."
    ),
    "X-Hub-Signature-256": "Scheme github: `sha256=` and the HMAC-SHA256 of the body, in hex.",
}

_TAG: Final = "Names it as people have made it; If-Match with it edits it only while it is so."


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
            "description": "What may be asked of a running engine.",
        },
        "paths": paths,
        "components": {
            "schemas": NAMED,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of `horae token add`, or the operator's of "
                    "`horae token show`. Each route names the scope that it needs: read, run, "
                    "edit or admin; admin contains all others.",
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
        "<title>Horae: the API</title></head><body><h1>Horae: the API</h1>"
        f"<p>Version {escape(horae.__version__)}. The same for programs: "
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
