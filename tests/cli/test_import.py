"""`horae import`, used as a person or a program would."""

import io
import json
import sys
from pathlib import Path

import pytest

import horae
from calling import Call
from horae.errors import Exit
from horae.sources.plans.arming import entries

EXAMPLES = Path(__file__).parents[2] / "examples" / "adopt"
AT = ("--at", "2026-11-14T12:00:00Z")
TAB = "# Back up\n0 5 * * 1 /usr/bin/backup\n*/5 * * * * poll | log\n"


def test_headlines_go_to_stdout_and_the_next_times_to_stderr(call: Call, tmp_path: Path) -> None:
    (tmp_path / "tab").write_text(TAB)
    ending = call("import", "crontab", "tab", *AT)
    assert ending.code == Exit.OK
    note, *times = ending.err.splitlines()
    assert note.startswith("tab:2:11: note: the command runs in the plan's directory")
    assert times == [
        (
            "tab:2: 'Back up': next 2026-11-16 Mon 05:00, 2026-11-23 Mon 05:00, 2026-11-30 Mon 05:00 "
            "(Europe/Berlin)"
        ),
        (
            "tab:3: 'poll | log': next 2026-11-14 Sat 13:05, 2026-11-14 Sat 13:10, "
            "2026-11-14 Sat 13:15 (Europe/Berlin)"
        ),
    ]
    found = entries(ending.out, zone="UTC")
    assert [each.title for each in found] == ["Back up", "poll | log"]
    assert {each.zone for each in found} == {"Europe/Berlin"}
    assert "At 05:00 on Mondays (Europe/Berlin)." in ending.out
    assert [each for each in horae.check(ending.out) if each.severity != "info"] == []


def test_what_is_not_taken_is_named_and_the_exit_code_says_so(call: Call, tmp_path: Path) -> None:
    (tmp_path / "tab").write_text(TAB + "@reboot x\n0 0 30 2 * y\n")
    ending = call("import", "crontab", "tab", *AT)
    assert ending.code == Exit.FINDINGS
    assert "tab:4:1: not imported: @reboot is not a time; " in ending.err
    assert "tab:5:1: not imported: 'y': cron '0 0 30 2 *' matches no date" in ending.err
    assert len(entries(ending.out)) == 2


def test_a_dash_reads_standard_input(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TAB.encode())))
    ending = call("import", "crontab", "-", *AT)
    assert ending.code == Exit.OK
    assert "-:2: 'Back up'" in ending.err


def test_a_plan_is_appended_to_and_never_overwritten(call: Call, tmp_path: Path) -> None:
    (tmp_path / "tab").write_text(TAB)
    old = "* Back up\nMine, without a newline"
    (tmp_path / "plan.org").write_text(old)
    ending = call("import", "crontab", "tab", "--into", "plan.org", *AT)
    assert (ending.code, ending.out) == (Exit.OK, "")
    new = (tmp_path / "plan.org").read_text()
    assert new.startswith(old + "\n* Back up (2)\n")
    assert "wrote 2 headlines to plan.org" in ending.err


def test_the_same_import_again_adds_nothing(call: Call, tmp_path: Path) -> None:
    (tmp_path / "tab").write_text(TAB)
    call("import", "crontab", "tab", "--into", "new.org", *AT)
    was = (tmp_path / "new.org").read_bytes()
    ending = call("import", "crontab", "tab", "--into", "new.org", *AT)
    assert ending.code == Exit.FINDINGS
    assert "not imported: new.org already has this job as 'Back up'" in ending.err
    assert (tmp_path / "new.org").read_bytes() == was


def test_only_a_plan_is_appended_to(call: Call, tmp_path: Path) -> None:
    (tmp_path / "tab").write_text(TAB)
    ending = call("import", "crontab", "tab", "--into", "tab", *AT)
    assert ending.code == Exit.FINDINGS
    assert "name a file that ends in .org" in ending.err
    assert (tmp_path / "tab").read_text() == TAB


def test_tasks_come_back_from_their_next_moment_on(call: Call, tmp_path: Path) -> None:
    (tmp_path / "tab").write_text(TAB)
    ending = call("import", "crontab", "tab", "--tasks", "board/tasks", *AT)
    assert ending.code == Exit.OK
    task = (tmp_path / "board" / "tasks" / "001-back-up.md").read_text()
    for line in (
        "cron_schedule: '0 5 * * 1'",
        "timezone: Europe/Berlin",
        "status: done",
        "/usr/bin/backup",
    ):
        assert line in task.replace('"', "'")
    shown = call("task", "next", "--at", "2026-11-14T12:00:00Z", "-n", "1")
    assert shown.code == Exit.OK
    assert "2026-11-1" in shown.out


def test_what_no_task_can_say_is_named(call: Call) -> None:
    ending = call("import", "systemd", str(EXAMPLES / "report.timer"), "--tasks", "board/tasks")
    assert ending.code == Exit.FINDINGS
    assert "a task has one rule or one time" in ending.err


def test_a_timer_finds_its_service_beside_it(call: Call) -> None:
    ending = call("import", "systemd", str(EXAMPLES / "report.timer"), *AT)
    assert ending.code == Exit.FINDINGS  # OnBootSec= is not taken
    assert "OnBootSec=15min counts from an event" in ending.err
    assert ":SCHEDULE: 0 9 * * MON; 0 18 L * *\n" in ending.out
    assert "env FORMAT=pdf sh -c 'cd /srv/report && " in ending.out
    assert ":CATCHUP:  latest\n:JITTER:   5m\n" in ending.out


