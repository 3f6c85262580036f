"""The property drawer: `:KEY: value` lines between `:PROPERTIES:` and `:END:`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from horae.org.plan import Drawer, Property, Span

_END: Final = r":[Ee][Nn][Dd]:[ \t]*+\r?(?:\n|\Z)"
# A key is all up to the last colon before the blank.
_LINE: Final = re.compile(r"[ \t]*+:(\S+):[ \t]++([^\n]*+)\n")
# What a reader takes for a line of a drawer: no end, and the last one may lack its newline.
_INNER: Final = re.compile(r"(?![ \t]*+:[Ee][Nn][Dd]:(?!\S))[ \t]*+:\S+:[ \t]++[^\n]*+(?:\n|\Z)")
_SOME_END: Final = re.compile(r"^[ \t]*+:[Ee][Nn][Dd]:", re.MULTILINE)
_OPEN: Final = re.compile(r"[ \t]*+:(?ai:properties):[ \t]*+\r?\n")
# So many lines at a time: each line that could be given back is remembered until the match ends.
_SOME: Final = rf"((?:[ \t]*+(?!{_END}):\S+:[ \t]++[^\n]*+\n){{0,64}})([ \t]*+{_END})?"
_FIRST: Final = re.compile(_OPEN.pattern + _SOME)
_MORE: Final = re.compile(_SOME)


def read_drawer(section: str, start: int) -> Drawer | None:
    r"""Return the drawer at *start*, or None if one of its lines voids it.

    `:KEY+:` adds to what `:KEY:` says, wherever the two stand.

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
    """Yield the lines of a drawer with their places."""
    opening = _OPEN.match(section, drawer.start)
    at = opening.end() if opening else drawer.end
    while (line := _LINE.match(section, at)) and line.end() < drawer.end:
        value = line[2].strip()
        start = line.start(2) + (len(line[2]) - len(line[2].lstrip()))
        key, adds = line[1].upper(), _adds(line[1])
        place = Span(start, start + len(value))
        yield Property(key[:-1] if adds else key, value, Span(*line.span()), place, adds)
        at = line.end()


def void_at(section: str, start: int) -> int | None:
    """Return where the line that voids a drawer begins, or the section ends; None: none does."""
    if read_drawer(section, start) is not None:
        return None
    opening = _OPEN.match(section, start)
    at = opening.end() if opening else len(section)
    while line := _INNER.match(section, at):
        at = line.end()
    return at


def has_end(section: str, at: int) -> bool:
    return _SOME_END.search(section, at) is not None
