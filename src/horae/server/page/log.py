"""The end of a log, as a page shows it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from horae.server.page.look import plain
from horae.server.stream import opened

if TYPE_CHECKING:
    from pathlib import Path


def tail(path: Path, most: int) -> tuple[str, int]:
    """Return the end of a log, from the beginning of a line on, and how long all of it is."""
    with opened(path) as descriptor:
        if descriptor is None:
            return "", 0
        start = max(0, os.fstat(descriptor).st_size - most)
        data = os.pread(descriptor, most, start)
    end = start + len(data)
    if start:
        data = data.partition(b"\n")[2]
    return plain(data), end
