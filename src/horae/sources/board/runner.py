"""Dispatch at work: an open task goes to a free member, and its file says so from begin to end.

What a task may wait for and who gets it is decided in the rules. Here a receipt is filed for
it, the claim stands in its file before the run is let go, and the end of the run moves the
file on. The file decides: whatever a person saves in between is right, the same edit twice
changes nothing, and a claim is known by its holder and its moment, so that after a crash the
file itself says what is left to do.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from horae.core.entry import Work, key_time
from horae.core.ports import (
    Ended,
    HeldBackError,
    LauncherLostError,
    LedgerBusyError,
    LedgerError,
    LedgerWriteError,
    Process,
    RunError,
    Unreleased,
)
from horae.core.receipt import BAD, FINAL, OPEN, Reason, ReasonCode, Receipt, Status
from horae.errors import HoraeError
from horae.files.git.trees import Trees
from horae.files.read import PlanFileError
from horae.process.processes import UNRELEASED
from horae.process.run_settings import facts_of
from horae.sources.agents.runner import hold_agent, look_back_agent, why_unable
from horae.sources.board.dispatch import (
    GRACE,
    after_run,
    assign,
    candidates,
    claim,
    is_claim_of,
    lapsed,
    prompt,
    rest_after,
    wakes_at,
    why_not,
)
from horae.sources.board.rules import TaskStatuses
from horae.sources.board.source import task_at, work_address
from horae.sources.board.tasks import BoardMissingError, TaskAmbiguousError, TaskMissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from horae.core.gate import Gate
    from horae.core.ports import Clock, Held, Job, Ledger, Listed, Run
    from horae.core.receipt import Filed
    from horae.process.processes import Processes
    from horae.process.run_settings import RunSettings
    from horae.sources.agents.runner import Agent, Registry
    from horae.sources.board.dispatch import Assignment
    from horae.sources.board.rules import Changes
    from horae.sources.board.task import Task
    from horae.sources.board.tasks import Card, Cards, CommittedBoard
    from horae.sources.crew.rules import Member
    from horae.sources.crew.source import Roster

log = logging.getLogger(__name__)

KEY: Final = "dispatch:"
AGAIN: Final = timedelta(seconds=1)  # after a ledger that could not be written
UNCLAIMED: Final = timedelta(minutes=1)  # after a run that ended before its task was claimed
UNREAD: Final = timedelta(seconds=7)  # after a board or a manifest that could not be read
_LONGEST_REST: Final = timedelta(hours=1)  # nothing is to come, as far as the board says
_PAGE: Final = 100
_NOBODY: Final = Process(0, 0)  # a run that starts no process


def busy_at(gate: Gate) -> frozenset[str]:
    """Return the agents that whatever runs now has for itself."""
    return frozenset(name for holding in gate.holders for name in holding.ask.agents)


class Dispatcher:
    """Hands open tasks to free members; it only files receipts, and the gate does the rest.

    It looks when it is asked to, and when a time that stands on the board has come. *busy*
    tells which agents are at work. *rest* is how long a task rests after so many bad ends.
    """

    def __init__(
        self,
        board: CommittedBoard,
        roster: Roster,
        *,
        registry: Registry,
        environ: Mapping[str, str],
        ledger: Ledger,
        clock: Clock,
        busy: Callable[[], Collection[str]],
        excluded: Collection[str] = (),
        rest: Callable[[int], timedelta] = rest_after,
        term: int = 1,
    ) -> None:
        self._board = board
        self._roster = roster
        self._registry = registry
        self._environ = environ
        self._ledger = ledger
        self._clock = clock
        self._busy = busy
        self._excluded = excluded
        self._rest = rest
        self._term = term
        self._asked = asyncio.Event()
        self._is_stale = True  # whether somebody should look
        self._were_busy: frozenset[str] = frozenset()
        self._out: dict[int, _Out] | None = None  # receipts that are not over, once that is known
        self._failed: dict[int, datetime] = {}  # tasks that rest since their last run, and its end
        self._handed: dict[int, Task] = {}  # tasks as they stood when they were handed out
        self._numbers: dict[str, int] = {}  # entries by address; neither ever changes
        self.next_at: datetime | None = None  # when something on the board is over by itself
        self.problem: Exception | None = None  # what kept the last look from it all

    def note_change(self) -> None:
        """Take note that the board changed, or a run is over; after its turn the loop asks."""
        self._is_stale = True

    def turned(self) -> None:
        """Look if there is a reason to: the board changed, somebody is free, or a time has come.

        To be called after each turn of the loop; it costs nothing if there is none.
        """
        busy = frozenset(self._busy())
        is_freed = not self._were_busy <= busy
        self._were_busy = busy
        is_time = self.next_at is not None and self.next_at <= self._clock.now()
        if self._is_stale or is_freed or is_time:
            self._asked.set()

    async def run(self, offer: Callable[[Sequence[Filed]], None]) -> None:
        """Look whenever there is a reason to, for ever, and offer what was filed."""
        while True:
            until = self.next_at or self._clock.now() + _LONGEST_REST
            await self._clock.wait(self._asked, until=until)
            self._asked.clear()
            now = self._clock.now()
            try:
                offer(await self.look(now))
            except (LedgerBusyError, LedgerWriteError) as error:
                log.debug("dispatching failed, trying again in %s: %s", AGAIN, error)
                self.problem, self.next_at = error, now + AGAIN
            except LedgerError:
                raise
            except Exception as error:  # neither the board nor the crew may end the engine
                log.debug("dispatching failed, trying again in %s", UNREAD, exc_info=error)
                self.problem, self.next_at = error, now + UNREAD

    async def look(self, now: datetime) -> list[Filed]:
        """Hand out what can be handed out, and return the receipts of it.

        Claims whose time is over are taken back first. To look twice files nothing twice.
        """
        self._is_stale = False
        self.problem = None
        members = await asyncio.to_thread(self._roster.members)
        if not members:
            self.next_at = None
            return []
        out = await self._still_out()
        cards = await self._board.read()
        at_work = {each.task for each in out.values()}
        if await self._take_back(cards, at_work, now):
            cards = await self._board.read()
        tasks = cards.tasks
        # What was changed since, and be it back again, is not what was handed out.
        known = {task.id: task for task in tasks}
        self._handed = {n: task for n, task in self._handed.items() if known.get(n) == task}
        resting = self._resting(tasks, now)
        coming = (wakes_at(tasks, now=now), *resting.values())
        self.next_at = min((at for at in coming if at is not None), default=None)
        taken = {each.member for each in out.values()} | {*self._busy()}
        free = await self._free(members, taken)
        if not free:
            return []
        line = [
            task
            for task in candidates(tasks, now=now, archived=cards.archived, excluded=self._excluded)
            if task.id not in at_work and task.id not in resting
        ]
        return await self._hand_out(line, free, now)

    async def _free(self, members: Sequence[Member], taken: Collection[str]) -> list[str]:
        """Return who can be handed a task, in the order of the crew."""
        if all(each.name in taken for each in members):
            return []
        able = await asyncio.to_thread(self._able, members)
        return [name for name in able if name not in taken and not await self._is_resting(name)]

    async def _hand_out(self, line: list[Task], free: list[str], now: datetime) -> list[Filed]:
        filed: list[Filed] = []
        while given := assign(line, free=free):
            refused = set()
            for each in given:
                made = await self._file(each, now)
                if made is None:
                    refused.add(each.task.id)
                    continue
                filed.append(made)
                free.remove(each.member)
            if not refused or self._is_stale:
                break
            # What is paused goes to nobody, and keeps nobody from the next in line.
            passed = refused | {each.task.id for each in given}
            line = [task for task in line if task.id not in passed]
        return filed

    async def _file(self, given: Assignment, now: datetime) -> Filed | None:
        """Return the receipt by which a task goes to a member; None if it cannot now."""
        task, member = given
        known = await self._entry(work_address(task.id))
        if known is None:  # what is on the board is soon in the ledger, and then we look again
            self._is_stale = True
            return None
        newest = await self._newest(known.number)
        if newest is not None and (newest.status not in FINAL or self._rests(task, newest, now)):
            return None
        count = 0 if newest is None else int(newest.receipt.key.removeprefix(KEY))
        words = f"assigned to {member}: first in the queue ({task.priority or 'no'} priority)"
        reason = Reason(ReasonCode.ASSIGNED, words)
        receipt = Receipt(f"{KEY}{count + 1}", Status.WAITING, reason, now, now)
        made = await self._ledger.add(
            known.number, [receipt], now=now, term=self._term, agents=(member,)
        )
        if not made or made[0].status in FINAL:
            return None
        assert self._out is not None, "a look begins with it"
        self._out[made[0].number] = _Out(task.id, member)
        self._handed[task.id] = task
        self._failed.pop(task.id, None)
        return made[0]

    def _rests(self, task: Task, newest: Filed, now: datetime) -> bool:
        """Tell whether a task still rests after its last run, and if so remember it."""
        is_unbegun = self._handed.get(task.id) == task
        if newest.status not in BAD and not is_unbegun:
            return False
        ended_at = newest.ended_at or newest.decided_at
        until = self._rests_until(task, ended_at, now)
        if until <= now:
            return False
        self._failed[task.id] = ended_at
        self.next_at = until if self.next_at is None else min(until, self.next_at)
        return True

    async def _entry(self, address: str) -> Listed | None:
        if address not in self._numbers:
            found = await self._ledger.find(address)
            number = next((each.number for each in found if each.mark.address == address), None)
            if number is None:
                return None
            self._numbers[address] = number
        known = await self._ledger.entry(self._numbers[address])
        return None if known is None or known.gone_at is not None else known

    async def _is_resting(self, member: str) -> bool:
        """Tell whether somebody let a member rest: then it does not tick, either."""
        known = await self._entry(f"agent:{member}")
        return known is not None and known.pause is not None

    async def _newest(self, entry: int) -> Filed | None:
        """Return the last receipt by which a task was handed out."""
        cursor: int | None = None
        while True:
            page = await self._ledger.receipts(entry=entry, cursor=cursor, limit=_PAGE)
            for filed in page.receipts:
                if filed.receipt.key.removeprefix(KEY).isdecimal():
                    return filed
            if page.cursor is None:
                return None
            cursor = page.cursor

    async def _still_out(self) -> dict[int, _Out]:
        """Return what was handed out and is not over, by receipt."""
        if self._out is None:
            self._out = await self._left_over()
        for number in tuple(self._out):
            filed = await self._ledger.receipt(number)
            if filed is None or filed.status in FINAL:
                del self._out[number]
        return self._out

    async def _left_over(self) -> dict[int, _Out]:
        """Return what an engine before this one handed out."""
        found: dict[int, _Out] = {}
        cursor: int | None = None
        while True:
            page = await self._ledger.receipts(statuses=OPEN, cursor=cursor, limit=_PAGE * 10)
            for filed in page.receipts:
                if filed.work is Work.DISPATCH and filed.agents:
                    known = await self._ledger.entry(filed.entry)
                    number = None if known is None else task_at(known.mark.address)
                    if number is not None:
                        found[filed.number] = _Out(number, filed.agents[0])
            if page.cursor is None:
                return found
            cursor = page.cursor

    async def _take_back(self, cards: Cards, at_work: Collection[int], now: datetime) -> bool:
        """Free the tasks whose holders let their time run out; tell whether there were any."""
        over = lapsed((task for task in cards.tasks if task.id not in at_work), now=now)

        def decide(task: Task) -> Changes:
            return lapsed([task], now=now).get(task.id, {})

        for number in over:
            try:
                await self._board.change(number, decide, message=_moved)
            except (HoraeError, OSError) as error:  # one file in the way stops no other
                self.problem = error
        return bool(over)

    def _resting(self, tasks: Sequence[Task], now: datetime) -> dict[int, datetime]:
        """Return until when tasks rest whose last run ended badly, or was not begun."""
        if not self._failed:
            return {}
        known = {task.id: task for task in tasks if task.id in self._failed}
        self._failed = {number: self._failed[number] for number in known}
        ends = {n: self._rests_until(known[n], at, now) for n, at in self._failed.items()}
        return {number: at for number, at in ends.items() if at > now}

    def _rests_until(self, task: Task, ended_at: datetime, now: datetime) -> datetime:
        """Return when a task may be tried again.

        How often it was tried stands in its file: whoever takes that out need not wait.
        """
        # An end that is still to come was written by a clock that ran ahead.
        rest = self._rest(task.number("attempt") or 0)
        if self._handed.get(task.id) == task:
            # A run that was not begun, or ended before its task could be claimed, has left no
            # trace in the file, and would end so again.
            rest = max(rest, UNCLAIMED)
        return min(ended_at, now) + rest

    def _able(self, members: Sequence[Member]) -> list[str]:
        """Return those who can run, in their order; if nobody can, all: the receipt says why."""
        able = [each.name for each in members if self._can_run(each)]
        return able or [each.name for each in members]

    def _can_run(self, member: Member) -> bool:
        try:
            agent = self._roster.agent(member)
        except RunError:
            return False
        return self._registry.obstacle(agent, environ=self._environ) is None


class DispatchRunner:
    """Makes the runs of tasks that were handed out.

    *heard* is told whenever one is over.
    """

    def __init__(
        self,
        processes: Processes,
        place: RunSettings,
        board: CommittedBoard,
        roster: Roster | None,
        *,
        registry: Registry,
        ledger: Ledger,
        clock: Clock,
        timeout: timedelta | None = None,
        trees: Trees | None = None,
        heard: Callable[[], None] | None = None,
    ) -> None:
        self._processes = processes
        self._place = place
        self._board = board
        self._roster = roster
        self._registry = registry
        self._ledger = ledger
        self._clock = clock
        self._timeout = timeout
        self._trees = trees or Trees(place.root, place.data)
        self._heard = heard

    async def hold(self, job: Job) -> Held:
        """Make the run of a task that waits for its go; its file says so from now on."""
        errand = await self._errand(job.filed)
        if errand is None:
            raise RunError("the entry is not a task of the board")
        agent, timeout = await asyncio.to_thread(self._who, job.filed, errand)
        obstacle = await why_unable(self._registry, agent, self._place)
        if obstacle is not None:
            raise HeldBackError(obstacle)
        try:
            card = await self._claim(errand, job.run, timeout)
        except (TaskMissingError, TaskAmbiguousError, BoardMissingError) as error:
            card = str(error)
        except (HoraeError, OSError) as error:
            raise RunError(str(error)) from error
        if isinstance(card, str):
            return _NotBegun(f"task #{errand.task} was not started: {card}")
        try:
            tree = await self._trees.make(errand.member)
            run = await hold_agent(
                self._registry,
                replace(agent, directory=tree.path),
                prompt(card.task, file=self._name(card)),
                run=job.run,
                processes=self._processes,
                place=self._place,
                timeout=timeout,
                facts={
                    **facts_of(job, self._place, timeout=timeout, api=agent.definition.api),
                    "HORAE_TASK": str(errand.task),
                },
            )
        except (LauncherLostError, LedgerError):
            raise  # it is asked for again, and knows its own claim
        except (HoraeError, OSError) as error:
            await self._move(errand, Status.FAILED, str(error))
            raise RunError(str(error)) from error
        return _Working(self, errand, run)

    async def look_back(self, filed: Filed, run: Run) -> Ended | Unreleased | None:
        """Return how a run ended that an engine before this one made; None is unknown."""
        directory = self._place.directory_of(run)
        found = await look_back_agent(self._processes, directory, run.number)
        if found is UNRELEASED:
            return Unreleased()
        errand = None if found is None else await self._errand(filed)
        return found if found is None or errand is None else await self.over(errand, found)

    async def obstacle(self, filed: Filed) -> str | None:
        """Return why a task that is held back would be so again; None if it would not."""
        errand = await self._errand(filed)
        if errand is None:
            return None
        agent, _ = await asyncio.to_thread(self._who, filed, errand)
        return await why_unable(self._registry, agent, self._place)

    async def over(self, errand: Errand, how: Ended) -> Ended:
        """Return an end with where its work went and what became of its task."""
        brought = await self._trees.deliver(errand.member)
        facts = {**how.facts, "task": errand.task, **brought.facts()}
        # What did not go in cleanly has to be looked at by somebody, however well it was done.
        facts |= await self._move(errand, how.outcome, how.reason, branch=brought.branch)
        return replace(how, facts=facts)

    async def settle(self, filed: Filed) -> None:
        """Let the file of a task follow its receipt, if it does not already."""
        if filed.work is not Work.DISPATCH or filed.status not in FINAL:
            return
        errand = await self._errand(filed)
        if errand is None:
            return
        if errand.stamps:
            await self._edit(errand, filed.status, filed.receipt.reason)
        if self._heard is not None:
            self._heard()

    async def _errand(self, filed: Filed) -> Errand | None:
        """Return who has which task by a receipt, and since when its runs may have claimed it."""
        known = await self._ledger.entry(filed.entry)
        number = None if known is None else task_at(known.mark.address)
        if number is None:
            return None
        runs = await self._ledger.runs_of(filed.number)
        stamps = frozenset(key_time(run.started_at) for run in runs)
        return Errand(number, filed.agents[0] if filed.agents else "", stamps)

    def _who(self, filed: Filed, errand: Errand) -> tuple[Agent, timedelta]:
        """Return who does a task, and how long that may take."""
        if not filed.agents:
            reason = f"task #{errand.task} has no assignee; write one into its file"
            raise RunError(f"{reason}, or set `board.auto_dispatch = true`")
        try:
            members = () if self._roster is None else self._roster.members()
        except PlanFileError as error:
            raise RunError(str(error)) from None
        member = next((each for each in members if each.name == errand.member), None)
        if self._roster is None or member is None:
            raise RunError(f"{errand.member} is not a member of the crew")
        agent = self._roster.agent(member)
        own = member.timeout or agent.definition.timeout
        return agent, own or self._timeout or self._place.timeout

    async def _claim(self, errand: Errand, run: Run, timeout: timedelta) -> Card | str:
        """Claim a task in its file, or return why it is not to be done any more."""
        cards = await self._board.read()
        ground = TaskStatuses.of(cards.tasks, archived=cards.archived)
        now = self._clock.now()
        reason: str | None = None

        def decide(task: Task) -> Changes:
            nonlocal reason
            reason = None if errand.has(task) else _objection(task, errand.member, ground, now)
            if reason is not None:
                return {}
            return claim(task, errand.member, now=run.started_at, ttl=timeout + GRACE)

        made = await self._board.change(
            errand.task, decide, message=lambda task: f"Assign task #{task.id} to {errand.member}"
        )
        return made.card if reason is None else reason

    async def _move(
        self, errand: Errand, outcome: Status, reason: str, *, branch: str | None = None
    ) -> dict[str, object]:
        """Move a task on after its run; what is in the way is said, and tried once more later."""
        try:
            return await self._edit(errand, outcome, reason, branch=branch)
        except (HoraeError, OSError) as error:
            return {"board": str(error)}

    async def _edit(
        self, errand: Errand, outcome: Status, reason: str, *, branch: str | None = None
    ) -> dict[str, object]:
        """Move a task on after its run, if it is still claimed for that."""
        now = self._clock.now()

        def decide(task: Task) -> Changes:
            if not errand.has(task):
                return {}
            return after_run(task, outcome, reason=reason, now=now, branch=branch)

        try:
            # Most often this is all: no git is asked for what moved on long ago.
            if not errand.has((await self._board.card(errand.task)).task):
                return {}
            made = await self._board.change(errand.task, decide, message=_moved)
        except (TaskMissingError, BoardMissingError):
            return {}
        return {"status": made.card.task.status, **made.facts}

    def _name(self, card: Card) -> str:
        """Return the file of a task as whoever works beneath the root calls it."""
        return card.path.removeprefix(f"{self._place.root}/")


@dataclass(frozen=True, slots=True)
class Errand:
    """A task in the hands of a member, by one receipt; `stamps` are the moments of its runs."""

    task: int
    member: str
    stamps: frozenset[str]

    def has(self, task: Task) -> bool:
        """Tell whether the claim that stands in a task was made for this."""
        return is_claim_of(task, self.member, stamps=self.stamps)


@dataclass(frozen=True, slots=True)
class _Out:
    """What was handed out, and to whom."""

    task: int
    member: str


class _Working:
    """A run of a member at its task."""

    def __init__(self, runner: DispatchRunner, errand: Errand, run: Held) -> None:
        self._runner = runner
        self._errand = errand
        self._run = run
        self._cancelled = ""

    @property
    def process(self) -> Process:
        return self._run.process

    def go(self) -> None:
        """Let it begin."""
        self._run.go()

    def cancel(self, reason: str) -> None:
        """End it and all that it started."""
        self._cancelled = reason
        self._run.cancel(reason)

    async def ended(self) -> Ended:
        """Return how it ended, once its work is delivered and its task moved on."""
        how = await self._run.ended()
        if self._cancelled:  # whatever it says of itself, it was not let finish
            reason = Reason(ReasonCode.CANCELLED, self._cancelled)
            how = replace(how, outcome=Status.KILLED, reason=reason)
        return await self._runner.over(self._errand, how)


class _NotBegun:
    """A run of a task that somebody changed before it could begin."""

    process = _NOBODY

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def go(self) -> None:
        """Do nothing: there is nothing to do any more."""

    def cancel(self, reason: str) -> None:
        """Do nothing: it is over at once."""

    async def ended(self) -> Ended:
        """Return that there was nothing to do, and why."""
        return Ended(Status.NO_WORK, Reason(ReasonCode.TASK_NOT_STARTED, self._reason))


def _objection(task: Task, member: str, ground: TaskStatuses, now: datetime) -> str | None:
    """Return why a member does not get a task, as it stands now."""
    assignee = task.text("assignee")
    is_for_others = assignee is not None and assignee != member
    return why_not(task, ground, now=now) or (f"assigned to {assignee}" if is_for_others else None)


def _moved(task: Task) -> str:
    return f"Move task #{task.id} to {task.status}"
