"""The org plans of a tree are entries, and one broken file stops no other."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING

import pytest

from horae.core.entry import Entry, Unarmed
from horae.files import cache, read as files
from horae.files.read import PlanFileError, PlanFiles, read_plan
from horae.sources.plans import source as org
from horae.sources.plans.arming import scan_plan
from horae.sources.plans.source import OrgSource
from scale import scaled

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from horae.core.source import Scan, Scanned
    from horae.files.read import Content
    from horae.org.plan import Plan

BROKEN = b"* Digest :workflow:\n\xff\n"


def workflow(title: str, when: str = "0 9 * * *") -> str:
    return f"* {title} :workflow:\n:PROPERTIES:\n:SCHEDULE: {when}\n:OVERLAP: allow\n:END:\nDo it: {title}.\n"


def scanned(source: OrgSource, index: Mapping[str, str] | None = None) -> Scan:
    return asyncio.run(source.scan(index or {}))


def looked(source: OrgSource, index: Mapping[str, str] | None = None, *, times: int = 2) -> Scan:
    """Return the last of several scans, each told what the one before it knew, as a ledger does."""
    scan = scanned(source, index)
    for _ in range(times - 1):
        scan = scanned(source, scan.index)
    return scan


def titles(scan: Scan) -> list[str]:
    return [f"{each.item.origin} {each.item.title}" for each in scan.entries]


def test_every_workflow_beneath_the_root_is_an_entry_that_knows_its_line(tmp_path: Path) -> None:
    (tmp_path / "garden").mkdir()
    (tmp_path / "garden" / "water.org").write_text("* Notes\n" + workflow("Water"))
    (tmp_path / "digest.org").write_text(workflow("Digest") + workflow("Weekly"))
    (tmp_path / "notes.txt").write_text(workflow("Not a plan"))
    scan = scanned(OrgSource(tmp_path))
    assert titles(scan) == [
        "digest.org:1 Digest",
        "digest.org:7 Weekly",
        "garden/water.org:2 Water",
    ]
    assert (scan.problems, scan.standing) == ((), ())
    assert [each.mark.address for each in scan.entries][2] == "garden/water.org::Water"


def test_what_cannot_fire_is_there_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(workflow("Digest", "0 25 * * *"))
    [found] = scanned(OrgSource(tmp_path)).entries
    assert isinstance(found.item, Unarmed)
    assert "hour 25" in found.item.reason


def test_what_has_the_name_of_another_is_a_problem_of_every_scan(tmp_path: Path) -> None:
    (tmp_path / "a.org").write_text(workflow("Twin") * 2 + workflow("Other"))
    (tmp_path / "b.org").write_text(workflow("Twin"))
    scan = looked(OrgSource(tmp_path), times=3)
    assert list(map(str, scan.problems)) == [
        "a.org:7: 'Twin' is not armed: a.org:1 has the same name; give one of the two an :ID:"
    ]
    assert (scan.standing, [*scan.index]) == (("b.org",), ["b.org"])
    (tmp_path / "a.org").write_text(workflow("Twin") + workflow("Other"))
    assert scanned(OrgSource(tmp_path), scan.index).problems == ()


def test_a_plan_is_read_in_the_zone_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(workflow("Digest"))
    [found] = scanned(OrgSource(tmp_path, zone_name="Europe/Berlin")).entries
    assert isinstance(found.item, Entry)
    assert found.item.zone == "Europe/Berlin"


def test_files_are_read_in_another_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plan.org").write_text(workflow("Digest"))
    threads = []

    def parse(plan: Plan, *, file: str, zone_name: str) -> list[Scanned]:
        threads.append(threading.current_thread())
        return scan_plan(plan, file=file, zone_name=zone_name)

    monkeypatch.setattr(org, "scan_plan", parse)
    scanned(OrgSource(tmp_path))
    assert [each is threading.main_thread() for each in threads] == [False]


def test_a_file_that_did_not_change_is_not_parsed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.org").write_text(workflow("One"))
    (tmp_path / "b.org").write_text(workflow("Two"))
    source = OrgSource(tmp_path)
    index = scanned(source).index
    parsed: list[str] = []

    def parse(plan: Plan, *, file: str, zone_name: str) -> list[Scanned]:
        parsed.append(file)
        return scan_plan(plan, file=file, zone_name=zone_name)

    monkeypatch.setattr(org, "scan_plan", parse)
    for reader in (source, OrgSource(tmp_path)):  # the second one as after a restart
        scan = scanned(reader, index)
        assert (scan.entries, scan.standing) == ((), ("a.org", "b.org"))
    os.utime(tmp_path / "a.org", ns=(0, 0))  # as after a checkout: another time, the same text
    assert scanned(source, index).entries == ()
    (tmp_path / "b.org").write_text(workflow("Three"))
    assert titles(scanned(source, index)) == ["b.org:1 Three"]
    assert parsed == ["b.org"]


def test_a_file_that_the_ledger_knows_as_it_stands_is_not_said_again(tmp_path: Path) -> None:
    (tmp_path / "a.org").write_text(workflow("One"))
    (tmp_path / "b.org").write_text(workflow("Two"))
    source = OrgSource(tmp_path)
    first = scanned(source)
    assert (titles(first), first.standing) == (["a.org:1 One", "b.org:1 Two"], ())
    known = scanned(source, first.index)
    assert (titles(known), known.standing) == ([], ("a.org", "b.org"))
    (tmp_path / "b.org").write_text(workflow("Three"))
    scan = scanned(source, known.index)
    assert (titles(scan), scan.standing) == (["b.org:1 Three"], ("a.org",))


def test_what_the_ledger_did_not_take_is_said_until_it_does(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(workflow("Digest"))
    source = OrgSource(tmp_path)
    before = looked(source).index
    (tmp_path / "plan.org").write_text(workflow("Better"))
    for _ in range(3):  # the ledger could not be written, so it remembers what it did before
        assert titles(scanned(source, before)) == ["plan.org:1 Better"]


def test_after_a_restart_a_file_that_did_not_change_is_not_even_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.org").write_text(workflow(name))
    index = looked(OrgSource(tmp_path)).index
    (tmp_path / "b.org").write_text(workflow("better"))
    (tmp_path / "c.org").unlink()
    read: list[str] = []

    def reading(path: str, *, root: str, limit: int) -> Content:
        read.append(path)
        return read_plan(path, root=root, limit=limit)

    monkeypatch.setattr(files, "read_plan", reading)
    source = OrgSource(tmp_path)
    scan = scanned(source, index)
    assert (titles(scan), scan.standing) == (["b.org:1 better"], ("a.org",))
    for _ in range(3):  # the stamp of the new b is believed once a second look has confirmed it
        scan = scanned(source, scan.index)
        assert scan.standing == ("a.org", "b.org")
    assert read == [str(tmp_path / "b.org")] * 2


@pytest.mark.parametrize("change", ["zone", "reader"])
def test_what_was_read_in_another_zone_or_by_another_reader_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    (tmp_path / "plan.org").write_text(workflow("Digest"))
    index = looked(OrgSource(tmp_path)).index
    assert titles(scanned(OrgSource(tmp_path), index)) == []
    if change == "reader":
        monkeypatch.setattr(org, "READER", org.READER + 1)
    zone_name = "Asia/Tokyo" if change == "zone" else "UTC"
    scan = scanned(OrgSource(tmp_path, zone_name=zone_name), index)
    assert (titles(scan), scan.standing) == (["plan.org:1 Digest"], ())


def test_a_save_that_cannot_be_told_from_outside_is_seen_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tmp_path / "plan.org"
    source = OrgSource(tmp_path)
    index: Mapping[str, str] = {}
    for title, tick, is_new in (("One", 1, 1), ("Two", 1, 1), ("Two", 2, 0), ("Six", 2, 1)):
        monkeypatch.setattr(cache, "_stamp", lambda _, tick=tick: (tick,))
        plan.write_text(workflow(title))
        scan = scanned(source, index)
        assert titles(scan) == [f"plan.org:1 {title}"] * is_new
        index = scan.index


def test_where_the_disk_tells_only_whole_seconds_a_file_is_read_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tmp_path / "plan.org"
    monkeypatch.setattr(cache, "_stamp", lambda _: (1, 1, 0, 1_775_000_000_000_000_000))
    plan.write_text(workflow("One"))
    source = OrgSource(tmp_path)
    known = looked(source, times=3)
    assert known.standing == ("plan.org",)
    plan.write_text(workflow("Two"))
    assert titles(scanned(source, known.index)) == ["plan.org:1 Two"]


def test_a_broken_file_keeps_its_last_good_entries_and_stops_no_other(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.org").write_text(workflow(name))
    source = OrgSource(tmp_path)
    known = looked(source)
    (tmp_path / "a.org").write_bytes(BROKEN)
    (tmp_path / "b.org").write_text(workflow("better"))
    (tmp_path / "c.org").write_text(workflow("new"))
    scan = scanned(source, known.index)
    assert titles(scan) == ["b.org:1 better", "c.org:1 new"]
    [problem] = scan.problems
    assert isinstance(problem, PlanFileError)
    assert "a.org:2:1: 0xff at byte 20 is not UTF-8" in str(problem)
    assert scan.standing == ("a.org",)
    assert "a.org" not in scan.index
    (tmp_path / "a.org").write_text(workflow("mended"))
    assert titles(scanned(source, scan.index))[0] == "a.org:1 mended"


def test_a_directory_that_cannot_be_listed_keeps_what_is_known_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "locked" / "deep").mkdir(parents=True)
    (tmp_path / "locked" / "deep" / "plan.org").write_text(workflow("Inside"))
    (tmp_path / "gone.org").write_text(workflow("Outside"))
    source = OrgSource(tmp_path)
    known = looked(source)
    refused = PlanFileError(f"{tmp_path}/locked/", "cannot be listed: permission denied")
    monkeypatch.setattr(files, "find_plans", lambda *_, **__: PlanFiles((), (refused,)))
    scan = scanned(source, known.index)
    assert (scan.entries, scan.standing) == ((), ("locked/",))
    assert [str(each) for each in scan.problems] == ["locked/: cannot be listed: permission denied"]
    assert scan.index == {}


def test_a_root_that_is_gone_is_bare_and_a_problem(tmp_path: Path) -> None:
    root = tmp_path / "plans"
    root.mkdir()
    (root / "plan.org").write_text(workflow("Digest"))
    source = OrgSource(root)
    known = looked(source)
    assert known.is_bare is False
    root.rename(tmp_path / "away")
    scan = scanned(source, known.index)
    assert (scan.entries, scan.standing, scan.index, scan.is_bare) == ((), (), {}, True)
    assert len(scan.problems) == 1
    (tmp_path / "away").rename(root)
    assert titles(scanned(source, scan.index)) == ["plan.org:1 Digest"]


def test_a_plan_that_was_deleted_is_neither_said_nor_standing(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(workflow("Digest"))
    source = OrgSource(tmp_path)
    known = looked(source)
    (tmp_path / "plan.org").unlink()
    scan = scanned(source, known.index)
    assert (scan.entries, scan.standing, scan.problems, scan.index) == ((), (), (), {})
    assert scan.is_bare


def test_a_root_with_only_a_plan_that_cannot_be_read_is_not_bare(tmp_path: Path) -> None:
    (tmp_path / "plan.org").symlink_to(tmp_path / "elsewhere")
    scan = scanned(OrgSource(tmp_path))
    assert (scan.standing, scan.is_bare) == (("plan.org",), False)


def test_a_plan_that_goes_while_it_is_looked_for_stands_until_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = PlanFiles((f"{tmp_path}/went.org",), ())
    monkeypatch.setattr(files, "find_plans", lambda *_, **__: found)
    scan = scanned(OrgSource(tmp_path))
    assert (scan.entries, scan.standing, len(scan.problems)) == ((), ("went.org",), 1)


def test_a_large_tree_that_stands_is_looked_through_without_a_parse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = scaled(20_000)
    for number in range(count):
        (tmp_path / f"{number:05}.org").write_text(workflow(f"W{number}"))
    index = looked(OrgSource(tmp_path)).index
    monkeypatch.setattr(files, "read_plan", None)
    assert len(scanned(OrgSource(tmp_path), index).standing) == count
