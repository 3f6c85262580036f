"""Runs: launches per second beside plain Popen, how fast the go comes, memory per live run.

    python bench/run.py            about 20 seconds, Linux

Everything is measured in this run, on this machine, with /bin/true. Popen starts and
waits, one at a time, and promises nothing; a run is held, let go, supervised, drained and
reported. With receipts it is the whole engine: what came due is decided and committed, each
run is committed before it is made, again before it is let go, and with its end, all with
fsync. The rounds of all take turns, and the best of each counts.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from horae.core.clock import SystemClock
from horae.core.engine import Engine
from horae.core.gate import Capacity
from horae.process.processes import Processes, Spec
from horae.process.run_settings import NamedSecrets, RunSettings
from horae.sources.plans.runner import CommandRunner
from horae.sources.plans.source import OrgSource
from horae.store.sqlite import SqliteLedger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from horae.core.ports import RunEnd, RunOver

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


class Shifted(SystemClock):
    """The machine's clock, ahead by a length that can be changed."""

    by = timedelta(0)

    def now(self) -> datetime:
        """Return this moment, as much later."""
        return super().now() + self.by


class Counted(SqliteLedger):
    """A ledger that notes when as many runs have ended as were expected."""

    expected = 0

    async def end_many(
        self, ends: Sequence[RunEnd], *, now: datetime, term: int
    ) -> list[RunOver | None]:
        """Record ends, and count them."""
        found = await super().end_many(ends, now=now, term=term)
        self.expected -= len(found)
        if self.expected == 0:
            self.over.set()
        return found

    def expect(self, ends: int) -> None:
        """Begin to count."""
        self.expected, self.over = ends, asyncio.Event()


class CommandBench:
    """An engine whose commands all come due together, once a day."""

    def __init__(self, ledger: Counted, clock: Shifted, engine: Engine) -> None:
        self._ledger = ledger
        self._clock = clock
        self._engine = engine
        self._turns = asyncio.create_task(engine.run())

    @classmethod
    async def up(cls, folder: Path, processes: Processes) -> CommandBench:
        """Return an engine that has just been started, with nothing due."""
        work = "".join(
            f"* True {number} :workflow:\n:PROPERTIES:\n:SCHEDULE: 0 9 * * *\n"
            f":COMMAND: {TRUE}\n:END:\n"
            for number in range(RUNS)
        )
        (folder / "plan.org").write_text(work)
        clock = Shifted()
        ledger = await Counted.open(folder / ".horae", now=clock.now())
        assert isinstance(ledger, Counted)
        data, environ = folder / ".horae", dict(os.environ)
        named = NamedSecrets({}, environ, root=folder, data=data)
        place = RunSettings(folder, data, environ, timedelta(minutes=1), named=named)
        engine = Engine(
            clock=clock,
            ledger=ledger,
            runner=CommandRunner(processes, place),
            sources=[OrgSource(folder)],
            capacity=Capacity(slots=IN_FLIGHT),
        )
        await engine.start()
        return cls(ledger, clock, engine)

    async def rate(self) -> float:
        """Return how many runs a second are made when a day's work comes due at once."""
        self._ledger.expect(RUNS)
        self._clock.by += timedelta(days=1)
        start = time.perf_counter()
        self._engine.poke()
        await self._ledger.over.wait()
        return RUNS / (time.perf_counter() - start)

    async def down(self) -> None:
        """Stop the engine."""
        self._turns.cancel()
        await asyncio.wait({self._turns})
        await self._engine.launch.rest()
        await self._ledger.close()


def sync_time(folder: Path) -> float:
    """Return how long the disk takes to keep a few bytes, in milliseconds, in the middle."""
    times = []
    with (folder / "sync").open("wb") as file:
        for _ in range(50):
            file.write(b"some bytes")
            file.flush()
            start = time.perf_counter()
            os.fsync(file.fileno())
            times.append((time.perf_counter() - start) * 1000)
    return sorted(times)[len(times) // 2]


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
        plans = data / "plans"
        plans.mkdir()
        engine = await CommandBench.up(plans, processes)
        plain, many, single, kept = [], [], [], []
        for _ in range(ROUNDS):
            plain.append(popen_rate())
            many.append(await rate(one, numbers, IN_FLIGHT))
            single.append(await rate(one, numbers, 1))
            kept.append(await engine.rate())
        await engine.down()
        best, most, alone, whole = max(plain), max(many), max(single), max(kept)
        print(f"  Popen, one at a time            {best:7.0f} per s")
        print(f"  runs, {IN_FLIGHT} in flight              {most:7.0f} per s  {most / best:.2f}×")
        print(f"  runs, one at a time             {alone:7.0f} per s  {alone / best:.2f}×")
        print(f"  runs with receipts, {IN_FLIGHT} in flight{whole:7.0f} per s  {whole / best:.2f}×")
        print(
            f"  an fsync takes {sync_time(data):.2f} ms, "
            f"the load is {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
        )
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
