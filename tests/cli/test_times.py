"""`horae next`, `agenda`, `due` and `explain`: when things come, and why."""

from datetime import datetime, timedelta
from heapq import merge
from itertools import islice
from pathlib import Path

import pytest

from calling import Call
from core.world import story
from horae.core.engine import Engine
from horae.core.entry import Entry, is_net, key_time
from horae.core.project import project
from horae.sources.board.source import BoardSource
from horae.sources.board.tasks import Board
from horae.sources.plans.source import OrgSource
from horae.store.sqlite import SqliteLedger
from horae.testing import ManualClock, ScriptedRunner

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
    rows = call("next", "plan.org", "-n", "4", "--at", "2026-06-06 05:10", "--json").data
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
    assert call(*asked, "2", "--json").data == [
        {"at": "2026-03-30T09:00:00+02:00", "zone": "Europe/Berlin"},
        {"at": "2026-04-06T09:00:00+02:00", "zone": "Europe/Berlin"},
    ]
    assert call("next", "--cron", "@daily", "--at", "2026-01-01", "-n", "1", "--json").data == [
        {"at": "2026-01-01T00:00:00Z", "zone": "UTC"}
    ]


def test_a_phrase_with_minutes_alone_is_no_line_of_a_file(call: Call) -> None:
    assert "the words mean 15 * * * *\n" in call("explain", "hourly at :15").out


def test_a_bad_expression_is_shown_with_a_caret(call: Call) -> None:
    ending = call("explain", "0 24 * * *")
    assert (ending.code, ending.out) == (2, "")
    assert ending.err.splitlines() == [
        "horae: cron '0 24 * * *': hour 24 is outside 0-23",
        "0 24 * * *",
        "  ^^",
    ]
    assert call("next", "--cron", "0 24 * * *").err == ending.err


def test_a_schedule_in_words_is_shown_with_its_rule_and_its_next_times(
    call: Call, tmp_path: Path
) -> None:
    plan = "* Agenda\n:PROPERTIES:\n:SCHEDULE: {}\n:COMMAND: true\n:END:\n"
    path = tmp_path / "plan.org"
    path.write_text(plan.format("every other Friday at 17:30"))
    now = ("--at", "2026-06-01T00:00:00Z", "--tz", "UTC")
    counted = "counted from 2026-06-05 Fri 17:30 if an engine reads the entry now"
    assert counted in call("next", str(path), *now).err
    assert f"note: {counted}" in call("explain", f"{path}:1", *now).out
    rule = "<2026-06-05 Fri 17:30 ++2w>"
    times = "2026-06-05 Fri 17:30, 2026-06-19 Fri 17:30, 2026-07-03 Fri 17:30 UTC"
    found = call("check", str(path), *now).out.replace("\n", " ")
    assert f"note phrase-rule: the words mean {rule}: {times}" in found
    assert f"→ {counted}; :FROM: sets the first day" in found
    path.write_text(plan.format("weekdays at 9"))
    found = call("check", str(path), *now).out
    assert f"{path}:3:12: note phrase-rule: the words mean 0 9 * * MON-FRI: " in found


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
    rows = call("due", "plan.org", "--at", "2026-06-06 05:10", "--days", "1", "--json").data
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
    assert reasons["Rest"] == "cron '0 0 30 2 *' matches no date"
    assert reasons["Old"] == "the state is DONE"


def test_a_single_moment_in_the_past_is_due(call: Call, tmp_path: Path) -> None:
    (tmp_path / "once.org").write_text("* Launch :workflow:\nSCHEDULED: <2026-06-06 Sat 09:00>\n")
    [row] = call("due", "once.org", "--at", "2026-06-06 10:00", "--json").data
    assert (row["standing"], row["at"]) == ("due", "2026-06-06T09:00:00+02:00")


