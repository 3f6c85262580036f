"""Forms: what the buttons of a page post while no script of the page runs, done by the API."""

from __future__ import annotations

import json
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import MultiDict
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

from horae.core.text import is_number
from horae.core.views import RequestError
from horae.web.answer import HEADERS, encoded
from horae.web.api import FORMS, answer_of, operation_of
from horae.web.keys import caller_of
from horae.web.page.actions import fields
from horae.web.page.sheet import ZONE, PageContext, Sheet, endpoint_of
from horae.web.router import JSON, HttpRequestError, Operation, body_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from starlette.types import Message

    from horae.web.front import Front
    from horae.web.page.sheet import PageRequest

KIND: Final = "application/x-www-form-urlencoded"
MOST: Final = 2000  # of a form, at most
_YEAR: Final = 365 * 86400  # seconds
TIMES: Final = 10  # of a preview, at most
CLEAR: Final = "clear"  # the schedule of a task
_EACH: Final = "/-/"  # in a path: once for each `of` of the form
_OWN: Final = {"ask", "sure", "tag", "then", "of", "what", "token", "back", "given", "look"}


class Plan(NamedTuple):
    """A preview of what a form does."""

    title: str
    words: str
    times: Sequence[str]


def form_of(context: PageContext) -> Callable[[Request], Awaitable[Response]]:
    async def form(request: Request) -> Response:
        done: Response | None = None

        async def show(_: PageRequest) -> Sheet:
            nonlocal done
            given = await _given(context.front, request)
            asks = request.query_params.getlist("ask")
            if "given" in given or not (asks or "sure" in request.query_params):
                done = await _done(context.front, request, given)
            what = given.get("what", "")
            known = [each._replace(value=given.get(each.name, each.value)) for each in fields(asks)]
            names = {each.name for each in known}
            values: dict[str, object] = {"asked": known, "names": names, "what": what}
            values["has_preview"] = not names.isdisjoint(("schedule", "cron", "from"))
            is_looked = "look" in given and "given" not in given
            values["plans"] = await _plans(context.front, request, given) if is_looked else []
            values |= {"word": what.partition(":")[0], "chosen": given.getlist("of")}
            values |= {"action": f"{quote(request.scope['path'])}?{request.url.query}"}
            return Sheet("form.html", what, "", {**values, "back": _back(request, given)})

        page = await endpoint_of(context, show)(request)
        return page if done is None else done

    return form


