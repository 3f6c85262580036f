"""The ledger on PostgreSQL: one for many nodes, which write concurrently.

A transaction of the leader locks the row of the term against a change, one of a node its own row,
which says whether its work was given away; then the rows that it changes, in the order of receipts,
runs and entries, each by number. What does not concern one run or one decision (a scan, a pause, a
prune) excludes all other writes. After a deadlock, each call is tried again on its own.
"""

from __future__ import annotations

import asyncio
import json
from copy import copy
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from horae.core.access import REVOKED
from horae.core.actor import OPERATOR
from horae.core.entry import Work
from horae.core.gate import Machine
from horae.core.ports import ANYBODY, Ended, LedgerBusyError, LedgerError, RunEnd, compact, plain
from horae.core.receipt import Reason, ReasonCode, Status
from horae.store.codec import event_of, filed_of, run_of
from horae.store.leases import LeaseOverError, Leases
from horae.store.ledger import CallQueue, NodeJoin, QueuedCall, SqlLedger, Transaction
from horae.store.pg_schema import migrate
from horae.store.pg_wire import (
    BRIEF,
    DatabaseAddress,
    Fences,
    PostgresConnection,
    Timeouts,
    is_lost,
    meant,
    postgres_errors,
    refuse_newer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from pathlib import Path

    from horae.core.lease import Membership, NodeLine, QueueJob, QueueJobs
    from horae.core.ports import EntryStep, Event, Job, Run
    from horae.core.receipt import Filed

T = TypeVar("T")
R = TypeVar("R")

SCHEMA: Final = "horae"
TOKEN: Final = "token"  # noqa: S105 - the secret that is the operator's token on all members
NODE: Final = "node"  # the secret shared by the nodes
_SECOND: Final = timedelta(seconds=1)
_NEWEST: Final = (1 << 63) - 1  # the greatest number of an event
_LOOP: Final = 5 * _SECOND  # for the loop to return the jobs to queue
_RECENT: Final = 20_000  # runs that are searched for an agent's last node
TO_NODES: Final = "nodes"  # the notification of a commit that concerns other nodes


def machines_of(members: Sequence[Membership]) -> tuple[Machine, ...]:
    cards = [(each.member, each.is_draining) for each in members if each.is_alive]
    return tuple(Machine(c.name, c.slots, frozenset(c.labels), rests) for c, rests in cards)


def for_work(lease: timedelta) -> Timeouts:
    return Timeouts(
        connect=min(5 * _SECOND, max(_SECOND, lease / 3)),
        statement=min(30 * _SECOND, max(5 * _SECOND, lease * 2 / 3)),
        lock=min(10 * _SECOND, max(3 * _SECOND, lease * 2 / 3)),
        idle=min(5 * _SECOND, max(_SECOND, lease / 2)),
        silence=min(3 * _SECOND, max(_SECOND, lease / 5)),
    )


def for_leases(lease: timedelta) -> Timeouts:
    third = max(_SECOND, lease / 5)
    return Timeouts(
        connect=min(BRIEF.connect, third),
        statement=min(BRIEF.statement, third),
        lock=min(BRIEF.lock, third),
        idle=BRIEF.idle,
        silence=min(BRIEF.silence, third / 2),
    )


class PostgresLedger(SqlLedger):
    """The ledger on PostgreSQL; `open` returns one, and `for_member` that of a node.

    A node writes under its lease, whatever the term. If *shared*, reads, writes and the carrier use
    one connection.
    """

    def __init__(
        self,
        address: DatabaseAddress,
        times: Timeouts,
        leases: Leases,
        *,
        is_shared: bool = False,
    ) -> None:
        super().__init__()
        self.address = address
        self.place = address.place
        self.leases = leases
        self._writer = PostgresConnection(address, times, is_shared=is_shared)
        self._reader = self._writer
        self._told: str | None = None  # the notification about the commit, if any
        self._write_queue = CallQueue("ledger-writer")
        self._read_queue = self._write_queue
        if not is_shared:
            self.read_apart()

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        schema: str = SCHEMA,
        timeouts: Timeouts | None = None,
        lease_timeouts: Timeouts | None = None,
        is_shared: bool = False,
    ) -> PostgresLedger:
        address = DatabaseAddress.of(url, schema)
        leases = Leases(PostgresConnection(address, lease_timeouts or BRIEF))
        ledger = cls(address, timeouts or Timeouts(), leases, is_shared=is_shared)
        try:
            await ledger._write_queue.do(lambda: migrate(ledger._writer))
        except BaseException:
            await ledger.close()
            raise
        return ledger

    async def close(self) -> None:
        if self.worker is not None:
            return  # the one that opened the ledger closes it
        await self.leases.close()
        if self._reader is not self._writer:
            await self.close_reader()
        await self._write_queue.do(self._writer.close)
        self._write_queue.rest()

    def for_member(self, name: str, generation: int) -> PostgresLedger:
        ledger = copy(self)
        ledger.worker = NodeJoin(name, generation)
        return ledger

    def for_leader(self) -> PostgresLedger:
        ledger = copy(self)
        ledger.read_apart()
        return ledger

    def read_apart(self) -> None:
        self._reader = PostgresConnection(self.address, self._writer.timeouts, is_read_only=True)
        self._read_queue = CallQueue("ledger-reader")

    async def close_reader(self) -> None:
        await self._read_queue.do(self._reader.close)
        self._read_queue.rest()

    async def enqueue(self, jobs: Sequence[QueueJob], *, term: int) -> None:
        await self._write(QueuedCall(_enqueue, (jobs,), term=term))

    async def decide_and_enqueue(
        self, steps: Sequence[EntryStep], jobs_of: QueueJobs, *, now: datetime, term: int
    ) -> Sequence[Filed]:
        ask = partial(_ask_loop, asyncio.get_running_loop(), jobs_of)
        return await self._write(QueuedCall(_decide, (steps, now, ask), term=term))

    async def start_many(
        self, receipts: Sequence[Filed], *, now: datetime, term: int
    ) -> list[Job | None]:
        fence = None if self.worker is None else term
        call = QueuedCall(_start, (receipts, fence, now), term=term, worker=self.worker)
        return await self._write(call)

    async def several(self, receipts: Sequence[int]) -> list[Filed]:
        known = json.dumps([*receipts])
        return await self.read(lambda tx: tx.every(filed_of, "receipt.several", numbers=known))

    async def open_runs_of(self, receipts: Sequence[int]) -> list[Run]:
        known = json.dumps([*receipts])
        return await self.read(lambda tx: tx.every(run_of, "run.open_of", numbers=known))

    async def open_runs(self) -> list[tuple[Filed, Run]]:
        """Return the runs that have not ended; for a node, its own of all generations."""
        found = await super().open_runs()
        own = self.worker
        return [each for each in found if own is None or each[1].member == own.name]

    async def nodes(self) -> list[NodeLine]:
        return [each.line for each in await self.leases.members()]

    async def machines(self) -> tuple[Machine, ...]:
        return machines_of(await self.leases.members())

    async def under_way(self) -> list[Filed]:
        return await self.read(lambda tx: tx.every(filed_of, "member.under_way"))

    async def for_nodes(self, number: int, *, limit: int = 1000) -> list[Event]:
        asked = {"number": number, "limit": limit}
        return await self.read(
            lambda tx: tx.every(event_of, "event.for_nodes", **asked, **tx.through())
        )

    async def of_node(
        self, number: int, name: str, *, leads: bool, is_last: bool = False, limit: int = 1000
    ) -> tuple[list[Event], int]:
        """Return the events of a node, and the number up to which they were read.

        If it *leads*, decisions and requests are included. The last call of a node that no longer
        writes also returns events behind those that others are still writing.
        """
        node = compact({"node": plain(name)})[1:-1]
        asked = {"number": number, "node": node, "leads": leads, "limit": limit}

        def look(tx: Transaction) -> tuple[list[Event], int]:
            known = {"through": _NEWEST} if is_last else tx.through()
            found = tx.every(event_of, "event.of_node", **asked, **known)
            is_all = len(found) < limit
            return found, max(number, known["through"]) if is_all else found[-1].number

        return await self.read(look)

    async def homes(self) -> dict[str, str]:
        rows = await self.read(lambda tx: tx.rows("member.homes", most=_RECENT))
        return {row[0]: row[1] for row in rows}

    async def lost(self, reaper: int = 0) -> list[NodeJoin]:
        """Return the nodes whose runs have certainly ended, as a leader's generation sees them."""
        rows = await self.read(lambda tx: tx.rows("member.lost", reaper=reaper))
        return [NodeJoin(row[0], row[1]) for row in rows]

    async def reap(
        self,
        name: str,
        generation: int,
        *,
        now: datetime,
        term: int,
        reaper: int = 0,
        remember: Callable[[str, tuple[str, ...]], str] | None = None,
    ) -> list[int]:
        """Give away the work of a lost node; return its receipts.

        What was about to start waits again; what ran was interrupted. A node that is alive, or has
        joined again, keeps all: it knows how its runs have ended. *remember* returns the memory of
        an agent after its interrupted tick.
        """
        lost = NodeJoin(plain(name), generation)
        return await self.write(term, lambda tx: _reap(tx, lost, reaper, now, remember))

    async def secret(self, name: str, make: Callable[[], str]) -> str:
        def put(tx: Transaction) -> Any:
            tx.change("member.keep_secret", name=name, value=make())
            return tx.row("member.secret", name=name)

        known = await self.read(lambda tx: tx.row("member.secret", name=name))
        return str((known or await self.write(ANYBODY, put))[0])

    async def share_token(self, token: str, *, now: datetime) -> None:
        def put(tx: Transaction) -> None:
            tx.change("member.change_secret", name=TOKEN, value=token)
            tx.tell(REVOKED, now=now, facts={"token": OPERATOR})

        await self.write(ANYBODY, put)

    async def keep_log(self, run: int, body: bytes) -> None:
        await self._write(QueuedCall(_keep_log, (run, body), term=ANYBODY))

    async def log(self, run: int) -> bytes | None:
        return await self.read(lambda tx: tx.one(lambda row: bytes(row[0]), "member.log", run=run))

    async def backup(self, target: Path) -> None:
        raise LedgerError(
            self.place,
            f"a ledger on PostgreSQL cannot be copied to {target.name}",
            remedy=f"use `pg_dump --schema={self.address.schema}` or the backups of your server",
        )

    def _meaning(self, error: Exception, /) -> Exception:
        return meant(self.address, error)

    def _ask(self, work: Callable[[], T]) -> T:
        result: T = self._reader.do(lambda _: work())
        return result

    def _begin(self, calls: Sequence[QueuedCall[Any]], /) -> Callable[[QueuedCall[Any]], None]:
        fences = Fences(
            any(call.worker is None and call.term != ANYBODY for call in calls),
            frozenset(call.worker for call in calls if call.worker is not None),
            is_wide=any(call.work not in _NARROW for call in calls),
            is_durable=any(call.work is not _enqueue for call in calls),  # lost jobs are requeued
        )
        wire = self._writer
        oldest, alive = wire.do(lambda wire: wire.begin(fences))
        refuse_newer(self.address, oldest)
        news = [call.worker for call in calls if call.work not in _QUIET]
        self._told = None if not news else TO_NODES if None in news else ""

        def check(call: QueuedCall[Any]) -> None:
            worker = call.worker
            if worker is None:
                self._check_term(call.term, wire.term)
            elif worker not in alive:
                raise LeaseOverError(self.place, name=worker.name, generation=worker.generation)

        return check

    def _end(self, *, is_kept: bool) -> None:
        wire = self._writer
        if not is_kept:
            wire.script("ROLLBACK")
            return
        with postgres_errors(self.address, is_commit=True):
            # Listeners check themselves, so only successful changes are announced.
            is_told = wire.changes and self._told is not None
            told = f"NOTIFY \"{self.address.schema}\", '{self._told}'; " if is_told else ""
            wire.script(f"{told}COMMIT")

    def _undone(self, error: Exception) -> Exception:
        if not self._writer.can_roll_back or is_lost(error):
            raise error
        return meant(self.address, error)

    def _give_up(self, _: BaseException, /) -> None:
        self._writer.close()


