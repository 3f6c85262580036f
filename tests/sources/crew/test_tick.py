"""One tick of an agent: what it does, what is remembered after it, and what its files say."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from horae.core.receipt import Status
from horae.core.views import AgentPosition
from horae.sources.crew.lifecycle import Position, parse_lifecycle
from horae.sources.crew.rules import (
    AgentMemory,
    Beat,
    TickPlan,
    agent_state,
    begun,
    ended,
    going,
    may_mirror,
    mirrored,
    position_file,
    ran_file,
    read_memory,
    read_note,
    seconds_text,
    state_files,
    take_over,
    tick,
    write_memory,
    write_note,
)
from scale import scaled

if TYPE_CHECKING:
    from horae.sources.crew.lifecycle import Lifecycle

NOW = datetime.fromisoformat("2026-04-01T08:00Z")
MINUTE = timedelta(minutes=1)

CANONICAL = """\
#+START: wake_add
* wake_add
:PROPERTIES:
:REPEAT: 3
:NEXT: wake_audit
:END:
* wake_audit
:PROPERTIES:
:NEXT: rem
:END:
* rem
:PROPERTIES:
:KIND: rem
:NEXT: wake_plan
:MIN-INTERVAL: 10m
:END:
* wake_plan
:PROPERTIES:
:NEXT: wake_add
:END:
"""


def day(text: str) -> Lifecycle:
    found = parse_lifecycle(text).lifecycle
    assert found is not None
    return found


DAY = day(CANONICAL)


def at(state: str, hits: int = 0, **more: object) -> AgentMemory:
    return AgentMemory(Position(state, hits), **more)  # type: ignore[arg-type]


# What a tick does


@pytest.mark.parametrize(
    ("memory", "sleeps", "beat", "state"),
    [
        (AgentMemory(), False, Beat.WAKE, "wake_add"),
        (AgentMemory(), True, Beat.ASLEEP, "wake_add"),
        (at("gone"), False, Beat.WAKE, "wake_add"),
        (at("rem"), False, Beat.REST, "rem"),
        (at("rem"), True, Beat.REST, "rem"),
        (at("rem", began={"rem": NOW - 9 * MINUTE}), False, Beat.GATED, "rem"),
        (at("rem", began={"rem": NOW - 10 * MINUTE}), False, Beat.REST, "rem"),
        (at("wake_audit", began={"wake_audit": NOW}), False, Beat.WAKE, "wake_audit"),
    ],
)
def test_a_tick_wakes_rests_sleeps_or_waits_at_a_gate(
    memory: AgentMemory, sleeps: bool, beat: Beat, state: str
) -> None:
    made = tick(DAY, memory, now=NOW, sleeps=sleeps)
    assert made.state is not None
    assert (made.beat, made.state.name) == (beat, state)


def test_without_a_day_a_tick_only_wakes_or_sleeps() -> None:
    assert tick(None, at("rem"), now=NOW) == TickPlan(Beat.WAKE)
    assert tick(None, AgentMemory(), now=NOW, sleeps=True).beat is Beat.ASLEEP


def test_a_gate_says_when_it_opens() -> None:
    made = tick(DAY, at("rem", began={"rem": NOW - 9 * MINUTE}), now=NOW)
    assert made.reason == "rem may begin again in 1m"


# What is remembered


def test_a_state_is_stamped_when_it_starts_however_it_ends() -> None:
    made = tick(DAY, at("rem"), now=NOW)
    memory = begun(at("rem"), made, now=NOW)
    assert memory.began == {"rem": NOW}
    for status in (Status.FAILED, Status.KILLED, Status.INTERRUPTED):
        after = ended(memory, made.beat, DAY, status, now=NOW)
        assert tick(DAY, after, now=NOW + MINUTE).beat is Beat.GATED
        assert after.position == Position("rem")


@pytest.mark.parametrize("beat", [Beat.GATED, Beat.ASLEEP])
def test_a_tick_that_does_nothing_remembers_only_that_it_was(beat: Beat) -> None:
    before = ended(at("rem"), beat, DAY, Status.NO_WORK, now=NOW)
    memory = begun(before, TickPlan(beat, DAY.states["rem"]), now=NOW)
    assert memory == replace(before, last_run_at=NOW)
    assert ended(memory, beat, DAY, Status.NO_WORK, now=NOW) == memory


@pytest.mark.parametrize(
    ("status", "there"),
    [
        (Status.DONE, "wake_add 2"),
        (Status.NO_WORK, "wake_audit 0"),
        (Status.FAILED, "wake_add 1"),
        (Status.KILLED, "wake_add 1"),
        (Status.INTERRUPTED, "wake_add 1"),
    ],
)
def test_each_outcome_does_one_thing_to_the_place_in_the_day(status: Status, there: str) -> None:
    memory = ended(at("wake_add", 1), Beat.WAKE, DAY, status, now=NOW)
    assert str(memory.position) == there


def test_a_status_shows_the_place_in_the_day_and_what_comes_after() -> None:
    memory = ended(at("wake_audit"), Beat.WAKE, DAY, Status.DONE, now=NOW)
    assert agent_state(write_memory(memory)).position == AgentPosition(
        state="rem", hits=0, next_state="wake_plan", kind="rem"
    )
    without = ended(memory, Beat.WAKE, None, Status.DONE, now=NOW)
    assert agent_state(write_memory(without)).position is None
    assert without.position == memory.position  # should the day come back


def test_while_it_runs_its_place_and_its_start_are_known_and_no_gate_is_shut() -> None:
    there = going(AgentMemory(), day(CANONICAL), now=NOW)
    assert agent_state(write_memory(there)).position == AgentPosition(
        state="wake_add", hits=0, next_state="wake_audit", kind="wake"
    )
    assert (there.last_run_at, dict(there.began), there.woken_at) == (NOW, {}, None)
    plain = going(at("wake_add", 2, kind="wake"), None, now=NOW)
    assert (agent_state(write_memory(plain)).position, plain.last_run_at) == (None, NOW)


def test_only_a_run_counts_as_having_been_woken() -> None:
    memory = begun(AgentMemory(), tick(DAY, AgentMemory(), now=NOW), now=NOW)
    later = NOW + MINUTE
    asleep = begun(memory, tick(DAY, memory, now=later, sleeps=True), now=later)
    assert (asleep.last_run_at, asleep.woken_at) == (later, NOW)


def test_states_that_are_gone_are_forgotten() -> None:
    memory = at("rem", began={"rem": NOW, "old": NOW})
    assert ended(memory, Beat.REST, DAY, Status.DONE, now=NOW).began == {"rem": NOW}


MOMENTS = st.integers(0, 4_000_000_000).map(lambda each: datetime.fromtimestamp(each, UTC))
NAMES = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)
MEMORIES = st.builds(
    AgentMemory,
    st.none() | st.builds(Position, NAMES, st.integers(0, 999_999_999)),
    st.sampled_from(["", "wake", "rem"]),
    NAMES | st.just(""),
    st.none() | MOMENTS,
    st.none() | MOMENTS,
    st.dictionaries(NAMES, MOMENTS, max_size=3),
    st.none() | MOMENTS,
    TEXTS,
    st.dictionaries(NAMES, TEXTS, max_size=3),
    st.dictionaries(NAMES, TEXTS, max_size=3),
)


@given(MEMORIES)
@settings(max_examples=scaled(1000))
def test_what_is_remembered_is_remembered_as_it_was(memory: AgentMemory) -> None:
    assert read_memory(write_memory(memory)) == memory
    made = TickPlan(Beat.WAKE, DAY.states["rem"], "why")
    assert read_note(write_note(made, memory), DAY) == (made, memory)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"beat": 3}', '{"beat": "nap"}', "[" * 10_000])
def test_a_note_that_cannot_be_read_is_none(text: str) -> None:
    assert read_note(text, DAY) is None
    assert read_memory(text) == AgentMemory()


def mutated(text: str, roll: random.Random) -> str:
    """Return a text as a bad disk, a bad editor or a bad program may leave it."""
    data = bytearray(text.encode())
    for _ in range(roll.randint(1, 4)):
        where = roll.randrange(len(data) + 1)
        match roll.randrange(5):
            case 0 if data:
                data[where % len(data)] ^= 1 << roll.randrange(8)
            case 1:
                del data[where:]
            case 2:
                data[where:where] = roll.randbytes(roll.randint(1, 9))
            case 3:
                data[:] = b"\0" * len(data)
            case _:
                data *= roll.randint(1, 50)
    return data.decode("utf-8", "replace")


def test_a_memory_that_was_damaged_costs_at_most_what_was_damaged() -> None:
    memory = mirrored(at("wake_add", 2, began={"rem": NOW}, carry="go on"), name="wren")
    text = write_memory(memory)
    for seed in range(scaled(1000)):
        found = read_memory(mutated(text, random.Random(seed)))
        assert tick(DAY, found, now=NOW).beat in Beat


# The files that mirror it


def said(memory: AgentMemory) -> dict[str, str]:
    return {name: f"{text.partition(chr(10))[0]}\n" for name, text in memory.mirrors.items()}


MEMORY = mirrored(at("wake_add", 2, began={"rem": NOW}), name="wren")


def test_the_files_carry_the_names_and_the_texts_that_people_know() -> None:
    assert said(MEMORY) == {
        "lifecycle-pos-wren": "wake_add 2\n",
        "lifecycle-ran-wren-rem": f"{int(NOW.timestamp())}\n",
    }
    assert sorted(said(mirrored(MEMORY, name=None))) == ["lifecycle-pos", "lifecycle-ran-rem"]
    assert set(said(MEMORY)) < set(state_files(DAY, "wren"))


def test_what_we_wrote_ourselves_says_nothing_new() -> None:
    assert take_over(MEMORY, DAY, said(MEMORY), name="wren") == (MEMORY, (), ())
    moved = mirrored(replace(MEMORY, position=Position("rem")), name="wren")
    # A crash came before the file was written.
    assert take_over(moved, DAY, said(MEMORY), name="wren") == (moved, (), ())


def test_what_a_person_writes_is_taken_over() -> None:
    texts = {**said(MEMORY), "lifecycle-pos-wren": "rem", "lifecycle-ran-wren-rem": "0"}
    memory, edited, bad = take_over(MEMORY, DAY, texts, name="wren")
    assert (memory.position, memory.began["rem"].year) == (Position("rem"), 1970)
    assert (sorted(edited), bad) == (["lifecycle-pos-wren", "lifecycle-ran-wren-rem"], ())
    # It is a person's word once; after that it is ours to write over.
    assert take_over(memory, DAY, texts, name="wren") == (memory, (), ())
    assert may_mirror(mirrored(memory, name="wren"), "lifecycle-pos-wren", "rem")


def test_without_a_memory_the_files_are_what_is_known() -> None:
    memory, _, bad = take_over(AgentMemory(), DAY, said(MEMORY), name="wren")
    assert (memory.position, memory.began, bad) == (Position("wake_add", 2), MEMORY.began, ())


@pytest.mark.parametrize("text", ["wake_adx 2", "wake_add two", "\0\0\0", "x" * 5000, "{}"])
def test_a_file_that_names_no_state_is_set_aside_and_the_memory_stands(text: str) -> None:
    texts = {**said(MEMORY), "lifecycle-pos-wren": text}
    assert take_over(MEMORY, DAY, texts, name="wren") == (MEMORY, (), ("lifecycle-pos-wren",))


def test_however_files_are_damaged_the_agent_stands_in_a_state_of_its_day() -> None:
    names = (position_file("wren"), ran_file("rem", "wren"))
    for seed in range(scaled(1000)):
        roll = random.Random(seed)
        texts = {name: mutated(said(MEMORY)[name], roll) for name in names}
        memory, edited, bad = take_over(MEMORY, DAY, texts, name="wren")
        assert memory.position is not None
        assert memory.position.state in DAY.states
        for name in names:
            is_ours = " ".join(texts[name].split()) in {"", said(MEMORY)[name].strip()}
            assert (name in edited) + (name in bad) + is_ours == 1
        if names[0] in bad:
            assert memory.position == MEMORY.position


def test_a_file_that_a_person_wrote_during_the_tick_is_left_for_the_next() -> None:
    after = mirrored(replace(MEMORY, position=Position("rem")), name="wren")
    name = "lifecycle-pos-wren"
    for ours in (None, "wake_add 2\n", "rem 0\n", "\0\0", ""):
        assert may_mirror(after, name, ours)
    assert not may_mirror(after, name, "wake_plan 0\n")
    assert not may_mirror(after, "lifecycle-ran-wren-rem", seconds_text(NOW + MINUTE))
