"""A calendar program and `project` never disagree."""

import random
import re
import tracemalloc
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from typing import Any
from zoneinfo import available_timezones

import pytest
from dateutil.rrule import rrulestr
from hypothesis import given, settings, strategies as st
from icalendar import Calendar
from msgspec.structs import replace

from horae.core.entry import (
    CadenceRule,
    Entry,
    OnceRule,
    OnDemandRule,
    Origin,
    Policy,
    RepeaterRule,
    Rule,
    cron_rule,
)
from horae.core.project import project
from horae.org.document import read
from horae.sources.plans.arming import entries_of
from horae.timing.repeater import parse_repeater
from horae.timing.zone import ClockChange, changes, instant, zone
from horae.web.ics import MOST, calendar, folded, is_cut
from scale import scaled

START = datetime(2026, 1, 1, tzinfo=UTC)
END = datetime(2027, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 1, 1, 12, 30, 45, 678, tzinfo=UTC)

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "Africa/Casablanca",
    "Africa/Cairo",
    "America/Nuuk",
    "Antarctica/Troll",
    "Asia/Kolkata",
]


def entry(rule: Rule, *, zone: str = "UTC", **more: Any) -> Entry:
    return Entry("id:digest", Origin("plan.org", 3), "Digest", rule, zone=zone, **more)


def cron(expression: str, *, zone: str = "UTC", **more: Any) -> Entry:
    return entry(cron_rule(expression, zone_name=zone), zone=zone, **more)


def repeating(anchor: str, repeater: str, *, zone: str = "UTC", **more: Any) -> Entry:
    rule = RepeaterRule(datetime.fromisoformat(anchor), parse_repeater(repeater))
    return entry(rule, zone=zone, **more)


def written(
    *entries: Entry, start: datetime = START, end: datetime = END, zone_name: str | None = None
) -> str:
    """Return the calendar of entries, in the zone of the first if no other is named."""
    zone_name = zone_name or (entries[0].zone if entries else "UTC")
    return "".join(calendar(entries, start=start, end=end, now=NOW, zone_name=zone_name))


def opened(text: str) -> Any:
    """Return a calendar as the library reads it, without a complaint of the library's."""
    found = Calendar.from_ical(text.encode())
    assert [each.errors for each in found.walk() if each.errors] == []
    return found


def occurrences(text: str, start: datetime = START, end: datetime = END) -> list[datetime]:
    """Return what a program finds that knows of zones only what the calendar itself tells."""
    book = opened(text)
    zones = {str(each["TZID"]): each.to_tz(lookup_tzid=False) for each in book.timezones}
    found = [at for event in book.events for at in occurrences_of(event, zones, start, end)]
    return sorted(at for at in found if start < at <= end)


def occurrences_of(
    event: Any, zones: dict[str, tzinfo], start: datetime, end: datetime
) -> list[datetime]:
    stamp = event["DTSTART"]
    place = zones[stamp.params["TZID"]] if "TZID" in stamp.params else UTC
    first = stamp.dt.replace(tzinfo=None)
    if "RRULE" not in event:
        return [first.replace(tzinfo=place).astimezone(UTC)]
    # The standard repeats what the wall shows, and asks the zone only then.
    [until] = event["RRULE"].pop("UNTIL", [end])
    rule = rrulestr(event["RRULE"].to_ical().decode(), dtstart=first)
    low, high = (each.replace(tzinfo=None) for each in (start, end))
    walls = rule.between(low - timedelta(days=2), high + timedelta(days=2))
    found = (wall.replace(tzinfo=place).astimezone(UTC) for wall in walls)
    return [at for at in found if at <= until]


def planned(entry: Entry, start: datetime = START, end: datetime = END) -> list[datetime]:
    return [moment.at.replace(microsecond=0) for moment in project(entry, start, end)]


def recurrence(text: str) -> str | None:
    """Return how the first event of a calendar recurs."""
    found = re.search(r"BEGIN:VEVENT.*?END:VEVENT", text, re.DOTALL)
    assert found, "the calendar has an event"
    rule = re.search(r"^RRULE:(.*)\r$", found[0], re.MULTILINE)
    return rule[1] if rule else None


