"""A run is held until it is let go, is watched while it lasts, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import resource
import signal
import threading
import time
from contextlib import AsyncExitStack
from datetime import timedelta
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import pytest

from horae.core.ports import Held, RunError, Unreleased
from horae.core.receipt import ReasonCode, Status
from horae.process import launcher, output
from horae.process.logs import RunLog
from horae.process.processes import (
    OldRunsError,
    Processes,
    can_kill_trees,
    parse_end,
    read_end,
)
from horae.process.run_settings import allowed_environment
from horae.process.supervisor import now as boot_seconds
from process.stage import (
    HOSTILE,
    children,
    descriptors,
    holders,
    is_zombie,
    log,
    marked,
    proc,
    python,
    rested,
    shell,
    spec,
    told,
)
from scale import scaled
from store.ledger_suite import story
from waiting import until, wait_until

SECOND = timedelta(seconds=1)
SHORT = timedelta(milliseconds=100)

both = pytest.mark.parametrize("certain", [True, False], ids=["tree", "group"])
pytestmark = pytest.mark.skipif(not can_kill_trees(), reason="looks into /proc, needs pidfds")


# Held start


@both
@story
async def test_nothing_runs_before_the_go(tmp_path: Path, certain: bool) -> None:
    async with Processes(tmp_path, certain=certain) as processes:
        held: Held = await processes.hold(shell(tmp_path, 1, "touch began"))
        assert not is_zombie(held.process.pid)
        assert not marked(tmp_path)
        assert not (tmp_path / "began").exists()
        held.go()
        assert (await held.ended()).outcome is Status.DONE
        assert (tmp_path / "began").exists()


@both
@story
async def test_one_that_is_cancelled_before_the_go_has_never_run(
    tmp_path: Path, certain: bool
) -> None:
    async with Processes(tmp_path, certain=certain) as processes:
        held = await processes.hold(shell(tmp_path, 1, "touch began"))
        held.cancel("no longer wanted")
        held.go()
        ended = await held.ended()
    assert (ended.outcome, ended.reason) == (Status.KILLED, "no longer wanted")
    assert read_end(tmp_path / "runs/1", 1) == Unreleased()
    assert not (tmp_path / "began").exists()


@story
async def test_a_second_go_changes_nothing(tmp_path: Path) -> None:
    async with Processes(tmp_path) as processes:
        held = await processes.hold(shell(tmp_path, 1, "echo x >> began"))
        held.go()
        held.go()
        await held.ended()
        assert await held.ended() == await held.ended()
    assert (tmp_path / "began").read_text() == "x\n"


# What the command gets


@both
@story
async def test_a_command_gets_exactly_its_environment_input_and_place(
    tmp_path: Path, certain: bool
) -> None:
    asked = shell(tmp_path, 1, "env; pwd; cat; umask; ulimit -c; ls /proc/self/fd | wc -w")
    environment = {"PATH": os.environ["PATH"], "GREETING": "grüß dich"}
    async with Processes(tmp_path, certain=certain) as processes:
        asked = spec(
            tmp_path, 1, *asked.argv, environment=environment, stdin=b"a prompt\n" * 100_000
        )
        assert (await told(processes, asked)).outcome is Status.DONE
    lines = log(asked).decode().splitlines()
    inherited = {"PWD", "SHLVL", "_", "OLDPWD"}  # what the shell itself adds
    given = {line for line in lines if "=" in line and line.split("=")[0] not in inherited}
    assert given == {f"{name}={value}" for name, value in environment.items()}
    assert lines.count("a prompt") == 100_000
    # 0, 1 and 2, and the descriptor with which ls reads.
    assert lines[-3:] == ["0077", "0", "4"]
    assert str(tmp_path) in lines


@story
async def test_a_command_without_input_has_nothing_to_read(tmp_path: Path) -> None:
    async with Processes(tmp_path) as processes:
        assert (await told(processes, spec(tmp_path, 1, "cat"))).reason == "exit code 0"


@story
async def test_a_command_has_default_signals_and_a_session_of_its_own(tmp_path: Path) -> None:
    script = "cat /proc/self/status; ps -o sid= -p $$; echo $$; kill -TERM 0; echo alive"
    async with Processes(tmp_path) as processes:
        asked = shell(tmp_path, 1, script)
        ended = await told(processes, asked)
    facts = dict(line.split(":\t", 1) for line in log(asked).decode().splitlines() if ":\t" in line)
    # Signals 32 and 33 belong to the C library, which lets nobody change them.
    assert (int(facts["SigIgn"], 16) | int(facts["SigBlk"], 16)) & ~(3 << 31) == 0
    assert facts["NoNewPrivs"] == "1"
    session, own = log(asked).decode().split()[-2:]
    assert session == own
    # Whoever kills its own group does not reach its supervisor.
    assert ended.outcome is Status.FAILED
    assert ended.reason.startswith("signal SIGTERM")


@story
async def test_limits_hold_for_the_command(tmp_path: Path) -> None:
    script = (
        "import resource as r\n"
        "for name in ('AS', 'CORE'):\n"
        "    print(*r.getrlimit(getattr(r, 'RLIMIT_' + name)))"
    )
    async with Processes(tmp_path) as processes:
        asked = python(tmp_path, 1, script, address_space=1 << 30)
        await told(processes, asked)
    assert log(asked).decode().splitlines() == [f"{each} {each}" for each in (1 << 30, 0)]


@story
async def test_an_engine_that_may_open_more_files_does_not_give_them_to_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(launcher, "GIVEN", 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, (500, before[1]))
    try:
        launcher.allow_descriptors()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert (soft, hard) == (min(hard, 1 << 16), before[1])
        async with Processes(tmp_path) as processes:
            asked = shell(tmp_path, 1, "ulimit -Sn; ulimit -Hn")
            await told(processes, asked)
        assert log(asked).split() == [b"500", b"%d" % hard]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@story
async def test_a_command_that_uses_up_its_descriptors_ends_and_is_reported(tmp_path: Path) -> None:
    hungry = (
        "import os, resource as r\nr.setrlimit(r.RLIMIT_NOFILE, (64, 64))\n"
        "while True: os.open('/dev/null', 0)"
    )
    async with Processes(tmp_path) as processes:
        ended = await told(processes, python(tmp_path, 1, hungry))
        assert ended.reason.startswith("exit code 1: ")
        assert "Too many open files" in ended.reason
    assert b"Too many open files" in log(python(tmp_path, 1, hungry))


def test_a_command_knows_only_what_it_may_of_our_environment() -> None:
    ours = {
        "PATH": "/bin", "LC_TIME": "C", "https_proxy": "http://p", "TERM": "xterm-256color",
        "DATABASE_URL": "postgres://", "HORAE_TOKEN": "t", "API_KEY": "k", "PYTHONPATH": "/x",
    }  # fmt: skip
    allowed = allowed_environment(ours, ["API_KEY", "MISSING"])
    assert allowed == {
        "PATH": "/bin", "LC_TIME": "C", "https_proxy": "http://p", "TERM": "dumb", "API_KEY": "k",
    }  # fmt: skip


# What cannot be started


@both
@story
async def test_what_cannot_be_run_is_refused_before_the_go(tmp_path: Path, certain: bool) -> None:
    (tmp_path / "text").write_text("no program")
    async with Processes(tmp_path, certain=certain) as processes:
        for argv, reason in {
            ("no-such-program",): "no-such-program: no such program in the PATH",
            ("./missing",): "./missing: no such program",
            ("./text",): "./text: Permission denied; make it executable",
            ("/tmp",): "/tmp: is not an executable file",
            ("true", "a\0b"): "true: an argument or variable contains a NUL byte",
            (): "no command is given",
        }.items():
            with pytest.raises(RunError, match=reason):
                await processes.hold(spec(tmp_path, 1, *argv))
        with pytest.raises(RunError, match="gone: No such file or directory"):
            await processes.hold(spec(tmp_path, 1, "true", cwd=tmp_path / "gone"))
        with pytest.raises(RunError, match="text"):
            await processes.hold(spec(tmp_path, 1, "true", directory=tmp_path / "text/1"))
        with pytest.raises(RunError, match="an empty name"):
            await processes.hold(spec(tmp_path, 1, "true", environment={"A=B": "c"}))
        assert (await told(processes, spec(tmp_path, 2, "true"))).outcome is Status.DONE


@both
@story
async def test_a_run_with_arguments_that_are_too_long_fails(tmp_path: Path, certain: bool) -> None:
    async with Processes(tmp_path, certain=certain) as processes:
        for many in (["x" * 200_000], ["x" * 100_000] * 70):
            ended = await told(processes, spec(tmp_path, 1, "true", *many))
            assert ended.outcome is Status.FAILED
            assert ended.reason.endswith("true: Argument list too long")


@story
async def test_what_only_the_start_can_tell_is_a_failed_run(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("neither a script nor a binary")
    program.chmod(0o700)
    async with Processes(tmp_path) as processes:
        ended = await told(processes, spec(tmp_path, 1, str(program)))
    assert ended.outcome is Status.FAILED
    assert ended.reason == f"cannot be started: {program}: Exec format error"


@story
async def test_without_descriptors_a_run_is_refused_and_later_made(tmp_path: Path) -> None:
    async with Processes(tmp_path) as processes:
        await told(processes, spec(tmp_path, 1, "true"))
        await rested(processes)
        _, hard = soft_and_hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = len(descriptors(os.getpid()))
        highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
        filler = [os.open(os.devnull, os.O_RDONLY) for _ in range(highest - used + 3)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(filler) + 1, hard))
        try:
            with pytest.raises(
                RunError, match="no file descriptor for the run: Too many open files"
            ):
                await processes.hold(spec(tmp_path, 2, "true"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, soft_and_hard)
            for each in filler:
                os.close(each)
        assert (await told(processes, spec(tmp_path, 3, "true"))).outcome is Status.DONE


# How it ends


@both
@story
async def test_code_and_first_words_decide(tmp_path: Path, certain: bool) -> None:
    async with Processes(tmp_path, certain=certain) as processes:
        for run, (script, outcome, reason) in enumerate([
            ("echo swept the floor; echo more", Status.DONE, "swept the floor"),
            ("true", Status.DONE, "exit code 0"),
            ("echo warning >&2; sleep 0.01; echo; echo '  NO-WORK: rest'", Status.NO_WORK, "NO-WORK: rest"),
            ("printf 'NO-'; sleep 0.01; printf 'WORK'", Status.NO_WORK, "NO-WORK"),
            ("echo FAILED: no seeds", Status.FAILED, "no seeds"),
            ("exit 3", Status.FAILED, "exit code 3"),
            ("echo swept; echo; exit 3", Status.FAILED, "exit code 3: swept"),
            ("echo swept; echo no broom >&2; exit 3", Status.FAILED, "exit code 3: no broom"),
            ("kill -SEGV $$", Status.FAILED, "signal SIGSEGV"),
        ]):  # fmt: skip
            ended = await told(processes, shell(tmp_path, run, script))
            assert (ended.outcome, ended.reason) == (outcome, reason), script


@both
@story
async def test_the_wall_clock_asks_first(tmp_path: Path, certain: bool) -> None:
    async with Processes(tmp_path, certain=certain) as processes:
        script = "trap 'echo asked; exit 0' TERM; sleep 1000 & wait"
        # A second: on a loaded machine a shell needs more than a tenth to set its trap.
        asked = shell(tmp_path, 1, script, timeout=SECOND, grace=20 * SECOND)
        start = time.monotonic()
        ended = await told(processes, asked)
        assert time.monotonic() - start < 10
    assert (ended.outcome, ended.reason) == (
        Status.KILLED,
        "exceeded the time limit of 1s; last output: asked",
    )
    assert log(asked) == b"asked\n"


@both
@story
async def test_a_run_that_prints_nothing_for_too_long_is_ended_and_one_that_prints_is_not(
    tmp_path: Path, certain: bool
) -> None:
    async with Processes(tmp_path, certain=certain) as processes:
        silent = shell(tmp_path, 1, "echo begun; sleep 1000", idle=SECOND, grace=SHORT)
        busy = shell(tmp_path, 2, "for n in 1 2 3 4 5 6; do echo $n; sleep 0.3; done", idle=SECOND)
        ends = await asyncio.gather(told(processes, silent), told(processes, busy))
    assert (ends[0].outcome, ends[0].reason) == (
        Status.KILLED,
        "printed nothing for 1s; last output: begun",
    )
    assert ends[0].reason.code == ReasonCode.IDLE_LIMIT
    assert ends[1].outcome is Status.DONE


HARD_TO_KILL = {
    "ignores TERM": "trap '' TERM; sleep 1000; sleep 1000",
    "stops itself": "kill -STOP $$; sleep 1000",
    "leaves its session": "setsid sleep 1000 & setsid sleep 1000",
    "forks twice": "(setsid sh -c 'sleep 1000 & exit' &) & sleep 1000",
    "fills its output": "yes & yes >&2",
    "all of it": HOSTILE,
}
ZOMBIES = """
import os, time
for _ in range(50):
    if os.fork() == 0:
        os.setsid()
        for _ in range(3):
            if os.fork() == 0:
                os._exit(0)
        time.sleep(1000)
