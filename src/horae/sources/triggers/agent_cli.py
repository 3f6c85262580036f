"""`agent`: the commands of the document on schedule triggers, on top of the same service.

Modules that few commands need are imported by these, so that `agent --help` is fast.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import wraps
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from msgspec import to_builtins

import horae
from horae.cli.options import flag, option, text_or_file
from horae.cli.output import Form, clean, echo, print_error, print_json, usual_form
from horae.cli.run import run
from horae.errors import Exit, HoraeError
from horae.sources.triggers.kinds import KINDS, config_of, kind_of
from horae.sources.triggers.rules import api_words, parse_json, validate_template
from horae.sources.triggers.views import Page

if TYPE_CHECKING:
    from horae.cli.trigger_access import AnyTriggers, TriggerAccess
    from horae.sources.triggers.source import Folder
    from horae.sources.triggers.views import (
        Dispatch,
        FileChange,
        SentMessage,
        TriggerAgent,
        TriggerLine,
    )

LONGEST: Final = 60  # characters of a template in a list
LOOK: Final = 0.1  # seconds between checks for workflows to be armed
_RULE: Final = 80
_TYPES: Final = (
    *("github-issues", "github-pull-requests", "cron", "delay", "webhook", "manual"),
    *("dispatch-result", "agent-lifecycle"),
)
_FROM_ZERO: Final[dict[str, Any]] = {"show_default": True, "type": click.IntRange(0)}
_STATES: Final = click.Choice(["open", "closed", "all"])
_UNUSED: Final = "Stored and not used."
_FLAGS: Final = {"expression": "cron-expression", "secret": "webhook-secret"}  # else the field


def main() -> None:
    sys.exit(run(agent, name="agent"))


class AgentCommandError(HoraeError, code="agent_command"): ...


class AgentCall(NamedTuple):
    is_json: bool
    root: str
    data: str | None

    @property
    def access(self) -> TriggerAccess:
        from horae.cli.trigger_access import TriggerAccess

        return TriggerAccess(root=self.root, data=self.data)

    @property
    def has_engine(self) -> bool:
        from horae.cli.connection import engine_of

        return engine_of(self.access.place).is_running

    def apply(self, path: str, **how: bool) -> tuple[Folder, list[FileChange]]:
        from horae.sources.triggers.commands import apply_path

        return apply_path(self.access, path, **how)

    def write(self, work: Callable[[AnyTriggers], Awaitable[Any]], what: str = "") -> Any:
        async def named(triggers: AnyTriggers) -> Any:
            try:
                return await work(triggers)
            except HoraeError as error:
                if not what or isinstance(error, AgentCommandError):
                    raise
                raise AgentCommandError(f"Failed to {what}: {api_words(error)}") from error

        return self.access.write(named)

    def print(self, data: object, lines: Iterable[str], notes: Iterable[str] = ()) -> None:
        for note in notes:
            echo(f"Note: {note}", err=True)
        if self.is_json:
            print_json(data)
            return
        for line in lines:
            echo(clean(line).replace("\n", "\\n"))

    def print_made(self, made: TriggerLine | TriggerAgent, text: str, lines: Iterable[str]) -> None:
        self.print(made, [text, "", *lines], made.notes or ())


class AgentGroup(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HoraeError as error:
            if isinstance(ctx.obj, AgentCall) and ctx.obj.is_json:
                print_error(error.data())
            else:
                echo(f"Error: {api_words(error)}", err=True)
            return int(Exit.FINDINGS)


@click.group(cls=AgentGroup, context_settings={"help_option_names": ["-h", "--help"]})
@flag("--json", "Print JSON.", name="is_json")
@option("--root DIR", "The plan root.", default=".")
@option("--data DIR", "The data directory; default: .horae in the plan root.")
@option("--token-file FILE", "Read the token for HORAE_SERVER from a file.",
        type=click.Path(exists=True, dir_okay=False))  # fmt: skip
@click.version_option(horae.__version__, prog_name="agent", message="%(prog)s %(version)s")
@click.pass_context
def agent(ctx: click.Context, /, *, is_json: bool, root: str, data: str | None, **_: Any) -> None:
    """Manage agents, and workflows that start them."""
    ctx.obj = AgentCall(is_json or usual_form() is not Form.TABLE, root, data)


@agent.group()
def orchestrator() -> None:
    """Manage agents and workflows one by one.

    A workflow of these commands is a trigger of `horae trigger`.
    """


def _command(name: str, group: click.Group = orchestrator) -> Callable[..., click.Command]:
    return lambda function: group.command(name)(click.pass_obj(function))


def _of_one_agent(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command [ID] and --name, of which one must name an agent, as the argument `who`."""

    @click.argument("agent_id", metavar="[ID]", required=False)
    @option("--name", "The name of the agent.")
    @wraps(command)
    def called(*args: Any, agent_id: str | None, name: str | None, **given: Any) -> Any:
        if (agent_id is None) is (name is None):
            raise click.UsageError("name one agent, by its ID or with --name.")
        return command(*args, who=agent_id or name, **given)

    return called


