"""A task that recurs is an entry, and so is one to be done; one broken task stops no other."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from horae.core.engine import Engine
from horae.core.entry import (
    CatchUp,
    Entry,
    OnceRule,
    OnDemandRule,
    Origin,
    Policy,
    Unarmed,
    Work,
    is_net,
    key_time,
)
from horae.core.explain import WhyQuestion
from horae.core.ports import Ended, Job, Process, Run, Unreleased
from horae.core.project import next_moment
from horae.core.receipt import Filed, Reason, ReasonCode, Receipt, Status
from horae.core.service import Service
from horae.core.source import match
from horae.core.views import AmbiguousEntryError, EngineFacts
from horae.files.read import PlanFileError
from horae.sources.board import tasks
from horae.sources.board.recycle import NET
from horae.sources.board.runner import RecycleRunner
from horae.sources.board.source import (
    BoardSource,
    add_event,
    check_board,
    waiting_tasks,
)
from horae.sources.board.tasks import Board, CommittedBoard, TaskFileError
from horae.store.sqlite import SqliteLedger
from horae.testing import ManualClock
from horae.timing.cron import Cron, count_any
from reasons import because
from scale import scaled
from store.ledger_suite import DAY, HOUR, MINUTE, SECOND, story

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from horae.core.source import Scan, Scanned
    from horae.sources.board.task import Task

pytestmark = pytest.mark.usefixtures("inline")

WEDNESDAY = datetime.fromisoformat("2026-04-01T08:00Z")


def wednesday() -> datetime:
    return WEDNESDAY


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
    [found] = recurring(scan)
    assert isinstance(found.item, Entry)
    return found.item


def recurring(scan: Scan) -> list[Scanned]:
    return [each for each in scan.entries if not each.mark.address.endswith(":work")]


def test_a_task_that_recurs_is_an_entry_that_recycles_it(root: Path) -> None:
    put(root, "042-report.md", task(42, 'cron_schedule: "0 9 * * MON"', "status: todo"))
    entry = only(scanned(BoardSource(Board.below(root), now=wednesday)))
    assert (entry.address, entry.title, entry.work) == ("task:42", "Report", Work.RECYCLE)
    assert str(entry.origin) == "board/tasks/042-report.md:4"
    coming = next_moment(entry, WEDNESDAY)
    assert coming is not None
    assert coming.key == "cron:2026-04-06T09:00:00Z"


def test_it_is_in_utc_or_in_the_zone_that_it_names(root: Path) -> None:
    put(root, "1-a.md", task(1, "cron_schedule: 0 9 * * *", "timezone: Asia/Tokyo"))
    entry = only(scanned(BoardSource(Board.below(root), now=wednesday)))
    coming = next_moment(entry, WEDNESDAY)
    assert coming is not None
    assert (entry.zone, coming.key) == ("Asia/Tokyo", "cron:2026-04-02T00:00:00Z")


def test_a_gate_alone_fires_nothing(root: Path) -> None:
    put(root, "1-a.md", task(1, "scheduled_for: 2026-04-02T09:00:00Z"))
    put(root, "2-b.md", task(2))
    scan = scanned(BoardSource(Board.below(root), now=wednesday))
    assert (recurring(scan), scan.problems) == ([], ())
    assert [next_moment(each, WEDNESDAY) for each in armed(scan).values()] == [None, None]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (("cron_schedule: 0 25 * * *",), "hour 25"),
        (("cron_schedule: 0 9 30 2 *",), "matches no date"),
        (("cron_schedule: 0 9 * * *", "timezone: Mars/Base"), "Mars/Base"),
        (("cron_schedule: 0 9 * * *", "status: archived"), "the task is archived"),
        (("cron_schedule: 0 9 * * *", "tags: [archived]"), "the task is archived"),
    ],
)
def test_a_task_that_cannot_recur_says_why(
    root: Path, fields: tuple[str, ...], reason: str
) -> None:
    put(root, "1-a.md", task(1, *fields))
    [found] = recurring(scanned(BoardSource(Board.below(root), now=wednesday)))
    assert isinstance(found.item, Unarmed)
    assert reason in found.item.reason


@pytest.mark.parametrize("status", ["backlog", "todo", "in-progress", "review", "blocked"])
def test_an_open_task_is_an_entry_that_somebody_can_be_asked_to_do(root: Path, status: str) -> None:
    text = task(7, f"status: {status}", "assignee: wren")
    put(root, "007-report.md", text)
    [found] = scanned(BoardSource(Board.below(root), now=wednesday)).entries
    entry = found.item
    assert isinstance(entry, Entry)
    assert (entry.address, entry.title, entry.rule) == ("task:7:work", "Report", OnDemandRule())
    assert (entry.work, entry.agents) == (Work.DISPATCH, ("wren",))
    assert str(entry.origin) == "board/tasks/007-report.md:3"
    assert (found.text, entry.digest) == (text, sha256(text.encode()).hexdigest())


@pytest.mark.parametrize("field", ["status: done", "status: archived", "tags: [archived]"])
def test_a_closed_task_is_nothing_to_be_done(root: Path, field: str) -> None:
    put(root, "1.md", task(1, field))
    assert scanned(BoardSource(Board.below(root), now=wednesday)).entries == ()


def test_one_task_never_takes_the_history_of_another_however_alike_they_are(root: Path) -> None:
    put(root, "1.md", task(1))
    [old] = scanned(BoardSource(Board.below(root), now=wednesday)).entries
    (root / "board/tasks/1.md").unlink()
    put(root, "2.md", task(2))
    [new] = scanned(BoardSource(Board.below(root), now=wednesday)).entries
    assert match({1: old.mark}, [new.mark]).numbers == (None,)


def test_a_scan_that_finds_something_new_is_told_of_and_no_other(root: Path) -> None:
    told: list[str] = []
    source = BoardSource(Board.below(root), now=wednesday, changed=lambda: told.append("changed"))
    put(root, "1.md", task(1))
    index = scanned(source, scanned(source).index).index
    told.clear()
    scanned(source, index)
    assert told == []
    put(root, "2.md", task(2))
    index = scanned(source, scanned(source, index).index).index
    assert told
    told.clear()
    (root / "board/tasks/1.md").unlink()
    scanned(source, index)
    assert told


def test_only_markdown_right_in_the_directory_is_a_task(root: Path) -> None:
    (root / "board" / "tasks" / "old").mkdir()
    for name in ("1-a.md", "2-b.txt", ".3-c.md", "old/4-d.md"):
        put(root, name, task(int(name.strip("old/.")[0]), "cron_schedule: 0 9 * * *"))
    assert only(scanned(BoardSource(Board.below(root), now=wednesday))).address == "task:1"


def test_the_board_may_be_elsewhere(tmp_path: Path) -> None:
    tasks = tmp_path / ".batty" / "team_config" / "board" / "tasks"
    tasks.mkdir(parents=True)
    (tasks / "1-a.md").write_text(task(1, "cron_schedule: 0 9 * * *"))
    source = BoardSource(Board.below(tmp_path, ".batty/team_config/board/tasks/"), now=wednesday)
    assert str(only(scanned(source)).origin) == ".batty/team_config/board/tasks/1-a.md:4"


def test_a_broken_task_stands_says_where_and_stops_no_other(root: Path) -> None:
    for number in (1, 2):
        put(root, f"{number}-a.md", task(number, "cron_schedule: 0 9 * * *"))
    source = BoardSource(Board.below(root), now=wednesday)
    known = looked(source)
    put(root, "1-a.md", task(1, "cron_schedule: */5 * * * *"))
    put(root, "2-a.md", task(2, "cron_schedule: 0 10 * * *"))
    scan = scanned(source, known.index)
    assert only(scan).address == "task:2"
    assert scan.standing == ("board/tasks/1-a.md",)
    [problem] = scan.problems
    assert isinstance(problem, TaskFileError)
    assert (problem.line, problem.column) == (4, 16)
    assert str(problem).endswith("1-a.md:4:16: a value cannot begin with *; put it in quotes")


def test_a_task_that_did_not_change_is_not_parsed_again_also_after_a_restart(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root, "1-a.md", task(1, "cron_schedule: 0 9 * * *"))
    put(root, "2-b.md", task(2))
    source = BoardSource(Board.below(root), now=wednesday)
    first = scanned(source)
    monkeypatch.setattr(tasks, "parse", None)
    again = scanned(source, first.index)
    assert (again.entries, again.standing) == ((), tuple(first.index))
    for later in (source, BoardSource(Board.below(root), now=wednesday)):
        scan = scanned(later, again.index)
        assert (scan.entries, scan.problems) == ((), ())
        assert scan.standing == ("board/tasks/1-a.md", "board/tasks/2-b.md")


def test_a_board_that_never_was_is_no_problem(tmp_path: Path) -> None:
    scan = scanned(BoardSource(Board.below(tmp_path), now=wednesday))
    assert (scan.entries, scan.problems) == ((), ())


def test_a_board_that_is_gone_takes_its_tasks_with_it_and_is_a_problem(root: Path) -> None:
    put(root, "1-a.md", task(1, "cron_schedule: 0 9 * * *"))
    source = BoardSource(Board.below(root), now=wednesday)
    known = looked(source)
    (root / "board").rename(root / "away")
    scan = scanned(source, known.index)
    assert (scan.entries, scan.standing, len(scan.problems)) == ((), (), 1)
    assert (known.is_bare, scan.is_bare) == (False, True)


@pytest.mark.parametrize("status", ["todo", "done"])
@story
async def test_a_recurring_task_is_one_entry_in_every_list(root: Path, status: str) -> None:
    put(root, "1.md", task(1, "cron_schedule: 0 9 * * *", f"status: {status}"))
    clock, ledger = ManualClock(WEDNESDAY), await SqliteLedger.in_memory()
    source = BoardSource(Board.below(root), now=clock.now)
    await ledger.scan("board", await source.scan({}), now=clock.now(), term=1)
    known = {each.mark.address: each.number for each in await ledger.entries()}
    assert len(known) == 2  # in the ledger: how it recurs, and its work or that it is due back
    service = Service(ledger=ledger, clock=clock, ids=iter("abcdef").__next__)
    for number in known.values():
        reason = Reason(ReasonCode.OTHER, "to see where it is shown")
        receipt = Receipt(f"manual:{number}", Status.MISSED, reason, clock.now(), clock.now())
        await ledger.add(number, [receipt], now=clock.now(), term=1)
    report = await service.status(EngineFacts(is_running=True, directory=".horae"))
    assert report.entries == 1
    assert [(line.title, line.times) for line in report.missed] == [("Report", 2)]
    assert [line.address for line in (await service.entry_list()).entries] == ["task:1"]
    assert [line.address for line in (await service.entries()).entries] == ["task:1"]
    assert [line.entry for line in (await service.inbox()).entries] == [known["task:1"]]
    for word in (*known, "Report", *map(str, known.values())):
        history = (await service.history(word)).receipts
        assert [(line.title, line.entry) for line in history] == [("Report", known["task:1"])] * 2
        told = (await service.why(WhyQuestion(word))).answers
        assert {line.receipt for line in told} >= {line.receipt for line in history}
    # A request works on it while it is open, and brings it back when it is done.
    asked = await ledger.receipt((await service.run_now("Report")).receipt)
    assert asked is not None
    assert asked.work is (Work.DISPATCH if status == "todo" else Work.RECYCLE)
    await service.pause("Report")
    assert all(each.pause is not None for each in await ledger.entries())
    await service.resume("task:1")
    assert all(each.pause is None for each in await ledger.entries())
    await ledger.close()


@story
async def test_of_two_tasks_with_one_title_both_are_named_and_each_goes_by_its_number(
    root: Path,
) -> None:
    for number in (1, 2):
        put(root, f"{number}.md", task(number, "cron_schedule: 0 9 * * *"))
    clock, ledger = ManualClock(WEDNESDAY), await SqliteLedger.in_memory()
    runner = RecycleRunner(CommittedBoard(Board.below(root)), clock=clock)
    source = BoardSource(Board.below(root), now=wednesday)
    engine = Engine(clock=clock, ledger=ledger, runner=runner, sources=[source])
    await engine.rescan("board")
    service = Service(ledger=ledger, clock=clock, ids=lambda: "x")
    with pytest.raises(AmbiguousEntryError, match="2 entries are called 'report'") as told:
        await service.named("report")
    assert "board/tasks/1.md:4" in str(told.value)
    assert "board/tasks/2.md:4" in str(told.value)
    assert [each["address"] for each in told.value.candidates] == ["task:1", "task:2"]
    for each in told.value.candidates:
        for word in (str(each["entry"]), str(each["address"])):
            assert (await service.named(word)).number == each["entry"]
    assert (await service.named("task:2:work")).mark.address == "task:2"
    (root / "board/tasks/1.md").unlink()
    for _ in range(2):
        await engine.rescan("board")
        await clock.advance(3 * SECOND)
    assert (await service.named("Report")).mark.address == "task:2"
    await ledger.close()


# What comes back


def armed(scan: Scan) -> dict[str, Entry]:
    return {each.item.address: each.item for each in scan.entries if isinstance(each.item, Entry)}


@pytest.mark.parametrize(
    ("fields", "at"),
    [
        (("cron_last_run: 2026-03-23T09:00:05Z",), "2026-03-30T09:00:00Z"),
        (("scheduled_for: 2026-03-25T09:00:00-04:00",), "2026-03-25T13:00:00Z"),
    ],
)
def test_a_done_task_is_owed_its_first_trigger_however_long_ago(
    root: Path, fields: tuple[str, ...], at: str
) -> None:
    put(root, "1.md", task(1, "cron_schedule: 0 9 * * MON", "status: done", *fields))
    found = armed(scanned(BoardSource(Board.below(root), now=wednesday)))
    assert set(found) == {"task:1", "task:1:back"}
    owed = found["task:1:back"]
    assert owed.rule == OnceRule(datetime.fromisoformat(at), at)
    assert (owed.work, str(owed.origin)) == (Work.RECYCLE, "board/tasks/1.md:5")


def test_for_a_trigger_that_is_still_to_come_it_has_a_net(root: Path) -> None:
    last = "cron_last_run: 2026-03-30T09:00:05Z"
    put(root, "1.md", task(1, "cron_schedule: 0 9 * * MON", "status: done", last))
    owed = armed(scanned(BoardSource(Board.below(root), now=wednesday)))["task:1:back"]
    monday = datetime.fromisoformat("2026-04-06T09:00:00Z")
    assert owed.rule == OnceRule(monday + NET, "2026-04-06T09:00:00Z")
    assert is_net(owed)


def test_one_that_never_came_back_is_looked_at_as_of_the_day_before_it_was_written(
    root: Path,
) -> None:
    put(root, "1.md", task(1, "cron_schedule: 0 * * * *", "status: done"))
    written = datetime.fromtimestamp((root / "board/tasks/1.md").stat().st_ctime, UTC)
    source = BoardSource(Board.below(root), now=lambda: written + 3 * DAY)
    owed = armed(scanned(source))["task:1:back"]
    assert isinstance(owed.rule, OnceRule)
    assert written - DAY < owed.rule.at <= written - DAY + HOUR


def test_a_file_written_by_a_clock_that_ran_ahead_is_as_old_as_the_look_at_it(root: Path) -> None:
    put(root, "1.md", task(1, "cron_schedule: 0 * * * *", "status: done"))
    owed = armed(scanned(BoardSource(Board.below(root), now=wednesday)))["task:1:back"]
    assert isinstance(owed.rule, OnceRule)
    assert WEDNESDAY - DAY < owed.rule.at <= WEDNESDAY - DAY + HOUR


@pytest.mark.parametrize("field", ["catchup: none", "until: 2026-12-31"])
def test_its_policy_is_written_beside_its_schedule(root: Path, field: str) -> None:
    put(root, "1.md", task(1, "cron_schedule: 0 9 * * *", field))
    policy = only(scanned(BoardSource(Board.below(root), now=wednesday))).policy
    assert (policy.catchup is CatchUp.NONE) == (field == "catchup: none")
    assert (policy.until is not None) == (field != "catchup: none")


# What a person is shown of it


def hours(root: Path, now: datetime = WEDNESDAY) -> list[tuple[str, str]]:
    board = Board.below(root)
    moments = [
        (each.title, key_time(coming.at))
        for each in (found.item for found in scanned(BoardSource(board, now=lambda: now)).entries)
        if isinstance(each, Entry)
        and not is_net(each)
        and (coming := next_moment(each, now - 7 * DAY)) is not None
    ]
    gates = [
        (f"until {each.title}", key_time(each.scheduled))
        for each in waiting_tasks(board, now=now)
        if each.scheduled
    ]
    return moments + gates


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        (("scheduled_for: 2026-04-02T09:00:00Z",), [("until Report", "2026-04-02T09:00:00Z")]),
        (("scheduled_for: soon",), []),
        (("status: done", "scheduled_for: 2026-04-02T09:00:00Z"), []),
        (("tags: [archived]", "scheduled_for: 2026-04-02T09:00:00Z"), []),
        # A gate that is a trigger to come says nothing new, one that has passed is due.
        (
            ("cron_schedule: 0 9 * * MON", "scheduled_for: 2026-04-06T09:00:00Z"),
            [("Report", "2026-03-30T09:00:00Z")],
        ),
        (
            ("cron_schedule: 0 9 * * MON", "scheduled_for: 2026-03-30T09:00:00Z"),
            [("Report", "2026-03-30T09:00:00Z"), ("until Report", "2026-03-30T09:00:00Z")],
        ),
        # A net is shown once its trigger has passed, and then as that.
        (
            ("cron_schedule: 0 9 * * MON", "status: done", "cron_last_run: 2026-03-31T00:00:00Z"),
            [("Report", "2026-03-30T09:00:00Z")],
        ),
        (
            ("cron_schedule: 0 9 * * MON", "status: done", "cron_last_run: 2026-03-29T00:00:00Z"),
            [("Report", "2026-03-30T09:00:00Z"), ("Report", "2026-03-30T09:00:00Z")],
        ),
    ],
)
def test_people_see_each_moment_of_a_task_once(
    root: Path, fields: tuple[str, ...], shown: list[tuple[str, str]]
) -> None:
    put(root, "1.md", task(1, *fields))
    assert hours(root) == shown


def test_two_files_with_one_number_are_a_problem_also_after_a_restart(root: Path) -> None:
    put(root, "1-a.md", task(1, "status: done"))
    put(root, "2-b.md", task(2))
    source = BoardSource(Board.below(root), now=wednesday)
    assert looked(source).problems == ()
    put(root, "9-copy.md", task(1, "status: done"))
    words = (
        "2 files have the id 1: board/tasks/1-a.md, board/tasks/9-copy.md;"
        " give all but one of them another id"
    )
    scan = looked(source)
    assert [*map(str, scan.problems)] == [words]
    later = BoardSource(Board.below(root), now=wednesday)
    index = {**scan.index, **looked(source).index}
    assert [*map(str, scanned(later, index).problems)] == [words]
    (root / "board/tasks/1-a.md").unlink()
    for each in (source, later):
        assert scanned(each, index).problems == ()


def test_check_shows_what_is_odd_at_its_field_and_both_of_two_files_with_one_number(
    root: Path,
) -> None:
    put(root, "1-a.md", task(1, "status: odd", "depends_on: [9]"))
    put(root, "1-b.md", task(1))
    found = check_board(Board.below(root), now=WEDNESDAY)
    assert [(each.file, each.line, each.message) for each in found] == [
        ("board/tasks/1-a.md", 2, "2 files have the id 1: board/tasks/1-a.md, board/tasks/1-b.md"),
        ("board/tasks/1-a.md", 4, "status 'odd' is not valid"),
        ("board/tasks/1-a.md", 5, "depends on #9, which does not exist"),
        ("board/tasks/1-b.md", 2, "2 files have the id 1: board/tasks/1-a.md, board/tasks/1-b.md"),
    ]


def test_people_see_what_cannot_be_read_beside_the_rest(root: Path) -> None:
    put(root, "1.md", "---\nid: 1\n")
    put(root, "2.md", task(2, "cron_schedule: 0 25 * * *"))
    found = scanned(BoardSource(Board.below(root), now=wednesday))
    assert len(found.problems) == 1
    assert "board/tasks/2.md:4" in [str(each.item.origin) for each in found.entries]
    assert waiting_tasks(Board.below(root / "nowhere"), now=WEDNESDAY) == []


class BoardStage:
    """One engine after another over a real board and a real ledger, in a time of our own."""

    def __init__(self, root: Path, ledger: SqliteLedger, now: datetime) -> None:
        self.root = root
        self.ledger = ledger
        self.clock = ManualClock(now)
        self.turns: asyncio.Task[None] | None = None
        self.engine = self.made()

    def made(self) -> Engine:
        return Engine(
            clock=self.clock,
            ledger=self.ledger,
            runner=RecycleRunner(CommittedBoard(Board.below(self.root)), clock=self.clock),
            sources=[BoardSource(Board.below(self.root), now=self.clock.now, ledger=self.ledger)],
        )

    async def up(self) -> None:
        self.engine = self.made()
        await self.engine.start()
        self.turns = asyncio.create_task(self.engine.run())
        await self.advance(SECOND)

    async def down(self) -> None:
        assert self.turns is not None
        tasks = [*self.engine.launch._tasks, self.turns]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def advance(self, length: timedelta) -> None:
        await self.clock.advance(length)
        assert self.turns is not None
        if self.turns.done():
            self.turns.result()

    async def sleep(self, length: timedelta, *, done: bool) -> None:
        """Be down for a while; if *done*, somebody finishes the task meanwhile."""
        await self.down()
        if done:
            Board(self.root / "board" / "tasks").change(42, lambda _: {"status": "done"})
        await self.clock.advance(max(length, SECOND))
        await self.up()

    async def save(self, **fields: str) -> None:
        """Change the task by hand, and let the engine notice."""
        Board(self.root / "board" / "tasks").change(42, lambda _: fields)
        await self.notice()

    async def notice(self) -> None:
        """Let the engine notice that the board has changed, as a watch does."""
        for _ in range(2):  # what is gone is gone when it is missed twice
            await self.engine.rescan("board")
            await self.advance(3 * SECOND)

    async def history(self) -> list[tuple[str, str, str]]:
        page = await self.ledger.receipts(limit=1000)
        return [
            (each.title, f"{each.receipt.planned_at:%m-%d %H:%M}", each.status.value)
            for each in reversed(page.receipts)
        ]

    @property
    def task(self) -> Task:
        return Board(self.root / "board" / "tasks").card(42).task

    def events(self) -> list[dict[str, object]]:
        path = self.root / "board" / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]


MONDAY = datetime.fromisoformat("2026-03-30T07:00:00Z")
REPORT = task(
    42,
    "status: todo",
    "cron_schedule: '0 9 * * MON'",
    "scheduled_for: '2026-03-30T09:00:00Z'",
    "cron_last_run: '2026-03-23T09:00:05Z'",
    "claimed_by: wren",
)


async def engine_on(root: Path, now: datetime = MONDAY) -> BoardStage:
    put(root, "042-report.md", REPORT)
    engine = BoardStage(root, await SqliteLedger.in_memory(), now)
    await engine.up()
    return engine


@story
async def test_a_trigger_that_passes_while_the_task_is_not_done_waits_for_it(root: Path) -> None:
    engine = await engine_on(root)
    await engine.advance(3 * HOUR)  # beyond nine
    assert await engine.history() == [("Report", "03-30 09:00", "no_work")]
    [filed] = (await engine.ledger.receipts()).receipts
    assert filed.receipt.reason == "not done yet; the task is recycled when it is done"
    await engine.save(status="done")
    assert (engine.task.status, engine.task.scheduled_for) == ("todo", "2026-04-06T09:00:00Z")
    assert engine.task.text("claimed_by") is None
    assert await engine.history() == [
        ("Report", "03-30 09:00", "no_work"),
        ("Report", "03-30 09:00", "done"),
    ]
    assert [(each["event"], each["task"]) for each in engine.events()] == [("task_recycled", "#42")]
    await engine.down()
    await engine.ledger.close()


@story
async def test_one_that_is_done_before_its_trigger_comes_back_at_it_with_one_receipt(
    root: Path,
) -> None:
    engine = await engine_on(root)
    await engine.save(status="done")
    assert engine.task.status == "done"
    await engine.advance(2 * HOUR - 30 * SECOND)
    await engine.advance(30 * SECOND)
    assert (engine.task.status, engine.task.cron_last_run) == ("todo", "2026-03-30T09:00:00Z")
    await engine.notice()
    await engine.advance(3 * HOUR)
    assert await engine.history() == [("Report", "03-30 09:00", "done")]
    assert len(engine.events()) == 1
    await engine.down()
    await engine.ledger.close()


@story
async def test_a_task_of_every_minute_comes_back_as_soon_as_it_is_done(root: Path) -> None:
    begin = MONDAY + 30 * SECOND
    engine = await engine_on(root, begin)
    await engine.save(status="done", cron_schedule="* * * * *")
    rounds: list[tuple[str | None, str | None]] = []
    for _ in range(10):
        due = datetime.fromisoformat(engine.task.scheduled_for or "")
        await engine.advance(due - engine.clock.now() + 10 * SECOND)
        await engine.save(status="done")
        rounds.append((key_time(due), engine.task.scheduled_for))
    minutes = [key_time(MONDAY + n * MINUTE) for n in range(1, 12)]
    assert rounds == list(pairwise(minutes))
    await engine.down()
    await engine.ledger.close()


@story
async def test_a_net_that_nobody_took_away_finds_that_it_came_back(root: Path) -> None:
    engine = await engine_on(root)
    await engine.save(status="done")
    await engine.advance(3 * HOUR)  # and nobody notices that the file has changed
    assert await engine.history() == [
        ("Report", "03-30 09:00", "done"),
        ("Report", "03-30 09:01", "no_work"),
    ]
    [filed] = (await engine.ledger.receipts(statuses=(Status.NO_WORK,))).receipts
    assert filed.receipt.reason == "already recycled at 2026-03-30T09:00:00Z"
    assert len(engine.events()) == 1
    await engine.down()
    await engine.ledger.close()


@pytest.mark.parametrize("days", [8, 40])
@story
async def test_a_trigger_that_passed_while_nobody_looked_brings_it_back_at_once(
    root: Path, days: int
) -> None:
    engine = await engine_on(root)
    await engine.save(status="done")
    await engine.down()
    await engine.clock.advance(days * DAY + HOUR)
    await engine.up()
    await engine.advance(MINUTE)
    assert engine.task.status == "todo"
    scheduled = datetime.fromisoformat(engine.task.scheduled_for or "")
    assert timedelta(0) < scheduled - engine.clock.now() <= 7 * DAY
    assert len(engine.events()) == 1
    done = [each for each in await engine.history() if each[2] == "done"]
    assert len(done) == 1
    await engine.down()
    await engine.ledger.close()


@story
async def test_an_event_is_written_once_also_if_it_is_asked_for_again(root: Path) -> None:
    engine = await engine_on(root)
    await engine.advance(3 * HOUR)
    await engine.save(status="done")
    page = await engine.ledger.receipts(statuses=(Status.DONE,))
    for source in [BoardSource(Board.below(root), now=wednesday) for _ in range(2)]:
        for filed in page.receipts:
            await source.settle(filed)
    [event] = engine.events()
    assert event == {
        "event": "task_recycled",
        "task": "#42",
        "reason": "0 9 * * MON",
        "ts": int(datetime.fromisoformat(engine.task.cron_last_run or "").timestamp()),
    }
    await engine.down()
    await engine.ledger.close()


@story
async def test_each_return_is_an_event_of_the_ledger_once(root: Path) -> None:
    engine = await engine_on(root)
    for _ in range(3):
        await engine.save(status="done")
        await engine.sleep(7 * DAY, done=False)
        await engine.notice()
    done = (await engine.ledger.receipts(statuses=(Status.DONE,))).receipts
    assert len(done) == 3
    source = BoardSource(Board.below(root), now=wednesday, ledger=engine.ledger)
    for filler in range(250):  # what else happens does not hide it
        await engine.ledger.note("filler", now=engine.clock.now(), term=1, facts={"n": filler})
    for filed in done:
        await source.settle(filed)  # as after a crash that came before the receipt was settled
    events = await engine.ledger.events_after(0, limit=10_000)
    noted = [each for each in events if each.kind == "task_recycled"]
    assert [each.receipt for each in noted] == sorted(each.number for each in done)
    assert [each.facts for each in noted] == [{"task": "#42", "reason": "0 9 * * MON"}] * 3
    assert [int(each.at.timestamp()) for each in noted] == [each["ts"] for each in engine.events()]
    await engine.down()
    await engine.ledger.close()


@pytest.mark.parametrize("cron", ["0 9 * * *", "0 9 * * MON", "0 */6 * * *"])
def test_in_a_year_of_stops_no_trigger_is_lost_or_answered_twice(root: Path, cron: str) -> None:
    roll = random.Random(cron)
    put(root, "042-report.md", REPORT.replace("0 9 * * MON", cron))

    @story
    async def year() -> None:
        engine = BoardStage(root, await SqliteLedger.in_memory(), MONDAY)
        last = datetime.fromisoformat("2026-03-23T09:00:05Z")
        await engine.up()
        end = MONDAY + scaled(52) * 7 * DAY
        while engine.clock.now() < end:
            if roll.random() < 0.6:
                await engine.save(status="done")
            if roll.random() < 0.3:  # it is down for hours to weeks, and people work on
                await engine.sleep(roll.uniform(3, 24 * 21) * HOUR, done=roll.random() < 0.5)
            else:  # it is up when a trigger comes
                coming = Cron(cron).next(engine.clock.now())
                assert coming is not None
                await engine.sleep(coming - engine.clock.now() - MINUTE, done=False)
                await engine.advance(2 * MINUTE)
            await engine.notice()
        await engine.save(status="done")
        await engine.sleep(8 * DAY, done=False)
        await engine.notice()
        await accounts_agree(engine, cron, since=last)
        await engine.down()
        await engine.ledger.close()

    year()


async def accounts_agree(engine: BoardStage, cron: str, *, since: datetime) -> None:
    """Look whether what came back answers every trigger once, wherever that is written."""
    done: list[Filed] = []
    page = await engine.ledger.receipts(statuses=(Status.DONE,), limit=1000)
    done.extend(page.receipts)
    assert page.cursor is None
    answered = 0
    for filed in done:
        [run] = await engine.ledger.runs_of(filed.number)
        answered += int(str(run.facts["triggers"]))
    last = datetime.fromisoformat(engine.task.cron_last_run or "")
    assert answered == count_any([Cron(cron)], since, last) > 0
    events = await engine.ledger.events_after(0, limit=10**6)
    noted = [each.receipt for each in events if each.kind == "task_recycled"]
    assert sorted(noted, key=lambda each: each or 0) == sorted(each.number for each in done)
    assert len(engine.events()) == len(done)
    stamps = [each["ts"] for each in engine.events()]
    assert len({*stamps}) == len(stamps)


@story
async def test_after_a_crash_the_file_tells_whether_it_came_back(root: Path) -> None:
    put(root, "042-report.md", REPORT)
    clock = ManualClock(datetime.fromisoformat("2026-03-30T09:20:00Z"))
    runner = RecycleRunner(CommittedBoard(Board.below(root)), clock=clock)
    origin = Origin("board/tasks/042-report.md", 5)
    moment = clock.now()
    receipt = Receipt("cron:x", Status.RUNNING, because(""), moment, moment)
    filed = Filed(1, 1, receipt, moment, origin, "", None, Policy(), work=Work.RECYCLE)
    run = Run(1, 1, 1, moment)
    assert isinstance(await runner.look_back(filed, run), Unreleased)
    Board(root / "board" / "tasks").change(42, lambda _: {"status": "done"})
    held = await runner.hold(Job(filed, run, REPORT))
    assert held.process == Process(0, 0)
    held.go()
    ended = await held.ended()
    assert (ended.outcome, ended.facts["triggers"]) == (Status.DONE, 1)
    found = await runner.look_back(filed, run)
    assert isinstance(found, Ended)
    assert (found.outcome, found.reason) == (Status.DONE, ended.reason)


@story
async def test_a_run_that_was_never_let_go_has_changed_nothing(root: Path) -> None:
    put(root, "042-report.md", REPORT.replace("todo", "done"))
    clock = ManualClock(datetime.fromisoformat("2026-03-30T09:20:00Z"))
    runner = RecycleRunner(CommittedBoard(Board.below(root)), clock=clock)
    moment = clock.now()
    receipt = Receipt("cron:x", Status.RUNNING, because(""), moment, moment)
    filed = Filed(1, 1, receipt, moment, Origin("x.md", 5), "", None, Policy(), work=Work.RECYCLE)
    held = await runner.hold(Job(filed, Run(1, 1, 1, moment), REPORT))
    held.cancel("stopped")
    held.go()
    assert (await held.ended()).outcome is Status.KILLED
    assert (root / "board/tasks/042-report.md").read_text() == REPORT.replace("todo", "done")


@pytest.mark.parametrize(
    ("break_it", "outcome", "reason"),
    [
        (lambda path: path.unlink(), Status.NO_WORK, "task #42 is no longer on the board"),
        (lambda path: path.chmod(0o400), Status.FAILED, "is read-only"),
        (lambda path: path.rename(path.with_name("moved.md")), Status.DONE, "recycled task #42"),
    ],
)
@story
async def test_what_is_in_the_way_is_said(
    root: Path, break_it: Callable[[Path], object], outcome: Status, reason: str
) -> None:
    put(root, "042-report.md", REPORT.replace("todo", "done"))
    clock = ManualClock(datetime.fromisoformat("2026-03-30T09:20:00Z"))
    runner = RecycleRunner(CommittedBoard(Board.below(root)), clock=clock)
    moment = clock.now()
    receipt = Receipt("cron:x", Status.RUNNING, because(""), moment, moment)
    origin = Origin("board/tasks/042-report.md", 5)
    filed = Filed(1, 1, receipt, moment, origin, "", None, Policy(), work=Work.RECYCLE)
    held = await runner.hold(Job(filed, Run(1, 1, 1, moment), REPORT))
    break_it(root / "board/tasks/042-report.md")
    held.go()
    ended = await held.ended()
    assert ended.outcome is outcome
    assert reason in ended.reason


@story
async def test_a_board_under_git_is_committed_task_by_task(root: Path) -> None:
    put(root, "042-report.md", REPORT.replace("todo", "done"))
    (root / "other.md").write_text("a person's work\n")

    def git(*args: str) -> str:
        who = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")
        made = subprocess.run(
            ["git", *who, *args], cwd=root, check=True, capture_output=True, text=True
        )
        return made.stdout

    git("init", "--quiet")
    git("add", "board")
    git("commit", "--quiet", "-m", "Begin")
    clock = ManualClock(datetime.fromisoformat("2026-03-30T09:20:00Z"))
    runner = RecycleRunner(CommittedBoard(Board.below(root)), clock=clock)
    moment = clock.now()
    receipt = Receipt("cron:x", Status.RUNNING, because(""), moment, moment)
    origin = Origin("board/tasks/042-report.md", 5)
    filed = Filed(1, 1, receipt, moment, origin, "", None, Policy(), work=Work.RECYCLE)
    held = await runner.hold(Job(filed, Run(1, 1, 1, moment), REPORT))
    held.go()
    ended = await held.ended()
    assert ended.outcome is Status.DONE
    assert git("log", "-1", "--format=%s%n%an", "--name-only").split("\n")[:4] == [
        "Move task #42 back to todo", "horae", "", "board/tasks/042-report.md",
    ]  # fmt: skip
    assert git("status", "--porcelain").strip() == "?? other.md"


# The events


def test_a_line_stands_once_whoever_writes_it(tmp_path: Path) -> None:
    path = str(tmp_path / "events.jsonl")
    for number in (1, 1, 1, 2, 2, 1):
        add_event(path, f'{{"event":"task_recycled","ts":{number}}}')
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["ts"] for line in lines] == [1, 2]


def test_a_line_that_a_crash_has_cut_does_not_run_into_the_next(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"event":"task_recycled","ts":1}\n{"event":"task_rec')
    add_event(str(path), '{"event":"task_recycled","ts":2}')
    assert path.read_text().splitlines()[2] == '{"event":"task_recycled","ts":2}'


def test_a_full_file_is_put_aside_and_what_stands_there_is_not_written_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "events.jsonl"
    lines = [f'{{"event":"task_recycled","ts":{n}}}' for n in range(9)]
    for line in lines:
        add_event(str(path), line, most=200)
    aside = tmp_path / "events.jsonl.1"
    assert (aside.read_text() + path.read_text()).splitlines() == lines
    assert max(path.stat().st_size, aside.stat().st_size) <= 200
    add_event(str(path), lines[0], most=200)
    assert (aside.read_text() + path.read_text()).splitlines() == lines


def test_what_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "events.jsonl")
    (tmp_path / "away").mkdir()
    (tmp_path / "away" / "events.jsonl").symlink_to("/dev/null")
    for path in (tmp_path / "events.jsonl", tmp_path / "away" / "events.jsonl"):
        with pytest.raises(PlanFileError):
            add_event(str(path), "{}")
