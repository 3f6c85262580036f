"""What a reader of another scheduler's text hands back."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from horae.extras.importers.walk import merged

if TYPE_CHECKING:
    from horae.extras.importers.walk import Walk

# What bounds the work on one text, so that a megabyte takes about a second, whatever it holds.
MOST: Final = 250  # jobs
MOST_ZONES: Final = 8  # each of which has clock changes of its own to be found
MOST_REFUSALS: Final = 200
_MOST_NOTES: Final = 2 * MOST
LONGEST_LINE: Final = 10_000  # characters
_LONGEST_WORD: Final = 60  # of a remark; what is longer was never meant to be read
_LONGEST_REMARK: Final = 400
_WORD: Final = re.compile(rf"\S{{{_LONGEST_WORD + 1},}}")
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
        word = "note" if self.is_taken else "not imported"
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
    is_full: bool = False  # there is so much of it that the rest is left

    def refuse(self, line: int, column: int, what: str, remedy: str) -> None:
        """Say what was not taken, and what to do about it."""
        if sum(not each.is_taken for each in self.remarks) < MOST_REFUSALS:
            self.remarks.append(Remark(line, column, shortened(what), shortened(remedy)))
        else:
            self._end(line, 1, f"more than {MOST_REFUSALS:,} items cannot be imported")

    def note(self, line: int, column: int, what: str, remedy: str) -> None:
        """Say what will be otherwise with a job that was taken."""
        if len(self.remarks) < MOST_REFUSALS + _MOST_NOTES:
            self.remarks.append(Remark(line, column, shortened(what), shortened(remedy), True))
        else:
            self._end(line, 1, f"there are more than {_MOST_NOTES:,} notes")

    def has_room(self, line: int, column: int = 1) -> bool:
        """Tell whether one more job is taken; if not, that is said once."""
        if len(self.jobs) >= MOST:
            self._end(line, column, f"there are more than {MOST:,} jobs")
        return not self.is_full

    def _end(self, line: int, column: int, why: str) -> None:
        if not self.is_full:
            what = f"{why}; this line and all below are skipped"
            self.remarks.append(Remark(line, column, what, "split the file"))
        self.is_full = True


def shortened(text: str) -> str:
    """Return a text in which no word goes on and on.

    >>> shortened(f"minute '{'9' * 4000}' cannot be read")
    "minute '99999999999999999999999999999999999999…9999999' cannot be read"
    """
    plain = _WORD.sub(lambda found: f"{found[0][:39]}…{found[0][-8:]}", text)
    return plain if len(plain) <= _LONGEST_REMARK else f"{plain[:_LONGEST_REMARK]}…"


def never(_after: datetime, _most: int, _end: datetime | None) -> list[datetime]:
    """Say when a job fires that has no time of its own."""
    return []


@lru_cache(maxsize=2_000)
def walking(walks: tuple[Walk, ...], zone_name: str) -> Fires:
    """Return when any of some rules fires, by walking along the clock of a zone."""
    return lambda after, most, end: merged(walks, zone_name, after, most, end)
