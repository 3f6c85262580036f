"""What tests of a schedule need: a clock that is turned by hand, and runs that follow a script.

    clock = ManualClock(datetime(2026, 4, 1, 8, tzinfo=UTC))
    await clock.advance(timedelta(minutes=40))

Nothing here waits for real time: forty minutes pass as fast as their work is done.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from horae.engine.ports import Process
from horae.rules.misfire import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from horae.engine.ports import Filed, Ledger, Run

_QUIET: Final = 3  # beats of the event loop in which nobody begins to wait: all are at rest
_AGES: Final = timedelta(days=365)


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._elapsed = timedelta(0)
        self._alarms: list[tuple[timedelta, asyncio.Event]] = []
        self._waits = 0

    def now(self) -> datetime:
        """Return the moment that it shows."""
        return self._now

    def elapsed(self) -> timedelta:
        """Return how much time has passed, however it was set."""
        return self._elapsed

    def step(self, by: timedelta) -> None:
        """Set the clock, as a person or a time server does: no time passes."""
        self._now += by

    async def wait(self, event: asyncio.Event, *, until: datetime) -> None:
        """Return when the moment has come or the event is set; either way the event is set."""
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
        """Move wall and count together; time that has passed does not come back."""
        length = max(timedelta(0), length)
        self._now += length
        self._elapsed += length

    async def _settle(self) -> None:
        """Let everybody go on until all wait again."""
        seen = -1
        while seen != self._waits:
            seen = self._waits
            for _ in range(_QUIET):
                await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a scripted run ends, and how long after its start."""

    outcome: Status = Status.DONE
    after: timedelta = timedelta(0)


def at_once(_: Filed) -> Ending:
    """Return the ending of a run that is done as soon as it starts."""
    return Ending()


class ScriptedRunner:
    """Starts what waits, one run per entry at a time, and ends it as its script says."""

    def __init__(
        self,
        *,
        clock: ManualClock,
        ledger: Ledger,
        script: Callable[[Filed], Ending] = at_once,
        term: int = 1,
    ) -> None:
        self._clock = clock
        self._ledger = ledger
        self._script = script
        self._term = term
        self._waiting: dict[int, Filed] = {}
        self._live: dict[int, tuple[datetime, Run, Ending]] = {}
        self._offered = asyncio.Event()
        self.started: list[tuple[datetime, Filed]] = []

    def offer(self, receipts: Sequence[Filed]) -> None:
        """Take receipts that wait; the same one twice is one."""
        self._waiting.update((each.number, each) for each in receipts)
        self._offered.set()

    async def run(self, *, ended: Callable[[Filed], None]) -> None:
        """Start and end runs for ever, and tell of each end."""
        while True:
            self._offered.clear()
            now = self._clock.now()
            while await self._start_all(now) or await self._end_all(now, ended):
                pass
            await self._clock.wait(self._offered, until=self._next_at(now))

    async def _start_all(self, now: datetime) -> int:
        """Start what may start now; return how many were tried."""
        ready: dict[int, Filed] = {}
        for filed in self._waiting.values():
            if filed.receipt.start_at <= now and filed.entry not in self._live:
                ready.setdefault(filed.entry, filed)
        for filed in ready.values():
            del self._waiting[filed.number]
            run = await self._ledger.start(filed.number, now=now, term=self._term)
            if run is None:  # it was skipped meanwhile, or somebody else has it
                continue
            await self._ledger.running(run.number, Process(1, 1), now=now, term=self._term)
            ending = self._script(filed)
            self._live[filed.entry] = (now + ending.after, run, ending)
            self.started.append((now, filed))
        return len(ready)

    async def _end_all(self, now: datetime, ended: Callable[[Filed], None]) -> int:
        """End what is over; return how many there were."""
        over = [(entry, *live) for entry, live in self._live.items() if live[0] <= now]
        for entry, _, run, ending in over:
            del self._live[entry]
            filed = await self._ledger.end(
                run.number, ending.outcome, reason="the script says so", now=now, term=self._term
            )
            if filed is not None:
                ended(filed)
        return len(over)

    def _next_at(self, now: datetime) -> datetime:
        """Return when the next run may start or end."""
        starts = (each.receipt.start_at for each in self._waiting.values())
        coming = [each for each in starts if each > now]
        return min([now + _AGES, *coming, *(at for at, _, _ in self._live.values())])
