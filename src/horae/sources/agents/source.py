"""Requests to agents: receipts of one entry per agent that runs on request only."""

from __future__ import annotations

import asyncio
from dataclasses import KW_ONLY, dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from horae.core.actor import by_words
from horae.core.agent import AgentUnavailableError, PromptOrder
from horae.core.entry import ASKED, REQUEST, Entry, OnDemandRule, Origin, Overlap, Policy, Work
from horae.core.receipt import OPEN, Filed, Reason, ReasonCode, Receipt, Status
from horae.core.source import Mark, Scan, Scanned
from horae.core.text import is_number
from horae.core.views import Code, Maybe, Shape

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from horae.core.ports import Clock, Ledger, Run

MOST: Final = 100  # waiting or running requests for one agent
_RUN: Final = "run-"
_PROMPT: Final = "{{task}}"


class AgentRunStatus(Shape, frozen=True, kw_only=True):
    """A request to an agent, in the words of an older API; `standing` and `outcome` are ours."""

    id: str
    receipt: int
    reason: str
    reviews: tuple[str, ...] = ()
    reason_code: Code | None
    status: str  # held, running or done
    live: bool
    outcome: str | Maybe = UNSET  # if done
    steps: int | None = None
    result: str | Maybe = UNSET  # if done: the answer of the agent, else the reason
    standing: str | Maybe = UNSET  # if running: the status of its receipt


@dataclass(eq=False)
class AgentRequests:
    _: KW_ONLY
    ledger: Ledger
    clock: Clock
    ids: Callable[[], str]
    poke: Callable[[], None]
    check: Callable[[str], Awaitable[None]]  # raises for an agent that cannot run
    zone_name: str = "UTC"
    term: int = 1

    def __post_init__(self) -> None:
        self._turn = asyncio.Lock()  # writes for one receipt are not concurrent

    async def begin(self, asked: Mapping[str, Any], *, key: str | None = None) -> str:
        """File a request, and return the id of its run; a known *key* returns the same one."""
        agent: str = asked["agent"] or ""
        await self.check(agent)
        now = self.clock.now()
        name = f"manual:{self.ids()}" if key is None else f"idem:{key}"
        reason = Reason(ReasonCode.REQUESTED, by_words("requested"))
        receipt = Receipt(name, Status.WAITING, reason, now, now)
        async with self._turn:
            scan = Scan((self._scanned(agent, asked),), standing=("",))
            await self.ledger.scan(ASKED, scan, now=now, term=self.term)
            [found] = await self.ledger.find(_address(agent))
            page = await self.ledger.receipts(entry=found.number, statuses=OPEN, limit=MOST)
            if len(page.receipts) >= MOST:
                raise AgentUnavailableError(
                    agent or "agent", f"{MOST} requests are already waiting"
                )
            [filed] = await self.ledger.add(found.number, [receipt], now=now, term=self.term)
        self.poke()
        return f"{_RUN}{filed.number}"

    async def look(self, run: str) -> AgentRunStatus | None:
        filed = await self._filed(run)
        if filed is None:
            return None
        status, reason = filed.status, filed.receipt.reason
        about: dict[str, Any] = {"id": run, "receipt": filed.number, "reason": str(reason)}
        about["reason_code"] = reason.code or None
        if status is Status.HELD:  # until the cause is resolved
            return AgentRunStatus(**about, status="held", live=False)
        if status in OPEN:
            return AgentRunStatus(**about, status="running", live=True, standing=status.value)
        last = next(reversed(await self.ledger.runs_of(filed.number)), None)
        facts = {} if last is None else last.facts
        about |= {"steps": facts.get("steps"), "result": facts.get("text", str(reason))}
        return AgentRunStatus(**about, status="done", live=False, outcome=status.value)

    async def run_of(self, run: str) -> Run | None:
        filed = await self._filed(run)
        runs = [] if filed is None else await self.ledger.runs_of(filed.number)
        return runs[-1] if runs else None

    async def _filed(self, run: str) -> Filed | None:
        number = run.removeprefix(_RUN)
        if not run.startswith(_RUN) or not is_number(number):
            return None
        filed = await self.ledger.receipt(int(number))
        return filed if filed is not None and filed.source == ASKED else None

    def _scanned(self, agent: str, asked: Mapping[str, Any]) -> Scanned:
        said = {name: str(asked[name]) for name in ("task", "system", "model") if asked.get(name)}
        text = PromptOrder(_PROMPT, said).text()
        digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        title = f"Asked: {agent}" if agent else "Asked"
        entry = Entry(
            _address(agent),
            Origin(REQUEST, 1),
            title,
            OnDemandRule(),
            work=Work.PROMPT,
            agents=(agent,) if agent else (),
            policy=Policy(overlap=Overlap.ALLOW),
            zone=self.zone_name,
            digest=digest,
        )
        return Scanned(Mark(entry.address, title, "", digest), entry, text)


def _address(agent: str) -> str:
    return f"{ASKED}:{agent}"
