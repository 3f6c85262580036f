"""Thousands of runs through one engine leave nothing behind, and none of them starts early."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import NamedTuple

from crash.stage import PATIENCE, Home, Life, entry
from process.stage import children, is_zombie, proc
from scale import scaled

ENTRIES = 200
RUNS = scaled(5_000)


class Footing(NamedTuple):
    """What an engine and its launcher hold."""

    descriptors: int
    threads: int
    zombies: int
    memory: int  # KiB


def footing(life: Life) -> Footing:
    """Return what is held now."""
    launcher = life.launcher()
    assert launcher is not None
    both = (life.pid, launcher.pid)
    return Footing(
        sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in both),
        len(list(Path(f"/proc/{life.pid}/task").iterdir())),
        sum(is_zombie(child) for pid in both for child in children(pid)),
        sum(number(proc(pid, "status"), b"VmRSS:") for pid in both),
    )


def number(status: bytes, name: bytes) -> int:
    """Return one number of what the system tells about a process."""
    return int(status.partition(name)[2].split()[0])


def ended(home: Home) -> int:
    """Return how many runs are over."""
    return int(home.rows("SELECT count(*) FROM run WHERE ended_at IS NOT NULL")[0][0])


def test_thousands_of_runs_leave_nothing_behind_and_none_is_early(home: Home) -> None:
    # A quarter of the entries in each of four seconds, and then six in which supervisors end.
    home.write(
        *(
            entry(f"Quick {each}", "true", schedule=f"{each % 4}/10 * * * * *")
            for each in range(ENTRIES)
        )
    )
    life = home.up(settings={"HORAE_GATE_SLOTS": "8"}).begun()
    life.until(lambda: home.count("1") and ended(home) >= RUNS // 5, within=600)
    quiet(life)
    before = footing(life)
    life.until(lambda: ended(home) >= RUNS, within=600)
    quiet(life)
    seen: list[Footing] = []

    def is_let_go() -> bool:
        """Tell whether what runs held is let go, before those of the next second hold it."""
        seen.append(footing(life))
        return seen[-1].descriptors <= before.descriptors + 5 and not seen[-1].zombies

    life.until(is_let_go, within=PATIENCE)
    after = seen[-1]
    assert life.stop() == 0

    print(f"{ended(home)} runs: {before} became {after}")
    assert after.threads <= before.threads + 1
    assert after.memory - before.memory < 4 << 10
    lateness(home)


def quiet(life: Life) -> None:
    """Return when no run goes on, and no supervisor waits for one."""
    life.until(lambda: not life.supervisors(), within=PATIENCE)


def lateness(home: Home) -> None:
    """Tell how late the runs began; none began before its time."""
    late = sorted(
        lateness / 1e6
        for (lateness,) in home.rows(
            "SELECT run.started_at - receipt.planned_at FROM run"
            " JOIN receipt ON receipt.number = run.receipt WHERE run.attempt = 1"
        )
    )
    at = [late[int(len(late) * part)] for part in (0.5, 0.95, 0.99)]
    print(f"{len(late)} starts: p50 {at[0]:.3f} s, p95 {at[1]:.3f} s, p99 {at[2]:.3f} s late")
    assert late[0] >= 0
    assert median(late) < 1
