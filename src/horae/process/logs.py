"""What runs left behind: their output, by day and by number, until it is old or too much."""

from __future__ import annotations

import logging
import os
import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import timedelta
    from pathlib import Path

log = logging.getLogger(__name__)

_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def tidy(directory: Path, *, now: datetime, keep: timedelta, most: int) -> int:
    """Remove output older than *keep*, then the oldest until *most* bytes and today's are left."""
    gone = left = 0
    for day in sorted(_children(directory), reverse=True):
        if not _DAY.fullmatch(day.name) or not day.is_dir():
            continue
        began_at = datetime.fromisoformat(day.name).replace(tzinfo=UTC)
        is_old = now - began_at > keep
        for run in sorted(_children(day), key=_number, reverse=True):
            left += _size(run)
            if is_old or (left > most and began_at.date() < now.date()):
                clear(run)
                if run.exists():
                    log.warning("cannot remove %s", run)
                else:
                    gone += 1
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


def _children(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _number(run: Path) -> int:
    return int(run.name) if run.name.isdecimal() else 0


def _size(run: Path) -> int:
    sizes = 0
    for place, _, names in os.walk(run):
        for name in names:
            with suppress(OSError):  # it is gone, and takes no room
                sizes += os.lstat(os.path.join(place, name)).st_size
    return sizes
