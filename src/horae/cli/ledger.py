"""`status`, `history`, `why`, `pause`, `resume` and `backfill`: what the ledger knows."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import click

from horae.cli.client import Far
from horae.cli.connection import (
    NoLedgerError,
    Place,
    engine_at,
    engine_of,
    new_id,
    parse_until,
    read,
    say_source,
    write,
)
from horae.cli.moments import parse_moment
from horae.cli.options import at_option, place_options
from horae.cli.output import (
    Form,
    Output,
    echo,
    form_options,
    print_answer,
    print_json,
    print_line,
    print_rows,
)
from horae.config import load, untrusted
from horae.core.clock import SystemClock
from horae.core.decide import GRACE
from horae.core.explain import (
    AskedMomentError,
    at_the_gate,
    filed_policy_words,
    late,
    length_text,
    parse_ask,
    requested_words,
    run_words,
)
from horae.core.ports import LedgerError
from horae.core.receipt import FINAL, Reason, Status
from horae.core.text import in_zone, moment_text, pause_words
from horae.core.views import EntryNotFoundError
from horae.errors import Exit, HoraeError
from horae.timing.zone import zone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime
    from typing import Any

    from horae.core.explain import WhyAnswer
    from horae.core.service import Service
    from horae.core.views import (
        AgentLine,
        BackfillResult,
        EntryLine,
        History,
        PauseResult,
        ReceiptLine,
        StatusReport,
        WhyReport,
    )

_T = TypeVar("_T", "ReceiptLine", "EntryLine")

_PATIENCE: Final = 5.0  # seconds for an engine to say what only it knows
_MOST: Final = 1000  # that it tells of at a time

_entry = click.argument("entry", metavar="ENTRY")


@click.command()
@click.option(
    "-n",
    "limit",
    default=20,
    show_default=True,
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Show at most N.",
)
@at_option
@place_options
@form_options
def status(*, limit: int, at: str | None, root: str, data: str | None, form: str | None) -> int:
    """Show what is running, waiting, next and failing."""
    output = Output.of(form)
    place = Place.of(root=root, data=data)
    engine = engine_of(place)
    if not engine.is_running:  # else it says so itself
        waiting = untrusted(load(root, flags={"data": data})).waiting
        engine = replace(engine, problems=tuple(f"settings: {each}" for each in waiting))
    stands = read(place, lambda service: service.status(engine, limit=limit), at=place.moment(at))
    if at is None and engine.is_running and engine.pid is not None:
        stands = _as_the_engine_knows(stands, Far(place.directory, pid=engine.pid), limit=limit)
    if at is None and output.form is Form.TABLE:
        say_source(engine)
    _print(output, stands, print_status)
    return Exit.OK


@click.command()
@click.argument("entry", metavar="[ENTRY]", required=False)
@click.option("--since", metavar="T", help="Only receipts scheduled at T or later.")
@click.option("--until", metavar="T", help="Only receipts scheduled at T or earlier.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([each.value for each in Status]),
    metavar="STATUS",
    help=f"Only receipts with this status: {', '.join(Status)}. Repeat for several.",
)
@click.option(
    "-n",
    "limit",
    default=50,
    show_default=True,
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Show at most N.",
)
@click.option("--cursor", type=int, metavar="N", help="Only receipts before this number.")
@at_option
@place_options
@form_options
def history(
    entry: str | None,
    *,
    since: str | None,
    until: str | None,
    statuses: tuple[str, ...],
    limit: int,
    cursor: int | None,
    at: str | None,
    root: str,
    data: str | None,
    form: str | None,
) -> int:
    """List receipts, newest first.

    Without ENTRY the receipts of all entries are listed.
    """
    output = Output.of(form)
    place = Place.of(root=root, data=data)
    found = read(
        place,
        lambda service: service.history(
            entry,
            since=place.moment(since),
            until=place.moment(until),
            statuses=[Status(each) for each in statuses],
            limit=limit,
            cursor=cursor,
        ),
        at=place.moment(at),
    )
    shown = replace(found, lines=tuple(_in_zone(found.lines, zone_name=place.zone.key)))
    print_rows(output, [line.data() for line in found.lines], lambda: _print_history(shown))
    return Exit.OK


@click.command()
@click.argument("what", metavar="ENTRY[@TIME]")
@click.option(
    "-n",
    "limit",
    default=20,
    show_default=True,
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Show at most N.",
)
@at_option
@place_options
@form_options
def why(
    what: str, *, limit: int, at: str | None, root: str, data: str | None, form: str | None
) -> int:
    """Show why an entry ran or did not run.

    TIME is in the zone of the entry (digest@2026-04-01T09:00; a date alone is that whole day)
    or in RFC 3339. Without TIME the last and the next scheduled time are explained. For a
    headline that is not in the ledger, the reason is derived from the plan file.
    """
    output = Output.of(form)
    place = Place.of(root=root, data=data)
    asked = parse_ask(what)
    try:
        said = read(place, lambda service: service.why(asked, limit=limit), at=place.moment(at))
    except (EntryNotFoundError, NoLedgerError, AskedMomentError):
        from horae.cli.written import look_up

        now = place.moment(at) or SystemClock().now()
        found = look_up(asked.word, place, output, now=now)
        if not found:
            word, _, when = asked.word.rpartition("@")
            is_entry = word.strip() and look_up(word.strip(), place, output, now=now)
            if asked.start is None and is_entry:
                raise AskedMomentError(when.strip()) from None
            raise
        match output.form:
            case Form.TABLE:
                for each in found:
                    each.print()
            case Form.JSON:
                print_json(found[0].data())
            case Form.JSONL:
                for each in found:
                    print_line(each.data())
        return Exit.OK
    if at is None:
        answers = at_the_gate(said.answers, _obstacles(place, said))
        said = replace(said, answers=answers, cannot_run=_cannot_run(place, said))
    is_over = at is None and place.store is None and not engine_of(place).is_running
    _print(output, said, lambda each: _print_why(each, is_over=is_over))
    if output.form is Form.TABLE and said.entry.source == "org" and said.entry.gone_at is None:
        _print_doubles(place, output, said)
    return Exit.OK


def _print_doubles(place: Place, output: Output, said: WhyReport) -> None:
    """Print what else in the plans has the same name, and why it is not armed."""
    from horae.cli.written import look_up
    from horae.core.entry import Entry

    entry = said.entry
    for each in look_up(entry.title, place, output, now=said.at):
        is_armed = isinstance(each.item, Entry)  # then it is the entry, perhaps on another line
        if each.item.address == entry.address and each.item.origin != entry.origin and not is_armed:
            echo("")
            each.print()


def _cannot_run(place: Place, said: WhyReport) -> str:
    """Return why a run of an entry could not start: what the engine says, if one runs."""
    engine = engine_of(place)
    if engine.pid is None or not said.entry.is_armed:
        return said.cannot_run
    try:
        far = Far(place.directory, pid=engine.pid)
        told = far.get("why", patience=_PATIENCE, entry=str(said.entry.number), limit=1)
    except HoraeError:
        return ""  # as below
    return str(told["cannot_run"] or "")


def _obstacles(place: Place, said: WhyReport) -> dict[int, str]:
    """Return what keeps from starting what waits of an entry, as far as it is known."""
    filed = [each.filed for each in said.answers if each.filed is not None]
    waiting = [each for each in filed if each.status is Status.WAITING]
    engine = engine_of(place) if waiting else None
    if engine is None:
        return {}
    if not engine.is_running:
        reason = "no engine is running; `horae up` starts it"
        return {each.number: reason for each in waiting}
    if engine.pid is None:
        return {}
    try:
        far = Far(place.directory, pid=engine.pid)
        line = far.get("gate", patience=_PATIENCE, limit=_MOST)["waiting"]
    except HoraeError:
        return {}  # an engine that does not answer keeps nobody from asking why
    return {each["receipt"]: each["reason"] for each in line}


@click.command()
@_entry
@click.option("--note", default="", metavar="TEXT", help="The reason, shown with the entry.")
@click.option("--until", metavar="T", help="Resume at this time, or after a duration such as 2h.")
@place_options
@form_options
def pause(
    entry: str, *, note: str, until: str | None, root: str, data: str | None, form: str | None
) -> int:
    """Pause an entry until it is resumed.

    No run of the entry starts while it is paused.
    """
    output = Output.of(form)
    place = Place.of(root=root, data=data)

    async def asked(service: Service) -> PauseResult:
        about = await service.entry(entry)
        now, where = SystemClock().now(), zone(about.zone)
        end = None if until is None else parse_until(until, now=now, where=where)
        return await service.pause(entry, note=note, until=end)

    _print(output, write(place, asked), _print_paused)
    return Exit.OK


@click.command()
@_entry
@place_options
@form_options
def resume(entry: str, *, root: str, data: str | None, form: str | None) -> int:
    """Resume a paused entry.

    Scheduled times that passed during the pause are skipped.
    """
    output = Output.of(form)
    place = Place.of(root=root, data=data)
    _print(output, write(place, lambda service: service.resume(entry)), _print_resumed)
    return Exit.OK


@click.command()
@_entry
@click.option("--from", "start", metavar="T", required=True, help="The start of the period.")
@click.option("--to", "end", metavar="T", help="The end of the period, exclusive; default: now.")
@click.option(
    "--id",
    "name",
    metavar="NAME",
    help="A name for this backfill: the same name creates no run twice.",
)
@click.option("--dry-run", is_flag=True, help="List the scheduled times, and run nothing.")
@place_options
@form_options
def backfill(
    entry: str,
    *,
    start: str,
    end: str | None,
    name: str | None,
    dry_run: bool,
    root: str,
    data: str | None,
    form: str | None,
) -> int:
    """Run an entry for each scheduled time of a past period.

    The runs start in order, oldest first. Times are in the zone of the entry, or in RFC 3339. A
    period with more than 10,000 scheduled times is refused.
    """
    output = Output.of(form)
    place = Place.of(root=root, data=data)
    named = name or new_id()
    filed = 0

    async def asked(service: Service) -> BackfillResult:
        where = zone((await service.entry(entry)).zone)
        with _progress(output) as show:

            def progress(done: int, total: int) -> None:
                nonlocal filed
                filed = done
                show(done, total)

            return await service.backfill(
                entry,
                start=parse_moment(start, where),
                end=None if end is None else parse_moment(end, where),
                name=named,
                dry_run=dry_run,
                progress=progress,
            )

    try:
        done = read(place, asked) if dry_run else write(place, asked)
    except (KeyboardInterrupt, LedgerError):
        if filed:
            went_on = (
                f"{filed:,} receipts are created; repeat the command with --id {named} to continue"
            )
            echo(f"horae: {went_on}", err=True)
        raise
    _print(output, done, _print_backfill)
    if done.moments and not dry_run and output.form is Form.TABLE and engine_at(place) is None:
        echo("horae: no engine is running; `horae up` starts the runs", err=True)
    return Exit.OK


def _print(output: Output, said: Any, as_table: Callable[[Any], None]) -> None:
    print_answer(output, said.data(), lambda: as_table(said))


def _as_the_engine_knows(stands: StatusReport, engine: Far, *, limit: int) -> StatusReport:
    """Return how things stand with what no ledger holds: what cannot be read, what is in the way.

    An engine that does not answer keeps nobody from looking; one that hangs is a problem itself.
    """
    try:
        told = engine.get("status", patience=_PATIENCE, limit=min(limit, _MOST))
        line = engine.get("gate", patience=_PATIENCE, limit=_MOST)["waiting"]
    except HoraeError as error:
        if not isinstance(error.__cause__, TimeoutError):
            return stands
        hangs = f"the engine (process {stands.engine.pid}) does not answer"
        return replace(stands, problems=(hangs, *stands.problems))
    why = {each["receipt"]: Reason(each.get("reason_code") or "", each["reason"]) for each in line}
    waiting = tuple(_held_up(each, why.get(each.filed.number)) for each in stands.waiting)
    problems = tuple(dict.fromkeys((*told["problems"], *stands.problems)))
    facts = replace(stands.engine, stall=told.get("stall") or "")
    return replace(stands, engine=facts, waiting=waiting, problems=problems)


def _held_up(line: ReceiptLine, obstacle: Reason | None) -> ReceiptLine:
    """Return a line whose reason is what keeps its receipt from starting, if that is known."""
    if obstacle is None:
        return line
    receipt = replace(line.filed.receipt, reason=obstacle)
    return replace(line, filed=replace(line.filed, receipt=receipt))


def print_status(stands: StatusReport) -> None:
    """Print how things stand, a part for each kind of thing that there is."""
    engine = stands.engine
    who = f"process {engine.pid}" if engine.pid else "a process"
    since = f", since {in_zone(engine.since, stands.zone)}" if engine.since else ""
    runs = f"engine running ({who}{since})" if engine.is_running else "no engine is running"
    if engine.stall:
        echo(engine.stall)
    echo(f"{moment_text(stands.at, stands.zone)}, {engine.directory}: {runs}")
    counts = [f"{count} {kind}" for kind, count in stands.counts.items() if count]
    armed = f"{stands.entries} {'entry' if stands.entries == 1 else 'entries'} armed"
    echo(", ".join([armed, *counts]))
    _print_part("problems", [(each,) for each in stands.problems])
    lines = partial(_in_zone, zone_name=stands.zone)
    _print_part("agents", (agent_row(each, stands) for each in stands.agents))
    going = "running" if engine.is_running else "running when the engine exited"
    _print_part(going, map(_receipt_row, lines(stands.running)))
    _print_part("waiting", (_waiting_row(each, stands.at) for each in lines(stands.waiting)))
    _print_part("next", map(_next_row, _in_zone(stands.coming, zone_name=stands.zone)))
    _print_part("late in the last day", map(_late_row, lines(stands.late)))
    _print_part("missed in the last day", map(_receipt_row, lines(stands.missed)))
    _print_part(
        "failed in the last day (by scheduled time)", map(_receipt_row, lines(stands.failed))
    )
    _print_part("paused", map(_paused_row, _in_zone(stands.paused, zone_name=stands.zone)))
    said = frozenset(stands.problems)
    others = (each for each in stands.unarmed if not _is_said(each, said))
    _print_part("not armed", map(_unarmed_row, others))


def _in_zone(lines: Iterable[_T], *, zone_name: str) -> Iterator[_T]:
    """Yield lines in the zone of the plan root, if theirs is UTC: that of agents and triggers."""
    for each in lines:
        yield replace(each, zone=zone_name) if each.zone == "UTC" else each


def _is_said(line: EntryLine, problems: frozenset[str]) -> bool:
    """Tell whether an entry that is not armed is among the problems, with the same reason."""
    return f"{line.title} ({line.origin}) is not armed: {line.reason}" in problems


def _print_part(title: str, rows: Iterable[tuple[str, ...]]) -> None:
    from rich.padding import Padding
    from rich.table import Table

    from horae.cli.tables import console, safe

    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*map(safe, row))
    if table.row_count:
        screen = console()
        screen.print()
        screen.print(safe(title, style="bold"))
        screen.print(Padding(table, (0, 0, 0, 2)))


def agent_row(agent: AgentLine, stands: StatusReport) -> tuple[str, ...]:
    """Return an agent as a row: who, whether it runs, where in its day, how it went."""
    return agent.name, _doing(agent, stands), _day(agent), _went(agent, stands)


def _zone_of(entry: EntryLine, stands: StatusReport) -> str:
    return stands.zone if entry.zone == "UTC" else entry.zone


def _doing(agent: AgentLine, stands: StatusReport) -> str:
    """Return what an agent does now, or when it ticks next."""
    entry = agent.entry
    if agent.is_running:
        return "running"
    if agent.held:
        return f"is held: {agent.held}"
    if entry.pause is not None:
        return _rest(replace(entry, zone=_zone_of(entry, stands)))
    if entry.next_at is None:
        return "no next tick yet"
    wait = max(entry.next_at - stands.at, timedelta(0))
    said = f"{agent.name} ({entry.origin}) cannot run: "
    cannot = "cannot run; " if any(each.startswith(said) for each in stands.problems) else ""
    next_at = moment_text(entry.next_at, _zone_of(entry, stands))
    return f"{cannot}next {next_at}, in {length_text(wait)}"


def _day(agent: AgentLine) -> str:
    if agent.place is None:
        return ""
    place = agent.place
    rests = " (rest)" if place["kind"] == "rem" else ""
    return f"{place['state']} {place['hits']}{rests}, then {place['next_state']}"


def _went(agent: AgentLine, stands: StatusReport) -> str:
    """Return how an agent's last tick ended, and how often that was so."""
    zone_name = _zone_of(agent.entry, stands)
    when = f" {moment_text(agent.last_run_at, zone_name)}" if agent.last_run_at else ""
    if agent.outcome is None:
        return f"first tick began{when}" if when else "has not ticked yet"
    if agent.is_running:
        when = ""  # the moment is that of the run that goes on, not of the one that ended
    ended = str(agent.outcome).replace("_", " ")
    idle = f", idle {agent.streak} times in a row" if agent.streak else ""
    failures = agent.entry.failures
    bad = f", {failures} failures in a row" if failures > 1 else ""
    stuck = ", stuck" if agent.is_stuck else ""
    return f"last{when}: {ended}{idle}{bad}{stuck}"


