"""The crew manifest: who ticks, how often, and what is odd about it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from horae.core.entry import Wake
from horae.org.plan import Severity, is_id
from horae.sources.crew.rules import (
    INTERVAL,
    Member,
    TickMode,
    last_run_file,
    parse_crew,
    parse_seconds,
    position_file,
    ran_file,
    seconds_text,
)
from scale import scaled

TEXT = (Path(__file__).parents[2] / "data" / "crew-two.org").read_text()
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - as the strategy wants it
NOW = datetime(2026, 6, 6, 14, 0, tzinfo=UTC)


def member(*lines: str, name: str = "wren") -> str:
    drawer = (f"* {name}", ":PROPERTIES:", ":DEF: writer.org", *lines, ":END:")
    return "".join(f"{line}\n" for line in drawer)


def found(text: str) -> list[tuple[int, int, str, str]]:
    return [
        (each.line, each.column, each.severity.value, each.code)
        for each in parse_crew(text).diagnostics
    ]


def only(text: str) -> Member:
    [each] = parse_crew(text).members
    return replace(each, line=0, text="")


def test_each_heading_is_an_agent_and_its_drawer_is_the_config() -> None:
    crew = parse_crew(TEXT, "crew.org")
    assert (crew.idlers, crew.diagnostics) == ((), ())
    wren, moss = crew.members
    assert replace(wren, text="") == Member(
        "wren",
        "/data/agents/writer.org",
        "/data/lifecycles/writer.org",
        10 * MINUTE,
        line=1,
    )
    assert (moss.name, moss.lifecycle, moss.interval, moss.line) == ("moss", None, 20 * MINUTE, 9)
    assert wren.text + moss.text == TEXT


@pytest.mark.parametrize(
    ("written", "interval"),
    [("10m", 10 * MINUTE), ("2h", 2 * HOUR), ("90s", 90 * SECOND), ("600000", 10 * MINUTE)],
)
def test_an_interval_counts_in_s_m_h_or_bare_milliseconds(
    written: str, interval: timedelta
) -> None:
    assert only(member(f":INTERVAL: {written}")).interval == interval


def test_a_member_without_an_interval_ticks_hourly() -> None:
    assert only(member()) == Member("wren", "writer.org", interval=HOUR)


def test_a_member_may_differ_from_the_settings() -> None:
    text = member(
        ":TIMEOUT: 1h30m",
        ":MODE: edit",
        ":CONTINUOUS: t",
        ":BREATHER: 20s",
        ":WAKE: due",
        ":HOST: gpu berlin",
    )
    assert only(text) == Member(
        "wren",
        "writer.org",
        timeout=90 * MINUTE,
        mode=TickMode.EDIT,
        continuous=True,
        breather=20 * SECOND,
        wake=Wake.DUE,
        requires=("gpu", "berlin"),
    )


@pytest.mark.parametrize(
    ("lines", "continuous", "every"),
    [
        ([":INTERVAL: 10m"], False, 10 * MINUTE),
        ([":INTERVAL: 10m"], True, 45 * SECOND),
        ([":INTERVAL: 10m", ":CONTINUOUS: no"], True, 10 * MINUTE),
        ([":CONTINUOUS: yes"], False, 45 * SECOND),
        ([":CONTINUOUS: yes", ":BREATHER: 20s"], False, 20 * SECOND),
        ([":BREATHER: 20s"], False, HOUR),
    ],
)
def test_a_continuous_member_takes_a_breather_where_others_wait_an_interval(
    lines: list[str], continuous: bool, every: timedelta
) -> None:
    assert only(member(*lines)).every(continuous=continuous, breather=45 * SECOND) == every


@pytest.mark.parametrize(
    ("line", "column"),
    [
        (":INTERVAL: 3d", 12),
        (":INTERVAL: 0", 12),
        (":TIMEOUT: 900000", 11),
        (":MODE: destroy", 8),
        (":CONTINUOUS: maybe", 14),
        (":BREATHER: short", 12),
        (":WAKE: never", 8),
        (":HOST: gpu!", 8),
    ],
)
def test_a_value_that_cannot_be_read_is_as_if_it_were_not_there_and_is_found(
    line: str, column: int
) -> None:
    assert only(member(line)) == only(member())
    assert found(member(line)) == [(4, column, "error", f"member-{line.split(':')[1].lower()}")]


def test_a_finding_says_what_would_be_right() -> None:
    [interval] = parse_crew(member(":INTERVAL: 3d")).diagnostics
    assert interval.message == (
        ":INTERVAL: '3d' must be a number with s, m or h, or a bare number of milliseconds; "
        "until this is corrected, the member ticks every hour, which is the default"
    )
    assert interval.fix == "write 72h"
    [mode] = parse_crew(member(":MODE: destroy")).diagnostics
    assert (mode.message, mode.fix) == (
        ":MODE: 'destroy' is not valid; until this is corrected, the setting applies",
        "write plan or edit",
    )


def test_a_bare_number_that_was_meant_as_minutes_is_pointed_at() -> None:
    [often] = parse_crew(member(":INTERVAL: 10")).diagnostics
    assert (often.code, often.severity) == ("member-often", Severity.WARNING)
    assert often.message == "ticks every 10ms: a bare number is milliseconds"
    assert often.fix == "for minutes, write 10m"


def test_a_member_without_a_definition_does_not_tick_and_says_why() -> None:
    text = "* wren\n:PROPERTIES:\n:INTERVAL: 10m\n:END:\n"
    crew = parse_crew(text)
    assert crew.members == ()
    assert [(name, odd.line, odd.message) for name, odd in crew.idlers] == [
        ("wren", 1, "the member has no :DEF:")
    ]
    assert found(text) == [(1, 1, "error", "member-def")]
    assert found("* Notes\nFor people.\n") == [(1, 1, "warning", "member-def")]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("* wren\n:PROPERTIES:\n:COMMAND: true\n:INTERVAL: 10m\n:END:\n", ["error"]),
        ("* wren\n:PROPERTIES:\n:COMMAND: true\n:END:\n", ["warning"]),
        ("* wren :workflow:\n", ["warning"]),
        ("* Back up\n:PROPERTIES:\n:COMMAND: true\n:TIMEOUT: 10m\n:END:\n", []),
    ],
)
def test_an_entry_of_the_plan_without_a_definition_is_not_a_member(
    text: str, problems: list[str]
) -> None:
    crew = parse_crew(text)
    assert (crew.members, crew.idlers) == ((), ())
    assert found(text) == [(1, 1, severity, "member-def") for severity in problems]


def test_a_member_that_is_also_an_entry_of_the_plan_ticks_and_is_reported() -> None:
    text = member(":COMMAND: true")
    assert [each.name for each in parse_crew(text).members] == ["wren"]
    assert found(text) == [(1, 1, "warning", "member-entry")]


def test_of_two_members_with_one_name_the_first_ticks() -> None:
    crew = parse_crew(member(":INTERVAL: 10m") + member(":INTERVAL: 20m"))
    assert [each.interval for each in crew.members] == [10 * MINUTE]
    assert [(name, odd.line) for name, odd in crew.idlers] == [("wren", 6)]
    [twice] = crew.diagnostics
    assert (twice.code, twice.line) == ("member-twice", 6)
    assert twice.message == "wren is already defined at line 1, and only that one ticks"


@pytest.mark.parametrize("name", ["two words", "../up", "..", "x" * 65, "wrén", "a/b"])
def test_a_name_that_is_no_id_is_refused(name: str) -> None:
    crew = parse_crew(member(name=name))
    assert crew.members == ()
    assert [each.code for each in crew.diagnostics] == ["member-name"]


def test_headings_of_prose_and_headings_inside_are_no_members() -> None:
    crew = parse_crew(
        "* How this crew works\nWell.\n" + member() + "** moss\n:PROPERTIES:\n:END:\n"
    )
    assert [each.name for each in crew.members] == ["wren"]
    assert crew.diagnostics == ()


def test_tags_are_not_part_of_a_name() -> None:
    assert [each.name for each in parse_crew(member(name="wren :writer:")).members] == ["wren"]


def test_a_property_that_is_nearly_a_known_one_is_found() -> None:
    assert found(member(":INTERVALL: 10m")) == [(4, 13, "warning", "property-typo")]
    assert found(member(":LIFE-CYCLE: a.org")) == [(4, 14, "warning", "property-typo")]
    assert found(member(":COLOUR: blue")) == []


LINES = st.sampled_from(
    [
        "* wren",
        "* moss",
        "** in",
        "* a b",
        ":PROPERTIES:",
        ":END:",
        ":DEF: a.org",
        ":INTERVAL: 10m",
        ":INTERVAL: x",
        ":WAKE: due",
        "#+begin_src",
        "#+end_src",
        "",
        "text",
    ]
)


@given(st.lists(LINES | st.text(max_size=12), max_size=30), st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=scaled(1500), deadline=None)
def test_any_text_gives_members_with_names_of_their_own(lines: list[str], end: str) -> None:
    crew = parse_crew(end.join(lines))
    names = [each.name for each in crew.members]
    assert len(set(names)) == len(names)
    assert all(is_id(each.name) and each.definition for each in crew.members)
    assert all(each.interval > timedelta() for each in crew.members)


# The files that hold a keeper's sense of time


def test_a_single_keeper_and_each_member_have_files_of_their_own() -> None:
    assert [last_run_file(), position_file(), ran_file("rem")] == [
        "keeper-last-run",
        "lifecycle-pos",
        "lifecycle-ran-rem",
    ]
    assert [last_run_file("wren"), position_file("wren"), ran_file("rem", "wren")] == [
        "keeper-last-run-wren",
        "lifecycle-pos-wren",
        "lifecycle-ran-wren-rem",
    ]


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".."])
def test_a_name_that_leads_elsewhere_makes_no_file(name: str) -> None:
    with pytest.raises(AssertionError):
        last_run_file(name)


@given(st.datetimes(min_value=EPOCH, timezones=st.just(UTC)))
def test_a_moment_is_kept_as_whole_seconds_never_later_than_it_was(moment: datetime) -> None:
    kept = parse_seconds(seconds_text(moment) + "\n")
    assert kept is not None
    assert timedelta() <= moment - kept < SECOND


@pytest.mark.parametrize("text", ["", "soon", "-5", "1e9", "12.5", "9" * 12, "9" * 99, "\x00"])
def test_a_corrupt_time_says_nothing(text: str) -> None:
    assert parse_seconds(text) is None


def test_the_default_interval_is_an_hour() -> None:
    assert INTERVAL == HOUR
