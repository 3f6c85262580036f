"""The ledger as an engine sees it when the disk, the machine and other processes are against it.

Behind it is the real one. In memory that commits at once, so what can happen around a commit
happens here: an error before it, an error after it, a crash before it, a crash after it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from horae.core.ports import LedgerBusyError, LedgerWriteError
from simulate.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from horae.core.ports import Ledger
    from simulate.loop import Life
    from simulate.world import World

WRITES: Final = frozenset(
    {
        "scan",
        "decide",
        "add",
        "start_many",
        "running_many",
        "give_back",
        "draw",
        "use",
        "refuse",
        "end_many",
        "hold",
        "ask_account",
        "free_limited",
        "release",
        "settle",
        "pause",
        "resume",
        "wake",
        "set_back",
        "note",
        "remember",
        "prune",
    }
)
_HOLDS: Final = frozenset({"limits", "free_limited", "ask_account"})
_PLACE: Final = "the simulated ledger"


def unsteady(world: World, life: Life) -> Ledger:
    """Return the world's ledger as one engine sees it."""
    return cast("Ledger", _Unsteady(world, life))


class _Unsteady:
    """Passes every call on, if the weather allows."""

    def __init__(self, world: World, life: Life) -> None:
        self._world = world
        self._life = life
        self._calls: dict[str, Callable[..., Awaitable[object]]] = {}

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in _HOLDS and not self._world.setting.accounts:
            # No dice: the seeds of worlds without limits stay what they were.
            call: Callable[..., Awaitable[object]] = getattr(self._world.ledger, name)
            return call
        if name not in self._calls:
            self._calls[name] = self._writing(name) if name in WRITES else self._reading(name)
        return self._calls[name]

    def _reading(self, name: str) -> Callable[..., Awaitable[object]]:
        async def read(*args: Any, **kwargs: Any) -> object:
            await self._arrive()
            answer = await getattr(self._world.ledger, name)(*args, **kwargs)
            if name == "wake_at" and self._life is self._world.life:
                self._world.wake_at = answer
            return answer

        return read

    def _writing(self, name: str) -> Callable[..., Awaitable[object]]:
        async def write(*args: Any, **kwargs: Any) -> object:
            world = self._world
            await self._arrive()
            self._before(name)
            answer = await world.commit(name, args, kwargs)
            self._after(name, args)
            if world.roll is not None and world.roll.random() < 0.5:
                await asyncio.sleep(0)
                self._check()
            return answer

        return write

    async def _arrive(self) -> None:
        """Wait for the turn of this call, as others may come first."""
        world = self._world
        if world.roll is not None:
            await asyncio.sleep(0)
            if world.weather.strikes(Fault.SLOW_LEDGER):
                await asyncio.sleep(world.roll.choice((0.02, 0.5, 4.0, 40.0)))
        self._check()

    def _check(self) -> None:
        """Nobody answers to an engine that is dead."""
        if self._life.is_over:
            raise asyncio.CancelledError
        if self._life.is_cut_off:
            raise LedgerWriteError(_PLACE, "it cannot be reached", remedy="check the network")

    def _before(self, name: str) -> None:
        """Let happen what keeps a write from being made."""
        world, weather = self._world, self._world.weather
        if weather.strikes(Fault.CRASH):
            world.crash(f"before {name}", self._life)
            raise asyncio.CancelledError
        if world.is_full:
            world.tell(f"{name}: the disk is full")
            raise LedgerWriteError(_PLACE, "the disk is full", remedy="free disk space")
        if weather.strikes(Fault.BUSY):
            world.tell(f"{name}: busy")
            raise LedgerBusyError(_PLACE, "another process is writing to it", remedy="wait")
        if weather.strikes(Fault.REFUSED):
            world.tell(f"{name}: refused")
            raise LedgerWriteError(_PLACE, "the write failed", remedy="check the disk")

    def _after(self, name: str, args: tuple[Any, ...]) -> None:
        """Let happen what keeps the answer of a write from being heard."""
        world, weather = self._world, self._world.weather
        if weather.strikes(Fault.CRASH):
            world.crash(f"after {name}", self._life)
            raise asyncio.CancelledError
        if weather.strikes(Fault.UNKNOWN):
            if name == "running_many":
                world.watch.unheard.update(run for run, _ in args[0])
            world.tell(f"{name}: written, but reported as failed")
            raise LedgerWriteError(_PLACE, "the commit failed", remedy="check the disk")
