"""Findings about words in titles and texts that do not match the schedule."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from horae.core.entry import CronRule, RepeaterRule, Rule
from horae.core.text import sayings
from horae.extras.drift import agreement
from horae.extras.drift.context import heard_in
from horae.extras.drift.phrase import Rule as SpokenRule, Stamped, TimeClaim, sentences_of
from horae.org.check.finding import shown
from horae.org.plan import Diagnostic, Severity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from horae.sources.plans.check import CheckedWorkflow
    from horae.timing.cron import Cron

# Around a sentence: the start of a line or the end of another one; a zone and the end of it.
_BEFORE: Final = r"(?im)(?:^[ \t]*|(?<=[.!?;:])[ \t]+)"
_BEHIND: Final = r"(?=[ \t]*(?:\([\w/+-]+\)[ \t]*)?(?:[.;]|\r?$))"


@dataclass(frozen=True, slots=True)
class Drift:
    """Words that the rule does not keep, what the rule means, and the rule they would mean."""

    start: int
    end: int
    said: str
    means: str
    suggestion: str | None  # cron, a repeater alone or a timestamp, as the rule is


def drift(text: str, rule: SpokenRule, *more: SpokenRule, own: Collection[str] = ()) -> list[Drift]:
    """Return the words of a text that its rule does not keep, in order.

    Words that any one of several rules keeps, or all together, are kept. *own* are sentences
    with which we say the rule ourselves, and true.

    >>> from horae.timing.cron import Cron
    >>> for found in drift("Runs every weekday at 9", Cron("0 9 * * *")):
    ...     print(found.said, "|", found.means, "|", found.suggestion)
    every weekday at 9 | at 09:00 every day | 0 9 * * MON-FRI
    >>> drift("Runs every weekday at 9", Cron("0 9 * * 1-5"))
    []
    >>> text, rule = "At 09:00 on the 1st to the 7th of the month.", Cron("0 9 1-7 * *")
    >>> [found.said for found in drift(text, rule)], drift(text, rule, own=[rule.describe()])
    (['At 09:00 on the 1st'], [])
    """
    spoken = [agreement.in_zone(claim, rule) for claim in claims(text)]
    each = [agreement.facts_of(one) for one in (rule, *more)] if spoken else []
    if not each or not all(len(facts.days) > 1 or facts.is_once for facts in each):
        return []
    wholes = agreement.wholes_of(spoken)
    said = agreement.all_said(spoken)
    every = [*each, agreement.together(each)] if more else each
    keeps = agreement.is_kept_by
    is_kept = cache(lambda when, whole: any(keeps(when, whole, said, facts) for facts in every))
    forms = (_BEFORE + r"\s+".join(map(re.escape, each.split())) + _BEHIND for each in own)
    spans = [found.span() for form in forms for found in re.finditer(form, text)]
    is_own = [any(a <= claim.start and claim.end <= b for a, b in spans) for claim in spoken]
    pairs = zip(spoken, is_own, strict=True)
    lost = {claim for claim, ours in pairs if not (ours or is_kept(claim.when, wholes[claim]))}
    # A name may say anything ("Daily digest") where a sentence says how it really is.
    is_said = bool(spans) or any(each.when.is_about_days for each in spoken if each not in lost)
    means = "; ".join(agreement.in_words(one) for one in (rule, *more))
    suggest = cache(lambda whole: agreement.suggested(whole, rule, each[0]))
    return [
        Drift(claim.start, claim.end, text[claim.start : claim.end], means, suggest(wholes[claim]))
        for claim in spoken
        if claim in lost and not (claim.is_name and (is_said or each[0].is_once))
    ]


def claims(text: str) -> list[TimeClaim]:
    """Return what a text claims about its own schedule, in order.

    >>> [text[c.start:c.end] for text in ["Daily at 6, the digest"] for c in claims(text)]
    ['Daily at 6']
    >>> claims("Archive the daily logs")
    []
    """
    return [claim for sentence in sentences_of(text) for claim in heard_in(sentence)]


def check_drift(workflow: CheckedWorkflow, rule: Rule) -> Iterator[Diagnostic]:
    headline = workflow.headline
    spoken: tuple[Cron | Stamped, ...]
    match rule:
        case CronRule(crons) if not any(cron.never for cron in crons):
            spoken = crons
        case RepeaterRule(anchor, repeater) if headline.scheduled is not None:
            spoken = (Stamped(anchor, "T" in headline.scheduled.at, repeater),)
        case _:
            return
    own = sayings(rule, zone_name=workflow.zone)
    # A title that names the program says what runs, not when: /usr/bin/daily.
    named = headline.title and headline.title in headline.props.get("COMMAND", "")
    for found in drift(headline.text, *spoken, own=own):
        if named and "\n" not in headline.text[: found.start]:
            continue
        message = f"{shown(found.said)} does not match the schedule: {found.means}"
        fix = f"these words mean {found.suggestion}" if found.suggestion else ""
        width = found.end - found.start
        yield workflow.found(found.start, "drift", Severity.WARNING, message, fix=fix, width=width)
