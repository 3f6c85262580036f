"""Work goes through the queue, and each machine takes from it what it is able to do."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace as changed

import one_run
from cluster.stage import entry, free_port, git
from horae.app import first_of
from horae.cluster import queue
from horae.cluster.queue import Carried, Worker
from horae.config import load
from horae.core.gate import Capacity, Gate, Machine
from horae.core.lease import NodeDescription, QueueJob
from horae.core.ports import LedgerWriteError
from horae.core.receipt import Status
from horae.node import ClusterNode, open_member
from horae.store import carrier
from horae.store.postgres import PostgresLedger
from horae.testing import ManualClock
from store.ledger_suite import asked, story
from store.server import fresh
from waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from cluster.stage import Stage
    from horae.core.ports import Run
    from horae.core.receipt import Filed

NOW = datetime(2026, 6, 5, 9, tzinfo=UTC)
SECOND = timedelta(seconds=1)
BOX, HALL = Machine("box", 2, frozenset({"gpu", "big"})), Machine("hall", 2, frozenset({"big"}))
EVERY = "* * * * * *"
RARELY = "0 0 29 2 *"


class FakeLedger:
    """A shared ledger of receipts that a test moves, and the jobs that were put in."""

    def __init__(self) -> None:
        self.filed: dict[int, Filed] = {}
        self.jobs: list[QueueJob] = []
        self.is_away = False
        self.is_kept = True
        self.undone = 0

    async def enqueue(self, jobs: Sequence[QueueJob], *, term: int) -> None:  # noqa: ARG002
        if self.is_away:
            raise LedgerWriteError("the database", "it is away", remedy="wait")
        self.jobs += jobs

    async def decide_and_enqueue(
        self, steps: Sequence[Filed], jobs_of: Any, **_: Any
    ) -> Sequence[Filed]:
        for _time in range(self.undone):  # something else in the same commit has failed
            jobs_of(steps)
        jobs = jobs_of(steps)
        if self.is_kept:
            self.jobs += jobs
            for each in steps:
                self.put(each)
        if self.is_away or not self.is_kept:
            raise LedgerWriteError("the database", "it is away", remedy="wait")
        return steps

    async def under_way(self) -> list[Filed]:
        return [each for each in self.filed.values() if each.status is Status.STARTING]

    async def several(self, receipts: Sequence[int]) -> list[Filed]:
        if self.is_away:
            raise LedgerWriteError("the database", "it is away", remedy="wait")
        return [self.filed[each] for each in receipts if each in self.filed]

    async def open_runs_of(self, receipts: Sequence[int]) -> list[Run]:  # noqa: ARG002
        return []

    async def start_many(self, receipts: Sequence[Filed], **_: Any) -> list[Any]:
        for each in receipts:
            self.put(replace_status(self.filed[each.number], Status.STARTING, "box"))
        return [None for _ in receipts]

    def put(self, filed: Filed) -> Filed:
        self.filed[filed.number] = filed
        return filed


def filed(number: int, *, agents: tuple[str, ...] = (), requires: tuple[str, ...] = ()) -> Filed:
    found = one_run.stub(number)
    policy = changed(found.policy, requires=requires)
    receipt = changed(found.receipt, start_at=NOW, planned_at=NOW)
    return changed(found, entry=number, agents=agents, policy=policy, receipt=receipt)


def replace_status(found: Filed, status: Status, machine: str = "", **facts: Any) -> Filed:
    receipt = changed(found.receipt, status=status)
    return changed(found, receipt=receipt, machine=machine, **facts)


class Leader:
    """What a leader puts into the queue, on a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.ledger = FakeLedger()
        self.left: list[tuple[int, Any]] = []
        self.gate = Gate(Capacity(8, crew=8, machines=(BOX, HALL)))
        ledger: Any = self.ledger
        runner: Any = None
        self.launch = Carried(self.clock, ledger, runner, self.leave, term=7, gate=self.gate)

    def leave(self, number: int, then: Any) -> None:
        self.gate.release(number)
        self.left.append((number, then))

    async def let_in(self, *some: Filed) -> None:
        for each in some:
            self.ledger.put(each)
        self.gate.offer(some)
        admitted, _ = self.gate.admit(now=NOW)
        self.launch.start(admitted)
        await self.launch.rest()

    async def decide(self, *some: Filed) -> None:
        """Let receipts be filed, and those let in at once that may start."""

        def let_in(filed: Sequence[Filed]) -> Sequence[Filed]:
            self.gate.offer(filed)
            return self.gate.admit(now=NOW)[0]

        steps: Any = some
        await self.launch.decide(steps, now=NOW, let_in=let_in)

    @property
    def held(self) -> list[int]:
        return sorted(each.ask.number for each in self.gate.holders)

    @property
    def jobs(self) -> list[tuple[int, str]]:
        return [(n, each.ability) for each in self.ledger.jobs for n in each.receipts]


