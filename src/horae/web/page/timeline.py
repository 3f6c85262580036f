"""Timeline: one picture of time, from a year down to ten minutes, past and to come."""

from __future__ import annotations

import asyncio
import json
import math
from bisect import bisect
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import accumulate, groupby, islice, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from urllib.parse import urlencode

from horae.core.entry import Entry, is_net
from horae.core.explain import Window as WhyWindow, nearest
from horae.core.ports import (
    EVERY,
    Ledger,
    Listed,
    OutcomeCount,
    ReceiptFilter,
    RunSpan,
    Trait,
)
from horae.core.project import TINY, Moment, counted, project, stretches
from horae.core.receipt import BAD, OPEN, RECEIPT_STATUSES, WAITS, Status
from horae.core.views import RequestError
from horae.timing.duration import parse_duration
from horae.timing.zone import local
from horae.web.page.sheet import DAY, PageRequest, PageTime, PageView, Sheet, rough, say
from horae.web.page.window import INNER, ZOOMS, Window

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ENTRIES: Final = 1000  # whose next times a picture looks at
MARKS: Final = 600  # receipts in a picture; more are counted by parts of its time
PACKED: Final = 100_000  # that are packed into slots
ROWS: Final = 60  # lanes; the others share the last one
LINES: Final = 200  # of a day in words, past and to come each
FEW: Final = 4  # so many fires of one entry on one day have a line each, as in an agenda
_WALKED: Final = 100  # moments of one entry that are walked before they are counted
_MINUTE: Final = timedelta(minutes=1)


async def coming(ledger: Ledger, *, limit: int) -> list[Listed]:
    """Return the entries that come next, and the paused ones that go on by themselves."""
    resting = await ledger.entries_that_are(Trait.PAUSED, limit=limit)
    known = await ledger.coming(limit=limit)
    shown = (each for each in known if not is_net(each.item))
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


# What is drawn


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
        return round(100 * min(1.0, max(0.0, part)), 2)

    def future(self, found: Listed, moment: Moment, look: PageTime) -> TimelineMark:
        kind, more = ("estimate", ", estimated") if moment.is_estimate else ("coming", "")
        said = f"{found.mark.title}: {look.short(moment.at)}{more}"
        return TimelineMark(self.x(moment.at), 0, kind, said, f"/entries/{found.number}")

    def past(self, runs: Sequence[RunSpan], look: PageTime) -> Iterator[TimelineMark]:
        """Yield a receipt to scale: when it was due, how long it waited, and its runs."""
        about, href = runs[0], f"/receipts/{runs[0].receipt}"
        at, spans = about.planned_at, [each for each in runs if each.begun_at is not None]
        end = look.now if about.status in OPEN else max(at, about.through_at or at)
        end = max((each.over_at or look.now for each in spans), default=end)
        if end < self.start or at >= self.end:
            return
        said = f"{about.title}: {say(about.status)}. Scheduled {look.short(at)}"
        first = spans[0].begun_at if spans else None
        late = (first or look.now) - at
        if (first or about.status in WAITS) and late >= timedelta(seconds=1):
            said += f", {'begun' if first else 'waiting'} {rough(late)} {'later' if first else ''}"
        said = f"{said.rstrip()}. {look.text(about.reason)}"
        if about.through_at is not None:
            width = self.x(about.through_at) - self.x(at)
            yield TimelineMark(self.x(at), width, f"range {about.status}", said, href)
            return
        since = at  # what was waited for: a slot, or the next attempt
        for each in spans:
            assert each.begun_at is not None
            begun, over = self.x(each.begun_at), self.x(each.over_at or look.now)
            if begun - self.x(since) > 0.1:
                yield TimelineMark(self.x(since), begun - self.x(since), "late", said)
            yield TimelineMark(begun, over - begun, f"bar {each.outcome or 'running'}", said, href)
            since = each.over_at or look.now
        if not spans or about.status in WAITS:
            if about.status in WAITS and self.x(look.now) > self.x(since):
                width = self.x(look.now) - self.x(since)
                yield TimelineMark(self.x(since), width, "late", said)
            yield TimelineMark(self.x(at), 0, f"mark {about.status}", said, href)
        elif self.x(at) < self.x(spans[0].begun_at or at) - 0.1:
            yield TimelineMark(self.x(at), 0, "mark due", said, href)


