"""Who may use a running engine: named tokens, as the ledger keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol

from horae.core.explain import stamp
from horae.core.scope import OPERATOR, scope_words
from horae.errors import Exit, HoraeError

if TYPE_CHECKING:
    from datetime import datetime

    from horae.core.scope import Scope

TOUCHED: Final = timedelta(minutes=1)  # a token's last use is written at most so often
ADDED: Final = "token_added"
REVOKED: Final = "token_revoked"  # the event after which nothing is open with a token


class TokenTakenError(HoraeError):
    """A name that another token has."""

    code = "token_taken"
    exit_code = Exit.CONFLICT

    def __init__(self, name: str) -> None:
        self.name = name
        remedy = f"choose another name, or revoke the token with `horae token revoke {name}`"
        super().__init__(f"a token named {name!r} already exists; {remedy}")


class NoTokenError(HoraeError):
    """A name that no token has that could be revoked."""

    code = "no_token"
    exit_code = Exit.NOT_FOUND

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            "the operator's token cannot be revoked; `horae token new` replaces it"
            if name == OPERATOR
            else f"no token is called {name!r}; `horae token list` shows the names"
        )


@dataclass(frozen=True, slots=True)
class Token:
    """A named token; of its text the ledger has only a digest."""

    name: str
    scopes: frozenset[Scope]
    created_at: datetime
    used_at: datetime | None = None

    def data(self) -> dict[str, object]:
        return {
            "name": self.name,
            "scopes": scope_words(self.scopes),
            "created_at": stamp(self.created_at, "UTC"),
            "used_at": stamp(self.used_at, "UTC"),
        }


class Tokens(Protocol):
    """Where named tokens are kept."""

    async def add(self, token: Token, digest: str) -> bool:
        """Keep a new token; False: its name is taken."""
        ...

    async def all(self) -> list[Token]: ...

    async def find(self, digest: str) -> Token | None: ...

    async def revoke(self, name: str, *, now: datetime) -> bool:
        """Forget a token and the sessions that it began; False: there is none of that name."""
        ...

    async def touch(self, name: str, *, now: datetime) -> None:
        """Write down that a token was used, at most once a minute."""
        ...
