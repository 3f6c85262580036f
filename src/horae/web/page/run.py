"""Run: a receipt and its attempts, the steps of a run as a graph, and its log."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from horae.core.budget import cost_text
from horae.core.explain import filed_policy_words
from horae.core.receipt import BAD, OPEN
from horae.core.text import size_text
from horae.process.logs import RunLog, steps_in
from horae.web.page.sheet import PageRequest, PageView, Sheet, plain, say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from horae.web.front import Front


STEPS: Final = 60  # of a run
TAIL: Final = 8 << 10  # bytes of a log that a page begins with


class Box(NamedTuple):
    name: str
    status: str
    x: int
    y: int
    said: str


class Steps(NamedTuple):
    """The steps of a run as a graph; each line leads from one to one that took its output."""

    boxes: list[Box]
    lines: list[str]
    width: int
    height: int
    more: int


async def receipt(asked: PageRequest) -> Sheet:
    return await _record(asked.front, asked.path_number, None)


async def run(asked: PageRequest) -> Sheet:
    found = await asked.front.service.run_of(asked.path_number)
    return await _record(asked.front, found.receipt, found.number)


async def _record(front: Front, number: int, chosen: int | None) -> Sheet:
    line, filed = await front.service.receipt(number), await front.service.filed(number)
    runs = {run.number: run for run in await front.service.ledger.runs_of(number)}
    run = runs.get(chosen) if chosen is not None else next(reversed(runs.values()), None)
    values: dict[str, object] = {"line": line, "filed": filed, "runs": [*runs.values()]}
    values |= {"run": run, "log": [], "log_steps": [], "steps": None, "facts": [], "diff": ""}
    values["policy"] = filed_policy_words(filed, zone_name=line.zone)
    values["is_open"] = filed.status in OPEN
    values["is_bad"] = filed.status in BAD
    if run is not None:
        log = await asyncio.to_thread(tail, front.log_of(run), TAIL)
        left_out = run.facts.get("left_out")
        values |= {"log": log.text.splitlines(), "is_whole": log.is_whole and not left_out}
        steps = await asyncio.to_thread(RunLog(front.log_of(run)).steps)
        values["log_steps"] = [each.line for each in steps]
        values["left_out"] = _bytes(left_out) if left_out else ""
        record = run.facts.get("record")
        values["steps"] = graph(record) if isinstance(record, dict) else None
        told = []
        for name, value in run.facts.items():
            if name not in _UNTOLD and value not in (None, "", 0, {}, []):
                word, form = _FACTS.get(name, (name.replace("_", " "), str))
                told.append((word, form(value)[:500]))
        values |= {"facts": told, "diff": run.facts.get("diff", "")}
    title = f"{line.title} · {say(filed.status)}"
    return Sheet("receipt.html", title, "", values, every=1 if filed.status in OPEN else 60)


def _bytes(value: Any) -> str:
    return size_text(value) if isinstance(value, int) else str(value)


# What the record says elsewhere, or what only the engine needs to know.
_UNTOLD: Final = frozenset({"record", "seconds", "tail", "why", "diff", "undelivered"})
_FACTS: Final[Mapping[str, tuple[str, Callable[[Any], str]]]] = {
    "max_rss": ("peak memory", _bytes),
    "output": ("output", _bytes),
    "left_out": ("output left out", _bytes),
    "cpu_seconds": ("CPU time", lambda value: f"{value} s"),
    "cost": ("cost", cost_text),
}


def graph(record: Mapping[str, Any]) -> Steps | None:
    found = list(islice(steps_in(record), STEPS + 1000))
    steps, more = found[:STEPS], max(0, len(found) - STEPS)
    if not steps:
        return None
    boxes: dict[str, Box] = {}
    lines: list[str] = []
    for number, step in enumerate(steps):
        name, after = str(step.get("name")), step.get("after")
        before = boxes.get(str(after)) if after else None
        column = 0 if before is None else (before.x - 10) // 190 + 1
        took = step.get("seconds")
        time = f"{took:.1f} s" if isinstance(took, float | int) else ""
        told = (str(step.get("lang") or ""), say(step.get("status")), time)
        said = ", ".join(each for each in (*told, str(step.get("error") or "")[:200]) if each)
        short = name if len(name) <= 22 else f"{name[:21]}…"
        x, y = 10 + 190 * min(column, 12), 10 + 44 * number
        boxes[name] = Box(short, str(step.get("status")), x, y, said)
        if before is not None and before.x < x:
            x1, y1, x2, y2 = before.x + 160, before.y + 16, x, y + 16
            half = (x1 + x2) // 2
            lines.append(f"M{x1} {y1}C{half} {y1} {half} {y2} {x2} {y2}")
    width = max(box.x for box in boxes.values()) + 180
    return Steps(list(boxes.values()), lines, width, 10 + 44 * len(steps), more)


class Tail(NamedTuple):
    text: str
    is_whole: bool  # whether nothing was left out of the log so far


def tail(path: Path, most: int) -> Tail:
    log = RunLog(path)
    data, start = log.last(most)
    if start:
        data = data[data.find(b"\n") + 1 :]
    return Tail(plain(data), is_whole=not log.gaps())


VIEWS: Final = (PageView("/receipts/{number}", receipt), PageView("/runs/{number}", run))