def _receipt_row(line: ReceiptLine) -> tuple[str, ...]:
    receipt = line.filed.receipt
    what = f"{line.title}  {line.filed.origin}"
    reason = in_zone(receipt.reason, line.zone)
    return _planned(line), what, f"{receipt.status}{_times(line)}", reason


def _waiting_row(line: ReceiptLine, now: datetime) -> tuple[str, ...]:
    start_at = line.filed.receipt.start_at
    *row, reason = _receipt_row(line)
    when = f"; starts at {moment_text(start_at, line.zone)} or later" if start_at > now else ""
    return *row, f"{reason}{when}"


def _late_row(line: ReceiptLine) -> tuple[str, ...]:
    receipt = line.filed.receipt
    what = f"{line.title}  {line.filed.origin}"
    late_by = f"{length_text(line.late)} late"
    return _planned(line), what, f"{receipt.status}{_times(line)}", late_by


def _next_row(line: EntryLine) -> tuple[str, ...]:
    assert line.next_at is not None, "only what has a next moment comes"
    return moment_text(line.next_at, line.zone), f"{line.title}  {line.origin}"


def _paused_row(line: EntryLine) -> tuple[str, ...]:
    return f"{line.title}  {line.origin}", _rest(line)


def _unarmed_row(line: EntryLine) -> tuple[str, ...]:
    return f"{line.title}  {line.origin}", line.reason


