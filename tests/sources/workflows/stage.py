"""What the tests of workflows share: plans in a few words, and one run of them."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

from horae.core.clock import SystemClock
from horae.core.entry import Origin, Policy
from horae.core.ports import Job, Run
from horae.core.receipt import Filed, Receipt, Status
from horae.org.document import read
from horae.process.processes import Processes
from horae.process.run_settings import RunSettings
from horae.sources.workflows.record import Bounds
from horae.sources.workflows.runner import WorkflowRunner, the_world
from reasons import because

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from horae.sources.agents.runner import BlockAgents
    from horae.sources.workflows.record import Record, StepRecord
    from horae.sources.workflows.runner import WorkflowOrder, WorkflowRun

SHORT = timedelta(milliseconds=300)


def step(name: str, lang: str, body: str, args: str = "", drawer: str = "") -> str:
    """Return a component as it is written."""
    props = f":PROPERTIES:\n{drawer}:END:\n" if drawer else ""
    return f"** {name} :component:\n{props}#+begin_src {lang} {args}\n{body}\n#+end_src\n"


def flow(*steps: str, title: str = "Flow") -> str:
    """Return a workflow as it is written."""
    return f"* {title} :workflow:\n" + "".join(steps)


class Yard:
    """A plan root with its data directory, where workflows are run."""

    def __init__(self, home: Path, processes: Processes, **options: Any) -> None:
        self.home, self.processes = home, processes
        self.root, self.data = home / "plans", home / "data"
        self.timeout: timedelta = options.pop("timeout", timedelta(seconds=30))
        self.path: str = options.pop("path", os.environ["PATH"])
        self.bounds = Bounds(**{"grace": SHORT, "at_once": 2, **options})
        self.agent: BlockAgents | None = None
        self.told: list[tuple[str, str]] = []
        self._numbers = count(1)

    @property
    def place(self) -> RunSettings:
        """Where runs work; all that they start carries the mark of the data directory."""
        names = ("HOME", "LANG", "CARGO_HOME", "RUSTUP_HOME")
        environ = {name: os.environ[name] for name in names if name in os.environ}
        environ |= {"PATH": self.path, "LC_HORAE_MARK": str(self.data), "SECRET": "s3cret"}
        return RunSettings(self.root, self.data, environ, self.timeout)

    async def run(self, text: str, **options: Any) -> Record:
        """Run a workflow to its end."""
        order = self.order(text, **options)
        return await self.runner().run(order, progress=self._hear)

    async def held(self, text: str) -> WorkflowRun:
        """Make a run that waits for its go."""
        return await self.runner().make(self.order(text), progress=self._hear)

    def order(self, text: str, *, workflow: str | None = None, **options: Any) -> WorkflowOrder:
        """Return a workflow of a plan as it is to be run."""
        plan = read(text)
        world = the_world(plan, workflow, file="plan.org")
        run = f"r{next(self._numbers)}"
        return self.runner().order(plan, world, name="plan.org", run=run, **options)

    def runner(self) -> WorkflowRunner:
        """Return what an engine would run workflows with."""
        return WorkflowRunner(
            self.processes, self.place, clock=SystemClock(), agent=self.agent, bounds=self.bounds
        )

    def left(self) -> list[str]:
        """Return what runs have left in the data directory."""
        runs = self.data / "runs"
        return sorted(str(each.relative_to(runs)) for each in runs.glob("*/*/*"))

    def _hear(self, step: StepRecord) -> None:
        self.told.append((step.name, step.status))


@asynccontextmanager
async def yard(home: Path, **options: Any) -> AsyncIterator[Yard]:
    """Give a place where workflows can be run."""
    (home / "plans").mkdir(exist_ok=True)
    (home / "data").mkdir(exist_ok=True)
    async with Processes(home / "data") as processes:
        yield Yard(home, processes, **options)


def only(record: Record, name: str | None = None) -> StepRecord:
    """Return one step of a record."""
    return next(each for each in record.all_steps() if name in {None, each.name})


def tasks(record: Record) -> Mapping[str, str | None]:
    """Return what each step has put out."""
    return record.tasks


def marked(data: Path) -> list[int]:
    """Return the processes of this data directory that are alive, besides supervisors."""
    from process.stage import is_zombie, pids, proc

    mark = b"LC_HORAE_MARK=" + os.fsencode(data) + b"\0"
    return [pid for pid in pids() if mark in proc(pid, "environ") and not is_zombie(pid)]


def job(text: str, *, key: str = "manual:1", number: int = 7, line: int = 1) -> Job:
    """Return a run of a workflow as an engine asks for it."""
    now = SystemClock().now()
    receipt = Receipt(key, Status.STARTING, because("asked"), now, now)
    filed = Filed(3, 1, receipt, now, Origin("plan.org", line), "d", None, Policy(), title="Flow")
    return Job(filed, Run(number, 3, 1, now), text)
