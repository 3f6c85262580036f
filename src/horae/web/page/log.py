"""The end of a log, as a page shows it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from horae.web.page.look import plain
from horae.web.stream import SEGMENT, opened, segment, segments

if TYPE_CHECKING:
    from pathlib import Path


class Tail(NamedTuple):
    """The end of a log: where it begins and ends in all that was put out."""

    text: str
    start: int
    end: int
    is_whole: bool  # whether nothing was left out of the log so far


def tail(path: Path, most: int) -> Tail:
    """Return the end of a log, from the beginning of a line on."""
    newer = segments(path)
    data, start = _end(segment(path, newer[-1]) if newer else path, most)
    start += newer[-1] * SEGMENT if newer else 0
    if len(newer) > 1 and len(data) < most:  # the newest part has only just begun
        before, _ = _end(segment(path, newer[-2]), most - len(data))
        data, start = before + data, start - len(before)
    end = start + len(data)
    if start:
        cut = data.find(b"\n") + 1
        data, start = data[cut:], start + cut
    return Tail(plain(data), start, end, is_whole=not newer or newer[0] == 1)


def _end(path: Path, most: int) -> tuple[bytes, int]:
    """Return the end of a file, and where that begins."""
    with opened(path) as descriptor:
        if descriptor is None:
            return b"", 0
        start = max(0, os.fstat(descriptor).st_size - most)
        return os.pread(descriptor, most, start), start