@story
async def test_a_job_says_what_its_machine_must_be() -> None:
    leader = Leader()
    leader.gate.homes["wren"] = "hall"
    await leader.let_in(
        filed(1),
        filed(2, requires=("gpu",)),
        filed(3, requires=("hall",)),
        filed(4, agents=("wren",)),
    )
    assert leader.jobs == [(1, "any"), (2, "label:gpu"), (3, "host:hall"), (4, "host:hall")]
    assert all(each.term == 7 for each in leader.ledger.jobs)


@story
async def test_of_many_receipts_each_machine_has_its_share_of_jobs() -> None:
    leader = Leader()
    leader.gate.capacity = Capacity(64, machines=(Machine("box", 32), Machine("hall", 32)))
    await leader.let_in(*(filed(number) for number in range(1, 16)))
    assert [len(each.receipts) for each in leader.ledger.jobs] == [1] * 15
    leader.ledger.jobs.clear()
    await leader.let_in(*(filed(number) for number in range(16, 64)))
    assert [each.receipts for each in leader.ledger.jobs] == [
        (n, n + 1, n + 2) for n in range(16, 64, 3)
    ]
    leader.ledger.jobs.clear()
    await leader.clock.advance(queue.AGAIN)
    await leader.launch.requeue()
    assert [each.receipts for each in leader.ledger.jobs] == [(n,) for n in range(1, 64)]


@story
async def test_a_job_of_one_receipt_is_what_the_version_before_reads() -> None:
    ledger = await PostgresLedger.open(fresh(), is_shared=True)
    try:
        await carrier.prepare(ledger.address)
        await ledger.enqueue([QueueJob((5,), "any", 7), QueueJob((5, 6, 8), "any", 7)], term=1)
        query = b"DELETE FROM pgqueuer RETURNING payload"
        found = await ledger.read(lambda tx: [*tx.connection.raw.execute(query)])
        assert sorted(bytes(row[0]) for row in found) == [b"5 7", b"5 7 6 8"]
    finally:
        await ledger.close()


@story
async def test_two_labels_are_a_machine_that_has_both() -> None:
    leader = Leader()
    await leader.let_in(filed(1, requires=("gpu", "big")))
    assert leader.jobs == [(1, "host:box")]


@story
async def test_the_home_of_an_agent_is_asked_first_and_then_every_machine() -> None:
    leader = Leader()
    leader.gate.homes["wren"] = "hall"
    await leader.let_in(filed(1, agents=("wren",)))
    await leader.launch.requeue()
    assert leader.jobs == [(1, "host:hall")]
    await leader.clock.advance(queue.HOME)
    await leader.launch.requeue()
    await leader.launch.requeue()
    assert leader.jobs == [(1, "host:hall"), (1, "any")]


@story
async def test_what_nobody_claims_is_put_in_again() -> None:
    leader = Leader()
    await leader.let_in(filed(1), filed(2))
    leader.ledger.put(replace_status(leader.ledger.filed[2], Status.STARTING, "hall"))
    await leader.clock.advance(queue.AGAIN)
    await leader.launch.requeue()
    assert leader.jobs == [(1, "any"), (2, "any"), (1, "any")]
    assert leader.gate.machine_of(2) == "hall"


@story
async def test_what_could_not_be_put_in_is_so_as_soon_as_the_database_answers() -> None:
    leader = Leader()
    leader.ledger.is_away = True
    await leader.let_in(filed(1))
    with pytest.raises(LedgerWriteError):
        await leader.launch.requeue()
    leader.ledger.is_away = False
    await leader.launch.requeue()
    assert leader.jobs == [(1, "any")]
    assert leader.left == []


