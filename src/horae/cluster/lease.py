"""Leases of the leader and of nodes.

A lease ends by the database's clock. Its holder goes by its own count of time that passed, and
stops trusting its lease before it ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class NodeDescription:
    name: str
    address: str = ""  # where its page and API are
    labels: tuple[str, ...] = ()
    version: str = ""
    slots: int = 1


@dataclass(frozen=True, slots=True)
class Membership:
    """A node as the ledger knows it; what is left of an older generation is refused."""

    member: NodeDescription
    generation: int
    is_alive: bool
    is_draining: bool
    joined_at: datetime
    seen_at: datetime
    until: datetime
    left_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Leader:
    holder: str
    term: int
    until: datetime


class QueueJob(NamedTuple):
    """A receipt in the queue: what a machine must be that takes it, and in which term it may."""

    receipt: int
    ability: str
    term: int
    key: str  # a second job of the same key is not put in


@dataclass(frozen=True, slots=True)
class LostLease:
    name: str
    generation: int
    runs: int = 0


def trusted_until(
    began: timedelta, lease: timedelta, *, margin: timedelta = timedelta(0)
) -> timedelta:
    """Return until when one's own lease may be trusted, by the count of time that passed.

    It counts from when the call began: the database may have counted from any moment since.
    *margin* is what the last step that trusts it may take.

    >>> second = timedelta(seconds=1)
    >>> trusted_until(100 * second, 15 * second, margin=5 * second) / second
    110.0
    """
    return began + max(timedelta(0), lease - margin)


def is_trusted(elapsed: timedelta, until: timedelta | None) -> bool:
    return until is not None and elapsed < until


def node_data(each: Membership, leader: Leader | None, runs: int) -> dict[str, object]:
    leads = leader is not None and leader.holder == each.member.name
    state = "draining" if each.is_draining else "up"
    state = "left" if each.left_at is not None else state if each.is_alive else "lost"
    return {
        "node": each.member.name,
        "state": state,
        "leads": leads,
        "term": leader.term if leader is not None and leads else None,
        "runs": runs,
        "slots": each.member.slots,
        "labels": list(each.member.labels),
        "address": each.member.address,
        "version": each.member.version,
        "seen_at": each.seen_at.isoformat(timespec="seconds"),
    }
