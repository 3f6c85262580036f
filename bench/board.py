"""How long a board of 5,000 tasks takes to read, at first and when nothing has changed."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from horae.core.clock import SystemClock
from horae.sources.board.source import BoardSource
from horae.sources.board.tasks import Board

TASKS = 5_000
LEAST = 20  # so many times faster must the second pass be
TASK = """\
---
id: {number}
title: Weekly report {number}
status: {status}
priority: medium
tags: [report, weekly]
depends_on: []
cron_schedule: "0 9 * * MON"
cron_last_run: "2026-03-23T09:00:05Z"
scheduled_for: "2026-03-30T09:00:00Z"
---

Generate and distribute report {number}.
"""


def fill(root: Path) -> None:
    """Write the tasks."""
    folder = root / "board" / "tasks"
    folder.mkdir(parents=True)
    for number in range(1, TASKS + 1):
        status = "done" if number % 3 == 0 else "todo"
        text = TASK.format(number=number, status=status)
        (folder / f"{number:04}-weekly-report.md").write_text(text)


def timed(source: BoardSource, index: dict[str, str]) -> tuple[float, dict[str, str]]:
    """Return how long a scan takes, and the index that it leaves."""
    start = time.perf_counter()
    scan = asyncio.run(source.scan(index))
    return time.perf_counter() - start, dict(scan.index)


def main() -> int:
    """Print both passes and their ratio; fail if it is too small."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        fill(root)
        source = BoardSource(Board.below(root), now=SystemClock().now)
        first, index = timed(source, {})
        _, index = timed(source, index)  # a stamp is believed once a second look agrees
        second = min(timed(source, index)[0] for _ in range(5))
        restarted = min(
            timed(BoardSource(Board.below(root), now=SystemClock().now), index)[0] for _ in range(5)
        )
        change = root / "board" / "tasks" / "0003-weekly-report.md"
        start = time.perf_counter()
        Board(root / "board" / "tasks").change(3, lambda _: {"status": "todo"})
        edit = time.perf_counter() - start
        assert "status: todo" in change.read_text()
    print(f"  {TASKS:,} tasks, first pass            {first * 1000:8.1f} ms")
    print(f"  nothing has changed                {second * 1000:8.1f} ms   {first / second:.0f}×")
    times = first / restarted
    print(f"  the same after a restart           {restarted * 1000:8.1f} ms   {times:.0f}×")
    print(f"  one field of one of them changed   {edit * 1000:8.1f} ms")
    return 0 if first / second >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
