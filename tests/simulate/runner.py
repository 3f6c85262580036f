"""Runs that follow the dice, and what is left of them when their engine dies."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from horae.core.ports import (
    Ended,
    HeldBackError,
    LauncherLostError,
    Process,
    RunError,
    Unreleased,
)
from horae.core.receipt import NEVER_STARTED, Reason, ReasonCode, Status
from horae.core.spending import Spending
from simulate.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from horae.core.ports import Job, Ledger, Run
    from horae.core.receipt import Filed
    from simulate.loop import Life
    from simulate.world import World

WALL_CLOCK: Final = timedelta(hours=2)  # of a run that has none of its own
_LOOK: Final = timedelta(seconds=7)  # so often a run looks whether one that it waits for is over
LIFELINE: Final = timedelta(seconds=2)  # so long a run may outlive its engine


# What a supervisor reports that has heard nothing of its engine before the go.
_TOO_LATE: Final = Ended(Status.KILLED, NEVER_STARTED, facts={"released": False})
_DONE: Final = Ended(Status.DONE, Reason(ReasonCode.COMPLETED, "simulated"), 0)
_NO_WORK: Final = Ended(Status.NO_WORK, Reason(ReasonCode.NO_WORK, "no work found"), 0)
_FAILED: Final = Ended(Status.FAILED, Reason(ReasonCode.EXIT_CODE, "simulated failure"), 1)
_TOO_LONG: Final = Ended(
    Status.KILLED, Reason(ReasonCode.TIME_LIMIT, "the run exceeded its time limit")
)
_LIMITED: Final = Ended(Status.LIMITED, Reason(ReasonCode.USAGE_LIMIT, "simulated limit"), 1)
_LOST: Final = Ended(
    Status.INTERRUPTED, Reason(ReasonCode.SUPERVISOR_LOST, "the run left no report")
)


class Stage(StrEnum):
    """How far a run has come."""

    HELD = "held"
    LIVE = "live"
    OVER = "over"


@dataclass(slots=True)
class Child:
    """One run as the machine knows it, whoever asked for it."""

    filed: Filed
    run: Run
    process: Process
    stage: Stage = Stage.HELD
    went_at: datetime | None = None
    ended: Ended | None = None  # its own report, if it left one
    over: asyncio.Event = field(default_factory=asyncio.Event)
    timer: asyncio.TimerHandle | None = None
    life: Life | None = None  # of the engine that made it
    account: str = ""
    asked_at: int = 0  # whether it may use that, by the loop
    riders: list[int] = field(default_factory=list)  # receipts that it asked for, and waits for

    def finish(self, ended: Ended | None) -> None:
        """Let it be over, with a report or without."""
        if self.stage is not Stage.OVER:
            self.stage, self.ended = Stage.OVER, ended
            if self.timer is not None:
                self.timer.cancel()
            self.over.set()


class SimRunner:
    """Makes runs for one engine."""

    def __init__(self, world: World, life: Life, ledger: Ledger) -> None:
        self._world = world
        self._life = life
        self._ledger = ledger

    async def hold(self, job: Job) -> SimHeld:
        """Make a run that waits for its go."""
        world, setting = self._world, self._world.setting
        await world.breathe(self._life)
        if setting.runs_a_day:
            shared = {"all": f"{setting.runs_a_day} runs/day"}
            clock, term = world._clock_of(self._life), self._life.term
            spending = Spending(self._ledger, clock, term, setting.zone_of_days, shared)
            job = await spending.drawn(job)
        account, asked_at = setting.account_of(job.filed.entry), world.loop.micros
        if account:
            now, number = world._clock_of(self._life).now(), job.filed.number
            limit = await self._ledger.ask_account(account, number, now=now, term=self._life.term)
            if limit is not None:
                raise HeldBackError(limit.reason(), account=account)
        if world.weather.strikes(Fault.LAUNCHER):
            raise LauncherLostError("the launcher has exited")
        if world.weather.strikes(Fault.CANNOT):
            raise RunError("the program does not exist")
        if world.weather.strikes(Fault.HOLD):
            raise HeldBackError("no command is configured")
        child = world.children.make(job, self._life)
        child.account, child.asked_at = account, asked_at
        world.making(self._life)
        world.tell(f"run {job.run.number} of receipt {job.filed.number} is created")
        await world.breathe(self._life)
        return SimHeld(world, self._life, child)

    async def look_back(self, filed: Filed, run: Run) -> Ended | Unreleased | None:
        """Return what is left of a run; if it still lives, it is ended first."""
        world = self._world
        await world.breathe(self._life)
        return world.children.remains(filed, run)


class SimHeld:
    """A run that an engine holds in its hand."""

    def __init__(self, world: World, life: Life, child: Child) -> None:
        self._world = world
        self._life = life
        self._child = child
        self.process = child.process

    def go(self) -> None:
        """Let it begin, unless its supervisor knows that its engine may be over."""
        if self._life.is_expired:
            self._child.finish(_TOO_LATE)
        elif not self._life.is_over and self._child.stage is Stage.HELD:
            self._world.go(self._child)

    def cancel(self, reason: str) -> None:
        if not self._life.is_over:
            self._world.children.cancel(self._child, reason)

    async def ended(self) -> Ended:
        await self._child.over.wait()
        await self._world.breathe(self._life)
        return self._child.ended or _LOST


class Children:
    """All runs that were ever made, by their number."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[int, Child] = {}
        self.live: dict[int, Child] = {}

    def make(self, job: Job, life: Life) -> Child:
        """Make a run, which waits."""
        process = Process(100 + len(self._known), self._world.loop.micros)
        if job.run.number in self._known:
            self._world.watch.fail("I17", f"run {job.run.number} was created twice")
        child = self._known[job.run.number] = Child(job.filed, job.run, process, life=life)
        return child

    def begin(self, child: Child) -> None:
        """Let a run begin, and end when the dice say."""
        child.stage, child.went_at = Stage.LIVE, self._world.clock.now()
        self.live[child.run.number] = child
        ended, after = self._fate(child)
        limit = child.filed.policy.timeout or WALL_CLOCK
        killed_at = self._world.loop.time() + limit.total_seconds()

        def over() -> None:
            left = killed_at - self._world.loop.time()
            if left > 1e-6 and any(map(self._world.watch.is_open, child.riders)):
                self._set(child, min(left, _LOOK.total_seconds()), over)
                return
            is_killed = left <= 1e-6 and ended.outcome is not Status.KILLED
            last = _TOO_LONG if is_killed else ended
            del self.live[child.run.number]
            self._world.tell(f"run {child.run.number} ends: {last.outcome}")
            child.finish(last)

        self._set(child, after.total_seconds(), over)
        if self._world.weather.strikes(Fault.RIDE):
            self._world.people.ride(child)

    def _set(self, child: Child, delay: float, callback: Callable[[], None]) -> None:
        """Let something happen to a run later, whatever becomes of its engine."""
        world = self._world
        child.timer = world.loop.call_later(delay, callback, context=world.outside)

    def cancel(self, child: Child, reason: str) -> None:
        """End a run, whether it was let go or not."""
        self.live.pop(child.run.number, None)
        child.finish(Ended(Status.KILLED, Reason(ReasonCode.CANCELLED, reason)))

    def orphaned(self, life: Life) -> None:
        """Let the runs of an engine end that has died; some take their time."""
        world = self._world
        self._give_up(life)
        for child in self.of(life):
            if world.weather.strikes(Fault.ORPHAN):
                later = LIFELINE.total_seconds()
                world.loop.call_later(later, self._lose, child, context=world.outside)
            else:
                self._lose(child)

    def expired(self, life: Life) -> None:
        """Let the runs of an engine end from which nobody has heard in time."""
        self._give_up(life)
        for child in self.of(life):
            self._lose(child)

    def of(self, life: Life) -> list[Child]:
        """Return the runs of an engine that live."""
        return [each for each in self.live.values() if each.life is life]

    def _give_up(self, life: Life) -> None:
        """Let the runs of an engine end that were never let go."""
        for child in [each for each in self._known.values() if each.stage is Stage.HELD]:
            if child.life is life:
                child.finish(_TOO_LATE)

    def _lose(self, child: Child) -> None:
        """End a run that has lost its engine."""
        if self.live.pop(child.run.number, None) is not None:
            child.finish(_report(self._world))

    def remains(self, filed: Filed, run: Run) -> Ended | Unreleased | None:
        """Return what a run left; nothing of it is alive after this."""
        child = self._known.get(run.number)
        if child is None or child.went_at is None:
            return Unreleased()
        self._lose(child)
        self._world.tell(f"run {run.number} of receipt {filed.number} left {child.ended}")
        return child.ended

    def _fate(self, child: Child) -> tuple[Ended, timedelta]:
        """Return how a run ends, and after how long."""
        ended, after = self._end_of(child.filed)
        if not child.account:
            return ended, after
        world, roll = self._world, self._world.roll
        assert roll is not None, "accounts are for worlds that follow the dice"
        if world.weather.strikes(Fault.LIMIT):
            closed = timedelta(minutes=roll.choice((2, 40, 300, 1500)))
            world.closed[child.account] = world.loop.time() + closed.total_seconds()
            world.tell(f"{child.account} is limited for {closed}")
        left = world.closed.get(child.account, 0.0) - world.loop.time()
        if left <= 0 or world.weather.is_calm:
            return replace(ended, account=child.account), after
        until = world.clock.now() + timedelta(seconds=left) if roll.random() < 0.7 else None
        return replace(_LIMITED, account=child.account, until=until), timedelta(seconds=1)

    def _end_of(self, filed: Filed) -> tuple[Ended, timedelta]:
        world = self._world
        limit = filed.policy.timeout or WALL_CLOCK
        if world.roll is None:
            length = world.setting.lengths.get(filed.origin, timedelta(0))
            return _DONE, min(length, limit)
        after = timedelta(seconds=world.roll.choice((0, 1, 20, 90, 600)))
        if world.weather.strikes(Fault.LONG):
            after = timedelta(minutes=world.roll.choice((30, 70, 100)))
        if world.weather.strikes(Fault.HANG):
            after = limit
        if after >= limit:
            return _TOO_LONG, limit
        if world.weather.strikes(Fault.FAIL):
            return _FAILED, after
        if world.weather.strikes(Fault.IDLE):
            return _NO_WORK, after
        return _DONE, after


def _report(world: World) -> Ended | None:
    """Return the report of a run whose engine died: the supervisor may have died, too."""
    if world.roll is None or world.roll.random() < 0.5:
        return None
    return Ended(Status.KILLED, Reason(ReasonCode.ENGINE_EXITED, "the engine exited"))
