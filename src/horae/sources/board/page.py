"""Board: the tasks by status, what is in the way of each, and when it comes back; one task."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from horae.core.entry import cron_rule
from horae.core.text import words
from horae.core.views import EntryNotFoundError
from horae.errors import Exit, HoraeError
from horae.files.read import read_plan
from horae.sources.board.rules import STATUSES, moves
from horae.timing.zone import parse_rfc3339
from horae.web.front import offered
from horae.web.page.sheet import PageRequest, PageView, Sheet

if TYPE_CHECKING:
    from horae.core.views import ReceiptLine
    from horae.sources.board.routes import BoardTask

CARDS: Final = 50  # per column


async def board(asked: PageRequest) -> Sheet:
    """The tasks by status, what is in the way of each, and when it comes back."""
    tasks = None if asked.front.tasks is None else asked.front.tasks()
    try:
        said = None if tasks is None else await tasks.board()
    except HoraeError as error:
        if error.exit_code != Exit.NOT_FOUND:
            raise
        said = None
    columns = [] if said is None else await asyncio.to_thread(_columns, said.tasks)
    problems = [] if said is None else said.problems
    tags = {} if tasks is None or said is None or not said.tasks else await tasks.tags()
    values = {"columns": columns, "problems": problems, "has_board": said, "task_tags": tags}
    values["may_edit"] = tasks is not None
    return Sheet("board.html", "Board", "board", values)


def _columns(tasks: Sequence[BoardTask]) -> list[dict[str, Any]]:
    by_status: dict[str, list[BoardTask]] = defaultdict(list)
    for task in tasks:
        by_status[task.status].append(task)
    known = [name for name in STATUSES if name != "archived"]
    names = (*known, *sorted(by_status.keys() - set(STATUSES)))
    return [
        {"name": name, "cards": [_card(each) for each in some[:CARDS]], "total": len(some)}
        for name, some in ((name, by_status[name]) for name in names)
    ]


def _card(task: BoardTask) -> dict[str, Any]:
    cron, zone_name, rule, coming = task.cron_schedule, task.timezone or "UTC", "", None
    try:
        if cron:
            said = words(cron_rule(cron, zone_name=zone_name), zone_name=zone_name)
            rule = f"{said} ({zone_name})"
            coming = parse_rfc3339(task.next[0]) if task.next else None
    except HoraeError as error:
        rule = str(error)
    return {"task": task, "rule": rule, "next_at": coming, "moves": moves(task.status)}


async def task(asked: PageRequest) -> Sheet:
    """A task: its fields, its text, and what its runs became."""
    front, number = asked.front, asked.path_number
    said, tag = await offered(front.tasks, "board")().task(number)
    text = (await asyncio.to_thread(read_plan, said.file)).text
    history: list[ReceiptLine] = []
    with suppress(EntryNotFoundError):  # not in the ledger yet
        history += (await front.service.history(f"task:{number}", limit=10)).receipts
    place = os.path.relpath(said.file, front.root or os.path.dirname(said.file))
    values = {**_card(said), "tag": tag, "text": text, "history": history, "place": place}
    return Sheet("task.html", f"#{number} {said.title}", "board", values)


VIEWS: Final = (PageView("/board", board, "board", "Board"), PageView("/board/{number}", task))
