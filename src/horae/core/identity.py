"""Which scanned entries are the known ones.

An entry keeps its number when it stands where it stood, or when exactly one has gone and exactly
one has come that can be the same; anything less sure is a new one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple


def digest_of(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Mark(NamedTuple):
    address: str
    title: str
    rule: str
    body: str  # a digest of all that stands under the headline


class Match(NamedTuple):
    """The number of each scanned entry (None is new), and which known ones are gone.

    `doubles` are scanned entries whose address another one has already: they are not armed.
    """

    numbers: tuple[int | None, ...]
    gone: tuple[int, ...]
    doubles: tuple[int, ...]


def match(known: Mapping[int, Mark], scanned: Sequence[Mark]) -> Match:
    """Return which of the *scanned* entries are *known*; the lower a number, the longer it is.

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
    # What one sign has told apart may leave another sure: bodies are looked at twice.
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
    marks = {mark.address: mark for mark in reversed(known.values())}  # the longest known counts
    doubles: set[int] = set()
    for address, found in places.items():
        here = marks.get(address)
        # Most like the known one; the first of those.
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