def _reap(
    tx: Transaction,
    lost: NodeJoin,
    reaper: int,
    now: datetime,
    remember: Callable[[str, tuple[str, ...]], str] | None,
) -> list[int]:
    member = lost._asdict()
    tx.row("member.lock", name=lost.name)
    if tx.row("member.is_back", **member, reaper=reaper) is not None:
        return []
    touched = []
    for number, receipt, status in tx.rows("member.open_runs_of", **member):
        touched.append(int(receipt))
        if status == Status.STARTING:
            words = f"{lost.name} was lost before the run started"
            reason = Reason(ReasonCode.LOST_BEFORE_START, words)
            tx.give_back(number, reason=reason, now=now, died=True)
            continue
        filed = tx.receipt(receipt)
        is_tick = filed is not None and filed.work is Work.TICK
        known = tx.entry(filed.entry) if filed is not None and is_tick else None
        memory = None  # of the agent, if it was a tick
        if filed is not None and known is not None:
            memory = remember(known.memory, filed.agents) if remember else known.memory
        reason = Reason(ReasonCode.NODE_LOST, f"{lost.name} was lost during the run")
        ended = Ended(Status.INTERRUPTED, reason, memory=memory)
        tx.end_many([RunEnd(number, ended)], now=now)
    reaped = tx.row("member.reaped", **member)  # None: it has joined again
    if touched or reaped is None or not reaped[0]:
        tx.tell("member_lost", now=now, facts={"member": lost.name, "receipts": len(touched)})
    return touched


