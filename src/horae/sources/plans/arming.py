"""The entries of a plan: every workflow, armed or with the reason why not."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from shlex import quote
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from horae.core import entry as core
from horae.core.command import call_of
from horae.core.decide import parse_after
from horae.core.entry import Entry, Origin, Rule, Unarmed, Work
from horae.core.source import Mark, Scanned, agent_blocks, digest_of, hidden_by, is_entry
from horae.errors import ScheduleError
from horae.org.check import unread
from horae.org.document import read
from horae.org.plan import Timestamp, end_of, parse_timestamp
from horae.timing.repeater import parse_at, parse_repeater
from horae.timing.zone import instant, zone

if TYPE_CHECKING:
    from horae.core.budget import Purse
    from horae.org.plan import Headline, Plan

DEEPEST: Final = 32  # levels; deeper nesting would make small plans expensive
_SHOWN: Final = 60
_LONGEST_NAME: Final = 200
# Org writes the number of finished parts into a title, and updates it.
_COOKIE: Final = re.compile(r"[ \t]*\[(?:[0-9]*/[0-9]*|[0-9]*%)\]")
_RANGE: Final = re.compile(r"(?<=[>\]])--(?=[<\[])")
_NAME_LINE: Final = re.compile(r"[ \t]*:ID\+?:[^\n]*\n", re.IGNORECASE)
_EMPTY_DRAWER: Final = re.compile(r"[ \t]*:PROPERTIES:\s*:END:\s*\Z", re.IGNORECASE)
_LOST_LINE: Final = re.compile(r"^[ \t]*:([A-Za-z-]+):[ \t]+(\S[^\n]*)", re.MULTILINE)
_DRAWER_END: Final = re.compile(r"^[ \t]*:END:", re.IGNORECASE | re.MULTILINE)
_SLASH: Final = re.compile(r"[\\/]")


class RangeError(ScheduleError, code="range"):
    def __init__(self, stamps: str) -> None:
        self.stamps = stamps
        shown = stamps if len(stamps) <= _SHOWN else stamps[:_SHOWN] + "…"
        super().__init__(f"SCHEDULED: {shown} is a range; write a single timestamp")


def scan_plan(plan: Plan, *, file: str, zone_name: str) -> list[Scanned]:
    headlines, line = plan.headlines, 1 + plan.preamble.count("\n")
    names: dict[int, str] = {}
    asked = sorted(agent_blocks(plan), key=lambda each: each[0])
    found = []
    for index, path in _paths(plan):
        headline = headlines[index]
        at, line = line, line + headline.text.count("\n")
        lost = _lost(headline, at)
        if not is_entry(headline) and (lost is None or not lost.is_entry):
            continue
        origin, title, rule = Origin(file, at), headline.title, rule_text(headline)
        if len(path) > DEEPEST:
            reason = f"nested more than {DEEPEST} levels deep"
            item: Entry | Unarmed = Unarmed(origin.place, origin, title, reason, is_error=True)
            found.append(Scanned(Mark(origin.place, title, rule, ""), item))
            continue
        over = index + 1  # after the last headline below
        while over < len(headlines) and headlines[over].level > headline.level:
            over += 1
        text = "".join([each.text for each in headlines[index:over]])
        address = _address(plan, path, file, names, lost)
        place = headline.props.get("TZ", zone_name)
        resting = _resting(plan, path, _first_stamp(headline))
        around = _Around(plan, path, file, names, zone_name)
        armed, broken = (resting, "") if resting else _armed(headline, place, lost, around)
        if isinstance(armed, str):
            item = Unarmed(address, origin, title, armed, is_error=not resting)
        else:
            agents = _agents(asked, index, over) if armed.work is Work.WORKFLOW else ()
            what = armed.rule, armed.work, agents, armed.policy
            item = Entry(address, origin, title, *what, place, armed.deadline, digest_of(text))
        mark = Mark(address, title, rule, digest_of(_body(headline, text)))
        found.append(Scanned(mark, item, text, broken))
    return found


def _agents(asked: Sequence[tuple[int, str | None]], index: int, over: int) -> tuple[str, ...]:
    if not asked:
        return ()
    first, last = (bisect_left(asked, at, key=lambda each: each[0]) for at in (index, over))
    return tuple(dict.fromkeys(name for _, name in asked[first:last] if name))


class _Lost(NamedTuple):
    reason: str
    props: dict[str, str]
    is_entry: bool


def _lost(headline: Headline, line: int) -> _Lost | None:
    found = unread(headline)
    if found is None:
        return None
    end = _DRAWER_END.search(headline.text)
    lines = _LOST_LINE.findall(headline.text, 0, end.start() if end else len(headline.text))
    props = {key.upper(): value.strip() for key, value in lines}
    calls = not props.keys().isdisjoint({"COMMAND", "POST"})
    reason = f"{found.message} (line {line + headline.text.count(chr(10), 0, found.at)})"
    return _Lost(reason, props, calls and "agent" not in headline.tags)


def entries_of(plan: Plan, *, file: str, zone_name: str) -> Iterator[Entry | Unarmed]:
    found = scan_plan(plan, file=file, zone_name=zone_name)
    behind = {each.origin: each for each in doubles(found)}
    for item in (each.item for each in found):
        yield behind.get(item.origin, item) if isinstance(item, Entry) else item


def twins(
    found: Iterable[Scanned], known: Mapping[str, Origin] = MappingProxyType({})
) -> Iterator[tuple[Entry | Unarmed, Origin]]:
    """Yield each item that shares its address with another one, and where that is."""
    seen = dict(known)
    items = [each.item for each in found]
    # One that is unreadable is behind any that is armed.
    for item in sorted(items, key=lambda item: not isinstance(item, Entry)):
        if isinstance(item, Entry) or item.is_error:
            first = seen.setdefault(item.address, item.origin)
            if first != item.origin:
                yield item, first


def doubles(
    found: Iterable[Scanned], known: Mapping[str, Origin] = MappingProxyType({})
) -> Iterator[Unarmed]:
    """Yield the entries whose address is that of another one: of a *known* one, else the first."""
    for item, first in twins(found, known):
        name = item.address.removeprefix("id:")
        reason = f"{first} has the same name; give one of the two an :ID:"
        if name != item.address:
            reason = f"{first} has the same :ID: {name}; change one of them"
        yield Unarmed(item.origin.place, item.origin, item.title, reason, is_error=True)


def entries(text: str, *, name: str = "-", zone: str = "UTC") -> list[Entry]:
    r"""Return the armed entries of a plan.

    >>> [entry.title for entry in entries("* Digest :workflow:\nSCHEDULED: <2026-06-06 +1d>\n")]
    ['Digest']
    """
    found = entries_of(read(text), file=name, zone_name=zone)
    return [item for item in found if isinstance(item, Entry)]


def item_at(
    plan: Plan, line: int, *, file: str, zone_name: str
) -> tuple[Entry | Unarmed, Headline] | None:
    if line > len(plan.text().splitlines()):
        return None
    found = {each.origin.line: each for each in entries_of(plan, file=file, zone_name=zone_name)}
    level: int | None = None
    for headline, place in reversed([*zip(plan.headlines, plan.places(), strict=True)]):
        if place.line > line or (level is not None and headline.level >= level):
            continue  # below the line, or beside its headline and not above it
        level = headline.level
        if place.line in found:
            return found[place.line], headline
    return None


def tasks_of(plan: Plan, *, file: str, zone_name: str) -> Iterator[core.PlanTask]:
    """Yield the open headlines with a date that no schedule fires and nothing hides."""
    place = zone(zone_name)
    hidden: int | None = None  # the level of a commented or archived headline
    for headline, at in zip(plan.headlines, plan.places(), strict=True):
        if hidden is None or headline.level <= hidden:
            hidden = headline.level if hidden_by([headline]) else None
        if hidden is not None or headline.planning is None or is_entry(headline):
            continue
        if headline.state in plan.states.done:
            continue
        stamp, scheduled = headline.scheduled, None
        if stamp is not None and stamp.active:
            with suppress(ScheduleError):  # `check` reports that it is not a date
                scheduled = instant(parse_at(stamp.at).start, place)
        deadline = end_of(headline.deadline, zone=place)
        if scheduled or deadline:
            yield core.PlanTask(Origin(file, at.line), headline.title, scheduled, deadline)


def unfired(plan: Plan, names: Collection[str], *, file: str) -> Iterator[Unarmed]:
    places = plan.places()
    for index, path in _paths(plan):
        headline, origin = plan.headlines[index], Origin(file, places[index].line)
        title = headline.title.removeprefix("COMMENT ").strip()
        own = (headline.title, title, headline.props.get("ID", title), origin.place)
        if not is_entry(headline) and any(each.casefold() in names for each in own):
            reason = _resting(plan, path, _first_stamp(headline)) or _why_unfired(headline)
            yield Unarmed(origin.place, origin, headline.title, reason)


def _why_unfired(headline: Headline) -> str:
    way = "add :COMMAND:, :POST: or the tag :workflow:"
    if "component" in headline.tags:
        return "this is a component of a workflow and runs with it"
    if "agent" in headline.tags:
        name = quote(headline.props.get("ID", headline.title))
        return (
            "this is an agent definition, which has no schedule of its own; "
            f"`horae list --agent {name}` lists the entries that run the agent, and "
            f"`horae agent run {name}` runs it once"
        )
    if "SCHEDULE" in headline.props or "AFTER" in headline.props:
        return f"there is a schedule but nothing to run; {way}"
    planning = headline.planning
    if planning is not None and planning.scheduled is not None:
        return f"the headline has a SCHEDULED date but no command or workflow; {way}"
    what = "only a DEADLINE, which never starts a run" if headline.deadline else "no schedule"
    when = "to run it, add SCHEDULED or :SCHEDULE:, and :COMMAND:, :POST: or the tag :workflow:"
    return f"there is {what}; {when}"


def rule_text(headline: Headline) -> str:
    props, planning = headline.props, headline.planning
    for key in ("AFTER", "SCHEDULE"):
        if key in props:
            return props[key]
    return planning.scheduled.text if planning and planning.scheduled else ""


def rule_of(headline: Headline, *, zone_name: str) -> Rule:
    props, planning = headline.props, headline.planning
    if "AFTER" in props:
        return parse_after(props["AFTER"])
    if "SCHEDULE" in props:
        start = None
        if "FROM" in props:
            from_at = core.policy_of({"FROM": props["FROM"]}, zone_name=zone_name).from_at
            start = from_at - timedelta(seconds=1) if from_at else None
        return core.schedule_rule(props["SCHEDULE"], zone_name=zone_name, start=start)
    if planning and planning.scheduled and _RANGE.search(planning.scheduled.text):
        raise RangeError(planning.scheduled.text)
    stamp = _first_stamp(headline)
    if stamp is None:
        return core.OnDemandRule()
    anchor = parse_at(stamp.at)
    if stamp.repeat is None:
        return core.OnceRule(instant(anchor.start, zone(zone_name)))
    return core.RepeaterRule(anchor.start, parse_repeater(stamp.repeat, has_time=anchor.has_time))


def once_wall(headline: Headline) -> datetime | None:
    """Return the local time of a headline that is scheduled once."""
    stamp = _first_stamp(headline)
    return None if stamp is None or stamp.repeat is not None else parse_at(stamp.at).start


def _first_stamp(headline: Headline) -> Timestamp | None:
    planning = headline.planning
    if planning is None or planning.scheduled is None:
        return None
    return parse_timestamp(_RANGE.split(planning.scheduled.text)[0])


class _Armed(NamedTuple):
    rule: Rule
    work: Work
    policy: core.Policy
    deadline: datetime | None


class _Around(NamedTuple):
    plan: Plan
    path: Sequence[int]
    file: str
    names: dict[int, str]
    zone_name: str

    def purses(self) -> Iterator[Purse]:
        for depth in range(len(self.path) - 1, 0, -1):
            props = self.plan.headlines[self.path[depth - 1]].props
            if "BUDGET" in props:
                address = _address(self.plan, self.path[:depth], self.file, self.names, None)
                known = {"BUDGET": props["BUDGET"]}
                own = core.policy_of(known, zone_name=props.get("TZ", self.zone_name)).budget
                yield from (replace(each, of=address) for each in own)


def _armed(
    headline: Headline, place: str, lost: _Lost | None, around: _Around
) -> tuple[_Armed | str, str]:
    """Return what a headline arms, or why it cannot; and which part of it is unreadable."""
    props, planning, stamp = headline.props, headline.planning, _first_stamp(headline)
    if planning and planning.scheduled and "SCHEDULE" not in props and stamp is None:
        broken = f"SCHEDULED: {planning.scheduled.text} is not a timestamp"
        return broken, broken
    try:
        where = zone(place)
        rule = rule_of(headline, zone_name=place)
        policy = core.policy_of(props, zone_name=place)
        if above := tuple(around.purses()):
            policy = replace(policy, budget=(*policy.budget, *above))
        call = call_of(props)
    except ScheduleError as error:
        return str(error), str(error)
    for cron in rule.crons if isinstance(rule, core.CronRule) else ():
        if cron.never:
            return f"cron {cron.expression!r} matches no date", ""
    broken = "" if lost is None else lost.reason
    if not is_entry(headline):
        return broken, broken
    work = Work.WORKFLOW if call is None else Work.COMMAND if call.argv else Work.POST
    return _Armed(rule, work, policy, end_of(headline.deadline, zone=where)), broken


def _resting(plan: Plan, path: Sequence[int], stamp: Timestamp | None) -> str | None:
    headline = plan.headlines[path[-1]]
    if hidden := hidden_by([plan.headlines[index] for index in path]):
        return hidden
    if headline.state is not None and headline.state in plan.states.done:
        return f"the state is {headline.state}"
    if stamp is None or stamp.active or "SCHEDULE" in headline.props:
        return None
    return "SCHEDULED is in square brackets, so it is inactive"


def _paths(plan: Plan) -> Iterator[tuple[int, list[int]]]:
    around: list[int] = []
    headlines = plan.headlines
    for index, headline in enumerate(headlines):
        while around and headlines[around[-1]].level >= headline.level:
            around.pop()
        around.append(index)
        yield index, around


def _address(
    plan: Plan, path: Sequence[int], file: str, names: dict[int, str], lost: _Lost | None
) -> str:
    name = plan.headlines[path[-1]].props.get("ID")
    if name is None and lost is not None:
        name = lost.props.get("ID")
    if name is not None:
        return f"id:{name}"
    for index in path:
        if index not in names:
            names[index] = _name(plan.headlines[index].title)
    return f"{file}::{'/'.join([names[index] for index in path])}"


def _name(title: str) -> str:
    name = _COOKIE.sub("", title) if "[" in title else title
    if "/" in name or "\\" in name:
        name = _SLASH.sub(r"\\\g<0>", name)
    return name if len(name) <= _LONGEST_NAME else f"{name[:40]}…{digest_of(name)}"


def _body(headline: Headline, text: str) -> str:
    drawer, line = headline.drawer, text.find("\n") + 1 or len(text)
    if drawer is None:
        return text[line:].strip()
    kept = text[drawer.start : drawer.end]
    words = kept.lower()
    if drawer.props and ":id" not in words and words.count(":properties:") == 1:
        return text[line:].strip()
    kept = _EMPTY_DRAWER.sub("", _NAME_LINE.sub("", kept))
    return f"{text[line : drawer.start]}{kept}{text[drawer.end :]}".strip()
