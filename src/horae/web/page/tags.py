"""The tags of entries, as they stand where each is written: on a headline, or in a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from horae.core.entry import Entry
from horae.org.document import read
from horae.sources.board.task import parse

if TYPE_CHECKING:
    from horae.core.ports import Ledger, Listed

KEPT: Final = 20_000  # texts whose tags are remembered
_FENCE: Final = "---"
_KIND: Final = "workflow"  # what every workflow is tagged with tells none from another


def tags_of(text: str) -> tuple[str, ...]:
    r"""Return the tags of what a text defines.

    >>> tags_of("* Water the beds :workflow:garden:daily:\n** Fetch :component:\n")
    ('garden', 'daily')
    >>> tags_of("---\nid: 1\ntitle: Sow\nstatus: todo\ntags: [garden]\n---\n")
    ('garden',)
    >>> tags_of("Report for {{fire_time}}.")
    ()
    """
    if text.startswith(_FENCE):
        task = parse(text).task
        return () if task is None else task.tags
    if not text.startswith("*"):
        return ()
    headlines = read(text.partition("\n")[0]).headlines
    return tuple(tag for tag in headlines[0].tags if tag != _KIND) if headlines else ()


class Tags:
    """Tells the tags of entries; a text never changes what its digest stands for."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: dict[str, tuple[str, ...]] = {}

    async def of(self, found: Listed) -> tuple[str, ...]:
        """Return the tags of an entry."""
        digest = found.item.digest if isinstance(found.item, Entry) else ""
        if not digest:
            return ()
        if digest not in self._known:
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[digest] = tags_of(await self._ledger.text(digest) or "")
        return self._known[digest]
