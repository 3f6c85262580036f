"""The org plans beneath a plan root, as a source of entries.

A file is parsed again only if its bytes have changed, and then only the sections that
have. What the ledger already knows of a file that stands as it stood is not said again,
and after a restart not even read. One that cannot be read keeps its last good entries and
stops no other.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from horae.files.cache import FileCache
from horae.files.read import LIMIT, MOST
from horae.org.collector import collector_paused
from horae.org.document import read
from horae.sources.plans.arming import scan_plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from horae.core.receipt import Filed
    from horae.core.source import Scan, Scanned
    from horae.files.read import Content, StrPath
    from horae.org.plan import Plan

# To be raised when the same plan would give other entries: what was read before is read again.
READER: Final = 2


class OrgSource:
    """The workflows of all org plans beneath a root; files go by their path from there.

    With *inline* all is done in the caller's thread: a simulated world has only one.
    """

    name = "org"

    def __init__(
        self,
        root: StrPath,
        *,
        zone_name: str = "UTC",
        limit: int = LIMIT,
        most: int = MOST,
        inline: bool = False,
    ) -> None:
        self._zone_name = zone_name
        self._inline = inline
        self._shelf = FileCache(
            root,
            reader=f"org-{READER} {zone_name}",
            understand=self._understand,
            limit=limit,
            most=most,
        )

    async def scan(self, index: Mapping[str, str]) -> Scan:
        """Return the workflows of every plan that the ledger does not know as it stands."""
        if self._inline:
            return self._look(index)
        return await asyncio.to_thread(self._look, index)

    def _look(self, index: Mapping[str, str]) -> Scan:
        """Read what has changed, all of which is kept."""
        with collector_paused(when=True):
            return self._shelf.look(index)

    async def settle(self, receipt: Filed) -> None:
        """Do nothing: a plan is not changed by what became of it."""

    def _understand(
        self, content: Content, file: str, was: Plan | None
    ) -> tuple[Plan, tuple[Scanned, ...]]:
        plan = read(content.text, was=was)
        return plan, tuple(scan_plan(plan, file=file, zone_name=self._zone_name))
