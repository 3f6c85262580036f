"""What an agent is handed when it is woken: what is due, ready, overdue and unblocked.

`survey` is made once per reading of the plans and the board, `hand` once per tick: it looks
only at what is open. Each thing is listed once, where it matters most: an agent's own claims,
then overdue, due, unblocked, ready.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.headline import hidden_by, is_entry
from horae.core.receipt import shown
from horae.core.text import moment_text
from horae.errors import ScheduleError
from horae.org.deadline import end_of
from horae.org.headline import read_headline
from horae.timing.repeater import parse_at
from horae.timing.zone import instant, zone

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from zoneinfo import ZoneInfo

    from horae.core.entry import Origin
    from horae.org.plan import Headline, Plan, States
    from horae.org.timestamp import Timestamp
    from horae.sources.crew.lifecycle import State

MOST_SHOWN: Final = 50  # lines of one list of a prompt
MOST_CARRIED: Final = 40  # lines of a carry note

# Words of boards that a plan need not declare. A word of these before a title is its state.
NEXT: Final = "NEXT"
_WAITING: Final = frozenset({"WAIT", "WAITING", "HOLD", "BLOCKED"})
_AT_WORK: Final = frozenset({"DOING", "STARTED"})
_CLOSED: Final = frozenset({"DONE", "CANCELLED", "CANCELED"})
_WORDS: Final = frozenset({NEXT}) | _WAITING | _AT_WORK | _CLOSED

_OPEN_STATUSES: Final = frozenset({"backlog", "todo"})  # of tasks that anybody may take
_CLOSED_STATUSES: Final = frozenset({"done", "archived"})
_BLOCKER: Final = re.compile(r"(?:ids?[:(][ \t]*+)?(#?[A-Za-z0-9._-]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class BoardTask:
    """A task of the board, as far as handing it over needs to know it."""

    id: int
    title: str
    status: str = "backlog"
    depends_on: tuple[int, ...] = ()
    scheduled_for: datetime | None = None
    blocked: str = ""  # the reason, if it is
    claimed_by: str = ""
    done_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Appointment:
    """A workflow of the plans with its last receipt: the engine's work, not the agent's."""

    title: str
    origin: Origin
    status: str = ""  # of the receipt; nothing if there is none yet
    planned_at: datetime | None = None
    next_at: datetime | None = None


class Open(NamedTuple):
    """Something open, as it is written; whether its time has come is not yet said."""

    key: str  # `id:…`, else file and title; `#7` on the board
    title: str
    where: str
    scheduled_at: datetime | None
    deadline_at: datetime | None  # when it is over
    is_free: bool  # nobody is at it and nothing but its blockers holds it
    is_next: bool
    rank: str  # its priority; without one, that of the middle
    agent: str
    blockers: tuple[str, ...]
    held: str = ""  # why, if somebody holds it


@dataclass(frozen=True, slots=True)
class Survey:
    """All that is open in plans and on the board, and which ids are done, and since when."""

    items: tuple[Open, ...]
    done: Mapping[str, datetime | None]


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that an agent is told of."""

    key: str
    title: str
    where: str
    at: datetime | None = None  # since when it is due or overdue
    waits_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Handed:
    """What an agent is told when it is woken."""

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


def survey(
    plans: Iterable[tuple[str, Plan]], tasks: Iterable[BoardTask] = (), *, zone_name: str
) -> Survey:
    """Return what is open in plans and on the board.

    A headline is open if its state is, or if it has a date and no state. Workflows and what
    is commented out or archived are not work.
    """
    done: dict[str, datetime | None] = {}
    items = [item for file, plan in plans for item in _of_plan(file, plan, done, zone(zone_name))]
    items += _of_board(tasks, done)
    return Survey(tuple(items), done)