def check_strictly(text: str) -> None:
    """Read a calendar as the standard has it, to the letter."""
    assert text.endswith("\r\n")
    assert not re.search(r"(?<!\r)\n|\r(?!\n)", text), "lines end in CRLF"
    for data in text.removesuffix("\r\n").encode().split(b"\r\n"):
        assert len(data) <= 75
        assert data.decode().strip(), "no character is cut, and no line is empty"
    around: list[str] = []
    for line in re.sub("\r\n ", "", text).split("\r\n")[:-1]:
        whole = re.fullmatch(r"([A-Z-]+)(?:;TZID=[\w/+-]+)?:([^\x00-\x08\x0a-\x1f\x7f]*)", line)
        assert whole, line
        if whole[1] == "BEGIN":
            around.append(whole[2])
        elif whole[1] == "END":
            assert around.pop() == whole[2]
        assert around or line == "END:VCALENDAR"


rules = st.builds(
    str.format,
    st.sampled_from(
        [
            "{m} {h} * * *", "{m} {h} * * MON-FRI", "{m} {h} * * 0,3", "{m} {h} 15 * *",
            "{m} {h} 31 * *", "{m} {h} L * *", "{m} {h} 29 3 *", "15 {m} {h} * * 2",
            "{m} {h} 1 * MON", "{m} {h} * * 5#2", "{m} {h},12 * * 1", "{m} */6 * * 6",
            "{m} {h} * * 1; 0 12 * * 1",
        ]
    ),
    m=st.sampled_from([0, 15, 30, 45]),
    h=st.sampled_from([0, 1, 2, 3, 9, 23]),
)  # fmt: skip
repeaters = st.builds(
    "{}{}{}".format,
    st.sampled_from(["+", "++", ".+"]),
    st.sampled_from([1, 2, 3, 14]),
    st.sampled_from("dwmy"),
)
anchors = st.datetimes(datetime(2025, 1, 1), datetime(2026, 12, 31)).map(  # noqa: DTZ001 - a wall time
    lambda at: at.replace(minute=at.minute // 15 * 15, second=0, microsecond=0).isoformat()
)
windows = st.integers(0, 300).map(
    lambda day: (START + day * timedelta(days=1), END + day * timedelta(days=1))
)


@settings(max_examples=scaled(300), deadline=None)
@given(rules, st.sampled_from(ZONES), st.sampled_from(ZONES), windows)
def test_the_occurrences_of_a_cron_rule_are_those_of_project(
    rule: str, place: str, own: str, window: tuple[datetime, datetime]
) -> None:
    digest = cron(rule, zone=place)
    text = written(digest, start=window[0], end=window[1], zone_name=own)
    assert occurrences(text, *window) == planned(digest, *window)


@settings(max_examples=scaled(300), deadline=None)
@given(anchors, repeaters, st.sampled_from(ZONES), st.sampled_from(ZONES), windows)
def test_the_occurrences_of_a_repeater_are_those_of_project(
    anchor: str, repeater: str, place: str, own: str, window: tuple[datetime, datetime]
) -> None:
    digest = repeating(anchor, repeater, zone=place)
    text = written(digest, start=window[0], end=window[1], zone_name=own)
    assert occurrences(text, *window) == planned(digest, *window)


@pytest.mark.parametrize("place", ZONES)
def test_what_recurs_is_still_right_after_the_window_and_a_hundred_years_on(place: str) -> None:
    digest = cron("0 6 * * MON", zone=place)
    text = written(digest)
    assert recurrence(text) == "FREQ=WEEKLY;BYDAY=MO"
    for year in (2027, 2126):
        window = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
        assert occurrences(text, *window) == planned(digest, *window)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 9 * * *", "FREQ=DAILY"),
        ("@daily", "FREQ=DAILY"),
        ("30 0 9 * * * *", "FREQ=DAILY"),
        ("0 9 ? * MON-SUN", "FREQ=DAILY"),
        ("0 9 * * WED,MON", "FREQ=WEEKLY;BYDAY=MO,WE"),
        ("0 9 * * 7", "FREQ=WEEKLY;BYDAY=SU"),
        ("0 9 28 * *", "FREQ=MONTHLY"),
        ("0 9 28 2 *", "FREQ=YEARLY"),
        ("0 9 29 * *", None),  # not every month has one
        ("0 9 29 2 *", None),
        ("0 9 L * *", None),
        ("0 9 1 * MON", None),  # either will do
        ("0 9 * * MON#1", None),
        ("0 9 * 2 *", None),
        ("0 9,17 * * *", None),
        ("0 9 * * *; 0 17 * * *", None),
        ("0 */6 * * *", None),
        ("0 0 9 * * * 2028", None),
    ],
)
def test_one_time_on_plain_days_recurs_and_all_else_is_written_out(
    expression: str, expected: str | None
) -> None:
    digest = cron(expression, zone="Europe/Berlin")
    window = datetime(2028, 2, 1, tzinfo=UTC), datetime(2028, 4, 1, tzinfo=UTC)
    text = written(digest, start=window[0], end=window[1])
    assert recurrence(text) == expected
    assert occurrences(text, *window) == planned(digest, *window)[:MOST]


