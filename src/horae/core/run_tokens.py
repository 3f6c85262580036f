"""Tokens of runs that ask for one: each is valid while its run goes on, and kept nowhere else."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from hashlib import sha256
from secrets import token_urlsafe
from typing import TYPE_CHECKING

from horae.core.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class RunToken:
    """What a run may ask the engine for, and what is set when the run is over."""

    actor: str
    scopes: frozenset[Scope]
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class RunTokens:
    """The tokens of the runs that this engine makes."""

    def __init__(self) -> None:
        self.is_served = False  # whether anybody answers to them
        self.url = ""  # where, if that is a port
        self._tokens: dict[str, RunToken] = {}  # by digest: a search tells nothing of the token
        self._runs: dict[int, str] = {}

    def begin(self, run: int, *, actor: str, scopes: Iterable[str]) -> str:
        self.end(run)
        token = f"run_{token_urlsafe(32)}"
        self._runs[run] = digest = _digest(token)
        self._tokens[digest] = RunToken(actor, frozenset(map(Scope, scopes)))
        return token

    def find(self, token: str) -> RunToken | None:
        """Return whose token this is; None: of no run that goes on."""
        return self._tokens.get(_digest(token))

    def has(self, run: int) -> bool:
        return run in self._runs

    def end(self, run: int) -> None:
        """Let the token of a run be good no longer."""
        digest = self._runs.pop(run, None)
        if digest is not None:
            self._tokens.pop(digest).ended.set()


def _digest(token: str) -> str:
    return sha256(token.encode(errors="replace")).hexdigest()
