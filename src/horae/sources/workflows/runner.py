"""Runs of workflows: the blocks of a plan, each after the one whose output it takes.

First every block is made ready; if one cannot be, nothing runs. Then each step runs as soon
as what it takes is there, a few at a time, inside the one slot of its run. A step that fails
lets none that hangs on it run, and stops no other. Workflows inside a workflow come after it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from horae.core.command import call_of
from horae.core.ports import Ended, HeldBackError, Process, RunError, Unreleased
from horae.core.receipt import (
    EndCause,
    Reason,
    ReasonCode,
    RunFinish,
    Status,
    last_lines,
    shown,
    timed_out,
    verdict,
    with_output,
)
from horae.errors import HoraeError, ScheduleError
from horae.org.document import read
from horae.org.world import every, worlds
from horae.process.logs import clear
from horae.process.masking import MASK, Masker, disguises
from horae.process.processes import LOG_NAME, ProcessLimits, guessed_secrets
from horae.process.ready import allowed_environment
from horae.process.run_settings import facts_of, hidden_bytes, why_held
from horae.process.tree import started
from horae.sources.workflows.build_cache import (
    BuildError,
    ReadyBlock,
    ToolSettings,
    Workshop,
    line_in,
)
from horae.sources.workflows.dataflow import Course, flow_of, has_own_clock, oddities
from horae.sources.workflows.languages import AGENT, filled, language_of, telling
from horae.sources.workflows.record import (
    RECORD,
    SHOWN,
    SMALL,
    Record,
    StepRecord,
    StepStatus,
    WorldRecord,
    boot,
    put,
    read_record,
    steps_in,
)
from horae.sources.workflows.steps import (
    MIB,
    SHORT,
    Bench,
    Benches,
    Bounds,
    Filter,
    Hands,
    StepOutput,
    log_of,
    size_text,
)
from horae.timing.duration import format_duration, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from horae.core.ports import Clock, Given, Held, Job, Run
    from horae.core.receipt import Filed
    from horae.org.plan import Plan
    from horae.org.world import World
    from horae.process.processes import LiveRun, Processes
    from horae.process.run_settings import RunSettings
    from horae.sources.agents.runner import BlockAgents, RunAgents
    from horae.sources.workflows.dataflow import Flow, FlowStep
    from horae.sources.workflows.languages import InstalledTool

log = logging.getLogger(__name__)

TAIL: Final = 4096  # bytes of a step's stderr in its record
LONGEST_ERROR: Final = 600  # characters of what went wrong with an agent
LOGGED: Final = 256 << 10  # bytes of it in the log of the run
AGENT_SUFFIX: Final = ".agent"  # of the directory of a step that an agent answers to
DEEPEST: Final = 100  # workflows inside one another
_BEYOND: Final = 4096  # bytes after those that are shown
_PART: Final = 1 << 20  # bytes that are searched at a time
_TIMED: Final = ("cron:", "at:")  # how the keys begin of what a clock asked for
_SIZE: Final = re.compile(r"([0-9]{1,6})\s*([KMG])(?:i?B)?", re.IGNORECASE)
_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class AgentReply(NamedTuple):
    """What an agent says to a step; an error is why it has no output."""

    output: bytes = b""
    error: str = ""


class Told(NamedTuple):
    """Where a step stands now, and in which workflow it is."""

    world: str
    step: StepRecord


if TYPE_CHECKING:
    Progress = Callable[[Told], None]


@dataclass(frozen=True, slots=True)
class WorkflowOrder:
    """A workflow that is to be run: what, from where, with what, and where its record goes."""

    plan: Plan
    world: World
    file: str
    line: int  # of the file, at which the plan's text begins
    run: int | str
    directory: Path
    work: Path  # the directory of the plan
    root: Path
    timeout: timedelta
    environment: Mapping[str, str] = field(default_factory=dict)
    input: bytes = b""
    is_timed: bool = False
    planned_at: datetime | None = None
    resume: Path | None = None  # the directory of a run whose outputs may be used again


class WorkflowRunner:
    """Makes runs of workflows."""

    def __init__(
        self,
        processes: Processes,
        place: RunSettings,
        *,
        clock: Clock,
        agent: BlockAgents | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self._processes = processes
        self._place = place
        self._clock = clock
        self._agent = agent
        self._bounds = bounds or Bounds()
        self._workshop = Workshop(place.data / "cache", clock=clock, environ=place.environ)

    async def hold(self, job: Job) -> Held:
        """Make a run that waits for its go, or raise RunError."""
        await self._processes.begin()
        order = _order(job, self._place)
        if (why := await self._why_held(order.plan)) is not None:
            raise HeldBackError(why)
        return await self.make(order)

    async def obstacle(self, text: str) -> str | None:
        """Return why the workflow of a text would be held back; None if it would not."""
        plan = read(text)
        variables = _variables(plan.headlines[0].props) if plan.headlines else ()
        return await why_held(self._place, variables) or await self._why_held(plan)

    async def _why_held(self, plan: Plan) -> str | None:
        """Return why an agent of a workflow would hold it back."""
        return None if self._agent is None else await self._agent.why_held(plan)

    async def make(self, order: WorkflowOrder, *, progress: Progress | None = None) -> WorkflowRun:
        """Make a run that waits for its go, or raise RunError; *progress* hears of each step."""
        try:
            variables = _variables(order.plan.headlines[order.world.at].props)
        except ScheduleError as error:
            raise RunError(f"{order.file}: {error}") from None
        return WorkflowRun(
            order,
            processes=self._processes,
            workshop=self._workshop,
            environ=allowed_environment(self._place.environ),
            given=await self._place.secrets.given(variables),
            clock=self._clock,
            agent=None if self._agent is None else self._agent.inside(order),
            bounds=self._bounds,
            progress=progress or (lambda _: None),
        )

    async def look_back(self, filed: Filed, run: Run) -> Ended | Unreleased | None:  # noqa: ARG002
        """Return how a run ended that an engine before this one made; None is unknown."""
        await self._processes.begin()  # then nothing of an engine before this one is alive
        directory = self._place.directory_of(run)
        found = read_record(directory)
        if found is None or found.get("run") != run.number:
            return None
        if not found.get("released"):
            # After a power cut the disk may hold less than what happened.
            return Unreleased() if found.get("boot") and found["boot"] == boot() else None
        if found.get("status") not in {"done", "no_work", "failed", "killed"}:
            return None
        outcome, code = Status(found["status"]), found.get("exit_code")
        # An engine of an older version has written no code.
        reason = Reason(str(found.get("reason_code") or ""), str(found.get("reason")))
        return Ended(outcome, reason, code, _facts(found, directory))


async def run_workflow(
    text: str,
    *,
    name: str,
    place: RunSettings,
    processes: Processes,
    clock: Clock,
    run: str,
    workflow: str | None = None,
    input: bytes = b"",  # noqa: A002 - the word of the house
    resume: Path | None = None,
    agent: BlockAgents | None = None,
    bounds: Bounds | None = None,
    progress: Progress | None = None,
) -> Record:
    """Run one workflow of a plan here and now, and return its record.

    *name* is the plan's file, *run* what the record goes by. *workflow* is a title; without
    one the plan must have only one workflow. Cancelled, it ends all that it started.
    """
    runner = WorkflowRunner(processes, place, clock=clock, agent=agent, bounds=bounds)
    plan = read(text)
    world = the_world(plan, workflow, file=name)
    order = order_of(plan, world, name=name, place=place, run=run, now=clock.now())
    order = _with(order, input=input, resume=resume)
    held = await runner.make(order, progress=progress)
    held.go()
    try:
        await held.ended()
    except asyncio.CancelledError:
        held.cancel("interrupted")
        await held.ended()
        raise
    return held.record


def order_of(
    plan: Plan, world: World, *, name: str, place: RunSettings, run: str, now: datetime
) -> WorkflowOrder:
    """Return what to run of a plan that somebody named, with no receipt for it."""
    return WorkflowOrder(
        plan,
        world,
        file=name,
        line=1,
        run=run,
        directory=place.data / "runs" / f"{now:%Y-%m-%d}" / run,
        work=(place.root / name).parent,
        root=place.root,
        timeout=place.timeout,
        # A run inside a run rides in its parent's slot, so it must know of it.
        environment={key: place.environ[key] for key in ("HORAE_RUN",) if key in place.environ},
    )


def the_world(plan: Plan, title: str | None, *, file: str) -> World:
    """Return the workflow that is meant, or raise RunError."""
    top = worlds(plan)
    found = top if title is None else [each for each in every(top) if each.name == title]
    if len(found) == 1:
        return found[0]
    names = ", ".join(repr(each.name) for each in every(top)) or "none"
    what = "exactly one workflow" if title is None else f"exactly one workflow {title!r}"
    raise RunError(
        f"{file}: {what} is needed, but there are {len(found)}; workflows in the file: {names}"
    )


class WorkflowRun:
    """A run of a workflow that is made, and waits or goes on."""

    def __init__(
        self,
        order: WorkflowOrder,
        *,
        processes: Processes,
        workshop: Workshop,
        environ: Mapping[str, str],
        given: Given,
        clock: Clock,
        agent: RunAgents | None,
        bounds: Bounds,
        progress: Progress,
    ) -> None:
        self._order = order
        self._processes = processes
        self._workshop = workshop
        self._clock = clock
        self._agent = agent
        self._bounds = bounds
        self._progress = progress
        self.record, self._stages = _staged(order)
        self._environment = {
            **environ,
            **given.variables,
            **workshop.environment,
            **_node_path(order),
            **order.environment,
        }
        hidden = guessed_secrets(self._environment) | hidden_bytes(given)
        self._secrets = tuple(sorted(hidden))
        self._spellings = disguises(self._secrets)
        self._before = _done_before(order.resume)
        self._input = _as_output(order.directory / "input.in", order.input)
        self._outputs: dict[int, StepOutput] = {}  # by headline
        self._last: dict[str, str] = {}  # what those printed last that failed, by place
        self._ready: dict[int, ReadyBlock] = {}
        self._tools: dict[str, InstalledTool] = {}
        self._benches = Benches(order.directory)
        self._following: dict[int, LiveRun] = {}  # those that begin by themselves, by headline
        self._is_chain = False  # whether no two steps can be run at the same time now
        self._lines: list[bytes] = []  # of the log, that are not written yet
        self._hands: Hands | None = None
        self._reason = ""  # why it is to end, if somebody said so
        self._is_late = False  # whether the wall clock of the whole run is over
        self._end: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        try:
            os.makedirs(order.directory, 0o700, exist_ok=True)
            self.record.write(order.directory)
        except OSError as error:
            raise RunError(
                f"{order.directory}: {error.strerror}; the record of the run is written there"
            ) from error

    @property
    def process(self) -> Process:
        """Which process it is: the engine's own, since its steps end with the engine."""
        return Process(os.getpid(), started(os.getpid()))

    def go(self) -> None:
        """Let it begin; before this nothing of it has run."""
        if self._task is not None or self._end.done():
            return
        self.record.is_released = True
        self.record.started_at = self._clock.now()
        try:
            self.record.write(self._order.directory)
        except OSError as error:
            # Nothing may run of which an engine after this one could not know.
            words = f"the record of the run cannot be written: {error.strerror}"
            reason = Reason(ReasonCode.RECORD_UNWRITABLE, words)
            self._end.set_result(Ended(Status.FAILED, reason))
            return
        self._task = asyncio.create_task(self._tell())

    def cancel(self, reason: str) -> None:
        """End it and all that it started; one that was never let go ends, too."""
        self._reason = self._reason or reason or "cancelled"
        if self._hands is not None:
            self._hands.cancel(self._reason)
        elif self._task is None and not self._end.done():
            reason = Reason(ReasonCode.CANCELLED, self._reason)
            self._end.set_result(Ended(Status.KILLED, reason))

    async def ended(self) -> Ended:
        """Return how it ended, once nothing of it is left."""
        return await asyncio.shield(self._end)

    async def _tell(self) -> None:
        """Run all of it, and say how it ended, whatever happens."""
        try:
            ended = await self._whole()
        except asyncio.CancelledError:  # the loop is closing, and what runs dies with it
            self._end.cancel()
            raise
        except OSError as error:  # a full disk, or somebody removed our directory
            self.cancel("the run ended in an error")
            reason = Reason(ReasonCode.INTERNAL_ERROR, f"the run cannot continue: {error}")
            self._end.set_result(Ended(Status.FAILED, reason))
        except Exception as error:  # `ended` raises it
            self.cancel("the run ended in an error")
            self._end.set_exception(error)
        else:
            self._end.set_result(ended)

    async def _whole(self) -> Ended:
        """Make every block ready, run the steps, and write the record."""
        order = self._order
        number = order.run if isinstance(order.run, int) else 0
        self._hands = Hands(
            self._processes, number=number, timeout=order.timeout, bounds=self._bounds
        )
        if self._reason:
            self._hands.cancel(self._reason)
        if len(order.input) > SHORT:
            put(self._input.path, order.input)
        await self._make_ready(self._hands)
        for stage in self._stages:
            await self._run_stage(stage, self._hands)
        await self._benches.cleared()
        return self._finish()

    # Before anything runs.

    async def _make_ready(self, hands: Hands) -> None:
        """Make every block ready; if one cannot be, no step will run."""
        waiting = iter([(stage, step) for stage in self._stages for step in stage.flow.steps])

        async def lane() -> None:
            for stage, step in waiting:
                if not hands.reason and not self._is_late:
                    await self._make_one(stage, step, hands)

        await asyncio.gather(*(lane() for _ in range(self._bounds.at_once)))
        bad = next((each for each in self.record.steps() if each.error is not None), None)
        if bad is None:
            return
        for stage in self._stages:
            for each in stage.record.steps:
                if each.error is None:
                    reason = f"not run, because {bad.name} ({bad.where}) cannot run"
                    self._say(stage, each, StepStatus.SKIPPED, reason)

    async def _make_one(self, stage: _Stage, step: FlowStep, hands: Hands) -> None:
        note = stage.record.steps[step.number]
        at = step.component.at
        self._say(stage, note, StepStatus.BUILDING)
        try:
            language = language_of(note.lang)
            if language.name == AGENT:
                note.tool = await _need(self._agent).ready(at)
            else:
                ask = ToolSettings(
                    hands,
                    self._environment,
                    self._order.directory / f"{at}.make",
                    self._order.work,
                    self._order.root,
                    self._tools,
                )
                program = self._order.directory / f"{at}.bin"
                ready = await self._workshop.ready(
                    step.component, language, program=program, ask=ask
                )
                self._ready[at] = ready
                note.tool = " ".join(filter(None, (ready.found.path, ready.found.version)))
        except BuildError as error:
            note.stderr = self._masked(error.said[-TAIL:])
            self._place_error(note, step, error.line)
            self._fail(stage, note, error.reason, hands)
        except HoraeError as error:
            self._fail(stage, note, str(error), hands)
        except OSError as error:
            self._fail(stage, note, f"cannot be prepared: {error}", hands)
        else:
            self._say(stage, note, StepStatus.WAITING)
        finally:
            clear(self._order.directory / f"{at}.make")

    def _fail(self, stage: _Stage, note: StepRecord, reason: str, hands: Hands) -> None:
        """Note that a block could not be made ready, or that there was no more time for it."""
        if hands.reason or hands.left() <= timedelta(0):
            self._is_late = not hands.reason
            self._say(stage, note, StepStatus.KILLED, hands.reason or self._too_long())
        else:
            self._say(stage, note, StepStatus.FAILED, reason)

    # The steps of one workflow.

    async def _run_stage(self, stage: _Stage, hands: Hands) -> None:
        course = Course(stage.flow)
        lanes: set[asyncio.Task[None]] = set()

        async def lane(number: int | None) -> None:
            while number is not None:
                step = await self._run_step(stage, stage.flow.steps[number], hands)
                await self._call_back(stage, step)
                self._after(stage, course, step)
                number = course.take()
                spread()

        def spread() -> None:
            while len(lanes) < self._bounds.at_once and (number := course.take()) is not None:
                lanes.add(asyncio.create_task(lane(number)))
            # If there was room and nothing for it, then whatever comes next follows from one step.
            self._is_chain = len(lanes) == 1 < self._bounds.at_once

        spread()
        while lanes:
            done, _ = await asyncio.wait(lanes, return_when=asyncio.FIRST_COMPLETED)
            lanes -= done
            spread()
            for each in done:
                each.result()

    async def _call_back(self, stage: _Stage, step: FlowStep) -> None:
        """Return when nothing goes on that was to follow a step, unless that was done."""
        if stage.record.steps[step.number].status.is_good:
            return
        for number in stage.flow.followers[step.number]:
            run = self._following.pop(stage.flow.steps[number].component.at, None)
            if run is not None:
                run.cancel("its input was not produced")
                await run.ended()

    def _after(self, stage: _Stage, course: Course, step: FlowStep) -> None:
        """Let those run that take what a step has put out, or say that they never will."""
        note = stage.record.steps[step.number]
        for number in course.end(step.number, is_good=note.status.is_good):
            later = stage.record.steps[number]
            if later.error is None:
                reason = f"depends on {note.name} ({note.where}), which was {note.status}"
                self._say(stage, later, StepStatus.SKIPPED, reason)

    async def _run_step(self, stage: _Stage, step: FlowStep, hands: Hands) -> FlowStep:
        """Run one step, unless something speaks against it by now."""
        note = stage.record.steps[step.number]
        if note.error is not None:
            return step
        has_begun = step.component.at in self._following
        if (hands.reason or self._is_late) and not has_begun:
            self._say(stage, note, StepStatus.SKIPPED, hands.reason or self._too_long())
            return step
        before = None if step.after is None else stage.flow.steps[step.after].component.at
        given = self._input if before is None else self._outputs[before]
        note.digest = self._digest(step, given)
        if self._reuse(stage, note, step):
            return step
        said = b""
        try:
            if step.component.at in self._ready:
                said = await self._run_block(stage, step, given, hands)
            else:
                await self._ask_agent(stage, step, given, hands)
                at = step.component.at
                said = log_of(self._order.directory / f"{at}{AGENT_SUFFIX}", LOGGED)
                self._last[note.where] = _text(said[-TAIL:])
        except HoraeError as error:
            self._say(stage, note, StepStatus.FAILED, str(error))
        except OSError as error:
            self._say(stage, note, StepStatus.FAILED, f"could not be run: {error}")
        self._log(note, said)
        return step

    async def _run_block(
        self, stage: _Stage, step: FlowStep, given: StepOutput, hands: Hands
    ) -> bytes:
        """Run a block as a filter, note how it ended, and return what it said on stderr."""
        at = step.component.at
        bench = self._benches.take(at, self._ready[at].files)
        try:
            return await self._filter(stage, step, given, hands, bench)
        finally:
            self._benches.give_back(bench)

    async def _filter(
        self, stage: _Stage, step: FlowStep, given: StepOutput, hands: Hands, bench: Bench
    ) -> bytes:
        note = stage.record.steps[step.number]
        ended, output = await hands.filter(
            self._recipe(stage, step, bench),
            given,
            following=self._following.pop(step.component.at, None),
            begun=lambda: self._say(stage, note, StepStatus.RUNNING),
            meanwhile=lambda run: self._look_ahead(stage, step, hands, run),
        )
        heard = log_of(bench.words, LOGGED) if ended.facts.get("output", 1) else b""
        said = _text(heard[-TAIL:])
        note.stderr, note.exit_code = said, ended.exit_code
        note.seconds = _number(ended.facts.get("seconds"))
        match ended.outcome:
            case _ if output is None:
                most = size_text(self._bounds.output)
                reason = f"the output is larger than the limit of {most}"
                self._say(stage, note, StepStatus.KILLED, reason)
            case Status.DONE | Status.NO_WORK:
                self._take(stage, note, step, output)
            case Status.KILLED:
                self._is_late = self._is_late or (not hands.reason and hands.left() <= timedelta(0))
                late = self._too_long() if self._is_late else ended.reason
                reason = hands.reason or with_output(late, said)
                was_begun = note.started_at is not None
                status = StepStatus.KILLED if was_begun else StepStatus.SKIPPED
                self._say(stage, note, status, reason)
            case _:
                self._place_error(note, step, line_in(said, last=True))
                words = said if said.strip() else self._masked(output.ending(TAIL))
                self._last[note.where] = words
                self._say(stage, note, StepStatus.FAILED, _with_words(ended.reason, words))
        return heard

    def _masked(self, data: bytes) -> str:
        """Return something that a step has put out as it may be told beyond the run."""
        return _text(self._without_secrets(data))

    def _without_secrets(self, data: bytes) -> bytes:
        masker = Masker(self._spellings)
        return masker.feed(data) + masker.rest()

    def _tells_secrets(self, output: StepOutput) -> bool:
        """Tell whether a step has put out a secret; that does not outlive the run."""
        if not self._spellings:
            return False
        masker, at = Masker(self._spellings), 0
        while at < output.size and (part := output.part(at, _PART)):
            if MASK in masker.feed(part):
                return True
            at += len(part)
        return MASK in masker.rest()

    def _recipe(self, stage: _Stage, step: FlowStep, bench: Bench) -> Filter:
        ready, bounds = self._ready[step.component.at], stage.bounds[step.number]
        memory = bounds.memory or self._bounds.memory
        return Filter(
            _command(ready, bench.directory, memory),
            target=self._order.directory / f"{step.component.at}.out",
            cwd=ready.directory or bench.scratch,
            environment=self._environment
            | self._facts(stage.record.steps[step.number], bench.scratch),
            directory=bench.words,
            timeout=bounds.timeout,
            limits=ProcessLimits(address_space=memory if ready.found.tool.heap is None else None),
            memory=memory,
            most=self._bounds.output,
            secrets=self._secrets,
        )

    def _look_ahead(self, stage: _Stage, step: FlowStep, hands: Hands, run: LiveRun) -> None:
        """While a step runs, make ready what comes next; in a chain let it follow by itself."""
        followers = stage.flow.followers[step.number]
        later = stage.flow.steps[followers[0]] if followers else None
        if later is None or later.component.at not in self._ready:
            self._benches.tidy()
            return
        at = later.component.at
        try:
            bench = self._benches.lay_ahead(at, self._ready[at].files)
        except OSError:  # it will be told when it is to run
            return
        # What may have been done before is looked at when its input is known.
        if self._is_chain and len(followers) == 1 and not self._before:
            following = hands.follow(run, self._recipe(stage, later, bench))
            if following is not None:
                self._following[at] = following

    async def _ask_agent(
        self, stage: _Stage, step: FlowStep, given: StepOutput, hands: Hands
    ) -> None:
        note, bounds = stage.record.steps[step.number], stage.bounds[step.number]
        block = step.component.block
        assert self._agent is not None, "that was looked at before"
        assert block is not None, "that was looked at before"
        self._say(stage, note, StepStatus.RUNNING)
        data = given.beginning(given.size)
        limit = min(filter(None, (hands.left(), bounds.timeout)))
        asked = asyncio.ensure_future(self._agent.ask(step.component.at, block.body.strip(), data))
        cancelled = asyncio.ensure_future(hands.cancelled.wait())
        await asyncio.wait(
            {asked, cancelled},
            timeout=max(0.0, limit.total_seconds()),
            return_when=asyncio.FIRST_COMPLETED,
        )
        cancelled.cancel()
        if not asked.done():
            asked.cancel()
            await asyncio.wait({asked})
            reason = hands.reason or f"the step exceeded the time limit of {format_duration(limit)}"
            self._say(stage, note, StepStatus.KILLED, reason)
            return
        answer = asked.result()
        if answer.error:
            self._say(stage, note, StepStatus.FAILED, shown(answer.error, LONGEST_ERROR))
            return
        target = self._order.directory / f"{step.component.at}.out"
        output = _as_output(target, answer.output)
        if output.data is None:
            put(target, answer.output)
        self._take(stage, note, step, output)

    def _take(
        self,
        stage: _Stage,
        note: StepRecord,
        step: FlowStep,
        output: StepOutput,
        status: StepStatus = StepStatus.DONE,
    ) -> None:
        self._outputs[step.component.at] = output
        if note.persist:
            output.keep()
        # A little more than is shown, so that no secret is cut in two and shown in part.
        beginning = self._without_secrets(output.beginning(SHOWN + _BEYOND))[:SHOWN]
        note.take_output(beginning, output.size, is_cut=output.size > SHOWN)
        note.sum, note.output = output.sum, output.path.name
        self._say(stage, note, status)

    def _reuse(self, stage: _Stage, note: StepRecord, step: FlowStep) -> bool:
        """Take what an earlier run has put out, from the same text and input, if it is there."""
        kept = self._before.get((note.name, note.digest or ""))
        if kept is None:
            return False
        target = self._order.directory / f"{step.component.at}.out"
        try:
            os.link(kept, target)
        except OSError:
            return False
        with target.open("rb") as file:
            data = file.read()
        output = StepOutput(target, len(data), sha256(data).hexdigest())
        self._take(stage, note, step, output, StepStatus.REUSED)
        return True

    def _digest(self, step: FlowStep, given: StepOutput) -> str:
        ready, block = self._ready.get(step.component.at), step.component.block
        made = ready.digest if ready is not None else f"agent {block and (block.args, block.body)}"
        return sha256(f"{made}\0{given.sum}".encode(errors="replace")).hexdigest()

    def _facts(self, note: StepRecord, scratch: Path) -> dict[str, str]:
        """Return what a step is told beside its input."""
        return {
            "HORAE_STEP": note.name.replace("\0", ""),
            "HORAE_USES": " ".join(note.uses),
            "HORAE_PLAN_DIR": str(self._order.work),
            "TMPDIR": str(scratch),
        }

    def _place_error(self, note: StepRecord, step: FlowStep, line: int | None) -> None:
        """Note where in the plan the words of a tool point to."""
        block = step.component.block
        if line is None or block is None or not block.body.strip():
            return
        text = self._order.plan.headlines[step.component.at].text
        inside = text[block.inside.start : block.inside.end]
        blanks = inside.count("\n") - block.body.count("\n")  # before the block's first line
        begins = note.line + 1 + blanks
        if line <= block.body.count("\n") + 1:
            note.error_line = begins + line - 1

    def _say(
        self, stage: _Stage, note: StepRecord, status: StepStatus, error: str | None = None
    ) -> None:
        """Note where a step stands, and tell whoever listens."""
        now = self._clock.now()
        note.status, note.error = status, error
        if status is StepStatus.RUNNING:
            note.started_at = now
        elif note.started_at is not None:
            note.finished_at = now
            if note.seconds is None:
                note.seconds = (now - note.started_at).total_seconds()
        self._progress(Told(stage.record.name, note))

    def _too_long(self) -> str:
        return f"the run exceeded the time limit of {format_duration(self._order.timeout)}"

    # The end.

    def _finish(self) -> Ended:
        """Say how all of it ended, write that down, and leave only what is to be kept."""
        record, directory = self.record, self._order.directory
        self._write_log()
        record.world.settle()
        outcome, reason, code = self._outcome()
        record.outcome, record.reason, record.exit_code = outcome, reason, code
        record.finished_at = self._clock.now()
        kept = set()
        for stage in self._stages:
            for step, note in zip(stage.flow.steps, stage.record.steps, strict=True):
                # What went wrong may be taken up again where it was left.
                output = self._outputs.get(step.component.at)
                is_wanted = note.output is not None and (note.persist or not record.is_good)
                if is_wanted and output is not None and not self._tells_secrets(output):
                    output.keep()
                    kept.add(note.output)
                else:
                    note.output = None
        try:
            record.write(directory)
        except OSError as error:
            log.warning("cannot write the record in %s: %s", directory, error)
        for each in directory.iterdir():
            if each.suffix in {".out", ".bin", ".in"} and each.name not in kept:
                with suppress(OSError):  # it goes with the directory of the run
                    os.remove(each)
        facts = _facts(record.data(), directory)
        if bad := next(filter(_is_bad, record.steps()), None):
            facts["tail"] = "\n".join(last_lines(self._last.get(bad.where, "")))
        return Ended(outcome, reason, code, facts)

    def _outcome(self) -> tuple[Status, Reason, int | None]:
        """Return what the ends of the steps mean for all of it."""
        if self._reason:
            return Status.KILLED, Reason(ReasonCode.CANCELLED, self._reason), None
        bad = next(filter(_is_bad, self.record.steps()), None)
        if self._is_late:
            return Status.KILLED, timed_out(self._order.timeout, (bad and bad.stderr) or ""), None
        if bad is not None:
            where = bad.where if bad.error_line is None else f"{bad.file}:{bad.error_line}"
            reason = Reason(ReasonCode.STEP_FAILED, f"{bad.name} ({where}): {bad.error}")
            return Status.FAILED, reason, bad.exit_code
        sinks = [step for stage in self._stages for step in stage.flow.sinks()]
        if len(sinks) == 1:
            first = self._masked(self._outputs[sinks[0].component.at].beginning(4096))
            line = first.lstrip().partition("\n")[0]
            found = verdict(RunFinish(EndCause.EXIT, code=0, first=line))
            return found.status, found.reason, 0
        count = sum(1 for _ in self.record.steps())
        words = f"{count} steps" if count else "no steps"
        return Status.DONE, Reason(ReasonCode.COMPLETED, words), 0

    def _log(self, note: StepRecord, said: bytes) -> None:
        """Add what a step said to the log of the run, when the next one has begun."""
        head = f"{note.name} ({note.where}): {note.status}"
        head += "" if note.seconds is None else f" in {note.seconds:.2f}s"
        head += "" if note.error is None else f": {note.error}"
        end = b"\n" if said and not said.endswith(b"\n") else b""
        if not self._lines:
            asyncio.get_running_loop().call_soon(self._write_log)
        self._lines.append(
            b"%b\n%b%b" % (head.replace("\n", " ").encode(errors="replace"), said, end)
        )

    def _write_log(self) -> None:
        """Write what is to be in the log; what the disk does not take is lost."""
        lines, self._lines = b"".join(self._lines), []
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(self._order.directory / LOG_NAME, flags, 0o600)
            try:
                while lines:
                    lines = lines[os.write(descriptor, lines) :]
            finally:
                os.close(descriptor)
        except OSError as error:
            log.warning("cannot write the output in %s: %s", self._order.directory, error)


