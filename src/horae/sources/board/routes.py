"""The board: tasks by status, and the schedule of a task, which may be changed here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Final, TypeAlias

from msgspec import defstruct
from msgspec.structs import asdict
from starlette.responses import Response

from horae.core.entry import Pause, cron_rule, policy_of
from horae.core.ports import Clock, Ledger, LedgerError, Trait
from horae.core.scope import Scope
from horae.core.views import Shape, TimeText
from horae.errors import Exit, HoraeError
from horae.files.read import read_plan
from horae.sources.board import rules, tasks
from horae.sources.board.recycle import triggers_of
from horae.sources.board.task import TASK_PROPERTIES, Task
from horae.timing.rfc3339 import format_with_offset
from horae.timing.zone import zone
from horae.web.answer import as_json
from horae.web.fields import Fields, Text, about
from horae.web.front import Front, offered
from horae.web.router import ChangedError, Routes

routes = Routes()
log = logging.getLogger(__name__)
_Pauses: TypeAlias = "Mapping[str, Pause]"
_MANY: Final = 10_000  # pauses
_POLICY: Final = {
    **{each.option: each.help[0].lower() + each.help[1:-1] for each in TASK_PROPERTIES},
    "catchup": "all, latest or none",
    "until": "time after which the task no longer recycles",
}


class TaskScheduleError(HoraeError, code="task_schedule", exit_code=Exit.USAGE):
    """A schedule that a task cannot have."""


class BoardTask(tasks.TaskLine, frozen=True, kw_only=True):
    next: tuple[TimeText, ...]


class BoardPage(Shape, frozen=True, kw_only=True):
    directory: str
    tasks: list[BoardTask]
    problems: list[str]


@dataclass(eq=False)
class BoardRequests:
    files: tasks.Board
    _: KW_ONLY
    clock: Clock
    ledger: Ledger
    changed: Callable[[], None]

    async def board(self) -> BoardPage:
        pauses = await self._pauses()

        def read() -> BoardPage:
            try:
                found = self.files.read()
            except tasks.BoardMissingError:
                found = tasks.Cards((), (), frozenset())
            ground, now = found.ground, self.clock.now()
            return BoardPage(
                directory=self.files.directory,
                tasks=[_task(each, ground, now, pauses) for each in found.cards],
                problems=[str(each) for each in found.problems],
            )

        return await asyncio.to_thread(read)

    async def task(self, number: int) -> tuple[BoardTask, str]:
        return await asyncio.to_thread(self._one, number, await self._pauses())

    async def schedule(
        self, number: int, asked: Mapping[str, Any], *, expected: str | None
    ) -> tuple[BoardTask, str]:
        wanted, pauses = _checked(asked), await self._pauses()

        def work() -> tuple[BoardTask, str]:
            path = self.files.card(number).path

            def decide(task: Task) -> rules.Changes:
                # Compared after the text was read that is edited: if the file is saved in
                # between, the edit itself is refused, and this is asked again.
                if expected is not None and self._tag(path) != expected:
                    raise ChangedError
                return rules.schedule_changes(task, wanted, is_cleared=asked["clear"])

            self.files.change(number, decide, path=path)
            return self._one(number, pauses)

        said = await asyncio.to_thread(work)
        self.changed()
        return said

    async def _pauses(self) -> _Pauses:
        paused = await self.ledger.entries_that_are(Trait.PAUSED, limit=_MANY)
        return {each.mark.address: each.pause for each in paused if each.pause is not None}

    def _one(self, number: int, pauses: _Pauses) -> tuple[BoardTask, str]:
        card = self.files.card(number)
        ground = self.files.read().ground
        return _task(card, ground, self.clock.now(), pauses), self._tag(card.path)

    def _tag(self, path: str) -> str:
        return read_plan(path, root=self.files.directory).digest


def _checked(asked: Mapping[str, Any]) -> dict[str, str]:
    at, cron, place = asked["at"], asked["cron"], asked["timezone"]
    if at is None and cron is None and not asked["clear"]:
        raise TaskScheduleError("a schedule needs `at`, `cron` or both, or `clear`")
    others = ("at", "cron", "timezone", *_POLICY)
    given = [f"`{name}`" for name in others if asked[name] is not None]
    if asked["clear"] and given:
        raise TaskScheduleError(f"`clear` cannot be used with {' or '.join(given)}; send it alone")
    if at is not None and rules.moment(at) is None:
        raise TaskScheduleError(f"`at` is a time like 2026-06-06T09:00:00Z, not {at[:100]!r}")
    if place is not None:
        zone(place)
    if cron is not None:
        rule = cron_rule(cron, zone_name=place or "UTC")
        if any(each.never for each in rule.crons):
            raise TaskScheduleError(f"cron {cron[:100]!r} matches no date")
    policy = {each.key: asked[each.option] for each in TASK_PROPERTIES}
    policy_of({key: text for key, text in policy.items() if text}, zone_name=place or "UTC")
    wanted = {"scheduled_for": at, "cron_schedule": cron, "timezone": place}
    wanted |= {name: asked[name] for name in _POLICY}
    return {name: text for name, text in wanted.items() if text is not None}


def _task(
    card: tasks.Card, ground: rules.TaskStatuses, now: datetime, pauses: _Pauses
) -> BoardTask:
    task = card.task
    found = rules.open_standing(task, ground, now=now)
    coming = islice(triggers_of(task, now, pause=pauses.get(f"task:{task.id}")), 5)
    place = task.timezone or "UTC"
    times = tuple(format_with_offset(each.at.astimezone(zone(place))) for each in coming)
    return BoardTask.of(card, found, next=times)


@routes.get("/api/v1/board", Scope.READ, also=(404,))
async def board(front: Front) -> BoardPage:
    """List the tasks of the board and what each of them waits for."""
    return await offered(front.tasks, "board").board()


_TASK: Final = "/api/v1/board/tasks/{number}"


@routes.get(_TASK, Scope.READ, answer=BoardTask, also=(404, 409), has_tag=True)
async def task(front: Front, number: int) -> Response:
    """Show one task; its ETag identifies the text of its file."""
    said, tag = await offered(front.tasks, "board").task(number)
    return as_json(said, headers={"ETag": f'"{tag}"'})


_TEXTS: Final = {
    "at": "time before which the task is not assigned",
    "cron": "cron expression by which the task recycles when it is done",
    "timezone": "time zone of `cron`",
    **_POLICY,
}
ScheduleRequest: Final = defstruct(
    "ScheduleRequest",
    [
        *((name, Annotated[Text, about(said)], "") for name, said in _TEXTS.items()),
        ("clear", Annotated[bool, about("true: remove `at` and `cron`")], False),
    ],
    bases=(Fields,),
    frozen=True,
)


@routes.add(
    "PUT", f"{_TASK}/schedule", Scope.EDIT, answer=BoardTask, body=ScheduleRequest, has_tag=True
)
async def schedule_task(front: Front, number: int, body: Fields, if_match: str | None) -> Response:
    """Set or clear the schedule of a task; with If-Match only if the task has not changed."""
    wanted = {name: None if value == "" else value for name, value in asdict(body).items()}
    kept = offered(front.tasks, "board")
    said, tag = await kept.schedule(number, wanted, expected=if_match)
    try:
        await front.service.note_edit(said.file, f"changed the schedule of task #{said.id}")
    except LedgerError as error:  # the edit is made, and is not made again
        log.warning("cannot record the edit of %s: %s", said.file, error)
    return as_json(said, headers={"ETag": f'"{tag}"'})
