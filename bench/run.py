"""Runs: launches per second beside plain Popen, how fast the go comes, memory per live run.

    python bench/run.py            about 15 seconds, Linux

Everything is measured in this run, on this machine, with /bin/true. Popen starts and
waits, one at a time, and promises nothing; a run is held, let go, supervised, drained and
reported. The rounds of both take turns, and the best of each counts.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from horae.runner.processes import Processes, Spec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ROUNDS = 5
RUNS = 400  # in a round
IN_FLIGHT = 16
PACED = 200  # runs, at fifty a second
LIVE = 100

TRUE = "/bin/true"


def popen_rate() -> float:
    """Return how many commands a second plain Popen starts and waits for, one at a time."""
    start = time.perf_counter()
    for _ in range(RUNS):
        subprocess.Popen([TRUE], stdin=subprocess.DEVNULL).wait()
    return RUNS / (time.perf_counter() - start)


async def rate(one: Callable[[int], Awaitable[object]], numbers: count[int], lanes: int) -> float:
    """Return how many runs a second are made, so many at a time."""

    async def lane() -> None:
        for _ in range(RUNS // lanes):
            await one(next(numbers))

    start = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(lanes)))
    return RUNS // lanes * lanes / (time.perf_counter() - start)


async def to_go(processes: Processes, data: Path, numbers: count[int]) -> list[float]:
    """Return the times from asking for a run to its go, in milliseconds, at fifty a second."""
    times: list[float] = []

    async def one(run: int) -> None:
        start = time.perf_counter()
        held = await processes.hold(spec(data, run))
        held.go()
        times.append((time.perf_counter() - start) * 1000)
        await held.ended()

    tasks = []
    for _ in range(PACED):
        tasks.append(asyncio.ensure_future(one(next(numbers))))
        await asyncio.sleep(1 / 50)
    await asyncio.gather(*tasks)
    return sorted(times)


async def memory(processes: Processes, data: Path, numbers: count[int]) -> float:
    """Return the memory that a live run costs besides its command, in MiB (PSS)."""
    runs = [await processes.hold(spec(data, next(numbers), "sleep", "1000")) for _ in range(LIVE)]
    for run in runs:
        run.go()
    await asyncio.sleep(0.5)
    total = sum(pss(run.process.pid) for run in runs)
    for run in runs:
        run.cancel("measured")
    await asyncio.gather(*(run.ended() for run in runs))
    return total / LIVE


def pss(pid: int) -> float:
    """Return a process's share of memory in MiB."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(text.split("\nPss:")[1].split()[0]) / 1024


def spec(data: Path, run: int, *argv: str) -> Spec:
    """Return a run of /bin/true, or of something else."""
    environment = {"PATH": os.environ["PATH"]}
    return Spec(run, argv or (TRUE,), Path("/"), environment, data / "runs" / str(run))


async def measure(data: Path) -> None:
    """Print the rates, their ratios, the times to the go, and the memory."""
    numbers = count()
    async with Processes(data) as processes:

        async def one(run: int) -> None:
            held = await processes.hold(spec(data, run))
            held.go()
            await held.ended()

        await rate(one, numbers, IN_FLIGHT)
        plain, many, single = [], [], []
        for _ in range(ROUNDS):
            plain.append(popen_rate())
            many.append(await rate(one, numbers, IN_FLIGHT))
            single.append(await rate(one, numbers, 1))
        best, most, alone = max(plain), max(many), max(single)
        print(f"  Popen, one at a time            {best:7.0f} per s")
        print(f"  runs, {IN_FLIGHT} in flight              {most:7.0f} per s  {most / best:.2f}×")
        print(f"  runs, one at a time             {alone:7.0f} per s  {alone / best:.2f}×")
        times = await to_go(processes, data, numbers)
        middle, late = times[len(times) // 2], times[len(times) * 99 // 100]
        print(f"  from asking to go, 50 per s     p50 {middle:.1f} ms, p99 {late:.1f} ms")
        print(
            f"  a live run, without its command {await memory(processes, data, numbers):7.2f} MiB"
        )


def main() -> None:
    """Measure in a directory of its own."""
    if sys.platform != "linux":
        print("  looks into /proc: Linux only")
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder)))


if __name__ == "__main__":
    main()
