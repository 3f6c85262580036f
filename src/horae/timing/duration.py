"""Lengths of time as people write them.

Our own settings name every unit, the longest first: `90s`, `10m`, `1h30m`, `3d`, `1w`.
Keepers have a smaller grammar of their own, in which a bare number is milliseconds.
"""

from __future__ import annotations

import re
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

# Longer is a slip of the finger, and would leave the calendar when added to now.
LONGEST: Final = timedelta(days=36525)

_DURATION: Final = re.compile(
    r"(?:([0-9]+)w)?(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?(?:([0-9]+)ms)?"
)
_CADENCE: Final = re.compile(r"([0-9]+)[ \t]*([smh]?)")

# What people write instead, so that the message can say what would be right.
_LOOSE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*")
_WORDS: Final = {
    **dict.fromkeys(("w", "wk", "wks", "week", "weeks"), "w"),
    **dict.fromkeys(("d", "day", "days"), "d"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), "ms"),
}


class DurationError(ScheduleError):
    """A length of time that cannot be read."""

    code = "duration"

    def __init__(self, text: str, *, reason: str, suggestion: str | None = None) -> None:
        self.text = text
        self.reason = reason
        self.suggestion = suggestion
        shown = text if len(text) <= 40 else text[:40] + "…"
        hint = f"; write {suggestion}" if suggestion else ""
        super().__init__(f"duration {shown!r}: {reason}{hint}")


def parse_duration(text: str, *, allow_zero: bool = False) -> timedelta:
    """Return the length of time that a setting names.

    >>> parse_duration("90s"), parse_duration("1h30m"), parse_duration("1w")
    (datetime.timedelta(seconds=90), datetime.timedelta(seconds=5400), datetime.timedelta(days=7))
    >>> parse_duration("90 minutes")
    Traceback (most recent call last):
    horae.timing.duration.DurationError: duration '90 minutes': must be numbers with
    units, such as 90s, 10m, 1h30m, 3d, 1w; write 1h30m
    """
    match = _DURATION.fullmatch(text)
    if not match or not text:
        raise _refusal(text)
    parts = zip(match.groups(default="0"), _UNITS, strict=True)
    return _checked(text, list(parts), allow_zero=allow_zero)


def parse_cadence(text: str) -> timedelta:
    """Return the length of time of a keeper's `:INTERVAL:`; a bare number is milliseconds.

    >>> parse_cadence("10m"), parse_cadence("45000")
    (datetime.timedelta(seconds=600), datetime.timedelta(seconds=45))
    >>> parse_cadence("3d")
    Traceback (most recent call last):
    horae.timing.duration.DurationError: duration '3d': must be a number with s, m or h, or
    a bare number of milliseconds; write 72h
    """
    match = _CADENCE.fullmatch(text)
    if not match:
        raise _cadence_refusal(text)
    number, unit = match.groups()
    return _checked(text, [(number, unit or "ms")], allow_zero=False)


def format_duration(length: timedelta) -> str:
    """Return a length of time as a setting would name it, cut to the millisecond.

    >>> for seconds in (0, 45, 5400, 93784, 864000, 1209600, 0.25, -90):
    ...     print(format_duration(timedelta(seconds=seconds)), end=" ")
    0s 45s 1h30m 1d2h3m4s 10d 2w 250ms -1m30s
    """
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
    length = _total(parts)
    if length is None:
        raise DurationError(text, reason="must not be longer than 100 years")
    if not length and not allow_zero:
        raise DurationError(text, reason="must not be zero", suggestion="1s or more")
    return length


def _total(parts: list[tuple[str, str]]) -> timedelta | None:
    """Return the sum of the parts; None if it is longer than any we accept."""
    # No century has this many milliseconds, and int() refuses thousands of digits.
    if any(len(number.lstrip("0")) > 13 for number, _ in parts):
        return None
    try:
        total = sum((int(number[-13:]) * _UNITS[unit] for number, unit in parts), timedelta())
    except OverflowError:
        return None
    return total if total <= LONGEST else None


def _refusal(text: str) -> DurationError:
    if not text.strip():
        return DurationError(text, reason="is empty", suggestion="a number and a unit, such as 10m")
    if re.fullmatch("[0-9]{1,9}", text):
        return DurationError(text, reason="has no unit", suggestion=f"{text}s or {text}m")
    if text.lstrip().startswith(("-", "+")):
        reason = "must not have a sign"
    else:
        reason = "must be numbers with units, such as 90s, 10m, 1h30m, 3d, 1w"
    return DurationError(text, reason=reason, suggestion=_guess(text))


def _cadence_refusal(text: str) -> DurationError:
    meant = _meant(text)
    return DurationError(
        text,
        reason="must be a number with s, m or h, or a bare number of milliseconds",
        suggestion=_in_one_unit(meant) if meant else "a number and a unit, such as 10m",
    )


def _guess(text: str) -> str | None:
    meant = _meant(text)
    return format_duration(meant) if meant else None


def _meant(text: str) -> timedelta | None:
    """Return what `1.5 hours` or `10 MIN` was probably meant to say."""
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


def _in_one_unit(length: timedelta) -> str:
    for unit in ("h", "m", "s"):
        if not length % _UNITS[unit]:
            return f"{length // _UNITS[unit]}{unit}"
    return f"{length // _UNITS['ms']}"
