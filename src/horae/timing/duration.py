"""Durations: `90s`, `10m`, `1h30m`, `3d`, `1w`; the longest unit comes first.

Members of a crew have a smaller grammar, in which a bare number is milliseconds. Their waits
between two ticks grow while they find no work.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import timedelta
from typing import Final

from horae.errors import ScheduleError

_UNITS: Final = {
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}

# Longer is a typing error, and would exceed the calendar when added to now.
LONGEST: Final = timedelta(days=36525)

_DURATION: Final = re.compile(
    r"(?:([0-9]+)w)?(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?(?:([0-9]+)ms)?"
)
_CADENCE: Final = re.compile(r"([0-9]+)[ \t]*([smh]?)")

# Common other spellings, for the suggestion in the error.
_LOOSE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*")
_WORDS: Final = {
    **dict.fromkeys(("w", "wk", "wks", "week", "weeks"), "w"),
    **dict.fromkeys(("d", "day", "days"), "d"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), "ms"),
}


class DurationError(ScheduleError, code="duration"):
    def __init__(self, text: str, *, reason: str, suggestion: str | None = None) -> None:
        self.text, self.reason, self.suggestion = text, reason, suggestion
        shown = text if len(text) <= 40 else text[:40] + "…"
        hint = f"; write {suggestion}" if suggestion else ""
        super().__init__(f"duration {shown!r}: {reason}{hint}")


def parse_duration(text: str, *, allow_zero: bool = False) -> timedelta:
    """Parse the duration in a setting.

    >>> parse_duration("90s"), parse_duration("1h30m"), parse_duration("1w")
    (datetime.timedelta(seconds=90), datetime.timedelta(seconds=5400), datetime.timedelta(days=7))
    >>> parse_duration("90 minutes")
    Traceback (most recent call last):
    horae.timing.duration.DurationError: duration '90 minutes': must be numbers with
    units, such as 90s, 10m, 1h30m, 3d, 1w; write 1h30m
    """
    match = _DURATION.fullmatch(text)
    if match and text:
        parts = zip(match.groups(default="0"), _UNITS, strict=True)
        return _checked(text, list(parts), allow_zero=allow_zero)
    reason = "must be numbers with units, such as 90s, 10m, 1h30m, 3d, 1w"
    meant = loose_duration(text)
    suggestion = format_duration(meant) if meant else None
    if not text.strip():
        reason, suggestion = "is empty", "a number and a unit, such as 10m"
    elif re.fullmatch("[0-9]{1,9}", text):
        reason, suggestion = "has no unit", f"{text}s or {text}m"
    elif text.lstrip().startswith(("-", "+")):
        reason = "must not have a sign"
    raise DurationError(text, reason=reason, suggestion=suggestion)


def parse_cadence(text: str) -> timedelta:
    """Parse the `:INTERVAL:` of a member; a bare number is milliseconds."""
    if match := _CADENCE.fullmatch(text):
        number, unit = match.groups()
        return _checked(text, [(number, unit or "ms")], allow_zero=False)
    suggestion = "a number and a unit, such as 10m"
    if meant := loose_duration(text):
        suggestion = format_cadence(meant)
    reason = "must be a number with s, m or h, or a bare number of milliseconds"
    raise DurationError(text, reason=reason, suggestion=suggestion)


def format_cadence(length: timedelta) -> str:
    """Return a duration as `:INTERVAL:` has it.

    >>> format_cadence(timedelta(minutes=90)), format_cadence(timedelta(milliseconds=1500))
    ('90m', '1500')
    """
    unit = next((unit for unit in ("h", "m", "s") if not length % _UNITS[unit]), "")
    return f"{length // _UNITS[unit or 'ms']}{unit}"


def format_duration(length: timedelta) -> str:
    """Return a duration as a setting has it, truncated to milliseconds."""
    if length <= -_UNITS["ms"]:
        return f"-{format_duration(-length)}"
    if length and not length % _UNITS["w"]:
        return f"{length // _UNITS['w']}w"

    written, rest = "", max(length, timedelta())
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(rest, _UNITS[unit])
        written += f"{count}{unit}" if count else ""
    return written or "0s"


def _checked(text: str, parts: list[tuple[str, str]], *, allow_zero: bool) -> timedelta:
    length: timedelta | None = None
    # No century has this many milliseconds, and int() refuses thousands of digits.
    if all(len(number.lstrip("0")) <= 13 for number, _ in parts):
        with suppress(OverflowError):  # it is too long
            length = sum((int(number[-13:]) * _UNITS[unit] for number, unit in parts), timedelta())
    if length is None or length > LONGEST:
        raise DurationError(text, reason="must not be longer than 100 years")
    if not length and not allow_zero:
        raise DurationError(text, reason="must not be zero", suggestion="1s or more")
    return length


def loose_duration(text: str) -> timedelta | None:
    """Return the duration that a text means or probably means.

    >>> loose_duration("1h 30min"), loose_duration("1.5 hours"), loose_duration("infinity")
    (datetime.timedelta(seconds=5400), datetime.timedelta(seconds=5400), None)
    """
    plain = text.strip().lower().lstrip("+-")
    if len(plain) > 40 or not re.fullmatch(f"(?:{_LOOSE.pattern})+", plain):
        return None
    total = timedelta()
    for number, word in _LOOSE.findall(plain):
        unit = _WORDS.get(word)
        if unit is None or len(number) > 9:
            return None
        total += float(number) * _UNITS[unit]
    return total if timedelta(milliseconds=1) <= total <= LONGEST else None


IDLE_FLOOR: Final = timedelta(minutes=1)
IDLE_CAP: Final = timedelta(minutes=30)

# So many failures in a row are not unusual; one more, and the member is stuck.
STUCK_AFTER: Final = 3

# A restart loop must stay cheap: no first tick comes sooner than this.
FIRST_WAIT: Final = timedelta(minutes=1)


def delay_after(base: timedelta, streak: int) -> timedelta:
    """Return the wait before the next tick, after *streak* ticks without work.

    >>> breather = timedelta(seconds=45)
    >>> [delay_after(breather, n).seconds for n in range(8)]
    [45, 60, 120, 240, 480, 960, 1800, 1800]
    """
    if streak <= 0:
        return base
    # Clamp before doubling: one idle day would overflow timedelta. The cap is on the backoff,
    # so an hourly keeper stays hourly.
    doublings = min(streak - 1, 5)
    return max(base, min(IDLE_FLOOR * (1 << doublings), IDLE_CAP))


def delay_after_failures(base: timedelta, failures: int) -> timedelta:
    return delay_after(base, failures - STUCK_AFTER)


def first_delay(interval: timedelta, elapsed: timedelta | None) -> timedelta:
    """Return the wait after a restart, *elapsed* after the last tick; None: never ticked."""
    if elapsed is None:
        return FIRST_WAIT
    # A last tick in the future: the clock was set back. The wait is one interval at most.
    passed = min(max(elapsed, timedelta()), interval)
    return max(FIRST_WAIT, interval - passed)
