"""Phrases: words that say when, wherever they stand, and what they say."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import cache
from itertools import accumulate, islice, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.timing.cron import Cron

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from horae.timing.repeater import Repeater


@dataclass(frozen=True, slots=True)
class Stamped:
    """A timestamp as a rule: its wall time, whether that has an hour, and how it repeats."""

    anchor: datetime
    has_time: bool
    repeater: Repeater | None = None


Rule = Cron | Stamped


class Period(StrEnum):
    SECOND = "second"
    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"


class Often(NamedTuple):
    """A number of periods, or of times in a period."""

    n: int
    period: Period


class TimeOfDay(NamedTuple):
    """A time of day in minutes; a vague one may also be twelve hours later."""

    minute: int
    is_vague: bool = False


class Nth(NamedTuple):
    """The nth day of a month among some weekdays; -1 is the last."""

    n: int
    weekdays: frozenset[int]


@dataclass(frozen=True, slots=True)
class SpokenTime:
    """What words say of a schedule; what they do not speak of is empty."""

    every: Often | None = None  # every 2 weeks
    times_per: Often | None = None  # twice a day
    weekdays: frozenset[int] = frozenset()  # 0 is Monday
    days: frozenset[int] = frozenset()  # of the month; -1 is the last
    nth: Nth | None = None  # the first Monday of the month
    months: frozenset[int] = frozenset()
    times: frozenset[TimeOfDay] = frozenset()
    part: str | None = None  # morning, afternoon or evening
    hours: tuple[int, int] | None = None  # from 9 to 17
    zone: str | None = None  # the zone that is written after a time
    is_literal: bool = False  # "every day" has no free weekend, "once" is not twice

    @property
    def names_days(self) -> bool:
        return bool(self.weekdays or self.days or self.nth)

    @property
    def is_about_days(self) -> bool:
        return bool(self.every or self.times_per or self.names_days)

    @property
    def is_within_day(self) -> bool:
        often = self.every or self.times_per
        return often is not None and often.period in SHORT


@dataclass(frozen=True, slots=True)
class TimeClaim:
    """Words of a text that say when, with their place and the place of their sentence."""

    start: int
    end: int
    when: SpokenTime
    sentence: int
    is_name: bool  # the adjective of a thing: "Daily digest"


SHORT: Final = frozenset({Period.SECOND, Period.MINUTE, Period.HOUR})
WEEK: Final = frozenset(range(7))
WORKDAYS: Final = frozenset(range(5))
WEEKEND: Final = frozenset({5, 6})


_LONGEST: Final = 100  # words that a sentence may have


class _Word(NamedTuple):
    text: str
    low: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Sentence:
    """The words of a sentence, also joined by single spaces, as the grammar reads them."""

    words: Sequence[_Word]
    line: str  # in lower case
    cased: str
    places: Sequence[int]  # where each word begins in the line
    start: int
    is_title: bool  # a headline rather than part of a body
    is_question: bool

    def low(self, index: int) -> str:
        return self.words[index].low if 0 <= index < len(self.words) else ""

    def index_at(self, place: int) -> int:
        return bisect_left(self.places, place)


MASK: Final = "\0"
# No part can be tried again from inside itself, so that the cost stays linear.
_OPAQUE: Final = re.compile(
    r"""
      `{1,3}[^`]{1,300}`{1,3} | "[^"]{0,300}" | “[^“”]{0,300}” | «[^«»]{0,300}»
    | (?<!\w)'[^'\n]{1,120}'(?!\w) | ‘[^‘’\n]{1,120}’(?!\w)
    | (?<![\w=])=[^\s=][^=\n]{0,120}=(?![\w=])
    | (?<![\w~])~[^\s~][^~\n]{0,120}~(?![\w~])
    | <[^<>\n]{0,200}> | \[[^\[\]]{0,300}\] | \{[^{}]{0,300}\}
    | (?<!\w)[a-z]{2,12}://\S+
    | (?<!\S)(?:[~.]{0,2}/|-{1,2}(?=[a-zA-Z])|[@$%\#:\\](?=\w))\S+
    """,
    re.VERBOSE,
)
_WORD: Final = re.compile(rf"{MASK}+|\w+(?:[-'’./:+–@\\]\w+)*|[^\w\s*]")
_STOP: Final = re.compile(r"[.!?;]+(?=\s|$)")
_ABBREVIATED: Final = re.compile(
    r"\b(?:[ap]\.m|e\.g|i\.e|[A-Z]|vs|approx|no|mon|tues?|wed|thurs?|fri|sat|sun)$", re.IGNORECASE
)
_TRIGGER: Final = re.compile(
    r"(?i)every|each|ly\b|annual|times|twice|once|day|ends|mon|tue|wed|thu|fri|sat|sun|\dx\b"
    r"|\d(?:st|nd|rd|th)\b|\b(?:at|@)\s*(?:\d|noon|mid)"
)
# One star is a headline only at the top: below, it may be an item of a Markdown list.
_TOP: Final = re.compile(r"\*[ \t]")
_HEADING: Final = re.compile(r"(?i)\*{2,}[ \t]|#{1,6}[ \t]|#\+title:|[ \t]*(?://|;+|--)[ \t]")
_ITEM: Final = re.compile(r"[ \t]*(?:[-+*•]|\d{1,3}[.)])[ \t]")
_SILENT: Final = re.compile(r"#\+|[|>]|:(?:\s|$)|(?:SCHEDULED|DEADLINE|CLOSED|CLOCK):")
_BLOCK: Final = re.compile(r"#\+begin_?(\S{0,40})|(```|~~~)|:[\w-]{1,40}:$", re.IGNORECASE)


