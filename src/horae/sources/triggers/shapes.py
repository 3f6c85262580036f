"""Workflows, agents and dispatches as plain data, in the shapes of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from horae.core.entry import key_time
from horae.core.prompt import NO_VARIABLES, problems, variables
from horae.sources.triggers.ports import agent_id
from horae.sources.triggers.rules import EVERY_NAME, masked, shown

if TYPE_CHECKING:
    from horae.sources.triggers.ports import AgentCard
    from horae.sources.triggers.rules import Trigger

PAGE: Final = 50
LARGEST_PAGE: Final = 200


def page_of(limit: int | None, offset: int | None) -> tuple[int, int]:
    """Return which part of a list is meant: at most 200 things, 50 if nobody says.

    >>> page_of(None, None), page_of(0, 7), page_of(500, -1)
    ((50, 0), (1, 7), (200, 0))
    """
    size = PAGE if limit is None else min(max(limit, 1), LARGEST_PAGE)
    return size, min(max(offset or 0, 0), 2**62)


def validate_template(template: str) -> dict[str, object]:
    """Return what is wrong with a template, whatever its trigger, and which names there are."""
    warnings = problems(template, EVERY_NAME)
    is_valid = not warnings
    if is_valid and not variables(template):
        warnings = [NO_VARIABLES]
    return {"valid": is_valid, "warnings": warnings, "known_variables": list(EVERY_NAME)}


def workflow_shape(trigger: Trigger) -> dict[str, Any]:
    """Return a workflow in the shape of the API; secrets are not in it."""
    definition = trigger.definition
    return {
        "id": trigger.id,
        "name": definition.name,
        "agent_id": agent_id(definition.agent),
        "agent": definition.agent,
        "trigger_config": masked(definition.config),
        "prompt_template": definition.template,
        "poll_interval_secs": definition.poll_interval,
        "enabled": definition.is_enabled,
        "tool_policy": definition.tools.data(),
        **definition.options,
        "created_at": key_time(trigger.created_at),
        "updated_at": key_time(trigger.updated_at),
        "file": definition.file or None,
    }


def agent_shape(card: AgentCard, *, is_busy: bool = False) -> dict[str, Any]:
    """Return an agent in the shape of the API; what its variables hold is not in it."""
    config = dict(card.config)
    config["env"] = {name: shown(text) for name, text in config.get("env", {}).items()}
    config.setdefault("tool_policy", {"mode": "allow_all"})
    return {
        "id": card.id,
        "name": card.name,
        "status": "running" if card.is_enabled else "stopped",
        "activity": "busy" if is_busy else "idle",
        "config": config,
        "session_id": None,
        "backend_type": None,
        "created_at": key_time(card.created_at),
        "updated_at": key_time(card.updated_at),
        "file": card.file or None,
    }
