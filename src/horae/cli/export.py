"""`export`: the hours of plans, for other programs."""

from __future__ import annotations

import os.path
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from itertools import chain, count
from typing import Any, Final

import click

from horae.cli.group import SharedGroup
from horae.cli.moments import moment_and_zone, parse_moment
from horae.cli.options import at_option, flag, number_option, option, paths_argument, tz_option
from horae.cli.output import Output, echo
from horae.cli.plan_root import PlanView, When, called
from horae.cli.service import put
from horae.cli.sources import existing, plan_root, replace_file
from horae.core.clock import machine_zone
from horae.core.entry import CadenceRule, Entry, Unarmed, Work
from horae.core.text import pause_words
from horae.errors import Exit
from horae.extras.exporters.schedule import makes_good, to_calendar, to_crontab
from horae.extras.exporters.units import timer_pair
from horae.extras.importers.job import UnfitError
from horae.files.read import LIMIT, PlanFileError
from horae.sources.board.tasks import slug
from horae.web.ics import MOST, calendar, is_cut

_DAYS: Final = 365
_ENDS: Final = "its times depend on when its ticks end"
# A window has its start and not its end, as a day has; `project` takes it the other way.
_BEFORE: Final = timedelta(microseconds=1)


@click.group(cls=SharedGroup)
def export() -> None:
    """Export schedules to crontab, systemd, iCalendar."""


@export.command()
@paths_argument
@click.option("--from", "since", metavar="TIME", help="The start of the calendar; default: now.")
@number_option("--days", most=36_525, text=f"How many days to include; default: {_DAYS}.")
@click.option("--to", "until", metavar="TIME", help="The end of the calendar, instead of --days.")
@tz_option
@at_option
@click.option("-o", "--output", metavar="FILE", help="Write this file instead of stdout.")
def ics(
    paths: tuple[str, ...],
    *,
    since: str | None,
    days: int | None,
    until: str | None,
    tz: str | None,
    at: str | None,
    output: str | None,
) -> int:
    """Print the scheduled times as an iCalendar file.

    For a directory this includes its board and its triggers. An entry becomes a
    recurring event if calendar programs then compute the same times as horae; otherwise it
    becomes one event per time, at most 1,000. Entries that do not run are listed on stderr. The
    UID of an event depends on the :ID: of its headline; without an :ID:, on the title and on the
    file, relative to the current directory.
    """
    now, where = moment_and_zone(at, tz=tz, root=plan_root(paths))
    if days is not None and until is not None:
        raise click.UsageError("use --days or --to, not both.")
    start = now if since is None else parse_moment(since, where)
    try:
        end = start + timedelta(days=days or _DAYS) if until is None else parse_moment(until, where)
        window: dict[str, Any] = {
            "start": start - _BEFORE,
            "end": end - _BEFORE,
            "zone_name": where.key,
        }
    except OverflowError:
        raise click.UsageError("the calendar would lie outside the years 1 to 9999.") from None
    if end <= start:
        raise click.UsageError("the calendar would end before it begins.")
    view = PlanView(paths, Output.of(None), When(now, where.key))
    entries = list(_armed(chain(_items(view), view.items(beside=True))))
    if view.exit_code and not entries:
        return view.exit_code
    for entry in entries:
        if entry.pause is not None and entry.pause.covers(now):
            _say(entry, f"is paused{pause_words(entry.pause, zone_name=entry.zone)}")
        if is_cut(entry, **window):
            _say(entry, f"has more than {MOST:,} times; only the first are in the calendar")
    lines = calendar(entries, now=now, **window)
    if output is None:
        # As bytes, for no system may turn the ends of lines into others.
        sys.stdout.buffer.writelines(line.encode() for line in lines)
        return view.exit_code
    data = bytearray()
    for line in lines:
        data += line.encode()
        if len(data) > LIMIT:
            reason = f"would have more than {LIMIT:,} bytes; export fewer days or fewer plans"
            raise PlanFileError(output, reason)
    old = existing(output)
    if old is not None and not old.text.startswith("BEGIN:VCALENDAR"):
        raise PlanFileError(output, "exists and is not a calendar; name another file")
    replace_file(output, bytes(data), old)
    return view.exit_code


_program_option = option("--program PATH", "The path of horae.", default="horae", show_default=True)


@export.command()
@paths_argument
@flag("--cron-tz", "Write CRON_TZ= lines, which not every cron supports.")
@_program_option
@tz_option
@at_option
def crontab(paths: tuple[str, ...], *, cron_tz: bool, **export: Any) -> int:
    """Print crontab lines that run the entries of plans.

    Each line calls `horae run`. An entry whose schedule cron cannot express is left out, and
    listed on stderr.
    """
    hand = EntryExport(paths, **export)
    zones: dict[str, list[str]] = {}

    def in_machine_zone(entry: Entry) -> bool:
        is_there = entry.zone == hand.zone_name or cron_tz
        if not is_there:
            what = f"its time zone is {entry.zone}, and a crontab uses the zone of the machine"
            hand.refuse(entry, what, "use --cron-tz if your cron supports CRON_TZ")
        return is_there

    for entry, rules in hand.given(filter(in_machine_zone, hand.entries), to_crontab):
        call = shlex.join(hand.words(entry)).replace("%", "\\%")
        lines = [f"# {entry.title}", *(f"{rule} {call}" for rule in rules)]
        zones.setdefault(entry.zone, []).extend(lines)
    for zone_name, lines in zones.items():
        click.echo("\n".join([f"CRON_TZ={zone_name}", *lines] if cron_tz else lines))
        if not cron_tz and zone_name != machine_zone().key:
            note = f"these lines are correct only if cron runs in {zone_name}"
            echo(f"horae: note: {note}; otherwise use --cron-tz", err=True)
    return hand.exit_code


