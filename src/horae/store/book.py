"""What is written into the ledger, and read from it, inside a transaction that is open."""

from __future__ import annotations

import json
import sqlite3
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from horae.core.actor import ENGINE
from horae.core.decide import LOOKED_BACK, occasions
from horae.core.entry import AfterRule, CadenceRule, Entry, key_time
from horae.core.ports import (
    FRESH_LEDGER,
    DueEntry,
    EntryCounts,
    Followed,
    Job,
    Pruned,
    ReceiptPage,
    Run,
)
from horae.core.receipt import (
    BAD,
    ENDS,
    FINAL,
    OPEN,
    Filed,
    Reason,
    ReasonCode,
    Status,
    after_end,
    followed_by,
    is_planned,
    may_become,
)
from horae.store import arming
from horae.store.codec import (
    compact,
    compact_words,
    counts_from_end,
    due_of,
    entry_of,
    event_of,
    filed_of,
    listed,
    micros,
    moment,
    moved,
    next_after,
    next_at,
    plain,
    read_rule,
    run_of,
    write_agents,
    write_policy,
)
from horae.store.sql import by_place, theme

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from horae.core.decide import Decision
    from horae.core.ports import EntryStep, Event, Listed, Process, Trait
    from horae.core.receipt import Receipt

T = TypeVar("T")

_ENTRY: Final = theme("entry")
_RECEIPT: Final = theme("receipt")
_RUN: Final = theme("run")
_EVENT: Final = theme("event")
_TEXT: Final = theme("text")
_PRUNE: Final = theme("prune")
_SEVERAL: Final = theme("several")  # for several receipts or runs at once
_TERM: Final = theme("term")
_TICK: Final = "tick:"
_SOME: Final = 2000  # entries that are taken in at once
_STARTING: Final = Reason(ReasonCode.STARTING, "the run is being started")
_RUNNING: Final = Reason(ReasonCode.STARTED, "the run has started")
_FREE: Final = frozenset({Status.WAITING, Status.HELD})  # no machine has such a receipt


class Arrival(NamedTuple):
    """A new entry: what is written down about it, and if it is armed what it runs and how."""

    facts: Mapping[str, object]
    text: str | None = None
    entry: Entry | None = None
    begun: Decision | None = None


class ReceiptState(NamedTuple):
    number: int
    entry: int
    status: Status
    attempts: int
    machine: str | None = None


class NodeJoin(NamedTuple):
    """A member of a cluster, since it last joined, in whose name a book is written."""

    name: str
    generation: int


class Batch(Generic[T]):
    """A call that can be done for several at once: *all* gets what is *given* for each of them."""

    __slots__ = ("all", "given")

    def __init__(self, all: Callable[[Book, Sequence[Any]], list[T]], given: Any) -> None:  # noqa: A002
        self.all = all
        self.given = given

    def __call__(self, book: Book) -> T:
        return self.all(book, [self.given])[0]


class _Draft(NamedTuple):
    """A receipt that is to be filed, and what it carries of its entry."""

    entry: Entry
    receipt: Receipt
    source: str
    commit: str | None
    parent: int | None = None
    actor: str = ENGINE


class _EntryMark(NamedTuple):
    number: int
    accounted_to: int | None
    ended_at: int | None
    next_at: int | None


class _Ticks(NamedTuple):
    number: int
    ticks: int = 1


class _EventRow(NamedTuple):
    at: int
    kind: str
    facts: str
    entry: int | None = None
    receipt: int | None = None
    actor: str = ENGINE


class _ReceiptRow(NamedTuple):
    number: int
    entry: int
    key: str
    status: str
    reason: str
    reason_code: str
    planned_at: int
    through_at: int | None
    count: int  # type: ignore[assignment]  # a column, not the method of a tuple
    start_at: int
    now: int
    file: str
    line: int
    digest: str
    policy: str
    work: str
    agents: str
    parent: int | None
    commit: str | None
    actor: str


class _Move(NamedTuple):
    number: int
    was: str
    status: str
    reason: str
    reason_code: str
    attempts: int
    start_at: int | None = None
    died: int = 0
    ended_at: int | None = None
    has_machine: int = 1


class _ReceiptMove(NamedTuple):
    row: _Move
    event: _EventRow


class _OpenRun(NamedTuple):
    number: int
    receipt: int
    attempt: int
    now: int
    member: str | None
    generation: int | None


class _Identity(NamedTuple):
    number: int
    pid: int
    pid_started: int


_Row: TypeAlias = _EntryMark | _Ticks | _ReceiptRow | _Move | _OpenRun | _Identity


