"""The document on timestamps, sentence by sentence: what is written, and what is read from it."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import horae

NIGHTLY = Path(__file__).parents[2] / "examples" / "nightly"
SIX_EVERY_MORNING = {"at": "2026-06-06T06:00", "repeat": "+1d", "active": True}
NOTHING = None


@cache
def plan(name: str) -> str:
    return (NIGHTLY / name).read_text(encoding="utf-8")


@cache
def printed(verb: str, name: str) -> str:
    """Return what the command prints for an example plan."""
    command = [sys.executable, "-m", "horae.cli.wb", verb, str(NIGHTLY / name)]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    assert done.stderr == b""
    return done.stdout.decode("utf-8")


def row(text: str) -> Any:
    """Return the row of the only headline."""
    [only] = horae.query(text)
    return only


def world(text: str) -> Any:
    """Return the only world."""
    [only] = horae.tangle(text)["worlds"]
    return only


# The definition


def test_a_stamp_on_the_planning_line_is_read_into_at_repeat_and_active() -> None:
    text = "* Water the herbs\nSCHEDULED: <2026-06-06 Sat 06:00 +1d>\n"
    assert row(text)["scheduled"].keys() == {"at", "repeat", "active"}


def test_angle_brackets_are_an_appointment_and_square_ones_a_note() -> None:
    assert horae.parse_timestamp("<2026-06-06>") == {
        "at": "2026-06-06",
        "repeat": None,
        "active": True,
    }
    assert horae.parse_timestamp("[2026-06-06]") == {
        "at": "2026-06-06",
        "repeat": None,
        "active": False,
    }


# The token classifier


def test_the_canonical_line_is_read_to_the_letter() -> None:
    assert horae.parse_timestamp("<2026-06-06 Sat 06:00 +1d>") == SIX_EVERY_MORNING


def test_what_comes_out_is_exactly_three_things_and_nothing_more() -> None:
    read = horae.parse_timestamp("<2026-06-06 Sat 06:00 +1d -2d CET someday>")
    assert read == SIX_EVERY_MORNING


@pytest.mark.parametrize(
    ("written", "at"),
    [
        pytest.param("<2026-06-06>", "2026-06-06", id="ten characters, a dash at the fifth"),
        pytest.param("<abcd-efghi>", "abcd-efghi", id="the shape is all that is looked at"),
        pytest.param("<2026-13-99>", "2026-13-99", id="a day that no calendar has"),
        pytest.param("<2026-06:06>", "2026-06:06", id="a colon does not undo the shape"),
        pytest.param("<+234-67890>", "+234-67890", id="a plus does not undo the shape"),
        pytest.param("<2026-06-06 2026-06-07>", "2026-06-06", id="the first such token"),
    ],
)
def test_a_date_is_the_first_token_of_ten_characters_with_a_dash_at_byte_four(
    written: str, at: str
) -> None:
    assert horae.parse_timestamp(written) == {"at": at, "repeat": None, "active": True}


@pytest.mark.parametrize(
    "written",
    [
        pytest.param("<2026-6-6>", id="no zeros"),
        pytest.param("<2026-6-6 Sat 06:00 +1d>", id="no zeros, all else in order"),
        pytest.param("<2026-06-6>", id="nine characters"),
        pytest.param("<2026-06-006>", id="eleven characters"),
        pytest.param("<2026/06/06>", id="slashes"),
        pytest.param("<20260606-0>", id="the dash at another place"),
        pytest.param("<06:00 +1d>", id="time and repeater alone"),
        pytest.param("<Sat>", id="a day name alone"),
        pytest.param("<>", id="nothing inside"),
        pytest.param("[]", id="nothing inside square brackets"),
        pytest.param("<   >", id="blanks inside"),
    ],
)
def test_without_a_date_the_whole_stamp_evaporates(written: str) -> None:
    assert horae.parse_timestamp(written) is NOTHING


def test_a_date_is_counted_in_bytes_and_not_in_letters() -> None:
    nine_letters, ten_letters = "é26-06-06", "2026-06-0é"
    read = horae.parse_timestamp(f"<{nine_letters}>")
    assert read == {"at": nine_letters, "repeat": None, "active": True}
    assert horae.parse_timestamp(f"<{ten_letters}>") is NOTHING


@pytest.mark.parametrize(
    ("token", "at"),
    [
        pytest.param("06:00", "2026-06-06T06:00", id="an hour and a minute"),
        pytest.param("6:0", "2026-06-06T6:0", id="no zeros"),
        pytest.param("25:99", "2026-06-06T25:99", id="an hour that no day has"),
        pytest.param("a:b", "2026-06-06Ta:b", id="letters"),
        pytest.param(":", "2026-06-06T:", id="the colon alone"),
        pytest.param("+1:00", "2026-06-06T+1:00", id="before it could be a repeater"),
        pytest.param("06:00 07:00", "2026-06-06T07:00", id="the last of two"),
    ],
)
def test_a_time_is_any_token_that_contains_a_colon(token: str, at: str) -> None:
    read = horae.parse_timestamp(f"<2026-06-06 {token}>")
    assert read == {"at": at, "repeat": None, "active": True}


@pytest.mark.parametrize("token", ["+1d", "++1d", ".+1d", "+1h", "+2w", "+3m", "+4y", "+", "+x"])
def test_a_repeater_is_any_token_that_starts_with_one_of_the_three_prefixes(token: str) -> None:
    read = horae.parse_timestamp(f"<2026-06-06 {token}>")
    assert read == {"at": "2026-06-06", "repeat": token, "active": True}


@pytest.mark.parametrize(
    "token", ["Sat", "samedi", "土", "-2d", "--3d", ".1d", "1d", "2026-06-07", "Z", "Europe/Zurich"]
)
def test_every_other_token_is_ignored(token: str) -> None:
    read = horae.parse_timestamp(f"<2026-06-06 {token}>")
    assert read == {"at": "2026-06-06", "repeat": None, "active": True}


def test_a_day_name_is_never_checked_against_its_date() -> None:
    wednesday = "2026-07-01"
    assert horae.parse_timestamp(f"<{wednesday} Sat>") == horae.parse_timestamp(f"<{wednesday}>")


@pytest.mark.parametrize(
    "written",
    [
        pytest.param("  <2026-06-06 Sat 06:00 +1d>\n", id="around the brackets"),
        pytest.param("<  2026-06-06   Sat\t06:00  +1d >", id="inside the brackets"),
    ],
)
def test_blanks_say_nothing(written: str) -> None:
    assert horae.parse_timestamp(written) == SIX_EVERY_MORNING


# One bracket, one bit


@pytest.mark.parametrize(
    ("written", "read"),
    [
        pytest.param(
            "<2026-08-01 Sat 10:00>",
            {"at": "2026-08-01T10:00", "repeat": None, "active": True},
            id="an appointment",
        ),
        pytest.param(
            "[2026-08-01 Sat 10:00]",
            {"at": "2026-08-01T10:00", "repeat": None, "active": False},
            id="a recorded note",
        ),
        pytest.param(
            "<2026-08-01 Sat 10:00]", NOTHING, id="opened by an angle, closed by a square"
        ),
        pytest.param(
            "[2026-08-01 Sat 10:00>", NOTHING, id="opened by a square, closed by an angle"
        ),
    ],
)
def test_the_bracket_alone_decides_what_is_active(
    written: str, read: dict[str, object] | None
) -> None:
    assert horae.parse_timestamp(written) == read


@pytest.mark.parametrize(
    "written",
    [
        pytest.param("2026-08-01 Sat 10:00", id="no bracket"),
        pytest.param("<2026-08-01", id="never closed"),
        pytest.param("2026-08-01>", id="never opened"),
        pytest.param("(2026-08-01)", id="round brackets"),
        pytest.param("{2026-08-01}", id="curly brackets"),
        pytest.param("<<2026-08-01>>", id="doubled brackets"),
        pytest.param("<2026-08-01> x", id="text behind"),
        pytest.param("x <2026-08-01>", id="text before"),
        pytest.param("<", id="one angle"),
        pytest.param("[", id="one square"),
        pytest.param("", id="nothing"),
        pytest.param(" \t\n", id="blanks"),
    ],
)
def test_what_no_pair_of_brackets_holds_is_no_stamp(written: str) -> None:
    assert horae.parse_timestamp(written) is NOTHING


def test_mismatched_brackets_on_the_planning_line_give_no_timestamp() -> None:
    text = "* Market\nSCHEDULED: <2026-08-01 Sat 10:00]\n"
    assert row(text)["scheduled"] is NOTHING


def test_an_inactive_schedule_flows_all_the_way_through() -> None:
    note = {"at": "2026-08-01T10:00", "repeat": None, "active": False}
    assert row(plan("inactive.org"))["scheduled"] == note
    assert world(plan("inactive.org"))["schedule"] == note


# Trigger and fact


def test_scheduled_shows_in_the_query_and_feeds_the_schedule() -> None:
    text = "* Digest :workflow:\nSCHEDULED: <2026-06-06 Sat 06:00 +1d>\n"
    assert row(text)["scheduled"] == SIX_EVERY_MORNING
    assert world(text)["schedule"] == SIX_EVERY_MORNING


def test_a_deadline_shows_in_the_query_and_never_feeds_the_schedule() -> None:
    text = "* Digest :workflow:\nDEADLINE: <2026-06-06 Sat 06:00 +1d>\n"
    assert row(text)["deadline"] == SIX_EVERY_MORNING
    assert row(text)["scheduled"] is None
    assert world(text)["schedule"] is None


def test_a_deadline_beside_a_schedule_leaves_the_schedule_as_it_is() -> None:
    text = "* Digest :workflow:\nDEADLINE: <2026-07-04 Sat> SCHEDULED: <2026-06-06 Sat 06:00 +1d>\n"
    assert world(text)["schedule"] == SIX_EVERY_MORNING


def test_a_passed_deadline_is_no_finding_of_the_validator() -> None:
    assert horae.validate("* TODO Long ago :workflow:\nDEADLINE: <1970-01-01 Thu>\n") == []


@pytest.mark.parametrize("stamp", ["[2026-06-12 Fri 11:30]", "<2026-06-12 Fri 11:30>"])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param("We met on {stamp} and talked.\n", id="inside a paragraph"),
        pytest.param("{stamp}\n", id="alone on the first line"),
        pytest.param("\nSCHEDULED: {stamp}\n", id="with its keyword, but below a blank line"),
        pytest.param("Prose.\nSCHEDULED: {stamp}\n", id="with its keyword, but below prose"),
    ],
)
def test_a_date_in_prose_is_no_schedule(body: str, stamp: str) -> None:
    text = "* Minutes :workflow:\n" + body.format(stamp=stamp)
    assert row(text)["scheduled"] is None
    assert row(text)["deadline"] is None
    assert world(text)["schedule"] is None


def test_a_stamp_in_the_title_is_no_schedule() -> None:
    read = row("* Minutes of <2026-06-12 Fri>\n")
    assert read["title"] == "Minutes of <2026-06-12 Fri>"
    assert read["scheduled"] is None


# The three repeaters


@pytest.mark.parametrize(
    "repeater",
    [
        pytest.param("+1d", id="from the old date"),
        pytest.param("++1d", id="until in the future"),
        pytest.param(".+1d", id="from completion"),
    ],
)
def test_the_three_prefixes_are_carried_verbatim(repeater: str) -> None:
    text = f"* Digest :workflow:\nSCHEDULED: <2026-06-06 Sat 06:00 {repeater}>\n"
    read = {"at": "2026-06-06T06:00", "repeat": repeater, "active": True}
    assert row(text)["scheduled"] == read
    assert world(text)["schedule"] == read


def test_of_two_repeaters_the_last_one_wins() -> None:
    read = horae.parse_timestamp("<2026-06-06 +1d ++2w>")
    assert read == {"at": "2026-06-06", "repeat": "++2w", "active": True}


# The cron escape hatch


@pytest.mark.parametrize("key", ["SCHEDULE", "schedule", "Schedule"])
def test_the_schedule_property_may_be_written_in_any_case(key: str) -> None:
    text = f"* Digest :workflow:\n:PROPERTIES:\n:{key}: 0 6 * * 1-5\n:END:\n"
    assert row(text)["props"] == {"SCHEDULE": "0 6 * * 1-5"}
    assert world(text)["schedule"] == {"cron": "0 6 * * 1-5"}


def test_when_both_are_present_the_query_still_reports_the_timestamp_in_full() -> None:
    read = row(plan("cron-wins.org"))
    assert read["scheduled"] == {"at": "2026-07-01T09:00", "repeat": "++1w", "active": True}
    assert read["props"] == {"SCHEDULE": "0 6 * * *"}


def test_when_both_are_present_the_drawer_wins() -> None:
    assert world(plan("cron-wins.org"))["schedule"] == {"cron": "0 6 * * *"}


def test_without_the_property_the_timestamp_is_what_is_left() -> None:
    text = plan("cron-wins.org").replace(":SCHEDULE: 0 6 * * *", ":OWNER: moss")
    assert world(text)["schedule"] == {"at": "2026-07-01T09:00", "repeat": "++1w", "active": True}


# Through the plan


def test_every_world_carries_its_schedule_also_when_it_has_none() -> None:
    assert world("* Digest :workflow:\n")["schedule"] is None


def test_a_monthly_parent_holds_an_hourly_child_each_on_its_own_clock() -> None:
    parent = world(plan("nested.org"))
    [child] = parent["workflows"]
    assert parent["schedule"] == {"at": "2026-07-01T06:00", "repeat": "+1m", "active": True}
    assert child["schedule"] == {"at": "2026-07-01T00:00", "repeat": "+1h", "active": True}


def test_a_child_without_a_clock_does_not_borrow_its_parents() -> None:
    parent = world("* Month :workflow:\nSCHEDULED: <2026-07-01 +1m>\n** Hour :workflow:\n")
    assert [child["schedule"] for child in parent["workflows"]] == [None]


# Checking what it extracted


def test_the_query_of_the_nightly_digest_is_printed_to_the_letter() -> None:
    blank: dict[str, object] = {
        "state": None,
        "props": {},
        "scheduled": None,
        "deadline": None,
        "id": None,
    }
    step = blank | {"level": 2, "tags": ["component"]}
    assert json.loads(printed("query", "nightly-digest.org")) == [
        blank
        | {
            "level": 1,
            "title": "Nightly digest",
            "tags": ["workflow"],
            "scheduled": {"active": True, "at": "2026-06-06T06:00", "repeat": "+1d"},
        },
        step | {"title": "Fetch events"},
        step | {"title": "Summarize"},
        step | {"title": "Send"},
    ]


def test_the_tangle_of_the_nightly_digest_is_printed_to_the_letter() -> None:
    read = json.loads(printed("tangle", "nightly-digest.org"))
    [digest] = read["worlds"]
    components = digest.pop("components")
    assert read.keys() == {"worlds"}
    assert digest == {
        "name": "Nightly digest",
        "schedule": {"active": True, "at": "2026-06-06T06:00", "repeat": "+1d"},
        "imports": ["workbook:llm/complete", "workbook:net/email", "workbook:vfs/query"],
        "exports": [],
        "edges": [
            {"from": "Fetch events", "to": "Summarize"},
            {"from": "Summarize", "to": "Send"},
        ],
        "workflows": [],
    }
    assert [(each["name"], each["lang"]) for each in components] == [
        ("Fetch events", "rust"),
        ("Summarize", "js"),
        ("Send", "go"),
    ]
    assert [(each["in"], each["uses"], each["out"]) for each in components] == [
        (None, ["workbook:vfs/query"], "events:list"),
        ("events:list", ["workbook:llm/complete"], "summary:string"),
        ("summary:string", ["workbook:net/email"], None),
    ]
    assert all(each["src"] in plan("nightly-digest.org") for each in components)


def test_both_surfaces_of_the_nightly_digest_line_up() -> None:
    written = json.loads(printed("query", "nightly-digest.org"))[0]["scheduled"]
    resolved = json.loads(printed("tangle", "nightly-digest.org"))["worlds"][0]["schedule"]
    assert written == resolved == SIX_EVERY_MORNING


def test_the_nightly_digest_has_no_findings() -> None:
    assert json.loads(printed("lint", "nightly-digest.org")) == []


def test_a_workflow_with_only_a_deadline_is_printed_to_the_letter() -> None:
    [written] = json.loads(printed("query", "deadline-only.org"))
    [resolved] = json.loads(printed("tangle", "deadline-only.org"))["worlds"]
    assert written["deadline"] == {"at": "2026-07-04", "repeat": None, "active": True}
    assert written["scheduled"] is None
    assert resolved["schedule"] is None


@pytest.mark.parametrize("name", ["nightly-digest.org", "deadline-only.org"])
def test_the_commands_print_the_very_data_that_the_functions_return(name: str) -> None:
    assert json.loads(printed("query", name)) == horae.query(plan(name))
    assert json.loads(printed("tangle", name)) == horae.tangle(plan(name))


def test_a_dash_reads_the_plan_from_standard_input() -> None:
    command = [sys.executable, "-m", "horae.cli.wb", "query", "-"]
    plan_text = plan("cron-wins.org")
    done = subprocess.run(
        command, input=plan_text.encode(), capture_output=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == horae.query(plan_text)


# The kernel has no clock


def test_a_day_long_past_and_a_day_far_ahead_read_alike() -> None:
    for year in ("0001", "9999"):
        read = horae.parse_timestamp(f"<{year}-01-01 09:00 .+1d>")
        assert read == {"at": f"{year}-01-01T09:00", "repeat": ".+1d", "active": True}


def test_the_kernel_never_computes_the_next_fire() -> None:
    text = "* Digest :workflow:\nSCHEDULED: <1999-12-31 Fri 06:00 ++1d>\n"
    assert world(text)["schedule"]["at"] == "1999-12-31T06:00"


def test_a_time_range_survives_as_a_string_that_is_not_iso() -> None:
    read = horae.parse_timestamp("<2026-06-20 06:00-07:30>")
    assert read == {"at": "2026-06-20T06:00-07:30", "repeat": None, "active": True}


def test_there_is_no_zone_anywhere_in_the_grammar() -> None:
    with_zone = horae.parse_timestamp("<2026-06-06 Sat 06:00 CET +1d>")
    assert with_zone == SIX_EVERY_MORNING


def test_a_warning_cookie_is_dropped() -> None:
    text = "* Taxes\nDEADLINE: <2026-07-04 Sat -2d>\n"
    assert row(text)["deadline"] == {"at": "2026-07-04", "repeat": None, "active": True}


# Questions people ask


def test_the_same_stamp_fires_once_it_is_moved_from_deadline_to_scheduled() -> None:
    text = plan("deadline-only.org").replace("DEADLINE", "SCHEDULED")
    assert world(text)["schedule"] == {"at": "2026-07-04", "repeat": None, "active": True}


def test_the_day_name_may_be_left_out() -> None:
    assert horae.parse_timestamp("<2026-06-06 06:00 +1d>") == SIX_EVERY_MORNING


def test_a_date_without_zeros_leaves_the_headline_without_a_schedule() -> None:
    text = "* Digest :workflow:\nSCHEDULED: <2026-6-6 Sat 06:00 +1d>\n"
    assert row(text)["scheduled"] is None
    assert world(text)["schedule"] is None
