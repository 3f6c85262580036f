"""The ledger in SQL: the transaction, and the port on top of it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from abc import ABC, abstractmethod
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from threading import Lock
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    NamedTuple,
    ParamSpec,
    TypeAlias,
    TypeVar,
)

from msgspec.structs import replace

from horae.core.actor import ENGINE, current_actor
from horae.core.budget import Usage, usage_of
from horae.core.decide import looked_back, occasions_of
from horae.core.entry import AfterRule, CadenceRule, Entry, Occasion, key_time
from horae.core.ports import (
    ANYBODY,
    EVERY,
    FRESH_LEDGER,
    PATIENCE as MISSING,
    EntryCounts,
    Followed,
    Job,
    LedgerWriteError,
    Pruned,
    ReceiptPage,
    Run,
    RunOver,
    StaleTermError,
    compact,
    micros,
    moment,
    plain,
)
from horae.core.project import counts_from_end
from horae.core.receipt import (
    BAD,
    ENDS,
    FINAL,
    OPEN,
    RECEIPT_STATUSES,
    WAITS,
    Filed,
    NextStatus,
    Reason,
    ReasonCode,
    Receipt,
    Status,
    after_end,
    followed_by,
    is_planned,
    may_become,
)
from horae.core.spending import AccountLimit, met
from horae.core.text import is_number
from horae.org.document import collector_paused
from horae.store import arming, codec, spending
from horae.store.codec import filed_of, listed
from horae.store.sql import by_place, named

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
    from pathlib import Path

    from horae.core.decide import Decision
    from horae.core.inbox import Acknowledged, BadResult, EntrySummary, InboxState
    from horae.core.ports import (
        DueEntry,
        Ended,
        EntryStep,
        Event,
        Listed,
        OutcomeCount,
        Process,
        ReceiptFilter,
        RunEnd,
        RunSpan,
        Trait,
    )
    from horae.core.source import Revision, Scan

T = TypeVar("T")
P = ParamSpec("P")
_Answer: TypeAlias = "Coroutine[Any, Any, T]"

_LONG: Final = 1000  # a scan of more entries has a commit of its own
_TOGETHER: Final = 250  # rows in one statement
_ALIKE: Final = 32  # from so many rows on, one statement is faster than one each
_BY_NUMBER: Final = ".number = :number"
_BY_NUMBERS: Final = ".number IN (SELECT value FROM json_each(:numbers))"
_LEAST: Final = -(1 << 62)  # before every time
_MOST: Final = 1 << 62  # after every time, and every number
_MOST_CALLS: Final = 256  # per commit, as the first one waits for all

_TICK: Final = "tick:"
_STARTING: Final = Reason(ReasonCode.STARTING, "the run is being started")
_RUNNING: Final = Reason(ReasonCode.STARTED, "the run has started")
_UNUSED: Final = Usage()


class ReceiptState(NamedTuple):
    number: int
    entry: int
    status: Status
    attempts: int


class ReceiptOver(NamedTuple):
    entry: int
    key: str
    status: Status
    memory: str | None = None
    is_counted: bool = False


class NodeJoin(NamedTuple):
    name: str
    generation: int


class Transaction:
    """Reads and writes through one connection; a *worker* writes only its own runs.

    Events have the *actor* of the caller. Queries are called by name in the dialect of the
    connection, and take datetimes.
    """

    worker: NodeJoin | None = None
    node: str = ""

    def __init__(self, connection: Any, *, actor: str = ENGINE) -> None:
        self.connection = connection  # of SQLite, or one to PostgreSQL with the same interface
        self.actor = actor
        self.execute: Callable[..., sqlite3.Cursor] = connection.execute
        self.sql = named(getattr(connection, "dialect", ""))

    def act_as(self, actor: str, worker: NodeJoin | None) -> None:
        self.actor = actor if actor.isprintable() else plain(actor)
        self.worker = worker
        self.node = "" if worker is None else worker.name  # that writes its own runs

    def rows(self, query: str, /, **values: Any) -> list[sqlite3.Row]:
        return self.execute(self.sql[query], _written(values)).fetchall()

    def row(self, query: str, /, **values: Any) -> Any:
        return self.execute(self.sql[query], _written(values)).fetchone()

    def every(self, read: Callable[[sqlite3.Row], T], query: str, /, **values: Any) -> list[T]:
        return [*map(read, self.execute(self.sql[query], _written(values)))]

    def one(self, read: Callable[[sqlite3.Row], T], query: str, /, **values: Any) -> T | None:
        row = self.row(query, **values)
        return None if row is None else read(row)

    def change(self, query: str, /, **values: Any) -> int:
        return self.execute(self.sql[query], _written(values)).rowcount

    def change_all(self, query: str, rows: Sequence[dict[str, Any]]) -> int:
        """Run a query for rows that have the same names in the same order.

        Rows that differ only in their first value, a number, share one statement.
        """
        text = self.sql[query]
        if len(rows) < 2:
            return sum(self.execute(text, row).rowcount for row in rows)
        if not isinstance(self.connection, sqlite3.Connection):
            values = {"rows": json.dumps(rows, default=bytearray.hex)}
            return self.execute(self.sql[f"{query}_many"], values).rowcount
        if len(rows) >= _ALIKE and _BY_NUMBER in text:
            numbers, rest = {row["number"]: None for row in rows}, [*rows[0].values()][1:]
            if len(numbers) == len(rows) and all([*row.values()][1:] == rest for row in rows):
                values = {**rows[0], "numbers": json.dumps([*numbers])}
                return self.execute(text.replace(_BY_NUMBER, _BY_NUMBERS), values).rowcount
        return _change_rows(self.connection, text, rows)

    def term(self) -> int:
        return int(self.row("term.current")[0])

    def entry(self, number: int) -> Listed | None:
        return self.one(listed, "entry.one", number=number)

    def entries(self) -> list[Listed]:
        return self.every(listed, "entry.all")

    def entries_at(self, numbers: Sequence[int]) -> list[Listed]:
        return self.every(listed, "entry.at_numbers", numbers=json.dumps([*numbers]))

    def summaries(self, *, with_gone: bool = False) -> list[EntrySummary]:
        return self.every(codec.summary_of, "entry.summaries", with_gone=int(with_gone))

    def find(self, word: str) -> list[Listed]:
        word = plain(word)
        file, _, line = word.rpartition(":")
        ways: list[tuple[str, dict[str, object]]] = [
            ("by_address", {"word": word}),
            ("by_address", {"word": f"id:{word}"}),
            ("by_address", {"word": f"agent:{word}"}),
            ("by_title", {"word": word}),
        ]
        if is_number(word):
            ways.insert(0, ("one", {"number": int(word)}))
        if is_number(line):
            ways.append(("by_place", {"file": file, "line": int(line)}))
        gone: list[Listed] = []
        for query, values in ways:
            found = self.every(listed, f"entry.{query}", **values)
            if any(each.gone_at is None for each in found):
                return found
            gone = gone or found
        return gone

    def coming(self, *, limit: int = 20) -> list[Listed]:
        return self.every(listed, "entry.coming", limit=limit)

    def count_entries(self, *, due_before: datetime) -> EntryCounts:
        return EntryCounts(*self.row("entry.counts", due_before=due_before))

    def entries_that_are(self, trait: Trait, *, limit: int) -> list[Listed]:
        return self.every(listed, f"entry.that_are_{trait}", limit=limit)

    def followers(self) -> list[Listed]:
        return self.every(listed, "entry.followers")

    def due(self, *, now: datetime, limit: int = 1000) -> list[DueEntry]:
        return self.every(codec.due_of, "entry.due", now=now, limit=limit)

    def wake_at(self) -> datetime | None:
        coming = [each for each in self.row("entry.wake_at") if each is not None]
        return moment(min(coming)) if coming else None

    def files(self, source: str) -> list[str]:
        return [row[0] for row in self.rows("entry.files", source=source)]

    def knows(self, source: str) -> bool:
        return self.row("entry.one_of_source", source=source) is not None

    def loose(self, source: str) -> list[str]:
        return [row[0] for row in self.rows("entry.loose", source=source)]

    def index(self, source: str) -> dict[str, str]:
        return {row["file"]: row["known_as"] for row in self.rows("entry.index", source=source)}

    def known_files(self, source: str) -> dict[str, str]:
        """Return `index`, with an empty text for unknown files whose entries are kept."""
        return dict.fromkeys(self.files(source), "") | self.index(source)

    def rows_in(self, source: str, files: Sequence[str] | None) -> list[sqlite3.Row]:
        if files is None:
            return self.rows("entry.present", source=source)
        return self.rows("entry.in_files", source=source, files=json.dumps(files)) if files else []

    def rows_at(self, source: str, addresses: Collection[str]) -> list[sqlite3.Row]:
        wanted = json.dumps(list(addresses))
        return self.rows("entry.at_addresses", source=source, addresses=wanted) if addresses else []

    def insert_entries(self, rows: Sequence[dict[str, Any]], *, now: datetime) -> None:
        at, first = micros(now), self._numbers("entry", len(rows))
        for number, row in enumerate(rows, start=first):
            row["number"], row["now"] = number, at
        self.change_all("entry.insert", rows)
        self.change("event.insert_new", first=first, last=first + len(rows) - 1, actor=self.actor)

    def update_entry(self, number: int, facts: Mapping[str, object], entry: Entry | None) -> None:
        coming = None if entry is None else codec.next_at(entry)
        self.change("entry.update", **facts, number=number, next_at=coming)

    def account(self, entry: Entry, decision: Decision, *, now: datetime) -> list[Filed]:
        """Write a decision without a check for races; return the new receipts."""
        self.change("entry.account", **_watermark(entry, decision))
        receipts = decision.receipts
        if not receipts:
            return []
        [row] = self._standing([entry.number])
        taken = self._taken((entry.number, each.key) for each in receipts)
        free = _free(entry.number, receipts, taken)
        drafts = [(entry, each, row["source"], row["commit_id"]) for each in free]
        return self._file(drafts, now, actor=ENGINE)

    def decide(self, steps: Sequence[EntryStep], *, now: datetime) -> list[Filed]:
        found = self._standing(step.entry.number for step in steps)
        stands = {row[0]: row for row in found if row["is_armed"]}
        taken = self._taken(
            (step.entry.number, each.key) for step in steps for each in step.decision.receipts
        )
        marks, drafts, passed = [], [], []
        is_as_read = True  # whether the rows still have what their receipts copy
        for entry, decision in ((step.entry, step.decision) for step in steps):
            number, receipts = entry.number, decision.receipts
            row = stands.pop(number, None)  # once: then it has changed
            was = micros(entry.accounted_to), micros(entry.ended_at)
            if row is None or was != (row[1], row[2]):
                continue
            mark = _watermark(entry, decision)
            then = mark["accounted_to"]
            if row[1] is None or then is None or then < row[1]:  # it only moves forward
                continue
            marks.append(mark)
            origin = entry.origin
            is_as_read &= (origin.file, origin.line, entry.digest) == (row[6], row[7], row[8])
            if taken and not taken.isdisjoint((number, each.key) for each in receipts):
                if counts_from_end(entry.rule):
                    passed += [(number, each) for each in receipts]
                receipts = _free(number, receipts, taken)
            drafts += [(entry, each, row[4], row[3]) for each in receipts]
        self.change_all("entry.account_armed", marks)
        filed = self._file(drafts, now, actor=self.actor, is_as_read=is_as_read)
        for number, receipt in passed:
            # A cadence counts from now if its receipt is over; else that receipt sets the time.
            known = self.receipt_of(number, receipt.key)
            assert known is not None, "each key was filed, now or before"
            if receipt.status not in FINAL and known.status in FINAL:
                self._advance_entries([ReceiptOver(number, receipt.key, known.status)], now)
        return filed

    def scan(self, source: str, scan: Scan, *, now: datetime) -> datetime | None:
        return arming.scan(self, source, scan, now=now, revision=None, patience=MISSING)

    def remove_entry(self, was: Listed, *, reason: Reason, now: datetime) -> None:
        arming.end_rule(self, was, now=now, reason=reason)
        self.change("entry.gone", number=was.number, now=now)
        facts = {"address": was.mark.address, "title": was.mark.title}
        self.tell("entry_gone", now=now, entry=was.number, facts=facts)

    spec_of = staticmethod(codec.write_entry)
    receipt_in = staticmethod(filed_of)

    def remember(self, number: int, memory: str) -> None:
        self.change("entry.remember", number=number, memory=memory)

    def receipt(self, number: int) -> Filed | None:
        return self.one(filed_of, "receipt.one", number=number)

    def receipt_of(self, entry: int, key: str) -> Filed | None:
        return self.one(filed_of, "receipt.by_key", entry=entry, key=key)

    def add(
        self,
        number: int,
        receipts: Sequence[Receipt],
        *,
        now: datetime,
        parent: int | None = None,
        agents: tuple[str, ...] | None = None,
    ) -> list[Filed]:
        row = self.row("entry.one", number=number)
        if row is None:
            return []
        found = listed(row)
        filed = []
        for receipt in receipts:
            known = self.receipt_of(number, receipt.key)
            if known is not None:
                filed.append(known)
            elif found.is_armed and isinstance(found.item, Entry):
                asked = found.item if agents is None else replace(found.item, agents=agents)
                draft = asked, receipt, row["source"], row["commit_id"]
                filed += self._file([draft], now, actor=self.actor, parent=parent)
        return filed

    def move(
        self,
        filed: Filed | ReceiptState,
        status: Status,
        *,
        reason: Reason,
        now: datetime,
        may_wait: bool = False,
        **more: Any,
    ) -> bool:
        """Change the status of a receipt, if the transition is allowed; *more* is as in `_moving`.

        *may_wait*: a running receipt may wait again, for a retry or as it never started.
        """
        if not may_become(filed.status, status, has_retry=may_wait):
            return False
        at = micros(now)
        row = _moving(filed, status, reason, at, **more)
        if self.execute(self.sql["receipt.move"], row).rowcount != 1:
            return False
        self.change_all("event.insert", [self._moved(filed, status, reason, at)])
        return True

    def _move_all(self, receipts: Sequence[int], status: Status, reason: Reason, at: int) -> None:
        if not receipts:
            return
        numbers = json.dumps(receipts)
        self.change(
            "several.move",
            numbers=numbers,
            status=status.value,
            reason=str(reason),
            reason_code=str(reason.code),
            attempts=int(status is Status.RUNNING),
            machine=self.node or None,
        )
        facts = _moved_facts(reason, status, self.node)
        self.change("several.moved", numbers=numbers, now=at, facts=facts, actor=self.actor)

    def hold(self, number: int, *, reason: Reason, now: datetime, account: str = "") -> bool:
        stands = self.standing(number)
        if stands is None or stands.status is Status.RUNNING:
            return False
        return self.move(stands, Status.HELD, reason=reason, now=now, account=account)

    def limits(self) -> list[AccountLimit]:
        return self.every(codec.limit_of, "account.all")

    def ask_account(self, account: str, receipt: int, *, now: datetime) -> AccountLimit | None:
        known = self.one(codec.limit_of, "account.one", name=plain(account))
        if known is None or known.probe == receipt:
            return None
        if known.until_at > now or known.probe is not None:
            return known
        self.change("account.probe", name=known.account, receipt=receipt)
        return None

    def free_limited(self, *, now: datetime) -> list[int]:
        freed, tried = [], set()
        for number, account, is_limited in self.rows("account.held", now=now):
            if account in tried:
                continue
            words = f"the usage limit of {account} is over"
            if is_limited:
                words = f"tried first, as the limit of {account} should be over"
                tried.add(account)
            reason = Reason(ReasonCode.LIMIT_ENDED, words)
            if self.release(number, reason=reason, now=now):
                freed.append(int(number))
                if is_limited:
                    self.change("account.probe", name=account, receipt=number)
        return freed

    def _note_limit(self, receipt: int, ended: Ended, now: datetime) -> AccountLimit | None:
        """Record what a run's end says about its account; return the limit that it met."""
        name = plain(ended.account)
        known = self.one(codec.limit_of, "account.one", name=name)
        if ended.outcome is not Status.LIMITED:
            # A run from before the limit says nothing about its end.
            if known is not None and known.probe == receipt and ended.outcome not in BAD:
                self.change("account.open", name=name)
            return None
        code = str(ended.reason.code)
        limit = met(known, name, code=code, until=ended.until, receipt=receipt, now=now)
        self.change(
            "account.keep",
            name=name,
            reason_code=code,
            since_at=limit.since_at,
            until_at=limit.until_at,
            tries=limit.tries,
        )
        return limit

    def outcomes(
        self,
        *,
        since: datetime,
        until: datetime,
        step: timedelta,
        lane: str = "",
        which: ReceiptFilter = EVERY,
    ) -> list[OutcomeCount]:
        length = step // timedelta(microseconds=1)
        own = {"since": since, "until": until, "step": length, "lane": lane} | _which(which)
        rows = self.rows("receipt.outcomes", **own)
        return [codec.outcome_of(row, since=since, step=step) for row in rows]

    def first_entries(
        self, *, since: datetime, until: datetime, limit: int, which: ReceiptFilter = EVERY
    ) -> list[int]:
        own = {"since": since, "until": until, "limit": limit} | _which(which)
        return [row[0] for row in self.rows("receipt.first_entries", **own)]

    def spans(
        self, *, since: datetime, until: datetime, limit: int, which: ReceiptFilter = EVERY
    ) -> list[RunSpan]:
        own = {"since": since, "until": until, "limit": limit} | _which(which)
        return self.every(codec.span_of, "receipt.spans", **own)

    def bad_results(self) -> list[BadResult]:
        return self.every(codec.bad_of, "inbox.bad")

    def acknowledged(self) -> list[Acknowledged]:
        return self.every(codec.acknowledged_of, "inbox.acknowledged")

    def acknowledge(
        self,
        entry: int,
        *,
        now: datetime,
        state: InboxState | None,
        since: datetime,
        until: datetime | None = None,
        note: str = "",
    ) -> None:
        until_at, facts = None if until is None else micros(until), {"note": note}
        if state is None:
            self.change("inbox.forget", entry=entry)
            self.tell("unacknowledged", now=now, entry=entry)
            return
        own = {"state": state.value, "since_at": micros(since), "until_at": until_at}
        actor = self.actor
        self.change(
            "inbox.acknowledge", entry=entry, now=micros(now), note=note, actor=actor, **own
        )
        facts |= {"state": state.value} | ({} if until is None else {"until": key_time(until)})
        self.tell("acknowledged", now=now, entry=entry, facts=facts)

    def finish(self, filed: Filed, status: Status, *, reason: Reason, now: datetime) -> bool:
        is_moved = self.move(filed, status, reason=reason, now=now)
        if is_moved and status in FINAL:
            self._advance_entries([ReceiptOver(filed.entry, filed.receipt.key, status)], now)
        return is_moved

    def release(self, number: int, *, reason: Reason, now: datetime) -> bool:
        stands = self.standing(number)
        if stands is None or stands.status is not Status.HELD:
            return False
        return self.move(stands, Status.WAITING, reason=reason, now=now)

    def skip_pending(self, entry: int, *, reason: Reason, now: datetime) -> int:
        pending = self.every(filed_of, "receipt.pending_of_entry", entry=entry)
        return sum(self.finish(each, Status.SKIPPED, reason=reason, now=now) for each in pending)

    def settle(self, numbers: Iterable[int], *, now: datetime) -> int:
        at = micros(now)
        return self.change_all("receipt.settle", [{"number": n, "now": at} for n in numbers])

    def unsettled(self, *, after: int = 0, limit: int = 1000) -> list[Filed]:
        return self.every(filed_of, "receipt.unsettled", after=after, limit=limit)

    def receipts(
        self,
        *,
        entry: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        statuses: Collection[Status] = (),
        cursor: int | None = None,
        limit: int = 100,
    ) -> ReceiptPage:
        query = "page" if entry is None else "page_of_entry"
        if entry is None and statuses and OPEN.issuperset(statuses):
            query = "page_open"
        found = self.every(
            filed_of,
            f"receipt.{query}",
            entry=entry,
            since=since or _LEAST,
            until=until or _MOST,
            statuses=" ".join(statuses or RECEIPT_STATUSES),
            cursor=_MOST if cursor is None else cursor,
            limit=limit + 1,
        )
        page = tuple(found[:limit])
        return ReceiptPage(page, page[-1].number if len(found) > limit else None)

    def count_open(self) -> dict[Status, int]:
        return {Status(row[0]): row[1] for row in self.rows("receipt.count_open")}

    def late(
        self, *, since: datetime, until: datetime, by: timedelta, limit: int = 1000
    ) -> list[Filed]:
        length = by // timedelta(microseconds=1)
        period = {"since": since, "until": until}
        return self.every(filed_of, "receipt.late", **period, by=length, limit=limit)

    def start_many(self, receipts: Sequence[Filed], *, now: datetime) -> list[Job | None]:
        numbers = json.dumps([filed.number for filed in receipts])
        found = {row[0]: row for row in self.rows("several.starting", numbers=numbers)}
        jobs: list[Job | None] = [None] * len(receipts)
        free: list[tuple[int, Filed, sqlite3.Row]] = []
        for place, filed in enumerate(receipts):
            row = found.pop(filed.number, None)  # once: then it no longer waits
            if row is not None and may_become(Status(row[1]), Status.STARTING):
                free.append((place, filed, row))
        if not free:
            return jobs
        last = self.row("several.run_numbers", count=len(free))
        name, generation = self.worker or (None, None)
        opened, at = [], micros(now)
        for number, (place, filed, row) in enumerate(free, start=int(last[0]) + 1):
            _, _, attempts, memory, digest, body = row
            opened.append({
                "number": number, "receipt": filed.number, "attempt": attempts + 1, "now": at,
                "member": name, "generation": generation,
            })  # fmt: skip
            run = Run(number, filed.number, attempts + 1, now, member=name or "")
            text, has_text = "" if body is None else _text(body), body is not None or not digest
            about = self._followed(filed)
            jobs[place] = Job(filed, run, text, about, memory or "", has_text=has_text)
        moved = [filed.number for _, filed, _ in free]
        self._move_all(moved, Status.STARTING, _STARTING, at)
        self.change_all("run.insert", opened)
        return jobs

    def running_many(self, made: Sequence[tuple[int, Process]], *, now: datetime) -> list[bool]:
        numbers = json.dumps([number for number, _ in made])
        stands = {row[4]: _state(row) for row in self.rows("several.ending", numbers=numbers)}
        moves, known, is_noted = [], [], []
        for number, process in made:
            each = stands.pop(number, None)
            is_noted.append(each is not None and may_become(each.status, Status.RUNNING))
            if each is None or not is_noted[-1]:
                continue
            moves.append(each.number)
            known.append({"number": number, "pid": process.pid, "pid_started": process.started})
        self._move_all(moves, Status.RUNNING, _RUNNING, micros(now))
        self.change_all("run.identify", known)
        return is_noted

    def give_back(self, number: int, *, reason: Reason, now: datetime, died: bool = False) -> bool:
        stands = self.one(_state, "receipt.standing_of_run", number=number)
        if stands is None:
            return False
        # It was counted as an attempt when it was recorded as running.
        attempts = stands.attempts - (stands.status is Status.RUNNING)
        more: dict[str, Any] = {"attempts": attempts, "may_wait": True, "died": died}
        if not self.move(stands, Status.WAITING, reason=reason, now=now, **more):
            return False
        self.close_run(number, outcome=None, reason=reason, now=now)
        return True

    def end_many(self, ends: Sequence[RunEnd], *, now: datetime) -> list[RunOver | None]:
        numbers = json.dumps([end.run for end in ends])
        found = {row[4]: row for row in self.rows("several.ending", numbers=numbers)}
        has_alerts = self.row("entry.followers") is not None
        over: dict[int, RunOver] = {}
        batch: dict[int, tuple[RunEnd, sqlite3.Row]] = {}  # by entry
        for end in ends:
            row = found.pop(end.run, None)
            outcome = end.ended.outcome
            is_limited = outcome is Status.LIMITED and end.ended.account != ""
            if row is None or not (is_limited or outcome in ENDS):
                continue
            if row[1] in batch:  # the next end depends on what follows from this one
                over |= self._end_all(batch.values(), now, has_alerts=has_alerts)
                batch = {}
            if may_become(Status(row[2]), Status.HELD if is_limited else outcome):
                batch[row[1]] = end, row
        over |= self._end_all(batch.values(), now, has_alerts=has_alerts)
        return [over.pop(end.run, None) for end in ends]

    def _end_all(
        self, ends: Iterable[tuple[RunEnd, sqlite3.Row]], now: datetime, *, has_alerts: bool
    ) -> dict[int, RunOver]:
        moves, events, runs, over, bad, at = [], [], [], [], set(), micros(now)
        spenders: list[tuple[int, int, datetime]] = []
        after: dict[int, tuple[int, Status, bool]] = {}
        for end, row in ends:
            was = _state(row)
            ended, (status, start_at), attempts, account = self._after(end, was, row[6], now)
            reason, is_settled = ended.reason, end.is_settled and status in FINAL and not has_alerts
            more: dict[str, Any] = {
                "start_at": start_at, "is_settled": is_settled, "account": account,
            }  # fmt: skip
            moves.append(_moving(was, status, reason, at, attempts=attempts, **more))
            events.append(self._moved(was, status, reason, at))
            final = None if ended.outcome is Status.LIMITED else ended.outcome
            runs.append(_closing(end.run, final, reason, at, ended))
            if runs[-1]["cost"] is not None or runs[-1]["tokens"] is not None:
                spenders.append((end.run, was.entry, moment(int(row[7]))))
            is_result = ended.reason.code != ReasonCode.CANCELLED  # what a user ended is none
            if status in ENDS:
                is_counted = ended.is_counted and is_result
                over.append(ReceiptOver(was.entry, row[5], status, ended.memory, is_counted))
            if status in BAD and is_result:
                bad.add(was.entry)
            after[end.run] = was.entry, status, is_settled
        self.change_all("receipt.move", moves)
        facts = {event["facts"] for event in events}
        if len(facts) == 1 and len(events) >= _ALIKE:
            numbers = json.dumps([event["receipt"] for event in events])
            shared = {"facts": facts.pop(), "actor": self.actor}
            self.change("several.moved", numbers=numbers, now=at, **shared)
        else:
            self.change_all("event.insert", events)
        self.change_all("run.close", runs)
        for run, entry, started_at in spenders:
            spending.put(self, run, entry, started_at)
        moved = bad | self._advance_entries(over, now)
        for _, row in ends if bad else ():
            if row[1] in bad:
                arming.pause_if_failing(self, row[1], now=now)
        return {
            run: RunOver(status, is_settled, entry in moved)
            for run, (entry, status, is_settled) in after.items()
        }

    def _after(
        self, end: RunEnd, was: ReceiptState, policy: str, now: datetime
    ) -> tuple[Ended, NextStatus, int, str]:
        """Return how a run ended, and what becomes of its receipt.

        Also the attempts of the receipt, and the account whose limit holds it.
        """
        ended = end.ended
        limit = self._note_limit(was.number, ended, now) if ended.account else None
        # A run that could not be made is an attempt, or it would be tried forever.
        attempts = was.attempts + (was.status is Status.STARTING)
        is_refused = limit is not None or ended.reason.code == ReasonCode.PROVIDER_ERROR
        if is_refused and ended.has_other and not end.is_last:
            return ended, NextStatus(Status.WAITING, now), attempts - 1, ""
        if limit is not None and not limit.is_too_long(now):
            ended = replace(ended, reason=limit.reason())
            return ended, NextStatus(Status.HELD), attempts - 1, limit.account
        retry = None if end.is_last else codec.read_policy(policy).retry
        if limit is not None:
            ended, retry = replace(ended, outcome=Status.FAILED, reason=limit.failure(now)), None
        then = after_end(ended.outcome, attempts=attempts, retry=retry, now=now)
        return ended, then, attempts, ""

    def close_run(
        self, number: int, *, outcome: Status | None, reason: Reason, now: datetime
    ) -> None:
        self.change_all("run.close", [_closing(number, outcome, reason, micros(now))])

    def run(self, number: int) -> Run | None:
        return self.one(codec.run_of, "run.one", number=number)

    def open_runs(self) -> list[tuple[Filed, Run]]:
        found = []
        for run in self.every(codec.run_of, "run.all_open"):
            filed = self.receipt(run.receipt)
            assert filed is not None, "a run has its receipt"
            found.append((filed, run))
        return found

    def runs_of(self, receipt: int) -> list[Run]:
        return self.every(codec.run_of, "run.of_receipt", receipt=receipt)

    def newest_ends(self) -> frozenset[int]:
        return frozenset(row[0] for row in self.rows("run.newest_ends"))

    def last_run(self, entry: int) -> Run | None:
        return self.one(codec.run_of, "run.last_of_entry", entry=entry)

    def tell(
        self,
        kind: str,
        *,
        now: datetime,
        entry: int | None = None,
        receipt: int | None = None,
        facts: Mapping[str, object] | None = None,
    ) -> None:
        where = {"node": self.node} if self.node else {}
        event = self._event(micros(now), kind, compact({**(facts or {}), **where}), entry, receipt)
        self.change_all("event.insert", [event])

    def newest_event(self) -> int:
        return int(self.row("event.newest", **self.through())[0])

    def fresh_at(self) -> datetime | None:
        first = self.events_after(0, limit=1)
        return first[0].at if first and first[0].kind == FRESH_LEDGER else None

    def events_after(self, number: int, *, limit: int = 1000) -> list[Event]:
        return self.every(
            codec.event_of, "event.after", number=number, limit=limit, **self.through()
        )

    def through(self) -> dict[str, int]:
        """Return the number up to which events can be read; writers may leave gaps after it."""
        announced = getattr(self.connection, "announced", None)
        return {"through": self.row("event.through", **announced)[0] if announced else _MOST}

    def keep_texts(self, texts: Iterable[tuple[str, str]], *, now: datetime) -> None:
        at = micros(now)
        # A text column does not take every character, and for bytes sqlite3 looks for an adapter.
        kept = ((digest, bytearray(text, "utf-8", "surrogatepass")) for digest, text in texts)
        rows = [{"digest": digest, "body": body, "now": at} for digest, body in kept]
        self.change_all("text.keep", rows)

    def text(self, digest: str) -> str | None:
        return self.one(lambda row: _text(row[0]), "text.one", digest=digest)

    def _followed(self, alert: Filed) -> Followed | None:
        number = followed_by(alert.receipt.key)
        filed = None if number is None else self.receipt(number)
        if filed is None:
            return None
        entry = self.entry(alert.entry)
        rule = entry.item.rule if entry is not None and isinstance(entry.item, Entry) else None
        wanted = rule.occasions if isinstance(rule, AfterRule) else ()
        page = self.receipts(entry=filed.entry, cursor=number, limit=looked_back(filed))
        found = occasions_of(filed, page.receipts) or frozenset({Occasion.BUDGET})  # nearly spent
        event = tuple(each for each in wanted if each in found)
        return Followed(filed, event, next(reversed(self.runs_of(filed.number)), None))

    def prune(self, *, before: datetime, now: datetime) -> Pruned:
        """Replace old receipts by ranges and delete what is old and no longer needed."""
        [runs] = self.row("prune.count_runs")
        receipts = 0
        for row in self.rows("prune.foldable", before=before):
            group = {**dict(row), "before": before}
            receipts += self.change("prune.drop_folded", **group)
            self.change("prune.widen", **group)
        self.change("prune.drop_runs", before=before)
        events = self.change("prune.drop_events", before=before)
        texts = self.change("prune.drop_texts", before=before)
        [left] = self.row("prune.count_runs")
        pruned = Pruned(receipts, runs - left, events, texts)
        facts = {"receipts": receipts, "runs": pruned.runs, "events": events, "texts": texts}
        self.tell("pruned", now=now, facts=facts)
        return pruned

    def _numbers(self, theme: str, count: int) -> int:
        return int(self.row(f"{theme}.numbers", count=count)[0]) + 1

    def _event(
        self, at: int, kind: str, facts: str, entry: int | None = None, receipt: int | None = None
    ) -> dict[str, Any]:
        return {
            "at": at, "kind": kind, "facts": facts, "entry": entry, "receipt": receipt,
            "actor": self.actor,
        }  # fmt: skip

    def _moved(
        self, stands: Filed | ReceiptState, status: Status, reason: Reason, at: int
    ) -> dict[str, Any]:
        facts = _moved_facts(reason, status, self.node)
        return self._event(at, "receipt", facts, stands.entry, stands.number)

    def _standing(self, numbers: Iterable[int]) -> list[sqlite3.Row]:
        return self.rows("entry.standing", numbers=json.dumps([*numbers]))

    def _taken(self, keys: Iterable[tuple[int, str]]) -> set[tuple[int, str]]:
        wanted = [*keys]
        rows = self.rows("receipt.taken", keys=json.dumps(wanted)) if wanted else ()
        return {(row[0], row[1]) for row in rows}

    def standing(self, number: int) -> ReceiptState | None:
        return self.one(_state, "receipt.standing", number=number)

    def _file(
        self,
        drafts: Sequence[tuple[Entry, Receipt, str, str | None]],
        now: datetime,
        *,
        actor: str,
        parent: int | None = None,
        is_as_read: bool = False,
    ) -> list[Filed]:
        """File receipts with unused keys; *is_as_read*: the entries' rows have the same texts."""
        if not drafts:
            return []
        first = self._numbers("receipt", len(drafts))
        filed = [
            Filed(
                number,
                entry.number,
                receipt,
                now,
                entry.origin,
                entry.digest,
                commit,
                entry.policy,
                source=source,
                title=entry.title,
                work=entry.work,
                agents=entry.agents,
                parent=parent,
                actor=actor,
            )
            for number, (entry, receipt, source, commit) in enumerate(drafts, start=first)
        ]
        at, one = micros(now), filed[0]
        alike = self.sql.get("alike.receipt_insert") if is_as_read else None
        if alike and len(filed) >= _ALIKE and all(_is_alike(each, one) for each in filed):
            entries = json.dumps([each.entry for each in filed])
            row = _receipt_row(one, at) | {"entries": entries, "facts": _facts(one)}
            self.execute(alike, row)
            self.execute(self.sql["alike.event_insert"], row)
        else:
            self.change_all("receipt.insert", [_receipt_row(each, at) for each in filed])
            events = [
                self._event(at, "receipt", _facts(each), each.entry, each.number) for each in filed
            ]
            self.change_all("event.insert", events)
        ticks = [each.entry for each in filed if each.receipt.key.startswith(_TICK)]
        self.change_all("entry.tick", [{"number": each, "ticks": 1} for each in ticks])
        return filed

    def _advance_entries(self, over: Sequence[ReceiptOver], now: datetime) -> set[int]:
        """Update entries after receipts that are over, whether they ran or not.

        Return the entries whose next time depends on that.
        """
        if not over:
            return set()
        at, numbers = micros(now), json.dumps([each.entry for each in over])
        stands = {row[0]: row for row in self.rows("several.goes_on", numbers=numbers)}
        as_planned: list[dict[str, Any]] = []
        waiting: list[dict[str, Any]] = []
        for number, key, status, memory, is_counted in over:
            _, spec, accounted_to, end, streak, failures = stands[number]
            rule = None if spec is None else codec.read_rule(spec)
            waited = rule is not None and counts_from_end(rule)
            if is_planned(key) and (waited or status in ENDS):
                # Not before the watermark, or a clock set back would hide the next time forever.
                end = max(at, int(accounted_to)) if waited else at
            is_tick = key.startswith(_TICK)
            if is_counted and (is_tick or not isinstance(rule, CadenceRule)):
                streak, failures = _counts(status, streak, failures, is_tick=is_tick)
            (waiting if waited else as_planned).append({
                "number": number, "ended_at": end, "streak": streak, "failures": failures,
                "memory": memory,
            })  # fmt: skip
        self.change_all("entry.over_as_planned", as_planned)
        for values in waiting:
            entry = codec.entry_of(self.row("entry.one", number=values["number"]))
            if isinstance(entry.rule, CadenceRule):
                counts = {"streak": values["streak"], "failures": values["failures"]}
                entry = replace(entry, rule=replace(entry.rule, **counts))
            coming = codec.next_after(entry, entry.accounted_to, moment(values["ended_at"]))
            self.change("entry.over", **values, next_at=coming)
        return {values["number"] for values in waiting}


