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

from horae.core.ports import Ended, Process
from horae.core.receipt import Reason, ReasonCode, Status

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from horae.core.ports import Job, Run, Unreleased
    from horae.core.receipt import Filed

_QUIET: Final = 8  # beats of the event loop in which nobody begins to wait: all are at rest


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
    """Makes runs that end as their script says; `started` tells which were let go, and when."""

    def __init__(self, *, clock: ManualClock, script: Callable[[Filed], Ending] = at_once) -> None:
        self._clock = clock
        self._script = script
        self.started: list[tuple[datetime, Filed]] = []

    async def hold(self, job: Job) -> ScriptedRun:
        """Make a run that waits for its go."""
        return ScriptedRun(self, job)

    async def look_back(self, filed: Filed, run: Run) -> Ended | Unreleased | None:
        """Return that nobody knows how it ended."""

    def begin(self, filed: Filed) -> Ending:
        """Take note that a run was let go, and return how it is to end."""
        self.started.append((self._clock.now(), filed))
        return self._script(filed)

    async def pass_by(self, event: asyncio.Event, length: timedelta) -> None:
        """Return when so much time has passed, or the event is set."""
        await self._clock.wait(event, until=self._clock.now() + length)


class ScriptedRun:
    """One run of a script."""

    process = Process(1, 1)

    def __init__(self, runner: ScriptedRunner, job: Job) -> None:
        self._runner = runner
        self._filed = job.filed
        self._ending: Ending | None = None
        self._cancelled = asyncio.Event()

    def go(self) -> None:
        """Let it begin."""
        self._ending = self._runner.begin(self._filed)

    def cancel(self, reason: str) -> None:  # noqa: ARG002 - the port's signature
        """End it."""
        self._cancelled.set()

    async def ended(self) -> Ended:
        """Return how it ended, when its time has passed."""
        ending = self._ending or Ending(Status.KILLED)
        if ending.after and not self._cancelled.is_set():
            await self._runner.pass_by(self._cancelled, ending.after)
        return Ended(ending.outcome, Reason(ReasonCode.OTHER, "as scripted"))
