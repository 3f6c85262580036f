"""An agent's day: states declared in org, one tick each, and where the agent stands.

The text owns the day; here it is only read and stepped. It is read again at every tick, so
what is not understood is as if it were not there, and a finding beside the day says so.
Crew manifests and agent definitions are pages of the same kind and share `headings`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import chain, pairwise, repeat
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.receipt import Status
from horae.org.check.finding import shown
from horae.org.document import read
from horae.org.element import bare
from horae.org.plan import Diagnostic, Severity, is_id
from horae.timing.backoff import IDLE_CAP, delay_after, delay_after_failures
from horae.timing.duration import LONGEST, DurationError, format_duration, parse_cadence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from horae.core.views import PositionData
    from horae.org.plan import Headline

MOST_HEADINGS: Final = 1_000  # of a page; nobody's day has more, and every tick reads it
MOST_REPEATS: Final = 1_000_000  # more is a slip of the finger
LONGEST_POSITION: Final = 256  # characters of a position's text

_MOST_GUESSES: Final = 50  # of words that may be meant: a message is no search engine
_KEYS: Final = ("KIND", "REPEAT", "NEXT", "MIN-INTERVAL", "MIN_INTERVAL")
_START: Final = re.compile(r"^\ufeff?(#\+START:[ \t]*+)([^\s]*+)", re.IGNORECASE | re.MULTILINE)
_WHOLE: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_POSITION: Final = re.compile(r"(\S++)(?:\s++([0-9]{1,9})(?![0-9]).*+)?", re.ASCII | re.DOTALL)
_OPEN: Final = re.compile(r"^[ \t]*+:PROPERTIES:[ \t]*+\r?\n", re.IGNORECASE | re.MULTILINE)
_END: Final = re.compile(r"^[ \t]*+:END:[ \t]*+\r?(?:\n|\Z)", re.IGNORECASE | re.MULTILINE)
_LINE: Final = re.compile(r"[^\n]*+\n?")
_PROPERTY: Final = re.compile(r"[ \t]*+:([A-Za-z][\w-]*+):[ \t]++(\S[^\n]*)", re.ASCII)


class StateKind(StrEnum):
    """What a tick does in a state."""

    WAKE = "wake"  # it wakes the agent
    REM = "rem"  # it rests: what happened is put in order, and no model is called


class Outcome(StrEnum):
    """How a tick ended."""

    DONE = "done"  # the agent found work and did it
    NO_WORK = "no_work"  # the agent looked and found none
    FAILED = "failed"  # the run ended in an error
    KILLED = "killed"  # the run outlived its wall clock, or its engine


@dataclass(frozen=True, slots=True)
class State:
    """A part of the day; `next` is always a state of the same day."""

    name: str
    next: str
    kind: StateKind = StateKind.WAKE
    repeat: int = 1
    min_interval: timedelta | None = None  # from one start in this state to the next
    task: str = ""  # what is written under it, for the agent to read
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """A day: its states in the order in which they are written, and the one it begins with."""

    start: str
    states: Mapping[str, State]
    file: str = field(default="-", compare=False)


@dataclass(frozen=True, slots=True)
class Position:
    """An agent's place in its day; as text, what is written to disk: `wake_add 2`."""

    state: str
    hits: int = 0

    def __str__(self) -> str:
        return f"{self.state} {self.hits}"


def step(lifecycle: Lifecycle, position: Position, outcome: Outcome) -> Position:
    """Return where the agent stands after a tick."""
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
    """Return where an agent stands in the day as it is written now.

    Nowhere, or in a state that is gone, is at the start. Of more hits than a state still
    asks for only one repeat is left, so that the next success goes on.
    """
    if position is None or position.state not in lifecycle.states:
        return Position(lifecycle.start)
    most = lifecycle.states[position.state].repeat - 1
    return position if position.hits <= most else replace(position, hits=most)