def _dispatch_lines(dispatch: Dispatch | SentMessage, status: str = "") -> list[str]:
    status = status or dispatch.status
    facts: dict[str, object] = {
        "ID": dispatch.id,
        "Workflow": dispatch.workflow,
        "Source ID": dispatch.source_id,
        "Status": status,
        "Dispatched": dispatch.dispatched_at,
        "Completed": dispatch.completed_at,
        "Reason": dispatch.reason if status in {"skipped", "failed", "pending"} else "",
        "Fire Times": dispatch.count if dispatch.count > 1 else "",
    }
    return [f"{label + ':':<14}{value}" for label, value in facts.items() if value]


def _workflow_lines(workflow: TriggerLine) -> list[str]:
    config, template = workflow.trigger_config, workflow.prompt_template
    shown = template if len(template) <= LONGEST else f"{template[: LONGEST - 3]}..."
    facts = {
        "ID": workflow.id,
        "Name": workflow.name,
        "Agent ID": workflow.agent_id,
        "Status": "enabled" if workflow.enabled else "disabled",
        "Poll Interval": f"{workflow.poll_interval_secs}s",
        "Trigger Type": config["type"],
        **kind_of(config).lines(),
        "Prompt Template": shown.replace("\n", "\\n"),
        "Created": workflow.created_at.replace("T", " ").replace("Z", " UTC"),
    }
    return [f"{label}: {value}" for label, value in facts.items()]


def _fact_lines(answer: Any) -> list[str]:
    if isinstance(answer, list | tuple):
        return [f"- {each}" for each in answer]
    lines = []
    for name, value in to_builtins(answer).items():
        label = " ".join(
            word.upper() if word in {"id", "usd"} else word.title() for word in name.split("_")
        )
        if isinstance(value, dict | list | tuple) and value:
            lines += [f"{label}:", *(f"  {line}" for line in _fact_lines(value))]
        elif value not in (None, "", {}, [], ()):
            lines.append(f"{label}: {value}")
    return lines


def _dir_lines(agent: TriggerAgent) -> Sequence[str]:
    found: Sequence[str] = agent.config.get("additional_dirs", ["no additional directory"])
    return found


def _add(
    name: str,
    text: str,
    work: Callable[..., Awaitable[Any]],
    lines: Callable[[Any], Iterable[str]],
    *params: Callable[[Any], Any],
    is_read: bool = False,
    what: str = "",
) -> None:
    def command(call: AgentCall, **given: Any) -> None:
        def called(triggers: AnyTriggers) -> Awaitable[Any]:
            return work(triggers, **given)

        said = call.access.read(called) if is_read else call.write(called, what)
        call.print(said, lines(said))

    for param in reversed(params):
        command = param(command)
    orchestrator.command(name, help=text)(click.pass_obj(command))


