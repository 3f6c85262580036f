"""The briefing of an agent: open work that is claimed, overdue, due, unblocked or ready.

Each item is listed once, in the first of these lists that it fits. The page of a rest in `rem/`
consists of facts alone.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.receipt import BAD, ENDS, Status, shown
from horae.core.source import hidden_by, is_entry
from horae.core.text import moment_text
from horae.errors import ScheduleError
from horae.org.document import read
from horae.org.headline import read_headline
from horae.org.plan import end_of
from horae.timing.repeater import parse_at
from horae.timing.zone import instant, zone

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from zoneinfo import ZoneInfo

    from horae.core.entry import Origin
    from horae.core.ports import TaskBrief
    from horae.files.git.repository import Logged
    from horae.org.plan import Plan, Timestamp
    from horae.sources.crew.lifecycle import State

MOST_SHOWN: Final = 50  # lines per list of a prompt
MOST_CARRIED: Final = 40  # lines of a carry note

# States that a plan need not declare: such a word before a title is its state.
NEXT: Final = "NEXT"
_WAITING: Final = frozenset({"WAIT", "WAITING", "HOLD", "BLOCKED"})
_AT_WORK: Final = frozenset({"DOING", "STARTED"})
_CLOSED: Final = frozenset({"DONE", "CANCELLED", "CANCELED"})
_WORDS: Final = frozenset({NEXT}) | _WAITING | _AT_WORK | _CLOSED

_OPEN_STATUSES: Final = frozenset({"backlog", "todo"})  # of tasks that any agent may take
_CLOSED_STATUSES: Final = frozenset({"done", "archived"})
_BLOCKER: Final = re.compile(r"(?:ids?[:(][ \t]*+)?(#?[A-Za-z0-9._-]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Appointment:
    title: str
    origin: Origin
    status: str = ""  # of the last receipt, if there is one
    planned_at: datetime | None = None
    next_at: datetime | None = None


class Open(NamedTuple):
    key: str  # `id:…`, else file and title; `#7` on the board
    title: str
    where: str
    scheduled_at: datetime | None
    deadline_at: datetime | None  # the end of its DEADLINE
    is_free: bool  # no agent has it, and only its blockers hold it
    agent: str
    blockers: tuple[str, ...]
    is_next: bool = False
    rank: str = "B"  # its priority; without one, the middle
    held: str = ""  # why, if it is held


class Survey(NamedTuple):
    items: tuple[Open, ...]
    done: Mapping[str, datetime | None]


@dataclass(frozen=True, slots=True)
class Item:
    key: str
    title: str
    where: str
    at: datetime | None = None  # since when it is due or overdue
    waits_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Handed:
    now: datetime
    zone: str
    last_run_at: datetime | None
    claims: tuple[Item, ...] = ()
    overdue: tuple[Item, ...] = ()
    due: tuple[Item, ...] = ()
    unblocked: tuple[Item, ...] = ()
    ready: tuple[Item, ...] = ()
    appointments: tuple[Appointment, ...] = ()
    carry: str = ""
    last: str = ""  # the end of the last run


def survey(
    plans: Iterable[tuple[str, Plan]], tasks: Iterable[TaskBrief] = (), *, zone_name: str
) -> Survey:
    done: dict[str, datetime | None] = {}
    items = [item for file, plan in plans for item in _of_plan(file, plan, done, zone(zone_name))]
    for task in tasks:
        name = f"#{task.id}"
        if task.status in _CLOSED_STATUSES:
            done[name] = task.done_at
            continue
        is_free = task.status in _OPEN_STATUSES and not task.blocked
        blockers = tuple(f"#{number}" for number in task.depends_on)
        place = (name, task.title, f"task {name}", task.scheduled_for, None)
        items.append(Open(*place, is_free, task.claimed_by, blockers, held=task.blocked))
    return Survey(tuple(items), done)


def hand(
    surveyed: Survey,
    *,
    agent: str,
    now: datetime,
    zone_name: str,
    last_run_at: datetime | None = None,
    appointments: Sequence[Appointment] = (),
    carry: str = "",
    last: str = "",
) -> Handed:
    lists: dict[str, list[tuple[tuple[float, bool, str], Item]]] = {name: [] for name in _LISTS}
    for each in surveyed.items:
        if each.agent not in {"", agent}:
            continue
        waits_for = tuple(name for name in each.blockers if name not in surveyed.done)
        overdue = each.deadline_at if each.deadline_at and each.deadline_at < now else None
        due = each.scheduled_at if each.scheduled_at and each.scheduled_at <= now else None
        if each.agent:
            name = "claims"
        elif overdue or due:
            name = "overdue" if overdue else "due"
        elif not each.is_free or waits_for or (each.scheduled_at and not each.is_next):
            continue
        else:
            ends = [surveyed.done[blocker] for blocker in each.blockers]
            is_new = last_run_at and any(end and end > last_run_at for end in ends)
            name = "unblocked" if is_new else "ready"
        since = overdue or due
        waiting = (*waits_for, each.held) if each.held else waits_for
        # The longest due first, then NEXT, then by priority.
        order = (since.timestamp() if since else 0, not each.is_next, each.rank)
        lists[name].append((order, Item(each.key, each.title, each.where, since, waiting)))
    told = {
        name: tuple(item for _, item in sorted(found, key=itemgetter(0)))
        for name, found in lists.items()
    }
    kept = tuple(appointments)
    return Handed(now, zone_name, last_run_at, **told, appointments=kept, carry=carry, last=last)


# The lists of a prompt, with their titles.
_LISTS: Final = {
    "claims": "Your open claims",
    "overdue": "Overdue",
    "due": "Due",
    "unblocked": "Unblocked since your last run",
    "ready": "Ready",
}


def is_idle(handed: Handed) -> bool:
    return not any(getattr(handed, name) for name in _LISTS)


def prompt(handed: Handed, *, mode: str, state: State | None = None) -> str:
    head = [f"MODE: {mode}", *([f"LIFECYCLE: {state.name}"] if state is not None else ())]
    head.append(
        "Do one piece of work; the working directory is the plan root, or your clone of it."
    )
    parts = ["\n".join(head)]
    if state is not None and state.task:
        parts.append(state.task)
    last = "This is your first run."
    if handed.last_run_at is not None:
        ended = f" It ended as {shown(handed.last)}" if handed.last else ""
        last = f"Your last run began {moment_text(handed.last_run_at, handed.zone)}.{ended}"
    parts.append(f"It is {moment_text(handed.now, handed.zone)}. {last}")
    lists = {
        title: [_line(item, handed.zone) for item in getattr(handed, name)]
        for name, title in _LISTS.items()
    }
    kept = [_kept(each, handed.zone) for each in handed.appointments]
    for title, lines in {**lists, "Run by the scheduler, not by you": kept}.items():
        more = [f"- and {len(lines) - MOST_SHOWN} more"] if len(lines) > MOST_SHOWN else []
        parts += ["\n".join([f"{title}:", *lines[:MOST_SHOWN], *more])] if lines else []
    if is_idle(handed):
        parts.append("Nothing is due, ready or claimed.")
    if handed.carry.strip():
        lines = handed.carry.strip().splitlines()[:MOST_CARRIED]
        parts.append("\n".join(["Carried over from the last rest:", *map(shown, lines)]))
    parts.append("If there is nothing for you to do, begin your answer with NO-WORK.")
    return "\n\n".join(parts) + "\n"


def _of_plan(
    file: str, plan: Plan, done: dict[str, datetime | None], place: ZoneInfo
) -> Iterator[Open]:
    hidden: int | None = None  # the level of a commented or archived headline
    for written, at in zip(plan.headlines, plan.places(), strict=True):
        headline = written
        if written.state is None and written.title.partition(" ")[0] in _WORDS:
            headline = read_headline(written.text, plan.states.all | _WORDS)
        state, title = headline.state, headline.title
        name = headline.props.get("ID")
        if hidden is None or headline.level <= hidden:
            hidden = headline.level if hidden_by([headline]) else None
        if state in plan.states.done or state in _CLOSED:
            if name is not None:
                planning = headline.planning
                closed = planning.closed.time if planning and planning.closed else None
                done[name] = _closed_at(closed, place)
            continue
        if hidden is not None or is_entry(headline):
            continue
        if not {"component", "agent"}.isdisjoint(headline.tags):
            continue
        scheduled = None
        if headline.scheduled is not None and headline.scheduled.active:
            with suppress(ScheduleError):  # a finding of `check`
                scheduled = instant(parse_at(headline.scheduled.at).start, place)
        deadline = end_of(headline.deadline, zone=place)
        if state is None and scheduled is None and deadline is None:
            continue  # a heading of the text
        yield Open(
            f"id:{name}" if name is not None else f"{file}::{title}",
            title,
            f"{file}:{at.line}",
            scheduled,
            deadline,
            is_free=state is not None and state not in _WAITING | _AT_WORK,
            agent=headline.props.get("AGENT", ""),
            blockers=tuple(dict.fromkeys(_BLOCKER.findall(headline.props.get("BLOCKER", "")))),
            is_next=state == NEXT,
            rank=headline.priority or "B",
        )


def _closed_at(stamp: Timestamp | None, place: ZoneInfo) -> datetime | None:
    """Return when something was closed at the latest: the end of its minute, or of its day."""
    if stamp is None:
        return None
    try:
        anchor = parse_at(stamp.at)
        length = timedelta(minutes=1) if anchor.has_time else timedelta(days=1)
        return instant(anchor.start + length, place)
    except (ScheduleError, OverflowError):
        return None


def _line(item: Item, zone_name: str) -> str:
    since = f", since {moment_text(item.at, zone_name)}" if item.at else ""
    waits = f"; waits for {shown(', '.join(item.waits_for))}" if item.waits_for else ""
    return f"- {shown(item.title)} ({shown(item.where)}){since}{waits}"


def _kept(each: Appointment, zone_name: str) -> str:
    said = each.status or "no receipt yet"
    if each.planned_at is not None:
        said += f", planned {moment_text(each.planned_at, zone_name)}"
    if each.next_at is not None:
        said += f"; next {moment_text(each.next_at, zone_name)}"
    return f"- {shown(each.title)} ({shown(str(each.origin))}): {said}"


FOLDER: Final = "rem"
MOST_LISTED: Final = 30  # lines per heading
MOST_LEFT: Final = 5  # of each kind

_CARRY: Final = "Carry"
_NOTHING: Final = "- nothing"


class Ran(NamedTuple):
    at: datetime
    title: str
    status: Status
    reason: str = ""


class DiaryEntry(NamedTuple):
    at: datetime
    title: str


@dataclass(frozen=True, slots=True)
class DiaryFacts:
    commits: Sequence[Logged] = ()
    runs: Sequence[Ran] = ()
    board: Mapping[str, int] = field(default_factory=dict)  # the number of tasks per status
    coming: Sequence[DiaryEntry] = ()
    handed: Handed | None = None  # the briefing of the agent now


def rest_file(now: datetime) -> str:
    return f"{FOLDER}/{now.astimezone(UTC):%Y-%m-%d-%H%M}.org"


def is_quiet(facts: DiaryFacts) -> bool:
    return not facts.commits and all(run.status is Status.NO_WORK for run in facts.runs)


def rest_text(facts: DiaryFacts, *, agent: str, now: datetime, zone_name: str = "UTC") -> str:
    head = f"#+TITLE: Rest of {shown(agent)}, {moment_text(now, zone_name)}\n"
    pages = {
        "Done": _done(facts, zone_name),
        "Stuck": _stuck(facts),
        "Due next": _due(facts, zone_name),
        _CARRY: _carry(facts, zone_name),
    }
    text = head
    for title, lines in pages.items():
        found = list(lines)
        # As a list, so that no line can be read as a heading or a date.
        kept = [f"- {line}\n" for line in found[:MOST_LISTED]]
        if len(found) > MOST_LISTED:
            kept.append(f"- and {len(found) - MOST_LISTED} more\n")
        text += f"\n* {title}\n" + ("".join(kept) or f"{_NOTHING}\n")
    return text


def carry_of(text: str) -> str:
    for headline in read(text).headlines:
        if headline.level == 1 and headline.title == _CARRY:
            said = headline.text.partition("\n")[2].strip()
            return "" if said == _NOTHING else said
    return ""


def _done(facts: DiaryFacts, zone_name: str) -> Iterator[str]:
    for commit in sorted(facts.commits, key=lambda each: each.at):
        when = moment_text(commit.at, zone_name)
        yield f"{when}, {shown(commit.author)}: {shown(commit.subject)}"
    ends = Counter(run.status for run in facts.runs)
    counts = [f"{ends[status]} {status}" for status in Status if ends[status]]
    if counts:
        yield f"runs: {', '.join(counts)}"
    if facts.board:
        yield "board: " + ", ".join(f"{facts.board[name]} {shown(name)}" for name in facts.board)


def _stuck(facts: DiaryFacts) -> Iterator[str]:
    for title, (count, reason) in _bad_ends(facts.runs).items():
        times = "once" if count == 1 else f"{count} times in a row"
        yield f"{title}: failed {times}{f', last: {reason}' if reason else ''}"
    handed = facts.handed
    for item in (*handed.claims, *handed.overdue, *handed.due) if handed else ():
        if item.waits_for:
            yield f"{shown(item.title)}: waits for {shown(', '.join(item.waits_for))}"


def _bad_ends(runs: Sequence[Ran]) -> dict[str, tuple[int, str]]:
    found: dict[str, tuple[int, str]] = {}
    for run in sorted(runs, key=lambda each: each.at):
        title = shown(run.title)
        if run.status in BAD:
            found[title] = (found.get(title, (0, ""))[0] + 1, shown(run.reason))
        elif run.status in ENDS:
            found.pop(title, None)
    return found


def _due(facts: DiaryFacts, zone_name: str) -> Iterator[str]:
    if facts.handed is not None:
        for word, found in (("overdue", facts.handed.overdue), ("due", facts.handed.due)):
            for item in found:
                since = f" since {moment_text(item.at, zone_name)}" if item.at else ""
                yield f"{shown(item.title)} ({shown(item.where)}): {word}{since}"
    for coming in sorted(facts.coming, key=lambda each: each.at):
        yield f"{moment_text(coming.at, zone_name)}: {shown(coming.title)}"


def _carry(facts: DiaryFacts, zone_name: str) -> Iterator[str]:
    handed = facts.handed
    if handed is not None:
        for item in handed.claims[:MOST_LEFT]:
            yield f"finish {shown(item.title)} ({shown(item.where)}), which you claimed"
    for title, (_, reason) in list(_bad_ends(facts.runs).items())[:MOST_LEFT]:
        yield f"look at {title}{f': {reason}' if reason else ''}"
    if handed is None:
        return
    for item in handed.overdue[:MOST_LEFT]:
        since = f", overdue since {moment_text(item.at, zone_name)}" if item.at else ""
        yield f"start with {shown(item.title)} ({shown(item.where)}){since}"
    for item in handed.unblocked[:MOST_LEFT]:
        yield f"start {shown(item.title)} ({shown(item.where)}): it is no longer blocked"
