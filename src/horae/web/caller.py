"""Who sends a request, as the guard has found out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

    from starlette.types import Scope as Asked

    from horae.core.scope import Scope

_CALLER: Final = "horae.caller"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request, what they may do, and an event that is set when they no longer may."""

    actor: str  # as in `horae.core.actor`
    scopes: frozenset[Scope]
    ended: asyncio.Event
    session: str = ""  # its id, if they sent a cookie
    is_renewed: bool = False  # whether that session lasts longer from now on


def with_caller(asked: Asked, caller: Caller) -> Asked:
    """Return a request that tells the application who sends it."""
    return {**asked, _CALLER: caller}


def caller_of(asked: Asked) -> Caller | None:
    """Return who sends a request; None: the route needs no token."""
    found: Caller | None = asked.get(_CALLER)
    return found
