"""The almanac: every entry by its next moment, and the one loop that decides.

A turn reads the clock once, asks the rules about all that has come due, and writes the
answers in batches before anybody hears of them. What should happen is said in the rules
and kept in the ledger; here it only happens. Whatever goes wrong in between, the same
turn again is safe: a moment that has its receipt is never decided twice.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, Protocol

from horae.engine.ports import Clock, LedgerBusyError, LedgerError, LedgerWriteError, Step
from horae.rules.armed import Scanned
from horae.rules.entry import Entry
from horae.rules.misfire import Status, decide
from horae.rules.project import next_moment
from horae.rules.receipt import OPEN, is_planned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from horae.engine.ports import Filed, Ledger
    from horae.engine.source import Scan, Source

LONGEST_REST: Final = timedelta(seconds=30)  # a machine that slept is noticed so soon
RETRY: Final = timedelta(seconds=1)  # after a ledger that could not be written
BATCH: Final = 1000  # entries in one commit
# More than a clock that is slewed drifts within a rest, less than the smallest step we promise.
DRIFT: Final = timedelta(milliseconds=500)


class Timepiece(Clock, Protocol):
    """A clock that also counts what really passes, and can wait."""

    def elapsed(self) -> timedelta:
        """Return how long it has run; nobody can set this."""
        ...

    async def wait(self, event: asyncio.Event, *, until: datetime) -> None:
        """Return when the moment has come or the event is set, whichever is first."""
        ...


@dataclass(frozen=True, slots=True)
class ClockStep:
    """The clock was set, or the machine slept: it shows *by* more than has passed."""

    at: datetime
    by: timedelta


class Almanac:
    """All entries of all sources, and the loop that keeps them."""

    def __init__(
        self,
        *,
        clock: Timepiece,
        ledger: Ledger,
        offer: Callable[[Sequence[Filed]], None],
        on_step: Callable[[ClockStep], None] | None = None,
        term: int = 1,
    ) -> None:
        self._clock = clock
        self._ledger = ledger
        self._offer = offer
        self._on_step = on_step
        self._term = term
        self._hours = _Hours()
        self._sources: dict[str, frozenset[int]] = {}
        self._ends: list[Filed] = []
        self._poked = asyncio.Event()
        self._turning = asyncio.Lock()
        self._scanning = asyncio.Lock()
        self._epoch: datetime | None = None
        self.trouble: LedgerError | None = None  # why the last turn could not write, if so

    async def run(self) -> None:
        """Turn for ever, resting until the next moment, a poke, or 30 s are over."""
        while True:
            wake_at = await self.turn()
            await self._clock.wait(self._poked, until=wake_at)

    async def turn(self) -> datetime:
        """Decide all that has come due and offer what waits; return when to wake."""
        async with self._turning:
            self._poked.clear()
            now = self._clock.now()
            self._compare_clocks(now)
            self._take_ends()
            try:
                await self._keep_up(now)
            except (LedgerBusyError, LedgerWriteError) as error:
                self.trouble = error
                return now + RETRY
            return min(self._hours.next_at or now + LONGEST_REST, now + LONGEST_REST)

    async def rescan(self, source: Source, *, commit: str | None = None) -> Scan:
        """Let the ledger take over what a source holds now, and arm what may fire of it."""
        # Of two scans the later one must also be the later one in the ledger.
        async with self._scanning:
            scan = await source.scan()
            async with self._turning:
                scanned = (*scan.entries, *await self._standing(source.name, scan))
                entries = await self._ledger.scan(
                    source.name, scanned, now=self._clock.now(), term=self._term, commit=commit
                )
                self._arm(source.name, entries)
        self.poke()
        return scan

    async def reread(self) -> None:
        """Arm what the ledger knows now of the sources that were scanned: a pause, a resume."""
        async with self._turning:
            await self._reread()
        self.poke()

    async def recover(self) -> None:
        """Offer what an engine before this one left waiting, in planned order."""
        self._hand_over(await self._open(Status.WAITING))

    def ended(self, receipt: Filed) -> None:
        """Take note of a receipt whose run ended, as the ledger gave it back."""
        self._ends.append(receipt)
        self.poke()

    def poke(self) -> None:
        """Let the loop turn at once."""
        self._poked.set()

    async def _keep_up(self, now: datetime) -> None:
        """Decide what has come due; after a ledger that failed, offer what it kept after all."""
        if self.trouble is not None:
            await self.recover()
            self.trouble = None
        due = self._hours.take(now)
        if due:
            await self._decide_all(due, now)

    async def _decide_all(self, due: Sequence[Entry], now: datetime) -> None:
        """Decide about entries in batches; those that somebody else decided are read again."""
        is_stale = False
        try:
            busy = frozenset(each.entry for each in await self._open(*OPEN))
            for start in range(0, len(due), BATCH):
                is_stale |= await self._decide(due[start : start + BATCH], busy, now)
        finally:
            self._hours.put_back(due)
        if is_stale:
            await self._reread()

    async def _decide(self, entries: Sequence[Entry], busy: frozenset[int], now: datetime) -> bool:
        """Write one batch of decisions; tell whether an entry was no longer as it was read."""
        steps = [
            Step(entry, decide(entry, now=now, is_busy=entry.number in busy)) for entry in entries
        ]
        filed = await self._ledger.decide(steps, now=now, term=self._term)
        self._hand_over(each for each in filed if each.status is Status.WAITING)
        written = {each.entry for each in filed}
        for step in steps:
            if step.entry.number in written:
                self._hours.put(_after(step))
        return len(written) < len(steps)

    async def _open(self, *statuses: Status) -> list[Filed]:
        """Return the receipts that are not final and have one of these statuses."""
        page = await self._ledger.receipts(statuses=statuses, limit=BATCH)
        found = list(page.receipts)
        while page.cursor is not None:
            page = await self._ledger.receipts(statuses=statuses, limit=BATCH, cursor=page.cursor)
            found += page.receipts
        return found

    def _hand_over(self, waiting: Iterable[Filed]) -> None:
        """Offer receipts, those that were planned first before the others."""
        ordered = sorted(waiting, key=lambda each: (each.receipt.planned_at, each.number))
        if ordered:
            self._offer(ordered)

    def _take_ends(self) -> None:
        """Let entries count from their last ends, and offer what is tried again."""
        ends, self._ends = self._ends, []
        for filed in ends:
            if filed.ended_at is not None and is_planned(filed.receipt.key):
                self._hours.end(filed.entry, filed.ended_at)
        self._hand_over(filed for filed in ends if filed.status is Status.WAITING)

    async def _standing(self, name: str, scan: Scan) -> list[Scanned]:
        """Return what is known of files that the scan could not read and says nothing of."""
        if not scan.unread:
            return []
        said = {each.mark.address for each in scan.entries}
        return [
            Scanned(known.mark, known.item)
            for known in await self._ledger.entries(source=name)
            if known.gone_at is None
            and known.mark.address not in said
            and scan.leaves_open(known.item.origin.file)
        ]

    async def _reread(self) -> None:
        """Arm what the ledger knows now of every source that was scanned."""
        for name in list(self._sources):
            known = await self._ledger.entries(source=name)
            armed = [each.item for each in known if each.is_armed and isinstance(each.item, Entry)]
            self._arm(name, armed)

    def _arm(self, name: str, entries: Sequence[Entry]) -> None:
        """Let exactly these entries of a source be the ones that may fire."""
        numbers = frozenset(entry.number for entry in entries)
        for number in self._sources.get(name, frozenset()) - numbers:
            self._hours.drop(number)
        for entry in entries:
            self._hours.put(entry)
        self._sources[name] = numbers

    def _compare_clocks(self, now: datetime) -> None:
        """Notice that the clock shows more, or less, than has passed since the last turn."""
        epoch = now - self._clock.elapsed()
        by = timedelta(0) if self._epoch is None else epoch - self._epoch
        self._epoch = epoch
        if abs(by) >= DRIFT and self._on_step is not None:
            self._on_step(ClockStep(now, by))


class _Hours:
    """Entries by their next decided moment.

    The heap is never searched: what was replaced or dropped is passed over when met.
    """

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._at: dict[int, datetime] = {}
        self._heap: list[tuple[datetime, int]] = []

    @property
    def next_at(self) -> datetime | None:
        """The first moment of all, if there is one."""
        while self._heap and not self._is_current(*self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def put(self, entry: Entry) -> None:
        """Arm an entry, in place of what was known under its number."""
        number = entry.number
        if number in self._at and self._entries[number] == entry:
            return
        self._entries[number] = entry
        self._place(entry)

    def take(self, now: datetime) -> list[Entry]:
        """Return the entries that have come due, in planned order; `put_back` must follow."""
        due = []
        while (at := self.next_at) is not None and at <= now:
            _, number = heappop(self._heap)
            del self._at[number]
            due.append(self._entries[number])
        return due

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Find their place again for entries that were taken, as they are known now."""
        for entry in entries:
            if entry.number not in self._at:
                self._place(self._entries[entry.number])

    def end(self, number: int, ended_at: datetime) -> None:
        """Let an entry count from the end of its last run."""
        entry = self._entries.get(number)
        if entry is not None:
            self.put(replace(entry, ended_at=ended_at))

    def drop(self, number: int) -> None:
        """Forget an entry."""
        self._entries.pop(number, None)
        self._at.pop(number, None)

    def _place(self, entry: Entry) -> None:
        """Put an entry where its next moment is; one that waits for an end has none yet."""
        at = _next_at(entry)
        if at is None:
            self._at.pop(entry.number, None)
        elif self._at.get(entry.number) != at:
            self._at[entry.number] = at
            heappush(self._heap, (at, entry.number))
            self._tidy()

    def _tidy(self) -> None:
        """Drop what was replaced, once it is most of the heap."""
        if len(self._heap) > 2 * len(self._at) + BATCH:
            self._heap = [(at, number) for number, at in self._at.items()]
            heapify(self._heap)

    def _is_current(self, at: datetime, number: int) -> bool:
        return self._at.get(number) == at


def _next_at(entry: Entry) -> datetime | None:
    """Return the next moment that can be decided: one that is no estimate."""
    if entry.accounted_to is None:
        return None
    coming = next_moment(entry, entry.accounted_to)
    return None if coming is None or coming.is_estimate else coming.at


def _after(step: Step) -> Entry:
    """Return an entry as the ledger has it after a decision."""
    decision = step.decision
    return replace(step.entry, accounted_to=decision.accounted_to, ended_at=decision.ended_at)
