"""Timestamps, from top to bottom: what is written, what is read from it, and what fires.

The kernel carries a date and never looks at a clock; what an engine makes of it stands beside
each rule. The plans of the examples are those in `examples/nightly`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import horae
from horae.core.receipt import Status
from horae.process.processes import can_kill_trees
from walks.stage import DAY, HOUR, MINUTE, engine, story, typed

if TYPE_CHECKING:
    from walks.stage import Ground

runs = pytest.mark.skipif(not can_kill_trees(), reason="needs pidfds")

NIGHTLY = Path(__file__).parents[2] / "examples" / "nightly"
SIX_EVERY_MORNING = {"at": "2026-06-06T06:00", "repeat": "+1d", "active": True}
NOTHING = None


@cache
def plan(name: str) -> str:
    return (NIGHTLY / name).read_text(encoding="utf-8")


@cache
def printed(verb: str, name: str) -> str:
    """Return what the command prints for an example plan."""
    ending = typed("wb", verb, name, at=NIGHTLY)
    assert (ending.code, ending.err) == (0, "")
    return ending.out


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


@runs
def test_a_stamp_rides_into_every_plan_and_every_record_of_a_run(ground: Ground) -> None:
    step = "** Pour :component:\n#+begin_src sh\necho poured\n#+end_src\n"
    text = f"* Herbs :workflow:\nSCHEDULED: <2026-06-06 Sat 06:00 +1d>\n{step}"
    ground.write("herbs.org", text)
    [planned] = typed("wb", "workflow", "plan", "herbs.org", at=ground.root).data
    [record] = typed("wb", "run", "herbs.org", at=ground.root).data
    assert planned["schedule"] == record["schedule"] == SIX_EVERY_MORNING
    assert record["tasks"] == {"Pour": "poured"}


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


TENTH_HOUR = datetime(2026, 8, 1, 10, tzinfo=UTC)


@runs
@story
async def test_an_appointment_fires_a_note_does_not_and_a_mismatch_is_nothing(
    ground: Ground,
) -> None:
    marks = {"Market": "<{}>", "Diary": "[{}]", "Slip": "<{}]"}
    for title, stamp in marks.items():
        ground.write(f"{title}.org", workflow(title, stamp.format("2026-08-01 Sat 10:00")))
    async with engine(ground, now=TENTH_HOUR - HOUR) as here:
        await here.until(TENTH_HOUR + HOUR)
        assert await here.statuses("Market") == [Status.DONE]
        assert await here.receipts("Diary") == []
        assert await here.receipts("Slip") == []
        rest = (await here.app.service.status(here.app.facts())).unarmed
        assert {each.title: each.reason for each in rest}.keys() == {"Diary", "Slip"}, "surfaced"


def workflow(title: str, stamp: str, *, keyword: str = "SCHEDULED", body: str = "") -> str:
    """Return a workflow of one step."""
    step = "** Say :component:\n#+begin_src sh\necho said\n#+end_src\n"
    return f"* {title} :workflow:\n{keyword}: {stamp}\n{body}{step}"


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


@runs
@story
async def test_a_deadline_fires_nothing_and_overdue_is_now_after_it(ground: Ground) -> None:
    ground.write("owed.org", workflow("Owed", "<2026-08-01 Sat 10:00>", keyword="DEADLINE"))
    async with engine(ground, now=TENTH_HOUR - HOUR) as here:
        await here.until(TENTH_HOUR + DAY)
        assert await here.receipts("Owed") == []
    for now, count in (("2026-08-01 10:00", 0), ("2026-08-01 10:01", 1)):
        words = ("query", "--overdue", "--at", now, "--json", "owed.org")
        assert len(typed("horae", *words, "--json", at=ground.root).data) == count


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


@pytest.mark.parametrize(
    ("repeater", "following"),
    [
        pytest.param("+1d", "2026-06-07 Sun 06:00 +1d", id="from the old date"),
        pytest.param("++1d", "2026-06-10 Wed 06:00 ++1d", id="on to the next that is to come"),
        pytest.param(".+1d", "2026-06-10 Wed 06:00 .+1d", id="from when it was done"),
    ],
)
def test_what_is_done_three_days_late_goes_on_as_its_prefix_says(
    ground: Ground, repeater: str, following: str
) -> None:
    ground.write("herbs.org", f"* TODO Herbs\nSCHEDULED: <2026-06-06 Sat 06:00 {repeater}>\n")
    words = ("done", "herbs.org", "Herbs", "--at", "2026-06-09 20:00")
    assert typed("horae", *words, at=ground.root).code == 0
    assert f"SCHEDULED: <{following}>\n" in (ground.root / "herbs.org").read_text()


@pytest.mark.parametrize(
    ("repeater", "ran"),
    [
        pytest.param("+1d", [6, 7, 8, 9], id="fixed cadence: each that was missed"),
        pytest.param("++1d", [9], id="caught up: only the newest"),
        pytest.param(".+1d", [6], id="measured from done: once, late"),
    ],
)
@runs
@story
async def test_an_engine_that_comes_three_days_late_honours_the_prefix(
    ground: Ground, repeater: str, ran: list[int]
) -> None:
    ground.write("herbs.org", workflow("Herbs", f"<2026-06-06 Sat 06:00 {repeater}>"))
    six = datetime(2026, 6, 6, 6, tzinfo=UTC)
    async with engine(ground, now=six - HOUR):
        pass
    async with engine(ground, now=six + 3 * DAY + HOUR) as here:
        found = [each for each in await here.receipts("Herbs") if each.status is Status.DONE]
        assert [each.receipt.planned_at.day for each in found] == ran
        following = [each.next_at for each in await here.app.ledger.entries()]
        assert following == [six + 4 * DAY], "from there on again, on the day after"


# The cron escape hatch


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        pytest.param("0 6 * * 1-5", "at 06:00 on Monday to Friday", id="every weekday at six"),
        pytest.param("0 6 1,15 * *", "at 06:00 on the 1st and 15th", id="the 1st and the 15th"),
    ],
)
def test_what_is_not_shaped_like_a_calendar_is_written_in_five_fields(
    ground: Ground, cron: str, words: str
) -> None:
    told = typed("horae", "explain", cron, "--table", "--at", "2026-06-05", at=ground.root)
    assert told.out.startswith(words), told.out


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


@runs
@story
async def test_each_level_fires_on_its_own_clock(ground: Ground) -> None:
    inner = workflow("Hour", "<2026-07-01 Wed 00:00 +1h>").replace("* ", "** ", 1)
    inner = inner.replace("** Say", "*** Say")
    ground.write("nested.org", workflow("Month", "<2026-07-01 Wed 02:30 +1m>") + inner)
    midnight = datetime(2026, 7, 1, tzinfo=UTC)
    async with engine(ground, now=midnight - MINUTE) as here:
        await here.until(midnight + 3 * HOUR)
        assert len(await here.receipts("Hour")) == 4
        assert len(await here.receipts("Month")) == 1


@runs
def test_the_schedule_is_in_the_records_of_workflows_inside_workflows(ground: Ground) -> None:
    inner = workflow("Hour", "<2026-07-01 Wed 00:00 +1h>").replace("* ", "** ", 1)
    inner = inner.replace("** Say", "*** Say")
    ground.write("nested.org", workflow("Month", "<2026-07-01 Wed 06:00 +1m>") + inner)
    [record] = typed("wb", "run", "nested.org", at=ground.root).data
    [below] = record["sub_workflows"]
    assert (record["schedule"]["repeat"], below["schedule"]["repeat"]) == ("+1m", "+1h")


# Checking what it extracted


@runs
@story
async def test_the_third_surface_is_a_request_that_runs_nothing(ground: Ground) -> None:
    text = plan("nightly-digest.org")
    async with engine(ground) as here:
        answer = await here.post("/api/workflow?plan=1", {"org": text})
        [summary] = answer.json()
        assert summary["schedule"] == SIX_EVERY_MORNING
        assert summary["tasks"] == ["Fetch events", "Summarize", "Send"]
        assert not (ground.data / "runs").exists()


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
    text = plan("cron-wins.org")
    assert typed("wb", "query", "-", at=NIGHTLY, stdin=text).data == horae.query(text)


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


@runs
@story
async def test_the_zone_is_the_engines(ground: Ground) -> None:
    ground.write("herbs.org", workflow("Herbs", "<2026-06-06 Sat 06:00>"))
    six_in_tokyo = datetime(2026, 6, 5, 21, tzinfo=UTC)
    environ = {"HORAE_ZONE": "Asia/Tokyo"}
    async with engine(ground, now=six_in_tokyo - HOUR, environ=environ) as here:
        await here.until(six_in_tokyo + HOUR)
        [filed] = await here.receipts("Herbs")
        assert filed.receipt.planned_at == six_in_tokyo


@runs
@story
async def test_a_time_range_fires_at_its_start(ground: Ground) -> None:
    """The document leaves open what a consumer does with it."""
    ground.write("market.org", workflow("Market", "<2026-08-01 Sat 10:00-12:30>"))
    async with engine(ground, now=TENTH_HOUR - HOUR) as here:
        await here.until(TENTH_HOUR + DAY)
        [filed] = await here.receipts("Market")
        assert filed.receipt.planned_at == TENTH_HOUR


@runs
@story
async def test_what_wakes_a_workflow_is_something_with_a_clock(ground: Ground) -> None:
    """Different here: there is a daemon that keeps org timestamps, and it is `horae up`.

    The document has only triggers from outside. They work as well: a request that names what is
    in the plan, or brings its own, runs it at once and moves no other moment.
    """
    text = workflow("Herbs", "<2026-06-06 Sat 06:00 +1d>")
    ground.write("herbs.org", text)
    six = datetime(2026, 6, 6, 6, tzinfo=UTC)
    async with engine(ground, now=six - HOUR) as here:
        answer = await here.post("/api/workflow", {"org": text})
        [record] = answer.json()
        assert (record["status"], record["schedule"]) == ("done", SIX_EVERY_MORNING)
        assert await here.receipts("Herbs") == [], "that was none of ours"
        await here.until(six)
        assert await here.statuses("Herbs") == [Status.DONE]


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


def test_what_was_probably_not_meant_is_found_by_check(ground: Ground) -> None:
    """Beyond the document: the reader stays silent as it says there, and `check` does not."""
    plans = {
        "deadline-only": "DEADLINE: <2026-07-04 Sat>",
        "date-shape": "SCHEDULED: <2026-6-6 Sat 06:00>",
        "day-name": "SCHEDULED: <2026-07-01 Sat 06:00>",
        "inactive": "SCHEDULED: [2026-08-01 Sat 10:00]",
    }
    for name, line in plans.items():
        ground.write(f"{name}.org", f"* Digest :workflow:\n{line}\n")
    found = typed("horae", "check", ".", "--jsonl", at=ground.root).out.splitlines()
    said = {Path(each["file"]).stem: each["code"] for each in map(json.loads, found)}
    assert said.keys() >= {"deadline-only", "date-shape", "day-name", "inactive"}
    assert [said[each] for each in ("deadline-only", "date-shape", "inactive")] == [
        "deadline-only",
        "date-shape",
        "inactive",
    ]


def test_a_date_in_body_text_leaves_the_headline_without_a_schedule(ground: Ground) -> None:
    ground.write("minutes.org", "* Minutes :workflow:\nWe met on [2026-06-12 Fri 11:30].\n")
    [written] = typed("wb", "query", "minutes.org", at=ground.root).data
    [resolved] = typed("wb", "tangle", "minutes.org", at=ground.root).data["worlds"]
    assert (written["scheduled"], resolved["schedule"]) == (None, None)
