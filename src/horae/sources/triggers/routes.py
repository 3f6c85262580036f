"""The routes of triggers, at the paths and in the shapes that their users know.

What we call a trigger is a workflow there, and what we call a receipt is a dispatch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

import horae
from horae.core.scope import Scope
from horae.sources.triggers.service import VERBS, Triggers, answer
from horae.web import router
from horae.web.answer import HEADERS
from horae.web.router import Access, Front, Operation, RequestFields, Takes

if TYPE_CHECKING:
    from starlette.requests import Request


async def alive(front: Front, _: Request, __: RequestFields) -> dict[str, Any]:
    """Report that the service is up, and how many agents are running."""
    active = 0
    if front.triggers is not None:
        active = (await front.triggers.agents(limit=1, status="running"))["total"]
    details = {"agents_active": active}
    return {"status": "ok", "service": "horae", "version": horae.__version__, "details": details}


def _id(request: Request) -> str:
    return str(request.path_params["id"])


def _part(asked: RequestFields) -> dict[str, int | None]:
    return {name: asked.number(name) for name in ("limit", "offset")}


async def _delete(triggers: Triggers, request: Request, _: RequestFields) -> Response:
    await triggers.delete(_id(request))
    return Response(status_code=204, headers=HEADERS)


async def _deliver(triggers: Triggers, request: Request, asked: RequestFields) -> dict[str, Any]:
    return {"receipt": await triggers.deliver(_id(request), asked.raw, request.headers.items())}


async def _approvals(triggers: Triggers, _: Request, __: RequestFields) -> dict[str, Any]:
    return {"approvals": await triggers.approvals()}


def _route(  # noqa: PLR0917 - a row of the table below
    method: str,
    path: str,
    access: Scope | Access,
    name: str,
    about: str,
    work: Callable[[Triggers, Request, RequestFields], Awaitable[Any]],
    says: str,
    **more: Any,
) -> Operation:
    """Return a route that the service answers; those of agentd say errors as `{"error": …}`."""

    async def called(front: Front, request: Request, asked: RequestFields) -> Any:
        return await work(router.offered(front.triggers, "triggers"), request, asked)

    called.__name__ = name
    more.setdefault("also", (404, 409) if method != "GET" else (404,))
    if "body" in more:
        more.setdefault("takes", Takes.LOOSE)
    return Operation(method, path, access, called, says, about=about, **more)


def _verb(verb: str, scope: Scope, about: str) -> Operation:
    """Return the route by which a command calls a method of the service."""
    path, about = f"/api/v1/triggers/{verb}", f"{about}, as the command line does."

    def call(triggers: Triggers, _: Request, asked: RequestFields) -> Awaitable[dict[str, Any]]:
        return answer(triggers, verb, asked.given)

    name = f"command_{verb}"
    return _route("POST", path, scope, name, about, call, "object", takes=Takes.LOOSE)


_PAGE: Final = (
    router.number("limit", "maximum number of results, up to 200; default: 50"),
    router.number("offset", "number of the newest results to skip"),
)
_STATUS: Final = router.text("status", "only agents with this status, `running` or `stopped`")
_WORKFLOW: Final = (
    router.text("name", "unique name of the workflow"),
    router.text("agent_id", "the agent to start"),
    router.thing("trigger_config", "the trigger: `type` and the fields of that type"),
    router.thing("prompt_template", "prompt, with variables in double braces"),
    router.thing("poll_interval_secs", "seconds between two polls; default: 60"),
    router.thing("enabled", "false: the workflow is stored but not armed"),
    router.thing("tool_policy", "tools that the agent may use"),
)
_AGENT: Final = (
    router.text("name", "name of the agent"),
    router.thing("working_dir", "working directory; default: the plan root"),
    router.thing("system_prompt", "system prompt"),
    router.thing("command", "command that runs the agent; default: `agent.command`"),
    router.thing("model", "model to use"),
)
_TASK: Final = (
    router.thing("title", "title of the task"),
    router.thing("body", "body of the task"),
    router.thing("metadata", "values of the variables in the prompt"),
)
_REASON: Final = router.text("reason", "reason for the rejection")
_SIGNATURES: Final = ("webhook-id", "webhook-timestamp", "webhook-signature", "X-Hub-Signature-256")
_PART: Final = "total:int limit:int offset:int"
_READ, _EDIT, _RUN = Scope.READ, Scope.EDIT, Scope.RUN

# fmt: off
OPERATIONS: Final = (
    Operation("GET", "/health", Access.OPEN, alive,
              "status service version details:service"),
    _route("GET", "/workflows", _READ, "workflows", "List workflows, newest first.",
           lambda triggers, _, asked: triggers.page(**_part(asked)),
           f"items:Trigger[] {_PART}", query=_PAGE),
    _route("POST", "/workflows", _EDIT, "create_workflow", "Create a workflow and arm it.",
           lambda triggers, _, asked: triggers.create(asked.given),
           "Trigger", body=_WORKFLOW, status=201),
    _route("GET", "/workflows/{id}", _READ, "workflow", "Show one workflow by id or name.",
           lambda triggers, request, _: triggers.get(_id(request)), "Trigger"),
    _route("PUT", "/workflows/{id}", _EDIT, "update_workflow",
           "Update a workflow; fields that are null stay unchanged.",
           lambda triggers, request, asked: triggers.update(_id(request), asked.given),
           "Trigger", body=_WORKFLOW),
    _route("DELETE", "/workflows/{id}", _EDIT, "delete_workflow",
           "Delete a workflow; its dispatches remain.", _delete, "any", status=204),
    _route("GET", "/workflows/{id}/history", _READ, "workflow_history",
           "List the dispatches of a workflow, newest first.",
           lambda triggers, request, asked: triggers.history(_id(request), **_part(asked)),
           f"items:Dispatch[] {_PART}", query=_PAGE),
    _route("POST", "/workflows/{id}/trigger", _RUN, "trigger_workflow",
           "Run a workflow now; the same Idempotency-Key returns the same dispatch.",
           lambda triggers, request, asked: triggers.trigger_now(
               _id(request), dict(asked.given), key=router.idempotency_key(request)),
           "Dispatch", body=_TASK, headers=("Idempotency-Key",)),
    _route("POST", "/webhooks/{id}", Access.SIGNED, "webhook",
           "Deliver a message to a workflow, signed in the scheme of its webhook.", _deliver,
           "receipt:int?",
           takes=Takes.BYTES, status=202, headers=_SIGNATURES, also=(401,)),
    _route("GET", "/agents", _READ, "trigger_agents",
           "List the agents that workflows start, newest first.",
           lambda triggers, _, asked: triggers.agents(
               **_part(asked), status=asked.text("status") or None),
           f"items:TriggerAgent[] {_PART}", query=(*_PAGE, _STATUS)),
    _route("POST", "/agents", _EDIT, "create_agent", "Create an agent.",
           lambda triggers, _, asked: triggers.create_agent(asked.given),
           "TriggerAgent", body=_AGENT, status=201),
    _route("GET", "/agents/{id}", _READ, "trigger_agent", "Show one agent by id or name.",
           lambda triggers, request, _: triggers.agent(_id(request)), "TriggerAgent"),
    _route("DELETE", "/agents/{id}", _EDIT, "delete_agent",
           "Delete an agent that no workflow starts.",
           lambda triggers, request, _: triggers.delete_agent(_id(request)), "TriggerAgent"),
    _route("POST", "/agents/{id}/message", _RUN, "message_agent",
           "Run an agent once with a message as its prompt.",
           lambda triggers, request, asked: triggers.send_message(
               _id(request), asked.given.get("content")),
           "object", body=(router.thing("content", "prompt of the run"),)),
    _route("GET", "/agents/{id}/usage", _READ, "agent_usage",
           "Show the usage of an agent's last run and of all its runs.",
           lambda triggers, request, _: triggers.usage(_id(request)), "object"),
    _route("GET", "/api/v1/approvals", _READ, "approvals",
           "List the receipts that wait for approval, oldest first.", _approvals,
           "approvals:Approval[]"),
    _route("POST", "/api/v1/approvals/{number}/approve", _RUN, "approve",
           "Approve a receipt that waits for approval.",
           lambda triggers, request, _: triggers.approve(router.path_number(request)),
           "Approval", takes=Takes.FIELDS),
    _route("POST", "/api/v1/approvals/{number}/deny", _RUN, "deny",
           "Reject a receipt that waits for approval.",
           lambda triggers, request, asked: triggers.deny(
               router.path_number(request), reason=asked.text("reason")),
           "Approval", takes=Takes.FIELDS, body=(_REASON,)),
    *(_verb(verb, scope, about) for verb, (scope, about) in VERBS.items()),
)
# fmt: on