async def _given(front: Front, request: Request) -> MultiDict:
    """Return the fields of a form that a page of this session has sent."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != KIND:
        status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
        raise HttpRequestError(status, f"Content-Type must be {KIND}")
    text = (await body_of(request)).decode(errors="replace")
    try:
        given = MultiDict(parse_qsl(text, keep_blank_values=True, max_num_fields=MOST))
    except ValueError:
        raise RequestError(f"a form has at most {MOST:,} fields") from None
    # The guard has refused what another site sends; a browser says where a form comes from.
    origin, host = request.headers.get("origin", ""), request.headers.get("host", "")
    is_ours = origin in {f"http://{host}", f"https://{host}"}
    caller, keys = caller_of(request.scope), front.keys
    if caller is None or keys is None or not keys.is_form(caller, given.get("token", "")):
        is_ours = False
    if not is_ours:
        reason = "the form does not belong to this session; load the page again"
        raise HttpRequestError(HTTPStatus.FORBIDDEN, reason)
    return given


async def _done(front: Front, request: Request, given: MultiDict) -> Response:
    """Ask the API for what a form says, and lead the browser back to where it was."""
    path, query = request.scope["path"].removeprefix(FORMS), request.query_params
    operation, numbers = operation_of("POST", request.scope["path"]), given.getlist("of")
    if operation is None or operation.body is None or operation.scope is None:
        raise HttpRequestError(HTTPStatus.NOT_FOUND, f"there is no action {path[:200]!r}")
    if _EACH in path and not (numbers and all(map(is_number, numbers))):
        raise RequestError("nothing is selected; select a row first")
    known = [*query.multi_items(), *given.multi_items()]
    body: dict[str, object] = {k: v for k, v in known if k not in _OWN and v}
    if given.get("given") == CLEAR:
        body = {"clear": True}
    cookies = []
    for each in [path.replace(_EACH, f"/{of}/", 1) for of in numbers] or [path]:
        asked = _request(request, operation, each, encoded(body), tag=query.get("tag", ""))
        made = await answer_of(front, operation)(asked)
        cookies += made.headers.getlist("set-cookie")
    answer = Response(status_code=HTTPStatus.SEE_OTHER, headers=HEADERS)
    answer.headers["Location"] = _ours(query.get("then") or _back(request, given))
    for cookie in cookies:
        answer.headers.append("Set-Cookie", cookie)
    return answer


def _request(
    request: Request,
    operation: Operation,
    path: str,
    body: bytes,
    *,
    tag: str = "",
    query: Mapping[str, str] = MappingProxyType({}),
) -> Request:
    """Return the request of the API that a form stands for."""
    kept = [each for each in request.scope["headers"] if each[0] in {b"host", b"cookie"}]
    kept += [(b"content-type", JSON.encode())]
    kept += [(b"if-match", f'"{tag}"'.encode())] if tag else []
    match = compile_path(operation.path)[0].match(path)
    scope: dict[str, Any] = {**request.scope, "method": operation.method, "path": path}
    scope |= {"path_params": match.groupdict() if match else {}, "headers": kept}
    scope |= {"raw_path": quote(path).encode()}
    scope["query_string"] = urlencode({k: v for k, v in query.items() if v}).encode()
    parts = iter([{"type": "http.request", "body": body}])

    async def receive() -> Message:
        return next(parts, None) or await request.receive()

    return Request(scope, receive)


async def _plans(front: Front, request: Request, given: MultiDict) -> list[Plan]:
    """Return what a form would do: the times as they are, and as they would be."""
    path = request.scope["path"].removeprefix(FORMS)
    if path.endswith("/backfill"):
        body = {**{k: v for k, v in given.items() if k in {"from", "to"}}, "dry_run": True}
        paths = [path.replace(_EACH, f"/{of}/", 1) for of in given.getlist("of")] or [path]
        told = [await _told(front, request, "POST", each, body=body) for each in paths]
        return [Plan(e["title"], f"runs: {e['count']:,}", e["moments"][:TIMES]) for e in told]
    if path.startswith("/api/v1/entries/"):
        told = await _told(front, request, "GET", path, to=given.get("schedule", ""))
        both = [(word, told[key]) for word, key in (("Now", "now"), ("Then", "then")) if told[key]]
        return [Plan(word, each["words"] or each["reason"], each["next"]) for word, each in both]
    query = {"when": given.get("cron", ""), "zone": given.get("timezone", ""), "limit": str(TIMES)}
    told = await _told(front, request, "GET", "/api/v1/preview", **query)
    return [Plan("Then", told["words"], told["next"])]


async def _told(
    front: Front,
    request: Request,
    method: str,
    path: str,
    *,
    body: dict[str, object] | None = None,
    **query: str,
) -> Any:
    """Return what the API says."""
    operation = operation_of(method, path)
    if operation is None:
        raise HttpRequestError(HTTPStatus.NOT_FOUND, f"there is no preview of {path[:200]!r}")
    asked = _request(request, operation, path, encoded(body or {}), query=query)
    return json.loads(bytes((await answer_of(front, operation)(asked)).body))


async def choose_zone(request: Request) -> Response:
    """Let a browser see times in another zone; without one in that of the plan."""
    answer = Response(status_code=HTTPStatus.SEE_OTHER, headers=HEADERS)
    answer.headers["Location"] = _ours(request.headers.get("referer", ""))
    to = request.query_params.get("to", "")
    answer.set_cookie(ZONE, to, max_age=_YEAR if to else 0, samesite="strict")
    return answer


def _back(request: Request, given: MultiDict) -> str:
    """Return the page that a form was on."""
    return _ours(given.get("back") or request.headers.get("referer", ""))


def _ours(url: str) -> str:
    parts = urlsplit(url)
    path = "/" + parts.path.lstrip("/\\")  # else it may lead to another host
    return f"{path}?{parts.query}" if parts.query else path
