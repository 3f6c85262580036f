"""What the server asks the other rooms for: to run workflows, and to keep the board."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from horae.core.arming import cron_rule, policy_of
from horae.core.explain import stamp
from horae.core.ports import Trait
from horae.errors import Exit, HoraeError
from horae.files.read import read_plan
from horae.org.document import read
from horae.org.world import worlds
from horae.sources.board.recycle import triggers_of
from horae.sources.board.routes import ChangedError
from horae.sources.board.rules import CLOSED, Ground, moment, standing
from horae.sources.board.tasks import BoardMissingError, card_data, change
from horae.sources.workflows.record import summary
from horae.sources.workflows.runner import WorkflowRunner, order_of
from horae.timing.zone import zone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from horae.core.entry import Pause
    from horae.core.ports import Clock, Ledger
    from horae.files.git.repository import Git
    from horae.sources.board.rules import Changes, Value
    from horae.sources.board.task import Task
    from horae.sources.board.tasks import Board, Card
    from horae.sources.plans.runner import Place

    _Pauses = Mapping[str, Pause]

_MANY: Final = 10_000  # pauses


class TaskScheduleError(HoraeError):
    """A schedule that no task can have."""

    code = "task_schedule"
    exit_code = Exit.USAGE


class AskedWorkflows:
    """Reads and runs the workflows of texts that come with a request."""

    def __init__(
        self, runner: WorkflowRunner, place: Place, *, clock: Clock, ids: Callable[[], str]
    ) -> None:
        self._runner = runner
        self._place = place
        self._clock = clock
        self._ids = ids

    def plan(self, text: str) -> list[dict[str, Any]]:
        """Return what would run, without running it."""
        return [summary(world) for world in worlds(read(text))]

    async def run(self, text: str, given: bytes) -> list[dict[str, Any]]:
        """Run every workflow of a text, and return the records; cancelled, it ends them."""
        plan = read(text)
        found = worlds(plan)
        records = []
        for world in found:
            order = order_of(
                plan,
                world,
                name="request.org",
                place=self._place,
                run=f"asked-{self._ids()}",
                now=self._clock.now(),
            )
            held = await self._runner.make(replace(order, input=given))
            held.go()
            try:
                await held.ended()
            except asyncio.CancelledError:
                held.cancel("the client disconnected")
                await held.ended()
                raise
            records.append(held.record.data())
        return records


class AskedTasks:
    """Shows a board, and gives its tasks other schedules."""

    def __init__(
        self, board: Board, *, clock: Clock, ledger: Ledger, changed: Callable[[], None]
    ) -> None:
        self._board = board
        self._clock = clock
        self._ledger = ledger
        self._changed = changed

    async def board(self) -> dict[str, Any]:
        """Return the tasks by status, and why those wait that do."""
        return await asyncio.to_thread(self._read, await self._pauses())

    async def task(self, number: int) -> tuple[dict[str, Any], str]:
        """Return one task, and the tag of the text that it stands in."""
        return await asyncio.to_thread(self._one, number, await self._pauses())

    async def schedule(
        self, number: int, asked: Mapping[str, Any], *, expected: str | None
    ) -> tuple[dict[str, Any], str]:
        """Give a task another schedule, if its text still has the tag that is expected."""
        changes, pauses = _checked(asked), await self._pauses()

        def work() -> tuple[dict[str, Any], str]:
            path = self._board.card(number).path

            def decide(task: Task) -> Changes:
                # Looked at after the text was read that is edited: if somebody saved in
                # between, the edit itself is refused, and this is asked again.
                if expected is not None and self._tag(path) != expected:
                    raise ChangedError
                return _changes(task, changes, is_cleared=asked["clear"])

            change(path, decide, number=number, root=self._board.directory)
            return self._one(number, pauses)

        said = await asyncio.to_thread(work)
        self._changed()
        return said

    async def _pauses(self) -> _Pauses:
        """Return the pauses of tasks, by the address of their entry."""
        paused = await self._ledger.entries_that_are(Trait.PAUSED, limit=_MANY)
        return {each.mark.address: each.pause for each in paused if each.pause is not None}

    def _read(self, pauses: _Pauses) -> dict[str, Any]:
        try:
            found = self._board.read()
        except BoardMissingError:
            return {"directory": self._board.directory, "tasks": [], "problems": []}
        ground = Ground.of(found.tasks, archived=found.archived)
        now = self._clock.now()
        return {
            "directory": self._board.directory,
            "tasks": [_task(each, ground, now, pauses) for each in found.cards],
            "problems": [str(each) for each in found.problems],
        }

    def _one(self, number: int, pauses: _Pauses) -> tuple[dict[str, Any], str]:
        card = self._board.card(number)
        found = self._board.read()
        ground = Ground.of(found.tasks, archived=found.archived)
        return _task(card, ground, self._clock.now(), pauses), self._tag(card.path)

    def _tag(self, path: str) -> str:
        return read_plan(path, root=self._board.directory).digest


async def commits(git: Git) -> list[dict[str, Any]]:
    """Return the newest commits of a plan root, as everybody may see them."""
    return [
        {
            "sha": each.sha,
            "ts": int(each.at.timestamp()),
            "author": each.author,
            "msg": each.subject,
        }
        for each in await git.log(limit=30)
    ]


def _checked(asked: Mapping[str, Any]) -> dict[str, Value | None]:
    """Return what is to be written, or raise an error that says what is wrong with it."""
    at, cron, place = asked["at"], asked["cron"], asked["timezone"]
    if at is None and cron is None and not asked["clear"]:
        raise TaskScheduleError("a schedule needs `at`, `cron` or both, or `clear`")
    others = ("at", "cron", "timezone", "catchup", "until")
    given = [f"`{name}`" for name in others if asked[name] is not None]
    if asked["clear"] and given:
        raise TaskScheduleError(f"`clear` cannot be used with {' or '.join(given)}; send it alone")
    if at is not None and moment(at) is None:
        raise TaskScheduleError(f"`at` is a time like 2026-06-06T09:00:00Z, not {at[:100]!r}")
    if place is not None:
        zone(place)
    if cron is not None:
        rule = cron_rule(cron, zone_name=place or "UTC")
        if any(each.never for each in rule.crons):
            raise TaskScheduleError(f"cron {cron[:100]!r} matches no date")
    properties = {"CATCHUP": asked["catchup"], "UNTIL": asked["until"]}
    policy_of({k: v for k, v in properties.items() if v}, zone_name=place or "UTC")
    wanted = {
        "scheduled_for": at,
        "cron_schedule": cron,
        "timezone": place,
        "catchup": asked["catchup"],
        "until": asked["until"],
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _changes(task: Task, wanted: Mapping[str, Value | None], *, is_cleared: bool) -> Changes:
    if is_cleared:
        return {"scheduled_for": None, "cron_schedule": None}
    changes = dict(wanted)
    if "cron_schedule" in changes and task.cron_schedule is None:
        changes["cron_last_run"] = None  # a schedule that is new has not come round yet
    return changes


def _task(card: Card, ground: Ground, now: datetime, pauses: _Pauses) -> dict[str, Any]:
    """Return a task as plain data, with the next five moments at which it comes back."""
    task = card.task
    found = None if task.status in CLOSED else standing(task, ground, now=now)
    coming = islice(triggers_of(task, now, pause=pauses.get(f"task:{task.id}")), 5)
    place = task.timezone or "UTC"
    return {**card_data(card, found), "next": [stamp(each.at, place) for each in coming]}
