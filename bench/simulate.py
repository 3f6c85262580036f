"""`horae simulate` as a whole command, beside peers that only walk the same expression.

    python bench/simulate.py       about 10 seconds

The peers are cronsim and croniter, each in a fresh Python. They give the times and nothing else:
no policies, no slots, no outages, no totals by day. The program fails when the counts differ,
never for being slow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROUNDS = 3
WALK = """
from datetime import UTC, datetime, timedelta
from itertools import takewhile
start = datetime(2026, 4, 1, tzinfo=UTC)
end = start + timedelta(days={days})
{first}
print(sum(1 for _ in takewhile(lambda at: at < end, times)))
"""
PEERS = {
    "cronsim": "from cronsim import CronSim\ntimes = CronSim({expression!r}, start)",
    "croniter": (
        "from croniter import croniter\n"
        "times = croniter({expression!r}, start, second_at_beginning=True)"
        ".all_next(datetime)"
    ),
}


class Plan(NamedTuple):
    name: str
    expression: str
    days: int


PLANS = (
    Plan("90 days, every 5 minutes", "*/5 * * * *", 90),
    Plan("a day, every 10 seconds", "*/10 * * * * *", 1),
    Plan("30 days, every 10 seconds", "*/10 * * * * *", 30),
)


def best(command: list[str]) -> tuple[float, str]:
    """Return the least CPU time of several runs of a command, in seconds, and its output."""
    times, said = [], ""
    for _ in range(ROUNDS):
        before = os.times()
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        after = os.times()
        used = after.children_user + after.children_system
        times.append(used - before.children_user - before.children_system)
    return min(times), said


def main() -> None:
    """Print the time of each simulation, and its ratio to each peer's walk."""
    horae = str(Path(sys.executable).parent / "horae")
    for name, expression, days in PLANS:
        with tempfile.TemporaryDirectory() as folder:
            drawer = f":PROPERTIES:\n:SCHEDULE: {expression}\n:END:\n"
            Path(folder, "plan.org").write_text(f"* Poll :workflow:\n{drawer}")
            span = ("--from", "2026-04-01", "--days", str(days), "--tz", "UTC")
            ours, said = best([horae, "simulate", folder, *span, "--json"])
        ran = json.loads(said)["totals"]["ran"]
        print(f"  {name:<26} horae simulate {ours:6.2f} s CPU, {ran} runs")
        for peer, first in PEERS.items():
            made = first.format(expression=expression)
            theirs, count = best([sys.executable, "-c", WALK.format(days=days, first=made)])
            print(f"  {'':<26} {peer:<14} {theirs:6.2f} s CPU   {ours / theirs:.2f}×")
            if int(count) != ran:
                raise SystemExit(f"{peer} counts {count.strip()} runs, horae {ran}")


if __name__ == "__main__":
    main()
