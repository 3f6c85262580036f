"""A finding inside one section, and what a check is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from horae.kernel.org.drawer import properties

if TYPE_CHECKING:
    from horae.kernel.plan import Headline, Severity, States


class Found(NamedTuple):
    """A finding at an offset of a section's text."""

    at: int
    code: str
    severity: Severity
    message: str
    fix: str | None = None


class Section(NamedTuple):
    """A headline with what its file declares about states."""

    headline: Headline
    states: States

    def place_of(self, key: str) -> int:
        """Return where the value of a property stands; 0, the headline, if it has none."""
        headline = self.headline
        lines = properties(headline.text, headline.drawer) if headline.drawer else ()
        return max((line.at.start for line in lines if line.key == key), default=0)

    def below(self) -> int:
        """Return where the line after the headline begins."""
        return self.headline.text.find("\n") + 1 or len(self.headline.text)


Check = Callable[[Section], Iterator[Found]]


def is_workflow(headline: Headline) -> bool:
    """Tell whether the headline opens a world."""
    return "workflow" in headline.tags


def line_at(text: str, at: int) -> str:
    """Return the line that begins at *at*, without its end."""
    end = text.find("\n", at)
    return text[at : end if end >= 0 else len(text)].rstrip("\r")
