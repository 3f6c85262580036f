"""Structs of the API and of `--json`, and the errors of the service.

A field is declared here and nowhere else; OpenAPI is generated from it. Times are in the zone of
their entry. A field that may be missing is UNSET, and every other one is always present.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, TypeVar, overload

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from horae.core.entry import Entry, Origin
from horae.core.inbox import EntryState, InboxState
from horae.core.receipt import Filed, Reason, ReasonCode, Status
from horae.core.text import entry_words, size_text
from horae.errors import Exit, HoraeError
from horae.timing.zone import zone

if TYPE_CHECKING:
    from horae.core.command import Unready
    from horae.core.ports import Listed, Run

# Not an enum: an old client must accept new codes.
Code: TypeAlias = Annotated[str, Meta(description="a reason code; others may follow")]
Facts: TypeAlias = dict[str, Any]
Time: TypeAlias = Annotated[datetime, Meta(tz=True)]
EntryName: TypeAlias = str | int  # its number, :ID:, title, or file:line
TimeText: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
_NONE: Final = timedelta(0)
_MINUTE: Final = timedelta(minutes=1)
Maybe: TypeAlias = UnsetType  # beside a type: the field may be missing


LEFT_OUT: Final = b"\n[%d bytes of output left out]\n"  # in an output, in place of the bytes
RENAMED: Final = {"start": "from", "end": "to"}  # in JSON; `from` is a keyword of Python


class Shape(Struct, frozen=True, kw_only=True, rename=RENAMED):
    """The base of all responses; clients ignore unknown fields."""


class Written:
    """Something that a file defines."""

    __slots__ = ()
    file: str
    line: int

    @property
    def origin(self) -> Origin:
        return Origin(self.file, self.line)


class PauseLine(Shape, frozen=True, kw_only=True):
    at: Time
    until: Time | None
    note: str
    by: str | None  # the actor; null if that was not recorded


class EntryLine(Written, Shape, frozen=True, kw_only=True):
    entry: int
    source: str
    title: str
    address: str
    file: str
    line: int
    zone: str
    armed: bool
    rule: str | None  # in words; null if it is not armed
    reason: str | None  # why it is not armed; null if it is
    first_seen_at: Time
    gone_at: Time | None
    pause: PauseLine | None
    next_at: Time | None
    failures: int
    broken: str | None  # why its text cannot be read, if it cannot
    broken_at: Time | None  # since when its last good text is kept instead


class LastReceipt(Shape, frozen=True, kw_only=True):
    receipt: int
    status: Status
    reason: str
    reason_code: Code | None
    planned_at: Time
    ended_at: Time | None
    late_seconds: float
    cost: float | Maybe = UNSET  # of its runs in US dollars, if they report it


class EndMark(Shape, frozen=True, kw_only=True):
    """How one receipt of an entry ended, and how long its run took."""

    receipt: int
    status: Status
    planned_at: Time
    seconds: float | None  # null if it did not run


class EntryRow(EntryLine, frozen=True, kw_only=True):
    state: EntryState
    agents: tuple[str, ...]
    last: LastReceipt | None  # of the receipts that are running or final
    ends: tuple[EndMark, ...]  # oldest first


class EntryList(Shape, frozen=True, kw_only=True):
    entries: tuple[EntryRow, ...]
    total: int  # with this filter
    counts: dict[EntryState, int]  # with this filter, apart from the state


class AcknowledgementLine(Shape, frozen=True, kw_only=True):
    at: Time
    until: Time | None  # the end of a snooze
    note: str
    by: str


class InboxLine(Written, Shape, frozen=True, kw_only=True):
    """An entry that needs attention."""

    entry: int
    source: str
    title: str
    file: str
    line: int
    zone: str
    state: InboxState
    since: Time
    reason: str
    reason_code: Code | None
    receipts: tuple[int, ...]  # the newest, or all that wait for approval
    times: int  # bad results in a row, or runs that wait for approval
    next_at: Time | None
    acknowledged: AcknowledgementLine | None  # of this state


class Inbox(Shape, frozen=True, kw_only=True):
    """The entries that need attention; those in `acknowledged` are known to a user."""

    count: int
    entries: tuple[InboxLine, ...]
    acknowledged: tuple[InboxLine, ...]


class SearchResult(Shape, frozen=True, kw_only=True):
    kind: str  # entry, agent, task, trigger, receipt or file
    title: str
    detail: str
    href: str  # of its page


class SearchResults(Shape, frozen=True, kw_only=True):
    results: tuple[SearchResult, ...]


class EntryPage(Shape, frozen=True, kw_only=True):
    entries: tuple[EntryLine, ...]
    cursor: int | None


class PauseResult(EntryLine, frozen=True, kw_only=True):
    changed: bool
    skipped: int


class ResumeResult(EntryLine, frozen=True, kw_only=True):
    changed: bool


class Attempt(Shape, frozen=True, kw_only=True):
    """One run of a receipt."""

    run: int
    attempt: int
    started_at: Time
    ended_at: Time | None
    outcome: Status | None
    exit_code: int | None
    reason: str
    reason_code: Code | None
    pid: int | None
    facts: Facts
    node: str | Maybe = UNSET  # in a cluster


class RunLine(Attempt, frozen=True, kw_only=True):
    receipt: int
    entry: int
    title: str
    key: str
    status: Status
    zone: str


class CancelResult(RunLine, frozen=True, kw_only=True):
    changed: bool


class ReceiptLine(Written, Shape, frozen=True, kw_only=True):
    """A receipt in the zone of its entry; `times` counts the entry's receipts that it replaces."""

    receipt: int
    entry: int
    title: str
    key: str
    status: Status
    reason: str
    reason_code: Code | None
    planned_at: Time
    through_at: Time | None
    count: int
    times: int
    start_at: Time
    decided_at: Time
    late_seconds: float
    ended_at: Time | None
    attempts: int
    zone: str
    file: str
    line: int
    commit: str | None
    parent: int | None
    actor: str
    note: str | None
    node: str | Maybe = UNSET  # in a cluster
    cost: float | Maybe = UNSET  # of its runs in US dollars, if they report it

    @property
    def late(self) -> timedelta:
        return timedelta(seconds=self.late_seconds)