def _change_rows(connection: sqlite3.Connection, query: str, rows: Sequence[dict[str, Any]]) -> int:
    # A None takes ten times as long to bind as a number, so a column of them is not bound.
    nulls = frozenset(name for name in rows[0] if all(row[name] is None for row in rows))
    names = by_place(query, nulls).names
    values = [[row[name] for name in names] for row in rows]
    # A statement opens each index of its table once, for any number of rows.
    is_row = query.endswith(")") and "VALUES (" in query
    apart = len(rows) - len(rows) % _TOGETHER if is_row else 0
    together = [
        [*chain.from_iterable(values[first : first + _TOGETHER])]
        for first in range(0, apart, _TOGETHER)
    ]
    return sum(
        connection.executemany(by_place(query, nulls, count).text, some).rowcount
        for count, some in ((_TOGETHER, together), (1, values[apart:]))
        if some
    )


def _written(values: dict[str, Any]) -> dict[str, Any]:
    for name, value in values.items():
        if type(value) is datetime:
            values[name] = micros(value)
    return values


def _which(which: ReceiptFilter) -> dict[str, Any]:
    numbers, is_every = json.dumps(sorted(which.entries or ())), int(which.entries is None)
    return {"numbers": numbers, "is_every": is_every, "statuses": " ".join(which.statuses)}


