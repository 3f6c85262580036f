"""What of an engine others may use through the API.

What the server itself does not know (how a workflow is run, an agent asked, a task's file
changed) is given to it by the house; what is not given is not offered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from horae.errors import Exit, HoraeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from horae.core.engine import Engine
    from horae.core.ports import Clock, Ledger, Run
    from horae.core.service import Service
    from horae.core.views import EngineFacts, StatusReport
    from horae.sources.triggers.service import Triggers
    from horae.web.keys import Keys

T = TypeVar("T")


class NotOfferedError(HoraeError):
    """Something that this engine does not offer."""

    code = "not_offered"
    exit_code = Exit.NOT_FOUND

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"this engine has no {what}")


class WorkflowService(Protocol):
    """Whoever can read the workflows of a text, and run them."""

    def plan(self, text: str) -> list[dict[str, Any]]:
        """Return what would run, without running it."""
        ...

    async def run(self, text: str, given: bytes) -> list[dict[str, Any]]:
        """Run every workflow of a text, and return the records; cancelled, it ends them."""
        ...


class AgentRuns(Protocol):
    """Whoever can ask an agent something that stands in no plan."""

    async def begin(self, asked: Mapping[str, Any], *, key: str | None = None) -> str:
        """File a request, and return what its run goes by; the same *key* gives the same one."""
        ...

    async def look(self, run: str) -> dict[str, Any] | None:
        """Return how a request stands; None if there is none of that name."""
        ...

    async def run_of(self, run: str) -> Run | None:
        """Return its last attempt; None while there is none."""
        ...


class Tasks(Protocol):
    """Whoever keeps the board."""

    async def board(self) -> dict[str, Any]:
        """Return the tasks by status, and why those wait that do."""
        ...

    async def task(self, number: int) -> tuple[dict[str, Any], str]:
        """Return one task, and the tag of the text that it stands in."""
        ...

    async def schedule(
        self, number: int, asked: Mapping[str, Any], *, expected: str | None
    ) -> tuple[dict[str, Any], str]:
        """Give a task another schedule, if its text still has the tag that is expected."""
        ...


class Settings(Protocol):
    """Whoever knows which settings count only once a person has confirmed them."""

    async def look(self) -> dict[str, Any]:
        """Return which settings are written and do not count yet."""
        ...

    async def trust(self, digest: str) -> dict[str, Any]:
        """Let the settings count that were looked at."""
        ...


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
    workflows: WorkflowService | None = None
    agent_runs: AgentRuns | None = None
    tasks: Tasks | None = None
    changes: Callable[[], Awaitable[list[dict[str, Any]]]] | None = None  # newest first
    nodes: Callable[[], Awaitable[list[dict[str, Any]]]] | None = None  # the machines, if several
    settings: Settings | None = None
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
