"""The keeper: what one tick of an agent does, and what the agent remembers after it.

A tick consults the day as it is written now. The state may still be shut by its gate, may be
a rest, or wakes the agent, unless it sleeps until something is due and nothing is. What it
remembers moves with the outcome: where it stands, when each gated state last began, what to
carry on, and what the files said that mirror all this.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.rules.entry import key_time
from horae.rules.lifecycle import Kind, Position, gate, outcome_of, parse_position, standing, step
from horae.timing.duration import format_duration
from horae.timing.rfc3339 import Rfc3339Error, parse_rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping

    from horae.rules.lifecycle import Lifecycle, State
    from horae.rules.misfire import Status

MOST_CARRIED: Final = 4000  # characters


@dataclass(frozen=True, slots=True)
class Memory:
    """What an agent carries from one tick to the next."""

    position: Position | None = None
    last_run_at: datetime | None = None
    began: Mapping[str, datetime] = field(default_factory=dict)  # each state's last start
    rested_at: datetime | None = None
    carry: str = ""
    mirrors: Mapping[str, str] = field(default_factory=dict)  # file -> the text we wrote last


class Beat(StrEnum):
    """What a tick does."""

    WAKE = "wake"  # the agent runs
    REST = "rest"  # no model is called; what happened is written down
    GATED = "gated"  # too early for this state: nothing happens, nothing changes
    ASLEEP = "asleep"  # nothing is due, and the agent only wakes for that


class Tick(NamedTuple):
    """What a tick does, in which state of the day, and why if it does nothing."""

    beat: Beat
    state: State | None = None
    reason: str = ""


def tick(
    lifecycle: Lifecycle | None, memory: Memory, *, now: datetime, sleeps: bool = False
) -> Tick:
    """Return what a tick does; *sleeps* tells that the agent has nothing to wake up for."""
    state = None
    if lifecycle is not None:
        here = standing(lifecycle, memory.position)
        state = lifecycle.states[here.state]
        wait = gate(lifecycle, here, ran_at=memory.began.get(here.state), now=now)
        if wait is not None:
            return Tick(Beat.GATED, state, f"{here.state} may begin again in {_long(wait)}")
        if state.kind is Kind.REM:
            return Tick(Beat.REST, state)
    if sleeps:
        return Tick(Beat.ASLEEP, state, "nothing is due, ready or claimed")
    return Tick(Beat.WAKE, state)


def begun(memory: Memory, made: Tick, *, now: datetime) -> Memory:
    """Return what is remembered when a tick has begun, however it will end."""
    if made.beat in {Beat.GATED, Beat.ASLEEP}:
        return replace(memory, last_run_at=now)
    began = memory.began if made.state is None else {**memory.began, made.state.name: now}
    return replace(memory, last_run_at=now, began=began)


def ended(
    memory: Memory, made: Tick, lifecycle: Lifecycle | None, status: Status, *, now: datetime
) -> Memory:
    """Return what is remembered after a tick; a tick that did nothing holds its place."""
    outcome = outcome_of(status)
    if lifecycle is None or outcome is None or made.beat in {Beat.GATED, Beat.ASLEEP}:
        return memory
    here = standing(lifecycle, memory.position)
    rested_at = now if made.beat is Beat.REST else memory.rested_at
    return replace(memory, position=step(lifecycle, here, outcome), rested_at=rested_at)


def read_memory(text: str) -> Memory:
    """Return what was remembered; what cannot be read is forgotten."""
    try:
        data = json.loads(text or "{}")
    except ValueError:
        return Memory()
    if not isinstance(data, dict):
        return Memory()
    position = data.get("position")
    began = data.get("began")
    mirrors = data.get("mirrors")
    times = {str(k): _moment(v) for k, v in (began if isinstance(began, dict) else {}).items()}
    return Memory(
        parse_position(position) if isinstance(position, str) else None,
        _moment(data.get("last_run")),
        {name: at for name, at in times.items() if at is not None},
        _moment(data.get("rested")),
        str(data.get("carry", ""))[:MOST_CARRIED],
        {str(k): str(v) for k, v in (mirrors if isinstance(mirrors, dict) else {}).items()},
    )


def write_memory(memory: Memory) -> str:
    """Return what is to be remembered, as text.

    >>> read_memory(write_memory(Memory(Position("wake_add", 2)))).position
    Position(state='wake_add', hits=2)
    """
    data = {
        "position": None if memory.position is None else str(memory.position),
        "last_run": None if memory.last_run_at is None else key_time(memory.last_run_at),
        "began": {name: key_time(at) for name, at in memory.began.items()},
        "rested": None if memory.rested_at is None else key_time(memory.rested_at),
        "carry": memory.carry[:MOST_CARRIED],
        "mirrors": dict(memory.mirrors),
    }
    return json.dumps({name: value for name, value in data.items() if value}, sort_keys=True)


def _moment(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        return parse_rfc3339(value).astimezone(UTC)
    except Rfc3339Error:
        return None


def _long(wait: timedelta) -> str:
    return format_duration(timedelta(seconds=max(1, round(wait.total_seconds()))))
