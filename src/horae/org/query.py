"""What was written: one row per headline, in document order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypedDict

from horae.org import timestamp
from horae.org.collector import LARGE, collector_paused
from horae.org.document import read

if TYPE_CHECKING:
    from horae.org.plan import Headline
    from horae.org.timestamp import TimestampData


# A plan that is misread looks like a plan that asks for nothing, so the reader is tried on this.
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


class HeadlineRow(TypedDict):
    """A headline as plain data; the keys stand in the order in which they are printed."""

    deadline: TimestampData | None
    id: str | None
    level: int
    props: dict[str, str]
    scheduled: TimestampData | None
    state: str | None
    tags: list[str]
    title: str


def query(text: str) -> list[HeadlineRow]:
    """Return what is written on each headline of a plan."""
    with collector_paused(when=len(text) > LARGE):
        return [row(headline) for headline in read(text).headlines]


def parse_timestamp(text: str) -> TimestampData | None:
    """Return what one bracketed stamp says, or None if it is not one."""
    found = timestamp.parse_timestamp(text)
    return found.data() if found else None


def row(headline: Headline) -> HeadlineRow:
    deadline, scheduled = headline.deadline, headline.scheduled
    props = dict(sorted(headline.props.items()))
    return {
        "deadline": deadline.data() if deadline else None,
        "id": props.get("ID"),
        "level": headline.level,
        "props": props,
        "scheduled": scheduled.data() if scheduled else None,
        "state": headline.state,
        "tags": list(headline.tags),
        "title": headline.title,
    }


def misread() -> str | None:
    """Return what is wrong if a text whose meaning is known is not read as it should be.

    The `re` of Python 3.11.0 to 3.11.4 reads some patterns wrongly: no schedule was armed.
    """
    found = query(_TEXT)
    row = dict(found[0]) if len(found) == 1 else {}
    wrong = next((key for key, value in _ROW.items() if row.get(key) != value), None)
    if wrong is None:
        return None
    return f"{wrong} is read as {row.get(wrong)!r:.200}, not as {_ROW[wrong]!r}"
