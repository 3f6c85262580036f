"""The service of triggers for commands: through the engine that runs, else in process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from horae.cli.client import Far
from horae.cli.connection import CommandClock, Place, opened, reader_of, write_with
from horae.cli.output import Form, Output, echo
from horae.config import secrets_of
from horae.context import Context, find_agents
from horae.sources.triggers.service import EDITS, RUNS, Triggers
from horae.store.ledger import ANYBODY, BookLedger
from horae.store.sqlite import SqliteLedger

if TYPE_CHECKING:
    T = TypeVar("T")


class TriggerAccess:
    def __init__(self, *, root: str, data: str | None) -> None:
        self.root = root
        self.place = Place.of(root=root, data=data)
        self._names: frozenset[str] | None = None

    def read(self, work: Callable[[Triggers], Awaitable[T]]) -> T:
        async def asking() -> T:
            async with self._reader() as ledger:
                return await work(Triggers(**self._parts(ledger, may_call=False)))

        return asyncio.run(asking())

    def write(self, work: Callable[[Triggers], Awaitable[T]]) -> T:
        is_alone = False

        async def through(far: Far) -> T:
            async with self._reader() as ledger:
                return await work(RemoteTriggers(far, **self._parts(ledger)))

        async def alone(ledger: BookLedger) -> T:
            nonlocal is_alone
            is_alone = self.place.store is None
            return await work(Triggers(**self._parts(ledger)))

        done = write_with(self.place, lambda far: asyncio.run(through(far)), alone)
        if is_alone:
            stored = f"what is stored in {self.place.directory} takes effect after `horae up`"
            echo(f"no engine is running; {stored}", err=True)
        return done

    @asynccontextmanager
    async def _reader(self) -> AsyncIterator[BookLedger]:
        known = self.place.is_known
        async with reader_of(self.place) if known else opened(SqliteLedger.in_memory()) as ledger:
            yield ledger

    def _parts(self, ledger: BookLedger, *, may_call: bool = True) -> dict[str, Any]:
        # In a shared ledger a command may write in any term.
        term = 1 if self.place.store is None else ANYBODY
        context = Context(
            self.place.config, Path(self.root).absolute(), CommandClock(), ledger, term
        )
        secrets = secrets_of(self.place.config, may_call=may_call)
        return context.trigger_parts(others=self._others, secrets=secrets)

    def _others(self) -> frozenset[str]:
        if self._names is None:
            found = find_agents(self.place.config, say=Output(Form.TABLE).say)
            self._names = frozenset(each.name for each in found.registry)
        return self._names


class RemoteTriggers(Triggers):
    """Triggers beside a running engine: read here, changed there."""

    def __init__(self, far: Far, **parts: Any) -> None:
        super().__init__(**parts)
        self.far = far


def _remote(method: str) -> Callable[..., Awaitable[dict[str, Any]]]:
    local = getattr(Triggers, method)

    @wraps(local)
    async def call(self: RemoteTriggers, *args: Any, **named: Any) -> dict[str, Any]:
        given = signature(local).bind(self, *args, **named)
        given.apply_defaults()
        body = {name: value for name, value in given.arguments.items() if name != "self"}
        said: dict[str, Any] = self.far.post("triggers", method, body=body)
        return said

    return call


for _method in (*EDITS, *RUNS):
    setattr(RemoteTriggers, _method, _remote(_method))
