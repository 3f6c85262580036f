"""The repository of a tree, without git: its place, and the guarded settings from pulls.

These are stored in git's own directory, where no commit can write. The data directory would not do:
it is itself a setting that a commit could change.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.guarded import FILE, LIMIT, Arrivals, Values, values_of
from horae.core.private import replace_durably
from horae.errors import Exit, HoraeError
from horae.files.read import StrPath, head_of

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    here = Path(path).absolute()
    return next((each for each in (here, *here.parents) if layout(each) is not None), None)


def top_of(path: StrPath) -> str | None:
    """Return the top of a directory's tree, with links resolved."""
    found = repository_of(os.path.realpath(path))
    return None if found is None else str(found)


NAME: Final = "horae-settings.json"
_LONGEST: Final = 32 << 20  # bytes: the number of remembered arrivals times their maximum size


class ArrivalsError(HoraeError, code="settings_note", exit_code=Exit.VERIFICATION):
    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(
            f"{path}: {reason}; the file records which settings were changed by a pull. "
            "Review horae.toml, and remove this file if the settings are correct"
        )


def arrivals_at(root: StrPath) -> Arrivals | None:
    top = top_of(root)
    return None if top is None else read_arrivals(top).get(_name(root, top))


def remember(root: StrPath, arrivals: Arrivals | None) -> None:
    top = top_of(root)
    if top is not None:
        change_arrivals(top, {_name(root, top): arrivals})


def written_at(path: StrPath) -> Values | None:
    try:
        return values_of(head_of(path, LIMIT + 1).decode())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError):
        return None


def read_arrivals(top: str) -> dict[str, Arrivals]:
    def values(pairs: list[tuple[list[str], str]]) -> Values:
        return {tuple(map(str, way)): str(value) for way, value in pairs}

    path = _path(top)
    try:
        data = head_of(path, _LONGEST)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ArrivalsError(path, (error.strerror or str(error)).lower()) from None
    try:
        return {
            name: Arrivals(
                values(said["trusted"]),
                tuple((str(commit), values(arrived)) for commit, arrived in said["arrived"]),
                bool(said["moving"]),
            )
            for name, said in json.loads(data).items()
        }
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ArrivalsError(path, "is damaged") from None


def change_arrivals(top: str, changes: Mapping[str, Arrivals | None]) -> None:
    """Store the arrivals of files durably."""
    known = read_arrivals(top)
    new = {name: each for name, each in {**known, **changes}.items() if each is not None}
    if new == known:
        return
    said = {
        name: {
            "trusted": list(each.trusted.items()),
            "arrived": [[commit, list(values.items())] for commit, values in each.arrived],
            "moving": each.is_moving,
        }
        for name, each in new.items()
    }
    path = _path(top)
    try:
        replace_durably(path, json.dumps(said).encode())
    except OSError as error:
        raise ArrivalsError(path, (error.strerror or str(error)).lower()) from None


def _path(top: str) -> str:
    here = layout(top)
    return f"{top if here is None else here.directory}/{NAME}"


def _name(root: StrPath, top: str) -> str:
    return os.path.relpath(f"{os.path.realpath(root)}/{FILE}", top)
