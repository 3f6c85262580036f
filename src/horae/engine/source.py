"""Where entries come from: what the engine asks of org plans, crew, board and triggers.

A source says what it holds and follows up what has ended. It never sleeps, sets no
timer, starts no process and holds no slot: all of that is the engine's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from horae.engine.ports import Filed
    from horae.errors import HoraeError
    from horae.rules.armed import Scanned


@dataclass(frozen=True, slots=True)
class Scan:
    """What a source holds at one moment, and what was in the way of seeing all of it.

    `unread` names what could not be looked at: a file, a directory (it ends in a slash)
    or, empty, everything. What is known of it stands.
    """

    entries: tuple[Scanned, ...]
    problems: tuple[HoraeError, ...] = ()
    unread: tuple[str, ...] = ()

    def leaves_open(self, file: str) -> bool:
        """Tell whether the scan cannot say what is in a file.

        >>> scan = Scan((), unread=("broken.org", "locked/"))
        >>> [scan.leaves_open(file) for file in ("broken.org", "locked/a.org", "fine.org")]
        [True, True, False]
        """
        return any(is_within(file, name) for name in self.unread)


def is_within(file: str, name: str) -> bool:
    """Tell whether a file is the one named, or beneath the directory named.

    >>> is_within("garden/water.org", "garden/"), is_within("garden.org", ""), is_within("a", "b")
    (True, True, False)
    """
    is_directory = not name or name.endswith("/")
    return file.startswith(name) if is_directory else file == name


class Source(Protocol):
    """Whatever holds entries."""

    @property
    def name(self) -> str:
        """The word that its entries are kept under in the ledger."""
        ...

    async def scan(self) -> Scan:
        """Return all that it holds now; what cannot be read is a problem beside the rest."""
        ...

    async def settle(self, receipt: Filed) -> None:
        """Do what follows from a receipt that is final; to be asked twice changes nothing."""
        ...
