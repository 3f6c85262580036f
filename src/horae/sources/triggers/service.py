"""Triggers and the agents they start, as people ask for them: by command, by HTTP, by files.

Definitions are kept beside the ledger, everything else is the ledger's: a trigger is an entry,
a dispatch is a receipt, its source id is the receipt's key. Answers are plain data in the
shapes of the API, so that a command and a route have nothing to add.

    store       where they are kept: the port, and what goes by which id
    base        who is meant, and who can take something now
    workflows   made, changed, forgotten         agents    the same of agents
    asking      what is asked of a trigger       doorman   what may start, and approvals
    files       as files say: plan, then change  polls     looking at GitHub
    messages    what an agent is told            runs      what agents do, and what it took
    fields, shapes, errors                       what comes in, what goes out, and what cannot be
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from horae.sources.triggers.apply import (
    Change,
    apply_changes,
    judge_files,
    leave_behind,
    plan_files,
    plan_removed,
    plan_teardown,
    said_lines,
)
from horae.sources.triggers.errors import (
    ApproverError,
    FilesError,
    PollError,
    TriggerConflictError,
    TriggerNotFoundError,
    UnsignedError,
    api_words,
    refusal,
)
from horae.sources.triggers.messages import Messages
from horae.sources.triggers.polls import Polls, poll_wait
from horae.sources.triggers.ports import AgentCard, Dispatched, TriggerStore, agent_id, dispatch_id
from horae.sources.triggers.rules import TriggerError
from horae.sources.triggers.runs import Runs
from horae.sources.triggers.shapes import page_of, validate_template

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "AgentCard",
    "ApproverError",
    "Change",
    "Dispatched",
    "FilesError",
    "PollError",
    "Polls",
    "TriggerConflictError",
    "TriggerNotFoundError",
    "TriggerStore",
    "Triggers",
    "UnsignedError",
    "agent_id",
    "answer",
    "api_words",
    "apply_changes",
    "dispatch_id",
    "judge_files",
    "leave_behind",
    "page_of",
    "plan_files",
    "plan_removed",
    "plan_teardown",
    "poll_wait",
    "refusal",
    "said_lines",
    "validate_template",
]


class Triggers(Messages, Runs):
    """All that can be asked about triggers and the agents they start."""


_VERBS: Final = frozenset(
    {
        "create",
        "update",
        "rotate",
        "delete",
        "trigger_now",
        "create_agent",
        "update_agent",
        "delete_agent",
        "clear_context",
        "send_message",
        "approve",
        "deny",
    }
)


async def answer(triggers: Triggers, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Do what a command asks an engine to: a verb, and what it takes, by name."""
    if verb not in _VERBS:
        raise TriggerNotFoundError("request", verb[:100])
    from inspect import signature

    asked = getattr(triggers, verb)
    try:
        signature(asked).bind(**body)
    except TypeError as error:
        raise TriggerError(f"{verb}: {error}") from None
    said: dict[str, Any] = await asked(**body)
    return said
