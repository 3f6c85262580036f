"""The schedule of a headline: what another one would mean, and its change in the plan file."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from msgspec import structs
from starlette.responses import Response

from horae.app import check
from horae.core.actor import Scope
from horae.core.entry import CronRule, Entry, anchored_item, schedule_rule
from horae.core.ports import Listed
from horae.core.project import project
from horae.core.text import words, written_rule
from horae.core.views import Shape, Time, zoned
from horae.errors import Exit, HoraeError
from horae.files.edit import Splice, spliced
from horae.files.git.calls import call
from horae.files.git.layout import repository_of
from horae.files.read import Content, read_plan
from horae.org.document import read
from horae.org.headline import properties
from horae.org.plan import Plan, Span
from horae.sources.plans.arming import scan_plan
from horae.sources.plans.done import Edit, PlanHeadline
from horae.web.answer import as_json
from horae.web.fields import Fields, Required, Text, about
from horae.web.front import EditAnswer, Front, PlannedEdit, offered, tag_of_entry
from horae.web.router import ChangedError, Routes

routes = Routes()
FIRES: Final = 10
_FAR: Final = datetime(9998, 1, 1, tzinfo=UTC)
_STAMP: Final = re.compile(r"<[^<>\n]+>")
_SCHEDULE: Final = "/api/v1/entries/{entry:path}/schedule"


class PlanScheduleError(HoraeError, code="plan_schedule", exit_code=Exit.USAGE): ...


class ScheduleMeaning(Shape, frozen=True, kw_only=True):
    written: str  # as in the plan
    words: str | None  # null: it is not armed
    reason: str | None  # why it is not armed
    next: tuple[Time, ...]


class ScheduleView(Shape, frozen=True, kw_only=True):
    """The schedule of an entry in its plan, or of a proposed one."""

    entry: int
    title: str
    file: str
    line: int
    zone: str
    now: ScheduleMeaning
    then: ScheduleMeaning | None
    warnings: tuple[str, ...]  # also of the prose


class _Place(NamedTuple):
    found: Listed
    file: str
    content: Content

    def headline(self) -> PlanHeadline:
        return headline_of(self.content, self.found)

    def written(self) -> str:
        headline = self.headline().headline
        stamp = headline.planning.scheduled if headline.planning else None
        return headline.props.get("SCHEDULE") or (stamp.text if stamp else "")


def headline_of(content: Content, found: Listed) -> PlanHeadline:
    """Return the headline of an entry, where the ledger has it or where it is now."""
    plan, mark = read(content.text), found.mark
    lines = [each.line for each in plan.places()]
    name = mark.address.removeprefix("id:")
    here = [
        index
        for index, each in enumerate(plan.headlines)
        if each.props.get("ID") == name
        or (each.title == mark.title and lines[index] == found.item.origin.line)
    ]
    if len(here) != 1:
        where = f"{found.item.origin.file}:{found.item.origin.line}"
        raise PlanScheduleError(
            f"{mark.title!r} is no longer at {where}; try again when the plan has been read"
        )
    return PlanHeadline(plan, here[0], content.path)


def schedule_splices(headline: PlanHeadline, schedule: str) -> Sequence[Splice]:
    planning, props = headline.headline.planning, headline.headline.props
    stamp = planning.scheduled if planning else None
    if "\n" in schedule or "\r" in schedule:
        raise PlanScheduleError("a schedule is one line")
    if stamp is None or "SCHEDULE" in props:
        return headline.splices(headline.property_edits({"SCHEDULE": schedule}))
    if not _STAMP.fullmatch(schedule):
        example = "<2026-06-06 Sat 09:00 +1w>"
        raise PlanScheduleError(f"this entry has a timestamp; write one, such as {example}")
    return headline.splices([Edit(Span(stamp.start, stamp.end), schedule)])


async def _place(front: Front, word: str) -> _Place:
    found = await front.service.named(word)
    root, file = offered(front.root, "plan root"), found.item.origin.file
    if found.source != "org" or found.gone_at is not None:
        raise PlanScheduleError(f"{found.mark.title!r} is not defined in a plan; change it there")
    content = await asyncio.to_thread(read_plan, root / file, root=root)
    return _Place(found, file, content)


def of_trigger(found: Listed) -> Entry | None:
    """Return the entry of a trigger by cron that no file defines."""
    item = found.item
    if not isinstance(item, Entry) or found.source != "trigger" or found.gone_at is not None:
        return None
    return item if item.origin.trigger and isinstance(item.rule, CronRule) else None


def _trigger_meaning(item: Entry, written: str, now: datetime) -> tuple[ScheduleMeaning, str]:
    """Return what a schedule would mean for a trigger, and how it is stored."""
    try:
        rule = schedule_rule(written, zone_name=item.zone)
        if not isinstance(rule, CronRule):
            raise PlanScheduleError("a trigger needs a schedule that cron can express")
    except HoraeError as error:
        return ScheduleMeaning(written=written, words=None, reason=str(error), next=()), ""
    return _coming(structs.replace(item, rule=rule), written, now), written_rule(rule)


def _coming(item: Entry, written: str, now: datetime) -> ScheduleMeaning:
    coming = tuple(zoned(each.at, item.zone) for each in islice(project(item, now, _FAR), FIRES))
    said = words(item.rule, zone_name=item.zone)
    return ScheduleMeaning(written=written, words=said, reason=None, next=coming)


def _meaning(plan: Plan, written: str, place: _Place, line: int, front: Front) -> ScheduleMeaning:
    now, known = front.clock.now(), place.found.item
    scanned = scan_plan(plan, file=place.file, zone_name=front.zone_name)
    item = next((each.item for each in scanned if each.item.origin.line == line), None)
    if item is not None:
        item = anchored_item(item, now=now, was=known)
    if not isinstance(item, Entry):
        reason = "this is not a schedule" if item is None else item.reason
        return ScheduleMeaning(written=written, words=None, reason=reason, next=())
    return _coming(item, written, now)


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
        content = await asyncio.to_thread(read_plan, root / file, root=root)
        line = _rule_line(headline_of(content, found))
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


def _rule_line(here: PlanHeadline) -> int:
    headline = here.headline
    drawer, planning = headline.drawer, headline.planning
    lines = [] if drawer is None else list(properties(headline.text, drawer))
    at = next((each.line.start for each in lines if each.key == "SCHEDULE"), 0)
    if not at and planning is not None and planning.scheduled is not None:
        at = planning.scheduled.start
    return here.plan.places()[here.index].line + headline.text.count("\n", 0, at)


class ScheduleQuery(Fields, frozen=True):
    to: Annotated[Text, about("another schedule: words, cron, or a timestamp")] = ""


@routes.get(_SCHEDULE, Scope.READ, answer=ScheduleView, also=(404,), has_tag=True)
async def schedule(front: Front, entry: str, query: ScheduleQuery) -> Response:
    """Show the schedule of an entry of a plan or of a trigger, and what another one would mean."""
    wanted, listed = query.to.strip(), await front.service.named(entry)
    if (item := of_trigger(listed)) is not None:
        now = front.clock.now()
        then = _trigger_meaning(item, wanted, now)[0] if wanted else None
        view = ScheduleView(
            entry=listed.number,
            title=listed.mark.title,
            file=item.origin.file,
            line=item.origin.line,
            zone=item.zone,
            now=_coming(item, written_rule(item.rule), now),
            then=then,
            warnings=(),
        )
        return as_json(view, headers={"ETag": f'"{tag_of_entry(listed)}"'})
    place = await _place(front, entry)

    def look() -> ScheduleView:
        headline, found = place.headline(), place.found
        line, zone = headline.plan.places()[headline.index].line, front.zone_name
        then, warnings = None, []
        if wanted:
            data = spliced(place.content.data, schedule_splices(headline, wanted))
            text, judge = data.decode(), partial(check, name=place.file, zone=zone)
            then, now = _meaning(read(text), wanted, place, line, front), front.clock.now()
            known = {(each.code, each.message) for each in judge(place.content.text, now=now)}
            odd = (each for each in judge(text, now=now) if (each.code, each.message) not in known)
            warnings = [f"line {each.line}: {each.message}" for each in odd]
        return ScheduleView(
            entry=found.number,
            title=found.mark.title,
            file=place.file,
            line=line,
            zone=found.item.zone if isinstance(found.item, Entry) else zone,
            now=_meaning(headline.plan, place.written(), place, line, front),
            then=then,
            warnings=tuple(warnings),
        )

    shown = await asyncio.to_thread(look)
    return as_json(shown, headers={"ETag": f'"{place.content.digest}"'})


class ScheduleChange(Fields, frozen=True):
    schedule: Annotated[Required, about("the new schedule: words, cron, or a timestamp")]


@routes.add("PUT", _SCHEDULE, Scope.EDIT, answer=EditAnswer, body=ScheduleChange, has_tag=True)
async def change_schedule(
    front: Front, entry: str, body: ScheduleChange, if_match: str | None
) -> Response:
    """Change the schedule of an entry in its plan, or of a trigger; with If-Match only as read."""
    wanted, listed = body.schedule.strip(), await front.service.named(entry)
    if (item := of_trigger(listed)) is not None:
        return await _change_trigger(front, listed, item, wanted, if_match)
    place = await _place(front, entry)
    title, root = place.found.mark.title, offered(front.root, "plan root")

    def splices(content: Content) -> Sequence[Splice]:
        headline = headline_of(content, place.found)
        made = schedule_splices(headline, wanted)
        line = headline.plan.places()[headline.index].line
        meaning = _meaning(read(spliced(content.data, made).decode()), wanted, place, line, front)
        if meaning.reason is not None:
            raise PlanScheduleError(meaning.reason)
        return made

    planned = PlannedEdit(
        root / place.file,
        place.file,
        f"Change the schedule of {title}",
        splices,
        lambda: front.engine.rescan("org"),
        root,
        if_match,
    )
    made = await front.edits.make(front, planned)
    return as_json(made, headers={"ETag": f'"{made.digest}"'})


async def _change_trigger(
    front: Front, found: Listed, item: Entry, wanted: str, if_match: str | None
) -> Response:
    meaning, cron = _trigger_meaning(item, wanted, front.clock.now())
    if meaning.reason is not None:
        raise PlanScheduleError(meaning.reason)
    if if_match not in {None, tag_of_entry(found)}:
        raise ChangedError
    config = {"type": "cron", "expression": cron, "timezone": item.zone}
    name = found.mark.address.removeprefix("trigger:")
    await offered(front.triggers, "triggers").update(name, {"trigger_config": config})
    await front.engine.rescan("trigger")
    tag = tag_of_entry(await front.service.named(str(found.number)))
    made = EditAnswer(file=str(item.origin), changed=True, digest=tag)
    return as_json(made, headers={"ETag": f'"{tag}"'})


class UndoRequest(Fields, frozen=True):
    undo: Annotated[Required, about("what the edit returned")]


@routes.post("/api/v1/edits/undo", Scope.EDIT, also=(409, 412))
async def undo(front: Front, body: UndoRequest) -> EditAnswer:
    """Undo an edit of the last ten seconds, if its file is as the edit left it."""
    return await front.edits.undo(front, body.undo)