def sentences_of(text: str) -> Iterator[Sentence]:
    for start, end, is_title in _paragraphs(text):
        masked = _OPAQUE.sub(lambda found: MASK * len(found[0]), text[start:end])
        stops = []
        for mark in _STOP.finditer(masked):
            before = masked[max(0, mark.start() - 8) : mark.start()]
            if mark[0] != "." or not _ABBREVIATED.search(before):
                stops.append(mark.end())
        stops.append(len(masked))
        for begin, stop in pairwise([0, *stops]):
            if not _TRIGGER.search(masked, begin, stop):
                continue
            found = list(islice(_WORD.finditer(masked, begin, stop), _LONGEST + 1))
            if not 0 < len(found) <= _LONGEST:
                continue
            words = []
            for match in found:
                first, last = start + match.start(), start + match.end()
                low = match[0].lower().replace("’", "'")
                # A letter whose small form is longer would move all that follows in the line.
                low = low if len(low) == last - first else match[0]
                if low[0] == MASK:
                    words.append(_Word(MASK, MASK, first, last))
                else:
                    words.append(_Word(text[first:last], low, first, last))
            yield Sentence(
                words,
                " ".join(word.low for word in words),
                " ".join(word.text for word in words),
                [0, *accumulate(len(word.low) + 1 for word in words[:-1])],
                words[0].start,
                # A line that ends like a sentence is one, and not a headline.
                is_title=is_title and len(stops) == 1,
                is_question=masked[stop - 1] == "?",
            )


def _paragraphs(text: str) -> Iterator[tuple[int, int, bool]]:
    begin: int | None = None
    is_first = True
    for start, end, line in _prose_lines(text):
        is_heading = bool(_HEADING.match(line) or (is_first and _TOP.match(line)))
        if begin is not None and (not line or is_heading or _ITEM.match(line)):
            yield begin, start, False
            begin = None
        if not line:
            continue
        # The first line of a text may be a headline, or the start of a paragraph.
        follower = text[end : end + 1]
        is_short = len(line) <= 72 and not line.endswith((",", ":", "-"))
        stands_alone = not follower.strip() or (is_short and not follower.islower())
        if is_heading or (is_first and stands_alone):
            yield start, end, True
        elif begin is None:
            begin = start
        is_first = False
    if begin is not None:
        yield begin, len(text), False


