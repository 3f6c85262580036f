"""The planning line: SCHEDULED, DEADLINE and CLOSED, right under the headline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from horae.org.plan import Planning, Stamp

# A bracketed text, or two as a range. What is inside is for the classifier: one pair of
# brackets of its own may stand there, and a pair that does not match says nothing. Their
# number is bounded, since what can be given back is remembered.
_PLAIN: Final = r"[^<>\[\]\n]"
_STAMP: Final = rf"[<\[](?:{_PLAIN}++|[<\[]{_PLAIN}*+[>\]]){{0,100}}[>\]]"
_WORD: Final = r"(SCHEDULED|DEADLINE|CLOSED):"
_ITEM: Final = re.compile(  # a comma may follow if another item does
    rf"[ \t]*+{_WORD}[ \t]*+({_STAMP}(?:--{_STAMP})?)[ \t]*+(?:,(?=[ \t]*+{_WORD}))?"
)
_LINE_ENDS: Final = frozenset({"\n", "\r\n", "\r"})


def items(section: str, start: int, end: int) -> Iterator[tuple[str, Stamp]]:
    at = start
    while item := _ITEM.match(section, at, end):
        yield item[1], Stamp(item.start(2), item.end(2), item[2])
        at = item.end()


def read_planning(section: str, start: int, end: int) -> Planning | None:
    """Return the planning line at *start*, or None if other text on it voids it."""
    found: dict[str, Stamp] = {}
    at = start
    while item := _ITEM.match(section, at, end):
        found[item[1]] = Stamp(item.start(2), item.end(2), item[2])
        at = item.end()
    if at < end and section[at : min(end, at + 3)] not in _LINE_ENDS:
        return None
    return Planning(start, end, found.get("SCHEDULED"), found.get("DEADLINE"), found.get("CLOSED"))


def void_at(section: str, start: int) -> int:
    """Return where the would-be planning line at *start* stops being one."""
    at = start
    while item := _ITEM.match(section, at):
        at = item.end()
    while section[at : at + 1] in {" ", "\t"}:
        at += 1
    return at
