"""`horae run`, `logs` and `cancel`, and every other command that speaks to a running engine."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from operator import length_hint
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from commands import PipedCommand
from horae.cli import connection
from horae.client import Client, EngineError, EngineUnreachableError
from horae.core.actor import user_name
from horae.store.sqlite import SqliteLedger
from horae.web import SOCKET
from horae.web.serve import listen
from waiting import wait_until
from web.stage import PLAN, command, engine_process, shell

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from calling import Call

HORAE = [sys.executable, "-m", "horae.cli.main"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One engine for all tests that leave nothing running."""
    root = tmp_path_factory.mktemp("home")
    inside = f"{' '.join(HORAE)} run Digest --wait --table"
    plan = PLAN + "".join(
        [
            shell("Slow", "sleep 30", ":TIMEOUT: 300ms"),
            shell("Colours", r'printf "a\tb\033[2J\r\nc\n"'),
            command("Inside", inside, ":ENV: PYTHONPATH"),
            shell("Quiet", "true"),
            shell("Writes", "echo Written."),
            shell("Again", "exit 1", ":RETRY: 1 100ms"),
            shell(
                "Retried",
                "echo attempt $HORAE_ATTEMPT; echo so far; echo no good; exit 1",
                ":RETRY: 1 100ms",
            ),
        ]
    )
    with engine_process(root, plan, slots=1):
        yield root


