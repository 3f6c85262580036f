"""Rules, times and sizes in words."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Final

from horae.core import entry as rules
from horae.core.actor import actor_words
from horae.core.receipt import ReasonCode
from horae.timing.cron import describe_any
from horae.timing.duration import format_duration
from horae.timing.repeater import RepeaterKind, Unit, stamp_text
from horae.timing.zone import Rfc3339Error, local, parse_rfc3339, zone

if TYPE_CHECKING:
    from horae.core.views import PauseLine


_UNITS: Final = {
    Unit.HOUR: "hour",
    Unit.DAY: "day",
    Unit.WEEK: "week",
    Unit.MONTH: "month",
    Unit.YEAR: "year",
}
_INSTANT: Final = re.compile(r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z\b")
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_KINDS: Final = {
    RepeaterKind.CUMULATE: "every missed run is caught up, at most ten",
    RepeaterKind.CATCH_UP: "only the latest missed run is caught up",
    RepeaterKind.RESTART: "counted from the end of the last run",
}


DEMANDS: Final = {
    rules.Work.PROMPT: "when its trigger fires, or on request",
    rules.Work.DISPATCH: "when the board assigns the task, or on request",
}


def words(rule: rules.Rule, *, zone_name: str) -> str:
    match rule:
        case rules.CronRule(crons):
            return describe_any(crons)
        case rules.RepeaterRule():
            return _repeater_words(rule)
        case rules.OnceRule(at):
            return f"once, {moment_text(at, zone_name)}"
        case rules.CadenceRule(base):
            return f"{format_duration(base)} after the end of each tick"
        case rules.OnDemandRule():
            return "on request"
        case rules.AfterRule(occasions, of):
            *first, last = occasions
            either = f"{', '.join(first)} or {last}" if first else last
            return f"after {of or 'any entry'} ({either})"


def entry_words(entry: rules.Entry, *, zone_name: str) -> str:
    if isinstance(entry.rule, rules.OnDemandRule) and entry.origin.file != rules.REQUEST:
        return DEMANDS.get(entry.work, words(entry.rule, zone_name=zone_name))
    return words(entry.rule, zone_name=zone_name)


# First words of rules without a time of day; those of a single time include the zone.
_ZONELESS: Final = ("once, ", "after ", "on request", *DEMANDS.values())


def with_zone(rule: str, zone_name: str) -> str:
    """Add the zone to the words of a rule, if they have a time.

    >>> with_zone("every day at 09:00; only the latest missed run is caught up", "UTC")
    'every day at 09:00 (UTC); only the latest missed run is caught up'
    >>> with_zone("on request", "UTC")
    'on request'
    """
    if rule.startswith(_ZONELESS) or rule.endswith("of each tick"):
        return rule
    times, divider, kind = rule.rpartition("; ")
    if kind not in _KINDS.values():
        return f"{rule} ({zone_name})"
    return f"{times} ({zone_name}){divider}{kind}"


def written_rule(rule: rules.Rule, *, zone_name: str = "UTC") -> str:  # of a single time
    match rule:
        case rules.CronRule(crons):
            return "; ".join(cron.expression for cron in crons)
        case rules.RepeaterRule(anchor, repeater):
            return stamp_text(anchor, repeater)
        case rules.OnceRule(at):
            return stamp_text(local(at, zone(zone_name)), None)
        case _:
            return ""


def rule_words(rule: rules.Rule, *, zone_name: str) -> str:
    """Return a rule in words that can be parsed, without its zone and catch-up."""
    whole = words(rule, zone_name=zone_name)
    if isinstance(rule, rules.OnceRule):
        return whole.removesuffix(f" {zone_name}")
    return whole.rpartition("; ")[0] if isinstance(rule, rules.RepeaterRule) else whole


def size_text(size: int) -> str:
    """Return a number of bytes with a binary unit.

    >>> [size_text(each) for each in (12, 1500, 64 << 20, 7634944, 5 << 40)]
    ['12 bytes', '1.5 KiB', '64 MiB', '7.3 MiB', '5120 GiB']
    """
    if size < 1024:
        return f"{size} bytes"
    power = min((size.bit_length() - 1) // 10, 3)
    return f"{size / 1024**power:.1f}".removesuffix(".0") + f" {'KMG'[power - 1]}iB"


def anchor_words(entry: rules.Entry) -> str:
    """Return the first day of a phrase that names none; empty for any other rule."""
    if not rules.floating(entry) or not isinstance(entry.rule, rules.RepeaterRule):
        return ""
    first = f"counted from {wall_text(entry.rule.anchor)}"
    if entry.accounted_to is None:
        return f"{first} if an engine reads the entry now; :FROM: sets the first day"
    since = "the first of its times after an engine first read the entry"
    return f"{first}, {since}; :FROM: sets another day"


def moment_text(moment: datetime, zone_name: str) -> str:
    return f"{wall_text(local(moment, zone(zone_name)))} {zone_name}"


def period_text(first: datetime, last: datetime | None, count: int, zone_name: str) -> str:
    """Return one scheduled time, or the first and last of several with their number.

    >>> from datetime import UTC, datetime, timedelta
    >>> at = datetime(2026, 6, 6, 4, 0, tzinfo=UTC)
    >>> period_text(at, at + timedelta(hours=2), 3, "Europe/Berlin")
    '2026-06-06 Sat 06:00 to 08:00 Europe/Berlin, 3 times'
    """
    if last is None:
        return moment_text(first, zone_name)
    start, end = (local(each, zone(zone_name)) for each in (first, last))
    through = clock_text(end) if start.date() == end.date() else wall_text(end)
    return f"{wall_text(start)} to {through} {zone_name}, {count} times"


def no_time_left(entry: rules.Entry, now: datetime) -> str:
    until = entry.policy.until
    over = until is not None and until <= now
    return f"no scheduled time is left{': the date of :UNTIL: has passed' if over else ''}"


# A reason with one of these codes quotes the output of a program, which is not changed.
QUOTED: Final = frozenset({
    ReasonCode.COMPLETED, ReasonCode.NO_WORK, ReasonCode.EXIT_CODE, ReasonCode.REPORTED,
    ReasonCode.STEP_FAILED,
})  # fmt: skip


def in_zone(text: str, zone_name: str, code: str | None = None) -> str:
    """Return a sentence with its UTC times in a zone.

    A reason with a *code* may quote the output of a program, which is not changed.

    >>> in_zone("paused from 2026-06-06T04:00:00Z", "Europe/Berlin")
    'paused from 2026-06-06 Sat 06:00 Europe/Berlin'
    """
    if "Z" not in text or (code or getattr(text, "code", None)) in QUOTED:
        return text
    return _INSTANT.sub(lambda found: instant_text(found[0], zone_name), text)


def instant_text(text: str, zone_name: str) -> str:
    try:
        return moment_text(parse_rfc3339(text), zone_name)
    except Rfc3339Error:
        return text  # digits in a program's output, not a time


def pause_words(pause: rules.Pause | PauseLine, *, zone_name: str) -> str:
    """Return the end of a sentence on a pause: by whom, since when, until when and why.

    >>> from datetime import UTC, datetime
    >>> from horae.core.entry import Pause
    >>> at = datetime(2026, 6, 6, 4, 0, tzinfo=UTC)
    >>> pause_words(Pause(at, note="holidays", by="token:ops"), zone_name="UTC")
    ' by token ops, since 2026-06-06 Sat 04:00 UTC (holidays)'
    """
    by = f" by {actor_words(pause.by)}," if pause.by else ""
    until = f" until {moment_text(pause.until, zone_name)}" if pause.until else ""
    note = f" ({pause.note})" if pause.note else ""
    return f"{by} since {moment_text(pause.at, zone_name)}{until}{note}"


def wall_text(wall: datetime) -> str:
    return f"{wall:%Y-%m-%d} {_DAYS[wall.weekday()][:3]} {clock_text(wall)}"


def clock_text(wall: datetime) -> str:
    return f"{wall:%H:%M:%S}" if wall.second else f"{wall:%H:%M}"


def _repeater_words(rule: rules.RepeaterRule) -> str:
    repeater, anchor = rule.repeater, rule.anchor
    unit = _UNITS[repeater.unit]
    every = f"every {unit}" if repeater.count == 1 else f"every {repeater.count} {unit}s"
    at = "" if repeater.unit is Unit.HOUR else f" at {clock_text(anchor)}"
    if repeater.unit is Unit.WEEK and repeater.kind is not RepeaterKind.RESTART:
        at = f" on {_DAYS[anchor.weekday()]}{at}"
    return f"{every}{at}, starting {wall_text(anchor)}; {_KINDS[repeater.kind]}"


def is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18
