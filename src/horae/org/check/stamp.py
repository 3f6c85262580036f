"""Findings about timestamps: what looks like a date and is not, or cannot be one."""

from __future__ import annotations

import re
from datetime import date
from itertools import chain
from typing import TYPE_CHECKING, Final

from horae.org.check.finding import (
    Check,
    CheckedSection,
    SectionFinding,
    is_fired,
    is_workflow,
    shown,
)
from horae.org.element import bare
from horae.org.plan import Severity
from horae.org.timestamp import parse_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from horae.org.plan import Headline, Stamp

_DATE: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_ALMOST: Final = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})", re.ASCII)
_OTHER: Final = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{8}", re.ASCII)
_TIME: Final = re.compile(r"(\d{1,2}):(\d\d)(?:-(\d{1,2}):(\d\d))?", re.ASCII)
_REPEATER: Final = re.compile(r"(?:\+\+|\.\+|\+)(\d+)(.?)(?:/(\d+)(.?))?", re.ASCII)
_ISO: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d)(?::\d\d(?:\.\d+)?)?(?:[Zz]|[+-]\d\d:?\d\d)?", re.ASCII
)
_UNSIGNED: Final = re.compile(r"[1-9][0-9]{0,5}[hdwmy]")  # a repeater without its sign
_RANGE: Final = re.compile(r"[>\]]--[<\[]")
_RANGE_MIDDLE: Final = re.compile(r"(?<=[>\]])--(?=[<\[])")
_PROSE: Final = re.compile(
    r"^[ \t]*+(?:#[ \t]|(?i:scheduled|deadline|closed):)[^\n]*+"  # a remark; layout speaks of these
    r"|(<\d{4}-\d\d-\d\d[^<>\n]{0,60}>)",
    re.ASCII | re.MULTILINE,
)
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY_NAMES: Final = {
    **{day.lower(): day for day in _DAYS},
    **{
        day.lower(): day[:3]
        for day in ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    },
}
_UNITS: Final = "hdwmy"
_ABOUT: Final = {"h": 1, "d": 24, "w": 168, "m": 729.6, "y": 8766}  # hours, as Org compares
_MOST: Final = len("999999")  # digits of a count
_ONE_DAY: Final = "write <YYYY-MM-DD HH:MM-HH:MM>"
_CLOSE: Final = {"<": ">", "[": "]"}


def _planning_stamps(section: CheckedSection) -> Iterator[SectionFinding]:
    planning = section.headline.planning
    if planning is None:
        return
    for stamp in (planning.scheduled, planning.deadline, planning.closed):
        if stamp is None:
            continue
        if _RANGE.search(stamp.text):
            yield _range(stamp, fires=stamp is planning.scheduled and _rules(section.headline))
        if stamp.time is None:
            if not _RANGE.search(stamp.text):
                yield _silent(stamp)
        else:
            yield from _odd(stamp)


def _rules(headline: Headline) -> bool:
    return is_fired(headline) and {"SCHEDULE", "AFTER"}.isdisjoint(headline.props)


def _range(stamp: Stamp, *, fires: bool) -> SectionFinding:
    """Return the finding for two stamps as one, and how to write what may be meant."""
    message = "a range of two timestamps is read as one; only one date and the last time are used"
    severity = Severity.WARNING
    if fires:
        message = (
            "a range of two timestamps does not say how often to run, so the entry is not armed"
        )
        severity = Severity.ERROR
    elif stamp.time is None:
        message = "a range of two timestamps has no effect here"
        severity = Severity.ERROR
    return SectionFinding(stamp.start, "range", severity, message, _one_stamp(stamp.text))


def _one_stamp(text: str) -> str:
    """Return how a range is written with one stamp.

    >>> _one_stamp("<2026-06-06 Sat 09:00>--<2026-06-06 Sat 11:00>")
    'write <2026-06-06 Sat 09:00-11:00>'
    >>> _one_stamp("<2026-06-06 Sat>--<2026-06-08 Mon>")
    'write <2026-06-06 Sat>; to run on each day, write <2026-06-06 Sat +1d> with :UNTIL: 2026-06-08'
    """
    first, second = _RANGE_MIDDLE.split(text, maxsplit=1)
    begin, end = parse_timestamp(first), parse_timestamp(second)
    if begin is None or end is None:
        return _ONE_DAY
    day, _, _ = begin.at.partition("T")
    last, _, time = end.at.partition("T")
    if day == last and begin.at != day and time and "-" not in begin.at[len(day) :] + time:
        return f"write {first[:-1]}-{time}{first[-1]}"
    if begin.repeat is not None:
        return f"write {first}"
    return (
        f"write {first}; to run on each day, write {first[:-1]} +1d{first[-1]} with :UNTIL: {last}"
    )


