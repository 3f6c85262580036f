"""Findings about worlds: components that cannot run, or not as they seem to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from horae.kernel.check.finding import Found
from horae.kernel.plan import Severity
from horae.kernel.world import World, every, worlds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from horae.kernel.plan import Plan
    from horae.kernel.world import Component


def wiring(plan: Plan) -> Iterator[tuple[int, Found]]:
    """Yield the index of a headline and what is odd about how it is wired."""
    found = list(every(worlds(plan)))
    owned = {component.at for world in found for component in world.components}
    makers: dict[str, str] = {}  # by what is put out: the first workflow that does
    for world in found:
        for puts in world.producers:
            makers.setdefault(puts, world.name)
    for world in found:
        yield from _components(world, makers)
        yield from _twice(world)
        yield from _cycles(world)
    for index, headline in enumerate(plan.headlines):
        if "component" in headline.tags and "workflow" not in headline.tags and index not in owned:
            message = f"component {headline.title!r} stands below no workflow and never runs"
            fix = "put it below a headline tagged :workflow:"
            yield index, Found(0, "component-outside", Severity.WARNING, message, fix)


def _components(world: World, makers: Mapping[str, str]) -> Iterator[tuple[int, Found]]:
    """Yield what keeps the components of one world from running as they seem to."""
    producers = world.producers
    for component in world.components:
        if component.block is None:
            message = f"component {component.name!r} has no source block"
            yield component.at, Found(0, "component-source", Severity.ERROR, message)
        elif component.block.lang[:1] in {"", ":"}:
            message = f"the source block of {component.name!r} names no language"
            at = component.block.span.start
            fix = "write it after #+begin_src"
            yield component.at, Found(at, "component-language", Severity.ERROR, message, fix)
        if component.takes is not None and component.takes not in producers:
            yield component.at, _dangling(component, component.takes, makers)


def _dangling(component: Component, taken: str, makers: Mapping[str, str]) -> Found:
    """Return the finding for an input that no component of the same world puts out."""
    at = _argument(component, ":in", taken)
    if taken in makers:
        message = (
            f"input {taken!r} is put out only in workflow {makers[taken]!r}; "
            "names do not cross from one workflow to another, nested ones included"
        )
        fix = "move one of the two components, so that they share a workflow"
        return Found(at, "input-scope", Severity.ERROR, message, fix)
    message = f"input {taken!r} is put out by no component"
    return Found(at, "input-dangling", Severity.ERROR, message, f"add :out {taken} to one")


def _twice(world: World) -> Iterator[tuple[int, Found]]:
    """Yield each producer that another one of the same name overrides."""
    producers = world.producers
    for component in world.components:
        puts = component.puts
        if puts is not None and producers[puts].at != component.at:
            winner = producers[puts].name
            message = f"{puts!r} is put out by {winner!r} too, and the later one counts"
            at = _argument(component, ":out", puts)
            fix = "give each output a name of its own"
            yield component.at, Found(at, "producer-twice", Severity.WARNING, message, fix)


def _cycles(world: World) -> Iterator[tuple[int, Found]]:
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
                message = f"these components wait for one another: {' ← '.join(names)}"
                yield min(ring), Found(0, "cycle", Severity.ERROR, message)


def _argument(component: Component, key: str, value: str) -> int:
    """Return where a header argument stands in its section."""
    block = component.block
    if block is None:
        return 0
    line = block.opening
    found = re.search(rf"{key}[ \t]+{re.escape(value)}(?!\S)", line)
    return block.span.start + (found.start() if found else 0)
