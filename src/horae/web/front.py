"""What of an engine others may use through the API; what is not given is not offered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from horae.errors import Exit, HoraeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from horae.config.trust import EngineSettings
    from horae.core.engine import Engine
    from horae.core.ports import Clock, Ledger, Run
    from horae.core.service import Service
    from horae.core.views import EngineFacts, StatusReport
    from horae.sources.agents.source import AgentRequests
    from horae.sources.board.routes import BoardRequests
    from horae.sources.triggers.service import Triggers
    from horae.sources.workflows.routes import WorkflowRequests
    from horae.web.keys import Keys

T = TypeVar("T")


class NotOfferedError(HoraeError):
    """Something that this engine does not offer."""

    code = "not_offered"
    exit_code = Exit.NOT_FOUND

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"this engine has no {what}")


@dataclass(frozen=True, slots=True)
class Front:
    """What of an engine others may use through the API."""

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
    changes: Callable[[], Awaitable[list[dict[str, Any]]]] | None = None  # newest first
    nodes: Callable[[], Awaitable[list[dict[str, Any]]]] | None = None  # the machines, if several
    settings: EngineSettings | None = None
    is_public: bool = False  # whether everybody may see how the agents are

    async def status(self, *, limit: int) -> StatusReport:
        """Return how things stand, and whether the engine stands still."""
        facts = replace(self.facts(), stall=await self.engine.stall())
        return await self.service.status(facts, limit=limit)


def offered(what: T | None, name: str) -> T:
    """Return what is offered, or raise an error that names it."""
    if what is None:
        raise NotOfferedError(name)
    return what
