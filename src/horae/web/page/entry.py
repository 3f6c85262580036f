"""Entry: its rule and who wrote it, what it runs, its next fires, its past, and why."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.agent import read_order
from horae.core.entry import Entry, Work
from horae.core.explain import entry_policy_words, parse_ask, policy_parts
from horae.core.inbox import EntryState
from horae.core.project import project, seams
from horae.core.receipt import BAD, ENDS, OPEN, RECEIPT_STATUSES
from horae.core.text import written_rule
from horae.core.views import EntryLine, RequestError, entry_row
from horae.org.document import read
from horae.sources.plans.routes import schedule_kind
from horae.timing.cron import is_phrase
from horae.web.front import tag_of_entry
from horae.web.page.agent import agent_facts
from horae.web.page.run import chain_of
from horae.web.page.sheet import DAY, FAR, PageRequest, PageTime, PageView, Sheet, rough, say
from horae.web.page.timeline import firing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from horae.core.views import EndMark

TREND: Final = 60  # ends


async def entry(asked: PageRequest) -> Sheet:
    look, service = asked.look, asked.front.service
    found = await service.named(asked.path["entry"])
    line: EntryLine = await service.entry(str(found.number))
    status = asked.status("status")
    which, cursor = [] if status is None else [status], asked.number("cursor")
    history = await service.history(str(found.number), limit=30, cursor=cursor, statuses=which)
    item = found.item
    values: dict[str, object] = {"line": line, "history": history, "status": status}
    values |= {"fires": [], "changes": [], "policy": "", "is_agent": False, "item": None}
    values |= {"schedule": "", "cannot_run": await service.cannot_run(found)}
    values |= {"forecast": None, "text": "", "policies": [], "trend": None, "blame": None}
    values |= {"agent": None, "statuses": RECEIPT_STATUSES}
    values["can_schedule"] = schedule_kind(found) is not None and asked.front.root is not None
    values["tags"] = await asked.context.tags(found)
    values["tag"] = tag_of_entry(found)
    if isinstance(item, Entry):
        shown = firing(found)
        fires = await asyncio.to_thread(
            lambda: list(islice(project(shown, look.now, look.now + FAR), 10)) if shown else []
        )
        met = seams(item.rule, zone_name=item.zone, start=look.now, end=look.now + 366 * DAY)
        values |= {"fires": fires, "changes": [str(each) for each in islice(met, 5)]}
        values |= {"policy": entry_policy_words(item), "item": item}
        coming = await service.forecast(str(found.number), days=30)
        values["forecast"] = next(iter(coming.rows), None)
        values["is_agent"] = item.work is Work.TICK
        text = await asked.ledger.text(item.digest) or ""
        values["text"] = read_order(text).template.strip("\n")
        ends = await asked.ledger.receipts(entry=found.number, statuses=ENDS, limit=TREND)
        row = entry_row(found, item.zone, EntryState.ARMED, ends.receipts)
        values["trend"] = trend(row.ends, look)
        values["blame"] = await asked.context.blame(found)
        if item.agents or values["is_agent"]:
            values["agent"] = await agent_facts(asked, found, item.agents or (line.title,))
        agent = values["agent"]
        known = agent["definition"] if isinstance(agent, dict) else None
        values["policies"] = policy_origins(item, found.source, text, known)
        headlines = read(text).headlines if text.startswith("*") else []
        written = headlines[0].props.get("SCHEDULE", "") if headlines else ""
        if is_phrase(written):
            values["schedule"] = f"{written} means {written_rule(item.rule, zone_name=item.zone)}"
    newest = history.receipts[0].receipt if history.receipts and cursor is None else None
    values |= {"newest": newest, "chain": newest and await chain_of(asked.front, newest)}
    busy = any(each.status in OPEN for each in history.receipts)
    return Sheet("entry.html", line.title, "", values, every=2 if busy else 30)


class TrendBar(NamedTuple):
    x: float  # in percent, as the width
    height: float  # of 100
    status: str
    receipt: int
    said: str


class Trend(NamedTuple):
    """How the last runs ended, and how long they took."""

    bars: list[TrendBar]
    width: float
    longest: timedelta
    usual: timedelta
    good: int  # of 100


def trend(ends: Sequence[EndMark], look: PageTime) -> Trend | None:
    if len(ends) < 2:
        return None
    lengths = sorted(each.seconds or 0.0 for each in ends)
    longest, width = lengths[-1], 100 / max(20, len(ends))
    bars = []
    for place, each in enumerate(ends):
        took = each.seconds or 0.0
        height = max(6.0, 100 * took / longest) if longest else 100.0
        said = f"{say(each.status)}, {look.short(each.planned_at)}"
        said += f", {rough(timedelta(seconds=took))}" if each.seconds is not None else ""
        at = round(place * width, 2)
        bars.append(TrendBar(at, round(height, 1), each.status, each.receipt, said))
    good = round(100 * sum(each.status not in BAD for each in ends) / len(ends))
    usual = timedelta(seconds=lengths[len(lengths) // 2])
    return Trend(bars, round(width * 0.8, 2), timedelta(seconds=longest), usual, good)


def policy_origins(
    entry: Entry, source: str, text: str, definition: tuple[str, str] | None
) -> list[tuple[str, str]]:
    """Return each property of a policy that is no default, in words, and where it is set."""
    rest = {"org": "above it", "crew": "settings"}.get(source, "set here")
    origins = dict.fromkeys(_keys(definition[1]), definition[0]) if definition else {}
    origins |= dict.fromkeys(_keys(text), "set here")
    parts = policy_parts(entry.policy, zone_name=entry.zone)
    return [
        (words, origins.get(each.key, rest))
        for each, words in parts
        if each.of(entry.policy) != each.default
    ]


def _keys(text: str) -> set[str]:
    headlines = read(text).headlines
    return {*headlines[0].props} if headlines else set()


async def why(asked: PageRequest) -> Sheet:
    found = await asked.front.service.named(asked.path["entry"])
    at = asked.text("at")
    ask = parse_ask(f"{found.number}@{at}") if at else parse_ask(str(found.number))
    if at and ask.start is None:
        raise RequestError(f"{at!r} is not a time; write it like 2026-04-01T09:00 or 2026-04-01")
    why = await asked.front.why(ask, limit=20)
    told = [each.receipt for each in why.answers if each.receipt is not None]
    chains = {number: await chain_of(asked.front, number) for number in told}
    values = {"why": why, "at": at, "chains": chains}
    return Sheet("why.html", f"Why: {why.entry.title}", "", values)


_PATH: Final = "/entries/{entry:path}"
VIEWS: Final = (PageView(f"{_PATH}/why", why), PageView(_PATH, entry))
