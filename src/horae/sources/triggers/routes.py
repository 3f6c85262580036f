"""The routes of triggers, at the paths and in the shapes that their users know.

What we call a trigger is a workflow there, and what we call a receipt is a dispatch.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

import horae
from horae.core.scope import Scope
from horae.sources.triggers.service import EDITS, RUNS, answer as do
from horae.web.answer import HEADERS, told
from horae.web.front import offered
from horae.web.request import idempotency_key, path_number
from horae.web.shapes import FACTS, NUMBER, TEXT, listed, maybe, named, page_of, shape
from horae.web.table import (
    Access,
    Field,
    FieldKind,
    Operation,
    Takes,
    Voice,
    number,
    text,
    thing,
)

if TYPE_CHECKING:
    from starlette.requests import Request

    from horae.sources.triggers.service import Triggers
    from horae.web.front import Front
    from horae.web.request import RequestFields

_WHAT: Final = "triggers"


async def alive(front: Front, _: Request, __: RequestFields) -> dict[str, Any]:
    """Report that the service is up, and how many agents are running."""
    active = 0
    if front.triggers is not None:
        active = (await front.triggers.agents(limit=1, status="running"))["total"]
    details = {"agents_active": active}
    return {"status": "ok", "service": "horae", "version": horae.__version__, "details": details}


async def workflows(front: Front, _: Request, asked: RequestFields) -> dict[str, Any]:
    """List workflows, newest first."""
    triggers = _triggers(front)
    return await triggers.page(limit=asked.number("limit"), offset=asked.number("offset"))


async def workflow(front: Front, request: Request, _: RequestFields) -> dict[str, Any]:
    """Show one workflow by id or name."""
    return await _triggers(front).get(request.path_params["id"])


async def create_workflow(front: Front, _: Request, asked: RequestFields) -> Response:
    """Create a workflow and arm it."""
    return told(await _triggers(front).create(asked.given), HTTPStatus.CREATED)


async def update_workflow(front: Front, request: Request, asked: RequestFields) -> dict[str, Any]:
    """Update a workflow; fields that are null stay unchanged."""
    return await _triggers(front).update(request.path_params["id"], asked.given)


async def delete_workflow(front: Front, request: Request, _: RequestFields) -> Response:
    """Delete a workflow; its dispatches remain."""
    await _triggers(front).delete(request.path_params["id"])
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=HEADERS)


async def workflow_history(front: Front, request: Request, asked: RequestFields) -> dict[str, Any]:
    """List the dispatches of a workflow, newest first."""
    return await _triggers(front).history(
        request.path_params["id"], limit=asked.number("limit"), offset=asked.number("offset")
    )


async def trigger_workflow(front: Front, request: Request, asked: RequestFields) -> dict[str, Any]:
    """Run a workflow now; the same Idempotency-Key returns the same dispatch."""
    return await _triggers(front).trigger_now(
        request.path_params["id"], dict(asked.given), key=idempotency_key(request)
    )


async def webhook(front: Front, request: Request, asked: RequestFields) -> Response:
    """Deliver a message to a workflow, signed in the scheme of its webhook."""
    headers = request.headers.items()
    receipt = await _triggers(front).deliver(request.path_params["id"], asked.raw, headers)
    return told({"receipt": receipt}, HTTPStatus.ACCEPTED)


async def trigger_agents(front: Front, _: Request, asked: RequestFields) -> dict[str, Any]:
    """List the agents that workflows start, newest first."""
    return await _triggers(front).agents(
        limit=asked.number("limit"),
        offset=asked.number("offset"),
        status=asked.text("status") or None,
    )


async def trigger_agent(front: Front, request: Request, _: RequestFields) -> dict[str, Any]:
    """Show one agent by id or name."""
    return await _triggers(front).agent(request.path_params["id"])


async def create_agent(front: Front, _: Request, asked: RequestFields) -> Response:
    """Create an agent."""
    return told(await _triggers(front).create_agent(asked.given), HTTPStatus.CREATED)


async def delete_agent(front: Front, request: Request, _: RequestFields) -> dict[str, Any]:
    """Delete an agent that no workflow starts."""
    return await _triggers(front).delete_agent(request.path_params["id"])


async def message_agent(front: Front, request: Request, asked: RequestFields) -> dict[str, Any]:
    """Run an agent once with a message as its prompt."""
    return await _triggers(front).send_message(
        request.path_params["id"], asked.given.get("content")
    )


async def agent_usage(front: Front, request: Request, _: RequestFields) -> dict[str, Any]:
    """Show the usage of an agent's last run and of all its runs."""
    return await _triggers(front).usage(request.path_params["id"])


async def approvals(front: Front, _: Request, __: RequestFields) -> dict[str, Any]:
    """List the receipts that wait for approval, oldest first."""
    return {"approvals": await _triggers(front).approvals()}


async def approve(front: Front, request: Request, _: RequestFields) -> dict[str, Any]:
    """Approve a receipt that waits for approval."""
    return await _triggers(front).approve(path_number(request))


async def deny(front: Front, request: Request, asked: RequestFields) -> dict[str, Any]:
    """Reject a receipt that waits for approval."""
    return await _triggers(front).deny(path_number(request), reason=asked.text("reason"))


def _triggers(front: Front) -> Triggers:
    return offered(front.triggers, _WHAT)


