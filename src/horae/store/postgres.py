"""The ledger on PostgreSQL: one for many nodes.

Every writing transaction first locks the one row that holds the term, so that writers come one
after the other, and one whose term is over writes nothing. A node writes of its own runs under its
lease instead, which is checked in the same transaction, by the database's clock.
"""

from __future__ import annotations

import asyncio
import logging
from copy import copy
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from horae.cluster.lease import LostLease
from horae.core.access import REVOKED
from horae.core.entry import Work
from horae.core.gate import Machine
from horae.core.ports import Ended, LedgerError, RunEnd
from horae.core.receipt import Reason, ReasonCode, Status
from horae.core.scope import OPERATOR
from horae.core.stored import plain
from horae.store.codec import filed_of
from horae.store.leases import LeaseOverError, Leases
from horae.store.ledger import ANYBODY, CallQueue, NodeJoin, SqlLedger, Transaction
from horae.store.pg_wire import (
    BRIEF,
    DatabaseAddress,
    PostgresConnection,
    Timeouts,
    heard,
    is_lost,
    meant,
    migrate,
    postgres_errors,
    refuse_newer,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from datetime import datetime
    from pathlib import Path

    import psycopg

    from horae.cluster.lease import Membership
    from horae.core.ports import Run
    from horae.core.receipt import Filed
    from horae.store.ledger import QueuedCall

    Send: TypeAlias = Callable[[psycopg.Connection[Any], str, int], object]

T = TypeVar("T")

log = logging.getLogger(__name__)

SCHEMA: Final = "horae"
TOKEN: Final = "token"  # noqa: S105 - the secret that is the operator's token on all members
NODE: Final = "node"  # the secret by which members know each other
_SECOND: Final = timedelta(seconds=1)
_RECENT: Final = 20_000  # runs among which an agent's home is looked for
_PULSE: Final = timedelta(seconds=10)  # how often a quiet listener asks whether it is heard
_AGAIN: Final = timedelta(seconds=1)  # after which a lost listener is made anew


def machines_of(members: Sequence[Membership]) -> tuple[Machine, ...]:
    cards = [(each.member, each.is_draining) for each in members if each.is_alive]
    return tuple(Machine(c.name, c.slots, frozenset(c.labels), rests) for c, rests in cards)


def for_work(lease: timedelta) -> Timeouts:
    """Return how long a member waits whose lease is so long.

    Whoever is frozen while it writes keeps all others waiting, and must not for longer than
    it leads; a connection that is dead must be noticed in time to be made again.
    """
    return Timeouts(
        connect=min(5 * _SECOND, max(_SECOND, lease / 3)),
        statement=min(30 * _SECOND, max(5 * _SECOND, lease * 2 / 3)),
        lock=min(10 * _SECOND, max(3 * _SECOND, lease * 2 / 3)),
        idle=min(5 * _SECOND, max(_SECOND, lease / 2)),
        silence=min(3 * _SECOND, max(_SECOND, lease / 5)),
    )


def for_leases(lease: timedelta) -> Timeouts:
    """Return how long a member waits for a renewal: so that it can try again before it is late."""
    third = max(_SECOND, lease / 5)
    return Timeouts(
        connect=min(BRIEF.connect, third),
        statement=min(BRIEF.statement, third),
        lock=min(BRIEF.lock, third),
        idle=BRIEF.idle,
        silence=min(BRIEF.silence, third / 2),
    )


class PostgresLedger(SqlLedger):
    """The ledger on PostgreSQL; `open` makes one, and `for_member` one that a member writes.

    A member writes under its lease, whatever the term, and starts only what was assigned to it.
    """

    def __init__(
        self, address: DatabaseAddress, times: Timeouts, leases: Leases, send: Send | None
    ) -> None:
        super().__init__()
        self.address = address
        self.place = address.place
        self.leases = leases
        self._writer = PostgresConnection(address, times)
        self._reader = PostgresConnection(address, times, is_read_only=True)
        self._send = send
        self._changes = 0  # of the writer, at the last savepoint
        self._write_queue = CallQueue("ledger-writer")
        self._read_queue = CallQueue("ledger-reader")

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        schema: str = SCHEMA,
        timeouts: Timeouts | None = None,
        lease_timeouts: Timeouts | None = None,
        send: Send | None = None,
    ) -> PostgresLedger:
        """Return the ledger of a database, whose schema is brought up to our version.

        *send* is the carrier: it hands a receipt's number to a machine, through the psycopg
        connection on which the receipt is assigned, in that transaction.
        """
        address = DatabaseAddress.of(url, schema)
        leases = Leases(PostgresConnection(address, lease_timeouts or BRIEF))
        ledger = cls(address, timeouts or Timeouts(), leases, send)
        try:
            await ledger._write_queue.do(lambda: migrate(ledger._writer))
        except BaseException:
            await ledger.close()
            raise
        return ledger

    async def close(self) -> None:
        if self.worker is not None:
            return  # who opened the ledger closes it
        await self.leases.close()
        await self._read_queue.do(self._reader.close)
        await self._write_queue.do(self._writer.close)
        for line in (self._read_queue, self._write_queue):
            line.rest()

    def for_member(self, name: str, generation: int) -> PostgresLedger:
        ledger = copy(self)
        ledger.worker = NodeJoin(name, generation)
        return ledger

    # What runs where

    async def assign(self, receipt: int, machine: str, *, now: datetime, term: int) -> bool:
        """Say which machine runs a waiting receipt, and send it word, in one commit.

        False: it does not wait, or waits for one.
        """

        def put(tx: Transaction) -> bool:
            stands = tx.standing(receipt)
            if stands is None or stands.status is not Status.WAITING or stands.machine is not None:
                return False
            tx.change("member.assign", number=receipt, machine=plain(machine))
            tx.tell("assigned", now=now, receipt=receipt, facts={"machine": machine})
            if self._send is not None:
                self._send(self._writer.raw, machine, receipt)
            return True

        return await self.write(term, put, as_member=False)

    async def open_runs(self) -> list[tuple[Filed, Run]]:
        """Return the runs that have not ended; of a member its own, also of older generations."""
        found = await super().open_runs()
        own = self.worker
        return [each for each in found if own is None or each[1].member == own.name]

    async def machines(self) -> tuple[Machine, ...]:
        return machines_of(await self.leases.members())

    async def under_way(self) -> list[Filed]:
        return await self.read(lambda tx: tx.every(filed_of, "member.under_way"))

    async def assigned_to(self, machine: str) -> list[Filed]:
        name = plain(machine)
        return await self.read(lambda tx: tx.every(filed_of, "member.assigned_to", machine=name))

    async def homes(self) -> dict[str, str]:
        """Return for each agent the machine that made its latest run, if that is not long ago."""
        rows = await self.read(lambda tx: tx.rows("member.homes", most=_RECENT))
        return {row[0]: row[1] for row in rows}

    async def lost(self) -> list[LostLease]:
        rows = await self.read(lambda tx: tx.rows("member.lost"))
        return [LostLease(row[0], row[1], row[2]) for row in rows]

    async def reap(
        self,
        name: str,
        generation: int,
        *,
        now: datetime,
        term: int,
        remember: Callable[[str, tuple[str, ...]], str] | None = None,
    ) -> list[int]:
        """Give away the work of a member whose lease is over; return the receipts it was.

        What waited for it, or was about to start, waits again; what ran was interrupted. One
        that is alive, or has joined again, keeps all: it knows how its runs have ended.
        *remember* says what an agent whose tick it was remembers after it.
        """
        lost = NodeJoin(plain(name), generation)
        return await self.write(term, lambda tx: _reap(tx, lost, now=now, remember=remember))

    # What members share

    async def secret(self, name: str, make: Callable[[], str]) -> str:
        """Return the secret of a name, which is made once for all members."""

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
        """Keep the output of a run, for when its machine is gone."""
        await self.write(
            ANYBODY,
            lambda tx: tx.change("member.keep_log", run=run, body=body),
            as_member=False,
        )

    async def log(self, run: int) -> bytes | None:
        return await self.read(lambda tx: tx.one(lambda row: bytes(row[0]), "member.log", run=run))

    async def backup(self, target: Path) -> None:
        raise LedgerError(
            self.place,
            f"a ledger on PostgreSQL cannot be copied to {target.name}",
            remedy=f"use `pg_dump --schema={self.address.schema}` or the backups of your server",
        )

    async def changes(self) -> AsyncIterator[None]:
        """Yield whenever another member has written, and whenever that may have been missed."""
        while True:
            try:
                async for pid in heard(self.address, pulse=_PULSE):
                    if pid != self._writer.pid:
                        yield
            except LedgerError as error:  # readers look by themselves meanwhile
                log.debug("not told of changes, trying again in %s: %s", _AGAIN, error)
            await asyncio.sleep(_AGAIN.total_seconds())

    def _meaning(self, error: Exception, /) -> Exception:
        return meant(self.address, error)

    def _ask(self, work: Callable[[], T]) -> T:
        result: T = self._reader.do(lambda _: work())
        return result

    def _begin(self, calls: Sequence[QueuedCall[Any]], /) -> Callable[[QueuedCall[Any]], None]:
        wire = self._writer
        current, version = wire.do(PostgresConnection.begin)
        refuse_newer(self.address, version)
        # By the database's clock.
        alive = {
            each: Transaction(wire).row("member.is_alive", **each._asdict()) is not None
            for each in {call.worker for call in calls if call.worker is not None}
        }

        def check(call: QueuedCall[Any]) -> None:
            worker = call.worker
            if worker is None:
                self._check_term(call.term, current)
            elif not alive[worker]:
                raise LeaseOverError(self.place, name=worker.name, generation=worker.generation)

        return check

    def _say(self, statement: str) -> None:
        wire = self._writer
        if statement == "COMMIT":
            with postgres_errors(self.address, is_commit=True):
                # Who listens looks again, so it is told of what has changed anything alone.
                told = f'NOTIFY "{self.address.schema}"; ' if wire.changes else ""
                wire.script(f"{told}COMMIT")
            return
        wire.script(statement)
        if statement.startswith("SAVEPOINT"):
            self._changes = wire.changes
        elif statement.startswith("ROLLBACK"):
            wire.changes = self._changes

    def _undone(self, error: Exception) -> Exception:
        if not self._writer.can_roll_back or is_lost(error):
            raise error
        return meant(self.address, error)

    def _give_up(self, _: BaseException, /) -> None:
        self._writer.close()


def _reap(
    tx: Transaction,
    lost: NodeJoin,
    *,
    now: datetime,
    remember: Callable[[str, tuple[str, ...]], str] | None,
) -> list[int]:
    member = lost._asdict()
    if tx.row("member.is_back", **member) is not None:
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
        memory = None  # of the agent whose tick it was
        if filed is not None and known is not None:
            memory = remember(known.memory, filed.agents) if remember else known.memory
        reason = Reason(ReasonCode.NODE_LOST, f"{lost.name} was lost during the run")
        ended = Ended(Status.INTERRUPTED, reason, memory=memory)
        tx.end_many([RunEnd(number, ended)], now=now)
    # What waits for a machine is taken back, unless it has joined anew.
    newer = "SELECT 1 FROM member WHERE name = :name AND generation > :generation"
    if tx.execute(newer, member).fetchone() is None:
        for [number] in tx.rows("member.assigned", **member):
            tx.change("member.free", number=number)
            facts = {"machine": lost.name, "reason": f"{lost.name} was lost"}
            tx.tell("unassigned", now=now, receipt=number, facts=facts)
            touched.append(number)
    tx.change("member.reaped", **member)
    tx.tell("member_lost", now=now, facts={"member": lost.name, "receipts": len(touched)})
    return touched
