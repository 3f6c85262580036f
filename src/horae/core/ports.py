"""What the engine asks of the outside: a clock, a ledger and a runner, and the words they speak in.

A writing method of the ledger is a promise kept by one transaction. A race that was
lost is an answer (False, None, nothing), never an error. Each writing call carries the
term of the engine that makes it; one whose term is over changes nothing and is told so
by `StaleTermError`, because it must stop, not try again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar, overload

from msgspec import Struct, field

from horae.core.actor import ENGINE
from horae.core.budget import Balance, Purse, Usage
from horae.core.command import CommandCall, Unready
from horae.core.decide import Decision
from horae.core.entry import Entry, Occasion, Pause, Unarmed
from horae.core.receipt import (
    NO_REASON,
    RECEIPT_STATUSES,
    Filed,
    Reason,
    ReasonCode,
    Receipt,
    Status,
    coded,
)
from horae.core.source import Mark
from horae.errors import Exit, HoraeError
from horae.org.plan import Plan

if TYPE_CHECKING:
    import asyncio

    from horae.core.agent import Agent
    from horae.core.inbox import Acknowledged, BadResult, EntrySummary, InboxState
    from horae.core.source import Revision, Scan
    from horae.core.spending import AccountLimit
    from horae.core.tool_policy import ToolPolicy

T = TypeVar("T")

PATIENCE: Final = timedelta(seconds=2)  # how long an entry may be missing before it is gone
ANYBODY: Final = 0  # the term of what a person asks for, whoever decides
FRESH_LEDGER: Final = "fresh_ledger"  # the first event of one that was begun in place of a lost one


class LedgerError(HoraeError, code="ledger"):
    def __init__(self, place: str, reason: str, *, remedy: str) -> None:
        self.place, self.reason, self.remedy = place, reason, remedy
        super().__init__(f"{place}: {reason}; {remedy}")


class LedgerUnavailableError(LedgerError, exit_code=Exit.TEMPORARY):
    """A ledger that cannot be used now; to ask again is safe."""


class LedgerBusyError(LedgerUnavailableError, code="ledger_busy"):
    """A ledger that another process keeps from being written; it may be free soon."""


class LedgerWriteError(LedgerUnavailableError, code="ledger_write"):
    """A ledger that the disk does not take; to write the same again is safe."""


class LedgerDamagedError(LedgerError, code="ledger_damaged", exit_code=Exit.VERIFICATION):
    """A ledger that is corrupt, cut short, empty, gone, or not one of ours."""


class LedgerWholeError(LedgerError, code="ledger_whole", exit_code=Exit.CONFLICT):
    def __init__(self, place: str) -> None:
        super().__init__(
            place, "the ledger is intact and is not replaced", remedy="start without --fresh-ledger"
        )


class LedgerNewerError(LedgerError, code="ledger_newer", exit_code=Exit.VERIFICATION): ...


class StaleTermError(LedgerError, code="stale_term", exit_code=Exit.CONFLICT):
    """A write by an engine whose term is over: another one decides now."""

    def __init__(self, place: str, *, term: int, current: int) -> None:
        self.term, self.current = term, current
        reason = f"term {term} has ended, the ledger is in term {current}; nothing was written"
        super().__init__(place, reason, remedy="this engine must stop")


class DueEntry(Struct, frozen=True, gc=False):
    """An armed entry whose next moment has come; busy while a receipt of its own rule is open."""

    entry: Entry
    is_busy: bool = False


class EntryStep(Struct, frozen=True, gc=False):
    entry: Entry
    decision: Decision


class ReceiptPage(Struct, frozen=True, gc=False):
    receipts: tuple[Filed, ...]
    cursor: int | None


class Process(Struct, frozen=True, gc=False):
    """Which process it is; numbers are used again, so its start time belongs to it."""

    pid: int
    started: int


class ReceiptFilter(NamedTuple):
    entries: frozenset[int] | None = None  # None: of every entry
    statuses: tuple[Status, ...] = RECEIPT_STATUSES


EVERY: Final = ReceiptFilter()


class OutcomeCount(NamedTuple):
    """How many scheduled times of a lane came to what; the lane of agents is a JSON list."""

    at: datetime  # the start of the step
    status: Status
    times: int
    lane: str
    first_at: datetime
    last_at: datetime
    receipt: int  # the newest


class RunSpan(Struct, frozen=True, gc=False):
    """A receipt with one of its runs, as a picture of time needs it."""

    receipt: int
    entry: int
    title: str
    file: str
    agents: tuple[str, ...]
    parent: int | None
    status: Status
    reason: Reason
    planned_at: datetime
    through_at: datetime | None
    start_at: datetime
    decided_at: datetime
    run: int | None = None  # none was let go
    begun_at: datetime | None = None
    over_at: datetime | None = None  # None: the run goes on
    outcome: Status | None = None
    node: str = ""  # in a cluster


class Run(Struct, frozen=True):
    """One attempt; `outcome` is None while it lasts, and when it was given back unused."""

    number: int
    receipt: int
    attempt: int
    started_at: datetime
    process: Process | None = None
    ended_at: datetime | None = None
    outcome: Status | None = None
    exit_code: int | None = None
    reason: Reason = NO_REASON
    facts: Mapping[str, object] = field(default_factory=dict)  # what else is known of it
    member: str = ""  # which member of a cluster made it


class SpentRun(NamedTuple):
    """What a run used, in millionths of a dollar and in tokens."""

    at: datetime
    cost: int | None
    tokens: int | None
    entry: int
    title: str
    agents: tuple[str, ...]


class Event(Struct, frozen=True):
    number: int
    at: datetime
    kind: str
    entry: int | None = None
    receipt: int | None = None
    facts: Mapping[str, object] = field(default_factory=dict)
    actor: str = ENGINE  # on whose behalf


class Listed(Struct, frozen=True, gc=False):
    """An entry as the ledger knows it, armed or not, also long after it is gone."""

    number: int
    source: str
    mark: Mark
    item: Entry | Unarmed
    first_seen_at: datetime
    gone_at: datetime | None = None
    missing_at: datetime | None = None  # since when scans miss it; soon it is gone
    pause: Pause | None = None
    next_at: datetime | None = None  # its next moment that can be decided, if it is armed
    failures: int = 0  # receipts in a row that ended badly
    streak: int = 0  # ticks in a row that found no work
    ticks: int = 0
    memory: str = ""  # what its runs hand on from one to the next
    broken: str = ""  # why its text cannot be read, if it cannot
    broken_at: datetime | None = None  # since when its last good text is kept instead

    @property
    def is_armed(self) -> bool:
        return isinstance(self.item, Entry) and self.gone_at is None and self.pause is None

    @property
    def agents(self) -> tuple[str, ...]:
        return self.item.agents if isinstance(self.item, Entry) else ()


class Trait(StrEnum):
    AGENT = "agent"  # it ticks
    PAUSED = "paused"
    UNARMED = "unarmed"
    FAILING = "failing"  # its last three ends were bad
    MISSING = "missing"  # scans miss it
    BROKEN = "broken"  # its text cannot be read


class EntryCounts(Struct, frozen=True):
    armed: int
    overdue: int


class Pruned(Struct, frozen=True):
    receipts: int
    runs: int
    events: int
    texts: int


class Clock(Protocol):
    def now(self) -> datetime: ...
    def elapsed(self) -> timedelta: ...
    async def wait(self, event: asyncio.Event, *, until: datetime) -> None: ...


class Ledger(Protocol):
    async def index(self, source: str) -> dict[str, str]:
        """Return by what each file of a source was known at its last scan, if it could be read."""

    async def scan(
        self,
        source: str,
        scan: Scan,
        *,
        now: datetime,
        term: int,
        revision: Revision | None = None,
        patience: timedelta = PATIENCE,
    ) -> datetime | None:
        """Take over a scan; return when to look again, if something is missing.

        What is new begins now, and what changed its rule is closed without firing. What is
        missing is gone when a scan *patience* later misses it, too.
        """

    async def knows(self, source: str) -> bool: ...
    async def loose(self, source: str) -> list[str]: ...
    async def entry(self, number: int) -> Listed | None: ...

    async def find(self, word: str) -> list[Listed]:
        """Return the entries that a word may mean, those that are still there first.

        The first that fits of number, address, `:ID:`, title and `file:line`. What is gone is
        only meant if nothing that is there goes by that word.
        """

    async def entries(self, *, source: str | None = None) -> list[Listed]: ...
    async def entries_at(self, numbers: Sequence[int]) -> list[Listed]: ...
    async def summaries(self, *, with_gone: bool = False) -> list[EntrySummary]: ...
    async def coming(self, *, limit: int = 20) -> list[Listed]: ...
    async def count_entries(self, *, due_before: datetime) -> EntryCounts: ...
    async def entries_that_are(self, trait: Trait, *, limit: int) -> list[Listed]: ...
    async def followers(self) -> list[Listed]: ...
    async def due(self, *, now: datetime, limit: int = 1000) -> list[DueEntry]: ...
    async def wake_at(self) -> datetime | None: ...

    async def decide(self, steps: Sequence[EntryStep], *, now: datetime, term: int) -> list[Filed]:
        """Move watermarks and file receipts, all at once; return what was filed.

        An entry that is no longer as it was read is left alone.
        """

    async def add(
        self,
        entry: int,
        receipts: Sequence[Receipt],
        *,
        now: datetime,
        term: int,
        parent: int | None = None,
        agents: tuple[str, ...] | None = None,
    ) -> list[Filed]:
        """File requests, all at once; the same key gives the same receipt back.

        *agents* replace the entry's own. Nothing is returned unless the entry is armed.
        """

    async def start_many(
        self, receipts: Sequence[Filed], *, now: datetime, term: int
    ) -> list[Job | None]:
        """Take waiting receipts, open their runs and return all that these need.

        None: the receipt does not wait.
        """

    async def running_many(
        self, made: Sequence[tuple[int, Process]], *, now: datetime, term: int
    ) -> list[bool]:
        """Note the processes of runs that are about to be let go; False: the run is over."""

    async def give_back(
        self, run: int, *, reason: Reason, now: datetime, term: int, died: bool = False
    ) -> bool:
        """Let the receipt of a run that was never let go wait again; *died*: the engine did."""

    async def end_many(
        self, ends: Sequence[RunEnd], *, now: datetime, term: int
    ) -> list[RunOver | None]:
        """Record how runs ended, and what follows: a retry, or the end of the receipt.

        Run, receipt, the entry's last end, streaks, next moment and pause move together. A receipt
        that its source has settled is so, unless an alert may follow it. A run that a usage limit
        ended is no attempt, and its receipt is held. None: the run was over.
        """

    async def hold(
        self, receipt: int, *, reason: Reason, now: datetime, term: int, account: str = ""
    ) -> bool:
        """Hold a receipt; that of an *account* until its usage limit is over."""

    async def outcomes(
        self,
        *,
        since: datetime,
        until: datetime,
        step: timedelta,
        lane: str = "",
        which: ReceiptFilter = EVERY,
    ) -> list[OutcomeCount]:
        """Return how many scheduled times came to what, by step of a period.

        And by *lane*: `entry`, `file`, `agent`, or without one.
        """

    async def first_entries(
        self, *, since: datetime, until: datetime, limit: int, which: ReceiptFilter = EVERY
    ) -> list[int]:
        """Return the entries that have receipts in a period, by the time of their first."""

    async def spans(
        self, *, since: datetime, until: datetime, limit: int, which: ReceiptFilter = EVERY
    ) -> list[RunSpan]:
        """Return the last receipts of a period with their runs, one for each, newest first."""

    async def bad_results(self) -> list[BadResult]:
        """Return the newest results of entries that may run where they are bad, newest first."""

    async def acknowledged(self) -> list[Acknowledged]: ...

    async def acknowledge(
        self,
        entry: int,
        *,
        now: datetime,
        term: int,
        state: InboxState | None,
        since: datetime,
        until: datetime | None = None,
        note: str = "",
    ) -> None:
        """Write down that a user knows what is wrong with an entry; no state takes that back."""

    async def limits(self) -> list[AccountLimit]: ...

    async def ask_account(
        self, account: str, receipt: int, *, now: datetime, term: int
    ) -> AccountLimit | None:
        """Return the limit that keeps a receipt from using an account; None: it may use it.

        When a limit is over, the first receipt that asks may, and others when it has ended well.
        """

    async def free_limited(self, *, now: datetime, term: int) -> list[int]:
        """Let receipts wait again whose account has no limit, and one of each whose limit is over.

        Return the receipts.
        """

    async def release(self, receipt: int, *, reason: Reason, now: datetime, term: int) -> bool: ...
    async def settle(self, receipts: Iterable[int], *, now: datetime, term: int) -> int: ...
    async def unsettled(self, *, after: int = 0, limit: int = 1000) -> list[Filed]: ...

    async def pause(
        self, entry: int, *, now: datetime, term: int, note: str = "", until: datetime | None = None
    ) -> int | None:
        """Pause an entry, and return how many waiting receipts are skipped by that.

        None: it is gone, or paused already.
        """

    async def resume(self, entry: int, *, now: datetime, term: int) -> bool: ...
    async def wake(self, *, now: datetime, term: int) -> list[int]: ...

    async def set_back(self, *, now: datetime, term: int) -> int:
        """Let entries go on whose watermark a clock that ran ahead has left in the future.

        What ran keeps its key, so it never runs again; other decisions give theirs up.
        """

    async def receipt(self, number: int) -> Filed | None: ...

    async def receipts(
        self,
        *,
        entry: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        statuses: Collection[Status] = (),
        cursor: int | None = None,
        limit: int = 100,
    ) -> ReceiptPage: ...
    async def late(
        self, *, since: datetime, until: datetime, by: timedelta, limit: int = 1000
    ) -> list[Filed]: ...
    async def count_open(self) -> dict[Status, int]: ...
    async def runs_of(self, receipt: int) -> list[Run]: ...
    async def run(self, number: int) -> Run | None: ...
    async def last_run(self, entry: int) -> Run | None: ...
    async def newest_ends(self) -> frozenset[int]:
        """Return the newest run of each entry that ended well, and the newest that did not."""
        ...

    async def draw(
        self, run: int, purses: Sequence[Purse], *, now: datetime, term: int
    ) -> list[Balance]:
        """Let a run draw on purses if each of them has room; return where they stand without it."""

    async def use(
        self, run: int, purses: Sequence[Purse], usage: Usage, *, now: datetime, term: int
    ) -> Balance | None:
        """Note what a run in progress has used so far; return a purse that it exceeds, if any."""

    async def refuse(self, run: int, balance: Balance, *, now: datetime, term: int) -> bool:
        """Give back a run for which a purse has no room; its receipt is skipped.

        A request, and what fires once, is held until the next period of the purse begins.
        """

    async def balances(
        self,
        purses: Sequence[Purse],
        *,
        now: datetime,
        entry: int,
        through: tuple[datetime, int] | None = None,
    ) -> list[Balance]:
        """Return where purses stand, or stood when the run of a number had ended at a time."""

    async def costs(self, *, since: datetime, until: datetime) -> list[SpentRun]: ...
    async def costs_of(self, receipts: Iterable[int]) -> dict[int, Usage]: ...
    async def usual(self, entries: Iterable[int]) -> dict[int, list[Usage]]: ...
    async def open_runs(self) -> list[tuple[Filed, Run]]: ...
    async def remember(self, entry: int, memory: str, *, term: int) -> None: ...

    async def note(
        self,
        kind: str,
        *,
        now: datetime,
        term: int,
        entry: int | None = None,
        receipt: int | None = None,
        facts: Mapping[str, object] | None = None,
    ) -> None: ...
    async def newest_event(self) -> int: ...
    async def events_after(self, number: int, *, limit: int = 1000) -> list[Event]: ...
    async def text(self, digest: str) -> str | None: ...

    async def prune(
        self, *, before: datetime, now: datetime, term: int, dry_run: bool = False
    ) -> Pruned: ...


class LedgerRow(Protocol):
    def __getitem__(self, name: str | int, /) -> Any: ...


class LedgerTransaction(Protocol):
    """What a source may do with a table of its own in the ledger, together with its entries.

    Queries go by name, such as `trigger.page`, and take moments as they are.
    """

    def every(self, read: Callable[[LedgerRow], T], query: str, /, **values: Any) -> list[T]: ...
    def one(self, read: Callable[[LedgerRow], T], query: str, /, **values: Any) -> T | None: ...
    def change(self, query: str, /, **values: Any) -> int: ...
    def tell(self, kind: str, *, now: datetime, facts: Mapping[str, object]) -> None: ...
    def keep_texts(self, texts: Iterable[tuple[str, str]], *, now: datetime) -> None: ...
    def spec_of(self, entry: Entry, /) -> str: ...
    def receipt_in(self, row: LedgerRow, /) -> Filed: ...
    def scan(self, source: str, scan: Scan, *, now: datetime) -> datetime | None: ...
    def rows_at(self, source: str, addresses: Collection[str]) -> Sequence[LedgerRow]: ...
    def entry(self, number: int) -> Listed | None: ...
    def remove_entry(self, was: Listed, *, reason: Reason, now: datetime) -> None: ...
    def receipt(self, number: int) -> Filed | None: ...
    def receipt_of(self, entry: int, key: str) -> Filed | None: ...
    def add(self, number: int, receipts: Sequence[Receipt], *, now: datetime) -> list[Filed]: ...
    def move(self, filed: Filed, status: Status, *, reason: Reason, now: datetime) -> bool: ...
    def finish(self, filed: Filed, status: Status, *, reason: Reason, now: datetime) -> bool: ...


class SourceLedger(Protocol):
    async def read(self, work: Callable[[LedgerTransaction], T]) -> T: ...
    async def write(self, term: int, work: Callable[[LedgerTransaction], T]) -> T: ...


# How moments, texts and JSON are written down in a ledger: a moment is a whole number of
# microseconds since 1970 in UTC, which is exact, small, and in order.
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TINY: Final = timedelta(microseconds=1)
_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False)


@overload
def micros(moment: datetime) -> int: ...
@overload
def micros(moment: datetime | None) -> int | None: ...
def micros(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - _EPOCH) // _TINY


@overload
def moment(number: int) -> datetime: ...
@overload
def moment(number: int | None) -> datetime | None: ...
def moment(number: int | None) -> datetime | None:
    return None if number is None else _EPOCH + timedelta(microseconds=number)


def plain(text: str) -> str:
    r"""Return a text that any store takes: half a surrogate pair and a null are spelled out.

    >>> plain("Digest \ud800\0")
    'Digest \\ud800\\x00'
    """
    if "\0" in text:
        text = text.replace("\0", r"\x00")
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def read_json(text: str | bytes, wanted: type[T]) -> T | None:
    """Return JSON that others wrote, if it can be read and is of a type.

    >>> read_json("[1]", list), read_json("[1]", dict), read_json("[" * 10_000, list)
    ([1], None, None)
    """
    try:
        data = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, wanted) else None


def compact(data: Mapping[str, object] | tuple[str, ...]) -> str:
    return _ENCODER.encode(data) if data else "{}"


@lru_cache(maxsize=512)  # thousands of receipts move for a few reasons
def compact_words(**words: str) -> str:
    """Return words as `compact` does, if they are given in the order of their names.

    >>> compact_words(reason="it rains", status="skipped")
    '{"reason":"it rains","status":"skipped"}'
    """
    pairs = [f'"{name}":{encode_basestring_ascii(word)}' for name, word in words.items()]
    return f"{{{','.join(pairs)}}}"


async def receipts_of(ledger: Ledger, statuses: Collection[Status]) -> list[Filed]:
    page = await ledger.receipts(statuses=statuses, limit=1000)
    found = [*page.receipts]
    while page.cursor is not None:  # each page costs a look at all that are not final
        page = await ledger.receipts(statuses=statuses, limit=10_000, cursor=page.cursor)
        found += page.receipts
    return found


class RunError(HoraeError, code="run"):
    def __init__(self, reason: str) -> None:
        self.reason = coded(reason, ReasonCode.CANNOT_START)
        super().__init__(reason)


class LimitedError(RunError):
    """A part of a run that a usage limit ended; so it ends the whole run."""

    def __init__(self, ended: Ended) -> None:
        self.ended = ended
        super().__init__(ended.reason)


class LauncherLostError(HoraeError, code="launcher_lost", exit_code=Exit.TEMPORARY):
    def __init__(self, reason: str) -> None:
        self.reason = Reason(ReasonCode.LAUNCHER_LOST, reason)
        super().__init__(f"nothing was started: {reason}")


class HeldBackError(HoraeError, code="held_back"):
    """A run that cannot start now; *account* is the one whose usage limit is the cause."""

    def __init__(self, reason: str, *, account: str = "") -> None:
        self.reason, self.account = coded(reason, ReasonCode.NOT_READY), account
        super().__init__(reason)


class NoRoomError(HoraeError):
    def __init__(self, balance: Balance) -> None:
        self.balance = balance
        self.reason = Reason(ReasonCode.BUDGET, balance.words)
        super().__init__(balance.words)


class SecretError(HeldBackError, code="secret", exit_code=Exit.FINDINGS):
    """A secret whose value cannot be read; the value is never part of it."""

    def __init__(self, name: str, why: str) -> None:
        self.name, self.why = name, why
        words = f"secret {name} cannot be read ({why})"
        super().__init__(Reason(ReasonCode.SECRET_UNREADABLE, words))


# Why a run is not started; who makes a run lets these pass as they are.
NOT_STARTED: Final = (HeldBackError, NoRoomError, RunError, LauncherLostError, LedgerError)


class UnaskedSecretError(SecretError):
    """A secret that a look does not read, as that would call a command."""


class Given(NamedTuple):
    variables: Mapping[str, str] = MappingProxyType({})
    hidden: frozenset[str] = frozenset()


class Followed(Struct, frozen=True):
    filed: Filed
    event: tuple[Occasion, ...] = ()
    run: Run | None = None


class Job(Struct, frozen=True):
    """A run to be made; `about` is what an alert follows, `call` the parsed command of the text."""

    filed: Filed
    run: Run
    text: str
    about: Followed | None = None
    memory: str = ""  # of its entry
    call: CommandCall | None = None
    has_text: bool = True  # whether the ledger has the text of its digest
    balances: tuple[Balance, ...] = ()  # of the purses that it draws on, without itself


class Ended(Struct, frozen=True):
    """How a run ended; `facts` is what else is known, such as tokens and cost."""

    outcome: Status
    reason: Reason
    exit_code: int | None = None
    facts: Mapping[str, object] = field(default_factory=dict)
    memory: str | None = None  # what the entry's next run is to know, if that is new
    is_counted: bool = True  # whether it belongs to a streak
    account: str = ""  # the program and login that the run used, if it is known to have limits
    until: datetime | None = None  # when the limit that ended it is over, if that is known
    has_other: bool = False  # whether its `else` is to be tried, if the provider is the cause


class RunEnd(NamedTuple):
    """The end of a run: whether no retry follows it, and nothing else that its source has to do."""

    run: int
    ended: Ended
    is_last: bool = False
    is_settled: bool = False


class RunOver(NamedTuple):
    """Where a receipt stands after the end of its run, and what has come of that besides."""

    status: Status
    is_settled: bool = False
    is_rescheduled: bool = False  # whether the next moment of its entry may be another


class Unreleased(Struct, frozen=True):
    """A run that was made and never let go: nothing of it has run."""


class Held(Protocol):
    @property
    def process(self) -> Process: ...
    def go(self) -> None: ...
    def cancel(self, reason: str) -> None: ...
    async def ended(self) -> Ended: ...


class Runner(Protocol):
    async def hold(self, job: Job) -> Held:
        """Make a run that waits for its go.

        Raises RunError, LauncherLostError (try again) or HeldBackError (a person must act).
        """

    async def look_back(self, filed: Filed, run: Run) -> Ended | Unreleased | None:
        """Return how an earlier engine's run ended (None: unknown), once none of it is alive."""


