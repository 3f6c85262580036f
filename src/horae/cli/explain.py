"""`explain`: one rule in words, what comes of it, and which of two rules won."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from horae.cli.known import Ledgers
from horae.cli.output import Output, echo, form_options, print_answer
from horae.cli.times import When, when_options
from horae.core.entry import AfterRule, Entry, OnDemandRule, Unarmed
from horae.core.project import project, seams
from horae.core.text import moment_text, pause_words, words
from horae.errors import Exit
from horae.files.read import PlanMissingError, read_plan
from horae.org.document import read
from horae.org.timestamp import parse_timestamp
from horae.sources.plans.arming import rule_of, rule_text, scan_plan
from horae.timing.cron import Cron
from horae.timing.rfc3339 import format_with_offset
from horae.timing.zone import zone

if TYPE_CHECKING:
    from horae.org.plan import Headline

_PLACE: Final = re.compile(r"(.+):(\d{1,9})(?::\d+)?", re.ASCII)
_YEAR: Final = timedelta(days=366)
_FAR: Final = timedelta(days=366 * 50)


@click.command()
@click.argument("what", metavar="EXPR|STAMP|FILE:LINE")
@when_options
@form_options
def explain(what: str, *, at: str | None, tz: str | None, form: str | None) -> int:
    """Explain a schedule and show its next times.

    The argument is a cron expression ('0 9 * * MON-FRI', several separated by ;), an org
    timestamp ('<2026-06-06 Sat 06:00 +1d>'), or a position in a plan (plan.org:12). The next
    five times are shown, and the clock changes of the next year that affect the schedule. For a
    position the output also shows which rule applies, or why the entry does not run.
    """
    output = Output.of(form)
    place = None if what.startswith(("<", "[", "@")) else _PLACE.fullmatch(what)
    when = When.of(at, tz, paths=[place[1]] if place else ())
    if place is not None:
        found, headline = _at_place(place[1], int(place[2]), when)
        known = Ledgers((place[1],), output, zone_name=when.zone).of_file(place[1])
        found = found if known is None else known.joined(found)
    else:
        found, headline = _of_text(what, when.zone if tz else None)
    said = _explained(found, headline, when.now)
    print_answer(output, said.data(), lambda: _print(said))
    return Exit.OK


def _of_text(text: str, zone_name: str | None) -> tuple[Entry | Unarmed, Headline]:
    """Return the entry that a rule alone would make."""
    if not text.strip():
        Cron(text)  # which says that nothing is no rule; an empty property is none, and no error
    is_stamp = text.strip().startswith(("<", "["))
    if is_stamp and parse_timestamp(text) is None:
        raise click.UsageError(
            f"{text!r} is not a timestamp; write it like <2026-06-06 06:00 +1d>."
        )
    if text.strip().isalpha():
        raise click.UsageError(
            f"{text!r} is not a cron expression, a timestamp or FILE:LINE;"
            f" for an entry use `horae why {text.strip()}`, or name its line, such as plan.org:7."
        )
    when = f"SCHEDULED: {text.strip()}" if is_stamp else f":PROPERTIES:\n:SCHEDULE: {text}\n:END:"
    plan = read(f"* {text} :workflow:\n{when}\n")
    place = zone_name or "UTC"
    headline = plan.headlines[0]
    rule_of(headline, zone_name=place)  # raises what a plan would only call not armed
    return scan_plan(plan, file="-", zone_name=place)[0].item, headline


def _at_place(file: str, line: int, when: When) -> tuple[Entry | Unarmed, Headline]:
    """Return the workflow that a line of a plan belongs to."""
    text = read_plan(file).text
    plan = read(text)
    lines = len(text.splitlines())
    if line > lines:
        many = f"{lines} line" if lines == 1 else f"{lines} lines"
        raise PlanMissingError(f"{file}:{line}", f"the file has only {many}")
    above = [(place.line, index) for index, place in enumerate(plan.places()) if place.line <= line]
    scanned = {
        each.item.origin.line: each.item for each in scan_plan(plan, file=file, zone_name=when.zone)
    }
    for start, index in reversed(above):
        if start in scanned:
            return scanned[start], plan.headlines[index]
    raise PlanMissingError(f"{file}:{line}", "there is no entry at this line")


class Explanation(NamedTuple):
    """All that can be said of a rule."""

    item: Entry | Unarmed
    written: str | None
    won: str
    told: str  # the same for people, with the rule in it
    moments: tuple[datetime, ...] = ()
    changes: tuple[str, ...] = ()

    def data(self) -> dict[str, object]:
        item = self.item
        said: dict[str, object] = {
            "title": item.title,
            "origin": str(item.origin) if item.origin.file != "-" else None,
            "written": self.written,
            "won": self.won,
            "armed": isinstance(item, Entry),
        }
        if isinstance(item, Unarmed):
            return {**said, "reason": item.reason}
        place = zone(item.zone)
        return {
            **said,
            "words": words(item.rule, zone_name=item.zone),
            "zone": item.zone,
            "next": [format_with_offset(each.astimezone(place)) for each in self.moments],
            "clock_changes": list(self.changes),
        }


def _explained(item: Entry | Unarmed, headline: Headline, now: datetime) -> Explanation:
    written = rule_text(headline)
    told = _why(headline, written=written)
    bare = Explanation(item, written or None, _why(headline), told)
    if isinstance(item, Unarmed):
        return bare
    coming = islice(project(item, now, now + _FAR), 5)
    met = seams(item.rule, zone_name=item.zone, start=now, end=now + _YEAR)
    return bare._replace(
        moments=tuple(each.at for each in coming), changes=tuple(str(seam) for seam in met)
    )


def _why(headline: Headline, *, written: str = "") -> str:
    """Return which of the possible rules counts, and why; as it is *written*, if that is given."""
    planning = headline.planning
    stamp = planning.scheduled.text if planning and planning.scheduled else None
    if "AFTER" in headline.props:
        ignored = [":SCHEDULE:"] if "SCHEDULE" in headline.props else []
        ignored += ["SCHEDULED"] if headline.scheduled and headline.scheduled.active else []
        verb = "is" if len(ignored) == 1 else "are"
        unused = f"; {' and '.join(ignored)} {verb} ignored" if ignored else ""
        used = f"the rule is :AFTER: {written}" if written else "the :AFTER: property is used"
        return f"{used}{unused}"
    if "SCHEDULE" in headline.props:
        over = f"; it overrides SCHEDULED: {stamp}" if stamp else ""
        used = f"the rule is :SCHEDULE: {written}" if written else "the :SCHEDULE: property is used"
        return f"{used}{over}"
    if stamp is not None:
        used = f"the rule is SCHEDULED: {written}" if written else "SCHEDULED is used"
        return f"{used}, because there is no :SCHEDULE: property"
    if headline.deadline is not None:
        return "there is only a DEADLINE, which never starts a run"
    return "there is neither a :SCHEDULE: property nor SCHEDULED"


def _print(said: Explanation) -> None:
    item = said.item
    if item.origin.file != "-":
        echo(f"{item.title}  {item.origin}")
        echo(said.told)
    if isinstance(item, Unarmed):
        echo(f"{'never runs' if item.origin.file == '-' else 'not armed'}: {item.reason}")
        return
    echo(f"{words(item.rule, zone_name=item.zone)} ({item.zone})")
    if item.pause is not None:
        echo(f"paused{pause_words(item.pause, zone_name=item.zone)}")
    for moment in said.moments:
        echo(f"  {moment_text(moment, item.zone)}")
    is_timed = not isinstance(item.rule, OnDemandRule | AfterRule)
    if not said.moments and item.pause is None and is_timed:
        echo("  no scheduled time is left")
    for change in said.changes:
        echo(f"note: {change}")
