"""Forms: what the buttons of a page post while no script of the page runs, done by the API."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, urlsplit

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
from horae.web.page.sheet import PageContext, Sheet, endpoint_of
from horae.web.router import JSON, HttpRequestError, Operation, body_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import Message

    from horae.web.front import Front
    from horae.web.page.sheet import PageRequest

KIND: Final = "application/x-www-form-urlencoded"
MOST: Final = 2000  # of a form, at most
_EACH: Final = "/-/"  # in a path: once for each `of` of the form
_OWN: Final = {"ask", "sure", "tag", "then", "of", "what", "token", "back", "given"}


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
            values: dict[str, object] = {"asked": [*fields(asks)], "what": what}
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
    body = {name: value for name, value in known if name not in _OWN and value}
    cookies = []
    for each in [path.replace(_EACH, f"/{of}/", 1) for of in numbers] or [path]:
        asked = _request(request, operation, each, encoded(body), query.get("tag", ""))
        made = await answer_of(front, operation)(asked)
        cookies += made.headers.getlist("set-cookie")
    answer = Response(status_code=HTTPStatus.SEE_OTHER, headers=HEADERS)
    answer.headers["Location"] = _ours(query.get("then") or _back(request, given))
    for cookie in cookies:
        answer.headers.append("Set-Cookie", cookie)
    return answer


def _request(request: Request, operation: Operation, path: str, body: bytes, tag: str) -> Request:
    """Return the request of the API that a form stands for."""
    kept = [each for each in request.scope["headers"] if each[0] in {b"host", b"cookie"}]
    kept += [(b"content-type", JSON.encode())]
    kept += [(b"if-match", f'"{tag}"'.encode())] if tag else []
    match = compile_path(operation.path)[0].match(path)
    scope: dict[str, Any] = {**request.scope, "method": operation.method, "path": path}
    scope |= {"path_params": match.groupdict() if match else {}, "headers": kept}
    scope |= {"raw_path": quote(path).encode(), "query_string": b""}
    parts = iter([{"type": "http.request", "body": body}])

    async def receive() -> Message:
        return next(parts, None) or await request.receive()

    return Request(scope, receive)


def _back(request: Request, given: MultiDict) -> str:
    """Return the page that a form was on."""
    return _ours(given.get("back") or request.headers.get("referer", ""))


def _ours(url: str) -> str:
    parts = urlsplit(url)
    path = "/" + parts.path.lstrip("/\\")  # else it may lead to another host
    return f"{path}?{parts.query}" if parts.query else path
