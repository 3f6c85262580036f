"""Calendar: the days as today's rules have them, a month, a week, and one day in full."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter, defaultdict
from datetime import date, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.explain import Window, nearest
from horae.core.project import TINY, project
from horae.core.receipt import BAD, Filed, Status
from horae.core.views import RequestError
from horae.timing.zone import local
from horae.web.page.sheet import DAY, PageRequest, PageTime, PageView, Sheet
from horae.web.page.timeline import RECEIPTS, coming, count, firing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from horae.core.ports import Listed

DAYS: Final = 300  # entries that a calendar looks at
FEW: Final = 4  # so many fires of one entry on one day have a line each, as in an agenda
_WALKED: Final = 100  # moments of one entry in a month that are walked before they are counted
_MONTH: Final = re.compile(r"(\d{4})-(\d\d)", re.ASCII)


class DayLine(NamedTuple):
    at: datetime
    file: str
    line: int
    title: str
    entry: int
    what: str
    through: datetime | None = None
    times: int = 1


def day_lines(
    found: Listed, day: tuple[datetime, datetime], *, after: datetime
) -> Iterator[DayLine]:
    """Yield the fires of an entry on a day after a moment; those of a busy day as one line."""
    entry = firing(found)
    if entry is None:
        return
    start, end = max(day[0] - TINY, after), day[1] - TINY
    first = list(islice(project(entry, start, end), FEW + 1))

    def line(index: int) -> DayLine:
        what = "estimate" if first[index].is_estimate else "fires"
        origin = entry.origin
        at = first[index].at
        return DayLine(at, origin.file, origin.line, entry.title, found.number, what)

    if len(first) <= FEW:
        yield from map(line, range(len(first)))
        return
    known = first[-1].at
    through, _ = nearest(entry, Window(end + TINY, end + TINY))
    if through is None:
        rest = islice(project(entry, known, end), 10_000)
        through = max((each.at for each in rest), default=known)
    yield line(0)._replace(through=through, times=count(entry, start, end))


class _Cell(NamedTuple):
    day: date
    times: int
    heat: int
    is_here: bool  # in this month
    ends: Sequence[tuple[str, int, float]] = ()  # what became of it: how often, and percent

    @property
    def often(self) -> str:
        """How often anything fires, in the few signs that a day of a month has room for.

        >>> day = date(2026, 6, 6)
        >>> [_Cell(day, times, 1, True).often for times in (0, 7, 9_999, 29_327, 2_592_000)]
        ['', '7', '9,999', '29k', '2592k']
        """
        if self.times < 10_000:
            return f"{self.times:,}" if self.times else ""
        return f"{self.times // 1000}k"


async def calendar(asked: PageRequest) -> Sheet:
    look = asked.look
    is_week = asked.text("view") == "week"
    day = asked.day("day")
    month = (day or look.today).replace(day=1)
    if text := asked.text("month"):
        found = _MONTH.fullmatch(text)
        if found is None or not 1 <= int(found[2]) <= 12 or not 100 < int(found[1]) < 9900:
            raise RequestError(f"month must look like 2026-06, not {text!r}")
        month = date(int(found[1]), int(found[2]), 1)
    known = await coming(asked.ledger, limit=DAYS)
    values: dict[str, object] = {"is_week": is_week, "today": look.today, "month": month}
    values |= {"is_cut": len(known) >= DAYS, "day": day}
    if is_week:
        monday = (day or look.today) - timedelta(days=(day or look.today).weekday())
        days = [monday + timedelta(days=index) for index in range(7)]
        lines = await asyncio.to_thread(_lines_by_day, known, days, look)
        week = [(each, await _happened(asked, each), lines[each]) for each in days]
        values |= {"week": week, "monday": monday}
        values |= {"before": monday - timedelta(days=7), "after": monday + timedelta(days=7)}
    else:
        shown = day or (look.today if month == look.today.replace(day=1) else month)
        lines = await asyncio.to_thread(_lines_by_day, known, [shown], look)
        values |= {
            "weeks": await asyncio.to_thread(_weeks, known, month, look, await _ends(asked, month)),
            "before": (month - timedelta(days=1)).replace(day=1),
            "after": (month + timedelta(days=32)).replace(day=1),
            "day": shown,
            "lines": lines[shown],
            "happened": await _happened(asked, shown),
        }
    return Sheet("calendar.html", "Calendar", "calendar", values)


_QUARTER: Final = timedelta(minutes=15)  # with which every day of every zone begins and ends
_OUTCOMES: Final = {
    **dict.fromkeys((Status.DONE, Status.NO_WORK), "done"),
    **dict.fromkeys(BAD, "failed"),
    Status.MISSED: "missed",
    **dict.fromkeys((Status.SKIPPED, Status.COALESCED), "skipped"),
}


async def _ends(asked: PageRequest, month: date) -> dict[date, list[tuple[str, int, float]]]:
    """Return what became of each day around a month: by outcome, of all its receipts."""
    look, first = asked.look, month - timedelta(days=month.weekday())
    since, until = look.begin(first), min(look.now, look.begin(first + 42 * DAY))
    found: dict[date, Counter[str]] = defaultdict(Counter)
    if since < until:
        parts = await asked.ledger.outcomes(since=since, until=until, step=_QUARTER)
        for at, status, times in parts:
            if status in _OUTCOMES:
                found[local(at, look.place).date()][_OUTCOMES[status]] += times
    order = dict.fromkeys(_OUTCOMES.values())
    return {
        day: [(kind, n, round(100 * n / ends.total(), 1)) for kind in order if (n := ends[kind])]
        for day, ends in found.items()
    }


def _weeks(
    known: Sequence[Listed],
    month: date,
    look: PageTime,
    ends: Mapping[date, Sequence[tuple[str, int, float]]],
) -> list[list[_Cell]]:
    first = month - timedelta(days=month.weekday())
    days = [first + timedelta(days=index) for index in range(42)]
    times = _times_by_day(known, days, look)
    top = max(times.values(), default=0)

    def cell(day: date) -> _Cell:
        # By the logarithm: a day with ten thousand fires leaves the others their shades.
        many = times[day]
        heat = 0 if not many else 1 + round(3 * math.log1p(many) / math.log1p(top))
        return _Cell(day, many, heat, day.month == month.month, ends.get(day, ()))

    weeks = [[cell(day) for day in days[index : index + 7]] for index in range(0, 42, 7)]
    return [week for week in weeks if any(cell.is_here for cell in week)]


def _times_by_day(known: Sequence[Listed], days: Sequence[date], look: PageTime) -> Counter[date]:
    times: Counter[date] = Counter()
    start, end = look.begin(days[0]) - TINY, look.begin(days[-1] + DAY) - TINY
    for found in known:
        entry = firing(found)
        if entry is None:
            continue
        since = max(start, found.first_seen_at)
        few = list(islice(project(entry, since, end), _WALKED + 1))
        if len(few) <= _WALKED:
            times.update(local(each.at, look.place).date() for each in few)
            continue
        for day in days:
            begin = max(since, look.begin(day) - TINY)
            times[day] += count(entry, begin, look.begin(day + DAY) - TINY)
    return times


def _lines_by_day(
    known: Sequence[Listed], days: Sequence[date], look: PageTime
) -> dict[date, list[DayLine]]:
    found = {}
    for day in days:
        ends = look.begin(day), look.begin(day + DAY)
        lines = [line for each in known for line in day_lines(each, ends, after=look.now)]
        found[day] = sorted(lines, key=lambda line: (line.at, line.file, line.line))
    return found


class DayHistory(NamedTuple):
    at: datetime
    through: datetime | None
    title: str
    entry: int
    receipt: int
    ends: Sequence[tuple[Status, int]]


async def _happened(asked: PageRequest, day: date) -> list[DayHistory]:
    look = asked.look
    start, end = look.begin(day), look.begin(day + DAY) - TINY
    if start > look.now:
        return []
    page = await asked.ledger.receipts(since=start, until=min(end, look.now), limit=RECEIPTS)
    by_entry: dict[int, list[Filed]] = defaultdict(list)
    for filed in reversed(page.receipts):
        by_entry[filed.entry].append(filed)
    pasts = []
    for some in by_entry.values():
        # The receipts of a busy day are one line.
        for group in [[each] for each in some] if len(some) <= FEW else [some]:
            ends = Counter[Status]()
            for each in group:
                ends[each.status] += each.receipt.count
            first, last = group[0], group[-1]
            through = last.receipt.planned_at if last is not first else first.receipt.through_at
            at, many = first.receipt.planned_at, ends.most_common()
            pasts.append(DayHistory(at, through, first.title, first.entry, last.number, many))
    return sorted(pasts, key=lambda past: (past.at, past.title, past.receipt))


VIEWS: Final = (PageView("/calendar", calendar, "calendar", "Calendar"),)
