"""Findings about words in titles and texts that do not match the schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horae.core.entry import CronRule, RepeaterRule
from horae.core.text import sayings
from horae.extras.drift import Stamped, drift
from horae.org.check.finding import shown
from horae.org.plan import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from horae.core.entry import Rule
    from horae.org.plan import Diagnostic, Headline
    from horae.sources.plans.check import CheckedWorkflow
    from horae.timing.cron import Cron


def check_drift(workflow: CheckedWorkflow, rule: Rule) -> Iterator[Diagnostic]:
    """Yield the words of title and text that the rule does not keep."""
    headline = workflow.headline
    spoken = _spoken_of(headline, rule)
    if not spoken:
        return
    own = sayings(rule, zone_name=workflow.zone)
    # A title that names the program says what runs, not when: /usr/bin/daily.
    named = headline.title and headline.title in headline.props.get("COMMAND", "")
    for found in drift(headline.text, *spoken, own=own):
        if named and "\n" not in headline.text[: found.start]:
            continue
        message = f"{shown(found.said)} does not match the schedule: {found.means}"
        fix = f"these words mean {found.suggestion}" if found.suggestion else None
        width = found.end - found.start
        yield workflow.found(found.start, "drift", Severity.WARNING, message, fix=fix, width=width)


def _spoken_of(headline: Headline, rule: Rule) -> tuple[Cron | Stamped, ...]:
    """Return the rule in the form that words are compared with."""
    stamp = headline.scheduled
    match rule:
        case CronRule(crons) if not any(cron.never for cron in crons):
            return crons
        case RepeaterRule(anchor, repeater) if stamp is not None:
            return (Stamped(anchor, "T" in stamp.at, repeater),)
        case _:
            return ()
