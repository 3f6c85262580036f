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
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from horae.cluster.lease import LostLease
from horae.core.access import REVOKED
from horae.core.entry import Work
from horae.core.gate import Machine
from horae.core.ports import LedgerError, StaleTermError
from horae.core.receipt import Reason, ReasonCode, Status
from horae.core.scope import OPERATOR
from horae.store import pg_listen, pg_schema
from horae.store.book import Book, NodeJoin
from horae.store.call_queue import CallQueue
from horae.store.codec import filed_of, plain
from horae.store.leases import LeaseOverError, Leases, done
from horae.store.ledger import ANYBODY, BookLedger
from horae.store.pg_wire import (
    BRIEF,
    DatabaseAddress,
    PostgresConnection,
    Timeouts,
    is_lost,
    meant,
    postgres_errors,
    refuse_newer,
)
from horae.store.sql import theme

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from datetime import datetime
    from pathlib import Path

    import psycopg

    from horae.cluster.lease import Membership
    from horae.core.ports import Run
    from horae.core.receipt import Filed
    from horae.store.call_queue import QueuedCall

    Send: TypeAlias = Callable[[psycopg.Connection[Any], str, int], object]

T = TypeVar("T")

log = logging.getLogger(__name__)

SCHEMA: Final = "horae"
TOKEN: Final = "token"  # noqa: S105 - the secret that is the operator's token on all members
NODE: Final = "node"  # the secret by which members know each other
_SECOND: Final = timedelta(seconds=1)
_MEMBER: Final = theme("postgres/member")
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


class PostgresLedger(BookLedger):
    """The ledger on PostgreSQL; `open` makes one, and `for_member` one that a member writes.

    A member writes under its lease, whatever the term, and starts only what was assigned to it.
    """

    def __init__(
        self,
        *,
        writer: PostgresConnection,
        reader: PostgresConnection,
        leases: Leases,
        send: Send | None = None,
    ) -> None:
        self.address = writer.address
        self.place = self.address.place
        self.leases = leases
        self._writer = writer
        self._reader = reader
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
        times = timeouts or Timeouts()
        writer = PostgresConnection(address, times)
        reader = PostgresConnection(address, times, is_read_only=True)
        leases = Leases(PostgresConnection(address, lease_timeouts or BRIEF))
        ledger = cls(writer=writer, reader=reader, leases=leases, send=send)
        try:
            await ledger._write_queue.do(lambda: pg_schema.migrate(writer))
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

        def put(book: Book) -> bool:
            values = {"number": receipt, "machine": plain(machine)}
            stands = book.standing(receipt)
            if stands is None or stands.status is not Status.WAITING or stands.machine is not None:
                return False
            book.execute(_MEMBER["assign"], values)
            book.tell("assigned", now=now, receipt=receipt, facts={"machine": machine})
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
        return await self.read(
            lambda book: [filed_of(row) for row in book.execute(_MEMBER["under_way"])]
        )

    async def assigned_to(self, machine: str) -> list[Filed]:
        values = {"machine": plain(machine)}
        return await self.read(
            lambda book: [filed_of(row) for row in book.execute(_MEMBER["assigned_to"], values)]
        )

    async def homes(self) -> dict[str, str]:
        """Return for each agent the machine that made its latest run, if that is not long ago."""
        values = {"most": _RECENT}
        return await self.read(
            lambda book: {row[0]: row[1] for row in book.execute(_MEMBER["homes"], values)}
        )

    async def lost(self) -> list[LostLease]:
        return await self.read(
            lambda book: [
                LostLease(row[0], row[1], row[2]) for row in book.execute(_MEMBER["lost"])
            ]
        )

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
        return await self.write(
            term, lambda book: _reap(book, lost, now=now, remember=remember or _nothing)
        )

    # What members share

    async def secret(self, name: str, make: Callable[[], str]) -> str:
        """Return the secret of a name, which is made once for all members."""

        def look(book: Book) -> str | None:
            row = book.execute(_MEMBER["secret"], {"name": name}).fetchone()
            return None if row is None else str(row[0])

        def put(book: Book) -> str:
            book.execute(_MEMBER["keep_secret"], {"name": name, "value": make()})
            return cast("str", look(book))

        known = await self.read(look)
        return known if known is not None else await self.write(ANYBODY, put)

    async def share_token(self, token: str, *, now: datetime) -> None:
        def put(book: Book) -> None:
            book.execute(_MEMBER["change_secret"], {"name": TOKEN, "value": token})
            book.tell(REVOKED, now=now, facts={"token": OPERATOR})

        await self.write(ANYBODY, put)

    async def keep_log(self, run: int, body: bytes) -> None:
        """Keep the output of a run, for when its machine is gone."""
        values = {"run": run, "body": body}
        await self.write(
            ANYBODY, lambda book: book.execute(_MEMBER["keep_log"], values), as_member=False
        )

    async def log(self, run: int) -> bytes | None:
        def look(book: Book) -> bytes | None:
            row = book.execute(_MEMBER["log"], {"run": run}).fetchone()
            return None if row is None else bytes(row[0])

        return await self.read(look)

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
                async for pid in pg_listen.heard(self.address, pulse=_PULSE):
                    if pid != self._writer.pid:
                        yield
            except LedgerError as error:  # readers look by themselves meanwhile
                log.debug("not told of changes, trying again in %s: %s", _AGAIN, error)
            await asyncio.sleep(_AGAIN.total_seconds())

    def _errors(self) -> postgres_errors:
        return postgres_errors(self.address)

    def _ask(self, work: Callable[[], T]) -> T:
        return done(self._reader, lambda _: work())

    def _begin(self, calls: Sequence[QueuedCall[Any]], /) -> Callable[[QueuedCall[Any]], None]:
        wire = self._writer
        current, version = done(wire, PostgresConnection.begin)
        refuse_newer(self.address, version)
        # By the database's clock.
        alive = {
            each: wire.execute(_MEMBER["is_alive"], each._asdict()).fetchone() is not None
            for each in {call.worker for call in calls if call.worker is not None}
        }

        def check(call: QueuedCall[Any]) -> None:
            worker = call.worker
            if worker is None and call.term not in (current, ANYBODY):
                raise StaleTermError(self.place, term=call.term, current=current)
            if worker is not None and not alive[worker]:
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


