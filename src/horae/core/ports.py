"""The ports of the engine: clock, ledger, runner and agents, and the data that they exchange.

A writing method of the ledger is one transaction. If another writer was first, the result is False,
None or empty, never an error. Each write carries the term of its engine; a write in a term that is
over changes nothing and raises `StaleTermError`, upon which the engine must stop and not try again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
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

PATIENCE: Final = timedelta(seconds=2)  # how long a missing entry is kept
ANYBODY: Final = 0  # the term of requests from users, in whatever term the engine is
FRESH_LEDGER: Final = "fresh_ledger"  # the first event of a ledger created in place of a lost one


class LedgerError(HoraeError, code="ledger"):
    def __init__(self, place: str, reason: str, *, remedy: str) -> None:
        self.place, self.reason, self.remedy = place, reason, remedy
        super().__init__(f"{place}: {reason}; {remedy}")


class LedgerUnavailableError(LedgerError, exit_code=Exit.TEMPORARY):
    """A ledger that cannot be used now; the call may be repeated."""


class LedgerBusyError(LedgerUnavailableError, code="ledger_busy"):
    """A ledger that another process locks; it may be free soon."""


class LedgerWriteError(LedgerUnavailableError, code="ledger_write"):
    """A ledger that the disk does not accept writes for; the write may be repeated."""


class LedgerDamagedError(LedgerError, code="ledger_damaged", exit_code=Exit.VERIFICATION):
    """A ledger that is corrupt, truncated, empty, deleted, or not a ledger of Horae."""


class LedgerWholeError(LedgerError, code="ledger_whole", exit_code=Exit.CONFLICT):
    def __init__(self, place: str) -> None:
        super().__init__(
            place, "the ledger is intact and is not replaced", remedy="start without --fresh-ledger"
        )


class LedgerNewerError(LedgerError, code="ledger_newer", exit_code=Exit.VERIFICATION): ...


class StaleTermError(LedgerError, code="stale_term", exit_code=Exit.CONFLICT):
    """A write by an engine whose term is over: another engine is the leader."""

    def __init__(self, place: str, *, term: int, current: int) -> None:
        self.term, self.current = term, current
        reason = f"term {term} has ended, the ledger is in term {current}; nothing was written"
        super().__init__(place, reason, remedy="this engine must stop")


class DueEntry(Struct, frozen=True, gc=False):
    """An armed entry whose next time is due; busy while a receipt of its own rule is not final."""

    entry: Entry
    is_busy: bool = False


class EntryStep(Struct, frozen=True, gc=False):
    entry: Entry
    decision: Decision


class ReceiptPage(Struct, frozen=True, gc=False):
    receipts: tuple[Filed, ...]
    cursor: int | None


class Process(Struct, frozen=True, gc=False):
    """A process; its start time is included, as process ids are used again."""

    pid: int
    started: int


class ReceiptFilter(NamedTuple):
    entries: frozenset[int] | None = None  # None: all entries
    statuses: tuple[Status, ...] = RECEIPT_STATUSES


EVERY: Final = ReceiptFilter()


class OutcomeCount(NamedTuple):
    at: datetime  # the start of the step
    status: Status
    times: int
    lane: str
    first_at: datetime
    last_at: datetime
    receipt: int  # the newest


class RunSpan(Struct, frozen=True, gc=False):
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
    run: int | None = None  # None: no run was started
    begun_at: datetime | None = None
    over_at: datetime | None = None  # None: the run is in progress
    outcome: Status | None = None
    node: str = ""  # in a cluster


class Run(Struct, frozen=True):
    """One attempt; `outcome` is None until it ends, and if it was given back before its start."""

    number: int
    receipt: int
    attempt: int
    started_at: datetime
    process: Process | None = None
    ended_at: datetime | None = None
    outcome: Status | None = None
    exit_code: int | None = None
    reason: Reason = NO_REASON
    facts: Mapping[str, object] = field(default_factory=dict)  # other results, such as cost
    member: str = ""  # the node that started it


class SpentRun(NamedTuple):
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
    actor: str = ENGINE  # the actor who did it


class Listed(Struct, frozen=True, gc=False):
    """An entry in the ledger, armed or not, also after it was removed from the plan."""

    number: int
    source: str
    mark: Mark
    item: Entry | Unarmed
    first_seen_at: datetime
    gone_at: datetime | None = None
    missing_at: datetime | None = None  # since when scans do not find it; removed soon
    pause: Pause | None = None
    next_at: datetime | None = None  # its next time, if it is armed
    failures: int = 0  # failed receipts in a row
    streak: int = 0  # ticks without work in a row
    ticks: int = 0
    memory: str = ""  # passed from each of its runs to the next
    broken: str = ""  # why its text cannot be read
    broken_at: datetime | None = None  # since when its last valid text is used

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
    FAILING = "failing"  # its last three runs failed
    MISSING = "missing"  # scans do not find it
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
        """Return the fingerprints of a source's files at its last scan, if they could be read."""

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
        """Store a scan; return when to scan again, if an entry is missing.

        New entries begin now, and receipts of a changed rule are closed without a run. A missing
        entry is removed when a scan *patience* later does not find it either.
        """

    async def knows(self, source: str) -> bool: ...
    async def loose(self, source: str) -> list[str]: ...
    async def entry(self, number: int) -> Listed | None: ...

    async def find(self, word: str) -> list[Listed]:
        """Return the entries that a word means, those in the plan first.

        The first that matches of number, address, `:ID:`, title and `file:line`. A removed entry is
        only meant if none in the plan matches.
        """

    async def entries(self) -> list[Listed]: ...
    async def entries_at(self, numbers: Sequence[int]) -> list[Listed]: ...
    async def summaries(self, *, with_gone: bool = False) -> list[EntrySummary]: ...
    async def coming(self, *, limit: int = 20) -> list[Listed]: ...
    async def count_entries(self, *, due_before: datetime) -> EntryCounts: ...
    async def entries_that_are(self, trait: Trait, *, limit: int) -> list[Listed]: ...
    async def followers(self) -> list[Listed]: ...
    async def due(self, *, now: datetime, limit: int = 1000) -> list[DueEntry]: ...
    async def wake_at(self) -> datetime | None: ...

    async def decide(self, steps: Sequence[EntryStep], *, now: datetime, term: int) -> list[Filed]:
        """Move watermarks and file receipts in one transaction; return the receipts.

        An entry that has changed since it was read is skipped.
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
        """File requests in one transaction; for an existing key, the existing receipt is returned.

        *agents* replace the entry's own. Nothing is returned unless the entry is armed.
        """

    async def start_many(
        self, receipts: Sequence[Filed], *, now: datetime, term: int
    ) -> list[Job | None]:
        """Take waiting receipts, create their runs and return the jobs.

        None: the receipt is no longer waiting.
        """

    async def running_many(
        self, made: Sequence[tuple[int, Process]], *, now: datetime, term: int
    ) -> list[bool]:
        """Record the processes of runs that are about to start; False: the run is over."""

    async def give_back(
        self, run: int, *, reason: Reason, now: datetime, term: int, died: bool = False
    ) -> bool:
        """Let the receipt of a run that never started wait again; *died*: its engine exited."""

    async def end_many(
        self, ends: Sequence[RunEnd], *, now: datetime, term: int
    ) -> list[RunOver | None]:
        """Record the ends of runs, and what follows: a retry, or the end of the receipt.

        Run, receipt, the entry's last end, streaks, next time and pause change in one transaction.
        A receipt that its source has settled is stored so, unless an alert may follow it. A run
        that a usage limit ended is no attempt, and its receipt is held. None: the run was over.
        """

    async def hold(
        self, receipt: int, *, reason: Reason, now: datetime, term: int, account: str = ""
    ) -> bool:
        """Hold a receipt; if an *account* is given, until its usage limit ends."""

    async def outcomes(
        self,
        *,
        since: datetime,
        until: datetime,
        step: timedelta,
        lane: str = "",
        which: ReceiptFilter = EVERY,
    ) -> list[OutcomeCount]:
        """Count the scheduled times of a period by status, step and *lane*.

        A *lane* is `entry`, `file` or `agent`; without one there is a single lane.
        """

    async def first_entries(
        self, *, since: datetime, until: datetime, limit: int, which: ReceiptFilter = EVERY
    ) -> list[int]:
        """Return the entries with receipts in a period, by the time of their first one."""

    async def spans(
        self, *, since: datetime, until: datetime, limit: int, which: ReceiptFilter = EVERY
    ) -> list[RunSpan]:
        """Return the last receipts of a period with their runs, one span per run, newest first."""

    async def bad_results(self) -> list[BadResult]:
        """Return the newest results of entries that may run, where they are bad, newest first."""

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
        """Store that a user knows of the state of an entry; no state deletes that."""

    async def limits(self) -> list[AccountLimit]: ...

    async def ask_account(
        self, account: str, receipt: int, *, now: datetime, term: int
    ) -> AccountLimit | None:
        """Return the limit that keeps a receipt from using an account; None: it may use it.

        When a limit ends, the first receipt that asks may, and others when its run has succeeded.
        """

    async def free_limited(self, *, now: datetime, term: int) -> list[int]:
        """Release receipts whose account has no limit, and one of each whose limit has ended.

        Return the numbers of the receipts.
        """

    async def release(self, receipt: int, *, reason: Reason, now: datetime, term: int) -> bool: ...
    async def settle(self, receipts: Iterable[int], *, now: datetime, term: int) -> int: ...
    async def unsettled(self, *, after: int = 0, limit: int = 1000) -> list[Filed]: ...

    async def pause(
        self, entry: int, *, now: datetime, term: int, note: str = "", until: datetime | None = None
    ) -> int | None:
        """Pause an entry, and return how many waiting receipts are skipped by that.

        None: it is removed, or paused already.
        """

    async def resume(self, entry: int, *, now: datetime, term: int) -> bool: ...
    async def wake(self, *, now: datetime, term: int) -> list[int]: ...

    async def set_back(self, *, now: datetime, term: int) -> int:
        """Reset entries whose watermark is in the future, because the clock was ahead.

        What ran keeps its key, so it never runs again; the keys of other decisions are free again.
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
        """Return the newest run of each entry that succeeded, and the newest that did not."""
        ...

    async def draw(
        self, run: int, purses: Sequence[Purse], *, now: datetime, term: int
    ) -> list[Balance]:
        """Draw on purses for a run if each has room; return their balances without the run."""

    async def use(
        self, run: int, purses: Sequence[Purse], usage: Usage, *, now: datetime, term: int
    ) -> list[Balance]:
        """Record the usage so far of a run in progress; return the purses with it."""

    async def refuse(self, run: int, balance: Balance, *, now: datetime, term: int) -> bool:
        """Give back a run for which a purse has no room; its receipt is skipped.

        A request, or the receipt of a rule with a single time, is held until the purse's next
        period.
        """

    async def balances(
        self,
        purses: Sequence[Purse],
        *,
        now: datetime,
        entry: int,
        through: tuple[datetime, int] | None = None,
    ) -> list[Balance]:
        """Return the balances of purses, now or after the run of a number had ended at a time."""

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
    """A ledger transaction for a source, on its own tables and together with its entries.

    Statements are called by name, such as `trigger.page`, and take datetimes.
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


# How the ledger stores times, text and JSON: a time is a whole number of
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
    r"""Return text that any store accepts: lone surrogates and null characters are escaped.

    >>> plain("Digest \ud800\0")
    'Digest \\ud800\\x00'
    """
    if "\0" in text:
        text = text.replace("\0", r"\x00")
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def read_json(text: str | bytes, wanted: type[T]) -> T | None:
    """Parse JSON from outside; None if it is malformed or not of the *wanted* type.

    >>> read_json("[1]", list), read_json("[1]", dict), read_json("[" * 10_000, list)
    ([1], None, None)
    """
    try:
        data = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, wanted) else None


def as_table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def compact(data: Mapping[str, object] | tuple[str, ...]) -> str:
    return _ENCODER.encode(data) if data else "{}"


async def receipts_of(ledger: Ledger, statuses: Collection[Status]) -> list[Filed]:
    page = await ledger.receipts(statuses=statuses, limit=1000)
    found = [*page.receipts]
    while page.cursor is not None:  # each page reads all receipts that are not final
        page = await ledger.receipts(statuses=statuses, limit=10_000, cursor=page.cursor)
        found += page.receipts
    return found


class RunError(HoraeError, code="run"):
    def __init__(self, reason: str) -> None:
        self.reason = coded(reason, ReasonCode.CANNOT_START)
        super().__init__(reason)


class LimitedError(RunError):
    """A part of a run that a usage limit ended, which ends the whole run."""

    def __init__(self, ended: Ended) -> None:
        self.ended = ended
        super().__init__(ended.reason)


class LauncherLostError(HoraeError, code="launcher_lost", exit_code=Exit.TEMPORARY):
    def __init__(self, reason: str) -> None:
        self.reason = Reason(ReasonCode.LAUNCHER_LOST, reason)
        super().__init__(f"nothing was started: {reason}")


class HeldBackError(HoraeError, code="held_back"):
    """A run that cannot start now; *account* is set if its usage limit is the cause."""

    def __init__(self, reason: str, *, account: str = "") -> None:
        self.reason, self.account = coded(reason, ReasonCode.NOT_READY), account
        super().__init__(reason)


class NoRoomError(HoraeError):
    def __init__(self, balance: Balance) -> None:
        self.balance = balance
        self.reason = Reason(ReasonCode.BUDGET, balance.words)
        super().__init__(balance.words)


class SecretError(HeldBackError, code="secret", exit_code=Exit.FINDINGS):
    """A secret that cannot be read; the message never contains its value."""

    def __init__(self, name: str, why: str) -> None:
        self.name, self.why = name, why
        words = f"secret {name} cannot be read ({why})"
        super().__init__(Reason(ReasonCode.SECRET_UNREADABLE, words))


# Reasons why a run cannot start; runners let these errors pass.
NOT_STARTED: Final = (HeldBackError, NoRoomError, RunError, LauncherLostError, LedgerError)


class UnaskedSecretError(SecretError):
    """A secret whose command is not called for a check."""


class Given(NamedTuple):
    variables: Mapping[str, str] = MappingProxyType({})
    hidden: frozenset[str] = frozenset()


class Followed(Struct, frozen=True):
    filed: Filed
    event: tuple[Occasion, ...] = ()
    run: Run | None = None


class Job(Struct, frozen=True):
    """A run to be made; `about` is the receipt that an alert follows, `call` the parsed command."""

    filed: Filed
    run: Run
    text: str
    about: Followed | None = None
    memory: str = ""  # of its entry
    call: CommandCall | None = None
    has_text: bool = True  # whether the ledger has the text of the digest
    balances: tuple[Balance, ...] = ()  # of the purses that it draws on, without this run


class Ended(Struct, frozen=True):
    """How a run ended; `facts` are other results, such as tokens and cost."""

    outcome: Status
    reason: Reason
    exit_code: int | None = None
    facts: Mapping[str, object] = field(default_factory=dict)
    memory: str | None = None  # replaces the memory of the entry
    is_counted: bool = True  # whether it counts for a streak
    account: str = ""  # the program and login that the run used, if they have limits
    until: datetime | None = None  # the end of the limit that ended it, if known
    has_other: bool = False  # whether to try its `else` after a failure of the provider


class RunEnd(NamedTuple):
    run: int
    ended: Ended
    is_last: bool = False
    is_settled: bool = False


class RunOver(NamedTuple):
    status: Status
    is_settled: bool = False
    is_rescheduled: bool = False  # whether the next time of its entry may have changed


class Unreleased(Struct, frozen=True):
    """A run that was made and never started: nothing of it has run."""


class Held(Protocol):
    @property
    def process(self) -> Process: ...
    def go(self) -> None: ...
    def cancel(self, reason: str) -> None: ...
    async def ended(self) -> Ended: ...


class Runner(Protocol):
    async def hold(self, job: Job) -> Held:
        """Make a run that waits to be started.

        Raises RunError, LauncherLostError (try again) or HeldBackError (a user must act).
        """

    async def look_back(self, filed: Filed, run: Run) -> Ended | Unreleased | None:
        """Return how a run of an earlier engine ended (None: unknown), once no process is left."""


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
    path: Path
    key: str = ""  # the key of the clone
    trouble: str = ""  # how it differs from the plan root, if it does
    edits: tuple[str, ...] = ()  # files of the plan root with uncommitted edits

    def facts(self) -> dict[str, object]:
        facts: dict[str, object] = {"tree": self.trouble} if self.trouble else {}
        return facts | ({"edits": list(self.edits)} if self.edits else {})


# Reads the agent of each crew member by name, or raises RunError.
Crew: TypeAlias = "Callable[[], Mapping[str, Callable[[], Agent]]]"


@dataclass(frozen=True, slots=True)
class TaskBrief:
    id: int
    title: str
    status: str = "backlog"
    depends_on: tuple[int, ...] = ()
    scheduled_for: datetime | None = None
    blocked: str = ""  # the reason, if it is blocked
    claimed_by: str = ""
    done_at: datetime | None = None


class AgentRunner(Protocol):
    @property
    def place(self) -> RunPlace: ...
    def obstacle(self, agent: Agent) -> Unready | None: ...

    async def why_unable(self, agent: Agent, tools: ToolPolicy | None = None) -> Reason | None:
        """Return why an agent cannot run now, such as a missing program or secret."""

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
        """Make a run of an agent that waits to be started, or raise RunError.

        It works in *tree*, or in one that it takes itself, and its end delivers its work. *tools*
        and *model* replace the definition's; a program that cannot enforce *tools* is not started.
        *facts* are more variables about the run.
        """

    async def reserve(self, agent: Agent, job: Job) -> object:
        """Raise HeldBackError if every account that a run may use is under a usage limit."""

    async def take(self, agent: Agent) -> Tree:
        """Return an up-to-date tree for a run; `hold` or `release` must follow."""

    def release(self, tree: Tree) -> None: ...

    async def look_back(self, run: Run, agent: Agent | None = None) -> Ended | Unreleased | None:
        """Return how a run of an earlier engine ended, once its work is delivered.

        *agent* is the one whose secrets are masked and whose work is committed.
        """


class AgentAnswers(Protocol):
    async def why_held(self, plan: Plan) -> str | None:
        """Return which secret of a plan's agents cannot be read, if there is one."""

    async def check(self, name: str) -> None: ...

    async def reserve(self, plan: Plan, job: Job) -> None:
        """Raise HeldBackError if every account of one of a plan's agents is under a usage limit."""

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
        """Return the answer of an agent, or raise RunError; cancellation ends the run.

        *note* is called with its results, such as tokens, cost and delivery; *filed* is the receipt
        that the run belongs to, if there is one.
        """
