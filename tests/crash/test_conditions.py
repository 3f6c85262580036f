"""What is in the way is said in words, nothing is lost over it, and all goes on by itself after it."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sqlite3
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from shutil import copytree, rmtree
from typing import TYPE_CHECKING

import pytest

from commands import is_healthy
from crash.audit import audit, effects_of
from crash.stage import Home, Life, entry, until_gone
from horae.client import Client
from horae.errors import Exit
from scale import scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")


def done(home: Home) -> int:
    """Return how many receipts are done."""
    return home.count("status = 'done'")


def goes_on(life: Life) -> None:
    """Return when something more is done."""
    before = done(life.home)
    life.until(lambda: done(life.home) > before)


def problems(home: Home) -> list[str]:
    """Return what the engine says of its ledger to whoever asks how it is."""
    told = Client(home.data).status().problems
    return [each for each in told if "ledger.db" in each]


@contextmanager
def mounted(place: Path, options: str) -> Iterator[Path]:
    """Give a small disk of its own; the test is skipped where none may be mounted."""
    place.mkdir()
    asked = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(asked, capture_output=True, check=False).returncode:
        pytest.skip("a disk may not be mounted here; run as root to see this")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(file: Path) -> None:
    """Write until the disk is full."""
    with file.open("wb", buffering=0) as filler:
        for size in (1 << 16, 1 << 10, 1):
            with suppress(OSError):
                while True:
                    filler.write(b"\0" * size)


def nothing_starts_until(life: Life, has_room_again: Callable[[], object]) -> None:
    """Go through a time in which nothing can be written, and come out of it."""
    home = life.home
    life.until(lambda: problems(home))
    assert "cannot be written" in problems(home)[0]
    assert "free disk space" in problems(home)[0]
    begun = home.rows("SELECT number FROM run")
    time.sleep(1.2)  # one more moment
    assert home.rows("SELECT number FROM run") == begun
    # What was let go before may still leave its effect.
    assert {(each.run,) for each in effects_of(home)} <= {*begun}
    has_room_again()
    goes_on(life)
    life.until(lambda: not problems(home))
    assert life.stop() == 0
    audit(home)


def test_a_full_disk_starts_nothing_and_with_room_again_all_goes_on(home: Home) -> None:
    with mounted(home.place / "disk", "size=3m") as disk:
        home.data = disk / "data"
        home.write(entry("Quick", home.effect()), entry("Late", home.effect(), catchup="all"))
        life = home.up().begun()
        goes_on(life)
        fill(disk / "filler")
        nothing_starts_until(life, (disk / "filler").unlink)


def test_a_disk_that_a_run_fills_is_named_with_the_path_and_old_output_makes_room(
    home: Home,
) -> None:
    with mounted(home.place / "disk", "size=60m") as disk:
        home.data, home.plans = disk / "data", disk / "plans"
        home.plans.mkdir()
        script = home.place / "script"
        script.write_text(
            "mkdir -p made/deep; cat /dev/zero > made/deep/file;"
            " while [ -e made ]; do sleep 0.2; done"
        )
        (home.plans / "prints").write_bytes(os.urandom(1_000_000))
        home.write(
            entry("Prints", "cat prints", schedule="0 0 1 1 *"),
            entry("Fills", f"sh {script}", schedule="0 0 1 1 *"),
        )
        life = home.up(settings={"HORAE_LISTEN": "127.0.0.1:0"})
        life.until(lambda: is_healthy(home.data))
        for count in range(1, 4):
            Client(home.data).run_now("Prints")
            life.until(lambda count=count: home.count("status = 'done'") == count)  # type: ignore[misc]
        Client(home.data).run_now("Fills")
        named = f"{disk}/plans/made/deep holds 5"

        def troubles() -> str:
            return "\n".join(Client(home.data).status().problems)

        life.until(lambda: named in troubles())
        assert f"are free on the disk of {home.data}" in troubles()
        # The newest good run of an entry and the run in progress keep their output.
        assert sorted(int(each.name) for each in home.data.glob("runs/*/*")) == [3, 4]
        rmtree(home.plans / "made")
        life.until(lambda: not troubles())
        told = Client(home.data).status().disk
        assert told is not None
        assert told.free > 20 << 20
        assert 1_000_000 < told.held["runs"] < 1_200_000
        assert told.held["ledger"] > 0
        assert life.stop() == 0


def test_a_quota_starts_nothing_and_without_it_all_goes_on(home: Home) -> None:
    home.write(entry("Quick", home.effect()), entry("Late", home.effect(), catchup="all"))
    life = home.up().begun()
    goes_on(life)
    least, infinite = (home.data / "ledger.db-wal").stat().st_size, resource.RLIM_INFINITY
    resource.prlimit(life.pid, resource.RLIMIT_FSIZE, (least, infinite))
    nothing_starts_until(
        life, lambda: resource.prlimit(life.pid, resource.RLIMIT_FSIZE, (infinite, infinite))
    )


def test_a_data_directory_that_cannot_be_written_is_refused_with_the_reason(home: Home) -> None:
    with mounted(home.place / "disk", "size=3m") as disk:
        home.data = disk / "data"
        home.write(entry("Quick", home.effect()))
        life = home.up().begun()
        goes_on(life)
        assert life.stop() == 0
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        refused = home.up()
        assert refused.ended() == Exit.TEMPORARY
        assert str(home.data) in refused.said()
        assert os.strerror(errno.EROFS).lower() in refused.said().lower()
        assert "make the file system writable" in refused.said()
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        life = home.up().begun()
        goes_on(life)
        assert life.stop() == 0
        audit(home)


def test_what_cannot_be_started_fails_with_the_reason_and_holds_up_nothing(home: Home) -> None:
    plain = home.place / "plain"
    plain.write_text("no program")
    home.write(
        entry("Quick", home.effect()),
        entry("Missing", "no-such-program --really"),
        entry("Plain", str(plain)),
        entry("Directory", str(home.place)),
    )
    life = home.up(settings={"HORAE_GATE_SLOTS": "1"}).begun()
    failed = (
        "SELECT DISTINCT entry.title, reason FROM receipt"
        " JOIN entry ON entry.number = entry WHERE status = 'failed'"
    )
    life.until(lambda: home.count("status = 'failed'") and len(home.rows(failed)) == 3)
    goes_on(life)
    assert life.stop() == 0
    assert dict(home.rows(failed)) == {
        "Missing": "no-such-program: no such program in the PATH of the run",
        "Plain": f"{plain}: Permission denied; make it executable",
        "Directory": f"{home.place}: is not an executable file",
    }


def test_where_no_output_can_be_kept_a_run_fails_and_the_next_one_goes_on(home: Home) -> None:
    home.write(entry("Quick", home.effect()))
    home.data.mkdir()
    (home.data / "runs").write_text("in the way")
    life = home.up().begun()
    life.until(lambda: home.count("status = 'failed'"))
    (home.data / "runs").unlink()
    goes_on(life)
    assert life.stop() == 0
    reasons = {
        reason for (reason,) in home.rows("SELECT reason FROM receipt WHERE status = 'failed'")
    }
    assert all(str(home.data / "runs") in reason for reason in reasons)
    assert not [
        each
        for each in effects_of(home)
        if home.rows("SELECT 1 FROM run WHERE number = ? AND outcome = 'failed'", each.run)
    ]


def test_without_descriptors_a_run_fails_and_the_engine_goes_on(home: Home) -> None:
    crowd = [
        entry(f"Crowd {each}", home.effect(1), schedule="*/3 * * * * *", overlap="allow")
        for each in range(60)
    ]
    home.write(*crowd)
    life = home.up(descriptors=64, settings={"HORAE_GATE_SLOTS": "200"}).begun()
    life.until(lambda: home.count("status = 'failed'") >= 3)
    failed = home.rows("SELECT max(planned_at) FROM receipt WHERE status = 'failed'")[0][0]
    life.until(lambda: home.count(f"status = 'done' AND planned_at > {failed}"))
    assert life.stop() == 0
    reasons = home.rows("SELECT DISTINCT reason FROM receipt WHERE status = 'failed'")
    assert all(os.strerror(errno.EMFILE) in reason for (reason,) in reasons), reasons
    assert "bug in horae" not in home.said()


def test_a_ledger_that_another_process_locks_makes_late_and_loses_nothing(home: Home) -> None:
    home.write(entry("Quick", home.effect()), entry("Late", home.effect(), catchup="all"))
    life = home.up().begun()
    goes_on(life)
    other = sqlite3.connect(home.data / "ledger.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    before = done(home)
    life.until(lambda: problems(home))  # a write lost its patience, and who asks is answered
    assert done(home) == before
    other.execute("ROLLBACK")
    other.close()
    goes_on(life)
    life.until(lambda: not problems(home))
    assert life.stop() == 0
    audit(home)
    late = home.rows("SELECT max(decided_at - planned_at) FROM receipt")
    assert late[0][0] > 3_000_000


def test_an_engine_that_slept_catches_up_as_each_entry_asks(home: Home) -> None:
    home.write(
        entry("Latest", home.effect()),
        entry("All", home.effect(), catchup="all"),
        entry("None", home.effect(), catchup="none"),
    )
    life = home.up().begun()
    goes_on(life)
    # A run that ends while the engine sleeps would overlap with all that is caught up.
    life.until(lambda: not home.rows("SELECT 1 FROM receipt WHERE ended_at IS NULL"))
    life.process.send_signal(signal.SIGSTOP)
    asleep_at = time.time()
    time.sleep(3.5)
    life.process.send_signal(signal.SIGCONT)
    goes_on(life)
    latest = "status = 'done' AND planned_at > ?"
    life.until(lambda: home.rows(f"SELECT 1 FROM receipt WHERE {latest}", (asleep_at + 3.5) * 1e6))
    assert life.stop() == 0
    audit(home, alone=("Latest", "All", "None"))
    late = home.rows(
        "SELECT entry.title, status, count(*) FROM receipt JOIN entry ON entry.number = entry"
        " WHERE planned_at > ? AND planned_at <= ? AND decided_at > planned_at + 1000000"
        " GROUP BY 1, 2",
        (asleep_at + 0.2) * 1e6,
        (asleep_at + 2.3) * 1e6,
    )
    found = {(title, status) for title, status, _ in late}
    assert ("Latest", "coalesced") in found
    assert ("All", "done") in found
    assert ("None", "missed") in found
    assert ("All", "missed") not in found


def test_a_second_engine_is_refused_at_once_and_told_who_is_there(home: Home) -> None:
    home.write(entry("Quick", home.effect()))
    life = home.up().begun()
    second = home.up()
    assert second.ended(within=10) == Exit.CONFLICT  # 2 s on a machine that does nothing else
    assert f"an engine is already running here (process {life.pid}, since " in second.said()
    assert "stop it with `horae stop`" in second.said()
    goes_on(life)
    life.kill()
    third = home.up().begun()  # the lock died with its holder
    goes_on(third)
    assert third.stop() == 0
    audit(home, alone=("Quick",))


def test_a_stop_at_any_moment_is_clean_and_the_next_start_goes_on(home: Home) -> None:
    home.write(
        entry("Quick", home.effect()),
        entry("Slow", home.effect(0.7), catchup="all", overlap="queue"),
        entry("Endless", home.effect(1000), overlap="allow"),
    )
    dice = Random(3)
    longest = 0.0
    for _ in range(scaled(100)):
        life = home.up(settings={"HORAE_RUN_DRAIN": "300ms", "HORAE_GATE_SLOTS": "8"}).begun()
        time.sleep(dice.uniform(0, 1.3))
        asked_at = time.monotonic()
        assert life.stop() == 0, life.said()
        longest = max(longest, time.monotonic() - asked_at)
        assert not life.remains()
        assert home.count("status IN ('starting', 'running')") == 0
    print(f"the longest stop took {longest:.2f} s")
    account = audit(home, alone=("Quick", "Slow"))
    assert account.receipts["interrupted"]
    told = home.rows("SELECT DISTINCT reason FROM receipt WHERE status = 'interrupted'")
    assert told == [("the engine was stopped",)]


@pytest.mark.skipif(not FAKETIME.exists(), reason="libfaketime is not installed")
def test_a_clock_that_jumps_fires_nothing_twice_and_silences_nothing(home: Home) -> None:
    home.write(entry("Quick", home.effect()), entry("Late", home.effect(), catchup="all"))
    offset = home.place / "offset"
    offset.write_text("+0")
    faked = {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    life = home.up(settings=faked).begun()
    goes_on(life)
    for steps, jump in enumerate(["+7200", "+3600", "+3605", "+0"], start=1):
        life.until(lambda: 0.55 < time.time() % 1 < 0.75)  # while the engine rests
        changed = home.place / "offset.new"
        changed.write_text(jump)
        changed.replace(offset)
        # One that comes in the middle of a turn is seen after the longest rest, which is 30 s.
        life.until(lambda least=steps: jumps(home) >= least, within=60)  # type: ignore[misc]
        goes_on(life)
    assert life.stop() == 0
    keys = [(each.entry, each.key, each.attempt) for each in effects_of(home)]
    assert len(keys) == len(set(keys))
    ran = home.rows("SELECT count(*) FROM run")[0][0]
    assert ran < 200  # of more than 14,000 moments: catch-up has its bounds
    assert home.count("count > 3000") >= 2  # and each moment is accounted for


def jumps(home: Home) -> int:
    """Return how often the clock was seen to jump."""
    return int(home.rows("SELECT count(*) FROM event WHERE kind = 'clock_step'")[0][0])


def corrupt(path: Path) -> None:
    """Spoil the middle of a file."""
    with path.open("r+b") as file:
        for page in range(1, path.stat().st_size // 4096):
            file.seek(page * 4096)
            file.write(b"\xff" * 512)


def newer(path: Path) -> None:
    """Let a ledger be one of a version to come."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 999")
    connection.close()


