"""What runs left behind: their output, by day and by number, until it is old or too much."""

from __future__ import annotations

import logging
import os
import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta
    from pathlib import Path

log = logging.getLogger(__name__)

_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def tidy(directory: Path, *, now: datetime, keep: timedelta, most: int) -> int:
    """Remove the output of days that are over by *keep*, then the oldest until *most* is left.

    Today's output always stays. Return how many runs are gone.
    """
    gone = 0
    left = 0
    for day in sorted(_days(directory), reverse=True):
        began_at = datetime.fromisoformat(day.name).replace(tzinfo=UTC)
        is_old = now - began_at > keep
        for run in sorted(_children(day), key=_number, reverse=True):
            left += _size(run)
            if is_old or (left > most and began_at.date() < now.date()):
                gone += _remove(run)
        with suppress(OSError):  # it goes only if it is empty
            os.rmdir(day)
    return gone


def clear(directory: Path) -> None:
    """Remove a directory of our own with all that is left in it, what is read-only included."""
    for where, directories, files in os.walk(directory, topdown=False):
        with suppress(OSError):  # callers look whether it is gone, here and below
            os.chmod(where, 0o700)
        for name in (*files, *directories):
            path = os.path.join(where, name)
            is_directory = name in directories and not os.path.islink(path)
            with suppress(OSError):  # as above
                (os.rmdir if is_directory else os.remove)(path)
    with suppress(OSError):  # as above
        os.rmdir(directory)


def _days(directory: Path) -> Iterator[Path]:
    return (day for day in _children(directory) if _DAY.fullmatch(day.name) and day.is_dir())


def _children(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _number(run: Path) -> int:
    return int(run.name) if run.name.isdecimal() else 0


def _size(run: Path) -> int:
    """Return how many bytes a run left, as far as they are still there."""
    sizes = 0
    for place, _, names in os.walk(run):
        for name in names:
            with suppress(OSError):  # it is gone, and takes no room
                sizes += os.lstat(os.path.join(place, name)).st_size
    return sizes


def _remove(run: Path) -> int:
    """Remove what a run left; return 1 if all of it is gone."""
    clear(run)
    if run.exists():
        log.warning("cannot remove %s", run)
        return 0
    return 1
