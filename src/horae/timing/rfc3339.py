"""Moments as RFC 3339 writes them: `2026-03-25T09:00:00-04:00`.

Reading is strict: a date, `T`, a time with seconds, and `Z` or an offset with a colon.
Each part that is wrong is named, with its column and what would be right. The moment
keeps the offset it was written with, so that printing it says the same again.

A leap second, 23:59:60 in UTC at the end of a month, is read as the second after it,
which is also where Unix time puts it; second 60 at any other time is refused. Digits
beyond the microsecond are cut off.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from horae.errors import ScheduleError

_EXAMPLE: Final = "2026-04-01T09:00:00Z"

_MOMENT: Final = re.compile(
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})[Tt]"
    r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]+))?"
    r"(?:[Zz]|(?P<sign>[+-])(?P<off_hour>[0-9]{2}):(?P<off_minute>[0-9]{2}))"
)

# The same grammar, a piece at a time, to find the first piece that is missing.
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
_RANGES: Final = (
    ("year", 1, 9999),
    ("month", 1, 12),
    ("hour", 0, 23),
    ("minute", 0, 59),
    ("second", 0, 60),
    ("off_hour", 0, 23),
    ("off_minute", 0, 59),
)
_SECOND: Final = timedelta(seconds=1)


class Rfc3339Error(ScheduleError):
    """A text that is not a moment of RFC 3339."""

    code = "rfc3339"

    def __init__(self, text: str, *, part: str, column: int, reason: str) -> None:
        self.text = text
        self.part = part
        self.column = column
        self.reason = reason
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
    parts = {name: int(match[name] or 0) for name, _, _ in _RANGES}
    for name, low, high in _RANGES:
        if not low <= parts[name] <= high:
            part = name.replace("off_", "offset ")
            reason = f"{match[name]} is outside {low:0{len(match[name])}}-{high:02}"
            raise Rfc3339Error(text, part=part, column=match.start(name) + 1, reason=reason)
    return _moment(text, match, parts)


def format_rfc3339(moment: datetime) -> str:
    """Return the moment in UTC and whole seconds, as it stands in keys.

    >>> format_rfc3339(parse_rfc3339("2026-03-25T09:00:00.5-04:00"))
    '2026-03-25T13:00:00Z'
    """
    _require_aware(moment)
    # Not strftime: it writes the year 999 with three digits on some systems.
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def format_with_offset(moment: datetime) -> str:
    """Return the moment with its own offset, and a fraction only if it has one.

    >>> [format_with_offset(parse_rfc3339(f"2026-03-25T09:00:00{tail}"))
    ...     for tail in ("Z", "+00:00", "-00:00", ".250-04:00")]
    ['2026-03-25T09:00:00Z', '2026-03-25T09:00:00+00:00', '2026-03-25T09:00:00-00:00',
     '2026-03-25T09:00:00.250000-04:00']
    """
    _require_aware(moment)
    offset = _offset_text(moment)
    if offset is None:
        return format_with_offset(moment.astimezone(UTC))
    return moment.replace(tzinfo=None).isoformat() + offset


def _moment(text: str, match: re.Match[str], parts: dict[str, int]) -> datetime:
    is_leap = parts["second"] == 60
    try:
        moment = datetime(
            parts["year"],
            parts["month"],
            int(match["day"]),
            parts["hour"],
            parts["minute"],
            59 if is_leap else parts["second"],
            int((match["fraction"] or "0")[:6].ljust(6, "0")),
            tzinfo=_offset(match, parts),
        )
    except ValueError:
        # Everything else is in range by now.
        reason = f"{match['day']} does not exist in {match['year']}-{match['month']}"
        raise Rfc3339Error(text, part="day", column=9, reason=reason) from None
    try:
        utc = moment.astimezone(UTC)
        if not is_leap:
            return moment
        if (utc.hour, utc.minute) == (23, 59) and (utc + _SECOND).day == 1:
            return moment + _SECOND
    except OverflowError:
        reason = f"{match['year']} is outside 0001-9999 in UTC"
        raise Rfc3339Error(text, part="year", column=1, reason=reason) from None
    reason = "60 is a leap second, which exists only at 23:59:60 UTC at the end of a month"
    raise Rfc3339Error(text, part="second", column=18, reason=reason)


def _offset(match: re.Match[str], parts: dict[str, int]) -> timezone:
    if not match["sign"]:
        return UTC
    length = timedelta(hours=parts["off_hour"], minutes=parts["off_minute"])
    # Three ways to write no offset: only a name of its own keeps this from being Z.
    if not length:
        return timezone(length, f"{match['sign']}00:00")
    return timezone(-length if match["sign"] == "-" else length)


def _offset_text(moment: datetime) -> str | None:
    """Return the offset as RFC 3339 writes it; None if it has seconds, as before 1972."""
    offset = moment.utcoffset()
    assert offset is not None
    if not offset:
        name = moment.tzname()
        return name if name in {"+00:00", "-00:00"} else "Z"
    minutes, rest = divmod(abs(offset), timedelta(minutes=1))
    if rest:
        return None
    sign = "-" if offset < timedelta() else "+"
    return f"{sign}{minutes // 60:02}:{minutes % 60:02}"


def _require_aware(moment: datetime) -> None:
    if moment.utcoffset() is None:
        raise ValueError(f"the time needs a time zone: {moment.isoformat()}")


def _refusal(text: str) -> Rfc3339Error:
    """Return which piece of the text is the first that is not where it should be."""
    if not text:
        return Rfc3339Error(text, part="text", column=1, reason=f"is empty; write {_EXAMPLE}")
    at = 0
    for part, pattern, needed in _PIECES:
        piece = re.compile(pattern).match(text, at)
        if not piece:
            if part == "time" and at == len(text) and (wrong := _wrong_date(text)):
                return wrong
            reason = _missing(text, at, part) or f"needs {needed}"
            return Rfc3339Error(text, part=part, column=at + 1, reason=reason)
        at = piece.end()
    return Rfc3339Error(text, part="text", column=at + 1, reason="has characters after the offset")


def _wrong_date(text: str) -> Rfc3339Error | None:
    """Return what is wrong with a date that has no time after it."""
    try:
        parse_rfc3339(f"{text}T00:00:00Z")
    except Rfc3339Error as error:
        return Rfc3339Error(text, part=error.part, column=error.column, reason=error.reason)
    return None


def _missing(text: str, at: int, part: str) -> str | None:
    """Return a plainer reason for the slips that people make most."""
    if part == "offset" and (short := re.fullmatch("([+-][0-9]{2})([0-9]{2})?", text[at:])):
        return f"needs a colon: {short[1]}:{short[2] or '00'}"
    if at < len(text):
        return None
    if part == "offset":
        return "is missing; end with Z, or with an offset such as +02:00"
    if part == "time" and at == 10:
        return f"is missing; write {text}T09:00:00Z"
    return None
