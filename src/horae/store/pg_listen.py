"""Hears when a ledger on PostgreSQL was written, on a connection that only listens."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql

from horae.store.pg_wire import postgres_errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import timedelta

    from horae.store.pg_wire import DatabaseAddress

_WAIT: Final = 5.0  # seconds in which a server must let us in, and answer


async def heard(address: DatabaseAddress, *, pulse: timedelta) -> AsyncIterator[int]:
    """Yield the number of the server's process that has written, each time one has.

    First comes a 0: whatever was written before it was not heard. It ends with an error when
    the connection is lost, which shows within a pulse.
    """
    with postgres_errors(address):
        connection = await _listening(address)
        try:
            yield 0
            while True:
                async for found in connection.notifies(timeout=pulse.total_seconds()):
                    yield found.pid
                async with asyncio.timeout(_WAIT):
                    await connection.execute("SELECT 1")
        except TimeoutError:
            raise psycopg.OperationalError("the database does not answer") from None
        finally:
            await connection.close()


async def _listening(address: DatabaseAddress) -> psycopg.AsyncConnection[Any]:
    connection = await psycopg.AsyncConnection.connect(
        address.url,
        autocommit=True,
        application_name="horae listens",
        connect_timeout=round(_WAIT),
        keepalives=1,
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
    )
    try:
        async with asyncio.timeout(_WAIT):
            await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(address.schema)))
    except BaseException:
        await connection.close()
        raise
    return connection
