"""Who requested what is being done: recorded in events, receipts and edits.

An actor is a short text: `cli:USER`, `token:NAME`, `session:NAME` (the page, logged in with the
token NAME), `agent:NAME` or `engine`. Where a request comes in, its handler runs inside `acting`;
what is written meanwhile carries that actor. Everything else is done by the engine itself.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ENGINE: Final = "engine"
LONGEST: Final = 120  # characters

_ACTOR: ContextVar[str] = ContextVar("actor", default=ENGINE)


def current_actor() -> str:
    """Return the actor on whose behalf the caller acts."""
    return _ACTOR.get()


@contextmanager
def acting(actor: str) -> Iterator[None]:
    """Record *actor* with everything that is written inside the block."""
    token = _ACTOR.set(actor[:LONGEST])
    try:
        yield
    finally:
        _ACTOR.reset(token)


def actor_words(actor: str) -> str:
    """Return an actor as people read it.

    >>> actor_words("session:ops"), actor_words("cli:ada"), actor_words("agent:triage")
    ('token ops, from the page', 'ada, on the command line', 'agent triage')
    """
    kind, _, name = actor.partition(":")
    match kind:
        case "cli":
            return f"{name}, on the command line"
        case "token":
            return f"token {name}"
        case "session":
            return f"token {name}, from the page"
        case "agent":
            return f"agent {name}"
        case _:
            return "the engine"
