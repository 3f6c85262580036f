"""Plan: a file as it is written, with the meaning and the problems of each headline."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from horae.app import check
from horae.core.entry import CronRule, Entry, OnceRule, RepeaterRule, Unarmed, anchored_item
from horae.core.project import project
from horae.core.text import moment_text, pause_words, words
from horae.org.document import read
from horae.sources.plans.arming import scan_plan, tasks_of
from horae.web.answer import harmless
from horae.web.page.sheet import FAR, PageRequest, PageTime, PageView, Sheet

FILES: Final = 1000  # in the list of plans
LINES: Final = 2000  # of a plan on one page


async def plans(asked: PageRequest) -> Sheet:
    files = sorted(await asked.context.plans())
    problems = [str(each) for some in asked.front.engine.problems.values() for each in some]
    values: dict[str, object] = {"files": files[:FILES], "more": len(files) - FILES}
    return Sheet("plans.html", "Plan", "plan", {**values, "problems": problems})


async def plan(asked: PageRequest) -> Sheet:
    file, look = asked.path["file"], asked.look
    text = await asked.context.plan(file)
    line = asked.number("line") or 1
    start = max(0, (line - 1) // LINES * LINES)
    here = range(start + 1, start + LINES + 1)
    scanned = await asyncio.to_thread(lambda: scan_plan(read(text), file=file, zone_name=look.zone))
    items = [each.item for each in scanned if each.item.origin.line in here]
    for at, item in enumerate(items):
        if isinstance(item, Entry):
            found = [each for each in await asked.ledger.find(item.address) if not each.gone_at]
            known = next((each.item for each in found if isinstance(each.item, Entry)), item)
            counted = anchored_item(item, now=look.now, was=known)
            if isinstance(counted, Entry):
                items[at] = replace(counted, pause=known.pause, ended_at=known.ended_at)

    def texts() -> list[dict[str, Any]]:
        facts, findings = _facts(text, file, items, look), defaultdict(list)
        for each in check(text, name=file, zone=look.zone, now=look.now):
            findings[each.line].append(each)
        shown = (harmless(each.rstrip("\r")) for each in text.split("\n")[start : start + LINES])
        return [
            {"number": n, "text": each, "facts": facts[n], "findings": findings[n]}
            for n, each in enumerate(shown, start + 1)
        ]

    lines = await asyncio.to_thread(texts)
    first = start + 1 if lines else 1
    values = {"file": file, "lines": lines, "total": text.count("\n") + 1, "here": line}
    values |= {"first": first, "last": first + len(lines) - 1, "most": LINES}
    return Sheet("plan.html", file, "plan", values)


def _facts(
    text: str, file: str, items: Sequence[Entry | Unarmed], look: PageTime
) -> dict[int, list[tuple[str, str]]]:
    facts: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for item in items:
        said = facts[item.origin.line]
        if not isinstance(item, Entry):
            said.append(("off", f"not armed: {item.reason}"))
            continue
        said.append(("rule", words(item.rule, zone_name=item.zone)))
        if item.pause is not None:
            said.append(("off", f"paused{pause_words(item.pause, zone_name=item.zone)}"))
        coming = next(project(item, look.now, look.now + FAR), None)
        if coming is not None:
            said.append(("next", f"next {moment_text(coming.at, item.zone)}"))
        elif item.pause is None and isinstance(item.rule, CronRule | OnceRule | RepeaterRule):
            said.append(("off", "no more runs"))
    for task in tasks_of(read(text), file=file, zone_name=look.zone):
        for what, at in (("scheduled", task.scheduled), ("deadline", task.deadline)):
            if at is not None:
                is_over = what == "deadline" and at < look.now
                word = "overdue since" if is_over else what
                kind = "bad" if is_over else "next"
                facts[task.origin.line].append((kind, f"{word} {look.full(at)}"))
    return facts


VIEWS: Final = (PageView("/plan", plans, "plan", "Plan"), PageView("/plan/{file:path}", plan))
