"""Moments and zones as they are typed on the command line."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

import click

from horae.config import load
from horae.core.clock import SystemClock, machine_zone
from horae.timing.duration import DurationError, parse_duration
from horae.timing.zone import Rfc3339Error, instant, parse_rfc3339, zone

_WALL: Final = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?))?", re.ASCII)


def moment_and_zone(
    text: str | None, *, tz: str | None = None, root: str = "."
) -> tuple[datetime, ZoneInfo]:
    """Return the time of --at, else now, and the zone: of --tz, the plan root or the machine."""
    name = load(root).zone if tz is None else tz
    where = machine_zone() if name is None else zone(name)
    return (SystemClock().now() if text is None else parse_moment(text, where)), where


def parse_moment(text: str, where: ZoneInfo, *, or_length: str = "") -> datetime:
    """Return a moment: RFC 3339, or the date and time of a zone; the error names *or_length*."""
    wall = _WALL.fullmatch(text.strip())
    try:
        if wall is None:
            return parse_rfc3339(text.strip())
        return instant(datetime.fromisoformat(f"{wall[1]}T{wall[2] or '00:00'}"), where)
    except (Rfc3339Error, ValueError) as error:
        if wall is not None:  # written as a time is, but there is none such
            raise click.UsageError(f"{text!r} is not a valid time ({error}).") from None
        length = or_length and f", or a duration like {or_length}"
        like = f"write it like 2026-06-06T09:00:00Z, '2026-06-06 09:00' or 2026-06-06{length}."
        raise click.UsageError(f"{text!r} is not a time; {like}") from None


def moment_or_length(
    text: str, where: ZoneInfo, now: datetime, *, such_as: str = "", is_ago: bool = False
) -> datetime:
    """Return a moment, or that of a duration after now, or before it; errors name one *such_as*."""
    try:
        length = parse_duration(text)
    except DurationError:  # then it is a time
        return parse_moment(text, where, or_length=such_as)
    return now - length if is_ago else now + length
