"""The reader tried on a text whose meaning is known, before anything relies on it.

The `re` of Python 3.11.0 to 3.11.4 reads some patterns wrongly: with them every drawer was empty
and no schedule was armed. A plan that is misread looks like a plan that asks for nothing.
"""

from __future__ import annotations

from typing import Final

from horae.org.query import query

_TEXT: Final = """\
* TODO Nightly backup :workflow:
SCHEDULED: <2026-06-06 Sat 06:00 +1d>
:PROPERTIES:
:ID: backup
:SCHEDULE: 0 6 * * *
:END:
"""
_ROW: Final[dict[str, object]] = {
    "deadline": None, "id": "backup", "level": 1,
    "props": {"ID": "backup", "SCHEDULE": "0 6 * * *"},
    "scheduled": {"at": "2026-06-06T06:00", "repeat": "+1d", "active": True},
    "state": "TODO", "tags": ["workflow"], "title": "Nightly backup",
}  # fmt: skip


def misread() -> str | None:
    found = query(_TEXT)
    row = dict(found[0]) if len(found) == 1 else {}
    wrong = next((key for key, value in _ROW.items() if row.get(key) != value), None)
    if wrong is None:
        return None
    return f"{wrong} is read as {row.get(wrong)!r:.200}, not as {_ROW[wrong]!r}"
