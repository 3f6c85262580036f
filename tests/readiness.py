"""How every open task of a board stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horae.sources.board.rules import CLOSED, Resolution, TaskStatuses, standing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from horae.sources.board.task import Task


def resolve(
    tasks: Collection[Task], *, now: datetime, archived: Iterable[int] = ()
) -> list[Resolution]:
    ground = TaskStatuses.of(tasks, archived=archived)
    found = (standing(task, ground, now=now) for task in sorted(tasks, key=lambda task: task.id))
    return [each for each in found if each.task.status not in CLOSED]
