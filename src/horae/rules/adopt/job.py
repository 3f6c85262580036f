"""What a reader of another scheduler's text hands back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from horae.rules.adopt.walk import merged

if TYPE_CHECKING:
    from horae.rules.adopt.walk import Walk

MOST: Final = 2_000  # jobs of one text
# When the other scheduler would fire: after a moment, at most so many, up to another moment.
Fires: TypeAlias = Callable[[datetime, int, datetime | None], list[datetime]]


class Remark(NamedTuple):
    """Something about a place of the text that was not taken, or that will be otherwise."""

    line: int
    column: int
    what: str
    remedy: str
    is_taken: bool = False  # the job is there, but not all about it

    def __str__(self) -> str:
        word = "note" if self.is_taken else "not taken"
        return f"{self.line}:{self.column}: {word}: {self.what}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class Job:
    """One thing that another scheduler runs, as a headline of ours would say it."""

    line: int
    title: str
    fires: Fires
    zone: str
    command: str = ""
    schedule: str = ""  # cron, several divided by `;`
    stamp: str = ""  # or an org timestamp
    props: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()  # lines of the body, below the rule in words
    script: str = ""  # a component's block, where it is no command
    name: str = ""  # what it goes by there, for its :ID:; else its title
    is_alert: bool = False  # it has no time, and runs when the job before it has failed


@dataclass(slots=True)
class Reading:
    """What a text holds: jobs, and remarks about the rest. A reader fills it line by line."""

    jobs: list[Job] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)

    def refuse(self, line: int, column: int, what: str, remedy: str) -> None:
        """Say what was not taken, and what to do about it."""
        self.remarks.append(Remark(line, column, what, remedy))

    def note(self, line: int, column: int, what: str, remedy: str) -> None:
        """Say what will be otherwise with a job that was taken."""
        self.remarks.append(Remark(line, column, what, remedy, is_taken=True))


def never(_after: datetime, _most: int, _end: datetime | None) -> list[datetime]:
    """Say when a job fires that has no time of its own."""
    return []


def walking(walks: tuple[Walk, ...], zone_name: str) -> Fires:
    """Return when any of some rules fires, by walking along the clock of a zone."""
    return lambda after, most, end: merged(walks, zone_name, after, most, end)
