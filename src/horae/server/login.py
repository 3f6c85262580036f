"""How somebody gets in: a link that is good once, and another token."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import HTMLResponse

from horae.rules.scope import Scope
from horae.server.answer import HEADERS
from horae.server.front import NotOfferedError, offered
from horae.server.keys import SESSION
from horae.server.names import host_of, set_cookie
from horae.server.request import HttpRequestError
from horae.server.shapes import FLAG, TEXT, shape
from horae.server.table import Access, Operation, asks, does

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from horae.server.front import Front
    from horae.server.request import Fields


async def new_link(front: Front, _: Request, __: Fields) -> dict[str, Any]:
    """Make a link that logs a browser in, once, within ten minutes."""
    keys = offered(front.keys, "login")
    if not keys.url:
        raise NotOfferedError("page, since it listens at no port; `horae status` says why")
    if not keys.page:
        where = f"page that a browser finds at {keys.url}"
        raise NotOfferedError(f"{where}; put a proxy in front, and set `server.url` to its address")
    return {"url": keys.link()}


async def new_token(front: Front, _: Request, __: Fields) -> dict[str, Any]:
    """Make a new token; every session, link and secret path ends."""
    offered(front.keys, "token").rotate()
    return {"rotated": True}


async def login(front: Front, request: Request, _: Fields) -> Response:
    """Log a browser in by a link that is good once."""
    keys = offered(front.keys, "login")
    # A browser or a messenger that looks ahead must not use the link up.
    ahead = (request.headers.get(name, "") for name in ("purpose", "sec-purpose", "x-moz"))
    if any("prefetch" in each for each in ahead):
        raise HttpRequestError(HTTPStatus.BAD_REQUEST, "a login link is for a person to follow")
    # Under a name without a session the link is not used up: somebody may have changed its host.
    cookie = keys.names.cookie(host_of(request.headers.get("host", "")) or "")
    if cookie is None or not keys.take_code(request.path_params["code"]):
        return HTMLResponse(_SPENT, HTTPStatus.NOT_FOUND, headers=HEADERS)
    given = set_cookie(cookie, keys.new_session(), age=int(SESSION.total_seconds()))
    return HTMLResponse(_WELCOME, headers={**HEADERS, "Set-Cookie": given})


# A cookie that no other site's request carries is not sent where such a request leads on to;
# so this page goes on by itself.
_WELCOME: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Horae</title>
<meta http-equiv="refresh" content="0; url=/"></head>
<body><p>You are logged in. <a href="/">Go on</a></p></body></html>
"""
_SPENT: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Horae</title></head>
<body><h1>This link is not valid</h1>
<p>A login link is valid once, for ten minutes, and only as it was printed.
<code>horae open</code> makes another one.</p>
</body></html>
"""


OPERATIONS: Final[tuple[Operation, ...]] = (
    asks("/login/{code}", Access.OPEN, login, TEXT, kind="text/html", is_once=True),
    does("/api/v1/login", Scope.ADMIN, new_link, shape(url=TEXT)),
    does("/api/v1/token", Scope.ADMIN, new_token, shape(rotated=FLAG)),
)
