"""Zones by name, and wall times across every clock change there has been."""

from __future__ import annotations

import random
import struct
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st

from horae.errors import ScheduleError
from horae.timing import zone as zones
from horae.timing.zone import ZoneError, changes, instant, is_fold, local, zone
from scale import scaled

if TYPE_CHECKING:
    from collections.abc import Iterator

BERLIN = ZoneInfo("Europe/Berlin")
HOUR = timedelta(hours=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


# --- names ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "UTC",
        "Europe/Berlin",
        "America/Argentina/Buenos_Aires",
        "America/Port-au-Prince",
        "Etc/GMT+12",
    ],
)
def test_a_zone_is_found_by_its_name(name: str) -> None:
    assert zone(name).key == name


def test_every_zone_of_the_database_is_found() -> None:
    for name in all_zones():
        assert zone(name).key == name


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Europe/Berln", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("EUROPE/BERLIN", "Europe/Berlin"),
        ("Berlin", "Europe/Berlin"),
        ("new york", "America/New_York"),
        ("America/New York", "America/New_York"),
        ("America/Berlin", "Europe/Berlin"),
        ("utc", "UTC"),
        ("UTC ", "UTC"),
        ("Europe/Berlin\n", "Europe/Berlin"),
        ("UTC+2", "Etc/GMT-2"),
        ("utc+14", "Etc/GMT-14"),
        ("-05:00", "Etc/GMT+5"),
        ("right/Europe/Berlin", "Europe/Berlin"),
    ],
)
def test_a_near_miss_is_told_what_was_meant(written: str, meant: str) -> None:
    with pytest.raises(ZoneError) as caught:
        zone(written)
    assert caught.value.suggestion == meant
    assert caught.value.name == written
    assert str(caught.value).endswith(f"; did you mean {meant}?")


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("", "is empty"),
        ("Europe", "no such time zone"),
        ("Mars/Olympus_Mons", "no such time zone"),
        ("CEST", "no such time zone"),
        ("+05:30", "is an offset"),
        ("UTC+15", "is an offset"),
        ("UTC-13", "is an offset"),
        ("Zürich", "must be ASCII"),
        ("Ｅurope/Berlin", "must be ASCII"),
        ("E" * 65, "is longer than 64 characters"),
        ("../../etc/passwd", "no such time zone"),
        ("/usr/share/zoneinfo/UTC", "no such time zone"),
        ("Europe/../UTC", "no such time zone"),
        ("UTC\0", "no such time zone"),
        ("localtime", "no such time zone"),
        ("posixrules", "no such time zone"),
        ("leapseconds", "no such time zone"),
        ("tzdata.zi", "no such time zone"),
    ],
)
def test_what_is_no_zone_is_refused_with_a_reason(written: str, reason: str) -> None:
    with pytest.raises(ZoneError, match=reason):
        zone(written)


def test_a_refusal_is_a_schedule_error_with_its_facts() -> None:
    with pytest.raises(ScheduleError) as caught:
        zone("Europe/Berln")
    assert caught.value.data()["facts"] == {
        "name": "Europe/Berln",
        "reason": "no such time zone",
        "suggestion": "Europe/Berlin",
    }


def test_the_list_of_zones_is_read_only_for_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def listing() -> set[str]:
        asked.append("all of them")
        return {"UTC"}

    monkeypatch.setattr(zones, "available_timezones", listing)
    zones._places.cache_clear()
    zone("Asia/Kathmandu")
    assert not asked
    for _ in range(2):
        with pytest.raises(ZoneError):
            zone("Asia/Katmandoo")
    zones._places.cache_clear()
    assert asked == ["all of them"], "and once"


@given(st.text(max_size=80))
@settings(max_examples=scaled(5000), deadline=None)
def test_no_text_does_anything_but_name_a_zone_or_be_refused(text: str) -> None:
    try:
        named = zone(text)
    except ZoneError:
        return
    assert named.key == text


