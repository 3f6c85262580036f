"""Entries as an iCalendar (RFC 5545), for calendar programs.

A calendar program and `project` must never disagree. So an entry recurs (RRULE) only if
every program that follows the standard finds exactly our moments, for ever or until its
`:UNTIL:`: one time of day, daily, weekly, monthly or yearly, that no clock change of its
zone ever touches. Programs differ about times that a clock change leaves out, and about
what follows 31 January; and some read a recurrence in UTC on the clock of the calendar's
own zone. Whatever else an entry says is written out, moment by moment, in the window.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from hashlib import sha256
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.entry import CronRule, Entry, OnceRule, RepeaterRule
from horae.core.project import project
from horae.core.text import wall_text, words
from horae.timing.cron import Cron
from horae.timing.repeater import RepeaterKind, Unit
from horae.timing.zone import ClockChange, changes, is_fold, local, zone

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from zoneinfo import ZoneInfo


MOST: Final = 1_000  # moments of one entry that are written out

_WIDTH: Final = 75  # octets of a line, its end not counted
_LONGEST: Final = 500  # characters of a text; a hostile title would come a thousand times
_WEEKDAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_EVERY_MONTH: Final = 28  # the last day that every month has
_DAY: Final = timedelta(days=1)

# The time zone database lists single changes up to 2087. From then on a zone changes its
# clock by a yearly rule, at the same time of day, or not at all.
_SETTLED: Final = 2100
_CYCLE: Final = 14  # years; after them a yearly rule has met all the dates it can

# Hours are written out: many programs do not know such a recurrence.
_FREQUENCIES: Final = {
    Unit.DAY: "FREQ=DAILY", Unit.WEEK: "FREQ=WEEKLY",
    Unit.MONTH: "FREQ=MONTHLY", Unit.YEAR: "FREQ=YEARLY",
}  # fmt: skip

# Some programs end a line at U+0085, U+2028 and the like, too.
_LINE_END: Final = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_UNFIT: Final = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_SPECIAL: Final = re.compile(r"[\\;,]")


def calendar(
    entries: Iterable[Entry],
    *,
    start: datetime,
    end: datetime,
    now: datetime,
    zone_name: str = "UTC",
    name: str = "Horae",
) -> Iterator[str]:
    """Yield a calendar of the moments after *start*, up to and with *end*, a line at a time.

    An entry that recurs does so also after *end*; no two entries may have the same address.

    >>> moment = datetime(2026, 6, 1, tzinfo=UTC)
    >>> [line.rstrip() for line in calendar([], start=moment, end=moment, now=moment)][:3]
    ['BEGIN:VCALENDAR', 'VERSION:2.0', 'PRODID:-//Horae//Horae//EN']
    """
    year = start.astimezone(UTC).year
    shown = [entry for entry in entries if _is_shown(entry, start, end)]
    clocks = {each: _clock(each, year) for each in sorted({entry.zone for entry in shown})}
    own = clocks.get(zone_name) or _clock(zone_name, year)
    head = ("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Horae//Horae//EN", "CALSCALE:GREGORIAN")
    yield from map(folded, head)
    yield folded(f"X-WR-CALNAME:{escaped(name)}")
    yield folded(f"X-WR-TIMEZONE:{zone_name}")
    # A calendar must not be empty; its own zone does no harm.
    for clock in [clock for clock in clocks.values() if not clock.is_utc] if shown else [own]:
        yield from map(folded, _timezone(clock))
    for entry in shown:
        lines = _events(entry, clocks[entry.zone], own, start=start, end=end, now=now)
        yield from map(folded, lines)
    yield folded("END:VCALENDAR")


def is_cut(entry: Entry, *, start: datetime, end: datetime, zone_name: str = "UTC") -> bool:
    """Whether a calendar of this zone leaves out moments of an entry, for there are too many."""
    if not _is_shown(entry, start, end):
        return False
    if next(islice(project(entry, start, end), MOST, None), None) is None:
        return False
    first = next(project(entry, start, end))
    year = start.astimezone(UTC).year
    return _recurrence(entry, first.at, _clock(entry.zone, year), _clock(zone_name, year)) is None


def folded(line: str) -> str:
    r"""Return a line as it is written: no part longer than 75 octets, no character cut.

    >>> folded("SUMMARY:" + "é" * 40).split("\r\n")
    ['SUMMARY:ééééééééééééééééééééééééééééééééé', ' ééééééé', '']
    """
    data = line.encode()
    parts = []
    begin, width = 0, _WIDTH
    while len(data) - begin > width:
        end = begin + width
        while data[end] & 0xC0 == 0x80:  # inside a character
            end -= 1
        parts.append(data[begin:end])
        begin, width = end, _WIDTH - 1  # what goes on begins with a space
    parts.append(data[begin:])
    return b"\r\n ".join(parts).decode() + "\r\n"


def escaped(text: str) -> str:
    r"""Return a text as a value: on one line, with nothing in it that would mean something.

    >>> print(escaped("Beans, peas; and\nmore \\o/"))
    Beans\, peas\; and\nmore \\o/
    """
    if len(text) > _LONGEST:
        text = text[: _LONGEST - 1] + "…"
    lines = (_UNFIT.sub("\ufffd", line) for line in _LINE_END.split(text))
    return r"\n".join(_SPECIAL.sub(r"\\\g<0>", line) for line in lines)


def _is_shown(entry: Entry, start: datetime, end: datetime) -> bool:
    if not isinstance(entry.rule, CronRule | RepeaterRule | OnceRule):
        return False
    return next(project(entry, start, end), None) is not None


def _events(
    entry: Entry, clock: _IcsZone, own: _IcsZone, *, start: datetime, end: datetime, now: datetime
) -> Iterator[str]:
    """Yield the events of an entry: one that recurs, or each of its moments, which take no time."""
    # Programs pass a UID on, also where they hide the rest: so only a hash of the address.
    uid = sha256(entry.address.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    said = words(entry.rule, zone_name=entry.zone)
    facts = (str(entry.origin), f"{_as_written(entry)} ({entry.zone})", said, entry.address)
    moments = project(entry, start, end)
    first = next(moments)
    recurrence = _recurrence(entry, first.at, clock, own)
    is_one = recurrence is not None or isinstance(entry.rule, OnceRule)
    listed = [first] if is_one else islice(chain([first], moments), MOST)
    for number, moment in enumerate(listed, start=1):
        yield "BEGIN:VEVENT"
        yield f"UID:{uid}@horae" if is_one else f"UID:{uid}-{_utc(moment.at)}@horae"
        yield f"DTSTAMP:{_utc(now)}"
        # On the wall, where that is plain, else in UTC.
        wall = local(moment.at, clock.place)
        is_plain = not clock.is_utc and not is_fold(wall, clock.place)
        when = f";TZID={clock.name}:{_stamp(wall)}" if is_plain else f":{_utc(moment.at)}"
        yield f"DTSTART{when}"
        if recurrence is not None:
            yield f"RRULE:{recurrence}"
        yield f"SUMMARY:{escaped(entry.title or str(entry.origin))}"
        yield "DESCRIPTION:" + r"\n".join(map(escaped, facts))
        yield f"CATEGORIES:{entry.work}"
        is_estimate = moment.is_estimate and not is_one
        yield f"STATUS:{'TENTATIVE' if is_estimate else 'CONFIRMED'}"
        yield "TRANSP:TRANSPARENT"
        if is_estimate:
            yield "COMMENT:An estimate, counted from the end of the previous run."
        if number == MOST and next(moments, None) is not None:
            note = f"More events follow: a calendar lists at most {MOST:,} per entry."
            yield f"COMMENT:{escaped(note)}"
        yield "END:VEVENT"


def _as_written(entry: Entry) -> str:
    match entry.rule:
        case CronRule(crons):
            return "; ".join(cron.expression for cron in crons)
        case RepeaterRule(anchor, repeater):
            return f"<{wall_text(anchor)} {repeater}>"
        case OnceRule(at):
            return f"<{wall_text(local(at, zone(entry.zone)))}>"
    return ""


def _recurrence(entry: Entry, first: datetime, clock: _IcsZone, own: _IcsZone) -> str | None:
    """Return the recurrence that names the very moments of an entry from *first* on, if any."""
    # Some programs move what is in UTC to the calendar's own zone before they repeat it.
    if clock.is_utc and not own.is_utc:
        return None
    if entry.pause is not None and first <= entry.pause.at:
        return None  # it leaves moments out later
    wall = local(first, clock.place)
    match entry.rule:
        case CronRule((cron,)):
            frequency = _of_cron(cron, first, wall, entry.zone)
        case RepeaterRule():
            frequency = _of_repeater(entry.rule, wall)
        case _:
            return None
    if frequency is None or _is_touched(wall.time(), clock, first):
        return None
    until = entry.policy.until
    return frequency if until is None else f"{frequency};UNTIL={_utc(until)}"


def _of_cron(cron: Cron, first: datetime, wall: datetime, zone_name: str) -> str | None:
    """Return how often a rule comes that is nothing but one time on some days."""
    # Seven moments show every weekday of a rule that names nothing else.
    days = sorted({each.isoweekday() for each in (wall, *cron.upcoming(first, 7))})
    codes = ",".join(_WEEKDAYS[day - 1] for day in days)
    plain = {"* * *": "FREQ=DAILY", f"* * {','.join(map(str, days))}": f"FREQ=WEEKLY;BYDAY={codes}"}
    if wall.day <= _EVERY_MONTH:
        plain[f"{wall.day} * *"] = "FREQ=MONTHLY"
        plain[f"{wall.day} {wall.month} *"] = "FREQ=YEARLY"
    at = f"{wall.second} {wall.minute} {wall.hour}"
    return next((how for day, how in plain.items() if Cron(f"{at} {day}", zone_name) == cron), None)


def _of_repeater(rule: RepeaterRule, wall: datetime) -> str | None:
    """Return how often a repeater comes that counts days, or months that all have its day."""
    repeater = rule.repeater
    frequency = _FREQUENCIES.get(repeater.unit)
    is_moved = repeater.kind is RepeaterKind.RESTART or wall.time() != rule.anchor.time()
    is_late = repeater.unit in {Unit.MONTH, Unit.YEAR} and wall.day > _EVERY_MONTH
    if frequency is None or is_moved or is_late:
        return None
    return frequency if repeater.count == 1 else f"{frequency};INTERVAL={repeater.count}"


def _is_touched(at: time, clock: _IcsZone, since: datetime) -> bool:
    for change in clock.changes:
        if change.at < since - 2 * _DAY:
            continue
        low, high = sorted((change.at + change.before, change.at + change.after))
        wall = datetime.combine(low.date(), at, UTC)
        if (wall if wall >= low else wall + _DAY) < high:
            return True
    return False


class _IcsZone(NamedTuple):
    """The clock of a zone, from the year before a window until it repeats itself."""

    name: str
    place: ZoneInfo
    is_utc: bool  # by whatever name
    since: datetime
    settled: datetime
    changes: tuple[ClockChange, ...]


@lru_cache(maxsize=64)  # looking for the changes of a century takes 15 ms
def _clock(name: str, year: int) -> _IcsZone:
    since = datetime(max(year - 1, 2), 1, 1, tzinfo=UTC)
    settled = datetime(min(max(year + _CYCLE, _SETTLED), 9999), 1, 1, tzinfo=UTC)
    place = zone(name)
    is_utc = since.astimezone(place).tzname() == "UTC"
    found = () if is_utc else tuple(changes(place, since, settled))
    return _IcsZone(name, place, is_utc, since, settled, found)


def _timezone(clock: _IcsZone) -> Iterator[str]:
    offset = clock.since.astimezone(clock.place).utcoffset()
    assert offset is not None
    alike: dict[tuple[timedelta, timedelta, str | None], list[ClockChange]] = {}
    for change in clock.changes:
        name = change.at.astimezone(clock.place).tzname()
        alike.setdefault((change.before, change.after, name), []).append(change)

    yield "BEGIN:VTIMEZONE"
    yield f"TZID:{clock.name}"
    yield from _observance([ClockChange(clock.since, offset, offset)], clock.place)
    for listed in alike.values():
        begin = _yearly_from(listed, clock.settled)
        if begin > 0:
            yield from _observance(listed[:begin], clock.place)
        if begin < len(listed):
            rule = _yearly([_onset(change) for change in listed[begin:]])
            yield from _observance(listed[begin:], clock.place, rule=rule)
    yield "END:VTIMEZONE"


def _observance(
    listed: Sequence[ClockChange], place: ZoneInfo, *, rule: str | None = None
) -> Iterator[str]:
    first = listed[0]
    after = first.at.astimezone(place)
    kind = "DAYLIGHT" if (after.dst() or timedelta(0)) > timedelta(0) else "STANDARD"
    onsets = [_stamp(_onset(change)) for change in listed]
    yield f"BEGIN:{kind}"
    yield f"DTSTART:{onsets[0]}"
    if rule is not None:
        yield f"RRULE:{rule}"
    elif len(onsets) > 1:
        yield f"RDATE:{','.join(onsets[1:])}"
    yield f"TZOFFSETFROM:{_offset(first.before)}"
    yield f"TZOFFSETTO:{_offset(first.after)}"
    yield f"TZNAME:{after.tzname()}"
    yield f"END:{kind}"


def _onset(change: ClockChange) -> datetime:
    return (change.at + change.before).replace(tzinfo=None)


def _yearly_from(listed: Sequence[ClockChange], settled: datetime) -> int:
    """Return the place from which on a list goes on by one yearly rule, for ever."""
    end = len(listed)
    if settled - listed[-1].at > 367 * _DAY:
        return end
    onsets = [_onset(change) for change in listed]
    last = onsets[-1]
    begin, days = end, set[int]()
    for place in reversed(range(end)):
        onset = onsets[place]
        is_alike = onset.weekday() == last.weekday() and onset.time() == last.time()
        is_next = onset.year == last.year - (end - 1 - place)
        met = {*days, _days_left(onset)}
        if not is_alike or not is_next or max(met) - min(met) > 6:
            break
        begin, days = place, met
    # A rule whose first and last date have not both been met is not known.
    return begin if max(days) - min(days) == 6 else end


def _yearly(onsets: Sequence[datetime]) -> str:
    """Return the rule for one weekday of seven days, once a year.

    >>> _yearly([datetime(2026, 3, 25), datetime(2026, 3, 31)])
    'FREQ=YEARLY;BYMONTH=3;BYDAY=-1TU'
    >>> _yearly([datetime(2026, 10, 26), datetime(2026, 11, 1)])
    'FREQ=YEARLY;BYDAY=SU;BYYEARDAY=-67,-66,-65,-64,-63,-62,-61'
    """
    weekday = _WEEKDAYS[onsets[-1].weekday()]
    days = sorted({_days_left(onset) for onset in onsets}, reverse=True)
    first = date(2001, 1, 1) + (365 - days[0]) * _DAY
    if first.day % 7 == 1:
        return f"FREQ=YEARLY;BYMONTH={first.month};BYDAY={first.day // 7 + 1}{weekday}"
    if (first + 7 * _DAY).day == 1:
        return f"FREQ=YEARLY;BYMONTH={first.month};BYDAY=-1{weekday}"
    places = ",".join(str(-days[0] + n) for n in range(7))
    return f"FREQ=YEARLY;BYDAY={weekday};BYYEARDAY={places}"


def _days_left(onset: datetime) -> int:
    """Return the days from a date to the end of its year, which no leap day moves after February.

    >>> _days_left(datetime(2026, 12, 31)), _days_left(datetime(2028, 3, 1))
    (1, 306)
    """
    return (date(onset.year, 12, 31) - onset.date()).days + 1


def _utc(moment: datetime) -> str:
    return f"{_stamp(moment.astimezone(UTC).replace(tzinfo=None))}Z"


def _stamp(wall: datetime) -> str:
    return wall.isoformat(timespec="seconds").replace("-", "").replace(":", "")


def _offset(offset: timedelta) -> str:
    """Return how far a clock stands from UTC.

    >>> _offset(timedelta(hours=10, minutes=30)), _offset(-timedelta(minutes=44, seconds=30))
    ('+1030', '-004430')
    """
    sign = "-" if offset < timedelta(0) else "+"
    minutes, seconds = divmod(abs(offset) // timedelta(seconds=1), 60)
    return f"{sign}{minutes // 60:02}{minutes % 60:02}" + (f"{seconds:02}" if seconds else "")
