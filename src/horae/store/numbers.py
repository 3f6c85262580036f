"""The numbers that a data directory has given: after a restore none of them is given again.

Those given since a backup are known to the ledger that is replaced, if that can still be read, to
the backups beside it, and, of runs, to the directories of their output. A small file keeps where
each restore let the numbers begin, for when nothing else can be read.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import suppress
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from horae.core.private import replace_durably
from horae.store.database import looking_into
from horae.store.sql import theme

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

GAP: Final = 1_000_000  # more numbers than anyone gives between two restores or backups
BEGUN: Final = "ledger-numbers.json"
_QUERIES: Final = theme("restore")
_KINDS: Final = ("entry", "receipt", "run", "event")


def go_on(connection: sqlite3.Connection, given: Mapping[str, int]) -> dict[str, int]:
    """Let a ledger's next numbers be beyond its own and all that were given; return the last."""
    own = _read(connection)
    last = {kind: max(own.get(kind, 0), given.get(kind, 0)) + GAP for kind in _KINDS}
    for name, number in last.items():
        values = {"name": name, "number": number}
        connection.execute(_QUERIES["forget_number"], values)
        connection.execute(_QUERIES["begin_after"], values)
    return last


def given_in(directory: Path) -> dict[str, int]:
    """Return the highest numbers that anything in a data directory knows of."""
    ledgers = [*directory.glob("*.db"), *(directory / "backups").glob("*.db")]
    # The output of a run is in a directory of its number.
    ran = [int(each.name) for each in directory.glob("runs/*/*") if each.name.isdecimal()]
    run = {"run": max(ran, default=0)}
    return highest([_begun(directory), run, *map(given_by, sorted(ledgers))])


def highest(several: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the highest number of each kind.

    >>> highest([{"run": 3}, {"run": 7, "entry": 1}])
    {'run': 7, 'entry': 1}
    """
    return dict(reduce(or_, map(Counter, several), Counter()))  # of two counts the greater


def given_by(path: Path) -> dict[str, int]:
    with suppress(sqlite3.Error), looking_into(path) as connection:  # a damaged ledger gives none
        return _read(connection)
    return {}


def keep(directory: Path, last: Mapping[str, int]) -> None:
    """Write down where the numbers begin from now on, before anything begins there."""
    replace_durably(directory / BEGUN, (json.dumps(last, sort_keys=True) + "\n").encode())


def _begun(directory: Path) -> dict[str, int]:
    """Return where the last restore let the numbers begin, if that can be read."""
    with suppress(OSError, ValueError):  # most ledgers were never restored
        found = json.loads((directory / BEGUN).read_bytes())
        if isinstance(found, dict):
            return {kind: n for kind, n in found.items() if kind in _KINDS and type(n) is int}
    return {}


def _read(connection: sqlite3.Connection) -> dict[str, int]:
    rows = connection.execute(_QUERIES["last_numbers"])
    return {name: number for name, number in rows if name in _KINDS}
