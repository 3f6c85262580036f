"""Where a cgroup is delegated each run has one of its own; where none is, that is said in words."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from horae.app import limits_of
from horae.config import SettingError, load
from horae.core.ports import Ended
from horae.core.receipt import Status
from horae.process.cgroup import (
    CgroupLimits,
    CgroupStatus,
    own_cgroup,
    standing,
)
from horae.process.processes import Processes, parse_end
from horae.process.tree import kill_each
from horae.web import SOCKET
from process.delegated import HORAE, Delegated, ask, base
from process.stage import (
    HOSTILE,
    Engine,
    holders,
    is_zombie,
    log,
    marked,
    python,
    shell,
    told,
)
from scale import scaled
from sources.workflows.stage import Yard, flow, step, tasks
from store.ledger_suite import story
from waiting import until, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
PLACE = base()
needs_cgroup = pytest.mark.skipif(PLACE is None, reason="no cgroup v2 can be written here")

# Each link of a chain leaves session and parent and is gone before anybody could look at it.
CHAINS = """
import os, time
for _ in range({count}):
    if not os.fork():
        while True:
            os.setsid()
            if os.fork():
                os._exit(0)
            time.sleep(0.001)
"""

# Cgroups one in the other, until their path is longer than any that the system takes.
DEEP = """
import os
pen = open("/proc/self/cgroup").read().strip().rpartition("/")[2]
os.chdir(f"{above}/{{pen}}")
for _ in range(20):
    os.mkdir("x" * 250)
    os.chdir("x" * 250)
