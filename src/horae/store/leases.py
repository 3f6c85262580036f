"""Who leads a cluster, and which machines are in it, by the database's clock.

It has a connection and a thread of its own with short timeouts: no long write keeps a lease
from being renewed.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from horae.cluster.lease import Leader, Membership, NodeDescription
from horae.core.ports import LedgerError, StaleTermError
from horae.store.call_queue import CallQueue
from horae.store.codec import plain
from horae.store.sql import theme

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta

    from horae.store.pg_wire import PostgresConnection, PostgresRow

T = TypeVar("T")

_SQL: Final = theme("postgres/member")


class LeaseOverError(StaleTermError):
    """A write by a member whose lease is over, or that has joined anew since."""

    def __init__(self, place: str, *, name: str, generation: int) -> None:
        self.name = name
        self.generation = generation
        self.term, self.current = generation, 0
        reason = f"the lease of {name} ({generation}) has expired; nothing was written"
        LedgerError.__init__(self, place, reason, remedy="this node must stop its runs")


class Leases:
    def __init__(self, wire: PostgresConnection) -> None:
        self._wire = wire
        self._line = CallQueue("ledger-leases")

    async def now(self) -> datetime:
        moment: datetime = (await self._one("now"))[0]
        return moment

    async def lead(self, holder: str, lease: timedelta) -> int | None:
        """Lead in a new term if nobody else does; None: somebody does.

        Whoever led before is refused from now on, also if that was of the same name.
        """
        return await self._do(lambda wire: _lead(wire, plain(holder), lease))

    async def renew_lead(self, term: int, lease: timedelta) -> bool:
        """Lead for longer; False: somebody else does.

        One that was late is renewed too, if nobody took its place: its term is still the last.
        """
        return await self._change("renew_lead", term=term, lease=lease)

    async def resign(self, term: int) -> None:
        await self._change("resign", term=term)

    async def leader(self) -> Leader | None:
        """Return who leads; None: nobody, or its lease is over."""
        row = await self._one("leader")
        return Leader(row["holder"], row["term"], row["until"]) if row["is_alive"] else None

    async def join(self, member: NodeDescription, lease: timedelta) -> int:
        """Take in a member, and return its generation: one that nobody ever had."""
        row = await self._one(
            "join",
            name=plain(member.name),
            address=plain(member.address),
            labels=json.dumps([plain(each) for each in member.labels]),
            version=plain(member.version),
            slots=member.slots,
            lease=lease,
        )
        return int(row[0])

    async def renew(self, name: str, generation: int, lease: timedelta) -> bool:
        """Let a member live longer; False: its lease is over, or it joined anew.

        One that is over stays over: the leader may have given its work away.
        """
        return await self._change("renew", name=name, generation=generation, lease=lease)

    async def leave(self, name: str, generation: int) -> None:
        await self._change("leave", name=name, generation=generation)

    async def members(self) -> list[Membership]:
        """Return every member that ever was and is not forgotten, by name."""
        rows = await self._do(lambda wire: wire.execute(_SQL["all"]).fetchall())
        return [
            Membership(
                NodeDescription(
                    row["name"], row["address"], tuple(row["labels"]), row["version"], row["slots"]
                ),
                row["generation"],
                row["is_alive"],
                row["is_draining"],
                row["joined_at"],
                row["seen_at"],
                row["until"],
                row["left_at"],
            )
            for row in rows
        ]

    async def drain(self, name: str, is_draining: bool = True) -> bool:
        """Say whether a member is to get nothing more to run; False: there is none."""
        return await self._change("drain", name=name, is_draining=is_draining)

    async def forget(self, name: str) -> bool:
        """Forget a member whose lease is over; False: there is none."""
        return await self._change("forget", name=name)

    async def close(self) -> None:
        await self._line.do(self._wire.close)
        self._line.rest()

    async def _do(self, work: Callable[[PostgresConnection], T]) -> T:
        return await self._line.do(lambda: self._wire.do(work))

    async def _one(self, query: str, **values: Any) -> PostgresRow:
        return await self._do(lambda wire: _one(wire, query, values))

    async def _change(self, query: str, **values: Any) -> bool:
        return await self._do(lambda wire: wire.execute(_SQL[query], values).rowcount > 0)


def _lead(wire: PostgresConnection, holder: str, lease: timedelta) -> int | None:
    row = _one(wire, "leader")
    if row["is_alive"] and row["holder"] != holder:
        return None
    try:
        wire.script("BEGIN")
        row = _one(wire, "lock_leader")
        if row["is_alive"] and row["holder"] != holder:
            wire.script("ROLLBACK")
            return None
        # Waits for whoever writes: what the former leader has begun is kept, or never is.
        term = int(_one(wire, "next_term")[0])
        wire.execute(_SQL["take_lead"], {"holder": holder, "term": term, "lease": lease})
        wire.script("COMMIT")
        return term
    except BaseException:
        with suppress(Exception):  # the first error is the one to report
            if wire.is_open:
                wire.script("ROLLBACK")
        raise


def _one(wire: PostgresConnection, name: str, values: dict[str, Any] | None = None) -> PostgresRow:
    row = wire.execute(_SQL[name], values).fetchone()
    assert row is not None, "such a query has an answer"
    return row