def _times(line: ReceiptLine) -> str:
    """Return how often it was so, unless it was once."""
    return f" ({line.times} times)" if line.times > 1 else ""


def _planned(line: ReceiptLine) -> str:
    """Return when a receipt was planned, or how many moments it stands for."""
    receipt = line.filed.receipt
    text = moment_text(receipt.planned_at, line.zone)
    if receipt.through_at is None:
        return text
    through = moment_text(receipt.through_at, line.zone)
    return f"{text} to {through}, {receipt.count} times"


def _rest(line: EntryLine) -> str:
    """Return by whom an entry is paused, since when, until when, and why."""
    return f"paused{pause_words(line.pause, zone_name=line.zone)}" if line.pause else ""


def _print_history(found: History) -> None:
    """Print a row per receipt."""
    from rich.table import Table

    from horae.cli.tables import console, safe

    if not found.lines:
        echo("no receipts")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("receipt", "scheduled", "entry", "status", "late", "reason"):
        table.add_column(name, overflow="fold")
    for line in found.lines:
        receipt = line.filed.receipt
        reason = in_zone(receipt.reason, line.zone)
        table.add_row(
            safe(str(line.filed.number), style="dim"),
            safe(_planned(line)),
            safe(line.title),
            safe(receipt.status),
            safe(length_text(line.late) if line.late > GRACE else ""),
            safe("; ".join(filter(None, (reason, requested_words(line.filed))))),
        )
    console().print(table)
    if found.cursor is not None:
        echo(f"there is more: --cursor {found.cursor}")


