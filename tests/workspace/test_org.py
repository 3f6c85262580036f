"""The org plans of a tree are entries, and one broken file stops no other."""

from __future__ import annotations

import ast
import asyncio
import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from horae.engine.almanac import Almanac
from horae.rules.armed import scan_plan
from horae.rules.entry import Entry, Unarmed
from horae.store.sqlite import SqliteLedger
from horae.testing import ManualClock
from horae.workspace import org
from horae.workspace.files import Found, PlanFileError
from horae.workspace.org import OrgSource

if TYPE_CHECKING:
    import pytest

    from horae.engine.ports import Filed
    from horae.engine.source import Scan
    from horae.kernel.plan import Plan
    from horae.rules.armed import Scanned

NOW = datetime.fromisoformat("2026-04-01T08:00Z")
DAY = timedelta(days=1)
BROKEN = b"* Digest :workflow:\n\xff\n"


def workflow(title: str, when: str = "0 9 * * *") -> str:
    return f"* {title} :workflow:\n:PROPERTIES:\n:SCHEDULE: {when}\n:OVERLAP: allow\n:END:\nDo it: {title}.\n"


def scanned(source: OrgSource) -> Scan:
    return asyncio.run(source.scan())


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
    assert (scan.problems, scan.unread) == ((), ())
    assert [each.mark.address for each in scan.entries][2] == "garden/water.org::Water"


def test_what_cannot_fire_is_there_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(workflow("Digest", "0 25 * * *"))
    [found] = scanned(OrgSource(tmp_path)).entries
    assert isinstance(found.item, Unarmed)
    assert "hour 25" in found.item.reason


def test_a_plan_is_read_in_the_zone_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(workflow("Digest"))
    [found] = scanned(OrgSource(tmp_path, zone_name="Europe/Berlin")).entries
    assert isinstance(found.item, Entry)
    assert found.item.zone == "Europe/Berlin"


def test_a_file_that_did_not_change_is_not_parsed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.org").write_text(workflow("One"))
    (tmp_path / "b.org").write_text(workflow("Two"))
    source = OrgSource(tmp_path)
    first = scanned(source)
    parsed: list[str] = []

    def parse(plan: Plan, *, file: str, zone_name: str) -> list[Scanned]:
        parsed.append(file)
        return scan_plan(plan, file=file, zone_name=zone_name)

    monkeypatch.setattr(org, "scan_plan", parse)
    assert scanned(source) == first
    os.utime(tmp_path / "a.org", ns=(0, 0))  # as after a checkout: another time, the same text
    assert scanned(source) == first
    (tmp_path / "b.org").write_text(workflow("Three"))
    scanned(source)
    assert parsed == ["b.org"]


def test_a_file_that_stands_still_is_not_even_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.org").write_text(workflow("One"))
    source = OrgSource(tmp_path)
    first = scanned(source)
    assert scanned(source) == first
    monkeypatch.setattr(org, "read_plan", None)
    assert scanned(source) == first


def test_a_save_that_cannot_be_told_from_outside_is_seen_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tmp_path / "plan.org"
    source = OrgSource(tmp_path)
    for title, tick in (("One", 1), ("Two", 1), ("Two", 2), ("Six", 2)):
        monkeypatch.setattr(org, "_stamp", lambda _, tick=tick: (tick,))
        plan.write_text(workflow(title))
        assert titles(scanned(source)) == [f"plan.org:1 {title}"]


def test_sections_that_did_not_change_are_taken_over(tmp_path: Path) -> None:
    plan = tmp_path / "plan.org"
    plan.write_text(workflow("One") + workflow("Two"))
    source = OrgSource(tmp_path)
    scanned(source)
    one, two = source._pages["plan.org"].plan.headlines
    plan.write_text(workflow("One") + workflow("Three"))
    scanned(source)
    assert source._pages["plan.org"].plan.headlines[0] is one
    assert source._pages["plan.org"].plan.headlines[1] is not two


