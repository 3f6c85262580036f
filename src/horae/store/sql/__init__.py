"""The queries of the ledger, each with a name and a sentence that says what it does.

-- name: receipt_by_number
-- One receipt.
SELECT * FROM receipt WHERE number = :number;
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

# The themes of which a dialect says some in its own way, and one that only a dialect has.
_SHARED: Final = ("entry", "event", "receipt", "run", "several", "text")
_OWN: Final = ("member",)
_MANY: Final = "_many"
_VALUE: Final = re.compile(r":([a-z_]+)")
_NAME: Final = re.compile(r"^-- name: (\w+)\n((?:-- .*\n)+)", re.MULTILINE)


def queries(text: str) -> dict[str, str]:
    r"""Return the queries of a file by name.

    >>> queries("-- name: one\n-- The number one.\nSELECT 1;\n")
    {'one': 'SELECT 1'}
    """
    _, *parts = _NAME.split(text)
    return {
        name: query.strip().removesuffix(";")
        for name, query in zip(parts[::3], parts[2::3], strict=True)
    }


@cache
def theme(name: str) -> dict[str, str]:
    return queries((files(__name__) / f"{name}.sql").read_text(encoding="utf-8"))


@cache
def by_place(query: str, names: tuple[str, ...]) -> str:
    """Return a query whose values come in the order of their names: SQLite takes them sooner.

    >>> by_place("UPDATE bed SET water = :water WHERE number = :number", ("number", "water"))
    'UPDATE bed SET water = ?2 WHERE number = ?1'
    """
    return _VALUE.sub(lambda found: f"?{names.index(found[1]) + 1}", query)


@cache
def migrations(dialect: str = "") -> tuple[str, ...]:
    """Return the migrations in order; the first makes version 1 of the schema."""
    folder = files(__name__) / dialect / "migrations"
    names = sorted(each.name for each in folder.iterdir() if each.name.endswith(".sql"))
    return tuple((folder / name).read_text(encoding="utf-8") for name in names)


class Spoken(NamedTuple):
    """How a dialect says a query, and how it says it of many rows at once, if it can."""

    one: str
    many: str | None = None


@cache
def spoken(dialect: str) -> dict[str, Spoken]:
    """Return how a dialect says the queries that it says in its own way, by their text.

    In its files a query has the name that it has in ours; `insert_many` is `insert` of many
    rows, which come as one JSON text called `rows`.
    """
    found = {}
    for name in (*_SHARED, *_OWN):
        own = theme(f"{dialect}/{name}")
        ours = theme(name) if name in _SHARED else {}
        for word in {**own, **ours}:
            text = ours.get(word) or own[word]
            said = Spoken(own.get(word, text), own.get(f"{word}{_MANY}"))
            if said != (text, None):
                found[text] = said
    return found
