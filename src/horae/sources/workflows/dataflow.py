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
        """Return all that hang on a step, nearest first; it must not be in a ring."""
        found = list(self.followers[number])
        for each in found:  # grows while it is walked
            found.extend(self.followers[each])
        return found

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


def has_own_clock(world: World) -> bool:
    """Tell whether a workflow fires by itself: by a cron rule, or an active stamp."""
    schedule = world.schedule
    return schedule is not None and ("cron" in schedule or bool(schedule.get("active")))
