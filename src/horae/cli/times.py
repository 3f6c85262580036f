"""`next`, `agenda`, `due` and `explain`: when things come, and by which rule."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from heapq import merge
from itertools import groupby, islice
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import click

from horae.cli import options
from horae.cli.moments import moment_or_length
from horae.cli.output import Form, Output, echo, form_options, print_answer, print_line, print_rows
from horae.cli.plan_root import PlanView, When, crew_of
from horae.cli.sources import plan_root
from horae.config import load
from horae.core import entry as rules
from horae.core.due import due as due_lines
from horae.core.entry import AfterRule, Entry, OnDemandRule, Unarmed
from horae.core.explain import entry_policy_words, stamp
from horae.core.project import Moment, project, seams
from horae.core.text import (
    anchor_words,
    clock_text,
    moment_text,
    no_time_left,
    pause_words,
    wall_text,
    with_zone,
    words,
    written_rule,
)
from horae.files.read import PlanMissingError, read_plan
from horae.org import document
from horae.org.check import planning_findings
from horae.org.plan import Headline, parse_timestamp
from horae.sources.plans.arming import item_at, once_wall, rule_of, rule_text, scan_plan
from horae.timing.cron import Cron, is_phrase
from horae.timing.zone import local, zone

_FEW: Final = 4  # so many fires of one entry on one day have a line each
_YEAR: Final = timedelta(days=366)
_FAR: Final = 50 * _YEAR
_GUESS: Final = "an estimate, as if the engine started now"
_PLACE: Final = re.compile(r"(.+?):(\d{1,9})(?::\d+)?", re.ASCII)
_CLOCK: Final = re.compile(r"\s\d{0,2}:\d\d$", re.ASCII)
_LENGTH: Final = re.compile(r"(\d{1,2}) ?(m|min|minutes?|h|hours?)", re.ASCII)
_DATED: Final = re.compile(r"\s*\d{4}-\d\d-\d\d(?![\w.-])")


def _view_options(command: Callable[..., int]) -> Callable[..., int]:
    days = options.number_option("--days", default=7, most=3660, text="How many days.")
    when = options.at_option(options.tz_option(form_options(command)))
    return options.paths_argument(days(when))


class AgendaFire(NamedTuple):
    at: datetime
    file: str
    line: int
    entry: Entry
    moment: Moment
    is_estimate: bool

    def data(self) -> dict[str, object]:
        zone_name = self.entry.zone
        when = {"at": stamp(self.at, zone_name), "zone": zone_name, "title": self.entry.title}
        where = {"file": self.file, "line": self.line, "key": self.moment.key}
        return {**when, **where, "estimate": self.is_estimate}


@click.command("next")
@options.paths_argument
@options.number_option("-n", "count", default=10, most=100_000)
@options.option(
    "--cron EXPR", "Show the times of this expression instead of plans.", name="expression"
)
@options.option("--when PHRASE", "The same, in words: 'weekdays at 9'.", name="phrase")
@click.option("--from", "start", metavar="TIME", help="Show times after TIME; default: now.")
@options.choice_option(
    "--view",
    "`agenda`: day by day; `due`: what is overdue, due and coming.",
    ["times", "agenda", "due"],
    default="times",
)
@options.number_option(
    "--days", most=3660, text="For --view agenda and due and --cost: how many days; default: 7."
)
@options.flag("--cost", "What the runs of these days are expected to cost.")
@options.at_option
@options.tz_option
@form_options
def next_(
    paths: tuple[str, ...],
    *,
    count: int,
    expression: str | None,
    phrase: str | None,
    start: str | None,
    view: str,
    days: int | None,
    cost: bool,
    at: str | None,
    tz: str | None,
    output: Output,
) -> int:
    """Show the next scheduled times (also: agenda, due).

    Show the times of all plans together, or of one cron expression. For a directory this
    includes its board, its triggers and its crew. For an agent that ticks at an interval only
    the next time is shown, because later ones depend on how that tick ends. Pauses and last
    runs come from the running engine, else from the ledger; the source is shown on stderr.
    """
    when = When.of(at, tz, paths=paths)
    after, has_rule = when.now, expression is not None or phrase is not None
    if start is not None:
        after = moment_or_length(start, zone(when.zone), when.now, such_as="2d")
    others = (has_rule, at, tz, start, view != "times", len(paths) > 1)
    name = "cron" if phrase is None else "when"
    for is_wrong, said in (
        (cost and any(others), "--cost can only be used with one directory and --days."),
        (has_rule and view != "times", "--cron and --when require --view times."),
        (start and view == "due", "--from requires --view times or --view agenda."),
        (days and view == "times" and not cost, "--days requires --view agenda or --view due."),
        (has_rule and paths, f"--{name} cannot be used with files."),
        (expression is not None and phrase is not None, "give --cron or --when, not both."),
    ):
        if is_wrong:
            raise click.UsageError(said)
    days = days or 7
    if cost:
        from horae.cli.cost import show_forecast  # loads the ledger

        show_forecast(paths[0] if paths else ".", output, days=min(days, 366))
        return 0
    if view == "agenda":
        return _show_agenda(paths, when, after, days=days, output=output)
    if view == "due":
        return _show_due(paths, when, days=days, output=output)
    if has_rule:
        place = when.zone if tz else "UTC"
        rule = (
            rules.cron_rule(expression, zone_name=place)
            if expression is not None
            else _rule_of_phrase(phrase or "", place, when.now, output)
        )
        entry = Entry("", rules.Origin("", 0), "", rule, zone=place)
        _print_fires(islice(_fires(entry, after, None), count), output, when.zone, is_bare=True)
        return 0
    seen = PlanView(paths, output, when)
    entries = [*seen.entries()]
    if output.is_text:
        for entry in entries:
            if counted := anchor_words(entry):
                click.echo(f"horae: {entry.origin}: {counted}", err=True)
    streams = [_fires(entry, after, seen) for entry in entries]
    fires = islice(merge(*streams), count)
    _print_fires(fires, output, when.zone, has_failed=lambda: bool(seen.exit_code))
    return seen.exit_code


def _rule_of_phrase(text: str, place: str, now: datetime, output: Output) -> rules.Rule:
    """Return the rule that a phrase means, and say on stderr how it is written."""
    from horae.timing.phrases import PhraseError, compile_phrase  # plans seldom have one

    try:
        compiled = compile_phrase(text)
    except PhraseError as error:
        raise click.UsageError(f"{error}\n{error.caret()}") from None
    rule, written = rules.compiled_rule(compiled, zone_name=place, now=now)
    if output.is_text:
        click.echo(f"{written}: {words(rule, zone_name=place)}", err=True)
    return rule


@click.command()
@_view_options
def agenda(paths: tuple[str, ...], *, days: int, output: Output, **when: Any) -> int:
    """Show the next days, day by day.

    Show what runs when, and the dates of open headlines that Horae does not run. For a directory
    this includes its board, its triggers and its crew. An entry that runs more than four times on
    a day has one line for that day.
    """
    now = When.of(**when, paths=paths)
    return _show_agenda(paths, now, now.now, days=days, output=output)


@click.command()
@_view_options
def due(paths: tuple[str, ...], *, days: int, output: Output, **when: Any) -> int:
    """Show what is overdue, due and coming.

    Also show what is not armed, and why. For a directory this includes its board, its triggers
    and its crew.
    """
    return _show_due(paths, When.of(**when, paths=paths), days=days, output=output)


def _fires(entry: Entry, after: datetime, view: PlanView | None) -> Iterator[AgendaFire]:
    moments = project(entry, after, after + _FAR)
    is_guess = view is not None and view.is_guess(entry)
    origin = entry.origin
    for moment in islice(moments, 1) if isinstance(entry.rule, rules.CadenceRule) else moments:
        is_estimate = is_guess or moment.is_estimate
        yield AgendaFire(moment.at, origin.file, origin.line, entry, moment, is_estimate)


def _own_zone(entry: Entry, otherwise: str) -> str:
    """Return the zone that an entry's times are meant in; an interval has none."""
    return otherwise if isinstance(entry.rule, rules.CadenceRule) else entry.zone


