"""Cron: what the dialect means, how it meets the clock, and how it says no."""

from __future__ import annotations

import copy
import pickle
import random
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache
from itertools import islice, pairwise
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings, strategies as st

from cron_oracle import MINUTE, SECOND, clock_changes, fires, rule
from horae.errors import ScheduleError
from horae.timing.cron import Cron, CronError
from horae.timing.zone import ZoneError
from scale import scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def at(text: str, zone: str = "UTC", *, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)


def utc(moments: Sequence[datetime | None]) -> list[datetime]:
    return [moment.astimezone(UTC) for moment in moments if moment]


def shown(*moments: datetime | None) -> str:
    """Return moments as day, time and offset: `29 03:00+02`."""
    found = [moment.strftime("%d %H:%M%z").removesuffix("00") for moment in moments if moment]
    return ", ".join(found)


def reason(expression: str) -> str:
    with pytest.raises(CronError) as refused:
        Cron(expression)
    return str(refused.value).partition(": ")[2]


# The dialect

START = at("2026-01-01T00:00")  # a Thursday


@pytest.mark.parametrize(
    ("expression", "first"),
    [
        ("* * * * *", ["01-01 00:01:00", "01-01 00:02:00"]),
        ("*/5 * * * *", ["01-01 00:05:00", "01-01 00:10:00"]),
        ("0,30 * * * *", ["01-01 00:30:00", "01-01 01:00:00"]),
        ("0 9 * * MON-FRI", ["01-01 09:00:00", "01-02 09:00:00", "01-05 09:00:00"]),
        ("30 4 * * SUN", ["01-04 04:30:00", "01-11 04:30:00"]),
        ("0 12 1 * *", ["01-01 12:00:00", "02-01 12:00:00"]),
        ("0 */6 * * *", ["01-01 06:00:00", "01-01 12:00:00"]),
        ("10-40/15 3 * * *", ["01-01 03:10:00", "01-01 03:25:00", "01-01 03:40:00"]),
        ("50/4 3 * * *", ["01-01 03:50:00", "01-01 03:54:00", "01-01 03:58:00", "01-02 03:50:00"]),
        ("0 0 1 mar,Jun *", ["03-01 00:00:00", "06-01 00:00:00"]),
        ("0 0 1 march-MAY *", ["03-01 00:00:00", "04-01 00:00:00", "05-01 00:00:00"]),
        ("0 0 * * tuesday,Thursday", ["01-06 00:00:00", "01-08 00:00:00"]),
        ("05 007 * * *", ["01-01 07:05:00"]),
        (" 0\t9  * *\n* ", ["01-01 09:00:00"]),
        ("0 */90 * * *", ["01-02 00:00:00", "01-03 00:00:00"]),
        ("0 */99999999999999999999 * * *", ["01-02 00:00:00", "01-03 00:00:00"]),
    ],
)
def test_five_fields_name_minutes(expression: str, first: list[str]) -> None:
    found = Cron(expression).upcoming(START, len(first))
    assert [moment.strftime("%m-%d %H:%M:%S") for moment in found] == first


def test_six_fields_begin_with_the_second() -> None:
    found = Cron("*/20 5 9 * * *").upcoming(START, 4)
    assert [moment.strftime("%d %H:%M:%S") for moment in found] == [
        "01 09:05:00",
        "01 09:05:20",
        "01 09:05:40",
        "02 09:05:00",
    ]


def test_seven_fields_end_with_the_year() -> None:
    cron = Cron("0 0 12 1 1 ? 2027/30")
    assert [moment.year for moment in cron.upcoming(START, 9)] == [
        2027,
        2057,
        2087,
        2117,
        2147,
        2177,
    ]
    assert cron.next(at("1000-06-01T00:00")) == at("2027-01-01T12:00")
    assert Cron("0 0 0 1 1 * */10").next(START) == at("2030-01-01T00:00")


@pytest.mark.parametrize(
    ("weekday", "days"),
    [
        ("0", "Sun"),
        ("7", "Sun"),
        ("1-5", "Mon Tue Wed Thu Fri"),
        ("5-7", "Fri Sat Sun"),
        ("FRI-7", "Fri Sat Sun"),
        ("SAT-SUN", "Sat Sun"),
        ("0-2", "Mon Tue Sun"),
        ("SUN-TUE", "Mon Tue Sun"),
        ("SUN-SUN", "Sun"),
        ("Sunday-Sunday", "Sun"),
        ("saturday-sunday", "Sat Sun"),
        ("7-SUN", "Sun"),
        ("MON-SUN", "Mon Tue Wed Thu Fri Sat Sun"),
        ("0-7", "Mon Tue Wed Thu Fri Sat Sun"),
        ("*/2", "Tue Thu Sat Sun"),
        ("1/2", "Mon Wed Fri Sun"),
        ("MON/3", "Mon Thu Sun"),
        ("MON-FRI/2", "Mon Wed Fri"),
        ("6,0,wed", "Wed Sat Sun"),
    ],
)
def test_a_week_ends_with_sunday_as_seven(weekday: str, days: str) -> None:
    monday = at("2026-01-04T12:00")
    found = Cron(f"0 0 * * {weekday}").between(monday, monday + timedelta(days=7))
    assert " ".join(moment.strftime("%a") for moment in found) == days


@pytest.mark.parametrize(
    ("day", "weekday", "days"),
    [
        ("13", "*", "13"),
        ("13", "?", "13"),
        ("*", "FRI", "2 9 16 23 30"),
        ("?", "FRI", "2 9 16 23 30"),
        ("13", "FRI", "2 9 13 16 23 30"),
        ("*/10", "FRI", "1 2 9 11 16 21 23 30 31"),
        ("13", "*/6", "3 4 10 11 13 17 18 24 25 31"),
        ("L", "MON#1", "5 31"),
    ],
)
def test_of_two_restricted_day_fields_either_will_do(day: str, weekday: str, days: str) -> None:
    found = Cron(f"0 12 {day} * {weekday}").between(START, at("2026-02-01T00:00"))
    assert " ".join(str(moment.day) for moment in found) == days


@pytest.mark.parametrize("free", ["? *", "* ?", "? ?", "* *"])
def test_a_question_mark_in_a_day_field_restricts_nothing(free: str) -> None:
    day, weekday = free.split()
    assert Cron(f"0 9 {day} * {weekday}") == Cron("0 9 * * *")


@pytest.mark.parametrize(
    ("day", "days"),
    [
        ("L", "01-31 02-28 03-31 04-30"),
        ("L-1", "01-30 02-27 03-30 04-29"),
        ("L-30", "01-01 03-01 05-01 07-01"),
        ("LW", "01-30 02-27 03-31 04-30"),
        ("1W", "01-01 02-02 03-02 04-01"),  # 1 February is a Sunday
        ("15W", "01-15 02-16 03-16 04-15"),
        ("31W", "01-30 03-31 05-29 07-31"),
        ("1,15,L", "01-01 01-15 01-31 02-01"),
        ("LW,L-2,3W", "01-02 01-29 01-30 02-03"),
        ("l,lw,10w", "01-09 01-30 01-31 02-10"),
    ],
)
def test_letters_in_the_day_of_month_count_from_its_end_or_avoid_a_weekend(
    day: str, days: str
) -> None:
    found = Cron(f"0 12 {day} * *").upcoming(START, 4)
    assert " ".join(moment.strftime("%m-%d") for moment in found) == days


def test_the_nearest_weekday_stays_in_its_month() -> None:
    # 1 August 2026 is a Saturday, 31 May 2026 a Sunday.
    assert Cron("0 0 1W * *").next(at("2026-07-31T00:00")) == at("2026-08-03T00:00")
    assert Cron("0 0 31W * *").next(at("2026-05-01T00:00")) == at("2026-05-29T00:00")