def test_explain_says_that_an_alert_has_no_other_schedule(call: Call, tmp_path: Path) -> None:
    drawer = ":PROPERTIES:\n:COMMAND: true\n:SCHEDULE: 0 3 * * *\n:AFTER: failed\n:END:\n"
    (tmp_path / "alert.org").write_text(f"* Tell\n{drawer}")
    said = call("explain", "alert.org:1", "--table").out.splitlines()
    assert said[1] == "the rule is :AFTER: failed; :SCHEDULE: is ignored"
    (tmp_path / "alert.org").write_text(f"* Tell\nSCHEDULED: <2026-06-01 Mon>\n{drawer}")
    said = call("explain", "alert.org:1", "--table").out.splitlines()
    assert said[1] == "the rule is :AFTER: failed; :SCHEDULE: and SCHEDULED are ignored"


def test_explain_says_which_rule_won_and_what_clock_changes_do(call: Call) -> None:
    ending = call("explain", "plan.org:8", "--table", "--at", "2026-11-15")
    lines = ending.out.splitlines()
    assert lines[0] == "Night job  plan.org:7"
    assert lines[1] == (
        "the rule is :SCHEDULE: 30 2 * * *; it overrides SCHEDULED: <2026-06-01 Mon 09:00 ++1w>"
    )
    assert lines[2] == "at 02:30 every day (America/New_York)"
    assert lines[3] == "  2026-11-15 Sun 02:30 America/New_York"
    assert lines[8] == "policy: catch-up latest, overlap skip"
    assert lines[9] == (
        "note: 02:30 does not exist on 2027-03-14 in America/New_York: runs at 03:00 instead"
    )


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        (":ID: d", "twice.org:1 has the same :ID: d; change one of them"),
        (":TIMEOUT: 1m", "twice.org:1 has the same name; give one of the two an :ID:"),
    ],
)
def test_explain_says_that_another_has_the_same_name(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    one = f"* Twin :workflow:\n:PROPERTIES:\n{own}\n:SCHEDULE: 0 5 * * *\n:END:\n"
    (tmp_path / "twice.org").write_text(one * 2)
    assert "05:00 Europe" in call("explain", "twice.org:3", "--table").out
    _, rule, why = call("explain", "twice.org:8", "--table").out.splitlines()
    assert (rule, why) == ("the rule is :SCHEDULE: 0 5 * * *", f"not armed: {reason}")


def test_explain_says_why_a_workflow_is_not_armed(call: Call) -> None:
    assert call("explain", "plan.org:13", "--json").data["reason"] == (
        "cron '0 0 30 2 *' matches no date"
    )
    assert call("explain", "plan.org:17", "--json").data["reason"] == "the state is DONE"
    by_hand = call("explain", "plan.org:19", "--table").out.splitlines()
    assert by_hand[1:] == [
        "there is neither a :SCHEDULE: property nor SCHEDULED",
        "on request",
        "policy: overlap skip",
    ]


@pytest.mark.parametrize(
    "when",
    [
        ":SCHEDULE: 30 2 8-14 * *",
        ":SCHEDULE: 0 9 * * MON; 30 18 1,15 * 5",
        ":SCHEDULE: */7 8-18/2 L 2,5 *",
        "<2026-06-06 Sat 02:30 ++2w>",
        "<2026-01-31 Sat 06:00 +1m>",
        "<2026-06-06 Sat .+3d>",
        "<2026-06-06 Sat 06:00 ++1h>",
    ],
)
def test_check_is_silent_about_what_explain_prints(call: Call, tmp_path: Path, when: str) -> None:
    stamp = f"SCHEDULED: {when}\n" if when.startswith("<") else ""
    cron = "" if stamp else f"{when}\n"
    text = f"* Job\n{stamp}:PROPERTIES:\n{cron}:COMMAND: true\n:END:\n"
    (tmp_path / "job.org").write_text(text)
    said = call("explain", "job.org:1").out
    (tmp_path / "job.org").write_text(text + said)
    assert said.startswith("Job  job.org:1\n")
    found = call("check", "job.org", "--json").data
    assert [each for each in found if each["severity"] != "info"] == []


def test_explain_reads_a_stamp(call: Call) -> None:
    data = call("explain", "<2026-01-31 Sat 06:00 +1m>", "--at", "2026-02-01", "--json").data
    assert data["next"][:2] == ["2026-03-03T06:00:00Z", "2026-04-03T06:00:00Z"]
    assert data["words"].startswith("every month at 06:00, starting 2026-01-31 Sat 06:00")


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["explain", "gone.org:3"], 4, "gone.org: does not exist"),
        (
            ["next", "none"],
            4,
            "none: there is no such file or directory; `horae init none` creates",
        ),
        (["check", "none"], 4, "none: there is no such file or directory; `horae init none` creat"),
        (["explain", "<2026-6-6>"], 2, "is not a timestamp; write it like"),
        (["next", "--tz", "Europe/Berln"], 2, "did you mean Europe/Berlin?"),
        (["next", "--cron", "@daily", "plan.org"], 2, "--cron cannot be used with files."),
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
    assert (
        len(call("next", "--cron", "* * * * * *", "-n", "3", "--at", "2026-01-01", "--json").data)
        == 3
    )


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
    [row] = call("next", named, "-n", "1", "--at", "2026-06-05T00:00:00Z", "--json").data
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
    assert (
        call("next", "plan.org", "-n", "1", "--at", "2026-06-05", "--json").data[0]["zone"] == "UTC"
    )


