"""How late runs start on the other nodes while one is cut off from the database."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

import pytest

from cluster.stage import Stage, entry
from ledger_audit import SECOND
from scale import SCALE, scaled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES: Final = ("one", "two", "three")
ENTRIES: Final = 10  # each due every second
LEASE: Final = 15  # seconds, longer than what is waited for
# Seconds, at most, of 99 in 100; among other tests the processor itself is what a run waits for.
LATE: Final = 2.0 if SCALE >= 1 else 5.0


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with closing(Stage(tmp_path, lease=LEASE)) as stage:
        # A run that the node has when it is cut off must not keep the next of its entry back.
        plan = [entry(f"true {n}", "true", overlap="allow") for n in range(ENTRIES)]
        stage.write({"plan.org": "".join(plan)})
        for name in NAMES:
            stage.member(name)
        for name in NAMES:
            stage.members[name].joined()
        ran = "SELECT count(DISTINCT member) FROM run WHERE outcome = 'done'"
        stage.until(lambda: stage.do(ran) == [(len(NAMES),)])
        yield stage


@pytest.mark.parametrize("fault", ["cut", "silent"])
def test_a_node_that_is_cut_off_delays_no_run_of_the_others(stage: Stage, fault: str) -> None:
    """Of what is planned while it is away 99 in 100 start within two seconds of their time."""
    away = stage.members[next(each for each in NAMES if each != stage.leader())]
    others = [each for each in NAMES if each != away.name]
    if fault == "cut":
        away.wire.cut()
    else:  # its connections stay, and nothing goes through
        away.wire.hold_up()
    cut_at = int(time.time()) + 1
    until = cut_at + scaled(60, few=8)
    planned = "planned_at >= %s AND planned_at < %s AND key LIKE 'cron:%%'"
    values = cut_at * SECOND, until * SECOND
    is_open = f"SELECT count(*) FROM receipt WHERE {planned}"
    is_open += " AND status IN ('waiting', 'starting', 'running')"
    count = f"SELECT count(*) FROM receipt WHERE {planned}"
    total = ENTRIES * (until - cut_at)
    stage.until(lambda: stage.do(count, *values) == [(total,)], within=120)
    stage.until(lambda: stage.do(is_open, *values) == [(0,)])

    late = "SELECT (min(run.started_at) - receipt.planned_at) / 1e6, min(run.member) FROM run"
    late += f" JOIN receipt ON receipt.number = run.receipt WHERE {planned}"
    late += " GROUP BY receipt.number, receipt.planned_at"
    found = stage.do(late, *values)
    assert {row[1] for row in found} <= {*others}
    found_late = sorted(float(row[0]) for row in found)
    assert len(found_late) == total
    worst = found_late[int(len(found_late) * 0.99)]
    print(f"{fault}: {len(found_late)} starts, p99 {worst:.2f} s, last {found_late[-1]:.2f} s")
    assert worst <= LATE, found_late[-20:]
    assert stage.members[away.name].is_up
