"""The fields of a request: of the right kind, or an error that names the field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from horae.sources.triggers.rules import OPTIONS, TriggerError

if TYPE_CHECKING:
    from collections.abc import Mapping


def options(data: Mapping[str, Any]) -> dict[str, str]:
    """Return how a workflow wants to be kept, as far as it says so."""
    given = {name: data[name] for name in OPTIONS if data.get(name) is not None}
    for name, value in given.items():
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise TriggerError(f"{name} must be a string", field=name)
    return {name: str(value) for name, value in given.items()}


def without_empty(options: Mapping[str, str]) -> dict[str, str]:
    """Return options without those that somebody took back."""
    return {name: value for name, value in options.items() if value}


def whole(value: object, name: str, default: int) -> int:
    """Return a field that is a whole number."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise TriggerError(f"{name} must be an integer", field=name)
    return value


def flag(value: object, name: str, *, default: bool) -> bool:
    """Return a field that is true or false."""
    if value is None:
        return default
    if not isinstance(value, bool):
        raise TriggerError(f"{name} must be true or false", field=name)
    return value
