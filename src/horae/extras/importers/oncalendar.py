"""The calendar events of systemd (`OnCalendar=`), as systemd.time(7) defines them.

>>> event = read_event("Mon..Fri 9:00 Europe/Berlin")
>>> event.cron, event.zone
('0 9 * * MON-FRI', 'Europe/Berlin')
>>> read_event("Mon *-*~07/1 18:30").cron
'30 18 * * MONL'
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Final

from horae.errors import ScheduleError
from horae.extras.importers.rule import (
    YEARS,
    Dialect,
    Fold,
    ForeignRule,
    Gap,
    UnfitError,
    day_fields,
    numbers,
)
from horae.timing.zone import zone

_NAMES: Final = {
    "minutely": "*-*-* *:*:00",
    "hourly": "*-*-* *:00:00",
    "daily": "*-*-* 00:00:00",
    "weekly": "Mon *-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00",
    "quarterly": "*-01,04,07,10-01 00:00:00",
    **dict.fromkeys(("yearly", "annually", "anually"), "*-01-01 00:00:00"),
    **dict.fromkeys(
        ("semiannually", "biannually", "bi-annually", "semi-annually"), "*-01,07-01 00:00:00"
    ),
}
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEKDAYS: Final = {name: number for number, day in enumerate(_DAYS, 1) for name in (day, day[:3])}
_DATE_WORD: Final = re.compile(r"(?:([^-~:]+)-)?([^-~:]+)([-~])([^-~:]+)")
_dialect = partial(Dialect, dash="..", has_star_step=False)
_YEAR: Final = _dialect("year", *YEARS)
_MONTH: Final = _dialect("month", 1, 12)
_DAY: Final = _dialect("day", 1, 31)
_LAST_DAYS: Final = _dialect("day", 1, 28)  # as far back as every month goes
_HOUR: Final = _dialect("hour", 0, 23)
_MINUTE: Final = _dialect("minute", 0, 59)
_SECOND: Final = _dialect("second", 0, 59)
_LONGEST: Final = 1_000


@dataclass(frozen=True, slots=True)
class CalendarEvent:
    """One calendar event: as our cron, in which zone (none is the machine's), and its rule."""

    cron: str
    zone: str | None
    rule: ForeignRule


def read_event(text: str) -> CalendarEvent:
    """Return what a calendar event says; raises UnfitError."""
    if len(text) > _LONGEST or not text.isascii():
        raise UnfitError(
            "is not a calendar event", "use only ASCII letters, digits and punctuation"
        )
    body, place = _zone_of(text.strip())
    if body.startswith("@"):  # a second since 1970
        if not re.fullmatch(r"@[0-9]{1,10}", body, re.ASCII):
            raise UnfitError(f"{body!r} is not a timestamp", "write it as 2026-12-31 09:00:00 UTC")
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=int(body[1:]))
        return read_event(f"{at:%Y-%m-%d %H:%M:%S} UTC")
    body = _NAMES.get(body.lower(), body)
    weekdays, date_text, time_text = _parts(body, text)
    years, months, days, from_end = _date(date_text)
    hours, minutes, seconds = _time(time_text)
    fields = day_fields(days, weekdays, from_end=from_end)

    def is_day(day: date) -> bool:
        length = calendar.monthrange(day.year, day.month)[1]
        number = length - day.day + 1 if from_end else day.day
        return number in days and day.isoweekday() % 7 in weekdays

    # What systemd 252 does: a time that is left out does not come, a second pass is not seen.
    rule = ForeignRule(seconds, minutes, hours, is_day, Gap.SKIPPED, Fold.FIRST, months, years)
    return CalendarEvent(rule.cron(*fields), place, rule)