def _print_fires(
    fires: Iterator[AgendaFire],
    output: Output,
    zone_name: str,
    *,
    is_bare: bool = False,
    has_failed: Callable[[], bool] = lambda: False,
) -> None:
    if output.is_text:
        fire = None
        for fire in fires:
            guess = " (an estimate)" if fire.is_estimate else ""
            what = "" if is_bare else f"  {fire.entry.title}{guess}  {fire.entry.origin}"
            echo(f"{moment_text(fire.at, _own_zone(fire.entry, zone_name))}{what}")
        if fire is None and not has_failed():
            echo("no scheduled times")
        return
    count = 2 if is_bare else None  # without a title and a place
    rows = (dict(islice(fire.data().items(), count)) for fire in fires)
    if output.form is Form.JSONL:  # each as soon as it is known
        for row in rows:
            print_line(row)
    else:
        print_answer(output, list(rows), "")


# agenda


class AgendaLine(NamedTuple):
    at: datetime
    file: str
    line: int
    what: str
    title: str
    zone: str
    through: datetime | None = None
    times: int = 1

    def day(self, place: ZoneInfo) -> date:
        at = self.at - timedelta(seconds=1) if self.what == "deadline" else self.at
        return local(at, place).date()

    def clock(self, place: ZoneInfo) -> str:
        wall = local(self.at, place)
        if wall.date() != self.day(place):
            return "24:00"
        through = f"–{clock_text(local(self.through, place))}" if self.through else ""
        return f"{clock_text(wall)}{through}"

    def data(self, zone_name: str) -> dict[str, object]:
        when = {"at": stamp(self.at, zone_name), "through": stamp(self.through, zone_name)}
        what = {"count": self.times, "what": self.what, "title": self.title}
        return {**when, **what, "file": self.file, "line": self.line, "zone": self.zone}