def hand(
    surveyed: Survey,
    *,
    agent: str,
    now: datetime,
    zone_name: str,
    last_run_at: datetime | None = None,
    ready_before: Collection[str] | None = None,
    appointments: Sequence[Appointment] = (),
    carry: str = "",
) -> Handed:
    """Return what an agent is told at a moment.

    What another agent has claimed it is not told of. Something ready is unblocked if a thing
    it waited for was done after the agent's last run; *ready_before*, the keys that were
    ready then, knows better than the dates at which things were closed.
    """
    lists: dict[str, list[tuple[Open, Item]]] = {name: [] for name in _LISTS}
    for each in surveyed.items:
        if each.agent not in {"", agent}:
            continue
        waits_for = tuple(name for name in each.blockers if name not in surveyed.done)
        name = _list_of(each, now=now, is_waiting=bool(waits_for))
        if name == "ready" and _is_new(each, surveyed.done, last_run_at, ready_before):
            name = "unblocked"
        if name is not None:
            waiting = (*waits_for, each.held) if each.held else waits_for
            item = Item(each.key, each.title, each.where, _since(each, now), waiting)
            lists[name].append((each, item))
    told = {name: tuple(item for _, item in sorted(lists[name], key=_order)) for name in _LISTS}
    kept = tuple(appointments)
    return Handed(now, zone_name, last_run_at, **told, appointments=kept, carry=carry)


_LISTS: Final = ("claims", "overdue", "due", "unblocked", "ready")


def is_idle(handed: Handed) -> bool:
    """Tell whether there is nothing to do, so that `:WAKE: due` lets the agent sleep."""
    return not (handed.claims or handed.overdue or handed.due or handed.unblocked or handed.ready)


def prompt(handed: Handed, *, mode: str, state: State | None = None) -> str:
    """Return the text that an agent is woken with; *state* is where it is in its day."""
    head = [f"MODE: {mode}"]
    if state is not None:
        head.append(f"LIFECYCLE: {state.name}")
    head.append("Do one keeper run; the working directory is the tenant's repository.")
    parts = ["\n".join(head)]
    if state is not None and state.task:
        parts.append(state.task)
    parts.append(_times(handed))
    parts += [
        f"{title}:\n{_lines(found, handed.zone)}" for title, found in _titled(handed) if found
    ]
    if handed.appointments:
        parts.append(f"Run by the scheduler, not by you:\n{_kept(handed)}")
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
    """Yield the open headlines of a plan, and note in *done* which ids are done."""
    hidden: int | None = None  # the level of what is commented out or archived
    for written, at in zip(plan.headlines, plan.places(), strict=True):
        headline = _with_state(written, plan.states)
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
        scheduled = _start(headline.scheduled, place)
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
            is_next=state == NEXT,
            rank=headline.priority or "B",
            agent=headline.props.get("AGENT", ""),
            blockers=_blockers(headline.props.get("BLOCKER", "")),
        )


def _with_state(headline: Headline, states: States) -> Headline:
    """Return a headline with its state, also if that is a board's word that is not declared."""
    if headline.state is not None or headline.title.partition(" ")[0] not in _WORDS:
        return headline
    return read_headline(headline.text, states.all | _WORDS)


def _blockers(text: str) -> tuple[str, ...]:
    """Return the ids that a `:BLOCKER:` names.

    >>> _blockers("sow, water"), _blockers("ids(sow water)"), _blockers("id:sow #7")
    (('sow', 'water'), ('sow', 'water'), ('sow', '#7'))
    """
    return tuple(dict.fromkeys(_BLOCKER.findall(text)))


def _start(stamp: Timestamp | None, place: ZoneInfo) -> datetime | None:
    """Return the moment that an active stamp names, if it names one."""
    if stamp is None or not stamp.active:
        return None
    try:
        return instant(parse_at(stamp.at).start, place)
    except ScheduleError:
        return None


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


