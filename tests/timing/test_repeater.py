"""Repeaters: what `+1d`, `++1w` and `.+2d/4d` mean, and when they come round."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from itertools import islice, pairwise, takewhile
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st

from horae.errors import ScheduleError
from horae.timing import repeater as repeaters
from horae.timing.repeater import (
    Interval,
    Repeater,
    RepeaterError,
    RepeaterKind,
    TimestampError,
    Unit,
    parse_at,
    parse_repeater,
    repeat,
)
from horae.timing.zone import ZoneError, instant
from scale import scaled

if TYPE_CHECKING:
    from collections.abc import Iterator

UTC = ZoneInfo("UTC")
BERLIN = ZoneInfo("Europe/Berlin")
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


NOON = at("2026-06-10T12:00Z")  # a Wednesday


# --- as Emacs gives it ---------------------------------------------------------------

# Each line was put on a headline and the headline marked done in GNU Emacs 28.2 with
# Org 9.5.5, the clock of the machine standing at NOON in UTC.
EMACS = """
<2026-06-06 Sat 06:00 +1d>          <2026-06-07 Sun 06:00 +1d>
<2026-06-06 Sat 06:00 ++1d>         <2026-06-11 Thu 06:00 ++1d>
<2026-06-06 Sat 06:00 .+1d>         <2026-06-11 Thu 06:00 .+1d>
<2026-06-06 Sat +1d>                <2026-06-07 Sun +1d>
<2026-06-06 Sat ++1d>               <2026-06-11 Thu ++1d>
<2026-06-06 Sat .+1d>               <2026-06-11 Thu .+1d>
<2026-06-06 Sat 06:00 +10d>         <2026-06-16 Tue 06:00 +10d>
<2026-06-06 Sat 06:00 ++3d>         <2026-06-12 Fri 06:00 ++3d>
<2026-06-06 Sat 06:00 .+3d>         <2026-06-13 Sat 06:00 .+3d>
<2026-06-09 Tue ++1d>               <2026-06-11 Thu ++1d>
<2026-06-10 Wed ++1d>               <2026-06-11 Thu ++1d>
<2026-06-11 Thu ++1d>               <2026-06-12 Fri ++1d>
<2026-06-10 Wed 12:00 ++1d>         <2026-06-11 Thu 12:00 ++1d>
<2026-06-10 Wed 12:01 ++1d>         <2026-06-11 Thu 12:01 ++1d>
<2026-06-09 Tue 12:00 ++1d>         <2026-06-11 Thu 12:00 ++1d>
<2026-06-09 Tue 12:01 ++1d>         <2026-06-10 Wed 12:01 ++1d>
<2026-06-20 Sat 06:00 +1d>          <2026-06-21 Sun 06:00 +1d>
<2026-06-20 Sat 06:00 ++1d>         <2026-06-21 Sun 06:00 ++1d>
<2026-06-20 Sat 06:00 .+1d>         <2026-06-11 Thu 06:00 .+1d>
<2026-06-06 Sat 06:00 +1w>          <2026-06-13 Sat 06:00 +1w>
<2026-06-06 Sat 06:00 ++1w>         <2026-06-13 Sat 06:00 ++1w>
<2026-06-06 Sat 06:00 .+1w>         <2026-06-17 Wed 06:00 .+1w>
<2026-03-01 Sun 09:00 ++2w>         <2026-06-21 Sun 09:00 ++2w>
<2026-03-01 Sun 09:00 +2w>          <2026-03-15 Sun 09:00 +2w>
<2016-06-06 Mon 06:00 ++1d>         <2026-06-11 Thu 06:00 ++1d>
<2026-06-06 Sat 06:00 +1h>          <2026-06-06 Sat 07:00 +1h>
<2026-06-06 Sat 23:30 +1h>          <2026-06-07 Sun 00:30 +1h>
<2026-06-06 Sat 06:00 +36h>         <2026-06-07 Sun 18:00 +36h>
<2026-06-06 Sat 06:00 ++5h>         <2026-06-10 Wed 15:00 ++5h>
<2026-06-10 Wed 11:00 ++1h>         <2026-06-10 Wed 13:00 ++1h>
<2026-06-10 Wed 12:00 ++1h>         <2026-06-10 Wed 13:00 ++1h>
<2026-06-10 Wed 11:59 ++1h>         <2026-06-10 Wed 12:59 ++1h>
<2026-06-06 Sat 06:00 .+5h>         <2026-06-10 Wed 17:00 .+5h>
<2026-06-20 Sat 06:00 .+5h>         <2026-06-10 Wed 17:00 .+5h>
<2026-12-31 Thu 23:00 +2h>          <2027-01-01 Fri 01:00 +2h>
<2026-01-31 Sat 06:00 +1m>          <2026-03-03 Tue 06:00 +1m>
<2026-01-30 Fri 06:00 +1m>          <2026-03-02 Mon 06:00 +1m>
<2026-01-29 Thu 06:00 +1m>          <2026-03-01 Sun 06:00 +1m>
<2026-01-28 Wed 06:00 +1m>          <2026-02-28 Sat 06:00 +1m>
<2024-01-31 Wed +1m>                <2024-03-02 Sat +1m>
<2024-01-30 Tue +1m>                <2024-03-01 Fri +1m>
<2024-01-29 Mon +1m>                <2024-02-29 Thu +1m>
<2026-03-31 Tue +1m>                <2026-05-01 Fri +1m>
<2026-05-31 Sun +1m>                <2026-07-01 Wed +1m>
<2026-08-31 Mon +1m>                <2026-10-01 Thu +1m>
<2026-12-31 Thu +1m>                <2027-01-31 Sun +1m>
<2026-12-31 Thu +2m>                <2027-03-03 Wed +2m>
<2026-10-31 Sat +4m>                <2027-03-03 Wed +4m>
<2026-01-31 Sat +13m>               <2027-03-03 Wed +13m>
<2025-01-31 Fri 06:00 ++1m>         <2026-07-03 Fri 06:00 ++1m>
<2026-01-31 Sat 06:00 ++1m>         <2026-07-03 Fri 06:00 ++1m>
<2026-03-31 Tue 06:00 ++1m>         <2026-07-01 Wed 06:00 ++1m>
<2026-01-15 Thu 06:00 ++1m>         <2026-06-15 Mon 06:00 ++1m>
<2026-05-10 Sun 12:00 ++1m>         <2026-07-10 Fri 12:00 ++1m>
<2026-05-10 Sun 12:01 ++1m>         <2026-06-10 Wed 12:01 ++1m>
<2026-01-31 Sat 06:00 ++2m>         <2026-07-31 Fri 06:00 ++2m>
<2026-01-31 Sat 06:00 .+1m>         <2026-07-10 Fri 06:00 .+1m>
<2024-02-29 Thu +1y>                <2025-03-01 Sat +1y>
<2024-02-29 Thu +4y>                <2028-02-29 Tue +4y>
<2024-02-29 Thu ++1y>               <2027-03-01 Mon ++1y>
<2024-02-29 Thu .+1y>               <2027-06-10 Thu .+1y>
<2096-02-29 Wed +4y>                <2100-03-01 Mon +4y>
<2020-02-29 Sat ++2y>               <2028-03-01 Wed ++2y>
<2020-06-10 Wed 12:00 ++1y>         <2027-06-10 Thu 12:00 ++1y>
<2026-06-06 Sat 06:00 +12m>         <2027-06-06 Sun 06:00 +12m>
<2024-02-29 Thu +12m>               <2025-03-01 Sat +12m>
<2026-06-06 Sat 06:00-07:30 +1d>    <2026-06-07 Sun 06:00-07:30 +1d>
<2026-06-06 Sat 06:00-07:30 ++1w>   <2026-06-13 Sat 06:00-07:30 ++1w>
<2026-06-06 Sat 06:00-07:30 .+1m>   <2026-07-10 Fri 06:00-07:30 .+1m>
<2026-06-06 Sat 06:00-07:30 +1h>    <2026-06-06 Sat 07:00-08:30 +1h>
<2026-06-06 Sat 06:00-07:30 ++5h>   <2026-06-10 Wed 15:00-16:30 ++5h>
<2026-06-06 Sat 22:00-23:30 +2h>    <2026-06-07 Sun 00:00-01:30 +2h>
<2026-06-06 Sat 22:00-01:30 +1d>    <2026-06-07 Sun 22:00-01:30 +1d>
<2026-06-06 Sat 06:00 +1d -2d>      <2026-06-07 Sun 06:00 +1d -2d>
<2026-06-06 Sat 06:00 +1d --2d>     <2026-06-07 Sun 06:00 +1d>
<2026-06-06 Sat 06:00 .+2d/4d>      <2026-06-12 Fri 06:00 .+2d/4d>
<2026-06-06 Sat 06:00 ++2d/4d>      <2026-06-12 Fri 06:00 ++2d/4d>
<2026-06-06 Sat 06:00 +2d/4d>       <2026-06-08 Mon 06:00 +2d/4d>
<2026-06-06 Sat 06:00 ++2d/4d -1d>  <2026-06-12 Fri 06:00 ++2d/4d -1d>
<2026-06-06 Sat .+1w/10d>           <2026-06-17 Wed .+1w/10d>
<2026-06-06 Wed 06:00 +1d>          <2026-06-07 Sun 06:00 +1d>
<2026-06-06 Sa 06:00 +1d>           <2026-06-07 Sun 06:00 +1d>
"""

# Each date was marked done eight times in a row, in the same Emacs.
EMACS_AGAIN = """
2026-01-31 +1m  2026-03-03 2026-04-03 2026-05-03 2026-06-03 2026-07-03 2026-08-03 2026-09-03 2026-10-03
2026-01-30 +1m  2026-03-02 2026-04-02 2026-05-02 2026-06-02 2026-07-02 2026-08-02 2026-09-02 2026-10-02
2026-01-29 +1m  2026-03-01 2026-04-01 2026-05-01 2026-06-01 2026-07-01 2026-08-01 2026-09-01 2026-10-01
2024-01-31 +1m  2024-03-02 2024-04-02 2024-05-02 2024-06-02 2024-07-02 2024-08-02 2024-09-02 2024-10-02
2023-10-31 +1m  2023-12-01 2024-01-01 2024-02-01 2024-03-01 2024-04-01 2024-05-01 2024-06-01 2024-07-01
2026-03-31 +1m  2026-05-01 2026-06-01 2026-07-01 2026-08-01 2026-09-01 2026-10-01 2026-11-01 2026-12-01
2026-01-31 +2m  2026-03-31 2026-05-31 2026-07-31 2026-10-01 2026-12-01 2027-02-01 2027-04-01 2027-06-01
2026-07-31 +5m  2026-12-31 2027-05-31 2027-10-31 2028-03-31 2028-08-31 2029-01-31 2029-07-01 2029-12-01
2026-01-31 +12m 2027-01-31 2028-01-31 2029-01-31 2030-01-31 2031-01-31 2032-01-31 2033-01-31 2034-01-31
2025-08-29 +6m  2026-03-01 2026-09-01 2027-03-01 2027-09-01 2028-03-01 2028-09-01 2029-03-01 2029-09-01
2025-08-31 +6m  2026-03-03 2026-09-03 2027-03-03 2027-09-03 2028-03-03 2028-09-03 2029-03-03 2029-09-03
2027-12-29 +2m  2028-02-29 2028-04-29 2028-06-29 2028-08-29 2028-10-29 2028-12-29 2029-03-01 2029-05-01
2024-02-29 +1y  2025-03-01 2026-03-01 2027-03-01 2028-03-01 2029-03-01 2030-03-01 2031-03-01 2032-03-01
2024-02-29 +4y  2028-02-29 2032-02-29 2036-02-29 2040-02-29 2044-02-29 2048-02-29 2052-02-29 2056-02-29
2072-02-29 +4y  2076-02-29 2080-02-29 2084-02-29 2088-02-29 2092-02-29 2096-02-29 2100-03-01 2104-03-01
2024-02-29 +8y  2032-02-29 2040-02-29 2048-02-29 2056-02-29 2064-02-29 2072-02-29 2080-02-29 2088-02-29
2024-02-29 +3y  2027-03-01 2030-03-01 2033-03-01 2036-03-01 2039-03-01 2042-03-01 2045-03-01 2048-03-01
2023-11-29 +1m  2023-12-29 2024-01-29 2024-02-29 2024-03-29 2024-04-29 2024-05-29 2024-06-29 2024-07-29
2023-10-29 +4m  2024-02-29 2024-06-29 2024-10-29 2025-03-01 2025-07-01 2025-11-01 2026-03-01 2026-07-01
"""


@pytest.mark.parametrize("row", EMACS.strip().splitlines())
def test_a_stamp_moves_as_in_emacs(row: str) -> None:
    written, moved = re.findall("<.*?>", row)
    assert repeat(written, now=NOON) == moved


@pytest.mark.parametrize("row", EMACS_AGAIN.strip().splitlines())
def test_a_stamp_moves_on_and_on_as_in_emacs(row: str) -> None:
    anchor, repeater, *dates = row.split()
    grid = parse_repeater(repeater)
    assert [str(date_of(grid.nth(at(anchor), n))) for n in range(9)] == [anchor, *dates]


def date_of(wall: datetime | None) -> date:
    assert wall is not None
    return wall.date()


@pytest.mark.parametrize(
    ("stamp", "now", "zone", "moved"),
    [
        # Emacs would write 03:30 here, and stay there for good.
        (
            "<2026-03-28 Sat 02:30 +1d>",
            "2026-03-28T12:00Z",
            "Europe/Berlin",
            "<2026-03-29 Sun 02:30 +1d>",
        ),
        # Emacs would write 09:27, as it counts the minutes since Friday, 25 hours of Sunday.
        (
            "<2026-10-23 Fri 07:35 .+1h>",
            "2026-10-27T06:27:43Z",
            "Europe/Berlin",
            "<2026-10-27 Tue 08:27 .+1h>",
        ),
        # Emacs would end the range at 12:35.
        (
            "<2026-06-06 Sat 06:00-07:30 .+5h>",
            "2026-06-10T12:00Z",
            "UTC",
            "<2026-06-10 Wed 17:00-18:30 .+5h>",
        ),
        # Org from 9.7 on would move past today, and not only past now.
        (
            "<2026-06-06 Sat 18:00 ++1d>",
            "2026-06-10T12:00Z",
            "UTC",
            "<2026-06-10 Wed 18:00 ++1d>",
        ),
        # Emacs would add a day name.
        ("<2026-06-06 06:00 +1d>", "2026-06-10T12:00Z", "UTC", "<2026-06-07 06:00 +1d>"),
        # Emacs would follow the first of two repeaters; the plan's reader knows the last.
        (
            "<2026-06-06 Sat 06:00 +1d +1w>",
            "2026-06-10T12:00Z",
            "UTC",
            "<2026-06-13 Sat 06:00 +1d +1w>",
        ),
        # Emacs would lose a time that stands after the repeater.
        (
            "<2026-06-06 Sat +1d 06:00>",
            "2026-06-10T12:00Z",
            "UTC",
            "<2026-06-07 Sun +1d 06:00>",
        ),
    ],
)
def test_where_we_leave_emacs_it_is_on_purpose(stamp: str, now: str, zone: str, moved: str) -> None:
    assert repeat(stamp, now=at(now), zone=zone) == moved


# --- reading -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "repeater"),
    [
        ("+1d", Repeater(RepeaterKind.CUMULATE, 1, Unit.DAY)),
        ("++2w", Repeater(RepeaterKind.CATCH_UP, 2, Unit.WEEK)),
        (".+3m", Repeater(RepeaterKind.RESTART, 3, Unit.MONTH)),
        ("+12h", Repeater(RepeaterKind.CUMULATE, 12, Unit.HOUR)),
        ("++1y", Repeater(RepeaterKind.CATCH_UP, 1, Unit.YEAR)),
        (".+2d/4d", Repeater(RepeaterKind.RESTART, 2, Unit.DAY, Interval(4, Unit.DAY))),
        ("++1w/10d", Repeater(RepeaterKind.CATCH_UP, 1, Unit.WEEK, Interval(10, Unit.DAY))),
        ("+1m/2m", Repeater(RepeaterKind.CUMULATE, 1, Unit.MONTH, Interval(2, Unit.MONTH))),
        ("+999999h", Repeater(RepeaterKind.CUMULATE, 999_999, Unit.HOUR)),
    ],
)
def test_a_repeater_is_read_and_written(text: str, repeater: Repeater) -> None:
    assert parse_repeater(text) == repeater
    assert str(repeater) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "does not begin with +, ++ or .+"),
        ("1d", "does not begin with +, ++ or .+"),
        ("-1d", "does not begin with +, ++ or .+"),
        ("..+1d", "does not begin with +, ++ or .+"),
        ("+d", "has no number; write it like +1d"),
        ("++", "has no number; write it like ++1d"),
        ("+++1d", "has no number; write it like ++1d"),
        ("+-1d", "has no number; write it like +1d"),
        ("+１d", "has no number; write it like +1d"),
        (".+2", "has no unit; write it like .+2d"),
        ("+1x", "unit x is not one of h, d, w, m, y"),
        ("+1D", "unit D is not one of h, d, w, m, y"),
        ("+30min", "unit min is not one of h, d, w, m, y"),
        ("+1.5d", "unit .5d is not one of h, d, w, m, y"),
        ("+1d+2d", "unit d+2d is not one of h, d, w, m, y"),
        ("+0d", "has a count of 0; write at least 1"),
        ("++000w", "has a count of 0; write at least 1"),
        ("+1000000d", "has a count of more than 999999"),
        ("+" + "9" * 5000 + "d", "has a count of more than 999999"),
        (".+2d/", "does not end with an interval; write a habit like .+2d/4d"),
        (".+2d/4", "does not end with an interval; write a habit like .+2d/4d"),
        (".+2d/4d/6d", "does not end with an interval; write a habit like .+2d/4d"),
        (".+2d/0d", "has a count of 0; write at least 1"),
        (".+4d/2d", "the longest interval, 2d, must be longer than the shortest, 4d"),
        (".+1w/7d", "the longest interval, 7d, must be longer than the shortest, 1w"),
        (".+1m/30d", "the longest interval, 30d, must be longer than the shortest, 1m"),
    ],
)
def test_what_is_no_repeater_is_refused_with_what_would_be_right(text: str, reason: str) -> None:
    with pytest.raises(RepeaterError) as caught:
        parse_repeater(text)
    assert caught.value.reason.startswith(reason)
    assert len(str(caught.value)) < 200


def test_hours_need_a_time_to_count_from() -> None:
    with pytest.raises(RepeaterError, match="counts hours, but the date has no time"):
        parse_repeater("+1h", has_time=False)
    with pytest.raises(RepeaterError, match="counts hours, but the date has no time"):
        repeat("<2026-06-06 Sat +1h>", now=NOON)


def test_a_refusal_is_a_schedule_error_with_its_facts() -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_repeater("+1x")
    assert str(caught.value) == "repeater '+1x': unit x is not one of h, d, w, m, y"
    assert caught.value.data()["facts"] == {
        "text": "+1x",
        "reason": "unit x is not one of h, d, w, m, y",
        "fault": "unit",
    }


@pytest.mark.parametrize(
    ("text", "start", "end", "has_time"),
    [
        ("2026-06-06", "2026-06-06T00:00", None, False),
        ("2026-06-06T06:00", "2026-06-06T06:00", None, True),
        ("2026-06-06T6:05", "2026-06-06T06:05", None, True),
        ("2026-06-20T06:00-07:30", "2026-06-20T06:00", time(7, 30), True),
    ],
)
def test_when_a_stamp_is_can_be_read(
    text: str, start: str, end: time | None, has_time: bool
) -> None:
    assert parse_at(text) == (at(start), end, has_time)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2026-13-99", "2026-13-99 is not a valid date"),
        ("2026-02-29", "2026-02-29 is not a valid date"),
        ("2026-W23-6", "2026-W23-6 is not a valid date"),
        ("abcd-efghi", "abcd-efghi is not a valid date"),
        ("0000-01-01", "0000-01-01 is not a valid date"),
        ("2026-06-06T", " is not a valid time; write HH:MM or HH:MM-HH:MM"),
        ("2026-06-06T24:00", "24:00 is not a valid time; write HH:MM or HH:MM-HH:MM"),
        ("2026-06-06T06:60", "06:60 is not a valid time; write HH:MM or HH:MM-HH:MM"),
        ("2026-06-06T06:00:00", "06:00:00 is not a valid time; write HH:MM or HH:MM-HH:MM"),
        ("2026-06-06T６:00", "６:00 is not a valid time; write HH:MM or HH:MM-HH:MM"),
    ],
)
def test_what_is_no_date_or_time_is_refused(text: str, reason: str) -> None:
    with pytest.raises(TimestampError) as caught:
        parse_at(text)
    assert caught.value.reason == reason


# --- rewriting -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "moved"),
    [
        # Blanks and order are the writer's.
        ("<2026-06-06  Sat\t06:00   +1d >", "<2026-06-07  Sun\t06:00   +1d >"),
        ("  <2026-06-06 Sat +1d>\n", "  <2026-06-07 Sun +1d>\n"),
        ("<Sat 06:00 +1d 2026-06-06>", "<Sun 06:00 +1d 2026-06-07>"),
        ("<2026-06-06 +1d>", "<2026-06-07 +1d>"),
        # So is the way a day is named.
        ("<2026-06-06 Saturday 06:00 +1d>", "<2026-06-07 Sunday 06:00 +1d>"),
        ("<2026-06-06 SAT 06:00 +1d>", "<2026-06-07 SUN 06:00 +1d>"),
        ("<2026-06-06 sat 06:00 +1d>", "<2026-06-07 sun 06:00 +1d>"),
        ("<2026-06-06 Sat. 06:00 +1d>", "<2026-06-07 Sun. 06:00 +1d>"),
        # A wrong day is put right.
        ("<2026-06-06 Wed 06:00 +1w>", "<2026-06-13 Sat 06:00 +1w>"),
        # A day in a language we do not speak is kept while true, else English, as in Emacs.
        ("<2026-06-06 Sa 06:00 +1w>", "<2026-06-13 Sa 06:00 +1w>"),
        ("<2026-06-06 Sa 06:00 +1d>", "<2026-06-07 Sun 06:00 +1d>"),
        ("<2026-06-06 土 06:00 +1d>", "<2026-06-07 Sun 06:00 +1d>"),
        # Other words are not ours.
        ("<2026-06-06 Sat 06:00 at home +1d>", "<2026-06-07 Sun 06:00 at home +1d>"),
        ("<2026-06-06 06:00 home +1d>", "<2026-06-07 06:00 home +1d>"),
        ("<2026-06-06 2026-06-08 +1d>", "<2026-06-07 2026-06-08 +1d>"),
        # A time is rewritten only when it moves.
        ("<2026-06-06 Sat 6:00 +1d>", "<2026-06-07 Sun 6:00 +1d>"),
        ("<2026-06-06 Sat 6:00 +24h>", "<2026-06-07 Sun 6:00 +24h>"),
        ("<2026-06-06 Sat 6:00-7:30 +2h>", "<2026-06-06 Sat 08:00-09:30 +2h>"),
        ("<2026-06-06 Sat 06:00 07:00 +1h>", "<2026-06-06 Sat 06:00 08:00 +1h>"),
        # A warning stays, a delay for the first time only is spent.
        ("<2026-06-06 Sat -2d +1d>", "<2026-06-07 Sun -2d +1d>"),
        ("<2026-06-06 Sat --2d +1d -3d>", "<2026-06-07 Sun +1d -3d>"),
        ("<2026-06-06 Sat --2days +1d>", "<2026-06-07 Sun --2days +1d>"),
        ("<9998-12-31 Thu 23:00-23:30 +1h>", "<9999-01-01 Fri 00:00-00:30 +1h>"),
    ],
)
def test_every_byte_that_is_not_about_when_is_kept(written: str, moved: str) -> None:
    assert repeat(written, now=NOON) == moved


@pytest.mark.parametrize(
    "stamp",
    [
        "<2026-06-06 Sat 06:00>",
        "<2026-06-06>",
        "<2026-06-06 Sat -2d>",
        "[2026-06-06 Sat 06:00 +1d]",
        "[2026-06-06 Sat +1x]",
        "<2026-13-99>",
    ],
)
def test_what_does_not_repeat_stays(stamp: str) -> None:
    assert repeat(stamp, now=NOON) is None


@pytest.mark.parametrize(
    ("stamp", "reason"),
    [
        ("", "is not one timestamp in < > or [ ]"),
        ("<", "is not one timestamp in < > or [ ]"),
        ("<>", "has no date"),
        ("2026-06-06 +1d", "is not one timestamp in < > or [ ]"),
        ("<2026-06-06 +1d]", "is not one timestamp in < > or [ ]"),
        ("<<2026-06-06 +1d>>", "is not one timestamp in < > or [ ]"),
        ("<2026-06-06 +1d>--<2026-06-08 +1d>", "is not one timestamp in < > or [ ]"),
        ("<2026-06-06 +1d> x", "is not one timestamp in < > or [ ]"),
        ("<2026-6-6 +1d>", "has no date; write one, such as 2026-06-06"),
        ("<+1d>", "has no date; write one, such as 2026-06-06"),
        ("<2026-02-30 Mon +1d>", "2026-02-30 is not a valid date"),
        ("<2026-06-06 Sat 25:00 +1d>", "25:00 is not a valid time"),
        ("<2026-06-06 Sat 06:00 +1x>", "unit x is not one of h, d, w, m, y"),
        ("<9999-12-31 Fri +1d>", "goes from 9999-12-31 past the year 9999"),
        ("<2026-06-06 Sat ++9000y>", "goes from 2026-06-06 past the year 9999"),
    ],
)
def test_what_cannot_be_repeated_is_refused_with_a_reason(stamp: str, reason: str) -> None:
    with pytest.raises(TimestampError) as caught:
        repeat(stamp, now=NOON)
    assert caught.value.reason.startswith(reason)


def test_now_must_say_where_it_is() -> None:
    with pytest.raises(ValueError, match="now needs a time zone"):
        repeat("<2026-06-06 Sat +1d>", now=at("2026-06-10T12:00"))


def test_a_zone_that_does_not_exist_is_an_error_even_for_a_stamp_that_stays() -> None:
    with pytest.raises(ZoneError, match="did you mean Europe/Berlin"):
        repeat("<2026-06-06 Sat>", now=NOON, zone="Europe/Berln")


def test_the_day_it_was_done_is_the_day_in_its_zone() -> None:
    late = at("2026-06-10T23:30Z")
    assert repeat("<2026-06-06 Sat .+1d>", now=late) == "<2026-06-11 Thu .+1d>"
    assert repeat("<2026-06-06 Sat .+1d>", now=late, zone="Asia/Tokyo") == "<2026-06-12 Fri .+1d>"


# --- clock changes -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "repeater", "anchor", "moments"),
    [
        # Every day at half past two, past the missing hour and past the doubled one.
        (
            "Europe/Berlin",
            "+1d",
            "2026-03-28T02:30",
            ["03-28T01:30", "03-29T01:00", "03-30T00:30"],
        ),
        (
            "Europe/Berlin",
            "+1d",
            "2026-10-24T02:30",
            ["10-24T00:30", "10-25T00:30", "10-26T01:30"],
        ),
        (
            "America/New_York",
            "+1d",
            "2026-03-07T02:30",
            ["03-07T07:30", "03-08T07:00", "03-09T06:30"],
        ),
        (
            "America/New_York",
            "+1d",
            "2026-10-31T01:30",
            ["10-31T05:30", "11-01T05:30", "11-02T06:30"],
        ),
        # A gap and a fold of half an hour.
        (
            "Australia/Lord_Howe",
            "++1d",
            "2026-10-03T02:15",
            ["10-02T15:45", "10-03T15:30", "10-04T15:15"],
        ),
        (
            "Australia/Lord_Howe",
            "++1d",
            "2026-04-04T01:45",
            ["04-03T14:45", "04-04T14:45", "04-05T15:15"],
        ),
        # Changes at a quarter to.
        (
            "Pacific/Chatham",
            ".+1w",
            "2026-09-20T03:15",
            ["09-19T14:30", "09-26T14:00", "10-03T13:30"],
        ),
        (
            "Pacific/Chatham",
            ".+1w",
            "2026-03-29T03:00",
            ["03-28T13:15", "04-04T13:15", "04-11T14:15"],
        ),
        # The Friday that Samoa left out comes as the first moment of Saturday.
        (
            "Pacific/Apia",
            "+1d",
            "2011-12-29T09:00",
            ["12-29T19:00", "12-30T10:00", "12-30T19:00"],
        ),
        # Hours are those on the wall: one is missing in spring, and one is long in autumn.
        (
            "Europe/Berlin",
            "+1h",
            "2026-03-29T00:30",
            ["03-28T23:30", "03-29T00:30", "03-29T01:00", "03-29T01:30", "03-29T02:30"],
        ),
        (
            "Europe/Berlin",
            "+1h",
            "2026-10-25T01:30",
            ["10-24T23:30", "10-25T00:30", "10-25T02:30"],
        ),
        # Two and three o'clock are the same moment, and come once.
        (
            "Europe/Berlin",
            "+1h",
            "2026-03-29T01:00",
            ["03-29T00:00", "03-29T01:00", "03-29T02:00"],
        ),
        # All the hours of the missing Friday are one moment, too.
        (
            "Pacific/Apia",
            "+6h",
            "2011-12-29T18:00",
            ["12-30T04:00", "12-30T10:00", "12-30T16:00"],
        ),
    ],
)
def test_across_a_clock_change(zone: str, repeater: str, anchor: str, moments: list[str]) -> None:
    place, grid = ZoneInfo(zone), parse_repeater(repeater)
    first = instant(at(anchor), place)
    ahead = grid.between(at(anchor), first - MINUTE, first + 30 * DAY, zone=place)
    assert [f"{m:%m-%dT%H:%M}" for m in islice(ahead, len(moments))] == moments


def test_hours_count_from_the_minute_it_was_done() -> None:
    done = at("2026-06-10T12:34:56.789Z")
    moved = parse_repeater(".+2h").shift(at("2026-06-06T06:00"), now=done, zone=UTC)
    assert moved == at("2026-06-10T14:34")


def test_an_hour_after_it_was_done_is_never_in_the_past() -> None:
    # At 01:10 of the second pass, 02:10 has been already: Troll turns back two hours.
    troll, done = ZoneInfo("Antarctica/Troll"), at("2026-10-25T01:10Z")
    moved = parse_repeater(".+1h").shift(at("2026-10-20T00:00"), now=done, zone=troll)
    assert moved == at("2026-10-25T03:10")


# --- laws ----------------------------------------------------------------------------

CHANGES = {
    "Europe/Berlin": ["2026-03-29T02:00", "2026-10-25T03:00"],
    "America/New_York": ["2026-03-08T02:00", "2026-11-01T02:00"],
    "Australia/Lord_Howe": ["2026-04-05T02:00", "2026-10-04T02:00"],
    "Pacific/Chatham": ["2026-04-05T03:45", "2026-09-27T02:45"],
    "Pacific/Apia": ["2011-12-30T00:00", "2012-04-01T04:00"],
    "Antarctica/Troll": ["2026-03-29T01:00", "2026-10-25T03:00"],
}
KINDS, UNITS = st.sampled_from(RepeaterKind), st.sampled_from(Unit)
ANY_REPEATER = st.builds(Repeater, KINDS, st.integers(1, 50), UNITS)
ANY_WALL = st.datetimes(min_value=at("1900-01-01"), max_value=at("2200-01-01")).map(
    lambda wall: wall.replace(second=0, microsecond=0)
)


# Off by up to two days, which is more than any clock change.
NEARLY = st.timedeltas(-2 * DAY, 2 * DAY)


@st.composite
def nights(draw: st.DrawFn) -> tuple[ZoneInfo, datetime]:
    """Draw a zone and a wall time within two days of one of its changes."""
    name = draw(st.sampled_from(sorted(CHANGES)))
    change = at(draw(st.sampled_from(CHANGES[name])))
    return ZoneInfo(name), change + draw(st.integers(-8 * 24, 8 * 24)) * 15 * MINUTE


@st.composite
def ends_of_months(draw: st.DrawFn) -> tuple[ZoneInfo, datetime]:
    """Draw a zone and a wall time on one of the days that not every month has."""
    end = draw(ANY_WALL).replace(day=1) - draw(st.integers(1, 3)) * DAY
    return ZoneInfo(draw(st.sampled_from(sorted(CHANGES)))), end


ODD_TIMES = nights() | ends_of_months()


def once_shifted(wall: datetime, by: Repeater) -> datetime:
    """Return the next date the way a calendar on the wall is read, day by day."""
    if by.unit in {Unit.HOUR, Unit.DAY, Unit.WEEK}:
        return wall + by.count * {"h": HOUR, "d": DAY, "w": 7 * DAY}[by.unit]
    month = wall.month - 1 + by.count * (12 if by.unit is Unit.YEAR else 1)
    first = wall.replace(year=wall.year + month // 12, month=month % 12 + 1, day=1)
    return first + (wall.day - 1) * DAY


def walked(wall: datetime, by: Repeater, n: int) -> datetime:
    return next(islice(step_by_step(wall, by), n, None))


def step_by_step(wall: datetime, by: Repeater) -> Iterator[datetime]:
    while True:
        yield wall
        wall = once_shifted(wall, by)


@given(ANY_REPEATER, ANY_WALL, st.integers(0, 60))
@settings(max_examples=scaled(5000), deadline=None)
def test_n_shifts_are_n_single_shifts(repeater: Repeater, anchor: datetime, n: int) -> None:
    assert repeater.nth(anchor, n) == walked(anchor, repeater, n)


@given(st.integers(1, 30), st.integers(1, 50), st.integers(0, 60), ANY_WALL)
@settings(max_examples=scaled(5000), deadline=None)
def test_months_run_over_at_most_once(early: int, count: int, n: int, wall: datetime) -> None:
    # Begin at an end of a month, where it matters.
    anchor = wall.replace(day=1) - (early % 4) * DAY
    for unit in (Unit.MONTH, Unit.YEAR):
        every = Repeater(RepeaterKind.CUMULATE, count, unit)
        walk = list(islice(step_by_step(anchor, every), n + 1))
        assert every.nth(anchor, n) == walk[-1]
        assert sum(a.day != b.day for a, b in pairwise(walk)) <= 1


@given(ANY_REPEATER, ODD_TIMES, st.integers(1, 12))
@settings(max_examples=scaled(5000), deadline=None)
def test_plus_done_n_times_is_n_intervals_on(
    repeater: Repeater, where: tuple[ZoneInfo, datetime], n: int
) -> None:
    zone, anchor = where
    plus = Repeater(RepeaterKind.CUMULATE, repeater.count, repeater.unit)
    stamp = f"<{anchor:%Y-%m-%d %H:%M} {plus}>"
    for _ in range(n):
        stamp = repeat(stamp, now=NOON, zone=zone.key) or ""
    there = walked(anchor, plus, n)
    assert stamp == f"<{there:%Y-%m-%d %H:%M} {plus}>"


@given(ANY_REPEATER, ODD_TIMES, st.integers(0, 40), NEARLY)
@settings(max_examples=scaled(5000), deadline=None)
def test_plus_plus_is_the_first_place_of_the_grid_that_is_in_the_future(
    repeater: Repeater, where: tuple[ZoneInfo, datetime], missed: int, nearly: timedelta
) -> None:
    zone, anchor = where
    plus_plus = Repeater(RepeaterKind.CATCH_UP, repeater.count, repeater.unit)
    now = instant(walked(anchor, plus_plus, missed), zone) + nearly
    moved = plus_plus.shift(anchor, now=now, zone=zone)
    ahead = islice(step_by_step(anchor, plus_plus), 1, None)
    assert moved == next(wall for wall in ahead if instant(wall, zone) > now)


@given(ANY_REPEATER, ANY_WALL, ANY_WALL, nights(), st.timedeltas(-DAY, DAY))
@settings(max_examples=scaled(5000), deadline=None)
def test_dot_plus_knows_nothing_of_the_old_date_but_its_time_of_day(
    repeater: Repeater,
    old: datetime,
    older: datetime,
    where: tuple[ZoneInfo, datetime],
    late: timedelta,
) -> None:
    zone, around = where
    done = instant(around, zone) + late
    dot_plus = Repeater(RepeaterKind.RESTART, repeater.count, repeater.unit)
    if dot_plus.unit is not Unit.HOUR:
        older = datetime.combine(older.date(), old.time())
    moved = dot_plus.shift(old, now=done, zone=zone)
    assert moved == dot_plus.shift(older, now=done, zone=zone)
    assert moved is not None
    assert instant(moved, zone) > done
    if dot_plus.unit is not Unit.HOUR:
        assert moved.time() == old.time()


@given(ANY_REPEATER, ODD_TIMES, st.integers(0, 20), st.integers(0, 20), NEARLY)
@settings(max_examples=scaled(5000), deadline=None)
def test_the_stream_is_the_grid_in_order_and_without_doubles(
    repeater: Repeater,
    where: tuple[ZoneInfo, datetime],
    first: int,
    more: int,
    nearly: timedelta,
) -> None:
    zone, anchor = where
    start = instant(walked(anchor, repeater, first), zone) + nearly
    end = instant(walked(anchor, repeater, first + more), zone)
    walk = islice(step_by_step(anchor, repeater), first + more + 100)
    slow = {moment for wall in walk if start < (moment := instant(wall, zone)) <= end}
    assert list(repeater.between(anchor, start, end, zone=zone)) == sorted(slow)


@given(ANY_REPEATER, ODD_TIMES, st.integers(0, 20), NEARLY | st.just(timedelta(0)))
@settings(max_examples=scaled(5000), deadline=None)
def test_after_is_the_next_neighbour_of_a_moment(
    repeater: Repeater, where: tuple[ZoneInfo, datetime], n: int, nearly: timedelta
) -> None:
    zone, anchor = where
    moment = instant(walked(anchor, repeater, n), zone) + nearly
    grid = [instant(w, zone) for w in islice(step_by_step(anchor, repeater), n + 100)]
    after = min(there for there in grid if there > moment)
    assert repeater.after(anchor, moment, zone=zone) == after
    assert next(repeater.between(anchor, moment, after, zone=zone)) == after


@pytest.mark.parametrize("text", ["+1m", "+2m", "+5m", "+12m", "+1y"])
def test_no_turn_of_a_month_hides_a_place(text: str) -> None:
    repeater = parse_repeater(text)
    turns = [date(2023 + m // 12, m % 12 + 1, 1) + d * DAY for m in range(40) for d in range(-3, 4)]
    for anchor in [*turns[:3], *turns[7:10], *turns[84:87], *turns[91:94]]:
        start = datetime.combine(anchor, time(6))
        grid = list(islice(step_by_step(start, repeater), 60))
        for day in turns:
            noon = datetime.combine(day, time(12), tzinfo=UTC)
            after = min(wall for wall in grid if wall.replace(tzinfo=UTC) > noon)
            assert repeater.after(start, noon, zone=UTC) == after.replace(tzinfo=UTC)


BLANKS = st.text(alphabet=" \t", min_size=1, max_size=3)
EXTRAS = st.lists(st.sampled_from(["-2d", "-1w", "home", "%%", "x/y", "ß"]), max_size=3)


@given(ANY_REPEATER, ANY_WALL, st.booleans(), EXTRAS, st.data())
@settings(max_examples=scaled(5000), deadline=None)
def test_only_the_date_the_day_and_for_hours_the_time_are_rewritten(
    repeater: Repeater, anchor: datetime, named: bool, extras: list[str], data: st.DataObject
) -> None:
    tokens = [f"{anchor:%H:%M}", str(repeater), *extras]
    tokens += [f"{anchor:%a}"] * named
    tokens = [f"{anchor:%Y-%m-%d}", "|", *data.draw(st.permutations(tokens))]
    blanks = [data.draw(BLANKS) for _ in tokens]
    written = "<" + "".join(t + b for t, b in zip(tokens, blanks, strict=True)) + ">"
    moved = repeat(written, now=NOON)
    assert moved is not None

    there = repeater.shift(anchor, now=NOON, zone=UTC)
    assert there is not None
    renamed = {
        f"{anchor:%Y-%m-%d}": f"{there:%Y-%m-%d}",
        f"{anchor:%H:%M}": f"{there:%H:%M}",
        f"{anchor:%a}": f"{there:%a}",
    }
    expected = "".join(renamed.get(t, t) + b for t, b in zip(tokens, blanks, strict=True))
    assert moved == f"<{expected}>"


DATES = ["2026-06-06", "9999-12-31", "0001-01-01", "2026-13-01"]
WORDS = ["Sat", "06:00", "06:00-25:00", "-2d", "--1d", "<", ">", ":", "", "ſ", "\x00", "１"]
SIGNS = ["+1d", "++1h", ".+2d/4d", "+0d", "+", "++１d"]
PIECES = st.sampled_from([*DATES, *WORDS, *SIGNS])


@given(st.lists(PIECES).map(" ".join).map("<{}>".format) | st.text())
@settings(max_examples=scaled(5000), deadline=None)
def test_any_text_stays_or_is_refused_or_moves_to_one_that_reads_again(text: str) -> None:
    try:
        moved = repeat(text, now=NOON, zone="Europe/Berlin")
    except TimestampError:
        return
    if moved is not None and "9999" not in moved:
        assert repeat(moved, now=NOON, zone="Europe/Berlin") is not None


# --- the end of the calendar, and the cost of a long way ------------------------------


def test_a_grid_ends_with_the_calendar() -> None:
    daily, anchor = parse_repeater("+1d"), at("9999-12-29T12:00")
    now = at("9999-12-30T00:00Z")
    assert [f"{m:%d}" for m in daily.between(anchor, now, at("9999-12-31T23:00Z"), zone=UTC)] == [
        "30",
        "31",
    ]
    assert daily.nth(anchor, 3) is None
    assert parse_repeater("+1m").nth(anchor, 1) is None
    assert parse_repeater("+999999y").nth(anchor, 10**9) is None
    assert daily.after(anchor, at("9999-12-31T12:00Z"), zone=UTC) is None
    assert parse_repeater("++1y").shift(anchor, now=now, zone=UTC) is None


def test_the_whole_calendar_can_be_asked_for() -> None:
    dawn, dusk = at("0001-01-01T00:00Z"), at("9999-12-31T23:59:59.999999Z")
    monthly, anchor = parse_repeater("+1m"), at("0001-01-01T00:00")
    ahead = monthly.between(anchor, dawn, dusk, zone=ZoneInfo("Asia/Tokyo"))
    assert next(ahead).month == 1
    assert sum(1 for _ in ahead) == 9999 * 12 - 2


@pytest.mark.parametrize("text", ["++1h", "++1d", "++1w", "++1m", "++1y", "++7m"])
def test_a_long_way_costs_no_more_than_a_short_one(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    months_on = repeaters._months_on

    def counted(wall: datetime, zone: ZoneInfo) -> datetime:
        asked.append(wall)
        return instant(wall, zone)

    def counted_months(anchor: datetime, step: int, n: int) -> datetime | None:
        asked.append(n)
        return months_on(anchor, step, n)

    monkeypatch.setattr(repeaters, "instant", counted)
    monkeypatch.setattr(repeaters, "_months_on", counted_months)
    grid, anchor, now = parse_repeater(text), at("0002-01-31T06:00"), at("2026-06-10T12:00Z")
    assert grid.shift(anchor, now=now, zone=BERLIN) is not None
    assert grid.after(anchor, now, zone=BERLIN) is not None
    assert len(asked) < 25


@pytest.mark.parametrize("anchor", ["2024-02-29", "2023-01-31", "2023-08-30", "2000-02-29"])
def test_a_place_far_along_the_grid_is_where_walking_leads(anchor: str) -> None:
    for count in range(1, 61):
        for unit in (Unit.MONTH, Unit.YEAR):
            every = Repeater(RepeaterKind.CUMULATE, count, unit)
            walk = takewhile(lambda wall: wall.year < 3600, step_by_step(at(anchor), every))
            far = list(islice(walk, scaled(4000)))
            assert every.nth(at(anchor), len(far) - 1) == far[-1]
