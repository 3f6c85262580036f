"""Whatever backup comes back, and however often: nothing past fires, no number is given twice."""

from __future__ import annotations

import asyncio
import shutil
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import one_run
from core.world import DAY, HOUR, MINUTE, NOW, cron, stamped, story
from horae.core.decide import decide
from horae.core.ports import EntryStep, Process
from horae.core.receipt import FINAL, Receipt, Status, is_planned
from horae.core.source import Scan
from horae.org.document import read
from horae.sources.plans.arming import scan_plan
from horae.store import sqlite
from horae.store.sqlite import SqliteLedger, restore
from reasons import because
from scale import scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from horae.core.receipt import Filed

LEDGER = "ledger.db"


def named(title: str, when: str) -> str:
    """Return a workflow whose identity does not hang on its title."""
    name = f":ID: {title.split(maxsplit=1)[0].lower()}"
    return (
        stamped(title, when).replace("\nDo", f"\n:PROPERTIES:\n{name}\n:END:\nDo")
        if when.startswith("<")
        else cron(title, when, name)
    )


PLAN = {
    "digest": "0 9 * * *",
    "poll": "15 */6 * * *",
    "water": "<2026-03-30 Mon 07:00 +1d>",
    "tidy": "<2026-03-30 Mon 07:30 ++12h>",
    "rest": "<2026-03-30 Mon 08:30 .+1d>",
}


async def opened(directory: Path, now: datetime = NOW) -> SqliteLedger:
    return await SqliteLedger.open(directory, now=now)


async def read_plan(ledger: SqliteLedger, text: str, *, now: datetime, file: str = "a.org") -> None:
    found = scan_plan(read(text), file=file, zone_name="UTC")
    await ledger.scan("org", Scan(tuple(found)), now=now, term=1, patience=timedelta(0))


async def asked(ledger: SqliteLedger, key: str, *, now: datetime = NOW) -> Filed:
    receipt = Receipt(key, Status.WAITING, because("requested"), now, now)
    [filed] = await ledger.add(1, [receipt], now=now, term=1)
    return filed


async def highest(ledger: SqliteLedger) -> dict[str, int]:
    """Return the highest number of each kind that can be seen."""
    page = await ledger.receipts(limit=1)
    runs = [await ledger.runs_of(each.number) for each in page.receipts]
    return {
        "entry": max(each.number for each in await ledger.entries()),
        "receipt": page.receipts[0].number,
        "run": max((run.number for some in runs for run in some), default=0),
        "event": await ledger.newest_event(),
    }


async def lives(directory: Path, name: str) -> tuple[dict[str, int], dict[str, int]]:
    """Let a ledger give numbers of every kind; return its first and its last ones."""
    ledger = await opened(directory)
    text = named("digest", PLAN["digest"]) + named(f"{name} new", "0 7 * * *")
    await read_plan(ledger, text, now=NOW)
    firsts = {"entry": max(each.number for each in await ledger.entries())}
    for each in range(3):
        filed = await asked(ledger, f"manual:{name}{each}")
        run = await one_run.start(ledger, filed.number, now=NOW, term=1)
        assert run is not None
        firsts.setdefault("receipt", filed.number)
        firsts.setdefault("run", run.number)
    last = await highest(ledger)
    await ledger.close()
    return firsts, last


async def begun(directory: Path, backup: Path) -> None:
    """Make a ledger that knows an entry and has given no other number, and back it up."""
    ledger = await opened(directory)
    await read_plan(ledger, named("digest", PLAN["digest"]), now=NOW)
    await ledger.backup(backup)
    await ledger.close()


def leave_it(path: Path) -> None:
    """Do nothing."""


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:3000])


def scribble(path: Path) -> None:
    path.write_bytes(b"this was a ledger " * 900)