class Book:
    """The pages of one ledger, through one connection; a *worker* writes of its own runs.

    Each event that is written is the *actor*'s: of whoever called, not of the thread that writes.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        worker: NodeJoin | None = None,
        actor: str = ENGINE,
    ) -> None:
        self.connection = connection
        self.worker = worker
        self.actor = actor
        self.execute = connection.execute
        self.execute_many = connection.executemany
        self._takes_tuples = isinstance(connection, sqlite3.Connection)

    @contextmanager
    def as_engine(self) -> Iterator[None]:
        """Let what is written meanwhile be the engine's, whoever called."""
        was, self.actor = self.actor, ENGINE
        try:
            yield
        finally:
            self.actor = was

    def term(self) -> int:
        return int(self.execute(_TERM["current"]).fetchone()[0])

    # Entries

    def entry(self, number: int) -> Listed | None:
        row = self.execute(_ENTRY["one"], {"number": number}).fetchone()
        return None if row is None else listed(row)

    def entries(self, *, source: str | None = None) -> list[Listed]:
        query = _ENTRY["all"] if source is None else _ENTRY["of_source"]
        return [listed(row) for row in self.execute(query, {"source": source})]

    def find(self, word: str) -> list[Listed]:
        """Return the entries that go by a word, in the first way in which any does.

        What is gone is only meant if nothing that is there goes by that word.
        """
        word = plain(word)
        file, _, line = word.rpartition(":")
        ways: list[tuple[str, dict[str, object]]] = [
            ("by_address", {"word": word}),
            ("by_address", {"word": f"id:{word}"}),
            ("by_address", {"word": f"agent:{word}"}),
            ("by_title", {"word": word}),
        ]
        if _is_number(word):
            ways.insert(0, ("one", {"number": int(word)}))
        if _is_number(line):
            ways.append(("by_place", {"file": file, "line": int(line)}))
        gone: list[Listed] = []
        for query, values in ways:
            found = [listed(row) for row in self.execute(_ENTRY[query], values).fetchall()]
            if any(each.gone_at is None for each in found):
                return found
            gone = gone or found
        return gone

    def coming(self, *, limit: int = 20) -> list[Listed]:
        return [listed(row) for row in self.execute(_ENTRY["coming"], {"limit": limit})]

    def count_entries(self, *, due_before: datetime) -> EntryCounts:
        values = {"due_before": micros(due_before)}
        row = self.execute(_ENTRY["counts"], values).fetchone()
        return EntryCounts(row["armed"], row["overdue"])

    def entries_that_are(self, trait: Trait, *, limit: int) -> list[Listed]:
        rows = self.execute(_ENTRY[f"that_are_{trait}"], {"limit": limit})
        return [listed(row) for row in rows]

    def followers(self) -> list[Listed]:
        return [listed(row) for row in self.execute(_ENTRY["followers"])]

    def due(self, *, now: datetime, limit: int = 1000) -> list[DueEntry]:
        rows = self.execute(_ENTRY["due"], {"now": micros(now), "limit": limit})
        return [due_of(row) for row in rows]

    def wake_at(self) -> datetime | None:
        coming = [each for each in self.execute(_ENTRY["wake_at"]).fetchone() if each is not None]
        return moment(min(coming)) if coming else None

    def rested(self, *, now: datetime) -> list[int]:
        """Return the entries that have rested as long as they should."""
        return [row["number"] for row in self.execute(_ENTRY["rested"], {"now": micros(now)})]

    def ahead(self, *, now: datetime) -> list[sqlite3.Row]:
        """Return the entries that are there and go by a clock that ran ahead."""
        return self.execute(_ENTRY["ahead"], {"now": micros(now)}).fetchall()

    def files(self, source: str) -> list[str]:
        return [row["file"] for row in self.execute(_ENTRY["files"], {"source": source})]

    def knows(self, source: str) -> bool:
        return self.execute(_ENTRY["one_of_source"], {"source": source}).fetchone() is not None

    def loose(self, source: str) -> list[str]:
        return [row["file"] for row in self.execute(_ENTRY["loose"], {"source": source})]

    def commit_files(self, source: str, files: Sequence[str], commit: str) -> None:
        """Note the commit of the entries in some files of which none is known."""
        values = [{"source": source, "file": file, "commit_id": commit} for file in files]
        if values:
            self.execute_many(_ENTRY["commit_file"], values)

    def rows_in(self, source: str, files: Sequence[str] | None) -> list[sqlite3.Row]:
        if files is None:
            return self.execute(_ENTRY["present"], {"source": source}).fetchall()
        values = {"source": source, "files": json.dumps(files)}
        return self.execute(_ENTRY["in_files"], values).fetchall() if files else []

    def rows_at(self, source: str, addresses: Collection[str]) -> list[sqlite3.Row]:
        values = {"source": source, "addresses": json.dumps(list(addresses))}
        return self.execute(_ENTRY["at_addresses"], values).fetchall() if addresses else []

    def missing_rows(self, source: str) -> list[sqlite3.Row]:
        return self.execute(_ENTRY["missing"], {"source": source}).fetchall()

    def insert_entries(
        self, arrivals: Sequence[Arrival], *, source: str, now: datetime
    ) -> list[int]:
        """Give new entries their numbers, keep what they run, and tell of them."""
        first = self._numbers(_ENTRY, len(arrivals))
        for begin in range(0, len(arrivals), _SOME):
            self._insert_some(arrivals[begin : begin + _SOME], first + begin, source, now)
        return [*range(first, first + len(arrivals))]

    def _insert_some(
        self, arrivals: Sequence[Arrival], first: int, source: str, now: datetime
    ) -> None:
        """Take in some new entries: not all at once, or a server would take us for frozen."""
        at = micros(now)
        rows, texts, events = [], [], []
        for number, arrival in enumerate(arrivals, start=first):
            facts, text = arrival.facts, arrival.text
            rows.append({
                **facts, **_beginning(arrival, now), "number": number, "source": source, "now": at
            })  # fmt: skip
            if text is not None:
                texts.append({"digest": facts["digest"], "body": _bytes(text), "now": at})
            words = {name: str(facts[name]) for name in ("address", "rule", "title")}
            events.append(_EventRow(at, "entry_new", compact_words(**words), number))
        self.execute_many(_ENTRY["insert"], rows)
        self.execute_many(_TEXT["keep"], texts)
        self._tell_all(events)

    def update_entry(self, number: int, facts: Mapping[str, object], entry: Entry | None) -> None:
        coming = None if entry is None else next_at(entry)
        self.execute(_ENTRY["update"], {**facts, "number": number, "next_at": coming})

    def account(self, entry: Entry, decision: Decision, *, now: datetime) -> list[Filed]:
        """Write a decision that no race can spoil; return the receipts that are new."""
        self.execute(_ENTRY["account"], _watermark(entry, decision)._asdict())
        return self._file(self._drafts(entry, decision.receipts), now)

    def decide(self, steps: Sequence[EntryStep], *, now: datetime) -> list[Filed]:
        found = self._standing(step.entry.number for step in steps)
        stands = {row[0]: row for row in found if row["is_armed"]}
        taken = self._taken(
            (step.entry.number, each.key) for step in steps for each in step.decision.receipts
        )
        marks: list[_EntryMark] = []
        drafts, passed = [], []
        for entry, decision in ((step.entry, step.decision) for step in steps):
            number, receipts = entry.number, decision.receipts
            row = stands.pop(number, None)  # once: after that it is not as it was read
            was = micros(entry.accounted_to), micros(entry.ended_at)
            if row is None or was != (row[1], row[2]):
                continue
            mark = _watermark(entry, decision)
            if not _is_forward(row[1], mark.accounted_to):
                continue
            marks.append(mark)
            if taken and not taken.isdisjoint((number, each.key) for each in receipts):
                if counts_from_end(entry.rule):
                    passed.append((entry, receipts))
                freed = (_freed(number, taken, each) for each in receipts)
                receipts = tuple(each for each in freed if (number, each.key) not in taken)
            drafts += [_Draft(entry, each, row[4], row[3], actor=self.actor) for each in receipts]
        self._write_all(_ENTRY["account_armed"], marks)
        filed = self._file(drafts, now)
        for entry, receipts in passed:
            self._pass_over(entry, receipts, now=now)
        return filed

    def set_watermark(self, row: sqlite3.Row, *, now: datetime) -> None:
        """Let what is not armed be accounted for up to now at most."""
        most = micros(now)
        values = {
            "number": row["number"],
            "accounted_to": min(row["accounted_to"], most),
            "ended_at": None if row["ended_at"] is None else min(row["ended_at"], most),
        }
        self.execute(_ENTRY["account"], {**values, "next_at": None})

    def miss(self, number: int, *, now: datetime) -> None:
        self.execute(_ENTRY["miss"], {"number": number, "now": micros(now)})

    def unmiss(self, numbers: Sequence[int]) -> None:
        """Note that entries are not missing: what they stand in is there and cannot be read."""
        if numbers:
            self.execute_many(_ENTRY["unmiss"], [{"number": number} for number in numbers])

    def mark_gone(self, number: int, *, now: datetime) -> None:
        self.execute(_ENTRY["gone"], {"number": number, "now": micros(now)})

    def pause(self, number: int, *, now: datetime, note: str, until: datetime | None) -> bool:
        values = {
            "number": number,
            "now": micros(now),
            "note": plain(note),
            "until": micros(until),
            "by": self.actor,
        }
        return self.execute(_ENTRY["pause"], values).rowcount == 1

    def remember(self, number: int, memory: str) -> None:
        self.execute(_ENTRY["remember"], {"number": number, "memory": memory})

    def resume(self, number: int) -> bool:
        return self.execute(_ENTRY["resume"], {"number": number}).rowcount == 1

    def index(self, source: str) -> dict[str, str]:
        """Return by what each file of a source was last known."""
        rows = self.execute(_ENTRY["index"], {"source": source})
        return {row["file"]: row["known_as"] for row in rows}

    def known_files(self, source: str) -> dict[str, str]:
        """Return the same, with nothing for a file whose entries stand though it is not known."""
        return dict.fromkeys(self.files(source), "") | self.index(source)

    def write_index(self, source: str, was: Mapping[str, str], now: Mapping[str, str]) -> None:
        """Remember by what files are known now, as far as that is something else."""
        changed = [
            {"source": source, "file": file, "known_as": known_as}
            for file, known_as in now.items()
            if was.get(file) != known_as
        ]
        lost = [{"source": source, "file": file} for file in was.keys() - now.keys()]
        if changed:
            self.execute_many(_ENTRY["know_file"], changed)
        if lost:
            self.execute_many(_ENTRY["forget_file"], lost)

    # Receipts

    def receipt(self, number: int) -> Filed | None:
        row = self.execute(_RECEIPT["one"], {"number": number}).fetchone()
        return None if row is None else filed_of(row)

    def receipt_of(self, entry: int, key: str) -> Filed | None:
        row = self.execute(_RECEIPT["by_key"], {"entry": entry, "key": key}).fetchone()
        return None if row is None else filed_of(row)

    def add(
        self,
        number: int,
        receipts: Sequence[Receipt],
        *,
        now: datetime,
        parent: int | None = None,
        agents: tuple[str, ...] | None = None,
    ) -> list[Filed]:
        row = self.execute(_ENTRY["one"], {"number": number}).fetchone()
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
                draft = _Draft(asked, receipt, row["source"], row["commit_id"], parent, self.actor)
                filed += self._file([draft], now)
        return filed

    def move(
        self,
        filed: Filed | ReceiptState,
        status: Status,
        *,
        reason: Reason,
        now: datetime,
        start_at: datetime | None = None,
        attempts: int | None = None,
        may_wait: bool = False,
        died: bool = False,
    ) -> bool:
        """Change where a receipt stands, if the graph allows it.

        *may_wait* tells whether one that runs may wait again: for a retry, or since it was
        never let go.
        """
        if not may_become(filed.status, status, has_retry=may_wait):
            return False
        values = {
            "number": filed.number,
            "was": filed.status,
            "status": status,
            "reason": plain(reason),
            "reason_code": reason.code,
            "start_at": micros(start_at),
            "attempts": filed.attempts if attempts is None else attempts,
            "died": int(died),
            "ended_at": micros(now) if status in ENDS else None,
            "has_machine": int(status not in _FREE),
        }
        if self.execute(_RECEIPT["move"], values).rowcount != 1:
            return False
        self._tell_all([_told(filed, status, reason, micros(now))])
        return True

    def _move_all(self, moves: Sequence[_ReceiptMove]) -> None:
        self._write_all(_RECEIPT["move"], [each.row for each in moves])
        self._tell_all([each.event for each in moves])

    def hold(self, number: int, *, reason: Reason, now: datetime) -> bool:
        stands = self._stands("standing", number)
        return stands is not None and self.move(stands, Status.HELD, reason=reason, now=now)

    def finish(self, filed: Filed, status: Status, *, reason: Reason, now: datetime) -> bool:
        """End a receipt that has not run, or whose run is no fault of its entry."""
        is_moved = self.move(filed, status, reason=reason, now=now)
        if is_moved and status in FINAL:
            self._go_on(filed, status, now=now, is_counted=False)
        return is_moved

    def release(self, number: int, *, reason: Reason, now: datetime) -> bool:
        """Let a held receipt wait again; one that is being started is not held."""
        stands = self._stands("standing", number)
        if stands is None or stands.status is not Status.HELD:
            return False
        return self.move(stands, Status.WAITING, reason=reason, now=now)

    def skip_pending(self, entry: int, *, reason: Reason, now: datetime) -> None:
        for row in self.execute(_RECEIPT["pending_of_entry"], {"entry": entry}).fetchall():
            self.finish(filed_of(row), Status.SKIPPED, reason=reason, now=now)

    def has_open(self, entry: int) -> bool:
        return self.execute(_RECEIPT["has_open"], {"entry": entry}).fetchone() is not None

    def open_receipts(self) -> list[Filed]:
        return [filed_of(row) for row in self.execute(_RECEIPT["open"])]

    def settle(self, numbers: Iterable[int], *, now: datetime) -> int:
        values = [{"number": number, "now": micros(now)} for number in numbers]
        return max(0, self.execute_many(_RECEIPT["settle"], values).rowcount)

    def unsettled(self, *, after: int = 0, limit: int = 1000) -> list[Filed]:
        values = {"after": after, "limit": limit}
        return [filed_of(row) for row in self.execute(_RECEIPT["unsettled"], values)]

    def give_up_keys(self, *, now: datetime) -> None:
        """Free the keys of moments that come again because the clock was set back."""
        self.execute(_RECEIPT["give_up_keys"], {"now": micros(now)})

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
        values = {
            "entry": entry,
            "since": micros(since),
            "until": micros(until),
            "statuses": json.dumps(sorted(statuses)) if statuses else None,
            "cursor": cursor,
            "limit": limit + 1,
        }
        found = [filed_of(row) for row in self.execute(_RECEIPT[query], values)]
        page = tuple(found[:limit])
        return ReceiptPage(page, page[-1].number if len(found) > limit else None)

    def late(self, *, since: datetime, by: timedelta, limit: int = 1000) -> list[Filed]:
        values = {"since": micros(since), "by": by // timedelta(microseconds=1), "limit": limit}
        return [filed_of(row) for row in self.execute(_RECEIPT["late"], values)]

    # Runs

    def start_all(self, asked: Sequence[tuple[int, datetime]]) -> list[Run | None]:
        """Take waiting receipts and open their runs; None: the receipt does not wait."""
        stands = self._stand_all("standing", [number for number, _ in asked])
        begun: list[Run | None] = [None] * len(asked)
        free: list[tuple[int, ReceiptState, datetime]] = []
        for place, (number, now) in enumerate(asked):
            each = stands.pop(number, None)  # once: after that it does not wait
            if each is None or not may_become(each.status, Status.STARTING):
                continue
            # A worker starts only what was assigned to it.
            if self.worker is None or each.machine == self.worker.name:
                free.append((place, each, now))
        if not free:
            return begun
        numbers = json.dumps([each.number for _, each, _ in free])
        attempts = dict(self.execute(_SEVERAL["attempts"], {"receipts": numbers}).fetchall())
        last = self.execute(_SEVERAL["run_numbers"], {"count": len(free)}).fetchone()
        name, generation = self.worker or (None, None)
        opened = []
        for run, (place, each, now) in enumerate(free, start=int(last[0]) + 1):
            attempt = attempts.get(each.number, 0) + 1
            opened.append(_OpenRun(run, each.number, attempt, micros(now), name, generation))
            begun[place] = Run(run, each.number, attempt, now, member=name or "")
        self._move_all(
            [_moved(each, Status.STARTING, reason=_STARTING, now=now) for _, each, now in free]
        )
        self._write_all(_RUN["insert"], opened)
        return begun

    def running_all(self, asked: Sequence[tuple[int, Process, datetime]]) -> list[bool]:
        """Note which processes runs are."""
        stands = self._stand_all("standing_of_runs", [number for number, _, _ in asked])
        moves, known, is_noted = [], [], []
        for number, process, now in asked:
            each = stands.pop(number, None)
            is_noted.append(each is not None and may_become(each.status, Status.RUNNING))
            if each is None or not is_noted[-1]:
                continue
            more = each._replace(attempts=each.attempts + 1)
            moves.append(_moved(more, Status.RUNNING, reason=_RUNNING, now=now))
            known.append(_Identity(number, process.pid, process.started))
        self._move_all(moves)
        self._write_all(_RUN["identify"], known)
        return is_noted

    def give_back(self, number: int, *, reason: Reason, now: datetime, died: bool = False) -> bool:
        """Let the receipt of a run that was never let go wait again."""
        stands = self._stands("standing_of_run", number)
        if stands is None:
            return False
        # It was counted when it was written down as running, and then it was not let go.
        attempts = stands.attempts - (stands.status is Status.RUNNING)
        if not self.move(
            stands,
            Status.WAITING,
            reason=reason,
            now=now,
            attempts=attempts,
            may_wait=True,
            died=died,
        ):
            return False
        self.close_run(number, outcome=None, reason=reason, now=now)
        return True

    def end(
        self,
        number: int,
        outcome: Status,
        *,
        reason: Reason,
        now: datetime,
        exit_code: int | None = None,
        facts: Mapping[str, object] | None = None,
        is_last: bool = False,
        memory: str | None = None,
        is_counted: bool = True,
    ) -> Filed | None:
        row = self.execute(_RECEIPT["of_run"], {"number": number}).fetchone()
        if row is None or outcome not in ENDS:
            return None
        filed = filed_of(row)
        # One that could not even be made was an attempt too, or it would be tried for ever.
        attempts = filed.attempts + (filed.status is Status.STARTING)
        retry = None if is_last else filed.policy.retry
        then = after_end(outcome, attempts=attempts, retry=retry, now=now)
        if not may_become(filed.status, outcome) or not self.move(
            filed,
            then.status,
            reason=reason,
            now=now,
            start_at=then.start_at,
            attempts=attempts,
            may_wait=then.start_at is not None,
        ):
            return None
        self.close_run(
            number, outcome=outcome, exit_code=exit_code, reason=reason, facts=facts, now=now
        )
        if then.status in ENDS:
            self._go_on(filed, then.status, now=now, is_counted=is_counted, memory=memory)
        if then.status in BAD:
            arming.pause_if_failing(self, filed.entry, now=now)
        return moved(
            filed,
            then.status,
            reason=Reason(reason.code, plain(reason)),
            start_at=then.start_at,
            attempts=attempts,
            ended_at=now if then.status in ENDS else None,
        )

    def close_run(
        self,
        number: int,
        *,
        outcome: Status | None,
        reason: Reason,
        now: datetime,
        exit_code: int | None = None,
        facts: Mapping[str, object] | None = None,
    ) -> None:
        values = {
            "number": number,
            "outcome": outcome,
            "exit_code": exit_code,
            "reason": plain(reason),
            "reason_code": reason.code,
            "facts": compact(facts or {}),
            "now": micros(now),
        }
        self.execute(_RUN["close"], values)

    def run(self, number: int) -> Run | None:
        row = self.execute(_RUN["one"], {"number": number}).fetchone()
        return None if row is None else run_of(row)

    def open_runs(self) -> list[tuple[Filed, Run]]:
        found = []
        for row in self.execute(_RUN["all_open"]).fetchall():
            filed = self.receipt(row["receipt"])
            assert filed is not None, "a run has its receipt"
            found.append((filed, run_of(row)))
        return found

    def open_run_of(self, receipt: int) -> Run | None:
        row = self.execute(_RUN["open_of_receipt"], {"receipt": receipt}).fetchone()
        return None if row is None else run_of(row)

    def runs_of(self, receipt: int) -> list[Run]:
        return [run_of(row) for row in self.execute(_RUN["of_receipt"], {"receipt": receipt})]

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
        self._tell_all([_EventRow(micros(now), kind, compact(facts or {}), entry, receipt)])

    def newest_event(self) -> int:
        return int(self.execute(_EVENT["newest"]).fetchone()[0])

    def fresh_at(self) -> datetime | None:
        first = self.events_after(0, limit=1)
        return first[0].at if first and first[0].kind == FRESH_LEDGER else None

    def events_after(self, number: int, *, limit: int = 1000) -> list[Event]:
        values = {"number": number, "limit": limit}
        return [event_of(row) for row in self.execute(_EVENT["after"], values)]

    def keep_text(self, digest: str, text: str, *, now: datetime) -> None:
        self.execute(_TEXT["keep"], {"digest": digest, "body": _bytes(text), "now": micros(now)})

    def text(self, digest: str) -> str | None:
        row = self.execute(_TEXT["one"], {"digest": digest}).fetchone()
        return None if row is None else _text(row["body"])

    def job(self, filed: Filed, run: Run) -> Job | None:
        """Return all that the run of a receipt needs, if the text that it runs is here."""
        text = self.text(filed.digest) if filed.digest else ""
        if text is None:
            return None
        entry = self.entry(filed.entry)
        return Job(filed, run, text, self._followed(filed, entry), entry)

    def _followed(self, alert: Filed, entry: Listed | None) -> Followed | None:
        number = followed_by(alert.receipt.key)
        filed = None if number is None else self.receipt(number)
        if filed is None:
            return None
        rule = entry.item.rule if entry is not None and isinstance(entry.item, Entry) else None
        wanted = rule.occasions if isinstance(rule, AfterRule) else ()
        page = self.receipts(entry=filed.entry, cursor=number, limit=LOOKED_BACK)
        before = [each.status for each in page.receipts]
        key = filed.receipt.key
        found = occasions(filed.status, lateness=filed.lateness, before=before, key=key)
        event = tuple(each for each in wanted if each in found)
        return Followed(filed, event, next(reversed(self.runs_of(filed.number)), None))

    def jobs(self, asked: Sequence[tuple[Filed, Run]]) -> list[Job | None]:
        wanted = {"digests": json.dumps([filed.digest for filed, _ in asked])}
        texts = {row[0]: _text(row[1]) for row in self.execute(_SEVERAL["texts"], wanted)}
        wanted = {"numbers": json.dumps([filed.entry for filed, _ in asked])}
        entries = {row["number"]: row for row in self.execute(_SEVERAL["entries"], wanted)}
        found: list[Job | None] = []
        for filed, run in asked:
            text = texts.get(filed.digest) if filed.digest else ""
            row = entries.get(filed.entry)
            if text is None or followed_by(filed.receipt.key) is not None:
                found.append(self.job(filed, run))
            else:
                found.append(Job(filed, run, text, None, None if row is None else listed(row)))
        return found

    def prune(self, *, before: datetime, now: datetime) -> Pruned:
        """Fold old receipts into ranges and drop what is old and needed no more."""
        values = {"before": micros(before)}
        runs = self._count_runs()
        receipts = 0
        for row in self.execute(_PRUNE["foldable"], values).fetchall():
            group = {**dict(row), **values}
            receipts += self.execute(_PRUNE["drop_folded"], group).rowcount
            self.execute(_PRUNE["widen"], group)
        self.execute(_PRUNE["drop_runs"], values)
        events = self.execute(_PRUNE["drop_events"], values).rowcount
        texts = self.execute(_PRUNE["drop_texts"], values).rowcount
        pruned = Pruned(receipts, runs - self._count_runs(), events, texts)
        facts = {"receipts": receipts, "runs": pruned.runs, "events": events, "texts": texts}
        self.tell("pruned", now=now, facts=facts)
        return pruned

    # What several of these share

    def _numbers(self, theme: Mapping[str, str], count: int) -> int:
        """Return the first of so many numbers for entries, or receipts, that nobody ever had."""
        return int(self.execute(theme["numbers"], {"count": count}).fetchone()[0]) + 1

    def _write_all(self, query: str, rows: Sequence[_Row | _EventRow]) -> None:
        if rows and self._takes_tuples:
            self.execute_many(by_place(query, rows[0]._fields), rows)
        elif rows:
            self.execute_many(query, [each._asdict() for each in rows])

    def _tell_all(self, events: Sequence[_EventRow]) -> None:
        if self.actor != ENGINE:
            events = [each._replace(actor=self.actor) for each in events]
        self._write_all(_EVENT["insert"], events)

    def _standing(self, numbers: Iterable[int]) -> list[sqlite3.Row]:
        values = {"numbers": json.dumps([*numbers])}
        return self.execute(_ENTRY["standing"], values).fetchall()

    def _taken(self, keys: Iterable[tuple[int, str]]) -> set[tuple[int, str]]:
        wanted = [*keys]
        if not wanted:
            return set()
        rows = self.execute(_RECEIPT["taken"], {"keys": json.dumps(wanted)})
        return {(row[0], row[1]) for row in rows}

    def standing(self, number: int) -> ReceiptState | None:
        return self._stands("standing", number)

    def _stands(self, query: str, number: int) -> ReceiptState | None:
        row = self.execute(_RECEIPT[query], {"number": number}).fetchone()
        return None if row is None else ReceiptState(row[0], row[1], Status(row[2]), row[3], row[4])

    def _stand_all(self, query: str, numbers: Sequence[int]) -> dict[int, ReceiptState]:
        """Return where several receipts stand, by their own numbers or those of their runs."""
        rows = self.execute(_SEVERAL[query], {"numbers": json.dumps(numbers)})
        return {
            row[5]: ReceiptState(row[0], row[1], Status(row[2]), row[3], row[4]) for row in rows
        }

    def _drafts(self, entry: Entry, receipts: Sequence[Receipt]) -> list[_Draft]:
        """Return what is to be filed of an entry: the receipts whose key has none."""
        if not receipts:
            return []
        [row] = self._standing([entry.number])
        taken = self._taken((entry.number, each.key) for each in receipts)
        return [
            _Draft(entry, each, row["source"], row["commit_id"])
            for each in (_freed(entry.number, taken, each) for each in receipts)
            if (entry.number, each.key) not in taken
        ]

    def _file(self, drafts: Sequence[_Draft], now: datetime) -> list[Filed]:
        """File receipts whose keys are free, and tell of them."""
        if not drafts:
            return []
        at = micros(now)
        filed, rows, events, ticks = [], [], [], []
        words: dict[tuple[str, str, str, Status], str] = {}  # of a herd they are mostly the same
        for number, draft in enumerate(drafts, start=self._numbers(_RECEIPT, len(drafts))):
            receipt = draft.receipt
            filed.append(_filed(number, draft, now))
            rows.append(_receipt_row(number, draft, at))
            reason = receipt.reason
            key = receipt.key, reason, reason.code, receipt.status
            facts = words.get(key)
            if facts is None:
                facts = words[key] = compact_words(
                    key=receipt.key,
                    reason=reason,
                    reason_code=reason.code,
                    status=receipt.status,
                )
            entry = draft.entry.number
            events.append(_EventRow(at, "receipt", facts, entry, number))
            if receipt.key.startswith(_TICK):
                ticks.append(_Ticks(entry))
        self._write_all(_RECEIPT["insert"], rows)
        self._tell_all(events)
        self._write_all(_ENTRY["tick"], ticks)
        return filed

    def _pass_over(self, entry: Entry, receipts: Sequence[Receipt], *, now: datetime) -> None:
        """Let an entry count from now if the moment that was to run is over already."""
        for receipt in receipts:
            filed = self.receipt_of(entry.number, receipt.key)
            assert filed is not None, "each key was filed, now or before"
            # One that is still open will end, and one that was just decided has said when.
            if receipt.status not in FINAL and filed.status in FINAL:
                self._go_on(filed, filed.status, now=now, is_counted=False)

    def _go_on(
        self,
        filed: Filed,
        status: Status,
        *,
        now: datetime,
        is_counted: bool,
        memory: str | None = None,
    ) -> None:
        """Let an entry go on after a receipt of it that is over, whether it ran or not."""
        number = {"number": filed.entry}
        spec, accounted_to, end, streak, failures = self.execute(
            _ENTRY["goes_on"], number
        ).fetchone()
        rule = None if spec is None else read_rule(spec)
        waited = rule is not None and counts_from_end(rule)
        ended_at = moment(end)
        if is_planned(filed.receipt.key) and (waited or status in ENDS):
            # Not before the watermark, or a clock set back would hide the next moment for ever.
            ended_at = max(now, moment(int(accounted_to))) if waited else now
        is_tick = filed.receipt.key.startswith(_TICK)
        if is_counted and (is_tick or not isinstance(rule, CadenceRule)):
            streak, failures = _counts(status, streak, failures, is_tick=is_tick)
        values = {**number, "ended_at": micros(ended_at), "memory": memory}
        values |= {"streak": streak, "failures": failures}
        if not waited:
            self.execute(_ENTRY["over_as_planned"], values)
            return
        entry = entry_of(self.execute(_ENTRY["one"], number).fetchone())
        if isinstance(entry.rule, CadenceRule):
            entry = replace(entry, rule=replace(entry.rule, streak=streak, failures=failures))
        coming = next_after(entry, entry.accounted_to, ended_at)
        values["next_at"] = coming
        self.execute(_ENTRY["over"], values)

    def _count_runs(self) -> int:
        return int(self.execute(_PRUNE["count_runs"]).fetchone()[0])


def _told(filed: Filed | ReceiptState, status: Status, reason: Reason, at: int) -> _EventRow:
    facts = _told_facts(reason, reason.code, status)
    return _EventRow(at, "receipt", facts, filed.entry, filed.number)


# Thousands of receipts start and end for a few reasons.
@lru_cache(maxsize=256)
def _told_facts(reason: str, code: str, status: str) -> str:
    return compact_words(reason=reason, reason_code=code, status=status)


def _moved(stands: ReceiptState, status: Status, *, reason: Reason, now: datetime) -> _ReceiptMove:
    was, code = stands.status.value, reason.code
    row = _Move(stands.number, was, status.value, reason, code, stands.attempts)
    return _ReceiptMove(row, _told(stands, status, reason, micros(now)))


def _freed(entry: int, taken: set[tuple[int, str]], receipt: Receipt) -> Receipt:
    """Return a receipt; a range whose first moment ran already goes by a key of its own."""
    if receipt.through_at is None or (entry, receipt.key) not in taken:
        return receipt
    # The clock was set back: the first has its receipt, and the others have none.
    return replace(receipt, key=f"{receipt.key}:through:{key_time(receipt.through_at)}")


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) < 19


