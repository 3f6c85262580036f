"""The document of the API, and a page that shows it: both made from the table of the routes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment

import horae
from horae.core.receipt import ReasonCode, Status
from horae.web.answer import html, is_plain
from horae.web.router import JSON, PROBLEM, Operation, Schema, Takes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


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
_BEARER: Final = (
    "A token from `horae token add`, or the operator token from `horae token show`. Each route "
    "names the scope that it requires: read, run, edit or admin; admin includes all others."
)
_TAG: Final = "The version of the object; send it as If-Match to edit only this version."

# Every field of an answer is named, and none is left out; a test holds them against real answers.
_TYPES: Final[dict[str, str | Schema]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "real": {"type": "number"},
    "bool": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
    "object": {"type": "object"},
    "any": {},
    "status": {"type": "string", "enum": [each.value for each in Status]},
    "pause": "at:time until:time? note by:str?",
    "attempt": """run:int attempt:int node?:str started_at:time ended_at:time? outcome:status?
        exit_code:int? reason reason_code:ReasonCode? pid:int? facts:object""",
    # What is decided has more to say than what is still to come.
    "why": """at:time? said moment:bool estimate:bool receipt:int? key?:str status?:status
        reason?:str reason_code?:ReasonCode? through_at?:time? count?:int start_at?:time?
        decided_at?:time late_seconds?:real ended_at?:time? file?:str line?:int commit?:str?
        digest?:str policy?:any actor?:str note?:str? node?:str runs?:attempt[]""",
    "holder": "receipt:int entry:int title slot:int? kind since:time parent:int?",
    "waiter": """receipt:int entry:int title due_at:time reason reason_code:ReasonCode
        behind:int?""",
    "engine": "running:bool data pid:int? since:str?",
    "setting": "name trusted:any written:any commit:str?",
    "rescan": "source problems:str[]",
    "session": "id token scopes:str[] created_at:time used_at:time expires_at:time agent",
    "service": "agents_active:int",
    "public_status": """active:bool running:bool agent last_run:int? next_run:int?
        interval_ms:int? lifecycle:object?""",
    "public_agent": """name running:bool last_run:int? next_run:int? lifecycle:object?
        steps:object[] thought:str?""",
    "public_one": "agent:public_status? steps:object[] thought:str?",
    "public_crew": "agents:public_agent[] wire:object[] agent:public_status?",
    "Agent": """agent entry:int file line:int zone running:bool last_run:time? next_run:time?
        rule:str? lifecycle:object? streak:int failures:int stuck:bool last_outcome:status?
        last_reason:str? last_reason_code:ReasonCode? held:str? paused:bool troubles:object""",
    "Node": """node state:up|draining|lost|left leads:bool term:int? may_lead:bool runs:int
        slots:int labels:str[] address version since:time lease_until:time seen_at:time""",
    "Approval": """receipt:int workflow agent source_id prompt status created_at:time
        expires_at:time""",
    "Dispatch": """id workflow_id workflow source_id agent_id prompt_sent
        status:pending|dispatched|completed|failed|skipped dispatched_at:time completed_at:time?
        reason reason_code:ReasonCode? receipt:int planned_at:time count:int actor
        approved_by:str?""",
    "Entry": """entry:int source title address file line:int zone armed:bool rule:str? reason:str?
        first_seen_at:time gone_at:time? pause:pause? next_at:time? failures:int broken:str?
        broken_at:time?""",
    "Error": "error:str",
    "Event": "event:int at:time kind entry:int? receipt:int? facts:object actor",
    "Fire": "at:time zone entry:int title file line:int key estimate:bool",
    "Health": """ok:bool at:time turned_at:time? loop_lag_seconds:real ledger_writable:bool
        problems:str[]""",
    "Problem": "type title status:int detail code exit_code:int facts:object",
    # No enum: a client of today must take the codes of tomorrow.
    "ReasonCode": {
        "type": "string",
        "description": f"known codes: {', '.join(ReasonCode)}; others may follow",
    },
    "Receipt": """receipt:int entry:int title key status:status reason reason_code:ReasonCode?
        planned_at:time through_at:time? count:int times:int start_at:time? decided_at:time
        late_seconds:real ended_at:time? attempts:int zone file line:int commit:str? parent:int?
        actor note:str? node?:str""",
    "Record": "workflow schedule:object? tasks:any sub_workflows:object[] ...",
    "Run": "...attempt receipt:int entry:int title key status:status zone",
    "Status": """at:time zone stall:str? engine:engine entries:int counts:int{} agents:Agent[]
        running:Receipt[] waiting:Receipt[] late:Receipt[] missed:Receipt[] failed:Receipt[]
        next:Entry[] paused:Entry[] unarmed:Entry[] problems:str[]""",
    "Task": """id:int title status priority standing:str? reason:str? assignee:str?
        claimed_by:str? review_owner:str? tags:str[] depends_on:int[] scheduled_for:str?
        cron_schedule:str? cron_last_run:str? timezone:str? file next:time[]""",
    "Token": "name scopes:str[] created_at:time used_at:time?",
    # How these are kept may be said in fields of their own, so there may be more.
    "Trigger": """id name agent_id trigger_config:object prompt_template poll_interval_secs:int
        enabled:bool tool_policy:object created_at:time updated_at:time ...""",
    "TriggerAgent": "id name status config:object created_at:time updated_at:time ...",
}


def schema(text: str) -> Schema:
    """Return the JSON Schema of a type as routes write it.

    A type is one of `_TYPES`, those with a capital by reference, or `a|b` of words; `[]` makes a
    list of it, `{}` a map to it, and `?` lets it be null. A text with a colon is an object with
    exactly its fields: `name:type`, or `name` for a string; `name?:type` may be missing, `...Type`
    takes over the fields of another, and `...` alone allows more. `a or b` is either.

    >>> schema("entry:int title notes:str[]?")["properties"]["notes"]
    {'anyOf': [{'type': 'array', 'items': {'type': 'string'}}, {'type': 'null'}]}
    """
    if " or " in text:
        return {"anyOf": [schema(each) for each in text.split(" or ")]}
    if ":" in text:
        return _object(text)
    if text.endswith("?"):
        return {"anyOf": [schema(text[:-1]), {"type": "null"}]}
    if text.endswith("[]"):
        return {"type": "array", "items": schema(text[:-2])}
    if text.endswith("{}"):
        return {"type": "object", "additionalProperties": schema(text[:-2])}
    if "|" in text:
        return {"type": "string", "enum": text.split("|")}
    return {"$ref": f"#/components/schemas/{text}"} if text[0].isupper() else _type(text)


def _type(name: str) -> Schema:
    found = _TYPES[name]
    return schema(found) if isinstance(found, str) else found


def _object(text: str) -> Schema:
    fields: dict[str, Any] = {}
    needed: list[str] = []
    is_open = False
    for word in text.split():
        name, _, kind = word.partition(":")
        if name == "...":
            is_open = True
        elif name.startswith("..."):
            base = _type(name[3:])
            fields |= base["properties"]
            needed += base["required"]
        else:
            fields[name.removesuffix("?")] = schema(kind or "str")
            needed += [] if name.endswith("?") else [name]
    return _closed(fields, needed, is_open=is_open)


def _closed(fields: Schema, needed: list[str], *, is_open: bool) -> Schema:
    said = {"type": "object", "properties": fields, "required": needed}
    return {**said, "additionalProperties": is_open}


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(each.shown_path, {})[each.method.lower()] = _operation(each)
    about = "The HTTP API of a running engine."
    info = {"title": "Horae", "version": horae.__version__, "description": about}
    schemas = {name: _type(name) for name in _TYPES if name[0].isupper()}
    token = {"type": "http", "scheme": "bearer", "description": _BEARER}
    components = {"schemas": schemas, "securitySchemes": {"token": token}}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": components}


def page(operations: Sequence[Operation]) -> str:
    made = Environment(autoescape=True, trim_blocks=True, keep_trailing_newline=True)
    template = made.from_string(html("docs").decode())
    return template.render(operations=operations, version=horae.__version__)


def _operation(operation: Operation) -> dict[str, Any]:
    said: dict[str, Any] = {"operationId": operation.name, "summary": operation.words}
    said["responses"] = _responses(operation)
    if parameters := list(_parameters(operation)):
        said["parameters"] = parameters
    if operation.takes is Takes.BYTES:
        said["requestBody"] = {"content": {"*/*": {"schema": {}}}}
    elif operation.takes is not Takes.NOTHING:
        needed = [each.name for each in operation.body if each.is_needed]
        said_of = {each.name: each.schema(is_query=False) for each in operation.body}
        for each in operation.body:
            said_of[each.name]["description"] = each.about
        body = _closed(said_of, needed, is_open=operation.takes is Takes.LOOSE)
        said["requestBody"] = {"required": bool(needed), "content": {JSON: {"schema": body}}}
    # The scopes of a scheme that is not OAuth are named, too, since OpenAPI 3.1.
    said["security"] = [{"token": [operation.scope.value]}] if operation.scope else []
    return said


def _responses(operation: Operation) -> dict[str, Any]:
    good: dict[str, Any] = {"description": operation.words}
    if operation.status != 204:
        # Of a text it is the kind alone that a program can hold on to.
        kind = operation.kind.partition(";")[0]
        good["content"] = {kind: {"schema": schema(operation.says)}}
    if operation.has_tag or (operation.tag is not None and operation.method != "DELETE"):
        good["headers"] = {"ETag": {"description": _TAG, "schema": {"type": "string"}}}
    statuses = {*_ALWAYS, *operation.also}
    if operation.takes is not Takes.NOTHING:
        statuses |= {413, 415}
    said = {str(operation.status): good}
    for status in sorted(statuses):
        said[str(status)] = {"description": _WORDS[status]}
        if status != 431:
            kind, name = (JSON, "Error") if is_plain(operation.path) else (PROBLEM, "Problem")
            if operation.path in {"/healthz", "/readyz"} and status == 503:
                kind, name = JSON, "Health"
            if operation.path == "/login/{code}" and status == 404:
                kind, name = "text/html", operation.says
            said[str(status)]["content"] = {kind: {"schema": schema(name)}}
    return said


def _parameters(operation: Operation) -> Iterator[dict[str, Any]]:
    for name in _PATH.findall(operation.path):
        part = {"type": "string", "minLength": 1}
        part = {"type": "integer", "minimum": 0} if name == "number" else part
        about = {"required": True, "description": _PARTS[name], "schema": part}
        yield {"name": name, "in": "path", **about}
    for field in operation.query:
        said = {"required": field.is_needed, "description": field.about}
        yield {"name": field.name, "in": "query", **said, "schema": field.schema(is_query=True)}
    for name in operation.headers:
        about = {"description": _HEADERS[name], "schema": {"type": "string"}}
        yield {"name": name, "in": "header", **about}
