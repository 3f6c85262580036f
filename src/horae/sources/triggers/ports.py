"""Where triggers and agents are kept: the port that a store meets, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from uuid import NAMESPACE_URL, uuid5

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from horae.core.decide import Receipt, Status
    from horae.core.ports import Filed, Listed
    from horae.core.reason import Reason
    from horae.sources.triggers.rules import Definition, Kind, Trigger


@dataclass(frozen=True, slots=True)
class AgentCard:
    """An agent that was made by a request or by a file; `file` is empty for a request."""

    name: str
    config: Mapping[str, Any]
    is_enabled: bool
    created_at: datetime
    updated_at: datetime
    file: str = ""

    @property
    def id(self) -> str:
        """What it goes by in the API."""
        return agent_id(self.name)


@dataclass(frozen=True, slots=True)
class Dispatched:
    """A receipt of a trigger, and when its first run began."""

    filed: Filed
    started_at: datetime | None = None


class TriggerStore(Protocol):
    """Where triggers and agents are kept; what changes one arms its entry at the same time."""

    async def page(self, *, limit: int, offset: int) -> tuple[list[Trigger], int]:
        """Return some triggers, newest first, and how many there are in all."""
        ...

    async def get(self, trigger: str) -> Trigger | None: ...

    async def named(self, name: str) -> Trigger | None: ...

    async def of_kind(self, kind: Kind) -> list[Trigger]:
        """Return the enabled triggers of a kind, the longest known first."""
        ...

    async def webhooks(self) -> list[Trigger]:
        """Return the triggers that wait for a message, those that are disabled, too."""
        ...

    async def of_agent(self, agent: str) -> list[Trigger]:
        """Return the triggers that start an agent, the longest known first."""
        ...

    async def of_files(self) -> list[Trigger]: ...

    async def insert(self, trigger: str, definition: Definition, *, now: datetime) -> bool:
        """Take in a trigger; False means that its id or its name is taken."""
        ...

    async def change(
        self, was: Trigger, definition: Definition, *, now: datetime
    ) -> Trigger | None:
        """Let a trigger be another; None: somebody changed it meanwhile, or the name is taken."""
        ...

    async def remove(self, trigger: str, *, now: datetime) -> bool:
        """Forget a trigger; what it did stays in the ledger."""
        ...

    async def agents(self) -> list[AgentCard]:
        """Return every agent, newest first."""
        ...

    async def agent(self, word: str) -> AgentCard | None:
        """Return the agent of a name or an id."""
        ...

    async def insert_agent(self, card: AgentCard) -> bool:
        """Take in an agent; False means that its name is taken."""
        ...

    async def change_agent(self, card: AgentCard) -> bool:
        """Let an agent be another; False means that there is none."""
        ...

    async def remove_agent(self, name: str, *, now: datetime) -> bool: ...

    async def file(
        self, trigger: Trigger, receipt: Receipt, *, text: str, now: datetime
    ) -> tuple[Filed, bool] | None:
        """File what was asked of a trigger, with the order that it is to carry out.

        The same key gives the same receipt back, and False. None: it is not armed.
        """
        ...

    async def entry(self, trigger: str) -> Listed | None:
        """Return what the ledger knows of a trigger."""
        ...

    async def dispatches(
        self, trigger: str, *, limit: int, offset: int
    ) -> tuple[list[Dispatched], int]:
        """Return what a trigger did, newest first, and how often it did something."""
        ...

    async def carry(
        self, receipt: int, text: str, *, status: Status, reason: Reason, now: datetime
    ) -> bool:
        """Let a receipt that has not started carry out another order, and wait or be held."""
        ...

    async def skip(self, receipt: int, *, reason: Reason, now: datetime) -> bool:
        """Let a receipt that waits or is held never start."""
        ...


def agent_id(name: str) -> str:
    """Return what an agent goes by in the API; the same name is the same agent.

    >>> agent_id("reporter")
    '8eeb7166-7ef4-57c5-a64c-7595d374391b'
    """
    return str(uuid5(NAMESPACE_URL, f"horae:agent:{name}"))


def dispatch_id(trigger: str, key: str) -> str:
    """Return what a receipt of a trigger goes by in the API."""
    return str(uuid5(NAMESPACE_URL, f"horae:dispatch:{trigger}:{key}"))
