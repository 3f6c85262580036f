"""Actions: what the buttons of the pages ask of the API, and the fields that they ask for.

Each is an address below `/do`, to which a form can be posted: the path of the API, and a query with
what the page knows. `ask` is a field to fill in, `sure` a question, `tag` that of what was seen,
`then` where to go on. Everything else are fields of the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, urlencode

from horae.core.views import RequestError
from horae.web.api import FORMS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Action(NamedTuple):
    """A button: its word, the path of the API that it asks, and what it says when that is done."""

    word: str
    path: str  # `{}` is what it is about
    said: str
    key: str = ""
    asks: tuple[str, ...] = ()  # fields, each with a value or options
    sure: str = ""  # asked before

    def url(self, of: object, asks: Sequence[str], tag: str, body: Mapping[str, str]) -> str:
        query = [("ask", each) for each in asks or self.asks]
        query += [("sure", self.sure)] if self.sure else []
        query += [("tag", tag)] if tag else []
        path = FORMS + "/api/v1/" + self.path.format(quote(str(of), safe="/"))
        return f"{path}?{more}" if (more := urlencode([*query, *body.items()])) else path


_ACKNOWLEDGE: Final = "entries/{}/acknowledge"
ACTIONS: Final = {
    "run": Action("Run now", "entries/{}/run", "Run requested", "r"),
    "tick": Action("Tick now", "agents/{}/tick", "Tick requested", "r"),
    "pause": Action("Pause…", "entries/{}/pause", "Paused", "p", ("until", "note")),
    "resume": Action("Resume", "entries/{}/resume", "Resumed", "u"),
    "retry": Action("Retry", "entries/{}/retry", "Retry requested", "t"),
    "again": Action("Run again", "entries/{}/retry", "Run requested", "r"),
    "backfill": Action("Backfill…", "entries/{}/backfill", "Backfilled", "b", ("from", "to")),
    "snooze": Action("Snooze…", _ACKNOWLEDGE, "Snoozed", "z", ("until=1h", "note")),
    "acknowledge": Action("Acknowledge…", _ACKNOWLEDGE, "Acknowledged", "a", ("note",)),
    "put_back": Action("Put back", "entries/{}/unacknowledge", "Back in the inbox", "a"),
    "approve": Action("Approve", "approvals/{}/approve", "Approved", "y"),
    "reject": Action("Reject…", "approvals/{}/deny", "Rejected", "d", ("reason",)),
    "cancel": Action("Cancel run", "runs/{}/cancel", "Cancelling the run", "c", (), "Cancel run?"),
    "schedule": Action("Change schedule…", "entries/{}/schedule", "Changed", "s", ("schedule",)),
    "add": Action("Add task…", "board/tasks", "Added", "n", ("title", "assignee", "tags")),
    "move": Action("Move…", "board/tasks/{}/move", "Moved", "m"),
    "assign": Action("Assign…", "board/tasks/{}/assign", "Assigned", "a"),
    "plan": Action("Schedule…", "board/tasks/{}/schedule", "Schedule saved", "s"),
    "logout": Action("Log out", "logout", "Logged out"),
}


class Field(NamedTuple):
    name: str
    label: str
    placeholder: str = ""
    longest: int = 200
    is_required: bool = False
    value: str = ""
    options: tuple[str, ...] = ()


_TIME: Final = "2026-06-06T09:00:00Z"
_FIELDS: Final = {
    each.name: each
    for each in (
        Field("until", "Until", f"2h, or {_TIME}", 40),
        Field("note", "Note", "optional"),
        Field("reason", "Reason", "optional"),
        Field("title", "Title", is_required=True),
        Field("status", "Status"),
        Field("assignee", "Assignee", "nobody", 100),
        Field("tags", "Tags", "separated by commas"),
        Field("from", "From", _TIME, 40, is_required=True),
        Field("to", "To", _TIME, 40, is_required=True),
        Field("schedule", "Schedule", "weekdays at 9, or 0 9 * * MON-FRI", 300, is_required=True),
        Field("cron", "Schedule", "0 9 * * MON-FRI", 300),
        Field("timezone", "Time zone", "UTC", 60),
        Field("at", "Scheduled for", _TIME, 40),
    )
}


def fields(asks: Sequence[str] = tuple(_FIELDS)) -> Iterator[Field]:
    """Yield the fields that a button asks for.

    >>> [(each.label, each.value, each.options) for each in fields(["until=1h", "status:todo|wip"])]
    [('Until', '1h', ()), ('Status', '', ('todo', 'wip'))]
    """
    for ask in asks:
        named, _, value = ask.partition("=")
        name, _, options = named.partition(":")
        if name not in _FIELDS:
            raise RequestError(f"there is no field {name[:100]!r}")
        some = tuple(options.split("|")) if options else ()
        yield _FIELDS[name]._replace(value=value, options=some)
