"""The org plans below a plan root, as a source of entries.

Only a changed file is parsed, and nothing of an unchanged one is kept in memory. A file that cannot
be read keeps its last valid entries and does not stop the others.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from horae.core.entry import Entry
from horae.files.cache import FileCache
from horae.files.read import LIMIT, MOST, Content, PlanFileError, StrPath, names_of, read_plan
from horae.org.document import collector_paused, read
from horae.sources.plans.arming import doubles, item_at, scan_plan

if TYPE_CHECKING:
    from horae.core.source import Scan, Scanned
    from horae.errors import HoraeError

# Raised when the same plan would give other entries, so that all plans are parsed again.
READER: Final = 2


def words_at(root: StrPath, zone_name: str, path: str, line: int) -> Iterator[str]:
    """Yield the addresses that the entry at or around a line may have in the ledger."""
    names = [*names_of(root, path), posixpath.normpath(path)]
    yield from (f"{name}:{line}" for name in dict.fromkeys(names))
    for name in dict.fromkeys(names):
        with suppress(PlanFileError):  # it has another name
            plan = read(read_plan(os.path.join(root, name)).text)
            if found := item_at(plan, line, file=name, zone_name=zone_name):
                item = found[0]
                # An unarmed one may have the address of another.
                yield item.address if isinstance(item, Entry) else item.origin.place


class OrgSource:
    name = "org"
    settle = None  # receipts do not change a plan

    def __init__(
        self, root: StrPath, *, zone_name: str = "UTC", limit: int = LIMIT, most: int = MOST
    ) -> None:
        self._doubles: dict[str, list[HoraeError]] = {}  # of the last scan, by file

        def understand(content: Content, file: str) -> list[Scanned]:
            found = scan_plan(read(content.text), file=file, zone_name=zone_name)
            if len({each.mark.address for each in found}) < len(found):
                self._doubles[file] = [
                    PlanFileError(each.origin.place, f"{each.title!r} is not armed: {each.reason}")
                    for each in doubles(found)
                ]
            return found

        reader = f"org-{READER} {zone_name}"
        self._shelf = FileCache(root, reader=reader, understand=understand, limit=limit, most=most)

    async def scan(self, index: Mapping[str, str]) -> Scan:
        return await asyncio.to_thread(self._look, index)

    def _look(self, index: Mapping[str, str]) -> Scan:
        self._doubles.clear()
        with collector_paused(when=True):  # parsed plans stay
            scan = self._shelf.look(index)
        told = {file: problems for file, problems in self._doubles.items() if problems}
        if not told:
            return scan
        # Such a file is parsed in every scan, or the next one would not report it.
        known = {file: known_as for file, known_as in scan.index.items() if file not in told}
        problems = (*scan.problems, *chain.from_iterable(told.values()))
        return replace(scan, problems=problems, index=known)
