"""Settings of all tests."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from scale import scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

with suppress(ImportError):  # the oldest Python runs only the tests that do not need it
    from hypothesis import HealthCheck, settings

    # How long an example takes says more about the load of the machine than about the code.
    settings.register_profile(
        "horae",
        deadline=None,
        max_examples=scaled(100, few=40),
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("horae")


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do at once what is done in another thread: a clock that a test moves does not wait for it."""

    async def at_once(function: Callable[..., object], *args: object, **named: object) -> object:
        return function(*args, **named)

    monkeypatch.setattr(asyncio, "to_thread", at_once)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage, and never look at what was collected again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