class _StepBounds(NamedTuple):
    """What one step says of its own bounds."""

    timeout: timedelta | None
    memory: int | None


class _Stage(NamedTuple):
    """A workflow that is run: its steps, their bounds, and where they stand."""

    flow: Flow
    bounds: list[_StepBounds]
    record: WorldRecord


def _staged(order: WorkflowOrder) -> tuple[Record, list[_Stage]]:
    """Return the record of a run before it begins, and what is to be run, parents first.

    Raises RunError for what can never be run: a loop, a component without a block.
    """
    stages: list[_Stage] = []
    notes: list[str] = []
    lines = [order.line + place.line - 1 for place in order.plan.places()]

    def staged(world: World, depth: int) -> WorldRecord:
        if depth > DEEPEST:
            raise RunError(f"{order.file}: workflows are nested more than {DEEPEST} levels deep")
        notes.extend(oddities(world))
        flow = flow_of(world)
        _refuse_loop(flow, order, lines)
        steps = [_step_record(step, flow, order, lines) for step in flow.steps]
        record = WorldRecord(world.name, world.schedule, world.exports, steps, [])
        bounds = [_step_bounds(step, order, lines) for step in flow.steps]
        stages.append(_Stage(flow, bounds, record))
        for child in world.workflows:
            if order.is_timed and has_own_clock(child):
                left = WorldRecord(child.name, child.schedule, child.exports, [], [])
                left.status, left.reason = StepStatus.SKIPPED, "has its own schedule"
                record.children.append(left)
            else:
                record.children.append(staged(child, depth + 1))
        return record

    world = staged(order.world, 1)
    line = lines[order.world.at]
    record = Record(
        order.run, order.file, line, world, planned_at=order.planned_at, notes=tuple(notes)
    )
    return record, stages