# A plan root has more than plans


TASKS = {
    1: "title: Report\nstatus: todo\ncron_schedule: '0 9 * * MON'\n",
    2: "title: Water\nstatus: done\ncron_schedule: '*/10 6 * * *'\ntimezone: Europe/Berlin\n"
    "cron_last_run: '2026-06-06T02:00:00Z'\n",
    3: "title: Sow\nstatus: todo\nscheduled_for: '2026-06-08T09:00:00+02:00'\n",
    4: "title: Reap\nstatus: todo\nscheduled_for: '2026-06-01T09:00:00Z'\n",
    5: "title: Aged\nstatus: archived\ncron_schedule: '0 9 * * *'\n",
    6: "title: Owed\nstatus: done\ncron_schedule: '0 9 * * MON'\ncron_last_run: '2026-05-31T00:00:00Z'\n",
}
TRIGGER = """\
name: digest
agent: reporter
source:
  type: cron
  expression: "0 8 * * *"
prompt_template: Do it
"""
CREW = "* wren\n:PROPERTIES:\n:DEF: wren.org\n:INTERVAL: 3600000\n:END:\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A plan root with a board, a trigger and a crew."""
    (tmp_path / "board" / "tasks").mkdir(parents=True)
    for number, fields in TASKS.items():
        text = f"---\nid: {number}\n{fields}---\n"
        (tmp_path / "board" / "tasks" / f"{number}.md").write_text(text)
    (tmp_path / ".agentd" / "workflows").mkdir(parents=True)
    (tmp_path / ".agentd" / "workflows" / "digest.yml").write_text(TRIGGER)
    (tmp_path / ".agentd" / "agents").mkdir()
    (tmp_path / ".agentd" / "agents" / "reporter.yml").write_text("name: reporter\n")
    (tmp_path / "crew.org").write_text(CREW)
    (tmp_path / "horae.toml").write_text('[crew]\ndef = "crew.org"\n')
    return tmp_path


AT = ("--at", "2026-06-06T05:10:00+02:00")


