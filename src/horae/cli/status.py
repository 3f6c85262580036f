"""`status`, `list`, `history`, `why`, `pause`, `resume` and `backfill`: what the ledger knows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from msgspec import UNSET, structs, to_builtins

from horae.cli import connection, options, output as printing
from horae.cli.connection import Place, read, read_any, write
from horae.cli.moments import moment_or_length, parse_moment
from horae.cli.options import option
from horae.cli.output import Output, echo, print_answer, print_block, print_rows, print_table, safe
from horae.cli.plan_root import ask_files
from horae.client import Client, EngineUnreachableError
from horae.config import untrusted
from horae.core import clock, decide, explain, ports, views
from horae.core.budget import cost_text
from horae.core.explain import length_text
from horae.core.inbox import EntryFilter, EntrySort, EntryState
from horae.core.receipt import GOING, RECEIPT_STATUSES, Status
from horae.core.service import Service
from horae.core.text import (
    QUOTED,
    in_zone,
    instant_text,
    moment_text,
    pause_words,
    period_text,
    with_zone,
)
from horae.errors import HoraeError
from horae.store.ledger import SqlLedger
from horae.timing.zone import zone

if TYPE_CHECKING:
    from rich.console import RenderableType

_T = TypeVar("_T", views.ReceiptLine, views.EntryLine)

_PATIENCE: Final = 5.0  # seconds for an engine to say what only it knows
_MOST: Final = 1000  # that it tells of at a time
_MOST_TIMES: Final = 10_000  # that `why` explains
_SOURCES: Final = ("org", "board", "trigger", "crew")
_UNREAD: Final = ("entry_not_found", "no_ledger", "asked_moment")
_NO_ENGINE: Final = "no engine is running; `horae up` starts it"
_NEW: Final = "new: no engine has read it yet; start one with `horae up`"
_GUESS: Final = " (an estimate)"  # after the next tick of an agent, if no engine runs

_entry = click.argument("entry", metavar="ENTRY")
_several = partial(options.choice_option, multiple=True)


@click.command()
@options.number_option("-n", "limit", default=20, most=10_000)
@options.at_option
@options.place_argument
@printing.form_options
def status(*, limit: int, at: str | None, place: Place, output: Output) -> None:
    """Show what is running, waiting, next and failing."""
    engine, hangs = connection.engine_of(place), tuple[str, ...]()
    if (client := _client_of(engine, place, at)) is not None:
        try:
            known = _status_of(client, limit=min(limit, _MOST))
        except HoraeError as error:
            if place.server is not None:
                raise
            if isinstance(error.__cause__, TimeoutError):
                hangs = (f"the engine (process {engine.pid}) does not answer",)
        else:
            if place.store is not None and known.stall is None:
                read(place, lambda service: service.history(limit=1))  # or it has another ledger
            known = known if place.server else structs.replace(known, engine=engine.line)
            print_answer(output, known, lambda: print_status(known, engine))
            return

    async def stand(service: Service) -> views.StatusReport:
        problems = [*hangs]
        if at is None and not engine.is_running:  # else it says so itself
            problems += await _file_problems(place, service)
        return await service.status(replace(engine, problems=tuple(problems)), limit=limit)

    stands = read(place, stand, at=place.moment(at))
    if at is None and output.is_text:
        connection.say_source(engine)
    print_answer(output, stands, lambda: print_status(stands, engine))


def _client_of(engine: views.EngineFacts, place: Place, at: object) -> Client | None:
    """Return the engine that is asked, if one is; of another time only the ledger knows."""
    if place.server is not None:
        connection.refuse_at(at)
        return place.server
    if at is not None or not engine.is_running or engine.pid is None:
        return None
    return Client(place.directory, pid=engine.pid, timeout=_PATIENCE)


def _status_of(client: Client, *, limit: int) -> views.StatusReport:
    """Return the status that an engine tells, with what keeps waiting receipts from starting."""
    told = client.status(limit=limit)
    line = client.gate(limit=_MOST).waiting if told.waiting else ()
    why = {each.receipt: {"reason": each.reason, "reason_code": each.reason_code} for each in line}
    waiting = (structs.replace(each, **why.get(each.receipt, {})) for each in told.waiting)
    return structs.replace(told, waiting=tuple(waiting))


async def _file_problems(place: Place, service: Service) -> list[str]:
    """Return what an engine would say of the settings and the files, if one ran."""
    waiting = [f"settings: {each}" for each in untrusted(place.config).waiting]
    if place.store is not None or not os.path.isdir(place.root):
        return waiting
    assert isinstance(service.ledger, SqlLedger), "a command has no other"
    context = connection.context_of(service.ledger, place, service.clock)
    return [*waiting, *await context.file_problems()]


def print_status(stands: views.StatusReport, engine: views.EngineFacts) -> None:
    names = ("running", "waiting", "next", "late", "missed", "failed", "paused")
    lines: dict[str, Any] = {
        name: tuple(_in_zone(getattr(stands, name), stands.zone)) for name in names
    }
    stands = structs.replace(stands, **lines)
    who = f"process {stands.engine.pid}" if stands.engine.pid else "a process"
    began = stands.engine.since
    since = f", since {instant_text(began, stands.zone)}" if began else ""
    runs = f"engine running ({who}{since})" if engine.is_running else engine.absence
    if engine.is_stopping:
        count = len(stands.running)
        waits = f", waiting for {count} run{'s' * (count != 1)}" if count else ""
        runs = f"engine stopping ({who}{since}){waits}"
    if stands.stall:
        echo(in_zone(stands.stall, stands.zone))
    echo(f"{moment_text(stands.at, stands.zone)}, {engine.directory}: {runs}")
    counts = [f"{count} {kind}" for kind, count in stands.counts.items() if count]
    armed = f"{stands.entries} {'entry' if stands.entries == 1 else 'entries'} armed"
    if stands.entries or stands.stall is None:  # else they are not known now
        echo(", ".join([armed, *counts]))
    if spent := cost_text(stands.spent_today):
        echo(f"{spent} spent today; `horae cost` shows more")
    if stands.disk is not None:
        echo(f"disk: {stands.disk.words}")
    waiting = []
    for each in stands.waiting:
        *row, reason = _receipt_row(each)
        when = moment_text(each.start_at, each.zone)
        if each.attempts and each.start_at > stands.at:
            reason = f"attempt {each.attempts} failed: {reason}"
        is_told = each.start_at <= stands.at or when in reason
        waiting.append((*row, reason if is_told else f"{reason}; starts at {when} or later"))
    unarmed = [  # unless it is among the problems, with the same reason
        (_where(each), each.reason or "")
        for each in stands.unarmed
        if f"{each.title} ({each.origin}) is not armed: {each.reason}" not in stands.problems
    ]
    late = [
        (*_receipt_row(each)[:3], f"{length_text(each.late)} late{_times(each)}")
        for each in stands.late
    ]
    coming = [(each.next_at, each) for each in stands.next if each.next_at is not None]
    coming = [] if engine.is_stopping else coming
    overdue = [pair for pair in coming if _is_overdue(pair[0], stands.at)]
    coming = [pair for pair in coming if pair not in overdue]
    later = "" if engine.is_running else " (decided at the next `horae up`)"
    parts: dict[str, Iterable[tuple[str, ...]]] = {
        "problems": [(in_zone(each, stands.zone),) for each in stands.problems],
        "agents": [agent_row(each, stands) for each in stands.agents],
        "running": map(_receipt_row, stands.running),
        "waiting": waiting,
        f"overdue since{later}": [
            (moment_text(at, each.zone), _where(each)) for at, each in overdue
        ],
        "next": [(moment_text(at, each.zone), _where(each)) for at, each in coming],
        "late in the last day": late,
        "missed in the last day": map(_receipt_row, stands.missed),
        "failed in the last day": map(_receipt_row, stands.failed),
        "paused": [(_where(each), _rest(each.pause, each.zone)) for each in stands.paused],
        "not armed": unarmed,
    }
    for title, rows in parts.items():
        for block in part(title, rows):
            print_block(block)


def part(title: str, rows: Iterable[Iterable[str]], *, style: str = "") -> list[RenderableType]:
    """Return rows under a title, after an empty line; nothing if there are none."""
    from rich.padding import Padding
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*(safe(cell, style=style) for cell in row))
    if not table.row_count:
        return []
    return [safe(""), safe(title, style="bold"), Padding(table, (0, 0, 0, 2))]


def drawn(
    root: str, stands: views.StatusReport, obstacles: Mapping[int, str], lines: Iterable[str]
) -> RenderableType:
    """Return the live screen of `horae up`: now, next, running, late, and the last events."""
    from rich.console import Group

    armed = f"horae: {root}  {moment_text(stands.at, stands.zone)}  {stands.entries} armed"
    ages, waits, coming, troubled = [], [], [], []
    for each in stands.running:
        age = length_text(stands.at - each.start_at)
        ages.append((_receipt_row(each)[1], f"for {age}"))
    for each in stands.waiting:
        reason = obstacles.get(each.receipt, each.reason)
        waits.append((_receipt_row(each)[1], reason))
    for at, line in ((each.next_at, each) for each in stands.next):
        if at is not None:
            wait = f"in {length_text(at - stands.at)}"
            coming.append((moment_text(at, line.zone), wait, line.title))
    for each in (*stands.late, *stands.missed, *stands.failed):
        by = f", {length_text(each.late)} late" if each.late else ""
        when = moment_text(each.planned_at, each.zone)
        troubled.append((when, each.title, f"{each.status}{by}: {each.reason}"))
    hint = "Ctrl-C stops the engine; in another terminal use `horae status`, `why` or `logs`"
    return Group(
        safe(armed, style="bold"),
        *part("problems", [(in_zone(e, stands.zone),) for e in stands.problems], style="bold red"),
        *part("agents", [agent_row(each, stands) for each in stands.agents]),
        *part("running", ages, style="green"),
        *part("waiting", waits, style="yellow"),
        *part("next", coming),
        *part("late, missed or failed in the last day", troubled, style="red"),
        *part("what happened", [(line,) for line in lines], style="dim"),
        safe(""),
        safe(hint, "dim"),
    )


def _in_zone(lines: Iterable[_T], zone_name: str) -> Iterator[_T]:
    """Yield lines in the zone of the plan root, if theirs is UTC: that of agents and triggers."""
    for each in lines:
        yield structs.replace(each, zone=zone_name) if each.zone == "UTC" else each


def agent_row(agent: views.AgentLine, stands: views.StatusReport) -> tuple[str, ...]:
    """Return an agent as a row: its name, next tick, place in its lifecycle, and last tick."""
    place, coming = agent.lifecycle, agent.next_run
    zone_name = stands.zone if agent.zone == "UTC" else agent.zone
    if agent.running:
        doing = "running"
    elif agent.held:
        doing = f"is held: {in_zone(agent.held, zone_name)}"
    elif agent.pause is not None:
        doing = _rest(agent.pause, zone_name)
    elif coming is None:
        doing = "no next tick yet"
    else:
        wait = max(coming - stands.at, timedelta(0))
        said = f"{agent.agent} ({agent.origin}) cannot run: "
        cannot = "cannot run; " if any(each.startswith(said) for each in stands.problems) else ""
        doing = f"{cannot}next {moment_text(coming, zone_name)}, in {length_text(wait)}"
    day = ""
    if place is not None:
        rests = " (rest)" if place.kind == "rem" else ""
        day = f"{place.state} {place.hits}{rests}, then {place.next_state}"
    when = f" {moment_text(agent.last_run, zone_name)}" if agent.last_run else ""
    if agent.last_outcome is None:
        went = f"first tick began{when}" if when else "has not ticked yet"
    else:
        when = "" if agent.running else when  # it is that of the run that goes on
        idle = f", idle {agent.streak} times in a row" if agent.streak > 1 else ""
        bad = f", {agent.failures} failures in a row" if agent.failures > 1 else ""
        stuck = ", stuck" if agent.stuck else ""
        went = f"last{when}: {agent.last_outcome.replace('_', ' ')}{idle}{bad}{stuck}"
    return agent.agent, doing, day, went


def _where(line: views.EntryLine) -> str:
    return f"{line.title}  {line.origin}"


def _receipt_row(line: views.ReceiptLine) -> tuple[str, ...]:
    what, reason = f"{line.title}  {line.origin}", in_zone(line.reason, line.zone, line.reason_code)
    return _planned(line), what, _status(line), f"{reason}{_times(line)}"


def _status(line: views.ReceiptLine) -> str:
    return f"{line.status} on {line.node}" if line.node else line.status.value


def _times(line: views.ReceiptLine) -> str:
    # The others may have another reason.
    return f" (the last of {line.times})" if line.times > 1 else ""


def _is_overdue(at: datetime, now: datetime) -> bool:
    """Tell whether a next time has passed, and waits for an engine to decide about it."""
    return at <= now - decide.GRACE


def _planned(line: views.ReceiptLine) -> str:
    return period_text(line.planned_at, line.through_at, line.count, line.zone)


def _rest(pause: views.PauseLine | None, zone_name: str) -> str:
    return f"paused{pause_words(pause, zone_name=zone_name)}" if pause else ""


# list


@click.command("list")
@_several("--state", "Only entries in this state; repeat for several.", EntryState, name="states")
@_several(
    "--source", "Only entries from this source; repeat for several.", _SOURCES, name="sources"
)
@click.option("--search", default="", metavar="WORDS", help="Only entries with all these words.")
@click.option("--agent", default="", metavar="NAME", help="Only entries that need this agent.")
@options.choice_option(
    "--sort",
    "Sort by title, next time, last time (newest first), state or file.",
    EntrySort,
    default="title",
)
@click.option("--all", "with_gone", is_flag=True, help="Also entries no longer in the plan files.")
@options.at_option
@options.place_argument
@printing.form_options
def list_(
    *,
    states: tuple[str, ...],
    sources: tuple[str, ...],
    search: str,
    agent: str,
    sort: str,
    with_gone: bool,
    at: str | None,
    place: Place,
    output: Output,
) -> None:
    """List all entries: state, rule, last and next.

    The states: running, failing (the last run failed), broken (the text cannot be read), armed
    (the engine runs the entry when it is due, requested, or started by another entry or an event),
    paused, unarmed (cannot run; `horae why` says why), new (no engine has read the entry yet),
    gone (no longer in the plan files, or a closed task).

    With a ledger these are its entries, with the last run and the next time of each. Without a
    ledger they are read from the plan files. Without an engine the next tick of an agent is an
    estimate.
    """
    given, now = place.moment(at), place.moment(at) or clock.SystemClock().now()
    wanted = EntryFilter(states, sources, search=search, agent=agent, with_gone=with_gone)
    order, is_live = EntrySort(sort), False
    data: Sequence[object]
    try:
        data = rows = read_any(place, lambda service: _known(service, wanted, order), at=given)
        engine = connection.engine_of(place)
        is_live = engine.is_running
        if at is None and output.is_text:
            connection.say_source(engine)
    except connection.NoLedgerError:
        rows = ask_files(place, lambda service: _known(service, wanted, order), output, at=given)
        rows = [structs.replace(row, entry=0) for row in rows]
        data = [_unread_data(row) for row in rows]
    names = ("entry", "title", "state", "rule", "last", "next")
    shown: dict[str, Any] = {"now": now, "zone_name": place.zone.key, "is_live": is_live}
    cells = (_list_cells(row, **shown) for row in rows)
    print_rows(output, data, partial(print_table, names, cells, empty="no entries"))


async def _known(
    service: connection.AnyService, wanted: EntryFilter, sort: EntrySort
) -> list[views.EntryRow]:
    rows: list[views.EntryRow] = []
    while True:
        page = await service.entry_list(wanted, sort=sort, limit=_MOST, offset=len(rows))
        rows += page.entries
        if not page.entries or len(rows) >= page.total:
            return rows


def _unread_data(line: views.EntryLine) -> dict[str, object]:
    """Return the line of an entry that no engine has read yet: it has no number, and no id."""
    address = f"trigger:{line.title}" if line.source == "trigger" else line.address
    own = {"entry": None, "first_seen_at": None, "armed": False, "address": address}
    return {**to_builtins(line), **own}


def _list_cells(
    line: views.EntryRow, *, now: datetime, zone_name: str, is_live: bool
) -> Iterator[str]:
    last, next_at = line.last, line.next_at
    zone_name = zone_name if line.zone == "UTC" else line.zone
    rule = line.rule or ""
    if zone_name != line.zone:  # its times are shown in the zone of the plan root
        rule = with_zone(rule, line.zone)
    yield str(line.entry or "")
    yield from (line.title, line.state.value, rule or line.reason or "")
    yield f"{moment_text(last.planned_at, zone_name)} {last.status}" if last else ""
    said = "" if next_at is None else moment_text(next_at, zone_name)
    is_guess = said and line.source == "crew" and not is_live
    is_over = next_at is not None and _is_overdue(next_at, now)
    yield f"overdue since {said}" if is_over else f"{said}{_GUESS if is_guess else ''}"


# history


@click.command()
@click.argument("entry", metavar="[ENTRY]", required=False)
@click.option(
    "--since", metavar="TIME", help="Only receipts scheduled at TIME or later, or in the last 7d."
)
@click.option("--until", metavar="TIME", help="Only receipts scheduled at TIME or earlier.")
@_several(
    "--status STATUS",
    f"Only receipts with this status: {', '.join(RECEIPT_STATUSES)}. Repeat for several.",
    RECEIPT_STATUSES,
    name="statuses",
)
@options.number_option("-n", "limit", default=50, most=10_000)
@click.option("--cursor", type=int, metavar="N", help="Only receipts before this number.")
@options.at_option
@options.answer_options
def history(
    entry: str | None,
    *,
    since: str | None,
    until: str | None,
    statuses: tuple[str, ...],
    at: str | None,
    place: Place,
    output: Output,
    **page: Any,
) -> None:
    """List receipts, newest first.

    Without ENTRY the receipts of all entries are listed.
    """
    now = place.moment(at) or clock.SystemClock().now()
    begin = since and moment_or_length(since, place.zone, now, such_as="7d", is_ago=True)
    page |= {"since": begin, "until": place.moment(until), "statuses": statuses}
    found = read_any(place, lambda service: service.history(entry, **page), at=place.moment(at))

    has_cost = any(line.cost is not UNSET for line in found.receipts)

    def show() -> None:
        rows = []
        for line in _in_zone(found.receipts, place.zone.key):
            reason = in_zone(line.reason, line.zone, line.reason_code)
            how_late = length_text(line.late) if line.late > decide.GRACE else ""
            requested = explain.requested_words(line.actor, line.reason_code, line.note)
            # An answer that is the reason may end in a full stop.
            words = f"{reason.rstrip('.')}; {requested}" if reason and requested else reason
            words = words or requested
            number = safe(str(line.receipt), style="dim")
            spent = (cost_text(line.cost),) if has_cost else ()
            what = number, _planned(line), line.title, _status(line), how_late
            rows.append((*what, *spent, words))
        spent_name = ("cost",) if has_cost else ()
        names = ("receipt", "scheduled", "entry", "status", "late", *spent_name, "reason")
        print_table(names, rows, empty="no receipts")
        if rows and found.cursor is not None:
            echo(f"there is more: --cursor {found.cursor}")

    print_rows(output, found.receipts, show)


# why


@click.command()
@click.argument("what", metavar="ENTRY[@TIME]")
@options.number_option(
    "-n", "limit", default=20, most=_MOST_TIMES, text="Explain at most N scheduled times."
)
@options.at_option
@options.answer_options
def why(what: str, *, limit: int, at: str | None, place: Place, output: Output) -> None:
    """Show why an entry ran or did not run.

    TIME is in the zone of the entry (digest@2026-04-01T09:00; a date alone is that whole day)
    or in RFC 3339. Without TIME the last and the next scheduled time are explained. For a
    headline that is not in the ledger, the reason is derived from the plan file.
    """
    asked, moment = explain.parse_ask(what), place.moment(at)
    most = _MOST_TIMES if output.is_text else limit  # in text, times with one reason count once
    is_new = False
    try:
        said = _why(asked, what, place, limit=most, at=moment)
    except HoraeError as error:
        if error.code not in _UNREAD or place.server is not None or not os.path.isdir(place.root):
            raise
        try:
            told = _why_in_files(asked, place, output, limit=most, at=moment)
        except views.EntryNotFoundError:
            if isinstance(error, connection.NoLedgerError):
                raise connection.NoLedgerError(error.directory, word=asked.word) from None
            raise error from None
        said, is_new = told, True
    if at is None and output.is_text and not is_new:
        connection.say_source(connection.engine_of(place))
    entry = said.entry if place.server else next(_in_zone([said.entry], place.zone.key))
    shown = structs.replace(said, entry=entry)
    data = {**to_builtins(said), "entry": _unread_data(said.entry)} if is_new else said
    print_answer(output, data, lambda: _print_why(shown, limit, said.entry.zone, is_new=is_new))
    if is_new or not output.is_text or place.server or entry.source != "org" or entry.gone_at:
        return
    silent = output._replace(is_silent=True)  # this is only an addition
    wanted = EntryFilter((EntryState.UNARMED,), ("org",), search=entry.title)
    for each in ask_files(place, lambda service: service.entry_list(wanted), silent).entries:
        if each.title == entry.title and each.origin != entry.origin:  # it has the same name
            echo(f"\n{each.title}  {each.origin}\nnot armed: {each.reason}")


def _why_in_files(
    asked: explain.WhyQuestion, place: Place, output: Output, **how: Any
) -> views.WhyLines:
    """Return why an entry of the plan files runs or does not, before an engine has read it."""
    limit, at = how["limit"], how["at"]
    told = ask_files(
        place, lambda service: service.why(asked, limit=limit), output, at=at, word=asked.word
    )
    is_guess = told.entry.source == "crew"
    answers = [
        structs.replace(
            each,
            way=UNSET,  # the entry has no number yet
            said=f"{each.said}{_GUESS}" if is_guess and each.moment else each.said,
            estimate=each.estimate or is_guess,
        )
        for each in told.answers
    ]
    return structs.replace(told, answers=tuple(answers))


def _why(
    asked: explain.WhyQuestion, what: str, place: Place, *, limit: int, at: datetime | None
) -> views.WhyLines:
    """Return why an entry ran or did not run, as the engine knows it, else as the ledger does."""
    engine = connection.engine_of(place)
    if (client := _client_of(engine, place, at)) is not None:
        word = f"{place.word(asked.word)}{what.strip().removeprefix(asked.word)}"
        try:
            return client.why(word, limit=min(limit, _MOST))
        except EngineUnreachableError:
            if place.server is not None:
                raise
    said = read(place, lambda service: service.why(asked, limit=limit), at=at)
    if at is not None or engine.is_running:
        return said
    waiting = (each.receipt or 0 for each in said.answers if each.status is Status.WAITING)
    return explain.at_the_gate(said, dict.fromkeys(waiting, _NO_ENGINE))


def _print_why(said: views.WhyLines, limit: int, rule_zone: str, *, is_new: bool) -> None:
    entry = said.entry
    since, kept = "", "with the parts that can be read"
    if entry.broken_at is not None:
        since = f" since {moment_text(entry.broken_at, entry.zone)}"
        kept = "in its last valid version"
    broken = entry.broken and f"broken{since}: {entry.broken}; it stays armed {kept}"
    end = "closed or removed" if entry.source == "board" else "gone"
    facts = (
        f"{entry.title}  {entry.origin}" + ("" if is_new else f"  entry {entry.entry}"),
        _NEW if is_new and not entry.reason else "",
        entry.rule and with_zone(entry.rule, rule_zone),
        f"{end} since {moment_text(entry.gone_at, entry.zone)}" if entry.gone_at else "",
        _rest(entry.pause, entry.zone),
        f"not armed: {entry.reason}" if entry.reason else broken,
        said.cannot_run and f"cannot run: {said.cannot_run}",
    )
    echo("\n".join(filter(None, facts)))
    can_run = not said.cannot_run and not any(each.receipt and each.way for each in said.answers)
    groups = [*_with_one_reason(said.answers)]
    for group in groups[:limit]:
        echo("")
        answer = group[0]
        if answer.receipt is None and not can_run:
            answer = structs.replace(answer, way=UNSET)
        _print_answer(answer, entry.zone, *(each.at for each in group[1:]))
    if said.start is not None and not any(each.moment for each in said.answers):
        for word, moment in (("before", said.before), ("after", said.after)):
            nearest = moment_text(moment, entry.zone) if moment else "none"
            echo(f"  the nearest {word}: {nearest}")
    if said.more or len(groups) > limit:
        echo("\nnot all are shown; increase -n")


def _with_one_reason(answers: Iterable[views.WhyLine]) -> Iterator[tuple[views.WhyLine, ...]]:
    """Yield answers in order; scheduled times in a row without a receipt stay together."""
    for (_, has_receipt), group in groupby(answers, lambda each: (each.said, bool(each.receipt))):
        alike = tuple(group)
        yield from zip(alike, strict=True) if has_receipt else (alike,)


def _print_answer(answer: views.WhyLine, zone_name: str, *later: datetime | None) -> None:
    last = later[-1] if later else None
    at = f"{period_text(answer.at, last, 1 + len(later), zone_name)}  " if answer.at else ""
    said = answer.said if answer.reason_code in QUOTED else in_zone(answer.said, zone_name)
    echo(f"{at}{'; '.join(filter(None, (said, answer.way or '')))}")
    if not (answer.decided_at and answer.start_at and answer.actor):
        return  # it has no receipt
    by = timedelta(seconds=answer.late_seconds or 0)
    how_late = f", {length_text(by)} after its scheduled time" if by > decide.GRACE else ""
    is_later = answer.status is Status.WAITING and answer.start_at > answer.decided_at
    commit = f", text of commit {answer.commit[:12]}" if answer.commit else ""
    end = answer.through_at and moment_text(answer.through_at, zone_name)
    facts = [
        end and f"covers {answer.count} times up to {end}",
        f"receipt created {moment_text(answer.decided_at, zone_name)}{how_late}",
        explain.requested_words(answer.actor, answer.reason_code or "", answer.note or ""),
        is_later and f"starts at {moment_text(answer.start_at, zone_name)} or later",
        f"receipt {answer.receipt} (key {answer.key}), from {answer.origin}{commit}",
        answer.policy,
    ]
    for run in answer.runs or ():
        facts.append(explain.run_words(run, zone_name, is_over=answer.status not in GOING))
        facts += explain.work_words(run.facts)
    for fact in filter(None, facts):
        echo(f"  {fact}")


# pause, resume and backfill


@click.command()
@_entry
@click.option("--note", default="", metavar="TEXT", help="The reason, shown with the entry.")
@option("--until TIME", "Resume at this time, or after a duration such as 2h.")
@options.answer_options
def pause(entry: str, *, note: str, until: str | None, place: Place, output: Output) -> None:
    """Pause an entry until it is resumed.

    No run of the entry starts while it is paused. Runs that are waiting to start are skipped, and
    `horae resume` does not start them; a run in progress continues.
    """

    def end_in(zone_name: str) -> datetime | None:
        if until is None:
            return None
        now = clock.SystemClock().now()
        return moment_or_length(until, zone(zone_name), now, such_as="2h")

    end_in("UTC")  # a wrong time is reported before a missing ledger or entry

    async def asked(service: connection.AnyService) -> views.PauseResult:
        word = place.word(entry)
        end = end_in((await service.entry(word)).zone)
        return await service.pause(word, note=note, until=end)

    done = write(place, asked)
    already = "" if done.changed else "already "
    what = f"{done.title} (entry {done.entry})"
    runs = "1 waiting run was" if done.skipped == 1 else f"{done.skipped:,} waiting runs were"
    skipped = f"; {runs} skipped" if done.skipped else ""
    print_answer(output, done, f"{what} is {already}{_rest(done.pause, done.zone)}{skipped}")


@click.command()
@_entry
@options.answer_options
def resume(entry: str, *, place: Place, output: Output) -> None:
    """Resume a paused entry.

    Scheduled times that passed during the pause are skipped.
    """
    done = write(place, lambda service: service.resume(place.word(entry)))
    what = "is resumed" if done.changed else "is not paused; nothing was changed"
    next_at = f"; next {moment_text(done.next_at, done.zone)}" if done.next_at else ""
    print_answer(output, done, f"{done.title} (entry {done.entry}) {what}{next_at}")


@click.command()
@_entry
@click.option("--from", "start", metavar="TIME", required=True, help="The start of the period.")
@click.option("--to", "end", metavar="TIME", help="The end of the period, exclusive; default: now.")
@option("--id NAME", "A name for this backfill: the same name creates no run twice.", name="name")
@click.option("--dry-run", is_flag=True, help="List the scheduled times, and run nothing.")
@options.answer_options
def backfill(
    entry: str,
    *,
    start: str,
    end: str | None,
    name: str | None,
    dry_run: bool,
    place: Place,
    output: Output,
) -> None:
    """Run an entry for each scheduled time of a past period.

    The runs start in order, oldest first. Times are in the zone of the entry, or in RFC 3339. A
    period with more than 10,000 scheduled times is refused.
    """
    for each in filter(None, (start, end)):
        parse_moment(each, zone("UTC"))  # a wrong time is reported before a missing ledger or entry
    named = name or connection.new_id()
    filed = 0

    def progress(done: int, total: int) -> None:
        nonlocal filed
        filed = done
        if show is not None and output.is_text and done < total:
            show(done / total)

    async def asked(service: connection.AnyService) -> tuple[views.EntryLine, views.Backfill]:
        word = place.word(entry)
        line = await service.entry(word)
        where = zone(line.zone)
        until = None if end is None else parse_moment(end, where)
        own: dict[str, Any] = {"start": parse_moment(start, where), "end": until, "name": named}
        own |= {"progress": progress} if isinstance(service, Service) else {}
        return line, await service.backfill(word, **own, dry_run=dry_run)

    try:
        with printing.progress_bar("filing") as show:
            line, done = read_any(place, asked) if dry_run else write(place, asked)
    except (KeyboardInterrupt, ports.LedgerError):
        if filed:
            again = f"repeat the command with --id {named} to continue"
            echo(f"horae: {filed:,} receipts are created; {again}", err=True)
        raise
    print_answer(output, done, _backfill_text(line, done))
    is_queued = bool(done.moments) and not dry_run
    if is_queued and output.is_text and not connection.engine_of(place).is_running:
        echo("horae: no engine is running; `horae up` starts the runs", err=True)


def _backfill_text(line: views.EntryLine, done: views.Backfill) -> str:
    first, last = (moment_text(each, done.zone) for each in (done.start, done.end))
    name, times = f"{done.title} (entry {done.entry})", ""
    if not done.moments:
        return f"{name} has no scheduled time from {first} to {last}; its rule: {line.rule}"
    runs = f"{done.count:,} run{'s' * (done.count != 1)}"
    said = f"backfill {done.id} has {runs}; each that has not run yet is queued"
    if done.dry_run:
        times = "".join(f"{moment_text(each, done.zone)}\n" for each in done.moments)
        said = f"{runs} would be created"
    return f"{times}{name} from {first} to {last}: {said}"