@pytest.mark.parametrize(
    ("weekday", "days"),
    [
        ("MON#1", "01-05 02-02 03-02"),
        ("1#5", "03-30 06-29 08-31"),
        ("0#1", "01-04 02-01 03-01"),
        ("7#1", "01-04 02-01 03-01"),
        ("5L", "01-30 02-27 03-27"),
        ("fril", "01-30 02-27 03-27"),
        ("FRIDAYL", "01-30 02-27 03-27"),
        ("MON#1,FRI#3", "01-05 01-16 02-02"),
        ("SAT,MON#1", "01-03 01-05 01-10"),
        ("5L,1#2", "01-12 01-30 02-09"),
    ],
)
def test_a_weekday_can_be_counted_in_its_month(weekday: str, days: str) -> None:
    found = Cron(f"0 0 * * {weekday}").upcoming(START, 3)
    assert " ".join(moment.strftime("%m-%d") for moment in found) == days


@pytest.mark.parametrize(
    ("nickname", "expression"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@Midnight", "0 0 * * *"),
        (" @HOURLY ", "0 * * * *"),
    ],
)
def test_a_nickname_stands_for_five_fields(nickname: str, expression: str) -> None:
    assert Cron(nickname) == Cron(expression)
    assert Cron(nickname).expression == nickname


def test_leap_days_and_long_waits_are_found() -> None:
    assert Cron("0 0 29 2 *").next(at("2096-03-01T00:00")) == at("2104-02-29T00:00")
    # A February with five Sundays was in 2004 and comes in 2032; past 2088 the wait is 40 years.
    fifth = Cron("0 0 * 2 SUN#5")
    assert fifth.next(at("2004-03-01T00:00")) == at("2032-02-29T00:00")
    assert fifth.next(at("2088-03-01T00:00")) == at("2128-02-29T00:00")


@pytest.mark.parametrize(
    "expression",
    ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 L-30 2 *", "0 0 30W 2 ?", "0 0 0 29 2 * 2023,2100"],
)
def test_what_the_calendar_never_brings_parses_and_yields_nothing(expression: str) -> None:
    for zone in ("UTC", "Europe/Berlin"):
        cron = Cron(expression, zone)
        assert cron.never
        assert cron.next(START) is None
        assert cron.upcoming(START, 5) == []
        assert list(cron.between(START, at("2126-01-01T00:00"))) == []


@pytest.mark.parametrize(
    "expression", ["0 0 29 2 *", "0 0 * 2 SUN#5", "0 0 31 * *", "0 0 1 1 * ", "0 0 0 1 1 * 1970"]
)
def test_what_comes_once_is_not_never(expression: str) -> None:
    assert not Cron(expression).never


def test_a_starred_rule_that_each_clock_change_leaves_out_gives_up() -> None:
    # The second Sunday of March, 02:00 to 02:59, is the gap of New York since 2007.
    cron = Cron("* 2 * 3 SUN#2", "America/New_York")
    assert cron.next(START) is None