@pytest.mark.parametrize(
    ("anchor", "repeater", "expected"),
    [
        ("2026-06-06T06:00", "+1d", "FREQ=DAILY"),
        ("2020-06-06T06:00", "++3d", "FREQ=DAILY;INTERVAL=3"),
        ("2026-06-06T06:00", "+2w", "FREQ=WEEKLY;INTERVAL=2"),
        ("2026-06-28T06:00", "+1m", "FREQ=MONTHLY"),
        ("2026-06-28T06:00", "+5y", "FREQ=YEARLY;INTERVAL=5"),
        ("2026-01-31T06:00", "+1m", None),  # 3 March, and not 31 March
        ("2025-01-31T06:00", "+1m", "FREQ=MONTHLY"),  # it ran over long ago
        ("2024-02-29T06:00", "+1y", "FREQ=YEARLY"),  # likewise: 1 March
        ("2024-02-29T06:00", "+4y", None),
        ("2028-01-06T06:00", "+6h", None),
        ("2026-06-06T06:00", ".+1m", None),
    ],
)
def test_a_repeater_recurs_if_every_month_has_its_day(
    anchor: str, repeater: str, expected: str | None
) -> None:
    digest = repeating(anchor, repeater, zone="Europe/Berlin")
    window = START, datetime(2028, 4, 1, tzinfo=UTC)
    text = written(digest, end=window[1])
    assert recurrence(text) == expected
    assert occurrences(text, *window) == planned(digest, *window)


@pytest.mark.parametrize(
    ("place", "at", "recurs"),
    [
        ("Europe/Berlin", "01:59", True),
        ("Europe/Berlin", "02:00", False),
        ("Europe/Berlin", "02:59", False),
        ("Europe/Berlin", "03:00", True),
        ("America/New_York", "01:30", False),  # comes twice in autumn
        ("America/New_York", "02:30", False),  # is left out in spring
        ("America/New_York", "03:30", True),
        ("Australia/Lord_Howe", "01:30", False),  # half an hour
        ("Australia/Lord_Howe", "02:29", False),
        ("Australia/Lord_Howe", "02:30", True),
        ("America/Nuuk", "23:30", False),
        ("America/Nuuk", "22:30", True),
        ("America/Nuuk", "00:00", True),
        ("Africa/Cairo", "00:00", False),
        ("Africa/Cairo", "23:00", False),
        ("Asia/Kolkata", "02:30", True),  # the clock never changes
    ],
)
def test_a_time_of_day_that_a_clock_change_ever_touches_is_written_out(
    place: str, at: str, recurs: bool
) -> None:
    hour, minute = at.split(":")
    window = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 5, 1, tzinfo=UTC)
    for digest in (
        cron(f"{minute} {hour} * * *", zone=place),
        repeating(f"2026-01-01T{at}", "+1d", zone=place),
    ):
        text = written(digest, start=window[0], end=window[1])
        assert recurrence(text) == ("FREQ=DAILY" if recurs else None)
        assert occurrences(text, *window) == planned(digest, *window)


def test_a_time_in_a_gap_is_written_where_it_comes() -> None:
    text = written(cron("30 2 * * *", zone="Europe/Berlin"))
    assert "DTSTART;TZID=Europe/Berlin:20260328T023000\r\n" in text
    assert "DTSTART;TZID=Europe/Berlin:20260329T030000\r\n" in text
    assert "20260329T023000" not in text


