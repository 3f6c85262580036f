"""`agent`: the spellings of the document on schedule triggers, thin over the same functions.

    agent orchestrator create-workflow --name daily-report --agent-name worker …
    agent apply .agentd/

Modules that a call does not need are imported where they are used, so that `agent --help` and
`agent --version` answer at once.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

import horae
from horae.cli.output import Form, clean, echo, print_error, print_json, usual_form
from horae.cli.run import run
from horae.errors import Exit, HoraeError
from horae.sources.triggers.kinds import KINDS, CronKind, DelayKind, TriggerError, kind_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from horae.cli.trigger_access import TriggerAccess
    from horae.sources.triggers.apply import FileChange
    from horae.sources.triggers.service import Triggers
    from horae.sources.triggers.source import Folder

LONGEST: Final = 60  # characters of a template that are shown
LOOK: Final = 0.1  # seconds between two looks at workflows that are not armed yet
_RULE: Final = 80
_TYPES: Final = ("github-issues", "github-pull-requests", "cron", "delay", "webhook", "manual")
_EVENTS: Final = ("dispatch-result", "agent-lifecycle")
_TOOL_POLICY: Final = click.option(
    "--tool-policy", metavar="JSON", help='The tool policy, such as {"mode": "deny_all"}.'
)


def main() -> None:
    sys.exit(run(agent, name="agent"))


class AgentCommandError(HoraeError):
    """A command line of `agent` that says not enough, or names no agent."""

    code = "agent_command"


class AgentCall(NamedTuple):
    """One call: how it answers, and where its ledger is."""

    is_json: bool
    root: str
    data: str | None

    @property
    def access(self) -> TriggerAccess:
        from horae.cli.trigger_access import TriggerAccess

        return TriggerAccess(root=self.root, data=self.data)

    def read(self, work: Callable[[Triggers], Awaitable[Any]]) -> Any:
        return self.access.read(work)

    def write(self, work: Callable[[Triggers], Awaitable[Any]], what: str = "") -> Any:
        """Carry out a change; an error says *what* could not be done, if it is named."""

        async def failing(triggers: Triggers) -> Any:
            with _failing(what):
                return await work(triggers)

        return self.access.write(failing if what else work)

    def print_one(self, data: object, lines: Sequence[str]) -> int:
        if self.is_json:
            print_json(data)
        else:
            _echo_lines(lines)
        return Exit.OK

    def print_made(self, made: Mapping[str, Any], lines: Sequence[str]) -> int:
        """Print one answer, and its notes on stderr."""
        for note in made.get("notes", ()):
            echo(f"Note: {note}", err=True)
        return self.print_one(made, lines)

    def print_list(
        self,
        found: Sequence[Mapping[str, Any]],
        title: str,
        lines: Callable[[Mapping[str, Any]], list[str]],
        *,
        word: str,
        empty: str,
    ) -> int:
        """Print a list, block after block; as JSON it is an array."""
        if self.is_json:
            print_json(found)
            return Exit.OK
        if not found:
            echo(empty)
            return Exit.OK
        echo(f"{title}:\n{'=' * _RULE}")
        for each in found:
            _echo_lines(lines(each))
            echo("-" * _RULE)
        plural = "es" if word.endswith("ch") else "s"
        echo(f"Total: {len(found)} {word}({plural})")
        return Exit.OK


class AgentGroup(click.Group):
    """A group whose errors are said as the document's program says them."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; one that fails ends with exit code 1."""
        try:
            return super().invoke(ctx)
        except HoraeError as error:
            if isinstance(ctx.obj, AgentCall) and ctx.obj.is_json:
                print_error(error.data())
            else:
                from horae.sources.triggers.service import api_words

                echo(f"Error: {api_words(error)}", err=True)
            return int(Exit.FINDINGS)


