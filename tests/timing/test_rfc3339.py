"""Moments as RFC 3339 writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st

from horae.core.entry import key_time
from horae.errors import ScheduleError
from horae.timing.zone import Rfc3339Error, format_with_offset, parse_rfc3339
from scale import scaled


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-04-01T09:00:00Z", "2026-04-01T09:00:00+00:00"),
        ("2026-04-01T09:00:00+00:00", "2026-04-01T09:00:00+00:00"),
        ("2026-04-01T05:00:00-04:00", "2026-04-01T09:00:00+00:00"),
        ("2026-03-25T09:00:00-04:00", "2026-03-25T13:00:00+00:00"),
        ("2026-04-01t09:00:00z", "2026-04-01T09:00:00+00:00"),
        ("2026-04-01T09:00:00.5Z", "2026-04-01T09:00:00.500000+00:00"),
        ("2026-04-01T09:00:00.123456789Z", "2026-04-01T09:00:00.123456+00:00"),
        ("2026-04-01T09:00:00." + "9" * 5000 + "Z", "2026-04-01T09:00:00.999999+00:00"),
        ("2026-04-01T09:00:00-23:59", "2026-04-02T08:59:00+00:00"),
        ("2024-02-29T00:00:00+05:45", "2024-02-28T18:15:00+00:00"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+00:00"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59+00:00"),
        # A leap second is the second after it, as in Unix time.
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00+00:00"),
        ("2016-12-31T18:59:60.25-05:00", "2017-01-01T00:00:00.250000+00:00"),
        ("1990-07-01T05:44:60+05:45", "1990-07-01T00:00:00+00:00"),
    ],
)
def test_a_moment_is_read(text: str, utc: str) -> None:
    assert parse_rfc3339(text).astimezone(UTC).isoformat() == utc


@pytest.mark.parametrize(
    ("reason", "texts"),
    [
        (
            "cannot be read; write it like 2026-04-01T09:00:00Z",
            [
                "",
                "not-a-date",
                " 2026-04-01T09:00:00Z",
                "２026-04-01T09:00:00Z",
                "12026-04-01T09:00:00Z",
                "2026-4-1T09:00:00Z",
                "20260401T090000Z",
                "2026-04-01 09:00:00Z",
                "2026-04-01T9:00:00Z",
                "2026-04-01T09:00Z",
                "2026-04-01T09:00:00-0400",
                "2026-04-01T09:00:00+02",
                "2026-04-01T09:00:00 UTC",
                "2026-04-01T09:00:00,5Z",
                "2026-04-01T09:00:00\N{MINUS SIGN}04:00",
                "2026-04-01T09:00:00.Z",
                "2026-04-01T09:00:00Z ",
                "2026-04-01T09:00:00Z\n",
                "2026-04-01T09:00:00+02:00[Europe/Berlin]",
                "2026-04-01T09:00:00+24:00",
                "2026-04-01T09:00:00.25+02:60",
            ],
        ),
        ("has no time of day; write it like 2026-04-01T09:00:00Z", ["2026-04-01"]),
        (
            "has no offset; end with Z, or with an offset such as +02:00",
            [
                "2026-04-01T09:00:00",
                "2026-04-01T09:00:00.5",
            ],
        ),
        (
            "the date or the time of day does not exist",
            [
                "0000-01-01T00:00:00Z",
                "2026-13-01T09:00:00Z",
                "2026-00-01T09:00:00Z",
                "2026-02-29T09:00:00Z",
                "2026-04-31T09:00:00Z",
                "2026-04-00T09:00:00Z",
                "2026-04-01T24:00:00Z",
                "2026-04-01T09:60:00Z",
                "2026-04-01T09:00:61Z",
                "0001-01-01T00:00:00+00:01",
                "9999-12-31T23:59:59-00:01",
                "9999-12-31T23:59:60Z",
            ],
        ),
        (
            "has a leap second, which exists only at 23:59:60 UTC at the end of a month",
            [
                "2026-04-01T09:00:60Z",
                "2016-12-31T23:59:60-05:00",
                "2016-12-30T23:59:60Z",
            ],
        ),
    ],
)
def test_what_is_wrong_is_said_with_what_would_be_right(reason: str, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(Rfc3339Error) as caught:
            parse_rfc3339(text)
        assert (text, caught.value.reason) == (text, reason)


def test_a_refusal_is_a_schedule_error_whose_message_stays_short() -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_rfc3339("2026" * 10_000)
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-25T09:00:00-04:00",
        "2026-03-25T09:00:00Z",
        "2026-03-25T09:00:00+00:00",
        "2026-03-25T09:00:00-00:00",
        "2026-03-25T09:00:00+05:45",
        "2026-03-25T09:00:00.000001-23:59",
        "0999-03-25T09:00:00Z",
    ],
)
def test_the_offset_is_kept_as_it_was_written(text: str) -> None:
    assert format_with_offset(parse_rfc3339(text)) == text


def test_three_ways_to_write_no_offset_are_one_moment() -> None:
    moments = {parse_rfc3339(f"2026-03-25T09:00:00{zero}") for zero in ("Z", "+00:00", "-00:00")}
    assert len(moments) == 1


def test_keys_are_in_utc_and_whole_seconds() -> None:
    assert key_time(parse_rfc3339("2026-03-25T09:00:00.999-04:00")) == "2026-03-25T13:00:00Z"
    assert key_time(parse_rfc3339("0009-03-25T09:00:00Z")) == "0009-03-25T09:00:00Z"
    berlin = datetime(2026, 6, 6, 6, tzinfo=ZoneInfo("Europe/Berlin"))
    assert key_time(berlin) == "2026-06-06T04:00:00Z"
    assert format_with_offset(berlin) == "2026-06-06T06:00:00+02:00"


def test_an_offset_with_seconds_cannot_be_written_so_utc_is() -> None:
    odd = datetime(1900, 1, 1, tzinfo=timezone(timedelta(minutes=19, seconds=32)))
    assert format_with_offset(odd) == "1899-12-31T23:40:28Z"


def test_a_time_without_a_zone_is_no_moment() -> None:
    for show in (key_time, format_with_offset):
        with pytest.raises(ValueError, match="the time needs a time zone"):
            show(datetime.fromisoformat("2026-03-25T09:00:00"))


OFFSETS = st.integers(-1439, 1439).map(lambda m: timezone(timedelta(minutes=m)))
MOMENTS = st.datetimes(
    min_value=datetime.fromisoformat("0002-01-01"),
    max_value=datetime.fromisoformat("9998-01-01"),
    timezones=OFFSETS,
)


@given(MOMENTS)
@settings(max_examples=scaled(5000), deadline=None)
def test_what_is_written_reads_back_the_same(moment: datetime) -> None:
    again = parse_rfc3339(format_with_offset(moment))
    assert (again, again.utcoffset()) == (moment, moment.utcoffset())
    assert parse_rfc3339(key_time(moment)) == moment.replace(microsecond=0)


@st.composite
def slips(draw: st.DrawFn) -> str:
    """Draw a moment in which one character went wrong."""
    text, place = format_with_offset(draw(MOMENTS)), draw(st.integers(0, 31))
    slip: str = draw(st.sampled_from([*"0123456789TtZz+-:. \n", "", "00"]))
    return text[:place] + slip + text[place + 1 :]


@given(slips() | st.text(max_size=40))
@settings(max_examples=scaled(5000), deadline=None)
def test_any_text_is_refused_or_means_what_python_reads(text: str) -> None:
    try:
        read = parse_rfc3339(text)
    except Rfc3339Error:
        return
    if ":60" not in text:
        assert read == datetime.fromisoformat(text.upper())
