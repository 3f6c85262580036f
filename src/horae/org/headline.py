"""The headline, its planning line, and its property drawer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from horae.org.plan import Drawer, Headline, Planning, Property, Span, Stamp

# One match per section: stars, first word, rest of the line, and whether the next
# lines promise a planning line and a drawer.
_HEAD: Final = re.compile(
    r"(\*++) [ \t]*+([^ \t\n]*+)([^\n]*+)(?:\n|\Z)"
    r"([ \t]*+(?:SCHEDULED|DEADLINE|CLOSED):[^\n]*+(?:\n|\Z))?"
    r"([ \t]*+:(?ai:properties):[ \t]*+\r?\n)?"
)
_TAG_RUN: Final = re.compile(r":[\w@#%:]*:")
_RUN: Final = re.compile(r":[\w@#%:]++(?<=:)(?!\S)\s*+")
_TAG: Final = re.compile(r"[^\s:]++")


def read_headline(section: str, states: frozenset[str]) -> Headline:
    head = _HEAD.match(section)
    assert head is not None, "a section begins with stars and a space"
    stars, state, title = head.group(1, 2, 3)

    if state in states:
        title = title.strip()
    elif not title.strip() and state.rstrip("\r") in states:
        state, title = state.rstrip("\r"), ""
    else:
        state, title = None, f"{state}{title}".strip()
    priority = None
    if title[:2] == "[#" and title[3:4] == "]":
        priority, title = title[2], title[4:].lstrip()
    tags: tuple[str, ...] = ()
    if title[-1:] == ":":
        title, tags = _split_tags(title)

    planning = drawer = None
    body = min(head.end(3) + 1, len(section))
    if head.end(4) > 0:
        planning = read_planning(section, head.start(4), head.end(4))
        body = planning.end if planning is not None else body
    if head.start(5) == body:  # else an invalid planning line is between them
        drawer = read_drawer(section, body)
        body = drawer.end if drawer is not None else body
    return Headline(section, len(stars), state, priority, title, tags, planning, drawer, body)


def _split_tags(title: str) -> tuple[str, tuple[str, ...]]:
    head, _, last = title.rpartition(" ")
    if head[-1:].isalnum() and _TAG_RUN.fullmatch(last) and "::" not in last:
        return head, tuple(last[1:-1].split(":"))
    return _split_tag_runs(title)


def _split_tag_runs(title: str) -> tuple[str, tuple[str, ...]]:
    turned, at = _lettered(title)[::-1], 0
    while run := _RUN.match(turned, at):
        at = run.end()
    start = len(title) - at
    tags = tuple(_TAG.findall(title, start))
    title = title[:start].rstrip()
    last = title.rsplit(None, 1)[-1:]
    if last and len(last[0]) > 1 and last[0][0] == last[0][-1] == ":":
        title = title[: -len(last[0])].rstrip()
    return title, tags


def _lettered(title: str) -> str:
    """Replace each combining mark in *title* by a letter, as it belongs to one."""
    if title.isascii():
        return title
    from unicodedata import category  # for the few titles with other characters

    return "".join("_" if category(sign)[0] == "M" else sign for sign in title)


class Parts(NamedTuple):
    """The spans of the parts of a headline's first line; a missing part is empty."""

    stars: Span
    state: Span
    priority: Span
    title: Span
    tags: Span


def parts(headline: Headline) -> Parts:
    text = headline.text
    line = text.partition("\n")[0].rstrip()
    stop = max(len(line), headline.level + 1)  # an empty headline keeps its blank
    at = _skip(text, headline.level, stop, blanks=" \t")  # a state after other whitespace is none
    state = Span(at, at + len(headline.state or ""))
    at = _skip(text, state.end, stop)
    priority = Span(at, at + (4 if headline.priority is not None else 0))
    at = _skip(text, priority.end, stop)
    title = Span(at, at + len(headline.title))
    at = _skip(text, title.end, stop)
    return Parts(Span(0, headline.level), state, priority, title, Span(at, stop))


def _skip(text: str, at: int, stop: int, *, blanks: str = "") -> int:
    while at < stop and (text[at] in blanks if blanks else text[at].isspace()):
        at += 1
    return at


