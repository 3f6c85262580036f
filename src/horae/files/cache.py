"""Files that hold entries, each read again only if it has changed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeAlias, TypeVar

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
Kept = TypeVar("Kept")
Stamp: TypeAlias = "tuple[int, ...]"


@dataclass
class FileCache(Generic[Kept]):
    """The files beneath a root that hold entries, each read only if it has changed.

    *reader* names the code and the zone that a file was understood by. *understand* gives what is
    worth keeping for the next time, and the entries; what it raises is a problem of that file.
    """

    root: StrPath
    reader: str
    understand: Callable[[Content, str, Kept | None], tuple[Kept, tuple[Scanned, ...]]]
    suffixes: tuple[str, ...] = (".org",)
    is_flat: bool = False
    prefix: str = ""
    limit: int = read.LIMIT
    most: int = read.MOST

    def __post_init__(self) -> None:
        self._root = os.fspath(self.root).rstrip("/") or "/"
        self._top = f"{self._root.rstrip('/')}/"
        self._pages: dict[str, _CachedFile[Kept]] = {}

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
        standing: dict[str, str] = {}
        pages: dict[str, _CachedFile[Kept]] = {}
        for path in found.plans:
            file = self._file(path)
            try:
                stamp = _stamp(path)
                if index.get(file) == self._known_as(stamp):
                    standing[file] = index[file]
                else:
                    pages[file] = self._read(path, file, stamp)
            except _UnderstandError as error:
                cause = error.cause
                problems.append(cause)
                blocked.add(file)
                broken[file] = cause.reason if isinstance(cause, PlanFileError) else str(cause)
            except HoraeError as error:  # also one that went, or is being replaced, as we looked
                problems.append(error)
                blocked.add(file)
        trusted = {file: page.stamp for file, page in pages.items() if page.is_trusted}
        # Of what could not be read nothing is known by which it could be told again.
        known = standing | {file: self._known_as(stamp) for file, stamp in trusted.items()}
        seen = standing | {file: self._known_as(page.stamp) for file, page in pages.items()}
        keep = {*standing, *_covered(self._pages, blocked)}
        # At once and at the end: a scan that is given up while its thread goes on disturbs
        # none that comes after it.
        self._pages = {file: page for file, page in self._pages.items() if file in keep} | pages
        return Scan(
            tuple(each for page in pages.values() for each in page.entries),
            (*standing, *sorted(blocked)),
            tuple(problems),
            known,
            is_still=partial(self._is_still, seen),
            is_bare=not found.plans and not hidden,
            broken=broken,
        )

    def _obstacles(self, index: Mapping[str, str], found: PlanFiles) -> Iterable[PlanFileError]:
        """Return what stands in the way to files known so far, to which no directory leads."""
        gone = {*self._pages, *index}.difference(map(self._file, found.plans))
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
        return seen.get(file) == self._known_as(stamp)

    def _read(self, path: str, file: str, stamp: Stamp) -> _CachedFile[Kept]:
        was = self._pages.get(file)
        is_unmoved = was is not None and was.stamp == stamp
        if was is not None and is_unmoved and was.is_trusted:
            return was
        content = read.read_plan(path, root=self._root, limit=self.limit)
        digest = content.digest
        if was is not None and was.digest == digest:
            # File systems tell time in steps: two saves within one look the same from
            # outside. So a stamp is believed only once a second look found the same bytes,
            # and one in whole seconds never: there, the step is longer than we wait.
            is_trusted = is_unmoved and stamp[-1] % _SECOND != 0
            return was._replace(stamp=stamp, is_trusted=is_trusted)
        try:
            kept, entries = self.understand(content, file, None if was is None else was.kept)
        except HoraeError as error:
            raise _UnderstandError(error) from error
        except Exception as error:  # a bug of ours; it is told as a problem of this file
            raise _UnderstandError(PlanFileError(path, unexpected(error))) from error
        return _CachedFile(stamp, digest, kept, entries)

    def _known_as(self, stamp: Stamp) -> str:
        return " ".join((self.reader, *map(str, stamp)))

    def _inner_name(self, path: str) -> str:
        """Return the name that a path has from the root; the root, and what is above, has none."""
        return self._file(path) if path.startswith(self._top) and path != self._top else ""


class _UnderstandError(Exception):
    def __init__(self, cause: HoraeError) -> None:
        self.cause = cause
        super().__init__(str(cause))


class _CachedFile(NamedTuple, Generic[Kept]):
    stamp: Stamp
    digest: str
    kept: Kept
    entries: tuple[Scanned, ...]
    is_trusted: bool = False


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
