"""The crew manifest, in which each heading is an agent, and the files of an agent's times."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from horae.core.agent import SWITCH
from horae.core.budget import FIX as BUDGET_FIX, parse_budget
from horae.core.entry import HOST_FIX, Wake, labels
from horae.core.headline import is_entry
from horae.org.check import shown
from horae.org.page import NAME_FIX, Heading, choices, headings, in_order
from horae.org.plan import Diagnostic, Severity, is_id
from horae.timing.duration import DurationError, format_duration, parse_cadence, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable

INTERVAL: Final = timedelta(hours=1)  # of a member that names none
SHORTEST: Final = timedelta(seconds=10)  # a rhythm faster than this is probably not meant
STAGGER: Final = timedelta(seconds=30)  # between the first ticks of two members

_OWN_KEYS: Final = (
    "DEF", "LIFECYCLE", "INTERVAL", "MODE", "CONTINUOUS", "BREATHER", "WAKE", "ROLES",
)  # fmt: skip
_KEYS: Final = (*_OWN_KEYS, "TIMEOUT", "HOST", "BUDGET")  # entries of plans have these as well
_BETWEEN: Final = re.compile(r"[\s,]+")
_SECONDS: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
_Value = TypeVar("_Value")


class TickMode(StrEnum):
    PLAN = "plan"
    EDIT = "edit"


@dataclass(frozen=True, slots=True)
class Member:
    """An agent of a crew; what is None is as the settings or the definition have it."""

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
    budget: str = ""
    roles: tuple[str, ...] = ()  # of the tasks that it gets
    line: int = 0
    text: str = ""  # the heading with all that is below it, as it stands
    broken: str = field(default="", compare=False)  # why a property cannot be read, if one cannot

    def every(self, *, continuous: bool, breather: timedelta) -> timedelta:
        """Return the wait after a tick that found work; the arguments are the settings."""
        is_continuous = continuous if self.continuous is None else self.continuous
        return (self.breather or breather) if is_continuous else self.interval


class Idler(NamedTuple):
    name: str
    line: int
    reason: str
    fix: str


class Crew(NamedTuple):
    members: tuple[Member, ...]
    idlers: tuple[Idler, ...]
    diagnostics: tuple[Diagnostic, ...]


def parse_crew(text: str, file: str = "-") -> Crew:
    r"""Return the crew of a manifest; a value that cannot be read is a finding, and not there.

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
        if "DEF" not in heading.props and is_entry(heading):
            is_meant = not heading.props.keys().isdisjoint(_OWN_KEYS)
            if is_meant or is_id(heading.name):
                found.append(_not_a_member(heading, is_meant=is_meant))
            continue
        is_text = heading.props.keys().isdisjoint(_KEYS)  # maybe a heading of the text around
        if is_text and not is_id(heading.name):
            continue
        found += heading.oddities(_KEYS)
        error: tuple[str, Severity, str, str]
        if not is_id(heading.name):
            message = f"{shown(heading.name)} is not a valid member name"
            error = ("member-name", Severity.ERROR, message, NAME_FIX)
        elif "DEF" not in heading.props:
            severity = Severity.WARNING if is_text else Severity.ERROR
            message, fix = "the member has no :DEF:", "name the agent definition file"
            error = ("member-def", severity, message, fix)
        elif heading.name in members:
            line = members[heading.name].line
            message = f"{heading.name} is already defined at line {line}, and only that one ticks"
            error = ("member-twice", Severity.ERROR, message, "rename one of them")
        else:
            members[heading.name], odd = _member(heading)
            found += odd
            if is_entry(heading):
                message = "the heading is an agent and also an entry of the plan"
                fix = "write the command in the definition, or give the entry its own heading"
                found.append(heading.found("member-entry", Severity.WARNING, message, fix))
            continue
        found.append(heading.found(*error))
        idlers.append(Idler(heading.name, heading.line, message, error[3]))
    return Crew(tuple(members.values()), tuple(idlers), in_order(found))


