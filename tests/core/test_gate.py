"""Who passes the gate, in which order, and why the others wait."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from horae.core import gate
from horae.core.gate import (
    Capacity,
    GateState,
    Machine,
    Obstacle,
    SlotKind,
    SlotRequest,
    Waiting,
)
from scale import scaled

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

NOW = datetime(2026, 4, 1, 9, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ROOM = Capacity()


# Each step gives a gate of its own, so that a test can go on from the same one in several ways.


class GateTurn(NamedTuple):
    state: GateState
    admitted: list[SlotRequest]
    refused: list[Obstacle]


def copied(state: GateState) -> GateState:
    return GateState({**state.holders}, [*state.line])


def offer(state: GateState, asks: Iterable[SlotRequest]) -> GateState:
    then = copied(state)
    then.offer(asks)
    return then


def release(state: GateState, *numbers: int) -> GateState:
    then = copied(state)
    for number in numbers:
        then.holders.pop(number, None)
    return then


def withdraw(state: GateState, number: int) -> GateState:
    then = copied(state)
    then.withdraw({number})
    return then


def adopt(state: GateState, ask: SlotRequest, *, machine: str, now: datetime) -> GateState:
    then = copied(state)
    then.adopt(ask, machine=machine, now=now)
    return then


def admit(
    state: GateState, capacity: Capacity, *, now: datetime, over: Collection[int] = ()
) -> GateTurn:
    then = copied(state)
    return GateTurn(then, *then.admit(capacity, now=now, over=over))


def ask(number: int, *agents: str, parent: int | None = None) -> SlotRequest:
    """Return an ask of an entry of its own, due at once."""
    return SlotRequest(number, number, NOW, agents, parent=parent)


def of_one(number: int) -> SlotRequest:
    return replace(ask(number), entry=1)


def tick(number: int, *agents: str) -> SlotRequest:
    return replace(ask(number, *agents), kind=SlotKind.CREW)


def turn(
    state: GateState, *asks: SlotRequest, at: datetime = NOW, capacity: Capacity = ROOM
) -> tuple[GateState, list[int]]:
    """Offer, take a turn, and return the gate and the numbers that were let in."""
    taken = admit(offer(state, asks), capacity, now=at)
    assert not taken.refused
    return taken.state, [each.number for each in taken.admitted]


def waiting(state: GateState) -> list[int]:
    return [each.ask.number for each in state.line]


def reasons(state: GateState, *, at: datetime = NOW, capacity: Capacity = ROOM) -> dict[int, str]:
    return {each.ask.number: each.reason for each in state.obstacles(capacity, now=at)}


def test_four_start_and_the_fifth_waits_for_a_slot() -> None:
    state, admitted = turn(GateState(), *map(ask, range(1, 6)))
    assert admitted == [1, 2, 3, 4]
    assert [holding.slot for holding in state.holders.values()] == [1, 2, 3, 4]
    assert reasons(state) == {5: "no slot is free; gate.slots is 4"}


def test_the_slot_of_a_run_that_is_over_is_free_before_its_end_is_recorded() -> None:
    state, _ = turn(GateState(), *map(ask, range(1, 7)))
    made = admit(state, ROOM, now=NOW, over={2})
    assert [each.number for each in made.admitted] == [5]
    assert {each.ask.number: each.slot for each in made.state.holders.values()}[5] == 2
    assert turn(made.state)[1] == []  # the sixth waits: the slot is given away once
    assert turn(release(made.state, 2))[1] == []
    assert turn(release(made.state, 5))[1] == []  # its start failed, and so did the end
    assert turn(release(made.state, 2, 5))[1] == [6]


def test_nobody_goes_before_one_who_waits_for_the_agent_of_a_run_that_is_over() -> None:
    wren = [ask(1, "wren"), ask(2), ask(3), ask(4)]
    state, _ = turn(GateState(), *wren, ask(5, "wren"), ask(6))
    assert admit(state, ROOM, now=NOW, over={1}).admitted == []
    assert turn(release(state, 1))[1] == [5]


def test_a_slot_that_was_given_back_goes_to_the_first_in_line() -> None:
    state, _ = turn(GateState(), *map(ask, range(1, 7)))
    state, admitted = turn(release(state, 2))
    assert admitted == [5]
    assert {holding.ask.number: holding.slot for holding in state.holders.values()}[5] == 2


def test_the_line_goes_by_due_moment_and_then_by_number() -> None:
    one = Capacity(slots=1)
    late, early = replace(ask(1), due_at=NOW + MINUTE), replace(ask(9), due_at=NOW - MINUTE)
    state = offer(GateState(), [ask(7), late, ask(3), early])
    order = []
    while state.line:
        state, admitted = turn(state, capacity=one)
        order += admitted
        state = release(state, *admitted)
    assert order == [9, 3, 7, 1]


def test_an_ask_gets_all_its_agents_or_none() -> None:
    state, _ = turn(GateState(), ask(1, "wren"))
    state, admitted = turn(state, ask(2, "moss", "wren"), ask(3, "moss"))
    assert admitted == [3]
    assert reasons(state) == {2: "moss is busy with receipt 3"}


def test_one_agent_has_one_live_run_whoever_asked() -> None:
    state, admitted = turn(GateState(), tick(1, "wren"), ask(2, "wren"), tick(3, "wren"))
    assert admitted == [1]
    assert set(reasons(state).values()) == {"wren is busy with receipt 1"}


def test_the_runs_of_one_entry_follow_one_another() -> None:
    again = replace(ask(2), entry=1)
    state, admitted = turn(GateState(), ask(1), again)
    assert admitted == [1]
    assert reasons(state) == {2: "the entry is busy with receipt 1"}
    assert turn(release(state, 1))[1] == [2]


def test_a_run_that_may_not_overlap_waits_for_those_of_its_entry_that_may() -> None:
    may = [replace(ask(number), entry=1, may_overlap=True) for number in (1, 2)]
    state, admitted = turn(GateState(), *may)
    assert admitted == [1, 2]
    state, admitted = turn(state, replace(ask(3), entry=1))
    assert admitted == []
    state, admitted = turn(release(state, 1))
    assert admitted == []
    _, admitted = turn(release(state, 2))
    assert admitted == [3]


def test_runs_that_may_overlap_do() -> None:
    asks = [replace(ask(number), entry=1, may_overlap=True) for number in (1, 2)]
    assert turn(GateState(), *asks)[1] == [1, 2]


def test_the_crew_leaves_room_for_appointments() -> None:
    state, admitted = turn(GateState(), *map(tick, range(1, 4)), ask(4), ask(5))
    assert admitted == [1, 2, 4, 5]
    assert reasons(state) == {3: "the crew has no free slot; crew.max_concurrent is 2"}


def test_a_hung_crew_is_in_nobodys_way_however_long_it_hangs() -> None:
    three = Capacity(slots=3)
    crew = tick(1), tick(2), tick(3, "wren")
    state, _ = turn(GateState(), *crew, ask(4, "wren"), capacity=three)
    for hour in range(1, 5):
        later = NOW + timedelta(hours=hour)
        state = release(state, hour + 3)
        state, admitted = turn(state, ask(hour + 4, "wren"), at=later, capacity=three)
        assert admitted == [hour + 4]
    assert waiting(state) == [3]


class TestPatience:
    """Receipt 3 needs wren and moss, who are never free together; there is always one more."""

    def start(self) -> GateState:
        state, _ = turn(GateState(), ask(1, "wren"), ask(2, "moss"))
        state, admitted = turn(state, ask(3, "wren", "moss"), ask(4, "wren"), ask(5, "fern"))
        assert admitted == [5]
        return state

    def test_whoever_is_passed_over_remembers_since_when(self) -> None:
        state, _ = turn(self.start(), ask(6, "wren"), at=NOW + MINUTE)
        assert [(each.ask.number, each.passed_at) for each in state.line] == [
            (3, NOW),
            (4, NOW),
            (6, None),
        ]

    def test_before_ten_minutes_it_is_passed_over(self) -> None:
        assert turn(release(self.start(), 1), at=NOW + 9 * MINUTE)[1] == [4]

    def test_after_ten_minutes_its_agents_are_kept_for_it(self) -> None:
        later = NOW + 10 * MINUTE
        state, admitted = turn(release(self.start(), 1), at=later)
        assert admitted == []
        assert reasons(state, at=later) == {
            3: "moss is busy with receipt 2",
            4: "wren is reserved for receipt 3, first in the queue",
        }
        assert turn(release(state, 2), at=later)[1] == [3]

    def test_what_it_does_not_need_is_not_kept_from_anybody(self) -> None:
        state = release(self.start(), 1)
        assert turn(state, ask(6, "lark"), at=NOW + 10 * MINUTE)[1] == [6]

    def test_its_entry_is_kept_for_it(self) -> None:
        other = replace(ask(6), entry=3)
        later = NOW + 10 * MINUTE
        state, admitted = turn(release(self.start(), 1), other, at=later)
        assert admitted == []
        assert reasons(state, at=later)[6] == "receipt 3 of the same entry is first in the queue"

    def test_only_the_first_in_line_keeps(self) -> None:
        state, _ = turn(self.start(), ask(6, "fern", "lark"), ask(7, "dove"), at=NOW)
        assert [each.passed_at for each in state.line] == [NOW, NOW, NOW]
        assert turn(state, ask(8, "lark"), at=NOW + 10 * MINUTE)[1] == []
        assert turn(release(state, 7), ask(8, "lark"), at=NOW + 10 * MINUTE)[1] == [8]

    def test_withdrawn_it_keeps_nothing(self) -> None:
        state = withdraw(release(self.start(), 1), 3)
        assert turn(state, at=NOW + 10 * MINUTE)[1] == [4]

    def test_a_clock_set_back_does_not_make_it_wait_longer(self) -> None:
        past = NOW - timedelta(days=3650)
        state, admitted = turn(release(self.start(), 1), at=past)
        assert admitted == [4]
        state, admitted = turn(release(state, 4), ask(6, "wren"), at=past + 10 * MINUTE)
        assert admitted == []

    def test_a_tick_keeps_its_place_in_the_crew(self) -> None:
        state, _ = turn(GateState(), tick(1, "wren"), ask(2, "moss"))
        state, _ = turn(state, tick(3, "moss"), ask(4))
        later = NOW + 10 * MINUTE
        state, admitted = turn(release(state, 4), tick(5, "lark"), at=later)
        assert admitted == []
        assert reasons(state, at=later)[5] == (
            "the crew's next slot is reserved for receipt 3, first in the queue"
        )
        assert turn(release(state, 2), at=later)[1] == [3]


class TestRiders:
    """Runs that were started inside a run."""

    def test_a_rider_needs_no_slot_of_its_own(self) -> None:
        state, _ = turn(GateState(), *map(ask, range(1, 6)))
        state, admitted = turn(state, ask(6, "wren", parent=2))
        assert admitted == [6]
        assert [each.slot for each in state.holders.values() if each.ask.number in {2, 6}] == [2, 2]

    def test_a_rider_costs_the_crew_what_its_parent_costs(self) -> None:
        state, _ = turn(GateState(), tick(1), tick(2))
        state, admitted = turn(state, ask(3, parent=1), tick(4))
        assert admitted == [3]
        state, admitted = turn(release(state, 1))
        assert admitted == []
        assert turn(release(state, 3))[1] == [4]

    def test_a_rider_waits_for_an_agent_and_goes_before_all_others(self) -> None:
        state, _ = turn(GateState(), ask(1), ask(2, "wren"))
        state, admitted = turn(state, ask(3, "wren"), ask(4, "wren", parent=1))
        assert admitted == []
        assert turn(release(state, 2))[1] == [4]

    def test_a_rider_that_is_first_in_line_keeps_its_agents_and_no_place_in_the_crew(self) -> None:
        one = Capacity(crew=1)
        later = NOW + 10 * MINUTE
        state, _ = turn(GateState(), ask(1), ask(2, "wren"), capacity=one)
        rider = replace(tick(3, "wren", "moss"), parent=1)
        state, admitted = turn(state, rider, ask(4, "fern"), capacity=one)
        assert admitted == [4]
        state, admitted = turn(state, ask(5, "moss"), tick(6), at=later, capacity=one)
        assert admitted == [6]
        assert turn(release(state, 2), at=later, capacity=one)[1] == [3]

    def test_a_slot_is_free_when_the_last_run_in_it_has_ended(self) -> None:
        one = Capacity(slots=1)
        state, _ = turn(GateState(), ask(1), capacity=one)
        state, _ = turn(state, ask(2, parent=1), ask(3), capacity=one)
        state, admitted = turn(release(state, 1), capacity=one)
        assert admitted == []
        assert turn(release(state, 2), capacity=one)[1] == [3]

    def test_a_retry_does_not_come_back_into_a_slot_that_a_rider_kept(self) -> None:
        state, _ = turn(GateState(), ask(1))
        state, _ = turn(state, ask(2, parent=1))
        state, admitted = turn(release(state, 1), ask(1))
        assert admitted == [1]
        assert {each.ask.number: each.slot for each in state.holders.values()} == {2: 1, 1: 2}

    def test_a_rider_whose_parent_has_ended_asks_for_a_slot(self) -> None:
        one = Capacity(slots=1)
        state, _ = turn(GateState(), ask(1), capacity=one)
        state = offer(release(state, 1), [ask(2), ask(3, parent=1)])
        state, admitted = turn(state, capacity=one)
        assert admitted == [3]
        assert reasons(state, capacity=one) == {2: "no slot is free; gate.slots is 1"}

    def refusal(self, state: GateState, *asks: SlotRequest) -> GateTurn:
        taken = admit(offer(state, asks), ROOM, now=NOW)
        assert not taken.admitted
        return taken

    @pytest.mark.parametrize("parent", [1, 2])
    def test_a_rider_that_needs_the_agent_of_a_run_around_it_is_refused(self, parent: int) -> None:
        state, _ = turn(GateState(), ask(1, "wren"))
        state, _ = turn(state, ask(2, "moss", parent=1))
        [refused] = self.refusal(state, ask(3, "wren", parent=parent)).refused
        assert refused.ask.number == 3
        assert refused.behind == 1
        assert refused.reason == "wren is busy with receipt 1, which waits for this run"

    def test_a_workflow_that_starts_itself_is_refused(self) -> None:
        state, _ = turn(GateState(), ask(1))
        [refused] = self.refusal(state, replace(ask(2, parent=1), entry=1)).refused
        assert refused.reason == "the entry is busy with receipt 1, which waits for this run"

    def test_siblings_wait_for_one_another(self) -> None:
        state, _ = turn(GateState(), ask(1))
        state, admitted = turn(state, ask(2, "wren", parent=1), ask(3, "wren", parent=1))
        assert admitted == [2]
        assert turn(release(state, 2))[1] == [3]

    def test_of_two_runs_whose_riders_want_each_others_agents_one_rider_is_refused(self) -> None:
        state, _ = turn(GateState(), ask(1, "wren"), ask(2, "moss"))
        state, _ = turn(state, ask(3, "moss", parent=1))
        taken = self.refusal(state, ask(4, "wren", parent=2))
        assert [each.ask.number for each in taken.refused] == [4]
        assert waiting(taken.state) == [3]
        assert turn(release(taken.state, 2))[1] == [3]

    def test_the_reason_names_the_need_that_can_never_be_met(self) -> None:
        state, _ = turn(GateState(), ask(1, "wren"), ask(2, "moss"))
        [refused] = self.refusal(state, ask(3, "moss", "wren", parent=1)).refused
        assert refused.behind == 1


def test_an_ask_that_is_known_is_not_taken_twice() -> None:
    state, _ = turn(GateState(), *map(ask, range(1, 6)))
    assert offer(state, [ask(1), ask(5)]) == state
    assert waiting(offer(state, [ask(6), ask(6)])) == [5, 6]


def test_a_second_release_frees_nothing_twice() -> None:
    state, _ = turn(GateState(), *map(ask, range(1, 8)))
    state, admitted = turn(release(release(state, 1), 1))
    assert admitted == [5]
    assert release(state, 1, 99) == state


def test_what_was_let_in_cannot_be_withdrawn_and_what_waits_cannot_be_released() -> None:
    state, _ = turn(GateState(), *map(ask, range(1, 6)))
    assert withdraw(state, 1) == state
    assert release(state, 5) == state
    assert waiting(withdraw(state, 5)) == []


def test_fewer_slots_than_are_held_let_nobody_in_until_enough_are_back() -> None:
    state, _ = turn(GateState(), *map(ask, range(1, 6)))
    two = Capacity(slots=2)
    assert turn(release(state, 1, 2), capacity=two)[1] == []
    assert turn(release(state, 1, 2, 3), capacity=two)[1] == [5]


def test_a_turn_without_news_changes_nothing() -> None:
    state, _ = turn(GateState(), *map(ask, range(1, 9)))
    assert turn(state, at=NOW + MINUTE) == (state, [])


def test_before_its_turn_nothing_is_in_the_way() -> None:
    assert reasons(offer(GateState(), [ask(1)])) == {1: "ready to start"}


def test_thousands_due_at_once_pass_in_planned_order() -> None:
    many = 5_000
    asks = [
        replace(ask(number), due_at=NOW + number // 7 * timedelta(seconds=1))
        for number in range(many)
    ]
    state = offer(GateState(), random.Random(4).sample(asks, many))
    order = []
    while state.line:
        state, admitted = turn(state)
        order += admitted
        state = release(state, *admitted)
    assert order == list(range(many))


@pytest.mark.parametrize(
    ("patience", "is_let_in"), [(10 * MINUTE, True), (timedelta(days=9), False)]
)
def test_patience_alone_ends_the_wait_for_agents_who_are_never_free_together(
    patience: timedelta, is_let_in: bool
) -> None:
    capacity = Capacity(patience=patience)
    state, live = turn(GateState(), ask(1, "wren"), ask(2, "moss"), ask(3, "fern"))
    state = offer(state, [ask(4, "wren", "moss", "fern")])
    for minute in range(1, 60):
        oldest = next(iter(state.holders.values())).ask
        newer = replace(ask(minute + 4, *oldest.agents), due_at=NOW + minute * MINUTE)
        state = release(state, oldest.number)
        state, admitted = turn(state, newer, at=NOW + minute * MINUTE, capacity=capacity)
        live += admitted
        if 4 in admitted:
            assert minute <= 1 + 10 + 3  # passed over once, ten minutes, and three runs end
            break
    assert (4 in live) == is_let_in


@pytest.mark.parametrize(
    ("way", "most"),
    [("slots", 4 * 5), ("agents", 3 * 5_000), ("crew", 3 * 5_000), ("one entry", 4)],
)
def test_the_cost_of_a_turn_does_not_grow_with_the_square_of_the_line(
    way: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    needs = vars(SlotRequest)["needs"].fget

    def counted(self: SlotRequest) -> object:
        nonlocal looks
        looks += 1
        return needs(self)

    make = {
        "slots": ask,
        "agents": lambda number: ask(number, "wren"),
        "crew": tick,
        "one entry": of_one,
    }[way]
    state = offer(GateState(), map(make, range(5_000)))
    monkeypatch.setattr(SlotRequest, "needs", property(counted))
    state, admitted = turn(state)
    assert admitted
    assert len(waiting(state)) == 5_000 - len(admitted)
    assert looks <= most


def test_a_turn_that_lets_nobody_in_leaves_the_gate_as_it_is() -> None:
    full, _ = turn(GateState(), *map(ask, range(1, 6)))
    idle, _ = turn(GateState(), ask(1))
    for state in (full, idle, GateState()):
        assert admit(state, ROOM, now=NOW).state == state
        assert offer(state, []) == state
        assert withdraw(state, 99) == state


@pytest.mark.parametrize(
    "room", [ROOM, Capacity(100, machines=(Machine("box", 2), Machine("hall", 2)))]
)
def test_of_thousands_who_wait_a_turn_looks_at_those_it_lets_in(
    monkeypatch: pytest.MonkeyPatch, room: Capacity
) -> None:
    state, _ = turn(offer(GateState(), map(ask, range(1, 5_001))), capacity=room)
    looks = 0
    lack = gate._Room.lack

    def counted(self: gate._Room, ask: SlotRequest) -> object:
        nonlocal looks
        looks += 1
        return lack(self, ask)

    monkeypatch.setattr(gate._Room, "lack", counted)
    for number in range(1, 401):
        state, admitted = turn(release(state, number), capacity=room)
        assert admitted == [number + 4]
    assert looks <= 2 * 400


def test_many_slots_are_given_from_the_lowest_and_each_once() -> None:
    room = Capacity(slots=3_000)
    state, admitted = turn(GateState(), *map(ask, range(1, 3_001)), capacity=room)
    assert [each.slot for each in state.holders.values()] == [*range(1, 3_001)] == admitted
    state, _ = turn(release(state, 7, 2_000), ask(3_001), ask(3_002), ask(3_003), capacity=room)
    assert [each.slot for each in [*state.holders.values()][-2:]] == [7, 2_000]
    assert waiting(state) == [3_003]


AGENTS = ("wren", "moss", "fern")


class AtTheGate(RuleBasedStateMachine):
    """Whatever is asked, released and withdrawn, slots do not leak and everybody gets a turn."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.capacity = Capacity(slots=3, crew=1, patience=2 * MINUTE)
        self.state = GateState()
        self.last = 0
        self.open: set[int] = set()  # asked and not over

    def some_holder(self, choice: int) -> int | None:
        numbers = [each.ask.number for each in self.state.holders.values()]
        return numbers[choice % len(numbers)] if numbers else None

    @rule(
        entry=st.integers(1, 4),
        agents=st.lists(st.sampled_from(AGENTS), max_size=2, unique=True).map(tuple),
        kind=st.sampled_from(SlotKind),
        may_overlap=st.booleans(),
        rides=st.sampled_from([False, False, True]),
        late=st.integers(0, 3),
        choice=st.integers(0, 9),
    )
    def ask_for(
        self,
        *,
        entry: int,
        agents: tuple[str, ...],
        kind: SlotKind,
        may_overlap: bool,
        rides: bool,
        late: int,
        choice: int,
    ) -> None:
        self.last += 1
        self.open.add(self.last)
        parent = self.some_holder(choice) if rides else None
        due_at = self.now - late * MINUTE
        made = SlotRequest(self.last, entry, due_at, agents, kind, parent, may_overlap)
        self.state = offer(self.state, [made])

    @rule(choice=st.integers(0, 9))
    def end(self, choice: int) -> None:
        number = self.some_holder(choice)
        if number is not None:
            self.state = release(self.state, number)
            self.open.discard(number)
            self.take_a_turn()

    @rule(choice=st.integers(0, 9))
    def give_up(self, choice: int) -> None:
        numbers = waiting(self.state)
        if numbers:
            number = numbers[choice % len(numbers)]
            self.state = withdraw(self.state, number)
            self.open.discard(number)

    @rule(minutes=st.integers(-1, 3))
    def pass_time(self, minutes: int) -> None:
        self.now += minutes * MINUTE

    @rule()
    def take_a_turn(self) -> None:
        before = self.state
        expected = expected_to_start(before, self.capacity, now=self.now)
        taken = admit(before, self.capacity, now=self.now)
        refused = {each.ask.number for each in taken.refused}
        assert [each.number for each in taken.admitted] == expected
        assert all(has_live_parent(each.ask, taken.state) for each in taken.refused)
        assert [*taken.state.holders][: len(before.holders)] == [*before.holders]
        self.state = taken.state
        self.open -= refused
        again = admit(self.state, self.capacity, now=self.now)
        assert not again.admitted
        assert not again.refused
        may_start = "ready to start"
        assert may_start not in reasons(self.state, at=self.now, capacity=self.capacity).values()

    @invariant()
    def nobody_is_lost_and_nobody_holds_and_waits(self) -> None:
        holding = [each.ask.number for each in self.state.holders.values()]
        assert sorted(holding + waiting(self.state)) == sorted(self.open)

    @invariant()
    def no_more_is_held_than_there_is(self) -> None:
        slots = {each.slot for each in self.state.holders.values()}
        crew = {each.slot for each in self.state.holders.values() if each.kind is SlotKind.CREW}
        assert slots <= set(range(1, self.capacity.slots + 1))
        assert len(crew) <= self.capacity.crew

    @invariant()
    def agents_and_entries_are_held_once(self) -> None:
        needs = [need for each in self.state.holders.values() for need in each.ask.needs]
        assert len(needs) == len(set(needs))

    def teardown(self) -> None:
        """Let every run end that waits for no other, turn by turn: the line empties."""
        for _ in range(self.last + 1):
            self.take_a_turn()
            parents = {each.ask.parent for each in self.state.holders.values()}
            parents |= {each.ask.parent for each in self.state.line}
            for holding in self.state.holders.values():
                if holding.ask.number not in parents:
                    self.state = release(self.state, holding.ask.number)
                    self.open.discard(holding.ask.number)
            self.nobody_is_lost_and_nobody_holds_and_waits()
        assert self.state == GateState()


