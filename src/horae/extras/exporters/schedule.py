"""An entry's rule in the syntax of other schedulers.

>>> calendar_of("0 9 * * MON-FRI"), calendar_of("0 9 L,1 * *")
(['Mon..Fri *-*-* 09:00:00'], ['*-*-01 09:00:00', '*-*~01 09:00:00'])
"""

from __future__ import annotations

import re
from datetime import datetime
from itertools import pairwise
from typing import Final

from horae.core.entry import PROPERTIES, CatchUp, CronRule, Entry, OnceRule, RepeaterRule
from horae.extras.importers.crontab import foreign_rule
from horae.extras.importers.job import UnfitError, next_times, weekday_text
from horae.extras.importers.systemd import read_event
from horae.timing import cron_fields as cron
from horae.timing.cron import Cron
from horae.timing.repeater import RepeaterKind, Unit
from horae.timing.zone import zone

_LONG_NAME: Final = re.compile(r"([A-Z]{3})[A-Z]+")
_TO_SUNDAY: Final = re.compile(r"([1-6]|[A-Z]{3})-SUN\b")
_DAY_NAMES: Final = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_SHORTEST_MONTH: Final = 28
_OWN: Final = "keep the entry in horae"


def to_crontab(entry: Entry, *, now: datetime) -> tuple[str, ...]:
    """Return the five fields of each crontab line; raises UnfitError."""
    return tuple(dict.fromkeys(map(_five, _crons(entry, now))))


def to_calendar(entry: Entry, *, now: datetime) -> tuple[str, ...]:
    if isinstance(entry.rule, OnceRule) and entry.rule.at > now:
        wall = entry.rule.at.astimezone(zone(entry.zone))
        events = [f"{wall:%Y-%m-%d %H:%M:%S}"]
    else:
        events = [event for text in _crons(entry, now) for event in calendar_of(text)]
    rules = tuple(dict.fromkeys(f"{event} {entry.zone}" for event in events))
    for rule in rules:
        read_event(rule)  # or systemd rejects it
    return rules


def makes_good(entry: Entry) -> bool:
    return entry.policy.catchup is not CatchUp.NONE


def _crons(entry: Entry, now: datetime) -> list[str]:
    for each in PROPERTIES:
        if each.unfit and each.of(entry.policy) != each.default:
            raise UnfitError(each.unfit, _OWN)
    coming = next_times(entry, now, 1)
    match entry.rule:
        case CronRule(crons) if coming:
            return [each.expression for each in crons]
        case RepeaterRule() as rule if coming:
            text = _of_repeater(rule)
            first = Cron(text, entry.zone).next(now)
            if first is None or first < coming[0]:
                begins = f"the schedule begins on {rule.anchor:%Y-%m-%d}"
                raise UnfitError(f"{begins}, and the other scheduler would begin before", _OWN)
            return [text]
        case CronRule() | RepeaterRule():
            raise UnfitError("the schedule has ended", _OWN)
        case OnceRule():
            raise UnfitError("the entry runs only once", "use at(1), or keep the entry in horae")
        case _:
            raise UnfitError("the entry has no schedule", _OWN)


def _of_repeater(rule: RepeaterRule) -> str:
    """Return cron for a repeater with the same times each day, week, month or year."""
    at, repeater = rule.anchor, rule.repeater
    if repeater.kind is RepeaterKind.RESTART:
        raise UnfitError("the schedule counts from the end of the last run", _OWN)
    if repeater.unit in {Unit.MONTH, Unit.YEAR} and at.day > _SHORTEST_MONTH:
        raise UnfitError(f"the scheduled day {at.day} is not in every month", _OWN)
    time = f"{at.minute} {at.hour}"
    match repeater.unit, repeater.count:
        case Unit.HOUR, count if 24 % count == 0:
            hours = ",".join(map(str, range(at.hour % count, 24, count)))
            return f"{at.minute} {hours if count > 1 else '*'} * * *"
        case Unit.DAY, 1:
            return f"{time} * * *"
        case (Unit.WEEK, 1) | (Unit.DAY, 7):
            return f"{time} * * {at.isoweekday() % 7}"
        case Unit.MONTH, count if 12 % count == 0:
            months = ",".join(str(n) for n in range(1, 13) if (n - at.month) % count == 0)
            return f"{time} {at.day} {months if count > 1 else '*'} *"
        case Unit.YEAR, 1:
            return f"{time} {at.day} {at.month} *"
    raise UnfitError(f"every {repeater.count}{repeater.unit} does not fall on fixed days", _OWN)


