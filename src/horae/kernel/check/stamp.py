"""Findings about timestamps: what looks like a date and is not, or cannot be one."""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING, Final

from horae.kernel.check.finding import Check, Found, Section, is_workflow
from horae.kernel.org.element import bare
from horae.kernel.plan import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from horae.kernel.plan import Stamp

_DATE: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_ALMOST: Final = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})", re.ASCII)
_OTHER: Final = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{8}", re.ASCII)
_TIME: Final = re.compile(r"(\d{1,2}):(\d\d)(?:-(\d{1,2}):(\d\d))?", re.ASCII)
_REPEATER: Final = re.compile(r"(?:\+\+|\.\+|\+)(\d+)(.?)(?:/(\d+)(.?))?", re.ASCII)
_PROSE: Final = re.compile(r"<\d{4}-\d\d-\d\d[^<>\n]*>", re.ASCII)
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY_NAMES: Final = {
    **{day.lower(): day for day in _DAYS},
    **{
        day.lower(): day[:3]
        for day in ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    },
}
_UNITS: Final = "hdwmy"
_CLOSE: Final = {"<": ">", "[": "]"}


def _planning_stamps(section: Section) -> Iterator[Found]:
    """Yield what is wrong with the stamps of the planning line."""
    planning = section.headline.planning
    if planning is None:
        return
    for stamp in (planning.scheduled, planning.deadline, planning.closed):
        if stamp is None:
            continue
        if stamp.time is None:
            yield _silent(stamp)
        else:
            yield from _odd(stamp)


def _silent(stamp: Stamp) -> Found:
    """Return why a stamp says nothing."""
    text = stamp.text
    if "--" not in text and text[-1] != _CLOSE[text[0]]:
        message = f"{text!r} opens with {text[0]} and closes with {text[-1]}, so it says nothing"
        return Found(stamp.start, "brackets", Severity.ERROR, message, text[:-1] + _CLOSE[text[0]])
    if text.startswith("<%%("):
        message = "a diary expression is not read; write a date, or a cron :SCHEDULE: property"
        return Found(stamp.start, "diary", Severity.ERROR, message)
    for token in text[1:-1].split():
        if almost := _ALMOST.fullmatch(token):
            message = f"{token!r} is not read as a date, so this stamp says nothing"
            padded = f"{almost[1]}-{almost[3]:0>2}-{almost[4]:0>2}"
            fix = text.replace(token, padded, 1)
            return Found(stamp.start, "date-shape", Severity.ERROR, message, fix)
        if _OTHER.fullmatch(token):
            message = f"{token!r} is not read as a date, so this stamp says nothing"
            return Found(
                stamp.start, "date-shape", Severity.ERROR, message, "write it as YYYY-MM-DD"
            )
    message = f"{text!r} holds no date, so it says nothing"
    return Found(stamp.start, "date-missing", Severity.ERROR, message, "write it as <YYYY-MM-DD>")


def _odd(stamp: Stamp) -> Iterator[Found]:
    """Yield what is odd about a stamp that was read."""
    at, text = stamp.start, stamp.text
    if "--" in text:
        message = "a range of two stamps is read as one; only a date and the last time count"
        yield Found(at, "range", Severity.WARNING, message, "write <YYYY-MM-DD HH:MM-HH:MM>")
    assert stamp.time is not None
    written, _, time = stamp.time.at.partition("T")
    tokens = text[1:-1].split()
    day = _real_date(written)
    if day is None:
        message = f"the date {written!r} does not exist"
        yield Found(at, "date-impossible", Severity.ERROR, message)
    else:
        yield from _day_name(stamp, day, tokens)
    if time and not _is_real_time(time):
        message = f"the time {time!r} does not exist"
        yield Found(at, "time-impossible", Severity.ERROR, message, "write it as HH:MM")
    if stamp.time.repeat is not None:
        yield from _repeater(at, stamp.time.repeat, has_time=bool(time))
    yield from _said_twice(at, tokens)


def _real_date(text: str) -> date | None:
    """Return the date, if there is such a day."""
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