def _state(row: sqlite3.Row) -> ReceiptState:
    return ReceiptState(row[0], row[1], Status(row[2]), row[3])


def _moved_facts(reason: Reason, status: Status, node: str) -> str:
    where = {"node": node} if node else {}
    return compact({**where, "reason": reason, "reason_code": reason.code, "status": status})


def _moving(
    stands: Filed | ReceiptState,
    status: Status,
    reason: Reason,
    at: int,
    *,
    start_at: datetime | None = None,
    attempts: int | None = None,
    died: bool = False,
    is_settled: bool = False,
    account: str = "",
) -> dict[str, Any]:
    return {
        "number": stands.number,
        "was": stands.status.value,
        "status": status.value,
        "reason": plain(str(reason)),
        "reason_code": str(reason.code),
        "start_at": None if start_at is None else micros(start_at),
        "attempts": stands.attempts if attempts is None else attempts,
        "died": int(died),
        "ended_at": at if status in ENDS else None,
        "settled_at": at if is_settled else None,
        "has_machine": int(status not in WAITS),
        "account": account or None,
    }


def _closing(
    number: int, outcome: Status | None, reason: Reason, at: int, ended: Ended | None = None
) -> dict[str, Any]:
    facts = {} if ended is None else ended.facts
    used = usage_of(facts) if "cost" in facts or "tokens" in facts else _UNUSED
    return {
        "number": number,
        "outcome": None if outcome is None else outcome.value,
        "exit_code": None if ended is None else ended.exit_code,
        "reason": plain(str(reason)),
        "reason_code": str(reason.code),
        "facts": compact(facts) if facts else "{}",
        "cost": used.cost,
        "tokens": used.tokens,
        "now": at,
    }


