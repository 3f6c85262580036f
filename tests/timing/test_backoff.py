"""How long a keeper waits before its next tick."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings, strategies as st

from horae.timing.duration import delay_after, delay_after_failures, first_delay
from scale import scaled

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
BREATHER = 45 * SECOND
CAP = 30 * MINUTE

LENGTHS = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=400))
COUNTS = st.integers(0, 10**9)


@pytest.mark.parametrize(
    ("streak", "delay"),
    [
        (0, 45 * SECOND),
        (1, 1 * MINUTE),
        (2, 2 * MINUTE),
        (3, 4 * MINUTE),
        (4, 8 * MINUTE),
        (5, 16 * MINUTE),
        (6, 30 * MINUTE),
        (7, 30 * MINUTE),
        (10**9, 30 * MINUTE),
    ],
)
def test_an_idle_keeper_quiets_itself(streak: int, delay: timedelta) -> None:
    assert delay_after(BREATHER, streak) == delay


@pytest.mark.parametrize(
    ("failures", "delay"),
    [
        (0, 45 * SECOND),
        (1, 45 * SECOND),
        (3, 45 * SECOND),
        (4, 1 * MINUTE),
        (5, 2 * MINUTE),
        (8, 16 * MINUTE),
        (9, 30 * MINUTE),
        (10**9, 30 * MINUTE),
    ],
)
def test_three_failures_are_forgiven_and_more_slow_it_down(failures: int, delay: timedelta) -> None:
    assert delay_after_failures(BREATHER, failures) == delay


def test_the_cap_is_on_the_backoff_and_not_on_the_base() -> None:
    assert {delay_after(HOUR, n) for n in range(20)} == {HOUR}
    assert {delay_after_failures(HOUR, n) for n in range(20)} == {HOUR}
    assert delay_after(10 * MINUTE, 4) == 10 * MINUTE
    assert delay_after(10 * MINUTE, 5) == 16 * MINUTE


@pytest.mark.parametrize(
    ("elapsed", "delay"),
    [
        (None, MINUTE),
        (timedelta(0), HOUR),
        (40 * MINUTE, 20 * MINUTE),
        (59 * MINUTE + 30 * SECOND, MINUTE),
        (HOUR, MINUTE),
        (timedelta(days=365), MINUTE),
        (-SECOND, HOUR),
        (timedelta(days=-3650), HOUR),
    ],
)
def test_a_restart_waits_only_for_what_is_left(elapsed: timedelta | None, delay: timedelta) -> None:
    assert first_delay(HOUR, elapsed) == delay


def test_a_restart_never_hurries_a_short_interval() -> None:
    assert first_delay(BREATHER, timedelta(0)) == MINUTE


@given(LENGTHS, COUNTS)
@settings(max_examples=scaled(5000), deadline=None)
def test_waits_grow_with_the_streak_between_base_and_cap(base: timedelta, streak: int) -> None:
    for rule in (delay_after, delay_after_failures):
        assert base <= rule(base, streak) <= rule(base, streak + 1) <= max(base, CAP)


@given(LENGTHS, st.timedeltas())
@settings(max_examples=scaled(5000), deadline=None)
def test_a_restart_waits_a_minute_at_least_and_an_interval_at_most(
    interval: timedelta, elapsed: timedelta
) -> None:
    assert MINUTE <= first_delay(interval, elapsed) <= max(MINUTE, interval)