def gate(
    lifecycle: Lifecycle, position: Position, *, ran_at: datetime | None, now: datetime
) -> timedelta | None:
    """Return how long the state still refuses to run; None if it may.

    *ran_at* is when a run in this state last began, however it ended. A gated tick is a
    no-op: the position holds, and so does the streak.
    """
    least = lifecycle.states[standing(lifecycle, position).state].min_interval
    if least is None or ran_at is None or now - ran_at >= least:
        return None
    # A last run in the future is a clock that was set back: one interval is long enough.
    return min(least, least - (now - ran_at))


def outcome_of(status: Status) -> Outcome | None:
    """Return how a tick ended whose receipt has this status; None if it did not run.

    >>> outcome_of(Status.INTERRUPTED), outcome_of(Status.SKIPPED)
    (<Outcome.KILLED: 'killed'>, None)
    """
    if status is Status.INTERRUPTED:
        return Outcome.KILLED
    return Outcome(status.value) if status.value in set(Outcome) else None


def parse_position(text: str) -> Position | None:
    r"""Return the position that a file holds; None if it holds none.

    >>> parse_position("wake_add 2\n"), parse_position("rem")
    (Position(state='wake_add', hits=2), Position(state='rem', hits=0))
    >>> parse_position("wake_add two"), parse_position("\x00\x00\x00")
    (None, None)
    """
    found = _POSITION.fullmatch(text.strip()) if len(text) <= LONGEST_POSITION else None
    if found is None or not is_id(found[1]):
        return None
    return Position(found[1], int(found[2] or 0))


def position_data(lifecycle: Lifecycle, position: Position | None) -> PositionData:
    """Return where an agent is in its day, as a status shows it."""
    here = standing(lifecycle, position)
    state = lifecycle.states[here.state]
    return {
        "state": here.state,
        "hits": here.hits,
        "next_state": state.next,
        "kind": state.kind.value,
    }


class TickStreaks(NamedTuple):
    """How many ticks in a row found no work, and how many ended badly."""

    streak: int = 0
    failures: int = 0

    def after(self, outcome: Outcome) -> TickStreaks:
        """Return the rhythm after one more tick; a gated one leaves it as it is."""
        match outcome:
            case Outcome.DONE:
                return TickStreaks()
            case Outcome.NO_WORK:
                return TickStreaks(streak=self.streak + 1)
            case Outcome.FAILED | Outcome.KILLED:
                return TickStreaks(failures=self.failures + 1)

    def delay(self, every: timedelta) -> timedelta:
        """Return the wait before the next tick of a keeper that ticks this often.

        >>> TickStreaks(streak=3).delay(timedelta(seconds=45))
        datetime.timedelta(seconds=240)
        """
        return max(delay_after(every, self.streak), delay_after_failures(every, self.failures))


STEADY: Final = TickStreaks()


@dataclass(frozen=True, slots=True)
class ForecastTick:
    """A tick to come, if those before it end as was assumed."""

    at: datetime
    position: Position
    kind: StateKind
    outcome: Outcome | None  # None is a tick that the gate turned away
    wait: timedelta | None  # until the gate would open
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
    rhythm: TickStreaks = STEADY,
    ran_at: Mapping[str, datetime] | None = None,
) -> list[ForecastTick]:
    """Return the next ticks, the first at *now*, each as if its run ended at once.

    Each tick that runs ends in the next of the outcomes, and when they are used up in the
    last of them. *ran_at* says when each state last ran.
    """
    ran = dict(ran_at or {})
    here = standing(lifecycle, position)
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
    """The day that a text declares, and what is odd about it; None if it has no state."""

    lifecycle: Lifecycle | None
    diagnostics: tuple[Diagnostic, ...]