def test_a_time_that_comes_twice_is_written_in_utc_for_a_wall_cannot_tell_which_is_meant() -> None:
    digest = cron("30 * * * *", zone="Europe/Berlin")
    window = datetime(2026, 10, 24, 23, tzinfo=UTC), datetime(2026, 10, 25, 3, tzinfo=UTC)
    text = written(digest, start=window[0], end=window[1])
    assert re.findall(r"^DTSTART.*?:(2026\w+)\r$", text, re.MULTILINE) == [
        "20261025T013000",
        "20261025T003000Z",
        "20261025T013000Z",
        "20261025T033000",
    ]
    assert occurrences(text, *window) == planned(digest, *window)


def test_a_day_that_a_zone_left_out_does_not_become_another_day_of_the_month() -> None:
    # There was no 21 August 1993 on Kwajalein.
    start, end = datetime(1993, 8, 1, tzinfo=UTC), datetime(1995, 8, 1, tzinfo=UTC)
    for day, expected in (("20", None), ("21", None), ("22", None)):
        digest = repeating(f"1993-08-{day}T00:00", "+1m", zone="Pacific/Kwajalein")
        text = written(digest, start=start, end=end)
        assert recurrence(text) == expected
        assert occurrences(text, start, end) == planned(digest, start, end)


def test_utc_recurs_only_in_a_calendar_of_utc() -> None:
    # Google Calendar and others move it to the calendar's own zone before they repeat it.
    for place in ("UTC", "Etc/UTC", "Zulu"):
        digest = cron("0 9 * * *", zone=place)
        assert recurrence(written(digest, zone_name="UTC")) == "FREQ=DAILY"
        text = written(digest, zone_name="Europe/Berlin")
        assert recurrence(text) is None
        assert "DTSTART:20260701T090000Z\r\n" in text


@pytest.mark.parametrize(
    ("until", "written_as"),
    [
        ("2026-03-31T06:59:59.999999+00:00", "20260331T065959Z"),
        ("2026-03-31T07:00:00+00:00", "20260331T070000Z"),
    ],
)
def test_until_ends_what_recurs(until: str, written_as: str) -> None:
    policy = Policy(until=datetime.fromisoformat(until))
    digest = cron("0 9 * * *", zone="Europe/Berlin", policy=policy)
    text = written(digest)
    assert recurrence(text) == f"FREQ=DAILY;UNTIL={written_as}"
    assert occurrences(text) == planned(digest)
    assert written(digest, start=policy.until or START).count("BEGIN:VEVENT") == 0


def test_what_depends_on_an_end_that_has_not_come_yet_is_tentative() -> None:
    habit = repeating("2026-06-06T06:00", ".+2w")
    first, *rest = opened(written(habit)).events
    assert (first["STATUS"], first.get("COMMENT")) == ("CONFIRMED", None)
    assert len(rest) == 14
    for event in rest:
        assert event["STATUS"] == "TENTATIVE"
        assert event["COMMENT"] == "An estimate, counted from the end of the previous run."


def test_one_moment_keeps_its_uid_when_it_is_moved() -> None:
    [before], [after] = (
        opened(written(entry(OnceRule(at), zone="Europe/Berlin"))).events
        for at in (NOW, NOW + timedelta(days=3))
    )
    assert before["UID"] == after["UID"]
    assert before["DTSTART"].to_ical() == b"20260101T133045"
    assert after["DTSTART"].params["TZID"] == "Europe/Berlin"


def test_cadences_and_what_runs_on_demand_are_left_out_and_the_calendar_is_still_valid() -> None:
    tick = entry(CadenceRule(timedelta(hours=1), START), zone="Europe/Berlin")
    asked = entry(OnDemandRule(), zone="Europe/Berlin")
    for entries in ([tick, asked], []):
        text = written(*entries)
        check_strictly(text)
        assert opened(text).events == []
        assert len(opened(text).timezones) == 1, "a calendar has at least one component"


def test_a_very_frequent_entry_is_cut_and_says_so_where_it_ends() -> None:
    digest = cron("* * * * * *", zone="Europe/Berlin")
    assert is_cut(digest, start=START, end=END)
    text = written(digest)
    events = opened(text).events
    assert [event["DTSTART"].dt.astimezone(UTC) for event in events] == [
        START + n * timedelta(seconds=1) for n in range(1, MOST + 1)
    ]
    assert [number for number, event in enumerate(events, 1) if "COMMENT" in event] == [MOST]
    assert events[-1]["COMMENT"] == "More events follow: a calendar lists at most 1,000 per entry."


