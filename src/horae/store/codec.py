"""The text of rules and policies in a ledger, and the conversion of its rows.

Rules and policies are structs as JSON without default values, so that the same entry always has the
same text.
"""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import MsgspecError, Struct, to_builtins
from msgspec.json import Decoder, Encoder
from msgspec.structs import replace

from horae.core.entry import (
    DEFAULT,
    PROPERTIES,
    CadenceRule,
    Entry,
    Origin,
    Pause,
    Policy,
    Rule,
    Unarmed,
    Work,
)
from horae.core.inbox import Acknowledged, BadResult, EntrySummary, InboxState
from horae.core.ports import (
    DueEntry,
    Event,
    LedgerDamagedError,
    Listed,
    OutcomeCount,
    Process,
    Run,
    RunSpan,
    compact,
    micros,
    moment,
)
from horae.core.project import counts_from_end, next_time, unpaused
from horae.core.receipt import LIMITS, Filed, Reason, Receipt, Status
from horae.core.source import Mark
from horae.core.spending import AccountLimit
from horae.timing.cron import Cron

if TYPE_CHECKING:
    from collections.abc import Callable

    from horae.core.ports import LedgerRow

_Read = TypeVar("_Read")
_UNREADABLE: Final = (
    MsgspecError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
)
_HALF: Final = re.compile("[\ud800-\udfff]")


class _EntrySpec(Struct, frozen=True, omit_defaults=True, gc=False):
    rule: Rule
    zone: str
    work: Work = Work.WORKFLOW
    agents: tuple[str, ...] = ()
    policy: Policy = DEFAULT
    deadline: datetime | None = None


def _cron_data(cron: Cron) -> tuple[str, str]:
    return cron.expression, cron.zone


@lru_cache(maxsize=4096)
def _cron(text: str, zone: str) -> Cron:
    return Cron(text, zone=zone)


_WRITER: Final = Encoder(enc_hook=_cron_data)
_SPECS: Final = Decoder(_EntrySpec, dec_hook=lambda _, pair: _cron(*pair))
_POLICIES: Final = Decoder(Policy)


def as_text(data: object) -> str:
    try:
        return _WRITER.encode(data).decode()
    except UnicodeEncodeError:  # lone surrogates are escaped as in `plain`
        data = to_builtins(data, enc_hook=_cron_data)
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        return _HALF.sub(lambda half: rf"\\u{ord(half[0]):04x}", text)


def write_policy(policy: Policy) -> str:
    return "{}" if policy is DEFAULT else as_text(policy)


def read_policy(text: str) -> Policy:
    return DEFAULT if text == "{}" else _POLICIES.decode(text)


def write_entry(entry: Entry) -> str:
    """Return the text of an entry: rule, zone, work, agents, policy and deadline.

    The counts of a cadence are left out, as they change without an edit.
    """
    rule = entry.rule
    if isinstance(rule, CadenceRule):
        rule = CadenceRule(rule.base, rule.first_at)
    policy = DEFAULT if entry.policy == DEFAULT else entry.policy
    spec = _EntrySpec(rule, entry.zone, entry.work, entry.agents, policy, entry.deadline)
    return as_text(spec)


def read_rule(text: str) -> Rule:
    return _SPECS.decode(text).rule


def write_agents(agents: tuple[str, ...]) -> str:
    return compact(agents) if agents else "[]"


def read_agents(text: str) -> tuple[str, ...]:
    return () if text == "[]" else tuple(json.loads(text))


def clock_of(entry: Entry) -> tuple[object, ...]:
    return entry.zone, *(each.of(entry.policy) for each in PROPERTIES if each.decides_times)


def _read(kind: str) -> Callable[[Callable[[LedgerRow], _Read]], Callable[[LedgerRow], _Read]]:
    """Decorate a reader of rows, so that its errors name the row."""

    def reading(read: Callable[[LedgerRow], _Read]) -> Callable[[LedgerRow], _Read]:
        @wraps(read)
        def told(row: LedgerRow) -> _Read:
            try:
                return read(row)
            except _UNREADABLE as error:
                reason = f"the row of {kind} {row['number']} is damaged ({error})"
                remedy = "restore a backup with `horae restore FILE`"
                raise LedgerDamagedError("the ledger", reason, remedy=remedy) from error

        return told

    return reading


@_read("entry")
def listed(row: LedgerRow) -> Listed:
    paused_at = moment(row["paused_at"])
    until, note, by = moment(row["paused_until"]), row["pause_note"], row["paused_by"]
    pause = paused_at and Pause(paused_at, until, note, by or "")
    item = item_of(row)
    if pause is not None and isinstance(item, Entry):
        item = replace(item, pause=pause)
    return Listed(
        row["number"],
        row["source"],
        mark_of(row),
        item,
        moment(int(row["first_seen_at"])),
        gone_at=moment(row["gone_at"]),
        missing_at=moment(row["missing_at"]),
        pause=pause,
        next_at=moment(row["next_at"]),
        failures=row["failures"],
        streak=row["streak"],
        ticks=row["ticks"],
        memory=row["memory"] or "",
        broken=row["broken"] or "",
        broken_at=moment(row["broken_at"]),
    )


def summary_of(row: LedgerRow) -> EntrySummary:
    status = row["last_status"]
    return EntrySummary(
        row["number"], row["source"], row["address"], row["title"], row["file"], row["line"],
        is_unarmed=bool(row["is_unarmed"]),
        is_paused=bool(row["is_paused"]),
        is_gone=bool(row["is_gone"]),
        is_broken=bool(row["is_broken"]),
        failures=row["failures"],
        next_at=moment(row["next_at"]),
        last_at=moment(row["last_at"]),
        last_status=status and Status(status),
    )  # fmt: skip


