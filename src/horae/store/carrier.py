"""The carrier: brings receipt numbers to machines, at least once. It is PgQueuer on our database.

A message is written in the transaction that says which machine a receipt is for, so there is
none without the other. It says nothing but a number; whoever gets it late or twice finds that
the receipt does not wait for him any more.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Self

import psycopg
from pgqueuer.adapters.drivers.psycopg import PsycopgDriver, SyncPsycopgDriver
from pgqueuer.adapters.persistence.qb import (
    QueryBuilderEnvironment,
    QueryQueueBuilder,
    QuerySchedulerBuilder,
)
from pgqueuer.adapters.persistence.queries import Queries, SyncQueries
from pgqueuer.core.qm import QueueManager
from pgqueuer.domain.errors import PgqException
from pgqueuer.domain.settings import DBSettings

from horae.store.pg_wire import connect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pgqueuer.domain.models import Job
    from pgqueuer.ports.driver import NotifyCallback

    from horae.store.pg_wire import DatabaseAddress

NAME: Final = "horae-carrier"  # of its connections
AGAIN: Final = 1.0  # seconds after a database that did not answer
LOOK: Final = 10.0  # seconds between two looks, if nobody tells of a message
BATCH: Final = 10
_LOCK: Final = 0x486F7262  # whoever makes the carrier's tables holds it

log = logging.getLogger(__name__)
logging.getLogger("pgqueuer").setLevel(logging.CRITICAL)  # what fails is tried again here


def enqueue(connection: psycopg.Connection[Any], machine: str, receipt: int) -> None:
    """Write a message for a machine, inside the transaction that is open."""
    queue = QueryQueueBuilder(settings=_settings())
    SyncQueries(SyncPsycopgDriver(connection), qbq=queue).enqueue(machine, b"%d" % receipt)


@dataclass(frozen=True, slots=True)
class Carrier:
    """The messages for one machine."""

    address: DatabaseAddress
    machine: str

    async def run(self, take: Callable[[int], Awaitable[None]]) -> None:
        """Hand on each message, for ever; a connection that is lost is made again."""
        while True:
            try:
                await self._run(take)
            except (psycopg.Error, PgqException, OSError) as error:
                # The node looks into the database, too, so that nothing waits for this.
                log.debug("messages are not received, trying again in %s s: %s", AGAIN, error)
            await asyncio.sleep(AGAIN)

    async def _run(self, take: Callable[[int], Awaitable[None]]) -> None:
        async with (
            await connect(self.address, NAME) as connection,
            await connect(self.address, NAME) as ears,
        ):
            settings = _settings()
            driver = _Driver(connection, ears)
            manager = QueueManager(_queries(driver, settings), channel=settings.channel)

            @manager.entrypoint(self.machine)
            async def told(job: Job) -> None:
                await take(int(job.payload or b"0"))

            try:
                await manager.run(
                    dequeue_timeout=timedelta(seconds=LOOK),
                    batch_size=BATCH,
                    shutdown_on_listener_failure=True,
                    log_aggregation_interval=timedelta(0),
                )
            finally:
                manager.shutdown.set()


class _Driver(PsycopgDriver):
    """A driver that listens on another connection, which listening keeps for a second at a time."""

    def __init__(
        self, connection: psycopg.AsyncConnection[Any], ears: psycopg.AsyncConnection[Any]
    ) -> None:
        super().__init__(connection)
        self._ears = PsycopgDriver(ears)

    async def add_listener(self, channel: str, callback: NotifyCallback) -> None:
        await self._ears.add_listener(channel, callback)

    async def remove_listener(self, channel: str, callback: NotifyCallback) -> None:
        await self._ears.remove_listener(channel, callback)

    async def __aenter__(self) -> Self:
        await self._ears.__aenter__()
        return await super().__aenter__()

    async def __aexit__(self, *error: object) -> None:
        await self._ears.__aexit__(*error)
        await super().__aexit__(*error)


async def prepare(address: DatabaseAddress) -> None:
    """Make the carrier's tables, unless they are there; of several machines at once one does it."""
    async with await connect(address, NAME) as connection:
        queries = _queries(PsycopgDriver(connection), _settings())
        if await queries.schema_is_installed():
            return
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            if not await queries.schema_is_installed():
                await queries.install(create_schema=False)


@cache
def _settings() -> DBSettings:
    """Return what the carrier's tables are called; they are in the schema of the ledger."""
    return DBSettings()


def _queries(driver: PsycopgDriver, settings: DBSettings) -> Queries:
    return Queries(
        driver,
        qbe=QueryBuilderEnvironment(settings=settings),
        qbq=QueryQueueBuilder(settings=settings),
        qbs=QuerySchedulerBuilder(settings=settings),
    )
