"""Named tokens in the ledger's own tables, the same on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final

from horae.core.access import ADDED, REVOKED, TOUCHED, Token
from horae.core.scope import parse_scopes, scope_words
from horae.store.codec import micros, moment, plain
from horae.store.ledger import ANYBODY
from horae.store.sql import theme

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from horae.store.book import Book
    from horae.store.ledger import BookLedger

_SQL: Final = theme("access")


class BookTokens:
    def __init__(self, ledger: BookLedger) -> None:
        self._ledger = ledger

    async def add(self, token: Token, digest: str) -> bool:
        words = " ".join(scope_words(token.scopes))
        values = {
            "name": token.name,
            "digest": digest,
            "scopes": words,
            "now": micros(token.created_at),
        }

        def put(book: Book) -> bool:
            is_new = book.execute(_SQL["add_token"], values).rowcount > 0
            if is_new:
                facts = {"token": token.name, "scopes": words}
                book.tell(ADDED, now=token.created_at, facts=facts)
            return is_new

        return await self._ledger.write(ANYBODY, put)

    async def all(self) -> list[Token]:
        return await self._ledger.read(
            lambda book: [_token(row) for row in book.execute(_SQL["tokens"])]
        )

    async def find(self, digest: str) -> Token | None:
        def look(book: Book) -> Token | None:
            row = book.execute(_SQL["token"], {"digest": digest}).fetchone()
            return None if row is None else _token(row)

        return await self._ledger.read(look)

    async def revoke(self, name: str, *, now: datetime) -> bool:
        """Forget a token and the sessions that it began; False: there is none of that name."""
        values = {"name": plain(name)}

        def drop(book: Book) -> bool:
            if not book.execute(_SQL["revoke_token"], values).rowcount:
                return False
            book.execute(_SQL["end_sessions"], values)
            book.tell(REVOKED, now=now, facts={"token": name})
            return True

        return await self._ledger.write(ANYBODY, drop)

    async def touch(self, name: str, *, now: datetime) -> None:
        values = {"name": name, "now": micros(now), "before": micros(now - TOUCHED)}
        await self._ledger.write(ANYBODY, lambda book: book.execute(_SQL["touch_token"], values))


def digests_in(path: Path) -> list[str] | None:
    """Return the digests of the tokens of a ledger; None: it cannot be read."""
    with suppress(sqlite3.Error):  # the caller gets None
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            return [str(row[0]) for row in connection.execute(_SQL["digests"])]
    return None


def restore_access(book: Book, digests: list[str] | None) -> None:
    """Let no session of a restored ledger go on, and no token that is not among these digests."""
    book.execute(_SQL["end_all_sessions"])
    if digests is not None:
        book.execute(_SQL["keep_tokens"], {"digests": json.dumps(digests)})


def _token(row: sqlite3.Row) -> Token:
    return Token(
        row["name"],
        parse_scopes(row["scopes"].split()),
        moment(int(row["created_at"])),
        moment(row["used_at"]),
    )
