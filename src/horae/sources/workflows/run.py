"""Workflows for programs in Python: one is run here and now, beside any engine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from horae.config import load
from horae.core.clock import SystemClock
from horae.files.read import read_plan
from horae.process.processes import Processes
from horae.secrets import secrets_of
from horae.sources.agents.runner import BlockAgents
from horae.sources.plans.runner import Place
from horae.sources.workflows.runner import run_workflow as run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from horae.config import Config
    from horae.sources.agents.runner import Agent, Registry


def run_workflow(
    plan: str | os.PathLike[str],
    *,
    workflow: str | None = None,
    input: str | bytes = "",  # noqa: A002 - the word of the house
    root: str | os.PathLike[str] | None = None,
    data: str | os.PathLike[str] | None = None,
    timeout: timedelta | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run one workflow of a plan here and now, and return its record.

    *plan* is the text of a plan, or the path of its file: a path object, or a string without
    a line end. *workflow* is a title; without one the plan must have only one workflow.
    Raises HoraeError for what can never be run; what goes wrong while it runs is in the record.
    """
    asked = _Asked(plan, workflow, input, root=root, data=data, timeout=timeout, environ=environ)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(asked.run())
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as beside:  # this thread has a loop already
        return beside.submit(asyncio.run, asked.run()).result()


def block_agents(config: Config, processes: Processes, place: Place) -> BlockAgents:
    """Return who answers to agent blocks: the agents that plans and settings define."""

    async def find(name: str) -> tuple[Registry, Agent]:
        registry = await asyncio.to_thread(agents_in, config)
        return registry, registry.get(name)

    return BlockAgents(find, processes, place)


def agents_in(config: Config) -> Registry:
    """Return the agents that plans and settings define, as they are written now."""
    from horae.cli.output import Form, Output
    from horae.sources.agents.commands import Found

    return Found.of(config, Output(Form.TABLE)).registry


class _Asked:
    """What is to be run, and where."""

    def __init__(
        self,
        plan: str | os.PathLike[str],
        workflow: str | None,
        given: str | bytes,
        *,
        root: str | os.PathLike[str] | None,
        data: str | os.PathLike[str] | None,
        timeout: timedelta | None,
        environ: Mapping[str, str] | None,
    ) -> None:
        path = None if isinstance(plan, str) and "\n" in plan else Path(plan).resolve()
        home = Path(root or (Path.cwd() if path is None else path.parent)).resolve()
        self._workflow = workflow
        self._input = given.encode() if isinstance(given, str) else given
        config = load(str(home), flags={"data": None if data is None else os.fspath(data)})
        self._config = config
        if path is None:
            self._text, self._name = str(plan), "-"
        else:
            self._text = read_plan(path, limit=config.plan_max_bytes).text
            self._name = str(path.relative_to(home)) if path.is_relative_to(home) else str(path)
        has_data = data is not None or config.data.is_dir()
        kept = Path(config.data).resolve() if has_data else state_directory()
        known = os.environ if environ is None else environ
        named = secrets_of(config, environ=known)
        self._place = Place(home, kept, known, timeout or config.run_timeout, named=named)

    async def run(self) -> dict[str, Any]:
        from secrets import token_hex

        clock = SystemClock()
        now = clock.now()
        name = f"{now:%H%M%S}-{token_hex(3)}"
        # Not the engine's own directory of runs: it has a lock on that.
        lock = self._place.data / "runs" / f"{now:%Y-%m-%d}" / name
        os.makedirs(lock, 0o700)
        async with Processes(lock) as processes:
            record = await run(
                self._text,
                name=self._name,
                place=self._place,
                processes=processes,
                clock=clock,
                run=name,
                workflow=self._workflow,
                input=self._input,
                agent=block_agents(self._config, processes, self._place),
            )
        return record.data()


def state_directory() -> Path:
    """Return where runs are kept of plans that have no data directory."""
    base = os.environ.get("XDG_STATE_HOME", "")
    home = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return home / "horae"
