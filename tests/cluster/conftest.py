"""A stage for each test; what a test leaves alive on it is ended."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from cluster.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Give a database and an origin, without members."""
    with closing(Stage(tmp_path)) as stage:
        yield stage
