"""`agent`: the spellings of the document on schedule triggers, thin over the same functions.

agent orchestrator create-workflow --name daily-report --agent-name worker …
agent apply .agentd/
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from horae import __version__
from horae.cli.desk import engine_of
from horae.cli.output import clean, echo, print_json
from horae.cli.run import run
from horae.cli.triggers import (
    Room,
    applied,
    parse_json,
    prompt_of,
    read_files,
    torn_down,
    whoever,
)
from horae.errors import Exit, HoraeError
from horae.rules.trigger import TriggerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from horae.engine.triggers import Change, Triggers
    from horae.workspace.agentd import Folder

LOOK: Final = 0.1  # seconds between two looks at what is not armed yet
_RULE: Final = 80
_LONGEST: Final = 60  # characters of a template that are shown
_TYPES: Final = ("github-issues", "github-pull-requests", "cron", "delay", "webhook", "manual")
_EVENTS: Final = ("dispatch-result", "agent-lifecycle")
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


class AgentCommandError(HoraeError):
    """A command line of `agent` that says not enough, or names nobody."""

    code = "agent_command"


class _Here(NamedTuple):
    """How one call answers, and where its ledger is."""

    is_json: bool
    root: str
    data: str | None

    def read(self, work: Callable[[Triggers], Awaitable[Any]]) -> Any:
        return Room(root=self.root, data=self.data).read(work)

    def write(self, work: Callable[[Triggers], Awaitable[Any]]) -> Any:
        return Room(root=self.root, data=self.data).write(work)


class _Words(click.Group):
    """A group whose errors are said as the document's program says them."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; whatever it cannot do ends with exit code 1."""
        try:
            return super().invoke(ctx)
        except HoraeError as error:
            echo(f"Error: {error}", err=True)
            return int(Exit.FINDINGS)