def _not_a_member(heading: Heading, *, is_meant: bool) -> Diagnostic:
    severity = Severity.ERROR if is_meant else Severity.WARNING
    message = "the heading has no :DEF:, so it is an entry of the plan and not an agent"
    fix = "for an agent, name its definition file in :DEF:, and write the command in that file"
    return heading.found("member-def", severity, message, fix)


def last_run_file(name: str | None = None) -> str:
    return _file_name("keeper-last-run", name)


def position_file(name: str | None = None) -> str:
    return _file_name("lifecycle-pos", name)


def ran_file(state: str, name: str | None = None) -> str:
    """Return the name of the file with the time at which a state last began.

    >>> ran_file("rem"), ran_file("rem", "wren")
    ('lifecycle-ran-rem', 'lifecycle-ran-wren-rem')
    """
    return _file_name("lifecycle-ran", name, state)


def seconds_text(moment: datetime) -> str:
    return str(int(moment.replace(microsecond=0).timestamp()))


def parse_seconds(text: str) -> datetime | None:
    r"""Return the time that such a file holds; None if it holds none.

    >>> parse_seconds("1780725600\n").isoformat(), parse_seconds("yesterday")
    ('2026-06-06T06:00:00+00:00', None)
    """
    if not _SECONDS.fullmatch(text.strip()):
        return None
    try:
        return datetime.fromtimestamp(int(text), UTC)
    except (OverflowError, ValueError, OSError):
        return None


def budget_text(text: str) -> str:
    parse_budget(text, "UTC")
    return text


def _file_name(*parts: str | None) -> str:
    named = [part for part in parts if part is not None]
    assert all(map(is_id, named)), "names of members and states obey the grammar"
    return "-".join(named)


def _member(heading: Heading) -> tuple[Member, list[Diagnostic]]:
    found: list[Diagnostic] = []
    broken: list[str] = []

    def value(
        key: str,
        understood: Callable[[str], _Value],
        otherwise: str = "the setting applies",
        expected: str = "",
    ) -> _Value | None:
        said = heading.props.get(key)
        if said is None:
            return None
        try:
            return understood(said)
        except DurationError as error:
            reason, fix = error.reason, f"write {error.suggestion or '10m'}"
        except (ValueError, KeyError):
            reason, fix = "is not valid", expected
        broken.append(f":{key}: {shown(said)} {reason}; {fix}")
        message = f":{key}: {shown(said)} {reason}; until this is corrected, {otherwise}"
        found.append(heading.found(f"member-{key.lower()}", Severity.ERROR, message, fix, key))
        return None

    interval = value("INTERVAL", parse_cadence, "the member ticks every hour, which is the default")
    breather = value("BREATHER", parse_cadence)
    modes, wakes = choices(TickMode), choices(Wake)
    member = Member(
        heading.name,
        heading.props["DEF"],
        heading.props.get("LIFECYCLE"),
        INTERVAL if interval is None else interval,
        timeout=value("TIMEOUT", parse_duration),
        mode=value("MODE", lambda said: TickMode(said.lower()), expected=modes),
        continuous=value(
            "CONTINUOUS", lambda said: SWITCH[said.lower()], expected="write true or false"
        ),
        breather=breather,
        wake=value("WAKE", lambda said: Wake(said.lower()), "the definition applies", wakes),
        requires=value("HOST", labels, "the member ticks on any node", HOST_FIX) or (),
        budget=value("BUDGET", budget_text, "nothing limits what it spends", BUDGET_FIX) or "",
        roles=tuple(filter(None, _BETWEEN.split(heading.props.get("ROLES", "")))),
        line=heading.line,
        text=heading.text,
    )
    for key, length in (("INTERVAL", interval), ("BREATHER", breather)):
        if length is not None and length < SHORTEST:
            is_bare = heading.props[key].strip().isdecimal()
            said = ": a bare number is milliseconds" if is_bare else ""
            message = f"ticks every {format_duration(length)}{said}"
            fix = f"for minutes, write {heading.props[key]}m" if is_bare else None
            found.append(heading.found("member-often", Severity.WARNING, message, fix, key))
    return replace(member, broken="; ".join(broken)), found
