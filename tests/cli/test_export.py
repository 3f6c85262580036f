"""`horae export ics`, used as a person or a program would."""

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from icalendar import Calendar

from horae.cli.export import export
from horae.cli.run import run
from horae.errors import Exit

GARDEN = """\
* Water the beans :workflow:
SCHEDULED: <2026-06-01 Mon 09:00 +1d>
* Weed :workflow:
:PROPERTIES:
:ID: weed
:SCHEDULE: 0 9 1 * MON
:END:
* Prune :workflow:
SCHEDULED: [2026-06-01 Mon 09:00 +1d]
* Ask :workflow:
"""
AT = ("--at", "2026-06-01T00:00:00Z")


class Ending(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def events(self) -> list[Any]:
        return list(Calendar.from_ical(self.out).walk("VEVENT"))

    @property
    def uids(self) -> list[str]:
        return [str(event["UID"]) for event in self.events]


Call = Callable[..., Ending]


@pytest.fixture
def call(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Call:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HORAE_ZONE", "Europe/Berlin")
    (tmp_path / "garden.org").write_text(GARDEN)

    def calling(*args: str) -> Ending:
        code = run(export, name="horae export", args=["ics", *args])
        said = capfdbinary.readouterr()
        return Ending(code, said.out.decode(), said.err.decode())

    return calling


def test_a_calendar_goes_to_stdout_and_what_is_not_armed_to_stderr(call: Call) -> None:
    ending = call(*AT, "garden.org")
    assert ending.code == Exit.OK
    assert ending.out.startswith("BEGIN:VCALENDAR\r\n")
    assert not re.search(r"(?<!\r)\n", ending.out)
    assert {str(event["SUMMARY"]) for event in ending.events} == {"Water the beans", "Weed"}
    assert ending.events[0]["RRULE"].to_ical() == b"FREQ=DAILY"
    assert ending.err == (
        "horae: garden.org:8: 'Prune' is not armed: "
        "SCHEDULED is in square brackets, so it is inactive\n"
    )


def test_what_cannot_be_read_is_said_and_the_rest_goes_on(call: Call) -> None:
    ending = call(*AT, "nowhere.org", "garden.org")
    assert ending.code == Exit.NOT_FOUND
    assert "horae: nowhere.org: does not exist\n" in ending.err
    assert ending.out == call(*AT, "garden.org").out
    for form in ("crontab", "systemd"):
        assert call("export", form, "nowhere.org").code == Exit.NOT_FOUND


def test_however_a_plan_is_named_its_events_are_the_same(call: Call, tmp_path: Path) -> None:
    expected = call(*AT, "garden.org").out
    for paths in ([], ["."], ["./garden.org"], [str(tmp_path)], ["garden.org", "."]):
        assert call(*AT, *paths).out == expected


def test_a_dash_reads_standard_input(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GARDEN.encode())))
    assert len(call(*AT, "-").events) == len(call(*AT, "garden.org").events)


def test_of_two_entries_with_one_id_the_second_is_left_out(call: Call, tmp_path: Path) -> None:
    (tmp_path / "other.org").write_text(GARDEN)
    ending = call(*AT)
    assert len(set(ending.uids)) == len(ending.uids)
    assert (
        "horae: other.org:3: 'Weed' is not armed: garden.org:3 has the same :ID: weed; "
        "change one of them\n"
    ) in ending.err


def test_a_calendar_has_its_start_and_not_its_end(call: Call, tmp_path: Path) -> None:
    (tmp_path / "garden.org").write_text(GARDEN.replace("0 9 1 * MON", "0 0,12 * * *"))
    window = ("--from", "2026-06-10", "--to", "2026-06-11")
    days = ("--from", "2026-06-10", "--days", "1")
    for chosen in (window, days):
        shown = [event for event in call(*AT, *chosen).events if event["SUMMARY"] == "Weed"]
        starts = [event["DTSTART"].to_ical() for event in shown]
        assert starts == [b"20260610T000000", b"20260610T120000"]


