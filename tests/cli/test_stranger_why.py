"""`horae why` of a day with more moments than are shown tells no lies about those it shows."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from horae.core.decide import decide
from horae.core.ports import EntryStep
from horae.core.receipt import Receipt, Status
from horae.core.source import Scan
from horae.org.document import read
from horae.sources.plans.arming import scan_plan
from horae.store.sqlite import SqliteLedger
from reasons import because

if TYPE_CHECKING:
    from calling import Call

POLL = "* Poll\n:PROPERTIES:\n:SCHEDULE: 0 * * * *\n:OVERLAP: allow\n:COMMAND: true\n:END:\n"
SEEN = datetime.fromisoformat("2026-03-31T12:30Z")


@pytest.fixture
def kept(call: Call) -> Call:
    """A day and a half of an entry that comes every hour, each hour decided on time."""

    async def keeping() -> None:
        ledger = await SqliteLedger.open(Path(".horae"), now=SEEN)
        found = scan_plan(read(POLL), file="plan.org", zone_name="UTC")
        await ledger.scan("org", Scan(tuple(found)), now=SEEN, term=1)
        for hour in range(36):
            now = SEEN + timedelta(hours=hour, minutes=30)
            steps = [
                EntryStep(due.entry, decide(due.entry, now=now))
                for due in await ledger.due(now=now)
            ]
            await ledger.decide(steps, now=now, term=1)
        await ledger.close()

    asyncio.run(keeping())
    return call


@pytest.mark.parametrize("limit", [1, 3, 23, 24, 30])
def test_the_first_moments_of_a_long_day_have_their_own_receipts(kept: Call, limit: int) -> None:
    said = kept("why", "Poll@2026-04-01", "-n", str(limit), "--at", "2026-04-02", "--json").data
    shown = min(limit, 24)
    assert [each["at"] for each in said["answers"]] == [
        f"2026-04-01T{hour:02}:00:00Z" for hour in range(shown)
    ]
    assert {each["said"] for each in said["answers"]} == {"waiting: the scheduled time was reached"}
    assert said["more"] is (limit < 24)


def test_what_was_asked_for_beside_takes_no_moment_its_receipt(kept: Call) -> None:
    async def asking() -> None:
        now = datetime.fromisoformat("2026-04-01T00:30Z")
        ledger = await SqliteLedger.open(Path(".horae"), now=now)
        for number in range(5):
            asked = Receipt(f"manual:{number}", Status.WAITING, because("requested"), now, now)
            await ledger.add(1, [asked], now=now, term=1)
        await ledger.close()

    asyncio.run(asking())
    said = kept("why", "Poll@2026-04-01", "-n", "9", "--at", "2026-04-02", "--json").data
    assert len(said["answers"]) == 9
    assert all(each["said"].startswith("waiting: ") for each in said["answers"])
    assert all("another" not in each["said"] for each in said["answers"])
    assert said["more"]


def test_a_word_after_the_at_of_an_entry_that_exists_is_not_a_time(kept: Call) -> None:
    for asked in ("Poll@9am", "1@yesterday"):
        ending = kept("why", asked)
        when = asked.partition("@")[2]
        assert (ending.code, f"{when!r} is not a time; write it like" in ending.err) == (2, True)
    ending = kept("why", "Pol@9am")
    assert (ending.code, "no entry is called 'Pol@9am'" in ending.err) == (4, True)


def test_the_same_holds_for_an_entry_that_only_the_plan_has(call: Call) -> None:
    Path("plan.org").write_text(POLL)
    ending = call("why", "Poll@9am")
    assert (ending.code, "'9am' is not a time" in ending.err) == (2, True)
    assert call("why", "Pol@9am").code == 4


def test_an_entry_whose_title_has_an_at_is_found_by_it(kept: Call) -> None:
    Path("plan.org").write_text(POLL.replace("Poll", "Poll@home"))
    assert kept("why", "Poll@home").code == 0


def test_an_entry_whose_id_another_file_has_says_so(call: Call) -> None:
    for name, title in {"a": "One", "b": "Two"}.items():
        text = f"* {title}\n:PROPERTIES:\n:ID: same\n:SCHEDULE: 0 9 * * *\n:COMMAND: true\n:END:\n"
        Path(f"{name}.org").write_text(text)
    call("run", "One", "--wait")
    assert "a.org:1 has the same :ID:" in call("why", "Two").out


def test_a_time_until_which_a_request_is_held_is_in_the_zone_of_its_entry(call: Call) -> None:
    Path("horae.toml").write_text('zone = "Europe/Berlin"\n')
    drawer = ":PROPERTIES:\n:BUDGET: 1 run/day\n:COMMAND: echo one\n:END:\n"
    Path("a.org").write_text(f"* One\n{drawer}")
    assert call("run", "One").code == 0
    ending = call("run", "One")
    assert ending.code == 1
    assert re.search(r"held until \d{4}-\d\d-\d\d \w{3} 00:00 Europe/Berlin$", ending.err.strip())
    [line] = [each for each in call("status").out.splitlines() if "held  " in each]
    assert "a.org:1" in line
    assert "or later" not in call("status").out  # the reason has the time already


def test_a_member_of_a_crew_without_a_ledger_has_its_times_in_the_zone_of_the_plan(
    call: Call,
) -> None:
    Path("horae.toml").write_text('zone = "Europe/Berlin"\ncrew.def = "crew.org"\n')
    Path("crew.org").write_text("* deps\n:PROPERTIES:\n:DEF: deps.org\n:INTERVAL: 6h\n:END:\n")
    Path("deps.org").write_text(
        "* deps :agent:\n:PROPERTIES:\n:COMMAND: cat\n:END:\n** System prompt\nGo.\n"
    )
    said = call("why", "deps", "--at", "2026-06-06T09:00:00Z").out
    assert "2026-06-06 Sat 11:01 Europe/Berlin  scheduled in 1m (an estimate)" in said


def test_a_time_in_the_output_of_a_program_stays_as_it_is(call: Call) -> None:
    Path("horae.toml").write_text('zone = "Europe/Berlin"\n')
    drawer = ":PROPERTIES:\n:SCHEDULE: 0 9 * * *\n:COMMAND: echo at 2026-11-16T12:55:11Z\n:END:\n"
    Path("a.org").write_text(f"* One\n{drawer}")
    call("run", "One", "--wait")
    for shown in (call("why", "One").out, call("history").out):
        assert "at 2026-11-16T12:55:11Z" in shown
        assert "13:55" not in shown
