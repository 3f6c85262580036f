"""What a token allows: a set of four scopes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Final

from horae.errors import Exit, HoraeError

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
    """Tell whether scopes contain another one; only `admin` contains others.

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
