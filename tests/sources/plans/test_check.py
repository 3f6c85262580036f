"""What check knows once it is known what a rule means."""

import inspect
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import horae
from horae.extras.drift.check import check_drift
from horae.org.document import read
from horae.org.plan import Diagnostic, Severity
from horae.sources.plans.check import CheckClock, check_plans

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def scheduled(cron: str, *more: str) -> str:
    lines = "".join(f"{line}\n" for line in more)
    return f"* Digest :workflow:\n:PROPERTIES:\n:SCHEDULE: {cron}\n{lines}:END:\n"


def found(
    text: str, *, zone: str = "Europe/Berlin", now: datetime | None = NOW
) -> list[Diagnostic]:
    """Return what is found, but not that a plan of so few lines has no steps."""
    all_of_it = horae.check(text, name="plan.org", zone=zone, now=now)
    return [each for each in all_of_it if each.code != "workflow-empty"]


def test_a_bad_expression_is_named_with_the_column_of_the_bad_part() -> None:
    [finding] = found(scheduled("0 24 * * *"))
    assert str(finding) == ("plan.org:3:14: error cron: cron '0 24 * * *': hour 24 is outside 0-23")


def test_of_several_expressions_the_bad_one_is_named() -> None:
    [finding] = found(scheduled("0 6 * * *; 0 9 * * FRI-MON"))
    assert (finding.line, finding.column, finding.code) == (3, 31, "cron")


def test_an_expression_that_never_comes_is_an_error() -> None:
    [finding] = found(scheduled("0 0 30 2 *"))
    assert finding.code == "cron-never"
    assert finding.severity == "error"


def test_a_last_day_in_the_past_is_reported() -> None:
    [finding] = found(scheduled("0 9 * * *", ":UNTIL: 2020-01-01"))
    assert (finding.code, finding.line, finding.severity) == ("until-past", 4, "warning")
    assert found(scheduled("0 9 * * *", ":UNTIL: 2026-02-01")) == []


@pytest.mark.parametrize(
    ("cron", "is_too_often"),
    [("* * * * * *", True), ("*/30 * * * * *", True), ("* * * * *", False), ("0 0 29 2 *", False)],
)
def test_a_rule_more_frequent_than_the_floor_is_reported(cron: str, is_too_often: bool) -> None:
    assert [each.code == "too-often" for each in found(scheduled(cron))] == [True] * is_too_often


def test_the_floor_is_a_setting() -> None:
    plans = [("plan.org", read(scheduled("*/5 * * * *", ":COMMAND: true")))]
    assert check_plans(plans, CheckClock("UTC", NOW)) == []
    [finding] = check_plans(plans, CheckClock("UTC", NOW, timedelta(minutes=10)))
    assert finding.fix == "lower check.floor if this is intended"
    assert finding.message == "runs every 5 minutes, more often than every 10m"


def test_a_local_time_that_a_clock_change_hits_is_a_note() -> None:
    gap, fold = found(scheduled("30 2 * * *"))
    assert (gap.code, gap.severity) == ("clock-change", "info")
    assert gap.message == (
        "02:30 does not exist on 2026-03-29 in Europe/Berlin: runs at 03:00 instead"
    )
    assert fold.message == (
        "02:30 occurs twice on 2026-10-25 in Europe/Berlin: runs the first time only"
    )


@pytest.mark.parametrize(
    "text",
    [
        scheduled("30 2 * * MON"),
        scheduled("30 2 1 * *"),
        scheduled("0 3 * * *"),
        scheduled("30 * * * *"),
        scheduled("*/5 * * * *"),
        "* Digest :workflow:\nSCHEDULED: <2026-01-05 Mon 02:30 +1w>\n",
        "* Digest :workflow:\nSCHEDULED: <2026-01-01 Thu 02:30 +1h>\n",
        "* Digest :workflow:\nSCHEDULED: <2026-03-29 Sun 03:00>\n",
        "* Digest\nSCHEDULED: <2026-01-01 Thu 02:30 +1d>\n",
    ],
)
def test_a_rule_that_no_clock_change_hits_is_not_mentioned(text: str) -> None:
    assert found(text) == []


