"""The guard before the application: who the caller is, from where, and whether that may be.

The control socket only the owner of the data directory can open, who may do everything.
"""

from __future__ import annotations

import asyncio
import os
from asyncio import sleep
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import unquote

from starlette.datastructures import Headers, MutableHeaders
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
from horae.core.actor import (
    OPERATOR,
    Scope,
    ScopeError,
    acting,
    actor_words,
    allows,
    current_actor,
    parse_scopes,
    scope_words,
)
from horae.core.ports import Clock, LedgerError
from horae.errors import Exit
from horae.web import ACTOR, RUN, SCOPES, keys as kept
from horae.web.answer import HEADERS, as_json, plain_page, refused
from horae.web.fields import Fields, Required, about
from horae.web.front import Front, NotOfferedError, offered
from horae.web.keys import Caller, Keys, caller_of, host_of, set_cookie, with_caller
from horae.web.router import Access, HttpRequestError, Operation, Routes
from horae.web.serve import USER, Proxies

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope as Incoming, Send

    from horae.web.keys import Keys

LONGEST: Final = 30.0  # seconds until an answer begins
TRIES: Final = 10  # wrong tokens of one peer are answered at once
WITHIN: Final = timedelta(minutes=1)
SLOWED: Final = 1.0  # seconds until the next one is answered
WAITING: Final = 16  # of those at a time; each has a connection meanwhile
PEERS: Final = 1000  # so many peers are remembered

_NO_KEY: Final = (
    "the token is missing, wrong or revoked; `horae token show` on the machine of the engine prints"
    " the operator token; set HORAE_TOKEN to it, or send it in the header `Authorization: Bearer`"
)
_READS: Final = frozenset({"GET", "HEAD"})


class GuardError(HttpRequestError, code="guard", exit_code=Exit.UNAUTHORISED):
    """A request that the guard refuses."""


class MissingScopeError(GuardError, code="missing_scope"):
    def __init__(self, actor: str, scopes: frozenset[Scope], needed: Scope) -> None:
        self.actor = actor
        self.scopes = scope_words(scopes)
        self.needed = needed.value
        words = actor_words(actor)
        who = f"{words}," if "," in words else words  # token ops, from the page, has …
        reason = f"this requires the scope {needed}; {who} has only {', '.join(self.scopes)}"
        super().__init__(HTTPStatus.FORBIDDEN, reason)