_KINDS: Final = {
    **dict.fromkeys((Status.DONE, Status.NO_WORK), "done"),
    **dict.fromkeys(BAD, "failed"),
    Status.MISSED: "missed",
    **dict.fromkeys((Status.SKIPPED, Status.COALESCED), "skipped"),
    **dict.fromkeys(OPEN, "running"),
}
KINDS: Final = ("done", "failed", "missed", "skipped", "running", "coming")


def columns(counts: Counter[tuple[int, str]], top: int) -> list[tuple[str, str]]:
    """Return counts as columns around the axis, each as high as the logarithm of its sum.

    >>> columns(Counter({(0, "done"): 3, (2, "done"): 1, (2, "failed"): 1}), 3)
    [('done', 'M0 22h.9v-20h-.9zM2 19.9h.9v-7.9h-.9z'), ('failed', 'M2 12h.9v-7.9h-.9z')]
    """
    parts: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for (part, kind), many in counts.items():
        parts[part].append((kind, many))
    paths: dict[str, str] = dict.fromkeys(KINDS, "")
    for part, found in sorted(parts.items()):
        total = sum(many for _, many in found)
        high = max(5.0, 20 * math.log1p(total) / math.log1p(top))
        y = 12 + high / 2
        for kind, many in sorted(found, key=lambda each: KINDS.index(each[0])):
            step = high * many / total
            paths[kind] += f"M{part} {y:.3g}h.9v-{step:.2g}h-.9z"
            y -= step
    return [(kind, path) for kind, path in paths.items() if path]


@dataclass(slots=True)
class Lane:
    """A line of time: marks of what happened, counts of what is too much to mark, all in words."""

    name: str = ""
    href: str = ""
    marks: list[TimelineMark] = field(default_factory=list)
    counts: Counter[tuple[int, str]] = field(default_factory=Counter)  # by part and kind
    was: Counter[str] = field(default_factory=Counter)
    ahead: int = 0
    parts: int = 1
    now_x: float | None = None

    def add(self, other: Lane) -> None:
        self.marks += other.marks
        self.counts += other.counts
        self.was += other.was
        self.ahead += other.ahead

    @property
    def said(self) -> str:
        told = [*(f"{number:,} {word}" for word, number in self.was.items())]
        return f"{self.name}: {', '.join([*told, f'{self.ahead:,} upcoming'])}"

    @property
    def top(self) -> int:
        found = Counter[int]()
        for (part, _), many in self.counts.items():
            found[part] += many
        return max(found.values(), default=0)

    def paths(self, top: int) -> list[tuple[str, str]]:
        return columns(self.counts, top)


class Cell(NamedTuple):
    """A day of a calendar: what became of it, and how much is to come."""

    window: Window
    is_here: bool
    ends: Sequence[tuple[str, int, float]] = ()  # how often, and percent
    times: int = 0
    heat: int = 0


# What is asked for


class Place(NamedTuple):
    """What an address of the picture says."""

    window: Window
    lanes: str = ""
    q: str = ""
    tag: str = ""
    agent: str = ""
    status: str = ""

    def href(self, window: Window | None = None, /, **changes: str) -> str:
        own = {"at": (window or self.window).address, **self._asdict(), **changes}
        return f"/timeline?{urlencode({k: v for k, v in own.items() if v and k != 'window'})}"

    @property
    def rows(self) -> str:
        """Return what the rows are: times in a calendar, else lanes."""
        is_calendar = self.window.zoom in {"year", "month", "week"}
        return self.lanes or ("time" if is_calendar else "entry")

    @property
    def is_filtered(self) -> bool:
        return bool(self.q or self.tag or self.agent or self.status)


_LANES: Final = {
    "": "Calendar", "entry": "Entries", "file": "Files", "agent": "Agents", "slot": "Slots"
}  # fmt: skip


def _window(asked: PageRequest) -> Window:
    """Return which time an address is about; those of versions that had two pages still work."""
    look = asked.look
    wall, span = local(look.now, look.place), asked.text("span")
    if text := asked.text("at") or asked.text("month"):
        return Window.at(text, look.place)
    if (day := asked.day("day")) is not None or asked.url_path == "/calendar":
        zoom = asked.text("view") or ("month" if day is None else "day")
        wall = wall if day is None else local(look.begin(day), look.place)
        return Window.around(zoom if zoom in ZOOMS else "month", wall, look.place)
    begin, length = asked.moment("from"), parse_duration(span) if span else DAY
    fits = [name for name, zoom in ZOOMS.items() if zoom.length >= length] or ["year"]
    return Window.around(fits[-1], local(begin, look.place) if begin else wall, look.place)