def _silent(stamp: Stamp) -> SectionFinding:
    text = stamp.text
    if text[-1] != _CLOSE[text[0]]:
        ends = f"opens with {text[0]} and closes with {text[-1]}"
        message = f"{shown(text)} {ends}, so it is ignored"
        return SectionFinding(
            stamp.start, "brackets", Severity.ERROR, message, text[:-1] + _CLOSE[text[0]]
        )
    single = text[0] + text.strip("<>[]") + text[-1]
    if single != text and parse_timestamp(single) is not None:
        message = f"{shown(text)} has brackets inside brackets, so it is ignored"
        return SectionFinding(stamp.start, "brackets", Severity.ERROR, message, single)
    if text.startswith("<%%("):
        message = "diary expressions are not supported; write a date, or a cron :SCHEDULE: property"
        return SectionFinding(stamp.start, "diary", Severity.ERROR, message)
    for token in text[1:-1].split():
        meant = _meant(token)
        if meant is not None:
            message = f"{shown(token)} is not a valid date, so this timestamp is ignored"
            fix = text.replace(token, meant, 1) if meant else "write it as YYYY-MM-DD"
            return SectionFinding(stamp.start, "date-shape", Severity.ERROR, message, fix)
    message = f"{shown(text)} has no date, so it is ignored"
    return SectionFinding(
        stamp.start, "date-missing", Severity.ERROR, message, "write it as <YYYY-MM-DD>"
    )


def _meant(token: str) -> str | None:
    """Return how an almost-date is written right; "" if that cannot be told, None if it is none.

    >>> [_meant(token) for token in ("2026-6-6", "2026-06-06T09:00Z", "6/6/2026", "Sat")]
    ['2026-06-06', '2026-06-06 09:00', '', None]
    """
    if iso := _ISO.fullmatch(token):
        return f"{iso[1]} {iso[2]}" if _real_date(iso[1]) else ""
    if almost := _ALMOST.fullmatch(token):
        padded = f"{almost[1]}-{almost[3]:0>2}-{almost[4]:0>2}"
        return padded if _real_date(padded) else ""
    return "" if _OTHER.fullmatch(token) else None


def _odd(stamp: Stamp) -> Iterator[SectionFinding]:
    at, text = stamp.start, stamp.text
    is_range = _RANGE.search(text) is not None
    assert stamp.time is not None
    written, _, time = stamp.time.at.partition("T")
    tokens = text[1:-1].split()
    day = _real_date(written)
    if day is None:
        message = f"the date {shown(written)} does not exist"
        yield SectionFinding(at, "date-impossible", Severity.ERROR, message)
    elif not is_range:
        yield from _day_name(stamp, day, tokens)
    if time and not _is_real_time(time):
        message = f"the time {shown(time)} does not exist"
        fix = "write a time from 00:00 to 23:59, as HH:MM"
        yield SectionFinding(at, "time-impossible", Severity.ERROR, message, fix)
    if stamp.time.repeat is not None:
        yield from _repeater(at, stamp.time.repeat, has_time=bool(time))
    elif unsigned := next(filter(_UNSIGNED.fullmatch, tokens), None):
        message = f"{shown(unsigned)} is ignored, so this timestamp does not repeat"
        fix = text.replace(unsigned, f"+{unsigned}")
        yield SectionFinding(at, "repeater-sign", Severity.WARNING, message, fix)
    if not is_range:
        yield from _said_twice(at, tokens)


def _real_date(text: str) -> date | None:
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    try:
        return date(int(found[1]), int(found[2]), int(found[3]))
    except ValueError:
        return None


def _is_real_time(text: str) -> bool:
    """Tell whether a time, or both ends of a range, can be on a clock."""
    found = _TIME.fullmatch(text)
    if found is None:
        return False
    hours, minutes = (found[1], found[3] or "0"), (found[2], found[4] or "0")
    return all(int(hour) < 24 for hour in hours) and all(int(minute) < 60 for minute in minutes)


def _day_name(stamp: Stamp, day: date, tokens: list[str]) -> Iterator[SectionFinding]:
    right = _DAYS[day.weekday()]
    for token in tokens:
        named = _DAY_NAMES.get(token.rstrip(".").lower())
        if named is not None and named != right:
            message = f"{day} is a {right}, not a {token}; the date is used"
            fix = stamp.text.replace(token, right, 1)
            yield SectionFinding(stamp.start, "day-name", Severity.WARNING, message, fix)
            return  # one is enough: a stamp may hold any number of words


