"""What the engine asks of the outside: a clock and a ledger, and the words they speak in.

A writing method of the ledger is a promise kept by one transaction. A race that was
lost is an answer (False, None, nothing), never an error. Each writing call carries the
term of the engine that makes it; one whose term is over changes nothing and is told so
by `StaleTermError`, because it must stop, not try again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from horae.errors import Exit, HoraeError
from horae.rules.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from horae.rules.armed import Scanned
    from horae.rules.entry import Origin, Policy, Unarmed
    from horae.rules.identity import Mark
    from horae.rules.misfire import Decision, Receipt, Status


class LedgerError(HoraeError):
    """A ledger that cannot do what it was asked to."""

    code = "ledger"

    def __init__(self, place: str, reason: str, *, remedy: str) -> None:
        self.place = place
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{place}: {reason}; {remedy}")


class LedgerBusyError(LedgerError):
    """A ledger that another process keeps from being written; it may be free soon."""

    code = "ledger_busy"
    exit_code = Exit.TEMPORARY


class LedgerWriteError(LedgerError):
    """A ledger that the disk does not take: full, read-only, over quota or broken.

    Whether the write was kept after all shows once the ledger can be read again; to ask
    for the same once more is safe, as what is already there is never there twice.
    """

    code = "ledger_write"
    exit_code = Exit.TEMPORARY


class LedgerDamagedError(LedgerError):
    """A ledger that is corrupt, cut short, empty, gone, or not one of ours."""

    code = "ledger_damaged"
    exit_code = Exit.VERIFICATION


class LedgerNewerError(LedgerError):
    """A ledger that a newer version of horae has written."""

    code = "ledger_newer"
    exit_code = Exit.VERIFICATION


class StaleTermError(LedgerError):
    """A write by an engine whose term is over: another one decides now."""

    code = "stale_term"
    exit_code = Exit.CONFLICT

    def __init__(self, place: str, *, term: int, current: int) -> None:
        self.term = term
        self.current = current
        reason = f"term {term} is over, the ledger is in term {current}; nothing was written"
        super().__init__(place, reason, remedy="this engine must stop")


@dataclass(frozen=True, slots=True)
class Step:
    """An entry as it was read, and what was decided about it."""

    entry: Entry
    decision: Decision


@dataclass(frozen=True, slots=True)
class Filed:
    """A receipt as the ledger keeps it.

    `attempts` counts the runs that were let go or could not be made; those that were
    given back before have done nothing.
    """

    number: int
    entry: int
    receipt: Receipt
    decided_at: datetime
    origin: Origin
    digest: str
    commit: str | None
    policy: Policy
    attempts: int = 0
    ended_at: datetime | None = None
    settled_at: datetime | None = None

    @property
    def status(self) -> Status:
        """Where the receipt stands."""
        return self.receipt.status

    @property
    def lateness(self) -> timedelta:
        """How long after its planned moment it was decided."""
        return self.decided_at - self.receipt.planned_at


@dataclass(frozen=True, slots=True)
class Page:
    """Some receipts, newest first; `cursor` asks for those before them, None if there are none."""

    receipts: tuple[Filed, ...]
    cursor: int | None


@dataclass(frozen=True, slots=True)
class Process:
    """Which process it is; numbers are used again, so its start time belongs to it."""

    pid: int
    started: int


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt; `outcome` is None while it lasts, and when it was given back unused."""

    number: int
    receipt: int
    attempt: int
    started_at: datetime
    process: Process | None = None
    ended_at: datetime | None = None
    outcome: Status | None = None
    exit_code: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened; numbers only go up."""

    number: int
    at: datetime
    kind: str
    entry: int | None = None
    receipt: int | None = None
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pause:
    """Since when an entry rests, until when if that is known, and what was said about it."""

    at: datetime
    until: datetime | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """An entry as the ledger knows it, armed or not, also long after it is gone."""

    number: int
    source: str
    mark: Mark
    item: Entry | Unarmed
    first_seen_at: datetime
    gone_at: datetime | None = None
    pause: Pause | None = None

    @property
    def is_armed(self) -> bool:
        """Whether it may fire."""
        return isinstance(self.item, Entry) and self.gone_at is None and self.pause is None


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many receipts were folded into others, and how much of the rest was dropped."""

    receipts: int
    runs: int
    events: int
    texts: int