def _enqueue(tx: Transaction, jobs: Sequence[QueueJob]) -> None:
    from horae.store import carrier  # only nodes load its library

    carrier.enqueue(tx.connection.raw, jobs)


def _decide(
    tx: Transaction, steps: Sequence[EntryStep], now: datetime, jobs_of: QueueJobs
) -> Sequence[Filed]:
    filed = tx.decide(steps, now=now)
    if jobs := jobs_of(filed):
        _enqueue(tx, jobs)
    return filed


def _ask_loop(loop: asyncio.AbstractEventLoop, work: Callable[[T], R], told: T) -> R:
    async def ask() -> R:
        return work(told)

    asked = asyncio.run_coroutine_threadsafe(ask(), loop)
    try:
        return asked.result(_LOOP / _SECOND)
    except TimeoutError:
        asked.cancel()
        raise LedgerBusyError("the engine", "it is busy", remedy="try again") from None


def _start(
    tx: Transaction, receipts: Sequence[Filed], term: int | None, now: datetime
) -> list[Job | None]:
    if term is not None and tx.connection.term != term:
        return [None] * len(receipts)
    return tx.start_many(receipts, now=now)


def _keep_log(tx: Transaction, run: int, body: bytes) -> None:
    tx.change("member.keep_log", run=run, body=body)


# Writes concurrent with the same of other nodes: they lock the rows that they change.
_NARROW: Final[frozenset[Callable[..., object]]] = frozenset({
    Transaction.decide, _decide, _start, Transaction.running_many, Transaction.end_many,
    Transaction.give_back, Transaction.settle, Transaction.tell, Transaction.ask_account, _enqueue,
    _keep_log,
})  # fmt: skip
# Writes that concern no other node.
_QUIET: Final[frozenset[Callable[..., object]]] = frozenset({
    Transaction.decide, _decide, _start, Transaction.settle, Transaction.ask_account, _enqueue,
    _keep_log,
})  # fmt: skip
