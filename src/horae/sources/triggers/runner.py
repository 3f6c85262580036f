"""Runs of agents by the orders of triggers; scheduled time and key are filled in here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from horae.core.actor import api_scopes
from horae.core.agent import Agent, AgentDefinition, AgentNotFoundError, read_order
from horae.core.entry import ASKED, REQUEST, Origin, key_time
from horae.core.ports import (
    AgentRunner,
    Clock,
    Ended,
    Held,
    HeldBackError,
    Job,
    LedgerBusyError,
    LedgerWriteError,
    Run,
    Unreleased,
)
from horae.core.source import unexpected
from horae.errors import Exit, HoraeError
from horae.sources.triggers.kinds import KINDS, GithubKind
from horae.sources.triggers.rules import parse_tools
from horae.timing.duration import parse_duration

if TYPE_CHECKING:
    from horae.core.receipt import Filed
    from horae.core.tool_policy import ToolPolicy
    from horae.sources.triggers.rules import Trigger
    from horae.sources.triggers.service import Triggers
    from horae.sources.triggers.store import AgentCard, TriggerStore


@dataclass(frozen=True, slots=True, eq=False)
class PromptRunner:
    find: Callable[[str | None], Awaitable[tuple[AgentRunner, Agent]]]  # None: of requests
    triggers: TriggerStore
    text: Callable[[str], Awaitable[str | None]]  # by digest
    request_timeout: timedelta | None = None  # of a request whose agent has none

    async def hold(self, job: Job) -> Held:
        filed, receipt = job.filed, job.filed.receipt
        order = read_order(job.text)
        try:
            host, agent = await self._agent(filed)
        except AgentNotFoundError as error:
            raise HeldBackError(str(error)) from None
        # Only the request's own values: those of a trigger may be from an untrusted message.
        said = order.values if filed.source == ASKED else {}
        if said.get("system"):
            agent = replace(agent, definition=replace(agent.definition, prompt=said["system"]))
        tools = policy_for(await self.triggers.agent(agent.name), order.enforced)
        obstacle = await host.why_unable(agent, tools)
        if obstacle is not None:
            raise HeldBackError(obstacle)
        usual = self.request_timeout if filed.source == ASKED else None
        timeout = filed.policy.timeout or agent.definition.timeout or usual or host.place.timeout
        return await host.hold(
            agent,
            order.prompt(key=receipt.key, planned_at=receipt.planned_at),
            run=job,
            timeout=timeout,
            tools=tools,
            model=said.get("model"),
        )

    async def look_back(self, filed: Filed, run: Run) -> Ended | Unreleased | None:
        host, agent = await self._agent(filed)
        return await host.look_back(run, agent)

    async def obstacle(self, filed: Filed) -> str | None:
        host, agent = await self._agent(filed)
        text = await self.text(filed.digest)
        tools = policy_for(await self.triggers.agent(agent.name), read_order(text or "").enforced)
        return await host.why_unable(agent, tools)

    async def _agent(self, filed: Filed) -> tuple[AgentRunner, Agent]:
        return await self.find(filed.agents[0] if filed.agents else None)


def unnamed() -> Agent:
    return Agent(ASKED, AgentDefinition(ASKED, ASKED, ""), Origin(REQUEST, 1), remedy="")


def policy_for(card: AgentCard | None, tools: ToolPolicy | None) -> ToolPolicy | None:
    if tools is not None or card is None or "tool_policy" not in card.config:
        return tools
    return parse_tools(card.config["tool_policy"])


def agent_of(card: AgentCard) -> Agent:
    said = card.config
    definition = AgentDefinition(
        card.name,
        card.name,
        said.get("system_prompt", ""),
        model=said.get("model"),
        command=tuple(said.get("command", ())),
        timeout=parse_duration(said["timeout"]) if "timeout" in said else None,
        api=api_scopes(said["api"]) if "api" in said else (),
    )
    origin = Origin(card.file or f"agents/{card.name}", 1)
    return Agent(
        card.name,
        definition,
        origin,
        said["working_dir"],
        environment=said.get("env", {}),
        remedy=f"write command: in {card.file}" if card.file else "",
    )


log = logging.getLogger(__name__)

AGAIN: Final = timedelta(seconds=1)  # after a failed write to the ledger
AT_ONCE: Final = 4  # concurrent polls, so that a hanging one does not block the others


class PollError(HoraeError, code="poll_failed", exit_code=Exit.TEMPORARY):
    def __init__(self, program: str, exit_code: int, said: str) -> None:
        self.program, self.said = program, said
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        told = "; ".join(lines[:2])[:300] or "no error output"
        super().__init__(f"{program} exited with {exit_code}: {told}")


@dataclass(kw_only=True, eq=False)
class GithubPoller:
    """Dispatches the items that `gh` lists, each trigger at its own interval.

    The first of several failures in a row is an event, and so are a new reason, and the first
    success after them.
    """

    triggers: Triggers
    clock: Clock
    call: Callable[[Sequence[str]], Awaitable[str]]  # runs a program; raises PollError
    errors: dict[str, int] = field(default_factory=dict)  # in a row, by trigger

    def __post_init__(self) -> None:
        self._started_at = self.clock.now()
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._next_at: dict[str, datetime] = {}
        self._reasons: dict[str, str] = {}  # of the last poll, by trigger

    async def run(self, stop: asyncio.Event, *, longest: timedelta = timedelta(seconds=30)) -> None:
        while not stop.is_set():
            try:
                wake_at = await self.turn()
            except (LedgerBusyError, LedgerWriteError) as error:
                log.debug("polling again in %s: %s", AGAIN, error)
                wake_at = self.clock.now() + AGAIN
            latest = self.clock.now() + longest  # so that a new trigger is found
            await self.clock.wait(stop, until=min(wake_at or latest, latest))

    async def turn(self) -> datetime | None:
        types = sorted(name for name, kind in KINDS.items() if issubclass(kind, GithubKind))
        found = [each for kind in types for each in await self.triggers.store.of_kind(kind)]
        # First an interval after the start, so that frequent restarts do not poll each time.
        self._next_at = {
            each.id: self._next_at.get(each.id)
            or max(self._started_at, each.created_at) + poll_wait(each.definition.poll_interval)
            for each in found
        }
        now = self.clock.now()
        due = [each for each in found if self._next_at[each.id] <= now]
        await asyncio.gather(*map(self._poll, due))
        return min(self._next_at.values(), default=None)

    async def _poll(self, trigger: Trigger) -> None:
        kind, name, reason = trigger.definition.kind, trigger.definition.name, ""
        assert isinstance(kind, GithubKind), "no other kind is polled"
        async with self._at_once:
            try:
                await self.triggers.polled(trigger, await self.call(kind.poll_command()))
            except TimeoutError:
                reason = "gh did not answer in time"
            except HoraeError as error:
                reason = str(error)
            except OSError as error:
                reason = f"gh cannot be started: {error}"
            except Exception as error:  # after any error, it is polled again
                reason = unexpected(error)
        if reason:  # the event poll_failed has it
            self.errors[trigger.id] = self.errors.get(trigger.id, 0) + 1
            log.debug("polling for %s failed: %s", name, reason)
        else:
            self.errors.pop(trigger.id, None)
        wait = poll_wait(trigger.definition.poll_interval, self.errors.get(trigger.id, 0))
        self._next_at[trigger.id] = self.clock.now() + wait
        was, self._reasons[trigger.id] = self._reasons.get(trigger.id, ""), reason
        if reason == was:
            return
        facts = {"trigger": name}
        if reason:
            facts |= {"reason": reason, "again": key_time(self._next_at[trigger.id])}
        await self.triggers.note("poll_failed" if reason else "poll_recovered", trigger, facts)


def poll_wait(interval: int, errors: int = 0) -> timedelta:
    return timedelta(seconds=interval + min(2 * errors, 30))
