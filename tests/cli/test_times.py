"""`horae next`, `agenda`, `due` and `explain`: when things come, and why."""

from pathlib import Path

import pytest

from calling import Call

PLAN = """\
* Digest :workflow:
SCHEDULED: <2026-06-06 Sat 06:00 +1d>
* Sync :workflow:
:PROPERTIES:
:SCHEDULE: */30 * * * *
:END:
* Night job :workflow:
SCHEDULED: <2026-06-01 Mon 09:00 ++1w>
:PROPERTIES:
:SCHEDULE: 30 2 * * *
:TZ: America/New_York
:END:
* Rest :workflow:
:PROPERTIES:
:SCHEDULE: 0 0 30 2 *
:END:
* DONE Old :workflow:
SCHEDULED: <2026-06-06 Sat>
* By hand :workflow:
* TODO Pay rent
SCHEDULED: <2026-06-05 Fri> DEADLINE: <2026-06-07 Sun>
* TODO File taxes
DEADLINE: <2026-05-31 Sun>
"""


@pytest.fixture(autouse=True)
def plan(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(PLAN)


def test_next_merges_the_moments_of_all_entries(call: Call) -> None:
    rows = call("next", "plan.org", "-n", "4", "--at", "2026-06-06 05:10").data
    assert [(row["at"], row["title"]) for row in rows] == [
        ("2026-06-06T05:30:00+02:00", "Sync"),
        ("2026-06-06T06:00:00+02:00", "Digest"),
        ("2026-06-06T06:00:00+02:00", "Sync"),
        ("2026-06-06T06:30:00+02:00", "Sync"),
    ]
    assert rows[1]["key"] == "at:2026-06-06T04:00:00Z"
    assert (rows[1]["file"], rows[1]["line"]) == ("plan.org", 1)


def test_next_shows_the_zone_of_each_moment(call: Call) -> None:
    ending = call("next", "plan.org", "--table", "--at", "2026-06-06T06:00:00Z", "-n", "2")
    assert ending.out.splitlines() == [
        "2026-06-06 Sat 08:30 Europe/Berlin  Sync  plan.org:3",
        "2026-06-06 Sat 02:30 America/New_York  Night job  plan.org:7",
    ]


def test_next_of_an_expression_needs_no_plan(call: Call) -> None:
    asked = ["next", "--cron", "0 9 * * MON", "--tz", "Europe/Berlin", "--from", "2026-03-25", "-n"]
    assert call(*asked, "2").data == [
        {"at": "2026-03-30T09:00:00+02:00", "zone": "Europe/Berlin"},
        {"at": "2026-04-06T09:00:00+02:00", "zone": "Europe/Berlin"},
    ]
    assert call("next", "--cron", "@daily", "--at", "2026-01-01", "-n", "1").data == [
        {"at": "2026-01-01T00:00:00Z", "zone": "UTC"}
    ]


def test_a_bad_expression_is_shown_with_a_caret(call: Call) -> None:
    ending = call("explain", "0 24 * * *")
    assert (ending.code, ending.out) == (2, "")
    assert ending.err.splitlines() == [
        "horae: cron '0 24 * * *': hour 24 is outside 0-23",
        "0 24 * * *",
        "  ^^",
    ]
    assert call("next", "--cron", "0 24 * * *").err == ending.err


def test_the_agenda_is_grouped_by_day_and_says_its_zone(call: Call) -> None:
    ending = call("agenda", "plan.org", "--table", "--days", "2", "--at", "2026-06-06 00:00")
    assert ending.out.splitlines() == [
        "2026-06-06 Sat 00:00 to 2026-06-08 Mon 00:00, times in Europe/Berlin",
        "",
        "2026-06-06 Sat",
        "  00:30–23:30  Sync  (47 times)  plan.org:3",
        "  06:00        Digest  plan.org:1",
        "  08:30        Night job  [America/New_York]  plan.org:7",
        "",
        "2026-06-07 Sun",
        "  00:00–23:30  Sync  (48 times)  plan.org:3",
        "  06:00        Digest  plan.org:1",
        "  08:30        Night job  [America/New_York]  plan.org:7",
        "  24:00        deadline: Pay rent  plan.org:20",
        "",
        "2026-06-08 Mon",
        "  00:00        Sync  plan.org:3",
    ]


def test_due_tells_what_is_overdue_due_coming_and_not_armed(call: Call) -> None:
    rows = call("due", "plan.org", "--at", "2026-06-06 05:10", "--days", "1").data
    assert [(row["standing"], row["title"]) for row in rows] == [
        ("overdue", "File taxes"),
        ("due", "Pay rent"),
        ("upcoming", "Sync"),
        ("upcoming", "Digest"),
        ("upcoming", "Night job"),
        ("not armed", "Rest"),
        ("not armed", "Old"),
    ]
    reasons = {row["title"]: row["reason"] for row in rows}
    assert reasons["Rest"] == "cron '0 0 30 2 *' names a day that never comes"
    assert reasons["Old"] == "its state is DONE"


def test_a_single_moment_in_the_past_is_due(call: Call, tmp_path: Path) -> None:
    (tmp_path / "once.org").write_text("* Launch :workflow:\nSCHEDULED: <2026-06-06 Sat 09:00>\n")
    [row] = call("due", "once.org", "--at", "2026-06-06 10:00").data
    assert (row["standing"], row["at"]) == ("due", "2026-06-06T09:00:00+02:00")


def test_explain_says_which_rule_won_and_what_clock_changes_do(call: Call) -> None:
    ending = call("explain", "plan.org:8", "--table", "--at", "2026-11-15")
    lines = ending.out.splitlines()
    assert lines[0] == "Night job  plan.org:7"
    assert lines[1] == (
        "the :SCHEDULE: property counts; it wins over SCHEDULED: <2026-06-01 Mon 09:00 ++1w>: "
        "30 2 * * *"
    )
    assert lines[2] == "at 02:30 every day (America/New_York)"
    assert lines[3] == "  2026-11-15 Sun 02:30 America/New_York"
    assert lines[8] == (
        "note: 02:30 does not exist on 2027-03-14 in America/New_York: it fires at 03:00 instead"
    )


def test_explain_says_why_a_workflow_is_not_armed(call: Call) -> None:
    assert call("explain", "plan.org:13").data["reason"] == (
        "cron '0 0 30 2 *' names a day that never comes"
    )
    assert call("explain", "plan.org:17").data["reason"] == "its state is DONE"
    by_hand = call("explain", "plan.org:19", "--table").out.splitlines()
    assert by_hand[1:] == [
        "there is neither a :SCHEDULE: property nor SCHEDULED",
        "when it is asked to (Europe/Berlin)",
    ]


def test_explain_reads_a_stamp(call: Call) -> None:
    data = call("explain", "<2026-01-31 Sat 06:00 +1m>", "--at", "2026-02-01").data
    assert data["next"][:2] == ["2026-03-03T06:00:00Z", "2026-04-03T06:00:00Z"]
    assert data["words"].startswith("every month at 06:00, from 2026-01-31 Sat 06:00 on")


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["explain", "gone.org:3"], 4, "gone.org: does not exist"),
        (["explain", "<2026-6-6>"], 2, "is not a timestamp; write it like"),
        (["next", "--tz", "Europe/Berln"], 2, "did you mean Europe/Berlin?"),
        (["next", "--cron", "@daily", "plan.org"], 2, "--cron goes without files."),
        (["agenda", "--days", "0"], 2, "0 is not in the range"),
        (["explain", "<2026-06-06 +1x>"], 2, "unit x is not one of h, d, w, m, y"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_said_is_one_clear_line(
    call: Call, args: list[str], code: int, message: str
) -> None:
    ending = call(*args)
    assert ending.code == code
    assert message in ending.err
    assert "Traceback" not in ending.err


def test_a_minute_rule_without_end_is_shown_at_once(call: Call) -> None:
    assert len(call("next", "--cron", "* * * * * *", "-n", "3", "--at", "2026-01-01").data) == 3


@pytest.mark.parametrize(
    ("where", "named"),
    [
        (".", "plans"),
        (".", "plans/"),
        (".", "plans/garden/beans.org"),
        ("plans", "."),
        ("plans", "garden/beans.org"),
        ("plans/garden", "../../plans"),
    ],
)
def test_a_plan_has_the_zone_of_its_root_however_it_is_named(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, named: str
) -> None:
    (tmp_path / "plans" / "garden").mkdir(parents=True)
    (tmp_path / "plans" / "horae.toml").write_text('zone = "Asia/Tokyo"\n')
    (tmp_path / "plans" / "garden" / "beans.org").write_text(
        "* Sow :workflow:\nSCHEDULED: <2026-06-06 Sat 06:00 +1d>\n"
    )
    monkeypatch.delenv("HORAE_ZONE")
    monkeypatch.chdir(tmp_path / where)
    [row] = call("next", named, "-n", "1", "--at", "2026-06-05T00:00:00Z").data
    assert row["at"] == "2026-06-06T06:00:00+09:00"


def test_a_settings_file_above_the_current_directory_is_not_looked_for(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "horae.toml").write_text('zone = "Asia/Tokyo"\n')
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "plan.org").write_text(PLAN)
    monkeypatch.delenv("HORAE_ZONE")
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.chdir(tmp_path / "below")
    assert call("next", "plan.org", "-n", "1", "--at", "2026-06-05").data[0]["zone"] == "UTC"
