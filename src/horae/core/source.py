"""Sources of entries. A source never sleeps, sets no timer, starts no process and holds no slot."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from horae.errors import HoraeError

if TYPE_CHECKING:
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


class Scanned(NamedTuple):
    """An entry of a source, and the text that its digest stands for.

    `broken` says why that text cannot be read: then the last good entry stays as it was, and `item`
    counts only if there was none. `titles` are all that its source may give it by itself: a change
    from one of them to another is not an edit.
    """

    mark: Mark
    item: Entry | Unarmed
    text: str = ""
    broken: str = ""
    titles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scan:
    """What a source holds at one moment, and what was in the way of seeing all of it.

    `standing` names what is not told again, as it is unchanged or unreadable: a file, a directory
    (it ends in a slash) or, empty, everything. `index` says by what each file is known, save those
    that cannot be read; `is_still` whether a file is as it was then. `is_bare`: the plan root holds
    no file that could hold entries (None: unknown). `broken` are files that could not be
    understood, and why.
    """

    entries: tuple[Scanned, ...]
    standing: tuple[str, ...] = ()
    problems: tuple[HoraeError, ...] = ()
    index: Mapping[str, str] = field(default_factory=dict)
    is_still: Callable[[str], bool] = field(default=lambda _: True, compare=False, repr=False)
    is_bare: bool | None = None
    broken: Mapping[str, str] = field(default_factory=dict)


class SourceError(HoraeError, code="source"):
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
    @property
    def name(self) -> str: ...

    async def scan(self, index: Mapping[str, str]) -> Scan:
        """Return all entries; what is still known by the same in *index* need not be read."""

    @property
    def settle(self) -> Callable[[Filed], Awaitable[None]] | None:
        """Do what follows from a final receipt, if anything does; twice is as good as once."""