def _show_agenda(
    paths: Sequence[str], when: When, start: datetime, *, days: int, output: Output
) -> int:
    view = PlanView(paths, output, when)
    when = when._replace(now=start)
    place, end = zone(when.zone), start + timedelta(days=days)
    lines: list[AgendaLine] = []
    for item in view.entries():
        lines += _fire_lines(item, when, end, is_guess=view.is_guess(item))
    for task in view.tasks():
        for what, at in (("scheduled", task.scheduled), ("deadline", task.deadline)):
            if at is not None and when.now < at <= end:
                own = (task.origin.file, task.origin.line, what, task.title, when.zone)
                lines.append(AgendaLine(at, *own))
    lines.sort(key=lambda line: (line.day(place), line))

    def show() -> None:
        if not lines and view.exit_code:
            return
        first, last = local(when.now, place), local(end, place)
        echo(f"{wall_text(first)} to {wall_text(last)}, times in {when.zone}")
        width = max((len(line.clock(place)) for line in lines), default=0)
        for day, of_day in groupby(lines, key=lambda line: line.day(place)):
            echo(f"\n{wall_text(datetime.combine(day, datetime.min.time())).rpartition(' ')[0]}")
            for line in of_day:
                times = f"  ({line.times} times)" if line.times > 1 else ""
                what = "" if line.what == "fires" else f"{line.what}: "
                other = "" if line.zone == when.zone else f"  [{line.zone}]"
                where = rules.Origin(line.file, line.line)
                echo(f"  {line.clock(place):<{width}}  {what}{line.title}{times}{other}  {where}")
        if not lines:
            echo("\nnothing is scheduled")

    print_rows(output, [line.data(when.zone) for line in lines], show)
    return view.exit_code


def _fire_lines(entry: Entry, when: When, end: datetime, *, is_guess: bool) -> Iterator[AgendaLine]:
    """Yield the fires of an entry, those of a busy day as one line."""

    def line(moment: Moment) -> AgendaLine:
        what = "estimate" if is_guess or moment.is_estimate else "fires"
        origin = entry.origin
        own = _own_zone(entry, when.zone)
        return AgendaLine(moment.at, origin.file, origin.line, what, entry.title, own)

    place = zone(when.zone)
    fires = project(entry, when.now, end)
    for _, moments in groupby(fires, key=lambda moment: local(moment.at, place).date()):
        day = [*moments]
        if len(day) > _FEW:
            yield line(day[0])._replace(through=day[-1].at, times=len(day))
        else:
            yield from map(line, day)


# due


def _show_due(paths: Sequence[str], when: When, *, days: int, output: Output) -> int:
    view = PlanView(paths, output, when)
    items = [*view.items(), *view.tasks()]
    lines = due_lines(items, now=when.now, horizon=timedelta(days=days))
    ticks = {item.origin for item in items if isinstance(item, Entry) and view.is_guess(item)}
    lines = [replace(line, reason=_GUESS) if line.origin in ticks else line for line in lines]
    rows = []
    for line in lines:
        data = {"standing": line.standing.value, "at": stamp(line.at, when.zone)}
        place = {"title": line.title, "file": line.origin.file, "line": line.origin.line}
        rows.append({**data, **place, "reason": line.reason})

    def show() -> None:
        if not lines and view.exit_code:
            return
        echo(f"at {moment_text(when.now, when.zone)}")
        for standing, of_standing in groupby(lines, key=lambda line: line.standing):
            echo(f"\n{standing}")
            for line in of_standing:
                at = f"{moment_text(line.at, when.zone)}  " if line.at else ""
                echo(f"  {at}{line.title}  {line.origin}  ({line.reason})")
        if not lines:
            echo("\nnothing is due")

    print_rows(output, rows, show)
    return view.exit_code