@pytest.mark.usefixtures("root")
def test_of_a_directory_the_next_moments_are_also_those_of_board_triggers_and_crew(
    call: Call,
) -> None:
    rows = call("next", "-n", "300", *AT, "--json").data
    found = {(row["title"], row["file"]): row for row in reversed(rows)}
    report = found["Report", "board/tasks/1.md"]
    assert (report["at"], report["line"], report["zone"]) == ("2026-06-08T09:00:00Z", 5, "UTC")
    assert report["key"] == "cron:2026-06-08T09:00:00Z"
    assert found["digest", ".agentd/workflows/digest.yml"]["at"] == "2026-06-06T08:00:00Z"
    assert [row["at"] for row in rows if row["title"] == "Water"][:2] == [
        "2026-06-06T06:00:00+02:00",
        "2026-06-06T06:10:00+02:00",
    ]
    ticks = [row for row in rows if row["title"] == "wren"]
    assert [(row["at"], row["estimate"]) for row in ticks] == [("2026-06-06T05:11:00+02:00", True)]
    # What waits for a time fires nothing, and nothing stands there twice.
    assert not {"Sow", "Reap", "Aged"} & {row["title"] for row in rows}
    tasks = [(row["at"], row["file"]) for row in rows if row["file"].startswith("board/")]
    assert len({*tasks}) == len(tasks) > 0


@pytest.mark.usefixtures("root")
def test_a_file_that_is_named_stands_for_itself_alone(call: Call) -> None:
    rows = call("next", "plan.org", "-n", "50", *AT, "--json").data
    assert {row["file"] for row in rows} == {"plan.org"}


def test_a_root_that_is_elsewhere_is_told_as_it_was_named(
    call: Call, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root.parent)
    for name in (root.name, f"./{root.name}/"):
        rows = call("next", name, "-n", "300", *AT, "--json").data
        assert {f"{root.name}/board/tasks/1.md", f"{root.name}/crew.org"} <= {
            row["file"] for row in rows
        }


@pytest.mark.usefixtures("root")
def test_the_agenda_of_a_directory_has_what_tasks_wait_for(call: Call) -> None:
    rows = call("agenda", "--days", "3", "--json", *AT).data
    found = {(row["title"], row["what"], row["count"], row["at"]) for row in rows}
    assert ("Sow", "scheduled", 1, "2026-06-08T09:00:00+02:00") in found
    assert ("Report", "fires", 1, "2026-06-08T11:00:00+02:00") in found
    assert ("Water", "fires", 6, "2026-06-06T06:00:00+02:00") in found
    assert ("wren", "estimate", 19, "2026-06-06T05:11:00+02:00") in found
    assert not {title for title, *_ in found} & {"Reap", "Aged"}


@pytest.mark.usefixtures("root")
def test_what_is_due_in_a_directory_is_told_with_the_reason(call: Call) -> None:
    rows = call("due", "--json", *AT).data
    found = {(row["title"], row["standing"]): row["reason"] for row in rows}
    assert found["Reap", "due"] == "the SCHEDULED time was reached"
    assert found["Sow", "upcoming"] == "SCHEDULED"
    assert found["Owed", "due"] == "the scheduled time was reached"
    assert found["Report", "upcoming"] == "next scheduled time"
    assert found["wren", "upcoming"] == "an estimate, as if the engine started now"
    assert found["Aged", "not armed"] == "the task is archived"


def test_a_directory_with_nothing_but_a_board_is_enough(call: Call, root: Path) -> None:
    for path in root.glob("*.org"):
        path.unlink()
    (root / "horae.toml").unlink()
    ending = call("next", "-n", "2", "--table", *AT)
    assert (ending.code, ending.err) == (0, "")
    assert ending.out.startswith("2026-06-06 Sat 06:00 Europe/Berlin  Water  board/tasks/2.md:5\n")


def test_one_task_or_trigger_that_cannot_be_read_stops_nothing(call: Call, root: Path) -> None:
    (root / "board" / "tasks" / "9.md").write_text("---\nid: 9\n")
    (root / ".agentd" / "workflows" / "odd.yml").write_text("name: [\n")
    late = TRIGGER.replace("digest", "late").replace("0 8 * * *", "0 25 * * *")
    (root / ".agentd" / "workflows" / "late.yml").write_text(late)
    ending = call("next", "-n", "300", *AT, "--json")
    assert ending.code != 0
    assert "9.md" in ending.err
    assert "odd.yml" in ending.err
    assert {"Report", "Sync", "digest"} <= {row["title"] for row in ending.data}
    rows = call("due", "--json", *AT).data
    assert [row["title"] for row in rows if "hour 25" in row["reason"]] == ["late"]


