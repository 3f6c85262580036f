"""`horae status`, `history`, `why`, `pause`, `resume` and `backfill`: what the ledger knows."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import datetime, timedelta
from pwd import getpwuid
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

import one_run
from horae.cli.connection import Place, ask
from horae.core.decide import decide
from horae.core.ports import EntryStep, Process
from horae.core.receipt import Status
from horae.core.source import Revision, Scan
from horae.org.document import read
from horae.sources.plans.arming import scan_plan
from horae.store.sqlite import SqliteLedger
from reasons import because

if TYPE_CHECKING:
    from pathlib import Path

    from calling import Call

PLAN = """\
* Digest :workflow:
:PROPERTIES:
:SCHEDULE: 0 9 * * *
:ID: digest-1
:END:
Read the news.
* Poll :workflow:
:PROPERTIES:
:SCHEDULE: 0 * * * *
:CATCHUP: none
:TZ: America/New_York
:END:
Ask.
* Never :workflow:
:PROPERTIES:
:SCHEDULE: 0 0 30 2 *
:END:
* Digest archive :workflow:
SCHEDULED: <2026-04-09 Thu 07:00 ++1w>
"""

SEEN = datetime.fromisoformat("2026-04-01T04:30Z")
NINE = datetime.fromisoformat("2026-04-01T07:00Z")  # in Berlin
USER = getpwuid(os.getuid()).pw_name
LOOK = "2026-04-01 12:00"  # from which most tests look back


async def lived(ledger: SqliteLedger) -> None:
    """Let a ledger see a plan, and one morning of it."""
    found = scan_plan(read(PLAN), file="plan.org", zone_name="Europe/Berlin")
    await ledger.scan("org", Scan(tuple(found)), now=SEEN, term=1, revision=Revision("c0ffee"))
    for now in (NINE, NINE + timedelta(minutes=125)):
        steps = [
            EntryStep(due.entry, decide(due.entry, now=now)) for due in await ledger.due(now=now)
        ]
        for filed in await ledger.decide(steps, now=now, term=1):
            if filed.status is Status.WAITING and filed.title == "Digest":
                run = await one_run.start(ledger, filed.number, now=now, term=1)
                assert run is not None
                await one_run.running(ledger, run.number, Process(1, 1), now=now, term=1)
                await one_run.end(
                    ledger,
                    run.number,
                    Status.FAILED,
                    reason=because("no news"),
                    now=now,
                    term=1,
                    exit_code=3,
                )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory after one morning, in the directory where commands are called."""

    async def making() -> None:
        ledger = await SqliteLedger.open(tmp_path / ".horae", now=SEEN)
        await lived(ledger)
        await ledger.close()

    asyncio.run(making())
    return tmp_path / ".horae"


def test_without_a_ledger_every_command_says_what_makes_one(call: Call) -> None:
    for args in (
        ["status"],
        ["history"],
        ["why", "Digest"],
        ["pause", "Digest"],
        ["resume", "Digest"],
        ["backfill", "Digest", "--from", "2026-01-01"],
    ):
        ending = call(*args)
        assert (ending.code, ending.out) == (4, "")
        assert "no ledger in .horae; run `horae up` to create one" in ending.err
    error = json.loads(call("status", "--json").err)["error"]
    assert (error["code"], error["facts"]) == ("no_ledger", {"directory": ".horae"})


def test_a_ledger_that_vanished_is_no_fresh_start(call: Call, data: Path) -> None:
    (data / "ledger.db").unlink()
    for args in (["status"], ["pause", "Digest"]):
        ending = call(*args)
        assert ending.code == 5
        assert "the ledger file is missing; restore a backup" in ending.err


def test_a_look_does_not_hide_that_the_last_writes_were_lost(call: Call, data: Path) -> None:
    (data / "ledger.db-open").touch()
    (data / "ledger.db-wal").unlink(missing_ok=True)
    for command in ("status", "doctor", "backup", "status"):
        ending = call(command, "--json")
        assert ending.code != 0
        assert "its log (ledger.db-wal) with the last" in ending.out + ending.err
    assert not (data / "ledger.db-wal").exists()


