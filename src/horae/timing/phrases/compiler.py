"""From a phrase to the rule it means, or to the question it leaves open.

A word that the grammar did not read is an error, and so is everything that can be meant in two
ways: which half of the day a bare "at 5" is, at what time "every Monday" is, which Friday.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from horae.timing.cron_fields import MONTHS, CronError, clock_fields, field_text
from horae.timing.cron_words import LENGTHS
from horae.timing.phrases.grammar import (
    BARE,
    KINDS,
    OPEN,
    WORKING,
    Clock,
    Said,
    Say,
    join,
    phrases_of,
    placed,
)  # fmt: skip
from horae.timing.phrases.tokens import DAY_NAMES, WEEK, Token, tokens_of
from horae.timing.repeater import Repeater, RepeaterKind, Unit, stamp_text

_DAY: Final = 1440
_BASE: Final = datetime(2001, 1, 1)  # noqa: DTZ001 - a wall time, on a Monday
_LONGEST: Final = 2_000
_SILENT: Final = frozenset(",&oi@():;_vhlZ!")  # what may stand between the parts of a phrase
_CRON: Final = re.compile(r"\s*(?:@\S*\s*|[\d*?,/#-]+(?:\s+[\dLW*?,/#-]+(?:\s.*)?)?)", re.DOTALL)
_LIKE: Final = 'write it like "weekdays at 9"'


class PhraseError(CronError, code="phrase"):
    """A phrase that is not understood, or that leaves a question open."""

    def __init__(self, phrase: str, *, reason: str, column: int = 1, width: int = 1) -> None:
        super().__init__(phrase, field="phrase", reason=reason, column=column, width=width)
        self.args = (self.args[0].replace("cron ", "schedule ", 1).replace(": phrase ", ": ", 1),)


class Compiled(NamedTuple):
    """The rule of a phrase: cron expressions, or a wall time and how it repeats.

    `floats`: the phrase says no date from which to count, so that any turn of the unit will do.
    """

    crons: tuple[str, ...] = ()
    anchor: datetime | None = None
    repeater: Repeater | None = None
    floats: bool = False

    def __str__(self) -> str:
        return stamp_text(self.anchor, self.repeater) if self.anchor else "; ".join(self.crons)


class AskError(Exception):
    """A question that statements leave open, and the field of `Say` that it is about."""

    def __init__(self, question: str, field: str = "") -> None:
        self.question, self.field = question, field


def _ask(is_open: object, question: str, field: str = "") -> None:
    if is_open:
        raise AskError(question, field)


def is_phrase(text: str) -> bool:
    """Whether a schedule is written in words, and not meant as cron.

    >>> [is_phrase(each) for each in ("weekdays at 9", "0 9 * * FUNDAY", "5 past every hour")]
    [True, False, True]
    """
    return _CRON.fullmatch(text) is None and re.search(r"[^\W\d_]{2}", text) is not None


def compile_phrase(text: str) -> Compiled:
    """Return the rule that a phrase means.

    >>> str(compile_phrase("weekdays at 9")), str(compile_phrase("every other Friday at 17:30"))
    ('0 9 * * MON-FRI', '<2001-01-05 Fri 17:30 ++2w>')
    >>> compile_phrase("every Monday")
    Traceback (most recent call last):
    horae.timing.phrases.compiler.PhraseError: schedule 'every Monday': at what time? add one, \