@dataclass(frozen=True, slots=True)
class RunPlace:
    root: Path
    data: Path
    environ: Mapping[str, str]
    timeout: timedelta

    def directory_of(self, run: Run) -> Path:
        return self.data / f"runs/{run.started_at:%Y-%m-%d}/{run.number}"


@dataclass(frozen=True, slots=True)
class Tree:
    """Where a run of an agent works: a clone of the plan root, or the plan root itself."""

    path: Path
    key: str = ""  # of the clone, if it is one
    trouble: str = ""  # in what it is not as the plan root has it, if it is not
    edits: tuple[str, ...] = ()  # files of the plan root whose last edits are not committed

    def facts(self) -> dict[str, object]:
        facts: dict[str, object] = {"tree": self.trouble} if self.trouble else {}
        return facts | ({"edits": list(self.edits)} if self.edits else {})


# The members of the crew by name, each with the function that reads its agent or raises RunError.
Crew: TypeAlias = "Callable[[], Mapping[str, Callable[[], Agent]]]"


@dataclass(frozen=True, slots=True)
class TaskBrief:
    """A task of the board, as an agent is told of it."""

    id: int
    title: str
    status: str = "backlog"
    depends_on: tuple[int, ...] = ()
    scheduled_for: datetime | None = None
    blocked: str = ""  # the reason, if it is
    claimed_by: str = ""
    done_at: datetime | None = None


