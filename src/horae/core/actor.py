"""Actors: the user, token, agent or engine on whose behalf events, receipts and edits are written.

An actor is a short text: `cli:USER`, `token:NAME`, `session:NAME` (the page, logged in with the
token NAME), `agent:NAME` or `engine`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from horae.core.ports import Ledger
    from horae.core.receipt import Filed

ENGINE: Final = "engine"
LONGEST: Final = 120  # characters
_WORDS: Final = {
    "cli": "NAME, on the command line",
    "token": "token NAME",
    "session": "token NAME, from the page",
    "agent": "agent NAME",
}

_ACTOR: ContextVar[str] = ContextVar("actor", default=ENGINE)
current_actor: Final = _ACTOR.get  # the actor on whose behalf the caller acts


@contextmanager
def acting(actor: str) -> Iterator[None]:
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
    return _WORDS.get(kind, "the engine").replace("NAME", name)


def by_words(done: str, note: str = "", *, actor: str | None = None) -> str:
    """Return an act, its actor (by default the caller's) and a note as words.

    >>> with acting("token:ops"):
    ...     by_words("cancelled", "enough")
    'cancelled by token ops: enough'
    """
    actor = current_actor() if actor is None else actor
    said = done if actor == ENGINE else f"{done} by {actor_words(actor)}"
    note = one_line(note)
    return f"{said}: {note}" if note else said


def one_line(note: str) -> str:
    """Return a note without line breaks, so that it cannot pass for a line of our own."""
    return " ".join(note.split())


async def local_actor(ledger: Ledger, *, uid: int, run: str = "") -> str:
    if _is_number(run):
        found = await ledger.run(int(run))
        is_on = found is not None and found.ended_at is None
        filed = await ledger.receipt(found.receipt) if found is not None and is_on else None
        if filed is not None:
            return run_actor(filed)
    return f"cli:{user_name(uid)}"


def run_actor(filed: Filed) -> str:
    return f"agent:{filed.agents[0] if len(filed.agents) == 1 else filed.title}"[:LONGEST]


async def own_actor(ledger: Ledger, data: Path) -> str:
    return await local_actor(ledger, uid=os.getuid(), run=own_run(data))


def own_run(data: Path) -> str:
    theirs, run = os.environ.get("HORAE_DATA", ""), os.environ.get("HORAE_RUN", "")
    is_ours = bool(theirs) and os.path.realpath(theirs) == os.path.realpath(data)
    return run if is_ours and _is_number(run) else ""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


def user_name(uid: int) -> str:
    from pwd import getpwuid

    try:
        return getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
