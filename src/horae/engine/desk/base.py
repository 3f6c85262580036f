"""What the stories at the desk share: who is meant, and how it is told."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from horae.engine.desk.errors import AmbiguousEntryError, EntryNotFoundError
from horae.engine.desk.shapes import EntryLine, Line
from horae.rules.entry import Entry
from horae.rules.misfire import Status
from horae.rules.words import words

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from datetime import datetime

    from horae.engine.ports import Filed, Ledger, Listed
    from horae.rules.gate import Machine

BATCH: Final = 1000  # receipts in one commit, or on one page
GOING: Final = frozenset({Status.STARTING, Status.RUNNING})
_NEAR: Final = 20_000  # so many names are looked through for one that was meant


class Dial(Protocol):
    """Whatever shows the time."""

    def now(self) -> datetime:
        """Return this moment, in UTC."""
        ...


class Base:
    """Knows one ledger, its clock, and who is meant by a word."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        clock: Dial,
        ids: Callable[[], str],
        term: int = 1,
        poke: Callable[[], None] = lambda: None,
        zone_name: str = "UTC",
        machines: Callable[[], Awaitable[Sequence[Machine]]] | None = None,
    ) -> None:
        self._machines = machines  # which of them are up, if several share the ledger
        self._ledger = ledger
        self._clock = clock
        self._ids = ids
        self._term = term
        self._poke = poke
        self._zone = zone_name  # of what has none of its own

    async def named(self, word: str) -> Listed:
        """Return the one entry that a person means by a word; those that are gone come last."""
        found = await self._ledger.find(word)
        entries = found or await self._ledger.entries()
        if not found:
            folded = word.casefold()
            found = [each for each in entries if each.mark.title.casefold() == folded]
        there = [each for each in found if each.gone_at is None] or found
        if len(there) == 1:
            return there[0]
        if there:
            raise AmbiguousEntryError(word, there)
        raise EntryNotFoundError(word, near=_near(word, entries))

    async def _lines(self, receipts: Iterable[Filed]) -> tuple[Line, ...]:
        """Return receipts with the zones of their entries."""
        known: dict[int, Listed | None] = {}
        lines = []
        for each in receipts:
            if each.entry not in known:
                known[each.entry] = await self._ledger.entry(each.entry)
            lines.append(self._line(each, known[each.entry]))
        return tuple(lines)

    def _line(self, filed: Filed, found: Listed | None) -> Line:
        """Return a receipt with the title and zone of its entry."""
        title = filed.title or (found.mark.title if found else "")
        return Line(filed, title, self._zone_of(found))

    def _entry_line(self, found: Listed) -> EntryLine:
        """Return an entry as people are told of it."""
        item, place = found.item, self._zone_of(found)
        return EntryLine(
            found.number,
            found.source,
            found.mark.title,
            found.mark.address,
            item.origin,
            place,
            found.is_armed,
            words(item.rule, zone_name=place) if isinstance(item, Entry) else "",
            "" if isinstance(item, Entry) else item.reason,
            found.first_seen_at,
            found.gone_at,
            found.pause,
            found.next_at,
            found.failures,
        )

    async def _again(self, found: Listed) -> EntryLine:
        """Return an entry as it is known now."""
        return self._entry_line(await self._ledger.entry(found.number) or found)

    def _zone_of(self, found: Listed | None) -> str:
        """Return the zone of an entry, else that of the plan."""
        item = found.item if found else None
        return item.zone if isinstance(item, Entry) else self._zone


def _near(word: str, entries: Sequence[Listed]) -> list[str]:
    """Return the names of entries that were perhaps meant, at most three."""
    from difflib import get_close_matches

    there = [each.mark for each in entries[-_NEAR:] if each.gone_at is None]
    ids = (mark.address.removeprefix("id:") for mark in there if mark.address.startswith("id:"))
    wanted = word.casefold()
    by_case = {name.casefold(): name for name in (*ids, *(mark.title for mark in there))}
    near = get_close_matches(wanted, by_case, n=3, cutoff=0.6)
    inside = (folded for folded in by_case if wanted and wanted in folded)
    return [by_case[each] for each in dict.fromkeys([*near, *islice(inside, 3)])][:3]
