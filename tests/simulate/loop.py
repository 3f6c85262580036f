"""Time that passes only when everybody waits: an event loop and the clock on its wall.

The loop has one thread and no machine behind it. When nobody can go on, it jumps to the next
timer. Whoever may go on is picked by the seed, not first come first served, so that another
seed is another order of the same things.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakSet

from horae.core.engine import LONGEST_REST

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context
    from random import Random

T = TypeVar("T")

_BUSIEST: Final = 500_000  # steps in one moment; a plan of thousands of entries takes many
_PATIENCE: Final = 10_000  # steps in which those must be gone who were told to go
_TINY: Final = timedelta(microseconds=1)
_EARLIEST: Final = datetime(1971, 1, 1, tzinfo=UTC)


class Standstill(Exception):  # noqa: N818 - it is a finding, not a slip of whoever called
    """Everybody waits and nothing will ever come, or somebody is so busy that no time passes."""


@dataclass(slots=True)
class Life:
    """One engine from its start to its end; all that it began ends with it."""

    number: int
    term: int = 1
    is_over: bool = False
    is_frozen: bool = False  # nobody of it gets a turn
    is_cut_off: bool = False  # it does not reach the ledger
    is_expired: bool = False  # its supervisors let nothing go, as they heard of no renewal
    told: asyncio.Event = field(default_factory=asyncio.Event)  # to stop in good order
    _tasks: dict[asyncio.Task[Any], None] = field(default_factory=dict)

    def take(self, task: asyncio.Task[Any]) -> None:
        if len(self._tasks) > 64:
            self._tasks = {each: None for each in self._tasks if not each.done()}
        self._tasks[task] = None

    def end(self) -> None:
        """End it at once: what its tasks still say, nobody hears."""
        self.is_over = True
        for task in self._tasks:
            task.cancel()


LIFE: Final[ContextVar[Life | None]] = ContextVar("life", default=None)


class SimLoop(asyncio.AbstractEventLoop):
    """An event loop in a time of its own."""

    def __init__(self, roll: Random | None = None) -> None:
        self._roll = roll
        self._micros = 0
        self._ready: list[_Call] = []
        self._timers: list[tuple[int, int, _Timer]] = []
        self._count = 0
        self._steps = 0  # since time last passed
        self._dead_timers = 0
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()  # only to be ended all together
        self._is_stopped = False
        self._is_running = False
        self._frozen: list[tuple[Life, _Call]] = []  # calls whose life gets no turn now
        self.may_freeze = False
        self.complaints: list[str] = []  # what nobody listened to

    @property
    def micros(self) -> int:
        """How much time has passed, in microseconds."""
        return self._micros

    @property
    def timers(self) -> int:
        """How many timers are set."""
        return len(self._timers) - self._dead_timers

    def run(self, main: Coroutine[Any, Any, T]) -> T | None:
        """Run until the end of *main*, or until somebody stops it: then there is no answer."""
        asyncio._set_running_loop(self)
        self._is_running = True
        try:
            task = self.create_task(main)
            while not task.done() and not self._is_stopped:
                self._step()
            if task.done():
                return task.result()
            return None
        finally:
            self._is_running = False
            asyncio._set_running_loop(None)

    def drain(self) -> None:
        """Let everybody end who is still there; time does not pass any more."""
        asyncio._set_running_loop(self)
        try:
            for task in list(self._tasks):
                task.cancel()
            for _ in range(_PATIENCE):
                if not self._ready:
                    break
                self._ready.pop(0).run()
        finally:
            asyncio._set_running_loop(None)

    def _step(self) -> None:
        """Let one of those go on who may; if there is none, let time pass."""
        if not self._ready:
            self._pass()
        self._steps += 1
        if self._steps > _BUSIEST:
            raise Standstill("a task never yields, so the clock cannot advance")
        ready, last = self._ready, len(self._ready) - 1
        if self._roll is None:
            call = ready.pop(0)
        else:
            if last:
                place = int(self._roll.random() * (last + 1))
                ready[place], ready[last] = ready[last], ready[place]
            call = ready.pop()
        if self.may_freeze and (life := call.life) is not None and life.is_frozen:
            self._frozen.append((life, call))
        else:
            call.run()

    def thaw(self, life: Life) -> None:
        """Let those of a life go on who got no turn."""
        life.is_frozen = False
        self._ready += [call for its, call in self._frozen if its is life]
        self._frozen = [each for each in self._frozen if each[0] is not life]

    def _pass(self) -> None:
        """Jump to the next timer, and let all go on whose time it is."""
        while self._timers and not self._ready:
            micros = self._timers[0][0]
            while self._timers and self._timers[0][0] == micros:
                timer = heappop(self._timers)[2]
                if timer.cancelled():
                    self._dead_timers -= 1
                else:
                    self._steps = 0 if micros > self._micros else self._steps
                    self._micros = max(self._micros, micros)
                    timer.is_out = True
                    self._ready.append(timer)
        if not self._ready:
            raise Standstill("deadlock: every task waits and no timer is set")

    # What asyncio asks of a loop

    def time(self) -> float:
        """Return how much time has passed, in seconds."""
        return self._micros / 1e6

    def call_soon(  # type: ignore[override] # as broad as asyncio takes it
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Let a callback go on as soon as it is its turn."""
        call = _Call(callback, args, self, context)
        self._ready.append(call)
        return call

    def call_at(  # type: ignore[override] # as above
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Let a callback go on at a time."""
        timer = _Timer(when, callback, args, self, context)
        self._count += 1
        heappush(self._timers, (max(self._micros, round(when * 1e6)), self._count, timer))
        return timer

    def call_later(  # type: ignore[override] # as above
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Let a callback go on after a while."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Take note that a timer is not wanted any more; it is thrown away in its time."""
        if isinstance(handle, _Timer) and not handle.is_out:
            self._dead_timers += 1
            if self._dead_timers > 1000:
                self._timers = [each for each in self._timers if not each[2].cancelled()]
                self._timers.sort()
                self._dead_timers = 0

    def create_future(self) -> asyncio.Future[Any]:
        """Return something to wait for."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override] # asyncio's own signature differs by version
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
        **_: Any,
    ) -> asyncio.Task[T]:
        """Let a coroutine go on by itself; it belongs to the life that it was begun in."""
        task = asyncio.Task(coro, loop=self, name=name or "task", context=context)
        self._tasks.add(task)
        life = context.get(LIFE) if context is not None else LIFE.get()
        if life is not None:
            life.take(task)
            if life.is_over:
                task.cancel()
        return task

    def stop(self) -> None:
        """Let nobody go on any more."""
        self._is_stopped = True

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return False

    def get_debug(self) -> bool:
        """Tell that it is not watched more closely."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Remember an error that nobody listened to."""
        self.complaints.append(f"{context.get('message')}: {context.get('exception')!r}")


class _Call(asyncio.Handle):
    """A callback that may go on."""

    __slots__ = ()

    @property
    def life(self) -> Life | None:
        """The engine that it belongs to, if it is one's."""
        found: Life | None = self._context.get(LIFE)  # type: ignore[attr-defined] # asyncio's own
        return found

    def run(self) -> None:
        """Let it go on."""
        if not self.cancelled():
            self._run()


class _Timer(asyncio.TimerHandle, _Call):
    """A callback that may go on at its time."""

    is_out = False


class SimClock:
    """A clock on the wall of the simulated world, which people and time servers set.

    Resting is as long as the engine says. But when it would only rest again and again, because
    by its own word nothing comes, the turns in between are left out; *horizon* tells what comes
    next, and a clock that is set makes it notice at the very turn at which it would have.
    """

    def __init__(
        self,
        loop: SimLoop,
        now: datetime,
        *,
        horizon: Callable[[], datetime | None] | None = None,
        late: Callable[[], timedelta] | None = None,
    ) -> None:
        self._loop = loop
        self._began = now
        self._rests: dict[int, _Rest] = {}
        self._horizon = horizon
        self._late = late
        self._slept = timedelta(0)
        self.offset = timedelta(0)

    def now(self) -> datetime:
        return self._began + self.offset + self._loop.micros * _TINY

    def elapsed(self) -> timedelta:
        """Return how much time has passed, however it was set."""
        return self._loop.micros * _TINY + self._slept

    def sleep(self, length: timedelta) -> None:
        """Let the machine sleep: all clocks go on, and nobody does."""
        self._slept += length
        self.step(length)

    def step(self, by: timedelta) -> None:
        """Set it, as a person or a time server does: no time passes."""
        by = max(by, _EARLIEST - self.now())
        self.offset += by
        for rest in list(self._rests.values()):
            rest.notice(self._loop)

    async def wait(self, event: asyncio.Event, *, until: datetime) -> None:
        """Return when so much time has passed as is missing now, or the event is set."""
        if event.is_set():
            return
        length = max(timedelta(0), until - self.now())
        if self._late is not None:
            length += self._late()
        if length == LONGEST_REST and self._horizon is not None:
            length = self._quiet()
        rest = _Rest(event, self._loop.micros)
        rest.set(self._loop, rest.began + length // _TINY)
        self._rests[id(rest)] = rest
        try:
            await event.wait()
        finally:
            rest.timer.cancel()
            del self._rests[id(rest)]

    def _quiet(self) -> timedelta:
        """Return so many whole rests as pass before something comes; at most an hour of them."""
        assert self._horizon is not None
        at = self._horizon()
        most = timedelta(hours=1) if at is None else at - self.now()
        return max(1, min(most, timedelta(hours=1)) // LONGEST_REST) * LONGEST_REST


@dataclass(slots=True)
class _Rest:
    """Somebody who rests, and since when."""

    event: asyncio.Event
    began: int
    timer: asyncio.TimerHandle = field(init=False)

    def set(self, loop: SimLoop, micros: int) -> None:
        """Let it end at a time."""
        self.timer = loop.call_at(micros / 1e6, self._over)

    def notice(self, loop: SimLoop) -> None:
        """Let it end with the turn that comes next of those that were left out."""
        rests = (loop.micros - self.began) * _TINY // LONGEST_REST + 1
        end = self.began + rests * (LONGEST_REST // _TINY)
        if end < round(self.timer.when() * 1e6):
            self.timer.cancel()
            self.set(loop, end)

    def _over(self) -> None:
        """Wake whoever rests, and leave the event as it was."""
        if not self.event.is_set():
            self.event.set()
            self.event.clear()
