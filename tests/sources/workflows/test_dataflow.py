"""How a workflow flows: every step once, after what it takes; a failure stops only what hangs on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given as given_any, strategies as st

from horae.org.document import read
from horae.org.world import Course, flow_of, has_own_clock, worlds
from scale import scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from horae.org.world import Flow, World


def world(*wires: tuple[str, str | None, str | None]) -> World:
    """Return a workflow of components: a name, what each takes, what each puts out."""
    text = "* Flow :workflow:\n"
    for name, takes, puts in wires:
        args = (f" :in {takes}" if takes else "") + (f" :out {puts}" if puts else "")
        text += f"** {name} :component:\n#+begin_src sh{args}\ncat\n#+end_src\n"
    return worlds(read(text))[0]


def from_parents(parents: list[int | None], order: list[int]) -> World:
    """Return a workflow in which each component takes what its parent puts out, shuffled."""
    wires = [
        (f"s{n}", None if parent is None else f"o{parent}", f"o{n}")
        for n, parent in enumerate(parents)
    ]
    return world(*(wires[each] for each in order))


@st.composite
def forests(draw: Callable[..., int | list[int]]) -> World:
    """Any flow without a loop, its components written in any order."""
    count = draw(st.integers(1, 30))
    assert isinstance(count, int)
    parents: list[int | None] = []
    for n in range(count):
        parent = draw(st.integers(-1, n - 1))
        assert isinstance(parent, int)
        parents.append(None if parent < 0 else parent)
    order = draw(st.permutations(range(count)))
    assert isinstance(order, list)
    return from_parents(parents, order)


def carry(
    flow: Flow, *, bad: set[int], pick: Callable[[int], int]
) -> tuple[dict[int, str], set[int]]:
    """Run a flow with any number of steps going, ending in any order; return outputs and skipped."""
    course = Course(flow)
    outputs: dict[int, str] = {}
    skipped: set[int] = set()
    begun: set[int] = set()
    going: list[int] = []
    while True:
        while (number := course.take()) is not None:
            step = flow.steps[number]
            assert number not in begun, "a step runs once"
            assert step.after is None or step.after in outputs, "after what it takes"
            begun.add(number)
            going.append(number)
        if not going:
            return outputs, skipped
        number = going.pop(pick(len(going)))
        after = flow.steps[number].after
        if number not in bad:
            outputs[number] = f"{'' if after is None else outputs[after]}/{flow.steps[number].name}"
        skipped.update(course.end(number, is_good=number not in bad))


def before(flow: Flow, at: int | None) -> Iterator[int]:
    """Yield a step and all that stand before it."""
    while at is not None:
        yield at
        at = flow.steps[at].after


def one_after_the_other(flow: Flow, bad: set[int]) -> dict[int, str]:
    """Return what a plain walk gives: the reference."""
    outputs: dict[int, str] = {}
    for wave in flow.waves():
        for step in wave:
            if step.number in bad or (step.after is not None and step.after not in outputs):
                continue
            given = "" if step.after is None else outputs[step.after]
            outputs[step.number] = f"{given}/{step.name}"
    return outputs


@given_any(forests(), st.data())
def test_every_step_runs_once_after_what_it_takes_whatever_ends_first(
    found: World, data: st.DataObject
) -> None:
    flow = flow_of(found)
    outputs, skipped = carry(flow, bad=set(), pick=lambda n: data.draw(st.integers(0, n - 1)))
    assert outputs == one_after_the_other(flow, set())
    assert len(outputs) == len(flow.steps)
    assert not skipped


@given_any(forests(), st.data())
def test_a_step_that_fails_lets_none_that_hangs_on_it_run_and_stops_no_other(
    found: World, data: st.DataObject
) -> None:
    flow = flow_of(found)
    bad = data.draw(st.sets(st.integers(0, len(flow.steps) - 1)))
    outputs, skipped = carry(flow, bad=bad, pick=lambda n: data.draw(st.integers(0, n - 1)))
    assert outputs == one_after_the_other(flow, bad)
    assert skipped == {step.number for step in flow.steps if bad & set(before(flow, step.after))}


@given_any(forests())
def test_waves_hold_every_step_once_and_each_after_its_producer(found: World) -> None:
    flow = flow_of(found)
    wave_of = {step.number: n for n, wave in enumerate(flow.waves()) for step in wave}
    assert sorted(wave_of) == list(range(len(flow.steps)))
    for step in flow.steps:
        assert wave_of[step.number] == (0 if step.after is None else wave_of[step.after] + 1)
    assert found.rings == []


@given_any(forests(), st.data())
def test_a_loop_is_found_wherever_it_is(found: World, data: st.DataObject) -> None:
    names = [component.name for component in found.components]
    start = data.draw(st.integers(0, len(names) - 1))
    flow = flow_of(found)
    chain = [start]
    while (after := flow.steps[chain[-1]].after) is not None:
        chain.append(after)
    wires = [(each.name, each.takes, each.puts) for each in found.components]
    first = chain[-1]  # hangs on nothing; now it takes what the end of its own chain puts out
    wires[first] = (wires[first][0], wires[start][2], wires[first][2])
    [ring] = world(*wires).rings
    assert {each.name for each in ring} == {names[n] for n in chain}
    for before, each in zip(ring, (*ring[1:], ring[0]), strict=True):
        assert each.takes == before.puts


def test_a_component_that_takes_its_own_output_is_a_loop() -> None:
    assert [[each.name for each in ring] for ring in world(("Echo", "x", "x")).rings] == [["Echo"]]


def test_of_two_that_put_out_one_name_the_later_is_taken() -> None:
    found = world(("A", None, "x"), ("B", None, "x"), ("C", "x", None))
    assert flow_of(found).steps[2].after == 1


def test_an_input_that_nobody_puts_out_is_the_workflows_own() -> None:
    found = world(("A", "raw", None))
    assert flow_of(found).steps[0].after is None


def test_components_with_one_name_are_told_apart() -> None:
    found = world(("A", None, None), ("A", None, None), ("A (2)", None, None), ("A", None, None))
    names = [step.name for step in flow_of(found).steps]
    assert names == ["A", "A (2)", "A (2) (2)", "A (3)"]


@pytest.mark.parametrize(
    ("lines", "own"),
    [
        ("SCHEDULED: <2026-06-06 Sat +1d>\n", True),
        ("SCHEDULED: [2026-06-06 Sat +1d]\n", False),
        ("DEADLINE: <2026-06-06 Sat>\n", False),
        (":PROPERTIES:\n:SCHEDULE: 0 6 * * *\n:END:\n", True),
        ("", False),
    ],
)
def test_a_workflow_has_a_clock_of_its_own_if_something_active_fires_it(
    lines: str, own: bool
) -> None:
    assert has_own_clock(worlds(read(f"* W :workflow:\n{lines}"))[0]) is own


def test_a_long_chain_and_a_wide_wave_cost_what_they_are_long() -> None:
    count = scaled(100_000)
    chain = flow_of(from_parents([None, *range(count - 1)], list(range(count))))
    assert len(chain.downstream(0)) == count - 1
    assert len(chain.waves()) == count
    wide = flow_of(from_parents([None, *[0] * (count - 1)], list(range(count))))
    assert [len(wave) for wave in wide.waves()] == [1, count - 1]
