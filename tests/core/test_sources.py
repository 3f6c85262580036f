"""Four sources, one port: each says what it holds and follows up, and does nothing else."""

from __future__ import annotations

import ast
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import horae
import one_run
from horae.core.decide import decide
from horae.core.entry import Entry, Unarmed, Work
from horae.core.ports import PATIENCE, EntryStep, Process
from horae.core.receipt import Status
from horae.sources.board.source import BoardSource
from horae.sources.board.tasks import Board
from horae.sources.crew.source import CrewCadence, CrewSource
from horae.sources.plans.source import OrgSource
from horae.sources.triggers.source import TriggerSource
from horae.sources.triggers.store import TriggerStore
from horae.store.sqlite import SqliteLedger
from reasons import because
from store.ledger_suite import DAY, HOUR, MINUTE, NINE, NOW, SECOND, add_trigger, story

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from horae.core.receipt import Filed
    from horae.core.source import Scan, Source

HOUSE = Path(horae.__file__).parent
SOURCES = (
    "files/cache.py",
    "sources/plans/source.py",
    "sources/crew/source.py",
    "sources/board/source.py",
    "sources/triggers/source.py",
)

# What waits, works later, or works elsewhere.
MODULES = {
    "concurrent", "multiprocessing", "queue", "random", "sched", "select", "signal", "socket",
    "subprocess", "threading", "time", "watchfiles",
}  # fmt: skip
CALLS = {
    "Lock", "Popen", "Semaphore", "Thread", "Timer", "call_at", "call_later", "call_soon",
    "create_subprocess_exec", "create_subprocess_shell", "create_task", "ensure_future", "execv",
    "execve", "fork", "forkpty", "gather", "now", "popen", "posix_spawn", "run", "run_in_executor",
    "sleep", "spawnv", "system", "timeout", "wait", "wait_for",
}  # fmt: skip