class ReceiptDetail(ReceiptLine, frozen=True, kw_only=True):
    runs: tuple[Attempt, ...]


class History(Shape, frozen=True, kw_only=True):
    receipts: tuple[ReceiptLine, ...]
    cursor: int | None


class CostLine(Shape, frozen=True, kw_only=True):
    """The usage of a day, an entry or an agent."""

    name: str
    runs: int
    cost: float  # in US dollars
    tokens: int
    silent: int  # runs without a known cost


class BudgetLine(Shape, frozen=True, kw_only=True):
    """The state of a budget in its period."""

    budget: str
    entry: str | None  # the title of the entry, if the budget is of one
    spent: str
    expected: str  # of runs in progress; empty if there are none
    left: str
    ratio: float  # the spent part
    until: Time


class CostReport(Shape, frozen=True, kw_only=True):
    since: Time
    until: Time
    zone: str
    rows: tuple[CostLine, ...]
    total: CostLine
    budgets: tuple[BudgetLine, ...]


class ForecastLine(Shape, frozen=True, kw_only=True):
    """The expected costs of the scheduled runs of an entry, in US dollars."""

    entry: int
    title: str
    runs: int
    each: float | None  # the median of the last runs; null: no run reports its cost
    cost: float


class ForecastReport(Shape, frozen=True, kw_only=True):
    since: Time
    until: Time
    zone: str
    rows: tuple[ForecastLine, ...]
    cost: float


class EventLine(Shape, frozen=True, kw_only=True):
    event: int
    at: Time
    kind: str
    entry: int | None
    receipt: int | None
    facts: Facts
    actor: str


class EventPage(Shape, frozen=True, kw_only=True):
    events: tuple[EventLine, ...]
    after: int


class AgentPosition(Shape, frozen=True, kw_only=True):
    """The position of an agent in its lifecycle."""

    state: str
    hits: int
    next_state: str
    kind: str


class AgentLine(Written, Shape, frozen=True, kw_only=True):
    """An agent that ticks; `lifecycle` is its position, as of its last tick."""

    agent: str
    entry: int
    address: str
    file: str
    line: int
    zone: str
    running: bool
    last_run: Time | None
    next_run: Time | None
    rule: str | None
    lifecycle: AgentPosition | None
    streak: int
    failures: int
    stuck: bool
    last_outcome: Status | None
    last_reason: str | None
    last_reason_code: Code | None
    held: str | None  # why its tick cannot start, if it cannot
    paused: bool
    pause: PauseLine | None
    troubles: dict[str, str]