def test_the_engine_keeps_the_moments_that_are_shown(call: Call, root: Path) -> None:
    now = datetime.fromisoformat("2026-06-06T05:10:00+02:00")
    (root / "horae.toml").unlink()  # when a crew ticks only its engine knows
    (root / ".agentd" / "workflows" / "digest.yml").unlink()

    kept: list[tuple[str, str, str]] = []

    @story
    async def look() -> None:
        clock = ManualClock(now)
        ledger = await SqliteLedger.in_memory()
        engine = Engine(
            clock=clock,
            ledger=ledger,
            runner=ScriptedRunner(clock=clock),
            sources=[
                OrgSource(root, zone_name="Europe/Berlin"),
                BoardSource(Board.below(root), now=clock.now),
            ],
        )
        for name in ("org", "board"):
            await engine.rescan(name)
        entries = [each.item for each in await ledger.entries()]
        await ledger.close()
        streams = [
            [(each.at, item.origin.file, item.origin.line, each.key) for each in moments]
            for item in entries
            if isinstance(item, Entry) and not is_net(item)
            for moments in [islice(project(item, now, now + timedelta(days=900)), 100)]
        ]
        first = islice(merge(*streams), 100)
        kept.extend((key_time(at), file, key) for at, file, _, key in first)

    look()
    rows = call("next", "-n", "100", *AT, "--json").data
    shown = [(key_time(datetime.fromisoformat(row["at"])), row["file"], row["key"]) for row in rows]
    assert len(shown) == 100
    assert shown == kept


def test_explain_stays_at_the_headline_of_its_line(call: Call) -> None:
    drawer = ":PROPERTIES:\n:SCHEDULE: 0 8 * * *\n"
    Path("plan.org").write_text(f"* C\n{drawer}:COMMAND: true\n:END:\n* D\n{drawer}:END:\n")
    assert call("explain", "plan.org:3:4").out.startswith("C  plan.org:1\n")
    ended = call("explain", "plan.org:8")
    assert (ended.code, "'D' is not an entry; `horae why D` says why" in ended.err) == (4, True)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("0 9 * * * Europe/Berlin", 2, "'Europe/Berlin' is a time zone; use --tz Europe/Berlin"),
        ("Europe/Berlin", 2, "'Europe/Berlin' is a time zone; use --tz Europe/Berlin"),
        ("nowhere.org", 4, "nowhere.org: does not exist"),
        ("Mon *-*-* 09:00", 2, "is a calendar expression of systemd"),
        ("5 minutes", 2, "write '*/5 * * * *'"),
        ("weekdays", 2, "at what time? add one, such as"),
        ("./", 2, "./ is a directory; name a line of a plan, such as plan.org:7"),
        ("2h", 2, "write '0 */2 * * *'"),
    ],
)
def test_what_is_no_schedule_is_called_what_it_is(
    call: Call, text: str, code: int, said: str
) -> None:
    ending = call("explain", text)
    assert (ending.code, said in ending.err) == (code, True)


def test_explain_reads_an_interval_in_words(call: Call) -> None:
    assert call("explain", "every 5 minutes").out.startswith("the words mean */5 * * * *\n")