@pytest.fixture
def there(home: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> Call:
    """Return a way to call commands where the engine is."""
    monkeypatch.chdir(home)
    return call


def running(call: Call, entry: str) -> int:
    """Ask for a run, and return its number when it has put something out."""
    receipt = call("run", entry, "--no-wait", "--json").data["receipt"]
    client = Client(Path(".horae"))

    def written() -> list[int]:
        runs = [each.run for each in client.receipt(receipt).runs]
        return [run for run in runs if b"".join(client.log(run))]

    return wait_until(written)[0]


def begun(*args: str, cwd: Path) -> PipedCommand:
    """Begin a command in a process of its own."""
    return PipedCommand("horae", *args, at=cwd)


def on_a_terminal(*args: str, cwd: Path) -> str:
    """Return what a command prints on a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([*HORAE, *args], cwd=cwd, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # so a terminal says that nobody is there any more
            while part := os.read(ours, 4096):
                shown += part
        os.close(ours)
        process.wait(10)
    return shown.decode()


def test_an_answer_with_a_full_stop_is_followed_by_who_requested_it(there: Call) -> None:
    assert there("run", "Writes", "--wait").code == 0
    assert "  Written; requested by " in there("history", "Writes", "--table").out


def test_a_run_is_followed_to_its_end_and_its_end_is_the_exit_code(there: Call) -> None:
    done = there("run", "Digest", "--wait", "--table", "--note", "now")
    assert (done.code, done.out) == (0, "all the news\n")
    assert done.err == "horae: Digest: done: all the news\n"
    requested = f"requested by {user_name(os.getuid())}, on the command line: now"
    assert f"  {requested}\n" in there("why", "Digest", "--table").out
    assert requested in " ".join(there("history", "--table").out.split())
    failed = there("run", "Fails", "--wait", "--table")
    assert (failed.code, failed.out) == (1, "oh no\n")
    assert failed.err == "horae: Fails: failed: exit code 3: oh no\n"
    why = there("why", "Fails", "--table").out
    assert "failed: exit code 3: oh no\n" in why
    assert "failed after 0s, exit code 3: oh no\n" in why
    late = there("run", "Slow", "--wait", "--table")
    assert (late.code, "exceeded the time limit of 300ms" in late.err) == (124, True)
    told = there("run", "Again", "--wait", "--json")
    assert (told.code, told.data["status"], len(told.data["runs"])) == (1, "failed", 2)


def test_on_a_terminal_a_run_is_followed_without_being_asked(home: Path) -> None:
    shown = on_a_terminal("run", "Colours", cwd=home)
    assert shown.splitlines() == ["a\tb\\x1b[2J", "c", "horae: Colours: done: a b"]
    raw = on_a_terminal("logs", "Colours", "--raw", cwd=home)
    assert "\x1b[2J" in raw


def test_into_a_pipe_a_run_is_only_asked_for_and_one_key_is_one_receipt(there: Call) -> None:
    first = there("run", "Quiet", "--key", "für heute", "--json").data
    again = there("run", "Quiet", "--key", "für heute", "--table")
    assert (first["title"], first["key"]) == ("Quiet", "idem:für heute")
    assert again.out.startswith(f"Quiet: receipt {first['receipt']}, ")


def test_a_run_inside_a_run_rides_in_its_slot(there: Call) -> None:
    # There is one slot: if it had to wait for another one, neither could ever end.
    done = there("run", "Inside", "--wait", "--table")
    assert (done.code, done.out) == (0, "all the news\nhorae: Digest: done: all the news\n")
    inside, outside = there("history", "-n", "2", "--json").data
    assert (inside["title"], inside["actor"]) == ("Digest", "agent:Inside")
    assert (outside["title"], outside["actor"]) == ("Inside", f"cli:{user_name(os.getuid())}")


def test_the_log_of_a_run_goes_by_its_number_or_by_its_entry(there: Call) -> None:
    told = there("run", "Fails", "--wait", "--json").data
    number = str(told["runs"][0]["run"])
    assert there("logs", number).out == "oh no\n"
    assert there("logs", "Fails", "-f").out == "oh no\n"
    assert there("logs", "fails", "--tail", "0").out == ""
    assert there("run", "Quiet", "--wait").code == 0
    quiet = there("logs", "Quiet")
    assert (quiet.out, "wrote no output" in quiet.err) == ("", True)
    for unknown in ("999", "9" * 30, "Soil/water & light"):
        assert there("logs", unknown).code == 4


def test_a_part_of_a_log_is_shown_or_written_to_a_file(there: Call, home: Path) -> None:
    told = there("run", "Retried", "--wait", "--json").data
    assert [each["attempt"] for each in told["runs"]] == [1, 2]
    assert there("logs", "Retried").out == "attempt 2\nso far\nno good\n"
    assert there("logs", "Retried", "--attempt", "1", "-n", "2").out == "so far\nno good\n"
    assert there("logs", "Retried", "--grep", "^(no|attempt) .", "--since", "1h").out == (
        "attempt 2\nno good\n"
    )
    assert there("logs", "Retried", "--since", "2100-01-01").out == ""
    saved = there("logs", "Retried", "--download", "saved.log")
    assert (saved.out, saved.err) == ("", "horae: saved.log: 25 bytes\n")
    assert (home / "saved.log").read_text() == "attempt 2\nso far\nno good\n"
    again = there("logs", "Retried", "--download", "saved.log")
    assert (again.code, again.err) == (6, "horae: saved.log: the file exists; name another file\n")
    assert there("logs", "Retried", "--attempt", "3").code == 4
    assert there("logs", "Retried", "--grep", "(").code == 2
    wrong = there("logs", "Retried", "--step", "Sum")
    assert (wrong.code, wrong.err) == (
        2,
        "horae: the output has no step 'Sum'; only a workflow has steps\n",
    )


def test_a_log_is_followed_until_somebody_cancels_its_run(there: Call, home: Path) -> None:
    number = running(there, "Long")
    with begun("logs", str(number), "-f", "--tail", "5", cwd=home) as follower:
        assert follower.stdout.readline() == "begun\n"
        ended = there("cancel", "Long", "--reason", "enough", "--table")
        assert (ended.code, ended.out) == (0, f"Long: run {number} is being cancelled\n")
        assert follower.communicate(timeout=10) == ("", "")
    again = there("cancel", str(number), "--json")
    assert (again.code, '"code": "run_state"' in again.err) == (6, True)
    nothing = there("cancel", "Long")
    assert (nothing.code, "no run is in progress" in nothing.err) == (6, True)
    [line] = there("history", "Long", "-n", "1", "--json").data
    assert line["status"] == "killed"
    who = f"{user_name(os.getuid())}, on the command line"
    assert line["reason"] == f"cancelled by {who}: enough"


def test_whoever_waits_for_a_slot_is_told_so(there: Call, home: Path) -> None:
    number = running(there, "Long")
    with begun("run", "Quiet", "--wait", "--table", cwd=home) as waiting:
        said = waiting.stderr.readline()
        assert said == "horae: Quiet waits: no slot is free; gate.slots is 1\n"
        there("run", "Quiet", "--no-wait")
        told = there("cancel", "Quiet")
        what = "2 receipts are waiting (no slot is free; gate.slots is 1); to skip all of them, run"
        assert (told.code, f"no run is in progress; {what}" in told.err) == (6, True), told.err
        assert there("cancel", str(number)).code == 0
        _, rest = waiting.communicate(timeout=10)
    assert (waiting.returncode, rest) == (0, "horae: Quiet: done: exit code 0\n")


def test_whoever_stops_waiting_leaves_the_run_alone(there: Call, home: Path) -> None:
    with begun("run", "Long", "--wait", "--table", cwd=home) as waiting:
        assert waiting.stdout.readline() == "begun\n"
        waiting.send_signal(signal.SIGINT)
        _, said = waiting.communicate(timeout=10)
    assert (waiting.returncode, "is still running; `horae cancel" in said) == (130, True), said
    assert there("cancel", "Long", "--json").data["changed"] is True


def test_every_command_that_changes_something_asks_the_engine(there: Call) -> None:
    rest = there("pause", "Digest", "--note", "away", "--until", "2h", "--json").data
    assert (rest["changed"], rest["pause"]["note"]) == (True, "away")
    refused = there("run", "Digest")
    assert (refused.code, "the entry is paused" in refused.err) == (6, True)
    conflict = there("pause", "Digest", "--note", "x", "--json")
    assert (conflict.code, '"code": "entry_state"' in conflict.err) == (6, True)
    assert there("resume", "Digest", "--table").out.startswith("Digest (entry 1) is resumed; next ")
    window = ["--from", "2026-03-01", "--to", "2026-03-03", "--id", "march"]
    filed = there("backfill", "Digest", *window, "--json").data
    assert (filed["count"], len(filed["receipts"])) == (2, 2)
    assert there("backfill", "Digest", *window, "--json").data == filed
    assert there("backfill", "Digest", "--from", "0001-01-01").code == 2
    pruned = there("prune", "--before", "10y", "--json").data
    assert (pruned["receipts"], pruned["dry_run"]) == (0, False)
    unknown = there("pause", "Digets")
    assert (unknown.code, "did you mean 'Digest'" in unknown.err) == (4, True)


def test_an_engine_that_takes_the_lock_just_before_a_run_runs_it(
    there: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, look = iter([None]), connection.engine_at
    monkeypatch.setattr(
        connection, "engine_at", lambda place: next(looks) if length_hint(looks) else look(place)
    )
    ending = there("run", "Digest", "--json")
    # The engine may start and even end the run before the command has asked for the receipt.
    assert ending.code == 0, ending.err
    assert ending.data["status"] in {"waiting", "held", "starting", "running", "done"}
    client = Client(Path(".horae"))
    receipt = wait_until(
        lambda: [got for got in [client.receipt(ending.data["receipt"])] if got.runs]
    )[0]
    assert receipt.runs[0].run


def test_two_commands_at_once_are_both_served(home: Path) -> None:
    both = [begun("run", "Quiet", "--wait", "--json", cwd=home) for _ in range(2)]
    ends = [each.communicate(timeout=20) for each in both]
    assert [each.returncode for each in both] == [0, 0], ends


def test_what_the_engine_refuses_keeps_its_words_its_code_and_its_exit_code(home: Path) -> None:
    client = Client(home / ".horae")
    with pytest.raises(EngineError) as refused:
        client.pause("Soil/water & light", until=datetime(2020, 1, 1, tzinfo=UTC))
    assert (refused.value.exit_code, refused.value.code) == (2, "request")
    assert str(refused.value).endswith("is in the past; name a later time")
    assert refused.value.data()["facts"] == {"reason": str(refused.value)}
    with pytest.raises(EngineError) as unknown:
        client.entry("Digets")
    assert (unknown.value.exit_code, unknown.value.data()["facts"]["near"]) == (4, ["Digest"])


# Without an engine


def test_without_an_engine_an_entry_is_run_here_and_its_log_is_read(
    call: Call, tmp_path: Path
) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    done = call("run", "Digest", "--table")
    assert (done.code, done.out) == (0, "all the news\n")
    assert call("run", "Fails", "--json").code == 1
    assert call("logs", "Digest").out == "all the news\n"
    assert call("logs", "Digest", "-f", "--tail", "1").out == "all the news\n"
    for args in (["run", "Digest", "--no-wait"], ["run", "Digest", "--key", "k"], ["cancel", "1"]):
        ending = call(*args)
        assert (ending.code, "no engine is running" in ending.err) == (3, True)


def test_two_commands_at_once_both_get_the_lock_in_turn(call: Call, tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    assert call("run", "Digest").code == 0
    both = [begun(verb, "Digest", cwd=tmp_path) for verb in ("pause", "resume")]
    ends = [each.communicate(timeout=20) for each in both]
    assert [each.returncode for each in both] == [0, 0], ends


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A plan root where `horae run` executes a run without an engine, and its process in words."""
    root = tmp_path_factory.mktemp("alone")
    often = command("Often", "echo often", ":SCHEDULE: * * * * *")
    (root / "plan.org").write_text(PLAN + often)
    with begun("run", "Long", cwd=root) as process:
        assert process.stdout.readline() == "begun\n"
        yield root, f"process {process.pid}"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


def test_a_run_without_an_engine_is_not_taken_for_an_engine(
    call: Call, alone: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, process = alone
    monkeypatch.chdir(root)
    absence = f"no engine is running; {process} (`horae run`) uses the ledger until its run ends"
    status = call("status", "--table")
    assert f".horae: {absence}\n" in status.out
    assert "\nrunning\n" in status.out, "not `running when the engine … exited`"
    told = call("status", "--json").data["engine"]
    assert told == {"running": False, "data": ".horae", "pid": None, "since": None}
    times = call("next", "--table")
    assert "times from the plan files" in times.err
    assert f"horae: {absence}\n" in times.err
    checks = {each["check"]: each["found"] for each in call("doctor", "--json").data}
    assert checks["engine"] == absence
    assert "running engine" not in checks["port"]
    assert "in progress" in call("why", "Long", "--table").out


@pytest.mark.parametrize(
    "words",
    [
        "cancel Long",
        "pause Long",
        "resume Long",
        "open",
        "run Digest",
        "prune",
        "backfill Often --from 2026-04-01 --to 2026-04-02",
        "trigger add nightly --cron 0\u00a03\u00a0*\u00a0*\u00a0* --agent x --prompt y",
        "token new",
        "config trust",
    ],
)
def test_a_run_without_an_engine_takes_no_requests_and_says_so_at_once(
    call: Call, alone: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    root, process = alone
    monkeypatch.chdir(root)
    monkeypatch.setattr(connection, "sleep", pytest.fail)
    ending = call(*(word.replace("\u00a0", " ") for word in words.split(" ")))
    assert (ending.code, ending.err) == (
        3,
        (
            f"horae: {process} is executing `horae run` without an engine and takes no requests;"
            " wait until it has ended, or press Ctrl-C there to end the run\n"
        ),
    )


def test_a_run_without_an_engine_is_not_stopped(
    call: Call, alone: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, process = alone
    monkeypatch.chdir(root)
    ending = call("stop")
    assert (ending.code, ending.err) == (
        3,
        (
            f"horae: {process} is not an engine: it executes `horae run` and ends with its run;"
            " press Ctrl-C in its terminal to end it\n"
        ),
    )
    ending = call("up", "--log", "plain")
    assert ending.code == 6
    assert f"in use by {process} (horae run)" in ending.err
    assert "wait until it has ended, or press Ctrl-C there to end the run" in ending.err


def test_a_run_without_an_engine_that_was_killed_is_not_said_to_be_of_an_engine(
    call: Call, tmp_path: Path
) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    with begun("run", "Long", cwd=tmp_path) as process:
        assert process.stdout.readline() == "begun\n"
        process.kill()
        process.communicate(timeout=20)
    said = "the engine or `horae run` exited during the run (recorded at the next `horae up`)"
    [receipt] = json.loads(call("history", "Long", "--json").out)
    assert [receipt["status"], receipt["reason_code"], receipt["reason"]] == [
        "interrupted",
        "engine_exited",
        said,
    ]
    status = json.loads(call("status", "--json").out)
    assert status["counts"]["running"] == 0
    assert (status["running"], [each["reason"] for each in status["failed"]]) == ([], [said])
    [row] = json.loads(call("list", "--search", "Long", "--json").out)
    assert (row["state"], row["last"]["status"]) == ("armed", "interrupted")
    why = call("why", "Long", "--table").out
    assert f"interrupted: {said}" in why
    assert "its end is not recorded yet\n" in why


def test_the_output_of_a_run_without_an_engine_is_followed_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(shell("Waits", "echo begun; cat go; echo ended"))
    os.mkfifo(tmp_path / "go")
    with begun("run", "Waits", cwd=tmp_path) as process:
        assert process.stdout.readline() == "begun\n"
        with begun("logs", "-f", "Waits", cwd=tmp_path) as following:
            assert following.stdout.readline() == "begun\n"
            (tmp_path / "go").write_text("went\n")
            out, _ = following.communicate(timeout=20)
        process.communicate(timeout=20)
    assert out == "went\nended\n"


def test_the_turns_of_an_agent_are_followed_while_it_works(tmp_path: Path) -> None:
    stream = Path(__file__).parents[1] / "data/programs/claude-stream-tools.jsonl"
    lines = stream.read_text().splitlines(keepends=True)
    (tmp_path / "first").write_text("".join(lines[:3]))
    (tmp_path / "rest").write_text("".join(lines[3:]))
    (tmp_path / "plan.org").write_text(shell("Agent", "cat first; cat go; cat rest"))
    os.mkfifo(tmp_path / "go")
    with begun("run", "Agent", cwd=tmp_path) as process:
        assert process.stdout.readline().startswith("claude-sonnet-4-5, session ")
        with begun("logs", "-f", "Agent", cwd=tmp_path) as following:
            assert following.stdout.readline().startswith("claude-sonnet-4-5, session ")
            assert following.stdout.readline() == "I write the file.\n"
            assert following.stdout.readline().startswith("> Write: file_path: ")
            (tmp_path / "go").write_text("")
            out, _ = following.communicate(timeout=20)
        process.communicate(timeout=20)
    assert out.splitlines()[1:] == ["Written.", "2 turns, 200 tokens in, 20 tokens out, $0.0014"]
    with begun("logs", "--raw", "Agent", cwd=tmp_path) as raw:
        assert raw.communicate(timeout=20)[0] == stream.read_text()


def test_a_command_that_has_the_lock_for_a_moment_is_no_engine(call: Call, tmp_path: Path) -> None:
    data = tmp_path / ".horae"
    (tmp_path / "plan.org").write_text(PLAN)
    assert call("run", "Digest").code == 0
    with holding(data, "use=LockUse.COMMAND, command='horae prune'") as holder:
        assert ".horae: no engine is running\n" in call("status", "--table").out
        assert call("stop").out == "no engine is running in .horae\n"
        ending = call("pause", "Digest")
        assert (ending.code, ending.err) == (
            3,
            (
                f"horae: process {holder.pid} is executing `horae prune` without an engine and takes no"
                " requests; wait until it has ended\n"
            ),
        )


@contextmanager
def holding(data: Path, use: str = "") -> Iterator[subprocess.Popen[str]]:
    """Let another process hold the lock of a data directory."""
    program = (
        "import sys\nfrom datetime import datetime, UTC\nfrom pathlib import Path\n"
        "from horae.store.lock import Lock, LockUse\n"
        f"Lock.acquire(Path({str(data)!r}), now=datetime(2026, 4, 1, tzinfo=UTC), {use})\n"
        "print('held', flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder
        holder.communicate("")


def test_whoever_has_the_lock_and_does_not_answer_is_named(call: Call, tmp_path: Path) -> None:
    data = tmp_path / ".horae"

    async def made() -> None:
        await (await SqliteLedger.open(data, now=datetime.now(UTC))).close()

    asyncio.run(made())
    listen(data).close()  # what a dead engine left
    with holding(data) as holder:
        ending = call("prune")
        assert (ending.code, f"in use by process {holder.pid}" in ending.err) == (3, True)
    assert call("prune").code == 0, "a socket that nobody listens on is in nobody's way"


def test_an_engine_that_ends_before_it_has_answered_is_told_of(tmp_path: Path) -> None:
    client = Client(tmp_path, pid=7)
    with pytest.raises(EngineUnreachableError, match=r"process 7.* does not listen"):
        client.status()
    cut = [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", b"HTTP/1.1 200 OK\r\n\r\n{"]
    with listen(tmp_path) as engine:
        for answer in cut:
            asking = asyncio.run(_cut(client, engine, answer))
            assert isinstance(asking, EngineUnreachableError)
            assert "ended before it had answered" in str(asking)
        assert (tmp_path / SOCKET).exists()


async def _cut(client: Client, engine: socket.socket, answer: bytes) -> object:
    """Ask something of an engine that ends within its answer."""
    engine.setblocking(False)
    asking = asyncio.create_task(asyncio.to_thread(client.rescan))
    wire, _ = await asyncio.get_running_loop().sock_accept(engine)
    with wire:
        await asyncio.get_running_loop().sock_recv(wire, 65536)
        await asyncio.get_running_loop().sock_sendall(wire, answer)
    return (await asyncio.gather(asking, return_exceptions=True))[0]


def test_an_engine_that_is_killed_while_a_run_is_followed_is_told_of(tmp_path: Path) -> None:
    with (
        engine_process(tmp_path) as engine,
        begun("run", "Long", "--wait", "--table", cwd=tmp_path) as waiting,
    ):
        assert waiting.stdout.readline() == "begun\n"
        with begun("logs", "Long", "-f", cwd=tmp_path) as following:
            assert following.stdout.readline() == "begun\n"
            engine.kill()
            for each in (waiting, following):
                _, said = each.communicate(timeout=20)
                assert (each.returncode, f"process {engine.pid}" in said) == (3, True)


def test_following_ends_with_an_engine_that_is_stopped(tmp_path: Path) -> None:
    with engine_process(tmp_path) as engine, begun("run", "Long", cwd=tmp_path) as asked:
        asked.communicate(timeout=20)
        with begun("logs", "Long", "-f", cwd=tmp_path) as following:
            assert following.stdout.readline() == "begun\n"
            engine.communicate("", timeout=20)
            assert following.communicate(timeout=20) == ("", "")
        assert following.returncode == 0
