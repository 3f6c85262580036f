"""A finding inside one section, and what a check is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from horae.org.drawer import properties
from horae.org.plan import Diagnostic, Headline, SectionPlace, Severity

CALLS: Final = frozenset({"COMMAND", "POST"})  # what a headline may call in place of components
_LONGEST: Final = 60


class SectionFinding(NamedTuple):
    at: int
    code: str
    severity: Severity
    message: str
    fix: str | None = None
    width: int = 0  # of the words it is about, where a caret under them helps

    def located(self, file: str, place: SectionPlace, text: str) -> Diagnostic:
        line = place.line + text.count("\n", 0, self.at)
        column = self.at - text.rfind("\n", 0, self.at)
        return Diagnostic(file, line, column, *self[1:])


def error(at: int, code: str, message: str, fix: str | None = None) -> SectionFinding:
    return SectionFinding(at, code, Severity.ERROR, message, fix)


def warning(at: int, code: str, message: str, fix: str | None = None) -> SectionFinding:
    return SectionFinding(at, code, Severity.WARNING, message, fix)


Check = Callable[["Headline"], Iterator[SectionFinding]]


def place_of(headline: Headline, key: str) -> int:
    """Return where the value of a property stands; 0, the headline, if it has none."""
    lines = properties(headline.text, headline.drawer) if headline.drawer else ()
    return max((line.at.start for line in lines if line.key == key and line.value), default=0)


def is_fired(headline: Headline) -> bool:
    """Tell whether time can fire the headline: a workflow, or one that calls something."""
    return "workflow" in headline.tags or not CALLS.isdisjoint(headline.props)


def shown(text: str) -> str:
    """Return *text* as a message can hold it: quoted, cut if long, nothing left to obey."""
    return repr(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…")


def line_at(text: str, at: int) -> str:
    end = text.find("\n", at)
    return text[at : end if end >= 0 else len(text)].rstrip("\r")
