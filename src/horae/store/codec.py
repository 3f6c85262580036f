"""The text of rules and policies in a ledger, and the conversion of its rows.

Rules and policies are structs as JSON without default values, so that the same entry always has the
same text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, get_type_hints

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
    from horae.core.ports import LedgerRow

_Read = TypeVar("_Read")
_Column: TypeAlias = "Callable[[LedgerRow], _Read]"
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


def _told(kind: str, read: _Column[_Read]) -> _Column[_Read]:
    """Return a reader of rows whose errors name the row."""

    def told(row: LedgerRow) -> _Read:
        try:
            return read(row)
        except _UNREADABLE as error:
            reason = f"the row of {kind} {row['number']} is damaged ({error})"
            remedy = "restore a backup with `horae restore FILE`"
            raise LedgerDamagedError("the ledger", reason, remedy=remedy) from error

    return told


def mark_of(row: LedgerRow) -> Mark:
    return Mark(row["address"], row["title"], row["rule"], row["body"])


def item_of(row: LedgerRow) -> Entry | Unarmed:
    if row["spec"] is None:
        origin = Origin(row["file"], row["line"])
        return Unarmed(row["address"], origin, row["title"], row["unarmed"])
    return entry_of(row)


def _entry_of(row: LedgerRow) -> Entry:
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


entry_of: Final = _told("entry", _entry_of)


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


def _pause_of(row: LedgerRow) -> Pause | None:
    paused_at = moment(row["paused_at"])
    until, note, by = moment(row["paused_until"]), row["pause_note"], row["paused_by"]
    return paused_at and Pause(paused_at, until, note, by or "")


def _paused_item_of(row: LedgerRow) -> Entry | Unarmed:
    item, pause = item_of(row), _pause_of(row)
    return replace(item, pause=pause) if pause and isinstance(item, Entry) else item


def _outcome_of(row: LedgerRow) -> Status | None:
    outcome = row["outcome"]
    if outcome is None and row["pid"] is not None and row["reason_code"] in LIMITS:
        return Status.LIMITED  # stored like a run that was given back: it is no attempt
    return outcome and Status(outcome)


def _process_of(row: LedgerRow) -> Process | None:
    return None if row["pid"] is None else Process(row["pid"], row["pid_started"])


def outcome_of(row: LedgerRow, *, since: datetime, step: timedelta) -> OutcomeCount:
    first, last = moment(int(row["first_at"])), moment(int(row["last_at"]))
    own = Status(row["status"]), int(row["times"]), row["lane"], first, last, row["number"]
    return OutcomeCount(since + int(row["part"]) * step, *own)


# How a column is read, by the type of its field; any other value stays as it is.
_PARSED: Final[dict[object, Callable[[Any], object]]] = {
    datetime: moment,
    datetime | None: moment,
    Status: Status,
    Status | None: lambda text: text and Status(text),
    InboxState: InboxState,
    Work: Work,
    Policy: read_policy,
    tuple[str, ...]: read_agents,
    Mapping[str, object]: json.loads,
    bool: bool,
}
_MAY_BE_NULL: Final = {"broken", "machine", "member", "memory"}  # texts
# What several columns are.
_COMPOSED: dict[object, _Column[object]] = {
    Origin: lambda row: Origin(row["file"], row["line"]),
    Reason: lambda row: Reason(row["reason_code"], row["reason"]),
    Mark: mark_of,
}


def _reader(kind: Callable[..., _Read], **own: str | _Column[object]) -> _Column[_Read]:
    """Return a reader of rows as structs: a field is in the column of its name, or in its *own*."""
    columns = []
    for name, hint in get_type_hints(kind).items():
        column = own.get(name, _COMPOSED.get(hint, name))
        columns.append(_column(column, hint) if isinstance(column, str) else column)
    return lambda row: kind(*[column(row) for column in columns])


def _column(name: str, hint: object) -> _Column[object]:
    if name in _MAY_BE_NULL:
        return lambda row: row[name] or ""
    parsed = _PARSED.get(hint)
    return itemgetter(name) if parsed is None else lambda row: parsed(row[name])


_COMPOSED[Receipt] = _reader(Receipt)
filed_of: Final = _told("receipt", _reader(Filed, commit="commit_id"))
_COMPOSED[Filed] = filed_of
run_of: Final = _told("run", _reader(Run, process=_process_of, outcome=_outcome_of))
listed: Final = _told("entry", _reader(Listed, item=_paused_item_of, pause=_pause_of))
event_of: Final = _told("event", _reader(Event))
span_of: Final = _told(
    "receipt", _reader(RunSpan, receipt="number", begun_at="started_at", node="member")
)
due_of: Final = _reader(DueEntry, entry=entry_of)
summary_of: Final = _reader(EntrySummary, is_new=lambda _: False)
limit_of: Final = _reader(AccountLimit, account="name")
bad_of: Final = _reader(BadResult, since="since_at")
acknowledged_of: Final = _reader(Acknowledged, since="since_at", until="until_at")
