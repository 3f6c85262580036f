r"""A task of the board: Markdown, with YAML between two lines of dashes at its top.

Here it is only read: what a time or a cron expression means is not known to this room.

>>> text = "---\nid: 42\ntitle: Report\ncron_schedule: '0 9 * * MON'\n---\nWrite it.\n"
>>> task = parse(text).task
>>> task.id, task.status, task.cron_schedule, task.body
(42, 'backlog', '0 9 * * MON', 'Write it.\n')
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.kernel.plan import Diagnostic, Severity, Span
from horae.kernel.yaml import YamlError, YamlMap, read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from horae.kernel.yaml import Data

LARGEST_ID: Final = 2**32 - 1

_OPENING: Final = re.compile(r"\ufeff?\s*+---[ \t]*+\r?\n")
_CLOSING: Final = re.compile(r"^---[ \t]*+\r?$", re.MULTILINE)
_NUMBER: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
_ABSENT: Final = frozenset({"~", "null"})
_TEXTS: Final = (
    "title",
    "status",
    "priority",
    "scheduled_for",
    "cron_schedule",
    "cron_last_run",
    "timezone",
)


class Task(NamedTuple):
    """A task as it is written; a time is the text that stands there."""

    id: int
    title: str
    status: str
    priority: str
    scheduled_for: str | None
    cron_schedule: str | None
    cron_last_run: str | None
    timezone: str | None
    tags: tuple[str, ...]
    fields: YamlMap  # all of the frontmatter; places count from `frontmatter.start`
    frontmatter: Span
    body: str

    @property
    def is_archived(self) -> bool:
        """Whether it is put away, by its status or by a tag."""
        return self.status == "archived" or "archived" in self.tags


class Parsed(NamedTuple):
    """The task that a text holds, if it can be told which, and what is wrong with the text."""

    task: Task | None
    diagnostics: tuple[Diagnostic, ...]


def parse(text: str, *, name: str = "-") -> Parsed:
    """Return the task of a Markdown file; *name* is what the file is called."""
    opening = _OPENING.match(text)
    if opening is None:
        message = "a task begins with a line of three dashes and its fields"
        return _refused(name, 1, 1, message, "write --- as the first line")
    line = text.count("\n", 0, opening.end()) + 1
    closing = _CLOSING.search(text, opening.end())
    if closing is None:
        message = "the fields are never closed"
        return _refused(name, line - 1, 1, message, "write --- on a line of its own after them")
    frontmatter = Span(opening.end(), closing.start())
    written = text[frontmatter.start : frontmatter.end]
    try:
        fields = read_yaml(written, name=name, line=line)
    except YamlError as error:
        return _refused(name, error.line, error.column, error.reason, error.fix)
    if not isinstance(fields, YamlMap):
        return _refused(name, line, 1, "there are no fields", "write `id: 1` and `title: …`")
    texts = {key: _text(fields, key, written) for key in _TEXTS}
    odd = tuple(_oddities(name, fields, texts, line=line))
    body = text[closing.end() :].removeprefix("\n")
    return Parsed(_task(fields, texts, frontmatter, body), odd)


def _task(
    fields: YamlMap, texts: Mapping[str, str | None], frontmatter: Span, body: str
) -> Task | None:
    """Return the task that the fields say, if they say which."""
    number, title = _id(fields.get("id")), texts["title"]
    if number is None or title is None:
        return None
    return Task(
        number,
        title,
        texts["status"] or "backlog",
        texts["priority"] or "",
        texts["scheduled_for"],
        texts["cron_schedule"],
        texts["cron_last_run"],
        texts["timezone"],
        _tags(fields.get("tags")),
        fields,
        frontmatter,
        body,
    )


def _oddities(
    name: str, fields: YamlMap, texts: Mapping[str, str | None], *, line: int
) -> Iterator[Diagnostic]:
    """Yield what is wrong with the fields of a task, in the order in which we know them."""
    if _id(fields.get("id")) is None:
        fix = f"write `id:` and a whole number up to {LARGEST_ID:,}"
        yield _at(name, fields, "id", "a task needs a number", fix, line=line)
    if texts["title"] is None and not isinstance(fields.get("title"), list | YamlMap):
        yield _at(name, fields, "title", "a task needs a title", "write `title: …`", line=line)
    for key in _TEXTS:
        if isinstance(fields.get(key), list | YamlMap):
            fix = "write one value, in quotes if it has brackets"
            yield _at(name, fields, key, f"{key} is a text, not a list", fix, line=line)


def _at(name: str, fields: YamlMap, key: str, message: str, fix: str, *, line: int) -> Diagnostic:
    """Return what is wrong at a field; one that is not there would stand first."""
    place = fields.places.get(key)
    where = (line, 1) if place is None else (place.line, place.column)
    return Diagnostic(name, *where, "task", Severity.ERROR, message, fix)


def _refused(name: str, line: int, column: int, message: str, fix: str) -> Parsed:
    """Return no task, and why."""
    return Parsed(None, (Diagnostic(name, line, column, "task", Severity.ERROR, message, fix),))


def _text(fields: YamlMap, key: str, written: str) -> str | None:
    """Return a field that is one text; what stands for nothing, without quotes, is None."""
    value = fields.get(key)
    if not isinstance(value, str) or not value:
        return None
    place = fields.places[key]
    return None if written[place.start : place.end] in _ABSENT else value


def _id(value: Data) -> int | None:
    """Return a task's number; `042` is forty-two."""
    if not isinstance(value, str) or not _NUMBER.fullmatch(value):
        return None
    number = int(value)
    return number if number <= LARGEST_ID else None


def _tags(value: Data) -> tuple[str, ...]:
    """Return the words of a list; a single one may stand without brackets."""
    words = value if isinstance(value, list) else [value]
    return tuple(word for word in words if isinstance(word, str))
