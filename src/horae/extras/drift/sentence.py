"""Reading: from a text to the sentences that could say when, and their words."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LONGEST: Final = 100  # words that a sentence may have


class _Word(NamedTuple):
    text: str
    low: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Sentence:
    """The words of a sentence, also joined by single spaces, as the grammar reads them."""

    words: Sequence[_Word]
    line: str  # in lower case
    cased: str
    places: Sequence[int]  # where each word begins in the line
    start: int
    is_title: bool  # a headline rather than part of a body
    is_question: bool

    def low(self, index: int) -> str:
        return self.words[index].low if 0 <= index < len(self.words) else ""

    def index_at(self, place: int) -> int:
        return bisect_left(self.places, place)


MASK: Final = "\0"
# No part can be tried again from inside itself, so that the cost stays linear.
_OPAQUE: Final = re.compile(
    r"""
      `{1,3}[^`]{1,300}`{1,3} | "[^"]{0,300}" | “[^“”]{0,300}” | «[^«»]{0,300}»
    | (?<!\w)'[^'\n]{1,120}'(?!\w) | ‘[^‘’\n]{1,120}’(?!\w)
    | (?<![\w=])=[^\s=][^=\n]{0,120}=(?![\w=])
    | (?<![\w~])~[^\s~][^~\n]{0,120}~(?![\w~])
    | <[^<>\n]{0,200}> | \[[^\[\]]{0,300}\] | \{[^{}]{0,300}\}
    | (?<!\w)[a-z]{2,12}://\S+
    | (?<!\S)(?:[~.]{0,2}/|-{1,2}(?=[a-zA-Z])|[@$%\#:\\](?=\w))\S+
    """,
    re.VERBOSE,
)
_WORD: Final = re.compile(rf"{MASK}+|\w+(?:[-'’./:+–@\\]\w+)*|[^\w\s*]")
_STOP: Final = re.compile(r"[.!?;]+(?=\s|$)")
_ABBREVIATED: Final = re.compile(
    r"\b(?:[ap]\.m|e\.g|i\.e|[A-Z]|vs|approx|no|mon|tues?|wed|thurs?|fri|sat|sun)$", re.IGNORECASE
)
_TRIGGER: Final = re.compile(
    r"every|each|ly\b|annual|times|twice|once|day|ends|mon|tue|wed|thu|fri|sat|sun|\dx\b"
    r"|\d(?:st|nd|rd|th)\b|\b(?:at|@)\s*(?:\d|noon|mid)",
    re.IGNORECASE,
)
# One star is a headline only at the top: below, it may be an item of a Markdown list.
_TOP: Final = re.compile(r"\*[ \t]")
_HEADING: Final = re.compile(
    r"\*{2,}[ \t]|#{1,6}[ \t]|#\+title:|[ \t]*(?://|;+|--)[ \t]", re.IGNORECASE
)
_ITEM: Final = re.compile(r"[ \t]*(?:[-+*•]|\d{1,3}[.)])[ \t]")
_SILENT: Final = re.compile(r"#\+|[|>]|:(?:\s|$)|(?:SCHEDULED|DEADLINE|CLOSED|CLOCK):")
_BLOCK: Final = re.compile(r"#\+begin_?(\S{0,40})|(```|~~~)|:[\w-]{1,40}:$", re.IGNORECASE)


def sentences_of(text: str) -> Iterator[Sentence]:
    for start, end, is_title in _paragraphs(text):
        masked = _OPAQUE.sub(lambda found: MASK * len(found[0]), text[start:end])
        stops = [*_stops(masked), len(masked)]
        for begin, stop in pairwise([0, *stops]):
            if not _TRIGGER.search(masked, begin, stop):
                continue
            found = list(islice(_WORD.finditer(masked, begin, stop), _LONGEST + 1))
            if not 0 < len(found) <= _LONGEST:
                continue
            words = []
            for match in found:
                first, last = start + match.start(), start + match.end()
                low = match[0].lower().replace("’", "'")
                # A letter whose small form is longer would move all that follows in the line.
                low = low if len(low) == last - first else match[0]
                if low[0] == MASK:
                    words.append(_Word(MASK, MASK, first, last))
                else:
                    words.append(_Word(text[first:last], low, first, last))
            yield Sentence(
                words,
                " ".join(word.low for word in words),
                " ".join(word.text for word in words),
                [0, *accumulate(len(word.low) + 1 for word in words[:-1])],
                words[0].start,
                # A line that ends like a sentence is one, and not a headline.
                is_title=is_title and len(stops) == 1,
                is_question=masked[stop - 1] == "?",
            )


def _stops(masked: str) -> Iterator[int]:
    for stop in _STOP.finditer(masked):
        head = masked[max(0, stop.start() - 8) : stop.start()]
        if stop[0] != "." or not _ABBREVIATED.search(head):
            yield stop.end()


def _paragraphs(text: str) -> Iterator[tuple[int, int, bool]]:
    """Yield where each stretch of prose begins and ends, and whether it is a headline."""
    begin: int | None = None
    is_first = True
    for start, end, line in _prose_lines(text):
        is_heading = bool(_HEADING.match(line) or (is_first and _TOP.match(line)))
        if begin is not None and (not line or is_heading or _ITEM.match(line)):
            yield begin, start, False
            begin = None
        if not line:
            continue
        if is_heading or (is_first and _stands_alone(text, line, end)):
            yield start, end, True
        elif begin is None:
            begin = start
        is_first = False
    if begin is not None:
        yield begin, len(text), False


def _prose_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the place and the text of each line; what is not prose is an empty one."""
    closing: str | None = None
    end = 0
    for raw in text.splitlines(keepends=True):
        start, end = end, end + len(raw)
        line = raw.rstrip()
        bare = line.lstrip()
        if closing is not None:
            closing = None if bare.lower().startswith(closing) else closing
            line = ""
        elif block := _BLOCK.match(bare):
            closing = block[2] or (":end:" if block[1] is None else "#+end")
            line = ""
        elif _SILENT.match(bare) and not _HEADING.match(line):
            line = ""
        yield start, end, line


def _stands_alone(text: str, line: str, end: int) -> bool:
    """Whether the first line of a text is a headline rather than the start of a paragraph."""
    follower = text[end : end + 1]
    is_short = len(line) <= 72 and not line.endswith((",", ":", "-"))
    return not follower or follower.isspace() or (is_short and not follower.islower())
