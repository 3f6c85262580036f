"""The service of triggers for commands: through the engine that runs, else in process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cached_property, wraps
from inspect import signature
from pathlib import Path
from typing import Any

from horae.cli import client, output
from horae.cli.connection import CommandClock, Place, T, ask, write_with
from horae.config import secrets_of
from horae.context import Context, find_agents
from horae.sources.triggers.service import VERBS, Triggers
from horae.store.ledger import ANYBODY, SqlLedger


class TriggerAccess:
    def __init__(self, *, root: str, data: str | None) -> None:
        self.root = root
        self.place = Place.of(root=root, data=data)

    def read(self, work: Callable[[Triggers], Awaitable[T]]) -> T:
        return self._ask(lambda ledger: work(Triggers(**self._parts(ledger, may_call=False))))

    def write(self, work: Callable[[Triggers], Awaitable[T]]) -> T:
        is_alone = False

        def through(far: client.Far) -> T:
            return self._ask(lambda ledger: work(RemoteTriggers(far, **self._parts(ledger))))

        async def alone(ledger: SqlLedger) -> T:
            nonlocal is_alone
            is_alone = self.place.store is None
            return await work(Triggers(**self._parts(ledger)))

        done = write_with(self.place, through, alone)
        if is_alone:
            stored = f"what is stored in {self.place.directory} takes effect after `horae up`"
            output.echo(f"no engine is running; {stored}", err=True)
        return done

    def _ask(self, work: Callable[[SqlLedger], Awaitable[T]]) -> T:
        return ask(self.place, work, or_empty=True)

    def _parts(self, ledger: SqlLedger, *, may_call: bool = True) -> dict[str, Any]:
        # In a shared ledger a command may write in any term.
        term = 1 if self.place.store is None else ANYBODY
        context = Context(
            self.place.config, Path(self.root).absolute(), CommandClock(), ledger, term
        )
        secrets = secrets_of(self.place.config, may_call=may_call)
        return context.trigger_parts(others=lambda: self._names, secrets=secrets)

    @cached_property
    def _names(self) -> frozenset[str]:
        found = find_agents(self.place.config, say=output.Output(output.Form.TABLE).say)
        return frozenset(each.name for each in found.registry)


class RemoteTriggers(Triggers):
    """Triggers beside a running engine: read here, changed there."""

    def __init__(self, far: client.Far, **parts: Any) -> None:
        super().__init__(**parts)
        self.far = far


def _remote(method: str) -> Callable[..., Awaitable[dict[str, Any]]]:
    local = getattr(Triggers, method)

    @wraps(local)
    async def call(self: RemoteTriggers, *args: Any, **named: Any) -> dict[str, Any]:
        given = signature(local).bind(self, *args, **named)
        given.apply_defaults()
        del given.arguments["self"]
        said: dict[str, Any] = self.far.post("triggers", method, body=given.arguments)
        return said

    return call


for _method in VERBS:
    setattr(RemoteTriggers, _method, _remote(_method))
