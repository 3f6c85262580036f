"""Runs on several nodes: the leader puts receipts into a queue, and each node takes its own.

    leader   gate → a job in the queue
    member   job → starting → running → go → end, fenced by its own lease

A job may come late, twice, or not at all. Only a receipt that waits can be claimed, by one machine,
and while the leader leads that has put it in, so nothing follows from a second job; and the leader
puts a receipt in again that nobody claims.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from horae.core.actor import acting
from horae.core.launch import Launch, StartedRun, WriteBatch
from horae.core.lease import NodeDescription, QueueJob
from horae.core.ports import Event, Ledger, LedgerUnavailableError, Run, RunOver
from horae.core.receipt import GOING, Filed, Reason, Status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
    from datetime import datetime

    from horae.core.gate import Gate, Holding, Machine
    from horae.core.launch import LetIn
    from horae.core.lease import QueueJobs
    from horae.core.ports import EntryStep

log = logging.getLogger(__name__)

CANCEL: Final = "cancel"  # the event by which a leader requests the end of a run
ANY: Final = "any"  # the label that every node has
HOME: Final = timedelta(seconds=2)  # for which only an agent's preferred node may take a receipt
AGAIN: Final = timedelta(seconds=5)  # after which an unclaimed receipt is queued again
SHARES: Final = 8  # jobs for each node, at least, if many receipts are queued together
MOST: Final = 16  # receipts in one job


def on_host(machine: str) -> str:
    return f"host:{machine}"


def with_label(label: str) -> str:
    return f"label:{label}"


class SharedLedger(Ledger, Protocol):
    async def enqueue(self, jobs: Sequence[QueueJob], *, term: int) -> None: ...

    async def decide_and_enqueue(
        self, steps: Sequence[EntryStep], jobs_of: QueueJobs, *, now: datetime, term: int
    ) -> Sequence[Filed]:
        """File receipts, and queue the jobs that *jobs_of* returns for them, in one transaction.

        *jobs_of* is called on the loop, before the commit, and again after a rollback.
        """

    async def machines(self) -> tuple[Machine, ...]: ...

    async def under_way(self) -> list[Filed]: ...

    async def several(self, receipts: Sequence[int]) -> list[Filed]: ...
    async def open_runs_of(self, receipts: Sequence[int]) -> list[Run]: ...


@dataclass(slots=True)
class _Queued:
    filed: Filed  # admitted, and not claimed by a node
    holding: Holding
    tries: int = 1
    tried_at: timedelta | None = None  # uptime when it was queued; None: that failed

    def is_same(self, filed: Filed) -> bool:
        was = self.filed
        return (was.entry, was.receipt.key, was.attempts, was.deaths, was.receipt.start_at) == (
            filed.entry, filed.receipt.key, filed.attempts, filed.deaths, filed.receipt.start_at
        )  # fmt: skip


@dataclass(eq=False)
class Carried(Launch):
    ledger: SharedLedger
    gate: Gate = field(kw_only=True)
    _queued: dict[int, _Queued] = field(default_factory=dict)
    _under_way: dict[int, Filed] = field(default_factory=dict)  # including queued ones
    _live: dict[int, Run] = field(default_factory=dict)
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def runs(self) -> dict[int, Run]:
        return dict(self._live)

    @property
    def receipts(self) -> tuple[int, ...]:
        return tuple(self._under_way)

    async def decide(
        self, steps: Sequence[EntryStep], *, now: datetime, let_in: LetIn
    ) -> Sequence[Filed]:
        new: list[_Queued] = []
        numbers: set[int] = set()

        def jobs_of(filed: Sequence[Filed]) -> Sequence[QueueJob]:
            if numbers:  # after a rollback, the numbers are assigned again
                self.gate.keep(lambda number: number not in numbers)
                for number in numbers:
                    self.gate.release(number)
            known = [each for each in new if each.filed.number not in numbers]
            numbers.clear()
            numbers.update(each.number for each in filed)
            new[:] = known + self._let_in(let_in(filed))
            return self._jobs(new)

        try:
            return await self.ledger.decide_and_enqueue(steps, jobs_of, now=now, term=self.term)
        except BaseException:
            self.gate.keep(lambda number: number not in numbers)
            for each in new:  # their jobs are committed with them, and may be claimed already
                each.tried_at = None
            self.is_unsure = True
            raise
        finally:
            self._know(new)  # not before: they were not committed

    def start(self, receipts: Iterable[Filed], refused: Reason | None = None) -> None:
        if refused is not None:
            super().start(receipts, refused)
            return
        self._know(new := self._let_in(receipts))
        self.beside(self._enqueue(new))

    def _let_in(self, receipts: Iterable[Filed]) -> list[_Queued]:
        holders, now = {each.ask.number: each for each in self.gate.holders}, self.clock.elapsed()
        return [_Queued(each, holders[each.number], tried_at=now) for each in receipts]

    def _know(self, new: Iterable[_Queued]) -> None:
        self._queued |= {each.filed.number: each for each in new}
        self._under_way |= {each.filed.number: each.filed for each in new}

    def cancel(self, receipt: int, reason: Reason, *, outcome: Status = Status.KILLED) -> bool:
        if receipt not in self._under_way:
            return False
        self.beside(self._ask_to_end(receipt, reason, outcome))
        return True

    async def stop(self, *, within: timedelta, reason: Reason) -> None:  # noqa: ARG002
        """Wait for writes in progress; the runs continue under the next leader."""
        await self.rest()

    async def look_back(self) -> None:
        """Take over the receipts of nodes; queued ones pass the gate again."""
        new = [each for each in await self.ledger.under_way() if each.number not in self._under_way]
        for filed in new:
            self._under_way[filed.number] = filed
            self.gate.adopt(filed, now=self.clock.now())
        await self.look([each.number for each in new])

    async def reconcile(self) -> None:
        self.is_unsure = False  # first: another failed write sets it again
        try:
            await self.look_back()
            await self.look(self.receipts)
        except BaseException:  # includes cancellation
            self.is_unsure = True
            raise

    async def hear(self, events: Iterable[Event]) -> None:
        told = {each.receipt for each in events if each.kind == "receipt"}
        await self.look([n for n in told if n is not None and n in self._under_way])

    async def look(self, numbers: Sequence[int]) -> None:
        if not numbers:
            return
        async with self._looking:  # the results must be applied in the order of the queries
            found = {filed.number: filed for filed in await self.ledger.several(numbers)}
            unknown = [
                n
                for n, filed in found.items()
                if filed.status is Status.RUNNING
                and n in self._under_way
                and (n not in self._live or self._under_way[n].attempts != filed.attempts)
            ]
            for run in await self.ledger.open_runs_of(unknown) if unknown else ():
                self._live[run.receipt] = run
            going = {n: filed for n, filed in found.items() if filed.status in GOING}
            self.gate.place({n: filed.machine for n, filed in going.items()})
            for number in numbers:
                filed, queued = found.get(number), self._queued.get(number)
                if number not in self._under_way:
                    continue
                if number in going:
                    self._queued.pop(number, None)
                    self._under_way[number] = going[number]
                elif (
                    filed is None
                    or filed.status is not Status.WAITING
                    or queued is None  # it was given back
                    or not queued.is_same(filed)
                ):
                    self._end(number, filed)

    async def requeue(self) -> None:
        await self.look([*self._queued])
        late = [each for each in self._queued.values() if self._is_late(each)]
        for each in late:
            each.tries += 1
            each.tried_at = self.clock.elapsed()
        await self._enqueue(late)

    def _is_late(self, queued: _Queued) -> bool:
        if queued.tried_at is None:
            return True
        waits = AGAIN if queued.tries > 1 or not queued.holding.ask.prefers else HOME
        return self.clock.elapsed() - queued.tried_at >= waits

    def _end(self, number: int, filed: Filed | None) -> None:
        self._queued.pop(number, None)
        if self._under_way.pop(number, None) is not None:
            self._live.pop(number, None)
            self.left(number, filed)

    async def _enqueue(self, some: Sequence[_Queued]) -> None:
        jobs = self._jobs(some)
        if jobs and not await self._is_written(self.ledger.enqueue(jobs, term=self.term)):
            for each in some:
                each.tried_at = None

    def _jobs(self, some: Sequence[_Queued]) -> list[QueueJob]:
        """Return as few jobs as leave each node its share."""
        machines = self.gate.capacity.machines or (None,)
        size = max(1, min(MOST, len(some) // (SHARES * len(machines))))
        if any(each.tries > 1 for each in some):  # one that cannot be claimed keeps no other back
            size = 1
        numbers: dict[str, list[int]] = {}
        for each in some:
            numbers.setdefault(self._ability(each), []).append(each.filed.number)
        return [
            QueueJob(tuple(known[first : first + size]), ability, self.term)
            for ability, known in numbers.items()
            for first in range(0, len(known), size)
        ]

    def _ability(self, queued: _Queued) -> str:
        """Return the label that a node must have; at first, that of the agent's preferred node."""
        holding, ask = queued.holding, queued.holding.ask
        machines = self.gate.capacity.machines or ()
        if holding.rides and ask.parent is not None:
            return on_host(self.gate.machine_of(ask.parent) or holding.machine)
        if queued.tries == 1 and holding.machine == ask.prefers:
            return on_host(holding.machine)
        if not ask.requires:
            return ANY
        if len(ask.requires) > 1:  # no single label means all of them
            fit = (each.name for each in machines if each.suits(ask.requires))
            return on_host(next(fit, holding.machine))
        [label] = ask.requires
        is_label = any(label in each.labels for each in machines)
        return with_label(label) if is_label else on_host(label)

    async def _ask_to_end(self, receipt: int, reason: Reason, outcome: Status) -> None:
        facts = {"reason": reason, "reason_code": reason.code, "outcome": outcome}
        now = self.clock.now()
        await self._is_written(
            self.ledger.note(CANCEL, now=now, term=self.term, receipt=receipt, facts=facts)
        )

    async def _is_written(self, writing: Awaitable[None]) -> bool:
        try:
            await writing
        except LedgerUnavailableError as error:
            log.warning("cannot tell nodes which runs to start or end: %s", error)
        except Exception as error:  # the next turn raises it, and the engine ends
            log.debug("writing for nodes ended in an error", exc_info=error)
            self.failure = error
        else:
            return True
        return False