def _print_why(said: WhyReport, *, is_over: bool) -> None:
    """Print what there is to say about an entry's moments; *is_over*: no engine is running."""
    entry = said.entry
    echo(f"{entry.title}  {entry.origin}  entry {entry.number}")
    if entry.rule:
        echo(f"{entry.rule} ({entry.zone})")
    if entry.gone_at is not None:
        echo(f"gone since {moment_text(entry.gone_at, entry.zone)}")
    if entry.pause is not None:
        echo(f"paused{pause_words(entry.pause, zone_name=entry.zone)}")
    if entry.reason:
        echo(f"not armed: {entry.reason}")
    elif entry.broken:
        since = (
            "" if entry.broken_at is None else f" since {moment_text(entry.broken_at, entry.zone)}"
        )
        kept = (
            "with the parts that can be read"
            if entry.broken_at is None
            else "in its last valid version"
        )
        echo(f"broken{since}: {entry.broken}; it stays armed {kept}")
    if said.cannot_run:
        echo(f"cannot run: {said.cannot_run}")
    for answer in said.answers:
        echo("")
        _print_answer(answer, entry.zone, is_over=is_over)
    if said.window is not None and not any(each.is_moment for each in said.answers):
        for word, moment in (("before", said.before), ("after", said.after)):
            nearest = moment_text(moment, entry.zone) if moment else "none"
            echo(f"  the nearest {word}: {nearest}")
    if said.is_cut:
        echo("\nnot all are shown; increase -n")


