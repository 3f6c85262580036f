"""Counting the moments of a cron rule without walking them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st

from cron_oracle import clock_changes, fires, rule
from horae.timing.cron import Cron, count_any
from scale import scaled

SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)
TINY = timedelta(microseconds=1)

# An hour, half an hour, two hours, a lost day, a fold at midnight, and no change at all.
ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "Pacific/Apia",
    "America/Santiago",
    "Africa/Cairo",
    "Asia/Kathmandu",
)


def at(text: str, zone: str = "UTC") -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))


CHANGES = {
    zone: clock_changes(zone, at("2010-01-01T00:00"), at("2014-01-01T00:00")) or [at("2012-02-28")]
    for zone in ZONES
}


def walked(cron: Cron, start: datetime, end: datetime) -> int:
    return sum(1 for _ in cron.between(start, end))


def item(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    span = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    step = st.integers(1, high).map(lambda every: f"*/{every}")
    return st.one_of(st.just("*"), number.map(str), span, step)


def field(low: int, high: int) -> st.SearchStrategy[str]:
    return st.one_of(item(low, high), st.lists(item(low, high), min_size=1).map(",".join))


DAYS = st.sampled_from(["*", "*", "*", "?", "L", "LW", "15W", "L-3", "1-7", "13", "28-31"])
WEEKDAYS = st.sampled_from(["*", "*", "*", "?", "MON-FRI", "5#2", "1L", "SUN", "2,4"])
MONTHS = st.sampled_from(["*", "*", "*", "3-4", "10,11", "12", "4"])
BY_MINUTES = st.tuples(field(0, 59), field(0, 23), DAYS, MONTHS, WEEKDAYS).map(" ".join)
BY_SECONDS = st.tuples(field(0, 59), BY_MINUTES).map(" ".join)
BY_YEARS = st.tuples(BY_SECONDS, st.sampled_from(["*", "2011", "2010-2012/2"])).map(" ".join)
NEAR = st.timedeltas(-2 * DAY, 2 * DAY)
ROUND = st.timedeltas(-2 * DAY, 2 * DAY).map(lambda off: timedelta(minutes=off // (60 * SECOND)))


@st.composite
def windows(draw: st.DrawFn, longest: timedelta) -> tuple[str, datetime, datetime]:
    """Draw a zone and a window that begins near one of its clock changes."""
    zone = draw(st.sampled_from(ZONES))
    start = draw(st.sampled_from(CHANGES[zone])) + draw(st.one_of(NEAR, ROUND))
    return zone, start, start + draw(st.timedeltas(timedelta(), longest))


@given(BY_MINUTES, windows(longest=4 * DAY))
@settings(max_examples=scaled(3_000), deadline=None)
def test_as_many_are_counted_as_are_walked(
    expression: str, window: tuple[str, datetime, datetime]
) -> None:
    zone, start, end = window
    cron = Cron(expression, zone=zone)
    assert count_any([cron], start, end) == walked(cron, start, end)


@given(st.one_of(BY_SECONDS, BY_YEARS), windows(longest=4 * HOUR))
@settings(max_examples=scaled(3_000), deadline=None)
def test_seconds_and_years_are_counted_as_they_are_walked(
    expression: str, window: tuple[str, datetime, datetime]
) -> None:
    zone, start, end = window
    cron = Cron(expression, zone=zone)
    assert count_any([cron], start, end) == walked(cron, start, end)


@given(BY_SECONDS, windows(longest=3_650 * DAY), st.floats(0, 1))
@settings(max_examples=scaled(3_000), deadline=None)
def test_a_window_cut_anywhere_counts_the_same(
    expression: str, window: tuple[str, datetime, datetime], where: float
) -> None:
    zone, start, end = window
    cron = Cron(expression, zone=zone)
    middle = start + (end - start) * where
    assert count_any([cron], start, middle) + count_any([cron], middle, end) == count_any(
        [cron], start, end
    )


@pytest.mark.parametrize("zone", ZONES)
def test_what_is_counted_is_what_a_clock_on_the_wall_would_show(zone: str) -> None:
    pool = random.Random(zone)
    expressions = ["30 2 * * *", "*/20 * * * *", "0 0 * * *", "30 23 * * *", "15 1,2,3 * * *"]
    for change in pool.sample(CHANGES[zone], k=min(2, len(CHANGES[zone]))):
        start, end = change - DAY, change + DAY
        seen = fires([rule(expression) for expression in expressions], zone, start, end)
        counted = [
            count_any([Cron(expression, zone=zone)], start, end) for expression in expressions
        ]
        assert counted == [len(moments) for moments in seen]


@pytest.mark.parametrize("zone", ["UTC", *ZONES])
def test_ten_years_of_every_minute_are_the_minutes_of_ten_years(zone: str) -> None:
    start, end = at("2016-06-10T12:00"), at("2026-06-10T12:00")
    # What a gap leaves out a fold gives back, and a moment is a minute on any wall.
    assert count_any([Cron("* * * * *", zone=zone)], start, end) == (end - start) // timedelta(
        minutes=1
    )
    assert count_any([Cron("* * * * * *", zone=zone)], start, end) == (end - start) // SECOND


def test_ten_years_of_one_time_a_day_are_the_days_of_ten_years() -> None:
    start, end = at("2016-06-10T12:00"), at("2026-06-10T12:00")
    for zone in ("UTC", "Europe/Berlin", "America/New_York", "Antarctica/Troll"):
        # Half past two is left out by ten gaps and repeated by ten folds.
        assert count_any([Cron("30 2 * * *", zone=zone)], start, end) == (end - start).days


def test_the_lost_day_of_apia_has_one_moment_at_its_end() -> None:
    daily = Cron("0 9 * * *", zone="Pacific/Apia")
    start, end = at("2011-12-29T00:00", "Pacific/Apia"), at("2012-01-01T00:00", "Pacific/Apia")
    # The 29th, the 30th at the jump, and the 31st.
    assert count_any([daily], start, end) == 3


def test_a_window_that_begins_in_the_second_pass_counts_nothing_that_has_been() -> None:
    fixed = Cron("30 2 * * *", zone="Europe/Berlin")
    first, second = at("2026-10-25T00:30"), at("2026-10-25T01:30")  # half past two on the wall
    assert count_any([fixed], first - TINY, first) == 1
    assert count_any([fixed], second - HOUR / 3, second + HOUR / 3) == 0
    starred = Cron("30 * * * *", zone="Europe/Berlin")
    assert count_any([starred], second - HOUR / 3, second + HOUR / 3) == 1


def test_the_start_is_left_out_and_the_end_is_not() -> None:
    hourly = Cron("0 * * * *")
    noon = at("2026-06-10T12:00")
    assert count_any([hourly], noon, noon + HOUR) == 1
    assert count_any([hourly], noon - TINY, noon + HOUR) == 2
    assert count_any([hourly], noon, noon + HOUR - TINY) == 0
    assert count_any([hourly], noon - TINY, noon) == 1
    assert count_any([hourly], noon, noon) == 0


def test_a_window_that_ends_before_it_begins_is_empty() -> None:
    noon = at("2026-06-10T12:00")
    assert count_any([Cron("* * * * * *")], noon, noon - DAY) == 0


def test_a_rule_that_never_comes_counts_nothing() -> None:
    assert count_any([Cron("0 0 30 2 *")], at("1970-01-01T00:00"), at("2199-01-01T00:00")) == 0


def test_a_count_needs_a_moment_with_a_zone() -> None:
    naive = datetime.fromisoformat("2026-06-10T12:00")
    with pytest.raises(ValueError, match="count needs a time with a time zone"):
        count_any([Cron("* * * * *")], naive, at("2026-06-11T12:00"))


@pytest.mark.parametrize("year", [1, 9998])
def test_the_first_and_the_last_year_are_counted_as_they_are_walked(year: int) -> None:
    start = datetime(year, 12, 25, tzinfo=UTC)
    end = start + 14 * DAY if year == 9998 else start + DAY
    daily = Cron("0 9 * * *")
    assert count_any([daily], start, end) == walked(daily, start, end)


def test_a_window_may_reach_to_the_end_of_the_calendar() -> None:
    end = datetime.max.replace(tzinfo=UTC)
    yearly, start = Cron("0 0 1 1 *"), at("2026-01-01T12:00")
    assert count_any([yearly], start, end) == walked(yearly, start, end) == 9998 - 2026
