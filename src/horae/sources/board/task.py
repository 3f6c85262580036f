r"""A task of the board: Markdown, with YAML between two lines of dashes at its top.

A value is text until a known field says what kind it is, so `042` is forty-two and `on` a word.

>>> text = "---\nid: 42\ntitle: Report\ncron_schedule: '0 9 * * MON'\n---\nWrite it.\n"
>>> task = parse(text).task
>>> task.id, task.status, task.cron_schedule, task.body
(42, 'backlog', '0 9 * * MON', 'Write it.\n')
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from horae.core.entry import PROPERTIES
from horae.files.yaml import Data, YamlError, YamlMap, read_yaml
from horae.org.plan import Diagnostic, Severity, Span

LARGEST_ID: Final = 2**32 - 1

_OPENING: Final = re.compile(r"\ufeff?\s*+---[ \t]*+\r?\n")
_CLOSING: Final = re.compile(r"^---[ \t]*+\r?$", re.MULTILINE)
_ID: Final = re.compile(
    r"^id:[ \t]*(['\"]?)([0-9]{1,18})\1[ \t]*(?:#.*)?\r?$", re.ASCII | re.MULTILINE
)
_NUMBER: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_FLAGS: Final = {"true": True, "false": False}


class TaskFieldKind(StrEnum):
    TEXT = "text"
    MOMENT = "a time such as 2026-03-25T09:00:00Z"
    NUMBER = "a whole number"
    FLAG = "true or false"
    FLAG_OR_TEXT = "true, false or a reason"
    TEXTS = "a list of strings"
    NUMBERS = "a list of whole numbers"


# The policy of a recurring task.
TASK_PROPERTIES: Final = tuple(each for each in PROPERTIES if each.in_tasks)
_OPTIONS: Final = tuple(each.option for each in TASK_PROPERTIES)
_NAMES: Final = {
    TaskFieldKind.TEXT: "title status priority cron_schedule timezone api assignee claimed_by"
    " attempt_reason block_reason blocked_on review_owner review_disposition review_feedback"
    " reviewed_by worktree_path branch commit test_results outcome next_action execution_owner due"
    " estimate class",
    TaskFieldKind.MOMENT: "scheduled_for cron_last_run claimed_at claim_expires_at"
    " last_progress_at claim_warning_sent_at reviewed_at created updated started completed"
    " retry_at",
    TaskFieldKind.NUMBER: "id claim_ttl_secs claim_extensions last_output_bytes attempt parent",
    TaskFieldKind.FLAG: "tests_run tests_passed",
    TaskFieldKind.FLAG_OR_TEXT: "blocked",
    TaskFieldKind.TEXTS: "tags roles review_blockers changed_paths artifacts files",
    TaskFieldKind.NUMBERS: "depends_on",
}
# Unknown fields are kept and have no meaning.
FIELDS: Final = {
    **{name: kind for kind, names in _NAMES.items() for name in names.split()},
    **dict.fromkeys(_OPTIONS, TaskFieldKind.TEXT),
}
# With one of these wrong, the task could start too early, or be confused with another.
_STRICT: Final = {
    *("title", "status", "priority", "scheduled_for", "cron_schedule", "cron_last_run"),
    *("timezone", "api", "depends_on", *_OPTIONS),
}


class Task(NamedTuple):
    """A task as it is written; times are text."""

    id: int
    title: str
    status: str
    priority: str
    scheduled_for: str | None
    cron_schedule: str | None
    cron_last_run: str | None
    timezone: str | None
    tags: tuple[str, ...]
    depends_on: tuple[int, ...]
    fields: YamlMap  # all of the frontmatter; places count from `frontmatter.start`
    absent: frozenset[str]  # fields whose value is `null` or `~`
    frontmatter: Span
    body: str

    @property
    def is_archived(self) -> bool:
        return self.status == "archived" or "archived" in self.tags

    def text(self, key: str) -> str | None:
        value = self.fields.get(key)
        return value if isinstance(value, str) and value and key not in self.absent else None

    def number(self, key: str) -> int | None:
        return _number(self.text(key))

    def flag(self, key: str) -> bool | None:
        return _FLAGS.get((self.text(key) or "").lower())

    def texts(self, key: str) -> tuple[str, ...]:
        return _texts(self.fields.get(key) if key not in self.absent else None)

    def numbers(self, key: str) -> tuple[int, ...]:
        read = map(_number, self.texts(key))
        return tuple(number for number in read if number is not None)


class ParsedTask(NamedTuple):
    """The task of a text, None without a number or title, and the problems of the text."""

    task: Task | None
    diagnostics: tuple[Diagnostic, ...]


def parse(text: str, *, name: str = "-") -> ParsedTask:
    def refused(line: int, column: int, message: str, fix: str | None) -> ParsedTask:
        problem = Diagnostic(name, line, column, "task", Severity.ERROR, message, fix)
        return ParsedTask(None, (problem,))

    opening = _OPENING.match(text)
    if opening is None:
        message = "a task file must begin with a line of three dashes and the fields"
        return refused(1, 1, message, "write --- as the first line")
    line = text.count("\n", 0, opening.end()) + 1
    closing = _CLOSING.search(text, opening.end())
    if closing is None:
        fix = "write --- on its own line after the fields"
        return refused(line - 1, 1, "the fields are not closed", fix)
    frontmatter = Span(opening.end(), closing.start())
    written = text[frontmatter.start : frontmatter.end]
    try:
        fields = read_yaml(written, name=name, line=line)
    except YamlError as error:
        return refused(error.line, error.column, error.reason, error.fix)
    if not isinstance(fields, YamlMap):
        return refused(line, 1, "there are no fields", "write `id: 1` and `title: …`")
    values = ((key, written[place.start : place.end]) for key, place in fields.places.items())
    absent = frozenset(key for key, value in values if value in {"~", "null"})
    body = text[closing.end() :].removeprefix("\n")
    bare = Task(
        -1, "", "", "", None, None, None, None, (), (), fields, absent, frontmatter, body
    )  # fmt: skip
    number = bare.number("id")
    task = bare._replace(
        id=number if number is not None and number <= LARGEST_ID else -1,
        title=bare.text("title") or "",
        status=bare.text("status") or "backlog",
        priority=bare.text("priority") or "",
        scheduled_for=bare.text("scheduled_for"),
        cron_schedule=bare.text("cron_schedule"),
        cron_last_run=bare.text("cron_last_run"),
        timezone=bare.text("timezone"),
        tags=bare.texts("tags"),
        depends_on=bare.numbers("depends_on"),
    )
    found = []
    for key, severity, message, fix in _misfits(task):
        place = fields.places.get(key)
        where = (line, 1) if place is None else (place.line, place.column)
        found.append(Diagnostic(name, *where, "task", severity, message, fix))
    return ParsedTask(task if task.id >= 0 and task.title else None, tuple(found))


def id_of(text: str) -> int | None:
    r"""Return the number of the task in a text, usually without parsing the other fields.

    >>> id_of("---\nid: 042\ntitle: Report\n---\nid: 7\n"), id_of("id: 7\n")
    (42, None)
    """
    opening = _OPENING.match(text)
    closing = None if opening is None else _CLOSING.search(text, opening.end())
    if opening is None or closing is None:
        return None
    plain = _ID.search(text, opening.end(), closing.start())
    if plain is not None:
        return int(plain[2])
    task = parse(text).task
    return None if task is None else task.id


def lines_of(text: str, task: Task, key: str) -> Span:
    place, base = task.fields.places[key], task.frontmatter.start
    start = text.rfind("\n", 0, base + place.key) + 1
    end = text.find("\n", base + max(place.key, place.end))
    return Span(start, len(text) if end < 0 else end + 1)


def value_of(text: str, task: Task, key: str) -> Span:
    place, base = task.fields.places[key], task.frontmatter.start
    at, start = base + place.key, base + place.start
    if "\n" in text[at:start]:
        line = text[at : text.index("\n", at)]
        after = line.index(line[0], 1) + 1 if line[:1] in {"'", '"'} else 0
        start = at + line.index(":", after) + 1
    return Span(start, base + place.end)


def byte_span(text: str, span: Span) -> Span:
    if text.isascii():
        return span
    start = len(text[: span.start].encode())
    return Span(start, start + len(text[span.start : span.end].encode()))


def _misfits(task: Task) -> Iterator[tuple[str, Severity, str, str]]:
    fields = task.fields
    if task.id < 0:
        fix = f"write `id:` and a whole number up to {LARGEST_ID:,}"
        yield "id", Severity.ERROR, "a task needs an id", fix
    if not task.title and not isinstance(fields.get("title"), list | YamlMap):
        yield "title", Severity.ERROR, "a task needs a title", "write `title: …`"
    for key, value in fields.items():
        if key == "id" or key in task.absent or not value:
            continue
        is_list = isinstance(value, list | YamlMap)
        match FIELDS.get(key):
            case TaskFieldKind.TEXT | TaskFieldKind.MOMENT | TaskFieldKind.FLAG_OR_TEXT if is_list:
                message = "must be text, not a list"
                fix = "write one value, in quotes if it has brackets"
            case TaskFieldKind.NUMBER if is_list or _number(value) is None:
                message, fix = "must be a whole number", "use only digits"
            case TaskFieldKind.FLAG if is_list or str(value).lower() not in _FLAGS:
                message, fix = "must be true or false", "write true or false"
            case TaskFieldKind.TEXTS if isinstance(value, YamlMap) or _has_nested(value):
                message, fix = "must be a list of strings", "write it like [one, two]"
            case TaskFieldKind.NUMBERS if _has_nested(value) or None in map(_number, _texts(value)):
                message, fix = "must be a list of numbers", "write it like [7, 12]"
            case _:
                continue
        yield key, Severity.ERROR if key in _STRICT else Severity.WARNING, f"{key} {message}", fix


def _has_nested(value: Data) -> bool:
    return len(_texts(value)) < (len(value) if isinstance(value, list) else 1)


def _number(value: Data) -> int | None:
    return int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else None


def _texts(value: Data) -> tuple[str, ...]:
    parts = value if isinstance(value, list) else [value]
    return tuple(part for part in parts if isinstance(part, str))
