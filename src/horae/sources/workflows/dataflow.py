"""The data flow of a workflow: the input of each step, what may run now, what is skipped."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from horae.org.world import Component, World


class FlowStep(NamedTuple):
    number: int
    name: str  # of the component; the second of two has its count behind it
    component: Component
    after: int | None  # the step whose output it takes; None is the workflow's input


@dataclass(frozen=True, slots=True)
class Flow:
    steps: tuple[FlowStep, ...]
    followers: tuple[tuple[int, ...], ...]

    def downstream(self, number: int) -> list[int]:
        """Return all that hang on a step, nearest first; it must not be in a loop."""
        found = list(self.followers[number])
        for each in found:  # grows while it is walked
            found.extend(self.followers[each])
        return found

    def loop(self) -> tuple[FlowStep, ...]:
        """Return steps that wait for one another, in the order of the flow; none is good."""
        met: dict[int, int] = {}  # step -> the walk on which it was met
        for step in self.steps:
            at: int | None = step.number
            while at is not None and at not in met:
                met[at] = step.number
                at = self.steps[at].after
            if at is not None and met[at] == step.number:
                steps = [self.steps[at]]
                while (after := steps[-1].after) is not None and after != at:
                    steps.append(self.steps[after])
                steps.reverse()
                first = steps.index(min(steps, key=lambda step: step.number))
                return (*steps[first:], *steps[:first])
        return ()

    def waves(self) -> list[list[FlowStep]]:
        waves: list[list[FlowStep]] = []
        wave = [step for step in self.steps if step.after is None]
        while wave:
            waves.append(wave)
            after = sorted(each for step in wave for each in self.followers[step.number])
            wave = [self.steps[each] for each in after]
        return waves


class Course:
    """How far a flow has come: which steps may run now, given how those before them ended."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._ready = deque(step.number for step in flow.steps if step.after is None)

    def take(self) -> int | None:
        """Return a step that may run now, and never again; None if there is none yet."""
        return self._ready.popleft() if self._ready else None

    def end(self, number: int, *, is_good: bool) -> list[int]:
        if not is_good:
            return self._flow.downstream(number)
        self._ready.extend(self._flow.followers[number])
        return []


def flow_of(world: World) -> Flow:
    numbers = {component.at: number for number, component in enumerate(world.components)}
    after = {sink.at: numbers[source.at] for source, sink in world.edges}
    followers: list[list[int]] = [[] for _ in numbers]
    for at, before in after.items():
        followers[before].append(numbers[at])
    steps: dict[str, FlowStep] = {}
    counts: dict[str, int] = {}
    for number, component in enumerate(world.components):
        name = component.name
        while name in steps:
            counts[component.name] = counts.get(component.name, 1) + 1
            name = f"{component.name} ({counts[component.name]})"
        steps[name] = FlowStep(number, name, component, after.get(component.at))
    return Flow(tuple(steps.values()), tuple(map(tuple, followers)))


def oddities(world: World) -> list[str]:
    """Return what in the wiring of a world may not be meant, in words."""
    producers = world.producers
    notes = []
    for component in world.components:
        if component.takes is not None and component.takes not in producers:
            notes.append(
                f"{component.name}: no component of this workflow outputs {component.takes!r},"
                " so the workflow's own input is used"
            )
        if component.puts and producers[component.puts].at != component.at:
            notes.append(
                f"{component.name}: {component.puts!r} is also the output of"
                f" {producers[component.puts].name}, which takes precedence"
            )
    return notes


def has_own_clock(world: World) -> bool:
    """Tell whether a workflow fires by itself: by a cron rule, or an active stamp."""
    schedule = world.schedule
    return schedule is not None and ("cron" in schedule or bool(schedule.get("active")))
