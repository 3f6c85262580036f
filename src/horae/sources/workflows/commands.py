"""Run the workflows of a file without an engine, and show their progress."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import to_builtins

from horae.cli.output import Form, Output, clean, echo, print_rows
from horae.cli.sources import plan_root
from horae.config import Config, load, secrets_of, state_directory
from horae.context import block_agents, find_agents
from horae.core.clock import SystemClock
from horae.core.receipt import Status
from horae.errors import Exit
from horae.files.git.trees import Trees
from horae.files.read import PlanMissingError, read_plan
from horae.org.document import read
from horae.org.plan import Plan, is_id
from horae.org.world import World, every, worlds
from horae.process.processes import Processes
from horae.process.run_settings import RunSettings
from horae.sources.workflows.record import Record, StepRecord, summary
from horae.sources.workflows.runner import WorkflowRunner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def run_file(
    file: str,
    *,
    output: Output,
    workflow: str | None = None,
    given: str | None = None,
    plan: bool = False,
    resume: str | None = None,
    data: str | None = None,
) -> int:
    """Run the workflows of a file, or show what would run; return the exit code.

    *given* is the input, `-` for standard input; *resume* the run whose outputs are used again.
    """
    asked = _call(file, workflow=workflow, data=data)
    if plan:
        found = [summary(world) for world in asked.worlds]
        print_rows(output, found, lambda: _print_waves(found))
        return Exit.OK
    taken = None
    if resume is not None:
        runs = asked.place.data / "runs"
        kept = sorted(runs.glob(f"*/{resume}"), reverse=True) if is_id(resume) else []
        if not kept:
            raise PlanMissingError(
                str(runs), f"contains no run {resume}; the last line of a run shows its name"
            )
        taken = kept[0]
    text = (given or "").encode(errors="surrogateescape")
    text = sys.stdin.buffer.read() if given == "-" else text
    is_told = output.form is Form.TABLE
    records, code = asyncio.run(_run_all(asked, text, resume=taken, is_told=is_told))
    if not is_told:
        print_rows(output, records, lambda: None)
    return code


def records_of(file: str, text: str, given: bytes) -> tuple[list[dict[str, object]], int]:
    asked = _call(file, text=text)
    records, code = asyncio.run(_run_all(asked, given))
    return [to_builtins(record) for record in records], code


class _WorkflowCall(NamedTuple):
    name: str
    plan: Plan
    worlds: list[World]
    place: RunSettings
    config: Config


def _call(
    file: str, *, text: str | None = None, workflow: str | None = None, data: str | None = None
) -> _WorkflowCall:
    config = load(plan_root((file,)), flags={"data": data})
    text = read_plan(file, limit=config.plan_max_bytes).text if text is None else text
    path = Path(file if file != "-" else "standard input").resolve()
    root = Path(config.root).resolve()
    root = root if path.is_relative_to(root) else path.parent
    plan = read(text)
    top = worlds(plan)
    chosen = [each for each in every(top) if each.name == workflow] if workflow else top
    if not chosen or (workflow and len(chosen) > 1):
        names = ", ".join(each.name for each in every(top))
        what = f"{len(chosen)} workflows" if chosen else "no workflow"
        what += "" if workflow is None else f" {workflow!r}"
        hint = f"its workflows: {names}" if names else "to run an entry: `horae run ENTRY`"
        raise PlanMissingError(file, f"contains {what}; {hint}")
    kept = Path(config.data).resolve() if data or config.data.is_dir() else state_directory()
    place = RunSettings(root, kept, os.environ, config.run_timeout, named=secrets_of(config))
    return _WorkflowCall(str(path.relative_to(root)), plan, chosen, place, config)


async def _run_all(
    asked: _WorkflowCall, given: bytes, *, resume: Path | None = None, is_told: bool = False
) -> tuple[list[Record], int]:
    clock = SystemClock()
    began_at = clock.now()
    name = f"{began_at:%H%M%S}-{token_hex(3)}"
    # Not the engine's own directory of runs, which it locks.
    lock = asked.place.data / "runs" / f"{began_at:%Y-%m-%d}" / name
    os.makedirs(lock, 0o700)
    records: list[Record] = []
    stopped = asyncio.Event()
    async with Processes(lock) as processes:
        say = Output(Form.TABLE).say
        config, place = asked.config, asked.place
        local, uncommitted = config.git_local or (), config.agent_uncommitted
        trees = Trees(place.root, place.data, local, uncommitted=uncommitted)
        agents = block_agents(
            lambda: find_agents(config, say=say).registry, processes, place, trees
        )
        runner = WorkflowRunner(processes, asked.place, clock=clock, agent=agents)
        for number, world in enumerate(asked.worlds, 1):
            run = name if number == 1 else f"{name}-{number}"
            order = runner.order(
                asked.plan, world, name=asked.name, run=run, input=given, resume=resume
            )
            held = await runner.make(order, progress=_tell_step if is_told else None)
            records.append(held.record)

            def stop(cancel: Callable[[str], None] = held.cancel) -> None:
                if stopped.is_set():  # the second signal
                    os._exit(Exit.INTERRUPTED)  # the closed lifelines kill all processes
                stopped.set()
                cancel("interrupted")

            for each in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(each, stop)
            held.go()
            await held.ended()
            if is_told:
                _tell_end(held.record)
            if stopped.is_set():
                break
    if stopped.is_set():
        return records, Exit.INTERRUPTED
    if all(record.is_good for record in records):
        return records, Exit.OK
    is_late = any(record.outcome is Status.KILLED for record in records)
    return records, Exit.TIMED_OUT if is_late else Exit.FINDINGS


def _tell_step(step: StepRecord) -> None:
    # On a terminal also what begins.
    if step.status in {"waiting", "building"} or (
        step.status == "running" and not sys.stdout.isatty()
    ):
        return
    took = "" if step.seconds is None else f"  {step.seconds:.1f}s"
    why = "" if step.error is None else f"  {step.error}"
    where = step.where if step.error_line is None else f"{step.file}:{step.error_line}"
    echo(f"{step.status:<8}  {step.name}  {where}{took}{why}")


def _tell_end(record: Record) -> None:
    for world in record.every():
        taken = {each.after for each in world.steps}
        for step in world.steps:
            if (text := world.tasks[step.name]) and step.name not in taken:
                echo(f"\n{step.name}:")
                sys.stdout.write(clean(text) + "\n")
    for note in record.notes:
        echo(f"horae: note: {note}", err=True)
    echo(f"\n{record.name}: {record.outcome} ({record.reason}); run {record.run}")


def _print_waves(worlds: Iterable[Mapping[str, Any]], blanks: str = "") -> None:
    for world in worlds:
        echo(f"{blanks}{world['workflow']}")
        if world["tasks"] and not world["waves"]:
            echo(f"{blanks}  cannot run: its steps depend on each other; see `horae check`")
        for number, wave in enumerate(world["waves"], 1):
            echo(f"{blanks}  {number}. {', '.join(wave)}")
        _print_waves(world["sub_workflows"], f"{blanks}  ")
