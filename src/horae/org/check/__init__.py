"""Diagnostics beside the parse: what a plan says that its writer may not have meant.

The parse stays what it is; a finding is a value with a stable code, a place and,
where there is one, a fix. A check is a function from a section to findings.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from horae.org.check.finding import Check, CheckedSection, SectionFinding, shown
from horae.org.check.layout import LAYOUT
from horae.org.check.stamp import STAMPS
from horae.org.check.wiring import wiring
from horae.org.document import read
from horae.org.plan import Diagnostic, Severity, is_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from horae.org.plan import Plan

CHECKS: tuple[Check, ...] = (*LAYOUT, *STAMPS)


def check(text: str, *, name: str = "-") -> list[Diagnostic]:
    r"""Return what is odd in a plan, in the order of its lines.

    >>> [str(found) for found in check("* Pay\nDEADLINE: <2026-6-6>\n", name="pay.org")]
    ["pay.org:2:11: error date-shape: '2026-6-6' is not a valid date, so this timestamp is ignored"]
    """
    return check_plans([(name, read(text))])


def check_plans(plans: Iterable[tuple[str, Plan]]) -> list[Diagnostic]:
    """Return what is odd in several plans and between them, sorted by file and line."""
    known: dict[str, str] = {}
    found = [each for name, plan in plans for each in _check_plan(name, plan, known)]
    return sorted(found, key=lambda each: (each.file, each.line, each.column, each.code))


def _check_plan(name: str, plan: Plan, known: dict[str, str]) -> Iterator[Diagnostic]:
    """Yield the findings of one plan; *known* says where each `:ID:` was first seen."""
    places = plan.places()
    for index, headline in enumerate(plan.headlines):
        section = CheckedSection(headline, plan.states)
        founds = chain.from_iterable(one(section) for one in CHECKS)
        for found in chain(founds, _ids(section, f"{name}:{places[index].line}", known)):
            yield found.located(name, places[index], headline.text)
    for index, found in wiring(plan):
        yield found.located(name, places[index], plan.headlines[index].text)


def _ids(section: CheckedSection, where: str, known: dict[str, str]) -> Iterator[SectionFinding]:
    """Yield a finding for an `:ID:` that cannot be used or that another headline has."""
    name = section.headline.props.get("ID")
    if name is None:
        return
    at = section.place_of("ID")
    if not is_id(name):
        message = f"ID {shown(name)} is not valid: it is too long or has invalid characters"
        fix = "use at most 64 letters, digits, dots, _ and -, and not only dots"
        yield SectionFinding(at, "id-grammar", Severity.ERROR, message, fix)
    elif name in known:
        message = f"ID {name!r} is already used at {known[name]}; only one of the two is armed"
        yield SectionFinding(
            at, "id-twice", Severity.ERROR, message, "give one of the two another ID"
        )
    else:
        known[name] = where
