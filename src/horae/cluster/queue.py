"""Runs on many machines: the leader says where, and each machine makes its own.

    leader   gate → the receipt's machine and a message for it, in one commit
    member   message → starting → running → go → end, fenced by its own lease

A message may come late, twice, or not at all. It carries a receipt's number and nothing
else, and only a receipt that still waits for this very machine can be started, so nothing
follows from a second one; and each machine looks now and then for what waits for it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from horae.core.actor import acting
from horae.core.launch import Launch
from horae.core.ports import (
    Clock,
    Event,
    Ledger,
    LedgerBusyError,
    LedgerWriteError,
    Run,
    Runner,
    RunOver,
)
from horae.core.receipt import FINAL, Filed, Reason, Status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from datetime import datetime, timedelta

    from horae.core.gate import Gate, Machine

log = logging.getLogger(__name__)

CANCEL: Final = "cancel"  # the event by which a leader asks a machine to end a run


class SharedLedger(Ledger, Protocol):
    async def assign(self, receipt: int, machine: str, *, now: datetime, term: int) -> bool:
        """Say which machine runs a waiting receipt, and send it word, in one commit."""

    async def machines(self) -> tuple[Machine, ...]: ...

    async def under_way(self) -> list[Filed]:
        """Return the receipts that run, or wait for a machine that was told to run them."""

    async def assigned_to(self, machine: str) -> list[Filed]: ...


@dataclass(eq=False)
class Carried(Launch):
    ledger: SharedLedger
    gate: Gate = field(kw_only=True)
    _under_way: dict[int, Filed] = field(default_factory=dict)
    _live: dict[int, Run] = field(default_factory=dict)
    _sending: set[int] = field(default_factory=set)  # whose machine is being written down

    @property
    def runs(self) -> dict[int, Run]:
        return dict(self._live)

    @property
    def receipts(self) -> tuple[int, ...]:
        return tuple(self._under_way)

    def start(self, receipts: Iterable[Filed], refused: Reason | None = None) -> None:
        if refused is not None:
            super().start(receipts, refused)
            return
        for filed in receipts:
            self._under_way[filed.number] = filed
            self._sending.add(filed.number)
            self._do(filed.number, self._send(filed))

    def cancel(self, receipt: int, reason: Reason, *, outcome: Status = Status.KILLED) -> bool:
        if receipt not in self._under_way:
            return False
        self._do(receipt, self._ask_to_end(receipt, reason, outcome))
        return True

    async def stop(self, *, within: timedelta, reason: Reason) -> None:  # noqa: ARG002
        """Wait for what is being written; the runs go on under the next leader."""
        await self.rest()

    async def look_back(self) -> None:
        for filed in await self.ledger.under_way():
            if filed.number not in self._under_way:
                self._under_way[filed.number] = filed
                self.gate.adopt(filed, now=self.clock.now())
                await self.look(filed.number)

    async def reconcile(self) -> None:
        self.is_unsure = False  # first: what fails meanwhile has to be looked at again
        try:
            await self.look_back()
            for number in self.receipts:
                await self.look(number)
        except BaseException:  # also if it is given up in the middle
            self.is_unsure = True
            raise

    async def hear(self, events: Iterable[Event]) -> None:
        told = {each.receipt for each in events if each.kind == "receipt"}
        for number in told.intersection(self._under_way):
            if number is not None:
                await self.look(number)

    async def look_at_all(self) -> None:
        """Look at all that is under way: events before the first one read tell nothing."""
        for number in self.receipts:
            if number not in self._sending:
                await self.look(number)

    async def look(self, number: int) -> None:
        filed = await self.ledger.receipt(number)
        if number not in self._under_way:
            return
        is_free = filed is not None and filed.status is Status.WAITING and not filed.machine
        if filed is None or is_free or filed.status in FINAL | {Status.HELD}:
            self._end(number, filed)
        elif filed.status is Status.RUNNING and number not in self._live:
            self._live[number] = (await self.ledger.runs_of(number))[-1]

    def _end(self, number: int, filed: Filed | None) -> None:
        if self._under_way.pop(number, None) is not None:
            self._live.pop(number, None)
            self.left(number, filed)

    def _do(self, number: int, part: Awaitable[None]) -> None:
        async def done() -> None:
            extra = {"receipt": number}
            try:
                await part
            except (LedgerBusyError, LedgerWriteError) as error:
                log.warning("receipt %d cannot be handed on yet: %s", number, error, extra=extra)
                self.is_unsure = True
                self._end(number, None)
            except Exception as error:  # the next turn raises it, and the engine ends
                log.debug("receipt %d ended in an error", number, exc_info=error, extra=extra)
                self.failure = error

        self.beside(done())

    async def _send(self, filed: Filed) -> None:
        machine = self.gate.machine_of(filed.number)
        try:
            is_sent = await self.ledger.assign(
                filed.number, machine, now=self.clock.now(), term=self.term
            )
        finally:
            self._sending.discard(filed.number)
        if not is_sent:
            self._end(filed.number, None)

    async def _ask_to_end(self, receipt: int, reason: Reason, outcome: Status) -> None:
        await self.ledger.note(
            CANCEL,
            now=self.clock.now(),
            term=self.term,
            receipt=receipt,
            facts={"reason": reason, "reason_code": reason.code, "outcome": outcome},
        )


@dataclass(eq=False)
class Worker:
    name: str
    clock: Clock
    ledger: Ledger
    shared: SharedLedger
    runner: Runner
    over: Callable[[int], None] = lambda _: None  # hears of each receipt that is here no longer
    _is_open: bool = True

    def __post_init__(self) -> None:
        def left(number: int, _: Filed | RunOver | None) -> None:
            self.over(number)

        self.launch = Launch(self.clock, self.ledger, self.runner, left)

    async def take(self, number: int) -> None:
        filed = await self.shared.receipt(number)
        if filed is None or filed.status is not Status.WAITING or filed.machine != self.name:
            return
        self._start([filed])

    async def look(self) -> None:
        self._start(await self.shared.assigned_to(self.name))
        if self.launch.is_unsure:
            await self.launch.reconcile()

    def _start(self, receipts: Iterable[Filed]) -> None:
        begun = set(self.launch.receipts)
        new = [each for each in receipts if each.number not in begun]
        if new and self._is_open:
            self.launch.start(new)

    async def hear(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.kind == CANCEL and event.receipt is not None:
                facts = event.facts
                outcome = Status(str(facts.get("outcome", Status.KILLED)))
                code = str(facts.get("reason_code", ""))  # a leader of an older version says none
                reason = Reason(code, str(facts.get("reason", "")))
                with acting(event.actor):
                    self.launch.cancel(event.receipt, reason, outcome=outcome)

    def check(self) -> None:
        if self.launch.failure is not None:
            raise self.launch.failure

    async def stop(self, *, within: timedelta, reason: Reason) -> None:
        self._is_open = False
        await self.launch.stop(within=within, reason=reason)
