"""The plans that a command is given: files, directories and standard input."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from horae.cli.output import Output
from horae.config import load
from horae.core.guarded import FILE
from horae.errors import Exit, HoraeError
from horae.files.read import Content, PlanMissingError, decoded, find_plans, read_plan
from horae.org.document import read
from horae.org.plan import Plan


class PlanText(NamedTuple):
    name: str
    plan: Plan


class Sources:
    """The plans that paths stand for; what cannot be read is said, and the rest goes on."""

    def __init__(self, paths: Sequence[str], output: Output, *, may_be_empty: bool = False) -> None:
        self._paths = paths or (".",)
        self._output = output
        self._may_be_empty = may_be_empty  # a directory without plans has something else
        settings = load(plan_root(self._paths))
        self._limit, self._most = settings.plan_max_bytes, settings.plan_max_files
        self.exit_code: int = Exit.OK
        self.unread = 0  # files and directories that exist and cannot be read

    @property
    def is_single(self) -> bool:
        return len(self._paths) == 1 and not _is_directory(self._paths[0])

    def __iter__(self) -> Iterator[PlanText]:
        for path in self._paths:
            if _is_directory(path):
                yield from self._beneath(path)
            else:
                yield from self._one(path)

    def _one(self, path: str, *, root: str | None = None) -> Iterator[PlanText]:
        try:
            if path == "-":
                text = decoded("-", sys.stdin.buffer.read())
            else:
                text = read_plan(path, root=root, limit=self._limit).text
        except PlanMissingError as error:
            is_named = "." in os.path.basename(path) or path.startswith("-")
            way = f"there is no such file or directory; `horae init {path}` creates a plan there"
            self._say(error if is_named else PlanMissingError(path, way))
        except HoraeError as error:
            self._say(error)
        else:
            yield PlanText(path.removeprefix("./"), read(text))

    def _beneath(self, root: str) -> Iterator[PlanText]:
        try:
            found = find_plans(root, most=self._most)
        except HoraeError as error:
            self._say(error)
            return
        for problem in found.problems:
            self._say(problem)
        if not found.plans and not found.problems and not self._may_be_empty:
            way = f"contains no file named *.org; `horae init {root}` writes a plan there"
            self._say(PlanMissingError(root, way))
        for plan in found.plans:
            yield from self._one(plan, root=root)

    def _say(self, error: HoraeError) -> None:
        self._output.say(error)
        self.exit_code = self.exit_code or error.exit_code
        self.unread += not isinstance(error, PlanMissingError)


def existing(path: str) -> Content | None:
    try:
        return read_plan(path)
    except PlanMissingError:
        return None


def replace_file(path: str, data: bytes, old: Content | None) -> None:
    """Write a new file, or one in place of the *old* one, unless that has changed."""
    from horae.files.edit import Splice, create, edit  # not on Windows

    if old is None:
        create(path, data)
    else:
        edit(path, [Splice(0, len(old.data), data)], expected=old.digest)


def plan_root(paths: Sequence[str]) -> str:
    """Return where the nearest `horae.toml` is; without one, the directory that was named."""
    # So a plan has the same zone however it is named.
    if len(paths) != 1 or paths[0] == "-":
        return "."
    here = paths[0] if _is_directory(paths[0]) else os.path.dirname(paths[0])
    inside = not os.path.isabs(here) and ".." not in here.split("/")
    while here not in {"", "."}:
        if os.path.isfile(f"{here}/{FILE}"):
            return here
        here = os.path.dirname(here) if inside else ""
    is_ours = inside and os.path.isfile(FILE)
    return paths[0] if _is_directory(paths[0]) and not is_ours else "."


def _is_directory(path: str) -> bool:
    return path != "-" and os.path.isdir(path)