def _free(
    entry: int, receipts: Iterable[Receipt], taken: set[tuple[int, str]]
) -> tuple[Receipt, ...]:
    """Return the receipts with unused keys; a range gets a new key if its first time has run."""
    free = []
    for receipt in receipts:
        key = receipt.key
        if receipt.through_at is not None and (entry, key) in taken:
            # The clock was set back: only the first time has a receipt.
            key = f"{key}:through:{key_time(receipt.through_at)}"
        if (entry, key) not in taken:
            free.append(receipt if key == receipt.key else replace(receipt, key=key))
    return tuple(free)


def _counts(status: Status, streak: int, failures: int, *, is_tick: bool) -> tuple[int, int]:
    if status in BAD:
        return (0 if is_tick else streak), failures + 1
    if not is_tick:
        return streak, 0
    return (streak + 1 if status is Status.NO_WORK else 0), 0


def _watermark(entry: Entry, decision: Decision) -> dict[str, Any]:
    to, ended_at = decision.accounted_to, decision.ended_at
    return {
        "number": entry.number,
        "accounted_to": micros(to),
        "ended_at": micros(ended_at),
        "next_at": codec.next_after(entry, to, ended_at),
    }


def _facts(filed: Filed) -> str:
    key, reason, status = filed.receipt.key, filed.receipt.reason, filed.receipt.status
    return compact({"key": key, "reason": reason, "reason_code": reason.code, "status": status})