HARM: dict[str, tuple[Callable[[Path], object], str]] = {
    "corrupt": (corrupt, "the ledger is damaged"),
    "cut short": (
        lambda path: os.truncate(path, path.stat().st_size // 2),
        "the ledger is damaged",
    ),
    "empty": (lambda path: os.truncate(path, 0), "the ledger file is empty"),
    "vanished": (Path.unlink, "the ledger file is missing"),
    "newer": (newer, "the schema has version 999"),
    "foreign": (lambda path: path.write_text("a letter"), "the ledger is damaged"),
}


def test_a_ledger_that_is_not_whole_is_refused_and_left_as_it_is(home: Home) -> None:
    home.write(entry("Quick", home.effect()))
    life = home.up().begun()
    goes_on(life)
    assert life.stop() == 0
    whole = home.data
    for harm, (spoil, reason) in HARM.items():
        home.data = home.place / harm
        copytree(whole, home.data)
        ledger = home.data / "ledger.db"
        spoil(ledger)
        left = ledger.read_bytes() if ledger.exists() else None
        refused = home.up()
        assert refused.ended() == Exit.VERIFICATION
        assert f"{ledger}: {reason}" in refused.said()
        assert "horae restore FILE" in refused.said() or "use the newer horae" in refused.said()
        assert (ledger.read_bytes() if ledger.exists() else None) == left


def test_a_log_of_writes_that_vanished_after_a_kill_is_missed(home: Home) -> None:
    home.write(entry("Quick", home.effect()))
    life = home.up().begun()
    goes_on(life)
    life.kill()
    until_gone(life.remains, within=5)
    (home.data / "ledger.db-wal").unlink()
    refused = home.up()
    assert refused.ended() == Exit.VERIFICATION
    assert "its log (ledger.db-wal) with the last writes is missing" in refused.said()


def test_a_ledger_that_is_deleted_under_a_running_engine_is_missed(home: Home) -> None:
    home.write(entry("Quick", home.effect()))
    life = home.up().begun()
    goes_on(life)
    (home.data / "ledger.db").unlink()
    assert life.ended(within=3) == Exit.VERIFICATION
    assert f"{home.data / 'ledger.db'}: " in life.said()


def test_a_ledger_that_was_deleted_is_missed_at_the_next_start(home: Home) -> None:
    home.write(entry("Quick", home.effect()))
    life = home.up().begun()
    goes_on(life)
    (home.data / "ledger.db").unlink()
    life.stop()
    refused = home.up()
    assert refused.ended() == Exit.VERIFICATION
    assert "the ledger file is missing" in refused.said()