class EngineLine(Shape, frozen=True, kw_only=True):
    running: bool
    data: str
    pid: int | None
    since: str | None


class DiskLine(Shape, frozen=True, kw_only=True):
    """The size of the data directory when measured, and the free space of its disk, in bytes."""

    at: Time
    free: int
    held: dict[str, int]  # by folder, such as `runs`, and `ledger` and `other` for files

    @property
    def words(self) -> str:
        most = sorted(self.held.items(), key=lambda each: -each[1])
        parts = ", ".join(f"{name} {size_text(size)}" for name, size in most)
        held = size_text(sum(self.held.values()))
        return f"{held} in the data directory ({parts}), {size_text(self.free)} free"


class StatusReport(Shape, frozen=True, kw_only=True):
    at: Time
    zone: str
    stall: str | None  # if the engine starts nothing, although it could
    engine: EngineLine
    entries: int  # that may fire
    counts: dict[Status, int]  # of all receipts that are not final
    agents: tuple[AgentLine, ...] = ()
    running: tuple[ReceiptLine, ...] = ()
    waiting: tuple[ReceiptLine, ...] = ()
    late: tuple[ReceiptLine, ...] = ()
    missed: tuple[ReceiptLine, ...] = ()
    failed: tuple[ReceiptLine, ...] = ()
    next: tuple[EntryLine, ...] = ()
    paused: tuple[EntryLine, ...] = ()
    unarmed: tuple[EntryLine, ...] = ()
    problems: tuple[str, ...] = ()
    disk: DiskLine | None = None  # null: not measured yet
    spent_today: float | Maybe = UNSET  # in US dollars, if a run of today reports its cost


class WhyLine(Shape, frozen=True, kw_only=True):
    """The explanation of one time: the receipt that covers it, or why it has none."""

    at: Time | None
    said: str
    moment: bool  # false: there is no scheduled time in the requested period
    estimate: bool
    receipt: int | None = None
    key: str | Maybe = UNSET
    status: Status | Maybe = UNSET
    reason: str | Maybe = UNSET
    reason_code: Code | Maybe | None = UNSET
    through_at: Time | Maybe | None = UNSET
    count: int | Maybe = UNSET
    start_at: Time | Maybe = UNSET
    decided_at: Time | Maybe = UNSET
    late_seconds: float | Maybe = UNSET
    ended_at: Time | Maybe | None = UNSET
    file: str | Maybe = UNSET
    line: int | Maybe = UNSET
    commit: str | Maybe | None = UNSET
    digest: str | Maybe = UNSET
    policy: str | Maybe = UNSET  # in words
    actor: str | Maybe = UNSET
    note: str | Maybe | None = UNSET
    node: str | Maybe = UNSET
    runs: tuple[Attempt, ...] | Maybe = UNSET
    way: str | Maybe = UNSET  # how to start a run, if the user must do something

    @property
    def origin(self) -> Origin:
        return Origin(self.file or "", self.line or 0)


class WhyLines(Shape, frozen=True, kw_only=True):
    at: Time
    entry: EntryLine
    cannot_run: str | None  # why a run could not start now, if known
    start: Time | None
    end: Time | None
    answers: tuple[WhyLine, ...]
    before: Time | None
    after: Time | None
    more: bool


class Backfill(Shape, frozen=True, kw_only=True):
    id: str
    entry: int
    title: str
    zone: str
    start: Time
    end: Time
    dry_run: bool
    count: int
    moments: tuple[Time, ...]
    receipts: tuple[int, ...] = ()


class HealthReport(Shape, frozen=True, kw_only=True):
    ok: bool
    at: Time
    turned_at: Time | None
    loop_lag_seconds: float
    ledger_writable: bool
    problems: tuple[str, ...]


class SlotHolder(Shape, frozen=True, kw_only=True):
    receipt: int
    entry: int
    title: str
    slot: int | None
    kind: str
    since: Time
    parent: int | None


class SlotWaiter(Shape, frozen=True, kw_only=True):
    receipt: int
    entry: int
    title: str
    due_at: Time
    reason: str
    reason_code: Code
    behind: int | None


class GateReport(Shape, frozen=True, kw_only=True):
    slots: int
    crew: int | None
    holding: tuple[SlotHolder, ...]
    waiting: tuple[SlotWaiter, ...]
    in_line: int


class PruneReport(Shape, frozen=True, kw_only=True):
    before: Time
    dry_run: bool
    receipts: int
    runs: int
    events: int
    texts: int


