"""Lengths of time as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings, strategies as st

from horae.errors import ScheduleError
from horae.timing.duration import (
    LONGEST,
    DurationError,
    format_duration,
    parse_cadence,
    parse_duration,
)
from scale import scaled

MILLISECOND = timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("1s", timedelta(seconds=1)),
        ("90s", timedelta(seconds=90)),
        ("10m", timedelta(minutes=10)),
        ("2h", timedelta(hours=2)),
        ("3d", timedelta(days=3)),
        ("1w", timedelta(weeks=1)),
        ("250ms", timedelta(milliseconds=250)),
        ("1h30m", timedelta(minutes=90)),
        ("1w2d3h4m5s6ms", timedelta(9, 5, 0, 6, 4, 3)),
        ("1m1ms", timedelta(minutes=1, milliseconds=1)),
        ("90m", timedelta(minutes=90)),
        ("007s", timedelta(seconds=7)),
        ("0" * 5000 + "7s", timedelta(seconds=7)),
        ("36525d", LONGEST),
    ],
)
def test_a_setting_names_its_units(text: str, length: timedelta) -> None:
    assert parse_duration(text) == length


@pytest.mark.parametrize(
    ("text", "reason", "suggestion"),
    [
        ("", "is empty", "a number and a unit, such as 10m"),
        ("10", "has no unit", "10s or 10m"),
        ("-5m", "must not have a sign", "5m"),
        ("+5m", "must not have a sign", "5m"),
        ("1.5h", "must be numbers with units,", "1h30m"),
        ("10 min", "must be numbers with units,", "10m"),
        ("2 weeks 1 day", "must be numbers with units,", "15d"),
        ("10M", "must be numbers with units,", "10m"),
        ("1h 30m", "must be numbers with units,", "1h30m"),
        ("30m1h", "must be numbers with units,", "1h30m"),
        ("1h1h", "must be numbers with units,", "2h"),
        (" 10m", "must be numbers with units,", "10m"),
        ("10m\n", "must be numbers with units,", "10m"),
        ("10x", "must be numbers with units,", None),
        ("m", "must be numbers with units,", None),
        ("1e3s", "must be numbers with units,", None),
        ("１０m", "must be numbers with units,", None),
        ("٣d", "must be numbers with units,", None),
        ("0s", "must not be zero", "1s or more"),
        ("0h0m", "must not be zero", "1s or more"),
        ("36526d", "must not be longer than 100 years", None),
        ("5219w", "must not be longer than 100 years", None),
        ("9" * 5000 + "s", "must not be longer than 100 years", None),
        ("9" * 5000, "must be numbers with units,", None),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_would_be_right(
    text: str, reason: str, suggestion: str | None
) -> None:
    with pytest.raises(DurationError) as caught:
        parse_duration(text)
    assert caught.value.reason.startswith(reason)
    assert caught.value.suggestion == suggestion
    assert len(str(caught.value)) < 200


def test_zero_is_read_where_it_means_something() -> None:
    assert parse_duration("0s", allow_zero=True) == timedelta(0)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("10m", timedelta(minutes=10)),
        ("2h", timedelta(hours=2)),
        ("90s", timedelta(seconds=90)),
        ("45000", timedelta(seconds=45)),
        ("3600000", timedelta(hours=1)),
        ("1", MILLISECOND),
        ("3155760000000", LONGEST),
        ("10 m", timedelta(minutes=10)),
        ("10  m", timedelta(minutes=10)),
        ("10\tm", timedelta(minutes=10)),
        ("010m", timedelta(minutes=10)),
    ],
)
def test_a_keeper_counts_bare_numbers_as_milliseconds(text: str, length: timedelta) -> None:
    assert parse_cadence(text) == length


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("3d", "72h"),
        ("1w", "168h"),
        ("1h30m", "90m"),
        ("1.5h", "90m"),
        ("10M", "10m"),
        ("10 min", "10m"),
        ("500ms", "500"),
        ("-5m", "5m"),
        ("+5", "a number and a unit, such as 10m"),
        ("", "a number and a unit, such as 10m"),
        ("ten minutes", "a number and a unit, such as 10m"),
        ("１０m", "a number and a unit, such as 10m"),
        ("0", "1s or more"),
        ("0h", "1s or more"),
        ("9" * 5000, None),
        ("10m\n", "10m"),
    ],
)
def test_a_keeper_knows_seconds_minutes_and_hours_alone(text: str, suggestion: str | None) -> None:
    with pytest.raises(DurationError) as caught:
        parse_cadence(text)
    assert caught.value.suggestion == suggestion


def test_a_refusal_is_a_schedule_error_with_its_facts() -> None:
    with pytest.raises(ScheduleError, match="duration '10': has no unit; write 10s or 10m"):
        parse_duration("10")


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(microseconds=999), "0s"),
        (timedelta(microseconds=-999), "0s"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(hours=36), "1d12h"),
        (timedelta(days=7), "1w"),
        (timedelta(days=8), "8d"),
        (timedelta(seconds=1, milliseconds=500), "1s500ms"),
        (timedelta(minutes=-20), "-20m"),
    ],
)
def test_a_length_is_shown_as_a_setting_would_name_it(length: timedelta, text: str) -> None:
    assert format_duration(length) == text


@given(st.timedeltas(min_value=MILLISECOND, max_value=LONGEST))
@settings(max_examples=scaled(5000), deadline=None)
def test_what_is_shown_reads_back_the_same(length: timedelta) -> None:
    assert parse_duration(format_duration(length)) == length - length % MILLISECOND


@given(st.text(alphabet="0123456789 .smhdw+-\tµ٣", max_size=12) | st.text(max_size=12))
@settings(max_examples=scaled(5000), deadline=None)
def test_any_text_is_read_or_refused_and_advice_is_always_right(text: str) -> None:
    for parse in (parse_duration, parse_cadence):
        try:
            assert timedelta(0) < parse(text) <= LONGEST
        except DurationError as refused:
            advice = refused.suggestion
            if advice and " " not in advice:
                assert parse(advice) > timedelta(0)
