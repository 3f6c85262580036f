"""From a phrase to the rule it means, or to the question it leaves open.

A word that the grammar did not read is an error, and so is everything that can be meant in two
ways: which half of the day a bare "at 5" is, at what time "every Monday" is, which Friday.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final, NamedTuple

from horae.timing.cron_fields import MONTHS, CronError, clock_fields, field_text
from horae.timing.cron_words import LENGTHS
from horae.timing.phrases.grammar import OPEN, WORKING, Clock, Said, Say, join, phrases_of, placed
from horae.timing.phrases.tokens import DAY_NAMES, WEEK, Token, tokens_of
from horae.timing.repeater import Repeater, RepeaterKind, Unit, stamp_text

_DAY: Final = 1440
_BASE: Final = datetime(2001, 1, 1)  # noqa: DTZ001 - a wall time, on a Monday
_LONGEST: Final = 20_000
_SILENT: Final = frozenset(",&oi@():;_vhlZ!")  # what may stand between the parts of a phrase
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


def _ask(is_open: object, question: str, fields: str | Sequence[str] = "") -> None:
    if is_open:
        raise AskError(question, fields if isinstance(fields, str) else fields[0])


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
    parts = [[*part] for is_cut, part in groupby(tokens, lambda t: t.symbol == ";") if not is_cut]
    found = [phrases_of(part) for part in parts]
    for part, phrases in zip(parts, found, strict=True):
        _refuse_unread(text, part, phrases)
    if not any(found):
        raise PhraseError(text, reason=f"says no time; {_LIKE}")
    is_exact = any(token.symbol == "!" for token in tokens)
    try:
        says = [statements(part, is_exact=is_exact) for part in found if part]
        return _together([compile_says(each) for each in says])
    except AskError as asked:
        pieces = [piece for part in found for said in part for piece in said.pieces]
        about = (piece for piece in pieces if asked.field and getattr(piece[2], asked.field))
        start, end, _ = next(about, (pieces[0][0], pieces[-1][1], None))
        fact = {"column": start + 1, "width": end - start}
        raise PhraseError(text, reason=asked.question, **fact) from None


def _refuse_unread(text: str, tokens: Sequence[Token], found: Sequence[Said]) -> None:
    read = {at for said in found for at in range(said.first, said.last)}
    left = [t for at, t in enumerate(tokens) if at not in read and t.symbol not in _SILENT]
    left = left[:-1] if left and left[-1] is tokens[-1] and left[-1].text in ".!" else left
    for token in sorted(left, key=lambda token: token.symbol != "."):  # a strange word first
        reason = f"{token.text!r} is not understood; {_LIKE}"
        reason = "one of the two, or both?" if token.symbol == "|" else reason
        raise PhraseError(text, reason=reason, column=token.start + 1, width=len(token.text))


_SHARED: Final = ("times", "part", "windows", "minutes", "hours", "seconds")


def statements(found: Iterable[Said], *, is_exact: bool) -> list[Say]:
    """Return all that is said, as few statements as can be; each has the time it shares."""
    says: list[Say] = []
    for say in (say for said in found for say in said.says):
        whole = join(says[-1], say) if says else None
        says[-1:] = [whole] if whole else [*says[-1:], say]
    parts = [(say, part) for say in says for part in say.part.split() or [""]]
    says = [replace(say, part=part) for say, part in parts]
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
    recurs = is_exact or (len(says) > 1 and any(each.recurs for each in says))
    return [
        replace(s, years=s.years or years, recurs=s.recurs or recurs, exact=is_exact) for s in says
    ]


def compile_says(says: Sequence[Say]) -> Compiled:
    """Return the rule of some statements."""
    _ask(any(say.asks for say in says), next((s.asks for s in says if s.asks), ""), "asks")
    paces = {say.every for say in says if say.is_short}
    is_apart = all(say.weekdays for say in says)
    _ask(len(paces) > 1 and not is_apart, "these are two intervals; which one is meant?", "every")
    return _together([_rule(say) for say in says])


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
        is_open = say.kinds or say.months or (say.times and not say.starts)
        _ask(is_open, f"{number} hours do not divide a day; which hours are meant?", "every")
        at = min(_minutes_of_day(replace(say, every=None)) if say.times else {0})
        return _anchored(say, _BASE + timedelta(minutes=at), Unit.HOUR)
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
    _ask(len(crons) > 50, "this needs more than 50 cron expressions; name fewer times")
    return Compiled(tuple(crons))


def _counted(say: Say) -> Say:
    """Return a statement whose count is kept by the times or days it names."""
    if say.count is None:
        return say
    number, unit = say.count
    named = {
        "h": say.minutes, "d": say.times, "w": say.weekdays, "m": say.mdays or say.nth,
        "y": say.dates or (say.months if say.mdays or say.nth else ()),
    }.get(unit, ())  # fmt: skip
    what = {"w": "on which days", "m": "on which dates", "y": "on which dates"}
    question = f"{what.get(unit, 'at which times')}? name {number} of them"
    _ask(len(named) != number, question, "count")
    every = (1, unit) if unit in ("h", "d") and not say.kinds else None
    return replace(say, count=None, every=say.every or every, recurs=True)


def _clock(clock: Clock, say: Say, *, is_24: bool) -> int:
    found = placed(clock, say.part)
    hour, minute = divmod(found.minute, 60)
    early, late = f"{hour}:{minute:02}", f"{hour + 12}:{minute:02}"
    question = f'{early} in the morning or {late}? write "{early} am" or "{late}"'
    is_noon = hour == 12 and len(say.times) == 1
    question = 'noon or midnight? write "12:00" or "0:00"' if is_noon else question
    _ask(found.is_bare and (0 < hour <= 7 or is_noon) and not is_24, question, "times")
    return found.minute


def _minutes_of_day(say: Say) -> set[int]:
    number, unit = say.every or (0, "")
    step = number * (60 if unit == "h" else 1)
    listed = say.minutes or say.hours or say.seconds
    if say.times:
        is_two = say.minutes or say.hours or say.windows
        _ask(is_two, "these are two times; which one is meant?", "times")
        is_24 = any(not c.is_bare and (c.minute >= 780 or c.minute < 60) for c in say.times)
        found = {_clock(clock, say, is_24=is_24) for clock in say.times}
        is_next = say.part == "night" and say.weekdays and min(found) < 300
        _ask(is_next, "in the night before or after? write a day and the time", "times")
        is_even = found == set(range(min(found), _DAY, step or _DAY)) and step * len(found) == _DAY
        _ask(say.is_short and not is_even, "at these times only, or all day long?", "times")
        return found
    if not (say.is_short or listed):
        _ask(say.part, f'at what time in the {say.part}? add one, such as "at 8"', "part")
        _ask(True, 'at what time? add one, such as "at 9" or "at midnight"')
    _ask(say.part and not say.windows, "from when to when?", "part")
    windows = [_bounds(window, say) for window in say.windows] or [(0, _DAY - 1)]
    opened = [start for each, (start, _) in zip(say.windows, windows, strict=False) if OPEN in each]
    is_open = any(start >= step or _DAY % step for start in opened)
    _ask(is_open, 'until when? add it, such as "from 8:00 to 18:00"', "windows")
    if listed:
        _ask(say.minutes and unit == "min", "from which minute of the hour?", "minutes")
        _ask(say.hours and (unit == "h" or say.windows), "which hours are meant?", "hours")
        whole = [(start // 60 * 60, end // 60 * 60) for start, end in windows]
        hours = say.hours or {at // 60 for at in _spread(whole, step if unit == "h" else 60)}
        is_whole = say.is_short or say.seconds  # every minute of these hours
        each = range(0, 60, step) if unit == "min" else range(60 if is_whole else 1)
        return {hour * 60 + minute for hour in hours for minute in say.minutes or each}
    question = f"{number} minutes do not divide a day; write 45 or 60, for example"
    _ask(unit == "min" and not say.windows and _DAY % step, question, "every")
    return _spread(windows, 1 if unit == "s" else step)


def _bounds(window: tuple[Clock, Clock], say: Say) -> tuple[int, int]:
    is_24 = any(not c.is_bare or c.minute > 720 for c in window if c is not OPEN)
    start, end = (_clock(clock, say, is_24=is_24) for clock in window)
    return start, end + _DAY * (end < start)


def _spread(windows: Iterable[tuple[int, int]], step: int) -> set[int]:
    return {at % _DAY for start, end in windows for at in range(start, end + 1, step)}


def _seconds(say: Say) -> set[int]:
    number, unit = say.every or (0, "")
    if unit != "s" or say.seconds:
        return set(say.seconds) or {0}
    _ask(60 % number, f"{number} seconds do not divide a minute; write 20 or 30", "every")
    return set(range(0, 60, number))


def _day_fields(say: Say) -> list[str]:
    """Return the day, month and weekday fields of a statement."""
    number, unit = say.every or (1, "")
    _ask(len(say.kinds) > 1, "these are two kinds of days; which one is meant?", say.kinds[-1:])
    is_other = bool(unit == "w" and say.kinds not in ([], ["weekdays"]))
    is_other = is_other or bool(number > 1 and say.of and say.nth)
    _ask(is_other and not say.is_short, "these are two rhythms; which one is meant?", "every")
    is_fifth = say.of == "q" and any(n > 4 for n, _ in say.nth)
    _ask(is_fifth, "in which month of the quarter?", "of")
    last = min([*say.mdays, *(n for n, _ in say.nth)], default=1) < 0
    months = say.months or (range(3 if last else 1, 13, 3) if say.of == "q" else ())
    month = field_text(months, 1, 12, MONTHS) if months else "*"
    _ask(not say.kinds and (unit in ("w", "m", "y") or say.of), "on which day of it?", "every")
    _ask(not (say.kinds or say.every), "on which days?")
    name = DAY_NAMES[min(say.weekdays, default=0)]
    question = f"which {name}: the first, the last, or another?"
    _ask(say.weekdays and unit in ("m", "y"), question, "weekdays")
    once = f'once, or every week? write "every {name}", or a date'
    _ask(say.weekdays and not say.recurs, once, "weekdays")
    is_single = say.kinds and not (say.recurs or unit in ("m", "y"))
    _ask(is_single, "once, or every time?", say.kinds[:1])
    is_yearly = say.kinds and "y" in (unit, say.of)
    _ask(is_yearly and not (months or say.dates), "in which month?", "every")
    if say.weekdays:
        days = "*" if say.weekdays == WEEK else field_text(say.weekdays, 0, 6, DAY_NAMES)
        return [f"* {month} {days}"]
    if say.dates:
        of = {day: [m for m, each in say.dates if each == day] for _, day in sorted(say.dates)}
        return [f"{_days_of(say, {d})} {field_text(of[d], 1, 12, MONTHS)} *" for d in sorted(of)]
    if say.nth:
        return _nth_fields(say, month)
    return [f"{_days_of(say, say.mdays) if say.kinds else '*'} {month} *"]


def _days_of(say: Say, days: Collection[int]) -> str:
    months = {month for month, day in say.dates if day in days} or say.months
    least = min((LENGTHS[month - 1] for month in months), default=28)
    late = max(days, default=0)
    question = f"not every month has a day {late}: on the last day, or skipping shorter months?"
    plain = [day for day in days if day > 0]
    _ask(late > least and not (say.exact or len(plain) > 2), question, "mdays")  # a list is clear
    later = ["L" if day == -1 else f"L-{-day - 1}" for day in sorted(days, reverse=True) if day < 0]
    near = [f"{day}W" for day in sorted(say.nearest)]
    return ",".join([*([field_text(plain, 1, 31)] if plain else []), *later, *near])


def _nth_fields(say: Say, month: str) -> list[str]:
    working = sorted(n for n, day in say.nth if day == WORKING)
    named = sorted((day, n) for n, day in say.nth if day != WORKING)
    is_odd = set(working) - {1, -1} or any(not -1 <= n <= 5 or n == 0 for _, n in named)
    _ask(is_odd, "which day is that? only the first and the last working day can be named", "nth")
    texts = [f"{DAY_NAMES[day][:3].upper()}{'L' if n < 0 else f'#{n}'}" for day, n in named]
    weekday = [f"* {month} {','.join(texts)}"] if texts else []
    return [*(f"{'1W' if n == 1 else 'LW'} {month} *" for n in working), *weekday]


def _once(say: Say) -> Compiled:
    parts = say.mdays, say.months, say.years, say.times
    question = "on which date and at what time? name day, month, year and one time"
    _ask(any(len(each) != 1 for each in parts), question, "once" if say.once else "mdays")
    (day,), (month,), (year,) = parts[:3]
    _ask(day > monthrange(year, month)[1], "there is no such date; which day is meant?", "mdays")
    at = datetime(year, month, day)  # noqa: DTZ001 - a wall time
    return Compiled(anchor=at + timedelta(minutes=min(_minutes_of_day(replace(say, every=None)))))


_REPEATED: Final = {"d": Unit.DAY, "w": Unit.WEEK, "m": Unit.MONTH, "y": Unit.YEAR}


def _repeated(say: Say, minutes: set[int]) -> Compiled:
    _, unit = say.every or (1, "d")
    _ask(len(minutes) > 1, "which one of these times?", "times")
    is_dated = (unit == "d" and say.kinds) or (unit in ("d", "w") and say.months)
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
