"""Cgroups are used where one is delegated, and `doctor` is told in words where none is."""

import os
from pathlib import Path

import pytest

from horae.runner.cgroup import CgroupLimits, cgroup_state, delegated_cgroup
from horae.runner.processes import Processes
from runner.stage import log, marked, shell, told
from store.ledger_suite import story

# A writable cgroup v2, below which a test may make its own: HORAE_TEST_CGROUP=/sys/fs/cgroup/…
GIVEN = os.environ.get("HORAE_TEST_CGROUP", "")


def test_the_words_agree_with_what_is_used() -> None:
    state = cgroup_state()
    assert state.startswith("no cgroups: ") is (delegated_cgroup() is None)
    assert "Delegate=yes" in state or str(delegated_cgroup()) in state


@story
async def test_a_cgroup_that_cannot_be_made_changes_nothing(tmp_path: Path) -> None:
    async with Processes(tmp_path, cgroup=tmp_path / "no/such/group") as processes:
        asked = shell(tmp_path, 1, "echo well", cgroup=CgroupLimits(pids_max=10))
        assert (await told(processes, asked)).reason == "well"


@pytest.mark.skipif(not GIVEN, reason="HORAE_TEST_CGROUP names no cgroup v2 that may be written")
@story
async def test_a_run_lives_in_a_cgroup_of_its_own(tmp_path: Path) -> None:
    async with Processes(tmp_path, cgroup=Path(GIVEN)) as processes:
        script = "setsid sleep 1000 & grep ^0:: /proc/self/cgroup"
        asked = shell(tmp_path, 71, script, cgroup=CgroupLimits(pids_max=10))
        ended = await told(processes, asked)
        assert ended.exit_code == 0
        assert log(asked).strip().endswith(b"/run-71")
        assert not marked(tmp_path)
    assert not (Path(GIVEN) / "run-71").exists()