@click.group(cls=_Words, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
@click.option("--root", default=".", metavar="DIR", help="The plan root.")
@click.option("--data", metavar="DIR", help="Where the ledger is; else .horae in the plan root.")
@click.version_option(__version__, prog_name="agent", message="%(prog)s %(version)s")
@click.pass_context
def agent(ctx: click.Context, *, is_json: bool, root: str, data: str | None) -> None:
    """Make agents, and workflows that start them."""
    ctx.obj = _Here(is_json, root, data)


@agent.group()
def orchestrator() -> None:
    """Agents and workflows, one request at a time."""


# Workflows


@orchestrator.command("create-workflow")
@click.option("--name", required=True)
@click.option("--agent-id", metavar="UUID")
@click.option("--agent-name")
@click.option("--trigger-type", type=click.Choice([*_TYPES, *_EVENTS]), default="github-issues")
@click.option("--owner")
@click.option("--repo")
@click.option("--labels", metavar="A,B")
@click.option("--state", default="open", type=click.Choice(["open", "closed", "all"]))
@click.option("--cron-expression", metavar="EXPR")
@click.option("--timezone", metavar="ZONE")
@click.option("--run-at", metavar="T")
@click.option("--webhook-secret", metavar="SECRET")
@click.option("--event", metavar="EVENT")
@click.option("--source-workflow-id", metavar="UUID")
@click.option("--status", "result", metavar="STATUS")
@click.option("--prompt-template", metavar="TEXT")
@click.option("--prompt-template-file", metavar="FILE")
@click.option("--poll-interval", default=60, show_default=True, type=int, metavar="SECONDS")
@click.option("--tool-policy", metavar="JSON")
@click.option("--disabled", is_flag=True)
@click.pass_obj
def create_workflow(here: _Here, /, *, name: str, **given: Any) -> int:
    """Make a workflow."""
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

    made = here.write(make)
    return _print_made(here, made, "Workflow created successfully!")


@orchestrator.command("list-workflows")
@click.pass_obj
def list_workflows(here: _Here) -> int:
    """List the workflows, newest first."""
    found = here.read(lambda triggers: _all(triggers.page))
    return _print_list(
        here, found, "Workflows", _workflow_lines, word="workflow", empty="No workflows found."
    )


@orchestrator.command("get-workflow")
@click.argument("workflow", metavar="ID")
@click.pass_obj
def get_workflow(here: _Here, workflow: str) -> int:
    """Show a workflow."""
    found = here.read(lambda triggers: triggers.get(workflow))
    return _print(here, found, _workflow_lines(found))


@orchestrator.command("update-workflow")
@click.argument("workflow", metavar="ID")
@click.option("--name")
@click.option("--prompt-template", metavar="TEXT")
@click.option("--prompt-template-file", metavar="FILE")
@click.option("--poll-interval", type=int, metavar="SECONDS")
@click.option("--enabled", type=click.BOOL, metavar="true|false")
@click.option("--agent-name")
@click.option("--cron-expression", metavar="EXPR")
@click.option("--timezone", metavar="ZONE")
@click.option("--run-at", metavar="T")
@click.option("--tool-policy", metavar="JSON")
@click.pass_obj
def update_workflow(here: _Here, /, workflow: str, **given: Any) -> int:
    """Change a workflow; the change holds at once."""
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
        with _failing("update workflow"):
            return await triggers.update(workflow, said)

    return _print_made(here, here.write(change), "Workflow updated successfully!")


@orchestrator.command("delete-workflow")
@click.argument("workflow", metavar="ID")
@click.pass_obj
def delete_workflow(here: _Here, workflow: str) -> int:
    """Forget a workflow."""
    gone = here.write(lambda triggers: triggers.delete(workflow))
    return _print(here, gone, [f"Workflow {gone['id']} deleted."])


def _history(here: _Here, workflow: str) -> int:
    """Show what a workflow did, newest first."""

    async def look(triggers: Triggers) -> list[dict[str, Any]]:
        return await _all(lambda **part: triggers.history(workflow, **part))

    found = here.read(look)
    empty = "No dispatch history found."
    return _print_list(
        here, found, "Dispatch History", _dispatch_lines, word="dispatch", empty=empty
    )


@orchestrator.command("dispatch-history")
@click.argument("workflow", metavar="ID")
@click.pass_obj
def dispatch_history(here: _Here, workflow: str) -> int:
    """Show what a workflow did, newest first."""
    return _history(here, workflow)


@orchestrator.command("workflow-history")
@click.argument("workflow", metavar="ID")
@click.pass_obj
def workflow_history(here: _Here, workflow: str) -> int:
    """Show what a workflow did, newest first."""
    return _history(here, workflow)


@orchestrator.command("trigger-workflow")
@click.argument("workflow", metavar="ID")
@click.option("--title", default="")
@click.option("--body", default="")
@click.pass_obj
def trigger_workflow(here: _Here, workflow: str, *, title: str, body: str) -> int:
    """Ask a workflow to run now."""
    said = {"title": title, "body": body}

    async def ask(triggers: Triggers) -> dict[str, Any]:
        with _failing("trigger workflow"):
            return await triggers.trigger_now(workflow, said)

    made = here.write(ask)
    return _print(here, made, ["Workflow triggered!", "", *_dispatch_lines(made)])


@orchestrator.command("validate-template")
@click.argument("template", required=False)
@click.option("--file", metavar="FILE")
@click.pass_obj
def validate_template(here: _Here, template: str | None, *, file: str | None) -> int:
    """Say what is wrong with a template."""
    from horae.engine.triggers import validate_template

    text = prompt_of(template, file)
    if text is None:
        raise AgentCommandError("Give the template, or --file with the file that it is in.")
    said = validate_template(text)
    warnings, known = said["warnings"], said["known_variables"]
    assert isinstance(warnings, list), "it is a list of texts"
    assert isinstance(known, list), "it is a list of names"
    lines = ["Template is valid." if said["valid"] else "Template has problems:"]
    lines += [f"  - {each}" for each in warnings]
    return _print(here, said, [*lines, f"Known variables: {', '.join(known)}"])


# Agents


@orchestrator.command("create-agent")
@click.option("--name", required=True)
@click.option("--working-dir", metavar="DIR")
@click.option("--user")
@click.option("--shell")
@click.option("--interactive", is_flag=True, default=None)
@click.option("--prompt", metavar="TEXT")
@click.option("--prompt-file", metavar="FILE")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read the prompt from standard input.")
@click.option("--worktree", is_flag=True, default=None)
@click.option("--system-prompt", metavar="TEXT")
@click.option("--attach", is_flag=True, hidden=True)
@click.option("--model")
@click.option("--tool-policy", metavar="JSON")
@click.option("--env", multiple=True, metavar="K=V")
@click.option("--auto-clear-threshold", type=int)
@click.option("--network-policy")
@click.option("--docker-image")
@click.option("--cpu-limit", metavar="N")
@click.option("--memory-limit", metavar="MB")
@click.option("--mount", "mounts", multiple=True, metavar="H:C[:ro]")
@click.option("--add-dir", "additional_dirs", multiple=True, metavar="DIR")
@click.option("--command", metavar="LINE", help="The program that it is; else agent.command.")
@click.pass_obj
def create_agent(here: _Here, /, *, name: str, **given: Any) -> int:
    """Make an agent; with only a name it uses the default command and the current directory."""
    import shlex

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

    async def make(triggers: Triggers) -> dict[str, Any]:
        with _failing("create agent"):
            return await triggers.create_agent(said)

    made = here.write(make)
    _say_notes(made)
    return _print(here, made, ["Agent created successfully!", "", *_agent_lines(made)])


@orchestrator.command("list-agents")
@click.option("--status", type=click.Choice(["pending", "running", "stopped", "failed"]))
@click.pass_obj
def list_agents(here: _Here, *, status: str | None) -> int:
    """List the agents, newest first."""

    async def look(triggers: Triggers) -> list[dict[str, Any]]:
        return await _all(lambda **part: triggers.agents(status=status, **part))

    found = here.read(look)
    return _print_list(here, found, "Agents", _agent_lines, word="agent", empty="No agents found.")


@orchestrator.command("get-agent")
@click.argument("name", metavar="ID")
@click.pass_obj
def get_agent(here: _Here, name: str) -> int:
    """Show an agent."""
    found = here.read(lambda triggers: triggers.agent(name))
    return _print(here, found, _agent_lines(found))


@orchestrator.command("delete-agent")
@click.argument("name", metavar="ID")
@click.pass_obj
def delete_agent(here: _Here, name: str) -> int:
    """Forget an agent that no workflow starts."""
    gone = here.write(lambda triggers: triggers.delete_agent(name))
    return _print(here, gone, [f"Agent {gone['id']} deleted."])


@orchestrator.command("get-policy")
@click.argument("name", metavar="ID")
@click.pass_obj
def get_policy(here: _Here, name: str) -> int:
    """Show which tools an agent may use."""
    found = here.read(lambda triggers: triggers.agent(name))["config"]["tool_policy"]
    return _print(here, found, [f"Mode: {found['mode']}", *_tools(found)])


@orchestrator.command("set-policy")
@click.argument("name", metavar="ID")
@click.argument("policy", metavar="JSON")
@click.pass_obj
def set_policy(here: _Here, name: str, policy: str) -> int:
    """Say which tools an agent may use."""
    said = {"tool_policy": parse_json(policy, "the policy")}
    made = here.write(lambda triggers: triggers.update_agent(name, said))
    found = made["config"]["tool_policy"]
    return _print(here, found, ["Tool policy updated.", f"Mode: {found['mode']}", *_tools(found)])


@orchestrator.command("set-model")
@click.argument("name", metavar="ID")
@click.argument("model")
@click.pass_obj
def set_model(here: _Here, name: str, model: str) -> int:
    """Say which model an agent uses."""
    made = here.write(lambda triggers: triggers.update_agent(name, {"model": model}))
    return _print(here, made, [f"Model of {made['name']}: {model}"])


def _change_dirs(here: _Here, name: str, change: Callable[[list[str]], list[str]]) -> int:
    async def changed(triggers: Triggers) -> dict[str, Any]:
        dirs = (await triggers.agent(name))["config"].get("additional_dirs", [])
        return await triggers.update_agent(name, {"additional_dirs": change(dirs)})

    made = here.write(changed)
    return _print(here, made, made["config"].get("additional_dirs", ["no additional directory"]))


@orchestrator.command("add-dir")
@click.argument("name", metavar="ID")
@click.argument("path")
@click.pass_obj
def add_dir(here: _Here, name: str, path: str) -> int:
    """Give an agent one more directory."""
    return _change_dirs(here, name, lambda dirs: [*(each for each in dirs if each != path), path])


@orchestrator.command("remove-dir")
@click.argument("name", metavar="ID")
@click.argument("path")
@click.pass_obj
def remove_dir(here: _Here, name: str, path: str) -> int:
    """Take a directory from an agent."""
    return _change_dirs(here, name, lambda dirs: [each for each in dirs if each != path])


@orchestrator.command("clear-context")
@click.argument("name", metavar="ID")
@click.pass_obj
def clear_context(here: _Here, name: str) -> int:
    """Let an agent forget; each of its runs begins afresh in any case."""
    said = here.write(lambda triggers: triggers.clear_context(name))
    return _print(here, said, ["Context cleared."])


@orchestrator.command("send-message")
@click.argument("name", metavar="ID")
@click.argument("message", required=False)
@click.option("--stdin", "from_stdin", is_flag=True, help="Read the message from standard input.")
@click.pass_obj
def send_message(here: _Here, name: str, message: str | None, *, from_stdin: bool) -> int:
    """Let an agent run once, with a message as its prompt."""
    if (message is None) is not from_stdin:
        raise click.UsageError("give the message, or --stdin, and not both.")
    content = sys.stdin.read() if from_stdin else message

    async def send(triggers: Triggers) -> dict[str, Any]:
        with _failing("send message"):
            return await triggers.send_message(name, content)

    sent = here.write(send)
    dispatch = {**sent, "status": sent["dispatch_status"]}
    return _print(here, sent, ["Message sent.", "", *_dispatch_lines(dispatch)])


@orchestrator.command("logs")
@click.argument("agent_id", metavar="[ID]", required=False)
@click.option("--name", help="The agent, by its name.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run ends.")
@click.option("--tail", default=100, show_default=True, type=click.IntRange(0), metavar="N")
@click.pass_obj
def logs(here: _Here, agent_id: str | None, *, name: str | None, follow: bool, tail: int) -> int:
    """Show what an agent puts out in the run that goes on, else in its last one."""
    return _show_log(here, _one_of(agent_id, name), follow=follow, tail=tail)


@orchestrator.command("attach")
@click.argument("agent_id", metavar="[ID]", required=False)
@click.option("--name", help="The agent, by its name.")
@click.pass_obj
def attach(here: _Here, agent_id: str | None, *, name: str | None) -> int:
    """Follow the run of an agent that goes on; it hears nothing, as it has no terminal."""
    return _show_log(here, _one_of(agent_id, name), follow=True, is_going=True)


@orchestrator.command("stream")
@click.argument("agent_id", metavar="[ID]", required=False)
@click.option("--name", help="The agent, by its name.")
@click.pass_obj
def stream(here: _Here, agent_id: str | None, *, name: str | None) -> int:
    """Follow the run of an agent that goes on."""
    return _show_log(here, _one_of(agent_id, name), follow=True, is_going=True)


@orchestrator.command("usage")
@click.argument("agent_id", metavar="[ID]", required=False)
@click.option("--name", help="The agent, by its name.")
@click.pass_obj
def usage(here: _Here, agent_id: str | None, *, name: str | None) -> int:
    """Show what the last run of an agent took, and what all of them did."""
    who = _one_of(agent_id, name)
    found = here.read(lambda triggers: triggers.usage(who))
    lines = [f"Agent: {found['agent']}", f"ID: {found['agent_id']}"]
    for title, part in (("Last run", "current"), ("Cumulative", "cumulative")):
        lines += [f"{title}:", *_usage_lines(found[part])]
    return _print(here, found, lines)


def _show_log(
    here: _Here, who: str, *, follow: bool, tail: int | None = None, is_going: bool = False
) -> int:
    """Show the output of an agent's run, as `horae logs` does."""
    from horae.cli.runs import logs as show

    number = here.read(lambda triggers: triggers.run_of(who, is_going=is_going))
    assert show.callback is not None, "it is a command"
    shown: int = show.callback(
        str(number), follow=follow, tail=tail, raw=False, root=here.root, data=here.data
    )
    return shown


def _one_of(agent_id: str | None, name: str | None) -> str:
    """Return which agent is meant, by its id or its name."""
    if (agent_id is None) is (name is None):
        raise click.UsageError("name one agent, by its ID or with --name.")
    return agent_id or name or ""


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


@orchestrator.command("list-approvals")
@click.pass_obj
def list_approvals(here: _Here) -> int:
    """List what waits for an approval."""
    found = here.read(lambda triggers: triggers.approvals())
    empty = "No approvals found."
    return _print_list(here, found, "Approvals", _approval_lines, word="approval", empty=empty)


@orchestrator.command("approve")
@click.argument("receipt", type=int)
@click.pass_obj
def approve(here: _Here, receipt: int) -> int:
    """Let it start."""
    done = here.write(lambda triggers: triggers.approve(receipt, by=whoever()))
    return _print(here, done, [f"Approval {receipt} approved."])


@orchestrator.command("deny")
@click.argument("receipt", type=int)
@click.option("--reason", default="")
@click.pass_obj
def deny(here: _Here, receipt: int, *, reason: str) -> int:
    """Let it never start."""
    done = here.write(lambda triggers: triggers.deny(receipt, by=whoever(), reason=reason))
    return _print(here, done, [f"Approval {receipt} denied."])


@orchestrator.command("health")
@click.pass_obj
def health(here: _Here) -> int:
    """Tell whether an engine runs."""
    engine = engine_of(Room(root=here.root, data=here.data).place)
    word = "ok" if engine.is_running else "no engine runs"
    said = {"status": word, "service": "horae", "version": __version__}
    _print(here, said, [f"Status: {word}", f"Version: {__version__}"])
    return Exit.OK if engine.is_running else Exit.FINDINGS


# Files


@agent.command("apply")
@click.argument("path")
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@click.option(
    "--wait-timeout",
    default=60,
    show_default=True,
    type=click.IntRange(0),
    metavar="SECONDS",
    help="How long to wait until the engine has armed all of it.",
)
@click.pass_obj
def apply(here: _Here, path: str, *, dry_run: bool, wait_timeout: int) -> int:
    """Let agents and workflows be as files say: agents first, and all of it checked before.

    With an engine it returns when that has armed the workflows, or with 124 when it takes
    longer than it may.
    """
    folder = read_files(path, base=here.root)
    room = Room(root=here.root, data=here.data)
    changes = applied(room, folder, dry_run=dry_run)
    if not dry_run and not _all_armed(room, folder, wait_timeout):
        return Exit.TIMED_OUT
    agents, workflows = len(folder.agents), len(folder.workflows)
    counts = f"0 room(s), {agents} agent(s)"
    if here.is_json:
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


def _all_armed(room: Room, folder: Folder, patience: int) -> bool:
    """Tell whether the engine arms what was applied in time; without one nobody does."""
    from time import monotonic, sleep

    if not engine_of(room.place).is_running:
        return True
    wanted = [each.name for each in folder.workflows if each.is_enabled]
    gives_up_at = monotonic() + patience
    while True:
        name, reason = room.read(lambda triggers: _first_unarmed(triggers, wanted))
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
        # One that was disabled by somebody, or has fired, is as it should be.
        if reason and (await triggers.get(name))["enabled"]:
            return name, reason
    return "", ""


@agent.command("teardown")
@click.argument("path")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.pass_obj
def teardown(here: _Here, path: str, *, dry_run: bool) -> int:
    """Remove the workflows and then the agents that files name."""
    room = Room(root=here.root, data=here.data)
    changes = torn_down(room, read_files(path, base=here.root), dry_run=dry_run)
    if here.is_json:
        print_json([each.data() for each in changes])
        return Exit.OK
    _print_changes(changes)
    count = sum(each.verb == "delete" for each in changes)
    echo(f"{'Would remove' if dry_run else 'Removed'} {count} of {len(changes)}")
    return Exit.OK


def _print_changes(changes: Sequence[Change]) -> None:
    """Print the plan, with what is different about each thing that is there already."""
    for change in changes:
        echo(f"{change.verb:<9} {change.what} '{change.name}' ({change.place})")
        for name, old, new in change.diff:
            echo(f"            {name}: {_short(old)} -> {_short(new)}")


# What several of these share


@contextmanager
def _failing(what: str) -> Iterator[None]:
    """Say in front of an error what could not be done."""
    try:
        yield
    except HoraeError as error:
        raise AgentCommandError(f"Failed to {what}: {error}") from error


async def _all(page: Callable[..., Awaitable[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return every item of a list, page after page."""
    found: list[dict[str, Any]] = []
    while True:
        part = await page(limit=200, offset=len(found))
        found += part["items"]
        if not part["items"] or len(found) >= part["total"]:
            return found


async def _agent_called(triggers: Triggers, name: str) -> str:
    """Return the name of an agent that there is."""
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
    kind = given["trigger_type"]
    match kind:
        case "cron":
            _need(given, "cron_expression", kind)
            return {
                "type": "cron",
                "expression": given["cron_expression"],
                "timezone": given["timezone"],
            }
        case "delay":
            _need(given, "run_at", kind)
            return {"type": "delay", "run_at": given["run_at"]}
        case "webhook":
            return {"type": "webhook", "secret": given["webhook_secret"] or ""}
        case "manual":
            return {"type": "manual"}
        case "dispatch-result":
            return {
                "type": "dispatch_result",
                "source_workflow_id": given["source_workflow_id"],
                "status": given["result"],
            }
        case "agent-lifecycle":
            return {"type": "agent_lifecycle", "event": given["event"] or ""}
    for name in ("owner", "repo"):
        _need(given, name, kind)
    labels = [each.strip() for each in (given["labels"] or "").split(",") if each.strip()]
    return {
        "type": kind.replace("-", "_"),
        "owner": given["owner"],
        "repo": given["repo"],
        "labels": labels,
        "state": given["state"],
    }


def _need(given: Mapping[str, Any], name: str, kind: str) -> None:
    """Raise an error if an option is missing that a kind of trigger needs."""
    if given[name] is None:
        option = f"--{name.replace('_', '-')}"
        raise AgentCommandError(f"{option} is required for {kind} trigger")


def _refuse_both(given: Mapping[str, Any], one: str, other: str) -> None:
    if given[one] is not None and given[other] is not None:
        first, second = (f"--{name.replace('_', '-')}" for name in (one, other))
        raise click.UsageError(f"{first} cannot be used with {second}.")


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


# What is shown


def _workflow_lines(workflow: Mapping[str, Any]) -> list[str]:
    """Return a workflow as a block of lines."""
    config = workflow["trigger_config"]
    template = workflow["prompt_template"]
    shown = template if len(template) <= _LONGEST else f"{template[: _LONGEST - 3]}..."
    facts = {
        "ID": workflow["id"],
        "Name": workflow["name"],
        "Agent ID": workflow["agent_id"],
        "Status": "enabled" if workflow["enabled"] else "disabled",
        "Poll Interval": f"{workflow['poll_interval_secs']}s",
        "Trigger Type": config["type"],
        **_config_facts(config),
        "Prompt Template": shown.replace("\n", "\\n"),
        "Created": workflow["created_at"].replace("T", " ").replace("Z", " UTC"),
    }
    return [f"{name}: {value}" for name, value in facts.items()]


def _config_facts(config: Mapping[str, Any]) -> dict[str, str]:
    """Return what a trigger's type adds to its block."""
    match config["type"]:
        case "cron":
            zone = {"Timezone": config["timezone"]} if config.get("timezone") else {}
            return {"Expression": config["expression"], **zone}
        case "delay":
            return {"Run At": config["run_at"]}
        case "webhook":
            return {"Secret": "configured" if config.get("secret") else "none"}
        case "agent_lifecycle":
            return {"Event": config["event"]}
        case "dispatch_result":
            return {
                "Source Workflow": config.get("source_workflow_id", "any"),
                "Status Filter": config.get("status", "any"),
            }
        case "manual":
            return {}
    return {
        "Repository": f"{config['owner']}/{config['repo']}",
        "Labels": ", ".join(config.get("labels", ())) or "none",
        "State": config["state"],
    }


def _dispatch_lines(dispatch: Mapping[str, Any]) -> list[str]:
    """Return a dispatch as a block of lines."""
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


def _agent_lines(card: Mapping[str, Any]) -> list[str]:
    """Return an agent as a block of lines."""
    config = card["config"]
    facts = {
        "ID": card["id"],
        "Name": card["name"],
        "Status": card["status"],
        "Activity": card["activity"],
        "Working Dir": config["working_dir"],
        "Command": " ".join(config.get("command", ())) or "the default",
        "Model": config.get("model", ""),
        "Tool Policy": config["tool_policy"]["mode"],
        "Created": card["created_at"].replace("T", " ").replace("Z", " UTC"),
    }
    return [f"{name}: {value}" for name, value in facts.items() if value]


def _approval_lines(approval: Mapping[str, Any]) -> list[str]:
    """Return what waits for an approval as a block of lines."""
    names = {"ID": "receipt", "Workflow": "workflow", "Agent": "agent", "Source ID": "source_id"}
    names |= {"Expires": "expires_at", "Prompt": "prompt"}
    return [f"{label}: {approval[name]}" for label, name in names.items()]


def _tools(policy: Mapping[str, Any]) -> list[str]:
    return [f"  - {each}" for each in policy.get("tools", ())]


def _say_notes(made: Mapping[str, Any]) -> None:
    for note in made.get("notes", ()):
        echo(f"Note: {note}", err=True)


def _print_made(here: _Here, made: Mapping[str, Any], text: str) -> int:
    _say_notes(made)
    return _print(here, made, [text, "", *_workflow_lines(made)])


def _print(here: _Here, data: object, lines: Sequence[str]) -> int:
    """Print one answer."""
    if here.is_json:
        print_json(data)
    else:
        for line in lines:
            echo(clean(line).replace("\n", "\\n"))
    return Exit.OK


def _print_list(
    here: _Here,
    found: Sequence[Mapping[str, Any]],
    title: str,
    lines: Callable[[Mapping[str, Any]], list[str]],
    *,
    word: str,
    empty: str,
) -> int:
    """Print a list, block after block; as JSON it is an array."""
    if here.is_json:
        print_json(found)
        return Exit.OK
    if not found:
        echo(empty)
        return Exit.OK
    echo(f"{title}:\n{'=' * _RULE}")
    for each in found:
        for line in lines(each):
            echo(clean(line).replace("\n", "\\n"))
        echo("-" * _RULE)
    plural = "es" if word.endswith("ch") else "s"
    echo(f"Total: {len(found)} {word}({plural})")
    return Exit.OK


def _short(value: object) -> str:
    import json

    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def main() -> None:
    """Run the command line."""
    sys.exit(run(agent, name="agent"))


if __name__ == "__main__":
    main()
