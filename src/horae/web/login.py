"""How a browser gets in and out: a link that is good once, a session, and another token."""

from __future__ import annotations

from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import HTMLResponse, Response

from horae.core.access import SESSION_LASTS, Sessions, Tokens, end_sessions
from horae.core.actor import acting, current_actor
from horae.core.scope import OPERATOR, Scope, parse_scopes
from horae.web import keys as kept, router
from horae.web.answer import HEADERS, html, told
from horae.web.router import HttpRequestError, asks, call, does, needed, offered, text

if TYPE_CHECKING:
    from starlette.requests import Request

    from horae.web.keys import Keys
    from horae.web.router import Front, RequestFields


async def new_link(front: Front, _: Request, __: RequestFields) -> dict[str, Any]:
    """Create a login link that can be used once, within ten minutes, for the caller's token."""
    keys = offered(front.keys, "login")
    kind, name = [*current_actor().split(":", 1), ""][:2]
    if kind == "agent":  # its token ends with its run, and a session would not
        reason = "the token of a run cannot create a login link"
        raise HttpRequestError(HTTPStatus.FORBIDDEN, reason)
    if not keys.url:
        raise router.NotOfferedError("page: it listens on no port; see `horae status`")
    if not keys.page:
        remedy = "put a proxy in front and set `server.url` to its address"
        raise router.NotOfferedError(f"page that a browser can reach at {keys.url}; {remedy}")
    return {"url": keys.link(name if kind in {"token", "session"} else OPERATOR)}


async def new_token(front: Front, _: Request, __: RequestFields) -> dict[str, Any]:
    """Create a new operator token; all sessions, login links and secret paths end."""
    keys = offered(front.keys, "token")
    await keys.rotate()
    if keys.sessions is not None:
        await keys.sessions.end(None, now=front.clock.now())
    return {"rotated": True}


async def login(front: Front, request: Request, _: RequestFields) -> Response:
    """Log a browser in with a single-use login link."""
    keys = offered(front.keys, "login")
    # A browser or a messenger that looks ahead must not use the link up.
    ahead = (request.headers.get(name, "") for name in ("purpose", "sec-purpose", "x-moz"))
    if any("prefetch" in each for each in ahead):
        raise HttpRequestError(HTTPStatus.BAD_REQUEST, "a login link cannot be prefetched")
    # Under a name without a session the link is not used up: its host may have been changed.
    cookie = _cookie(keys, request)
    name = None if cookie is None else keys.take_code(request.path_params["code"])
    session = None
    if name is not None:
        with acting(f"session:{name}"):
            session = await keys.begin_session(name, request.headers.get("user-agent", ""))
    if cookie is None or session is None:
        return HTMLResponse(html("spent"), HTTPStatus.NOT_FOUND, headers=HEADERS)
    # A cookie that no other site's request carries is not sent where such a request leads on to;
    # so this page goes on by itself.
    given = kept.set_cookie(cookie, session, age=SESSION_LASTS)
    return HTMLResponse(html("welcome"), headers={**HEADERS, "Set-Cookie": given})


async def logout(front: Front, request: Request, _: RequestFields) -> Response:
    """End the session of the cookie, and its open connections."""
    caller, keys = kept.caller_of(request.scope), offered(front.keys, "login")
    if caller is None or not caller.session:
        reason = "there is no session to end: the request has no session cookie"
        raise HttpRequestError(HTTPStatus.CONFLICT, reason)
    answer = told(await _end(front, caller.session))
    name = _cookie(keys, request) or ""
    answer.headers["Set-Cookie"] = kept.set_cookie(name, "", age=timedelta())
    return answer


def _sessions(front: Front) -> Sessions:
    return offered(offered(front.keys, "login").sessions, "sessions")


async def sessions(front: Front, _: Request, __: RequestFields) -> dict[str, Any]:
    """List the sessions of browsers, most recently used first."""
    found = await _sessions(front).all(now=front.clock.now())
    return {"sessions": [each.data() for each in found]}


async def _end(front: Front, session: str) -> dict[str, Any]:
    keys = offered(front.keys, "login")
    ended = await end_sessions(_sessions(front), session, now=front.clock.now())
    for each in ended:
        keys.end(each.token, each.id)
    return {"ended": [each.id for each in ended]}


def _cookie(keys: Keys, request: Request) -> str | None:
    return keys.names.cookie(kept.host_of(request.headers.get("host", "")) or "")


def _tokens(front: Front) -> Tokens:
    return offered(offered(front.keys, "tokens").tokens, "tokens")


async def new_named(front: Front, _: Request, asked: RequestFields) -> dict[str, Any]:
    """Create a token; only this response contains its secret."""
    scopes, now = parse_scopes([asked.text("scopes")]), front.clock.now()
    token, said = await kept.add_token(_tokens(front), asked.text("name"), scopes, now=now)
    return {**token.data(), "token": said}


async def tokens(front: Front, _: Request, __: RequestFields) -> dict[str, Any]:
    """List the tokens by name, without their secrets."""
    keys = offered(front.keys, "tokens")
    found = await kept.all_tokens(keys.directory, _tokens(front))
    return {"tokens": [each.data() for each in found]}


async def revoke(front: Front, request: Request, _: RequestFields) -> dict[str, Any]:
    """Revoke a token and end its open connections."""
    name = request.path_params["name"]
    await kept.revoke_token(_tokens(front), name, now=front.clock.now())
    offered(front.keys, "tokens").end(name)
    return {"revoked": name}


# fmt: off
OPERATIONS: Final = (
    asks("/login/{code}", router.Access.OPEN, login, "str", kind="text/html", is_once=True),
    does("/api/v1/login", Scope.READ, new_link, "url:str"),
    does("/api/v1/logout", Scope.READ, logout, "ended:str[]"),
    asks("/api/v1/sessions", Scope.ADMIN, sessions, "sessions:session[]"),
    does("/api/v1/sessions/{session}/end", Scope.ADMIN, call("end_session",
         "End a session, or `all` sessions, and their open connections.",
         lambda front, request, _: _end(front, request.path_params["session"])), "ended:str[]"),
    does("/api/v1/token", Scope.ADMIN, new_token, "rotated:bool"),
    asks("/api/v1/tokens", Scope.ADMIN, tokens, "tokens:Token[]"),
    does("/api/v1/tokens", Scope.ADMIN, new_named, "...Token token:str",
         needed(text("name", "name of the token")),
         needed(text("scopes", "scopes, separated by commas: read, run, edit, admin")),
         also=(409,)),
    does("/api/v1/tokens/{name}/revoke", Scope.ADMIN, revoke, "revoked:str", also=(404,)),
)
# fmt: on