@pytest.mark.parametrize("junk", ["garbage{", 2**62, -9e30])
@pytest.mark.parametrize("cell", ["receipt.policy", "receipt.work", "receipt.agents", "entry.spec"])
def test_a_damaged_cell_is_named_with_its_row_and_a_remedy(
    call: Call, data: Path, cell: str, junk: object
) -> None:
    table, column = cell.split(".")
    with closing(sqlite3.connect(data / "ledger.db")) as connection:
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {column} IS NOT NULL", (junk,))
        connection.commit()
    for words in ("history", "why Digest"):
        ending = call(*words.split())
        assert ending.code == 5, ending.err
        assert f"the row of {table} " in ending.err
        assert "restore a backup with `horae restore FILE`" in ending.err


def test_a_ledger_of_another_version_is_not_read(call: Call, data: Path) -> None:
    for version, code, remedy in (
        (99, 5, "use the newer horae that wrote it"),
        (0, 1, "`horae up` upgrades it"),
    ):
        with closing(sqlite3.connect(data / "ledger.db")) as connection:
            connection.execute(f"PRAGMA user_version = {version}")
        ending = call("status")
        assert (ending.code, remedy in ending.err) == (code, True)


@pytest.mark.usefixtures("data")
def test_a_status_shows_every_time_with_its_zone(call: Call) -> None:
    ending = call("status", "--at", LOOK, "--table")
    assert ending.code == 0
    lines = ending.out.splitlines()
    assert lines[0] == "2026-04-01 Wed 12:00 Europe/Berlin, .horae: no engine is running"
    assert lines[1] == "3 entries armed, 1 waiting"
    text = "\n".join(" ".join(line.split()) for line in lines)
    assert "next\n2026-04-01 Wed 06:00 America/New_York Poll plan.org:7" in text
    assert "2026-04-02 Thu 09:00 Europe/Berlin Digest plan.org:1" in text
    assert "failed in the last day\n2026-04-01 Wed 09:00 Europe/Berlin Digest" in text
    assert "missed in the last day\n2026-04-01 Wed 05:00 America/New_York Poll" in text
    assert "not armed\nNever plan.org:14" in text


@pytest.mark.usefixtures("data")
def test_a_status_is_one_object_for_programs(call: Call) -> None:
    data = call("status", "--at", LOOK, "--json").data
    assert data["at"] == "2026-04-01T12:00:00+02:00"
    assert data["engine"] == {"running": False, "data": ".horae", "pid": None, "since": None}
    assert data["counts"] == {"waiting": 1, "held": 0, "starting": 0, "running": 0}
    assert [row["title"] for row in data["next"]] == ["Poll", "Digest", "Digest archive"]
    assert [row["status"] for row in data["failed"]] == ["failed"]
    line = call("status", "--at", LOOK, "--jsonl").out
    assert json.loads(line) == data
    assert line.count("\n") == 1


