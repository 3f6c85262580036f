"""The crew: a manifest in which each heading is an agent that ticks in its own rhythm.

    * wren
    :PROPERTIES:
    :DEF: agents/writer.org
    :LIFECYCLE: lifecycles/writer.org
    :INTERVAL: 10m
    :END:

The names and texts of the files that hold a keeper's sense of time are here, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar

from horae.core.entry import HOST_FIX, labels
from horae.org.check.finding import shown
from horae.org.plan import Diagnostic, Severity, is_id
from horae.sources.agents.rules import Wake, choices
from horae.sources.crew.lifecycle import NAME_FIX, Heading, headings
from horae.timing import backoff
from horae.timing.duration import DurationError, format_duration, parse_cadence, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable

INTERVAL: Final = timedelta(hours=1)  # of a member that names none
SHORTEST: Final = timedelta(seconds=10)  # a rhythm faster than this is probably not meant
STAGGER: Final = timedelta(seconds=30)  # between the first ticks of two members

_KEYS: Final = (
    "DEF",
    "LIFECYCLE",
    "INTERVAL",
    "TIMEOUT",
    "MODE",
    "CONTINUOUS",
    "BREATHER",
    "WAKE",
    "HOST",
)
_ON: Final = frozenset({"1", "true", "t", "yes", "on"})
_OFF: Final = frozenset({"0", "false", "nil", "no", "off"})
_SECONDS: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
_Value = TypeVar("_Value")


class TickMode(StrEnum):
    """What a tick is told to do."""

    PLAN = "plan"
    EDIT = "edit"


@dataclass(frozen=True, slots=True)
class Member:
    """An agent of a crew; what is None is as the settings or the definition have it.

    Paths are as they are written; a relative one begins at the manifest.
    """

    name: str
    definition: str
    lifecycle: str | None = None
    interval: timedelta = INTERVAL
    timeout: timedelta | None = None
    mode: TickMode | None = None
    continuous: bool | None = None
    breather: timedelta | None = None
    wake: Wake | None = None
    requires: tuple[str, ...] = ()  # labels of the machine that it ticks on
    about: str = ""  # what is written under its heading
    line: int = 0
    text: str = ""  # the heading with all that is below it, as it stands
    broken: str = field(default="", compare=False)  # why a property cannot be read, if one cannot

    def every(self, *, continuous: bool, breather: timedelta) -> timedelta:
        """Return the wait after a tick that found work; the arguments are the settings."""
        is_continuous = continuous if self.continuous is None else self.continuous
        return (self.breather or breather) if is_continuous else self.interval


@dataclass(frozen=True, slots=True)
class Idler:
    """A heading that means to be a member and cannot tick, and why."""

    name: str
    line: int
    reason: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Crew:
    """The members of a manifest in its order, those that cannot tick, and all that is odd."""

    members: tuple[Member, ...]
    idlers: tuple[Idler, ...]
    diagnostics: tuple[Diagnostic, ...]


def parse_crew(text: str, file: str = "-") -> Crew:
    r"""Return the crew of a manifest.

    A value that cannot be read is as if it were not there, and a finding says so.

    >>> crew = parse_crew("* wren\n:PROPERTIES:\n:DEF: wren.org\n:INTERVAL: 10m\n:END:\n* moss\n")
    >>> [(member.name, str(member.interval)) for member in crew.members]
    [('wren', '0:10:00')]
    >>> crew.idlers[0].reason
    'the member has no :DEF:'
    """
    page, found = headings(text, file)
    members: dict[str, Member] = {}
    idlers = []
    for heading in page:
        if not is_id(heading.name) and heading.props.keys().isdisjoint(_KEYS):
            continue  # a heading of the text around the crew
        found += heading.oddities(file, _KEYS)
        refusal = _refusal(heading, members, file)
        if refusal is not None:
            found.append(refusal)
            idlers.append(Idler(heading.name, heading.line, refusal.message, heading.text))
            continue
        member, odd = _member(heading, file)
        members[member.name] = member
        found += odd
    found.sort(key=lambda each: (each.line, each.column, each.code))
    return Crew(tuple(members.values()), tuple(idlers), tuple(found))


def first_delay(
    interval: timedelta,
    last_run_at: datetime | None,
    *,
    now: datetime,
    index: int = 0,
    stagger: timedelta = STAGGER,
) -> timedelta:
    """Return the wait before the first tick after a start, of the *index*-th member.

    >>> now = datetime(2026, 6, 6, 14, 0, tzinfo=UTC)
    >>> hour, minutes = timedelta(hours=1), timedelta(minutes=1)
    >>> print(first_delay(hour, now - 40 * minutes, now=now), first_delay(hour, None, now=now))
    0:20:00 0:01:00
    >>> [first_delay(hour, None, now=now, index=n).seconds for n in range(4)]
    [60, 90, 120, 150]
    """
    elapsed = None if last_run_at is None else now - last_run_at
    return backoff.first_delay(interval, elapsed) + index * stagger


def last_run_file(name: str | None = None) -> str:
    """Return the name of the file with the time of the last tick.

    >>> last_run_file(), last_run_file("wren")
    ('keeper-last-run', 'keeper-last-run-wren')
    """
    return _file_name("keeper-last-run", name)


def position_file(name: str | None = None) -> str:
    """Return the name of the file with the place in the day.

    >>> position_file(), position_file("wren")
    ('lifecycle-pos', 'lifecycle-pos-wren')
    """
    return _file_name("lifecycle-pos", name)


def ran_file(state: str, name: str | None = None) -> str:
    """Return the name of the file with the time at which a state last began.

    >>> ran_file("rem"), ran_file("rem", "wren")
    ('lifecycle-ran-rem', 'lifecycle-ran-wren-rem')
    """
    return _file_name("lifecycle-ran", name, state)


def seconds_text(moment: datetime) -> str:
    """Return a moment as those files hold it.

    >>> seconds_text(datetime(2026, 6, 6, 6, 0, 0, 999_999, tzinfo=UTC))
    '1780725600'
    """
    return str(int(moment.replace(microsecond=0).timestamp()))


def parse_seconds(text: str) -> datetime | None:
    r"""Return the moment that such a file holds; None if it holds none.

    >>> parse_seconds("1780725600\n").isoformat(), parse_seconds("yesterday")
    ('2026-06-06T06:00:00+00:00', None)
    """
    if not _SECONDS.fullmatch(text.strip()):
        return None
    try:
        return datetime.fromtimestamp(int(text), UTC)
    except (OverflowError, ValueError, OSError):
        return None


def _file_name(*parts: str | None) -> str:
    """Return the parts of a file's name joined; none of them can lead elsewhere."""
    named = [part for part in parts if part is not None]
    assert all(map(is_id, named)), "names of members and states obey the grammar"
    return "-".join(named)


