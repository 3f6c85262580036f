"""The kernel's part of the document on schedules: declared time, carried as data."""

from itertools import permutations
from typing import Any

import pytest

import horae

CRON = {"cron": "0 6 * * *"}
STAMP = {"at": "2026-06-13T09:00", "repeat": "+1w", "active": True}


def row(text: str) -> Any:
    """Return the row of the only headline."""
    [only] = horae.query(text)
    return only


def world(text: str) -> Any:
    """Return the only world."""
    [only] = horae.tangle(text)["worlds"]
    return only


def test_the_line_every_week_at_nine_is_read_as_it_stands() -> None:
    text = "* Review :workflow:\nSCHEDULED: <2026-06-13 09:00 +1w>\n"
    assert row(text)["scheduled"] == STAMP
    assert world(text)["schedule"] == STAMP


# One character decides


@pytest.mark.parametrize(
    ("written", "active"),
    [
        pytest.param("<2026-06-13 09:00 +1w>", True, id="angle brackets are a thing to act on"),
        pytest.param("[2026-06-13 09:00 +1w]", False, id="square brackets are a thing recorded"),
    ],
)
def test_the_first_character_is_all_that_tells_an_appointment_from_a_diary(
    written: str, active: bool
) -> None:
    assert horae.parse_timestamp(written) == STAMP | {"active": active}


@pytest.mark.parametrize("written", ["2026-06-13 09:00 +1w", "(2026-06-13)", '"2026-06-13"', ""])
def test_there_are_no_bare_timestamps(written: str) -> None:
    assert horae.parse_timestamp(written) is None


@pytest.mark.parametrize(
    "tokens", [*permutations(["2026-06-13", "Fri", "09:00", "+1w"])], ids=" ".join
)
def test_the_order_of_the_tokens_does_not_matter(tokens: tuple[str, ...]) -> None:
    assert horae.parse_timestamp(f"<{' '.join(tokens)}>") == STAMP


@pytest.mark.parametrize("tokens", [*permutations(["2026-06-13", "09:00", "+1w"])], ids=" ".join)
def test_the_order_does_not_matter_on_a_planning_line_either(tokens: tuple[str, ...]) -> None:
    assert row(f"* Review\nSCHEDULED: <{' '.join(tokens)}>\n")["scheduled"] == STAMP


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        pytest.param("<2026-06-13 Fri 09:00 +1w>", STAMP, id="date, day, time and repeater"),
        pytest.param(
            "<2026-06-20>", {"at": "2026-06-20", "repeat": None, "active": True}, id="a date alone"
        ),
        pytest.param(
            "[2026-06-11 14:30]",
            {"at": "2026-06-11T14:30", "repeat": None, "active": False},
            id="a note of a past hour",
        ),
        pytest.param(
            "<2026-06-13 09:00 .+2d>",
            {"at": "2026-06-13T09:00", "repeat": ".+2d", "active": True},
            id="a repeater that counts from completion",
        ),
    ],
)
def test_what_is_written_is_what_the_kernel_sees(written: str, seen: dict[str, object]) -> None:
    assert horae.parse_timestamp(written) == seen
    assert row(f"* Review\nDEADLINE: {written}\n")["deadline"] == seen


def test_a_wrong_day_name_is_silently_ignored() -> None:
    saturday = "2026-06-13"
    read = horae.parse_timestamp(f"<{saturday} Fri>")
    assert read == {"at": saturday, "repeat": None, "active": True}


def test_both_keywords_are_surfaced_on_every_row_as_a_stamp_or_null() -> None:
    text = (
        "* Both\nSCHEDULED: <2026-06-13 09:00 +1w> DEADLINE: <2026-06-20>\n"
        "* Neither\n"
        "** Owed\nDEADLINE: <2026-06-20>\n"
        "** Started\nSCHEDULED: <2026-06-13 09:00 +1w>\n"
    )
    owed = {"at": "2026-06-20", "repeat": None, "active": True}
    assert [(each["scheduled"], each["deadline"]) for each in horae.query(text)] == [
        (STAMP, owed),
        (None, None),
        (None, owed),
        (STAMP, None),
    ]


@pytest.mark.parametrize("repeater", ["+1w", ".+1d", "++1w", "+2m", "++3y", ".+36h"])
def test_a_repeater_is_recognised_and_never_computed(repeater: str) -> None:
    read = horae.parse_timestamp(f"<2026-06-13 09:00 {repeater}>")
    assert read == STAMP | {"repeat": repeater}


