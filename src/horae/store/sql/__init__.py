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
    "access", "account", "entry", "event", "inbox", "prune", "purse", "receipt", "run", "session",
    "several", "term", "text", "trigger",
)  # fmt: skip
_OWN: Final = {
    "": {"alike": "alike"},
    "postgres": {
        name: f"postgres/{name}"
        for name in ("entry", "event", "member", "receipt", "run", "several", "text")
    },
}
# The types in which PostgreSQL takes values for many rows at once.
_MANY: Final = (
    "entry.account_armed", "entry.commit_file", "entry.forget_file", "entry.insert",
    "entry.know_file", "entry.over_as_planned", "entry.unmiss", "event.insert", "receipt.insert",
    "receipt.move", "receipt.settle", "run.close", "run.identify", "run.insert",
)  # fmt: skip
_TEXTS: Final = frozenset({
    "account", "actor", "address", "agents", "body", "broken", "commit", "commit_id", "digest",
    "facts", "file", "key", "kind", "known_as", "member", "memory", "note", "outcome", "policy",
    "reason", "reason_code", "rule", "source", "spec", "status", "title", "unarmed", "was", "work",
})  # fmt: skip
_VALUE: Final = re.compile(r":([a-z_]+)")
_LOCK: Final = re.compile(r"\s+FOR NO KEY UPDATE[a-z, A-Z]*$")  # SQLite has one writer
_LISTED: Final = re.compile(r"IN \(SELECT value FROM json_each\(:(\w+)\)\)")
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
    """Return the queries in a dialect by name, such as `entry.one`.

    PostgreSQL has some of its own, and locks the rows that it is to change; `entry.insert_many` is
    `entry.insert` for many rows.
    """
    places = [*((name, name) for name in _THEMES), *_OWN[dialect].items()]
    known = {f"{name}.{word}": text for name, at in places for word, text in theme(at).items()}
    if not dialect:
        return {name: _LOCK.sub("", text) for name, text in known.items()}
    known = {name: _LISTED.sub(_listed, text) for name, text in known.items()}
    return known | {f"{name}_many": of_many(known[name]) for name in _MANY}


def _listed(found: re.Match[str]) -> str:
    if found[1] == "numbers":
        return "= ANY (CAST(translate(:numbers, '[]', '{}') AS bigint[]))"
    return f"IN (SELECT jsonb_array_elements_text(CAST(:{found[1]} AS jsonb)))"


def of_many(query: str) -> str:
    """Return PostgreSQL's query for many rows, passed as JSON in `rows`, from that for one.

    >>> of_many("INSERT INTO bed (number, kind) VALUES (:number, :kind)")
    'INSERT INTO bed (number, kind) SELECT new.number, new.kind
        FROM json_to_recordset(CAST(:rows AS json)) AS new (number bigint, kind text)'
    >>> of_many("DELETE FROM bed WHERE bed.number = :number")
    'DELETE FROM bed USING json_to_recordset(CAST(:rows AS json)) AS new (number bigint)
        WHERE bed.number = new.number'
    """
    names = dict.fromkeys(_VALUE.findall(query))
    types = ", ".join(f"{name} {'text' if name in _TEXTS else 'bigint'}" for name in names)
    rows = f"json_to_recordset(CAST(:rows AS json)) AS new ({types})"
    placed = _VALUE.sub(r"new.\1", query)
    if query.startswith("INSERT"):
        select = rf"SELECT \1 FROM {rows}"  # noqa: S608 - the names are those of our queries
        return re.sub(r"VALUES \((.*?)\)", select, placed, flags=re.DOTALL)
    source = "USING" if query.startswith("DELETE") else "FROM"
    return placed.replace("WHERE", f"{source} {rows} WHERE", 1)


class PlacedQuery(NamedTuple):
    """A query with positional values, which SQLite binds faster than named ones."""

    text: str
    names: tuple[str, ...]  # of the values, for each row


@cache
def by_place(query: str, nulls: frozenset[str] = frozenset(), rows: int = 1) -> PlacedQuery:
    """Return a query with positional values, of which some are NULL; an INSERT of several rows.

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
def migrations(dialect: str = "") -> dict[int, str]:
    folder = files(__name__) / dialect / "migrations"
    names = sorted(each.name for each in folder.iterdir() if each.name.endswith(".sql"))
    return {int(name[:4]): (folder / name).read_text(encoding="utf-8") for name in names}
