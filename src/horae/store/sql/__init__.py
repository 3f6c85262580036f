"""The queries of the ledger, each with a name and a sentence that says what it does.

-- name: receipt_by_number
-- One receipt.
SELECT * FROM receipt WHERE number = :number;
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

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
    """Return the queries of one theme by name."""
    return queries((files(__name__) / f"{name}.sql").read_text(encoding="utf-8"))


@cache
def migrations() -> tuple[str, ...]:
    """Return the migrations in order; the first makes version 1 of the schema."""
    found = (files(__name__) / "migrations").iterdir()
    names = sorted(each.name for each in found if each.name.endswith(".sql"))
    return tuple(
        (files(__name__) / "migrations" / name).read_text(encoding="utf-8") for name in names
    )
