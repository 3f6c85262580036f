"""The carrier: delivers receipt numbers to nodes, at least once, with PgQueuer in our database.

A job is numbers and the term in which it was queued. A node that gets it late or twice finds that
the receipts no longer wait, or that another leader decides. What a lost job held is queued again,
so jobs need not survive a crash.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self

import psycopg
from pgqueuer.adapters.drivers.psycopg import PsycopgDriver, SyncPsycopgDriver
from pgqueuer.adapters.persistence.queries import Queries, SyncQueries
from pgqueuer.core.qm import QueueManager
from pgqueuer.core.tm import TaskManager
from pgqueuer.domain.errors import PgqException, RetryRequested
from pgqueuer.domain.settings import db_settings
from pgqueuer.ports.driver import Driver

from horae.core.ports import LedgerError
from horae.store.pg_wire import connect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from pgqueuer.domain.models import Job
    from pgqueuer.domain.types import QueueEntrypoint
    from pgqueuer.ports.driver import NotifyCallback

    from horae.core.lease import QueueJob
    from horae.store.ledger import SqlLedger, Transaction
    from horae.store.pg_wire import DatabaseAddress

    Take = Callable[[Sequence[int], int], Awaitable[bool]]

AGAIN: Final = 1.0  # seconds after the database did not respond
LOOK: Final = timedelta(seconds=10)  # interval of polls without notifications
BATCH: Final = 250  # jobs that a node takes at once, at most
CLEAR: Final = (
    600.0  # seconds after which PgQueuer's log of jobs is cleared: the ledger has its own
)
FULL: Final = timedelta(seconds=0.2)  # after which a job that was refused is tried again
_LOCK: Final = 0x486F7262  # held while creating the carrier's tables

log = logging.getLogger(__name__)
logging.getLogger("pgqueuer").setLevel(logging.CRITICAL)  # failures are retried here


def enqueue(connection: psycopg.Connection[Any], jobs: Sequence[QueueJob]) -> None:
    """Queue jobs inside the open transaction."""
    SyncQueries(SyncPsycopgDriver(connection)).enqueue(
        [each.ability for each in jobs],
        [_payload(each) for each in jobs],
        [0] * len(jobs),
    )


def _payload(job: QueueJob) -> bytes:
    first, *more = job.receipts
    # The term is second: nodes of the version before read one receipt and its term.
    return " ".join(map(str, (first, job.term, *more))).encode()


@dataclass(eq=False)
class Carrier:
    """The jobs that one node may take.

    *take* gets receipts and the term of the job, and does not wait for the runs; it returns whether
    the job is done. *abilities* are the labels for which there is a slot, out of *known*.
    """

    ledger: SqlLedger
    known: Collection[str]
    abilities: Callable[[], Collection[str]]
    room: Callable[[], int] = lambda: BATCH  # how many jobs it can take now
    batch: int = BATCH
    _driver: _LedgerDriver | None = None

    def tell(self, payload: str) -> None:
        if self._driver is not None and json.loads(payload).get("operation") != "delete":
            self._driver.tell(payload)

    async def run(self, take: Take) -> None:
        while True:
            try:
                await self._run(take)
            except (LedgerError, PgqException, psycopg.Error, OSError) as error:
                # The leader queues lost jobs again.
                log.debug("jobs are not received, trying again in %s s: %s", AGAIN, error)
            await asyncio.sleep(AGAIN)

    async def _run(self, take: Take) -> None:
        self._driver = driver = _LedgerDriver(self.ledger)
        manager = QueueManager(queries := _Queries(driver))
        queries.carrier = self
        await queries.clear_queue_log([*self.known])  # the ledger has its own
        asyncio.get_running_loop().call_later(CLEAR, manager.shutdown.set)  # and begin again

        async def told(job: Job) -> None:
            try:
                first, term, *more = map(int, (job.payload or b"0 0").split())
                is_done = await take((first, *more), term)
            except LedgerError as error:
                raise RetryRequested(FULL, str(error)) from None
            if not is_done:
                raise RetryRequested(FULL, "this machine cannot take it now")

        for each in self.known:
            manager.entrypoint(each, accepts_context=False)(told)
        try:
            await manager.run(
                dequeue_timeout=LOOK,
                batch_size=self.batch,
                shutdown_on_listener_failure=True,
                log_aggregation_interval=timedelta(0),
            )
        finally:
            manager.shutdown.set()


class _Queries(Queries):
    carrier: Carrier

    async def dequeue(
        self, batch_size: int, entrypoints: dict[QueueEntrypoint, Any], *args: Any, **values: Any
    ) -> list[Job]:
        await asyncio.sleep(0)  # jobs just taken occupy their slots first
        now, room = self.carrier.abilities(), self.carrier.room()
        able = {name: each for name, each in entrypoints.items() if name in now}
        # Without a free slot it can only run what has one already.
        most = min(batch_size, room) if room > 0 else batch_size
        return await super().dequeue(most, able, *args, **values) if able else []


@dataclass(eq=False)
class _LedgerDriver(Driver):
    ledger: SqlLedger
    _shutdown: asyncio.Event = field(default_factory=asyncio.Event)
    _tm: TaskManager = field(default_factory=TaskManager)
    _hear: list[NotifyCallback] = field(default_factory=list)

    @property
    def shutdown(self) -> asyncio.Event:
        return self._shutdown

    @property
    def tm(self) -> TaskManager:
        return self._tm

    def tell(self, payload: str) -> None:
        for each in self._hear:
            each(payload)

    async def fetch(self, query: str, *args: object) -> list[dict[str, object]]:
        def fetched(tx: Transaction) -> list[dict[str, object]]:
            return SyncPsycopgDriver(tx.connection.raw).fetch(query, *args)

        return await self.ledger.read(fetched)

    async def execute(self, query: str, *args: object) -> str:
        def executed(tx: Transaction) -> str:
            with psycopg.RawCursor(tx.connection.raw) as cursor:
                return cursor.execute(query.encode(), args or None).statusmessage or ""

        return await self.ledger.read(executed)

    async def notify(self, channel: str, payload: str) -> None:
        await self.execute("SELECT pg_notify($1, $2)", channel, payload)

    async def add_listener(self, channel: str, callback: NotifyCallback) -> None:  # noqa: ARG002
        self._hear.append(callback)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._shutdown.set()
        self._hear.clear()


def channel() -> str:
    return str(db_settings().channel)


async def prepare(address: DatabaseAddress) -> None:
    async with await connect(address, "horae-carrier") as connection:
        queries = Queries(PsycopgDriver(connection))
        if await queries.schema_is_installed():
            return
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            if not await queries.schema_is_installed():
                await queries.install(create_schema=False)
