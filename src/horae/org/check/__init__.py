"""Diagnostics beside the parse: what a plan says that its writer may not have meant."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from horae.org.check.finding import Check, SectionFinding, error, place_of, shown
from horae.org.check.layout import LAYOUT, unspaced
from horae.org.check.stamp import STAMPS
from horae.org.check.wiring import wiring
from horae.org.document import read
from horae.org.plan import Diagnostic, SectionPlace, is_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from horae.org.plan import Headline, Plan

CHECKS: tuple[Check, ...] = (*LAYOUT, *STAMPS)


def check(text: str, *, name: str = "-") -> list[Diagnostic]:
    r"""Return what is odd in a plan, in the order of its lines.

    >>> [str(found) for found in check("* Pay\nDEADLINE: <2026-6-6>\n", name="pay.org")]
    ["pay.org:2:11: error date-shape: '2026-6-6' is not a valid date, so this timestamp is ignored"]
    """
    return check_plans([(name, read(text))])


def check_plans(plans: Iterable[tuple[str, Plan]]) -> list[Diagnostic]:
    """Return what is odd in several plans and between them, sorted by file and line."""
    known: dict[str, str] = {}  # where each `:ID:` was first seen
    found: list[Diagnostic] = []
    for name, plan in plans:
        places, preamble = plan.places(), plan.preamble.removeprefix("\ufeff")
        found += (each.located(name, SectionPlace(0, 1), preamble) for each in unspaced(preamble))
        for headline, place in zip(plan.headlines, places, strict=True):
            founds = chain.from_iterable(one(headline) for one in CHECKS)
            founds = chain(founds, _ids(headline, f"{name}:{place.line}", known))
            found += (each.located(name, place, headline.text) for each in founds)
        for index, each in wiring(plan):
            found.append(each.located(name, places[index], plan.headlines[index].text))
    return sorted(found, key=lambda each: (each.file, each.line, each.column, each.code))


def _ids(headline: Headline, where: str, known: dict[str, str]) -> Iterator[SectionFinding]:
    """Yield a finding for an `:ID:` that cannot be used or that another headline has."""
    name = headline.props.get("ID")
    if name is None:
        return
    at = place_of(headline, "ID")
    if not is_id(name):
        message = f"ID {shown(name)} is not valid: it is too long or has invalid characters"
        fix = "use at most 64 letters, digits, dots, _ and -, and not only dots"
        yield error(at, "id-grammar", message, fix)
    elif name in known:
        message = f"ID {name!r} is already used at {known[name]}; only one of the two is armed"
        yield error(at, "id-twice", message, "give one of the two another ID")
    else:
        known[name] = where