@dataclass(eq=False)
class Worker(Launch):
    ledger: SharedLedger
    card: NodeDescription = field(kw_only=True)
    may_claim: Callable[[], bool] = field(kw_only=True)  # whether its lease may be trusted
    newest_term: Callable[[], int] = field(kw_only=True, default=lambda: 0)  # that is known
    over: Callable[[Run], Coroutine[Any, Any, None]] | None = field(kw_only=True, default=None)
    _claiming: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._is_open = True
        self._claims = WriteBatch(self._claim_all, self.beside)

    @property
    def known(self) -> tuple[str, ...]:
        own = sorted({self.card.name, *self.card.labels})
        return (ANY, on_host(self.card.name), *map(with_label, own))

    def abilities(self) -> tuple[str, ...]:
        """Return the labels for which there is a slot; a run inside a run needs none."""
        if not self.can_claim:
            return ()
        return self.known if self.room > 0 else (on_host(self.card.name),)

    @property
    def can_claim(self) -> bool:
        return self._is_open and self.may_claim()

    @property
    def room(self) -> int:
        return self.card.slots - self._claiming - self._held

    @property
    def most_jobs(self) -> int:
        """How many jobs have slots, if each is as large as a leader makes it."""
        return -(-self.room // max(1, min(MOST, self.card.slots // SHARES)))

    async def claim(self, numbers: Sequence[int], term: int) -> bool:
        """Claim receipts and start them; False: one waits, and there is no slot for it here."""
        self._claiming += len(numbers)
        try:
            return await self._claims.add((numbers, term))
        finally:
            self._claiming -= len(numbers)

    def hear(self, event: Event) -> None:
        if event.kind == CANCEL and event.receipt is not None:
            facts = {"outcome": Status.KILLED, "reason": "", "reason_code": "", **event.facts}
            reason = Reason(str(facts["reason_code"]), str(facts["reason"]))
            with acting(event.actor):
                self.cancel(event.receipt, reason, outcome=Status(str(facts["outcome"])))

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def stop(self, *, within: timedelta, reason: Reason) -> None:
        self._is_open = False
        await super().stop(within=within, reason=reason)

    @property
    def _held(self) -> int:
        return sum(not self._rides(story.filed) for story in self._stories.values())

    def _rides(self, filed: Filed) -> bool:
        return filed.parent is not None and filed.parent in self._stories

    async def _claim_all(self, jobs: Sequence[tuple[Sequence[int], int]]) -> Sequence[bool]:
        self.term = max(self.term, self.newest_term(), *(term for _, term in jobs))
        numbers = [number for some, term in jobs if term == self.term for number in some]
        found = {each.number: each for each in await self.ledger.several(numbers)}
        now, stories, done = self.clock.now(), {}, {}
        room = self.card.slots - self._held
        for number in dict.fromkeys(numbers):
            filed = found.get(number)
            if filed is None or filed.status is not Status.WAITING or filed.receipt.start_at > now:
                done[number] = True
            elif self.can_claim and number not in self._stories:
                rides = self._rides(filed)
                if rides or room > 0:
                    room -= not rides
                    stories[number] = StartedRun(filed)
        self._stories |= stories
        await self._start_all([*stories.values()], None)
        done |= {number: story.run is not None for number, story in stories.items()}
        # What a previous leader queued is admitted again by this one.
        return [term != self.term or all(done.get(n, False) for n in some) for some, term in jobs]

    def _leave(self, story: StartedRun, then: Filed | RunOver | None) -> None:
        super()._leave(story, then)
        if story.run is not None and self.over is not None:
            self.beside(self.over(story.run))
