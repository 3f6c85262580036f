"""The crew manifest, in which each heading is an agent; the plan and the memory of a tick."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from horae.core.agent import SWITCH
from horae.core.budget import FIX as BUDGET_FIX, parse_budget
from horae.core.entry import HOST_FIX, Wake, key_time, labels
from horae.core.ports import as_table, as_text, read_json
from horae.core.source import is_entry
from horae.core.views import AgentPosition, AgentState
from horae.org.check import shown
from horae.org.page import NAME_FIX, Heading, choices, headings, in_order
from horae.org.plan import Diagnostic, Severity, is_id
from horae.sources.crew import lifecycle as days
from horae.timing.duration import DurationError, format_duration, parse_cadence, parse_duration
from horae.timing.zone import Rfc3339Error, parse_rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from horae.core.receipt import Status

INTERVAL: Final = timedelta(hours=1)  # of a member without one
SHORTEST: Final = timedelta(seconds=10)  # a shorter interval is probably a mistake
STAGGER: Final = timedelta(seconds=30)  # between the first ticks of two members

_OWN_KEYS: Final = (
    "DEF", "LIFECYCLE", "INTERVAL", "MODE", "CONTINUOUS", "BREATHER", "WAKE", "ROLES",
)  # fmt: skip
_KEYS: Final = (*_OWN_KEYS, "TIMEOUT", "HOST", "BUDGET")  # also properties of plan entries
_BETWEEN: Final = re.compile(r"[\s,]+")
_SECONDS: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
_Value = TypeVar("_Value")


class TickMode(StrEnum):
    PLAN = "plan"
    EDIT = "edit"


@dataclass(frozen=True, slots=True)
class Member:
    """An agent of a crew; None means the value of the settings or the definition."""

    name: str
    definition: str
    lifecycle: str | None = None
    interval: timedelta = INTERVAL
    timeout: timedelta | None = None
    mode: TickMode | None = None
    continuous: bool | None = None
    breather: timedelta | None = None
    wake: Wake | None = None
    requires: tuple[str, ...] = ()  # labels of the node for its ticks
    budget: str = ""
    roles: tuple[str, ...] = ()  # of the tasks that it gets
    line: int = 0
    text: str = ""  # the heading with everything below it
    broken: str = field(default="", compare=False)  # why a property cannot be read

    def every(self, *, continuous: bool, breather: timedelta) -> timedelta:
        """Return the wait after a tick that found work; the arguments are the settings."""
        is_continuous = continuous if self.continuous is None else self.continuous
        return (self.breather or breather) if is_continuous else self.interval


class Crew(NamedTuple):
    members: tuple[Member, ...]
    idlers: tuple[tuple[str, Diagnostic], ...]  # names, each with why it does not tick
    diagnostics: tuple[Diagnostic, ...]


def parse_crew(text: str, file: str = "-") -> Crew:
    r"""Parse a manifest; an unreadable value becomes a finding, and is left out.

    >>> crew = parse_crew("* wren\n:PROPERTIES:\n:DEF: wren.org\n:INTERVAL: 10m\n:END:\n* moss\n")
    >>> [(member.name, str(member.interval)) for member in crew.members]
    [('wren', '0:10:00')]
    >>> crew.idlers[0][1].message
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
        is_text = heading.props.keys().isdisjoint(_KEYS)  # perhaps a heading of other text
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
        idlers.append((heading.name, found[-1]))
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
    return _file_name("lifecycle-ran", name, state)


def seconds_text(moment: datetime) -> str:
    return str(int(moment.replace(microsecond=0).timestamp()))