def _add_list(
    name: str,
    text: str,
    work: Callable[..., Awaitable[list[Any]]],
    title: str,
    lines: Callable[[Any], list[str]],
    *params: Callable[[Any], Any],
    total: str,
) -> None:
    def shown(found: Sequence[Any]) -> list[str]:
        if not found:
            return [f"No {title.lower()} found."]
        blocks = [line for each in found for line in (*lines(each), "-" * _RULE)]
        return [f"{title}:", "=" * _RULE, *blocks, f"Total: {len(found)} {total}"]

    _add(name, text, work, shown, *params, is_read=True)


async def _every(page: Callable[..., Awaitable[Page[Any]]], *args: Any, **given: Any) -> list[Any]:
    found: list[Any] = []
    while True:
        part = await page(*args, **given, limit=200, offset=len(found))
        found += part.items
        if not part.items or len(found) >= part.total:
            return found


async def _change_dirs(triggers: AnyTriggers, word: str, path: str, *more: str) -> TriggerAgent:
    dirs = (await triggers.agent(word)).config.get("additional_dirs", [])
    dirs = [*(each for each in dirs if each != path), *more]
    return await triggers.update_agent(word, {"additional_dirs": dirs})


async def _policy_of(triggers: AnyTriggers, word: str) -> object:
    return (await triggers.agent(word)).config["tool_policy"]


async def _set_policy(triggers: AnyTriggers, word: str, policy: str) -> object:
    said = {"tool_policy": parse_json(policy, "the policy")}
    return (await triggers.update_agent(word, said)).config["tool_policy"]


# fmt: off
_ID: Final = click.argument("word", metavar="ID")
_PATH: Final = click.argument("path")
_RECEIPT: Final = click.argument("receipt", type=int)
_STATUS: Final = click.Choice(["pending", "running", "stopped", "failed"])
_add("get-workflow", "Show a workflow.",
     lambda triggers, word: triggers.get(word), _workflow_lines, _ID, is_read=True)
_add("delete-workflow", "Delete a workflow.", lambda triggers, word: triggers.delete(word),
     lambda gone: [f"Workflow {gone.id} deleted."], _ID)
_add("trigger-workflow", "Run a workflow now.",
     lambda triggers, word, **task: triggers.trigger_now(word, task),
     lambda made: ["Workflow triggered!", "", *_dispatch_lines(made)],
     _ID, option("--title", "The value of {{title}}.", default=""),
     option("--body", "The value of {{body}}.", default=""), what="trigger workflow")
_add("get-agent", "Show an agent.",
     lambda triggers, word: triggers.agent(word), _fact_lines, _ID, is_read=True)
_add("delete-agent", "Delete an agent that no workflow starts.",
     lambda triggers, word: triggers.delete_agent(word),
     lambda gone: [f"Agent {gone.id} deleted."], _ID)
_add("set-model", "Set the model of an agent.",
     lambda triggers, word, model: triggers.update_agent(word, {"model": model}),
     lambda made: [f"Model of {made.name}: {made.config.get('model', '')}"],
     _ID, click.argument("model"))
_add("get-policy", "Show the tool policy of an agent.",
     _policy_of, _fact_lines, _ID, is_read=True)
_add("set-policy", "Set the tool policy of an agent.",
     _set_policy, lambda said: ["Tool policy updated.", *_fact_lines(said)],
     _ID, click.argument("policy", metavar="JSON"))
_add("add-dir", "Add a directory to an agent.\n\nThe directory is stored and not used.",
     lambda triggers, word, path: _change_dirs(triggers, word, path, path), _dir_lines, _ID, _PATH)
_add("remove-dir", "Remove a directory from an agent.", _change_dirs, _dir_lines, _ID, _PATH)
_add("clear-context", "Clear the context of an agent.\n\n"
     "Each run of an agent starts with an empty context in any case.",
     lambda triggers, word: triggers.clear_context(word),
     lambda _: ["Context cleared: each run starts with an empty context."], _ID)