def test_an_entry_is_cut_only_if_moments_are_missing() -> None:
    def is_cut_after(expression: str, count: int) -> bool:
        end = START + timedelta(minutes=count)
        return is_cut(cron(expression), start=START, end=end)

    assert not is_cut_after("* * * * *", MOST)
    assert "COMMENT" not in written(cron("* * * * *"), end=START + timedelta(minutes=MOST))
    assert is_cut_after("* * * * *", MOST + 1)
    assert not is_cut_after("0 0 * * *", 60 * 24 * 5000), "it recurs"
    assert not is_cut(entry(OnDemandRule()), start=START, end=END)
    utc = cron("0 0 * * *")
    assert is_cut(utc, start=START, end=START.replace(year=2036), zone_name="Asia/Kolkata")


def test_a_large_calendar_is_never_held_in_memory() -> None:
    entries = [replace(cron("* * * * *"), address=f"id:{n}") for n in range(2)]
    list(calendar(entries[:1], start=START, end=END, now=NOW))
    tracemalloc.start()
    size = sum(len(line) for line in calendar(entries, start=START, end=END, now=NOW))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size > 500_000
    assert peak < size / 3


def test_an_event_says_what_it_is() -> None:
    digest = cron("0 9 * * MON-FRI", zone="Europe/Berlin")
    text = written(digest)
    check_strictly(text)
    assert text[text.index("BEGIN:VEVENT") :] == (
        "BEGIN:VEVENT\r\n"
        "UID:15694085ced4c5af3a3646b3ae886341@horae\r\n"
        "DTSTAMP:20260101T123045Z\r\n"
        "DTSTART;TZID=Europe/Berlin:20260101T090000\r\n"
        "RRULE:FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR\r\n"
        "SUMMARY:Digest\r\n"
        "DESCRIPTION:plan.org:3\\n0 9 * * MON-FRI (Europe/Berlin)\\nat 09:00 on Monday\r\n"
        "  to Friday\\nid:digest\r\n"
        "CATEGORIES:workflow\r\n"
        "STATUS:CONFIRMED\r\n"
        "TRANSP:TRANSPARENT\r\n"
        "END:VEVENT\r\n"
        "END:VCALENDAR\r\n"
    )


@pytest.mark.parametrize(
    ("when", "lines"),
    [
        (
            repeating("2026-06-06T06:00", "+1d", zone="Asia/Kolkata"),
            ["<2026-06-06 Sat 06:00 +1d> (Asia/Kolkata)", "every day at 06:00"],
        ),
        (repeating("2026-06-06T06:00", ".+2d/4d"), ["<2026-06-06 Sat 06:00 .+2d/4d> (UTC)"]),
        (
            cron("0 9 * * *; 0 17 * * *"),
            ["0 9 * * *; 0 17 * * * (UTC)", "at 09:00 every day; at 17:00 every day"],
        ),
        (entry(OnceRule(NOW)), ["<2026-01-01 Thu 12:30:45> (UTC)", "once, 2026-01-01"]),
    ],
)
def test_the_description_has_the_rule_as_it_is_written_and_in_words(
    when: Entry, lines: list[str]
) -> None:
    place, *said, address = str(opened(written(when)).events[0]["DESCRIPTION"]).split("\n")
    assert (place, address) == ("plan.org:3", "id:digest")
    for line, expected in zip(said, lines, strict=False):
        assert line.startswith(expected)


def test_the_calendar_has_a_name_and_a_zone() -> None:
    lines = calendar([], start=START, end=END, now=NOW, zone_name="Asia/Kolkata", name="a, b")
    text = "".join(lines)
    assert "\r\nX-WR-CALNAME:a\\, b\r\nX-WR-TIMEZONE:Asia/Kolkata\r\n" in text
    assert opened(text)["PRODID"] == "-//Horae//Horae//EN"
    assert opened(text)["VERSION"] == "2.0"


def test_utc_needs_no_telling() -> None:
    assert "VTIMEZONE" not in written(cron("0 9 * * *", zone="Etc/UTC"), zone_name="UTC")


def test_every_zone_that_is_used_is_told_once() -> None:
    entries = [cron("0 9 * * *", zone=place) for place in ("UTC", *ZONES, *ZONES)]
    text = written(*entries, end=START + timedelta(days=9), zone_name="Europe/Berlin")
    told = [str(each["TZID"]) for each in opened(text).timezones]
    assert told == sorted(set(ZONES) - {"UTC"})
    assert set(re.findall(r"TZID=([\w/]+)", text)) == set(told)