def _seven(expression: str) -> list[str]:
    fields = list(cron.split_fields(expression))
    fields[3], fields[5] = (field.replace("?", "*") for field in (fields[3], fields[5]))
    return fields


def _numbers(text: str, field: cron.CronField) -> frozenset[int]:
    mask = cron.mask_of(field, text)
    return frozenset(n for n in range(field.low, field.high + 1) if mask >> n & 1)


def _five(expression: str) -> str:
    second, *fields, year = (_LONG_NAME.sub(r"\1", field) for field in _seven(expression))
    if _numbers(second, cron.SECONDS) != {0}:
        raise UnfitError("the schedule has seconds, and cron runs once a minute at most", _OWN)
    if year != "*":
        raise UnfitError("the schedule has a year field, which cron does not support", _OWN)
    if re.search(r"L|W|#", fields[2]) or re.search(r"[0-9A-Z](?:L\b|#)", fields[4]):
        raise UnfitError("the schedule uses L, W or #, which cron does not support", _OWN)
    # Our ranges may end on Sunday, the seventh day.
    fields[4] = _TO_SUNDAY.sub(lambda found: f"{cron.WEEKDAY.values[found[1]]}-7", fields[4])
    # A crontab requires a range or a star before each step.
    bounds = (59, 23, 31, 12, 7)
    rule = " ".join(
        re.sub(r"(?<![^,])([0-9A-Z]+)/", rf"\1-{high}/", field)
        for field, high in zip(fields, bounds, strict=True)
    )
    if Cron(foreign_rule(rule.split())) != Cron(expression):
        raise UnfitError("the days would differ: cron reads * in a list otherwise", _OWN)
    return rule


def calendar_of(expression: str) -> list[str]:
    second, minute, hour, day, month, weekday, year = _seven(expression)
    parts = ((hour, cron.HOURS), (minute, cron.MINUTES), (second, cron.SECONDS))
    time = ":".join(_listed(*each) for each in parts)
    ends = f"{'*' if year == '*' else _listed(year, cron.YEAR)}-{_listed(month, cron.MONTH)}"
    if day == "*" and weekday == "*":
        return [f"{ends}-* {time}"]
    return [f"{part.format(ends)} {time}" for part in (*_dates(day), *_weekdays(weekday))]


def _dates(field: str) -> list[str]:
    if field == "*":
        return []
    items = field.split(",")
    if any(item.endswith("W") for item in items):
        what = "the schedule uses W (nearest weekday), which systemd does not support"
        raise UnfitError(what, _OWN)
    plain = ",".join(item for item in items if not item.startswith("L"))
    found = [f"{{}}-{_listed(plain, cron.DAY)}"] if plain else []
    last = [int(item[2:] or 0) + 1 for item in items if item.startswith("L")]
    return found + ([f"{{}}~{','.join(f'{each:02}' for each in sorted(last))}"] if last else [])


def _weekdays(field: str) -> list[str]:
    if field == "*":
        return []
    plain, found = [], []
    for item in field.split(","):
        name, hash_, nth = item.partition("#")
        if hash_:
            low = 7 * int(nth) - 6
            days = f"{low:02}..{min(low + 6, 31):02}"
            found.append(f"{_DAY_NAMES[cron.WEEKDAY.values[name] % 7]} {{}}-{days}")
        elif item.endswith("L"):
            found.append(f"{_DAY_NAMES[cron.WEEKDAY.values[item[:-1]] % 7]} {{}}~07/1")
        else:
            plain.append(item)
    if plain:
        named = frozenset(each % 7 for each in _numbers(",".join(plain), cron.WEEKDAY))
        found.insert(0, f"{weekday_text(named, _DAY_NAMES, '..')} {{}}-*")
    return found


def _listed(text: str, field: cron.CronField) -> str:
    ordered = sorted(_numbers(text, field))
    if len(ordered) == field.high - field.low + 1:
        return "*"
    gaps = {b - a for a, b in pairwise(ordered)}
    if len(ordered) > 2 and len(gaps) == 1:
        step = gaps.pop()
        if step == 1:
            return f"{ordered[0]:02}..{ordered[-1]:02}"
        if ordered[-1] + step > field.high:
            return f"{ordered[0]:02}/{step}"
    return ",".join(f"{each:02}" for each in ordered)
