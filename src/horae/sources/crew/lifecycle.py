"""The lifecycle of an agent: states declared in org, one tick each, and the agent's position."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import chain, repeat
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.receipt import Status
from horae.org.check import shown
from horae.org.page import NAME_FIX, Heading, headings, in_order, line_and_column, near_to
from horae.org.plan import Diagnostic, Severity, is_id
from horae.timing.duration import (
    IDLE_CAP,
    LONGEST,
    DurationError,
    delay_after,
    delay_after_failures,
    format_duration,
    parse_cadence,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

MOST_REPEATS: Final = 1_000_000  # more is a typing error
LONGEST_POSITION: Final = 256  # characters of a position's text

_MOST_GUESSES: Final = 50  # words for which a suggestion is searched
_KEYS: Final = ("KIND", "REPEAT", "NEXT", "MIN-INTERVAL", "MIN_INTERVAL")
_START: Final = re.compile(r"^\ufeff?(#\+START:[ \t]*+)([^\s]*+)", re.IGNORECASE | re.MULTILINE)
_WHOLE: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_POSITION: Final = re.compile(r"(\S++)(?:\s++([0-9]{1,9})(?![0-9]).*+)?", re.ASCII | re.DOTALL)


class StateKind(StrEnum):
    WAKE = "wake"  # run the agent
    REM = "rem"  # rest: order what happened, without a call of a model


class Outcome(StrEnum):
    DONE = "done"  # the agent found work and did it
    NO_WORK = "no_work"  # the agent looked and found none
    FAILED = "failed"  # the run ended in an error
    KILLED = "killed"  # the run exceeded its time limit, or the engine exited


@dataclass(frozen=True, slots=True)
class State:
    name: str
    next: str
    kind: StateKind = StateKind.WAKE
    repeat: int = 1
    min_interval: timedelta | None = None  # between two starts in this state
    task: str = ""  # the text below it, for the agent
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Lifecycle:
    start: str
    states: Mapping[str, State]
    file: str = field(default="-", compare=False)


@dataclass(frozen=True, slots=True)
class Position:
    """The position in a lifecycle; as text, what is written to disk: `wake_add 2`."""

    state: str
    hits: int = 0

    def __str__(self) -> str:
        return f"{self.state} {self.hits}"


def step(lifecycle: Lifecycle, position: Position, outcome: Outcome) -> Position:
    position = standing(lifecycle, position)
    state = lifecycle.states[position.state]
    match outcome:
        case Outcome.FAILED | Outcome.KILLED:
            return position
        case Outcome.DONE if position.hits + 1 < state.repeat:
            return replace(position, hits=position.hits + 1)
        case Outcome.DONE | Outcome.NO_WORK:
            return Position(state.next)


def standing(lifecycle: Lifecycle, position: Position | None) -> Position:
    """Return a position valid in the current lifecycle; an unknown state becomes the start."""
    if position is None or position.state not in lifecycle.states:
        return Position(lifecycle.start)
    most = lifecycle.states[position.state].repeat - 1  # with more hits, one repeat is left
    return position if position.hits <= most else replace(position, hits=most)


def gate(
    lifecycle: Lifecycle, position: Position, *, ran_at: datetime | None, now: datetime
) -> timedelta | None:
    """Return how long the state, last begun at *ran_at*, may not run yet; None if it may."""
    least = lifecycle.states[standing(lifecycle, position).state].min_interval
    if least is None or ran_at is None or now - ran_at >= least:
        return None
    # A last run in the future: the clock was set back, and one interval is long enough.
    return min(least, least - (now - ran_at))


def outcome_of(status: Status) -> Outcome | None:
    """Return the outcome of a tick whose receipt has this status; None if it did not run.

    >>> outcome_of(Status.INTERRUPTED), outcome_of(Status.SKIPPED)
    (<Outcome.KILLED: 'killed'>, None)
    """
    if status is Status.INTERRUPTED:
        return Outcome.KILLED
    return Outcome(status.value) if status.value in set(Outcome) else None


def parse_position(text: str) -> Position | None:
    r"""Parse a position; None if it is not valid.

    >>> parse_position("wake_add 2\n"), parse_position("rem")
    (Position(state='wake_add', hits=2), Position(state='rem', hits=0))
    >>> parse_position("wake_add two"), parse_position("\x00\x00\x00")
    (None, None)
    """
    found = _POSITION.fullmatch(text.strip()) if len(text) <= LONGEST_POSITION else None
    if found is None or not is_id(found[1]):
        return None
    return Position(found[1], int(found[2] or 0))


class TickStreaks(NamedTuple):
    streak: int = 0
    failures: int = 0

    def after(self, outcome: Outcome) -> TickStreaks:
        match outcome:
            case Outcome.DONE:
                return TickStreaks()
            case Outcome.NO_WORK:
                return TickStreaks(streak=self.streak + 1)
            case Outcome.FAILED | Outcome.KILLED:
                return TickStreaks(failures=self.failures + 1)

    def delay(self, every: timedelta) -> timedelta:
        """Return the wait before the next tick of a keeper with this interval.

        >>> TickStreaks(streak=3).delay(timedelta(seconds=45))
        datetime.timedelta(seconds=240)
        """
        return max(delay_after(every, self.streak), delay_after_failures(every, self.failures))


@dataclass(frozen=True, slots=True)
class ForecastTick:
    at: datetime
    position: Position
    kind: StateKind
    outcome: Outcome | None  # None: the gate was closed
    wait: timedelta | None  # until the gate opens
    then: Position
    rhythm: TickStreaks  # after it
    delay: timedelta  # until the next one


def predict(
    lifecycle: Lifecycle,
    position: Position | None,
    outcomes: Sequence[Outcome] = (Outcome.DONE,),
    *,
    now: datetime,
    every: timedelta,
    count: int,
) -> list[ForecastTick]:
    """Return the next ticks, the first at *now*; the last of the outcomes repeats."""
    ran: dict[str, datetime] = {}
    here, rhythm = standing(lifecycle, position), TickStreaks()
    assumed = chain(outcomes, repeat(outcomes[-1] if outcomes else Outcome.DONE))
    ticks = []
    for _ in range(count):
        kind = lifecycle.states[here.state].kind
        wait = gate(lifecycle, here, ran_at=ran.get(here.state), now=now)
        outcome, then = None, here
        if wait is None:
            outcome = next(assumed)
            ran[here.state] = now
            then, rhythm = step(lifecycle, here, outcome), rhythm.after(outcome)
        delay = rhythm.delay(every)
        ticks.append(ForecastTick(now, here, kind, outcome, wait, then, rhythm, delay))
        here, now = then, now + delay
    return ticks


class ParsedLifecycle(NamedTuple):
    lifecycle: Lifecycle | None
    diagnostics: tuple[Diagnostic, ...]


def parse_lifecycle(text: str, name: str = "-") -> ParsedLifecycle:
    r"""Parse a lifecycle; *name* is that of the file.

    >>> day = parse_lifecycle("* work\n:PROPERTIES:\n:NEXT: rest\n:END:\n* rest\n").lifecycle
    >>> day.start, day.states["work"].next, day.states["rest"].next
    ('work', 'rest', 'rest')
    """
    page, found = headings(text, name)
    named: dict[str, Heading] = {}
    for heading in page:
        if not is_id(heading.name):
            if not heading.props.keys().isdisjoint(_KEYS):
                message = f"{shown(heading.name)} is not a valid state name"
                found.append(heading.found("state-name", Severity.ERROR, message, NAME_FIX))
            continue
        if heading.name in named:
            message = f"state {heading.name} is defined twice; line {heading.line} takes effect"
            other, fix = named[heading.name], "rename one of them"
            found.append(other.found("state-twice", Severity.WARNING, message, fix))
        named[heading.name] = heading
    if not named:
        message = "no heading names a state, so there is no lifecycle"
        fix = "write each state as a top-level heading of one word"
        empty = Diagnostic(name, 1, 1, "lifecycle-empty", Severity.ERROR, message, fix)
        return ParsedLifecycle(None, in_order([*found, empty]))
    start = next(iter(named))
    said = _START.search(text)
    if said is not None and said[2] not in named:
        line, column = line_and_column(text, said.start(2))
        message = f"#+START: {said[2][:60]} is not a state; the lifecycle starts at {start},"
        message, fix = f"{message} the first state", _meant(said[2], named)
        found.append(Diagnostic(name, line, column, "start", Severity.ERROR, message, fix))
    elif said is not None:
        start = said[2]
    states: dict[str, State] = {}
    for heading in named.values():
        states[heading.name], odd = _state(heading, named, start)
        found += [*odd, *heading.oddities(_KEYS)]
    lifecycle = Lifecycle(start, states, name)
    found += _way_findings(lifecycle)
    return ParsedLifecycle(lifecycle, in_order(found))


def check_gates(lifecycle: Lifecycle, *, every: timedelta) -> list[Diagnostic]:
    [ring] = _rings(lifecycle, [lifecycle.start])
    ticks = sum(lifecycle.states[name].repeat for name in ring)
    # In seconds: a gate of a century, repeated a million times, exceeds any timedelta.
    beat = every.total_seconds()
    found = []
    for state in (lifecycle.states[name] for name in ring):
        least = (state.min_interval or timedelta()).total_seconds()
        held = (state.repeat - 1) * max(0, least - beat)  # between its repeats, and before them
        held += max(0, least - beat * (ticks - state.repeat + 1))
        if held > max(ticks * beat, IDLE_CAP.total_seconds()):
            message = (
                f":MIN-INTERVAL: {format_duration(state.min_interval or timedelta())} delays the "
                f"whole cycle: the states take {_length(ticks * beat)} at one tick every "
                f"{format_duration(every)}, then wait {_length(held)}"
            )
            fix = "shorten :MIN-INTERVAL:; ticks wait for this state and do not skip it"
            place = (lifecycle.file, state.line, 1)
            found.append(Diagnostic(*place, "gate-starves", Severity.WARNING, message, fix))
    return found


def _length(seconds: float) -> str:
    return format_duration(timedelta(seconds=min(seconds, LONGEST.total_seconds())))


def _state(
    heading: Heading, named: Mapping[str, Heading], start: str
) -> tuple[State, list[Diagnostic]]:
    found: list[Diagnostic] = []

    def odd(key: str, message: str, fix: str, code: str = "") -> None:
        code = f"state-{code or key.lower()}"
        found.append(heading.found(code, Severity.ERROR, message, fix, key))

    props = heading.props
    kind = StateKind.REM if props.get("KIND") == StateKind.REM else StateKind.WAKE
    if props.get("KIND", kind) != kind:
        said = f"{shown(props['KIND'])} is not a kind; the state is treated as wake"
        odd("KIND", said, "write wake or rem")
    repeats, is_whole = _repeat(props.get("REPEAT", "1"))
    if not is_whole:
        said = f"{shown(props['REPEAT'])} is read as {repeats}"
        odd("REPEAT", said, f"write a whole number from 1 to {MOST_REPEATS:,}")
    following = props.get("NEXT", heading.name)
    if following not in named:
        said = f"{shown(following)} is not a state; the lifecycle restarts at {start}"
        odd("NEXT", said, _meant(following, named))
        following = start
    elif following == heading.name and len(named) > 1:
        said = f"{heading.name} is never left: it leads only to itself"
        fix = "set :NEXT: to another state"
        found.append(heading.found("state-last", Severity.WARNING, said, fix))
    key = "MIN-INTERVAL" if "MIN-INTERVAL" in props else "MIN_INTERVAL"
    least = None
    if key in props:
        try:
            least = parse_cadence(props[key])
        except DurationError as error:
            fix = f"write {error.suggestion or '10m'}"
            odd(key, f"the interval is ignored: {error.reason}", fix, "gate")
    state = State(heading.name, following, kind, repeats, least, heading.body, heading.line)
    return state, found


def _repeat(text: str) -> tuple[int, bool]:
    """Return the repeats of a state, and whether the text is only that number.

    >>> _repeat("3"), _repeat("3 times"), _repeat("-2"), _repeat("often")
    ((3, True), (3, False), (1, False), (1, False))
    """
    found = _WHOLE.match(text)
    if found is None:
        return 1, False
    # int() refuses thousands of digits.
    number = int(found[0][:12])
    repeats = min(max(number, 1), MOST_REPEATS)
    return repeats, found[0] == text and repeats == number


def _way_findings(lifecycle: Lifecycle) -> Iterator[Diagnostic]:
    def found(name: str, code: str, severity: Severity, message: str, fix: str) -> Diagnostic:
        line = lifecycle.states[name].line
        return Diagnostic(lifecycle.file, line, 1, code, severity, message, fix)

    reached = set(_walk(lifecycle, lifecycle.start, set()))
    for name in lifecycle.states:
        if name not in reached:
            message = f"{name} cannot be reached from {lifecycle.start}"
            fix = "name it in the :NEXT: of another state"
            yield found(name, "state-unreachable", Severity.WARNING, message, fix)
    for ring in _rings(lifecycle, lifecycle.states):
        if all(lifecycle.states[name].kind is StateKind.REM for name in ring):
            way = " → ".join([*ring, ring[0]][:9])
            message = f"the agent is never woken again: {way} has no wake state"
            fix = "set :NEXT: to a wake state"
            yield found(ring[0], "rest-only", Severity.ERROR, message, fix)


def _walk(lifecycle: Lifecycle, name: str, seen: set[str]) -> list[str]:
    way: dict[str, None] = {}
    while name not in way and name not in seen:
        way[name] = None
        name = lifecycle.states[name].next
    return list(way)


def _rings(lifecycle: Lifecycle, starts: Iterable[str]) -> Iterator[list[str]]:
    seen: set[str] = set()
    for name in starts:
        way = _walk(lifecycle, name, seen)
        seen.update(way)
        last = lifecycle.states[way[-1]].next if way else ""
        if last in way:
            yield way[way.index(last) :]


def _meant(word: str, named: Mapping[str, Heading]) -> str:
    near = near_to(word, list(named)[:_MOST_GUESSES])
    return f"write {near}" if near else "write the name of a heading"
