"""What is written into the ledger, and read from it, inside a transaction that is open.

Nothing here begins or ends a transaction, asks for the term, or knows of threads: that
is the matter of whoever opened the book.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from horae.engine.ports import Event, Filed, Listed, Page, Pause, Process, Pruned, Run
from horae.rules.entry import Origin, Unarmed
from horae.rules.identity import Mark
from horae.rules.misfire import Receipt, Status
from horae.rules.receipt import ENDS, OPEN, after_end, is_planned, may_become
from horae.store.codec import (
    compact,
    micros,
    moment,
    plain,
    read_entry,
    read_policy,
    write_policy,
)
from horae.store.sql import theme

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from horae.engine.ports import Step
    from horae.rules.entry import Entry
    from horae.rules.misfire import Decision

_ENTRY: Final = theme("entry")
_RECEIPT: Final = theme("receipt")
_RUN: Final = theme("run")
_EVENT: Final = theme("event")
_TEXT: Final = theme("text")
_PRUNE: Final = theme("prune")


class Book:
    """The pages of one ledger, through one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute
        self._execute_many = connection.executemany

    # Entries

    def entry(self, number: int) -> Listed | None:
        """Return one entry."""
        row = self._execute(_ENTRY["one"], {"number": number}).fetchone()
        return None if row is None else listed(row)

    def entries(self, source: str | None) -> list[Listed]:
        """Return every entry of a source, or of all."""
        query = _ENTRY["all"] if source is None else _ENTRY["of_source"]
        return [listed(row) for row in self._execute(query, {"source": source})]

    def rows_of(self, source: str) -> list[sqlite3.Row]:
        """Return every entry of a source as it is written, which is cheaper to compare."""
        return self._execute(_ENTRY["of_source"], {"source": source}).fetchall()

    def insert_entry(self, facts: Mapping[str, object], *, source: str, now: datetime) -> int:
        """Give a new entry its number."""
        values = {**facts, "source": source, "now": micros(now)}
        return int(self._execute(_ENTRY["insert"], values).fetchone()[0])

    def update_entry(self, number: int, facts: Mapping[str, object]) -> None:
        """Write down where an entry stands now, and what it is."""
        self._execute(_ENTRY["update"], {**facts, "number": number})

    def account(self, entry: Entry, decision: Decision, *, now: datetime) -> list[Filed]:
        """Write a decision that no race can spoil; return the receipts that are new."""
        values = {"number": entry.number, **_watermark(decision)}
        self._execute(_ENTRY["account"], values)
        return self._file(entry, decision.receipts, now)

    def decide(self, steps: Sequence[Step], *, now: datetime) -> list[Filed]:
        """Write the decisions whose entries are still as they were; return the new receipts."""
        filed: list[Filed] = []
        for step in steps:
            entry, decision = step.entry, step.decision
            values = {
                "number": entry.number,
                "was_accounted_to": micros(entry.accounted_to),
                "was_ended_at": micros(entry.ended_at),
                **_watermark(decision),
            }
            if self._execute(_ENTRY["account_if_unchanged"], values).rowcount:
                filed += self._file(entry, decision.receipts, now)
        return filed

    def mark_gone(self, number: int, *, now: datetime) -> None:
        """Note that an entry is no longer where it was."""
        self._execute(_ENTRY["gone"], {"number": number, "now": micros(now)})

    def pause(self, number: int, *, now: datetime, note: str, until: datetime | None) -> bool:
        """Let an entry rest, if it is there and does not rest yet."""
        values = {
            "number": number,
            "now": micros(now),
            "note": plain(note),
            "until": micros(until),
        }
        return self._execute(_ENTRY["pause"], values).rowcount == 1

    def resume(self, number: int) -> bool:
        """End an entry's rest."""
        return self._execute(_ENTRY["resume"], {"number": number}).rowcount == 1

    # Receipts

    def receipt(self, number: int) -> Filed | None:
        """Return one receipt."""
        row = self._execute(_RECEIPT["one"], {"number": number}).fetchone()
        return None if row is None else filed_of(row)

    def receipt_of(self, entry: int, key: str) -> Filed | None:
        """Return the receipt that a key has."""
        row = self._execute(_RECEIPT["by_key"], {"entry": entry, "key": key}).fetchone()
        return None if row is None else filed_of(row)

    def add(self, entry: int, receipt: Receipt, *, now: datetime) -> Filed | None:
        """File what somebody asked for, or return what the same key was given before."""
        known = self.receipt_of(entry, receipt.key)
        if known is not None:
            return known
        found = self.entry(entry)
        if found is None or found.gone_at is not None or isinstance(found.item, Unarmed):
            return None
        return self._file(found.item, (receipt,), now)[0]

    def move(
        self,
        filed: Filed,
        status: Status,
        *,
        reason: str,
        now: datetime,
        start_at: datetime | None = None,
        attempts: int | None = None,
    ) -> bool:
        """Change where a receipt stands, if the graph allows it; a retry gives a start."""
        if not may_become(filed.status, status, has_retry=start_at is not None):
            return False
        values = {
            "number": filed.number,
            "was": filed.status,
            "status": status,
            "reason": plain(reason),
            "start_at": micros(start_at),
            "attempts": filed.attempts if attempts is None else attempts,
            "ended_at": micros(now) if status in ENDS else None,
        }
        moved = self._execute(_RECEIPT["move"], values).rowcount == 1
        if moved:
            facts = {"status": status, "reason": reason}
            self.tell("receipt", now=now, entry=filed.entry, receipt=filed.number, facts=facts)
        return moved

    def move_number(self, number: int, status: Status, *, reason: str, now: datetime) -> bool:
        """Change where the receipt of a number stands."""
        filed = self.receipt(number)
        return filed is not None and self.move(filed, status, reason=reason, now=now)

    def release(self, number: int, *, reason: str, now: datetime) -> bool:
        """Let a held receipt wait again; one that is being started is not held."""
        filed = self.receipt(number)
        if filed is None or filed.status is not Status.HELD:
            return False
        return self.move(filed, Status.WAITING, reason=reason, now=now)

    def skip_pending(self, entry: int, *, reason: str, now: datetime) -> None:
        """Skip what would still start of an entry."""
        for row in self._execute(_RECEIPT["pending_of_entry"], {"entry": entry}).fetchall():
            self.move(filed_of(row), Status.SKIPPED, reason=reason, now=now)

    def open_receipts(self) -> list[Filed]:
        """Return the receipts that are not final."""
        return [filed_of(row) for row in self._execute(_RECEIPT["open"])]

    def settle(self, numbers: Iterable[int], *, now: datetime) -> int:
        """Note that all that follows from final receipts is done."""
        values = [{"number": number, "now": micros(now)} for number in numbers]
        return max(0, self._execute_many(_RECEIPT["settle"], values).rowcount)

    def unsettled(self, limit: int) -> list[Filed]:
        """Return the final receipts that are not settled."""
        return [filed_of(row) for row in self._execute(_RECEIPT["unsettled"], {"limit": limit})]

    def receipts(
        self,
        *,
        entry: int | None,
        since: datetime | None,
        until: datetime | None,
        statuses: Collection[Status],
        cursor: int | None,
        limit: int,
    ) -> Page:
        """Return a page of receipts."""
        query = "page" if entry is None else "page_of_entry"
        if entry is None and statuses and OPEN.issuperset(statuses):
            query = "page_open"
        values = {
            "entry": entry,
            "since": micros(since),
            "until": micros(until),
            "statuses": json.dumps(sorted(statuses)) if statuses else None,
            "cursor": cursor,
            "limit": limit + 1,
        }
        found = [filed_of(row) for row in self._execute(_RECEIPT[query], values)]
        page = tuple(found[:limit])
        return Page(page, page[-1].number if len(found) > limit else None)

    # Runs

    def start(self, number: int, *, now: datetime) -> Run | None:
        """Take a waiting receipt and open its run."""
        reason = "its run is being made"
        filed = self.receipt(number)
        if filed is None or not self.move(filed, Status.STARTING, reason=reason, now=now):
            return None
        values = {"receipt": number, "now": micros(now)}
        return run_of(self._execute(_RUN["open"], values).fetchone())

    def running(self, number: int, process: Process, *, now: datetime) -> bool:
        """Note which process a run is."""
        found = self._open_run(number)
        if found is None:
            return False
        _, filed = found
        attempts = filed.attempts + 1
        if not self.move(filed, Status.RUNNING, reason="it runs", now=now, attempts=attempts):
            return False
        values = {"number": number, "pid": process.pid, "pid_started": process.started}
        self._execute(_RUN["identify"], values)
        return True

    def give_back(self, number: int, *, reason: str, now: datetime) -> bool:
        """Let the receipt of a run that was never let go wait again."""
        found = self._open_run(number)
        if found is None or not self.move(found[1], Status.WAITING, reason=reason, now=now):
            return False
        self.close_run(number, outcome=None, reason=reason, now=now)
        return True

    def end(
        self, number: int, outcome: Status, *, exit_code: int | None, reason: str, now: datetime
    ) -> Filed | None:
        """Write down how a run ended and what follows, all of it together."""
        found = self._open_run(number)
        if found is None or outcome not in ENDS:
            return None
        _, filed = found
        # One that could not even be made was an attempt too, or it would be tried for ever.
        attempts = filed.attempts + (filed.status is Status.STARTING)
        then = after_end(outcome, attempts=attempts, retry=filed.policy.retry, now=now)
        if not may_become(filed.status, outcome) or not self.move(
            filed, then.status, reason=reason, now=now, start_at=then.start_at, attempts=attempts
        ):
            return None
        self.close_run(number, outcome=outcome, exit_code=exit_code, reason=reason, now=now)
        if then.status in ENDS and is_planned(filed.receipt.key):
            self._execute(_ENTRY["ended"], {"number": filed.entry, "now": micros(now)})
        return self.receipt(filed.number)

    def close_run(
        self,
        number: int,
        *,
        outcome: Status | None,
        reason: str,
        now: datetime,
        exit_code: int | None = None,
    ) -> None:
        """End a run; its receipt is moved by whoever ends it."""
        values = {"number": number, "outcome": outcome, "exit_code": exit_code}
        self._execute(_RUN["close"], {**values, "reason": plain(reason), "now": micros(now)})

    def open_run_of(self, receipt: int) -> Run | None:
        """Return the run of a receipt that has not ended."""
        row = self._execute(_RUN["open_of_receipt"], {"receipt": receipt}).fetchone()
        return None if row is None else run_of(row)

    def runs_of(self, receipt: int) -> list[Run]:
        """Return every attempt of a receipt."""
        return [run_of(row) for row in self._execute(_RUN["of_receipt"], {"receipt": receipt})]

    # Events and texts

    def tell(
        self,
        kind: str,
        *,
        now: datetime,
        entry: int | None = None,
        receipt: int | None = None,
        facts: Mapping[str, object] | None = None,
    ) -> None:
        """Write down what happened."""
        values = {"at": micros(now), "kind": kind, "entry": entry, "receipt": receipt}
        self._execute(_EVENT["insert"], {**values, "facts": compact(facts or {})})

    def events_after(self, number: int, limit: int) -> list[Event]:
        """Return what happened after an event."""
        values = {"number": number, "limit": limit}
        return [
            Event(
                row["number"],
                moment(row["at"]),
                row["kind"],
                row["entry"],
                row["receipt"],
                json.loads(row["facts"]),
            )
            for row in self._execute(_EVENT["after"], values)
        ]

    def keep_texts(self, texts: Mapping[str, str], *, now: datetime) -> None:
        """Keep texts under their digests."""
        values = [
            {"digest": digest, "body": text.encode("utf-8", "surrogatepass"), "now": micros(now)}
            for digest, text in texts.items()
        ]
        self._execute_many(_TEXT["keep"], values)

    def text(self, digest: str) -> str | None:
        """Return the text that has a digest."""
        row = self._execute(_TEXT["one"], {"digest": digest}).fetchone()
        return None if row is None else bytes(row["body"]).decode("utf-8", "surrogatepass")

    def prune(self, *, before: datetime, now: datetime) -> Pruned:
        """Fold old receipts into ranges and drop what is old and needed no more."""
        values = {"before": micros(before)}
        runs = self._count_runs()
        receipts = 0
        for row in self._execute(_PRUNE["foldable"], values).fetchall():
            group = {**dict(row), **values}
            receipts += self._execute(_PRUNE["drop_folded"], group).rowcount
            self._execute(_PRUNE["widen"], group)
        self._execute(_PRUNE["drop_runs"], values)
        events = self._execute(_PRUNE["drop_events"], values).rowcount
        texts = self._execute(_PRUNE["drop_texts"], values).rowcount
        pruned = Pruned(receipts, runs - self._count_runs(), events, texts)
        facts = {"receipts": receipts, "runs": pruned.runs, "events": events, "texts": texts}
        self.tell("pruned", now=now, facts=facts)
        return pruned

    # What several of these share

    def _file(self, entry: Entry, receipts: Sequence[Receipt], now: datetime) -> list[Filed]:
        """File receipts of an entry; return those whose key had none."""
        if not receipts:
            return []
        about = {
            "entry": entry.number,
            "now": micros(now),
            "file": plain(entry.origin.file),
            "line": entry.origin.line,
            "digest": entry.digest,
            "policy": write_policy(entry.policy),
        }
        filed = []
        for receipt in receipts:
            values = {
                **about,
                "key": receipt.key,
                "status": receipt.status,
                "reason": plain(receipt.reason),
                "planned_at": micros(receipt.planned_at),
                "through_at": micros(receipt.through_at),
                "count": receipt.count,
                "start_at": micros(receipt.start_at),
            }
            row = self._execute(_RECEIPT["insert"], values).fetchone()
            if row is None:
                continue
            facts = {"key": receipt.key, "status": receipt.status, "reason": receipt.reason}
            self.tell("receipt", now=now, entry=entry.number, receipt=row[0], facts=facts)
            filed.append(
                Filed(
                    row[0],
                    entry.number,
                    receipt,
                    now,
                    entry.origin,
                    entry.digest,
                    row[1],
                    entry.policy,
                )
            )
        return filed

    def _open_run(self, number: int) -> tuple[Run, Filed] | None:
        """Return a run that has not ended, with its receipt."""
        row = self._execute(_RUN["one_open"], {"number": number}).fetchone()
        if row is None:
            return None
        run = run_of(row)
        filed = self.receipt(run.receipt)
        assert filed is not None, "a run has its receipt"
        return run, filed

    def _count_runs(self) -> int:
        return int(self._execute(_PRUNE["count_runs"]).fetchone()[0])


