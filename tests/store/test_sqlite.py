"""What is particular to the ledger on SQLite: its file, and all that can happen to one."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import TYPE_CHECKING, Any

import pytest

import one_run
from commands import run_command
from horae.core.decide import decide
from horae.core.entry import Entry
from horae.core.ports import (
    EntryStep,
    LedgerBusyError,
    LedgerDamagedError,
    LedgerError,
    LedgerNewerError,
    LedgerWholeError,
    LedgerWriteError,
    Process,
    StaleTermError,
)
from horae.core.receipt import Status
from horae.core.source import Scan
from horae.errors import Exit
from horae.store import database
from horae.store.codec import write_entry
from horae.store.lock import DataLockedError
from horae.store.sql import migrations, named, queries, theme
from horae.store.sqlite import SqliteLedger, restore, start_afresh
from scale import scaled
from store.ledger_0_1 import ENTRIES, STATUSES, VERSION, put_into, verify
from store.ledger_suite import (
    DAY,
    HOUR,
    MINUTE,
    NINE,
    NOW,
    asked,
    decided,
    delay,
    history,
    known,
    plan,
    scanned,
    story,
    taken,
    waiting,
    workflow,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from horae.core.receipt import Filed
    from horae.store.ledger import Transaction

TESTS = Path(__file__).parent.parent


async def opened(directory: Path, **options: Any) -> SqliteLedger:
    return await SqliteLedger.open(directory, now=NOW, **options)


async def filled(directory: Path) -> None:
    """Leave a ledger with some history in a directory."""
    ledger = await opened(directory)
    await waiting(ledger)
    await ledger.close()


def database_in(directory: Path) -> Path:
    return directory / "ledger.db"


def value(path: Path, query: str) -> object:
    """Return what a query finds, read past the ledger."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchone()[0]


def child(program: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a program that may use what the tests use."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
    )


# The file