@given(st.text(max_size=120))
@settings(max_examples=scaled(2_000), deadline=None)
def test_any_title_comes_back_as_it_was(title: str) -> None:
    text = written(replace(cron("0 9 * * *"), title=f"x{title}"))
    check_strictly(text)
    [event] = opened(text).events
    plain = re.sub("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", "\n", f"x{title}")
    assert event["SUMMARY"] == re.sub("[\x00-\x08\x0e-\x1f\x7f-\x9f]", "\ufffd", plain)


@pytest.mark.parametrize(
    ("title", "line"),
    [
        ("Beans, peas; soup", r"SUMMARY:Beans\, peas\; soup"),
        (r"C:\new\,", r"SUMMARY:C:\\new\\\,"),
        ("two\nlines", r"SUMMARY:two\nlines"),
        ("x\r\nEND:VEVENT\r\nATTACH:file:///etc/passwd", r"SUMMARY:x\nEND:VEVENT\nATTACH:"),
        ("\x1b[31mred\x00", "SUMMARY:\ufffd[31mred\ufffd"),
        ("half \ud83d", "SUMMARY:half \ufffd"),
        ("", "SUMMARY:plan.org:3"),
    ],
)
def test_a_title_is_text_and_nothing_else(title: str, line: str) -> None:
    text = written(replace(cron("0 9 * * *"), title=title))
    check_strictly(text)
    assert f"\r\n{line}" in text
    assert len(opened(text).events) == 1


def test_a_line_is_folded_between_characters_never_inside_one() -> None:
    for width in range(60, 80):
        line = "x" * width + "👩🏽‍🚀é" * 30
        parts = folded(line).split("\r\n")
        assert parts.pop() == ""
        assert max(len(part.encode()) for part in parts) <= 75
        assert min(len(part.encode()) for part in parts[:-1]) >= 72, "no room is wasted"
        assert all(part.startswith(" ") for part in parts[1:])
        assert parts[0] + "".join(part[1:] for part in parts[1:]) == line
    assert folded("x" * 75) == "x" * 75 + "\r\n"
    assert folded("x" * 76) == "x" * 75 + "\r\n x\r\n"


def test_a_huge_title_is_cut() -> None:
    digest = replace(cron("* * * * *"), title="x" * 1_000_000, address="y" * 1_000_000)
    events = written(digest, end=START + timedelta(minutes=5))
    assert len(events) < 10_000


WINTER = START + timedelta(days=60)
PLAN = """\
* Digest :workflow:
:PROPERTIES:
:ID: digest
:SCHEDULE: 30 2 * * *
:END:
* Weekly :workflow:
SCHEDULED: <2026-01-05 Mon 09:00 +1w>
:PROPERTIES:
:ID: weekly
:END:
"""


def uids(plan: str, *, file: str = "plan.org", start: datetime = START) -> set[str]:
    found = entries_of(read(plan), file=file, zone_name="Europe/Berlin")
    entries = [item for item in found if isinstance(item, Entry)]
    return {
        str(event["UID"]) for event in opened(written(*entries, start=start, end=WINTER)).events
    }


def test_a_uid_outlives_a_new_title_another_order_and_another_file() -> None:
    assert uids(PLAN.replace("Digest", "News").replace("* Weekly", "* Sundays")) == uids(PLAN)
    first, second = PLAN[: PLAN.index("* Weekly")], PLAN[PLAN.index("* Weekly") :]
    assert uids(f"* Above\n{second}{first}", file="secret/other.org") == uids(PLAN)


def test_the_same_moment_has_the_same_uid_in_every_calendar() -> None:
    later = uids(PLAN, start=START + timedelta(days=10))
    assert later < uids(PLAN)
    assert len(later) == len(uids(PLAN)) - 10


def test_a_uid_shows_nothing_of_the_address() -> None:
    found = uids(PLAN.replace(":ID:", ":NAME:"), file="secret/plan.org")
    assert len(found) == 61
    for uid in found:
        assert re.fullmatch(r"[0-9a-f]{32}(-\d{8}T\d{6}Z)?@horae", uid)


