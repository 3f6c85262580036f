"""How a browser gets in and out: a link that is good once, a session, and another token."""

from __future__ import annotations

from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from starlette.requests import Request
from starlette.responses import Response

from horae.core.access import (
    SESSION_LASTS,
    EndedSessions,
    LoginLink,
    NewToken,
    RevokedToken,
    SessionPage,
    Sessions,
    TokenPage,
    TokenRotation,
    Tokens,
    end_sessions,
)
from horae.core.actor import acting, current_actor
from horae.core.scope import OPERATOR, Scope, parse_scopes
from horae.web import keys as kept
from horae.web.answer import as_json, plain_page
from horae.web.fields import Fields, Required, about
from horae.web.front import Front, NotOfferedError, offered
from horae.web.router import Access, HttpRequestError, Routes

if TYPE_CHECKING:
    from horae.web.keys import Keys

routes = Routes()


@routes.post("/api/v1/login", Scope.READ)
async def new_link(front: Front) -> LoginLink:
    """Create a login link that can be used once, within ten minutes, for the caller's token."""
    keys = offered(front.keys, "login")
    kind, name = [*current_actor().split(":", 1), ""][:2]
    if kind == "agent":  # its token ends with its run, and a session would not
        reason = "the token of a run cannot create a login link"
        raise HttpRequestError(HTTPStatus.FORBIDDEN, reason)
    if not keys.url:
        raise NotOfferedError("page: it listens on no port; see `horae status`")
    if not keys.page:
        remedy = "put a proxy in front and set `server.url` to its address"
        raise NotOfferedError(f"page that a browser can reach at {keys.url}; {remedy}")
    return LoginLink(url=keys.link(name if kind in {"token", "session"} else OPERATOR))


@routes.post("/api/v1/token", Scope.ADMIN)
async def new_token(front: Front) -> TokenRotation:
    """Create a new operator token; all sessions, login links and secret paths end."""
    keys = offered(front.keys, "token")
    await keys.rotate()
    if keys.sessions is not None:
        await keys.sessions.end(None, now=front.clock.now())
    return TokenRotation(rotated=True)


@routes.get("/login/{code}", Access.OPEN, kind="text/html", is_once=True)
async def login(front: Front, request: Request, code: str) -> Response:
    """Log a browser in with a single-use login link."""
    keys = offered(front.keys, "login")
    # A browser or a messenger that looks ahead must not use the link up.
    ahead = (request.headers.get(name, "") for name in ("purpose", "sec-purpose", "x-moz"))
    if any("prefetch" in each for each in ahead):
        raise HttpRequestError(HTTPStatus.BAD_REQUEST, "a login link cannot be prefetched")
    # Under a name without a session the link is not used up: its host may have been changed.
    cookie = _cookie(keys, request)
    name = None if cookie is None else keys.take_code(code)
    session = None
    if name is not None:
        with acting(f"session:{name}"):
            session = await keys.begin_session(name, request.headers.get("user-agent", ""))
    if cookie is None or session is None:
        return plain_page("spent", HTTPStatus.NOT_FOUND)
    # A cookie that no other site's request carries is not sent where such a request leads on to;
    # so this page goes on by itself.
    given = kept.set_cookie(cookie, session, age=SESSION_LASTS)
    return plain_page("welcome", HTTPStatus.OK, {"Set-Cookie": given})


@routes.post("/api/v1/logout", Scope.READ, answer=EndedSessions)
async def logout(front: Front, request: Request) -> Response:
    """End the session of the cookie, and its open connections."""
    caller, keys = kept.caller_of(request.scope), offered(front.keys, "login")
    if caller is None or not caller.session:
        reason = "there is no session to end: the request has no session cookie"
        raise HttpRequestError(HTTPStatus.CONFLICT, reason)
    answer = as_json(await _end(front, caller.session))
    name = _cookie(keys, request) or ""
    answer.headers["Set-Cookie"] = kept.set_cookie(name, "", age=timedelta())
    return answer


def _sessions(front: Front) -> Sessions:
    return offered(offered(front.keys, "login").sessions, "sessions")


@routes.get("/api/v1/sessions", Scope.ADMIN)
async def sessions(front: Front) -> SessionPage:
    """List the sessions of browsers, most recently used first."""
    return SessionPage(sessions=await _sessions(front).all(now=front.clock.now()))


@routes.post("/api/v1/sessions/{session}/end", Scope.ADMIN)
async def end_session(front: Front, session: str) -> EndedSessions:
    """End a session, or `all` sessions, and their open connections."""
    return await _end(front, session)


async def _end(front: Front, session: str) -> EndedSessions:
    keys = offered(front.keys, "login")
    ended = await end_sessions(_sessions(front), session, now=front.clock.now())
    for each in ended:
        keys.end(each.token, each.id)
    return EndedSessions(ended=[each.id for each in ended])


def _cookie(keys: Keys, request: Request) -> str | None:
    return keys.names.cookie(kept.host_of(request.headers.get("host", "")) or "")


def _tokens(front: Front) -> Tokens:
    return offered(offered(front.keys, "tokens").tokens, "tokens")


@routes.get("/api/v1/tokens", Scope.ADMIN)
async def tokens(front: Front) -> TokenPage:
    """List the tokens by name, without their secrets."""
    keys = offered(front.keys, "tokens")
    return TokenPage(tokens=await kept.all_tokens(keys.directory, _tokens(front)))


class TokenRequest(Fields, frozen=True):
    name: Annotated[Required, about("name of the token")]
    scopes: Annotated[Required, about("scopes, separated by commas: read, run, edit, admin")]


@routes.post("/api/v1/tokens", Scope.ADMIN, also=(409,))
async def new_named(front: Front, body: TokenRequest) -> NewToken:
    """Create a token; only this response contains its secret."""
    scopes, now = parse_scopes([body.scopes]), front.clock.now()
    return await kept.add_token(_tokens(front), body.name, scopes, now=now)


@routes.post("/api/v1/tokens/{name}/revoke", Scope.ADMIN, also=(404,))
async def revoke(front: Front, name: str) -> RevokedToken:
    """Revoke a token and end its open connections."""
    await kept.revoke_token(_tokens(front), name, now=front.clock.now())
    offered(front.keys, "tokens").end(name)
    return RevokedToken(revoked=name)
