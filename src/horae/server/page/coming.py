"""Which entries fire from now on, and from when: one at rest does so when its rest is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horae.engine.ports import Trait
from horae.rules.entry import Entry
from horae.rules.recycle import is_net

if TYPE_CHECKING:
    from datetime import datetime

    from horae.engine.ports import Ledger, Listed


async def coming(ledger: Ledger, *, limit: int) -> list[Listed]:
    """Return the entries that come next, and those at rest that will go on by themselves."""
    resting = await ledger.entries_that_are(Trait.PAUSED, limit=limit)
    known = await ledger.coming(limit=limit)
    shown = (each for each in known if not (isinstance(each.item, Entry) and is_net(each.item)))
    return [*shown, *(each for each in resting if each.pause and each.pause.until)]


def fires_after(found: Listed, now: datetime) -> datetime | None:
    """Return the moment after which an entry fires as its rule says; None if it does not."""
    if not isinstance(found.item, Entry) or found.gone_at is not None or is_net(found.item):
        return None
    if found.pause is None:
        return now
    until = found.pause.until
    return None if until is None else max(now, until)
