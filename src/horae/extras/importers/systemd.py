r"""Timers of systemd, and their services.

>>> reading = read_timer(
...     "[Timer]\nOnCalendar=Mon..Fri 9:00\nPersistent=true\n",
...     name="report.timer",
...     service="[Service]\nExecStart=/usr/bin/report --send\n",
...     zone_name="UTC",
... )
>>> job = reading.jobs[0]
>>> job.schedule, job.command, job.props[0]
('0 9 * * MON-FRI', '/usr/bin/report --send', ('CATCHUP', 'latest'))
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, NamedTuple

from horae.errors import ScheduleError
from horae.extras.importers.job import (
    CONTROL,
    LONGEST_LINE,
    YEARS,
    Dialect,
    ForeignJob,
    Reading,
    UnfitError,
    as_user,
    cron_of,
    day_fields,
    numbers,
)
from horae.timing.duration import format_duration, loose_duration
from horae.timing.zone import zone

_NAMES: Final = {
    "minutely": "*-*-* *:*:00",
    "hourly": "*-*-* *:00:00",
    "daily": "*-*-* 00:00:00",
    "weekly": "Mon *-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00",
    "quarterly": "*-01,04,07,10-01 00:00:00",
    **dict.fromkeys(("yearly", "annually", "anually"), "*-01-01 00:00:00"),
    **dict.fromkeys(
        ("semiannually", "biannually", "bi-annually", "semi-annually"), "*-01,07-01 00:00:00"
    ),
}
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEKDAYS: Final = {name: number for number, day in enumerate(_DAYS, 1) for name in (day, day[:3])}
_DATE_WORD: Final = re.compile(r"(?:([^-~:]+)-)?([^-~:]+)([-~])([^-~:]+)")
_dialect = partial(Dialect, dash="..", has_star_step=False)
_YEAR: Final = _dialect("year", *YEARS)
_MONTH: Final = _dialect("month", 1, 12)
_DAY: Final = _dialect("day", 1, 31)
_LAST_DAYS: Final = _dialect("day", 1, 28)  # as far back as every month goes
_HOUR: Final = _dialect("hour", 0, 23)
_MINUTE: Final = _dialect("minute", 0, 59)
_SECOND: Final = _dialect("second", 0, 59)
_LONGEST: Final = 1_000


class CalendarEvent(NamedTuple):
    cron: str
    zone: str | None


def read_event(text: str) -> CalendarEvent:
    """Parse a calendar event, as systemd.time(7) defines it; raises UnfitError.

    >>> read_event("Mon..Fri 9:00 Europe/Berlin").cron
    '0 9 * * MON-FRI'
    """
    if len(text) > _LONGEST or not text.isascii():
        remedy = "use only ASCII letters, digits and punctuation"
        raise UnfitError("is not a calendar event", remedy)
    body, place = _zone_of(text.strip())
    if body.startswith("@"):  # a second since 1970
        if not re.fullmatch(r"@[0-9]{1,10}", body, re.ASCII):
            raise UnfitError(f"{body!r} is not a timestamp", "write it as 2026-12-31 09:00:00 UTC")
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=int(body[1:]))
        return read_event(f"{at:%Y-%m-%d %H:%M:%S} UTC")
    body = _NAMES.get(body.lower(), body)
    weekdays, date_text, time_text = _parts(body, text)
    years, months, days, from_end = _date(date_text)
    times = time_text.split(":")
    if len(times) not in (2, 3):
        raise UnfitError(f"{time_text!r} is not a time of day", "write it as 09:30 or *:0/15")
    second = times[2] if len(times) == 3 else "0"
    if re.search(r"[0-9]\.[0-9]", second):
        what = f"second {second!r} is not a whole second"
        raise UnfitError(what, "horae supports whole seconds only; round it")
    hours, minutes = numbers(times[0], _HOUR), numbers(times[1], _MINUTE)
    clock = numbers(second, _SECOND), minutes, hours
    fields = day_fields(days, weekdays, from_end=from_end)
    return CalendarEvent(cron_of(clock, fields, months, years), place)


def _zone_of(text: str) -> tuple[str, str | None]:
    body, _, last = text.rpartition(" ")
    if not body or not last[:1].isalpha():
        return text, None
    try:
        zone(last)
    except ScheduleError as error:
        raise UnfitError(str(error), "correct it", offset=len(body) + 1) from None
    return body.strip(), last


def _parts(body: str, text: str) -> tuple[frozenset[int], str, str]:
    """Return weekdays, date and time, with the defaults of missing ones."""
    words = body.split()
    weekdays = frozenset(range(7))
    if words and words[0][0].isalpha():
        weekdays = _weekdays(words.pop(0))
    match words:
        case [] if body:
            return weekdays, "*-*-*", "00:00:00"
        case [time] if ":" in time:
            return weekdays, "*-*-*", time
        case [date]:
            return weekdays, date, "00:00:00"
        case [date, time]:
            return weekdays, date, time
    raise UnfitError(f"{text!r} is not a calendar event", "write it as Mon 2026-*-01 09:00:00")


def _weekdays(text: str) -> frozenset[int]:
    found: set[int] = set()
    for item in text.split(","):
        first, _, last = item.partition(".." if ".." in item else "-")
        low, high = _WEEKDAYS.get(first.lower()), _WEEKDAYS.get((last or first).lower())
        if low is None or high is None:
            raise UnfitError(f"{item!r} is not a weekday", "write Mon, or Mon..Fri")
        if high < low:
            raise UnfitError(f"{item!r} runs backwards", "write the days one by one: Fri,Sat,Mon")
        found |= {number % 7 for number in range(low, high + 1)}
    return frozenset(found)


def _date(text: str) -> tuple[frozenset[int] | None, frozenset[int], frozenset[int], bool]:
    """Return years (none is any), months, days, and whether the days count from the last."""

    def whole(found: re.Match[str]) -> str:  # 26 is 2026, and 89 is 1989
        number = int(found[0])
        return str(number + (2000 if number < 70 else 1900)) if number < 100 else found[0]

    match = _DATE_WORD.fullmatch(text)
    if match is None:
        raise UnfitError(f"{text!r} is not a date", "write it as *-12-24, 2026-*-01 or *-*~01")
    # `*-*` is month and day.
    year, month, sign, day = match.groups(default="*")
    years = None
    if year != "*":
        years = numbers(re.sub(r"(?<![0-9/])[0-9]{1,4}(?![0-9])", whole, year), _YEAR)
    from_end = sign == "~" and day != "*"
    days = _from_last(day) if from_end else numbers(day, _DAY)
    return years, numbers(month, _MONTH), days, from_end


def _from_last(text: str) -> frozenset[int]:
    found: set[int] = set()
    for item in text.split(","):
        body, slash, step = item.partition("/")
        named = sorted(numbers(body, _LAST_DAYS))
        if not slash:
            found |= set(named)
        elif not step.isdigit() or int(step) == 0:
            raise UnfitError(f"day {item!r} has no step after /", "write a number of at least 1")
        elif ".." in body:
            found |= numbers(item, _LAST_DAYS)
        elif named[0] <= int(step):
            what = f"day {item!r} has a step that goes past the end of the month"
            raise UnfitError(what, f"write ~{body} alone")
        else:
            found |= set(range(named[0], 0, -int(step)))
    return frozenset(found)


_SECTION: Final = re.compile(r"\[([A-Za-z]+)\]")
_TRUE: Final = frozenset({"1", "yes", "y", "true", "t", "on"})
# From an event, and not from a time of day.
_COUNTED: Final = (
    "OnActiveSec", "OnBootSec", "OnStartupSec", "OnUnitActiveSec", "OnUnitInactiveSec",
)  # fmt: skip
_SPECIFIER: Final = re.compile(r"%(?!%)")
_VARIABLES: Final = re.compile(r"(?:[\w./:=,+-]|\$\{[A-Za-z_]\w*\})+", re.ASCII)
_COMMANDS: Final = ("ExecStartPre", "ExecStart", "ExecStartPost")
# Supported settings, and those without an effect here.
_TIMER_KEYS: Final = frozenset(
    (*_COUNTED, "OnCalendar", "Unit", "Persistent",
     "RandomizedDelaySec", "FixedRandomDelay", "AccuracySec", "RemainAfterElapse")
)  # fmt: skip
_SERVICE_KEYS: Final = frozenset(
    (*_COMMANDS, "Type", "RemainAfterExit", "WorkingDirectory", "Environment", "TimeoutStartSec",
     "RuntimeMaxSec", "StandardOutput", "StandardError", "SyslogIdentifier")
)  # fmt: skip
_NAMING: Final = frozenset({"Description", "Documentation", "SourcePath"})
_FAILING: Final = ("OnFailure", "OnFailureJobMode")
_LIMIT: Final = 500  # lines with a setting in a unit


class UnitSetting(NamedTuple):
    section: str
    key: str
    value: str
    line: int
    column: int  # of the value

    def __str__(self) -> str:
        return f"{self.key}={self.value}"


def settings_of(text: str, reading: Reading | None = None) -> list[UnitSetting]:
    found: list[UnitSetting] = []
    section, reading = "", reading or Reading()
    for number, line in _joined(text):
        if reading.is_full:
            break
        bare = line.strip()
        if not bare or bare[0] in "#;":
            continue
        if heading := _SECTION.fullmatch(bare):
            section = heading[1]
            continue
        if len(found) >= _LIMIT:
            what = f"there are more than {_LIMIT} lines; this line and all below are skipped"
            reading.refuse(number, 1, what, "split the unit")
            break
        key, equals, value = line.partition("=")
        is_long = len(line) > LONGEST_LINE
        if is_long or not equals or CONTROL.search(line):
            what = "this is not a line of a unit file"
            if is_long:
                what = f"the line is longer than {LONGEST_LINE:,} characters"
            reading.refuse(number, 1, what, "write Key=value")
            continue
        column = len(key) + 1 + len(value) - len(value.lstrip()) + 1
        found.append(UnitSetting(section, key.strip(), value.strip(), number, column))
    return found


def read_timer(text: str, *, name: str, service: str | None, zone_name: str) -> Reading:
    """Return the jobs of a timer; *service* is the text of its service, if known.

    The text may contain both, as printed by `systemctl cat NAME.timer NAME.service`.
    """
    reading = Reading()
    settings = settings_of(text, reading)
    timer = [each for each in settings if each.section == "Timer"]
    if not timer:
        reading.refuse(1, 1, "there is no [Timer] section", "name a file that ends in .timer")
        return reading
    unit = unit_of(text, name=name)
    beside = [] if service is None else settings_of(service)
    work = [each for each in (*settings, *beside) if each.section == "Service"]
    events = _events(timer, zone_name, reading)
    if not events:
        return reading
    command = _command(work, unit, timer[0].line, reading)
    about = _about(settings, "Service") + _about(beside, "Service")
    lost = [each for each in _about(settings, "Timer") if each.key not in _NAMING]
    _note_lost(lost, name, timer[0].line, reading)
    if command != _by_systemd(unit):
        lost = [each for each in about if each.key not in _NAMING | {*_FAILING}]
        _note_lost(lost, unit, timer[0].line, reading)
        for each in _by_key(about)["OnFailure"]:
            remedy = "add a headline with a :COMMAND: and `:AFTER: failed of` the :ID: of this one"
            reading.note(timer[0].line, 1, f"{each} of {unit} is not imported", remedy)
    for each in timer:
        if each.key not in _TIMER_KEYS:
            reading.note(each.line, 1, f"{each} is not imported", "horae has no equivalent")
    title = _last(settings, "Description") or _last(beside, "Description") or name
    title = title.removesuffix(".timer")
    short = "" if name == "stdin.timer" else name.removesuffix(".timer")
    props = tuple(_props(timer, work, reading))
    for place, (line, found) in events.items():
        rules = tuple(dict.fromkeys(event.cron for event in found))
        notes = (f"From {name}.",)
        job = ForeignJob(line, title, place, rules, command, "", props, notes, name=short)
        reading.jobs.append(job)
    return reading


def unit_of(text: str, *, name: str) -> str:
    timer = [each for each in settings_of(text) if each.section == "Timer"]
    return _last(timer, "Unit") or f"{name.removesuffix('.timer')}.service"


def _about(settings: Sequence[UnitSetting], kind: str) -> list[UnitSetting]:
    found: list[UnitSetting] = []
    below = "Service"
    for each in reversed(settings):
        if each.section == "Unit" and below == kind:
            found.append(each)
        elif each.section not in {"Unit", "Install"}:
            below = each.section
    return found[::-1]


def _note_lost(lost: Iterable[UnitSetting], unit: str, line: int, reading: Reading) -> None:
    lost = [each for each in lost if each.value]
    if lost:
        fix = "make sure that the command has what it needs"
        if user := next((each.value for each in lost if each.key == "User"), None):
            fix = f"the command runs as the engine's user; {as_user(user)}"
        verb = "is" if len(lost) == 1 else "are"
        what = f"{', '.join(map(str, lost))} of {unit} {verb} not imported"
        reading.note(line, 1, what, fix)


def _joined(text: str) -> Iterator[tuple[int, str]]:
    held, first = "", 0
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.removesuffix("\r")
        if held and line.lstrip().startswith(("#", ";")):
            continue
        first = first or number
        if line.endswith("\\"):
            held += line[:-1] + " "
            continue
        yield first, held + line
        held, first = "", 0
    if held:
        yield first, held


def _events(
    timer: Sequence[UnitSetting], zone_name: str, reading: Reading
) -> dict[str, tuple[int, list[CalendarEvent]]]:
    found: dict[str, tuple[int, list[CalendarEvent]]] = {}
    before = len(reading.remarks)
    for each in timer:
        if reading.is_full:
            break
        if each.key in _COUNTED and each.value:
            what = f"{each} counts from an event, which is not a time of day"
            remedy = "write an OnCalendar= line, or keep it in systemd"
            reading.refuse(each.line, each.column, what, remedy)
        elif each.key == "OnCalendar":
            if not each.value:
                found.clear()  # an empty line resets earlier ones
                continue
            try:
                event = read_event(each.value)
            except UnfitError as error:
                column = each.column + error.offset
                reading.refuse(each.line, column, f"{each}: {error.what}", error.remedy)
                continue
            found.setdefault(event.zone or zone_name, (each.line, []))[1].append(event)
    if not found and len(reading.remarks) == before:
        what = "the timer has no OnCalendar="
        reading.refuse(timer[0].line, 1, what, "write an OnCalendar= line")
    return found


def _span(text: str) -> timedelta | None:
    """Parse a time span of systemd, such as `1h 30min`; a bare number is seconds."""
    return loose_duration(f"{text}s" if text.isdecimal() else text)


def _props(
    timer: Sequence[UnitSetting], work: Sequence[UnitSetting], reading: Reading
) -> Iterator[tuple[str, str]]:
    is_persistent = _last(timer, "Persistent").lower() in _TRUE
    yield "CATCHUP", "latest" if is_persistent else "none"
    for key, ours, among in (
        ("RandomizedDelaySec", "JITTER", timer),
        ("TimeoutStartSec", "TIMEOUT", work),
        ("RuntimeMaxSec", "TIMEOUT", work),
    ):
        setting = next((each for each in reversed(among) if each.key == key), None)
        if setting is None or setting.value in {"", "0", "infinity"}:
            continue
        if length := _span(setting.value):
            yield ours, format_duration(length)
            continue
        what = f"{setting} is not a duration"
        reading.note(setting.line, setting.column, what, f"set :{ours}: by hand")


def _command(work: Sequence[UnitSetting], unit: str, line: int, reading: Reading) -> str:
    """Return the command of a service; if it cannot be imported, the start of the service."""
    by_systemd, remedy = _by_systemd(unit), "the headline runs `systemctl start`"
    found = _by_key(work)
    lines = [each for key in _COMMANDS for each in found[key]]
    if not found["ExecStart"]:
        reading.note(line, 1, f"{unit} is not next to the timer", remedy)
        return by_systemd
    texts = [each.value for each in (*lines, *found["Environment"], *found["WorkingDirectory"])]
    if any(_SPECIFIER.search(each.replace("%%", "")) for each in texts):
        what = f"{unit} contains specifiers, which only systemd expands"
        reading.note(lines[0].line, 1, what, remedy)
        return by_systemd
    try:
        words = [_call(each.value.replace("%%", "%")) for each in lines]
        given = [word for each in found["Environment"] for word in shlex.split(each.value)]
    except (UnfitError, ValueError) as error:
        reading.note(lines[0].line, 1, f"{unit}: {error}", remedy)
        return by_systemd
    lost = [each[-1] for key, each in found.items() if each and key not in _SERVICE_KEYS]
    _note_lost(lost, unit, line, reading)
    command = " && ".join(words)
    directory = found["WorkingDirectory"]
    where = directory[-1].value.removeprefix("-") if directory else ""
    if where in {"", "~"} and len(words) == 1 and "$" not in command:
        whole = command if not where else f"sh -c {shlex.quote(f'cd && exec {command}')}"
    else:
        home = "" if not where else ("cd && " if where == "~" else f"cd {shlex.quote(where)} && ")
        whole = f"sh -c {shlex.quote(home + command)}"
    return whole if not given else f"env {' '.join(map(shlex.quote, given))} {whole}"


def _by_systemd(unit: str) -> str:
    return f"systemctl start {shlex.quote(unit)}"


def _call(text: str) -> str:
    """Return a command line of systemd for a shell, with `${NAME}` left to expand."""
    if text.startswith(("-", "@", ":", "+", "!", "|")):
        raise UnfitError(f"a command begins with {text[0]}")
    if not (words := shlex.split(text)):
        raise UnfitError("runs nothing")
    return " ".join(map(_word, words))


def _word(word: str) -> str:
    if "$" not in word:
        return shlex.quote(word)
    if not _VARIABLES.fullmatch(word):  # an empty variable alone is no word, unlike in a shell
        raise UnfitError(f"has a $ in {word!r} that only systemd expands")
    return f'"{word}"'


def _by_key(settings: Sequence[UnitSetting]) -> defaultdict[str, list[UnitSetting]]:
    found: defaultdict[str, list[UnitSetting]] = defaultdict(list)
    for each in settings:
        if each.value:
            found[each.key].append(each)
        else:
            found[each.key].clear()
    return found


def _last(settings: Sequence[UnitSetting], key: str) -> str:
    return next((each.value for each in reversed(settings) if each.key == key), "")
