"""Pages of headings with leniently read drawers: lifecycles, crew manifests, agent definitions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.org.check import shown
from horae.org.document import bare, read
from horae.org.plan import Diagnostic, Headline, Severity

if TYPE_CHECKING:
    from enum import StrEnum

MOST_HEADINGS: Final = 1_000  # of a page: far more than any lifecycle has, and every tick reads it
NAME_FIX: Final = "write one word of at most 64 letters, digits, dots, _ and -"
_MOST_GUESSES: Final = 50  # words for which a suggestion is searched
_KEYED: Final = "write one :KEY: value per line, and :END: after the last"
_OPEN: Final = re.compile(r"^[ \t]*+:PROPERTIES:[ \t]*+\r?\n", re.IGNORECASE | re.MULTILINE)
_END: Final = re.compile(r"^[ \t]*+:END:[ \t]*+\r?(?:\n|\Z)", re.IGNORECASE | re.MULTILINE)
_LINE: Final = re.compile(r"[^\n]*+\n?")
_PROPERTY: Final = re.compile(r"[ \t]*+:([A-Za-z][\w-]*+):[ \t]++(\S[^\n]*)", re.ASCII)


class Heading(NamedTuple):
    file: str
    name: str  # the title without tags
    line: int
    text: str
    body: str  # without the heading and its drawer
    props: Mapping[str, str]
    places: Mapping[str, tuple[int, int]]  # line and column of each value
    passed: tuple[tuple[int, int, str], ...]  # line, column and reason of what is ignored
    tags: tuple[str, ...]

    def found(
        self, code: str, severity: Severity, message: str, fix: str | None = None, key: str = ""
    ) -> Diagnostic:
        line, column = self.places.get(key, (self.line, 1))
        return Diagnostic(self.file, line, column, code, severity, message, fix)

    def oddities(self, known: Sequence[str]) -> Iterator[Diagnostic]:
        for place in self.passed:
            yield Diagnostic(
                self.file, *place[:2], "drawer-line", Severity.WARNING, place[2], _KEYED
            )
        for key in [key for key in self.props if key not in known][:_MOST_GUESSES]:
            if near := near_to(key, known):
                message, fix = f":{key}: is ignored", f"did you mean :{near}:?"
                yield self.found("property-typo", Severity.WARNING, message, fix, key)


def headings(text: str, file: str) -> tuple[list[Heading], list[Diagnostic]]:
    plan = read(text)
    tops = [index for index, headline in enumerate(plan.headlines) if headline.level == 1]
    places = plan.places()
    found = []
    for index, end in pairwise([*tops, len(plan.headlines)][: MOST_HEADINGS + 1]):
        below = "".join(each.text for each in plan.headlines[index + 1 : end])
        found.append(heading_of(plan.headlines[index], places[index].line, file, below))
    if len(tops) <= MOST_HEADINGS:
        return found, []
    line = places[tops[MOST_HEADINGS]].line
    message = f"there are {len(tops):,} headings; those from here on are ignored"
    fix = f"use at most {MOST_HEADINGS:,} top-level headings"
    return found, [Diagnostic(file, line, 1, "page-large", Severity.ERROR, message, fix)]


def heading_of(headline: Headline, line: int, file: str, below: str = "") -> Heading:
    own = headline.text
    name = " ".join(filter(None, [headline.state, headline.title]))
    start = headline.below
    clear = bare(own, start)
    opening = _OPEN.search(clear, start)
    closing = _END.search(clear, opening.end()) if opening else None
    props: dict[str, str] = {}
    places: dict[str, tuple[int, int]] = {}
    passed: list[tuple[int, int, str]] = []
    body = own[start:] + below
    if opening is not None and closing is None:
        row, column = line_and_column(own, opening.start())
        passed.append((line + row - 1, column, "the drawer has no :END: and is ignored"))
    elif opening is not None and closing is not None:
        body = own[start : opening.start()] + own[closing.end() :] + below
        first = line + own.count("\n", 0, opening.end())
        lines = _LINE.findall(own[opening.end() : closing.start()])
        for row, written in enumerate(lines, first):
            if said := _PROPERTY.match(written):
                props[said[1].upper()] = said[2].rstrip()
                places[said[1].upper()] = (row, said.start(2) + 1)
            elif written.strip():
                passed.append(
                    (row, 1, f"{shown(written.strip())} is not a property and is ignored")
                )
    read_as = body.strip(), props, places, tuple(passed), tuple(headline.tags)
    return Heading(file, name, line, own + below, *read_as)


def line_and_column(text: str, at: int) -> tuple[int, int]:
    return text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1


def near_to(word: str, known: Iterable[str]) -> str | None:
    from difflib import get_close_matches  # only for messages

    return next(iter(get_close_matches(word[:64], list(known), n=1, cutoff=0.75)), None)


def choices(words: type[StrEnum]) -> str:
    return f"write {' or '.join(words)}"


def in_order(found: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    return tuple(sorted(found, key=lambda each: (each.line, each.column, each.code)))