def parse_lifecycle(text: str, name: str = "-") -> ParsedLifecycle:
    r"""Return the day that a text declares; *name* is what the file is called.

    >>> day = parse_lifecycle("* work\n:PROPERTIES:\n:NEXT: rest\n:END:\n* rest\n").lifecycle
    >>> day.start, day.states["work"].next, day.states["rest"].next
    ('work', 'rest', 'rest')
    """
    page, found = headings(text, name)
    found += _name_findings(page, name)
    named: dict[str, Heading] = {}
    for heading in page:
        if is_id(heading.name):
            if heading.name in named:
                message = f"state {heading.name} is defined twice; line {heading.line} takes effect"
                fix = "rename one of them"
                found.append(
                    named[heading.name].found(
                        name, "state-twice", Severity.WARNING, message, fix=fix
                    )
                )
            named[heading.name] = heading
    if not named:
        message = "no heading names a state, so there is no lifecycle"
        fix = "write each state as a top-level heading of one word"
        empty = Diagnostic(name, 1, 1, "lifecycle-empty", Severity.ERROR, message, fix)
        return ParsedLifecycle(None, _sorted([*found, empty]))
    start, odd = _start(text, named, name)
    found += odd
    states: dict[str, State] = {}
    for heading in named.values():
        state, odd = _state(heading, named, start, name)
        states[heading.name] = state
        found += [*odd, *heading.oddities(name, _KEYS)]
    lifecycle = Lifecycle(start, states, name)
    found += _way_findings(lifecycle)
    return ParsedLifecycle(lifecycle, _sorted(found))


def check_gates(lifecycle: Lifecycle, *, every: timedelta) -> list[Diagnostic]:
    """Return the gates that hold a day for longer than the rest of it takes.

    A gated state is waited for, not passed over. Whoever wants "at most once a day" of one
    state and hourly work of the others gets a day that stands still.
    """
    ring = _ring(lifecycle, lifecycle.start)
    ticks = sum(lifecycle.states[name].repeat for name in ring)
    # In seconds: a gate of a century, repeated a million times, is longer than any timedelta.
    beat = every.total_seconds()
    found = []
    for state in (lifecycle.states[name] for name in ring):
        held = _held(state, ticks, beat)
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


def _held(state: State, ticks: int, beat: float) -> float:
    """Return how many seconds of each round of *ticks* the gate of a state is waited for."""
    if state.min_interval is None:
        return 0
    least = state.min_interval.total_seconds()
    among_repeats = (state.repeat - 1) * max(0, least - beat)
    return among_repeats + max(0, least - beat * (ticks - state.repeat + 1))


def _length(seconds: float) -> str:
    """Return seconds as a length of time, cut at the longest we know."""
    return format_duration(timedelta(seconds=min(seconds, LONGEST.total_seconds())))


def _state(
    heading: Heading, named: Mapping[str, Heading], start: str, file: str
) -> tuple[State, list[Diagnostic]]:
    """Return the state that a heading declares, and which of its properties say nothing."""
    found: list[Diagnostic] = []

    def odd(key: str, message: str, fix: str) -> None:
        place = heading.found(
            file, f"state-{_CODES[key]}", Severity.ERROR, message, fix=fix, key=key
        )
        found.append(place)

    props = heading.props
    kind = StateKind.REM if props.get("KIND") == StateKind.REM else StateKind.WAKE
    if props.get("KIND", kind) != kind:
        odd(
            "KIND",
            f"{shown(props['KIND'])} is not a kind; the state is treated as wake",
            "write wake or rem",
        )
    repeats, is_whole = _repeat(props.get("REPEAT", "1"))
    if not is_whole:
        message = f"{shown(props['REPEAT'])} is read as {repeats}"
        odd("REPEAT", message, f"write a whole number from 1 to {MOST_REPEATS:,}")
    following = props.get("NEXT", heading.name)
    if following not in named:
        message = f"{shown(following)} is not a state; the lifecycle restarts at {start}"
        odd("NEXT", message, _meant(following, named))
        following = start
    elif following == heading.name and len(named) > 1:
        message, fix = (
            f"{heading.name} is never left: it leads only to itself",
            "set :NEXT: to another state",
        )
        found.append(heading.found(file, "state-last", Severity.WARNING, message, fix=fix))
    key = "MIN-INTERVAL" if "MIN-INTERVAL" in props else "MIN_INTERVAL"
    least = None
    if key in props:
        try:
            least = parse_cadence(props[key])
        except DurationError as error:
            odd(
                key,
                f"the interval is ignored: {error.reason}",
                f"write {error.suggestion or '10m'}",
            )
    state = State(heading.name, following, kind, repeats, least, heading.body, heading.line)
    return state, found


