"""Leases of the leader and the nodes of a cluster, by the database's clock.

It has its own connection and thread with short timeouts, so that no long write delays a renewal.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar, cast

from horae.core.lease import Leader, Membership, NodeDescription, Renewal
from horae.core.ports import LedgerError, StaleTermError, plain
from horae.store.ledger import CallQueue, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime, timedelta

    from horae.store.pg_wire import PostgresConnection

T = TypeVar("T")


class LeaseOverError(StaleTermError):
    """A write by a node whose lease has expired, or that has joined again since."""

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
        return cast("datetime", (await self._one("now"))[0])

    async def lead(self, holder: str, lease: timedelta) -> int | None:
        """Begin a new term as the leader; None: another node leads.

        Writes of the former leader are refused from now on, also if it had the same name.
        """
        name = plain(holder)

        def lead(tx: Transaction) -> int | None:
            if (now := _leader(tx)) is not None and now.holder != name:
                return None
            with self._wire.raw.transaction():
                row = tx.row("member.lock_leader")
                if row["is_alive"] and row["holder"] != name:
                    return None
                # Waits for writers: what the former leader has begun is committed now, or never.
                self._wire.script(f"SELECT {self._wire.wide_lock()}")
                term = int(tx.row("member.next_term")[0])
                tx.change("member.take_lead", holder=name, term=term, lease=lease)
                return term

        return await self._do(lead)

    async def resign(self, term: int) -> None:
        await self._change("resign", term=term)

    async def leader(self) -> Leader | None:
        return await self._do(_leader)

    async def join(self, member: NodeDescription, lease: timedelta) -> int:
        row = await self._one(
            "join",
            name=plain(member.name),
            address=plain(member.address),
            labels=json.dumps([plain(each) for each in member.labels]),
            version=plain(member.version),
            slots=member.slots,
            may_lead=member.may_lead,
            lease=lease,
        )
        return int(row[0])

    async def renew(
        self,
        name: str,
        generation: int,
        lease: timedelta,
        *,
        term: int | None = None,
        patience: timedelta | None = None,
        peers: Sequence[int] = (),
    ) -> Renewal | None:
        """Renew the lease of a node, and of the leader in a term.

        None: it joined again, or its work was given away; a late renewal succeeds. After its lease
        its runs may continue for its *patience*, while no *peer* reaches the database.
        """
        known = {"patience": patience, "peers": json.dumps([*peers]) if patience else None}

        def renew(tx: Transaction) -> Renewal | None:
            row = {"name": name, "generation": generation, "lease": lease, **known}
            if not tx.change("member.renew", **row):
                return None
            if term is not None:
                tx.change("member.renew_lead", term=term, lease=lease)
            return Renewal(tx.every(_membership, "member.all"), _leader(tx))

        return await self._do(renew)

    async def leave(self, name: str, generation: int) -> None:
        await self._change("leave", name=name, generation=generation)

    async def members(self) -> list[Membership]:
        return await self._do(lambda tx: tx.every(_membership, "member.all"))

    async def drain(self, name: str, is_draining: bool = True) -> bool:
        return await self._change("drain", name=name, is_draining=is_draining)

    async def close(self) -> None:
        await self._line.do(self._wire.close)
        self._line.rest()

    async def _do(self, work: Callable[[Transaction], T]) -> T:
        return await self._line.do(lambda: self._wire.do(lambda wire: work(Transaction(wire))))

    async def _one(self, query: str, **values: Any) -> Any:
        return await self._do(lambda tx: tx.row(f"member.{query}", **values))

    async def _change(self, query: str, **values: Any) -> bool:
        return await self._do(lambda tx: tx.change(f"member.{query}", **values) > 0)


def _leader(tx: Transaction) -> Leader | None:
    row = tx.row("member.leader")
    return Leader(row["holder"], row["term"], row["until"]) if row["is_alive"] else None


def _membership(row: Any) -> Membership:
    about = {each.name: row[each.name] for each in fields(NodeDescription)}
    card = NodeDescription(**about | {"labels": tuple(row["labels"])})
    known = {each.name: row[each.name] for each in fields(Membership)[1:]}
    return Membership(card, **known)