def has_live_parent(made: SlotRequest, state: GateState) -> bool:
    return any(each.ask.number == made.parent for each in state.holders.values())


def expected_to_start(state: GateState, capacity: Capacity, *, now: datetime) -> list[int]:
    """Say who starts by going through the line again for each, with nothing remembered."""
    live = [(each.ask, each.slot, each.kind) for each in state.holders.values()]
    started: list[int] = []
    first: Waiting | None = None
    for each in sorted(
        state.line, key=lambda w: (w.ask.parent is None, w.ask.due_at, w.ask.number)
    ):
        made = each.ask
        home = [(slot, kind) for other, slot, kind in live if other.number == made.parent]
        crew = len({slot for _, slot, kind in live if kind is SlotKind.CREW})
        busy = any(set(made.needs) & {*other.agents, other.entry} for other, _, _ in live)
        slots = {slot for _, slot, _ in live}
        no_crew = not home and made.kind is SlotKind.CREW and crew >= capacity.crew
        no_slot = not home and len(slots) >= capacity.slots
        kept = False
        if first is not None and first.passed_at is not None and not home:
            rides = any(other.number == first.ask.parent for other, _, _ in live)
            is_over = now - first.passed_at >= capacity.patience
            wants_crew = first.ask.kind is made.kind is SlotKind.CREW and not rides
            last_place = wants_crew and crew + 1 >= capacity.crew
            kept = is_over and (last_place or bool(set(made.needs) & set(first.ask.needs)))
        if no_crew or busy or no_slot or kept:
            if first is None and not no_crew:
                first = each
            continue
        slot, kind = home[0] if home else (min({1, 2, 3, 4} - slots), made.kind)
        live.append((made, slot, kind))
        started.append(made.number)
    return started


