"""Edits that count only if nobody was faster: ETag and If-Match.

A tag names a thing as people have made it. What changes by itself, such as when it comes next,
is not in it: an edit is refused because of somebody, never because time has passed.
"""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from horae.core.explain import stamp
from horae.web.front import offered
from horae.web.request import HttpRequestError

if TYPE_CHECKING:
    from starlette.requests import Request

    from horae.core.ports import Listed
    from horae.web.front import Front
    from horae.web.table import Operation, Tagging

_LENGTH: Final = 32  # digits of a tag


class ChangedError(HttpRequestError):
    """Something that somebody changed since it was read."""

    code = "changed"

    def __init__(self) -> None:
        reason = "the object has changed since it was read; read it again"
        super().__init__(HTTPStatus.PRECONDITION_FAILED, reason)


def expected(request: Request) -> str | None:
    """Return the tag that a thing must have to be changed; None is any."""
    given = request.headers.getlist("if-match")
    if not given or given == ["*"]:
        return None
    tag = given[0].strip()
    is_one = len(given) == 1 and len(tag) > 1 and tag.startswith('"') and tag.endswith('"')
    if not is_one or '"' in tag[1:-1]:
        raise HttpRequestError(HTTPStatus.BAD_REQUEST, 'If-Match must be one ETag, like "…"')
    return tag[1:-1]


def tag_of(data: object) -> str:
    """Return what plain data goes by.

    >>> tag_of({"a": 1, "b": 2}) == tag_of({"b": 2, "a": 1}) != tag_of({"a": 2, "b": 2})
    True
    """
    text = json.dumps(data, sort_keys=True, default=str)
    return sha256(text.encode()).hexdigest()[:_LENGTH]


def with_tag(operation: Operation, tag: Tagging) -> Operation:
    """Return a route that says the tag of what it is about, or minds it before an edit."""
    if operation.method == "GET":
        return replace(operation, tag=tag)
    return replace(
        operation,
        tag=tag,
        headers=(*operation.headers, "If-Match"),
        also=(*operation.also, HTTPStatus.PRECONDITION_FAILED.value),
    )


async def entry_tag(front: Front, request: Request) -> str:
    """Return the tag of an entry: what is written of it, and whether it rests."""
    return tag_of_entry(await front.service.named(request.path_params["entry"]))


def tag_of_entry(found: Listed) -> str:
    """Return the tag of an entry as it is known."""
    mark, pause = found.mark, found.pause
    rest = pause and (stamp(pause.at, "UTC"), stamp(pause.until, "UTC"), pause.note)
    written = (mark.address, mark.title, mark.rule, mark.body)
    return tag_of((found.number, written, stamp(found.gone_at, "UTC"), rest))


async def workflow_tag(front: Front, request: Request) -> str:
    """Return the tag of a workflow as it is written."""
    return tag_of(await offered(front.triggers, "triggers").get(request.path_params["id"]))


async def agent_tag(front: Front, request: Request) -> str:
    """Return the tag of an agent as it is written; whether it runs is not in it."""
    said: dict[str, Any] = await offered(front.triggers, "triggers").agent(
        request.path_params["id"]
    )
    return tag_of({name: value for name, value in said.items() if name != "status"})


WRITTEN: Final[dict[str, Tagging]] = {
    "/workflows/{id}": workflow_tag,
    "/agents/{id}": agent_tag,
}
