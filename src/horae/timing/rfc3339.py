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
_SHORT: Final = re.compile("([+-][0-9]{2})([0-9]{2})?")

# The grammar, a piece at a time: so the first piece that is missing can be named.
_PIECES: Final = (
    ("year", r"[0-9]{4}", "four digits"),
    ("date", r"-", "a dash after the year"),
    ("month", r"[0-9]{2}", "two digits"),
    ("date", r"-", "a dash after the month"),
    ("day", r"[0-9]{2}", "two digits"),
    ("time", r"[Tt]", "T between date and time"),
    ("hour", r"[0-9]{2}", "two digits"),
    ("time", r":", "a colon after the hour"),
    ("minute", r"[0-9]{2}", "two digits"),
    ("time", r":", "a colon and the seconds after the minute"),
    ("second", r"[0-9]{2}", "two digits"),
    ("fraction", r"(?:\.[0-9]+)?(?!\.)", "digits after the point"),
    ("offset", r"[Zz]|[+-][0-9]{2}:[0-9]{2}", "Z, or an offset such as +02:00"),
)
_MOMENT: Final = re.compile("".join(f"({pattern})" for _, pattern, _ in _PIECES))
# Name, place in the text (from the offset on: after its start) and bounds of each number.
_RANGES: Final = (
    ("year", 0, 1, 9999),
    ("month", 5, 1, 12),
    ("hour", 11, 0, 23),
    ("minute", 14, 0, 59),
    ("second", 17, 0, 60),
    ("offset hour", 1, 0, 23),
    ("offset minute", 4, 0, 59),
)
_SECOND: Final = timedelta(seconds=1)


class Rfc3339Error(ScheduleError, code="rfc3339"):
    def __init__(self, text: str, *, part: str, column: int, reason: str) -> None:
        self.text, self.part, self.column, self.reason = text, part, column, reason
        shown = text if len(text) <= 40 else text[:40] + "…"
        super().__init__(f"time {shown!r}: {part} {reason} (column {column})")


def parse_rfc3339(text: str) -> datetime:
    """Return the moment, aware and with the offset it was written with.

    >>> parse_rfc3339("2026-03-25T09:00:00-04:00").isoformat()
    '2026-03-25T09:00:00-04:00'
    >>> parse_rfc3339("2026-03-25 09:00:00Z")
    Traceback (most recent call last):
    horae.timing.rfc3339.Rfc3339Error: time '2026-03-25 09:00:00Z': time needs T between date
    and time (column 11)
    """
    match = _MOMENT.fullmatch(text)
    if not match:
        raise _refusal(text)
    for part, place, low, high in _RANGES:
        at = match.start(13) + place if part.startswith("offset") else place
        written = text[at : at + (4 if part == "year" else 2)] or "00"
        if not low <= int(written) <= high:
            reason = f"{written} is outside {low:0{len(written)}}-{high:02}"
            raise Rfc3339Error(text, part=part, column=at + 1, reason=reason)
    second, offset = text[17:19], match[13]
    try:
        moment = datetime.fromisoformat(f"{text[:17]}{min(second, '59')}{text[19:]}".upper())
    except ValueError:
        # Everything else is in range by now.
        reason = f"{text[8:10]} does not exist in {text[:7]}"
        raise Rfc3339Error(text, part="day", column=9, reason=reason) from None
    if not moment.utcoffset() and len(offset) > 1:
        # Three ways to write no offset: only a name of its own keeps this from being Z.
        moment = moment.replace(tzinfo=timezone(timedelta(), offset))
    try:
        utc = moment.astimezone(UTC)
        if second != "60":
            return moment
        if (utc.hour, utc.minute) == (23, 59) and (utc + _SECOND).day == 1:
            return moment + _SECOND
    except OverflowError:
        reason = f"{text[:4]} is outside 0001-9999 in UTC"
        raise Rfc3339Error(text, part="year", column=1, reason=reason) from None
    reason = "60 is a leap second, which exists only at 23:59:60 UTC at the end of a month"
    raise Rfc3339Error(text, part="second", column=18, reason=reason)


def format_rfc3339(moment: datetime) -> str:
    """Return the moment in UTC and whole seconds, as it stands in keys."""
    _require_aware(moment)
    # Not strftime: it writes the year 999 with three digits on some systems.
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def format_with_offset(moment: datetime) -> str:
    """Return the moment with its own offset, and a fraction only if it has one."""
    offset = _require_aware(moment)
    minutes, rest = divmod(abs(offset), timedelta(minutes=1))
    if rest:  # seconds, as before 1972
        return format_with_offset(moment.astimezone(UTC))
    written = f"{'-' if offset < timedelta() else '+'}{minutes // 60:02}:{minutes % 60:02}"
    if not offset:
        written = name if (name := moment.tzname()) in {"+00:00", "-00:00"} else "Z"
    return moment.replace(tzinfo=None).isoformat() + written


def _require_aware(moment: datetime) -> timedelta:
    """Return the offset; Python would take a naive time for the machine's own, silently."""
    offset = moment.utcoffset()
    if offset is None:
        raise ValueError(f"the time needs a time zone: {moment.isoformat()}")
    return offset


def _refusal(text: str) -> Rfc3339Error:
    """Return which piece of the text is the first that is not where it should be."""
    if not text:
        return Rfc3339Error(text, part="text", column=1, reason=f"is empty; write {_EXAMPLE}")
    at = 0
    for part, pattern, needed in _PIECES:
        piece = re.compile(pattern).match(text, at)
        if piece:
            at = piece.end()
            continue
        reason, is_end = f"needs {needed}", at == len(text)
        if part == "time" and is_end:
            try:  # a date may be wrong by itself
                parse_rfc3339(f"{text}T00:00:00Z")
            except Rfc3339Error as error:
                return Rfc3339Error(text, part=error.part, column=error.column, reason=error.reason)
            reason = f"is missing; write {text}T09:00:00Z"
        elif part == "offset" and (short := _SHORT.fullmatch(text, at)):
            reason = f"needs a colon: {short[1]}:{short[2] or '00'}"
        elif part == "offset" and is_end:
            reason = "is missing; end with Z, or with an offset such as +02:00"
        return Rfc3339Error(text, part=part, column=at + 1, reason=reason)
    return Rfc3339Error(text, part="text", column=at + 1, reason="has characters after the offset")
