"""Every ledger keeps the same promises."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import one_run
from horae.core.decide import decide
from horae.core.entry import CadenceRule, Entry
from horae.core.ports import EntryStep, Process
from horae.core.project import next_moment
from horae.core.receipt import ENDS, FINAL, Status, may_become
from horae.core.source import Scan
from horae.store.sqlite import SqliteLedger
from reasons import because
from scale import scaled
from store.ledger_suite import MINUTE, NOW, LedgerSuite, asked, keeper, plan, workflow
from store.server import opening

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from horae.core.ports import Listed
    from horae.core.receipt import Filed

T = TypeVar("T")


class TestLedger(LedgerSuite):
    """The suite, on every store there is."""


class LifeOfReceipts(RuleBasedStateMachine):
    """Whatever is asked in whatever order, receipts follow the graph and watermarks go forward."""

    kind = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.ledger = self.wait(opening(self.kind, Path()))
        self.now = NOW
        self.text = workflow("Poll", "* * * * *", "", ":RETRY: 1 30s", ":CATCHUP: all")
        self.rescan()
        self.statuses: dict[int, Status] = {}
        self.watermark = self.farthest = NOW
        self.keys = 0

    def wait(self, call: Coroutine[object, object, T]) -> T:
        return self.loop.run_until_complete(call)

    def rescan(self) -> None:
        self.look(self.text)

    def look(self, *texts: str) -> None:
        scan = Scan(tuple(plan(*texts)))
        self.wait(self.ledger.scan("org", scan, now=self.now, term=1, patience=timedelta(0)))

    def entry(self) -> Entry:
        [found] = self.wait(self.ledger.entries())
        assert isinstance(found.item, Entry)
        return found.item

    def some(self, choice: int, wanted: Status | None = None) -> int:
        """Return a receipt, of a status if there is one, else any, else one that is not there."""
        fitting = [each for each, now in self.statuses.items() if wanted in {None, now}]
        among = fitting or list(self.statuses) or [99]
        return among[choice % len(among)]

    def open_run(self, receipt: int) -> int:
        runs = self.wait(self.ledger.runs_of(receipt))
        return runs[-1].number if runs else 99

    @rule(minutes=st.integers(0, 3))
    def come_due(self, minutes: int) -> None:
        self.now += minutes * MINUTE
        entry = self.entry()
        step = EntryStep(entry, decide(entry, now=self.now))
        self.wait(self.ledger.decide([step], now=self.now, term=1))

    @rule(back=st.integers(1, 10_000))
    def set_the_clock_back(self, back: int) -> None:
        self.now -= back * MINUTE

    @rule()
    def notice_that_the_clock_was_set_back(self) -> None:
        was = self.watermark
        is_back = self.wait(self.ledger.set_back(now=self.now, term=1))
        self.watermark = min(self.watermark, self.now)
        ended_at = self.entry().ended_at
        assert ended_at is None or ended_at <= self.now
        if was <= self.now:
            return
        assert is_back
        for filed in self.wait(self.ledger.receipts(limit=10_000)).receipts:
            is_bare = filed.receipt.key.startswith("cron:") and ":void:" not in filed.receipt.key
            if is_bare and filed.status in FINAL - ENDS:
                assert filed.receipt.planned_at <= self.now

    @rule()
    def ask(self) -> None:
        self.keys += 1
        receipt = asked(f"manual:{self.keys}", self.now)
        self.wait(self.ledger.add(self.entry().number, [receipt], now=self.now, term=1))

    @rule(choice=st.integers(0), wanted=st.sampled_from([Status.WAITING, None]))
    def start(self, choice: int, wanted: Status | None) -> None:
        number = self.some(choice, wanted)
        run = self.wait(one_run.start(self.ledger, number, now=self.now, term=1))
        assert (run is not None) == (self.statuses.get(number) is Status.WAITING)

    @rule(choice=st.integers(0), wanted=st.sampled_from([Status.STARTING, None]))
    def run(self, choice: int, wanted: Status | None) -> None:
        number = self.some(choice, wanted)
        call = one_run.running(
            self.ledger, self.open_run(number), Process(1, 1), now=self.now, term=1
        )
        assert self.wait(call) == (self.statuses.get(number) is Status.STARTING)

    @rule(choice=st.integers(0), wanted=st.sampled_from([Status.STARTING, None]))
    def give_back(self, choice: int, wanted: Status | None) -> None:
        number = self.some(choice, wanted)
        call = self.ledger.give_back(
            self.open_run(number), reason=because(""), now=self.now, term=1
        )
        assert self.wait(call) == (self.statuses.get(number) in {Status.STARTING, Status.RUNNING})

    @rule(
        choice=st.integers(0),
        wanted=st.sampled_from([Status.RUNNING, Status.RUNNING, Status.STARTING, None]),
        outcome=st.sampled_from(Status),
    )
    def end(self, choice: int, wanted: Status | None, outcome: Status) -> None:
        number = self.some(choice, wanted)
        run = self.open_run(number)
        ended = self.wait(
            one_run.end(self.ledger, run, outcome, reason=because(""), now=self.now, term=1)
        )
        was = self.statuses.get(number)
        assert (ended is not None) == (
            was in {Status.RUNNING, Status.STARTING}
            and outcome in ENDS
            and (was is Status.RUNNING or outcome is Status.FAILED)
        )

    @rule(choice=st.integers(0))
    def hold(self, choice: int) -> None:
        number = self.some(choice, Status.WAITING)
        held = self.wait(self.ledger.hold(number, reason=because(""), now=self.now, term=1))
        assert held == (self.statuses.get(number) is Status.WAITING)

    @rule(choice=st.integers(0))
    def release(self, choice: int) -> None:
        number = self.some(choice, Status.HELD)
        released = self.wait(self.ledger.release(number, reason=because(""), now=self.now, term=1))
        assert released == (self.statuses.get(number) is Status.HELD)

    @rule(choice=st.integers(0))
    def settle(self, choice: int) -> None:
        number = self.some(choice)
        if self.wait(self.ledger.settle([number], now=self.now, term=1)):
            assert self.statuses[number] in FINAL

    @rule()
    def pause_and_resume(self) -> None:
        number = self.entry().number
        assert self.wait(self.ledger.pause(number, now=self.now, term=1)) is not None
        assert self.wait(self.ledger.resume(number, now=self.now, term=1))

    @rule(is_written=st.booleans())
    def edit(self, is_written: bool) -> None:
        if not is_written:
            self.look()
        self.rescan()

    @invariant()
    def receipts_follow_the_graph(self) -> None:
        page = self.wait(self.ledger.receipts(limit=10_000))
        for filed in page.receipts:
            was = self.statuses.get(filed.number, filed.status)
            # One retry: the first end may be followed by a wait; so may what was not let go.
            allowed = filed.attempts <= 1
            assert was is filed.status or may_become(was, filed.status, has_retry=allowed)
            self.statuses[filed.number] = filed.status
        keys = [(each.entry, each.receipt.key) for each in page.receipts]
        assert len(keys) == len(set(keys))

    @invariant()
    def the_watermark_goes_forward_and_covers_every_planned_receipt(self) -> None:
        watermark = self.entry().accounted_to
        assert watermark is not None
        assert watermark >= self.watermark
        self.watermark = watermark
        self.farthest = max(self.farthest, watermark)
        for filed in self.wait(self.ledger.receipts(limit=10_000)).receipts:
            if filed.receipt.key.startswith("cron:"):
                last = filed.receipt.through_at or filed.receipt.planned_at
                assert last <= self.farthest

    @invariant()
    def the_next_moment_is_the_one_after_the_watermark(self) -> None:
        [found] = self.wait(self.ledger.entries())
        assert isinstance(found.item, Entry)
        assert found.item.accounted_to is not None
        coming = next_moment(found.item, found.item.accounted_to)
        assert coming is not None
        assert found.next_at == (coming.at if found.is_armed else None)
        assert self.wait(self.ledger.wake_at()) == found.next_at

    @invariant()
    def a_receipt_has_an_open_run_exactly_while_it_starts_or_runs(self) -> None:
        for filed in self.wait(self.ledger.receipts(limit=10_000)).receipts:
            runs = self.wait(self.ledger.runs_of(filed.number))
            is_open = [run.ended_at is None for run in runs]
            assert any(is_open) == (filed.status in {Status.STARTING, Status.RUNNING})
            assert not any(is_open[:-1])

    def teardown(self) -> None:
        self.wait(self.ledger.close())
        self.loop.close()


TestLifeOfReceipts = LifeOfReceipts.TestCase
TestLifeOfReceipts.settings = settings(
    max_examples=scaled(400), stateful_step_count=40, deadline=None
)


class LifeOfReceiptsOnPostgres(LifeOfReceipts):
    """The same, where many could write."""

    kind = "postgres"


TestLifeOfReceiptsOnPostgres = LifeOfReceiptsOnPostgres.TestCase
TestLifeOfReceiptsOnPostgres.settings = settings(
    max_examples=scaled(100), stateful_step_count=20, deadline=None
)


class LifeOfKeepers(RuleBasedStateMachine):
    """Whatever becomes of what counts from its last end, it never waits for one in vain."""

    REST = "* Rest :workflow:\nSCHEDULED: <2026-04-01 Wed 09:00 .+1h>\n"

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.ledger = self.wait(SqliteLedger.in_memory())
        self.now = NOW
        self.edit(base=1, are_there=True)
        self.ticks: dict[int, int] = {}

    def wait(self, call: Coroutine[object, object, T]) -> T:
        return self.loop.run_until_complete(call)

    @rule(base=st.integers(1, 3), are_there=st.booleans())
    def edit(self, base: int, are_there: bool) -> None:
        found = (*plan(self.REST), keeper(base * MINUTE, self.now + MINUTE)) if are_there else ()
        self.wait(self.ledger.scan("all", Scan(found), now=self.now, term=1, patience=timedelta(0)))

    @rule(minutes=st.integers(-10_000, 10_000), is_noticed=st.booleans())
    def set_the_clock(self, minutes: int, is_noticed: bool) -> None:
        self.now += minutes * MINUTE
        if is_noticed:
            self.wait(self.ledger.set_back(now=self.now, term=1))

    @rule(is_busy=st.booleans())
    def come_due(self, is_busy: bool) -> None:
        self.now = max(self.now, self.wait(self.ledger.wake_at()) or self.now)
        steps = [
            EntryStep(each.entry, decide(each.entry, now=self.now, is_busy=each.is_busy or is_busy))
            for each in self.wait(self.ledger.due(now=self.now))
        ]
        self.wait(self.ledger.decide(steps, now=self.now, term=1))
        assert all(each.next_at is None or each.next_at > self.now for each in self.armed())

    @rule(outcome=st.sampled_from(sorted(ENDS)))
    def run(self, outcome: Status) -> None:
        for filed in self.open_receipts():
            run = self.wait(one_run.start(self.ledger, filed.number, now=self.now, term=1))
            assert run
            self.wait(one_run.running(self.ledger, run.number, Process(1, 1), now=self.now, term=1))
            self.wait(
                one_run.end(
                    self.ledger, run.number, outcome, reason=because(""), now=self.now, term=1
                )
            )

    @rule()
    def rest(self) -> None:
        for each in self.armed():
            self.wait(self.ledger.pause(each.number, now=self.now, term=1))

    @rule()
    def go_on(self) -> None:
        for each in self.wait(self.ledger.entries()):
            self.wait(self.ledger.resume(each.number, now=self.now, term=1))

    def armed(self) -> list[Listed]:
        return [each for each in self.wait(self.ledger.entries()) if each.is_armed]

    def open_receipts(self) -> tuple[Filed, ...]:
        return self.wait(self.ledger.receipts(statuses=[Status.WAITING])).receipts

    @invariant()
    def what_is_armed_has_a_next_moment_or_a_run_to_wait_for(self) -> None:
        open_ones = {each.entry for each in self.open_receipts()}
        for each in self.armed():
            assert each.next_at is not None or each.number in open_ones

    @invariant()
    def ticks_only_go_up(self) -> None:
        for each in self.wait(self.ledger.entries()):
            if isinstance(each.item, Entry) and isinstance(each.item.rule, CadenceRule):
                assert each.item.rule.ticks >= self.ticks.get(each.number, 0)
                self.ticks[each.number] = each.item.rule.ticks

    def teardown(self) -> None:
        self.wait(self.ledger.close())
        self.loop.close()


TestLifeOfKeepers = LifeOfKeepers.TestCase
TestLifeOfKeepers.settings = settings(
    max_examples=scaled(400), stateful_step_count=30, deadline=None
)