def mark_of(row: LedgerRow) -> Mark:
    return Mark(row["address"], row["title"], row["rule"], row["body"])


def item_of(row: LedgerRow) -> Entry | Unarmed:
    if row["spec"] is None:
        origin = Origin(row["file"], row["line"])
        return Unarmed(row["address"], origin, row["title"], row["unarmed"])
    return entry_of(row)


@_read("entry")
def entry_of(row: LedgerRow) -> Entry:
    spec = _SPECS.decode(row["spec"])
    return Entry(
        row["address"],
        Origin(row["file"], row["line"]),
        row["title"],
        _counted(spec.rule, row),
        spec.work,
        spec.agents,
        spec.policy,
        spec.zone,
        spec.deadline,
        row["digest"],
        row["number"],
        moment(row["accounted_to"]),
        moment(row["ended_at"]),
    )


def _counted(rule: Rule, row: LedgerRow) -> Rule:
    if not isinstance(rule, CadenceRule):
        return rule
    return CadenceRule(rule.base, rule.first_at, row["ticks"], row["streak"], row["failures"])


def numbered(entry: Entry, row: LedgerRow) -> Entry:
    return replace(
        entry,
        rule=_counted(entry.rule, row),
        number=row["number"],
        accounted_to=moment(row["accounted_to"]),
        ended_at=moment(row["ended_at"]),
    )


def next_at(entry: Entry) -> int | None:
    """Return the next time that can be decided, if it is not an estimate, in microseconds."""
    return next_after(entry, entry.accounted_to, entry.ended_at)


def next_after(
    entry: Entry, accounted_to: datetime | None, ended_at: datetime | None
) -> int | None:
    if accounted_to is None:
        return None
    # An entry is copied only where needed: that takes as long as the projection.
    if ended_at != entry.ended_at and counts_from_end(entry.rule):
        entry = replace(entry, ended_at=ended_at)
    return micros(next_time(unpaused(entry), accounted_to))


def due_of(row: LedgerRow) -> DueEntry:
    return DueEntry(entry_of(row), bool(row["is_busy"]))


@_read("receipt")
def filed_of(row: LedgerRow) -> Filed:
    receipt = Receipt(
        row["key"],
        Status(row["status"]),
        Reason(row["reason_code"], row["reason"]),
        moment(int(row["planned_at"])),
        moment(int(row["start_at"])),
        moment(row["through_at"]),
        row["count"],
        row["note"],
    )
    return Filed(
        row["number"],
        row["entry"],
        receipt,
        moment(int(row["decided_at"])),
        Origin(row["file"], row["line"]),
        row["digest"],
        row["commit_id"],
        read_policy(row["policy"]),
        source=row["source"],
        title=row["title"],
        work=Work(row["work"]),
        agents=read_agents(row["agents"]),
        parent=row["parent"],
        attempts=row["attempts"],
        deaths=row["deaths"],
        ended_at=moment(row["ended_at"]),
        settled_at=moment(row["settled_at"]),
        machine=row["machine"] or "",
        actor=row["actor"],
    )


@_read("run")
def run_of(row: LedgerRow) -> Run:
    outcome, code, pid = row["outcome"], row["reason_code"], row["pid"]
    if outcome is None and pid is not None and code in LIMITS:
        outcome = Status.LIMITED  # stored like a run that was given back: it is no attempt
    return Run(
        row["number"],
        row["receipt"],
        row["attempt"],
        moment(int(row["started_at"])),
        process=None if pid is None else Process(pid, row["pid_started"]),
        ended_at=moment(row["ended_at"]),
        outcome=None if outcome is None else Status(outcome),
        exit_code=row["exit_code"],
        reason=Reason(code, row["reason"]),
        facts=json.loads(row["facts"]),
        member=row["member"] or "",
    )


def outcome_of(row: LedgerRow, *, since: datetime, step: timedelta) -> OutcomeCount:
    first, last = moment(int(row["first_at"])), moment(int(row["last_at"]))
    own = Status(row["status"]), int(row["times"]), row["lane"], first, last, row["number"]
    return OutcomeCount(since + int(row["part"]) * step, *own)


@_read("receipt")
def span_of(row: LedgerRow) -> RunSpan:
    outcome = row["outcome"]
    return RunSpan(
        row["number"],
        row["entry"],
        row["title"],
        row["file"],
        read_agents(row["agents"]),
        row["parent"],
        Status(row["status"]),
        Reason(row["reason_code"], row["reason"]),
        moment(int(row["planned_at"])),
        moment(row["through_at"]),
        moment(int(row["start_at"])),
        moment(int(row["decided_at"])),
        row["run"],
        moment(row["started_at"]),
        moment(row["over_at"]),
        None if outcome is None else Status(outcome),
        row["member"] or "",
    )


def limit_of(row: LedgerRow) -> AccountLimit:
    since_at, until_at = moment(int(row["since_at"])), moment(int(row["until_at"]))
    what = row["name"], row["reason_code"]
    return AccountLimit(*what, since_at, until_at, row["tries"], row["probe"])


def bad_of(row: LedgerRow) -> BadResult:
    return BadResult(filed_of(row), moment(int(row["since_at"])), row["times"])


def acknowledged_of(row: LedgerRow) -> Acknowledged:
    since, at = moment(int(row["since_at"])), moment(int(row["at"]))
    about = row["entry"], InboxState(row["state"]), since, at
    return Acknowledged(*about, moment(row["until_at"]), row["note"], row["actor"])


@_read("event")
def event_of(row: LedgerRow) -> Event:
    return Event(
        row["number"],
        moment(int(row["at"])),
        row["kind"],
        row["entry"],
        row["receipt"],
        json.loads(row["facts"]),
        row["actor"],
    )
