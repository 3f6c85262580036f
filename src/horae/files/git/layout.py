"""Where the repository of a tree is; git itself is not asked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from horae.files.read import StrPath, head_of


class Layout(NamedTuple):
    directory: str  # of this tree: HEAD, index
    common: str  # of all its trees: settings, branches, objects


def layout(root: StrPath) -> Layout | None:
    directory = os.path.join(root, ".git")
    if not os.path.isdir(directory):
        pointed = _first_line(directory)
        if pointed is None or not pointed.startswith("gitdir: "):
            return None
        directory = os.path.join(root, pointed.removeprefix("gitdir: "))
    if not os.path.isfile(os.path.join(directory, "HEAD")):
        return None
    shared = _first_line(os.path.join(directory, "commondir"))
    common = directory if shared is None else os.path.join(directory, shared)
    return Layout(os.path.normpath(directory), os.path.normpath(common))


def _first_line(path: str) -> str | None:
    try:
        head = head_of(path, 4096)
    except OSError:
        return None
    return head.decode("utf-8", "surrogateescape").partition("\n")[0].rstrip("\r")


def repository_of(path: StrPath) -> Path | None:
    """Return the top of the tree that a path stands in; None if not under git."""
    here = Path(path).absolute()
    return next((each for each in (here, *here.parents) if layout(each) is not None), None)


def top_of(path: StrPath) -> str | None:
    """Return the top of the tree that a directory stands in, whatever links lead there."""
    found = repository_of(os.path.realpath(path))
    return None if found is None else str(found)