def test_a_star_in_the_minute_leaves_the_gap_out_and_doubles_the_fold() -> None:
    messages = [each.message for each in found(scheduled("*/15 2 * * *"))]
    assert messages == [
        "02:00 does not exist on 2026-03-29 in Europe/Berlin: skipped",
        "02:00 occurs twice on 2026-10-25 in Europe/Berlin: runs both times",
    ]


def test_repeaters_meet_clock_changes_too() -> None:
    [gap, _] = found("* Digest :workflow:\nSCHEDULED: <2026-01-01 Thu 02:30 ++1d>\n")
    assert (gap.line, gap.column, gap.code) == (2, 12, "clock-change")


def test_without_a_moment_nothing_is_said_about_the_year_to_come() -> None:
    assert found(scheduled("30 2 * * *"), now=None) == []


def test_the_zone_of_the_entry_counts() -> None:
    assert found(scheduled("30 2 * * *"), zone="UTC") == []
    [gap] = found(scheduled("30 2 * * *", ":TZ: America/New_York"), zone="UTC")
    assert "2026-03-08 in America/New_York" in gap.message


def test_a_zone_that_does_not_exist_is_an_error_where_it_stands() -> None:
    [finding] = found(scheduled("0 6 * * *", ":TZ: Europe/Berln"))
    assert (finding.line, finding.column, finding.code) == (4, 6, "zone")
    assert "did you mean Europe/Berlin?" in finding.message


def test_a_policy_that_cannot_be_read_is_an_error_where_it_stands() -> None:
    [finding] = found(scheduled("0 6 * * *", ":OVERLAP: maybe"))
    assert (finding.line, finding.column, finding.code) == (4, 11, "policy")
    assert finding.message == ":OVERLAP: maybe: write skip, queue or allow"


def test_each_property_that_cannot_be_read_is_an_error() -> None:
    lines = (
        ":TZ: Mars/Base",
        ":RETRY: often",
        ":TIMEOUT: long",
        ":CATCHUP: some",
        ":COMMAND: sh -c 'open",
        ":ENV: 1X",
        ":AFTER: soon",
    )
    told = [(each.line, each.code) for each in found(scheduled("61 6 * * *", *lines))]
    codes = ["cron", "zone", "policy", "policy", "policy", "command", "command", "after"]
    kept = [each for each in told if each[1] != "schedule-both"]
    assert kept == list(enumerate(codes, start=3))


def test_words_that_the_rule_does_not_keep_are_pointed_at_with_the_rule_they_mean() -> None:
    text = "* Send the report :workflow:\n:PROPERTIES:\n:SCHEDULE: 0 9 * * TUE\n:END:\nIt goes out on Mondays.\n"
    [finding] = found(text)
    assert (finding.line, finding.column, finding.code, finding.width) == (5, 13, "drift", 10)
    assert finding.message == "'on Mondays' does not match the schedule: at 09:00 on Tuesdays"
    assert finding.fix == "these words mean 0 9 * * MON"
    assert finding.severity is Severity.INFO
    [finding] = found(text.replace("Send the report", "Weekly report: Mondays"))[:1]
    assert (finding.line, finding.severity) == (1, Severity.WARNING)


def test_the_second_of_two_entries_with_one_title_is_not_armed() -> None:
    [finding] = [each for each in found(scheduled("0 9 * * *") * 2) if each.code == "name-twice"]
    first = scheduled("0 9 * * *")
    assert finding.line == first.count("\n") + 1
    assert "has the same name" in finding.message
    assert finding.fix == "give one of the two an :ID:"
    assert [each for each in found(first) if each.code == "name-twice"] == []


def test_an_unreadable_entry_does_not_share_the_name_of_an_armed_one() -> None:
    text = scheduled("0 25 * * *") + scheduled("0 9 * * *")
    assert [(each.line, each.code) for each in found(text)] == [(1, "name-twice"), (3, "cron")]


