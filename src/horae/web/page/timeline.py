"""Timeline: what was planned and what became of it, past and to come in one picture."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from datetime import datetime, time, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.entry import Entry
from horae.core.ports import Ledger, Listed, Trait
from horae.core.project import TINY, Moment, counted, project, stretches
from horae.core.receipt import GOING, RECEIPT_STATUSES, Filed
from horae.sources.board.recycle import is_net
from horae.timing.duration import format_duration, parse_duration
from horae.timing.zone import instant, local
from horae.web.page.sheet import DAY, PageRequest, PageTime, PageView, Sheet, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


async def coming(ledger: Ledger, *, limit: int) -> list[Listed]:
    """Return the entries that come next, and the paused ones that go on by themselves."""
    resting = await ledger.entries_that_are(Trait.PAUSED, limit=limit)
    known = await ledger.coming(limit=limit)
    shown = (each for each in known if not (isinstance(each.item, Entry) and is_net(each.item)))
    return [*shown, *(each for each in resting if each.pause and each.pause.until)]


def firing(found: Listed) -> Entry | None:
    item = found.item
    is_shown = isinstance(item, Entry) and found.gone_at is None and not is_net(item)
    return item if isinstance(item, Entry) and is_shown else None


def count(entry: Entry, start: datetime, end: datetime) -> int:
    """Return how many moments an entry has after *start*, up to *end*, mostly without a walk."""
    found = 0
    for each, low, high in stretches(entry, start, end):
        many = counted(each, low, high)
        found += sum(1 for _ in islice(project(each, low, high), 10_000)) if many is None else many
    return found


RECEIPTS: Final = 1000  # in one picture


class TimelineMark(NamedTuple):
    """Something drawn on a line of time: where in percent, how wide, what, and what it says."""

    x: float
    width: float
    kind: str
    said: str
    href: str = ""


class Scale(NamedTuple):
    start: datetime
    end: datetime

    def x(self, moment: datetime) -> float:
        part = (moment - self.start) / (self.end - self.start)
        return round(100 * min(1.0, max(0.0, part)), 3)

    def tick(self, filed: Filed, look: PageTime) -> TimelineMark:
        at = filed.receipt.planned_at
        said = f"{filed.title}: {say(filed.status)}, {look.short(at)}"
        return TimelineMark(self.x(at), 0, filed.status, said, f"/receipts/{filed.number}")

    def coming(self, found: Listed, look: PageTime) -> Iterator[TimelineMark]:
        entry = firing(found)
        if entry is not None:
            for each in islice(project(entry, look.now, self.end - TINY), 48):
                yield self.future(found, each, look)

    def future(self, found: Listed, moment: Moment, look: PageTime) -> TimelineMark:
        kind, more = ("estimate", ", estimated") if moment.is_estimate else ("coming", "")
        said = f"{found.mark.title}: {look.short(moment.at)}{more}"
        return TimelineMark(self.x(moment.at), 0, kind, said, f"/entries/{found.number}")

    def bar(self, filed: Filed, look: PageTime) -> Iterator[TimelineMark]:
        """Yield what became of a receipt: its moment, how late it was, and how long it took."""
        receipt, href = filed.receipt, f"/receipts/{filed.number}"
        at, has_run = receipt.planned_at, bool(filed.attempts or filed.status in GOING)
        over = (filed.ended_at or look.now) if has_run else receipt.through_at or at
        if over < self.start:
            return
        reason = look.text(receipt.reason)
        said = f"{filed.title}: {say(filed.status)}. Scheduled {look.short(at)}. {reason}"
        if receipt.through_at is not None:
            width = self.x(receipt.through_at) - self.x(at)
            yield TimelineMark(self.x(at), width, f"range {filed.status}", said, href)
            return
        begun = max(filed.decided_at, receipt.start_at)
        if begun > at + timedelta(seconds=1):
            yield TimelineMark(self.x(at), self.x(begun) - self.x(at), "late", said)
        if has_run:
            width = max(0.0, self.x(over) - self.x(begun))
            yield TimelineMark(self.x(begun), width, f"bar {filed.status}", said, href)
        else:
            yield TimelineMark(self.x(at), 0, f"mark {filed.status}", said, href)

    def ticks(self, look: PageTime) -> list[tuple[float, str]]:
        step = next((each for each in _STEPS if (self.end - self.start) / each <= 8), _STEPS[-1])
        wall = local(self.start, look.place)
        midnight = datetime.combine(wall.date(), time.min)
        first = midnight + math.ceil((wall - midnight) / step) * step
        found = []
        for index in range(9):
            at = instant(first + index * step, look.place)
            if at <= self.end:
                shown = local(at, look.place)
                form = f"{shown:%a} {shown.day} {shown:%b}" if step >= DAY else f"{shown:%H:%M}"
                if step < DAY and shown.hour == shown.minute == 0:
                    form = f"{shown:%a} {shown.day}"
                found.append((self.x(at), form))
        return found


_MINUTES: Final = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080, 20160, 43200)
_STEPS: Final = tuple(timedelta(minutes=each) for each in (*_MINUTES, 86400))


ROWS: Final = 60  # entries in a timeline
MARKS: Final = 200  # of one of them; what is more is drawn as one band
ENTRIES: Final = 1000  # that it looks at
_LONGEST_SPAN: Final = timedelta(days=366)
_SHORTEST_SPAN: Final = timedelta(minutes=1)


class _Row(NamedTuple):
    number: int
    title: str
    said: str  # the whole row in words
    marks: list[TimelineMark]


class _TimelineFilter(NamedTuple):
    q: str = ""
    tag: str = ""
    agent: str = ""

    def fits(self, found: Listed, tags: Sequence[str]) -> bool:
        if (self.agent and self.agent not in found.agents) or (self.tag and self.tag not in tags):
            return False
        about = f"{found.mark.title} {found.item.origin} {found.source} {' '.join(tags)}"
        return self.q.casefold() in about.casefold()


async def timeline(asked: PageRequest) -> Sheet:
    look, ledger = asked.look, asked.ledger
    text = asked.text("span")
    span = min(_LONGEST_SPAN, max(_SHORTEST_SPAN, parse_duration(text) if text else DAY))
    start = (asked.moment("from") or look.now - span * 0.4).replace(second=0, microsecond=0)
    scale = Scale(start, start + span)
    filters = _TimelineFilter(asked.text("q"), asked.text("tag"), asked.text("agent"))
    status = asked.status("status")
    since, which = start - span / 8, () if status is None else [status]
    page = await ledger.receipts(since=since, until=scale.end, statuses=which, limit=RECEIPTS)
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
    tags = {number: await asked.context.tags(each) for number, each in shown.items()}
    fitting = [each for each in shown.values() if filters.fits(each, tags[each.number])]
    fitting.sort(key=lambda each: (each.mark.title.casefold(), each.number))
    some = [(each, by_entry[each.number]) for each in fitting[:ROWS]]
    rows = await asyncio.to_thread(lambda: [_row(*each, scale, look) for each in some])
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
        "agents": sorted({name for each in shown.values() for name in each.agents}),
        "status": status,
        "statuses": RECEIPT_STATUSES,
    }
    return Sheet("timeline.html", "Timeline", "timeline", values)


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
            marks += [scale.future(found, each, look) for each in moments]
    was = Counter(say(each.status) for each in filed)
    told = [*(f"{number} {word}" for word, number in was.items()), f"{ahead:,} upcoming"]
    return _Row(found.number, found.mark.title, f"{found.mark.title}: {', '.join(told)}", marks)


VIEWS: Final = (PageView("/timeline", timeline, "timeline", "Timeline"),)
