"""Who may use a running engine: named tokens, sessions, and the tokens of runs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from horae.core.scope import OPERATOR, Scope
from horae.core.views import Shape, Time
from horae.errors import Exit, HoraeError

if TYPE_CHECKING:
    from collections.abc import Iterable

TOUCHED: Final = timedelta(minutes=1)  # a token's last use is written at most so often
ADDED: Final = "token_added"
REVOKED: Final = "token_revoked"  # the event after which nothing is open with a token
SESSION_LASTS: Final = timedelta(hours=12)  # since its last use
SESSION_RENEWED: Final = timedelta(minutes=1)  # a use is written at most so often
ALL_SESSIONS: Final = "all"  # in place of an id
MOST_SESSIONS: Final = 100  # at the same time; the ones not used for longest end
SESSION_BEGUN: Final = "session_begun"
SESSION_ENDED: Final = "session_ended"  # the event after which nothing is open in a session


class TokenTakenError(HoraeError, code="token_taken", exit_code=Exit.CONFLICT):
    def __init__(self, name: str) -> None:
        self.name = name
        remedy = f"choose another name, or revoke the token with `horae token revoke {name}`"
        super().__init__(f"a token named {name!r} already exists; {remedy}")


class NoTokenError(HoraeError, code="no_token", exit_code=Exit.NOT_FOUND):
    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            "the operator's token cannot be revoked; `horae token new` replaces it"
            if name == OPERATOR
            else f"no token is called {name!r}; `horae token list` shows the names"
        )


class Token(Struct, frozen=True):
    """A named token; of its text the ledger has only a digest."""

    name: str
    scopes: tuple[Scope, ...]
    created_at: Time
    used_at: Time | None = None


class NewToken(Token, frozen=True, kw_only=True):
    token: str  # its text, which is kept nowhere


class TokenPage(Shape, frozen=True):
    tokens: list[Token]


class RevokedToken(Shape, frozen=True):
    revoked: str


class TokenRotation(Shape, frozen=True):
    rotated: bool


class LoginLink(Shape, frozen=True):
    url: str


class Tokens(Protocol):
    async def add(self, token: Token, digest: str) -> bool: ...
    async def all(self) -> list[Token]: ...
    async def find(self, digest: str) -> Token | None: ...
    async def revoke(self, name: str, *, now: datetime) -> bool: ...
    async def touch(self, name: str, *, now: datetime) -> None: ...


class NoSessionError(HoraeError, code="session_not_found", exit_code=Exit.NOT_FOUND):
    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(f"there is no session {session!r}; `horae token sessions` lists them")


class Session(Struct, frozen=True):
    """A browser that is logged in; of its cookie the ledger has only a digest."""

    id: str  # how that digest begins
    token: str  # the name of the token that it was begun with
    scopes: tuple[Scope, ...]
    created_at: Time
    used_at: Time
    expires_at: Time
    agent: str  # what the browser calls itself


class SessionPage(Shape, frozen=True):
    sessions: list[Session]


class EndedSessions(Shape, frozen=True):
    ended: list[str]


class Sessions(Protocol):
    async def begin(self, digest: str, *, token: str, agent: str, now: datetime) -> bool: ...
    async def find(self, digest: str, *, now: datetime) -> Session | None: ...
    async def renew(self, digest: str, *, now: datetime) -> None: ...
    async def all(self, *, now: datetime) -> list[Session]: ...
    async def end(self, session: str | None, *, now: datetime) -> list[Session]: ...


async def end_sessions(sessions: Sessions, which: str, *, now: datetime) -> list[Session]:
    ended = await sessions.end(None if which == ALL_SESSIONS else which, now=now)
    if not ended and which != ALL_SESSIONS:
        raise NoSessionError(which)
    return ended


@dataclass(frozen=True, slots=True)
class RunToken:
    """What a run may ask the engine for, and what is set when the run is over."""

    actor: str
    scopes: frozenset[Scope]
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class RunTokens:
    def __init__(self) -> None:
        self.is_served = False  # whether anybody answers to them
        self.url = ""  # where, if that is a port
        self._tokens: dict[str, RunToken] = {}  # by digest: a search tells nothing of the token
        self.runs: dict[int, str] = {}  # which digest is of which run

    def begin(self, run: int, *, actor: str, scopes: Iterable[str]) -> str:
        self.end(run)
        token = f"run_{token_urlsafe(32)}"
        self.adopt(run, _token_digest(token), actor=actor, scopes=scopes)
        return token

    def adopt(self, run: int, digest: str, *, actor: str, scopes: Iterable[str]) -> None:
        self.runs[run] = digest
        self._tokens[digest] = RunToken(actor, frozenset(map(Scope, scopes)))

    def of_run(self, run: int) -> tuple[str, RunToken] | None:
        digest = self.runs.get(run)
        return None if digest is None else (digest, self._tokens[digest])

    def find(self, token: str) -> RunToken | None:
        return self._tokens.get(_token_digest(token))

    def end(self, run: int) -> None:
        digest = self.runs.pop(run, None)
        if digest is not None:
            self._tokens.pop(digest).ended.set()


def _token_digest(token: str) -> str:
    return sha256(token.encode(errors="replace")).hexdigest()
