"""The lock on a data directory: who has it, and when it is free."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from horae.errors import Exit
from horae.store import lock as module
from horae.store.lock import (
    DataLockedError,
    Lock,
    LockHolder,
    LockUse,
    NetworkDiskError,
    engine_in,
    file_system,
    holder_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOW = datetime(2026, 4, 1, 9, tzinfo=UTC)

TAKE = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from horae.store.lock import DataLockedError, Lock
try:
    lock = Lock.acquire(Path(sys.argv[1]), now=datetime(2026, 4, 1, 8, tzinfo=UTC))
except DataLockedError as error:
    print("refused", error.pid, flush=True)
    raise SystemExit
"""
AND_WAIT = """
print("taken", flush=True)
sys.stdin.read()
"""
AND_FORK = """
import os, signal
if os.fork() == 0:
    signal.pause()
"""
AND_SPAWN = """
import subprocess
subprocess.Popen(["sleep", "1000"], close_fds=False)
"""


def started(directory: Path, *parts: str, take: str = TAKE) -> subprocess.Popen[str]:
    """Start a program that takes the lock, and whatever else the parts say."""
    return subprocess.Popen(
        [sys.executable, "-c", "".join((take, *parts)), str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


@pytest.fixture
def starting() -> Iterator[list[subprocess.Popen[str]]]:
    """End every program that a test started, and the children of those."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_the_second_is_refused_at_once_and_told_who_was_first(
    tmp_path: Path, starting: list[subprocess.Popen[str]]
) -> None:
    holder = started(tmp_path, AND_WAIT)
    starting.append(holder)
    assert said(holder) == "taken"
    with pytest.raises(DataLockedError) as caught:
        Lock.acquire(tmp_path, now=NOW)
    assert caught.value.pid == holder.pid
    assert caught.value.exit_code == Exit.CONFLICT
    assert str(caught.value) == (
        f"{tmp_path}: an engine is already running here (process {holder.pid},"
        " since 2026-04-01 Wed 08:00 UTC); stop it with `horae stop`"
    )


def test_who_was_first_is_told_in_the_zone_of_its_plans(tmp_path: Path) -> None:
    holder = LockHolder(7, "horae", "2026-04-01T08:00:00Z", zone="Europe/Berlin")
    assert "since 2026-04-01 Wed 10:00 Europe/Berlin)" in str(DataLockedError("x", holder))


def test_the_lock_dies_with_its_process(
    tmp_path: Path, starting: list[subprocess.Popen[str]]
) -> None:
    holder = started(tmp_path, AND_WAIT)
    starting.append(holder)
    assert said(holder) == "taken"
    holder.kill()
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
    Lock.acquire(tmp_path, now=NOW).release()


@pytest.mark.parametrize("child", [AND_FORK, AND_SPAWN], ids=["forked", "spawned"])
def test_a_child_that_outlives_its_process_does_not_have_the_lock(
    tmp_path: Path, starting: list[subprocess.Popen[str]], child: str
) -> None:
    holder = started(tmp_path, child, AND_WAIT)
    starting.append(holder)
    assert said(holder) == "taken"
    holder.kill()
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
    Lock.acquire(tmp_path, now=NOW).release()


def test_the_same_process_cannot_have_it_twice_and_does_not_lose_it_by_trying(
    tmp_path: Path, starting: list[subprocess.Popen[str]]
) -> None:
    lock = Lock.acquire(tmp_path, now=NOW)
    with pytest.raises(DataLockedError, match="this process"):
        Lock.acquire(tmp_path, now=NOW)
    other = started(tmp_path)
    starting.append(other)
    assert said(other) == f"refused {os.getpid()}"
    lock.release()
    lock.release()
    Lock.acquire(tmp_path, now=NOW).release()


def test_a_lock_that_was_removed_is_taken_again_unless_another_has_it(
    tmp_path: Path, starting: list[subprocess.Popen[str]]
) -> None:
    lock = Lock.acquire(tmp_path, now=NOW)
    (tmp_path / "lock").unlink()
    lock.keep()
    late = started(tmp_path)
    starting.append(late)
    assert said(late) == f"refused {os.getpid()}"

    (tmp_path / "lock").unlink()
    (tmp_path / "lock").mkdir()
    lock.keep()  # nobody can have it so
    (tmp_path / "lock").rmdir()
    other = started(tmp_path, AND_WAIT)
    starting.append(other)
    assert said(other) == "taken"
    with pytest.raises(DataLockedError, match=f"already running here .process {other.pid},"):
        lock.keep()
    lock.release()


def test_what_an_earlier_holder_wrote_is_not_said_of_this_one(
    tmp_path: Path, starting: list[subprocess.Popen[str]]
) -> None:
    holder = started(tmp_path, AND_WAIT)
    starting.append(holder)
    assert said(holder) == "taken"
    (tmp_path / "lock").write_text('{"pid": 1, "command": "an older one"}')
    with pytest.raises(DataLockedError) as caught:
        Lock.acquire(tmp_path, now=NOW)
    assert (caught.value.pid, caught.value.command) == (holder.pid, "")


@pytest.mark.parametrize("text", ["", "not JSON", "[1]", '{"pid": 7, "use": [1]}', "\xff"])
def test_a_lock_file_with_nonsense_in_it_can_be_taken_and_its_holder_named(
    tmp_path: Path, starting: list[subprocess.Popen[str]], text: str
) -> None:
    (tmp_path / "lock").write_text(text, encoding="latin-1")
    holder = started(tmp_path, AND_WAIT)
    starting.append(holder)
    assert said(holder) == "taken"
    (tmp_path / "lock").write_text(text, encoding="latin-1")
    with pytest.raises(DataLockedError) as caught:
        Lock.acquire(tmp_path, now=NOW)
    assert caught.value.pid == holder.pid


def test_the_lock_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    lock = Lock.acquire(tmp_path, now=NOW)
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
    lock.release()


def test_a_network_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:4 / {tmp_path} rw - nfs4 host:/srv rw\n"
    )
    monkeypatch.setattr(module, "_MOUNTS", mounts)
    with pytest.raises(NetworkDiskError, match="nfs4, a network file system") as caught:
        Lock.acquire(tmp_path, now=NOW)
    assert caught.value.exit_code == Exit.USAGE
    assert not (tmp_path / "lock").exists()


def test_where_mounts_are_not_listed_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOUNTS", tmp_path / "nowhere")
    lock = Lock.acquire(tmp_path, now=NOW)
    assert (tmp_path / "lock").exists()
    lock.release()


def test_a_mount_with_a_space_in_its_name_and_one_above_another_are_understood() -> None:
    mounts = (
        "1 0 8:1 / / rw - ext4 /dev/sda rw\n"
        "2 1 0:4 / /my\\040plans rw - cifs //host/plans rw\n"
        "3 1 0:5 / /srv rw - nfs host:/ rw\n"
        "4 3 0:6 / /srv rw - tmpfs none rw\n"
        "nonsense\n"
    )
    assert file_system(mounts, "/my plans/a") == "cifs"
    assert file_system(mounts, "/srv") == "tmpfs"
    assert file_system(mounts, "/home") == "ext4"


def test_whatever_stands_for_the_lock_nobody_holds_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "fifo").mkdir()
    os.mkfifo(tmp_path / "fifo" / "lock")
    (tmp_path / "folder" / "lock").mkdir(parents=True)
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop" / "lock").symlink_to("lock")
    for name in ("file", "fifo", "folder", "loop", "none"):
        assert holder_of(tmp_path / name) is None


@pytest.mark.parametrize(
    ("written", "use", "is_engine"),
    [
        ("", LockUse.ENGINE, True),
        ("use=LockUse.RUN, command='horae run'", LockUse.RUN, False),
        ("use=LockUse.COMMAND, command='horae prune'", LockUse.COMMAND, False),
    ],
)
def test_the_lock_says_whether_an_engine_or_a_command_holds_it(
    tmp_path: Path,
    starting: list[subprocess.Popen[str]],
    written: str,
    use: LockUse,
    is_engine: bool,
) -> None:
    take = TAKE.replace("import DataLockedError, Lock", "import DataLockedError, Lock, LockUse")
    take = take.replace("tzinfo=UTC))", f"tzinfo=UTC), {written})")
    holder = started(tmp_path, AND_WAIT, take=take)
    starting.append(holder)
    assert said(holder) == "taken"
    found = holder_of(tmp_path)
    assert found is not None
    assert (found.pid, found.use, found.is_engine) == (holder.pid, use, is_engine)
    assert (engine_in(tmp_path) is not None) is is_engine


@pytest.mark.parametrize("field", ["", ', "use": "something newer"'])
def test_a_lock_that_does_not_say_its_use_is_that_of_an_engine(
    tmp_path: Path, starting: list[subprocess.Popen[str]], field: str
) -> None:
    holder = started(tmp_path, AND_WAIT)
    starting.append(holder)
    assert said(holder) == "taken"
    (tmp_path / "lock").write_text(f'{{"pid": {holder.pid}, "command": "horae"{field}}}')
    found = holder_of(tmp_path)
    assert found is not None
    assert (found.command, found.is_engine) == ("horae", True)


def test_a_command_that_has_the_lock_is_waited_for_and_not_stopped() -> None:
    holder = LockHolder(7, "horae run", "2026-04-01T08:00:00Z", LockUse.RUN)
    assert str(DataLockedError(".horae", holder)) == (
        ".horae: in use by process 7 (horae run) since 2026-04-01 Wed 08:00 UTC;"
        " wait until it has ended, or press Ctrl-C there to end the run"
    )
    short = LockHolder(7, "horae prune", "", LockUse.COMMAND)
    assert str(DataLockedError(".horae", short)).endswith("(horae prune); wait until it has ended")