@story
async def test_what_is_decided_is_queued_with_it_and_not_again() -> None:
    leader = Leader()
    await leader.decide(filed(1), filed(2, agents=("wren",)), filed(3, agents=("wren",)))
    await leader.launch.requeue()
    assert leader.jobs == [(1, "any"), (2, "any")]
    assert leader.launch.receipts == (1, 2)
    assert leader.gate.knows(3)


@story
async def test_what_is_decided_twice_as_a_commit_was_undone_is_let_in_once() -> None:
    leader = Leader()
    leader.ledger.undone = 2
    leader.gate.offer([leader.ledger.put(filed(1, agents=("moss",)))])  # which waited before
    await leader.decide(filed(2), filed(3, agents=("wren",)), filed(4, agents=("wren",)))
    assert [number for number, _ in leader.jobs] == [1, 2, 3]
    assert leader.held == [1, 2, 3]
    leader.leave(3, None)
    assert [each.number for each in leader.gate.admit(now=NOW)[0]] == [4]


@story
async def test_a_decision_that_was_not_kept_holds_nothing_once_that_is_known() -> None:
    leader = Leader()
    leader.ledger.is_kept = False
    with pytest.raises(LedgerWriteError):
        await leader.decide(filed(1, agents=("wren",)), filed(2, agents=("wren",)))
    assert leader.launch.is_unsure
    assert leader.held == [1]  # it may have been kept, and a machine have it
    assert not leader.gate.knows(2)
    await leader.launch.reconcile()
    assert (leader.held, leader.left) == ([], [(1, None)])


@story
async def test_the_number_of_a_decision_that_was_not_kept_may_be_of_another() -> None:
    leader = Leader()
    leader.ledger.is_kept = False
    with pytest.raises(LedgerWriteError):
        await leader.decide(filed(1))
    other = leader.ledger.put(changed(filed(1), entry=9))
    await leader.launch.reconcile()
    assert leader.left == [(1, other)]


@story
async def test_a_decision_that_was_kept_though_it_failed_is_queued_under_the_same_rule() -> None:
    leader = Leader()
    leader.ledger.is_away = True
    with pytest.raises(LedgerWriteError):
        await leader.decide(filed(1), filed(2))
    leader.ledger.is_away = False
    leader.ledger.put(replace_status(filed(1), Status.STARTING, "hall"))
    await leader.launch.reconcile()
    await leader.launch.requeue()
    assert leader.held == [1, 2]
    assert leader.gate.machine_of(1) == "hall"
    assert leader.jobs == [(1, "any"), (2, "any"), (2, "any")]


@story
async def test_what_is_claimed_and_given_back_passes_the_gate_again() -> None:
    leader = Leader()
    await leader.let_in(filed(1), filed(2))
    for number in (1, 2):
        was = leader.ledger.filed[number]
        leader.ledger.put(replace_status(was, Status.STARTING, "box"))
    await leader.launch.look([1])
    given = [replace_status(leader.ledger.filed[n], Status.WAITING, attempts=n - 1) for n in (1, 2)]
    for each in given:
        leader.ledger.put(each)
    await leader.launch.look([1, 2])  # of the second it was not heard that it was claimed
    assert leader.left == [(1, given[0]), (2, given[1])]


def worker(ledger: FakeLedger, slots: int = 2, **how: Any) -> Worker:
    shared: Any = ledger
    runner: Any = None
    card = NodeDescription("box", labels=("gpu",), slots=slots)
    known: dict[str, Any] = {"card": card, "may_claim": lambda: True, **how}
    return Worker(ManualClock(NOW), shared, runner, lambda *_: None, **known)


@story
async def test_a_machine_is_done_with_a_job_whose_receipt_does_not_wait() -> None:
    ledger = FakeLedger()
    box = worker(ledger)
    ledger.put(replace_status(filed(1), Status.RUNNING, "hall"))
    later = changed(filed(2).receipt, start_at=NOW + SECOND)
    ledger.put(changed(filed(2), receipt=later))
    assert [*await asyncio.gather(box.claim([1], 7), box.claim([2], 7), box.claim([3], 7))] == [
        True
    ] * 3
    assert ledger.filed[2].status is Status.WAITING


