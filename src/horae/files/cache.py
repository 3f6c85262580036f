from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from horae.core.source import Scan, unexpected
from horae.errors import HoraeError
from horae.files import read
from horae.files.read import PlanFileError, PlanFiles, stamp_of, told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from horae.core.source import Scanned
    from horae.files.read import Content, StrPath

_SECOND: Final = 10**9  # in nanoseconds
FileStamp: TypeAlias = "tuple[int, ...]"


@dataclass
class FileCache:
    """The files below a root that contain entries, each parsed only if its bytes have changed.

    *reader* names the version of the parser and its zone; an error that *parse* raises is a problem
    of that file. A file is known by its bytes and its stat, and by its stat alone once that is sure
    to mean these bytes: then it is not even read. The index stores all this.
    """

    root: StrPath
    reader: str
    understand: Callable[[Content, str], Iterable[Scanned]]
    suffixes: tuple[str, ...] = (".org",)
    is_flat: bool = False
    prefix: str = ""
    limit: int = read.LIMIT
    most: int = read.MOST

    def __post_init__(self) -> None:
        self._root = os.fspath(self.root).rstrip("/") or "/"
        self._top = f"{self._root.rstrip('/')}/"
        self._hidden: set[str] = set()  # files that were unreadable in the last scan

    def look(self, index: Mapping[str, str]) -> Scan:
        """Scan the files, and parse those that are not unchanged since *index*."""
        try:
            found = read.find_plans(
                self._root, suffixes=self.suffixes, most=self.most, is_flat=self.is_flat
            )
        except PlanFileError as error:
            found = PlanFiles((), (error,))
        problems: list[HoraeError] = list(found.problems)
        # Without the root, its files are missing, not unreadable.
        hidden = [each for each in found.problems if not isinstance(each, read.PlanMissingError)]
        blocked = {self._inner_name(problem.raw_path) for problem in hidden}
        for in_the_way in self._obstacles(index, found):
            problems.append(in_the_way)
            hidden.append(in_the_way)
            blocked.add(f"{self._inner_name(in_the_way.raw_path)}/")
        broken: dict[str, str] = {}
        entries: list[Scanned] = []
        standing: list[str] = []
        known: dict[str, str] = {}  # unreadable files have no fingerprint
        seen: dict[str, str] = {}
        for path in found.plans:
            file = self._file(path)
            was, content = index.get(file, ""), None
            try:
                stamp = _stamp(path)
                known_as = by_stamp = self._known_as(*stamp)
                stands = was == by_stamp
                if not stands:
                    content = read.read_plan(path, root=self._root, limit=self.limit)
                    by_bytes = self._known_as(content.digest, "")
                    stands = was.startswith(by_bytes)
                    # Two saves within one step of file times have the same stat. So it is trusted
                    # only after a second scan with the same bytes, and never in whole seconds.
                    if was != f"{by_bytes}{by_stamp}" or stamp[-1] % _SECOND == 0:
                        known_as = f"{by_bytes}{by_stamp}"
                    if not stands:
                        entries += self._entries(content, file)
            except HoraeError as error:  # including one that is removed or replaced during the scan
                problems.append(error)
                blocked.add(file)
                if content is not None:
                    broken[file] = error.reason if isinstance(error, PlanFileError) else str(error)
            else:
                known[file], seen[file] = known_as, by_stamp
                if stands:
                    standing.append(file)
        return Scan(
            tuple(entries),
            (*standing, *sorted(blocked)),
            tuple(map(self._named, problems)),
            known,
            is_still=partial(self._is_still, seen),
            is_bare=not found.plans and not hidden,
            broken=broken,
        )

    def _obstacles(self, index: Mapping[str, str], found: PlanFiles) -> Iterable[PlanFileError]:
        gone = {*self._hidden, *index}.difference(map(self._file, found.plans))
        above = {
            name: os.path.dirname(f"{self._top}{name.removeprefix(self.prefix)}") for name in gone
        }
        ways = {path: read.obstacle(path, root=self._root) for path in sorted({*above.values()})}
        # The next index has none of these, so that they are reported again.
        self._hidden = {name for name, path in above.items() if ways[path] is not None}
        return {each.raw_path: each for each in ways.values() if each is not None}.values()

    def _file(self, path: str) -> str:
        return f"{self.prefix}{path.removeprefix(self._top)}"

    def _named(self, problem: HoraeError) -> HoraeError:
        if not isinstance(problem, PlanFileError):
            return problem
        return problem.about(self._inner_name(problem.raw_path) or problem.raw_path)

    def _is_still(self, seen: Mapping[str, str], file: str) -> bool:
        try:
            stamp = _stamp(f"{self._top}{file.removeprefix(self.prefix)}")
        except HoraeError:
            return False
        return seen.get(file) == self._known_as(*stamp)

    def _entries(self, content: Content, file: str) -> Iterable[Scanned]:
        try:
            return self.understand(content, file)
        except HoraeError:
            raise
        except Exception as error:  # a bug of ours is reported as a problem of this file
            raise PlanFileError(content.path, unexpected(error)) from error

    def _known_as(self, *signs: object) -> str:
        return " ".join((self.reader, *map(str, signs)))

    def _inner_name(self, path: str) -> str:
        return self._file(path) if path.startswith(self._top) and path != self._top else ""


def _stamp(path: str) -> FileStamp:
    with told(path):
        return stamp_of(os.lstat(path))
