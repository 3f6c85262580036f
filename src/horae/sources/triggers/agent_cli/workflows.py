"""Workflows in the words of `agent`: made, listed, changed, asked to run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from horae.sources.triggers.agent_cli.words import (
    LONGEST,
    AgentCommandError,
    Here,
    dispatch_lines,
    every,
    failing,
    orchestrator,
    print_list,
    print_one,
    say_notes,
)
from horae.sources.triggers.commands import parse_json, prompt_of
from horae.sources.triggers.kinds import KINDS, TriggerError, kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from horae.sources.triggers.service import Triggers

_TYPES: Final = ("github-issues", "github-pull-requests", "cron", "delay", "webhook", "manual")
_EVENTS: Final = ("dispatch-result", "agent-lifecycle")


@orchestrator.command("create-workflow")
@click.option("--name", required=True, help="The name of the workflow.")
@click.option("--agent-id", metavar="UUID", help="The agent, by its id.")
@click.option("--agent-name", help="The agent, by its name.")
@click.option(
    "--trigger-type",
    type=click.Choice([*_TYPES, *_EVENTS]),
    default="github-issues",
    metavar="TYPE",
    help=f"What starts the workflow: {', '.join((*_TYPES, *_EVENTS))}.",
)
@click.option("--owner", help="For GitHub: the owner of the repository.")
@click.option("--repo", help="For GitHub: the name of the repository.")
@click.option("--labels", metavar="A,B", help="For GitHub: only issues with these labels.")
@click.option(
    "--state",
    default="open",
    type=click.Choice(["open", "closed", "all"]),
    help="For GitHub: only issues in this state.",
)
@click.option("--cron-expression", metavar="EXPR", help="For cron: when to run.")
@click.option("--timezone", metavar="ZONE", help="For cron: the time zone; default: UTC.")
@click.option("--run-at", metavar="T", help="For delay: when to run, such as 2026-04-01T09:00:00Z.")
@click.option(
    "--webhook-secret", metavar="SECRET", help="For webhook: the secret that signs messages."
)
@click.option("--event", metavar="EVENT", help="For agent-lifecycle: the event of the agent.")
@click.option(
    "--source-workflow-id", metavar="UUID", help="For dispatch-result: run after this workflow."
)
@click.option(
    "--status", "result", metavar="STATUS", help="For dispatch-result: run only after this result."
)
@click.option("--prompt-template", metavar="TEXT", help="The prompt; {{names}} are replaced.")
@click.option("--prompt-template-file", metavar="FILE", help="Read the prompt from a file.")
@click.option(
    "--poll-interval",
    default=60,
    show_default=True,
    type=int,
    metavar="SECONDS",
    help="Seconds between checks of GitHub.",
)
@click.option(
    "--tool-policy", metavar="JSON", help='The tool policy, such as {"mode": "deny_all"}.'
)
@click.option("--disabled", is_flag=True, help="Create the workflow disabled.")
@click.pass_obj
def create_workflow(here: Here, /, *, name: str, **given: Any) -> int:
    """Create a workflow."""
    _refuse_both(given, "agent_id", "agent_name")
    _refuse_both(given, "prompt_template", "prompt_template_file")
    if not given["agent_id"] and not given["agent_name"]:
        raise AgentCommandError("Either --agent-id or --agent-name must be provided.")
    template = prompt_of(given["prompt_template"], given["prompt_template_file"])
    if template is None:
        raise AgentCommandError(
            "Either --prompt-template or --prompt-template-file must be provided."
        )
    said = {
        "name": name,
        "trigger_config": _config(given),
        "prompt_template": template,
        "poll_interval_secs": given["poll_interval"],
        "enabled": not given["disabled"],
    }
    if given["tool_policy"]:
        said["tool_policy"] = parse_json(given["tool_policy"], "--tool-policy")

    async def make(triggers: Triggers) -> dict[str, Any]:
        who = given["agent_id"] or await _agent_called(triggers, given["agent_name"])
        with failing("create workflow"):
            return await triggers.create({**said, "agent_id": who})

    made = here.write(make)
    return _print_made(here, made, "Workflow created successfully!")


@orchestrator.command("list-workflows")
@click.pass_obj
def list_workflows(here: Here) -> int:
    """List the workflows, newest first."""
    found = here.read(lambda triggers: every(triggers.page))
    return print_list(
        here, found, "Workflows", _workflow_lines, word="workflow", empty="No workflows found."
    )


@orchestrator.command("get-workflow")
@click.argument("workflow", metavar="ID")
@click.pass_obj
def get_workflow(here: Here, workflow: str) -> int:
    """Show a workflow."""
    found = here.read(lambda triggers: triggers.get(workflow))
    return print_one(here, found, _workflow_lines(found))


@orchestrator.command("update-workflow")
@click.argument("workflow", metavar="ID")
@click.option("--name", help="The new name.")
@click.option("--prompt-template", metavar="TEXT", help="The prompt; {{names}} are replaced.")
@click.option("--prompt-template-file", metavar="FILE", help="Read the prompt from a file.")
@click.option(
    "--poll-interval", type=int, metavar="SECONDS", help="Seconds between checks of GitHub."
)
@click.option(
    "--enabled", type=click.BOOL, metavar="true|false", help="Enable or disable the workflow."
)
@click.option("--agent-name", help="The new agent.")
@click.option("--cron-expression", metavar="EXPR", help="Run by this cron expression.")
@click.option("--timezone", metavar="ZONE", help="The time zone of --cron-expression.")
@click.option("--run-at", metavar="T", help="Run once, such as 2026-04-01T09:00:00Z.")
@click.option(
    "--tool-policy", metavar="JSON", help='The tool policy, such as {"mode": "deny_all"}.'
)
@click.pass_obj
def update_workflow(here: Here, /, workflow: str, **given: Any) -> int:
    """Change a workflow.

    The change takes effect at once.
    """
    said = {
        "name": given["name"],
        "prompt_template": prompt_of(given["prompt_template"], given["prompt_template_file"]),
        "poll_interval_secs": given["poll_interval"],
        "enabled": given["enabled"],
        "agent_name": given["agent_name"],
    }
    if given["tool_policy"]:
        said["tool_policy"] = parse_json(given["tool_policy"], "--tool-policy")
    if given["cron_expression"]:
        said["trigger_config"] = {
            "type": "cron",
            "expression": given["cron_expression"],
            "timezone": given["timezone"],
        }
    if given["run_at"]:
        said["trigger_config"] = {"type": "delay", "run_at": given["run_at"]}

    async def change(triggers: Triggers) -> dict[str, Any]:
        with failing("update workflow"):
            return await triggers.update(workflow, said)

    return _print_made(here, here.write(change), "Workflow updated successfully!")


@orchestrator.command("delete-workflow")
@click.argument("workflow", metavar="ID")
@click.pass_obj
def delete_workflow(here: Here, workflow: str) -> int:
    """Delete a workflow."""
    gone = here.write(lambda triggers: triggers.delete(workflow))
    return print_one(here, gone, [f"Workflow {gone['id']} deleted."])


@orchestrator.command("dispatch-history")
@click.argument("workflow", metavar="ID")
@click.pass_obj
def dispatch_history(here: Here, workflow: str) -> int:
    """List the dispatches of a workflow, newest first."""
    return _history(here, workflow)


@orchestrator.command("workflow-history")
@click.argument("workflow", metavar="ID")
@click.pass_obj
def workflow_history(here: Here, workflow: str) -> int:
    """List the dispatches of a workflow, newest first."""
    return _history(here, workflow)


def _history(here: Here, workflow: str) -> int:
    """Show what a workflow did, newest first."""

    async def look(triggers: Triggers) -> list[dict[str, Any]]:
        return await every(lambda **part: triggers.history(workflow, **part))

    found = here.read(look)
    empty = "No dispatch history found."
    return print_list(here, found, "Dispatch History", dispatch_lines, word="dispatch", empty=empty)


@orchestrator.command("trigger-workflow")
@click.argument("workflow", metavar="ID")
@click.option("--title", default="", help="The value of {{title}}.")
@click.option("--body", default="", help="The value of {{body}}.")
@click.pass_obj
def trigger_workflow(here: Here, workflow: str, *, title: str, body: str) -> int:
    """Run a workflow now."""
    said = {"title": title, "body": body}

    async def ask(triggers: Triggers) -> dict[str, Any]:
        with failing("trigger workflow"):
            return await triggers.trigger_now(workflow, said)

    made = here.write(ask)
    return print_one(here, made, ["Workflow triggered!", "", *dispatch_lines(made)])


@orchestrator.command("validate-template")
@click.argument("template", required=False)
@click.option("--file", metavar="FILE", help="Read the template from a file.")
@click.pass_obj
def validate_template(here: Here, template: str | None, *, file: str | None) -> int:
    """Check a prompt template."""
    from horae.sources.triggers.service import validate_template

    text = prompt_of(template, file)
    if text is None:
        raise AgentCommandError("Give the template, or --file with the file that it is in.")
    said = validate_template(text)
    warnings, known = said["warnings"], said["known_variables"]
    assert isinstance(warnings, list), "it is a list of texts"
    assert isinstance(known, list), "it is a list of names"
    lines = ["Template is valid." if said["valid"] else "Template has problems:"]
    lines += [f"  - {each}" for each in warnings]
    return print_one(here, said, [*lines, f"Known variables: {', '.join(known)}"])


# What a command line says


async def _agent_called(triggers: Triggers, name: str) -> str:
    try:
        return await triggers.agent_named({"agent_name": name})
    except TriggerError as error:
        if error.reason != "Agent not found":
            raise
        raise AgentCommandError(
            f"Agent '{name}' not found. "
            "Use 'agent orchestrator list-agents' to see available agents."
        ) from None


def _config(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a workflow waits for, in the words of the API."""
    kind = KINDS[given["trigger_type"].replace("-", "_")]
    for name in kind.agent_needs:
        if given[name] is None:
            option = f"--{name.replace('_', '-')}"
            raise AgentCommandError(f"{option} is required for {given['trigger_type']} trigger")
    labels = [each.strip() for each in (given["labels"] or "").split(",") if each.strip()]
    given = {**given, "labels": labels}
    return {"type": kind.type, **{key: given[name] for key, name in kind.agent_options.items()}}


def _refuse_both(given: Mapping[str, Any], one: str, other: str) -> None:
    if given[one] is not None and given[other] is not None:
        first, second = (f"--{name.replace('_', '-')}" for name in (one, other))
        raise click.UsageError(f"{first} cannot be used with {second}.")


# What is shown


def _print_made(here: Here, made: Mapping[str, Any], text: str) -> int:
    say_notes(made)
    return print_one(here, made, [text, "", *_workflow_lines(made)])


def _workflow_lines(workflow: Mapping[str, Any]) -> list[str]:
    config = workflow["trigger_config"]
    template = workflow["prompt_template"]
    shown = template if len(template) <= LONGEST else f"{template[: LONGEST - 3]}..."
    facts = {
        "ID": workflow["id"],
        "Name": workflow["name"],
        "Agent ID": workflow["agent_id"],
        "Status": "enabled" if workflow["enabled"] else "disabled",
        "Poll Interval": f"{workflow['poll_interval_secs']}s",
        "Trigger Type": config["type"],
        **kind_of(config).lines(),
        "Prompt Template": shown.replace("\n", "\\n"),
        "Created": workflow["created_at"].replace("T", " ").replace("Z", " UTC"),
    }
    return [f"{name}: {value}" for name, value in facts.items()]
