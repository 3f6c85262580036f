"""Actors: the user, token, agent or engine on whose behalf events, receipts and edits are written.

An actor is a short text: `cli:USER`, `token:NAME`, `session:NAME` (the page, logged in with the
token NAME), `agent:NAME` or `engine`. A token allows a set of four scopes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from horae.errors import Exit, HoraeError

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
    """Return an actor in words.

    >>> actor_words("session:ops"), actor_words("cli:ada"), actor_words("agent:triage")
    ('token ops, from the page', 'ada, on the command line', 'agent triage')
    """
    kind, _, name = actor.partition(":")
    return _WORDS.get(kind, "the engine").replace("NAME", name)


def by_words(done: str, note: str = "", *, actor: str | None = None) -> str:
    """Return what was done, by whom (by default the current actor) and a note, in words.

    >>> with acting("token:ops"):
    ...     by_words("cancelled", "enough")
    'cancelled by token ops: enough'
    """
    actor = current_actor() if actor is None else actor
    said = done if actor == ENGINE else f"{done} by {actor_words(actor)}"
    note = one_line(note)
    return f"{said}: {note}" if note else said


def one_line(note: str) -> str:
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


OPERATOR: Final = "operator"  # the token in the data directory, which may do everything

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


class Scope(StrEnum):
    READ = "read"  # look at everything
    RUN = "run"  # run, tick, cancel, retry, pause, resume, backfill, approve, reject, claim
    EDIT = "edit"  # change tasks, triggers, agents, definitions and files
    ADMIN = "admin"  # all of these, and tokens, sessions, prune and settings


class ScopeError(HoraeError, code="token_scope", exit_code=Exit.USAGE):
    def __init__(self, word: str) -> None:
        self.word = word
        what = f"there is no scope {word!r}" if word else "a token needs at least one scope"
        super().__init__(f"{what}; the scopes are {', '.join(Scope)}")


def allows(scopes: Collection[Scope], needed: Scope) -> bool:
    """Return whether scopes include another; only `admin` includes others.

    >>> allows({Scope.ADMIN}, Scope.READ), allows({Scope.RUN, Scope.EDIT}, Scope.READ)
    (True, False)
    """
    return needed in scopes or Scope.ADMIN in scopes


def parse_scopes(words: Iterable[str]) -> frozenset[Scope]:
    """Return the scopes that words name; one word may name several, divided by commas.

    >>> sorted(parse_scopes(["read,run", "read"]))
    [<Scope.READ: 'read'>, <Scope.RUN: 'run'>]
    """
    named = [part.strip() for word in words for part in word.split(",")]
    wrong = [each for each in named if each not in {*Scope}]
    if wrong or not named:
        raise ScopeError(wrong[0] if wrong else "")
    return frozenset(map(Scope, named))


def api_scopes(text: str) -> tuple[str, ...]:
    words = text.replace(",", " ").split()
    if not words or not {*words} <= {*Scope} - {Scope.ADMIN}:
        raise ValueError(text)
    return tuple(each.value for each in Scope if each in words)


API_FIX: Final = "write one or more of read, run and edit; a run cannot have admin"


def in_order(scopes: Collection[Scope]) -> tuple[Scope, ...]:
    return tuple(each for each in Scope if each in scopes)


def scope_words(scopes: Collection[Scope]) -> list[str]:
    return [each.value for each in in_order(scopes)]


def check_token_name(name: str) -> str:
    if name == OPERATOR or not _NAME.fullmatch(name):
        reason = "use at most 64 letters, digits, dots, hyphens and underscores"
        reason += ", and begin with a letter or digit"
        if name == OPERATOR:
            reason = "the name is reserved for the token in the data directory"
        words = f"a token cannot be called {name!r}: {reason}"
        raise HoraeError(words, code="token_name", exit_code=Exit.USAGE, name=name)
    return name
