"""What tests of a schedule need: a clock that is turned by hand, and runs that follow a script.

    clock = ManualClock(datetime(2026, 4, 1, 8, tzinfo=UTC))
    await clock.advance(timedelta(minutes=40))

Nothing here waits for real time: forty minutes pass as fast as their work is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from horae.core.ports import Ended, Job, Process, Run, Unreleased
from horae.core.receipt import Filed, Reason, ReasonCode, Status

if TYPE_CHECKING:
    from horae.core.spending import Spending

# Beats of the event loop in which nobody begins to wait: all are at rest. The longest known way,
# from the end of a run through the ledger to the next one, takes 9; each costs in every test.
_QUIET: Final = 12


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._elapsed = timedelta(0)
        self._alarms: list[tuple[timedelta, asyncio.Event]] = []
        self._waits = 0

    def now(self) -> datetime:
        return self._now

    def elapsed(self) -> timedelta:
        return self._elapsed

    def step(self, by: timedelta) -> None:
        """Set the clock, as a person or a time server does: no time passes."""
        self._now += by

    async def wait(self, event: asyncio.Event, *, until: datetime) -> None:
        self._waits += 1
        alarm = (self._elapsed + max(timedelta(0), until - self._now), event)
        self._alarms.append(alarm)
        try:
            if alarm[0] <= self._elapsed:
                event.set()
                await asyncio.sleep(0)  # or a loop that never rests would keep the others out
            await event.wait()
        finally:
            self._alarms.remove(alarm)

    async def advance(self, length: timedelta) -> None:
        """Let time pass, with all that comes due in it, each thing at its own moment."""
        end = self._elapsed + length
        await self._settle()
        while due := [at for at, _ in self._alarms if at <= end]:
            self._pass(min(due) - self._elapsed)
            for at, event in self._alarms:
                if at <= self._elapsed:
                    event.set()
            await self._settle()
        self._pass(end - self._elapsed)

    def _pass(self, length: timedelta) -> None:
        length = max(timedelta(0), length)
        self._now += length
        self._elapsed += length

    async def _settle(self) -> None:
        seen = -1
        while seen != self._waits:
            seen = self._waits
            for _ in range(_QUIET):
                await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class Ending:
    outcome: Status = Status.DONE
    after: timedelta = timedelta(0)
    facts: Mapping[str, object] = field(default_factory=dict)  # such as what it cost


def at_once(_: Filed) -> Ending:
    return Ending()


class ScriptedRunner:
    """Makes runs that end as their script says; `started` tells which were let go, and when."""

    def __init__(
        self,
        *,
        clock: ManualClock,
        script: Callable[[Filed], Ending] = at_once,
        spending: Spending | None = None,
    ) -> None:
        self._clock = clock
        self._script = script
        self._spending = spending
        self.started: list[tuple[datetime, Filed]] = []

    async def hold(self, job: Job) -> ScriptedRun:
        return ScriptedRun(self, job if self._spending is None else await self._spending.drawn(job))

    async def look_back(self, filed: Filed, run: Run) -> Ended | Unreleased | None: ...

    def begin(self, filed: Filed) -> Ending:
        """Take note that a run was let go, and return how it is to end."""
        self.started.append((self._clock.now(), filed))
        return self._script(filed)

    async def pass_by(self, event: asyncio.Event, length: timedelta) -> None:
        await self._clock.wait(event, until=self._clock.now() + length)


class ScriptedRun:
    process = Process(1, 1)

    def __init__(self, runner: ScriptedRunner, job: Job) -> None:
        self._runner = runner
        self._filed = job.filed
        self._ending: Ending | None = None
        self._cancelled = asyncio.Event()

    def go(self) -> None:
        self._ending = self._runner.begin(self._filed)

    def cancel(self, reason: str) -> None:  # noqa: ARG002 - the port's signature
        self._cancelled.set()

    async def ended(self) -> Ended:
        ending = self._ending or Ending(Status.KILLED)
        if ending.after and not self._cancelled.is_set():
            await self._runner.pass_by(self._cancelled, ending.after)
        return Ended(ending.outcome, Reason(ReasonCode.OTHER, "as scripted"), facts=ending.facts)