def _day_name(stamp: Stamp, day: date, tokens: list[str]) -> Iterator[Found]:
    """Yield a finding if the stamp names a weekday that the date is not."""
    right = _DAYS[day.weekday()]
    for token in tokens:
        named = _DAY_NAMES.get(token.lower())
        if named is not None and named != right:
            message = f"{day} is a {right}, not a {token}; the date counts"
            fix = stamp.text.replace(token, right, 1)
            yield Found(stamp.start, "day-name", Severity.WARNING, message, fix)


def _repeater(at: int, text: str, *, has_time: bool) -> Iterator[Found]:
    """Yield what is wrong with a repeater."""
    found = _REPEATER.fullmatch(text)
    if found is None:
        message = f"repeater {text!r} cannot be read"
        yield Found(
            at, "repeater-shape", Severity.ERROR, message, "write it like +1d, ++1w or .+2d"
        )
        return
    for count, unit in ((found[1], found[2]), (found[3], found[4])):
        if count is None:
            continue
        if unit == "" or unit not in _UNITS:
            message = (
                f"repeater {text!r} has no unit that is known"
                if unit == ""
                else (f"repeater {text!r}: unit {unit!r} is not known")
            )
            fix = "use h (hours), d (days), w (weeks), m (months) or y (years)"
            yield Found(at, "repeater-unit", Severity.ERROR, message, fix)
        if not count.strip("0"):
            message = f"repeater {text!r} repeats after nothing"
            yield Found(at, "repeater-zero", Severity.ERROR, message, "use a count of 1 or more")
    if found[2] == "h" and not has_time:
        message = f"repeater {text!r} counts hours from a date without a time"
        yield Found(at, "repeater-hours", Severity.ERROR, message, "add a time, like 09:00")


def _said_twice(at: int, tokens: list[str]) -> Iterator[Found]:
    """Yield a finding for each kind of token of which only one counts."""
    dates = [token for token in tokens if _DATE.fullmatch(token)]
    times = [token for token in tokens if ":" in token]
    repeaters = [token for token in tokens if token.startswith(("+", ".+"))]
    for what, found, counts in (
        ("date", dates, 0),
        ("time", times, -1),
        ("repeater", repeaters, -1),
    ):
        if len(found) > 1:
            message = f"{len(found)} {what}s in one stamp; {found[counts]!r} counts"
            yield Found(at, f"{what}-twice", Severity.WARNING, message)


def _never_fires(section: Section) -> Iterator[Found]:
    """Yield why a workflow that looks scheduled has no schedule."""
    headline = section.headline
    if not is_workflow(headline) or "SCHEDULE" in headline.props:
        return
    planning = headline.planning
    if headline.scheduled is not None:
        if not headline.scheduled.active and planning and planning.scheduled:
            message = "SCHEDULED in square brackets is a note: it is recorded and never fires"
            yield Found(planning.scheduled.start, "inactive", Severity.INFO, message)
        return
    if planning and headline.deadline is not None and planning.deadline:
        message = "this workflow has only a DEADLINE and will never fire"
        fix = "write SCHEDULED: where it should fire"
        yield Found(planning.deadline.start, "deadline-only", Severity.WARNING, message, fix)
    elif prose := _PROSE.search(bare(headline.text, headline.body)):
        message = f"{prose[0]} stands in the text; this workflow has no schedule and will not fire"
        fix = f"put SCHEDULED: {prose[0]} on the line under the headline"
        yield Found(prose.start(), "prose-timestamp", Severity.WARNING, message, fix)


def _both(section: Section) -> Iterator[Found]:
    """Yield which of two schedules wins."""
    headline = section.headline
    planning = headline.planning
    if not is_workflow(headline) or "SCHEDULE" not in headline.props or headline.scheduled is None:
        return
    assert planning is not None
    assert planning.scheduled is not None
    message = (
        f":SCHEDULE: {headline.props['SCHEDULE']} wins over SCHEDULED: {planning.scheduled.text}"
    )
    fix = "keep the one that is meant"
    yield Found(section.place_of("SCHEDULE"), "schedule-both", Severity.WARNING, message, fix)


STAMPS: Final[tuple[Check, ...]] = (_planning_stamps, _never_fires, _both)