_CODES: Final = {
    "KIND": "kind",
    "REPEAT": "repeat",
    "NEXT": "next",
    "MIN-INTERVAL": "gate",
    "MIN_INTERVAL": "gate",
}


def _repeat(text: str) -> tuple[int, bool]:
    """Return how often a state is repeated, and whether the text says just that.

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


def _start(text: str, named: Mapping[str, Heading], file: str) -> tuple[str, list[Diagnostic]]:
    """Return the state that the day begins with, and what is wrong with `#+START:`."""
    first = next(iter(named))
    said = _START.search(text)
    if said is None or said[2] in named:
        return (said[2] if said else first), []
    line, column = _line_and_column(text, said.start(2))
    message = f"#+START: {said[2][:60]} is not a state; the lifecycle starts at {first}, the first"
    fix = _meant(said[2], named)
    return first, [Diagnostic(file, line, column, "start", Severity.ERROR, message, fix)]


def _way_findings(lifecycle: Lifecycle) -> Iterator[Diagnostic]:
    """Yield the states that are never reached, and rings of rest alone."""

    def found(name: str, code: str, severity: Severity, message: str, fix: str) -> Diagnostic:
        line = lifecycle.states[name].line
        return Diagnostic(lifecycle.file, line, 1, code, severity, message, fix)

    reached = _walk(lifecycle, lifecycle.start, set())
    for name in lifecycle.states:
        if name not in reached:
            message = f"{name} cannot be reached from {lifecycle.start}"
            fix = "name it in the :NEXT: of another state"
            yield found(name, "state-unreachable", Severity.WARNING, message, fix)
    for ring in _rings(lifecycle):
        if all(lifecycle.states[name].kind is StateKind.REM for name in ring):
            way = " → ".join([*ring, ring[0]][:9])
            message = f"the agent is never woken again: {way} has no wake state"
            fix = "set :NEXT: to a wake state"
            yield found(ring[0], "rest-only", Severity.ERROR, message, fix)


def _walk(lifecycle: Lifecycle, name: str, seen: set[str]) -> dict[str, int]:
    """Return the states from one on, each with its place, up to one that was seen before."""
    way: dict[str, int] = {}
    while name not in way and name not in seen:
        way[name] = len(way)
        name = lifecycle.states[name].next
    return way


def _ring(lifecycle: Lifecycle, name: str) -> list[str]:
    """Return the states that are gone through again and again, from one on."""
    way = _walk(lifecycle, name, set())
    last = lifecycle.states[list(way)[-1]].next
    return list(way)[way[last] :]


def _rings(lifecycle: Lifecycle) -> Iterator[list[str]]:
    seen: set[str] = set()
    for name in lifecycle.states:
        way = _walk(lifecycle, name, seen)
        seen.update(way)
        last = lifecycle.states[list(way)[-1]].next if way else ""
        if last in way:
            yield list(way)[way[last] :]


def _name_findings(page: Sequence[Heading], file: str) -> Iterator[Diagnostic]:
    """Yield the headings that look like states and cannot be, as their name is none."""
    for heading in page:
        if not is_id(heading.name) and not heading.props.keys().isdisjoint(_KEYS):
            message = f"{shown(heading.name)} is not a valid state name"
            yield heading.found(file, "state-name", Severity.ERROR, message, fix=NAME_FIX)


NAME_FIX: Final = "write one word of at most 64 letters, digits, dots, _ and -"


class Heading(NamedTuple):
    """A heading with what stands below it.

    Its drawer is read leniently: it may stand anywhere before the first heading inside, and
    a line that is no property is passed over.
    """

    name: str  # the title without tags
    tags: tuple[str, ...]
    line: int
    text: str
    body: str  # without the heading and its drawer
    props: Mapping[str, str]
    places: Mapping[str, tuple[int, int]]  # line and column of each value
    passed: tuple[tuple[int, int, str], ...]  # line, column and reason of what is not read

    def found(
        self,
        file: str,
        code: str,
        severity: Severity,
        message: str,
        *,
        fix: str | None = None,
        key: str = "",
    ) -> Diagnostic:
        """Return a finding at the value of a property, or at the heading itself."""
        line, column = self.places.get(key, (self.line, 1))
        return Diagnostic(file, line, column, code, severity, message, fix)

    def oddities(self, file: str, known: Sequence[str]) -> Iterator[Diagnostic]:
        """Yield what is not read in the drawer, and properties that are nearly known ones."""
        for line, column, reason in self.passed:
            yield Diagnostic(file, line, column, "drawer-line", Severity.WARNING, reason, _KEYED)
        for key in [key for key in self.props if key not in known][:_MOST_GUESSES]:
            near = _near(key, known)
            if near is not None:
                message = f":{key}: is ignored"
                fix = f"did you mean :{near}:?"
                yield self.found(file, "property-typo", Severity.WARNING, message, fix=fix, key=key)


_KEYED: Final = "write one :KEY: value per line, and :END: after the last"


def headings(text: str, file: str) -> tuple[list[Heading], list[Diagnostic]]:
    """Return the headings of one star, each with all that is below it, and a finding if too many.

    They stand in the order of the page.
    """
    plan = read(text)
    tops = [index for index, headline in enumerate(plan.headlines) if headline.level == 1]
    places = plan.places()
    found = []
    for index, end in pairwise([*tops, len(plan.headlines)][: MOST_HEADINGS + 1]):
        below = "".join(each.text for each in plan.headlines[index + 1 : end])
        found.append(heading_of(plan.headlines[index], places[index].line, below))
    if len(tops) <= MOST_HEADINGS:
        return found, []
    line = places[tops[MOST_HEADINGS]].line
    message = f"there are {len(tops):,} headings; those from here on are ignored"
    fix = f"use at most {MOST_HEADINGS:,} top-level headings"
    return found, [Diagnostic(file, line, 1, "page-large", Severity.ERROR, message, fix)]


def heading_of(headline: Headline, line: int, below: str = "") -> Heading:
    """Return a headline as a heading, its drawer read and taken out of its body."""
    own = headline.text
    name = " ".join(filter(None, [headline.state, headline.title]))
    start = own.find("\n") + 1 or len(own)
    clear = bare(own, start)
    opening = _OPEN.search(clear, start)
    closing = _END.search(clear, opening.end()) if opening else None
    props: dict[str, str] = {}
    places: dict[str, tuple[int, int]] = {}
    passed: list[tuple[int, int, str]] = []
    body = own[start:] + below
    if opening is not None and closing is None:
        row, column = _line_and_column(own, opening.start())
        passed.append((line + row - 1, column, "the drawer has no :END: and is ignored"))
    elif opening is not None and closing is not None:
        body = own[start : opening.start()] + own[closing.end() :] + below
        row = line + own.count("\n", 0, opening.end())
        for written in _LINE.findall(own[opening.end() : closing.start()]):
            said = _PROPERTY.match(written)
            if said is not None:
                key = said[1].upper()
                props[key] = said[2].rstrip()
                places[key] = (row, said.start(2) + 1)
            elif written.strip():
                passed.append(
                    (row, 1, f"{shown(written.strip())} is not a property and is ignored")
                )
            row += 1
    text = own + below
    return Heading(name, headline.tags, line, text, body.strip(), props, places, tuple(passed))


def _line_and_column(text: str, at: int) -> tuple[int, int]:
    return text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1


def _near(word: str, known: Sequence[str]) -> str | None:
    from difflib import get_close_matches  # only for messages

    return next(iter(get_close_matches(word[:64], known, n=1, cutoff=0.75)), None)


def _meant(word: str, named: Mapping[str, Heading]) -> str:
    """Return what to write instead of a name that is no state."""
    near = _near(word, list(named)[:_MOST_GUESSES])
    return f"write {near}" if near else "write the name of a heading"


def _sorted(found: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Return findings in the order of their places."""
    return tuple(sorted(found, key=lambda each: (each.line, each.column, each.code)))
