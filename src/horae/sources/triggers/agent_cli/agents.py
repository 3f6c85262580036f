"""Agents in the words of `agent`: made, listed, changed, told something."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from horae.sources.triggers.agent_cli.words import (
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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from horae.sources.triggers.service import Triggers

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


@orchestrator.command("create-agent")
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
@click.option(
    "--tool-policy", metavar="JSON", help='The tool policy, such as {"mode": "deny_all"}.'
)
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
@click.pass_obj
def create_agent(here: Here, /, *, name: str, **given: Any) -> int:
    """Create an agent.

    With only a name the agent uses the default command and the current directory.
    """
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
        with failing("create agent"):
            return await triggers.create_agent(said)

    made = here.write(make)
    say_notes(made)
    return print_one(here, made, ["Agent created successfully!", "", *_agent_lines(made)])


@orchestrator.command("list-agents")
@click.option(
    "--status",
    type=click.Choice(["pending", "running", "stopped", "failed"]),
    help="Only agents with this status.",
)
@click.pass_obj
def list_agents(here: Here, *, status: str | None) -> int:
    """List the agents, newest first."""

    async def look(triggers: Triggers) -> list[dict[str, Any]]:
        return await every(lambda **part: triggers.agents(status=status, **part))

    found = here.read(look)
    return print_list(here, found, "Agents", _agent_lines, word="agent", empty="No agents found.")


@orchestrator.command("get-agent")
@click.argument("name", metavar="ID")
@click.pass_obj
def get_agent(here: Here, name: str) -> int:
    """Show an agent."""
    found = here.read(lambda triggers: triggers.agent(name))
    return print_one(here, found, _agent_lines(found))


@orchestrator.command("delete-agent")
@click.argument("name", metavar="ID")
@click.pass_obj
def delete_agent(here: Here, name: str) -> int:
    """Delete an agent that no workflow starts."""
    gone = here.write(lambda triggers: triggers.delete_agent(name))
    return print_one(here, gone, [f"Agent {gone['id']} deleted."])


@orchestrator.command("get-policy")
@click.argument("name", metavar="ID")
@click.pass_obj
def get_policy(here: Here, name: str) -> int:
    """Show the tool policy of an agent."""
    found = here.read(lambda triggers: triggers.agent(name))["config"]["tool_policy"]
    return print_one(here, found, [f"Mode: {found['mode']}", *_tools(found)])


@orchestrator.command("set-policy")
@click.argument("name", metavar="ID")
@click.argument("policy", metavar="JSON")
@click.pass_obj
def set_policy(here: Here, name: str, policy: str) -> int:
    """Set the tool policy of an agent."""
    said = {"tool_policy": parse_json(policy, "the policy")}
    made = here.write(lambda triggers: triggers.update_agent(name, said))
    found = made["config"]["tool_policy"]
    return print_one(
        here, found, ["Tool policy updated.", f"Mode: {found['mode']}", *_tools(found)]
    )


@orchestrator.command("set-model")
@click.argument("name", metavar="ID")
@click.argument("model")
@click.pass_obj
def set_model(here: Here, name: str, model: str) -> int:
    """Set the model of an agent."""
    made = here.write(lambda triggers: triggers.update_agent(name, {"model": model}))
    return print_one(here, made, [f"Model of {made['name']}: {model}"])


@orchestrator.command("add-dir")
@click.argument("name", metavar="ID")
@click.argument("path")
@click.pass_obj
def add_dir(here: Here, name: str, path: str) -> int:
    """Add a directory to an agent."""
    return _change_dirs(here, name, lambda dirs: [*(each for each in dirs if each != path), path])


@orchestrator.command("remove-dir")
@click.argument("name", metavar="ID")
@click.argument("path")
@click.pass_obj
def remove_dir(here: Here, name: str, path: str) -> int:
    """Remove a directory from an agent."""
    return _change_dirs(here, name, lambda dirs: [each for each in dirs if each != path])


def _change_dirs(here: Here, name: str, change: Callable[[list[str]], list[str]]) -> int:
    async def changed(triggers: Triggers) -> dict[str, Any]:
        dirs = (await triggers.agent(name))["config"].get("additional_dirs", [])
        return await triggers.update_agent(name, {"additional_dirs": change(dirs)})

    made = here.write(changed)
    return print_one(here, made, made["config"].get("additional_dirs", ["no additional directory"]))


@orchestrator.command("clear-context")
@click.argument("name", metavar="ID")
@click.pass_obj
def clear_context(here: Here, name: str) -> int:
    """Clear the context of an agent.

    Each run of an agent starts with an empty context in any case.
    """
    said = here.write(lambda triggers: triggers.clear_context(name))
    return print_one(here, said, ["Context cleared."])


@orchestrator.command("send-message")
@click.argument("name", metavar="ID")
@click.argument("message", required=False)
@click.option("--stdin", "from_stdin", is_flag=True, help="Read the message from standard input.")
@click.pass_obj
def send_message(here: Here, name: str, message: str | None, *, from_stdin: bool) -> int:
    """Run an agent once with a message as its prompt."""
    if (message is None) is not from_stdin:
        raise click.UsageError("give the message, or --stdin, and not both.")
    content = sys.stdin.read() if from_stdin else message

    async def send(triggers: Triggers) -> dict[str, Any]:
        with failing("send message"):
            return await triggers.send_message(name, content)

    sent = here.write(send)
    dispatch = {**sent, "status": sent["dispatch_status"]}
    return print_one(here, sent, ["Message sent.", "", *dispatch_lines(dispatch)])


# What a command line says


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


def _agent_lines(card: Mapping[str, Any]) -> list[str]:
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


def _tools(policy: Mapping[str, Any]) -> list[str]:
    return [f"  - {each}" for each in policy.get("tools", ())]
