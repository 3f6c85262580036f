"""`horae backup`, `restore`, `prune` and `doctor`: how the ledger is kept well."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import stat
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from horae.cli.doctor import (
    Grade,
    check_clock,
    check_disk,
    check_python,
    check_sqlite,
    has_log_fault,
)
from horae.core.actor import user_name
from horae.core.decide import decide
from horae.core.ports import EntryStep
from horae.core.source import Scan
from horae.core.views import DiskLine
from horae.org.document import read
from horae.process.cgroup import standing
from horae.process.processes import can_kill_trees
from horae.sources.plans.arming import scan_plan
from horae.store.sqlite import SqliteLedger

if TYPE_CHECKING:
    from pathlib import Path

    from calling import Call, Ending

PLAN = """\
* Poll :workflow:
:PROPERTIES:
:SCHEDULE: 0 9 * * *
:CATCHUP: none
:END:
"""
SEEN = datetime.fromisoformat("2020-04-01T08:00Z")
DAYS = 30


async def lived(ledger: SqliteLedger) -> None:
    """Let a ledger see a plan, and a month in which every moment was missed and settled."""
    found = scan_plan(read(PLAN), file="plan.org", zone_name="UTC")
    await ledger.scan("org", Scan(tuple(found)), now=SEEN, term=1)
    for day in range(DAYS):
        now = SEEN + timedelta(days=day, hours=2)
        steps = [
            EntryStep(due.entry, decide(due.entry, now=now)) for due in await ledger.due(now=now)
        ]
        filed = await ledger.decide(steps, now=now, term=1)
        await ledger.settle([each.number for each in filed], now=now, term=1)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a month in it, in the directory where commands are called."""

    async def making() -> None:
        ledger = await SqliteLedger.open(tmp_path / ".horae", now=SEEN)
        await lived(ledger)
        await ledger.close()

    asyncio.run(making())
    return tmp_path / ".horae"


def checks(ending: Ending) -> dict[str, tuple[str, str]]:
    """Return grade and remedy of each check."""
    return {row["check"]: (row["grade"], row["remedy"] or "") for row in ending.data}


# Backup and restore


