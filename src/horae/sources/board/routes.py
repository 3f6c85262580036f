"""The board: tasks by status, and the schedule of a task, which may be changed here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final, TypeAlias

from msgspec import UNSET, defstruct
from msgspec.structs import asdict, replace
from starlette.responses import Response

from horae.core.actor import Scope
from horae.core.entry import Pause, cron_rule, policy_of
from horae.core.ports import Clock, Ledger, Trait
from horae.core.views import Maybe, RequestError, Shape, TimeText
from horae.errors import Exit, HoraeError
from horae.files.edit import Splice
from horae.files.read import Content, read_plan
from horae.sources.board import rules, tasks
from horae.sources.board.recycle import triggers_of
from horae.sources.board.task import TASK_PROPERTIES, Task
from horae.timing.zone import format_with_offset, zone
from horae.web.answer import tagged
from horae.web.fields import Fields, Required, Text, about
from horae.web.front import Front, PlannedEdit, commit_new, noticed, offered
from horae.web.router import ChangedError, Routes

routes = Routes()
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
    undo: str | Maybe = UNSET  # undoes an edit for ten seconds


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

    async def edit(
        self,
        front: Front,
        number: int,
        decide: Callable[[Task], rules.Changes],
        *,
        words: str,
        expected: str | None,
    ) -> Response:
        """Change a task by *decide*; return it with its tag and the undo of the edit."""
        card = await asyncio.to_thread(self.files.card, number)

        def splices(content: Content) -> Sequence[Splice]:
            found = tasks.card_of(content)
            if found.task.id != number:
                raise ChangedError
            return tasks.splices_of(content, found.task, decide(found.task))

        file, place = card.path.removeprefix(self.files.top), self.files.directory
        planned = PlannedEdit(
            card.path, file, f"{words} #{number}", splices, self._read_again, place, expected
        )
        made = await front.edits.make(front, planned._replace(limit=self.files.limit))
        said, tag = await self.task(number)
        return tagged(replace(said, undo=UNSET if made.undo is None else made.undo), tag)

    async def add(self, front: Front, title: str, fields: rules.Changes, body: str) -> Response:
        card = await asyncio.to_thread(self.files.add, title, fields, body=body)
        words = f"Add task #{card.task.id}"
        await commit_new(card.path, words)
        file = card.path.removeprefix(self.files.top)
        await noticed(front, file, words)
        self.changed()
        edit = card.path, file, words, lambda _: (), self._read_again, self.files.directory
        removal = PlannedEdit(*edit, expected=card.digest, limit=self.files.limit, is_removal=True)
        said, tag = await self.task(card.task.id)
        return tagged(replace(said, undo=front.edits.keep(front, removal)), tag)

    async def _read_again(self) -> None:
        self.changed()

    async def tags(self) -> dict[int, str]:
        cards = (await asyncio.to_thread(self.files.read)).cards
        return {card.task.id: card.digest for card in cards}

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


def _board(front: Front) -> BoardRequests:
    return offered(front.tasks, "board")()


@routes.get("/api/v1/board", Scope.READ, also=(404,))
async def board(front: Front) -> BoardPage:
    """List the tasks of the board and what each of them waits for."""
    return await _board(front).board()


_TASK: Final = "/api/v1/board/tasks/{number}"


@routes.get(_TASK, Scope.READ, answer=BoardTask, also=(404, 409), has_tag=True)
async def task(front: Front, number: int) -> Response:
    """Show one task; its ETag identifies the text of its file."""
    return tagged(*await _board(front).task(number))


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


class NewTask(Fields, frozen=True):
    title: Annotated[Required, about("title of the task")]
    status: Annotated[Text, about("`backlog` or `todo`")] = "backlog"
    priority: Annotated[Text, about("priority of the task")] = ""
    assignee: Annotated[Text, about("agent that the task is for")] = ""
    tags: Annotated[Text, about("tags, separated by commas")] = ""
    text: Annotated[Text, about("text of the task")] = ""


@routes.post("/api/v1/board/tasks", Scope.EDIT, answer=BoardTask, has_tag=True)
async def add_task(front: Front, body: NewTask) -> Response:
    """Add a task to the board."""
    if body.status not in {"backlog", "todo"}:
        raise RequestError(f"status must be backlog or todo, not {body.status!r}")
    tags = tuple(tag for each in body.tags.split(",") if (tag := each.strip()))
    fields = {"status": body.status, "priority": body.priority, "assignee": body.assignee}
    wanted: dict[str, rules.Value | None] = {key: text for key, text in fields.items() if text}
    if tags:
        wanted["tags"] = tags
    return await _board(front).add(front, body.title, wanted, body.text)


class MoveRequest(Fields, frozen=True):
    status: Annotated[Required, about("the new status")]


@routes.post(f"{_TASK}/move", Scope.EDIT, answer=BoardTask, has_tag=True)
async def move_task(front: Front, number: int, body: MoveRequest, if_match: str | None) -> Response:
    """Move a task to another status; with If-Match only if the task has not changed."""
    now, words = front.clock.now(), f"Move to {body.status}: task"
    decide = partial(rules.transition, status=body.status, now=now)
    return await _board(front).edit(front, number, decide, words=words, expected=if_match)


class AssignRequest(Fields, frozen=True):
    assignee: Annotated[Text, about("agent that the task is for; empty: none")] = ""


@routes.post(f"{_TASK}/assign", Scope.EDIT, answer=BoardTask, has_tag=True)
async def assign_task(
    front: Front, number: int, body: AssignRequest, if_match: str | None
) -> Response:
    """Assign a task to an agent; with If-Match only if the task has not changed."""
    changes: rules.Changes = {"assignee": body.assignee.strip() or None}
    edit = _board(front).edit
    return await edit(front, number, lambda _: changes, words="Assign task", expected=if_match)


@routes.add(
    "PUT", f"{_TASK}/schedule", Scope.EDIT, answer=BoardTask, body=ScheduleRequest, has_tag=True
)
async def schedule_task(front: Front, number: int, body: Fields, if_match: str | None) -> Response:
    """Set or clear the schedule of a task; with If-Match only if the task has not changed."""
    wanted = {name: None if value == "" else value for name, value in asdict(body).items()}
    fields = _checked(wanted)
    decide = partial(rules.schedule_changes, wanted=fields, is_cleared=bool(wanted["clear"]))
    words = "Change the schedule of task"
    return await _board(front).edit(front, number, decide, words=words, expected=if_match)
