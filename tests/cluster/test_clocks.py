"""Members whose clocks are wrong: the database's clock is the clock of all of them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cluster.audit import audit
from cluster.stage import entry
from ledger_audit import SECOND

if TYPE_CHECKING:
    from cluster.stage import Stage

MINUTE = 60 * SECOND
LIBRARIES = [*Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")]


def clock_off_by(length: str) -> dict[str, str]:
    """Return the environment of a member whose clock is wrong by a length such as `+10m`.

    Only what a clock shows is wrong, not what passes; without the fix of another program's
    trouble, each step of a thread would take a twentieth of a second.
    """
    return {
        "LD_PRELOAD": str(LIBRARIES[0]),
        "FAKETIME": length,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
    }


@pytest.mark.skipif(not LIBRARIES, reason="libfaketime is not installed")
def test_clocks_that_are_minutes_apart_change_nothing(stage: Stage) -> None:
    stage.write({"plan.org": entry("Count", stage.effect("count", 0.2))})
    begun_at = time.time() * SECOND
    for name, by in (("ahead", "+10m"), ("behind", "-10m")):
        stage.member(name, settings=clock_off_by(by))
    for node in stage.members.values():
        node.joined()
    stage.until(lambda: stage.count("status = 'done'") > 3)
    first = stage.leader()
    stage.members[first].kill()
    stage.until(lambda: stage.leader() not in {"", first})
    known = stage.count("status = 'done'")
    stage.until(lambda: stage.count("status = 'done'") > known + 2)

    audit(stage)
    kinds = {row[0] for row in stage.do("SELECT kind FROM event")}
    assert not kinds & {"clock_step", "set_back"}
    now = time.time() * SECOND
    for moments in stage.do("SELECT planned_at, decided_at FROM receipt"):
        assert all(begun_at - MINUTE < each < now + MINUTE for each in moments)
    for moments in stage.do("SELECT started_at, coalesce(ended_at, started_at) FROM run"):
        assert all(begun_at - MINUTE < each < now + MINUTE for each in moments)
