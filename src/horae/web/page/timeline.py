"""Timeline: what was planned and what became of it, past and to come in one picture."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.entry import Entry
from horae.core.project import project
from horae.core.receipt import Status
from horae.timing.duration import format_duration, parse_duration
from horae.web.page.fires import RECEIPTS, Scale, TimelineMark, coming, count, firing
from horae.web.page.sheet import DAY, PageRequest, PageView, Sheet, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from horae.core.ports import Listed
    from horae.core.receipt import Filed
    from horae.web.page.sheet import PageContext, PageTime

ROWS: Final = 60  # entries in a timeline
MARKS: Final = 200  # of one of them; what is more is drawn as one band
ENTRIES: Final = 1000  # that it looks at
_LONGEST_SPAN: Final = timedelta(days=366)
_SHORTEST_SPAN: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class _Row:
    """One entry on the timeline."""

    number: int
    title: str
    said: str  # the whole row in words
    marks: list[TimelineMark] = field(default_factory=list)


class _TimelineFilter(NamedTuple):
    q: str = ""
    tag: str = ""
    agent: str = ""

    def fits(self, found: Listed, tags: Sequence[str]) -> bool:
        if (self.agent and self.agent not in _agents(found)) or (self.tag and self.tag not in tags):
            return False
        about = f"{found.mark.title} {found.item.origin} {found.source} {' '.join(tags)}"
        return self.q.casefold() in about.casefold()


async def timeline(house: PageContext, look: PageTime, request: Request) -> Sheet:
    asked = PageRequest(request)
    span = _span(asked.text("span"))
    start = (asked.moment("from") or look.now - span * 0.4).replace(second=0, microsecond=0)
    scale = Scale(start, start + span)
    filters = _TimelineFilter(asked.text("q"), asked.text("tag"), asked.text("agent"))
    status = asked.status("status")
    ledger = house.ledger
    page = await ledger.receipts(
        since=start - span / 8,
        until=scale.end,
        statuses=() if status is None else [status],
        limit=RECEIPTS,
    )
    by_entry: dict[int, list[Filed]] = defaultdict(list)
    for filed in reversed(page.receipts):
        by_entry[filed.entry].append(filed)
    shown: dict[int, Listed] = {}
    if status is None:
        for each in await coming(ledger, limit=ENTRIES):
            next_at = each.next_at if each.pause is None else each.pause.until
            if next_at is not None and next_at <= scale.end:
                shown[each.number] = each
    for number in by_entry.keys() - shown.keys():
        found = await ledger.entry(number)
        if found is not None:
            shown[number] = found
    tags = {number: await house.tags.of(each) for number, each in shown.items()}
    fitting = [each for each in shown.values() if filters.fits(each, tags[each.number])]
    fitting.sort(key=lambda each: (each.mark.title.casefold(), each.number))
    rows = await asyncio.to_thread(
        lambda: [_row(each, by_entry[each.number], scale, look) for each in fitting[:ROWS]]
    )
    values: dict[str, object] = {
        "rows": rows,
        "more": len(fitting) - len(rows),
        "is_cut": page.cursor is not None,
        "ticks": scale.ticks(look),
        "now_x": scale.x(look.now) if scale.start < look.now < scale.end else None,
        "start": scale.start,
        "end": scale.end,
        "span": format_duration(span),
        "spans": ("1h", "6h", "1d", "1w", "30d"),
        "is_fixed": bool(asked.text("from")),
        "filters": filters,
        "tags": sorted({tag for some in tags.values() for tag in some}, key=str.casefold),
        "agents": sorted({name for each in shown.values() for name in _agents(each)}),
        "status": status,
        "statuses": list(Status),
    }
    return Sheet("timeline.html", "Timeline", "timeline", values)


def _span(text: str) -> timedelta:
    span = parse_duration(text) if text else DAY
    return min(_LONGEST_SPAN, max(_SHORTEST_SPAN, span))


def _agents(found: Listed) -> tuple[str, ...]:
    return found.item.agents if isinstance(found.item, Entry) else ()


def _row(found: Listed, filed: Sequence[Filed], scale: Scale, look: PageTime) -> _Row:
    marks = [mark for each in filed for mark in scale.bar(each, look)]
    item, ahead = firing(found), 0
    if item is not None:
        since = max(look.now, scale.start)
        moments = list(islice(project(item, since, scale.end), MARKS + 1))
        ahead = len(moments)
        if ahead > MARKS:
            ahead = count(item, since, scale.end)
            left = scale.x(moments[0].at)
            said = f"{found.mark.title}: {ahead:,} upcoming runs"
            marks.append(TimelineMark(left, 100 - left, "dense", said, f"/entries/{found.number}"))
        else:
            marks += [
                scale.future(found, each.at, is_estimate=each.is_estimate, look=look)
                for each in moments
            ]
    was = Counter(say(each.status) for each in filed)
    told = [f"{number} {word}" for word, number in was.items()]
    told.append(f"{ahead:,} upcoming")
    return _Row(found.number, found.mark.title, f"{found.mark.title}: {', '.join(told)}", marks)


VIEWS: Final = (PageView("/timeline", timeline, "timeline", "Timeline"),)