# --- from the wall to the moment -----------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wall", "moment"),
    [
        # An hour, forward and back.
        ("Europe/Berlin", "2026-03-29T01:59", "2026-03-29T00:59Z"),
        ("Europe/Berlin", "2026-03-29T02:00", "2026-03-29T01:00Z"),
        ("Europe/Berlin", "2026-03-29T02:59:59.999999", "2026-03-29T01:00Z"),
        ("Europe/Berlin", "2026-03-29T03:00", "2026-03-29T01:00Z"),
        ("Europe/Berlin", "2026-10-25T01:59", "2026-10-24T23:59Z"),
        ("Europe/Berlin", "2026-10-25T02:00", "2026-10-25T00:00Z"),
        ("Europe/Berlin", "2026-10-25T02:59", "2026-10-25T00:59Z"),
        ("Europe/Berlin", "2026-10-25T03:00", "2026-10-25T02:00Z"),
        ("America/New_York", "2026-03-08T02:30", "2026-03-08T07:00Z"),
        ("America/New_York", "2026-11-01T01:30", "2026-11-01T05:30Z"),
        # Half an hour.
        ("Australia/Lord_Howe", "2026-10-04T02:15", "2026-10-03T15:30Z"),
        ("Australia/Lord_Howe", "2026-10-04T02:30", "2026-10-03T15:30Z"),
        ("Australia/Lord_Howe", "2026-04-05T01:45", "2026-04-04T14:45Z"),
        # Three quarters past, and not at a full hour.
        ("Pacific/Chatham", "2026-09-27T03:15", "2026-09-26T14:00Z"),
        ("Pacific/Chatham", "2026-04-05T03:00", "2026-04-04T13:15Z"),
        # Two hours.
        ("Antarctica/Troll", "2026-03-29T01:30", "2026-03-29T01:00Z"),
        ("Antarctica/Troll", "2026-10-25T01:30", "2026-10-24T23:30Z"),
        # Samoa left out a Friday; Kwajalein a Saturday, and once had a day twice.
        ("Pacific/Apia", "2011-12-29T23:59", "2011-12-30T09:59Z"),
        ("Pacific/Apia", "2011-12-30T00:00", "2011-12-30T10:00Z"),
        ("Pacific/Apia", "2011-12-30T12:00", "2011-12-30T10:00Z"),
        ("Pacific/Apia", "2011-12-31T00:00", "2011-12-30T10:00Z"),
        ("Pacific/Kwajalein", "1993-08-21T12:00", "1993-08-21T12:00Z"),
        ("America/Juneau", "1867-10-18T18:00", "1867-10-18T02:57:41Z"),
        # Winter time is the one that is moved, so dst() is negative.
        ("Europe/Dublin", "2026-03-29T01:30", "2026-03-29T01:00Z"),
        ("Europe/Dublin", "2026-10-25T01:30", "2026-10-25T00:30Z"),
        # A gap at midnight: the day begins at one.
        ("Africa/Cairo", "2026-04-24T00:00", "2026-04-23T22:00Z"),
        # Offsets with seconds.
        ("Africa/Monrovia", "1972-01-07T00:30", "1972-01-07T00:44:30Z"),
        ("UTC", "2026-03-29T02:30", "2026-03-29T02:30Z"),
    ],
)
def test_a_wall_time_means_a_moment(name: str, wall: str, moment: str) -> None:
    assert instant(at(wall), zone(name)) == at(moment)


def test_the_moment_is_in_utc() -> None:
    assert instant(at("2026-03-29T02:30"), BERLIN).tzinfo is UTC


def test_the_fold_of_the_datetime_itself_does_not_count() -> None:
    second_pass = at("2026-10-25T02:30").replace(fold=1)
    assert instant(second_pass, BERLIN) == at("2026-10-25T00:30Z")
    assert instant(at("2026-03-29T02:30").replace(fold=1), BERLIN) == at("2026-03-29T01:00Z")


def test_a_time_with_a_zone_of_its_own_is_no_wall_time() -> None:
    with pytest.raises(ValueError, match="must not have a time zone"):
        instant(at("2026-03-29T02:30Z"), BERLIN)


def test_a_time_without_a_zone_is_no_moment() -> None:
    with pytest.raises(ValueError, match="the time needs a time zone"):
        local(at("2026-03-29T02:30"), BERLIN)
    for window in (
        (at("2026-03-29T02:30"), at("2026-03-29T02:30Z")),
        (at("2026-03-29T02:30Z"), at("2026-03-29T02:30")),
    ):
        with pytest.raises(ValueError, match="the time needs a time zone"):
            list(changes(BERLIN, *window))


def is_gap(wall: datetime, here: ZoneInfo) -> bool:
    """Whether the clock leaves a wall time out: then it has come to stand at another one."""
    return local(instant(wall, here), here) != wall


