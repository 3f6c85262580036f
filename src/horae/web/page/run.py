"""Run: a receipt and its attempts, the steps of a run as a graph, and its log."""

from __future__ import annotations

import asyncio
import os
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from horae.core.explain import filed_policy_words
from horae.core.receipt import BAD, OPEN
from horae.web.page.sheet import PageRequest, PageView, Sheet, plain, say
from horae.web.stream import SEGMENT, opened, segment, segments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from horae.web.router import Front


STEPS: Final = 60  # of a run
TAIL: Final = 256 << 10  # bytes of a log that a page begins with


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
    found = await asked.front.service.run(asked.path_number)
    return await _record(asked.front, found.run.receipt, found.run.number)


async def _record(front: Front, number: int, chosen: int | None) -> Sheet:
    account = await front.service.receipt(number)
    runs = {run.number: run for run in account.runs}
    run = runs.get(chosen) if chosen is not None else next(reversed(account.runs), None)
    filed = account.line.filed
    values: dict[str, object] = {"line": account.line, "filed": filed, "runs": account.runs}
    values |= {"run": run, "log": [], "log_end": 0, "steps": None, "facts": []}
    values["policy"] = filed_policy_words(filed, zone_name=account.line.zone)
    values["is_open"] = filed.status in OPEN
    values["is_bad"] = filed.status in BAD
    if run is not None:
        log = await asyncio.to_thread(tail, front.log_of(run), TAIL)
        left_out = run.facts.get("left_out")
        values |= {"log": log.text.split("\n") if log.text else [], "log_end": log.end}
        values |= {"is_cut": log.start > 0, "is_whole": log.is_whole and not left_out}
        values["left_out"] = _bytes(left_out) if left_out else ""
        record = run.facts.get("record")
        values["steps"] = graph(record) if isinstance(record, dict) else None
        told = []
        for name, value in run.facts.items():
            if name not in _UNTOLD and value not in (None, "", 0, {}, []):
                word, form = _FACTS.get(name, (name.replace("_", " "), str))
                told.append((word, form(value)[:500]))
        values["facts"] = told
    title = f"{account.line.title} · {say(filed.status)}"
    return Sheet("receipt.html", title, "", values, every=1 if filed.status in OPEN else 60)


def _bytes(value: Any) -> str:
    """Return a number of bytes in words.

    >>> _bytes(42), _bytes(7634944), _bytes("many")
    ('42 bytes', '7.3 MiB', 'many')
    """
    if not isinstance(value, int):
        return str(value)
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value} bytes"


# What the record says elsewhere, or what only the engine needs to know.
_UNTOLD: Final = frozenset({"record", "seconds", "tail", "why"})
_FACTS: Final[Mapping[str, tuple[str, Callable[[Any], str]]]] = {
    "max_rss": ("peak memory", _bytes),
    "output": ("output", _bytes),
    "left_out": ("output left out", _bytes),
    "cpu_seconds": ("CPU time", lambda value: f"{value} s"),
    "cost": ("cost", str),
}


def graph(record: Mapping[str, Any]) -> Steps | None:
    found = list(islice(_steps_in(record), STEPS + 1000))
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


def _steps_in(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    waiting: list[Any] = [record]
    while waiting:
        world = waiting.pop()
        if isinstance(world, dict):
            steps, inner = world.get("steps"), world.get("sub_workflows")
            if isinstance(steps, list):
                yield from (each for each in steps if isinstance(each, dict))
            waiting += reversed(inner) if isinstance(inner, list) else ()


class Tail(NamedTuple):
    text: str
    start: int
    end: int
    is_whole: bool  # whether nothing was left out of the log so far


def tail(path: Path, most: int) -> Tail:
    newer = segments(path)
    data, start = _end(segment(path, newer[-1]) if newer else path, most)
    start += newer[-1] * SEGMENT if newer else 0
    if len(newer) > 1 and len(data) < most:  # the newest part has only just begun
        before, _ = _end(segment(path, newer[-2]), most - len(data))
        data, start = before + data, start - len(before)
    end = start + len(data)
    if start:
        cut = data.find(b"\n") + 1
        data, start = data[cut:], start + cut
    return Tail(plain(data), start, end, is_whole=not newer or newer[0] == 1)


def _end(path: Path, most: int) -> tuple[bytes, int]:
    with opened(path) as descriptor:
        if descriptor is None:
            return b"", 0
        start = max(0, os.fstat(descriptor).st_size - most)
        return os.pread(descriptor, most, start), start


VIEWS: Final = (PageView("/receipts/{number}", receipt), PageView("/runs/{number}", run))