def test_a_broken_file_keeps_its_last_good_entries_and_stops_no_other(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.org").write_text(workflow(name))
    source = OrgSource(tmp_path)
    scanned(source)
    (tmp_path / "a.org").write_bytes(BROKEN)
    (tmp_path / "b.org").write_text(workflow("better"))
    (tmp_path / "c.org").write_text(workflow("new"))
    scan = scanned(source)
    assert titles(scan) == ["a.org:1 a", "b.org:1 better", "c.org:1 new"]
    [problem] = scan.problems
    assert isinstance(problem, PlanFileError)
    assert "line 2, column 1 (byte 20): 0xff is not UTF-8" in str(problem)
    assert scan.unread == ("a.org",)
    (tmp_path / "a.org").write_text(workflow("mended"))
    assert titles(scanned(source))[0] == "a.org:1 mended"


def test_a_directory_that_cannot_be_listed_keeps_what_is_known_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked" / "plan.org").write_text(workflow("Inside"))
    source = OrgSource(tmp_path)
    first = scanned(source)
    refused = PlanFileError(f"{tmp_path}/locked/", "cannot be listed: permission denied")
    monkeypatch.setattr(org, "find_plans", lambda *_, **__: Found((), (refused,)))
    scan = scanned(source)
    assert (scan.entries, scan.problems, scan.unread) == (first.entries, (refused,), ("locked/",))


def test_a_root_that_is_gone_takes_no_entry_with_it(tmp_path: Path) -> None:
    root = tmp_path / "plans"
    root.mkdir()
    (root / "plan.org").write_text(workflow("Digest"))
    source = OrgSource(root)
    first = scanned(source)
    root.rename(tmp_path / "away")
    scan = scanned(source)
    assert (scan.entries, scan.unread) == (first.entries, ("",))
    assert len(scan.problems) == 1


def test_a_plan_that_was_deleted_is_gone(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(workflow("Digest"))
    source = OrgSource(tmp_path)
    scanned(source)
    (tmp_path / "plan.org").unlink()
    assert scanned(source).entries == ()


def test_a_broken_file_stays_armed_while_others_go_on_also_after_a_restart(tmp_path: Path) -> None:
    async def told() -> None:
        (tmp_path / "digest.org").write_text(workflow("Digest"))
        (tmp_path / "water.org").write_text(workflow("Water"))
        clock, ledger = ManualClock(NOW), await SqliteLedger.in_memory()
        for _ in range(3):  # days, each with an engine of its own
            offered: list[Filed] = []
            source = OrgSource(tmp_path)
            almanac = Almanac(clock=clock, ledger=ledger, offer=offered.extend)
            await almanac.rescan(source)
            (tmp_path / "digest.org").write_bytes(BROKEN)
            scan = await almanac.rescan(source)
            assert scan.unread == ("digest.org",)
            await clock.advance(DAY)
            await almanac.turn()
            assert [str(each.origin) for each in offered] == ["digest.org:1", "water.org:1"]
        assert [each.gone_at for each in await ledger.entries()] == [None, None]
        await ledger.close()

    asyncio.run(told())


def test_an_entry_that_left_a_file_before_it_broke_is_where_it_can_be_read(tmp_path: Path) -> None:
    async def told() -> None:
        clock, ledger = ManualClock(NOW), await SqliteLedger.in_memory()
        almanac = Almanac(clock=clock, ledger=ledger, offer=lambda _: None)
        named = workflow("Digest").replace(":END:", ":ID: digest\n:END:")
        (tmp_path / "old.org").write_text(named)
        await almanac.rescan(OrgSource(tmp_path))
        (tmp_path / "old.org").write_bytes(BROKEN)
        (tmp_path / "new.org").write_text(f"{named}And say so.\n")
        await almanac.rescan(OrgSource(tmp_path))
        [known] = await ledger.entries()
        assert str(known.item.origin) == "new.org:1"
        await ledger.close()

    asyncio.run(told())


def test_a_source_never_sleeps_spawns_or_sets_a_timer() -> None:
    tree = ast.parse(Path(org.__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = {
        name.partition(".")[0]
        for node in imports
        for name in (getattr(node, "module", None), *(each.name for each in node.names))
        if name is not None
    }
    assert not imported & {
        "asyncio",
        "multiprocessing",
        "sched",
        "signal",
        "subprocess",
        "threading",
        "time",
    }
    assert not any(isinstance(node, ast.Await) for node in ast.walk(tree))
