"""The board as a source: Markdown tasks that come back by a cron expression.

Only recurrence makes an entry. `scheduled_for` alone fires nothing: it is a gate, which
whoever hands out tasks reads.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from horae.errors import ScheduleError
from horae.kernel.task import parse
from horae.rules.armed import Scanned, cron_rule
from horae.rules.entry import Entry, Origin, Unarmed, Work
from horae.rules.identity import Mark
from horae.workspace.files import LIMIT, MOST, PlanFileError, PlanMissingError
from horae.workspace.org import Shelf

if TYPE_CHECKING:
    from collections.abc import Mapping

    from horae.engine.ports import Filed
    from horae.engine.source import Scan
    from horae.kernel.plan import Diagnostic
    from horae.kernel.task import Task
    from horae.workspace.files import Content, StrPath

# To be raised when the same task would give another entry.
READER: Final = 1
TASKS: Final = "board/tasks"


class TaskFileError(PlanFileError):
    """A task that cannot be read."""

    code = "task_file"

    def __init__(self, path: str, problem: Diagnostic) -> None:
        where = f"line {problem.line}, column {problem.column}"
        reason = f"{where}: {problem.message}; {problem.fix}"
        super().__init__(path, reason, line=problem.line, column=problem.column)


class BoardSource:
    """The recurring tasks of a board; *tasks* is its directory, from the root."""

    name = "board"

    def __init__(
        self,
        root: StrPath,
        *,
        tasks: str = TASKS,
        limit: int = LIMIT,
        most: int = MOST,
        inline: bool = False,
    ) -> None:
        self._inline = inline
        tasks = tasks.strip("/")
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
        """Return the recurring tasks of every file that the ledger does not know as it stands."""
        if self._inline:
            return self._look(index)
        return await asyncio.to_thread(self._look, index)

    async def settle(self, receipt: Filed) -> None:
        """Do nothing yet: what a recycled task becomes is not written back."""

    def _look(self, index: Mapping[str, str]) -> Scan:
        """Look at the tasks; that there is no board is only a problem if there was one."""
        scan = self._shelf.look(index)
        is_absent = any(isinstance(problem, PlanMissingError) for problem in scan.problems)
        return replace(scan, problems=()) if is_absent and not index else scan


def _understand(content: Content, file: str, _: None) -> tuple[None, tuple[Scanned, ...]]:
    """Return the entry of a task file, if it has one."""
    task, problems = parse(content.text, name=file)
    if problems or task is None:
        raise TaskFileError(content.path, problems[0])
    if task.cron_schedule is None:
        return None, ()
    return None, (_scanned(task, task.cron_schedule, content.text, file),)


def _scanned(task: Task, cron: str, text: str, file: str) -> Scanned:
    """Return a recurring task, armed or with the reason why not."""
    mark = Mark(f"task:{task.id}", task.title, cron, _digest(task.body))
    origin = Origin(file, task.fields.places["cron_schedule"].line)
    zone = task.timezone or "UTC"
    reason = "it is archived" if task.is_archived else ""
    try:
        rule = cron_rule(cron, zone_name=zone)
    except ScheduleError as error:
        reason = str(error)
    else:
        never = next((each.expression for each in rule.crons if each.never), None)
        reason = reason or (f"cron {never!r} names a day that never comes" if never else "")
        if not reason:
            entry = Entry(
                mark.address,
                origin,
                task.title,
                rule,
                work=Work.RECYCLE,
                zone=zone,
                digest=_digest(text),
            )
            return Scanned(mark, entry, text)
    return Scanned(mark, Unarmed(mark.address, origin, task.title, reason), text)


def _digest(text: str) -> str:
    """Return the SHA-256 of a text."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
