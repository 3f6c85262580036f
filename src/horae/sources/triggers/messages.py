"""Messages to agents: each is a dispatch of a workflow that is there for nothing else."""

from __future__ import annotations

from typing import Any

from horae.sources.triggers.agents import Agents, message_name
from horae.sources.triggers.errors import TriggerConflictError
from horae.sources.triggers.rules import Kind, TriggerError
from horae.sources.triggers.workflows import Workflows


class Messages(Workflows, Agents):
    """Tells agents what somebody wants of them."""

    async def send_message(self, word: str, content: object) -> dict[str, Any]:
        """Let an agent run once with a message as its prompt; return the dispatch."""
        card = await self.card(word)
        if not isinstance(content, str) or not content.strip():
            raise TriggerError("a message must be a non-empty string", field="content")
        name = message_name(card.name)
        was = await self._store.named(name)
        if was is None:
            config = {"type": Kind.MANUAL.value}
            said = {"name": name, "agent": card.name, "trigger_config": config}
            await self.create({**said, "prompt_template": "{{body}}"})
        elif was.definition.agent != card.name or was.definition.kind is not Kind.MANUAL:
            raise TriggerConflictError(f"workflow '{name}' is not a message workflow; rename it")
        sent = await self.trigger_now(name, {"title": "Message", "body": content})
        return {**sent, "status": "sent", "dispatch_status": sent["status"]}
