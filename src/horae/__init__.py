"""Run commands, workflows and coding agents on a schedule.

A plan says what runs, and one line under it says when. The functions that read a plan
take text and return plain data: lists, dicts, strings, numbers and None.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own would cost a third of the time of `horae --version`
if TYPE_CHECKING:
    from horae.app import check, run_workflow
    from horae.client import connect, connect_async
    from horae.core.project import project
    from horae.errors import HoraeError
    from horae.org.document import parse_timestamp, query
    from horae.org.world import durable, tangle, upgrade, validate
    from horae.sources.plans.arming import entries
    from horae.timing.cron import Cron, CronError
    from horae.timing.repeater import repeat
    from horae.timing.zone import parse_rfc3339

__version__ = "0.1.0"

__all__ = [
    "Cron", "CronError", "HoraeError", "check", "connect", "connect_async", "durable", "entries",
    "parse_rfc3339", "parse_timestamp", "project", "query", "repeat", "run_workflow", "tangle",
    "upgrade", "validate",
]  # fmt: skip

# Each name is imported when it is first used, so that the command line starts at once.
_HOMES = {
    "app": ("check", "run_workflow"),
    "client": ("connect", "connect_async"),
    "core.project": ("project",),
    "errors": ("HoraeError",),
    "org.document": ("parse_timestamp", "query"),
    "org.world": ("durable", "tangle", "upgrade", "validate"),
    "sources.plans.arming": ("entries",),
    "timing.cron": ("Cron", "CronError"),
    "timing.repeater": ("repeat",),
    "timing.zone": ("parse_rfc3339",),
}


if not TYPE_CHECKING:  # a checker sees the names above, and no others

    def __getattr__(name: str) -> object:
        home = next((module for module, names in _HOMES.items() if name in names), None)
        if home is None:
            raise AttributeError(f"module 'horae' has no attribute {name!r}")
        from importlib import import_module  # only when a name is first used

        value: object = getattr(import_module(f"horae.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