def listed(row: sqlite3.Row) -> Listed:
    """Return the entry that a row holds."""
    address, title, digest = row["address"], row["title"], row["digest"]
    origin = Origin(row["file"], row["line"])
    item: Entry | Unarmed
    if row["spec"] is None:
        item = Unarmed(address, origin, title, row["unarmed"])
    else:
        written = read_entry(
            row["spec"], address=address, origin=origin, title=title, digest=digest
        )
        item = numbered(written, row)
    paused_at = moment(row["paused_at"])
    return Listed(
        row["number"],
        row["source"],
        Mark(address, title, row["rule"], row["body"]),
        item,
        moment(int(row["first_seen_at"])),
        moment(row["gone_at"]),
        paused_at and Pause(paused_at, moment(row["paused_until"]), row["pause_note"]),
    )


def numbered(entry: Entry, row: sqlite3.Row) -> Entry:
    """Return an entry with what its row knows of it."""
    return replace(
        entry,
        number=row["number"],
        accounted_to=moment(row["accounted_to"]),
        ended_at=moment(row["ended_at"]),
    )


def filed_of(row: sqlite3.Row) -> Filed:
    """Return the receipt that a row holds."""
    receipt = Receipt(
        row["key"],
        Status(row["status"]),
        row["reason"],
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
        row["attempts"],
        moment(row["ended_at"]),
        moment(row["settled_at"]),
    )


def run_of(row: sqlite3.Row) -> Run:
    """Return the run that a row holds."""
    outcome = row["outcome"]
    return Run(
        row["number"],
        row["receipt"],
        row["attempt"],
        moment(int(row["started_at"])),
        None if row["pid"] is None else Process(row["pid"], row["pid_started"]),
        moment(row["ended_at"]),
        None if outcome is None else Status(outcome),
        row["exit_code"],
        row["reason"],
    )


def _watermark(decision: Decision) -> dict[str, int | None]:
    """Return what an entry carries after a decision."""
    return {
        "accounted_to": micros(decision.accounted_to),
        "ended_at": micros(decision.ended_at),
    }