TestAtTheGate = AtTheGate.TestCase
TestAtTheGate.settings = settings(max_examples=scaled(1_500), stateful_step_count=40, deadline=None)


# Several machines


BOX = Machine("box", 2)
HALL = Machine("hall", 2, frozenset({"gpu"}))


def spread(*machines: Machine, slots: int = 8) -> Capacity:
    return Capacity(slots, crew=slots, machines=machines)


def places(made: GateTurn) -> dict[int, str]:
    return {each.ask.number: each.machine for each in made.state.holders.values()}


def test_runs_go_to_the_machine_with_the_most_room() -> None:
    line = [SlotRequest(number, number, NOW) for number in range(1, 5)]
    made = admit(offer(GateState(), line), spread(BOX, HALL), now=NOW)
    assert places(made) == {1: "box", 2: "hall", 3: "box", 4: "hall"}


def test_a_machine_takes_no_more_than_its_own_slots_and_the_others_wait() -> None:
    line = [SlotRequest(number, number, NOW) for number in range(1, 6)]
    capacity = spread(BOX, HALL)
    made = admit(offer(GateState(), line), capacity, now=NOW)
    assert [ask.number for ask in made.admitted] == [1, 2, 3, 4]
    (waits,) = made.state.obstacles(capacity, now=NOW)
    assert waits.reason == "no slot is free on box or hall"