def odd_in(text: str) -> Iterator[str]:
    """Yield what a source has no business with."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names):
                yield from (each.name for each in names if each.name.split(".")[0] in MODULES)
            case ast.ImportFrom(module=str(module), names=names):
                if module.split(".")[0] in MODULES or module.endswith((".gate", ".slots")):
                    yield module
                yield from (f"{module}.{each.name}" for each in names if each.name in CALLS)
                yield from (f"{module}.gate" for each in names if each.name == "gate")
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in CALLS:
                yield name


@pytest.mark.parametrize("module", SOURCES)
def test_a_source_never_sleeps_sets_a_timer_spawns_or_holds_a_slot(module: str) -> None:
    assert list(odd_in((HOUSE / module).read_text())) == []


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "from time import sleep",
        "import asyncio\nasync def wait(): await asyncio.sleep(1)",
        "from asyncio import create_task",
        "loop.call_later(1, print)",
        "from subprocess import run",
        "os.fork()",
        "from horae.core.gate import Gate",
        "from horae.core import gate",
    ],
)
def test_a_source_that_did_would_be_noticed(text: str) -> None:
    assert list(odd_in(text))


class Keeper:
    """What an engine does with a source, one step at a time and by hand."""

    def __init__(self, ledger: SqliteLedger) -> None:
        self.ledger = ledger

    async def take(self, source: Source, *, now: datetime) -> Scan:
        """Let the ledger take over what a source holds."""
        scan = await source.scan(await self.ledger.index(source.name))
        await self.ledger.scan(source.name, scan, now=now, term=1)
        return scan

    async def due(self, *, now: datetime) -> list[Filed]:
        """Decide about all that has come due."""
        found = await self.ledger.due(now=now)
        steps = [
            EntryStep(each.entry, decide(each.entry, now=now, is_busy=each.is_busy))
            for each in found
        ]
        return await self.ledger.decide(steps, now=now, term=1)

    async def run(self, filed: Filed, *, now: datetime) -> Filed:
        """Start what waits, and let it end well a minute later."""
        run = await one_run.start(self.ledger, filed.number, now=now, term=1)
        assert run is not None
        assert await one_run.running(self.ledger, run.number, Process(1, 1), now=now, term=1)
        ended = await one_run.end(
            self.ledger,
            run.number,
            Status.DONE,
            reason=because("it went well"),
            now=now + MINUTE,
            term=1,
        )
        assert ended is not None
        return ended

    async def settle(self, source: Source, ended: Filed, *, now: datetime) -> None:
        """Let the source follow up what has ended, and mark that it has."""
        assert [each.number for each in await self.ledger.unsettled()] == [ended.number]
        for _ in range(2):  # an engine that dies in between asks again
            if source.settle is not None:
                await source.settle(ended)
        assert await self.ledger.settle([ended.number], now=now, term=1) == 1
        assert await self.ledger.unsettled() == []

    async def items(self, source: Source) -> list[Entry | Unarmed]:
        """Return what is known of a source and still there."""
        known = [each for each in await self.ledger.entries() if each.source == source.name]
        return [each.item for each in known if each.gone_at is None]

    async def only(self, source: Source) -> Entry:
        [item] = await self.items(source)
        assert isinstance(item, Entry)
        return item


WORKFLOW = "* Digest :workflow:\n:PROPERTIES:\n:SCHEDULE: 0 9 * * *\n:END:\nDo it.\n"
MEMBER = "* wren\n:PROPERTIES:\n:DEF: wren.org\n:INTERVAL: 10m\n:END:\nThe writer.\n"
TASK = """\
---
id: 42
title: Report
status: todo
cron_schedule: '0 9 * * *'
---
Write it.
"""
DELAY = {"kind": "delay", "run_at": "2026-04-01T09:00:00Z", "agent": "wren", "prompt": "Go."}


async def made(kind: str, root: Path, ledger: SqliteLedger) -> Source:
    """Return a source with one thing in it that comes due by nine."""
    if kind == "org":
        (root / "plan.org").write_text(WORKFLOW)
        return OrgSource(root)
    if kind == "crew":
        (root / "crew.org").write_text(MEMBER)
        return CrewSource(root / "crew.org", CrewCadence(NINE - MINUTE), inline=True)
    if kind == "board":
        (root / "board" / "tasks").mkdir(parents=True)
        (root / "board" / "tasks" / "042-report.md").write_text(TASK)
        return BoardSource(Board.below(root), now=lambda: NOW)
    assert await add_trigger(ledger, "deploy", name="deploy", spec=DELAY, now=NOW, term=1)
    return TriggerSource(TriggerStore(ledger))


@pytest.mark.parametrize(
    ("kind", "key", "work", "text"),
    [
        ("org", "cron:2026-04-01T09:00:00Z", Work.WORKFLOW, WORKFLOW),
        ("crew", "tick:1", Work.TICK, MEMBER),
        ("board", "cron:2026-04-01T09:00:00Z", Work.RECYCLE, TASK),
        ("trigger", "delay:deploy", Work.PROMPT, "Go."),
    ],
)
@story
async def test_an_entry_of_each_source_goes_from_its_text_to_its_end(
    tmp_path: Path, kind: str, key: str, work: Work, text: str
) -> None:
    ledger = await SqliteLedger.in_memory()
    source, keeper = await made(kind, tmp_path, ledger), Keeper(ledger)
    assert source.name == kind
    await keeper.take(source, now=NOW)
    assert await keeper.due(now=NINE - SECOND) == []
    [filed] = await keeper.due(now=NINE)
    assert (filed.receipt.key, filed.status) == (key, Status.WAITING)
    assert (filed.source, filed.work) == (kind, work)
    assert await ledger.text(filed.digest) == text
    await keeper.settle(source, await keeper.run(filed, now=NINE), now=NINE + MINUTE)
    await keeper.take(source, now=NINE + MINUTE)
    again = [each.receipt.key for each in await keeper.due(now=NINE + DAY)]
    assert (
        again
        == {
            "org": ["cron:2026-04-02T09:00:00Z"],
            "crew": ["tick:2"],
            "board": ["cron:2026-04-02T09:00:00Z"],
            "trigger": [],
        }[kind]
    )
    await ledger.close()


@pytest.mark.parametrize("kind", ["org", "board"])
@story
async def test_after_a_restart_what_did_not_change_stands_and_fires(
    tmp_path: Path, kind: str
) -> None:
    ledger = await SqliteLedger.in_memory()
    keeper = Keeper(ledger)
    source = await made(kind, tmp_path, ledger)
    for _ in range(3):
        await keeper.take(source, now=NOW)
    known = await keeper.items(source)
    board = BoardSource(Board.below(tmp_path), now=lambda: NOW)
    later = OrgSource(tmp_path) if kind == "org" else board
    scan = await keeper.take(later, now=NOW + PATIENCE)
    assert (scan.entries, len(scan.standing)) == ((), 1)
    assert await keeper.items(later) == known
    [filed] = await keeper.due(now=NINE)
    assert filed.status is Status.WAITING
    await ledger.close()


@story
async def test_a_broken_file_stays_armed_while_others_go_on_also_after_a_restart(
    tmp_path: Path,
) -> None:
    ledger = await SqliteLedger.in_memory()
    keeper = Keeper(ledger)
    (tmp_path / "digest.org").write_text(WORKFLOW)
    (tmp_path / "water.org").write_text(WORKFLOW.replace("Digest", "Water"))
    now = NOW
    for _ in range(3):  # days, each with an engine of its own
        source = OrgSource(tmp_path)
        await keeper.take(source, now=now)
        (tmp_path / "digest.org").write_bytes(b"* Digest :workflow:\n\xff\n")
        for _ in range(3):
            now += PATIENCE
            scan = await keeper.take(source, now=now)
            assert "digest.org" in scan.standing
            assert len(scan.problems) == 1
        now += DAY
        filed = await keeper.due(now=now)
        assert sorted(str(each.origin) for each in filed) == ["digest.org:1", "water.org:1"]
        for each in filed:
            await keeper.run(each, now=now)
    assert len(await keeper.items(OrgSource(tmp_path))) == 2
    await ledger.close()


@story
async def test_an_entry_that_left_a_file_before_it_broke_is_where_it_can_be_read(
    tmp_path: Path,
) -> None:
    ledger = await SqliteLedger.in_memory()
    keeper = Keeper(ledger)
    named = WORKFLOW.replace(":END:", ":ID: digest\n:END:")
    (tmp_path / "old.org").write_text(named)
    source = OrgSource(tmp_path)
    for _ in range(3):
        await keeper.take(source, now=NOW)
    (tmp_path / "old.org").write_bytes(b"* Digest :workflow:\n\xff\n")
    (tmp_path / "new.org").write_text(f"{named}And say so.\n")
    await keeper.take(OrgSource(tmp_path), now=NOW)
    assert str((await keeper.only(source)).origin) == "new.org:1"
    await ledger.close()


@story
async def test_what_the_ledger_could_not_take_is_taken_the_next_time(tmp_path: Path) -> None:
    ledger = await SqliteLedger.in_memory()
    keeper = Keeper(ledger)
    source = await made("org", tmp_path, ledger)
    for _ in range(3):
        await keeper.take(source, now=NOW)
    (tmp_path / "plan.org").write_text(WORKFLOW.replace("0 9", "0 10"))
    for _ in range(2):  # scans that never reach the ledger
        await source.scan(await ledger.index("org"))
    await keeper.take(source, now=NOW)
    assert await keeper.due(now=NINE) == []
    [filed] = await keeper.due(now=NINE + HOUR)
    assert filed.receipt.key == "cron:2026-04-01T10:00:00Z"
    await ledger.close()


@pytest.mark.parametrize(
    ("away", "wait"),
    [
        (timedelta(0), 10 * MINUTE),
        (4 * MINUTE, 10 * MINUTE),
        (9.5 * MINUTE, 10.5 * MINUTE),
        (HOUR, HOUR + MINUTE),
    ],
)
@story
async def test_a_restart_goes_on_in_the_rhythm_there_was_and_waits_a_minute_at_least(
    tmp_path: Path, away: timedelta, wait: timedelta
) -> None:
    ledger = await SqliteLedger.in_memory()
    keeper = Keeper(ledger)
    source = await made("crew", tmp_path, ledger)
    await keeper.take(source, now=NINE - MINUTE)
    [first] = await keeper.due(now=NINE)
    ended = await keeper.run(first, now=NINE)
    assert ended.ended_at is not None
    back = ended.ended_at + away
    later = CrewSource(tmp_path / "crew.org", CrewCadence(back), inline=True)
    await keeper.take(later, now=back)
    assert await ledger.wake_at() == ended.ended_at + wait
    [second] = await keeper.due(now=ended.ended_at + wait)
    assert (second.receipt.key, second.entry) == ("tick:2", first.entry)
    await ledger.close()


@story
async def test_a_member_that_joins_later_ticks_too(tmp_path: Path) -> None:
    ledger = await SqliteLedger.in_memory()
    keeper = Keeper(ledger)
    source = await made("crew", tmp_path, ledger)
    await keeper.take(source, now=NINE - MINUTE)
    manifest = tmp_path / "crew.org"
    manifest.write_text(f"{MEMBER}{MEMBER.replace('wren', 'moss')}")
    await keeper.take(source, now=NINE + 5 * HOUR)
    ticks = await keeper.due(now=NINE + 6 * HOUR)
    assert {each.agents for each in ticks} == {("wren",), ("moss",)}
    await ledger.close()


@story
async def test_a_member_without_a_def_is_known_and_does_not_tick(tmp_path: Path) -> None:
    ledger = await SqliteLedger.in_memory()
    keeper = Keeper(ledger)
    manifest = tmp_path / "crew.org"
    manifest.write_text("* wren\n")
    source = CrewSource(manifest, CrewCadence(NOW), inline=True)
    await keeper.take(source, now=NOW)
    [item] = await keeper.items(source)
    assert isinstance(item, Unarmed)
    assert await keeper.due(now=NOW + DAY) == []
    await ledger.close()
