"""Converts the texts of entries and policies of version 0.1 into those of the schema after it.

Their JSON had times and durations in microseconds and identified rules by their fields. The result
must never change, whatever `codec.py` writes: later migrations start from it.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from horae.store.codec import as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_UNREADABLE: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_REPEATER: Final = re.compile(r"([.+]+)([0-9]+)([a-z])(?:/([0-9]+)([a-z]))?")


def _length(number: int) -> timedelta:
    return timedelta(microseconds=number)


def _moment(number: int) -> datetime:
    return _EPOCH + _length(number)


# The properties of a policy, in today's order, and the conversion of each value.
_PROPERTIES: Final[Mapping[str, Callable[[Any], object]]] = {
    "catchup": str,
    "overlap": str,
    "retry": lambda pair: {"attempts": pair[0], "wait": _length(pair[1])},
    "timeout": _length,
    "jitter": _length,
    "pause_after": int,
    "from": _moment,
    "until": _moment,
    "requires": list,
    "api": list,
}


# Many entries have the same rule, and most receipts one of a few policies.
@lru_cache(maxsize=4096)
def entry(text: str) -> str:
    """Return the converted text of an entry; an unknown format is not changed.

    >>> entry('{"policy":{"timeout":900000000},"rule":{"cron":[["@daily","UTC"]]},"zone":"UTC"}')
    '{"rule":{"kind":"cron","crons":[["@daily","UTC"]]},"zone":"UTC","policy":{"timeout":"PT900S"}}'
    """
    try:
        was = json.loads(text)
        new = {"rule": _rule(was["rule"]), "zone": was["zone"]}
        new |= {name: was[name] for name in ("work", "agents") if name in was}
        if "policy" in was:
            new["policy"] = _policy(was["policy"])
        if "deadline" in was:
            new["deadline"] = _moment(was["deadline"])
    except _UNREADABLE:
        return text
    return as_text(new)


@lru_cache(maxsize=4096)
def policy(text: str) -> str:
    """Return the converted text of a policy; an unknown format is not changed.

    >>> policy('{"retry":[2,300000000],"until":0}')
    '{"retry":{"attempts":2,"wait":"PT300S"},"until":"1970-01-01T00:00:00Z"}'
    """
    try:
        return as_text(_policy(json.loads(text)))
    except _UNREADABLE:
        return text


def _policy(was: dict[str, Any]) -> dict[str, object]:
    return {name: make(was[name]) for name, make in _PROPERTIES.items() if name in was}


def _rule(was: dict[str, Any]) -> dict[str, object]:
    match was:
        case {"cron": crons}:
            return {"kind": "cron", "crons": crons}
        case {"repeater": repeater, "anchor": anchor}:
            return {"kind": "repeater", "anchor": anchor, "repeater": _repeater(repeater)}
        case {"once": at, "delay": None}:
            return {"kind": "once", "at": _moment(at)}
        case {"once": at, "delay": delay}:
            return {"kind": "once", "at": _moment(at), "delay": delay}
        case {"cadence": base, "first": first}:
            return {"kind": "cadence", "base": _length(base), "first_at": _moment(first)}
        case {"after": occasions, "of": ""}:
            return {"kind": "after", "occasions": occasions}
        case {"after": occasions, "of": of}:
            return {"kind": "after", "occasions": occasions, "of": of}
    if was:
        raise ValueError(was)
    return {"kind": "on_demand"}


def _repeater(text: str) -> dict[str, object]:
    found = _REPEATER.fullmatch(text)
    if found is None:
        raise ValueError(text)
    kind, count, unit, most, most_unit = found.groups()
    made: dict[str, object] = {"kind": kind, "count": int(count), "unit": unit}
    return made | {"maximum": {"count": int(most), "unit": most_unit}} if most else made
