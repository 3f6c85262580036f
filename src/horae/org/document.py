"""A plan as a whole: a preamble and one section per headline, each parsed from its text alone.

In a section's body, the content of another block, a drawer or a list item does not count. All
searches for an end use one table of ends, so that a hundred thousand unclosed blocks cost one pass.
"""

from __future__ import annotations

import gc
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypedDict

from horae.org.headline import read_headline
from horae.org.plan import (
    DEFAULT_STATES,
    Block,
    Headline,
    Keyword,
    Plan,
    Span,
    States,
    TimestampData,
    parse_timestamp as read_timestamp,
)

_NEXT_HEADLINE: Final = re.compile(r"\n\*++ ")
_FIRST_HEADLINE: Final = re.compile(r"\ufeff?(?=\*++ )")
_STATE_LINE: Final = re.compile(r"#\+(?:todo|seq_todo|typ_todo):", re.IGNORECASE)
STATE_KEYS: Final = frozenset({"TODO", "SEQ_TODO", "TYP_TODO"})


def read(text: str) -> Plan:
    first = _FIRST_HEADLINE.match(text)
    starts = [first.end()] if first else []
    at = 0
    # By search: each finditer leaves a word in a cache of Python's, which fragments the memory.
    while found := _NEXT_HEADLINE.search(text, at):
        starts.append(found.start() + 1)
        at = found.end()
    states = _states(text, starts)
    words, stops = states.all, [*starts, len(text)][1:]
    with collector_paused(when=len(text) > LARGE):
        headlines = [
            read_headline(text[start:stop], words)
            for start, stop in zip(starts, stops, strict=True)
        ]
        return Plan(text[: starts[0]] if starts else text, tuple(headlines), states)


def _states(text: str, starts: Sequence[int]) -> States:
    if _STATE_LINE.search(text) is None:
        return DEFAULT_STATES
    sections = {bisect_right(starts, found.start()) for found in _STATE_LINE.finditer(text)}
    bounds = [0, *starts, len(text)]
    todo, done = set(DEFAULT_STATES.todo), set(DEFAULT_STATES.done)
    for index in sorted(sections):
        for keyword in keywords(text[bounds[index] : bounds[index + 1]]):
            if keyword.key in STATE_KEYS:
                open_words, closed_words = state_words(keyword.value)
                todo.update(open_words)
                done.update(closed_words)
    return States(frozenset(todo - done), frozenset(done))


def state_words(value: str) -> tuple[list[str], list[str]]:
    before, bar, after = value.partition("|")
    opened = [word.partition("(")[0] for word in before.split()]
    closed = [word.partition("(")[0] for word in after.replace("|", " ").split()]
    if not bar:
        opened, closed = opened[:-1], opened[-1:]
    return [word for word in opened if word], [word for word in closed if word]


_LINE: Final = re.compile(r"([ \t]*+)([^\n]*+)\n?")
_BEGIN: Final = re.compile(r"#\+(?i:begin)_(\S++)")
_BEGIN_LINE: Final = re.compile(r"^[ \t]*+(#\+(?i:begin)_\S++)", re.MULTILINE)
_NOT_LINE_END: Final = re.compile(r"[^\n]")
_END: Final = re.compile(r"[ \t]*+#\+(?i:end)_(\S++)[ \t]*+\r?(?:\n|\Z)")
_DYNAMIC: Final = re.compile(r"#\+(?i:begin):[ \t]+\S")
_DYNAMIC_END: Final = re.compile(r"[ \t]*+#\+(?i:end):?[ \t]*+\r?(?:\n|\Z)")
_DRAWER: Final = re.compile(r":[\w-]++:[ \t]*+\r?")
_DRAWER_END: Final = re.compile(r"[ \t]*+:(?i:end):[ \t]*+\r?(?:\n|\Z)")
_KEYWORD: Final = re.compile(r"#\+([^\s:]++):[ \t]*+([^\n]*+)")
_BULLET: Final = re.compile(r"(?:[-+]|[0-9]++[.)])(?=[ \t\r]|$)")
_FOOTNOTE: Final = re.compile(r"\[fn:[\w-]++\]")
_LATEX: Final = re.compile(r"\\begin\{([A-Za-z0-9*]++)\}")
_LATEX_END: Final = re.compile(r"\\end\{([A-Za-z0-9*]++)\}[ \t]*+\r?(?:\n|\Z)")
_STAR_BULLET: Final = re.compile(r"\*(?=[ \t\r]|$)")
_SWITCH: Final = re.compile(
    r'[ \t]++(?:-l[ \t]++"[^"\n]*+"|-[ikr]|[-+]n(?:[ \t]*+[0-9]++|(?![ \t]*+[0-9])))(?!\S)'
)
_FIRST_LINE: Final = re.compile(r"^(?![ \t]*+\r?\n)", re.MULTILINE)  # that is not blank
_QUOTED: Final = re.compile(r"^([ \t]*+,*?),(?=\*|#\+)", re.MULTILINE)


