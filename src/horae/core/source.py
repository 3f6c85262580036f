"""Where entries come from: what the engine asks of org plans, crew, board and triggers.

A source says what it holds and follows up what has ended. It never sleeps, sets no
timer, starts no process and holds no slot: all of that is the engine's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from horae.errors import HoraeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from horae.core.entry import Entry, Unarmed
    from horae.core.identity import Mark
    from horae.core.receipt import Filed


@dataclass(frozen=True, slots=True)
class Revision:
    """A commit, and the files that stand in it as they are; without any it is all of them."""

    commit: str
    files: frozenset[str] | None = None

    def of(self, file: str) -> str | None:
        """Return the commit in which a file stands as it is, if it does.

        >>> Revision("c0ffee", frozenset({"plan.org"})).of("draft.org")
        """
        return self.commit if self.files is None or file in self.files else None


@dataclass(frozen=True, slots=True)
class Scanned:
    """Something a source holds: what it can be recognised by, what it is, and what it runs.

    `text` is what the entry's digest stands for. `broken` says why that text cannot be read as it
    was meant: then the last good entry stays as it was, and `item` counts only if there was none.
    """

    mark: Mark
    item: Entry | Unarmed
    text: str = ""
    broken: str = ""


@dataclass(frozen=True, slots=True)
class Scan:
    """What a source holds at one moment, and what was in the way of seeing all of it.

    `entries` are those of all that was read. `standing` names what was not, because it has
    not changed or because it cannot be read: a file, a directory (it ends in a slash) or,
    empty, everything. What is known of it stands. `index` says by what each file is known,
    so that after a restart one that has not changed need not be read. The ledger may
    remember less than this: what it does not name must be read. `is_still` tells of a file
    whether it is as it was then. `is_bare` tells whether the plan root holds no file at all
    that could hold entries of this source; None: the source says nothing about the plan root.
    `broken` are files that were read and could not be understood, and why: they stand, too.
    """

    entries: tuple[Scanned, ...]
    standing: tuple[str, ...] = ()
    problems: tuple[HoraeError, ...] = ()
    index: Mapping[str, str] = field(default_factory=dict)
    is_still: Callable[[str], bool] = field(default=lambda _: True, compare=False, repr=False)
    is_bare: bool | None = None
    broken: Mapping[str, str] = field(default_factory=dict)


def is_within(file: str, name: str) -> bool:
    """Tell whether a file is the one named, or beneath the directory named.

    >>> is_within("garden/water.org", "garden/"), is_within("garden.org", ""), is_within("a", "b")
    (True, True, False)
    """
    is_directory = not name or name.endswith("/")
    return file.startswith(name) if is_directory else file == name


class SourceError(HoraeError):
    """A source that failed as a whole: what it held so far stands."""

    code = "source"

    def __init__(self, name: str, error: Exception) -> None:
        self.name = name
        self.reason = str(error) if isinstance(error, HoraeError) else unexpected(error)
        super().__init__(f"{name}: {self.reason}")


def unexpected(error: Exception) -> str:
    """Return an error in words that nobody has foreseen.

    >>> unexpected(KeyError("zone"))
    "unexpected error (KeyError: 'zone'); please report it"
    """
    if isinstance(error, OSError):
        place = "" if error.filename is None else f"{ascii(error.filename)[1:-1]}: "
        return f"{place}{(error.strerror or str(error)).lower()}"
    return f"unexpected error ({type(error).__name__}: {error}); please report it"


class Source(Protocol):
    """Whatever holds entries."""

    @property
    def name(self) -> str:
        """The word that its entries are kept under in the ledger."""

    async def scan(self, index: Mapping[str, str]) -> Scan:
        """Return all that it holds now; what cannot be read is a problem beside the rest.

        *index* is what the ledger remembers of its last scan; what is still known by the
        same need not be read.
        """

    async def settle(self, receipt: Filed) -> None:
        """Do what follows from a receipt that is final; to be asked twice changes nothing."""