print("deep")
"""


@pytest.fixture
def cgroup() -> Iterator[Delegated]:
    assert PLACE is not None
    made = Delegated(PLACE)
    yield made
    made.clear()


def penned(cgroup: Delegated, data: Path, limits: CgroupLimits | None = None) -> Processes:
    """Return what makes runs in pens; it stays where it is itself."""
    return Processes(data, cgroup=cgroup.path, limits=limits)


def remove_inside(pen: Path) -> None:
    """Remove what is in a cgroup, however deep, one step at a time."""
    for _, inside, _, at in os.fwalk(pen, topdown=False):
        for each in inside:
            os.rmdir(each, dir_fd=at)


def has(cgroup: Delegated, *controllers: str) -> None:
    """Skip a test of limits where the system has none for us."""
    missing = set(controllers) - set(cgroup.controllers())
    if missing:
        pytest.skip(f"no controller here for {', '.join(sorted(missing))}")


# What is asked for


@given(st.integers(16 * MIB, 1 << 40))
def test_memory_is_asked_for_as_settings_write_sizes(size: int) -> None:
    spellings = [str(size)]
    for unit, factor in (("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30)):
        if size % factor == 0:
            spellings += [f"{size // factor}{unit}", f"{size // factor} {unit}iB"]
    for spelling in spellings:
        config = load("/nowhere", environ={"HORAE_RUN_MEMORY": spelling})
        assert limits_of(config) == CgroupLimits(memory_max=size)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("HORAE_RUN_MEMORY", "15M", "the minimum is 16M"),
        ("HORAE_RUN_MEMORY", "lots", "is not a number of bytes such as 512M or 2G"),
        ("HORAE_RUN_PROCESSES", "0", "is not a whole number from 1 to 1,000,000"),
        ("HORAE_RUN_CPUS", "0", "is not a number of cores from 0.01 to 1024 such as 1.5"),
        ("HORAE_RUN_CPUS", "nan", "is not a number of cores from 0.01 to 1024 such as 1.5"),
        ("HORAE_RUN_CPUS", "2000", "is not a number of cores from 0.01 to 1024 such as 1.5"),
    ],
)
def test_a_limit_that_cannot_be_is_refused_in_words(name: str, value: str, words: str) -> None:
    with pytest.raises(SettingError) as refused:
        load("/nowhere", environ={name: value})
    assert words in str(refused.value)


def test_cores_may_be_written_as_a_number_or_as_text(tmp_path: Path) -> None:
    for written in ("1.5", '"1.5"'):
        (tmp_path / "horae.toml").write_text(f"[run]\ncpus = {written}\nprocesses = 40\n")
        assert limits_of(load(tmp_path, environ={})) == CgroupLimits(pids_max=40, cpu_max=1.5)


def test_what_a_run_says_itself_comes_before_what_any_run_may() -> None:
    any_run = CgroupLimits(memory_max=64 * MIB, pids_max=40, cpu_max=2)
    step = CgroupLimits(memory_max=512 * MIB, memory_from=":MEMORY:")
    assert step.over(any_run) == CgroupLimits(512 * MIB, 40, 2, ":MEMORY:")
    assert CgroupLimits(memory_from=":MEMORY:").over(any_run) == any_run


# What is said


def test_the_words_agree_with_what_is_used() -> None:
    state = standing().words
    assert state.startswith("cgroups are not used: ") is (standing().path is None)
    assert "Delegate=yes" in state or str(standing().path) in state


def test_a_limit_that_does_not_hold_is_told_with_what_would_help() -> None:
    wanted = CgroupLimits(memory_max=64 * MIB, cpu_max=1)
    nowhere = dict(CgroupStatus(missing="cgroup v2 is not mounted").unheld(wanted))
    assert nowhere.keys() == {"run.memory", "run.cpus"}
    assert "DelegateSubgroup=engine" in nowhere["run.memory"]
    partly = dict(CgroupStatus(Path("/cg"), ("memory", "pids")).unheld(wanted))
    assert partly == {"run.cpus": "there is no cpu controller in /cg"}
    assert not dict(CgroupStatus(Path("/cg"), ("memory", "cpu")).unheld(wanted))


def test_the_end_says_which_limit_it_was() -> None:
    memory = "killed: the run used more memory than run.memory allows (64M)"
    processes = "the run tried to start more processes than run.processes allows (9)"

    def ended(**facts: object) -> tuple[Status, str]:
        known = {"run": 1, "released": True, "why": "exit", "said": "", "first": "", "limit": None}
        found = parse_end(json.dumps(known | facts).encode(), 1)
        assert isinstance(found, Ended)
        return found.outcome, found.reason

    none = "killed: the machine or the Horae service ran out of memory"
    both = {"no_memory": none, "over_memory": memory, "over_processes": processes}
    assert ended(signal=9, **both) == (Status.KILLED, memory)
    assert ended(signal=9, no_memory=none) == (Status.KILLED, none)
    assert ended(code=137, over_memory=memory) == (Status.KILLED, memory)
    assert ended(code=1, over_processes=processes)[:2] == (
        Status.FAILED,
        f"exit code 1; {processes}",
    )
    late = ended(why="timeout", limit=5, signal=9, **both)
    assert late == (Status.KILLED, f"exceeded the time limit of 5s; {processes}")
    assert ended(code=0, **both) == (Status.DONE, "exit code 0")  # it got by
    assert ended(why="cancel", said="stop", signal=9, **both) == (Status.KILLED, "stop")


@story
async def test_a_cgroup_that_cannot_be_made_changes_nothing_but_is_told(tmp_path: Path) -> None:
    async with Processes(tmp_path, cgroup=tmp_path / "no/such/group") as processes:
        asked = shell(tmp_path, 1, "echo well", cgroup=CgroupLimits(pids_max=10))
        ended = await told(processes, asked)
    assert ended.reason == "well"
    assert ended.facts["unlimited"] == "pids.max"


# Runs in cgroups


@needs_cgroup
@story
async def test_a_run_lives_in_a_cgroup_of_its_own(tmp_path: Path, cgroup: Delegated) -> None:
    async with penned(cgroup, tmp_path) as processes:
        asked = shell(tmp_path, 71, "setsid sleep 1000 & grep ^0:: /proc/self/cgroup")
        held = await processes.hold(asked)
        held.go()
        ended = await held.ended()
        assert ended.exit_code == 0
        where = log(asked).decode().strip()
        assert Path(where).parent.name == cgroup.path.name
        assert Path(where).name.startswith("run-")
        assert Path(where).name.endswith(f"-71-{held.process.pid}")
        assert not marked(tmp_path)
        assert not cgroup.pens()


@needs_cgroup
@story
async def test_one_supervisor_is_at_home_again_after_each_of_its_runs(
    tmp_path: Path, cgroup: Delegated
) -> None:
    home, seen = own_cgroup(), set()
    async with penned(cgroup, tmp_path) as processes:
        for run in range(scaled(200)):
            asked = shell(tmp_path, run, "grep ^0:: /proc/self/cgroup")
            held = await processes.hold(asked)
            assert own_cgroup(held.process.pid) == home
            held.go()
            assert (await held.ended()).exit_code == 0
            seen.add(log(asked))
            assert not cgroup.pens()
    assert len(seen) == scaled(200)


@needs_cgroup
@story
async def test_cgroups_that_a_run_has_made_itself_go_with_it(
    tmp_path: Path, cgroup: Delegated
) -> None:
    script = f"""
        pen={cgroup.path}/$(sed -n 's,^0::.*/,,p' /proc/self/cgroup)
        mkdir -p $pen/a/b/c $pen/d && sleep 1000 & echo $! > $pen/a/b/c/cgroup.procs || true
        i=0; while [ $i -lt 200 ]; do mkdir $pen/d/$i; i=$((i+1)); done; echo made
    """
    async with penned(cgroup, tmp_path) as processes:
        assert (await told(processes, shell(tmp_path, 5, script))).reason == "made"
        assert not cgroup.pens()
        assert not marked(tmp_path)


@needs_cgroup
@story
async def test_cgroups_that_nobody_can_remove_keep_no_engine_from_beginning(
    tmp_path: Path, cgroup: Delegated
) -> None:
    try:
        async with penned(cgroup, tmp_path) as processes:
            asked = python(tmp_path, 5, DEEP.format(above=cgroup.path))
            assert (await told(processes, asked)).reason == "deep"
        assert cgroup.pens(), "they could be removed, so this tells nothing"
        async with penned(cgroup, tmp_path) as processes:
            assert (await told(processes, shell(tmp_path, 6, "echo well"))).reason == "well"
    finally:
        for pen in cgroup.pens():
            remove_inside(pen)


@needs_cgroup
@story
async def test_whoever_leaves_session_group_and_parent_dies_with_the_run(
    tmp_path: Path, cgroup: Delegated
) -> None:
    async with penned(cgroup, tmp_path) as processes:
        held = await processes.hold(shell(tmp_path, 6, HOSTILE, grace=timedelta(milliseconds=200)))
        held.go()
        await until(lambda: len(marked(tmp_path)) > 5, within=60)
        assert len(cgroup.pens()) == 1
        held.cancel("enough")
        assert (await held.ended()).reason == "enough"
        assert not marked(tmp_path)
        assert not cgroup.pens()


@needs_cgroup
@story
async def test_chains_that_fork_faster_than_anybody_can_look_die_at_once(
    tmp_path: Path, cgroup: Delegated
) -> None:
    async with penned(cgroup, tmp_path) as processes:
        asked = python(tmp_path, 7, CHAINS.format(count=scaled(400)))
        ended = await told(processes, asked)
        assert ended.exit_code == 0
        assert not marked(tmp_path)
        assert not cgroup.pens()


@needs_cgroup
@story
async def test_a_run_dies_even_if_its_supervisor_and_the_launcher_are_both_killed(
    tmp_path: Path, cgroup: Delegated
) -> None:
    async with penned(cgroup, tmp_path) as processes:
        held = await processes.hold(shell(tmp_path, 8, HOSTILE))
        held.go()
        await until(lambda: len(marked(tmp_path)) > 5, within=60)
        assert processes.launcher_pid is not None
        os.kill(processes.launcher_pid, signal.SIGKILL)
        os.kill(held.process.pid, signal.SIGKILL)
        assert (await held.ended()).outcome is Status.INTERRUPTED
        assert not marked(tmp_path)
        assert not cgroup.pens()


@needs_cgroup
@story
async def test_what_an_engine_has_left_is_killed_by_the_next_and_by_no_other(
    tmp_path: Path, cgroup: Delegated
) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    other.mkdir()
    engine = Engine(mine, "go", "3", HOSTILE, cgroup=cgroup.path)
    wait_until(lambda: len(marked(mine)) > 15, within=60)
    left = [*holders(mine)]
    for pid in left:  # the engine first, but all before any of them can act
        os.kill(pid, signal.SIGSTOP)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    engine.process.wait()
    wait_until(lambda: not holders(mine), within=60)
    assert len(cgroup.pens()) == 3
    assert len(marked(mine)) > 15
    async with penned(cgroup, other):
        assert len(cgroup.pens()) == 3
        assert len(marked(mine)) > 15
    async with penned(cgroup, mine):
        assert not marked(mine)
        assert not cgroup.pens()


@needs_cgroup
@story
async def test_where_the_system_cannot_kill_all_at_once_they_are_killed_one_by_one(
    tmp_path: Path, cgroup: Delegated
) -> None:
    async with penned(cgroup, tmp_path) as processes:
        held = await processes.hold(shell(tmp_path, 15, HOSTILE))
        held.go()
        await until(lambda: len(marked(tmp_path)) > 5, within=60)
        (pen,) = cgroup.pens()
        kill_each(os.fsencode(pen))
        assert (await held.ended()).reason.startswith("signal SIGKILL")
        assert not marked(tmp_path)


# Limits


@needs_cgroup
@story
async def test_a_run_that_takes_too_much_memory_is_killed_as_a_whole_and_says_so(
    tmp_path: Path, cgroup: Delegated
) -> None:
    has(cgroup, "memory")
    async with penned(cgroup, tmp_path, CgroupLimits(memory_max=64 * MIB)) as processes:
        hog = f"{sys.executable} -c 'x = bytearray(300 << 20)'; echo went on"
        asked = shell(tmp_path, 9, hog)
        ended = await told(processes, asked)
        assert ended.outcome is Status.KILLED
        assert ended.reason == "killed: the run used more memory than run.memory allows (64M)"
        assert b"went on" not in log(asked)
        modest = await told(processes, shell(tmp_path, 10, "echo modest"))
        assert modest.reason == "modest"
        more = CgroupLimits(memory_max=512 * MIB)
        assert (await told(processes, shell(tmp_path, 11, hog, cgroup=more))).exit_code == 0


@needs_cgroup
@story
async def test_a_run_has_no_more_processes_than_it_may(tmp_path: Path, cgroup: Delegated) -> None:
    has(cgroup, "pids")
    script = "import os, time\nfor _ in range(100):\n    os.fork() or time.sleep(1000)"
    async with penned(cgroup, tmp_path, CgroupLimits(pids_max=10)) as processes:
        ended = await told(processes, python(tmp_path, 12, script))
    assert ended.outcome is Status.FAILED
    assert (
        ended.reason
        == "exit code 1; the run tried to start more processes than run.processes allows (10)"
    )
    assert not marked(tmp_path)


@needs_cgroup
@story
async def test_a_limit_of_one_process_still_lets_that_one_start(
    tmp_path: Path, cgroup: Delegated
) -> None:
    has(cgroup, "pids")
    async with penned(cgroup, tmp_path, CgroupLimits(pids_max=1)) as processes:
        assert (await told(processes, shell(tmp_path, 13, "echo alone"))).reason == "alone"


@needs_cgroup
@story
async def test_a_run_keeps_no_more_cores_busy_than_it_may(
    tmp_path: Path, cgroup: Delegated
) -> None:
    has(cgroup, "cpu")
    script = """
