"""Where entries come from, one package per feature.

A module of a source is loaded when it is first used: after `from horae.sources import board` that
is where `board.runner` is read. So an engine loads what its plan needs, and what requests need.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import horae
from horae import __version__
from horae.errors import Exit, HoraeError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_VERSION: Final = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)


class OutdatedError(HoraeError, code="outdated", exit_code=Exit.TEMPORARY):
    def __init__(self, installed: str) -> None:
        self.installed, self.running = installed, __version__
        switch = "`horae restart` switches to it"
        super().__init__(f"horae {installed} is installed, and {__version__} is running; {switch}")


def outdated() -> OutdatedError | None:
    """Return an error if the package on disk, which may be newer, is not the one that runs."""
    try:
        found = _VERSION.search(Path(horae.__file__).read_text())
    except OSError:  # it is being replaced
        return None
    return None if found is None or found[1] == __version__ else OutdatedError(found[1])


def load_all() -> None:
    """Load every module of every source, so that one which cannot be loaded raises its error."""
    from pkgutil import walk_packages  # only before a restart

    for found in walk_packages(__path__, f"{__name__}."):
        import_module(found.name)


def late(package: str) -> Callable[[str], ModuleType]:
    """Return the `__getattr__` of a package whose modules are loaded when they are first used."""

    def load(name: str) -> ModuleType:
        full = f"{package}.{name}"
        if (newer := outdated()) is not None:  # two versions in one process would not fit
            raise newer
        try:
            return import_module(full)
        except ModuleNotFoundError as error:
            if error.name != full:
                raise
            raise AttributeError(f"module {package!r} has no attribute {name!r}") from None

    return load
