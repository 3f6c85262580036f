"""Entries: all of them in one dense table, filtered, sorted and selected for actions."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlencode

from horae.core.decide import GRACE
from horae.core.inbox import EntryFilter, EntrySort, EntryState
from horae.core.views import RequestError
from horae.web.page.sheet import PageRequest, PageView, Sheet, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from horae.core.views import EndMark, EntryRow

SOURCES: Final = ("org", "board", "trigger", "crew")
PAGE: Final = 100  # rows
FOUND: Final = 50  # by a search, of each kind
_BAR: Final = 3  # width of one end in the strip, with a gap of 1
_TALL: Final = 14  # height of the longest end


class EndBar(NamedTuple):
    x: int
    height: float
    status: str


class TableRow(NamedTuple):
    line: EntryRow
    bars: list[EndBar]
    said: str  # the bars in words
    late: timedelta | None  # of the last receipt, if that is to be noticed


async def entries(asked: PageRequest) -> Sheet:
    query = {name: asked.text(name) for name in ("state", "source", "file", "tag", "agent", "q")}
    states = _known(query["state"], EntryState, "state")
    sources = _known(query["source"], SOURCES, "source")
    [sort] = _known(asked.text("sort"), EntrySort, "sort") or [EntrySort.TITLE]
    number = max(1, asked.number("page") or 1)
    numbers = None
    if query["tag"]:
        numbers = await asked.context.tagged(query["tag"])
    wanted = EntryFilter(states, sources, query["file"], query["q"], query["agent"])
    found = await asked.front.service.entry_list(
        wanted, sort=EntrySort(sort), limit=PAGE, offset=(number - 1) * PAGE, numbers=numbers
    )
    asking = {name: value for name, value in query.items() if value}

    def link(**changed: object) -> str:
        kept = {**asking, "sort": sort, **changed}
        return "?" + urlencode({name: each for name, each in kept.items() if each})

    values: dict[str, object] = {
        "rows": [_row(each) for each in found.entries],
        "total": found.total,
        "first": (number - 1) * PAGE + 1,
        "number": number,
        "more": number * PAGE < found.total,
        "counts": [
            (state.value, found.counts[state]) for state in EntryState if state in found.counts
        ],
        "all": sum(found.counts.values()),
        "query": query,
        "sources": SOURCES,
        "sort": sort,
        "link": link,
    }
    is_busy = found.counts.get(EntryState.RUNNING)
    return Sheet("entries.html", "Entries", "entries", values, every=2 if is_busy else 30)


def _known(text: str, words: Sequence[str] | type[EntryState | EntrySort], name: str) -> list[str]:
    known = [str(each) for each in words]
    if text and text not in known:
        raise RequestError(f"{name} must be one of {', '.join(known)}, not {text!r}")
    return [text] if text else []


def _row(line: EntryRow) -> TableRow:
    longest = max((each.seconds or 0.0 for each in line.ends), default=0.0)
    bars = [
        EndBar(_BAR * place, _height(each, longest), each.status)
        for place, each in enumerate(line.ends)
    ]
    was = Counter(say(each.status) for each in line.ends)
    late = timedelta(seconds=line.last.late_seconds if line.last else 0)
    words = ", ".join(f"{count} {word}" for word, count in was.items())
    return TableRow(line, bars, words, late if late > GRACE else None)


def _height(end: EndMark, longest: float) -> float:
    """Return how high the bar of an end is: as its duration, compared with the longest one."""
    if end.seconds is None:
        return 4
    return round(max(4.0, _TALL * end.seconds / longest), 1) if longest else _TALL


async def search(asked: PageRequest) -> Sheet:
    q = asked.text("q")
    results = (await asked.front.service.search(q, limit=FOUND)).results if q else ()
    return Sheet("search.html", "Search", "", {"q": q, "results": results})


VIEWS: Final = (
    PageView("/entries", entries, "entries", "Entries"),
    PageView("/search", search),
)