@story
async def test_a_machine_is_done_with_a_job_of_a_leader_before() -> None:
    ledger = FakeLedger()
    ledger.put(filed(1))
    box = worker(ledger, newest_term=lambda: 8)
    assert await box.claim([1], 7)
    assert ledger.filed[1].machine == ""
    await box.claim([1], 8)
    assert ledger.filed[1].machine == "box"


@story
async def test_a_machine_without_room_or_trust_claims_nothing() -> None:
    ledger = FakeLedger()
    ledger.put(filed(1))
    assert not await worker(ledger, slots=0).claim([1], 7)
    assert not await worker(ledger, may_claim=lambda: False).claim([1], 7)
    assert ledger.filed[1].status is Status.WAITING


@story
async def test_of_a_job_a_machine_claims_what_it_has_room_for_and_leaves_the_rest_to_others() -> (
    None
):
    ledger = FakeLedger()
    for number in (1, 2, 3):
        ledger.put(filed(number))
    assert not await worker(ledger, slots=2).claim([1, 2, 3], 7)
    assert [ledger.filed[number].status for number in (1, 2, 3)] == [
        Status.STARTING, Status.STARTING, Status.WAITING,
    ]  # fmt: skip
    assert await worker(ledger, slots=1, may_claim=lambda: True).claim([1, 2], 7)


@story
async def test_a_database_that_is_away_is_an_error_of_the_claim_and_of_nothing_else() -> None:
    ledger = FakeLedger()
    box = worker(ledger)
    ledger.is_away = True
    with pytest.raises(LedgerWriteError):
        await box.claim([1], 7)
    box.check()
    assert box.room == 2


def test_a_machine_is_able_to_do_what_it_is() -> None:
    box = worker(FakeLedger())
    assert box.abilities() == box.known == ("any", "host:box", "label:box", "label:gpu")
    assert worker(FakeLedger(), 0).abilities() == ("host:box",)  # for what runs inside a run
    assert worker(FakeLedger(), may_claim=lambda: False).abilities() == ()


@story
async def test_a_machine_takes_no_more_jobs_at_a_time_than_it_has_room_for() -> None:
    taken: list[int] = []

    async def take(numbers: Sequence[int], term: int) -> bool:
        assert term == 7
        taken.extend(numbers)
        return True

    def room() -> int:
        return 3 - len(taken)

    ledger = await PostgresLedger.open(fresh(), is_shared=True)
    try:
        await carrier.prepare(ledger.address)
        jobs = [QueueJob((number,), "any", 7) for number in range(1, 21)]
        await ledger.enqueue(jobs, term=1)
        box = carrier.Carrier(ledger, ["any"], lambda: ["any"] if room() > 0 else [], room)
        await first_of([box.run(take), until(lambda: len(taken) >= 3)])
        query = b"SELECT count(*) FROM pgqueuer WHERE status = 'queued'"
        [left] = await ledger.read(lambda tx: [*tx.connection.raw.execute(query)])
        assert (taken, left[0]) == ([1, 2, 3], 17)
    finally:
        await ledger.close()


@asynccontextmanager
async def alone(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ClusterNode]:
    """Give a member in this process that keeps the plan alone."""
    root = stage.place / "root"
    git(stage.place, "clone", "--quiet", str(stage.origin), str(root))
    flags = {"data": str(stage.place / "data"), "store": stage.url()}
    monkeypatch.setenv("HORAE_LISTEN", f"127.0.0.1:{free_port()}")
    async with open_member(load(root, flags=flags)) as member:
        stop = asyncio.Event()
        keeping = asyncio.create_task(member.keep(stop))
        try:
            yield member
        finally:
            stop.set()
            await keeping


