"""The timestamp classifier: it reads the shape and validates nothing."""

from __future__ import annotations

from typing import Final, NamedTuple, TypedDict

_BRACKETS: Final = {"<": (">", True), "[": ("]", False)}


class TimestampData(TypedDict):
    at: str
    repeat: str | None
    active: bool


class Timestamp(NamedTuple):
    at: str
    repeat: str | None
    active: bool

    def data(self) -> TimestampData:
        return {"at": self.at, "repeat": self.repeat, "active": self.active}


def parse_timestamp(text: str) -> Timestamp | None:
    """Return what a bracketed stamp says, or None if it is not one.

    >>> parse_timestamp("<2026-06-06 Sat 06:00 +1d>")
    Timestamp(at='2026-06-06T06:00', repeat='+1d', active=True)
    >>> parse_timestamp("<2026-6-6>")
    """
    text = text.strip()
    close, active = _BRACKETS.get(text[:1], ("", False))
    if not close or text[-1] != close:
        return None

    date = time = repeat = None
    for token in text[1:-1].split():
        if date is None and _is_date(token):
            date = token
        elif ":" in token:
            time = token
        elif token.startswith(("+", ".+")):
            repeat = token
    if date is None:
        return None
    return Timestamp(f"{date}T{time}" if time else date, repeat, active)


def _is_date(token: str) -> bool:
    """Tell whether the token has a date's shape: ten bytes, a dash at byte four."""
    if token.isascii():
        return len(token) == 10 and token[4] == "-"
    octets = token.encode("utf-8", "surrogatepass")
    return len(octets) == 10 and octets[4:5] == b"-"
