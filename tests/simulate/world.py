"""A world around the real engine: everything that it asks of the outside is answered here.

An engine lives until it is killed. What it leaves is what was durable: the ledger at its last
commit, the files, and the runs that it had let go. After an outage the next engine begins.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from random import Random
from traceback import format_exception
from typing import TYPE_CHECKING, Any, Final, Protocol

from horae.core.engine import Engine
from horae.core.gate import Capacity
from horae.core.ports import LedgerBusyError, LedgerWriteError, StaleTermError
from simulate.door import SimApprovals, WatchedGate
from simulate.faults import PACES, Fault, Level, weather
from simulate.invent import STARTS, invent
from simulate.ledger import unsteady
from simulate.loop import LIFE, Life, SimClock, SimLoop, Standstill
from simulate.people import People
from simulate.runner import LIFELINE, Children, SimRunner
from simulate.sources import SOURCES, Plans, Written
from simulate.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
    from contextvars import Context

    from horae.core.entry import Origin
    from horae.core.ports import Ledger
    from simulate.runner import Child
    from simulate.watch import Broken

CALM: Final = timedelta(hours=48)  # at the end nothing goes wrong any more
LAST: Final = 50  # events that a finding shows
_OUTAGES: Final = (1.0, 5.0, 61.0, 1200.0, 11_000.0, 90_000.0, 450_000.0, 1_900_000.0)
_STEPS: Final = (
    timedelta(seconds=1),
    timedelta(seconds=61),
    timedelta(hours=1),
    timedelta(days=1),
    timedelta(days=3652),
)
_FAR: Final = timedelta(days=4000)


class Shelf(Protocol):
    """Where ledgers come from."""

    async def open(self) -> Ledger:
        """Return a ledger that works in this thread, empty or with what is known beforehand."""
        ...

    async def close(self, ledger: Ledger) -> None:
        """Put a ledger away."""
        ...

    async def copy(self, ledger: Ledger) -> object: ...

    async def restore(self, copy: object, *, now: datetime) -> Ledger:
        """Return the ledger that a backup holds; nothing past fires."""
        ...


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which no engine runs."""

    at: datetime
    length: timedelta


