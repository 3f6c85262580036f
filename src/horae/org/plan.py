"""The parts of a plan, and its timestamps, of which only the shape is parsed.

Named tuples, as they are created in a third of the time of a frozen dataclass. Offsets count
characters from the start of the section, wherever it is in a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict

from horae.errors import ScheduleError

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


def is_id(text: str) -> bool:
    """Return whether *text* is valid as the name of an entry, an agent or a task."""
    return _ID.fullmatch(text) is not None and text.strip(".") != ""


class TimestampData(TypedDict):
    at: str
    repeat: str | None
    active: bool


class CronData(TypedDict):
    cron: str


ScheduleData = TimestampData | CronData


class Span(NamedTuple):
    start: int
    end: int


class Stamp(NamedTuple):
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
    at: Span  # of the value
    adds: bool = False  # `:KEY+:` adds to other lines of the key


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
    todo: frozenset[str]
    done: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        return self.todo | self.done


DEFAULT_STATES: Final = States(frozenset({"TODO"}), frozenset({"DONE"}))


class Headline(NamedTuple):
    text: str
    level: int
    state: str | None
    priority: str | None
    title: str
    tags: tuple[str, ...]
    planning: Planning | None
    drawer: Drawer | None
    body: int  # the start of the text after headline, planning line and drawer

    @property
    def below(self) -> int:
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
    start: int
    line: int


class Plan(NamedTuple):
    """A plan, parsed without loss: preamble and sections joined are the text."""

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
        before = self.preamble + "".join(headline.text for headline in self.headlines[:index])
        text = self.headlines[index].text
        start = _octets(before) + _octets(text[: span.start])
        return Span(start, start + _octets(text[span.start : span.end]))


def _octets(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


class Severity(StrEnum):
    ERROR = "error"  # it does not work as written
    WARNING = "warning"  # it may not be what was meant
    INFO = "info"  # for information


class Diagnostic(NamedTuple):
    """A problem of a plan, with its place; the rest of the plan is still read."""

    file: str
    line: int
    column: int
    code: str
    severity: Severity
    message: str
    fix: str | None = None
    width: int = 0  # of the words to underline, if that helps

    def data(self) -> dict[str, str | int | None]:
        names = ("code", "severity", "file", "line", "column", "message", "fix")
        found = {name: getattr(self, name) for name in names}
        return found | {"severity": self.severity.value}

    @property
    def advice(self) -> str:
        return "; ".join(filter(None, (self.message, self.fix)))

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.severity} {self.code}: {self.message}"


_BRACKETS: Final = {"<": (">", True), "[": ("]", False)}


class Timestamp(NamedTuple):
    at: str
    repeat: str | None
    active: bool

    def data(self) -> TimestampData:
        return {"at": self.at, "repeat": self.repeat, "active": self.active}


def parse_timestamp(text: str) -> Timestamp | None:
    """Parse a timestamp in brackets; None if it is not one.

    >>> parse_timestamp("<2026-06-06 Sat 06:00 +1d>")
    Timestamp(at='2026-06-06T06:00', repeat='+1d', active=True)
    >>> parse_timestamp("<2026-6-6>")
    """
    text = text.strip()
    close, active = _BRACKETS.get(text[:1], ("", False))
    if not close or text[-1] != close:
        return None

    date = time = repeat = None
    for token in text[1:-1].split():
        if date is None and _is_date(token):
            date = token
        elif ":" in token:
            time = token
        elif token.startswith(("+", ".+")):
            repeat = token
    if date is None:
        return None
    return Timestamp(f"{date}T{time}" if time else date, repeat, active)


def _is_date(token: str) -> bool:
    if token.isascii():
        return len(token) == 10 and token[4] == "-"
    octets = token.encode("utf-8", "surrogatepass")
    return len(octets) == 10 and octets[4:5] == b"-"


def is_overdue(deadline: Timestamp, *, now: datetime, zone: ZoneInfo) -> bool:
    """Return whether an active deadline is past; one without a time includes its day."""
    end = end_of(deadline, zone=zone)
    return end is not None and now > end


def end_of(deadline: Timestamp | None, *, zone: ZoneInfo) -> datetime | None:
    """Return the end of a deadline; None if it is inactive, or its time does not exist."""
    if deadline is None or not deadline.active:
        return None
    from horae.timing.repeater import parse_at  # not needed to read a plan
    from horae.timing.zone import instant

    try:
        start, _, has_time = parse_at(deadline.at)
        return instant(start if has_time else start + timedelta(days=1), zone)
    except (ScheduleError, OverflowError):
        return None
