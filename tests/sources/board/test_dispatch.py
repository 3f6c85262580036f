"""Runnable tasks go to free members; the claim says who has one, and until when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from horae.core.entry import key_time
from horae.core.receipt import Status
from horae.sources.board.dispatch import (
    TTL,
    after_run,
    assign,
    candidates,
    claim,
    give_back,
    lapsed,
    rest_after,
    why_not,
)
from horae.sources.board.rules import Changes, TaskStatuses, Value
from horae.sources.board.task import Task, parse
from horae.sources.board.tasks import task_text

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = datetime(2026, 3, 25, 13, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def task(number: int = 1, *fields: str, status: str = "todo") -> Task:
    lines = "".join(f"{field}\n" for field in fields)
    found, _ = parse(f"---\nid: {number}\ntitle: T{number}\nstatus: {status}\n{lines}---\n")
    assert found is not None
    return found


def after(here: Task, changes: Changes) -> Task:
    """Return a task as it reads after changes."""
    kept: dict[str, Value | None] = {
        key: here.text(key) for key in here.fields if key not in {"id", *changes}
    }
    found, _ = parse(task_text({"id": here.id, **kept, **changes}))
    assert found is not None
    return found


def dispatch(tasks: Sequence[Task], *, free: Sequence[str]) -> list[tuple[Task, str]]:
    return assign(candidates(tasks, now=NOW), free=free)


def handed(*tasks: Task, free: tuple[str, ...] = ("wren", "moss")) -> list[tuple[int, str]]:
    return [(task.id, member) for task, member in dispatch(tasks, free=free)]


def test_the_most_urgent_task_goes_first_then_the_lowest_number() -> None:
    tasks = (
        task(1),
        task(2, "priority: low"),
        task(4, "priority: critical"),
        task(3, "priority: critical"),
        task(5, "priority: high", status="backlog"),
    )
    assert [each.id for each in candidates(tasks, now=NOW)] == [3, 4, 5, 2, 1]
    assert handed(*tasks) == [(3, "wren"), (4, "moss")]


def test_a_task_with_an_assignee_goes_to_nobody_else() -> None:
    assert handed(task(1, "assignee: moss"), task(2)) == [(1, "moss"), (2, "wren")]
    assert handed(task(1, "assignee: fern"), task(2), free=("wren",)) == [(2, "wren")]


def test_a_member_who_is_waited_for_by_name_is_not_given_to_others_first() -> None:
    tasks = (task(1), task(2, "assignee: wren"))
    assert handed(*tasks, free=("wren", "moss")) == [(1, "moss"), (2, "wren")]
    assert handed(*tasks, free=("wren",)) == [(1, "wren")]


def test_nobody_free_means_nothing_is_handed_out() -> None:
    assert handed(task(1), free=()) == []


@pytest.mark.parametrize(
    ("fields", "status", "reason"),
    [
        ((), "review", "its status is review"),
        ((), "in-progress", "its status is in-progress"),
        ((), "done", "its status is done"),
        (("claimed_by: fern",), "todo", "it is claimed by fern"),
        (("tags: [archived]",), "todo", "the task is archived"),
        (("blocked: no key",), "todo", "no key"),
        (("scheduled_for: 2026-03-25T13:00:01Z",), "todo", "scheduled for 2026-03-25T13:00:01Z"),
        (("depends_on: [9]",), "todo", "unmet dependency #9"),
        (("scheduled_for: 2026-03-25T13:00:00Z",), "todo", None),
        (("claimed_by:",), "backlog", None),
    ],
)
def test_why_a_task_is_not_handed_out(
    fields: tuple[str, ...], status: str, reason: str | None
) -> None:
    here = task(1, *fields, status=status)
    assert why_not(here, TaskStatuses.of([here]), now=NOW) == reason
    made = dispatch([here], free=["wren"])
    assert bool(made) == (reason is None)


def test_a_claim_says_who_and_until_when() -> None:
    assert claim(task(1), "wren", now=NOW) == {
        "status": "in-progress",
        "claimed_by": "wren",
        "claimed_at": "2026-03-25T13:00:00Z",
        "claim_ttl_secs": 1800,
        "claim_expires_at": "2026-03-25T13:30:00Z",
        "started": "2026-03-25T13:00:00Z",
    }


def test_what_is_claimed_is_handed_out_no_more() -> None:
    here = task(1)
    assert handed(after(here, claim(here, "wren", now=NOW))) == []


@pytest.mark.parametrize("outcome", [Status.DONE, Status.NO_WORK])
def test_work_that_is_done_goes_to_review_or_is_done(outcome: Status) -> None:
    here = after(task(1), claim(task(1), "wren", now=NOW))
    done = after(here, after_run(here, outcome, reason="ok", now=NOW))
    assert (done.status, done.text("completed")) == ("done", "2026-03-25T13:00:00Z")
    asked = after(here, after_run(here, outcome, reason="ok", now=NOW, branch="sow"))
    assert (asked.status, asked.text("completed")) == ("review", None)
    for each in (done, asked):
        assert not [key for key in each.fields if key.startswith("claim")]


@pytest.mark.parametrize("outcome", [Status.FAILED, Status.KILLED, Status.INTERRUPTED])
def test_any_other_end_gives_it_back_with_the_attempt_and_the_reason(outcome: Status) -> None:
    here = task(1)
    for attempt in (1, 2):
        held = after(here, claim(here, "wren", now=NOW))
        here = after(held, after_run(held, outcome, reason="exit\n code 3", now=NOW))
        assert (here.status, here.number("attempt")) == ("todo", attempt)
        assert here.text("attempt_reason") == f"{outcome}: exit code 3"
        rest = rest_after(attempt)
        assert handed(here) == []
        again = f"next attempt at {key_time(NOW + rest)}: {outcome}: exit code 3"
        assert why_not(here, TaskStatuses.of([here]), now=NOW) == again
        assert why_not(here, TaskStatuses.of([here]), now=NOW, is_asked=True) is None
        assert why_not(here, TaskStatuses.of([here]), now=NOW + rest) is None
        # Who removes the count lets it be tried at once; so does a clock that was ahead.
        assert why_not(task(1), TaskStatuses.of([here]), now=NOW) is None
        assert why_not(here, TaskStatuses.of([here]), now=NOW - 60 * MINUTE) is None


def test_a_claim_that_ran_out_is_taken_back() -> None:
    here = after(task(1), claim(task(1), "wren", now=NOW))
    assert lapsed([here], now=NOW + TTL - MINUTE) == {}
    free = after(here, lapsed([here], now=NOW + TTL)[1])
    assert (free.status, free.text("claimed_by"), free.number("attempt")) == ("todo", None, 1)
    assert "wren" in (free.text("attempt_reason") or "")


def test_a_persons_claim_has_no_end_and_is_never_taken_back() -> None:
    here = task(1, "claimed_by: ann", status="in-progress")
    assert lapsed([here], now=NOW + 1000 * TTL) == {}


def test_a_long_reason_is_cut() -> None:
    assert len(str(give_back(task(1), reason="x" * 999)["attempt_reason"])) == 200


@given(
    st.lists(st.sampled_from(["", "assignee: a", "assignee: z", "blocked: true"]), max_size=8),
    st.lists(st.sampled_from("abcd")),
)
def test_nobody_gets_two_tasks_no_task_two_members_and_nobody_is_idle_for_nothing(
    fields: list[str], free: list[str]
) -> None:
    tasks = [task(n, *filter(None, [field])) for n, field in enumerate(fields, start=1)]
    made = dispatch(tasks, free=free)
    members = [member for _, member in made]
    assert len(set(members)) == len(members)
    assert len({each.id for each, _ in made}) == len(made)
    assert all(each.text("assignee") in {None, member} for each, member in made)
    anybodys = [n for n, field in enumerate(fields, start=1) if not field]
    left = set(anybodys) - {each.id for each, _ in made}
    assert not left or set(members) == set(free)
