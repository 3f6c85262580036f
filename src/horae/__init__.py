"""A book of hours for agents and workflows.

The when is written in the plan, one line under the what. Everything below takes
text and gives plain data: lists, dicts, strings, numbers and None.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own would cost a third of the time of `horae --version`
if TYPE_CHECKING:
    from horae.errors import HoraeError
    from horae.kernel.check import check
    from horae.kernel.query import parse_timestamp, query
    from horae.kernel.world import durable, tangle, upgrade, validate

__version__ = "0.1.0"

__all__ = [
    "HoraeError",
    "check",
    "durable",
    "parse_timestamp",
    "query",
    "tangle",
    "upgrade",
    "validate",
]

# Each name is imported when it is first used, so that the command line starts at once.
_HOME = {
    "HoraeError": "horae.errors",
    "check": "horae.kernel.check",
    "durable": "horae.kernel.world",
    "parse_timestamp": "horae.kernel.query",
    "query": "horae.kernel.query",
    "tangle": "horae.kernel.world",
    "upgrade": "horae.kernel.world",
    "validate": "horae.kernel.world",
}


def __getattr__(name: str) -> object:
    """Return a public name from the room where it lives."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'horae' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only when a name is first used

    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, those not yet used too."""
    return sorted({*globals(), *__all__})