# When a timestamp is not enough


@pytest.mark.parametrize(
    ("under_the_headline", "schedule"),
    [
        pytest.param(
            "SCHEDULED: <2026-06-13 09:00 +1w>\n:PROPERTIES:\n:SCHEDULE: 0 6 * * *\n:END:\n",
            CRON,
            id="the cron property outranks the stamp",
        ),
        pytest.param(
            ":PROPERTIES:\n:SCHEDULE: 0 6 * * *\n:END:\n", CRON, id="the cron property alone"
        ),
        pytest.param("SCHEDULED: <2026-06-13 09:00 +1w>\n", STAMP, id="the stamp alone"),
        pytest.param("", None, id="neither"),
        pytest.param("DEADLINE: <2026-06-13 09:00 +1w>\n", None, id="a deadline is neither"),
        pytest.param(
            "DEADLINE: <2026-06-20>\n:PROPERTIES:\n:SCHEDULE: 0 6 * * *\n:END:\n",
            CRON,
            id="the cron property beside a deadline",
        ),
        pytest.param(
            "SCHEDULED: <2026-06-13 09:00 +1w>\n:PROPERTIES:\n:SCHEDULE: \n:END:\n",
            STAMP,
            id="a property without a value is no property",
        ),
    ],
)
def test_the_precedence_is_fixed(under_the_headline: str, schedule: object) -> None:
    assert world("* Review :workflow:\n" + under_the_headline)["schedule"] == schedule


@pytest.mark.parametrize(
    "raw",
    [
        "anything at all",
        "0 6 * * *",
        "0 24 * * *",
        "@daily",
        "0 6 * * 1-5; 0 9 1,15 * *",
        "<2026-06-13 09:00 +1w>",
        "0  6 *\t* *",
    ],
)
def test_the_cron_string_is_carried_and_never_read(raw: str) -> None:
    text = f"* Review :workflow:\n:PROPERTIES:\n:SCHEDULE: {raw}\n:END:\n"
    assert world(text)["schedule"] == {"cron": raw}


def test_every_workflow_carries_its_own_schedule_at_each_level() -> None:
    text = (
        "* Year :workflow:\nSCHEDULED: [2026-01-01]\n"
        "** Month :workflow:\n:PROPERTIES:\n:SCHEDULE: @monthly\n:END:\n"
        "*** Week :workflow:\nSCHEDULED: <2026-06-13 09:00 +1w>\n"
        "**** Some day :workflow:\nDEADLINE: <2026-06-20>\n"
    )
    year = world(text)
    [month] = year["workflows"]
    [week] = month["workflows"]
    [some_day] = week["workflows"]
    assert year["schedule"] == {"at": "2026-01-01", "repeat": None, "active": False}
    assert month["schedule"] == {"cron": "@monthly"}
    assert week["schedule"] == STAMP
    assert some_day["schedule"] is None


def test_the_schedule_stands_next_to_name_imports_exports_and_edges() -> None:
    assert world("* Review :workflow:\n").keys() >= {
        "name",
        "schedule",
        "imports",
        "exports",
        "edges",
    }


# Where it bites


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("DEADLINE: <1999-01-01 Fri>", id="overdue for years"),
        pytest.param("SCHEDULED: <2026-02-30>", id="a day that does not exist"),
        pytest.param("SCHEDULED: <2026-06-13 Fri>", id="a day name that disagrees"),
        pytest.param("SCHEDULED: <2026-06-13 +0q>", id="a repeater of no known unit"),
        pytest.param("SCHEDULED: <2026-06-13]", id="brackets that do not match"),
    ],
)
def test_the_validator_has_no_word_on_time(line: str) -> None:
    assert horae.validate(f"* TODO Review :workflow:\n{line}\n") == []


def test_the_validator_reports_a_component_without_a_language() -> None:
    [finding] = horae.validate("* Review :workflow:\n** Read :component:\nNo code yet.\n")
    assert (finding["level"], finding["scope"]) == ("error", "Read")


def test_the_validator_reports_an_input_that_nothing_produces() -> None:
    text = "* Review :workflow:\n** Read :component:\n#+begin_src js :in notes\n#+end_src\n"
    [finding] = horae.validate(text)
    assert finding["level"] == "error"
    assert "notes" in finding["message"]
