"""Agents: each agent's day as a loop, where it stands in it, and how its last ticks ended."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.entry import Entry
from horae.core.explain import length_text
from horae.core.receipt import ENDS, Filed
from horae.core.service import TROUBLES
from horae.errors import HoraeError
from horae.files.read import PlanFileError, read_plan
from horae.sources.crew.lifecycle import Lifecycle, parse_lifecycle
from horae.sources.crew.rules import parse_crew, read_memory
from horae.web.page.sheet import PageRequest, PageView, Sheet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from horae.core.ports import Ledger, Listed
    from horae.core.views import AgentLine


class Node(NamedTuple):
    name: str
    x: float
    y: float
    label_x: float
    label_y: float
    anchor: str
    is_here: bool
    is_rest: bool
    said: str
    hits: str


class Ring(NamedTuple):
    nodes: list[Node]
    ways: list[str]
    said: str


class _AgentRow(NamedTuple):
    line: AgentLine
    ring: Ring | None
    trouble: str
    ends: Sequence[Filed]
    carry: str
    cannot_run: str
    cost: int  # of its last ticks, in millionths of a dollar


async def crew(asked: PageRequest) -> Sheet:
    front, ledger = asked.front, asked.ledger
    stands = await front.service.status(front.facts(), limit=40)
    agents = []
    for line in stands.agents:
        found = await ledger.entry(line.entry)
        if found is None:
            continue
        page = await ledger.receipts(entry=found.number, statuses=ENDS, limit=24)
        ring, trouble = None, ""
        try:
            day = await _day(ledger, found, asked.context.root)
        except PlanFileError as error:
            day, trouble = None, str(error.below(asked.context.root or ""))
        except HoraeError as error:
            day, trouble = None, str(error)
        if day is not None:
            at = line.lifecycle
            here, hits = (at.state, at.hits) if at else (None, 0)
            ring = draw(day, here=here, hits=hits)
        carry = read_memory(found.memory).carry
        said = f"{line.agent} ({line.origin}) cannot run: "
        odd = (each.removeprefix(said) for each in stands.problems if each.startswith(said))
        cannot = next(odd, "")
        used = await ledger.costs_of([each.number for each in page.receipts])
        cost = sum(each.cost or 0 for each in used.values())
        agents.append(_AgentRow(line, ring, trouble, page.receipts[::-1], carry, cannot, cost))
    busy = any(each.line.running for each in agents)
    return Sheet(
        "crew.html",
        "Agents",
        "agents",
        {"agents": agents, "words": TROUBLES},
        every=2 if busy else 15,
    )


async def _day(ledger: Ledger, found: Listed, root: Path | None) -> Lifecycle | None:
    item = found.item
    text = await ledger.text(item.digest) if isinstance(item, Entry) else None
    members = () if text is None else parse_crew(text, item.origin.file).members
    if not members or members[0].lifecycle is None:
        return None
    path = (root or Path()) / Path(item.origin.file).parent / members[0].lifecycle
    plan = await asyncio.to_thread(read_plan, path)
    return parse_lifecycle(plan.text, str(path)).lifecycle


def draw(day: Lifecycle, *, here: str | None, hits: int = 0) -> Ring:
    order: list[str] = []
    for first in (day.start, *day.states):
        name = first
        while name not in order:
            order.append(name)
            name = day.states[name].next
    order = order[:24]
    now = here if here in day.states else day.start
    angles = {name: math.tau * n / len(order) - math.pi / 2 for n, name in enumerate(order)}
    places = {
        name: (round(180 + 78 * math.cos(angle), 1), round(120 + 78 * math.sin(angle), 1))
        for name, angle in angles.items()
    }
    nodes = []
    for name, angle in angles.items():
        state, (x, y) = day.states[name], places[name]
        side = math.cos(angle)
        anchor = "middle" if abs(side) < 0.3 else "start" if side > 0 else "end"
        drop = 4 if abs(side) >= 0.3 else -20 if math.sin(angle) < 0 else 30
        done = f"{hits if name == now else 0}/{state.repeat}" if state.repeat > 1 else ""
        gate = f", at most every {length_text(state.min_interval)}" if state.min_interval else ""
        said = f"{name}: {'rest' if state.kind == 'rem' else 'wake'}"
        said += f", {state.repeat} times" if state.repeat > 1 else ""
        label_x = x if anchor == "middle" else x + (20 if side > 0 else -20)
        text = name if len(name) <= 18 else f"{name[:17]}…"
        label = (round(label_x, 1), round(y + drop, 1), anchor)
        said, is_rest = f"{said}{gate}, then {state.next}", state.kind == "rem"
        nodes.append(Node(text, x, y, *label, name == now, is_rest, said, done))
    pairs = ((places[name], places.get(day.states[name].next)) for name in order)
    ways = [_way(a, b) for a, b in pairs if b is not None and a != b]
    told = " → ".join(order[:12])
    return Ring(nodes, ways, f"Lifecycle: {told}, then repeats. Current state: {now}.")


def _way(a: tuple[float, float], b: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = a, b
    length = math.hypot(x2 - x1, y2 - y1)
    ux, uy = (x2 - x1) / length, (y2 - y1) / length
    sx, sy, ex, ey = x1 + 16 * ux, y1 + 16 * uy, x2 - 19 * ux, y2 - 19 * uy
    bend = 0.16 * length
    mx, my = (sx + ex) / 2 + bend * uy, (sy + ey) / 2 - bend * ux
    return f"M{sx:.1f} {sy:.1f}Q{mx:.1f} {my:.1f} {ex:.1f} {ey:.1f}"


VIEWS: Final = (PageView("/crew", crew, "agents", "Agents"),)
