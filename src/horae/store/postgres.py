"""The ledger on PostgreSQL: one for many machines.

It is kept in the same book as on SQLite. Every writing transaction first locks the one row
that holds the term, so that writers come one after the other, on whichever machine they are,
and one whose term is over writes nothing. A member writes of its own runs under its lease
instead, which is checked in the same transaction, by the database's clock.

One thread owns the connection that writes, another one that only reads, and leases have
their own. Writes that wait at the same time share one commit.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from horae.cluster.lease import LostLease
from horae.core.access import REVOKED
from horae.core.entry import Work
from horae.core.gate import Machine
from horae.core.ports import LedgerError, StaleTermError
from horae.core.receipt import Reason, ReasonCode, Status, followed_by
from horae.core.scope import OPERATOR
from horae.store import arming
from horae.store.book import (
    ANYTHING,
    ENTRY,
    LAST_RECEIPT,
    NEXT_RUN,
    NOTHING,
    RECEIPT,
    Book,
    Foreseen,
    NodeJoin,
)
from horae.store.codec import plain
from horae.store.leases import LeaseOverError, Leases, done
from horae.store.ledger import ANYBODY, BookLedger
from horae.store.line import CallQueue, QueuedCall
from horae.store.rows import filed_of
from horae.store.sql import theme

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    import psycopg

    from horae.cluster.lease import Membership
    from horae.core.ports import EntryStep, Run
    from horae.core.receipt import Filed, Receipt
    from horae.store.pg_wire import ForeseenQuery, PostgresConnection, Timeouts

    Send: TypeAlias = Callable[[psycopg.Connection[Any], str, int], object]
    SendAll: TypeAlias = Callable[[psycopg.Connection[Any], Sequence[tuple[str, int]]], object]

T = TypeVar("T")

log = logging.getLogger(__name__)

SCHEMA: Final = "horae"
TOKEN: Final = "token"  # noqa: S105 - the secret that is the operator's token on all members
NODE: Final = "node"  # the secret by which members know each other
_SECOND: Final = timedelta(seconds=1)
_MEMBER: Final = theme("postgres/member")
_ENTRY: Final = theme("entry")
_RECEIPT: Final = theme("receipt")
_TEXT: Final = theme("text")
_GOES_ON_OF_RUN: Final = theme("postgres/entry")["goes_on_of_run"]
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
    from horae.store.pg_wire import Timeouts

    return Timeouts(
        connect=min(5 * _SECOND, max(_SECOND, lease / 3)),
        statement=min(30 * _SECOND, max(5 * _SECOND, lease * 2 / 3)),
        lock=min(10 * _SECOND, max(3 * _SECOND, lease * 2 / 3)),
        idle=min(5 * _SECOND, max(_SECOND, lease / 2)),
        silence=min(3 * _SECOND, max(_SECOND, lease / 5)),
    )


def for_leases(lease: timedelta) -> Timeouts:
    """Return how long a member waits for a renewal: so that it can try again before it is late."""
    from horae.store.pg_wire import BRIEF, Timeouts

    third = max(_SECOND, lease / 5)
    return Timeouts(
        connect=min(BRIEF.connect, third),
        statement=min(BRIEF.statement, third),
        lock=min(BRIEF.lock, third),
        idle=BRIEF.idle,
        silence=min(BRIEF.silence, third / 2),
    )


class PostgresLedger(BookLedger):
    """The ledger on PostgreSQL; `open` makes one."""

    def __init__(
        self,
        *,
        writer: PostgresConnection,
        reader: PostgresConnection,
        leases: Leases,
        send: Send | None = None,
        send_all: SendAll | None = None,
    ) -> None:
        self.address = writer.address
        self.place = self.address.place
        self.leases = leases
        self._writer = writer
        self._reader = reader
        self._send = send
        self._send_several = send_all
        self._sending: list[tuple[str, int]] = []  # what is sent before the next commit
        self._writing = CallQueue("ledger-writer")
        self._reading = CallQueue("ledger-reader")

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        schema: str = SCHEMA,
        timeouts: Timeouts | None = None,
        lease_timeouts: Timeouts | None = None,
        send: Send | None = None,
        send_all: SendAll | None = None,
    ) -> PostgresLedger:
        """Return the ledger of a database, whose schema is brought up to our version.

        *send* is the carrier: it hands a receipt's number to a machine, through the psycopg
        connection on which the receipt is assigned, in that transaction. *send_all* does so
        for several at once.
        """
        try:
            from horae.store import pg_schema, pg_wire
        except ImportError as error:
            raise LedgerError(
                "postgresql", f"{error.name} is not installed", remedy="pip install horae[postgres]"
            ) from None
        address = pg_wire.DatabaseAddress.of(url, schema)
        times = timeouts or pg_wire.Timeouts()
        writer = pg_wire.PostgresConnection(address, times)
        reader = pg_wire.PostgresConnection(address, times, is_read_only=True)
        leases = Leases(pg_wire.PostgresConnection(address, lease_timeouts or pg_wire.BRIEF))
        ledger = cls(writer=writer, reader=reader, leases=leases, send=send, send_all=send_all)
        try:
            await ledger._writing.do(lambda: pg_schema.migrate(writer))
        except BaseException:
            await ledger.close()
            raise
        return ledger

    async def close(self) -> None:
        """Finish what is under way, and leave the database."""
        await self.leases.close()
        await self._reading.do(self._reader.close)
        await self._writing.do(self._writer.close)
        for line in (self._reading, self._writing):
            line.rest()

    async def read(self, work: Callable[[Book], T]) -> T:
        """Read without waiting for whoever writes."""
        return await self._reading.join(QueuedCall(work), self._look)

    async def write(
        self,
        term: int,
        work: Callable[[Book], T],
        *,
        keep: bool = True,
        is_alone: bool = False,
        worker: NodeJoin | None = None,
    ) -> T:
        """Do all of it or none of it; others that write at the same time share the commit.

        A *worker* writes under its lease, whatever the term. *work* may be done twice, if
        that of somebody else has failed.
        """
        call = _WorkerCall(work, term=term, keep=keep, is_alone=is_alone, worker=worker)
        return await self._writing.join(call, self._serve)

    def for_member(self, name: str, generation: int) -> MemberLedger:
        return MemberLedger(self, NodeJoin(name, generation))

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
            if not book.change(_MEMBER["assign"], values, about=(RECEIPT, receipt)):
                return False
            book.tell("assigned", now=now, receipt=receipt, facts={"machine": machine})
            self._sending.append((machine, receipt))
            if not self._writer.gathers:
                self._send_all()
            return True

        return await self.write(term, Foreseen(put, "assign", receipt))

    async def machines(self) -> tuple[Machine, ...]:
        return machines_of(await self.leases.members())

    async def under_way(self) -> list[Filed]:
        """Return the receipts that run, or wait for a machine that was told to run them."""
        return await self.read(
            lambda book: [filed_of(row) for row in book.execute(_MEMBER["under_way"])]
        )

    async def assigned_to(self, machine: str) -> list[Filed]:
        """Return the receipts that wait for a machine."""
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
        """Return the members whose lease is over and whose work is not given away yet."""
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
        """Let another token be the operator's on all members."""

        def put(book: Book) -> None:
            book.execute(_MEMBER["change_secret"], {"name": TOKEN, "value": token})
            book.tell(REVOKED, now=now, facts={"token": OPERATOR})

        await self.write(ANYBODY, put)

    async def keep_log(self, run: int, body: bytes) -> None:
        """Keep the output of a run, for when its machine is gone."""
        values = {"run": run, "body": body}

        def put(book: Book) -> None:
            book.write_later(_MEMBER["keep_log"], (values,))

        await self.write(ANYBODY, put)

    async def log(self, run: int) -> bytes | None:
        """Return the output of a run that was kept."""

        def look(book: Book) -> bytes | None:
            row = book.execute(_MEMBER["log"], {"run": run}).fetchone()
            return None if row is None else bytes(row[0])

        return await self.read(look)

    async def backup(self, target: Path) -> None:
        """Raise an error: PostgreSQL has its own means."""
        raise LedgerError(
            self.place,
            f"a ledger on PostgreSQL cannot be copied to {target.name}",
            remedy=f"use `pg_dump --schema={self.address.schema}` or the backups of your server",
        )

    async def changes(self) -> AsyncIterator[None]:
        """Yield whenever another member has written, and whenever that may have been missed."""
        from horae.store import pg_listen

        while True:
            try:
                async for pid in pg_listen.heard(self.address, pulse=_PULSE):
                    if pid != self._writer.pid:
                        yield
            except LedgerError as error:  # readers look by themselves meanwhile
                log.debug("not told of changes, trying again in %s: %s", _AGAIN, error)
            await asyncio.sleep(_AGAIN.total_seconds())

    def _look(self, calls: Sequence[QueuedCall[Any]]) -> None:
        """Read what several asked for; what is foreseen of it is asked for at once."""
        wire = self._reader
        looks = [look for call in calls for look in _looks(call)]
        if len(looks) > 1:
            with suppress(Exception):  # if it fails for one, each is told why
                done(wire, lambda wire: wire.foresee(looks))
        for call in calls:
            try:
                call.result = done(wire, partial(_read, call))
            except Exception as error:  # the caller raises it
                call.error = error
        wire.forget()

    def _serve(self, calls: Sequence[QueuedCall[Any]]) -> None:
        """Do what several asked for in one transaction.

        If one of them fails, all are undone, and the others are done again without it: that
        is rare, and to be ready for it would cost each of them two statements. If it cannot be
        told which one has failed, each does again what it does without waiting for the others.
        """
        left = [cast("_WorkerCall[Any]", call) for call in calls]
        gathers = True
        while left:
            try:
                self._attempt(left, gathers=gathers)
            except _UndoneError as spoiled:
                gathers = gathers and spoiled.call is not None
                if spoiled.call is not None:
                    left.remove(spoiled.call)
            except BaseException as error:  # the callers raise it
                self._writer.close()
                for call in left:
                    call.error = error
                return
            else:
                return

    def _attempt(self, calls: Sequence[_WorkerCall[Any]], *, gathers: bool) -> None:
        """Do what several asked for, and keep it; an error says which one spoils it."""
        from horae.store.pg_wire import postgres_errors, refuse_newer

        wire = self._writer
        self._sending.clear()
        workers = dict.fromkeys(call.worker for call in calls if call.worker is not None)
        looks = [_look_alive(each) for each in workers]
        if gathers:
            looks += [look for call in calls for look in _looks(call)]
        with postgres_errors(self.address):
            term, version = done(wire, lambda wire: wire.begin(looks, gathers=gathers))
            refuse_newer(self.address, version)
            alive = {each: _is_alive(wire, each) for each in workers}
            for place, call in enumerate(calls):
                call.error = None
                try:
                    self._check(call, term, alive)
                except StaleTermError as error:
                    call.error = error  # it has written nothing, so it spoils nothing
                    continue
                if wire.has_forgotten:
                    self._do(partial(_foresee, wire, calls[place:]), None, is_shared=True)
                self._do(partial(_work, wire, call), call, is_shared=len(calls) > 1)
            self._do(self._finish, None, is_shared=len(calls) > 1)
        with postgres_errors(self.address, is_commit=True):
            channel = f'NOTIFY "{self.address.schema}"; ' if wire.changes else ""
            wire.script(f"{channel}COMMIT")

    def _finish(self) -> None:
        """Write all that waits, and send word of what was assigned."""
        self._writer.finish()
        self._send_all()

    def _send_all(self) -> None:
        sending = [*self._sending]
        self._sending.clear()
        if self._send_several is not None:
            if sending:
                self._send_several(self._writer.raw, sending)
        elif self._send is not None:
            for machine, receipt in sending:
                self._send(self._writer.raw, machine, receipt)

    def _do(
        self, part: Callable[[], None], call: _WorkerCall[Any] | None, *, is_shared: bool
    ) -> None:
        """Do a part of a transaction; if it fails, undo all and say whose fault that is."""
        from horae.store.pg_wire import SurprisedError, is_lost, is_servers, postgres_errors

        wire = self._writer
        try:
            part()
        except Exception as error:
            if not wire.can_roll_back or is_lost(error):
                raise
            with postgres_errors(self.address):
                wire.script("ROLLBACK")
            # What fails when it is done at last may be what another has asked for.
            is_unclear = isinstance(error, SurprisedError) or (is_shared and is_servers(error))
            if wire.gathers and is_unclear:
                raise _UndoneError(None) from error
            if call is None:
                raise
            call.error = _meant(self.address, error)
            raise _UndoneError(call) from error

    def _check(self, call: _WorkerCall[Any], term: int, alive: Mapping[NodeJoin, bool]) -> None:
        """Raise an error if whoever writes may write no more."""
        worker = call.worker
        if worker is None:
            if call.term not in (term, ANYBODY):
                raise StaleTermError(self.place, term=call.term, current=term)
            return
        if not alive[worker]:
            raise LeaseOverError(self.place, name=worker.name, generation=worker.generation)


