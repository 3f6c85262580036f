"""What the service returns, as plain data whose `data` is its JSON, and the errors it raises."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from horae.core.explain import WhyAnswer, Window, json_fields, late, receipt_data, run_data, stamp
from horae.errors import Exit, HoraeError
from horae.timing.backoff import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta

    from horae.core.command import Unready
    from horae.core.entry import Origin, Pause
    from horae.core.ports import Event, Listed, Run
    from horae.core.receipt import Filed, Reason, Status


@dataclass(frozen=True, slots=True)
class EngineFacts:
    is_running: bool
    directory: str
    pid: int | None = None
    since: str = ""
    problems: tuple[str, ...] = ()
    stall: str = ""  # that it starts nothing, though it could; above all else
    user: str = ""  # without an engine: the process that executes a run, in words
    is_stopping: bool = False

    @property
    def absence(self) -> str:
        uses = f"; {self.user} uses the ledger until its run ends" if self.user else ""
        return f"no engine is running{uses}"

    def data(self) -> dict[str, object]:
        return {
            "running": self.is_running,
            "data": self.directory,
            "pid": self.pid,
            "since": self.since or None,
        }


@dataclass(frozen=True, slots=True)
class EntryLine:
    number: int
    source: str
    title: str
    address: str
    origin: Origin
    zone: str
    is_armed: bool
    rule: str  # in words; empty if it is not armed
    reason: str  # why it is not armed; empty if it is
    first_seen_at: datetime
    gone_at: datetime | None
    pause: Pause | None
    next_at: datetime | None
    failures: int
    broken: str = ""  # why its text cannot be read, if it cannot
    broken_at: datetime | None = None  # since when its last good text is kept instead

    def data(self) -> dict[str, object]:
        pause, zone_name = self.pause, self.zone
        about = "source title address zone first_seen_at gone_at next_at failures broken_at"
        return {
            "entry": self.number,
            **json_fields(self, about, zone_name),
            **json_fields(self.origin, "file line"),
            "armed": self.is_armed,
            "rule": self.rule or None,
            "reason": self.reason or None,
            "pause": pause
            and {**json_fields(pause, "at until note", zone_name), "by": pause.by or None},
            "broken": self.broken or None,
        }


@dataclass(frozen=True, slots=True)
class ReceiptLine:
    """A receipt with the zone of its entry; `times` counts the entry's moments it stands for."""

    filed: Filed
    title: str
    zone: str
    times: int = 1

    @property
    def late(self) -> timedelta:
        return late(self.filed)

    def data(self) -> dict[str, object]:
        return {
            **receipt_data(self.filed, self.zone),
            **json_fields(self.filed, "entry attempts parent"),
            **json_fields(self.filed.receipt, "planned_at", self.zone),
            **json_fields(self, "title times zone"),
        }


class PositionData(TypedDict):
    state: str
    hits: int
    next_state: str
    kind: str


@dataclass(frozen=True, slots=True)
class AgentState:
    last_run_at: datetime | None = None
    position: PositionData | None = None
    troubles: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentLine:
    """An agent that ticks; `place` is its position, as of its last tick."""

    entry: EntryLine
    is_running: bool
    last_run_at: datetime | None
    place: PositionData | None
    streak: int
    outcome: Status | None  # of its last tick that ended
    reason: Reason  # why that ended so
    held: str  # why its tick cannot start, if it cannot
    troubles: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.entry.title

    @property
    def is_stuck(self) -> bool:
        return self.entry.failures > PATIENCE

    def data(self) -> dict[str, object]:
        entry = self.entry
        return {
            "agent": self.name,
            "entry": entry.number,
            **json_fields(entry.origin, "file line"),
            "zone": entry.zone,
            "running": self.is_running,
            "last_run": stamp(self.last_run_at, entry.zone),
            "next_run": stamp(entry.next_at, entry.zone),
            "rule": entry.rule or None,
            "lifecycle": None if self.place is None else dict(self.place),
            "failures": entry.failures,
            "stuck": self.is_stuck,
            "last_outcome": None if self.outcome is None else self.outcome.value,
            "last_reason": self.reason or None,
            "last_reason_code": self.reason.code or None,
            "held": self.held or None,
            "paused": entry.pause is not None,
            **json_fields(self, "streak troubles"),
        }