def test_a_keyword_of_a_file_sets_no_zone() -> None:
    [finding] = found("# Jobs\n#+TZ: Europe/Paris\n" + scheduled("0 9 * * *"))
    assert (finding.line, finding.column, finding.code) == (2, 1, "keyword-zone")
    assert finding.message.startswith("#+TZ: is ignored")
    assert "`zone` in horae.toml" in (finding.fix or "")
    assert found("#+TITLE: Time zone\n" + scheduled("0 9 * * *")) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("* wren :agent:\nSCHEDULED: <2026-06-06 Sat>\nYou sing.\n", 2),
        ("* wren :agent:\n:PROPERTIES:\n:SCHEDULE: 0 9 * * *\n:END:\nYou sing.\n", 3),
    ],
)
def test_the_definition_of_an_agent_has_no_schedule(text: str, line: int) -> None:
    [finding] = found(text)
    assert (finding.line, finding.column, finding.code) == (line, 12, "schedule-idle")


def test_a_command_cannot_wait_for_approval() -> None:
    [finding] = found(headline(":SCHEDULE: 0 9 * * *", ":COMMAND: true", ":APPROVE: yes"))
    assert (finding.line, finding.code) == (5, "property-unknown")
    assert "horae trigger add" in (finding.fix or "")


@pytest.mark.parametrize(
    "text",
    [
        scheduled("0 9 * * MON").replace("Digest", "Digest on Mondays"),
        "* Daily digest :workflow:\nSCHEDULED: <2026-06-06 Sat 06:00 +1d>\n",
        "* Daily digest :workflow:\n",
        "* Daily digest\nSCHEDULED: <2026-06-06 Sat 06:00 +1w>\n",
        scheduled("0 9 * * MON; 0 9 * * THU").replace("Digest", "Digest on Mondays and Thursdays"),
    ],
)
def test_words_that_agree_or_say_nothing_are_not_mentioned(text: str) -> None:
    assert [each for each in found(text) if each.code == "drift"] == []


def test_every_code_is_in_the_reference_with_its_severity() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "check.md").read_text()
    section = page.partition("## Time\n")[2].partition("\n## Workflows")[0]
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| ([a-z, ]+) \|", section, re.MULTILINE))
    files = [inspect.getfile(check) for check in (check_plans, check_drift)]
    source = "".join(Path(file).read_text() for file in files)
    found = re.findall(r"\"([a-z-]+)\", Severity\.([A-Z]+)", source)
    # The keys are shown below; what needs a machine is in tests/cli/test_ready.py.
    of_keys = {"property-typo": "error, warning", "property-unknown": "warning"}
    of_machines = {
        "after-unknown": "warning",
        "program": "warning",
        "secret": "warning",
        "agent-unready": "error, warning",
        "else-unknown": "warning",
        "no-plan": "warning",
    }
    told = {code: severity.lower() for code, severity in found} | {"drift": "warning, info"}
    assert rows == {**of_keys, **of_machines, **told}


# Properties that are not read, and were meant to be


def headline(*lines: str, tags: str = "") -> str:
    drawer = "".join(f"{line}\n" for line in lines)
    return f"* Backup{tags}\n:PROPERTIES:\n{drawer}:END:\n"


def named(text: str) -> list[tuple[int, str, str, str]]:
    """Return line, code and key of each finding, and what to write instead."""
    return [
        (each.line, each.code, each.message.split()[0], each.fix or "")
        for each in found(text)
        if each.code.startswith("property-")
    ]


@pytest.mark.parametrize(
    ("written", "meant", "severity"),
    [
        ("COMAND", "COMMAND", "error"),
        ("TIMEZONE", "TZ", "error"),
        ("TIMOUT", "TIMEOUT", "warning"),
        ("CATCH-UP", "CATCHUP", "warning"),
        ("RETRIES", "RETRY", "warning"),
        ("PAUSE_AFTER", "PAUSE-AFTER", "warning"),
        ("OVERLAPS", "OVERLAP", "warning"),
    ],
)
def test_a_misspelt_property_of_what_fires_is_named_with_the_one_that_is_meant(
    written: str, meant: str, severity: str
) -> None:
    work = () if meant == "COMMAND" else (":COMMAND: true",)
    [finding] = found(headline(":SCHEDULE: 0 3 * * *", f":{written}: 3", *work))
    assert (finding.line, finding.column, finding.code) == (4, 1, "property-typo")
    assert finding.message == f":{written}: is ignored"
    assert finding.fix == f"did you mean :{meant}:?"
    assert finding.severity == severity