class _UndoneError(Exception):
    """A transaction was undone: for one of its calls, or nobody can tell for which."""

    def __init__(self, call: _WorkerCall[Any] | None) -> None:
        self.call = call
        super().__init__("undone")


class MemberLedger(BookLedger):
    """A ledger that one member writes, under its lease: terms are not asked for.

    It starts only what was assigned to it.
    """

    def __init__(self, ledger: PostgresLedger, worker: NodeJoin) -> None:
        self.place = ledger.place
        self.worker = worker
        self._ledger = ledger

    async def read(self, work: Callable[[Book], T]) -> T:
        """Read without waiting for whoever writes."""
        return await self._ledger.read(work)

    async def write(
        self,
        term: int,
        work: Callable[[Book], T],
        *,
        keep: bool = True,
        is_alone: bool = False,
    ) -> T:
        """Do all of it or none of it, if the member's lease is not over."""
        return await self._ledger.write(
            term, work, keep=keep, is_alone=is_alone, worker=self.worker
        )

    async def close(self) -> None:
        """Do nothing: the ledger is closed by whoever opened it."""

    async def backup(self, target: Path) -> None:
        """Raise an error: PostgreSQL has its own means."""
        await self._ledger.backup(target)

    async def open_runs(self) -> list[tuple[Filed, Run]]:
        """Return the runs of this member that have not ended, also of older generations."""
        name = self.worker.name
        return [(filed, run) for filed, run in await super().open_runs() if run.member == name]

    async def assign(self, receipt: int, machine: str, *, now: datetime, term: int) -> bool:
        """Say which machine runs a receipt; only a leader does."""
        return await self._ledger.assign(receipt, machine, now=now, term=term)

    async def machines(self) -> tuple[Machine, ...]:
        return await self._ledger.machines()

    async def under_way(self) -> list[Filed]:
        """Return the receipts that run, or wait for a machine that was told to run them."""
        return await self._ledger.under_way()

    async def assigned_to(self, machine: str) -> list[Filed]:
        """Return the receipts that wait for a machine."""
        return await self._ledger.assigned_to(machine)

    async def share_token(self, token: str, *, now: datetime) -> None:
        """Let another token be the operator's on all members."""

        def put(book: Book) -> None:
            book.execute(_MEMBER["change_secret"], {"name": TOKEN, "value": token})
            book.tell(REVOKED, now=now, facts={"token": OPERATOR})

        await self.write(ANYBODY, put)

    async def keep_log(self, run: int, body: bytes) -> None:
        """Keep the output of a run, for when this machine is gone."""
        await self._ledger.keep_log(run, body)