class EditNote(Shape, frozen=True, kw_only=True):
    file: str
    what: str


class SourceProblems(Shape, frozen=True, kw_only=True):
    source: str
    problems: tuple[str, ...]


class RescanReport(Shape, frozen=True, kw_only=True):
    sources: tuple[SourceProblems, ...]


class RestartAnswer(Shape, frozen=True, kw_only=True):
    pid: int
    version: str
    new_version: str


class StopAnswer(Shape, frozen=True):
    pid: int


class CalendarPath(Shape, frozen=True, kw_only=True):
    path: str
    url: str | None


S = TypeVar("S", bound=Shape)


@overload
def zoned(moment: datetime, zone_name: str) -> datetime: ...
@overload
def zoned(moment: datetime | None, zone_name: str) -> datetime | None: ...
def zoned(moment: datetime | None, zone_name: str) -> datetime | None:
    if moment is None:
        return None
    there = moment.astimezone(zone(zone_name))
    # Before 1972 an offset may have seconds, which RFC 3339 cannot express.
    return there.astimezone(UTC) if (there.utcoffset() or _NONE) % _MINUTE else there


def shaped(kind: type[S], zone_name: str, *sources: object, **own: object) -> S:
    """Return a struct with its *own* values, others from the first source that has them."""
    for name, source in _origins(kind, *map(type, sources)):
        if name not in own:
            own[name] = getattr(sources[source], name)
    for name, value in own.items():
        if type(value) is datetime:
            own[name] = zoned(value, zone_name)
        elif type(value) is Reason:
            own[name] = str(value)
    return kind(**own)


@cache
def _origins(kind: type[Shape], *sources: type) -> list[tuple[str, int]]:
    found = []
    for name in kind.__struct_fields__:
        having = (at for at, each in enumerate(sources) if hasattr(each, name))
        found += [(name, at) for at in islice(having, 1)]
    return found


def entry_line(found: Listed, zone_name: str) -> EntryLine:
    item, pause = found.item, found.pause
    return shaped(
        EntryLine,
        zone_name,
        found,
        found.mark,
        item.origin,
        entry=found.number,
        zone=zone_name,
        armed=found.is_armed,
        rule=entry_words(item, zone_name=zone_name) if isinstance(item, Entry) else None,
        reason=None if isinstance(item, Entry) else item.reason,
        pause=pause and shaped(PauseLine, zone_name, pause, by=pause.by or None),
        broken=found.broken or None,
    )


def entry_row(found: Listed, zone_name: str, state: EntryState, known: Sequence[Filed]) -> EntryRow:
    ends = [
        shaped(EndMark, zone_name, each, each.receipt, receipt=each.number, seconds=_took(each))
        for each in reversed(known)
    ]
    last = None
    if known:
        code = known[0].receipt.reason.code or None
        own: dict[str, Any] = {"receipt": known[0].number, "reason_code": code}
        own["late_seconds"] = known[0].late.total_seconds()
        last = shaped(LastReceipt, zone_name, known[0].receipt, known[0], **own)
    line = structs.asdict(entry_line(found, zone_name))
    return EntryRow(**line, state=state, agents=found.agents, last=last, ends=tuple(ends))


def _took(filed: Filed) -> float | None:
    if filed.ended_at is None or not filed.attempts:
        return None
    began_at = max(filed.decided_at, filed.receipt.start_at)
    return max(_NONE, filed.ended_at - began_at).total_seconds()


def receipt_line(filed: Filed, title: str, zone_name: str) -> ReceiptLine:
    own = {**of_receipt(filed), "title": title, "zone": zone_name, "times": 1}
    return shaped(ReceiptLine, zone_name, filed.receipt, filed, filed.origin, **own)


def of_receipt(filed: Filed) -> dict[str, object]:
    receipt = filed.receipt
    return {
        "receipt": filed.number,
        "reason_code": receipt.reason.code or None,
        "late_seconds": filed.late.total_seconds(),
        "note": receipt.note or None,
        "node": filed.machine or UNSET,
    }


def attempts(runs: Iterable[Run], zone_name: str) -> tuple[Attempt, ...]:
    """Return the runs of a receipt; only one that was started and met no limit is an attempt."""
    found: list[Attempt] = []
    count = 0
    for run in runs:
        if "by" in run.facts and found[-1:] and found[-1].reason_code == ReasonCode.PROVIDER_ERROR:
            count -= 1  # `:ELSE:` runs in the same attempt
        found.append(shaped(Attempt, zone_name, run, **_of_run(run), attempt=count + 1))
        count += run.outcome not in {None, Status.LIMITED}
    return tuple(found)


