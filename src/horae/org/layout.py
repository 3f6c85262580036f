"""Findings about where things stand: lines that are not read because of other lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from horae.org import drawer, finding, planning
from horae.org.element import bare
from horae.org.finding import SectionFinding, error, shown, warning

if TYPE_CHECKING:
    from horae.org.plan import Headline

_PLANNING: Final = re.compile(r"[ \t]*+(?:SCHEDULED|DEADLINE|CLOSED):")
_KEYWORD: Final = re.compile(r"(SCHEDULED|DEADLINE|CLOSED):[ \t]*+(.+)", re.DOTALL)
_OPEN_STAMP: Final = re.compile(
    r"([<\[]?)(\d{4}-\d\d-\d\d(?:[ \t]+(?:[^\W\d]+|[0-2]?\d:\d\d(?:-[0-2]?\d:\d\d)?|[.+-]\S+))*)"
)
_PLANNING_ANY: Final = re.compile(
    r"^[ \t]*+((?i:scheduled|deadline|closed)):[ \t]*+[<\[]", re.MULTILINE
)
_DRAWER: Final = re.compile(r"^[ \t]*+:(?i:properties):[ \t]*+\r?$", re.MULTILINE)
_WORD: Final = re.compile(r"^[ \t]*+([A-Z]{5,10}):[ \t]", re.MULTILINE)
_STARS: Final = re.compile(r"(\*+)[^*\s]")
# A line with stars that is no headline, with what only stands below a headline.
_UNSPACED: Final = re.compile(
    rf"^{_STARS.pattern}[^\n]*\n(?:{_PLANNING.pattern}|[ \t]*+:(?i:properties):[ \t]*+\r?$)",
    re.MULTILINE,
)
_BLOCK: Final = re.compile(r"^[ \t]*+#\+(?i:begin_src)\b", re.MULTILINE)
_SPACE: Final = "a headline needs a space after {}"
_KEYWORDS: Final = ("scheduled", "deadline", "closed")
_NEAR: Final = ("workflow", "component", "agent")


def _planning_line(headline: Headline) -> Iterator[SectionFinding]:
    text, below = headline.text, headline.below
    if headline.planning is None and _PLANNING.match(text, below):
        yield _void_planning(text, below)
        return
    start = headline.planning.end if headline.planning else below
    for found in _PLANNING_ANY.finditer(bare(text, start), start):
        keyword = found[1]
        if headline.planning is None and found.start() == below:
            message = f"{keyword}: is ignored"
            fix = f"write it in capitals: {keyword.upper()}:"
            yield error(found.start(1), "planning-case", message, fix)
            return
        if keyword.isupper():
            message = (
                f"{keyword}: is ignored here; SCHEDULED:, DEADLINE: and CLOSED: must be on one"
                " line, directly below the headline"
            )
            fix = "move it to the line directly below the headline"
            if headline.planning is not None:
                fix = "move it to the end of the line directly below the headline"
            yield error(found.start(1), "planning-misplaced", message, fix)
            return
    for found in _WORD.finditer(bare(text, start), start) if finding.is_fired(headline) else ():
        word = found[1].lower()
        if meant := next((each for each in _KEYWORDS if _is_near(word, each)), None):
            fix = f"did you mean {meant.upper()}: <…> directly below the headline"
            fix += ", or :SCHEDULE: in the drawer?" if word == "schedule" else "?"
            yield warning(found.start(1), "planning-typo", f"{found[1]}: is ignored", fix)


def _said_twice(headline: Headline) -> Iterator[SectionFinding]:
    """Yield one finding for each keyword that stands on the planning line again."""
    line = headline.planning
    if line is None:
        return
    first: dict[str, int] = {}
    again: dict[str, int] = {}
    for keyword, stamp in planning.items(headline.text, line.start, line.end):
        known = again if keyword in first else first
        known.setdefault(keyword, stamp.start)
    for keyword in again:
        message = f"{keyword}: occurs more than once on this line; the last one is used"
        fix = "keep one, or write a second headline"
        yield warning(first[keyword], "planning-twice", message, fix)


def _void_planning(text: str, below: int) -> SectionFinding:
    at = planning.void_at(text, below)
    rest = finding.line_at(text, at).rstrip()
    fix = "keep only SCHEDULED:, DEADLINE: and CLOSED: on it, each with one timestamp"
    if keyword := _KEYWORD.fullmatch(rest):
        at, rest = at + keyword.start(2), keyword[2]
        if stamp := _OPEN_STAMP.fullmatch(rest):
            written = f"[{stamp[2]}]" if stamp[1] == "[" else f"<{stamp[2]}>"
            fix = f"write {keyword[1]}: {written}"
    message = f"{shown(rest.strip() or text[at])} makes this planning line invalid"
    return error(at, "planning-void", message, fix)


def unspaced(preamble: str) -> Iterator[SectionFinding]:
    """Yield a finding for a line before the first headline that was meant as one."""
    for found in _UNSPACED.finditer(bare(preamble)):
        message = "this is not a headline, so the lines below it are ignored"
        yield error(found.start(), "headline-space", message, _SPACE.format(found[1]))


def _property_twice(headline: Headline) -> Iterator[SectionFinding]:
    if headline.drawer is None or not finding.is_fired(headline):
        return
    seen: set[str] = set()
    for line in drawer.properties(headline.text, headline.drawer):
        if line.key in seen and line.value and not line.adds:
            message = f":{line.key}: occurs more than once in this drawer; the last one is used"
            fix = "separate several expressions in one line with ;"
            fix = (
                fix if line.key == "SCHEDULE" else f"keep one, or write :{line.key}+: to add to it"
            )
            yield warning(line.at.start, "property-twice", message, fix)
        seen.update([line.key] if line.value and not line.adds else ())


def _property_drawer(headline: Headline) -> Iterator[SectionFinding]:
    text = headline.text
    start = headline.planning.end if headline.planning else headline.below
    start = headline.drawer.end if headline.drawer else start
    found = _DRAWER.search(bare(text, start), start)
    if found is None:
        return
    opening = text.index(":", found.start())
    if headline.drawer is not None:
        message = "this drawer is ignored: its headline has another one above"
        fix = "keep one drawer, or write a headline above this one"
        if stars := _STARS.match(text, text.rfind("\n", 0, max(found.start() - 1, 0)) + 1):
            fix = _SPACE.format(stars[1])
        yield error(opening, "drawer-twice", message, fix)
        return
    if found.start() != start:
        blocker = finding.line_at(text, start)
        what = shown(blocker.strip()) if blocker.strip() else "the blank line"
        message = f"this drawer is ignored: {what} is between it and its headline"
        fix = "put the drawer directly below the headline or its planning line"
        yield error(opening, "drawer-misplaced", message, fix)
        return
    at = drawer.void_at(text, start)
    if at is None:
        return
    if not drawer.has_end(text, at):
        message = "this drawer has no :END:, so its properties are ignored"
        yield error(opening, "drawer-void", message, "add :END: after the properties")
        return
    line = finding.line_at(text, at)
    at += len(line) - len(line.lstrip())
    what = f"line {shown(line.strip())}" if line.strip() else "a blank line"
    message = f"{what} makes the drawer invalid: its properties are ignored"
    yield error(at, "drawer-void", message, "write it as :KEY: value, or remove it")


def _tags(headline: Headline) -> Iterator[SectionFinding]:
    line = finding.line_at(headline.text, 0).rstrip()
    for meant in _NEAR:  # one finding for each, however many tags are near to it
        tag = next((tag for tag in headline.tags if _is_near(tag, meant)), None)
        if tag is not None:
            at = max(line.rfind(f":{tag}:") + 1, 0)
            message = f"tag {tag!r} has no effect"
            yield warning(at, "tag-typo", message, f"did you mean :{meant}:?")
    last = line.rpartition(" ")[2].rpartition("\t")[2]
    if not headline.tags and len(last) > 2 and last[0] == last[-1] == ":":
        message = f"{shown(last)} is removed from the title but is not a valid tag"
        fix = "use only letters, digits, _, @, # and % in a tag"
        yield warning(len(line) - len(last), "tag-void", message, fix)


def _is_near(word: str, known: str) -> bool:
    """Tell whether *word* is one letter, or only capitals, away from *known*."""
    if word == known or abs(len(word) - len(known)) > 1:
        return False
    word = word.lower()
    start = 0
    while start < min(len(word), len(known)) and word[start] == known[start]:
        start += 1
    rest, meant = word[start:], known[start:]
    is_swapped = len(rest) > 1 and rest[1::-1] + rest[2:] == meant
    return rest == meant or is_swapped or meant[1:] in {rest, rest[1:]} or rest[1:] == meant


def _open_block(headline: Headline) -> Iterator[SectionFinding]:
    if "component" not in headline.tags:
        return
    found = _BLOCK.search(bare(headline.text, headline.body), headline.body)
    if found is not None:
        at = headline.text.index("#", found.start())
        message = "this source block is not closed, so it is ignored"
        fix = "add a line #+end_src (#+begin_NAME needs #+end_NAME); escape a leading * as ,*"
        yield error(at, "block-open", message, fix)


def unread(headline: Headline) -> SectionFinding | None:
    """Return why the planning line or the drawer of a headline is not read, if one is not."""
    text, below = headline.text, headline.below
    if text.find(":", below) < 0:
        return None
    is_planned = headline.planning or not _PLANNING_ANY.match(text, below)
    if is_planned and (headline.drawer or not _DRAWER.search(text)):
        return None  # so nearly all of them cost little
    for check in (_planning_line, _property_drawer):
        for found in check(headline):
            if found.code in _UNREAD:
                return found
    return None


_UNREAD: Final = frozenset({"planning-void", "planning-case", "drawer-void", "drawer-misplaced"})

LAYOUT: Final[tuple[finding.Check, ...]] = (
    _planning_line, _said_twice, _property_drawer, _property_twice, _tags, _open_block,
)  # fmt: skip
