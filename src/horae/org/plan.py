"""What a plan is made of.

Named tuples, since they are made in a third of the time of a frozen dataclass. Offsets count
characters from the start of the section, wherever it stands in a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from itertools import accumulate
from typing import Final, NamedTuple, TypedDict

from horae.org.timestamp import Timestamp, TimestampData, parse_timestamp

_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


def is_id(text: str) -> bool:
    """Tell whether *text* can name an entry, an agent or a task."""
    return _ID.fullmatch(text) is not None and text.strip(".") != ""


class CronData(TypedDict):
    cron: str


ScheduleData = TimestampData | CronData


class Span(NamedTuple):
    """A stretch of a section's text, end excluded."""

    start: int
    end: int


class Stamp(NamedTuple):
    """One bracketed text after a planning keyword, as written."""

    start: int
    end: int
    text: str

    @property
    def time(self) -> Timestamp | None:
        return parse_timestamp(self.text)


class Planning(NamedTuple):
    start: int
    end: int
    scheduled: Stamp | None
    deadline: Stamp | None
    closed: Stamp | None


class Property(NamedTuple):
    key: str
    value: str
    line: Span
    at: Span  # where the value stands
    adds: bool = False  # `:KEY+:`: to what other lines say of the key


class Drawer(NamedTuple):
    start: int
    end: int
    props: Mapping[str, str]


class Keyword(NamedTuple):
    key: str
    value: str
    span: Span


class Block(NamedTuple):
    opening: str  # the begin line, without indentation
    lang: str
    args: str
    body: str
    span: Span  # from the begin line to the end line
    inside: Span  # the lines between them, as written


class States(NamedTuple):
    """The words that can stand as a state before a title."""

    todo: frozenset[str]
    done: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        return self.todo | self.done


DEFAULT_STATES: Final = States(frozenset({"TODO"}), frozenset({"DONE"}))


class Headline(NamedTuple):
    """A headline with the section under it, down to the next headline of any level."""

    text: str
    level: int
    state: str | None
    priority: str | None
    title: str
    tags: tuple[str, ...]
    planning: Planning | None
    drawer: Drawer | None
    body: int  # where the text after headline, planning line and drawer begins

    @property
    def below(self) -> int:
        """Where the line under the headline begins."""
        return self.text.find("\n") + 1 or len(self.text)

    @property
    def props(self) -> Mapping[str, str]:
        return self.drawer.props if self.drawer else {}

    @property
    def scheduled(self) -> Timestamp | None:
        planning = self.planning
        return planning.scheduled.time if planning and planning.scheduled else None

    @property
    def deadline(self) -> Timestamp | None:
        planning = self.planning
        return planning.deadline.time if planning and planning.deadline else None


class SectionPlace(NamedTuple):
    """Where a section begins in its file: characters from the start, and the line from 1."""

    start: int
    line: int


class Plan(NamedTuple):
    """A plan, read without loss: preamble and sections joined are the text."""

    preamble: str
    headlines: tuple[Headline, ...]
    states: States

    def text(self) -> str:
        return self.preamble + "".join(headline.text for headline in self.headlines)

    def places(self) -> list[SectionPlace]:
        texts = [self.preamble, *(headline.text for headline in self.headlines[:-1])]
        starts = accumulate(len(text) for text in texts)
        lines = accumulate((text.count("\n") for text in texts), initial=1)
        next(lines)
        return [SectionPlace(start, line) for start, line in zip(starts, lines, strict=True)][
            : len(self.headlines)
        ]

    def byte_span(self, index: int, span: Span) -> Span:
        """Return where *span* of the headline at *index* stands in the file's bytes."""
        before = self.preamble + "".join(headline.text for headline in self.headlines[:index])
        text = self.headlines[index].text
        start = _octets(before) + _octets(text[: span.start])
        return Span(start, start + _octets(text[span.start : span.end]))


def _octets(text: str) -> int:
    """Return how many bytes *text* is in UTF-8; a lone surrogate counts too."""
    return len(text.encode("utf-8", "surrogatepass"))


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"  # it will not do what it says
    WARNING = "warning"  # it may not do what was meant
    INFO = "info"  # worth knowing


class Diagnostic(NamedTuple):
    """Something odd in a plan, with its place; the rest of the plan still reads."""

    file: str
    line: int
    column: int
    code: str
    severity: Severity
    message: str
    fix: str | None = None
    width: int = 0  # of the words it is about, where a caret under them helps

    def data(self) -> dict[str, str | int | None]:
        names = ("code", "severity", "file", "line", "column", "message", "fix")
        found = {name: getattr(self, name) for name in names}
        return found | {"severity": self.severity.value}

    @property
    def advice(self) -> str:
        return "; ".join(filter(None, (self.message, self.fix)))

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.severity} {self.code}: {self.message}"
