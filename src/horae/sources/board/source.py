"""The board as a source: Markdown tasks that are dispatched, and recycled by schedule.

Every open task is an entry without a time, so that each dispatch has a receipt. `scheduled_for`
fires nothing: the dispatcher reads it.

A recurring task has an entry with its cron expression: at each trigger it is recycled if it is
done. While it *is* done it has a second entry, the first trigger since it was last recycled, as a
delay: so no trigger is lost that passed while the task was open or no engine ran. For a future
trigger it is a check one minute later, at which the task is usually recycled already.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import stat
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from horae.core import entry as core
from horae.core.entry import Entry, Origin, Unarmed, Work
from horae.core.receipt import Filed, Status
from horae.core.source import Mark, Scan, Scanned, digest_of
from horae.errors import ScheduleError
from horae.files.read import Content, PlanFileError, PlanMissingError, head_of, read_plan, told
from horae.org.plan import Diagnostic, Severity
from horae.sources.board import ELSEWHERE, recycle
from horae.sources.board.rules import (
    CLOSED,
    NOBODY,
    Members,
    complaints,
    moment,
    task_policy,
    work_policy,
)
from horae.sources.board.task import Task, id_of, parse
from horae.sources.board.tasks import Board, TaskAmbiguousError, ambiguous, card_of

if TYPE_CHECKING:
    from horae.core.ports import Ledger

READER: Final = 6  # raised when the same task would give another entry
ODD: Final = "task"  # the code of findings about a task
_LOOK: Final = 100  # events per page
MOST_EVENTS: Final = 10 * 2**20  # bytes of `events.jsonl` before it is rotated

# A failed edit is repeated, which has the effect of once.
_RETRY: Final = core.Retry(20, timedelta(seconds=30))


@dataclass(eq=False)
class BoardSource:
    name = "board"

    board: Board
    _: KW_ONLY
    now: Callable[[], datetime]
    follow_up: Callable[[Filed], Awaitable[None]] | None = None
    changed: Callable[[], None] | None = None
    ledger: Ledger | None = None
    term: int = 1

    def __post_init__(self) -> None:
        self._clock = self.now
        self._ids: dict[str, int | None] = {}  # the number of the task in each file
        self._shelf = self.board.cache(self._understand, f"board-{READER}")

    async def scan(self, index: Mapping[str, str]) -> Scan:
        scan = await asyncio.to_thread(self._look, index)
        known = {file: known_as for file, known_as in index.items() if known_as}
        if self.changed is not None and (scan.entries or scan.index != known):
            self.changed()
        return scan

    async def settle(self, receipt: Filed) -> None:
        if self.follow_up is not None and receipt.work is Work.DISPATCH:
            await self.follow_up(receipt)
        if receipt.work is not Work.RECYCLE or receipt.status is not Status.DONE:
            return
        event = recycle.event_of(receipt.receipt.reason)
        if event is None:
            return
        await self._note_once(receipt, event)
        line = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
        await asyncio.to_thread(add_event, events_path(self.board.directory), line)

    async def _note_once(self, filed: Filed, event: Mapping[str, Any]) -> None:
        if self.ledger is None:
            return
        at, kind = filed.ended_at or filed.decided_at, recycle.RECYCLED
        through = await self.ledger.newest_event()
        while through > 0:
            # Newest first: an event follows its receipt closely.
            first = max(0, through - _LOOK)
            page = await self.ledger.events_after(first, limit=through - first)
            if any(each.kind == kind and each.receipt == filed.number for each in page):
                return
            through = 0 if any(each.at < at for each in page) else first
        facts = {"task": event["task"], "reason": event["reason"]}
        which = {"entry": filed.entry, "receipt": filed.number}
        await self.ledger.note(kind, now=at, term=self.term, facts=facts, **which)

    def _look(self, index: Mapping[str, str]) -> Scan:
        scan = self._shelf.look(index)
        if any(isinstance(problem, PlanMissingError) for problem in scan.problems):
            # A missing board is only a problem if there was one.
            return scan if index else replace(scan, problems=())
        for file in scan.standing:
            if file not in self._ids:
                self._ids[file] = self._id_in(file)
        # Read again: the file may have changed since, or be gone.
        for suspect in self._suspects():
            self._ids |= {file: self._id_in(file) for file in suspect.files}
        return replace(scan, problems=(*scan.problems, *self._suspects()))

    def _suspects(self) -> list[TaskAmbiguousError]:
        known = self._ids.items()
        return ambiguous((number, file) for file, number in known if number is not None)

    def _id_in(self, file: str) -> int | None:
        try:
            return id_of(read_plan(f"{self.board.top}{file}", limit=self.board.limit).text)
        except PlanFileError:
            return None

    def _understand(self, content: Content, file: str) -> tuple[Scanned, ...]:
        task = card_of(content).task
        self._ids[file] = task.id
        # The clock is read after the files, so that no trigger is between the two.
        return (*_recurring(task, content, file, self._clock()), *_open(task, content, file))


def waiting_tasks(board: Board, *, now: datetime) -> list[core.PlanTask]:
    """Return the tasks that wait for a time, unless their schedule has that time, too."""
    found: list[core.PlanTask] = []

    def understand(content: Content, file: str) -> tuple[Scanned, ...]:
        task = card_of(content).task
        at = moment(task.scheduled_for)
        if at is not None and task.status not in CLOSED and not task.is_archived:
            try:
                is_told = at > now and recycle.is_trigger(task, at)
            except ScheduleError:
                is_told = False
            if not is_told:
                origin = Origin(file, task.fields.places["scheduled_for"].line)
                found.append(core.PlanTask(origin, task.title, at.astimezone(UTC), None))
        return ()

    board.cache(understand, "").look({})
    return found


def check_board(board: Board, *, now: datetime, crew: Members = NOBODY) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    files: dict[str, Task] = {}

    def understand(content: Content, file: str) -> tuple[Scanned, ...]:
        task, problems = parse(content.text, name=file)
        found.extend(problems)
        if task is not None:
            files[file] = task
        return ()

    def odd(file: str, field: str, severity: Severity, message: str, fix: str) -> None:
        places = files[file].fields.places
        place = places.get(field, places["id"])
        found.append(Diagnostic(file, place.line, place.column, ODD, severity, message, fix))

    scan = board.cache(understand, "").look({})
    for problem in scan.problems:
        if isinstance(problem, PlanFileError) and not isinstance(problem, PlanMissingError):
            place = (problem.path, problem.line or 1, problem.column or 1)
            found.append(Diagnostic(*place, ODD, Severity.ERROR, problem.reason))
    by_task = {id(task): file for file, task in files.items()}
    for each in complaints([*files.values()], now=now, archived=board.archived(), crew=crew):
        odd(by_task[id(each.task)], each.field, Severity.WARNING, each.message, each.fix)
    for double in ambiguous((task.id, file) for file, task in files.items()):
        for file in double.files:
            odd(file, "id", Severity.ERROR, double.reason, double.fix)
    return sorted(found)


def events_path(tasks: str) -> str:
    """Return the file of the events of a board.

    >>> events_path("plan/board/tasks"), events_path("/p/.batty/team_config/board/tasks")
    ('plan/board/events.jsonl', '/p/.batty/team_config/events.jsonl')
    """
    parts = tasks.rstrip("/").split("/")
    is_elsewhere = parts[-4:] == ELSEWHERE.split("/")
    return "/".join([*parts[: -2 if is_elsewhere else -1], "events.jsonl"])


def add_event(path: str, line: str, *, most: int = MOST_EVENTS) -> None:
    """Append a line of events durably, unless it exists.

    A full file becomes `.1`.
    """
    with told(path):
        while not _added(path, line.encode(), most):
            pass  # it was rotated: a new one replaces it


def _added(path: str, line: bytes, most: int) -> bool:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise PlanFileError(path, "is not a regular file; move or remove it")
        if os.stat(path, follow_symlinks=False).st_ino != status.st_ino:
            return False  # another process rotated it while we waited for the lock
        known, rotated = os.pread(descriptor, status.st_size, 0), b""
        with suppress(OSError):  # nothing was rotated yet
            rotated = head_of(f"{path}.1", most, follows_link=False)
        if line in known.split(b"\n") or line in rotated.split(b"\n"):
            return True
        if known and len(known) + len(line) >= most:
            os.replace(path, f"{path}.1")
            return False
        # A line cut by a crash must not run into this one.
        is_cut = known and not known.endswith(b"\n")
        os.write(descriptor, (b"\n" if is_cut else b"") + line + b"\n")
        os.fsync(descriptor)
        return True
    finally:
        os.close(descriptor)


def work_address(number: int) -> str:
    """Return the address of the entry that dispatches a task.

    >>> work_address(7), task_at("task:7:work"), task_at("task:7")
    ('task:7:work', 7, None)
    """
    return f"task:{number}:work"


def task_at(address: str) -> int | None:
    number = address.removeprefix("task:").removesuffix(":work")
    return int(number) if number.isdecimal() and address == work_address(int(number)) else None


def _open(task: Task, content: Content, file: str) -> Iterator[Scanned]:
    if task.status in CLOSED or task.is_archived:
        return
    address, assignee = work_address(task.id), task.text("assignee")
    title = task.title
    # Tasks are never matched by similarity: each part of the mark includes the number.
    # The third is stored and compared: another text would end the rule of every open task.
    mark = Mark(address, title, f"handed out as #{task.id}", digest_of(address))
    origin = Origin(file, task.fields.places["title"].line)
    try:
        policy = work_policy(task)
    except ScheduleError as error:
        yield Scanned(mark, Unarmed(address, origin, title, str(error)), content.text)
        return
    how = (core.OnDemandRule(), Work.DISPATCH, (assignee,) if assignee else (), policy)
    entry = Entry(address, origin, title, *how, digest=digest_of(content.text))
    yield Scanned(mark, entry, content.text)


def _recurring(task: Task, content: Content, file: str, now: datetime) -> Iterator[Scanned]:
    cron, text, places = task.cron_schedule, content.text, task.fields.places
    if cron is None:
        return
    mark = Mark(f"task:{task.id}", task.title, cron, digest_of(task.body))
    origin = Origin(file, places["cron_schedule"].line)
    about, zone = (mark.address, origin, task.title), task.timezone or "UTC"
    try:
        rule = core.cron_rule(cron, zone_name=zone)
        policy = structs.replace(task_policy(task), retry=_RETRY)
    except ScheduleError as error:
        yield Scanned(mark, Unarmed(*about, str(error)), text, broken=str(error))
        return
    never = next((each.expression for each in rule.crons if each.never), None)
    if never or task.is_archived:
        reason = f"cron {never!r} matches no date" if never else "the task is archived"
        yield Scanned(mark, Unarmed(*about, reason), text)
        return
    entry = Entry(*about, rule, Work.RECYCLE, policy=policy, zone=zone, digest=digest_of(text))
    yield Scanned(mark, entry, text)
    if task.status != "done":
        return
    # When the file was last changed: independent of the current time.
    with told(content.path):
        changed = os.stat(content.path, follow_symlinks=False).st_ctime
    at = recycle.first_trigger(task, written_at=min(datetime.fromtimestamp(changed, UTC), now))
    if at is not None:
        owed = structs.replace(
            entry,
            address=f"{entry.address}:back",
            origin=Origin(file, places["status"].line),
            rule=recycle.back_rule(task, at, now=now),
        )
        mark = Mark(owed.address, owed.title, core.key_time(at), digest_of(owed.address))
        yield Scanned(mark, owed, text)
