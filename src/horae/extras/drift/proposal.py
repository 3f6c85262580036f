"""The rule that words would mean; what they do not say is taken from the rule that there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from horae.core.entry import CronRule, OnceRule, RepeaterRule, Rule, compiled_rule, cron_rule
from horae.extras.drift.series import Series, broken, series_of
from horae.timing.cron_fields import read_masks
from horae.timing.phrases.compiler import AskError, compile_says
from horae.timing.phrases.grammar import Clock, Say, placed
from horae.timing.repeater import Repeater, RepeaterKind, Unit, stamp_text
from horae.timing.zone import instant, local, zone

_UNITS: Final = {"h": Unit.HOUR, "d": Unit.DAY, "w": Unit.WEEK, "m": Unit.MONTH, "y": Unit.YEAR}


def proposed(says: Sequence[Say], every: Sequence[Series], rule: Rule, *, zone_name: str) -> str:
    """Return the rule that words mean, as it is written; empty if they leave it open."""
    series = every[0]
    timed = [_timed(say, series) for say in says]
    found = _stamp(timed[0], series, rule, zone_name) if len(timed) == 1 else None
    try:
        other, text = found or _compiled(timed, series, rule, zone_name)
    except AskError:
        return ""
    then = series_of(other, zone_name=zone_name, has_time=series.has_time)
    return text if then and not broken(says, then, Say()) else ""


def _compiled(says: Sequence[Say], series: Series, rule: Rule, zone_name: str) -> tuple[Rule, str]:
    compiled = compile_says([_dated(say, series) for say in says])
    before = datetime.combine(series.days[0], datetime.min.time(), UTC) - timedelta(minutes=1)
    found, text = compiled_rule(compiled, zone_name=zone_name, now=before)
    if isinstance(rule, CronRule) and compiled.repeater:
        return found, f"a timestamp with {compiled.repeater}"
    if isinstance(rule, CronRule) and compiled.crons and not any(map(_says_days, says)):
        fields = read_masks(rule.crons[0].expression)[0][3:6]
        text = "; ".join(" ".join((*each.split()[:-3], *fields)) for each in compiled.crons)
        return cron_rule(text, zone_name=zone_name), text
    return found, text


def _says_days(say: Say) -> bool:
    """Whether a statement says on which days; "every day" as filled in here does not."""
    is_long = bool(say.every and say.every[1] not in ("s", "min", "h")) or bool(say.count)
    return is_long or bool(say.weekdays or say.mdays or say.nth or say.dates or say.months)


def _timed(say: Say, series: Series) -> Say:
    """Return a statement with the times of the rule, if it says none."""
    first = min(series.times, default=0)
    if say.times:
        return replace(say, times=frozenset(Clock(placed(c, say.part).minute) for c in say.times))
    if say.every and say.every[1] == "h" and not (say.minutes or say.windows):
        return replace(say, minutes=frozenset({first % 60}))
    if say.every and say.every[1] in ("s", "min", "h") and not (say.hours or say.windows):
        hours = sorted({at // 60 for at in series.times})
        window = Clock(hours[0] * 60), Clock(hours[-1] * 60 + 59)
        return replace(say, windows=(window,)) if 1 < len(hours) < 24 else say
    if say.minutes or say.hours or say.windows:
        return say
    if say.count and say.count[1] == "d":
        number = say.count[0]
        times = [(first + n * 1440 // number) % 1440 for n in range(number)]
    else:
        times = [*series.times] if 0 < len(series.times) <= 3 and not say.strict else [first]
    return replace(say, times=frozenset(map(Clock, times)))


def _dated(say: Say, series: Series) -> Say:
    """Return a statement with a day of the rule, if it says only a period."""
    unit = say.every[1] if say.every else "y" if say.months else ""
    if say.weekdays or say.mdays or say.nth or say.dates or unit not in ("w", "m", "y"):
        return say if say.every or _says_days(say) else replace(say, every=(1, "d"), strict=True)
    days = {day.day for day in series.days}
    weekdays = {day.weekday() for day in series.days}
    if unit == "w":
        return replace(say, weekdays=frozenset(weekdays if len(weekdays) == 1 else {0}))
    day = min(days) if len(days) == 1 else 1
    months = series.months if len(series.months) == 1 else {1}
    found = replace(say, mdays=frozenset({day if day < 29 else -1}), recurs=True)
    return replace(found, months=say.months or frozenset(months)) if unit == "y" else found


def _stamp(say: Say, series: Series, rule: Rule, zone_name: str) -> tuple[Rule, str] | None:
    """Return a timestamp with another repeater or time; None if that will not do."""
    match rule:
        case RepeaterRule(anchor, repeater):
            pass
        case OnceRule(at):
            anchor, repeater = (
                local(at, zone(zone_name)),
                Repeater(RepeaterKind.CATCH_UP, 1, Unit.DAY),
            )
        case _:
            return None
    is_dated = say.weekdays or say.mdays or say.nth or say.dates or say.months or say.count
    if is_dated or say.either or (say.every and say.every[1] not in _UNITS) or len(say.times) > 1:
        return None
    if say.every:
        repeater = Repeater(repeater.kind, say.every[0], _UNITS[say.every[1]])
    for clock in say.times:
        anchor = anchor.replace(hour=clock.minute // 60, minute=clock.minute % 60)
    if not say.every and isinstance(rule, OnceRule):
        return OnceRule(instant(anchor, zone(zone_name))), stamp_text(anchor, None)
    return RepeaterRule(anchor, repeater), stamp_text(anchor, repeater, has_time=series.has_time)
