"""Access to a running engine: named tokens, sessions of browsers, and tokens of runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from secrets import token_urlsafe
from typing import Final

from msgspec import Struct

from horae.core.actor import OPERATOR, Scope, in_order, parse_scopes, scope_words
from horae.core.ports import ANYBODY, LedgerRow, LedgerTransaction, SourceLedger, moment, plain
from horae.core.views import Shape, Time
from horae.errors import Exit, HoraeError

TOUCHED: Final = timedelta(minutes=1)  # a token's last use is written at most so often
ADDED: Final = "token_added"
REVOKED: Final = "token_revoked"  # the event after which nothing is open with a token
SESSION_LASTS: Final = timedelta(hours=12)  # since its last use
SESSION_RENEWED: Final = timedelta(minutes=1)  # a use is written at most so often
ALL_SESSIONS: Final = "all"  # in place of an id
MOST_SESSIONS: Final = 100  # at the same time; the ones not used for longest end
SESSION_BEGUN: Final = "session_begun"
_LONGEST_AGENT: Final = 200  # characters of what a browser calls itself
SESSION_ENDED: Final = "session_ended"  # the event after which nothing is open in a session


class Token(Struct, frozen=True):
    """A named token; the ledger stores only a digest of its text."""

    name: str
    scopes: tuple[Scope, ...]
    created_at: Time
    used_at: Time | None = None


class NewToken(Token, frozen=True, kw_only=True):
    token: str  # the text, which is stored nowhere


class TokenPage(Shape, frozen=True):
    tokens: list[Token]


class RevokedToken(Shape, frozen=True):
    revoked: str


class TokenRotation(Shape, frozen=True):
    rotated: bool


class LoginLink(Shape, frozen=True):
    url: str


class Tokens:
    def __init__(self, ledger: SourceLedger) -> None:
        self._ledger = ledger

    async def add(self, token: Token, digest: str) -> bool:
        now, scopes = token.created_at, " ".join(scope_words(token.scopes))

        def put(tx: LedgerTransaction) -> bool:
            values = {"name": token.name, "digest": digest, "scopes": scopes, "now": now}
            if not tx.change("access.add_token", **values):
                return False
            tx.tell(ADDED, now=now, facts={"token": token.name, "scopes": scopes})
            return True

        return await self._ledger.write(ANYBODY, put)

    async def all(self) -> list[Token]:
        return await self._ledger.read(lambda tx: tx.every(_token, "access.tokens"))

    async def find(self, digest: str) -> Token | None:
        return await self._ledger.read(lambda tx: tx.one(_token, "access.token", digest=digest))

    async def revoke(self, name: str, *, now: datetime) -> bool:
        """Delete a token and the sessions begun with it; False if no token has that name."""

        def drop(tx: LedgerTransaction) -> bool:
            if not tx.change("access.revoke_token", name=plain(name)):
                return False
            tx.change("access.end_sessions", name=plain(name))
            tx.tell(REVOKED, now=now, facts={"token": name})
            return True

        return await self._ledger.write(ANYBODY, drop)

    async def touch(self, name: str, *, now: datetime) -> None:
        values = {"name": name, "now": now, "before": now - TOUCHED}
        await self._ledger.write(ANYBODY, lambda tx: tx.change("access.touch_token", **values))


class Session(Struct, frozen=True):
    """A browser session; the ledger stores only a digest of its cookie."""

    id: str  # the beginning of that digest
    token: str  # the name of the token that began it
    scopes: tuple[Scope, ...]
    created_at: Time
    used_at: Time
    expires_at: Time
    agent: str  # the browser's User-Agent


class SessionPage(Shape, frozen=True):
    sessions: list[Session]


class EndedSessions(Shape, frozen=True):
    ended: list[str]


class Sessions:
    def __init__(self, ledger: SourceLedger) -> None:
        self._ledger = ledger

    async def begin(self, digest: str, *, token: str, agent: str, now: datetime) -> bool:
        values = {
            "digest": digest,
            "token": token,
            "now": now,
            "until": now + SESSION_LASTS,
            "agent": plain(agent[:_LONGEST_AGENT]),
        }

        def put(tx: LedgerTransaction) -> bool:
            tx.change("session.make_room", now=now, most=MOST_SESSIONS - 1)
            if not tx.change("session.begin", **values):
                return False
            facts = {"session": _id(digest), "token": token}
            tx.tell(SESSION_BEGUN, now=now, facts=facts)
            return True

        return await self._ledger.write(ANYBODY, put)

    async def find(self, digest: str, *, now: datetime) -> Session | None:
        """Return the session of a cookie's digest, if neither it nor its token has expired."""
        return await self._ledger.read(
            lambda tx: tx.one(_session, "session.one", digest=digest, now=now)
        )

    async def renew(self, digest: str, *, now: datetime) -> None:
        times = {"before": now - SESSION_RENEWED, "until": now + SESSION_LASTS}
        await self._ledger.write(
            ANYBODY, lambda tx: tx.change("session.renew", digest=digest, now=now, **times)
        )

    async def all(self, *, now: datetime) -> list[Session]:
        return await self._ledger.read(lambda tx: tx.every(_session, "session.all", now=now))

    async def end(self, session: str | None, *, now: datetime) -> list[Session]:
        def drop(tx: LedgerTransaction) -> list[Session]:
            found = tx.every(_session, "session.all", now=now)
            ended = [each for each in found if session in {None, each.id}]
            for each in ended:
                tx.change("session.end", id=each.id)
                facts = {"session": each.id, "token": each.token}
                tx.tell(SESSION_ENDED, now=now, facts=facts)
            return ended

        return await self._ledger.write(ANYBODY, drop)


