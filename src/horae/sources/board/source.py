"""The board as a source: Markdown tasks that are handed out, and that come back by the clock.

Only recurrence makes an entry that fires. `scheduled_for` alone fires nothing: it is a gate,
which whoever hands out tasks reads. Every open task is also an entry without a moment of its
own, so that each time it is handed to somebody has a receipt, a history and a reason.

A task that recurs has an entry by its cron expression, whatever its status: at each trigger
somebody looks whether it is done, and if so it comes back. While it *is* done it has a second
entry, the first trigger that it has not come back for, as a delay. That one is due until it
has a receipt, however long ago the trigger was: so a trigger that passed while the task was
not done brings it back as soon as it is, and one that passed while nobody looked is not lost.
For a trigger that is still to come when the task is found done, it is a net, a minute behind:
by then the task has come back, as a rule, and is no longer done, and so the net is gone.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.entry import (
    Entry,
    OnDemandRule,
    Origin,
    Retry,
    Task as Gate,
    Unarmed,
    Work,
    cron_rule,
    key_time,
)
from horae.core.identity import Mark
from horae.core.receipt import Status
from horae.core.source import Scanned
from horae.errors import ScheduleError
from horae.files.cache import FileCache
from horae.files.read import (
    LIMIT,
    MOST,
    PlanFileError,
    PlanMissingError,
    read_plan,
    told,
)
from horae.org.plan import Diagnostic, Severity
from horae.sources.board.recycle import (
    RECYCLED,
    back_address,
    back_rule,
    event_of,
    first_trigger,
    is_net,
    is_trigger,
)
from horae.sources.board.rules import CLOSED, complaints, moment, task_policy, work_policy
from horae.sources.board.task import id_of, parse
from horae.sources.board.tasks import (
    ELSEWHERE,
    TASKS,
    Board,
    RecycleRunner,
    TaskFileError,
    ambiguous,
    card_of,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from horae.core.ports import Ledger
    from horae.core.receipt import Filed
    from horae.core.source import Scan
    from horae.errors import HoraeError
    from horae.files.read import Content, StrPath
    from horae.sources.board.recycle import RecycledEvent
    from horae.sources.board.task import Task
    from horae.sources.board.tasks import TaskAmbiguousError

__all__ = [
    "BoardSource",
    "EventLog",
    "Hours",
    "RecycleRunner",
    "TaskFileError",
    "check_board",
    "events_path",
    "hours_of",
]

# To be raised when the same task would give another entry.
READER: Final = 5
ODD: Final = "task"  # the code of what is odd in a task
_LOOK: Final = 100  # so many events of the ledger are looked at in one go
MOST_EVENTS: Final = 10 * 2**20  # bytes of `events.jsonl` before it is put aside

# An edit that could not be made is made again: twice is the same as once.
_RETRY: Final = Retry(20, timedelta(seconds=30))


class BoardSource:
    """The tasks of a board; *tasks* is its directory, from the root, and *now* the clock.

    *follow_up* follows the receipts of what was handed out; *changed* hears of each scan that
    found something new. In a *ledger*, what is written into `events.jsonl` is an event, too.
    """

    name = "board"

    def __init__(
        self,
        root: StrPath,
        *,
        now: Callable[[], datetime],
        tasks: str = TASKS,
        limit: int = LIMIT,
        most: int = MOST,
        inline: bool = False,
        follow_up: Callable[[Filed], Awaitable[None]] | None = None,
        changed: Callable[[], None] | None = None,
        ledger: Ledger | None = None,
        term: int = 1,
    ) -> None:
        self._inline = inline
        self._ledger = ledger
        self._term = term
        self._follow_up = follow_up
        self._changed = changed
        tasks = tasks.strip("/")
        self._events = EventLog(events_path(f"{os.fspath(root)}/{tasks}"))
        self._root = os.fspath(root)
        self._limit = limit
        self._now = now
        self._ids: dict[str, int | None] = {}  # the numbers of the tasks, by file
        self._shelf = _shelf(root, tasks, self._understand, limit=limit, most=most)

    async def scan(self, index: Mapping[str, str]) -> Scan:
        """Return the tasks of every file that the ledger does not know as it stands."""
        scan = self._look(index) if self._inline else await asyncio.to_thread(self._look, index)
        known = {file: known_as for file, known_as in index.items() if known_as}
        if self._changed is not None and (scan.entries or scan.index != known):
            self._changed()
        return scan

    async def settle(self, receipt: Filed) -> None:
        """Write the event of a task that came back; to be asked twice writes it once."""
        if self._follow_up is not None and receipt.work is Work.DISPATCH:
            await self._follow_up(receipt)
        if receipt.work is not Work.RECYCLE or receipt.status is not Status.DONE:
            return
        event = event_of(receipt.receipt.reason)
        if event is None:
            return
        if self._ledger is not None:
            await _note_once(self._ledger, receipt, event, term=self._term)
        line = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
        if self._inline:
            self._events.add(line)
        else:
            await asyncio.to_thread(self._events.add, line)

    def _look(self, index: Mapping[str, str]) -> Scan:
        """Look at the tasks; that there is no board is only a problem if there was one."""
        scan = self._shelf.look(index)
        is_absent = any(isinstance(problem, PlanMissingError) for problem in scan.problems)
        if is_absent:
            return scan if index else replace(scan, problems=())
        return replace(scan, problems=(*scan.problems, *self._doubles(scan)))

    def _doubles(self, scan: Scan) -> list[TaskAmbiguousError]:
        """Return which numbers several files have, also of files that were not read now."""
        for file in scan.standing:
            if file not in self._ids:
                self._ids[file] = self._id_in(file)
        # What was read before may have changed since, or gone: a suspect is read once more.
        for suspect in self._suspects():
            self._ids |= {file: self._id_in(file) for file in suspect.files}
        return self._suspects()

    def _suspects(self) -> list[TaskAmbiguousError]:
        """Return which numbers several files have, as far as that is known."""
        known = self._ids.items()
        return ambiguous((number, file) for file, number in known if number is not None)

    def _id_in(self, file: str) -> int | None:
        """Return the number of the task in a file, if one can be read there."""
        try:
            return id_of(read_plan(f"{self._root}/{file}", limit=self._limit).text)
        except PlanFileError:
            return None

    def _understand(self, content: Content, file: str, _: None) -> tuple[None, tuple[Scanned, ...]]:
        task = card_of(content).task
        self._ids[file] = task.id
        # Asked after the read: whoever looked at a trigger since then has seen what we see.
        return None, (*_recurring(task, content, file, self._now()), *_open(task, content, file))


async def _note_once(ledger: Ledger, filed: Filed, event: RecycledEvent, *, term: int) -> None:
    """Write down in the ledger that a task came back, unless that stands there already."""
    at = filed.ended_at or filed.decided_at
    if not await _is_noted(ledger, filed.number, since=at):
        facts = {"task": event["task"], "reason": event["reason"]}
        await ledger.note(
            event["event"],
            now=at,
            term=term,
            entry=filed.entry,
            receipt=filed.number,
            facts=facts,
        )


async def _is_noted(ledger: Ledger, receipt: int, *, since: datetime) -> bool:
    """Tell whether a receipt has its event; nothing before its end can be that."""
    through = await ledger.newest_event()
    while through > 0:
        # From the newest back: what follows a receipt is soon written after it.
        first = max(0, through - _LOOK)
        page = await ledger.events_after(first, limit=through - first)
        if any(each.kind == RECYCLED and each.receipt == receipt for each in page):
            return True
        if any(each.at < since for each in page):
            return False
        through = first
    return False


class Hours(NamedTuple):
    """What of a board has a when: entries, gates that fire nothing, and what cannot be read."""

    items: tuple[Entry | Unarmed, ...]
    gates: tuple[Gate, ...]
    problems: tuple[HoraeError, ...]


def hours_of(
    root: StrPath, *, now: datetime, tasks: str = TASKS, limit: int = LIMIT, most: int = MOST
) -> Hours:
    """Return what of a board has a when, as the engine would keep it; files go from the root.

    A gate that is itself a trigger to come is left out: that stands there already. So is the
    net under such a trigger.
    """
    gates: list[Gate] = []

    def understand(content: Content, file: str, _: None) -> tuple[None, tuple[Scanned, ...]]:
        task = card_of(content).task
        gates.extend(_gates(task, file, now))
        return None, tuple(_recurring(task, content, file, now))

    scan = _shelf(root, tasks, understand, limit=limit, most=most).look({})
    items = (each.item for each in scan.entries)
    problems = (each for each in scan.problems if not isinstance(each, PlanMissingError))
    shown = tuple(item for item in items if not (isinstance(item, Entry) and is_net(item)))
    return Hours(shown, tuple(gates), tuple(problems))


def check_board(
    root: StrPath,
    *,
    now: datetime,
    tasks: str = TASKS,
    limit: int = LIMIT,
    most: int = MOST,
    crew: Sequence[str] = (),
) -> list[Diagnostic]:
    """Return what is odd in the files of a board, by file and line; of no board that is nothing."""
    found: list[Diagnostic] = []
    files: dict[str, Task] = {}

    def understand(content: Content, file: str, _: None) -> tuple[None, tuple[Scanned, ...]]:
        task, problems = parse(content.text, name=file)
        found.extend(problems)
        if task is not None:
            files[file] = task
        return None, ()

    def odd(
        file: str, field: str, message: str, fix: str, *, severity: Severity = Severity.WARNING
    ) -> Diagnostic:
        places = files[file].fields.places
        place = places.get(field, places["id"])
        return Diagnostic(file, place.line, place.column, ODD, severity, message, fix)

    scan = _shelf(root, tasks, understand, limit=limit, most=most).look({})
    for problem in scan.problems:
        if isinstance(problem, PlanFileError) and not isinstance(problem, PlanMissingError):
            place = (problem.path, problem.line or 1, problem.column or 1)
            found.append(Diagnostic(*place, ODD, Severity.ERROR, problem.reason))
    archived = Board(f"{os.fspath(root)}/{tasks.strip('/')}", limit=limit).archived()
    by_task = {id(task): file for file, task in files.items()}
    known = complaints([*files.values()], now=now, archived=archived, crew=crew)
    found += [odd(by_task[id(each.task)], each.field, each.message, each.fix) for each in known]
    for double in ambiguous((task.id, file) for file, task in files.items()):
        wrong = partial(odd, severity=Severity.ERROR)
        found.extend(wrong(file, "id", double.reason, double.fix) for file in double.files)
    return sorted(found)


def _gates(task: Task, file: str, now: datetime) -> Iterator[Gate]:
    """Yield the time that an open task waits for, if it has one."""
    at = moment(task.scheduled_for)
    if at is None or task.status in CLOSED or task.is_archived:
        return
    try:
        is_told = at > now and is_trigger(task, at)
    except ScheduleError:
        is_told = False
    if not is_told:
        line = task.fields.places["scheduled_for"].line
        yield Gate(Origin(file, line), task.title, at.astimezone(UTC), None)


def events_path(tasks: str) -> str:
    """Return where the events of a board are.

    >>> events_path("plan/board/tasks"), events_path("/p/.batty/team_config/board/tasks")
    ('plan/board/events.jsonl', '/p/.batty/team_config/events.jsonl')
    """
    parts = tasks.rstrip("/").split("/")
    is_elsewhere = parts[-4:] == ELSEWHERE.split("/")
    return "/".join([*parts[: -2 if is_elsewhere else -1], "events.jsonl"])


class EventLog:
    """A file of events, one JSON object a line, in which no line stands twice.

    When it is full it is put aside under the name with `.1`, in the place of the one before.
    """

    def __init__(self, path: str, *, most: int = MOST_EVENTS) -> None:
        self._path = path
        self._most = most
        self._seen: set[bytes] | None = None
        self._inode = 0
        self._read_to = 0

    def add(self, line: str) -> None:
        """Write a line, unless it stands there already; when this returns it survives a crash."""
        data = f"{line}\n".encode()
        with told(self._path):
            while not self._added(data):
                pass  # it was put aside: a new one takes its place

    def _added(self, data: bytes) -> bool:
        import fcntl

        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(self._path, flags, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise PlanFileError(self._path, "is not a regular file; move or remove it")
            if os.stat(self._path, follow_symlinks=False).st_ino != status.st_ino:
                return False  # somebody put it aside while we waited
            last = self._catch_up(descriptor, status)
            assert self._seen is not None, "it was just read"
            if data[:-1] in self._seen:
                return True
            if status.st_size and status.st_size + len(data) > self._most:
                os.replace(self._path, f"{self._path}.1")
                return False
            # A line that a crash has cut must not run into this one.
            os.write(descriptor, data if last in {b"", b"\n"} else b"\n" + data)
            os.fsync(descriptor)
            self._seen.add(data[:-1])
            return True
        finally:
            os.close(descriptor)

    def _catch_up(self, descriptor: int, status: os.stat_result) -> bytes:
        """Read what others have written since the last time; return the last byte."""
        if self._seen is None:
            self._seen = set(self._put_aside())
        if status.st_ino != self._inode or status.st_size < self._read_to:
            self._inode, self._read_to = status.st_ino, 0
        new = os.pread(descriptor, status.st_size - self._read_to, self._read_to)
        # The last line may still be on its way.
        whole = new.rfind(b"\n") + 1
        self._seen.update(line for line in new[:whole].split(b"\n") if _OURS in line)
        self._read_to += whole
        return os.pread(descriptor, 1, status.st_size - 1) if status.st_size else b""

    def _put_aside(self) -> Iterator[bytes]:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            descriptor = os.open(f"{self._path}.1", flags)
        except OSError:
            return
        with os.fdopen(descriptor, "rb") as file:
            yield from (line.rstrip(b"\n") for line in file if _OURS in line)


_OURS: Final = f'"{RECYCLED}"'.encode()


def _shelf(
    root: StrPath,
    tasks: str,
    understand: Callable[[Content, str, None], tuple[None, tuple[Scanned, ...]]],
    *,
    limit: int,
    most: int,
) -> FileCache[None]:
    """Return the files of a board, which go by their path from the root."""
    tasks = tasks.strip("/")
    return FileCache(
        f"{os.fspath(root)}/{tasks}",
        reader=f"board-{READER}",
        understand=understand,
        suffixes=(".md",),
        is_flat=True,
        prefix=f"{tasks}/",
        limit=limit,
        most=most,
    )


def work_address(number: int) -> str:
    """Return where the handing out of a task stands in the ledger.

    >>> work_address(7), task_at("task:7:work"), task_at("task:7")
    ('task:7:work', 7, None)
    """
    return f"task:{number}:work"


def task_at(address: str) -> int | None:
    """Return the number of the task that is handed out at an address, if it is one of those."""
    number = address.removeprefix("task:").removesuffix(":work")
    return int(number) if number.isdecimal() and address == work_address(int(number)) else None


def _open(task: Task, content: Content, file: str) -> Iterator[Scanned]:
    """Yield an open task as something that somebody can be asked to do."""
    if task.status in CLOSED or task.is_archived:
        return
    address, assignee = work_address(task.id), task.text("assignee")
    # Of a task that recurs there are two entries: its own name means when it comes back.
    title = task.title if task.cron_schedule is None else f"{task.title} (work)"
    # One task never turns into another, however alike they look: the number is in every sign.
    # The third is stored and compared: another text would end the rule of every open task.
    mark = Mark(address, title, f"handed out as #{task.id}", _digest(address))
    origin = Origin(file, task.fields.places["title"].line)
    try:
        policy = work_policy(task)
    except ScheduleError as error:
        yield Scanned(mark, Unarmed(address, origin, title, str(error)), content.text)
        return
    entry = Entry(
        address,
        origin,
        title,
        OnDemandRule(),
        work=Work.DISPATCH,
        agents=() if assignee is None else (assignee,),
        policy=policy,
        digest=_digest(content.text),
    )
    yield Scanned(mark, entry, content.text)


def _recurring(task: Task, content: Content, file: str, now: datetime) -> Iterator[Scanned]:
    """Yield a task that recurs, if it does, armed or with the reason why not."""
    cron = task.cron_schedule
    if cron is None:
        return
    text = content.text
    mark = Mark(f"task:{task.id}", task.title, cron, _digest(task.body))
    origin = Origin(file, task.fields.places["cron_schedule"].line)
    zone = task.timezone or "UTC"
    try:
        rule = cron_rule(cron, zone_name=zone)
        policy = replace(task_policy(task), retry=_RETRY)
        never = next((each.expression for each in rule.crons if each.never), None)
        reason = f"cron {never!r} matches no date" if never else ""
    except ScheduleError as error:
        why = str(error)
        yield Scanned(mark, Unarmed(mark.address, origin, task.title, why), text, broken=why)
        return
    if reason or task.is_archived:
        reason = reason or "the task is archived"
        yield Scanned(mark, Unarmed(mark.address, origin, task.title, reason), text)
        return
    entry = Entry(
        mark.address,
        origin,
        task.title,
        rule,
        work=Work.RECYCLE,
        policy=policy,
        zone=zone,
        digest=_digest(text),
    )
    yield Scanned(mark, entry, text)
    if task.status == "done":
        yield from _owed(task, entry, content, now)


def _owed(task: Task, entry: Entry, content: Content, now: datetime) -> Iterator[Scanned]:
    """Yield the first trigger that a done task has not come back for."""
    at = first_trigger(task, written_at=min(_written_at(content.path), now))
    if at is None:
        return
    address, title = back_address(entry.address), f"{task.title} (recycle)"
    owed = replace(
        entry,
        address=address,
        origin=Origin(entry.origin.file, task.fields.places["status"].line),
        title=title,
        rule=back_rule(task, at, now=now),
    )
    mark = Mark(address, title, key_time(at), _digest(address))
    yield Scanned(mark, owed, content.text)


def _written_at(path: str) -> datetime:
    """Return when a file came to stand as it does; a fact about the file, not about now."""
    with told(path):
        changed = os.stat(path, follow_symlinks=False).st_ctime
    return datetime.fromtimestamp(changed, UTC)


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
