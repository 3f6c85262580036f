"""What phrases of time say: productions over the symbols of `tokens`, each with its builder.

The longest production wins. Neighbours join if they do not contradict each other; otherwise they
are two statements of one phrase ("Tuesdays at 6:30, Sundays at 11"). There is no grammar of
sentences here: whose time a phrase is, `extras/drift` decides.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from itertools import product
from typing import Final, NamedTuple, TypeAlias

from horae.timing.cron_words import LENGTHS
from horae.timing.phrases.tokens import WEEK, WEEKEND, WORKDAYS, Token

Every = tuple[int, str]  # so many of s, min, h, d, w, m, y
WORKING: Final = 7  # in an nth: any working day
EXACT, WRITTEN, BARE = 0, 1, 2  # how sure the half of the day is: 18:30, 6:30, "six"
# A part of the day: within which minutes, and the hours by a clock of 12 that are after noon.
PARTS: Final = {
    "morning": (210, 720, ()), "afternoon": (720, 1140, range(1, 12)),
    "evening": (960, 1440, range(1, 12)), "night": (1080, 1920, range(6, 12)),
    "lunch": (660, 870, range(1, 11)), "day": (360, 1320, ()),
    "am": (0, 719, ()), "pm": (720, 1439, range(1, 12)),
}  # fmt: skip


class Clock(NamedTuple):
    minute: int
    sure: int = EXACT


OPEN: Final = Clock(1440)  # the end of "starting at 6:00"


@dataclass(frozen=True, slots=True)
class Say:
    """What a phrase says; every field is empty unless it is spoken of."""

    every: Every | None = None
    strict: bool = False  # "every day" leaves out no day, "daily" may
    either: tuple[Say, ...] = ()  # a word with two readings
    count: Every | None = None  # so many times a unit
    weekdays: frozenset[int] = frozenset()
    minus: frozenset[int] = frozenset()  # weekdays that are left out
    mdays: frozenset[int] = frozenset()  # -1 is the last day
    nearest: frozenset[int] = frozenset()  # the working day nearest to a date
    nth: frozenset[tuple[int, int]] = frozenset()  # (-1, 4) is the last Friday
    of: str = ""  # the period in which they are counted: m, q, y
    months: frozenset[int] = frozenset()
    dates: frozenset[tuple[int, int]] = frozenset()  # (month, day), where they are no table
    years: frozenset[int] = frozenset()
    once: bool = False
    times: frozenset[Clock] = frozenset()
    part: str = ""
    windows: tuple[tuple[Clock, Clock], ...] = ()
    minutes: frozenset[int] = frozenset()  # of the hour; with `every` in minutes, the first
    hours: frozenset[int] = frozenset()
    seconds: frozenset[int] = frozenset()  # of the minute; with `every` in seconds, the first
    starts: date | None = None
    recurs: bool = False  # the words themselves say that it comes again
    exact: bool = False  # a day that some months do not have is meant as such
    asks: str = ""  # the question that the words leave open

    @property
    def is_short(self) -> bool:
        """Whether it says an interval of less than a day."""
        return self.every is not None and self.every[1] in ("s", "min", "h")

    @property
    def has_days(self) -> bool:
        return bool(self.weekdays or self.mdays or self.nth or self.dates or self.nearest)

    @property
    def has_time(self) -> bool:
        return bool(self.times or self.minutes or self.hours or self.windows or self.is_short)


class Said(NamedTuple):
    """A phrase in a text: where it is, and its statements."""

    first: int  # the tokens it is made of
    last: int
    says: tuple[Say, ...]
    pieces: tuple[tuple[int, int, Say], ...]


def _values(tokens: Sequence[Token], symbols: str, size: int = 0) -> frozenset[int]:
    """Return the numbers of a list with ranges; a range may turn over after *size* values."""
    found: list[int] = []
    is_range, low = False, int(size == 12)
    for token in tokens:
        if token.symbol in symbols:
            new = sorted(token.value) if isinstance(token.value, frozenset) else [token.value]
            if is_range and found:
                between = range(found[-1], new[0] + size * (new[0] < found[-1]))
                found += [(each - low) % size + low if size else each for each in between]
            found, is_range = [*found, *new], False
        is_range = is_range or token.symbol == "t"
    return frozenset(found)


def placed(clock: Clock, part: str) -> Clock:
    """Return a time of day in a part of the day that settles which half is meant.

    >>> placed(Clock(480, BARE), "evening")
    Clock(minute=1200, sure=0)
    """
    if clock.sure == EXACT or not part:
        return clock
    hour = clock.minute // 60 % 12 or 12
    first, last, late = PARTS[part]
    is_late = hour in late or (hour == 12 and part not in ("night", "am"))
    found = clock.minute % 720 + 720 * is_late
    # Eleven in the afternoon is no time: "at 11 and at 3 in the afternoon".
    is_other = part == "day" or (found >= 720 and not first <= found <= last)
    return clock if is_other else Clock(found)


def _clocks(tokens: Sequence[Token]) -> tuple[list[Clock], set[int]]:
    """Return the times of day that some tokens say, and their seconds."""
    found: list[Clock] = []
    seconds: set[int] = set()
    shift: int | None = None  # of "ten to"
    bare = 0  # from here on, am, pm or a part of the day also count for bare numbers before
    symbols = "".join(token.symbol for token in tokens)
    for at, token in enumerate(tokens):
        fraction = re.compile("[HqN][U2]?([pt]).").match(symbols, at) if shift is None else None
        if fraction:
            amount = {"H": 30, "q": 15}.get(token.symbol, token.value)
            shift = (amount if fraction[1] == "p" else -amount) if amount <= 30 else None
        elif at and symbols[at - 1 : at + 1] == "NN" and found:  # six thirty
            if token.text.isdigit() or not 9 < token.value < 60:
                return [], set()
            found[-1] = Clock(found[-1].minute + token.value, found[-1].sure)
        elif token.symbol in "NYmK" and not (token.symbol == "N" and token.value > 24):
            minute, sure = token.value, EXACT
            if token.symbol in "Ym" and token.value % 100 > 59:
                continue
            if token.symbol in "Ym":
                minute = token.value // 100 * 60 + token.value % 100
            elif token.symbol == "N":
                minute = token.value % 24 * 60
                sure = BARE if 1 <= token.value <= 12 and token.text[0] != "0" else EXACT
            found.append(Clock((minute + (shift or 0)) % 1440, sure))
            shift = None
        elif token.symbol in "TD":
            minute, second, is_open = token.value
            if not is_open and re.search("[ap]", token.text, re.IGNORECASE):
                half = minute // 720 * 720  # 8 and 9 pm
                found[bare:] = [
                    Clock(each.minute % 720 + half)
                    if each.sure == BARE and each.minute % 720 < minute % 720
                    else each
                    for each in found[bare:]
                ]
            found.append(Clock(minute, WRITTEN if is_open else EXACT))
            seconds |= {second} - {0}
        elif token.symbol in "RV":
            found[bare:] = [placed(each, token.value) for each in found[bare:]]
            bare = len(found)
    return found, seconds


def _unit(token: Token) -> Every:
    return {"2": (1, "s"), "q": (3, "m")}.get(token.symbol) or token.value


def normal(count: int, unit: str) -> Every:
    """Return an interval in its largest unit: 14 days are 2 weeks.

    >>> normal(14, "d"), normal(12, "m"), normal(48, "h"), normal(90, "s")
    ((2, 'w'), (1, 'y'), (2, 'd'), (90, 's'))
    """
    for small, size, large in (
        ("s", 60, "min"), ("min", 60, "h"), ("h", 24, "d"), ("d", 7, "w"), ("m", 12, "y"),
    ):  # fmt: skip
        if unit == small and count % size == 0:
            count, unit = count // size, large
    return count, unit


_FRACTIONS: Final = {
    "Hh": (30, "min"), "qh": (15, "min"), "Hy": (6, "m"), "h&H": (90, "min"),
}  # fmt: skip


def _every(tokens: Sequence[Token]) -> Say:
    said = [token for token in tokens if token.symbol not in "cefaho"]
    head, token = said[0], said[-1]
    if "H" in (head.symbol, token.symbol) or (head.symbol == "q" and head is not token):
        key = "".join(t.value[1] if t.symbol == "U" else t.symbol for t in said)
        every = _FRACTIONS.get(key)
        return Say(every=every, recurs=True) if every else Say(asks="how many days is that?")
    count = 1 if head is token else 2 if head.symbol in "~A" else head.value
    if count < 1 + (head.symbol == "O"):
        return Say(asks="how often is that?")
    number, unit = _unit(token)
    every = normal(count * number, unit)
    of = "q" if token.symbol == "q" and count == 1 else ""
    return Say(every=every, of=of, strict=every == (1, "d"), recurs=True)


def _often(tokens: Sequence[Token]) -> Say:
    kind, value = tokens[-1].value
    if kind == "either":
        two = Say(count=(2, value), recurs=True), Say(every=normal(2, value), recurs=True)
        unit = {"w": "week", "m": "month", "y": "year"}[value]
        return Say(either=two, recurs=True, asks=f"every two {unit}s, or twice a {unit}?")
    if kind == "count":
        return Say(count=value, recurs=True)
    if len(tokens) > 1:
        return _count(tokens)
    part = "night" if tokens[-1].text.lower() == "nightly" else ""
    of = {(3, "m"): "q", (6, "m"): "y"}.get(value, "")
    return Say(every=value, of=of, part=part, recurs=True)


def _count(tokens: Sequence[Token]) -> Say:
    number = next(each.value for each in tokens if each.symbol in "cN")
    per = tokens[-1].value[1] if tokens[-1].symbol == "Q" else _unit(tokens[-1])
    if number == 1 or (number, per) == (7, (1, "w")):
        every = per if number == 1 else (1, "d")
        return Say(every=every, strict=every == (1, "d"), recurs=True)
    return (
        Say(count=(number, per[1]), recurs=True) if per[0] == 1 else Say(asks="how often is that?")
    )


def _on_days(tokens: Sequence[Token]) -> Say:
    symbols = "".join(token.symbol for token in tokens)
    days, part = _values(tokens, "WPSs", 7), tokens[-1].value if symbols[-1] in "RV" else ""
    many = sum(symbol in "WPSs" for symbol in symbols)
    if "c" in symbols and (_values(tokens, "c") != {1} or days == WEEKEND):
        return Say(asks="on which days?")
    every = (2, "w") if re.search("[~A]", symbols) else None
    return Say(every=every, weekdays=days, part=part,
               recurs=bool(many > 1 or every or re.search("[ePSV]", symbols)))  # fmt: skip


def _nth_day(tokens: Sequence[Token]) -> Say:
    cut = next(at for at, token in enumerate(tokens) if token.symbol in "WPs")
    numbers, day = _values(tokens[:cut], "O2"), tokens[cut]
    if len(day.value) == 2:
        return Say(asks="on which of the two days?")
    nth = frozenset(product(numbers, {WORKING} if day.value == WORKDAYS else day.value))
    of, months = _period(tokens[cut + 1 :])
    if of or months or tokens[0].symbol != "e":
        return Say(nth=nth, of=of, months=months, recurs=bool(of or months or len(numbers) > 1))
    one, number = Say(nth=nth, of="m", recurs=True), max(numbers)
    if numbers <= {1, -1} or len(numbers) > 1:
        return one
    asks = f"every {number} weeks on {day.text}, or the {tokens[1].text} {day.text} of the month?"
    two = Say(every=(number, "w"), weekdays=day.value, recurs=True)
    return Say(either=(one, two), asks=asks, recurs=True)


def _period(tokens: Sequence[Token]) -> tuple[str, frozenset[int]]:
    """Return the period that "of the month" or "of May" names."""
    units = ["q" if t.symbol == "q" else t.value[1] for t in tokens if t.symbol in "Uq"]
    return units[0] if units else "", _values(tokens, "M", 12)


def _mdays(tokens: Sequence[Token]) -> Say:
    cut = next((at for at, t in enumerate(tokens) if t.symbol in "fi"), len(tokens))
    head, (of, months) = tokens[:cut], _period(tokens[cut:])
    if of in ("s", "min", "h", "d", "w"):
        return Say(asks="how often is that?")
    symbols = "".join(token.symbol for token in head)
    if any(t.value[1] != "d" for t in head if t.symbol == "U"):
        is_first = symbols.find("U") < 2 and symbols[0] not in "hO2"
        return _minutes(tokens) if is_first else Say(asks="on which day of it?")
    days = _values(head, "NO2")
    if "F" in symbols:  # every 3rd day from the 2nd to the 29th
        step, first, last = (t.value for t in head if t.symbol in "O2")
        days = frozenset(range(first, last + 1, step))
    elif "e" in symbols and not (of or months) and max(days) < 8 and len(days) == 1:
        return Say(asks=f"the {head[-1].text} of every month, or every {max(days)} days?")
    every = (2, of) if any(t.symbol == "~" for t in tokens[cut:]) else None
    recurs = bool(of or months) or len(days) > 1 or "e" in symbols
    found = Say(mdays=days, of="" if every else of, months=months, every=every, recurs=recurs,
                exact="t" in symbols)  # fmt: skip
    is_near = any(t.symbol == "n" for t in head)
    return replace(found, mdays=frozenset(), nearest=days) if is_near else found


def _edge(tokens: Sequence[Token]) -> Say:
    """Return the first or last days of a period, of which any may be meant."""
    of = "q" if tokens[-1].symbol == "q" else tokens[-1].value[1]
    sign = next(token.value for token in tokens if token.symbol == "b")
    if of == "w":
        days = (4, 5, 6) if sign < 0 else (0, 6)
        either = [Say(weekdays=frozenset({day}), recurs=True) for day in days]
    elif of in ("m", "q", "y"):
        spans = [range(n, 32) if sign < 0 else range(1, n - 23) for n in range(25, 32)]
        sets = [*({sign * n} for n in range(1, 5)), *({span[0]} for span in spans), *spans]
        either = [Say(mdays=frozenset(each), of=of, recurs=True) for each in sets if each]
        either += [Say(nth=frozenset({(sign, WORKING)}), of=of, recurs=True)]
    else:
        either = []
    return Say(either=tuple(either), asks="on which day of it?", recurs=bool(either))


def _dates(tokens: Sequence[Token]) -> Say:
    pairs = {token.value for token in tokens if token.symbol == "X"}
    days: list[int] = []
    month, is_used, is_first = 0, False, False
    for token in tokens:
        if token.symbol == "M":
            is_first = is_first or not (days or pairs)
            month, is_used = token.value, True
            pairs |= {(month, day) for day in ([] if is_first else days)}
        elif token.symbol in "NO2":
            pairs |= {(month, token.value)} if is_first else set()
            days = [token.value] if is_used else [*days, token.value]
            is_used = False
    if any(not 1 <= day <= LENGTHS[month - 1] for month, day in pairs):
        return Say(asks="there is no such date; which day is meant?")
    months, numbers = frozenset(m for m, _ in pairs), frozenset(d for _, d in pairs)
    years = _values(tokens, "Y")
    named = frozenset().union(*(token.value for token in tokens if token.symbol == "W"))
    for year, (month, day) in product(years, pairs):
        is_date = named and day <= monthrange(year, month)[1]
        if is_date and date(year, month, day).weekday() not in named:
            return Say(asks="this date is another day of the week; which one is meant?")
    if tokens[0].symbol in "gF":
        (day, *_), (month, *_), (year, *_) = numbers, months, years
        return Say(starts=date(year, month, min(day, 28 if month == 2 and year % 4 else day)))
    if len(pairs) == len(months) * len(numbers):
        recurs = tokens[0].symbol == "e" or len(pairs) > 1
        return Say(mdays=numbers, months=months, years=years, recurs=recurs)
    return Say(dates=frozenset(pairs), years=years, recurs=True)


def _iso(tokens: Sequence[Token]) -> Say:
    day: date = next(token.value for token in tokens if token.symbol == "d")
    if any(day.weekday() not in token.value for token in tokens if token.symbol == "W"):
        return Say(asks="this date is another day of the week; which one is meant?")
    if tokens[0].symbol in "gF":
        return Say(starts=day)
    return Say(
        mdays=frozenset({day.day}), months=frozenset({day.month}), years=frozenset({day.year})
    )


def _in_years(tokens: Sequence[Token]) -> Say:
    years = sorted(_values(tokens, "Y"))
    step = next((token.value for token in tokens if token.symbol == "N"), 0)
    return Say(years=frozenset(range(years[0], years[-1] + 1, step) if step else years))


def _at(tokens: Sequence[Token]) -> Say:
    if len(tokens) == 3 and tokens[0].text.isdigit() and tokens[1].symbol == "t":  # 9 to 17
        is_clock = tokens[1].text == "to" and tokens[2].symbol == "N" and tokens[2].value < 13
        return Say(asks="from when to when?") if is_clock else _window(tokens)
    for at in range(len(tokens) - 2):  # at 9 to 10
        first, sign, last = tokens[at : at + 3]
        if sign.symbol == "t" and first.text.isdigit() and last.text.isdigit():
            return Say(asks="at what time?")
    clocks, seconds = _clocks(tokens)
    say = Say(times=frozenset(clocks), seconds=frozenset(seconds))
    say = say if clocks else Say(asks='at what time? write it like "at 9" or "at 17:30"')
    return replace(say, every=(1, "d"), recurs=True) if tokens[0].symbol == "e" else say


def _window(tokens: Sequence[Token]) -> Say:
    if tokens[0].symbol == "g" or not {"t", "&"} & {token.symbol for token in tokens}:
        return Say(windows=tuple((clock, OPEN) for clock in _clocks(tokens)[0]))
    cuts = [at for at, token in enumerate(tokens) if token.symbol == "F"] or [0]
    found = []
    for first, last in zip(cuts, [*cuts[1:], len(tokens)], strict=True):
        inner = range(first + 1, last - (last < len(tokens)) - (tokens[last - 2].symbol in ",&"))
        cut = max(at for at in inner if tokens[at].symbol in "t&" and at < last - 1)
        clocks = [*_clocks(tokens[first:cut])[0], *_clocks(tokens[cut:last])[0]]
        if len(clocks) != 2:
            return Say(asks="from when to when?")
        start, end = clocks
        if start.sure == BARE and tokens[last - 1].text[-2:].lower() in ("pm", "m."):
            start = Clock(
                start.minute % 720
                + end.minute // 720 * 720 * (start.minute % 720 < end.minute % 720)
            )
        if end.sure and end.minute <= start.minute:
            end = Clock(end.minute % 720 + 720)
        found.append((start, end))
    return Say(windows=tuple(found))


def _part(tokens: Sequence[Token]) -> Say:
    is_daily = tokens[0].symbol == "e" or tokens[-1].symbol == "V"
    return Say(part=tokens[-1].value, every=(1, "d") if is_daily else None, recurs=is_daily)


def _past(tokens: Sequence[Token]) -> Say:
    """Return the minutes of "ten past every hour"."""
    symbols = "".join(token.symbol for token in tokens)
    sign = re.search("[pt]", symbols)
    head = tokens[: sign.start()] if sign else [t for t in tokens if t.symbol == "H"]
    found = {{"H": 30, "q": 15}.get(t.symbol, t.value) for t in head if t.symbol in "HqNB"}
    found = found or {30 for t in tokens if t.symbol == "U" and t.value == (30, "min")}
    found = found or {t.value for t in tokens if t.symbol == "B"} or {0}
    minutes = frozenset(60 - m if sign and sign[0] == "t" else m for m in found)
    units = {token.value for token in tokens if token.symbol == "U"} - {(1, "min"), (30, "min")}
    if not all(0 <= minute < 60 for minute in minutes) or units - {(1, "h")}:
        return Say(asks="which minute of the hour is that?")
    is_whole = "e" in symbols or (sign is not None and "U" in symbols[sign.end() :])
    hours = _hours(tokens[sign.end() :] if sign else ())
    every = (1, "h") if is_whole and symbols[0] != "F" and not hours else None
    return Say(minutes=minutes, hours=hours, every=every, recurs=is_whole)


def _hours(tokens: Sequence[Token]) -> frozenset[int]:
    """Return the hours of "9:00 and 12:00" or of "every 2nd hour from 9:00 to 17:00"."""
    hours = [token.value[0] // 60 for token in tokens if token.symbol == "T"]
    if any(token.symbol == "F" for token in tokens):
        step = next((token.value for token in tokens if token.symbol in "O2"), 1)
        return frozenset(range(hours[0], hours[-1] + 1, max(step, 1)))
    return frozenset(hours)


def _range(tokens: Sequence[Token]) -> Say:
    """Return the minutes or seconds of "from minute 5 to minute 20 of every hour"."""
    symbols = "".join(token.symbol for token in tokens)
    cut = symbols.find("f") if "f" in symbols else len(tokens)
    bounds = tokens[max(symbols.find("F"), 0) : cut] if "F" in symbols[:cut] else ()
    _, unit = next(_unit(token) for token in tokens if token.symbol in "U2")
    if symbols == "eUfhU" and (unit, tokens[-1].value) == ("d", (1, "w")):
        return _every(tokens[:2])
    first, last = [*(t.value for t in bounds if t.symbol == "N"), 59, 59][:2] if bounds else (0, 59)
    if symbols[0] == "F" and "t" not in symbols[:cut]:
        last = first
    step = 1 if symbols[0] == "F" or symbols[1] != "N" else tokens[1].value
    if not 0 <= first <= last < 60 or step < 1 or unit not in ("s", "min"):  # every hour of the day
        return Say(asks="which minutes of the hour are these?")
    found, hours = frozenset(range(first, last + 1, step)), _hours(tokens[cut:])
    return Say(seconds=found) if unit == "s" else Say(minutes=found, hours=hours)


def _minutes(tokens: Sequence[Token]) -> Say:
    """Return the minutes, and the hours, of "minutes 10 and 40 of every hour"."""
    cut = next((at for at, token in enumerate(tokens) if token.symbol == "f"), len(tokens))
    found, hours = _values(tokens[:cut], "N"), _values(tokens[cut:], "N")
    _, unit = next(_unit(token) for token in tokens if token.symbol in "U2")
    is_whole = any(token.symbol == "e" for token in tokens[cut:])
    if any(each > 59 - 36 * (unit == "h") for each in found) or any(each > 23 for each in hours):
        return Say(asks="there is no such minute; which one is meant?")
    match unit:
        case "s":
            return Say(seconds=found, every=(1, "min") if is_whole else None, recurs=True)
        case "h":
            return Say(hours=found)
    return Say(minutes=found, hours=hours, every=None if hours else (1, "h"), recurs=True)


# Lists have a limit, so that no text costs more than its length.
_MACROS: Final = {
    "numbers": "N(?:(?:,?&|,|t)N){0,60}",
    "months": "M(?:(?:,?&|,|/|t)M){0,12}",
    "days": "h?[WPSs](?:(?:,?&|,|/|t)?o?h?[WPSs]){0,12}",
    "ordinals": "h?[O2](?:(?:,?&|,|/|t)h?[O2]){0,31}",
    "period": "(?:[eh]?~?_?[Uq]|a[Uq]|[he]?M(?:(?:,?&|,|/|t)M){0,12})",
    "clock": "(?:(?:H|a?q|NU?)[pt][NK]k?|T|K|Nk|mU?)",
    "hour": "(?:(?:H|a?q|NU?)[pt][NK]k?|[TD]|K|[Ym]U?|NN|Nk?U?)",
    "hours": "(?:e[O2]?UFTtT|eU|T(?:(?:,?&|,)T){0,23})",
    "part": "(?:(?:ih)?R|@R)",
    "sep": "(?:,?&|,|/)",
    "and": "(?:,?&|,)",
    "year": "(?:,?Y)?",
}
_Build: TypeAlias = "Callable[[Sequence[Token]], Say]"
_FORMS: Final[dict[str, _Build]] = {
    r"FUN(?:tUN)?(?:f(?:hU|<hours>))?|F2N(?:t2N)?(?:f[eh]U)?|eN?[U2](?:F2N(?:t2N)?)?fhU": _range,
    r"c?e(?:N|[~A]|[O2]|Ha?|q(?:fa)?)?[U2q](?:&aH)?|o?AU": _every,
    r"@?h?b(?:[eh]~?_?[Uq]|a[Uq])": _edge,
    r"oaW": lambda tokens: Say(
        either=(Say(weekdays=tokens[2].value, recurs=True),), asks="once, or weekly?", recurs=True
    ),
    r"(?:c|Nz)?Q": _often,
    r"(?:c|Nz|NU)[ae][U2q]": _count,
    r"o?c?e?[~A]?<days>[RV]?|@hs|F[WPSs]t[WPSs]": _on_days,
    r"xo?<days>": lambda tokens: Say(minus=_values(tokens, "WPSs", 7)),
    r"o?e?<ordinals>[WPs](?:[fi]<period>)?": _nth_day,
    r"o?(?:eO(?:<sep>h?[O2])*|<ordinals>U?|U<numbers>)[fi]<period>": _mdays,
    r"o?e[O2]UFh[O2]th[O2]f<period>|o?hsnth[O2]f<period>": _mdays,
    r"oh<ordinals>U?|<ordinals>(?:,?&|,|t)h?[O2]|o?eO(?:<sep>h?[O2])*|oU<numbers>": _mdays,
    r"o?W?,?e?h?[NO](?:<and>h?[NO]){0,31}f?<months><year>(?:<and>h?[NO]f?M<year>){0,12}": _dates,
    r"o?W?,?e?Mh?[NO]<year>(?:<and>Mh?[NO]<year>|<and>h?[NO](?![fMtpk@UHR])){0,12}": _dates,
    r"o?e?X|[gF]o?W?,?(?:h?[NO]f?M|Mh?[NO]),?Y": _dates,
    r"[ogF]{0,2}W?dW?": _iso,
    r"(?:[if]h?|Fe?|e)l?<months>|M(?:,?&|,|/|t)<months>": lambda tokens: Say(
        months=_values(tokens, "M", 12),
        recurs=tokens[0].symbol == "e" or len(_values(tokens, "M", 12)) > 1,
    ),
    r"iY(?:(?:,?&|,|t)Y){0,60}|FYtY|eNUFYtY": _in_years,
    r"[@o]?<clock>(?:,?<part>)?(?:<sep>@?<hour>){0,50}(?:,?<part>)?": _at,
    r"e?@?K|@<hour>(?:,?<part>)?(?:<sep>@?<hour>(?:,?<part>)?){0,50}": _at,
    r"NN?<part>|N(?:<sep>N){0,50}k": _at,
    r"F<hour><part>?[t&]<hour><part>?(?:(?:,?&|,)F<hour>[t&]<hour>){0,12}": _window,
    r"[TN]tT|TtN|g@?<hour>|F@?<hour>(?:<part>(?!t)|(?!<part>|t))": _window,
    r"Z": lambda _: Say(windows=((Clock(0), Clock(1439)),)),
    r"(?:[ie]h?|@)R|[oie]?V": _part,
    r"o?e[~A2O]R": lambda tokens: Say(
        every=(2 if tokens[-2].symbol in "~A" else tokens[-2].value, "d"),
        part=tokens[-1].value,
        recurs=True,
    ),
    r"ihU": lambda tokens: (
        Say(part="day") if tokens[2].value == (1, "d") else Say(asks="when in it?")
    ),
    r"[@oF]?(?:H|q|<numbers>U?)[pt][eh]U|@?(?:H|q|NU?)p|ohH?U": _past,
    r"@?<numbers>U?p<hours>": _past,
    r"i<hours>": lambda tokens: Say(hours=_hours(tokens)),
    r"@?h?Jf[eh]U|[@o]?B(?:<sep>B){0,12}(?:p[eh]U)?": _past,
    r"@?[U2]<numbers>(?:f(?:[eh]U|U<numbers>))?": _minutes,
    r"1|c": lambda tokens: (
        Say(once=True) if tokens[0].value in (None, 1) else Say(asks="how often?")
    ),
}
_PRODUCTIONS: Final = [
    (re.compile(re.sub(r"<([a-z]+)>", lambda name: _MACROS[name[1]], form)), build)
    for form, build in _FORMS.items()
]
_JOINERS: Final = re.compile(r"[,&oi@():v_]{0,4}")


def phrases_of(tokens: Sequence[Token]) -> list[Said]:
    """Return the phrases of time among some tokens, in order."""
    symbols = "".join(token.symbol for token in tokens)
    found: list[Said] = []
    at = 0
    while at < len(tokens):
        ends = [(m.end(), build) for form, build in _PRODUCTIONS if (m := form.match(symbols, at))]
        if not ends:
            at += 1
            continue
        end, build = max(ends, key=lambda each: each[0])
        say = build(tokens[at:end])
        said = Said(at, end, (say,), ((at, end, say),))
        if found and _JOINERS.fullmatch(symbols, found[-1].last, at):
            first, _, says, pieces = found.pop()
            whole = join(says[-1], say)
            says = (*says, say) if whole is None else (*says[:-1], whole)
            said = Said(first, end, says, (*pieces, *said.pieces))
        found.append(said)
        at = end
    return [said._replace(says=tuple(map(_whole, said.says))) for said in found]


KINDS: Final = ("weekdays", "mdays", "nth", "nearest", "dates")


def join(one: Say, other: Say) -> Say | None:
    """Return both in one statement; None if they contradict each other."""
    kinds = {name for say in (one, other) for name in KINDS if getattr(say, name)}
    if len(kinds) > 1:  # the 12th and also the third Wednesday
        return None
    if one.windows and other.windows and OPEN not in (one.windows[-1][1], other.windows[-1][1]):
        return replace(one, windows=(*one.windows, *other.windows))
    values: dict[str, object] = {}
    for name in (each.name for each in fields(Say)):
        mine, theirs = getattr(one, name), getattr(other, name)
        if not mine or not theirs or mine == theirs:
            values[name] = mine or theirs
        elif name == "minutes" and not (one.every or other.every):  # on the hour and at half past
            values[name] = mine | theirs
        elif name == "every" and (1, "d") in (mine, theirs):
            values[name] = mine if theirs == (1, "d") else theirs
        else:
            return None
    return Say(**values)  # type: ignore[arg-type]


def _whole(say: Say) -> Say:
    """Return a statement with its exceptions taken out of its days."""
    if not say.minus:
        return say
    every = None if say.every == (1, "d") else say.every
    minus = frozenset() if say.weekdays or say.every else say.minus  # `not on Mondays`, and no more
    return replace(say, weekdays=(say.weekdays or WEEK) - say.minus, minus=minus, every=every,
                   strict=False, recurs=True)  # fmt: skip
