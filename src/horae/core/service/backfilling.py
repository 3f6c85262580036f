"""What is run after all: the moments of a window that is past."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from itertools import islice
from typing import TYPE_CHECKING, Final

from horae.core.actor import by_words
from horae.core.decide import Receipt, Status
from horae.core.entry import (
    AfterRule,
    CadenceRule,
    CronRule,
    OnDemandRule,
    RepeaterRule,
    key_time,
)
from horae.core.explain import length_text
from horae.core.project import decided, project, unpaused
from horae.core.reason import Reason, ReasonCode
from horae.core.service.asking import Asking, armed, checked
from horae.core.service.base import BATCH
from horae.core.service.errors import RequestError
from horae.core.service.looking import TINY, check_calendar
from horae.core.service.shapes import Backfill
from horae.core.text import moment_text
from horae.timing.cron_count import count_any
from horae.timing.repeater import Kind
from horae.timing.zone import zone

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from horae.core.entry import Entry
    from horae.core.project import Moment
    from horae.core.service.shapes import Line

MOST: Final = 10_000  # moments of one backfill


def no_progress(done: int, total: int) -> None:
    """Tell nobody."""


class Backfilling(Asking):
    """Makes good what did not run."""

    async def backfill(
        self,
        word: str,
        *,
        start: datetime,
        end: datetime | None = None,
        name: str | None = None,
        dry_run: bool = False,
        progress: Callable[[int, int], None] = no_progress,
    ) -> Backfill:
        """File a receipt for every moment of a past window, oldest first; *end* is not in it.

        The same *name* again gives the same receipts, so what was interrupted can be repeated.
        """
        now = self._clock.now()
        found = await self.named(word)
        entry = unpaused(armed(found))  # that it is paused is said when it is filed
        end = now if end is None else end
        _check_window(start, end, now=now, zone_name=entry.zone)
        moments = _moments(entry, start, end)
        name = self._ids() if name is None else checked(name, "the name of a backfill")
        about = self._entry_line(found)
        plan = Backfill(
            about,
            name,
            start,
            end,
            tuple(each.at for each in moments),
            dry_run=dry_run,
            follows_ends=_follows_ends(entry),
            has_schedule=not isinstance(entry.rule, OnDemandRule | AfterRule),
        )
        if dry_run:
            return plan
        lines: list[Line] = []
        for first in range(0, len(moments), BATCH):
            batch = moments[first : first + BATCH]
            receipts = [_backfilled(each, name, now=now) for each in batch]
            lines += await self._file(found, receipts, now=now)
            progress(len(lines), len(moments))
        return replace(plan, lines=tuple(lines))


def _check_window(start: datetime, end: datetime, *, now: datetime, zone_name: str) -> None:
    """Raise an error unless a window lies in the past and is not empty."""
    check_calendar(start, end)
    first, last = moment_text(start, zone_name), moment_text(end, zone_name)
    if end > now:
        raise RequestError(f"{last} is in the future; a backfill covers only past times")
    if start >= end:
        raise RequestError(
            f"the period is empty: its start ({first}) is not before its end ({last})"
        )


def _moments(entry: Entry, start: datetime, end: datetime) -> list[Moment]:
    """Return the moments of an entry in a window, or say that they are too many."""
    moments = decided(project(entry, start - TINY, end - TINY))
    found = list(islice(moments, MOST + 1))
    if len(found) > MOST:
        total = MOST + 1 + _count_after(entry, found[-1].at, end - TINY)
        raise RequestError(
            f"the period has {total:,} scheduled times, and a backfill can have at most {MOST:,}; "
            "choose a shorter period"
        )
    return found


def _count_after(entry: Entry, start: datetime, end: datetime) -> int:
    """Return how many moments a window has, without walking them where that can be."""
    until = entry.policy.until
    end = end if until is None else min(end, until.astimezone(UTC))
    match entry.rule:
        case CronRule(crons):
            return count_any(crons, start, end)
        case RepeaterRule(anchor, repeater) if repeater.kind is not Kind.RESTART:
            return repeater.how_many(anchor, start, end, zone=zone(entry.zone))
    return sum(1 for _ in decided(project(entry, start, end)))


def _follows_ends(entry: Entry) -> bool:
    rule = entry.rule
    if isinstance(rule, RepeaterRule):
        return rule.repeater.kind is Kind.RESTART
    return isinstance(rule, CadenceRule)


def _backfilled(moment: Moment, name: str, *, now: datetime) -> Receipt:
    key = f"backfill:{name}:{key_time(moment.at)}"
    words = f"{by_words('requested')}, {length_text(now - moment.at)} after the scheduled time"
    reason = Reason(ReasonCode.BACKFILL, words)
    # Not before now: in the line it stands behind what is due on time.
    return Receipt(key, Status.WAITING, reason, moment.at, now)