@click.group(cls=AgentGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
@click.option("--root", default=".", metavar="DIR", help="The plan root.")
@click.option("--data", metavar="DIR", help="The data directory; default: .horae in the plan root.")
@click.version_option(horae.__version__, prog_name="agent", message="%(prog)s %(version)s")
@click.pass_context
def agent(ctx: click.Context, *, is_json: bool, root: str, data: str | None) -> None:
    """Manage agents, and workflows that start them."""
    ctx.obj = AgentCall(is_json or usual_form() is not Form.TABLE, root, data)


@agent.group()
def orchestrator() -> None:
    """Manage agents and workflows one by one.

    A workflow of these commands is a trigger of `horae trigger`.
    """


def _command(
    name: str, group: click.Group = orchestrator
) -> Callable[[Callable[..., int]], click.Command]:
    """Add a command to a group; its function gets the call as its first argument."""
    return lambda function: group.command(name)(click.pass_obj(function))


def _of_one_agent(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command [ID] and --name, of which one names an agent, as the argument `who`."""

    @click.argument("agent_id", metavar="[ID]", required=False)
    @click.option("--name", help="The name of the agent.")
    @wraps(command)
    def called(*args: Any, agent_id: str | None, name: str | None, **given: Any) -> int:
        if (agent_id is None) is (name is None):
            raise click.UsageError("name one agent, by its ID or with --name.")
        return command(*args, who=agent_id or name, **given)

    return called


@contextmanager
def _failing(what: str) -> Iterator[None]:
    try:
        yield
    except HoraeError as error:
        from horae.sources.triggers.service import api_words

        raise AgentCommandError(f"Failed to {what}: {api_words(error)}") from error


async def _every(page: Callable[..., Awaitable[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return every item of a list, page after page."""
    found: list[dict[str, Any]] = []
    while True:
        part = await page(limit=200, offset=len(found))
        found += part["items"]
        if not part["items"] or len(found) >= part["total"]:
            return found


def _dispatch_lines(dispatch: Mapping[str, Any]) -> list[str]:
    facts = {
        "ID": dispatch["id"],
        "Workflow": dispatch["workflow"],
        "Source ID": dispatch["source_id"],
        "Status": dispatch["status"],
        "Dispatched": dispatch["dispatched_at"],
    }
    if dispatch["completed_at"]:
        facts["Completed"] = dispatch["completed_at"]
    if dispatch["status"] in {"skipped", "failed", "pending"}:
        facts["Reason"] = dispatch["reason"]
    if dispatch["count"] > 1:
        facts["Fire Times"] = str(dispatch["count"])
    return [f"{name + ':':<14}{value}" for name, value in facts.items()]


def _echo_lines(lines: Sequence[str]) -> None:
    for line in lines:
        echo(clean(line).replace("\n", "\\n"))


# Workflows


@_command("create-workflow")
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
@_TOOL_POLICY
@click.option("--disabled", is_flag=True, help="Create the workflow disabled.")
def create_workflow(call: AgentCall, /, *, name: str, **given: Any) -> int:
    """Create a workflow."""
    from horae.sources.triggers.commands import parse_json, prompt_of

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
        with _failing("create workflow"):
            return await triggers.create({**said, "agent_id": who})

    return _print_workflow(call, call.write(make), "Workflow created successfully!")


@_command("list-workflows")
def list_workflows(call: AgentCall) -> int:
    """List the workflows, newest first."""
    found = call.read(lambda triggers: _every(triggers.page))
    empty = "No workflows found."
    return call.print_list(found, "Workflows", _workflow_lines, word="workflow", empty=empty)


@_command("get-workflow")
@click.argument("workflow", metavar="ID")
def get_workflow(call: AgentCall, workflow: str) -> int:
    """Show a workflow."""
    found = call.read(lambda triggers: triggers.get(workflow))
    return call.print_one(found, _workflow_lines(found))


@_command("update-workflow")
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
@_TOOL_POLICY
def update_workflow(call: AgentCall, /, workflow: str, **given: Any) -> int:
    """Change a workflow.

    The change takes effect at once.
    """
    from horae.sources.triggers.commands import parse_json, prompt_of

    said = {
        "name": given["name"],
        "prompt_template": prompt_of(given["prompt_template"], given["prompt_template_file"]),
        "poll_interval_secs": given["poll_interval"],
        "enabled": given["enabled"],
        "agent_name": given["agent_name"],
    }
    if given["tool_policy"]:
        said["tool_policy"] = parse_json(given["tool_policy"], "--tool-policy")
    for kind in (CronKind, DelayKind):
        if all(given[name] for name in kind.agent_needs):
            said["trigger_config"] = kind.of_agent_options(given)
    made = call.write(lambda triggers: triggers.update(workflow, said), "update workflow")
    return _print_workflow(call, made, "Workflow updated successfully!")


@_command("delete-workflow")
@click.argument("workflow", metavar="ID")
def delete_workflow(call: AgentCall, workflow: str) -> int:
    """Delete a workflow."""
    gone = call.write(lambda triggers: triggers.delete(workflow))
    return call.print_one(gone, [f"Workflow {gone['id']} deleted."])


@_command("dispatch-history")
@click.argument("workflow", metavar="ID")
def dispatch_history(call: AgentCall, workflow: str) -> int:
    """List the dispatches of a workflow, newest first."""

    async def look(triggers: Triggers) -> list[dict[str, Any]]:
        return await _every(lambda **part: triggers.history(workflow, **part))

    found = call.read(look)
    empty = "No dispatch history found."
    return call.print_list(found, "Dispatch History", _dispatch_lines, word="dispatch", empty=empty)


orchestrator.add_command(dispatch_history, "workflow-history")


@_command("trigger-workflow")
@click.argument("workflow", metavar="ID")
@click.option("--title", default="", help="The value of {{title}}.")
@click.option("--body", default="", help="The value of {{body}}.")
def trigger_workflow(call: AgentCall, workflow: str, *, title: str, body: str) -> int:
    """Run a workflow now."""
    said = {"title": title, "body": body}

    made = call.write(lambda triggers: triggers.trigger_now(workflow, said), "trigger workflow")
    return call.print_one(made, ["Workflow triggered!", "", *_dispatch_lines(made)])


@_command("validate-template")
@click.argument("template", required=False)
@click.option("--file", metavar="FILE", help="Read the template from a file.")
def validate_template(call: AgentCall, template: str | None, *, file: str | None) -> int:
    """Check a prompt template."""
    from horae.sources.triggers.commands import prompt_of
    from horae.sources.triggers.service import validate_template

    text = prompt_of(template, file)
    if text is None:
        raise AgentCommandError("Give the template, or --file with the file that it is in.")
    said = validate_template(text)
    lines = ["Template is valid." if said["valid"] else "Template has problems:"]
    lines += [f"  - {each}" for each in said["warnings"]]
    if said["valid"]:
        lines.append(f"Known variables: {', '.join(said['known_variables'])}")
    return call.print_one(said, lines)


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
    return kind.of_agent_options({**given, "labels": labels})


def _refuse_both(given: Mapping[str, Any], one: str, other: str) -> None:
    if given[one] is not None and given[other] is not None:
        first, second = (f"--{name.replace('_', '-')}" for name in (one, other))
        raise click.UsageError(f"{first} cannot be used with {second}.")


def _print_workflow(call: AgentCall, made: Mapping[str, Any], text: str) -> int:
    return call.print_made(made, [text, "", *_workflow_lines(made)])


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


# Agents


# What `create-agent` hands on as it is.
_AS_GIVEN: Final = (
    "user",
    "shell",
    "interactive",
    "worktree",
    "system_prompt",
    "model",
    "auto_clear_threshold",
    "network_policy",
    "docker_image",
)


@_command("create-agent")
@click.option("--name", required=True, help="The name of the agent.")
@click.option(
    "--working-dir", metavar="DIR", help="The working directory; default: the current one."
)
@click.option("--user", help="Stored and not used.")
@click.option("--shell", help="Stored and not used.")
@click.option("--interactive", is_flag=True, default=None, help="Stored and not used.")
@click.option("--prompt", metavar="TEXT", help="Stored and not used.")
@click.option("--prompt-file", metavar="FILE", help="Read --prompt from a file.")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read --prompt from standard input.")
@click.option("--worktree", is_flag=True, default=None, help="Stored and not used.")
@click.option("--system-prompt", metavar="TEXT", help="The system prompt.")
@click.option("--attach", is_flag=True, hidden=True)
@click.option("--model", help="The model.")
@_TOOL_POLICY
@click.option(
    "--env", multiple=True, metavar="K=V", help="A variable of the environment; repeat for several."
)
@click.option("--auto-clear-threshold", type=int, help="Stored and not used.")
@click.option("--network-policy", help="Stored and not used.")
@click.option("--docker-image", help="Stored and not used.")
@click.option("--cpu-limit", metavar="N", help="Stored and not used.")
@click.option("--memory-limit", metavar="MB", help="Stored and not used.")
@click.option("--mount", "mounts", multiple=True, metavar="H:C[:ro]", help="Stored and not used.")
@click.option(
    "--add-dir",
    "additional_dirs",
    multiple=True,
    metavar="DIR",
    help="Stored and not used; repeat for several.",
)
@click.option(
    "--command",
    metavar="LINE",
    help="The command of the agent; default: the setting agent.command.",
)
def create_agent(call: AgentCall, /, *, name: str, **given: Any) -> int:
    """Create an agent.

    With only a name the agent uses the default command and the current directory.
    """
    import shlex

    from horae.sources.triggers.commands import parse_json, prompt_of

    prompt = prompt_of(given["prompt"], given["prompt_file"])
    if given["from_stdin"]:
        prompt = sys.stdin.read()
    limits = {"cpu_limit": given["cpu_limit"], "memory_limit_mb": given["memory_limit"]}
    said: dict[str, Any] = {each: given[each] for each in _AS_GIVEN}
    said |= {
        "name": name,
        "working_dir": os.path.realpath(given["working_dir"] or "."),
        "prompt": prompt,
        "env": _environment(given["env"]),
        "resource_limits": {key: value for key, value in limits.items() if value is not None},
        "extra_mounts": list(map(_mount, given["mounts"])),
        "additional_dirs": list(given["additional_dirs"]),
        "command": shlex.split(given["command"] or ""),
    }
    if given["tool_policy"]:
        said["tool_policy"] = parse_json(given["tool_policy"], "--tool-policy")

    made = call.write(lambda triggers: triggers.create_agent(said), "create agent")
    return call.print_made(made, ["Agent created successfully!", "", *_agent_lines(made)])


@_command("list-agents")
@click.option(
    "--status",
    type=click.Choice(["pending", "running", "stopped", "failed"]),
    help="Only agents with this status.",
)
def list_agents(call: AgentCall, *, status: str | None) -> int:
    """List the agents, newest first."""

    async def look(triggers: Triggers) -> list[dict[str, Any]]:
        return await _every(lambda **part: triggers.agents(status=status, **part))

    found = call.read(look)
    return call.print_list(found, "Agents", _agent_lines, word="agent", empty="No agents found.")


@_command("get-agent")
@click.argument("name", metavar="ID")
def get_agent(call: AgentCall, name: str) -> int:
    """Show an agent."""
    found = call.read(lambda triggers: triggers.agent(name))
    return call.print_one(found, _agent_lines(found))


@_command("delete-agent")
@click.argument("name", metavar="ID")
def delete_agent(call: AgentCall, name: str) -> int:
    """Delete an agent that no workflow starts."""
    gone = call.write(lambda triggers: triggers.delete_agent(name))
    return call.print_one(gone, [f"Agent {gone['id']} deleted."])


@_command("get-policy")
@click.argument("name", metavar="ID")
def get_policy(call: AgentCall, name: str) -> int:
    """Show the tool policy of an agent."""
    found = call.read(lambda triggers: triggers.agent(name))["config"]["tool_policy"]
    return call.print_one(found, [f"Mode: {found['mode']}", *_tools(found)])


@_command("set-policy")
@click.argument("name", metavar="ID")
@click.argument("policy", metavar="JSON")
def set_policy(call: AgentCall, name: str, policy: str) -> int:
    """Set the tool policy of an agent."""
    from horae.sources.triggers.commands import parse_json

    said = {"tool_policy": parse_json(policy, "the policy")}
    made = call.write(lambda triggers: triggers.update_agent(name, said))
    found = made["config"]["tool_policy"]
    lines = ["Tool policy updated.", f"Mode: {found['mode']}", *_tools(found)]
    return call.print_one(found, lines)


@_command("set-model")
@click.argument("name", metavar="ID")
@click.argument("model")
def set_model(call: AgentCall, name: str, model: str) -> int:
    """Set the model of an agent."""
    made = call.write(lambda triggers: triggers.update_agent(name, {"model": model}))
    return call.print_one(made, [f"Model of {made['name']}: {model}"])


@_command("add-dir")
@click.argument("name", metavar="ID")
@click.argument("path")
def add_dir(call: AgentCall, name: str, path: str) -> int:
    """Add a directory to an agent.

    The directory is stored and not used.
    """
    return _change_dirs(call, name, lambda dirs: [*(each for each in dirs if each != path), path])


@_command("remove-dir")
@click.argument("name", metavar="ID")
@click.argument("path")
def remove_dir(call: AgentCall, name: str, path: str) -> int:
    """Remove a directory from an agent."""
    return _change_dirs(call, name, lambda dirs: [each for each in dirs if each != path])


def _change_dirs(call: AgentCall, name: str, change: Callable[[list[str]], list[str]]) -> int:
    async def changed(triggers: Triggers) -> dict[str, Any]:
        dirs = (await triggers.agent(name))["config"].get("additional_dirs", [])
        return await triggers.update_agent(name, {"additional_dirs": change(dirs)})

    made = call.write(changed)
    return call.print_one(made, made["config"].get("additional_dirs", ["no additional directory"]))


@_command("clear-context")
@click.argument("name", metavar="ID")
def clear_context(call: AgentCall, name: str) -> int:
    """Clear the context of an agent.

    Each run of an agent starts with an empty context in any case.
    """
    said = call.write(lambda triggers: triggers.clear_context(name))
    return call.print_one(said, ["Context cleared: each run starts with an empty context."])


@_command("send-message")
@click.argument("name", metavar="ID")
@click.argument("message", required=False)
@click.option("--stdin", "from_stdin", is_flag=True, help="Read the message from standard input.")
def send_message(call: AgentCall, name: str, message: str | None, *, from_stdin: bool) -> int:
    """Run an agent once with a message as its prompt."""
    if (message is None) is not from_stdin:
        raise click.UsageError("give either MESSAGE or --stdin.")
    content = sys.stdin.read() if from_stdin else message

    sent = call.write(lambda triggers: triggers.send_message(name, content), "send message")
    dispatch = {**sent, "status": sent["dispatch_status"]}
    return call.print_one(sent, ["Message sent.", "", *_dispatch_lines(dispatch)])


def _environment(given: Sequence[str]) -> dict[str, str]:
    """Return variables that were written as K=V."""
    wrong = next((each for each in given if "=" not in each), None)
    if wrong is not None:
        raise click.UsageError(f"--env {wrong!r} is not K=V.")
    return dict(each.split("=", 1) for each in given)


def _mount(text: str) -> dict[str, object]:
    """Return a mount that was written as H:C or H:C:ro."""
    parts = text.split(":")
    if len(parts) not in {2, 3} or parts[2:] not in ([], ["ro"]):
        raise click.UsageError(f"--mount {text!r} is not HOST:CONTAINER or HOST:CONTAINER:ro.")
    return {"host_path": parts[0], "container_path": parts[1], "read_only": len(parts) == 3}


def _agent_lines(card: Mapping[str, Any]) -> list[str]:
    config = card["config"]
    facts = {
        "ID": card["id"],
        "Name": card["name"],
        "Status": card["status"],
        "Activity": card["activity"],
        "Working Dir": config["working_dir"],
        "Command": " ".join(config.get("command", ())) or "that of the setting agent.command",
        "Model": config.get("model", ""),
        "Tool Policy": config["tool_policy"]["mode"],
        "Created": card["created_at"].replace("T", " ").replace("Z", " UTC"),
    }
    return [f"{name}: {value}" for name, value in facts.items() if value]


def _tools(policy: Mapping[str, Any]) -> list[str]:
    return [f"  - {each}" for each in policy.get("tools", ())]


# Runs


@_command("logs")
@_of_one_agent
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the run ends.")
@click.option(
    "--tail",
    default=100,
    show_default=True,
    type=click.IntRange(0),
    metavar="N",
    help="Only the last N lines.",
)
def logs(call: AgentCall, *, who: str, follow: bool, tail: int) -> int:
    """Show the output of the current or last run of an agent."""
    return _show_log(call, who, follow=follow, tail=tail)


@_command("attach")
@_of_one_agent
def attach(call: AgentCall, *, who: str) -> int:
    """Follow the output of the current run of an agent.

    The run has no terminal and gets no input.
    """
    return _show_log(call, who, follow=True, is_going=True)


@_command("stream")
@_of_one_agent
def stream(call: AgentCall, *, who: str) -> int:
    """Follow the output of the current run of an agent."""
    return _show_log(call, who, follow=True, is_going=True)


@_command("usage")
@_of_one_agent
def usage(call: AgentCall, *, who: str) -> int:
    """Show the usage of the last run and of all runs."""
    found = call.read(lambda triggers: triggers.usage(who))
    lines = [f"Agent: {found['agent']}", f"ID: {found['agent_id']}"]
    for title, part in (("Last run", "current"), ("Cumulative", "cumulative")):
        lines += [f"{title}:", *_usage_lines(found[part])]
    return call.print_one(found, lines)


@_command("health")
def health(call: AgentCall) -> int:
    """Show whether an engine is running."""
    from horae.cli.connection import engine_of

    engine = engine_of(call.access.place)
    word = "ok" if engine.is_running else "no engine is running"
    said = {"status": word, "service": "horae", "version": horae.__version__}
    call.print_one(said, [f"Status: {word}", f"Version: {horae.__version__}"])
    return Exit.OK if engine.is_running else Exit.FINDINGS


def _show_log(
    call: AgentCall, who: str, *, follow: bool, tail: int | None = None, is_going: bool = False
) -> int:
    """Show the output of an agent's run, as `horae logs` does."""
    from horae.cli.runs import logs as show

    number = call.read(lambda triggers: triggers.run_of(who, is_going=is_going))
    assert show.callback is not None, "it is a command"
    shown: int = show.callback(
        str(number), follow=follow, tail=tail, raw=False, root=call.root, data=call.data
    )
    return shown


def _usage_lines(usage: Mapping[str, Any]) -> list[str]:
    """Return what some runs took as a block of lines."""
    facts = {
        "Runs": usage["runs"],
        "Turns": usage["turns"],
        "Input Tokens": usage["input_tokens"],
        "Output Tokens": usage["output_tokens"],
        "Cost": f"${usage['total_cost_usd']:.4f}",
        "Duration": f"{usage['duration_secs']:.1f}s",
    }
    return [f"  {label}: {value}" for label, value in facts.items()]


# Approvals


@_command("list-approvals")
def list_approvals(call: AgentCall) -> int:
    """List the runs that wait for approval."""
    found = call.read(lambda triggers: triggers.approvals())
    empty = "No approvals found."
    return call.print_list(found, "Approvals", _approval_lines, word="approval", empty=empty)


@_command("approve")
@click.argument("receipt", type=int)
def approve(call: AgentCall, receipt: int) -> int:
    """Approve a pending run."""
    done = call.write(lambda triggers: triggers.approve(receipt))
    return call.print_one(done, [f"Approval {receipt} approved."])


@_command("deny")
@click.argument("receipt", type=int)
@click.option("--reason", default="", help="The reason, shown with the receipt.")
def deny(call: AgentCall, receipt: int, *, reason: str) -> int:
    """Reject a pending run."""
    done = call.write(lambda triggers: triggers.deny(receipt, reason=reason))
    return call.print_one(done, [f"Approval {receipt} denied."])


def _approval_lines(approval: Mapping[str, Any]) -> list[str]:
    names = {"ID": "receipt", "Workflow": "workflow", "Agent": "agent", "Source ID": "source_id"}
    names |= {"Expires": "expires_at", "Prompt": "prompt"}
    return [f"{label}: {approval[name]}" for label, name in names.items()]


# Files


@_command("apply", agent)
@click.argument("path")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option(
    "--wait-timeout",
    default=60,
    show_default=True,
    type=click.IntRange(0),
    metavar="SECONDS",
    help="How long to wait until the engine has armed the workflows.",
)
def apply(call: AgentCall, path: str, *, dry_run: bool, wait_timeout: int) -> int:
    """Create and update agents and workflows from files.

    All files are checked before anything is changed. With a running engine the command returns
    when the workflows are armed; the exit code is 124 if that takes longer than --wait-timeout.
    """
    from horae.sources.triggers.commands import applied, read_files

    folder, access = read_files(path, base=call.root), call.access
    changes = applied(access, folder, dry_run=dry_run)
    if not dry_run and not _all_armed(access, folder, wait_timeout):
        return Exit.TIMED_OUT
    agents, workflows = len(folder.agents), len(folder.workflows)
    counts = f"0 room(s), {agents} agent(s)"
    if call.is_json:
        print_json(
            {
                "dry_run": dry_run,
                "valid": True,
                "rooms": [],
                "agents": [each.name for each in folder.agents],
                "workflows": [each.name for each in folder.workflows],
                "changes": [each.data() for each in changes],
            }
        )
        return Exit.OK
    _print_changes(changes)
    if dry_run:
        echo(f"Dry run passed: {counts}, {workflows} workflow(s)")
    else:
        echo(f"Applied {counts}, and {workflows} workflow(s)")
    return Exit.OK


def _all_armed(access: TriggerAccess, folder: Folder, patience: int) -> bool:
    """Tell whether the engine arms what was applied in time, if one is running."""
    from time import monotonic, sleep

    from horae.cli.connection import engine_of

    if not engine_of(access.place).is_running:
        return True
    wanted = [each.name for each in folder.workflows if each.is_enabled]
    gives_up_at = monotonic() + patience
    while True:
        name, reason = access.read(lambda triggers: _first_unarmed(triggers, wanted))
        if not name:
            return True
        if monotonic() >= gives_up_at:
            said = (
                f"Timeout waiting for workflow '{name}' to be armed (waited {patience}s): {reason}"
            )
            echo(f"Error: {said}", err=True)
            return False
        sleep(LOOK)


async def _first_unarmed(triggers: Triggers, names: Sequence[str]) -> tuple[str, str]:
    """Return the first workflow that is not armed though it is enabled, and why not."""
    for name in names:
        reason = await triggers.unarmed(name)
        # A workflow that was disabled, or has fired, is as it should be.
        if reason and (await triggers.get(name))["enabled"]:
            return name, reason
    return "", ""


@_command("teardown", agent)
@click.argument("path")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
def teardown(call: AgentCall, path: str, *, dry_run: bool) -> int:
    """Remove the workflows and agents that files define."""
    from horae.sources.triggers.commands import read_files, torn_down

    changes = torn_down(call.access, read_files(path, base=call.root), dry_run=dry_run)
    if call.is_json:
        print_json([each.data() for each in changes])
        return Exit.OK
    _print_changes(changes)
    count = sum(each.verb == "delete" for each in changes)
    echo(f"{'Would remove' if dry_run else 'Removed'} {count} of {len(changes)}")
    return Exit.OK


def _print_changes(changes: Sequence[FileChange]) -> None:
    """Print the plan, with what is different about each thing that is there already."""
    from horae.sources.triggers.commands import short

    for change in changes:
        echo(f"{change.verb:<9} {change.what} '{change.name}' ({change.place})")
        for name, old, new in change.diff:
            echo(f"            {name}: {short(old)} -> {short(new)}")


if __name__ == "__main__":
    main()
