"""Now: what runs, waits and comes, and what is late, missed or failed, and why."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import structs

from horae.core.inbox import InboxState
from horae.core.receipt import ENDS, Status
from horae.timing.zone import parse_rfc3339
from horae.web.front import tag_of_entry
from horae.web.page.run import tail
from horae.web.page.sheet import PageRequest, PageView, Sheet
from horae.web.page.timeline import band

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from horae.core.lease import NodeLine
    from horae.core.ports import Run
    from horae.core.views import InboxLine, ReceiptLine


LOGGED: Final = 6  # lines of what runs now
ENDED: Final = 8  # of what ended last


class _Going(NamedTuple):
    line: ReceiptLine
    run: Run | None
    lines: Sequence[str]


async def now(asked: PageRequest) -> Sheet:
    front, look = asked.front, asked.look
    stands = await front.status(limit=12)
    going = []
    for line in stands.running:
        run = next(reversed(await asked.ledger.runs_of(line.receipt)), None)
        text = (await asyncio.to_thread(tail, front.log_of(run), 4096)).text if run else ""
        lines = text.rstrip("\n").split("\n")[-LOGGED:] if text else ()
        going.append(_Going(line, run, lines))
    found = await front.service.history(statuses=ENDS, limit=8 * ENDED)
    newest = sorted(found.receipts, key=lambda line: line.ended_at or line.decided_at)
    ended = newest[: -ENDED - 1 : -1]
    inbox = await asked.context.inbox()
    asking = any(each.state is InboxState.APPROVAL for each in inbox.entries)
    shown = {each.entry for each in inbox.entries}
    told = {receipt for each in inbox.entries for receipt in each.receipts}
    asked_for = await front.triggers.approvals() if asking and front.triggers is not None else []
    obstacles = islice(front.engine.gate.obstacles(now=look.now), 100)
    values: dict[str, object] = {
        "stands": stands,
        "inbox": inbox,
        "waiting": [each for each in stands.waiting if each.receipt not in told],
        "unarmed": [each for each in stands.unarmed if each.entry not in shown],
        "approvals": {each.receipt: each for each in asked_for},
        "problems": _others(stands.problems, [*inbox.entries, *inbox.acknowledged]),
        "going": going,
        "reasons": {each.ask.number: each.reason for each in obstacles},
        "slots": front.engine.gate.capacity.slots,
        "held": len(front.engine.gate.holders),
        "ended": ended,
        "is_empty": not (stands.entries or stands.unarmed or stands.paused or ended),
        "tags": {
            each.entry: tag_of_entry(await front.service.named(str(each.entry)))
            for each in stands.paused
        },
        "band": await band(asked),
        "Status": Status,
    }
    return Sheet("now.html", "Now", "now", values, every=1 if going else 30)


def _others(problems: Sequence[str], inbox: Sequence[InboxLine]) -> list[str]:
    """Return the problems that are no state of an entry in the inbox."""
    names = [f"{each.title} ({each.origin}) " for each in inbox]

    def is_state(problem: str) -> bool:
        name = next((each for each in names if problem.startswith(each)), None)
        return name is not None and not problem.removeprefix(name).startswith(("cannot ", "waits"))

    return [each for each in problems if not is_state(each)]


async def nodes(asked: PageRequest) -> Sheet:
    rows = node_rows(await asked.front.node_list())
    return Sheet("nodes.html", "Nodes", "nodes", {"nodes": rows}, every=5)


def node_rows(nodes: Iterable[NodeLine]) -> list[dict[str, Any]]:
    times = ("since", "seen_at", "lease_until")
    rows = map(structs.asdict, nodes)
    return [{**row, **{each: parse_rfc3339(row[each]) for each in times}} for row in rows]


VIEWS: Final = (PageView("/", now, "now", "Now"),)
NODES: Final = PageView("/nodes", nodes, "nodes", "Nodes")  # of a cluster