def test_gaps_and_folds_are_known() -> None:
    def which(text: str) -> tuple[bool, bool]:
        return is_gap(at(text), BERLIN), is_fold(at(text), BERLIN)

    assert which("2026-03-29T02:30") == (True, False)
    assert which("2026-10-25T02:30") == (False, True)
    assert which("2026-06-06T06:00") == (False, False)
    assert which("2026-03-29T03:00") == (False, False)
    assert which("2026-10-25T03:00") == (False, False)


def test_the_ends_of_the_calendar_are_the_ends_of_the_mapping() -> None:
    tokyo, hawaii = zone("Asia/Tokyo"), zone("Pacific/Honolulu")
    first, last = at("0001-01-01T00:00"), at("9999-12-31T23:59:59.999999")
    assert instant(first, tokyo) == first.replace(tzinfo=UTC)
    assert instant(last, hawaii) == last.replace(tzinfo=UTC)
    assert local(last.replace(tzinfo=UTC), tokyo) == last
    assert local(first.replace(tzinfo=UTC), hawaii) == first


# --- against the database itself, which the code never reads by hand ------------------


class Stretch(NamedTuple):
    """A time without a change: from when to when, in seconds, and how far from UTC."""

    start: int
    end: int
    offset: int


def all_zones() -> list[str]:
    return files("tzdata").joinpath("zones").read_text().split()


def some_zones() -> list[str]:
    odd = ["Pacific/Apia", "Australia/Lord_Howe", "Antarctica/Troll", "Africa/Casablanca"]
    odd += ["Africa/Freetown", "America/Juneau", "Asia/Gaza", "Africa/Monrovia"]
    rest = [name for name in all_zones() if name not in odd]
    # In full all of them, else a sample.
    return odd + random.Random(1867).sample(rest, min(len(rest), scaled(20 * 30)))


def stretches(name: str) -> list[Stretch]:
    """Return the stretches between the changes that the file of the zone lists."""
    data = files("tzdata.zoneinfo").joinpath(*name.split("/")).read_bytes()
    # A first block for old readers, then the one with 64-bit times.
    isut, isstd, leaps, times, types, letters = struct.unpack(">6l", data[20:44])
    second = 44 + times * 5 + types * 6 + letters + leaps * 8 + isstd + isut
    isut, isstd, leaps, times, types, letters = struct.unpack(
        ">6l", data[second + 20 : second + 44]
    )
    body = second + 44
    moments = struct.unpack(f">{times}q", data[body : body + 8 * times])
    kinds = data[body + 8 * times : body + 9 * times]
    table = [struct.unpack(">lBB", data[body + 9 * times + 6 * i :][:6])[0] for i in range(types)]
    bounds = [-(2**62), *moments, 2**62]
    offsets = [table[0], *(table[kind] for kind in kinds)]
    merged: list[Stretch] = []
    for (start, end), offset in zip(pairwise(bounds), offsets, strict=True):
        if merged and merged[-1].offset == offset:
            merged[-1] = merged[-1]._replace(end=end)
        else:
            merged.append(Stretch(start, end, offset))
    return merged


def load(name: str) -> ZoneInfo:
    # The same edition of the database that `stretches` reads.
    with files("tzdata.zoneinfo").joinpath(*name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def meant(wall: int, near: list[Stretch]) -> int:
    """Return what a wall time means, told the slow way: look it up in every stretch."""
    shown = [s for s in near if s.start <= wall - s.offset < s.end]
    if shown:
        return min(wall - s.offset for s in shown)
    return next(b.start for a, b in pairwise(near) if a.end + a.offset <= wall < b.start + b.offset)


def seconds(moment: datetime) -> int:
    return (moment.replace(tzinfo=UTC) - at("1970-01-01T00:00Z")) // timedelta(seconds=1)


def moment(seconds: int) -> datetime:
    return at("1970-01-01T00:00Z") + timedelta(seconds=seconds)


def test_every_change_of_every_zone_is_mapped_as_its_file_says() -> None:
    seen = 0
    for name in some_zones():
        here, known = load(name), stretches(name)
        for i, (before, after) in enumerate(pairwise(known)):
            near = known[max(0, i - 2) : i + 4]
            edges = {before.end + before.offset, after.start + after.offset}
            middle = sum(edges) // 2
            for wall in {middle, *edges, *(edge - 1 for edge in edges)}:
                got = instant(moment(wall).replace(tzinfo=None), here)
                assert seconds(got) == meant(wall, near), (name, moment(wall))
                seen += 1
    assert seen > 5000


def test_every_change_of_every_zone_is_found() -> None:
    for name in some_zones():
        known = stretches(name)
        listed = [(s.start, a.offset, s.offset) for a, s in pairwise(known)]
        if not listed:
            continue
        window = moment(listed[0][0]) - HOUR, moment(listed[-1][0])
        found = [
            (seconds(c.at), c.before // timedelta(seconds=1), c.after // timedelta(seconds=1))
            for c in changes(load(name), *window)
        ]
        assert found == listed, name


# --- laws ----------------------------------------------------------------------------

NAMES = st.sampled_from(
    [
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Pacific/Chatham",
        "Pacific/Apia",
        "Antarctica/Troll",
        "Africa/Casablanca",
        "Europe/Dublin",
        "Asia/Tehran",
        "UTC",
    ]
)
WALLS = st.datetimes(min_value=at("1850-01-01"), max_value=at("2200-01-01"))


@given(NAMES, WALLS, st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3)))
@settings(max_examples=scaled(5000), deadline=None)
def test_a_later_wall_time_never_means_an_earlier_moment(
    name: str, wall: datetime, further: timedelta
) -> None:
    assert instant(wall, zone(name)) <= instant(wall + further, zone(name))