# explain


@click.command()
@click.argument("what", metavar="EXPR|PHRASE|STAMP|FILE:LINE")
@options.at_option
@options.tz_option
@form_options
def explain(what: str, *, at: str | None, tz: str | None, output: Output) -> None:
    """Explain a schedule and show its next times.

    The argument is a cron expression ('0 9 * * MON-FRI', several separated by ;), a phrase
    ('weekdays at 9'), an org timestamp ('<2026-06-06 Sat 06:00 +1d>'), or a position in a plan
    (plan.org:12). The next five times are shown, and the clock changes of the next year that
    affect the schedule, in UTC or --tz, for a position in the zone of the entry. For a position
    the output also shows which rule applies, or why the entry does not run.
    """
    if "*-*" in what:
        remedy = "write a cron expression such as '0 9 * * MON'"
        raise click.UsageError(f"{what!r} is a calendar expression of systemd; {remedy}.")
    is_text = what.startswith(("<", "[", "@")) or _DATED.match(what)
    place = None if is_text else _PLACE.fullmatch(what)
    if place is not None and _CLOCK.search(what) and not os.path.exists(place[1]):
        place = None  # "Fridays at 17:30" is no line of a file
    when = When.of(at, tz, paths=[place[1]] if place else ())
    if place is not None:
        found, headline = _at_place(place[1], int(place[2]), when)
        found = PlanView((place[1],), output, when).known(found)
    else:
        found, headline = _of_text(what, when.zone if tz else None)
        found = rules.anchored_item(found, now=when.now)
    data, lines = _explained(found, headline, when.now)
    print_answer(output, data, "\n".join(lines))


def _of_text(text: str, zone_name: str | None) -> tuple[Entry | Unarmed, Headline]:
    if not text.strip():
        Cron(text)  # which says that nothing is no rule; an empty property is none, and no error
    is_stamp = text.strip().startswith(("<", "["))
    if is_stamp and parse_timestamp(text) is None:
        remedy = "write it like <2026-06-06 06:00 +1d>."
        raise click.UsageError(f"{text!r} is not a timestamp; {remedy}")
    if _DATED.match(text):
        raise click.UsageError(f"write a timestamp in angle brackets: '<{text.strip()}>'.")
    if os.path.isdir(text):
        raise click.UsageError(f"{text} is a directory; name a line of a plan, such as plan.org:7.")
    if os.path.exists(text):
        raise click.UsageError(f"{text} is a file; name a line of it, such as {text}:7.")
    words = text.split()
    if words[-1] in available_timezones() and (len(words) > 1 or "/" in text):
        raise click.UsageError(f"{words[-1]!r} is a time zone; use --tz {words[-1]}.")
    if words[-1].endswith(".org"):
        raise PlanMissingError(text, "does not exist")
    if length := _LENGTH.fullmatch(text.strip()):
        is_minutes = length[2].startswith("m")
        cron = f"*/{length[1]} * * * *" if is_minutes else f"0 */{length[1]} * * *"
        raise click.UsageError(f"{text!r} is not a cron expression; write {cron!r}.")
    from horae.timing.phrases.tokens import tokens_of

    if text.strip().isalpha() and tokens_of(text)[0].symbol == ".":  # no word of a phrase
        remedy = f"use `horae why {text.strip()}`, or name its line, such as plan.org:7."
        what = "is not a cron expression, a timestamp or FILE:LINE"
        raise click.UsageError(f"{text!r} {what}; for an entry {remedy}")
    when = f"SCHEDULED: {text.strip()}" if is_stamp else f":PROPERTIES:\n:SCHEDULE: {text}\n:END:"
    plan = document.read(f"* {text} :workflow:\n{when}\n")
    place = zone_name or "UTC"
    headline = plan.headlines[0]
    rule_of(headline, zone_name=place)  # raises what a plan would only call not armed
    return scan_plan(plan, file="-", zone_name=place)[0].item, headline


