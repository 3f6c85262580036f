"""What happens, in numbers, for Prometheus.

Counts go on from event to event: a look costs what has happened since the last one, and nobody
pays for it who does not look.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from horae.core.explain import late
from horae.core.receipt import ENDS, Status, is_planned
from horae.core.scope import Scope
from horae.web.answer import HEADERS, harmless
from horae.web.router import asks

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from starlette.requests import Request

    from horae.web.router import Front, RequestFields

KIND: Final = "text/plain; version=0.0.4; charset=utf-8"
ENTRIES: Final = 1000  # so many entries have numbers of their own, the first known of them
BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 3600)
_BATCH: Final = 1000
_WITHOUT_RUN: Final = frozenset({Status.SKIPPED, Status.COALESCED, Status.MISSED})


class Counts:
    """What has happened since the engine started."""

    def __init__(self, front: Front) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self._front = front
        self._after = front.since
        self._turn = asyncio.Lock()
        self.registry: CollectorRegistry = CollectorRegistry()
        where: dict[str, Any] = {"registry": self.registry}
        self._ends = Counter(
            "horae_occurrences", "Occurrences and requests, by outcome.", ["outcome"], **where
        )
        for each in Status:
            if each in ENDS or each in _WITHOUT_RUN:
                self._ends.labels(each.value)
        self._missed = Counter(
            "horae_missed", "Missed occurrences, by entry.", ["entry", "title"], **where
        )
        self._late = Histogram(
            "horae_lateness_seconds",
            "Delay between the scheduled time and the decision to run.",
            buckets=BUCKETS,
            **where,
        )
        self._tokens = Counter("horae_tokens", "Tokens used by agents.", ["kind"], **where)
        self._cost = Counter("horae_cost_dollars", "Cost of agent runs.", **where)
        self._active = Gauge("horae_active_runs", "Runs in progress.", **where)
        self._waiting = Gauge(
            "horae_waiting_receipts", "Receipts with the status waiting.", **where
        )
        self._held = Gauge("horae_held_receipts", "Receipts with the status held.", **where)
        self._entries = Gauge("horae_armed_entries", "Armed entries.", **where)
        self._slots = Gauge("horae_gate_slots", "Slots for concurrent runs.", **where)
        self._next = Gauge(
            "horae_next_fire_seconds", "Unix time of the next scheduled run.", **where
        )
        self._next_of = Gauge(
            "horae_entry_next_fire_seconds",
            "Unix time of the next scheduled run of an entry.",
            ["entry", "title"],
            **where,
        )
        self._nodes = Gauge(
            "horae_node_up", "Whether a node of the cluster is up.", ["node", "leads"], **where
        )
        self._node_runs = Gauge("horae_node_runs", "Runs in progress, by node.", ["node"], **where)
        self._node_slots = Gauge(
            "horae_node_slots", "Slots for concurrent runs, by node.", ["node"], **where
        )
        self._well = Gauge(
            "horae_healthy", "Whether the scheduling loop runs and the ledger is writable.", **where
        )

    async def text(self) -> bytes:
        """Return all numbers as Prometheus reads them."""
        from prometheus_client import generate_latest

        async with self._turn:
            await self._count()
            await self._stand()
            return await asyncio.to_thread(generate_latest, self.registry)

    async def _count(self) -> None:
        """Count what has happened since the last look."""
        while True:
            said = await self._front.service.events(after=self._after, limit=_BATCH)
            for event in said.events:
                if event.kind == "receipt" and event.receipt is not None:
                    await self._count_receipt(event.receipt, str(event.facts.get("status")))
            if not said.events:
                return
            self._after = said.after

    async def _count_receipt(self, number: int, word: str) -> None:
        """Count a receipt that has come to its end, once."""
        status = Status(word) if word in set(Status) else None
        if status is None or (status not in ENDS and status not in _WITHOUT_RUN):
            return
        account = await self._front.service.receipt(number)
        filed = account.line.filed
        self._ends.labels(status.value).inc(filed.receipt.count)
        if status is Status.MISSED:
            self._missed.labels(str(filed.entry), account.line.title).inc(filed.receipt.count)
        if status in ENDS and is_planned(filed.receipt.key):
            self._late.observe(late(filed).total_seconds())
        for run in account.runs:
            self._spend(run.facts)

    def _spend(self, facts: Any) -> None:
        """Count what a run used, as far as that is known."""
        for kind in ("in", "out"):
            used = facts.get(f"tokens_{kind}")
            if isinstance(used, int) and used > 0:
                self._tokens.labels(kind).inc(used)
        cost = facts.get("cost")
        if isinstance(cost, int | float) and cost > 0:
            self._cost.inc(cost)

    async def _machines(self) -> None:
        """Look which machines there are."""
        for gauge in (self._nodes, self._node_runs, self._node_slots):
            gauge.clear()
        for each in [] if self._front.nodes is None else await self._front.nodes():
            leads = "true" if each["leads"] else "false"
            self._nodes.labels(each["node"], leads).set(each["state"] in {"up", "draining"})
            self._node_runs.labels(each["node"]).set(each["runs"])
            self._node_slots.labels(each["node"]).set(each["slots"])

    async def _stand(self) -> None:
        """Look how things stand now."""
        await self._machines()
        front = self._front
        stands = await front.service.status(front.facts(), limit=ENTRIES)
        counts = stands.counts
        self._active.set(counts.get(Status.RUNNING, 0) + counts.get(Status.STARTING, 0))
        self._waiting.set(counts.get(Status.WAITING, 0))
        self._held.set(counts.get(Status.HELD, 0))
        self._entries.set(stands.entries)
        self._slots.set(front.engine.gate.capacity.slots)
        engine = front.engine
        is_well = engine.trouble is None and not engine.is_blank
        self._well.set(is_well and engine.turned_at is not None)
        self._next_of.clear()
        moments = [each.next_at.timestamp() for each in stands.coming if each.next_at is not None]
        self._next.set(min(moments, default=float("nan")))
        for each in stands.coming:
            if each.next_at is not None:
                at = each.next_at.timestamp()
                self._next_of.labels(str(each.number), each.title).set(at)


async def metrics(front: Front, request: Request, _: RequestFields) -> Response:
    """Return metrics for Prometheus."""
    state = request.app.state
    if getattr(state, "counts", None) is None:
        state.counts = Counts(front)
    counts: Counts = state.counts
    text = harmless((await counts.text()).decode())
    return Response(text, headers={**HEADERS, "Content-Type": KIND})


OPERATIONS: Final = (asks("/metrics", Scope.READ, metrics, "str", kind=KIND),)
