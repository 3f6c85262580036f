"""`horae simulate`: what runs in the days to come, and what an outage costs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from commands import run_command
from horae.cli.run import run
from horae.cli.simulate import simulate as command

if TYPE_CHECKING:
    from pathlib import Path

    from calling import Call

PLAN = """\
* Digest :workflow:
:PROPERTIES:
:SCHEDULE: 0 9 * * *
:END:
* Water :workflow:
SCHEDULED: <2026-04-01 Wed 07:00 +1d>
* Poll :workflow:
SCHEDULED: <2026-04-01 Wed 00:30 ++1h>
"""


def call(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = run(command, name="horae simulate", args=args)
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "plan.org").write_text(PLAN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HORAE_ZONE", "UTC")
    return "plan.org"


def test_a_rehearsal_tells_day_by_day_what_runs_and_what_an_outage_costs(
    plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--from", "2026-04-01", "--days", "7", "--outage", "2026-04-03T00:00/3d", "--table")
    code, out, err = call(capsys, plan, *options)
    assert (code, err) == (0, "")
    assert "no engine from 2026-04-03 Fri 00:00 UTC for 3d" in out
    assert "2026-04-02 Thu  26 ran" in out
    assert "07:00        late by 2d17h: Water  plan.org:5" in out
    assert "(24 times)" in out
    assert "(replaced by the run of 2026-04-05 Sun 23:30 UTC, as catch-up is latest)" in out
    assert call(capsys, plan, *options) == (code, out, err)


def test_what_simulated_runs_cost_follows_from_the_last_ones(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = {"type": "result", "subtype": "success", "result": "Read.", "total_cost_usd": 0.25}
    (tmp_path / "claude").write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    (tmp_path / "claude").chmod(0o755)
    (tmp_path / plan).write_text(
        "* Digest :workflow:\n:PROPERTIES:\n:SCHEDULE: 0 9 * * *\n:END:\n** Sum up :component:\n"
        "#+begin_src agent :agent wren\nBe brief.\n#+end_src\n"
        f"* wren :agent:\n:PROPERTIES:\n:COMMAND: {tmp_path}/claude\n:END:\nYou read.\n"
    )
    options = ("--from", "2099-04-01", "--days", "7")
    assert "cost" not in call(capsys, plan, *options, "--table")[1]
    ran = run_command("horae", "run", "Digest", at=tmp_path)
    assert ran.code == 0, ran.err
    out = call(capsys, plan, *options, "--table")[1]
    assert "expected cost: $1.75 for 7 runs, each at the median of its entry's last runs\n" in out
    assert json.loads(call(capsys, plan, *options, "--json")[1])["cost"] == 1.75


def test_ticks_tasks_and_triggers_of_a_directory_are_simulated_and_cost_what_they_did(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / plan).unlink()
    answer = {"type": "result", "subtype": "success", "result": "Read.", "total_cost_usd": 0.25}
    (tmp_path / "claude").write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    (tmp_path / "claude").chmod(0o755)
    (tmp_path / "wren.org").write_text(
        f"* wren :agent:\n:PROPERTIES:\n:COMMAND: {tmp_path}/claude\n:END:\nYou read.\n"
    )
    (tmp_path / "crew.org").write_text(
        "* wren\n:PROPERTIES:\n:DEF: wren.org\n:INTERVAL: 6h\n:END:\n"
    )
    (tmp_path / "horae.toml").write_text('[crew]\ndef = "crew.org"\n')
    files = {
        "board/tasks/001-links.md": "---\nid: 1\ntitle: Links\nstatus: done\nassignee: wren\n"
        'cron_schedule: "0 9 * * *"\n---\n',
        ".agentd/agents/smoker.yml": "name: smoker\ncommand: [cat]\nworking_dir: ../..\n",
        ".agentd/workflows/smoke.yml": "name: smoke\nagent: smoker\nsource:\n  type: cron\n"
        '  expression: "0 */2 * * *"\nprompt_template: Look.\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def told(*more: str) -> dict[str, Any]:
        code, out, err = call(capsys, ".", "--from", "2099-04-01", "--days", "2", "--json", *more)
        assert code == 0, err
        found: dict[str, Any] = json.loads(out)
        return found

    first = told()
    assert first["totals"] == {"ran": 23 + 2 + 8}
    late = told("--outage", "2099-04-01T01:00/30h")
    assert {each["title"] for each in late["odd"]} == {"smoke", "Links", "wren"}
    ran = run_command("horae", "agent", "tick", "wren", at=tmp_path)
    assert ran.code == 0, ran.err
    assert told()["cost"] == pytest.approx(0.25 * 8)


def test_more_times_than_can_be_waited_for_are_refused_with_a_remedy(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = "* Tick\n:PROPERTIES:\n:SCHEDULE: * * * * * *\n:COMMAND: true\n:END:\n"
    (tmp_path / plan).write_text(second)
    begin = ("--from", "2026-04-01")
    for form in ("--json", "--table"):
        code, out, err = call(capsys, plan, *begin, form)
        assert (code, out) == (2, "")
        assert "7,776,000 scheduled times in 90 days; at most 2,000,000 are simulated" in err
        assert "use --days 23, or --jsonl" in err
    many = "".join(second.replace("Tick", f"Tick {number}") for number in range(25))
    (tmp_path / plan).write_text(many)
    assert "name fewer plan files" in call(capsys, plan, *begin, "--days", "1", "--table")[2]


def test_one_object_has_ten_thousand_odd_receipts_and_says_how_many_are_not_in_it(
    plan: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horae.cli.simulate._ODD", 2)
    options = ("--from", "2026-04-01", "--days", "4", "--outage", "2026-04-02T00:00/2d", "--json")
    data = json.loads(call(capsys, plan, *options)[1])
    assert (len(data["odd"]), data["odd_omitted"] > 0) == (2, True)


def test_a_rehearsal_is_data_in_a_pipe(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, plan, "--from", "2026-04-01", "--days", "2", "--json")
    data = json.loads(out)
    assert code == 0
    assert data["totals"] == {"ran": 52}
    assert data["by_day"][0] == {"day": "2026-04-01", "ran": 26}
    assert (data["odd"], data["zone"]) == ([], "UTC")


def test_outages_may_overlap_and_begin_before_the_start(
    plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outages = ("2026-03-31T12:00/14h", "2026-04-01T01:00/2h", "2026-04-01T05:15/1h")
    options = [word for each in outages for word in ("--outage", each)]
    code, out, _ = call(capsys, plan, "--from", "2026-04-01", "--days", "1", *options, "--jsonl")
    rows = [json.loads(line) for line in out.splitlines()]
    polls = [each for each in rows if each["title"] == "Poll"]
    assert code == 0
    # An engine runs from 03:00 to 05:15 and from 06:15 on; each start catches up with one run.
    assert [(each["at"][11:16], each["what"]) for each in polls[:7]] == [
        ("00:30", "coalesced"),
        ("01:30", "coalesced"),
        ("02:30", "late"),
        ("03:30", "ran"),
        ("04:30", "ran"),
        ("05:30", "late"),
        ("06:30", "ran"),
    ]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--outage", "tomorrow"), "write a time and a duration, as in 2026-04-03T00:00/3d"),
        (("--outage", "2026-04-03/soon"), "duration 'soon'"),
    ],
)
def test_what_cannot_be_simulated_is_said(
    plan: str, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], said: str
) -> None:
    code, _, err = call(capsys, plan, *args)
    assert code == 2
    assert said in err


def test_what_has_the_name_of_another_is_counted_as_not_armed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = "* Twin :workflow:\n:PROPERTIES:\n:ID: d\n:SCHEDULE: 0 5 * * *\n:END:\n"
    (tmp_path / "twice.org").write_text(one * 2)
    _, _, err = call(capsys, str(tmp_path / "twice.org"), "--days", "1", "--table")
    assert "1 entry is not armed because of errors; see `horae check`" in err


def test_a_rule_that_matches_no_date_is_counted_as_not_armed_and_what_is_done_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawer = ":PROPERTIES:\n:SCHEDULE: 0 0 {} *\n:END:\n"
    never, done = drawer.format("30 2"), drawer.format("* *")
    (tmp_path / "odd.org").write_text(f"* Never :workflow:\n{never}* DONE Old :workflow:\n{done}")
    _, _, err = call(capsys, str(tmp_path / "odd.org"), "--days", "1", "--tz", "UTC")
    assert "1 entry is not armed because of errors" in err


def test_an_outage_outside_the_simulated_period_is_refused(call: Call, tmp_path: Path) -> None:
    plan = "* Sow\n:PROPERTIES:\n:SCHEDULE: @daily\n:COMMAND: true\n:END:\n"
    (tmp_path / "plan.org").write_text(plan)
    for outage in ("2026-03-01T00:00/1d", "2026-06-01T00:00/1d"):
        ending = call("simulate", "--from", "2026-04-01", "--days", "7", "--outage", outage)
        said = f"--outage {outage} is outside the simulated 7 days from 2026-04-01 Wed"
        assert (ending.code, said in ending.err) == (2, True)