def vanish(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("harm", [leave_it, tear, scribble, vanish])
@story
async def test_one_old_backup_restored_again_and_again_gives_no_number_twice(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    directory, backup = tmp_path / "data", tmp_path / "old.db"
    await begun(directory, backup)
    _, last = await lives(directory, "one")
    for name in ("two", "three", "four"):
        harm(directory / LEDGER)
        restore(directory, backup, now=NOW)
        first, then = await lives(directory, name)
        for kind in first:
            assert first[kind] > last[kind], (kind, name)
        last = then


@story
async def test_a_backup_from_before_the_first_run_does_not_give_its_number_again(
    tmp_path: Path,
) -> None:
    directory, backup = tmp_path / "data", tmp_path / "old.db"
    await begun(directory, backup)
    assert "run" not in sqlite.given_by(backup)
    _, last = await lives(directory, "one")
    scribble(directory / LEDGER)
    restore(directory, backup, now=NOW)
    first, _ = await lives(directory, "two")
    assert first["run"] > last["run"]


@story
async def test_the_numbers_of_a_log_that_was_not_merged_count(tmp_path: Path) -> None:
    directory, backup = tmp_path / "data", tmp_path / "old.db"
    await begun(directory, backup)
    ledger = await opened(directory)
    filed = await asked(ledger, "manual:late")
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)  # as a kill leaves it: the last writes are in the log
    await ledger.close()
    assert sqlite.given_by(copy / LEDGER)["receipt"] == filed.number


@pytest.mark.parametrize("text", ["", "not json", "[1]", '{"receipt": "many", "other": 3}'])
@story
async def test_what_cannot_be_read_of_earlier_restores_stops_no_restore(
    tmp_path: Path, text: str
) -> None:
    directory, backup = tmp_path / "data", tmp_path / "old.db"
    await begun(directory, backup)
    (directory / sqlite.BEGUN).write_text(text)
    restore(directory, backup, now=NOW)
    first, _ = await lives(directory, "one")
    assert first["receipt"] > sqlite.GAP


class Restored(RuleBasedStateMachine):
    """A ledger with backups, any of which may come back at any time, whole or torn."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(mkdtemp(prefix="restored-"))
        self.data = self.place / "data"
        self.loop = asyncio.new_event_loop()
        self.now = NOW
        self.floor = NOW - DAY  # nothing that was planned before may fire
        self.titles = dict.fromkeys(PLAN, 0)
        self.file = "a.org"
        self.backups: list[tuple[Path, dict[int, tuple[int, str, Status]]]] = []
        self.highest = {"entry": 0, "receipt": 0, "run": 0, "event": 0}
        self.ran: set[tuple[int, str]] = set()
        self.restores = 0
        self.asks = 0

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    @initialize()
    def begin(self) -> None:
        self.ledger = self.do(opened(self.data))
        self.read_again()
        self.known = {each.mark.address: each.number for each in self.do(self.ledger.entries())}
        self.back_up()

    # What may happen

    @rule(length=st.sampled_from([MINUTE, HOUR, 7 * HOUR, DAY, 3 * DAY]))
    def time_passes(self, length: timedelta) -> None:
        self.now += length

    @rule(by=st.sampled_from([timedelta(seconds=1), MINUTE, HOUR, DAY, 30 * DAY]))
    def the_clock_is_set_back(self, by: timedelta) -> None:
        self.now -= by
        self.floor = min(self.floor, self.now)
        if self.restores:
            # What ran and was lost with its ledger, nobody can know when it comes again.
            self.ran.clear()
        self.do(self.ledger.set_back(now=self.now, term=1))

    @rule()
    def what_is_due_is_decided(self) -> None:
        due = self.do(self.ledger.due(now=self.now))
        steps = [
            EntryStep(each.entry, decide(each.entry, now=self.now, is_busy=each.is_busy))
            for each in due
        ]
        for filed in self.do(self.ledger.decide(steps, now=self.now, term=1)):
            self.is_new("receipt", filed.number)
            if filed.status is Status.WAITING:
                assert filed.receipt.planned_at > self.floor, f"{filed.receipt} is past"

    @rule(data=st.data(), outcome=st.sampled_from([Status.DONE, Status.FAILED, None]))
    def one_that_waits_runs(self, data: st.DataObject, outcome: Status | None) -> None:
        waiting = self.do(self.ledger.receipts(statuses=[Status.WAITING])).receipts
        if not waiting:
            return
        filed = data.draw(st.sampled_from(waiting))
        run = self.do(one_run.start(self.ledger, filed.number, now=self.now, term=1))
        self.is_new("run", run.number)
        assert self.do(
            one_run.running(self.ledger, run.number, Process(1, 1), now=self.now, term=1)
        )
        key = (filed.entry, filed.receipt.key)
        assert key not in self.ran, f"{key} ran before"
        self.ran.add(key)
        if outcome is not None:
            end = one_run.end(
                self.ledger, run.number, outcome, reason=because("it ended"), now=self.now, term=1
            )
            assert self.do(end) is not None

    @rule(name=st.sampled_from([*PLAN]))
    def somebody_asks(self, name: str) -> None:
        self.asks += 1
        receipt = Receipt(
            f"manual:{self.asks}", Status.WAITING, because("asked"), self.now, self.now
        )
        number = self.known[f"id:{name}"]
        [filed] = self.do(self.ledger.add(number, [receipt], now=self.now, term=1))
        self.is_new("receipt", filed.number)

    @rule(name=st.sampled_from([*PLAN]))
    def one_is_retitled(self, name: str) -> None:
        self.titles[name] += 1
        self.read_again()

    @rule()
    def the_plan_moves(self) -> None:
        self.file = "b.org" if self.file == "a.org" else "a.org"
        self.read_again()

    @rule()
    def one_is_added(self) -> None:
        self.titles[f"new{len(self.titles)}"] = 0
        self.read_again()

    @rule()
    def back_up(self) -> None:
        if len(self.backups) < 6:
            backup = self.place / f"{len(self.backups)}.db"
            self.do(self.ledger.backup(backup))
            self.backups.append((backup, self.finals()))

    @precondition(lambda self: self.backups)
    @rule(data=st.data(), harm=st.sampled_from([leave_it, leave_it, tear, scribble, vanish]))
    def a_backup_comes_back(self, data: st.DataObject, harm: Callable[[Path], None]) -> None:
        backup, finals = data.draw(st.sampled_from(self.backups))
        self.is_new("event", self.do(self.ledger.newest_event()))
        self.do(self.ledger.close())
        harm(self.data / LEDGER)
        restore(self.data, backup, now=self.now)
        self.ledger = self.do(opened(self.data, self.now))
        assert self.do(self.ledger.newest_event()) > self.highest["event"]
        self.restores += 1
        self.floor = self.now
        now = self.finals()
        assert {number: now.get(number) for number in finals} == finals
        assert not self.do(self.ledger.open_runs())
        assert not self.do(self.ledger.receipts(statuses=[Status.WAITING, Status.HELD])).receipts
        due = self.do(self.ledger.due(now=self.now))
        fires = [
            receipt
            for each in due
            for receipt in decide(each.entry, now=self.now).receipts
            if receipt.status is Status.WAITING
        ]
        assert fires == []
        self.read_again()

    # What must be true

    def is_new(self, kind: str, number: int) -> None:
        """A number is given once, and each is beyond all before it."""
        assert number > self.highest[kind], f"{kind} {number} after {self.highest[kind]}"
        self.highest[kind] = number

    def read_again(self) -> None:
        """Let the plan be read; what was known keeps its number, what is new gets a new one."""
        before = {each.number for each in self.do(self.ledger.entries())}
        text = "".join(
            named(f"{name} {'again' * times}".strip(), PLAN.get(name, "0 12 * * *"))
            for name, times in self.titles.items()
        )
        self.do(read_plan(self.ledger, text, now=self.now, file=self.file))
        entries = self.do(self.ledger.entries())
        for each in entries:
            if each.number not in before:
                self.is_new("entry", each.number)
        for address, number in getattr(self, "known", {}).items():
            [same] = [each for each in entries if each.mark.address == address]
            assert same.number == number
            name = address.removeprefix("id:")
            assert same.mark.title == f"{name} {'again' * self.titles[name]}".strip()
            assert (same.gone_at, same.item.origin.file) == (None, self.file)

    def finals(self) -> dict[int, tuple[int, str, Status]]:
        """Return what is final, and that cannot change any more."""
        page = self.do(self.ledger.receipts(limit=10_000))
        return {
            each.number: (each.entry, each.receipt.key, each.status)
            for each in page.receipts
            if each.status in FINAL and (is_planned(each.receipt.key) or each.ended_at)
        }

    def teardown(self) -> None:
        self.do(self.ledger.close())
        self.loop.close()
        shutil.rmtree(self.place)


Restored.TestCase.settings = settings(
    max_examples=scaled(200),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
test_nothing_past_fires_numbers_go_up_and_history_follows_identity = Restored.TestCase
