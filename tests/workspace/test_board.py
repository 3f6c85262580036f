"""A task of the board that recurs is an entry; one broken task stops no other."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from horae.rules.entry import Entry, Unarmed, Work
from horae.rules.project import next_moment
from horae.workspace import board
from horae.workspace.board import BoardSource, TaskFileError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from horae.engine.source import Scan

WEDNESDAY = datetime.fromisoformat("2026-04-01T08:00Z")


def task(number: int, *fields: str, title: str = "Report") -> str:
    lines = "".join(f"{field}\n" for field in fields)
    return f"---\nid: {number}\ntitle: {title}\n{lines}---\n\nDo it.\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "board" / "tasks").mkdir(parents=True)
    return tmp_path


def put(root: Path, name: str, text: str) -> None:
    (root / "board" / "tasks" / name).write_text(text)


def scanned(source: BoardSource, index: Mapping[str, str] | None = None) -> Scan:
    return asyncio.run(source.scan(index or {}))


def looked(source: BoardSource) -> Scan:
    return scanned(source, scanned(source).index)


def only(scan: Scan) -> Entry:
    [found] = scan.entries
    assert isinstance(found.item, Entry)
    return found.item


def test_a_task_that_recurs_is_an_entry_that_recycles_it(root: Path) -> None:
    put(root, "042-report.md", task(42, 'cron_schedule: "0 9 * * MON"', "status: done"))
    entry = only(scanned(BoardSource(root)))
    assert (entry.address, entry.title, entry.work) == ("task:42", "Report", Work.RECYCLE)
    assert str(entry.origin) == "board/tasks/042-report.md:4"
    coming = next_moment(entry, WEDNESDAY)
    assert coming is not None
    assert coming.key == "cron:2026-04-06T09:00:00Z"


def test_it_is_in_utc_or_in_the_zone_that_it_names(root: Path) -> None:
    put(root, "1-a.md", task(1, "cron_schedule: 0 9 * * *", "timezone: Asia/Tokyo"))
    entry = only(scanned(BoardSource(root)))
    coming = next_moment(entry, WEDNESDAY)
    assert coming is not None
    assert (entry.zone, coming.key) == ("Asia/Tokyo", "cron:2026-04-02T00:00:00Z")


def test_a_gate_alone_fires_nothing(root: Path) -> None:
    put(root, "1-a.md", task(1, "scheduled_for: 2026-04-02T09:00:00Z"))
    put(root, "2-b.md", task(2))
    scan = scanned(BoardSource(root))
    assert (scan.entries, scan.problems) == ((), ())


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (("cron_schedule: 0 25 * * *",), "hour 25"),
        (("cron_schedule: 0 9 30 2 *",), "never comes"),
        (("cron_schedule: 0 9 * * *", "timezone: Mars/Base"), "Mars/Base"),
        (("cron_schedule: 0 9 * * *", "status: archived"), "it is archived"),
        (("cron_schedule: 0 9 * * *", "tags: [archived]"), "it is archived"),
    ],
)
def test_a_task_that_cannot_recur_says_why(
    root: Path, fields: tuple[str, ...], reason: str
) -> None:
    put(root, "1-a.md", task(1, *fields))
    [found] = scanned(BoardSource(root)).entries
    assert isinstance(found.item, Unarmed)
    assert reason in found.item.reason


def test_only_markdown_right_in_the_directory_is_a_task(root: Path) -> None:
    (root / "board" / "tasks" / "old").mkdir()
    for name in ("1-a.md", "2-b.txt", ".3-c.md", "old/4-d.md"):
        put(root, name, task(int(name.strip("old/.")[0]), "cron_schedule: 0 9 * * *"))
    assert only(scanned(BoardSource(root))).address == "task:1"


def test_the_board_may_be_elsewhere(tmp_path: Path) -> None:
    tasks = tmp_path / ".batty" / "team_config" / "board" / "tasks"
    tasks.mkdir(parents=True)
    (tasks / "1-a.md").write_text(task(1, "cron_schedule: 0 9 * * *"))
    source = BoardSource(tmp_path, tasks=".batty/team_config/board/tasks/")
    assert str(only(scanned(source)).origin) == ".batty/team_config/board/tasks/1-a.md:4"


def test_a_broken_task_stands_says_where_and_stops_no_other(root: Path) -> None:
    for number in (1, 2):
        put(root, f"{number}-a.md", task(number, "cron_schedule: 0 9 * * *"))
    source = BoardSource(root)
    known = looked(source)
    put(root, "1-a.md", task(1, "cron_schedule: */5 * * * *"))
    put(root, "2-a.md", task(2, "cron_schedule: 0 10 * * *"))
    scan = scanned(source, known.index)
    assert only(scan).address == "task:2"
    assert scan.standing == ("board/tasks/1-a.md",)
    [problem] = scan.problems
    assert isinstance(problem, TaskFileError)
    assert (problem.line, problem.column) == (4, 16)
    assert str(problem).endswith(
        "1-a.md: line 4, column 16: a value cannot begin with *; put it in quotes"
    )


def test_a_task_that_did_not_change_is_not_parsed_again_also_after_a_restart(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root, "1-a.md", task(1, "cron_schedule: 0 9 * * *"))
    put(root, "2-b.md", task(2))
    source = BoardSource(root)
    first = scanned(source)
    monkeypatch.setattr(board, "parse", None)
    again = scanned(source, first.index)
    assert again.entries == first.entries  # the ledger is told until the stamp is sure
    for later in (source, BoardSource(root, inline=True)):
        scan = scanned(later, again.index)
        assert (scan.entries, scan.problems) == ((), ())
        assert scan.standing == ("board/tasks/1-a.md", "board/tasks/2-b.md")


def test_a_board_that_never_was_is_no_problem(tmp_path: Path) -> None:
    scan = scanned(BoardSource(tmp_path))
    assert (scan.entries, scan.problems) == ((), ())


def test_a_board_that_is_gone_takes_no_entry_with_it(root: Path) -> None:
    put(root, "1-a.md", task(1, "cron_schedule: 0 9 * * *"))
    source = BoardSource(root)
    known = looked(source)
    (root / "board").rename(root / "away")
    scan = scanned(source, known.index)
    assert (scan.entries, scan.standing, len(scan.problems)) == ((), ("",), 1)
    for later in (source, BoardSource(root)):  # nor when nobody knows any more that it was
        assert scanned(later, scan.index).standing == ("",)