def _at_place(file: str, line: int, when: When) -> tuple[Entry | Unarmed, Headline]:
    text = read_plan(file).text
    plan = document.read(text)
    lines = len(text.splitlines())
    if line > lines:
        many = f"{lines} line" if lines == 1 else f"{lines} lines"
        raise PlanMissingError(f"{file}:{line}", f"the file has only {many}")
    if (found := item_at(plan, line, file=file, zone_name=when.zone)) is not None:
        return found
    above = [
        headline.title
        for headline, place in zip(plan.headlines, plan.places(), strict=True)
        if place.line <= line
    ]
    if not above:
        raise PlanMissingError(f"{file}:{line}", "there is no entry at this line")
    title = above[-1]
    reason = f"{title!r} is not an entry; `horae why {shlex.quote(title)}` says why"
    root = plan_root((file,))
    manifest = load(root).crew_def
    is_manifest = manifest is not None and os.path.realpath(manifest) == os.path.realpath(file)
    if is_manifest and title in crew_of(root):
        reason = f"{title!r} is an agent that ticks at an interval; use `horae why {title}`"
    raise PlanMissingError(f"{file}:{line}", reason)


def _explained(
    item: Entry | Unarmed, headline: Headline, now: datetime
) -> tuple[dict[str, object], list[str]]:
    written = rule_text(headline)
    is_rule = item.origin.file == "-"  # alone, without a plan
    origin = None if is_rule else item.origin.place
    data: dict[str, object] = {"title": item.title, "origin": origin, "written": written or None}
    data |= {"won": _why(headline), "armed": isinstance(item, Entry)}
    lines = [] if is_rule else [f"{item.title}  {item.origin}", _why(headline, written=written)]
    odd = [each.message for each in planning_findings(headline)]
    data |= {"notes": odd} if odd else {}
    notes = [f"note: {each}" for each in odd]
    if isinstance(item, Unarmed):
        lines.append(f"{'never runs' if is_rule else 'not armed'}: {item.reason}")
        return {**data, "reason": item.reason}, [*lines, *notes]
    moments = [each.at for each in islice(project(item, now, now + _FAR), 5)]
    wall = once_wall(headline)
    met = seams(item.rule, zone_name=item.zone, start=now, end=now + _YEAR, wall=wall)
    changes, rule = [str(each) for each in met], words(item.rule, zone_name=item.zone)
    coming = [stamp(each, item.zone) for each in moments]
    data |= {"words": rule, "zone": item.zone, "next": coming, "clock_changes": changes}
    if written == headline.props.get("SCHEDULE") and is_phrase(written):
        data["rule"] = written_rule(item.rule, zone_name=item.zone)
        lines.append(f"the words mean {data['rule']}")
    lines.append(with_zone(rule, item.zone))
    if item.pause is not None:
        lines.append(f"paused{pause_words(item.pause, zone_name=item.zone)}")
    lines += [f"  {moment_text(each, item.zone)}" for each in moments]
    if not is_rule and (counted := anchor_words(item)):
        notes.append(f"note: {counted}")
        data["notes"] = [*odd, counted]
    if not moments and item.pause is None and not isinstance(item.rule, OnDemandRule | AfterRule):
        lines.append(f"  {no_time_left(item, now)}")
    if not is_rule:
        data["policy"] = entry_policy_words(item)
        lines.append(f"policy: {data['policy']}")
    return data, [*lines, *notes, *(f"note: {each}" for each in changes)]


def _why(headline: Headline, *, written: str = "") -> str:
    """Return which of the possible rules counts, and why; as it is *written*, if that is given."""
    planning, props = headline.planning, headline.props
    stamp = planning.scheduled.text if planning and planning.scheduled else None
    if "AFTER" in props or "SCHEDULE" in props:
        name, rest = ":SCHEDULE:", f"; it overrides SCHEDULED: {stamp}" if stamp else ""
        if "AFTER" in props:
            ignored = [":SCHEDULE:"] if "SCHEDULE" in props else []
            ignored += ["SCHEDULED"] if headline.scheduled and headline.scheduled.active else []
            verb = "is" if len(ignored) == 1 else "are"
            name, rest = ":AFTER:", f"; {' and '.join(ignored)} {verb} ignored" if ignored else ""
        return (
            f"the rule is {name} {written}" if written else f"the {name} property is used"
        ) + rest
    if stamp is not None:
        used = f"the rule is SCHEDULED: {written}" if written else "SCHEDULED is used"
        return f"{used}, because there is no :SCHEDULE: property"
    if headline.deadline is not None:
        return "there is only a DEADLINE, which never starts a run"
    return "there is neither a :SCHEDULE: property nor SCHEDULED"
