"""What a receipt may become, and what follows from the end of its run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from horae.core.entry import Retry
from horae.core.receipt import (
    BAD,
    ENDS,
    FINAL,
    OPEN,
    RETRY_CAP,
    Status,
    after_end,
    is_planned,
    may_become,
)

NOW = datetime(2026, 4, 1, 9, tzinfo=UTC)
SECOND = timedelta(seconds=1)

statuses = st.sampled_from(Status)


def test_the_way_through_the_graph_is_this_and_no_other() -> None:
    ways = {
        (one, other)
        for one in Status
        for other in Status
        if may_become(one, other)
    }  # fmt: skip
    assert ways == {
        (Status.WAITING, Status.HELD),
        (Status.HELD, Status.WAITING),
        (Status.WAITING, Status.SKIPPED),
        (Status.HELD, Status.SKIPPED),
        (Status.WAITING, Status.STARTING),
        (Status.STARTING, Status.WAITING),
        (Status.STARTING, Status.RUNNING),
        (Status.STARTING, Status.FAILED),
        (Status.RUNNING, Status.HELD),
        *((Status.RUNNING, end) for end in ENDS),
    }


@given(statuses, statuses, st.booleans())
def test_what_is_final_never_changes(one: Status, other: Status, has_retry: bool) -> None:
    if one in FINAL:
        assert not may_become(one, other, has_retry=has_retry)


@given(statuses, statuses)
def test_a_retry_opens_one_way_only(one: Status, other: Status) -> None:
    if may_become(one, other, has_retry=True) != may_become(one, other):
        assert (one, other) == (Status.RUNNING, Status.WAITING)


def test_every_status_of_a_receipt_is_open_or_final() -> None:
    assert set(Status) - {Status.LIMITED} == OPEN | FINAL
    assert not OPEN & FINAL


@given(st.sampled_from(sorted(ENDS)), st.integers(1, 200), st.integers(0, 100))
def test_only_a_bad_end_with_a_retry_left_is_tried_again(
    outcome: Status, attempts: int, allowed: int
) -> None:
    then = after_end(outcome, attempts=attempts, retry=Retry(allowed, SECOND), now=NOW)
    tries_again = outcome in BAD and attempts <= allowed
    assert then.status is (Status.WAITING if tries_again else outcome)
    assert (then.start_at is not None) == tries_again


def test_without_a_retry_every_end_is_the_end() -> None:
    for outcome in ENDS:
        assert after_end(outcome, attempts=1, retry=None, now=NOW) == (outcome, None)


@pytest.mark.parametrize(
    ("wait", "waits"),
    [
        (20 * SECOND, [20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]),
        (2 * RETRY_CAP, [7200, 7200]),
    ],
)
def test_the_wait_doubles_up_to_an_hour_or_stays_as_long_as_it_was(
    wait: timedelta, waits: list[int]
) -> None:
    for attempts, expected in enumerate(waits, start=1):
        then = after_end(Status.FAILED, attempts=attempts, retry=Retry(100, wait), now=NOW)
        assert then.start_at == NOW + expected * SECOND


def test_only_moments_of_the_rule_itself_are_planned() -> None:
    planned = ("cron:2026-04-01T09:00:00Z", "at:2026-04-01T09:00:00Z", "delay:7", "tick:3")
    asked = ("manual:7", "idem:a", "webhook:b", "dispatch:1", "backfill:7:x", "after:3")
    assert all(map(is_planned, planned))
    assert not any(map(is_planned, asked))