def test_the_zone_of_plans_can_be_chosen(call: Call) -> None:
    ending = call(*AT, "--tz", "Asia/Kolkata")
    assert "X-WR-TIMEZONE:Asia/Kolkata\r\n" in ending.out
    assert ending.events[0]["DTSTART"].params["TZID"] == "Asia/Kolkata"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--days", "3", "--to", "2026-07-01"], "use --days or --to, not both"),
        (["--to", "2026-05-01"], "the calendar would end before it begins"),
        (["--from", "9999-12-01"], "outside the years 1 to 9999"),
        (["--from", "0001-01-01T00:00:00Z"], "outside the years 1 to 9999"),
        (["--from", "tomorrow"], "'tomorrow' is not a time"),
        (["--days", "0"], "0 is not in the range"),
        (["--tz", "Berlin"], "did you mean Europe/Berlin?"),
    ],
)
def test_a_window_that_makes_no_sense_is_refused(call: Call, args: list[str], message: str) -> None:
    ending = call(*AT, *args)
    assert (ending.code, ending.out) == (Exit.USAGE, "")
    assert message in ending.err


def test_an_entry_that_comes_too_often_is_named(call: Call, tmp_path: Path) -> None:
    (tmp_path / "garden.org").write_text(GARDEN.replace("0 9 1 * MON", "* * * * *"))
    ending = call(*AT)
    assert ending.code == Exit.OK
    assert (
        "garden.org:3: 'Weed' has more than 1,000 times; only the first are in the calendar\n"
    ) in ending.err
    assert len(ending.events) == 1001


def test_a_file_is_made_and_later_replaced(call: Call, tmp_path: Path) -> None:
    expected = call(*AT).out.encode()
    for at in (("--at", "2026-01-01T00:00:00Z"), AT):
        ending = call(*at, "-o", "garden.ics")
        assert (ending.code, ending.out) == (Exit.OK, "")
    assert (tmp_path / "garden.ics").read_bytes() == expected
    assert sorted(each.name for each in tmp_path.iterdir()) == ["garden.ics", "garden.org"]


def test_a_file_that_is_no_calendar_stays_as_it_is(call: Call, tmp_path: Path) -> None:
    ending = call(*AT, "--output", "garden.org")
    assert ending.code == Exit.FINDINGS
    assert "garden.org: exists and is not a calendar; name another file\n" in ending.err
    assert (tmp_path / "garden.org").read_text() == GARDEN


def test_a_hostile_title_cannot_reach_the_terminal(call: Call, tmp_path: Path) -> None:
    plan = "* \x1b[31mred :workflow:\n:PROPERTIES:\n:SCHEDULE: \x1b[31m\n:END:\n"
    (tmp_path / "garden.org").write_text(plan)
    ending = call(*AT)
    assert "\x1b" not in ending.err + ending.out
    assert "is not armed" in ending.err


def test_a_calendar_of_a_directory_has_its_board_and_its_triggers(
    call: Call, tmp_path: Path
) -> None:
    (tmp_path / "root" / "board" / "tasks").mkdir(parents=True)
    task = "---\nid: {}\ntitle: Report\nstatus: {}\ncron_schedule: '0 9 * * MON'\n---\n"
    (tmp_path / "root" / "board" / "tasks" / "1.md").write_text(task.format(1, "done"))
    (tmp_path / "root" / "board" / "tasks" / "2.md").write_text(task.format(2, "todo"))
    (tmp_path / "root" / ".agentd" / "workflows").mkdir(parents=True)
    trigger = (
        "name: digest\nagent: wren\nsource:\n  type: delay\n  run_at: {}\nprompt_template: x\n"
    )
    (tmp_path / "root" / ".agentd" / "workflows" / "digest.yml").write_text(
        trigger.format("2026-06-20T10:00:00Z")
    )
    (tmp_path / "root" / ".agentd" / "agents").mkdir()
    (tmp_path / "root" / ".agentd" / "agents" / "wren.yml").write_text("name: wren\n")
    ending = call("root", "--at", "2026-06-06", "--tz", "UTC")
    assert (ending.code, ending.err) == (0, "")
    assert ending.out.count("BEGIN:VEVENT") == 3  # nothing stands there twice
    assert ending.out.count("RRULE:FREQ=WEEKLY;BYDAY=MO") == 2
    assert "DTSTART:20260620T100000Z" in ending.out
    assert r"\ntask:1" in ending.out


HANDED = """\
* Back up
SCHEDULED: <2026-04-01 Wed 03:00 ++1d>
:PROPERTIES:
:COMMAND: x
:JITTER: 5m
:END:
* Half of 50%
:PROPERTIES:
:ID: half
:SCHEDULE: 0 9 13 * FRI
:COMMAND: x
:CATCHUP: none
:END:
* Last day
:PROPERTIES:
:SCHEDULE: 0 9 L * *
:COMMAND: x
:END:
* Tokyo 5%
:PROPERTIES:
:SCHEDULE: @weekly
:TZ: Asia/Tokyo
:COMMAND: x
:END:
"""