async def end_sessions(sessions: Sessions, which: str, *, now: datetime) -> list[Session]:
    ended = await sessions.end(None if which == ALL_SESSIONS else which, now=now)
    if not ended and which != ALL_SESSIONS:
        words = f"there is no session {which!r}; `horae token sessions` lists them"
        raise HoraeError(words, code="session_not_found", exit_code=Exit.NOT_FOUND, session=which)
    return ended


@dataclass(frozen=True, slots=True)
class RunToken:
    actor: str
    scopes: frozenset[Scope]
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class RunTokens:
    def __init__(self) -> None:
        self.is_served = False  # whether a server accepts these tokens
        self.url = ""  # of that server, if it listens on a port
        self._tokens: dict[str, RunToken] = {}  # by digest: a lookup's timing reveals no token
        self.runs: dict[int, str] = {}  # the digest of each run's token

    def begin(self, run: int, *, actor: str, scopes: Iterable[str]) -> str:
        self.end(run)
        token = f"run_{token_urlsafe(32)}"
        self.adopt(run, token_digest(token), actor=actor, scopes=scopes)
        return token

    def adopt(self, run: int, digest: str, *, actor: str, scopes: Iterable[str]) -> None:
        self.runs[run] = digest
        self._tokens[digest] = RunToken(actor, frozenset(map(Scope, scopes)))

    def of_run(self, run: int) -> tuple[str, RunToken] | None:
        digest = self.runs.get(run)
        return None if digest is None else (digest, self._tokens[digest])

    def find(self, token: str) -> RunToken | None:
        return self._tokens.get(token_digest(token))

    def end(self, run: int) -> None:
        digest = self.runs.pop(run, None)
        if digest is not None:
            self._tokens.pop(digest).ended.set()


def token_digest(token: str) -> str:
    # Without salt or many rounds: those protect what people choose, and this is random.
    return sha256(token.encode(errors="replace")).hexdigest()


def _token(row: LedgerRow) -> Token:
    scopes = in_order(parse_scopes(row["scopes"].split()))
    return Token(row["name"], scopes, moment(int(row["created_at"])), moment(row["used_at"]))


def _id(digest: str) -> str:
    return digest[:12]


def _session(row: LedgerRow) -> Session:
    is_operator = row["token"] == OPERATOR
    return Session(
        _id(row["digest"]),
        row["token"],
        (Scope.ADMIN,) if is_operator else in_order(parse_scopes(row["scopes"].split())),
        moment(int(row["created_at"])),
        moment(int(row["used_at"])),
        moment(int(row["expires_at"])),
        row["agent"],
    )
