"""Leases of the leader and of nodes.

A lease ends by the database's clock. Its holder measures it by its own uptime, and stops trusting
its lease before it ends. How runs outlive it while the database is unreachable, and why none of
them is started twice meanwhile, is in docs/how-to/machines.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, TypeAlias

from horae.core.receipt import Filed
from horae.core.views import Shape, TimeText, shaped


@dataclass(frozen=True, slots=True)
class NodeDescription:
    name: str
    address: str = ""  # of its page and API
    labels: tuple[str, ...] = ()
    version: str = ""
    slots: int = 1
    may_lead: bool = True


@dataclass(frozen=True, slots=True)
class Membership:
    """A node in the ledger; writes of an older generation are refused."""

    member: NodeDescription
    generation: int
    is_alive: bool
    is_draining: bool
    joined_at: datetime
    seen_at: datetime
    until: datetime
    left_at: datetime | None = None
    term: int | None = None  # of its leadership
    runs: int = 0  # in progress
    is_reaped: bool = False

    @property
    def can_lead(self) -> bool:
        return self.is_alive and not self.is_draining and self.member.may_lead

    @property
    def line(self) -> NodeLine:
        member, state = self.member, "draining" if self.is_draining else "up"
        times = {"since": self.joined_at, "lease_until": self.until, "seen_at": self.seen_at}
        own = {name: at.isoformat(timespec="seconds") for name, at in times.items()}
        state = "left" if self.left_at is not None else state if self.is_alive else "lost"
        about = {"node": member.name, "state": state, "leads": self.term is not None}
        return shaped(NodeLine, "UTC", self, member, **about, **own)


class NodeLine(Shape, frozen=True, kw_only=True):
    node: str
    state: str
    leads: bool
    term: int | None
    may_lead: bool
    runs: int
    slots: int
    labels: tuple[str, ...]
    address: str
    version: str
    since: TimeText
    lease_until: TimeText
    seen_at: TimeText


class NodePage(Shape, frozen=True):
    nodes: list[NodeLine]


@dataclass(frozen=True, slots=True)
class Leader:
    holder: str
    term: int
    until: datetime


class Renewal(NamedTuple):
    members: list[Membership]
    leader: Leader | None


class QueueJob(NamedTuple):
    receipts: tuple[int, ...]
    ability: str
    term: int


QueueJobs: TypeAlias = "Callable[[Sequence[Filed]], Sequence[QueueJob]]"


def trusted_until(
    began: timedelta, lease: timedelta, *, margin: timedelta = timedelta(0)
) -> timedelta:
    """Return until when one's own lease may be trusted, as uptime.

    It counts from the beginning of the call, as the database may have counted from any time since.
    *margin* is the duration of the last step that relies on it.
    """
    return began + max(timedelta(0), lease - margin)