def parse_seconds(text: str) -> datetime | None:
    r"""Parse the time in such a file; None if it is not valid.

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


MOST_CARRIED: Final = 4000  # characters
MOST_SAID: Final = 500  # characters of a trouble


@dataclass(frozen=True, slots=True)
class AgentMemory:
    position: days.Position | None = None
    kind: str = ""  # of its state at the last tick
    following: str = ""  # the next state
    last_run_at: datetime | None = None  # when it last ticked
    woken_at: datetime | None = None  # when it last ran
    began: Mapping[str, datetime] = field(default_factory=dict)  # the last start of each state
    rested_at: datetime | None = None
    carry: str = ""
    troubles: Mapping[str, str] = field(default_factory=dict)  # what a user must resolve, and why
    mirrors: Mapping[str, str] = field(
        default_factory=dict
    )  # file -> our last text, and the one before


class Beat(StrEnum):
    WAKE = "wake"  # the agent runs
    REST = "rest"  # no model is called; what happened is written down
    GATED = "gated"  # too early for this state: nothing changes
    ASLEEP = "asleep"  # nothing is due, and the agent runs only then


_LEFT: Final = "left on "  # prefix of such a trouble, before the name of a node
_STILL: Final = frozenset({Beat.GATED, Beat.ASLEEP})


class TickPlan(NamedTuple):
    beat: Beat
    state: days.State | None = None
    reason: str = ""


def tick(
    lifecycle: days.Lifecycle | None, memory: AgentMemory, *, now: datetime, sleeps: bool = False
) -> TickPlan:
    state = None
    if lifecycle is not None:
        here = days.standing(lifecycle, memory.position)
        state = lifecycle.states[here.state]
        wait = days.gate(lifecycle, here, ran_at=memory.began.get(here.state), now=now)
        if wait is not None:
            left = format_duration(timedelta(seconds=max(1, round(wait.total_seconds()))))
            return TickPlan(Beat.GATED, state, f"{here.state} may begin again in {left}")
        if state.kind is days.StateKind.REM:
            return TickPlan(Beat.REST, state)
    if sleeps:
        return TickPlan(Beat.ASLEEP, state, "nothing is due, ready or claimed")
    return TickPlan(Beat.WAKE, state)


def begun(memory: AgentMemory, made: TickPlan, *, now: datetime) -> AgentMemory:
    if made.beat in _STILL:
        return replace(memory, last_run_at=now)
    began = memory.began if made.state is None else {**memory.began, made.state.name: now}
    woken_at = now if made.beat is Beat.WAKE else memory.woken_at
    return replace(memory, last_run_at=now, woken_at=woken_at, began=began)


def ended(
    memory: AgentMemory,
    beat: Beat,
    lifecycle: days.Lifecycle | None,
    status: Status,
    *,
    now: datetime,
) -> AgentMemory:
    if lifecycle is None:
        return replace(memory, kind="", following="")
    outcome = days.outcome_of(status)
    here = days.standing(lifecycle, memory.position)
    if outcome is not None and beat not in _STILL:
        here = days.step(lifecycle, here, outcome)
        memory = replace(memory, rested_at=now if beat is Beat.REST else memory.rested_at)
    began = {name: at for name, at in memory.began.items() if name in lifecycle.states}
    return _at(replace(memory, began=began), lifecycle, here)


def going(memory: AgentMemory, lifecycle: days.Lifecycle | None, *, now: datetime) -> AgentMemory:
    """Return the memory of an agent during its run; the gate of its state is unchanged."""
    memory = replace(memory, last_run_at=now, kind="", following="")
    return memory if lifecycle is None else _at(memory, lifecycle, memory.position)


def _at(
    memory: AgentMemory, lifecycle: days.Lifecycle, position: days.Position | None
) -> AgentMemory:
    here = days.standing(lifecycle, position)
    state = lifecycle.states[here.state]
    return replace(memory, position=here, kind=state.kind, following=state.next)


def agent_state(text: str) -> AgentState:
    memory = read_memory(text)
    position: AgentPosition | None = None
    if memory.position is not None and memory.kind:
        here, following = memory.position, memory.following
        position = AgentPosition(
            state=here.state, hits=here.hits, next_state=following, kind=memory.kind
        )
    return AgentState(memory.last_run_at, position, memory.troubles)


class TakenOver(NamedTuple):
    memory: AgentMemory
    edited: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()


def state_files(lifecycle: days.Lifecycle, name: str | None) -> list[str]:
    return [position_file(name), *(ran_file(state, name) for state in lifecycle.states)]


def take_over(
    memory: AgentMemory, lifecycle: days.Lifecycle, texts: Mapping[str, str], *, name: str | None
) -> TakenOver:
    """Return the memory after reading its files; valid texts that are not ours count."""
    edited: list[str] = []
    bad: list[str] = []
    mirrors = dict(memory.mirrors)

    def is_news(file: str, understood: object) -> bool:
        if file not in texts or _is_ours(memory, file, texts[file]):
            return False
        (bad if understood is None else edited).append(file)
        if understood is not None:
            mirrors[file] = _flat(texts[file])  # from now on this text is known
        return understood is not None

    file = position_file(name)
    position = days.parse_position(texts.get(file, ""))
    if position is not None and position.state not in lifecycle.states:
        position = None
    place = position if is_news(file, position) else memory.position
    began = dict(memory.began)
    for state in lifecycle.states:
        file = ran_file(state, name)
        at = parse_seconds(texts.get(file, ""))
        if is_news(file, at) and at is not None:
            began[state] = at
    after = replace(memory, position=place, began=began, mirrors=mirrors)
    return TakenOver(after, tuple(edited), tuple(bad))


def mirrored(memory: AgentMemory, *, name: str | None) -> AgentMemory:
    """Return the memory with the texts of its files; after a crash one may have the old text."""
    texts = {ran_file(state, name): seconds_text(at) for state, at in memory.began.items()}
    if memory.position is not None:
        texts[position_file(name)] = str(memory.position)
    old = {file: text.partition("\n")[0] for file, text in memory.mirrors.items()}
    mirrors = {file: f"{text}\n{old.get(file, '')}" for file, text in texts.items()}
    return replace(memory, mirrors=mirrors)


def may_mirror(memory: AgentMemory, file: str, found: str | None) -> bool:
    """Return whether a file may be overwritten: a user's edit is kept."""
    if found is None or _is_ours(memory, file, found):
        return True
    return days.parse_position(found) is None and parse_seconds(found) is None