def _place(asked: PageRequest) -> Place:
    lanes, status = asked.text("lanes"), asked.status("status")
    if lanes not in _LANES:
        raise RequestError(f"lanes must be one of entry, file, agent, slot, not {lanes!r}")
    q, tag, agent = (asked.text(name) for name in ("q", "tag", "agent"))
    return Place(_window(asked), lanes, q, tag, agent, "" if status is None else status.value)


class _Which(NamedTuple):
    """What a picture is of: the entries that come next, and what is drawn of the past."""

    known: Sequence[Listed]
    past: ReceiptFilter = EVERY

    def only(self, entries: Iterable[int]) -> _Which:
        return self._replace(past=self.past._replace(entries=frozenset(entries)))


async def timeline(asked: PageRequest) -> Sheet:
    look, place = asked.look, _place(asked)
    window, known = place.window, await coming(asked.ledger, limit=ENTRIES)
    every = await asked.ledger.entries() if place.q or place.tag or place.agent else known
    tags = {each.number: await asked.context.tags(each) for each in every}
    past = EVERY
    if every is not known:
        fits = frozenset(each.number for each in every if _fits(place, each, tags[each.number]))
        known, past = [each for each in known if each.number in fits], ReceiptFilter(fits)
    if place.status:  # which what is to come does not have
        known, past = [], past._replace(statuses=(Status(place.status),))
    which = _Which(known, past)
    names = list(ZOOMS)
    level = names.index(window.zoom)
    here = local(look.now, look.place)
    focus = here if window.first <= here < window.last else window.first
    values: dict[str, object] = {
        "place": place,
        "window": window,
        "zooms": [
            (zoom.word, Window.around(name, focus, look.place), str(n), name)
            for n, (name, zoom) in enumerate(ZOOMS.items(), 1)
        ],
        "inner": Window.around(names[min(level + 1, 5)], focus, look.place),
        "outer": Window.around(names[max(level - 1, 0)], window.first, look.place),
        "now_window": Window.around(window.zoom, here, look.place),
        "choices": {k: v for k, v in _LANES.items() if k or level < 3},
        "tags": sorted({tag for some in tags.values() for tag in some}, key=str.casefold),
        "agents": sorted({name for each in every for name in each.agents}),
        "statuses": RECEIPT_STATUSES,
        "lines": LINES,
        "grid": None,
        "lanes": [],
        "day": None,
        "axis": _axis(window if place.rows != "time" else Window.around("day", focus, look.place)),
    }
    if place.rows == "time" and window.zoom != "week":
        values["grid"] = await _grid(asked, place, which)
    else:
        rows = await _rows(asked, place, which)
        values |= {"lanes": rows, "top": max((each.top for each in rows), default=0)}
    if window.zoom == "day":
        values["day"] = await _day(asked, window, which)
    return Sheet("timeline.html", window.title, "timeline", values)


def _fits(place: Place, found: Listed, tags: Sequence[str]) -> bool:
    is_other = place.agent and place.agent not in found.agents
    if is_other or (place.tag and place.tag not in tags):
        return False
    about = f"{found.mark.title} {found.item.origin} {found.source} {' '.join(tags)}"
    return place.q.casefold() in about.casefold()


def _axis(window: Window) -> list[tuple[float, str, Window | None]]:
    """Return where the next finer windows begin, what they are called, and where they lead."""
    scale = Scale(window.start, window.end)
    inner = INNER.get(window.zoom)
    if inner is None:
        walls = (window.first + n * _MINUTE for n in range(10))
        return [(10.0 * n, f"{each:%H:%M}", None) for n, each in enumerate(walls)]
    form = "{0.day}" if window.zoom == "month" else ZOOMS[inner].tick
    return [(scale.x(each.start), form.format(each.first), each) for each in window.parts(inner)]


# A calendar: a year by months and days, a month by weeks and days


async def _counts(
    ledger: Ledger, edges: Sequence[datetime], lane: str, which: _Which
) -> list[tuple[int, OutcomeCount]]:
    """Return what became of each part of time, counted by the ledger."""
    place = {each: index for index, each in enumerate(edges)}
    found: list[OutcomeCount] = []
    for length, some in groupby(pairwise(edges), lambda ends: ends[1] - ends[0]):
        parts = list(some)  # a day of a clock change is counted for itself
        since, until = parts[0][0], parts[-1][1]
        found += await ledger.outcomes(
            since=since, until=until, step=length, lane=lane, which=which.past
        )
    return [(place[each.at], each) for each in found]


