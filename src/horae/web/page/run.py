"""Run: a receipt and its attempts, the steps of a run to scale, and its log."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from horae.core.budget import cost_text
from horae.core.chain import ChainStep, chain
from horae.core.explain import approval_way, filed_policy_words
from horae.core.receipt import OPEN, WAITS, steps_in
from horae.core.text import size_text
from horae.process.logs import RunLog
from horae.web.page.sheet import PageRequest, PageView, Sheet, plain, rough, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from horae.core.ports import RunSpan
    from horae.web.front import Front


STEPS: Final = 60  # of a run
_LONGEST: Final = 1e9  # seconds of a step
TAIL: Final = 8 << 10  # bytes of a log that a page begins with


class StepRow(NamedTuple):
    """A step of a run: when it ran in percent of all of them, and where its output begins."""

    name: str
    status: str
    x: float
    width: float
    said: str
    line: int | None


class Gantt(NamedTuple):
    rows: list[StepRow]
    length: timedelta
    more: int


async def receipt(asked: PageRequest) -> Sheet:
    return await _record(asked.front, asked.path_number, None)


async def run(asked: PageRequest) -> Sheet:
    found = await asked.front.service.run_of(asked.path_number)
    return await _record(asked.front, found.receipt, found.number)


async def chain_of(front: Front, number: int) -> list[ChainStep]:
    """Return what happened to a receipt, step by step."""
    filed, ledger, now = await front.service.filed(number), front.service.ledger, front.clock.now()
    runs = await ledger.runs_of(number)
    others: list[RunSpan] = []
    if runs or filed.status in WAITS:  # what it waits for may have been due long before
        since, until = filed.decided_at - timedelta(days=1), runs[0].started_at if runs else now
        others = await ledger.spans(since=since, until=until, limit=500)
    obstacles = front.engine.gate.obstacles(now=now) if filed.status in WAITS else ()
    obstacle = next((str(each.reason) for each in obstacles if each.ask.number == number), "")
    return chain(filed, runs, now=now, others=others, obstacle=obstacle)


async def _record(front: Front, number: int, chosen: int | None) -> Sheet:
    line, filed = await front.service.receipt(number), await front.service.filed(number)
    runs = {run.number: run for run in await front.service.ledger.runs_of(number)}
    run = runs.get(chosen) if chosen is not None else next(reversed(runs.values()), None)
    values: dict[str, object] = {"line": line, "filed": filed, "runs": [*runs.values()]}
    values |= {"run": run, "log": [], "log_steps": [], "steps": None, "facts": [], "diff": ""}
    values["policy"] = filed_policy_words(filed, zone_name=line.zone)
    values["chain"] = await chain_of(front, number)
    values |= {"is_open": filed.status in OPEN, "is_asked": bool(approval_way(filed))}
    if run is not None:
        log = await asyncio.to_thread(tail, front.log_of(run), TAIL)
        left_out = run.facts.get("left_out")
        values |= {"log": log.text.splitlines(), "is_whole": log.is_whole and not left_out}
        steps = await asyncio.to_thread(RunLog(front.log_of(run)).steps)
        values["log_steps"] = [each.line for each in steps]
        begins = {each.name: each.line for each in steps}
        values["left_out"] = _bytes(left_out) if left_out else ""
        record = run.facts.get("record")
        values["steps"] = gantt(record, begins) if isinstance(record, dict) else None
        parts = [("", run.facts), *(_agents_in(record) if isinstance(record, dict) else ())]
        values["facts"] = [each for whose, facts in parts for each in _told(whose, facts)]
        values["diff"] = "\n".join(str(facts["diff"]) for _, facts in parts if facts.get("diff"))
    title = f"{line.title} · {say(filed.status)}"
    return Sheet("receipt.html", title, "", values, every=1 if filed.status in OPEN else 60)


def _agents_in(record: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the steps of a workflow that ran agents, with the facts of these runs."""
    for step in islice(steps_in(record), STEPS):
        if isinstance(facts := step.get("facts"), dict):
            yield f"{step.get('name')}: ", facts


def _told(whose: str, facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        is_told = name not in _UNTOLD and not (whose and name in _MEASURED)
        if is_told and value not in (None, "", 0, {}, []):
            word, form = _FACTS.get(name, (name.replace("_", " "), fact_text))
            yield f"{whose}{word}", form(value)[:500]


def _bytes(value: Any) -> str:
    return size_text(value) if isinstance(value, int) else str(value)


def fact_text(value: Any) -> str:
    """Return a value for people.

    >>> [fact_text(each) for each in (True, 12834, ["tail", "-n", "1"], {"mode": "deny"})]
    ['yes', '12,834', 'tail, -n, 1', 'mode: deny']
    """
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case dict():
            return "; ".join(f"{name}: {fact_text(each)}" for name, each in value.items())
        case list() | tuple():
            return ", ".join(map(fact_text, value))
    return str(value)


# What the record says elsewhere, or what only the engine needs to know.
_UNTOLD: Final = frozenset({"record", "seconds", "tail", "why", "diff", "undelivered"})
_MEASURED: Final = frozenset({"max_rss", "output", "left_out", "cpu_seconds", "account"})
_FACTS: Final[Mapping[str, tuple[str, Callable[[Any], str]]]] = {
    "max_rss": ("peak memory", _bytes),
    "output": ("output", _bytes),
    "text": ("answer", str),
    "left_out": ("output left out", _bytes),
    "cpu_seconds": ("CPU time", lambda value: f"{value} s"),
    "cost": ("cost", cost_text),
    "edits": ("without uncommitted edits of", fact_text),
    "branch": ("work kept on", fact_text),
}


def gantt(record: Mapping[str, Any], lines: Mapping[str, int]) -> Gantt | None:
    """Return the steps of a run to scale; without its times a step follows what it waited for."""
    found = list(islice(steps_in(record), STEPS + 1000))
    ends: dict[str, float] = {}
    spans: list[tuple[float, float] | None] = []
    begins = [at for each in found if (at := _seconds(each.get("started"))) is not None]
    first = min(begins, default=0.0)
    for step in found[:STEPS]:
        start, took = _seconds(step.get("started")), step.get("seconds")
        length = float(took) if isinstance(took, float | int) and 0 <= took < _LONGEST else None
        finished = _seconds(step.get("finished"))
        if start is not None and finished is not None:
            length = max(0.0, finished - start)
        begin = start - first if start is not None else ends.get(str(step.get("after")), 0.0)
        spans.append(None if length is None else (begin, length))
        ends[str(step.get("name"))] = begin + (length or 0.0)
    if not spans:
        return None
    whole = max((begin + length for begin, length in filter(None, spans)), default=0.0) or 1.0
    rows = []
    for step, span in zip(found, spans, strict=False):
        name, after = str(step.get("name")), step.get("after")
        begin, length = span or (0.0, 0.0)
        told = [str(step.get("lang") or ""), say(step.get("status"))]
        told += [rough(timedelta(seconds=length))] if span else []
        told += [f"after {str(after)[:100]}"] if after else []
        told += [str(step.get("error"))[:200]] if step.get("error") else []
        x, width = round(100 * begin / whole, 2), round(100 * length / whole, 2)
        said = ", ".join(filter(None, told))
        rows.append(StepRow(name, str(step.get("status")), x, width, said, lines.get(name)))
    return Gantt(rows, timedelta(seconds=whole), max(0, len(found) - STEPS))


def _seconds(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return None


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
