"""Times as RFC 3339 writes them: `2026-03-25T09:00:00-04:00`.

A time keeps the offset it was written with. A leap second is read as the second after it, as in
Unix time. Digits beyond the microsecond are cut off.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from horae.errors import ScheduleError

_EXAMPLE: Final = "2026-04-01T09:00:00Z"
_DATE: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_OFFSET: Final = "[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9]"
_MOMENT: Final = re.compile(
    rf"({_DATE}[Tt][0-9]{{2}}:[0-9]{{2}}:)([0-9]{{2}})((?:\.[0-9]+)?)({_OFFSET})"
)
_WITHOUT_OFFSET: Final = re.compile(rf"{_DATE}[Tt][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]+)?")
_SECOND: Final = timedelta(seconds=1)


class Rfc3339Error(ScheduleError, code="rfc3339"):
    def __init__(self, text: str, *, reason: str) -> None:
        self.text, self.reason = text, reason
        shown = text if len(text) <= 40 else text[:40] + "…"
        super().__init__(f"time {shown!r}: {reason}")


def parse_rfc3339(text: str) -> datetime:
    """Return the moment, aware and with the offset it was written with.

    >>> parse_rfc3339("2026-03-25T09:00:00-04:00").isoformat()
    '2026-03-25T09:00:00-04:00'
    >>> parse_rfc3339("2026-03-25 09:00:00Z")
    Traceback (most recent call last):
    horae.timing.rfc3339.Rfc3339Error: time '2026-03-25 09:00:00Z': cannot be read; write it like
    2026-04-01T09:00:00Z
    """
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise _refusal(text)
    start, second, fraction, offset = found.groups()
    is_leap = second == "60"
    try:
        known = f"{start}{'59' if is_leap else second}{fraction}{offset}"
        moment = datetime.fromisoformat(known.upper())
        utc = moment.astimezone(UTC)
        if not moment.utcoffset() and len(offset) > 1:
            # Three ways to write no offset: only a name of its own keeps this from being Z.
            moment = moment.replace(tzinfo=timezone(timedelta(), offset))
        if not is_leap:
            return moment
        if (utc.hour, utc.minute) == (23, 59) and (utc + _SECOND).day == 1:
            return moment + _SECOND
    except (ValueError, OverflowError):
        raise Rfc3339Error(text, reason="the date or the time of day does not exist") from None
    reason = "has a leap second, which exists only at 23:59:60 UTC at the end of a month"
    raise Rfc3339Error(text, reason=reason)


def format_with_offset(moment: datetime) -> str:
    """Return the moment with its own offset, and a fraction only if it has one."""
    offset = _require_aware(moment)
    if offset % timedelta(minutes=1):  # seconds, as before 1972
        return format_with_offset(moment.astimezone(UTC))
    if offset:
        return moment.isoformat()
    written = name if (name := moment.tzname()) in {"+00:00", "-00:00"} else "Z"
    return moment.replace(tzinfo=None).isoformat() + written


def _require_aware(moment: datetime) -> timedelta:
    """Return the offset; Python would take a naive time for the machine's own, silently."""
    offset = moment.utcoffset()
    if offset is None:
        raise ValueError(f"the time needs a time zone: {moment.isoformat()}")
    return offset


def _refusal(text: str) -> Rfc3339Error:
    reason = f"cannot be read; write it like {_EXAMPLE}"
    if re.fullmatch(_DATE, text):
        reason = f"has no time of day; write it like {text}T09:00:00Z"
    elif _WITHOUT_OFFSET.fullmatch(text):
        reason = "has no offset; end with Z, or with an offset such as +02:00"
    return Rfc3339Error(text, reason=reason)
