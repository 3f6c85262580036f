"""Settings that count only in the engine's own configuration, and their values after a pull.

A person who can push to the plan's repository decides what the plan runs, but not what the engine
starts, where it stores its files and who can reach it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from horae.core.settings import Way, is_guarded

FILE: Final = "horae.toml"
LIMIT: Final = 64 * 1024  # size of the settings, in bytes
MOST: Final = 100  # pulls per file that are remembered

# The library takes a step per dot of a dotted key for each dot: 30,000 of them take 19 s.
DOTS: Final = r"(?m)^(?:[^.\n]*\.){100}"

Values: TypeAlias = Mapping[Way, str]  # as JSON, so that equal values are equal texts


class Arrivals(NamedTuple):
    trusted: Values
    arrived: tuple[tuple[str, Values], ...] = ()  # with the commit of each, the newest last
    is_moving: bool = False  # whether a pull is in progress, so that any value may be from it

    def commit_of(self, way: Way, value: str | None) -> str:
        found = (commit for commit, values in reversed(self.arrived) if values.get(way) == value)
        return next(found, "")


def as_values(leaves: Mapping[Way, object]) -> Values:
    return {
        way: json.dumps(value, default=str, sort_keys=True)
        for way, value in leaves.items()
        if value != {} and is_guarded(way)
    }


def leaves_of(tables: Mapping[str, object]) -> dict[Way, object]:
    leaves: dict[Way, object] = {}
    stack: list[tuple[Way, object]] = [((), tables)]
    while stack:
        way, value = stack.pop()
        if isinstance(value, dict) and value:
            stack += [((*way, key), inner) for key, inner in value.items()]
        elif way:
            leaves[way] = value
    return leaves


def values_of(text: str) -> Values | None:
    import tomllib

    if len(text) > LIMIT or re.search(DOTS, text):
        return None
    try:
        tables = tomllib.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None
    return as_values(leaves_of(tables))


def in_force(written: Values, arrivals: Arrivals | None) -> Values:
    """Return the values in force: a guarded one that came with a pull counts as it was before.

    >>> way = ("agent", "command")
    >>> before, pulled = {way: '["mine"]'}, {way: '["theirs"]'}
    >>> in_force(pulled, Arrivals(before, (("1a2b", pulled),)))
    {('agent', 'command'): '["mine"]'}
    >>> in_force({way: '["my own edit"]'}, Arrivals(before, (("1a2b", pulled),)))
    {('agent', 'command'): '["my own edit"]'}
    """
    if arrivals is None:
        return written
    found: dict[Way, str] = {}
    for way in dict.fromkeys((*written, *arrivals.trusted)):
        is_pulled = arrivals.is_moving or arrivals.commit_of(way, written.get(way)) != ""
        value = (arrivals.trusted if is_pulled else written).get(way)
        if value is not None:
            found[way] = value
    return found


def before_pull(
    written: Values | None, coming: Values | None, known: Arrivals | None, commit: str
) -> Arrivals:
    """Return what to store before a pull changes *written* to *coming* (None: unreadable)."""
    trusted = {} if known is None else known.trusted
    if written is not None:
        trusted = in_force(written, known)
    arrived = () if known is None else known.arrived
    return _with(Arrivals(trusted, arrived, is_moving=True), coming or {}, commit)


def after_pull(noted: Arrivals, written: Values | None) -> Arrivals | None:
    known = noted._replace(is_moving=False)
    if written is not None:
        known = _with(known, written, noted.arrived[-1][0])
    is_all_trusted = all(values == known.trusted for _, values in known.arrived)
    return None if is_all_trusted else known


def _with(known: Arrivals, values: Values, commit: str) -> Arrivals:
    others = [each for each in known.arrived if each[1] != values]
    return known._replace(arrived=(*others, (commit, values))[-MOST:])