@pytest.mark.parametrize(
    ("expression", "months"),
    [
        ("0 0 29 2 *", 9),
        ("0 0 31 * *", 3),
        ("0 0 L * *", 2),
        ("0 0 * * 1#5", 4),
        ("0 0 * 2 SUN#5", 41),
        ("0 0 31 4,6,9,11 *", 4 * 42 + 1),
        ("0 0 0 1 6 ? 2199", 3),
    ],
)
def test_a_sparse_rule_looks_at_months_not_at_days(
    expression: str, months: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = months_seen(monkeypatch)
    cron = Cron(expression)
    for start in (at("2026-01-31T12:00"), at("2088-03-01T00:00"), at("2096-03-01T00:00")):
        seen.clear()
        cron.next(start)
        assert len(seen) <= months


def test_a_rule_that_is_left_out_each_year_looks_at_a_few_months_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = months_seen(monkeypatch)
    assert Cron("* 2 * 3 SUN#2", "America/New_York").next(START) is None
    assert len(seen) < 500


def months_seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return a list that will hold each month of which the days were asked for."""
    seen: list[tuple[int, int]] = []
    days_in: Callable[[Cron, int, int], int] = Cron._days_in

    def noted(cron: Cron, year: int, month: int) -> int:
        seen.append((year, month))
        return days_in(cron, year, month)

    monkeypatch.setattr(Cron, "_days_in", noted)
    return seen


# Asking


def test_next_is_strict() -> None:
    cron = Cron("0 9 * * *")
    nine = at("2026-01-02T09:00")
    assert cron.next(nine) == nine + timedelta(days=1)
    assert cron.next(nine - timedelta(microseconds=1)) == nine
    assert cron.next(nine + timedelta(microseconds=1)) == nine + timedelta(days=1)


def test_moments_come_out_in_the_zone_of_the_rule() -> None:
    cron = Cron("0 9 * * *", zone="Asia/Tokyo")
    found = cron.next(at("2026-01-01T00:00", "America/New_York"))
    assert found is not None
    assert found.isoformat() == "2026-01-02T09:00:00+09:00"
    assert found.tzinfo == ZoneInfo("Asia/Tokyo")
    in_utc = Cron("0 9 * * *").next(found)
    assert in_utc is not None
    assert in_utc.tzinfo is UTC


def test_the_zone_of_the_question_does_not_matter() -> None:
    cron = Cron("0 9 * * *", zone="Europe/Berlin")
    moment = at("2026-07-01T06:59")
    for zone in (timezone(timedelta(hours=-7, microseconds=5)), ZoneInfo("Asia/Kolkata"), UTC):
        assert cron.next(moment.astimezone(zone)) == at("2026-07-01T07:00")


def test_between_leaves_out_its_start_and_keeps_its_end() -> None:
    cron = Cron("0 * * * *")
    found = cron.between(at("2026-01-01T01:00"), at("2026-01-01T03:00"))
    assert [moment.hour for moment in found] == [2, 3]
    assert list(cron.between(at("2026-01-01T03:00"), at("2026-01-01T03:00"))) == []
    assert list(cron.between(at("2026-01-01T03:00"), at("2026-01-01T01:00"))) == []


def test_between_is_lazy() -> None:
    found = Cron("* * * * * *").between(START, at("9000-01-01T00:00"))
    assert next(found) == START + SECOND
    assert next(found) == START + 2 * SECOND


def test_upcoming_gives_as_many_as_there_are() -> None:
    assert Cron("* * * * *").upcoming(START, 0) == []
    assert len(Cron("0 0 0 1 1 * 2027-2029").upcoming(START, 10)) == 3
    with pytest.raises(ValueError, match="must be"):
        Cron("* * * * *").upcoming(START, -1)


class Lost(tzinfo):
    """A zone that does not know where it is."""

    def utcoffset(self, _when: datetime | None) -> None:
        return None

    dst = tzname = utcoffset


@pytest.mark.parametrize("lost", [None, Lost()])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_a_moment_without_a_zone_is_refused(zone: str, lost: tzinfo | None) -> None:
    cron = Cron("0 9 * * *", zone)
    naive = START.replace(tzinfo=lost)
    asked: list[Callable[[], object]] = [
        lambda: cron.next(naive),
        lambda: cron.upcoming(naive, 1),
        lambda: cron.between(naive, START),
        lambda: cron.between(START, naive),
    ]
    for ask in asked:
        with pytest.raises(
            ValueError, match="needs a time with a time zone, and 2026-01-01T00:00:00"
        ):
            ask()


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/Anchorage", "Asia/Manila"])
@pytest.mark.parametrize("expression", ["* * * * *", "0 0 * * *", "0 0 29 2 *", "0 0 0 1 1 ? *"])
def test_the_ends_of_the_calendar_are_quiet(expression: str, zone: str) -> None:
    cron = Cron(expression, zone)
    west, east = timezone(timedelta(hours=-23)), timezone(timedelta(hours=23))
    for offset in (UTC, west, east, ZoneInfo(zone)):
        first = datetime.min.replace(tzinfo=offset)
        last = datetime.max.replace(tzinfo=offset)
        assert cron.next(last) is None
        assert list(cron.between(last, last)) == []
        assert list(islice(cron.between(first, last), 1)) == cron.upcoming(first, 1)
        earliest = cron.next(first)
        assert earliest is not None
        assert 2 <= earliest.year <= 5


# Being a value


def test_equal_rules_say_the_same_in_the_same_zone() -> None:
    same = [
        Cron("0 9 * * MON-FRI", "Europe/Berlin"),
        Cron("00 09 ? * mon-fri", "Europe/Berlin"),
        Cron("0  0 9 * * 1,2,3,4,5", "Europe/Berlin"),
        Cron("0 0 9 * 1-12 Monday-Friday *", "Europe/Berlin"),
    ]
    assert len(set(same)) == 1
    assert all(one == other for one in same for other in same)
    assert same[0] != Cron("0 9 * * MON-FRI", "Europe/Paris")
    assert same[0] != Cron("0 9 * * MON-SAT", "Europe/Berlin")
    assert same[0] != "0 9 * * MON-FRI"


def test_a_star_for_the_time_makes_another_rule() -> None:
    # They differ in an autumn night.
    assert Cron("0-59 1 * * *") != Cron("* 1 * * *")
    assert Cron("0 0-23 * * *") != Cron("0 * * * *")
    assert Cron("* * 1-31 * *") == Cron("* * * * *") == Cron("* * * * 0-6")


@pytest.mark.parametrize(
    ("expression", "has_star"),
    [
        ("0 9 * * *", False),
        ("0-30/5 9 * * *", False),
        ("5/10 9 * * *", False),
        ("@daily", False),
        ("0 0 9 * * *", False),
        ("* 9 * * *", True),
        ("*/5 9 * * *", True),
        ("1,*/30 9 * * *", True),
        ("0 */2 * * *", True),
        ("@hourly", True),
        ("* 0 9 * * *", True),
    ],
)
def test_a_star_counts_only_in_second_minute_and_hour(expression: str, has_star: bool) -> None:
    assert Cron(expression).has_star_time is has_star


def test_a_rule_cannot_be_changed() -> None:
    cron = Cron("0 9 * * *", "Europe/Berlin")
    for name in ("expression", "zone", "has_star_time", "never", "anything"):
        with pytest.raises(AttributeError):
            setattr(cron, name, "x")
    assert repr(cron) == "Cron('0 9 * * *', zone='Europe/Berlin')"
    for twin in (copy.copy(cron), copy.deepcopy(cron), pickle.loads(pickle.dumps(cron))):
        assert twin == cron
        assert hash(twin) == hash(cron)
        assert (twin.expression, twin.zone) == (cron.expression, cron.zone)


# Clock changes


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # Berlin, 29 March 2026: 02:00 is 03:00.
        ("30 2 * * *", "29 03:00+02"),
        ("0,30 2 * * *", "29 03:00+02"),
        ("30 2,3 * * *", "29 03:00+02, 29 03:30+02"),
        ("0 3 * * *", "29 03:00+02"),
        ("0 2,3 * * *", "29 03:00+02"),
        ("0 30 2 * * *", "29 03:00+02"),
        ("*/30 1-3 * * *", "29 01:00+01, 29 01:30+01, 29 03:00+02, 29 03:30+02"),
        ("30 * * * *", "29 00:30+01, 29 01:30+01, 29 03:30+02"),
        ("*/20 2 * * *", ""),
        ("30 */2 * * *", "29 00:30+01"),
        ("* 30 2 * * *", ""),
    ],
)
def test_spring_in_berlin(expression: str, expected: str) -> None:
    start = at("2026-03-29T00:00", "Europe/Berlin")
    found = Cron(expression, "Europe/Berlin").between(
        start, at("2026-03-29T03:59", "Europe/Berlin")
    )
    assert shown(*found) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # Berlin, 25 October 2026: 03:00 is 02:00.
        ("30 2 * * *", "25 02:30+02"),
        ("0 3 * * *", "25 03:00+01"),
        ("0 2,3 * * *", "25 02:00+02, 25 03:00+01"),
        ("0 30 2 * * *", "25 02:30+02"),
        ("30 * * * *", "25 01:30+02, 25 02:30+02, 25 02:30+01, 25 03:30+01"),
        ("*/30 2 * * *", "25 02:00+02, 25 02:30+02, 25 02:00+01, 25 02:30+01"),
    ],
)
def test_autumn_in_berlin(expression: str, expected: str) -> None:
    start = at("2026-10-25T01:00", "Europe/Berlin")
    found = Cron(expression, "Europe/Berlin").between(
        start, at("2026-10-25T04:00", "Europe/Berlin")
    )
    assert shown(*found) == expected


CHANGES = {
    ("America/New_York", "2026-03-08T00:59", "2026-03-08T04:00"): {
        "30 2 * * *": "08 03:00-04",
        "0 2 * * *": "08 03:00-04",
        "45 1,2,3 * * *": "08 01:45-05, 08 03:00-04, 08 03:45-04",
        "*/30 * * * *": "08 01:00-05, 08 01:30-05, 08 03:00-04, 08 03:30-04, 08 04:00-04",
        "0 */2 * * *": "08 04:00-04",
    },
    ("America/New_York", "2026-10-31T23:59", "2026-11-01T03:00"): {
        "30 1 * * *": "01 01:30-04",
        "59 1 * * *": "01 01:59-04",
        "0 2 * * *": "01 02:00-05",
        "0 * * * *": "01 00:00-04, 01 01:00-04, 01 01:00-05, 01 02:00-05, 01 03:00-05",
        "*/30 1 * * *": "01 01:00-04, 01 01:30-04, 01 01:00-05, 01 01:30-05",
    },
    # Half an hour: 02:00 is 02:30, and 02:00 is 01:30.
    ("Australia/Lord_Howe", "2026-10-04T00:59", "2026-10-04T04:00"): {
        "15 2 * * *": "04 02:30+11",
        "0,10,20,30 2 * * *": "04 02:30+11",
        "45 2 * * *": "04 02:45+11",
        "*/15 2 * * *": "04 02:30+11, 04 02:45+11",
        "0 * * * *": "04 01:00+1030, 04 03:00+11, 04 04:00+11",
    },
    ("Australia/Lord_Howe", "2026-04-05T00:59", "2026-04-05T03:00"): {
        "45 1 * * *": "05 01:45+11",
        "30,45 1,2 * * *": "05 01:30+11, 05 01:45+11, 05 02:30+1030, 05 02:45+1030",
        "*/30 1 * * *": "05 01:00+11, 05 01:30+11, 05 01:30+1030",
        "0 * * * *": "05 01:00+11, 05 02:00+1030, 05 03:00+1030",
    },
    # At a quarter to: 02:45 is 03:45, and 03:45 is 02:45.
    ("Pacific/Chatham", "2026-09-27T01:59", "2026-09-27T05:00"): {
        "0 3 * * *": "27 03:45+1345",
        "45 2 * * *": "27 03:45+1345",
        "30 2,3 * * *": "27 02:30+1245, 27 03:45+1345",
        "*/15 2-3 * * *": "27 02:00+1245, 27 02:15+1245, 27 02:30+1245, 27 03:45+1345",
        "0 * * * *": "27 02:00+1245, 27 04:00+1345, 27 05:00+1345",
    },
    ("Pacific/Chatham", "2026-04-05T01:59", "2026-04-05T04:30"): {
        "0 3 * * *": "05 03:00+1345",
        "45 2,3 * * *": "05 02:45+1345, 05 03:45+1245",
        "0 * * * *": "05 02:00+1345, 05 03:00+1345, 05 03:00+1245, 05 04:00+1245",
    },
    # 30 December 2011 was left out.
    ("Pacific/Apia", "2011-12-28T23:59", "2011-12-31T12:00"): {
        "0 6 * * *": "29 06:00-10, 31 00:00+14, 31 06:00+14",
        "0 0 * * *": "29 00:00-10, 31 00:00+14",
        "0 6,18 * * *": "29 06:00-10, 29 18:00-10, 31 00:00+14, 31 06:00+14",
        "0 6 30 * *": "31 00:00+14",
        "0 6 * * FRI": "31 00:00+14",
        "0 0 6 30 12 ? 2011": "31 00:00+14",
        "0 */12 * * *": "29 00:00-10, 29 12:00-10, 31 00:00+14, 31 12:00+14",
        "0 */12 30 * *": "",
    },
    ("Pacific/Kwajalein", "1993-08-19T23:59", "1993-08-22T12:00"): {
        "0 6 * * *": "20 06:00-12, 22 00:00+12, 22 06:00+12",
        "0 */12 * * *": "20 00:00-12, 20 12:00-12, 22 00:00+12, 22 12:00+12",
    },
    # Two hours at once.
    ("Antarctica/Troll", "2026-03-29T00:00", "2026-03-29T04:00"): {
        "30 1,2 * * *": "29 03:00+02",
        "30 * * * *": "29 00:30+00, 29 03:30+02",
    },
    ("Antarctica/Troll", "2026-10-25T00:00", "2026-10-25T04:00"): {
        "30 1,2 * * *": "25 01:30+02, 25 02:30+02",
        "30 1-2/1 * * *": "25 01:30+02, 25 02:30+02",
        "30 1-3,*/4 * * *": "25 00:30+02, 25 01:30+02, 25 02:30+02, 25 01:30+00, 25 02:30+00, "
        "25 03:30+00",
    },
    # The day begins at 01:00, or ends twice.
    ("Africa/Cairo", "2026-04-23T22:00", "2026-04-24T02:00"): {
        "0 0 * * *": "24 01:00+03",
        "30 0 * * FRI": "24 01:00+03",
        "30 * * * *": "23 22:30+02, 23 23:30+02, 24 01:30+03",
    },
    ("Africa/Cairo", "2026-10-29T22:00", "2026-10-30T01:00"): {
        "30 23 * * *": "29 23:30+03",
        "0 0 * * *": "30 00:00+02",
        "30 * * * *": "29 22:30+03, 29 23:30+03, 29 23:30+02, 30 00:30+02",
    },
    ("America/Havana", "2026-03-07T23:00", "2026-03-08T02:00"): {
        "0 0 * * *": "08 01:00-04",
        "30 * * * *": "07 23:30-05, 08 01:30-04",
    },
    ("Asia/Beirut", "2026-03-28T23:00", "2026-03-29T02:00"): {
        "0 0 * * *": "29 01:00+03",
        "30 * * * *": "28 23:30+02, 29 01:30+03",
    },
    # Winter is the exception here, and its offset from the standard is negative.
    ("Europe/Dublin", "2026-03-29T00:00", "2026-03-29T03:00"): {
        "30 1 * * *": "29 02:00+01",
        "30 * * * *": "29 00:30+00, 29 02:30+01",
    },
    ("Europe/Dublin", "2026-10-25T00:00", "2026-10-25T02:00"): {
        "30 1 * * *": "25 01:30+01",
        "30 * * * *": "25 00:30+01, 25 01:30+01, 25 01:30+00",
    },
    # A new offset for good, not for a season.
    ("Asia/Pyongyang", "2018-05-04T23:00", "2018-05-05T01:00"): {
        "45 23 * * *": "05 00:00+09",
        "15,45 * * * *": "04 23:15+0830, 05 00:15+09, 05 00:45+09",
    },
}


@pytest.mark.parametrize(
    ("place", "expression", "expected"),
    [
        (place, expression, expected)
        for place, rules in CHANGES.items()
        for expression, expected in rules.items()
    ],
)
def test_clock_changes(place: tuple[str, str, str], expression: str, expected: str) -> None:
    zone, start, end = place
    cron = Cron(expression, zone)
    found = list(cron.between(at(start, zone), at(end, zone)))
    assert shown(*found) == expected


def test_a_question_from_inside_a_gap_or_fold_is_taken_as_the_moment_it_is() -> None:
    half_hourly = Cron("*/30 * * * *", "Europe/Berlin")
    daily = Cron("30 2 * * *", "Europe/Berlin")

    # Python maps 02:10 of the gap to 03:10 by its offset before the change.
    in_gap = at("2026-03-29T02:10", "Europe/Berlin")
    assert shown(half_hourly.next(in_gap)) == "29 03:30+02"

    first = at("2026-10-25T02:40", "Europe/Berlin")
    second = at("2026-10-25T02:10", "Europe/Berlin", fold=1)
    assert shown(half_hourly.next(first)) == "25 02:00+01"
    assert shown(daily.next(second)) == "26 02:30+01"


def test_a_moment_in_the_second_pass_carries_its_fold() -> None:
    found = Cron("30 2-2,*/12 25 10 *", "Europe/Berlin").between(
        at("2026-10-25T02:00", "Europe/Berlin"), at("2026-10-25T03:00", "Europe/Berlin")
    )
    assert [(moment.hour, moment.minute, moment.fold) for moment in found] == [
        (2, 30, 0),
        (2, 30, 1),
    ]
    after = Cron("0 3,*/12 * * *", "Europe/Berlin").next(at("2026-10-25T02:10", "Europe/Berlin"))
    assert after is not None
    assert (shown(after), after.fold) == ("25 03:00+01", 0)


@pytest.mark.parametrize(
    ("zone", "hour"),
    [
        ("Africa/Monrovia", "1972-01-07T00:44"),  # 00:00:00 was 00:44:30
        ("Europe/Paris", "1911-03-10T23:50"),  # 00:00:00 was 23:50:39
        ("Europe/Dublin", "1916-05-21T02:25"),  # both offsets with seconds
        ("Pacific/Apia", "2011-12-30T10:00"),
        ("Australia/Lord_Howe", "2026-04-04T15:00"),
    ],
)
def test_seconds_agree_with_a_walk_along_the_clock(zone: str, hour: str) -> None:
    expressions = [
        "*/7 59 * * * *",
        "13 0,30,59 0,1,23 * * *",
        "0 */15 0-1 * * *",
        "50/3 29 * * * *",
        "59 59,29,14 0,1,2,23 * * *",
        "59 29,59 * * * *",
    ]
    middle = at(hour)
    start, end = middle - timedelta(minutes=70), middle + timedelta(minutes=70)
    expected = fires(
        [rule(e) for e in expressions], zone, start, end, step=SECOND, lead=timedelta(0)
    )
    assert any(expected)
    for expression, moments in zip(expressions, expected, strict=True):
        cron = Cron(expression, zone)
        assert utc(list(cron.between(start, end))) == moments


def test_the_last_second_before_a_change_is_found() -> None:
    gap, fold = at("2026-03-29T01:00"), at("2026-10-25T01:00")
    ends = [(gap, 1, "29 01:59+01"), (fold, 2, "25 02:59+02")]
    for change, hour, expected in ends:
        for seconds in ("59", "59,*/50"):
            cron = Cron(f"{seconds} 59 {hour} * * *", "Europe/Berlin")
            assert shown(cron.next(change - 2 * SECOND)) == expected


TEN_YEARS = [
    ("America/New_York", "2016-01-01"),
    ("Europe/Berlin", "2016-01-01"),
    ("Australia/Lord_Howe", "2016-01-01"),
    ("Pacific/Apia", "2007-01-01"),
    ("Africa/Cairo", "2007-01-01"),
    ("Antarctica/Troll", "2016-01-01"),
]
EVERYDAY = [
    "30 2 * * *",
    "0,15,30,45 0-3 * * *",
    "*/15 * * * *",
    "* 0-3 * * *",
    "0 */3 L * FRI",
    "45 1 1,15W * 5L",
]


@pytest.mark.parametrize(("zone", "start"), TEN_YEARS)
def test_ten_years_agree_with_a_walk_along_the_clock(zone: str, start: str) -> None:
    first = at(start)
    rules = [rule(expression) for expression in EVERYDAY]
    changes = clock_changes(zone, first, first + timedelta(days=3653))
    assert changes
    # A small run walks the days around a few changes, a full one all days.
    windows = [(first, first + timedelta(days=3653))]
    if scaled(20) < 20:
        around = random.Random(zone).sample(changes, min(3, len(changes)))
        windows = [(change - timedelta(days=1), change + timedelta(days=1)) for change in around]
    for begin, end in windows:
        expected = fires(rules, zone, begin, end)
        for expression, moments in zip(EVERYDAY, expected, strict=True):
            assert utc(list(Cron(expression, zone).between(begin, end))) == moments, expression


# Random rules


def fields(low: int, high: int) -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    ends = st.tuples(value, value).map(sorted)
    step = st.integers(1, high)
    item = st.one_of(
        value.map(str),
        st.builds("*/{}".format, step),
        st.builds("{}/{}".format, value, step),
        ends.map(lambda pair: f"{pair[0]}-{pair[1]}"),
        st.builds(lambda pair, step: f"{pair[0]}-{pair[1]}/{step}", ends, step),
    )
    return st.one_of(st.just("*"), item, st.lists(item, min_size=2, max_size=4).map(",".join))


def listed(items: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(items, min_size=1, max_size=3).map(",".join)


HOURS = st.one_of(fields(0, 23), st.sampled_from(["0", "1", "2", "3", "0-4", "1,2", "23", "*/2"]))
DAYS = st.one_of(
    st.sampled_from(["*", "*", "?"]),
    fields(1, 31),
    listed(
        st.one_of(
            st.sampled_from(["L", "LW"]),
            st.builds("L-{}".format, st.integers(1, 30)),
            st.builds("{}W".format, st.integers(1, 31)),
            st.integers(1, 31).map(str),
        )
    ),
)
WEEKDAYS = st.one_of(
    st.sampled_from(["*", "*", "?"]),
    fields(0, 7),
    listed(
        st.one_of(
            st.builds("{}#{}".format, st.integers(0, 7), st.integers(1, 5)),
            st.builds("{}L".format, st.integers(0, 7)),
            st.sampled_from(["MON-SUN", "SAT-SUN", "tue", "Fri-7", "SUN-WED"]),
        )
    ),
)
MONTHS = st.one_of(st.just("*"), fields(1, 12))
EXPRESSIONS = st.one_of(
    st.builds("{} {} {} {} {}".format, fields(0, 59), HOURS, DAYS, MONTHS, WEEKDAYS),
    st.builds(
        "{} {} {} {} {} {}".format, fields(0, 59), fields(0, 59), HOURS, DAYS, MONTHS, WEEKDAYS
    ),
    st.builds(
        "{} {} {} {} {} {} {}".format,
        st.just("0"),
        fields(0, 59),
        HOURS,
        DAYS,
        MONTHS,
        WEEKDAYS,
        st.one_of(st.just("*"), fields(2000, 2040)),
    ),
)
# Half, one, two and twenty-four hours; at midnight, at odd minutes; for good, and never.
ZONES = st.sampled_from(
    [
        "UTC",
        "Europe/Berlin",
        "Europe/Dublin",
        "America/New_York",
        "America/Havana",
        "America/Caracas",
        "Australia/Lord_Howe",
        "Africa/Cairo",
        "Africa/Casablanca",
        "Antarctica/Troll",
        "Asia/Beirut",
        "Asia/Gaza",
        "Asia/Kolkata",
        "Asia/Pyongyang",
        "Pacific/Apia",
        "Pacific/Chatham",
    ]
)
YEARS = (at("2006-01-01T00:00"), at("2026-01-01T00:00"))


@cache
def changes_of(zone: str) -> list[datetime]:
    return clock_changes(zone, *YEARS) or [YEARS[0]]


@st.composite
def moments_near_changes(draw: st.DrawFn) -> tuple[str, datetime]:
    zone = draw(ZONES)
    change = draw(st.sampled_from(changes_of(zone)))
    near = st.timedeltas(timedelta(hours=-30), timedelta(hours=30))
    far = st.timedeltas(timedelta(days=-400), timedelta(days=400))
    return zone, change + draw(near | near | far)


@settings(max_examples=scaled(5_000), deadline=None)
@given(EXPRESSIONS, moments_near_changes())
def test_next_is_later(expression: str, near: tuple[str, datetime]) -> None:
    zone, moment = near
    cron = Cron(expression, zone)
    there = cron.next(moment)
    assume(there is not None)
    assert there is not None
    assert there.astimezone(UTC) > moment
    assert there.microsecond == 0

    # From just before and just after it is the same moment, however far the first look went.
    tick = timedelta(microseconds=1)
    assert utc([cron.next(there.astimezone(UTC) - tick)]) == utc([there])


@settings(max_examples=scaled(5_000), deadline=None)
@given(EXPRESSIONS, moments_near_changes())
def test_what_lies_between_is_in_order_once_and_begins_with_next(
    expression: str, near: tuple[str, datetime]
) -> None:
    zone, start = near
    cron = Cron(expression, zone)
    end = start + timedelta(days=2)
    found = utc(list(islice(cron.between(start, end), 200)))
    assert all(one < other for one, other in pairwise(found))
    assert all(start < moment <= end for moment in found)
    assert found == [moment for moment in utc(cron.upcoming(start, len(found))) if moment <= end]
    first = cron.next(start)
    assert found[:1] == ([first.astimezone(UTC)] if first and first <= end else [])


@settings(max_examples=scaled(5_000), deadline=None)
@given(EXPRESSIONS, moments_near_changes(), st.data())
def test_to_stop_anywhere_and_go_on_changes_nothing(
    expression: str, near: tuple[str, datetime], data: st.DataObject
) -> None:
    zone, start = near
    cron = Cron(expression, zone)
    end = start + timedelta(hours=20)
    stop = start + data.draw(st.timedeltas(timedelta(0), timedelta(hours=20)))
    whole = utc(list(islice(cron.between(start, end), 3000)))
    assume(len(whole) < 3000)
    assert utc([*cron.between(start, stop), *cron.between(stop, end)]) == whole


def test_a_fold_is_met_the_same_from_far_away() -> None:
    winter = at("2026-01-01T00:00")
    daily = Cron("30 2 25 10 *", "Europe/Berlin")
    assert shown(daily.next(winter)) == "25 02:30+02"
    starred = Cron("*/30 2 25 10 *", "Europe/Berlin")
    assert shown(starred.next(winter)) == "25 02:00+02"


def test_in_the_second_pass_a_time_at_its_end_is_still_to_come() -> None:
    second = at("2026-10-25T02:10", "Europe/Berlin", fold=1)
    for expression in ("0 3 * * *", "0,30 2-3 * * *", "0 * * * *"):
        assert shown(Cron(expression, "Europe/Berlin").next(second)) == "25 03:00+01"


def test_a_year_that_ends_in_a_fold_has_both_its_passes() -> None:
    starred = Cron("0 */30 2 25 10 ? 2026", "Europe/Berlin")
    both = "25 02:00+02, 25 02:30+02, 25 02:00+01, 25 02:30+01"
    assert shown(*starred.upcoming(START, 9)) == both

    daily = Cron("0 30 2 25 10 ? 2026", "Europe/Berlin")
    second = at("2026-10-25T02:10", "Europe/Berlin", fold=1)
    assert shown(*daily.upcoming(START, 9)) == "25 02:30+02"
    assert daily.next(second) is None


def test_a_gap_is_met_the_same_from_far_away() -> None:
    winter = at("2026-01-01T00:00")
    daily = Cron("30 2 29 3 *", "Europe/Berlin")
    assert shown(daily.next(winter)) == "29 03:00+02"
    starred = Cron("*/30 2 29-30 3 *", "Europe/Berlin")
    assert shown(starred.next(winter)) == "30 02:00+02"


def test_a_starred_rule_whose_next_wall_time_is_a_year_away_still_has_a_second_pass() -> None:
    # The last Sunday of October ends October here: after 02:59 the wall shows 02:00 again.
    cron = Cron("*/30 1,2 * 10 *", "Europe/Berlin")
    last = at("2021-10-31T02:59", "Europe/Berlin")
    assert shown(*cron.upcoming(last, 3)) == "31 02:00+01, 31 02:30+01, 01 01:00+02"
    at("2021-10-31T02:00", "Europe/Berlin", fold=1)


def random_expression(choose: random.Random) -> str:
    """Return a rule of five fields, quickly: hypothesis is slower than the walk."""

    def field(low: int, high: int) -> str:
        first, last = sorted((choose.randint(low, high), choose.randint(low, high)))
        step = choose.randint(1, high)
        forms = ["*", f"{first}", f"*/{step}", f"{first}-{last}", f"{first}-{last}/{step}"]
        return choose.choice([*forms, f"{first}/{step}", f"{first},{last}", f"{first},*/{step}"])

    hour = choose.choice([field(0, 23), "0", "1", "2", "3", "0-4", "1,2", "23", "*/2"])
    odd = ["L", "LW", f"L-{choose.randint(1, 30)}", f"{choose.randint(1, 31)}W,L-1"]
    day = choose.choice(["*", "*", "*", field(1, 31), choose.choice(odd)])
    odd = [f"{choose.randint(0, 7)}#{choose.randint(1, 5)}", f"{choose.randint(0, 7)}L,1"]
    weekday = choose.choice(["*", "*", "?", field(0, 7), choose.choice(odd)])
    months = ["*", "*", field(1, 12), "3", "10", "4,11"]
    return f"{field(0, 59)} {hour} {day} {choose.choice(months)} {weekday}"


def test_random_rules_agree_with_a_walk_along_the_clock() -> None:
    choose = random.Random(3)
    zones = ["Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "Pacific/Chatham"]
    zones += ["America/Havana", "Africa/Cairo", "Antarctica/Troll", "Asia/Gaza", "Asia/Pyongyang"]
    count = 0
    for _ in range(scaled(600)):
        zone = choose.choice(zones)
        change = choose.choice(changes_of(zone))
        start = change + choose.randint(-1500, 90) * MINUTE
        end = change + choose.randint(90, 1500) * MINUTE
        expressions = [random_expression(choose) for _ in range(20)]
        expressions += [f"0 {expression} {change.year}" for expression in expressions[:4]]
        expected = fires([rule(expression) for expression in expressions], zone, start, end)
        for expression, moments in zip(expressions, expected, strict=True):
            cron = Cron(expression, zone)
            assert utc(list(cron.between(start, end))) == moments, (expression, zone, start, end)
            count += len(moments)
    assert count > 1_000


def test_the_days_of_random_rules_agree_with_a_walk_through_the_calendar() -> None:
    choose = random.Random(4)
    for _ in range(scaled(400)):
        expression = "0 12 " + random_expression(choose).split(maxsplit=2)[2]
        wanted = rule(expression)
        start = at("1999-01-01T00:00") + timedelta(days=choose.randint(0, 9_000))
        days = (start + timedelta(days=n, hours=12) for n in range(1_500))
        expected = [day for day in days if wanted.is_day(day.date())]
        end = start + timedelta(days=1_500)
        assert list(Cron(expression).between(start, end)) == expected, expression


# Words


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("0 6 * * *", "at 06:00 every day"),
        ("30 8 * * 1-5", "at 08:30 on Monday to Friday"),
        ("*/5 * * * *", "every 5 minutes"),
        ("0 9 1 * *", "at 09:00 on the first day of the month"),
        ("* * * * *", "every minute"),
        ("* * * * * *", "every second"),
        ("@hourly", "every hour"),
        ("15 * * * *", "at minute 15 of every hour"),
        ("1 * * * *", "at minute 1 of every hour"),
        ("0,20,35 * * * *", "at minutes 0, 20 and 35 of every hour"),
        ("2/5 * * * *", "every 5 minutes from 00:02 to 23:57 every day"),
        ("*/7 * * * *", "at minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour"),
        ("5-10 * * * *", "at minutes 5 to 10 of every hour"),
        ("0 */6 * * *", "every 6 hours"),
        ("0 */12 * * *", "at 00:00 and 12:00 every day"),
        ("30 */6 * * *", "every 6 hours from 00:30 to 18:30 every day"),
        ("0 */5 * * *", "every 5 hours from 00:00 to 20:00 every day"),
        ("0 9-17 * * MON-FRI", "every hour from 09:00 to 17:00 on Monday to Friday"),
        ("0 8-18/2 * * *", "every 2 hours from 08:00 to 18:00 every day"),
        ("*/15 9-17 * * *", "every 15 minutes from 09:00 to 17:45 every day"),
        ("* 9 * * *", "every minute from 09:00 to 09:59 every day"),
        (
            "*/15 9-12,14-17 * * *",
            "at minutes 0, 15, 30 and 45 of hours 9 to 12 and 14 to 17 every day",
        ),
        (
            "*/20 1,3,5,7,9 * * *",
            "at minutes 0, 20 and 40 of hours 1, 3, 5, 7 and 9 every day",
        ),
        ("0,30 9 * * *", "at 09:00 and 09:30 every day"),
        ("0 1,2,5,9,14 * * *", "at 01:00, 02:00, 05:00, 09:00 and 14:00 every day"),
        ("5,17,42 1,4,9 * * *", "at minutes 5, 17 and 42 of hours 1, 4 and 9 every day"),
        ("30 0 9 * * *", "at 09:00:30 every day"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("30 * * * * *", "at second 30 of every minute"),
        (
            "0,7,30 * 9-17 * * *",
            "at seconds 0, 7 and 30 of every minute of hours 9 to 17 every day",
        ),
        (
            "*/10 * 9-17 * * *",
            "at seconds 0, 10, 20, 30, 40 and 50 of every minute of hours 9 to 17 every day",
        ),
        (
            "*/10 */5 * * * *",
            "at seconds 0, 10, 20, 30, 40 and 50 of minutes 0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50 and 55 of every hour",
        ),
        ("* 0 9 * * *", "at seconds 0 to 59 of minute 0 of hour 9 every day"),
        ("30 4 * * SUN", "at 04:30 on Sundays"),
        ("0 9 * * MON,WED,FRI", "at 09:00 on Mondays, Wednesdays and Fridays"),
        ("0 9 * * SAT-SUN", "at 09:00 on Saturdays and Sundays"),
        ("0 9 * * SUN-WED", "at 09:00 on Sunday to Wednesday"),
        ("0 9 * * MON-SUN", "at 09:00 every day"),
        ("0 9 1-31 * *", "at 09:00 every day"),
        ("*/5 * * * MON", "every 5 minutes on Mondays"),
        ("0 0 1 1 *", "at 00:00 on the first day of January"),
        ("0 0 25 12 *", "at 00:00 on the 25th of December"),
        ("0 0 1,15 * *", "at 00:00 on the 1st and 15th of the month"),
        ("0 0 1-7 * *", "at 00:00 on the 1st to 7th of the month"),
        (
            "0 0 */2 * *",
            "at 00:00 on the 1st, 3rd, 5th, 7th, 9th, 11th, 13th, 15th, 17th, 19th, 21st, 23rd, 25th, 27th, 29th and 31st of the month, skipping shorter months",
        ),
        (
            "0 0 9W,27W,LW * *",
            "at 00:00 on the last working day of the month and also on the working day nearest to the 9th and 27th of the month",
        ),
        ("0 0 1,15,L * *", "at 00:00 on the 1st, 15th and last day of the month"),
        ("0 0 L-1 * *", "at 00:00 on the second-to-last day of the month"),
        ("0 0 L-9 * *", "at 00:00 on the 10th-to-last day of the month"),
        ("0 0 LW * *", "at 00:00 on the last working day of the month"),
        (
            "0 0 15W * *",
            "at 00:00 on the working day nearest to the 15th of the month",
        ),
        ("0 0 * * MON#1", "at 00:00 on the first Monday of the month"),
        ("0 0 * * MON#1,FRI#3", "at 00:00 on the first Monday and the third Friday of the month"),
        ("0 0 * * 5L", "at 00:00 on the last Friday of the month"),
        ("0 0 * 6 5L", "at 00:00 on the last Friday of June"),
        ("0 0 * * MON,FRI#3", "at 00:00 on Mondays and also on the third Friday of the month"),
        ("0 0 13 * FRI", "at 00:00 on the 13th of the month and also on Fridays"),
        ("0 0 13 6 FRI", "at 00:00 on the 13th of June and also on Fridays in June"),
        ("0 0 1 6-8 *", "at 00:00 on the first day of each month from June to August"),
        ("0 9 * JUN,JUL *", "at 09:00 every day in June and July"),
        ("*/5 * * 6-8 *", "every 5 minutes from June to August"),
        ("0 9 * 6-8 MON", "at 09:00 on Mondays from June to August"),
        ("0 0 9 1 1 ? 2027", "at 09:00 on the first day of January, in 2027"),
        ("0 0 9 * * ? 2027-2030", "at 09:00 every day, from 2027 to 2030"),
        ("0 0 9 * * ? 2027,2029-2031", "at 09:00 every day, in 2027 and 2029 to 2031"),
        (
            "0 0 9 * * ? 2028/4",
            "at 09:00 every day, in 2028, 2032, 2036, 2040, 2044, 2048, 2052, 2056, 2060, 2064, 2068, 2072, 2076, 2080, 2084, 2088, 2092, 2096, 2100, 2104, 2108, 2112, 2116, 2120, 2124, 2128, 2132, 2136, 2140, 2144, 2148, 2152, 2156, 2160, 2164, 2168, 2172, 2176, 2180, 2184, 2188, 2192 and 2196",
        ),
        ("0 0 30 2 *", "at 00:00 on the 30th of February, which never occurs"),
        ("0 0 31 * *", "at 00:00 on the 31st of the month, skipping shorter months"),
    ],
)
def test_a_rule_in_words(expression: str, words: str) -> None:
    assert Cron(expression).describe() == words


def test_the_same_words_are_never_said_of_two_rules() -> None:
    """Rules that sound the same fire the same; so the words leave nothing out."""
    choose = random.Random(5)
    said: dict[str, Cron] = {}
    for _ in range(scaled(200_000)):
        expression = random_expression(choose)
        if choose.random() < 0.3:
            expression = f"{choose.choice(['0', '7', '*', '*/20', '10/20', '1-9'])} {expression}"
        cron = Cron(expression)
        other = said.setdefault(cron.describe(), cron)
        alike = cron._meaning()._replace(starred=False) == other._meaning()._replace(starred=False)
        assert alike, (cron, other, cron.describe())
    assert len(said) > 1_000


# Refusals

REFUSED = {
    "": "expression is empty; write five fields, such as '0 9 * * *'",
    "  \t": "expression is empty; write five fields, such as '0 9 * * *'",
    "@dayly": "expression '@dayly' is not known; did you mean @daily?",
    "daily": "expression 'daily' is not known; did you mean @daily?",
    "@hour": "expression '@hour' is not known; did you mean @hourly?",
    "@easter": "expression '@easter' is not known; write one of @yearly, @annually, @monthly, "
    "@weekly, @daily, @midnight, @hourly",
    "@reboot": "expression @reboot is not supported; write the times to run at",
    "@every 5m": "expression @every is not supported; write '*/5 * * * *' for every 5 minutes",
    "soon": "expression has 1 field; it needs minute, hour, day of month, month and weekday",
    "not a cron": "expression has 3 fields; it needs minute, hour, day of month, month and weekday",
    "a b c d": "expression has 4 fields; it needs minute, hour, day of month, month and weekday",
    "0 9 * *": "expression has 4 fields; the weekday seems to be missing; write '0 9 * * *'",
    "0 9 * Mon": "expression has 4 fields; the month seems to be missing; write '0 9 * * Mon'",
    "9 * * MON-FRI": "expression has 4 fields; the minute seems to be missing; "
    "write '0 9 * * MON-FRI'",
    "1 2 3 4 5 6 7 8": "expression has 8 fields; it can have 5, 6 (second first) or 7 (year last)",
    "٣ * * * *": "expression has '\\u0663' (U+0663); use only ASCII letters, digits and spaces",
    "0 9 * * *\N{NO-BREAK SPACE}": "expression has '\\xa0' (U+00A0); use only ASCII letters, "
    "digits and spaces",
    "0 24 * * *": "hour 24 is outside 0-23",
    "60 * * * *": "minute 60 is outside 0-59",
    "60 * * * * *": "second 60 is outside 0-59",
    "0 0 0 * *": "day of month 0 is outside 1-31",
    "0 0 32 * *": "day of month 32 is outside 1-31",
    "0 0 1 13 *": "month 13 is outside 1-12",
    "0 0 * * 8": "weekday 8 is outside 0-7",
    "0 0 0 1 1 ? 1969": "year 1969 is outside 1970-2199",
    "0 0 0 1 1 ? 2200": "year 2200 is outside 1970-2199",
    "*/0 * * * *": "minute step 0 in */0 is not allowed; the smallest step is 1",
    "*/ * * * *": "minute step is missing after '/'; write */2",
    "5/x * * * *": "minute step 'X' is not a number; write 5/2",
    "1/2/3 * * * *": "minute step '2/3' is not a number; write 1/2",
    "/5 * * * *": "minute '/5' is not valid; write * alone, or with a step such as */2",
    "1,,2 * * * *": "minute has an empty item in its list; remove the extra comma",
    "1,2, * * * *": "minute has an empty item in its list; remove the extra comma",
    ", * * * *": "minute has an empty item in its list; remove the extra comma",
    "0 8-5 * * *": "hour range 8-5 runs backwards; write 8-23,0-5",
    "0 8-0 * * *": "hour range 8-0 runs backwards; write 8-23,0",
    "50-10/20 * * * *": "minute range 50-10 runs backwards; write 50,10",
    "0 20-6/2 * * *": "hour range 20-6 runs backwards; write 20,22,0-6/2",
    "0 0 * * FRI-MON": "weekday range FRI-MON runs backwards; write FRI,SAT,SUN,MON",
    "0 0 * * 5-1": "weekday range 5-1 runs backwards; write FRI,SAT,SUN,MON",
    "0 0 * * 5-0": "weekday range 5-0 runs backwards; write FRI,SAT,SUN",
    "0 0 * NOV-FEB *": "month range NOV-FEB runs backwards; write NOV,DEC,JAN,FEB",
    "0 0 28-3 * *": "day of month range 28-3 runs backwards; write 28-31,1-3",
    "0 0 0 1 1 ? 2030-2027": "year range 2030-2027 runs backwards; write 2027-2030",
    "-5 * * * *": "minute '-5' is not a range; write it as a-b",
    "5- * * * *": "minute '5-' is not a range; write it as a-b",
    "1-2-3 * * * *": "minute '1-2-3' is not a range; write it as a-b",
    "*5 * * * *": "minute '*5' is not valid; write * alone, or with a step such as */2",
    "*-5 * * * *": "minute '*-5' is not valid; write * alone, or with a step such as */2",
    "1.5 * * * *": "minute '1.5' is not known; write a number in 0-59",
    "+5 * * * *": "minute '+5' is not known; write a number in 0-59",
    "1_0 * * * *": "minute '1_0' is not known; write a number in 0-59",
    "H * * * *": "minute 'H' is not known; write a number in 0-59",
    "? * * * *": "minute '?' is not valid; ?, L, W and # are for the day fields",
    "0 0 1 ? *": "month '?' is not valid; ?, L, W and # are for the day fields",
    "0 0 ?/2 * *": "day of month '?/2' is not valid; ?, L, W and # are for the day fields",
    "0 0 * * 1,?": "weekday '?' is not valid; ?, L, W and # are for the day fields",
    "0 L * * *": "hour 'L' is not valid; ?, L, W and # are for the day fields",
    "0 0 * 5#2 *": "month '5#2' is not valid; ?, L, W and # are for the day fields",
    "0 0 L-31 * *": "day of month 'L-31' is not valid; write L (last day), L-3, LW (last weekday) or 15W",
    "0 0 L-0 * *": "day of month 'L-0' is not valid; write L (last day), L-3, LW (last weekday) or 15W",
    "0 0 32W * *": "day of month 32 is outside 1-31",
    "0 0 W * *": "day of month 'W' is not valid; write L (last day), L-3, LW (last weekday) or 15W",
    "0 0 1-15W * *": "day of month '1-15W' is not valid; write L (last day), L-3, "
    "LW (last weekday) or 15W",
    "0 0 L/2 * *": "day of month 'L/2' is not valid; write L (last day), L-3, "
    "LW (last weekday) or 15W",
    "0 0 5#2 * *": "day of month '5#2' is not valid; ?, L, W and # are for the day fields",
    "0 0 * * L": "weekday 'L' is not valid; write FRI#2 for the second Friday, FRIL for the last",
    "0 0 * * #2": "weekday '#2' is not valid; write FRI#2 for the second Friday, FRIL for the last",
    "0 0 * * 5#6": "weekday '5#6' is not valid; write FRI#2 for the second Friday, FRIL for the last",
    "0 0 * * 5#0": "weekday '5#0' is not valid; write FRI#2 for the second Friday, FRIL for the last",
    "0 0 * * 5#": "weekday '5#' is not valid; write FRI#2 for the second Friday, FRIL for the last",
    "0 0 * * 5#L": "weekday '5#L' is not valid; write FRI#2 for the second Friday, FRIL for the last",
    "0 0 * * MON-FRI#2": "weekday 'MON-FRI#2' is not valid; write FRI#2 for the second Friday, FRIL for the last",
    "0 0 * * MON-FRIL": "weekday 'MON-FRIL' is not valid; write FRI#2 for the second Friday, FRIL for the last",
    "0 0 * * 15W": "weekday '15W' is not known; write SUN-SAT or a number in 0-7",
    "0 0 * * MNO": "weekday 'MNO' is not known; did you mean MON?",
    "0 0 * * TUESDAYS": "weekday 'TUESDAYS' is not known; did you mean TUE?",
    "0 0 * * TUES": "weekday 'TUES' is not known; did you mean TUE?",
    "0 0 * * MONDA": "weekday 'MONDA' is not known; did you mean MON?",
    "0 0 * * MON-THURS": "weekday 'THURS' is not known; did you mean THU?",
    "0 0 * * FRIDA#2": "weekday 'FRIDA' is not known; did you mean FRI?",
    "0 0 * JANU *": "month 'JANU' is not known; did you mean JAN?",
    "0 0 * SEPT *": "month 'SEPT' is not known; did you mean SEP?",
    "0 0 * Jan-Octo *": "month 'OCTO' is not known; did you mean OCT?",
    "0 0 * * MO": "weekday 'MO' is not known; did you mean MON?",
    "0 0 * JANUAR7 *": "month 'JANUAR7' is not known; did you mean JAN?",
    "0 0 * MON *": "month 'MON' is a weekday, not a month",
    "0 9 JAN * *": "day of month 'JAN' is a month, not a day of month",
    "TZ=Europe/Berlin 0 9 * * *": "second 'TZ=Europe/Berlin' is a time zone; set it separately, "
    "not in the expression",
}


@pytest.mark.parametrize(("expression", "message"), REFUSED.items())
def test_a_refusal_says_what_is_wrong_and_what_would_be_right(
    expression: str, message: str
) -> None:
    assert reason(expression) == message


def test_a_suggested_rule_can_be_read() -> None:
    for expression in ("0 8-5 * * *", "0 20-6/2 * * *", "0 0 * * FRI-MON", "0 0 28-3 * *"):
        right = reason(expression).rpartition("write ")[2]
        wrong = next(field for field in expression.split() if "-" in field)
        assert not Cron(expression.replace(wrong, right)).never


@pytest.mark.parametrize(
    ("expression", "caret"),
    [
        ("0 24 * * *", "0 24 * * *\n  ^^"),
        ("  0  9 * * 1,FRI-MON", "  0  9 * * 1,FRI-MON\n             ^^^^^^^"),
        ("\t0\t25 * * *", " 0 25 * * *\n   ^^"),
        ("0 0 9 * * 8", "0 0 9 * * 8\n          ^"),
        ("0 0 9 * * 8 2026", "0 0 9 * * 8 2026\n          ^"),
        ("1,,2 * * * *", "1,,2 * * * *\n  ^"),
        (" 0 9 * *", " 0 9 * *\n ^^^^^^^"),
        ("", "\n^"),
    ],
)
def test_a_caret_stands_under_the_part_that_is_wrong(expression: str, caret: str) -> None:
    with pytest.raises(CronError) as refused:
        Cron(expression)
    assert refused.value.caret() == caret


def test_a_refusal_keeps_its_facts() -> None:
    with pytest.raises(ScheduleError) as refused:
        Cron("0 24 * * *")
    assert refused.value.data() == {
        "code": "cron",
        "message": "cron '0 24 * * *': hour 24 is outside 0-23",
        "facts": {
            "expression": "0 24 * * *",
            "field": "hour",
            "reason": "24 is outside 0-23",
            "column": 3,
            "width": 2,
        },
    }


def test_a_long_expression_is_read_up_to_a_thousand_characters() -> None:
    minutes = ",".join(["0"] * 496)
    assert Cron(f"{minutes} * * * *") == Cron("0,0 * * * *")
    with pytest.raises(CronError) as refused:
        Cron(f"{minutes},0 * * * *")
    assert str(refused.value).endswith("…': expression has 1001 characters, more than 1000")
    assert len(str(refused.value)) < 200
    assert len(refused.value.caret()) < 200


def test_a_zone_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ZoneError, match="did you mean Europe/Berlin"):
        Cron("0 9 * * *", zone="Europe/Berln")


@settings(max_examples=scaled(5_000), deadline=None)
@given(st.text(max_size=60) | st.text("0123456789*/,-?LW#@ \tMONFRIJA", max_size=40))
def test_any_text_is_a_rule_or_a_refusal_that_points_into_it(text: str) -> None:
    refused = refusal(text)
    if refused is None:
        assert Cron(text).describe()
    else:
        assert 1 <= refused.column <= max(1, len(text))
        assert refused.caret().count("\n") == 1


def refusal(text: str) -> CronError | None:
    try:
        Cron(text)
    except CronError as refused:
        return refused
    return None


def test_of_several_wrong_fields_the_first_is_named() -> None:
    with pytest.raises(CronError, match="day of month 0 is outside 1-31"):
        Cron("0 0 0 0 9")
