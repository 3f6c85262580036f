"""Findings about words in titles and texts that do not match the schedule."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.entry import CronRule, Rule, cron_rule
from horae.core.text import rule_words
from horae.extras.drift.claims import Claim, ClaimPlace, claims
from horae.extras.drift.series import Series, both, broken, series_of
from horae.org.check import shown
from horae.org.plan import Diagnostic, Severity
from horae.timing.cron_fields import CronError, read_masks
from horae.timing.phrases.compiler import AskError, compile_says
from horae.timing.phrases.grammar import Clock, Say, placed

if TYPE_CHECKING:
    from horae.sources.plans.check import CheckedWorkflow


_CRON: Final = re.compile(
    r"(?im)^[ \t#*+-]*(?:cron(?:tab)?|schedule)[ \t]*:[ \t]*[`=~]?"
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


def drift(text: str, rule: Rule, *, zone_name: str = "UTC", has_time: bool = True) -> list[Drift]:
    """Return the words of a text that its rule does not keep, in order.

    >>> from horae.core.entry import cron_rule
    >>> for found in drift("Runs every weekday at 9", cron_rule("0 9 * * *", zone_name="UTC")):
    ...     print(found.said, "|", found.means, "|", found.suggestion)
    every weekday at 9 | at 09:00 every day | 0 9 * * MON-FRI
    """
    spoken, written = claims(text, zone_name=zone_name), [*_CRON.finditer(text)]
    is_timed = spoken or written
    every = series_of(rule, zone_name=zone_name, has_time=has_time) if is_timed else []
    if not every:
        return []
    means = rule_words(rule, zone_name=zone_name)
    own = [found.span() for found in re.finditer(re.escape(means), text, re.IGNORECASE)]
    found = [
        Drift(*cron.span(1), cron[1], ClaimPlace.LABEL, means, cron[1])
        for cron in written
        if (then := _series_of_cron(cron[1], zone_name)) and then[-1] != every[-1]
    ]
    if not spoken:
        return found
    said = reduce(both, (say for claim in spoken for say in claim.says))
    judged: list[tuple[Claim, str]] = []
    for claim in spoken:
        is_own = any(start <= claim.start and claim.end <= end for start, end in own)
        judged.append((claim, "" if is_own else broken(claim.says, every, said)))
    # What the text says right elsewhere silences a name ("Daily digest") and what is doubtful.
    kept = {claim.place for claim, lost in judged if not lost and any(s.recurs for s in claim.says)}
    is_guarded = re.search(r"\b(?:unless|exits?|skips?)\b", text)
    for claim, lost in judged:
        is_name = claim.manner == "name"
        is_weak = is_name or claim[3:] == (ClaimPlace.BODY, "said")
        is_silent = is_weak and kept - ({ClaimPlace.TITLE} if is_name else set())
        if lost and not (lost == "days" and is_silent):
            is_single = claim.manner == "single"  # whose time must be that of the rule
            if is_single and (every[-1].once or not _is_timely(claim, every)):
                continue
            if lost == "days" and is_guarded:  # a command may choose among the days
                continue
            other = proposed(claim.says, every[0], rule, zone_name=zone_name)
            start, end, _, place, _ = claim
            found.append(Drift(start, end, text[start:end], place, means, other))
    return sorted(found)


def _series_of_cron(text: str, zone_name: str) -> list[Series]:
    try:
        return series_of(cron_rule(text, zone_name=zone_name), zone_name=zone_name)
    except CronError:
        return []


def _is_timely(claim: Claim, every: Sequence[Series]) -> bool:
    return not broken([replace(say, weekdays=frozenset()) for say in claim.says], every)


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


def proposed(says: Sequence[Say], series: Series, rule: Rule, *, zone_name: str) -> str:
    """Return the rule that words mean, with what they leave open taken from the rule there is."""
    try:
        compiled = compile_says([_dated(_timed(say, series), series) for say in says])
    except AskError:
        return ""
    every = says[0].every
    if every and every[1] in "hdwmy" and not (isinstance(rule, CronRule) or says[0].kinds):
        return f"a timestamp with ++{every[0]}{every[1]}"
    if compiled.anchor is not None:
        return f"a timestamp with {compiled.repeater}" if compiled.repeater else str(compiled)
    text = str(compiled)
    if not any(map(_says_days, says)):
        if not isinstance(rule, CronRule):
            return ""
        days = read_masks(rule.crons[0].expression)[0][3:6]
        text = "; ".join(" ".join((*each.split()[:-3], *days)) for each in compiled.crons)
    then = series_of(cron_rule(text, zone_name=zone_name), zone_name=zone_name)
    return text if then and not broken(says, then) else ""


def _says_days(say: Say) -> bool:
    return bool((say.every and not say.is_short) or say.count or say.kinds or say.months)


def _timed(say: Say, series: Series) -> Say:
    first = min(series.times, default=0)
    if say.times:
        return replace(say, times=frozenset(Clock(placed(c, say.part).minute) for c in say.times))
    if say.every and say.every[1] == "h" and not (say.minutes or say.windows):
        return replace(say, minutes=frozenset({first % 60}))
    hours = sorted({at // 60 for at in series.times})
    if say.is_short and not (say.hours or say.windows) and 1 < len(hours) < 24:
        return replace(say, windows=((Clock(hours[0] * 60), Clock(hours[-1] * 60 + 59)),))
    if say.has_time:
        return say
    times = [*series.times] if 0 < len(series.times) <= 3 and not say.strict else [first]
    if say.count and say.count[1] == "d":
        number = say.count[0]
        times = [(first + n * 1440 // number) % 1440 for n in range(number)]
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
