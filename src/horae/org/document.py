"""A whole plan: preamble, then one section per headline, each parsed from its own text alone."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from horae.org.collector import LARGE, collector_paused
from horae.org.headline import read_headline
from horae.org.plan import DEFAULT_STATES, Plan, States

_NEXT_HEADLINE: Final = re.compile(r"\n\*++ ")
_FIRST_HEADLINE: Final = re.compile(r"\ufeff?(?=\*++ )")
_STATE_LINE: Final = re.compile(r"#\+(?:todo|seq_todo|typ_todo):", re.IGNORECASE)
STATE_KEYS: Final = frozenset({"TODO", "SEQ_TODO", "TYP_TODO"})


def read(text: str) -> Plan:
    first = _FIRST_HEADLINE.match(text)
    starts = [first.end()] if first else []
    at = 0
    # By search: each finditer leaves a word in a cache of Python's, which keeps the memory around
    # it from being given back.
    while found := _NEXT_HEADLINE.search(text, at):
        starts.append(found.start() + 1)
        at = found.end()
    states = _states(text, starts)
    words, stops = states.all, [*starts, len(text)][1:]
    with collector_paused(when=len(text) > LARGE):
        headlines = [
            read_headline(text[start:stop], words)
            for start, stop in zip(starts, stops, strict=True)
        ]
        return Plan(text[: starts[0]] if starts else text, tuple(headlines), states)


def _states(text: str, starts: Sequence[int]) -> States:
    if _STATE_LINE.search(text) is None:
        return DEFAULT_STATES
    sections = {bisect_right(starts, found.start()) for found in _STATE_LINE.finditer(text)}
    from horae.org.element import keywords  # few plans declare states

    bounds = [0, *starts, len(text)]
    todo, done = set(DEFAULT_STATES.todo), set(DEFAULT_STATES.done)
    for index in sorted(sections):
        for keyword in keywords(text[bounds[index] : bounds[index + 1]]):
            if keyword.key in STATE_KEYS:
                open_words, closed_words = state_words(keyword.value)
                todo.update(open_words)
                done.update(closed_words)
    return States(frozenset(todo - done), frozenset(done))


def state_words(value: str) -> tuple[list[str], list[str]]:
    """Return the open and the closed words of one declaration."""
    before, bar, after = value.partition("|")
    opened = [word.partition("(")[0] for word in before.split()]
    closed = [word.partition("(")[0] for word in after.replace("|", " ").split()]
    if not bar:
        opened, closed = opened[:-1], opened[-1:]
    return [word for word in opened if word], [word for word in closed if word]
