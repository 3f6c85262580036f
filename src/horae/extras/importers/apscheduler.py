r"""Jobs that a Python program adds to APScheduler 3; the program is read and never run.

Taken are calls of `add_job` and `scheduled_job` whose trigger is written out in literals.

>>> text = "scheduler.add_job(report, 'cron', day_of_week='mon-fri', hour=9)"
>>> job = read_program(text, name="jobs.py", zone_name="UTC", now=datetime(2026, 6, 6, tzinfo=UTC))
>>> job.jobs[0].schedule, job.jobs[0].command
('0 9 * * MON-FRI', "python3 -c 'from jobs import report; report()'")
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from horae.errors import ScheduleError
from horae.extras.importers import job as foreign
from horae.extras.importers.job import Dialect, ForeignJob, Reading, UnfitError, numbers, shortened
from horae.timing.cron_fields import field_text
from horae.timing.duration import format_duration
from horae.timing.repeater import Repeater, RepeaterKind, Unit, stamp_text
from horae.timing.zone import instant, zone

Literal: TypeAlias = "str | int | float | bool | datetime | timedelta | None"
_MONDAY_FIRST: Final = {name: (day - 1) % 7 for name, day in foreign.SUNDAY_FIRST.items()}
# In order: fields before the first given one match any value, those after it the minimum.
_FIELDS: Final = ("year", "month", "day", "week", "day_of_week", "hour", "minute", "second")
_LEAST: Final = {"month": "1", "day": "1", "hour": "0", "minute": "0", "second": "0"}
_BOUNDS: Final = {"day": (1, 31), "hour": (0, 23), "minute": (0, 59), "second": (0, 59)}
_DIALECTS: Final = {
    "year": Dialect("year", *foreign.YEARS),
    "month": Dialect("month", 1, 12, foreign.MONTHS),
    "day_of_week": Dialect("day_of_week", 0, 6, _MONDAY_FIRST),
    **{name: Dialect(name, *bounds) for name, bounds in _BOUNDS.items()},
}
_JOB_KEYS: Final = frozenset(
    ("func", "trigger", "args", "kwargs", "id", "name", "misfire_grace_time", "coalesce",
     "max_instances", "next_run_time", "jobstore", "executor", "replace_existing")
)  # fmt: skip
_NTH: Final = re.compile(r"(1st|2nd|3rd|4th|5th|last) +([a-z]{3})", re.IGNORECASE)
_TRIGGERS: Final = {"CronTrigger": "cron", "IntervalTrigger": "interval", "DateTrigger": "date"}
_SUPPORTED: Final = "use cron, interval or date"
_LENGTHS: Final = {"weeks": 604_800, "days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
_LONGEST: Final = 200_000  # characters of a program, which Python takes long to parse
_LAST_YEAR: Final = 8_000
_LARGEST: Final = 1_000_000_000  # of any number, and seconds of an interval


class TriggerRule(NamedTuple):
    zone: str
    cron: str = ""
    stamp: str = ""


def read_program(text: str, *, name: str, zone_name: str, now: datetime) -> Reading:
    """Return the jobs that a program adds; *now* counts as the time of its start."""
    reading = Reading()
    if len(text) > _LONGEST:
        what = f"has more than {_LONGEST:,} characters"
        reading.refuse(1, 1, what, "name the module that adds the jobs")
        return reading
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (RecursionError, MemoryError):
        reading.refuse(1, 1, "is nested too deeply", "reduce the nesting")
        return reading
    except (SyntaxError, ValueError) as error:
        line, column = getattr(error, "lineno", None) or 1, getattr(error, "offset", None) or 1
        reading.refuse(line, column, "the file is not valid Python", "correct it")
        return reading
    settings = {
        keyword.arg: (node.lineno, keyword.value)
        for node in reversed(nodes)
        if isinstance(node, ast.Call) and _name(node.func).endswith("Scheduler")
        for keyword in node.keywords
    }
    if "timezone" in settings:
        zone_name = _zone_text(settings["timezone"][1]) or zone_name
    if "job_defaults" in settings:
        what = "job_defaults of the scheduler are not imported"
        remedy = "check :CATCHUP: and :OVERLAP: of each headline"
        reading.note(settings["job_defaults"][0], 1, what, remedy)
    module = name.rpartition("/")[2].removesuffix(".py")
    reader = ProgramReader(module, zone_name, now.astimezone(UTC), reading)
    for call, function in sorted(_calls(nodes), key=lambda each: _place(each[0])):
        if not reading.has_room(*_place(call)):
            break
        reader.take(call, function)
    if not reading.jobs and not reading.remarks:
        remedy = "name a file that calls add_job(…) or scheduled_job(…)"
        reading.refuse(1, 1, "does not add a job", remedy)
    return reading


def _calls(nodes: Sequence[ast.AST]) -> Iterator[tuple[ast.Call, ast.expr | str]]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for each in node.decorator_list:
                if isinstance(each, ast.Call) and _name(each.func) == "scheduled_job":
                    yield each, node.name
        elif isinstance(node, ast.Call) and _name(node.func) == "add_job":
            yield node, _argument(node, 0, "func") or ""


def _place(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset + 1


class ProgramReader(NamedTuple):
    module: str
    zone: str
    now: datetime
    reading: Reading

    def take(self, call: ast.Call, function: ast.expr | str) -> None:
        place = _place(call)
        try:
            job = self._job(call, function)
        except UnfitError as error:
            self.reading.refuse(*place, error.what, error.remedy)
        except ScheduleError as error:
            self.reading.refuse(*place, str(error), "correct it")
        except (OverflowError, ValueError, RecursionError):
            what = "a number, date or expression is out of range"
            self.reading.refuse(*place, what, "use a smaller value")
        else:
            what = f"{_called(function)} is imported from {self.module} for each run"
            remedy = "make sure that importing the module does not start a scheduler"
            self.reading.note(*place, what, remedy)
            self.reading.jobs.append(job)

    def _job(self, call: ast.Call, function: ast.expr | str) -> ForeignJob:
        keywords = {each.arg: each.value for each in call.keywords}
        first = keywords.get("next_run_time")
        if isinstance(first, ast.Constant) and first.value is None:
            what = "the job is added paused (next_run_time=None)"
            raise UnfitError(what, "remove next_run_time if it should run")
        if first is not None:
            raise UnfitError("next_run_time sets the first run time", "leave it to the trigger")
        kind, values = self._trigger(call)
        place = str(values.pop("timezone", None) or self.zone)
        zone(place)
        jitter = values.pop("jitter", None)
        dates = (values.pop(key, None) for key in ("start_date", "run_date", "end_date"))
        start, once, until = (self._moment(each, place) for each in dates)
        match kind:
            case "cron":
                rule = TriggerRule(place, self._cron(values, start))
            case "interval":
                rule = TriggerRule("UTC", *self._interval(values, start))
            case "date":
                rule = self._date(once, place)
            case _:
                raise UnfitError(f"the trigger {kind!r} is not supported", _SUPPORTED)

        def given(key: str, default: object) -> object:
            node = keywords.get(key)
            return node.value if isinstance(node, ast.Constant) else default

        # By default APScheduler does not catch up and does not overlap.
        grace, most = given("misfire_grace_time", 0), given("max_instances", 1)
        is_late = grace is None or (isinstance(grace, int) and grace >= 3600)
        catch_up = "all" if given("coalesce", default=True) is False else "latest"
        props = [("CATCHUP", catch_up if is_late else "none")]
        if isinstance(most, int) and most > 1:
            props.append(("OVERLAP", "allow"))
        if isinstance(jitter, int | float) and jitter > 0:
            props.append(("JITTER", format_duration(timedelta(seconds=round(jitter)))))
        if until:
            props.append(("UNTIL", f"{until:%Y-%m-%dT%H:%M:%SZ}"))
        command = self._command(keywords, function)
        title = _text(keywords.get("name")) or _text(keywords.get("id")) or _called(function)
        about = (
            (rule.cron,) if rule.cron else (),
            command,
            rule.stamp,
            tuple(props),
            (f"From {self.module}.py.",),
        )
        return ForeignJob(call.lineno, title or "Job", rule.zone, *about)

    def _trigger(self, call: ast.Call) -> tuple[str, dict[str, Literal]]:
        node = _argument(call, 0 if _name(call.func) == "scheduled_job" else 1, "trigger")
        if node is None:
            remedy = "run it by hand, or give it a schedule"
            raise UnfitError("the job runs once, immediately", remedy)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            own = {each.arg: each.value for each in call.keywords if each.arg not in _JOB_KEYS}
            return node.value, self._values(own)
        if not isinstance(node, ast.Call):
            what = f"the trigger {_shown(node)} is not a literal"
            raise UnfitError(what, "write it into the call")
        name = _name(node.func)
        given = {each.arg: each.value for each in node.keywords}
        if name == "from_crontab":
            texts = _text(_argument(node, 0, "expr")).split()
            if len(texts) != 5:
                raise UnfitError("from_crontab needs five fields as a literal", "write them out")
            given.pop("expr", None)
            if "timezone" not in given and len(node.args) > 1:
                given["timezone"] = node.args[1]
            if re.search(r"[0-9]", texts[4]):
                what = f"day_of_week {texts[4]} counts from 0 = Monday in APScheduler"
                remedy = "cron counts from 0 = Sunday; check the weekday in the headline"
                self.reading.note(*_place(node), what, remedy)
            names = ("minute", "hour", "day", "month", "day_of_week")
            values: dict[str, Literal] = dict(zip(names, texts, strict=True))
            return "cron", values | self._values(given)
        kind = _TRIGGERS.get(name)
        if kind is None:
            raise UnfitError(f"the trigger {name or 'here'} is not supported", _SUPPORTED)
        if node.args:
            order = {"date": ("run_date", "timezone"), "interval": tuple(_LENGTHS), "cron": _FIELDS}
            given |= dict(zip(order[kind], node.args, strict=False))
        return kind, self._values(given)

    def _values(self, given: Mapping[str | None, ast.expr]) -> dict[str, Literal]:
        found: dict[str, Literal] = {}
        for key, node in given.items():
            if key is None:
                raise UnfitError("the keywords are passed with **", "write them into the call")
            value = _zone_text(node) if key == "timezone" else _literal(node)
            if value is None and not (isinstance(node, ast.Constant) and node.value is None):
                what = f"{key}={_shown(node)} is not a literal"
                raise UnfitError(what, "write the value into the call")
            if isinstance(value, int | float) and not abs(value) <= _LARGEST:
                raise UnfitError(f"{key} is larger than {_LARGEST:,}", "write a smaller number")
            if value is not None:
                found[key] = value
        return found

    def _cron(self, values: dict[str, Literal], start: datetime | None) -> str:
        if start is not None and start > self.now:
            remedy = "import it after that date, or set the years"
            raise UnfitError("start_date is in the future", remedy)
        unknown = next((key for key in values if key not in _FIELDS), None)
        if unknown is not None:
            raise UnfitError(f"{unknown} is not a field of a cron trigger", "remove it")
        last = max((_FIELDS.index(key) for key in values), default=-1)
        texts = {
            key: str(values.get(key, "*" if number <= last else _LEAST.get(key, "*")))
            for number, key in enumerate(_FIELDS)
        }
        if texts["week"] != "*":
            raise UnfitError("week: weeks of the year are not supported", "name the days or months")
        seconds, minutes, hours, months = (
            numbers(texts[key], _DIALECTS[key]) for key in ("second", "minute", "hour", "month")
        )
        years = None if texts["year"] == "*" else numbers(texts["year"], _DIALECTS["year"])
        named = numbers(texts["day_of_week"], _DIALECTS["day_of_week"])
        weekdays = frozenset((each + 1) % 7 for each in named)
        days = _days(texts["day"], weekdays)
        return foreign.cron_of((seconds, minutes, hours), days, months, years)

    def _interval(self, values: dict[str, Literal], start: datetime | None) -> tuple[str, str]:
        total = 0
        for key, value in values.items():
            if key not in _LENGTHS or not isinstance(value, int):
                remedy = "use whole weeks, days, hours, minutes or seconds"
                raise UnfitError(f"{key} is not part of an interval", remedy)
            total += value * _LENGTHS[key]
        total = total or 1
        if total > _LARGEST:
            raise UnfitError("the interval is longer than 30 years", "write a date instead")
        step = timedelta(seconds=total)
        first = (start or self.now.replace(second=0, microsecond=0) + step).astimezone(UTC)
        cron, stamp = _counted(first, total)
        if first > self.now and cron and start is not None:
            raise UnfitError("start_date is in the future", "import it after that date")
        return cron, stamp

    def _date(self, at: datetime | None, place: str) -> TriggerRule:
        if at is None:
            raise UnfitError("the job runs once, immediately", "give it a run_date")
        if at <= self.now:
            what = f"run_date {at:%Y-%m-%d %H:%M:%S} UTC is in the past"
            raise UnfitError(what, "remove the job")
        wall = at.astimezone(zone(place))
        if wall.microsecond:
            raise UnfitError("run_date is not a whole second", "round it")
        if wall.second or wall.fold:
            cron = f"{at.second} {at.minute} {at.hour} {at.day} {at.month} * {at.year}"
            return TriggerRule("UTC", cron)
        return TriggerRule(place, stamp=stamp_text(wall, None))

    def _moment(self, value: Literal, place: str) -> datetime | None:
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                raise UnfitError(f"{value!r} is not a date", "write 2026-12-31 09:00:00") from None
        if not isinstance(value, datetime):
            return None
        if not 1 < value.year < _LAST_YEAR:
            raise UnfitError(f"the year {value.year} is out of range", "correct it")
        return value.astimezone(UTC) if value.tzinfo else instant(value, zone(place))

    def _command(self, keywords: Mapping[str | None, ast.expr], function: ast.expr | str) -> str:
        module, name = self.module, _called(function)
        if isinstance(function, ast.Constant) and isinstance(function.value, str):
            module, colon, name = function.value.partition(":")
            if not colon:
                what = f"{function.value!r} does not name a function"
                raise UnfitError(what, "write module:function")
        elif not isinstance(function, str | ast.Name | ast.Attribute) or not name:
            remedy = "name the function so that it can be called"
            raise UnfitError("the function has no name", remedy)
        if not re.fullmatch(r"[\w.]+", f"{module}{name}"):
            raise UnfitError(f"{module}:{name} cannot be imported", "put it into a module")
        given = []
        for key, sign in (("args", "*"), ("kwargs", "**")):
            try:
                value = ast.literal_eval(keywords[key]) if key in keywords else None
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                what = f"the {key} are not literals"
                raise UnfitError(what, "write them into the call") from None
            if key in keywords:
                given.append(f"{sign}{value!r}")  # a number that cannot be written is out of range
        first, dot, rest = name.partition(".")
        call = f"from {module} import {first}; {first}{dot}{rest}({', '.join(given)})"
        return f"python3 -c {shlex.quote(call)}"


def _days(text: str, weekdays: frozenset[int]) -> tuple[str, str]:
    """Return the day fields for a trigger whose day and weekday must both match."""
    items = [item.strip() for item in text.split(",")]
    nths = [found for item in items if (found := _NTH.fullmatch(item))]
    has_last = any(item.lower() == "last" for item in items)
    dates = [item for item in items if item.lower() != "last" and not _NTH.fullmatch(item)]
    days = numbers(",".join(dates), _DIALECTS["day"]) if dates else frozenset()
    if not nths and not has_last:
        return foreign.day_fields(days, weekdays, from_end=False)
    if len(weekdays) < 7:
        what = "a weekday and a day of the month must both match"
        raise UnfitError(what, "remove one of them")
    named = []
    for nth, name in (found.groups() for found in nths):
        if name.lower() not in _MONDAY_FIRST:
            raise UnfitError(f"{name!r} is not a weekday", "write mon, tue, … sun")
        day = foreign.CRON_NAMES[foreign.SUNDAY_FIRST[name.lower()]]
        named.append(f"{day}L" if nth.lower() == "last" else f"{day}#{nth[0]}")
    # Either field matches, like the items of a list.
    return ",".join([*dates, *["L"] * has_last]) or "*", ",".join(named) or "*"


def _counted(first: datetime, total: int) -> tuple[str, str]:
    second, minute = first.second, first.minute
    if total < 60 and 60 % total == 0:
        return f"{field_text(range(second % total, 60, total), 0, 59)} * * * * *", ""
    minutes, rest = divmod(total, 60)
    if not rest and minutes < 60 and 60 % minutes == 0:
        text = f"{field_text(range(minute % minutes, 60, minutes), 0, 59)} * * * *"
        return (f"{second} {text}" if second else text), ""
    if total % 3600 or second or first.microsecond:
        what = f"every {format_duration(timedelta(seconds=total))} does not divide an hour evenly"
        raise UnfitError(what, "use an interval that divides an hour, or whole hours")
    name, size = next(each for each in _LENGTHS.items() if total % each[1] == 0)
    repeater = Repeater(RepeaterKind.CATCH_UP, total // size, Unit(name[0]))
    return "", stamp_text(first, repeater)


def _shown(node: ast.expr) -> str:
    try:
        return shortened(ast.unparse(node)[:60])
    except (RecursionError, ValueError):  # too deep, or a number with more than 4,300 digits
        return "…"


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _called(function: ast.expr | str) -> str:
    if isinstance(function, str):
        return function
    if isinstance(function, ast.Constant):
        return str(function.value).rpartition(":")[2]
    return ast.unparse(function) if isinstance(function, ast.Name | ast.Attribute) else ""


def _argument(call: ast.Call, at: int, name: str) -> ast.expr | None:
    if len(call.args) > at:
        return call.args[at]
    return next((each.value for each in call.keywords if each.arg == name), None)


def _text(node: ast.expr | None) -> str:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else ""


def _zone_text(node: ast.expr) -> str | None:
    if isinstance(node, ast.Call) and _name(node.func) in {"ZoneInfo", "timezone", "gettz"}:
        return _text(node.args[0]) or None if node.args else None
    if _name(node).lower() == "utc":
        return "UTC"
    return _text(node) or None


def _literal(node: ast.expr) -> Literal:
    if isinstance(node, ast.Call) and _name(node.func) in {"datetime", "date"}:
        try:
            numbers = [ast.literal_eval(each) for each in node.args]
            if node.keywords:
                return None
            return datetime(*numbers)  # noqa: DTZ001 - its zone is the trigger's
        except (ValueError, TypeError, OverflowError, RecursionError):
            return None
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float):
        return node.value
    return None