class _WorkerCall(QueuedCall[T]):
    """A call that may be a worker's."""

    __slots__ = ("worker",)

    def __init__(
        self, work: Callable[[Book], T], *, worker: NodeJoin | None, term: int, **how: bool
    ) -> None:
        super().__init__(work, term=term, **how)
        self.worker = worker


def _book(wire: PostgresConnection, call: QueuedCall[Any], worker: NodeJoin | None = None) -> Book:
    """Return the book behind a connection, which does all that a book asks of one."""
    return Book(cast("sqlite3.Connection", wire), worker, call.actor)


def _read(call: QueuedCall[T], wire: PostgresConnection) -> T:
    return call.work(_book(wire, call))


def _looks(call: QueuedCall[Any]) -> list[ForeseenQuery]:
    """Return what a call will ask, as far as that is known."""
    work = call.work
    if not isinstance(work, Foreseen) or work.kind not in _LOOKS:
        return []
    return [*_LOOKS[work.kind](*work.what)]


def _foresee(wire: PostgresConnection, calls: Sequence[_WorkerCall[Any]]) -> None:
    """Ask again for what the calls that are left will ask: somebody has changed more than a row."""
    wire.foresee([look for call in calls for look in _looks(call)])


def _standing(*receipts: int) -> Iterator[ForeseenQuery]:
    for number in receipts:
        yield _look(_RECEIPT["standing"], RECEIPT, number=number)