def run_line(run: Run, line: ReceiptLine, attempt: int) -> RunLine:
    own = {**_of_run(run), "receipt": line.receipt, "attempt": attempt}
    return shaped(RunLine, line.zone, run, line, **own)


def _of_run(run: Run) -> dict[str, object]:
    pid = None if run.process is None else run.process.pid
    known = {"run": run.number, "pid": pid, "reason_code": run.reason.code or None}
    return {**known, "node": run.member or UNSET}


# Only between the engine and the command line, not in responses


@dataclass(frozen=True, slots=True)
class EngineFacts:
    is_running: bool
    directory: str
    pid: int | None = None
    since: str = ""
    problems: tuple[str, ...] = ()
    stall: str = ""  # if it starts nothing, although it could
    user: str = ""  # without an engine: the process that executes a run
    is_stopping: bool = False
    disk: DiskLine | None = None

    @property
    def absence(self) -> str:
        uses = f"; {self.user} uses the ledger until its run ends" if self.user else ""
        return f"no engine is running{uses}"

    @property
    def line(self) -> EngineLine:
        since = self.since or None
        return EngineLine(running=self.is_running, data=self.directory, pid=self.pid, since=since)


@dataclass(frozen=True, slots=True)
class AgentState:
    last_run_at: datetime | None = None
    position: AgentPosition | None = None
    troubles: Mapping[str, str] = field(default_factory=dict)


class EntryNotFoundError(HoraeError, code="entry_not_found", exit_code=Exit.NOT_FOUND):
    def __init__(self, word: str, *, near: Sequence[str] = ()) -> None:
        self.word = word
        self.near = list(near)
        meant = " or ".join(repr(each) for each in near)
        hint = f"did you mean {meant}?" if near else "`horae list` shows the entries"
        super().__init__(
            f"no entry is called {word!r}; {hint} "
            "(name an entry by its number, :ID:, title, or file:line)"
        )


class AmbiguousEntryError(HoraeError, code="entry_ambiguous", exit_code=Exit.USAGE):
    def __init__(self, word: str, found: Sequence[Listed]) -> None:
        self.word = word
        self.candidates = [
            {
                "entry": each.number,
                "title": each.mark.title,
                "address": each.mark.address,
                "file": each.item.origin.file,
                "line": each.item.origin.line,
            }
            for each in found
        ]
        shown = [f"  {each.number}  {each.mark.title}  {each.item.origin}" for each in found[:20]]
        more = [f"  and {len(found) - 20} more"] if len(found) > 20 else []
        head = f"{len(found)} entries are called {word!r}; name one by its number:"
        super().__init__("\n".join([head, *shown, *more]))


class EntryStateError(HoraeError, code="entry_state", exit_code=Exit.CONFLICT):
    def __init__(self, found: Listed, reason: str, *, remedy: str) -> None:
        self.entry = found.number
        self.title = found.mark.title
        self.reason = reason
        super().__init__(f"{found.mark.title} (entry {found.number}): {reason}; {remedy}")


class CannotRunError(HoraeError, code="cannot_run"):
    def __init__(self, title: str, why: Unready) -> None:
        self.title = title
        self.reason = why.reason
        self.fix = why.fix
        super().__init__(f"{title} cannot run: {why}")


class RunNotFoundError(HoraeError, code="run_not_found", exit_code=Exit.NOT_FOUND):
    def __init__(self, what: int | str) -> None:
        self.what = what
        numbers = "runs and receipts are numbered separately"
        super().__init__(
            f"there is no run {what}, or `horae prune` removed it; {numbers}; "
            "`horae why ENTRY` shows the run numbers"
            if isinstance(what, int)
            else f"{what} has no run in the ledger: nothing ran, or `horae prune` removed its runs"
        )


class RunStateError(HoraeError, code="run_state", exit_code=Exit.CONFLICT):
    def __init__(self, title: str, reason: str, *, runs: Sequence[int] = ()) -> None:
        self.title = title
        self.reason = reason
        self.runs = list(runs)
        super().__init__(f"{title}: {reason}")


class RequestError(HoraeError, code="request", exit_code=Exit.USAGE):
    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)
