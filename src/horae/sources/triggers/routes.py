"""The routes of triggers, at the paths and in the shapes of agentd.

There a trigger is a workflow, and a receipt is a dispatch. The service validates request bodies,
and ignores unknown fields.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Final

from msgspec import structs, to_builtins
from starlette.requests import Request
from starlette.responses import Response

import horae
from horae.core.actor import Scope
from horae.core.views import Shape
from horae.sources.triggers import views
from horae.sources.triggers.files import DefinitionFile, apply_files
from horae.sources.triggers.service import Triggers
from horae.web.answer import HEADERS
from horae.web.fields import Fields, Number, Text, Word, about
from horae.web.front import Front, offered, tag_of
from horae.web.router import Access, Routes

routes = Routes()
_TRIGGERS, _AGENTS = "/api/v1/triggers", "/api/v1/trigger-agents"
_READ, _EDIT, _RUN = Scope.READ, Scope.EDIT, Scope.RUN
_SIGNATURES: Final = ("webhook-id", "webhook-timestamp", "webhook-signature", "X-Hub-Signature-256")


class PageQuery(Fields, frozen=True):
    limit: Annotated[Number | None, about("number of results, up to 200; default: 50")] = None
    offset: Annotated[Number | None, about("number of the newest results to skip")] = None


class TriggerAgentsQuery(PageQuery, frozen=True):
    status: Annotated[Word, about("only agents with this status, `running` or `stopped`")] = ""


class WorkflowFields(Fields, frozen=True, forbid_unknown_fields=False):
    name: Annotated[Text, about("unique name of the workflow")] = ""
    agent_id: Annotated[Text, about("the agent to start")] = ""
    trigger_config: Annotated[Any, about("the trigger: `type` and the fields of that type")] = None
    prompt_template: Annotated[Any, about("prompt, with variables in double braces")] = None
    poll_interval_secs: Annotated[Any, about("seconds between two polls; default: 60")] = None
    enabled: Annotated[Any, about("false: the workflow is stored but not armed")] = None
    tool_policy: Annotated[Any, about("tools that the agent may use")] = None


class AgentFields(Fields, frozen=True, forbid_unknown_fields=False):
    name: Annotated[Text, about("name of the agent")] = ""
    working_dir: Annotated[Any, about("working directory; default: the plan root")] = None
    system_prompt: Annotated[Any, about("system prompt")] = None
    command: Annotated[Any, about("command that runs the agent; default: `agent.command`")] = None
    model: Annotated[Any, about("model to use")] = None


class TaskFields(Fields, frozen=True, forbid_unknown_fields=False):
    title: Annotated[Any, about("title of the task")] = None
    body: Annotated[Any, about("body of the task")] = None
    metadata: Annotated[Any, about("values of the variables in the prompt")] = None


class MessageFields(Fields, frozen=True, forbid_unknown_fields=False):
    content: Annotated[Any, about("prompt of the run")] = None


class SecretRequest(Fields, frozen=True):
    secret: Annotated[Text, about("the new secret")] = ""


class FilesRequest(Fields, frozen=True):
    definitions: Annotated[tuple[DefinitionFile, ...], about("what the files define")]
    dry_run: Annotated[bool, about("true: report what would change, change nothing")] = False
    teardown: Annotated[bool, about("true: remove what the files define")] = False


class GoingQuery(Fields, frozen=True):
    going: Annotated[bool, about("true: only a current run")] = False


class DenyRequest(Fields, frozen=True):
    reason: Annotated[Text, about("reason for the rejection")] = ""


class ServiceDetails(Shape, frozen=True):
    agents_active: int


class ServiceHealth(Shape, frozen=True, kw_only=True):
    status: str
    service: str
    version: str
    details: ServiceDetails


class Delivery(Shape, frozen=True):
    receipt: int | None


class AgentRunNumber(Shape, frozen=True):
    run: int


@routes.get("/health", Access.OPEN)
async def alive(front: Front) -> ServiceHealth:
    """Report that the service is up, and how many agents are running."""
    active = 0
    if front.triggers is not None:
        active = (await front.triggers.agents(limit=1, status="running")).total
    details, version = ServiceDetails(agents_active=active), horae.__version__
    return ServiceHealth(status="ok", service="horae", version=version, details=details)


def _triggers(front: Front) -> Triggers:
    return offered(front.triggers, "triggers")


async def _workflow_tag(front: Front, request: Request) -> str:
    return tag_of(to_builtins(await _triggers(front).get(request.path_params["id"])))


async def _agent_tag(front: Front, request: Request) -> str:
    said = await _triggers(front).agent(request.path_params["id"])
    return tag_of(to_builtins(structs.replace(said, activity="")))


@routes.get("/workflows", _READ, also=(404,))
async def workflows(front: Front, query: PageQuery) -> views.TriggerPage:
    """List workflows, newest first."""
    return await _triggers(front).page(limit=query.limit, offset=query.offset)


@routes.post("/workflows", _EDIT, body=WorkflowFields, status=201)
async def create_workflow(front: Front, given: dict[str, Any]) -> views.TriggerLine:
    """Create a workflow and arm it."""
    return await _triggers(front).create(given)


@routes.get("/workflows/{id}", _READ, tag=_workflow_tag)
async def workflow(front: Front, id: str) -> views.TriggerLine:
    """Show one workflow by id or name."""
    return await _triggers(front).get(id)


@routes.add("PUT", "/workflows/{id}", _EDIT, body=WorkflowFields, tag=_workflow_tag)
async def update_workflow(front: Front, id: str, given: dict[str, Any]) -> views.TriggerLine:
    """Update a workflow; fields that are null stay unchanged."""
    return await _triggers(front).update(id, given)


@routes.add("DELETE", "/workflows/{id}", _EDIT, status=204, tag=_workflow_tag)
async def delete_workflow(front: Front, id: str) -> Response:
    """Delete a workflow; its dispatches remain."""
    await _triggers(front).delete(id)
    return Response(status_code=204, headers=HEADERS)


@routes.get("/workflows/{id}/history", _READ)
async def workflow_history(front: Front, id: str, query: PageQuery) -> views.DispatchPage:
    """List the dispatches of a workflow, newest first."""
    return await _triggers(front).history(id, limit=query.limit, offset=query.offset)


@routes.post("/workflows/{id}/trigger", _RUN, body=TaskFields)
async def trigger_workflow(
    front: Front, id: str, given: dict[str, Any], idempotency_key: str | None
) -> views.Dispatch:
    """Run a workflow now; the same Idempotency-Key returns the same dispatch."""
    return await _triggers(front).trigger_now(id, given, key=idempotency_key)


@routes.post("/webhooks/{id}", Access.SIGNED, status=202, headers=_SIGNATURES, also=(401,))
async def webhook(front: Front, request: Request, id: str, raw: bytes) -> Delivery:
    """Deliver a message to a workflow, signed in the scheme of its webhook."""
    return Delivery(receipt=await _triggers(front).deliver(id, raw, request.headers.items()))


@routes.get("/agents", _READ, also=(404,))
async def trigger_agents(front: Front, query: TriggerAgentsQuery) -> views.TriggerAgentPage:
    """List the agents that workflows start, newest first."""
    part = {"limit": query.limit, "offset": query.offset}
    return await _triggers(front).agents(**part, status=query.status or None)


@routes.post("/agents", _EDIT, body=AgentFields, status=201)
async def create_agent(front: Front, given: dict[str, Any]) -> views.TriggerAgent:
    """Create an agent."""
    return await _triggers(front).create_agent(given)


@routes.get("/agents/{id}", _READ, tag=_agent_tag)
async def trigger_agent(front: Front, id: str) -> views.TriggerAgent:
    """Show one agent by id or name."""
    return await _triggers(front).agent(id)


@routes.add("DELETE", "/agents/{id}", _EDIT, tag=_agent_tag)
async def delete_agent(front: Front, id: str) -> views.TriggerAgent:
    """Delete an agent that no workflow starts."""
    return await _triggers(front).delete_agent(id)


@routes.post("/agents/{id}/message", _RUN, body=MessageFields)
async def message_agent(front: Front, id: str, given: dict[str, Any]) -> views.SentMessage:
    """Run an agent once with a message as its prompt."""
    return await _triggers(front).send_message(id, given.get("content"))


@routes.get("/agents/{id}/usage", _READ)
async def agent_usage(front: Front, id: str) -> views.AgentUsage:
    """Show the usage of an agent's last run and of all its runs."""
    return await _triggers(front).usage(id)