class Clock(Protocol):
    """Whatever knows the time."""

    def now(self) -> datetime:
        """Return this moment, in UTC."""
        ...


class Ledger(Protocol):
    """The lasting record of entries, receipts, runs and events."""

    async def scan(
        self,
        source: str,
        scanned: Sequence[Scanned],
        *,
        now: datetime,
        term: int,
        commit: str | None = None,
    ) -> list[Entry]:
        """Take over what a source holds now, and return the entries that may fire.

        What is new begins now, what changed its rule is closed without firing, and what is
        missing is gone. *commit* is where in git this was read.
        """
        ...

    async def entries(self, *, source: str | None = None) -> list[Listed]:
        """Return every entry that was ever known, the longest known first."""
        ...

    async def decide(self, steps: Sequence[Step], *, now: datetime, term: int) -> list[Filed]:
        """Move watermarks and file receipts, all at once; return what was filed.

        An entry that is no longer as it was read is left alone: somebody else decided.
        """
        ...

    async def add(self, entry: int, receipt: Receipt, *, now: datetime, term: int) -> Filed | None:
        """File what somebody asked for; the same key gives the same receipt back.

        None means that there is no such entry any more.
        """
        ...

    async def start(self, receipt: int, *, now: datetime, term: int) -> Run | None:
        """Take a waiting receipt and open its run; None means that it does not wait."""
        ...

    async def running(self, run: int, process: Process, *, now: datetime, term: int) -> bool:
        """Record which process the run is, before it is let go."""
        ...

    async def give_back(self, run: int, *, reason: str, now: datetime, term: int) -> bool:
        """Let the receipt of a run that was never let go wait again."""
        ...

    async def end(
        self,
        run: int,
        outcome: Status,
        *,
        reason: str,
        now: datetime,
        term: int,
        exit_code: int | None = None,
    ) -> Filed | None:
        """Record how a run ended, and what follows: a retry, or the end of its receipt.

        Run, receipt and the entry's last end move together. None means that it was over.
        """
        ...

    async def hold(self, receipt: int, *, reason: str, now: datetime, term: int) -> bool:
        """Keep a waiting receipt from starting until it is released."""
        ...

    async def release(self, receipt: int, *, reason: str, now: datetime, term: int) -> bool:
        """Let a held receipt wait for its start again."""
        ...

    async def settle(self, receipts: Iterable[int], *, now: datetime, term: int) -> int:
        """Record that all that follows from these receipts is done; return of how many."""
        ...

    async def unsettled(self, *, limit: int = 1000) -> list[Filed]:
        """Return the final receipts that are not settled, oldest first."""
        ...

    async def pause(
        self,
        entry: int,
        *,
        now: datetime,
        term: int,
        note: str = "",
        until: datetime | None = None,
    ) -> bool:
        """Let an entry rest; what waits of it is skipped. False: gone, or resting already."""
        ...

    async def resume(self, entry: int, *, now: datetime, term: int) -> bool:
        """Let a resting entry go on from now; what came meanwhile is one skipped range."""
        ...

    async def receipt(self, number: int) -> Filed | None:
        """Return one receipt."""
        ...

    async def receipts(
        self,
        *,
        entry: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        statuses: Collection[Status] = (),
        cursor: int | None = None,
        limit: int = 100,
    ) -> Page:
        """Return receipts, newest first, planned in a window (ranges that touch it too)."""
        ...

    async def runs_of(self, receipt: int) -> list[Run]:
        """Return every attempt of a receipt, in order."""
        ...

    async def events_after(self, number: int, *, limit: int = 1000) -> list[Event]:
        """Return what happened after an event, in order."""
        ...

    async def keep_texts(self, texts: Mapping[str, str], *, now: datetime, term: int) -> None:
        """Keep the texts that receipts may have to run, each under its digest."""
        ...

    async def text(self, digest: str) -> str | None:
        """Return the text that has a digest."""
        ...

    async def prune(
        self, *, before: datetime, now: datetime, term: int, dry_run: bool = False
    ) -> Pruned:
        """Fold settled receipts from before a moment into ranges, and drop what hangs on them."""
        ...
