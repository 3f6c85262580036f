"""Runs of workflows: the blocks of a plan, each after the one whose output it takes.

All blocks are prepared first; if one cannot be, nothing runs. After a step that fails, the steps
that depend on it do not run; all others do.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from msgspec import structs, to_builtins
from msgspec.structs import asdict

from horae.core.budget import total
from horae.core.command import call_of
from horae.core.entry import key_time
from horae.core.ports import (
    Ended,
    HeldBackError,
    LimitedError,
    Process,
    RunError,
    Unreleased,
)
from horae.core.private import private_file
from horae.core.receipt import (
    EndCause,
    Filed,
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
from horae.core.source import agent_blocks
from horae.core.text import size_text
from horae.errors import HoraeError, ScheduleError
from horae.org.check import component_findings
from horae.org.document import read
from horae.org.world import Course, World, every, flow_of, has_own_clock, worlds
from horae.process.cgroup import CgroupLimits
from horae.process.logs import clear
from horae.process.output import MASK, Masker, spellings_of
from horae.process.processes import LOG_NAME, Spec, guessed_secrets
from horae.process.run_settings import (
    RunSettings,
    allowed_environment,
    facts_of,
    hidden_bytes,
    why_held,
)
from horae.process.tree import started
from horae.sources.workflows import record as records
from horae.sources.workflows.languages import (
    AGENT,
    BuildCache,
    BuildError,
    InstalledTool,
    ToolSettings,
    filled,
    language_of,
    line_in,
    telling,
)
from horae.timing.duration import format_duration, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime, timedelta
    from pathlib import Path

    from horae.core.ports import AgentAnswers, Clock, Given, Held, Job, Run
    from horae.org.plan import Plan
    from horae.org.world import Flow, FlowStep
    from horae.process.processes import Processes
    from horae.sources.workflows.languages import ReadyBlock

    Progress = Callable[[records.StepRecord], None]

log = logging.getLogger(__name__)

TAIL: Final = 4096  # bytes of a step's stderr in its record
LOGGED: Final = 256 << 10  # bytes of it in the log of the run
DEEPEST: Final = 100  # nesting of workflows
_BEYOND: Final = 4096  # bytes after those that are shown
_PART: Final = 1 << 20  # bytes searched at a time
_TIMED: Final = ("cron:", "at:")  # prefixes of the keys of scheduled receipts
_NO_AGENTS: Final = "an agent block needs an agent, and none is configured for this run"
_NO_AGENT: Final = (
    "this block has no agent; write :agent NAME after its language,"
    " or :AGENT: NAME in the drawer of its workflow"
)
_SIZE: Final = re.compile(r"([0-9]{1,6})\s*([KMG])(?:i?B)?", re.IGNORECASE)
_BAD: Final = frozenset({records.StepStatus.FAILED, records.StepStatus.KILLED})
_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True)
class WorkflowOrder:
    plan: Plan
    world: World
    file: str
    line: int  # in the file, where the plan's text begins
    run: int | str
    directory: Path
    work: Path  # the directory of the plan
    timeout: timedelta
    environment: Mapping[str, str] = field(default_factory=dict)
    input: bytes = b""
    is_timed: bool = False
    planned_at: datetime | None = None
    resume: Path | None = None  # the directory of a run whose outputs may be reused
    filed: Filed | None = None

    @property
    def number(self) -> int:
        return self.run if isinstance(self.run, int) else 0


@dataclass(eq=False)
class WorkflowRunner:
    processes: Processes
    place: RunSettings
    _: KW_ONLY
    clock: Clock
    agent: AgentAnswers | None = None
    bounds: records.Bounds = records.Bounds()  # noqa: RUF009 - it is immutable
    cache: BuildCache = field(init=False)

    def __post_init__(self) -> None:
        self.cache = BuildCache(self.place.data / "cache", self.clock, self.place.environ)

    async def hold(self, job: Job) -> Held:
        await self.processes.begin()
        filed, run, plan, place = job.filed, job.run, read(job.text), self.place
        found = worlds(plan)
        if not found:
            raise RunError(f"{filed.origin}: the entry has no workflow")
        timeout = filed.policy.timeout or place.timeout
        order = WorkflowOrder(
            plan,
            found[0],
            file=filed.origin.file,
            line=filed.origin.line,
            run=run.number,
            directory=place.directory_of(run),
            work=place.work_of(filed),
            timeout=timeout,
            environment=facts_of(job, place, timeout=timeout),
            is_timed=filed.receipt.key.startswith(_TIMED),
            planned_at=filed.receipt.planned_at,
            filed=filed,
        )
        if self.agent and (why := await self.agent.why_held(plan)) is not None:
            raise HeldBackError(why)
        if self.agent:
            await self.agent.reserve(plan, job)
        return await self.make(order)

    async def obstacle(self, text: str) -> str | None:
        plan = read(text)
        variables = _variables(plan.headlines[0].props) if plan.headlines else ()
        why: str | None = await why_held(self.place, variables)
        return await self.agent.why_held(plan) if self.agent and not why else why

    def order(
        self,
        plan: Plan,
        world: World,
        *,
        name: str,
        run: str,
        input: bytes = b"",  # noqa: A002 - the word of the documents
        resume: Path | None = None,
    ) -> WorkflowOrder:
        place, now = self.place, self.clock.now()
        return WorkflowOrder(
            plan,
            world,
            file=name,
            line=1,
            run=run,
            directory=place.data / "runs" / f"{now:%Y-%m-%d}" / run,
            work=(place.root / name).parent,
            timeout=place.timeout,
            # A run inside a run uses its parent's slot, so its number is passed on.
            environment={key: place.environ[key] for key in ("HORAE_RUN",) if key in place.environ},
            input=input,
            resume=resume,
        )

    async def make(self, order: WorkflowOrder, *, progress: Progress | None = None) -> WorkflowRun:
        """Make a run that waits to be started, or raise RunError; *progress* gets each step."""
        try:
            variables = _variables(order.plan.headlines[order.world.at].props)
        except ScheduleError as error:
            raise RunError(f"{order.file}: {error}") from None
        given = await self.place.secrets.given(variables)
        return WorkflowRun(self, order, given, progress or (lambda _: None))

    async def run(
        self, order: WorkflowOrder, *, progress: Progress | None = None, why: str = "interrupted"
    ) -> records.Record:
        """Run a workflow; if cancelled, end all its processes with the reason *why*."""
        held = await self.make(order, progress=progress)
        held.go()
        try:
            await held.ended()
        except asyncio.CancelledError:
            held.cancel(why)
            await held.ended()
            raise
        return held.record

    async def look_back(self, filed: Filed, run: Run) -> Ended | Unreleased | None:  # noqa: ARG002
        await self.processes.begin()  # then no process of an earlier engine is left
        return records.earlier_end(self.place.directory_of(run), run.number)


def the_world(plan: Plan, title: str | None, *, file: str) -> World:
    top = worlds(plan)
    found = top if title is None else [each for each in every(top) if each.name == title]
    if len(found) == 1:
        return found[0]
    names = ", ".join(repr(each.name) for each in every(top)) or "none"
    what = "exactly one workflow" if title is None else f"exactly one workflow {title!r}"
    raise RunError(
        f"{file}: {what} is needed, but there are {len(found)}; workflows in the file: {names}"
    )


@dataclass(slots=True, eq=False)
class _Step:
    flow: FlowStep
    note: records.StepRecord
    tasks: dict[str, str | None]  # the outputs of its workflow
    timeout: timedelta | None
    memory: int | None
    before: _Step | None = None  # the step whose output is its input
    followers: list[_Step] = field(default_factory=list)
    ready: ReadyBlock | None = None  # None for an agent block, too
    output: records.StepOutput | None = None
    words: str = ""  # its last ones

    @property
    def at(self) -> int:
        return self.flow.component.at


class WorkflowRun:
    def __init__(
        self, runner: WorkflowRunner, order: WorkflowOrder, given: Given, progress: Progress
    ) -> None:
        self._order = order
        self._directory = order.directory
        self._runner = runner
        self._bounds = runner.bounds
        self._clock = runner.clock
        self._progress = progress
        self.record, self._stages = _staged(order)
        self._steps = [step for _, steps in self._stages for step in steps]
        self._agents = dict(agent_blocks(order.plan))
        # Packages of JavaScript: next to the plan and above it, up to the root.
        above = (each / "node_modules" for each in (order.work, *order.work.parents))
        root = runner.place.root
        packages = [str(each) for each in above if each.is_relative_to(root) and each.is_dir()]
        self._environment = {
            **allowed_environment(runner.place.environ),
            **given.variables,
            **runner.cache.environment,
            **({"NODE_PATH": os.pathsep.join(packages)} if packages else {}),
            **order.environment,
        }
        number, grace = order.number, self._bounds.grace
        base = (number, (), order.work, self._environment, order.directory)
        idle = None if order.filed is None else order.filed.policy.idle_timeout
        self._spec = Spec(*base, is_reported=False, grace=grace, idle=idle)  # for all processes
        self._secrets = tuple(sorted(guessed_secrets(self._environment) | hidden_bytes(given)))
        self._spellings = spellings_of(frozenset(self._secrets))
        self._before = records.outputs_of(order.resume)
        self._input = records.StepOutput.of(order.directory / "input.in", order.input)
        self._tools: dict[str, InstalledTool] = {}
        self._folders = records.StepFolders(order.directory)
        self._lines: list[bytes] = []  # of the log, not yet written
        self._live = records.LiveSteps(runner.processes, self._bounds.at_once)
        self._used: list[Mapping[str, object]] = []  # the usage that agents reported
        self._is_late = False  # whether the time limit of the whole run has passed
        self._limited: Ended | None = None  # the end of an agent's run by a usage limit
        self._end: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        try:
            os.makedirs(order.directory, 0o700, exist_ok=True)
            self.record.write(order.directory, is_released=False)
        except OSError as error:
            raise RunError(
                f"{order.directory}: {error.strerror}; the record of the run is written there"
            ) from error

    @property
    def process(self) -> Process:
        """The engine's own process, since its steps end with the engine."""
        return Process(os.getpid(), started(os.getpid()))

    def go(self) -> None:
        if self._task is not None or self._end.done():
            return
        self.record.started_at = self._clock.now()
        try:
            self.record.write(self._directory, is_released=True)
        except OSError as error:
            # Nothing may run that a later engine could not find out about.
            words = f"the record of the run cannot be written: {error.strerror}"
            self._end.set_result(Ended(Status.FAILED, Reason(ReasonCode.RECORD_UNWRITABLE, words)))
            return
        self._task = asyncio.create_task(self._tell())

    def cancel(self, reason: str) -> None:
        self._live.cancel(reason)
        if self._task is None and not self._end.done():
            why = Reason(ReasonCode.CANCELLED, self._live.reason)
            self._end.set_result(Ended(Status.KILLED, why))

    async def ended(self) -> Ended:
        return await asyncio.shield(self._end)

    async def _tell(self) -> None:
        try:
            self._live.begin(self._order.timeout)
            if len(self._order.input) > records.SHORT:
                records.put(self._input.path, self._order.input)
            await self._make_ready()
            for flow, steps in self._stages:
                await self._run_stage(Course(flow), steps)
            await self._folders.cleared()
            self._end.set_result(self._finish())
        except asyncio.CancelledError:  # the loop is closing, and the processes are killed with it
            self._end.cancel()
            raise
        except OSError as error:  # a full disk, or a directory that was removed
            self.cancel("the run ended in an error")
            reason = Reason(ReasonCode.INTERNAL_ERROR, f"the run cannot continue: {error}")
            self._end.set_result(Ended(Status.FAILED, reason))
        except Exception as error:  # `ended` raises it
            self.cancel("the run ended in an error")
            self._end.set_exception(error)

    async def _make_ready(self) -> None:
        waiting = iter(self._steps)

        async def lane() -> None:
            for step in waiting:
                if not self._live.reason and not self._is_late:
                    await self._make_one(step)

        await asyncio.gather(*(lane() for _ in range(self._bounds.at_once)))
        bad = next((each.note for each in self._steps if each.note.error is not None), None)
        for step in self._steps:
            if bad is not None and step.note.error is None:
                reason = f"not run, because {bad.name} ({bad.where}) cannot run"
                self._say(step, records.StepStatus.SKIPPED, reason)

    async def _make_one(self, step: _Step) -> None:
        note, work = step.note, self._directory / f"{step.at}.make"
        self._say(step, records.StepStatus.BUILDING)
        try:
            language = language_of(note.lang)
            if language.name == AGENT:
                if self._runner.agent is None:
                    raise RunError(_NO_AGENTS)
                note.tool = self._agents.get(step.at)
                if note.tool is None:
                    raise RunError(_NO_AGENT)
                await self._runner.agent.check(note.tool)
            else:
                spec, root = replace(self._spec, directory=work), self._runner.place.root
                ask = ToolSettings(self._live, spec, root, self._tools)
                program, component = self._directory / f"{step.at}.bin", step.flow.component
                step.ready = await self._runner.cache.ready(component, language, program, ask)
                tool = step.ready.found
                note.tool = " ".join(filter(None, (tool.path, tool.version)))
        except BuildError as error:
            note.stderr = _text(self._masked(error.said[-TAIL:]))
            self._place_error(step, error.line)
            self._fail(step, error.reason)
        except HoraeError as error:
            self._fail(step, str(error))
        except OSError as error:
            self._fail(step, f"cannot be prepared: {error}")
        else:
            self._say(step, records.StepStatus.WAITING)
        finally:
            clear(work)

    def _fail(self, step: _Step, reason: str) -> None:
        if self._live.is_over:
            self._is_late = not self._live.reason
            self._say(step, records.StepStatus.KILLED, self._live.reason or self._too_long())
        else:
            self._say(step, records.StepStatus.FAILED, reason)

    async def _run_stage(self, course: Course, steps: list[_Step]) -> None:
        most = self._bounds.at_once
        running: dict[asyncio.Task[None], int] = {}
        while True:
            while len(running) < most and (number := course.take()) is not None:
                running[asyncio.create_task(self._run_step(steps[number]))] = number
            if not running:
                return
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                number = running.pop(task)
                task.result()
                note = steps[number].note
                for later in course.end(number, is_good=note.status.is_good):
                    if steps[later].note.error is None:
                        is_failed = note.status is records.StepStatus.FAILED
                        how = "failed" if is_failed else f"was {note.status}"
                        reason = f"depends on {note.name} ({note.where}), which {how}"
                        self._say(steps[later], records.StepStatus.SKIPPED, reason)

    async def _run_step(self, step: _Step) -> None:
        note = step.note
        if note.error is not None:
            return
        if self._live.reason or self._is_late:
            self._say(step, records.StepStatus.SKIPPED, self._live.reason or self._too_long())
            return
        given = self._input if step.before is None else step.before.output
        assert given is not None, "the step before has ended well"
        block = step.flow.component.block
        made = step.ready.digest if step.ready else f"agent {block and (block.args, block.body)}"
        note.digest = sha256(f"{made}\0{given.sum}".encode(errors="replace")).hexdigest()
        if self._reuse(step):
            return
        said = b""
        try:
            if step.ready is None:
                await self._ask_agent(step, given)
            else:
                folder = self._folders.take(step.at, step.ready.files)
                try:
                    said = await self._filter(step, step.ready, given, folder)
                finally:
                    self._folders.give_back(step.at, step.ready.files)
        except HoraeError as error:
            self._say(step, records.StepStatus.FAILED, str(error))
        except OSError as error:
            self._say(step, records.StepStatus.FAILED, f"could not be run: {error}")
        if step.ready is None:
            said = records.log_of(self._directory / f"{step.at}.agent", LOGGED)
            step.words = _text(said[-TAIL:])
        self._log(note, said)

    async def _filter(
        self, step: _Step, ready: ReadyBlock, given: records.StepOutput, folder: Path
    ) -> bytes:
        spec = self._spec_of(step, ready, folder)
        source = given.path if given.data is None else None
        ended, data = await self._live.run(
            replace(spec, stdin=given.data or b"", source=source),
            begun=lambda: self._say(step, records.StepStatus.RUNNING),
        )
        size, target = ended.facts.get("size"), self._directory / f"{step.at}.out"
        output = records.StepOutput(target, 0, "")  # if its supervisor died
        is_too_long = isinstance(size, int) and size > spec.most
        if isinstance(size, int) and not is_too_long:
            if fault := ended.facts.get("fault"):
                raise RunError(str(fault))
            short = data if len(data) == size else None
            output = records.StepOutput(target, size, str(ended.facts.get("sum")), short)
        heard = (
            records.log_of(folder / records.SUPERVISED, LOGGED)
            if ended.facts.get("output", 1)
            else b""
        )
        said = _text(heard[-TAIL:])
        note = step.note
        note.stderr, note.exit_code = said, ended.exit_code
        seconds = ended.facts.get("seconds")
        note.seconds = float(seconds) if isinstance(seconds, int | float) else None
        match ended.outcome:
            case _ if is_too_long:
                reason = f"the output is larger than the limit of {size_text(spec.most)}"
                self._say(step, records.StepStatus.KILLED, reason)
            case Status.DONE | Status.NO_WORK:
                self._take(step, output)
            case Status.KILLED:
                self._is_late = self._is_late or (self._live.is_over and not self._live.reason)
                late = self._too_long() if self._is_late else ended.reason
                status = (
                    records.StepStatus.KILLED if note.started_at else records.StepStatus.SKIPPED
                )
                self._say(step, status, self._live.reason or with_output(late, said))
            case _:
                self._place_error(step, line_in(said, last=True))
                last = output.part(max(0, output.size - TAIL), TAIL)
                step.words = said if said.strip() else _text(self._masked(last))
                words = shown(telling(step.words))
                reason = f"{ended.reason}: {words}" if words else ended.reason
                self._say(step, records.StepStatus.FAILED, reason)
        return heard

    def _spec_of(self, step: _Step, ready: ReadyBlock, folder: Path) -> Spec:
        tool, memory = ready.found.tool, step.memory or self._bounds.memory
        argv: tuple[str, ...] = (ready.main,)
        if not tool.build:
            heap = filled(tool.heap or (), mebibytes=str(max(1, memory // records.MIB)))
            main = str(folder / ready.main)  # an absolute path stays one
            argv = (ready.found.path, *heap, *filled(tool.run, source=main))
        # Without a limit of its own, a step may use as much as any run.
        is_any = memory == self._bounds.memory
        is_any = is_any and self._runner.processes.limits.memory_max is not None
        facts = {
            "HORAE_STEP": step.note.name.replace("\0", ""),
            "HORAE_USES": " ".join(step.note.uses),
            "HORAE_PLAN_DIR": str(self._order.work),
            "TMPDIR": str(folder / records.SCRATCH),
        }
        return replace(
            self._spec,
            argv=argv,
            cwd=ready.directory or folder / records.SCRATCH,
            environment=self._environment | facts,
            directory=folder / records.SUPERVISED,
            target=self._directory / f"{step.at}.out",
            most=self._bounds.output,
            timeout=step.timeout,
            secrets=self._secrets,
            address_space=memory if tool.heap is None else None,
            cgroup=CgroupLimits(memory_max=None if is_any else memory, memory_from=":MEMORY:"),
        )

    async def _ask_agent(self, step: _Step, given: records.StepOutput) -> None:
        agents, block, name = self._runner.agent, step.flow.component.block, step.note.tool
        assert agents and block and name, "the block was made ready"  # noqa: PT018
        self._say(step, records.StepStatus.RUNNING)
        data = given.part(0, given.size).decode(errors="replace")
        limit = min(filter(None, (self._live.left(), step.timeout)))
        asking = agents.ask(
            name,
            f"{block.body.strip()}\n\n{data}".strip(),
            run=self._order.number,
            directory=self._directory / f"{step.at}.agent",
            timeout=self._order.timeout,
            facts=self._order.environment,
            note=lambda facts: self._note_used(step, facts),
            filed=self._order.filed,
        )
        asked = asyncio.ensure_future(asking)
        cancelled = asyncio.ensure_future(self._live.cancelled.wait())
        await asyncio.wait(
            {asked, cancelled},
            timeout=max(0.0, limit.total_seconds()),
            return_when=asyncio.FIRST_COMPLETED,
        )
        cancelled.cancel()
        if asked.done():
            try:
                answer = asked.result()
            except LimitedError as error:
                self._limited = error.ended
                raise
            output = records.StepOutput.of(self._directory / f"{step.at}.out", answer)
            if output.data is None:
                records.put(output.path, answer)
            self._take(step, output)
        else:
            asked.cancel()
            await asyncio.wait({asked})
            late = self._too_long()
            if limit == step.timeout:
                late = f"the step exceeded the time limit of {format_duration(limit)}"
            self._say(step, records.StepStatus.KILLED, self._live.reason or late)

    def _note_used(self, step: _Step, facts: Mapping[str, object]) -> None:
        self._used.append(facts)
        step.note.take_facts(facts)

    def _take(
        self,
        step: _Step,
        output: records.StepOutput,
        status: records.StepStatus = records.StepStatus.DONE,
    ) -> None:
        note, step.output = step.note, output
        if note.persist:
            output.keep()
        # More than is shown, so that no secret is cut and shown in part.
        beginning = self._masked(output.part(0, records.SHOWN + _BEYOND))[: records.SHOWN]
        is_cut = output.size > records.SHOWN
        step.tasks[note.name] = note.take_output(beginning, output.size, is_cut=is_cut)
        note.sum, note.output = output.sum, output.path.name
        self._say(step, status)

    def _reuse(self, step: _Step) -> bool:
        target = self._directory / f"{step.at}.out"
        try:
            os.link(self._before[step.note.name, step.note.digest or ""], target)
        except (KeyError, OSError):
            return False
        data = target.read_bytes()
        output = records.StepOutput(target, len(data), sha256(data).hexdigest())
        self._take(step, output, records.StepStatus.REUSED)
        return True

    def _place_error(self, step: _Step, line: int | None) -> None:
        block = step.flow.component.block
        if line is None or block is None or not block.body.strip():
            return
        text = self._order.plan.headlines[step.at].text
        inside = text[block.inside.start : block.inside.end]
        blanks = inside.count("\n") - block.body.count("\n")  # before the block's first line
        if line <= block.body.count("\n") + 1:
            step.note.error_line = step.note.line + blanks + line

    def _say(self, step: _Step, status: records.StepStatus, error: str | None = None) -> None:
        now, note = self._clock.now(), step.note
        note.status, note.error = status, error and str(error)  # it may be a Reason
        if status is records.StepStatus.RUNNING:
            note.started_at = now
        elif note.started_at is not None:
            note.finished_at = now
            if note.seconds is None:
                note.seconds = (now - note.started_at).total_seconds()
        self._progress(note)

    def _too_long(self) -> str:
        return f"the run exceeded the time limit of {format_duration(self._order.timeout)}"

    def _masked(self, data: bytes) -> bytes:
        masker = Masker(self._spellings)
        return masker.feed(data) + masker.rest()

    def _tells_secrets(self, output: records.StepOutput) -> bool:
        if not self._spellings:
            return False
        masker, at = Masker(self._spellings), 0
        while at < output.size and (part := output.part(at, _PART)):
            if MASK in masker.feed(part):
                return True
            at += len(part)
        return MASK in masker.rest()

    def _finish(self) -> Ended:
        record, directory = self.record, self._directory
        self._write_log()
        bad = next((step for step in self._steps if step.note.status in _BAD), None)
        outcome, reason, code = self._outcome(None if bad is None else bad.note)
        record.end(outcome, reason, code, now=self._clock.now())
        kept = set()
        for step in self._steps:
            # A failed run may be resumed.
            note, output = step.note, step.output
            is_wanted = note.output is not None and (note.persist or not record.is_good)
            if is_wanted and output is not None and not self._tells_secrets(output):
                output.keep()
                kept.add(note.output)
            else:
                note.output = None
        try:
            record.write(directory, is_released=True)
        except OSError as error:
            log.warning("cannot write the record in %s: %s", directory, error)
        for each in directory.iterdir():
            if each.suffix in {".out", ".bin", ".in"} and each.name not in kept:
                with suppress(OSError):  # it is removed with the directory of the run
                    os.remove(each)
        facts = records.kept_facts(to_builtins(record), directory) | total(self._used)
        if bad is not None:
            facts["tail"] = "\n".join(last_lines(bad.words))
        if self._limited is not None and outcome is Status.FAILED:
            return structs.replace(self._limited, facts=facts)
        return Ended(outcome, reason, code, facts)

    def _outcome(self, bad: records.StepRecord | None) -> tuple[Status, Reason, int | None]:
        if self._live.reason:
            return Status.KILLED, Reason(ReasonCode.CANCELLED, self._live.reason), None
        if self._is_late:
            return Status.KILLED, timed_out(self._order.timeout, (bad and bad.stderr) or ""), None
        if bad is not None:
            where = bad.where if bad.error_line is None else f"{bad.file}:{bad.error_line}"
            reason = Reason(ReasonCode.STEP_FAILED, f"{bad.name} ({where}): {bad.error}")
            return Status.FAILED, reason, bad.exit_code
        sinks = [step.output for step in self._steps if not step.followers]
        if len(sinks) == 1 and sinks[0] is not None:
            line = _text(self._masked(sinks[0].part(0, 4096))).lstrip().partition("\n")[0]
            found = verdict(RunFinish(EndCause.EXIT, code=0, first=line))
            return found.status, found.reason, 0
        words = f"{len(self._steps)} steps" if self._steps else "no steps"
        return Status.DONE, Reason(ReasonCode.COMPLETED, words), 0

    def _log(self, note: records.StepRecord, said: bytes) -> None:
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
        lines, self._lines = b"".join(self._lines), []
        try:
            with private_file(self._directory / LOG_NAME, os.O_APPEND) as file:
                file.write(lines)
        except OSError as error:
            log.warning("cannot write the output in %s: %s", self._directory, error)


def _staged(order: WorkflowOrder) -> tuple[records.Record, list[tuple[Flow, list[_Step]]]]:
    """Return the record before a run, and its workflows, parents first; RunError for a cycle."""
    stages: list[tuple[Flow, list[_Step]]] = []
    notes: list[str] = []
    lines = [order.line + place.line - 1 for place in order.plan.places()]

    def staged(world: World, depth: int) -> records.WorldRecord:
        if depth > DEEPEST:
            raise RunError(f"{order.file}: workflows are nested more than {DEEPEST} levels deep")
        for component in world.components:
            found = component_findings(component, world.producers, {})
            notes.extend(f"{component.name}: {each.message}" for each in found)
        for ring in world.rings:
            names = " → ".join(component.name for component in (*ring, ring[0]))
            where = f"{order.file}:{lines[ring[0].at]}"
            raise RunError(f"{where}: these steps depend on each other: {names}; remove one :in")
        flow = flow_of(world)
        tasks: dict[str, str | None] = dict.fromkeys(step.name for step in flow.steps)
        places = [lines[step.component.at] for step in flow.steps]
        made = zip(flow.steps, places, strict=True)
        steps = [_step(step, flow, order, line, tasks) for step, line in made]
        for step in steps:
            step.followers = [steps[number] for number in flow.followers[step.flow.number]]
            step.before = None if step.flow.after is None else steps[step.flow.after]
        record = _world_record(world, tasks, [step.note for step in steps])
        stages.append((flow, steps))
        for child in world.workflows:
            if order.is_timed and has_own_clock(child):
                left = _world_record(child, {}, [])
                left.status, left.reason = records.StepStatus.SKIPPED, "has its own schedule"
                record.children.append(left)
            else:
                record.children.append(staged(child, depth + 1))
        return record

    world = asdict(staged(order.world, 1))
    del world["status"]
    record = records.Record(
        **world,
        run=order.run,
        file=order.file,
        line=lines[order.world.at],
        planned=None if order.planned_at is None else key_time(order.planned_at),
        notes=notes,
    )
    return record, stages


def _world_record(
    world: World, tasks: dict[str, str | None], steps: list[records.StepRecord]
) -> records.WorldRecord:
    return records.WorldRecord(
        name=world.name, schedule=world.schedule, exports=world.exports, tasks=tasks, steps=steps
    )


def _step(
    step: FlowStep, flow: Flow, order: WorkflowOrder, line: int, tasks: dict[str, str | None]
) -> _Step:
    component, headline = step.component, order.plan.headlines[step.component.at]
    block, props, where = component.block, headline.props, f"{order.file}:{line}"
    if block is None or not block.lang:
        what = "has no source block" if block is None else "has a source block with no language"
        raise RunError(f"{where}: component {component.name!r} {what}; write one")
    note = records.StepRecord(
        name=step.name,
        lang=block.lang,
        file=order.file,
        line=line + headline.text.count("\n", 0, block.span.start),
        after=None if step.after is None else flow.steps[step.after].name,
        uses=list(component.uses),
        persist=component.persist,
    )
    try:
        timeout = parse_duration(props["TIMEOUT"]) if "TIMEOUT" in props else None
    except ScheduleError as error:
        raise RunError(f"{where}: :TIMEOUT: {error}") from None
    size = _SIZE.fullmatch(props.get("MEMORY", "1G"))
    if size is None:
        raise RunError(f"{where}: :MEMORY: {props['MEMORY'][:60]}: write a size such as 512M or 2G")
    memory = int(size[1]) * _UNITS[size[2].upper()] if "MEMORY" in props else None
    return _Step(step, note, tasks, timeout, memory)


def _variables(props: Mapping[str, str]) -> tuple[str, ...]:
    call = call_of({"COMMAND": "sh", "ENV": props.get("ENV", "")})
    return () if call is None else call.variables


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
