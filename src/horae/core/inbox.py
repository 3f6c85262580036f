"""The list of all entries, filtered and sorted, and the inbox: the entries that need attention.

An entry leaves the inbox when it has recovered, when a user has paused it, and when a user has
acknowledged its state. It comes back when a snooze ends, and with another state or the same anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from horae.core.actor import ENGINE
from horae.core.decide import GRACE
from horae.core.ports import PATIENCE, Listed
from horae.core.receipt import GOING, Filed, ReasonCode, Status


class InboxState(StrEnum):
    """Why an entry needs attention, the most urgent first."""

    APPROVAL = "approval"  # a run waits for approval
    BROKEN = "broken"  # its text cannot be read
    FAILING = "failing"  # its last run failed
    STOPPED = "stopped"  # the engine paused it after failures
    OVER_BUDGET = "over_budget"  # a budget has no room for its run
    HELD = "held"  # a run lacks something
    LATE = "late"  # a run should have started by now
    MISSED = "missed"  # its last scheduled time has no run
    MISSING = "missing"  # it is no longer in its plan


class BadResult(NamedTuple):
    filed: Filed
    since: datetime  # the scheduled time of the first bad result in a row
    times: int  # bad results in a row


class Acknowledged(NamedTuple):
    entry: int
    state: InboxState
    since: datetime
    at: datetime
    until: datetime | None  # the end of a snooze
    note: str
    actor: str


class Attention(NamedTuple):
    entry: int
    state: InboxState
    since: datetime
    reason: str
    code: str = ""
    receipts: tuple[int, ...] = ()  # the newest first, or all that wait for approval
    times: int = 1
    known: Acknowledged | None = None

    def is_hidden(self, now: datetime) -> bool:
        """Return whether this state is acknowledged and not snoozed beyond *now*."""
        known = self.known
        if known is None or (known.state, known.since) != (self.state, self.since):
            return False
        return known.until is None or known.until > now


_ORDER: Final = {state: place for place, state in enumerate(InboxState)}


def attention(
    bad: Iterable[BadResult],
    pending: Iterable[Filed],
    troubled: Iterable[Listed],
    acknowledged: Iterable[Acknowledged] = (),
    *,
    now: datetime,
    wholes: Mapping[int, int] = MappingProxyType({}),
) -> list[Attention]:
    """Return the entries that need attention, each once, the most urgent first.

    *wholes* are the entries that others are parts of.
    """
    worst: dict[int, Attention] = {}
    found = [*map(_of_result, bad), *_of_pending(pending, now), *_of_entries(troubled, now)]
    for each in (each._replace(entry=wholes.get(each.entry, each.entry)) for each in found):
        known = worst.get(each.entry)
        if known is None or _ORDER[each.state] < _ORDER[known.state]:
            worst[each.entry] = each
    for about in acknowledged:
        if about.entry in worst:
            worst[about.entry] = worst[about.entry]._replace(known=about)
    lines = sorted(worst.values(), key=lambda each: each.since, reverse=True)
    return sorted(lines, key=lambda each: _ORDER[each.state])


def _of_result(bad: BadResult) -> Attention:
    filed, reason = bad.filed, bad.filed.receipt.reason
    state = InboxState.FAILING
    if reason.code == ReasonCode.BUDGET:
        state = InboxState.OVER_BUDGET
    elif filed.status in {Status.MISSED, Status.SKIPPED}:
        state = InboxState.MISSED
    about = filed.entry, state, bad.since, str(reason), reason.code
    return Attention(*about, (filed.number,), bad.times)


def _of_pending(pending: Iterable[Filed], now: datetime) -> Iterable[Attention]:
    asked: dict[int, list[Filed]] = {}
    for filed in pending:
        receipt, reason = filed.receipt, filed.receipt.reason
        if filed.status is Status.WAITING and receipt.start_at < now - GRACE:
            about = filed.entry, InboxState.LATE, receipt.start_at, str(reason), reason.code
            yield Attention(*about, (filed.number,))
        elif filed.status is Status.HELD and reason.code == ReasonCode.APPROVAL_REQUIRED:
            asked.setdefault(filed.entry, []).append(filed)
        elif filed.status is Status.HELD:
            is_budget = reason.code == ReasonCode.BUDGET
            state = InboxState.OVER_BUDGET if is_budget else InboxState.HELD
            about = filed.entry, state, filed.decided_at, str(reason), reason.code
            yield Attention(*about, (filed.number,))
    for entry, some in asked.items():
        first, numbers = some[0], tuple(each.number for each in some)
        reason = first.receipt.reason
        about = entry, InboxState.APPROVAL, first.decided_at, str(reason), reason.code
        yield Attention(*about, numbers, len(numbers))


def _of_entries(troubled: Iterable[Listed], now: datetime) -> Sequence[Attention]:
    found = []
    for each in troubled:
        pause = each.pause
        if pause is not None and pause.by != ENGINE:
            continue  # acknowledged
        if each.broken:
            since = each.broken_at or each.first_seen_at
            found.append(Attention(each.number, InboxState.BROKEN, since, each.broken))
        elif each.missing_at is not None and now - each.missing_at > 5 * PATIENCE:
            words = f"not found in {each.item.origin.file}"
            found.append(Attention(each.number, InboxState.MISSING, each.missing_at, words))
        elif pause is not None:
            words = f"paused by the engine: {pause.note}" if pause.note else "paused by the engine"
            found.append(Attention(each.number, InboxState.STOPPED, pause.at, words))
    return found


ENDS: Final = 20  # ends per entry in a list


class EntryState(StrEnum):
    RUNNING = "running"
    FAILING = "failing"  # its last run failed
    BROKEN = "broken"  # its text cannot be read; the last valid text is used, if there is one
    ARMED = "armed"  # its rule decides when it runs
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
    """The fields by which a list of entries is filtered and sorted."""

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

    def joined(self, part: EntrySummary) -> EntrySummary:
        ends = [each for each in (self, part) if each.last_at is not None]
        ends.sort(key=lambda each: (each.last_status in GOING, each.last_at))
        newest = ends[-1] if ends else self
        joined = self._replace(last_at=newest.last_at, last_status=newest.last_status)
        if part.is_gone:
            return joined
        return joined._replace(
            is_unarmed=self.is_unarmed or part.is_unarmed,
            is_paused=self.is_paused or part.is_paused,
            failures=max(self.failures, part.failures),
            next_at=min(filter(None, (self.next_at, part.next_at)), default=None),
        )

    @property
    def state(self) -> EntryState:
        if self.is_gone:
            return EntryState.GONE
        if self.last_status in GOING:
            return EntryState.RUNNING
        if self.is_paused:
            return EntryState.PAUSED
        if self.is_broken:
            return EntryState.BROKEN
        if self.is_unarmed:
            return EntryState.UNARMED
        if self.is_new:
            return EntryState.NEW
        return EntryState.FAILING if self.failures else EntryState.ARMED


_PARTS: Final = frozenset({"work", "back"})


def whole_of(address: str) -> str:
    """Return the address of the entry that a part belongs to; empty if it is not a part.

    A recurring task is one entry. Its dispatch and its recycling are parts of it with receipts of
    their own.

    >>> whole_of("task:7:work"), whole_of("task:7")
    ('task:7', '')
    """
    whole, _, part = address.rpartition(":")
    return whole if part in _PARTS and whole.startswith("task:") else ""


def parts_of(address: str) -> list[str]:
    is_task = address.startswith("task:") and not whole_of(address)
    return [f"{address}:{part}" for part in sorted(_PARTS)] if is_task else []


def without_parts(found: Sequence[Listed]) -> list[Listed]:
    known = {each.mark.address: each.gone_at is None for each in found}

    def is_alone(each: Listed) -> bool:
        whole = known.get(whole_of(each.mark.address))
        return whole is None or (not whole and each.gone_at is None)

    return [each for each in found if is_alone(each)]


def fold_parts(entries: Sequence[EntrySummary]) -> tuple[list[EntrySummary], dict[int, int]]:
    known = {each.address: each for each in entries if each.address.startswith("task:")}
    wholes: dict[int, int] = {}
    for each in list(known.values()):
        whole = known.get(whole_of(each.address))
        if whole is not None and (each.is_gone or not whole.is_gone):
            known[whole.address] = whole.joined(each)
            wholes[each.number] = whole.number
    listed = (known.get(each.address, each) for each in entries if each.number not in wholes)
    return [*listed], wholes


class EntryFilter(NamedTuple):
    """The filter of a list of entries; an empty value excludes none."""

    states: Collection[str] = ()
    sources: Collection[str] = ()
    file: str = ""
    search: str = ""  # words, each in the title, the address or the file
    agent: str = ""  # an agent of its runs
    with_gone: bool = False

    def has(self, entry: EntrySummary) -> bool:
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
    """Return the matching entries in order, and how many of each state match otherwise."""
    fitting = [(each.state, each) for each in entries if entry_filter.has(each)]
    counts = Counter(state for state, _ in fitting)
    states = entry_filter.states
    return _sorted([each for state, each in fitting if not states or state in states], sort), counts


_STATES: Final = {state: place for place, state in enumerate(EntryState)}
# Sort keys that precede title and origin.
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