def test_the_rule_of_words_for_one_time_is_a_timestamp(call: Call, tmp_path: Path) -> None:
    asked = ("--tz", "Europe/Berlin", "--at", "2026-11-19")
    once, rule = "once, on 5 May 2027 at 14:00", "the words mean <2027-05-05 Wed 14:00>"
    assert call("explain", once, *asked).out.startswith(f"{rule}\n")
    path = tmp_path / "once.org"
    path.write_text(f"* Once\n:PROPERTIES:\n:SCHEDULE: {once}\n:COMMAND: true\n:END:\n")
    assert f"{rule}: 2027-05-05 Wed 14:00 Europe/Berlin\n" in call("check", str(path), *asked).out


@pytest.mark.parametrize(
    ("stamp", "note"),
    [
        (
            "2027-03-28 Sun 02:30",
            "02:30 does not exist on 2027-03-28 in Europe/Berlin: runs at 03:00",
        ),
        (
            "2027-10-31 Sun 02:30",
            "02:30 occurs twice on 2027-10-31 in Europe/Berlin: runs the first",
        ),
    ],
)
def test_one_time_that_a_clock_change_moves_has_a_note(
    call: Call, tmp_path: Path, stamp: str, note: str
) -> None:
    now = ("--tz", "Europe/Berlin", "--at", "2026-11-19")
    assert f"note: {note}" in call("explain", f"<{stamp}>", *now).out
    path = tmp_path / "once.org"
    path.write_text(f"* Once\nSCHEDULED: <{stamp}>\n:PROPERTIES:\n:COMMAND: true\n:END:\n")
    assert f"note clock-change: {note}" in call("check", str(path), *now).out
    path.write_text(path.read_text().replace("02:30", "03:00"))
    assert "clock-change" not in call("check", str(path), *now).out


def test_a_file_that_is_named_twice_is_checked_once(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "twice.org"
    path.write_text("* A\n:PROPERTIES:\n:ID: x\n:COMMAND: true\n:END:\n")
    assert call("check", str(path), str(path)).out == "1 file checked, no problems\n"


@pytest.mark.parametrize("command", ["next", "agenda", "due", "query"])
def test_of_a_missing_file_only_the_error_is_shown(call: Call, command: str) -> None:
    ending = call(command, "missing.org")
    assert (ending.code, ending.out) == (4, "")
    assert ending.err == "horae: missing.org: does not exist\n"


def test_next_shows_times_after_from_and_at_says_what_time_it_is(call: Call) -> None:
    asked = ("next", "--cron", "0 9 * * *", "-n", "1", "--at", "2026-06-01")
    for start in ("2d", "2026-06-03"):
        assert call(*asked, "--from", start).out == "2026-06-03 Wed 09:00 UTC\n"
    assert call(*asked).out == "2026-06-01 Mon 09:00 UTC\n"
    assert (
        "--from requires --view times or --view agenda."
        in call("next", "--view", "due", "--from", "2d").err
    )


@pytest.mark.usefixtures("root")
def test_an_agent_has_no_zone_of_its_own(call: Call) -> None:
    lines = [line for line in call("agenda", *AT, "--days", "1").out.splitlines() if "wren" in line]
    assert lines
    assert not any("[" in line for line in lines)
    told = call("next", *AT, "-n", "300").out.splitlines()
    assert "Europe/Berlin  wren" in next(line for line in told if "wren" in line)


def test_explain_notes_a_wrong_day_name(call: Call) -> None:
    ending = call("explain", "<2026-06-05 Mon 09:00 +1w>", *AT)
    assert "note: 2026-06-05 is a Fri, not a Mon; the date is used\n" in ending.out
    notes = call("explain", "<2026-06-05 Mon 09:00 +1w>", *AT, "--json").data["notes"]
    assert notes == ["2026-06-05 is a Fri, not a Mon; the date is used"]


def test_explain_takes_a_phrase_that_ends_with_a_clock(call: Call) -> None:
    said = call("explain", "every other Friday at 17:30", "--at", "2026-06-01", "--table").out
    assert "2026-06-19 Fri 17:30 UTC" in said
    missing = call("explain", "no such plan.org:12")
    assert (missing.code, "does not exist" in missing.err) == (4, True)
