"""`list`: all entries with their state, their rule, and when they ran last and run next."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import click

from horae.cli.connection import NoLedgerError, Place, engine_of, read, refuse_no_root, say_source
from horae.cli.options import at_option, data_option, root_argument
from horae.cli.output import Form, Output, echo, form_options, print_rows
from horae.core.clock import SystemClock
from horae.core.receipt import FINAL, Status
from horae.core.text import moment_text
from horae.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from horae.core.service import Service
    from horae.core.views import EntryLine, ReceiptLine

_MOST: Final = 1_000_000  # entries that are read
_GOING: Final = frozenset({Status.STARTING, Status.RUNNING})


class EntryState(StrEnum):
    """What an entry does now."""

    ARMED = "armed"  # it runs when its rule says so
    RUNNING = "running"
    PAUSED = "paused"
    UNARMED = "unarmed"  # it cannot run, and its reason says why
    NEW = "new"  # in the plan files, but no engine has read it yet
    GONE = "gone"  # no longer in the plan files


@dataclass(frozen=True, slots=True)
class EntryRow:
    """One entry of the list."""

    state: EntryState
    data: dict[str, Any]  # as `GET /api/v1/entries` has it, with `state` and `last`
    last_at: datetime | None = None
    next_at: datetime | None = None

    def matches(self, words: str) -> bool:
        """Tell whether title, address or file contain all the words."""
        text = " ".join(str(self.data[name]) for name in ("title", "address", "file")).casefold()
        return all(word in text for word in words.casefold().split())


def _sort_key(name: str, row: EntryRow) -> tuple[Any, ...]:
    """Return what a list is sorted by; times that are not known come last."""
    data = row.data
    title = (data["title"].casefold(), data["file"], data["line"])
    match name:
        case "next":
            return row.next_at is None, row.next_at and row.next_at.timestamp(), title
        case "last":
            return row.last_at is None, row.last_at and -row.last_at.timestamp(), title
        case "state":
            return [*EntryState].index(row.state), title
        case "file":
            return data["file"], data["line"], title
        case _:
            return title


@click.command("list")
@root_argument
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([each.value for each in EntryState]),
    help="Only entries in this state; repeat for several.",
)
@click.option(
    "--source",
    "sources",
    multiple=True,
    type=click.Choice(["org", "board", "trigger", "crew"]),
    help="Only entries from this source; repeat for several.",
)
@click.option("--search", default="", metavar="WORDS", help="Only entries with all these words.")
@click.option(
    "--sort",
    type=click.Choice(["title", "next", "last", "state", "file"]),
    default="title",
    show_default=True,
    help="Sort by title, next time, last time (newest first), state or file.",
)
@click.option("--all", "with_gone", is_flag=True, help="Also entries no longer in the plan files.")
@at_option
@data_option
@form_options
def list_(
    *,
    states: tuple[str, ...],
    sources: tuple[str, ...],
    search: str,
    sort: str,
    with_gone: bool,
    at: str | None,
    root: str,
    data: str | None,
    form: str | None,
) -> int:
    """List all entries: state, rule, last and next.

    The states: armed (has a valid schedule), running, paused, unarmed (cannot run; `horae why`
    says why), new (no engine has read the entry yet), gone (no longer in the plan files).

    With a ledger these are its entries, with the last run and the next time of each. Without a
    ledger they are read from the plan files.
    """
    output = Output.of(form)
    place = Place.of(root=root, data=data)
    now = place.moment(at)
    with_gone = with_gone or EntryState.GONE in states
    try:
        found = read(place, lambda service: _known(service, with_gone=with_gone), at=now)
        if at is None and output.form is Form.TABLE:
            say_source(engine_of(place))
    except NoLedgerError:
        refuse_no_root(root, place.directory)
        found = list(_written(place, output, now=now or SystemClock().now()))
    rows = [
        row
        for row in found
        if (not states or row.state in states)
        and (not sources or row.data["source"] in sources)
        and row.matches(search)
    ]
    rows.sort(key=lambda row: _sort_key(sort, row))
    print_rows(output, [row.data for row in rows], lambda: _print_table(rows))
    return Exit.OK


async def _known(service: Service, *, with_gone: bool) -> list[EntryRow]:
    """Return the entries that a ledger knows."""
    roll = await service.entries(limit=_MOST, with_gone=with_gone)
    return [_row(line, await _last(service, line)) for line in roll.entries]


async def _last(service: Service, line: EntryLine) -> ReceiptLine | None:
    """Return the newest receipt of an entry that has started or is final."""
    found = await service.history(str(line.number), statuses=_GOING | FINAL, limit=1)
    return found.lines[0] if found.lines else None


def _row(line: EntryLine, last: ReceiptLine | None) -> EntryRow:
    if line.gone_at is not None:
        state = EntryState.GONE
    elif last is not None and last.filed.status in _GOING:
        state = EntryState.RUNNING
    elif line.pause is not None:
        state = EntryState.PAUSED
    else:
        state = EntryState.ARMED if line.is_armed else EntryState.UNARMED
    told = None if last is None else last.data()
    names = ("receipt", "status", "reason", "reason_code", "planned_at", "ended_at")
    shown = told and {name: told[name] for name in names}
    last_at = None if last is None else last.filed.receipt.planned_at
    data = {**line.data(), "state": state.value, "last": shown}
    return EntryRow(state, data, last_at, line.next_at)


def _written(place: Place, output: Output, *, now: datetime) -> Iterator[EntryRow]:
    """Yield the entries of plan files that no engine has read."""
    from horae.cli.times import PlanView, When
    from horae.cli.written import SOURCES, WrittenEntry
    from horae.core.entry import Entry, Task

    view = PlanView((place.root,), output, When(now, place.zone.key))
    for item in view.items(with_tasks=False):
        assert not isinstance(item, Task), "without tasks"
        zone_name = item.zone if isinstance(item, Entry) else place.zone.key
        source = SOURCES.get(item.address.partition(":")[0], "org")
        each = WrittenEntry(item, zone_name, now, source)
        state = EntryState.NEW if isinstance(item, Entry) else EntryState.UNARMED
        data: dict[str, Any] = {**each.entry_data(), "state": state.value, "last": None}
        yield EntryRow(state, data, None, each.next_at)


def _print_table(rows: list[EntryRow]) -> None:
    from rich.table import Table

    from horae.cli.tables import console, safe

    if not rows:
        echo("no entries")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("entry", "title", "state", "rule", "last", "next"):
        table.add_column(name, overflow="fold")
    for row in rows:
        data, last = row.data, row.data["last"]
        number = "" if data["entry"] is None else str(data["entry"])
        rule = data["rule"] or data["reason"] or ""
        cells = (number, data["title"], row.state.value, rule, "", "")
        if last is not None and row.last_at is not None:
            cells = (*cells[:4], f"{_time(row.last_at, data)} {last['status']}", "")
        if row.next_at is not None:
            cells = (*cells[:5], _time(row.next_at, data))
        table.add_row(*map(safe, cells))
    console().print(table)


def _time(at: datetime, data: dict[str, Any]) -> str:
    return moment_text(at, data["zone"])