@given(NAMES, WALLS)
@settings(max_examples=scaled(5000), deadline=None)
def test_the_clock_shows_the_wall_time_again_unless_it_was_left_out(
    name: str, wall: datetime
) -> None:
    here = zone(name)
    shown = local(instant(wall, here), here)
    early, late = (here.utcoffset(wall.replace(fold=fold)) for fold in (0, 1))
    assert early is not None
    assert late is not None
    assert (shown > wall) if early < late else (shown == wall)


# --- clock changes -------------------------------------------------------------------


def between(name: str, start: str, end: str) -> list[str]:
    found = changes(zone(name), at(start), at(end))
    return [f"{c.at:%Y-%m-%dT%H:%MZ} {'gap' if c.is_gap else 'fold'}" for c in found]


def test_a_year_has_its_two_changes() -> None:
    assert between("Australia/Lord_Howe", "2026-01-01T00:00Z", "2027-01-01T00:00Z") == [
        "2026-04-04T15:00Z fold",
        "2026-10-03T15:30Z gap",
    ]
    assert between("UTC", "2026-01-01T00:00Z", "2027-01-01T00:00Z") == []


def test_the_window_leaves_out_its_start_and_takes_in_its_end() -> None:
    change = "2026-03-29T01:00Z"
    assert between("Europe/Berlin", "2026-03-01T00:00Z", change) == [f"{change} gap"]
    assert between("Europe/Berlin", "2026-03-01T00:00Z", "2026-03-29T00:59:59.9Z") == []
    assert between("Europe/Berlin", change, "2026-04-01T00:00Z") == []
    assert between("Europe/Berlin", "2026-03-29T00:59:59.9Z", change) == [f"{change} gap"]
    assert between("Europe/Berlin", "2026-04-01T00:00Z", "2026-03-01T00:00Z") == []


def test_a_moment_in_another_zone_opens_the_same_window() -> None:
    assert between("Europe/Berlin", "2026-03-29T02:59:59+02:00", "2026-03-29T03:00+02:00") == [
        "2026-03-29T01:00Z gap"
    ]


def test_the_whole_calendar_can_be_asked_for_and_is_not_read_at_once() -> None:
    ends = at("0001-01-01T00:00Z"), at("9999-12-31T23:59:59.999999Z")
    found: Iterator[zones.ClockChange] = changes(zone("Pacific/Chatham"), *ends)
    assert next(found).at == at("1868-11-01T11:46:12Z")
    assert list(changes(BERLIN, ends[1], ends[1])) == []
    assert list(changes(BERLIN, ends[0], at("0001-02-01T00:00Z"))) == []


def test_a_year_of_changes_costs_no_walk_through_its_hours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    offset_at = zones._offset_at

    def counted(moment: datetime, zone: ZoneInfo) -> timedelta:
        asked.append(moment)
        return offset_at(moment, zone)

    monkeypatch.setattr(zones, "_offset_at", counted)
    assert len(list(changes(BERLIN, at("2026-01-01T00:00Z"), at("2027-01-01T00:00Z")))) == 2
    assert len(asked) < 200
