"""What the rows of a ledger hold, as the engine knows it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Final, TypeVar

from horae.core.entry import CadenceRule, Entry, Origin, Pause, RepeaterRule, Unarmed, Work
from horae.core.identity import Mark
from horae.core.ports import DueEntry, Event, LedgerDamagedError, Listed, Process, Run
from horae.core.project import next_moment, unpaused
from horae.core.receipt import Filed, Reason, Receipt, Status
from horae.store.codec import ENTRY, micros, moment, read_agents, read_entry, read_policy
from horae.timing.repeater import RepeaterKind

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from datetime import datetime

    from horae.core.entry import Rule

_Read = TypeVar("_Read")
_UNREADABLE: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)


def _read(kind: str) -> Callable[[Callable[[sqlite3.Row], _Read]], Callable[[sqlite3.Row], _Read]]:
    """Let a function that reads rows of a kind say which row it is that cannot be read."""

    def reading(read: Callable[[sqlite3.Row], _Read]) -> Callable[[sqlite3.Row], _Read]:
        @wraps(read)
        def told(row: sqlite3.Row) -> _Read:
            try:
                return read(row)
            except _UNREADABLE as error:
                reason = f"the row of {kind} {row['number']} is damaged ({error})"
                remedy = "restore a backup with `horae restore FILE`"
                raise LedgerDamagedError("the ledger", reason, remedy=remedy) from error

        return told

    return reading


@_read("entry")
def listed(row: sqlite3.Row) -> Listed:
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


def mark_of(row: sqlite3.Row) -> Mark:
    return Mark(row["address"], row["title"], row["rule"], row["body"])


def item_of(row: sqlite3.Row) -> Entry | Unarmed:
    """Return what the row says that is to happen, or why nothing is."""
    if row["spec"] is None:
        origin = Origin(row["file"], row["line"])
        return Unarmed(row["address"], origin, row["title"], row["unarmed"])
    return entry_of(row)


@_read("entry")
def entry_of(row: sqlite3.Row) -> Entry:
    return read_entry([row[name] for name in ENTRY])


def numbered(entry: Entry, row: sqlite3.Row) -> Entry:
    rule = entry.rule
    if isinstance(rule, CadenceRule):
        counts = {name: row[name] for name in ("ticks", "streak", "failures")}
        rule = replace(rule, **counts)
    return replace(
        entry,
        rule=rule,
        number=row["number"],
        accounted_to=moment(row["accounted_to"]),
        ended_at=moment(row["ended_at"]),
    )


def next_at(entry: Entry) -> int | None:
    """Return the next moment that can be decided, as it is written: one that is no estimate."""
    return next_after(entry, entry.accounted_to, entry.ended_at)


def next_after(
    entry: Entry, accounted_to: datetime | None, ended_at: datetime | None
) -> int | None:
    """Return the same of an entry that is accounted for up to another moment."""
    if accounted_to is None:
        return None
    # An entry is made anew only where that matters: it takes as long as the projection.
    if ended_at != entry.ended_at and counts_from_end(entry.rule):
        entry = replace(entry, ended_at=ended_at)
    coming = next_moment(unpaused(entry), accounted_to)
    return None if coming is None or coming.is_estimate else micros(coming.at)


def counts_from_end(rule: Rule) -> bool:
    """Tell whether the next moment of a rule follows from the end of its last run."""
    match rule:
        case CadenceRule():
            return True
        case RepeaterRule(_, repeater):
            return repeater.kind is RepeaterKind.RESTART
    return False


@_read("entry")
def due_of(row: sqlite3.Row) -> DueEntry:
    """Return what has come due, from a row that has the columns of an entry in their order."""
    return DueEntry(read_entry(row), bool(row[-1]))


@_read("receipt")
def filed_of(row: sqlite3.Row) -> Filed:
    receipt = Receipt(
        row["key"],
        Status(row["status"]),
        Reason(row["reason_code"], row["reason"]),
        moment(int(row["planned_at"])),
        moment(int(row["start_at"])),
        moment(row["through_at"]),
        row["count"],
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


def moved(
    filed: Filed,
    status: Status,
    *,
    reason: Reason,
    start_at: datetime | None,
    attempts: int,
    ended_at: datetime | None,
) -> Filed:
    """Return a receipt as it stands after a move, without reading it again."""
    was = filed.receipt
    receipt = Receipt(
        was.key,
        status,
        reason,
        was.planned_at,
        was.start_at if start_at is None else start_at,
        was.through_at,
        was.count,
    )
    # Spelled out: `replace` takes as long as all else that is done at the end of a run.
    return Filed(
        filed.number,
        filed.entry,
        receipt,
        filed.decided_at,
        filed.origin,
        filed.digest,
        filed.commit,
        filed.policy,
        filed.source,
        filed.title,
        filed.work,
        filed.agents,
        filed.parent,
        attempts,
        filed.deaths,
        ended_at,
        filed.settled_at,
        "" if status is Status.WAITING else filed.machine,
        filed.actor,
    )


@_read("run")
def run_of(row: sqlite3.Row) -> Run:
    outcome = row["outcome"]
    return Run(
        row["number"],
        row["receipt"],
        row["attempt"],
        moment(int(row["started_at"])),
        process=None if row["pid"] is None else Process(row["pid"], row["pid_started"]),
        ended_at=moment(row["ended_at"]),
        outcome=None if outcome is None else Status(outcome),
        exit_code=row["exit_code"],
        reason=Reason(row["reason_code"], row["reason"]),
        facts=json.loads(row["facts"]),
        member=row["member"] or "",
    )


@_read("event")
def event_of(row: sqlite3.Row) -> Event:
    return Event(
        row["number"],
        moment(int(row["at"])),
        row["kind"],
        row["entry"],
        row["receipt"],
        json.loads(row["facts"]),
        row["actor"],
    )