_add("usage", "Show the usage of the last run and of all runs.",
     lambda triggers, who: triggers.usage(who), _fact_lines, _of_one_agent, is_read=True)
_add("approve", "Approve a pending run.", lambda triggers, receipt: triggers.approve(receipt),
     lambda said: [f"Approval {said.receipt} approved."], _RECEIPT)
_add("deny", "Reject a pending run.",
     lambda triggers, receipt, reason: triggers.deny(receipt, reason=reason),
     lambda said: [f"Approval {said.receipt} denied."],
     _RECEIPT, option("--reason", "The reason, shown with the receipt.", default=""))
_add_list("list-workflows", "List the workflows, newest first.",
          lambda triggers: _every(triggers.page),
          "Workflows", _workflow_lines, total="workflow(s)")
for _name in ("dispatch-history", "workflow-history"):
    _add_list(_name, "List the dispatches of a workflow, newest first.",
              lambda triggers, word: _every(triggers.history, word),
              "Dispatch History", _dispatch_lines, _ID, total="dispatch(es)")
_add_list("list-agents", "List the agents, newest first.\n\n"
          "The status of an enabled agent is running, also while no engine runs.",
          lambda triggers, status: _every(triggers.agents, status=status), "Agents", _fact_lines,
          option("--status", "Only agents with this status.", type=_STATUS), total="agent(s)")
_add_list("list-approvals", "List the runs that wait for approval.",
          lambda triggers: triggers.approvals(), "Approvals", _fact_lines, total="approval(s)")
# fmt: on


_TEMPLATE: Final = option("--prompt-template TEXT", "The prompt; {{names}} are replaced.")
_TEMPLATE_FILE: Final = option("--prompt-template-file FILE", "Read the prompt from a file.")
_TOOL_POLICY: Final = option("--tool-policy JSON", 'The tool policy, such as {"mode": "deny_all"}.')
_POLL_HELP: Final = "Seconds between checks of GitHub."
_TYPE_HELP: Final = f"What starts the workflow: {', '.join(_TYPES)}."


@_command("create-workflow")
@option("--name", "The name of the workflow.", required=True)
@option("--agent-id UUID", "The agent, by its id.")
@option("--agent-name", "The agent, by its name.")
@option("--trigger-type TYPE", _TYPE_HELP, type=click.Choice(_TYPES), default="github-issues")
@option("--owner", "For GitHub: the owner of the repository.")
@option("--repo", "For GitHub: the name of the repository.")
@option("--labels A,B", "For GitHub: only issues with these labels.")
@option("--state", "For GitHub: only issues in this state.", default="open", type=_STATES)
@option("--cron-expression EXPR", "For cron: when to run.", name="expression")
@option("--timezone ZONE", "For cron: the time zone; default: UTC.")
@option("--run-at T", "For delay: when to run, such as 2026-04-01T09:00:00Z.")
@option("--webhook-secret SECRET", "For webhook: the secret that signs messages.", name="secret")
@option("--event EVENT", "For agent-lifecycle: the event of the agent.")
@option("--source-workflow-id UUID", "For dispatch-result: run after this workflow.")
@option("--status STATUS", "For dispatch-result: run only after this result.")
@_TEMPLATE
@_TEMPLATE_FILE
@option("--poll-interval SECONDS", _POLL_HELP, default=60, show_default=True, type=int)
@_TOOL_POLICY
@flag("--disabled", "Create the workflow disabled.")
def create_workflow(call: AgentCall, /, *, name: str, **given: Any) -> None:
    """Create a workflow."""
    for one, other in (("agent-id", "agent-name"), ("prompt-template", "prompt-template-file")):
        if None not in {given[each.replace("-", "_")] for each in (one, other)}:
            raise click.UsageError(f"--{one} cannot be used with --{other}.")
    if not given["agent_id"] and not given["agent_name"]:
        raise AgentCommandError("Either --agent-id or --agent-name must be provided.")
    said = {"name": name, "enabled": not given["disabled"], **_given_fields(given)}
    if said["prompt_template"] is None:
        raise AgentCommandError(
            "Either --prompt-template or --prompt-template-file must be provided."
        )
    kind = given["trigger_type"].replace("-", "_")
    for needed in KINDS[kind].required():
        if given[needed] is None:
            flag_name = _FLAGS.get(needed, needed.replace("_", "-"))
            words = f"--{flag_name} is required for {given['trigger_type']} trigger"
            raise AgentCommandError(words)
    labels = [each.strip() for each in (given["labels"] or "").split(",") if each.strip()]
    said["trigger_config"] = config_of(kind, {**given, "labels": labels})
    who = {name: given[name] for name in ("agent_id", "agent_name")}

    async def make(triggers: AnyTriggers) -> TriggerLine:
        try:
            return await triggers.create({**said, **who})
        except HoraeError as error:
            if who["agent_name"] is None or not str(error).endswith("Agent not found"):
                raise
            raise AgentCommandError(
                f"Agent '{who['agent_name']}' not found. "
                "Use 'agent orchestrator list-agents' to see available agents."
            ) from None

    made = call.write(make, "create workflow")
    call.print_made(made, "Workflow created successfully!", _workflow_lines(made))