@dataclass(frozen=True, slots=True)
class StatusReport:
    at: datetime
    zone: str
    engine: EngineFacts
    entries: int  # that may fire
    counts: Mapping[Status, int]  # of all receipts that are not final
    agents: tuple[AgentLine, ...] = ()
    running: tuple[ReceiptLine, ...] = ()
    waiting: tuple[ReceiptLine, ...] = ()
    coming: tuple[EntryLine, ...] = ()
    late: tuple[ReceiptLine, ...] = ()
    missed: tuple[ReceiptLine, ...] = ()
    failed: tuple[ReceiptLine, ...] = ()
    paused: tuple[EntryLine, ...] = ()
    unarmed: tuple[EntryLine, ...] = ()
    problems: tuple[str, ...] = ()

    def data(self) -> dict[str, object]:
        receipts = ("running", "waiting", "late", "missed", "failed")
        entries = {"next": self.coming, "paused": self.paused, "unarmed": self.unarmed}
        return {
            "at": stamp(self.at, self.zone),
            "zone": self.zone,
            "stall": self.engine.stall or None,
            "engine": self.engine.data(),
            "entries": self.entries,
            "counts": {status.value: count for status, count in self.counts.items()},
            "agents": [each.data() for each in self.agents],
            **{name: [each.data() for each in getattr(self, name)] for name in receipts},
            **{name: [each.data() for each in lines] for name, lines in entries.items()},
            "problems": list(self.problems),
        }


@dataclass(frozen=True, slots=True)
class History:
    lines: tuple[ReceiptLine, ...]
    cursor: int | None = None

    def data(self) -> dict[str, object]:
        return {"receipts": [each.data() for each in self.lines], "cursor": self.cursor}


@dataclass(frozen=True, slots=True)
class ReceiptDetail:
    line: ReceiptLine
    runs: tuple[Run, ...]

    def data(self) -> dict[str, object]:
        runs = [run_data(each, self.line.zone) for each in self.runs]
        return {**self.line.data(), "runs": runs}


@dataclass(frozen=True, slots=True)
class RunLine:
    run: Run
    line: ReceiptLine

    def data(self) -> dict[str, object]:
        line = self.line.data()
        about = {name: line[name] for name in ("receipt", "entry", "title", "key", "status")}
        return {**run_data(self.run, self.line.zone), **about, "zone": self.line.zone}


@dataclass(frozen=True, slots=True)
class CancelResult:
    run: RunLine
    changed: bool

    def data(self) -> dict[str, object]:
        return {**self.run.data(), "changed": self.changed}


@dataclass(frozen=True, slots=True)
class EntryPage:
    entries: tuple[EntryLine, ...]
    cursor: int | None = None

    def data(self) -> dict[str, object]:
        return {"entries": [each.data() for each in self.entries], "cursor": self.cursor}


@dataclass(frozen=True, slots=True)
class EventPage:
    events: tuple[Event, ...]
    after: int
    zone: str

    def data(self) -> dict[str, object]:
        about = "at kind entry receipt facts actor"
        told = [
            {"event": each.number, **json_fields(each, about, self.zone)} for each in self.events
        ]
        return {"events": told, "after": self.after}


@dataclass(frozen=True, slots=True)
class WhyReport:
    at: datetime
    entry: EntryLine
    answers: tuple[WhyAnswer, ...]
    window: Window | None = None
    before: datetime | None = None
    after: datetime | None = None
    is_cut: bool = False  # there are more than were asked for
    cannot_run: str = ""  # why a run of it could not start now, if that is known

    def data(self) -> dict[str, object]:
        place = self.entry.zone
        return {
            **json_fields(self, "at before after", place),
            "entry": self.entry.data(),
            "cannot_run": self.cannot_run or None,
            "from": stamp(self.window.start, place) if self.window else None,
            "to": stamp(self.window.end, place) if self.window else None,
            "answers": [each.data(place) for each in self.answers],
            "more": self.is_cut,
        }


@dataclass(frozen=True, slots=True)
class PauseResult:
    entry: EntryLine
    changed: bool
    skipped: int | None = None  # how many waiting runs a pause has skipped

    def data(self) -> dict[str, object]:
        skipped = {} if self.skipped is None else {"skipped": self.skipped}
        return {**self.entry.data(), "changed": self.changed, **skipped}


@dataclass(frozen=True, slots=True)
class BackfillResult:
    entry: EntryLine
    name: str
    start: datetime
    end: datetime
    moments: tuple[datetime, ...]
    lines: tuple[ReceiptLine, ...] = ()
    dry_run: bool = False
    follows_ends: bool = False  # so that its past has no moments of its own
    has_schedule: bool = True  # False: it runs on request, or after other entries

    def data(self) -> dict[str, object]:
        place = self.entry.zone
        return {
            "id": self.name,
            "entry": self.entry.number,
            **json_fields(self.entry, "title zone"),
            "from": stamp(self.start, place),
            "to": stamp(self.end, place),
            "dry_run": self.dry_run,
            "count": len(self.moments),
            "moments": [stamp(each, place) for each in self.moments],
            "receipts": [each.filed.number for each in self.lines],
        }


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
                **json_fields(each.mark, "title address"),
                **json_fields(each.item.origin, "file line"),
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


class ReceiptNotFoundError(HoraeError, code="receipt_not_found", exit_code=Exit.NOT_FOUND):
    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"there is no receipt {number}; `horae history` lists the receipts")


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
