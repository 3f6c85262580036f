"""Diagnostics beside the parse: what a plan says that its writer may not have meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from horae.org.document import read
from horae.org.finding import CALLS, Check, SectionFinding, error, place_of, shown, warning
from horae.org.layout import LAYOUT, unspaced
from horae.org.plan import Diagnostic, Headline, Plan, SectionPlace, is_id
from horae.org.stamp import STAMPS
from horae.org.world import Component, every, worlds

CHECKS: tuple[Check, ...] = (*LAYOUT, *STAMPS)
_WORD: Final = re.compile(r"\S+")


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


# Components that cannot run, or not as they seem to


def wiring(plan: Plan) -> Iterator[tuple[int, SectionFinding]]:
    """Yield the index of a headline and what is odd about how it is wired."""
    found = list(every(worlds(plan)))
    owned = {component.at for world in found for component in world.components}
    makers: dict[str, str] = {}  # by what is put out: the first workflow that does
    for world in found:
        for puts in world.producers:
            makers.setdefault(puts, world.name)
    for world in found:
        headline = plan.headlines[world.at]
        is_empty = not world.components and not world.workflows
        is_commented = headline.title.split(None, 1)[:1] == ["COMMENT"]
        if is_empty and not is_commented and CALLS.isdisjoint(headline.props):
            message = f"workflow {shown(world.name)} has no components, so its runs do nothing"
            fix = "add a headline tagged :component: with a source block below it, or a :COMMAND:"
            yield world.at, warning(0, "workflow-empty", message, fix)
        for component in world.components:
            for each in component_findings(component, world.producers, makers):
                yield component.at, each
        for ring in world.rings:
            names = [each.name for each in (ring[0], *reversed(ring))]
            fix = "remove one :in, or connect it to a component outside the cycle"
            yield ring[0].at, error(0, "cycle", _waiting(names), fix)
    for index, headline in enumerate(plan.headlines):
        if "component" in headline.tags and "workflow" not in headline.tags and index not in owned:
            message = f"component {shown(headline.title)} is not below a workflow and never runs"
            fix = "put it below a headline tagged :workflow:"
            yield index, warning(0, "component-outside", message, fix)


def component_findings(
    component: Component, producers: Mapping[str, Component], makers: Mapping[str, str]
) -> Iterator[SectionFinding]:
    name, taken, puts = shown(component.name), component.takes, component.puts
    if component.block is None:
        yield error(0, "component-source", f"component {name} has no source block")
    elif component.block.lang[:1] in {"", ":", "-", "+"}:
        at, message = component.block.span.start, f"the source block of {name} has no language"
        yield error(at, "component-language", message, "write the language after #+begin_src")
    if taken is not None and taken not in producers:
        at = _argument(component, ":in", taken)
        if taken in makers:
            message = (
                f"input {shown(taken)} is an output of workflow {shown(makers[taken])}, "
                "not of this one; workflows do not share outputs, not even nested ones"
            )
            fix = "move one of the two components into the workflow of the other"
            yield error(at, "input-scope", message, fix)
        else:
            message = f"input {shown(taken)} is not the output of any component"
            message += ", so the step gets the input of its workflow"
            yield error(at, "input-dangling", message, f"add :out {taken} to a component")
    if puts is not None and producers[puts].at != component.at:
        winner = shown(producers[puts].name)
        message = f"{shown(puts)} is also an output of {winner}; the later one is used"
        at = _argument(component, ":out", puts)
        yield warning(at, "producer-twice", message, "give each output its own name")


def _waiting(names: Sequence[str]) -> str:
    """Return the sentence for a ring, whose first name stands at its end again."""
    if len(names) == 2:
        return f"component {shown(names[0])} depends on itself"
    told = [shown(name) for name in (names if len(names) < 9 else [*names[:4], *names[-2:]])]
    if len(names) >= 9:
        told.insert(4, f"{len(names) - 6} more")
    return f"these components depend on each other: {' ← '.join(told)}"


def _argument(component: Component, key: str, value: str) -> int:
    block = component.block
    if block is None:
        return 0
    words = list(_WORD.finditer(block.opening))
    # The last counts, so the last is meant.
    for word, after in zip(reversed(words[:-1]), reversed(words), strict=True):
        if word[0] == key and after[0] == value:
            return block.span.start + word.start()
    return block.span.start
