"""An entry is plain data, and its keys say what asked for a run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from horae.core.entry import (
    CadenceRule,
    CatchUp,
    CronRule,
    Entry,
    OnceRule,
    OnDemandRule,
    Origin,
    Overlap,
    Policy,
    RepeaterRule,
    Rule,
    Unarmed,
    key_time,
)
from horae.core.project import project
from horae.timing.cron import Cron
from horae.timing.repeater import parse_repeater


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def entry(rule: Rule, *, zone: str = "UTC") -> Entry:
    return Entry("plan.org::Digest", Origin("plan.org", 3), "Digest", rule, zone=zone)


# Times in keys

OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(
    datetime(1000, 1, 2),  # noqa: DTZ001 - hypothesis adds the zone
    datetime(9999, 12, 30),  # noqa: DTZ001
    timezones=OFFSETS,
)


@pytest.mark.parametrize(
    ("moment", "key"),
    [
        ("2026-04-01T09:00:00+00:00", "2026-04-01T09:00:00Z"),
        ("2026-04-01T11:00:00+02:00", "2026-04-01T09:00:00Z"),
        ("2026-04-01T05:00:00-04:00", "2026-04-01T09:00:00Z"),
        ("2026-04-01T09:00:00.999999+00:00", "2026-04-01T09:00:00Z"),
        ("2026-01-01T00:30:00+05:45", "2025-12-31T18:45:00Z"),
        ("2024-02-29T23:59:59+00:00", "2024-02-29T23:59:59Z"),
    ],
)
def test_a_moment_stands_in_keys_in_whole_seconds_of_utc(moment: str, key: str) -> None:
    assert key_time(at(moment)) == key


@given(MOMENTS, OFFSETS)
def test_one_moment_has_one_key_whatever_zone_it_is_told_in(
    moment: datetime, offset: timezone
) -> None:
    assert key_time(moment) == key_time(moment.astimezone(offset))


@given(MOMENTS)
def test_a_key_reads_back_as_its_moment(moment: datetime) -> None:
    assert at(key_time(moment)) == moment.replace(microsecond=0)


@given(MOMENTS, MOMENTS)
def test_keys_sort_as_their_moments_do(one: datetime, other: datetime) -> None:
    whole, other_whole = one.replace(microsecond=0), other.replace(microsecond=0)
    assert (key_time(one) < key_time(other)) == (whole < other_whole)


def test_a_year_has_four_digits_in_a_key() -> None:
    assert key_time(at("0999-01-01T00:00:00Z")) == "0999-01-01T00:00:00Z"


def test_a_key_needs_a_moment_with_a_zone() -> None:
    with pytest.raises(ValueError, match="zone"):
        key_time(at("2026-04-01T09:00:00"))


# Keys of each rule

WINDOW = (at("2026-04-01T00:00Z"), at("2026-04-02T00:00Z"))
NINE = at("2026-04-01T09:00")


@pytest.mark.parametrize(
    ("rule", "key"),
    [
        (CronRule((Cron("0 9 * * *"),)), "cron:2026-04-01T09:00:00Z"),
        (CronRule((Cron("0 9 * * *", zone="Europe/Berlin"),)), "cron:2026-04-01T07:00:00Z"),
        (CronRule((Cron("0 9 * * *"), Cron("0 9 1 * *"))), "cron:2026-04-01T09:00:00Z"),
        (RepeaterRule(NINE, parse_repeater("+1w")), "at:2026-04-01T09:00:00Z"),
        (RepeaterRule(NINE, parse_repeater("++1w")), "at:2026-04-01T09:00:00Z"),
        (RepeaterRule(NINE, parse_repeater(".+1w")), "at:2026-04-01T09:00:00Z"),
        (OnceRule(at("2026-04-01T09:00Z")), "at:2026-04-01T09:00:00Z"),
        (OnceRule(at("2026-04-01T05:00-04:00")), "at:2026-04-01T09:00:00Z"),
        (OnceRule(at("2026-04-01T09:00Z"), "550e8400"), "delay:550e8400"),
        (OnceRule(at("2026-04-01T09:00Z"), "550e8400:2"), "delay:550e8400:2"),
        (CadenceRule(timedelta(days=1), at("2026-04-01T09:00Z")), "tick:1"),
        (CadenceRule(timedelta(days=1), at("2026-04-01T09:00Z"), ticks=41), "tick:42"),
    ],
)
def test_a_key_says_what_asked_for_the_run(rule: Rule, key: str) -> None:
    assert [moment.key for moment in project(entry(rule), *WINDOW)] == [key]


def test_an_entry_on_demand_has_no_key_of_its_own() -> None:
    assert list(project(entry(OnDemandRule()), *WINDOW)) == []


def test_the_same_moment_has_another_key_under_another_kind_of_rule() -> None:
    cron, once = CronRule((Cron("0 9 * * *"),)), OnceRule(at("2026-04-01T09:00Z"))
    keys = [next(project(entry(rule), *WINDOW)).key for rule in (cron, once)]
    assert keys == ["cron:2026-04-01T09:00:00Z", "at:2026-04-01T09:00:00Z"]


def test_the_two_passes_of_an_autumn_night_have_a_key_each() -> None:
    twice = entry(CronRule((Cron("30 * 25 10 *", zone="Europe/Berlin"),)))
    night = project(twice, at("2026-10-25T00:00Z"), at("2026-10-25T02:00Z"))
    # Both are half past two on the wall.
    assert [moment.key for moment in night] == [
        "cron:2026-10-25T00:30:00Z",
        "cron:2026-10-25T01:30:00Z",
    ]


# Plain data


def test_an_entry_is_a_value() -> None:
    one = entry(CronRule((Cron("@daily"),)))
    assert one == entry(CronRule((Cron("0 0 * * *"),)))
    assert len({one, entry(CronRule((Cron("0 0 * * *"),)))}) == 1
    assert one != replace(one, number=7)
    with pytest.raises(AttributeError):
        one.number = 7  # type: ignore[misc]  # that it cannot be set is the point


def test_an_entry_begins_without_a_number_or_a_history() -> None:
    fresh = entry(OnDemandRule())
    assert (fresh.number, fresh.accounted_to, fresh.ended_at) == (0, None, None)


def test_a_policy_says_nothing_that_was_not_asked_for() -> None:
    assert Policy() == Policy(
        catchup=None,
        overlap=Overlap.SKIP,
        retry=None,
        timeout=None,
        jitter=timedelta(0),
        pause_after=None,
        until=None,
    )


def test_choices_are_the_words_that_people_write() -> None:
    assert [str(each) for each in CatchUp] == ["all", "latest", "none"]
    assert [str(each) for each in Overlap] == ["skip", "queue", "allow"]


@pytest.mark.parametrize(
    ("file", "line", "said"),
    [
        ("triggers/deploy", 1, "trigger deploy"),
        ("plans/triggers/v1.2", 1, "trigger v1.2"),
        ("triggers/daily.org", 1, "triggers/daily.org:1"),
        (".agentd/triggers/daily.yaml", 1, ".agentd/triggers/daily.yaml:1"),
        ("triggers/deploy", 2, "triggers/deploy:2"),
        ("request", 1, "HTTP request"),
        ("plan.org", 1, "plan.org:1"),
    ],
)
def test_only_what_a_file_has_is_said_to_be_in_a_line(file: str, line: int, said: str) -> None:
    assert str(Origin(file, line)) == said
    assert Origin(file, line).place == f"{file}:{line}"


def test_an_origin_reads_as_a_place_in_a_file() -> None:
    where = Origin("plans/garden.org", 12)
    assert str(where) == "plans/garden.org:12"
    assert str(Unarmed("plans/garden.org::Water", where, "Water", "").origin) == str(where)


def test_moments_of_every_rule_are_told_in_utc() -> None:
    berlin = "Europe/Berlin"
    rules: list[Rule] = [
        CronRule((Cron("0 9 * * *", zone=berlin),)),
        RepeaterRule(NINE, parse_repeater("+1w")),
        RepeaterRule(NINE, parse_repeater(".+1w")),
        OnceRule(at("2026-04-01T05:00-04:00")),
        OnceRule(at("2026-04-01T05:00-04:00"), "550e8400"),
        CadenceRule(timedelta(days=1), at("2026-04-01T05:00-04:00")),
    ]
    for rule in rules:
        assert next(project(entry(rule, zone=berlin), *WINDOW)).at.tzinfo is UTC
