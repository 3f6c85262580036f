"""Findings about words in titles and texts that do not match the schedule."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from horae.core.entry import CronRule, Rule, cron_rule
from horae.core.text import rule_words
from horae.extras.drift.claims import Claim, ClaimPlace, claims
from horae.extras.drift.proposal import proposed
from horae.extras.drift.series import Series, both, broken, series_of
from horae.org.check import shown
from horae.org.plan import Diagnostic, Severity
from horae.timing.phrases.grammar import Say

if TYPE_CHECKING:
    from horae.sources.plans.check import CheckedWorkflow


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
    spoken = claims(text, zone_name=zone_name)
    every = series_of(rule, zone_name=zone_name, has_time=has_time) if spoken else []
    if not every:
        return []
    means = rule_words(rule, zone_name=zone_name)
    own = [found.span() for found in re.finditer(re.escape(means), text, re.IGNORECASE)]
    said = reduce(both, (say for claim in spoken for say in claim.says), Say())
    judged: list[tuple[Claim, str]] = []
    for claim in spoken:
        is_own = any(start <= claim.start < end for start, end in own)
        judged.append((claim, "" if is_own else broken(claim.says, every, said)))
    # What the text says right elsewhere silences a name ("Daily digest") and what is doubtful.
    is_said = any(not lost and any(say.recurs for say in claim.says) for claim, lost in judged)
    is_guarded = re.search(r"\b(?:unless|exits?|skips?)\b", text)
    found = []
    for claim, lost in judged:
        is_weak = claim.manner == "name" or claim[3:] == (ClaimPlace.BODY, "said")
        if lost and not (lost == "days" and is_said and is_weak):
            other = proposed(claim.says, every, rule, zone_name=zone_name)
            is_part = is_guarded or claim.manner == "part"
            if is_part and _fires_within(other, every[-1], zone_name):
                continue
            start, end, _, place, _ = claim
            found.append(Drift(start, end, text[start:end], place, means, other))
    return found


def _fires_within(cron: str, series: Series, zone_name: str) -> bool:
    """Whether all days of an expression are days of a series, so that a command can choose."""
    if not cron[:1].isdigit():
        return False
    days = series_of(cron_rule(cron, zone_name=zone_name), zone_name=zone_name)[-1].days
    return {day for day in days if day <= series.days[-1]} <= set(series.days)


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
