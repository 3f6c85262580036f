"""The board as a source: Markdown tasks that are handed out, and that come back by the clock.

Only recurrence makes an entry that fires. `scheduled_for` alone fires nothing: it is a gate,
which whoever hands out tasks reads. Every open task is also an entry without a moment of its
own, so that each time it is handed to somebody has a receipt, a history and a reason.

A task that recurs has an entry by its cron expression, whatever its status: at each trigger
somebody looks whether it is done, and if so it comes back. While it *is* done it has a second
entry, the first trigger that it has not come back for, as a delay. That one is due until it
has a receipt, however long ago the trigger was: so a trigger that passed while the task was
not done brings it back as soon as it is, and one that passed while nobody looked is not lost.
Of the two the first that comes brings the task back, and the other finds nothing to do.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from horae.errors import ScheduleError
from horae.rules.armed import Scanned, cron_rule
from horae.rules.board import CLOSED, task_policy
from horae.rules.entry import (
    Entry,
    OnceRule,
    OnDemandRule,
    Origin,
    Retry,
    Unarmed,
    Work,
    key_time,
)
from horae.rules.identity import Mark
from horae.rules.misfire import Status
from horae.rules.recycle import event_of, first_trigger
from horae.workspace.files import LIMIT, MOST, PlanFileError, PlanMissingError, told
from horae.workspace.org import Shelf
from horae.workspace.tasks import ELSEWHERE, TASKS, RecycleRunner, TaskFileError, card_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from horae.engine.ports import Filed
    from horae.engine.source import Scan
    from horae.kernel.task import Task
    from horae.rules.entry import Policy
    from horae.workspace.files import Content, StrPath

__all__ = ["BoardSource", "EventLog", "RecycleRunner", "TaskFileError", "events_path"]

# To be raised when the same task would give another entry.
READER: Final = 3
MOST_EVENTS: Final = 10 * 2**20  # bytes of `events.jsonl` before it is put aside

# An edit that could not be made is made again: twice is the same as once.
_RETRY: Final = Retry(20, timedelta(seconds=30))


class BoardSource:
    """The tasks of a board; *tasks* is its directory, from the root.

    *follow_up* follows the receipts of what was handed out; *changed* hears of each scan that
    found something new.
    """

    name = "board"

    def __init__(
        self,
        root: StrPath,
        *,
        tasks: str = TASKS,
        limit: int = LIMIT,
        most: int = MOST,
        inline: bool = False,
        follow_up: Callable[[Filed], Awaitable[None]] | None = None,
        changed: Callable[[], None] | None = None,
    ) -> None:
        self._inline = inline
        self._follow_up = follow_up
        self._changed = changed
        tasks = tasks.strip("/")
        self._events = EventLog(events_path(f"{os.fspath(root)}/{tasks}"))
        self._shelf = Shelf(
            f"{os.fspath(root)}/{tasks}",
            reader=f"board-{READER}",
            understand=_understand,
            suffixes=(".md",),
            is_flat=True,
            prefix=f"{tasks}/",
            limit=limit,
            most=most,
        )

    async def scan(self, index: Mapping[str, str]) -> Scan:
        """Return the tasks of every file that the ledger does not know as it stands."""
        scan = self._look(index) if self._inline else await asyncio.to_thread(self._look, index)
        if self._changed is not None and (scan.entries or scan.index != index):
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
        line = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
        if self._inline:
            self._events.add(line)
        else:
            await asyncio.to_thread(self._events.add, line)

    def _look(self, index: Mapping[str, str]) -> Scan:
        """Look at the tasks; that there is no board is only a problem if there was one."""
        scan = self._shelf.look(index)
        is_absent = any(isinstance(problem, PlanMissingError) for problem in scan.problems)
        return replace(scan, problems=()) if is_absent and not index else scan


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
                raise PlanFileError(self._path, "is no plain file; move it away")
            if os.stat(self._path, follow_symlinks=False).st_ino != status.st_ino:  # noqa: PTH116
                return False  # somebody put it aside while we waited
            last = self._catch_up(descriptor, status)
            assert self._seen is not None, "it was just read"
            if data[:-1] in self._seen:
                return True
            if status.st_size and status.st_size + len(data) > self._most:
                os.replace(self._path, f"{self._path}.1")  # noqa: PTH105 - both are ours
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
        """Yield the events of the file before this one."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            descriptor = os.open(f"{self._path}.1", flags)
        except OSError:
            return
        with os.fdopen(descriptor, "rb") as file:
            yield from (line.rstrip(b"\n") for line in file if _OURS in line)


_OURS: Final = b'"task_recycled"'


def _understand(content: Content, file: str, _: None) -> tuple[None, tuple[Scanned, ...]]:
    """Return the entries of a task file, if it has any."""
    task = card_of(content).task
    return None, (*_recurring(task, content, file), *_open(task, content, file))


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
    # One task never turns into another, however alike they look: the number is in every sign.
    mark = Mark(address, task.title, f"handed out as #{task.id}", _digest(address))
    entry = Entry(
        address,
        Origin(file, task.fields.places["title"].line),
        task.title,
        OnDemandRule(),
        work=Work.DISPATCH,
        agents=() if assignee is None else (assignee,),
        digest=_digest(content.text),
    )
    yield Scanned(mark, entry, content.text)


def _recurring(task: Task, content: Content, file: str) -> Iterator[Scanned]:
    """Yield a task that recurs, if it does."""
    if task.cron_schedule is not None:
        yield from _scanned(task, task.cron_schedule, content, file)


def _scanned(task: Task, cron: str, content: Content, file: str) -> Iterator[Scanned]:
    """Yield a recurring task, armed or with the reason why not."""
    text = content.text
    mark = Mark(f"task:{task.id}", task.title, cron, _digest(task.body))
    origin = Origin(file, task.fields.places["cron_schedule"].line)
    zone = task.timezone or "UTC"
    try:
        rule = cron_rule(cron, zone_name=zone)
        policy = replace(task_policy(task), retry=_RETRY)
        never = next((each.expression for each in rule.crons if each.never), None)
        reason = f"cron {never!r} names a day that never comes" if never else ""
    except ScheduleError as error:
        yield Scanned(mark, Unarmed(mark.address, origin, task.title, str(error)), text)
        return
    if reason or task.is_archived:
        reason = reason or "it is archived"
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
        yield from _owed(task, entry, policy, content)


def _owed(task: Task, entry: Entry, policy: Policy, content: Content) -> Iterator[Scanned]:
    """Yield the first trigger that a done task has not come back for."""
    at = first_trigger(task, written_at=_written_at(content.path))
    if at is None:
        return
    address, title = f"{entry.address}:back", f"{task.title} (comes back)"
    owed = replace(
        entry,
        address=address,
        origin=Origin(entry.origin.file, task.fields.places["status"].line),
        title=title,
        rule=OnceRule(at, key_time(at)),
        policy=policy,
    )
    mark = Mark(address, title, key_time(at), _digest(address))
    yield Scanned(mark, owed, content.text)


def _written_at(path: str) -> datetime:
    """Return when a file came to stand as it does; a fact about the file, not about now."""
    with told(path):
        changed = os.stat(path, follow_symlinks=False).st_ctime  # noqa: PTH116 - no link is one
    return datetime.fromtimestamp(changed, UTC)


def _digest(text: str) -> str:
    """Return the SHA-256 of a text."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
