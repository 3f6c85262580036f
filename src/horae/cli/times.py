"""`next`, `agenda` and `due`: when things come."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from datetime import date, datetime, timedelta
from heapq import merge
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from horae.cli.known import Ledgers
from horae.cli.moments import moment_and_zone
from horae.cli.options import at_option, paths_argument, tz_option
from horae.cli.output import Form, Output, echo, form_options, print_json, print_line, print_rows
from horae.cli.plan_root import beside
from horae.cli.sources import Sources, plan_root
from horae.core.due import due as due_lines
from horae.core.entry import CadenceRule, Entry, Origin, Task, cron_rule
from horae.core.project import Moment, project
from horae.core.text import clock_text, moment_text, wall_text
from horae.sources.plans.arming import tasks_of
from horae.timing.rfc3339 import format_with_offset
from horae.timing.zone import local, zone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any
    from zoneinfo import ZoneInfo

    from horae.core.due import DueLine
    from horae.core.entry import Unarmed

_FEW = 4  # so many fires of one entry on one day have a line each
_FAR = timedelta(days=366 * 50)


class When(NamedTuple):
    """The moment and the zone that a command looks from."""

    now: datetime
    zone: str

    @classmethod
    def of(cls, at: str | None, tz: str | None, *, paths: Sequence[str] = ()) -> When:
        """Return what --at and --tz ask for, for the plans that are named."""
        now, place = moment_and_zone(at, tz=tz, root=plan_root(paths))
        return cls(now, place.key)


class AgendaFire(NamedTuple):
    """A planned moment of an entry; ordered by time, then by where it is written."""

    at: datetime
    file: str
    line: int
    entry: Entry
    moment: Moment
    is_estimate: bool

    def data(self) -> dict[str, object]:
        return {
            "at": format_with_offset(self.at.astimezone(zone(self.entry.zone))),
            "zone": self.entry.zone,
            "title": self.entry.title,
            "file": self.file,
            "line": self.line,
            "key": self.moment.key,
            "estimate": self.is_estimate,
        }


def when_options(command: Callable[..., Any]) -> Callable[..., Any]:
    return at_option(tz_option(command))


@click.command("next")
@paths_argument
@click.option(
    "-n",
    "count",
    default=10,
    show_default=True,
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="Show at most N.",
)
@click.option(
    "--cron",
    "expression",
    metavar="EXPR",
    help="Show the times of this expression instead of plans.",
)
@click.option("--from", "start", metavar="T", help="The same as --at.")
@click.option(
    "--view",
    type=click.Choice(["times", "agenda", "due"]),
    default="times",
    show_default=True,
    help="`agenda`: day by day; `due`: what is overdue, due and coming.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 3660),
    metavar="N",
    help="For --view agenda and due: how many days; default: 7.",
)
@when_options
@form_options
def next_(
    paths: tuple[str, ...],
    *,
    count: int,
    expression: str | None,
    start: str | None,
    view: str,
    days: int | None,
    at: str | None,
    tz: str | None,
    form: str | None,
) -> int:
    """Show the next scheduled times (also: agenda, due).

    Show the times of all plans together, or of one cron expression. For a directory this
    includes its board, its triggers and its crew. For an agent that ticks at an interval only
    the next time is shown, because later ones depend on how that tick ends. Pauses and last
    runs come from the running engine, else from the ledger; the source is shown on stderr.
    """
    output = Output.of(form)
    if view != "times":
        if expression is not None:
            raise click.UsageError("--cron goes with --view times.")
        shown = (agenda if view == "agenda" else due).callback
        assert shown is not None, "it is a command"
        return int(shown(paths=paths, days=days or 7, at=start or at, tz=tz, form=form, root=None))
    if days is not None:
        raise click.UsageError("--days goes with --view agenda and --view due.")
    when = When.of(start or at, tz, paths=paths)
    if expression is not None:
        if paths:
            raise click.UsageError("--cron goes without files.")
        rule = cron_rule(expression, zone_name=when.zone if tz else "UTC")
        entry = Entry("", Origin("", 0), expression, rule, zone=rule.crons[0].zone)
        _print_fires(islice(_fires(entry, when.now, None), count), output, is_bare=True)
        return 0
    seen = PlanView(paths, output, when)
    streams = [_fires(entry, when.now, seen) for entry in seen.entries()]
    _print_fires(islice(merge(*streams), count), output)
    return seen.exit_code


@click.command()
@paths_argument
@click.option(
    "--days",
    default=7,
    show_default=True,
    type=click.IntRange(1, 3660),
    metavar="N",
    help="How many days.",
)
@when_options
@form_options
def agenda(
    paths: tuple[str, ...], *, days: int, at: str | None, tz: str | None, form: str | None
) -> int:
    """Show the next days, day by day.

    Show what runs when, and which tasks are planned for people. For a directory this includes
    its board, its triggers and its crew. An entry that runs more than four times on a day has
    one line for that day.
    """
    output = Output.of(form)
    when = When.of(at, tz, paths=paths)
    view = PlanView(paths, output, when)
    place, end = zone(when.zone), when.now + timedelta(days=days)
    lines = [*_agenda(view, when, end)]
    lines.sort(key=lambda line: (line.day(place), line))
    rows = [line.data(when.zone) for line in lines]
    print_rows(output, rows, lambda: _print_agenda(lines, when, days))
    return view.exit_code


@click.command()
@paths_argument
@click.option(
    "--days",
    default=7,
    show_default=True,
    type=click.IntRange(1, 3660),
    metavar="N",
    help="How many days.",
)
@when_options
@form_options
def due(
    paths: tuple[str, ...], *, days: int, at: str | None, tz: str | None, form: str | None
) -> int:
    """Show what is overdue, due and coming.

    Show also what is not armed, and why. For a directory this includes its board, its triggers
    and its crew.
    """
    output = Output.of(form)
    when = When.of(at, tz, paths=paths)
    view = PlanView(paths, output, when)
    items = [*view.items()]
    lines = due_lines(items, now=when.now, horizon=timedelta(days=days))
    ticks = {item.origin for item in items if isinstance(item, Entry) and view.is_guess(item)}
    lines = [replace(line, reason=_GUESS) if line.origin in ticks else line for line in lines]
    rows = [_due_data(line, when.zone) for line in lines]
    print_rows(output, rows, lambda: _print_due(lines, when))
    return view.exit_code


class PlanView:
    """All that has a when in the files and the directories that were named, seen once."""

    def __init__(self, paths: Sequence[str], output: Output, when: When) -> None:
        self._ledgers = Ledgers(paths, output, zone_name=when.zone)
        self._beside = beside(paths, output, now=when.now, ledgers=self._ledgers)
        self._sources = Sources(paths, output, may_be_empty=not self._beside.is_empty)
        self._zone = when.zone

    @property
    def exit_code(self) -> int:
        """How it ended: the first thing that could not be read decides."""
        return self._sources.exit_code or self._beside.exit_code or self._ledgers.exit_code

    def is_guess(self, entry: Entry) -> bool:
        """Tell whether the next tick of an agent is not known, as no engine runs."""
        return self._ledgers.is_guess(entry)

    def entries(self) -> Iterator[Entry]:
        """Yield everything that fires."""
        return (item for item in self.items(with_tasks=False) if isinstance(item, Entry))

    def items(self, *, with_tasks: bool = True) -> Iterator[Entry | Task | Unarmed]:
        """Yield everything that fires, or looks as if it did, and what somebody has to do."""
        for each in self._sources:
            yield from self._ledgers.plan_items(each)
            if with_tasks:
                yield from tasks_of(each.plan, file=each.name, zone_name=self._zone)
        yield from self._beside.items
        if with_tasks:
            yield from self._beside.tasks


_GUESS: Final = "an estimate, as if the engine started now"


def _fires(entry: Entry, after: datetime, view: PlanView | None) -> Iterator[AgendaFire]:
    """Yield the fires of an entry after a moment; there may be no end to them."""
    moments = project(entry, after, after + _FAR)
    is_guess = view is not None and view.is_guess(entry)
    for moment in islice(moments, 1) if isinstance(entry.rule, CadenceRule) else moments:
        is_estimate = is_guess or moment.is_estimate
        yield AgendaFire(
            moment.at, entry.origin.file, entry.origin.line, entry, moment, is_estimate
        )


def _print_fires(fires: Iterator[AgendaFire], output: Output, *, is_bare: bool = False) -> None:
    keep = ("at", "zone") if is_bare else ()
    if output.form is Form.TABLE:
        fire = None
        for fire in fires:
            guess = " (an estimate)" if fire.is_estimate else ""
            what = "" if is_bare else f"  {fire.entry.title}{guess}  {fire.entry.origin}"
            echo(f"{moment_text(fire.at, fire.entry.zone)}{what}")
        if fire is None:
            echo("no scheduled times")
        return
    rows = ({k: v for k, v in fire.data().items() if not keep or k in keep} for fire in fires)
    if output.form is Form.JSONL:
        for row in rows:
            print_line(row)
    else:
        print_json(list(rows))


class AgendaLine(NamedTuple):
    """A line of the agenda: one thing on one day, or many fires of one entry on that day."""

    at: datetime
    file: str
    line: int
    what: str
    title: str
    zone: str
    through: datetime | None = None
    times: int = 1

    def day(self, place: ZoneInfo) -> date:
        """Return the day that the line belongs to; midnight ends the day of a deadline."""
        at = self.at - timedelta(seconds=1) if self.what == "deadline" else self.at
        return local(at, place).date()

    def clock(self, place: ZoneInfo) -> str:
        """Return the time of day, or the times between which it fires."""
        wall = local(self.at, place)
        if wall.date() != self.day(place):
            return "24:00"
        through = f"–{clock_text(local(self.through, place))}" if self.through else ""
        return f"{clock_text(wall)}{through}"

    def data(self, zone_name: str) -> dict[str, object]:
        place = zone(zone_name)
        return {
            "at": format_with_offset(self.at.astimezone(place)),
            "through": format_with_offset(self.through.astimezone(place)) if self.through else None,
            "count": self.times,
            "what": self.what,
            "title": self.title,
            "file": self.file,
            "line": self.line,
            "zone": self.zone,
        }


def _agenda(view: PlanView, when: When, end: datetime) -> Iterator[AgendaLine]:
    for item in view.items():
        if isinstance(item, Entry):
            yield from _fire_lines(item, when, end, is_guess=view.is_guess(item))
        elif isinstance(item, Task):
            yield from _task_lines(item, when, end)


def _task_lines(task: Task, when: When, end: datetime) -> Iterator[AgendaLine]:
    """Yield the dates of something that somebody has to do."""
    for what, at in (("scheduled", task.scheduled), ("deadline", task.deadline)):
        if at is not None and when.now < at <= end:
            yield AgendaLine(at, task.origin.file, task.origin.line, what, task.title, when.zone)


def _fire_lines(entry: Entry, when: When, end: datetime, *, is_guess: bool) -> Iterator[AgendaLine]:
    """Yield the fires of an entry, those of a busy day as one line."""
    place = zone(when.zone)
    fires = project(entry, when.now, end)
    for _, moments in groupby(fires, key=lambda moment: local(moment.at, place).date()):
        day: deque[Moment] = deque(maxlen=_FEW)
        times, first = 0, None
        for moment in moments:
            day.append(moment)
            times, first = times + 1, first or moment
        if times > _FEW and first is not None:
            line = _fire_line(entry, first, is_guess=is_guess)
            yield line._replace(through=day[-1].at, times=times)
        else:
            yield from (_fire_line(entry, moment, is_guess=is_guess) for moment in day)


def _fire_line(entry: Entry, moment: Moment, *, is_guess: bool) -> AgendaLine:
    what = "estimate" if is_guess or moment.is_estimate else "fires"
    origin = entry.origin
    return AgendaLine(moment.at, origin.file, origin.line, what, entry.title, entry.zone)


def _print_agenda(lines: Sequence[AgendaLine], when: When, days: int) -> None:
    place = zone(when.zone)
    first, last = local(when.now, place), local(when.now + timedelta(days=days), place)
    echo(f"{wall_text(first)} to {wall_text(last)}, times in {when.zone}")
    for day, of_day in groupby(lines, key=lambda line: line.day(place)):
        echo(f"\n{wall_text(datetime.combine(day, datetime.min.time())).rpartition(' ')[0]}")
        for line in of_day:
            times = f"  ({line.times} times)" if line.times > 1 else ""
            what = "" if line.what == "fires" else f"{line.what}: "
            other = "" if line.zone == when.zone else f"  [{line.zone}]"
            where = f"{line.file}:{line.line}"
            echo(f"  {line.clock(place):<11}  {what}{line.title}{times}{other}  {where}")
    if not lines:
        echo("\nnothing is scheduled")


def _print_due(lines: Sequence[DueLine], when: When) -> None:
    echo(f"at {moment_text(when.now, when.zone)}")
    for standing, of_standing in groupby(lines, key=lambda line: line.standing):
        echo(f"\n{standing}")
        for line in of_standing:
            at = f"{moment_text(line.at, when.zone)}  " if line.at else ""
            echo(f"  {at}{line.title}  {line.origin}  ({line.reason})")
    if not lines:
        echo("\nnothing is due")


def _due_data(line: DueLine, zone_name: str) -> dict[str, object]:
    at = format_with_offset(line.at.astimezone(zone(zone_name))) if line.at else None
    return {
        "standing": line.standing.value,
        "at": at,
        "title": line.title,
        "file": line.origin.file,
        "line": line.origin.line,
        "reason": line.reason,
    }