such as "at 9" or "at midnight"
    """
    if len(text) > _LONGEST:
        raise PhraseError(text, reason=f"is longer than {_LONGEST} characters")
    tokens = tokens_of(text)
    found = phrases_of(tokens)
    _refuse_unread(text, tokens, found)
    is_exact = any(token.symbol == "!" for token in tokens)
    parts = [
        [replace(say, exact=is_exact or say.exact, recurs=is_exact or say.recurs) for say in says]
        for says in (statements(part) for part in _parts(tokens, found))
    ]
    try:
        is_vague = re.search(r"(?<!past )\bmidnight", text, re.IGNORECASE) is not None
        for say in (say for says in parts for say in says):
            question = "at the start of that day or at its end? write a day and 0:00"
            _ask(is_vague and say.weekdays and Clock(0) in say.times, question, "times")
        return _together([compile_says(says) for says in parts])
    except AskError as asked:
        pieces = [piece for said in found for piece in said.pieces]
        about = (piece for piece in pieces if asked.field and getattr(piece[2], asked.field))
        first, last, _ = next(about, (pieces[0][0], pieces[-1][1], None))
        start, end = tokens[first].start, tokens[last - 1].end
        raise PhraseError(
            text, reason=asked.question, column=start + 1, width=end - start
        ) from None


def _refuse_unread(text: str, tokens: Sequence[Token], found: Sequence[Said]) -> None:
    read = {at for said in found for at in range(said.first, said.last)}
    left = [t for at, t in enumerate(tokens) if at not in read and t.symbol not in _SILENT]
    left = left[:-1] if left and left[-1] is tokens[-1] and left[-1].text in ".!" else left
    for token in sorted(left, key=lambda token: token.symbol != "."):  # a strange word first
        is_or = token.symbol == "|"
        reason = (
            "one of the two, or both?" if is_or else f"{token.text!r} is not understood; {_LIKE}"
        )
        raise PhraseError(text, reason=reason, column=token.start + 1, width=len(token.text))
    if not found:
        raise PhraseError(text, reason=f"says no time; {_LIKE}")


_SHARED: Final = ("times", "part", "windows", "minutes", "hours", "seconds")


def statements(found: Iterable[Said]) -> list[Say]:
    """Return all that is said, as few statements as can be; each has the time it shares."""
    says: list[Say] = []
    for say in (say for said in found for say in said.says):
        whole = join(says[-1], say) if says else None
        says[-1:] = [whole] if whole else [*says[-1:], say]
    for step in (1, -1):  # from the statement after it, or from the one before
        for at in range(len(says))[::-step]:
            if 0 <= at + step < len(says) and says[at + step].has_time and not says[at].has_time:
                other = says[at + step]
                shared = {name: getattr(says[at], name) or getattr(other, name) for name in _SHARED}
                every = says[at].every or (other.every if other.is_short else None)
                says[at] = replace(says[at], **shared, every=every)
    for at in range(len(says) - 2, -1, -1):  # the second Friday and the fourth Friday of May
        one, other = says[at], says[at + 1]
        is_bare = not (one.of or one.months or (one.every and not one.is_short))
        if (one.nth or one.mdays) and is_bare and (other.of or other.months):
            says[at] = replace(one, of=other.of, months=other.months, recurs=True)
    years = next((each.years for each in says if each.years), frozenset())
    recurs = len(says) > 1 and any(each.recurs for each in says)
    return [replace(s, years=s.years or years, recurs=s.recurs or recurs) for s in says]


def compile_says(says: Sequence[Say]) -> Compiled:
    """Return the rule of some statements."""
    _ask(any(say.asks for say in says), next((s.asks for s in says if s.asks), ""), "asks")
    paces = {say.every for say in says if say.is_short}
    is_apart = all(say.weekdays for say in says)
    _ask(len(paces) > 1 and not is_apart, "these are two intervals; which one is meant?", "every")
    return _together([_rule(say) for say in says])


def _parts(tokens: Sequence[Token], found: Iterable[Said]) -> list[list[Said]]:
    """Return phrases as semicolons divide them."""
    parts: dict[int, list[Said]] = {}
    for said in found:
        number = sum(token.symbol == ";" for token in tokens[: said.first])
        parts.setdefault(number, []).append(said)
    return [*parts.values()]


def _together(rules: Sequence[Compiled]) -> Compiled:
    if len(rules) == 1:
        return rules[0]
    _ask(any(rule.anchor for rule in rules), "these are two schedules; which one is meant?")
    return Compiled(tuple(dict.fromkeys(cron for rule in rules for cron in rule.crons)))


def _rule(say: Say) -> Compiled:
    say = _counted(say)
    number, unit = say.every or (0, "")
    if say.once or (say.years and say.mdays and not say.recurs and len(say.years) == 1):
        return _once(say)
    if unit == "h" and (24 % number or say.starts) and not (say.windows or say.minutes):
        is_open = say.has_days or say.months or say.times
        if say.starts and len(say.times) == 1 and not (say.has_days or say.months):
            return _anchored(
                say,
                _BASE + timedelta(minutes=min(_minutes_of_day(replace(say, every=None)))),
                Unit.HOUR,
            )
        _ask(is_open, f"{number} hours do not divide a day; which hours are meant?", "every")
        return _anchored(say, _BASE, Unit.HOUR)
    if say.weekdays and unit in ("m", "y"):
        _day_fields(say)  # which asks for the week
    minutes = _minutes_of_day(say)
    _ask((number, unit, len(say.months)) == (1, "m", 1), "every month, or every year?", "every")
    if unit == "m" and number * len(say.months) in (number, 12) and not (12 % number or say.starts):
        turns = range(0, 12, number)
        months = frozenset((month + n - 1) % 12 + 1 for month in say.months for n in turns)
        say = replace(say, every=(1, "m"), months=months, of="m")
    if say.every and not say.is_short and (number > 1 or say.starts) and not say.of:
        return _repeated(say, minutes)
    _ask(say.starts and not say.every, "starting when, and how often after that?", "starts")
    seconds, years = _seconds(say), field_text(say.years, 1970, 2199) if say.years else ""
    head = f"{field_text(seconds, 0, 59)} " if seconds != {0} or years else ""
    crons = [
        f"{head}{minute} {hour} {day} {years}".rstrip()
        for day in _day_fields(say)
        for minute, hour in clock_fields(minutes)
    ]
    many = "this needs more than 50 cron expressions; name fewer times"
    _ask(len(crons) > 50, many)
    return Compiled(tuple(crons))


def _counted(say: Say) -> Say:
    """Return a statement whose count is kept by the times or days it names."""
    if say.count is None:
        return say
    number, unit = say.count
    if unit in ("h", "min") and 60 % number == 0:
        return replace(say, count=None, every=(60 // number, "min" if unit == "h" else "s"))
    named = {
        "d": say.times, "w": say.weekdays, "m": say.mdays or say.nth,
        "y": say.dates or (say.months if say.mdays or say.nth else ()),
    }.get(unit, ())  # fmt: skip
    what = {"d": "at which times", "w": "on which days"}.get(unit, "on which dates")
    _ask(len(named) != number, f"{what}? name {number} of them", "count")
    every = (1, "d") if unit == "d" and not say.has_days else None
    return replace(say, count=None, every=say.every or every, recurs=True)


def _clock(clock: Clock, say: Say, *, is_24: bool) -> int:
    found = placed(clock, say.part)
    hour, minute = divmod(found.minute, 60)
    early, late = f"{hour}:{minute:02}", f"{hour + 12}:{minute:02}"
    question = f'{early} in the morning or {late}? write "{early} am" or "{late}"'
    is_noon = hour == 12 and len(say.times) == 1
    question = 'noon or midnight? write "12:00" or "0:00"' if is_noon else question
    _ask(found.sure == BARE and (0 < hour <= 7 or is_noon) and not is_24, question, "times")
    return found.minute


def _minutes_of_day(say: Say) -> set[int]:
    if say.minutes and say.windows and not say.is_short:  # on the hour from 9 to 17
        say = replace(say, every=(1, "h"))
    number, unit = say.every or (0, "")
    step = number * (60 if unit == "h" else 1)
    if say.times:
        is_two = say.minutes or say.hours or say.windows
        _ask(is_two, "these are two times; which one is meant?", "times")
        is_24 = any(c.sure < BARE and (c.minute >= 780 or c.minute < 60) for c in say.times)
        found = {_clock(clock, say, is_24=is_24) for clock in say.times}
        is_next = say.part == "night" and say.weekdays and min(found) < 300
        _ask(is_next, "in the night before or after? write a day and the time", "times")
        is_even = found == set(range(min(found), _DAY, step or _DAY)) and step * len(found) == _DAY
        _ask(say.is_short and not is_even, "at these times only, or all day long?", "times")
        return found
    if say.hours or (
        unit in ("s", "min") and (len(say.minutes) > 1 or (say.minutes and unit == "s"))
    ):
        return _within_hours(say, step)
    if not say.is_short:
        _ask(say.part, f'at what time in the {say.part}? add one, such as "at 8"', "part")
        _ask(True, 'at what time? add one, such as "at 9" or "at midnight"')
    _ask(say.part and not say.windows, "from when to when?", "part")
    windows = [_bounds(window, say) for window in say.windows] or [(0, _DAY - 1)]
    opened = [start for each, (start, _) in zip(say.windows, windows, strict=False) if OPEN in each]
    is_open = any(start >= step or _DAY % step for start in opened)
    _ask(is_open, 'until when? add it, such as "from 8:00 to 18:00"', "windows")
    if unit == "s":
        return _spread(windows, 1)
    if unit == "h" and say.minutes:
        hours = _spread([(a // 60 * 60, b // 60 * 60) for a, b in windows], step)
        return {at + minute for at in hours for minute in say.minutes}
    _ask(say.minutes and min(say.minutes) >= step, "from which minute of the hour?", "minutes")
    if say.minutes:  # every 10 minutes from 5 past the hour
        return set(range(min(say.minutes), _DAY, step))
    question = f"{number} minutes do not divide a day; write 45 or 60, for example"
    _ask(not say.windows and _DAY % step, question, "every")
    return _spread(windows, step)


def _within_hours(say: Say, step: int) -> set[int]:
    """Return the same minutes of some hours; with an interval in minutes, from the first on."""
    unit = say.every[1] if say.every else ""
    _ask(unit == "h" and say.hours, "these are two rhythms; which one is meant?", "every")
    _ask(say.part, "from when to when?", "part")
    minutes: Iterable[int] = say.minutes or ({0} if unit not in ("s", "min") else range(60))
    if unit == "min":
        last = 59 if len(say.minutes) == 1 else max(minutes)
        minutes = range(min(minutes), last + 1, step)
    _ask(say.windows, "in these hours, or from when to when?", "hours" if say.hours else "minutes")
    return {hour * 60 + minute for hour in say.hours or range(24) for minute in minutes}


def _bounds(window: tuple[Clock, Clock], say: Say) -> tuple[int, int]:
    is_24 = any(c.sure < BARE or c.minute > 720 for c in window if c is not OPEN)
    start, end = (_clock(clock, say, is_24=is_24) for clock in window)
    return start, end + _DAY * (end < start)


def _spread(windows: Iterable[tuple[int, int]], step: int) -> set[int]:
    return {at % _DAY for start, end in windows for at in range(start, end + 1, step)}


def _seconds(say: Say) -> set[int]:
    number, unit = say.every or (0, "")
    if unit != "s":
        return set(say.seconds) or {0}
    _ask(number > 60, "which whole number of minutes is meant?", "every")
    last = max(say.seconds) if len(say.seconds) > 1 else 59
    is_open = 60 % number and len(say.seconds) < 2
    _ask(is_open, f"{number} seconds do not divide a minute; write 20 or 30", "every")
    return set(range(min(say.seconds, default=0), last + 1, number))


_WHICH: Final = {"w": "on which day of the week?", "y": "on which date?"}


def _day_fields(say: Say) -> list[str]:
    """Return the day, month and weekday fields of a statement."""
    number, unit = say.every or (1, "")
    kinds = [name for name in KINDS if getattr(say, name)]
    _ask(
        len(kinds) > 1,
        "these are two kinds of days; which one is meant?",
        kinds[-1] if kinds else "",
    )
    is_other = (unit == "w" and kinds not in ([], ["weekdays"])) or (
        number > 1 and say.of and say.nth
    )
    _ask(is_other and not say.is_short, "these are two rhythms; which one is meant?", "every")
    months = say.months
    if say.of == "q":
        _ask(say.nth, "in which month of the quarter?", "of")
        months = months or frozenset(range(3 if min(say.mdays, default=1) < 0 else 1, 13, 3))
    month = field_text(months, 1, 12, MONTHS) if months else "*"
    if say.weekdays:
        name = DAY_NAMES[min(say.weekdays)]
        _ask(unit in ("m", "y"), f"which {name}: the first, the last, or another?", "weekdays")
        once = f'once, or every week? write "every {name}", or a date'
        _ask(not say.recurs, once, "weekdays")
        days = "*" if say.weekdays == WEEK else field_text(say.weekdays, 0, 6, DAY_NAMES)
        return [f"* {month} {days}"]
    if say.dates:
        of = {day: [m for m, each in say.dates if each == day] for _, day in sorted(say.dates)}
        return [f"{_days_of(say, {d})} {field_text(of[d], 1, 12, MONTHS)} *" for d in sorted(of)]
    if say.has_days:
        is_single = not say.recurs and unit not in ("m", "y")
        _ask(is_single, "once, or every time?", "nth" if say.nth else "mdays")
        _ask("y" in (unit, say.of) and not months, "in which month?", "every")
        return _nth_fields(say, month) if say.nth else [f"{_days_of(say, say.mdays)} {month} *"]
    is_open = unit in ("w", "m", "y") or say.of
    _ask(is_open, _WHICH.get(unit, "on which day of it?"), "every")
    _ask(not say.every, "on which days?")
    return [f"* {month} *"]


def _days_of(say: Say, days: Collection[int]) -> str:
    months = {month for month, day in say.dates if day in days} or say.months
    least = min((LENGTHS[month - 1] for month in months), default=28)
    late = max(days, default=0)
    question = f"not every month has a {late}{'st' if late == 31 else 'th'}: on the last day, or"
    _ask(late > least and not say.exact, f"{question} skipping shorter months?", "mdays")
    plain = [day for day in days if day > 0]
    later = ["L" if day == -1 else f"L-{-day - 1}" for day in sorted(days, reverse=True) if day < 0]
    near = [f"{day}W" for day in sorted(say.nearest)]
    return ",".join([*([field_text(plain, 1, 31)] if plain else []), *later, *near])


def _nth_fields(say: Say, month: str) -> list[str]:
    working = sorted(n for n, day in say.nth if day == WORKING)
    question = "which day is that? only the first and the last working day can be named"
    _ask(set(working) - {1, -1}, question, "nth")
    named = sorted((day, n) for n, day in say.nth if day != WORKING)
    question = "no month has so many of them; which one is meant?"
    _ask(any(n > 5 or n < -1 or n == 0 for _, n in named), question, "nth")
    texts = [f"{DAY_NAMES[day][:3].upper()}{'L' if n < 0 else f'#{n}'}" for day, n in named]
    weekday = [f"* {month} {','.join(texts)}"] if texts else []
    return [*(f"{'1W' if n == 1 else 'LW'} {month} *" for n in working), *weekday]


def _once(say: Say) -> Compiled:
    parts = say.mdays, say.months, say.years
    _ask(not all(parts), "on which date? name day, month and year", "once")
    _ask(not say.times, "at what time? name one", "mdays")
    _ask(any(len(each) != 1 for each in (*parts, say.times)), "which one of these?", "mdays")
    (minute,) = _minutes_of_day(replace(say, every=None))
    (day,), (month,), (year,) = parts
    try:
        at = datetime(year, month, day)  # noqa: DTZ001 - a wall time
    except ValueError:
        raise AskError("there is no such date; which day is meant?", "mdays") from None
    return Compiled(anchor=at + timedelta(minutes=minute))


_REPEATED: Final = {"d": Unit.DAY, "w": Unit.WEEK, "m": Unit.MONTH, "y": Unit.YEAR}


def _repeated(say: Say, minutes: set[int]) -> Compiled:
    _, unit = say.every or (1, "d")
    _ask(len(minutes) > 1, "which one of these times?", "times")
    is_dated = (unit == "d" and say.has_days) or (unit in ("d", "w") and say.months)
    _ask(is_dated, "on these days, or counted from a date?", "every")
    at = _BASE + timedelta(minutes=min(minutes))
    if unit == "w" and not (say.starts and not say.weekdays):
        question = "which one of these days?" if say.weekdays else "on which day of the week?"
        _ask(len(say.weekdays) != 1, question, "weekdays" if say.weekdays else "every")
        at += timedelta(days=min(say.weekdays))
    if unit in ("m", "y") and not say.starts:
        is_open = len(say.mdays) != 1 or not 1 <= min(say.mdays) <= 28 or say.nth
        _ask(is_open, "on which day of it? name one from the 1st to the 28th", "every")
        _ask(len(say.months) != (unit == "y"), "in which month?", "every")
        at = at.replace(day=min(say.mdays), month=min(say.months, default=1))
    return _anchored(say, at, _REPEATED[unit])


def _anchored(say: Say, at: datetime, unit: Unit) -> Compiled:
    repeater = Repeater(RepeaterKind.CATCH_UP, say.every[0] if say.every else 1, unit)
    if say.starts is None:
        return Compiled(anchor=at, repeater=repeater, floats=True)
    is_other = say.weekdays and say.starts.weekday() not in say.weekdays
    _ask(is_other, "the first day is another day of the week; which one is meant?", "starts")
    return Compiled(anchor=datetime.combine(say.starts, at.time()), repeater=repeater)
