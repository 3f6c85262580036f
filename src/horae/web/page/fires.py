"""When entries fire: which do from now on, how often, and drawn on a line of time."""

from __future__ import annotations

import math
from datetime import datetime, time, timedelta
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.entry import CronRule, Entry, RepeaterRule
from horae.core.ports import Trait
from horae.core.project import project, stretches
from horae.core.receipt import Status
from horae.sources.board.recycle import is_net
from horae.timing.cron_count import count_any
from horae.timing.repeater import RepeaterKind
from horae.timing.zone import instant, local, zone
from horae.web.page.sheet import DAY, TINY, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from horae.core.ports import Ledger, Listed
    from horae.core.receipt import Filed
    from horae.timing.cron import Cron
    from horae.web.page.sheet import PageTime


async def coming(ledger: Ledger, *, limit: int) -> list[Listed]:
    """Return the entries that come next, and the paused ones that go on by themselves."""
    resting = await ledger.entries_that_are(Trait.PAUSED, limit=limit)
    known = await ledger.coming(limit=limit)
    shown = (each for each in known if not (isinstance(each.item, Entry) and is_net(each.item)))
    return [*shown, *(each for each in resting if each.pause and each.pause.until)]


def firing(found: Listed) -> Entry | None:
    """Return the entry whose moments are shown; None if none are."""
    item = found.item
    is_shown = isinstance(item, Entry) and found.gone_at is None and not is_net(item)
    return item if isinstance(item, Entry) and is_shown else None


def count(entry: Entry, start: datetime, end: datetime) -> int:
    """Return how many moments an entry has after *start*, up to *end*, mostly without a walk."""
    return sum(_count(*each) for each in stretches(entry, start, end))


def _count(entry: Entry, start: datetime, end: datetime) -> int:
    match entry.rule:
        case CronRule(crons):
            return _count_crons(crons, start, end)
        case RepeaterRule(anchor, repeater) if repeater.kind is not RepeaterKind.RESTART:
            return repeater.how_many(anchor, start, end, zone=zone(entry.zone))
    return sum(1 for _ in islice(project(entry, start, end), 10_000))


@lru_cache(maxsize=1 << 16)
def _count_crons(crons: tuple[Cron, ...], start: datetime, end: datetime) -> int:
    # A rule names the same moments whenever it is asked, and a calendar asks for the same days.
    return count_any(crons, start, end)


RECEIPTS: Final = 1000  # in one picture
_GOING: Final = frozenset({Status.STARTING, Status.RUNNING})


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
        """Yield the next moments of an entry from now on."""
        entry = firing(found)
        if entry is not None:
            for each in islice(project(entry, look.now, self.end - TINY), 48):
                yield self.future(found, each.at, is_estimate=each.is_estimate, look=look)

    def future(
        self, found: Listed, at: datetime, *, is_estimate: bool, look: PageTime
    ) -> TimelineMark:
        kind = "estimate" if is_estimate else "coming"
        said = f"{found.mark.title}: {look.short(at)}{', estimated' if is_estimate else ''}"
        return TimelineMark(self.x(at), 0, kind, said, f"/entries/{found.number}")

    def bar(self, filed: Filed, look: PageTime) -> Iterator[TimelineMark]:
        """Yield what became of a receipt: its moment, how late it was, and how long it took."""
        receipt, href = filed.receipt, f"/receipts/{filed.number}"
        at, has_run = receipt.planned_at, bool(filed.attempts or filed.status in _GOING)
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
        """Return the labels under a stretch of time: at most nine round moments."""
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