def _is_ours(memory: AgentMemory, file: str, text: str) -> bool:
    return _flat(text) in memory.mirrors.get(file, "").split("\n")


def _flat(text: str) -> str:
    return " ".join(text.split())


def left_on(machine: str) -> str:
    return f"{_LEFT}{machine}"


def machine_left(trouble: str) -> str | None:
    return trouble.removeprefix(_LEFT) if trouble.startswith(_LEFT) else None


_TIMES: Final = {"last_run_at": "last_run", "woken_at": "woken", "rested_at": "rested"}


def read_memory(text: str) -> AgentMemory:
    data = read_json(text, dict) or {}
    began = {name: _moment(value) for name, value in _named(data.get("began")).items()}
    return AgentMemory(
        days.parse_position(as_text(data.get("position"))),
        as_text(data.get("kind")),
        as_text(data.get("following")),
        began={name: at for name, at in began.items() if at is not None},
        carry=as_text(data.get("carry"))[:MOST_CARRIED],
        troubles=_named(data.get("troubles")),
        mirrors=_named(data.get("mirrors")),
        **{name: _moment(data.get(key)) for name, key in _TIMES.items()},
    )


def write_memory(memory: AgentMemory) -> str:
    times = {key: getattr(memory, name) for name, key in _TIMES.items()}
    data = {
        "position": None if memory.position is None else str(memory.position),
        "kind": memory.kind,
        "following": memory.following,
        "began": {name: key_time(at) for name, at in memory.began.items()},
        "carry": memory.carry[:MOST_CARRIED],
        "troubles": {name: why[:MOST_SAID] for name, why in memory.troubles.items()},
        "mirrors": dict(memory.mirrors),
        **{key: key_time(at) for key, at in times.items() if at is not None},
    }
    return json.dumps({name: value for name, value in data.items() if value}, sort_keys=True)


def read_note(text: str, lifecycle: days.Lifecycle | None) -> tuple[TickPlan, AgentMemory] | None:
    data = read_json(text, dict) or {}
    try:
        beat = Beat(as_text(data.get("beat")))
    except ValueError:
        return None
    state = None if lifecycle is None else lifecycle.states.get(as_text(data.get("state")))
    plan = TickPlan(beat, state, as_text(data.get("reason")))
    return plan, read_memory(as_text(data.get("memory")))


def write_note(made: TickPlan, memory: AgentMemory) -> str:
    """Return the note of a tick as one line, which is stored with its run for a crash.

    >>> read_note(write_note(TickPlan(Beat.REST, reason="quiet"), AgentMemory()), None)[0].reason
    'quiet'
    """
    state = "" if made.state is None else made.state.name
    facts = {"beat": made.beat, "state": state, "reason": made.reason}
    return json.dumps({**facts, "memory": write_memory(memory)})


def _named(value: object) -> dict[str, str]:
    return {str(name): text for name, text in as_table(value).items() if isinstance(text, str)}


def _moment(value: object) -> datetime | None:
    try:
        return parse_rfc3339(as_text(value)).astimezone(UTC)
    except (Rfc3339Error, OverflowError):
        return None