def _ahead(
    found: Listed, edges: Sequence[datetime], now: datetime
) -> tuple[list[Moment], Counter[int]]:
    """Return the moments of an entry that are to come, if few, and how many are in which part."""
    entry, many = firing(found), Counter[int]()
    if entry is None or now >= edges[-1]:
        return [], many
    since = max(now, edges[0] - TINY)
    few = list(islice(project(entry, since, edges[-1] - TINY), _WALKED + 1))
    if len(few) <= _WALKED:
        at = 0
        for each in few:
            while edges[at + 1] <= each.at:
                at += 1
            many[at] += 1
        return few, many
    for index, (start, end) in enumerate(pairwise(edges)):
        if end > since and (times := count(entry, max(since, start - TINY), end - TINY)):
            many[index] = times
    return [], many


async def _grid(
    asked: PageRequest, place: Place, which: _Which
) -> list[tuple[Window, list[Cell | None]]]:
    window, look = place.window, asked.look
    rows = window.parts("week" if window.zoom == "month" else "month")
    edges = [each.start for row in rows for each in row.parts("day")]
    edges.append(rows[-1].end)
    ends: dict[int, Counter[str]] = defaultdict(Counter)
    for part, each in await _counts(asked.ledger, edges, "", which):
        ends[part][_KINDS[each.status]] += each.times

    def cells() -> list[tuple[Window, list[Cell | None]]]:
        times = Counter[int]()
        if window.zoom == "month":  # a year shows what was, and its days have no room for more
            for each in which.known:
                times.update(_ahead(each, edges, look.now)[1])
        top, part = max(times.values(), default=0), -1
        made: list[tuple[Window, list[Cell | None]]] = []
        for row in rows:
            line: list[Cell | None] = []
            for day in row.parts("day"):
                part += 1
                was, total = ends[part], ends[part].total()
                shares = [(k, n, round(100 * n / total, 1)) for k in KINDS if (n := was[k])]
                # By the logarithm: a day with ten thousand fires leaves the others their shades.
                heat = 1 + round(3 * math.log1p(times[part]) / math.log1p(top)) if top else 0
                is_here = window.first <= day.first < window.last
                line.append(Cell(day, is_here, shares, times[part], heat if times[part] else 0))
            made.append((row, line))
        return made

    return await asyncio.to_thread(cells)


# Lanes: by entry, file, agent or slot, or the days of a week