def _refuse_loop(flow: Flow, order: WorkflowOrder, lines: Sequence[int]) -> None:
    loop = flow.loop()
    if loop:
        names = " → ".join(step.name for step in (*loop, loop[0]))
        where = f"{order.file}:{lines[loop[0].component.at]}"
        raise RunError(f"{where}: these steps depend on each other: {names}; remove one :in")


def _step_record(
    step: FlowStep, flow: Flow, order: WorkflowOrder, lines: Sequence[int]
) -> StepRecord:
    component = step.component
    line, block = lines[component.at], component.block
    if block is None or not block.lang:
        what = "has no source block" if block is None else "has a source block with no language"
        raise RunError(f"{order.file}:{line}: component {component.name!r} {what}; write one")
    line += order.plan.headlines[component.at].text.count("\n", 0, block.span.start)
    return StepRecord(
        step.name,
        block.lang,
        order.file,
        line,
        after=None if step.after is None else flow.steps[step.after].name,
        uses=component.uses,
        persist=component.persist,
    )


def _step_bounds(step: FlowStep, order: WorkflowOrder, lines: Sequence[int]) -> _StepBounds:
    props = order.plan.headlines[step.component.at].props
    where = f"{order.file}:{lines[step.component.at]}"
    try:
        timeout = parse_duration(props["TIMEOUT"]) if "TIMEOUT" in props else None
    except ScheduleError as error:
        raise RunError(f"{where}: :TIMEOUT: {error}") from None
    size = _SIZE.fullmatch(props.get("MEMORY", "1G"))
    if size is None:
        raise RunError(f"{where}: :MEMORY: {props['MEMORY'][:60]}: write a size such as 512M or 2G")
    memory = int(size[1]) * _UNITS[size[2].upper()] if "MEMORY" in props else None
    return _StepBounds(timeout, memory)


