"""An engine that a test can kill: holds runs of a script, lets them go, and says so.

victim.py DATA CERTAIN hold|go|fork COUNT SCRIPT    so many runs, held or let go; then it waits
                                                    (fork: beside a copy that outlives it)
victim.py DATA CERTAIN loop FIRST                   runs of all kinds, four at a time, for ever
"""

import asyncio
import os
import sys
import time
from contextlib import suppress
from datetime import timedelta
from itertools import count
from pathlib import Path

from horae.core.ports import LauncherLostError
from horae.process.processes import Processes
from process.stage import HOSTILE, shell

KINDS = ["true", "exit 3", "echo NO-WORK", "sleep 0.02", HOSTILE, "yes | head -c 3000000"]


def say(*words: object) -> None:
    print(*words, flush=True)


async def one(processes: Processes, data: Path, run: int, script: str) -> None:
    asked = shell(
        data,
        run,
        f"echo x >> {data}/began-{run}; {script}",
        timeout=timedelta(milliseconds=100),
        grace=timedelta(milliseconds=50),
    )
    say("asked", run)
    with suppress(LauncherLostError):
        held = await processes.hold(asked)
        say("held", run, held.process.pid)
        held.go()
        say("gone", run)
        say("ended", run, (await held.ended()).outcome)


async def loop(processes: Processes, data: Path, first: int) -> None:
    numbers = count(first)

    async def lane() -> None:
        for run in numbers:
            await one(processes, data, run, KINDS[run % len(KINDS)])

    await asyncio.gather(*(lane() for _ in range(4)))


async def main(data: Path, certain: str, what: str, number: str, script: str = "") -> None:
    cgroup = os.environ.get("VICTIM_CGROUP")
    async with Processes(
        data, certain=certain == "1", cgroup=Path(cgroup) if cgroup else None
    ) as processes:
        if what == "loop":
            await loop(processes, data, int(number))
        runs = [await processes.hold(shell(data, n, script)) for n in range(int(number))]
        for run, held in enumerate(runs):
            if what != "hold":
                held.go()
            say("held", run, held.process.pid)
        if what == "fork":
            stray = os.fork()
            if not stray:
                time.sleep(1000)
            say("stray", stray)
        say("launcher", processes.launcher_pid)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