def blocks(section: str, start: int = 0) -> list[Block]:
    return [found for found in elements(section, start) if isinstance(found, Block)]


def keywords(section: str, start: int = 0) -> list[Keyword]:
    return [found for found in elements(section, start) if isinstance(found, Keyword)]


def bare(section: str, start: int = 0) -> str:
    """Return the section with the content of blocks blanked, so that offsets stay."""
    if "#+" not in section:
        return section
    ends = _Ends(section, start)
    pieces: list[str] = []
    at, kept = start, 0
    while (opening := _BEGIN_LINE.search(section, at)) is not None:
        after = section.find("\n", opening.end()) + 1 or len(section)
        over = ends.skip(opening.start(1), opening[1], after)
        at = max(after, over)
        if over > opening.start(1):
            blanked = _NOT_LINE_END.sub(" ", section[opening.start() : over])
            pieces += section[kept : opening.start()], blanked
            kept = over
    return "".join([*pieces, section[kept:]])


def elements(section: str, start: int = 0) -> Iterator[Block | Keyword]:
    """Yield source blocks and keyword lines in order, in one pass."""
    if "#+" not in section:
        return
    if start == 0 and section.startswith("\ufeff"):
        start = 1  # a byte-order mark is not part of a line
    ends, at, stop = _Ends(section, start), start, len(section)
    item: int | None = None  # the indentation of the current list; -1 in a footnote
    blank = 0
    while at < stop:
        line = _LINE.match(section, at)
        assert line is not None, "every line matches"
        begin, text, after = line.start(2), line[2], line.end()
        indent = len(line[1].expandtabs())
        if not text.strip():
            blank += 1
            item = None if blank > 1 else item
            at = after
            continue
        blank = 0
        bulleted = _BULLET.match(text) or (indent and _STAR_BULLET.match(text))
        if item is not None and indent <= item:
            item = None
        if bulleted and item is None:
            item = indent
        if not indent and _FOOTNOTE.match(text):
            item = -1
        if item is None:
            found = _element(section, begin, text, after, ends)
            if found is not None:
                yield found
                at = max(found.span.end, after)
                continue
        at = max(after, ends.skip(begin, text, after))


def _element(
    section: str, begin: int, text: str, after: int, ends: _Ends
) -> Block | Keyword | None:
    opening = _BEGIN.match(text)
    if opening and opening[1].lower() == "src":
        end = ends.block(opening[1], after)
        return _block(section, begin, after, end) if end else None
    keyword = None if opening or _DYNAMIC.match(text) else _KEYWORD.match(text)
    if keyword is None:
        return None
    return Keyword(keyword[1].upper(), keyword[2].strip(), Span(begin, after))


def _block(section: str, begin: int, after: int, end: Span) -> Block:
    opening = section[begin:after].rstrip()
    words = opening[len("#+begin_src") :].split(None, 1)
    lang = words[0] if words else ""
    rest = f" {words[1]}" if len(words) > 1 else ""
    at = 0
    while switch := _SWITCH.match(rest, at):
        at = switch.end()
    args = rest[at:].strip()
    inside = section[after : end.start]
    first = _FIRST_LINE.search(inside)
    body = _QUOTED.sub(r"\1", inside[first.start() if first else 0 :])
    return Block(opening, lang, args, body, Span(begin, end.end), Span(after, end.start))


