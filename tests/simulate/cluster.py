"""Several engines on one ledger, each with a clock of its own, of which one leads at a time.

Whoever leads holds a lease that ends by the ledger's clock unless it is renewed; here a lease is
renewed as long as its holder gets turns and reaches the ledger. When it is over another engine
leads, in the next term. The one before may still live: its runs are ended by their supervisors
before the lease is over, and whatever it writes is refused.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from horae.core.lease import trusted_until
from horae.core.ports import StaleTermError
from simulate.faults import Fault
from simulate.loop import SimClock
from simulate.world import Shelf, World

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from datetime import datetime

    from horae.core.ports import Ledger
    from simulate.loop import Life
    from simulate.world import Setting

LEASE: Final = timedelta(seconds=30)
MARGIN: Final = timedelta(seconds=5)  # so long an engine's own end, and that of its runs, may take
SKEW: Final = 600  # seconds by which a clock may differ
_DELICATE: Final = frozenset({"decide", "start_many", "running_many", "end_many", "settle"})
_LENGTHS: Final = (3.0, 18.0, 24.0, 27.0, 60.0, 900.0, 7200.0)


class SharedShelf(Shelf, Protocol):
    """Where ledgers come from that several engines write."""

    async def begin_term(self, ledger: Ledger) -> int:
        """Begin the next term of a ledger, and return it: what is over writes nothing more."""
        ...


class Cluster(World):
    """A world with several engines."""

    # Of several clocks none is the one that is set; and there is one ledger, wherever it is.
    unknown = (Fault.STEP, Fault.SUSPEND, Fault.RESTORE, Fault.LIMIT)

    def __init__(
        self,
        setting: Setting,
        shelf: SharedShelf,
        *,
        members: int = 3,
        audit: Callable[[World], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(setting, shelf, audit=audit)
        assert self.roll is not None, "several engines follow the dice"
        self.loop.may_freeze = True
        self._shared = shelf
        self._lease_ends = 0.0  # by the ledger's clock
        self._trusted_until = 0.0  # by the count of whoever holds it
        self._ghosts: list[Life] = []  # those that lead no more, and do not know it yet
        self._member = 0
        self._soon: Callable[[], None] | None = None  # what happens the next time it hurts most
        self._clocks = [
            SimClock(
                self.loop,
                self.start + timedelta(seconds=self.roll.randint(-SKEW, SKEW)),
                horizon=partial(self._horizon_of, member),
                late=self._late,
            )
            for member in range(members)
        ]
        self.clock = self._clocks[0]

    async def commit(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
        """Write to the real ledger, in the present term only."""
        try:
            answer = await super().commit(name, args, kwargs)
        except StaleTermError:
            self.watch.seen["fenced write refused"] += 1
            self.tell(f"{name}: refused, its term has ended")
            raise
        if kwargs["term"] != self.term:
            self.watch.fail("I3", f"{name} was written in term {kwargs['term']}, not {self.term}")
        if name in _DELICATE:
            self._now()
        return answer

    def making(self, life: Life) -> None:
        """Take note that a run is being made."""
        super().making(life)
        self._now()

    # Who leads

    def _begin(self) -> asyncio.Task[None]:
        """Let an engine lead that is not known to be frozen or cut off."""
        assert self.roll is not None
        if live := sorted(self.children.live):
            self.watch.fail("I16", f"runs {live} are alive after the lease of their engine ended")
        was, self._member = self.clock, self.roll.randrange(len(self._clocks))
        self.clock = self._clocks[self._member]
        self.steps_back += self.clock.now() < was.now()
        self.tell(f"the engine of node {self._member} leads in term {self.term}")
        return super()._begin()

    async def _let_go(self, task: asyncio.Task[None]) -> None:
        """Wait until nothing is left of an engine, unless it leads no more and lives."""
        if self.life not in self._ghosts:
            await super()._let_go(task)

    async def _rest_in_outage(self) -> None:
        """Let nobody lead until the lease is over, and then the next one."""
        self._outage = max(1.0, self._lease_ends - self.loop.time())
        await super()._rest_in_outage()
        term = await self._shared.begin_term(self.ledger)
        if term <= self.term:
            self.watch.fail("I17", f"term {term} comes after {self.term}")
        self.term = term

    def _end_life(self, life: Life) -> None:
        """Let nothing be left of an engine; its lease goes on unless it gave it back."""
        if life is self.life and not (life.is_frozen or life.is_cut_off):
            self._lease_ends = self.loop.time()
            if not self.is_stopping:
                self._stop_renewing()
        super()._end_life(life)
        self.loop.thaw(life)

    def _is_fenced(self, life: Life, error: StaleTermError) -> None:
        """End an engine that was told that it leads no more."""
        if life is self.life:
            super()._is_fenced(life, error)
        self.crash(f"of engine {life.number}: another engine leads", life)

    async def _finish(self) -> None:
        """Look at the world once more: of those that led, only one lives."""
        if any(not life.is_over for life in self._ghosts):
            self.watch.fail("liveness", "two engines that have led are alive")
        await super()._finish()

    # What happens to one of them

    async def _happen(self, fault: Fault) -> None:
        """Let something happen that nobody does."""
        assert self.roll is not None
        match fault:
            case Fault.FREEZE | Fault.PARTITION:
                begin = self._freeze if fault is Fault.FREEZE else self._cut_off
                trouble = partial(self._trouble, begin, self.roll.choice(_LENGTHS))
                if self.roll.random() < 0.3:
                    trouble()
                else:
                    self._soon = trouble
            case _:
                await super()._happen(fault)

    def _now(self) -> None:
        """Let happen what was to happen between two steps of a start or an end."""
        assert self.roll is not None
        if self._soon is not None and not self.weather.is_calm and self.roll.random() < 0.4:
            trouble, self._soon = self._soon, None
            trouble()

    def _trouble(self, begin: Callable[[Life, float], None], length: float) -> None:
        """Let something happen to the engine that leads, if nothing does already."""
        life = self.life
        if life is None or life.is_over or life.is_frozen or life.is_cut_off:
            return
        self._stop_renewing()
        begin(life, length)

    def _freeze(self, life: Life, length: float) -> None:
        """Let an engine get no turn for a while."""
        self.tell(f"engine {life.number} is suspended for {length} s")
        life.is_frozen = True
        self._at(self._trusted_until, self._expire, life)
        self._at(self._lease_ends, self._take_over, life)
        self._at(self.loop.time() + length, self._thaw, life)

    def _thaw(self, life: Life) -> None:
        self.tell(f"engine {life.number} continues")
        # What is over cannot be renewed, even if nobody else leads yet.
        life.is_expired &= life in self._ghosts
        self.loop.thaw(life)
        if life in self._ghosts:
            # It renews its lease before a third of that is over, and is told that it leads no more.
            self._at(self.loop.time() + LEASE.total_seconds() / 3, self._is_deposed, life)

    def _is_deposed(self, life: Life) -> None:
        if not life.is_over:
            self.crash(f"of engine {life.number}: its lease is over", life)

    def _expire(self, life: Life) -> None:
        """Let supervisors end the runs of an engine that they have not heard of."""
        if life.is_frozen and not life.is_over:
            self.tell(f"the runs of engine {life.number} are ended by their supervisors")
            life.is_expired = True
            self.children.expired(life)

    def _take_over(self, life: Life) -> None:
        """Let another engine lead, though the one before may still live."""
        if life is self.life and life.is_frozen and not life.is_over:
            self.tell(f"the lease of engine {life.number} has ended")
            self.watch.seen["led while another lived"] += 1
            self._ghosts.append(life)
            self.engine = None
            self.unsettled.clear()
            self.is_stopping = False
            self._down.set()

    def _cut_off(self, life: Life, length: float) -> None:
        """Let an engine not reach the ledger for a while."""
        self.tell(f"engine {life.number} cannot reach the ledger for {length} s")
        life.is_cut_off = True
        self._at(self._trusted_until, self._give_up, life)
        self._at(self.loop.time() + length, self._reach, life)

    def _reach(self, life: Life) -> None:
        life.is_cut_off = False
        self.tell(f"engine {life.number} can reach the ledger again")

    def _give_up(self, life: Life) -> None:
        """End an engine that could not renew its lease, by its own word."""
        if life.is_cut_off:
            self.crash(f"of engine {life.number}: it could not renew its lease", life)

    def _at(self, when: float, what: Callable[[Life], None], life: Life) -> None:
        """Let something happen to an engine, whether or not it gets turns."""
        self.loop.call_at(when, what, life, context=self.outside)

    def _stop_renewing(self) -> None:
        """Let the lease end in its time."""
        assert self.roll is not None
        longest = (LEASE / 4).total_seconds()
        began = self.loop.time() - self.roll.uniform(0, longest)
        self._lease_ends = began + self.roll.uniform(0, 1) + LEASE.total_seconds()
        trusted = trusted_until(timedelta(seconds=began), LEASE, margin=MARGIN)
        self._trusted_until = trusted.total_seconds()

    # Time

    def _horizon_of(self, member: int) -> datetime | None:
        """Return what an engine waits for; of one that leads no more, nothing is left out."""
        if self.clock is self._clocks[member]:
            return self._horizon()
        return self._clocks[member].now()
