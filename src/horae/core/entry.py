"""Everything that has a when becomes an entry: a rule, a work and a policy.

An entry is plain data. Where it came from (a plan, a crew, a board, a trigger) no
longer matters to anything that looks at it: `project` lays its rule onto time,
`decide` says what should happen, and neither asks a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from horae.core.policy import DEFAULT, Policy, PolicyError
from horae.timing.cron import Cron
from horae.timing.rfc3339 import format_rfc3339

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from horae.timing.repeater import Repeater

COMMENTED: Final = " is commented out"
ARCHIVED: Final = " is archived"
_MOST_EXPRESSIONS: Final = 50


class Work(StrEnum):
    """What an entry does."""

    WORKFLOW = "workflow"  # run the code blocks of a plan
    PROMPT = "prompt"  # hand a prompt to an agent
    TICK = "tick"  # wake an agent
    RECYCLE = "recycle"  # bring a task back
    DISPATCH = "dispatch"  # hand a task to a member
    COMMAND = "command"  # call a program
    POST = "post"  # tell an address


class Occasion(StrEnum):
    """What about a receipt another entry may wait for."""

    FAILED = "failed"  # it ended badly: failed, killed or interrupted
    LATE = "late"  # it runs more than a minute after its time
    MISSED = "missed"  # nobody looked in time
    STUCK = "stuck"  # the third bad end in a row
    RECOVERED = "recovered"  # a good end after a bad one
    BROKEN = "broken"  # its text can no longer be read; the last good one stays armed


@dataclass(frozen=True, slots=True)
class CronRule:
    """One cron expression, or several of which any will do."""

    crons: tuple[Cron, ...]


def cron_rule(text: str, *, zone_name: str) -> CronRule:
    """Return the rule of one expression, or of several divided by `;`."""
    parts = text.split(";")
    if len(parts) > _MOST_EXPRESSIONS:
        reason = f"has {len(parts)} expressions; the limit is {_MOST_EXPRESSIONS}"
        raise PolicyError("SCHEDULE", text, reason=reason)
    return CronRule(tuple(Cron(part.strip(), zone=zone_name) for part in parts))


@dataclass(frozen=True, slots=True)
class RepeaterRule:
    """An org stamp with a repeater; the anchor is a time on the wall of the entry's zone."""

    anchor: datetime
    repeater: Repeater


@dataclass(frozen=True, slots=True)
class OnceRule:
    """One moment. A delay has an id of its own, and is due until it has a receipt."""

    at: datetime
    delay: str | None = None


@dataclass(frozen=True, slots=True)
class CadenceRule:
    """A heartbeat: the next tick follows from the end of the last one and how it ended.

    `first_at` is when the first tick may come, and after a restart the earliest next one.
    """

    base: timedelta
    first_at: datetime
    ticks: int = 0  # how many there have been
    streak: int = 0  # ticks in a row that found no work
    failures: int = 0  # ticks in a row that failed


@dataclass(frozen=True, slots=True)
class OnDemandRule:
    """No moment of its own: it runs when it is asked to."""


@dataclass(frozen=True, slots=True)
class AfterRule:
    """No moment of its own: it follows receipts, of one entry, one agent, or all.

    `of` is an entry's :ID: or title, `agent:` and a name, or nothing for all.
    """

    occasions: tuple[Occasion, ...]
    of: str = ""


Rule: TypeAlias = CronRule | RepeaterRule | OnceRule | CadenceRule | OnDemandRule | AfterRule


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an entry is written."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Pause:
    """Since when an entry is paused, until when if that is known, with which note, and by whom."""

    at: datetime
    until: datetime | None = None
    note: str = ""
    by: str = ""  # the actor; nothing if that was not recorded

    def covers(self, moment: datetime) -> bool:
        return self.at <= moment and (self.until is None or moment < self.until)


@dataclass(frozen=True, slots=True)
class Entry:
    """Something with a when.

    `number` is given by the ledger and never changes; 0 is an entry that has none yet.
    Every planned moment up to `accounted_to` has its receipt. `ended_at` is the end of
    the last planned run, whatever its outcome, for the rules that count from there. While
    `pause` lasts no moment is planned.
    """

    address: str
    origin: Origin
    title: str
    rule: Rule
    work: Work = Work.WORKFLOW
    agents: tuple[str, ...] = ()  # whom it needs, each for itself alone, while it runs
    policy: Policy = DEFAULT
    zone: str = "UTC"
    deadline: datetime | None = None  # when its DEADLINE is over; a fact, never a clock
    digest: str = ""
    number: int = 0
    accounted_to: datetime | None = None
    ended_at: datetime | None = None
    pause: Pause | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """An open headline with a date that nothing fires: somebody has to do it."""

    origin: Origin
    title: str
    scheduled: datetime | None
    deadline: datetime | None


@dataclass(frozen=True, slots=True)
class Unarmed:
    """Something that looks like an entry and cannot fire, and why."""

    address: str
    origin: Origin
    title: str
    reason: str

    @property
    def is_hidden(self) -> bool:
        """Whether `COMMENT` or `:ARCHIVE:` takes it out of every list of what is to be done.

        Told by the reason, which names a headline in quotes, since a ledger keeps that alone.
        """
        return self.reason[:1] in {"'", '"'} and self.reason.endswith((COMMENTED, ARCHIVED))


def key_time(moment: datetime) -> str:
    """Return a moment as it stands in keys: whole seconds of UTC.

    >>> from datetime import datetime
    >>> key_time(datetime.fromisoformat("2026-04-01T11:00:00.7+02:00"))
    '2026-04-01T09:00:00Z'
    """
    return format_rfc3339(moment)
