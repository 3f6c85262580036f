"""The disk of a data directory: what it holds, and where most of it is."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

RESERVE: Final = 512 << 20  # bytes that are to stay free, or a twentieth of a small disk
MOST: Final = 200_000  # directories that are looked at
FOLDERS: Final = ("runs", "trees", "cache", "backups", "plan")
OTHERS: Final = "other"
_LEDGER: Final = "ledger"  # what the names of its files begin with
_BLOCK: Final = 512  # bytes, by which the system counts what a file takes


class Room(NamedTuple):
    free: int  # bytes
    lacking: int  # of those that are to stay free


class Place(NamedTuple):
    path: str
    size: int


def room_at(directory: Path) -> Room:
    found = shutil.disk_usage(directory)
    return Room(found.free, max(0, min(RESERVE, found.total // 20) - found.free))


def held_in(data: Path) -> dict[str, int]:
    """Return how many bytes a data directory holds: in each folder, the ledger, and other files."""
    sizes = _sizes(os.fspath(data))
    held = {each: sizes.get(f"{data}/{each}", 0) for each in FOLDERS}
    held[_LEDGER] = sum(_size(each.path) for each in _files(data) if each.name.startswith(_LEDGER))
    held[OTHERS] = max(0, sizes.get(os.fspath(data), 0) - sum(held.values()))
    return {name: size for name, size in held.items() if size}


def fullest(tops: Iterable[Path]) -> Place | None:
    """Return the directory below one of these that holds most of what they hold."""
    places = sorted({os.path.realpath(each) for each in tops})
    sizes: dict[str, int] = {}
    for each in places:
        if each not in sizes:  # else another one holds it
            sizes |= _sizes(each)
    found = max(((sizes[each], each) for each in places if each in sizes), default=None)
    while found is not None:
        size, path = found
        inner = [(n, each) for each, n in sizes.items() if os.path.dirname(each) == path != each]
        largest = max(inner, default=(0, ""))
        if 2 * largest[0] <= size:
            return Place(path, size)
        found = largest
    return None


def _sizes(top: str) -> dict[str, int]:
    """Return the bytes that each directory holds with all below it, on the disk of the first."""
    sizes: dict[str, int] = {}
    with suppress(OSError):  # it is gone, and holds nothing
        disk = os.lstat(top).st_dev
        for path, folders, names in os.walk(top):
            if len(sizes) >= MOST:
                break
            folders[:] = [each for each in folders if _disk(f"{path}/{each}") == disk]
            sizes[path] = sum(_size(f"{path}/{name}") for name in names)
    for path in reversed(sizes):  # those inside come after those that they are in
        if (above := os.path.dirname(path)) != path and above in sizes:
            sizes[above] += sizes[path]
    return sizes


def _files(directory: Path) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(directory) as found:  # as above
        return [each for each in found if each.is_file(follow_symlinks=False)]
    return []


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_blocks * _BLOCK
    except OSError:  # as above
        return 0


def _disk(path: str) -> int:
    try:
        return os.lstat(path).st_dev
    except OSError:  # as above
        return -1
