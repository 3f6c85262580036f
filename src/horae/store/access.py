"""Named tokens, and browsers that are logged in, in the ledger's own tables."""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from horae.core import access
from horae.core.access import Session, Token
from horae.core.ports import moment, plain
from horae.core.scope import OPERATOR, Scope, in_order, parse_scopes, scope_words
from horae.store.database import looking_into
from horae.store.ledger import ANYBODY
from horae.store.sql import theme

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from horae.store.ledger import SqlLedger, Transaction

_RESTORE: Final = theme("restore")
_AGENT: Final = 200  # characters of what a browser calls itself


class BookTokens:
    def __init__(self, ledger: SqlLedger) -> None:
        self._ledger = ledger

    async def add(self, token: Token, digest: str) -> bool:
        now, scopes = token.created_at, " ".join(scope_words(token.scopes))

        def put(tx: Transaction) -> bool:
            values = {"name": token.name, "digest": digest, "scopes": scopes, "now": now}
            if not tx.change("access.add_token", **values):
                return False
            tx.tell(access.ADDED, now=now, facts={"token": token.name, "scopes": scopes})
            return True

        return await self._ledger.write(ANYBODY, put)

    async def all(self) -> list[Token]:
        return await self._ledger.read(lambda tx: tx.every(_token, "access.tokens"))

    async def find(self, digest: str) -> Token | None:
        return await self._ledger.read(lambda tx: tx.one(_token, "access.token", digest=digest))

    async def revoke(self, name: str, *, now: datetime) -> bool:
        """Forget a token and the sessions that it began; False: there is none of that name."""

        def drop(tx: Transaction) -> bool:
            if not tx.change("access.revoke_token", name=plain(name)):
                return False
            tx.change("access.end_sessions", name=plain(name))
            tx.tell(access.REVOKED, now=now, facts={"token": name})
            return True

        return await self._ledger.write(ANYBODY, drop)

    async def touch(self, name: str, *, now: datetime) -> None:
        values = {"name": name, "now": now, "before": now - access.TOUCHED}
        await self._ledger.write(ANYBODY, lambda tx: tx.change("access.touch_token", **values))


class BookSessions:
    def __init__(self, ledger: SqlLedger) -> None:
        self._ledger = ledger

    async def begin(self, digest: str, *, token: str, agent: str, now: datetime) -> bool:
        values = {
            "digest": digest,
            "token": token,
            "now": now,
            "until": now + access.SESSION_LASTS,
            "agent": plain(agent[:_AGENT]),
        }

        def put(tx: Transaction) -> bool:
            tx.change("session.make_room", now=now, most=access.MOST_SESSIONS - 1)
            if not tx.change("session.begin", **values):
                return False
            facts = {"session": _id(digest), "token": token}
            tx.tell(access.SESSION_BEGUN, now=now, facts=facts)
            return True

        return await self._ledger.write(ANYBODY, put)

    async def find(self, digest: str, *, now: datetime) -> Session | None:
        """Return the session that has a digest, if it still lasts and its token does, too."""
        return await self._ledger.read(
            lambda tx: tx.one(_session, "session.one", digest=digest, now=now)
        )

    async def renew(self, digest: str, *, now: datetime) -> None:
        times = {"before": now - access.SESSION_RENEWED, "until": now + access.SESSION_LASTS}
        await self._ledger.write(
            ANYBODY, lambda tx: tx.change("session.renew", digest=digest, now=now, **times)
        )

    async def all(self, *, now: datetime) -> list[Session]:
        return await self._ledger.read(lambda tx: tx.every(_session, "session.all", now=now))

    async def end(self, session: str | None, *, now: datetime) -> list[Session]:
        """End the session of an id, or all of them; return those that are ended."""

        def drop(tx: Transaction) -> list[Session]:
            found = tx.every(_session, "session.all", now=now)
            ended = [each for each in found if session in {None, each.id}]
            for each in ended:
                tx.change("session.end", id=each.id)
                facts = {"session": each.id, "token": each.token}
                tx.tell(access.SESSION_ENDED, now=now, facts=facts)
            return ended

        return await self._ledger.write(ANYBODY, drop)


def digests_in(path: Path) -> list[str] | None:
    """Return the digests of the tokens of a ledger; None: it cannot be read."""
    with suppress(sqlite3.Error), looking_into(path) as connection:  # the caller gets None
        return [str(row[0]) for row in connection.execute(_RESTORE["digests"])]
    return None


def restore_access(tx: Transaction, digests: list[str] | None) -> None:
    """Let no session of a restored ledger go on, and no token that is not among these digests."""
    tx.change("access.end_all_sessions")
    if digests is not None:
        tx.execute(_RESTORE["keep_tokens"], {"digests": json.dumps(digests)})


def _token(row: sqlite3.Row) -> Token:
    scopes = in_order(parse_scopes(row["scopes"].split()))
    return Token(row["name"], scopes, moment(int(row["created_at"])), moment(row["used_at"]))


def _id(digest: str) -> str:
    return digest[:12]


def _session(row: sqlite3.Row) -> Session:
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