def test_the_slots_of_the_whole_bound_what_all_machines_do_together() -> None:
    line = [SlotRequest(number, number, NOW) for number in range(1, 5)]
    made = admit(offer(GateState(), line), spread(BOX, HALL, slots=3), now=NOW)
    assert len(made.admitted) == 3


def test_an_entry_that_asks_for_a_label_goes_where_it_is() -> None:
    line = [SlotRequest(number, number, NOW, requires=("gpu",)) for number in (1, 2)]
    made = admit(offer(GateState(), line), spread(BOX, HALL), now=NOW)
    assert places(made) == {1: "hall", 2: "hall"}


def test_a_machine_s_own_name_is_a_label_of_it() -> None:
    made = admit(
        offer(GateState(), [SlotRequest(1, 1, NOW, requires=("box",))]), spread(BOX, HALL), now=NOW
    )
    assert places(made) == {1: "box"}


def test_an_entry_whose_label_no_machine_has_waits_and_is_in_nobody_s_way() -> None:
    line = [SlotRequest(1, 1, NOW, requires=("tpu",)), SlotRequest(2, 2, NOW)]
    capacity = spread(BOX)
    made = admit(offer(GateState(), line), capacity, now=NOW)
    assert [ask.number for ask in made.admitted] == [2]
    (waits,) = made.state.obstacles(capacity, now=NOW)
    assert waits.reason == "no node with tpu is up"


