"""Files that hold entries, each read again only if it has changed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from horae.core.source import Scan, unexpected
from horae.errors import HoraeError
from horae.files import read
from horae.files.read import PlanFileError, PlanFiles, stamp_of, told

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from horae.core.source import Scanned
    from horae.files.read import Content, StrPath

_SECOND: Final = 10**9  # in the unit of stamps
_SLASH: Final = re.compile("/")
Stamp: TypeAlias = "tuple[int, ...]"


@dataclass
class FileCache:
    """The files beneath a root that hold entries, each understood only if its bytes have changed.

    *reader* names the code and the zone that a file was understood by; what *understand* raises is
    a problem of that file. A file is known by its bytes, and once they are surely those that its
    stamp stands for, by its stamp: then it is not even read.
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
        self._looked: dict[str, str] = {}  # the stamp and the bytes that were last read

    def look(self, index: Mapping[str, str]) -> Scan:
        """Return what stands in the files, save those that *index* knows as they are."""
        try:
            found = read.find_plans(
                self._root, suffixes=self.suffixes, most=self.most, is_flat=self.is_flat
            )
        except PlanFileError as error:
            found = PlanFiles((), (error,))
        problems: list[HoraeError] = list(found.problems)
        # Where there is no root there is nothing that only cannot be read.
        hidden = [each for each in found.problems if not isinstance(each, read.PlanMissingError)]
        blocked = {self._inner_name(problem.raw_path) for problem in hidden}
        for in_the_way in self._obstacles(index, found):
            problems.append(in_the_way)
            hidden.append(in_the_way)
            blocked.add(f"{self._inner_name(in_the_way.raw_path)}/")
        broken: dict[str, str] = {}
        entries: list[Scanned] = []
        standing: list[str] = []
        known: dict[str, str] = {}  # of what could not be read nothing is known
        seen: dict[str, str] = {}
        looked: dict[str, tuple[str, str]] = {}
        for file, path in {self._file(path): path for path in found.plans}.items():
            was = index.get(file)
            try:
                stamp = _stamp(path)
                known_as = by_stamp = self._known_as(*stamp)
                if was != by_stamp:
                    content = read.read_plan(path, root=self._root, limit=self.limit)
                    by_bytes = self._known_as(content.digest)
                    # File systems tell time in steps: two saves within one look the same from
                    # outside. So a stamp is believed only once a second look found the same bytes,
                    # and one in whole seconds never: there, the step is longer than we wait.
                    is_sure = self._looked.get(file) == f"{by_stamp} {by_bytes}"
                    if not is_sure or stamp[-1] % _SECOND == 0:
                        known_as = by_bytes
                    if was != by_bytes:
                        entries += self._entries(content, file)
                    looked[file] = by_stamp, by_bytes
            except _UnderstandError as error:
                cause = error.cause
                problems.append(cause)
                blocked.add(file)
                broken[file] = cause.reason if isinstance(cause, PlanFileError) else str(cause)
            except HoraeError as error:  # also one that went, or is being replaced, as we looked
                problems.append(error)
                blocked.add(file)
            else:
                known[file], seen[file] = known_as, by_stamp
                if was == by_stamp or was == looked[file][1]:
                    standing.append(file)
        keep = {*standing, *_covered(self._looked, blocked)}
        # At once and at the end: a scan that is given up while its thread goes on disturbs
        # none that comes after it. And as new texts: those from between the entries would keep
        # the memory of the entries from being given back.
        kept = {file: was for file, was in self._looked.items() if file in keep}
        self._looked = kept | {file: " ".join(both) for file, both in looked.items()}
        return Scan(
            tuple(entries),
            (*standing, *sorted(blocked)),
            tuple(problems),
            known,
            is_still=partial(self._is_still, seen),
            is_bare=not found.plans and not hidden,
            broken=broken,
        )

    def _obstacles(self, index: Mapping[str, str], found: PlanFiles) -> Iterable[PlanFileError]:
        """Return what stands in the way to files known so far, to which no directory leads."""
        gone = {*self._looked, *index}.difference(map(self._file, found.plans))
        paths = (f"{self._top}{name.removeprefix(self.prefix)}" for name in sorted(gone))
        above = dict.fromkeys(map(os.path.dirname, paths))
        ways = (read.obstacle(each, root=self._root) for each in above)
        return {each.raw_path: each for each in ways if each is not None}.values()

    def _file(self, path: str) -> str:
        return f"{self.prefix}{path.removeprefix(self._top)}"

    def _is_still(self, seen: Mapping[str, str], file: str) -> bool:
        try:
            stamp = _stamp(f"{self._top}{file.removeprefix(self.prefix)}")
        except HoraeError:
            return False
        return seen.get(file) == self._known_as(*stamp)

    def _entries(self, content: Content, file: str) -> Iterable[Scanned]:
        try:
            return self.understand(content, file)
        except HoraeError as error:
            raise _UnderstandError(error) from error
        except Exception as error:  # a bug of ours; it is told as a problem of this file
            raise _UnderstandError(PlanFileError(content.path, unexpected(error))) from error

    def _known_as(self, *signs: object) -> str:
        return " ".join((self.reader, *map(str, signs)))

    def _inner_name(self, path: str) -> str:
        """Return the name that a path has from the root; the root, and what is above, has none."""
        return self._file(path) if path.startswith(self._top) and path != self._top else ""


class _UnderstandError(Exception):
    def __init__(self, cause: HoraeError) -> None:
        self.cause = cause
        super().__init__(str(cause))


def _stamp(path: str) -> Stamp:
    with told(path):
        return stamp_of(os.lstat(path))


def _covered(files: Iterable[str], names: Collection[str]) -> list[str]:
    """Return the files that are named, or beneath a directory that is; all are beneath ""."""
    if "" in names:
        return list(files)
    return [
        file
        for file in files
        if file in names or any(file[: at.end()] in names for at in _SLASH.finditer(file))
    ]
