"""Entry: its rule in words, its next fires, what became of those before, and why."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Final

from horae.core.entry import Entry, Work
from horae.core.explain import entry_policy_words, parse_ask
from horae.core.project import project, seams
from horae.core.receipt import OPEN
from horae.core.text import written_rule
from horae.core.views import EntryLine, RequestError
from horae.timing.phrases import is_phrase
from horae.web.front import tag_of_entry
from horae.web.page.sheet import DAY, FAR, PageRequest, PageView, Sheet
from horae.web.page.timeline import firing


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
    values["schedule"] = ""
    values["forecast"] = None
    is_planned = found.source == "org" and found.gone_at is None
    values["can_schedule"] = is_planned and asked.front.root is not None
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
        if is_phrase(found.mark.rule) and found.source == "org":
            values["schedule"] = f"{found.mark.rule} means {written_rule(item.rule)}"
    busy = any(each.status in OPEN for each in history.receipts)
    return Sheet("entry.html", line.title, "", values, every=2 if busy else 30)


async def why(asked: PageRequest) -> Sheet:
    found = await asked.front.service.named(asked.path["entry"])
    at = asked.text("at")
    ask = parse_ask(f"{found.number}@{at}") if at else parse_ask(str(found.number))
    if at and ask.start is None:
        raise RequestError(f"{at!r} is not a time; write it like 2026-04-01T09:00 or 2026-04-01")
    why = await asked.front.why(ask, limit=20)
    return Sheet("why.html", f"Why: {why.entry.title}", "", {"why": why, "at": at})


_PATH: Final = "/entries/{entry:path}"
VIEWS: Final = (PageView(f"{_PATH}/why", why), PageView(_PATH, entry))