def _print_answer(answer: WhyAnswer, zone_name: str, *, is_over: bool) -> None:
    at = f"{moment_text(answer.at, zone_name)}  " if answer.at else ""
    echo(f"{at}{in_zone(answer.said, zone_name)}")
    filed = answer.filed
    if filed is None:
        return
    receipt = filed.receipt
    if receipt.through_at is not None:
        echo(f"  covers {receipt.count} times up to {moment_text(receipt.through_at, zone_name)}")
    by = late(filed)
    how_late = f", {length_text(by)} after its scheduled time" if by > GRACE else ""
    echo(f"  receipt created {moment_text(filed.decided_at, zone_name)}{how_late}")
    if by_whom := requested_words(filed):
        echo(f"  {by_whom}")
    if receipt.status is Status.WAITING and receipt.start_at > filed.decided_at:
        echo(f"  starts at {moment_text(receipt.start_at, zone_name)} or later")
    commit = f", commit {filed.commit[:12]}" if filed.commit else ""
    echo(f"  receipt {filed.number} (key {receipt.key}), from {filed.origin}{commit}")
    echo(f"  {filed_policy_words(filed, zone_name=zone_name)}")
    for run in answer.runs:
        echo(f"  {run_words(run, zone_name, is_over=is_over)}")


def _print_paused(rest: PauseResult) -> None:
    already = "" if rest.changed else "already "
    echo(f"{rest.entry.title} (entry {rest.entry.number}) is {already}{_rest(rest.entry)}")


