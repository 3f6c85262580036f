"""Findings about words in titles and texts that do not match the schedule.

No test looks at how a rule is written, only at its days and times. A reading that can be right is
kept: "daily" may leave out the weekend, "at 9" may be 21:00, four weeks are a month.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from functools import reduce
from itertools import islice, pairwise
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.entry import CronRule, Entry, OnceRule, Origin, RepeaterRule, Rule, cron_rule
from horae.core.project import project
from horae.core.text import rule_words
from horae.extras.drift.claims import ClaimPlace, claims
from horae.org.check import shown
from horae.org.plan import Diagnostic, Severity
from horae.timing.cron_fields import CronError, read_masks
from horae.timing.phrases.compiler import AskError, compile_says
from horae.timing.phrases.grammar import PARTS, WORKING, Clock, Say, placed
from horae.timing.phrases.tokens import WEEK
from horae.timing.zone import instant, local, zone

if TYPE_CHECKING:
    from horae.sources.plans.check import CheckedWorkflow

_EVE: Final = datetime(2024, 12, 31, 23, 59, 59, tzinfo=UTC)
_FIRST, _LAST = datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 29, tzinfo=UTC)
_NIGHT: Final = time(23, 59, 59)
_ENOUGH: Final = 400  # days, more than a year of a daily rule
_LENGTH: Final = {"d": 1.0, "w": 7.0, "m": 30.44, "y": 365.25}  # in days
_SHORT: Final = {"s": 1, "min": 60, "h": 3600}  # in seconds
_DAY: Final = 1440
_LEAD: Final = 30  # minutes
_CRON: Final = re.compile(  # Cron: 0 4 * * *
    r"(?im)^[ \t#*+-]*(?:cron(?:tab)?(?: (?:line|entry|expression))?|schedule)[ \t]*:[ \t]*[`=~]?"
    r"((?:[\d*][\w*/,#-]*[ \t]+){4}[\w*/,#-]+)"
)


class Drift(NamedTuple):
    """Words that the rule does not keep, what it does instead, and the rule they would mean."""

    start: int
    end: int
    said: str
    place: ClaimPlace
    means: str
    suggestion: str


def check_drift(workflow: CheckedWorkflow, rule: Rule) -> Iterator[Diagnostic]:
    headline, stamp = workflow.headline, workflow.headline.scheduled
    has_time = isinstance(rule, CronRule) or stamp is None or "T" in stamp.at
    # A title that names the program says what runs, not when: /usr/bin/daily.
    is_program = headline.title and headline.title in headline.props.get("COMMAND", "")
    for each in drift(headline.text, rule, zone_name=workflow.zone, has_time=has_time):
        if not (is_program and each.place is ClaimPlace.TITLE):
            severity = Severity.INFO if each.place is ClaimPlace.BODY else Severity.WARNING
            message = f"{shown(each.said)} does not match the schedule: {each.means}"
            fix = f"these words mean {each.suggestion}" if each.suggestion else ""
            at, width = each.start, each.end - each.start
            yield workflow.found(at, "drift", severity, message, fix=fix, width=width)


def drift(text: str, rule: Rule, *, zone_name: str = "UTC", has_time: bool = True) -> list[Drift]:
    """Return the words of a text that its rule does not keep, in order.

    >>> for found in drift("Runs every weekday at 9", cron_rule("0 9 * * *", zone_name="UTC")):
    ...     print(found.said, "|", found.means, "|", found.suggestion)
    every weekday at 9 | at 09:00 every day | 0 9 * * MON-FRI
    """
    spoken, written = claims(text, zone_name=zone_name), [*_CRON.finditer(text)]
    is_timed = spoken or written
    every = _series_of(rule, zone_name, has_time=has_time) if is_timed else []
    if not every:
        return []
    means = rule_words(rule, zone_name=zone_name)
    sentence = rf"{re.escape(means)}(?:\W{{1,2}}{re.escape(zone_name)})?"
    own = [found.span() for found in re.finditer(sentence, text, re.IGNORECASE)]
    said = reduce(_both, [say for claim in spoken for say in claim.says] or [Say()])
    judged = []
    for claim in spoken:
        is_own = any(start <= claim.start and claim.end <= end for start, end in own)
        judged.append((claim, "" if is_own else _broken(claim.says, every, said)))
    # What the text says right elsewhere silences a name ("Daily digest") and what is doubtful.
    kept = {claim.place for claim, lost in judged if not lost and any(s.recurs for s in claim.says)}
    may_choose = re.search(r"\b(?:unless|exits?|skips?)\b", text)  # a command, among the days
    found = [
        Drift(*cron.span(1), cron[1], ClaimPlace.LABEL, means, cron[1])
        for cron in written
        if (other := _series_of_cron(cron[1], zone_name)) and other[-1] != every[-1]
    ]
    for (start, end, says, place, manner), lost in judged:
        others = kept - {ClaimPlace.TITLE} if manner == "name" else kept
        is_weak = manner == "name" or (place, manner) == (ClaimPlace.BODY, "said")
        dayless = [replace(say, weekdays=frozenset()) for say in says]
        # The time of a single weekday must be that of the rule, or its day if it stands apart.
        timeless = [replace(say, times=frozenset()) for say in says]
        is_single = manner == "single" or (manner == "apart" and bool(_broken(timeless, every)))
        is_rare = len(every[-1].weekdays) > 1 and not any(say.times for say in says)
        is_other = is_single and bool(every[-1].once or is_rare or _broken(dayless, every))
        is_other |= place is ClaimPlace.TITLE and _is_ahead(says, every[-1])
        if lost and not (lost == "days" and (may_choose or (is_weak and others))) and not is_other:
            meant = _proposed(says, every[0], rule, zone_name)
            found.append(Drift(start, end, text[start:end], place, means, meant))
    return sorted(found)


def _is_ahead(says: Sequence[Say], series: Series) -> bool:
    """Whether words are a time alone, soon after that of the rule: tea with Jo, 15:00."""
    times = {placed(clock, say.part).minute for say in says for clock in say.times}
    is_alone = len(times) == 1 and not any(say.recurs or say.kinds for say in says)
    return is_alone and any(0 < min(times) - at <= _LEAD for at in series.times)


def _proposed(says: Sequence[Say], series: Series, rule: Rule, zone_name: str) -> str:
    """Return the rule that words mean, with what they leave open taken from the rule there is."""
    try:
        compiled = compile_says([_dated(_timed(say, series), series) for say in says])
    except AskError:
        return ""
    every, is_cron = says[0].every, isinstance(rule, CronRule)
    if every and every[1] in "hdwmy" and not (is_cron or says[0].kinds):
        return f"a timestamp with ++{every[0]}{every[1]}"
    if compiled.anchor is not None:
        return f"a timestamp with {compiled.repeater}" if compiled.repeater else str(compiled)
    text = str(compiled)
    if not any(map(_says_days, says)):
        if not isinstance(rule, CronRule):
            return ""
        days = read_masks(rule.crons[0].expression)[0][3:6]
        text = "; ".join(" ".join((*each.split()[:-3], *days)) for each in compiled.crons)
    then = _series_of_cron(text, zone_name)
    return text if then and not _broken(says, then) else ""


def _says_days(say: Say) -> bool:
    return bool((say.every and not say.is_short) or say.count or say.kinds or say.months)


def _timed(say: Say, series: Series) -> Say:
    first = min(series.times, default=0)
    hours = sorted({at // 60 for at in series.times})
    if say.times:
        return replace(say, times=frozenset(Clock(placed(c, say.part).minute) for c in say.times))
    if say.every and say.every[1] == "h" and not (say.minutes or say.windows):
        return replace(say, minutes=frozenset({first % 60}))
    if say.is_short and not (say.hours or say.windows) and 1 < len(hours) < 24:
        return replace(say, windows=((Clock(hours[0] * 60), Clock(hours[-1] * 60 + 59)),))
    if say.has_time:
        return say
    times = [*series.times] if 0 < len(series.times) <= 3 and not say.strict else [first]
    if say.count and say.count[1] == "d":
        times = [(first + n * _DAY // say.count[0]) % _DAY for n in range(say.count[0])]
    return replace(say, times=frozenset(map(Clock, times)))


def _dated(say: Say, series: Series) -> Say:
    unit = say.every[1] if say.every else "y" if say.months else ""
    if say.kinds or unit not in ("w", "m", "y"):
        return say if _says_days(say) or say.every else replace(say, every=(1, "d"))
    if unit == "w":
        weekdays = series.weekdays if len(series.weekdays) == 1 else {0}
        return replace(say, weekdays=frozenset(weekdays))
    days = {day.day for day in series.days}
    day = min(days) if len(days) == 1 else 1
    months = say.months or (series.months if len(series.months) == 1 else {1})
    found = replace(say, mdays=frozenset({day if day < 29 else -1}), recurs=True)
    return replace(found, months=frozenset(months)) if unit == "y" else found


class Series(NamedTuple):
    """When a rule fires: its days, and the times of these days."""

    days: tuple[date, ...]
    times: tuple[int, ...]  # minutes of the day; none if they wander
    seconds: tuple[int, ...] = (0,)
    step: int = 0  # minutes between times that wander
    once: bool = False
    has_time: bool = True

    @property
    def gap(self) -> float:
        """The usual number of days from one to the next."""
        return median([(b - a).days for a, b in pairwise(self.days)] or [0])

    @property
    def months(self) -> set[int]:
        return {day.month for day in self.days}

    @property
    def weekdays(self) -> set[int]:
        return {day.weekday() for day in self.days}

    def share(self, weekdays: Collection[int] = WEEK) -> float:
        """Return on what part of such days it fires, in the months in which it does."""
        months, span = self.months, range(self.days[0].toordinal(), self.days[-1].toordinal() + 1)
        could = [day for day in map(date.fromordinal, span) if day.month in months]
        did = sum(day.weekday() in weekdays for day in self.days)
        return did / (sum(day.weekday() in weekdays for day in could) or 1)

    def per(self, unit: str) -> float:
        """Return how many times it fires in a unit."""
        if unit in _SHORT:
            some = len({at // 60 for at in self.times} if unit == "h" else self.times)
            return len(self.times) * len(self.seconds) / (some or 1)
        days = (self.days[-1] - self.days[0]).days + self.gap
        a_day = len(self.times) or _DAY / (self.step or _DAY)
        return a_day * (1 if unit == "d" else len(self.days) / (days or 1) * _LENGTH[unit])


def _series_of_cron(text: str, zone_name: str) -> list[Series]:
    try:
        return _series_of(cron_rule(text, zone_name=zone_name), zone_name)
    except CronError:
        return []


def _series_of(rule: Rule, zone_name: str, *, has_time: bool = True) -> list[Series]:
    """Return the series of each part of a rule and of all together; none if it has no days."""
    if not isinstance(rule, CronRule | RepeaterRule | OnceRule):
        return []
    parts = [CronRule((cron,)) for cron in rule.crons] if isinstance(rule, CronRule) else [rule]
    found = [_series(part, zone_name, has_time=has_time) for part in parts]
    if len(found) > 1:
        columns = (
            [at for each in found for at in getattr(each, name)] for name in Series._fields[:3]
        )
        days, times, seconds = (tuple(sorted({*column})) for column in columns)
        found.append(Series(days, times, seconds))
    return found if all(len(each.days) > 1 or (each.once and each.days) for each in found) else []


def _series(rule: Rule, zone_name: str, *, has_time: bool) -> Series:
    entry, place = Entry("", Origin("", 0), "", rule, zone=zone_name), zone(zone_name)

    def walls(start: datetime, end: datetime) -> Iterator[datetime]:
        return (local(each.at, place) for each in project(entry, start, end))

    start = _EVE if isinstance(rule, CronRule) else _FIRST
    nights: list[datetime] = []
    days: list[date] = []
    while (at := next(walls(start, _LAST), None)) and len(days) < _ENOUGH:
        days.append(at.date())
        start = instant(datetime.combine(at, _NIGHT), place)
        nights.append(start)
        if len(days) > 2 and (days[-1] - days[0]).days > 1461:
            break
    # A repeater may begin in the middle of its first day.
    some = [[*islice(walls(at - timedelta(days=1), at), 90_000)] for at in nights[1:3] or nights]
    clocks = [sorted({at.hour * 60 + at.minute for at in each}) for each in some]
    seconds = tuple(sorted({at.second for each in some for at in each}))
    if clocks[1:] and clocks[0] != clocks[1]:
        first, second, *_ = (at for each in some for at in each)
        step = int((second - first).total_seconds()) // 60
        return Series(tuple(days), (), seconds, step, has_time=has_time)
    times = tuple(*clocks[:1])
    return Series(tuple(days), times, seconds, 0, isinstance(rule, OnceRule), has_time)


def _broken(says: Sequence[Say], every: Sequence[Series], said: Say | None = None) -> str:
    """Return which part no series keeps, "days" or "times"; *said* is said in all the text."""
    for each in (says, [reduce(_both, says)], [_both(reduce(_both, says), said or Say())]):
        if all(any(not _lost(one, series) for series in every) for one in each):
            return ""
    return next(what for one in says if (what := _lost(one, every[-1])))


def _both(one: Say, other: Say) -> Say:
    """Return the days and times that one or the other says."""
    one, other = (
        replace(say, times=frozenset(placed(clock, say.part) for clock in say.times))
        for say in (one, other)
    )
    names = [n for n in ("weekdays", "mdays", "times", "months") if getattr(one, n)]
    part = " ".join(dict.fromkeys(f"{one.part} {other.part}".split())) if one.part else ""
    every = one.every or (None if other.is_short else other.every)
    sets = {name: getattr(one, name) | getattr(other, name) for name in names}
    return replace(one, every=every, part=part, **sets)


def _lost(say: Say, series: Series) -> str:
    if say.either:
        return "" if any(not _lost(each, series) for each in say.either) else "days"
    if (say.once and not series.once) or (say.recurs and series.once):
        return "days"
    for what, tests in _TESTS.items():
        if not all(test(say, series) for name, test in tests.items() if getattr(say, name)):
            return what if what == "days" or series.has_time else ""
    return ""


def _keeps_every(say: Say, series: Series) -> bool:
    if say.every is None or series.once:
        return True
    count, unit = say.every
    is_often = bool(say.kinds) or series.share() > 0.7
    if say.is_short:
        seconds = series.seconds if unit == "s" or not say.seconds else (0,)
        at = [60 * minute + second for minute in series.times for second in seconds]
        size = count * _SHORT[unit]
        if say.minutes and unit == "h":
            at = sorted({3600 * (minute // 60) for minute in series.times})
        # Around midnight, without the longest gap: every hour from 22:00 to 5:00.
        around = sorted(b - a for a, b in pairwise([*at, at[0] + 60 * _DAY])) if at else []
        gaps = set(around[:-1]) or {60 * (series.step or _DAY)}
        return is_often and (min(gaps) == size if say.hours else gaps == {size})
    is_dense = len(series.seconds) > 1 and not say.seconds
    if series.step or is_dense or (len(series.times) > 3 and not say.has_time):
        return False
    if (count, unit) == (1, "d"):
        is_whole = series.share() > 0.99 and (say.has_time or len(series.times) == 1)
        return is_whole if say.strict and not say.kinds else is_often
    named = len(say.weekdays) + len(say.mdays) + len(say.nth) + len(say.dates)
    days = count * _LENGTH[unit]
    is_near = abs(series.gap - days) <= (max(0.5, 0.05 * days) if unit == "d" else 0.2 * days)
    return is_near or named > 1 or (max(say.mdays, default=0) > 28 and unit == "m")


def _keeps_count(say: Say, series: Series) -> bool:
    number, unit = say.count or (0, "")
    is_often = unit not in ("min", "h", "d") or say.kinds or series.share() > 0.7
    return is_often and abs(series.per(unit) - number) <= 0.15 * number


def _keeps_weekdays(say: Say, series: Series) -> bool:
    is_rarer = say.every is not None and not say.is_short and say.every != (1, "d")
    is_used = is_rarer or not say.recurs or series.share(say.weekdays) > 0.9
    return bool(say.minus) or (is_used and series.weekdays == say.weekdays)


def _keeps_months(say: Say, series: Series) -> bool:
    if not (say.recurs or series.gap > 300 or len(series.months) < 12):
        return True  # a date without "every" beside a rule that fires all year
    is_part = say.every is not None and say.every[1] == "m" and say.months < series.months
    return series.months == say.months or is_part


def _keeps_mdays(say: Say, series: Series) -> bool:
    if say.months and not _keeps_months(replace(say, recurs=True), series) and not say.recurs:
        return True
    days = say.mdays | say.nearest
    # The number of each day, from the end of the month if it is said so.
    later = {day: -1 - left for day, left in zip(series.days, map(_left, series.days), strict=True)}
    fired = {last if last in days else day.day for day, last in later.items()}
    is_shifted = all(  # to the nearest working day
        day.weekday() < 5 and any(abs(day.day - each) < 3 for each in days) for day in series.days
    )
    return (fired == days or (is_shifted and days < fired)) and _in_period(say, series)


def _left(day: date) -> int:
    """Return how many days of its month are left after a day."""
    return monthrange(day.year, day.month)[1] - day.day


def _in_period(say: Say, series: Series) -> bool:
    if say.of == "q":
        return len(series.months) == 4 and len({month % 3 for month in series.months}) == 1
    if say.months or say.every or series.once:
        return True
    return len(series.months) == 1 if say.of == "y" else len(series.months) >= 6


def _keeps_edge(say: Say, series: Series) -> bool:
    if say.of == "w":
        return series.weekdays <= ({0, 6} if say.edge > 0 else {4, 5, 6})
    days = {day.day for day in series.days}
    return _in_period(say, series) and (max(days) < 8 if say.edge > 0 else min(days) > 24)


def _keeps_nth(say: Say, series: Series) -> bool:
    found = [say.nth & _numbers(day) for day in series.days]
    return all(found) and frozenset().union(*found) == say.nth and _in_period(say, series)


def _numbers(day: date) -> set[tuple[int, int]]:
    """Return which of its weekday a day is in its month, and whether an outer working day."""
    before, after, weekday = day.day - 1, _left(day), day.weekday()
    found = {(1 + before // 7, weekday), (-1 - after // 7, weekday)}
    found |= {(1, WORKING)} if weekday < 5 and before <= (2 if weekday == 0 else 0) else set()
    is_last = weekday < 5 and after <= (2 if weekday == 4 else 0)
    return found | ({(-1, WORKING)} if is_last else set())


def _keeps_times(say: Say, series: Series) -> bool:
    parts = say.part.split() or [""]
    wanted = [{at for part in parts for at in _readings(clock, part)} for clock in say.times]
    fired = set(series.times)
    return not fired or (all(fired & each for each in wanted) and fired <= set().union(*wanted))


def _readings(clock: Clock, part: str) -> set[int]:
    found = placed(clock, part)
    return {found.minute, (found.minute + 720) % _DAY} if found.sure else {found.minute}


def _keeps_part(say: Say, series: Series) -> bool:
    inside = [
        {at for at in series.times if first <= at <= last or first <= at + _DAY <= last}
        for first, last, _ in (PARTS[part] for part in say.part.split())
    ]
    is_open = bool(say.times) or not series.times
    return is_open or (all(inside) and set().union(*inside) == {*series.times})


def _keeps_windows(say: Say, series: Series) -> bool:
    """Whether all times are in a window, and fill each from its start to its end."""
    left = set(series.times)
    if len(left) == 1 and not say.is_short:  # a stretch that begins then: Sundays 3:00-4:00
        return any(_readings(window[0], say.part) & left for window in say.windows)
    for window in say.windows:
        first, last = (placed(clock, say.part).minute for clock in window)
        last += _DAY * (last < first)
        end = last + (0 if last % 60 else 59)
        both = (at for minute in left for at in (minute, minute + _DAY))
        inside = sorted(at for at in both if first <= at <= end)
        step = max((b - a for a, b in pairwise(inside)), default=1)
        is_early = bool(inside) and inside[-1] + step + (step > 59) <= last - (step < 60)
        if not inside or inside[0] >= first + step or is_early:
            return False
        left -= {minute % _DAY for minute in inside}
    return not left


def _keeps_minutes(say: Say, series: Series) -> bool:
    is_free = say.every is not None and say.every[1] in ("s", "min")
    return is_free or {at % 60 for at in series.times} == say.minutes


_TESTS: Final[dict[str, dict[str, Callable[[Say, Series], bool]]]] = {
    "days": {
        "every": _keeps_every, "count": _keeps_count, "weekdays": _keeps_weekdays,
        "minus": lambda say, series: say.minus.isdisjoint(series.weekdays),
        "dates": lambda say, series: {(day.month, day.day) for day in series.days} == say.dates,
        "months": _keeps_months, "mdays": _keeps_mdays, "nearest": _keeps_mdays,
        "edge": _keeps_edge, "nth": _keeps_nth,
    },
    "times": {
        "times": _keeps_times, "part": _keeps_part, "windows": _keeps_windows,
        "minutes": _keeps_minutes,
        "hours": lambda say, series: {at // 60 for at in series.times} == say.hours,
        "seconds": lambda say, series: set(series.seconds) == say.seconds,
    },
}  # fmt: skip