def test_a_misspelt_schedule_is_an_error_though_nothing_fires() -> None:
    [finding] = found(headline(":SHEDULE: 0 3 * * *"))
    assert (finding.code, finding.severity) == ("property-typo", "error")


@pytest.mark.parametrize("word", ["EXDATE", "HOLIDAYS", "DEPENDS", "MAILTO", "USER", "ON_FAILURE"])
def test_a_word_that_only_a_scheduler_knows_is_named_with_what_to_do(word: str) -> None:
    [finding] = found(headline(":COMMAND: true", f":{word}: x"))
    assert (finding.line, finding.code, finding.severity) == (4, "property-unknown", "warning")
    assert finding.message == f":{word}: is ignored"
    assert finding.fix


@pytest.mark.parametrize(
    "free", ["EFFORT", "CATEGORY", "COMMENT", "COST", "CUSTOM_ID", "STYLE", "CREATED", "DIR", "URL"]
)
def test_other_properties_are_free_as_in_org(free: str) -> None:
    assert found(headline(":COMMAND: true", f":{free}: x")) == []


def test_a_headline_that_nothing_fires_may_say_what_it_likes() -> None:
    assert found(headline(":USER: x", ":TIMOUT: 3", ":CRON: daily")) == []
    assert named(headline(":CRON: 0 3 * * *", ":CMD: true")) == [
        (3, "property-typo", ":CRON:", "did you mean :SCHEDULE:?"),
        (4, "property-typo", ":CMD:", "did you mean :COMMAND:?"),
    ]


def test_an_agent_has_properties_of_its_own() -> None:
    assert found(headline(":COMMAND: true", ":USER: x", tags=" :agent:")) == []


def test_a_schedule_with_nothing_to_run_is_found() -> None:
    [finding] = found(headline(":SCHEDULE: 0 3 * * *"))
    assert (finding.line, finding.code, finding.severity) == (3, "schedule-idle", "warning")


@pytest.mark.parametrize(
    ("command", "column", "word"),
    [
        ("make all && ./install", 20, "&&"),
        ("dump | gzip", 16, "|"),
        ("dump > out", 16, ">"),
        ("dump 2>&1", 16, "2>&1"),
        ("rm -f /tmp/*.log", 17, "/tmp/*.log"),
        ("cd /srv; make", 14, "/srv;"),
        ("tar -cf $HOME/x.tar .", 19, "$HOME/x.tar"),
        ("LANG=C sort x", 11, "LANG=C"),
    ],
)
def test_what_only_a_shell_understands_is_found_with_the_call_of_a_shell(
    command: str, column: int, word: str
) -> None:
    [finding] = found(headline(f":COMMAND: {command}"))
    assert (finding.line, finding.column, finding.code) == (3, column, "shell")
    assert finding.message.startswith(f"{word!r} is passed on unchanged")
    assert finding.fix == f"to use a shell, call it explicitly: sh -c '{command}'"
    assert found(headline(f":COMMAND: {finding.fix.partition(': ')[2]}")) == []


@pytest.mark.parametrize(
    "command",
    [
        "find . -name *.log -exec rm {} ;",
        "curl https://example.org/?a=1&b=2",
        "grep -E 'a|b' notes.txt",
        "pip install horae >=1.0",
        "rsync --exclude=*.o src dst",
        "git log --author <a@example.org>",
    ],
)
def test_what_a_program_is_meant_to_be_given_is_no_shell_syntax(command: str) -> None:
    assert found(headline(f":COMMAND: {command}")) == []