def attended(
    app: ASGIApp,
    keys: Keys,
    *,
    operation_of: Callable[[str, str], Operation | None],
    actor_of: Callable[[int, str], Awaitable[str]],
) -> ASGIApp:
    """Return an application for the control socket, whose caller is a user, in a run or not.

    With a token the caller is its holder, and may do no more than it allows.
    """

    async def attended_app(scope: Incoming, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        try:
            with _reading():
                if headers.getlist("authorization"):
                    caller = await _bearer(keys, headers)
                else:
                    run = "".join(headers.getlist(RUN))
                    actor = await actor_of(scope["state"].get(USER, os.geteuid()), run)
                    caller = Caller(actor, frozenset({Scope.ADMIN}), asyncio.Event())
            operation = operation_of(scope["method"], scope["path"])
            needed = needed_scope(operation, scope["method"])
            caller = _checked(caller, needed, "HORAE_TOKEN is wrong or revoked")
        except GuardError as error:
            await refused(error, scope["path"], error.status)(scope, _nothing, send)
            return
        with acting(caller.actor):
            await app(with_caller(scope, caller), _until(caller, receive), send)

    return attended_app


@dataclass(slots=True)
class Guard:
    """An application for a port: it answers only those who may ask, and in time.

    Through one of the *proxies* the caller is the one that it names.
    """

    app: ASGIApp
    keys: Keys
    clock: Clock
    operation_of: Callable[[str, str], Operation | None]
    proxies: Proxies = field(default_factory=Proxies)
    patience: float = LONGEST
    _waiting: int = 0
    # By peer: when it had a wrong token.
    _failures: dict[str, deque[timedelta]] = field(default_factory=dict)

    async def __call__(self, scope: Incoming, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # No page can open a socket here, whosever it is.
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = Headers(scope=scope)
        operation = self.operation_of(scope["method"], scope["path"])
        needed = needed_scope(operation, scope["method"])
        caller = cookie = None
        try:
            cookie = self._cookie(headers)
            _check_origin(scope["method"], headers)
            if needed is not None:
                with _reading():
                    if headers.getlist("authorization"):
                        caller = await _bearer(self.keys, headers)
                    elif cookie is not None:
                        caller = await self.keys.session(cookie[1])
                if caller is None and (headers.getlist("authorization") or cookie is not None):
                    await self._slow_down(scope, headers)
                caller = _checked(caller, needed, _NO_KEY)
        except GuardError as error:
            await self._refuse(error, scope, send, cookie)
            return
        is_long = operation is not None and operation.is_long
        if caller is None:
            await self._pass(scope, receive, send, is_long=is_long)
            return
        more = {}
        if caller.is_renewed and cookie is not None:
            more = {"Set-Cookie": set_cookie(*cookie, age=SESSION_LASTS)}
        with acting(caller.actor):
            scope, receive = with_caller(scope, caller), _until(caller, receive)
            await self._pass(scope, receive, send, is_long=is_long, **more)

    def _cookie(self, headers: Headers) -> tuple[str, str] | None:
        names = headers.getlist("host")
        host = host_of(names[0]) if len(names) == 1 else None
        if host is None:
            reason = "the request must have exactly one valid Host header"
            raise GuardError(HTTPStatus.BAD_REQUEST, reason)
        if not self.keys.names.has(host):
            reason = f"unknown host {host[:100]!r}; if it is this machine, add it to `server.names`"
            raise GuardError(HTTPStatus.MISDIRECTED_REQUEST, reason)
        name = self.keys.names.cookie(host)
        parts = (part for line in headers.getlist("cookie") for part in line.split(";"))
        found = (part.strip().partition("=") for part in parts)
        return next(((key, value) for key, _, value in found if key == name), None)

    async def _slow_down(self, scope: Incoming, headers: Headers) -> None:
        """Let a wrong token wait if it is not the first of its peer, or refuse it at once."""
        near = scope["client"][0] if scope.get("client") else ""
        peer = self.proxies.asking(near, headers.getlist("x-forwarded-for"))
        if peer not in self._failures and len(self._failures) >= PEERS:
            del self._failures[next(iter(self._failures))]
        when, now = self._failures.setdefault(peer, deque(maxlen=TRIES)), self.clock.elapsed()
        is_one_more = len(when) == TRIES and now - when[0] < WITHIN
        when.append(now)
        if not is_one_more:
            return
        if self._waiting >= WAITING:
            reason = "too many wrong tokens; `horae token show` prints the right one"
            raise GuardError(HTTPStatus.TOO_MANY_REQUESTS, reason)
        self._waiting += 1
        try:
            await sleep(SLOWED)
        finally:
            self._waiting -= 1

    async def _pass(
        self, scope: Incoming, receive: Receive, send: Send, *, is_long: bool, **more: str
    ) -> None:
        has_begun = False
        limit = asyncio.timeout(None if is_long else self.patience)

        async def guarded_send(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                limit.reschedule(None)  # from now on the reader's own slowness is what counts
                headers = MutableHeaders(scope=message)
                for name, value in {**HEADERS, **more}.items():
                    headers.setdefault(name, value)
            await send(message)

        caller, error = caller_of(scope), None
        try:
            async with limit:
                await self.app(scope, receive, guarded_send)
        except TimeoutError:
            reason = f"no response within {self.patience:g} s; the request may still complete"
            error = GuardError(HTTPStatus.SERVICE_UNAVAILABLE, reason)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if caller is None or not caller.ended.is_set() or (task and task.cancelling()):
                raise  # else it is what was asked for that was ended, not this
        if error is None and caller is not None and caller.ended.is_set():
            error = GuardError(HTTPStatus.UNAUTHORIZED, "the token was revoked during the request")
        if error is not None and not has_begun:
            await self._refuse(error, scope, send)

    async def _refuse(
        self, error: GuardError, scope: Incoming, send: Send, cookie: tuple[str, str] | None = None
    ) -> None:
        status, more = error.status, {}
        if status == HTTPStatus.UNAUTHORIZED:
            more = {"WWW-Authenticate": 'Bearer realm="horae"'}
            if cookie is not None:
                more["Set-Cookie"] = set_cookie(cookie[0], "", age=timedelta())
        if isinstance(error, MissingScopeError):
            told = f'Bearer error="insufficient_scope", scope="{error.needed}"'
            more = {"WWW-Authenticate": told}
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            more = {"Retry-After": f"{SLOWED:.0f}", "Connection": "close"}
        wants_page = any("text/html" in each for each in Headers(scope=scope).getlist("accept"))
        answer: Response
        if status == HTTPStatus.UNAUTHORIZED and wants_page:
            answer = plain_page("locked", status, more)
        else:
            answer = refused(error, scope["path"], status, more)
        await answer(scope, _nothing, send)


def needed_scope(operation: Operation | None, method: str) -> Scope | None:
    if operation is not None:
        return operation.scope
    # What the table does not know is a page, which is only looked at, or nothing at all.
    return Scope.READ if method in _READS else Scope.ADMIN


def _checked(caller: Caller | None, needed: Scope | None, otherwise: str) -> Caller:
    if caller is None:
        raise GuardError(HTTPStatus.UNAUTHORIZED, otherwise)
    if needed is not None and not allows(caller.scopes, needed):
        raise MissingScopeError(caller.actor, caller.scopes, needed)
    return caller


async def _bearer(keys: Keys, headers: Headers) -> Caller | None:
    """Return who has the token of a request; a node of our cluster names the caller."""
    given = headers.getlist("authorization")
    if len(given) != 1 or given[0][:7].lower() != "bearer ":
        return None
    token = given[0][7:].strip()
    if not keys.is_node(token):
        return await keys.bearer(token)
    actors, scopes = headers.getlist(ACTOR), headers.getlist(SCOPES)
    if len(actors) != 1 or len(scopes) != 1:
        return None
    with suppress(ScopeError):  # then the request is refused
        return Caller(unquote(actors[0]), parse_scopes(scopes), asyncio.Event())
    return None


@contextmanager
def _reading() -> Iterator[None]:
    """Say of a ledger that cannot be read that nobody can be known by it."""
    try:
        yield
    except LedgerError:
        reason = "the ledger cannot be read, so the caller cannot be identified; try again"
        raise GuardError(HTTPStatus.SERVICE_UNAVAILABLE, reason) from None


def _until(caller: Caller, receive: Receive) -> Receive:
    """Return a wire whose other end goes away when a token or a session is good no longer."""
    longest = SESSION_LASTS.total_seconds() if caller.session else None

    async def until() -> Message:
        asking = asyncio.ensure_future(receive())
        ending = asyncio.ensure_future(caller.ended.wait())
        try:
            both, first = {asking, ending}, asyncio.FIRST_COMPLETED
            await asyncio.wait(both, return_when=first, timeout=longest)
            return asking.result() if asking.done() else await _nothing()
        finally:
            asking.cancel()
            ending.cancel()

    return until


def _check_origin(method: str, headers: Headers) -> None:
    sites = headers.getlist("sec-fetch-site")
    is_ours = all(each in {"none", "same-origin"} for each in sites)
    is_look = method in _READS and headers.getlist("sec-fetch-mode") == ["navigate"]
    host = headers.getlist("host")[0].lower()
    own = {f"http://{host}", f"https://{host}"}
    is_edit_from_elsewhere = method not in _READS and any(
        origin.lower() not in own for origin in headers.getlist("origin")
    )
    if (not is_ours and not is_look) or is_edit_from_elsewhere:
        raise GuardError(HTTPStatus.FORBIDDEN, "requests from other sites are not allowed")


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


# How a browser gets in and out: a link that is good once, a session, and another token


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