def _refusal(heading: Heading, members: dict[str, Member], file: str) -> Diagnostic | None:
    def found(code: str, message: str, fix: str, severity: Severity = Severity.ERROR) -> Diagnostic:
        return heading.found(file, code, severity, message, fix=fix)

    if not is_id(heading.name):
        return found("member-name", f"{shown(heading.name)} is not a valid member name", NAME_FIX)
    if "DEF" not in heading.props:
        # One word without any property is probably a heading of the text.
        is_text = heading.props.keys().isdisjoint(_KEYS)
        severity = Severity.WARNING if is_text else Severity.ERROR
        return found(
            "member-def", "the member has no :DEF:", "name the agent definition file", severity
        )
    if heading.name in members:
        line = members[heading.name].line
        message = f"{heading.name} is already defined at line {line}, and only that one ticks"
        return found("member-twice", message, "rename one of them")
    return None


def _member(heading: Heading, file: str) -> tuple[Member, list[Diagnostic]]:
    found: list[Diagnostic] = []
    broken: list[str] = []

    def value(key: str, understood: Callable[[str], _Value], otherwise: str) -> _Value | None:
        said = heading.props.get(key)
        if said is None:
            return None
        try:
            return understood(said)
        except DurationError as error:
            reason, fix = error.reason, f"write {error.suggestion or '10m'}"
        except ValueError:
            reason, fix = "is not valid", _EXPECTED[key]
        broken.append(f":{key}: {shown(said)} {reason}; {fix}")
        message = f":{key}: {shown(said)} {reason}; until this is corrected, {otherwise}"
        code = f"member-{key.lower()}"
        found.append(heading.found(file, code, Severity.ERROR, message, fix=fix, key=key))
        return None

    setting = "the setting applies"
    interval = value("INTERVAL", parse_cadence, "the member ticks every hour, which is the default")
    member = Member(
        heading.name,
        heading.props["DEF"],
        heading.props.get("LIFECYCLE"),
        INTERVAL if interval is None else interval,
        timeout=value("TIMEOUT", parse_duration, setting),
        mode=value("MODE", lambda said: TickMode(said.lower()), setting),
        continuous=value("CONTINUOUS", _switch, setting),
        breather=value("BREATHER", parse_cadence, setting),
        wake=value("WAKE", lambda said: Wake(said.lower()), "the definition applies"),
        requires=value("HOST", labels, "the member ticks on any node") or (),
        about=heading.body,
        line=heading.line,
        text=heading.text,
    )
    member = replace(member, broken="; ".join(broken))
    for key, length in (("INTERVAL", interval), ("BREATHER", member.breather)):
        if length is not None and length < SHORTEST:
            is_bare = heading.props[key].strip().isdecimal()
            said = ": a bare number is milliseconds" if is_bare else ""
            message = f"ticks every {format_duration(length)}{said}"
            fix = f"for minutes, write {heading.props[key]}m" if is_bare else None
            often = heading.found(file, "member-often", Severity.WARNING, message, fix=fix, key=key)
            found.append(often)
    return member, found


_EXPECTED: Final = {
    "MODE": choices(TickMode),
    "CONTINUOUS": "write true or false",
    "WAKE": choices(Wake),
    "HOST": HOST_FIX,
}


def _switch(said: str) -> bool:
    """Return whether a word means yes; raises ValueError if it means neither."""
    if said.lower() in _ON:
        return True
    if said.lower() in _OFF:
        return False
    raise ValueError