def test_reading_goes_on_while_an_engine_has_the_lock_and_writing_names_it(
    call: Call, data: Path
) -> None:
    program = (
        "import asyncio, sys\nfrom datetime import datetime, UTC\nfrom pathlib import Path\n"
        "from horae.store.sqlite import SqliteLedger\n"
        "async def hold():\n"
        f"    now = datetime(2026, 4, 1, tzinfo=UTC)\n"
        f"    ledger = await SqliteLedger.open(Path({str(data)!r}), now=now)\n"
        "    print('held', flush=True)\n"
        "    await asyncio.to_thread(sys.stdin.read)\n"
        "    await ledger.close()\n"
        "asyncio.run(hold())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as engine:
        assert engine.stdout is not None
        assert engine.stdout.readline() == "held\n"
        status = call("status", "--at", LOOK, "--json")
        assert status.data["engine"]["running"] is True
        assert status.data["engine"]["pid"] == engine.pid
        assert len(call("history", "--json").data) > 0
        assert call("why", "Digest").code == 0
        assert (
            call(
                "backfill", "Digest", "--from", "2020-01-01", "--to", "2020-01-03", "--dry-run"
            ).code
            == 0
        )
        for args, code in (
            (["pause", "Digest"], 3),
            (["restore", str(data / "ledger.db")], 6),
        ):
            ending = call(*args)
            assert ending.code == code
            assert f"process {engine.pid}" in ending.err
        place = Place.of(root=".", data=str(data))
        ask(place, lambda ledger: ledger.backup(data / "copy.db"))
        assert (data / "ledger.db-open").exists(), "a reader must not say that it is closed"
        assert call("status", "--at", LOOK, "--json").data["engine"]["pid"] == engine.pid
        engine.communicate("")
    assert call("status", "--at", LOOK, "--json").data["engine"]["running"] is False


@pytest.mark.usefixtures("data")
def test_a_history_is_an_array_of_receipts(call: Call) -> None:
    rows = call("history", "digest-1", "--json").data
    assert [(row["status"], row["planned_at"]) for row in rows] == [
        ("failed", "2026-04-01T09:00:00+02:00")
    ]
    assert (rows[0]["commit"], rows[0]["zone"]) == ("c0ffee", "Europe/Berlin")
    everything = call("history", "--json").data
    assert {row["zone"] for row in everything} == {"Europe/Berlin", "America/New_York"}
    missed = call("history", "--status", "missed", "--jsonl").out.splitlines()
    assert {json.loads(line)["status"] for line in missed} == {"missed"}


@pytest.mark.usefixtures("data")
def test_a_history_goes_on_where_it_was_cut(call: Call) -> None:
    numbers = [row["receipt"] for row in call("history", "--json").data]
    table = call("history", "-n", "2", "--table").out
    assert table.endswith(f"there is more: --cursor {numbers[1]}\n")
    rest = call("history", "--cursor", str(numbers[1]), "--json").data
    assert [row["receipt"] for row in rest] == numbers[2:]


@pytest.mark.usefixtures("data")
def test_a_history_of_nothing_says_so(call: Call) -> None:
    ending = call("history", "--since", "2030-01-01", "--table")
    assert (ending.code, ending.out) == (0, "no receipts\n")
    assert call("history", "--since", "2030-01-01", "--json").data == []
    assert call("history", "--since", "1d", "--at", "2030-01-02", "--json").data == []
    assert call("history", "--since", "36500d", "--json").data != []
    assert call("history", "--status", "limited").code == 2  # of a run, not of a receipt
    assert call("history", "--status", "lost").code == 2
    assert call("history", "--since", "yesterday").code == 2


@pytest.mark.usefixtures("data")
def test_why_tells_all_that_is_known_of_a_moment(call: Call) -> None:
    ending = call("why", "digest@2026-04-01T09:00", "--at", LOOK, "--table")
    assert ending.code == 0
    assert ending.out.splitlines() == [
        "Digest  plan.org:1  entry 1",
        "at 09:00 every day (Europe/Berlin)",
        "",
        "2026-04-01 Wed 09:00 Europe/Berlin  failed: no news",
        "  receipt created 2026-04-01 Wed 09:00 Europe/Berlin",
        "  receipt 4 (key cron:2026-04-01T07:00:00Z), from plan.org:1, text of commit c0ffee",
        "  catch-up latest, overlap skip",
        "  attempt 1 (run 1): started 2026-04-01 Wed 09:00 Europe/Berlin, failed after 0s, exit code 3 (no news)",
    ]


@pytest.mark.usefixtures("data")
def test_why_says_without_an_engine_that_the_entry_may_have_changed(call: Call) -> None:
    said = "entries as last read from the plan files (no engine is running)"
    assert said in call("why", "Digest").err


@pytest.mark.usefixtures("data")
def test_why_names_the_neighbours_of_what_is_no_moment(call: Call) -> None:
    ending = call("why", "Digest@2026-04-05 10:00", "--at", LOOK, "--table")
    assert ending.out.splitlines()[3:] == [
        "2026-04-05 Sun 10:00 Europe/Berlin  not a scheduled time of the rule",
        "  the nearest before: 2026-04-05 Sun 09:00 Europe/Berlin",
        "  the nearest after: 2026-04-06 Mon 09:00 Europe/Berlin",
    ]
    data = call("why", "Digest@2026-04-05 10:00", "--at", LOOK, "--json").data
    assert data["answers"][0]["moment"] is False
    assert data["after"] == "2026-04-06T09:00:00+02:00"
    day = call("why", "Digest archive@2026-04-05", "--at", LOOK, "--table").out
    assert "2026-04-05 Sun 00:00 Europe/Berlin  no scheduled time on this day\n" in day


@pytest.mark.usefixtures("data")
def test_text_into_a_pipe_has_no_blanks_at_the_ends_of_lines(call: Call) -> None:
    for words in (("status", "--at", LOOK), ("history",), ("list",)):
        lines = call(*words, "--table").out.splitlines()
        assert len(lines) > 2
        assert [each for each in lines if each.endswith(" ")] == []


@pytest.mark.usefixtures("data")
def test_why_tells_of_times_in_a_row_with_the_same_reason_once(call: Call) -> None:
    asked = ("why", "Poll@2026-03-31", "--at", LOOK)
    seen = "the entry was first seen later, at 2026-04-01 Wed 00:30 America/New_York"
    day = "2026-03-31 Tue 00:00 to 23:00 America/New_York, 24 times"
    assert call(*asked, "--table").out.splitlines()[3:] == [
        f"{day}  {seen}; earlier times do not run"
    ]
    assert len(call(*asked, "-n", "3", "--json").data["answers"]) == 3
    mixed = call("why", "Poll@2026-04-01", "--at", LOOK, "-n", "2", "--table").out.splitlines()
    assert mixed[3].startswith("2026-04-01 Wed 00:00 America/New_York  the entry was first seen")
    assert mixed[-1] == "not all are shown; increase -n"


@pytest.mark.usefixtures("data")
def test_the_last_day_of_a_status_is_that_before_its_time(call: Call) -> None:
    now, before = (call("status", "--at", at, "--json").data for at in (LOOK, "2020-01-01"))
    assert [each["title"] for each in now["failed"]] == ["Digest"]
    assert [*before["failed"], *before["missed"], *before["late"]] == []


@pytest.mark.usefixtures("data")
def test_an_entry_that_nobody_knows_or_that_is_not_clear_is_an_error(call: Call) -> None:
    ending = call("why", "Digets")
    assert ending.code == 4
    assert "no entry is called 'Digets'; did you mean 'Digest'" in ending.err
    error = json.loads(call("pause", "Digets", "--json").err)["error"]
    assert (error["code"], error["facts"]["near"][0]) == ("entry_not_found", "Digest")
    assert call("why", "Digest@2026-99-01").code == 2


@pytest.mark.usefixtures("data")
def test_an_entry_rests_until_it_is_resumed(call: Call) -> None:
    ending = call("pause", "Digest", "--note", "away", "--until", "2h", "--table")
    assert ending.code == 0
    assert ending.out.startswith(
        f"Digest (entry 1) is paused by {USER}, on the command line, since "
    )
    assert ending.out.endswith(" Europe/Berlin (away)\n")
    assert [row["title"] for row in call("status", "--json").data["paused"]] == ["Digest"]
    again = call("pause", "Digest", "--table")
    assert (again.code, "is already paused by" in again.out) == (0, True)
    conflict = call("pause", "Digest", "--until", "3h")
    assert (conflict.code, "the entry is already paused by" in conflict.err) == (6, True)
    assert call("resume", "Digest", "--json").data["changed"] is True
    assert call("resume", "Digest", "--table").out.startswith("Digest (entry 1) is not paused")
    assert call("status", "--json").data["paused"] == []


def test_who_requested_a_receipt_is_told_in_history_and_why(call: Call, data: Path) -> None:
    asked = ["backfill", "Digest", "--from", "2020-03-28", "--to", "2020-03-29"]
    [number] = call(*asked, "--json").data["receipts"]

    async def ended() -> None:
        ledger = await SqliteLedger.open(data, now=NINE)
        run = await one_run.start(ledger, number, now=NINE, term=1)
        assert run is not None
        await one_run.running(ledger, run.number, Process(1, 1), now=NINE, term=1)
        await one_run.end(
            ledger, run.number, Status.DONE, reason=because("it ended well"), now=NINE, term=1
        )
        await ledger.close()

    before = call("history", "-n", "1", "--table").out
    assert f"requested by {USER}, on the command line, " in " ".join(before.split())
    asyncio.run(ended())
    row, *others = call("history", "--json").data
    assert (row["actor"], row["reason"]) == (f"cli:{USER}", "it ended well")
    assert {each["actor"] for each in others} == {"engine"}
    table = " ".join(call("history", "-n", "1", "--table").out.split())
    assert f"it ended well; requested by {USER}, on the command line" in table
    why = call("why", "Digest@2020-03-28", "--table").out
    assert f"\n  requested by {USER}, on the command line\n" in why
    *_, told = call("why", "Digest@2020-03-28", "--json").data["answers"]
    assert told["actor"] == f"cli:{USER}"


def test_a_command_inside_a_run_acts_for_its_agent_until_that_run_is_over(
    call: Call, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def started() -> int:
        ledger = await SqliteLedger.open(data, now=NINE)
        found = next(each for each in (await ledger.receipts()).receipts if each.title == "Poll")
        receipt = replace(found.receipt, key="manual:1", status=Status.WAITING)
        [filed] = await ledger.add(found.entry, [receipt], now=NINE, term=1)
        run = await one_run.start(ledger, filed.number, now=NINE, term=1)
        await ledger.close()
        assert run is not None
        return run.number

    async def ended(run: int) -> None:
        ledger = await SqliteLedger.open(data, now=NINE)
        await one_run.running(ledger, run, Process(1, 1), now=NINE, term=1)
        assert await one_run.end(ledger, run, Status.DONE, reason=because(""), now=NINE, term=1)
        await ledger.close()

    def paused_by() -> object:
        by = call("pause", "Digest", "--json").data["pause"]["by"]
        call("resume", "Digest")
        return by

    run = asyncio.run(started())
    monkeypatch.setenv("HORAE_RUN", str(run))
    assert paused_by() == f"cli:{USER}", "a run of which engine is not said"
    monkeypatch.setenv("HORAE_DATA", str(data))
    assert paused_by() == "agent:Poll"
    for wrong in ("99", "-1", "x", "9" * 30):
        monkeypatch.setenv("HORAE_RUN", wrong)
        assert paused_by() == f"cli:{USER}"
    monkeypatch.setenv("HORAE_RUN", str(run))
    asyncio.run(ended(run))
    assert paused_by() == f"cli:{USER}"


@pytest.mark.usefixtures("data")
def test_the_end_of_a_pause_lies_ahead(call: Call) -> None:
    ending = call("pause", "Digest", "--until", "2020-01-01")
    assert ending.code == 2
    assert (
        ending.err
        == "horae: 2020-01-01 Wed 00:00 Europe/Berlin is in the past; name a later time\n"
    )
    assert call("pause", "Digest", "--until", "soon").code == 2


@pytest.mark.usefixtures("data")
def test_a_backfill_lists_first_and_then_files_the_same(call: Call) -> None:
    asked = ["backfill", "Digest", "--from", "2020-03-28", "--to", "2020-03-30"]
    listed = call(*asked, "--dry-run", "--table")
    assert listed.out.splitlines() == [
        "2020-03-28 Sat 09:00 Europe/Berlin",
        "2020-03-29 Sun 09:00 Europe/Berlin",
        "Digest (entry 1) from 2020-03-28 Sat 00:00 Europe/Berlin to 2020-03-30 Mon 00:00 Europe/Berlin: 2 runs would be created",
    ]
    assert call("history", "--until", "2020-12-31", "--json").data == []
    filed = call(*asked, "--id", "spring", "--json").data
    assert (filed["id"], filed["count"], len(filed["receipts"])) == ("spring", 2, 2)
    assert call(*asked, "--id", "spring", "--json").data == filed
    rows = call("history", "--until", "2020-12-31", "--json").data
    assert [row["key"] for row in rows] == [
        "backfill:spring:2020-03-29T07:00:00Z",
        "backfill:spring:2020-03-28T08:00:00Z",
    ]


@pytest.mark.usefixtures("data")
def test_too_long_a_backfill_says_how_many_it_would_be(call: Call) -> None:
    ending = call("backfill", "Poll", "--from", "2000-01-01", "--to", "2020-01-01")
    assert ending.code == 2
    assert (
        "the period has 175,320 scheduled times, and a backfill can have at most 10,000"
        in ending.err
    )


@pytest.mark.usefixtures("data")
def test_a_backfill_without_moments_says_so(call: Call) -> None:
    ending = call(
        "backfill", "Digest", "--from", "2020-01-01 10:00", "--to", "2020-01-02", "--table"
    )
    assert (ending.code, "has no scheduled time from 2020-01-01 Wed 10:00" in ending.out) == (
        0,
        True,
    )


def test_a_ledger_elsewhere_is_named_by_root_or_by_data(
    call: Call, data: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "there"
    elsewhere.mkdir()
    data.rename(elsewhere / ".horae")
    assert call("status").code == 4
    assert len(call("history", "--root", "there", "--json").data) > 0
    assert len(call("history", "--data", "there/.horae", "--json").data) > 0
