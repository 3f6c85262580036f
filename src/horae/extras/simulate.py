"""Plans under the real engine and a clock that jumps from one scheduled time to the next."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from traceback import format_exception
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from horae.core.engine import Engine
from horae.core.entry import Origin, Overlap
from horae.core.ports import Ended, Job, Ledger, Process, Run
from horae.core.receipt import Filed, Reason, ReasonCode, Status
from horae.core.source import Scan, Scanned
from horae.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from horae.core.gate import Capacity

LAST_EVENTS: Final = 50  # shown with a broken guarantee
_LONGEST_REST: Final = timedelta(hours=1)  # the clock cannot be set, so nothing needs noticing
_TIME_LIMIT: Final = timedelta(hours=2)  # of a run that has none of its own
_TINY: Final = timedelta(microseconds=1)
_PROCESS: Final = Process(1, 1)
_DONE: Final = Ended(Status.DONE, Reason(ReasonCode.COMPLETED, "simulated"), 0)


class Outage(NamedTuple):
    at: datetime
    length: timedelta


@dataclass(frozen=True, slots=True)
class BrokenGuarantee:
    """The first guarantee that was broken, and the last events before that."""

    promise: str
    what: str
    events: tuple[str, ...]

    def __str__(self) -> str:
        lines = "\n".join(f"  {event}" for event in self.events)
        return f"{self.promise}: {self.what}\nthe last events:\n{lines}"


@dataclass(slots=True)
class Simulation:
    """Some days of plans; a run takes as long as `lengths` has for its entry, else no time."""

    entries: Sequence[Scanned]
    start: datetime
    length: timedelta
    capacity: Capacity
    outages: Sequence[Outage] = ()
    lengths: Mapping[Origin, timedelta] = field(default_factory=dict)
    trace: Callable[[str], object] = lambda _: None
    broken: BrokenGuarantee | None = None
    live: dict[int, Filed] = field(default_factory=dict)  # by run
    clock: ManualClock = field(init=False)
    _running: set[int] = field(default_factory=set)  # runs that the ledger has as running
    _starts: Counter[int] = field(default_factory=Counter)  # by receipt
    _hash: Any = field(default_factory=sha256)
    _last: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_EVENTS))

    def __post_init__(self) -> None:
        self.clock = ManualClock(self.start.astimezone(UTC))

    @property
    def digest(self) -> str:
        return str(self._hash.hexdigest())

    async def run(self, ledger: Ledger) -> None:
        end = self.start + self.length
        for down, up in _without_engine(self.start, end, self.outages):
            await self._run_engine(ledger, down)
            self.tell("crash for the simulated outage")
            await self.clock.advance(up - self.clock.now())
        if self.clock.now() < end:
            await self._run_engine(ledger, end)

    async def _run_engine(self, ledger: Ledger, end: datetime) -> None:
        others = asyncio.all_tasks()
        traced = _TracedLedger(self, ledger)
        engine = Engine(
            clock=self.clock,
            ledger=cast("Ledger", traced),
            runner=_SimulatedRunner(self),
            sources=[_PlanSource(self.entries)],
            capacity=self.capacity,
        )
        engine.longest_rest = _LONGEST_REST
        self.tell("an engine starts")

        async def live() -> None:
            await engine.start()
            await engine.run()

        life = asyncio.create_task(live())
        await self.clock.advance(end - self.clock.now() - _TINY)
        if life.done() and (error := life.exception()):
            self.fail("engine", f"it raised an error: {''.join(format_exception(error)[-4:])}")
        traced.is_closed = True
        left = asyncio.all_tasks() - others
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        self.live.clear()

    def tell(self, what: str) -> None:
        now = self.clock.now()
        line = f"{(now - self.start).total_seconds():.6f} {now:%Y-%m-%dT%H:%M:%S} {what}"
        self._last.append(line)
        self._hash.update(line.encode())
        self.trace(line)

    def fail(self, promise: str, what: str) -> None:
        if self.broken is None:
            self.tell(f"BROKEN {promise}: {what}")
            self.broken = BrokenGuarantee(promise, what, tuple(self._last))

    def note_write(self, name: str, args: tuple[Any, ...], answer: object) -> None:
        if name == "running" and answer:
            self._running.add(args[0])
        if name != "wake" or answer:
            self.tell(f"{name} {_brief(args)}: {_brief(answer)}")

    def begin(self, filed: Filed, run: Run) -> timedelta:
        """Check that a run may start now, and return how long it takes."""
        policy, name = filed.policy, f"receipt {filed.number} ({filed.receipt.key})"
        self.tell(f"run {run.number} of receipt {filed.number} is started")
        self._starts[filed.number] += 1
        starts = self._starts[filed.number]
        if run.number not in self._running:
            self.fail("I3", f"run {run.number} was started, but is not running in the ledger")
        if starts > 1 + (policy.retry.attempts if policy.retry else 0):
            self.fail("I4", f"{name} was started {starts} times")
        if policy.overlap is not Overlap.ALLOW:
            for other in self.live.values():
                if other.entry == filed.entry:
                    self.fail("I5", f"{name} runs beside receipt {other.number}")
        if self.clock.now() < filed.receipt.start_at:
            self.fail("I6", f"{name} was started before {filed.receipt.start_at}")
        self.live[run.number] = filed
        if len(self.live) > self.capacity.slots:
            self.fail("I7", f"{len(self.live)} runs are alive in {self.capacity.slots} slots")
        length = self.lengths.get(filed.origin, timedelta(0))
        return min(length, policy.timeout or _TIME_LIMIT)

    def check(self, receipts: Iterable[Filed]) -> None:
        keys: set[tuple[int, str]] = set()
        for each in receipts:
            key = (each.entry, each.receipt.key)
            if key in keys:
                self.fail("I1", f"receipt {each.number} has the key of another: {key[1]}")
            if each.receipt.planned_at > each.decided_at:
                self.fail("I6", f"receipt {each.number} ({key[1]}) was decided before its time")
            keys.add(key)


def _without_engine(
    start: datetime, end: datetime, outages: Iterable[Outage]
) -> list[tuple[datetime, datetime]]:
    """Return the outages within a time, in order; those that overlap are one."""
    found: list[tuple[datetime, datetime]] = []
    for outage in sorted(outages):
        down, up = max(start, outage.at), min(end, outage.at + outage.length)
        if down < up and found and down <= found[-1][1]:
            found[-1] = found[-1][0], max(up, found[-1][1])
        elif down < up:
            found.append((down, up))
    return found


@dataclass(slots=True)
class _TracedLedger:
    """The ledger as one engine sees it: closed when the engine is killed."""

    simulation: Simulation
    ledger: Ledger
    is_closed: bool = False

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        method = getattr(self.ledger, name)

        async def call(*args: Any, **kwargs: Any) -> object:
            if self.is_closed:
                raise asyncio.CancelledError
            answer = await method(*args, **kwargs)
            if "term" in kwargs:
                self.simulation.note_write(name, args, answer)
            return answer

        return call


@dataclass(frozen=True, slots=True)
class _PlanSource:
    entries: Sequence[Scanned]
    name: str = "org"

    async def scan(self, index: Mapping[str, str]) -> Scan:  # noqa: ARG002 - all is read
        return Scan(tuple(self.entries))

    async def settle(self, receipt: Filed) -> None:
        """Do nothing: a plan does not change when a run ends."""


@dataclass(frozen=True, slots=True)
class _SimulatedRunner:
    simulation: Simulation

    async def hold(self, job: Job) -> _SimulatedRun:
        return _SimulatedRun(self.simulation, job.filed, job.run)

    async def look_back(self, filed: Filed, run: Run) -> None:
        """Return that nothing is known: a run dies with its engine."""


@dataclass(slots=True)
class _SimulatedRun:
    simulation: Simulation
    filed: Filed
    run: Run
    process: Process = _PROCESS
    _length: timedelta = timedelta(0)
    _cancelled: str | None = None
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    def go(self) -> None:
        self._length = self.simulation.begin(self.filed, self.run)

    def cancel(self, reason: str) -> None:
        self._cancelled = reason
        self._stop.set()

    async def ended(self) -> Ended:
        clock = self.simulation.clock
        if self._length and self._cancelled is None:
            await clock.wait(self._stop, until=clock.now() + self._length)
        ended = _DONE
        if self._cancelled is not None:
            ended = Ended(Status.KILLED, Reason(ReasonCode.CANCELLED, self._cancelled))
        self.simulation.live.pop(self.run.number, None)
        self.simulation.tell(f"run {self.run.number} ends: {ended.outcome}")
        return ended


def _brief(thing: object) -> str:
    match thing:
        case None | bool() | int() | str():
            return str(thing)
        case datetime():
            return f"{thing:%Y-%m-%dT%H:%M:%S}"
        case tuple() | list():
            shown = " ".join(_brief(each) for each in thing[:3])
            return f"[{shown}{f' …{len(thing)}' if len(thing) > 3 else ''}]"
        case _:
            number = getattr(thing, "number", None)
            key = getattr(getattr(thing, "receipt", None), "key", "")
            status = getattr(thing, "status", "")
            return f"{type(thing).__name__} {number or ''} {key} {status}".rstrip()