def _is_alike(filed: Filed, other: Filed) -> bool:
    return (
        filed.receipt == other.receipt
        and filed.receipt.reason.code == other.receipt.reason.code
        and (filed.policy is other.policy or filed.policy == other.policy)
        and filed.work is other.work
        and filed.agents == other.agents
    )


def _receipt_row(filed: Filed, at: int) -> dict[str, Any]:
    receipt = filed.receipt
    return {
        "number": filed.number,
        "entry": filed.entry,
        "key": receipt.key,
        "status": receipt.status.value,
        "reason": plain(str(receipt.reason)),  # binding str is faster than a subclass
        "reason_code": str(receipt.reason.code),
        "planned_at": micros(receipt.planned_at),
        "through_at": micros(receipt.through_at),
        "count": receipt.count,
        "start_at": micros(receipt.start_at),
        "now": at,
        "file": plain(filed.origin.file),
        "line": filed.origin.line,
        "digest": filed.digest,
        "note": plain(receipt.note),
        "work": filed.work.value,
        "parent": filed.parent,
        "commit": filed.commit,
        "actor": filed.actor,
        "policy": codec.write_policy(filed.policy),
        "agents": codec.write_agents(filed.agents),
    }


def _text(body: bytes) -> str:
    return bytes(body).decode("utf-8", "surrogatepass")


