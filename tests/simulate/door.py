"""The door of a simulated engine: who must be approved first, and whether the gate is fair.

The gate is the real one. Each of its turns is judged once more by the plainest reading of its
rules: whoever is let in, nobody who stood before it could have been.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from horae.core.entry import Overlap, Work
from horae.core.gate import Gate
from horae.core.receipt import Reason, ReasonCode, Status
from simulate.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import datetime

    from horae.core.gate import Capacity
    from horae.core.ports import Ledger
    from horae.core.receipt import Filed
    from simulate.loop import Life
    from simulate.world import World

APPROVAL: Final = timedelta(hours=6)  # so long somebody may approve; then it needs nobody
_CREW: Final = frozenset({Work.TICK, Work.DISPATCH})


class SimApprovals:
    """Holds some receipts until somebody has approved them."""

    source = "trigger"

    def __init__(self, world: World, life: Life, ledger: Ledger) -> None:
        self._world = world
        self._life = life
        self._ledger = ledger
        self.poke: Callable[[], None] = lambda: None

    async def admit(self, receipts: Sequence[Filed]) -> list[Filed]:
        """Return which of some waiting receipts may go to the gate."""
        return [each for each in receipts if not await self._asks_first(each)]

    async def lapse(self) -> datetime | None:
        """Let go on what nobody approved in time; return when the next one comes to that."""
        asked, now = self._world.asked, self._world.clock.now()
        for number, until in list(asked.items()):
            filed = await self._ledger.receipt(number)
            if filed is None or filed.status is not Status.HELD:
                asked.pop(number, None)
            elif until <= now:
                self._world.approved[number] = None
                words = "not approved in time, done anyway"
                reason = Reason(ReasonCode.APPROVAL_EXPIRED, words)
                await self._ledger.release(number, reason=reason, now=now, term=self._life.term)
                asked.pop(number, None)
                self._world.watch.seen["approval lapsed"] += 1
                self.poke()
        return min(asked.values(), default=None)

    async def _asks_first(self, filed: Filed) -> bool:
        """Tell whether somebody must approve a receipt, and hold it until then."""
        world, number = self._world, filed.number
        if filed.source != self.source or filed.attempts or number in world.approved:
            return False
        if number not in world.asked:
            if not world.weather.strikes(Fault.APPROVAL):
                world.approved[number] = None  # asked once, it is always the same answer
                return False
            world.asked[number] = world.clock.now() + APPROVAL
        reason = Reason(ReasonCode.APPROVAL_REQUIRED, "waiting for approval")
        now = world.clock.now()
        await self._ledger.hold(number, reason=reason, now=now, term=self._life.term)
        return True


class WatchedGate(Gate):
    """The gate, and somebody beside it who judges every turn."""

    def __init__(self, world: World, capacity: Capacity) -> None:
        super().__init__(capacity)
        self._world = world
        self.refused: dict[int, None] = {}  # who holds nothing while that is being written down

    def admit(
        self, *, now: datetime, over: Collection[int] = ()
    ) -> tuple[list[Filed], list[tuple[Filed, Reason]]]:
        """Return who may start now, and who never can."""
        held = {each.ask.number: each.slot for each in self.holders}
        before = {number: slot for number, slot in held.items() if number not in over}
        admitted, refused = super().admit(now=now, over=over)
        if admitted and over:
            self._world.watch.seen["started beside an end"] += 1
        if admitted:
            self._judge(before, admitted, [filed.number for filed, _ in refused], now)
        for filed, _ in refused:
            self.refused[filed.number] = None
            self._world.watch.seen["rider refused"] += filed.parent is not None
        return admitted, refused

    def release(self, number: int) -> None:
        """Let others have what a receipt held."""
        self.refused.pop(number, None)
        super().release(number)

    def _judge(
        self, before: dict[int, int], admitted: list[Filed], refused: list[int], now: datetime
    ) -> None:
        """Look at one turn, from the first who was let in to the last."""
        slots = {each.ask.number: each.slot for each in self.holders}
        line = sorted(
            (
                each
                for each in self._known.values()
                if each.number not in slots
                and each.number not in refused
                and each.number not in self.refused
                and each.receipt.start_at <= now
            ),
            key=_place,
        )
        inside = dict(before)
        for filed in admitted:
            self._is_in_its_slot(filed, slots[filed.number], inside)
            for other in line:
                if _place(other) >= _place(filed) or filed.parent in inside:
                    break
                if self._is_free(other, inside, line, now):
                    self._world.watch.fail(
                        "I7",
                        f"receipt {filed.number} got a slot before {other.number}, which could"
                        f" start and was ahead of it in the queue since {other.receipt.start_at}",
                    )
                    return
                self._world.watch.seen["passed over"] += 1
            inside[filed.number] = slots[filed.number]

    def _is_in_its_slot(self, filed: Filed, slot: int, inside: dict[int, int]) -> None:
        """Look at whether a rider sits beside its parent, and everybody else alone."""
        watch = self._world.watch
        if filed.parent in inside:
            watch.seen["rode in its parent's slot"] += 1
            if slot != inside[filed.parent]:
                watch.fail("I7", f"receipt {filed.number} is not in the slot of its parent")
        elif slot in inside.values():
            watch.fail("I7", f"receipt {filed.number} got slot {slot}, which is in use")
        if not 1 <= slot <= self.capacity.slots:
            watch.fail("I7", f"receipt {filed.number} got slot {slot}, which does not exist")

    def _is_free(
        self, filed: Filed, inside: dict[int, int], line: Sequence[Filed], now: datetime
    ) -> bool:
        """Tell whether a receipt could have started beside these."""
        holders = [self._known[number] for number in inside if number in self._known]
        taken = {need for each in holders for need in (*each.agents, each.entry)}
        if taken.intersection(_needs(filed)):
            return False
        if filed.parent in inside:
            return True
        crew = {slot for number, slot in inside.items() if self._is_crew(number, inside)}
        is_crew = filed.work in _CREW
        if len({*inside.values()}) >= self.capacity.slots:
            return False
        if is_crew and len(crew) >= self.capacity.crew:
            return False
        # Somebody before it may have been passed over for so long that this is kept for it.
        patience = now - self.capacity.patience
        return not any(
            other.receipt.start_at <= patience
            and ({*_needs(other)}.intersection(_needs(filed)) or (is_crew and other.work in _CREW))
            for other in line
            if _place(other) < _place(filed)
        )

    def _is_crew(self, number: int, inside: dict[int, int]) -> bool:
        """Tell whether a slot is held on the crew's account: by whoever did not ride in it."""
        filed = self._known.get(number)
        return filed is not None and filed.work in _CREW and filed.parent not in inside


def _place(filed: Filed) -> tuple[bool, datetime, int]:
    """Return where in the line a receipt stands: those inside a run first, then by time."""
    return filed.parent is None, filed.receipt.start_at, filed.number


def _needs(filed: Filed) -> tuple[str | int, ...]:
    """Return what nobody else may have while a receipt runs."""
    if filed.policy.overlap is Overlap.ALLOW:
        return filed.agents
    return (*filed.agents, filed.entry)
