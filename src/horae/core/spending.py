"""Purses that a run draws on, and the usage limits of accounts.

An account is a program and its login. While it is under a limit, its receipts are held; when the
limit ends one of them runs first, and the others when that run has succeeded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from horae.core.budget import ALL, BOARD, CREW, NEAR, Balance, Purse, Usage, parse_budget, usage_of
from horae.core.entry import Policy, Work, key_time
from horae.core.ports import Clock, Job, Ledger, NoRoomError
from horae.core.receipt import ENDS, Filed, Reason, ReasonCode
from horae.timing.duration import format_duration

if TYPE_CHECKING:
    from horae.core.agent import Agent

_SHARED: Final = {Work.TICK: (CREW, ALL), Work.DISPATCH: (BOARD, CREW, ALL)}


@dataclass(frozen=True, slots=True)
class Spending:
    """The purses of runs; `shared` are the budgets of everything, the crew and the board."""

    ledger: Ledger
    clock: Clock
    term: int = 1
    zone_name: str = "UTC"  # of entries without a zone
    shared: Mapping[str, str | None] = field(default_factory=dict)
    agents: Callable[[], Iterable[Agent]] = tuple  # reads their files

    def purses(self, policy: Policy, work: Work) -> tuple[Purse, ...]:
        found = list(policy.budget)
        for name in _SHARED.get(work, (ALL,)):
            if text := self.shared.get(name):
                found += parse_budget(text, self.zone_name, name)
        return tuple(found)

    async def all(self) -> list[Purse]:
        """Return the purses that several entries share: of the settings, and of agents."""
        named = ((name, text) for name, text in self.shared.items() if text)
        found = [each for name, text in named for each in parse_budget(text, self.zone_name, name)]
        return found + await self.of_agents()

    async def of_agents(self, names: Collection[str] | None = None) -> list[Purse]:
        known = await asyncio.to_thread(lambda: [*self.agents()]) if names is None or names else []
        wanted = (each for each in known if names is None or each.name in names)
        return [purse for each in wanted for purse in self.purses_of(each)]

    def purses_of(self, agent: Agent) -> tuple[Purse, ...]:
        own, name = agent.definition.budget, f"agent:{agent.name}"
        return tuple(replace(each, zone=self.zone_name, of=name) for each in own)

    async def drawn(self, job: Job) -> Job:
        purses = self.purses(job.filed.policy, job.filed.work)
        return replace(job, balances=await self.draw(job.run.number, purses)) if purses else job

    async def draw(self, run: int, purses: Sequence[Purse]) -> tuple[Balance, ...]:
        if not purses:
            return ()
        now = self.clock.now()
        found = await self.ledger.draw(run, purses, now=now, term=self.term)
        full = next((each for each in found if not each.has_room), None)
        if full is not None:
            raise NoRoomError(full)
        return tuple(found)

    async def nears(self, filed: Filed) -> Reason | None:
        """Return a reason if a run raised the spending of a purse to 80 % or more."""
        if filed.status not in ENDS:
            return None
        purses = [*self.purses(filed.policy, filed.work), *await self.of_agents(filed.agents)]
        runs = await self.ledger.runs_of(filed.number) if purses else []
        if not runs or (ended_at := runs[-1].ended_at) is None:
            return None
        run, used = runs[-1], usage_of(runs[-1].facts)
        found = await self.ledger.balances(
            purses, now=run.started_at, entry=filed.entry, through=(ended_at, run.number)
        )
        for each in found:
            near, own = NEAR * each.purse.amount, used.of(each.purse.unit) or 0
            if each.spent - own < near <= each.spent:
                words = f"{each.purse.words(each.spent)} of the budget {each.purse} is spent"
                return Reason(ReasonCode.BUDGET, words)
        return None

    async def use(
        self, run: int, balances: Iterable[Balance], usage: Usage, ahead: Usage
    ) -> Balance | None:
        """Record the usage of a run in progress; return a purse that it exceeds, if any.

        *ahead* is the likely usage of its next message.
        """
        purses, now = [each.purse for each in balances], self.clock.now()
        found = await self.ledger.use(run, purses, usage, now=now, term=self.term)
        return next((each for each in found if each.is_exceeded(ahead)), None)


SHORTEST: Final = timedelta(minutes=1)
LONGEST: Final = timedelta(days=8)  # of a limit, also after repeated attempts
_DOUBLINGS: Final = 6  # without a known time, 1, 2, 4 … 60 minutes
_CAP: Final = timedelta(minutes=60)
_FORGOTTEN: Final = timedelta(days=1)  # after its end: without an attempt, a new limit


class AccountLimit(Struct, frozen=True):
    account: str
    reason_code: str
    since_at: datetime  # when it was reached
    until_at: datetime  # when it is tried
    tries: int = 0  # how often it was reached again
    probe: int | None = None  # the receipt that tries it, while that waits or runs

    def reason(self) -> Reason:
        until = f"until {key_time(self.until_at)}"
        if self.reason_code == ReasonCode.OVERLOADED:
            words = f"{until}: the provider of {self.account} is overloaded"
            return Reason(ReasonCode.OVERLOADED, words)
        return Reason(ReasonCode.USAGE_LIMIT, f"{until}: usage limit of {self.account}")

    def is_too_long(self, now: datetime) -> bool:
        return now - self.since_at >= LONGEST

    def failure(self, now: datetime) -> Reason:
        held = timedelta(seconds=int((now - self.since_at).total_seconds()))
        words = f"usage limit of {self.account} since {key_time(self.since_at)}"
        return Reason(ReasonCode.USAGE_LIMIT, f"{words} ({format_duration(held)})")


def met(
    known: AccountLimit | None,
    account: str,
    *,
    code: str,
    until: datetime | None,
    receipt: int,
    now: datetime,
) -> AccountLimit:
    """Return the limit of an account that the run of a receipt has just reached.

    *until* is from the output of the program; *known* is the account's last limit.
    """
    if known is not None and now - known.until_at > _FORGOTTEN:
        known = None
    if known is None or known.probe == receipt:
        tries = 0 if known is None else known.tries + 1
        wait = min(_CAP, SHORTEST * (1 << min(tries, _DOUBLINGS)))
    else:  # its run began before the limit was reached
        tries, wait = known.tries, max(SHORTEST, known.until_at - now)
    until_at = now + wait if until is None else min(max(until, now + SHORTEST), now + LONGEST)
    if known is None:
        return AccountLimit(account, code, now, until_at)
    return replace(known, reason_code=code, until_at=until_at, tries=tries, probe=None)
