"""The schedule of an entry: what another one would mean, and its change where it is written."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from msgspec.structs import replace
from starlette.responses import Response

from horae.app import check
from horae.core.actor import Scope
from horae.core.entry import (
    KEEPER,
    CadenceRule,
    CronRule,
    Entry,
    Unarmed,
    anchored_item,
    schedule_rule,
)
from horae.core.ports import Listed
from horae.core.project import project, unpaused
from horae.core.text import words, written_rule
from horae.core.views import Shape, Time, zoned
from horae.errors import Exit, HoraeError
from horae.files.edit import Splice, spliced
from horae.files.git.calls import call
from horae.files.git.layout import repository_of
from horae.files.read import Content, read_plan
from horae.files.yaml import YamlMap, read_yaml
from horae.org.document import read
from horae.org.headline import properties
from horae.org.plan import Span, Stamp
from horae.sources.plans.arming import scan_plan
from horae.sources.plans.done import Edit, PlanHeadline
from horae.timing.duration import first_delay, parse_cadence
from horae.web.answer import tagged
from horae.web.fields import Fields, Required, Text, about
from horae.web.front import EditAnswer, Front, PlannedEdit, offered, tag_of_entry
from horae.web.router import ChangedError, Routes

routes = Routes()
FIRES: Final = 10
_FAR: Final = datetime(9998, 1, 1, tzinfo=UTC)
_HOURLY: Final = "1h"  # the interval of an agent that has none
_STAMP: Final = re.compile(r"<[^<>\n]+>")
_SCHEDULE: Final = "/api/v1/entries/{entry:path}/schedule"


class PlanScheduleError(HoraeError, code="plan_schedule", exit_code=Exit.USAGE): ...


class ScheduleMeaning(Shape, frozen=True, kw_only=True):
    written: str  # as in the file
    words: str | None  # null: it is not armed
    reason: str | None  # why it is not armed
    next: tuple[Time, ...]


class ScheduleView(Shape, frozen=True, kw_only=True):
    """The schedule of an entry, and a proposed one."""

    entry: int
    title: str
    file: str
    line: int
    zone: str
    now: ScheduleMeaning
    then: ScheduleMeaning | None
    warnings: tuple[str, ...]  # also of the prose


class _Place:
    """Where the schedule of an entry is written: at the headline of a plan."""

    key = "SCHEDULE"

    def __init__(self, found: Listed, content: Content, zone_name: str) -> None:
        self.found, self.file = found, found.item.origin.file
        self.content, self.zone_name = content, zone_name

    @property
    def tag(self) -> str:
        return self.content.digest

    @cached_property
    def headline(self) -> PlanHeadline:
        """The headline of the entry, where the ledger has it or where it is now."""
        plan, mark, origin = read(self.content.text), self.found.mark, self.found.item.origin
        lines = [each.line for each in plan.places()]
        name = mark.address.removeprefix("id:")
        here = [
            index
            for index, each in enumerate(plan.headlines)
            if each.props.get("ID") == name
            or (each.title == mark.title and lines[index] == origin.line)
        ]
        if len(here) != 1:
            raise PlanScheduleError(
                f"{mark.title!r} is no longer at {origin}; try again when the plan has been read"
            )
        return PlanHeadline(plan, here[0], self.content.path)

    @property
    def line(self) -> int:
        return self.headline.plan.places()[self.headline.index].line

    @property
    def rule_line(self) -> int:
        """The line of the schedule itself, for its author."""
        headline = self.headline.headline
        drawer, planning = headline.drawer, headline.planning
        lines = [] if drawer is None else list(properties(headline.text, drawer))
        at = next((each.line.start for each in lines if each.key == self.key), 0)
        if not at and planning is not None and planning.scheduled is not None:
            at = planning.scheduled.start
        return self.line + headline.text.count("\n", 0, at)

    @property
    def _stamp(self) -> Stamp | None:
        planning = self.headline.headline.planning
        return planning.scheduled if planning else None

    def written(self) -> str:
        stamp = self._stamp
        return self.headline.headline.props.get("SCHEDULE") or (stamp.text if stamp else "")

    def splices(self, schedule: str) -> Sequence[Splice]:
        stamp = self._stamp
        if stamp is None or self.key in self.headline.headline.props:
            edits = self.headline.property_edits({self.key: schedule})
        elif _STAMP.fullmatch(schedule):
            edits = [Edit(Span(stamp.start, stamp.end), schedule)]
        else:
            example = "<2026-06-06 Sat 09:00 +1w>"
            raise PlanScheduleError(f"this entry has a timestamp; write one, such as {example}")
        return self.headline.splices(edits)

    def meant(self, text: str, schedule: str, now: datetime) -> Entry | Unarmed | None:  # noqa: ARG002
        """Return the entry as the engine would read it from this text of the file."""
        scanned = scan_plan(read(text), file=self.file, zone_name=self.zone_name)
        item = next((each.item for each in scanned if each.item.origin.line == self.line), None)
        return item and anchored_item(item, now=now, was=self.found.item)


class _Member(_Place):
    """The interval of an agent, in the manifest of the crew."""

    key = "INTERVAL"

    def written(self) -> str:
        return self.headline.headline.props.get(self.key, _HOURLY)

    def meant(self, text: str, schedule: str, now: datetime) -> Entry | Unarmed | None:  # noqa: ARG002
        item = self.found.item
        if not isinstance(item, Entry) or not isinstance(item.rule, CadenceRule):
            return item
        if schedule == self.written():
            return item
        if parse_cadence(self.written()) != item.rule.base:
            raise PlanScheduleError("the agent runs continuously, without an interval")
        base, waited = parse_cadence(schedule), now - item.ended_at if item.ended_at else None
        first_at = now.replace(microsecond=0) + first_delay(base, waited)
        return replace(item, rule=replace(item.rule, base=base, first_at=first_at))


class _Workflow(_Place):
    """The cron expression of a workflow, in its file in `.agentd`."""

    @cached_property
    def _source(self) -> YamlMap:
        data = read_yaml(self.content.text, name=self.file)
        known = data.values() if isinstance(data, YamlMap) else ()
        parts = (each for each in known if isinstance(each, YamlMap) and "expression" in each)
        if (found := next(parts, None)) is None:
            raise PlanScheduleError(f"{self.file} has no cron expression; change it there")
        return found

    @property
    def expression(self) -> str:
        return str(self._source["expression"])

    @property
    def line(self) -> int:
        return self._source.places["expression"].line

    rule_line = line

    def written(self) -> str:
        item = self.found.item
        return written_rule(item.rule) if isinstance(item, Entry) else ""

    def splices(self, schedule: str) -> Sequence[Splice]:
        text, place = self.content.text, self._source.places["expression"]
        start = len(text[: place.start].encode())
        length = len(text[place.start : place.end].encode())
        cron = written_rule(_cron_of(self.found, schedule).rule)
        return [Splice(start, start + length, f'"{cron}"'.encode())]

    def meant(self, text: str, schedule: str, now: datetime) -> Entry | Unarmed | None:  # noqa: ARG002
        return _cron_of(self.found, schedule)


class _Trigger(_Workflow):
    """The cron expression of a trigger that no file has."""

    line = rule_line = 1

    @property
    def tag(self) -> str:
        return tag_of_entry(self.found)

    def splices(self, schedule: str) -> Sequence[Splice]:  # noqa: ARG002
        return ()


def _cron_of(found: Listed, schedule: str) -> Entry:
    """Return the entry of a trigger with another schedule."""
    item = found.item
    assert isinstance(item, Entry), "only those can be scheduled"
    rule = schedule_rule(schedule, zone_name=item.zone)
    if not isinstance(rule, CronRule):
        raise PlanScheduleError("a trigger needs a schedule that cron can express")
    return replace(item, rule=rule)


def schedule_kind(found: Listed) -> type[_Place] | None:
    """Return what has the schedule of an entry, if its page can change it."""
    item, is_keeper = found.item, found.mark.address == f"agent:{KEEPER}"
    if found.gone_at is not None or is_keeper or item.origin.file.startswith("/"):
        return None
    if found.source == "org":
        return _Place
    match item:
        case Entry(rule=CadenceRule()) if found.source == "crew":
            return _Member
        case Entry(rule=CronRule()) if found.source == "trigger":
            return _Trigger if item.origin.trigger else _Workflow
    return None


async def _place(root: Path, found: Listed, zone_name: str = "") -> _Place:
    file, kind = found.item.origin.file, schedule_kind(found)
    if kind is None:
        raise PlanScheduleError(f"the schedule of {found.mark.title!r} cannot be changed here")
    content = Content(file, b"", "")
    if kind is not _Trigger:
        content = await asyncio.to_thread(read_plan, root / file, root=root)
    return kind(found, content, zone_name)


def _meaning(item: Entry | Unarmed | None, written: str, now: datetime) -> ScheduleMeaning:
    if not isinstance(item, Entry):
        reason = "this is not a schedule" if item is None else item.reason
        return ScheduleMeaning(written=written, words=None, reason=reason, next=())
    coming = tuple(
        zoned(each.at, item.zone) for each in islice(project(unpaused(item), now, _FAR), FIRES)
    )
    said = words(item.rule, zone_name=item.zone)
    return ScheduleMeaning(written=written, words=said, reason=None, next=coming)


def _proposed(
    place: _Place, schedule: str, now: datetime
) -> tuple[Sequence[Splice], ScheduleMeaning]:
    """Return how another schedule is written, and what it means."""
    try:
        if "\n" in schedule or "\r" in schedule:
            raise PlanScheduleError("a schedule is one line")
        made = place.splices(schedule)
        text = spliced(place.content.data, made).decode()
        return made, _meaning(place.meant(text, schedule, now), schedule, now)
    except HoraeError as error:
        return (), ScheduleMeaning(written=schedule, words=None, reason=str(error), next=())


class Blame(NamedTuple):
    commit: str
    author: str
    at: datetime
    subject: str


async def rule_blame(root: Path, found: Listed) -> Blame | None:
    file = found.item.origin.file
    top = repository_of(root / file)
    if top is None:
        return None
    try:
        line = (await _place(root, found)).rule_line
        where = ("-p", f"-L{line},{line}", "--", os.path.relpath(root / file, top))
        said = await call(os.fspath(top), "blame", *where)
    except HoraeError:
        return None
    known = dict(each.split(" ", 1) for each in said.text.splitlines()[1:] if " " in each)
    commit = said.text.partition(" ")[0]
    if said.code or not commit.strip("0"):
        return None  # not committed yet
    at = datetime.fromtimestamp(int(known.get("author-time", "0")), UTC)
    return Blame(commit, known.get("author", ""), at, known.get("summary", ""))


class ScheduleQuery(Fields, frozen=True):
    to: Annotated[Text, about("another schedule: words, cron, a timestamp or an interval")] = ""


@routes.get(_SCHEDULE, Scope.READ, answer=ScheduleView, also=(404,), has_tag=True)
async def schedule(front: Front, entry: str, query: ScheduleQuery) -> Response:
    """Show the schedule of an entry, and what another one would mean."""
    found, root = await front.service.named(entry), offered(front.root, "plan root")
    now, wanted, zone = front.clock.now(), query.to.strip(), front.zone_name
    place = await _place(root, found, zone)

    def look() -> ScheduleView:
        text, then, warnings = place.content.text, None, []
        if wanted:
            made, then = _proposed(place, wanted, now)
            judge = partial(check, name=place.file, zone=zone, now=now)
            after = spliced(place.content.data, made).decode()
            if type(place) is _Place and then.reason is None:
                known = {(each.code, each.message) for each in judge(text)}
                odd = (each for each in judge(after) if (each.code, each.message) not in known)
                warnings = [f"line {each.line}: {each.message}" for each in odd]
        return ScheduleView(
            entry=found.number,
            title=found.mark.title,
            file=place.file,
            line=place.line,
            zone=found.item.zone if isinstance(found.item, Entry) else zone,
            now=_meaning(place.meant(text, place.written(), now), place.written(), now),
            then=then,
            warnings=tuple(warnings),
        )

    return tagged(await asyncio.to_thread(look), place.tag)


class ScheduleChange(Fields, frozen=True):
    schedule: Annotated[
        Required, about("the new schedule: words, cron, a timestamp or an interval")
    ]


@routes.add("PUT", _SCHEDULE, Scope.EDIT, answer=EditAnswer, body=ScheduleChange, has_tag=True)
async def change_schedule(
    front: Front, entry: str, body: ScheduleChange, if_match: str | None
) -> Response:
    """Change the schedule of an entry where it is written; with If-Match only as read."""
    found, root = await front.service.named(entry), offered(front.root, "plan root")
    place, wanted = await _place(root, found, front.zone_name), body.schedule.strip()

    def splices(content: Content) -> Sequence[Splice]:
        here = type(place)(found, content, front.zone_name)
        made, meaning = _proposed(here, wanted, front.clock.now())
        if meaning.reason is not None:
            raise PlanScheduleError(meaning.reason)
        return made

    async def read_again() -> None:
        if isinstance(now := await _place(root, found), _Workflow):
            await _set_cron(front, found, now.expression)
        await front.engine.rescan(found.source)

    if isinstance(place, _Trigger):
        splices(place.content)
        if if_match not in {None, place.tag}:
            raise ChangedError
        await _set_cron(front, found, written_rule(_cron_of(found, wanted).rule))
        await front.engine.rescan(found.source)
        tag = tag_of_entry(await front.service.named(str(found.number)))
        made = EditAnswer(file=str(found.item.origin), changed=True, digest=tag)
    else:
        words = f"Change the schedule of {found.mark.title}"
        planned = PlannedEdit(
            root / place.file, place.file, words, splices, read_again, root, if_match
        )
        made = await front.edits.make(front, planned)
    return tagged(made, made.digest)


async def _set_cron(front: Front, found: Listed, expression: str) -> None:
    name, triggers = (
        found.mark.address.removeprefix("trigger:"),
        offered(front.triggers, "triggers"),
    )
    config = (await triggers.find(name)).definition.kind.shown()
    await triggers.update(name, {"trigger_config": {**config, "expression": expression}})


class UndoRequest(Fields, frozen=True):
    undo: Annotated[Required, about("what the edit returned")]


@routes.post("/api/v1/edits/undo", Scope.EDIT, also=(409, 412))
async def undo(front: Front, body: UndoRequest) -> EditAnswer:
    """Undo an edit of the last ten seconds, if its file is as the edit left it."""
    return await front.edits.undo(front, body.undo)