async def lanes(
    asked: PageRequest, window: Window, which: _Which, kind: str = ""
) -> dict[str, Lane]:
    """Return the lanes of a window: of a kind, or one of all that happened."""
    look, ledger = asked.look, asked.ledger
    scale, edges = Scale(window.start, window.end), window.edges(ZOOMS[window.zoom].part)
    is_scaled, is_slot = window.zoom not in {"year", "month"}, kind == "slot"
    # What began before the window may still run in it.
    since, most = window.start - (DAY if is_slot else 7 * DAY), PACKED if is_slot else MARKS
    spans: list[RunSpan] = []
    if is_scaled or is_slot:
        spans = await ledger.spans(since=since, until=window.end, limit=most + 1, which=which.past)
    is_few = is_scaled and sum(each.planned_at >= window.start for each in spans) <= MARKS
    # What is to come; nobody knows in which slot.
    known = () if is_slot else which.known
    ahead = await asyncio.to_thread(lambda: [(e, *_ahead(e, edges, look.now)) for e in known])
    ends: list[tuple[int, OutcomeCount]] = []
    shown: frozenset[int] | None = None  # the others share a lane
    if kind == "entry" and not is_few:
        first = await ledger.first_entries(
            since=window.start, until=window.end, limit=ROWS, which=which.past
        )
        later = (each.number for each, _, many in ahead if many)
        shown = frozenset(islice(dict.fromkeys([*first, *later]), ROWS))
        own = await _counts(ledger, edges, kind, which.only(shown))
        ends = _less(await _counts(ledger, edges, "", which), own)
        if quiet := _quiet(own) if is_scaled else frozenset[int]():
            few = which.only(quiet).past
            spans = await ledger.spans(since=since, until=window.end, limit=most + 1, which=few)
            is_few = sum(each.planned_at >= window.start for each in spans) <= MARKS
        ends += [each for each in own if not is_few or int(each[1].lane) not in quiet]
    elif not is_few and not is_slot:
        ends = await _counts(ledger, edges, kind, which)

    def drawn() -> dict[str, Lane]:
        now_x = scale.x(look.now) if window.start < look.now < window.end else None
        found = defaultdict[str, Lane](lambda: Lane(parts=len(edges) - 1, now_x=now_x))
        _ = kind or found[""]  # which is there, even if it is empty
        if is_slot:
            fill_slots(found, spans, scale, look, edges=None if is_few else edges)
        elif is_few:
            for _, some in groupby(reversed(spans), lambda each: each.receipt):
                runs = list(some)
                marks = list(scale.past(runs, look))
                for key in _keys(kind, runs[0]) if marks else ():
                    found[key].marks += marks
                    found[key].was[say(runs[0].status)] += 1
        for part, each in ends:
            for key in json.loads(each.lane) or [""] if kind == "agent" else [each.lane]:
                found[key].counts[part, _KINDS[each.status]] += each.times
                found[key].was[say(each.status)] += each.times
        # What is to come, one by one if it is little.
        is_little = is_scaled and sum(len(moments) for _, moments, _ in ahead) <= MARKS
        rest = {e.number for e, _, _ in ahead if shown is not None and e.number not in shown}
        places = [
            (key, *each)
            for each in ahead
            for key in _keys("" if each[0].number in rest else kind, each[0])
            if each[2]
        ]
        dense = {key for key, _, moments, _ in places if not moments}
        for key, item, moments, many in places:
            found[key].ahead += many.total()
            if is_little and key not in dense:
                found[key].marks += [scale.future(item, moment, look) for moment in moments]
            else:
                found[key].counts.update({(part, "coming"): n for part, n in many.items()})
        return found

    return await asyncio.to_thread(drawn)


_Ends: TypeAlias = "Sequence[tuple[int, OutcomeCount]]"


def _less(ends: _Ends, own: _Ends) -> list[tuple[int, OutcomeCount]]:
    """Return counts without those that lanes of their own show."""
    known = Counter[tuple[int, Status]]()
    for part, each in own:
        known[part, each.status] += each.times
    rest = [(part, each, each.times - known[part, each.status]) for part, each in ends]
    return [(part, each._replace(times=times)) for part, each, times in rest if times]


def _quiet(ends: _Ends) -> frozenset[int]:
    """Return the entries whose receipts can be drawn one by one: those with the fewest."""
    times = Counter[int]()
    for _, each in ends:
        times[int(each.lane)] += each.times
    few = sorted((many, entry) for entry, many in times.items())
    sums = accumulate(many for many, _ in few)
    return frozenset(entry for (_, entry), many in zip(few, sums, strict=True) if many <= MARKS)


def _keys(kind: str, about: RunSpan | Listed) -> Sequence[str]:
    """Return in which lanes something is."""
    if isinstance(about, Listed):
        own = {"entry": about.number, "file": about.item.origin.file}
    else:
        own = {"entry": about.entry, "file": about.file}
    return about.agents or [""] if kind == "agent" else [str(own.get(kind, ""))]


def fill_slots(
    found: dict[str, Lane],
    spans: Sequence[RunSpan],
    scale: Scale,
    look: PageTime,
    *,
    edges: Sequence[datetime] | None,
) -> None:
    """Put each run into the first slot of its node that is free; one in a run shares its slot."""
    free: dict[str, list[datetime]] = defaultdict(list)
    slots: dict[int, str] = {}
    runs = [(each.begun_at, each) for each in spans if each.begun_at is not None]
    for begun, each in sorted(runs, key=lambda run: (run[0], run[1].run)):
        over, ends = each.over_at or look.now, free[each.node]
        key = slots.get(each.parent or 0, "")
        if not key:
            slot = next((n for n, end in enumerate(ends) if end <= begun), len(ends))
            ends[slot : slot + 1] = [over]
            key = f"{each.node} slot {slot + 1}".strip()
        slots[each.receipt] = key
        if over < scale.start or begun >= scale.end:
            continue
        outcome = each.outcome or Status.RUNNING
        found[key].was[say(outcome)] += 1
        if edges is not None:
            part = max(0, bisect(edges, begun) - 1)
            found[key].counts[part, _KINDS[outcome]] += 1
            continue
        x, took = scale.x(begun), rough(over - begun)
        said = f"{each.title}: {say(outcome)}, {look.short(begun)}, {took}"
        mark = x, scale.x(over) - x, f"bar {outcome}", said, f"/receipts/{each.receipt}"
        found[key].marks.append(TimelineMark(*mark))


