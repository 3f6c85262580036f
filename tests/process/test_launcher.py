"""Whoever dies, engine, launcher or supervisor: nothing is left alive, and nothing is in doubt."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from horae.core.ports import Ended, LauncherLostError, Unreleased
from horae.core.receipt import Status
from horae.process import launcher
from horae.process.processes import Processes, can_kill_trees, read_end
from process.stage import (
    HOSTILE,
    Engine,
    children,
    holders,
    marked,
    rested,
    shell,
    spec,
    told,
)
from scale import scaled
from store.ledger_suite import story
from waiting import until, wait_until

SHORT = timedelta(milliseconds=100)

both = pytest.mark.parametrize("certain", [True, False], ids=["tree", "group"])
pytestmark = pytest.mark.skipif(not can_kill_trees(), reason="looks into /proc, needs pidfds")


@both
def test_an_engine_that_dies_before_the_go_leaves_the_run_unreleased(
    tmp_path: Path, certain: bool
) -> None:
    engine = Engine(tmp_path, "hold", "3", "touch began", certain=certain)
    wait_until(lambda: len(engine.numbers("held")) == 3, within=10)
    engine.kill()
    wait_until(lambda: not holders(tmp_path), within=2)
    assert [read_end(tmp_path / f"runs/{run}", run) for run in range(3)] == [Unreleased()] * 3
    assert not (tmp_path / "began").exists()


@both
@story
async def test_a_go_after_which_the_engine_is_gone_at_once_lets_nothing_begin(
    tmp_path: Path, certain: bool
) -> None:
    async with Processes(tmp_path, certain=certain) as processes:
        run = await processes.hold(shell(tmp_path, 1, "touch began"))
        os.kill(run.process.pid, signal.SIGSTOP)
        run.go()
        run.drop()
        os.kill(run.process.pid, signal.SIGCONT)
        await until((tmp_path / "runs/1/end.json").exists, within=2)
        assert read_end(tmp_path / "runs/1", 1) == Unreleased()
    assert not (tmp_path / "began").exists()


def test_an_engine_that_dies_takes_every_tree_with_it(tmp_path: Path) -> None:
    engine = Engine(tmp_path, "go", "6", "trap '' TERM\n" + HOSTILE)
    wait_until(lambda: len(marked(tmp_path)) >= 6 * 6, within=15)
    engine.kill()
    wait_until(lambda: not marked(tmp_path) and not holders(tmp_path), within=2)
    for run in range(6):
        ended = read_end(tmp_path / f"runs/{run}", run)
        assert isinstance(ended, Ended)
        assert ended.outcome is Status.INTERRUPTED
        assert ended.reason == "the engine exited during the run"


def test_without_trees_a_dead_engine_still_takes_the_groups_with_it(tmp_path: Path) -> None:
    engine = Engine(tmp_path, "go", "3", "trap '' TERM; sleep 1000 & sleep 1000", certain=False)
    wait_until(lambda: len(marked(tmp_path)) >= 3 * 3, within=15)
    engine.kill()
    wait_until(lambda: not marked(tmp_path) and not holders(tmp_path), within=2)


def test_a_stray_copy_of_the_engine_keeps_no_run_alive(tmp_path: Path) -> None:
    engine = Engine(tmp_path, "fork", "2", "sleep 1000")
    wait_until(lambda: any(line[0] == "launcher" for line in engine.words()), within=10)
    wait_until(lambda: len(marked(tmp_path)) >= 2, within=10)
    (stray,) = engine.numbers("stray")
    try:
        engine.kill()
        # The copy has every lifeline open, and all the same:
        wait_until(lambda: not marked(tmp_path) and holders(tmp_path) == [stray], within=2)
        assert isinstance(read_end(tmp_path / "runs/0", 0), Ended)
    finally:
        os.kill(stray, signal.SIGKILL)


def test_a_stopped_supervisor_dies_with_its_engine_all_the_same(tmp_path: Path) -> None:
    engine = Engine(tmp_path, "go", "2", HOSTILE)
    wait_until(lambda: any(line[0] == "launcher" for line in engine.words()), within=10)
    wait_until(lambda: len(marked(tmp_path)) >= 2 * 6, within=10)
    os.kill(int(engine.words()[0][2]), signal.SIGSTOP)
    engine.kill()
    wait_until(lambda: not marked(tmp_path) and not holders(tmp_path), within=2.5)
    assert read_end(tmp_path / "runs/0", 0) is None
    assert read_end(tmp_path / "runs/1", 1) is not None


def test_an_engine_that_dies_while_its_launcher_begins_leaves_no_word_of_it(tmp_path: Path) -> None:
    chance = random.Random(3)
    for _ in range(scaled(60)):
        engine = Engine(tmp_path, "hold", "1", "true")
        wait_until(lambda: children(engine.process.pid), within=10)  # noqa: B023 (it is waited for)
        time.sleep(chance.uniform(0, 0.05))
        engine.kill()
        wait_until(lambda: not holders(tmp_path), within=10)
    assert (tmp_path / "launcher.log").read_text() == ""


@pytest.mark.parametrize("certain", ["1", "0"], ids=["tree", "group"])
def test_a_launcher_whose_engine_is_dead_before_it_begins_ends_without_a_word(
    tmp_path: Path, certain: str
) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    ours, theirs = socket.socketpair()
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    package = str(Path(launcher.__file__).parents[2])
    said = [str(tmp_path), "1024", str(theirs.fileno()), str(lock), str(dead.pid), certain]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", launcher.PROGRAM, package, *said],
        pass_fds=(theirs.fileno(), lock),
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")
    for each in (ours, theirs):
        each.close()
    os.close(lock)


@story
async def test_a_dead_launcher_touches_no_run_and_is_replaced(tmp_path: Path) -> None:
    async with Processes(tmp_path) as processes:
        asked = shell(
            tmp_path, 1, "touch began; while [ ! -e stop ]; do sleep 0.01; done; echo well"
        )
        run = await processes.hold(asked)
        run.go()
        await until((tmp_path / "began").exists, within=5)
        first = processes.launcher_pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: processes.launcher_pid is None, within=2)
        assert (await told(processes, spec(tmp_path, 2, "echo", "next"))).reason == "next"
        assert processes.launcher_pid not in {None, first}
        (tmp_path / "stop").touch()
        ended = await run.ended()
        assert (ended.outcome, ended.reason) == (Status.DONE, "well")


@story
async def test_a_launcher_that_dies_over_a_hold_says_that_nothing_was_started(
    tmp_path: Path,
) -> None:
    async with Processes(tmp_path) as processes:
        await told(processes, spec(tmp_path, 1, "true"))
        await rested(processes)
        pid = processes.launcher_pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        holding = asyncio.ensure_future(processes.hold(shell(tmp_path, 2, "touch began")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(LauncherLostError, match="nothing was started"):
            await holding
        assert (await told(processes, spec(tmp_path, 3, "true"))).outcome is Status.DONE
    assert not (tmp_path / "began").exists()


@story
async def test_a_dead_supervisor_leaves_an_interrupted_run_and_no_process(tmp_path: Path) -> None:
    async with Processes(tmp_path) as processes:
        run = await processes.hold(shell(tmp_path, 1, HOSTILE))
        run.go()
        await until(lambda: len(marked(tmp_path)) >= 6, within=5)
        start = time.monotonic()
        os.kill(run.process.pid, signal.SIGKILL)
        ended = await run.ended()
        assert time.monotonic() - start < 2
        assert (ended.outcome, ended.reason) == (
            Status.INTERRUPTED,
            "the supervisor of the run died, and its processes were killed",
        )
        assert not marked(tmp_path)


@story
async def test_a_stopped_supervisor_does_not_outlive_the_wall_clock(tmp_path: Path) -> None:
    async with Processes(tmp_path) as processes:
        run = await processes.hold(
            shell(tmp_path, 1, "kill -STOP $PPID; sleep 1000", timeout=SHORT, grace=SHORT)
        )
        run.go()
        assert (await run.ended()).outcome is Status.INTERRUPTED
        assert not marked(tmp_path)


def test_whoever_is_killed_at_whatever_moment_nothing_is_left_and_nothing_in_doubt(
    tmp_path: Path,
) -> None:
    chance, first = random.Random(7), 0
    for turn in range(scaled(60)):
        engine = Engine(tmp_path, "loop", str(first))
        engine.wait_for_run(first)
        time.sleep(chance.uniform(0, 0.3))
        for victim in victims(tmp_path, engine)[turn % 3]:
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        time.sleep(chance.uniform(0, 0.3))
        assert engine.process.poll() is None, "an engine outlives its launcher and its supervisors"
        engine.kill()
        wait_until(lambda: not marked(tmp_path) and not holders(tmp_path), within=2)
        begun, first = first, max(engine.numbers("asked")) + 1
        check(tmp_path, engine, begun)


def victims(data: Path, engine: Engine) -> tuple[list[int], list[int], list[int]]:
    """Return whom to kill before the engine: nobody, its launcher, or one supervisor."""
    launchers = children(engine.process.pid)
    others = set(holders(data)) - {engine.process.pid, *launchers}
    return [], launchers, sorted(others)[:1]


def check(data: Path, engine: Engine, first: int) -> None:
    """Every run has a report or was never let go, but for those whose supervisor was killed."""
    lost = 0
    for run in {run for run in engine.numbers("asked") if run >= first}:
        began = data / f"began-{run}"
        # Killed between opening and writing, it leaves an empty file.
        assert not began.exists() or began.read_text() in {"", "x\n"}, "it ran twice"
        end = read_end(data / f"runs/{run}", run)
        if end == Unreleased():
            assert not began.exists()
        lost += end is None and began.exists()
    for run in {run for run in engine.numbers("ended") if run >= first}:
        assert read_end(data / f"runs/{run}", run) != Unreleased()
    assert lost <= 1
