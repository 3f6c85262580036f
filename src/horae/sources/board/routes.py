"""The board: tasks by status, and the schedule of a task, which may be changed here."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from horae.core.ports import LedgerError
from horae.core.scope import Scope
from horae.web.answer import as_json
from horae.web.edits import ChangedError, expected
from horae.web.front import offered
from horae.web.request import path_number
from horae.web.shapes import TEXT, listed, named, shape
from horae.web.table import Operation, Takes, flag, text

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from horae.web.front import Front
    from horae.web.request import RequestFields

log = logging.getLogger(__name__)


async def board(front: Front, _: Request, __: RequestFields) -> dict[str, Any]:
    """List the tasks of the board and what each of them waits for."""
    return await offered(front.tasks, "board").board()


async def task(front: Front, request: Request, _: RequestFields) -> Response:
    """Show one task; its ETag identifies the text of its file."""
    said, tag = await offered(front.tasks, "board").task(path_number(request))
    return as_json(said, headers={"ETag": f'"{tag}"'})


async def schedule_task(front: Front, request: Request, asked: RequestFields) -> Response:
    """Set or clear the schedule of a task; with If-Match only if the task has not changed."""
    given = {
        "at": asked.text("at") or None,
        "cron": asked.text("cron") or None,
        "clear": asked.flag("clear"),
        "timezone": asked.text("timezone") or None,
        "catchup": asked.text("catchup") or None,
        "until": asked.text("until") or None,
    }
    said, tag = await offered(front.tasks, "board").schedule(
        path_number(request), given, expected=expected(request)
    )
    try:
        await front.service.note_edit(said["file"], f"changed the schedule of task #{said['id']}")
    except LedgerError as error:  # the edit is made, and is not made again
        log.warning("cannot record the edit of %s: %s", said["file"], error)
    return as_json(said, headers={"ETag": f'"{tag}"'})


__all__ = ["OPERATIONS", "ChangedError"]

_BOARD: Final = shape(directory=TEXT, tasks=listed(named("Task")), problems=listed(TEXT))

OPERATIONS: Final = (
    Operation("GET", "/api/v1/board", Scope.READ, board, _BOARD, also=(404,)),
    Operation(
        "GET",
        "/api/v1/board/tasks/{number}",
        Scope.READ,
        task,
        named("Task"),
        also=(404, 409),
        has_tag=True,
    ),
    Operation(
        "PUT",
        "/api/v1/board/tasks/{number}/schedule",
        Scope.EDIT,
        schedule_task,
        named("Task"),
        body=(
            text("at", "time before which the task is not assigned"),
            text("cron", "cron expression by which the task recycles when it is done"),
            flag("clear", "true: remove `at` and `cron`"),
            text("timezone", "time zone of `cron`"),
            text("catchup", "all, latest or none"),
            text("until", "time after which the task no longer recycles"),
        ),
        takes=Takes.FIELDS,
        headers=("If-Match",),
        also=(404, 409, 412),
        has_tag=True,
    ),
)