# The port: each call is work in a transaction, in the thread that owns the connection


@dataclass(slots=True, eq=False)
class QueuedCall(Generic[T]):
    """A read or a write, and its result.

    Without *keep* it is rolled back. One that is *alone* takes long, and has its own commit. A
    *worker* writes its own runs, whatever the term.
    """

    work: Callable[..., T]
    args: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    term: int = 0
    worker: NodeJoin | None = None
    keep: bool = True
    is_alone: bool = False
    is_read: bool = False
    # Not in the thread that writes: its context is another.
    actor: str = field(default_factory=current_actor)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    result: T | None = None
    error: BaseException | None = None
    future: asyncio.Future[T] = field(init=False)
    serve: Callable[[Sequence[QueuedCall[Any]]], None] = field(init=False)

    def __post_init__(self) -> None:
        self.future = self.loop.create_future()


class CallQueue:
    """Calls that wait for one thread, in order; without a name they run in the caller's.

    Waiting calls share a commit: syncing the disk takes far longer than writing, and no longer for
    many writes than for one. Reads and writes may share a thread.
    """

    def __init__(self, name: str = "") -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name) if name else None
        self._waiting: deque[QueuedCall[Any]] = deque()
        self._lock = Lock()
        self._is_served = False

    async def do(self, work: Callable[[], T]) -> T:
        if self._pool is None:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def put(
        self, call: QueuedCall[T], serve: Callable[[Sequence[QueuedCall[Any]]], None]
    ) -> asyncio.Future[T]:
        if self._pool is None:
            serve([call])
            _answer([call])
            return call.future
        call.serve = serve
        with self._lock:
            self._waiting.append(call)
            is_first, self._is_served = not self._is_served, True
        if is_first:
            self._pool.submit(self._serve_all)
        return call.future

    def rest(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def _serve_all(self) -> None:
        while True:
            with self._lock:
                calls: list[QueuedCall[Any]] = []
                while self._waiting and len(calls) < _MOST_CALLS:
                    first, coming = calls[0] if calls else None, self._waiting[0]
                    if first is not None and (
                        first.is_alone or coming.is_alone or first.is_read != coming.is_read
                    ):
                        break
                    calls.append(self._waiting.popleft())
                self._is_served = bool(calls)
            if not calls:
                return
            try:
                calls[0].serve(calls)
            except BaseException as error:  # a bug, which all callers must see
                for call in calls:
                    call.error = call.error or error
            for loop in {call.loop for call in calls}:
                # At once, so that callers that write again share the next commit.
                some = [call for call in calls if call.loop is loop]
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(_answer, some)


def _answer(calls: Sequence[QueuedCall[Any]]) -> None:
    for call in calls:
        if call.future.done():  # the caller was cancelled
            continue
        if call.error is not None:
            call.future.set_exception(call.error)
        else:
            call.future.set_result(call.result)


def _do_all(calls: Sequence[QueuedCall[Any]], tx: Transaction) -> None:
    for call in calls:
        tx.act_as(call.actor, call.worker)
        call.result = call.work(tx, *call.args, **call.named)


def _reading(
    work: Callable[Concatenate[Transaction, P], T],
) -> Callable[Concatenate[SqlLedger, P], _Answer[T]]:
    async def read(self: SqlLedger, /, *args: P.args, **named: P.kwargs) -> T:
        call = QueuedCall(work, args, named, is_read=True)
        return await self._read_queue.put(call, self._look)

    return read


def _writing(work: Callable[..., T]) -> Callable[..., _Answer[T]]:
    async def write(self: SqlLedger, *args: Any, term: int, **named: Any) -> T:
        return await self._write(QueuedCall(work, args, named, term, self.worker))

    return write


class SqlLedger(ABC):
    """A ledger in SQL; `core.ports.Ledger` documents the methods.

    Work is atomic and is refused after the writer's term; concurrent calls share a transaction. A
    store implements transactions and translates errors.
    """

    worker: NodeJoin | None = None
    place: str
    _writer: Any  # replaced after the disk, or the server, has failed
    _reader: Any
    _write_queue: CallQueue
    _read_queue: CallQueue

    def __init__(self) -> None:
        self.written = asyncio.Event()  # after each write of this process

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def backup(self, target: Path) -> None:
        """Write a verified copy of the ledger, or raise an error that names the tool for it."""

    @abstractmethod
    def _meaning(self, error: Exception, /) -> Exception:
        """Translate an error of the database; other errors are returned unchanged."""

    @abstractmethod
    def _begin(self, calls: Sequence[QueuedCall[Any]], /) -> Callable[[QueuedCall[Any]], None]:
        """Begin a write transaction; return the check of whether a call may still write."""

    @abstractmethod
    def _end(self, *, is_kept: bool) -> None: ...

    @abstractmethod
    def _undone(self, error: Exception) -> Exception: ...

    @abstractmethod
    def _give_up(self, error: BaseException) -> None: ...

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._read_queue.put(QueuedCall(work, is_read=True), self._look)

    async def write(
        self,
        term: int,
        work: Callable[[Transaction], T],
        *,
        keep: bool = True,
        is_alone: bool = False,
    ) -> T:
        """Do *work* in one transaction; without *keep* it is rolled back.

        *is_alone*: it takes long, and has its own commit. *work* may be called twice, if another
        call in the commit has failed.
        """
        is_alone = is_alone or not keep
        return await self._write(
            QueuedCall(work, (), {}, term, self.worker, keep=keep, is_alone=is_alone)
        )

    async def _write(self, call: QueuedCall[T]) -> T:
        try:
            return await self._write_queue.put(call, self._commit)
        finally:
            self.written.set()

    def _ask(self, work: Callable[[], T]) -> T:
        return work()

    def _look(self, calls: Sequence[QueuedCall[Any]]) -> None:
        tx = Transaction(self._reader)
        try:
            self._ask(lambda: _do_all(calls, tx))
        except Exception as error:  # the callers raise it
            known = self._meaning(error)
            for call in calls:
                if isinstance(known, LedgerWriteError):  # the database cannot be reached
                    call.error = known
                    continue
                # Each is repeated on its own, for its own error.
                try:
                    self._ask(partial(_do_all, [call], tx))
                except Exception as own:  # the caller raises it
                    call.error = self._meaning(own)

    def _commit(self, calls: Sequence[QueuedCall[Any]]) -> None:
        """Do several writes in one transaction, or each in its own if one fails.

        If the database fails, nothing of that transaction is kept, and nothing after it is tried.
        """
        left = [*calls]
        try:
            if self._try(calls) is None:
                return
            while left:
                left[0].error = self._try(left[:1])
                left.pop(0)
        except BaseException as error:  # the callers raise it
            known = self._meaning(error) if isinstance(error, Exception) else error
            self._give_up(known)
            for call in left:
                call.error = known

    def _try(self, calls: Sequence[QueuedCall[Any]]) -> Exception | None:
        check = self._begin(calls)
        try:
            for call in calls:
                check(call)
            _do_all(calls, Transaction(self._writer))
        except Exception as error:  # the caller raises it
            known = self._undone(error)
            self._end(is_kept=False)
            return known
        self._end(is_kept=calls[0].keep)
        return None

    def _check_term(self, term: int, current: int) -> None:
        if term not in (current, ANYBODY):
            raise StaleTermError(self.place, term=term, current=current)

    knows = _reading(Transaction.knows)
    loose = _reading(Transaction.loose)
    index = _reading(Transaction.known_files)
    entry = _reading(Transaction.entry)
    find = _reading(Transaction.find)
    entries = _reading(Transaction.entries)
    entries_at = _reading(Transaction.entries_at)
    summaries = _reading(Transaction.summaries)
    coming = _reading(Transaction.coming)
    count_entries = _reading(Transaction.count_entries)
    entries_that_are = _reading(Transaction.entries_that_are)
    followers = _reading(Transaction.followers)
    due = _reading(Transaction.due)
    wake_at = _reading(Transaction.wake_at)
    receipt = _reading(Transaction.receipt)
    receipts = _reading(Transaction.receipts)
    unsettled = _reading(Transaction.unsettled)
    late = _reading(Transaction.late)
    count_open = _reading(Transaction.count_open)
    run = _reading(Transaction.run)
    open_runs = _reading(Transaction.open_runs)
    runs_of = _reading(Transaction.runs_of)
    last_run = _reading(Transaction.last_run)
    newest_ends = _reading(Transaction.newest_ends)
    newest_event = _reading(Transaction.newest_event)
    events_after = _reading(Transaction.events_after)
    fresh_at = _reading(Transaction.fresh_at)
    text = _reading(Transaction.text)

    decide = _writing(Transaction.decide)
    add = _writing(Transaction.add)
    give_back = _writing(Transaction.give_back)
    start_many = _writing(Transaction.start_many)
    running_many = _writing(Transaction.running_many)
    end_many = _writing(Transaction.end_many)
    hold = _writing(Transaction.hold)
    limits = _reading(Transaction.limits)
    outcomes = _reading(Transaction.outcomes)
    first_entries = _reading(Transaction.first_entries)
    spans = _reading(Transaction.spans)
    bad_results = _reading(Transaction.bad_results)
    acknowledged = _reading(Transaction.acknowledged)
    acknowledge = _writing(Transaction.acknowledge)
    ask_account = _writing(Transaction.ask_account)
    free_limited = _writing(Transaction.free_limited)
    release = _writing(Transaction.release)
    settle = _writing(Transaction.settle)
    pause = _writing(arming.pause)
    resume = _writing(arming.resume)
    set_back = _writing(arming.set_back)
    remember = _writing(Transaction.remember)
    note = _writing(Transaction.tell)
    draw = _writing(spending.draw)
    use = _writing(spending.use)
    refuse = _writing(spending.refuse)
    balances = _reading(spending.balances)
    costs = _reading(spending.costs)
    costs_of = _reading(spending.of_receipts)
    usual = _reading(spending.usual)

    async def scan(
        self,
        source: str,
        scan: Scan,
        *,
        now: datetime,
        term: int,
        revision: Revision | None = None,
        patience: timedelta = MISSING,
    ) -> datetime | None:
        is_long = len(scan.entries) > _LONG

        def work(tx: Transaction) -> datetime | None:
            with collector_paused(when=is_long):
                return arming.scan(tx, source, scan, now=now, revision=revision, patience=patience)

        return await self.write(term, work, is_alone=is_long)

    async def wake(self, *, now: datetime, term: int) -> list[int]:
        # There is rarely one, and a read does not block writers.
        at, queries = micros(now), ("entry.rested", "purse.again")
        if not await self.read(
            lambda tx: tx.term() != term or any(tx.rows(query, now=at) for query in queries)
        ):
            return []
        return await self.write(term, lambda tx: arming.wake(tx, now=now))

    async def prune(
        self, *, before: datetime, now: datetime, term: int, dry_run: bool = False
    ) -> Pruned:
        return await self.write(
            term,
            lambda tx: tx.prune(before=before, now=now),
            keep=not dry_run,
            is_alone=True,
        )
