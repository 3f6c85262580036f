"""The service of triggers through the API of an engine, with the same methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from horae.client import AsyncSender, Request, Sender, like, route
from horae.sources.triggers import views
from horae.sources.triggers.service import Triggers

T = TypeVar("T")


class TriggerCalls:
    page = like(Triggers.page, "GET", "triggers")
    get = like(Triggers.get, "GET", "triggers/{word}")
    create = like(Triggers.create, "POST", "triggers")
    update = like(Triggers.update, "PUT", "triggers/{word}")
    rotate = like(Triggers.rotate, "POST", "triggers/{word}/rotate")
    delete = like(Triggers.delete, "DELETE", "triggers/{word}")
    history = like(Triggers.history, "GET", "triggers/{word}/history")
    trigger_now = like(Triggers.trigger_now, "POST", "triggers/{word}/run")
    approvals = like(Triggers.approvals, "GET", "approvals", part="approvals")
    approve = like(Triggers.approve, "POST", "approvals/{number}/approve")
    deny = like(Triggers.deny, "POST", "approvals/{number}/deny")
    agents = like(Triggers.agents, "GET", "trigger-agents")
    agent = like(Triggers.agent, "GET", "trigger-agents/{word}")
    create_agent = like(Triggers.create_agent, "POST", "trigger-agents")
    update_agent = like(Triggers.update_agent, "PUT", "trigger-agents/{word}")
    delete_agent = like(Triggers.delete_agent, "DELETE", "trigger-agents/{word}")
    clear_context = like(Triggers.clear_context, "POST", "trigger-agents/{word}/clear")
    send_message = like(Triggers.send_message, "POST", "trigger-agents/{word}/message")
    usage = like(Triggers.usage, "GET", "trigger-agents/{word}/usage")
    run_of = like(Triggers.run_of, "GET", "trigger-agents/{word}/run", part="run", is_going="going")

    @route("POST", "trigger-files", part="changes")
    def apply(
        self,
        definitions: Sequence[Mapping[str, Any]],
        *,
        dry_run: bool = False,
        teardown: bool = False,
    ) -> list[views.FileChange]: ...


class TriggerClient(TriggerCalls, Sender):
    def __init__(self, client: Sender) -> None:
        self._client = client

    def send(self, request: Request, read: Callable[[Any], T]) -> T:
        return self._client.send(request, read)


class AsyncTriggerClient(TriggerCalls, AsyncSender):
    def __init__(self, client: AsyncSender) -> None:
        self._client = client

    async def send(self, request: Request, read: Callable[[Any], T]) -> T:
        return await self._client.send(request, read)
