"""The list of all entries: the state of each, and how a list is filtered and sorted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from horae.core.receipt import GOING, Status

ENDS: Final = 20  # of an entry in a list


class EntryState(StrEnum):
    RUNNING = "running"
    FAILING = "failing"  # its last run failed
    BROKEN = "broken"  # its text cannot be read; the last valid text is used
    ARMED = "armed"  # it runs when its rule says so
    PAUSED = "paused"
    UNARMED = "unarmed"  # it cannot run, and its reason says why
    NEW = "new"  # in the plan files, but no engine has read it yet
    GONE = "gone"  # no longer in the plan files


class EntrySort(StrEnum):
    TITLE = "title"
    STATE = "state"
    FILE = "file"
    NEXT = "next"
    LAST = "last"  # newest first


class EntrySummary(NamedTuple):
    """What a list of entries is filtered and sorted by: of 10,000 entries little more is read."""

    number: int
    source: str
    address: str
    title: str
    file: str
    line: int
    is_unarmed: bool
    is_paused: bool
    is_gone: bool
    is_broken: bool
    failures: int
    next_at: datetime | None
    last_at: datetime | None  # when its last receipt was scheduled
    last_status: Status | None
    is_new: bool = False

    @property
    def state(self) -> EntryState:
        if self.is_gone:
            return EntryState.GONE
        if self.last_status in GOING:
            return EntryState.RUNNING
        if self.is_paused:
            return EntryState.PAUSED
        if self.is_unarmed:
            return EntryState.UNARMED
        if self.is_broken:
            return EntryState.BROKEN
        if self.is_new:
            return EntryState.NEW
        return EntryState.FAILING if self.failures else EntryState.ARMED


class EntryFilter(NamedTuple):
    """Which entries a list has; an empty value excludes none."""

    states: Collection[str] = ()
    sources: Collection[str] = ()
    file: str = ""
    search: str = ""  # words that title, address and file have together
    agent: str = ""  # that the runs of an entry need
    with_gone: bool = False

    def has(self, entry: EntrySummary) -> bool:
        """Tell whether an entry fits, whatever its state and its agents."""
        if self.sources and entry.source not in self.sources:
            return False
        if self.file and entry.file != self.file:
            return False
        if not self.search:
            return True
        text = f"{entry.title} {entry.address} {entry.file}".casefold()
        return all(word in text for word in self.search.casefold().split())


ALL: Final = EntryFilter()


def filtered(
    entries: Iterable[EntrySummary], entry_filter: EntryFilter, sort: EntrySort
) -> tuple[list[EntrySummary], Counter[EntryState]]:
    """Return the entries of a list in its order, and how many of each state fit otherwise."""
    fitting = [(each.state, each) for each in entries if entry_filter.has(each)]
    counts = Counter(state for state, _ in fitting)
    states = entry_filter.states
    return _sorted([each for state, each in fitting if not states or state in states], sort), counts


_STATES: Final = {state: place for place, state in enumerate(EntryState)}
# What each list is sorted by before title and place.
_KEYS: Final[dict[EntrySort, Callable[[EntrySummary], tuple[Any, ...]]]] = {
    EntrySort.TITLE: lambda _: (),
    EntrySort.STATE: lambda each: (_STATES[each.state],),
    EntrySort.FILE: lambda each: (each.file, each.line),
    EntrySort.NEXT: lambda each: (each.next_at is None, each.next_at),
    EntrySort.LAST: lambda each: (each.last_at is None, each.last_at and -each.last_at.timestamp()),
}


def _sorted(entries: Sequence[EntrySummary], sort: EntrySort) -> list[EntrySummary]:
    key = _KEYS[sort]
    return sorted(entries, key=lambda e: (*key(e), e.title.casefold(), e.file, e.line))