@export.command()
@paths_argument
@_program_option
@tz_option
@at_option
@click.option("-o", "--output", metavar="DIR", help="Write the units into this directory.")
@click.option("--force", is_flag=True, help="Overwrite units that were edited by hand.")
def systemd(paths: tuple[str, ...], *, output: str | None, force: bool, **export: Any) -> int:
    """Print a systemd timer and service for each entry.

    Each service calls `horae run`. An entry whose schedule a timer cannot express is left out,
    and listed on stderr.
    """
    hand = EntryExport(paths, **export)
    for entry, rules in hand.given(hand.entries, to_calendar):
        for name, text in hand.units(entry, rules):
            if output is None:
                click.echo(f"# {name}\n{text}")
            else:
                path = os.path.join(output, name)
                echo(f"{put(path, text, force=force)} {path}")
    return hand.exit_code


class EntryExport:
    def __init__(
        self, paths: tuple[str, ...], *, program: str, at: str | None, tz: str | None
    ) -> None:
        self._program = program
        root = plan_root(paths)
        self.now, where = moment_and_zone(at, tz=tz, root=root)
        self.zone_name = where.key
        self._root = os.path.abspath(root)
        self._view = view = PlanView(
            paths, Output.of(None), When(self.now, where.key), knows="none"
        )
        self._is_refused = False
        self.entries = [each for each in _armed(_items(view)) if self._is_inside(each)]
        self._titles = Counter(entry.title.lower() for entry in self.entries)
        self._names: set[str] = set()
        for item in view.items(beside=True):
            if isinstance(item, Entry) and item.work is not Work.DISPATCH:
                is_tick = isinstance(item.rule, CadenceRule)
                what = "only entries of plan files are exported"
                self.refuse(item, _ENDS if is_tick else what, "`horae up` runs it")

    def _is_inside(self, entry: Entry) -> bool:
        file = os.path.abspath(entry.origin.file)
        is_inside = entry.origin.file == "-" or file.startswith(os.path.join(self._root, ""))
        if not is_inside:
            what = f"the file is outside the plan root {self._root}"
            self.refuse(entry, what, "run this command in the plan root of the file")
        return is_inside

    def refuse(self, entry: Entry, what: str, remedy: str) -> None:
        _say(entry, f"is left out: {what}; {remedy}")
        self._is_refused = True

    @property
    def exit_code(self) -> int:
        return self._view.exit_code or (Exit.FINDINGS if self._is_refused else Exit.OK)

    def given(
        self, entries: Iterable[Entry], export: Callable[..., tuple[str, ...]]
    ) -> Iterator[tuple[Entry, tuple[str, ...]]]:
        """Yield entries as another scheduler has them; those that it cannot have are refused."""
        for entry in entries:
            try:
                yield entry, export(entry, now=self.now)
            except UnfitError as error:
                self.refuse(entry, error.what, error.remedy)

    def words(self, entry: Entry) -> tuple[str, ...]:
        """Return the command that runs an entry, by its :ID:, its title or its address."""
        is_titled = not entry.address.startswith("id:") and self._titles[entry.title.lower()] == 1
        name = entry.title if is_titled else entry.address.removeprefix("id:")
        return self._program, "run", "--root", self._root, name

    def units(self, entry: Entry, rules: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        base = f"horae-{slug(entry.title) or 'entry'}"
        names = chain([base], (f"{base}-{number}" for number in count(2)))
        stem = next(each for each in names if each not in self._names)
        self._names.add(stem)
        delay, words = int(entry.policy.jitter.total_seconds()), self.words(entry)
        made: dict[str, Any] = {"words": words, "is_persistent": makes_good(entry), "delay": delay}
        timer, service = timer_pair(entry.title, rules, **made)
        yield f"{stem}.timer", timer
        yield f"{stem}.service", service


def _items(view: PlanView) -> Iterator[Entry | Unarmed]:
    for item in view.items(beside=False):
        file = item.origin.file  # the same however it was typed, for its events go by it
        yield item if file == "-" else called(item, os.path.relpath(file))


def _armed(items: Iterable[Entry | Unarmed]) -> Iterator[Entry]:
    """Yield the armed entries; those that are not armed are named."""
    for item in items:
        if isinstance(item, Entry):
            yield item
        else:
            _say(item, f"is not armed: {item.reason}")


def _say(item: Entry | Unarmed, what: str) -> None:
    echo(f"horae: {item.origin}: '{item.title}' {what}", err=True)
