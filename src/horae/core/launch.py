"""The held start: how a receipt becomes a run.

    starting is committed → the run is made, and waits → running is committed → go

Before *go* nothing has run, so whatever happens the receipt waits again. After it the run's
own end decides, and it is written down however long the ledger cannot be written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypedDict, TypeVar

from msgspec.structs import replace

from horae.core import ports
from horae.core.actor import ENGINE, acting, current_actor
from horae.core.command import call_in
from horae.core.entry import Work
from horae.core.ports import (
    Clock,
    Ended,
    EntryStep,
    Held,
    Job,
    Ledger,
    LedgerUnavailableError,
    Process,
    Run,
    RunEnd,
    RunError,
    Runner,
    RunOver,
    Unreleased,
)
from horae.core.receipt import ENGINE_EXITED, Filed, Reason, ReasonCode, Status
from horae.core.source import unexpected
from horae.errors import HoraeError, ScheduleError

LetIn: TypeAlias = "Callable[[Sequence[Filed]], Sequence[Filed]]"
T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger(__name__)

AGAIN: Final = timedelta(seconds=1)  # after a failed write to the ledger
BATCH: Final = 500  # runs in one commit
LOOK: Final = timedelta(milliseconds=50)  # interval of checks for runs that cannot be handed over
GIVE_UP: Final = timedelta(seconds=10)  # for an end that cannot be written during a stop
_CALLS: Final = frozenset({Work.COMMAND, Work.POST})
POISON: Final = 3  # engines that may die during a receipt's run before it is set aside


@dataclass(eq=False)
class Launch:
    """All runs that are being made or in progress.

    *left* is called when one is over, with its end or with the receipt if that waits again.
    *following* returns what gets the slots of ended runs, before their ends are recorded.
    """

    clock: Clock
    ledger: Ledger
    runner: Runner
    left: Callable[[int, Filed | RunOver | None], None]
    following: Callable[[Collection[int]], Sequence[Filed]] = lambda _: ()
    term: int = 1
    # Runs handed over by the previous image of the engine, or why one was ended.
    adopted: dict[int, Held | Reason] = field(default_factory=dict)
    settled: Collection[str] = ()  # sources that do nothing at the end of a run
    give_up_at: timedelta | None = None  # the uptime from which on ends are no longer retried
    is_unsure: bool = False  # whether the ledger may hold a start whose write failed
    failure: Exception | None = None  # what must stop the engine: a bug, or a lost term
    _stories: dict[int, StartedRun] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def runs(self) -> dict[int, Run]:
        return {n: story.run for n, story in self._stories.items() if story.run is not None}

    @property
    def receipts(self) -> tuple[int, ...]:
        return tuple(self._stories)

    @property
    def going(self) -> tuple[Filed, ...]:
        """The runs in progress; one that has ended and is not recorded yet is not included."""
        return tuple(s.filed for s in self._stories.values() if s.run and not s.is_over)

    def __post_init__(self) -> None:
        self._running = WriteBatch(self._note_running, self.beside)
        self._ends = WriteBatch(self._end_all, self.beside)

    async def decide(
        self,
        steps: Sequence[EntryStep],
        *,
        now: datetime,
        let_in: LetIn,  # noqa: ARG002
    ) -> Sequence[Filed]:
        """Write decisions and return the receipts; *let_in* returns those that may start."""
        return await self.ledger.decide(steps, now=now, term=self.term)

    def start(self, receipts: Iterable[Filed], refused: Reason | None = None) -> None:
        stories = [StartedRun(filed) for filed in receipts]
        self._stories.update((story.filed.number, story) for story in stories)
        self.beside(self._start_all(stories, refused))

    def beside(self, part: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(part)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self, receipt: int, reason: Reason, *, outcome: Status = Status.KILLED) -> bool:
        story = self._stories.get(receipt)
        if story is None or story.cancelled is not None:
            return False
        story.cancelled = Ended(outcome, reason)
        story.actor = current_actor()
        if story.held is not None:
            story.held.cancel(reason)
        return True

    async def rest(self) -> None:
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def stop(self, *, within: timedelta, reason: Reason) -> None:
        over = asyncio.Event()
        resting = asyncio.create_task(self.rest())
        resting.add_done_callback(lambda _: over.set())
        until = self.clock.elapsed() + within  # by uptime, as the clock may be set
        while not over.is_set() and (left := until - self.clock.elapsed()) > timedelta(0):
            await self.clock.wait(over, until=self.clock.now() + left)
        self.give_up_at = self.clock.elapsed() + GIVE_UP
        for receipt in self.receipts:
            self.cancel(receipt, reason, outcome=Status.INTERRUPTED)
        await resting
        # Finish starts in progress, if the ledger can be written in time.
        never = asyncio.Event()
        while self.is_unsure and self.give_up_at is not None:
            try:
                await self.reconcile()
            except LedgerUnavailableError as error:
                log.warning("cannot find out which runs were started: %s", error)
            if self.clock.elapsed() >= self.give_up_at:
                return  # the next start finds the rest
            if self.is_unsure:
                await self.clock.wait(never, until=self.clock.now() + AGAIN)

    async def wait_for_others(
        self, can_leave: Callable[[Run, Held], bool], *, within: timedelta, reason: Reason
    ) -> None:
        """Wait until each remaining run can be handed over; others are ended after *within*."""
        never, until = asyncio.Event(), self.clock.elapsed() + within

        def stays(story: StartedRun) -> bool:
            run, held = story.run, story.held
            is_going = story.is_let_go and not story.is_over and story.cancelled is None
            return not (is_going and run and held and can_leave(run, held))

        while left := [story for story in self._stories.values() if stays(story)]:
            if self.give_up_at is None and self.clock.elapsed() >= until:
                self.give_up_at = self.clock.elapsed() + GIVE_UP
                for story in left:
                    self.cancel(story.filed.number, reason, outcome=Status.INTERRUPTED)
            await self.clock.wait(never, until=self.clock.now() + LOOK)

    def hand_over(self) -> list[int]:
        for story in self._stories.values():
            story.is_over = True
        return [run.number for run in self.runs.values()]

    async def look_back(self) -> None:
        for filed, run in await self.ledger.open_runs():
            found: Ended | Unreleased | None = Unreleased()
            held = self.adopted.pop(run.number, None)
            if held is not None and not isinstance(held, Reason):
                story = StartedRun(filed, run, held, is_let_go=True, is_adopted=True)
                self._stories[filed.number] = story
                self.beside(self._run_part(story, partial(self._await_end, story, run, held)))
                continue
            if filed.status is Status.RUNNING:
                found = await self.runner.look_back(filed, run)
            if held is not None:
                known = found if isinstance(found, Ended) else Ended(Status.INTERRUPTED, held)
                known = replace(known, outcome=Status.INTERRUPTED, reason=held)
                await self._write_end(run, known)
            else:
                await self._take_over(filed, run, found)
        for left in self.adopted.values():
            if not isinstance(left, Reason):
                left.cancel("the run is not in the ledger")
        self.adopted.clear()

    async def reconcile(self) -> None:
        self.is_unsure = False  # first: another failed write sets it again
        try:
            for filed, run in await self.ledger.open_runs():
                if filed.number not in self._stories:
                    words = "the ledger could not confirm that the run was started"
                    reason = Reason(ReasonCode.START_UNCONFIRMED, words)
                    await self.ledger.give_back(run.number, reason=reason, **self._stamp())
        except BaseException:  # includes cancellation
            self.is_unsure = True
            raise

    async def _start_all(self, stories: Sequence[StartedRun], refused: Reason | None) -> None:
        for first in range(0, len(stories), BATCH):
            some = stories[first : first + BATCH]
            try:
                receipts = [story.filed for story in some]
                jobs = await self.ledger.start_many(receipts, **self._stamp())
            except Exception as error:  # logged for each of them
                for story in some:
                    self._note(error, story)
                    self._leave(story, None)
                continue
            for story, job in zip(some, jobs, strict=True):
                if job is None:  # it was skipped meanwhile, or another engine has it
                    self._leave(story, None)
                else:
                    story.run = job.run
                    self.beside(self._run_part(story, partial(self._carry, story, job, refused)))

    async def _run_part(
        self, story: StartedRun, part: Callable[[], Awaitable[Filed | RunOver | None]]
    ) -> None:
        then: Filed | RunOver | None = None
        try:
            then = await part()
            if isinstance(then, RunOver) and then.status is Status.WAITING:
                then = await self.ledger.receipt(story.filed.number)
        except Exception as error:  # logged there
            self._note(error, story)
        finally:
            self._leave(story, then)

    def _note(self, error: Exception, story: StartedRun) -> None:
        number = story.filed.number
        if isinstance(error, LedgerUnavailableError):
            words = "the start of receipt %d cannot be recorded: %s"
            log.warning(words, number, error, extra=story.fields())
            self.is_unsure = True  # nothing was started
        else:  # the next turn raises it, and the engine ends
            words = "receipt %d ended in an error"
            log.debug(words, number, exc_info=error, extra=story.fields())
            self.failure = error

    def _leave(self, story: StartedRun, then: Filed | RunOver | None) -> None:
        if story.held is not None and not story.is_over:
            story.held.cancel("the start of the run could not be recorded")
        del self._stories[story.filed.number]
        self.left(story.filed.number, then)

    async def _carry(
        self, story: StartedRun, job: Job, refused: Reason | None
    ) -> Filed | RunOver | None:
        filed, run = story.filed, job.run
        if refused is not None:
            return await self._write_end(run, Ended(Status.FAILED, refused))
        try:
            story.held = await self._make(job)
        except ports.LauncherLostError as error:
            await self.ledger.give_back(run.number, reason=error.reason, **self._stamp())
            return await self.ledger.receipt(filed.number)
        except ports.NoRoomError as error:
            await self.ledger.refuse(run.number, error.balance, **self._stamp())
            return await self.ledger.receipt(filed.number)
        except ports.HeldBackError as error:
            why = error.reason
            await self.ledger.give_back(run.number, reason=why, **self._stamp())
            await self.ledger.hold(filed.number, reason=why, account=error.account, **self._stamp())
            return None  # it waits for its account: tried at each start, or when the limit ends
        except RunError as error:
            return await self._write_end(run, Ended(Status.FAILED, error.reason))
        if log.isEnabledFor(logging.DEBUG):
            pid = story.held.process.pid
            words = "run %d of receipt %d is process %d"
            log.debug(words, run.number, filed.number, pid, extra=story.fields())
        if not await self._running.add((run.number, story.held.process)):
            return None
        if story.cancelled is None:
            story.held.go()
            story.is_let_go = True
        elif story.cancelled.outcome is Status.INTERRUPTED:
            words = f"{story.cancelled.reason} before the run started"
            reason = Reason(ReasonCode.STOPPED_BEFORE_START, words)
            await self.ledger.give_back(run.number, reason=reason, **self._stamp())
            return None  # it waits for the next engine
        else:
            story.held.cancel(story.cancelled.reason)
        return await self._await_end(story, run, story.held)

    async def _await_end(self, story: StartedRun, run: Run, held: Held) -> Filed | RunOver | None:
        filed, ended = story.filed, await self._ended(story, run, held)
        if log.isEnabledFor(logging.DEBUG):
            words = "run %d of receipt %d ended: %s"
            log.debug(words, run.number, filed.number, ended.outcome, extra=story.fields())
        story.is_over = True
        if story.cancelled is None and ended.facts.get("released") is False:
            # Its time limit passed before it could start: nothing has run.
            await self.ledger.give_back(run.number, reason=ended.reason, **self._stamp())
            return await self.ledger.receipt(filed.number)
        if story.cancelled is None:
            is_settled = filed.source in self.settled
            return await self._ends.add((run, RunEnd(run.number, ended, is_settled=is_settled)))
        told = replace(ended, outcome=story.cancelled.outcome, reason=story.cancelled.reason)
        # A run cancelled by a user is final; one that the engine interrupted may be tried again.
        with acting(story.actor):
            return await self._write_end(run, told, is_last=told.outcome is Status.KILLED)

    async def _make(self, job: Job) -> Held:
        if not job.has_text:
            digest = job.filed.digest
            raise RunError(f"the text of the entry is not in the ledger (digest {digest})")
        try:
            return await self.runner.hold(with_call(job))
        except ports.NOT_STARTED:
            raise
        except HoraeError as error:
            raise RunError(str(error)) from error
        except (OSError, ValueError) as error:  # a file in its place, no free descriptor
            raise RunError(Reason(ReasonCode.INTERNAL_ERROR, unexpected(error))) from error

    async def _ended(self, story: StartedRun, run: Run, held: Held) -> Ended:
        try:
            ended = await held.ended()
            # The runner finds out what an adopted run did from the files of the run.
            found = await self.runner.look_back(story.filed, run) if story.is_adopted else None
            return found if isinstance(found, Ended) else ended
        except ports.LedgerError:
            raise
        except (HoraeError, OSError, ValueError) as error:
            words = str(error) if isinstance(error, HoraeError) else unexpected(error)
            words = f"the result of the run cannot be read: {words}"
            held.cancel(words)
            return Ended(Status.INTERRUPTED, Reason(ReasonCode.RESULT_UNREADABLE, words))

    async def _note_running(self, made: Sequence[tuple[int, Process]]) -> Sequence[bool]:
        return await self.ledger.running_many(made, **self._stamp())

    async def _end_all(
        self, ends: Sequence[tuple[Run, RunEnd]]
    ) -> Sequence[Filed | RunOver | None]:
        following = self.following({run.receipt for run, _ in ends})
        if not following:
            return await self._write_ends(ends)
        # Both write in the next iteration of the loop, and so in one commit.
        writing = asyncio.create_task(self._write_ends(ends))
        self.start(following)
        return await writing

    async def _write_end(
        self, run: Run, ended: Ended, *, is_last: bool = False
    ) -> Filed | RunOver | None:
        [then] = await self._write_ends([(run, RunEnd(run.number, ended, is_last))])
        return then

    async def _write_ends(
        self, ends: Sequence[tuple[Run, RunEnd]]
    ) -> Sequence[Filed | RunOver | None]:
        never = asyncio.Event()
        is_again = False
        while True:
            try:
                over = await self.ledger.end_many([end for _, end in ends], **self._stamp())
                if is_again:
                    # A start whose write was kept despite an error may wait for its next try.
                    return [await self.ledger.receipt(run.receipt) for run, _ in ends]
                return over
            except LedgerUnavailableError as error:
                for run, _ in ends if not is_again else ():
                    words = "the end of run %d of receipt %d cannot be recorded yet: %s"
                    extra = {"receipt": run.receipt, "run": run.number}
                    log.warning(words, run.number, run.receipt, error, extra=extra)
                is_again = True
                if self.give_up_at is not None and self.clock.elapsed() >= self.give_up_at:
                    raise  # its report is read at the next start
                never.clear()
                await self.clock.wait(never, until=self.clock.now() + AGAIN)

    async def _take_over(self, filed: Filed, run: Run, found: Ended | Unreleased | None) -> None:
        deaths, is_last = filed.deaths + 1, False
        if isinstance(found, Unreleased) and deaths < POISON:
            words = "the engine exited before the run started"
            reason = Reason(ReasonCode.EXITED_BEFORE_START, words)
            await self.ledger.give_back(run.number, reason=reason, died=True, **self._stamp())
            return
        if isinstance(found, Unreleased):
            words = f"given up: the engine exited {deaths} times while starting the run"
            found, is_last = Ended(Status.FAILED, Reason(ReasonCode.GAVE_UP, words)), True
        elif found is None:
            found = Ended(Status.INTERRUPTED, ENGINE_EXITED)
            ends = [each.outcome for each in await self.ledger.runs_of(filed.number)]
            times = ends.count(Status.INTERRUPTED) + 1
            if times >= POISON:
                words = f"given up: the engine exited {times} times during the run"
                found, is_last = replace(found, reason=Reason(ReasonCode.GAVE_UP, words)), True
        await self._write_end(run, found, is_last=is_last)

    def _stamp(self) -> _WriteStamp:
        return {"now": self.clock.now(), "term": self.term}


def with_call(job: Job) -> Job:
    if job.filed.work not in _CALLS:
        return job
    try:
        return replace(job, call=call_in(job.text))
    except ScheduleError as error:
        raise RunError(str(error)) from None


class WriteBatch(Generic[T, R]):
    """Batches the calls of one iteration of the loop, and those made while a batch runs."""

    def __init__(
        self,
        do: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
        beside: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._do = do
        self._beside = beside
        self._asked: list[tuple[T, asyncio.Future[R]]] = []
        self._is_served = False

    def add(self, item: T) -> asyncio.Future[R]:
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._asked.append((item, future))
        if not self._is_served:
            self._is_served = True
            self._beside(self._serve())
        return future

    async def _serve(self) -> None:
        try:
            while some := self._asked[:BATCH]:
                del self._asked[:BATCH]
                try:
                    found = await self._do([item for item, _ in some])
                except Exception as error:  # each caller raises it
                    for _, future in some:
                        if not future.done():
                            future.set_exception(error)
                    continue
                for (_, future), answer in zip(some, found, strict=True):
                    if not future.done():
                        future.set_result(answer)
        finally:
            self._is_served = False


class _WriteStamp(TypedDict):
    now: datetime
    term: int


@dataclass(slots=True)
class StartedRun:
    filed: Filed
    run: Run | None = None
    held: Held | None = None
    cancelled: Ended | None = None
    actor: str = ENGINE  # who cancelled it
    is_let_go: bool = False
    is_adopted: bool = False  # a previous image of the engine started it
    is_over: bool = False

    def fields(self) -> dict[str, object]:
        run = {} if self.run is None else {"run": self.run.number}
        return {"entry": self.filed.entry, "receipt": self.filed.number, **run}