def _prose_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the place and the text of each line; what is not prose is an empty one."""
    closing: str | None = None
    end = 0
    for raw in text.splitlines(keepends=True):
        start, end = end, end + len(raw)
        line = raw.rstrip()
        bare = line.lstrip()
        if closing is not None:
            closing = None if bare.lower().startswith(closing) else closing
            line = ""
        elif block := _BLOCK.match(bare):
            closing = block[2] or (":end:" if block[1] is None else "#+end")
            line = ""
        elif _SILENT.match(bare) and not _HEADING.match(line):
            line = ""
        yield start, end, line


class Manner(StrEnum):
    """How a phrase says when, which decides where it may stand."""

    EVERY = "every"  # every day, twice a week
    ADVERB = "adverb"  # daily; an adjective where a noun follows
    DAYS = "days"  # on Mondays, weekdays
    DATE = "date"  # on the first of the month
    TIME = "time"  # at 9


class Phrase(NamedTuple):
    """Words that say when, up to an index; None stands for words that say too much at once."""

    end: int
    when: SpokenTime | None
    kind: Manner


DAY_NAMES: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SHORT_DAYS: Final = {name[:3]: day for day, name in enumerate(DAY_NAMES)}
_SHORT_DAYS.update(tues=1, weds=2, thur=3, thurs=3)
_DAYS: Final = {name + end: day for end in ("", "s") for day, name in enumerate(DAY_NAMES)}
_DAYS.update(_SHORT_DAYS)
# fmt: off
MONTH_NAMES: Final = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)
_MONTHS: Final = {key: n for n, name in enumerate(MONTH_NAMES, 1) for key in (name, name[:3])}
_MONTHS["sept"] = 9
_NUMBERS: Final = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
    "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30,
    "forty-five": 45, "ninety": 90, "other": 2, "once": 1, "twice": 2, "thrice": 3,
}
_ORDINALS: Final = {
    "first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "tenth": 10,
    "fifteenth": 15, "last": -1,
}
_UNITS: Final = {
    **{period.value: period for period in Period},
    **{period.value + "s": period for period in Period},
    "sec": Period.SECOND, "secs": Period.SECOND, "min": Period.MINUTE, "mins": Period.MINUTE,
    "hr": Period.HOUR, "hrs": Period.HOUR,
    "s": Period.SECOND, "m": Period.MINUTE, "h": Period.HOUR, "d": Period.DAY, "w": Period.WEEK,
}
FREQUENCIES: Final = {
    "hourly": Often(1, Period.HOUR), "half-hourly": Often(30, Period.MINUTE),
    "daily": Often(1, Period.DAY), "nightly": Often(1, Period.DAY),
    "weekly": Often(1, Period.WEEK), "fortnightly": Often(2, Period.WEEK),
    "monthly": Often(1, Period.MONTH), "quarterly": Often(3, Period.MONTH),
    "half-yearly": Often(6, Period.MONTH), "semi-annually": Often(6, Period.MONTH),
    "semiannually": Often(6, Period.MONTH),
    "yearly": Often(1, Period.YEAR), "annually": Often(1, Period.YEAR),
    "annual": Often(1, Period.YEAR),
}
# fmt: on
PARTS: Final = {"morning": (180, 720), "afternoon": (660, 1140), "evening": (960, 1439)}
_NAMED_TIMES: Final = {"noon": 720, "midday": 720, "midnight": 0}


def _any(words: Iterable[str]) -> str:
    return "(?:" + "|".join(sorted(words, key=len, reverse=True)) + ")"


_AND: Final = r" ?(?:,|/|&|\+|and)(?: (?:and|&))? ?"
_DASH: Final = r" ?(?:-|–|to|through|thru) ?"
_NUMBER: Final = f"(?:[0-9]{{1,3}}|{_any(_NUMBERS)})"
_ORDINAL: Final = f"(?:[0-9]{{1,2}}(?:st|nd|rd|th)|{_any(_ORDINALS)})"
_LONG_UNIT: Final = _any(unit for unit in _UNITS if len(unit) > 1)
_TIMES: Final = f"(?:once|twice|thrice|{_NUMBER} times|[0-9]{{1,2}}x)"
_DAY: Final = _any(_DAYS)
_DAY_ROW: Final = f"{_DAY}(?:{_DASH}{_DAY}|(?:{_AND}{_DAY})*)"
_DAY_SET: Final = "(?:(?:week|work|business |working |work |week )days?|weekends?)"
_PART: Final = f"(?:{_any(PARTS)}|night)"
_DATES: Final = f"{_ORDINAL}(?:{_AND}(?:the )?{_ORDINAL})*"
_NTH_DAY: Final = f"(?:{_any((*DAY_NAMES, *_SHORT_DAYS))}|weekday|(?:business|working|work) day)"
_OF_MONTH: Final = " (?:of|in)(?: (?:the|each|every|a))? month"
_MONTH: Final = _any(_MONTHS)
_NTH: Final = "[0-9]{1,2}(?:st|nd|rd|th)?"
_MONTH_DAY: Final = f"(?:{_MONTH} {_NTH}|{_NTH}(?: of)? {_MONTH})"
_HALF: Final = r"(?:am|pm|[ap]\.m(?: \.)?)"
_EXACT: Final = (
    f"(?:[0-9]{{1,2}}(?:[:.][0-5][0-9])? ?{_HALF}|[0-9]{{1,2}}:[0-5][0-9]|{_any(_NAMED_TIMES)})"
)
# A number alone is an hour only before something that no counted thing is called.
_HOUR: Final = (
    r"[0-9]{1,2}(?: o'clock)?(?= (?:and|on|every|each|sharp|in|from|to|for|by|with|so|then|but"
    rf"|while|the|this|it|we|{_any(FREQUENCIES)})(?![^ ])| [^\w%$€£°/\0-]|$)"
)
_IN_PART: Final = f" in the {_any(PARTS)}"
_TIME: Final = f"(?:{_EXACT}|{_HOUR})(?:{_IN_PART})?"
_TIME_ROW: Final = f"{_TIME}(?:{_AND}(?:at )?{_TIME})*"
_SHIFT: Final = rf"(?:[0-9]{{1,2}}(?::00)?(?: ?{_HALF})?|noon|midnight)"
_OFFICE: Final = f"(?P<low>{_SHIFT})(?:{_DASH}| and | until )(?P<high>{_SHIFT})"
_EVERY: Final = "(?:once )?(?:every|each)(?: single)? "
_ON: Final = "(?:on )?(?:both )?(?:the )?"
# How the first word of a phrase begins: a quick look before all the forms are tried.
_FIRST: Final = re.compile(
    r"on|eac|eve|the|at|@|bot|[0-9]|wee|wor|bus|mon|tue|wed|thu|fri|sat|sun|fir|sec|las"
    rf"|{_any(FREQUENCIES)}|{_any(_NUMBERS)}|{_any(_ORDINALS)}"
)


class _Phrasing(NamedTuple):
    kind: Manner
    pattern: str
    build: Callable[[re.Match[str]], SpokenTime | None]


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    # Compiling them all takes longer than the command line needs to start.
    return re.compile(pattern + "(?![^ ])")


def phrase_at(sentence: Sentence, index: int) -> Phrase | None:
    """Return the longest row of words from an index on that together say when."""
    phrase = _row(_OPENERS, sentence, index) if _FIRST.match(sentence.low(index)) else None
    if phrase is None:
        return None
    # Two kinds of days in one breath are more than one rule can be held to.
    has_and = sentence.low(phrase.end) in ("and", "&", "plus", "or")
    other = _row(_DAY_OPENERS if has_and else _FOLLOWERS, sentence, phrase.end + has_and)
    return phrase if other is None else Phrase(other.end, None, phrase.kind)


def _row(forms: Iterable[_Phrasing], sentence: Sentence, index: int) -> Phrase | None:
    phrase = more = _read(forms, sentence, index)
    while more is not None:
        phrase, more = more, _continued(sentence, more)
    return phrase


def _read(forms: Iterable[_Phrasing], sentence: Sentence, index: int) -> Phrase | None:
    if index >= len(sentence.words):
        return None
    for kind, pattern, build in forms:
        match = _compiled(pattern).match(sentence.line, sentence.places[index])
        when = build(match) if match else None
        if match is None or when is None:
            continue
        if when.months and sentence.cased[match.start() : match.end()].islower():
            continue  # "may" and "march" are verbs as well
        end = sentence.index_at(match.end())
        if when.times:
            start = [*sentence.places, len(sentence.cased)][end]
            if named := _ZONE.match(sentence.cased, start):
                when, end = replace(when, zone=named["zone"]), sentence.index_at(named.end())
        return Phrase(end, when, kind)
    return None


def _continued(sentence: Sentence, phrase: Phrase) -> Phrase | None:
    when = phrase.when
    assert when is not None
    has_comma = sentence.low(phrase.end) == ","
    index = phrase.end + has_comma
    if (left_out := _read((_LEFT_OUT,), sentence, index)) and left_out.when:
        if when.every not in (None, Often(1, Period.DAY)):
            return None
        rest = (when.weekdays or WEEK) - left_out.when.weekdays
        return Phrase(left_out.end, replace(when, weekdays=rest, every=None), phrase.kind)
    is_weekly = when.every is not None and when.every.period is Period.WEEK
    office, one = (_OFFICE_HOURS,) * when.is_within_day, (_ONE_DAY,) * is_weekly
    following = _read((*office, *_FOLLOWERS, *one), sentence, index)
    if following is None or (has_comma and following.kind is Manner.ADVERB):
        return None
    joined = join(when, following.when)
    return Phrase(following.end, joined, phrase.kind) if joined else None


def join(one: SpokenTime, other: SpokenTime | None) -> SpokenTime | None:
    if (
        other is None
        or (one.every and other.every and one.every != other.every)
        or (one.times_per and other.times_per)
        or (one.times and other.times)
        or (one.part and other.part)
        or (one.names_days and other.names_days)
    ):
        return None
    part = one.part or other.part

    def settled(clock: TimeOfDay) -> TimeOfDay:  # 6 in the evening is 18:00
        if part is None or not clock.is_vague:
            return clock
        return TimeOfDay(clock.minute % 720 + (0 if part == "morning" else 720))

    # Of all else only one of the two speaks.
    said = {each.name: getattr(one, each.name) or getattr(other, each.name) for each in fields(one)}
    times = frozenset(map(settled, said["times"]))
    return _agreed(SpokenTime(**said | {"months": one.months | other.months, "times": times}))


def _agreed(when: SpokenTime) -> SpokenTime | None:
    """Return what is said without what it says twice; None if it does not add up."""
    period = when.every.period if when.every else None
    if when.times_per:  # `twice a week on Mondays and Fridays` is the days alone
        count, unit = when.times_per
        named = {Period.DAY: when.times, Period.WEEK: when.weekdays, Period.MONTH: when.days}
        if when.every or when.part:
            return None
        if said := named.get(unit):
            return replace(when, times_per=None) if len(said) == count else None
        is_within = unit in SHORT | {Period.DAY}
        return when if not when.times and (is_within or not when.names_days) else None
    if period in SHORT and (when.times or when.part):
        return None
    if (period is Period.MONTH and when.months) or (period is Period.YEAR and len(when.days) > 1):
        return None
    if when.weekdays and when.every and period not in SHORT:
        if when.every.n == 1 and period in (Period.DAY, Period.WEEK):
            return replace(when, every=None)  # "weekly on Mondays" is "on Mondays"
        return when if period is Period.WEEK and len(when.weekdays) == 1 else None
    is_monthly = period in (None, Period.MONTH, Period.YEAR)
    return when if is_monthly or not (when.days or when.nth) else None


_ZONE: Final = re.compile(
    r"(?P<aside>\( )?(?P<zone>[A-Z]{2,5}|Z|[A-Z][a-z]+/[A-Z]\w+|(?:UTC|GMT)[+-]\d{1,2}"
    r"|(?:[Ll]ocal|[Ss]erver|Pacific|Eastern|Central|Mountain|European)(?! time)|\w+(?= time))"
    r"(?: time)?(?(aside) \))(?![^ ])"
)


def number_of(text: str) -> int:
    """Return a number in figures or in words, cardinal or ordinal; 0 for none.

    >>> [number_of(text) for text in ("15", "two", "3rd", "last", "4x", "few")]
    [15, 2, 3, -1, 4, 0]
    """
    if figures := re.match("[0-9]{1,4}", text):
        return int(figures[0])
    word = text.removesuffix(" times")
    return _NUMBERS.get(word) or _ORDINALS.get(word) or 0


def _weekdays(text: str) -> frozenset[int]:
    """Return the days that are named in a text.

    >>> sorted(_weekdays("mon-fri")), sorted(_weekdays("tue/thu")), sorted(_weekdays("weekends"))
    ([0, 1, 2, 3, 4], [1, 3], [5, 6])
    """
    if text.startswith("weekend"):
        return WEEKEND
    if re.fullmatch(_DAY_SET, text):
        return WORKDAYS
    days = [_DAYS[name] for name in re.findall(_DAY, text)]
    if len(days) == 2 and re.search(f"[a-z]{_DASH}[a-z]", text) and not re.search(_AND, text):
        return frozenset((days[0] + step) % 7 for step in range((days[1] - days[0]) % 7 + 1))
    return frozenset(days)


def _plain(often: Often) -> Often:
    """Return the usual name of a length of time.

    >>> _plain(Often(24, Period.HOUR)), _plain(Often(14, Period.DAY))
    (Often(n=1, period=<Period.DAY: 'day'>), Often(n=2, period=<Period.WEEK: 'week'>))
    """
    size, larger = _LARGER.get(often.period, (0, often.period))
    if not size or often.n % size:
        return often
    return _plain(Often(often.n // size, larger))


_LARGER: Final = {
    Period.SECOND: (60, Period.MINUTE), Period.MINUTE: (60, Period.HOUR),
    Period.HOUR: (24, Period.DAY), Period.DAY: (7, Period.WEEK), Period.MONTH: (12, Period.YEAR),
}  # fmt: skip


def _every_period(match: re.Match[str]) -> SpokenTime | None:
    often = Often(number_of(match["n"] or "1"), _UNITS[match["unit"]])
    is_ordinal = often.period is Period.SECOND and match["n"] is None  # "every second …"
    if often.n < 1 or is_ordinal:
        return None
    return SpokenTime(every=_plain(often), is_literal=often == Often(1, Period.DAY))


def _every_other(match: re.Match[str]) -> SpokenTime:
    return SpokenTime(every=Often(2, Period.WEEK), weekdays=frozenset({_DAYS[match["days"]]}))


def _every_part(match: re.Match[str]) -> SpokenTime:
    part = match["part"]
    times = frozenset({TimeOfDay(_NAMED_TIMES[part])}) if part in _NAMED_TIMES else frozenset()
    return SpokenTime(every=Often(1, Period.DAY), part=part if part in PARTS else None, times=times)


def _part(match: re.Match[str]) -> str | None:
    part = (match["part"] or "").removesuffix("s")
    return part if part in PARTS else None


def _times_in(match: re.Match[str]) -> SpokenTime | None:
    groups = match.groupdict()
    often = FREQUENCIES[groups["often"]] if groups.get("often") else None
    period = often.period if often else _UNITS[groups["unit"]]
    count = number_of(groups["n"] or "1")
    if count > 1 and often and often.n > 1:
        return None
    if groups["n"] is None or count == 1:
        is_literal = groups["n"] is not None and period is Period.DAY
        return SpokenTime(every=often or Often(1, period), is_literal=is_literal)
    return SpokenTime(times_per=Often(count, period)) if count > 0 else None


def _habit_days(match: re.Match[str]) -> SpokenTime | None:
    """Build days that come round; a day or two in the singular may be meant only once."""
    names, weekdays = match["days"], _weekdays(match["days"])
    is_set = bool(re.fullmatch(_DAY_SET, names))
    is_short = any(name in _SHORT_DAYS for name in re.findall("[a-z]+", names))
    least = 2 if is_short or " " not in names or re.search(_DASH, names) else 3
    is_habit = names.endswith("days") or names == "weekends" or match["part"]
    if not is_habit and (is_set or len(weekdays) < least):
        return None
    return SpokenTime(weekdays=weekdays, part=_part(match))


def _nth(match: re.Match[str]) -> SpokenTime | None:
    n, day = number_of(match["n"]), match["day"]
    if not -1 <= n <= 5:
        return None
    weekdays = frozenset({_DAYS[day]}) if day in _DAYS else WORKDAYS
    is_monthly = match.groupdict().get("month") is not None
    return SpokenTime(every=Often(1, Period.MONTH) if is_monthly else None, nth=Nth(n, weekdays))


def _dates(match: re.Match[str]) -> SpokenTime | None:
    days = frozenset(number_of(text) for text in re.findall(_ORDINAL, match["dates"]))
    if any(day > 31 or not day for day in days):
        return None
    is_monthly = match.groupdict().get("month") is not None
    if not is_monthly and "alone" in match.groupdict() and len(days) < 2:
        return None
    return SpokenTime(every=Often(1, Period.MONTH) if is_monthly else None, days=days)


def _month_day(match: re.Match[str]) -> SpokenTime | None:
    day = number_of(re.findall("[0-9]+", match["date"])[0])
    month = _MONTHS[re.findall(f"{_MONTH}(?![a-z])", match["date"])[0]]
    if not 1 <= day <= 31:
        return None
    return SpokenTime(every=Often(1, Period.YEAR), days=frozenset({day}), months=frozenset({month}))


def _months(match: re.Match[str]) -> SpokenTime:
    names = re.findall(_MONTH, match["months"])
    return SpokenTime(months=frozenset(_MONTHS[name] for name in names))


def _times_of_day(match: re.Match[str]) -> SpokenTime | None:
    times = [_clock(text) for text in re.findall(_TIME_ALONE, match["times"])]
    found = frozenset(clock for clock in times if clock is not None)
    return SpokenTime(times=found) if found and len(times) == len(found) else None


_TIME_ALONE: Final = f"(?:{_EXACT}|[0-9]{{1,2}}(?: o'clock)?)(?:{_IN_PART})?"


def _clock(text: str) -> TimeOfDay | None:
    """Return a time of day; without am or pm it may be either.

    >>> _clock("9:30"), _clock("9 pm"), _clock("09:00"), _clock("25")
    (TimeOfDay(minute=570, is_vague=True), TimeOfDay(minute=1260, is_vague=False),
     TimeOfDay(minute=540, is_vague=False), None)
    """
    if text in _NAMED_TIMES:
        return TimeOfDay(_NAMED_TIMES[text])
    figures = re.match(r"([0-9]{1,2})(?:[:.]([0-9]{2}))?", text)
    assert figures
    hour, minute = int(figures[1]), int(figures[2] or 0)
    if half := re.search(r"\b([ap])\.?m|[0-9]([ap])\.?m|in the (m|a|e)", text):
        late = (half[1] or half[2]) == "p" or half[3] in ("a", "e")
        return TimeOfDay(hour % 12 * 60 + minute + 720 * late) if 1 <= hour <= 12 else None
    is_vague = 1 <= hour <= 12 and not text.startswith("0")
    return TimeOfDay(hour * 60 + minute, is_vague) if hour < 24 else None


def _office_hours(match: re.Match[str]) -> SpokenTime | None:
    low, high = _clock(match["low"]), _clock(match["high"])
    if low is None or high is None:
        return None
    first, last = low.minute // 60, high.minute // 60
    last += 12 if last <= first and last < 12 else 0
    return SpokenTime(hours=(first, last)) if first < last < 24 else None


def _named_days(match: re.Match[str]) -> SpokenTime:
    return SpokenTime(weekdays=_weekdays(match["days"]), part=_part(match))


_DAYS_SAID: Final = f"(?P<days>{_DAY_SET}|{_DAY_ROW})"
_NTH_SAID: Final = f"(?P<n>{_ORDINAL}) (?P<day>{_NTH_DAY})"
_DATES_SAID: Final = f"(?P<dates>{_DATES})(?: day)?"
_MONTHS_SAID: Final = f"(?P<months>{_MONTH}(?:{_AND}{_MONTH})*)"
_MONTHLY: Final = f"(?P<month>{_OF_MONTH})"
_EVERY_FORMS: Final = (
    (f"{_NTH_SAID}{_MONTHLY}", _nth),
    (f"(?P<n>first|1st|last) (?P<day>{_NTH_DAY})(?P<month>)", _nth),
    (f"{_DATES_SAID}{_MONTHLY}", _dates),
    (f"other (?P<days>{_DAY})", _every_other),
    (f"(?P<part>{_PART}|{_any(_NAMED_TIMES)})", _every_part),
    (f"{_DAYS_SAID}(?: (?P<part>{_PART}))?", _named_days),
    ("half(?: an)?[ -]hour", lambda _: SpokenTime(every=Often(30, Period.MINUTE))),
    ("quarter(?! (?:hour|of))", lambda _: SpokenTime(every=Often(3, Period.MONTH))),
    ("fortnight", lambda _: SpokenTime(every=Often(2, Period.WEEK))),
    (f"(?:(?P<n>{_NUMBER}|{_ORDINAL}) )?(?P<unit>{_LONG_UNIT})", _every_period),
    (f"(?P<n>[0-9]{{1,3}})(?P<unit>{_any(_UNITS)})", _every_period),
    (f"(?P<date>{_MONTH_DAY})", _month_day),
    (_MONTHS_SAID, _months),
)
_TIMES_A: Final = f"(?P<n>{_TIMES}) (?:a|an|per|each|every) (?P<unit>{_any(list(Period)[1:])})"
_DAY_OPENERS: Final = (
    *(_Phrasing(Manner.EVERY, _EVERY + form, build) for form, build in _EVERY_FORMS),
    _Phrasing(Manner.EVERY, _TIMES_A, _times_in),
    _Phrasing(Manner.DAYS, f"(?:on )?{_DAYS_SAID}(?: (?P<part>{_PART}s))?", _habit_days),
    _Phrasing(Manner.DATE, f"{_ON}{_NTH_SAID}{_MONTHLY}", _nth),
    _Phrasing(Manner.DATE, f"{_ON}{_DATES_SAID}{_MONTHLY}", _dates),
    _Phrasing(Manner.DATE, f"{_ON}(?P<dates>{_DATES})(?<=st|nd|rd|th)(?P<alone>)", _dates),
)
_OFTEN: Final = f"(?:(?P<n>{_TIMES})[ -])?(?P<often>{_any(FREQUENCIES)})"
_ADVERB: Final = _Phrasing(Manner.ADVERB, _OFTEN, _times_in)
_AT: Final = _Phrasing(Manner.TIME, f"(?:at|@) (?P<times>{_TIME_ROW})", _times_of_day)
_OPENERS: Final = (*_DAY_OPENERS, _ADVERB, _AT)
_FOLLOWERS: Final = (
    _AT,
    _Phrasing(Manner.TIME, f"(?P<times>{_EXACT}(?:{_AND}{_EXACT})*)", _times_of_day),
    *_DAY_OPENERS,
    _Phrasing(Manner.DATE, f"on (?:the )?{_NTH_SAID}", _nth),
    _Phrasing(Manner.DATE, f"on (?:the )?(?P<dates>{_DATES})", _dates),
    _Phrasing(Manner.DATE, f"on (?:the )?(?P<date>{_MONTH_DAY})", _month_day),
    _Phrasing(Manner.DATE, f"(?:in|of) {_MONTHS_SAID}", _months),
    _Phrasing(Manner.TIME, f"in the (?P<part>{_any(PARTS)})", lambda m: SpokenTime(part=m["part"])),
    _ADVERB,
)
_EXCEPT: Final = f"(?:except|excluding|but not)(?: for)?(?: on)? {_DAYS_SAID}(?P<part>)"
_LEFT_OUT: Final = _Phrasing(Manner.DAYS, _EXCEPT, _named_days)
_ON_DAY: Final = f"(?:on )?(?P<days>{_any(DAY_NAMES)})(?P<part>)"
_ONE_DAY: Final = _Phrasing(Manner.DAYS, _ON_DAY, _named_days)
_WITHIN: Final = f"(?:(?:from|between|during) )?{_OFFICE}"
_OFFICE_HOURS: Final = _Phrasing(Manner.TIME, _WITHIN, _office_hours)
