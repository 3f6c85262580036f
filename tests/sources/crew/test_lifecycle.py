"""An agent's day: how it is read, stepped, gated and predicted."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from horae.core.entry import CadenceRule, Entry, Origin
from horae.core.project import next_moment
from horae.core.receipt import ENDS, Status
from horae.org.page import MOST_HEADINGS
from horae.org.plan import Severity
from horae.sources.crew.lifecycle import (
    MOST_REPEATS,
    Lifecycle,
    Outcome,
    Position,
    State,
    StateKind,
    TickStreaks,
    check_gates,
    gate,
    outcome_of,
    parse_lifecycle,
    parse_position,
    predict,
    standing,
    step,
)
from scale import scaled

TEXT = (Path(__file__).parents[2] / "data" / "lifecycle-canonical.org").read_text()
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
NOW = datetime(2026, 6, 6, 6, 0, tzinfo=UTC)


def day(text: str) -> Lifecycle:
    lifecycle = parse_lifecycle(text, "day.org").lifecycle
    assert lifecycle is not None
    return lifecycle


def state(name: str, *lines: str) -> str:
    return "".join(f"{line}\n" for line in (f"* {name}", ":PROPERTIES:", *lines, ":END:"))


def found(text: str) -> list[tuple[int, int, str]]:
    return [(each.line, each.column, each.code) for each in parse_lifecycle(text).diagnostics]


DAY = day(TEXT)


# How a day is read


def test_each_heading_is_a_state_and_its_drawer_says_what_a_tick_is() -> None:
    parsed = parse_lifecycle(TEXT, "day.org")
    assert parsed.diagnostics == ()
    assert parsed.lifecycle == Lifecycle(
        "wake_add",
        {
            "wake_add": State(
                "wake_add", "wake_audit", repeat=3, task="Write one section that is missing."
            ),
            "wake_audit": State("wake_audit", "rem"),
            "rem": State("rem", "wake_plan", StateKind.REM, min_interval=10 * MINUTE),
            "wake_plan": State("wake_plan", "wake_add"),
        },
    )


def test_the_day_reads_the_same_with_windows_line_ends_a_mark_and_no_last_newline() -> None:
    windows = "\ufeff" + TEXT.replace("\n", "\r\n").rstrip()
    assert day(windows) == DAY


def test_start_picks_the_first_state_and_without_it_the_first_heading_counts() -> None:
    assert day("#+START: b\n* a\n* b\n").start == "b"
    assert day("#+start: b\n* a\n* b\n").start == "b"
    assert day("* zebra\n* ant\n").start == "zebra"
    assert day("#+START: gone\n* zebra\n* ant\n").start == "zebra"


def test_a_state_without_next_is_followed_by_itself() -> None:
    assert day("* only\n").states["only"].next == "only"


@pytest.mark.parametrize(
    ("written", "repeats"),
    [("3", 3), ("3 times", 3), ("often", 1), ("0", 1), ("-4", 1), ("9" * 5000, MOST_REPEATS)],
)
def test_repeat_is_the_number_that_its_value_begins_with(written: str, repeats: int) -> None:
    text = state("a", f":REPEAT: {written}")
    assert day(text).states["a"].repeat == repeats
    assert ("state-repeat" in {code for *_, code in found(text)}) == (written != "3")


@pytest.mark.parametrize(
    ("written", "length"),
    [("90s", 90 * SECOND), ("10m", 10 * MINUTE), ("2 h", 2 * HOUR), ("45000", 45 * SECOND)],
)
@pytest.mark.parametrize("key", ["MIN-INTERVAL", "min-interval", "MIN_INTERVAL"])
def test_a_gate_counts_in_seconds_minutes_hours_or_bare_milliseconds(
    key: str, written: str, length: timedelta
) -> None:
    assert day(state("a", f":{key}: {written}")).states["a"].min_interval == length


@pytest.mark.parametrize("written", ["3d", "0", "soon", "1.5h", "-1m", "10M"])
def test_a_gate_that_cannot_be_read_is_no_gate_and_is_reported(written: str) -> None:
    text = state("a", f":MIN-INTERVAL: {written}")
    assert day(text).states["a"].min_interval is None
    assert found(text) == [(3, 16, "state-gate")]


def test_what_stands_under_a_state_is_its_task_headings_inside_and_all() -> None:
    text = "* a\nBefore.\n:PROPERTIES:\n:NEXT: a\n:END:\nAfter.\n** Inside\nDeeper.\n* b\n"
    assert day(text).states["a"].task == "Before.\nAfter.\n** Inside\nDeeper."


def test_a_drawer_is_read_past_lines_that_are_no_properties() -> None:
    text = state("a", "# a remark", ":REPEAT:", ":KIND: rem", ":NEXT: b") + "* b\n"
    assert day(text).states["a"].kind is StateKind.REM
    assert [each for each in found(text) if each[2] == "drawer-line"] == [
        (3, 1, "drawer-line"),
        (4, 1, "drawer-line"),
    ]


def test_a_drawer_inside_an_example_or_a_heading_below_is_not_the_states() -> None:
    example = "* a\n#+begin_example\n:PROPERTIES:\n:KIND: rem\n:END:\n#+end_example\n"
    below = "* a\n** inside\n:PROPERTIES:\n:KIND: rem\n:END:\n"
    assert day(example).states["a"].kind is StateKind.WAKE
    assert day(below).states["a"].kind is StateKind.WAKE


@pytest.mark.parametrize("text", ["", "Prose.\n", "** too deep\n", "* two words\n", "* ../up\n"])
def test_a_text_without_a_state_is_no_lifecycle_and_says_so(text: str) -> None:
    parsed = parse_lifecycle(text, "day.org")
    assert parsed.lifecycle is None
    assert "lifecycle-empty" in {each.code for each in parsed.diagnostics}


# What is odd about a day


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#+START: b\n* a\n", [(1, 10, "start")]),
        (state("a", ":KIND: REM"), [(3, 8, "state-kind")]),
        (state("a", ":NEXT: b"), [(3, 8, "state-next")]),
        (state("a", ":NEXTT: a"), [(3, 9, "property-typo")]),
        (state("a", ":MIN-INTERVALL: 3m"), [(3, 17, "property-typo")]),
        (state("a", ":COLOUR: blue"), []),
        ("* a\n:PROPERTIES:\n:KIND: rem\n", [(2, 1, "drawer-line")]),
        (state("a", ":NEXT: b") + "* b\n", [(5, 1, "state-last")]),
        (
            state("a", ":NEXT: b") + state("b", ":NEXT: a") + "* a\n",
            [(1, 1, "state-twice"), (5, 1, "state-unreachable"), (9, 1, "state-last")],
        ),
        (state("a", ":NEXT: a") + state("a b", ":NEXT: a"), [(5, 1, "state-name")]),
        (state("a", ":KIND: rem"), [(1, 1, "rest-only")]),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_is_odd_is_found_where_it_stands(
    text: str, expected: list[tuple[int, int, str]]
) -> None:
    assert found(text) == expected


def test_a_state_that_no_way_leads_to_is_found() -> None:
    text = state("a", ":NEXT: b") + state("b", ":NEXT: a") + state("c", ":NEXT: a")
    assert found(text) == [(9, 1, "state-unreachable")]


def test_a_ring_of_rest_from_which_the_agent_never_wakes_is_an_error() -> None:
    rest = [":KIND: rem"]
    text = (
        state("work", ":NEXT: sleep")
        + state("sleep", *rest, ":NEXT: dream")
        + state("dream", *rest, ":NEXT: sleep")
    )
    [ring] = parse_lifecycle(text).diagnostics
    assert (ring.code, ring.severity, ring.line) == ("rest-only", Severity.ERROR, 5)
    assert ring.message == "the agent is never woken again: sleep → dream → sleep has no wake state"


def test_a_dangling_next_leads_to_the_start_and_names_what_was_meant() -> None:
    text = "#+START: work\n" + state("work", ":NEXT: rest") + state("rest", ":NEXT: wrok")
    assert day(text).states["rest"].next == "work"
    [finding] = parse_lifecycle(text).diagnostics
    assert finding.message == "'wrok' is not a state; the lifecycle restarts at work"
    assert finding.fix == "write work"


def gated(length: str, repeats: int = 1) -> Lifecycle:
    gate_lines = (f":MIN-INTERVAL: {length}", f":REPEAT: {repeats}")
    return day(
        state("work", ":REPEAT: 5", ":NEXT: rest") + state("rest", *gate_lines, ":NEXT: work")
    )


def test_a_gate_much_longer_than_the_day_is_found_since_all_states_wait_for_it() -> None:
    [finding] = check_gates(gated("24h"), every=HOUR)
    assert (finding.code, finding.line) == ("gate-starves", 6)
    assert finding.message == (
        ":MIN-INTERVAL: 1d delays the whole cycle: the states take 6h at one tick every 1h, "
        "then wait 18h"
    )


def test_the_repeats_of_a_gated_state_wait_each() -> None:
    assert check_gates(gated("6h"), every=HOUR) == []
    [finding] = check_gates(gated("6h", repeats=4), every=HOUR)
    assert finding.message.endswith("wait 15h")
    assert check_gates(gated("800000h", repeats=1_000_000), every=HOUR)[0].code == "gate-starves"


def test_the_gate_of_the_canonical_day_is_as_meant_in_every_rhythm() -> None:
    for every in (45 * SECOND, MINUTE, 10 * MINUTE, HOUR):
        assert check_gates(DAY, every=every) == []


def test_a_page_of_many_headings_is_read_up_to_a_limit() -> None:
    text = "".join(state(f"s{n}", f":NEXT: s{n + 1}") for n in range(MOST_HEADINGS + 5))
    parsed = parse_lifecycle(text)
    assert parsed.lifecycle is not None
    assert len(parsed.lifecycle.states) == MOST_HEADINGS
    assert "page-large" in {each.code for each in parsed.diagnostics}


# The four outcomes, one rule each


def test_done_counts_a_hit_and_after_the_last_repeat_goes_on() -> None:
    assert step(DAY, Position("wake_add"), Outcome.DONE) == Position("wake_add", 1)
    assert step(DAY, Position("wake_add", 1), Outcome.DONE) == Position("wake_add", 2)
    assert step(DAY, Position("wake_add", 2), Outcome.DONE) == Position("wake_audit")


def test_no_work_ends_the_repeats_at_once() -> None:
    assert step(DAY, Position("wake_add"), Outcome.NO_WORK) == Position("wake_audit")


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.KILLED])
def test_a_bad_end_holds_the_position(outcome: Outcome) -> None:
    assert step(DAY, Position("wake_add", 2), outcome) == Position("wake_add", 2)


def test_an_interrupted_run_counts_as_killed_and_what_did_not_run_as_nothing() -> None:
    assert outcome_of(Status.INTERRUPTED) is Outcome.KILLED
    assert {outcome_of(status) for status in ENDS} == set(Outcome)
    assert {outcome_of(status) for status in set(Status) - ENDS} == {None}


def test_a_hot_edit_keeps_the_position_unless_its_state_is_gone() -> None:
    edited = day("#+START: plan\n" + TEXT.replace("* wake_plan", "* plan").partition("\n")[2])
    assert standing(edited, Position("wake_add", 2)) == Position("wake_add", 2)
    assert standing(edited, Position("wake_plan")) == Position("plan")
    assert step(edited, Position("wake_plan"), Outcome.FAILED) == Position("plan")
    assert standing(edited, None) == Position("plan")


def test_hits_above_a_lowered_repeat_go_on_at_the_next_success() -> None:
    lowered = day(TEXT.replace(":REPEAT: 3", ":REPEAT: 2"))
    assert standing(lowered, Position("wake_add", 2)) == Position("wake_add", 1)
    assert step(lowered, Position("wake_add", 2), Outcome.FAILED).state == "wake_add"
    assert step(lowered, Position("wake_add", 2), Outcome.DONE) == Position("wake_audit")


NAMES = st.lists(st.sampled_from("abcdefg"), min_size=1, unique=True)


@st.composite
def days(draw: st.DrawFn) -> Lifecycle:
    names = draw(NAMES)
    states = [
        State(
            name,
            draw(st.sampled_from(names)),
            draw(st.sampled_from(StateKind)),
            draw(st.integers(1, 4)),
            draw(st.none() | st.sampled_from([MINUTE, 10 * MINUTE, 5 * HOUR])),
        )
        for name in names
    ]
    return Lifecycle(draw(st.sampled_from(names)), {each.name: each for each in states})


OUTCOMES = st.lists(st.sampled_from(Outcome), min_size=1, max_size=40)


@given(days(), OUTCOMES)
@settings(max_examples=scaled(1000), deadline=None)
def test_no_state_is_ever_skipped_and_the_position_never_lost(
    lifecycle: Lifecycle, outcomes: list[Outcome]
) -> None:
    here = Position(lifecycle.start)
    for outcome in outcomes:
        there = step(lifecycle, here, outcome)
        is_bad = outcome in {Outcome.FAILED, Outcome.KILLED}
        assert there.state in {here.state, lifecycle.states[here.state].next}
        assert 0 <= there.hits < lifecycle.states[there.state].repeat
        assert not is_bad or there == here
        assert parse_position(str(there)) == there
        here = there


@given(days(), OUTCOMES, st.sampled_from([45 * SECOND, 10 * MINUTE, HOUR]))
@settings(max_examples=scaled(1000), deadline=None)
def test_a_prediction_is_what_stepping_tick_by_tick_gives(
    lifecycle: Lifecycle, outcomes: list[Outcome], every: timedelta
) -> None:
    ticks = predict(lifecycle, None, outcomes, now=NOW, every=every, count=60)
    left = iter(outcomes)
    here, ran = Position(lifecycle.start), dict[str, datetime]()
    for tick in ticks:
        assert tick.position == here
        gap = lifecycle.states[here.state].min_interval
        if tick.outcome is None:
            assert gap is not None
            assert timedelta() < (tick.wait or timedelta()) <= gap
            assert tick.then == here
        else:
            assert tick.outcome is next(left, outcomes[-1])
            assert gap is None or here.state not in ran or tick.at - ran[here.state] >= gap
            ran[here.state] = tick.at
            here = step(lifecycle, here, tick.outcome)
    assert all(one.at + one.delay == two.at for one, two in pairwise(ticks))


LINES = st.sampled_from(
    [
        "* a",
        "* b",
        "** c",
        "* a b",
        ":PROPERTIES:",
        ":END:",
        ":NEXT: a",
        ":NEXT: b",
        ":KIND: rem",
        ":REPEAT: 2",
        ":MIN-INTERVAL: 5m",
        "#+START: b",
        "#+begin_src",
        "#+end_src",
        "",
        "text",
    ]
)


@given(st.lists(LINES | st.text(max_size=12), max_size=30), st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=scaled(1500), deadline=None)
def test_any_text_is_read_and_every_state_leads_to_a_state(lines: list[str], end: str) -> None:
    text = end.join(lines)
    parsed = parse_lifecycle(text)
    count = text.count("\n") + 1
    assert all(1 <= each.line <= count and each.column >= 1 for each in parsed.diagnostics)
    if parsed.lifecycle is not None:
        states = parsed.lifecycle.states
        assert parsed.lifecycle.start in states
        assert all(each.next in states for each in states.values())
        assert standing(parsed.lifecycle, parse_position(text)).state in states


# The position on disk


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("wake_add 2", Position("wake_add", 2)),
        ("  wake_add 2\n", Position("wake_add", 2)),
        ("wake_add\t2\r\n", Position("wake_add", 2)),
        ("wake_add 2 by hand", Position("wake_add", 2)),
        ("wake_add", Position("wake_add", 0)),
        ("", None),
        ("wake_add two", None),
        ("wake_add -1", None),
        ("wake_add 99999999999999999999", None),
        ("../../etc/passwd 1", None),
        ("\x00" * 20, None),
        ("x" * 100_000, None),
    ],
)
def test_a_position_file_is_read_tolerantly_and_a_corrupt_one_says_nothing(
    text: str, position: Position | None
) -> None:
    assert parse_position(text) == position


# The gate


@pytest.mark.parametrize(
    ("ran_at", "wait"),
    [
        (None, None),
        (NOW - 10 * MINUTE, None),
        (NOW - 4 * MINUTE, 6 * MINUTE),
        (NOW - 10 * MINUTE + timedelta(microseconds=1), timedelta(microseconds=1)),
        (NOW, 10 * MINUTE),
        (NOW + timedelta(days=365), 10 * MINUTE),
    ],
)
def test_a_gate_is_closed_until_its_interval_has_passed_since_the_state_last_ran(
    ran_at: datetime | None, wait: timedelta | None
) -> None:
    assert gate(DAY, Position("rem"), ran_at=ran_at, now=NOW) == wait


def test_a_state_without_a_gate_is_always_open() -> None:
    assert gate(DAY, Position("wake_add"), ran_at=NOW, now=NOW) is None


def test_a_gated_tick_changes_neither_position_nor_streak() -> None:
    failed, gated = predict(
        DAY, Position("rem"), [Outcome.FAILED], now=NOW, every=45 * SECOND, count=2
    )
    wait = 10 * MINUTE - failed.delay
    assert (gated.outcome, gated.wait, gated.then) == (None, wait, Position("rem"))
    assert (gated.rhythm, gated.delay) == (TickStreaks(failures=1), failed.delay)


# The canonical day, twenty ticks under every outcome


def table(outcomes: list[Outcome], every: timedelta) -> list[tuple[str, str, str]]:
    ticks = predict(DAY, None, outcomes, now=NOW, every=every, count=20)
    return [
        (str(tick.at - NOW), str(tick.position), str(tick.outcome or "gated")) for tick in ticks
    ]


def rows(text: str) -> list[tuple[str, str, str]]:
    words = [line.split() for line in text.strip().splitlines()]
    return [(at, f"{name} {hits}", outcome) for at, name, hits, outcome in words]


def test_twenty_ticks_that_all_find_work() -> None:
    assert table([Outcome.DONE], 10 * MINUTE) == rows("""
        0:00:00 wake_add   0 done
        0:10:00 wake_add   1 done
        0:20:00 wake_add   2 done
        0:30:00 wake_audit 0 done
        0:40:00 rem        0 done
        0:50:00 wake_plan  0 done
        1:00:00 wake_add   0 done
        1:10:00 wake_add   1 done
        1:20:00 wake_add   2 done
        1:30:00 wake_audit 0 done
        1:40:00 rem        0 done
        1:50:00 wake_plan  0 done
        2:00:00 wake_add   0 done
        2:10:00 wake_add   1 done
        2:20:00 wake_add   2 done
        2:30:00 wake_audit 0 done
        2:40:00 rem        0 done
        2:50:00 wake_plan  0 done
        3:00:00 wake_add   0 done
        3:10:00 wake_add   1 done
    """)


def test_twenty_ticks_of_a_continuous_agent_that_finds_work_wait_at_the_gate() -> None:
    assert table([Outcome.DONE], 90 * SECOND) == rows("""
        0:00:00 wake_add   0 done
        0:01:30 wake_add   1 done
        0:03:00 wake_add   2 done
        0:04:30 wake_audit 0 done
        0:06:00 rem        0 done
        0:07:30 wake_plan  0 done
        0:09:00 wake_add   0 done
        0:10:30 wake_add   1 done
        0:12:00 wake_add   2 done
        0:13:30 wake_audit 0 done
        0:15:00 rem        0 gated
        0:16:30 rem        0 done
        0:18:00 wake_plan  0 done
        0:19:30 wake_add   0 done
        0:21:00 wake_add   1 done
        0:22:30 wake_add   2 done
        0:24:00 wake_audit 0 done
        0:25:30 rem        0 gated
        0:27:00 rem        0 done
        0:28:30 wake_plan  0 done
    """)


def test_twenty_ticks_without_work_go_through_every_state_ever_more_slowly() -> None:
    assert table([Outcome.NO_WORK], 45 * SECOND) == rows("""
        0:00:00 wake_add   0 no_work
        0:01:00 wake_audit 0 no_work
        0:03:00 rem        0 no_work
        0:07:00 wake_plan  0 no_work
        0:15:00 wake_add   0 no_work
        0:31:00 wake_audit 0 no_work
        1:01:00 rem        0 no_work
        1:31:00 wake_plan  0 no_work
        2:01:00 wake_add   0 no_work
        2:31:00 wake_audit 0 no_work
        3:01:00 rem        0 no_work
        3:31:00 wake_plan  0 no_work
        4:01:00 wake_add   0 no_work
        4:31:00 wake_audit 0 no_work
        5:01:00 rem        0 no_work
        5:31:00 wake_plan  0 no_work
        6:01:00 wake_add   0 no_work
        6:31:00 wake_audit 0 no_work
        7:01:00 rem        0 no_work
        7:31:00 wake_plan  0 no_work
    """)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.KILLED])
def test_twenty_bad_ends_hold_the_place_and_after_three_try_less_often(outcome: Outcome) -> None:
    minutes = [
        0,
        0.75,
        1.5,
        2.25,
        3.25,
        5.25,
        9.25,
        17.25,
        33.25,
        *(63.25 + 30 * n for n in range(11)),
    ]
    times = [str(number * MINUTE) for number in minutes]
    assert table([outcome], 45 * SECOND) == [(at, "wake_add 0", str(outcome)) for at in times]


def test_twenty_ticks_of_all_kinds() -> None:
    done, idle, failed, killed = Outcome
    mixed = [done, failed, done, killed, killed, done, idle, failed, done, idle, idle, done]
    assert table(mixed, 10 * MINUTE) == rows("""
        0:00:00 wake_add   0 done
        0:10:00 wake_add   1 failed
        0:20:00 wake_add   1 done
        0:30:00 wake_add   2 killed
        0:40:00 wake_add   2 killed
        0:50:00 wake_add   2 done
        1:00:00 wake_audit 0 no_work
        1:10:00 rem        0 failed
        1:20:00 rem        0 done
        1:30:00 wake_plan  0 no_work
        1:40:00 wake_add   0 no_work
        1:50:00 wake_audit 0 done
        2:00:00 rem        0 done
        2:10:00 wake_plan  0 done
        2:20:00 wake_add   0 done
        2:30:00 wake_add   1 done
        2:40:00 wake_add   2 done
        2:50:00 wake_audit 0 done
        3:00:00 rem        0 done
        3:10:00 wake_plan  0 done
    """)


# The price of idleness


@pytest.mark.parametrize(
    ("streak", "wait"),
    [
        (0, 45 * SECOND),
        (1, MINUTE),
        (2, 2 * MINUTE),
        (3, 4 * MINUTE),
        (4, 8 * MINUTE),
        (5, 16 * MINUTE),
        (6, 30 * MINUTE),
        (7, 30 * MINUTE),
        (100_000, 30 * MINUTE),
    ],
)
def test_the_backoff_of_a_streak_is_what_the_projection_of_a_cadence_shows(
    streak: int, wait: timedelta
) -> None:
    rule = CadenceRule(45 * SECOND, NOW - HOUR, ticks=streak, streak=streak)
    keeper = Entry("agent:wren", Origin("crew.org", 1), "wren", rule, ended_at=NOW)
    moment = next_moment(keeper, NOW)
    assert moment is not None
    assert (moment.at - NOW, moment.key) == (wait, f"tick:{streak + 1}")
    assert TickStreaks(streak=streak).delay(45 * SECOND) == wait


@given(OUTCOMES, st.sampled_from([45 * SECOND, 10 * MINUTE, HOUR]))
@settings(max_examples=scaled(1000), deadline=None)
def test_a_prediction_and_the_projection_agree_on_every_next_tick(
    outcomes: list[Outcome], every: timedelta
) -> None:
    for tick in predict(DAY, None, outcomes, now=NOW, every=every, count=20):
        rule = CadenceRule(every, NOW, streak=tick.rhythm.streak, failures=tick.rhythm.failures)
        keeper = Entry("agent:wren", Origin("crew.org", 1), "wren", rule, ended_at=tick.at)
        moment = next_moment(keeper, tick.at)
        assert moment is not None
        assert moment.at == tick.at + tick.delay


def test_a_single_success_brings_the_hot_rhythm_back_and_a_failure_ends_a_streak() -> None:
    idle = TickStreaks(streak=9)
    assert idle.after(Outcome.DONE) == TickStreaks()
    assert idle.after(Outcome.NO_WORK) == TickStreaks(streak=10)
    assert idle.after(Outcome.FAILED) == TickStreaks(failures=1)
    assert TickStreaks(failures=8).after(Outcome.NO_WORK) == TickStreaks(streak=1)
