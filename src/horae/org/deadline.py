"""When a deadline is past: a fact to compare with, never a clock that wakes anything."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from horae.timing.zone import instant

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from horae.org.timestamp import Timestamp

_AT: Final = re.compile(r"(\d{4}-\d\d-\d\d)(?:T(\d{1,2}):(\d\d)(?:-.*)?)?", re.ASCII)


def is_overdue(deadline: Timestamp, *, now: datetime, zone: ZoneInfo) -> bool:
    """Tell whether an active deadline is past; one without a time has its whole day."""
    end = end_of(deadline, zone=zone)
    return end is not None and now > end


def end_of(deadline: Timestamp | None, *, zone: ZoneInfo) -> datetime | None:
    """Return when a deadline is over; None: a note, or a time that does not exist."""
    found = _AT.fullmatch(deadline.at) if deadline is not None and deadline.active else None
    if found is None:
        return None
    try:
        day = datetime.fromisoformat(found[1])
        if found[2] is None:
            return instant(day + timedelta(days=1), zone)
        return instant(day.replace(hour=int(found[2]), minute=int(found[3])), zone)
    except (ValueError, OverflowError):
        return None