def _given_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    text = given["tool_policy"]
    return {
        "prompt_template": text_or_file(given["prompt_template"], given["prompt_template_file"]),
        "poll_interval_secs": given["poll_interval"],
        "tool_policy": parse_json(text, "--tool-policy") if text else None,
    }


@_command("update-workflow")
@click.argument("workflow", metavar="ID")
@option("--name", "The new name.")
@_TEMPLATE
@_TEMPLATE_FILE
@option("--poll-interval SECONDS", _POLL_HELP, type=int)
@option("--enabled true|false", "Enable or disable the workflow.", type=click.BOOL)
@option("--agent-name", "The new agent.")
@option("--cron-expression EXPR", "Run by this cron expression.", name="expression")
@option("--timezone ZONE", "The time zone of --cron-expression.")
@option("--run-at T", "Run once, such as 2026-04-01T09:00:00Z.")
@_TOOL_POLICY
def update_workflow(call: AgentCall, /, workflow: str, **given: Any) -> None:
    """Change a workflow.

    The change takes effect at once.
    """
    said = {name: given[name] for name in ("name", "enabled", "agent_name")} | _given_fields(given)
    for name, kind in (("expression", "cron"), ("run_at", "delay")):
        if given[name]:
            said["trigger_config"] = config_of(kind, given)
    made = call.write(lambda triggers: triggers.update(workflow, said), "update workflow")
    call.print_made(made, "Workflow updated successfully!", _workflow_lines(made))


@_command("validate-template")
@click.argument("template", required=False)
@option("--file FILE", "Read the template from a file.")
def check_template(call: AgentCall, template: str | None, *, file: str | None) -> None:
    """Check a prompt template."""
    text = text_or_file(template, file)
    if text is None:
        raise AgentCommandError("Give the template, or --file with the file that it is in.")
    said = validate_template(text)
    lines = ["Template is valid." if said["valid"] else "Template has problems:"]
    lines += [f"  - {each}" for each in said["warnings"]]
    if said["valid"]:
        lines.append(f"Known variables: {', '.join(said['known_variables'])}")
    call.print(said, lines)


