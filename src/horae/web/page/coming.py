"""Which entries fire from now on; a paused one does so when its pause is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horae.core.entry import Entry
from horae.core.ports import Trait
from horae.sources.board.recycle import is_net

if TYPE_CHECKING:
    from horae.core.ports import Ledger, Listed


async def coming(ledger: Ledger, *, limit: int) -> list[Listed]:
    """Return the entries that come next, and the paused ones that go on by themselves."""
    resting = await ledger.entries_that_are(Trait.PAUSED, limit=limit)
    known = await ledger.coming(limit=limit)
    shown = (each for each in known if not (isinstance(each.item, Entry) and is_net(each.item)))
    return [*shown, *(each for each in resting if each.pause and each.pause.until)]


def firing(found: Listed) -> Entry | None:
    """Return the entry whose moments are shown; None if none are."""
    item = found.item
    is_shown = isinstance(item, Entry) and found.gone_at is None and not is_net(item)
    return item if isinstance(item, Entry) and is_shown else None
