"""Workflows: what a step costs beside plain subprocess, and whether waves use both cores.

    python bench/workflow.py       about 15 seconds

Everything is measured in this run, on this machine, in turns, and the best of each counts.
Plain is `subprocess.run` with pipes, the same shell and script as often, one after the other: it
promises nothing. Bare is a spawn and a wait, with nothing read. A step of ours is supervised,
bounded, ended with all that it started, drained, summed and recorded.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from horae.core.clock import SystemClock
from horae.org.document import read
from horae.org.world import worlds
from horae.process.processes import Processes
from horae.process.run_settings import RunSettings
from horae.sources.workflows.record import Bounds
from horae.sources.workflows.runner import WorkflowRunner

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

STEPS = 100
ROUNDS = 7
TINY = "tr a-z A-Z"
BUSY = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; echo $i"


def component(number: int, body: str, args: str = "") -> str:
    """Return a component as it is written."""
    return f"** S{number} :component:\n#+begin_src sh {args}\n{body}\n#+end_src\n"


def wide(body: str, steps: int) -> str:
    """Return a workflow whose steps know nothing of one another."""
    return "* Wide :workflow:\n" + "".join(component(n, body) for n in range(steps))


def chain(body: str, steps: int) -> str:
    """Return a workflow in which each step takes what the one before it puts out."""
    parts = (component(n, body, f":in o{n - 1} :out o{n}") for n in range(steps))
    return "* Chain :workflow:\n" + "".join(parts)


def plain(script: Path, *, is_chain: bool) -> float:
    """Return how long the same steps take with subprocess, one after the other."""
    start = time.perf_counter()
    given = b"hello\n"
    for _ in range(STEPS):
        done = subprocess.run(["sh", str(script)], input=given, capture_output=True, check=True)
        given = done.stdout if is_chain else given
    return time.perf_counter() - start


def bare(script: Path) -> float:
    """Return how long it takes to start the same steps and wait for them, and nothing else."""
    shell = shutil.which("sh") or "/bin/sh"
    start = time.perf_counter()
    nothing = os.open(os.devnull, os.O_RDWR)
    fill = [(os.POSIX_SPAWN_DUP2, nothing, each) for each in (0, 1, 2)]
    for _ in range(STEPS):
        pid = os.posix_spawn(shell, [shell, str(script)], os.environ, file_actions=fill)
        os.waitpid(pid, 0)
    os.close(nothing)
    return time.perf_counter() - start


async def measure(home: Path) -> None:
    """Print the times, and their ratios."""
    script = home / "tiny.sh"
    script.write_text(TINY + "\n")
    place = RunSettings(home, home / "data", os.environ, timedelta(minutes=5))
    place.data.mkdir()
    numbers = count()
    async with Processes(place.data) as processes:

        async def run(text: str, at_once: int) -> float:
            start = time.perf_counter()
            clock, plan, name = SystemClock(), read(text), f"r{next(numbers)}"
            bounds = Bounds(at_once=at_once)
            runner = WorkflowRunner(processes, place, clock=clock, bounds=bounds)
            world, given = worlds(plan)[0], b"hello\n"
            order = runner.order(plan, world, name="plan.org", run=name, input=given)
            record = await runner.run(order)
            assert record.is_good, record.reason
            return time.perf_counter() - start

        async def best(one: Callable[[], Awaitable[float]]) -> float:
            return min([await one() for _ in range(ROUNDS)])

        cores = Bounds().at_once
        await run(wide(TINY, 4), cores)
        walls, chains, loops, links, spawns = [], [], [], [], []
        for _ in range(ROUNDS):
            spawns.append(bare(script))
            walls.append(plain(script, is_chain=False))
            loops.append(await run(wide(TINY, STEPS), cores))
            links.append(plain(script, is_chain=True))
            chains.append(await run(chain(TINY, STEPS), cores))
        for title, ours, theirs in (
            (f"{STEPS} steps in one wave", min(loops), min(walls)),
            (f"{STEPS} steps in a chain", min(chains), min(links)),
        ):
            each = ours / STEPS * 1000
            print(
                f"  {title:<26} {ours:6.3f} s  {each:5.2f} ms a step  plain {theirs:6.3f} s"
                f"  {ours / theirs:.2f}×"
            )
        least = min(spawns)
        print(
            f"  bare spawn and wait        {least:6.3f} s  {least / STEPS * 1000:5.2f} ms a step"
            f"  the load is {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
        )
        single = await best(lambda: run(wide(BUSY, 2), 1))
        double = await best(lambda: run(wide(BUSY, 2), 2))
        print(
            f"  two busy steps, {os.cpu_count()} cores     one at a time {single:.3f} s,"
            f" both at once {double:.3f} s  {single / double:.2f}×"
        )


def main() -> None:
    """Measure in a directory of its own."""
    if sys.platform == "win32":
        print("  runs need a POSIX system")
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder)))


if __name__ == "__main__":
    main()