time.sleep(1000)
"""


@pytest.mark.parametrize("script", HARD_TO_KILL.values(), ids=HARD_TO_KILL.keys())
@story
async def test_after_the_wall_clock_nothing_of_the_tree_is_left(
    tmp_path: Path, script: str
) -> None:
    async with Processes(tmp_path) as processes:
        asked = shell(tmp_path, 1, script, timeout=2 * SHORT, grace=SHORT)
        start = time.monotonic()
        ended = await told(processes, asked)
        assert time.monotonic() - start < 0.3 + 2
        assert ended.outcome is Status.KILLED
        assert not marked(tmp_path)


@story
async def test_zombies_and_their_parents_leave_nothing(tmp_path: Path) -> None:
    async with Processes(tmp_path) as processes:
        held = await processes.hold(python(tmp_path, 1, ZOMBIES, timeout=5 * SHORT, grace=SHORT))
        held.go()
        assert (await held.ended()).outcome is Status.KILLED
        assert not marked(tmp_path)
        await rested(processes)


@story
async def test_orphans_are_reaped_while_the_run_goes_on(tmp_path: Path) -> None:
    script = "for i in $(seq 100); do (true &); done; echo ready; sleep 1000"
    async with Processes(tmp_path) as processes:
        asked = shell(tmp_path, 1, script)
        held = await processes.hold(asked)
        held.go()
        await until(lambda: b"ready" in log(asked), within=5)
        # The shell is left, and its sleep is below the shell.
        await until(lambda: len(children(held.process.pid)) == 1, within=2)
        held.cancel("enough")
        await held.ended()


@both
@story
async def test_a_group_ends_with_its_command(tmp_path: Path, certain: bool) -> None:
    async with Processes(tmp_path, certain=certain) as processes:
        ended = await told(processes, shell(tmp_path, 1, "sleep 1000 & sleep 1000 & echo done"))
        assert ended.outcome is Status.DONE
        await until(lambda: not marked(tmp_path), within=0 if certain else 1)


@both
@story
async def test_whoever_cancels_gives_the_reason(tmp_path: Path, certain: bool) -> None:
    async with Processes(tmp_path, certain=certain) as processes:
        held = await processes.hold(
            shell(tmp_path, 1, "trap '' TERM; touch began; while :; do sleep 1; done", grace=SHORT)
        )
        held.go()
        await until((tmp_path / "began").exists, within=5)
        held.cancel("stopped by Ada")
        held.cancel("again")
        ended = await held.ended()
        assert (ended.outcome, ended.reason) == (Status.KILLED, "stopped by Ada")
        assert not marked(tmp_path)


@story
async def test_output_held_open_by_a_stranger_does_not_delay_the_end(tmp_path: Path) -> None:
    async with Processes(tmp_path) as processes:
        asked = shell(tmp_path, 1, "echo $$; echo working; touch began; sleep 1000")
        held = await processes.hold(asked)
        held.go()
        await until((tmp_path / "began").exists, within=5)
        command = int(log(asked).split()[0])
        stranger = os.open(f"/proc/{command}/fd/1", os.O_WRONLY)
        try:
            os.kill(command, 9)
            async with asyncio.timeout(2):
                assert (await held.ended()).reason.startswith("signal SIGKILL")
        finally:
            os.close(stranger)


@both
@story
async def test_a_frozen_engine_is_not_waited_for_beyond_its_word(
    tmp_path: Path, certain: bool
) -> None:
    async with Processes(tmp_path, certain=certain) as processes:
        run = await processes.hold(shell(tmp_path, 1, "sleep 1000"))
        held = await processes.hold(shell(tmp_path, 2, "touch began"))
        run.go()
        processes.alive_until(boot_seconds() + 1000)
        processes.alive_until(boot_seconds() + 0.2)
        # The engine is frozen: nothing reads, nothing writes, and no lifeline closes.
        wait_until((tmp_path / "runs/1/end.json").exists, within=2)
        assert not marked(tmp_path)
        ended = await run.ended()
        assert ended.outcome is Status.INTERRUPTED
        assert ended.reason == "the node did not reach the database in time to renew its lease"
        await held.ended()
        assert read_end(tmp_path / "runs/2", 2) == Unreleased()
        assert not (tmp_path / "began").exists()


@story
async def test_a_run_made_after_an_engines_last_word_is_bound_by_it_too(tmp_path: Path) -> None:
    async with Processes(tmp_path) as processes:
        processes.alive_until(boot_seconds() + 0.5)
        run = await processes.hold(shell(tmp_path, 1, "sleep 1000"))
        run.go()
        async with asyncio.timeout(20):
            ended = await run.ended()
        assert ended.outcome is Status.INTERRUPTED
        assert ended.reason == "the node did not reach the database in time to renew its lease"

        # Its time is over: what is let go now does not begin.
        late = await processes.hold(shell(tmp_path, 2, "touch began"))
        late.go()
        async with asyncio.timeout(20):
            assert (await late.ended()).facts == {"released": False}
        assert read_end(tmp_path / "runs/2", 2) == Unreleased()
        assert not (tmp_path / "began").exists()

        processes.alive_until(boot_seconds() + 1000)
        assert (await told(processes, shell(tmp_path, 3, "true"))).outcome is Status.DONE


@both
@story
async def test_whoever_closes_ends_every_run(tmp_path: Path, certain: bool) -> None:
    async with Processes(tmp_path, certain=certain) as processes:
        held = await processes.hold(shell(tmp_path, 1, "sleep 1000"))
        held.go()
        await until(lambda: marked(tmp_path), within=5)
    assert not marked(tmp_path)
    assert not holders(tmp_path)
    assert (await held.ended()).outcome is Status.INTERRUPTED


# Output


@story
async def test_a_flood_neither_blocks_nor_fills_disk_or_memory(tmp_path: Path) -> None:
    size = scaled(2 << 30)
    async with Processes(tmp_path) as processes:
        asked = shell(tmp_path, 1, f"echo first; yes 0123456789abcdef | head -c {size}; echo last")
        held = await processes.hold(asked)
        held.go()
        ending = asyncio.ensure_future(held.ended())
        memory = disk = 0
        while not ending.done():
            status = proc(held.process.pid, "status").partition(b"VmRSS:")[2].split()
            memory = max(memory, int(status[0]) if status else 0)
            disk = max(disk, sum(_size(each) for each in asked.directory.iterdir()))
            await asyncio.sleep(0.01)
        ended = await ending
    assert memory < 28 << 10  # KiB, of which the interpreter has 8,000
    assert disk <= output.HEAD + output.TAIL * 9 // 8 + (1 << 20)  # with the index
    total = size + len("first\nlast\n")
    kept = RunLog(asked.directory / "output.log")
    cuts = [(one.end, two.start) for one, two in pairwise(kept.parts()) if one.end < two.start]
    [(cut, start)] = cuts
    assert (cut, kept.end) == (output.HEAD, total)
    assert output.TAIL <= total - start <= output.TAIL * 9 // 8
    assert (ended.facts["output"], ended.facts["left_out"]) == (total, start - cut)
    text = b"0123456789abcdef\n" * (output.TAIL // 15)
    assert kept.read(0, output.HEAD)[0] == (b"first\n" + text)[: output.HEAD]
    begin, length = (start - len("first\n")) % 17, total - start - len("last\n")
    assert kept.last(total - start)[0] == text[begin : begin + length] + b"last\n"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


@pytest.mark.parametrize("size", [0, 1 << 20, (1 << 20) + 1, 2 << 20, 3_500_000])
@story
async def test_what_fits_is_kept_whole_and_what_does_not_is_counted(
    tmp_path: Path, size: int
) -> None:
    text = bytes(ord("a") + each * 7 % 26 for each in range(size))
    async with Processes(tmp_path, kept=(1 << 20, 1 << 20)) as processes:
        asked = spec(tmp_path, 1, "cat", stdin=text)
        ended = await told(processes, asked)
    left = ended.facts["left_out"]
    part = (1 << 20) // output.PARTS
    assert left == max(0, (size - (2 << 20)) // part * part)
    middle = b"\n[%d bytes of output left out]\n" % left if left else b""
    shown, start = [], 0
    while (found := RunLog(asked.directory / "output.log").read(start))[0]:
        shown.append(found[0])
        start = found[1]
    assert b"".join(shown) == text[: 1 << 20] + middle + text[(1 << 20) + left :]


@story
async def test_a_long_line_and_bytes_that_are_no_text_are_data(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "out = sys.stdout.buffer\n"
        "out.write(b'\\x1b[31m\\xff\\xfe\\x00 odd \\xe2\\x82')\n"
        "out.write(b'x' * 10_000_000)"
    )
    async with Processes(tmp_path) as processes:
        ended = await told(processes, python(tmp_path, 1, script))
    assert ended.outcome is Status.DONE
    assert ended.reason.startswith("�� odd �xxx")
    assert len(ended.reason) == 200
    assert ended.facts["output"] == 10_000_015


@story
async def test_no_secret_is_kept(tmp_path: Path) -> None:
    secret = b"s3cr&t/value+1"
    encoded = base64.b64encode(b"user:" + secret).decode()
    script = (
        "import sys, time\n"
        f"texts = [{secret.decode()!r}, {encoded!r}, {quote(secret, safe='')!r}]\n"
        "for stream in (sys.stdout, sys.stderr):\n"
        "    for text in texts:\n"
        "        for character in text:\n"
        "            stream.write(character); stream.flush()\n"
        "        stream.write('\\n')\n"
    )
    async with Processes(tmp_path) as processes:
        asked = python(tmp_path, 1, script, secrets=(secret,))
        ended = await told(processes, asked)
    assert ended.reason == "[secret]"
    assert log(asked).count(b"[secret]") == 6
    everything = b"".join(each.read_bytes() for each in asked.directory.iterdir())
    for text in (secret, encoded.encode()[8:-4], quote(secret, safe="").encode()):
        assert text not in everything


@story
async def test_a_disk_that_takes_nothing_does_not_stop_the_run(tmp_path: Path) -> None:
    async with Processes(tmp_path) as processes:
        asked = shell(tmp_path, 1, "rm -rf runs; yes | head -c 3000000; echo done >> began")
        ended = await told(processes, asked)
    assert (tmp_path / "began").exists()
    assert ended.outcome is Status.DONE
    assert read_end(asked.directory, 1) is None


# One supervisor after another, or the same again


@story
async def test_a_supervisor_of_whose_run_nothing_is_left_takes_the_next(tmp_path: Path) -> None:
    async with Processes(tmp_path) as processes:
        pids = []
        for run, script in enumerate(
            ["sleep 1000 & yes | head -c 3000000", "cat", HOSTILE, "true"]
        ):
            short = timedelta(milliseconds=300) if script is HOSTILE else None
            held = await processes.hold(
                shell(tmp_path, run, script, stdin=b"in", timeout=short, grace=SHORT)
            )
            pids.append(held.process.pid)
            held.go()
            ended = await held.ended()
            assert ended.outcome is (Status.KILLED if script is HOSTILE else Status.DONE)
            assert not marked(tmp_path)
        assert len(set(pids)) == 1
        assert log(shell(tmp_path, 1, "")) == b"in"
        # It clears away after it has told the end, and may have gone since.
        here = Path(f"/proc/{pids[0]}/cwd")
        await until(lambda: not here.exists() or here.resolve() == Path("/"), within=10)
        # A socket, the engine, the lock, deaths, and nothing of the runs.
        assert len(descriptors(pids[0])) <= 3 + 6
        await rested(processes)
    assert (tmp_path / "launcher.log").read_text() == ""


@story
async def test_other_limits_or_another_launcher_need_another_supervisor(tmp_path: Path) -> None:
    async with Processes(tmp_path) as processes:

        async def served_by(run: int, **options: object) -> int:
            held = await processes.hold(shell(tmp_path, run, "ulimit -v", **options))
            held.go()
            assert (await held.ended()).outcome is Status.DONE
            return held.process.pid

        first = await served_by(1)
        assert await served_by(2, address_space=1 << 30) != first
        assert log(shell(tmp_path, 2, "")) == b"1048576\n"
        assert await served_by(3) == first
        assert log(shell(tmp_path, 3, "")) != b"1048576\n"
        os.kill(processes.launcher_pid or 0, signal.SIGKILL)
        await until(lambda: processes.launcher_pid is None, within=5)
        assert await served_by(4) != first


@story
async def test_what_is_said_to_a_run_that_has_ended_is_not_said_to_the_next(tmp_path: Path) -> None:
    async with Processes(tmp_path) as processes:
        pids = set()
        for run in range(5):
            held = await processes.hold(shell(tmp_path, run, "true"))
            pids.add(held.process.pid)
            held.go()
            # The loop does not turn, so the end is not heard of.
            wait_until((tmp_path / f"runs/{run}/end.json").exists)
            held.go()
            held.alive_until(boot_seconds() - 1)
            held.cancel("too late")
            assert (await held.ended()).outcome is Status.DONE
        assert len(pids) == 1


@pytest.mark.parametrize("harm", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
@story
async def test_a_supervisor_that_comes_to_harm_while_it_rests_harms_no_run(
    tmp_path: Path, harm: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horae.process.processes.READY", 1.0)
    monkeypatch.setattr("horae.process.processes.REST", 60.0)
    async with Processes(tmp_path) as processes:
        held = await processes.hold(shell(tmp_path, 1, "true"))
        held.go()
        await held.ended()
        os.kill(held.process.pid, harm)
        assert (await told(processes, shell(tmp_path, 2, "echo well"))).reason == "well"
        assert [
            pid for pid in holders(tmp_path) if pid == held.process.pid and not is_zombie(pid)
        ] == []


@story
async def test_after_many_runs_a_supervisor_goes_by_itself(
    tmp_path: Path,
) -> None:
    async with Processes(tmp_path) as processes:
        pids = []
        for run in range(1005):
            held = await processes.hold(spec(tmp_path, run % 10, "true"))
            pids.append(held.process.pid)
            held.go()
            assert (await held.ended()).outcome is Status.DONE
        assert len(set(pids[:1000])) == 1
        assert len(set(pids)) == 2


# Filters


@pytest.mark.parametrize("size", [0, 7, 1 << 15, (1 << 15) + 1, 3_000_000])
@story
async def test_what_a_filter_puts_out_is_kept_to_the_byte(tmp_path: Path, size: int) -> None:
    data = bytes(each * 7 % 256 for each in range(size))
    (tmp_path / "source").write_bytes(data)
    target = tmp_path / "target"
    async with Processes(tmp_path) as processes:
        for _ in range(2):  # the second one in a supervisor that has run the first
            asked = shell(
                tmp_path, 1, "echo aside >&2; cat", source=tmp_path / "source", target=target,
                most=size, is_reported=False, secrets=(data[:7],) if size else (),
            )  # fmt: skip
            held = await processes.hold(asked)
            held.go()
            ended = await held.ended()
            assert ended.outcome is Status.DONE
            assert (ended.facts["size"], ended.facts["sum"]) == (size, sha256(data).hexdigest())
            is_short = size <= 1 << 15
            assert (held.output if is_short else target.read_bytes()) == data
            assert target.exists() is not is_short
            assert log(asked) == b"aside\n"
            assert not (asked.directory / "end.json").exists()


@story
async def test_a_filter_that_puts_out_too_much_is_ended(tmp_path: Path) -> None:
    async with Processes(tmp_path) as processes:
        asked = shell(
            tmp_path, 1, "trap '' TERM PIPE; while :; do yes; done",
            target=tmp_path / "target", most=100_000, is_reported=False, grace=SHORT,
        )  # fmt: skip
        held = await processes.hold(asked)
        held.go()
        ended = await held.ended()
    assert (ended.outcome, ended.reason) == (
        Status.KILLED,
        "the output is larger than 100000 bytes",
    )
    assert (tmp_path / "target").stat().st_size <= 100_000
    assert not marked(tmp_path)


@story
async def test_what_cannot_be_run_is_said_by_a_supervisor_that_has_run_something_too(
    tmp_path: Path,
) -> None:
    async with Processes(tmp_path) as processes:
        for run in (1, 3):
            with pytest.raises(RunError, match="no such program"):
                await processes.hold(spec(tmp_path, run, "no-such-program"))
            await told(processes, spec(tmp_path, run + 1, "true"))


# Looking back, and residue


@story
async def test_a_report_tells_how_a_run_of_before_ended(tmp_path: Path) -> None:
    async with Processes(tmp_path) as processes:
        ended = await told(processes, shell(tmp_path, 7, "echo NO-WORK"))
    async with Processes(tmp_path) as processes:
        assert await processes.look_back(tmp_path / "runs/7", 7) == ended
        assert await processes.look_back(tmp_path / "runs/7", 8) is None
        assert await processes.look_back(tmp_path / "runs/8", 8) is None


@pytest.mark.parametrize(
    "report",
    [b"", b"{", b"[]", b"null", b'{"run": 1}', b"\xff\xfe", b'{"run": 1, "released": true}',
     b'{"run": 1, "released": true, "why": "magic", "first": "", "said": "", "limit": null}',
     b'{"run": 1, "released": true, "why": "exit", "first": "", "said": "", "limit": 1e99}'],
)  # fmt: skip
def test_a_report_that_cannot_be_read_tells_nothing(report: bytes) -> None:
    assert parse_end(report, 1) is None


@story
async def test_while_anything_of_before_is_alive_nothing_begins(tmp_path: Path) -> None:
    async with Processes(tmp_path) as before:
        after = Processes(tmp_path)
        with pytest.raises(OldRunsError, match="still active"):
            await after.begin(patience=SHORT)
        waiting = asyncio.ensure_future(after.begin())
        held = await before.hold(shell(tmp_path, 1, "sleep 1000"))
        held.go()
        await asyncio.sleep(0.05)
        assert not waiting.done()
    await waiting
    assert not marked(tmp_path)
    await after.close()


@both
@story
async def test_many_runs_leave_nothing_behind(tmp_path: Path, certain: bool) -> None:
    async with AsyncExitStack() as stack:
        processes = await stack.enter_async_context(Processes(tmp_path, certain=certain))

        async def lane(first: int, count: int) -> None:
            for run in range(first, first + count):
                script = ["true", "exit 1", "sleep 1000 & true", "no-such-command"][run % 4]
                held = await processes.hold(
                    shell(tmp_path, run % 50, script, directory=tmp_path / "runs" / str(run % 50))
                )
                if run % 5:
                    held.go()
                else:
                    held.cancel("not this one")
                await held.ended()

        await lane(0, 20)
        await rested(processes)
        files, threads = len(descriptors(os.getpid())), threading.active_count()
        launcher_pid = processes.launcher_pid
        assert launcher_pid is not None
        theirs = len(descriptors(launcher_pid))
        await asyncio.gather(*(lane(n, scaled(5000) // 16) for n in range(16)))
        await rested(processes)
        assert len(descriptors(os.getpid())) == files
        assert threading.active_count() == threads
        assert processes.launcher_pid == launcher_pid
        assert len(descriptors(launcher_pid)) == theirs
        assert not marked(tmp_path)
    assert (tmp_path / "launcher.log").read_text() == ""


@story
async def test_a_report_is_plain_json(tmp_path: Path) -> None:
    async with Processes(tmp_path) as processes:
        await told(processes, shell(tmp_path, 1, "echo 'quotes \" and \\ and é'", timeout=SECOND))
    report = json.loads((tmp_path / "runs/1/end.json").read_text())
    assert report["first"] == 'quotes " and \\ and é'
    assert (report["run"], report["why"], report["code"], report["limit"]) == (1, "exit", 0, 1.0)
    assert report["max_rss"] > 0
