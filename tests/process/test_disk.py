"""What a data directory holds, and where most of it is."""

import os
from pathlib import Path

from horae.process.logs import Place, fullest, held_in, room_at

MIB = 1 << 20


def leave(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))


def test_a_data_directory_is_measured_by_what_it_is_for(tmp_path: Path) -> None:
    leave(tmp_path / "runs/2026-04-01/1/output.log", 3 * MIB)
    leave(tmp_path / "trees/dora/file", 2 * MIB)
    leave(tmp_path / "ledger.db", MIB)
    leave(tmp_path / "ledger-before-1.db", MIB)
    leave(tmp_path / "notes", MIB)
    held = {name: size // MIB for name, size in held_in(tmp_path).items()}
    assert held == {"runs": 3, "trees": 2, "ledger": 2, "other": 1}


def test_the_fullest_directory_is_the_deepest_that_holds_most(tmp_path: Path) -> None:
    leave(tmp_path / "plans/plan.org", 10)
    leave(tmp_path / "plans/.horae/trees/dora/out/one", 2 * MIB)
    leave(tmp_path / "plans/.horae/trees/dora/out/two", MIB)
    leave(tmp_path / "plans/.horae/runs/1/output.log", MIB)
    leave(tmp_path / "elsewhere/file", MIB)
    tops = [tmp_path / "plans", tmp_path / "plans/.horae", tmp_path / "elsewhere"]
    found = fullest(tops)
    assert found is not None
    assert found.path == f"{tmp_path}/plans/.horae/trees/dora/out"
    assert found.size // MIB == 3
    assert fullest([tmp_path / "elsewhere"]) == Place(f"{tmp_path}/elsewhere", MIB)


def test_what_a_link_leads_to_counts_where_it_is(tmp_path: Path) -> None:
    leave(tmp_path / "far/file", 4 * MIB)
    leave(tmp_path / "data/runs/1/output.log", MIB)
    (tmp_path / "data/runs/far").symlink_to(tmp_path / "far")
    (tmp_path / "data/runs/round").symlink_to(tmp_path / "data")
    assert {name: size // MIB for name, size in held_in(tmp_path / "data").items()} == {"runs": 1}


def test_what_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert held_in(tmp_path / "none") == {}
    assert fullest([tmp_path / "none"]) is None
    assert room_at(tmp_path).free > 0