@story
async def test_the_data_directory_is_for_its_owner_alone_and_none_of_gits_business(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "plans" / ".horae"
    ledger = await opened(directory)
    await waiting(ledger)
    modes = {each.name: each.stat().st_mode & 0o777 for each in directory.iterdir()}
    assert directory.stat().st_mode & 0o777 == 0o700
    assert modes.keys() >= {".gitignore", "HORAE", "ledger.db", "ledger.db-wal", "lock"}
    assert set(modes.values()) == {0o600}
    assert (directory / ".gitignore").read_text() == "*\n"
    await ledger.close()


@story
async def test_an_open_data_directory_is_closed_to_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    await (await opened(tmp_path)).close()
    assert tmp_path.stat().st_mode & 0o777 == 0o700


@story
async def test_the_settings_are_those_that_keep_what_was_promised(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    settings = {
        name: ledger._writer.execute(f"PRAGMA {name}").fetchone()[0]
        for name in (
            "journal_mode",
            "synchronous",
            "foreign_keys",
            "trusted_schema",
            "busy_timeout",
            "user_version",
            "application_id",
        )
    }
    assert settings == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "trusted_schema": 0,
        "busy_timeout": 5000,
        "user_version": max(migrations()),
        "application_id": 0x486F7261,
    }
    await ledger.close()


@story
async def test_a_reader_cannot_write(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        ledger._reader.execute("DELETE FROM term")
    await ledger.close()


@story
async def test_every_query_has_a_name_a_sentence_and_fits_the_schema() -> None:
    ledger = await SqliteLedger.in_memory()
    folder = Path(database.__file__).parent / "sql"
    for path in sorted(folder.glob("*.sql")):
        text = path.read_text()
        assert len(queries(text)) == text.count("-- name:"), path.name
        for name, said in theme(path.stem).items():
            query = named("").get(f"{path.stem}.{name}", said)
            names = re.findall(r"(?<!'):([a-z_]+)", query)
            ledger._writer.execute(f"EXPLAIN {query}", dict.fromkeys(names, 1)).fetchall()
    await ledger.close()


@story
async def test_what_was_written_is_there_after_it_was_closed(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    entry, filed = await waiting(ledger)
    await ledger.close()
    again = await opened(tmp_path)
    assert await again.receipt(filed.number) == filed
    assert (await known(again, entry.number)).accounted_to == NINE
    assert not await decided(again, entry, NINE)
    await again.close()


@story
async def test_two_cannot_have_one_data_directory(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    with pytest.raises(DataLockedError):
        await opened(tmp_path)
    assert await taken(ledger, workflow())
    await ledger.close()
    await (await opened(tmp_path)).close()


def test_of_fifty_threads_that_decide_at_once_one_is_first(tmp_path: Path) -> None:
    ledger = asyncio.run(opened(tmp_path))
    [entry] = asyncio.run(taken(ledger, workflow()))
    answers: list[list[Filed]] = []
    barrier = Barrier(50)

    def race() -> None:
        barrier.wait()
        answers.append(asyncio.run(decided(ledger, entry, NINE)))

    threads = [Thread(target=race) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(len, answers)) == [0] * 49 + [1]
    assert asyncio.run(history(ledger, entry)) == ["1 waiting: the scheduled time was reached"]
    asyncio.run(ledger.close())


# What happens to a process

DECIDE_FOR_EVER = """
import asyncio, sys
from pathlib import Path
from horae.core.ports import Process, EntryStep
from horae.core.decide import decide; from horae.core.receipt import Status
from horae.store.sqlite import SqliteLedger
from reasons import because
from store.ledger_suite import MINUTE, NOW, known, plan, scanned, workflow

async def main():
    ledger = await SqliteLedger.open(Path(sys.argv[1]), now=NOW)
    found = plan(workflow("Poll", "* * * * *", "", ":OVERLAP: allow"))
    [entry] = await scanned(ledger, "org", found, now=NOW)
    while True:
        now = entry.accounted_to + MINUTE
        [filed] = await ledger.decide([EntryStep(entry, decide(entry, now=now))], now=now, term=1)
        print("waiting", filed.number, filed.receipt.key, flush=True)
        run = await one_run.start(ledger, filed.number, now=now, term=1)
        await one_run.running(ledger, run.number, Process(1, 1), now=now, term=1)
        print("running", filed.number, filed.receipt.key, flush=True)
        await one_run.end(ledger, run.number, Status.DONE, reason=because("it ended"), now=now, term=1)
        print("done", filed.number, filed.receipt.key, flush=True)
        if filed.number % 3 == 0:
            await ledger.settle([filed.number], now=now, term=1)
            print("settled", filed.number, filed.receipt.key, flush=True)
        entry = await known(ledger, entry.number)

asyncio.run(main())
"""
ORDER = ["waiting", "starting", "running", "done", "settled"]


def test_what_was_acknowledged_survives_every_kill_and_nothing_is_there_twice(
    tmp_path: Path,
) -> None:
    chance = random.Random(9)
    promised: dict[int, tuple[str, str]] = {}
    for _ in range(scaled(100)):
        process = child(DECIDE_FOR_EVER, tmp_path)
        assert process.stdout
        for line in itertools.islice(process.stdout, chance.randrange(1, 40)):
            word, number, key = line.split()
            promised[int(number)] = (word, key)
        process.kill()
        # What was on its way to us when it was killed was acknowledged too.
        for line in process.communicate()[0].splitlines():
            word, number, key = line.split()
            promised[int(number)] = (word, key)
        asyncio.run(keeps(tmp_path, promised))


async def keeps(directory: Path, promised: dict[int, tuple[str, str]]) -> None:
    """Look whether a ledger, after a kill, holds what it has promised, and is in itself right."""
    ledger = await opened(directory)
    page = await ledger.receipts(limit=1_000_000)
    held = {each.number: each for each in page.receipts}
    for number, (word, key) in promised.items():
        found = held[number]
        assert found.receipt.key == key
        shown = "settled" if found.settled_at else str(found.status)
        assert ORDER.index(shown) >= ORDER.index(word)
    assert max(Counter(each.receipt.key for each in page.receipts).values()) == 1
    [listed] = await ledger.entries()
    assert isinstance(listed.item, Entry)
    # Every minute up to the watermark has its receipt, and none has one beyond it.
    assert listed.item.accounted_to == NOW + len(held) * MINUTE
    assert max(each.receipt.planned_at for each in page.receipts) == listed.item.accounted_to
    unsettled = {each.number for each in await ledger.unsettled(limit=1_000_000)}
    assert unsettled == {
        each.number
        for each in page.receipts
        if each.settled_at is None and each.status is Status.DONE
    }
    await ledger.close()
    assert value(database_in(directory), "PRAGMA integrity_check") == "ok"


MIGRATE_AND_DIE = """
import os, signal, sqlite3, sys
from datetime import timedelta
from pathlib import Path
from horae.store import database

connect, patience = database._connect, timedelta(seconds=5)
outcomes = []
for last in range(1, 1000):
    directory = Path(sys.argv[1]) / str(last)
    database.prepare(directory)
    pid = os.fork()
    if pid == 0:
        seen = []
        def count(statement):
            seen.append(statement)
            if len(seen) == last:
                os.kill(os.getpid(), signal.SIGKILL)
        def traced(*arguments, **options):
            connection = connect(*arguments, **options)
            connection.set_trace_callback(count)
            return connection
        database._connect = traced
        database.close_writer(database.open_writer(directory, patience=patience), directory)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    with sqlite3.connect(directory / "ledger.db") as raw:
        version = raw.execute("PRAGMA user_version").fetchone()[0]
        tables = raw.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    raw.close()
    connection = database.open_writer(directory, patience=patience)
    assert connection.execute("SELECT number FROM term").fetchone()[0] == 1
    connection.close()
    print(os.WIFSIGNALED(status), version, tables > 0, flush=True)
    if not os.WIFSIGNALED(status):
        break
"""


def test_a_migration_that_is_killed_anywhere_is_done_or_not_begun(tmp_path: Path) -> None:
    process = child(MIGRATE_AND_DIE, tmp_path)
    lines = process.communicate()[0].splitlines()
    assert process.returncode == 0
    # Killed or not, version of the schema, whether there is any table.
    newest = max(migrations())
    killed = {f"True {version} True" for version in migrations()}
    assert set(lines) <= {"True 0 False", *killed, f"False {newest} True"}
    assert lines.count("True 0 False") > 10
    assert lines[-1] == f"False {newest} True"


COLUMNS = (
    'SELECT t.name, c.name, c.type, c."notnull", c.dflt_value, c.pk'
    " FROM sqlite_schema AS t JOIN pragma_table_info(t.name) AS c ORDER BY 1, 2"
)
INDEXES = "SELECT name, sql FROM sqlite_schema WHERE type = 'index' ORDER BY 1"


@story
async def test_a_ledger_from_before_version_0_1_is_refused_and_stays_as_it_is(
    tmp_path: Path,
) -> None:
    await filled(tmp_path)
    with closing(sqlite3.connect(database_in(tmp_path))) as raw:
        raw.execute("PRAGMA user_version = 5")
    was = database_in(tmp_path).read_bytes()
    with pytest.raises(LedgerError, match="version 5, and this horae supports 9 to"):
        await opened(tmp_path)
    assert database_in(tmp_path).read_bytes() == was


@story
async def test_a_ledger_of_version_0_1_opens_with_the_same_entries_and_next_times(
    tmp_path: Path,
) -> None:
    put_into(tmp_path / "data")
    ledger = await opened(tmp_path / "data")
    try:
        await verify(ledger)
        # Each text is what is written today.
        specs = "SELECT spec FROM entry WHERE spec IS NOT NULL ORDER BY number"
        with closing(sqlite3.connect(database_in(tmp_path / "data"))) as raw:
            assert [row[0] for row in raw.execute(specs)] == [*map(write_entry, ENTRIES)]
        await filled(tmp_path / "new")
        for what in (COLUMNS, INDEXES):
            schemas = []
            for each in (tmp_path / "data", tmp_path / "new"):
                with closing(sqlite3.connect(database_in(each))) as raw:
                    schemas.append(raw.execute(what).fetchall())
            assert schemas[0] == schemas[1]
    finally:
        await ledger.close()


@story
async def test_before_a_migration_a_verified_backup_is_made(tmp_path: Path) -> None:
    put_into(tmp_path / "data")
    (tmp_path / "data/backups").mkdir()
    for older in (3, 5):
        (tmp_path / f"data/backups/ledger-schema-{older}.db").touch()
    ledger = await opened(tmp_path / "data")
    await ledger.close()
    made = tmp_path / "data/backups" / f"ledger-schema-{VERSION}.db"
    database.verify(made)
    assert value(made, "PRAGMA user_version") == VERSION
    assert value(made, "SELECT count(*) FROM receipt") == len(STATUSES)
    stamp = made.stat().st_mtime_ns
    await (await opened(tmp_path / "data")).close()
    assert made.stat().st_mtime_ns == stamp, "nothing was migrated"
    assert {each.name for each in made.parent.iterdir()} == {"ledger-schema-5.db", made.name}


@story
async def test_without_a_backup_nothing_is_migrated(tmp_path: Path) -> None:
    put_into(tmp_path / "data")
    (tmp_path / "data/backups").write_text("in the way")
    with pytest.raises(LedgerWriteError):
        await opened(tmp_path / "data")
    assert value(database_in(tmp_path / "data"), "PRAGMA user_version") == VERSION


KILLED = """
import asyncio, os, signal, sys
from datetime import datetime
from pathlib import Path
from horae.store import database
from horae.store.sqlite import SqliteLedger

connect, left = database._connect, [int(sys.argv[2])]

def count(statement):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def traced(*args, **options):
    connection = connect(*args, **options)
    connection.set_trace_callback(count)
    return connection

async def main():
    now = datetime.fromisoformat(sys.argv[3])
    ledger = await SqliteLedger.open(Path(sys.argv[1]), now=now)
    await ledger.close()

database._connect = traced
asyncio.run(main())
"""


@story
async def test_a_migration_that_is_killed_at_any_statement_goes_on_at_the_next_start(
    tmp_path: Path,
) -> None:
    program = tmp_path / "killed.py"
    program.write_text(KILLED)
    for number in itertools.count(1):
        data = tmp_path / str(number)
        put_into(data)
        words = (str(program), str(data), str(number), NOW.isoformat())
        ended = await asyncio.to_thread(run_command, *words)
        version = value(database_in(data), "PRAGMA user_version")
        has_backup = (data / "backups" / f"ledger-schema-{VERSION}.db").exists()
        assert has_backup or version == VERSION, "first the backup"
        ledger = await opened(data)
        try:
            await verify(ledger)
        finally:
            await ledger.close()
        if ended.code == 0:
            break
        assert ended.code == -signal.SIGKILL, ended.err
    assert number > 20, "it was killed between the statements of each migration"


@story
async def test_a_backup_of_version_0_1_is_restored(tmp_path: Path) -> None:
    put_into(tmp_path / "old")
    await filled(tmp_path / "data")
    restore(tmp_path / "data", database_in(tmp_path / "old"), now=NOW)
    ledger = await opened(tmp_path / "data")
    try:
        found = {each.mark.title: each.item for each in await ledger.entries()}
        kept = [each for each in found.values() if isinstance(each, Entry)]
        assert [each.rule for each in kept] == [each.rule for each in ENTRIES]
        assert [each.policy for each in kept] == [each.policy for each in ENTRIES]
    finally:
        await ledger.close()


FILL_THE_DISK = """
import asyncio, resource, sys
from pathlib import Path
from horae.core.ports import LedgerWriteError, EntryStep
from horae.core.decide import decide
from horae.store.sqlite import SqliteLedger
from store.ledger_suite import MINUTE, NOW, known, plan, scanned, workflow

async def main():
    ledger = await SqliteLedger.open(Path(sys.argv[1]), now=NOW)
    [entry] = await scanned(ledger, "org", plan(workflow("Poll", "* * * * *")), now=NOW)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, most))
    failed = 0
    while failed < 3:
        now = entry.accounted_to + MINUTE
        try:
            [filed] = await ledger.decide([EntryStep(entry, decide(entry, now=now))], now=now, term=1)
        except LedgerWriteError as error:
            failed += 1
            print("refused", error.exit_code, error, flush=True)
            continue
        print("kept", filed.number, filed.receipt.key, flush=True)
        entry = await known(ledger, entry.number)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    now = entry.accounted_to + MINUTE
    [filed] = await ledger.decide([EntryStep(entry, decide(entry, now=now))], now=now, term=1)
    print("kept", filed.number, filed.receipt.key, flush=True)
    await ledger.close()

asyncio.run(main())
"""


def test_a_full_disk_refuses_for_a_while_and_loses_nothing(tmp_path: Path) -> None:
    process = child(FILL_THE_DISK, tmp_path)
    lines = process.communicate()[0].splitlines()
    assert process.returncode == 0
    refused = [line for line in lines if line.startswith("refused")]
    assert len(refused) == 3
    assert refused[0].startswith(f"refused 75 {database_in(tmp_path)}: cannot be written")
    assert lines[-1].startswith("kept")
    kept = [line.split()[2] for line in lines if line.startswith("kept")]
    assert value(database_in(tmp_path), "PRAGMA integrity_check") == "ok"

    async def keys() -> list[str]:
        ledger = await opened(tmp_path)
        page = await ledger.receipts(limit=1_000_000)
        await ledger.close()
        return [each.receipt.key for each in reversed(page.receipts)]

    assert asyncio.run(keys()) == kept


@story
async def test_while_another_process_writes_reads_answer_and_a_write_can_be_tried_again(
    tmp_path: Path,
) -> None:
    ledger = await opened(tmp_path, patience=timedelta(milliseconds=20))
    [entry] = await taken(ledger, workflow())
    with closing(sqlite3.connect(database_in(tmp_path), isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LedgerBusyError) as caught:
            await decided(ledger, entry, NINE)
        assert caught.value.exit_code == Exit.TEMPORARY
        assert "another process is writing to the ledger; nothing was recorded" in str(caught.value)
        assert await known(ledger, entry.number) == entry
        other.execute("ROLLBACK")
    assert await decided(ledger, entry, NINE + HOUR)
    await ledger.close()


@story
async def test_a_transaction_keeps_others_from_writing_from_its_first_word(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)

    def writes_between(_: Transaction) -> None:
        with closing(sqlite3.connect(database_in(tmp_path), timeout=0)) as other:
            other.execute("DELETE FROM event")

    with pytest.raises(LedgerBusyError):
        await ledger.write(1, writes_between)
    await ledger.close()


@story
async def test_after_the_disk_has_failed_the_file_is_opened_anew_before_it_is_written(
    tmp_path: Path,
) -> None:
    ledger = await opened(tmp_path)
    [entry] = await taken(ledger, workflow())
    failure = sqlite3.OperationalError("disk I/O error")
    failure.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC

    def fail(book: Transaction) -> None:
        book.tell("lost", now=NOW)
        raise failure

    before = ledger._writer
    with pytest.raises(LedgerWriteError, match="disk I/O error"):
        await ledger.write(1, fail)
    assert await decided(ledger, entry, NINE)
    assert ledger._writer is not before
    assert "lost" not in {each.kind for each in await ledger.events_after(0)}
    await ledger.close()


@story
async def test_a_ledger_that_was_harmed_while_the_disk_failed_is_not_trusted_again(
    tmp_path: Path,
) -> None:
    ledger = await opened(tmp_path)
    [entry] = await taken(ledger, workflow())
    failure = sqlite3.OperationalError("disk I/O error")
    failure.sqlite_errorcode = sqlite3.SQLITE_IOERR

    def fail(_: Transaction) -> None:
        raise failure

    with pytest.raises(LedgerWriteError):
        await ledger.write(1, fail)
    database_in(tmp_path).unlink()
    for _ in range(2):
        with pytest.raises(LedgerDamagedError, match="the ledger was removed or replaced"):
            await decided(ledger, entry, NINE)
    await ledger.close()


# Writes that share a commit


def commits(ledger: SqliteLedger) -> list[str]:
    """Return a list that grows by what is committed and rolled back."""
    seen: list[str] = []
    words = ("COMMIT", "ROLLBACK")
    ledger._writer.set_trace_callback(
        lambda text: seen.append(text) if text.startswith(words) else None
    )
    return seen


def told(kind: str) -> Callable[[Transaction], None]:
    return lambda book: book.tell(kind, now=NOW)


async def kinds(ledger: SqliteLedger) -> list[str]:
    return [each.kind for each in await ledger.events_after(0)]


@story
async def test_writes_that_wait_at_the_same_time_share_one_commit_in_their_order(
    tmp_path: Path,
) -> None:
    ledger = await opened(tmp_path)
    seen = commits(ledger)
    names = [str(number) for number in range(150)]
    await asyncio.gather(*(ledger.write(1, told(name)) for name in names))
    assert await kinds(ledger) == names
    # The first may have been alone.
    assert len(seen) <= 3
    assert set(seen) == {"COMMIT"}
    await ledger.close()


@story
async def test_reads_that_wait_at_the_same_time_are_answered_each_for_itself(
    tmp_path: Path,
) -> None:
    ledger = await opened(tmp_path)
    await ledger.write(1, told("one"))

    def broken(book: Transaction) -> int:
        return book.execute("SELECT number FROM nowhere").rowcount

    answers = await asyncio.gather(
        ledger.newest_event(),
        ledger.read(broken),
        *(ledger.newest_event() for _ in range(300)),
        return_exceptions=True,
    )
    assert isinstance(answers.pop(1), sqlite3.OperationalError)
    assert answers == [1] * 301
    await ledger.close()


@story
async def test_while_nothing_rests_to_wake_it_writes_nothing(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    entry, _ = await waiting(ledger)
    seen = commits(ledger)
    assert await ledger.wake(now=NINE, term=1) == []
    assert seen == []
    await ledger.pause(entry.number, now=NINE, term=1, until=NINE + HOUR)
    assert await ledger.wake(now=NINE + HOUR, term=1) == [entry.number]
    with pytest.raises(StaleTermError):
        await ledger.wake(now=NINE + HOUR, term=2)
    await ledger.close()


@story
async def test_numbers_go_on_from_the_last_that_was_given_though_it_is_gone(
    tmp_path: Path,
) -> None:
    ledger = await opened(tmp_path)
    entry, filed = await waiting(ledger)
    await ledger.write(1, lambda book: book.execute("DELETE FROM receipt").rowcount)
    [again] = await decided(ledger, await known(ledger, entry.number), NINE + DAY)
    assert again.number == filed.number + 1
    await ledger.write(1, lambda book: book.execute("DELETE FROM receipt").rowcount)
    await ledger.write(1, lambda book: book.execute("DELETE FROM entry").rowcount)
    [new, newer] = await taken(ledger, workflow("Digest"), workflow("Water"))
    assert (new.number, newer.number) == (entry.number + 1, entry.number + 2)
    given = "SELECT group_concat(name || seq, ' ') FROM sqlite_sequence WHERE name <> 'event'"
    await ledger.close()
    assert value(database_in(tmp_path), given) == "entry3 receipt2"


@story
async def test_one_that_fails_is_undone_alone_and_those_beside_it_are_kept(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)

    def spoiled(book: Transaction) -> None:
        book.tell("spoiled", now=NOW)
        raise KeyError("its own fault")

    answers = await asyncio.gather(
        ledger.write(1, told("before")),
        ledger.write(1, spoiled),
        ledger.write(2, told("stale")),
        ledger.write(1, told("tried"), keep=False),
        ledger.write(1, lambda book: book.execute("DELETE FROM nowhere")),
        ledger.write(1, told("after")),
        return_exceptions=True,
    )
    assert [type(each) for each in answers] == [
        type(None),
        KeyError,
        StaleTermError,
        type(None),
        sqlite3.OperationalError,
        type(None),
    ]
    assert await kinds(ledger) == ["before", "after"]
    await ledger.close()


async def together(ledger: SqliteLedger, *works: Callable[[Transaction], None]) -> Sequence[object]:
    """Return what became of writes that are committed as one, as they wait behind another."""
    are_waiting = Event()
    first = ledger.write(1, lambda _: are_waiting.wait(10), is_alone=True)
    tasks = [asyncio.create_task(each) for each in (first, *(ledger.write(1, w) for w in works))]
    await asyncio.sleep(0)
    are_waiting.set()
    return (await asyncio.gather(*tasks, return_exceptions=True))[1:]


@story
async def test_if_the_disk_fails_under_several_writes_each_hears_of_it_and_none_is_kept(
    tmp_path: Path,
) -> None:
    ledger = await opened(tmp_path)
    failure = sqlite3.OperationalError("disk I/O error")
    failure.sqlite_errorcode = sqlite3.SQLITE_IOERR

    def fail(_: Transaction) -> None:
        raise failure

    answers = await together(ledger, told("before"), fail, told("after"))
    assert [type(each) for each in answers] == [LedgerWriteError] * 3
    assert await kinds(ledger) == []
    await ledger.write(1, told("again"))
    assert await kinds(ledger) == ["again"]
    await ledger.close()


@story
async def test_if_the_commit_fails_nobody_is_told_that_it_was_kept(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)

    def break_the_rules(book: Transaction) -> None:
        # Found only by the commit, as the disk is.
        book.execute("PRAGMA defer_foreign_keys = ON")
        book.execute("INSERT INTO run (receipt, attempt, started_at) VALUES (99, 1, 0)")

    answers = await together(ledger, told("before"), break_the_rules)
    assert [type(each) for each in answers] == [sqlite3.IntegrityError] * 2
    assert await kinds(ledger) == []
    await ledger.write(1, told("again"))
    assert await kinds(ledger) == ["again"]
    await ledger.close()


@story
async def test_what_takes_long_delays_no_answer_but_its_own(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    seen = commits(ledger)
    await asyncio.gather(
        ledger.write(1, told("a")),
        ledger.write(1, told("b")),
        ledger.write(1, told("long"), is_alone=True),
        ledger.write(1, told("c")),
        ledger.write(1, told("d")),
    )
    assert await kinds(ledger) == ["a", "b", "long", "c", "d"]
    assert len(seen) >= 3
    await ledger.close()


@story
async def test_one_who_gives_up_waiting_harms_nobody(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    tasks = [asyncio.create_task(ledger.write(1, told(str(n)))) for n in range(10)]
    await asyncio.sleep(0)
    tasks[3].cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in answers].count(asyncio.CancelledError) == 1
    assert await kinds(ledger) == [str(n) for n in range(10)]
    await ledger.close()


@story
async def test_a_scan_that_finds_everything_standing_writes_nothing_at_all(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    found = tuple(plan(workflow("Digest"), workflow("Water"), file="a.org"))
    index = {"a.org": "1", "b.org": "1"}
    await ledger.scan("org", Scan(found, index=index), now=NOW, term=1)
    before = ledger._writer.total_changes
    for standing in (("a.org", "b.org"), ("",)):
        scan = Scan((), standing=standing, index=index)
        await ledger.scan("org", scan, now=NOW + DAY, term=1)
    await ledger.scan("org", Scan(found, index=index), now=NOW + DAY, term=1)
    assert ledger._writer.total_changes == before
    await ledger.close()


NOTE_FOR_EVER = """
import asyncio, sys
from pathlib import Path
from horae.store.sqlite import SqliteLedger
from store.ledger_suite import NOW

async def main():
    ledger = await SqliteLedger.open(Path(sys.argv[1]), now=NOW)

    async def write(who):
        count = 0
        while True:
            count += 1
            await ledger.note(f"{sys.argv[2]}.{who}.{count}", now=NOW, term=1)
            print(f"{sys.argv[2]}.{who}.{count}", flush=True)

    await asyncio.gather(*map(write, range(16)))

asyncio.run(main())
"""


def test_what_was_acknowledged_together_survives_every_kill(tmp_path: Path) -> None:
    chance = random.Random(9)
    promised: set[str] = set()
    for turn in range(scaled(60)):
        process = child(NOTE_FOR_EVER, tmp_path, turn)
        assert process.stdout
        promised.update(
            line.strip() for line in itertools.islice(process.stdout, chance.randrange(1, 400))
        )
        process.kill()
        promised.update(process.communicate()[0].split())

    async def noted() -> list[str]:
        ledger = await opened(tmp_path)
        found = [each.kind for each in await ledger.events_after(0, limit=10_000_000)]
        await ledger.close()
        return found

    found = asyncio.run(noted())
    assert promised <= set(found)
    # Nobody's later word is kept without the earlier one, and no word is there twice.
    counts: Counter[str] = Counter()
    for kind in found:
        who, _, number = kind.rpartition(".")
        counts[who] += 1
        assert counts[who] == int(number)


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("due", "USING INDEX entry_next"),
        ("due", "receipt_open"),
        ("wake_at", "USING INDEX entry_next"),
        ("wake_at", "USING INDEX entry_rests"),
        ("rested", "USING INDEX entry_rests"),
        ("followers", "USING INDEX entry_follows"),
        ("files", "USING INDEX entry_file"),
        ("in_files", "USING INDEX entry_file"),
        ("at_addresses", "USING INDEX sqlite_autoindex_entry_1"),
        ("missing", "USING INDEX entry_missing"),
        ("that_are_broken", "USING INDEX entry_broken"),
        ("ahead", "USING INDEX entry_latest"),
        ("standing", "USING INTEGER PRIMARY KEY"),
    ],
)
@story
async def test_what_is_asked_often_is_found_through_an_index(query: str, index: str) -> None:
    ledger = await SqliteLedger.in_memory()
    text = named("")[f"entry.{query}"]
    names = re.findall(r"(?<!'):([a-z_]+)", text)
    values = dict.fromkeys(names, "[]")
    rows = ledger._writer.execute(f"EXPLAIN QUERY PLAN {text}", values).fetchall()
    steps = [row["detail"] for row in rows]
    assert any(index in step for step in steps), steps
    assert not any(step == "SCAN entry" for step in steps), steps
    await ledger.close()


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("one", "INTEGER PRIMARY KEY"),
        ("standing", "INTEGER PRIMARY KEY"),
        ("standing_of_run", "INTEGER PRIMARY KEY"),
        ("by_key", "sqlite_autoindex_receipt_1"),
        ("pending_of_entry", "receipt_open"),
        ("has_open", "receipt_open"),
        ("open", "receipt_open"),
        ("page_open", "receipt_open"),
        ("unsettled", "receipt_unsettled"),
        ("page_of_entry", "receipt_of_entry"),
        ("give_up_keys", "receipt_planned"),
    ],
)
@story
async def test_receipts_are_found_through_an_index(query: str, index: str) -> None:
    ledger = await SqliteLedger.in_memory()
    text = named("")[f"receipt.{query}"]
    values = dict.fromkeys(re.findall(r"(?<!'):([a-z_]+)", text), "[]")
    rows = ledger._writer.execute(f"EXPLAIN QUERY PLAN {text}", values).fetchall()
    steps = [row["detail"] for row in rows]
    assert index in steps[0], steps
    await ledger.close()


# What happens to a file


def vanish(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut_to(part: float) -> Callable[[Path], None]:
    def cut(path: Path) -> None:
        os.truncate(path, int(path.stat().st_size * part))

    return cut


def replace_with_nulls(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def replace_with_prose(path: Path) -> None:
    path.write_text("Once upon a time\n" * 1000)


def replace_with_another(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE other (number)")
        connection.execute("PRAGMA user_version = 1")


def replace_with_none(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")


def let_time_pass(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("harm", "kind", "message"),
    [
        (vanish, LedgerDamagedError, "the ledger file is missing"),
        (empty, LedgerDamagedError, "the ledger file is empty"),
        (cut_to(0.9), LedgerDamagedError, "the ledger is damaged"),
        (cut_to(0.5), LedgerDamagedError, "the ledger is damaged"),
        (cut_to(0.001), LedgerDamagedError, "the ledger is damaged"),
        (replace_with_nulls, LedgerDamagedError, "the ledger is damaged"),
        (replace_with_prose, LedgerDamagedError, "the ledger is damaged"),
        (replace_with_another, LedgerDamagedError, "not a ledger of horae, but another database"),
        (replace_with_none, LedgerDamagedError, "the ledger file is empty"),
        (
            let_time_pass,
            LedgerNewerError,
            f"the schema has version 99, and this horae supports {max(migrations())}",
        ),
    ],
)
@story
async def test_a_ledger_that_must_not_be_used_is_refused_with_what_to_do(
    tmp_path: Path, harm: Callable[[Path], None], kind: type[LedgerError], message: str
) -> None:
    await filled(tmp_path)
    path = database_in(tmp_path)
    harm(path)
    harmed = path.read_bytes() if path.exists() else None
    with pytest.raises(kind) as caught:
        await opened(tmp_path)
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "horae" in caught.value.remedy
    assert caught.value.exit_code == Exit.VERIFICATION
    assert (path.read_bytes() if path.exists() else None) == harmed
    # The lock is free again, and the second try says the same.
    with pytest.raises(kind):
        await opened(tmp_path)


@story
async def test_a_broken_page_is_found_whichever_it_is(tmp_path: Path) -> None:
    await filled(tmp_path)
    path = database_in(tmp_path)
    whole = path.read_bytes()
    size = int.from_bytes(whole[16:18], "big")
    for page in range(len(whole) // size):
        broken = bytearray(whole)
        broken[page * size : page * size + 16] = b"\xff" * 16
        path.write_bytes(broken)
        with pytest.raises(LedgerDamagedError):
            await opened(tmp_path)
    path.write_bytes(whole)
    await (await opened(tmp_path)).close()


def test_a_log_that_is_gone_after_a_kill_is_missed(tmp_path: Path) -> None:
    process = child(DECIDE_FOR_EVER, tmp_path)
    assert process.stdout
    process.stdout.readline()
    process.kill()
    process.communicate()
    database_in(tmp_path).with_name("ledger.db-wal").unlink()
    with pytest.raises(
        LedgerDamagedError, match=r"its log \(ledger.db-wal\) with the last writes is missing"
    ):
        asyncio.run(opened(tmp_path))
    (tmp_path / "ledger.db-open").unlink()
    with pytest.raises(LedgerDamagedError, match="the ledger file is empty"):
        asyncio.run(opened(tmp_path))


def test_a_start_that_fails_after_a_kill_does_not_make_the_next_one_miss_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = child(DECIDE_FOR_EVER, tmp_path)
    assert process.stdout
    process.stdout.readline()
    process.kill()
    process.communicate()

    def failing(_: sqlite3.Connection) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(database, "migrate", failing)
        with pytest.raises(LedgerWriteError, match="No space left on device"):
            asyncio.run(opened(tmp_path))
    ledger = asyncio.run(opened(tmp_path))
    assert asyncio.run(ledger.receipts()).receipts
    asyncio.run(ledger.close())


@story
async def test_a_log_that_is_gone_after_a_close_is_not(tmp_path: Path) -> None:
    await filled(tmp_path)
    names = {each.name for each in tmp_path.iterdir()}
    assert names == {".gitignore", "HORAE", "ledger.db", "lock"}
    ledger = await opened(tmp_path)
    assert len(await ledger.entries()) == 1
    await ledger.close()


@story
async def test_a_start_that_was_killed_before_there_was_a_ledger_is_a_fresh_start(
    tmp_path: Path,
) -> None:
    database_in(tmp_path).touch()
    await (await opened(tmp_path)).close()
    (tmp_path / "HORAE").unlink()
    await (await opened(tmp_path)).close()
    assert (tmp_path / "HORAE").exists()


@story
async def test_a_directory_that_cannot_be_made_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LedgerWriteError, match="Not a directory") as caught:
        await opened(tmp_path / "file" / ".horae")
    assert caught.value.exit_code == Exit.TEMPORARY


# Backups


def everything(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return every row of every table."""
    tables = ("entry", "known_file", "receipt", "run", "event", "text", "term", "trigger", "token")
    with closing(sqlite3.connect(path)) as connection:
        return {
            table: connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
            for table in tables
        }


@story
async def test_a_backup_made_while_the_ledger_is_written_is_one_moment_of_it(
    tmp_path: Path,
) -> None:
    ledger = await opened(tmp_path / "data")
    [entry] = await taken(ledger, workflow("Poll", "* * * * *"))
    backups = [tmp_path / f"backup-{number}.db" for number in range(5)]

    async def write() -> None:
        current = entry
        for minute in range(1, 101):
            now = NOW + minute * MINUTE
            await decided(ledger, current, now)
            current = await known(ledger, entry.number)

    async def copy() -> None:
        for backup in backups:
            await ledger.backup(backup)

    await asyncio.gather(write(), copy())
    await ledger.backup(tmp_path / "last.db")
    await ledger.close()
    last = everything(database_in(tmp_path / "data"))
    assert everything(tmp_path / "last.db") == last
    for backup in backups:
        copied = everything(backup)
        count = len(copied["receipt"])
        assert copied["receipt"] == last["receipt"][:count]
        minutes = "SELECT (accounted_to - first_seen_at) / 60000000 FROM entry"
        assert value(backup, minutes) == count
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(
        [*(each.name for each in backups), "data", "last.db"]
    )
    assert {each.stat().st_mode & 0o777 for each in backups} == {0o600}


@story
async def test_a_ledger_in_memory_can_be_backed_up_too(tmp_path: Path) -> None:
    ledger = await SqliteLedger.in_memory()
    await waiting(ledger)
    await ledger.backup(tmp_path / "backup.db")
    await ledger.close()
    assert len(everything(tmp_path / "backup.db")["receipt"]) == 1


@story
async def test_a_backup_that_cannot_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    ledger = await opened(tmp_path / "data")
    await waiting(ledger)
    with pytest.raises(LedgerWriteError):
        await ledger.backup(tmp_path / "nowhere" / "backup.db")
    (tmp_path / "backup.db").write_text("the one before")
    (tmp_path / "backup.db.part").mkdir()
    with pytest.raises(LedgerWriteError):
        await ledger.backup(tmp_path / "backup.db")
    assert (tmp_path / "backup.db").read_text() == "the one before"
    await ledger.close()


@story
async def test_a_backup_has_its_name_only_when_it_is_whole_and_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await opened(tmp_path / "data")
    backup = tmp_path / "backup.db"
    backup.write_text("the one before")

    def broken(_: Path) -> None:
        raise LedgerDamagedError("backup.db.part", "it is damaged", remedy="try again")

    def failing(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(database, "verify", broken)
        with pytest.raises(LedgerDamagedError):
            await ledger.backup(backup)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(LedgerWriteError, match="Input/output error"):
            await ledger.backup(backup)
    assert backup.read_text() == "the one before"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["backup.db", "data"]
    await ledger.close()


@story
async def test_a_nightly_backup_is_made_once_a_day_and_the_oldest_give_way(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    await waiting(ledger)
    folder = tmp_path / "backups"
    days = [NOW + number * DAY for number in range(5)]
    made = [await ledger.back_up_nightly(tmp_path, now=day, keep=3) for day in days]
    assert made[0] == folder / "ledger-2026-04-01.db"
    assert await ledger.back_up_nightly(tmp_path, now=days[-1] + HOUR, keep=3) is None
    names = [f"ledger-2026-04-0{day}.db" for day in (3, 4, 5)]
    assert sorted(each.name for each in folder.iterdir()) == names
    assert len(everything(folder / names[-1])["receipt"]) == 1
    assert folder.stat().st_mode & 0o777 == 0o700
    # What is not ours stays, however old it looks.
    for name in ("ledger-2020-01-01.db.bak", "ledger-before-20260401T080000Z.db", "notes.txt"):
        (folder / name).touch()
    await ledger.back_up_nightly(tmp_path, now=NOW + 9 * DAY, keep=1)
    assert len(list(folder.iterdir())) == 4
    await ledger.close()


@story
async def test_a_nightly_backup_that_fails_takes_no_other_with_it(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    assert await ledger.back_up_nightly(tmp_path, now=NOW, keep=1)
    (tmp_path / "backups" / "ledger-2026-04-02.db.part").mkdir()
    with pytest.raises(LedgerWriteError):
        await ledger.back_up_nightly(tmp_path, now=NOW + DAY, keep=1)
    assert (tmp_path / "backups" / "ledger-2026-04-01.db").exists()
    await ledger.close()


async def backed_up(tmp_path: Path) -> tuple[Path, Path]:
    """Return a data directory and a backup of it, with something in every state."""
    directory, backup = tmp_path / "data", tmp_path / "backup.db"
    ledger = await opened(directory)
    entries = await taken(
        ledger,
        workflow("Waits", "0 9 * * *"),
        workflow("Starts", "0 9 * * *"),
        workflow("Runs", "0 9 * * *", "", ":RETRY: 3 30s"),
        "* Rests :workflow:\nSCHEDULED: <2026-04-01 Wed 09:00 .+1d>\n",
        "* Rests later :workflow:\nSCHEDULED: <2026-04-01 Wed 09:00 .+1d>\n",
    )
    await scanned(ledger, "board", plan(workflow("Gone")), now=NOW)
    await scanned(ledger, "board", [], now=NOW)
    await scanned(ledger, "triggers", [delay("tea", NINE + DAY)], now=NOW)
    for entry in (*entries[:3], entries[4]):
        await decided(ledger, entry, NINE)
    for number in (2, 3, 4):
        run = await one_run.start(ledger, number, now=NINE, term=1)
        assert run
        if number > 2:
            await one_run.running(ledger, run.number, Process(1, 1), now=NINE, term=1)
    await ledger.backup(backup)
    await ledger.close()
    return directory, backup


@story
async def test_after_a_restore_nothing_past_fires_and_all_that_came_is_accounted_for(
    tmp_path: Path,
) -> None:
    directory, backup = await backed_up(tmp_path)
    later = NINE + 3 * DAY + MINUTE
    aside = restore(directory, backup, now=later)
    assert aside.exists()
    ledger = await opened(directory)
    items = [each.item for each in await ledger.entries()]
    waits, starts, runs, rests, rests_later, gone, tea = items
    reason = "a backup was restored at 2026-04-04T09:01:00Z"
    for entry, lines in (
        (waits, [f"1 skipped: {reason}", f"3 skipped: {reason}"]),
        (starts, [f"1 skipped: {reason}", f"3 skipped: {reason}"]),
        (runs, [f"1 interrupted: {reason}", f"3 skipped: {reason}"]),
        (rests, [f"1 skipped: {reason}"]),
        (rests_later, [f"1 interrupted: {reason}"]),
        (tea, [f"1 skipped: {reason}"]),
    ):
        assert isinstance(entry, Entry)
        assert entry.accounted_to == later
        assert await history(ledger, entry) == lines
        assert await decided(ledger, entry, later) == []
        step = EntryStep(entry, decide(entry, now=later + DAY))
        filed = await ledger.decide([step], now=later + DAY, term=1)
        assert [each.receipt.planned_at for each in filed] == (
            [] if entry is tea else [NINE + 4 * DAY]
        )
    assert isinstance(gone, Entry)
    assert await history(ledger, gone) == []
    assert not (await ledger.receipts(statuses=[Status.STARTING, Status.RUNNING])).receipts
    events = await ledger.events_after(0)
    assert [each.facts for each in events if each.kind == "restored"] == [{"backup": "backup.db"}]
    await ledger.close()


@story
async def test_numbers_given_after_the_backup_are_not_given_again(tmp_path: Path) -> None:
    directory, backup = await backed_up(tmp_path)
    ledger = await opened(directory)
    for number in range(50):
        assert await ledger.add(1, [asked(f"manual:{number}", NINE)], now=NINE, term=1)
    [lost] = (await ledger.receipts(limit=1)).receipts
    await ledger.close()
    restore(directory, backup, now=NINE)
    ledger = await opened(directory)
    [again] = await ledger.add(1, [asked("manual:again", NINE)], now=NINE, term=1)
    assert again.number > lost.number
    await ledger.close()


@pytest.mark.parametrize("harm", [vanish, empty, cut_to(0.5), replace_with_prose])
@story
async def test_a_harmed_ledger_is_whole_again_after_a_restore(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    directory, backup = await backed_up(tmp_path)
    harm(database_in(directory))
    restore(directory, backup, now=NINE)
    ledger = await opened(directory)
    assert len(await ledger.entries()) == 7
    await ledger.close()


@pytest.mark.parametrize("harm", [vanish, empty, cut_to(0.5), replace_with_prose])
@story
async def test_a_harmed_ledger_can_be_left_behind(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    directory, backup = await backed_up(tmp_path)
    backup.rename(directory / "copy.db")
    ledger = await opened(directory)
    [known] = (await ledger.receipts(limit=1)).receipts
    await ledger.close()
    harm(database_in(directory))
    left = database_in(directory).read_bytes() if database_in(directory).exists() else None
    aside = start_afresh(directory, now=NINE)
    assert (None if aside is None else aside.read_bytes()) == left
    ledger = await opened(directory)
    assert await ledger.entries() == []
    [first] = await ledger.events_after(0)
    assert first.kind == "fresh_ledger"
    entry, filed = await waiting(ledger)
    assert filed.number > known.number
    assert entry.number is not None
    assert entry.number > 7, "the copy beside it knows seven"
    await ledger.close()


@story
async def test_a_ledger_without_its_log_can_be_left_behind(tmp_path: Path) -> None:
    process = child(DECIDE_FOR_EVER, tmp_path)
    assert process.stdout
    process.stdout.readline()
    process.kill()
    process.communicate()
    with pytest.raises(LedgerWholeError, match="the ledger is intact and is not replaced"):
        start_afresh(tmp_path, now=NINE)
    Path(f"{database_in(tmp_path)}-wal").unlink()
    assert start_afresh(tmp_path, now=NINE) is not None
    ledger = await opened(tmp_path)
    assert await ledger.entries() == []
    await ledger.close()


@story
async def test_where_no_ledger_ever_was_none_is_left_behind(tmp_path: Path) -> None:
    assert start_afresh(tmp_path / "new", now=NINE) is None
    ledger = await opened(tmp_path / "new")
    assert await ledger.events_after(0) == []
    await ledger.close()


@story
async def test_the_log_of_the_old_ledger_is_not_taken_for_that_of_the_restored_one(
    tmp_path: Path,
) -> None:
    directory, backup = await backed_up(tmp_path)
    process = child(DECIDE_FOR_EVER, tmp_path / "other")
    assert process.stdout
    process.stdout.readline()
    process.kill()
    process.communicate()
    for suffix in ("", "-wal", "-shm"):
        shutil.copy(
            f"{database_in(tmp_path / 'other')}{suffix}", f"{database_in(directory)}{suffix}"
        )
    aside = restore(directory, backup, now=NINE)
    assert Path(f"{aside}-wal").exists()
    ledger = await opened(directory)
    assert len(await ledger.entries()) == 7
    await ledger.close()


@pytest.mark.parametrize(
    "harm",
    [vanish, empty, cut_to(0.5), replace_with_prose, replace_with_another, let_time_pass],
)
@story
async def test_a_bad_backup_is_refused_and_the_ledger_stays_as_it_is(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    directory, backup = await backed_up(tmp_path)
    before = database_in(directory).read_bytes()
    harm(backup)
    with pytest.raises(LedgerError) as caught:
        restore(directory, backup, now=NINE)
    assert caught.value.exit_code == Exit.VERIFICATION
    assert caught.value.place == str(backup)
    assert database_in(directory).read_bytes() == before
    await (await opened(directory)).close()


@story
async def test_an_engine_whose_directory_was_exchanged_leaves_the_new_one_alone(
    tmp_path: Path,
) -> None:
    data, old = tmp_path / "data", tmp_path / "old"
    ledger = await opened(data)
    await taken(ledger, workflow("First"))
    data.rename(old)
    with pytest.raises(
        LedgerWriteError, match="the data directory is missing; restore the directory"
    ):
        await ledger.note("noted", now=NOW, term=1)
    old.rename(data)
    await ledger.note("back", now=NOW, term=1)
    (data / "lock").unlink()
    await ledger.note("locked", now=NOW, term=1)
    assert (data / "lock").exists()

    data.rename(old)
    other = await opened(data)  # which has a lock of its own
    await taken(other, workflow("Other"))
    (data / "ledger-rescued.db").write_text("of another time")
    before = {each.name: each.stat().st_ino for each in data.iterdir()}
    for _ in range(2):
        with pytest.raises(LedgerDamagedError, match=r"its content is in ledger-rescued2\.db"):
            await ledger.note("noted", now=NOW, term=1)
    await ledger.close()
    after = {each.name: each.stat().st_ino for each in data.iterdir()}
    assert after == before | {"ledger-rescued2.db": after["ledger-rescued2.db"]}
    assert [each.item.title for each in await other.entries()] == ["Other"]
    await other.close()

    restore(data, data / "ledger-rescued2.db", now=NOW)
    again = await opened(data)
    assert [each.item.title for each in await again.entries()] == ["First"]
    assert "back" in {each.kind for each in await again.events_after(0)}
    await again.close()


@story
async def test_nothing_is_restored_under_a_running_engine(tmp_path: Path) -> None:
    directory, backup = await backed_up(tmp_path)
    ledger = await opened(directory)
    with pytest.raises(DataLockedError):
        restore(directory, backup, now=NINE)
    assert len(await ledger.entries()) == 7
    await ledger.close()