def _of_board(tasks: Iterable[BoardTask], done: dict[str, datetime | None]) -> Iterator[Open]:
    for task in tasks:
        name = f"#{task.id}"
        if task.status in _CLOSED_STATUSES:
            done[name] = task.done_at
            continue
        yield Open(
            name,
            task.title,
            f"task {name}",
            task.scheduled_for,
            None,
            is_free=task.status in _OPEN_STATUSES and not task.blocked,
            is_next=False,
            rank="B",
            agent=task.claimed_by,
            blockers=tuple(f"#{number}" for number in task.depends_on),
            held=task.blocked,
        )


def _list_of(each: Open, *, now: datetime, is_waiting: bool) -> str | None:
    """Return the list that something of one's own or nobody's belongs to, if to any."""
    if each.agent:
        return "claims"
    if each.deadline_at is not None and each.deadline_at < now:
        return "overdue"
    if each.scheduled_at is not None and each.scheduled_at <= now:
        return "due"
    is_undated = each.scheduled_at is None
    is_ready = each.is_free and not is_waiting and (each.is_next or is_undated)
    return "ready" if is_ready else None


def _since(each: Open, now: datetime) -> datetime | None:
    """Return since when something is overdue, else due."""
    if each.deadline_at is not None and each.deadline_at < now:
        return each.deadline_at
    is_due = each.scheduled_at is not None and each.scheduled_at <= now
    return each.scheduled_at if is_due else None


def _is_new(
    each: Open,
    done: Mapping[str, datetime | None],
    last_run_at: datetime | None,
    ready_before: Collection[str] | None,
) -> bool:
    """Tell whether something became ready after the agent's last run."""
    if ready_before is not None:
        return each.key not in ready_before
    if last_run_at is None:
        return False
    ends = [done[name] for name in each.blockers]
    return any(end is not None and end > last_run_at for end in ends)


def _order(pair: tuple[Open, Item]) -> tuple[float, bool, str]:
    """Return where something stands in its list: the longest due, then NEXT, then priority."""
    each, item = pair
    return (item.at.timestamp() if item.at else 0, not each.is_next, each.rank)


def _titled(handed: Handed) -> Iterator[tuple[str, Sequence[Item]]]:
    """Yield the lists of a prompt with their titles."""
    yield "Your open claims", handed.claims
    yield "Overdue", handed.overdue
    yield "Due", handed.due
    yield "Unblocked since your last run", handed.unblocked
    yield "Ready", handed.ready


def _lines(found: Sequence[Item], zone_name: str) -> str:
    """Return a list of things as lines; of a long one, how many are left out."""
    lines = [_line(item, zone_name) for item in found[:MOST_SHOWN]]
    if len(found) > MOST_SHOWN:
        lines.append(f"- and {len(found) - MOST_SHOWN} more")
    return "\n".join(lines)


def _line(item: Item, zone_name: str) -> str:
    """Return one thing as a line; a title comes from strangers and stays on it."""
    since = f", since {moment_text(item.at, zone_name)}" if item.at else ""
    waits = f"; waits for {shown(', '.join(item.waits_for))}" if item.waits_for else ""
    return f"- {shown(item.title)} ({shown(item.where)}){since}{waits}"


def _times(handed: Handed) -> str:
    """Return what time it is, and when the agent last ran."""
    now = f"It is {moment_text(handed.now, handed.zone)}."
    if handed.last_run_at is None:
        return f"{now} This is your first run."
    return f"{now} Your last run began {moment_text(handed.last_run_at, handed.zone)}."


def _kept(handed: Handed) -> str:
    """Return the workflows as lines, each with its receipt."""
    lines = []
    for each in handed.appointments[:MOST_SHOWN]:
        said = each.status or "no receipt yet"
        if each.planned_at is not None:
            said += f", planned {moment_text(each.planned_at, handed.zone)}"
        if each.next_at is not None:
            said += f"; next {moment_text(each.next_at, handed.zone)}"
        lines.append(f"- {shown(each.title)} ({shown(str(each.origin))}): {said}")
    if len(handed.appointments) > MOST_SHOWN:
        lines.append(f"- and {len(handed.appointments) - MOST_SHOWN} more")
    return "\n".join(lines)
