"""When a deadline is past: a fact to compare with, never a clock that wakes anything."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from horae.errors import ScheduleError
from horae.timing.repeater import parse_at
from horae.timing.zone import instant

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from horae.org.timestamp import Timestamp


def is_overdue(deadline: Timestamp, *, now: datetime, zone: ZoneInfo) -> bool:
    """Tell whether an active deadline is past; one without a time has its whole day."""
    end = end_of(deadline, zone=zone)
    return end is not None and now > end


def end_of(deadline: Timestamp | None, *, zone: ZoneInfo) -> datetime | None:
    """Return when a deadline is over; None: a note, or a time that does not exist."""
    if deadline is None or not deadline.active:
        return None
    try:
        start, _, has_time = parse_at(deadline.at)
        return instant(start if has_time else start + timedelta(days=1), zone)
    except (ScheduleError, OverflowError):
        return None
