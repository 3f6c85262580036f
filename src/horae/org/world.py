"""The worlds of a plan: what its workflow headlines resolve to.

Their blocks are components, which are connected by the names of their inputs and outputs, each
world on its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypedDict

from horae.org.document import blocks, read

if TYPE_CHECKING:
    from horae.org.plan import Block, Headline, Plan, ScheduleData

_VALUED: Final = frozenset({":deps", ":uses", ":in", ":out", ":dir"})


class Component(NamedTuple):
    at: int  # the index of its headline
    name: str
    block: Block | None
    deps: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    takes: str | None = None
    puts: str | None = None
    persist: bool = False
    dir: str | None = None


class World(NamedTuple):
    at: int
    name: str
    schedule: ScheduleData | None
    components: tuple[Component, ...]
    workflows: tuple[World, ...]

    @property
    def imports(self) -> list[str]:
        return sorted({use for component in self.components for use in component.uses})

    @property
    def producers(self) -> dict[str, Component]:
        return {component.puts: component for component in self.components if component.puts}

    @property
    def edges(self) -> list[tuple[Component, Component]]:
        """(producer, consumer) for each input that a component of this world produces."""
        producers = self.producers
        return [
            (producers[component.takes], component)
            for component in self.components
            if component.takes is not None and component.takes in producers
        ]

    @property
    def rings(self) -> list[list[Component]]:
        # A component has at most one producer: following them either ends or leads into one cycle.
        source = {sink.at: producer for producer, sink in self.edges}
        seen: set[int] = set()
        found = []
        for component in self.components:
            walk: list[Component] = []
            while component.at not in seen:
                seen.add(component.at)
                walk.append(component)
                component = source.get(component.at, component)  # noqa: PLW2901 - step by step
            places = [each.at for each in walk]
            if component.at in source and component.at in places:
                ring = walk[places.index(component.at) :][::-1]
                first = min(range(len(ring)), key=lambda place: ring[place].at)
                found.append([*ring[first:], *ring[:first]])
        return found

    @property
    def exports(self) -> list[str]:
        producers = self.producers
        return sorted(producers.keys() - {component.takes for component in self.components})


ComponentData = TypedDict(
    "ComponentData",
    {
        "name": str,
        "lang": str | None,
        "deps": list[str],
        "uses": list[str],
        "in": str | None,
        "out": str | None,
        "persist": bool,
        "src": str | None,
        "dir": str | None,
    },
)
EdgeData = TypedDict("EdgeData", {"from": str, "to": str})


class WorldData(TypedDict):
    name: str
    schedule: ScheduleData | None
    imports: list[str]
    exports: list[str]
    components: list[ComponentData]
    edges: list[EdgeData]
    workflows: list[WorldData]


class TangleData(TypedDict):
    worlds: list[WorldData]


class Finding(TypedDict):
    level: Literal["error", "warn"]
    scope: str
    message: str


def tangle(text: str) -> TangleData:
    """Return the worlds of a plan."""
    return {"worlds": [world_data(world) for world in worlds(read(text))]}


def validate(text: str) -> list[Finding]:
    """Return what would keep the worlds of a plan from running.

    An input must be an output inside the component's workflow, at any depth.
    """
    findings: list[tuple[int, Finding]] = []
    inside: dict[int, set[str | None]] = {}  # by workflow: all outputs below it
    for world in reversed(list(every(worlds(read(text))))):
        sets = sorted((inside.pop(child.at) for child in world.workflows), key=len)
        produced = sets.pop() if sets else set()  # the largest grows, so that depth costs nothing
        produced.update(*sets, (component.puts for component in world.components))
        inside[world.at] = produced
        for component in world.components:
            flaws = []
            if component.block is None:
                flaws.append("component has no source block")
            elif not component.block.lang:
                flaws.append("source block has no language")
            if component.takes is not None and component.takes not in produced:
                flaws.append(f"input {component.takes!r} is not the output of any component")
            findings += ((component.at, _error(component.name, flaw)) for flaw in flaws)
    return [finding for _, finding in sorted(findings, key=lambda each: each[0])]


def upgrade(old: str, new: str) -> list[Finding]:
    """Return what users of the *old* plan lose or must grant with the *new* one."""
    # All worlds, including nested ones, by name; of two, the later one.
    before, after = ({each.name: each for each in every(worlds(read(x)))} for x in (old, new))
    return [
        finding
        for name in sorted(before)
        for finding in _upgrade_world(name, before[name], after.get(name))
    ]


def durable(text: str) -> list[str]:
    """Return the names of the components that keep their state, parents before children."""
    return [
        component.name
        for world in every(worlds(read(text)))
        for component in world.components
        if component.persist
    ]


def worlds(plan: Plan) -> list[World]:
    top: list[int] = []
    components: dict[int, list[Component]] = {}  # by the index of their workflow
    children: dict[int, list[int]] = {}
    around: list[int] = []  # the enclosing workflows, outermost first
    for index, headline in enumerate(plan.headlines):
        while around and plan.headlines[around[-1]].level >= headline.level:
            around.pop()
        if "workflow" in headline.tags:
            (children[around[-1]] if around else top).append(index)
            components[index], children[index] = [], []
            around.append(index)
        elif around and "component" in headline.tags:
            components[around[-1]].append(_component(index, headline))

    made: dict[int, World] = {}
    for index in reversed(children):  # children come after their parents, so they are made first
        headline = plan.headlines[index]
        schedule: ScheduleData | None = headline.scheduled.data() if headline.scheduled else None
        if (cron := headline.props.get("SCHEDULE")) is not None:
            schedule = {"cron": cron}
        inner = tuple(made[child] for child in children[index])
        made[index] = World(index, headline.title, schedule, tuple(components[index]), inner)
    return [made[index] for index in top]


def every(found: Sequence[World]) -> Iterator[World]:
    waiting = list(reversed(found))
    while waiting:
        world = waiting.pop()
        yield world
        waiting.extend(reversed(world.workflows))


def world_data(world: World) -> WorldData:
    done: dict[int, WorldData] = {}
    for each in reversed(list(every([world]))):  # children first, so that depth is unlimited
        done[each.at] = {
            "name": each.name,
            "schedule": each.schedule,
            "imports": each.imports,
            "exports": each.exports,
            "components": [
                {
                    "name": component.name,
                    "lang": component.block.lang if component.block else None,
                    "deps": list(component.deps),
                    "uses": list(component.uses),
                    "in": component.takes,
                    "out": component.puts,
                    "persist": component.persist,
                    "src": component.block.body if component.block else None,
                    "dir": component.dir,
                }
                for component in each.components
            ],
            "edges": [{"from": source.name, "to": sink.name} for source, sink in each.edges],
            "workflows": [done[child.at] for child in each.workflows],
        }
    return done[world.at]


def flat(world: World) -> list[Component]:
    found = [component for each in every([world]) for component in each.components]
    return sorted(found, key=lambda component: component.at)


def _component(index: int, headline: Headline) -> Component:
    block = next(iter(blocks(headline.text, headline.body)), None)
    if block is None:
        return Component(index, headline.title, None)
    uses: list[str] = []
    single: dict[str, str] = {}  # of two, the later one counts
    persist = False
    words = iter(block.args.split())
    for word in words:
        if word == ":persist":
            persist = True
        elif word in _VALUED and (value := next(words, None)) is not None:
            if word == ":uses":
                uses.append(value)
            else:
                single[word] = value
    deps = tuple(single[":deps"].split(",")) if ":deps" in single else ()
    names = single.get(":in"), single.get(":out"), persist, single.get(":dir")
    return Component(index, headline.title, block, deps, tuple(uses), *names)


def _upgrade_world(name: str, old: World, new: World | None) -> Iterator[Finding]:
    if new is None:
        yield _error(name, "workflow was removed")
        return
    before, after = flat(old), flat(new)
    for export in sorted(_exports(before) - _exports(after)):
        yield _error(name, f"export {export!r} was removed")
    used, uses = ({use for component in each for use in component.uses} for each in (before, after))
    for use in sorted(uses - used):
        yield {"level": "warn", "scope": name, "message": f"new import {use!r}"}
    was, now = ({component.name: component.puts for component in each} for each in (before, after))
    for component in sorted(was.keys() & now.keys()):
        if was[component] != now[component]:
            yield _error(component, f"outputs {now[component]!r} instead of {was[component]!r}")


def _exports(components: Sequence[Component]) -> set[str]:
    return {each.puts for each in components if each.puts} - {each.takes for each in components}


def _error(scope: str, message: str) -> Finding:
    return {"level": "error", "scope": scope, "message": message}


class FlowStep(NamedTuple):
    number: int
    name: str  # of the component; a second one has a number added
    component: Component
    after: int | None  # the step whose output it takes; None: the workflow's input


@dataclass(frozen=True, slots=True)
class Flow:
    steps: tuple[FlowStep, ...]
    followers: tuple[tuple[int, ...], ...]

    def downstream(self, number: int) -> list[int]:
        found = list(self.followers[number])
        for each in found:  # grows during the iteration
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
    """The progress of a flow: which steps may run, given how earlier ones ended."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._ready = deque(step.number for step in flow.steps if step.after is None)

    def take(self) -> int | None:
        """Return a step that may run, once; None if there is none yet."""
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
    schedule = world.schedule
    return schedule is not None and ("cron" in schedule or bool(schedule.get("active")))
