"""`agents` and `agent`: list agents, show one, run one, and manage its kept work."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from horae.cli import output as out
from horae.cli.group import SharedGroup
from horae.cli.options import data_option, option, root_of_data_option
from horae.cli.runs import LOOK, RunScreen, exit_of
from horae.cli.trigger_access import Everybody, KnownAgent
from horae.config import load, secrets_of
from horae.core.agent import AgentNotFoundError, RunnerKind
from horae.core.budget import cost_text
from horae.core.clock import SystemClock, machine_zone
from horae.core.entry import key_time
from horae.core.explain import work_words
from horae.core.text import moment_text
from horae.errors import Exit, HoraeError
from horae.files.git.calls import GitRefusedError
from horae.files.git.repository import WORK, Git, KeptWork, UpdateRefusal, is_repository
from horae.files.git.trees import Trees, why_refused
from horae.process.processes import LOG_NAME, Processes
from horae.process.run_settings import RunSettings
from horae.sources.agents import runner
from horae.sources.agents.programs import EVENTS, can_keep, program_of
from horae.sources.agents.transcript import counted
from horae.timing.duration import DurationError, format_duration, parse_duration

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from datetime import timedelta

    from horae.config import Config
    from horae.core.ports import Ended

ASKED: Final = "Do one run now. If there is nothing to do, answer NO-WORK and say why."
_KEPT, _TOLD = "kept", "told, not kept"
_LABELS: Final = {"obstacle": "problem"}  # in `agent show`, where not the key itself
_TOOLS_ARE: Final = {_KEPT: "enforced", _TOLD: "not enforced, only in HORAE_TOOLS"}

_name = click.argument("name", metavar="NAME")
_work = click.argument("work", metavar="WORK")
_NO_WORK: Final = "no work is kept"
_MOST_NAMES: Final = 5  # files and conflicts in a line
_Done = TypeVar("_Done")


@click.command()
@root_of_data_option
@data_option
@out.form_options
def agents(*, root: str, data: str | None, output: out.Output) -> int:
    """List agents and whether each can run.

    Agents are defined by the manifest of the crew (`crew.def`), the file of the keeper, a single
    agent that ticks at an interval (`keeper.def`), headlines tagged :agent: in the plan root, the
    API, and files in `.agentd` that `horae up` or `horae trigger apply` has read.
    """
    everybody = Everybody(root, data, output)
    exit_code = everybody.say_problems()
    rows = [_row(everybody.registry, known) for known in everybody.known]
    out.print_rows(output, rows, lambda: _print_table(rows, everybody.hint))
    return exit_code


@click.command()
@_name
@root_of_data_option
@data_option
@out.form_options
def show(name: str, *, root: str, data: str | None, output: out.Output) -> int:
    """Show the definition and the tools of an agent.

    Also show what prevents the agent from running.
    """
    everybody = Everybody(root, data, output)
    shown = _shown(everybody.registry, everybody.get(name))

    def print_shown() -> None:
        for key, value in shown.items():
            if value not in (None, "", []):
                out.echo(f"{_LABELS.get(key, key.replace('_', ' ')):<10}  {_said(key, value)}")

    out.print_answer(output, shown, print_shown)
    return Exit.OK


@click.command()
@_name
@option("--prompt TEXT|-", "The prompt; - reads it from standard input.")
@option("--dir DIR", "The working directory; default: the tree of the agent.", name="directory")
@option("--timeout LENGTH", "The time limit, such as 15m.")
@option("--model NAME", "The model; default: that of the definition.")
@root_of_data_option
@data_option
@out.form_options
def run(
    name: str,
    *,
    prompt: str | None,
    directory: str | None,
    timeout: str | None,
    model: str | None,
    root: str,
    data: str | None,
    output: out.Output,
) -> int:
    """Run an agent now and show its output.

    The agent runs as in the engine, with the same tree, environment, tools, time limit and
    delivery of its work, but without a receipt in the ledger. The exit code is 0 if the run
    succeeded, 1 if it failed, and 124 if it exceeded its time limit.
    """
    config = load(root)
    everybody = Everybody(root, data, output)
    known = everybody.get(name)
    agent = known.agent
    if known.card is None and known.why is not None:
        raise AgentNotFoundError(name, why=known.why)
    if directory is not None:
        if not os.path.isdir(directory):
            raise click.UsageError(f"--dir: {directory!r} is not a directory.")
        agent = replace(agent, directory=os.path.realpath(directory))
    try:
        limit = None if timeout is None else parse_duration(timeout)
    except DurationError as error:
        raise click.UsageError(f"--timeout: {error}.") from None
    limit = limit or agent.definition.timeout or config.run_timeout
    # As in the engine: a program that cannot enforce the policy of a card is not started.
    tools = None if known.card is None else known.policy
    text = sys.stdin.read() if prompt == "-" else prompt or ASKED

    async def run() -> Ended:
        async with _host(config, everybody.registry, limit) as (host, part):
            held = await host.hold(agent, text, run=part, timeout=limit, tools=tools, model=model)
            held.go()
            ending = asyncio.ensure_future(held.ended())
            if output.is_text:
                await _follow(held, ending, part.directory / LOG_NAME, RunScreen(output))
            return await ending

    ended = asyncio.run(run())
    told = {
        "agent": agent.name,
        "outcome": ended.outcome.value,
        "reason": ended.reason,
        "reason_code": ended.reason.code,
    }
    status = str(ended.outcome).replace("_", " ")
    line = f"horae: {agent.name}: {status}: {ended.reason}{_spent(ended.facts)}"
    about_work = work_words({**ended.facts, "diff": "", "edits": None})  # the log has these
    lines = [line, *(f"horae: {agent.name}: {words}" for words in about_work)]
    out.print_answer(output, {**told, **ended.facts}, lambda: out.echo("\n".join(lines), err=True))
    return exit_of(ended.outcome, ended.reason.code)


@asynccontextmanager
async def _host(
    config: Config, registry: runner.Registry, limit: timedelta
) -> AsyncIterator[tuple[runner.AgentHost, runner.Part]]:
    with TemporaryDirectory(prefix="horae-agent-") as home:
        place = RunSettings(
            Path(config.root).resolve(), Path(home), os.environ, limit, named=secrets_of(config)
        )
        kept, local = Path(config.data).resolve(), config.git_local or ()
        trees = Trees(place.root, kept, local, uncommitted=config.agent_uncommitted)
        name = f"{SystemClock().now():%Y%m%dT%H%M%SZ}"
        async with Processes(place.data) as processes:
            host = runner.AgentHost(registry, processes, place, trees)
            yield host, runner.Part(1, place.data / "run", name=name)


async def _follow(
    held: runner.AgentRun, ending: asyncio.Future[Ended], log: Path, screen: RunScreen
) -> None:
    has_events = held.how.answers in EVENTS
    if has_events and not sys.stdout.isatty():
        ended = await ending
        screen.show(f"{ended.facts.get('text', '')}\n".encode())
        return
    while not ending.done():
        screen.show_file(log)
        await asyncio.wait([ending], timeout=LOOK)
    screen.show_file(log)


def _row(registry: runner.Registry, known: KnownAgent) -> dict[str, Any]:
    each, card, obstacle = known.agent, known.card, known.obstacle(registry)
    kind = registry.runner_of(each)
    return {
        "agent": each.name,
        "where": known.where,
        "defined_by": "plan" if card is None else "file" if card.file else "request",
        "runner": kind.value,
        "command": list(registry.command_of(each)) if kind is RunnerKind.COMMAND else None,
        "model": registry.model_of(each),
        "can_run": obstacle is None,
        "obstacle": None if obstacle is None else str(obstacle),
    }


def _shown(registry: runner.Registry, known: KnownAgent) -> dict[str, Any]:
    each, policy = known.agent, known.policy
    definition = each.definition
    row = program_of(registry.command_of(each))
    variables = (*each.variables, *definition.variables, *each.environment)
    is_kept = registry.runner_of(each) is RunnerKind.MODEL or can_keep(row, policy)
    return {
        **_row(registry, known),
        "title": definition.title,
        "tagline": definition.tagline,
        "timeout": format_duration(definition.timeout) if definition.timeout else None,
        "tools_mode": None if policy.is_open else policy.mode.value,
        "tools": list(map(str, policy.tools)) or None,
        "tools_are": None if policy.is_open else _KEPT if is_kept else _TOLD,
        "program": f"{row.name} (checked with {row.checked})" if row.name else None,
        "variables": list(dict.fromkeys(variables)),
        "wake": definition.wake.value if definition.wake else None,
        "prompt": definition.prompt,
    }


def _said(key: str, value: Any) -> str:
    if key == "tools_are":
        return _TOOLS_ARE[value]
    if isinstance(value, list):
        return shlex.join(value) if key == "command" else ", ".join(value)
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _print_table(rows: list[dict[str, Any]], hint: str) -> None:
    cells = []
    for row in rows:
        instead = "none" if row["runner"] == "command" else row["runner"]
        called = shlex.join(row["command"] or ()) or f"({instead})"
        can_run = (
            out.safe("yes", style="green") if row["can_run"] else out.safe(f"no: {row['obstacle']}")
        )
        where = row["where"] or "by request"
        cells.append((row["agent"], called, row["model"] or "", where, can_run))
    names = ("agent", "command", "model", "where", "can run")
    out.print_table(names, cells, empty=f"no agents{hint}")


def _spent(facts: Mapping[str, object]) -> str:
    counts = [counted(facts.get(f"{noun}s"), noun) for noun in ("step", "token")]
    told = ", ".join(filter(None, [*counts, cost_text(facts.get("cost"))]))
    return f" ({told})" if told else ""


async def _kept_in(config: Config) -> tuple[Git, list[KeptWork]]:
    root = Path(config.root).resolve()
    git = Git(root, local=config.git_local or ())
    return git, await git.kept() if is_repository(root) else []


def _named(name: str, kept: Sequence[KeptWork]) -> KeptWork:
    wanted = name.removeprefix(f"{WORK}/")
    own = [each for each in kept if each.name.partition("/")[0] == wanted]
    exact = [each for each in kept if each.name == wanted] or own
    if len(exact) != 1:
        known = ", ".join(each.name for each in own or kept)
        said = f"there is no work {name!r}; " + (f"kept are {known}" if known else _NO_WORK)
        raise HoraeError(said, code="no_kept_work", exit_code=Exit.NOT_FOUND, name=name)
    return exact[0]


def _data(work: KeptWork) -> dict[str, Any]:
    return {
        "work": work.name,
        "branch": f"{WORK}/{work.name}",
        "commit": work.commit,
        "at": key_time(work.at),
        "commits": work.commits,
        "files": work.files,
        "conflicts": work.conflicts,
    }


def _with_work(
    root: str, name: str, act: Callable[[Git, KeptWork], Awaitable[_Done]]
) -> tuple[Git, KeptWork, _Done]:
    async def done() -> tuple[Git, KeptWork, _Done]:
        git, kept = await _kept_in(load(root))
        found = _named(name, kept)
        return git, found, await act(git, found)

    return asyncio.run(done())


@click.group(cls=SharedGroup)
def work() -> None:
    """List, show, merge or remove kept work of agents.

    Work that does not merge, and uncommitted work of an agent that is not in the crew, is kept on
    the branch `horae-work/AGENT/RUN` of the plan root. WORK is AGENT/RUN, or AGENT if only one
    work of that agent is kept.
    """


@work.command("list")
@root_of_data_option
@out.form_options
def list_(*, root: str, output: out.Output) -> None:
    """List kept work, oldest first."""
    config = load(root)
    _, kept = asyncio.run(_kept_in(config))

    def show() -> None:
        zone = config.zone or machine_zone().key
        rows = [
            (
                each.name,
                moment_text(each.at, zone),
                str(each.commits),
                _some(each.files),
                f"conflict in {_some(each.conflicts)}" if each.conflicts else "merges cleanly",
            )
            for each in kept
        ]
        names = ("work", "kept", "commits", "files", "state")
        out.print_table(names, rows, empty=_NO_WORK)

    out.print_rows(output, [_data(each) for each in kept], show)


@work.command("show")
@_work
@root_of_data_option
@out.form_options
def show_(work: str, *, root: str, output: out.Output) -> None:
    """Show kept work as a patch of the plan root."""
    _, found, diff = _with_work(root, work, lambda git, each: git.diff(each.commit))
    out.print_answer(output, {**_data(found), "diff": diff}, diff.rstrip("\n"))


@work.command("take")
@_work
@root_of_data_option
@out.form_options
def take(work: str, *, root: str, output: out.Output) -> None:
    """Merge kept work as a delivery, and remove its branch."""
    git, found, ended = _with_work(root, work, Git.take_in)
    if ended.why is UpdateRefusal.CONFLICT:
        said = (
            f"{found.name} cannot be merged: {ended.words}; merge it with"
            f" `git merge {WORK}/{found.name}`, then `horae agent work drop {found.name}`"
        )
        raise HoraeError(said, code="work_conflict", exit_code=Exit.CONFLICT, name=found.name)
    if ended.is_refused:
        raise GitRefusedError(git.root, why_refused(ended))
    data = {**_data(found), "merged": ended.commit}
    out.print_answer(output, data, f"{found.name} is merged; its branch is removed")


@work.command("drop")
@_work
@root_of_data_option
@out.form_options
def drop(work: str, *, root: str, output: out.Output) -> None:
    """Remove kept work without merging it."""
    _, found, _ = _with_work(root, work, Git.drop)
    again = f"`git branch {WORK}/{found.name} {found.commit[:12]}`"
    removed = f"{found.name} is removed; to restore it: {again}"
    out.print_answer(output, _data(found), removed)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{', '.join(names[:_MOST_NAMES])}{more}"