def _repeater(at: int, text: str, *, has_time: bool) -> Iterator[SectionFinding]:
    found = _REPEATER.fullmatch(text)
    if found is None:
        message = f"repeater {shown(text)} cannot be read"
        yield SectionFinding(
            at, "repeater-shape", Severity.ERROR, message, "write it like +1d, ++1w or .+2d"
        )
        return
    for count, unit in ((found[1], found[2]), (found[3], found[4])):
        if count is None:
            continue
        if unit == "" or unit not in _UNITS:
            message = (
                f"repeater {shown(text)} has no unit"
                if unit == ""
                else f"repeater {shown(text)}: unit {unit!r} is not known"
            )
            fix = "use h (hours), d (days), w (weeks), m (months) or y (years)"
            yield SectionFinding(at, "repeater-unit", Severity.ERROR, message, fix)
        if not count.strip("0"):
            message = f"repeater {shown(text)} has a count of 0"
            yield SectionFinding(
                at, "repeater-zero", Severity.ERROR, message, "use a count of 1 or more"
            )
        if len(count.lstrip("0")) > _MOST:
            message = f"repeater {shown(text)} has too large a count"
            yield SectionFinding(
                at, "repeater-large", Severity.ERROR, message, "use a count of at most 999999"
            )
    if _is_upside_down(found):
        message = f"habit {shown(text)}: the longest interval is not longer than the shortest"
        fix = "write the longer interval last, like .+2d/4d"
        yield SectionFinding(at, "repeater-habit", Severity.ERROR, message, fix)
    if found[2] == "h" and not has_time:
        message = f"repeater {shown(text)} counts hours from a date without a time"
        yield SectionFinding(
            at, "repeater-hours", Severity.ERROR, message, "add a time, like 09:00"
        )


def _is_upside_down(found: re.Match[str]) -> bool:
    """Tell whether a habit's longest interval is no longer than its shortest."""
    least, unit, most, most_unit = found.groups()
    if most is None or unit not in _ABOUT or most_unit not in _ABOUT:
        return False
    if max(len(least), len(most)) > 2 * _MOST:
        return False
    return int(most) * _ABOUT[most_unit] <= int(least) * _ABOUT[unit]


def _said_twice(at: int, tokens: list[str]) -> Iterator[SectionFinding]:
    """Yield a finding for each kind of token of which only one counts."""
    dates = [token for token in tokens if _DATE.fullmatch(token)]
    times = [token for token in tokens if ":" in token]
    repeaters = [token for token in tokens if ":" not in token and token.startswith(("+", ".+"))]
    for code, what, found, counts in (
        ("date-twice", "dates", dates, 0),
        ("time-twice", "times", times, -1),
        ("repeater-twice", "repeaters", repeaters, -1),
    ):
        if len(found) > 1:
            message = f"{len(found)} {what} in one timestamp; {shown(found[counts])} is used"
            yield SectionFinding(at, code, Severity.WARNING, message, "keep the one you mean")


def _never_fires(section: CheckedSection) -> Iterator[SectionFinding]:
    """Yield why a workflow that looks scheduled has no schedule."""
    headline = section.headline
    if not is_workflow(headline) or "SCHEDULE" in headline.props:
        return
    planning = headline.planning
    if headline.scheduled is not None:
        if not headline.scheduled.active and planning and planning.scheduled:
            message = "SCHEDULED in square brackets is inactive: it is recorded but never fires"
            yield SectionFinding(planning.scheduled.start, "inactive", Severity.INFO, message)
        return
    if (planning and planning.scheduled) or "AFTER" in headline.props:
        return  # its stamp says nothing, and that was said; or it follows other entries
    if planning and headline.deadline is not None and planning.deadline:
        message = "this workflow has only a DEADLINE and never fires"
        fix = "add SCHEDULED: with the time to run"
        yield SectionFinding(
            planning.deadline.start, "deadline-only", Severity.WARNING, message, fix
        )
        return
    prose = _prose(section)
    if prose is not None:
        message = f"{shown(prose[1])} in the text does not schedule this workflow"
        fix = f"put SCHEDULED: {prose[1]} on the line under the headline"
        yield SectionFinding(prose.start(1), "prose-timestamp", Severity.WARNING, message, fix)


def _prose(section: CheckedSection) -> re.Match[str] | None:
    """Return the first active timestamp in title or text, outside blocks and remarks."""
    headline = section.headline
    text, start = bare(headline.text, headline.body), section.below()
    found = chain(_PROSE.finditer(text, 0, start), _PROSE.finditer(text, headline.body))
    return next((each for each in found if each[1]), None)


def _both(section: CheckedSection) -> Iterator[SectionFinding]:
    """Yield which of two schedules wins."""
    headline = section.headline
    if not is_fired(headline):
        return
    props, planning, stamp = headline.props, headline.planning, headline.scheduled
    written = [(f":{key}:", props[key]) for key in ("AFTER", "SCHEDULE") if key in props]
    if written and stamp is not None and (stamp.active or "AFTER" not in props):
        assert planning is not None
        assert planning.scheduled is not None
        written.append(("SCHEDULED:", planning.scheduled.text))
    if len(written) < 2:
        return
    (name, won), *others = written
    lost = " and ".join(f"{key} {shown(value)}" for key, value in others)
    message = f"{name} {shown(won)} overrides {lost}"
    at = section.place_of(name.strip(":"))
    yield SectionFinding(at, "schedule-both", Severity.WARNING, message, "keep the one you mean")


STAMPS: Final[tuple[Check, ...]] = (_planning_stamps, _never_fires, _both)
