"""What of an engine others may use through the API."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

from horae.core.explain import WhyQuestion, at_the_gate, stamp
from horae.errors import Exit, HoraeError
from horae.web.edits import Edits

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

    from horae.config.trust import EngineSettings
    from horae.core.engine import Engine
    from horae.core.lease import NodeLine
    from horae.core.ports import Clock, Ledger, Listed, Run
    from horae.core.service import Service
    from horae.core.views import EngineFacts, StatusReport, WhyLines
    from horae.files.git.repository import Logged
    from horae.process.handover import EngineControl
    from horae.sources.agents.source import AgentRequests
    from horae.sources.board.routes import BoardRequests
    from horae.sources.triggers.service import Triggers
    from horae.sources.workflows.routes import WorkflowRequests
    from horae.web.keys import Keys

T = TypeVar("T")


class NotOfferedError(HoraeError, code="not_offered", exit_code=Exit.NOT_FOUND):
    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"this engine has no {what}")


@dataclass(frozen=True, slots=True)
class Front:
    """What of an engine others may use through the API; what is not given is not offered."""

    service: Service
    engine: Engine
    facts: Callable[[], EngineFacts]
    log_of: Callable[[Run], Path]
    clock: Clock
    ledger: Ledger | None = None
    zone_name: str = "UTC"
    since: int = 0  # the newest event when the engine started
    keys: Keys | None = None
    triggers: Triggers | None = None
    workflows: WorkflowRequests | None = None
    agent_runs: AgentRequests | None = None
    tasks: BoardRequests | None = None
    changes: Callable[[int], Awaitable[list[Logged]]] | None = None  # so many, newest first
    nodes: Callable[[], Awaitable[list[NodeLine]]] | None = None  # the machines, if several
    settings: EngineSettings | None = None
    is_public: bool = False  # whether everybody may see how the agents are
    control: EngineControl | None = None
    root: Path | None = None  # of the plans
    edits: Edits = field(default_factory=Edits)
    closing: asyncio.Event | None = None  # set when nothing more is told to those who listen

    async def status(self, *, limit: int) -> StatusReport:
        facts = replace(self.facts(), stall=await self.engine.stall())
        return await self.service.status(facts, limit=limit)

    async def node_list(self) -> list[NodeLine]:
        return [] if self.nodes is None else await self.nodes()

    async def why(self, ask: WhyQuestion, *, limit: int) -> WhyLines:
        why = await self.service.why(ask, limit=limit)
        obstacles = self.engine.gate.obstacles(now=self.clock.now())
        return at_the_gate(why, {each.ask.number: each.reason for each in obstacles})


def offered(what: T | None, name: str) -> T:
    if what is None:
        raise NotOfferedError(name)
    return what


def tag_of(data: object) -> str:
    """Return what plain data goes by.

    >>> tag_of({"a": 1, "b": 2}) == tag_of({"b": 2, "a": 1}) != tag_of({"a": 2, "b": 2})
    True
    """
    written = json.dumps(data, sort_keys=True, default=str)
    return sha256(written.encode()).hexdigest()[:32]


def tag_of_entry(found: Listed) -> str:
    """Return the tag of an entry: what is written of it, and whether it is paused."""
    mark, pause = found.mark, found.pause
    rest = pause and (stamp(pause.at, "UTC"), stamp(pause.until, "UTC"), pause.note)
    written = (mark.address, mark.title, mark.rule, mark.body)
    return tag_of((found.number, written, stamp(found.gone_at, "UTC"), rest))