def test_with_no_machine_at_all_everything_waits() -> None:
    capacity = spread()
    made = admit(offer(GateState(), [SlotRequest(1, 1, NOW)]), capacity, now=NOW)
    (waits,) = made.state.obstacles(capacity, now=NOW)
    assert waits.reason == "no node is up"


def test_an_agent_goes_where_it_last_ran_though_another_machine_is_free() -> None:
    line = [SlotRequest(1, 1, NOW), SlotRequest(2, 2, NOW, ("wren",), prefers="box")]
    made = admit(offer(GateState(), line), spread(BOX, HALL), now=NOW)
    assert places(made) == {1: "box", 2: "box"}


def test_an_agent_goes_elsewhere_when_its_machine_is_drained_or_gone() -> None:
    line = [SlotRequest(1, 1, NOW, ("wren",), prefers="box")]
    drained = spread(replace(BOX, is_draining=True), HALL)
    assert places(admit(offer(GateState(), line), drained, now=NOW)) == {1: "hall"}
    assert places(admit(offer(GateState(), line), spread(HALL), now=NOW)) == {1: "hall"}


def test_an_agent_goes_elsewhere_when_its_machine_has_no_room() -> None:
    line = [SlotRequest(n, n, NOW, requires=("box",)) for n in range(1, BOX.slots + 1)]
    line += [SlotRequest(9, 9, NOW, ("wren",), prefers="box")]
    made = admit(offer(GateState(), line), spread(BOX, HALL), now=NOW)
    assert places(made)[9] == "hall"


