"""Prose–clock drift: where the words of a plan and its rule have come apart.

A title, a body or a comment says "daily", "every weekday at 9" or "first of the month",
and the rule below it says something else. Such words are a *claim* only where grammar
makes them one about this very schedule:

- `every`, `each`: `every 15 minutes`, `each Monday at 9`, `every other week`;
- an adverb: `runs daily`, `copy the photos once a week`, `(hourly)`;
- the leading adjective of something done: `Nightly build`, but not `Nightly build cleanup`;
- days in the plural or in a row: `on Mondays`, `Mon-Fri`, `weekdays`, `the 1st and 15th`;
- a time after `at`, or one that follows any of these: `at 6pm`, `Mondays 9:30`.

Everything doubtful says nothing: a negation, the past, a wish, a condition, a question or
an alternative; quotations, code, links, tags, drawers, tables and source blocks; a sentence
whose subject is somebody else ("the shop opens at 9"); a day that may be meant only once
("on Monday"); a time with the name of another zone. A reading that could be right counts
as agreement: "daily" may mean Monday to Friday, "hourly" may mean in office hours, "at 9"
may mean 21:00.

Known limits: English only; numbers up to twelve and a few round ones as words; no
holidays; `biweekly` and `bimonthly` mean two things and so claim nothing; a sentence of
more than a hundred words is not read. It is a reading by word lists, not by a grammar of
English: it misses what is said in an unusual way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from horae.extras.drift.agreement import all_said, in_zone, is_kept_by, wholes_of
from horae.extras.drift.context import heard_in
from horae.extras.drift.facts import facts_of, together
from horae.extras.drift.sentence import sentences_of
from horae.extras.drift.suggestion import in_words, suggested
from horae.extras.drift.when import Claim, Nth, Often, Period, Rule, Stamped, TimeOfDay, When

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = [
    "Claim",
    "Drift",
    "Nth",
    "Often",
    "Period",
    "Rule",
    "Stamped",
    "TimeOfDay",
    "When",
    "caret",
    "claims",
    "drift",
]

_SHOWN: Final = 72
# Around a sentence: the start of a line or the end of another one; a zone and the end of it.
_BEFORE: Final = r"(?:^[ \t]*|(?<=[.!?;:])[ \t]+)"
_BEHIND: Final = r"(?=[ \t]*(?:\([\w/+-]+\)[ \t]*)?(?:[.;]|\r?$))"


@dataclass(frozen=True, slots=True)
class Drift:
    """Words that the rule does not keep, what the rule means, and the rule they would mean.

    The suggestion has the form of the rule it is for: a cron expression, a repeater alone
    where nothing else of the timestamp changes, or the whole timestamp. Where that form
    cannot say it, it is the other one, and None where neither can.
    """

    start: int
    end: int
    said: str
    means: str
    suggestion: str | None


def drift(text: str, rule: Rule, *more: Rule, own: Collection[str] = ()) -> list[Drift]:
    """Return the words of a text that its rule does not keep, in order.

    Words that any one of several rules keeps, or all together, are kept. *own* are sentences
    with which we say the rule ourselves: word for word, they are true, however little of them
    is understood here.

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
    spoken = [in_zone(claim, rule) for claim in claims(text)]
    each = [facts_of(one) for one in (rule, *more)] if spoken else []
    if not each or not all(len(facts.days) > 1 or facts.is_once for facts in each):
        return []
    wholes = wholes_of(spoken)
    said = all_said(spoken)
    every = [*each, together(each)] if more else each
    is_kept = cache(lambda when, whole: any(is_kept_by(when, whole, said, f) for f in every))
    spans = _spans(text, own)
    is_own = [any(a <= claim.start and claim.end <= b for a, b in spans) for claim in spoken]
    lost = [
        not (ours or is_kept(claim.when, wholes[claim]))
        for claim, ours in zip(spoken, is_own, strict=True)
    ]
    # A name may say anything ("Daily digest") where a sentence says how it really is.
    is_said = bool(spans) or any(
        claim.when.is_about_days and not bad for claim, bad in zip(spoken, lost, strict=True)
    )
    means = "; ".join(in_words(one) for one in (rule, *more))
    suggest = cache(lambda whole: suggested(whole, rule, each[0]))
    return [
        Drift(
            claim.start,
            claim.end,
            text[claim.start : claim.end],
            means,
            suggest(wholes[claim]),
        )
        for claim, bad in zip(spoken, lost, strict=True)
        if bad and not (claim.is_name and (is_said or each[0].is_once))
    ]


def _spans(text: str, sentences: Collection[str]) -> list[tuple[int, int]]:
    """Return where sentences stand in a text, each whole, in whatever lines."""
    return [
        found.span()
        for sentence in sentences
        for found in re.finditer(
            _BEFORE + r"\s+".join(map(re.escape, sentence.split())) + _BEHIND,
            text,
            re.IGNORECASE | re.MULTILINE,
        )
    ]


def caret(text: str, found: Drift) -> str:
    """Return two lines: the line of the text, and carets under the words.

    >>> from horae.timing.cron import Cron
    >>> text = "Send it on Mondays."
    >>> print(caret(text, drift(text, Cron("0 9 * * TUE"))[0]))
    Send it on Mondays.
            ^^^^^^^^^^
    """
    begin = text.rfind("\n", 0, found.start) + 1
    stop = text.find("\n", found.start)
    line = text[begin : stop if stop >= 0 else len(text)].rstrip("\r")
    skipped = max(0, found.start - begin - _SHOWN // 2)
    shown = "".join(c if c.isprintable() else " " for c in line[skipped : skipped + _SHOWN])
    indent = found.start - begin - skipped
    width = max(1, min(found.end - found.start, len(shown) - indent))
    return f"{shown}\n{' ' * indent}{'^' * width}"


def claims(text: str) -> list[Claim]:
    """Return what a text claims about its own schedule, in order.

    >>> [text[c.start:c.end] for text in ["Daily at 6, the digest"] for c in claims(text)]
    ['Daily at 6']
    >>> claims("Archive the daily logs")
    []
    """
    return [claim for sentence in sentences_of(text) for claim in heard_in(sentence)]
