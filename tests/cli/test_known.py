"""What the ledger knows counts wherever moments are shown: pauses, last ends, how long runs took."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import one_run
from horae.core.decide import decide
from horae.core.entry import Entry
from horae.core.ports import EntryStep, Process
from horae.core.receipt import Status
from horae.core.source import Scan, Scanned
from horae.org.document import read
from horae.sources.board.source import BoardSource
from horae.sources.board.tasks import Board
from horae.sources.plans.arming import scan_plan
from horae.sources.triggers.kinds import CronKind
from horae.sources.triggers.rules import Trigger, TriggerDefinition, scanned
from horae.store.sqlite import SqliteLedger
from reasons import because
from store.ledger_suite import story

if TYPE_CHECKING:
    from calling import Call

PLAN = """\
* Tick :workflow:
:PROPERTIES:
:SCHEDULE: 0 * * * *
:COMMAND: true
:END:
* Turn :workflow:
SCHEDULED: <2026-04-01 Wed 09:00 .+1d>
:PROPERTIES:
:COMMAND: true
:END:
"""
SEEN = datetime.fromisoformat("2026-04-01T04:30Z")
NINE = datetime.fromisoformat("2026-04-01T07:00Z")  # in Berlin
NOON = "2026-04-01 12:00"
HOUR = timedelta(hours=1)


@pytest.fixture
def kept(call: Call) -> Call:
    """A plan of which one entry is paused until three, and another took ten minutes at nine."""
    Path("plan.org").write_text(PLAN)

    async def keeping() -> None:
        ledger = await SqliteLedger.open(Path(".horae"), now=SEEN)
        found = scan_plan(read(PLAN), file="plan.org", zone_name="Europe/Berlin")
        await ledger.scan("org", Scan(tuple(found)), now=SEEN, term=1)
        await ledger.scan("trigger", Scan((made_by_request(),)), now=SEEN, term=1)
        steps = [
            EntryStep(each.entry, decide(each.entry, now=NINE))
            for each in await ledger.due(now=NINE)
        ]
        for filed in await ledger.decide(steps, now=NINE, term=1):
            run = await one_run.start(ledger, filed.number, now=NINE, term=1)
            if run is not None:
                await one_run.running(ledger, run.number, Process(1, 1), now=NINE, term=1)
                end = NINE + timedelta(minutes=10)
                await one_run.end(
                    ledger, run.number, Status.DONE, reason=because("done"), now=end, term=1
                )
        [tick] = await ledger.find("Tick")
        until = NINE + 6 * HOUR
        await ledger.pause(tick.number, now=NINE + 2 * HOUR, term=1, until=until, note="holidays")
        await ledger.close()

    asyncio.run(keeping())
    return call


def made_by_request() -> Scanned:
    """Return a trigger that no file has."""
    definition = TriggerDefinition("lunch", "cook", CronKind("0 13 * * *"), "Eat.")
    made = scanned(Trigger("t1", definition, 1, SEEN, SEEN))
    assert isinstance(made.item, Entry)
    return made


def shown(call: Call, *args: str) -> list[tuple[str, str]]:
    """Return when what comes, as a command lists it."""
    rows: list[dict[str, Any]] = json.loads(call(*args, "--at", NOON, "--json").out)
    return [(each["at"][11:16], each["title"]) for each in rows]


def test_what_is_paused_comes_when_its_pause_is_over(kept: Call) -> None:
    expected = [("13:00", "lunch"), ("16:00", "Tick"), ("17:00", "Tick")]
    assert shown(kept, "next", "-n", "3") == expected
    assert shown(kept, "next", "plan.org", "-n", "2") == expected[1:], "of a file, its own"
    assert ("13:00", "Tick") not in shown(kept, "agenda", "--days", "1")


def test_a_rule_counts_from_the_end_that_the_ledger_knows(kept: Call) -> None:
    rows = json.loads(kept("next", "--at", NOON, "-n", "40", "--json").out)
    turns = [(each["at"], each["estimate"]) for each in rows if each["title"] == "Turn"]
    assert turns[0] == ("2026-04-02T09:00:00+02:00", False)


def test_due_names_what_is_paused_and_until_when(kept: Call) -> None:
    ending = kept("due", "--at", NOON, "--table")
    end = "2026-04-01 Wed 15:00 Europe/Berlin"
    pause = f"by the engine, since 2026-04-01 Wed 11:00 Europe/Berlin until {end}"
    assert f"  Tick  plan.org:1  (paused {pause} (holidays))" in ending.out.splitlines()


def test_a_command_says_whose_times_it_shows(kept: Call) -> None:
    said = "horae: times from the plan files; pauses and last runs from the ledger in .horae\n"
    assert kept("next", "--at", NOON, "--table").err == said
    assert kept("agenda", "--at", NOON, "--table").err == said
    assert kept("next", "--at", NOON, "--json").err == "", "a program reads no notes"


def test_without_a_ledger_nothing_is_said(call: Call) -> None:
    Path("plan.org").write_text(PLAN)
    assert call("next", "--at", NOON, "--table").err == ""


def test_a_calendar_leaves_a_pause_out_and_names_it(kept: Call) -> None:
    ending = kept("export", "ics", "--at", NOON, "--days", "1")
    starts = [line for line in ending.out.splitlines() if line.startswith("DTSTART;")]
    assert "DTSTART;TZID=Europe/Berlin:20260401T160000" in starts
    assert "DTSTART;TZID=Europe/Berlin:20260401T150000" not in starts
    assert "plan.org:1: 'Tick' is paused by the engine, since" in ending.err


def test_explain_says_that_an_entry_is_paused(kept: Call) -> None:
    lines = kept("explain", "plan.org:1", "--at", NOON, "--table").out.splitlines()
    assert lines[3].startswith("paused by the engine, since 2026-04-01 Wed 11:00")
    assert lines[4] == "  2026-04-01 Wed 16:00 Europe/Berlin"


def test_a_simulated_run_takes_as_long_as_the_last_ones(kept: Call) -> None:
    ending = kept("simulate", "--from", NOON, "--days", "2", "--trace", "trace", "--jsonl")
    assert ending.code == 0
    rows = [json.loads(line) for line in ending.out.splitlines()]
    ticks = [each for each in rows if each["title"] == "Tick"]
    assert (ticks[0]["what"], ticks[0]["count"]) == ("skipped", 3)
    assert "paused from 2026-04-01T09:00:00Z to 2026-04-01T13:00:00Z" in ticks[0]["reason"]
    turn = next(each["at"] for each in rows if each["title"] == "Turn")
    assert turn == "2026-04-02T09:00:00+02:00", "from the end that the ledger knows"
    trace = Path("trace").read_text()
    assert "2026-04-02T07:00:00 run" in trace, "it is let go at nine"
    assert "2026-04-02T07:10:00 run" in trace, "and ends ten minutes later"


def test_a_time_that_has_a_receipt_is_not_simulated_again(call: Call) -> None:
    once = "* Once :workflow:\nSCHEDULED: <2026-03-30 Mon 09:00>\n"
    Path("plan.org").write_text(once)
    asked = ("simulate", "--from", NOON, "--days", "1", "--jsonl")
    assert '"missed"' in call(*asked).out, "no engine has read it yet"

    async def keeping() -> None:
        ledger = await SqliteLedger.open(Path(".horae"), now=SEEN)
        found = scan_plan(read(once), file="plan.org", zone_name="Europe/Berlin")
        await ledger.scan("org", Scan(tuple(found)), now=SEEN, term=1)
        await ledger.close()

    asyncio.run(keeping())
    assert '"missed"' not in call(*asked).out


def test_a_new_plan_is_simulated_without_a_skip(call: Call) -> None:
    assert call("init", "garden").code == 0
    said = json.loads(call("simulate", "garden", "--days", "1", "--json").out)
    assert set(said["totals"]) == {"ran"}, "a run of which nothing is known ends at once"


def test_a_schedule_that_no_longer_parses_is_shown_as_it_was_last_good(kept: Call) -> None:
    Path("plan.org").write_text(PLAN.replace("0 * * * *", "0 * * * * * * * *"))
    assert ("16:00", "Tick") in shown(kept, "next")
    rows = kept("simulate", "--from", NOON, "--days", "1", "--jsonl").out.splitlines()
    ran = [each["title"] for each in map(json.loads, rows) if each["what"] == "ran"]
    assert "Tick" in ran


def test_a_paused_task_comes_back_when_its_pause_is_over(call: Call) -> None:
    assert call("task", "add", "Report").code == 0
    assert call("task", "schedule", "1", "--cron", "0 9 * * *").code == 0

    async def keeping() -> None:
        ledger = await SqliteLedger.open(Path(".horae"), now=SEEN)
        source = BoardSource(Board.below(Path()), now=lambda: SEEN)
        await ledger.scan("board", await source.scan({}), now=SEEN, term=1)
        entry = next(each for each in await ledger.find("Report") if each.mark.address == "task:1")
        await ledger.pause(entry.number, now=SEEN, term=1, until=SEEN + 72 * HOUR)
        await ledger.close()

    asyncio.run(keeping())
    rows = call("task", "next", "--at", NOON, "-n", "1", "--json").data
    assert [each["at"] for each in rows] == ["2026-04-04T09:00:00Z"]
    assert call("task", "show", "1", "--at", NOON, "--json").data["next"][0][:10] == "2026-04-04"


def test_what_only_looks_at_a_plan_leaves_nothing_behind(call: Call) -> None:
    files = {
        "plan.org": PLAN,
        "horae.toml": "crew.def = 'crew.org'\n",
        "crew.org": "* wren\n:PROPERTIES:\n:DEF: wren.org\n:INTERVAL: 6h\n:END:\n",
        "wren.org": "* wren :agent:\n:PROPERTIES:\n:COMMAND: touch ran\n:END:\nGo.\n",
        "board/tasks/1.md": "---\nid: 1\ntitle: Sow\nstatus: todo\ncron_schedule: '@daily'\n---\n",
        ".agentd/agents/cook.yml": "name: cook\nconfig:\n  command: touch ran\n",
        ".agentd/workflows/hook.yml": (
            "name: hook\nagent: cook\nsource:\n  type: webhook\n  secret: 0123456789abcdef\n"
            "prompt_template: x\n"
        ),
    }
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    titles = {"Tick", "Turn", "wren", "Sow", "hook"}
    assert {each["title"] for each in call("list", "--json").data} == titles
    for line in (
        *("next", "agenda", "due", "check", "simulate", "export ics", "explain plan.org:1"),
        *(f"why {title}" for title in titles),
    ):
        assert call(*line.split()).code in {0, 1}, line
    found = {str(each): each.read_text() for each in Path().rglob("*") if each.is_file()}
    assert found == files


@story
async def test_a_draft_has_the_entries_of_a_ledger_and_its_changes_stay_there() -> None:
    ledger = await SqliteLedger.in_memory()
    found = tuple(scan_plan(read(PLAN), file="plan.org", zone_name="UTC"))
    await ledger.scan("org", Scan(found), now=SEEN, term=1)
    draft = await ledger.draft()
    assert await draft.entries() == await ledger.entries()
    await draft.scan("org", Scan(()), now=NINE, term=1, patience=timedelta(0))
    assert [each.gone_at for each in await draft.entries()] == [NINE, NINE]
    assert [each.gone_at for each in await ledger.entries()] == [None, None]