def _order(job: Job, place: RunSettings) -> WorkflowOrder:
    filed, run = job.filed, job.run
    plan = read(job.text)
    found = worlds(plan)
    if not found:
        raise RunError(f"{filed.origin}: the entry has no workflow")
    timeout = filed.policy.timeout or place.timeout
    return WorkflowOrder(
        plan,
        found[0],
        file=filed.origin.file,
        line=filed.origin.line,
        run=run.number,
        directory=place.directory_of(run),
        work=place.work_of(filed),
        root=place.root,
        timeout=timeout,
        environment=facts_of(job, place, timeout=timeout),
        is_timed=filed.receipt.key.startswith(_TIMED),
        planned_at=filed.receipt.planned_at,
    )


def _variables(props: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables that a workflow asks for by name."""
    call = call_of({"COMMAND": "sh", "ENV": props.get("ENV", "")})
    return () if call is None else call.variables


def _node_path(order: WorkflowOrder) -> dict[str, str]:
    """Return where packages of JavaScript are: beside the plan and above it, up to the root."""
    above = [order.work, *order.work.parents]
    inside = [each for each in above if each.is_relative_to(order.root)]
    found = [str(each / "node_modules") for each in inside if (each / "node_modules").is_dir()]
    return {"NODE_PATH": os.pathsep.join(found)} if found else {}


def _done_before(directory: Path | None) -> dict[tuple[str, str], Path]:
    """Return the outputs that an earlier run has kept, by name and digest of their steps."""
    if directory is None:
        return {}
    record = read_record(directory)
    if record is None:
        raise RunError(f"{directory}: has no record of a run to resume")
    return {
        (str(step.get("name")), str(step.get("digest"))): directory / Path(str(step["output"])).name
        for step in steps_in(record)
        if step.get("output") and step.get("status") in {"done", "reused"}
    }


def _command(ready: ReadyBlock, sources: Path, memory: int) -> tuple[str, ...]:
    tool = ready.found.tool
    if tool.build:
        return (ready.main,)
    heap = filled(tool.heap or (), mebibytes=str(max(1, memory // MIB)))
    main = str(sources / ready.main)  # an absolute path stays one
    return (ready.found.path, *heap, *filled(tool.run, source=main))


def _facts(record: Mapping[str, Any], directory: Path) -> dict[str, object]:
    """Return what the ledger keeps of a record: all of it if it is small, else where it is."""
    import json

    kept = {key: value for key, value in record.items() if key not in {"released", "boot"}}
    if len(json.dumps(kept)) <= SMALL:
        return {"record": kept}
    return {"record_file": str(directory / RECORD)}


def _as_output(path: Path, data: bytes) -> StepOutput:
    """Return something as if a step had put it out; what is long is to be in its file."""
    short = data if len(data) <= SHORT else None
    return StepOutput(path, len(data), sha256(data).hexdigest(), short)


def _with(order: WorkflowOrder, *, input: bytes, resume: Path | None) -> WorkflowOrder:  # noqa: A002
    from dataclasses import replace

    return replace(order, input=input, resume=resume)


def _need(agent: RunAgents | None) -> RunAgents:
    """Return who answers to agent blocks, or refuse them if nobody does."""
    if agent is None:
        raise RunError("an agent block needs an agent, and none is configured for this run")
    return agent


def _is_bad(note: StepRecord) -> bool:
    return note.status in {StepStatus.FAILED, StepStatus.KILLED}


def _with_words(reason: str, said: str) -> str:
    """Return why a step failed, with the last words it said."""
    words = shown(telling(said))
    return f"{reason}: {words}" if words else reason


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
