"""Findings about worlds: components that cannot run, or not as they seem to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from horae.org.check.finding import CALLS, SectionFinding, shown
from horae.org.plan import Severity
from horae.org.world import World, every, worlds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from horae.org.plan import Headline, Plan
    from horae.org.world import Component


_WORD: Final = re.compile(r"\S+")


def wiring(plan: Plan) -> Iterator[tuple[int, SectionFinding]]:
    """Yield the index of a headline and what is odd about how it is wired."""
    found = list(every(worlds(plan)))
    owned = {component.at for world in found for component in world.components}
    makers: dict[str, str] = {}  # by what is put out: the first workflow that does
    for world in found:
        for puts in world.producers:
            makers.setdefault(puts, world.name)
    for world in found:
        yield from _nothing(world, plan.headlines[world.at])
        yield from _components(world, makers)
        yield from _twice(world)
        yield from _cycles(world)
    for index, headline in enumerate(plan.headlines):
        if "component" in headline.tags and "workflow" not in headline.tags and index not in owned:
            message = f"component {shown(headline.title)} is not below a workflow and never runs"
            fix = "put it below a headline tagged :workflow:"
            yield index, SectionFinding(0, "component-outside", Severity.WARNING, message, fix)


def _nothing(world: World, headline: Headline) -> Iterator[tuple[int, SectionFinding]]:
    """Yield a finding for a workflow that has nothing to do when its time comes."""
    if world.components or world.workflows or not CALLS.isdisjoint(headline.props):
        return
    message = f"workflow {shown(world.name)} has no components, so its runs do nothing"
    fix = "add a headline tagged :component: with a source block below it, or a :COMMAND:"
    yield world.at, SectionFinding(0, "workflow-empty", Severity.WARNING, message, fix)


def _components(world: World, makers: Mapping[str, str]) -> Iterator[tuple[int, SectionFinding]]:
    """Yield what keeps the components of one world from running as they seem to."""
    producers = world.producers
    for component in world.components:
        if component.block is None:
            message = f"component {shown(component.name)} has no source block"
            yield component.at, SectionFinding(0, "component-source", Severity.ERROR, message)
        elif component.block.lang[:1] in {"", ":", "-", "+"}:
            message = f"the source block of {shown(component.name)} has no language"
            at = component.block.span.start
            fix = "write the language after #+begin_src"
            yield (
                component.at,
                SectionFinding(at, "component-language", Severity.ERROR, message, fix),
            )
        if component.takes is not None and component.takes not in producers:
            yield component.at, _dangling(component, component.takes, makers)


def _dangling(component: Component, taken: str, makers: Mapping[str, str]) -> SectionFinding:
    """Return the finding for an input that no component of the same world puts out."""
    at = _argument(component, ":in", taken)
    if taken in makers:
        message = (
            f"input {shown(taken)} is an output of workflow {shown(makers[taken])}, "
            "not of this one; workflows do not share outputs, not even nested ones"
        )
        fix = "move one of the two components into the workflow of the other"
        return SectionFinding(at, "input-scope", Severity.ERROR, message, fix)
    message = f"input {shown(taken)} is not the output of any component"
    return SectionFinding(
        at, "input-dangling", Severity.ERROR, message, f"add :out {taken} to a component"
    )


def _twice(world: World) -> Iterator[tuple[int, SectionFinding]]:
    """Yield each producer that another one of the same name overrides."""
    producers = world.producers
    for component in world.components:
        puts = component.puts
        if puts is not None and producers[puts].at != component.at:
            winner = shown(producers[puts].name)
            message = f"{shown(puts)} is also an output of {winner}; the later one is used"
            at = _argument(component, ":out", puts)
            fix = "give each output its own name"
            yield component.at, SectionFinding(at, "producer-twice", Severity.WARNING, message, fix)


def _cycles(world: World) -> Iterator[tuple[int, SectionFinding]]:
    """Yield each ring of components that wait for one another, at its first member.

    A component takes one input, so each has at most one producer: following
    producers from anywhere either ends or runs into one ring.
    """
    source = {sink.at: producer for producer, sink in world.edges}
    by_place = {component.at: component for component in world.components}
    seen: dict[int, int] = {}  # headline -> the walk that came by first
    for component in world.components:
        walk: list[int] = []
        at = component.at
        while at not in seen:
            seen[at] = component.at
            walk.append(at)
            if at not in source:
                break
            at = source[at].at
        else:
            if seen[at] == component.at and at in walk:
                ring = walk[walk.index(at) :]
                first = ring.index(min(ring))
                names = [by_place[each].name for each in ring[first:] + ring[: first + 1]]
                fix = "remove one :in, or connect it to a component outside the cycle"
                yield min(ring), SectionFinding(0, "cycle", Severity.ERROR, _waiting(names), fix)


def _waiting(names: Sequence[str]) -> str:
    """Return the sentence for a ring, whose first name stands at its end again.

    >>> _waiting(["a", "b", "a"])
    "these components depend on each other: 'a' ← 'b' ← 'a'"
    """
    if len(names) == 2:
        return f"component {shown(names[0])} depends on itself"
    told = [shown(name) for name in (names if len(names) < 9 else [*names[:4], *names[-2:]])]
    if len(names) >= 9:
        told.insert(4, f"{len(names) - 6} more")
    return f"these components depend on each other: {' ← '.join(told)}"


def _argument(component: Component, key: str, value: str) -> int:
    """Return where a header argument stands in its section."""
    block = component.block
    if block is None:
        return 0
    words = list(_WORD.finditer(block.opening))
    # The last counts, so the last is meant.
    for word, after in zip(reversed(words[:-1]), reversed(words), strict=True):
        if word[0] == key and after[0] == value:
            return block.span.start + word.start()
    return block.span.start
