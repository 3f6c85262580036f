"""Settings of all tests."""

from __future__ import annotations

import asyncio
import gc
import os
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final

import pytest

from scale import scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

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


# Tests that wait for longer than they work: for leases and whole seconds to end.
WAITING: Final = (
    "tests/cluster/",
    "tests/crash/",
    "tests/cli/test_demo.py",
    "tests/cli/test_up.py",
    "tests/documents/",
    "tests/sources/triggers/test_polls.py",
)


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let two workers of three begin with the tests that wait, beside those that work.

    Each worker is given an equal part of the list, and one that is done takes from the end of
    another's part. In the order of their names these tests would wait one after another, at last
    with nothing beside them.
    """
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    waiting = [each for each in items if each.nodeid.startswith(WAITING)]
    working = [each for each in items if not each.nodeid.startswith(WAITING)]
    turns = max(1, count * 2 // 3)  # of six, two keep two cores busy meanwhile
    heads = [waiting[turn::turns] for turn in range(turns)]
    if count > 1 and max(map(len, heads)) <= len(items) // count:
        items[:] = dealt(heads, working, count)


def dealt(
    heads: Sequence[list[pytest.Item]], rest: list[pytest.Item], count: int
) -> list[pytest.Item]:
    """Return so many parts of one length in a row, the first of which begin with a head."""
    found: list[pytest.Item] = []
    left = iter(rest)
    total = len(rest) + sum(map(len, heads))
    for turn in range(count):
        part = [*heads[turn]] if turn < len(heads) else []
        size = (total - len(found)) // (count - turn)
        found += [*part, *islice(left, size - len(part))]
    return found