def _standing_of_run(run: int) -> Iterator[ForeseenQuery]:
    yield _look(_RECEIPT["standing_of_run"], RECEIPT, number=run)


def _next_run(receipt: int) -> Iterator[ForeseenQuery]:
    yield from _standing(receipt)
    yield _look(NEXT_RUN, NOTHING, receipt=receipt)


def _end(run: int) -> Iterator[ForeseenQuery]:
    yield _look(_RECEIPT["of_run"], RECEIPT, number=run)
    yield _look(_ENTRY["goes_on"], ENTRY, via=_GOES_ON_OF_RUN, number=run)


def _adding(entry: int, receipts: Sequence[Receipt]) -> Iterator[ForeseenQuery]:
    yield _look(_ENTRY["one"], ENTRY, number=entry)
    yield _look(LAST_RECEIPT, NOTHING)
    for receipt in receipts:
        yield _look(_RECEIPT["by_key"], RECEIPT, entry=entry, key=receipt.key)


def _deciding(steps: Sequence[EntryStep]) -> Iterator[ForeseenQuery]:
    yield _look(LAST_RECEIPT, NOTHING)
    yield _look(_ENTRY["standing"], ANYTHING, **Book.asked_standing(steps))
    yield _look(_RECEIPT["taken"], ANYTHING, **Book.asked_keys(steps))


