"""Messages of programs and providers about usage limits, and when a limit ends.

You've hit your session limit · resets 3:10am (America/Bogota)      Claude Code
You've hit your usage limit. Try again at Aug 8th, 2026 12:30 PM.   Codex
{"error": {"type": "usage_limit_reached", "resets_in_seconds": 9}}  Codex
Your quota will reset after 1h2m3s                                  Gemini CLI
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from horae.errors import ScheduleError
from horae.timing.zone import zone

if TYPE_CHECKING:
    from collections.abc import Mapping


class Fault(StrEnum):
    LIMIT = "limit"  # the account has reached its usage limit
    OVERLOAD = "overload"
    ERROR = "error"  # another error of the provider, or it was unreachable
    BUDGET = "budget"  # the program has reached its budget


_LIMIT: Final = re.compile(
    r"(?:hit|reached) your [\w\s.-]{0,40}limit|usage limit (?:has been )?reached"
    r"|usage_limit_reached|limit reached [·∙|]|rate.?limit(?:ed|_error|_exceeded| exceeded)"
    r"|RateLimitError|exceeded (?:your|retry) (?:current )?(?:quota|limit, last status: 429)"
    r"|exhausted your (?:capacity|\w+ quota)|RESOURCE_EXHAUSTED|too many requests"
    r"|out of extra usage|\b(?:API Error|rejected|status|HTTP|Error code)\W{0,3}429\b",
    re.IGNORECASE,
)
_OVERLOAD: Final = re.compile(
    r"overloaded(?:_error)?\b"
    r"|\b(?:API Error|status|HTTP|Error code)\W{0,3}(?:Repeated )?(?:529|503)\b"
    r"|503 Service Unavailable|ServiceUnavailableError|server_is_overloaded",
    re.IGNORECASE,
)
_ERROR: Final = re.compile(
    r"\b(?:API Error|status|HTTP|Error code)\W{0,3}5\d\d\b|\b5\d\d (?:Bad Gateway|Internal Server)"
    r"|API Error: (?:Connection|Request timed)|InternalServerError|APIConnectionError"
    r"|stream disconnected before completion|error sending request",
    re.IGNORECASE,
)
_MONTHS: Final = (
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
)  # fmt: skip
_AT: Final = re.compile(
    r"(?:resets?|again)(?: at)? "
    r"(?:(?P<month>[A-Z][a-z]{2})[a-z]* (?P<day>\d{1,2})(?:st|nd|rd|th)?(?:,? (?P<year>\d{4}))?"
    r"(?:,| at|,? )\s*)?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?(?::\d\d)?\s?(?P<half>[ap])\.?m\b\.?"
    r"(?: \((?P<zone>[A-Za-z][\w+/-]{1,40})\))?",
    re.IGNORECASE,
)
_EPOCH: Final = re.compile(
    r"(?:limit reached\||\"?resets?_?at\"?\s*[:=]\s*\"?)(\d{10})\b", re.IGNORECASE
)
_SECONDS: Final = re.compile(r"\"?resets_in_seconds\"?\s*[:=]\s*(\d{1,9})\b")
_AFTER: Final = re.compile(
    r"(?:again in|reset(?:s)? (?:after|in))((?:,?\s*\d{1,6}(?:\.\d+)?\s*"
    r"(?:days?|d|hours?|h|minutes?|mins?|m|seconds?|secs?|s)(?![a-z]))+)",
    re.IGNORECASE,
)
_PART: Final = re.compile(r"(\d{1,6}(?:\.\d+)?)\s*([dhms])", re.IGNORECASE)
_UNITS: Final = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
_JUST_NOW: Final = timedelta(minutes=10)  # a time of day this long ago means today


def fault_in(said: str, *, status: int | None = None) -> Fault | None:
    """Return the fault of a provider in an error, by its HTTP status or its message.

    >>> fault_in("You've hit your session limit · resets 3:10am"), fault_in("no such file")
    (<Fault.LIMIT: 'limit'>, None)
    >>> fault_in("", status=529), fault_in("API Error: 502 Bad Gateway")
    (<Fault.OVERLOAD: 'overload'>, <Fault.ERROR: 'error'>)
    """
    if status == 429:
        return Fault.LIMIT
    if status in {503, 529}:
        return Fault.OVERLOAD
    if status is not None:
        return Fault.ERROR if status >= 500 else None
    kinds = ((_LIMIT, Fault.LIMIT), (_OVERLOAD, Fault.OVERLOAD), (_ERROR, Fault.ERROR))
    return next((fault for pattern, fault in kinds if pattern.search(said)), None)


def reset_in(said: str, *, now: datetime) -> datetime | None:
    """Return when a limit ends, if an error says so; a time of day is the next one.

    >>> now = datetime(2026, 11, 18, 22, tzinfo=UTC)
    >>> str(reset_in("session limit · resets 3:10am (America/Bogota)", now=now))
    '2026-11-19 08:10:00+00:00'
    >>> str(reset_in("Try again in 2 days 17 hours.", now=now))
    '2026-11-21 15:00:00+00:00'
    >>> str(reset_in("resets Apr 23 at 4pm (UTC)", now=now))
    '2027-04-23 16:00:00+00:00'
    """
    said = said[:20_000]
    if found := _EPOCH.search(said):
        return at_epoch(int(found[1]))
    if found := _SECONDS.search(said):
        return now + timedelta(seconds=int(found[1]))
    if found := _AFTER.search(said):
        parts = {_UNITS[unit.lower()]: float(count) for count, unit in _PART.findall(found[1])}
        return now + timedelta(**parts)
    found = _AT.search(said)
    return None if found is None else _at(found, now)


def at_epoch(seconds: object) -> datetime | None:
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds < 1 << 33:  # type: ignore[operator]
        return None
    return datetime.fromtimestamp(float(seconds), UTC)  # type: ignore[arg-type]


def _at(found: re.Match[str], now: datetime) -> datetime | None:
    try:
        place: tzinfo | None = zone(found["zone"]) if found["zone"] else None
    except ScheduleError:
        place = None
    here = now.astimezone(place)  # without a zone, the local time of this machine
    since = here - _JUST_NOW
    hour = int(found["hour"]) % 12 + 12 * (found["half"].lower() == "p")
    try:
        at = here.replace(hour=hour, minute=int(found["minute"] or 0), second=0, microsecond=0)
        if found["month"] is None:
            at = at if at >= since else at + timedelta(days=1)
        else:
            month, year = _MONTHS.index(found["month"].lower()) + 1, int(found["year"] or at.year)
            at = at.replace(year=year, month=month, day=int(found["day"]))
            if found["year"] is None and at < since:
                at = at.replace(year=year + 1)
    except ValueError:  # no such hour, day or month
        return None
    return at.astimezone(UTC)


def retry_after(headers: Mapping[str, str], *, now: datetime) -> datetime | None:
    """Parse a `Retry-After`, in seconds or as a date.

    >>> str(retry_after({"retry-after": "90"}, now=datetime(2026, 1, 1, tzinfo=UTC)))
    '2026-01-01 00:01:30+00:00'
    """
    text = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,8}(?:\.\d{1,6})?", text):
        return now + timedelta(seconds=float(text))
    try:
        found = parsedate_to_datetime(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