@_command("create-agent")
@option("--name", "The name of the agent.", required=True)
@option("--working-dir DIR", "The working directory; default: the current one.")
@option("--user", _UNUSED)
@option("--shell", _UNUSED)
@option("--interactive", _UNUSED, is_flag=True, default=None)
@option("--prompt TEXT", _UNUSED)
@option("--prompt-file FILE", "Read --prompt from a file.")
@flag("--stdin", "Read --prompt from standard input.", name="from_stdin")
@option("--worktree", _UNUSED, is_flag=True, default=None)
@option("--system-prompt TEXT", "The system prompt.")
@click.option("--attach", is_flag=True, hidden=True)
@option("--model", "The model.")
@_TOOL_POLICY
@option("--env K=V", "A variable of the environment; repeat for several.", multiple=True)
@option("--auto-clear-threshold", _UNUSED, type=int)
@option("--network-policy", _UNUSED)
@option("--docker-image", _UNUSED)
@option("--cpu-limit N", _UNUSED)
@option("--memory-limit MB", _UNUSED, name="memory_limit_mb")
@option("--mount H:C[:ro]", _UNUSED, name="mounts", multiple=True)
@option("--add-dir DIR", f"{_UNUSED[:-1]}; repeat for several.", name="dirs", multiple=True)
@option("--command LINE", "The command of the agent; default: the setting agent.command.")
def create_agent(call: AgentCall, /, **given: Any) -> None:
    """Create an agent.

    With only a name the agent uses the default command and the current directory.
    """
    prompt = text_or_file(given["prompt"], given["prompt_file"])
    for each in given["env"]:
        if "=" not in each:
            raise click.UsageError(f"--env {each!r} is not K=V.")
    limits = {key: given[key] for key in ("cpu_limit", "memory_limit_mb")}
    here, is_there = given["working_dir"] or ".", call.access.place.server is not None
    policy = given["tool_policy"]
    said = given | {
        "working_dir": given["working_dir"] if is_there else os.path.realpath(here),
        "prompt": sys.stdin.read() if given["from_stdin"] else prompt,
        "env": dict(each.split("=", 1) for each in given["env"]),
        "resource_limits": {key: value for key, value in limits.items() if value is not None},
        "extra_mounts": list(map(_mount, given["mounts"])),
        "additional_dirs": list(given["dirs"]),
        "command": shlex.split(given["command"] or ""),
        "tool_policy": parse_json(policy, "--tool-policy") if policy else None,
    }
    made = call.write(lambda triggers: triggers.create_agent(said), "create agent")
    call.print_made(made, "Agent created successfully!", _fact_lines(made))


def _mount(text: str) -> dict[str, object]:
    parts = text.split(":")
    if len(parts) not in {2, 3} or parts[2:] not in ([], ["ro"]):
        raise click.UsageError(f"--mount {text!r} is not HOST:CONTAINER or HOST:CONTAINER:ro.")
    return {"host_path": parts[0], "container_path": parts[1], "read_only": len(parts) == 3}


@_command("send-message")
@click.argument("name", metavar="ID")
@click.argument("message", required=False)
@flag("--stdin", "Read the message from standard input.", name="from_stdin")
def send_message(call: AgentCall, name: str, message: str | None, *, from_stdin: bool) -> None:
    """Run an agent once with a message as its prompt."""
    if (message is None) is not from_stdin:
        raise click.UsageError("give either MESSAGE or --stdin.")
    content = message if message is not None else sys.stdin.read()
    sent = call.write(lambda triggers: triggers.send_message(name, content), "send message")
    call.print(sent, ["Message sent.", "", *_dispatch_lines(sent, sent.dispatch_status)])


@_command("logs")
@_of_one_agent
@flag("-f --follow", "Follow the output until the run ends.")
@option("--tail N", "Only the last N lines.", default=100, **_FROM_ZERO)
def logs(call: AgentCall, *, who: str, follow: bool, tail: int) -> int:
    """Show the output of the current or last run of an agent."""
    return _show_log(call, who, follow=follow, tail=tail)


for _name, _more in (("attach", "\n\nThe run has no terminal and gets no input."), ("stream", "")):

    @orchestrator.command(_name, help=f"Follow the output of the current run of an agent.{_more}")
    @click.pass_obj
    @_of_one_agent
    def stream(call: AgentCall, *, who: str) -> int:
        return _show_log(call, who, follow=True, is_going=True)


