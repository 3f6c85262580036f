"""Which receipts may start now, and why the others wait.

A request is all or nothing: one slot, every agent that it names and, unless its runs may overlap,
its entry. A waiting request holds nothing. The queue is in the order of due times. A request that
lacks something is passed over, but the first in the queue, passed over for as long as the gate's
patience, has what it needs reserved.

A run that was requested inside a run uses its parent's slot and needs only its agents. As the
parent waits for it, it comes before all others. If it would have to wait for its own parent,
directly or not, neither could end: it is refused with that reason.

Each of several nodes has slots of its own, and a request may name labels that its node must have.
An agent runs where it last ran, if that node is up, not being drained, and has room.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from heapq import heappop, heappush
from typing import Final, NamedTuple, TypeAlias

from horae.core.entry import Overlap, Work
from horae.core.receipt import Filed, Reason, ReasonCode

# What one run at a time may occupy: an agent by its name, an entry by its number.
Need: TypeAlias = str | int

_CREW: Final = frozenset({Work.TICK, Work.DISPATCH})
_AT_HOME: Final = frozenset({Work.RECYCLE, Work.DISPATCH})  # work that edits the plan's files
_READY: Final = Reason(ReasonCode.CAN_START, "ready to start")
_MANY: Final = 32  # up to so many new requests are inserted one by one, more are sorted in


class SlotKind(StrEnum):
    APPOINTMENT = "appointment"  # a scheduled time or a request
    CREW = "crew"  # a tick, or a task for a member


@dataclass(frozen=True, slots=True)
class Machine:
    name: str
    slots: int
    labels: frozenset[str] = frozenset()
    is_draining: bool = False

    def suits(self, requires: Iterable[str]) -> bool:
        return not self.is_draining and all(
            label == self.name or label in self.labels for label in requires
        )


@dataclass(frozen=True, slots=True)
class Capacity:
    """The slots and the patience of the gate; without `machines` there is one node."""

    slots: int = 4
    crew: int = 2  # of the slots, for ticks and dispatches
    patience: timedelta = timedelta(minutes=10)
    machines: tuple[Machine, ...] | None = None


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """A receipt that is to run, and what it needs.

    `due_at` is its place in the queue. `parent` is the receipt inside whose run it was requested,
    and which waits for it.
    """

    number: int
    entry: int
    due_at: datetime
    agents: tuple[str, ...] = ()
    kind: SlotKind = SlotKind.APPOINTMENT
    parent: int | None = None
    may_overlap: bool = False
    requires: tuple[str, ...] = ()  # labels of its node
    prefers: str = ""  # the node where its agent last ran

    @property
    def kind_of_needs(self) -> Hashable:
        """What those have in common that need the same; None: it may use the slot of a parent."""
        if self.parent is not None:
            return None
        return self.agents, self.entry, self.may_overlap, self.kind, self.requires, self.prefers

    @property
    def needs(self) -> tuple[Need, ...]:
        return self.agents if self.may_overlap else (*self.agents, self.entry)


@dataclass(frozen=True, slots=True)
class Holding:
    ask: SlotRequest
    slot: int
    kind: SlotKind
    since: datetime
    machine: str = ""  # the node where it runs or is to run, if there are several
    rides: bool = False  # it uses the slot of its parent


@dataclass(frozen=True, slots=True)
class Waiting:
    ask: SlotRequest
    passed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Obstacle:
    ask: SlotRequest
    reason: Reason
    behind: int | None = None


def no_machine(requires: Sequence[str]) -> str:
    wanted = " and ".join(requires)
    return f"no node with {wanted} is up" if wanted else "no node is up"


@dataclass(slots=True)
class GateState:
    holders: dict[int, Holding] = field(default_factory=dict)
    line: list[Waiting] = field(default_factory=list)
    # How many of the line need the same; a backfill files thousands of receipts of one entry.
    _alike: Counter[Hashable] = field(init=False)

    def __post_init__(self) -> None:
        self._alike = Counter(filter(None, (each.ask.kind_of_needs for each in self.line)))

    def offer(self, asks: Iterable[SlotRequest]) -> None:
        new = {ask.number: ask for ask in reversed(tuple(asks)) if ask.number not in self.holders}
        for each in self.line if new else ():
            new.pop(each.ask.number, None)
        self._alike.update(filter(None, (ask.kind_of_needs for ask in new.values())))
        if len(new) < _MANY:
            for ask in new.values():
                insort(self.line, Waiting(ask), key=_place)
        else:
            self.line += map(Waiting, new.values())
            self.line.sort(key=_place)

    def adopt(self, ask: SlotRequest, *, machine: str, now: datetime) -> None:
        if ask.number in self.holders:
            return
        room = _Room(self.holders.values(), Capacity())
        if ask.parent in self.holders:
            self.holders[ask.number] = room.let_in(ask, now=now)  # in the slot of its parent
        else:
            self.holders[ask.number] = room.take(ask, machine, now=now)
        self.withdraw({ask.number})

    def withdraw(self, numbers: Collection[int]) -> None:
        for each in self.line if numbers else ():
            if each.ask.number in numbers:
                self._uncount(each.ask)
        self.line = [each for each in self.line if each.ask.number not in numbers]

    def _uncount(self, ask: SlotRequest) -> None:
        if (kind := ask.kind_of_needs) is not None:
            self._alike[kind] -= 1
            if not self._alike[kind]:
                del self._alike[kind]

    def admit(
        self, capacity: Capacity, *, now: datetime, over: Collection[int] = ()
    ) -> tuple[list[SlotRequest], list[Obstacle]]:
        """Admit all requests that may start now, in order; also return those that never can.

        The slots of receipts in *over* are free, and what else they hold is not yet: admission ends
        at the first request that may wait for that.

        >>> at = datetime(2026, 4, 1, 9)
        >>> agents = ("wren",), ("wren",), ("moss",)
        >>> state, room = GateState(), Capacity()
        >>> state.offer(SlotRequest(number, number, at, each) for number, each in enumerate(agents))
        >>> [ask.number for ask in state.admit(room, now=at)[0]]
        [0, 2]
        >>> [(each.ask.number, each.reason) for each in state.obstacles(room, now=at)]
        [(1, 'wren is busy with receipt 0')]
        """
        if not self.line:
            return [], []
        leaving = [self.holders[each] for each in over if each in self.holders]
        kept = {need for each in leaving for need in (*each.ask.agents, each.ask.entry)}
        room = _Room((each for n, each in self.holders.items() if n not in over), capacity)
        admitted: list[SlotRequest] = []
        refused: list[Obstacle] = []
        rest: list[Waiting] = []
        seen = passed = 0
        lacking: dict[Hashable, _Lack] = {}
        for waiting, lack in _lacks(room, self.line, lacking, now=now):
            ask = waiting.ask
            if ask.parent is None and (room.is_full or not room.has_machine):
                break  # requests with a parent come before all others
            if leaving and (ask.parent is not None or not kept.isdisjoint(ask.needs)):
                break
            seen += 1
            if lack is None:
                self._uncount(ask)
                self.holders[ask.number] = room.let_in(ask, now=now)
                admitted.append(ask)
                passed = len(rest)
            elif (circle := room.circle(ask)) is not None:
                words = f"{circle.reason}, which waits for this run"
                reason = Reason(ReasonCode.DEADLOCK, words)
                refused.append(Obstacle(ask, reason, circle.by))
            else:
                room.let_wait(ask)
                rest.append(waiting)
                if ask.parent is None and len(lacking) == len(self._alike):
                    break  # all after it lack the same as one before them
        if admitted or refused:
            for place, each in enumerate(rest[:passed]):
                # A clock set back must not prolong its wait.
                if each.passed_at is None or each.passed_at > now:
                    rest[place] = replace(each, passed_at=now)
            self.line[:seen] = rest
        return admitted, refused

    def obstacles(self, capacity: Capacity, *, now: datetime) -> Iterator[Obstacle]:
        room = _Room(self.holders.values(), capacity)
        for waiting, lack in _lacks(room, self.line, {}, now=now):
            reason, by, _ = lack or _Lack(_READY)
            yield Obstacle(waiting.ask, reason, by)


class _Lack(NamedTuple):
    reason: Reason
    by: int | None = None
    is_crew: bool = False  # it lacks a slot of the crew


class _Room:
    def __init__(self, holders: Iterable[Holding], capacity: Capacity) -> None:
        self.capacity = capacity
        self._homes: dict[int, Holding] = {}
        self._slots: set[int] = set()
        self._crew_slots: set[int] = set()
        self._taken: dict[Need, list[int]] = {}
        self._placed: set[int] = set()  # slots on a node
        self._held: Counter[str] = Counter()  # slots in use, by node
        self._waits_for: dict[int, list[int]] = {}  # a receipt, and those that must end before it
        self.first: SlotRequest | None = None
        self._free = 1  # no lower slot is free
        for holding in holders:
            self._add(holding)

    @property
    def is_full(self) -> bool:
        return len(self._slots) >= self.capacity.slots

    @property
    def has_machine(self) -> bool:
        machines = self.capacity.machines
        return machines is None or any(
            each.suits(()) and self._held[each.name] < each.slots for each in machines
        )

    def lack(self, ask: SlotRequest) -> _Lack | None:
        if self._home(ask) is not None:
            return next(self._busy(ask), None)
        if ask.kind is SlotKind.CREW and self._crew_room <= 0:
            words = f"the crew has no free slot; crew.max_concurrent is {self.capacity.crew}"
            return _Lack(Reason(ReasonCode.CREW_FULL, words), is_crew=True)
        if (busy := next(self._busy(ask), None)) is not None:
            return busy
        if self.is_full:
            words = f"no slot is free; gate.slots is {self.capacity.slots}"
            return _Lack(Reason(ReasonCode.NO_SLOT, words))
        if isinstance(where := self._where(ask), _Lack):
            return where
        return None if self.first is None else self._kept(ask, self.first)

    def let_in(self, ask: SlotRequest, *, now: datetime) -> Holding:
        parent = self._home(ask)
        if parent is None:
            where = self._where(ask)
            return self.take(ask, where if isinstance(where, str) else "", now=now)
        return self._add(Holding(ask, parent.slot, parent.kind, now, parent.machine, rides=True))

    def take(self, ask: SlotRequest, machine: str, *, now: datetime) -> Holding:
        while self._free in self._slots:
            self._free += 1
        return self._add(Holding(ask, self._free, ask.kind, now, machine))

    def let_wait(self, ask: SlotRequest) -> None:
        if ask.parent is not None:
            others = [each for need in ask.needs for each in self._taken.get(need, ())]
            self._waits_for.setdefault(ask.parent, []).extend(others)

    def circle(self, ask: SlotRequest) -> _Lack | None:
        parent = self._home(ask)
        if parent is None:
            return None
        ends_later = (lack for lack in self._busy(ask) if self._leads(lack.by, parent.ask.number))
        return next(ends_later, None)

    @property
    def _crew_room(self) -> int:
        return self.capacity.crew - len(self._crew_slots)

    def _home(self, ask: SlotRequest) -> Holding | None:
        return None if ask.parent is None else self._homes.get(ask.parent)

    def _where(self, ask: SlotRequest) -> str | _Lack:
        if self.capacity.machines is None:
            return ""
        fit = [each for each in self.capacity.machines if each.suits(ask.requires)]
        if not fit:
            return _Lack(Reason(ReasonCode.NO_NODE, no_machine(ask.requires)))
        held = self._held
        free = [each for each in fit if held[each.name] < each.slots]
        free = [each for each in free if each.name == ask.prefers] or free
        if not free:
            full = " or ".join(each.name for each in fit)
            return _Lack(Reason(ReasonCode.NODE_FULL, f"no slot is free on {full}"))
        return min(free, key=lambda each: (held[each.name] / each.slots, each.name)).name

    def _busy(self, ask: SlotRequest) -> Iterator[_Lack]:
        for need in ask.needs:
            for number in self._taken.get(need, ()):
                reason = Reason(ReasonCode.ENTRY_BUSY, f"the entry is busy with receipt {number}")
                if isinstance(need, str):
                    words = f"{need} is busy with receipt {number}"
                    reason = Reason(ReasonCode.AGENT_BUSY, words)
                yield _Lack(reason, number)

    def _kept(self, ask: SlotRequest, first: SlotRequest) -> _Lack | None:
        by = first.number
        reserved = f"reserved for receipt {by}, first in the queue"
        wants_place = first.kind is SlotKind.CREW and self._home(first) is None
        if ask.kind is SlotKind.CREW and wants_place and self._crew_room == 1:
            words = f"the crew's next slot is {reserved}"
            return _Lack(Reason(ReasonCode.CREW_RESERVED, words), by, is_crew=True)
        for need in ask.needs:
            if need in first.needs and isinstance(need, str):
                return _Lack(Reason(ReasonCode.AGENT_RESERVED, f"{need} is {reserved}"), by)
            if need in first.needs:
                words = f"receipt {by} of the same entry is first in the queue"
                return _Lack(Reason(ReasonCode.ENTRY_RESERVED, words), by)
        return None

    def _leads(self, start: int | None, goal: int) -> bool:
        """Return whether *start* cannot end before *goal* does, or is *goal*."""
        seen: set[int] = set()
        ahead = [] if start is None else [start]
        while ahead:
            number = ahead.pop()
            if number == goal:
                return True
            if number not in seen:
                seen.add(number)
                ahead.extend(self._waits_for.get(number, ()))
        return False

    def _add(self, holding: Holding) -> Holding:
        ask = holding.ask
        self._homes[ask.number] = holding
        self._slots.add(holding.slot)
        if holding.machine and holding.slot not in self._placed:
            self._placed.add(holding.slot)
            self._held[holding.machine] += 1
        if holding.kind is SlotKind.CREW:
            self._crew_slots.add(holding.slot)
        # The entry, too, if its runs may overlap: older receipts may not.
        has: tuple[Need, ...] = (*ask.agents, ask.entry)
        for need in has:
            self._taken.setdefault(need, []).append(ask.number)
        if ask.parent is not None:
            self._waits_for.setdefault(ask.parent, []).append(ask.number)
        return holding


def _lacks(
    room: _Room, queue: Iterable[Waiting], lacking: dict[Hashable, _Lack], *, now: datetime
) -> Iterator[tuple[Waiting, _Lack | None]]:
    """Yield each waiting request with what it lacks, and reserve what the first one needs.

    While requests are only let in, what one lacks all after it lack that need the same.
    """
    is_first = True
    for waiting in queue:
        kind = waiting.ask.kind_of_needs
        lack = lacking.get(kind) or room.lack(waiting.ask)
        if lack is not None and kind is not None:
            lacking[kind] = lack
        # A request that waits for the crew reserves nothing, so a hung crew blocks no one else.
        if is_first and lack is not None and not lack.is_crew:
            is_first = False
            since = waiting.passed_at
            if since is not None and now - since >= room.capacity.patience:
                # Not the slot: one gets free with its agents, or is the next to get free.
                room.first = waiting.ask
        yield waiting, lack


def _place(waiting: Waiting) -> tuple[bool, datetime, int]:
    ask = waiting.ask
    return ask.parent is None, ask.due_at, ask.number


class Gate:
    def __init__(self, capacity: Capacity | None = None, *, home: str = "") -> None:
        self.capacity = capacity or Capacity()
        self.homes: dict[str, str] = {}  # the node where each agent last ran, if there are several
        self._home = home  # this node, where the plan's files are edited
        self._state = GateState()
        self._known: dict[int, Filed] = {}
        self._later: list[tuple[datetime, int]] = []  # receipts whose start is in the future

    def offer(self, receipts: Iterable[Filed]) -> None:
        for filed in receipts:
            if filed.number not in self._known:
                self._known[filed.number] = filed
                heappush(self._later, (filed.receipt.start_at, filed.number))

    def admit(
        self, *, now: datetime, over: Collection[int] = ()
    ) -> tuple[list[Filed], list[tuple[Filed, Reason]]]:
        due = []
        while self._later and self._later[0][0] <= now:
            _, number = heappop(self._later)
            filed = self._known.get(number)
            if filed is not None and filed.receipt.start_at <= now:  # else it was replaced
                due.append(self._slot_request(filed))
        self._state.offer(due)
        admitted, refused = self._state.admit(self.capacity, now=now, over=over)
        for ask in admitted if self.capacity.machines is not None else ():
            self.homes.update(dict.fromkeys(ask.agents, self.machine_of(ask.number)))
        never = [(self._known[each.ask.number], each.reason) for each in refused]
        return [self._known[ask.number] for ask in admitted], never

    def adopt(self, filed: Filed, *, now: datetime) -> None:
        self._known[filed.number] = filed
        self._state.adopt(self._slot_request(filed), machine=filed.machine, now=now)
        self.homes.update(dict.fromkeys(filed.agents, filed.machine))

    def place(self, machines: Mapping[int, str]) -> None:
        holders = self._state.holders
        for number in machines.keys() & holders.keys():
            holder, machine = holders[number], machines[number]
            if machine != holder.machine:
                holders[number] = replace(holder, machine=machine)
                self.homes.update(dict.fromkeys(holder.ask.agents, machine))

    def knows(self, number: int) -> bool:
        return number in self._known

    def machine_of(self, number: int) -> str:
        holder = self._state.holders.get(number)
        return "" if holder is None else holder.machine

    def release(self, number: int) -> None:
        self._known.pop(number, None)
        self._state.holders.pop(number, None)

    def keep(self, is_waiting: Callable[[int], bool]) -> None:
        holding = self._state.holders
        gone = {n for n in self._known if n not in holding and not is_waiting(n)}
        for number in gone:
            del self._known[number]
        self._state.withdraw(gone)

    @property
    def next_at(self) -> datetime | None:
        while self._later and self._later[0][1] not in self._known:
            heappop(self._later)
        return self._later[0][0] if self._later else None

    @property
    def has_line(self) -> bool:
        return bool(self._state.line or self._later)

    @property
    def holders(self) -> Collection[Holding]:
        return tuple(self._state.holders.values())

    def obstacles(self, *, now: datetime) -> list[Obstacle]:
        return list(self._state.obstacles(self.capacity, now=now))

    def startable(self, receipts: Iterable[Filed], *, now: datetime) -> list[Filed]:
        due = {each.number: each for each in receipts if each.receipt.start_at <= now}
        state = GateState(self._state.holders, [*self._state.line])
        state.offer(map(self._slot_request, due.values()))
        asked = (each for each in state.obstacles(self.capacity, now=now) if each.reason is _READY)
        return [due[each.ask.number] for each in asked if each.ask.number in due]

    def _slot_request(self, filed: Filed) -> SlotRequest:
        at_home = (self._home,) if self._home and filed.work in _AT_HOME else ()
        return SlotRequest(
            filed.number,
            filed.entry,
            filed.receipt.start_at,
            filed.agents,
            SlotKind.CREW if filed.work in _CREW else SlotKind.APPOINTMENT,
            filed.parent,
            filed.policy.overlap is Overlap.ALLOW,
            (*filed.policy.requires, *at_home),
            next((self.homes[each] for each in filed.agents if each in self.homes), ""),
        )