class _Ends:
    def __init__(self, section: str, start: int) -> None:
        self._blocks: dict[str, list[Span]] = {}
        self._dynamic: list[Span] = []
        self._drawers: list[Span] = []
        self._latex: dict[str, list[Span]] = {}
        if "\\begin{" in section:
            for last in _LATEX_END.finditer(section, start):
                self._latex.setdefault(last[1], []).append(Span(*last.span()))
        at, stop = start, len(section)
        while at < stop:
            if found := _END.match(section, at):
                kind = found[1] if found[1].lower() == "src" else found[1].lower()
                self._blocks.setdefault(kind, []).append(Span(*found.span()))
            elif found := _DYNAMIC_END.match(section, at):
                self._dynamic.append(Span(*found.span()))
            elif found := _DRAWER_END.match(section, at):
                self._drawers.append(Span(*found.span()))
            at = section.find("\n", at) + 1 or stop

    def block(self, kind: str, after: int) -> Span | None:
        return _first(self._blocks.get(kind, []), after)

    def skip(self, begin: int, text: str, after: int) -> int:
        """Return the end of what a line opens: a block, a drawer, or the line itself."""
        end: Span | None = None
        if opening := _BEGIN.match(text):
            kind = opening[1]
            end = self.block(kind if kind.lower() == "src" else kind.lower(), after)
        elif _DYNAMIC.match(text):
            end = _first(self._dynamic, after)
        elif _DRAWER.fullmatch(text):  # a stray :END: opens a drawer, too
            end = _first(self._drawers, after)
        elif opening := _LATEX.match(text):
            end = _first(self._latex.get(opening[1], []), begin)
        return end.end if end else begin


def _first(ends: list[Span], after: int) -> Span | None:
    index = bisect_left(ends, (after, 0))
    return ends[index] if index < len(ends) else None


LARGE: Final = 1 << 18  # characters of text from which on it pays off
_NEW: Final = 20_000  # allocations between two collections: a few megabytes


def calm_collector() -> None:
    """Freeze existing objects for the garbage collector, and run it less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW, 20, 100)


@contextmanager
def collector_paused(*, when: bool) -> Iterator[None]:
    if not when or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


# A misread plan would look like one without entries, so the reader is tested with this.
_TEXT: Final = """\
* TODO Nightly backup :workflow:
SCHEDULED: <2026-06-06 Sat 06:00 +1d>
:PROPERTIES:
:ID: backup
:SCHEDULE: 0 6 * * *
:END:
"""
_ROW: Final[dict[str, object]] = {
    "deadline": None, "id": "backup", "level": 1,
    "props": {"ID": "backup", "SCHEDULE": "0 6 * * *"},
    "scheduled": {"at": "2026-06-06T06:00", "repeat": "+1d", "active": True},
    "state": "TODO", "tags": ["workflow"], "title": "Nightly backup",
}  # fmt: skip


class HeadlineRow(TypedDict):
    deadline: TimestampData | None
    id: str | None
    level: int
    props: dict[str, str]
    scheduled: TimestampData | None
    state: str | None
    tags: list[str]
    title: str


def query(text: str) -> list[HeadlineRow]:
    """Return the data of each headline of a plan."""
    with collector_paused(when=len(text) > LARGE):
        return [row(headline) for headline in read(text).headlines]


def parse_timestamp(text: str) -> TimestampData | None:
    """Return the data of a timestamp in brackets, or None if it is not one."""
    found = read_timestamp(text)
    return found.data() if found else None


def row(headline: Headline) -> HeadlineRow:
    deadline, scheduled = headline.deadline, headline.scheduled
    props = dict(sorted(headline.props.items()))
    return {
        "deadline": deadline.data() if deadline else None,
        "id": props.get("ID"),
        "level": headline.level,
        "props": props,
        "scheduled": scheduled.data() if scheduled else None,
        "state": headline.state,
        "tags": list(headline.tags),
        "title": headline.title,
    }


def misread() -> str | None:
    """Return what is wrong if a known text is misread by the `re` of this Python.

    That of Python 3.11.0 to 3.11.4 reads some patterns wrongly: no schedule was armed.
    """
    found = query(_TEXT)
    row = dict(found[0]) if len(found) == 1 else {}
    wrong = next((key for key, value in _ROW.items() if row.get(key) != value), None)
    if wrong is None:
        return None
    return f"{wrong} is read as {row.get(wrong)!r:.200}, not as {_ROW[wrong]!r}"
