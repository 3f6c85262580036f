"""The one projection: in order, never twice, the same however a window is cut."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice, pairwise
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from cron_oracle import clock_changes, fires, rule as oracle_rule
from horae.core.entry import (
    CadenceRule,
    CronRule,
    Entry,
    OnceRule,
    OnDemandRule,
    Origin,
    Pause,
    Policy,
    RepeaterRule,
)
from horae.core.project import Moment, decided, last_moments, next_moment, project
from horae.timing.cron import Cron
from horae.timing.repeater import Repeater, RepeaterKind, Unit, parse_repeater
from horae.timing.zone import ZoneError
from scale import scaled

if TYPE_CHECKING:
    from horae.core.entry import Rule

TINY, MINUTE, HOUR, DAY = (
    timedelta(microseconds=1),
    timedelta(minutes=1),
    timedelta(hours=1),
    timedelta(days=1),
)

# An hour, half an hour, two hours, a lost day, changes at midnight, and none.
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "Pacific/Apia",
    "America/Santiago",
)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def entry(rule: Rule, *, zone: str = "UTC", **facts: datetime | None) -> Entry:
    made = Entry("plan.org::Digest", Origin("plan.org", 3), "Digest", rule, zone=zone, number=7)
    return replace(made, **facts)


def cron(*expressions: str, zone: str = "UTC") -> Entry:
    return entry(CronRule(tuple(Cron(each, zone=zone) for each in expressions)), zone=zone)


def stamp(anchor: str, repeater: str, *, zone: str = "UTC", ended_at: str | None = None) -> Entry:
    rule = RepeaterRule(at(anchor), parse_repeater(repeater))
    return entry(rule, zone=zone, ended_at=at(ended_at) if ended_at else None)


def shown(moments: list[Moment]) -> list[str]:
    """Return moments as `29 01:00`, estimates with a question mark."""
    return [f"{each.at:%d %H:%M}{'?' if each.is_estimate else ''}" for each in moments]


# Laws, for every rule, across clock changes

CHANGES = {
    zone: clock_changes(zone, at("2011-01-01T00:00Z"), at("2012-12-31T00:00Z"))
    or [at("2012-02-28T12:00Z")]
    for zone in ZONES
}
EXPRESSIONS = (
    "30 2 * * *",
    "30 * * * *",
    "*/20 * * * *",
    "15 1-3 * * *",
    "0 0 * * *",
    "45 23,0,1,2 * * *",
    "30 30 2 * * *",
    "0 12 L * *",
    "0 0 30 2 *",
)
NEARBY = st.timedeltas(-4 * DAY, 4 * DAY)
BY_MINUTES = NEARBY.map(lambda off: off // MINUTE * MINUTE)


@st.composite
def rules(draw: st.DrawFn, zone: str, here: datetime) -> Rule:
    """Draw a rule of any kind that has something to say around a moment."""
    moment = here + draw(BY_MINUTES)
    wall = moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)
    crons = st.lists(st.sampled_from(EXPRESSIONS), min_size=1, max_size=3).map(
        lambda picked: CronRule(tuple(Cron(each, zone=zone) for each in picked))
    )
    repeaters = st.builds(
        Repeater, st.sampled_from(RepeaterKind), st.integers(1, 3), st.sampled_from(Unit)
    ).map(lambda repeater: RepeaterRule(wall, repeater))
    cadences = st.builds(
        CadenceRule,
        st.timedeltas(10 * MINUTE, 2 * DAY),
        st.just(moment),
        st.integers(0, 9),
        st.integers(0, 9),
        st.integers(0, 9),
    )
    others: list[Rule] = [OnceRule(moment), OnceRule(moment, "550e8400"), OnDemandRule()]
    return draw(st.one_of(crons, repeaters, cadences, st.sampled_from(others)))


@st.composite
def entries(draw: st.DrawFn) -> tuple[Entry, datetime, datetime]:
    """Draw an entry and a window near a clock change of its zone."""
    zone = draw(st.sampled_from(ZONES))
    here = draw(st.sampled_from(CHANGES[zone]))
    ended_at = draw(st.none() | NEARBY.map(lambda off: here + off))
    until = draw(st.none() | st.none() | BY_MINUTES.map(lambda off: here + off))
    found = entry(draw(rules(zone, here)), zone=zone, ended_at=ended_at)
    start = here + draw(st.one_of(NEARBY, BY_MINUTES))
    end = start + draw(st.timedeltas(-HOUR, 5 * DAY))
    return replace(found, policy=Policy(until=until)), start, end


EXAMPLES = settings(max_examples=scaled(1_000), deadline=None)


@given(entries())
@EXAMPLES
def test_moments_come_in_order_never_twice_and_inside_the_window(
    drawn: tuple[Entry, datetime, datetime],
) -> None:
    found, start, end = drawn
    moments = list(project(found, start, end))
    assert all(earlier.at < later.at for earlier, later in pairwise(moments))
    assert all(start < moment.at <= end for moment in moments)
    assert len({moment.key for moment in moments}) == len(moments)


@given(entries(), st.floats(0, 1))
@EXAMPLES
def test_a_window_cut_anywhere_holds_the_same_moments(
    drawn: tuple[Entry, datetime, datetime], where: float
) -> None:
    found, start, end = drawn
    middle = start + (end - start) * where
    whole = list(project(found, start, end))
    assert [*project(found, start, middle), *project(found, middle, end)] == whole


@given(entries())
@EXAMPLES
def test_a_window_cut_at_each_moment_holds_the_same_moments(
    drawn: tuple[Entry, datetime, datetime],
) -> None:
    found, start, end = drawn
    whole = list(islice(project(found, start, end), 12))
    cuts = [start, *(moment.at for moment in whole)]
    assert [one for a, b in pairwise(cuts) for one in project(found, a, b)] == whole


@given(entries())
@EXAMPLES
def test_the_next_moment_is_the_first_of_the_projection(
    drawn: tuple[Entry, datetime, datetime],
) -> None:
    found, start, end = drawn
    first = next(project(found, start, end), None)
    following = next_moment(found, start)
    if first is not None:
        assert following == first
    if following is not None:
        assert first == following or following.at > end
        assert list(project(found, start, following.at)) == [following]


@given(entries())
@EXAMPLES
def test_nothing_comes_after_until_and_nothing_before_it_is_lost(
    drawn: tuple[Entry, datetime, datetime],
) -> None:
    found, start, end = drawn
    until = found.policy.until
    endless = list(project(replace(found, policy=Policy()), start, end))
    assert list(project(found, start, end)) == [
        moment for moment in endless if until is None or moment.at <= until
    ]


@given(entries())
@EXAMPLES
def test_only_what_waits_for_an_end_is_an_estimate(drawn: tuple[Entry, datetime, datetime]) -> None:
    found, start, end = drawn
    moments = list(project(found, start, end))
    sure = list(decided(iter(moments)))
    assert sure == [moment for moment in moments if not moment.is_estimate]
    match found.rule:
        case CadenceRule():
            assert len(sure) <= 1
        case RepeaterRule(_, repeater) if repeater.kind is RepeaterKind.RESTART:
            assert len(sure) <= 1
        case _:
            assert sure == moments


@given(entries())
@EXAMPLES
def test_a_window_can_be_told_in_any_zone(drawn: tuple[Entry, datetime, datetime]) -> None:
    found, start, end = drawn
    elsewhere = ZoneInfo("Asia/Kathmandu")
    told = project(found, start.astimezone(elsewhere), end.astimezone(timezone(-5 * HOUR)))
    assert list(told) == list(project(found, start, end))


# Against a clock that is walked minute by minute


@pytest.mark.parametrize("zone", ZONES)
def test_several_expressions_name_what_a_walk_along_the_clock_meets(zone: str) -> None:
    expressions = ("30 2 * * *", "*/20 * * * *", "0 0 * * *", "15 1-3 * * *")
    for change in CHANGES[zone][:2]:
        start, end = change - DAY, change + DAY
        met = fires([oracle_rule(each) for each in expressions], zone, start, end)
        wanted = sorted({moment for moments in met for moment in moments})
        projected = project(cron(*expressions, zone=zone), start, end)
        assert [moment.at for moment in projected] == wanted


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("repeater", ["+1d", "++1d", "+1h", "++5h", "+2d"])
def test_a_repeater_comes_when_the_wall_first_reaches_its_time(zone: str, repeater: str) -> None:
    change = CHANGES[zone][0]
    anchor = (change - 3 * DAY).astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)
    step = {"d": DAY, "h": HOUR}[repeater[-1]] * int(repeater.lstrip("+")[:-1])
    start, end = change - 3 * DAY, change + 3 * DAY
    due, highest, wanted = anchor, anchor - MINUTE, []
    for n in range((end - start) // MINUTE + 1):
        moment = start + n * MINUTE
        wall = moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)
        highest = max(highest, wall)
        if due <= highest:
            wanted.append(moment)
        while due <= highest:
            due += step
    found = entry(RepeaterRule(anchor, parse_repeater(repeater)), zone=zone)
    assert [moment.at for moment in project(found, start - TINY, end)] == wanted


# Each rule


def test_the_start_is_left_out_and_the_end_is_not() -> None:
    hourly = cron("0 * * * *")
    noon = at("2026-06-10T12:00Z")
    assert shown(list(project(hourly, noon, noon + HOUR))) == ["10 13:00"]
    assert shown(list(project(hourly, noon - TINY, noon))) == ["10 12:00"]
    assert shown(list(project(hourly, noon, noon + HOUR - TINY))) == []


@pytest.mark.parametrize(
    "rule", [CronRule((Cron("* * * * *"),)), OnceRule(at("2026-06-10T12:00Z"))]
)
def test_a_window_that_ends_before_it_begins_is_empty(rule: Rule) -> None:
    noon = at("2026-06-10T12:00Z")
    assert list(project(entry(rule), noon + DAY, noon - DAY)) == []
    assert list(project(entry(rule), noon, noon)) == []


def test_expressions_that_name_one_moment_name_it_once() -> None:
    twice = cron("0 9 * * *", "0 9 * * MON", "0 9,12 * * *")
    day = project(twice, at("2026-06-08T00:00Z"), at("2026-06-09T00:00Z"))
    assert shown(list(day)) == ["08 09:00", "08 12:00"]


def test_expressions_are_merged_by_moment_in_an_autumn_night() -> None:
    night = cron("30 2 * * *", "15 * * * *", zone="Europe/Berlin")
    moments = project(night, at("2026-10-24T23:30Z"), at("2026-10-25T02:30Z"))
    # 02:15, 02:30, the second 02:15, 03:15: on the wall the third comes before the second.
    assert shown(list(moments)) == ["25 00:15", "25 00:30", "25 01:15", "25 02:15"]


def test_what_never_comes_yields_nothing_at_once() -> None:
    never = cron("0 0 30 2 *")
    assert next_moment(never, at("2026-01-01T00:00Z")) is None
    assert list(project(never, at("1970-01-01T00:00Z"), at("9999-01-01T00:00Z"))) == []


def test_one_expression_that_never_comes_does_not_stop_another() -> None:
    mixed = cron("0 0 30 2 *", "0 9 * * *")
    moment = next_moment(mixed, at("2026-01-01T00:00Z"))
    assert moment is not None
    assert moment.key == "cron:2026-01-01T09:00:00Z"


def test_one_expression_that_is_over_does_not_stop_another() -> None:
    mixed = cron("0 0 9 1 1 * 2026", "0 0 9 1 2 * 2026")
    assert shown(list(project(mixed, at("2025-01-01T00:00Z"), at("2099-01-01T00:00Z")))) == [
        "01 09:00",
        "01 09:00",
    ]


def test_a_spring_gap_moves_a_daily_stamp_to_its_end_for_one_day() -> None:
    early = stamp("2026-03-01T02:30", "+1d", zone="Europe/Berlin")
    nights = project(early, at("2026-03-27T12:00Z"), at("2026-03-31T00:00Z"))
    assert shown(list(nights)) == ["28 01:30", "29 01:00", "30 00:30"]


def test_an_hourly_stamp_comes_once_for_all_the_times_of_a_gap() -> None:
    hourly = stamp("2026-03-28T00:30", "+1h", zone="Antarctica/Troll")
    night = project(hourly, at("2026-03-29T00:00Z"), at("2026-03-29T03:00Z"))
    # Two hours are left out between 01:00 and 03:00 on the wall.
    assert shown(list(night)) == ["29 00:30", "29 01:00", "29 01:30", "29 02:30"]


def test_a_lost_day_has_its_moment_at_the_jump() -> None:
    daily = stamp("2011-12-01T09:00", "+1d", zone="Pacific/Apia")
    days = project(daily, at("2011-12-29T00:00Z"), at("2012-01-01T00:00Z"))
    assert shown(list(days)) == ["29 19:00", "30 10:00", "30 19:00", "31 19:00"]


def test_the_end_of_a_month_runs_over_once_as_org_has_it() -> None:
    monthly = stamp("2026-01-31T09:00", "+1m")
    found = project(monthly, at("2026-01-01T00:00Z"), at("2026-06-01T00:00Z"))
    assert [f"{moment.at:%m-%d}" for moment in found] == ["01-31", "03-03", "04-03", "05-03"]


def test_a_stamp_does_not_come_before_its_date() -> None:
    later = stamp("2026-06-10T09:00", "++1d")
    moment = next_moment(later, at("1970-01-01T00:00Z"))
    assert moment is not None
    assert moment.key == "at:2026-06-10T09:00:00Z"


def test_a_single_moment_comes_once() -> None:
    once = entry(OnceRule(at("2026-06-10T09:00Z")))
    assert len(list(project(once, at("1970-01-01T00:00Z"), at("9999-01-01T00:00Z")))) == 1
    assert next_moment(once, at("2026-06-10T09:00Z")) is None


# Counting from an end

DAY_AHEAD = (at("2026-06-10T12:00Z"), at("2026-06-14T00:00Z"))


def test_a_stamp_that_was_never_done_comes_at_its_date_and_the_rest_is_a_guess() -> None:
    fresh = stamp("2026-06-11T09:00", ".+1d")
    moments = list(project(fresh, *DAY_AHEAD))
    assert shown(moments) == ["11 09:00", "12 09:00?", "13 09:00?"]


def test_after_an_end_the_next_moment_is_an_interval_later_at_the_same_time_of_day() -> None:
    done = stamp("2026-06-01T09:00", ".+2d", ended_at="2026-06-10T15:20Z")
    assert shown(list(project(done, *DAY_AHEAD))) == ["12 09:00"]


def test_hours_count_from_the_minute_of_the_end() -> None:
    done = stamp("2026-06-01T09:00", ".+5h", ended_at="2026-06-10T15:20:45Z")
    moments = list(islice(project(done, *DAY_AHEAD), 3))
    assert shown(moments) == ["10 20:20", "11 01:20?", "11 06:20?"]


def test_an_end_before_the_date_of_a_stamp_leaves_the_date_as_it_is() -> None:
    moved_on = stamp("2026-06-12T09:00", ".+1d", ended_at="2026-06-10T15:20Z")
    assert shown(list(project(moved_on, *DAY_AHEAD))) == ["12 09:00", "13 09:00?"]


def test_what_came_and_has_not_ended_yet_is_followed_by_guesses_only() -> None:
    running = stamp("2026-06-10T09:00", ".+1d")
    assert shown(list(project(running, *DAY_AHEAD))) == ["11 09:00?", "12 09:00?", "13 09:00?"]
    assert list(decided(project(running, *DAY_AHEAD))) == []


def test_a_night_without_the_hour_still_has_its_moment_after_an_end() -> None:
    done = stamp("2026-03-01T02:30", ".+1d", zone="Europe/Berlin", ended_at="2026-03-28T01:40Z")
    moment = next_moment(done, at("2026-03-28T01:40Z"))
    assert moment is not None
    assert moment.key == "at:2026-03-29T01:00:00Z"


def cadence(**facts: int) -> CadenceRule:
    base, first_at = timedelta(minutes=10), at("2026-06-10T12:01Z")
    return CadenceRule(base, first_at, **facts)


def test_a_keeper_that_never_ticked_ticks_first_when_it_may() -> None:
    moments = list(islice(project(entry(cadence()), *DAY_AHEAD), 3))
    assert shown(moments) == ["10 12:01", "10 12:11?", "10 12:21?"]
    assert [moment.key for moment in moments] == ["tick:1", "tick:2", "tick:3"]


@pytest.mark.parametrize(
    ("facts", "wait"),
    [
        ({"ticks": 1}, "10m"),
        ({"ticks": 9, "streak": 4}, "10m"),
        ({"ticks": 9, "streak": 5}, "16m"),
        ({"ticks": 9, "streak": 6}, "30m"),
        ({"ticks": 9, "failures": 3}, "10m"),
        ({"ticks": 9, "failures": 8}, "16m"),
        ({"ticks": 9, "failures": 50}, "30m"),
    ],
)
def test_a_keeper_waits_after_its_last_end_as_it_went(facts: dict[str, int], wait: str) -> None:
    ended_at = at("2026-06-10T13:00Z")
    kept = entry(cadence(**facts), ended_at=ended_at)
    moment = next_moment(kept, DAY_AHEAD[0])
    assert moment is not None
    assert moment.at == ended_at + timedelta(minutes=int(wait[:-1]))
    assert moment.key == f"tick:{facts['ticks'] + 1}"
    assert not moment.is_estimate


def test_a_restart_does_not_bring_a_tick_forward() -> None:
    kept = entry(cadence(ticks=3), ended_at=at("2026-06-10T11:00Z"))
    moment = next_moment(kept, DAY_AHEAD[0])
    assert moment is not None
    assert moment.at == at("2026-06-10T12:01Z")  # as first_at has it, not ten past eleven


# Until

UNTIL = at("2026-06-12T09:00Z")


@pytest.mark.parametrize(
    "rule",
    [
        CronRule((Cron("0 9 * * *"),)),
        RepeaterRule(at("2026-06-11T09:00"), parse_repeater("+1d")),
        RepeaterRule(at("2026-06-11T09:00"), parse_repeater(".+1d")),
        CadenceRule(DAY, at("2026-06-11T09:00Z")),
    ],
)
def test_the_last_moment_may_be_until_itself(rule: Rule) -> None:
    ending = replace(entry(rule), policy=Policy(until=UNTIL))
    assert [f"{each.at:%d}" for each in project(ending, *DAY_AHEAD)] == ["11", "12"]
    ending = replace(entry(rule), policy=Policy(until=UNTIL - TINY))
    assert [f"{each.at:%d}" for each in project(ending, *DAY_AHEAD)] == ["11"]
    assert next_moment(ending, UNTIL - HOUR) is None


def test_until_may_be_told_with_any_offset() -> None:
    ending = replace(cron("0 9 * * *"), policy=Policy(until=at("2026-06-12T11:00+02:00")))
    assert [f"{each.at:%d}" for each in project(ending, *DAY_AHEAD)] == ["11", "12"]


# Far away and at the edges


def test_a_window_of_all_time_costs_only_what_is_taken_from_it() -> None:
    everything = project(cron("* * * * * *"), at("1970-01-01T00:00Z"), at("9999-12-01T00:00Z"))
    assert [moment.key for moment in islice(everything, 2)] == [
        "cron:1970-01-01T00:00:01Z",
        "cron:1970-01-01T00:00:02Z",
    ]


def test_nothing_is_kept_but_the_moment_at_hand() -> None:
    busy = cron("*/7 * * * * *", "*/11 * * * * *", "* * * * *", zone="Europe/Berlin")
    moments = project(busy, at("2026-01-01T00:00Z"), at("2027-01-01T00:00Z"))
    for _ in islice(moments, 100):
        pass
    tracemalloc.start()
    for _ in islice(moments, 2_000):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000


@pytest.mark.parametrize(
    "rule",
    [
        CronRule((Cron("0 9 * * *", zone="Asia/Tokyo"), Cron("0 9 1 1 *", zone="Asia/Tokyo"))),
        RepeaterRule(at("9999-12-01T09:00"), parse_repeater("+1d")),
        RepeaterRule(at("9999-12-01T09:00"), parse_repeater(".+1d")),
        RepeaterRule(at("9999-12-01T09:00"), parse_repeater(".+1y")),
        RepeaterRule(at("9999-12-01T09:00"), parse_repeater(".+9h")),
        OnceRule(at("9999-12-31T23:59Z")),
        CadenceRule(DAY, at("9999-12-01T00:00Z")),
    ],
)
def test_the_end_of_the_calendar_is_an_end(rule: Rule) -> None:
    found = entry(rule, zone="Asia/Tokyo")
    window = (at("9998-12-30T00:00Z"), at("9999-12-30T00:00Z"))
    moments = [moment.at for moment in project(found, *window)]
    assert moments == sorted(set(moments))


def test_a_window_may_reach_to_the_end_of_the_calendar_in_any_zone() -> None:
    end = datetime.max.replace(tzinfo=timezone(-5 * HOUR))
    moment = next(project(cron("0 9 * * *"), at("2026-01-01T00:00Z"), end))
    assert moment.key == "cron:2026-01-01T09:00:00Z"


def test_a_window_needs_a_zone() -> None:
    naive = at("2026-06-10T12:00")
    with pytest.raises(ValueError, match="zone"):
        list(project(cron("0 9 * * *"), naive, naive + DAY))


def test_a_zone_that_is_gone_is_named() -> None:
    lost = stamp("2026-06-10T09:00", "+1d", zone="Europe/Atlantis")
    with pytest.raises(ZoneError, match="Europe/Atlantis"):
        next_moment(lost, at("2026-06-10T12:00Z"))


def test_moments_are_in_utc() -> None:
    berlin = cron("0 9 * * *", zone="Europe/Berlin")
    moment = next_moment(berlin, at("2026-06-10T12:00Z"))
    assert moment is not None
    assert moment.at.tzinfo is UTC


@given(
    text=st.sampled_from(["0 9 * * *", "*/20 2 * * *", "0,30 2 * * *", "15 * * * *", "5 0 1 * *"]),
    place=st.sampled_from(ZONES),
    minutes=st.integers(0, 3 * 366 * 24 * 60),
)
def test_one_expression_names_what_the_same_one_twice_names(
    text: str, place: str, minutes: int
) -> None:
    cron, start = Cron(text, zone=place), at("2024-01-01T00:00Z") + minutes * MINUTE
    once, twice = (
        [*islice(project(entry(CronRule(crons)), start, start + 400 * DAY), 40)]
        for crons in ((cron,), (cron, cron))
    )
    assert once == twice


# Pauses

PAUSED, OVER = at("2026-04-02T10:30Z"), at("2026-04-05T09:00Z")


def told(found: Entry, *, days: int = 8) -> list[str]:
    """Return the moments of an entry from 1 April on, as day and hour."""
    start = at("2026-04-01T00:00Z")
    return [f"{each.at:%d %H:%M}" for each in project(found, start, start + days * DAY)]


def test_an_entry_has_no_moment_while_it_is_paused() -> None:
    daily = entry(CronRule((Cron("0 9 * * *"),)))
    until = replace(daily, pause=Pause(PAUSED, OVER))
    assert told(until) == ["01 09:00", "02 09:00", "06 09:00", "07 09:00", "08 09:00"]
    assert told(replace(daily, pause=Pause(PAUSED))) == ["01 09:00", "02 09:00"]
    coming = next_moment(until, PAUSED)
    assert coming is not None
    assert coming.at == at("2026-04-06T09:00Z"), "the moment at which a pause ends is skipped"
    assert next_moment(replace(daily, pause=Pause(PAUSED)), PAUSED) is None


def test_a_rule_that_counts_from_its_last_end_counts_from_the_end_of_its_pause() -> None:
    turn = entry(
        RepeaterRule(at("2026-03-01T09:00"), parse_repeater(".+2d")),
        ended_at=at("2026-04-01T09:05Z"),
    )
    assert told(turn) == ["03 09:00", "05 09:00", "07 09:00"]
    assert told(replace(turn, pause=Pause(PAUSED, OVER))) == ["07 09:00"]
    early = Pause(at("2026-04-01T10:00Z"), at("2026-04-02T10:00Z"))
    assert told(replace(turn, pause=early)) == told(turn), "nothing came while it was paused"


def test_a_cadence_goes_on_one_interval_after_its_pause_and_has_no_failures() -> None:
    rule = CadenceRule(HOUR, at("2026-04-01T00:00Z"), ticks=4, failures=6)
    beat = entry(rule, ended_at=at("2026-04-02T10:00Z"))
    paused = replace(beat, pause=Pause(PAUSED, OVER))
    assert list(islice(project(paused, PAUSED, OVER + DAY), 2)) == [
        Moment(OVER + HOUR, "tick:6"),
        Moment(OVER + 2 * HOUR, "tick:7", is_estimate=True),
    ]


def test_a_delay_that_is_paused_past_its_time_comes_when_the_pause_is_over() -> None:
    delay = entry(OnceRule(at("2026-04-03T12:00Z"), "d1"))
    paused = replace(delay, pause=Pause(PAUSED, OVER))
    assert list(project(paused, PAUSED, OVER + DAY)) == [Moment(OVER, "delay:d1")]
    once = replace(paused, rule=OnceRule(at("2026-04-03T12:00Z")))
    assert list(project(once, PAUSED, OVER + DAY)) == [], "any other moment is skipped"


@pytest.mark.parametrize(
    ("expression", "last"),
    [
        ("0 9 * * *", "2026-06-05T09:00Z"),
        ("* * * * * *", "2026-06-05T09:00Z"),
        ("* * * 1 1 *", "2026-01-01T23:59:59Z"),
        ("0 0 29 2 *", "2024-02-29T00:00Z"),
        ("0 0 30 2 *", None),
    ],
)
def test_the_last_moments_are_found_however_long_ago_they_were(
    expression: str, last: str | None
) -> None:
    end = datetime.fromisoformat("2026-06-05T09:00Z")
    for several in (1, 11):
        digest = entry(CronRule((Cron(expression),)))
        found = last_moments(digest, end, several)
        assert [each.at for each in found[-1:]] == [*map(at, filter(None, [last]))]
        start = found[0].at if found else end
        assert tuple(project(digest, start - TINY, end)) == found
        assert len(found) == (several if last else 0)
