"""Browsers that are logged in, as the ledger keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol

from horae.core.explain import stamp
from horae.core.scope import scope_words
from horae.errors import Exit, HoraeError

if TYPE_CHECKING:
    from datetime import datetime

    from horae.core.scope import Scope

LASTS: Final = timedelta(hours=12)  # since its last use
RENEWED: Final = timedelta(minutes=1)  # a use is written at most so often
ALL: Final = "all"  # in place of an id
MOST: Final = 100  # at the same time; the ones not used for longest end
BEGUN: Final = "session_begun"
ENDED: Final = "session_ended"  # the event after which nothing is open in a session


class NoSessionError(HoraeError):
    """A session that is not there."""

    code = "session_not_found"
    exit_code = Exit.NOT_FOUND

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(f"there is no session {session!r}; `horae token sessions` lists them")


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that is logged in; of its cookie the ledger has only a digest."""

    id: str  # how that digest begins
    token: str  # the name of the token that it was begun with
    scopes: frozenset[Scope]
    created_at: datetime
    used_at: datetime
    expires_at: datetime
    agent: str  # what the browser calls itself

    def data(self) -> dict[str, object]:
        return {
            "id": self.id,
            "token": self.token,
            "scopes": scope_words(self.scopes),
            "created_at": stamp(self.created_at, "UTC"),
            "used_at": stamp(self.used_at, "UTC"),
            "expires_at": stamp(self.expires_at, "UTC"),
            "agent": self.agent,
        }


class Sessions(Protocol):
    """Where sessions are kept."""

    async def begin(self, digest: str, *, token: str, agent: str, now: datetime) -> bool:
        """Keep a new session; False: there is no such token."""
        ...

    async def find(self, digest: str, *, now: datetime) -> Session | None:
        """Return the session that has a digest, if it still lasts and its token does, too."""
        ...

    async def renew(self, digest: str, *, now: datetime) -> None:
        """Let a session last from now on, at most once a minute."""
        ...

    async def all(self, *, now: datetime) -> list[Session]:
        """Return every session that lasts, the last used one first."""
        ...

    async def end(self, session: str | None, *, now: datetime) -> list[Session]:
        """End the session of an id, or all of them; return those that are ended."""
        ...


async def end_sessions(sessions: Sessions, which: str, *, now: datetime) -> list[Session]:
    """End the session of an id, or all of them; raise an error if there is none of that id."""
    ended = await sessions.end(None if which == ALL else which, now=now)
    if not ended and which != ALL:
        raise NoSessionError(which)
    return ended