def _job(filed: Filed) -> Iterator[ForeseenQuery]:
    yield _look(_TEXT["one"], NOTHING, digest=filed.digest)
    yield _look(_ENTRY["one"], ENTRY, number=filed.entry)
    follows = followed_by(filed.receipt.key)
    if follows is not None:
        yield _look(_RECEIPT["one"], RECEIPT, number=follows)


_LOOKS: Final[Mapping[str, Callable[..., Iterator[ForeseenQuery]]]] = {
    "add": _adding,
    "assign": _standing,
    "decide": _deciding,
    "end": _end,
    "entry": lambda number: iter((_look(_ENTRY["one"], ENTRY, number=number),)),
    "give_back": _standing_of_run,
    "hold": _standing,
    "job": _job,
    "receipt": lambda number: iter((_look(_RECEIPT["one"], RECEIPT, number=number),)),
    "release": _standing,
    "running": _standing_of_run,
    "settle": _standing,
    "start": _next_run,
    "text": lambda digest: iter((_look(_TEXT["one"], NOTHING, digest=digest),)),
}


def _look(query: str, about: str, *, via: str = "", **values: Any) -> ForeseenQuery:
    from horae.store.pg_wire import ForeseenQuery

    return ForeseenQuery(query, values, about, via)


def _look_alive(worker: NodeJoin) -> ForeseenQuery:
    return _look(_MEMBER["is_alive"], NOTHING, **worker._asdict())


def _is_alive(wire: PostgresConnection, worker: NodeJoin) -> bool:
    """Tell whether a worker may write, by the database's clock."""
    return wire.execute(_MEMBER["is_alive"], worker._asdict()).fetchone() is not None


def _work(wire: PostgresConnection, call: _WorkerCall[Any]) -> None:
    """Do what one call asks for; if it only tries, nothing of it is left."""
    work = partial(call.work, _book(wire, call, call.worker))
    call.result = work() if call.keep else wire.attempt(work)


def _meant(address: Any, error: Exception) -> Exception:
    from horae.store.pg_wire import postgres_errors

    try:
        postgres_errors(address).__exit__(type(error), error, None)
    except LedgerError as meant:
        return meant
    return error


def _nothing(memory: str, _: tuple[str, ...]) -> str:
    return memory


def _reap(
    book: Book, lost: NodeJoin, *, now: datetime, remember: Callable[[str, tuple[str, ...]], str]
) -> list[int]:
    """Give away the work of a member that is lost."""
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
            arming.end(
                book,
                row["number"],
                Status.INTERRUPTED,
                exit_code=None,
                reason=Reason(ReasonCode.NODE_LOST, f"{lost.name} was lost during the run"),
                facts=None,
                is_last=False,
                memory=_remembered(book, int(row["receipt"]), remember),
                is_counted=True,
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