def _print_resumed(rest: PauseResult) -> None:
    """Print what a resume came to, and what comes next."""
    entry = rest.entry
    what = "is resumed" if rest.changed else "is not paused; nothing was changed"
    next_at = f"; next {moment_text(entry.next_at, entry.zone)}" if entry.next_at else ""
    echo(f"{entry.title} (entry {entry.number}) {what}{next_at}")


def _print_backfill(done: BackfillResult) -> None:
    entry = done.entry
    first, last = (moment_text(each, entry.zone) for each in (done.start, done.end))
    name = f"{entry.title} (entry {entry.number})"
    if not done.has_schedule:
        echo(f"{name} has no schedule, so there is nothing to backfill")
        return
    if not done.moments:
        why = "; its times depend on when its runs end" if done.follows_ends else ""
        echo(f"{name} has no scheduled time from {first} to {last}{why}")
        return
    if done.dry_run:
        for moment in done.moments:
            echo(moment_text(moment, entry.zone))
    runs = f"{len(done.moments):,} run{'s' * (len(done.moments) != 1)}"
    said = f"{runs} would be created" if done.dry_run else _queued_words(done, runs)
    echo(f"{name} from {first} to {last}: {said}")


def _queued_words(done: BackfillResult, runs: str) -> str:
    """Return how many runs of a backfill are queued; those of the same name may have ended."""
    ended = sum(each.filed.status in FINAL for each in done.lines)
    if ended == len(done.lines) > 0:
        return f"{runs} of backfill {done.name} already ended; no run is queued"
    if ended:
        return f"{runs} of backfill {done.name}: {ended:,} already ended, the others are queued"
    are = "is" if len(done.moments) == 1 else "are"
    return f"{runs} {are} queued (backfill {done.name})"


@contextmanager
def _progress(output: Output) -> Iterator[Callable[[int, int], None]]:
    """Show on a terminal how far a filing is that takes more than one step."""
    if output.form is not Form.TABLE or not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task("filing")

    def show(done: int, total: int) -> None:
        if done < total:
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield show
    finally:
        bar.stop()
