"""The queries of the ledger, each with a name and a sentence that says what it does.

-- name: one
-- One receipt.
SELECT * FROM receipt WHERE number = :number;
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

_THEMES: Final = (
    "access", "entry", "event", "prune", "receipt", "run", "session", "several", "term", "text",
    "trigger",
)  # fmt: skip
_OWN: Final = {
    "": {"alike": "alike"},
    "postgres": {
        name: f"postgres/{name}"
        for name in ("entry", "event", "member", "receipt", "run", "several", "text")
    },
}
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
def named(dialect: str) -> dict[str, str]:
    """Return the queries of a transaction as a dialect says them, such as `entry.one`.

    PostgreSQL has some of its own; `entry.insert_many` is `entry.insert` of many rows, which
    come as one JSON text called `rows`. On SQLite `alike.entry_over` is `entry.over` of rows
    that differ in nothing but their numbers.
    """
    places = [*((name, name) for name in _THEMES), *_OWN[dialect].items()]
    return {f"{name}.{word}": text for name, at in places for word, text in theme(at).items()}


class PlacedQuery(NamedTuple):
    """A query whose values come in order: SQLite takes them sooner than by name."""

    text: str
    names: tuple[str, ...]  # of the values, for each of its rows


@cache
def by_place(query: str, nulls: frozenset[str] = frozenset(), rows: int = 1) -> PlacedQuery:
    """Return a query with places for its values, of which some are NULL; an INSERT of several rows.

    >>> by_place("UPDATE bed SET water = :water WHERE number = :number")
    PlacedQuery(text='UPDATE bed SET water = ? WHERE number = ?', names=('water', 'number'))
    >>> by_place("INSERT INTO bed VALUES (:number, :water)", frozenset({"water"}), rows=2).text
    'INSERT INTO bed VALUES (?, NULL), (?, NULL)'
    """
    names = tuple(name for name in _VALUE.findall(query) if name not in nulls)
    placed = _VALUE.sub(lambda found: "NULL" if found[1] in nulls else "?", query)
    head, values, row = placed.rpartition("VALUES ")
    return PlacedQuery(f"{head}{values}{', '.join([row] * rows)}", names)


@cache
def migrations(dialect: str = "") -> tuple[str, ...]:
    """Return the migrations in order; the first makes version 1 of the schema."""
    folder = files(__name__) / dialect / "migrations"
    names = sorted(each.name for each in folder.iterdir() if each.name.endswith(".sql"))
    return tuple((folder / name).read_text(encoding="utf-8") for name in names)