def test_a_user_of_this_machine_is_no_command(call: Call, tmp_path: Path) -> None:
    (tmp_path / "tab").write_text("17 * * * * root cd / && run-parts /etc/cron.hourly\n")
    ending = call("import", "crontab", "tab", *AT)
    assert (ending.code, ending.out) == (Exit.FINDINGS, "")
    assert "tab:1:12: not imported: 'root' is a user name" in ending.err
    assert call("import", "crontab", "--system", "tab", *AT).code == Exit.OK


def test_a_timer_cannot_name_a_file_elsewhere(call: Call, tmp_path: Path) -> None:
    (tmp_path / "x.timer").write_text("[Timer]\nOnCalendar=daily\nUnit=../secret\n")
    (tmp_path.parent / "secret").write_text("[Service]\nExecStart=/bin/secret\n")
    ending = call("import", "systemd", "x.timer", *AT)
    assert "/bin/secret" not in ending.out
    assert "systemctl start ../secret" in ending.out


def test_a_workflow_becomes_a_workflow(call: Call) -> None:
    ending = call("import", "github-actions", str(EXAMPLES / "nightly.yml"), *AT)
    assert ending.code == Exit.OK
    world = horae.tangle(ending.out)["worlds"][0]
    assert (
        world["components"][0]["src"] == "set -e\n# job test\n(\nmake test\n)\n(\nmake report\n)\n"
    )
    assert world["schedule"] == {"cron": "30 3 * * 1-5"}


def test_a_program_is_read_and_not_run(call: Call) -> None:
    ending = call("import", "apscheduler", str(EXAMPLES / "jobs.py"), *AT)
    assert ending.code == Exit.OK
    assert [each.title for each in entries(ending.out)] == ["poll", "report"]
    assert ending.err.count(": next 20") == 2


def test_json_has_every_job_with_its_moments(call: Call, tmp_path: Path) -> None:
    (tmp_path / "tab").write_text(TAB + "@reboot x\n")
    ending = call("import", "crontab", "tab", "--json", *AT)
    data = json.loads(ending.out)
    assert [(each["title"], each["taken"], len(each["fires"])) for each in data["jobs"]] == [
        ("Back up", True, 3),
        ("poll | log", True, 3),
    ]
    assert data["jobs"][0]["fires"][0] == "2026-11-16T04:00:00Z"
    assert data["remarks"][0]["line"] == 4


def test_several_files_are_one_plan_and_one_that_is_missing_stops_no_other(
    call: Call, tmp_path: Path
) -> None:
    (tmp_path / "tab").write_text(TAB)
    ending = call("import", "crontab", "nowhere", "tab", *AT)
    assert ending.code == Exit.NOT_FOUND
    assert "nowhere: does not exist" in ending.err
    assert len(entries(ending.out)) == 2


@pytest.mark.parametrize("kind", ["crontab", "systemd", "github-actions", "apscheduler"])
@pytest.mark.parametrize(
    "data", [b"", b"\0" * 100, b"\xff\xfe0 1 * * * x", b"\x1b[2J\n", b"x" * 100_000, b"\r\n" * 9]
)
def test_hostile_bytes_are_refused_in_one_line_each(
    call: Call, tmp_path: Path, kind: str, data: bytes
) -> None:
    (tmp_path / "file").write_bytes(data)
    ending = call("import", kind, "file", *AT)
    assert ending.code in {Exit.OK, Exit.FINDINGS}
    assert ending.out == ""
    assert "\x1b" not in ending.err
    assert "bug" not in ending.err


def test_a_file_that_is_too_large_is_not_read(call: Call, tmp_path: Path) -> None:
    with (tmp_path / "tab").open("wb") as file:
        file.truncate(17 * 2**20)
    ending = call("import", "crontab", "tab")
    assert ending.code == Exit.FINDINGS
    assert "bytes" in ending.err


def test_a_hostile_command_stays_inside_its_headline(call: Call, tmp_path: Path) -> None:
    (tmp_path / "tab").write_text("# :END: x\n0 1 * * * echo ':END:' \\* * '%* Evil :workflow:%\n")
    ending = call("import", "crontab", "tab", *AT)
    assert len(entries(ending.out)) <= 1


def test_two_places_are_a_question(call: Call, tmp_path: Path) -> None:
    (tmp_path / "tab").write_text(TAB)
    ending = call("import", "crontab", "tab", "--into", "a.org", "--tasks", "b")
    assert ending.code == Exit.USAGE


def test_what_was_taken_over_runs(call: Call, tmp_path: Path) -> None:
    (tmp_path / "tab").write_text("# Count\n0 1 * * * sort -r | tr a-z A-Z > out%a%b%\n")
    (tmp_path / "home").mkdir()
    call("import", "crontab", "tab", "--into", "plan.org", *AT)
    plan = tmp_path / "plan.org"
    plan.write_text(plan.read_text().replace("cd && ", f"cd {tmp_path}/home && "))
    ending = call("run", "Count", "--json")
    assert ending.code == Exit.OK, ending.err
    assert (tmp_path / "home" / "out").read_text() == "B\nA\n"


def test_a_file_without_jobs_is_said(call: Call, tmp_path: Path) -> None:
    (tmp_path / "tab").write_text("")
    ending = call("import", "crontab", "tab")
    assert (ending.code, ending.out, ending.err) == (Exit.OK, "", "horae: no jobs in tab\n")