@pytest.fixture
def hand(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Call:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HORAE_ZONE", "Europe/Berlin")
    (tmp_path / "plan.org").write_text(HANDED)

    def calling(*args: str) -> Ending:
        code = run(export, name="horae export", args=[*args, *AT])
        said = capfdbinary.readouterr()
        return Ending(code, said.out.decode(), said.err.decode())

    return calling


def test_a_crontab_runs_what_it_can_say_and_the_rest_is_named(hand: Call, tmp_path: Path) -> None:
    ending = hand("crontab", "plan.org")
    assert ending.code == Exit.FINDINGS
    assert ending.out.splitlines() == [
        "# Back up",
        f"0 3 * * * horae run --root {tmp_path} 'Back up'",
        "# Half of 50%",
        f"0 9 13 * FRI horae run --root {tmp_path} half",
    ]
    assert "plan.org:14: 'Last day' is left out: the schedule uses L, W or #" in ending.err
    assert "plan.org:19: 'Tokyo 5%' is left out: its time zone is Asia/Tokyo" in ending.err


def test_a_crontab_in_another_zone_than_the_machine_has_a_note(
    hand: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = "these lines are correct only if cron runs in Europe/Berlin; otherwise use --cron-tz"
    monkeypatch.setenv("TZ", "UTC")
    assert note in hand("crontab", "plan.org").err
    assert note not in hand("crontab", "plan.org", "--cron-tz").err
    monkeypatch.setenv("TZ", "Europe/Berlin")
    assert note not in hand("crontab", "plan.org").err


def test_a_file_outside_the_plan_root_is_left_out(hand: Call, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "horae.toml").write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path / "sub")
        ending = hand("crontab", "../plan.org")
    assert ending.out == ""
    assert f"the file is outside the plan root {tmp_path / 'sub'}" in ending.err


def test_a_cron_that_knows_zones_is_told_them(hand: Call) -> None:
    lines = hand("crontab", "plan.org", "--cron-tz", "--program", "/opt/horae").out.splitlines()
    at = lines.index("CRON_TZ=Asia/Tokyo")
    assert lines[at + 2].startswith("0 0 * * 0 /opt/horae run")
    assert lines[at + 2].endswith("'Tokyo 5\\%'")


def test_systemd_gets_a_timer_and_a_service_for_each(hand: Call, tmp_path: Path) -> None:
    ending = hand("systemd", "plan.org", "-o", "units")
    assert ending.code == Exit.OK
    names = sorted(each.name for each in (tmp_path / "units").iterdir())
    assert names[:2] == ["horae-back-up.service", "horae-back-up.timer"]
    assert len(names) == 8
    timer = (tmp_path / "units" / "horae-back-up.timer").read_text()
    assert "OnCalendar=*-*-* 03:00:00 Europe/Berlin\nPersistent=true\n" in timer
    assert "RandomizedDelaySec=300\nFixedRandomDelay=true\n" in timer
    half = (tmp_path / "units" / "horae-half-of-50.timer").read_text()
    assert "OnCalendar=*-*-13 09:00:00 Europe/Berlin\nOnCalendar=Fri *-*-* 09:00:00" in half
    assert "Persistent=false" in half
    service = (tmp_path / "units" / "horae-half-of-50.service").read_text()
    assert f"ExecStart=horae run --root {tmp_path} half\n" in service


def test_a_unit_that_somebody_changed_stays_as_it_is(hand: Call, tmp_path: Path) -> None:
    hand("systemd", "plan.org", "-o", "units")
    unit = tmp_path / "units" / "horae-back-up.timer"
    unit.write_text(unit.read_text() + "# mine\n")
    assert hand("systemd", "plan.org", "-o", "units").code == Exit.CONFLICT
    assert unit.read_text().endswith("# mine\n")
    assert hand("systemd", "plan.org", "-o", "units", "--force").code == Exit.OK


def test_units_are_printed_if_no_directory_is_named(hand: Call) -> None:
    out = hand("systemd", "plan.org").out
    assert out.count("[Timer]") == out.count("[Service]") == 4
    assert "# horae-last-day.timer\n" in out
