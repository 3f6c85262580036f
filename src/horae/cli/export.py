"""`export`: the hours of plans, for other programs."""

from __future__ import annotations

import os.path
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import click

from horae.cli.moments import moment_and_zone, parse_moment
from horae.cli.output import Form, Output, echo
from horae.cli.sources import Sources, plan_root
from horae.rules.armed import entries_of
from horae.rules.entry import Entry, Unarmed
from horae.rules.ics import MOST, calendar, is_cut
from horae.workspace.files import LIMIT, PlanFileError, PlanMissingError, read_plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from horae.rules.entry import Origin

_DAYS: Final = 365
_BEGINNING: Final = "BEGIN:VCALENDAR"
# A window has its start and not its end, as a day has; `project` takes it the other way.
_BEFORE: Final = timedelta(microseconds=1)


@click.group()
def export() -> None:
    """Write the hours of plans for other programs."""


@export.command()
@click.argument("paths", metavar="[FILE|DIR|-]...", nargs=-1)
@click.option("--from", "since", metavar="T", help="Where the calendar begins; else now.")
@click.option("--days", type=click.IntRange(1, 36_525), help=f"How many days it has; else {_DAYS}.")
@click.option("--to", "until", metavar="T", help="Where it ends, instead of --days.")
@click.option("--tz", metavar="ZONE", help="The zone of plans that name none.")
@click.option("--at", "now", metavar="NOW", help="Take this moment for now.")
@click.option("-o", "--output", metavar="FILE", help="Write this file, whole at once.")
def ics(
    paths: tuple[str, ...],
    *,
    since: str | None,
    days: int | None,
    until: str | None,
    tz: str | None,
    now: str | None,
    output: str | None,
) -> int:
    """Print the planned moments as an iCalendar, for a calendar program.

    An entry recurs where every program finds the same moments as horae does; else its
    moments are written out, at most 1,000 of one entry. What is not armed is said on
    stderr. An event keeps its identity as long as its headline keeps its :ID:, or else
    its file, as seen from the current directory, and its title.
    """
    moment, where = moment_and_zone(now, tz=tz, root=plan_root(paths))
    start, end = _window(moment, where, since=since, days=days, until=until)
    sources = Sources(paths, Output(Form.TABLE, asked=False))
    entries = list(_entries(sources, where.key))
    for entry in entries:
        if is_cut(entry, start=start, end=end, zone_name=where.key):
            reason = f"comes more than {MOST:,} times; only the first are in the calendar"
            _say(entry.origin, f"{entry.title!r} {reason}")
    lines = calendar(entries, start=start, end=end, now=moment, zone_name=where.key)
    if output is None:
        # As bytes, for no system may turn the ends of lines into others.
        sys.stdout.buffer.writelines(line.encode() for line in lines)
    else:
        _save(output, _gathered(output, lines))
    return sources.exit_code


def _window(
    now: datetime, where: ZoneInfo, *, since: str | None, days: int | None, until: str | None
) -> tuple[datetime, datetime]:
    """Return the moments between which a calendar is asked for."""
    if days is not None and until is not None:
        raise click.UsageError("--days and --to both say where the calendar ends; give one.")
    start = now if since is None else parse_moment(since, where)
    try:
        end = start + timedelta(days=days or _DAYS) if until is None else parse_moment(until, where)
        start, end = start - _BEFORE, end - _BEFORE
    except OverflowError:
        raise click.UsageError("the calendar would lie outside the years 1 to 9999.") from None
    if end <= start:
        raise click.UsageError("the calendar would end before it begins.")
    return start, end


def _entries(sources: Sources, zone_name: str) -> Iterator[Entry]:
    """Yield the armed entries of plans, each once; those that are not armed are named."""
    files: set[str] = set()
    seen: dict[str, Origin] = {}
    for source in sources:
        file = _steady(source.name)
        if file in files:
            continue
        files.add(file)
        for item in entries_of(source.plan, file=file, zone_name=zone_name):
            other = seen.setdefault(item.address, item.origin)
            if isinstance(item, Unarmed):
                _say(item.origin, f"{item.title!r} is not armed: {item.reason}")
            elif other is item.origin:
                yield item
            else:
                reason = f"{other} has the same name; give one of the two an :ID: of its own"
                _say(item.origin, f"{item.title!r} is not armed: {reason}")


def _steady(name: str) -> str:
    """Return a file's name, the same however it was typed, for its events go by it."""
    return name if name == "-" else os.path.relpath(name).replace(os.sep, "/")


def _say(origin: Origin, what: str) -> None:
    """Say something about an entry on stderr."""
    echo(f"horae: {origin}: {what}", err=True)


def _gathered(path: str, lines: Iterable[str]) -> bytes:
    """Return a whole calendar, unless it is larger than a file should be."""
    data = bytearray()
    for line in lines:
        data += line.encode()
        if len(data) > LIMIT:
            reason = f"would have more than {LIMIT:,} bytes; ask for fewer days or fewer plans"
            raise PlanFileError(path, reason)
    return bytes(data)


def _save(path: str, data: bytes) -> None:
    """Put a calendar into a file that is new, or holds a calendar."""
    from horae.workspace.edit import Splice, create, edit  # not on Windows

    try:
        old = read_plan(path)
    except PlanMissingError:
        create(path, data)
        return
    if not old.text.startswith(_BEGINNING):
        raise PlanFileError(path, "is not a calendar, and stays as it is; name another file")
    edit(path, [Splice(0, len(old.data), data)], expected=old.digest)
