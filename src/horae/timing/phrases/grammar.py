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
from horae.timing.phrases.tokens import HALF, TWO_WAYS, WEEK, WEEKEND, WORKDAYS, Token

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

    @property
    def is_bare(self) -> bool:
        return self.sure == BARE


_KINDS: Final = ("weekdays", "mdays", "nth", "nearest", "dates")
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
    edge: int = 0  # 1: in the first days of the period; -1: in its last days
    of: str = ""  # the period in which they are counted: m, q, y
    months: frozenset[int] = frozenset()
    dates: frozenset[tuple[int, int]] = frozenset()  # (month, day), where they are no table
    years: frozenset[int] = frozenset()
    once: bool = False
    times: frozenset[Clock] = frozenset()
    part: str = ""
    windows: tuple[tuple[Clock, Clock], ...] = ()
    minutes: frozenset[int] = frozenset()  # of the hour
    hours: frozenset[int] = frozenset()
    seconds: frozenset[int] = frozenset()  # of the minute
    starts: date | None = None
    recurs: bool = False  # the words themselves say that it comes again
    exact: bool = False  # a day that some months do not have is meant as such
    asks: str = ""  # the question that the words leave open

    @property
    def is_short(self) -> bool:
        """Whether it says an interval of less than a day."""
        return self.every is not None and self.every[1] in ("s", "min", "h")

    @property
    def kinds(self) -> list[str]:
        """In which ways it says on which days."""
        return [name for name in _KINDS if getattr(self, name)]

    @property
    def has_time(self) -> bool:
        fixed = self.times or self.minutes or self.hours or self.seconds
        return bool(fixed or self.windows or self.is_short)


class Said(NamedTuple):
    """A phrase in a text: where it is, and its statements."""

    first: int  # the tokens it is made of
    last: int
    says: tuple[Say, ...]
    pieces: tuple[tuple[int, int, Say], ...]  # where in the text


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
    if clock.sure == EXACT or part not in PARTS:
        return clock
    hour = clock.minute // 60 % 12 or 12
    first, last, late = PARTS[part]
    is_late = hour in late or (hour == 12 and part not in ("night", "am"))
    found = clock.minute % 720 + 720 * is_late
    # There is no eleven in the afternoon: "at 11 and at 3 in the afternoon".
    is_other = part == "day" or (found >= 720 and not first <= found <= last)
    return clock if is_other else Clock(found)


_FRACTIONS: Final = {"H": 30, "q": 15}
_FRACTION: Final = re.compile("[HqN]U?([pt])[^R]")


