"""Runs of the board: open tasks are dispatched to free members, and done tasks are recycled.

The claim is written to the file of a task before its run starts, and the end of the run is written
after it. The file decides: a user's save in between counts, an edit can be repeated, and a claim is
identified by its holder and its time, so after a crash the file tells what is left to do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from msgspec import structs

from horae.core import ports
from horae.core.entry import Work, key_time
from horae.core.receipt import FINAL, NEVER_STARTED, OPEN, Reason, ReasonCode, Receipt, Status
from horae.errors import HoraeError
from horae.files.read import PlanFileError, read_plan
from horae.sources.board import dispatch, tasks
from horae.sources.board.recycle import Recycled, Stays, recycle, trigger_of
from horae.sources.board.rules import Changes, Members, moment
from horae.sources.board.source import task_at, work_address
from horae.sources.board.task import Task, parse

if TYPE_CHECKING:
    from horae.core.agent import Agent
    from horae.core.gate import Gate
    from horae.core.receipt import Filed

log = logging.getLogger(__name__)

_FoundEnd: TypeAlias = "ports.Ended | ports.Unreleased | None"

KEY: Final = "dispatch:"
AGAIN: Final = timedelta(seconds=1)  # after a failed write to the ledger
UNCLAIMED: Final = timedelta(minutes=1)  # after a run that ended before its task was claimed
UNREAD: Final = timedelta(seconds=7)  # after a board or a manifest could not be read
_LONGEST_REST: Final = timedelta(hours=1)  # without a time on the board to wait for


def busy_at(gate: Gate) -> frozenset[str]:
    return frozenset(name for holding in gate.holders for name in holding.ask.agents)


@dataclass(eq=False)
class Dispatcher:
    """Files a receipt for each open task that a free member gets; the gate starts them."""

    board: tasks.CommittedBoard
    crew: ports.Crew
    _: KW_ONLY
    agents: ports.AgentRunner
    ledger: ports.Ledger
    clock: ports.Clock
    busy: Callable[[], Collection[str]]
    term: int = 1
    next_at: datetime | None = field(default=None, init=False)  # the next time on the board
    problem: Exception | None = field(default=None, init=False)  # of the last `look`

    def __post_init__(self) -> None:
        self._asked = asyncio.Event()
        self._is_stale = True  # whether the board has changed since the last `look`
        self._were_busy: frozenset[str] = frozenset()
        self._numbers: dict[str, int] = {}  # entries by address, which never change
        # Open receipts, each with its task and its member; None until they are read.
        self._out: dict[int, tuple[int, str]] | None = None
        self._handed: dict[int, Task] = {}  # tasks as they were when dispatched

    def note_change(self) -> None:
        """Record that the board has changed or a run is over; `turned` then calls for a `look`."""
        self._is_stale = True

    def turned(self) -> None:
        busy = frozenset(self.busy())
        is_freed = not self._were_busy <= busy
        self._were_busy = busy
        is_time = self.next_at is not None and self.next_at <= self.clock.now()
        if self._is_stale or is_freed or is_time:
            self._asked.set()

    async def run(self, offer: Callable[[Sequence[Filed]], None]) -> None:
        while True:
            until = self.next_at or self.clock.now() + _LONGEST_REST
            await self.clock.wait(self._asked, until=until)
            self._asked.clear()
            now = self.clock.now()
            try:
                offer(await self.look(now))
            except (ports.LedgerBusyError, ports.LedgerWriteError) as error:
                log.debug("dispatching failed, trying again in %s: %s", AGAIN, error)
                self.problem, self.next_at = error, now + AGAIN
            except ports.LedgerError:
                raise
            except Exception as error:  # neither the board nor the crew may end the engine
                log.debug("dispatching failed, trying again in %s", UNREAD, exc_info=error)
                self.problem, self.next_at = error, now + UNREAD

    async def look(self, now: datetime) -> list[Filed]:
        self._is_stale = False
        self.problem = None
        members = await asyncio.to_thread(self.crew)
        if not members:
            self.next_at = None
            return []
        out = await self._open_dispatches()
        cards = await self.board.read()
        at_work = {task for task, _ in out.values()}
        over = dispatch.lapsed((task for task in cards.tasks if task.id not in at_work), now=now)
        for number in over:
            try:
                await self.board.change(
                    number,
                    lambda task: dispatch.lapsed([task], now=now).get(task.id, {}),
                    message=_moved,
                )
            except (HoraeError, OSError) as error:  # one file must not stop the others
                self.problem = error
        if over:
            cards = await self.board.read()
        known = {task.id: task for task in cards.tasks}
        # A task that was changed, even if changed back, is not what was dispatched.
        self._handed = {n: task for n, task in self._handed.items() if known.get(n) == task}
        self.next_at = dispatch.wakes_at(cards.tasks, now=now)
        taken = {member for _, member in out.values()} | {*self.busy()}
        if taken.issuperset(members):
            return []
        able, roles = await asyncio.to_thread(self._able, members)
        entries = {name: await self._entry(f"agent:{name}") for name in able if name not in taken}
        free = [name for name, known in entries.items() if known is None or known.pause is None]
        if not free:
            return []
        line = [
            task
            for task in dispatch.candidates(cards.tasks, now=now, archived=cards.archived)
            if task.id not in at_work
        ]
        return await self._hand_out(line, free, roles, now)

    async def _hand_out(
        self, line: list[Task], free: list[str], roles: Members, now: datetime
    ) -> list[Filed]:
        filed: list[Filed] = []
        while given := dispatch.assign(line, free=free, crew=roles):
            made = [(member, await self._file(task, member, now)) for task, member in given]
            done = [(member, receipt) for member, receipt in made if receipt is not None]
            filed += [receipt for _, receipt in done]
            if len(done) == len(given) or self._is_stale:
                break
            # A paused task must not occupy a member.
            gone, passed = {member for member, _ in done}, {task.id for task, _ in given}
            free = [name for name in free if name not in gone]
            line = [task for task in line if task.id not in passed]
        return filed

    async def _file(self, task: Task, member: str, now: datetime) -> Filed | None:
        known = await self._entry(work_address(task.id))
        if known is None:  # the task is soon in the ledger, and then `look` is called again
            self._is_stale = True
            return None
        newest = await self._newest(known.number)
        if newest is not None and (
            newest.status not in FINAL or self._is_traceless(task, newest, now)
        ):
            return None
        count = 0 if newest is None else int(newest.receipt.key.removeprefix(KEY))
        words = f"assigned to {member}: first in the queue ({task.priority or 'no'} priority)"
        reason = Reason(ReasonCode.ASSIGNED, words)
        asked = [Receipt(f"{KEY}{count + 1}", Status.WAITING, reason, now, now)]
        made = await self.ledger.add(known.number, asked, now=now, term=self.term, agents=(member,))
        if not made or made[0].status in FINAL:
            return None
        assert self._out is not None, "a look begins with it"
        self._out[made[0].number] = task.id, member
        self._handed[task.id] = task
        return made[0]

    def _is_traceless(self, task: Task, newest: Filed, now: datetime) -> bool:
        """Return whether a run has just ended that left no trace in the file of its task.

        It was not started, or ended before its task was claimed, and would end so again.
        """
        if self._handed.get(task.id) != task:
            return False
        # An end in the future is from a clock that was ahead.
        until = min(newest.ended_at or newest.decided_at, now) + UNCLAIMED
        if until > now:
            self.next_at = until if self.next_at is None else min(until, self.next_at)
        return until > now

    async def _entry(self, address: str) -> ports.Listed | None:
        if address not in self._numbers:
            found = await self.ledger.find(address)
            number = next((each.number for each in found if each.mark.address == address), None)
            if number is None:
                return None
            self._numbers[address] = number
        known = await self.ledger.entry(self._numbers[address])
        return None if known is None or known.gone_at is not None else known

    async def _newest(self, entry: int) -> Filed | None:
        cursor: int | None = None
        while True:
            page = await self.ledger.receipts(entry=entry, cursor=cursor, limit=100)
            for filed in page.receipts:
                if filed.receipt.key.removeprefix(KEY).isdecimal():
                    return filed
            if page.cursor is None:
                return None
            cursor = page.cursor

    async def _open_dispatches(self) -> dict[int, tuple[int, str]]:
        if self._out is None:
            out: dict[int, tuple[int, str]] = {}
            for filed in await ports.receipts_of(self.ledger, OPEN):
                if filed.work is Work.DISPATCH and filed.agents:
                    known = await self.ledger.entry(filed.entry)
                    task = None if known is None else task_at(known.mark.address)
                    if task is not None:
                        out[filed.number] = task, filed.agents[0]
            self._out = out
        for number in tuple(self._out):
            receipt = await self.ledger.receipt(number)
            if receipt is None or receipt.status in FINAL:
                self._out.pop(number, None)  # a concurrent `look` may have removed it
        return self._out

    def _able(self, members: Mapping[str, Callable[[], Agent]]) -> tuple[list[str], Members]:
        """Return the members that can run, or all if none can: receipts say why; and the roles."""
        able: list[str] = []
        roles: dict[str, tuple[str, ...]] = dict.fromkeys(members, ())
        for name, read in members.items():
            with suppress(ports.RunError):  # the receipt reports it, if no other member can run
                agent = read()
                roles[name] = agent.roles
                if self.agents.obstacle(agent) is None:
                    able.append(name)
        return able or [*members], roles


@dataclass(eq=False)
class DispatchRunner:
    agents: ports.AgentRunner
    board: tasks.CommittedBoard
    crew: ports.Crew | None
    _: KW_ONLY
    ledger: ports.Ledger
    clock: ports.Clock
    heard: Callable[[], None] | None = None
    rest: dispatch.Rest = dispatch.rest_after
    claims_as: str = ""  # one name for all members, else the member's own

    async def hold(self, job: ports.Job) -> ports.Held:
        """Make the run of a task, which waits to be started, and claim the task in its file."""
        errand = await self._errand(job.filed)
        if errand is None:
            raise ports.RunError("the entry is not a task of the board")
        agent, timeout = await asyncio.to_thread(self._who, job.filed, errand)
        obstacle = await self.agents.why_unable(agent)
        if obstacle is not None:
            raise ports.HeldBackError(obstacle)
        await self.agents.reserve(agent, job)
        try:
            card = await self._claim(errand, job.run, timeout)
        except (tasks.TaskMissingError, tasks.TaskAmbiguousError, tasks.BoardMissingError) as error:
            card = str(error)
        except (HoraeError, OSError) as error:
            raise ports.RunError(str(error)) from error
        if isinstance(card, str):
            words = f"task #{errand.task} was not started: {card}"
            ended = ports.Ended(Status.NO_WORK, Reason(ReasonCode.TASK_NOT_STARTED, words))

            async def not_started() -> ports.Ended:
                return ended

            return _EditRun(not_started)
        file = card.path.removeprefix(f"{self.agents.place.root}/")
        try:
            run = await self.agents.hold(
                agent,
                dispatch.prompt(card.task, file=file),
                run=job,
                timeout=timeout,
                facts={"HORAE_TASK": str(errand.task)},
            )
        except (ports.LauncherLostError, ports.LedgerError):
            raise  # it is tried again, and recognises its own claim
        except (ports.HeldBackError, ports.NoRoomError) as error:
            await self._move(errand, Status.LIMITED, error.reason)
            raise
        except (HoraeError, OSError) as error:
            with suppress(HoraeError, OSError):  # `settle` tries again
                await self._move(errand, Status.FAILED, str(error))
            raise ports.RunError(str(error)) from error
        return _Working(self, errand, run)

    async def look_back(self, filed: Filed, run: ports.Run) -> _FoundEnd:
        found = await self.agents.look_back(run)
        if isinstance(found, ports.Ended) and (errand := await self._errand(filed)) is not None:
            return await self.over(errand, found)
        return found

    async def obstacle(self, filed: Filed) -> str | None:
        errand = await self._errand(filed)
        if errand is None:
            return None
        agent, _ = await asyncio.to_thread(self._who, filed, errand)
        return await self.agents.why_unable(agent)

    async def over(self, errand: Errand, how: ports.Ended) -> ports.Ended:
        facts = {**how.facts, "task": errand.task}
        # Work that did not merge is left on its branch for a user to review.
        branch = str(facts["branch"]) if "branch" in facts else None
        try:
            facts |= await self._move(errand, how.outcome, how.reason, branch=branch)
        except (HoraeError, OSError) as error:  # `settle` tries again
            facts["board"] = str(error)
        return structs.replace(how, facts=facts)

    async def settle(self, filed: Filed) -> None:
        if filed.work is not Work.DISPATCH or filed.status not in FINAL:
            return
        errand = await self._errand(filed)
        if errand is None:
            return
        if errand.stamps:
            await self._move(errand, filed.status, filed.receipt.reason)
        if self.heard is not None:
            self.heard()

    async def _errand(self, filed: Filed) -> Errand | None:
        known = await self.ledger.entry(filed.entry)
        number = None if known is None else task_at(known.mark.address)
        if number is None:
            return None
        runs = await self.ledger.runs_of(filed.number)
        stamps = frozenset(key_time(run.started_at) for run in runs)
        member = filed.agents[0] if filed.agents else ""
        return Errand(number, member, self.claims_as or member, stamps)

    def _who(self, filed: Filed, errand: Errand) -> tuple[Agent, timedelta]:
        if not filed.agents:
            assign = f"`horae task edit {errand.task} --assignee NAME`"
            raise ports.RunError(f"task #{errand.task} has no assignee; set one with {assign}")
        try:
            members = {} if self.crew is None else self.crew()
        except PlanFileError as error:
            raise ports.RunError(str(error)) from None
        if errand.member not in members:
            raise ports.RunError(f"{errand.member} is not a member of the crew")
        agent = members[errand.member]()
        return agent, agent.definition.timeout or self.agents.place.timeout

    async def _claim(self, errand: Errand, run: ports.Run, timeout: timedelta) -> tasks.Card | str:
        ground = (await self.board.read()).ground
        now = self.clock.now()
        reason: str | None = None

        def decide(task: Task) -> Changes:
            nonlocal reason
            assignee, reason = task.text("assignee"), None
            if not errand.has(task):
                is_for_others = assignee not in {None, errand.member}
                # The wait was checked at the dispatch; a request does not wait.
                reason = dispatch.why_not(task, ground, now=now, is_asked=True)
                reason = reason or (f"assigned to {assignee}" if is_for_others else None)
            if reason is not None:
                return {}
            return dispatch.claim(
                task, errand.claimant, now=run.started_at, ttl=timeout + dispatch.GRACE
            )

        card, _ = await self.board.change(
            errand.task, decide, message=lambda task: f"Assign task #{task.id} to {errand.claimant}"
        )
        return card if reason is None else reason

    async def _move(
        self, errand: Errand, outcome: Status, reason: str, *, branch: str | None = None
    ) -> dict[str, object]:
        now = self.clock.now()

        def decide(task: Task) -> Changes:
            if not errand.has(task):
                return {}
            return dispatch.after_run(
                task, outcome, reason=reason, now=now, branch=branch, rest=self.rest
            )

        try:
            # The usual case, without a call of git.
            if not errand.has((await asyncio.to_thread(self.board.files.card, errand.task)).task):
                return {}
            card, facts = await self.board.change(errand.task, decide, message=_moved)
        except (tasks.TaskMissingError, tasks.BoardMissingError):
            return {}
        return {"status": card.task.status, **facts}


class Errand(NamedTuple):
    """A task and its member in one receipt; `stamps` are the start times of its runs."""

    task: int
    member: str
    claimant: str  # the name of the member in the claim
    stamps: frozenset[str]

    def has(self, task: Task) -> bool:
        """Return whether a task is claimed for this receipt, by the time of the claim."""
        at = moment(task.text("claimed_at"))
        stamp = None if at is None else key_time(at)
        return task.text("claimed_by") == self.claimant and stamp in self.stamps


@dataclass(eq=False)
class _Working:
    runner: DispatchRunner
    errand: Errand
    run: ports.Held
    cancelled: str = ""

    @property
    def process(self) -> ports.Process:
        return self.run.process

    def go(self) -> None:
        self.run.go()

    def cancel(self, reason: str) -> None:
        self.cancelled = reason
        self.run.cancel(reason)

    async def ended(self) -> ports.Ended:
        how = await self.run.ended()
        if self.cancelled:  # it was interrupted, whatever it reports
            reason = Reason(ReasonCode.CANCELLED, self.cancelled)
            how = structs.replace(how, outcome=Status.KILLED, reason=reason)
        return await self.runner.over(self.errand, how)


def _moved(task: Task) -> str:
    return f"Move task #{task.id} to {task.status}"


@dataclass(eq=False)
class RecycleRunner:
    """Makes the runs that recycle tasks: edits, which can be repeated."""

    board: tasks.CommittedBoard
    _: KW_ONLY
    clock: ports.Clock

    async def hold(self, job: ports.Job) -> _EditRun:
        task = parse(job.text).task
        if task is None:
            raise ports.RunError("the text to recycle is not a task")
        return _EditRun(lambda: self._carry_out(job.filed, task.id))

    async def look_back(self, filed: Filed, run: ports.Run) -> _FoundEnd:
        files = self.board.files
        try:
            content = read_plan(f"{files.top}{filed.origin.file}", limit=files.limit)
            task = tasks.card_of(content).task
        except PlanFileError:
            return None
        last, coming = moment(task.cron_last_run), moment(task.scheduled_for)
        if last is None or coming is None or last < run.started_at.replace(microsecond=0):
            return ports.Unreleased()
        made = Recycled(task.id, task.cron_schedule or "", {}, last, coming, last, 1)
        reason = Reason(ReasonCode.TASK_MOVED, made.words)
        return ports.Ended(Status.DONE, reason, facts={"task": task.id, "found": True})

    async def _carry_out(self, filed: Filed, number: int) -> ports.Ended:
        key, message = filed.receipt.key, f"Move task #{number} back to todo"
        planned_at, is_asked = trigger_of(key, filed.receipt.planned_at), key.startswith("manual:")

        def decide(task: Task) -> Recycled | Stays:
            return recycle(task, now=self.clock.now(), planned_at=planned_at, is_asked=is_asked)

        try:
            found, committed = await self.board.edit(
                number,
                lambda path: self.board.files.recycle(number, decide, path=path),
                message=lambda found: message if isinstance(found, Recycled) else "",
                hint=filed.origin.file,
            )
        except tasks.TaskMissingError:
            words = f"task #{number} is no longer on the board"
            return ports.Ended(Status.NO_WORK, Reason(ReasonCode.TASK_NOT_MOVED, words))
        except (HoraeError, OSError) as error:
            return ports.Ended(Status.FAILED, Reason(ReasonCode.EDIT_FAILED, str(error)))
        if isinstance(found, Stays):
            return ports.Ended(Status.NO_WORK, Reason(ReasonCode.TASK_NOT_MOVED, found.reason))
        facts = {
            "task": number,
            "trigger": key_time(found.trigger_at),
            "triggers": found.triggers,
            "next": key_time(found.next_at),
            **committed,
        }
        return ports.Ended(Status.DONE, Reason(ReasonCode.TASK_MOVED, found.words), facts=facts)


class _EditRun:
    process = ports.Process(0, 0)

    def __init__(self, work: Callable[[], Awaitable[ports.Ended]]) -> None:
        self._work = work
        self._going: asyncio.Future[ports.Ended] | None = None
        self._cancelled = ""

    def go(self) -> None:
        if not self._cancelled:
            self._going = asyncio.ensure_future(self._work())

    def cancel(self, reason: str) -> None:
        """Prevent the start; an edit in progress is short and is completed."""
        self._cancelled = reason

    async def ended(self) -> ports.Ended:
        if self._going is not None:
            return await self._going
        is_cancelled = Reason(ReasonCode.CANCELLED, self._cancelled)
        return ports.Ended(Status.KILLED, is_cancelled if self._cancelled else NEVER_STARTED)