def _show_log(
    call: AgentCall, who: str, *, follow: bool, tail: int | None = None, is_going: bool = False
) -> int:
    from horae.cli.runs import logs as show

    number = call.access.read(lambda triggers: triggers.run_of(who, is_going=is_going))
    assert show.callback is not None, "it is a command"
    place = {"root": call.root, "data": call.data}
    shown: int = show.callback(str(number), follow=follow, tail=tail, raw=False, **place)
    return shown


@_command("health")
def health(call: AgentCall) -> int:
    """Show whether an engine is running."""
    word = "ok" if call.has_engine else "no engine is running"
    if (server := call.access.place.server) is not None:
        server.status(limit=1)  # raises an error unless the engine answers
    said = {"status": word, "service": "horae", "version": horae.__version__}
    call.print(said, [f"Status: {word}", f"Version: {horae.__version__}"])
    return Exit.OK if word == "ok" else Exit.FINDINGS


@_command("apply", agent)
@click.argument("path")
@flag("--dry-run", "Show what would change, and change nothing.")
@option("--wait-timeout SECONDS", "How long to wait until the engine has armed the workflows.",
        default=60, **_FROM_ZERO)  # fmt: skip
def apply(call: AgentCall, path: str, *, dry_run: bool, wait_timeout: int) -> int:
    """Create and update agents and workflows from files.

    All files are checked before anything is changed. With a running engine the command returns
    when the workflows are armed; the exit code is 124 if that takes longer than --wait-timeout.
    """
    folder, changes = call.apply(path, dry_run=dry_run)
    if not dry_run and not _all_armed(call, folder, wait_timeout):
        return Exit.TIMED_OUT
    said = {"dry_run": dry_run, "valid": True, "rooms": []}
    said |= {"agents": [each.name for each in folder.agents]}
    said |= {"workflows": [each.name for each in folder.workflows]}
    counts = f"0 room(s), {len(folder.agents)} agent(s),{'' if dry_run else ' and'}"
    done = f"{'Dry run passed:' if dry_run else 'Applied'} {counts}"
    lines = [*_change_lines(changes), f"{done} {len(folder.workflows)} workflow(s)"]
    call.print({**said, "changes": changes}, lines)
    return Exit.OK


def _all_armed(call: AgentCall, folder: Folder, patience: int) -> bool:
    access = call.access
    if access.place.server is not None or not call.has_engine:
        return True
    names = [each.name for each in folder.workflows if each.is_enabled]
    gives_up_at = monotonic() + patience
    while (unarmed := access.read_ledger(lambda triggers: triggers.unarmed(names))) is not None:
        if monotonic() >= gives_up_at:
            waited = f"to be armed (waited {patience}s): {unarmed[1]}"
            echo(f"Error: Timeout waiting for workflow '{unarmed[0]}' {waited}", err=True)
            return False
        sleep(LOOK)
    return True


@_command("teardown", agent)
@click.argument("path")
@flag("--dry-run", "Show what would be removed, and remove nothing.")
def teardown(call: AgentCall, path: str, *, dry_run: bool) -> None:
    """Remove the workflows and agents that files define."""
    _, changes = call.apply(path, dry_run=dry_run, is_teardown=True)
    count = sum(each.verb == "delete" for each in changes)
    done = f"{'Would remove' if dry_run else 'Removed'} {count} of {len(changes)}"
    call.print(changes, [*_change_lines(changes), done])


def _change_lines(changes: Sequence[FileChange]) -> list[str]:
    lines = []
    for change in changes:
        lines.append(f"{change.verb:<9} {change.what} '{change.name}' ({change.place})")
        lines += [f"            {line}" for line in change.diff_lines("->")]
    return lines


if __name__ == "__main__":
    main()