_PAGE: Final = (
    number("limit", "maximum number of results, up to 200; default: 50"),
    number("offset", "number of the newest results to skip"),
)
_STATUS: Final = Field(
    "status", FieldKind.TEXT, "only agents with this status, `running` or `stopped`"
)
_WORKFLOW: Final = (
    text("name", "unique name of the workflow"),
    text("agent_id", "the agent to start"),
    thing("trigger_config", "the trigger: `type` and the fields of that type"),
    thing("prompt_template", "prompt, with variables in double braces"),
    thing("poll_interval_secs", "seconds between two polls; default: 60"),
    thing("enabled", "false: the workflow is stored but not armed"),
    thing("tool_policy", "tools that the agent may use"),
)
_AGENT: Final = (
    text("name", "name of the agent"),
    thing("working_dir", "working directory; default: the plan root"),
    thing("system_prompt", "system prompt"),
    thing("command", "command that runs the agent; default: `agent.command`"),
    thing("model", "model to use"),
)
_TASK: Final = (
    thing("title", "title of the task"),
    thing("body", "body of the task"),
    thing("metadata", "values of the variables in the prompt"),
)


def _plain(
    method: str, path: str, access: Scope | Access, answer: Any, says: Any, **more: Any
) -> Operation:
    """Return a route that says errors as `{"error": …}`."""
    more.setdefault("also", (404, 409) if method != "GET" else (404,))
    return Operation(method, path, access, answer, says, voice=Voice.PLAIN, **more)


def _verb(verb: str, about: str, scope: Scope) -> Operation:
    """Return the route by which a command calls a method of the service."""

    async def answer(front: Front, _: Request, asked: RequestFields) -> dict[str, Any]:
        return await do(_triggers(front), verb, asked.given)

    answer.__name__ = f"command_{verb}"
    return Operation(
        "POST",
        f"/api/v1/triggers/{verb}",
        scope,
        answer,
        FACTS,
        takes=Takes.LOOSE,
        also=(404, 409),
        about=f"{about}, as the command line does.",
    )


OPERATIONS: Final = (
    _plain(
        "GET",
        "/health",
        Access.OPEN,
        alive,
        shape(status=TEXT, service=TEXT, version=TEXT, details=shape(agents_active=NUMBER)),
        also=(),
    ),
    _plain("GET", "/workflows", Scope.READ, workflows, page_of("Trigger"), query=_PAGE),
    _plain(
        "POST",
        "/workflows",
        Scope.EDIT,
        create_workflow,
        named("Trigger"),
        body=_WORKFLOW,
        takes=Takes.LOOSE,
        status=201,
    ),
    _plain("GET", "/workflows/{id}", Scope.READ, workflow, named("Trigger")),
    _plain(
        "PUT",
        "/workflows/{id}",
        Scope.EDIT,
        update_workflow,
        named("Trigger"),
        body=_WORKFLOW,
        takes=Takes.LOOSE,
    ),
    _plain("DELETE", "/workflows/{id}", Scope.EDIT, delete_workflow, {}, status=204),
    _plain(
        "GET",
        "/workflows/{id}/history",
        Scope.READ,
        workflow_history,
        page_of("Dispatch"),
        query=_PAGE,
    ),
    _plain(
        "POST",
        "/workflows/{id}/trigger",
        Scope.RUN,
        trigger_workflow,
        named("Dispatch"),
        body=_TASK,
        takes=Takes.LOOSE,
        headers=("Idempotency-Key",),
    ),
    _plain(
        "POST",
        "/webhooks/{id}",
        Access.SIGNED,
        webhook,
        shape(receipt=maybe(NUMBER)),
        takes=Takes.BYTES,
        status=202,
        headers=(
            "webhook-id",
            "webhook-timestamp",
            "webhook-signature",
            "X-Hub-Signature-256",
        ),
        also=(401,),
    ),
    _plain(
        "GET",
        "/agents",
        Scope.READ,
        trigger_agents,
        page_of("TriggerAgent"),
        query=(*_PAGE, _STATUS),
    ),
    _plain(
        "POST",
        "/agents",
        Scope.EDIT,
        create_agent,
        named("TriggerAgent"),
        body=_AGENT,
        takes=Takes.LOOSE,
        status=201,
    ),
    _plain("GET", "/agents/{id}", Scope.READ, trigger_agent, named("TriggerAgent")),
    _plain("DELETE", "/agents/{id}", Scope.EDIT, delete_agent, named("TriggerAgent")),
    _plain(
        "POST",
        "/agents/{id}/message",
        Scope.RUN,
        message_agent,
        FACTS,
        body=(thing("content", "prompt of the run"),),
        takes=Takes.LOOSE,
    ),
    _plain("GET", "/agents/{id}/usage", Scope.READ, agent_usage, FACTS),
    Operation(
        "GET",
        "/api/v1/approvals",
        Scope.READ,
        approvals,
        shape(approvals=listed(named("Approval"))),
        also=(404,),
    ),
    Operation(
        "POST",
        "/api/v1/approvals/{number}/approve",
        Scope.RUN,
        approve,
        named("Approval"),
        takes=Takes.FIELDS,
        also=(404, 409),
    ),
    Operation(
        "POST",
        "/api/v1/approvals/{number}/deny",
        Scope.RUN,
        deny,
        named("Approval"),
        body=(text("reason", "reason for the rejection"),),
        takes=Takes.FIELDS,
        also=(404, 409),
    ),
    *(_verb(verb, about, Scope.EDIT) for verb, about in EDITS.items()),
    *(_verb(verb, about, Scope.RUN) for verb, about in RUNS.items()),
)