def _nothing(memory: str, _: tuple[str, ...]) -> str:
    return memory


def _reap(
    book: Book, lost: NodeJoin, *, now: datetime, remember: Callable[[str, tuple[str, ...]], str]
) -> list[int]:
    values: dict[str, object] = lost._asdict()
    if book.execute(_MEMBER["is_back"], values).fetchone() is not None:
        return []
    touched = []
    for row in book.execute(_MEMBER["open_runs_of"], values).fetchall():
        if row["status"] == Status.STARTING:
            words = f"{lost.name} was lost before the run started"
            reason = Reason(ReasonCode.LOST_BEFORE_START, words)
            book.give_back(row["number"], reason=reason, now=now, died=True)
        else:
            book.end(
                row["number"],
                Status.INTERRUPTED,
                reason=Reason(ReasonCode.NODE_LOST, f"{lost.name} was lost during the run"),
                memory=_remembered(book, int(row["receipt"]), remember),
                now=now,
            )
        touched.append(int(row["receipt"]))
    touched += _free(book, lost, now=now)
    book.execute(_MEMBER["reaped"], values)
    book.tell("member_lost", now=now, facts={"member": lost.name, "receipts": len(touched)})
    return touched


def _remembered(
    book: Book, number: int, remember: Callable[[str, tuple[str, ...]], str]
) -> str | None:
    """Return what the agent of a tick remembers after its machine was lost; None: it was none."""
    filed = book.receipt(number)
    known = None if filed is None or filed.work is not Work.TICK else book.entry(filed.entry)
    if filed is None or known is None:
        return None
    return remember(known.memory or "", filed.agents)


def _free(book: Book, lost: NodeJoin, *, now: datetime) -> list[int]:
    """Take back what waits for a machine, unless it has joined anew."""
    newer = "SELECT 1 FROM member WHERE name = :name AND generation > :generation"
    if book.execute(newer, lost._asdict()).fetchone() is not None:
        return []
    freed = [row[0] for row in book.execute(_MEMBER["assigned"], lost._asdict()).fetchall()]
    for number in freed:
        book.execute(_MEMBER["free"], {"number": number})
        facts = {"machine": lost.name, "reason": f"{lost.name} was lost"}
        book.tell("unassigned", now=now, receipt=number, facts=facts)
    return freed
