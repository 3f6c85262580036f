"""What commands say when somebody gets something wrong: what it is, where, and what to do."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from horae.core.source import Scan
from horae.org.document import read
from horae.sources.plans.arming import scan_plan
from horae.store.sqlite import SqliteLedger

if TYPE_CHECKING:
    from calling import Call
from horae.core.text import moment_text

PLAN = """* Sow :workflow:
SCHEDULED: <2026-06-06 Sat 06:00 +1d>
:PROPERTIES:
:ID: sow
:END:
"""


@pytest.fixture
def plan(call: Call) -> Path:
    path = Path("plan.org")
    path.write_text(PLAN)
    return path


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["explain", "nowhere.org:3"], "plan_missing"),
        (["explain", "0 24 * * *"], "cron"),
        (["agent", "show", "nobody"], "no_agent"),
        (["agent", "run", "nobody"], "no_agent"),
        (["claim", "plan.org", "sow", "--agent", "wren"], "claim_refused"),
        (["claim", "nowhere.org", "sow", "--agent", "wren"], "plan_missing"),
        (["release", "plan.org", "reap", "--agent", "wren"], "headline_missing"),
        (["done", "plan.org", "reap"], "headline_missing"),
        (["next", "--cron", "0 24 * * *"], "cron"),
        (["next", "--tz", "Mars"], "zone"),
        (["simulate", "plan.org", "--tz", "Mars"], "zone"),
    ],
)
@pytest.mark.parametrize("form", ["--json", "--jsonl"])
@pytest.mark.usefixtures("plan")
def test_who_asked_for_json_gets_errors_as_json(
    call: Call, args: list[str], code: str, form: str
) -> None:
    for_people = call(*args, "--table")
    for_programs = call(*args, form)
    error = json.loads(for_programs.err)["error"]
    assert (error["code"], for_programs.out) == (code, "")
    assert for_programs.code == for_people.code != 0
    assert for_people.err.startswith(f"horae: {error['message']}")


def test_a_line_beyond_the_end_of_a_plan_is_no_place_in_it(call: Call, plan: Path) -> None:
    assert call("explain", f"{plan}:5", "--table").out.startswith("Sow  plan.org:1")
    ending = call("explain", f"{plan}:6")
    assert (ending.code, ending.out) == (4, "")
    assert ending.err == "horae: plan.org:6: the file has only 5 lines\n"


@pytest.mark.parametrize("text", ["", "  "])
def test_nothing_is_no_rule_to_explain(call: Call, text: str) -> None:
    ending = call("explain", text)
    assert (ending.code, ending.out) == (2, "")
    assert "expression is empty; write five fields" in ending.err


def test_no_garden_is_made_out_of_a_file(call: Call, plan: Path) -> None:
    ending = call("init", f"{plan}/below")
    assert (ending.code, ending.out) == (2, "")
    reason = "is not a directory, or a part of its path is a file"
    assert ending.err.startswith(f"horae: {plan}/below: cannot be created: {reason}.\n")
    assert plan.read_text() == PLAN


def test_up_says_which_directory_a_plan_is_kept_in(call: Call, plan: Path) -> None:
    Path("garden").mkdir()
    plan.rename("garden/plan.org")
    ending = call("up", "garden/plan.org")
    assert ending.code == 2
    said = "horae: garden/plan.org: is a file; name its directory: horae up garden\n"
    assert ending.err.startswith(said)
    Path("mine.org").write_text(PLAN)
    assert call("up", "mine.org").err.startswith(
        "horae: mine.org: is a file; name its directory: horae up .\n"
    )


@pytest.mark.parametrize(
    "group", ["task", "trigger", "approval", "cluster", "agent", "token", "export"]
)
def test_a_group_without_a_command_shows_its_help_and_nothing_else(call: Call, group: str) -> None:
    ending = call(group)
    assert (ending.code, ending.out) == (2, "")
    assert ending.err.startswith(f"Usage: horae {group} [OPTIONS] COMMAND [ARGS]...\n")
    assert ending.err.count("Usage:") == 1
    assert "Commands:" in ending.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "pause sow --until soon",
            "'soon' is not a time; write it like",
        ),  # though no ledger is there
        ("backfill sow --from soon", "'soon' is not a time; write it like"),
        ("claim plan.org sow --agent wren --ttl soon", "--ttl: duration 'soon': must be numbers"),
        ("approval approve soon", "`horae approval list` lists the receipts."),
        ("approval approve 3", "there is no pending approval of receipt 3;"),
        ("import github", "Did you mean 'github-actions'?"),
        ("export ical", "Did you mean 'ics'?"),
        ("cluster worker nowhere", "there is no such directory; clone the repository of the plan"),
    ],
)
def test_a_wrong_call_is_answered_with_what_to_write(
    call: Call, plan: Path, line: str, said: str
) -> None:
    ending = call(*line.split())
    assert (ending.code in {2, 4}, said in ending.err) == (True, True), ending.err


def test_a_plan_to_run_that_is_not_there_is_missed_as_a_file(call: Call, plan: Path) -> None:
    ending = call("run", "nowhere.org")
    assert (ending.code, ending.err) == (4, "horae: nowhere.org: does not exist\n")


def test_a_task_whose_file_cannot_be_read_is_not_just_missing(call: Call) -> None:
    tasks = Path("board/tasks")
    tasks.mkdir(parents=True)
    (tasks / "report.md").write_text("---\nid: 42\ntitle: Report: weekly\nstatus: todo\n---\n")
    for args in (["task", "show", "42"], ["task", "schedule", "42", "--clear"]):
        ending = call(*args)
        assert ending.code != 0
        assert "task #42 not found in board/tasks" in ending.err
        assert "a file that cannot be read: board/tasks/report.md:3:14: " in ending.err


def test_who_may_not_release_is_told_who_may(call: Call) -> None:
    Path("plan.org").write_text(f"#+TODO: TODO DOING | DONE\n{PLAN}")
    assert call("claim", "plan.org", "sow", "--agent", "wren").code == 0
    ending = call("release", "plan.org", "sow", "--agent", "moss")
    assert ending.code == 6
    assert (
        ending.err
        == "horae: plan.org: sow: claimed by wren; only the owner of the claim can release it\n"
    )
    assert call("claim", "plan.org", "sow", "--agent", "moss").err.endswith(
        "claim another headline\n"
    )


ENDED = """* Ended
:PROPERTIES:
:SCHEDULE: 0 9 * * *
:UNTIL: 2026-04-10
:COMMAND: true
:END:
* Begins
:PROPERTIES:
:SCHEDULE: 0 9 * * *
:FROM: 2026-06-01
:COMMAND: true
:END:
"""


@pytest.fixture
def ended(call: Call) -> None:
    async def making() -> None:
        now = datetime.fromisoformat("2026-05-01T00:00Z")
        ledger = await SqliteLedger.open(Path(".horae"), now=now)
        found = scan_plan(read(ENDED), file="plan.org", zone_name="Europe/Berlin")
        await ledger.scan("org", Scan(tuple(found)), now=now, term=1)
        await ledger.close()

    asyncio.run(making())


@pytest.mark.usefixtures("ended")
def test_why_knows_that_a_rule_has_not_begun(call: Call) -> None:
    said = call("why", "Begins@2026-05-20", "--table").out.splitlines()[3:]
    first = ":FROM: is 2026-06-01 Mon 00:00 Europe/Berlin; nothing is scheduled before it"
    assert said == [
        f"2026-05-20 Wed 00:00 Europe/Berlin  {first}",
        "  the nearest before: none",
        "  the nearest after: 2026-06-01 Mon 09:00 Europe/Berlin",
    ]


@pytest.mark.usefixtures("ended")
def test_why_knows_that_a_rule_has_ended(call: Call) -> None:
    said = call("why", "Ended@2026-04-20", "--table").out.splitlines()[3:]
    over = ":UNTIL: was 2026-04-10 Fri 23:59:59 Europe/Berlin; nothing is scheduled after it"
    assert said == [
        f"2026-04-20 Mon 00:00 Europe/Berlin  {over}",
        "  the nearest before: 2026-04-10 Fri 09:00 Europe/Berlin",
        "  the nearest after: none",
    ]
    between = call("why", "Ended@2026-04-09T12:00", "--table").out
    assert "not a scheduled time of the rule" in between
    assert "the nearest after: 2026-04-10 Fri 09:00 Europe/Berlin" in between


def test_a_run_without_an_engine_says_who_tries_again_and_when(call: Call) -> None:
    flaky = "* Flaky\n:PROPERTIES:\n:SCHEDULE: 0 9 1 1 *\n:COMMAND: false\n:RETRY: 2 1h\n:END:\n"
    Path("plan.org").write_text(flaky)
    ending = call("run", "Flaky", "--table")
    assert ending.code == 1
    [receipt] = call("history", "Flaky", "--json").data
    when = datetime.fromisoformat(receipt["start_at"])
    assert ending.err == (
        "horae: Flaky: waiting: exit code 1; an engine retries it at "
        f"{moment_text(when, 'Europe/Berlin')} or later; start one with `horae up`\n"
    )


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["up", "--seconds", "x"], "'x' is not a number."),
        (["history", "--cursor", "x"], "'x' is not a whole number."),
        (["history", "-n", "x"], "'x' is not a whole number."),
        (["retry", "sow"], "'sow' is not the number of a receipt; `horae history` lists"),
        (["completion"], "Choose from: bash, zsh, fish\n"),
        (["import", "crontab", "."], "horae: .: is a directory; name the files in it\n"),
    ],
)
@pytest.mark.usefixtures("plan")
def test_a_wrong_argument_is_named_in_plain_words(call: Call, args: list[str], words: str) -> None:
    ending = call(*args)
    assert (ending.code != 0, words in ending.err) == (True, True)