class AgentRunner(Protocol):
    @property
    def place(self) -> RunPlace: ...
    def obstacle(self, agent: Agent) -> Unready | None: ...

    async def why_unable(self, agent: Agent, tools: ToolPolicy | None = None) -> Reason | None:
        """Return why an agent cannot run now: what it lacks, or a secret that cannot be read."""

    async def hold(
        self,
        agent: Agent,
        prompt: str,
        *,
        run: Job,
        timeout: timedelta,
        facts: Mapping[str, str] | None = None,
        tools: ToolPolicy | None = None,
        model: str | None = None,
        tree: Tree | None = None,
    ) -> Held:
        """Make a run of an agent that waits for its go, or raise RunError.

        It works in the *tree* that was taken for it, or in one that it takes itself, and its end
        delivers its work. *tools* and *model* count instead of the definition's; a program that
        cannot keep *tools* is not started. *facts* are more variables about the run.
        """

    async def reserve(self, agent: Agent, job: Job) -> object:
        """Raise HeldBackError if each account that a run may use is under a usage limit."""

    async def take(self, agent: Agent) -> Tree:
        """Return the tree of a run to be, up to date; `hold` or `release` follows."""

    def release(self, tree: Tree) -> None: ...

    async def look_back(self, run: Run, agent: Agent | None = None) -> Ended | Unreleased | None:
        """Return how a run of an earlier engine ended, once its work is delivered.

        *agent* is whose secrets are masked, and whose uncommitted work it is.
        """


class AgentAnswers(Protocol):
    async def why_held(self, plan: Plan) -> str | None:
        """Return which secret cannot be read that an agent of a plan needs, if so."""

    async def check(self, name: str) -> None: ...

    async def reserve(self, plan: Plan, job: Job) -> None:
        """Raise HeldBackError if an agent of a plan has no account without a usage limit."""

    async def ask(
        self,
        name: str,
        prompt: str,
        *,
        run: int,
        directory: Path,
        timeout: timedelta,
        facts: Mapping[str, str],
        note: Callable[[Mapping[str, object]], object],
        filed: Filed | None = None,
    ) -> bytes:
        """Return the answer of an agent, or raise RunError; cancelled, its run is ended.

        *note* gets what is known of how it ended, such as tokens, cost and delivery; *filed* is
        the receipt that the run belongs to, if there is one.
        """