# The same below our own path, with our names and problem documents.
_OURS: Final = {
    "workflows": "triggers",
    "create_workflow": "create_trigger",
    "workflow": "trigger",
    "update_workflow": "update_trigger",
    "workflow_history": "trigger_history",
    "trigger_workflow": "run_trigger",
    "trigger_agents": "list_trigger_agents",
    "create_agent": "create_trigger_agent",
    "trigger_agent": "show_trigger_agent",
    "delete_agent": "delete_trigger_agent",
    "message_agent": "message_trigger_agent",
    "agent_usage": "trigger_agent_usage",
}
for _each in [each for each in routes if each.name in _OURS]:
    _path = _each.path.replace("/trigger", "/run").replace("/workflows", _TRIGGERS)
    _path = _path.replace("/agents", _AGENTS)
    _words = _each.words.replace("workflow", "trigger")
    _words = _words.replace("dispatches", "receipts").replace("dispatch", "receipt")
    routes.append(replace(_each, path=_path, name=_OURS[_each.name], words=_words))


@routes.add("DELETE", f"{_TRIGGERS}/{{id}}", _EDIT, tag=_workflow_tag)
async def delete_trigger(front: Front, id: str) -> views.TriggerLine:
    """Delete a trigger; its receipts remain."""
    return await _triggers(front).delete(id)