def test_the_same_entries_give_the_same_bytes_in_the_same_order() -> None:
    entries = [
        replace(cron(rule, zone=place), address=f"id:{rule} {place}", title=f"{rule} {place}")
        for rule in ("0 9 * * *", "30 2 * * *", "0 0 L * *")
        for place in reversed(ZONES)
    ]
    end = START + timedelta(days=40)
    text = written(*entries, end=end)
    assert text == written(*entries, end=end)
    events = opened(text).events
    shown = list(dict.fromkeys(str(event["SUMMARY"]) for event in events))
    assert shown == [each.title for each in entries]
    for one, other in pairwise(events):
        if one["SUMMARY"] == other["SUMMARY"]:
            assert one["DTSTART"].dt.astimezone(UTC) < other["DTSTART"].dt.astimezone(UTC)
    assert len({str(event["UID"]) for event in events}) == len(events)


def told_changes(component: Any, end: datetime) -> list[ClockChange]:
    """Return the clock changes that a calendar tells of, until a moment, by hand."""
    found = [
        ClockChange(
            (onset - part["TZOFFSETFROM"].td).replace(tzinfo=UTC),
            part["TZOFFSETFROM"].td,
            part["TZOFFSETTO"].td,
        )
        for part in component.subcomponents
        for onset in onsets(part, end.replace(tzinfo=None))
    ]
    return sorted(change for change in found if change.at <= end and change.before != change.after)


def onsets(part: Any, end: datetime) -> list[datetime]:
    first = part["DTSTART"].dt
    if "RRULE" in part:
        rule = rrulestr(part["RRULE"].to_ical().decode(), dtstart=first)
        found = rule.between(first, end, inc=True)
        assert found[0] == first, "the first onset is one of its rule"
        return list(found)
    more = [each.dt for each in part["RDATE"].dts] if "RDATE" in part else []
    return [first, *more]


def zones_to_tell() -> list[str]:
    names = sorted(available_timezones() - {"Factory", "localtime"})
    return sorted({*ZONES, *random.Random(5545).sample(names, min(len(names), scaled(200)))})


@pytest.mark.parametrize("year", [1941, 2026, 2098])
def test_a_zone_is_told_with_every_clock_change_there_will_be(year: int) -> None:
    names = zones_to_tell() if year == 2026 else ["Africa/Cairo", "Europe/Berlin", "Asia/Gaza"]
    start, end = datetime(year, 6, 1, tzinfo=UTC), datetime(2150, 1, 1, tzinfo=UTC)
    since = datetime(year - 1, 1, 1, tzinfo=UTC)
    for name in names:
        lines = calendar([], start=start, end=start, now=NOW, zone_name=name)
        [component] = opened("".join(lines)).timezones
        expected = sorted(changes(zone(name), since, end))
        assert told_changes(component, end) == expected, name


def test_a_zone_whose_clock_changes_by_a_yearly_rule_is_told_by_that_rule() -> None:
    text = written(cron("0 9 * * *", zone="Europe/Berlin"))
    check_strictly(text)
    told = text[text.index("BEGIN:VTIMEZONE") : text.index("BEGIN:VEVENT")]
    assert told.split("\r\n")[8:20] == [
        "BEGIN:DAYLIGHT",
        "DTSTART:20250330T020000",
        "RRULE:FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU",
        "TZOFFSETFROM:+0100",
        "TZOFFSETTO:+0200",
        "TZNAME:CEST",
        "END:DAYLIGHT",
        "BEGIN:STANDARD",
        "DTSTART:20251026T030000",
        "RRULE:FREQ=YEARLY;BYMONTH=10;BYDAY=-1SU",
        "TZOFFSETFROM:+0200",
        "TZOFFSETTO:+0100",
    ]


def test_the_far_ends_of_the_calendar_do_no_harm() -> None:
    digest = repeating("0001-01-05T06:00", "+1y", zone="America/New_York")
    for start in (datetime(1, 1, 3, tzinfo=UTC), datetime(9997, 1, 1, tzinfo=UTC)):
        text = written(digest, start=start, end=start + timedelta(days=700))
        check_strictly(text)
        assert recurrence(text) == "FREQ=YEARLY"
    at = instant(datetime(3, 4, 5, 6, 7, 8), zone("America/New_York"))  # noqa: DTZ001 - a wall time
    text = written(
        entry(OnceRule(at), zone="America/New_York"),
        start=at - timedelta(days=1),
        end=at + timedelta(days=1),
    )
    assert "DTSTART;TZID=America/New_York:00030405T060708\r\n" in text
    assert "TZOFFSETTO:-045602\r\n" in text
