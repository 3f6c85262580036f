"""The public plane: how the agents are, for everybody, if somebody switched it on.

It shows status and nothing else: no output, no prompts, no reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from horae.core.entry import CadenceRule, Entry
from horae.web.front import NotOfferedError
from horae.web.shapes import FACTS, FLAG, NUMBER, TEXT, listed, maybe, shape
from horae.web.table import Access, Operation, Voice

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.requests import Request

    from horae.core.views import AgentLine
    from horae.web.front import Front
    from horae.web.request import RequestFields

CHANGES: Final = 30


async def activity(front: Front, _: Request, __: RequestFields) -> dict[str, Any]:
    """Show for each agent whether it is running, its last and next run, its lifecycle state."""
    _refuse_private(front)
    found = await _agents(front)
    told: list[dict[str, Any]] = [
        {
            "name": each.name,
            "running": each.is_running,
            "last_run": _seconds(each.last_run_at),
            "next_run": _seconds(each.entry.next_at),
            "lifecycle": None if each.place is None else dict(each.place),
            "steps": [],
            "thought": None,
        }
        for each in found
    ]
    if len(found) == 1:
        return {"agent": await _status(front, found[0]), "steps": [], "thought": None}
    return {"agents": told, "wire": [], "agent": await _status(front, _shown(found))}


async def changes(front: Front, _: Request, __: RequestFields) -> dict[str, Any]:
    """List the newest commits of the plan root."""
    _refuse_private(front)
    found = [] if front.changes is None else (await front.changes())[:CHANGES]
    return {"changes": found, "agent": await _status(front, _shown(await _agents(front)))}


def _refuse_private(front: Front) -> None:
    if not front.is_public:
        raise NotOfferedError("public status; `server.public` is off")


async def _agents(front: Front) -> tuple[AgentLine, ...]:
    return (await front.service.status(front.facts(), limit=1000)).agents


def _shown(found: tuple[AgentLine, ...]) -> AgentLine | None:
    """Return the agent that runs, else the first."""
    return next((each for each in found if each.is_running), found[0] if found else None)


async def _status(front: Front, agent: AgentLine | None) -> dict[str, Any] | None:
    if agent is None:
        return None
    entry = agent.entry
    known = None if front.ledger is None else await front.ledger.entry(entry.number)
    base = None
    if known is not None and isinstance(known.item, Entry):
        rule = known.item.rule
        base = rule.base if isinstance(rule, CadenceRule) else None
    return {
        "active": entry.is_armed,
        "running": agent.is_running,
        "agent": agent.name,
        "last_run": _seconds(agent.last_run_at),
        "next_run": _seconds(entry.next_at),
        "interval_ms": None if base is None else int(base.total_seconds() * 1000),
        "lifecycle": None if agent.place is None else dict(agent.place),
    }


def _seconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp())


_STATUS: Final = maybe(
    shape(
        active=FLAG,
        running=FLAG,
        agent=TEXT,
        last_run=maybe(NUMBER),
        next_run=maybe(NUMBER),
        interval_ms=maybe(NUMBER),
        lifecycle=maybe(FACTS),
    )
)
_AGENT: Final = shape(
    name=TEXT,
    running=FLAG,
    last_run=maybe(NUMBER),
    next_run=maybe(NUMBER),
    lifecycle=maybe(FACTS),
    steps=listed(FACTS),
    thought=maybe(TEXT),
)
_ONE: Final = shape(agent=_STATUS, steps=listed(FACTS), thought=maybe(TEXT))
_CREW: Final = shape(agents=listed(_AGENT), wire=listed(FACTS), agent=_STATUS)

OPERATIONS: Final = (
    Operation(
        "GET",
        "/_activity",
        Access.PUBLIC,
        activity,
        {"anyOf": [_ONE, _CREW]},
        voice=Voice.PLAIN,
        also=(404,),
    ),
    Operation(
        "GET",
        "/_changes",
        Access.PUBLIC,
        changes,
        shape(changes=listed(FACTS), agent=_STATUS),
        voice=Voice.PLAIN,
        also=(404,),
    ),
)
