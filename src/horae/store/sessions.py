"""Browsers that are logged in, in the ledger's own table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from horae.core.access import (
    MOST_SESSIONS,
    SESSION_BEGUN,
    SESSION_ENDED,
    SESSION_LASTS,
    SESSION_RENEWED,
    Session,
)
from horae.core.scope import OPERATOR, Scope, parse_scopes
from horae.store.codec import micros, moment, plain
from horae.store.ledger import ANYBODY
from horae.store.sql import theme

if TYPE_CHECKING:
    import sqlite3
    from datetime import datetime

    from horae.store.book import Book
    from horae.store.ledger import BookLedger

_SQL: Final = theme("session")
_AGENT: Final = 200  # characters of what a browser calls itself


class BookSessions:
    def __init__(self, ledger: BookLedger) -> None:
        self._ledger = ledger

    async def begin(self, digest: str, *, token: str, agent: str, now: datetime) -> bool:
        values = {
            "digest": digest,
            "token": token,
            "now": micros(now),
            "until": micros(now + SESSION_LASTS),
            "agent": plain(agent[:_AGENT]),
        }

        def put(book: Book) -> bool:
            book.execute(_SQL["make_room"], {"now": micros(now), "most": MOST_SESSIONS - 1})
            is_begun = book.execute(_SQL["begin"], values).rowcount > 0
            if is_begun:
                book.tell(SESSION_BEGUN, now=now, facts={"session": _id(digest), "token": token})
            return is_begun

        return await self._ledger.write(ANYBODY, put)

    async def find(self, digest: str, *, now: datetime) -> Session | None:
        """Return the session that has a digest, if it still lasts and its token does, too."""
        values = {"digest": digest, "now": micros(now)}

        def look(book: Book) -> Session | None:
            row = book.execute(_SQL["one"], values).fetchone()
            return None if row is None else _session(row)

        return await self._ledger.read(look)

    async def renew(self, digest: str, *, now: datetime) -> None:
        values = {
            "digest": digest,
            "now": micros(now),
            "before": micros(now - SESSION_RENEWED),
            "until": micros(now + SESSION_LASTS),
        }
        await self._ledger.write(ANYBODY, lambda book: book.execute(_SQL["renew"], values))

    async def all(self, *, now: datetime) -> list[Session]:
        """Return every session that lasts, the last used one first."""
        values = {"now": micros(now)}
        return await self._ledger.read(
            lambda book: [_session(row) for row in book.execute(_SQL["all"], values)]
        )

    async def end(self, session: str | None, *, now: datetime) -> list[Session]:
        """End the session of an id, or all of them; return those that are ended."""

        def drop(book: Book) -> list[Session]:
            rows = book.execute(_SQL["all"], {"now": micros(now)}).fetchall()
            ended = [each for each in map(_session, rows) if session in {None, each.id}]
            for each in ended:
                book.execute(_SQL["end"], {"id": each.id})
                book.tell(SESSION_ENDED, now=now, facts={"session": each.id, "token": each.token})
            return ended

        return await self._ledger.write(ANYBODY, drop)


def _id(digest: str) -> str:
    return digest[:12]


def _session(row: sqlite3.Row) -> Session:
    is_operator = row["token"] == OPERATOR
    return Session(
        _id(row["digest"]),
        row["token"],
        frozenset({Scope.ADMIN}) if is_operator else parse_scopes(row["scopes"].split()),
        moment(int(row["created_at"])),
        moment(int(row["used_at"])),
        moment(int(row["expires_at"])),
        row["agent"],
    )