def _counts(status: Status, streak: int, failures: int, *, is_tick: bool) -> tuple[int, int]:
    """Return how many in a row found no work, and how many failed, after one more has ended."""
    if status in BAD:
        return (0 if is_tick else streak), failures + 1
    if not is_tick:
        return streak, 0
    return (streak + 1 if status is Status.NO_WORK else 0), 0


def _watermark(entry: Entry, decision: Decision) -> _EntryMark:
    return _EntryMark(
        entry.number,
        micros(decision.accounted_to),
        micros(decision.ended_at),
        next_after(entry, decision.accounted_to, decision.ended_at),
    )


def _is_forward(was: int | None, then: int | None) -> bool:
    return was is not None and then is not None and then >= was


def _beginning(arrival: Arrival, now: datetime) -> dict[str, int | None]:
    """Return what a new entry carries; one that is not armed is accounted for up to now."""
    entry, begun = arrival.entry, arrival.begun
    if entry is None or begun is None:
        none = dict.fromkeys(("ended_at", "next_at"))
        return {**none, "accounted_to": micros(now), "ticks": 0, "streak": 0, "failures": 0}
    rule = entry.rule
    counted = (
        (rule.ticks, rule.streak, rule.failures) if isinstance(rule, CadenceRule) else (0,) * 3
    )
    return {
        "accounted_to": micros(begun.accounted_to),
        "ended_at": micros(begun.ended_at),
        "next_at": next_after(entry, begun.accounted_to, begun.ended_at),
        **dict(zip(("ticks", "streak", "failures"), counted, strict=True)),
    }


def _receipt_row(number: int, draft: _Draft, at: int) -> _ReceiptRow:
    entry, receipt, _, commit, parent, actor = draft
    return _ReceiptRow(
        number,
        entry.number,
        receipt.key,
        receipt.status.value,
        plain(str(receipt.reason)),  # itself a text: a store binds one faster than its heir
        str(receipt.reason.code),
        micros(receipt.planned_at),
        micros(receipt.through_at),
        receipt.count,
        micros(receipt.start_at),
        at,
        plain(entry.origin.file),
        entry.origin.line,
        entry.digest,
        write_policy(entry.policy),
        entry.work.value,
        write_agents(entry.agents),
        parent,
        commit,
        actor,
    )


def _filed(number: int, draft: _Draft, now: datetime) -> Filed:
    entry, receipt, source, commit, parent, actor = draft
    return Filed(
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


def _text(body: bytes) -> str:
    return bytes(body).decode("utf-8", "surrogatepass")


def _bytes(text: str) -> bytes:
    """Return a text as it is kept: it may hold what no column of text takes."""
    return text.encode("utf-8", "surrogatepass")