def test_a_backup_is_put_with_the_others_and_can_be_restored(call: Call, data: Path) -> None:
    ending = call("backup", "--json")
    target = data.parent / ending.data["backup"]
    assert ending.code == 0
    assert target.parent == data / "backups"
    assert target.stat().st_size == ending.data["bytes"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    before = call("history", "-n", "100", "--json").data
    call("pause", "Poll")
    restored = call("restore", str(target), "--json")
    assert restored.code == 0
    aside = data.parent / restored.data["aside"]
    by = "SELECT actor FROM event WHERE kind = 'restored'"
    with closing(sqlite3.connect(data / "ledger.db")) as connection:
        assert connection.execute(by).fetchone() == (f"cli:{user_name(os.getuid())}",)
    assert aside.is_file()
    assert call("status", "--json").data["paused"] == []
    assert [row["key"] for row in call("history", "-n", "100", "--json").data][-len(before) :] == [
        row["key"] for row in before
    ]


def test_a_backup_goes_where_it_is_told_to(call: Call, data: Path, tmp_path: Path) -> None:
    assert call("backup", "copy.db", "--json").data["backup"] == "copy.db"
    (tmp_path / "shelf").mkdir()
    assert call("backup", "shelf", "--json").data["backup"].startswith("shelf/ledger-")
    assert call("backup", "copy2.db", "--table").out.endswith(", verified\n")


@pytest.mark.usefixtures("data")
def test_a_backup_never_replaces_what_is_there(call: Call, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear")
    for name in ("letter.txt", ".horae/ledger.db"):
        ending = call("backup", name)
        assert ending.code == 6
        assert ending.err == (
            f"horae: {name}: the file exists; name another file, or give no name\n"
        )
    assert (tmp_path / "letter.txt").read_text() == "Dear"
    for name in ("nowhere/copy.db", "nowhere/"):
        ending = call("backup", name)
        assert (ending.code, "the directory does not exist" in ending.err) == (4, True)


def test_without_a_ledger_there_is_nothing_to_back_up_or_prune(call: Call, tmp_path: Path) -> None:
    for name in ("backup", "prune"):
        ending = call(name)
        assert (ending.code, "no ledger in .horae" in ending.err) == (4, True)
    assert not (tmp_path / ".horae").exists()


def test_what_is_no_backup_is_not_restored(call: Call, data: Path, tmp_path: Path) -> None:
    (tmp_path / "letter.db").write_text("Dear")
    was = (data / "ledger.db").read_bytes()
    assert call("restore", "letter.db").code == 5
    missing = call("restore", "nowhere.db")
    assert (missing.code, "nowhere.db: the file does not exist; " in missing.err) == (4, True)
    assert (data / "ledger.db").read_bytes() == was


def test_a_restore_says_what_is_wrong_with_the_file_and_names_the_backups(
    call: Call, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "letter.org").write_text("* Pay the rent, which is due on the first\n")
    (tmp_path / "empty.db").touch()
    for name, code, reason in (
        ("letter.org", 5, "not a backup: the file is not an SQLite database"),
        ("nowhere.db", 4, "the file does not exist"),
        (".", 4, "cannot be read (Is a directory)"),
        ("empty.db", 5, "not a backup: the file is empty"),
    ):
        ending = call("restore", name)
        said = f"horae: {name}: {reason}; there are no backups in .horae/backups\n"
        assert (ending.code, ending.err) == (code, said)
    call("backup")
    [backup] = (data / "backups").iterdir()
    said = f"the file does not exist; there is one backup: .horae/backups/{backup.name}\n"
    assert call("restore", "nowhere.db").err.endswith(said)
    (tmp_path / "cut.db").write_bytes(backup.read_bytes()[:9000])
    assert "cut.db: the backup is damaged (" in call("restore", "cut.db").err


def test_a_restore_into_nothing_says_that_there_was_none(
    call: Call, data: Path, tmp_path: Path
) -> None:
    call("backup", "copy.db")
    ending = call("restore", "copy.db", "--data", "fresh", "--table")
    assert ending.code == 0
    assert ending.out == (
        "restored copy.db as the ledger of fresh; scheduled times that have passed do not run; there was no ledger before\n"
    )
    assert len(call("history", "--data", "fresh", "--json").data) > 0


def test_a_restore_names_what_was_left_of_a_ledger(call: Call, data: Path) -> None:
    call("backup")
    for suffix in ("", "-shm"):
        (data / f"ledger.db{suffix}").unlink(missing_ok=True)
    (data / "ledger.db-wal").write_bytes(b"")
    ending = call("doctor", "--restore", "--table")
    assert ending.code == 0
    [kept] = data.glob("ledger-before-*")
    missing = "the database of the previous ledger was missing"
    assert ending.out.endswith(f"; {missing}; kept: .horae/{kept.name}\n")


# Prune


@pytest.mark.usefixtures("data")
def test_pruning_folds_what_is_old_and_trying_it_does_not(call: Call) -> None:
    tried = call("prune", "--before", "1y", "--dry-run", "--json").data
    assert (tried["receipts"], tried["dry_run"]) == (DAYS - 1, True)
    assert len(call("history", "-n", "100", "--json").data) == DAYS
    assert call("prune", "--before", "90d", "--json").data["receipts"] == DAYS - 1
    [row] = call("history", "--json").data
    assert (row["count"], row["through_at"]) == (DAYS, "2020-04-30T09:00:00Z")


@pytest.mark.usefixtures("data")
def test_what_is_younger_stays(call: Call) -> None:
    ending = call("prune", "--before", "2020-04-01", "--table")
    assert ending.code == 0
    assert ending.out.startswith(
        "removed details from before 2020-04-01 Wed 00:00 Europe/Berlin: 0 receipts"
    )
    future = call("prune", "--before", "2999-01-01")
    assert (future.code, "2999-01-01 is in the future; name a past time" in future.err) == (2, True)
    assert call("prune", "--before", "long ago").code == 2


# Doctor


def test_a_doctor_looks_at_everything_and_finds_it_well(call: Call, data: Path) -> None:
    call("backup")
    ending = call("doctor", "--json")
    assert ending.code == 0
    found = checks(ending)
    assert {
        "python", "reader", "sqlite", "clock", "zones", "data directory", "permissions", "disk", "engine",
        "ledger", "ledger clock", "backups", "runs", "cgroups", "git", "languages", "plan root", "port",
    } <= found.keys()  # fmt: skip
    assert {grade for grade, _ in found.values()} <= {"ok", "warn"}
    table = call("doctor", "--json", "--table")
    assert "what to do" in table.out
    lines = call("doctor", "--json", "--jsonl").out.splitlines()
    assert json.loads(lines[0])["check"] == "python"


def test_a_doctor_says_how_surely_runs_are_ended_and_what_can_be_limited(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {each["check"]: each for each in json.loads(call("doctor", "--json").out)}
    assert told["cgroups"]["found"] == standing().words.partition("; ")[0]
    assert told["runs"]["grade"] == ("ok" if can_kill_trees() else "warn")
    monkeypatch.setattr("horae.process.processes.can_kill_trees", lambda: False)
    assert checks(call("doctor", "--json"))["runs"] == ("warn", "use Linux 5.3 or newer")


def test_a_doctor_needs_no_ledger(call: Call, tmp_path: Path) -> None:
    ending = call("doctor", "--json")
    assert ending.code == 0
    assert checks(ending)["data directory"] == ("ok", "`horae up` creates it")
    assert not (tmp_path / ".horae").exists()


def test_a_doctor_sees_what_others_can_read(call: Call, data: Path) -> None:
    data.chmod(0o755)
    (data / "ledger.db").chmod(0o644)
    grade, remedy = checks(call("doctor", "--json"))["permissions"]
    assert (grade, remedy) == ("warn", "chmod 700 .horae; chmod 600 .horae/ledger.db")


def test_a_doctor_sees_a_clock_that_was_set_back(call: Call, data: Path) -> None:
    async def ahead() -> None:
        future = datetime(2999, 1, 1, 12, tzinfo=UTC)
        ledger = await SqliteLedger.open(data, now=future)
        steps = [
            EntryStep(due.entry, decide(due.entry, now=future))
            for due in await ledger.due(now=future)
        ]
        await ledger.decide(steps, now=future, term=1)
        await ledger.close()

    asyncio.run(ahead())
    assert checks(call("doctor", "--json"))["ledger clock"][0] == "warn"


@pytest.mark.parametrize("how", ["empty", "gone", "cut", "nonsense"])
def test_a_doctor_restores_the_newest_backup_that_is_whole(
    call: Call, data: Path, how: str
) -> None:
    older = call("backup", "--json").data["backup"]
    (data / "backups" / "newer.db").write_text("not a ledger")
    path = data / "ledger.db"
    match how:
        case "empty":
            path.write_bytes(b"")
        case "gone":
            path.unlink()
        case "cut":
            path.write_bytes(path.read_bytes()[:5000])
        case "nonsense":
            path.write_bytes(b"nonsense" * 1000)
    sick = call("doctor", "--json")
    assert (sick.code, checks(sick)["ledger"]) == (
        1,
        ("fail", "run `horae doctor --restore`, or without a backup `horae up --fresh-ledger`"),
    )
    healed = call("doctor", "--json", "--restore", "--json")
    assert healed.code == 0
    assert healed.data["restored"] == older
    assert "newer.db" in healed.err
    assert checks(call("doctor", "--json"))["ledger"][0] == "ok"
    assert call("status").code == 0


def test_a_doctor_restores_nothing_over_a_ledger_that_is_whole(call: Call, data: Path) -> None:
    call("backup")
    was = (data / "ledger.db").read_bytes()
    ending = call("doctor", "--json", "--restore")
    assert (ending.code, "the ledger is intact, so nothing was restored" in ending.err) == (6, True)
    assert (data / "ledger.db").read_bytes() == was


def test_a_doctor_without_a_whole_backup_says_so(call: Call, data: Path) -> None:
    (data / "ledger.db").write_bytes(b"")
    ending = call("doctor", "--json", "--restore")
    assert (ending.code, "no backup to restore; name another file" in ending.err) == (4, True)
    (data / "backups").mkdir()
    (data / "backups" / "a.db").write_text("not a ledger")
    assert "none of 1 is intact" in call("doctor", "--json", "--restore").err
    assert checks(call("doctor", "--json"))["backups"] == (
        "fail",
        "run `horae backup` while the ledger is intact",
    )


@pytest.mark.parametrize(
    ("version", "is_faulty"),
    [
        ((3, 6, 23), False),
        ((3, 7, 0), True),
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 52, 0), True),
        ((3, 52, 1), False),
        ((3, 53, 0), False),
    ],
)
def test_the_fault_of_the_log_is_known_by_version(
    version: tuple[int, ...], is_faulty: bool
) -> None:
    assert has_log_fault(version) is is_faulty
    if version >= (3, 35):
        assert check_sqlite(version).grade is (Grade.WARN if is_faulty else Grade.OK)


def test_an_unlikely_year_is_seen() -> None:
    assert check_clock(datetime(2026, 4, 1, 12, tzinfo=UTC), "UTC").grade is Grade.OK
    assert check_clock(datetime(1970, 1, 1, tzinfo=UTC), "UTC").grade is Grade.FAIL


def test_little_room_and_other_systems_are_seen() -> None:
    rooms = [
        DiskLine(at=datetime.now(UTC), free=size * 2**20, held={"runs": 1})
        for size in (15, 511, 512)
    ]
    assert [check_disk(each).grade for each in rooms] == [Grade.FAIL, Grade.WARN, Grade.OK]
    assert check_python((3, 10, 4), "linux").grade is Grade.FAIL
    assert [check_python((3, 12), name).grade for name in ("linux", "darwin", "win32")] == [
        Grade.OK,
        Grade.WARN,
        Grade.WARN,
    ]