@routes.post(f"{_TRIGGERS}/{{id}}/rotate", _EDIT)
async def rotate_secret(front: Front, id: str, body: SecretRequest) -> views.TriggerLine:
    """Give a webhook a second secret; without one the older secret ends."""
    return await _triggers(front).rotate(id, body.secret or None)


@routes.post("/api/v1/trigger-files", _EDIT)
async def apply_definitions(front: Front, body: FilesRequest) -> views.FileChanges:
    """Create and update, or remove, the agents and triggers that files define."""
    how = {"dry_run": body.dry_run, "teardown": body.teardown}
    return views.FileChanges(
        changes=tuple(await apply_files(_triggers(front), body.definitions, **how))
    )


@routes.add("PUT", f"{_AGENTS}/{{id}}", _EDIT, body=AgentFields, tag=_agent_tag)
async def update_trigger_agent(front: Front, id: str, given: dict[str, Any]) -> views.TriggerAgent:
    """Update an agent; fields that are null stay unchanged."""
    return await _triggers(front).update_agent(id, given)


@routes.post(f"{_AGENTS}/{{id}}/clear", _RUN)
async def clear_context(front: Front, id: str) -> views.ClearedContext:
    """Clear the context of an agent."""
    return await _triggers(front).clear_context(id)


@routes.get(f"{_AGENTS}/{{id}}/run", _READ)
async def run_of_trigger_agent(front: Front, id: str, query: GoingQuery) -> AgentRunNumber:
    """Show the number of an agent's current run, else of its last one."""
    return AgentRunNumber(run=await _triggers(front).run_of(id, is_going=query.going))


@routes.get("/api/v1/approvals", _READ, also=(404,))
async def approvals(front: Front) -> views.ApprovalPage:
    """List the receipts that wait for approval, oldest first."""
    return views.ApprovalPage(approvals=tuple(await _triggers(front).approvals()))


@routes.post("/api/v1/approvals/{number}/approve", _RUN)
async def approve(front: Front, number: int) -> views.Approval:
    """Approve a receipt that waits for approval."""
    return await _triggers(front).approve(number)


@routes.post("/api/v1/approvals/{number}/deny", _RUN)
async def deny(front: Front, number: int, body: DenyRequest) -> views.Approval:
    """Reject a receipt that waits for approval."""
    return await _triggers(front).deny(number, reason=body.reason)