import time
end = time.monotonic() + 4
while time.monotonic() < end:
    pass
"""
    async with penned(cgroup, tmp_path, CgroupLimits(cpu_max=0.2)) as processes:
        ended = await told(processes, python(tmp_path, 14, script))
    used, took = ended.facts["cpu_seconds"], ended.facts["seconds"]
    assert isinstance(used, float)
    assert isinstance(took, float)
    assert used < took * 0.5  # it wanted all of one


@needs_cgroup
@story
async def test_a_step_has_its_own_memory_or_that_of_any_run_or_the_default(
    tmp_path: Path, cgroup: Delegated
) -> None:
    has(cgroup, "memory")
    script = f"cat {cgroup.path}/$(sed -n 's,^0::.*/,,p' /proc/self/cgroup)/memory.max"
    text = flow(step("Says", "sh", script, drawer=":MEMORY: 512M\n"), step("Mute", "sh", script))
    for most, mute in ((None, 4096 * MIB), (128 * MIB, 128 * MIB)):
        home = tmp_path / str(mute)
        for name in ("plans", "data"):
            (home / name).mkdir(parents=True)
        async with penned(cgroup, home / "data", CgroupLimits(memory_max=most)) as processes:
            record = await Yard(home, processes).run(text)
        assert tasks(record) == {"Says": str(512 * MIB), "Mute": str(mute)}


# Engines in a delegated cgroup, from the outside

PLAN = """* Where
SCHEDULED: <2099-01-01 Thu 09:00>
:PROPERTIES:
:COMMAND: sh -c 'grep ^0:: /proc/self/cgroup'
:END:
* Long
SCHEDULED: <2099-01-01 Thu 09:00>
:PROPERTIES:
:COMMAND: sh -c 'setsid sleep 1000 & sleep 1000'
:END:
"""


def stop(engine: subprocess.Popen[str]) -> str:
    """Stop an engine in order, and return what it said about itself."""
    engine.send_signal(signal.SIGTERM)
    _, said = engine.communicate(timeout=60)
    assert engine.returncode == 0, said
    return said


def ready(engine: subprocess.Popen[str], root: Path) -> None:
    """Return when an engine can be asked."""
    here = root / ".horae" / SOCKET
    wait_until(lambda: here.exists() or engine.poll() is not None, within=60)
    assert engine.poll() is None, engine.communicate()


def checks(root: Path) -> dict[str, dict[str, object]]:
    """Return what `doctor` finds, by name."""
    return {str(row["check"]): row for row in ask("doctor", "--root", str(root))}


def ran(root: Path, name: str) -> str:
    """Run an entry now, and return the reason of its receipt."""
    subprocess.run([*HORAE, "run", name, "--wait", "--root", str(root)], check=False, timeout=60)
    return str(receipt(root, name)["reason"])


def receipt(root: Path, name: str) -> dict[str, object]:
    """Return the newest receipt of an entry."""
    found: list[dict[str, object]] = ask("history", "--root", str(root))
    return next(each for each in found if each["title"] == name)


@needs_cgroup
def test_an_engine_in_a_delegated_cgroup_gives_each_run_its_own(
    tmp_path: Path, cgroup: Delegated
) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    engine = cgroup.up(tmp_path)
    ready(engine, tmp_path)
    assert Path(ran(tmp_path, "Where").removeprefix("0::")).parent.name == cgroup.path.name
    assert str(cgroup.path) in str(checks(tmp_path)["cgroups"]["found"])
    assert "all processes of a run can be killed at once" in str(
        checks(tmp_path)["cgroups"]["found"]
    )
    assert "is not enforced" not in stop(engine)
    assert not cgroup.pens()


@needs_cgroup
def test_an_engine_that_was_put_into_the_delegated_cgroup_itself_makes_room(
    tmp_path: Path, cgroup: Delegated
) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    cgroup.home.rmdir()  # systemd before 254 knows no DelegateSubgroup=
    engine = cgroup.start([*HORAE, "up", str(tmp_path)], inside=cgroup.path)
    ready(engine, tmp_path)
    assert own_cgroup(engine.pid) == cgroup.home
    assert Path(ran(tmp_path, "Where").removeprefix("0::")).parent.name == cgroup.path.name
    stop(engine)


@needs_cgroup
def test_runs_of_an_engine_that_was_killed_are_gone_when_the_next_has_begun(
    tmp_path: Path, cgroup: Delegated
) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    engine = cgroup.up(tmp_path)
    ready(engine, tmp_path)
    command = [*HORAE, "run", "Long", "--no-wait", "--root", str(tmp_path)]
    subprocess.run(command, check=True, timeout=60)

    def command_left() -> list[int]:
        ours = holders(tmp_path / ".horae")  # a supervisor is in there until it has made the run
        return [pid for pid in inside(cgroup.pens()) if pid not in ours]

    wait_until(lambda: len(command_left()) >= 3, within=60)
    left = command_left()
    for each in signal.SIGSTOP, signal.SIGKILL:
        for pid in holders(tmp_path / ".horae"):
            os.kill(pid, each)
    engine.communicate()
    wait_until(lambda: not holders(tmp_path / ".horae"), within=60)
    assert inside(cgroup.pens()) == left
    again = cgroup.up(tmp_path)
    wait_until(lambda: not cgroup.pens(), within=60)
    assert not any(Path(f"/proc/{pid}").exists() and not is_zombie(pid) for pid in left)
    # Its receipt tells, and only an engine that is up writes it.
    wait_until(lambda: receipt(tmp_path, "Long")["status"] == "interrupted", within=60)
    stop(again)


@needs_cgroup
def test_a_limit_that_has_no_controller_is_told_by_up_and_by_doctor(
    tmp_path: Path, cgroup: Delegated
) -> None:
    (tmp_path / "horae.toml").write_text('[run]\nmemory = "64M"\nprocesses = 30\ncpus = 0.5\n')
    engine = cgroup.up(tmp_path)
    ready(engine, tmp_path)
    found = [row for row in ask("doctor", "--root", str(tmp_path)) if row["check"] == "limits"]
    said = stop(engine)
    names = {"memory": "run.memory", "pids": "run.processes", "cpu": "run.cpus"}
    missing = [name for each, name in names.items() if each not in cgroup.controllers()]
    assert [str(row["found"]).split()[0] for row in found] == missing
    for name in missing:
        assert said.count(f"{name} is not enforced") == 1


def test_a_limit_without_a_cgroup_is_told_by_up_and_by_doctor(tmp_path: Path) -> None:
    if standing().path is not None:
        pytest.skip("this process is in a delegated cgroup itself")
    (tmp_path / "horae.toml").write_text('[run]\nmemory = "64M"\n')
    told = checks(tmp_path)["limits"]
    assert told["grade"] == "warn"
    assert str(told["found"]).startswith("run.memory is not enforced: ")
    assert "Delegate=yes" in str(told["remedy"])
    command = [*HORAE, "up", str(tmp_path), "--seconds", "1"]
    environ = {**os.environ, "HORAE_LISTEN": "127.0.0.1:0"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60, env=environ
    )
    assert done.stderr.count("run.memory is not enforced: ") == 1
    assert "Delegate=yes" in done.stderr


def inside(pens: list[Path]) -> list[int]:
    """Return who is in some cgroups."""
    found: list[int] = []
    for pen in pens:
        found += map(int, (pen / "cgroup.procs").read_text().split())
    return sorted(found)
