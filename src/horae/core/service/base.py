"""What the stories at the desk share: who is meant, and how it is told."""

from __future__ import annotations

import asyncio
import posixpath
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from horae.core.decide import Status
from horae.core.entry import Entry
from horae.core.service.errors import AmbiguousEntryError, EntryNotFoundError
from horae.core.service.shapes import EntryLine, Line
from horae.core.text import words

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from horae.core.command import Unready
    from horae.core.gate import Machine
    from horae.core.ports import Filed, Ledger, Listed

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
        places: Callable[[str], Iterable[str]] = lambda _: (),
        unready: Callable[[Iterable[Listed]], Awaitable[Mapping[int, Unready]]] | None = None,
        refuse_start: Callable[[], None] = lambda: None,
        refuse_name: Callable[[str], None] | None = None,
    ) -> None:
        self._refuse_start = refuse_start  # raises an error while nothing at all can start
        self._refuse_name = refuse_name  # raises an error if an address stands for several things
        self._unready = unready  # which entries cannot run
        self._places = places  # what the ledger may call a file that a person names
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
        for place in () if found else self._placed(word):
            found = found or await self._ledger.find(place)
        entries = found or await self._ledger.entries()
        if not found:
            folded = word.casefold()
            found = [each for each in entries if each.mark.title.casefold() == folded]
        there = [each for each in found if each.gone_at is None] or found
        if len(there) == 1:
            if not word.isdecimal():  # a number is its own
                await self._refuse_double(there[0])
            return there[0]
        if there:
            raise AmbiguousEntryError(word, there)
        raise EntryNotFoundError(word, near=_near(word, entries))

    async def _refuse_double(self, found: Listed) -> None:
        """Raise an error if nobody can tell what stands at the address of an entry."""
        if self._refuse_name is not None:
            await asyncio.to_thread(self._refuse_name, found.mark.address)

    def _placed(self, word: str) -> Iterable[str]:
        """Return how the ledger may write a `file:line` that a person wrote in another way."""
        file, _, line = word.rpartition(":")
        if not file or not (line.isascii() and line.isdecimal()):
            return ()
        files = dict.fromkeys([*self._places(file), posixpath.normpath(file)])
        return [each for each in (f"{name}:{line}" for name in files) if each != word]

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
            found.broken,
            found.broken_at,
        )

    async def _again(self, found: Listed) -> EntryLine:
        return self._entry_line(await self._ledger.entry(found.number) or found)

    def _zone_of(self, found: Listed | None) -> str:
        """Return the zone of an entry, else that of the plan."""
        item = found.item if found else None
        return item.zone if isinstance(item, Entry) else self._zone


def _near(word: str, entries: Sequence[Listed]) -> list[str]:
    """Return the names of entries that were perhaps meant, at most three, each entry once."""
    from difflib import get_close_matches

    wanted = word.casefold()
    by_case: dict[str, tuple[str, int]] = {}
    for each in (each for each in entries[-_NEAR:] if each.gone_at is None):
        mark = each.mark
        ids = [mark.address.removeprefix("id:")] if mark.address.startswith("id:") else []
        for name in (*ids, mark.title):
            by_case[name.casefold()] = name, each.number
    near = get_close_matches(wanted, by_case, n=6, cutoff=0.6)
    inside = islice((folded for folded in by_case if wanted and wanted in folded), 6)
    meant: dict[int, str] = {}
    for folded in (*near, *inside):
        name, number = by_case[folded]
        meant.setdefault(number, name)
    return list(meant.values())[:3]
