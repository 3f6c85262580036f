"""The headline and what stands right under it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from horae.org.drawer import read_drawer
from horae.org.plan import Headline, Span
from horae.org.planning import read_planning

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
    """Return the headline that *section* begins with; the section must begin with one."""
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
    if head.start(5) == body:  # else a planning line that is void stands between
        drawer = read_drawer(section, body)
        body = drawer.end if drawer is not None else body
    return Headline(section, len(stars), state, priority, title, tags, planning, drawer, body)


def _split_tags(title: str) -> tuple[str, tuple[str, ...]]:
    """Return title and tags; a last word in colons is cut even if it is no tag."""
    head, _, last = title.rpartition(" ")
    if head[-1:].isalnum() and _TAG_RUN.fullmatch(last) and "::" not in last:
        return head, tuple(last[1:-1].split(":"))
    return _split_tag_runs(title)


def _split_tag_runs(title: str) -> tuple[str, tuple[str, ...]]:
    """Return title and tags, matched from the end of the line: tags look the same from there."""
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
    """Return *title*, as long as it is, with each mark as a letter: it is part of one."""
    if title.isascii():
        return title
    from unicodedata import category  # few titles come here

    return "".join("_" if category(sign)[0] == "M" else sign for sign in title)


class Parts(NamedTuple):
    """Where the parts of a headline's first line stand; a part that is absent is empty."""

    stars: Span
    state: Span
    priority: Span
    title: Span
    tags: Span


def parts(headline: Headline) -> Parts:
    text = headline.text
    line = text.partition("\n")[0].rstrip()
    stop = max(len(line), headline.level + 1)  # a bare headline keeps its blank
    at = _skip(text, headline.level, stop, blanks=" \t")  # a state behind other space is none
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
