"""A ledger on each store, for the tests that all of them must pass."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from store.server import opening

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from horae.store.ledger import SqlLedger


@pytest.fixture(params=["sqlite", "memory", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlLedger]:
    opened = asyncio.run(opening(request.param, tmp_path))
    yield opened
    asyncio.run(opened.close())