@dataclass(frozen=True, slots=True)
class Setting:
    """What is to be simulated.

    Without a seed all goes as it is written: one order, no faults, runs that take as long as
    `lengths` says for what stands there, else end at once. Without files the seed makes them up.
    """

    length: timedelta
    seed: int | None = None
    level: Level = Level.NONE
    start: datetime | None = None
    files: Mapping[str, str] | None = None
    zone: str = "UTC"
    outages: tuple[Outage, ...] = ()
    without: tuple[Fault, ...] = ()
    most: int = 8  # workflows that are made up
    lengths: Mapping[Origin, timedelta] = field(default_factory=dict)
    crashes: float = 1.0  # how much more likely than else an engine dies inside a call
    slots: int = 4
    crew: int = 2
    accounts: int = 0  # that runs use, and whose usage limits they meet; 0: none
    runs_a_day: int = 0  # that may start, of a day in `zone_of_days`; 0: as many as like
    zone_of_days: str = "UTC"

    def account_of(self, entry: int) -> str:
        """Return the account that the runs of an entry use."""
        return f"account {entry % self.accounts}" if self.accounts else ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a world: the promise that was broken, if one was, and what happened."""

    setting: Setting
    broken: Broken | None
    events: tuple[str, ...]  # the last of them
    digest: str  # of the whole trace
    seen: Mapping[str, int]

    def __str__(self) -> str:
        if self.broken is None:
            return f"seed {self.setting.seed}: all guarantees were kept"
        lines = "\n".join(f"  {event}" for event in self.events)
        return f"seed {self.setting.seed}: {self.broken}\nthe last events:\n{lines}"


class World:
    """One world, from its first moment to its last."""

    unknown: Collection[Fault] = (Fault.FREEZE, Fault.PARTITION, Fault.LIMIT)  # of other worlds

    def __init__(
        self,
        setting: Setting,
        shelf: Shelf,
        *,
        audit: Callable[[World], Awaitable[None]] | None = None,
        trace: Callable[[str], object] | None = None,
        engine: type[Engine] = Engine,
    ) -> None:
        self.setting = setting
        self.roll = None if setting.seed is None else Random(setting.seed)
        dice = self.roll or Random(0)
        self.loop = SimLoop(self.roll)  # type: ignore[abstract] # the engine needs no more of it
        unknown = [each for each in self.unknown if each is not Fault.LIMIT or not setting.accounts]
        self.weather = weather(
            dice,
            setting.level,
            without=setting.without,
            unknown=unknown,
            crashes=setting.crashes,
        )
        start = setting.start or (dice.choice(STARTS) if self.roll else STARTS[0])
        self.start = start.astimezone(UTC)
        self.clock = SimClock(self.loop, self.start, horizon=self._horizon, late=self._late)
        self.written = self._write(dice)
        self.children = Children(self)
        self.watch = Watch(self)
        self.people = People(self, dice)
        self.engine: Engine | None = None
        self.wake_at: Any = None  # what the ledger last said comes next
        self.unsettled: dict[int, None] = {}
        self.asked: dict[int, datetime] = {}  # receipts that somebody must approve, and until when
        self.approved: dict[int, None] = {}  # and those that nobody must any more
        self.closed: dict[str, float] = {}  # accounts under a limit, and until when by the loop
        self.is_full = False
        self.is_stopping = False
        self.stops_at_a_start = False  # the next time that a run is being made
        self.steps_back = 0
        self.slots = setting.slots
        self.term = 1
        self._shelf = shelf
        self._audit = audit
        self._trace = trace
        self._engine_type = engine
        self._hash = sha256()
        self._last: deque[str] = deque(maxlen=LAST)
        self._lives = 0
        self.outside = copy_context()  # what happens in no engine
        self.life: Life | None = None  # of the engine that leads
        self._context: Context | None = None
        self._down = asyncio.Event()
        self._dirty: dict[str, None] = {}
        self._copies: list[object] = []
        self._restore: object | None = None

    def run(self) -> Verdict:
        """Let all of it happen, and return what became of it."""
        try:
            self.loop.run(self._main())
        except Standstill as finding:
            self.watch.fail("liveness", str(finding))
        finally:
            if self.life is not None:
                self.life.end()
            self.loop.drain()
        for complaint in self.loop.complaints:
            self.watch.fail("engine", complaint)
        seen = self.watch.seen + self.weather.struck
        return Verdict(
            self.setting, self.watch.broken, tuple(self._last), self._hash.hexdigest(), dict(seen)
        )

    def tell(self, what: str) -> None:
        """Write down what happened, and when."""
        line = f"{self.loop.micros / 1e6:.6f} {self.clock.now():%Y-%m-%dT%H:%M:%S} {what}"
        self._last.append(line)
        self._hash.update(line.encode())
        if self._trace is not None:
            self._trace(line)

    # What the ports ask

    async def commit(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
        """Write to the real ledger, and look at what came of it."""
        await self.watch.before(name, args, kwargs)
        answer = await getattr(self.ledger, name)(*args, **kwargs)
        if name != "wake" or answer:
            self.tell(f"{name} {_brief(args)}: {_brief(answer)}")
        await self.watch.after(name, args, kwargs, answer)
        return answer

    async def breathe(self, life: Life) -> None:
        """Let others go first, and perhaps die."""
        if self.roll is not None:
            await asyncio.sleep(0)
            if not life.is_over and self.weather.strikes(Fault.CRASH):
                self.crash("outside the ledger", life)
        if life.is_over:
            raise asyncio.CancelledError

    def making(self, life: Life) -> None:
        """Take note that a run is being made: a good time to be told to stop."""
        if self.stops_at_a_start and not self.weather.is_calm:
            self.stops_at_a_start = False
            life.told.set()

    def go(self, child: Child) -> None:
        """Let a run begin."""
        self.tell(f"run {child.run.number} of receipt {child.filed.number} is started")
        self.watch.went(child)
        self.children.begin(child)

    def request(self, source: str) -> None:
        """Let the engine know that a source has changed, if there is one."""
        if self.engine is None or self._context is None:
            self._dirty[source] = None
        else:
            self._context.copy().run(self.engine.request, source)

    def visit(self, errand: Callable[[Ledger, Engine], Awaitable[None]]) -> None:
        """Let somebody ask the engine for something, if it is up; it may die over it."""
        engine, life, context = self.engine, self.life, self._context
        if engine is None or life is None or context is None:
            return

        async def visiting() -> None:
            try:
                await errand(unsteady(self, life), engine)
            except (LedgerBusyError, LedgerWriteError) as error:
                self.tell(f"answer to the user: {error.code}")
                # What they asked for may be kept after all, so the engine has to look.
                engine.note_change()
            except StaleTermError:
                self.tell("answer to the user: another engine leads")

        self.loop.create_task(visiting(), context=context.copy())

    def crash(self, where: str, life: Life | None = None) -> None:
        """End an engine at once."""
        life = life or self.life
        if life is not None and not life.is_over:
            self.tell(f"crash {where}")
            self._end_life(life)

    def _end_life(self, life: Life) -> None:
        """Let nothing be left of an engine but what is durable."""
        life.end()
        self.children.orphaned(life)
        if life is not self.life:
            return
        self.is_stopping = False
        self.engine = None
        self.unsettled.clear()
        self._down.set()

    # The course of the world

    async def _main(self) -> None:
        """Let engines come and go until the time is over."""
        self.ledger = await self._shelf.open()
        if await self.ledger.newest_event():
            await self.watch.reload(self.start)
        for fault in self.weather.kinds:
            if fault in PACES:
                self.loop.create_task(self._fate(fault))
        for outage in self.setting.outages:
            delay = (outage.at.astimezone(UTC) - self.start).total_seconds()
            self.loop.call_later(max(0.0, delay), self._begin_outage, outage.length)
        end = self.setting.length.total_seconds()
        if self.setting.level is not Level.NONE:
            self.loop.call_at(max(0.0, end - CALM.total_seconds()), self._calm)
        over = asyncio.Event()
        self.loop.call_at(end, over.set)
        self.loop.call_at(end, self._down.set)
        self._outage: float = 0
        while not over.is_set():
            self._down.clear()
            task = self._begin()
            await self._down.wait()
            if over.is_set() and self.engine is not None:
                await self._finish()
            await self._let_go(task)
            if not over.is_set():
                await self._rest_in_outage()
        await self._shelf.close(self.ledger)
        if self.engine is None and self.setting.level is not Level.NONE:
            self.watch.fail("liveness", "no engine is running at the end")

    async def _let_go(self, task: asyncio.Task[None]) -> None:
        """Wait until nothing is left of an engine that is down."""
        if self.life is not None and not self.life.is_over:
            self.life.end()
        await asyncio.wait([task])

    def _begin(self) -> asyncio.Task[None]:
        self._lives += 1
        self.life = life = Life(self._lives, self.term)
        self._context = copy_context()
        self._context.run(LIFE.set, life)
        if self.roll is not None and self._lives > 1 and self.roll.random() < 0.4:
            self.weather.gusts = 60
        self.tell(f"engine {self._lives} starts")
        return self.loop.create_task(self._engine(life), context=self._context)

    async def _engine(self, life: Life) -> None:
        """Be an engine, until something ends it."""
        try:
            engine = self._make(life)
            await engine.start()
            self._lead(life, engine)
            for name in [*self._dirty]:
                engine.request(name)
            self._dirty.clear()
            turns = asyncio.create_task(engine.run())
            told = asyncio.create_task(life.told.wait())
            await asyncio.wait([turns, told], return_when=asyncio.FIRST_COMPLETED)
            turns.cancel()
            await asyncio.wait([turns])
            if not turns.cancelled():
                turns.result()  # it fell over
            await self._stop(life, engine)
        except (LedgerBusyError, LedgerWriteError) as error:
            self.crash(f"at start: {error.code}", life)
        except StaleTermError as error:
            self._is_fenced(life, error)
        except Exception as error:  # whatever it is, an engine must not fall over it
            tail = "".join(format_exception(error)[-4:])
            self.watch.fail("engine", f"it raised an error: {tail}")
            self.crash("after an error", life)

    def _is_fenced(self, life: Life, error: StaleTermError) -> None:
        """Take note that somebody else leads; where there is one engine nobody can."""
        self.watch.fail("engine", f"engine {life.number} raised an error: {error}")
        self.crash("after an error", life)

    def _make(self, life: Life) -> Engine:
        ledger = unsteady(self, life)
        capacity = Capacity(self.setting.slots, self.setting.crew)
        approvals = SimApprovals(self, life, ledger)
        engine = self._engine_type(
            clock=self._clock_of(life),
            ledger=ledger,
            runner=SimRunner(self, life, ledger),
            sources=[source(self, life) for source in SOURCES],
            capacity=capacity,
            term=life.term,
            approvals=approvals if self.roll is not None else None,
        )
        engine.gate = WatchedGate(self, capacity)
        approvals.poke = engine.note_change
        return engine

    def _clock_of(self, life: Life) -> SimClock:  # noqa: ARG002 - of several each has its own
        return self.clock

    def _lead(self, life: Life, engine: Engine) -> None:
        """Take note that an engine has begun."""
        if life is self.life:
            self.engine = engine

    async def _stop(self, life: Life, engine: Engine) -> None:
        """End an engine as `horae up` does when it is told to: nothing of it is left."""
        assert self.roll is not None
        self.is_stopping = life is self.life
        within = timedelta(seconds=self.roll.choice((0, 15, 90, 1800)))
        began, steps = self.loop.time(), self.steps_back
        self.tell(f"the engine receives a stop request: at most {within}")
        await engine.stop(within=within)
        await engine.turn()
        took = timedelta(seconds=self.loop.time() - began)
        self.tell(f"the engine stopped after {took}")
        self.watch.stopped(engine, within, took if steps == self.steps_back else None)
        self._end_life(life)

    async def _rest_in_outage(self) -> None:
        """Let time pass without an engine."""
        length, self._outage = self._outage, 0
        if not length:
            length = 5.0
            if self.roll is not None and not self.weather.is_calm:
                length = self.roll.choice(_OUTAGES)
        left = (self.setting.length - CALM).total_seconds() - self.loop.time()
        if self.setting.level is not Level.NONE:
            length = max(1.0, min(length, left))
        await asyncio.sleep(length)
        if self._restore is not None:
            await asyncio.sleep(LIFELINE.total_seconds())
            copy, self._restore = self._restore, None
            now = self.clock.now()
            await self._shelf.close(self.ledger)
            self.ledger = await self._shelf.restore(copy, now=now)
            self.tell("a backup is restored")
            await self.watch.reload(now)

    async def _finish(self) -> None:
        """Look at the world once more when its time is over."""
        if self.setting.level is not Level.NONE:
            await self.watch.at_last()
        if self._audit is not None and self.watch.broken is None:
            await self._audit(self)

    def _calm(self) -> None:
        """Let nothing go wrong any more."""
        self.tell("no more faults")
        self.weather.is_calm = True
        self.is_full = False
        self.loop.create_task(self._tidy())

    async def _tidy(self) -> None:
        """Let people do, once all is calm, what somebody has to do."""
        while True:
            self.people.release()
            await asyncio.sleep(3600)

    def _begin_outage(self, length: timedelta) -> None:
        """End the engine for a time that was said before."""
        self._outage = length.total_seconds()
        self.crash("for the simulated outage")

    # What happens by itself

    async def _fate(self, fault: Fault) -> None:
        """Let one kind of thing happen from time to time."""
        while True:
            await asyncio.sleep(self.weather.wait(fault))
            if self.weather.is_calm:
                return
            self.weather.struck[fault] += 1
            if self.people.can(fault):
                self.people.act(fault)
            else:
                await self._happen(fault)

    async def _happen(self, fault: Fault) -> None:
        """Let something happen that nobody does."""
        assert self.roll is not None
        match fault:
            case Fault.KILL:
                self.crash("at a random time")
            case Fault.STEP:
                self._step_clock(self.roll.choice(_STEPS) * self.roll.choice((1, -1)))
            case Fault.SUSPEND:
                length = timedelta(seconds=self.roll.choice((20, 400, 9000, 200_000)))
                self.clock.sleep(length)
                self.tell(f"the machine slept for {length}")
            case Fault.FULL:
                self.tell("the disk is full")
                self.is_full = True
                self.loop.call_later(self.roll.choice((3, 60, 1500)), self._make_room)
            case Fault.STOP:
                if self.life is not None and self.engine is not None and self.roll.random() < 0.5:
                    self.life.told.set()
                else:
                    self.stops_at_a_start = True
            case Fault.RESTORE:
                self._copies.append(await self._shelf.copy(self.ledger))
                if len(self._copies) > 1:
                    self._restore = self._copies.pop(0)
                    self.crash("to restore a backup")

    def _step_clock(self, by: timedelta) -> None:
        """Set the clock; one that is years away is set right first."""
        if abs(self.clock.offset) > _FAR / 2 and abs(by) > timedelta(days=30):
            by = -self.clock.offset
        if by < timedelta(0):
            self.steps_back += 1
        self.clock.step(by)
        self.tell(f"the clock is set by {by}")

    def _make_room(self) -> None:
        """End a full disk."""
        self.is_full = False
        self.tell("the disk has free space again")

    def _horizon(self) -> datetime | None:
        """Return what the engine itself waits for, as far as it is known outside."""
        self.watch.rests(is_idle=True)
        if self.engine is None or self.unsettled:
            return self.clock.now()
        others = (self.wake_at, self.engine.gate.next_at, *self.asked.values())
        return min((each for each in others if each is not None), default=None)

    def _late(self) -> timedelta:
        """Return how much later than it should somebody wakes."""
        if self.roll is None or not self.weather.strikes(Fault.SLOW_LOOP):
            return timedelta(0)
        return timedelta(seconds=self.roll.choice((0.2, 1.5, 12.0)))

    def _write(self, dice: Random) -> Written:
        if self.setting.files is not None:
            return Written(Plans(self.setting.zone, dict(self.setting.files)))
        return invent(dice, start=self.start, most=self.setting.most)


def _brief(thing: object) -> str:
    """Return a thing in few words, the same for the same thing."""
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
