"""What happens, in numbers, for Prometheus.

Counts go on from event to event: a look costs what has happened since the last one, and nobody
pays for it who does not look.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from horae.core.actor import Scope
from horae.core.inbox import without_parts
from horae.core.receipt import ENDS, RECEIPT_STATUSES, Status, is_planned
from horae.web.answer import HEADERS, harmless
from horae.web.front import Front
from horae.web.router import Routes

routes = Routes()
KIND: Final = "text/plain; version=0.0.4; charset=utf-8"
ENTRIES: Final = 1000  # so many entries have numbers of their own, the first known of them
BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 3600)
_BATCH: Final = 1000
_WITHOUT_RUN: Final = frozenset({Status.SKIPPED, Status.COALESCED, Status.MISSED})


# By what counts them: kind, name, help, labels.
# fmt: off
_NUMBERS: Final = {
    "ends": ("Counter", "occurrences", "Occurrences and requests, by outcome.", "outcome"),
    "missed": ("Counter", "missed", "Missed occurrences, by entry.", "entry title"),
    "late": ("Histogram", "lateness_seconds",
             "Delay between the scheduled time and the decision to run.", ""),
    "tokens": ("Counter", "tokens", "Tokens used by agents.", "kind"),
    "cost": ("Counter", "cost_dollars", "Cost of agent runs.", ""),
    "budgets": ("Gauge", "budget_spent_ratio", "Part of a budget that is spent.", "budget entry"),
    "active": ("Gauge", "active_runs", "Runs in progress.", ""),
    "waiting": ("Gauge", "waiting_receipts", "Receipts with the status waiting.", ""),
    "held": ("Gauge", "held_receipts", "Receipts with the status held.", ""),
    "entries": ("Gauge", "armed_entries", "Armed entries.", ""),
    "slots": ("Gauge", "gate_slots", "Slots for concurrent runs.", ""),
    "next": ("Gauge", "next_fire_seconds", "Unix time of the next scheduled run.", ""),
    "next_of": ("Gauge", "entry_next_fire_seconds",
                "Unix time of the next scheduled run of an entry.", "entry title"),
    "nodes": ("Gauge", "node_up", "Whether a node of the cluster is up.", "node leads"),
    "node_runs": ("Gauge", "node_runs", "Runs in progress, by node.", "node"),
    "node_slots": ("Gauge", "node_slots", "Slots for concurrent runs, by node.", "node"),
    "well": ("Gauge", "healthy",
             "Whether the scheduling loop runs and the ledger is writable.", ""),
}
# fmt: on


class Counts:
    def __init__(self, front: Front) -> None:
        import prometheus_client

        self._front = front
        self._after = front.since
        self._turn = asyncio.Lock()
        self.registry = prometheus_client.CollectorRegistry()
        self._of: dict[str, Any] = {}
        for key, (kind, name, about, labels) in _NUMBERS.items():
            more = {"buckets": BUCKETS} if kind == "Histogram" else {}
            made, named = getattr(prometheus_client, kind), labels.split()
            self._of[key] = made(f"horae_{name}", about, named, registry=self.registry, **more)
        for each in Status:
            if each in ENDS or each in _WITHOUT_RUN:
                self._of["ends"].labels(each.value)

    async def text(self) -> bytes:
        from prometheus_client import generate_latest

        async with self._turn:
            look = self._front.service.events
            while (said := await look(after=self._after, limit=_BATCH)).events:
                for event in said.events:
                    if event.kind == "receipt" and event.receipt is not None:
                        await self._count_receipt(event.receipt, str(event.facts.get("status")))
                self._after = said.after
            await self._look()
            return await asyncio.to_thread(generate_latest, self.registry)

    async def _count_receipt(self, number: int, word: str) -> None:
        status = Status(word) if word in RECEIPT_STATUSES else None
        if status is None or (status not in ENDS and status not in _WITHOUT_RUN):
            return
        account, of = await self._front.service.receipt(number), self._of
        of["ends"].labels(status.value).inc(account.count)
        if status is Status.MISSED:
            of["missed"].labels(str(account.entry), account.title).inc(account.count)
        if status in ENDS and is_planned(account.key):
            of["late"].observe(account.late_seconds)
        for run in account.runs:
            for kind in ("in", "out"):
                used = run.facts.get(f"tokens_{kind}")
                if isinstance(used, int) and used > 0:
                    of["tokens"].labels(kind).inc(used)
            cost = run.facts.get("cost")
            if isinstance(cost, int | float) and cost > 0:
                of["cost"].inc(cost)

    async def _look(self) -> None:
        of, front = self._of, self._front
        for key in ("nodes", "node_runs", "node_slots", "next_of", "budgets"):
            of[key].clear()
        for limit in await front.service.budgets(front.service.clock.now()):
            of["budgets"].labels(limit.budget, limit.entry or "").set(limit.ratio)
        for node in await front.node_list():
            leads = "true" if node.leads else "false"
            of["nodes"].labels(node.node, leads).set(node.state in {"up", "draining"})
            of["node_runs"].labels(node.node).set(node.runs)
            of["node_slots"].labels(node.node).set(node.slots)
        # Not the status: with 100,000 receipts in the queue that takes many seconds.
        ledger, engine = front.service.ledger, front.engine
        counts = await ledger.count_open()
        armed = (await ledger.count_entries(due_before=front.clock.now())).armed
        of["active"].set(counts.get(Status.RUNNING, 0) + counts.get(Status.STARTING, 0))
        of["waiting"].set(counts.get(Status.WAITING, 0))
        of["held"].set(counts.get(Status.HELD, 0))
        of["entries"].set(armed)
        of["slots"].set(engine.gate.capacity.slots)
        is_well = engine.trouble is None and not engine.is_blank and engine.turned_at is not None
        of["well"].set(is_well)
        found = [] if engine.is_blank else await ledger.coming(limit=ENTRIES)
        coming = [(e.next_at.timestamp(), e) for e in without_parts(found) if e.next_at]
        of["next"].set(min((at for at, _ in coming), default=float("nan")))
        for at, each in coming:
            of["next_of"].labels(str(each.number), each.mark.title).set(at)


@routes.get("/metrics", Scope.READ, kind=KIND)
async def metrics(front: Front, request: Request) -> Response:
    """Return metrics for Prometheus."""
    state = request.app.state
    if getattr(state, "counts", None) is None:
        state.counts = Counts(front)
    counts: Counts = state.counts
    text = harmless((await counts.text()).decode())
    return Response(text, headers={**HEADERS, "Content-Type": KIND})
