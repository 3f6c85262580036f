"""Waiting for an event in another process, thread or task."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from horae.core.receipt import FINAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from horae.core.ports import Ledger
    from horae.core.receipt import Filed

_Found = TypeVar("_Found")

PATIENCE: Final = 60.0  # seconds for an event that takes one on a machine that does nothing else
NAP: Final = 0.01  # seconds between two looks
LONG_NAP: Final = 0.5  # between two that take long


def wait_until(
    look: Callable[[], _Found], *, within: float = PATIENCE, said: Callable[[], str] = str
) -> _Found:
    """Look until something is found, and return it; fail with what was said meanwhile."""
    began = time.monotonic()
    end = began + within
    while not (found := look()):
        looked = time.monotonic()
        assert looked < end, f"not within {within} s: {said()}"
        # A look that costs much is taken less often: looking is an eighth of the time at most.
        time.sleep(min(max(NAP, 7 * (looked - began)), LONG_NAP))
        began = time.monotonic()
    return found


async def until(look: Callable[[], object], *, within: float = PATIENCE) -> Any:
    """Look until something is found, and return it, while other tasks go on."""
    end = time.monotonic() + within
    while True:
        found = look()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < end, f"not within {within} s"
        await asyncio.sleep(NAP)


async def settled(ledger: Ledger, number: int) -> Filed:
    """Return a receipt once it is final, and all that follows from it is done."""

    async def look() -> Filed | None:
        filed = await ledger.receipt(number)
        assert filed is not None
        return filed if filed.status in FINAL and filed.settled_at is not None else None

    filed: Filed = await until(look)
    return filed
