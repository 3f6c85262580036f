"""Zones by name, and the conversion of local times.

A local (wall) time is a naive datetime. In a gap, where the clock jumps forward, it means the first
moment after the jump; in a fold, where the clock goes back, it means the first of its two passes.

A time in RFC 3339 keeps its offset. A leap second is read as the second after it, as in Unix time.
Digits beyond the microsecond are cut off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from horae.errors import ScheduleError

# The shape of every name in the database, without `..`, a leading slash or a NUL byte.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9][A-Za-z0-9_+-]*){0,2}")
_LONGEST = 64

# Debian installs the database twice more: `right/` counts leap seconds,
# and `localtime` is the setting of the machine.
_NOT_A_PLACE = ("right/", "posix/", "localtime", "posixrules")

_OFFSET = re.compile(r"(?:UTC|GMT)? ?([+-])(\d{1,2})(?::?(\d\d))?")

# The closest two clock changes of any zone are four days apart (Freetown, 1939).
_DAY = timedelta(days=1)
_STRIDE = 3 * _DAY
_SECOND: Final = timedelta(seconds=1)
_DAWN = datetime.min.replace(tzinfo=UTC)
_DUSK = datetime.max.replace(tzinfo=UTC)


class ZoneError(ScheduleError, code="zone"):
    def __init__(self, name: str, *, reason: str, suggestion: str | None = None) -> None:
        self.name, self.reason, self.suggestion = name, reason, suggestion
        shown = name if len(name) <= _LONGEST else name[:_LONGEST] + "…"
        hint = f"; did you mean {suggestion}?" if suggestion else ""
        super().__init__(f"zone {shown!r}: {reason}{hint}")


class ClockChange(NamedTuple):
    at: datetime
    before: timedelta
    after: timedelta

    @property
    def is_gap(self) -> bool:
        return self.after > self.before


@lru_cache(maxsize=64)
def zone(name: str) -> ZoneInfo:
    """Return a zone by the exact name in the time zone database.

    >>> zone("Europe/Berln")
    Traceback (most recent call last):
    horae.timing.zone.ZoneError: zone 'Europe/Berln': no such time zone; did you mean
    Europe/Berlin?
    """
    if len(name) > _LONGEST or not _NAME.fullmatch(name) or name.startswith(_NOT_A_PLACE):
        raise _refusal(name)
    try:
        return ZoneInfo(name)
    # A directory (`Europe`) and a file that is not a zone (`leapseconds`) fail differently.
    except (KeyError, ValueError, OSError):
        raise _refusal(name) from None


def instant(wall: datetime, zone: ZoneInfo) -> datetime:
    early, late = _offsets(wall, zone)
    try:
        if early < late:
            # With the offset after the jump the local time is before the jump, and vice
            # versa, so the jump is between the two.
            before = (wall - late).replace(tzinfo=UTC, microsecond=0)
            after = (wall - early).replace(tzinfo=UTC, microsecond=0)
            return _first_change(before, after, zone)
        return (wall - early).replace(tzinfo=UTC)
    except OverflowError:
        return _DAWN if wall.year == 1 else _DUSK


def local(moment: datetime, zone: ZoneInfo) -> datetime:
    require_aware(moment)
    try:
        return moment.astimezone(zone).replace(tzinfo=None, fold=0)
    except OverflowError:
        return (_DAWN if moment.year == 1 else _DUSK).replace(tzinfo=None)


def is_fold(wall: datetime, zone: ZoneInfo) -> bool:
    early, late = _offsets(wall, zone)
    return early > late


def changes(zone: ZoneInfo, start: datetime, end: datetime) -> Iterator[ClockChange]:
    """Yield the clock changes of a zone after start, up to and with end, in order."""
    require_aware(start)
    require_aware(end)
    # Two days inside of the calendar, where every zone can be computed.
    first, last = _DAWN + 2 * _DAY, _DUSK.replace(microsecond=0) - 2 * _DAY
    here = max(start.astimezone(UTC).replace(microsecond=0), first)
    end = min(end.astimezone(UTC), last)
    if here >= end:
        return

    before = _offset_at(here, zone)
    while here < end:
        there = min(here + _STRIDE, last)
        after = _offset_at(there, zone)
        if after != before:
            at = _first_change(here, there, zone)
            if at > end:
                return
            yield ClockChange(at, before, after)
        here, before = there, after


def _offsets(wall: datetime, zone: ZoneInfo) -> tuple[timedelta, timedelta]:
    """Return the offsets of the first and of the second pass; they differ only at a change."""
    if wall.tzinfo is not None:
        raise ValueError(f"a local time must not have a time zone: {wall.isoformat()}")
    early = zone.utcoffset(wall.replace(fold=0) if wall.fold else wall)
    late = zone.utcoffset(wall.replace(fold=1))
    assert early is not None
    assert late is not None
    return early, late


def _first_change(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    old = _offset_at(before, zone)
    low, high = 0, (after - before) // _SECOND
    while high - low > 1:
        middle = (low + high) // 2
        if _offset_at(before + middle * _SECOND, zone) == old:
            low = middle
        else:
            high = middle
    return before + high * _SECOND


def _offset_at(moment: datetime, zone: ZoneInfo) -> timedelta:
    offset = moment.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def _refusal(name: str) -> ZoneError:
    suggestion, reason = None, "no such time zone; use a name such as Europe/Berlin"
    if not name:
        reason = "is empty; use a name such as Europe/Berlin"
    elif len(name) > _LONGEST:
        reason = f"is longer than {_LONGEST} characters"
    elif not name.isascii():
        reason = "must be ASCII, such as Europe/Berlin"
    elif offset := _OFFSET.fullmatch(name.strip().upper()):
        reason = "is an offset; use a name such as Europe/Berlin to follow clock changes"
        sign, hours, minutes = offset[1], int(offset[2]), int(offset[3] or 0)
        if not minutes and 1 <= hours <= (14 if sign == "+" else 12):
            # POSIX counts westward, so the sign of a fixed zone is inverted.
            suggestion = f"Etc/GMT{'-' if sign == '+' else '+'}{hours}"
    elif suggestion := _nearest(name):
        reason = "no such time zone"
    return ZoneError(name, reason=reason, suggestion=suggestion)


@lru_cache(maxsize=1)
def _places() -> dict[str, str]:
    places = sorted(available_timezones() - set(_NOT_A_PLACE))
    return {place.lower(): place for place in places}


def _nearest(name: str) -> str | None:
    from difflib import get_close_matches  # only errors need it

    wanted = name.strip().replace(" ", "_").lower()
    known = _places()
    if wanted in known:
        return known[wanted]

    # A city alone, or on the wrong continent, is the most common mistake: `Berlin`, `new york`.
    cities = {low.rpartition("/")[2]: place for low, place in known.items() if "/" in low}
    city = wanted.rpartition("/")[2]
    if city in cities:
        return cities[city]

    # An abbreviation is not misspelt: several places share it, and none is nearest.
    if len(wanted) < 5:
        return None
    if close := get_close_matches(wanted, known, n=1, cutoff=0.75):
        return known[close[0]]
    close = get_close_matches(city, cities, n=1, cutoff=0.8)
    return cities[close[0]] if close else None


_EXAMPLE: Final = "2026-04-01T09:00:00Z"
_DATE: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_WRITTEN_OFFSET: Final = "[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9]"
_MOMENT: Final = re.compile(
    rf"({_DATE}[Tt][0-9]{{2}}:[0-9]{{2}}:)([0-9]{{2}})((?:\.[0-9]+)?)({_WRITTEN_OFFSET})"
)
_WITHOUT_OFFSET: Final = re.compile(rf"{_DATE}[Tt][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]+)?")


class Rfc3339Error(ScheduleError, code="rfc3339"):
    def __init__(self, text: str, *, reason: str) -> None:
        self.text, self.reason = text, reason
        shown = text if len(text) <= 40 else text[:40] + "…"
        super().__init__(f"time {shown!r}: {reason}")


def parse_rfc3339(text: str) -> datetime:
    """Parse a time in RFC 3339, which keeps its offset.

    >>> parse_rfc3339("2026-03-25T09:00:00-04:00").isoformat()
    '2026-03-25T09:00:00-04:00'
    >>> parse_rfc3339("2026-03-25 09:00:00Z")
    Traceback (most recent call last):
    horae.timing.zone.Rfc3339Error: time '2026-03-25 09:00:00Z': cannot be read; write it like
    2026-04-01T09:00:00Z
    """
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise _unreadable(text)
    start, second, fraction, offset = found.groups()
    is_leap = second == "60"
    try:
        known = f"{start}{'59' if is_leap else second}{fraction}{offset}"
        moment = datetime.fromisoformat(known.upper())
        utc = moment.astimezone(UTC)
        if not moment.utcoffset() and len(offset) > 1:
            # Three spellings of an unknown offset: only a name of its own distinguishes it from Z.
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
    offset = require_aware(moment)
    if offset % timedelta(minutes=1):  # seconds, as before 1972
        return format_with_offset(moment.astimezone(UTC))
    if offset:
        return moment.isoformat()
    written = name if (name := moment.tzname()) in {"+00:00", "-00:00"} else "Z"
    return moment.replace(tzinfo=None).isoformat() + written


def require_aware(moment: datetime) -> timedelta:
    """Return the offset; Python would silently treat a naive time as local to the machine."""
    offset = moment.utcoffset()
    if offset is None:
        raise ValueError(f"the time needs a time zone: {moment.isoformat()}")
    return offset


def _unreadable(text: str) -> Rfc3339Error:
    reason = f"cannot be read; write it like {_EXAMPLE}"
    if re.fullmatch(_DATE, text):
        reason = f"has no time of day; write it like {text}T09:00:00Z"
    elif _WITHOUT_OFFSET.fullmatch(text):
        reason = "has no offset; end with Z, or with an offset such as +02:00"
    return Rfc3339Error(text, reason=reason)