async def _rows(asked: PageRequest, place: Place, which: _Which) -> list[Lane]:
    window, kind = place.window, place.rows
    if kind == "time":
        found = []
        for day in window.parts("day"):
            lane = (await lanes(asked, day, which))[""]
            lane.name, lane.href = f"{day.first:%a} {day.first.day}", place.href(day)
            found.append(lane)
        return found
    drawn = await lanes(asked, window, which, kind)
    numbers = [int(key) for key in drawn if key] if kind == "entry" else []
    rest = drawn.pop("", None) if kind == "entry" else None
    for part, whole in (await asked.front.service.wholes(numbers)).items():
        if part != whole:
            drawn.setdefault(str(whole), lane := drawn.pop(str(part)))
            if drawn[str(whole)] is not lane:
                drawn[str(whole)].add(lane)
            numbers.append(whole)
    titles = {str(e.number): e.mark.title for e in await asked.ledger.entries_at(numbers)}
    for key, lane in drawn.items():
        lane.name = titles.get(key, key) or ("(untitled)" if kind == "entry" else f"no {kind}")
        if kind == "entry":
            lane.href = f"/entries/{key}"
        elif kind != "slot" and key:
            lane.href = place.href(lanes="entry", **{"q" if kind == "file" else kind: key})
    order = lambda lane: (not lane.href and kind != "slot", lane.name.casefold(), lane.href)  # noqa: E731
    found = sorted(drawn.values(), key=order)
    if rest is not None or len(found) > ROWS:
        more = f"{len(found) - ROWS} others" if rest is None else "All others"
        rest = rest or Lane(parts=found[0].parts, now_x=found[0].now_x)
        rest.name = more
        for each in found[ROWS:]:
            rest.add(each)
        found[ROWS:] = [rest]
    return found


async def band(asked: PageRequest) -> Lane:
    """Return the day of today in one line."""
    look = asked.look
    window = Window.around("day", local(look.now, look.place), look.place)
    return (await lanes(asked, window, _Which(await coming(asked.ledger, limit=100))))[""]


# A day in words


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
    through, _ = nearest(entry, WhyWindow(end + TINY, end + TINY))
    if through is None:
        rest = islice(project(entry, known, end), 10_000)
        through = max((each.at for each in rest), default=known)
    yield line(0)._replace(through=through, times=count(entry, start, end))


class DayHistory(NamedTuple):
    """What became of an entry on a day."""

    at: datetime
    through: datetime
    title: str
    entry: int
    receipt: int  # the newest
    ends: Sequence[tuple[Status, int]]


async def _day(
    asked: PageRequest, window: Window, which: _Which
) -> tuple[list[DayHistory], list[DayLine]]:
    look, by_entry = asked.look, defaultdict[str, list[OutcomeCount]](list)
    first = await asked.ledger.first_entries(
        since=window.start, until=window.end, limit=LINES + 1, which=which.past
    )
    edges = [window.start, window.end]
    for _, each in await _counts(asked.ledger, edges, "entry", which.only(first)):
        by_entry[each.lane].append(each)
    for part, whole in (await asked.front.service.wholes(map(int, by_entry))).items():
        if part != whole:
            by_entry[str(whole)] += by_entry.pop(str(part))
    known = await asked.ledger.entries_at(sorted(map(int, by_entry)))
    titles = {str(each.number): each.mark.title for each in known}
    past = []
    for key, ends in by_entry.items():
        at, through = min(each.first_at for each in ends), max(each.last_at for each in ends)
        newest, was = max(each.receipt for each in ends), [(e.status, e.times) for e in ends]
        past.append(DayHistory(at, through, titles[key], int(key), newest, was))

    def lines() -> list[DayLine]:
        day = window.start, window.end
        return [line for each in which.known for line in day_lines(each, day, after=look.now)]

    ahead = await asyncio.to_thread(lines)
    ahead.sort(key=lambda line: (line.at, line.file, line.line))
    return sorted(past, key=lambda each: (each.at, each.title, each.entry)), ahead


VIEWS: Final = (
    PageView("/timeline", timeline, "timeline", "Timeline"),
    PageView("/calendar", timeline),  # as it was called when it was a page of its own
)
