"""A home for each test; what a test leaves alive in it is ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from crash.stage import Home, snapshot, until_gone

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """Give a home without entries."""
    home = Home(tmp_path)
    yield home
    home.end()
    until_gone(lambda: snapshot(home.data), within=10)
