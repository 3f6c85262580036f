"""Sources of entries: what they contain, and which scanned entries are known ones.

A source never sleeps, sets no timer, starts no process and holds no slot. An entry keeps its number
if its address is the same, or if exactly one entry is gone and exactly one new one is like it;
anything less certain is a new entry.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from horae.core.entry import ARCHIVED, COMMENTED
from horae.errors import HoraeError
from horae.org.plan import Headline, Plan
from horae.org.world import every, worlds

if TYPE_CHECKING:
    from horae.core.entry import Entry, Unarmed
    from horae.core.receipt import Filed
    from horae.org.page import Heading


@dataclass(frozen=True, slots=True)
class Revision:
    """A commit, and the files that are unchanged since; None: all files."""

    commit: str
    files: frozenset[str] | None = None

    def of(self, file: str) -> str | None:
        """Return the commit if a file is unchanged since.

        >>> Revision("c0ffee", frozenset({"plan.org"})).of("draft.org")
        """
        return self.commit if self.files is None or file in self.files else None


class Scanned(NamedTuple):
    """An entry of a source, and the text of its digest.

    `broken` is why that text cannot be read: the last valid entry is kept, and `item` counts only
    if there was none.
    """

    mark: Mark
    item: Entry | Unarmed
    text: str = ""
    broken: str = ""


@dataclass(frozen=True, slots=True)
class Scan:
    """The entries of a source at one time, and the problems of reading them.

    `standing` names what is not in `entries`, as it is unchanged or unreadable: a file, a directory
    (with a slash at the end) or, empty, everything. `index` has the fingerprint of each file that
    could be read; `is_still` returns whether a file has not changed since. `is_bare`: the plan root
    has no file that could contain entries (None: unknown). `broken` are files that could not be
    parsed, and why.
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
    """Return an unforeseen error in words.

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
        """Return all entries; files with the fingerprint in *index* need not be read again."""

    @property
    def settle(self) -> Callable[[Filed], Awaitable[None]] | None:
        """Act on a final receipt, if the source does; calling it twice has the effect of once."""


AGENT: Final = "agent"  # the language of a block that an agent answers
_SHOWN: Final = 60


def is_entry(headline: Headline | Heading) -> bool:
    if "workflow" in headline.tags:
        return True
    calls = "COMMAND" in headline.props or "POST" in headline.props
    return calls and "agent" not in headline.tags


def hidden_by(path: Iterable[Headline]) -> str | None:
    for headline in path:
        title = headline.title
        if title.startswith("COMMENT") and title.split(None, 1)[0] == "COMMENT":
            return f"{headline.title[:_SHOWN]!r}{COMMENTED}"
        if "ARCHIVE" in headline.tags:
            return f"{headline.title[:_SHOWN]!r}{ARCHIVED}"
    return None


def agent_blocks(plan: Plan) -> Iterator[tuple[int, str | None]]:
    r"""Yield the headlines with blocks for an agent, and the name of each agent, if it has one.

    The block names it after `:agent`, else its workflow by `:AGENT:`.

    >>> from horae.org.document import read
    >>> block = "#+begin_src agent :agent wren\nBe brief.\n#+end_src\n"
    >>> list(agent_blocks(read(f"* Digest :workflow:\n** Sum up :component:\n{block}")))
    [(1, 'wren')]
    """
    components = (each for each in plan.headlines if "component" in each.tags)
    if not any(AGENT in each.text.lower() for each in components):
        return  # most plans have none: their blocks need not be parsed
    for world in every(worlds(plan)):
        usual = plan.headlines[world.at].props.get("AGENT", "").strip()
        for component in world.components:
            block = component.block
            if block is not None and block.lang.lower() == AGENT:
                pairs = pairwise(block.args.split())
                named = (word for key, word in pairs if key == ":agent" and word[0] != ":")
                yield component.at, next(named, "") or usual or None


def digest_of(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Mark(NamedTuple):
    address: str
    title: str
    rule: str
    body: str  # a digest of everything below the headline


class Match(NamedTuple):
    """The number of each scanned entry (None: new), and the known ones that are gone.

    `doubles` are scanned entries with the address of another one: they are not armed.
    """

    numbers: tuple[int | None, ...]
    gone: tuple[int, ...]
    doubles: tuple[int, ...]


def match(known: Mapping[int, Mark], scanned: Sequence[Mark]) -> Match:
    """Match *scanned* entries with *known* ones; of several, the lowest number is the oldest.

    >>> was = Mark("plan.org::Water", "Water", "++1d", "b1")
    >>> match({7: was}, [Mark("garden.org::Water", "Water", "++1d", "b2")]).numbers
    (7,)
    """
    left = dict(sorted(known.items()))
    numbers: list[int | None] = [None] * len(scanned)
    doubles = _doubles(left, scanned)
    open_places = [place for place in range(len(scanned)) if place not in doubles]

    by_address = {mark.address: number for number, mark in reversed(left.items())}
    for place in open_places:
        number = by_address.get(scanned[place].address)
        if number is not None:
            numbers[place] = number
            del left[number]
    if not left:
        return Match(tuple(numbers), (), tuple(sorted(doubles)))
    # Matches by title and rule may make a body unique, so bodies are compared twice.
    kinds: tuple[Callable[[Mark], Hashable], ...] = (
        lambda mark: mark.body,
        lambda mark: (mark.title, mark.rule),
    )
    for alike in (*kinds, kinds[0]):
        open_places = [place for place in open_places if numbers[place] is None]
        for number, place in _pairs(left, scanned, open_places, alike):
            numbers[place] = number
            del left[number]
    return Match(tuple(numbers), tuple(left), tuple(sorted(doubles)))


def _doubles(known: dict[int, Mark], scanned: Sequence[Mark]) -> set[int]:
    if len({mark.address for mark in scanned}) == len(scanned):
        return set()
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, mark in enumerate(scanned):
        places[mark.address].append(place)
    marks = {mark.address: mark for mark in reversed(known.values())}  # the oldest counts
    doubles: set[int] = set()
    for address, found in places.items():
        here = marks.get(address)
        # The most similar to the known one, of equal ones the first.
        alike = [(_likeness(scanned[place], here), -place) for place in found]
        doubles.update({*found} - {-max(alike)[1]})
    return doubles


def _likeness(mark: Mark, known: Mark | None) -> int:
    if known is None:
        return 0
    return (mark.body == known.body) + (mark.title == known.title) + (mark.rule == known.rule)


def _pairs(
    known: Mapping[int, Mark],
    scanned: Sequence[Mark],
    places: Sequence[int],
    alike: Callable[[Mark], Hashable],
) -> list[tuple[int, int]]:
    gone: defaultdict[Hashable, list[int]] = defaultdict(list)
    new: defaultdict[Hashable, list[int]] = defaultdict(list)
    for number, mark in known.items():
        gone[alike(mark)].append(number)
    for place in places:
        new[alike(scanned[place])].append(place)
    return [
        (numbers[0], new[sign][0])
        for sign, numbers in gone.items()
        if len(numbers) == 1 and len(new[sign]) == 1
    ]
