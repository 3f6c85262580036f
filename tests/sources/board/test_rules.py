"""How each open task stands, and where it may go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise, product

import pytest
from hypothesis import given, strategies as st

from horae.sources.board.dispatch import why_not
from horae.sources.board.rules import (
    CLOSED,
    STATUSES,
    DependencyError,
    TaskReadiness,
    TaskStatuses,
    TransitionError,
    check_depends_on,
    complaints,
    find_circle,
    is_schedule_blocked,
    moment,
    rank,
    standing,
    summary,
    transition,
)
from horae.sources.board.task import Task, parse
from readiness import resolve

NOW = datetime(2026, 3, 25, 13, 0, tzinfo=UTC)
SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)


def task(number: int = 1, *fields: str, body: str = "") -> Task:
    lines = "".join(f"{field}\n" for field in fields)
    found, _ = parse(f"---\nid: {number}\ntitle: Task {number}\n{lines}---\n{body}")
    assert found is not None
    return found


def stands(*tasks: Task) -> list[tuple[int, str, str]]:
    return [(each.task.id, each.standing.value, each.reason) for each in resolve(tasks, now=NOW)]


# Time


@pytest.mark.parametrize(
    ("at", "is_blocked"),
    [
        ("2026-03-25T09:00:00-04:00", False),  # now, and now is not the future
        ("2026-03-25T13:00:01Z", True),
        ("2026-03-25T12:59:59Z", False),
        ("2026-03-25 14:00:00Z", True),
        ("2999-04-10T19:26:40-0400", True),
        ("not-a-date", False),
        ("2999-04-10", False),
        ("", False),
    ],
)
def test_a_time_to_come_blocks_and_anything_else_does_not(at: str, *, is_blocked: bool) -> None:
    held = task(1, "status: todo", f"scheduled_for: '{at}'")
    assert is_schedule_blocked(held, now=NOW) == is_blocked
    reason = f"scheduled for {at}" if is_blocked else ""
    assert stands(held) == [(1, "Blocked" if is_blocked else "Runnable", reason)]


def test_a_task_without_a_time_is_never_blocked_by_it() -> None:
    assert not is_schedule_blocked(task(), now=datetime.min.replace(tzinfo=UTC))


@given(
    st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)),  # noqa: DTZ001 - the offset follows
    st.integers(-14 * 60, 14 * 60),
)
def test_a_moment_is_read_with_its_offset_however_it_is_written(at: datetime, by: int) -> None:
    at = at.replace(microsecond=0, tzinfo=timezone(timedelta(minutes=by)))
    text = at.isoformat()
    loose = f"{text[:10]} {text[11:-3]}{text[-2:]}"
    assert moment(text) == moment(loose) == at


# Standing


@pytest.mark.parametrize(
    ("status", "found"),
    [
        ("todo", TaskReadiness.RUNNABLE),
        ("backlog", TaskReadiness.RUNNABLE),
        ("in-progress", TaskReadiness.RUNNABLE),
        ("runnable", TaskReadiness.RUNNABLE),
        ("review", TaskReadiness.NEEDS_REVIEW),
        ("blocked", TaskReadiness.NEEDS_ACTION),
        ("custom-status", TaskReadiness.NEEDS_ACTION),
    ],
)
def test_an_open_task_stands_by_its_status(status: str, found: TaskReadiness) -> None:
    assert stands(task(1, f"status: {status}")) == [(1, found.value, "")]


def test_what_is_done_or_archived_is_left_out_and_the_rest_comes_by_number() -> None:
    tasks = [task(n, f"status: {status}") for n, status in ((9, "todo"), (3, "done"), (2, "todo"))]
    assert [number for number, _, _ in stands(*tasks, task(1, "status: archived"))] == [2, 9]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (("blocked: true",), "blocked"),
        (("blocked: true", "block_reason: no key"), "no key"),
        (("blocked: waiting for legal",), "waiting for legal"),
        (("blocked: on",), "on"),
        (("blocked_on: a vendor",), "a vendor"),
        (("block_reason: one", "blocked: two", "blocked_on: three"), "one"),
        (("blocked: two", "blocked_on: three"), "two"),
        (("blocked_on: x", "scheduled_for: 2027-01-01T00:00:00Z"), "x"),
        (("scheduled_for: 2027-01-01T00:00:00Z", "depends_on: [7]"), "scheduled for 2027-01-01T00:00:00Z"),
        (("depends_on: [2, 7]",), "unmet dependency #7"),
    ],
)  # fmt: skip
def test_the_first_thing_in_the_way_is_the_reason(fields: tuple[str, ...], reason: str) -> None:
    done = task(2, "status: done")
    assert stands(task(1, "status: todo", *fields), done) == [(1, "Blocked", reason)]
    assert stands(task(1, "status: review", *fields), done)[0][1:] == ("Blocked", reason)


def test_blocked_false_is_not_blocked() -> None:
    assert stands(task(1, "status: todo", "blocked: false")) == [(1, "Runnable", "")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("Depends on: #2, #7", "unmet body dependency #7"),
        ("- blocked on: #7", "unmet body dependency #7"),
        ("  - Blocked on: the weather", "body dependency reference"),
        ("Depends on: #2", None),
        ("It depends on: #7", None),
    ],
)
def test_a_line_of_the_body_may_name_what_it_waits_for(line: str, reason: str | None) -> None:
    waits = task(1, "status: todo", body=f"Do it.\n{line}\n")
    found = stands(waits, task(2, "status: done"))
    assert found == [(1, "Blocked" if reason else "Runnable", reason or "")]


def test_a_dependency_is_met_by_what_is_done_archived_or_put_away_and_nothing_else() -> None:
    waits = task(1, "status: todo", "depends_on: [2]")
    for status in (*STATUSES, "custom"):
        ground = TaskStatuses.of([waits, task(2, f"status: {status}")])
        is_met = standing(waits, ground, now=NOW).standing is TaskReadiness.RUNNABLE
        assert is_met == (status in CLOSED)
    assert resolve([waits], now=NOW)[0].standing is TaskReadiness.BLOCKED
    assert resolve([waits], now=NOW, archived=[2])[0].standing is TaskReadiness.RUNNABLE


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["todo", "backlog"]),
            st.sampled_from(["", "blocked: true", "scheduled_for: 2027-01-01T00:00:00Z"]),
            st.lists(st.integers(1, 8), max_size=3),
        ),
        max_size=6,
    )
)
def test_whoever_shows_the_board_and_whoever_hands_it_out_agree(
    made: list[tuple[str, str, list[int]]],
) -> None:
    tasks = [
        task(n, f"status: {status}", f"depends_on: {deps}", *filter(None, [extra]))
        for n, (status, extra, deps) in enumerate(made, start=1)
    ]
    ground = TaskStatuses.of(tasks)
    for found in resolve(tasks, now=NOW):
        is_handed_out = why_not(found.task, ground, now=NOW) is None
        assert is_handed_out == (found.standing is TaskReadiness.RUNNABLE)


# Moves

ALLOWED = {
    ("backlog", "todo"), ("backlog", "archived"),
    ("todo", "backlog"), ("todo", "in-progress"), ("todo", "blocked"), ("todo", "archived"),
    ("in-progress", "todo"), ("in-progress", "review"), ("in-progress", "blocked"),
    ("review", "in-progress"), ("review", "blocked"), ("review", "done"), ("review", "archived"),
    ("blocked", "todo"), ("blocked", "in-progress"), ("blocked", "archived"),
    ("done", "archived"),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after"), [*product(STATUSES, STATUSES)])
def test_a_task_goes_where_it_may_and_nowhere_else(before: str, after: str) -> None:
    here = task(1, f"status: {before}")
    if before == after:
        assert transition(here, after, now=NOW) == {}
    elif (before, after) in ALLOWED:
        assert transition(here, after, now=NOW)["status"] == after
    else:
        with pytest.raises(TransitionError, match="a task cannot move from "):
            transition(here, after, now=NOW)


def test_a_refused_move_names_both_states() -> None:
    with pytest.raises(TransitionError, match="from in-progress to done, only to "):
        transition(task(1, "status: in-progress"), "done", now=NOW)


def test_a_move_takes_a_block_away_and_to_done_notes_when() -> None:
    here = task(1, "status: review", "blocked: true", "block_reason: x")
    assert transition(here, "done", now=NOW) == {
        "status": "done",
        "blocked": None,
        "block_reason": None,
        "completed": "2026-03-25T13:00:00Z",
    }
    assert transition(here, "blocked", now=NOW) == {"status": "blocked"}
    assert transition(task(1, "status: todo"), "in_progress", now=NOW) == {"status": "in-progress"}


# All together


def test_priorities_have_an_order() -> None:
    words = ("critical", "High", "medium", "low", "whenever", "''")
    assert [rank(task(1, f"priority: {word}")) for word in words] == [0, 1, 2, 3, 4, 4]


def test_a_summary_counts_the_seven_and_then_what_is_unknown() -> None:
    counts = summary([task(1, "status: todo"), task(2, "status: todo"), task(3, "status: odd")])
    assert counts == dict.fromkeys(STATUSES, 0) | {"todo": 2, "odd": 1}
    assert list(counts) == [*STATUSES, "odd"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (("status: odd",), "status 'odd' is not valid"),
        (("scheduled_for: soon",), "scheduled_for 'soon' is not a timestamp"),
        (("cron_last_run: then",), "cron_last_run 'then' is not a timestamp"),
        (("cron_schedule: 0 25 * * *",), "hour 25"),
        (("cron_schedule: 0 9 30 2 *",), "matches no date"),
        (("cron_schedule: 0 9 * * *", "timezone: Mars/Base"), "Mars/Base"),
        (("cron_schedule: 0 9 * * *", "catchup: some"), "some"),
        (("cron_schedule: 0 9 * * *", "until: soon"), "soon"),
        (("depends_on: [9]",), "depends on #9, which does not exist"),
        (("depends_on: [1]",), "depends on itself: #1 -> #1"),
        (
            ("claimed_by: wren", "claim_expires_at: 2026-03-25T12:00:00Z"),
            "the claim of wren expired",
        ),
    ],
)
def test_what_is_wrong_with_a_task_is_said_with_what_to_do(
    fields: tuple[str, ...], message: str
) -> None:
    [complaint] = complaints([task(1, *fields)], now=NOW)
    assert message in complaint.message
    assert complaint.fix
    # It stands at the field that it is about: here the last one.
    assert complaint.field == fields[-1].partition(":")[0]


def test_two_files_with_one_number_are_both_blocked_and_no_dependency_is_met_by_one() -> None:
    ground = [task(1), task(1, "status: done"), task(2, "depends_on: [1]"), task(3)]
    found = {(each.task.id, each.task.status): each.reason for each in resolve(ground, now=NOW)}
    assert found == {
        (1, "backlog"): "2 files have the id 1",
        (2, "backlog"): "unmet dependency #1",
        (3, "backlog"): "",
    }


@given(st.dictionaries(st.integers(0, 8), st.lists(st.integers(0, 9), max_size=3).map(tuple)))
def test_a_circle_is_found_if_there_is_one(numbers: dict[int, tuple[int, ...]]) -> None:
    circle = find_circle(numbers)
    assert circle[:1] == circle[-1:]
    for one, other in pairwise(circle):
        assert other in numbers[one]
    below = {number: set(found) for number, found in numbers.items()}
    for _ in numbers:
        below = {n: m.union(*(below.get(each, ()) for each in m)) for n, m in below.items()}
    assert bool(circle) == any(number in found for number, found in below.items())


def test_a_long_chain_is_looked_at_in_one_go() -> None:
    numbers = {number: (number + 1,) for number in range(20_000)}
    assert find_circle(numbers) == ()
    assert len(find_circle(numbers | {20_000: (0,)})) == 20_002


def test_a_dependency_on_itself_is_refused() -> None:
    with pytest.raises(DependencyError, match="#1 would depend on itself: #1 -> #2 -> #1"):
        check_depends_on(1, (2,), {2: (1,)})
    check_depends_on(1, (2,), {2: (3,)})