def _zone_of(text: str) -> tuple[str, str | None]:
    body, _, last = text.rpartition(" ")
    if last == "UTC":
        return body.strip(), "UTC"
    if not body or ":" in last or not ("/" in last and last[:1].isalpha()):
        is_name = last.isalpha() and last.lower() not in _WEEKDAYS and body
        if not is_name or last.lower() in _NAMES:
            return text, None
    try:
        zone(last)
    except ScheduleError as error:
        raise UnfitError(str(error), "correct it", offset=len(body) + 1) from None
    return body.strip(), last


def _parts(body: str, text: str) -> tuple[frozenset[int], str, str]:
    """Return weekdays, date and time, each as it is meant where it is left out."""
    words = body.split()
    weekdays = frozenset(range(7))
    if words and words[0][0].isalpha():
        weekdays = _weekdays(words.pop(0))
    match words:
        case [] if body:
            return weekdays, "*-*-*", "00:00:00"
        case [time] if ":" in time:
            return weekdays, "*-*-*", time
        case [date]:
            return weekdays, date, "00:00:00"
        case [date, time]:
            return weekdays, date, time
    raise UnfitError(f"{text!r} is not a calendar event", "write it as Mon 2026-*-01 09:00:00")


def _weekdays(text: str) -> frozenset[int]:
    found: set[int] = set()
    for item in text.split(","):
        first, _, last = item.partition(".." if ".." in item else "-")
        low, high = _WEEKDAYS.get(first.lower()), _WEEKDAYS.get((last or first).lower())
        if low is None or high is None:
            raise UnfitError(f"{item!r} is not a weekday", "write Mon, or Mon..Fri")
        if high < low:
            raise UnfitError(f"{item!r} runs backwards", "write the days one by one: Fri,Sat,Mon")
        found |= {number % 7 for number in range(low, high + 1)}
    return frozenset(found)


def _date(text: str) -> tuple[frozenset[int] | None, frozenset[int], frozenset[int], bool]:
    """Return years (none is any), months, days, and whether the days count from the last."""

    def whole(found: re.Match[str]) -> str:  # 26 is 2026, and 89 is 1989
        number = int(found[0])
        return str(number + (2000 if number < 70 else 1900)) if number < 100 else found[0]

    match = _DATE_WORD.fullmatch(text)
    if match is None:
        raise UnfitError(f"{text!r} is not a date", "write it as *-12-24, 2026-*-01 or *-*~01")
    # `*-*` has the year and the month left out, and means month and day.
    year, month, sign, day = match.groups(default="*")
    years = None
    if year != "*":
        years = numbers(re.sub(r"(?<![0-9/])[0-9]{1,4}(?![0-9])", whole, year), _YEAR)
    from_end = sign == "~" and day != "*"
    days = _from_last(day) if from_end else numbers(day, _DAY)
    return years, numbers(month, _MONTH), days, from_end


def _from_last(text: str) -> frozenset[int]:
    """Return days before the end of the month, where a step leads towards the end."""
    found: set[int] = set()
    for item in text.split(","):
        body, slash, step = item.partition("/")
        named = sorted(numbers(body, _LAST_DAYS))
        if not slash:
            found |= set(named)
        elif not step.isdigit() or int(step) == 0:
            raise UnfitError(f"day {item!r} has no step after /", "write a number of at least 1")
        elif ".." in body:
            found |= numbers(item, _LAST_DAYS)
        elif named[0] <= int(step):
            what = f"day {item!r} has a step that goes past the end of the month"
            raise UnfitError(what, f"write ~{body} alone")
        else:
            found |= set(range(named[0], 0, -int(step)))
    return frozenset(found)


def _time(text: str) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
    parts = text.split(":")
    if len(parts) not in (2, 3):
        raise UnfitError(f"{text!r} is not a time of day", "write it as 09:30 or *:0/15")
    second = parts[2] if len(parts) == 3 else "0"
    if re.search(r"[0-9]\.[0-9]", second):
        what = f"second {second!r} is not a whole second"
        raise UnfitError(what, "horae supports whole seconds only; round it")
    return numbers(parts[0], _HOUR), numbers(parts[1], _MINUTE), numbers(second, _SECOND)