@story
async def test_without_the_queue_nothing_runs(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.write({"plan.org": entry("Count", stage.effect("count"), schedule=RARELY)})
    jobs: list[Any] = []
    put_in, is_there = carrier.enqueue, False

    def enqueue(connection: Any, some: Any) -> None:
        jobs.extend(some)
        if is_there:
            put_in(connection, some)

    monkeypatch.setattr(carrier, "enqueue", enqueue)
    monkeypatch.setattr(queue, "AGAIN", SECOND)
    async with alone(stage, monkeypatch) as member:
        ledger = member.ledger
        [known] = await until(ledger.entries)
        now = member.clock.now()
        [filed] = await ledger.add(known.number, [asked("manual:1", now)], now=now, term=0)
        await until(lambda: len(jobs) > 2)  # it is tried again and again
        found = await ledger.receipt(filed.number)
        assert found is not None
        assert found.status is Status.WAITING
        assert stage.happened() == []

        is_there = True

        async def is_done() -> bool:
            found = await ledger.receipt(filed.number)
            return found is not None and found.status is Status.DONE

        await until(is_done)
        assert [each.what for each in stage.happened()] == ["begun", "over"]


def test_a_queue_that_is_emptied_again_and_again_loses_nothing_and_doubles_nothing(
    stage: Stage,
) -> None:
    plan = "".join(entry(f"Count {n}", stage.effect(f"count{n}")) for n in range(4))
    stage.write({"plan.org": plan})
    for name in ("east", "west"):
        stage.member(name).joined()
    stage.until(lambda: stage.count("status = 'done'") > 4)
    end = time.monotonic() + 4
    while time.monotonic() < end:
        stage.do("TRUNCATE pgqueuer")
        time.sleep(0.02)
    last = stage.do("SELECT coalesce(max(number), 0) FROM receipt")[0][0]
    stage.until(lambda: not stage.count(f"number <= {last} AND status IN ('waiting', 'running')"))
    # A leader that is late by a second, on a busy machine, coalesces two times.
    odd = "SELECT status, reason FROM receipt WHERE status NOT IN"
    odd += " ('done', 'skipped', 'coalesced', 'waiting', 'starting', 'running')"
    assert stage.do(odd) == []
    begun = [(each.entry, each.key) for each in stage.happened() if each.what == "begun"]
    assert len(begun) == len(set(begun))


def test_a_run_is_four_commits(stage: Stage) -> None:
    """Decided and queued; claimed; running, before it is let go; ended and settled."""
    stage.write({"plan.org": entry("Count", stage.effect("count"))})
    stage.member("east").joined()
    stage.until(lambda: stage.count("status = 'done'") > 3)
    told = "SELECT event.xmin::text, receipt.xmin::text FROM event JOIN receipt"
    told += " ON receipt.number = event.receipt AND receipt.settled_at IS NOT NULL"
    told += " WHERE event.kind = 'receipt' AND receipt.number = %s ORDER BY event.number"
    queued = {
        row[0] for row in stage.do("SELECT xmin::text FROM pgqueuer_log WHERE status = 'queued'")
    }
    for [number] in stage.do("SELECT number FROM receipt WHERE status = 'done'"):
        commits = stage.do(told, number)
        assert len(commits) == len({each for each, _ in commits}) == 4
        assert commits[0][0] in queued
        assert commits[-1][0] == commits[-1][1]


def test_a_leader_has_four_connections_and_every_other_member_three(stage: Stage) -> None:
    stage.write({"plan.org": entry("Count", stage.effect("count"))})
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    query += " AND application_name LIKE 'horae%'"
    most = []
    for known, name in enumerate(("east", "west", "north")):
        stage.member(name).joined()
        stage.until(lambda: stage.leader() == "east")
        last = stage.do("SELECT coalesce(max(number), 0) FROM receipt")[0][0]
        stage.until(partial(stage.count, f"status = 'done' AND number > {last} + 3"))
        most.append(max(stage.do(query)[0][0] for _ in range(20)))
        assert most[-1] <= 4 + 3 * known, (most, stage.do("TABLE pg_stat_activity"))
    assert most[0] >= 3


@story
async def test_what_is_requested_before_a_new_leader_listens_is_started(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.write({"plan.org": entry("Count", stage.effect("count"), schedule=RARELY)})
    newest_event = PostgresLedger.newest_event
    requested: list[Filed] = []

    async def newest(self: PostgresLedger) -> int:
        known = await self.entries()
        if known and not requested:
            now = await self.leases.now()
            requested.extend(
                await self.add(known[0].number, [asked("manual:1", now)], now=now, term=0)
            )
        return await newest_event(self)

    monkeypatch.setattr(PostgresLedger, "newest_event", newest)
    async with alone(stage, monkeypatch):
        await until(lambda: [each.what for each in stage.happened()] == ["begun", "over"])
