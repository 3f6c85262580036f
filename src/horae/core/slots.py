"""The gate at work: which receipts wait, which hold a slot, and why the others do not.

Who may start is decided in the rules; here it is only remembered.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from horae.core import gate
from horae.core.entry import Work
from horae.core.gate import Ask, Capacity, GateState, Kind
from horae.core.policy import Overlap

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from datetime import datetime

    from horae.core.gate import Holding, Obstacle
    from horae.core.ports import Filed
    from horae.core.reason import Reason

_CREW = frozenset({Work.TICK, Work.DISPATCH})
_AT_HOME = frozenset({Work.RECYCLE, Work.DISPATCH})  # what edits the plan's own files


class Gate:
    """Every receipt that waits or runs."""

    def __init__(self, capacity: Capacity | None = None, *, home: str = "") -> None:
        self.capacity = capacity or Capacity()
        self.homes: dict[str, str] = {}  # where each agent last ran, if there are several machines
        self._home = home  # this machine, where the plan's files are edited
        self._state = GateState()
        self._known: dict[int, Filed] = {}
        self._later: list[tuple[datetime, int]] = []  # those whose start is still to come
        self._gone: list[int] = []  # released since the rules last heard of it

    def offer(self, receipts: Iterable[Filed]) -> None:
        """Take receipts that wait; one that is known already stays where it is."""
        for filed in receipts:
            if filed.number not in self._known:
                self._known[filed.number] = filed
                heappush(self._later, (filed.receipt.start_at, filed.number))

    def admit(self, *, now: datetime) -> tuple[list[Filed], list[tuple[Filed, Reason]]]:
        """Return who may start now, and who never can, with the reason; all of them hold."""
        due = []
        while self._later and self._later[0][0] <= now:
            _, number = heappop(self._later)
            if number in self._known:
                due.append(self._ask(self._known[number]))
        turn = gate.admit(gate.offer(self._released(), due), self.capacity, now=now)
        self._state = turn.state
        if self.capacity.machines is not None:
            self._remember(turn.admitted)
        refused = [(self._known[each.ask.number], each.reason) for each in turn.refused]
        return [self._known[ask.number] for ask in turn.admitted], refused

    def adopt(self, filed: Filed, *, now: datetime) -> None:
        """Take in a receipt that holds its slot already: an engine before this one let it in."""
        self._known[filed.number] = filed
        self._state = gate.adopt(self._released(), self._ask(filed), machine=filed.machine, now=now)
        self.homes.update(dict.fromkeys(filed.agents, filed.machine))

    def knows(self, number: int) -> bool:
        """Tell whether a receipt waits here, or holds a slot."""
        return number in self._known

    def machine_of(self, number: int) -> str:
        """Return where a receipt that holds a slot is to run."""
        return next((each.machine for each in self.holders if each.ask.number == number), "")

    def release(self, number: int) -> None:
        """Let others have what a receipt held; it may be offered again."""
        self._known.pop(number, None)
        self._gone.append(number)

    def keep(self, is_waiting: Callable[[int], bool]) -> None:
        """Forget those in the line that wait no longer: skipped, or held, meanwhile."""
        state = self._released()
        holding = {holder.ask.number for holder in state.holders}
        gone = [n for n in self._known if n not in holding and not is_waiting(n)]
        for number in gone:
            del self._known[number]
        self._state = gate.withdraw(state, *gone)

    @property
    def next_at(self) -> datetime | None:
        """When the next of those comes due whose start is still to come."""
        while self._later and self._later[0][1] not in self._known:
            heappop(self._later)
        return self._later[0][0] if self._later else None

    @property
    def has_line(self) -> bool:
        """Whether anybody waits, now or for a later start."""
        return bool(self._state.queue or self._later)

    @property
    def holders(self) -> Collection[Holding]:
        return self._released().holders

    def obstacles(self, *, now: datetime) -> list[Obstacle]:
        """Return for each in the line, the first first, why it does not start."""
        return list(gate.obstacles(self._released(), self.capacity, now=now))

    def startable(self, receipts: Iterable[Filed], *, now: datetime) -> list[Filed]:
        """Return which of some receipts that wait could start now, known here or not."""
        due = {each.number: each for each in receipts if each.receipt.start_at <= now}
        state = gate.offer(self._released(), map(self._ask, due.values()))
        free = gate.startable(state, self.capacity, now=now)
        return [due[ask.number] for ask in free if ask.number in due]

    def _ask(self, filed: Filed) -> Ask:
        """Return what a receipt needs to start."""
        at_home = (self._home,) if self._home and filed.work in _AT_HOME else ()
        return Ask(
            filed.number,
            filed.entry,
            filed.receipt.start_at,
            filed.agents,
            Kind.CREW if filed.work in _CREW else Kind.APPOINTMENT,
            filed.parent,
            filed.policy.overlap is Overlap.ALLOW,
            (*filed.policy.requires, *at_home),
            next((self.homes[each] for each in filed.agents if each in self.homes), ""),
        )

    def _remember(self, admitted: Iterable[Ask]) -> None:
        for ask in admitted:
            if ask.agents:
                self.homes.update(dict.fromkeys(ask.agents, self.machine_of(ask.number)))

    def _released(self) -> GateState:
        """Return the gate without all that was released since, in one go."""
        if self._gone:
            self._state = gate.release(self._state, *self._gone)
            self._gone.clear()
        return self._state
