"""What may go wrong in a simulated world, and how often in this one.

Each seed has its own weather: a few kinds of trouble, sometimes none, sometimes many. A bug
that needs two of them at once is found where there are not ten.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from random import Random


class Fault(StrEnum):
    """A kind of trouble, or of people at work."""

    CRASH = "crash"  # the engine ends inside a call, before or after what the call does
    KILL = "kill"  # the engine ends at any time
    STEP = "step"  # somebody sets the clock
    SUSPEND = "suspend"  # the machine sleeps
    SLOW_LOOP = "slow loop"  # the loop wakes late
    BUSY = "busy"  # another process writes the ledger
    REFUSED = "refused"  # the disk did not take a write
    UNKNOWN = "unknown"  # the disk took a write and said that it did not
    SLOW_LEDGER = "slow ledger"
    FULL = "full"  # the disk is full for a while
    FAIL = "fail"  # a run ends badly
    IDLE = "idle"  # a run finds no work
    LONG = "long"  # a run takes hours
    HANG = "hang"  # a run ends only with its wall clock
    ORPHAN = "orphan"  # a run outlives its engine for a while
    CANNOT = "cannot"  # a run cannot be made
    LAUNCHER = "launcher"  # whoever makes runs is gone for a moment
    SETTLE = "settle"  # a source cannot follow up
    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"
    BREAK = "break"  # a file cannot be read for a while
    MOVE = "move"
    RETITLE = "retitle"
    REVERT = "revert"
    PAUSE = "pause"
    ASK = "ask"  # somebody wants a run now
    BACKFILL = "backfill"
    DELAY = "delay"  # somebody sets a delay, or enables one again
    RESTORE = "restore"  # the ledger of some days ago comes back
    HOLD = "hold"  # a run cannot be made before somebody has done something
    RELEASE = "release"  # somebody has done something
    APPROVAL = "approval"  # somebody has to approve a run first
    APPROVE = "approve"
    LIMIT = "limit"  # a run meets the usage limit of its account
    RIDE = "ride"  # a run asks for another one, and waits for it
    STOP = "stop"  # the engine is told to stop, and does so in good order
    FREEZE = "freeze"  # of several engines the one that leads gets no turn for a while
    PARTITION = "partition"  # or does not reach the ledger for a while


class Level(StrEnum):
    """How much of it there is."""

    NONE = "none"
    SOME = "some"  # a little of everything
    SWARM = "swarm"  # of each seed other kinds, and other amounts


# How likely it is at each call or run.
CHANCES: Final[Mapping[Fault, float]] = {
    Fault.CRASH: 0.0006,
    Fault.SLOW_LOOP: 0.01,
    Fault.BUSY: 0.004,
    Fault.REFUSED: 0.004,
    Fault.UNKNOWN: 0.004,
    Fault.SLOW_LEDGER: 0.01,
    Fault.FAIL: 0.2,
    Fault.IDLE: 0.2,
    Fault.LONG: 0.05,
    Fault.HANG: 0.02,
    Fault.ORPHAN: 0.5,
    Fault.CANNOT: 0.03,
    Fault.LAUNCHER: 0.03,
    Fault.SETTLE: 0.05,
    Fault.HOLD: 0.03,
    Fault.APPROVAL: 0.3,
    Fault.LIMIT: 0.1,
    Fault.RIDE: 0.1,
}
# How long it takes until it comes again, on average.
PACES: Final[Mapping[Fault, timedelta]] = {
    Fault.KILL: timedelta(days=5),
    Fault.STEP: timedelta(days=9),
    Fault.SUSPEND: timedelta(days=6),
    Fault.FULL: timedelta(days=9),
    Fault.ADD: timedelta(days=6),
    Fault.CHANGE: timedelta(days=4),
    Fault.REMOVE: timedelta(days=9),
    Fault.BREAK: timedelta(days=8),
    Fault.MOVE: timedelta(days=8),
    Fault.RETITLE: timedelta(days=8),
    Fault.REVERT: timedelta(days=10),
    Fault.PAUSE: timedelta(days=5),
    Fault.ASK: timedelta(days=2),
    Fault.BACKFILL: timedelta(days=12),
    Fault.DELAY: timedelta(days=3),
    Fault.RESTORE: timedelta(days=25),
    Fault.RELEASE: timedelta(days=2),
    Fault.APPROVE: timedelta(hours=12),
    Fault.STOP: timedelta(days=6),
    Fault.FREEZE: timedelta(days=2),
    Fault.PARTITION: timedelta(days=3),
}


_GUST: Final = 0.03  # what killed an engine is often still there when the next one starts


class Weather:
    """What goes wrong in one world; once it is calm, nothing does."""

    def __init__(self, roll: Random, rates: Mapping[Fault, float]) -> None:
        self._roll = roll
        self._rates = rates
        self.is_calm = False
        self.gusts = 0  # so many calls in which a crash is likely
        self.struck: Counter[str] = Counter()

    @property
    def kinds(self) -> tuple[Fault, ...]:
        return tuple(self._rates)

    def strikes(self, fault: Fault) -> bool:
        """Tell whether it happens at this call."""
        rate = self._rates.get(fault)
        if rate is None or self.is_calm:
            return False
        chance = rate * CHANCES[fault]
        if fault is Fault.CRASH and self.gusts:
            self.gusts -= 1
            chance = max(chance, _GUST)
        if self._roll.random() >= chance:
            return False
        self.struck[fault] += 1
        return True

    def wait(self, fault: Fault) -> float:
        """Return in how many seconds one of those comes that come by themselves."""
        return self._roll.expovariate(self._rates[fault] / PACES[fault].total_seconds())


def weather(
    roll: Random,
    level: Level,
    *,
    without: Collection[Fault] = (),
    unknown: Collection[Fault] = (),
    crashes: float = 1.0,
) -> Weather:
    """Return the weather of a seed; to leave a kind out does not change the others.

    Of what is *unknown* in a world there are no dice at all.
    """
    rates: dict[Fault, float] = {}
    for fault in (each for each in Fault if each not in unknown):
        is_here, amount = roll.random() < 0.45, 2 ** roll.uniform(-1.5, 1.5)
        if level is Level.SOME or (level is Level.SWARM and is_here):
            rates[fault] = amount if level is Level.SWARM else 0.5
            if fault is Fault.CRASH:
                rates[fault] *= crashes
    return Weather(roll, {fault: rate for fault, rate in rates.items() if fault not in without})
