"""A database that is away for less than a lease: no run ends for it, and none starts twice."""

from __future__ import annotations

import signal
import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

import pytest

from cluster.stage import Stage, entry
from scale import scaled
from store.server import server

if TYPE_CHECKING:
    from pathlib import Path

LEASE: Final = 15  # seconds
LONG: Final = 600  # seconds of a run: longer than every fault and than the whole test
TITLES: Final = ("north", "east", "south", "west")
# How the server ends, and how long it is away: for the longest part of a lease, and for a moment.
ABSENCES: Final = ((signal.SIGINT, 5.0), *((signal.SIGQUIT, 0.1 * n) for n in range(1, 5)))


def decides_again(stage: Stage) -> None:
    """Return when something was decided for three more seconds."""
    query = "SELECT coalesce(max(decided_at), 0) FROM receipt"
    at = stage.do(query)[0][0]
    stage.until(lambda: stage.do(query)[0][0] >= at + 3_000_000)


@pytest.mark.parametrize("retry", [None, "3 1s"])
def test_a_short_absence_of_the_database_ends_no_run_and_doubles_none(
    tmp_path: Path, retry: str | None
) -> None:
    with closing(Stage(tmp_path, lease=LEASE)) as stage:
        more = {} if retry is None else {"retry": retry}
        plan = "".join(entry(each, stage.effect(each, LONG), **more) for each in TITLES)
        stage.write({"plan.org": plan})
        for name in ("one", "two"):
            stage.member(name).joined()
        stage.until(lambda: stage.count("status = 'running'") == len(TITLES))
        stage.until(lambda: len(stage.living_runs()) == len(TITLES))
        before = stage.living_runs()

        for how, away in ABSENCES[: max(1, scaled(len(ABSENCES) * 4))]:
            server().halt(how)
            time.sleep(away)
            server().start()
            for node in stage.members.values():
                node.joined()
            decides_again(stage)
            assert stage.open_runs() == before, stage.said()
            assert stage.living_runs() == before

        assert stage.count("status = 'interrupted'") == 0
        assert not [each for each in stage.happened() if each.company == "beside"]
        assert len(stage.happened()) == len(TITLES)