def _clocks(tokens: Sequence[Token]) -> tuple[list[Clock], set[int]]:
    """Return the times of day that some tokens say, and their seconds."""
    found: list[Clock] = []
    seconds: set[int] = set()
    shift: int | None = None  # of "ten to"
    bare = 0  # from here on, am, pm or a part of the day also count for bare numbers before
    symbols = _symbols(tokens)
    for at, (symbol, value, *_, text) in enumerate(tokens):
        if shift is None and (fraction := _FRACTION.match(symbols, at)):
            amount = _FRACTIONS.get(symbol, value)
            shift = (amount if fraction[1] == "p" else -amount) if amount <= 30 else None
        elif at and symbols[at - 1 : at + 1] == "NN" and found:  # six thirty
            if text.isdigit() or not 9 < value < 60:
                return [], set()
            found[-1] = Clock(found[-1].minute + value, found[-1].sure)
        elif (symbol in "YmK" and value % 100 < 60) or (symbol == "N" and value <= 24):
            minute = {"K": value, "N": value % 24 * 60}.get(symbol, value // 100 * 60 + value % 100)
            is_bare = symbol == "N" and 1 <= value <= 12 and text[0] != "0"
            found.append(Clock((minute + (shift or 0)) % 1440, BARE if is_bare else EXACT))
            shift = None
        elif symbol in "TD":
            minute, second, is_open = value
            if re.search("[apAP]", text):  # 8 and 9 pm, 11 and 3 pm
                half = minute // 720 * 720
                for n, clock in enumerate(found[bare:], bare):
                    if clock.is_bare and clock.minute % 720 < minute % 720:
                        found[n] = Clock(clock.minute % 720 + half)
            found.append(Clock((minute + (shift or 0)) % 1440, WRITTEN if is_open else EXACT))
            shift = None
            seconds |= {second} - {0}
        elif symbol in "RV":
            found[bare:] = [placed(each, value) for each in found[bare:]]
            bare = len(found)
    return found, seconds


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


def _unit(token: Token) -> Every:
    return {"2": (1, "s"), "q": (3, "m")}.get(token.symbol) or token.value


def _symbols(tokens: Sequence[Token]) -> str:
    return "".join(token.symbol for token in tokens)


def _every(tokens: Sequence[Token]) -> Say:
    said = [token for token in tokens if token.symbol not in "ceaho"]
    head, (number, unit) = said[0], _unit(said[-1])
    count = 1 if len(said) == 1 else 2 if head.symbol in "~A" else head.value
    if count < 1 + (head.symbol == "O"):
        return Say(asks="how often is that?")
    every = normal(count * number, unit)
    of = "q" if said[-1].symbol == "q" and count == 1 else ""
    return Say(every=every, of=of, strict=every == (1, "d"), recurs=True)


_TURNS: Final = {(3, "m"): "q", (6, "m"): "y"}


def _often(tokens: Sequence[Token]) -> Say:
    number, unit = every = tokens[-1].value
    if number == TWO_WAYS:
        two = Say(count=(2, unit), recurs=True), Say(every=normal(2, unit), recurs=True)
        return Say(either=two, recurs=True, asks="once in two of them, or twice in each?")
    if number == HALF:
        return Say(count=(2, unit), recurs=True)
    if _symbols(tokens) == "NQ":  # three-hourly
        return Say(every=normal(tokens[0].value * number, unit), recurs=True)
    if len(tokens) > 1:  # twice daily
        return _count(tokens)
    part = "night" if tokens[-1].text.lower() == "nightly" else ""
    return Say(every=every, of=_TURNS.get(every, ""), part=part, recurs=True)


def _count(tokens: Sequence[Token]) -> Say:
    number, (size, unit) = tokens[0].value, _unit(tokens[-1])
    if any(token.symbol == "U" and token.value != (1, "d") for token in tokens[:-1]):
        return Say(asks="how often is that?")  # 10 minutes a day
    if number == 1 or (number, size, unit) == (7, 1, "w"):
        every = (size, unit) if number == 1 else (1, "d")
        return Say(every=every, strict=every == (1, "d"), recurs=True)
    return Say(count=(number, unit), recurs=True, asks="" if size == 1 else "how often is that?")


def _on_days(tokens: Sequence[Token]) -> Say:
    symbols, days = _symbols(tokens), _values(tokens, "WPSs", 7)
    if "c" in symbols and (_values(tokens, "c") != {1} or days == WEEKEND):
        return Say(asks="on which days?")
    every = (2, "w") if re.search("[~A]", symbols) else None
    is_many = len(re.findall("[WPSs]", symbols)) > 1 or re.search("[ePSV]", symbols)
    part = tokens[-1].value if symbols[-1] in "RV" else ""
    return Say(every=every, weekdays=days, part=part, recurs=bool(every or is_many))


def _period(tokens: Sequence[Token]) -> tuple[str, frozenset[int]]:
    """Return the period that "of the month" or "of May" names."""
    units = ["q" if t.symbol == "q" else t.value[1] for t in tokens if t.symbol in "Uq"]
    return units[0] if units else "", _values(tokens, "M", 12)


def _nth_day(tokens: Sequence[Token]) -> Say:
    cut = next(at for at, token in enumerate(tokens) if token.symbol in "WPs")
    numbers, day = _values(tokens[:cut], "O2"), tokens[cut]
    among = _values(tokens[cut + 1 :], "W", 7) or WORKDAYS  # last weekday (Mon-Fri)
    if len(day.value) == 2 or among != WORKDAYS:
        return Say(asks="on which of these days?")
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


def _mdays(tokens: Sequence[Token]) -> Say:
    cut = next((at for at, t in enumerate(tokens) if t.symbol in "fi"), len(tokens))
    head, (of, months) = tokens[:cut], _period(tokens[cut:])
    symbols, days = _symbols(head), _values(head, "NO2")
    if of in ("s", "min", "h", "d", "w") or any(t.value[1] != "d" for t in head if t.symbol == "U"):
        return Say(asks="on which day of it?")
    is_step = "U" in symbols if of or months else max(days) < 8 and len(days) == 1
    if "e" in symbols and is_step and max(days) > 1:
        return Say(asks=f"day {max(days)} of every month, or every {max(days)} days?")
    every = (2, of) if "~" in _symbols(tokens[cut:]) else None
    recurs = bool(of or months) or len(days) > 1 or "e" in symbols
    say = Say(of="" if every else of, months=months, every=every, recurs=recurs)
    return replace(say, nearest=days) if "n" in symbols else replace(say, mdays=days)


def _dates(tokens: Sequence[Token]) -> Say:
    symbols, named = _symbols(tokens), _values(tokens, "W")
    given = {token.value for token in tokens if token.symbol == "d"}
    pairs = {token.value for token in tokens if token.symbol == "X"}
    pairs |= {(each.month, each.day) for each in given}
    is_month_first = re.search("[MNO2]", f"{symbols}N")[0] == "M"  # type: ignore[index]
    form = "M[^NO2]*[NO2][^M]*" if is_month_first else "[NO2][^M]*M[^NO2]*"
    for group in re.finditer(form, symbols):
        part = tokens[slice(*group.span())]
        pairs |= {*product(_values(part, "M", 12), _values(part, "NO2"))}
    if any(not 1 <= day <= LENGTHS[month - 1] for month, day in pairs):
        return Say(asks="there is no such date; which day is meant?")
    years = _values(tokens, "Y") | {each.year for each in given}
    real = [date(y, m, d) for y, (m, d) in product(years, pairs) if d <= monthrange(y, m)[1]]
    if named and any(day.weekday() not in named for day in real):
        return Say(asks="this date is another day of the week; which one is meant?")
    if symbols[0] in "gF":
        is_one = len(real) == 1
        return Say(starts=real[0]) if is_one else Say(asks="starting on which date?")
    months, days = (frozenset(values) for values in zip(*pairs, strict=True))
    recurs = symbols[0] == "e" or len(pairs) > 1
    if len(pairs) == len(months) * len(days):
        return Say(mdays=days, months=months, years=years, recurs=recurs)
    return Say(dates=frozenset(pairs), years=years, recurs=recurs)


def _at(tokens: Sequence[Token]) -> Say:
    if _symbols(tokens) == "NtN" and tokens[0].text.isdigit():  # 9 to 17
        return _window(tokens)
    clocks, seconds = _clocks(tokens)
    is_plain = all(t.text.isdigit() for t in tokens if t.symbol == "N")
    if not clocks or (is_plain and "NtN" in _symbols(tokens)):
        return Say(asks='at what time? write it like "at 9" or "at 17:30"')
    say = Say(times=frozenset(clocks), seconds=frozenset(seconds))
    return replace(say, every=(1, "d"), recurs=True) if tokens[0].symbol == "e" else say


def _window(tokens: Sequence[Token]) -> Say:
    clocks, _ = _clocks([t for t in tokens if t.symbol != "t"])
    cut = max((at for at, t in enumerate(tokens) if t.symbol in "t&"), default=0)
    if not cut or tokens[0].symbol == "g":
        return Say(windows=((clocks[0], OPEN),) if clocks else (), asks="" if clocks else "when?")
    first, last = _clocks(tokens[:cut])[0], _clocks(tokens[cut:])[0]
    is_bare = _symbols(tokens) == "NtN" and tokens[1].text == "to" and tokens[2].value < 13
    if is_bare or len(first) != 1 or len(last) != 1:
        return Say(asks="from when to when?")
    start, end = first[0], last[0]
    if start.sure == BARE and tokens[-1].text[-2:].lower() in ("pm", "m."):
        late = end.minute // 720 * 720 * (start.minute % 720 < end.minute % 720)
        start = Clock(start.minute % 720 + late)
    if end.sure and end.minute <= start.minute < end.minute % 720 + 720:
        end = Clock(end.minute % 720 + 720)
    return Say(windows=((start, end),))


def _part(tokens: Sequence[Token]) -> Say:
    symbols = _symbols(tokens)
    count = next((2 if t.symbol in "~A" else t.value for t in tokens if t.symbol in "~AO2"), 1)
    every = (count, "d") if "e" in symbols or symbols[-1] == "V" else None
    part = " ".join(dict.fromkeys(t.value for t in tokens if t.symbol in "RV"))
    is_daily = every == (1, "d")
    return Say(part=part, every=every, strict=is_daily and part == "night", recurs=bool(every))


def _past(tokens: Sequence[Token]) -> Say:
    """Return the minutes of "ten past every hour", "on the half hour", "at :05"."""
    symbols = _symbols(tokens)
    if symbols == "ohU" and tokens[-1].value == (15, "min"):
        return Say(every=(15, "min"), recurs=True)
    sign = re.search("[pt]", symbols)
    head = tokens[: sign.start()] if sign else tokens
    found = {_FRACTIONS.get(t.symbol, t.value) for t in head if t.symbol in "HqNB"}
    found = found or {30 for t in tokens if t.symbol == "U" and t.value == (30, "min")} or {0}
    minutes = frozenset(60 - m if sign and sign[0] == "t" else m for m in found)
    units = {t.value for t in tokens if t.symbol == "U"} - {(1, "min"), (30, "min")}
    if not all(0 <= minute < 60 for minute in minutes) or units - {(1, "h")}:
        return Say(asks="which minute of the hour is that?")
    is_whole = "e" in symbols or "J" in symbols or (sign and "U" in symbols[sign.end() :])
    every = (1, "h") if is_whole and symbols[0] != "F" else None
    return Say(minutes=minutes, every=every, recurs=bool(is_whole))


_LISTED: Final = {"s": ("seconds", 59), "min": ("minutes", 59), "h": ("hours", 23)}


def _listed(tokens: Sequence[Token]) -> Say:
    """Return the values of "at minutes 10 and 40 of every hour", "of hours 9 to 17"."""
    _, unit = next(_unit(token) for token in tokens if token.symbol in "U2")
    name, most = _LISTED.get(unit, ("", 0))
    found = _values(tokens, "N")
    if not name or max(found) > most:
        return Say(asks="there is no such minute; which one is meant?")
    every = tokens[-1].value if tokens[-1].symbol == "U" else None  # of every hour
    if every not in (None, (1, {"s": "min", "min": "h"}.get(unit))):
        return Say(asks="of which hours?")
    return Say(**{name: found}, every=every, recurs=True)  # type: ignore[arg-type]


def _months(tokens: Sequence[Token]) -> Say:
    months = _values(tokens, "M", 12)
    return Say(months=months, recurs=tokens[0].symbol == "e" or len(months) > 1)


# Lists have a limit, so that no text costs more than its length.
_MACROS: Final = {
    "numbers": "N(?:(?:,?&|,|t)N){0,60}",
    "months": "M(?:(?:,?&|,|/|t)M){0,12}",
    "days": "h?[WPSs](?:(?:,?&|,|/|t)?o?h?[WPSs]){0,12}",
    "ordinals": "h?[O2](?:(?:,?&|,|/|t)h?[O2]){0,62}",
    "period": "(?:[eh]?~?_?[Uq]|a[Uq]|[he]?<months>)",
    "past": "(?:H|a?q|NU?)[pt]",
    "clock": "(?:<past>[NKT]k?|T|K|Nk|mU?)",
    "hour": "(?:<past>[NKT]k?|[TD]|K|[Ym]U?|NN|Nk?U?)",
    "part": "(?:,?(?:ih)?R|@R)",
    "sep": "(?:,?&|,|/)",
    "year": "(?:,?Y)?",
    "when": "[gFo]?(?:e|W,?)?",
}
_Build: TypeAlias = "Callable[[Sequence[Token]], Say]"
_FORMS: Final[dict[str, _Build]] = {
    r"c?e[NmY~AO2]?[U2q]|o?AU": _every,
    r"(?:c|Nz?)?Q": _often,
    r"(?:c|Nz|NU)[ae/][U2q]": _count,
    r"@?h?b(?:[eh]~?_?[Uq]|a[Uq])": lambda tokens: Say(
        edge=next(token.value for token in tokens if token.symbol == "b"),
        of=_period(tokens)[0],
        recurs=True,
        asks="on which day of it?",
    ),
    r"oaW": lambda tokens: Say(
        either=(Say(weekdays=tokens[2].value, recurs=True),), asks="once, or weekly?", recurs=True
    ),
    r"o?c?e?[~A]?<days>[RV]?|F[WPSs]t[WPSs]": _on_days,
    r"xo?<days>": lambda tokens: Say(minus=_values(tokens, "WPSs", 7)),
    r"o?e?<ordinals>(?:s\(WtW\)|[WPs])(?:[fi]<period>)?": _nth_day,
    r"o?(?:eO(?:<sep>h?[O2])*U?|<ordinals>U?|U<numbers>|hsnt<ordinals>)[fi]<period>": _mdays,
    r"oh<ordinals>U?|<ordinals>(?:,?&|,|t)h?[O2]|o?eO(?:<sep>h?[O2])*|oU<numbers>": _mdays,
    r"<when>h?[NO](?:<sep>h?[NO]){0,31}f?<months><year>(?:<sep>h?[NO]f?M<year>){0,12}": _dates,
    r"<when>Mh?[NO]<year>(?:<sep>Mh?[NO]<year>|<sep>h?[NO](?![fMtpk@UHR])){0,12}": _dates,
    r"o?e?X|[ogF]{0,2}W?,?dW?": _dates,
    r"(?:[if]h?|Fe?|e)l?<months>|M(?:,?&|,|/|t)<months>": _months,
    r"y": lambda _: Say(months=frozenset(range(1, 13)), recurs=True),
    r"xi?h?<months>": lambda tokens: Say(
        months=frozenset(range(1, 13)) - _values(tokens, "M", 12), recurs=True
    ),
    r"iY(?:(?:,?&|,|t)Y){0,230}|FYtY": lambda tokens: Say(years=_values(tokens, "Y")),
    r"[@o]?<clock><part>?(?:<sep>@?<hour>){0,50}<part>?": _at,
    r"e?@?K|@<hour><part>?(?:<sep>@?<hour><part>?){0,50}": _at,
    r"NN?<part>|N(?:<sep>N){0,50}k|(?<=[WPSsQ])D": _at,
    r"F<hour><part>?[t&]<hour><part>?|[TN]tT|TtN|g@?<hour>": _window,
    r"Z": lambda _: Say(windows=((Clock(0), Clock(1439)),)),
    r"ihU": lambda tokens: Say(part="day", asks="" if _period(tokens)[0] == "d" else "when?"),
    r"(?:[ie]h?|@)R(?:<sep>[ei]?h?R)?|R<sep>R|[oie]?V|o?e[~A2O]R": _part,
    r"[@oF]?(?:H|q|<numbers>U?)[pt][eh]U|@?(?:H|q|<numbers>U?)p|ohU|@?h?J[f_][eh]U": _past,
    r"[@o]?B(?:<sep>B){0,12}(?:p[eh]U)?": _past,
    r"[@of]?[U2]<numbers>(?:f[eh]U)?": _listed,
    r"1|c": lambda tokens: (
        Say(once=True) if tokens[0].value in (None, 1) else Say(asks="how often?")
    ),
}


def _form(text: str) -> re.Pattern[str]:
    while (named := re.sub(r"<([a-z]+)>", lambda name: _MACROS[name[1]], text)) != text:
        text = named
    return re.compile(text)


_PRODUCTIONS: Final = [(_form(text), build) for text, build in _FORMS.items()]
_JOINERS: Final = re.compile(r"[,&oi@():v_]{0,4}")


def phrases_of(tokens: Sequence[Token]) -> list[Said]:
    """Return the phrases of time among some tokens, in order."""
    symbols = _symbols(tokens)
    found: list[Said] = []
    at = 0
    while at < len(tokens):
        ends = [(m.end(), build) for form, build in _PRODUCTIONS if (m := form.match(symbols, at))]
        if not ends:
            at += 1
            continue
        end, build = max(ends, key=lambda each: each[0])
        say = build(tokens[at:end])
        piece = tokens[at].start, tokens[end - 1].end, say
        said = Said(at, end, (say,), (piece,))
        if found and _JOINERS.fullmatch(symbols, found[-1].last, at):
            first, _, says, pieces = found.pop()
            whole = join(says[-1], say)
            says = (*says, say) if whole is None else (*says[:-1], whole)
            said = Said(first, end, says, (*pieces, *said.pieces))
        found.append(said)
        at = end
    return [said._replace(says=tuple(map(_whole, _asked(said)))) for said in found]


def _kind(say: Say) -> str:
    if say.weekdays:
        return "w"
    is_day = say.kinds or say.every == (1, "d")
    return "d" if is_day else "m" if len(say.times) > 1 else "t" if say.has_time else "."


def _asked(said: Said) -> tuple[Say, ...]:
    """Return the statements of a phrase; daily at 9 and at 17 on Fridays is a question."""
    if not re.search("[wd]mw(?![mt])", "".join(_kind(say) for *_, say in said.pieces)):
        return said.says
    return (Say(asks="which times are those of which days? divide them by a semicolon"),)


def join(one: Say, other: Say) -> Say | None:
    """Return both in one statement; None if they contradict each other."""
    if len({*one.kinds, *other.kinds}) > 1:  # the 12th and also the third Wednesday
        return None
    values: dict[str, object] = {}
    for name in (each.name for each in fields(Say)):
        mine, theirs = getattr(one, name), getattr(other, name)
        if not mine or not theirs or mine == theirs:
            values[name] = mine or theirs
        elif name == "windows" and not any(OPEN in each for each in mine + theirs):
            values[name] = mine + theirs
        elif name == "minutes" and not (one.every or other.every):  # on the hour and at half past
            values[name] = mine | theirs
        elif name == "part" and not (one.times or other.times):  # mornings and evenings
            values[name] = f"{mine} {theirs}"
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