def test_a_run_inside_a_run_stays_on_its_parent_s_machine() -> None:
    capacity = spread(BOX, HALL)
    made = admit(offer(GateState(), [SlotRequest(1, 1, NOW)]), capacity, now=NOW)
    made = admit(offer(made.state, [SlotRequest(2, 2, NOW, parent=1)]), capacity, now=NOW)
    assert places(made) == {1: "box", 2: "box"}


def test_what_a_leader_before_has_let_in_holds_its_slot_on_its_machine() -> None:
    state = adopt(GateState(), SlotRequest(7, 7, NOW, ("wren",)), machine="box", now=NOW)
    state = adopt(state, SlotRequest(8, 8, NOW), machine="box", now=NOW)
    line = [SlotRequest(9, 9, NOW), SlotRequest(10, 10, NOW, ("wren",))]
    made = admit(offer(state, line), spread(BOX, HALL), now=NOW)
    assert places(made) == {7: "box", 8: "box", 9: "hall"}


def test_a_run_inside_a_run_has_the_slot_of_its_parent_after_a_restart() -> None:
    state = adopt(GateState(), SlotRequest(7, 7, NOW), machine="", now=NOW)
    state = adopt(state, SlotRequest(8, 8, NOW, parent=7), machine="", now=NOW)
    assert [each.slot for each in state.holders.values()] == [1, 1]
    made = admit(offer(state, [SlotRequest(9, 9, NOW)]), Capacity(slots=2), now=NOW)
    assert [ask.number for ask in made.admitted] == [9]


@given(
    st.lists(st.tuples(st.sampled_from(["", "gpu", "box"]), st.sampled_from(["", "box", "hall"]))),
    st.integers(1, 6),
)
def test_no_machine_ever_holds_more_than_it_has_and_labels_are_kept(
    wants: list[tuple[str, str]], slots: int
) -> None:
    line = [
        SlotRequest(number, number, NOW, requires=(label,) if label else (), prefers=prefers)
        for number, (label, prefers) in enumerate(wants, start=1)
    ]
    made = admit(offer(GateState(), line), spread(BOX, HALL, slots=slots), now=NOW)
    held = Counter(places(made).values())
    assert all(held[each.name] <= each.slots for each in (BOX, HALL))
    assert len(made.admitted) <= slots
    for holding in made.state.holders.values():
        machine = BOX if holding.machine == "box" else HALL
        assert machine.suits(holding.ask.requires)
