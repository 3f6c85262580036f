"""How often an entry fires in a stretch of time, mostly without a walk."""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from horae.core.entry import CronRule, Entry, RepeaterRule
from horae.core.project import project, stretches
from horae.timing.cron_count import count_any
from horae.timing.repeater import RepeaterKind
from horae.timing.zone import zone

if TYPE_CHECKING:
    from datetime import datetime

    from horae.timing.cron import Cron


def count(entry: Entry, start: datetime, end: datetime) -> int:
    """Return how many moments an entry has after *start*, up to *end*, mostly without a walk."""
    return sum(_count(*each) for each in stretches(entry, start, end))


def _count(entry: Entry, start: datetime, end: datetime) -> int:
    """Return the same of an entry that is not paused."""
    match entry.rule:
        case CronRule(crons):
            return _count_crons(crons, start, end)
        case RepeaterRule(anchor, repeater) if repeater.kind is not RepeaterKind.RESTART:
            return repeater.how_many(anchor, start, end, zone=zone(entry.zone))
    return sum(1 for _ in islice(project(entry, start, end), 10_000))


@lru_cache(maxsize=1 << 16)
def _count_crons(crons: tuple[Cron, ...], start: datetime, end: datetime) -> int:
    # A rule names the same moments whenever it is asked, and a calendar asks for the same days.
    return count_any(crons, start, end)