# Text in brackets, or two as a range, classified later. The number of inner pairs of brackets is
# bounded, because the regex engine stores backtracking states.
_PLAIN: Final = r"[^<>\[\]\n]"
_STAMP: Final = rf"[<\[](?:{_PLAIN}++|[<\[]{_PLAIN}*+[>\]]){{0,100}}[>\]]"
_WORD: Final = r"(SCHEDULED|DEADLINE|CLOSED):"
_ITEM: Final = re.compile(  # a comma may follow before another item
    rf"[ \t]*+{_WORD}[ \t]*+({_STAMP}(?:--{_STAMP})?)[ \t]*+(?:,(?=[ \t]*+{_WORD}))?"
)
_LINE_ENDS: Final = frozenset({"\n", "\r\n", "\r"})


def planning_items(section: str, start: int, end: int) -> Iterator[tuple[str, Stamp]]:
    at = start
    while item := _ITEM.match(section, at, end):
        yield item[1], Stamp(item.start(2), item.end(2), item[2])
        at = item.end()


def read_planning(section: str, start: int, end: int) -> Planning | None:
    found: dict[str, Stamp] = {}
    at = start
    while item := _ITEM.match(section, at, end):
        found[item[1]] = Stamp(item.start(2), item.end(2), item[2])
        at = item.end()
    if at < end and section[at : min(end, at + 3)] not in _LINE_ENDS:
        return None
    return Planning(start, end, found.get("SCHEDULED"), found.get("DEADLINE"), found.get("CLOSED"))


def planning_void_at(section: str, start: int) -> int:
    at = start
    while item := _ITEM.match(section, at):
        at = item.end()
    while section[at : at + 1] in {" ", "\t"}:
        at += 1
    return at


_END: Final = r":[Ee][Nn][Dd]:[ \t]*+\r?(?:\n|\Z)"
# A key extends to the last colon before the blank.
_LINE: Final = re.compile(r"[ \t]*+:(\S+):[ \t]++([^\n]*+)\n")
# A line of a drawer before its end; the last one may lack its newline.
_INNER: Final = re.compile(r"(?![ \t]*+:[Ee][Nn][Dd]:(?!\S))[ \t]*+:\S+:[ \t]++[^\n]*+(?:\n|\Z)")
_SOME_END: Final = re.compile(r"^[ \t]*+:[Ee][Nn][Dd]:", re.MULTILINE)
_OPEN: Final = re.compile(r"[ \t]*+:(?ai:properties):[ \t]*+\r?\n")
# Some lines at a time: backtracking states are stored until the match ends.
_SOME: Final = rf"((?:[ \t]*+(?!{_END}):\S+:[ \t]++[^\n]*+\n){{0,64}})([ \t]*+{_END})?"
_FIRST: Final = re.compile(_OPEN.pattern + _SOME)
_MORE: Final = re.compile(_SOME)


def read_drawer(section: str, start: int) -> Drawer | None:
    r"""Return the drawer at *start*, or None if one of its lines is invalid.

    `:KEY+:` adds to the value of `:KEY:`, in any order.

    >>> read_drawer(":PROPERTIES:\n:ENV: A\n:ENV+: B\n:END:\n", 0).props
    {'ENV': 'A B'}
    """
    found = first = _FIRST.match(section, start)
    while found and found[2] is None:
        found = _MORE.match(section, found.end()) if found[1] else None
    if first is None or found is None:
        return None
    props: dict[str, str] = {}
    added: list[tuple[str, str]] = []
    for written, raw in _LINE.findall(section, first.start(1), found.end(1)):
        key, value = written.upper(), raw.strip()
        if value and _adds(key):
            added.append((key[:-1], value))
        elif value:
            props[key] = value
    for key, value in added:
        props[key] = f"{props[key]} {value}" if key in props else value
    return Drawer(start, found.end(), props)


def _adds(key: str) -> bool:
    return key[-1] == "+" and len(key) > 1


def properties(section: str, drawer: Drawer) -> Iterator[Property]:
    opening = _OPEN.match(section, drawer.start)
    at = opening.end() if opening else drawer.end
    while (line := _LINE.match(section, at)) and line.end() < drawer.end:
        value = line[2].strip()
        start = line.start(2) + (len(line[2]) - len(line[2].lstrip()))
        key, adds = line[1].upper(), _adds(line[1])
        place = Span(start, start + len(value))
        yield Property(key[:-1] if adds else key, value, Span(*line.span()), place, adds)
        at = line.end()


def drawer_void_at(section: str, start: int) -> int | None:
    """Return the offset of an invalid line in a drawer, or of the missing end; None if valid."""
    if read_drawer(section, start) is not None:
        return None
    opening = _OPEN.match(section, start)
    at = opening.end() if opening else len(section)
    while line := _INNER.match(section, at):
        at = line.end()
    return at


def has_end(section: str, at: int) -> bool:
    return _SOME_END.search(section, at) is not None
