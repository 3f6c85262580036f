"""The real engine with a simulated clock: what a simulation is held against."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from horae.core.engine import Engine
from horae.core.ports import Ended, Job, Ledger, Process, Run, receipts_of
from horae.core.receipt import Filed, Reason, ReasonCode, Status
from horae.core.source import Scan, Scanned
from horae.extras.simulate import Outage, without_engine
from horae.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from horae.core.entry import Origin
    from horae.core.gate import Capacity

_REST: Final = timedelta(hours=1)  # the clock cannot be set, so nothing needs noticing
_TIME_LIMIT: Final = timedelta(hours=2)
_TINY: Final = timedelta(microseconds=1)
_PROCESS: Final = Process(1, 1)


async def run_engine(
    ledger: Ledger,
    entries: Sequence[Scanned],
    start: datetime,
    length: timedelta,
    capacity: Capacity,
    *,
    outages: Sequence[Outage] = (),
    lengths: Mapping[Origin, timedelta],
) -> list[Filed]:
    """Let engines live between outages, and return the receipts that they leave."""
    clock = ManualClock(start.astimezone(UTC))
    end = start + length

    def engine() -> Engine:
        runner, sources = _Runner(clock, lengths), [_PlanSource(entries)]
        made = Engine(clock=clock, ledger=ledger, runner=runner, sources=sources, capacity=capacity)
        made.longest_rest = _REST
        return made

    for down, up in (*without_engine(start, end, outages), (end, end)):
        if clock.now() < end:
            await _live(engine(), clock, down)
            await clock.advance(up - clock.now())
    found = await receipts_of(ledger, ())
    return sorted(found, key=lambda each: (each.receipt.planned_at, each.number))


async def _live(engine: Engine, clock: ManualClock, end: datetime) -> None:
    others = asyncio.all_tasks()

    async def live() -> None:
        await engine.start()
        await engine.run()

    life = asyncio.create_task(live())
    await clock.advance(end - clock.now() - _TINY)
    assert not life.done(), life
    left = asyncio.all_tasks() - others
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _PlanSource:
    entries: Sequence[Scanned]
    name: str = "org"

    async def scan(self, index: Mapping[str, str]) -> Scan:  # noqa: ARG002 - all is read
        return Scan(tuple(self.entries))

    async def settle(self, receipt: Filed) -> None:
        """Do nothing: a plan does not change when a run ends."""


@dataclass(slots=True)
class _Runner:
    clock: ManualClock
    lengths: Mapping[Origin, timedelta]

    async def hold(self, job: Job) -> _Run:
        limit = job.filed.policy.timeout or _TIME_LIMIT
        return _Run(self.clock, min(self.lengths.get(job.filed.origin, timedelta(0)), limit))

    async def look_back(self, filed: Filed, run: Run) -> None:
        """Return that nothing is known: a run dies with its engine."""


@dataclass(slots=True)
class _Run:
    clock: ManualClock
    length: timedelta
    process: Process = _PROCESS
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    def go(self) -> None: ...

    def cancel(self, reason: str) -> None:
        """Do nothing: it dies with its engine."""

    async def ended(self) -> Ended:
        if self.length:
            await self.clock.wait(self._stop, until=self.clock.now() + self.length)
        return Ended(Status.DONE, Reason(ReasonCode.COMPLETED, "simulated"), 0)
