"""Findings about timestamps: what looks like a date and is not, or cannot be one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from itertools import chain
from typing import Final

from horae.org import finding
from horae.org.element import bare
from horae.org.finding import SectionFinding, error, shown, warning
from horae.org.plan import Headline, Severity, Stamp
from horae.org.timestamp import Timestamp, parse_timestamp
from horae.timing.repeater import CLOCK, RepeaterError, parse_repeater

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_ALMOST: Final = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})", re.ASCII)
_OTHER: Final = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{8}", re.ASCII)
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
_FULL: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_DAY_NAMES: Final = {name.lower(): day[:3] for day in _FULL for name in (day, day[:3])}
_ONE_DAY: Final = "write <YYYY-MM-DD HH:MM-HH:MM>"
_CLOSE: Final = {"<": ">", "[": "]"}


def planning_findings(headline: Headline) -> Iterator[SectionFinding]:
    planning = headline.planning
    if planning is None:
        return
    for stamp in (planning.scheduled, planning.deadline, planning.closed):
        if stamp is None:
            continue
        is_range = _RANGE.search(stamp.text) is not None
        if is_range:
            fires = finding.is_fired(headline) and {"SCHEDULE", "AFTER"}.isdisjoint(headline.props)
            yield _range(stamp, fires=stamp is planning.scheduled and fires)
        if stamp.time is not None:
            yield from _odd(stamp, stamp.time, is_range=is_range)
        elif not is_range:
            yield _silent(stamp)


def _range(stamp: Stamp, *, fires: bool) -> SectionFinding:
    fix = _one_stamp(stamp.text)
    what = "a range of two timestamps"
    if fires:
        message = f"{what} does not say how often to run, so the entry is not armed"
        return error(stamp.start, "range", message, fix)
    if stamp.time is None:
        return error(stamp.start, "range", f"{what} has no effect here", fix)
    message = f"{what} is read as one; only one date and the last time are used"
    return warning(stamp.start, "range", message, fix)


def _one_stamp(text: str) -> str:
    """Return how a range is written with one stamp."""
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
    single = text[0] + text.strip("<>[]") + _CLOSE[text[0]]
    if text[-1] != single[-1] or (single != text and parse_timestamp(single) is not None):
        message = f"the brackets of {shown(text)} are not one pair, so it is ignored"
        return error(stamp.start, "brackets", message, single)
    if text.startswith("<%%("):
        message = "diary expressions are not supported; write a date, or a cron :SCHEDULE: property"
        return error(stamp.start, "diary", message)
    for token in text[1:-1].split():
        meant = _meant(token)
        if meant is not None:
            message = f"{shown(token)} is not a valid date, so this timestamp is ignored"
            fix = text.replace(token, meant, 1) if meant else "write it as YYYY-MM-DD"
            return error(stamp.start, "date-shape", message, fix)
    message = f"{shown(text)} has no date, so it is ignored"
    return error(stamp.start, "date-missing", message, "write it as <YYYY-MM-DD>")


def _meant(token: str) -> str | None:
    """Return how an almost-date is written right; "" if that cannot be told, None if it is none."""
    if iso := _ISO.fullmatch(token):
        return f"{iso[1]} {iso[2]}" if _real_date(iso[1]) else ""
    if almost := _ALMOST.fullmatch(token):
        padded = f"{almost[1]}-{almost[3]:0>2}-{almost[4]:0>2}"
        return padded if _real_date(padded) else ""
    return "" if _OTHER.fullmatch(token) else None


def _odd(stamp: Stamp, time_of: Timestamp, *, is_range: bool) -> Iterator[SectionFinding]:
    at, text = stamp.start, stamp.text
    written, _, time = time_of.at.partition("T")
    tokens = text[1:-1].split()
    day = _real_date(written)
    if day is None:
        yield error(at, "date-impossible", f"the date {shown(written)} does not exist")
    elif not is_range:
        yield from _day_name(stamp, day, tokens)
    if time and not CLOCK.fullmatch(time):
        message = f"the time {shown(time)} does not exist"
        fix = "write a time from 00:00 to 23:59, as HH:MM"
        yield error(at, "time-impossible", message, fix)
    if time_of.repeat is not None:
        yield from _repeater(at, time_of.repeat, has_time=bool(time))
    elif unsigned := next(filter(_UNSIGNED.fullmatch, tokens), None):
        message = f"{shown(unsigned)} is ignored, so this timestamp does not repeat"
        yield warning(at, "repeater-sign", message, text.replace(unsigned, f"+{unsigned}"))
    if not is_range:
        yield from _said_twice(at, tokens)


def _real_date(text: str) -> date | None:
    with suppress(ValueError):  # there is no such day
        return date.fromisoformat(text) if _DATE.fullmatch(text) else None
    return None


def _day_name(stamp: Stamp, day: date, tokens: list[str]) -> Iterator[SectionFinding]:
    right = _FULL[day.weekday()][:3]
    for token in tokens:
        named = _DAY_NAMES.get(token.rstrip(".").lower())
        if named is not None and named != right:
            message = f"{day} is a {right}, not a {token}; the date is used"
            fix = stamp.text.replace(token, right, 1)
            yield warning(stamp.start, "day-name", message, fix)
            return  # one is enough: a stamp may hold any number of words


def _repeater(at: int, text: str, *, has_time: bool) -> Iterator[SectionFinding]:
    try:
        parse_repeater(text, has_time=has_time)
    except RepeaterError as wrong:
        what, fix = wrong.parts
        yield error(at, f"repeater-{wrong.fault}", f"repeater {shown(text)}: {what}", fix or None)


def _said_twice(at: int, tokens: list[str]) -> Iterator[SectionFinding]:
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
            yield warning(at, code, message, "keep the one you mean")


def _never_fires(headline: Headline) -> Iterator[SectionFinding]:
    """Yield why an entry that looks scheduled has no schedule."""
    if not finding.is_fired(headline) or "SCHEDULE" in headline.props:
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
        message = "this entry has only a DEADLINE, which never fires"
        fix = "add SCHEDULED: with the time to run"
        yield warning(planning.deadline.start, "deadline-only", message, fix)
        return
    if "workflow" not in headline.tags:
        return  # a command that runs on request may have times in its text
    # The first active timestamp in title or text, outside blocks and remarks.
    text, start = bare(headline.text, headline.body), headline.below
    found = chain(_PROSE.finditer(text, 0, start), _PROSE.finditer(text, headline.body))
    if (prose := next((each for each in found if each[1]), None)) is not None:
        message = f"{shown(prose[1])} in the text does not schedule this workflow"
        fix = f"put SCHEDULED: {prose[1]} on the line under the headline"
        yield warning(prose.start(1), "prose-timestamp", message, fix)


def _both(headline: Headline) -> Iterator[SectionFinding]:
    if not finding.is_fired(headline):
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
    at = finding.place_of(headline, name.strip(":"))
    yield warning(at, "schedule-both", message, "keep the one you mean")


STAMPS: Final[tuple[finding.Check, ...]] = (planning_findings, _never_fires, _both)
