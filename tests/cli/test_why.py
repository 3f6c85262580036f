"""`horae why TITLE` answers for everything that stands in a plan, fired or not."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from horae.core.decide import decide
from horae.core.ports import EntryStep
from horae.core.source import Scan
from horae.org.document import read
from horae.sources.plans.arming import scan_plan
from horae.store.sqlite import SqliteLedger
from reasons import because

if TYPE_CHECKING:
    from calling import Call

PLAN = """\
* Pay rent
DEADLINE: <2030-01-01 Tue>
* Report :workflow:
DEADLINE: <2030-01-01 Tue>
* Call mum
SCHEDULED: <2030-01-01 Tue>
* Notes
* Alone
:PROPERTIES:
:SCHEDULE: 0 5 * * *
:END:
* Inactive :workflow:
SCHEDULED: [2030-01-01 Tue]
* COMMENT Hidden :workflow:
SCHEDULED: <2030-01-01 Tue>
* Twin :workflow:
:PROPERTIES:
:SCHEDULE: 0 5 * * *
:END:
* Twin :workflow:
:PROPERTIES:
:SCHEDULE: 0 6 * * *
:END:
* Asked for :workflow:
** Step :component:
* Digest :workflow:
:PROPERTIES:
:SCHEDULE: 0 9 * * *
:END:
* Poll :workflow:
:PROPERTIES:
:SCHEDULE: 0 9 * * *
:END:
* Writer :agent:
:PROPERTIES:
:ID: wren
:END:
"""
SEEN = datetime.fromisoformat("2026-04-01T04:30Z")
NINE = datetime.fromisoformat("2026-04-01T07:00Z")  # in Berlin
NOON = "2026-04-01 12:00"
WAY = "to run it, add SCHEDULED or :SCHEDULE:, and :COMMAND:, :POST: or the tag :workflow:"
ADD = "add :COMMAND:, :POST: or the tag :workflow:"


def keep(text: str) -> None:
    """Let the ledger know a plan."""
    Path("plan.org").write_text(text)

    async def keeping() -> None:
        ledger = await SqliteLedger.open(Path(".horae"), now=SEEN)
        found = scan_plan(read(text), file="plan.org", zone_name="Europe/Berlin")
        await ledger.scan("org", Scan(tuple(found)), now=SEEN, term=1)
        await ledger.close()

    asyncio.run(keeping())


@pytest.fixture
def kept(call: Call) -> Call:
    """A plan of which one entry waits since nine, one is held, and one is paused."""
    Path("plan.org").write_text(PLAN)

    async def keeping() -> None:
        ledger = await SqliteLedger.open(Path(".horae"), now=SEEN)
        found = scan_plan(read(PLAN), file="plan.org", zone_name="Europe/Berlin")
        await ledger.scan("org", Scan(tuple(found)), now=SEEN, term=1)
        steps = [
            EntryStep(each.entry, decide(each.entry, now=NINE))
            for each in await ledger.due(now=NINE)
        ]
        for filed in await ledger.decide(steps, now=NINE, term=1):
            if filed.title == "Poll":
                await ledger.hold(
                    filed.number, reason=because("it has no command"), now=NINE, term=1
                )
        [twin] = await ledger.find("Twin")
        until = NINE + timedelta(days=1)
        await ledger.pause(twin.number, now=NINE, term=1, note="away", until=until)
        await ledger.close()

    asyncio.run(keeping())
    return call


OF_AGENT = (
    "this is an agent definition, which has no schedule of its own; `horae list --agent wren` lists"
    " the entries that run the agent, and `horae agent run wren` runs it once"
)


@pytest.mark.parametrize(
    ("title", "said"),
    [
        ("Pay rent", f"there is only a DEADLINE, which never starts a run; {WAY}"),
        ("pay RENT", f"there is only a DEADLINE, which never starts a run; {WAY}"),
        ("plan.org:1", f"there is only a DEADLINE, which never starts a run; {WAY}"),
        ("Call mum", f"the headline has a SCHEDULED date but no command or workflow; {ADD}"),
        ("Notes", f"there is no schedule; {WAY}"),
        ("Alone", f"there is a schedule but nothing to run; {ADD}"),
        ("Hidden", "'COMMENT Hidden' is commented out"),
        ("Step", "this is a component of a workflow and runs with it"),
        ("wren", OF_AGENT),
        ("plan.org:20", "plan.org:16 has the same name; give one of the two an :ID:"),
    ],
)
@pytest.mark.parametrize("has_ledger", [True, False])
def test_a_headline_that_no_ledger_knows_is_looked_up_in_the_plan(
    request: pytest.FixtureRequest, title: str, said: str, *, has_ledger: bool
) -> None:
    call: Call = request.getfixturevalue("kept" if has_ledger else "call")
    Path("plan.org").write_text(PLAN)
    ending = call("why", title, "--at", NOON, "--table")
    assert (ending.code, ending.out.splitlines()[1]) == (0, f"not armed: {said}")
    told = json.loads(call("why", title, "--at", NOON, "--json").out)
    assert (told["entry"]["reason"], told["entry"]["entry"]) == (said, None)


def test_before_the_first_engine_an_entry_says_when_it_would_fire(call: Call) -> None:
    Path("plan.org").write_text(PLAN)
    lines = call("why", "Digest", "--at", NOON, "--table").out.splitlines()
    assert lines[1] == "new: no engine has read it yet; start one with `horae up`"
    assert lines[-1] == "2026-04-02 Thu 09:00 Europe/Berlin  scheduled in 21h"


def test_before_the_first_engine_a_time_that_is_asked_about_is_compared_with_the_rule(
    call: Call,
) -> None:
    Path("plan.org").write_text(PLAN)
    said = call("why", "Digest@2026-05-01T10:00", "--at", NOON, "--table").out.splitlines()
    assert said[-3].endswith("not a scheduled time of the rule")
    assert said[-1] == "  the nearest after: 2026-05-02 Sat 09:00 Europe/Berlin"
    refused = call("why", "Digest@9999-12-31", "--at", NOON)
    assert (refused.code, "the year must be from 2 to 9998" in refused.err) == (2, True)


def test_before_the_first_engine_a_missing_program_is_named(call: Call) -> None:
    plan = "* Deploy\n:PROPERTIES:\n:SCHEDULE: 0 9 * * *\n:COMMAND: nosuch --x\n:END:\n"
    Path("plan.org").write_text(plan)
    said = "nosuch is not on the PATH; install it, or write its full path"
    assert f"\ncannot run: {said}\n" in call("why", "Deploy", "--table").out
    assert json.loads(call("why", "Deploy", "--json").out)["cannot_run"] == said


@pytest.mark.parametrize("has_ledger", [False, True])
def test_a_line_inside_an_entry_means_the_entry(
    request: pytest.FixtureRequest, *, has_ledger: bool
) -> None:
    call: Call = request.getfixturevalue("kept" if has_ledger else "call")
    Path("plan.org").write_text(PLAN)
    line = PLAN[: PLAN.index("* Digest")].count("\n") + 1
    for place in (f"plan.org:{line + 2}", f"./plan.org:{line + 3}", f"plan.org:{line}"):
        first = call("why", place, "--at", NOON, "--table").out.splitlines()[0]
        assert first.startswith(f"Digest  plan.org:{line}")
    assert call("why", "plan.org:2000").code == 4
    said = call("why", "plan.org:21", "--at", NOON).out  # in the second of two with one name
    assert "plan.org:16 has the same name" in said


def test_a_headline_with_a_void_drawer_is_told_once(call: Call) -> None:
    drawer = ":PROPERTIES:\n:SCHEDULE: @daily\na stray line\n:COMMAND: true\n:END:\n"
    Path("plan.org").write_text(f"* Stray\n{drawer}")
    void = "line 'a stray line' makes the drawer invalid: its properties are ignored (line 4)"
    said = ["Stray  plan.org:1", f"not armed: {void}"]
    assert call("why", "Stray", "--table").out.splitlines()[:2] == said


def test_a_void_drawer_that_held_the_schedule_is_said_with_its_line(call: Call) -> None:
    plan = "* Above\n* Job :workflow:\n:PROPERTIES:\n:SCHEDULE: @daily\noops\n:END:\n"
    Path("plan.org").write_text(plan)
    void = "line 'oops' makes the drawer invalid: its properties are ignored (line 5)"
    assert f"broken: {void}" in call("why", "Job", "--table").out
    keep(plan)
    told = json.loads(call("why", "Job", "--json").out)
    said = f"the schedule of the entry cannot be read: {void}"
    assert [each["said"] for each in told["answers"]] == [said]


def test_a_word_that_nothing_goes_by_is_still_an_error(kept: Call) -> None:
    ending = kept("why", "Nonesuch")
    assert (ending.code, "no entry is called 'Nonesuch'" in ending.err) == (4, True)


@pytest.mark.parametrize(
    ("title", "said"),
    [
        ("Report", "the entry has only a DEADLINE, which never fires"),
        ("Asked for", "the entry has no schedule and runs only on request"),
        ("Inactive", "nothing scheduled: the entry is not armed"),
    ],
)
def test_what_has_no_moment_to_come_says_why(kept: Call, title: str, said: str) -> None:
    told = json.loads(kept("why", title, "--at", NOON, "--json").out)
    assert [each["said"] for each in told["answers"]] == [said]
    is_told = f"run it now with `horae run {told['entry']['entry']}`" in kept("why", title).out
    # A workflow of a plan without a :COMMAND: can run; what is not armed cannot.
    assert is_told is (title != "Inactive")


def test_a_run_that_cannot_start_is_not_advised(call: Call) -> None:
    keep("* Job\n:PROPERTIES:\n:COMMAND: frobnicate --now\n:END:\n")
    said = call("why", "Job", "--table").out
    assert ("cannot run: frobnicate is not on the PATH" in said, "horae run" in said) == (
        True,
        False,
    )


def test_what_waits_says_for_what_and_what_is_held_why(kept: Call) -> None:
    waits = kept("why", "Digest", "--table").out
    assert "waiting: no engine is running; `horae up` starts it" in waits
    assert "held: it has no command" in kept("why", "Poll", "--at", NOON, "--table").out


def test_what_is_skipped_behind_one_that_waits_says_what_that_waits_for(kept: Call) -> None:
    async def deciding() -> None:
        ledger = await SqliteLedger.open(Path(".horae"), now=NINE)
        tomorrow = NINE + timedelta(days=1)
        due = await ledger.due(now=tomorrow)
        waits = "the previous run is still waiting to start"
        steps = [
            EntryStep(
                each.entry,
                decide(each.entry, now=tomorrow, is_busy=each.is_busy, behind=because(waits)),
            )
            for each in due
        ]
        await ledger.decide(steps, now=tomorrow, term=1)
        await ledger.close()

    asyncio.run(deciding())
    said = [each["said"] for each in json.loads(kept("why", "Digest", "--json").out)["answers"]]
    assert "no engine is running" in said[0]
    assert said[1].startswith("skipped: the previous run is still waiting to start")


def test_what_is_paused_says_what_is_skipped_and_when_it_goes_on(kept: Call) -> None:
    lines = kept("why", "Twin", "--at", NOON, "--table").out.splitlines()
    end = "2026-04-02 Thu 09:00 Europe/Berlin"
    pause = f"by the engine, since 2026-04-01 Wed 09:00 Europe/Berlin until {end}"
    assert lines[2] == f"paused {pause} (away)"
    assert f"but the entry is paused {pause} (away): this time will be skipped" in lines[4]
    assert lines[6].startswith("2026-04-03 Fri 05:00 Europe/Berlin  scheduled in ")
    assert lines[-1].endswith("plan.org:16 has the same name; give one of the two an :ID:")


def test_what_is_broken_says_what_is_wrong_and_what_stays_armed(kept: Call) -> None:
    async def breaking() -> None:
        ledger = await SqliteLedger.open(Path(".horae"), now=NINE)
        before, poll = PLAN.split("* Poll")
        text = f"{before}* Poll{poll.replace('0 9 ', '0 99 ')}"
        found = scan_plan(read(text), file="plan.org", zone_name="Europe/Berlin")
        await ledger.scan("org", Scan(tuple(found)), now=NINE, term=1)
        await ledger.close()

    asyncio.run(breaking())
    lines = kept("why", "Poll", "--at", NOON, "--table").out.splitlines()
    assert lines[1] == "at 09:00 every day (Europe/Berlin)"
    assert lines[2].startswith(
        "broken since 2026-04-01 Wed 09:00 Europe/Berlin: cron '0 99 * * *': "
    )
    assert lines[2].endswith("; it stays armed in its last valid version")


def test_what_cannot_run_says_so_and_why(call: Call) -> None:
    keep(
        "* Program\n:PROPERTIES:\n:SCHEDULE: @daily\n:COMMAND: nosuch --now\n:END:\n"
        "* Talk :workflow:\n:PROPERTIES:\n:SCHEDULE: @daily\n:END:\n"
        "** Ask :component:\n#+begin_src agent :agent nobody\nhello\n#+end_src\n"
    )
    for title, why in (
        ("Program", "nosuch is not on the PATH; install it, or write its full path"),
        ("Talk", "there is no agent 'nobody'; `horae agent list` lists the agents"),
    ):
        assert f"cannot run: {why}" in call("why", title, "--table").out.splitlines()
        assert json.loads(call("why", title, "--json").out)["cannot_run"] == why
        then = json.loads(call("why", title, "--at", NOON, "--json").out)
        assert then["cannot_run"] is None, "nobody knows what could run then"


def test_an_answer_of_the_plan_has_the_shape_of_one_of_the_ledger(kept: Call) -> None:
    written, known = (
        json.loads(kept("why", title, "--at", NOON, "--json").out) for title in ("Notes", "Report")
    )
    assert written.keys() == known.keys()
    assert written["entry"].keys() == known["entry"].keys()
    known["answers"][0].pop("way")  # how to run an entry that is in the ledger
    assert written["answers"][0].keys() == known["answers"][0].keys()


def test_a_paused_entry_is_resumed_before_it_is_run(kept: Call) -> None:
    assert kept("pause", "Asked for").code == 0
    way = "resume it with `horae resume 5`, then run it with `horae run 5`\n"
    assert kept("why", "Asked for").out.endswith(way)


@pytest.mark.parametrize("has_ledger", [False, True])
def test_run_says_why_a_headline_is_no_entry(
    request: pytest.FixtureRequest, *, has_ledger: bool
) -> None:
    call: Call = request.getfixturevalue("kept" if has_ledger else "call")
    Path("plan.org").write_text("* Sow\n:PROPERTIES:\n:SCHEDULE: @daily\n:END:\n")
    ending = call("run", "Sow")
    said = "Sow (plan.org:1): it does not run: there is a schedule but nothing to run; add"
    assert (ending.code, said in ending.err) == (6, True)
