"""The org plans beneath a plan root, as a source of entries.

A file is parsed again only if its bytes have changed, and then only the sections that
have. One that cannot be read keeps its last good entries and stops no other.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from horae.engine.source import Scan, is_within
from horae.kernel.org.document import read
from horae.rules.armed import scan_plan
from horae.workspace.files import (
    LIMIT,
    MOST,
    Found,
    PlanFileError,
    find_plans,
    printable,
    read_plan,
    told,
)

if TYPE_CHECKING:
    from horae.engine.ports import Filed
    from horae.kernel.plan import Plan
    from horae.rules.armed import Scanned
    from horae.workspace.files import StrPath


class OrgSource:
    """The workflows of all org plans beneath a root; files go by their path from there."""

    name = "org"

    def __init__(
        self, root: StrPath, *, zone_name: str = "UTC", limit: int = LIMIT, most: int = MOST
    ) -> None:
        self._root = os.fspath(root).rstrip("/") or "/"
        self._top = f"{self._root.rstrip('/')}/"
        self._zone_name = zone_name
        self._limit = limit
        self._most = most
        self._pages: dict[str, _Page] = {}

    async def scan(self) -> Scan:
        """Return the workflows of every plan, in the order of the files' names."""
        found = self._find()
        problems = list(found.problems)
        pages: dict[str, _Page] = {}
        for path in found.plans:
            file = path.removeprefix(self._top)
            try:
                pages[file] = self._look(path, file)
            except PlanFileError as error:
                problems.append(error)
        unread = tuple(self._inner_name(problem.path) for problem in problems)
        self._pages = {**self._last_good(unread), **pages}
        entries = (each for file in sorted(self._pages) for each in self._pages[file].entries)
        return Scan(tuple(entries), tuple(problems), unread)

    async def settle(self, receipt: Filed) -> None:
        """Do nothing: a plan is not changed by what became of it."""

    def _find(self) -> Found:
        """Return the plans beneath the root; one that cannot be listed has a problem only."""
        try:
            return find_plans(self._root, most=self._most)
        except PlanFileError as error:
            return Found((), (error,))

    def _look(self, path: str, file: str) -> _Page:
        """Return what stands in a file, read and parsed only as far as needed."""
        was = self._pages.get(file)
        stamp = _stamp(path)
        is_unmoved = was is not None and was.stamp == stamp
        if was is not None and is_unmoved and was.is_trusted:
            return was
        content = read_plan(path, root=self._root, limit=self._limit)
        digest = content.digest
        if was is not None and was.digest == digest:
            # File systems tell time in steps: two saves within one look the same from
            # outside. So a stamp is believed only once a second look found the same bytes.
            return was._replace(stamp=stamp, is_trusted=is_unmoved)
        plan = read(content.text, was=None if was is None else was.plan)
        entries = tuple(scan_plan(plan, file=file, zone_name=self._zone_name))
        return _Page(stamp, digest, plan, entries)

    def _last_good(self, unread: tuple[str, ...]) -> dict[str, _Page]:
        """Return what is known of the files that could not be read."""
        return {
            file: page
            for file, page in self._pages.items()
            if any(is_within(file, name) for name in unread)
        }

    def _inner_name(self, path: str) -> str:
        """Return the name that a path has from the root; the root itself has none."""
        if path == printable(self._root):
            return ""
        return path.removeprefix(printable(self._top))


class _Page(NamedTuple):
    """What stood in a file when it was last read."""

    stamp: tuple[int, ...]
    digest: str
    plan: Plan
    entries: tuple[Scanned, ...]
    is_trusted: bool = False


def _stamp(path: str) -> tuple[int, ...]:
    """Return what changes when a file is written or replaced."""
    with told(path):
        status = Path(path).lstat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
